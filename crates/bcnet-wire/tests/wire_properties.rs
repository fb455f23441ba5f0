//! Parsing and writing are inverse to each other: for generated messages and for arbitrary bytes.

#[path = "../../bcnet-transport/src/lcg.rs"]
mod lcg;

use std::net::Ipv4Addr;
use std::num::NonZeroU8;

use bcnet_observe::MessageBuffer;
use bcnet_wire::{
    Ack, Body, BootReason, Channel, Control, Data, Datagram, Delivery, Fragment, Message, MessageId, PeerId,
    Role, Seq, Text, Writer,
};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

use crate::lcg::Lcg;

/// A message that owns its bytes.
#[derive(Debug, Clone)]
enum OwnedMessage {
    Ack(Ack),
    Keepalive,
    Control { seq: u16, reliable: bool, urgent: bool, body: OwnedBody, tail: Vec<u8> },
    Data { delivery: Delivery, urgent: bool, payload: Vec<u8> },
}

#[derive(Debug, Clone)]
enum OwnedBody {
    Identity(u8, u32, Vec<u8>),
    Request(u32, u32, Vec<u8>),
    Reply(u8),
    Boot(i8, u8),
    Disconnect(u8, u32),
}

impl OwnedMessage {
    fn borrow(&self) -> Message<'_> {
        match self {
            Self::Ack(ack) => Message::Ack(*ack),
            Self::Keepalive => Message::Keepalive,
            Self::Control { seq, reliable, urgent, body, tail } => {
                let text = |bytes| Text::new(bytes).expect("generated as whole units");
                let body = match body {
                    OwnedBody::Identity(peer, address, name) => Body::Identity {
                        peer: PeerId(*peer),
                        address: Ipv4Addr::from_bits(*address),
                        name: text(name),
                    },
                    OwnedBody::Request(address, nonce, password) => Body::ConnectRequest {
                        address: Ipv4Addr::from_bits(*address),
                        nonce: *nonce,
                        password: text(password),
                    },
                    OwnedBody::Reply(assigned) => Body::ConnectReply { assigned: PeerId(*assigned) },
                    OwnedBody::Boot(reason, target) => {
                        Body::Boot { reason: BootReason(*reason), target: PeerId(*target) }
                    }
                    OwnedBody::Disconnect(peer, address) => {
                        Body::Disconnect { peer: PeerId(*peer), address: Ipv4Addr::from_bits(*address) }
                    }
                };
                Message::Control(Control { seq: Seq(*seq), reliable: *reliable, urgent: *urgent, body, tail })
            }
            Self::Data { delivery, urgent, payload } => {
                Message::Data(Data { delivery: *delivery, urgent: *urgent, payload })
            }
        }
    }
}

fn fragment() -> impl Strategy<Value = Fragment> {
    let byte = (1..=255_u8).prop_filter_map("not zero", NonZeroU8::new);
    prop_oneof![
        byte.clone().prop_map(|total| Fragment::First { total }),
        byte.prop_map(|index| Fragment::Later { index }),
    ]
}

fn ack() -> impl Strategy<Value = OwnedMessage> {
    (any::<bool>(), any::<u16>(), any::<Option<u8>>(), any::<u8>()).prop_map(|(control, seq, part, spare)| {
        let channel = if control { Channel::Control } else { Channel::Game };
        OwnedMessage::Ack(Ack {
            id: MessageId { channel, seq: Seq(seq), fragment: part },
            reserved: spare & !3,
        })
    })
}

fn data() -> impl Strategy<Value = OwnedMessage> {
    let delivery = prop_oneof![
        Just(Delivery::Unreliable),
        any::<u16>().prop_map(|seq| Delivery::Reliable(Seq(seq))),
        (any::<u16>(), fragment()).prop_map(|(seq, part)| Delivery::Fragment(Seq(seq), part)),
        fragment().prop_map(Delivery::UnreliableFragment),
    ];
    let fields = (delivery, any::<bool>(), vec(any::<u8>(), 0..500));
    fields.prop_map(|(delivery, urgent, payload)| OwnedMessage::Data { delivery, urgent, payload })
}

