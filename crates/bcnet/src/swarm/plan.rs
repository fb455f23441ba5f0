//! What a player does: by chance, in the recorded frequencies, from a seed.

use std::time::Duration;

use bcnet_lab::Rng;
use bcnet_session::game::{Collision, Detail, EventNumber, HostMessage, Message, ObjectId};
use bcnet_transport::Time;

use super::payload;

/// Something that a player says reliably, and what others must hear of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PlannedMessage {
    pub(super) payload: Vec<u8>,
    pub(super) copies: Copies,
}

/// Who gets a copy of a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Copies {
    /// The host keeps it to itself.
    None,
    /// Everyone else gets the same bytes.
    Others,
    /// Everyone gets the same bytes.
    Everyone,
    /// Everyone gets these bytes instead.
    Answer(Vec<u8>),
}

/// How much a player does.
#[derive(Debug, Clone, Copy)]
pub(super) enum TrafficProfile {
    /// What recorded players did, in a game of about this length.
    Recorded { time: Duration },
    /// A state in every frame, a line of chat with every tenth, and nothing else.
    Steady,
}

/// A player in the game.
#[derive(Debug)]
pub(super) struct Actor {
    rng: Rng,
    slot: u8,
    peer: u8,
    name: String,
    profile: TrafficProfile,
    ship: Option<ObjectId>,
    states: u32,
    spawns: Option<Time>,
    fires: Time,
    stops: Option<Time>,
    dies: Time,
    others: [Time; OTHERS.len()],
}

impl Actor {
    /// Makes a player that has just entered the game.
    pub(super) fn new(
        mut rng: Rng,
        slot: u8,
        peer: u8,
        name: String,
        profile: TrafficProfile,
        now: Time,
    ) -> Self {
        let start = match profile {
            TrafficProfile::Recorded { time } => now + choosing(&mut rng).min(time / 5),
            TrafficProfile::Steady => now,
        };
        Self {
            slot,
            peer,
            name,
            profile,
            ship: None,
            // Players do not all chat at once.
            states: rng.below(STATES_PER_CHAT.into()) as u32,
            spawns: Some(start),
            fires: start + wait(&mut rng, FIRE),
            stops: None,
            dies: start + wait(&mut rng, DEATH),
            others: OTHERS.map(|(per_minute, _)| start + wait(&mut rng, 60.0 / per_minute)),
            rng,
        }
    }

    /// Returns what it says reliably now. `number` is what no two messages that are passed on have in common; shots may
    /// be at `targets`.
    pub(super) fn messages(
        &mut self,
        mut number: u32,
        targets: &[ObjectId],
        now: Time,
    ) -> Vec<PlannedMessage> {
        let mut messages = Vec::new();
        if self.spawns.is_some_and(|at| at <= now) {
            self.spawns = None;
            let object = ObjectId::new(self.slot, SHIP_IDS * number % (ObjectId::PER_SLOT - SHIP_IDS));
            self.ship = Some(object);
            let payload = payload::ship(self.slot, self.peer, object, &self.name, number);
            messages.push(PlannedMessage { payload, copies: Copies::Others });
            number += 1;
        }
        let Some(ship) = self.ship else { return messages };
        if let TrafficProfile::Steady = self.profile {
            if self.states.is_multiple_of(STATES_PER_CHAT) {
                messages.push(self.other(Other::Chat, number));
            }
            return messages;
        }
        if self.fires <= now {
            self.fires = now + wait(&mut self.rng, FIRE);
            self.stops = Some(now + Duration::from_millis(self.rng.between(500, 4000)));
            self.fire(&mut messages, &mut number, targets);
        }
        if self.stops.is_some_and(|at| at <= now) {
            self.stops = None;
            let payload = payload::event(
                Message::StopFiring,
                EventNumber::STOP_FIRING_NOTIFY,
                self.thing(number),
                Detail::Subsystem,
            );
            messages.push(PlannedMessage { payload, copies: Copies::Others });
            number += 1;
        }
        for (at, (per_minute, kind)) in OTHERS.into_iter().enumerate() {
            if self.others[at] <= now {
                self.others[at] = now + wait(&mut self.rng, 60.0 / per_minute);
                let message = self.other(kind, number);
                number += u32::from(message.copies != Copies::None);
                messages.push(message);
            }
        }
        if self.dies <= now {
            self.dies = now + RESPAWN + wait(&mut self.rng, DEATH);
            self.spawns = Some(now + RESPAWN);
            // Others die by weapons, which a host that simulates nothing does not see.
            if self.rng.chance(SELF_DESTRUCT) {
                let copies = Copies::Answer(payload::exploding(ship));
                let payload = payload::write(&Message::HostMessage(HostMessage {}));
                messages.push(PlannedMessage { payload, copies });
            }
        }
        messages
    }

