//! The parts that messages share: type, flags, size, sequence number, fragments, byte orders.

use std::net::Ipv4Addr;
use std::num::NonZeroU8;

use bcnet_observe::NonStock;
use bcnet_wire::{
    Body, BootReason, Channel, Control, Data, Datagram, Delivery, Field, Kind, Message, MessageId, PeerId,
    Role, Seq, WireErrorReason, Writer,
};

use crate::{
    ack, data, datagram_error, encode, first_fragment, later_fragment, message, message_as, message_error,
    message_error_as, parse, parse_message, unhex, unreliable,
};

/// T-10: only seven types exist; any other makes the datagram an error, which has the type.
#[test]
fn unknown_type_is_an_error_with_its_value() {
    let known = [0x00, 0x01, 0x02, 0x03, 0x04, 0x05, 0x32];
    for kind in 0..=255 {
        let found = parse(&[1, 2, 2, kind]);
        if known.contains(&kind) {
            assert!(Kind(kind).name().is_some());
            assert_ne!(found, Err((3, Field::Type, WireErrorReason::UnknownType(Kind(kind)))));
        } else {
            assert_eq!(Kind(kind).name(), None);
            assert_eq!(found, Err((3, Field::Type, WireErrorReason::UnknownType(Kind(kind)))));
        }
    }
    let names = [0x00, 0x01, 0x02, 0x03, 0x04, 0x05, 0x32, 0x33].map(|kind| Kind(kind).to_string());
    assert_eq!(names, ["identity", "ack", "keepalive", "connect", "boot", "disconnect", "data", "type 0x33"]);
}

/// T-11: kinds below 0x32 have their own sequence numbers.
#[test]
fn the_channel_follows_from_the_kind() {
    assert_eq!(Kind(0x00).channel(), Channel::Control);
    assert_eq!(Kind(0x31).channel(), Channel::Control);
    assert_eq!(Kind(0x32).channel(), Channel::Game);
    assert_eq!(Kind(0xFF).channel(), Channel::Game);
    let boot = message("04 07 C0 02 00 04 02");
    assert_eq!(boot.id(), Some(MessageId { channel: Channel::Control, seq: Seq(2), fragment: None }));
    let data = message("32 06 80 05 00 28");
    assert_eq!(data.id(), Some(MessageId { channel: Channel::Game, seq: Seq(5), fragment: None }));
    assert_eq!(message("32 04 00 28").id(), None);
    assert_eq!(message("02").id(), None);
    assert_eq!(message("01 00 00 00").id(), None);
    assert_eq!(message("05 0A 40 02 00 02 0A 0A 0A EF").id(), None);
}

/// T-12: bit 15 reliable, bit 14 urgent, bit 13 fragment, bits 12 to 0 size; urgent data is not stock.
#[test]
fn data_flag_word_has_3_flags_and_13_size_bits() {
    assert_eq!(message("32 04 00 AA"), unreliable(&[0xAA]));
    assert_eq!(message("32 06 80 34 12 AA"), data(Delivery::Reliable(Seq(0x1234)), &[0xAA]));
    let urgent = message("32 06 C0 34 12 AA");
    assert_eq!(
        urgent,
        Message::Data(Data { delivery: Delivery::Reliable(Seq(0x1234)), urgent: true, payload: &[0xAA] })
    );
    assert_eq!(NonStock::of(&urgent), NonStock::DATA_URGENT);
    assert_eq!(NonStock::of(&message("32 04 40 AA")), NonStock::DATA_URGENT);

    let mut largest = unhex("32 FF 1F");
    largest.resize(8191, 7);
    assert_eq!(Message::parse(&largest, None).expect("well formed").wire_len(), 8191);
}

/// T-12, T-13: the writer refuses sizes that the size field cannot express.
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

/// T-13: a control message has no fragment flag; bit 13 belongs to its 14 bits of size.
#[test]
fn control_flag_word_has_14_size_bits() {
    let mut large = unhex("05 0A E0 02 00 02 0A 0A 0A EF");
    large.resize(0x200A, 0);
    let parsed = Message::parse(&large, None).expect("well formed");
    assert_eq!(parsed.wire_len(), 0x200A);
    assert_eq!(NonStock::of(&parsed), NonStock::TAIL | NonStock::LARGE_MESSAGE);
    assert_eq!(message_error("05 0A E0 02 00 02 0A 0A 0A EF"), (10, Field::Tail, WireErrorReason::Truncated));
}

