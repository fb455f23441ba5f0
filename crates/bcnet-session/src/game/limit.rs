//! Scores and limits: fields that are present only if another field says so ([S-71]).
//!
//! [S-71]: bcnet_transport::wire::protocol#s-71

use std::num::NonZeroI32;

use super::field::{Cut, Names, Reader, Wire, names};

/// A limit of minutes or kills. `None` means no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Limit(pub Option<u8>);

/// The time limit of a round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimeLimit {
    /// The length of the round in minutes, at most 254.
    pub minutes: u8,
    /// The end of the round, in seconds of the game clock.
    pub end_time: i32,
}

impl<'a> Wire<'a> for Limit {
    const KIND: &'static str = "limit";

    fn read(reader: &mut Reader<'a>, names: &'static Names) -> Result<Self, Cut> {
        u8::read(reader, names).map(|limit| Self(Some(limit).filter(|limit| *limit != NO_LIMIT)))
    }

    fn write(&self, out: &mut Vec<u8>) {
        out.push(self.0.unwrap_or(NO_LIMIT));
    }
}

/// A time limit, or none.
///
/// This is not an [`Option`], because an optional field is absent if no bytes are left. Here the first byte decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RoundTime(pub Option<TimeLimit>);

impl<'a> Wire<'a> for RoundTime {
    const KIND: &'static str = "time limit";

    fn read(reader: &mut Reader<'a>, names: &'static Names) -> Result<Self, Cut> {
        let Limit(Some(minutes)) = Wire::read(reader, names)? else { return Ok(Self(None)) };
        Ok(Self(Some(TimeLimit { minutes, end_time: Wire::read(reader, names!(end_time))? })))
    }

    fn write(&self, out: &mut Vec<u8>) {
        match self.0 {
            None => out.push(NO_LIMIT),
            Some(TimeLimit { minutes, end_time }) => {
                out.push(minutes.min(NO_LIMIT - 1));
                end_time.write(out);
            }
        }
    }
}

/// The player that destroyed a ship, if any.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Killer(pub Option<Kill>);

/// The score of a player that has destroyed a ship.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kill {
    /// The peer id of the player.
    pub killer: NonZeroI32,
    /// The new number of kills.
    pub kills: i32,
    /// The new points.
    pub score: i32,
}

impl<'a> Wire<'a> for Killer {
    const KIND: &'static str = "killer";

    fn read(reader: &mut Reader<'a>, names: &'static Names) -> Result<Self, Cut> {
        let Some(killer) = NonZeroI32::new(Wire::read(reader, names)?) else { return Ok(Self(None)) };
        let kills = Wire::read(reader, names!(kills))?;
        Ok(Self(Some(Kill { killer, kills, score: Wire::read(reader, names!(score))? })))
    }

    fn write(&self, out: &mut Vec<u8>) {
        match self.0 {
            None => 0_i32.write(out),
            Some(Kill { killer, kills, score }) => {
                killer.get().write(out);
                kills.write(out);
                score.write(out);
            }
        }
    }
}

/// The points of some players, at most 255.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PlayerScores(pub Vec<PlayerScore>);

/// The points of a player.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlayerScore {
    /// The peer id of the player.
    pub player: i32,
    /// The points.
    pub score: i32,
}

impl<'a> Wire<'a> for PlayerScores {
    const KIND: &'static str = "player scores";

    fn read(reader: &mut Reader<'a>, names: &'static Names) -> Result<Self, Cut> {
        let mut scores = Vec::new();
        for _ in 0..u8::read(reader, names)? {
            let player = Wire::read(reader, names!(player))?;
            reader.mark_repeated();
            let score = Wire::read(reader, names!(player_score))?;
            reader.mark_repeated();
            scores.push(PlayerScore { player, score });
        }
        Ok(Self(scores))
    }

    fn write(&self, out: &mut Vec<u8>) {
        let count = u8::try_from(self.0.len()).unwrap_or(u8::MAX);
        count.write(out);
        for PlayerScore { player, score } in self.0.iter().take(count.into()) {
            player.write(out);
            score.write(out);
        }
    }
}

/// The value on the wire for no limit.
const NO_LIMIT: u8 = 0xFF;
