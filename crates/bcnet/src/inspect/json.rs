//! One JSON object per line of input.

use std::io::{self, Write};

use bcnet_session::payload::{self, Payload, describe};
use bcnet_transport::wire::{Ack, Body, Control, Data, Message, NonStock, Role};
use serde_json::{Map, Value, json};

use super::explain::{self, FieldRow};
use super::hex::BadHex;
use super::{Decoded, Entry, latin1};

pub(super) fn write(out: &mut impl Write, entry: &Entry<'_>, explain: bool) -> io::Result<()> {
    let mut object = Map::new();
    object.insert("line".into(), entry.line.into());
    match &entry.decoded {
        Decoded::Datagram(datagram) => {
            object.insert("sender".into(), datagram.sender().0.into());
            object.insert("direction".into(), direction(entry.sent_by));
            if explain {
                object.insert("fields".into(), fields(explain::datagram(datagram)));
            }
            let mut at = explain::DATAGRAM_HEADER;
            let messages = datagram.messages().map(|each| message(&each, explain, &mut at));
            object.insert("messages".into(), messages.collect());
            insert_non_stock(&mut object, datagram.non_stock());
        }
        Decoded::Message(each) => {
            object.insert("sender".into(), Value::Null);
            object.insert("direction".into(), direction(entry.sent_by));
            object.insert("messages".into(), json!([message(each, explain, &mut 0)]));
        }
        Decoded::Payload(payload) => {
            object.insert("direction".into(), direction(entry.sent_by));
            insert_game(&mut object, &describe(payload));
            object.insert("len".into(), payload.len().into());
            object.insert("payload".into(), hex(payload).into());
        }
        Decoded::GameSpy(text) => {
            object.insert("direction".into(), direction(entry.sent_by));
            object.insert("gamespy".into(), latin1(text).into());
        }
        Decoded::BadHex(BadHex { at, .. }) => {
            object.insert("error".into(), json!({"at": at, "field": "hex", "reason": "bad_hex"}));
        }
        Decoded::Malformed(error) => {
            let (field, reason) = (error.field.name(), error.reason.name());
            object.insert("error".into(), json!({"at": error.at, "field": field, "reason": reason}));
        }
    }
    serde_json::to_writer(&mut *out, &object)?;
    out.write_all(b"\n")
}

/// One message that begins at byte `at`, which is moved to its end.
fn message(message: &Message<'_>, explain: bool, at: &mut usize) -> Value {
    let mut object = Map::new();
    object.insert("type".into(), message.kind().0.into());
    object.insert("kind".into(), message.kind().name().into());
    object.insert("len".into(), message.wire_len().into());
    match message {
        Message::Ack(Ack { id, .. }) => {
            object.insert("seq".into(), id.seq.0.into());
            object.insert("channel".into(), id.channel.to_string().into());
            object.insert("part".into(), id.part.into());
        }
        Message::Keepalive => {}
        Message::Control(control) => self::control(&mut object, control),
        Message::Data(Data { delivery, urgent, payload }) => {
            object.insert("reliable".into(), delivery.seq().is_some().into());
            object.insert("urgent".into(), (*urgent).into());
            object.insert("seq".into(), delivery.seq().map(|seq| seq.0).into());
            object.insert("part".into(), delivery.part().map(|part| part.index()).into());
            let total = delivery.part().and_then(|part| part.total());
            object.insert("total".into(), total.map(|total| total.get()).into());
            object.insert("payload".into(), hex(payload).into());
            // Only the beginning of a payload holds an opcode.
            if delivery.part().is_none_or(|part| part.index() == 0) {
                let mut game = Map::new();
                insert_game(&mut game, &describe(payload));
                object.insert("game".into(), game.into());
            }
        }
    }
    insert_non_stock(&mut object, message.non_stock());
    if explain {
        object.insert("fields".into(), fields(explain::message(message, *at)));
    }
    *at += message.wire_len();
    Value::Object(object)
}

fn control(object: &mut Map<String, Value>, control: &Control<'_>) {
    object.insert("reliable".into(), control.reliable.into());
    object.insert("urgent".into(), control.urgent.into());
    object.insert("seq".into(), control.seq.0.into());
    match control.body {
        Body::Identity { peer, address, name } => {
            object.insert("peer".into(), peer.0.into());
            object.insert("address".into(), address.to_string().into());
            object.insert("name".into(), name.to_string().into());
        }
        Body::ConnectRequest { address, nonce, password } => {
            object.insert("address".into(), address.to_string().into());
            object.insert("nonce".into(), nonce.into());
            object.insert("password".into(), password.to_string().into());
        }
        Body::ConnectReply { assigned } => {
            object.insert("assigned".into(), assigned.0.into());
        }
        Body::Boot { reason, target } => {
            object.insert("reason".into(), reason.name().unwrap_or("unknown").into());
            object.insert("reason_code".into(), reason.0.into());
            object.insert("target".into(), target.0.into());
        }
        Body::Disconnect { peer, address } => {
            object.insert("peer".into(), peer.0.into());
            object.insert("address".into(), address.to_string().into());
        }
    }
    if !control.tail.is_empty() {
        object.insert("tail".into(), hex(control.tail).into());
    }
}

fn insert_game(object: &mut Map<String, Value>, payload: &Payload<'_>) {
    object.insert("opcode".into(), payload.opcode.map(|opcode| opcode.0).into());
    object.insert("name".into(), payload.opcode.and_then(payload::Opcode::name).into());
    let mut values = Map::new();
    for field in &payload.fields {
        let value = match field.value {
            payload::Value::Number(number) => number.into(),
            payload::Value::Id(id) => id.into(),
            payload::Value::Flag(flag) => flag.into(),
            payload::Value::Float(number) => number.into(),
            payload::Value::Text(text) => latin1(text).into(),
            payload::Value::Bytes(bytes) => hex(bytes).into(),
        };
        if !field.listed {
            values.insert(field.name.into(), value);
        } else if let Value::Array(list) = values.entry(field.name).or_insert_with(|| json!([])) {
            list.push(value);
        }
    }
    object.insert("values".into(), values.into());
    if let Some(name) = payload.truncated {
        object.insert("truncated".into(), name.into());
    }
}

fn insert_non_stock(object: &mut Map<String, Value>, non_stock: NonStock) {
    if !non_stock.is_empty() {
        object.insert("non_stock".into(), non_stock.names().collect());
    }
}

fn fields(rows: Vec<FieldRow>) -> Value {
    let row = |FieldRow { at, len, field, value, rule }: FieldRow| json!({"at": at, "len": len, "field": field.name(), "value": value, "rule": rule});
    rows.into_iter().map(row).collect()
}

fn direction(sent_by: Option<Role>) -> Value {
    match sent_by {
        Some(Role::Host) => "S".into(),
        Some(Role::Client) => "C".into(),
        None => Value::Null,
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
