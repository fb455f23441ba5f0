//! `bcnet master`: a small list server, for local networks and friends. Servers announce themselves by UDP, games ask
//! for the list by TCP.

mod client;
mod list;
mod text;

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::io::{self, ErrorKind, Write};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpListener, UdpSocket};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::Context;
use bcnet_transport::Time;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use tracing::level_filters::LevelFilter;

use crate::clock::Clock;
use crate::config::Value;
use crate::log::LineLimit;
use crate::{Verdict, log};
use list::{List, Note, Outgoing};

#[derive(clap::Args)]
#[command(after_help = "\
Servers find it with `masters = [\"HOST\"]` in their configuration, games with HOST in their masterserver.txt. A server \
is listed when it has answered the challenge and is reachable at the port it names, and for half an hour after its \
last answer.

`master ready udp=… tcp=…` on standard output tells that it listens; the log is on standard error. SIGTERM and SIGINT \
end it.

Exit codes: 0 ended as told, 2 could not run.")]
pub(crate) struct Args {
    /// The local address; all of them if none is given
    #[arg(long, value_name = "ADDRESS", default_value = "0.0.0.0", value_parser = Ipv4Addr::from_text)]
    bind: Ipv4Addr,

    /// The port for heartbeats of servers; 0 for any
    #[arg(long, value_name = "PORT", default_value_t = 27900)]
    udp: u16,

    /// The port for lists; 0 for any
    #[arg(long, value_name = "PORT", default_value_t = 28900)]
    tcp: u16,

    /// Log as JSON
    #[arg(long)]
    json: bool,
}

/// What the threads share.
struct Shared {
    list: Mutex<List>,
    clock: Clock,
}

impl Shared {
    fn list(&self) -> MutexGuard<'_, List> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(crate) fn run(args: &Args) -> anyhow::Result<Verdict> {
    let taken = |kind: &'static str, port: u16, flag: &'static str| {
        move || format!("cannot listen at {kind} {}:{port}; choose another {flag} or --bind", args.bind)
    };
    let udp = UdpSocket::bind((args.bind, args.udp)).with_context(taken("UDP", args.udp, "--udp"))?;
    let tcp = TcpListener::bind((args.bind, args.tcp)).with_context(taken("TCP", args.tcp, "--tcp"))?;
    let mut signals = Signals::new([SIGINT, SIGTERM])?;
    let _log = log::start(&log::Options { level: LevelFilter::INFO, json: args.json, file: None })?;
    let ready = format!("master ready udp={} tcp={}\n", udp.local_addr()?.port(), tcp.local_addr()?.port());
    let shared = Arc::new(Shared { list: Mutex::default(), clock: Clock::start() });
    let servers = Arc::clone(&shared);
    thread::Builder::new().name("servers".into()).spawn(move || hear(&udp, &servers))?;
    thread::Builder::new().name("clients".into()).spawn(move || client::run(&tcp, &shared))?;
    // Whoever started it may not be interested in its output.
    drop(io::stdout().write_all(ready.as_bytes()).and_then(|()| io::stdout().flush()));
    signals.forever().next();
    tracing::info!(event = "stopped");
    Ok(Verdict::Clean)
}

/// Hears servers for ever.
fn hear(socket: &UdpSocket, shared: &Shared) {
    let mut buffer = [0; 2048];
    let mut answers = LineLimit::new(ANSWERS, Duration::from_secs(1) / ANSWERS);
    let mut lines = LineLimit::new(20, Duration::from_secs(1));
    let mut housekeeping = Time::ZERO;
    loop {
        let datagram = receive(socket, &mut buffer);
        let now = shared.clock.now();
        let mut list = shared.list();
        let answer = datagram.and_then(|(from, bytes)| list.handle_datagram(from, bytes, random(), now));
        if now >= housekeeping {
            list.expire(now);
            housekeeping = now + HOUSEKEEPING;
        }
        let notes = list.take_notes();
        drop(list);
        if let Some((to, text)) = answer.filter(|_| answers.pass(now).is_some()) {
            send(socket, (to, text));
        }
        for note in notes {
            if let Some(held_back) = lines.pass(now) {
                tell(note, held_back);
            }
        }
    }
}

/// The next datagram, or none for a while.
fn receive<'a>(socket: &UdpSocket, buffer: &'a mut [u8]) -> Option<(SocketAddrV4, &'a [u8])> {
    drop(socket.set_read_timeout(Some(HOUSEKEEPING)));
    match socket.recv_from(buffer) {
        Ok((len, SocketAddr::V4(from))) => Some((from, buffer.get(..len)?)),
        Ok(_) => None,
        Err(error) => {
            if !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted) {
                tracing::debug!(event = "receive_failed", %error);
            }
            None
        }
    }
}

fn send(socket: &UdpSocket, (to, text): Outgoing) {
    if let Err(error) = socket.send_to(&text, to) {
        tracing::debug!(event = "send_failed", %to, %error);
    }
}

fn tell(note: Note, held_back: u64) {
    match note {
        Note::Listed(address) => tracing::info!(event = "listed", %address, held_back),
        Note::Expired(address) => tracing::info!(event = "expired", %address, held_back),
        Note::WrongAnswer(address) => tracing::warn!(event = "wrong_answer", %address, held_back),
        Note::Full(address) => tracing::warn!(event = "list_full", %address, held_back),
    }
}

/// A number that nobody can guess: the keys of the standard library's hash are from the system's random numbers.
fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}

/// How many datagrams leave per second at the most.
const ANSWERS: u32 = 500;
/// How often the list is looked through.
const HOUSEKEEPING: Duration = Duration::from_secs(5);
