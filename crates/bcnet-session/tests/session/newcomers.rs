//! S-13: newcomers join while others ask, come and go, or hold ids.

use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddrV4};

use bcnet_session::{Config, Network};
use bcnet_transport::wire::{Ack, Body, Control, Datagram, Message, PeerId, Role, Writer};
use bcnet_transport::{Time, cipher};

use crate::admission::{SECOND, connect_request, forged_address, network_address, strict_config};
use crate::world::TestWorld;

/// How many of a hundred newcomers, each from another network, are in the game within ten seconds while `attack` is called
/// 200 times a second.
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
        let newcomer = world.connect(&format!("Newcomer {n}"), "");
        world.clients[newcomer].address = SocketAddrV4::new(Ipv4Addr::new(81, n, 7, 1), 22101);
        let deadline = world.now + 10 * SECOND;
        while !world.is_in_game(newcomer) && world.now < deadline {
            tick(world);
        }
        arrived += usize::from(world.is_in_game(newcomer));
        world.leave(newcomer);
        (0..20).for_each(|_| tick(world));
    }
    arrived
}

/// S-13: forged requests of 40 networks that repeat, 100 a second.
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

/// S-13: 5,000 forged requests a second, of all networks.
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
    let most = 16 + usize::try_from(world.now.since(Time::ZERO).as_secs()).expect("short") / 5 + 1;
    assert!(joins <= most, "{joins} joins of one address where a person could have {most}");
}

/// S-13: many sockets of one address, and of one network, join and stay.
#[test]
fn sockets_of_one_network_do_not_block_newcomers() {
    let socket = |n: u16| SocketAddrV4::new(Ipv4Addr::new(11, 0, 0, 1), 1000 + n);
    let machine = |n: u16| SocketAddrV4::new(Ipv4Addr::new(11, 0, n.to_le_bytes()[0], 1), 22101);
    for address in [socket, machine] {
        let mut world = TestWorld::new(Config::default());
        for n in 0..16 {
            let at = world.connect(&format!("Sitting {n}"), "");
            world.clients[at].address = address(n);
        }
        let arrived = count_admitted_during(&mut world, |_, _| {});
        assert!(arrived >= 95, "{arrived}");
        let of_one = Network::containing(Ipv4Addr::new(11, 0, 0, 0), 16);
        let sitting = world.session.players().filter(|player| of_one.contains(*player.address.ip())).count();
        assert_eq!(sitting, 6, "three quarters of eight");
    }
}

/// Somebody who hears at many addresses what they are answered, and acknowledges it, but never says a word.
struct IdHolder {
    /// Whether it acknowledges what follows the answer, too.
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

/// S-13, T-76: 200 addresses a second of one machine, or of one network, acknowledge what they are answered and say nothing,
/// whether an attack is seen or not.
#[test]
fn verified_idle_peers_do_not_block_newcomers() {
    let socket = |n: u32| SocketAddrV4::new(Ipv4Addr::new(11, 0, 0, 1), (1024 + n % 60_000) as u16);
    let machine = |n: u32| forged_address(0x0B00_0000 + n % 0x1_0000);
    let addresses: [fn(u32) -> SocketAddrV4; 2] = [socket, machine];
    for (place, goes_on) in addresses.into_iter().flat_map(|place| [(place, false), (place, true)]) {
        for (config, forgers) in [(Config::default(), 0), (Config::default(), 1), (strict_config(), 1)] {
            let mut world = TestWorld::new(config);
            let mut holder = IdHolder { keeps_acknowledging: goes_on, ids: HashMap::new() };
            let arrived = count_admitted_during(&mut world, |world, step| {
                holder.acknowledge_replies(world);
                world.inject(place(step), &connect_request(step));
                for n in 0..forgers {
                    world.inject(network_address(step * forgers + n), &connect_request(step));
                }
            });
            assert!(arrived >= 95, "{arrived} in; {goes_on}, {forgers}");
        }
    }
}
