//! T-57, T-60: forged disconnects and ACKs harm no live peer, and real departures are seen.
//!
//! Every test runs in virtual time. A failure names the seed.

mod network;

use std::time::Duration;

use bcnet_transport::wire::{Body, Channel, Control, Message, PeerId, Seq, Text};
use bcnet_transport::{LeaveReason, RejectCause};

use network::{Network, Program, ack, disconnect};

/// Forges datagrams; the number is that of the millisecond.
type Attack = fn(&mut Network, u32);

const BOTH: [Program; 2] = [Program::Stock, Program::Bcnet];

/// T-57: 60 s of forged disconnects remove no player, and lose no message.
///
/// The forger knows the address of every player. It uses every id with the likely numbers, and the right id
/// with all numbers, reliable and unreliable. Half of the players are idle.
#[test]
fn forged_disconnects_remove_no_player() {
    for (seed, loss) in [(1, 0.0), (2, 0.05), (3, 0.2)] {
        let mut net = Network::new(seed, Duration::from_millis(25), loss);
        net.join_all((0..100).map(|index| BOTH[index % 2]));
        let players: Vec<_> = net.clients.iter().map(|client| (client.address, client.id)).collect();
        let mut sent = 0;
        for step in 0..60_000_u32 {
            if step.is_multiple_of(200) {
                for (index, id) in players.iter().map(|(_, id)| id.expect("joined")).enumerate() {
                    if index / 2 % 2 == 0 {
                        net.send(id, sent);
                        net.send_from(index, sent);
                    }
                }
                sent += 1;
            }
            // Each player gets a datagram in 25 ms: in turn with all numbers, or with the likely ones.
            for (address, id) in players.iter().skip(step as usize % 25).step_by(25) {
                let id = id.expect("joined").0;
                let round = step / 25;
                let first = u16::try_from(round * 32 % 0x1_0000).unwrap_or(0);
                let messages: Vec<_> = (0..32).map(|more| disconnect(id, first + more, true)).collect();
                net.forge(*address, id, &messages);
                let other = u8::try_from(2 + round % 124).unwrap_or(2);
                for sender in [other, id] {
                    let likely: Vec<_> = (0..8).map(|seq| disconnect(sender, seq, true)).collect();
                    net.forge(*address, sender, &likely);
                }
                net.forge(*address, id, &[disconnect(id, 2, false)]);
            }
            net.step();
        }
        net.run(Duration::from_secs(20));
        assert_eq!(net.left, [], "seed {seed}");
        let expected: Vec<u32> = (0..sent).collect();
        for (index, client) in net.clients.iter().enumerate().filter(|(index, _)| index / 2 % 2 == 0) {
            assert_eq!(client.received, expected, "seed {seed}, client {index}");
            assert_eq!(net.received[&client.id.expect("joined")], expected, "seed {seed}, client {index}");
        }
        let forged = net.forged(RejectCause::ForgedDisconnect);
        println!("seed {seed}, loss {loss}: {forged} forged disconnects counted, no player lost");
        assert!(forged > 100 * 60, "seed {seed}: {forged}");
    }
}

/// T-57: a real departure is seen within 2.5 s of its disconnect.
///
/// A leaving stock client does not answer the first probe: its departure is seen after 1.5 s and one RTT.
#[test]
fn real_departures_are_seen_soon() {
    for program in BOTH {
        for loss in [0.0, 0.05] {
            let seen = departures(program, loss, 50, |_, _, _| {});
            let limit = if program == Program::Stock && loss == 0.0 { 1750 } else { 2500 };
            assert!(seen <= Duration::from_millis(limit), "{program:?}, loss {loss}: {seen:?}");
        }
    }
}

/// T-57: forged disconnects, names, signs of life and ACKs delay the end of a real departure at most a little.
#[test]
fn forgery_does_not_hide_real_departures() {
    for program in BOTH {
        let seen = departures(program, 0.05, 10, attack_departure);
        assert!(seen <= Duration::from_secs(4), "{program:?}: {seen:?}");
    }
}

/// Lets 20 clients leave for each seed. Returns the longest time from the disconnect to the event at the host.
fn departures(program: Program, loss: f64, seeds: u64, attack: fn(&mut Network, usize, u64)) -> Duration {
    let (mut seen, mut slowest_call) = (Vec::new(), Duration::ZERO);
    for seed in 0..seeds {
        let mut net = Network::new(100 + seed, Duration::from_millis(5 + 2 * seed), loss);
        net.join_all([program; 20]);
        for index in 0..20 {
            let id = net.clients[index].id.expect("joined");
            let pause = net.rng.below(100);
            net.run(Duration::from_millis(pause));
            net.send(id, 1);
            net.send_from(index, 1);
            let called = net.now;
            net.leave(index);
            for step in 0..5000 {
                attack(&mut net, index, step);
                net.step();
                if net.left.iter().any(|(peer, ..)| *peer == id) {
                    break;
                }
            }
            let left = net.left.iter().find(|(peer, ..)| *peer == id);
            let Some((_, LeaveReason::Disconnected, at)) = left else {
                panic!("seed {seed}, client {index} ({program:?}, loss {loss}): {left:?}")
            };
            // Under an attack, the host may see the end before the disconnect arrives.
            let disconnected = net.disconnects.get(&net.clients[index].address);
            seen.push(at.since(*disconnected.unwrap_or(&called)));
            slowest_call = slowest_call.max(at.since(called));
        }
    }
    seen.sort_unstable();
    let [median, slowest] = [seen[seen.len() / 2], seen[seen.len() - 1]];
    println!(
        "{program:?}, loss {loss}: {} departures, seen after {median:?} (median), {slowest:?} (slowest), \
         {slowest_call:?} after the call (slowest)",
        seen.len()
    );
    slowest
}

