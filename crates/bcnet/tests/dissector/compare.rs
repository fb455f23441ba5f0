//! Compares the output of `bcnet inspect --json` for a datagram with the fields of the dissector.
//!
//! A key without a field of the same name is an error. A field without a key is an error too.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::tshark::all_fields;

/// The values compared so far, and the keys that never had a value.
#[derive(Debug, Default)]
pub(crate) struct Comparison {
    pub(crate) values: usize,
    /// Counts, by name, of the fields that need the context of a conversation.
    pub(crate) context: BTreeMap<&'static str, usize>,
    /// The number of reassembled payloads.
    pub(crate) joined: usize,
    filled: BTreeSet<String>,
    empty: BTreeSet<String>,
}

impl Comparison {
    /// Compares one packet of a capture, including its offset, with all layers that tshark shows.
    pub(crate) fn compare_packet(&mut self, line: &Value, layers: &Value) -> Result<(), String> {
        let mut datagram = as_object(line)?.clone();
        let joined = datagram.shift_remove("joined").unwrap_or(Value::Array(vec![]));
        for (key, shown) in packet_location(layers) {
            let expected = datagram.shift_remove(key).unwrap_or(Value::Null);
            self.values += usize::from(!expected.is_null());
            if expected != shown {
                return Err(format!("{key} is {shown}, not {expected}"));
            }
        }
        let layer = layers.get("bcnet").unwrap_or(&Value::Null);
        self.compare_reassembled(&joined, layer)?;
        self.compare_datagram(&Value::Object(datagram), layer)
    }

    /// Compares reassembled payloads.
    ///
    /// In JSON they are at the end of the datagram; in tshark below the fragment that completes them.
    fn compare_reassembled(&mut self, joined: &Value, layer: &Value) -> Result<(), String> {
        let joined = joined.as_array().ok_or("joined is not a list")?;
        let nodes: Vec<&Value> = all_fields(layer, "bcnet.message")
            .into_iter()
            .filter(|message| message.get("bcnet.reassembled").is_some())
            .collect();
        if nodes.len() != joined.len() {
            return Err(format!("{} payloads were reassembled, expected {}", nodes.len(), joined.len()));
        }
        for (joined, message) in joined.iter().zip(nodes) {
            let node = &message["bcnet.reassembled"];
            let mut known = to_strings(&["bcnet.reassembled.frame", "_ws.expert"]);
            for (key, value) in as_object(joined)? {
                let field = match key.as_str() {
                    "seq" => {
                        self.compare_field("bcnet.seq", value, message)?;
                        continue;
                    }
                    "game" => {
                        self.compare_game(value, &node["bcnet.game"])?;
                        "bcnet.game".to_owned()
                    }
                    "payload" => {
                        self.compare_field("bcnet.payload", value, node)?;
                        "bcnet.payload".to_owned()
                    }
                    _ => {
                        let field = format!("bcnet.reassembled.{key}");
                        self.compare_field(&field, value, node)?;
                        field
                    }
                };
                known.push(field);
            }
            check_fields_are_known(node, &known)?;
            if all_fields(node, "bcnet.reassembled.frame").len() as u64
                != joined["parts"].as_u64().unwrap_or_default()
            {
                return Err(format!("{node} does not name a frame for each fragment of {joined}"));
            }
            self.joined += 1;
        }
        Ok(())
    }

    /// Compares one datagram. The error names the difference.
    pub(crate) fn compare_datagram(&mut self, entry: &Value, layer: &Value) -> Result<(), String> {
        let mut known = to_strings(&["bcnet.count", "_ws.expert", "bcnet.direction"]);
        known.extend(to_strings(&["bcnet.conversation", "bcnet.player", "bcnet.sender.name"]));
        for (key, value) in as_object(entry)? {
            match key.as_str() {
                // The position in the input.
                "line" => continue,
                // Hex lines have no direction; the dissector derives it from the sender.
                "direction" if value.is_null() && entry.get("sender").is_some() => {
                    let direction = if entry["sender"] == 1 { "S" } else { "C" };
                    self.compare_field("bcnet.direction", &direction.into(), layer)?;
                }
                "messages" => {
                    known.push("bcnet.message".into());
                    self.compare_messages(value, layer)?;
                }
                "error" => {
                    // The messages before the error are compared separately.
                    known.extend(to_strings(&["bcnet.error", "bcnet.sender", "bcnet.message"]));
                    let node = layer.get("bcnet.error").ok_or("no bcnet.error")?;
                    for (key, value) in as_object(value)? {
                        self.compare_field(&format!("bcnet.error.{key}"), value, node)?;
                    }
                }
                "gamespy" => {
                    known.extend(to_strings(&["bcnet.gamespy", "bcnet.gamespy_tree"]));
                    self.compare_field("bcnet.gamespy", value, layer)?;
                }
                _ => {
                    known.push(format!("bcnet.{key}"));
                    self.compare_field(&format!("bcnet.{key}"), value, layer)?;
                }
            }
        }
        check_fields_are_known(layer, &known)
    }

