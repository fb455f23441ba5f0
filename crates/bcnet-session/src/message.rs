//! Payloads that the server makes itself. Each is written into a buffer that the caller keeps.

use std::fmt;

use crate::config::{Config, Rules};
use crate::text::latin1;

/// Opcodes by what the session does with them; the table of all is in [`relay`](crate::relay).
pub(crate) mod op {
    use crate::payload::Opcode;

    pub(crate) const SETTINGS: u8 = Opcode::SETTINGS.0;
    pub(crate) const GAME_INIT: u8 = Opcode::GAME_INIT.0;
    pub(crate) const CREATE: u8 = Opcode::OBJECT_CREATE.0;
    pub(crate) const CREATE_TEAM: u8 = Opcode::OBJECT_CREATE_TEAM.0;
    pub(crate) const EVENT: u8 = Opcode::PYTHON_EVENT.0;
    pub(crate) const SELF_DESTRUCT: u8 = Opcode::HOST_MESSAGE.0;
    pub(crate) const DESTROY: u8 = Opcode::DESTROY_OBJECT.0;
    pub(crate) const PLAYER_EVENT: u8 = Opcode::PLAYER_LIST_EVENT.0;
    pub(crate) const PLAYER_GONE: u8 = Opcode::DELETE_PLAYER_ANIMATION.0;
    pub(crate) const STATE_UPDATE: u8 = Opcode::STATE_UPDATE.0;
    pub(crate) const CHECKSUM_REQUEST: u8 = Opcode::CHECKSUM_REQUEST.0;
    pub(crate) const CHECKSUM_REPLY: u8 = Opcode::CHECKSUM_RESPONSE.0;
    pub(crate) const TRANSFER_ACK: u8 = Opcode::FILE_TRANSFER_ACK.0;
    pub(crate) const CHECKSUM_DONE: u8 = Opcode::CHECKSUM_COMPLETE.0;
    pub(crate) const IN_GAME: u8 = Opcode::NEW_PLAYER_IN_GAME.0;
    pub(crate) const CHAT: u8 = Opcode::CHAT.0;
    pub(crate) const MISSION_INIT: u8 = Opcode::MISSION_INIT.0;
    pub(crate) const SCORE_CHANGE: u8 = Opcode::SCORE_CHANGE.0;
    pub(crate) const SCORE: u8 = Opcode::SCORE.0;
    pub(crate) const END: u8 = Opcode::END_GAME.0;
    pub(crate) const RESTART: u8 = Opcode::RESTART_GAME.0;
    pub(crate) const TEAM_PLAYER_SCORE: u8 = Opcode::SCORE_INIT.0;
    pub(crate) const TEAM_SCORE: u8 = Opcode::TEAM_SCORE.0;
}

/// One round of the file check: which files of which directory.
#[derive(Debug)]
pub(crate) struct Round {
    /// Its number on the wire.
    pub(crate) index: u8,
    pub(crate) directory: &'static str,
    pub(crate) filter: &'static str,
    recursive: bool,
}

/// S-20: the rounds of the file check, in their order.
pub(crate) const ROUNDS: [Round; 5] = [
    Round { index: 0, directory: "scripts/", filter: "App.pyc", recursive: false },
    Round { index: 1, directory: "scripts/", filter: "Autoexec.pyc", recursive: false },
    Round { index: 2, directory: "scripts/ships", filter: "*.pyc", recursive: true },
    Round { index: 3, directory: "scripts/mainmenu", filter: "*.pyc", recursive: false },
    Round { index: 0xFF, directory: "Scripts/Multiplayer", filter: "*.pyc", recursive: true },
];

/// A score as the wire has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Score {
    /// Ships destroyed. Only what others say: the server sees none.
    pub kills: i32,
    /// Ships lost.
    pub deaths: i32,
    /// Points.
    pub points: i32,
}

impl fmt::Display for Score {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} points, {} kills, {} deaths", self.points, self.kills, self.deaths)
    }
}

/// Writes payloads one after the other into the same memory.
#[derive(Debug, Default)]
pub(crate) struct Payload(Vec<u8>);

impl Payload {
    fn start(&mut self, opcode: u8) -> &mut Self {
        self.0.clear();
        self.u8(opcode)
    }

    fn u8(&mut self, value: u8) -> &mut Self {
        self.0.push(value);
        self
    }

    fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        self.0.extend_from_slice(bytes);
        self
    }

    fn u32(&mut self, value: u32) -> &mut Self {
        self.bytes(&value.to_le_bytes())
    }

    fn i32(&mut self, value: i32) -> &mut Self {
        self.bytes(&value.to_le_bytes())
    }

    /// Text with its length before it, cut to what a message should have.
    fn text(&mut self, text: impl Iterator<Item = u8>) -> &mut Self {
        let at = self.0.len();
        self.bytes(&[0; 2]);
        self.0.extend(text.take(MAX_TEXT));
        let len = u16::try_from(self.0.len() - at - 2).unwrap_or(0);
        if let Some(place) = self.0.get_mut(at..at + 2) {
            place.copy_from_slice(&len.to_le_bytes());
        }
        self
    }

    fn done(&self) -> &[u8] {
        &self.0
    }

    /// S-20
    pub(crate) fn checksum_request(&mut self, round: &Round) -> &[u8] {
        self.start(op::CHECKSUM_REQUEST).u8(round.index).text(round.directory.bytes());
        self.text(round.filter.bytes()).u8(0x20 | u8::from(round.recursive)).done()
    }

    /// S-24
    pub(crate) fn checksum_failed(&mut self, opcode: u8, entry: &str) -> &[u8] {
        self.start(opcode).text(latin1(entry)).done()
    }

    /// S-25
    pub(crate) fn checksum_done(&mut self) -> &[u8] {
        self.start(op::CHECKSUM_DONE).done()
    }

    /// S-25
    pub(crate) fn settings(&mut self, rules: &Rules, slot: u8, game_time: f32) -> &[u8] {
        let flags = 0x60 | u8::from(rules.collisions) | u8::from(rules.friendly_fire) << 1;
        self.start(op::SETTINGS).bytes(&game_time.to_le_bytes()).u8(flags).u8(slot);
        self.text(latin1(&rules.mission.script)).done()
    }

    /// S-25
    pub(crate) fn game_init(&mut self) -> &[u8] {
        self.start(op::GAME_INIT).done()
    }

    /// S-30. `time` is the limit in minutes, and when it is up, in seconds of the game clock.
    pub(crate) fn mission_init(&mut self, config: &Config, system: u8, time: Option<(u8, i32)>) -> &[u8] {
        let limit = u8::try_from(config.places()).unwrap_or(u8::MAX);
        self.start(op::MISSION_INIT).u8(limit).u8(system);
        match time {
            Some((minutes, ends)) => self.u8(minutes).i32(ends),
            None => self.u8(0xFF),
        };
        self.u8(config.frag_limit.unwrap_or(0xFF)).done()
    }

    /// S-30
    pub(crate) fn score(&mut self, peer: u8, score: Score) -> &[u8] {
        self.start(op::SCORE).u32(peer.into()).i32(score.kills).i32(score.deaths).i32(score.points).done()
    }

    /// S-30
    pub(crate) fn team_player_score(&mut self, peer: u8, score: Score, team: u8) -> &[u8] {
        self.start(op::TEAM_PLAYER_SCORE).u32(peer.into());
        self.i32(score.kills).i32(score.deaths).i32(score.points).u8(team).done()
    }

    /// S-30
    pub(crate) fn team_score(&mut self, team: u8, score: Score) -> &[u8] {
        self.start(op::TEAM_SCORE).u8(team).i32(score.kills).i32(score.points).done()
    }

    /// S-31
    pub(crate) fn player_joined(&mut self, peer: u8) -> &[u8] {
        self.player_event(PLAYER_JOINED, peer)
    }

    /// S-50
    pub(crate) fn player_left(&mut self, peer: u8) -> &[u8] {
        self.player_event(PLAYER_LEFT, peer)
    }

    fn player_event(&mut self, event: u32, peer: u8) -> &[u8] {
        self.start(op::PLAYER_EVENT).u32(0x866).u32(event).u32(0).u32(0).u8(peer).done()
    }

    /// S-50
    pub(crate) fn player_gone(&mut self, name: &str) -> &[u8] {
        self.start(op::PLAYER_GONE).text(latin1(name)).done()
    }

    /// S-50, S-36
    pub(crate) fn destroy(&mut self, object: u32) -> &[u8] {
        self.start(op::DESTROY).u32(object).done()
    }

    /// S-35
    pub(crate) fn exploding(&mut self, ship: u32) -> &[u8] {
        self.start(op::EVENT).u32(0x8129).u32(0x0080_004E).u32(0).u32(ship).u32(0);
        self.bytes(&EXPLOSION_SECONDS.to_le_bytes()).done()
    }

    /// S-35
    pub(crate) fn died(&mut self, peer: u8, deaths: i32) -> &[u8] {
        self.start(op::SCORE_CHANGE).u32(0).u32(peer.into()).i32(deaths).u8(0).done()
    }

    /// S-40
    pub(crate) fn chat(&mut self, sender: u8, text: impl Iterator<Item = u8>) -> &[u8] {
        self.start(op::CHAT).u32(sender.into()).text(text).done()
    }

    /// S-60
    pub(crate) fn end(&mut self, reason: i32) -> &[u8] {
        self.start(op::END).i32(reason).done()
    }

    /// S-61
    pub(crate) fn restart(&mut self) -> &[u8] {
        self.start(op::RESTART).done()
    }
}

/// The longest text the server writes.
pub(crate) const MAX_TEXT: usize = 380;
const PLAYER_JOINED: u32 = 0x0080_00F1;
const PLAYER_LEFT: u32 = 0x0006_0005;
/// How long a ship takes to explode.
const EXPLOSION_SECONDS: f32 = 9.5;
