//! All players of a run, with their sockets, in one thread.
//!
//! A player looks at its socket once per frame, as the original does: the loop sleeps until the next frame, and the
//! system notes when each datagram came. Only for players that answer at once, or where the system notes nothing, it
//! waits for the sockets. Datagrams of all players whose frames are due are ciphered together.

use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};
use std::path::Path;
use std::thread;
use std::time::Duration;

use anyhow::Context;
use bcnet_lab::Rng;
use bcnet_transport::{Deadlines, Time, cipher};
use bcnet_udp::{Batch, Clock, Head, Io, Received, Socket, wall_now};
use mio::{Events, Interest, Poll, Token};

use super::ledger::Ledger;
use super::player::{Departure, Player};
use super::totals::SwarmTotals;
use crate::capture::{Packet, Writer};

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
    frame_mode: FrameMode,
    rng: Rng,
    deadlines: Deadlines,
    due: Vec<u32>,
    poll: Poll,
    events: Events,
    inbound: Batch,
    outbound: Batch,
    /// What leaves with the outbound datagrams, and whose it is, in their order.
    departures: Vec<(u32, Departure)>,
    /// Where what is sent and received is written to, with the address of this machine.
    capture: Option<(Writer, Ipv4Addr)>,
}

/// When players look at their sockets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FrameMode {
    /// As soon as something is there, besides their frames.
    pub(super) quick: bool,
    /// Frames come exactly ten times a second.
    pub(super) steady: bool,
}

impl FrameMode {
    /// Returns whether the loop waits for sockets.
    const fn waits(self) -> bool {
        self.quick || !cfg!(target_os = "linux")
    }
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
    pub(super) fn new(
        seed: u64,
        sessions: usize,
        conditions: LinkConditions,
        frame_mode: FrameMode,
    ) -> io::Result<Self> {
        Ok(Self {
            seats: Vec::new(),
            ledgers: (0..sessions).map(|_| Ledger::default()).collect(),
            totals: SwarmTotals::default(),
            clock: Clock::start(),
            acts: false,
            conditions,
            frame_mode,
            rng: Rng::new(seed ^ 0xF1E1_D000),
            deadlines: Deadlines::new(),
            due: Vec::new(),
            poll: Poll::new()?,
            events: Events::with_capacity(1024),
            inbound: Batch::new(),
            outbound: Batch::new(),
            departures: Vec::new(),
            capture: None,
        })
    }

    /// Writes all that is sent and received from now on to a file.
    pub(super) fn capture(&mut self, path: &Path, server: SocketAddrV4) -> anyhow::Result<()> {
        // The sockets are bound to no address; the system tells which one it takes.
        let probe = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
        probe.connect(server)?;
        let own = match probe.local_addr()? {
            SocketAddr::V4(own) => *own.ip(),
            SocketAddr::V6(_) => Ipv4Addr::UNSPECIFIED,
        };
        self.capture = Some((Writer::create(path)?, own));
        Ok(())
    }

    /// Ends the capture, if there is one.
    pub(super) fn finish_capture(&mut self) -> anyhow::Result<()> {
        self.capture.as_mut().map_or(Ok(()), |(writer, _)| writer.flush())
    }

    /// Adds a player that comes at `comes`.
    pub(super) fn add(&mut self, player: Player, session: usize, comes: Time) -> anyhow::Result<()> {
        let index = self.seats.len() as u32;
        let socket = self.socket(index).with_context(|| {
            format!("cannot open socket number {}: is `ulimit -n` high enough?", index + 1)
        })?;
        self.deadlines.set(index, Some(comes));
        self.seats.push(Seat { player, session, socket, frame: comes, flying: VecDeque::new() });
        Ok(())
    }

