//! The original engine, as the laboratory models it, as client of a session.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::Duration;

use bcnet_lab::stock::{Params, Stock};
use bcnet_lab::{Faults, Link};
use bcnet_session::{Config, Session};
use bcnet_transport::wire::{PeerId, Text};
use bcnet_transport::{Event, Quality, Time};

use crate::world::{HOST, reply};

const SECOND: Duration = Duration::from_secs(1);
/// A stock client has 60 frames a second.
const FRAME: Duration = Duration::from_micros(16_667);

struct Player {
    engine: Stock,
    address: SocketAddrV4,
    received: Vec<Vec<u8>>,
    identities: usize,
    gone: Vec<PeerId>,
    links: [Link; 2],
}

/// A session and players on the way to it.
struct Arena {
    now: Time,
    session: Session,
    players: Vec<Player>,
    flying: Vec<(Time, SocketAddrV4, SocketAddrV4, Vec<u8>)>,
}

impl Arena {
    fn new(players: u8, faults: &Faults, seed: u64) -> Self {
        let now = Time::ZERO;
        let player = |n: u8| {
            let address = SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, n + 1), 22101);
            let seed = seed + 2 * u64::from(n);
            let nonce = 0x0A5F + u32::from(n);
            Player {
                engine: Stock::connect(Params::default(), HOST, *address.ip(), nonce, &[], now),
                address,
                received: Vec::new(),
                identities: 0,
                gone: Vec::new(),
                links: [Link::new(faults.clone(), seed), Link::new(faults.clone(), seed + 1)],
            }
        };
        let players = (0..players).map(player).collect();
        Self { now, session: Session::new(Config::default(), seed), players, flying: Vec::new() }
    }

    fn run(&mut self, duration: Duration) {
        let end = self.now + duration;
        while self.now < end {
            self.frame();
        }
    }

    fn frame(&mut self) {
        self.now = self.now + FRAME;
        let now = self.now;
        let (mut due, flying): (Vec<_>, Vec<_>) = self.flying.drain(..).partition(|(at, ..)| *at <= now);
        self.flying = flying;
        due.sort_by_key(|(at, ..)| *at);
        for (_, from, to, mut bytes) in due {
            if to == HOST {
                self.session.handle_datagram(from, &mut bytes, now);
            } else if let Some(player) = self.players.iter_mut().find(|player| player.address == to) {
                player.engine.handle_datagram(from, &bytes, now);
            }
        }
        self.session.handle_timeout(now);
        let mut buffer = [0; 2048];
        while let Some(transmit) = self.session.poll_transmit(&mut buffer, now) {
            let bytes = &buffer[..transmit.len];
            let player =
                self.players.iter_mut().find(|player| player.address == transmit.to).expect("a player");
            fly(&mut self.flying, &mut player.links[0], (HOST, transmit.to), bytes, now);
        }
        for player in &mut self.players {
            player.engine.service(now);
            assert_eq!(player.engine.crash(), None, "a stock client crashed");
            player.hear(now);
            while let Some(transmit) = player.engine.poll_transmit(&mut buffer) {
                let way = (player.address, transmit.to);
                fly(&mut self.flying, &mut player.links[1], way, &buffer[..transmit.len], now);
            }
        }
    }

    fn in_game(&self) -> usize {
        self.session.status(self.now).in_game
    }

    /// Whether nothing waits for an ACK, at either side.
    fn is_settled(&self) -> bool {
        let settled = |player: &Player| {
            let client = player.engine.lengths(PeerId::HOST).expect("the host");
            let host = self.session.snapshot(player.engine.id(), self.now).expect("a player");
            client.retx + client.first == 0 && host.unacknowledged.is_empty() && host.fresh == 0
        };
        self.players.iter().all(settled)
    }
}

fn fly(
    flying: &mut Vec<(Time, SocketAddrV4, SocketAddrV4, Vec<u8>)>,
    link: &mut Link,
    (from, to): (SocketAddrV4, SocketAddrV4),
    bytes: &[u8],
    now: Time,
) {
    for passage in link.pass(bytes.len(), now).into_iter().flatten() {
        flying.push((passage.at, from, to, bytes.to_vec()));
    }
}

