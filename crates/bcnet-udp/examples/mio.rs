//! A host in an event loop of mio, which can have other sources. It prints every payload that it receives.
//!
//! `cargo run -p bcnet-udp --example mio -- 127.0.0.1:22101`

use std::error::Error;

use bcnet_transport::{Config, Endpoint, Engine, Event};
use bcnet_udp::Driver;
use mio::{Events, Interest, Poll, Token};

const GAME: Token = Token(0);

fn main() -> Result<(), Box<dyn Error>> {
    let address = std::env::args().nth(1).ok_or("usage: mio ADDRESS:PORT")?.parse()?;
    let (mut driver, mut host) = (Driver::bind(address)?, Endpoint::host(Config::default()));
    let (mut poll, mut events) = (Poll::new()?, Events::with_capacity(64));
    poll.registry().register(&mut driver, GAME, Interest::READABLE)?;
    let mut payload = Vec::new();
    loop {
        // Other sources have other tokens. The driver is called in every turn: its timers may be due.
        poll.poll(&mut events, driver.timeout(&host))?;
        let now = driver.receive(&mut host)?;
        while let Some(event) = host.poll_event(&mut payload) {
            match event {
                Event::Request { from, .. } => drop(host.challenge(from, now)),
                Event::Received { peer, .. } => println!("{peer}: {}", payload.escape_ascii()),
                _ => {}
            }
        }
        driver.send(&mut host);
    }
}
