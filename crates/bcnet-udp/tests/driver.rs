//! A driver on loopback: faults of the network, real and simulated, and readiness.

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};
use std::time::Duration;

use bcnet_session::client::{Client, ClientOptions};
use bcnet_session::{Config as SessionConfig, Manifest, Session, client};
use bcnet_transport::link::Faults;
use bcnet_transport::wire::PeerId;
use bcnet_transport::{Config, Connect, DeliveryMode, Driven, Endpoint, Engine, Event, Time};
use bcnet_udp::Driver;

const ANY_PORT: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0);
/// The most time that a test takes when it fails.
const PATIENCE: Duration = Duration::from_secs(30);
const MILLISECOND: Duration = Duration::from_millis(1);

fn bind() -> Driver {
    Driver::bind(ANY_PORT).expect("loopback")
}

fn connect(host: SocketAddrV4) -> Connect<'static> {
    Connect { host, nonce: 7, password: "" }
}

/// Runs both ends on one thread until a turn returns `true`.
fn run<H: Driven, G: Driven>(
    (server, host): (&mut Driver, &mut H),
    (client, guest): (&mut Driver, &mut G),
    mut turn: impl FnMut(&mut H, &mut G, Time) -> bool,
) {
    loop {
        let now = server.receive(host).expect("the server receives");
        let guest_now = client.receive(guest).expect("the client receives");
        let is_done = turn(host, guest, now);
        server.send(host);
        client.send(guest);
        if is_done {
            return;
        }
        assert!(guest_now.since(Time::ZERO) < PATIENCE, "{:?}, {:?}", server.stats(), client.stats());
        client.wait(guest, MILLISECOND).expect("the client waits");
    }
}

/// A sink for datagrams, which counts them.
#[derive(Default)]
struct Sink {
    received: usize,
}

impl Driven for Sink {
    fn handle_datagram(&mut self, _: SocketAddrV4, _: &mut [u8], _: Time) {
        self.received += 1;
    }

    fn handle_timeout(&mut self, _: Time) {}

    fn next_timeout(&self) -> Option<Time> {
        None
    }

    fn poll_transmit(&mut self, _: &mut [u8], _: Time) -> Option<bcnet_transport::Transmit> {
        None
    }
}

#[test]
fn reliable_payloads_arrive_once_and_in_order_over_a_bad_link() {
    const PAYLOADS: u32 = 300;
    let (mut server, mut client) = (bind(), bind());
    let faults = Faults {
        loss: 0.1,
        duplicate: 0.1,
        reorder: 0.1,
        reorder_by: 3 * MILLISECOND,
        delay: 2 * MILLISECOND,
        jitter: MILLISECOND,
        ..Faults::default()
    };
    client.simulate(faults, 1701);
    let address = server.local_address().expect("bound");
    let mut host = Endpoint::host(Config::default());
    let mut guest = Endpoint::connect(Config::default(), connect(address), client.now());
    let (mut payload, mut sent, mut received) = (Vec::new(), 0, Vec::new());
    run((&mut server, &mut host), (&mut client, &mut guest), |host, guest, now| {
        while let Some(event) = host.poll_event(&mut payload) {
            match event {
                Event::Request { from, .. } => drop(host.admit(from, now)),
                Event::Received { .. } => {
                    received.push(u32::from_le_bytes(payload[..].try_into().expect("four bytes")));
                }
                _ => {}
            }
        }
        while guest.poll_event(&mut payload).is_some() {}
        let is_connected = guest.id() != PeerId::UNASSIGNED;
        if is_connected && sent < PAYLOADS {
            guest.send(PeerId::HOST, &sent.to_le_bytes(), DeliveryMode::Reliable, now).expect("connected");
            sent += 1;
        }
        received.len() == PAYLOADS as usize
    });
    assert_eq!(received, (0..PAYLOADS).collect::<Vec<_>>());
    let [incoming, outgoing] = client.simulation_stats().expect("a simulation");
    for stats in [incoming, outgoing] {
        assert!(stats.lost > 0 && stats.duplicated > 0 && stats.reordered > 0, "{stats:?}");
    }
    let received = client.stats().received;
    assert_eq!(incoming.sent, received, "every datagram goes over the simulated link");
}

