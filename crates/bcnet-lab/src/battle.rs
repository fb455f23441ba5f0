//! Traffic like that of a recorded battle: 33.5 minutes, three players, a dedicated host.
//!
//! A ship sends its state with nine in ten of its frames, which are 95 ms apart, and 0.39 reliable messages per second, in bursts:
//! it fires, hits, stops. The host passes most of them on to the others, adds events of its own in bursts (1.3 reliable
//! messages per second and client in all) and sends each client 23.5 states per second. What is drawn depends on the seed
//! alone, so that all engines get the same to do.

use std::time::Duration;

use bcnet_transport::{Quality, Time};

use crate::rng::Rng;

/// One message between the host and a ship.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GameMessage {
    /// When it is sent.
    pub at: Time,
    /// The ship that sends it to the host, or to which the host sends it, counted from 0.
    pub ship: usize,
    /// Whether the host sends it.
    pub from_host: bool,
    /// The size of its payload.
    pub size: usize,
    /// How it is sent.
    pub quality: Quality,
}

/// Draws the traffic frame by frame.
#[derive(Debug)]
pub(crate) struct Battle {
    rng: Rng,
    /// The next frame of each ship, and at the end of the host.
    frames: Vec<Time>,
    ships: Vec<Ship>,
    /// What the host passes on with its next frame: the receiver and the size.
    relay: Vec<(usize, usize)>,
    /// When the host has events of its own.
    events: Time,
}

/// When a ship does what.
#[derive(Debug)]
struct Ship {
    fires: Time,
    stops: Option<Time>,
    others: [Time; OTHERS.len()],
}

impl Battle {
    /// Makes a battle of so many ships that begins at `start`.
    #[must_use]
    pub(crate) fn new(seed: u64, ships: usize, start: Time) -> Self {
        let mut rng = Rng::new(seed ^ 0xBA77_1E00);
        let frames = (0..=ships).map(|_| start + FRAME.mul_f64(rng.share())).collect();
        let events = start + wait(&mut rng, EVENTS);
        let ships = (0..ships).map(|_| Ship {
            fires: start + wait(&mut rng, FIRE),
            stops: None,
            others: OTHERS.map(|(per_minute, ..)| start + wait(&mut rng, 60.0 / per_minute)),
        });
        let ships = ships.collect();
        Self { rng, frames, ships, relay: Vec::new(), events }
    }

    /// Returns when the next frame is.
    #[must_use]
    pub(crate) fn next(&self) -> Time {
        self.frames.iter().copied().min().unwrap_or(Time::ZERO)
    }

    /// Returns the messages of the next frame.
    pub(crate) fn frame(&mut self) -> Vec<GameMessage> {
        let at = self.next();
        let Some(number) = self.frames.iter().position(|frame| *frame == at) else { return Vec::new() };
        let swing = JITTER.mul_f64(2.0 * self.rng.share());
        self.frames[number] = at + (FRAME - JITTER) + swing;
        if number < self.ships.len() { self.ship_frame(number, at) } else { self.host_frame(at) }
    }

    fn ship_frame(&mut self, ship: usize, at: Time) -> Vec<GameMessage> {
        let messages = self.reliable_messages(ship, at);
        for message in &messages {
            let others =
                (0..self.ships.len()).filter(|other| message.everyone || (message.relayed && *other != ship));
            self.relay.extend(others.map(|other| (other, message.size)));
        }
        let message = |size, quality| GameMessage { at, ship, from_host: false, size, quality };
        let mut sent: Vec<GameMessage> =
            messages.iter().map(|reliable| message(reliable.size, Quality::Reliable)).collect();
        if self.rng.chance(STATE) {
            let size = SHIP_STATES[self.rng.size(SHIP_STATES.len())];
            sent.push(message(size, Quality::Unreliable));
        }
        sent
    }

    /// Returns the reliable messages of a ship in its frame.
    fn reliable_messages(&mut self, ship: usize, at: Time) -> Vec<ReliableMessage> {
        let rng = &mut self.rng;
        let ship = &mut self.ships[ship];
        let mut messages = Vec::new();
        if ship.fires <= at {
            ship.fires = at + wait(rng, FIRE);
            ship.stops = Some(at + Duration::from_millis(rng.between(500, 4000)));
            // Each shot is sent twice.
            messages.extend([ReliableMessage::relayed(25); 2]);
            messages.extend((0..[0, 0, 1, 2][rng.size(4)]).map(|_| ReliableMessage::relayed(19)));
            messages.extend(rng.chance(0.1).then_some(ReliableMessage::relayed(14)));
        }
        if ship.stops.is_some_and(|stops| stops <= at) {
            ship.stops = None;
            messages.push(ReliableMessage::relayed(17));
        }
        for (due, (per_minute, size, relayed, everyone)) in ship.others.iter_mut().zip(OTHERS) {
            if *due <= at {
                *due = at + wait(rng, 60.0 / per_minute);
                messages.push(ReliableMessage { size, relayed, everyone });
            }
        }
        messages
    }

    fn host_frame(&mut self, at: Time) -> Vec<GameMessage> {
        let message = |ship, size, quality| GameMessage { at, ship, from_host: true, size, quality };
        let mut sent: Vec<GameMessage> =
            self.relay.drain(..).map(|(ship, size)| message(ship, size, Quality::Reliable)).collect();
        if self.events <= at {
            self.events = at + wait(&mut self.rng, EVENTS);
            for _ in 0..self.rng.between(1, 11) {
                sent.extend((0..self.ships.len()).map(|ship| message(ship, 25, Quality::Reliable)));
            }
        }
        for ship in 0..self.ships.len() {
            for _ in 0..self.ships.len() {
                if self.rng.chance(LANE) {
                    let size = HOST_STATES[self.rng.size(HOST_STATES.len())];
                    sent.push(message(ship, size, Quality::Unreliable));
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
    /// The host passes it on to the others.
    relayed: bool,
    /// And to the ship itself.
    everyone: bool,
}

impl ReliableMessage {
    const fn relayed(size: usize) -> Self {
        Self { size, relayed: true, everyone: false }
    }
}

/// Returns the time to the next of something that happens once in so many seconds on average, whenever it likes.
fn wait(rng: &mut Rng, seconds: f64) -> Duration {
    let share = 1.0 - rng.share();
    Duration::from_secs_f64(-seconds * share.ln())
}

const FRAME: Duration = Duration::from_millis(95);
const JITTER: Duration = Duration::from_millis(10);
/// A ship opens fire once in so many seconds.
const FIRE: f64 = 12.0;
/// The host has events once in so many seconds.
const EVENTS: f64 = 9.45;
/// How often a ship's frame has its state: 9.64 per second.
const STATE: f64 = 0.916;
/// How often a host's frame has the state of one ship for one client: 7.83 per second.
const LANE: f64 = 0.744;
/// What else a ship sends reliably: how often per minute, the size, whether the host passes it on, and to everyone.
const OTHERS: [(f64, usize, bool, bool); 8] = [
    (3.2, 26, false, false),
    (0.75, 21, false, false),
    (0.21, 18, true, false),
    (0.15, 29, true, true),
    (0.13, 113, true, false),
    (0.04, 18, true, false),
    (0.04, 10, false, false),
    (0.1, 10, true, false),
];
/// Sizes of states from ships and from the host, in about the recorded shares.
const SHIP_STATES: [usize; 10] = [29, 29, 29, 29, 29, 29, 26, 26, 23, 39];
const HOST_STATES: [usize; 10] = [17, 19, 21, 23, 26, 32, 34, 36, 30, 39];