/// T-14: the size counts from the type byte; a size below the minimum of its kind is malformed.
#[test]
fn sizes_below_the_header_size_are_errors() {
    let bad = |found, least| (1, Field::Size, WireErrorReason::BadSize { found, least });
    assert_eq!(message_error("32 02 00"), bad(2, 3));
    assert_eq!(message_error("32 00 00"), bad(0, 3));
    assert_eq!(message_error("32 04 80 00 00"), bad(4, 5));
    assert_eq!(message_error("32 04 A0 00 00"), bad(4, 6));
    assert_eq!(message_error("32 05 A0 00 00 01"), bad(5, 6));
    assert_eq!(message_error("32 06 A0 00 00 00 02"), bad(6, 7));
    assert_eq!(message_error("32 02 20"), bad(2, 4));
    assert_eq!(message_error("32 03 20 01"), bad(3, 4));
    assert_eq!(message_error("32 04 20 00 02"), bad(4, 5));
    assert_eq!(message_error_as("03 05 C0 00 00 02", Role::Host), bad(5, 6));
    assert_eq!(message_error_as("03 0E C0 00 00 0A 0A 0A EF 5F 0A 00 00 00 00", Role::Client), bad(14, 15));
    assert_eq!(message_error("04 06 C0 00 00 04 02"), bad(6, 7));
    assert_eq!(message_error("05 09 C0 00 00 02 0A 0A 0A EF"), bad(9, 10));
    assert_eq!(message_error("00 0B C0 00 00 02 0A 0A 0A EF 00 00"), bad(11, 12));
    // The same, but not at the beginning of a datagram.
    assert_eq!(
        datagram_error("01 02 02 04 06 C0 00 00 04 02"),
        (4, Field::Size, WireErrorReason::BadSize { found: 6, least: 7 })
    );
}

/// T-14: the minimum sizes are accepted, and sizes 3 and 4 are legal for unreliable data.
#[test]
fn minimum_size_of_each_kind_is_accepted() {
    assert_eq!(message("32 03 00"), unreliable(&[]));
    assert_eq!(message("32 04 00 07"), unreliable(&[7]));
    assert_eq!(message("32 05 80 01 00"), data(Delivery::Reliable(Seq(1)), &[]));
    assert_eq!(message("32 06 A0 01 00 09"), data(Delivery::Fragment(Seq(1), later_fragment(9)), &[]));
    assert_eq!(message("32 07 A0 01 00 00 02"), data(Delivery::Fragment(Seq(1), first_fragment(2)), &[]));
    let reply = Body::ConnectReply { assigned: PeerId(2) };
    assert_eq!(message("03 06 C0 00 00 02"), Message::Control(Control::new(Seq(0), reply)));
    for each in ["32 03 00", "32 04 00 07", "32 05 80 01 00", "32 07 A0 01 00 00 02", "03 06 C0 00 00 02"] {
        assert!(NonStock::of(&message(each)).is_empty(), "{each}");
    }
}

