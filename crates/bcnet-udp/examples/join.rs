//! A bot: joins a server, sends a line of chat, prints the events of ten seconds, and leaves.
//!
//! `cargo run -p bcnet-udp --example join -- 127.0.0.1:22101`

use std::error::Error;
use std::time::Duration;

use bcnet_session::Manifest;
use bcnet_session::client::{Client, ClientOptions, Event};
use bcnet_transport::{Config, Connect, Time};
use bcnet_udp::Driver;

fn main() -> Result<(), Box<dyn Error>> {
    let server = std::env::args().nth(1).ok_or("usage: join ADDRESS:PORT")?.parse()?;
    let mut driver = Driver::bind("0.0.0.0:0".parse()?)?;
    // A real client uses a random number.
    let connect = Connect { host: server, nonce: std::process::id(), password: "" };
    let options = ClientOptions::with_name("Guest");
    let mut client = Client::connect(Config::default(), connect, options, driver.now());
    let (files, mut payload, leave_at) = (Manifest::placeholder(), Vec::new(), Time::ZERO + STAY);
    while !client.is_closed() {
        let now = driver.receive(&mut client)?;
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
        driver.send(&mut client);
        driver.wait(&client, Duration::from_millis(100))?;
    }
    Ok(())
}

const STAY: Duration = Duration::from_secs(10);
