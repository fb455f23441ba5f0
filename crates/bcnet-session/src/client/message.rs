//! What a client reads out of game messages. `None` where one is not whole.

use bcnet_transport::wire::PeerId;

use super::event::{FileCheck, Mission, Settings, Ship};
use crate::config::MAX_SLOTS;
use crate::message::{Score, op};
use crate::read::Reader;
use crate::relay;
use crate::text::from_latin1;

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
    let mut r = Reader(payload);
    let opcode = r.u8()?;
    let r = &mut r;
    Some(match opcode {
        op::CHECKSUM_REQUEST => file_check(r)?,
        0x22 | 0x23 => Message::FilesDiffer(text(r)?),
        op::CHECKSUM_DONE => Message::FilesPassed,
        op::SETTINGS => settings(r)?,
        op::GAME_INIT => Message::Load,
        op::MISSION_INIT => mission(r)?,
        op::PLAYER_EVENT => player_event(r)?,
        op::CHAT | 0x2D => Message::Chat { peer: peer(r)?, text: text(r)?, team: opcode == 0x2D },
        op::SCORE => Message::Score { peer: peer(r)?, score: score(r)?, team: None },
        op::TEAM_PLAYER_SCORE => Message::Score { peer: peer(r)?, score: score(r)?, team: Some(r.u8()?) },
        op::TEAM_SCORE => team_score(r)?,
        op::SCORE_CHANGE => score_change(r)?,
        op::END => Message::End(i32(r)?),
        op::RESTART => Message::Restart,
        op::CREATE | op::CREATE_TEAM => created(r, opcode == op::CREATE_TEAM)?,
        op::EVENT if relay_event(r) => Message::Exploding(ship(r)?),
        op::DESTROY => Message::Destroyed(r.u32()?),
        _ => Message::Other,
    })
}

fn file_check(r: &mut Reader<'_>) -> Option<Message> {
    let (index, directory, filter) = (r.u8()?, text(r)?, text(r)?);
    Some(Message::FileCheck(FileCheck { index, directory, filter, recursive: r.u8()? & 1 != 0 }))
}

fn settings(r: &mut Reader<'_>) -> Option<Message> {
    let game_time = f32::from_bits(r.u32()?);
    let (flags, slot) = (r.u8()?, r.u8()?);
    let slot = Some(slot).filter(|slot| usize::from(*slot) < MAX_SLOTS)?;
    let (collisions, friendly_fire) = (flags & 1 != 0, flags & 2 != 0);
    Some(Message::Settings(Settings { mission: text(r)?, slot, game_time, collisions, friendly_fire }))
}

fn mission(r: &mut Reader<'_>) -> Option<Message> {
    let (player_limit, system, minutes) = (r.u8()?, r.u8()?, r.u8()?);
    let time_limit = if minutes == NO_LIMIT { None } else { Some((minutes, i32(r)?)) };
    let frag_limit = Some(r.u8()?).filter(|limit| *limit != NO_LIMIT);
    Some(Message::Mission(Mission { player_limit, system, time_limit, frag_limit }))
}

fn player_event(r: &mut Reader<'_>) -> Option<Message> {
    let (class, event) = (r.u32()?, r.u32()?);
    r.bytes(8)?;
    Some(match (class, event) {
        (0x866, 0x0080_00F1) => Message::Listed(PeerId(r.u8()?)),
        (0x866, 0x0006_0005) => Message::Unlisted(PeerId(r.u8()?)),
        _ => Message::Other,
    })
}

fn team_score(r: &mut Reader<'_>) -> Option<Message> {
    let team = r.u8()?;
    Some(Message::TeamScore { team, score: Score { kills: i32(r)?, deaths: 0, points: i32(r)? } })
}

fn score_change(r: &mut Reader<'_>) -> Option<Message> {
    let killer = match r.u32()? {
        0 => None,
        id => Some((peer_id(id)?, i32(r)?, i32(r)?)),
    };
    let victim = (peer(r)?, i32(r)?);
    let count = r.u8()?;
    let others = (0..count).map(|_| Some((peer(r)?, i32(r)?))).collect::<Option<_>>()?;
    Some(Message::ScoreChange(ScoreChange { killer, victim, others }))
}

fn created(r: &mut Reader<'_>, team: bool) -> Option<Message> {
    let slot = r.u8()?;
    let peer = if team { Some(PeerId(r.u8()?)) } else { None };
    if r.u32()? != 0x8008 {
        return Some(Message::Other);
    }
    let (object, species) = (r.u32()?, r.u8()?);
    let own = relay::owner(object) == Some(slot);
    own.then_some(Message::Created(Ship { slot, peer, object, species }))
}

fn relay_event(r: &Reader<'_>) -> bool {
    crate::read::u32_at(r.0, 0) == Some(0x8129)
}

fn ship(r: &mut Reader<'_>) -> Option<u32> {
    r.bytes(12)?;
    r.u32()
}

fn score(r: &mut Reader<'_>) -> Option<Score> {
    Some(Score { kills: i32(r)?, deaths: i32(r)?, points: i32(r)? })
}

fn peer(r: &mut Reader<'_>) -> Option<PeerId> {
    peer_id(r.u32()?)
}

fn peer_id(id: u32) -> Option<PeerId> {
    u8::try_from(id).ok().map(PeerId)
}

fn i32(r: &mut Reader<'_>) -> Option<i32> {
    r.u32().map(u32::cast_signed)
}

fn text(r: &mut Reader<'_>) -> Option<String> {
    let len = r.u16()?;
    r.bytes(len.into()).map(from_latin1)
}

const NO_LIMIT: u8 = 0xFF;
