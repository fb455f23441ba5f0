//! Decides which queued state updates a newer one supersedes ([S-33]).
//!
//! [S-33]: bcnet_transport::wire::protocol#s-33

use super::field::{Reader, Wire, names};
use super::rows::Opcode;
use super::state::{StateUpdate, state_head};

/// Returns a function that decides whether `newer` supersedes an older payload.
///
/// Call it with the newest of the older payloads first. After the first update of the ship that is still needed, it
/// returns `false`. A distance that is kept counts from an earlier position, so that position must not be dropped.
pub(crate) fn superseded_by(newer: &[u8]) -> impl FnMut(&[u8]) -> bool {
    let mut needed = false;
    move |older| {
        if needed || Opcode::of(older) != Some(Opcode::STATE_UPDATE) || !is_same_ship(older, newer) {
            return false;
        }
        let superseded = is_superseded(older, newer);
        needed = !superseded;
        superseded
    }
}

fn is_same_ship(older: &[u8], newer: &[u8]) -> bool {
    let object = |payload| state_head(payload).map(|head| head.object).ok();
    object(older) == object(newer)
}

/// Returns whether `newer` has all that `older` has, and is not older. Returns `false` if either cannot be parsed.
fn is_superseded(older: &[u8], newer: &[u8]) -> bool {
    let (Some(older), Some(newer)) = (read_update(older), read_update(newer)) else { return false };
    // A position replaces a distance from an earlier one.
    let delta = older.delta.is_none() || newer.delta.is_some() || newer.position.is_some();
    newer.time >= older.time
        && (older.position.is_none() || newer.position.is_some())
        && delta
        && (older.forward.is_none() || newer.forward.is_some())
        && (older.up.is_none() || newer.up.is_some())
        && (older.speed.is_none() || newer.speed.is_some())
        && (older.cloaked.is_none() || newer.cloaked.is_some())
        // Subsystems are sent in turns, a few in each update. Only the ship's class determines how many follow.
        && older.subsystems.is_none()
        && older.powers().all(|(index, _)| newer.powers().any(|(other, _)| other == index))
}

fn read_update(payload: &[u8]) -> Option<StateUpdate<'_>> {
    let reader = &mut Reader::new(payload);
    let update = StateUpdate::read(reader, names!(state)).ok()?;
    reader.remaining().is_empty().then_some(update)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::game::{Position, Subsystems};

    const CAPTURES: &str = include_str!("../../../../captures/session.json");

    fn captured(id: &str) -> Vec<u8> {
        let file: serde_json::Value = serde_json::from_str(CAPTURES).expect("captures/session.json");
        let vectors = file["vectors"].as_array().expect("vectors");
        let vector = vectors.iter().find(|vector| vector["id"] == id).expect("a vector");
        let hex = vector["plain"].as_str().expect("plain");
        let digits: Vec<u32> = hex.chars().map(|digit| digit.to_digit(16).expect("hex")).collect();
        digits.chunks(2).map(|pair| u8::try_from(pair[0] * 16 + pair[1]).expect("a byte")).collect()
    }

    /// Returns the captured update with a change. It has a position, both directions, speed and three powers.
    fn modified_update(change: impl FnOnce(&mut StateUpdate<'_>)) -> Vec<u8> {
        let captured = captured("pl-1C-9D");
        let mut update = read_update(&captured).expect("captured");
        change(&mut update);
        let mut payload = vec![captured[0]];
        update.write(&mut payload);
        payload
    }

    fn is_dropped(older: &[u8], newer: &[u8]) -> bool {
        superseded_by(newer)(older)
    }

    /// S-33
    #[test]
    fn update_is_superseded_only_by_a_complete_one() {
        let (complete, later) = (captured("pl-1C-9D"), modified_update(|update| update.time += 0.1));
        assert!(is_dropped(&complete, &later) && is_dropped(&complete, &complete));
        assert!(!is_dropped(&later, &complete), "the updates arrived in reverse order");
        assert!(!is_dropped(&complete, &modified_update(|update| update.time = f32::NAN)));
        assert!(
            !is_dropped(&complete, &modified_update(|update| update.object.0 += 0x4_0000)),
            "another ship"
        );
        for lacks in [
            modified_update(|update| update.position = None),
            modified_update(|update| update.forward = None),
            modified_update(|update| update.up = None),
            modified_update(|update| update.speed = None),
            modified_update(|update| update.power = None),
            modified_update(|update| update.power = Some(&[[0, 204], [1, 204], [3, 204]])),
        ] {
            assert!(!is_dropped(&complete, &lacks), "{lacks:02X?}");
            assert!(is_dropped(&lacks, &later) == (lacks[lacks.len() - 2] != 3), "{lacks:02X?}");
        }
        let cloaked = modified_update(|update| update.cloaked = Some(true));
        assert!(
            !is_dropped(&cloaked, &later)
                && is_dropped(
                    &later,
                    &modified_update(|update| {
                        update.time += 0.2;
                        update.cloaked = Some(false);
                    })
                )
        );
    }

    /// S-33: subsystems are sent in turns.
    #[test]
    fn subsystem_updates_are_never_superseded() {
        let subsystems = captured("pl-1C-20");
        assert!(!is_dropped(&subsystems, &subsystems));
        let all = modified_update(|update| {
            update.time = 1e6;
            update.power = None;
            update.subsystems = Some(Subsystems { first: 8, blocks: &[0xFF; 16] });
        });
        assert!(!is_dropped(&subsystems, &all) && !is_dropped(&all, &all));
    }

    /// S-33: a distance counts from the last position, so that position is kept as long as the distance.
    #[test]
    fn position_is_kept_while_deltas_refer_to_it() {
        let position = |time: f32| modified_update(|update| (update.time, update.power) = (time, None));
        let delta = |time: f32, power| {
            modified_update(|update| {
                (update.time, update.power) = (time, power);
                (update.position, update.delta) = (None, Some(Default::default()));
            })
        };
        let dropped = |newer: &[u8], older: &[&[u8]]| -> Vec<bool> {
            let mut is_superseded = superseded_by(newer);
            older.iter().map(|older| is_superseded(older)).collect()
        };
        let (a, b) = (position(1.0), delta(2.0, None));
        assert_eq!(dropped(&delta(3.0, None), &[&b, &a]), [true, false]);
        assert_eq!(dropped(&position(3.0), &[&b, &a]), [true, true]);
        assert_eq!(dropped(&position(3.0), &[&delta(2.0, Some(&[[0, 9]])), &a]), [false, false]);
        let other_ship = modified_update(|update| {
            update.object.0 += 0x4_0000;
            update.position = Some(Position::default());
        });
        assert_eq!(dropped(&position(3.0), &[&other_ship, &[0xCD, 1], &[], &a]), [false, false, false, true]);
    }

    /// S-33: malformed updates are kept, and supersede no other update.
    #[test]
    fn malformed_updates_supersede_nothing() {
        let complete = captured("pl-1C-9D");
        for len in 0..complete.len() - 6 {
            assert!(
                !is_dropped(&complete[..len], &complete) && !is_dropped(&complete, &complete[..len]),
                "{len} bytes"
            );
        }
        let longer = [&modified_update(|update| update.power = None)[..], &[0]].concat();
        assert!(!is_dropped(&longer, &complete) && !is_dropped(&longer, &longer));
    }
}
