//! Tests of limits and orders that a game rarely reaches.

use std::net::{Ipv4Addr, SocketAddrV4};

use bcnet_transport::Time;
use bcnet_transport::wire::{PeerId, Seq};

use super::Session;
use crate::config::Config;
use crate::member::{Member, MemberState};

fn member(peer: PeerId, port: u16) -> Member {
    let address = SocketAddrV4::new(Ipv4Addr::new(192, 0, 2, 1), port);
    // A refused member's cooldown applies to its port only.
    let state = MemberState::Refused { until: Time::ZERO, reason: bcnet_transport::wire::BootReason::KICKED };
    Member::new(peer, address, state, &Config::default(), Time::ZERO)
}

/// S-52: when the table is full, the session forgets the oldest kick.
#[test]
fn full_kick_table_forgets_the_oldest_kick() {
    let mut session = Session::new(Config::default(), 1);
    for port in 0..100 {
        session.record_kick(&member(PeerId(2), port), Time::ZERO);
    }
    let is_kicked = |port| {
        let address = member(PeerId(2), port).address;
        session.kicked.iter().any(|kick| kick.matches(address))
    };
    assert!(session.kicked.len() < 100, "the table is bounded");
    let kept: Vec<u16> = (0..100).filter(|port| is_kicked(*port)).collect();
    assert_eq!((kept.len(), kept.last()), (session.kicked.len(), Some(&99)));
    assert!(kept.is_sorted_by(|one, next| one + 1 == *next), "{kept:?}");
}

/// S-28: a queue waits for the newest of several names; sequence numbers wrap.
#[test]
fn queue_waits_for_the_newest_name() {
    let mut session = Session::new(Config::default(), 1);
    let peer = PeerId(2);
    session.members.resize_with(3, || None);
    session.members[2] = Some(Box::new(member(peer, 1)));
    for (until, expected) in [(0xFFF0, 0xFFF0), (3, 3), (0xFFF8, 3), (7, 7)] {
        session.hold_queue(peer, Seq(until));
        let queue = session.member(peer).and_then(|member| member.send_queue.as_ref()).expect("a queue");
        assert_eq!(queue.hold_until, Some(Seq(expected)));
    }
}
