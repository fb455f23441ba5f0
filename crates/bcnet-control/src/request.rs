//! Requests and responses of the control socket: one JSON object per line in each direction.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::spelling::{did_you_mean, escape_key};

/// A command for a running server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, clap::Subcommand)]
#[serde(tag = "command", rename_all = "snake_case")]
pub enum Request {
    /// List the players
    Players,
    /// Send a chat message
    Say {
        /// Only to this player: name or peer ID ('#2' if a player is called 2)
        #[arg(long, value_name = "PLAYER")]
        #[serde(default)]
        to: Option<String>,
        /// Text of the message
        #[arg(required = true, num_args = 1.., value_name = "TEXT")]
        text: Vec<String>,
    },
    /// Disconnect a player
    Kick {
        /// Name or peer ID ('#2' if a player is called 2)
        player: String,
        /// Reason; the player reads it before the disconnect
        #[arg(long, value_name = "TEXT")]
        #[serde(default)]
        reason: Option<String>,
    },
    /// Hide the chat of a player, also after the player rejoins
    Mute {
        /// Name or peer ID ('#2' if a player is called 2)
        player: String,
    },
    /// Show the chat of a player again
    Unmute {
        /// Name or peer ID ('#2' if a player is called 2)
        player: String,
    },
    /// Ban an address, and disconnect its players
    Ban {
        /// Address (10.1.2.3), network (10.1.2.0/24), or name or peer ID of a player
        target: String,
        /// Duration: 90m, 12h, 7d, or `never` (default: `ban_expiry` of the configuration)
        #[arg(long, value_name = "TIME")]
        #[serde(default)]
        expiry: Option<String>,
        /// Reason, for operators only
        #[arg(long, value_name = "TEXT")]
        #[serde(default)]
        reason: Option<String>,
        /// Ban the address of a player even if other players use it
        #[arg(long)]
        #[serde(default)]
        yes: bool,
    },
    /// Remove a ban
    Unban {
        /// Address or network, as listed by `bans`
        target: String,
    },
    /// List all bans
    Bans,
    /// Show or change the addresses that may join
    ///
    /// An empty whitelist allows every address. A change disconnects no player. It is lost when the
    /// configuration is read again, unless you pass --save.
    Whitelist {
        /// Allow this address, network or player to join
        #[arg(long, value_name = "TARGET", conflicts_with = "remove")]
        #[serde(default)]
        add: Option<String>,
        /// Remove this entry
        #[arg(long, value_name = "TARGET")]
        #[serde(default)]
        remove: Option<String>,
        /// Also write the change to the configuration file
        #[arg(long)]
        #[serde(default)]
        save: bool,
    },
    /// Search players, players who have left, and bans for a name, address or reason
    Search {
        /// Part of the name, address or reason; upper and lower case are equal
        text: String,
    },
    /// Start the next round
    Restart,
    /// Show settings
    Get {
        /// Part of a key, such as `session.1.welcome` (default: all settings)
        key: Option<String>,
    },
    /// Change a setting until the configuration is read again, or permanently with --save
    Set {
        /// Key, such as `session.1.welcome`, `server.ban_expiry`, `log.level`; with --session also `welcome`
        key: String,
        /// Value as in the configuration, without quotes
        #[arg(allow_hyphen_values = true)]
        value: String,
        /// Also write the setting to the configuration file
        #[arg(long)]
        #[serde(default)]
        save: bool,
    },
    /// Show kicks, bans, changed settings, and who made them
    History {
        /// Only entries that contain this text
        text: Option<String>,
        /// Number of latest entries
        #[arg(long, value_name = "COUNT", default_value_t = 50)]
        #[serde(default = "fifty")]
        count: usize,
    },
    /// Show the latest log events as JSON lines
    Events {
        /// Number of latest events
        #[arg(long, value_name = "COUNT", default_value_t = 50)]
        #[serde(default = "fifty")]
        count: usize,
        /// Then print new events as they happen
        #[arg(long)]
        #[serde(default)]
        follow: bool,
    },
    /// Show the state of the server and its sessions
    Status,
    /// Show the samples of the last hour, one per five seconds; with --session of one session
    Samples {
        /// Only samples after this time, in seconds since 1970
        #[arg(long, value_name = "TIME")]
        #[serde(default)]
        since: Option<u64>,
    },
    /// Show the queued messages to and from each player
    Queues {
        /// Only this player: name or peer ID ('#2' if a player is called 2)
        player: Option<String>,
    },
    /// Read the configuration and the bans again; players stay connected
    ///
    /// A new system or time limit takes effect with the next round, a new mission when the last player has
    /// left.
    Reload,
    /// Disconnect all players and stop the server; with --session stop only one session
    Stop,
    /// Start all stopped sessions; with --session start only one
    Start,
    /// Send a test event to a hook, and show the result
    TestHook {
        /// Name of the hook in the configuration
        hook: String,
    },
    /// Make sessions panic, to test that the rest of the server continues
    #[cfg(debug_assertions)]
    #[command(hide = true)]
    Panic,
}

