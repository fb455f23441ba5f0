//! A client over UDP: joins a server, sends a line of chat, prints the events of ten seconds, and leaves.
//!
//! `cargo run -p bcnet-session --example join -- 127.0.0.1:22101`

use std::error::Error;
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::time::{Duration, Instant};

use bcnet_session::Manifest;
use bcnet_session::client::{Client, ClientOptions, Event};
use bcnet_transport::{Config, Connect, Time};

fn main() -> Result<(), Box<dyn Error>> {
    let server: SocketAddrV4 = std::env::args().nth(1).ok_or("usage: join ADDRESS:PORT")?.parse()?;
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
    socket.connect(server)?;
    #[expect(clippy::disallowed_methods, reason = "the caller of a client supplies the time")]
    let started = Instant::now();
    let clock = || Time::ZERO + started.elapsed();
    // A real client uses a random number.
    let nonce = std::process::id();
    let connect = Connect { host: server, nonce, password: "" };
    let mut client = Client::connect(Config::default(), connect, ClientOptions::with_name("Guest"), clock());
    let (files, leave_at) = (Manifest::placeholder(), clock() + Duration::from_secs(10));
    let (mut payload, mut buffer) = (Vec::new(), [0; 2048]);
    while !client.is_closed() {
        let now = clock();
        client.handle_timeout(now);
        while let Some(event) = client.poll_event(&mut payload, now) {
            match event {
                Event::FileCheck(_) => client.answer_from_manifest(&files, now)?,
                Event::Load => client.enter(now)?,
                Event::Entered => client.chat("hello", now)?,
                Event::Joined { name, .. } => println!("{name} is here"),
                Event::Chat { name, text, .. } => println!("<{name}> {text}"),
                Event::Gone { state, reason } => return Err(format!("{state}: {reason}").into()),
                _ => {}
            }
        }
        if client.has_entered() && now >= leave_at {
            client.leave(now);
        }
        while let Some(transmit) = client.poll_transmit(&mut buffer, now) {
            socket.send(&buffer[..transmit.len])?;
        }
        let due = client.next_timeout().map_or(MAX_WAIT, |due| due.since(now)).min(MAX_WAIT);
        socket.set_read_timeout(Some(due.max(Duration::from_millis(1))))?;
        if let Ok(len) = socket.recv(&mut buffer) {
            client.handle_datagram(server, &mut buffer[..len], clock());
        }
    }
    Ok(())
}

const MAX_WAIT: Duration = Duration::from_millis(100);
