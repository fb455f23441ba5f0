//! The rules of the wire format, one by one.

mod framing;
mod header;
mod messages;
mod text;

use std::num::NonZeroU8;

use bcnet_wire::{
    Ack, Body, Channel, Control, Data, Datagram, Delivery, Field, Fragment, Message, MessageId, PeerId, Role,
    Seq, WireError, WireErrorReason, Writer,
};

type ErrorDetails = (usize, Field, WireErrorReason);

fn error_details(error: WireError) -> ErrorDetails {
    (error.at, error.field, error.reason)
}

fn parse(bytes: &[u8]) -> Result<Vec<bool>, ErrorDetails> {
    parse_as(bytes, None)
}

/// Returns for each message of a datagram whether it is a connect reply.
fn parse_as(bytes: &[u8], role: Option<Role>) -> Result<Vec<bool>, ErrorDetails> {
    let is_reply =
        |message| matches!(message, Message::Control(Control { body: Body::ConnectReply { .. }, .. }));
    Datagram::parse(bytes, role)
        .map(|datagram| datagram.messages().map(is_reply).collect())
        .map_err(error_details)
}

fn parse_message(bytes: &[u8], role: Option<Role>) -> Result<(), ErrorDetails> {
    Message::parse(bytes, role).map(drop).map_err(error_details)
}

/// Returns the parse error of a datagram.
fn datagram_error(datagram: &str) -> ErrorDetails {
    parse(&unhex(datagram)).expect_err(datagram)
}

/// Returns the parse error of a message.
fn message_error(message: &str) -> ErrorDetails {
    parse_message(&unhex(message), None).expect_err(message)
}

fn message_error_as(message: &str, role: Role) -> ErrorDetails {
    parse_message(&unhex(message), Some(role)).expect_err(message)
}

fn message(hex: &str) -> Message<'static> {
    Message::parse(unhex(hex).leak(), None).expect(hex)
}

fn message_as(hex: &str, role: Role) -> Message<'static> {
    Message::parse(unhex(hex).leak(), Some(role)).expect(hex)
}

fn encode(message: &Message<'_>) -> Vec<u8> {
    let mut buffer = [0; 512];
    let mut writer = Writer::new(&mut buffer, PeerId::HOST);
    assert!(writer.push(message));
    writer.finish().expect("the datagram has a message")[2..].to_vec()
}

fn ack(channel: Channel, seq: u16, fragment: Option<u8>) -> Message<'static> {
    Message::Ack(Ack::new(MessageId { channel, seq: Seq(seq), fragment }))
}

fn data(delivery: Delivery, payload: &[u8]) -> Message<'_> {
    Message::Data(Data { delivery, urgent: false, payload })
}

fn unreliable(payload: &[u8]) -> Message<'_> {
    data(Delivery::Unreliable, payload)
}

fn first_fragment(total: u8) -> Fragment {
    Fragment::First { total: NonZeroU8::new(total).expect("the total is not zero") }
}

fn later_fragment(index: u8) -> Fragment {
    Fragment::Later { index: NonZeroU8::new(index).expect("the index is not zero") }
}

fn unhex(text: &str) -> Vec<u8> {
    text.split_whitespace().map(|byte| u8::from_str_radix(byte, 16).expect("hex")).collect()
}
