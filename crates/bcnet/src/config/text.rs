//! Values that are text with a meaning: names, passwords, paths, addresses.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::path::PathBuf;

use toml::de::DeValue;

use super::value::{Value, Within, expected, quoted};

/// Text that players see: Latin-1, as the game shows it, without what would break a GameSpy reply or a chat line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Line<const MAX: usize>(pub(crate) String);

impl<const MAX: usize> Line<MAX> {
    /// Returns as much of `text` as fits, with `?` for each character that does not.
    pub(crate) fn lossy(text: &str) -> Self {
        Self(text.chars().take(MAX).map(|letter| if is_shown(letter) { letter } else { '?' }).collect())
    }
}

impl<const MAX: usize> Value for Line<MAX> {
    fn form() -> String {
        format!("text of at most {MAX} Latin-1 characters, without backslash and control characters")
    }

    fn from_text(text: &str) -> Result<Self, String> {
        if text.chars().count() <= MAX && text.chars().all(is_shown) {
            Ok(Self(text.into()))
        } else {
            Err(expected::<Self>(&quoted(text)))
        }
    }

    fn to_toml(&self) -> String {
        quoted(&self.0)
    }
}

/// Like [`Line`], but of several lines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Lines<const MAX: usize>(pub(crate) String);

impl<const MAX: usize> Value for Lines<MAX> {
    fn form() -> String {
        format!("text of at most {MAX} Latin-1 characters, `\\n` between lines")
    }

    fn from_text(text: &str) -> Result<Self, String> {
        // A variable or a flag has no other way to say it.
        let text = text.replace("\\n", "\n");
        if text.chars().count() <= MAX && text.lines().all(|line| line.chars().all(is_shown)) {
            Ok(Self(text))
        } else {
            Err(expected::<Self>(&quoted(&text)))
        }
    }

    fn to_toml(&self) -> String {
        quoted(&self.0)
    }
}

/// Returns whether the game shows a character, and it ends no field of a GameSpy reply.
fn is_shown(letter: char) -> bool {
    u32::from(letter) < 0x100 && !letter.is_control() && letter != '\\'
}

/// A password, or none if it is empty. It never shows itself.
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

impl Value for Password {
    fn form() -> String {
        format!("text of at most {MAX_PASSWORD} characters; empty for none")
    }

    fn from_text(text: &str) -> Result<Self, String> {
        let fits = text.encode_utf16().count() <= MAX_PASSWORD && !text.chars().any(char::is_control);
        if fits { Ok(Self(text.into())) } else { Err(format!("expected {}", Self::form())) }
    }

    fn from_toml(value: &DeValue<'_>) -> Result<Self, String> {
        // A wrong value may be the password itself, so it is not repeated.
        value.as_str().map_or_else(|| Err(format!("expected {}", Self::form())), Self::from_text)
    }

    fn to_toml(&self) -> String {
        quoted(if self.0.is_empty() { "" } else { "(hidden)" })
    }
}

/// A connect request holds no more (T-33).
const MAX_PASSWORD: usize = 198;

impl Value for PathBuf {
    fn form() -> String {
        "a path".into()
    }

    fn from_text(text: &str) -> Result<Self, String> {
        if text.is_empty() || text.contains('\0') {
            Err(expected::<Self>(&quoted(text)))
        } else {
            Ok(text.into())
        }
    }

    fn to_toml(&self) -> String {
        quoted(&self.to_string_lossy())
    }
}

impl Value for Ipv4Addr {
    fn form() -> String {
        "an IPv4 address".into()
    }

    fn from_text(text: &str) -> Result<Self, String> {
        match text.trim_matches(['[', ']']).parse() {
            Ok(IpAddr::V4(address)) => Ok(address),
            Ok(IpAddr::V6(_)) => Err(is_ipv6(text)),
            Err(_) => Err(expected::<Self>(&quoted(text))),
        }
    }

    fn to_toml(&self) -> String {
        quoted(&self.to_string())
    }
}

impl Value for SocketAddrV4 {
    fn form() -> String {
        "an IPv4 address and a port such as `\"127.0.0.1:9110\"`".into()
    }

    fn from_text(text: &str) -> Result<Self, String> {
        match text.parse() {
            Ok(SocketAddr::V4(address)) => Ok(address),
            Ok(SocketAddr::V6(_)) => Err(is_ipv6(text)),
            Err(_) => Err(expected::<Self>(&quoted(text))),
        }
    }

    fn to_toml(&self) -> String {
        quoted(&self.to_string())
    }
}

/// Returns what to say of an IPv6 address.
fn is_ipv6(text: &str) -> String {
    format!("{text} is IPv6, but the game's protocol carries IPv4 addresses only; use an IPv4 address")
}

/// A list server. Its usual port is part of its type.
pub(crate) type Master = HostPort<27900>;

/// A host and a port, the port being `DEFAULT` if none is written; if that is 0, one must be. Names are looked up when they
/// are used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HostPort<const DEFAULT: u16> {
    pub(crate) host: String,
    pub(crate) port: u16,
}

impl<const DEFAULT: u16> Value for HostPort<DEFAULT> {
    fn form() -> String {
        match DEFAULT {
            0 => "`\"HOST:PORT\"`".into(),
            _ => format!("`\"HOST\"` or `\"HOST:PORT\"` (port {DEFAULT} if none is given)"),
        }
    }

    fn from_text(text: &str) -> Result<Self, String> {
        if text.trim_matches(['[', ']']).parse::<Ipv6Addr>().is_ok() || text.parse::<SocketAddrV6>().is_ok() {
            return Err(is_ipv6(text));
        }
        let (host, port) = match text.split_once(':') {
            Some((host, port)) => {
                (host, Within::<1, 65535>::from_text(port).map_err(|why| format!("port: {why}"))?)
            }
            None if DEFAULT == 0 => return Err(expected::<Self>(&quoted(text))),
            None => (text, Within::new(DEFAULT)),
        };
        let plain = |letter: char| letter.is_ascii_alphanumeric() || letter == '.' || letter == '-';
        if host.is_empty() || !host.chars().all(plain) {
            return Err(expected::<Self>(&quoted(text)));
        }
        Ok(Self { host: host.into(), port: port.get() })
    }

    fn to_toml(&self) -> String {
        quoted(&format!("{}:{}", self.host, self.port))
    }
}

/// The name of a counter of Agones, which is part of an address there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CounterName(pub(crate) String);

impl Value for CounterName {
    fn form() -> String {
        "1 to 63 of `a` to `z`, `A` to `Z`, `0` to `9`, `-`, `_` and `.`".into()
    }

    fn from_text(text: &str) -> Result<Self, String> {
        let plain = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_' | '.');
        if (1..=63).contains(&text.len()) && text.chars().all(plain) {
            Ok(Self(text.into()))
        } else {
            Err(expected::<Self>(&quoted(text)))
        }
    }

    fn to_toml(&self) -> String {
        quoted(&self.0)
    }
}

/// The name of a host, in small letters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HostName(pub(crate) String);

impl Value for HostName {
    fn form() -> String {
        "the name of a host such as `\"game.example\"`, without a port".into()
    }

    fn from_text(text: &str) -> Result<Self, String> {
        let plain = |letter: char| letter.is_ascii_alphanumeric() || letter == '.' || letter == '-';
        if text.is_empty() || text.len() > 253 || !text.chars().all(plain) {
            return Err(expected::<Self>(&quoted(text)));
        }
        Ok(Self(text.to_ascii_lowercase()))
    }

    fn to_toml(&self) -> String {
        quoted(&self.0)
    }
}
