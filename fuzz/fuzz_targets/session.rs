//! A session with one honest player, hostile players, strangers and an operator.
//!
//! In any order of input and time, nothing panics, no table or queue exceeds its limit, and malformed datagrams
//! change nothing. An unverified address gets at most the bytes that were sent in its name (T-75). The honest
//! player stays in the game and is heard. The same input gives the same output.
#![no_main]

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::Duration;

use bcnet_fuzz::{CHAT_TEXT, FuzzInput, FuzzPlayer, OutputHash, SERVER, check_deterministic, ignore_result};
use bcnet_session::{Config, Event, Manifest, Network, Session, System};
use bcnet_transport::wire::{BootReason, Datagram, PeerId, Role};
use bcnet_transport::{self as transport, IdPolicy, ProofPolicy, Time};
use libfuzzer_sys::fuzz_target;

const HONEST: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 2), 22101);
const PASSWORD: &str = "sesame";

fuzz_target!(|input: &[u8]| check_deterministic(input, play));

fn play(input: &[u8]) -> u64 {
    let mut script = FuzzInput::new(input);
    let mut config = config(script.byte());
    let bits = script.byte();
    config.transport.proof_policy =
        [ProofPolicy::Auto, ProofPolicy::Ack, ProofPolicy::Id][usize::from(bits % 3)];
    config.transport.id_policy = if bits < 128 { IdPolicy::Random } else { IdPolicy::Sequential };
    let mut world = SessionHarness::new(config);
    while let Some(step) = script.step() {
        world.step(step, &mut script);
        world.check_limits();
    }
    world.check_chat_delivery();
    world.trace.finish()
}

fn config(bits: u8) -> Config {
    let is_set = |bit: u8| bits & 1 << bit != 0;
    Config {
        player_limit: if is_set(0) { 3 } else { 16 },
        password: is_set(1).then(|| PASSWORD.into()),
        checksums: if is_set(2) {
            bcnet_session::Checksums::Strict(vec![Manifest::placeholder()])
        } else {
            bcnet_session::Checksums::Permissive
        },
        allow_mods: is_set(3),
        forward_unknown: is_set(4),
        mask_addresses: is_set(5),
        credit_last_shot: is_set(5),
        time_limit: is_set(6).then_some(1),
        rotation: if is_set(7) { System::all().collect() } else { Vec::new() },
        transport: transport::Config { cipher: false, ..transport::Config::default() },
        ..Config::default()
    }
}

/// Returns an address that hostile players and strangers share.
fn address(byte: u8) -> SocketAddrV4 {
    SocketAddrV4::new(Ipv4Addr::new(10, 0, byte / 8 % 4, 3 + byte % 4), 5000 + u16::from(byte / 32))
}

struct SessionHarness {
    session: Session,
    now: Time,
    honest: FuzzPlayer,
    hostile: Vec<FuzzPlayer>,
    config: Config,
    trace: OutputHash,
    chats_sent: u32,
    next_chat: Time,
    /// Bytes from and to each address, without queries.
    bytes_by_address: BTreeMap<SocketAddrV4, [usize; 2]>,
    /// Addresses that were ever admitted.
    admitted: BTreeSet<SocketAddrV4>,
}

impl SessionHarness {
    fn new(config: Config) -> Self {
        let now = Time::from_micros(1);
        let session = Session::new(config.clone(), 0x5EED);
        let honest = FuzzPlayer::connect(HONEST, "Honest", PASSWORD, 7, now);
        let mut world = Self {
            session,
            now,
            honest,
            hostile: Vec::new(),
            config,
            trace: OutputHash::default(),
            chats_sent: 0,
            next_chat: now,
            bytes_by_address: BTreeMap::new(),
            admitted: BTreeSet::new(),
        };
        for _ in 0..100 {
            if world.honest.client.has_entered() {
                break;
            }
            world.advance(Duration::from_millis(20), 0);
        }
        assert!(world.honest.client.has_entered(), "{:?}", world.honest.end);
        world
    }

