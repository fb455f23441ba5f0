//! What a client reads out of game messages. `None` where one is not whole.

use bcnet_transport::wire::PeerId;

use super::event::{FileCheck, Mission, Settings, Ship};
use crate::config::MAX_SLOTS;
use crate::game::{self, Created, Detail, EventNumber, Opcode, RequestFlags, SettingsFlags};
use crate::message::Score;

/// A game message that a client looks into.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Message {
    FileCheck(FileCheck),
    FilesDiffer(String),
    FilesPassed,
    Settings(Settings),
    Load,
    Mission(Mission),
    Listed(PeerId),
    Unlisted(PeerId),
    Chat { peer: PeerId, text: String, team: bool },
    Score { peer: PeerId, score: Score, team: Option<u8> },
    TeamScore { team: u8, score: Score },
    ScoreChange(ScoreChange),
    End(i32),
    Restart,
    Created(Ship),
    Exploding(u32),
    Destroyed(u32),
    Other,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct ScoreChange {
    pub(super) killer: Option<(PeerId, i32, i32)>,
    pub(super) victim: (PeerId, i32),
    pub(super) others: Vec<(PeerId, i32)>,
}

pub(super) fn read(payload: &[u8]) -> Option<Message> {
    if !is_looked_into(Opcode::of(payload)?) {
        return Some(Message::Other);
    }
    let (message, _) = game::Message::parse_prefix(payload).ok()?;
    Some(match message {
        game::Message::ChecksumRequest(request) => file_check(&request),
        game::Message::ChecksumFailure(game::ChecksumFailure { file })
        | game::Message::VersionDifferent(game::VersionDifferent { file }) => {
            Message::FilesDiffer(file.to_string())
        }
        game::Message::ChecksumComplete(_) => Message::FilesPassed,
        game::Message::Settings(told) => settings(&told)?,
        game::Message::GameInit(_) => Message::Load,
        game::Message::MissionInit(told) => mission(&told),
        game::Message::PlayerListEvent(event) => player_event(&event),
        game::Message::Chat(game::Chat { sender, text }) => {
            Message::Chat { peer: peer(sender)?, text: text.to_string(), team: false }
        }
        game::Message::TeamChat(game::TeamChat { sender, text }) => {
            Message::Chat { peer: peer(sender)?, text: text.to_string(), team: true }
        }
        game::Message::Score(game::Score { peer: id, kills, deaths, score }) => {
            Message::Score { peer: peer(id)?, score: Score { kills, deaths, points: score }, team: None }
        }
        game::Message::ScoreInit(game::ScoreInit { peer: id, kills, deaths, score, team }) => {
            Message::Score {
                peer: peer(id)?,
                score: Score { kills, deaths, points: score },
                team: Some(team),
            }
        }
        game::Message::TeamScore(game::TeamScore { team, kills, score }) => {
            Message::TeamScore { team, score: Score { kills, deaths: 0, points: score } }
        }
        game::Message::ScoreChange(change) => score_change(&change)?,
        game::Message::EndGame(game::EndGame { reason }) => Message::End(reason.0),
        game::Message::RestartGame(_) => Message::Restart,
        game::Message::ObjectCreate(created) => ship(created.slot, None, &created.object)?,
        game::Message::ObjectCreateTeam(created) => {
            ship(created.slot, Some(PeerId(created.peer)), &created.object)?
        }
        game::Message::PythonEvent(event) if matches!(event.detail, Detail::Exploding(_)) => {
            Message::Exploding(event.related.0)
        }
        game::Message::DestroyObject(game::DestroyObject { object }) => Message::Destroyed(object.0),
        _ => Message::Other,
    })
}

/// Of other messages it does not matter whether they are whole.
const fn is_looked_into(opcode: Opcode) -> bool {
    matches!(
        opcode,
        Opcode::CHECKSUM_REQUEST
            | Opcode::CHECKSUM_FAILURE
            | Opcode::VERSION_DIFFERENT
            | Opcode::CHECKSUM_COMPLETE
            | Opcode::SETTINGS
            | Opcode::GAME_INIT
            | Opcode::MISSION_INIT
            | Opcode::PLAYER_LIST_EVENT
            | Opcode::CHAT
            | Opcode::TEAM_CHAT
            | Opcode::SCORE
            | Opcode::SCORE_INIT
            | Opcode::TEAM_SCORE
            | Opcode::SCORE_CHANGE
            | Opcode::END_GAME
            | Opcode::RESTART_GAME
            | Opcode::OBJECT_CREATE
            | Opcode::OBJECT_CREATE_TEAM
            | Opcode::PYTHON_EVENT
            | Opcode::DESTROY_OBJECT
    )
}

fn file_check(request: &game::ChecksumRequest<'_>) -> Message {
    Message::FileCheck(FileCheck {
        index: request.round,
        directory: request.directory.to_string(),
        filter: request.filter.to_string(),
        recursive: request.flags.has(RequestFlags::RECURSIVE),
    })
}

fn settings(told: &game::Settings<'_>) -> Option<Message> {
    Some(Message::Settings(Settings {
        mission: told.mission.to_string(),
        slot: Some(told.slot).filter(|slot| usize::from(*slot) < MAX_SLOTS)?,
        game_time: told.time,
        collisions: told.flags.has(SettingsFlags::COLLISIONS),
        friendly_fire: told.flags.has(SettingsFlags::FRIENDLY_FIRE),
    }))
}

fn mission(told: &game::MissionInit) -> Message {
    Message::Mission(Mission {
        player_limit: told.player_limit,
        system: told.system.0,
        time_limit: told.time_limit.0.map(|limit| (limit.minutes, limit.end_time)),
        frag_limit: told.frag_limit.0,
    })
}

fn player_event(event: &game::Event<'_>) -> Message {
    match (&event.detail, event.event) {
        (Detail::Player(id), EventNumber::NEW_PLAYER_IN_GAME) => Message::Listed(PeerId(*id)),
        (Detail::Player(id), EventNumber::DELETE_PLAYER) => Message::Unlisted(PeerId(*id)),
        _ => Message::Other,
    }
}

fn score_change(change: &game::ScoreChange) -> Option<Message> {
    let killer = match change.killer.0 {
        None => None,
        Some(kill) => Some((peer(kill.killer.get())?, kill.kills, kill.score)),
    };
    let others = change.players.0.iter().map(|player| Some((peer(player.player)?, player.score)));
    let (victim, others) = ((peer(change.victim)?, change.deaths), others.collect::<Option<_>>()?);
    Some(Message::ScoreChange(ScoreChange { killer, victim, others }))
}

fn ship(slot: u8, peer: Option<PeerId>, created: &Created<'_>) -> Option<Message> {
    let Created::Ship { object, ship } = created else { return Some(Message::Other) };
    let own = object.owner() == Some(slot);
    own.then_some(Message::Created(Ship { slot, peer, object: object.0, species: ship.species.0 }))
}

fn peer(id: i32) -> Option<PeerId> {
    u8::try_from(id).ok().map(PeerId)
}
