//! The simulated link: its faults depend on the seed alone, and its memory is bounded.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::Duration;

use bcnet_transport::Time;
use bcnet_transport::link::{Faults, LinkStats, SimulatedLink};

const REMOTE: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(192, 0, 2, 1), 22101);
const DELAY: Duration = Duration::from_millis(40);

fn bad_faults() -> Faults {
    Faults {
        loss: 0.1,
        duplicate: 0.1,
        reorder: 0.1,
        reorder_by: DELAY,
        corrupt: 0.1,
        delay: DELAY,
        jitter: DELAY / 4,
        ..Faults::default()
    }
}

/// Sends a thousand numbers, one each millisecond, and returns all arrivals with their times.
fn send_numbers(faults: Faults, seed: u64) -> (Vec<(u64, Vec<u8>)>, LinkStats) {
    let mut link = SimulatedLink::new(faults, seed);
    let mut arrivals = Vec::new();
    for number in 0..1200_u32 {
        let now = Time::ZERO + Duration::from_millis(number.into());
        if number < 1000 {
            link.push(REMOTE, &number.to_le_bytes(), now);
        }
        while let Some((from, bytes)) = link.pop(now) {
            assert_eq!(from, REMOTE);
            arrivals.push((now.as_micros(), bytes.to_vec()));
        }
    }
    assert_eq!(link.next_arrival(), None);
    (arrivals, link.stats())
}

#[test]
fn same_seed_gives_the_same_arrivals_and_another_seed_others() {
    let first = send_numbers(bad_faults(), 1);
    assert_eq!(first, send_numbers(bad_faults(), 1));
    assert_ne!(first.0, send_numbers(bad_faults(), 2).0);
    let (arrivals, stats) = first;
    assert_eq!(arrivals.len() as u64, stats.sent - stats.lost + stats.duplicated);
    let numbers =
        arrivals.iter().map(|(_, bytes)| u32::from_le_bytes(bytes[..].try_into().expect("four bytes")));
    assert!(!numbers.is_sorted(), "nothing was reordered");
    for count in [stats.lost, stats.duplicated, stats.reordered, stats.corrupted] {
        assert!((50..200).contains(&count), "{stats:?}");
    }
}

#[test]
fn link_without_faults_delivers_everything_in_order_at_once() {
    let (arrivals, stats) = send_numbers(Faults::default(), 1);
    let expected = (0..1000_u32).map(|number| (u64::from(number) * 1000, number.to_le_bytes().to_vec()));
    assert_eq!(arrivals, expected.collect::<Vec<_>>());
    assert_eq!(stats, LinkStats { sent: 1000, bytes: 4000, ..LinkStats::default() });
}

#[test]
fn datagrams_above_the_capacity_are_dropped() {
    let mut link = SimulatedLink::new(Faults { delay: DELAY, ..Faults::default() }, 1);
    for _ in 0..SimulatedLink::CAPACITY + 3 {
        link.push(REMOTE, b"", Time::ZERO);
    }
    assert_eq!(link.stats().dropped, 3);
    assert!(link.pop(Time::ZERO).is_none());
    let mut arrived = 0;
    while link.pop(Time::ZERO + DELAY).is_some() {
        arrived += 1;
    }
    assert_eq!(arrived, SimulatedLink::CAPACITY);
}
