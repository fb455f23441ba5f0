//! Runs all players of a run with their sockets, in one thread.
//!
//! A player reads its socket once per tick, as the stock engine does. The loop sleeps until the next tick, and the
//! system records the arrival of each datagram. The loop waits for sockets only for players that answer at once, or
//! if the system records no times. Datagrams of all players with due ticks are encrypted together.

use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};
use std::path::Path;
use std::thread;
use std::time::Duration;

use anyhow::Context;
use bcnet_lab::Rng;
use bcnet_transport::{Deadlines, Time, cipher};
use bcnet_udp::{Batch, Clock, DatagramInfo, Io, ReceiveStatus, Socket, wall_now};
use mio::{Events, Interest, Poll, Token};

use super::counters::SwarmCounters;
use super::delivery_tracker::DeliveryTracker;
use super::player::{SimulatedPlayer, TimedSend};
use crate::capture::{CaptureWriter, CapturedDatagram};

/// Simulated loss and delay of the links to the server.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct LinkConditions {
    /// Share of lost datagrams, each way.
    pub(super) loss: f64,
    /// Round-trip delay, added on the way to the server.
    pub(super) delay: Duration,
}

pub(super) struct SwarmDriver {
    pub(super) endpoints: Vec<PlayerEndpoint>,
    pub(super) trackers: Vec<DeliveryTracker>,
    pub(super) counters: SwarmCounters,
    pub(super) clock: Clock,
    /// True if players follow their plan.
    pub(super) players_act: bool,
    conditions: LinkConditions,
    frame_mode: FrameMode,
    rng: Rng,
    deadlines: Deadlines,
    due_players: Vec<u32>,
    poll: Poll,
    events: Events,
    inbound: Batch,
    outbound: Batch,
    /// Messages in the outbound datagrams with their players, in order.
    timed_sends: Vec<(u32, TimedSend)>,
    /// The capture file, with the address of this machine.
    capture: Option<(CaptureWriter, Ipv4Addr)>,
}

/// When players read their sockets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FrameMode {
    /// True if they read as soon as data arrives, besides their ticks.
    pub(super) quick: bool,
    /// True if ticks come exactly ten times a second.
    pub(super) steady: bool,
}

impl FrameMode {
    /// Returns whether the loop waits for sockets.
    const fn waits_for_sockets(self) -> bool {
        self.quick || !cfg!(target_os = "linux")
    }
}

pub(super) struct PlayerEndpoint {
    pub(super) player: SimulatedPlayer,
    session: usize,
    pub(super) socket: Socket,
    next_frame: Time,
    /// Delayed datagrams to the server.
    in_transit: VecDeque<(Time, Vec<u8>)>,
}

impl SwarmDriver {
    pub(super) fn new(
        seed: u64,
        sessions: usize,
        conditions: LinkConditions,
        frame_mode: FrameMode,
    ) -> io::Result<Self> {
        Ok(Self {
            endpoints: Vec::new(),
            trackers: (0..sessions).map(|_| DeliveryTracker::default()).collect(),
            counters: SwarmCounters::default(),
            clock: Clock::start(),
            players_act: false,
            conditions,
            frame_mode,
            rng: Rng::new(seed ^ 0xF1E1_D000),
            deadlines: Deadlines::new(),
            due_players: Vec::new(),
            poll: Poll::new()?,
            events: Events::with_capacity(1024),
            inbound: Batch::new(),
            outbound: Batch::new(),
            timed_sends: Vec::new(),
            capture: None,
        })
    }

    /// Starts to write all traffic to a file.
    pub(super) fn start_capture(&mut self, path: &Path, server: SocketAddrV4) -> anyhow::Result<()> {
        // The sockets are bound to no address; a connected socket shows the address that the system chooses.
        let probe = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
        probe.connect(server)?;
        let own = match probe.local_addr()? {
            SocketAddr::V4(own) => *own.ip(),
            SocketAddr::V6(_) => Ipv4Addr::UNSPECIFIED,
        };
        self.capture = Some((CaptureWriter::create(path)?, own));
        Ok(())
    }

