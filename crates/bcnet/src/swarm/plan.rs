//! Actions of a player: random, in the recorded frequencies, from a seed.

use std::time::Duration;

use bcnet_lab::Rng;
use bcnet_session::game::{self, Collision, EventDetail, EventNumber, HostMessage, ObjectId};
use bcnet_transport::Time;

use super::payload;

/// A reliable message of a player, and its expected copies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PlannedMessage {
    pub(super) payload: Vec<u8>,
    pub(super) copies: Copies,
}

/// The receivers of copies of a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Copies {
    /// No copies: the host keeps it.
    None,
    /// All other players get the same bytes.
    Others,
    /// All players, the sender included, get the same bytes.
    Everyone,
    /// All players get these bytes instead.
    Substitute(Vec<u8>),
}

/// The amount of traffic of a player.
#[derive(Debug, Clone, Copy)]
pub(super) enum TrafficProfile {
    /// The actions of recorded players, in a game of about this length.
    Recorded { time: Duration },
    /// A state in every tick, a line of chat with every tenth, and nothing else.
    Steady,
}

/// The traffic of a player in the game.
#[derive(Debug)]
pub(super) struct TrafficGenerator {
    rng: Rng,
    slot: u8,
    peer: u8,
    name: String,
    profile: TrafficProfile,
    ship: Option<ObjectId>,
    states_sent: u32,
    next_spawn: Option<Time>,
    next_fire: Time,
    stop_firing_at: Option<Time>,
    next_death: Time,
    next_minor_actions: [Time; MINOR_ACTIONS.len()],
}

impl TrafficGenerator {
    /// Creates the traffic of a player that has just entered the game.
    pub(super) fn new(
        mut rng: Rng,
        slot: u8,
        peer: u8,
        name: String,
        profile: TrafficProfile,
        now: Time,
    ) -> Self {
        let start = match profile {
            TrafficProfile::Recorded { time } => now + ship_choice_time(&mut rng).min(time / 5),
            TrafficProfile::Steady => now,
        };
        Self {
            slot,
            peer,
            name,
            profile,
            ship: None,
            // Spreads the chat of the players.
            states_sent: rng.below(STATES_PER_CHAT.into()) as u32,
            next_spawn: Some(start),
            next_fire: start + exponential_wait(&mut rng, FIRE_INTERVAL_S),
            stop_firing_at: None,
            next_death: start + exponential_wait(&mut rng, DEATH_INTERVAL_S),
            next_minor_actions: MINOR_ACTIONS
                .map(|(per_minute, _)| start + exponential_wait(&mut rng, 60.0 / per_minute)),
            rng,
        }
    }

    /// Returns the reliable messages of this tick. `number` is unique among relayed messages; shots may hit
    /// `targets`.
    pub(super) fn messages(
        &mut self,
        mut number: u32,
        targets: &[ObjectId],
        now: Time,
    ) -> Vec<PlannedMessage> {
        let mut messages = Vec::new();
        if self.next_spawn.is_some_and(|at| at <= now) {
            self.next_spawn = None;
            let object = ObjectId::new(
                self.slot,
                OBJECT_IDS_PER_SHIP * number % (ObjectId::PER_SLOT - OBJECT_IDS_PER_SHIP),
            );
            self.ship = Some(object);
            let payload = payload::ship(self.slot, self.peer, object, &self.name, number);
            messages.push(PlannedMessage { payload, copies: Copies::Others });
            number += 1;
        }
        let Some(ship) = self.ship else { return messages };
        if let TrafficProfile::Steady = self.profile {
            if self.states_sent.is_multiple_of(STATES_PER_CHAT) {
                messages.push(self.minor_message(MinorAction::Chat, number));
            }
            return messages;
        }
        if self.next_fire <= now {
            self.next_fire = now + exponential_wait(&mut self.rng, FIRE_INTERVAL_S);
            self.stop_firing_at = Some(now + Duration::from_millis(self.rng.between(500, 4000)));
            self.fire(&mut messages, &mut number, targets);
        }
        if self.stop_firing_at.is_some_and(|at| at <= now) {
            self.stop_firing_at = None;
            let payload = payload::event(
                game::Message::StopFiring,
                EventNumber::STOP_FIRING_NOTIFY,
                self.own_object(number),
                EventDetail::Subsystem,
            );
            messages.push(PlannedMessage { payload, copies: Copies::Others });
            number += 1;
        }
        for (at, (per_minute, kind)) in MINOR_ACTIONS.into_iter().enumerate() {
            if self.next_minor_actions[at] <= now {
                self.next_minor_actions[at] = now + exponential_wait(&mut self.rng, 60.0 / per_minute);
                let message = self.minor_message(kind, number);
                number += u32::from(message.copies != Copies::None);
                messages.push(message);
            }
        }
        if self.next_death <= now {
            self.next_death = now + RESPAWN_DELAY + exponential_wait(&mut self.rng, DEATH_INTERVAL_S);
            self.next_spawn = Some(now + RESPAWN_DELAY);
            // Other deaths are by weapons, which a host without simulation does not see.
            if self.rng.chance(SELF_DESTRUCT_SHARE) {
                let copies = Copies::Substitute(payload::exploding(ship));
                let payload = payload::encode(&game::Message::HostMessage(HostMessage {}));
                messages.push(PlannedMessage { payload, copies });
            }
        }
        messages
    }