impl Request {
    /// Returns whether the request changes something, so that it is recorded in the history.
    pub const fn is_change(&self) -> bool {
        match self {
            Self::Whitelist { add, remove, save } => add.is_some() || remove.is_some() || *save,
            Self::Say { .. }
            | Self::Kick { .. }
            | Self::Mute { .. }
            | Self::Unmute { .. }
            | Self::Ban { .. }
            | Self::Unban { .. }
            | Self::Restart
            | Self::Set { .. }
            | Self::Reload
            | Self::Stop
            | Self::Start
            | Self::TestHook { .. } => true,
            Self::Players
            | Self::Bans
            | Self::Search { .. }
            | Self::Get { .. }
            | Self::History { .. }
            | Self::Events { .. }
            | Self::Status
            | Self::Samples { .. }
            | Self::Queues { .. } => false,
            #[cfg(debug_assertions)]
            Self::Panic => true,
        }
    }

    /// Returns the command's name if it acts on the whole server and cannot be limited to a session.
    pub const fn server_wide_name(&self) -> Option<&'static str> {
        match self {
            Self::Unban { .. } => Some("unban"),
            Self::Bans => Some("bans"),
            Self::Reload => Some("reload"),
            Self::History { .. } => Some("history"),
            Self::Events { .. } => Some("events"),
            Self::TestHook { .. } => Some("test-hook"),
            Self::Get { .. }
            | Self::Set { .. }
            | Self::Mute { .. }
            | Self::Unmute { .. }
            | Self::Whitelist { .. }
            | Self::Stop
            | Self::Start
            | Self::Players
            | Self::Say { .. }
            | Self::Kick { .. }
            | Self::Ban { .. }
            | Self::Search { .. }
            | Self::Restart
            | Self::Status
            | Self::Samples { .. }
            | Self::Queues { .. } => None,
            #[cfg(debug_assertions)]
            Self::Panic => None,
        }
    }
}

/// Formats the command and its arguments as typed, with secrets replaced by `…`.
impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Ok(Value::Object(keys)) = serde_json::to_value(self) else { return Err(fmt::Error) };
        f.write_str(keys.get("command").and_then(Value::as_str).unwrap_or_default())?;
        let is_secret = matches!(self, Self::Set { key, .. } if is_secret(key));
        for (key, value) in keys.iter().filter(|(key, _)| *key != "command") {
            match value {
                Value::Null | Value::Bool(false) => {}
                _ if is_secret && key == "value" => f.write_str(" …")?,
                Value::Bool(true) => write!(f, " {key}")?,
                // The key is written, too: otherwise these arguments would look the same.
                Value::String(text) if ["add", "remove", "to"].contains(&key.as_str()) => {
                    write!(f, " {key} {text}")?;
                }
                Value::String(text) => write!(f, " {text}")?,
                Value::Array(texts) => {
                    for text in texts.iter().filter_map(Value::as_str) {
                        write!(f, " {text}")?;
                    }
                }
                other => write!(f, " {other}")?,
            }
        }
        Ok(())
    }
}

/// Returns whether the value of a setting is secret. It also knows keys that `set` does not accept.
#[must_use]
pub fn is_secret(key: &str) -> bool {
    key.ends_with("password") || key.ends_with("url") || key.contains("hook")
}

fn fifty() -> usize {
    50
}

/// A request with its session and its author.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Envelope {
    /// The name or port of a session. Without it, the request is for all sessions.
    #[serde(default)]
    pub session: Option<String>,
    /// The author, for the history.
    #[serde(default)]
    pub by: Option<String>,
    /// The request.
    #[serde(flatten)]
    pub request: Request,
}

impl Envelope {
    /// Parses a request. An unknown key is an error: a mistyped `session` would select all sessions.
    ///
    /// # Errors
    ///
    /// Returns one short line that says what is wrong.
    pub fn parse(line: &[u8]) -> Result<Self, String> {
        let given: Map<String, Value> = serde_json::from_slice(line).map_err(|error| error_line(&error))?;
        let keys: Vec<String> = given.keys().cloned().collect();
        let envelope: Self =
            serde_json::from_value(Value::Object(given)).map_err(|error| error_line(&error))?;
        // The serialized envelope has all keys that this command knows.
        let written = serde_json::to_value(&envelope).map_err(|error| error_line(&error))?;
        let known = || written.as_object().into_iter().flat_map(Map::keys);
        match keys.iter().find(|key| known().all(|known| known != *key)) {
            None => Ok(envelope),
            Some(key) => {
                let near = did_you_mean(key, known().map(String::as_str));
                Err(format!("unknown key `{}`{near}", escape_key(key)))
            }
        }
    }
}

