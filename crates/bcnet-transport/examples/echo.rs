//! A host that sends every payload back, or a client of such a host, over real UDP.
//!
//! ```sh
//! cargo run -p bcnet-transport --example echo -- host 127.0.0.1:22101
//! cargo run -p bcnet-transport --example echo -- client 127.0.0.1:22101
//! ```

use std::env;
use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};
use std::process::{self, ExitCode};
use std::time::{Duration, Instant};

use bcnet_transport::wire::PeerId;
use bcnet_transport::{Config, Connect, DeliveryMode, Endpoint, Engine, Event, Time};

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("echo: {error}");
            ExitCode::from(2)
        }
    }
}

fn run() -> io::Result<()> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [role, address] = &arguments[..] else { return Err(usage()) };
    let address: SocketAddrV4 = address.parse().map_err(|_| usage())?;
    let clock = EchoClock::start();
    match role.as_str() {
        "host" => {
            let socket = UdpSocket::bind(address)?;
            drive(Endpoint::host(Config::default()), &socket, &clock, echo)
        }
        "client" => {
            let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
            // A real program uses a random number here.
            let nonce = process::id() | 1;
            let own = Ipv4Addr::LOCALHOST;
            let client = Endpoint::connect(
                Config { address: own, ..Config::default() },
                Connect { host: address, nonce, password: "" },
                clock.now(),
            );
            drive(client, &socket, &clock, send_once_and_leave)
        }
        _ => Err(usage()),
    }
}

/// Admits every client and sends every payload back.
fn echo(endpoint: &mut Endpoint, event: Event, payload: &[u8], now: Time) {
    match event {
        Event::Request { from, .. } => {
            if let Err(error) = endpoint.admit(from, now) {
                eprintln!("request not answered: {error}");
            }
        }
        Event::Received { peer, .. } => {
            if let Err(error) = endpoint.send(peer, payload, DeliveryMode::Reliable, now) {
                eprintln!("payload to {peer} dropped: {error}");
            }
        }
        Event::Joined { peer } => println!("{peer} joined"),
        Event::Left { peer, reason } => println!("{peer} left: {reason}"),
        _ => {}
    }
}

/// Sends one payload, waits until it comes back, and leaves.
fn send_once_and_leave(endpoint: &mut Endpoint, event: Event, payload: &[u8], now: Time) {
    match event {
        Event::Joined { peer } => {
            println!("joined as {peer}");
            // A payload that needs many datagrams.
            let long = "the quick brown fox ".repeat(500);
            endpoint
                .send(PeerId::HOST, long.as_bytes(), DeliveryMode::Reliable, now)
                .expect("the host is connected");
        }
        Event::Received { .. } => {
            println!("{} bytes came back", payload.len());
            endpoint.leave(now);
        }
        Event::Left { peer, reason } => println!("{peer} left: {reason}"),
        _ => {}
    }
}

type EventHandler = fn(&mut Endpoint, Event, &[u8], Time);

/// Drives the endpoint: passes datagrams and time in, and takes datagrams and events out.
fn drive(
    mut endpoint: Endpoint,
    socket: &UdpSocket,
    clock: &EchoClock,
    on_event: EventHandler,
) -> io::Result<()> {
    let mut buffer = [0; 65_536];
    let mut payload = Vec::new();
    let is_host = endpoint.id() == PeerId::HOST;
    while is_host || !endpoint.is_closed() {
        let now = clock.now();
        endpoint.handle_timeout(now);
        while let Some(event) = endpoint.poll_event(&mut payload) {
            on_event(&mut endpoint, event, &payload, now);
        }
        while let Some(transmit) = endpoint.poll_transmit(&mut buffer, now) {
            socket.send_to(&buffer[..transmit.len], transmit.to)?;
        }
        let due = endpoint.next_timeout().unwrap_or(now + Duration::from_secs(1));
        // A timeout of zero would mean to wait forever.
        socket.set_read_timeout(Some(due.since(clock.now()).max(Duration::from_millis(1))))?;
        match socket.recv_from(&mut buffer) {
            Ok((len, SocketAddr::V4(from))) => {
                endpoint.handle_datagram(from, &mut buffer[..len], clock.now())
            }
            Ok(_) => {}
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Real time in the form that the endpoint needs.
struct EchoClock(Instant);

impl EchoClock {
    #[expect(clippy::disallowed_methods, reason = "a program has to read the clock somewhere")]
    fn start() -> Self {
        Self(Instant::now())
    }

    fn now(&self) -> Time {
        Time::ZERO + self.0.elapsed()
    }
}

fn usage() -> io::Error {
    io::Error::new(ErrorKind::InvalidInput, "usage: echo host|client ADDRESS:PORT")
}
