//! Which state updates a newer one makes useless (S-33).

use super::field::{Reader, Wire, names};
use super::rows::Opcode;
use super::state::{StateUpdate, state_head};

/// Returns what tells of older payloads, the newest of them first, whether `newer` makes them useless.
///
/// Of one ship it ends with the first that is still needed: a distance that is kept counts from a position before it, so
/// that must not be dropped.
pub(crate) fn outdated_by(newer: &[u8]) -> impl FnMut(&[u8]) -> bool {
    let mut needed = false;
    move |older| {
        if needed || Opcode::of(older) != Some(Opcode::STATE_UPDATE) || !is_same_ship(older, newer) {
            return false;
        }
        let outdated = is_outdated(older, newer);
        needed = !outdated;
        outdated
    }
}

fn is_same_ship(older: &[u8], newer: &[u8]) -> bool {
    let object = |payload| state_head(payload).map(|head| head.object).ok();
    object(older) == object(newer)
}

/// Returns whether `newer` tells all that `older` does. What cannot be read to its end is not judged.
fn is_outdated(older: &[u8], newer: &[u8]) -> bool {
    let (Some(older), Some(newer)) = (read(older), read(newer)) else { return false };
    // A place makes a distance from an earlier one useless.
    let delta = older.delta.is_none() || newer.delta.is_some() || newer.position.is_some();
    newer.time >= older.time
        && (older.position.is_none() || newer.position.is_some())
        && delta
        && (older.forward.is_none() || newer.forward.is_some())
        && (older.up.is_none() || newer.up.is_some())
        && (older.speed.is_none() || newer.speed.is_some())
        && (older.cloaked.is_none() || newer.cloaked.is_some())
        // They go round and are told by one update in many, and how many follow only the ship's class tells.
        && older.subsystems.is_none()
        && older.powers().all(|(index, _)| newer.powers().any(|(other, _)| other == index))
}

fn read(payload: &[u8]) -> Option<StateUpdate<'_>> {
    let reader = &mut Reader::new(payload);
    let update = StateUpdate::read(reader, names!(state)).ok()?;
    reader.left().is_empty().then_some(update)
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

    /// The captured update, which has a place, both directions, speed and three powers, with a change.
    fn changed(change: impl FnOnce(&mut StateUpdate<'_>)) -> Vec<u8> {
        let captured = captured("pl-1C-9D");
        let mut update = read(&captured).expect("captured");
        change(&mut update);
        let mut payload = vec![captured[0]];
        update.write(&mut payload);
        payload
    }

    fn drops(older: &[u8], newer: &[u8]) -> bool {
        outdated_by(newer)(older)
    }

    /// S-33
    #[test]
    fn only_an_update_that_tells_everything_outdates_another() {
        let (whole, later) = (captured("pl-1C-9D"), changed(|update| update.time += 0.1));
        assert!(drops(&whole, &later) && drops(&whole, &whole));
        assert!(!drops(&later, &whole), "the network has turned their order");
        assert!(!drops(&whole, &changed(|update| update.time = f32::NAN)));
        assert!(!drops(&whole, &changed(|update| update.object.0 += 0x4_0000)), "another ship");
        for lacks in [
            changed(|update| update.position = None),
            changed(|update| update.forward = None),
            changed(|update| update.up = None),
            changed(|update| update.speed = None),
            changed(|update| update.power = None),
            changed(|update| update.power = Some(&[[0, 204], [1, 204], [3, 204]])),
        ] {
            assert!(!drops(&whole, &lacks), "{lacks:02X?}");
            assert!(drops(&lacks, &later) == (lacks[lacks.len() - 2] != 3), "{lacks:02X?}");
        }
        let cloaked = changed(|update| update.cloaked = Some(true));
        assert!(
            !drops(&cloaked, &later)
                && drops(
                    &later,
                    &changed(|update| {
                        update.time += 0.2;
                        update.cloaked = Some(false);
                    })
                )
        );
    }

    /// S-33: subsystems are told in turns.
    #[test]
    fn subsystems_are_never_outdated() {
        let subsystems = captured("pl-1C-20");
        assert!(!drops(&subsystems, &subsystems));
        let all = changed(|update| {
            update.time = 1e6;
            update.power = None;
            update.subsystems = Some(Subsystems { first: 8, blocks: &[0xFF; 16] });
        });
        assert!(!drops(&subsystems, &all) && !drops(&all, &all));
    }

    /// S-33: a distance counts from the last position, so a position stays as long as a distance from it does.
    #[test]
    fn a_position_stays_for_what_counts_from_it() {
        let place = |time: f32| changed(|update| (update.time, update.power) = (time, None));
        let distance = |time: f32, power| {
            changed(|update| {
                (update.time, update.power) = (time, power);
                (update.position, update.delta) = (None, Some(Default::default()));
            })
        };
        let told = |newer: &[u8], older: &[&[u8]]| -> Vec<bool> {
            let mut is_outdated = outdated_by(newer);
            older.iter().map(|older| is_outdated(older)).collect()
        };
        let (a, b) = (place(1.0), distance(2.0, None));
        assert_eq!(told(&distance(3.0, None), &[&b, &a]), [true, false]);
        assert_eq!(told(&place(3.0), &[&b, &a]), [true, true]);
        assert_eq!(told(&place(3.0), &[&distance(2.0, Some(&[[0, 9]])), &a]), [false, false]);
        let stranger = changed(|update| {
            update.object.0 += 0x4_0000;
            update.position = Some(Position::default());
        });
        assert_eq!(told(&place(3.0), &[&stranger, &[0xCD, 1], &[], &a]), [false, false, false, true]);
    }

    /// S-33: whatever cannot be read stays, and outdates nothing.
    #[test]
    fn updates_that_make_no_sense_are_left_alone() {
        let whole = captured("pl-1C-9D");
        for len in 0..whole.len() - 6 {
            assert!(!drops(&whole[..len], &whole) && !drops(&whole, &whole[..len]), "{len} bytes");
        }
        let longer = [&changed(|update| update.power = None)[..], &[0]].concat();
        assert!(!drops(&longer, &whole) && !drops(&longer, &longer));
    }
}
