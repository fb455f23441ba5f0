//! Runs sessions with real sockets in virtual time: loopback delivers a datagram before `send` returns.

mod faults;
mod stop;

use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};

use bcnet_session::Manifest;
use bcnet_session::client::{self, Client, ClientOptions, DisconnectReason};
use bcnet_transport::{Connect, DeliveryMode, Endpoint, Engine as _};
use bcnet_udp::{Io, Socket};

use super::*;
use crate::allocations;
use crate::event_loop::EventLoop;

pub(in crate::serve) const LIMITS: CoalescingLimits =
    CoalescingLimits { cpu_budget: 0.5, min: Duration::ZERO, max: Duration::from_millis(20) };

/// Returns sessions with sockets on the loopback interface.
pub(in crate::serve) fn hosts(sessions: usize, io: Io) -> Vec<SessionHost> {
    let host = |number| {
        let socket = Socket::bind(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0), io).expect("bind");
        let address = socket.local_address().expect("local address");
        let transport = bcnet_transport::Config { cipher: false, ..bcnet_transport::Config::default() };
        let config = bcnet_session::Config { transport, ..bcnet_session::Config::default() };
        SessionHost::new(number, config, 7, socket, address)
    };
    (0..sessions).map(host).collect()
}

/// Returns a group of sessions and its event loop.
fn group(sessions: usize, io: Io) -> (SessionGroup, EventLoop<SessionGroup>) {
    let hosts = hosts(sessions, io);
    let event_loop = EventLoop::new(Clock::start()).expect("event loop");
    let registrar = event_loop.registrar().expect("registrar");
    (SessionGroup::new(hosts, LIMITS, registrar, Clock::start(), None).expect("session group"), event_loop)
}

/// A player in one of the sessions.
struct GroupPlayer {
    client: Client,
    socket: UdpSocket,
    server: SocketAddrV4,
    /// Chat lines and unknown game messages received since the last `take_received`.
    received: Vec<String>,
    /// Number of datagrams that carried `received`.
    datagrams: usize,
    is_in_game: bool,
    end: Option<DisconnectReason>,
}

/// A session group, its players and the virtual time.
struct GroupWorld {
    group: SessionGroup,
    players: Vec<GroupPlayer>,
    now: Time,
}

impl GroupWorld {
    /// Creates empty sessions.
    fn new(sessions: usize) -> Self {
        let (group, _) = group(sessions, Io::BEST);
        Self { group, players: Vec::new(), now: Time::from_micros(1_000_000) }
    }

    fn wait(&mut self, millis: u64) {
        self.now = self.now + Duration::from_millis(millis);
    }

    /// Runs one turn of the group on all sockets, then lets the players receive.
    fn turn(&mut self) {
        for session in 0..self.group.hosts.len() as u32 {
            self.group.on_readable(session);
        }
        self.group.turn(self.now);
        self.players.iter_mut().for_each(|player| player.receive(self.now));
    }

    /// Adds a player that begins to connect. Returns the index of the player.
    fn connect(&mut self, session: u32) -> usize {
        let server = self.group.hosts[session as usize].address;
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("bind");
        socket.set_nonblocking(true).expect("non-blocking socket");
        let connect = Connect { host: server, nonce: self.players.len() as u32 + 7, password: "" };
        let config =
            bcnet_transport::Config { address: Ipv4Addr::LOCALHOST, ..bcnet_transport::Config::default() };
        let client = Client::connect(config, connect, ClientOptions::with_name("Kirk"), self.now);
        let (received, datagrams, is_in_game, end) = (Vec::new(), 0, false, None);
        self.players.push(GroupPlayer { client, socket, server, received, datagrams, is_in_game, end });
        self.players.len() - 1
    }

    /// Lets one more player join a session. Returns the index of the player.
    fn join(&mut self, session: u32) -> usize {
        let newest = self.connect(session);
        for _ in 0..1000 {
            if self.players[newest].is_in_game {
                return newest;
            }
            self.players.iter_mut().for_each(|player| player.send(self.now));
            self.turn();
            self.wait(5);
        }
        panic!("the player could not join")
    }

