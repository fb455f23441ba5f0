//! Tests of the proxy's core, one datagram at a time.

mod admission;
mod clients;
mod floods;
mod healer;
mod retained_state;

use std::net::Ipv4Addr;
use std::num::NonZeroU8;
use std::time::Duration;

use bcnet_observe::MessageBuffer;
use bcnet_proxy::Inbound;
use bcnet_transport::wire::{
    Ack, Body, BootReason, Channel, Control, Data, Datagram, Delivery, Fragment, Message, MessageId, PeerId,
    Role, Seq, Text, Writer,
};
use bcnet_transport::{Time, cipher};

/// A datagram, encrypted and decrypted.
#[derive(Debug, Clone)]
struct WireAndPlaintext {
    wire: Vec<u8>,
    plaintext: Vec<u8>,
}

impl WireAndPlaintext {
    fn new(sender: PeerId, messages: &[Message<'_>]) -> Self {
        let mut buffer = [0; 2048];
        let mut writer = Writer::with_limit(&mut buffer, sender, 2048);
        assert!(messages.iter().all(|message| writer.push(message)));
        Self::from_plaintext(writer.finish().expect("a message"))
    }

    fn from_plaintext(plain: &[u8]) -> Self {
        let mut wire = plain.to_vec();
        cipher::encrypt(&mut wire);
        Self { wire, plaintext: plain.to_vec() }
    }

    fn from_wire(wire: &[u8]) -> Self {
        let mut plain = wire.to_vec();
        cipher::decrypt(&mut plain);
        Self { wire: wire.to_vec(), plaintext: plain }
    }

    /// Returns the datagram as received from a side. Its decoded form is leaked: tests are short.
    fn inbound(&self, sender: Role) -> Inbound<'_> {
        let messages = Box::leak(Box::new(MessageBuffer::default()));
        let plain = self.plaintext.clone().leak();
        Inbound { wire: &self.wire, content: Box::leak(Box::new(messages.read(plain, Some(sender)))) }
    }
}

fn game_message_id(seq: u16) -> MessageId {
    MessageId { channel: Channel::Game, seq: Seq(seq), fragment: None }
}

fn ack(seq: u16) -> Message<'static> {
    Message::Ack(Ack::new(game_message_id(seq)))
}

fn fragment_ack(seq: u16, part: u8) -> Message<'static> {
    Message::Ack(Ack::new(MessageId { fragment: Some(part), ..game_message_id(seq) }))
}

fn data(seq: u16) -> Message<'static> {
    Message::Data(Data { delivery: Delivery::Reliable(Seq(seq)), urgent: false, payload: &[0x19, 1, 2, 3] })
}

fn fragment(seq: u16, index: u8, total: u8) -> Message<'static> {
    let total = NonZeroU8::new(total).expect("some");
    let part = NonZeroU8::new(index).map_or(Fragment::First { total }, |index| Fragment::Later { index });
    Message::Data(Data { delivery: Delivery::Fragment(Seq(seq), part), urgent: false, payload: &[7; 20] })
}

fn state_update() -> Message<'static> {
    Message::Data(Data { delivery: Delivery::Unreliable, urgent: false, payload: &[0x1C, 9] })
}

fn connect(nonce: u32) -> WireAndPlaintext {
    let body = Body::ConnectRequest { address: Ipv4Addr::LOCALHOST, nonce, password: Text::default() };
    WireAndPlaintext::new(PeerId::UNASSIGNED, &[Message::Control(Control::new(Seq(0), body))])
}

/// Returns the datagram that assigns an id.
fn connect_reply(assigned: PeerId) -> WireAndPlaintext {
    let body = Body::ConnectReply { assigned };
    WireAndPlaintext::new(PeerId::HOST, &[Message::Control(Control::new(Seq(0), body))])
}

fn disconnect(peer: PeerId) -> Message<'static> {
    Message::Control(Control::new(Seq(9), Body::Disconnect { peer, address: Ipv4Addr::LOCALHOST }))
}

fn boot(target: PeerId) -> Message<'static> {
    Message::Control(Control::new(Seq(9), Body::Boot { reason: BootReason::KICKED, target }))
}

/// Returns the messages of an encrypted datagram as text.
fn message_texts(wire: &[u8]) -> Vec<String> {
    let plain = WireAndPlaintext::from_wire(wire).plaintext;
    let datagram = Datagram::parse(&plain, None).expect("well formed");
    assert_eq!(datagram.messages().count(), usize::from(datagram.count()));
    datagram.messages().map(|message| message.to_string()).collect()
}

fn texts(messages: &[Message<'_>]) -> Vec<String> {
    messages.iter().map(ToString::to_string).collect()
}

fn at(millis: u64) -> Time {
    Time::ZERO + Duration::from_millis(millis)
}
