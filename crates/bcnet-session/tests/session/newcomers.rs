//! New players can join during attacks on admission (S-13).

use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddrV4};

use bcnet_session::{Config, Network};
use bcnet_transport::wire::{Ack, Body, Control, Datagram, Message, PeerId, Role, Writer};
use bcnet_transport::{Time, cipher};

use crate::admission::{SECOND, connect_request, forged_address, network_address, strict_config};
use crate::world::TestWorld;

/// Returns how many of a hundred new players enter the game within ten seconds each, during an attack.
///
/// Each comes from another network. `attack` is called 200 times per second.
fn count_admitted_during(world: &mut TestWorld, mut attack: impl FnMut(&mut TestWorld, u32)) -> usize {
    let (mut step, mut arrived) = (0, 0);
    let mut tick = |world: &mut TestWorld| {
        attack(world, step);
        step += 1;
        world.sent_elsewhere.clear();
        world.sent.clear();
        world.tick();
        world.events.truncate(world.events.len().min(100_000));
    };
    for _ in 0..600 {
        tick(world);
    }
    for n in 0..100_u8 {
        let client = world.connect(&format!("New player {n}"), "");
        world.clients[client].address = SocketAddrV4::new(Ipv4Addr::new(81, n, 7, 1), 22101);
        let deadline = world.now + 10 * SECOND;
        while !world.is_in_game(client) && world.now < deadline {
            tick(world);
        }
        arrived += usize::from(world.is_in_game(client));
        world.leave(client);
        (0..20).for_each(|_| tick(world));
    }
    arrived
}

/// S-13: repeated spoofed requests of 40 networks, 100 per second.
#[test]
fn repeated_forged_requests_do_not_block_newcomers() {
    let mut world = TestWorld::new(Config::default());
    let arrived = count_admitted_during(&mut world, |world, step| {
        if step % 2 == 0 {
            world.inject(forged_address(0x0B00_0001 + ((step % 40) << 8)), &connect_request(step / 40));
        }
    });
    assert!(arrived >= 95, "{arrived}");
}

/// S-13: 5,000 spoofed requests per second, of all networks.
#[test]
fn forged_requests_of_all_networks_do_not_block_newcomers() {
    for config in [Config::default(), strict_config()] {
        let mut world = TestWorld::new(config);
        let arrived = count_admitted_during(&mut world, |world, step| {
            for n in 0..25 {
                world.inject(network_address(step * 25 + n), &connect_request(step));
            }
        });
        assert!(arrived >= 95, "{arrived}");
    }
}

/// S-13: one machine joins and leaves as fast as it can.
#[test]
fn rapid_join_and_leave_does_not_block_newcomers() {
    let mut world = TestWorld::new(Config::default());
    let attacker = world.connect("Revolving", "");
    world.clients[attacker].address = forged_address(0x0B00_0001);
    let arrived = count_admitted_during(&mut world, |world, step| {
        if world.id(attacker) != PeerId::UNASSIGNED {
            world.leave(attacker);
        }
        if step % 40 == 39 {
            world.reconnect(attacker);
            let port = 1024 + u16::try_from(step / 40 % 60_000).expect("a port");
            world.clients[attacker].address = SocketAddrV4::new(Ipv4Addr::from(0x0B00_0001), port);
        }
    });
    assert!(arrived >= 95, "{arrived}");
    let joins = world.event_names().iter().filter(|name| **name == "joining").count() - 100;
    let most = 16 + usize::try_from(world.now.since(Time::ZERO).as_secs()).expect("a small number") / 5 + 1;
    assert!(joins <= most, "{joins} joins of one address, at most {most} are allowed");
}

/// S-13: many sockets of one address, and of one network, join and stay.
#[test]
fn sockets_of_one_network_do_not_block_newcomers() {
    let socket = |n: u16| SocketAddrV4::new(Ipv4Addr::new(11, 0, 0, 1), 1000 + n);
    let machine = |n: u16| SocketAddrV4::new(Ipv4Addr::new(11, 0, n.to_le_bytes()[0], 1), 22101);
    for address in [socket, machine] {
        let mut world = TestWorld::new(Config::default());
        for n in 0..16 {
            let at = world.connect(&format!("Idle {n}"), "");
            world.clients[at].address = address(n);
        }
        let arrived = count_admitted_during(&mut world, |_, _| {});
        assert!(arrived >= 95, "{arrived}");
        let of_one = Network::containing(Ipv4Addr::new(11, 0, 0, 0), 16);
        let admitted = world.session.players().filter(|player| of_one.contains(*player.address.ip())).count();
        assert_eq!(admitted, 6, "three quarters of eight");
    }
}

/// An attacker at many addresses that acknowledges the replies, but sends no messages.
struct IdHolder {
    /// True if it also acknowledges what follows the reply.
    keeps_acknowledging: bool,
    ids: HashMap<SocketAddrV4, PeerId>,
}

impl IdHolder {
    fn acknowledge_replies(&mut self, world: &mut TestWorld) {
        for (to, mut bytes) in std::mem::take(&mut world.sent_elsewhere) {
            cipher::decrypt(&mut bytes);
            let datagram = Datagram::parse(&bytes, Some(Role::Host)).expect("well formed");
            let given = datagram.messages().find_map(|message| match message {
                Message::Control(Control { body: Body::ConnectReply { assigned }, .. }) => Some(assigned),
                Message::Control(_) | Message::Ack(_) | Message::Keepalive | Message::Data(_) => None,
            });
            self.ids.extend(given.map(|id| (to, id)));
            let Some(id) = given.or_else(|| self.ids.get(&to).copied().filter(|_| self.keeps_acknowledging))
            else {
                continue;
            };
            let mut buffer = [0; 512];
            let mut writer = Writer::new(&mut buffer, id);
            let is_written = datagram
                .messages()
                .filter_map(|message| message.id())
                .all(|message| writer.push(&Message::Ack(Ack::new(message))));
            if let Some(reply) = writer.finish().filter(|_| is_written) {
                cipher::encrypt(reply);
                let reply = reply.to_vec();
                world.inject(to, &reply);
            }
        }
    }
}

/// S-13, T-76: 200 addresses per second of one machine or network acknowledge the replies and send nothing else.
///
/// The test runs with and without another attack at the same time.
#[test]
fn verified_idle_peers_do_not_block_newcomers() {
    let socket = |n: u32| SocketAddrV4::new(Ipv4Addr::new(11, 0, 0, 1), (1024 + n % 60_000) as u16);
    let machine = |n: u32| forged_address(0x0B00_0000 + n % 0x1_0000);
    let addresses: [fn(u32) -> SocketAddrV4; 2] = [socket, machine];
    for (address, keeps_acknowledging) in
        addresses.into_iter().flat_map(|address| [(address, false), (address, true)])
    {
        for (config, forgers) in [(Config::default(), 0), (Config::default(), 1), (strict_config(), 1)] {
            let mut world = TestWorld::new(config);
            let mut holder = IdHolder { keeps_acknowledging, ids: HashMap::new() };
            let arrived = count_admitted_during(&mut world, |world, step| {
                holder.acknowledge_replies(world);
                world.inject(address(step), &connect_request(step));
                for n in 0..forgers {
                    world.inject(network_address(step * forgers + n), &connect_request(step));
                }
            });
            assert!(arrived >= 95, "{arrived} arrived; {keeps_acknowledging}, {forgers}");
        }
    }
}