    /// Finishes the capture, if there is one.
    pub(super) fn finish_capture(&mut self) -> anyhow::Result<()> {
        self.capture.as_mut().map_or(Ok(()), |(writer, _)| writer.flush())
    }

    /// Adds a player that joins at `comes`.
    pub(super) fn add_player(
        &mut self,
        player: SimulatedPlayer,
        session: usize,
        joins_at: Time,
    ) -> anyhow::Result<()> {
        let index = self.endpoints.len() as u32;
        let socket = self.open_socket(index).with_context(|| {
            format!("cannot open socket number {}: is `ulimit -n` high enough?", index + 1)
        })?;
        self.deadlines.set(index, Some(joins_at));
        self.endpoints.push(PlayerEndpoint {
            player,
            session,
            socket,
            next_frame: joins_at,
            in_transit: VecDeque::new(),
        });
        Ok(())
    }

    fn open_socket(&self, index: u32) -> io::Result<Socket> {
        let mut socket = Socket::bind(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0), Io::BEST)?;
        socket.enable_timestamps()?;
        if self.frame_mode.waits_for_sockets() {
            let token = Token(index as usize);
            self.poll.registry().register(&mut socket, token, Interest::READABLE)?;
        }
        Ok(socket)
    }

    /// Sleeps until a tick is due, at most until `until`, and runs all due ticks.
    pub(super) fn run_due_frames(&mut self, until: Time) -> anyhow::Result<()> {
        let next = self.deadlines.first().map_or(until, |(due, _)| due).min(until);
        self.wait(next.since(self.clock.now()))?;
        let now = self.clock.now();
        while let Some((_, index)) = self.deadlines.first().filter(|(due, _)| *due <= now) {
            self.deadlines.set(index, None);
            self.due_players.push(index);
        }
        let mut due = std::mem::take(&mut self.due_players);
        due.sort_unstable();
        due.dedup();
        for index in &due {
            self.receive(*index, now)?;
        }
        self.deliver_inbound(now)?;
        for index in &due {
            self.run_frame(*index, now)?;
        }
        self.send_batch()?;
        due.clear();
        self.due_players = due;
        Ok(())
    }

    /// Waits for a time, or until a socket is readable if the loop waits for sockets. Its player is then due.
    fn wait(&mut self, max_wait: Duration) -> io::Result<()> {
        // `MIN_SLEEP` limits the number of wake-ups: ticks that are due soon run together.
        if !self.frame_mode.waits_for_sockets() {
            thread::sleep(max_wait.max(MIN_SLEEP));
            return Ok(());
        }
        match self.poll.poll(&mut self.events, Some(max_wait)) {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            result => result?,
        }
        self.due_players.extend(self.events.iter().map(|event| event.token().0 as u32));
        Ok(())
    }

    fn receive(&mut self, index: u32, now: Time) -> anyhow::Result<()> {
        let is_coming =
            self.endpoints.get(index as usize).is_some_and(|endpoint| endpoint.player.is_due_to_join(now));
        if is_coming {
            let socket = self.open_socket(index).context("cannot open a socket")?;
            if let Some(endpoint) = self.endpoints.get_mut(index as usize) {
                endpoint.socket = socket;
            }
        }
        // A missing server shows as silence.
        while let Some(endpoint) = self.endpoints.get(index as usize)
            && matches!(
                endpoint.socket.receive(&mut self.inbound, index, usize::MAX),
                Ok(ReceiveStatus::More)
            )
        {
            self.deliver_inbound(now)?;
        }
        if self.inbound.is_full() {
            self.deliver_inbound(now)?;
        }
        Ok(())
    }

    /// Decrypts received datagrams and passes them to the players.
    fn deliver_inbound(&mut self, now: Time) -> anyhow::Result<()> {
        record_batch(&mut self.capture, &mut self.inbound, &self.endpoints, DatagramDirection::Inbound)?;
        self.inbound.apply_cipher(cipher::decrypt_batch, |_| true);
        let taken = wall_now();
        for (head, bytes, noted) in self.inbound.iter_with_timestamps() {
            self.counters.datagrams_received.add(bytes.len());
            if let Some(endpoint) = self.endpoints.get_mut(head.owner as usize)
                && let Some(tracker) = self.trackers.get(endpoint.session)
                && head.remote == endpoint.player.server
                && !self.rng.chance(self.conditions.loss)
            {
                endpoint.player.note_arrival(bytes, noted.unwrap_or(taken), tracker, &mut self.counters);
                endpoint.player.client.handle_datagram(head.remote, bytes, now);
            }
        }
        self.inbound.clear();
        Ok(())
    }

    /// Runs a player's tick if it is due, and sends its delayed datagrams.
    fn run_frame(&mut self, index: u32, now: Time) -> anyhow::Result<()> {
        let Some(endpoint) = self.endpoints.get_mut(index as usize) else { return Ok(()) };
        let Some(tracker) = self.trackers.get_mut(endpoint.session) else { return Ok(()) };
        let is_frame = endpoint.next_frame <= now;
        if is_frame {
            self.counters.frames += 1;
            self.counters.late_frames += u64::from(now.since(endpoint.next_frame) > LATE_AFTER);
            self.counters.lateness.add(now.since(endpoint.next_frame), 1);
            // A late tick does not move later ones, unless it is very late.
            let start = if now.since(endpoint.next_frame) > LATE_AFTER { now } else { endpoint.next_frame };
            let jittered = MIN_FRAME_INTERVAL + FRAME_JITTER.mul_f64(self.rng.fraction());
            endpoint.next_frame =
                start + if self.frame_mode.steady { STEADY_FRAME_INTERVAL } else { jittered };
        }
        if is_frame || self.frame_mode.quick {
            endpoint.player.frame(self.players_act && is_frame, tracker, now, &mut self.counters);
            // The engine answers one tick after it receives, so a player that answers at once runs more ticks now.
            for _ in 0..if self.frame_mode.quick { MAX_QUICK_FRAMES } else { 0 } {
                let now = self.clock.now();
                if endpoint.player.next_timeout().is_none_or(|next| next > now) {
                    break;
                }
                endpoint.player.frame(false, tracker, now, &mut self.counters);
            }
            let mut buffer = [0; 1024];
            while let Some(transmit) = endpoint.player.client.poll_transmit(&mut buffer, now) {
                if !self.rng.chance(self.conditions.loss) {
                    let bytes = buffer.get(..transmit.len).unwrap_or_default().to_vec();
                    endpoint.in_transit.push_back((now + self.conditions.delay, bytes));
                }
            }
        }
        self.release_delayed(index, now)
    }

    /// Sends a player's datagrams whose delay has passed.
    fn release_delayed(&mut self, index: u32, now: Time) -> anyhow::Result<()> {
        let Some(endpoint) = self.endpoints.get_mut(index as usize) else { return Ok(()) };
        let Some(tracker) = self.trackers.get_mut(endpoint.session) else { return Ok(()) };
        while let Some((_, bytes)) = endpoint.in_transit.pop_front_if(|(at, _)| *at <= now) {
            self.counters.datagrams_sent.add(bytes.len());
            let departures = endpoint.player.timed_sends(&bytes, tracker);
            self.timed_sends.extend(departures.into_iter().map(|departure| (index, departure)));
            let (remote, len) = (endpoint.player.server, bytes.len());
            self.outbound.push(|room| {
                room.get_mut(..len)?.copy_from_slice(&bytes);
                Some(DatagramInfo { owner: index, remote, local: None, len, truncated: false })
            });
            if self.outbound.is_full() {
                break;
            }
        }
        let next_release = endpoint.in_transit.front().map(|(at, _)| *at);
        let engine_timeout = endpoint.player.next_timeout().filter(|_| self.frame_mode.quick);
        let next = [next_release, engine_timeout].into_iter().flatten().fold(endpoint.next_frame, Time::min);
        let next = Some(next).filter(|_| !endpoint.player.is_gone());
        self.deadlines.set(index, next);
        if self.outbound.is_full() { self.send_batch() } else { Ok(()) }
    }

    /// Sends the batch and records the times.
    fn send_batch(&mut self) -> anyhow::Result<()> {
        self.outbound.apply_cipher(cipher::encrypt_batch, |_| true);
        record_batch(&mut self.capture, &mut self.outbound, &self.endpoints, DatagramDirection::Outbound)?;
        let mut departures = self.timed_sends.drain(..).peekable();
        for (index, range) in self.outbound.runs_by_owner() {
            let Some(endpoint) = self.endpoints.get_mut(index as usize) else { continue };
            let at = wall_now();
            // A datagram that the system refuses is lost, as on the network.
            drop(endpoint.socket.send(&self.outbound, range));
            let Some(tracker) = self.trackers.get_mut(endpoint.session) else { continue };
            while let Some((_, departure)) = departures.next_if(|(owner, _)| *owner == index) {
                endpoint.player.note_sent(departure, at, tracker);
            }
        }
        drop(departures);
        self.outbound.clear();
        Ok(())
    }

    pub(super) fn players_in_game(&self) -> usize {
        self.endpoints.iter().filter(|endpoint| endpoint.player.is_in_game()).count()
    }

    /// Returns the number of players that never joined.
    pub(super) fn never_joined(&self) -> usize {
        self.endpoints.iter().filter(|endpoint| !endpoint.player.was_in_game()).count()
    }

    /// Returns the number of copies that have not arrived.
    pub(super) fn undelivered(&self) -> u64 {
        let undelivered = |endpoint: &PlayerEndpoint| {
            self.trackers.get(endpoint.session).map_or(0, |tracker| endpoint.player.undelivered(tracker))
        };
        self.endpoints.iter().map(undelivered).sum()
    }

    /// Lets everyone leave. Copies that have not arrived count as lost.
    pub(super) fn leave_all(&mut self) {
        let now = self.clock.now();
        for endpoint in &mut self.endpoints {
            if let Some(tracker) = self.trackers.get_mut(endpoint.session) {
                endpoint.player.count_undelivered_as_lost(tracker, &mut self.counters);
                endpoint.player.leave(tracker, now, &mut self.counters);
            }
        }
    }
}