fn text() -> impl Strategy<Value = Vec<u8>> {
    vec(1..=u16::MAX, 0..40).prop_map(|units| units.into_iter().flat_map(u16::to_le_bytes).collect())
}

fn even_tail() -> impl Strategy<Value = Vec<u8>> {
    vec(any::<[u8; 2]>(), 0..3).prop_map(|units| units.concat())
}

fn control(role: Role) -> impl Strategy<Value = OwnedMessage> {
    let any_tail = || prop_oneof![3 => Just(Vec::new()), 1 => vec(any::<u8>(), 1..9)];
    let connect = match role {
        Role::Host => (any::<u8>().prop_map(OwnedBody::Reply), any_tail()).boxed(),
        Role::Client => {
            let body = (any::<u32>(), any::<u32>(), text()).prop_map(|(a, n, p)| OwnedBody::Request(a, n, p));
            (body, even_tail()).boxed()
        }
    };
    let identity =
        (any::<u8>(), any::<u32>(), text()).prop_map(|(peer, a, name)| OwnedBody::Identity(peer, a, name));
    let boot = (any::<i8>(), any::<u8>()).prop_map(|(reason, target)| OwnedBody::Boot(reason, target));
    let disconnect =
        (any::<u8>(), any::<u32>()).prop_map(|(peer, address)| OwnedBody::Disconnect(peer, address));
    let body = prop_oneof![connect, (identity, even_tail()), (boot, any_tail()), (disconnect, any_tail())];
    (any::<u16>(), any::<bool>(), any::<bool>(), body).prop_map(|(seq, reliable, urgent, (body, tail))| {
        OwnedMessage::Control { seq, reliable, urgent, body, tail }
    })
}

/// Generates all kinds of messages that a peer of this role can send.
fn messages(role: Role) -> impl Strategy<Value = Vec<OwnedMessage>> {
    vec(prop_oneof![ack(), Just(OwnedMessage::Keepalive), control(role), data()], 1..=255)
}

fn role_and_messages() -> impl Strategy<Value = (Role, Vec<OwnedMessage>)> {
    prop_oneof![
        messages(Role::Host).prop_map(|messages| (Role::Host, messages)),
        messages(Role::Client).prop_map(|messages| (Role::Client, messages)),
    ]
}

/// The same cases in every run; a failing case is printed in its smallest form.
fn config() -> ProptestConfig {
    let rng_seed = RngSeed::Fixed(0xBC11);
    ProptestConfig { cases: 512, rng_seed, failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(config())]

    /// T-01: pushed messages are parsed back in order, and the lengths add up.
    #[test]
    fn written_messages_are_parsed_back(sender: u8, (role, owned) in role_and_messages()) {
        let messages: Vec<Message<'_>> = owned.iter().map(OwnedMessage::borrow).collect();
        let mut buffer = vec![0xEE; 255 * 600];
        let limit = buffer.len();
        let mut writer = Writer::with_limit(&mut buffer, PeerId(sender), limit);
        for message in &messages {
            prop_assert!(writer.push(message));
        }
        let written = writer.finish().expect("the datagram has a message");
        prop_assert_eq!(written.len(), 2 + messages.iter().map(Message::wire_len).sum::<usize>());
        let datagram = Datagram::parse(written, Some(role)).expect("a written datagram parses");
        prop_assert_eq!(datagram.sender(), PeerId(sender));
        prop_assert_eq!(datagram.messages().collect::<Vec<_>>(), messages);
    }

    /// T-04: a writer never exceeds its limit and accepts every message that fits.
    #[test]
    fn writer_accepts_exactly_what_fits(limit in 0..700_usize, (_, owned) in role_and_messages()) {
        let mut buffer = vec![0xEE; 700];
        let mut writer = Writer::with_limit(&mut buffer, PeerId::HOST, limit);
        let mut len = 2;
        for message in owned.iter().map(OwnedMessage::borrow) {
            let fits = len + message.wire_len() <= limit;
            prop_assert_eq!(writer.push(&message), fits);
            len += if fits { message.wire_len() } else { 0 };
        }
        let written = writer.finish().map_or(0, |datagram| datagram.len());
        prop_assert_eq!(written, if len == 2 { 0 } else { len });
        prop_assert!(buffer[len.max(2)..].iter().all(|byte| *byte == 0xEE));
    }

    /// T-06: plausible bytes are parsed as a whole or refused, and parsed datagrams are written back.
    #[test]
    fn parsed_datagrams_are_written_back(role in prop_oneof![Just(None), Just(Some(Role::Host)), Just(Some(Role::Client))],
                                  bytes in plausible_datagrams()) {
        prop_assert!(readers_agree(&bytes, role));
        if let Ok(datagram) = Datagram::parse(&bytes, role) {
            let mut buffer = vec![0; bytes.len()];
            let len = buffer.len();
            let mut writer = Writer::with_limit(&mut buffer, datagram.sender(), len);
            prop_assert!(datagram.messages().all(|message| writer.push(&message)));
            let written = writer.finish().expect("the datagram has a message");
            prop_assert_eq!(&*written, &*bytes);
            prop_assert_eq!(datagram.messages().count(), usize::from(datagram.count()));
        }
    }
}