/// A message, the first length that it is cut to, and the field that each cut hits.
const TRUNCATIONS: &[(&str, usize, &[Field])] = &[
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

/// T-14: a size beyond the datagram means that it was cut; the error names the field.
#[test]
fn truncated_messages_report_the_field() {
    let cut = |at, field| (at, field, WireErrorReason::Truncated);
    for (whole, start, fields) in TRUNCATIONS {
        let whole = unhex(whole);
        assert!(Message::parse(&whole, None).is_ok(), "{whole:02X?}");
        for (len, field) in (*start..).zip(*fields) {
            assert_eq!(
                parse_message(&whole[..len], None),
                Err(cut(len, *field)),
                "{whole:02X?} cut to {len}"
            );
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
        assert_eq!(parse_message(&request[..len], Some(Role::Client)), Err(cut(len, field)), "cut to {len}");
    }
    assert_eq!(message_error_as("03 06 C0 00 00", Role::Host), cut(5, Field::Assigned));
    assert_eq!(message_error_as("03 07 C0 00 00 02", Role::Host), cut(6, Field::Tail));
}

/// T-14: bytes behind the last field of a control message are kept and flagged.
#[test]
fn extra_control_bytes_are_kept_as_tail() {
    for (each, tail) in [
        ("04 09 C0 02 00 04 02 AA BB", &[0xAA, 0xBB][..]),
        ("05 0B C0 02 00 02 0A 0A 0A EF 01", &[1]),
        ("03 07 C0 00 00 02 05", &[5]),
        ("00 10 C0 01 00 02 0A 0A 0A EF 41 00 00 00 42 00", &[0x42, 0]),
    ] {
        let parsed = message(each);
        let Message::Control(control) = parsed else { panic!("{parsed}") };
        assert_eq!((control.tail, NonStock::of(&parsed)), (tail, NonStock::TAIL), "{each}");
        assert_eq!(encode(&parsed), unhex(each));
    }
}

/// T-15: data carries a sequence number exactly when bit 15 is set.
///
/// A captured 13-byte message refutes the claim that every header has five bytes. If it had a sequence
/// number, the payload would not begin with its opcode 0x1C.
#[test]
fn unreliable_data_has_no_sequence_number() {
    let Message::Data(state) = message("32 0D 00 1C FF FF FF 3F 00 11 22 33 80") else {
        panic!("expected a data message")
    };
    assert_eq!((state.delivery, state.payload.len(), state.payload[0]), (Delivery::Unreliable, 10, 0x1C));
    assert_eq!(message("32 06 80 05 00 28"), data(Delivery::Reliable(Seq(5)), &[0x28]));
}

/// T-16: control messages have a sequence number even without bit 15; stock sets bits 15 and 14.
#[test]
fn control_messages_always_have_a_sequence_number() {
    for (word, reliable, urgent, flags) in [
        ("C0", true, true, NonStock::NONE),
        ("80", true, false, NonStock::CONTROL_NOT_URGENT),
        ("40", false, true, NonStock::CONTROL_UNRELIABLE),
        ("00", false, false, NonStock::CONTROL_UNRELIABLE | NonStock::CONTROL_NOT_URGENT),
    ] {
        let bytes = format!("04 07 {word} 02 01 04 02");
        let parsed = message(&bytes);
        let Message::Control(control) = parsed else { panic!("{parsed}") };
        assert_eq!((control.seq, control.reliable, control.urgent), (Seq(0x0102), reliable, urgent));
        assert_eq!((NonStock::of(&parsed), parsed.id().is_some()), (flags, reliable));
        assert_eq!(encode(&parsed), unhex(&bytes));
    }
    let fresh = Control::new(Seq(2), Body::Boot { reason: BootReason::KICKED, target: PeerId(2) });
    assert_eq!(encode(&Message::Control(fresh)), unhex("04 07 C0 02 00 04 02"));
}

/// T-16: a message can be non-stock in several ways, and each is reported once.
#[test]
fn non_stock_flags_accumulate_and_count_once() {
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

/// T-17: a control size field of zero is malformed; there is no empty three-byte message.
#[test]
fn control_flag_word_of_zero_is_an_error() {
    for (kind, least) in [("00", 12), ("04", 7), ("05", 10)] {
        let found = message_error(&format!("{kind} 00 00"));
        assert_eq!(found, (1, Field::Size, WireErrorReason::BadSize { found: 0, least }));
        // The same if valid bytes follow.
        let found = datagram_error(&format!("01 02 {kind} 00 00 02"));
        assert_eq!(found, (3, Field::Size, WireErrorReason::BadSize { found: 0, least }));
    }
    assert_eq!(
        message_error_as("03 00 00", Role::Host),
        (1, Field::Size, WireErrorReason::BadSize { found: 0, least: 6 })
    );
    assert_eq!(
        message_error_as("03 00 00", Role::Client),
        (1, Field::Size, WireErrorReason::BadSize { found: 0, least: 15 })
    );
}

/// T-18: bit 8 is part of the size and does not mean "more fragments follow".
///
/// The size field 0x8111 is a whole message of 273 bytes. The last captured fragment lacks the bit only
/// because that fragment is short.
#[test]
fn bit_8_belongs_to_the_size() {
    let mut whole = unhex("32 11 81 04 00 21 FF");
    whole.resize(273, 0);
    let Message::Data(single) = Message::parse(&whole, None).expect("well formed") else {
        panic!("expected a data message")
    };
    assert_eq!((single.delivery, single.payload.len()), (Delivery::Reliable(Seq(4)), 268));

    // Three fragments of 412, 412 and 27 bytes: bit 8 is set in a last fragment if that fragment is long.
    let mut last = unhex("32 9C A1 02 00 02");
    last.resize(412, 0);
    let Message::Data(last) = Message::parse(&last, None).expect("well formed") else {
        panic!("expected a data message")
    };
    assert_eq!(last.delivery, Delivery::Fragment(Seq(2), later_fragment(2)));
}

/// T-19: the size of data has 13 bits.
///
/// With 14 bits, like the other types, the captured size field 0xA19C would mean 8604 bytes in a datagram
/// of 418. With 13 bits it is 412 and fits exactly.
#[test]
fn the_size_of_data_has_13_bits_and_not_14() {
    assert_eq!(0xA19C & 0x1FFF, 412);
    let mut datagram = unhex("02 02 01 02 00 00 32 9C A1 02 00 00 03 21 02 C4 D1 17 C0 33 00 BA 3E B2 3E");
    datagram.resize(418, 0);
    let messages: Vec<_> = Datagram::parse(&datagram, None).expect("well formed").messages().collect();
    assert_eq!(messages.iter().map(Message::wire_len).collect::<Vec<_>>(), [4, 412]);
}

/// T-20: the index of a fragment follows the sequence number; the total follows only index 0.
#[test]
fn fragment_index_is_on_the_wire() {
    let captured = "32 0F A0 02 00 00 03 21 02 C4 D1 17 C0 33 00";
    let Message::Data(part) = message(captured) else { panic!("expected a data message") };
    assert_eq!(part.delivery, Delivery::Fragment(Seq(2), first_fragment(3)));
    assert_eq!((part.payload[0], part.payload.len()), (0x21, 8));
    // Without an index, a receiver could not distinguish fragments 1 and 2: all else is equal.
    let (one, two) = (message("32 07 A0 02 00 01 AA"), message("32 07 A0 02 00 02 AA"));
    assert_eq!(one.id(), Some(MessageId { channel: Channel::Game, seq: Seq(2), fragment: Some(1) }));
    assert_eq!(two.id(), Some(MessageId { channel: Channel::Game, seq: Seq(2), fragment: Some(2) }));
    assert_eq!(message(captured).id().and_then(|id| id.fragment), Some(0));
    for each in [captured, "32 07 A0 02 00 01 AA", "32 06 A0 02 00 FF", "32 07 A0 02 00 00 FF"] {
        assert_eq!(encode(&message(each)), unhex(each));
    }
    assert_eq!(
        (
            first_fragment(3).index(),
            first_fragment(3).total(),
            later_fragment(7).index(),
            later_fragment(7).total()
        ),
        (0, NonZeroU8::new(3), 7, None)
    );
}

/// T-21: a fragment without a sequence number is decoded and flagged.
#[test]
fn unreliable_fragment_is_not_stock() {
    for (each, part) in [("32 06 20 00 03 AA", first_fragment(3)), ("32 05 20 01 AA", later_fragment(1))] {
        let parsed = message(each);
        assert_eq!(parsed, data(Delivery::UnreliableFragment(part), &[0xAA]));
        assert_eq!((NonStock::of(&parsed), parsed.id()), (NonStock::UNRELIABLE_PART, None));
        assert_eq!(encode(&parsed), unhex(each));
    }
}

/// T-22: a total of zero is malformed.
#[test]
fn fragment_total_of_zero_is_an_error() {
    let zero = WireErrorReason::BadSize { found: 0, least: 1 };
    assert_eq!(message_error("32 08 A0 02 00 00 00 21"), (6, Field::Total, zero));
    assert_eq!(datagram_error("01 02 02 32 06 20 00 00 21"), (7, Field::Total, zero));
}

/// T-23: messages over 412 bytes are flagged.
#[test]
fn messages_over_412_bytes_are_not_stock() {
    for (len, flags) in [(409, NonStock::NONE), (410, NonStock::LARGE_MESSAGE)] {
        assert_eq!(NonStock::of(&unreliable(&vec![0; len])), flags, "{len}");
    }
    assert_eq!(bcnet_wire::MAX_MESSAGE, 412);
}

/// T-24: sequence numbers are little-endian, wrap, and have a distance in the shorter direction.
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
        panic!("expected a control message")
    };
    let Body::ConnectRequest { address, nonce, password } = control.body else {
        panic!("expected a connect request")
    };
    assert_eq!((control.seq, address, nonce), (Seq(0x0102), Ipv4Addr::new(1, 2, 3, 4), 0x1234_5678));
    assert_eq!(password.to_string(), "A€");
}
