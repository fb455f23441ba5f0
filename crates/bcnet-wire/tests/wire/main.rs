//! The rules of the wire format, one by one.

mod framing;
mod header;
mod messages;
mod text;

use std::num::NonZeroU8;

use bcnet_wire::{
    Ack, Body, Channel, Control, Data, Datagram, Delivery, Field, Message, MessageId, Part, PeerId, Reason,
    Role, Seq, WireError, Writer,
};

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