impl Player {
    fn hear(&mut self, now: Time) {
        let mut payload = Vec::new();
        while let Some(event) = self.engine.poll_event(&mut payload) {
            let answer = match (event, payload.as_slice()) {
                (Event::Joined { .. }, _) => {
                    self.engine.identify(&Text::encode("Cady2").expect("no NUL"), now);
                    continue;
                }
                (Event::Identity { .. }, _) => {
                    self.identities += 1;
                    continue;
                }
                (Event::Left { peer, .. }, _) => {
                    self.gone.push(peer);
                    continue;
                }
                (Event::Received { .. }, [0x20, 0xFF, ..]) => reply(4),
                (Event::Received { .. }, [0x20, round, ..]) => reply((*round).into()),
                (Event::Received { .. }, [0x01]) => vec![0x2A, 0x20],
                (Event::Received { .. }, _) => {
                    self.received.push(payload.clone());
                    continue;
                }
                _ => continue,
            };
            self.engine.send(PeerId::HOST, &answer, Quality::Reliable, now).expect("room");
        }
    }
}

fn numbered(player: usize, number: u16) -> Vec<u8> {
    let [low, high] = number.to_le_bytes();
    let player = u8::try_from(player).expect("few");
    [&[0xCD, player, low, high][..], &[0x77; 21]].concat()
}

/// Everyone says 600 things; everyone hears all of the others, once and in order.
fn talk(arena: &mut Arena) {
    for number in 0..600 {
        for (at, player) in arena.players.iter_mut().enumerate() {
            let payload = numbered(at, number);
            player.engine.send(PeerId::HOST, &payload, Quality::Reliable, arena.now).expect("room");
        }
        arena.run(3 * FRAME);
    }
    arena.run(60 * SECOND);
    for (at, player) in arena.players.iter().enumerate() {
        for other in (0..arena.players.len()).filter(|other| *other != at) {
            let heard =
                player.received.iter().filter(|payload| payload.starts_with(&numbered(other, 0)[..2]));
            let expected: Vec<Vec<u8>> = (0..600).map(|number| numbered(other, number)).collect();
            assert!(heard.eq(expected.iter()), "{at} did not hear all of {other} in order");
        }
    }
    assert!(arena.is_settled());
    assert_eq!(arena.session.counters().anomalies.total(), 0);
}

/// S-20, S-31, S-33: the answer about ships has three parts.
#[test]
fn stock_clients_join_and_talk() {
    let faults = Faults { delay: Duration::from_millis(30), ..Faults::default() };
    let mut arena = Arena::new(3, &faults, 1);
    arena.run(3 * SECOND);
    assert_eq!(arena.in_game(), 3);
    assert!(arena.players.iter().all(|player| player.identities >= 3));
    talk(&mut arena);
}

/// S-21, S-33: parts and messages that overtake each other, come twice or not at all.
#[test]
fn stock_clients_join_and_talk_on_a_bad_network() {
    for seed in [100, 200, 300] {
        let faults = Faults {
            loss: 0.1,
            duplicate: 0.2,
            reorder: 0.3,
            reorder_by: Duration::from_millis(60),
            delay: Duration::from_millis(30),
            ..Faults::default()
        };
        let mut arena = Arena::new(2, &faults, seed);
        arena.run(30 * SECOND);
        assert_eq!(arena.in_game(), 2, "seed {seed}");
        talk(&mut arena);
    }
}

/// S-50, S-53
#[test]
fn stock_clients_hear_who_leaves_and_that_the_server_ends() {
    let faults = Faults { delay: Duration::from_millis(30), ..Faults::default() };
    let mut arena = Arena::new(3, &faults, 7);
    arena.run(3 * SECOND);
    let leaver = arena.players[0].engine.id();
    arena.players[0].engine.leave(arena.now);
    arena.run(3 * SECOND);
    assert_eq!(arena.in_game(), 2);
    assert!(arena.players[1].gone.contains(&leaver));
    let gone = [&[0x18, 5, 0][..], b"Cady2"].concat();
    assert_eq!(arena.players[2].received.last(), Some(&gone));
    arena.session.shutdown(arena.now);
    arena.run(30 * SECOND);
    assert!(arena.session.is_closed());
    assert!(arena.players.iter().all(|player| player.engine.is_closed()));
}
