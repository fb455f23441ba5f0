//! The rules of the wire format, one by one.

use std::net::Ipv4Addr;
use std::num::NonZeroU8;

use bcnet_transport::wire::{
    Ack, Body, BootReason, Channel, Control, Data, Datagram, Delivery, Field, Kind, Message, MessageId,
    NonStock, Part, PeerId, Reason, Role, Seq, Text, WireError, Writer,
};

/// T-01: sender, count, messages back to back, nothing behind them.
#[test]
fn a_datagram_is_sender_count_and_messages_and_nothing_else() {
    let plain = unhex("02 02 01 27 00 00 01 28 00 00");
    let datagram = Datagram::parse(&plain, None).expect("well formed");
    assert_eq!((datagram.sender(), datagram.count(), datagram.as_bytes()), (PeerId(2), 2, &*plain));
    assert_eq!(
        datagram.messages().collect::<Vec<_>>(),
        [ack(Channel::Game, 39, None), ack(Channel::Game, 40, None)]
    );

    assert_eq!(error("02 02 01 27 00 00 01 28 00 00 00"), (10, Field::Message, Reason::Trailing));
    assert_eq!(error("02 01 01 27 00 00 01 28 00 00"), (6, Field::Message, Reason::Trailing));
    assert_eq!(error("02 03 01 27 00 00 01 28 00 00"), (10, Field::Type, Reason::Truncated));
}

/// T-02: which ids a stock sender has; the others are decoded and flagged.
#[test]
fn sender_ids_that_no_stock_peer_has_are_flagged() {
    for id in 0..=255 {
        let datagram = [id, 1, 2];
        let datagram = Datagram::parse(&datagram, None).expect("a keepalive");
        let odd = id == 0 || id == 0x5C || (0x7F..=0xFE).contains(&id);
        assert_eq!(datagram.sender(), PeerId(id));
        assert_eq!(datagram.non_stock().contains(NonStock::SENDER), odd, "sender 0x{id:02X}");
        assert_eq!(PeerId(id).is_assignable(), !odd && id != 1 && id != 0xFF, "0x{id:02X}");
    }
    let ids =
        [PeerId(2), PeerId::HOST, PeerId::UNASSIGNED, PeerId::GAMESPY, PeerId::NULL].map(|id| id.to_string());
    assert_eq!(ids, ["peer 2", "host", "unassigned", "peer 0x5C", "peer 0x00"]);
}

/// T-03: one message to 255; none is malformed, and the writer sends no empty datagram.
#[test]
fn a_datagram_holds_1_to_255_messages() {
    assert_eq!(error("01 00"), (1, Field::Count, Reason::CountZero));
    assert_eq!(error("01 00 02"), (1, Field::Count, Reason::CountZero));
    assert_eq!(Writer::new(&mut [0; 512], PeerId::HOST).finish(), None);

    let mut buffer = [0; 600];
    let mut writer = Writer::with_limit(&mut buffer, PeerId::HOST, 600);
    assert_eq!((0..300).filter(|_| writer.push(&Message::Keepalive)).count(), 255);
    let written = writer.finish().expect("it holds messages");
    assert_eq!((written.len(), written[1]), (257, 255));
    assert_eq!(Datagram::parse(written, None).expect("well formed").messages().count(), 255);
}

/// T-04: the writer stops at 512 bytes; larger datagrams, up to the largest UDP allows, are read and flagged.
#[test]
fn datagrams_over_512_bytes_are_not_written_but_read_and_flagged() {
    let mut buffer = [0; 1024];
    let mut writer = Writer::new(&mut buffer, PeerId::HOST);
    assert_eq!(writer.room(), 510);
    assert!(writer.push(&unreliable(&[7; 407])));
    assert_eq!(writer.room(), 100);
    assert!(!writer.push(&unreliable(&[8; 98])));
    assert_eq!(writer.room(), 100);
    assert!(writer.push(&unreliable(&[8; 97])));
    assert_eq!(writer.room(), 0);
    assert!(!writer.push(&Message::Keepalive));
    assert_eq!(writer.finish().map(|datagram| (datagram.len(), datagram[1])), Some((512, 2)));

    for (len, odd) in [(512, false), (513, true), (65_535, true)] {
        let mut buffer = vec![0; len];
        let mut writer = Writer::with_limit(&mut buffer, PeerId::HOST, len);
        while writer.room() > 3 {
            assert!(writer.push(&unreliable(&vec![9; (writer.room() - 3).min(400)])));
        }
        let room = writer.room();
        assert!((0..room).all(|_| writer.push(&Message::Keepalive)));
        let datagram = Datagram::parse(writer.finish().expect("full"), None).expect("well formed");
        assert_eq!(datagram.non_stock().contains(NonStock::LARGE_DATAGRAM), odd, "{len}");
    }
}

