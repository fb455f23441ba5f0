//! Drives an engine over a real socket: passes datagrams to it and runs its frames.

use std::io::{self, BufRead, ErrorKind, Write};
use std::net::{SocketAddr, SocketAddrV4, UdpSocket};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::Duration;

use bcnet_lab::NodeBehavior;
use bcnet_transport::wire::PeerId;
use bcnet_transport::{Time, cipher};
use bcnet_udp::{Clock, wall_now};

use super::node::LiveNode;
use crate::CommandStatus;
use crate::capture::{CaptureWriter, CapturedDatagram};
use crate::signals::{self, Signal};

/// Drives an engine over a socket.
pub(super) struct LiveDriver<'a> {
    socket: UdpSocket,
    own_address: SocketAddrV4,
    behavior: NodeBehavior,
    clock: Clock,
    dump_every: Option<Duration>,
    end: Option<Duration>,
    capture: Option<CaptureWriter>,
    input_lines: Receiver<String>,
    wants_stop: Arc<AtomicBool>,
    wants_dump: Arc<AtomicBool>,
    out: &'a mut dyn Write,
}

impl<'a> LiveDriver<'a> {
    pub(super) fn new(
        socket: UdpSocket,
        behavior: NodeBehavior,
        dump_every: Option<Duration>,
        end: Option<Duration>,
        capture: Option<&Path>,
        out: &'a mut dyn Write,
    ) -> anyhow::Result<Self> {
        let own = match socket.local_addr()? {
            SocketAddr::V4(own) => own,
            SocketAddr::V6(_) => anyhow::bail!("the socket has an IPv6 address; the game supports only IPv4"),
        };
        let (wants_stop, wants_dump) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let set = |flag: &Arc<AtomicBool>| {
            let flag = Arc::clone(flag);
            Box::new(move || flag.store(true, Ordering::Relaxed))
        };
        signals::listen(vec![(Signal::Stop, set(&wants_stop)), (Signal::Dump, set(&wants_dump))])?;
        Ok(Self {
            socket,
            own_address: own,
            behavior,
            clock: Clock::start(),
            dump_every,
            end,
            capture: capture.map(CaptureWriter::create).transpose()?,
            input_lines: spawn_input_reader()?,
            wants_stop,
            wants_dump,
            out,
        })
    }

    /// Runs until the node has finished, the user stops it, or the time of `--seconds` is over.
    pub(super) fn run(mut self, mut actor: impl LiveNode) -> anyhow::Result<CommandStatus> {
        let mut next_dump = self.dump_every.map(|every| Time::ZERO + every);
        let mut stopping: Option<Time> = None;
        loop {
            self.receive(&mut actor)?;
            let now = self.clock.now();
            actor.handle_timeout(now);
            self.transmit(&mut actor, now)?;
            while let Some(news) = actor.poll_event_text(now) {
                writeln!(self.out, "{:.3} {news}", seconds(now))?;
            }
            let mut dump = self.wants_dump.swap(false, Ordering::Relaxed);
            while let Ok(line) = self.input_lines.try_recv() {
                dump |= actor.on_input_line(line.trim(), now);
            }
            if let (Some(every), Some(at)) = (self.dump_every, next_dump.filter(|at| now >= *at)) {
                (dump, next_dump) = (true, Some(at + every));
            }
            if dump {
                self.dump(&actor, now)?;
            }
            self.out.flush()?;
            if let Some(crash) = actor.engine().crash() {
                self.finish()?;
                anyhow::bail!("the original program would have crashed: {crash}");
            }
            let wants_stop = self.wants_stop.load(Ordering::Relaxed)
                || self.end.is_some_and(|end| now.since(Time::ZERO) >= end);
            if wants_stop && stopping.is_none() {
                stopping = Some(now);
                actor.stop(now);
            }
            if actor.is_finished() || stopping.is_some_and(|since| now.since(since) > MAX_SHUTDOWN) {
                self.finish()?;
                let Some(why) = actor.failure() else { return Ok(CommandStatus::Clean) };
                eprintln!("bcnet: {why}");
                return Ok(CommandStatus::Findings);
            }
        }
    }

