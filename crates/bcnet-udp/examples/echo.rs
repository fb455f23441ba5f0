//! A host that sends every payload back, or a client of such a host.
//!
//! ```sh
//! cargo run -p bcnet-udp --example echo -- host 127.0.0.1:22101
//! cargo run -p bcnet-udp --example echo -- client 127.0.0.1:22101
//! ```

use std::error::Error;
use std::time::Duration;

use bcnet_transport::wire::PeerId;
use bcnet_transport::{Config, Connect, DeliveryMode, Endpoint, Engine, Event, Time};
use bcnet_udp::Driver;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [role, address] = &arguments[..] else { return Err("usage: echo host|client ADDRESS:PORT".into()) };
    let address = address.parse()?;
    if role == "host" {
        return run(Driver::bind(address)?, Endpoint::host(Config::default()), echo);
    }
    let driver = Driver::bind("0.0.0.0:0".parse()?)?;
    // A real program uses a random number here.
    let connect = Connect { host: address, nonce: std::process::id(), password: "" };
    let client = Endpoint::connect(Config::default(), connect, driver.now());
    run(driver, client, send_once_and_leave)
}

type EventHandler = fn(&mut Endpoint, Event, &[u8], Time) -> Result<(), Box<dyn Error>>;

/// Runs an endpoint until it has left; a host never leaves.
fn run(mut driver: Driver, mut endpoint: Endpoint, on_event: EventHandler) -> Result<(), Box<dyn Error>> {
    let mut payload = Vec::new();
    while endpoint.id() == PeerId::HOST || !endpoint.is_closed() {
        let now = driver.receive(&mut endpoint)?;
        while let Some(event) = endpoint.poll_event(&mut payload) {
            on_event(&mut endpoint, event, &payload, now)?;
        }
        driver.send(&mut endpoint);
        driver.wait(&endpoint, Duration::from_secs(1))?;
    }
    Ok(())
}

/// Admits every client and sends every payload back.
fn echo(endpoint: &mut Endpoint, event: Event, payload: &[u8], now: Time) -> Result<(), Box<dyn Error>> {
    match event {
        // `admit` trusts the source address. A host on the Internet uses `challenge`.
        Event::Request { from, .. } => {
            if let Err(error) = endpoint.admit(from, now) {
                eprintln!("request of {from} not answered: {error}");
            }
        }
        Event::Received { peer, .. } => {
            if let Err(error) = endpoint.send(peer, payload, DeliveryMode::Reliable, now) {
                eprintln!("payload of {peer} dropped: {error}");
            }
        }
        Event::Joined { peer } => println!("{peer} joined"),
        Event::Left { peer, reason } => println!("{peer} left: {reason}"),
        _ => {}
    }
    Ok(())
}

/// Sends one payload, waits until it comes back, and leaves.
fn send_once_and_leave(
    endpoint: &mut Endpoint,
    event: Event,
    payload: &[u8],
    now: Time,
) -> Result<(), Box<dyn Error>> {
    match event {
        Event::Joined { peer } => {
            println!("joined as {peer}");
            // A payload that needs many datagrams.
            let long = "the quick brown fox ".repeat(500);
            endpoint.send(PeerId::HOST, long.as_bytes(), DeliveryMode::Reliable, now)?;
        }
        Event::Received { .. } => {
            println!("{} bytes came back", payload.len());
            endpoint.leave(now);
        }
        Event::Left { peer, reason } => println!("{peer} left: {reason}"),
        _ => {}
    }
    Ok(())
}
