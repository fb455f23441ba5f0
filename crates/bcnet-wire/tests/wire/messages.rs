//! The layout of each type of message.

use std::net::Ipv4Addr;

use bcnet_observe::NonStock;
use bcnet_wire::{
    Ack, Body, BootReason, Channel, Control, Field, Message, MessageId, PeerId, Role, Seq, Text,
    WireErrorReason, Writer,
};

use crate::{
    ack, datagram_error, encode, message, message_as, message_error, message_error_as, parse, parse_as, unhex,
};

/// T-30: an ACK is type, sequence number, flags and, for a fragment, the index.
#[test]
fn ack_carries_seq_channel_and_fragment_index() {
    for (each, expected) in [
        ("01 02 00 00", ack(Channel::Game, 2, None)),
        ("01 02 00 02", ack(Channel::Control, 2, None)),
        ("01 02 00 01 00", ack(Channel::Game, 2, Some(0))),
        ("01 FF FF 01 FE", ack(Channel::Game, 0xFFFF, Some(0xFE))),
    ] {
        assert_eq!(message(each), expected, "{each}");
        assert!(NonStock::of(&expected).is_empty());
        assert_eq!(encode(&expected), unhex(each));
        assert_eq!(expected.wire_len(), unhex(each).len());
    }
}

/// T-31: bits 2 to 7 have no meaning but are kept; they and the value 3 are flagged.
#[test]
fn reserved_ack_flags_are_kept_and_reported() {
    assert_eq!(message("01 02 00 03 05"), ack(Channel::Control, 2, Some(5)));
    assert_eq!(NonStock::of(&message("01 02 00 03 05")), NonStock::ACK_CONTROL_PART);
    for flags in (4..=255_u8).filter(|flags| flags & 1 == 0) {
        let bytes = [1, 2, 0, flags];
        let parsed = Message::parse(&bytes, None).expect("well formed");
        let Message::Ack(Ack { id, reserved: spare }) = parsed else { panic!("expected an ACK") };
        assert_eq!((id.channel == Channel::Control, spare), (flags & 2 != 0, flags & !3));
        assert_eq!(NonStock::of(&parsed), NonStock::ACK_SPARE_BITS);
        assert_eq!(encode(&parsed), bytes);
    }
    // The id decides the two bits that have a meaning, not the caller's flags.
    let id = MessageId { channel: Channel::Game, seq: Seq(2), fragment: None };
    assert_eq!(encode(&Message::Ack(Ack { id, reserved: 0x83 })), unhex("01 02 00 80"));
    assert!(NonStock::of(&Message::Ack(Ack { id, reserved: 3 })).is_empty());
}

/// T-32: a keepalive is only its type byte.
#[test]
fn a_keepalive_is_one_byte() {
    assert_eq!(message("02"), Message::Keepalive);
    assert_eq!(Message::Keepalive.wire_len(), 1);
    assert!(NonStock::of(&Message::Keepalive).is_empty());
    assert_eq!(parse(&unhex("01 01 02")).map(|messages| messages.len()), Ok(1));
    // A one-byte identity, which one note describes, is not a message.
    assert_eq!(datagram_error("01 01 00"), (3, Field::Size, WireErrorReason::Truncated));
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
    assert_eq!(Message::parse(&encode(&with_password), Some(Role::Client)), Ok(with_password));
}

/// T-34: one byte, the id.
#[test]
fn a_connect_reply_has_the_assigned_id() {
    let body = Body::ConnectReply { assigned: PeerId(2) };
    assert_eq!(message_as("03 06 C0 00 00 02", Role::Host), Message::Control(Control::new(Seq(0), body)));
}

/// T-35: the sender's role distinguishes request and reply; without it the sender id, then the size.
#[test]
fn connect_is_read_according_to_sender_role() {
    let (reply, request) = ("03 06 C0 00 00 02", "03 0F C0 00 00 0A 0A 0A EF 5F 0A 00 00 00 00");
    let is_reply =
        |message| matches!(message, Message::Control(Control { body: Body::ConnectReply { .. }, .. }));
    let in_datagram = |sender: &str, each: &str, role| {
        parse_as(&unhex(&format!("{sender} 01 {each}")), role)
            .map(|reply| reply.into_iter().next() == Some(true))
    };
    let too_small = Err((3, Field::Size, WireErrorReason::BadSize { found: 6, least: 15 }));

    assert_eq!(in_datagram("01", reply, None), Ok(true));
    assert_eq!(in_datagram("01", request, None), Ok(false));
    assert_eq!(in_datagram("FF", request, None), Ok(false));
    assert_eq!(in_datagram("FF", reply, None), too_small);
    assert_eq!(in_datagram("02", reply, None), too_small);
    assert_eq!(in_datagram("00", reply, None), Ok(true));
    assert_eq!(in_datagram("00", request, None), Ok(false));
    // The role takes precedence over the id.
    assert_eq!(in_datagram("01", reply, Some(Role::Client)), too_small);
    assert_eq!(in_datagram("FF", reply, Some(Role::Host)), Ok(true));
    assert_eq!(in_datagram("01", request, Some(Role::Host)), Ok(true));
    assert_eq!(in_datagram("01", request, Some(Role::Client)), Ok(false));
    // Without a datagram header, the size decides.
    assert!(is_reply(message(reply)) && !is_reply(message(request)));
    assert!(is_reply(message("03 0E C0 00 00 02 00 00 00 00 00 00 00 00")));
}

