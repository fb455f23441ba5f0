//! The heap use of a session, counted on the thread that drives it.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::Duration;

use bcnet_session::client::{Client, ClientOptions, Event};
use bcnet_session::game::{EndCode, EndGame, Message};
use bcnet_session::policy::{
    CopyBuffer, CopyVerdict, GamePolicy, PlayerMessage, PlayerView, PolicyHost, Recipients, SendSettings,
    Verdict,
};
use bcnet_session::{Config, Session};
use bcnet_transport::{Connect, DeliveryMode, Time};

#[path = "../../bcnet-transport/tests/endpoint/heap.rs"]
mod heap;

const HOST: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(192, 0, 2, 1), 22101);
const TICK: Duration = Duration::from_millis(10);

/// The number of allocations, and the bytes that stay allocated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct HeapUse {
    allocations: usize,
    bytes: isize,
}

fn count_heap_use<T>(taken: &mut HeapUse, work: impl FnOnce() -> T) -> T {
    let (allocations, live) = (heap::allocations(), heap::in_use());
    let result = work();
    taken.allocations += heap::allocations() - allocations;
    taken.bytes += heap::in_use() - live;
    result
}

/// A session and clients without a network between them. Datagrams arrive in the next tick.
struct CountedSession {
    now: Time,
    session: Session,
    /// The heap use of the session alone.
    heap_use: HeapUse,
    clients: Vec<(SocketAddrV4, Client)>,
    received: u64,
    in_game: usize,
}

impl CountedSession {
    fn new(config: Config) -> Self {
        let mut taken = HeapUse::default();
        let session = count_heap_use(&mut taken, || Session::new(config, 1));
        Self { now: Time::ZERO, session, heap_use: taken, clients: Vec::new(), received: 0, in_game: 0 }
    }

    fn connect(&mut self, n: u32) {
        let address = SocketAddrV4::new(Ipv4Addr::from(0x0A00_0000 + n), 22101);
        let own = *address.ip();
        let client = Client::connect(
            bcnet_transport::Config { address: own, ..bcnet_transport::Config::default() },
            Connect { host: HOST, nonce: n, password: "" },
            ClientOptions::with_name("Player"),
            self.now,
        );
        self.clients.push((address, client));
    }

    fn tick(&mut self) {
        self.now = self.now + TICK;
        let now = self.now;
        let mut buffer = [0; 2048];
        let Self { session, heap_use: taken, clients, .. } = self;
        count_heap_use(taken, || session.handle_timeout(now));
        let mut sent = 0;
        while let Some(transmit) = count_heap_use(taken, || session.poll_transmit(&mut buffer, now)) {
            sent += 1;
            assert!(sent < 100_000, "at {now} the session sends without end");
            if let Some((_, client)) = clients.iter_mut().find(|(address, _)| *address == transmit.to) {
                client.handle_datagram(HOST, &mut buffer[..transmit.len], now);
            }
        }
        while let Some(event) = count_heap_use(taken, || session.poll_event()) {
            self.in_game += usize::from(event.name() == "in_game");
            // Counted, too: the player name in the event is freed here.
            count_heap_use(taken, || drop(event));
        }
        for at in 0..self.clients.len() {
            self.poll_client(at);
            let (address, client) = &mut self.clients[at];
            while let Some(transmit) = client.poll_transmit(&mut buffer, now) {
                let session = &mut self.session;
                let bytes = &mut buffer[..transmit.len];
                count_heap_use(&mut self.heap_use, || session.handle_datagram(*address, bytes, now));
            }
        }
    }

    fn poll_client(&mut self, at: usize) {
        let (_, client) = &mut self.clients[at];
        client.handle_timeout(self.now);
        let mut payload = Vec::new();
        while let Some(event) = client.poll_event(&mut payload, self.now) {
            match event {
                // The client has no files at all.
                Event::FileCheck(check) => {
                    let version: &[u8] = if check.index == 0 { b"vvvv" } else { b"" };
                    let answer = [&[0x21, check.index], version, b"dddd\0\0\0"].concat();
                    client.answer_file_check(&answer, self.now).expect("the message is queued");
                }
                Event::Load => client.enter(self.now).expect("the message is queued"),
                _ => self.received += u64::from(!payload.is_empty()),
            }
        }
    }

    fn run(&mut self, duration: Duration) {
        let end = self.now + duration;
        while self.now < end {
            self.tick();
        }
    }
}

/// Returns a message that creates a ship.
fn ship(slot: u8, object: [u8; 4]) -> Vec<u8> {
    [
        &[0x03, slot, slot + 2, 0x08, 0x80, 0, 0][..],
        &object,
        &[5],
        &[0; 35],
        b"\x04Cady\x06Multi1",
        &[0xFF; 53],
    ]
    .concat()
}

/// S-33, S-45: relaying and recording shots allocate nothing, once the session has grown to its load.
#[test]
fn relaying_allocates_nothing() {
    assert_relaying_allocates_nothing(None);
}

