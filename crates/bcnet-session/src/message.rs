//! The messages that the host itself sends.

use std::fmt;
use std::num::NonZeroI32;

use crate::config::{Config, MissionRules};
use crate::game::{
    self, Chat, ChecksumComplete, ChecksumFailure, ChecksumRequest, DeletePlayerAnimation, DestroyObject,
    EndCode, EndGame, EventDetail, EventNumber, Exploding, FileCheckRound, GameEvent, GameInit, Kill, Killer,
    Limit, Message, MissionInit, ObjectId, Opcode, PlayerScores, RequestFlags, RestartGame, RoundTime,
    ScoreChange, ScoreInit, Settings, SettingsFlags, SystemNumber, TeamScore, Text16, TimeLimit,
    VersionDifferent,
};
use crate::text::to_latin1;

/// A score in the form of the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Score {
    /// The number of destroyed ships. The server does not see kills; it can only guess them ([S-45]).
    ///
    /// [S-45]: bcnet_transport::wire::protocol#s-45
    pub kills: i32,
    /// Ships lost.
    pub deaths: i32,
    /// The points. The rule by which a stock host gives points is not known, so the server gives none.
    pub points: i32,
}

impl fmt::Display for Score {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} points, {} kills, {} deaths", self.points, self.kills, self.deaths)
    }
}

/// Converts text for a message to Latin-1 and truncates it to [`MAX_TEXT_LEN`].
pub(crate) fn wire_text(text: &str) -> Vec<u8> {
    to_latin1(text).take(MAX_TEXT_LEN).collect()
}

/// The file check request of a round (S-20).
pub(crate) fn checksum_request(round: &FileCheckRound) -> Message<'static> {
    Message::ChecksumRequest(ChecksumRequest {
        round: round.index,
        directory: Text16(round.directory.as_bytes()),
        filter: Text16(round.filter.as_bytes()),
        flags: RequestFlags::default().with(RequestFlags::RECURSIVE, round.recursive),
    })
}

/// The message that files differ (S-24).
pub(crate) fn checksum_failed(opcode: Opcode, entry: &[u8]) -> Message<'_> {
    let file = Text16(entry);
    if opcode == Opcode::VERSION_DIFFERENT {
        Message::VersionDifferent(VersionDifferent { file })
    } else {
        Message::ChecksumFailure(ChecksumFailure { file })
    }
}

/// The message that the files are accepted (S-25).
pub(crate) const CHECKSUM_COMPLETE: Message<'static> = Message::ChecksumComplete(ChecksumComplete {});

/// The settings of the game (S-25). `mission` is the name of the mission script.
pub(crate) fn settings<'a>(rules: &MissionRules, slot: u8, time: f32, mission: &'a [u8]) -> Message<'a> {
    let flags = SettingsFlags::default()
        .with(SettingsFlags::COLLISIONS, rules.collisions)
        .with(SettingsFlags::FRIENDLY_FIRE, rules.friendly_fire);
    Message::Settings(Settings { time, flags, slot, mission: Text16(mission), correction_data: &[] })
}

/// The message that the client can load the mission (S-25).
pub(crate) const GAME_INIT: Message<'static> = Message::GameInit(GameInit {});

/// The star system and the limits of the round (S-30).
pub(crate) fn mission_init(config: &Config, system: u8, time: Option<TimeLimit>) -> Message<'static> {
    Message::MissionInit(MissionInit {
        player_limit: u8::try_from(config.max_players()).unwrap_or(u8::MAX),
        system: SystemNumber(system),
        time_limit: RoundTime(time),
        frag_limit: Limit(config.frag_limit),
    })
}

/// The score of a player (S-30).
pub(crate) fn score(peer: u8, score: Score) -> Message<'static> {
    let Score { kills, deaths, points } = score;
    Message::Score(game::Score { peer: peer.into(), kills, deaths, score: points })
}

/// The score of a player with a team (S-30).
pub(crate) fn team_player_score(peer: u8, score: Score, team: u8) -> Message<'static> {
    let Score { kills, deaths, points } = score;
    Message::ScoreInit(ScoreInit { peer: peer.into(), kills, deaths, score: points, team })
}

/// The score of a team (S-30).
pub(crate) const fn team_score(team: u8, score: Score) -> Message<'static> {
    Message::TeamScore(TeamScore { team, kills: score.kills, score: score.points })
}

/// The event that a player has joined (S-31).
pub(crate) const fn player_joined(peer: u8) -> Message<'static> {
    player_event(EventNumber::NEW_PLAYER_IN_GAME, peer)
}

/// The event that a player has left (S-50).
pub(crate) const fn player_left(peer: u8) -> Message<'static> {
    player_event(EventNumber::DELETE_PLAYER, peer)
}

const fn player_event(event: EventNumber, peer: u8) -> Message<'static> {
    let (source, related) = (ObjectId::NONE, ObjectId::NONE);
    Message::PlayerListEvent(GameEvent { event, source, related, detail: EventDetail::Player(peer) })
}

/// The message `DeletePlayerAnimation` with the name of a player that has left (S-50).
pub(crate) const fn delete_player_animation(name: &[u8]) -> Message<'_> {
    Message::DeletePlayerAnimation(DeletePlayerAnimation { name: Text16(name) })
}

/// The message that removes an object (S-50, S-36).
pub(crate) const fn destroy_object(object: ObjectId) -> Message<'static> {
    Message::DestroyObject(DestroyObject { object })
}

/// The event that a ship explodes (S-35).
pub(crate) const fn exploding(ship: ObjectId) -> Message<'static> {
    Message::PythonEvent(GameEvent {
        event: EventNumber::OBJECT_EXPLODING,
        source: ObjectId::NONE,
        related: ship,
        detail: EventDetail::Exploding(Exploding { killer: NO_KILLER, lifetime: EXPLOSION_SECONDS }),
    })
}

/// The new number of deaths of a player whose ship was destroyed without a killer (S-35).
pub(crate) fn ship_lost(peer: u8, deaths: i32) -> Message<'static> {
    score_change(Killer(None), peer, deaths)
}

/// The new scores after a kill: those of the killer, and the victim's deaths (S-45).
pub(crate) fn ship_killed(by: u8, score: Score, peer: u8, deaths: i32) -> Message<'static> {
    let Score { kills, points, .. } = score;
    let kill = |killer| Kill { killer, kills, score: points };
    score_change(Killer(NonZeroI32::new(by.into()).map(kill)), peer, deaths)
}

fn score_change(killer: Killer, peer: u8, deaths: i32) -> Message<'static> {
    Message::ScoreChange(ScoreChange {
        killer,
        victim: peer.into(),
        deaths,
        players: PlayerScores::default(),
    })
}

/// A line of chat (S-40).
pub(crate) fn chat(sender: u8, text: &[u8]) -> Message<'_> {
    Message::Chat(Chat { sender: sender.into(), text: Text16(text) })
}

/// The message that the round is over (S-60).
pub(crate) const fn end_game(reason: EndCode) -> Message<'static> {
    Message::EndGame(EndGame { reason })
}

/// The message that the next round begins (S-61).
pub(crate) const RESTART_GAME: Message<'static> = Message::RestartGame(RestartGame {});

/// The longest text that the server sends, in characters.
pub(crate) const MAX_TEXT_LEN: usize = 380;
const NO_KILLER: i32 = 0;
/// The duration of a ship's explosion.
const EXPLOSION_SECONDS: f32 = 9.5;
