//! Checks that compare several settings, after each setting is valid by itself.

use std::collections::BTreeMap;
use std::time::Duration;

use bcnet_control::is_secret;

use super::document::Problem;
use super::load::{Loaded, Origin};
use super::settings::{ChecksumSetting, Session};
use super::table::KeyInfo;
use super::value::{ConfigValue as _, quoted};

impl Loaded {
    /// Adds the problems that only a comparison of several keys can show.
    pub(super) fn check(&self, problems: &mut Vec<Problem>) {
        self.check_web(problems);
        self.check_hooks(problems);
        let (mut ports, mut names) = (BTreeMap::new(), BTreeMap::new());
        for (session, n) in self.settings.sessions.iter().zip(1..) {
            let table = format!("session.{n}");
            if let Some(port) = session.port.fixed()
                && let Some(first) = ports.insert(port, n)
            {
                problems.push(self.problem_at(
                    &table,
                    "port",
                    format!("port {port} is already used by session {first}; choose another port"),
                ));
            }
            if session.name.0.trim().is_empty() {
                problems.push(self.problem_at(
                    &table,
                    "name",
                    "the name is empty and players could not see it; set a name".into(),
                ));
            }
            if let Some(first) = names.insert(session.name.0.to_lowercase(), n)
                && *self.origin(&table, "name") != Origin::Default
            {
                let text =
                    format!("session {first} has the same name; `bcnet ctl --session` needs unique names");
                problems.push(self.problem_at(&table, "name", text));
            }
            if session.checksums == ChecksumSetting::Strict && session.manifests.is_empty() {
                let text = "\"strict\" needs `manifests`; make one with `bcnet manifest learn`".into();
                problems.push(self.problem_at(&table, "checksums", text));
            }
            for (key, time, min) in minimum_timeouts(session) {
                if time < min {
                    let text = format!(
                        "expected at least {}, not {}: a shorter time disconnects every player",
                        min.to_toml(),
                        time.to_toml()
                    );
                    problems.push(self.problem_at(&table, key, text));
                }
            }
        }
    }

    /// Checks the operator page: the token must never travel unencrypted.
    fn check_web(&self, problems: &mut Vec<Problem>) {
        if self.settings.web.standings && self.settings.scores.file.is_none() {
            let text = "standings need `scores.file`; set it, or set `web.standings = false`".into();
            problems.push(self.problem_at("web", "standings", text));
        }
        let web = &self.settings.web;
        match (&web.certificate, &web.key) {
            (Some(_), None) => {
                problems.push(self.problem_at(
                    "web",
                    "certificate",
                    "`web.certificate` needs `web.key`, the file with the private key".into(),
                ));
            }
            (None, Some(_)) => {
                problems.push(self.problem_at(
                    "web",
                    "key",
                    "`web.key` needs `web.certificate`, the file with the certificate".into(),
                ));
            }
            (None, None) if web.enabled && !web.bind.ip().is_loopback() && !web.behind_proxy => {
                let text = format!(
                    "{} is reachable from outside, and the token must not be sent unencrypted: set `certificate` and \
                     `key`, or set `behind_proxy = true` if a reverse proxy does https, or bind to 127.0.0.1",
                    web.bind
                );
                problems.push(self.problem_at("web", "bind", text));
            }
            _ => {}
        }
    }

    fn check_hooks(&self, problems: &mut Vec<Problem>) {
        let mut names = BTreeMap::new();
        for (hook, n) in self.settings.hooks.iter().zip(1..) {
            let table = format!("hook.{n}");
            for (key, text) in hook.problems() {
                // A value that cannot be parsed is already reported.
                let path = format!("{table}.{key}");
                if problems.iter().all(|problem| problem.key.as_ref() != Some(&path)) {
                    problems.push(self.problem_at(&table, key, text.into()));
                }
            }
            if let Some(first) = names.insert(&hook.name.0, n) {
                problems.push(self.problem_at(
                    &table,
                    "name",
                    format!("hook {first} has the same name; choose another name"),
                ));
            }
        }
    }

    /// Returns the secret keys (passwords, webhook addresses) that the file sets.
    pub(crate) fn secret_keys_in_file(&self) -> Vec<String> {
        let tables = self.settings.tables().into_iter().chain(self.settings.file_only_tables());
        let secrets = tables.flat_map(|(table, keys)| {
            let is_set_secret = |key: &&KeyInfo| {
                let is_of_file = matches!(self.origin(&table, key.name), Origin::File { .. });
                is_secret(key.name) && is_of_file && keys.show(key.name) != quoted("")
            };
            keys.keys()
                .iter()
                .filter(is_set_secret)
                .map(|key| format!("{table}.{}", key.name))
                .collect::<Vec<_>>()
        });
        secrets.collect()
    }

    fn file_name(&self) -> String {
        self.file.as_deref().map_or_else(String::new, |path| path.display().to_string())
    }

    /// Returns a problem with the value of a key, with the place where the value was set.
    fn problem_at(&self, table: &str, key: &str, text: String) -> Problem {
        let (place, line) = match self.origin(table, key) {
            Origin::File { name, line } => (name.clone(), Some(*line)),
            // Only the file sets hooks, so the problem of a missing key belongs to the file.
            Origin::Default if table.starts_with("hook.") => (self.file_name(), None),
            other => (other.to_string(), None),
        };
        Problem { source: place, line, key: Some(format!("{table}.{key}")), text }
    }
}

/// Returns each timeout that ends a connection, with its minimum.
fn minimum_timeouts(session: &Session) -> [(&'static str, Duration, Duration); 5] {
    let second = Duration::from_secs(1);
    [
        ("keepalive", session.keepalive, second),
        ("silence_timeout", session.silence_timeout, session.keepalive + second),
        ("handshake_timeout", session.handshake_timeout, second),
        ("round_timeout", session.round_timeout, second),
        ("undeliverable_timeout", session.undeliverable_timeout, second),
    ]
}