    /// Receives datagrams until the next frame.
    fn receive(&mut self, actor: &mut impl LiveNode) -> anyhow::Result<()> {
        let tick = self.behavior.tick.max(MIN_TICK);
        let frame = self.clock.now() + tick;
        let mut buffer = [0; 2048];
        loop {
            let left = frame.since(self.clock.now());
            if left.is_zero() {
                return Ok(());
            }
            self.socket.set_read_timeout(Some(left))?;
            match self.socket.recv_from(&mut buffer) {
                Ok((len, SocketAddr::V4(from))) => {
                    let mut bytes = buffer[..len].to_vec();
                    self.record_packet(from, self.own_address, &bytes)?;
                    if self.behavior.deaf_to_part_acks {
                        edit_decrypted(&mut bytes, |bytes| self.behavior.rewrite_incoming(bytes));
                    }
                    actor.handle_datagram(from, &mut bytes, self.clock.now());
                }
                Ok((_, SocketAddr::V6(_))) => {}
                Err(error)
                    if error.kind() == ErrorKind::WouldBlock || error.kind() == ErrorKind::TimedOut => {}
                // A peer is unreachable, or a signal arrived.
                Err(error)
                    if [ErrorKind::ConnectionRefused, ErrorKind::ConnectionReset, ErrorKind::Interrupted]
                        .contains(&error.kind()) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn transmit(&mut self, actor: &mut impl LiveNode, now: Time) -> anyhow::Result<()> {
        let mut buffer = [0; 2048];
        while let Some(transmit) = actor.poll_transmit(&mut buffer, now) {
            let mut bytes = buffer[..transmit.len].to_vec();
            if self.behavior.plain_acks {
                edit_decrypted(&mut bytes, |bytes| {
                    let len = self.behavior.rewrite_outgoing(bytes);
                    bytes.truncate(len);
                });
            }
            self.record_packet(self.own_address, transmit.to, &bytes)?;
            // A send error is ignored: it shows as silence of the peer.
            drop(self.socket.send_to(&bytes, transmit.to));
        }
        Ok(())
    }

    fn record_packet(&mut self, from: SocketAddrV4, to: SocketAddrV4, bytes: &[u8]) -> anyhow::Result<()> {
        if let Some(capture) = &mut self.capture {
            capture.write(&CapturedDatagram { from, to, time: wall_now(), bytes, comment: None })?;
        }
        Ok(())
    }

    fn dump(&mut self, actor: &impl LiveNode, now: Time) -> io::Result<()> {
        let dumps = actor.dumps(now);
        if dumps.is_empty() {
            writeln!(self.out, "[{:.3}] no peers", seconds(now))?;
        }
        dumps.iter().try_for_each(|dump| writeln!(self.out, "{dump}"))
    }

    fn finish(&mut self) -> anyhow::Result<()> {
        if let Some(capture) = &mut self.capture {
            capture.flush()?;
        }
        Ok(self.out.flush()?)
    }
}

/// Rewrites a datagram in plaintext and enciphers it again.
fn edit_decrypted(bytes: &mut Vec<u8>, change: impl FnOnce(&mut Vec<u8>)) {
    if bytes.first() != Some(&PeerId::GAMESPY.0) {
        cipher::decrypt(bytes);
        change(bytes);
        cipher::encrypt(bytes);
    }
}

/// Starts a thread that reads lines from standard input.
fn spawn_input_reader() -> io::Result<Receiver<String>> {
    let (sender, lines) = mpsc::sync_channel(16);
    let read = move || {
        for line in io::stdin().lock().lines() {
            let Ok(line) = line else { break };
            if sender.send(line).is_err() {
                break;
            }
        }
    };
    thread::Builder::new().name("input".into()).spawn(read)?;
    Ok(lines)
}

fn seconds(now: Time) -> f64 {
    now.as_micros() as f64 / 1e6
}

const MIN_TICK: Duration = Duration::from_millis(1);
/// The longest wait for the node to leave.
///
/// The stock engine waits slightly less for the ACK of its disconnect.
const MAX_SHUTDOWN: Duration = Duration::from_secs(16);
