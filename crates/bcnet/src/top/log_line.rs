//! One line of the log as readable text.

use bcnet_control::sanitize_for_terminal;
use serde_json::{Map, Value};

/// A log line for the screen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LogLine {
    /// The time of day, in UTC.
    pub(super) time: String,
    pub(super) text: String,
    /// `true` if the line is a warning or an error.
    pub(super) is_bad: bool,
}

impl LogLine {
    pub(super) fn read(event: &Value) -> Self {
        let text = |key: &str| event.get(key).and_then(Value::as_str).unwrap_or_default();
        let time = text("timestamp").split('T').nth(1).and_then(|time| time.get(..8)).unwrap_or("        ");
        let line = match (text("event"), text("player"), text("text")) {
            ("chat", player, message) => format!("chat {player}: {message}"),
            ("say", _, message) => match text("to") {
                "" => format!("say {message}"),
                to => format!("say to {to}: {message}"),
            },
            (event_name, ..) => {
                let rest = event.as_object().map(other_fields).unwrap_or_default();
                format!("{event_name}{rest}")
            }
        };
        let is_bad = matches!(text("level"), "WARN" | "ERROR");
        // Terminals are narrower than this limit.
        let line: String =
            sanitize_for_terminal(&line).replace('\n', " ").chars().take(MAX_LINE_CHARS).collect();
        Self { time: sanitize_for_terminal(time), text: line, is_bad }
    }
}

/// Formats all fields of an event except time, level and event name.
fn other_fields(event: &Map<String, Value>) -> String {
    let others = event.iter().filter(|(key, _)| !["timestamp", "level", "event"].contains(&key.as_str()));
    let shown = others.filter(|(_, value)| !value.is_null() && value.as_str() != Some(""));
    shown
        .map(|(key, value)| match (key.as_str(), value.as_str()) {
            ("player" | "message", Some(text)) => format!(" {text}"),
            (_, Some(text)) => format!(" {key}={text}"),
            (_, None) => format!(" {key}={value}"),
        })
        .collect()
}

const MAX_LINE_CHARS: usize = 500;

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn log_lines_are_readable_and_safe_for_terminals() {
        let joined = json!({
            "timestamp": "2026-11-17T16:37:15.123456Z", "level": "INFO", "event": "joined", "port": 22101, "peer": 2,
            "player": "Zo\u{202e}ë", "reason": "",
        });
        let line = LogLine::read(&joined);
        assert_eq!((line.time.as_str(), line.is_bad), ("16:37:15", false));
        assert_eq!(line.text, "joined port=22101 peer=2 Zo\u{fffd}ë");
        let chat = json!({ "event": "chat", "player": "Bob", "text": "a\u{1b}[2J\nb", "level": "WARN" });
        let line = LogLine::read(&chat);
        assert_eq!((line.text.as_str(), line.is_bad), ("chat Bob: a\u{fffd}[2J b", true));
        assert_eq!(
            LogLine::read(&json!({ "event": "say", "to": "Bob", "text": "hi" })).text,
            "say to Bob: hi"
        );
        for malformed in [json!(3), json!({}), json!({ "timestamp": "T\u{fc}" }), json!({ "event": ["x"] })] {
            LogLine::read(&malformed);
        }
    }
}