    /// Returns the state of the ship, if one is due.
    pub(super) fn state(&mut self) -> Option<Vec<u8>> {
        let ship = self.ship?;
        if matches!(self.profile, TrafficProfile::Recorded { .. }) && !self.rng.chance(STATE_PROBABILITY) {
            return None;
        }
        self.states_sent += 1;
        Some(payload::state(ship, self.states_sent))
    }

    fn fire(&mut self, messages: &mut Vec<PlannedMessage>, number: &mut u32, targets: &[ObjectId]) {
        let extra = u64::from(*number).to_le_bytes();
        let payload = payload::event(
            game::Message::StartFiring,
            EventNumber::START_FIRING_NOTIFY,
            self.own_object(*number),
            EventDetail::StartFiring(extra),
        );
        // Sent twice with the same bytes, as recorded.
        let fire = PlannedMessage { payload, copies: Copies::Others };
        messages.extend([fire.clone(), fire]);
        *number += 2;
        let torpedoes = self.rng.index(4);
        let beams = self.rng.index(2);
        for shot in 0..torpedoes + beams {
            let target = targets.get(self.rng.below(targets.len().max(1) as u64) as usize).copied();
            let target = target.filter(|_| self.rng.chance(0.5));
            let fire = if shot < torpedoes { payload::torpedo } else { payload::beam };
            let payload = fire(self.own_object(*number), target, &mut self.rng);
            messages.push(PlannedMessage { payload, copies: Copies::Others });
            *number += 1;
        }
    }

    fn minor_message(&mut self, kind: MinorAction, number: u32) -> PlannedMessage {
        let object = self.own_object(number);
        let value = self.rng.below(3) as u8;
        let (message, event, detail, copies): (fn(_) -> _, _, _, _) = match kind {
            MinorAction::Collision => {
                let detail = EventDetail::Collision(Collision { contacts: Vec::new(), force: 0.0 });
                (game::Message::CollisionEffect, EventNumber::OBJECT_COLLISION, detail, Copies::None)
            }
            MinorAction::Target => {
                let detail = EventDetail::Object(ObjectId::NONE);
                (game::Message::PythonEvent2, EventNumber::TARGET_WAS_CHANGED, detail, Copies::None)
            }
            MinorAction::Subsystem => {
                let event = EventNumber::SUBSYSTEM_STATE_CHANGED_NOTIFY;
                (game::Message::SubsystemStatus, event, EventDetail::Bool(value), Copies::Others)
            }
            MinorAction::Repair => {
                let detail = EventDetail::Object(ObjectId(number));
                (
                    game::Message::RepairListPriority,
                    EventNumber::REPAIR_INCREASE_PRIORITY,
                    detail,
                    Copies::Others,
                )
            }
            MinorAction::Phasers => (
                game::Message::SetPhaserLevel,
                EventNumber::SET_PHASER_LEVEL,
                EventDetail::Char(value),
                Copies::Others,
            ),
            MinorAction::TorpedoType => {
                let event = EventNumber::TORPEDO_TYPE_CHANGED_NOTIFY;
                (game::Message::TorpedoTypeChange, event, EventDetail::Char(value), Copies::Others)
            }
            MinorAction::Chat => {
                let text =
                    format!("{}{number} {}", payload::CHAT_PREFIX, "engage ".repeat(self.rng.index(4)));
                return PlannedMessage { payload: payload::chat(self.peer, &text), copies: Copies::Everyone };
            }
        };
        let payload = payload::event(message, event, object, detail);
        PlannedMessage { payload, copies }
    }

