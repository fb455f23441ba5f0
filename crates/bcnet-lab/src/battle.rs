//! Traffic with the rates of a recorded battle: 33.5 minutes, three players, a dedicated host.
//!
//! Each ship and the host send messages in frames that are 95 ms apart. A ship sends its state in nine of ten frames.
//! It also sends 0.39 reliable messages per second, in bursts when it opens fire, hits and ceases fire. The host relays
//! most of them to the other players and adds bursts of its own events. In total, the host sends each client
//! 1.3 reliable messages and 23.5 states per second.
//!
//! All random choices depend on the seed alone, so that every engine gets the same traffic.

use std::time::Duration;

use bcnet_transport::{DeliveryMode, Time};

use bcnet_transport::link::Rng;

/// One message between the host and a ship.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GameMessage {
    /// Send time.
    pub at: Time,
    /// Number of the ship, from 0: the sender, or the receiver if the host sends.
    pub ship: usize,
    /// `true` if the host sends the message.
    pub from_host: bool,
    /// Payload size in bytes.
    pub size: usize,
    /// Delivery mode.
    pub mode: DeliveryMode,
}

/// Generator of the traffic. A frame has the messages that one ship, or the host, sends at one time.
#[derive(Debug)]
pub(crate) struct BattleTraffic {
    rng: Rng,
    /// Time of the next frame of each ship; the last entry is the host's.
    next_frames: Vec<Time>,
    ships: Vec<ShipTimers>,
    /// Messages that the host relays in its next frame: receiver and size.
    pending_relays: Vec<(usize, usize)>,
    /// Time of the host's next burst of events.
    next_host_events: Time,
}

/// Times of a ship's next actions.
#[derive(Debug)]
struct ShipTimers {
    next_fire: Time,
    cease_fire: Option<Time>,
    next_others: [Time; OTHER_MESSAGES.len()],
}

impl BattleTraffic {
    /// Creates the traffic of a battle with `ships` ships that begins at `start`.
    #[must_use]
    pub(crate) fn new(seed: u64, ships: usize, start: Time) -> Self {
        let mut rng = Rng::new(seed ^ 0xBA77_1E00);
        let frames = (0..=ships).map(|_| start + FRAME_INTERVAL.mul_f64(rng.fraction())).collect();
        let events = start + exponential_wait(&mut rng, HOST_EVENT_INTERVAL);
        let ships = (0..ships).map(|_| ShipTimers {
            next_fire: start + exponential_wait(&mut rng, FIRE_INTERVAL),
            cease_fire: None,
            next_others: OTHER_MESSAGES
                .map(|(per_minute, ..)| start + exponential_wait(&mut rng, 60.0 / per_minute)),
        });
        let ships = ships.collect();
        Self { rng, next_frames: frames, ships, pending_relays: Vec::new(), next_host_events: events }
    }

    /// Returns the time of the next frame.
    #[must_use]
    pub(crate) fn next_frame_at(&self) -> Time {
        self.next_frames.iter().copied().min().unwrap_or(Time::ZERO)
    }

    /// Returns the messages of the next frame.
    pub(crate) fn take_frame(&mut self) -> Vec<GameMessage> {
        let at = self.next_frame_at();
        let Some(number) = self.next_frames.iter().position(|frame| *frame == at) else { return Vec::new() };
        let swing = FRAME_JITTER.mul_f64(2.0 * self.rng.fraction());
        self.next_frames[number] = at + (FRAME_INTERVAL - FRAME_JITTER) + swing;
        if number < self.ships.len() { self.ship_frame(number, at) } else { self.host_frame(at) }
    }

    fn ship_frame(&mut self, ship: usize, at: Time) -> Vec<GameMessage> {
        let messages = self.reliable_messages(ship, at);
        for message in &messages {
            let others = (0..self.ships.len())
                .filter(|other| message.echoed_to_sender || (message.relayed && *other != ship));
            self.pending_relays.extend(others.map(|other| (other, message.size)));
        }
        let message = |size, mode| GameMessage { at, ship, from_host: false, size, mode };
        let mut sent: Vec<GameMessage> =
            messages.iter().map(|reliable| message(reliable.size, DeliveryMode::Reliable)).collect();
        if self.rng.chance(SHIP_STATE_PROBABILITY) {
            let size = SHIP_STATE_SIZES[self.rng.index(SHIP_STATE_SIZES.len())];
            sent.push(message(size, DeliveryMode::Unreliable));
        }
        sent
    }

