//! A client with a lying server and strangers. In any order of input and commands, nothing panics, the client's
//! memory stays within its limits, strangers have no effect, and `leave` ends the client. The same input gives the
//! same output.
#![no_main]

use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::Duration;

use bcnet_fuzz::{FuzzInput, FuzzPlayer, OutputHash, SERVER, check_deterministic, ignore_result};
use bcnet_transport::wire::{BootReason, PeerId, Text};
use bcnet_transport::{Config, Endpoint, Engine, Event, Time};
use libfuzzer_sys::fuzz_target;

const PLAYER: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 2), 22101);
const UNKNOWN_ADDRESS: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 3), 22101);

fuzz_target!(|input: &[u8]| check_deterministic(input, play));

fn play(input: &[u8]) -> u64 {
    let mut script = FuzzInput::new(input);
    let mut world = ClientHarness::new();
    while let Some(step) = script.step() {
        world.step(step, &mut script);
        world.player.check_limits(world.now);
    }
    world.leave_and_check();
    world.trace.finish()
}

struct ClientHarness {
    /// A correct engine that sends hostile messages.
    host: Endpoint,
    player: FuzzPlayer,
    now: Time,
    trace: OutputHash,
}

impl ClientHarness {
    fn new() -> Self {
        let now = Time::from_micros(1);
        let host = Endpoint::host(Config { cipher: false, ..Config::default() });
        let player = FuzzPlayer::connect(PLAYER, "Honest", "", 7, now);
        Self { host, player, now, trace: OutputHash::default() }
    }

    fn step(&mut self, step: u8, script: &mut FuzzInput<'_>) {
        let now = self.now;
        match step % 16 {
            // Unchecked game messages.
            0..=5 => {
                let quality = script.delivery_mode();
                ignore_result(self.host.send(PeerId(2), script.bytes(), quality, now));
            }
            6 => {
                let name = Text::encode(&script.text()).unwrap_or_default();
                ignore_result(self.host.announce_name(Text::new(&name).unwrap_or_default(), now));
            }
            7 => self.player.client.handle_datagram(SERVER, &mut [&[1], script.bytes()].concat(), now),
            8 => self.receive_from_unknown(script.bytes()),
            9..=11 => self.advance(script.time(), step / 16),
            12 => self.use_client(script),
            13 => self.player.answers_like_a_game = script.byte() % 2 == 0,
            14 => ignore_result(self.host.boot(PeerId(2), BootReason(script.byte().cast_signed()), now)),
            _ => self.host.leave(now),
        }
        self.player.poll_events(now);
    }

    fn receive_from_unknown(&mut self, bytes: &[u8]) {
        // The client has sent everything. It may have given up, and then sends a disconnect.
        self.transmit(0);
        self.transmit_from_player(&mut || false);
        self.player.poll_events(self.now);
        self.transmit_from_player(&mut || false);
        let state = |player: &FuzzPlayer| {
            (player.client.state(), player.client.id(), player.client.players().count())
        };
        let before = state(&self.player);
        self.player.client.handle_datagram(UNKNOWN_ADDRESS, &mut bytes.to_vec(), self.now);
        self.player.poll_events(self.now);
        assert_eq!(state(&self.player), before, "{bytes:02X?}");
        assert!(self.player.transmit(&mut [0; 2048], self.now).is_none(), "{bytes:02X?}");
    }

    fn use_client(&mut self, script: &mut FuzzInput<'_>) {
        let (what, now) = (script.byte(), self.now);
        let client = &mut self.player.client;
        match what % 8 {
            0 => ignore_result(client.chat(&script.text(), now)),
            1 => ignore_result(client.team_chat(&script.text(), now)),
            2 => ignore_result(client.rename(&script.text(), now)),
            3 => ignore_result(client.answer_file_check(script.bytes(), now)),
            4 => ignore_result(client.enter(now)),
            5 | 6 => {
                let quality = script.delivery_mode();
                ignore_result(client.send(script.bytes(), quality, now));
            }
            _ => client.leave(now),
        }
    }

    /// Advances time and delivers the datagrams of both sides, except every `lost`th.
    fn advance(&mut self, time: Duration, lost: u8) {
        self.now = self.now + time;
        self.player.client.handle_timeout(self.now);
        self.host.handle_timeout(self.now);
        self.transmit(lost);
    }

    fn transmit(&mut self, lost: u8) {
        let (mut buffer, mut count) = ([0; 2048], 0_u32);
        let is_lost = &mut || {
            count += 1;
            assert!(count < MAX_DATAGRAMS);
            lost != 0 && count.is_multiple_of(lost.into())
        };
        self.transmit_from_player(is_lost);
        let mut payload = Vec::new();
        while let Some(event) = self.host.poll_event(&mut payload) {
            if let Event::Request { from, .. } = event {
                ignore_result(self.host.admit(from, self.now));
            }
        }
        while let Some(transmit) = self.host.poll_transmit(&mut buffer, self.now) {
            if !is_lost() && transmit.to == PLAYER {
                self.player.client.handle_datagram(SERVER, &mut buffer[..transmit.len], self.now);
                self.player.poll_events(self.now);
            }
        }
    }

    fn transmit_from_player(&mut self, is_lost: &mut dyn FnMut() -> bool) {
        let mut buffer = [0; 2048];
        while let Some(len) = self.player.transmit(&mut buffer, self.now) {
            self.trace.add(&buffer[..len]);
            if !is_lost() {
                self.host.handle_datagram(PLAYER, &mut buffer[..len], self.now);
            }
        }
    }

    /// Checks that the client can always leave.
    fn leave_and_check(&mut self) {
        self.player.client.leave(self.now);
        for _ in 0..400 {
            if self.player.client.is_closed() {
                break;
            }
            self.advance(Duration::from_millis(100), 0);
            self.player.poll_events(self.now);
        }
        self.player.check_limits(self.now);
        assert!(self.player.client.is_closed(), "{:?}", self.player.client.state());
    }
}

const MAX_DATAGRAMS: u32 = 20_000;
