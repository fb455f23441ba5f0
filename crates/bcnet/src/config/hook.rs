//! Where what happens is posted to. A `[[hook]]` stands in the file only: neither variables, nor flags, nor whoever reaches
//! the console may have a server talk to an address of their choice.

use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use toml::de::DeValue;
use ureq::http::Uri;

use super::table::table;
use super::value::{Value, expected, quoted, words};

table! {
    /// Posts what happens to an address of yours, as JSON or as a message in Discord. Write one `[[hook]]` for each. Hooks are
    /// set in this file only; a reload puts them in force.
    Hook {
        /// What the log, `bcnet ctl status` and the figures call it. The first without a name is `"hook-1"`.
        name: HookName = HookName::default(),
        /// Where to post. Who knows it can write there, so nothing but its host is ever shown.
        url: HookUrl = HookUrl::default(),
        /// What is told: a player takes part, or is gone; a round is over, with the scores; every place is taken; nothing is
        /// heard of a list server any more.
        events: Vec<HookEvent> = HookEvent::ALL.to_vec(),
        /// A JSON object for each event, or messages as Discord takes them.
        format: HookFormat = HookFormat::Json,
        /// How long an answer may take, from 1 second to 60.
        timeout: Duration = Duration::from_secs(10),
        /// Allows `http://`, without encryption, to this machine itself.
        allow_http: bool = false,
    }
}

words! {
    /// What a hook can be told.
    HookEvent {
        /// A player takes part.
        Joined = "joined",
        /// A player who took part is gone.
        Left = "left",
        /// A round is over.
        RoundEnded = "round_ended",
        /// Every place is taken.
        Full = "full",
        /// Nothing is heard of a list server any more.
        MasterLost = "master_lost",
    }
}

impl HookEvent {
    pub(crate) const ALL: [Self; 5] =
        [Self::Joined, Self::Left, Self::RoundEnded, Self::Full, Self::MasterLost];
}

words! {
    /// How an event is written.
    HookFormat { Json = "json", Discord = "discord", }
}

/// What a hook is called: fit for a label of figures.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct HookName(pub(crate) String);

impl Value for HookName {
    fn form() -> String {
        "1 to 32 of `a` to `z`, `A` to `Z`, `0` to `9`, `-` and `_`".into()
    }

    fn from_text(text: &str) -> Result<Self, String> {
        let is_plain = |letter: char| letter.is_ascii_alphanumeric() || letter == '-' || letter == '_';
        if (1..=32).contains(&text.len()) && text.chars().all(is_plain) {
            Ok(Self(text.into()))
        } else {
            Err(expected::<Self>(&quoted(text)))
        }
    }

    fn to_toml(&self) -> String {
        quoted(&self.0)
    }
}

/// An address to post to, if there is one. It is a secret but for its host, so it never shows itself.
#[derive(Clone, PartialEq, Eq, Default)]
pub(crate) struct HookUrl(Option<Uri>);

impl HookUrl {
    /// Returns the whole of it, for the one who connects.
    pub(crate) fn secret(&self) -> Option<&Uri> {
        self.0.as_ref()
    }

    /// Returns what of it may be shown: host and port.
    pub(crate) fn host(&self) -> String {
        let authority = self.0.as_ref().and_then(Uri::authority);
        authority.map_or_else(String::new, ToString::to_string)
    }

    pub(crate) fn is_encrypted(&self) -> bool {
        self.0.as_ref().and_then(Uri::scheme_str) == Some("https")
    }

    /// Returns whether it names this machine itself. What a name means is looked at again when it is used.
    pub(crate) fn is_local(&self) -> bool {
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

impl Value for HookUrl {
    fn form() -> String {
        "an address that begins with `https://`".into()
    }

    fn from_text(text: &str) -> Result<Self, String> {
        // A wrong value may be all but one letter of the secret, so it is not repeated.
        let wrong = || format!("expected {}, a host without a user's name, and a path", Self::form());
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
    /// Returns a hook as it is until the file says more.
    pub(super) fn numbered(number: usize) -> Self {
        Self { name: HookName(format!("hook-{number}")), ..Self::default() }
    }

    /// Returns whether nobody on the way reads what is posted.
    fn is_safe(&self) -> bool {
        self.url.is_encrypted() || self.allow_http && self.url.is_local()
    }

    /// Returns the key that does not fit the others, and why.
    pub(super) fn problems(&self) -> Vec<(&'static str, &'static str)> {
        let mut problems = Vec::new();
        if self.url.secret().is_none() {
            problems.push(("url", "is missing; a hook needs an address to post to"));
        } else if !self.is_safe() {
            let text = "expected `https://`; `http://` only to this machine itself, as 127.0.0.1, and with \
                        `allow_http = true`";
            problems.push(("url", text));
        }
        if !(Duration::from_secs(1)..=Duration::from_secs(60)).contains(&self.timeout) {
            problems.push(("timeout", "expected a time from \"1s\" to \"60s\""));
        }
        if self.events.is_empty() {
            problems.push(("events", "it would never be told anything; name some, or delete the hook"));
        }
        problems
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_shows_nothing_but_its_host() {
        let url = HookUrl::from_text("https://discord.example:8443/api/webhooks/1/s3cret?wait=s3cret")
            .expect("good");
        assert_eq!((url.host().as_str(), url.is_encrypted()), ("discord.example:8443", true));
        assert_eq!(url.to_toml(), "\"https://discord.example:8443/…\"");
        assert!(!format!("{url:?}").contains("s3cret"));
    }

    #[test]
    fn an_address_that_cannot_be_used_is_refused_without_being_repeated() {
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
    fn without_encryption_only_this_machine_itself_is_talked_to() {
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
