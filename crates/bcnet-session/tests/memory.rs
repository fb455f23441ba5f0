//! What a session takes from the heap, counted on the thread that drives it.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::Duration;

use bcnet_session::client::{Client, ClientOptions, Event};
use bcnet_session::{Config, Session};
use bcnet_transport::{Connect, DeliveryMode, Time};

#[path = "../../bcnet-transport/tests/endpoint/heap.rs"]
mod heap;

const HOST: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(192, 0, 2, 1), 22101);
const TICK: Duration = Duration::from_millis(10);

/// What something takes from the heap: how often, and how much of it stays.
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

/// A session and clients without a way between them: what is sent arrives in the next tick.
struct CountedSession {
    now: Time,
    session: Session,
    /// What the session alone has taken.
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
        while let Some(transmit) = count_heap_use(taken, || session.poll_transmit(&mut buffer, now)) {
            if let Some((_, client)) = clients.iter_mut().find(|(address, _)| *address == transmit.to) {
                client.handle_datagram(HOST, &mut buffer[..transmit.len], now);
            }
        }
        while let Some(event) = count_heap_use(taken, || session.poll_event()) {
            self.in_game += usize::from(event.name() == "in_game");
            // Its name goes with it.
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
                // No files at all.
                Event::FileCheck(check) => {
                    let version: &[u8] = if check.index == 0 { b"vvvv" } else { b"" };
                    let answer = [&[0x21, check.index], version, b"dddd\0\0\0"].concat();
                    client.answer_file_check(&answer, self.now).expect("room");
                }
                Event::Load => client.enter(self.now).expect("room"),
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

/// A ship: what it is, where, how it is turned, a name and a set, and subsystems.
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

/// S-33, S-45: once it has grown to its load, passing on takes nothing from the heap, nor does noting who fires at whom.
#[test]
fn relaying_allocates_nothing() {
    let mut hall = CountedSession::new(Config { credit_last_shot: true, ..Config::default() });
    (0..8).for_each(|n| hall.connect(n));
    hall.run(Duration::from_secs(2));
    assert_eq!(hall.in_game, 8);
    let object = |at: usize| (0x3FFF_FFFF + 0x4_0000 * u32::try_from(at).expect("few")).to_le_bytes();
    for (at, (_, client)) in hall.clients.iter_mut().enumerate() {
        let ship = ship(u8::try_from(at).expect("few"), object(at));
        client.send(&ship, DeliveryMode::Reliable, hall.now).expect("room");
    }
    hall.run(Duration::from_secs(1));
    assert!(hall.session.players().all(|player| player.ship.is_some()));
    let play = |hall: &mut CountedSession, steps: u32| {
        for step in 0..steps {
            for (at, (_, client)) in hall.clients.iter_mut().enumerate() {
                let update =
                    [&[0x1C][..], &object(at), &[0, 0, 0x80, 0x3F, 0x9D], &[7; 12], &[0x21; 17]].concat();
                client.send(&update, DeliveryMode::Unreliable, hall.now).expect("room");
                if step % 4 == 0 {
                    client.send(&[0xCD; 25], DeliveryMode::Reliable, hall.now).expect("room");
                    let target = object((at + 1) % 8);
                    let torpedo = [&[0x19][..], &object(at), &[2, 1, 0, 127, 0], &target, &[0; 4]].concat();
                    client.send(&torpedo, DeliveryMode::Reliable, hall.now).expect("room");
                }
            }
            (0..5).for_each(|_| hall.tick());
        }
    };
    play(&mut hall, 400);
    let (before, received) = (hall.heap_use, hall.received);
    play(&mut hall, 400);
    let copies = hall.received - received;
    assert!(copies >= 8 * 7 * 480, "{copies}");
    let grown = hall.heap_use.allocations - before.allocations;
    println!("{grown} allocations for {copies} copies");
    assert_eq!(grown, 0);
}

/// S-04, S-50: ten thousand players later a session holds what it held before.
#[test]
fn ten_thousand_players_leak_no_memory() {
    let mut hall = CountedSession::new(Config::default());
    let mut next = 0;
    let mut cycle = |hall: &mut CountedSession, players: u32| {
        for _ in 0..players / 8 {
            let before = hall.in_game;
            for _ in 0..8 {
                hall.connect(next);
                next += 1;
            }
            while hall.in_game < before + 8 {
                hall.tick();
            }
            for (_, client) in &mut hall.clients {
                client.leave(hall.now);
            }
            // Longer than a leaver lingers, so that ids and addresses are free again.
            hall.run(Duration::from_secs(16));
            hall.clients.clear();
        }
    };
    cycle(&mut hall, 800);
    let early = hall.heap_use.bytes;
    cycle(&mut hall, 9_200);
    assert_eq!(hall.in_game, 10_000);
    println!("{early} bytes after 800 players, {} after 10,000", hall.heap_use.bytes);
    assert!(hall.heap_use.bytes <= early, "{early} bytes grew to {}", hall.heap_use.bytes);
    assert_eq!(hall.session.players().count(), 0);
    let status = hall.session.status(hall.now);
    assert_eq!((status.players, status.counters.admitted), (0, 10_000));
}