    fn step(&mut self, step: u8, script: &mut FuzzInput<'_>) {
        match step % 16 {
            0 | 1 => self.receive_from_unknown(address(script.byte()), script.bytes()),
            2 => {
                let from = address(script.byte());
                let text = [b"\\", script.bytes()].concat();
                self.receive(from, &text);
            }
            3 => self.connect(script),
            4..=6 => {
                let (who, quality, payload) = (script.byte(), script.delivery_mode(), script.bytes());
                let now = self.now;
                if let Some(player) = self.player(who) {
                    ignore_result(player.client.send(payload, quality, now));
                }
            }
            7 => {
                let (who, bytes) = (script.byte(), script.bytes());
                if let Some((from, id)) = self.player(who).map(|player| (player.address, player.client.id()))
                {
                    self.receive(from, &[&[id.0], bytes].concat());
                }
            }
            8 => self.misbehave(script),
            9..=11 => self.advance(script.time(), step / 16),
            12 => self.chat(),
            13 => self.command(script),
            14 => self.advance(Duration::from_secs(4), 0),
            _ => self.reconfigure(script),
        }
    }

    fn player(&mut self, who: u8) -> Option<&mut FuzzPlayer> {
        let count = self.hostile.len().max(1);
        self.hostile.get_mut(usize::from(who) % count)
    }

    /// Checks that an unreadable datagram has no effect.
    fn receive_from_unknown(&mut self, from: SocketAddrV4, bytes: &[u8]) {
        let is_text = bytes.first() == Some(&b'\\');
        let is_malformed = !is_text && Datagram::parse(bytes, Some(Role::Client)).is_err();
        self.transmit(0);
        let before = self.visible_state();
        self.receive(from, bytes);
        if is_malformed {
            assert_eq!(self.visible_state(), before, "{bytes:02X?}");
            assert!(self.session.poll_transmit(&mut [0; 2048], self.now).is_none(), "{bytes:02X?}");
        }
    }

    /// Returns everything that others can see of the session.
    fn visible_state(&self) -> impl PartialEq + std::fmt::Debug + use<> {
        let status = self.session.status(self.now);
        let players: Vec<_> = self.session.players().collect();
        (players, status.in_game, status.round, status.ended, self.session.next_timeout())
    }

    fn connect(&mut self, script: &mut FuzzInput<'_>) {
        let (place, nonce, name) = (script.byte(), script.byte(), script.text());
        let password = if nonce % 8 == 0 { "wrong" } else { PASSWORD };
        let address = address(place);
        self.hostile.retain(|player| player.address != address);
        if self.hostile.len() < 20 {
            let mut player = FuzzPlayer::connect(address, &name, password, nonce.into(), self.now);
            player.answers_like_a_game = nonce % 4 != 1;
            self.hostile.push(player);
        }
    }

    fn misbehave(&mut self, script: &mut FuzzInput<'_>) {
        let (who, what, bytes) = (script.byte(), script.byte(), script.bytes());
        let now = self.now;
        let Some(player) = self.player(who) else { return };
        let text = String::from_utf8_lossy(bytes);
        match what % 6 {
            0 => ignore_result(player.client.answer_file_check(bytes, now)),
            1 => ignore_result(player.client.enter(now)),
            2 => ignore_result(player.client.rename(&text, now)),
            3 => player.client.leave(now),
            4 => ignore_result(player.client.chat(&text, now)),
            // The player disappears without a disconnect.
            _ => self.hostile.retain(|player| player.address != address(who)),
        }
    }

    /// Runs a command of the operator, who spares the honest player.
    fn command(&mut self, script: &mut FuzzInput<'_>) {
        let (what, argument) = (script.byte(), script.byte());
        let honest = self.honest.client.id();
        match what % 5 {
            0 if PeerId(argument) != honest => {
                self.session.kick(PeerId(argument), BootReason::KICKED, self.now);
            }
            1 => self.session.say(&script.text(), self.now),
            2 => ignore_result(self.session.say_to(PeerId(argument), &script.text(), self.now)),
            3 => self.session.restart(self.now),
            _ => {
                let network = Network::containing(*address(argument).ip(), 32);
                let bans = if network.contains(*HONEST.ip()) { Vec::new() } else { vec![network] };
                self.session.set_bans(bans, self.now);
            }
        }
    }

    fn reconfigure(&mut self, script: &mut FuzzInput<'_>) {
        self.config = config(script.byte());
        self.session.reconfigure(self.config.clone(), self.now);
    }

    /// Sends chat of the honest player within its rate (S-42).
    fn chat(&mut self) {
        if self.now >= self.next_chat {
            self.next_chat = self.now + Duration::from_millis(400);
            self.chats_sent += u32::from(self.honest.client.chat(CHAT_TEXT, self.now).is_ok());
        }
    }

