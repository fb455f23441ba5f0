//! The uplink: six players that flood within their limits, and two that play (S-46).

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::Duration;

use bcnet_lab::Faults;
use bcnet_session::Config;
use bcnet_transport::Time;

use crate::world::TestWorld;

const SECOND: Duration = Duration::from_secs(1);
/// The default for eight players, in bytes per second.
const UPLINK: usize = 8 * 7 * 4400;
const FLOODERS: usize = 6;
const HONEST: [usize; 2] = [6, 7];
/// The bytes of IP and UDP headers.
const HEADERS: usize = 28;

/// What each of six players sends per second: reliable messages of a length, and state updates of 390 bytes.
#[derive(Debug, Clone, Copy)]
struct FloodMix {
    reliable: u32,
    len: usize,
    states: u32,
}

/// The result of ten seconds.
#[derive(Debug)]
struct UplinkResult {
    /// The most bytes that the session sent in one second, with all headers.
    most_in_a_second: usize,
    per_second: usize,
    /// The delays of the reliable messages of an honest player, and of its chat, in ascending order.
    delays: Vec<Duration>,
    /// The parts of a hundred state updates of an honest player that arrived.
    states_arrived: usize,
}

fn state_update(slot: usize, number: u32, len: usize) -> Vec<u8> {
    let object = 0x3FFF_FFFF + 0x0004_0000 * u32::try_from(slot).expect("a slot");
    let head = [&[0x1C][..], &object.to_le_bytes(), &number.to_le_bytes(), &[0x20]].concat();
    [head, vec![0; len]].concat()
}

fn chat(peer: u8, number: u32) -> Vec<u8> {
    let text = format!("line {number:05}");
    let len = u8::try_from(text.len()).expect("a small number");
    [&[0x2C, peer, 0, 0, 0, len, 0][..], text.as_bytes()].concat()
}

/// Returns how often something happens in a tick of 5 ms.
fn times_in(step: u32, per_second: u32) -> u32 {
    (step + 1) * per_second / 200 - step * per_second / 200
}

fn run(mix: FloodMix, one_address: bool, loss: f64) -> UplinkResult {
    let faults = Faults { delay: Duration::from_millis(20), loss, ..Faults::default() };
    let mut world = TestWorld::with_faults(Config::default(), faults, 7);
    for n in 0..8 {
        let at = world.connect(&format!("Player {n}"), "");
        if one_address && n < FLOODERS {
            let port = 22101 + u16::try_from(n).expect("a small number");
            world.clients[at].address = SocketAddrV4::new(Ipv4Addr::new(91, 9, 9, 9), port);
        }
        world.run(2 * SECOND);
        assert!(world.is_in_game(at), "player {n} joined");
    }
    world.sent.clear();
    (0..8).for_each(|at| drop(world.take_received(at)));
    let [honest, other] = HONEST;
    let id = world.id(honest).0;
    let mut sent_at: BTreeMap<Vec<u8>, Time> = BTreeMap::new();
    let (mut states, mut bytes_of_step) = (0, Vec::new());
    for step in 0..2000_u32 {
        for at in 0..FLOODERS {
            for _ in 0..times_in(step, mix.reliable) {
                world.send(at, &vec![0xCD; mix.len]);
            }
            for _ in 0..times_in(step, mix.states) {
                world.send_unreliable(at, &state_update(at, step, 380));
            }
        }
        for at in HONEST {
            if step % 20 == 0 {
                world.send_unreliable(at, &state_update(at, step, 40));
                states += u32::from(at == honest);
            }
        }
        if step % 20 == 10 {
            let line = if step % 200 == 10 {
                chat(id, step)
            } else {
                [&[0xCE; 40][..], &step.to_le_bytes()].concat()
            };
            world.send(honest, &line);
            sent_at.insert(line, world.now);
        }
        world.tick();
        bytes_of_step.push(world.sent.drain(..).map(|(_, _, datagram)| datagram.len() + HEADERS).sum());
        for client in &mut world.clients[..FLOODERS] {
            client.received.clear();
        }
    }
    world.run(2 * SECOND);
    let own = state_update(honest, 0, 0)[1..5].to_vec();
    let received = &world.clients[other].received;
    let is_state = |payload: &[u8]| payload.first() == Some(&0x1C) && payload.get(1..5) == Some(&own[..]);
    let arrived = received.iter().filter(|(_, payload)| is_state(payload)).count();
    let mut delays: Vec<Duration> =
        received.iter().filter_map(|(at, payload)| Some(at.since(sent_at.remove(payload)?))).collect();
    assert!(sent_at.is_empty(), "{} reliable messages are missing", sent_at.len());
    delays.sort();
    let bytes: &[usize] = &bytes_of_step;
    UplinkResult {
        most_in_a_second: bytes.windows(200).map(|second| second.iter().sum()).max().expect("a second"),
        per_second: bytes.iter().sum::<usize>() / 10,
        delays,
        states_arrived: arrived * 100 / states as usize,
    }
}

const MIXES: [FloodMix; 6] = [
    FloodMix { reliable: 1985, len: 1, states: 0 },
    FloodMix { reliable: 500, len: 100, states: 0 },
    FloodMix { reliable: 60, len: 1000, states: 0 },
    FloodMix { reliable: 16, len: 4000, states: 0 },
    FloodMix { reliable: 0, len: 0, states: 100 },
    FloodMix { reliable: 400, len: 100, states: 19 },
];

/// S-46: the session stays within its uplink, and two players hardly notice the flood of six others.
#[test]
fn six_flooding_players_stay_within_the_uplink() {
    for mix in MIXES {
        for (one_address, loss) in [(false, 0.0), (true, 0.0), (false, 0.02)] {
            let result = run(mix, one_address, loss);
            let p99 = result.delays[result.delays.len() * 99 / 100 - 1];
            let context = format!("{mix:?}, one address: {one_address}, loss: {loss}, {result:?}");
            assert!(result.per_second <= UPLINK, "{context}");
            assert!(result.most_in_a_second <= UPLINK * 11 / 10, "{context}");
            assert!(p99 <= Duration::from_millis(250), "{p99:?}: {context}");
            assert!(result.states_arrived >= 90, "{context}");
        }
    }
}