    fn socket(&self, index: u32) -> io::Result<Socket> {
        let mut socket = Socket::bind(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0), Io::BEST)?;
        socket.note_arrivals()?;
        if self.frame_mode.waits() {
            let token = Token(index as usize);
            self.poll.registry().register(&mut socket, token, Interest::READABLE)?;
        }
        Ok(socket)
    }

    /// Sleeps until a frame is due, but no longer than to `until`, and plays all frames that are due.
    pub(super) fn turn(&mut self, until: Time) -> anyhow::Result<()> {
        let next = self.deadlines.first().map_or(until, |(due, _)| due).min(until);
        self.wait(next.since(self.clock.now()))?;
        let now = self.clock.now();
        while let Some((_, seat)) = self.deadlines.first().filter(|(due, _)| *due <= now) {
            self.deadlines.set(seat, None);
            self.due.push(seat);
        }
        let mut due = std::mem::take(&mut self.due);
        due.sort_unstable();
        due.dedup();
        for seat in &due {
            self.receive(*seat, now)?;
        }
        self.hand_over(now)?;
        for seat in &due {
            self.play(*seat, now)?;
        }
        self.send()?;
        due.clear();
        self.due = due;
        Ok(())
    }

    /// Waits for so long or, where sockets are waited for, until one of them has something. Its player is due then.
    fn wait(&mut self, most: Duration) -> io::Result<()> {
        // Sleeping less than this costs more than it brings.
        if !self.frame_mode.waits() {
            thread::sleep(most.max(MIN_SLEEP));
            return Ok(());
        }
        match self.poll.poll(&mut self.events, Some(most)) {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            result => result?,
        }
        self.due.extend(self.events.iter().map(|event| event.token().0 as u32));
        Ok(())
    }

    fn receive(&mut self, index: u32, now: Time) -> anyhow::Result<()> {
        let is_coming = self.seats.get(index as usize).is_some_and(|seat| seat.player.is_coming(now));
        if is_coming {
            let socket = self.socket(index).context("cannot open a socket")?;
            if let Some(seat) = self.seats.get_mut(index as usize) {
                seat.socket = socket;
            }
        }
        // A server that is not there is told by its silence.
        while let Some(seat) = self.seats.get(index as usize)
            && matches!(seat.socket.receive(&mut self.inbound, index, usize::MAX), Ok(Received::More))
        {
            self.hand_over(now)?;
        }
        if self.inbound.is_full() {
            self.hand_over(now)?;
        }
        Ok(())
    }

    /// Deciphers what has arrived and hands it to the players.
    fn hand_over(&mut self, now: Time) -> anyhow::Result<()> {
        record(&mut self.capture, &mut self.inbound, &self.seats, Way::In)?;
        self.inbound.apply(cipher::decrypt_batch, |_| true);
        let taken = wall_now();
        for (head, bytes, noted) in self.inbound.iter_arrived() {
            self.totals.received.add(bytes.len());
            if let Some(seat) = self.seats.get_mut(head.owner as usize)
                && let Some(ledger) = self.ledgers.get(seat.session)
                && head.remote == seat.player.server
                && !self.rng.chance(self.conditions.loss)
            {
                seat.player.note_arrival(bytes, noted.unwrap_or(taken), ledger, &mut self.totals);
                seat.player.client.handle_datagram(head.remote, bytes, now);
            }
        }
        self.inbound.clear();
        Ok(())
    }

    /// A player's frame, if it is due, and its datagrams that have been under way for long enough.
    fn play(&mut self, index: u32, now: Time) -> anyhow::Result<()> {
        let Some(seat) = self.seats.get_mut(index as usize) else { return Ok(()) };
        let Some(ledger) = self.ledgers.get_mut(seat.session) else { return Ok(()) };
        let is_frame = seat.frame <= now;
        if is_frame {
            self.totals.frames += 1;
            self.totals.late_frames += u64::from(now.since(seat.frame) > LATE);
            self.totals.lateness.add(now.since(seat.frame), 1);
            // A frame that comes late does not put off those behind it, unless it is very late.
            let start = if now.since(seat.frame) > LATE { now } else { seat.frame };
            let jittered = FRAME + JITTER.mul_f64(self.rng.share());
            seat.frame = start + if self.frame_mode.steady { STEADY_FRAME } else { jittered };
        }
        if is_frame || self.frame_mode.quick {
            seat.player.frame(self.acts && is_frame, ledger, now, &mut self.totals);
            // The engine answers in the frame after the one in which it hears.
            for _ in 0..if self.frame_mode.quick { ANSWERS } else { 0 } {
                let now = self.clock.now();
                if seat.player.next_timeout().is_none_or(|next| next > now) {
                    break;
                }
                seat.player.frame(false, ledger, now, &mut self.totals);
            }
            let mut buffer = [0; 1024];
            while let Some(transmit) = seat.player.client.poll_transmit(&mut buffer, now) {
                if !self.rng.chance(self.conditions.loss) {
                    let bytes = buffer.get(..transmit.len).unwrap_or_default().to_vec();
                    seat.flying.push_back((now + self.conditions.delay, bytes));
                }
            }
        }
        self.land(index, now)
    }

    /// Has a player's datagrams sent that have been under way for long enough.
    fn land(&mut self, index: u32, now: Time) -> anyhow::Result<()> {
        let Some(seat) = self.seats.get_mut(index as usize) else { return Ok(()) };
        let Some(ledger) = self.ledgers.get_mut(seat.session) else { return Ok(()) };
        while let Some((_, bytes)) = seat.flying.pop_front_if(|(at, _)| *at <= now) {
            self.totals.sent.add(bytes.len());
            let departures = seat.player.departures(&bytes, ledger);
            self.departures.extend(departures.into_iter().map(|departure| (index, departure)));
            let (remote, len) = (seat.player.server, bytes.len());
            self.outbound.push(|room| {
                room.get_mut(..len)?.copy_from_slice(&bytes);
                Some(Head { owner: index, remote, local: None, len, cut: false })
            });
            if self.outbound.is_full() {
                break;
            }
        }
        let landing = seat.flying.front().map(|(at, _)| *at);
        let engine = seat.player.next_timeout().filter(|_| self.frame_mode.quick);
        let next = [landing, engine].into_iter().flatten().fold(seat.frame, Time::min);
        let next = Some(next).filter(|_| !seat.player.is_gone());
        self.deadlines.set(index, next);
        if self.outbound.is_full() { self.send() } else { Ok(()) }
    }

    /// Sends what is to be sent, and notes when.
    fn send(&mut self) -> anyhow::Result<()> {
        self.outbound.apply(cipher::encrypt_batch, |_| true);
        record(&mut self.capture, &mut self.outbound, &self.seats, Way::Out)?;
        let mut departures = self.departures.drain(..).peekable();
        for (index, range) in self.outbound.runs() {
            let Some(seat) = self.seats.get_mut(index as usize) else { continue };
            let at = wall_now();
            // What the system does not take is lost, as on the network.
            drop(seat.socket.send(&self.outbound, range));
            let Some(ledger) = self.ledgers.get_mut(seat.session) else { continue };
            while let Some((_, departure)) = departures.next_if(|(owner, _)| *owner == index) {
                seat.player.note_departure(departure, at, ledger);
            }
        }
        drop(departures);
        self.outbound.clear();
        Ok(())
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

/// Which way datagrams go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    In,
    Out,
}