/// S-90, S-92: neither does a policy that rewrites each copy, sends a message for each, and wakes up often.
#[test]
fn policy_allocates_nothing() {
    #[derive(Debug)]
    struct Rewriting;
    impl GamePolicy for Rewriting {
        fn on_start(&mut self, host: &mut PolicyHost<'_>) {
            host.wake_at(host.now() + TICK);
        }
        fn on_message(&mut self, message: &PlayerMessage<'_>, host: &mut PolicyHost<'_>) -> Verdict {
            let end = Message::EndGame(EndGame { reason: EndCode::TIME });
            host.send(Recipients::One(message.sender.id()), &end, SendSettings::default());
            Verdict::PerReceiver
        }
        fn on_copy(
            &mut self,
            message: &PlayerMessage<'_>,
            _: PlayerView<'_>,
            copy: &mut CopyBuffer<'_>,
        ) -> CopyVerdict {
            copy.replace(message.message)
        }
        fn on_wake(&mut self, due: Time, host: &mut PolicyHost<'_>) {
            host.wake_at(due + TICK);
        }
    }
    assert_relaying_allocates_nothing(Some(Box::new(Rewriting)));
}

fn assert_relaying_allocates_nothing(policy: Option<Box<dyn GamePolicy>>) {
    let mut counted = CountedSession::new(Config { credit_last_shot: true, ..Config::default() });
    if let Some(policy) = policy {
        counted.session.set_policy(policy, Time::ZERO);
    }
    (0..8).for_each(|n| counted.connect(n));
    counted.run(Duration::from_secs(2));
    assert_eq!(counted.in_game, 8);
    let object =
        |at: usize| (0x3FFF_FFFF + 0x4_0000 * u32::try_from(at).expect("a small number")).to_le_bytes();
    for (at, (_, client)) in counted.clients.iter_mut().enumerate() {
        let ship = ship(u8::try_from(at).expect("a small number"), object(at));
        client.send(&ship, DeliveryMode::Reliable, counted.now).expect("the message is queued");
    }
    counted.run(Duration::from_secs(1));
    assert!(counted.session.players().all(|player| player.ship.is_some()));
    let play = |counted: &mut CountedSession, steps: u32| {
        for step in 0..steps {
            for (at, (_, client)) in counted.clients.iter_mut().enumerate() {
                let update =
                    [&[0x1C][..], &object(at), &[0, 0, 0x80, 0x3F, 0x9D], &[7; 12], &[0x21; 17]].concat();
                client.send(&update, DeliveryMode::Unreliable, counted.now).expect("the message is queued");
                if step % 4 == 0 {
                    client
                        .send(&[0xCD; 25], DeliveryMode::Reliable, counted.now)
                        .expect("the message is queued");
                    let target = object((at + 1) % 8);
                    let torpedo = [&[0x19][..], &object(at), &[2, 1, 0, 127, 0], &target, &[0; 4]].concat();
                    client
                        .send(&torpedo, DeliveryMode::Reliable, counted.now)
                        .expect("the message is queued");
                }
            }
            (0..5).for_each(|_| counted.tick());
        }
    };
    play(&mut counted, 400);
    let (before, received) = (counted.heap_use, counted.received);
    play(&mut counted, 400);
    let copies = counted.received - received;
    assert!(copies >= 8 * 7 * 480, "{copies}");
    let grown = counted.heap_use.allocations - before.allocations;
    println!("{grown} allocations for {copies} copies");
    assert_eq!(grown, 0);
}

/// S-04, S-50: after ten thousand players, a session uses no more memory than before.
#[test]
fn ten_thousand_players_leak_no_memory() {
    let mut counted = CountedSession::new(Config::default());
    let mut next = 0;
    let mut cycle = |counted: &mut CountedSession, players: u32| {
        for _ in 0..players / 8 {
            let before = counted.in_game;
            for _ in 0..8 {
                counted.connect(next);
                next += 1;
            }
            let deadline = counted.now + Duration::from_secs(60);
            while counted.in_game < before + 8 {
                assert!(counted.now < deadline, "players {before} to {} did not enter", before + 7);
                counted.tick();
            }
            for (_, client) in &mut counted.clients {
                client.leave(counted.now);
            }
            // Longer than the linger time after a leave, so that ids and addresses are free again.
            counted.run(Duration::from_secs(16));
            counted.clients.clear();
        }
    };
    cycle(&mut counted, 800);
    let early = counted.heap_use.bytes;
    cycle(&mut counted, 9_200);
    assert_eq!(counted.in_game, 10_000);
    println!("{early} bytes after 800 players, {} after 10,000", counted.heap_use.bytes);
    assert!(counted.heap_use.bytes <= early, "{early} bytes grew to {}", counted.heap_use.bytes);
    assert_eq!(counted.session.players().count(), 0);
    let status = counted.session.status(counted.now);
    assert_eq!((status.players, status.counters.admitted), (0, 10_000));
}