    /// Returns an object of the player, a different one for each number.
    fn own_object(&self, number: u32) -> ObjectId {
        ObjectId::new(self.slot, 1 + number % (ObjectId::PER_SLOT - 1))
    }
}

/// Returns the time to choose a ship: about 4.5 s, from 2 to 15 s.
fn ship_choice_time(rng: &mut Rng) -> Duration {
    // The sum of twelve uniform numbers is nearly normal.
    let normal: f64 = (0..12).map(|_| rng.fraction()).sum::<f64>() - 6.0;
    Duration::from_secs_f64((4.5 * (0.5 * normal).exp()).clamp(2.0, 15.0))
}

/// Returns the time to the next event with this mean interval in seconds.
pub(super) fn exponential_wait(rng: &mut Rng, seconds: f64) -> Duration {
    Duration::from_secs_f64(-seconds * (1.0 - rng.fraction()).ln())
}

#[derive(Debug, Clone, Copy)]
enum MinorAction {
    Collision,
    Target,
    Subsystem,
    Repair,
    Phasers,
    TorpedoType,
    Chat,
}

/// Other actions of a player, with their rates per minute.
const MINOR_ACTIONS: [(f64, MinorAction); 7] = [
    (3.2, MinorAction::Collision),
    (0.75, MinorAction::Target),
    (0.2, MinorAction::Subsystem),
    (0.1, MinorAction::Repair),
    (0.1, MinorAction::Phasers),
    (0.1, MinorAction::TorpedoType),
    (0.15, MinorAction::Chat),
];
/// Mean seconds between openings of fire.
const FIRE_INTERVAL_S: f64 = 12.0;
/// Mean seconds between losses of a ship, and seconds until the next ship.
const DEATH_INTERVAL_S: f64 = 400.0;
const RESPAWN_DELAY: Duration = Duration::from_secs(10);
/// Share of losses that are self-destructions.
const SELF_DESTRUCT_SHARE: f64 = 0.27;
/// Probability that a tick has a state of the ship: 9.6 per second.
const STATE_PROBABILITY: f64 = 0.916;
/// States per line of chat of a steady player.
const STATES_PER_CHAT: u32 = 10;
/// Object ids of a ship and its subsystems.
const OBJECT_IDS_PER_SHIP: u32 = 34;

#[cfg(test)]
mod tests {
    use super::*;

    const FRAME: Duration = Duration::from_millis(100);

    fn generator(profile: TrafficProfile) -> TrafficGenerator {
        TrafficGenerator::new(Rng::new(7), 0, 2, "Kirk".into(), profile, Time::ZERO)
    }

    /// Returns the messages of a player in a number of ticks.
    fn play(
        generator: &mut TrafficGenerator,
        frames: u32,
        targets: &[ObjectId],
    ) -> (Vec<PlannedMessage>, u32) {
        let (mut messages, mut states) = (Vec::new(), 0);
        for frame in 0..frames {
            messages.extend(generator.messages(messages.len() as u32, targets, Time::ZERO + frame * FRAME));
            states += u32::from(generator.state().is_some());
        }
        (messages, states)
    }

    #[test]
    fn steady_player_sends_a_state_per_frame_and_chat_every_ten() {
        let (messages, states) = play(&mut generator(TrafficProfile::Steady), 1000, &[]);
        assert_eq!(states, 1000);
        let (ships, chat): (Vec<_>, Vec<_>) = messages.iter().partition(|message| message.payload[0] == 0x03);
        assert_eq!((ships.len(), chat.len()), (1, 100));
        assert!(chat.iter().all(|message| payload::chat_sender(&message.payload) == Some(2)));
    }

    #[test]
    fn shots_aim_only_at_existing_targets() {
        let recorded = TrafficProfile::Recorded { time: Duration::from_secs(3600) };
        let there = [ObjectId::new(3, 34), ObjectId::new(5, 68)];
        for targets in [&there[..], &[]] {
            let (messages, _) = play(&mut generator(recorded), 36_000, targets);
            let mut at = [0; 2];
            for message in messages {
                let target = match game::Message::parse(&message.payload) {
                    Ok(game::Message::TorpedoFire(shot)) => shot.target.map(|target| target.target),
                    Ok(game::Message::BeamFire(shot)) => shot.target,
                    _ => continue,
                };
                assert!(target.is_none_or(|target| targets.contains(&target)), "{target:?}");
                at[usize::from(target.is_some())] += 1;
            }
            assert!(at[0] > 0 && (at[1] > 0) != targets.is_empty(), "{at:?}");
        }
    }
}
