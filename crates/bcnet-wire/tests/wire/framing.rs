//! The datagram: its sender, its count, its limits.

use bcnet_observe::NonStock;
use bcnet_wire::{Channel, Datagram, Field, Message, PeerId, WireErrorReason, Writer};

use crate::{ack, datagram_error, parse, unhex, unreliable};

/// T-01: sender, count, messages back to back, no bytes behind them.
#[test]
fn datagram_is_sender_count_and_messages() {
    let plain = unhex("02 02 01 27 00 00 01 28 00 00");
    let datagram = Datagram::parse(&plain, None).expect("well formed");
    assert_eq!((datagram.sender(), datagram.count(), datagram.as_bytes()), (PeerId(2), 2, &*plain));
    assert_eq!(
        datagram.messages().collect::<Vec<_>>(),
        [ack(Channel::Game, 39, None), ack(Channel::Game, 40, None)]
    );

    assert_eq!(
        datagram_error("02 02 01 27 00 00 01 28 00 00 00"),
        (10, Field::Message, WireErrorReason::Trailing)
    );
    assert_eq!(
        datagram_error("02 01 01 27 00 00 01 28 00 00"),
        (6, Field::Message, WireErrorReason::Trailing)
    );
    assert_eq!(
        datagram_error("02 03 01 27 00 00 01 28 00 00"),
        (10, Field::Type, WireErrorReason::Truncated)
    );
}

/// T-02: sender ids that no stock sender has are decoded and flagged.
#[test]
fn non_stock_sender_ids_are_reported() {
    for id in 0..=255 {
        let datagram = [id, 1, 2];
        let datagram = Datagram::parse(&datagram, None).expect("a keepalive");
        let non_stock = id == 0 || id == 0x5C || (0x7F..=0xFE).contains(&id);
        assert_eq!(datagram.sender(), PeerId(id));
        assert_eq!(
            NonStock::of_datagram(&datagram).contains(NonStock::SENDER),
            non_stock,
            "sender 0x{id:02X}"
        );
        assert_eq!(PeerId(id).is_assignable(), !non_stock && id != 1 && id != 0xFF, "0x{id:02X}");
    }
    let ids =
        [PeerId(2), PeerId::HOST, PeerId::UNASSIGNED, PeerId::GAMESPY, PeerId::NULL].map(|id| id.to_string());
    assert_eq!(ids, ["peer 2", "host", "unassigned", "peer 0x5C", "peer 0x00"]);
}

/// T-03: a datagram has 1 to 255 messages; a count of 0 is malformed, and the writer makes no such datagram.
#[test]
fn a_datagram_holds_1_to_255_messages() {
    assert_eq!(datagram_error("01 00"), (1, Field::Count, WireErrorReason::CountZero));
    assert_eq!(datagram_error("01 00 02"), (1, Field::Count, WireErrorReason::CountZero));
    assert_eq!(Writer::new(&mut [0; 512], PeerId::HOST).finish(), None);

    let mut buffer = [0; 600];
    let mut writer = Writer::with_limit(&mut buffer, PeerId::HOST, 600);
    assert_eq!((0..300).filter(|_| writer.push(&Message::Keepalive)).count(), 255);
    let written = writer.finish().expect("the datagram has messages");
    assert_eq!((written.len(), written[1]), (257, 255));
    assert_eq!(Datagram::parse(written, None).expect("well formed").messages().count(), 255);
}

/// T-04: the writer stops at 512 bytes; datagrams up to the largest UDP size parse and are flagged.
#[test]
fn oversized_datagrams_are_read_but_not_written() {
    let mut buffer = [0; 1024];
    let mut writer = Writer::new(&mut buffer, PeerId::HOST);
    assert_eq!(writer.free_bytes(), 510);
    assert!(writer.push(&unreliable(&[7; 407])));
    assert_eq!(writer.free_bytes(), 100);
    assert!(!writer.push(&unreliable(&[8; 98])));
    assert_eq!(writer.free_bytes(), 100);
    assert!(writer.push(&unreliable(&[8; 97])));
    assert_eq!(writer.free_bytes(), 0);
    assert!(!writer.push(&Message::Keepalive));
    assert_eq!(writer.finish().map(|datagram| (datagram.len(), datagram[1])), Some((512, 2)));

    for (len, flagged) in [(512, false), (513, true), (65_535, true)] {
        let mut buffer = vec![0; len];
        let mut writer = Writer::with_limit(&mut buffer, PeerId::HOST, len);
        while writer.free_bytes() > 3 {
            assert!(writer.push(&unreliable(&vec![9; (writer.free_bytes() - 3).min(400)])));
        }
        let free = writer.free_bytes();
        assert!((0..free).all(|_| writer.push(&Message::Keepalive)));
        let datagram = Datagram::parse(writer.finish().expect("full"), None).expect("well formed");
        assert_eq!(NonStock::of_datagram(&datagram).contains(NonStock::LARGE_DATAGRAM), flagged, "{len}");
    }
}

/// T-04: a buffer or limit that is too small for any datagram is refused, not overrun.
#[test]
fn writer_refuses_messages_without_space() {
    for len in 0..=2 {
        let mut buffer = [0; 2];
        let mut writer = Writer::new(&mut buffer[..len], PeerId::HOST);
        assert_eq!(writer.free_bytes(), 0);
        assert!(!writer.push(&Message::Keepalive));
        assert_eq!(writer.finish(), None);
    }
    let mut buffer = [0xEE; 8];
    let mut writer = Writer::with_limit(&mut buffer, PeerId(2), 3);
    assert!(writer.push(&Message::Keepalive));
    assert!(!writer.push(&Message::Keepalive));
    assert_eq!(writer.finish().as_deref(), Some(&[2, 1, 2][..]));
    assert_eq!(buffer[3..], [0xEE; 5]);
}

/// T-06: a malformed datagram gives no messages; empty and one-byte datagrams are errors, too.
#[test]
fn zero_length_and_one_byte_datagrams_are_truncated() {
    assert_eq!(datagram_error(""), (0, Field::Sender, WireErrorReason::Truncated));
    assert_eq!(datagram_error("01"), (1, Field::Count, WireErrorReason::Truncated));
    // A well-formed first message does not make the datagram valid.
    assert_eq!(datagram_error("01 02 02 01"), (4, Field::Sequence, WireErrorReason::Truncated));
}

/// T-06: 65,535 equal bytes parse or are refused without a panic.
#[test]
fn the_largest_datagrams_of_one_byte_value_never_panic() {
    for value in 0..=255 {
        let _ = Datagram::parse(&vec![value; 65_535], None);
    }
    assert_eq!(parse(&vec![2; 65_535]), Err((4, Field::Message, WireErrorReason::Trailing)));
}
