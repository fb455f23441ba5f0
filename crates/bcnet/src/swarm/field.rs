//! All players of a run, with their sockets, in one thread.
//!
//! A player looks at its socket once per frame, as the original does, so nothing waits for sockets: the loop sleeps until
//! the next frame. Datagrams of all players whose frames are due are ciphered together.

use std::collections::VecDeque;
use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::thread;
use std::time::Duration;

use anyhow::Context;
use bcnet_lab::Rng;
use bcnet_transport::{Deadlines, Time, cipher};

use super::ledger::Ledger;
use super::player::Player;
use super::totals::SwarmTotals;
use crate::clock::Clock;
use crate::udp::{Batch, Head, Io, Received, Socket};

/// The way to the server and back, as bad as it is asked to be.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct LinkConditions {
    /// The share of datagrams that are lost, each way.
    pub(super) loss: f64,
    /// The time under way, there and back. It is spent on the way there.
    pub(super) delay: Duration,
}

pub(super) struct Field {
    pub(super) seats: Vec<Seat>,
    pub(super) ledgers: Vec<Ledger>,
    pub(super) totals: SwarmTotals,
    pub(super) clock: Clock,
    /// Whether players do what they have planned.
    pub(super) acts: bool,
    conditions: LinkConditions,
    rng: Rng,
    deadlines: Deadlines,
    due: Vec<u32>,
    inbound: Batch,
    outbound: Batch,
}

pub(super) struct Seat {
    pub(super) player: Player,
    session: usize,
    pub(super) socket: Socket,
    frame: Time,
    /// Datagrams under way to the server.
    flying: VecDeque<(Time, Vec<u8>)>,
}

impl Field {
    pub(super) fn new(seed: u64, sessions: usize, conditions: LinkConditions) -> Self {
        Self {
            seats: Vec::new(),
            ledgers: (0..sessions).map(|_| Ledger::default()).collect(),
            totals: SwarmTotals::default(),
            clock: Clock::start(),
            acts: false,
            conditions,
            rng: Rng::new(seed ^ 0xF1E1_D000),
            deadlines: Deadlines::new(),
            due: Vec::new(),
            inbound: Batch::new(),
            outbound: Batch::new(),
        }
    }

    /// Adds a player that comes at `comes`.
    pub(super) fn add(&mut self, player: Player, session: usize, comes: Time) -> anyhow::Result<()> {
        let socket = socket().with_context(|| {
            format!("cannot open socket number {}: is `ulimit -n` high enough?", self.seats.len() + 1)
        })?;
        self.deadlines.set(self.seats.len() as u32, Some(comes));
        self.seats.push(Seat { player, session, socket, frame: comes, flying: VecDeque::new() });
        Ok(())
    }

    /// Sleeps until a frame is due, but no longer than to `until`, and plays all frames that are due.
    pub(super) fn turn(&mut self, until: Time) -> anyhow::Result<()> {
        let next = self.deadlines.first().map_or(until, |(due, _)| due).min(until);
        // Sleeping less than this costs more than it brings.
        thread::sleep(next.since(self.clock.now()).max(SHORTEST_SLEEP));
        let now = self.clock.now();
        self.due.clear();
        while let Some((_, seat)) = self.deadlines.first().filter(|(due, _)| *due <= now) {
            self.deadlines.set(seat, None);
            self.due.push(seat);
        }
        let due = std::mem::take(&mut self.due);
        for seat in &due {
            self.receive(*seat, now)?;
        }
        self.hand_over(now);
        for seat in &due {
            self.play(*seat, now);
        }
        self.send();
        self.due = due;
        Ok(())
    }

    fn receive(&mut self, index: u32, now: Time) -> anyhow::Result<()> {
        let Some(seat) = self.seats.get_mut(index as usize).filter(|seat| seat.frame <= now) else {
            return Ok(());
        };
        if seat.player.is_coming(now) {
            seat.socket = socket().context("cannot open a socket")?;
        }
        // A server that is not there is told by its silence.
        while let Some(seat) = self.seats.get(index as usize)
            && matches!(seat.socket.receive(&mut self.inbound, index, usize::MAX), Ok(Received::More))
        {
            self.hand_over(now);
        }
        if self.inbound.is_full() {
            self.hand_over(now);
        }
        Ok(())
    }

