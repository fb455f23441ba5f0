//! Text values: names, passwords, paths, addresses.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::path::PathBuf;

use toml::de::DeValue;

use super::value::{BoundedU16, ConfigValue, expected_message, quoted};

/// One line of text for players: Latin-1, without characters that break a GameSpy reply or a chat line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Latin1Line<const MAX: usize>(pub(crate) String);

impl<const MAX: usize> Latin1Line<MAX> {
    /// Returns the part of `text` that fits, with `?` for each character outside of Latin-1.
    pub(crate) fn lossy(text: &str) -> Self {
        Self(text.chars().take(MAX).map(|letter| if is_displayable(letter) { letter } else { '?' }).collect())
    }
}

impl<const MAX: usize> ConfigValue for Latin1Line<MAX> {
    fn form() -> String {
        format!("text of at most {MAX} Latin-1 characters, without backslash and control characters")
    }

    fn from_text(text: &str) -> Result<Self, String> {
        if text.chars().count() <= MAX && text.chars().all(is_displayable) {
            Ok(Self(text.into()))
        } else {
            Err(expected_message::<Self>(&quoted(text)))
        }
    }

    fn to_toml(&self) -> String {
        quoted(&self.0)
    }
}

/// Like [`Latin1Line`], but with several lines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Latin1Text<const MAX: usize>(pub(crate) String);

impl<const MAX: usize> ConfigValue for Latin1Text<MAX> {
    fn form() -> String {
        format!("text of at most {MAX} Latin-1 characters, `\\n` between lines")
    }

    fn from_text(text: &str) -> Result<Self, String> {
        // Variables and flags cannot contain a line break, so `\n` stands for it.
        let text = text.replace("\\n", "\n");
        if text.chars().count() <= MAX && text.lines().all(|line| line.chars().all(is_displayable)) {
            Ok(Self(text))
        } else {
            Err(expected_message::<Self>(&quoted(&text)))
        }
    }

    fn to_toml(&self) -> String {
        quoted(&self.0)
    }
}

/// Returns whether the game can display a character and the character is safe in a GameSpy reply.
///
/// A backslash is not: it ends a field of the reply.
fn is_displayable(letter: char) -> bool {
    u32::from(letter) < 0x100 && !letter.is_control() && letter != '\\'
}

/// A password; empty for none. It is never printed.
#[derive(Clone, PartialEq, Eq, Default)]
pub(crate) struct Password(String);

impl Password {
    pub(crate) fn get(&self) -> Option<&str> {
        Some(self.0.as_str()).filter(|text| !text.is_empty())
    }
}

impl fmt::Debug for Password {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(if self.0.is_empty() { "no password" } else { "(hidden)" })
    }
}

impl ConfigValue for Password {
    fn form() -> String {
        format!("text of at most {MAX_PASSWORD} characters; empty for none")
    }

    fn from_text(text: &str) -> Result<Self, String> {
        let fits = text.encode_utf16().count() <= MAX_PASSWORD && !text.chars().any(char::is_control);
        if fits { Ok(Self(text.into())) } else { Err(format!("expected {}", Self::form())) }
    }

    fn from_toml(value: &DeValue<'_>) -> Result<Self, String> {
        // The error does not repeat a wrong value, which may be the password.
        value.as_str().map_or_else(|| Err(format!("expected {}", Self::form())), Self::from_text)
    }

    fn to_toml(&self) -> String {
        quoted(if self.0.is_empty() { "" } else { "(hidden)" })
    }
}

/// Longest password in UTF-16 code units that fits into a connect request (T-33).
const MAX_PASSWORD: usize = 198;

impl ConfigValue for PathBuf {
    fn form() -> String {
        "a path".into()
    }

    fn from_text(text: &str) -> Result<Self, String> {
        if text.is_empty() || text.contains('\0') {
            Err(expected_message::<Self>(&quoted(text)))
        } else {
            Ok(text.into())
        }
    }

    fn to_toml(&self) -> String {
        quoted(&self.to_string_lossy())
    }
}

impl ConfigValue for Ipv4Addr {
    fn form() -> String {
        "an IPv4 address".into()
    }