/// T-36: peer, address, name.
#[test]
fn an_identity_has_peer_address_and_name() {
    let captured = "00 16 C0 01 00 02 0A 0A 0A EF 43 00 61 00 64 00 79 00 32 00 00 00";
    let Message::Control(control) = message(captured) else { panic!("expected a control message") };
    let Body::Identity { peer, address, name } = control.body else { panic!("expected an identity") };
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
            panic!("expected a boot")
        };
        assert_eq!((reason.name(), target), (Some(name), PeerId::UNASSIGNED));
        assert_eq!(reason.to_string(), name);
    }
    for (code, shown) in [("06", "reason 6"), ("FF", "reason -1")] {
        let each = format!("04 07 C0 02 00 {code} 02");
        let Message::Control(Control { body: Body::Boot { reason, .. }, .. }) = message(&each) else {
            panic!("expected a boot")
        };
        assert_eq!((reason.name(), reason.to_string()), (None, shown.to_owned()));
        assert_eq!(encode(&message(&each)), unhex(&each));
    }
}

/// T-38: the peer that leaves, and its address.
#[test]
fn a_disconnect_has_peer_and_address() {
    let body = Body::Disconnect { peer: PeerId(2), address: Ipv4Addr::new(10, 10, 10, 239) };
    assert_eq!(message("05 0A C0 02 00 02 0A 0A 0A EF"), Message::Control(Control::new(Seq(2), body)));
}

/// T-39: text of odd length or without its zero unit is malformed.
#[test]
fn odd_length_or_unterminated_text_is_an_error() {
    let bad = |at, field| (at, field, WireErrorReason::BadText);
    assert_eq!(message_error("00 0D C0 01 00 02 0A 0A 0A EF 41 00 00"), bad(10, Field::Name));
    assert_eq!(message_error("00 0D C0 01 00 02 0A 0A 0A EF 00 00 00"), bad(10, Field::Name));
    assert_eq!(message_error("00 0C C0 01 00 02 0A 0A 0A EF 41 00"), bad(10, Field::Name));
    assert_eq!(message_error("00 0E C0 01 00 02 0A 0A 0A EF 41 00 00 42"), bad(10, Field::Name));
    let request = "03 10 C0 00 00 0A 0A 0A EF 5F 0A 00 00 00 00 00";
    assert_eq!(message_error_as(request, Role::Client), bad(13, Field::Password));
    let request = "03 0F C0 00 00 0A 0A 0A EF 5F 0A 00 00 41 42";
    assert_eq!(datagram_error(&format!("FF 02 02 {request}")), bad(16, Field::Password));
}

/// T-39: an odd tail behind text would make the text unreadable, so the writer refuses it.
#[test]
fn writer_refuses_odd_tail_after_text() {
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

/// T-39: invalid units are replaced when displayed and kept when written.
#[test]
fn invalid_utf16_is_kept_and_displayed_safely() {
    let each = "00 12 C0 01 00 02 0A 0A 0A EF 00 D8 41 00 0A 00 00 00";
    let Message::Control(control) = message(each) else { panic!("expected a control message") };
    let Body::Identity { name, .. } = control.body else { panic!("expected an identity") };
    assert_eq!(name.to_string(), "\u{FFFD}A\n");
    assert_eq!(message(each).to_string(), "identity seq=1: peer 2 at 10.10.10.239 is \"\u{FFFD}A\\n\"");
    assert_eq!(encode(&message(each)), unhex(each));
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
fn message_parse_rejects_trailing_bytes() {
    assert_eq!(message_error("02 02"), (1, Field::Message, WireErrorReason::Trailing));
    assert_eq!(message_error(""), (0, Field::Type, WireErrorReason::Truncated));
}
