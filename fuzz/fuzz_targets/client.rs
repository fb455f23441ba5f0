//! A client and a server that lies, with strangers around them: whatever they say and whatever the user does, in whatever
//! order, nothing panics, what the client keeps stays within its limits, strangers have no effect, and it ends when it is told to.
//! The same input gives the same output.
#![no_main]

use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::Duration;

use bcnet_fuzz::{Player, SERVER, Script, Trace, ignore, is_repeatable};
use bcnet_transport::wire::{BootReason, PeerId, Text};
use bcnet_transport::{Config, Endpoint, Engine, Event, Time};
use libfuzzer_sys::fuzz_target;

const PLAYER: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 2), 22101);
const STRANGER: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 3), 22101);

fuzz_target!(|input: &[u8]| is_repeatable(input, play));

fn play(input: &[u8]) -> u64 {
    let mut script = Script::new(input);
    let mut world = World::new();
    while let Some(step) = script.step() {
        world.step(step, &mut script);
        world.player.check(world.now);
    }
    world.finish();
    world.trace.finish()
}

struct World {
    /// The engine is honest; what it is told to send is not.
    host: Endpoint,
    player: Player,
    now: Time,
    trace: Trace,
}

impl World {
    fn new() -> Self {
        let now = Time::from_micros(1);
        let host = Endpoint::host(Config { cipher: false, ..Config::default() });
        let player = Player::connect(PLAYER, "Honest", "", 7, now);
        Self { host, player, now, trace: Trace::default() }
    }

    fn step(&mut self, step: u8, script: &mut Script<'_>) {
        let now = self.now;
        match step % 16 {
            // Game messages that nobody has checked.
            0..=5 => {
                let quality = script.quality();
                ignore(self.host.send(PeerId(2), script.bytes(), quality, now));
            }
            6 => {
                let name = Text::encode(&script.text()).unwrap_or_default();
                ignore(self.host.identify(Text::new(&name).unwrap_or_default(), now));
            }
            7 => self.player.client.handle_datagram(SERVER, &mut [&[1], script.bytes()].concat(), now),
            8 => self.stranger(script.bytes()),
            9..=11 => self.pass(script.time(), step / 16),
            12 => self.use_client(script),
            13 => self.player.is_willing = script.byte() % 2 == 0,
            14 => ignore(self.host.boot(PeerId(2), BootReason(script.byte().cast_signed()), now)),
            _ => self.host.leave(now),
        }
        self.player.listen(now);
    }

    fn stranger(&mut self, bytes: &[u8]) {
        // All that it has to say it has said: it may have given up over that, and then says goodbye.
        self.transmit(0);
        self.transmit_own(&mut || false);
        self.player.listen(self.now);
        self.transmit_own(&mut || false);
        let state =
            |player: &Player| (player.client.state(), player.client.id(), player.client.players().count());
        let before = state(&self.player);
        self.player.client.handle_datagram(STRANGER, &mut bytes.to_vec(), self.now);
        self.player.listen(self.now);
        assert_eq!(state(&self.player), before, "{bytes:02X?}");
        assert!(self.player.transmit(&mut [0; 2048], self.now).is_none(), "{bytes:02X?}");
    }

    fn use_client(&mut self, script: &mut Script<'_>) {
        let (what, now) = (script.byte(), self.now);
        let client = &mut self.player.client;
        match what % 8 {
            0 => ignore(client.chat(&script.text(), now)),
            1 => ignore(client.team_chat(&script.text(), now)),
            2 => ignore(client.rename(&script.text(), now)),
            3 => ignore(client.answer(script.bytes(), now)),
            4 => ignore(client.enter(now)),
            5 | 6 => {
                let quality = script.quality();
                ignore(client.send(script.bytes(), quality, now));
            }
            _ => client.leave(now),
        }
    }

    /// Time passes, and what both send arrives, but for every `lost`th datagram.
    fn pass(&mut self, time: Duration, lost: u8) {
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
        self.transmit_own(is_lost);
        let mut payload = Vec::new();
        while let Some(event) = self.host.poll_event(&mut payload) {
            if let Event::Request { from, .. } = event {
                ignore(self.host.admit(from, self.now));
            }
        }
        while let Some(transmit) = self.host.poll_transmit(&mut buffer, self.now) {
            if !is_lost() && transmit.to == PLAYER {
                self.player.client.handle_datagram(SERVER, &mut buffer[..transmit.len], self.now);
                self.player.listen(self.now);
            }
        }
    }

    fn transmit_own(&mut self, is_lost: &mut dyn FnMut() -> bool) {
        let mut buffer = [0; 2048];
        while let Some(len) = self.player.transmit(&mut buffer, self.now) {
            self.trace.add(&buffer[..len]);
            if !is_lost() {
                self.host.handle_datagram(PLAYER, &mut buffer[..len], self.now);
            }
        }
    }

    /// Whoever wants to leave can.
    fn finish(&mut self) {
        self.player.client.leave(self.now);
        for _ in 0..400 {
            if self.player.client.is_closed() {
                break;
            }
            self.pass(Duration::from_millis(100), 0);
            self.player.listen(self.now);
        }
        self.player.check(self.now);
        assert!(self.player.client.is_closed(), "{:?}", self.player.client.state());
    }
}

const MAX_DATAGRAMS: u32 = 20_000;