    /// Delivers everything that is pending, and discards what the players received.
    fn drain(&mut self) {
        for _ in 0..40 {
            self.wait(25);
            self.players.iter_mut().for_each(|player| player.send(self.now));
            self.turn();
        }
        self.players.iter_mut().for_each(|player| (player.received, player.datagrams) = (Vec::new(), 0));
    }

    /// Sends a state update of a player, with an opcode of a mod.
    fn send_state_update(&mut self, player: usize, number: u8) {
        let GroupPlayer { client, .. } = &mut self.players[player];
        client.send(&[MOD_OPCODE, number], DeliveryMode::Unreliable, self.now).expect("in the game");
        self.players[player].send(self.now);
    }

    fn chat(&mut self, player: usize, text: &str) {
        self.players[player].client.chat(text, self.now).expect("in the game");
        self.players[player].send(self.now);
    }

    /// Returns what a player received, and the number of datagrams that carried it.
    fn take_received(&mut self, player: usize) -> (Vec<String>, usize) {
        let player = &mut self.players[player];
        (std::mem::take(&mut player.received), std::mem::take(&mut player.datagrams))
    }
}

impl GroupPlayer {
    fn send(&mut self, now: Time) {
        self.client.handle_timeout(now);
        let mut buffer = [0; 2048];
        while let Some(transmit) = self.client.poll_transmit(&mut buffer, now) {
            self.socket.send_to(&buffer[..transmit.len], transmit.to).expect("sent");
        }
    }

    fn receive(&mut self, now: Time) {
        let (mut buffer, mut payload) = ([0; 2048], Vec::new());
        while let Ok(len) = self.socket.recv(&mut buffer) {
            let before = self.received.len();
            self.client.handle_datagram(self.server, &mut buffer[..len], now);
            while let Some(event) = self.client.poll_event(&mut payload, now) {
                match event {
                    client::Event::FileCheck(_) => {
                        self.client.answer_from_manifest(&Manifest::placeholder(), now).expect("asked");
                    }
                    client::Event::Load => self.client.enter(now).expect("asked"),
                    client::Event::Entered => self.is_in_game = true,
                    client::Event::Chat { text, .. } => self.received.push(text),
                    client::Event::Gone { reason: end, .. } => self.end = Some(end),
                    _ if payload.first() == Some(&MOD_OPCODE) => self.received.push(payload[1].to_string()),
                    _ => {}
                }
            }
            self.datagrams += usize::from(self.received.len() > before);
        }
    }
}

/// An opcode that the stock game does not have.
const MOD_OPCODE: u8 = 0xF0;

#[test]
fn messages_are_relayed_in_the_same_turn_without_load() {
    let mut world = GroupWorld::new(1);
    let [kirk, spock] = [0, 0].map(|session| world.join(session));
    world.drain();
    for number in 0..10 {
        world.send_state_update(kirk, number);
        world.turn();
        assert_eq!(world.take_received(spock), (vec![number.to_string()], 1));
        world.wait(3);
    }
    let delay = world.group.hosts[0].metrics.relay_delay();
    assert!(
        delay.p50 < Some(Duration::from_millis(5)),
        "the delay is more than the processing time: {delay:?}"
    );
    world.chat(kirk, "hailing");
    world.turn();
    assert_eq!(
        (world.take_received(spock), world.take_received(kirk).0),
        ((vec!["hailing".into()], 1), vec!["hailing".into()])
    );
}

#[test]
fn lone_player_gets_its_chat_echo_at_once() {
    for min in [LIMITS.min, LIMITS.max] {
        let mut world = GroupWorld::new(1);
        let kirk = world.join(0);
        world.drain();
        world.group.coalescing.limits.min = min;
        for number in 0..10 {
            world.send_state_update(kirk, number);
            world.turn();
            world.wait(3);
        }
        world.chat(kirk, "anybody here?");
        world.turn();
        assert_eq!(world.take_received(kirk), (vec!["anybody here?".into()], 1), "{min:?}");
    }
}

