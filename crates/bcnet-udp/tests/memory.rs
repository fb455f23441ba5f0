//! The allocations of a driver, counted on the thread that runs it.

use std::time::Duration;

use bcnet_transport::link::Faults;
use bcnet_transport::wire::PeerId;
use bcnet_transport::{Config, Connect, DeliveryMode, Endpoint, Engine, Event};
use bcnet_udp::Driver;

#[path = "../../bcnet-transport/tests/endpoint/heap.rs"]
mod heap;

const DELAY: Duration = Duration::from_micros(500);

fn bind() -> Driver {
    let mut driver = Driver::bind("127.0.0.1:0".parse().expect("an address")).expect("loopback");
    driver.simulate(Faults { delay: DELAY, duplicate: 0.2, ..Faults::default() }, 1);
    driver
}

#[test]
fn steady_load_does_not_allocate_for_each_datagram() {
    let (mut server, mut client) = (bind(), bind());
    let connect = Connect { host: server.local_address().expect("bound"), nonce: 7, password: "" };
    let mut host = Endpoint::host(Config::default());
    let mut guest = Endpoint::connect(Config::default(), connect, client.now());
    let (mut payload, mut received, mut allocations) = (Vec::with_capacity(1024), 0, 0);
    while received < 2000 {
        if received == 1000 {
            allocations = heap::allocations();
        }
        let now = server.receive(&mut host).expect("received");
        while let Some(event) = host.poll_event(&mut payload) {
            match event {
                Event::Request { from, .. } => drop(host.admit(from, now)),
                Event::Received { .. } => received += 1,
                _ => {}
            }
        }
        server.send(&mut host);
        let now = client.receive(&mut guest).expect("received");
        while guest.poll_event(&mut payload).is_some() {}
        if guest.id() != PeerId::UNASSIGNED {
            // An error means that the host is gone, and the test fails below.
            let _ = guest.send(PeerId::HOST, b"one of many", DeliveryMode::Unreliable, now);
        }
        client.send(&mut guest);
        client.wait(&guest, DELAY).expect("waited");
        assert!(now.as_micros() < 60_000_000, "{received} received");
    }
    // A few more datagrams than before may be under way at once.
    assert!(heap::allocations() - allocations < 20, "{:?}", client.stats());
}