    /// Returns the reliable messages of a ship in its frame.
    fn reliable_messages(&mut self, ship: usize, at: Time) -> Vec<ReliableMessage> {
        let rng = &mut self.rng;
        let ship = &mut self.ships[ship];
        let mut messages = Vec::new();
        if ship.next_fire <= at {
            ship.next_fire = at + exponential_wait(rng, FIRE_INTERVAL);
            ship.cease_fire = Some(at + Duration::from_millis(rng.between(500, 4000)));
            // The game sends each shot twice.
            messages.extend([ReliableMessage::relayed(25); 2]);
            messages.extend((0..[0, 0, 1, 2][rng.index(4)]).map(|_| ReliableMessage::relayed(19)));
            messages.extend(rng.chance(0.1).then_some(ReliableMessage::relayed(14)));
        }
        if ship.cease_fire.is_some_and(|stops| stops <= at) {
            ship.cease_fire = None;
            messages.push(ReliableMessage::relayed(17));
        }
        for (due, (per_minute, size, relayed, everyone)) in ship.next_others.iter_mut().zip(OTHER_MESSAGES) {
            if *due <= at {
                *due = at + exponential_wait(rng, 60.0 / per_minute);
                messages.push(ReliableMessage { size, relayed, echoed_to_sender: everyone });
            }
        }
        messages
    }

    fn host_frame(&mut self, at: Time) -> Vec<GameMessage> {
        let message = |ship, size, mode| GameMessage { at, ship, from_host: true, size, mode };
        let mut sent: Vec<GameMessage> = self
            .pending_relays
            .drain(..)
            .map(|(ship, size)| message(ship, size, DeliveryMode::Reliable))
            .collect();
        if self.next_host_events <= at {
            self.next_host_events = at + exponential_wait(&mut self.rng, HOST_EVENT_INTERVAL);
            for _ in 0..self.rng.between(1, 11) {
                sent.extend((0..self.ships.len()).map(|ship| message(ship, 25, DeliveryMode::Reliable)));
            }
        }
        for ship in 0..self.ships.len() {
            for _ in 0..self.ships.len() {
                if self.rng.chance(HOST_STATE_PROBABILITY) {
                    let size = HOST_STATE_SIZES[self.rng.index(HOST_STATE_SIZES.len())];
                    sent.push(message(ship, size, DeliveryMode::Unreliable));
                }
            }
        }
        sent
    }
}

/// A reliable message from a ship.
#[derive(Debug, Clone, Copy)]
struct ReliableMessage {
    size: usize,
    /// The host relays the message to the other players.
    relayed: bool,
    /// The host also sends the message back to the ship.
    echoed_to_sender: bool,
}

impl ReliableMessage {
    const fn relayed(size: usize) -> Self {
        Self { size, relayed: true, echoed_to_sender: false }
    }
}

/// Draws the time to the next event of a Poisson process with one event per `seconds` on average.
fn exponential_wait(rng: &mut Rng, seconds: f64) -> Duration {
    let remaining = 1.0 - rng.fraction();
    Duration::from_secs_f64(-seconds * remaining.ln())
}

const FRAME_INTERVAL: Duration = Duration::from_millis(95);
const FRAME_JITTER: Duration = Duration::from_millis(10);
/// Mean time between the moments when a ship opens fire, in seconds.
const FIRE_INTERVAL: f64 = 12.0;
/// Mean time between bursts of host events, in seconds.
const HOST_EVENT_INTERVAL: f64 = 9.45;
/// Probability that a ship's frame contains its state: 9.64 states per second.
const SHIP_STATE_PROBABILITY: f64 = 0.916;
/// Probability that a host's frame has the state of one ship for one client: 7.83 states per second.
const HOST_STATE_PROBABILITY: f64 = 0.744;
/// Other reliable messages of a ship: rate per minute, size, relayed by the host, echoed to the ship.
const OTHER_MESSAGES: [(f64, usize, bool, bool); 8] = [
    (3.2, 26, false, false),
    (0.75, 21, false, false),
    (0.21, 18, true, false),
    (0.15, 29, true, true),
    (0.13, 113, true, false),
    (0.04, 18, true, false),
    (0.04, 10, false, false),
    (0.1, 10, true, false),
];
/// State sizes from ships and from the host, about as frequent as in the recording.
const SHIP_STATE_SIZES: [usize; 10] = [29, 29, 29, 29, 29, 29, 26, 26, 23, 39];
const HOST_STATE_SIZES: [usize; 10] = [17, 19, 21, 23, 26, 32, 34, 36, 30, 39];