    /// Compares the messages of a datagram.
    fn compare_messages(&mut self, messages: &Value, layer: &Value) -> Result<(), String> {
        self.compare_nodes(messages, &all_fields(layer, "bcnet.message"))
    }

    /// Compares messages with their nodes.
    pub(crate) fn compare_nodes(&mut self, messages: &Value, nodes: &[&Value]) -> Result<(), String> {
        let messages = messages.as_array().ok_or("messages are not a list")?;
        if nodes.len() != messages.len() {
            return Err(format!("{} messages, not {}", nodes.len(), messages.len()));
        }
        for (message, node) in messages.iter().zip(nodes) {
            self.compare_message(message, node).map_err(|why| format!("{why}\n  {message}\n  {node}"))?;
        }
        Ok(())
    }

    fn compare_message(&mut self, message: &Value, node: &Value) -> Result<(), String> {
        let ack = message["kind"] == "ack";
        let mut known = to_strings(&CONVERSATION_FIELDS);
        for field in CONVERSATION_FIELDS {
            *self.context.entry(field).or_default() += usize::from(node.get(field).is_some());
        }
        for (key, value) in as_object(message)? {
            if key == "game" {
                known.push("bcnet.game".into());
                self.compare_game(value, node.get("bcnet.game").ok_or("no bcnet.game")?)?;
                continue;
            }
            let part_of_ack = ack && matches!(key.as_str(), "seq" | "channel" | "part");
            let field = format!("bcnet.{}{key}", if part_of_ack { "ack." } else { "" });
            self.compare_field(&field, value, node)?;
            known.push(field);
        }
        check_fields_are_known(node, &known)
    }

    /// Compares a game payload, in a message or reassembled.
    pub(crate) fn compare_game(&mut self, game: &Value, node: &Value) -> Result<(), String> {
        let mut known = to_strings(&["_ws.expert"]);
        // tshark has a text in place of an object without fields: an empty payload, such as that of a cookie (T-76).
        let empty = Value::Object(Map::new());
        let node = if node == "" { &empty } else { node };
        for (key, value) in as_object(game)? {
            let fields = match key.as_str() {
                "opcode" => vec![("bcnet.opcode".to_owned(), value)],
                "name" => vec![("bcnet.opcode.name".to_owned(), value)],
                "truncated" => vec![("bcnet.game.truncated".to_owned(), value)],
                "values" => as_object(value)?
                    .iter()
                    .map(|(key, value)| (format!("bcnet.game.{key}"), value))
                    .collect(),
                other => {
                    return Err(format!("the dissector does not know the key {other} of a game payload"));
                }
            };
            for (field, value) in fields {
                // JSON has neither NaN nor infinity, so null is a value of a float.
                if key == "values" && value.is_null() {
                    self.compare_fields(&field, &[value], node)?;
                } else {
                    self.compare_field(&field, value, node)?;
                }
                known.push(field);
            }
        }
        check_fields_are_known(node, &known)
    }

    /// Compares a value with the fields of its name: none for null, one for each item of a list.
    fn compare_field(&mut self, field: &str, value: &Value, node: &Value) -> Result<(), String> {
        if value.is_null() {
            self.empty.insert(field.to_owned());
        }
        match value {
            Value::Null => self.compare_fields(field, &[], node),
            Value::Array(several) => self.compare_fields(field, &several.iter().collect::<Vec<_>>(), node),
            one => self.compare_fields(field, &[one], node),
        }
    }

