//! What `bcnet ctl` and a server say to each other: one JSON object per line, a request and then its answer.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::spelling::{did_you_mean, escape_key};

/// What a server can be asked to do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, clap::Subcommand)]
#[serde(tag = "command", rename_all = "snake_case")]
pub enum Request {
    /// Who is on the server
    Players,
    /// Say something in the chat
    Say {
        /// Only to this player, by name or peer id ('#2' if a player is called 2)
        #[arg(long, value_name = "PLAYER")]
        #[serde(default)]
        to: Option<String>,
        /// What
        #[arg(required = true, num_args = 1.., value_name = "TEXT")]
        text: Vec<String>,
    },
    /// Throw a player out
    Kick {
        /// Name or peer id ('#2' if a player is called 2)
        player: String,
        /// Why: the player reads it before it is out
        #[arg(long, value_name = "TEXT")]
        #[serde(default)]
        reason: Option<String>,
    },
    /// Have nobody hear what a player chats, also if it comes back
    Mute {
        /// Name or peer id ('#2' if a player is called 2)
        player: String,
    },
    /// Let a player chat again
    Unmute {
        /// Name or peer id ('#2' if a player is called 2)
        player: String,
    },
    /// Keep an address out, and throw out who has it
    Ban {
        /// An address (10.1.2.3), a network (10.1.2.0/24), or the name or peer id of a player
        target: String,
        /// How long, as 90m, 12h, 7d, or `never`; else as the configuration says
        #[arg(long, value_name = "TIME")]
        #[serde(default)]
        expiry: Option<String>,
        /// Why, for yourself
        #[arg(long, value_name = "TEXT")]
        #[serde(default)]
        reason: Option<String>,
        /// Even if others play from the address of the player who is meant
        #[arg(long)]
        #[serde(default)]
        yes: bool,
    },
    /// Take a ban back
    Unban {
        /// The address or network as it was banned
        target: String,
    },
    /// All bans
    Bans,
    /// Who alone may join; without arguments, show it
    ///
    /// Without any address everyone may join. Whoever is in stays. A change holds until the configuration is read again, or
    /// for good with --save.
    Whitelist {
        /// Let this address, network or player join
        #[arg(long, value_name = "TARGET", conflicts_with = "remove")]
        #[serde(default)]
        add: Option<String>,
        /// No longer this one
        #[arg(long, value_name = "TARGET")]
        #[serde(default)]
        remove: Option<String>,
        /// Write the change into the configuration file, too
        #[arg(long)]
        #[serde(default)]
        save: bool,
    },
    /// Look for a name, address or reason among players, those who have left, and bans
    Search {
        /// A part of it, in any case
        text: String,
    },
    /// Begin the next round
    Restart,
    /// What the settings are
    Get {
        /// A part of the keys, as `session.1.welcome`; else all
        key: Option<String>,
    },
    /// Change a setting until the configuration is read again, or for good
    Set {
        /// As `session.1.welcome`, `server.ban_expiry`, `log.level`; with --session also `welcome`
        key: String,
        /// As in the configuration, without the quotes
        #[arg(allow_hyphen_values = true)]
        value: String,
        /// Write it into the configuration file, too
        #[arg(long)]
        #[serde(default)]
        save: bool,
    },
    /// Who did what: kicks, bans, settings
    History {
        /// Only what has this in it
        text: Option<String>,
        /// How many of the last
        #[arg(long, value_name = "COUNT", default_value_t = 50)]
        #[serde(default = "fifty")]
        count: usize,
    },
    /// What happened last, as the log has it, in JSON lines
    Events {
        /// How many of the last
        #[arg(long, value_name = "COUNT", default_value_t = 50)]
        #[serde(default = "fifty")]
        count: usize,
        /// And then whatever happens, as it does
        #[arg(long)]
        #[serde(default)]
        follow: bool,
    },
    /// How the server is doing
    Status,
    /// What the server did in the last hour, every five seconds, or one session with --session
    Samples {
        /// Only what came after this time, in seconds since 1970
        #[arg(long, value_name = "TIME")]
        #[serde(default)]
        since: Option<u64>,
    },
    /// What waits for and from each player
    Queues {
        /// Only this player, by name or peer id ('#2' if a player is called 2)
        player: Option<String>,
    },
    /// Read the configuration and the bans again, without dropping players
    ///
    /// A new system or time limit begins with the next round, a new mission when the last player has left.
    Reload,
    /// Say goodbye to everyone and end the server, or only one session with --session
    Stop,
    /// Begin sessions again that were stopped, all or one with --session
    Start,
    /// Post a test to a hook, and tell what came of it
    TestHook {
        /// Its name in the configuration
        hook: String,
    },
    /// Have sessions panic, to see that nothing else does
    #[cfg(debug_assertions)]
    #[command(hide = true)]
    Panic,
}

impl Request {
    /// Returns whether it changes something, and so belongs in the history.
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

    /// Returns the word for what concerns the whole server and cannot be done for one of its sessions.
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

/// The command and what it is about, as people write it, but for passwords.
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
                // Who reads it must know which of them it was.
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

/// Returns whether the value of a key is nobody's business, even where it cannot be set.
#[must_use]
pub fn is_secret(key: &str) -> bool {
    key.ends_with("password") || key.ends_with("url") || key.contains("hook")
}

fn fifty() -> usize {
    50
}

/// A request, which session it is about, and who makes it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Envelope {
    /// The name or port of a session; without it, all of them.
    #[serde(default)]
    pub session: Option<String>,
    /// Who asks, for the history.
    #[serde(default)]
    pub by: Option<String>,
    /// What is asked.
    #[serde(flatten)]
    pub request: Request,
}

impl Envelope {
    /// Reads a request. A key that it does not have is an error: a mistyped `session` would mean all sessions.
    ///
    /// # Errors
    /// What is wrong, in one short line.
    pub fn parse(line: &[u8]) -> Result<Self, String> {
        let given: Map<String, Value> = serde_json::from_slice(line).map_err(|error| error_line(&error))?;
        let keys: Vec<String> = given.keys().cloned().collect();
        let envelope: Self =
            serde_json::from_value(Value::Object(given)).map_err(|error| error_line(&error))?;
        // It is written with all the keys that it has.
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

/// Returns what is wrong in one line of some length, for it may repeat what came.
fn error_line(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let shown: String = text.chars().flat_map(char::escape_debug).take(MAX_ERROR).collect();
    // They stand around names, and are nothing to be afraid of.
    shown.replace("\\\"", "\"").replace("\\'", "'")
}

const MAX_ERROR: usize = 240;

/// What a server answers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ControlResponse {
    /// It was done, and this is known.
    Ok(Value),
    /// It was not done: why, in one line.
    Error(String),
}

/// Why a request was not done, for its sender.
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

/// The longest request, in bytes.
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
        assert!(Envelope::parse(say.as_bytes()).is_ok(), "what may be left out is left out");
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
        assert_eq!(set("hook.1.url", false), "set hook.1.url …", "although it is refused");
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
        // What is repeated of it is short, with escapes.
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
