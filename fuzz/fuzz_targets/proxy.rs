//! Players, browsers, strangers and a server send any input through a healing proxy.
//!
//! No input causes a panic, no table exceeds its limit, and each player has a separate source. Text and unreadable datagrams
//! pass unchanged. Changed datagrams are readable and hold only messages that came. An unverified address gets at
//! most three times the bytes it sent, and 1,200 more in ten minutes. The proxy itself sends well-formed fragments
//! and ACKs: at most 2 × 100 copies a second for each player, and 19 of each fragment.
#![no_main]

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, SocketAddrV4};

use bcnet_fuzz::FuzzInput;
use bcnet_observe::MessageBuffer;
use bcnet_proxy::{DatagramTarget, Inbound, MAX_PER_ADDRESS, Proxy, ProxyConfig, ProxyEvent};
use bcnet_session::Network;
use bcnet_transport::wire::{
    Ack, Body, Channel, Control, Datagram, Message, MessageId, PeerId, Role, Seq, Text, Writer,
};
use bcnet_transport::{Time, cipher};
use libfuzzer_sys::fuzz_target;

const SOURCES: u8 = 6;

fuzz_target!(|input: &[u8]| {
    let mut script = FuzzInput::new(input);
    let sources = (1..=SOURCES).map(|n| Ipv4Addr::new(127, 1, 0, n)).collect();
    let config = ProxyConfig {
        heal: true,
        sources,
        rate: u32::from(script.byte() % 2) * 20,
        ..ProxyConfig::default()
    };
    let drop_malformed = config.rate == 0;
    let proxy = Proxy::new(ProxyConfig { drop_malformed, ..config });
    let mut world = ProxyHarness {
        proxy,
        now: Time::ZERO,
        bytes_by_address: BTreeMap::new(),
        verified: BTreeSet::new(),
        cookie: None,
    };
    world.join(player(0));
    while let Some(step) = script.step() {
        match step % 8 {
            0 | 1 => world.pass_from_client(Role::Client, player(script.byte()), script.bytes()),
            2 => {
                let source = u32::from(script.byte() % 16);
                let to = world.proxy.client_address(source).unwrap_or_else(|| player(0));
                world.pass_from_server(source, to, script.bytes());
            }
            3 => world.join(player(script.byte())),
            4 => {
                world.pass_from_client(Role::Client, player(script.byte()), &[b"\\", script.bytes()].concat())
            }
            5 => world.now = world.now + script.time() * u32::from(step / 8 + 1),
            6 => world.change_settings(script.byte()),
            _ => world.assign_id(u32::from(script.byte() % 16), script.byte()),
        }
        world.proxy.handle_timeout(world.now);
        world.poll_transmissions();
        world.check_limits();
    }
});

fn player(byte: u8) -> SocketAddrV4 {
    SocketAddrV4::new(Ipv4Addr::new(10, 0, byte / 32, 2 + byte / 8 % 4), 5000 + u16::from(byte % 8))
}

struct ProxyHarness {
    proxy: Proxy,
    now: Time,
    /// Bytes from and to each address, until it is forgotten.
    bytes_by_address: BTreeMap<Ipv4Addr, (usize, usize)>,
    verified: BTreeSet<Ipv4Addr>,
    /// The cookie in the last datagram of the proxy to a client.
    cookie: Option<Seq>,
}

impl ProxyHarness {
    /// Sends a connect request of a player.
    fn join(&mut self, from: SocketAddrV4) {
        let body = Body::ConnectRequest { address: *from.ip(), nonce: 1, password: Text::default() };
        self.pass_from_client(Role::Client, from, &datagram(PeerId::UNASSIGNED, body));
    }

    /// Lets the server assign an id. The player acknowledges the cookie that follows.
    fn assign_id(&mut self, source: u32, id: u8) {
        let Some(client) = self.proxy.client_address(source) else { return };
        let body = Body::ConnectReply { assigned: PeerId(id) };
        self.cookie = None;
        self.pass_from_server(source, client, &datagram(PeerId::HOST, body));
        if let Some(cookie) = self.cookie {
            let [low, high] = cookie.0.to_le_bytes();
            self.pass_from_client(Role::Client, client, &[id, 1, 1, low, high, 0]);
        }
    }

    fn change_settings(&mut self, what: u8) {
        match what % 4 {
            0 => self.proxy.close_source(u32::from(what / 4 % 16)),
            1 => drop(self.proxy.set_bans(vec![Network::containing(*player(what).ip(), 32)])),
            2 => drop(self.proxy.set_bans(Vec::new())),
            _ => self.proxy.set_list_servers(vec![*player(what).ip()]),
        }
    }

    fn pass_from_client(&mut self, sender: Role, from: SocketAddrV4, plain: &[u8]) {
        self.bytes_by_address.entry(*from.ip()).or_default().0 += plain.len();
        self.pass_through_proxy(sender, from, 0, plain);
    }

    fn pass_from_server(&mut self, source: u32, to: SocketAddrV4, plain: &[u8]) {
        self.pass_through_proxy(Role::Host, to, source, plain);
    }