    fn compare_fields(&mut self, field: &str, expected: &[&Value], node: &Value) -> Result<(), String> {
        let found = all_fields(node, field);
        let same =
            found.len() == expected.len() && found.iter().zip(expected).all(|(a, b)| values_match(a, b));
        self.values += expected.len();
        if !expected.is_empty() {
            self.filled.insert(field.to_owned());
        }
        if same { Ok(()) } else { Err(format!("{field} is {found:?}, not {expected:?}")) }
    }

    /// Returns the keys that were always null: it is unknown whether they have a field.
    pub(crate) fn never_filled(&self) -> Vec<&String> {
        self.empty.difference(&self.filled).collect()
    }

    pub(crate) fn has_value(&self, field: &str) -> bool {
        self.filled.contains(field)
    }
}

/// Returns the position of a packet with the keys of `bcnet inspect FILE --json`; missing values are null.
fn packet_location(layers: &Value) -> [(&'static str, Value); 6] {
    let text = |layer: &str, field: &str| layers[layer][field].as_str();
    let number = |field| text("frame", field).and_then(|number| number.parse::<u64>().ok());
    let time = text("frame", "frame.time_epoch").and_then(|time| time.parse::<f64>().ok());
    let end = |ip, udp| Some(format!("{}:{}", text("ip", ip)?, text("udp", udp)?));
    [
        ("packet", number("frame.number").into()),
        ("offset", number("frame.file_off").into()),
        ("time", time.into()),
        ("from", end("ip.src", "udp.srcport").into()),
        ("to", end("ip.dst", "udp.dstport").into()),
        ("comment", text("pkt_comment", "frame.comment").into()),
    ]
}

fn check_fields_are_known(node: &Value, known: &[String]) -> Result<(), String> {
    match as_object(node)?.keys().find(|field| !known.contains(field)) {
        Some(field) => Err(format!("{field} has no key in JSON")),
        None => Ok(()),
    }
}

/// Compares a value of tshark with a value of JSON.
///
/// tshark writes numbers as decimal, hex or float, flags as digits, and bytes with colons. The dissector shows control
/// characters as Unicode control pictures.
fn values_match(shown: &Value, expected: &Value) -> bool {
    let Some(shown) = shown.as_str() else { return false };
    match expected {
        Value::Bool(flag) => shown == if *flag { "1" } else { "0" },
        Value::Number(number) => match shown.strip_prefix("0x") {
            Some(hex) => i64::from_str_radix(hex, 16).ok() == number.as_i64(),
            None if number.is_i64() || number.is_u64() => shown.parse().ok() == number.as_i64(),
            None => number.as_f64().is_some_and(|number| is_close(shown, number)),
        },
        Value::Null => shown.parse().is_ok_and(|number: f64| !number.is_finite()),
        Value::String(text) => *shown == with_control_pictures(text) || *text == shown.replace(':', ""),
        _ => false,
    }
}

/// Compares floats: tshark writes six digits, and fewer below the smallest normal float.
fn is_close(shown: &str, number: f64) -> bool {
    let least = f64::from(f32::MIN_POSITIVE);
    shown.parse().is_ok_and(|shown: f64| (shown - number).abs() <= number.abs() * 1e-5 + least)
}

fn with_control_pictures(text: &str) -> String {
    let picture = |c: char| match u32::from(c) {
        0x7F => '\u{2421}',
        code @ 0..0x20 => char::from_u32(0x2400 + code).unwrap_or(c),
        _ => c,
    };
    text.chars().map(picture).collect()
}

fn as_object(value: &Value) -> Result<&Map<String, Value>, String> {
    value.as_object().ok_or_else(|| format!("{value} is not an object"))
}

fn to_strings(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

/// The fields that the dissector shows beyond a single datagram, and its raw words.
const CONVERSATION_FIELDS: [&str; 15] = [
    "_ws.expert",
    "bcnet.word",
    "bcnet.ack.flags",
    "bcnet.ack.of",
    "bcnet.ack.time",
    "bcnet.ack.stale",
    "bcnet.ack.age",
    "bcnet.ack.repeat",
    "bcnet.ack.opcode",
    "bcnet.acked_in",
    "bcnet.retransmission",
    "bcnet.retransmission.count",
    "bcnet.retransmission.time",
    "bcnet.reassembled",
    "bcnet.reassembled.in",
];