/// Returns whether both parsers find the same messages, or the same error at the same place.
fn readers_agree(bytes: &[u8], role: Option<Role>) -> bool {
    let mut buffer = MessageBuffer::default();
    match (buffer.parse(bytes, role), Datagram::parse(bytes, role)) {
        (Ok(decoded), Ok(checked)) => {
            decoded.sender() == checked.sender()
                && decoded.as_bytes() == bytes
                && decoded.messages().iter().copied().eq(checked.messages())
        }
        (Err(decoded), Err(checked)) => decoded == checked,
        (Ok(_), Err(_)) | (Err(_), Ok(_)) => false,
    }
}

/// Generates bytes with the types, size fields and counts of real datagrams, so that many of them parse.
fn plausible_datagrams() -> impl Strategy<Value = Vec<u8>> {
    let kind = prop_oneof![Just(0_u8), Just(1), Just(2), Just(3), Just(4), Just(5), Just(0x32), any::<u8>()];
    let flags = prop_oneof![Just(0xC0_u8), Just(0x80), Just(0xA0), Just(0x00), Just(0x20), any::<u8>()];
    let message = (kind, flags, vec(0..4_u8, 0..24)).prop_map(|(kind, flags, body)| match kind {
        1 if flags & 1 == 0 => vec![1, 9, 0, flags],
        1 => vec![1, 9, 0, flags, 7],
        2 => vec![2],
        _ => [vec![kind, u8::try_from(body.len()).unwrap_or(0) + 3, flags], body].concat(),
    });
    (any::<u8>(), vec(message, 0..6), 0..20_u8).prop_map(|(sender, messages, lie)| {
        let count = u8::try_from(messages.len()).unwrap_or(0) ^ u8::from(lie == 0);
        [vec![sender, count], messages.concat()].concat()
    })
}

/// Random bytes, up to 63, never make the parser panic.
#[test]
fn random_bytes_never_panic() {
    let mut random = Lcg(0x5EED);
    let mut parsed = 0;
    for _ in 0..200_000 {
        let len = random.index(64);
        let mut bytes: Vec<u8> = (0..len).map(|_| random.below(256) as u8).collect();
        // A small count and a known type make the parser read beyond the second byte.
        if let [_, count, kind, ..] = &mut *bytes {
            *count %= 4;
            *kind %= 6;
        }
        for role in [None, Some(Role::Host), Some(Role::Client)] {
            assert!(readers_agree(&bytes, role), "{bytes:02X?}");
            parsed += usize::from(
                Datagram::parse(&bytes, role).is_ok_and(|datagram| datagram.messages().count() > 0),
            );
        }
    }
    assert!(parsed > 0);
}
