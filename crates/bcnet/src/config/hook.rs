//! Webhooks: the `[[hook]]` tables, their values and their checks.
//!
//! A hook is set in the file only. Variables, flags and operators at the console cannot make the server
//! send requests to an address of their choice.

use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use toml::de::DeValue;
use ureq::http::Uri;

use super::table::table;
use super::value::{ConfigValue, expected_message, quoted, words};

table! {
    /// Posts events to a web address of yours, as JSON or as a Discord message. Write one `[[hook]]`
    /// for each address. Hooks are set in this file only; a reload applies changes.
    Hook {
        /// Name of the hook in the log, in `bcnet ctl status` and in metrics. Without a name the first
        /// hook is `"hook-1"`.
        name: HookName = HookName::default(),
        /// Address to post to. Everyone who knows the address can post there, so bcnet shows only its
        /// host.
        url: HookUrl = HookUrl::default(),
        /// Events to post. They are: a player has joined, a player has left, a round has ended (with the
        /// scores), the session is full, a list server no longer answers.
        events: Vec<HookEvent> = HookEvent::ALL.to_vec(),
        /// Format of a post: one JSON object per event, or a Discord message.
        format: HookFormat = HookFormat::Json,
        /// Longest wait for an answer, from 1 to 60 seconds.
        timeout: Duration = Duration::from_secs(10),
        /// Allows unencrypted `http://` to this machine itself.
        allow_http: bool = false,
    }
}

words! {
    /// An event that a hook can post.
    HookEvent {
        /// A player has joined the game.
        Joined = "joined",
        /// A player who had joined has left.
        Left = "left",
        /// A round has ended.
        RoundEnded = "round_ended",
        /// All player slots are taken.
        Full = "full",
        /// A list server no longer answers.
        MasterLost = "master_lost",
    }
}

impl HookEvent {
    pub(crate) const ALL: [Self; 5] =
        [Self::Joined, Self::Left, Self::RoundEnded, Self::Full, Self::MasterLost];
}

words! {
    /// Format of a post.
    HookFormat { Json = "json", Discord = "discord", }
}

/// Name of a hook, valid as the label of a metric.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct HookName(pub(crate) String);

impl ConfigValue for HookName {
    fn form() -> String {
        "1 to 32 of `a` to `z`, `A` to `Z`, `0` to `9`, `-` and `_`".into()
    }

    fn from_text(text: &str) -> Result<Self, String> {
        let is_plain = |letter: char| letter.is_ascii_alphanumeric() || letter == '-' || letter == '_';
        if (1..=32).contains(&text.len()) && text.chars().all(is_plain) {
            Ok(Self(text.into()))
        } else {
            Err(expected_message::<Self>(&quoted(text)))
        }
    }

    fn to_toml(&self) -> String {
        quoted(&self.0)
    }
}

/// Address to post to, or none. It is a secret except for its host, so it is never printed.
#[derive(Clone, PartialEq, Eq, Default)]
pub(crate) struct HookUrl(Option<Uri>);

impl HookUrl {
    /// Returns the whole address, for the code that connects.
    pub(crate) fn reveal(&self) -> Option<&Uri> {
        self.0.as_ref()
    }

    /// Returns the public part of the address: host and port.
    pub(crate) fn host(&self) -> String {
        let authority = self.0.as_ref().and_then(Uri::authority);
        authority.map_or_else(String::new, ToString::to_string)
    }

    pub(crate) fn is_encrypted(&self) -> bool {
        self.0.as_ref().and_then(Uri::scheme_str) == Some("https")
    }

    /// Returns whether the host is this machine itself. The sender checks the resolved address again.
    pub(crate) fn is_loopback(&self) -> bool {
        let host = self.0.as_ref().and_then(Uri::host).unwrap_or_default();
        let address: Option<IpAddr> = host.trim_matches(['[', ']']).parse().ok();
        address.map_or_else(|| host.eq_ignore_ascii_case("localhost"), |address| address.is_loopback())
    }
}

impl fmt::Debug for HookUrl {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "HookUrl({}/…)", self.host())
    }
}

impl ConfigValue for HookUrl {
    fn form() -> String {
        "an address that begins with `https://`".into()
    }