/// T-04: a buffer or a limit too small for any datagram is refused, not overrun.
#[test]
fn a_writer_without_room_refuses() {
    for len in 0..=2 {
        let mut buffer = [0; 2];
        let mut writer = Writer::new(&mut buffer[..len], PeerId::HOST);
        assert_eq!(writer.room(), 0);
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

/// T-06: nothing of a malformed datagram is given out; empty and one-byte datagrams are errors too.
#[test]
fn zero_length_and_one_byte_datagrams_are_truncated() {
    assert_eq!(error(""), (0, Field::Sender, Reason::Truncated));
    assert_eq!(error("01"), (1, Field::Count, Reason::Truncated));
    // A good message first does not help.
    assert_eq!(error("01 02 02 01"), (4, Field::Sequence, Reason::Truncated));
}

/// T-06: 65,535 bytes of anything are read or refused without harm.
#[test]
fn the_largest_datagrams_of_one_byte_value_never_panic() {
    for value in 0..=255 {
        let _ = Datagram::parse(&vec![value; 65_535], None);
    }
    assert_eq!(parse(&vec![2; 65_535]), Err((4, Field::Message, Reason::Trailing)));
}

/// T-10: only seven types exist; any other refuses the whole datagram and keeps its value.
#[test]
fn unknown_types_refuse_the_datagram_and_keep_their_value() {
    let known = [0x00, 0x01, 0x02, 0x03, 0x04, 0x05, 0x32];
    for kind in 0..=255 {
        let found = parse(&[1, 2, 2, kind]);
        if known.contains(&kind) {
            assert!(Kind(kind).name().is_some());
            assert_ne!(found, Err((3, Field::Type, Reason::UnknownType(Kind(kind)))));
        } else {
            assert_eq!(Kind(kind).name(), None);
            assert_eq!(found, Err((3, Field::Type, Reason::UnknownType(Kind(kind)))));
        }
    }
    let names = [0x00, 0x01, 0x02, 0x03, 0x04, 0x05, 0x32, 0x33].map(|kind| Kind(kind).to_string());
    assert_eq!(names, ["identity", "ack", "keepalive", "connect", "boot", "disconnect", "data", "type 0x33"]);
}

/// T-11: kinds below 0x32 are numbered apart from the others.
#[test]
fn the_channel_follows_from_the_kind() {
    assert_eq!(Kind(0x00).channel(), Channel::Control);
    assert_eq!(Kind(0x31).channel(), Channel::Control);
    assert_eq!(Kind(0x32).channel(), Channel::Game);
    assert_eq!(Kind(0xFF).channel(), Channel::Game);
    let boot = message("04 07 C0 02 00 04 02");
    assert_eq!(boot.id(), Some(MessageId { channel: Channel::Control, seq: Seq(2), part: None }));
    let data = message("32 06 80 05 00 28");
    assert_eq!(data.id(), Some(MessageId { channel: Channel::Game, seq: Seq(5), part: None }));
    assert_eq!(message("32 04 00 28").id(), None);
    assert_eq!(message("02").id(), None);
    assert_eq!(message("01 00 00 00").id(), None);
    assert_eq!(message("05 0A 40 02 00 02 0A 0A 0A EF").id(), None);
}

/// T-12: bit 15 reliable, bit 14 urgent, bit 13 part, bits 12 to 0 size; urgent data is not stock.
#[test]
fn the_word_of_a_data_message_has_three_flags_and_13_bits_of_size() {
    assert_eq!(message("32 04 00 AA"), unreliable(&[0xAA]));
    assert_eq!(message("32 06 80 34 12 AA"), data(Delivery::Reliable(Seq(0x1234)), &[0xAA]));
    let urgent = message("32 06 C0 34 12 AA");
    assert_eq!(
        urgent,
        Message::Data(Data { delivery: Delivery::Reliable(Seq(0x1234)), urgent: true, payload: &[0xAA] })
    );
    assert_eq!(urgent.non_stock(), NonStock::DATA_URGENT);
    assert_eq!(message("32 04 40 AA").non_stock(), NonStock::DATA_URGENT);

    let mut largest = unhex("32 FF 1F");
    largest.resize(8191, 7);
    assert_eq!(Message::parse(&largest, None).expect("well formed").wire_len(), 8191);
}

/// T-12, T-13: what the size cannot express is refused by the writer.
#[test]
fn messages_larger_than_their_size_field_are_refused() {
    let mut buffer = vec![0; 65_535];
    let payload = vec![1; 16_383];
    for (len, fits) in [(8188, true), (8189, false), (16_383, false)] {
        let mut writer = Writer::with_limit(&mut buffer, PeerId::HOST, 65_535);
        assert_eq!(writer.push(&unreliable(&payload[..len])), fits, "{len}");
        assert_eq!(writer.finish().is_some(), fits);
    }
    for (len, fits) in [(16_377, true), (16_378, false)] {
        let body = Body::ConnectReply { assigned: PeerId(2) };
        let control = Message::Control(Control { tail: &payload[..len], ..Control::new(Seq(0), body) });
        let mut writer = Writer::with_limit(&mut buffer, PeerId::HOST, 65_535);
        assert_eq!(writer.push(&control), fits, "{len}");
        if let Some(written) = writer.finish() {
            assert_eq!(
                Datagram::parse(written, Some(Role::Host)).expect("well formed").messages().next(),
                Some(control)
            );
        }
    }
}

/// T-13: a control message has no part flag; bit 13 belongs to its 14 bits of size.
#[test]
fn the_word_of_a_control_message_has_14_bits_of_size() {
    let mut large = unhex("05 0A E0 02 00 02 0A 0A 0A EF");
    large.resize(0x200A, 0);
    let parsed = Message::parse(&large, None).expect("well formed");
    assert_eq!(parsed.wire_len(), 0x200A);
    assert_eq!(parsed.non_stock(), NonStock::TAIL | NonStock::LARGE_MESSAGE);
    assert_eq!(error_in("05 0A E0 02 00 02 0A 0A 0A EF"), (10, Field::Tail, Reason::Truncated));
}

/// T-14: the size counts from the type byte; one that is too small for its kind is malformed.
#[test]
fn sizes_below_the_header_of_their_kind_are_bad() {
    let bad = |found, least| (1, Field::Size, Reason::BadSize { found, least });
    assert_eq!(error_in("32 02 00"), bad(2, 3));
    assert_eq!(error_in("32 00 00"), bad(0, 3));
    assert_eq!(error_in("32 04 80 00 00"), bad(4, 5));
    assert_eq!(error_in("32 04 A0 00 00"), bad(4, 6));
    assert_eq!(error_in("32 05 A0 00 00 01"), bad(5, 6));
    assert_eq!(error_in("32 06 A0 00 00 00 02"), bad(6, 7));
    assert_eq!(error_in("32 02 20"), bad(2, 4));
    assert_eq!(error_in("32 03 20 01"), bad(3, 4));
    assert_eq!(error_in("32 04 20 00 02"), bad(4, 5));
    assert_eq!(error_as("03 05 C0 00 00 02", Role::Host), bad(5, 6));
    assert_eq!(error_as("03 0E C0 00 00 0A 0A 0A EF 5F 0A 00 00 00 00", Role::Client), bad(14, 15));
    assert_eq!(error_in("04 06 C0 00 00 04 02"), bad(6, 7));
    assert_eq!(error_in("05 09 C0 00 00 02 0A 0A 0A EF"), bad(9, 10));
    assert_eq!(error_in("00 0B C0 00 00 02 0A 0A 0A EF 00 00"), bad(11, 12));
    // The same, not at the beginning of a datagram.
    assert_eq!(
        error("01 02 02 04 06 C0 00 00 04 02"),
        (4, Field::Size, Reason::BadSize { found: 6, least: 7 })
    );
}

/// T-14: the least sizes are enough, and sizes 3 and 4 are legal for unreliable data.
#[test]
fn the_least_sizes_of_each_kind_are_good() {
    assert_eq!(message("32 03 00"), unreliable(&[]));
    assert_eq!(message("32 04 00 07"), unreliable(&[7]));
    assert_eq!(message("32 05 80 01 00"), data(Delivery::Reliable(Seq(1)), &[]));
    assert_eq!(message("32 06 A0 01 00 09"), data(Delivery::Fragment(Seq(1), later(9)), &[]));
    assert_eq!(message("32 07 A0 01 00 00 02"), data(Delivery::Fragment(Seq(1), first(2)), &[]));
    let reply = Body::ConnectReply { assigned: PeerId(2) };
    assert_eq!(message("03 06 C0 00 00 02"), Message::Control(Control::new(Seq(0), reply)));
    for each in ["32 03 00", "32 04 00 07", "32 05 80 01 00", "32 07 A0 01 00 00 02", "03 06 C0 00 00 02"] {
        assert!(message(each).non_stock().is_empty(), "{each}");
    }
}

/// T-14: a size beyond the datagram means that it was cut; the error tells in which field.
#[test]
fn sizes_beyond_the_datagram_are_truncated_and_name_the_field() {
    let cut = |at, field| (at, field, Reason::Truncated);
    let cases: &[(&str, usize, &[Field])] = &[
        ("32 08 80 34 12 AA BB CC", 1, &[Field::Size; 2]),
        ("32 08 80 34 12 AA BB CC", 3, &[Field::Sequence; 2]),
        ("32 08 80 34 12 AA BB CC", 5, &[Field::Payload; 3]),
        ("32 08 00 34 12 AA BB CC", 3, &[Field::Payload; 5]),
        (
            "32 08 A0 34 12 00 02 CC",
            3,
            &[Field::Sequence, Field::Sequence, Field::Part, Field::Total, Field::Payload],
        ),
        ("32 08 A0 34 12 01 02 CC", 5, &[Field::Part, Field::Payload, Field::Payload]),
        ("32 06 20 00 02 CC", 3, &[Field::Part, Field::Total, Field::Payload]),
        ("01 02 00 01 01", 1, &[Field::Sequence, Field::Sequence, Field::Flags, Field::Part]),
        (
            "04 07 C0 02 00 04 02",
            1,
            &[Field::Size, Field::Size, Field::Sequence, Field::Sequence, Field::BootReason, Field::Target],
        ),
        ("04 08 C0 02 00 04 02 00", 6, &[Field::Target, Field::Tail]),
        (
            "05 0A C0 02 00 02 0A 0A 0A EF",
            5,
            &[Field::Peer, Field::Address, Field::Address, Field::Address, Field::Address],
        ),
        ("05 0B C0 02 00 02 0A 0A 0A EF 00", 10, &[Field::Tail]),
        (
            "00 0E C0 02 00 02 0A 0A 0A EF 41 00 00 00",
            5,
            &[
                Field::Peer,
                Field::Address,
                Field::Address,
                Field::Address,
                Field::Address,
                Field::Name,
                Field::Name,
                Field::Name,
                Field::Name,
            ],
        ),
    ];
    for (whole, start, fields) in cases {
        let whole = unhex(whole);
        assert!(Message::parse(&whole, None).is_ok(), "{whole:02X?}");
        for (len, field) in (*start..).zip(*fields) {
            assert_eq!(parse_in(&whole[..len], None), Err(cut(len, *field)), "{whole:02X?} cut to {len}");
        }
    }
    let request = unhex("03 0F C0 00 00 0A 0A 0A EF 5F 0A 00 00 00 00");
    for (len, field) in [
        (5, Field::Address),
        (8, Field::Address),
        (9, Field::Nonce),
        (12, Field::Nonce),
        (13, Field::Password),
        (14, Field::Password),
    ] {
        assert_eq!(parse_in(&request[..len], Some(Role::Client)), Err(cut(len, field)), "cut to {len}");
    }
    assert_eq!(error_as("03 06 C0 00 00", Role::Host), cut(5, Field::Assigned));
    assert_eq!(error_as("03 07 C0 00 00 02", Role::Host), cut(6, Field::Tail));
}

/// T-14: bytes behind the last field of a control message are kept and flagged.
#[test]
fn a_longer_control_message_is_read_and_its_tail_kept() {
    for (each, tail) in [
        ("04 09 C0 02 00 04 02 AA BB", &[0xAA, 0xBB][..]),
        ("05 0B C0 02 00 02 0A 0A 0A EF 01", &[1]),
        ("03 07 C0 00 00 02 05", &[5]),
        ("00 10 C0 01 00 02 0A 0A 0A EF 41 00 00 00 42 00", &[0x42, 0]),
    ] {
        let parsed = message(each);
        let Message::Control(control) = parsed else { panic!("{parsed}") };
        assert_eq!((control.tail, parsed.non_stock()), (tail, NonStock::TAIL), "{each}");
        assert_eq!(written(&parsed), unhex(each));
    }
}

/// T-15: data carries a sequence number exactly when bit 15 is set.
///
/// The claim that every header is five bytes long is refuted by a captured 13-byte message: with a number in it,
/// the payload would not begin with its opcode 0x1C.
#[test]
fn unreliable_data_has_no_sequence_number() {
    let Message::Data(state) = message("32 0D 00 1C FF FF FF 3F 00 11 22 33 80") else { panic!("no data") };
    assert_eq!((state.delivery, state.payload.len(), state.payload[0]), (Delivery::Unreliable, 10, 0x1C));
    assert_eq!(message("32 06 80 05 00 28"), data(Delivery::Reliable(Seq(5)), &[0x28]));
}

/// T-16: control messages have their number even without bit 15, and stock sets bits 15 and 14.
#[test]
fn control_messages_always_have_a_sequence_number() {
    for (word, reliable, urgent, odd) in [
        ("C0", true, true, NonStock::NONE),
        ("80", true, false, NonStock::CONTROL_NOT_URGENT),
        ("40", false, true, NonStock::CONTROL_UNRELIABLE),
        ("00", false, false, NonStock::CONTROL_UNRELIABLE | NonStock::CONTROL_NOT_URGENT),
    ] {
        let bytes = format!("04 07 {word} 02 01 04 02");
        let parsed = message(&bytes);
        let Message::Control(control) = parsed else { panic!("{parsed}") };
        assert_eq!((control.seq, control.reliable, control.urgent), (Seq(0x0102), reliable, urgent));
        assert_eq!((parsed.non_stock(), parsed.id().is_some()), (odd, reliable));
        assert_eq!(written(&parsed), unhex(&bytes));
    }
    let fresh = Control::new(Seq(2), Body::Boot { reason: BootReason::KICKED, target: PeerId(2) });
    assert_eq!(written(&Message::Control(fresh)), unhex("04 07 C0 02 00 04 02"));
}

/// T-16: a message can be odd in several ways, each of which is told once.
#[test]
fn oddities_add_up_and_each_counts_once() {
    let (unreliable, not_urgent) = (NonStock::CONTROL_UNRELIABLE, NonStock::CONTROL_NOT_URGENT);
    for (left, right, names) in [
        (NonStock::NONE, NonStock::NONE, &[][..]),
        (NonStock::NONE, unreliable, &["control_unreliable"]),
        (unreliable, unreliable, &["control_unreliable"]),
        (unreliable | not_urgent, not_urgent, &["control_unreliable", "control_not_urgent"]),
    ] {
        let both = left | right;
        assert_eq!(both.names().collect::<Vec<_>>(), names);
        assert_eq!(both.is_empty(), names.is_empty(), "{both}");
    }
}

/// T-17: a control word of zero is malformed; there is no empty three-byte message.
#[test]
fn a_control_word_of_zero_is_refused() {
    for (kind, least) in [("00", 12), ("04", 7), ("05", 10)] {
        let found = error_in(&format!("{kind} 00 00"));
        assert_eq!(found, (1, Field::Size, Reason::BadSize { found: 0, least }));
        // Not even if what follows would make sense.
        let found = error(&format!("01 02 {kind} 00 00 02"));
        assert_eq!(found, (3, Field::Size, Reason::BadSize { found: 0, least }));
    }
    assert_eq!(error_as("03 00 00", Role::Host), (1, Field::Size, Reason::BadSize { found: 0, least: 6 }));
    assert_eq!(error_as("03 00 00", Role::Client), (1, Field::Size, Reason::BadSize { found: 0, least: 15 }));
}

/// T-18: bit 8 is part of the size, not "more parts follow": the word 0x8111 is a whole message of 273 bytes, and the
/// bit is missing from the last of the captured parts only because that part is short.
#[test]
fn bit_8_belongs_to_the_size() {
    let mut whole = unhex("32 11 81 04 00 21 FF");
    whole.resize(273, 0);
    let Message::Data(single) = Message::parse(&whole, None).expect("well formed") else { panic!("no data") };
    assert_eq!((single.delivery, single.payload.len()), (Delivery::Reliable(Seq(4)), 268));

    // Three parts of 412, 412 and 27 bytes: bit 8 is set in a last part as soon as that part is long.
    let mut last = unhex("32 9C A1 02 00 02");
    last.resize(412, 0);
    let Message::Data(last) = Message::parse(&last, None).expect("well formed") else { panic!("no data") };
    assert_eq!(last.delivery, Delivery::Fragment(Seq(2), later(2)));
}

/// T-19: with 14 bits of size, as the other types have, the captured word 0xA19C would be 8604 bytes long in a
/// datagram of 418; with 13 it is 412 and fits exactly.
#[test]
fn the_size_of_data_has_13_bits_and_not_14() {
    assert_eq!(0xA19C & 0x1FFF, 412);
    let mut datagram = unhex("02 02 01 02 00 00 32 9C A1 02 00 00 03 21 02 C4 D1 17 C0 33 00 BA 3E B2 3E");
    datagram.resize(418, 0);
    let messages: Vec<_> = Datagram::parse(&datagram, None).expect("well formed").messages().collect();
    assert_eq!(messages.iter().map(Message::wire_len).collect::<Vec<_>>(), [4, 412]);
}

/// T-20: the index of a part is on the wire, right behind the sequence number; the total follows only index 0.
#[test]
fn the_part_index_is_on_the_wire() {
    let captured = "32 0F A0 02 00 00 03 21 02 C4 D1 17 C0 33 00";
    let Message::Data(part) = message(captured) else { panic!("no data") };
    assert_eq!(part.delivery, Delivery::Fragment(Seq(2), first(3)));
    assert_eq!((part.payload[0], part.payload.len()), (0x21, 8));
    // Without an index, a receiver could not tell parts 1 and 2 apart: all else is equal.
    let (one, two) = (message("32 07 A0 02 00 01 AA"), message("32 07 A0 02 00 02 AA"));
    assert_eq!(one.id(), Some(MessageId { channel: Channel::Game, seq: Seq(2), part: Some(1) }));
    assert_eq!(two.id(), Some(MessageId { channel: Channel::Game, seq: Seq(2), part: Some(2) }));
    assert_eq!(message(captured).id().and_then(|id| id.part), Some(0));
    for each in [captured, "32 07 A0 02 00 01 AA", "32 06 A0 02 00 FF", "32 07 A0 02 00 00 FF"] {
        assert_eq!(written(&message(each)), unhex(each));
    }
    assert_eq!(
        (first(3).index(), first(3).total(), later(7).index(), later(7).total()),
        (0, NonZeroU8::new(3), 7, None)
    );
}

/// T-21: a part without a sequence number is decoded and flagged.
#[test]
fn an_unreliable_part_is_not_stock() {
    for (each, part) in [("32 06 20 00 03 AA", first(3)), ("32 05 20 01 AA", later(1))] {
        let parsed = message(each);
        assert_eq!(parsed, data(Delivery::LoosePart(part), &[0xAA]));
        assert_eq!((parsed.non_stock(), parsed.id()), (NonStock::UNRELIABLE_PART, None));
        assert_eq!(written(&parsed), unhex(each));
    }
}

/// T-22: a total of zero is malformed.
#[test]
fn a_total_of_zero_is_refused() {
    let zero = Reason::BadSize { found: 0, least: 1 };
    assert_eq!(error_in("32 08 A0 02 00 00 00 21"), (6, Field::Total, zero));
    assert_eq!(error("01 02 02 32 06 20 00 00 21"), (7, Field::Total, zero));
}

/// T-23: messages over 412 bytes are flagged.
#[test]
fn messages_over_412_bytes_are_not_stock() {
    for (len, odd) in [(409, NonStock::NONE), (410, NonStock::LARGE_MESSAGE)] {
        assert_eq!(unreliable(&vec![0; len]).non_stock(), odd, "{len}");
    }
    assert_eq!(bcnet_transport::wire::MAX_MESSAGE, 412);
}

/// T-24: sequence numbers are little-endian, wrap, and have a distance by the shorter way round.
#[test]
fn sequence_numbers_are_little_endian_and_wrap() {
    assert_eq!(message("32 05 80 00 01").id().map(|id| id.seq), Some(Seq(256)));
    assert_eq!(message("01 34 12 00"), ack(Channel::Game, 0x1234, None));
    assert_eq!(Seq(0xFFFF).next(), Seq(0));
    assert_eq!(Seq(7).next(), Seq(8));
    for (to, from, distance) in [
        (5, 3, 2),
        (3, 5, -2),
        (0, 0xFFFF, 1),
        (0xFFFF, 0, -1),
        (0x8000, 0, i16::MIN),
        (0x7FFF, 0, i16::MAX),
        (0x3FFE, 0xFFFE, 0x4000),
    ] {
        assert_eq!(Seq(to).distance_from(Seq(from)), distance, "{to} from {from}");
    }
}

/// T-25: numbers are little-endian, addresses in dotted order, text UTF-16LE.
#[test]
fn byte_orders_of_numbers_addresses_and_text() {
    let Message::Control(control) =
        message_as("03 13 C0 02 01 01 02 03 04 78 56 34 12 41 00 AC 20 00 00", Role::Client)
    else {
        panic!("no control message")
    };
    let Body::ConnectRequest { address, nonce, password } = control.body else { panic!("no request") };
    assert_eq!((control.seq, address, nonce), (Seq(0x0102), Ipv4Addr::new(1, 2, 3, 4), 0x1234_5678));
    assert_eq!(password.to_string(), "A€");
}

/// T-30: an ACK is type, sequence number, flags and, for a part, the index.
#[test]
fn an_ack_names_what_it_acknowledges() {
    for (each, expected) in [
        ("01 02 00 00", ack(Channel::Game, 2, None)),
        ("01 02 00 02", ack(Channel::Control, 2, None)),
        ("01 02 00 01 00", ack(Channel::Game, 2, Some(0))),
        ("01 FF FF 01 FE", ack(Channel::Game, 0xFFFF, Some(0xFE))),
    ] {
        assert_eq!(message(each), expected, "{each}");
        assert!(expected.non_stock().is_empty());
        assert_eq!(written(&expected), unhex(each));
        assert_eq!(expected.wire_len(), unhex(each).len());
    }
}

/// T-31: bits 2 to 7 mean nothing but are kept; they and the value 3 are flagged.
#[test]
fn odd_ack_flags_are_kept_and_flagged() {
    assert_eq!(message("01 02 00 03 05"), ack(Channel::Control, 2, Some(5)));
    assert_eq!(message("01 02 00 03 05").non_stock(), NonStock::ACK_CONTROL_PART);
    for flags in (4..=255_u8).filter(|flags| flags & 1 == 0) {
        let bytes = [1, 2, 0, flags];
        let parsed = Message::parse(&bytes, None).expect("well formed");
        let Message::Ack(Ack { id, spare }) = parsed else { panic!("no ack") };
        assert_eq!((id.channel == Channel::Control, spare), (flags & 2 != 0, flags & !3));
        assert_eq!(parsed.non_stock(), NonStock::ACK_SPARE_BITS);
        assert_eq!(written(&parsed), bytes);
    }
    // Whatever a caller leaves in the two bits that have a meaning, the id decides.
    let id = MessageId { channel: Channel::Game, seq: Seq(2), part: None };
    assert_eq!(written(&Message::Ack(Ack { id, spare: 0x83 })), unhex("01 02 00 80"));
    assert!(Message::Ack(Ack { id, spare: 3 }).non_stock().is_empty());
}

/// T-32: a keepalive is its type byte and nothing else.
#[test]
fn a_keepalive_is_one_byte() {
    assert_eq!(message("02"), Message::Keepalive);
    assert_eq!(Message::Keepalive.wire_len(), 1);
    assert!(Message::Keepalive.non_stock().is_empty());
    assert_eq!(parse(&unhex("01 01 02")).map(|messages| messages.len()), Ok(1));
    // A one-byte identity, as one note has it, is no message.
    assert_eq!(error("01 01 00"), (3, Field::Size, Reason::Truncated));
}

/// T-33: address, nonce and password.
#[test]
fn a_connect_request_has_address_nonce_and_password() {
    let captured = "03 0F C0 00 00 0A 0A 0A EF 5F 0A 00 00 00 00";
    let parsed = message_as(captured, Role::Client);
    let address = Ipv4Addr::new(10, 10, 10, 239);
    let body = Body::ConnectRequest { address, nonce: 0xA5F, password: Text::default() };
    assert_eq!(parsed, Message::Control(Control::new(Seq(0), body)));
    let text = Text::encode("geheim").expect("no NUL");
    let body = Body::ConnectRequest { address, nonce: 1, password: Text::new(&text).expect("whole units") };
    let with_password = Message::Control(Control::new(Seq(0), body));
    assert_eq!(with_password.wire_len(), 27);
    assert_eq!(Message::parse(&written(&with_password), Some(Role::Client)), Ok(with_password));
}

/// T-34: one byte, the id.
#[test]
fn a_connect_reply_has_the_assigned_id() {
    let body = Body::ConnectReply { assigned: PeerId(2) };
    assert_eq!(message_as("03 06 C0 00 00 02", Role::Host), Message::Control(Control::new(Seq(0), body)));
}

/// T-35: who sent it tells a request from a reply; if nobody says, the sender id does, then the size.
#[test]
fn a_connect_is_told_apart_by_its_sender() {
    let (reply, request) = ("03 06 C0 00 00 02", "03 0F C0 00 00 0A 0A 0A EF 5F 0A 00 00 00 00");
    let is_reply =
        |message| matches!(message, Message::Control(Control { body: Body::ConnectReply { .. }, .. }));
    let in_datagram = |sender: &str, each: &str, role| {
        parse_as(&unhex(&format!("{sender} 01 {each}")), role)
            .map(|reply| reply.into_iter().next() == Some(true))
    };
    let too_small = Err((3, Field::Size, Reason::BadSize { found: 6, least: 15 }));

    assert_eq!(in_datagram("01", reply, None), Ok(true));
    assert_eq!(in_datagram("01", request, None), Ok(false));
    assert_eq!(in_datagram("FF", request, None), Ok(false));
    assert_eq!(in_datagram("FF", reply, None), too_small);
    assert_eq!(in_datagram("02", reply, None), too_small);
    assert_eq!(in_datagram("00", reply, None), Ok(true));
    assert_eq!(in_datagram("00", request, None), Ok(false));
    // The mark is stronger than the id.
    assert_eq!(in_datagram("01", reply, Some(Role::Client)), too_small);
    assert_eq!(in_datagram("FF", reply, Some(Role::Host)), Ok(true));
    assert_eq!(in_datagram("01", request, Some(Role::Host)), Ok(true));
    assert_eq!(in_datagram("01", request, Some(Role::Client)), Ok(false));
    // Alone, the size decides.
    assert!(is_reply(message(reply)) && !is_reply(message(request)));
    assert!(is_reply(message("03 0E C0 00 00 02 00 00 00 00 00 00 00 00")));
}

/// T-36: subject, address, name.
#[test]
fn an_identity_has_peer_address_and_name() {
    let captured = "00 16 C0 01 00 02 0A 0A 0A EF 43 00 61 00 64 00 79 00 32 00 00 00";
    let Message::Control(control) = message(captured) else { panic!("no control message") };
    let Body::Identity { peer, address, name } = control.body else { panic!("no identity") };
    assert_eq!((peer, address), (PeerId(2), Ipv4Addr::new(10, 10, 10, 239)));
    assert_eq!(name.to_string(), "Cady2");
    assert_eq!(message("00 0C C0 01 00 02 0A 0A 0A EF 00 00").wire_len(), 12);
}

/// T-37: reason and target; the six reasons have names, others are kept.
#[test]
fn a_boot_has_a_reason_and_a_target() {
    let names = ["default", "timed_out", "wrong_password", "full", "kicked", "banned"];
    for (code, name) in (0_u8..).zip(names) {
        let bytes = [0x04, 0x07, 0xC0, 0x02, 0x00, code, 0xFF];
        let parsed = Message::parse(&bytes, None).expect("well formed");
        let Message::Control(Control { body: Body::Boot { reason, target }, .. }) = parsed else {
            panic!("no boot")
        };
        assert_eq!((reason.name(), target), (Some(name), PeerId::UNASSIGNED));
        assert_eq!(reason.to_string(), name);
    }
    for (code, shown) in [("06", "reason 6"), ("FF", "reason -1")] {
        let each = format!("04 07 C0 02 00 {code} 02");
        let Message::Control(Control { body: Body::Boot { reason, .. }, .. }) = message(&each) else {
            panic!("no boot")
        };
        assert_eq!((reason.name(), reason.to_string()), (None, shown.to_owned()));
        assert_eq!(written(&message(&each)), unhex(&each));
    }
}

/// T-38: who leaves, and its address.
#[test]
fn a_disconnect_has_peer_and_address() {
    let body = Body::Disconnect { peer: PeerId(2), address: Ipv4Addr::new(10, 10, 10, 239) };
    assert_eq!(message("05 0A C0 02 00 02 0A 0A 0A EF"), Message::Control(Control::new(Seq(2), body)));
}

/// T-39: text of odd length or without its zero unit is malformed.
#[test]
fn odd_or_unterminated_text_is_bad() {
    let bad = |at, field| (at, field, Reason::BadText);
    assert_eq!(error_in("00 0D C0 01 00 02 0A 0A 0A EF 41 00 00"), bad(10, Field::Name));
    assert_eq!(error_in("00 0D C0 01 00 02 0A 0A 0A EF 00 00 00"), bad(10, Field::Name));
    assert_eq!(error_in("00 0C C0 01 00 02 0A 0A 0A EF 41 00"), bad(10, Field::Name));
    assert_eq!(error_in("00 0E C0 01 00 02 0A 0A 0A EF 41 00 00 42"), bad(10, Field::Name));
    let request = "03 10 C0 00 00 0A 0A 0A EF 5F 0A 00 00 00 00 00";
    assert_eq!(error_as(request, Role::Client), bad(13, Field::Password));
    let request = "03 0F C0 00 00 0A 0A 0A EF 5F 0A 00 00 41 42";
    assert_eq!(error(&format!("FF 02 02 {request}")), bad(16, Field::Password));
}

/// T-39: an odd tail behind text would make the text unreadable, so the writer does not take it.
#[test]
fn an_odd_tail_behind_text_is_refused_by_the_writer() {
    let address = Ipv4Addr::new(10, 10, 10, 239);
    let identity = Body::Identity { peer: PeerId(2), address, name: Text::default() };
    let request = Body::ConnectRequest { address, nonce: 1, password: Text::default() };
    let boot = Body::Boot { reason: BootReason::KICKED, target: PeerId(2) };
    for (body, tail, taken) in [
        (identity, &[7][..], false),
        (identity, &[7, 7], true),
        (request, &[7, 7, 7], false),
        (request, &[], true),
        (boot, &[7], true),
    ] {
        let control = Message::Control(Control { tail, ..Control::new(Seq(1), body) });
        let mut buffer = [0; 64];
        let mut writer = Writer::new(&mut buffer, PeerId(2));
        assert_eq!(writer.push(&control), taken, "{control} with {} bytes", tail.len());
        assert_eq!(writer.finish().is_some(), taken);
    }
}

/// T-39: units that are no characters are replaced when shown and kept when written.
#[test]
fn broken_utf16_is_shown_safely_and_kept() {
    let each = "00 12 C0 01 00 02 0A 0A 0A EF 00 D8 41 00 0A 00 00 00";
    let Message::Control(control) = message(each) else { panic!("no control message") };
    let Body::Identity { name, .. } = control.body else { panic!("no identity") };
    assert_eq!(name.to_string(), "\u{FFFD}A\n");
    assert_eq!(message(each).to_string(), "identity seq=1: peer 2 at 10.10.10.239 is \"\u{FFFD}A\\n\"");
    assert_eq!(written(&message(each)), unhex(each));
    let text = Text::encode("a'b\"c\\d\u{1b}é").expect("no NUL");
    let quoted = Text::new(&text).expect("whole units").quoted().to_string();
    assert_eq!(quoted, r#""a'b\"c\\d\u{1b}é""#);

    let text = Text::encode("Ké😀").expect("no NUL");
    assert_eq!(text.len(), 8);
    let text = Text::new(&text).expect("whole units");
    assert_eq!((text.to_string(), text.chars().count()), ("Ké😀".to_owned(), 3));
    assert_eq!((Text::encode("a\0b"), Text::new(&[0x41]), Text::new(&[0x41, 0, 0, 0])), (None, None, None));
}

#[test]
fn every_message_reads_well_in_one_line() {
    for (each, shown) in [
        ("01 02 00 01 01", "ack game seq=2 part=1"),
        ("01 01 00 02", "ack control seq=1"),
        ("02", "keepalive"),
        ("03 06 C0 00 00 02", "connect reply seq=0: you are peer 2"),
        (
            "03 0F C0 00 00 0A 0A 0A EF 5F 0A 00 00 00 00",
            "connect request seq=0: from 10.10.10.239 nonce=0x00000A5F password=\"\"",
        ),
        ("04 07 C0 02 00 04 02", "boot seq=2: peer 2, kicked"),
        ("05 0A C0 02 00 02 0A 0A 0A EF", "disconnect seq=2: peer 2 at 10.10.10.239"),
        ("32 04 00 07", "data unreliable 1 byte"),
        ("32 06 C0 05 00 28", "data seq=5 urgent 1 byte"),
        ("32 07 A0 02 00 00 03", "data seq=2 part=0/3 0 bytes"),
        ("32 06 A0 02 00 07", "data seq=2 part=7 0 bytes"),
        ("32 04 20 07", "data unreliable part=7 0 bytes"),
    ] {
        assert_eq!(message(each).to_string(), shown);
    }
    let datagram = unhex("01 01 02");
    assert_eq!(
        Datagram::parse(&datagram, None).expect("well formed").to_string(),
        "from host: 1 message in 3 bytes"
    );
    let datagram = unhex("FF 02 02 02");
    let shown = Datagram::parse(&datagram, None).expect("well formed").to_string();
    assert_eq!(shown, "from unassigned: 2 messages in 4 bytes");
    assert_eq!([Role::Host, Role::Client].map(|role| role.to_string()), ["host", "client"]);
    assert_eq!(Reason::CountZero.to_string(), "count_zero");
    let odd = NonStock::SENDER | NonStock::TAIL;
    assert_eq!(
        (odd.to_string(), format!("{odd:?}")),
        ("sender, tail".into(), "NonStock(sender, tail)".into())
    );
}

#[test]
fn errors_say_what_which_field_and_where() {
    for (datagram, shown) in [
        ("", "truncated sender at byte 0"),
        ("01 01 32 06 80 05", "truncated sequence at byte 6"),
        ("01 01 33", "unknown type 0x33 at byte 2"),
        ("01 00", "count 0 at byte 1: a datagram holds at least one message"),
        ("01 01 02 02", "bytes after the last message, from byte 3"),
        ("01 01 04 06 C0 02 00 04", "size 6 at byte 3 is too small, it is at least 7"),
        (
            "01 01 00 0C C0 01 00 02 0A 0A 0A EF 41 00",
            "name at byte 12 is not UTF-16LE text that ends in a zero unit",
        ),
    ] {
        let bytes = unhex(datagram);
        assert_eq!(Datagram::parse(&bytes, None).expect_err(datagram).to_string(), shown);
    }
    let names = [
        Reason::Truncated,
        Reason::BadSize { found: 0, least: 1 },
        Reason::UnknownType(Kind(9)),
        Reason::Trailing,
        Reason::CountZero,
        Reason::BadText,
    ];
    let names = names.map(Reason::name);
    assert_eq!(names, ["truncated", "bad_size", "unknown_type", "trailing", "count_zero", "bad_text"]);
}

#[test]
fn a_single_message_must_fill_its_bytes() {
    assert_eq!(error_in("02 02"), (1, Field::Message, Reason::Trailing));
    assert_eq!(error_in(""), (0, Field::Type, Reason::Truncated));
}

type Found = (usize, Field, Reason);

fn found(error: WireError) -> Found {
    (error.at, error.field, error.reason)
}

fn parse(bytes: &[u8]) -> Result<Vec<bool>, Found> {
    parse_as(bytes, None)
}

/// For each message of a datagram, whether it is a connect reply.
fn parse_as(bytes: &[u8], role: Option<Role>) -> Result<Vec<bool>, Found> {
    let is_reply =
        |message| matches!(message, Message::Control(Control { body: Body::ConnectReply { .. }, .. }));
    Datagram::parse(bytes, role).map(|datagram| datagram.messages().map(is_reply).collect()).map_err(found)
}

fn parse_in(bytes: &[u8], role: Option<Role>) -> Result<(), Found> {
    Message::parse(bytes, role).map(drop).map_err(found)
}

/// What is wrong with a datagram.
fn error(datagram: &str) -> Found {
    parse(&unhex(datagram)).expect_err(datagram)
}

/// What is wrong with a message.
fn error_in(message: &str) -> Found {
    parse_in(&unhex(message), None).expect_err(message)
}

fn error_as(message: &str, role: Role) -> Found {
    parse_in(&unhex(message), Some(role)).expect_err(message)
}

fn message(hex: &str) -> Message<'static> {
    Message::parse(unhex(hex).leak(), None).expect(hex)
}

fn message_as(hex: &str, role: Role) -> Message<'static> {
    Message::parse(unhex(hex).leak(), Some(role)).expect(hex)
}

fn written(message: &Message<'_>) -> Vec<u8> {
    let mut buffer = [0; 512];
    let mut writer = Writer::new(&mut buffer, PeerId::HOST);
    assert!(writer.push(message));
    writer.finish().expect("it holds a message")[2..].to_vec()
}

fn ack(channel: Channel, seq: u16, part: Option<u8>) -> Message<'static> {
    Message::Ack(Ack::new(MessageId { channel, seq: Seq(seq), part }))
}

fn data(delivery: Delivery, payload: &[u8]) -> Message<'_> {
    Message::Data(Data { delivery, urgent: false, payload })
}

fn unreliable(payload: &[u8]) -> Message<'_> {
    data(Delivery::Unreliable, payload)
}

fn first(total: u8) -> Part {
    Part::First { total: NonZeroU8::new(total).expect("not zero") }
}

fn later(index: u8) -> Part {
    Part::Later { index: NonZeroU8::new(index).expect("not zero") }
}

fn unhex(text: &str) -> Vec<u8> {
    text.split_whitespace().map(|byte| u8::from_str_radix(byte, 16).expect("hex")).collect()
}