    fn pass_through_proxy(&mut self, sender: Role, client: SocketAddrV4, source: u32, plain: &[u8]) {
        let mut wire = plain.to_vec();
        if plain.first() != Some(&b'\\') {
            cipher::encrypt(&mut wire);
        }
        let is_player = self.proxy.players().any(|player| player.address == client);
        let mut buffer = MessageBuffer::default();
        let inbound = Inbound { wire: &wire, content: &buffer.read(plain, Some(sender)) };
        let output = match sender {
            Role::Client => self.proxy.handle_client(client, inbound, self.now),
            Role::Host => self.proxy.handle_server(source, inbound, self.now),
        };
        let is_refused = output.refusal.is_some();
        let legs = [output.forward, output.answer].map(|out| out.map(|(leg, bytes)| (leg, bytes.to_wire())));
        for (leg, out) in legs.iter().flatten() {
            match leg {
                // Browsers have separate quotas.
                DatagramTarget::Client(to) if is_player => {
                    self.bytes_by_address.entry(*to.ip()).or_default().1 += out.len()
                }
                DatagramTarget::Client(_) => {}
                DatagramTarget::Server(_) => assert!(sender == Role::Host || !is_refused),
            }
        }
        if let [Some((leg, out)), _] = &legs
            && !is_refused
        {
            assert_eq!(matches!(leg, DatagramTarget::Server(_)), sender == Role::Client);
            self.cookie = cookie_in(out).or(self.cookie);
            assert_subset(out, &wire, sender);
        }
    }

    /// Checks the datagrams that the proxy itself sends.
    fn poll_transmissions(&mut self) {
        let mut copies = 0;
        while let Some((leg, bytes)) = self.proxy.poll_transmit(self.now) {
            let out = bytes.to_wire();
            let sender = match leg {
                DatagramTarget::Client(to) => {
                    assert!(self.proxy.players().any(|player| player.address == to));
                    self.bytes_by_address.entry(*to.ip()).or_default().1 += out.len();
                    Role::Host
                }
                DatagramTarget::Server(source) => {
                    assert!(self.proxy.client_address(source).is_some());
                    Role::Client
                }
            };
            assert!(out.len() <= 512 && message_texts(&out, sender).is_some());
            copies += 1;
        }
        // A fragment and some ACKs in each direction; only many ACKs fill more than one datagram.
        assert!(copies <= 6 * usize::from(SOURCES), "{copies}");
        assert!(self.proxy.next_timeout().is_none_or(|next| next > self.now));
        for player in self.proxy.players() {
            for healed in [player.up, player.down] {
                assert!(healed.fragment_copies <= 19 * healed.held_fragments, "{healed:?}");
            }
        }
    }

    fn check_limits(&mut self) {
        while let Some(event) = self.proxy.poll_event() {
            if let ProxyEvent::Verified { client, .. } = event {
                self.verified.insert(*client.ip());
            }
        }
        let spans = self.now.since(Time::ZERO).as_secs() as usize / 600 + 1;
        for (address, (said, heard)) in &self.bytes_by_address {
            assert!(
                self.verified.contains(address) || *heard <= 3 * said + 1_200 * spans,
                "{heard} for {said}"
            );
        }
        let players: Vec<_> = self.proxy.players().collect();
        let sources: BTreeSet<_> = players.iter().map(|player| player.source.address).collect();
        assert!(players.len() <= usize::from(SOURCES) && sources.len() == players.len(), "{players:?}");
        assert!(self.proxy.sources().count() <= usize::from(SOURCES) + ProxyConfig::default().max_browsers);
        for (address, _) in self.proxy.sources() {
            let same = self.proxy.sources().filter(|(other, _)| other.ip() == address.ip()).count();
            assert!(same <= 2 * MAX_PER_ADDRESS, "{same}");
        }
    }
}

fn datagram(sender: PeerId, body: Body<'_>) -> Vec<u8> {
    let mut buffer = [0; 64];
    let mut writer = Writer::new(&mut buffer, sender);
    assert!(writer.push(&Message::Control(Control::new(Seq(0), body))));
    writer.finish().expect("a message").to_vec()
}

/// Returns the cookie in an encrypted datagram.
fn cookie_in(wire: &[u8]) -> Option<Seq> {
    let mut plain = wire.to_vec();
    cipher::decrypt(&mut plain);
    bcnet_transport::cookie_in(&Datagram::parse(&plain, Some(Role::Host)).ok()?)
}

/// Checks that the output holds only messages of the input. The proxy adds a cookie and the ACK of a request, and may
/// write the id of a client anew.
fn assert_subset(out: &[u8], wire: &[u8], sender: Role) {
    if out != wire {
        let came = message_texts(wire, sender).expect("what cannot be read passes as it came");
        let mut came = came.iter();
        let request = MessageId { channel: Channel::Control, seq: Seq(0), fragment: None };
        let mut own = vec![Message::Keepalive.to_string(), Message::Ack(Ack::new(request)).to_string()];
        own.extend(cookie_in(out).map(|number| bcnet_transport::cookie_message(number).to_string()));
        own.extend(assigned_ids(wire).into_iter().map(|assigned| {
            Message::Control(Control::new(Seq(0), Body::ConnectReply { assigned })).to_string()
        }));
        let left = message_texts(out, sender).expect("well formed");
        assert!(left.iter().all(|left| own.contains(left) || came.any(|came| came == left)), "{left:?}");
    }
}

/// Returns the ids that an encrypted datagram of the server assigns.
fn assigned_ids(wire: &[u8]) -> Vec<PeerId> {
    let mut plain = wire.to_vec();
    cipher::decrypt(&mut plain);
    let Ok(datagram) = Datagram::parse(&plain, Some(Role::Host)) else { return Vec::new() };
    let id = |message| match message {
        Message::Control(Control { body: Body::ConnectReply { assigned }, .. }) => Some(assigned),
        _ => None,
    };
    datagram.messages().filter_map(id).collect()
}

fn message_texts(wire: &[u8], sender: Role) -> Option<Vec<String>> {
    let mut plain = wire.to_vec();
    cipher::decrypt(&mut plain);
    let datagram = Datagram::parse(&plain, Some(sender)).ok()?;
    Some(datagram.messages().map(|message| message.to_string()).collect())
}