#[test]
fn state_updates_under_load_wait_at_most_the_window() {
    let mut world = GroupWorld::new(1);
    let [kirk, spock] = [0, 0].map(|session| world.join(session));
    world.drain();
    world.group.coalescing.limits.min = Duration::from_millis(20);
    for number in [1, 2] {
        world.send_state_update(kirk, number);
        world.turn();
        assert_eq!(world.take_received(spock), (vec![], 0));
        world.wait(10);
    }
    world.now = Time::from_micros(world.now.as_micros() - 1);
    world.turn();
    assert_eq!(world.take_received(spock), (vec![], 0), "a microsecond before the window is over");
    world.now = world.now.plus(1);
    assert_eq!(world.group.next_timeout(), Some(world.now), "the deadline is the end of the window");
    world.turn();
    assert_eq!(world.take_received(spock), (vec!["1".into(), "2".into()], 1));
    let waited = world.group.hosts[0].metrics.relay_delay().p99.expect("two updates were relayed");
    assert!(waited > Duration::from_millis(17) && waited < Duration::from_millis(100), "{waited:?}");
    // If the window becomes zero, pending updates leave in the next turn.
    world.send_state_update(kirk, 3);
    world.turn();
    assert_eq!(world.take_received(spock), (vec![], 0));
    world.group.coalescing.limits.min = Duration::ZERO;
    world.send_state_update(kirk, 4);
    world.turn();
    assert_eq!(world.take_received(spock), (vec!["3".into(), "4".into()], 1));
}

#[test]
fn other_messages_under_load_leave_at_once_with_updates() {
    let mut world = GroupWorld::new(1);
    let [kirk, spock] = [0, 0].map(|session| world.join(session));
    world.drain();
    world.group.coalescing.limits.min = Duration::from_millis(20);
    world.send_state_update(kirk, 1);
    world.turn();
    assert_eq!(world.take_received(spock), (vec![], 0));
    world.wait(5);
    world.chat(kirk, "fire");
    world.turn();
    assert_eq!(world.take_received(spock), (vec!["1".into(), "fire".into()], 1));
    // A query, a connect request and the disconnect notice are answered in the same turn.
    world.send_state_update(kirk, 2);
    world.turn();
    let browser = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("bind");
    browser.set_nonblocking(true).expect("non-blocking socket");
    browser.send_to(b"\\status\\", world.players[kirk].server).expect("sent");
    world.turn();
    assert!(browser.recv(&mut [0; 2048]).is_ok());
    let sent = world.group.hosts[0].socket_counters.datagrams_out;
    let connect = Connect { host: world.players[kirk].server, nonce: 99, password: "" };
    let config =
        bcnet_transport::Config { address: Ipv4Addr::LOCALHOST, ..bcnet_transport::Config::default() };
    let mut stranger = Endpoint::connect(config, connect, world.now);
    let mut request = [0; 512];
    let len = stranger.poll_transmit(&mut request, world.now).expect("connect request").len;
    browser.send_to(&request[..len], connect.host).expect("sent");
    world.turn();
    assert!(
        world.group.hosts[0].socket_counters.datagrams_out > sent && browser.recv(&mut [0; 2048]).is_ok()
    );
    world.drain();
    world.send_state_update(kirk, 3);
    world.turn();
    world.group.stop(world.now);
    let sent = world.group.hosts[0].socket_counters.datagrams_out;
    world.group.turn(world.now);
    assert!(
        world.group.hosts[0].socket_counters.datagrams_out >= sent + 2,
        "both players get a disconnect notice"
    );
}

/// T-62: the coalescing window delays only state updates.
#[test]
fn retransmissions_under_load_are_not_delayed() {
    for is_loss_shown_by_acks in [true, false] {
        let mut world = GroupWorld::new(1);
        let [kirk, spock] = [0, 0].map(|session| world.join(session));
        world.drain();
        world.group.coalescing.limits.min = Duration::from_secs(10);
        world.chat(kirk, "lost");
        world.group.on_readable(0);
        world.group.turn(world.now);
        let mut buffer = [0; 2048];
        world.players[spock].socket.recv(&mut buffer).expect("the datagram to lose");
        world.send_state_update(kirk, 1);
        world.turn();
        assert_eq!(world.take_received(spock).0, Vec::<String>::new(), "the state update waits");
        if is_loss_shown_by_acks {
            for line in ["one", "two", "three", "four"] {
                world.wait(1);
                world.chat(kirk, line);
                world.turn();
            }
            world.players[spock].send(world.now);
            world.wait(30);
            world.players[spock].send(world.now);
        } else {
            let next = world.group.next_timeout().expect("a retransmission deadline");
            assert!(next < world.now + Duration::from_secs(5), "the deadline is after the end of the window");
            world.now = next;
        }
        world.turn();
        world.now = world.now.plus(1);
        world.turn();
        let received = world.take_received(spock).0;
        assert!(received.contains(&"lost".into()), "{is_loss_shown_by_acks}: {received:?}");
    }
}