    /// Returns where its ship is now, if it is to be told now.
    pub(super) fn state(&mut self) -> Option<Vec<u8>> {
        let ship = self.ship?;
        if matches!(self.profile, TrafficProfile::Recorded { .. }) && !self.rng.chance(STATE) {
            return None;
        }
        self.states += 1;
        Some(payload::state(ship, self.states))
    }

    fn fire(&mut self, messages: &mut Vec<PlannedMessage>, number: &mut u32, targets: &[ObjectId]) {
        let extra = u64::from(*number).to_le_bytes();
        let payload = payload::event(
            Message::StartFiring,
            EventNumber::START_FIRING_NOTIFY,
            self.thing(*number),
            Detail::StartFiring(extra),
        );
        // Always twice, with the same bytes.
        let fire = PlannedMessage { payload, copies: Copies::Others };
        messages.extend([fire.clone(), fire]);
        *number += 2;
        let torpedoes = self.rng.size(4);
        let beams = self.rng.size(2);
        for shot in 0..torpedoes + beams {
            let target = targets.get(self.rng.below(targets.len().max(1) as u64) as usize).copied();
            let target = target.filter(|_| self.rng.chance(0.5));
            let fire = if shot < torpedoes { payload::torpedo } else { payload::beam };
            let payload = fire(self.thing(*number), target, &mut self.rng);
            messages.push(PlannedMessage { payload, copies: Copies::Others });
            *number += 1;
        }
    }

    fn other(&mut self, kind: Other, number: u32) -> PlannedMessage {
        let thing = self.thing(number);
        let value = self.rng.below(3) as u8;
        let (message, event, detail, copies): (fn(_) -> _, _, _, _) = match kind {
            Other::Collision => {
                let detail = Detail::Collision(Collision { contacts: Vec::new(), force: 0.0 });
                (Message::CollisionEffect, EventNumber::OBJECT_COLLISION, detail, Copies::None)
            }
            Other::Target => {
                let detail = Detail::Object(ObjectId::NONE);
                (Message::PythonEvent2, EventNumber::TARGET_WAS_CHANGED, detail, Copies::None)
            }
            Other::Subsystem => {
                let event = EventNumber::SUBSYSTEM_STATE_CHANGED_NOTIFY;
                (Message::SubsystemStatus, event, Detail::Bool(value), Copies::Others)
            }
            Other::Repair => {
                let detail = Detail::Object(ObjectId(number));
                (Message::RepairListPriority, EventNumber::REPAIR_INCREASE_PRIORITY, detail, Copies::Others)
            }
            Other::Phasers => {
                (Message::SetPhaserLevel, EventNumber::SET_PHASER_LEVEL, Detail::Char(value), Copies::Others)
            }
            Other::TorpedoType => {
                let event = EventNumber::TORPEDO_TYPE_CHANGED_NOTIFY;
                (Message::TorpedoTypeChange, event, Detail::Char(value), Copies::Others)
            }
            Other::Chat => {
                let text = format!("{}{number} {}", payload::CHAT_MARK, "engage ".repeat(self.rng.size(4)));
                return PlannedMessage { payload: payload::chat(self.peer, &text), copies: Copies::Everyone };
            }
        };
        let payload = payload::event(message, event, thing, detail);
        PlannedMessage { payload, copies }
    }

    /// Returns one of the player's own objects, another one for each number.
    fn thing(&self, number: u32) -> ObjectId {
        ObjectId::new(self.slot, 1 + number % (ObjectId::PER_SLOT - 1))
    }
}