/// Writes datagrams as they are on the wire, if anybody wants them.
fn record(
    capture: &mut Option<(Writer, Ipv4Addr)>,
    batch: &mut Batch,
    seats: &[Seat],
    way: Way,
) -> anyhow::Result<()> {
    let Some((writer, own)) = capture else { return Ok(()) };
    let taken = wall_now();
    for (head, bytes, noted) in batch.iter_arrived() {
        let Some(seat) = seats.get(head.owner as usize) else { continue };
        let own = SocketAddrV4::new(*own, seat.socket.local()?.port());
        let (from, to) = if way == Way::In { (head.remote, own) } else { (own, head.remote) };
        let time = noted.filter(|_| way == Way::In).unwrap_or(taken);
        writer.write(&Packet { from, to, time, bytes, comment: None })?;
    }
    Ok(())
}

/// A frame is 85 to 105 ms after the last.
const FRAME: Duration = Duration::from_millis(85);
const JITTER: Duration = Duration::from_millis(20);
const STEADY_FRAME: Duration = Duration::from_millis(100);
/// How many datagrams a player that answers at once sends at most before it looks at its socket again.
const ANSWERS: u32 = 8;
const LATE: Duration = Duration::from_millis(95);
const MIN_SLEEP: Duration = Duration::from_millis(1);