#[test]
fn only_player_datagrams_count_as_relaying() {
    let mut world = GroupWorld::new(1);
    let [kirk, _] = [0, 0].map(|session| world.join(session));
    world.drain();
    let server = world.players[kirk].server;
    let stranger = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("bind");
    let id = world.group.hosts[0].session.players().next().expect("Kirk").id.0;
    // From a stranger: garbage, a player's id, queries, empty datagrams. From a player: garbage, then one
    // valid datagram.
    for bytes in [&[9; 300][..], &[id, 1, 1], b"\\status\\", &[]] {
        (0..5).for_each(|_| assert!(stranger.send_to(bytes, server).is_ok()));
    }
    for bytes in [&[id; 300][..], &[id], &[id, 7, 7, 7, 7]] {
        assert!(world.players[kirk].socket.send_to(bytes, server).is_ok());
    }
    world.send_state_update(kirk, 1);
    world.group.on_readable(0);
    world.group.receive(RECEIVE_TIME_LIMIT, world.now);
    world.group.handle_inbound(world.now);
    let TurnWork { datagrams: all, relayed, .. } = world.group.work;
    assert_eq!((all, relayed), (24, 1));
    // The first ACK of a relayed message counts as relaying; a repeated ACK does not.
    world.chat(kirk, "fire");
    world.turn();
    world.group.work = TurnWork::default();
    world.wait(30);
    world.players.iter_mut().for_each(|player| player.send(world.now));
    world.group.on_readable(0);
    world.group.receive(RECEIVE_TIME_LIMIT, world.now);
    world.group.handle_inbound(world.now);
    let TurnWork { datagrams: all, relayed, .. } = world.group.work;
    assert_eq!((all, relayed), (2, 2), "both players acknowledge the chat");
    let turn = Duration::from_millis(2);
    let work = TurnWork { datagrams: 40, relayed: 10, recording_time: Duration::from_millis(1) };
    assert_eq!(
        work.relaying_time(turn),
        Duration::from_micros(250),
        "the time of the capture does not count"
    );
    assert_eq!(TurnWork { relayed: 0, ..work }.relaying_time(turn), Duration::ZERO);
}

#[test]
fn datagram_handling_does_not_allocate() {
    for io in [Io::BEST, Io::Portable] {
        let (mut group, mut event_loop) = group(1, io);
        let address = group.hosts[0].address;
        let client = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("bind");
        let mut player = Endpoint::connect(
            bcnet_transport::Config { address: Ipv4Addr::LOCALHOST, ..bcnet_transport::Config::default() },
            Connect { host: address, nonce: 7, password: "" },
            Time::ZERO,
        );
        let mut hello = [0; 512];
        let hello_size = player.poll_transmit(&mut hello, Time::ZERO).expect("a connect request").len;
        let mut counts = Vec::new();
        for round in 0..40 {
            // A repeated connect request, which is acknowledged each time, and garbage.
            for _ in 0..50 {
                client.send_to(&hello[..hello_size], address).expect("sent");
                client.send_to(&[9; 300], address).expect("sent");
            }
            let before = allocations::allocation_count();
            let (wanted, sent) = ((round + 1) * 100, group.hosts[0].socket_counters.datagrams_out);
            for turns in 0.. {
                let counters = &group.hosts[0].socket_counters;
                if counters.datagrams_in >= wanted && counters.datagrams_out > sent {
                    break;
                }
                assert!(turns < 10_000, "{io:?}: datagrams are missing in round {round}");
                event_loop.turn(&mut group).expect("turn");
            }
            counts.push(allocations::allocation_count() - before);
        }
        // By then all buffers have grown to the load, and log lines are few.
        let late: u64 = counts[20..].iter().sum();
        assert!(late < 40, "{io:?}: {late} allocations for 2000 datagrams; per round {counts:?}");
    }
}