/// Returns how long choosing a ship takes: about 4.5 s, from 2 to 15 s.
fn choosing(rng: &mut Rng) -> Duration {
    // The sum of twelve shares is as good as normal.
    let normal: f64 = (0..12).map(|_| rng.share()).sum::<f64>() - 6.0;
    Duration::from_secs_f64((4.5 * (0.5 * normal).exp()).clamp(2.0, 15.0))
}

/// Returns the time to the next of something that happens once in so many seconds on average.
pub(super) fn wait(rng: &mut Rng, seconds: f64) -> Duration {
    Duration::from_secs_f64(-seconds * (1.0 - rng.share()).ln())
}

#[derive(Debug, Clone, Copy)]
enum Other {
    Collision,
    Target,
    Subsystem,
    Repair,
    Phasers,
    TorpedoType,
    Chat,
}

/// What else a player says, and how often per minute.
const OTHERS: [(f64, Other); 7] = [
    (3.2, Other::Collision),
    (0.75, Other::Target),
    (0.2, Other::Subsystem),
    (0.1, Other::Repair),
    (0.1, Other::Phasers),
    (0.1, Other::TorpedoType),
    (0.15, Other::Chat),
];
/// It opens fire once in so many seconds.
const FIRE: f64 = 12.0;
/// It loses its ship once in so many seconds, and gets a new one after so long.
const DEATH: f64 = 400.0;
const RESPAWN: Duration = Duration::from_secs(10);
/// The share of losses that are its own wish.
const SELF_DESTRUCT: f64 = 0.27;
/// How often a frame has the state of the ship: 9.6 per second.
const STATE: f64 = 0.916;
/// A steady player chats once in so many states.
const STATES_PER_CHAT: u32 = 10;
/// A ship and its subsystems take so many object ids.
const SHIP_IDS: u32 = 34;

#[cfg(test)]
mod tests {
    use super::*;

    const FRAME: Duration = Duration::from_millis(100);

    fn actor(profile: TrafficProfile) -> Actor {
        Actor::new(Rng::new(7), 0, 2, "Kirk".into(), profile, Time::ZERO)
    }

    /// Returns what a player says in so many frames.
    fn play(actor: &mut Actor, frames: u32, targets: &[ObjectId]) -> (Vec<PlannedMessage>, u32) {
        let (mut messages, mut states) = (Vec::new(), 0);
        for frame in 0..frames {
            messages.extend(actor.messages(messages.len() as u32, targets, Time::ZERO + frame * FRAME));
            states += u32::from(actor.state().is_some());
        }
        (messages, states)
    }

    #[test]
    fn a_steady_player_says_a_state_per_frame_and_a_line_in_ten() {
        let (messages, states) = play(&mut actor(TrafficProfile::Steady), 1000, &[]);
        assert_eq!(states, 1000);
        let (ships, chat): (Vec<_>, Vec<_>) = messages.iter().partition(|message| message.payload[0] == 0x03);
        assert_eq!((ships.len(), chat.len()), (1, 100));
        assert!(chat.iter().all(|message| payload::chatter(&message.payload) == Some(2)));
    }

    #[test]
    fn shots_are_at_targets_that_are_there() {
        let recorded = TrafficProfile::Recorded { time: Duration::from_secs(3600) };
        let there = [ObjectId::new(3, 34), ObjectId::new(5, 68)];
        for targets in [&there[..], &[]] {
            let (messages, _) = play(&mut actor(recorded), 36_000, targets);
            let mut at = [0; 2];
            for message in messages {
                let target = match Message::parse(&message.payload) {
                    Ok(Message::TorpedoFire(shot)) => shot.target.map(|target| target.target),
                    Ok(Message::BeamFire(shot)) => shot.target,
                    _ => continue,
                };
                assert!(target.is_none_or(|target| targets.contains(&target)), "{target:?}");
                at[usize::from(target.is_some())] += 1;
            }
            assert!(at[0] > 0 && (at[1] > 0) != targets.is_empty(), "{at:?}");
        }
    }
}