/// Direction of a datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DatagramDirection {
    Inbound,
    Outbound,
}

/// Writes datagrams to the capture, if there is one.
fn record_batch(
    capture: &mut Option<(CaptureWriter, Ipv4Addr)>,
    batch: &mut Batch,
    endpoints: &[PlayerEndpoint],
    direction: DatagramDirection,
) -> anyhow::Result<()> {
    let Some((writer, own)) = capture else { return Ok(()) };
    let taken = wall_now();
    for (head, bytes, noted) in batch.iter_with_timestamps() {
        let Some(endpoint) = endpoints.get(head.owner as usize) else { continue };
        let own = SocketAddrV4::new(*own, endpoint.socket.local_address()?.port());
        let (from, to) =
            if direction == DatagramDirection::Inbound { (head.remote, own) } else { (own, head.remote) };
        let time = noted.filter(|_| direction == DatagramDirection::Inbound).unwrap_or(taken);
        writer.write(&CapturedDatagram { from, to, time, bytes, comment: None })?;
    }
    Ok(())
}

/// Ticks are 85 to 105 ms apart.
const MIN_FRAME_INTERVAL: Duration = Duration::from_millis(85);
const FRAME_JITTER: Duration = Duration::from_millis(20);
const STEADY_FRAME_INTERVAL: Duration = Duration::from_millis(100);
/// Most extra ticks of a player that answers at once, before it reads its socket again.
const MAX_QUICK_FRAMES: u32 = 8;
const LATE_AFTER: Duration = Duration::from_millis(95);
const MIN_SLEEP: Duration = Duration::from_millis(1);