    /// Deciphers what has arrived and hands it to the players.
    fn hand_over(&mut self, now: Time) {
        self.inbound.apply(cipher::decrypt_batch, |_| true);
        for (head, bytes) in self.inbound.iter_mut() {
            self.totals.received.add(bytes.len());
            if let Some(seat) = self.seats.get_mut(head.owner as usize)
                && head.remote == seat.player.server
                && !self.rng.chance(self.conditions.loss)
            {
                seat.player.client.handle_datagram(head.remote, bytes, now);
            }
        }
        self.inbound.clear();
    }

    /// A player's frame, if it is due, and its datagrams that have been under way for long enough.
    fn play(&mut self, index: u32, now: Time) {
        let Some(seat) = self.seats.get_mut(index as usize) else { return };
        if seat.frame <= now {
            self.totals.frames += 1;
            self.totals.late_frames += u64::from(now.since(seat.frame) > LATE);
            if let Some(ledger) = self.ledgers.get_mut(seat.session) {
                seat.player.frame(self.acts, ledger, now, &mut self.totals);
            }
            let mut buffer = [0; 1024];
            while let Some(transmit) = seat.player.client.poll_transmit(&mut buffer, now) {
                if !self.rng.chance(self.conditions.loss) {
                    let bytes = buffer.get(..transmit.len).unwrap_or_default().to_vec();
                    seat.flying.push_back((now + self.conditions.delay, bytes));
                }
            }
            // A frame that comes late does not put off those behind it, unless it is very late.
            let start = if now.since(seat.frame) > LATE { now } else { seat.frame };
            seat.frame = start + FRAME + JITTER.mul_f64(self.rng.share());
        }
        while let Some((_, bytes)) = seat.flying.pop_front_if(|(at, _)| *at <= now) {
            self.totals.sent.add(bytes.len());
            let (remote, len) = (seat.player.server, bytes.len());
            self.outbound.push(|room| {
                room.get_mut(..len)?.copy_from_slice(&bytes);
                Some(Head { owner: index, remote, local: None, len, cut: false })
            });
            if self.outbound.is_full() {
                send(&mut self.outbound, &self.seats);
                break;
            }
        }
        if let Some(seat) = self.seats.get(index as usize).filter(|seat| !seat.player.is_gone()) {
            let landing = seat.flying.front().map(|(at, _)| *at);
            self.deadlines.set(index, Some(landing.map_or(seat.frame, |landing| landing.min(seat.frame))));
        }
    }

    fn send(&mut self) {
        send(&mut self.outbound, &self.seats);
    }

    pub(super) fn in_game(&self) -> usize {
        self.seats.iter().filter(|seat| seat.player.is_in_game()).count()
    }

    /// Returns how many players were never in the game.
    pub(super) fn absent(&self) -> usize {
        self.seats.iter().filter(|seat| !seat.player.was_in_game()).count()
    }

    /// Returns how many copies have not been heard yet.
    pub(super) fn unheard(&self) -> u64 {
        let unheard =
            |seat: &Seat| self.ledgers.get(seat.session).map_or(0, |ledger| seat.player.unheard(ledger));
        self.seats.iter().map(unheard).sum()
    }

    /// Everyone leaves. What a player has not heard by now is lost.
    pub(super) fn leave(&mut self) {
        let now = self.clock.now();
        for seat in &mut self.seats {
            if let Some(ledger) = self.ledgers.get_mut(seat.session) {
                seat.player.give_up(ledger, &mut self.totals);
                seat.player.leave(ledger, now, &mut self.totals);
            }
        }
    }
}

fn send(batch: &mut Batch, seats: &[Seat]) {
    batch.apply(cipher::encrypt_batch, |_| true);
    for (index, range) in batch.runs() {
        if let Some(seat) = seats.get(index as usize) {
            // What the system does not take is lost, as on the network.
            drop(seat.socket.send(batch, range));
        }
    }
    batch.clear();
}

fn socket() -> io::Result<Socket> {
    Socket::bind(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0), Io::BEST)
}

/// A frame is 85 to 105 ms after the last.
const FRAME: Duration = Duration::from_millis(85);
const JITTER: Duration = Duration::from_millis(20);
const LATE: Duration = Duration::from_millis(95);
const SHORTEST_SLEEP: Duration = Duration::from_millis(1);
