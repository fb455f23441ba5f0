//! A game with chat and positions: a host that relays, and players who fly in circles for five seconds.
//!
//! Start `cargo run -p bcnet-udp --example game -- host 127.0.0.1:22101`, then players in other terminals:
//! `cargo run -p bcnet-udp --example game -- join 127.0.0.1:22101 hello`.

use std::{collections::BTreeMap, env, error::Error, net::SocketAddrV4, process, thread, time::Duration};

use bcnet_transport::{Config, Connect, DeliveryMode, Endpoint, Engine, Event, wire::PeerId};
use bcnet_udp::Driver;

type Outcome<T> = Result<T, Box<dyn Error>>;

fn main() -> Outcome<()> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    match &arguments[..] {
        [role, address] if role == "host" => host(Driver::bind(address.parse()?)?),
        [role, address, greeting] if role == "join" => {
            play(address.parse()?, greeting, |game| game.ticks == 300).map(drop)
        }
        _ => Err("usage: game host ADDRESS:PORT | game join ADDRESS:PORT GREETING".into()),
    }
}

/// Relays every payload to the other players, behind its sender's id.
pub(crate) fn host(mut driver: Driver) -> Outcome<()> {
    let (mut endpoint, mut payload) = (Endpoint::host(Config::default()), Vec::new());
    loop {
        let now = driver.receive(&mut endpoint)?;
        while let Some(event) = endpoint.poll_event(&mut payload) {
            match event {
                Event::Request { from, .. } => drop(endpoint.challenge(from, now)),
                Event::Received { peer, reliable } => {
                    payload.insert(0, peer.0);
                    let mode = if reliable { DeliveryMode::Reliable } else { DeliveryMode::Unreliable };
                    for other in endpoint.peers().filter(|other| *other != peer).collect::<Vec<_>>() {
                        // An error means that this player is leaving.
                        let _ = endpoint.send(other, &payload, mode, now);
                    }
                }
                _ => {}
            }
        }
        driver.send(&mut endpoint);
        driver.wait(&endpoint, Duration::from_secs(1))?;
    }
}

/// The others in a player's view, by id.
#[derive(Default)]
pub(crate) struct Game {
    pub(crate) positions: BTreeMap<u8, [f32; 2]>,
    pub(crate) chat: BTreeMap<u8, String>,
    pub(crate) ticks: u32,
}

/// Joins a host. Sends a greeting each second and a position each tick, until `is_over`.
pub(crate) fn play(host: SocketAddrV4, greeting: &str, is_over: fn(&Game) -> bool) -> Outcome<Game> {
    let mut driver = Driver::bind("0.0.0.0:0".parse()?)?;
    // A real game uses a random nonce.
    let connect = Connect { host, nonce: process::id(), password: "" };
    let mut endpoint = Endpoint::connect(Config::default(), connect, driver.now());
    let (mut payload, mut game) = (Vec::new(), Game::default());
    while !endpoint.is_closed() {
        let now = driver.receive(&mut endpoint)?;
        while let Some(event) = endpoint.poll_event(&mut payload) {
            if let (Event::Received { reliable, .. }, [from, data @ ..]) = (event, &payload[..]) {
                if reliable {
                    let (place, text) = (game.positions.get(from), String::from_utf8_lossy(data));
                    println!("player {from} at {place:.1?}: {text}");
                    game.chat.insert(*from, text.into());
                } else if let ([x, y], []) = data.as_chunks() {
                    game.positions.insert(*from, [f32::from_le_bytes(*x), f32::from_le_bytes(*y)]);
                }
            }
        }
        let (y, x) = (game.ticks as f32 / 60.0).sin_cos();
        let place = [x.to_le_bytes(), y.to_le_bytes()].concat();
        // An error means that this player has not joined yet, or is leaving.
        if endpoint.send(PeerId::HOST, &place, DeliveryMode::Unreliable, now).is_ok() {
            if game.ticks.is_multiple_of(60) {
                endpoint.send(PeerId::HOST, greeting.as_bytes(), DeliveryMode::Reliable, now)?;
            }
            game.ticks += 1;
        }
        is_over(&game).then(|| endpoint.leave(now));
        driver.send(&mut endpoint);
        thread::sleep(Duration::from_millis(16));
    }
    Ok(game)
}