#[test]
fn session_and_client_run_on_drivers() {
    let (mut server, mut client) = (bind(), bind());
    let address = server.local_address().expect("bound");
    let mut session = Session::new(SessionConfig::default(), 1);
    let mut guest =
        Client::connect(Config::default(), connect(address), ClientOptions::with_name("Kirk"), client.now());
    let mut payload = Vec::new();
    run((&mut server, &mut session), (&mut client, &mut guest), |_, guest, now| {
        while let Some(event) = guest.poll_event(&mut payload, now) {
            match event {
                client::Event::FileCheck(_) => {
                    guest.answer_from_manifest(&Manifest::placeholder(), now).expect("an answer");
                }
                client::Event::Load => guest.enter(now).expect("the right state"),
                client::Event::Gone { state, reason } => panic!("{state}: {reason}"),
                _ => {}
            }
        }
        guest.has_entered()
    });
}

/// Windows reports the closed port as an error of the next receive call; Linux reports it to connected sockets.
#[test]
fn client_connects_to_a_host_that_starts_late() {
    let free = UdpSocket::bind(ANY_PORT).expect("loopback");
    let address = match free.local_addr() {
        Ok(SocketAddr::V4(address)) => address,
        other => panic!("{other:?}"),
    };
    drop(free);
    let mut client = bind();
    let mut guest = Endpoint::connect(Config::default(), connect(address), client.now());
    client.send(&mut guest);
    assert_eq!((client.stats().sent, client.stats().unsent), (1, 0));
    client.wait(&guest, MILLISECOND).expect("no error");
    client.receive(&mut guest).expect("an unreachable host is no error");
    let mut server = Driver::bind(address).expect("the port is free");
    let (mut host, mut payload, mut is_joined) = (Endpoint::host(Config::default()), Vec::new(), false);
    run((&mut server, &mut host), (&mut client, &mut guest), |host, guest, now| {
        while let Some(event) = host.poll_event(&mut payload) {
            if let Event::Request { from, .. } = event {
                host.admit(from, now).expect("admitted");
            }
        }
        while let Some(event) = guest.poll_event(&mut payload) {
            is_joined |= matches!(event, Event::Joined { .. });
        }
        is_joined
    });
}

#[test]
fn flood_ends_a_receive_call_and_the_next_wait_is_over_at_once() {
    const FLOOD: usize = 1100;
    let (mut driver, flooder) = (bind(), UdpSocket::bind(ANY_PORT).expect("loopback"));
    let address = driver.local_address().expect("bound");
    for _ in 0..FLOOD {
        flooder.send_to(b"flood", address).expect("sent");
    }
    let mut sink = Sink::default();
    driver.receive(&mut sink).expect("received");
    assert_eq!(sink.received, 1024);
    assert_eq!(driver.timeout(&sink), Some(Duration::ZERO));
    // An hour passes only if the driver waits for a new datagram.
    driver.wait(&sink, Duration::from_secs(3600)).expect("waited");
    driver.receive(&mut sink).expect("received");
    assert_eq!((sink.received, driver.stats().received), (FLOOD, FLOOD as u64));
    assert_eq!(driver.timeout(&sink), None);
}

#[test]
fn timeout_covers_datagrams_on_the_simulated_link() {
    let (mut driver, remote) = (bind(), UdpSocket::bind(ANY_PORT).expect("loopback"));
    let delay = Duration::from_millis(20);
    driver.simulate(Faults { delay, ..Faults::default() }, 1);
    remote.send_to(b"late", driver.local_address().expect("bound")).expect("sent");
    let mut sink = Sink::default();
    while driver.stats().received == 0 {
        driver.wait(&sink, PATIENCE).expect("waited");
        driver.receive(&mut sink).expect("received");
    }
    assert_eq!(sink.received, 0);
    assert!(driver.timeout(&sink).is_some_and(|timeout| timeout <= delay));
    while sink.received == 0 {
        driver.wait(&sink, PATIENCE).expect("waited");
        driver.receive(&mut sink).expect("received");
    }
    assert_eq!(driver.timeout(&sink), None);
}

#[cfg(unix)]
#[test]
fn driver_lends_its_descriptor() {
    use std::os::fd::AsFd;
    let driver = bind();
    let other: UdpSocket = driver.as_fd().try_clone_to_owned().expect("a descriptor").into();
    assert_eq!(other.local_addr().ok(), driver.local_address().ok().map(SocketAddr::V4));
}
