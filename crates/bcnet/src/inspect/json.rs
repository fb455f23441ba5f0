//! Writes one JSON object for each datagram.
//!
//! The objects are written directly, without a tree of values in between, because captures have millions of messages.
//! [`writer`] implements JSON; this module defines the members of the objects.

mod address_cache;
mod float_cache;
mod writer;

use std::num::NonZeroU8;

use bcnet_observe::{NonStock, ReassembledPayload};
use bcnet_session::game::{self, Description, describe};
use bcnet_transport::wire::{Ack, Body, Control, Data, Message, Role};

use super::explain::{self, FieldRow};
use super::hex::BadHex;
use super::{Decoded, DecodedEntry, InputPosition, latin1_to_string};
pub(super) use writer::{Json, UnescapedStr};

/// Adds the line of an entry, with those of its messages for which `wanted` is true.
pub(super) fn add_entry(
    json: &mut Json,
    entry: &DecodedEntry<'_>,
    explain: bool,
    wanted: impl Fn(&Message<'_>) -> bool,
) {
    json.line(|json| {
        json.position(&entry.position);
        json.entry(entry, explain, wanted);
    });
}

impl Json {
    fn position(&mut self, position: &InputPosition<'_>) {
        match position {
            InputPosition::Line(line) => self.member("line", *line),
            InputPosition::Packet(packet) => {
                if let Some(file) = &packet.file {
                    self.member("file", &*file.name);
                }
                self.member("packet", packet.number);
                self.member("offset", packet.offset);
                self.seconds("time", packet.time.as_micros());
                self.member("from", packet.from);
                self.member("to", packet.to);
                if let Some(comment) = &packet.comment {
                    self.member("comment", &**comment);
                }
            }
        }
    }

    fn entry(&mut self, entry: &DecodedEntry<'_>, explain: bool, wanted: impl Fn(&Message<'_>) -> bool) {
        match &entry.decoded {
            Decoded::Datagram(datagram) => {
                self.member("sender", datagram.sender().0);
                self.direction(entry.sent_by);
                if explain {
                    self.name("fields");
                    self.fields(explain::datagram(datagram.datagram()));
                }
                let mut at = explain::DATAGRAM_HEADER_LEN;
                self.name("messages");
                let places = datagram.messages().iter().map(|each| {
                    let place = at;
                    at += each.wire_len();
                    (place, each)
                });
                let kept = places.filter(|(_, each)| wanted(each));
                self.array(kept, |json, (at, each)| json.message(each, explain, at));
                self.non_stock(NonStock::of_datagram(datagram.datagram()));
                if !entry.reassembled.is_empty() {
                    self.reassembled(entry.reassembled);
                }
            }
            Decoded::Message(each) => {
                self.member("sender", ());
                self.direction(entry.sent_by);
                self.name("messages");
                self.array([each], |json, each| json.message(each, explain, 0));
            }
            Decoded::Payload(payload) => {
                self.direction(entry.sent_by);
                self.game(&describe(payload));
                self.member("len", payload.len());
                self.name("payload");
                self.hex(payload);
            }
            Decoded::GameSpy(text) => {
                self.direction(entry.sent_by);
                self.member("gamespy", latin1_to_string(text).as_str());
            }
            Decoded::BadHex(BadHex { at, .. }) => self.error(*at, "hex", "bad_hex"),
            Decoded::Malformed(error) => self.error(error.at, error.field.name(), error.reason.name()),
        }
    }

    /// Adds payloads whose last missing fragment is in this datagram.
    fn reassembled(&mut self, joined: &[ReassembledPayload]) {
        self.name("joined");
        self.array(joined, |json, ReassembledPayload { seq, fragments: parts, payload }| {
            json.object(|json| {
                json.member("seq", seq.0);
                json.member("parts", *parts);
                json.member("len", payload.len());
                json.name("payload");
                json.hex(payload);
                json.name("game");
                json.object(|json| json.game(&describe(payload)));
            });
        });
    }

    fn error(&mut self, at: usize, field: &str, reason: &str) {
        self.name("error");
        self.object(|json| {
            json.member("at", at);
            json.member("field", field);
            json.member("reason", reason);
        });
    }

    /// Adds one message that starts at byte `at`.
    fn message(&mut self, message: &Message<'_>, explain: bool, at: usize) {
        self.object(|json| {
            json.member("type", message.kind().0);
            json.member("kind", message.kind().name().map(UnescapedStr));
            json.member("len", message.wire_len());
            match message {
                Message::Ack(Ack { id, .. }) => {
                    json.member("seq", id.seq.0);
                    json.member("channel", UnescapedStr(id.channel.name()));
                    json.member("part", id.fragment);
                }
                Message::Keepalive => {}
                Message::Control(control) => json.control(control),
                Message::Data(data) => json.data(data),
            }
            json.non_stock(NonStock::of(message));
            if explain {
                json.name("fields");
                json.fields(explain::message(message, at));
            }
        });
    }

    fn data(&mut self, Data { delivery, urgent, payload }: &Data<'_>) {
        let part = delivery.fragment();
        self.member("reliable", delivery.seq().is_some());
        self.member("urgent", *urgent);
        self.member("seq", delivery.seq().map(|seq| seq.0));
        self.member("part", part.map(|part| part.index()));
        self.member("total", part.and_then(|part| part.total()).map(NonZeroU8::get));
        self.name("payload");
        self.hex(payload);
        // Only the first fragment of a payload contains an opcode.
        if part.is_none_or(|part| part.index() == 0) {
            self.name("game");
            self.object(|json| json.game(&describe(payload)));
        }
    }

    fn control(&mut self, control: &Control<'_>) {
        self.member("reliable", control.reliable);
        self.member("urgent", control.urgent);
        self.member("seq", control.seq.0);
        match control.body {
            Body::Identity { peer, address, name } => {
                self.member("peer", peer.0);
                self.display_member("address", address);
                self.display_member("name", name);
            }
            Body::ConnectRequest { address, nonce, password } => {
                self.display_member("address", address);
                self.member("nonce", nonce);
                self.display_member("password", password);
            }
            Body::ConnectReply { assigned } => self.member("assigned", assigned.0),
            Body::Boot { reason, target } => {
                self.member("reason", reason.name().unwrap_or("unknown"));
                self.member("reason_code", i64::from(reason.0));
                self.member("target", target.0);
            }
            Body::Disconnect { peer, address } => {
                self.member("peer", peer.0);
                self.display_member("address", address);
            }
        }
        if !control.tail.is_empty() {
            self.name("tail");
            self.hex(control.tail);
        }
    }

    fn game(&mut self, payload: &Description<'_>) {
        self.member("opcode", payload.opcode.map(|opcode| opcode.0));
        self.member("name", payload.opcode.and_then(game::Opcode::name).map(UnescapedStr));
        self.name("values");
        self.object(|json| {
            // A bit for each of the first 128 fields: whether a list already contains it. Most payloads have no more
            // fields.
            let mut listed = 0_u128;
            for (place, field) in payload.fields.iter().enumerate() {
                if !field.repeated {
                    json.name(field.name);
                    json.field(&field.value);
                    continue;
                }
                // Nearly always both names are the same static text, so the pointers are compared first.
                let same = |other: &game::PayloadField<'_>| {
                    std::ptr::eq(other.name, field.name) || other.name == field.name
                };
                let is_listed = match 1_u128.checked_shl(place as u32) {
                    Some(bit) => listed & bit != 0,
                    None => payload.fields.iter().take(place).any(same),
                };
                if !is_listed {
                    json.name(field.name);
                    let list = payload.fields.iter().enumerate().skip(place).filter(|(_, it)| same(it));
                    json.array(list, |json, (place, field)| {
                        listed |= 1_u128.checked_shl(place as u32).unwrap_or(0);
                        json.field(&field.value);
                    });
                }
            }
        });
        if let Some(name) = payload.truncated {
            self.member("truncated", name);
        }
    }

    fn field(&mut self, value: &game::Value<'_>) {
        match value {
            game::Value::Number(number) => self.value(*number),
            game::Value::Id(id) => self.value(*id),
            game::Value::Flag(flag) => self.value(*flag),
            game::Value::Float(number) | game::Value::Packed { number, .. } => self.value(*number),
            game::Value::Raw(bits) => self.value(*bits),
            game::Value::Name(name) => self.value(UnescapedStr(name)),
            game::Value::Text(text) => self.value(latin1_to_string(text).as_str()),
            game::Value::Bytes(bytes) => self.hex(bytes),
        }
    }

    fn non_stock(&mut self, non_stock: NonStock) {
        if !non_stock.is_empty() {
            self.name("non_stock");
            self.array(non_stock.names(), |json, name| json.value(name));
        }
    }

    fn fields(&mut self, rows: Vec<FieldRow>) {
        self.array(rows, |json, FieldRow { at, len, field, value, rule }| {
            json.object(|json| {
                json.member("at", at);
                json.member("len", len);
                json.member("field", field.name());
                json.member("value", value.as_str());
                json.member("rule", rule);
            });
        });
    }

    fn direction(&mut self, sent_by: Option<Role>) {
        let letter = sent_by.map(|role| if role == Role::Host { "S" } else { "C" });
        self.member("direction", letter.map(UnescapedStr));
    }
}