    /// Advances time and serves everybody. Every `lost`th datagram of hostile players is lost, in both directions.
    fn advance(&mut self, time: Duration, lost: u8) {
        self.now = self.now + time;
        let (mut buffer, mut count, mut arrived) = ([0; 2048], 0_u8, Vec::new());
        for player in self.hostile.iter_mut().chain([&mut self.honest]) {
            player.client.handle_timeout(self.now);
            player.poll_events(self.now);
            while let Some(len) = player.transmit(&mut buffer, self.now) {
                count = count.wrapping_add(1);
                if player.address == HONEST || lost == 0 || count % lost != 0 {
                    arrived.push((player.address, buffer[..len].to_vec()));
                }
            }
        }
        for (from, bytes) in arrived {
            self.receive(from, &bytes);
        }
        self.session.handle_timeout(self.now);
        self.transmit(lost);
    }

    fn receive(&mut self, from: SocketAddrV4, bytes: &[u8]) {
        if bytes.first() != Some(&b'\\') {
            self.bytes_by_address.entry(from).or_default()[0] += bytes.len();
        }
        self.session.handle_datagram(from, &mut bytes.to_vec(), self.now);
    }

    /// Delivers the session's datagrams, except some to hostile players.
    fn transmit(&mut self, lost: u8) {
        let mut buffer = [0; 2048];
        for count in 0_usize.. {
            let Some(transmit) = self.session.poll_transmit(&mut buffer, self.now) else { break };
            assert!(count < MAX_DATAGRAMS);
            let bytes = &mut buffer[..transmit.len];
            if bytes.first() != Some(&b'\\') {
                self.bytes_by_address.entry(transmit.to).or_default()[1] += bytes.len();
            }
            self.trace.add((transmit.to, &*bytes));
            let is_lost = transmit.to != HONEST && lost != 0 && count % usize::from(lost) == 0;
            let players = self.hostile.iter_mut().chain([&mut self.honest]);
            if let (false, Some(player)) =
                (is_lost, players.into_iter().find(|player| player.address == transmit.to))
            {
                player.client.handle_datagram(SERVER, bytes, self.now);
                player.poll_events(self.now);
            }
        }
    }

    fn check_limits(&mut self) {
        let mut events = 0;
        while let Some(event) = self.session.poll_event() {
            events += 1;
            if let Event::Joining { address, .. } = event {
                self.admitted.insert(address);
            }
        }
        assert!(events <= MAX_EVENTS, "{events}");
        for (address, [came, went]) in &self.bytes_by_address {
            assert!(went <= came || self.admitted.contains(address), "{address}: {went} for {came}");
        }
        let players: Vec<_> = self.session.players().collect();
        let mut slots: Vec<_> = players.iter().filter_map(|player| player.slot).collect();
        slots.sort_unstable();
        assert!(slots.is_sorted_by(|a, b| a < b) && slots.iter().all(|slot| *slot < 16), "{slots:?}");
        assert!(players.len() <= MAX_PLAYERS, "{}", players.len());
        for player in &players {
            let Some(snapshot) = self.session.snapshot(player.id, self.now) else { continue };
            assert!(snapshot.queued_bytes <= self.config.transport.max_queued_bytes, "{snapshot:?}");
            let held: usize = snapshot.inboxes.iter().map(|channel| channel.out_of_order_bytes).sum();
            assert!(held <= 2 * self.config.transport.max_out_of_order_bytes + (320 << 10), "{snapshot:?}");
        }
        self.honest.check_limits(self.now);
        assert_eq!(self.honest.end, None);
    }

    /// Checks that the honest player received all its chat, and that one more line is delivered.
    fn check_chat_delivery(&mut self) {
        for last in [false, true] {
            if last {
                self.advance(Duration::from_millis(400), 0);
                self.chat();
            }
            for _ in 0..1_200 {
                if self.honest.chats_received >= self.chats_sent {
                    break;
                }
                self.advance(Duration::from_millis(100), 0);
            }
            assert!(
                self.honest.chats_received >= self.chats_sent,
                "{} of {}",
                self.honest.chats_received,
                self.chats_sent
            );
        }
        self.check_limits();
    }
}

/// Far more than a step can cause, and far less than an endless loop would.
const MAX_DATAGRAMS: usize = 20_000;
/// The largest number of events that the session keeps.
const MAX_EVENTS: usize = 4096;
/// The number of ids.
const MAX_PLAYERS: usize = 254;