/// Formats an error as one line of limited length, because it may quote the input.
fn error_line(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let shown: String = text.chars().flat_map(char::escape_debug).take(MAX_ERROR).collect();
    // Quotes around names are harmless, so they are shown without escapes.
    shown.replace("\\\"", "\"").replace("\\'", "'")
}

const MAX_ERROR: usize = 240;

/// The response of a server.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ControlResponse {
    /// The request succeeded, with this result.
    Ok(Value),
    /// The request failed, for this reason in one line.
    Error(String),
}

/// The reason why a request failed, for its author.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestError(pub String);

impl fmt::Display for RequestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<Result<Value, RequestError>> for ControlResponse {
    fn from(result: Result<Value, RequestError>) -> Self {
        match result {
            Ok(value) => Self::Ok(value),
            Err(RequestError(reason)) => Self::Error(reason),
        }
    }
}

/// The maximum length of a request in bytes.
pub const MAX_REQUEST: u64 = 16 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_plain_json() {
        let line = r#"{"session":"22101","by":"Ann","command":"kick","player":"Bob","reason":null}"#;
        let request = Request::Kick { player: "Bob".into(), reason: None };
        let kick = Envelope { session: Some("22101".into()), by: Some("Ann".into()), request };
        assert_eq!(Envelope::parse(line.as_bytes()).expect("valid"), kick);
        assert_eq!(serde_json::to_string(&kick).expect("JSON"), line);
        let players = Envelope { session: None, by: None, request: Request::Players };
        assert_eq!(Envelope::parse(br#"{"command":"players"}"#).expect("valid"), players);
        let say = r#"{"command":"say","text":["hello"]}"#;
        assert!(Envelope::parse(say.as_bytes()).is_ok(), "optional keys may be missing");
    }

    #[test]
    fn request_displays_as_typed_without_passwords() {
        let kick = Request::Kick { player: "Bob".into(), reason: Some("no ramming".into()) };
        assert_eq!(kick.to_string(), "kick Bob no ramming");
        let (target, expiry, reason) = ("Bob".into(), Some("2h".into()), None);
        assert_eq!(Request::Ban { target, expiry, reason, yes: true }.to_string(), "ban Bob 2h yes");
        let text = ["hello", "all"].map(Into::into).to_vec();
        assert_eq!(Request::Say { to: None, text: text.clone() }.to_string(), "say hello all");
        assert_eq!(Request::Say { to: Some("Bob".into()), text }.to_string(), "say to Bob hello all");
        let remove = Some("10.0.0.0/8".into());
        let whitelist = Request::Whitelist { add: None, remove, save: true };
        assert_eq!(whitelist.to_string(), "whitelist remove 10.0.0.0/8 save");
        let set = |key: &str, save| {
            let (key, value) = (key.into(), "Enterprise".into());
            Request::Set { key, value, save }.to_string()
        };
        assert_eq!(set("session.1.name", false), "set session.1.name Enterprise");
        assert_eq!(set("session.1.password", true), "set session.1.password … save");
        assert_eq!(
            set("hook.1.url", false),
            "set hook.1.url …",
            "a hook's URL is secret even though it cannot be set"
        );
    }

    #[test]
    fn invalid_request_is_an_error() {
        for line in [
            "",
            "{}",
            "[]",
            r#"{"command":"fly"}"#,
            r#"{"command":"kick"}"#,
            r#"{"command":"kick","player":3}"#,
        ] {
            assert!(Envelope::parse(line.as_bytes()).is_err(), "{line}");
        }
        // An error that quotes a long input is short and escaped.
        let long = format!(r#"{{"command":"{}"}}"#, "\u{7f}".repeat(300));
        let error = Envelope::parse(long.as_bytes()).expect_err("no command");
        assert!(error.len() < 1_000 && !error.contains(char::is_control), "{error}");
    }

    #[test]
    fn mistyped_key_is_an_error_for_every_command() {
        for (line, error) in [
            (r#"{"command":"restart","sesion":"Two"}"#, "unknown key `sesion`; did you mean `session`?"),
            (r#"{"command":"stop","x":null}"#, "unknown key `x`"),
            (r#"{"command":"mute","player":"Bob","reason":"-"}"#, "unknown key `reason`"),
            (
                r#"{"command":"ban","target":"10.0.0.1","expiri":"2h"}"#,
                "unknown key `expiri`; did you mean `expiry`?",
            ),
        ] {
            assert_eq!(Envelope::parse(line.as_bytes()), Err(error.into()), "{line}");
        }
    }
}