    fn from_text(text: &str) -> Result<Self, String> {
        // The error does not repeat a wrong value: it may be the secret address with a typing mistake.
        let wrong = || format!("expected {}, with a host and a path, and without a user name", Self::form());
        let is_plain = text.len() <= MAX_URL && text.chars().all(|letter| letter.is_ascii_graphic());
        let uri: Uri = text.parse().ok().filter(|_| is_plain).ok_or_else(wrong)?;
        let is_http = matches!(uri.scheme_str(), Some("http" | "https"));
        let has_host = uri.host().is_some_and(|host| !host.is_empty());
        let has_user = uri.authority().is_some_and(|authority| authority.as_str().contains('@'));
        if is_http && has_host && !has_user { Ok(Self(Some(uri))) } else { Err(wrong()) }
    }

    fn from_toml(value: &DeValue<'_>) -> Result<Self, String> {
        value.as_str().map_or_else(|| Err(format!("expected {}", Self::form())), Self::from_text)
    }

    fn to_toml(&self) -> String {
        let scheme = if self.is_encrypted() { "https" } else { "http" };
        quoted(&self.0.as_ref().map_or_else(String::new, |_| format!("{scheme}://{}/…", self.host())))
    }
}

const MAX_URL: usize = 2048;

impl Hook {
    /// Returns a hook with defaults, before the file is read.
    pub(super) fn with_default_name(number: usize) -> Self {
        Self { name: HookName(format!("hook-{number}")), ..Self::default() }
    }

    /// Returns whether nobody between the server and the receiver can read the posts.
    fn is_encrypted_or_loopback(&self) -> bool {
        self.url.is_encrypted() || self.allow_http && self.url.is_loopback()
    }

    /// Returns each key that contradicts another key, with the reason.
    pub(super) fn problems(&self) -> Vec<(&'static str, &'static str)> {
        let mut problems = Vec::new();
        if self.url.reveal().is_none() {
            problems.push(("url", "is missing; set the address that the hook posts to"));
        } else if !self.is_encrypted_or_loopback() {
            let text = "expected `https://`; `http://` is allowed only to this machine (127.0.0.1) and with \
                        `allow_http = true`";
            problems.push(("url", text));
        }
        if !(Duration::from_secs(1)..=Duration::from_secs(60)).contains(&self.timeout) {
            problems.push(("timeout", "expected a time from \"1s\" to \"60s\""));
        }
        if self.events.is_empty() {
            problems.push((
                "events",
                "the list is empty, so the hook would never post; name some events, or delete the hook",
            ));
        }
        problems
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hook_url_shows_only_its_host() {
        let url = HookUrl::from_text("https://discord.example:8443/api/webhooks/1/s3cret?wait=s3cret")
            .expect("good");
        assert_eq!((url.host().as_str(), url.is_encrypted()), ("discord.example:8443", true));
        assert_eq!(url.to_toml(), "\"https://discord.example:8443/…\"");
        assert!(!format!("{url:?}").contains("s3cret"));
    }

    #[test]
    fn invalid_hook_url_is_rejected_without_printing_it() {
        for text in [
            "",
            "s3cret",
            "ftp://x/s3cret",
            "https:///s3cret",
            "https://s3cret@x/",
            "https://x/s3cret\n",
            "https://x/ s3cret",
            "/api/s3cret",
            &format!("https://x/s3cret{}", "x".repeat(MAX_URL)),
        ] {
            let error = HookUrl::from_text(text).expect_err(text);
            assert!(!error.contains("s3cret"), "{error}");
        }
    }

    #[test]
    fn unencrypted_hook_is_allowed_only_to_loopback() {
        let problems = |url: &str, allow_http| {
            Hook { url: HookUrl::from_text(url).expect(url), allow_http, ..Hook::default() }.problems().len()
        };
        for url in ["http://127.0.0.1:9/x", "http://127.9.9.9/x", "http://[::1]:9/x", "http://localhost/x"] {
            assert_eq!((problems(url, true), problems(url, false)), (0, 1), "{url}");
        }
        for url in [
            "http://192.0.2.1/x",
            "http://example.org/x",
            "http://127.0.0.1.example.org/x",
            "http://0.0.0.0/x",
        ] {
            assert_eq!(problems(url, true), 1, "{url}");
        }
        assert_eq!(problems("https://192.0.2.1/x", false), 0);
        assert_eq!(Hook::default().problems()[0].0, "url");
    }
}