    fn from_text(text: &str) -> Result<Self, String> {
        match text.trim_matches(['[', ']']).parse() {
            Ok(IpAddr::V4(address)) => Ok(address),
            Ok(IpAddr::V6(_)) => Err(ipv6_message(text)),
            Err(_) => Err(expected_message::<Self>(&quoted(text))),
        }
    }

    fn to_toml(&self) -> String {
        quoted(&self.to_string())
    }
}

impl ConfigValue for SocketAddrV4 {
    fn form() -> String {
        "an IPv4 address and a port such as `\"127.0.0.1:9110\"`".into()
    }

    fn from_text(text: &str) -> Result<Self, String> {
        match text.parse() {
            Ok(SocketAddr::V4(address)) => Ok(address),
            Ok(SocketAddr::V6(_)) => Err(ipv6_message(text)),
            Err(_) => Err(expected_message::<Self>(&quoted(text))),
        }
    }

    fn to_toml(&self) -> String {
        quoted(&self.to_string())
    }
}

/// Returns the error message for an IPv6 address.
fn ipv6_message(text: &str) -> String {
    format!("{text} is IPv6, but the game's protocol carries IPv4 addresses only; use an IPv4 address")
}

/// Address of a list server, with its default port.
pub(crate) type ListServerAddress = HostPort<27900>;

/// A host and a port. `DEFAULT_PORT` applies if none is written; if it is 0, a port is required.
///
/// Host names are resolved when the address is used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HostPort<const DEFAULT_PORT: u16> {
    pub(crate) host: String,
    pub(crate) port: u16,
}

impl<const DEFAULT_PORT: u16> ConfigValue for HostPort<DEFAULT_PORT> {
    fn form() -> String {
        match DEFAULT_PORT {
            0 => "`\"HOST:PORT\"`".into(),
            _ => format!("`\"HOST\"` or `\"HOST:PORT\"` (port {DEFAULT_PORT} if none is given)"),
        }
    }

    fn from_text(text: &str) -> Result<Self, String> {
        if text.trim_matches(['[', ']']).parse::<Ipv6Addr>().is_ok() || text.parse::<SocketAddrV6>().is_ok() {
            return Err(ipv6_message(text));
        }
        let (host, port) = match text.split_once(':') {
            Some((host, port)) => {
                (host, BoundedU16::<1, 65535>::from_text(port).map_err(|why| format!("port: {why}"))?)
            }
            None if DEFAULT_PORT == 0 => return Err(expected_message::<Self>(&quoted(text))),
            None => (text, BoundedU16::new(DEFAULT_PORT)),
        };
        let plain = |letter: char| letter.is_ascii_alphanumeric() || letter == '.' || letter == '-';
        if host.is_empty() || !host.chars().all(plain) {
            return Err(expected_message::<Self>(&quoted(text)));
        }
        Ok(Self { host: host.into(), port: port.get() })
    }

    fn to_toml(&self) -> String {
        quoted(&format!("{}:{}", self.host, self.port))
    }
}

/// Name of an Agones counter, which is part of a URL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CounterName(pub(crate) String);

impl ConfigValue for CounterName {
    fn form() -> String {
        "1 to 63 of `a` to `z`, `A` to `Z`, `0` to `9`, `-`, `_` and `.`".into()
    }

    fn from_text(text: &str) -> Result<Self, String> {
        let plain = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_' | '.');
        if (1..=63).contains(&text.len()) && text.chars().all(plain) {
            Ok(Self(text.into()))
        } else {
            Err(expected_message::<Self>(&quoted(text)))
        }
    }

    fn to_toml(&self) -> String {
        quoted(&self.0)
    }
}

/// A host name in lower case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HostName(pub(crate) String);

impl ConfigValue for HostName {
    fn form() -> String {
        "the name of a host such as `\"game.example\"`, without a port".into()
    }

    fn from_text(text: &str) -> Result<Self, String> {
        let plain = |letter: char| letter.is_ascii_alphanumeric() || letter == '.' || letter == '-';
        if text.is_empty() || text.len() > 253 || !text.chars().all(plain) {
            return Err(expected_message::<Self>(&quoted(text)));
        }
        Ok(Self(text.to_ascii_lowercase()))
    }

    fn to_toml(&self) -> String {
        quoted(&self.0)
    }
}
