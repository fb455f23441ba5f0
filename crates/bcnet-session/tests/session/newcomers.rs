//! S-13: newcomers join while others ask, come and go, or hold ids.

use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddrV4};

use bcnet_session::{Config, Network};
use bcnet_transport::wire::{Ack, Body, Control, Datagram, Message, PeerId, Role, Writer};
use bcnet_transport::{Time, cipher};

use crate::admission::{SECOND, connect, forged, network, strict};
use crate::world::World;

/// How many of a hundred newcomers, each from another network, are in the game within ten seconds while `attack` is called
/// 200 times a second.
fn newcomers_during(world: &mut World, mut attack: impl FnMut(&mut World, u32)) -> usize {
    let (mut step, mut arrived) = (0, 0);
    let mut tick = |world: &mut World| {
        attack(world, step);
        step += 1;
        world.elsewhere.clear();
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
fn repeating_networks_keep_nobody_out() {
    let mut world = World::new(Config::default());
    let arrived = newcomers_during(&mut world, |world, step| {
        if step % 2 == 0 {
            world.inject(forged(0x0B00_0001 + ((step % 40) << 8)), &connect(step / 40));
        }
    });
    assert!(arrived >= 95, "{arrived}");
}

/// S-13: 5,000 forged requests a second, of all networks.
#[test]
fn requests_of_all_networks_keep_nobody_out() {
    for config in [Config::default(), strict()] {
        let mut world = World::new(config);
        let arrived = newcomers_during(&mut world, |world, step| {
            for n in 0..25 {
                world.inject(network(step * 25 + n), &connect(step));
            }
        });
        assert!(arrived >= 95, "{arrived}");
    }
}

/// S-13: one machine joins and leaves as fast as it can.
#[test]
fn joining_and_leaving_keeps_nobody_out() {
    let mut world = World::new(Config::default());
    let attacker = world.connect("Revolving", "");
    world.clients[attacker].address = forged(0x0B00_0001);
    let arrived = newcomers_during(&mut world, |world, step| {
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
fn many_sockets_of_one_address_or_network_keep_nobody_out() {
    let socket = |n: u16| SocketAddrV4::new(Ipv4Addr::new(11, 0, 0, 1), 1000 + n);
    let machine = |n: u16| SocketAddrV4::new(Ipv4Addr::new(11, 0, n.to_le_bytes()[0], 1), 22101);
    for address in [socket, machine] {
        let mut world = World::new(Config::default());
        for n in 0..16 {
            let at = world.connect(&format!("Sitting {n}"), "");
            world.clients[at].address = address(n);
        }
        let arrived = newcomers_during(&mut world, |_, _| {});
        assert!(arrived >= 95, "{arrived}");
        let of_one = Network::around(Ipv4Addr::new(11, 0, 0, 0), 16);
        let sitting = world.session.players().filter(|player| of_one.contains(*player.address.ip())).count();
        assert_eq!(sitting, 6, "three quarters of eight");
    }
}

/// Somebody who hears at many addresses what they are answered, and acknowledges it, but never says a word.
struct Holder {
    /// Whether it acknowledges what follows the answer, too.
    goes_on: bool,
    ids: HashMap<SocketAddrV4, PeerId>,
}

impl Holder {
    fn hear(&mut self, world: &mut World) {
        for (to, mut bytes) in std::mem::take(&mut world.elsewhere) {
            cipher::decrypt(&mut bytes);
            let heard = Datagram::parse(&bytes, Some(Role::Host)).expect("well formed");
            let given = heard.messages().find_map(|message| match message {
                Message::Control(Control { body: Body::ConnectReply { assigned }, .. }) => Some(assigned),
                Message::Control(_) | Message::Ack(_) | Message::Keepalive | Message::Data(_) => None,
            });
            self.ids.extend(given.map(|id| (to, id)));
            let Some(id) = given.or_else(|| self.ids.get(&to).copied().filter(|_| self.goes_on)) else {
                continue;
            };
            let mut buffer = [0; 512];
            let mut writer = Writer::new(&mut buffer, id);
            let is_written = heard
                .messages()
                .filter_map(|message| message.id())
                .all(|message| writer.push(&Message::Ack(Ack::new(message))));
            if let Some(said) = writer.finish().filter(|_| is_written) {
                cipher::encrypt(said);
                let said = said.to_vec();
                world.inject(to, &said);
            }
        }
    }
}

/// S-13, T-76: 200 addresses a second of one machine, or of one network, acknowledge what they are answered and say nothing,
/// whether an attack is seen or not.
#[test]
fn who_proves_itself_and_says_nothing_keeps_nobody_out() {
    let socket = |n: u32| SocketAddrV4::new(Ipv4Addr::new(11, 0, 0, 1), (1024 + n % 60_000) as u16);
    let machine = |n: u32| forged(0x0B00_0000 + n % 0x1_0000);
    let places: [fn(u32) -> SocketAddrV4; 2] = [socket, machine];
    for (place, goes_on) in places.into_iter().flat_map(|place| [(place, false), (place, true)]) {
        for (config, forgers) in [(Config::default(), 0), (Config::default(), 1), (strict(), 1)] {
            let mut world = World::new(config);
            let mut holder = Holder { goes_on, ids: HashMap::new() };
            let arrived = newcomers_during(&mut world, |world, step| {
                holder.hear(world);
                world.inject(place(step), &connect(step));
                for n in 0..forgers {
                    world.inject(network(step * forgers + n), &connect(step));
                }
            });
            assert!(arrived >= 95, "{arrived} in; {goes_on}, {forgers}");
        }
    }
}