/// Forges disconnects, a name with the number of the disconnect, signs of life and ACKs.
fn attack_departure(net: &mut Network, index: usize, step: u64) {
    let (address, id) = (net.clients[index].address, net.clients[index].id.expect("joined").0);
    let name = Text::default();
    let identity = Body::Identity { peer: PeerId(id), address: *address.ip(), name };
    let seq = u16::try_from(step % 4).unwrap_or(0);
    net.forge(address, id, &[disconnect(id, seq, true), Message::Keepalive]);
    if step.is_multiple_of(50) {
        net.forge(address, id, &[Message::Control(Control::new(Seq(seq), identity))]);
    }
    let first = u16::try_from(net.rng.below(0x1_0000)).unwrap_or(0);
    let acks: Vec<_> = (0..100).map(|more| ack(Channel::Game, first.wrapping_add(more))).collect();
    net.forge(address, id, &acks);
}

/// T-57, T-77: a client that left properly and comes back joins as soon as its messages permit.
#[test]
fn rejoin_after_a_real_departure_takes_one_round_trip() {
    for program in BOTH {
        for pause in [0, 100, 500, 1000, 1500, 2000, 3000] {
            let mut times = Vec::new();
            for seed in 0..20 {
                let mut net = Network::new(500 + seed, Duration::from_millis(25), 0.0);
                net.join_all([program]);
                net.run(Duration::from_millis(seed));
                net.leave(0);
                while !net.is_closed(0) {
                    net.step();
                }
                net.run(Duration::from_millis(pause));
                let asked = net.now;
                net.restart(0);
                while net.host.peers().count() == 0 || net.left.is_empty() || net.clients[0].id.is_none() {
                    net.step();
                    assert!(net.now < asked + Duration::from_secs(60), "seed {seed}");
                }
                // The host can be heard once the client is its peer.
                while net.host.peers().all(|peer| Some(peer) != net.clients[0].id) {
                    net.step();
                    assert!(net.now < asked + Duration::from_secs(60), "seed {seed}");
                }
                times.push(net.now.since(asked));
            }
            times.sort_unstable();
            println!(
                "{program:?}, back after {pause} ms: joined after {:?} (median), {:?} (slowest)",
                times[10], times[19]
            );
            assert!(times[19] <= Duration::from_millis(125), "{program:?} {pause}: {:?}", times[19]);
        }
    }
}

/// T-60: no message is lost while ACKs are forged for its receiver.
#[test]
fn forged_acks_lose_no_message() {
    let kinds: [(&str, Attack); 3] =
        [("random", random_acks), ("likely", likely_acks), ("sweeping", sweeping_acks)];
    for (name, attack) in kinds {
        for (program, seed) in BOTH.into_iter().flat_map(|program| (0..5).map(move |seed| (program, seed))) {
            let mut net = Network::new(700 + seed, Duration::from_millis(25), 0.05);
            net.join_all([program]);
            let id = net.clients[0].id.expect("joined");
            for step in 0..50_000_u32 {
                if step.is_multiple_of(50) {
                    net.send(id, step / 50);
                }
                attack(&mut net, step);
                net.step();
            }
            net.run(Duration::from_secs(20));
            let expected: Vec<u32> = (0..1000).collect();
            assert_eq!(net.left, [], "{name}, {program:?}, seed {seed}");
            let count = net.clients[0].received.len();
            assert!(
                net.clients[0].received == expected,
                "{name}, {program:?}, seed {seed}: {count} received"
            );
            let forged = net.forged(RejectCause::ForgedAck);
            println!("{name} ACKs, {program:?}, seed {seed}: {forged} forged ACKs counted, no message lost");
            assert!(forged > 0, "{name}, {program:?}, seed {seed}");
        }
    }
}

/// Forges one ACK under a random id with a random number.
fn random_acks(net: &mut Network, _: u32) {
    let [sender, seq, channel] = [124, 0x1_0000, 2].map(|bound| net.rng.below(bound));
    forge_ack(net, 2 + sender, seq, channel);
}

/// Forges one ACK under a random id, with a number that a connection of this age may use.
fn likely_acks(net: &mut Network, _: u32) {
    let [sender, seq] = [124, 1100].map(|bound| net.rng.below(bound));
    forge_ack(net, 2 + sender, seq, 1);
}

/// Forges one datagram under the right id with 100 ACKs around the present number.
fn sweeping_acks(net: &mut Network, step: u32) {
    let (address, id) = (net.clients[0].address, net.clients[0].id.expect("joined").0);
    let present = u16::try_from(step / 50).unwrap_or(0);
    let acks: Vec<_> = (0..100).map(|more| ack(Channel::Game, (present + more).saturating_sub(50))).collect();
    net.forge(address, id, &acks);
}

fn forge_ack(net: &mut Network, sender: u64, seq: u64, channel: u64) {
    let channel = if channel == 0 { Channel::Control } else { Channel::Game };
    let (sender, seq) = (u8::try_from(sender).unwrap_or(2), u16::try_from(seq).unwrap_or(0));
    let address = net.clients[0].address;
    net.forge(address, sender, &[ack(channel, seq)]);
}
