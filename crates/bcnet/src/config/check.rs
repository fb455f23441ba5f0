//! What is wrong with settings that are right one by one.

use std::collections::BTreeMap;
use std::time::Duration;

use bcnet_control::is_secret;

use super::document::Problem;
use super::load::{Loaded, Origin};
use super::settings::{Checksums, Session};
use super::table::Key;
use super::value::{Value as _, quoted};

impl Loaded {
    /// What no key can know alone.
    pub(super) fn check(&self, problems: &mut Vec<Problem>) {
        self.check_web(problems);
        self.check_hooks(problems);
        let (mut ports, mut names) = (BTreeMap::new(), BTreeMap::new());
        for (session, n) in self.settings.sessions.iter().zip(1..) {
            let table = format!("session.{n}");
            if let Some(port) = session.port.fixed()
                && let Some(first) = ports.insert(port, n)
            {
                problems.push(self.at(
                    &table,
                    "port",
                    format!("port {port} is already that of session {first}"),
                ));
            }
            if session.name.0.trim().is_empty() {
                problems.push(self.at(&table, "name", "players could not see it; give it a name".into()));
            }
            if let Some(first) = names.insert(session.name.0.to_lowercase(), n)
                && *self.origin(&table, "name") != Origin::Default
            {
                let text =
                    format!("session {first} has this name, too, and `bcnet ctl --session` asks by it");
                problems.push(self.at(&table, "name", text));
            }
            if session.checksums == Checksums::Strict && session.manifests.is_empty() {
                let text = "\"strict\" needs `manifests`; make one with `bcnet manifest learn`".into();
                problems.push(self.at(&table, "checksums", text));
            }
            for (key, time, min) in shortest_times(session) {
                if time < min {
                    let text =
                        format!("at least {}, or nobody could stay, not {}", min.to_toml(), time.to_toml());
                    problems.push(self.at(&table, key, text));
                }
            }
        }
    }

    /// A token that travels in the clear is everybody's.
    fn check_web(&self, problems: &mut Vec<Problem>) {
        if self.settings.web.standings && self.settings.scores.file.is_none() {
            let text = "without `scores.file` there are no standings; name one, or switch this off".into();
            problems.push(self.at("web", "standings", text));
        }
        let web = &self.settings.web;
        match (&web.certificate, &web.key) {
            (Some(_), None) => {
                problems.push(self.at("web", "certificate", "it needs `key`, the file with its key".into()));
            }
            (None, Some(_)) => {
                problems.push(self.at("web", "key", "it needs `certificate`, the file with it".into()));
            }
            (None, None) if web.enabled && !web.bind.ip().is_loopback() && !web.behind_proxy => {
                let text = format!(
                    "{} can be reached from outside, where the token must not travel in the clear: give `certificate` and \
                     `key`, or say `behind_proxy = true` if another program does https, or bind to 127.0.0.1",
                    web.bind
                );
                problems.push(self.at("web", "bind", text));
            }
            _ => {}
        }
    }

    fn check_hooks(&self, problems: &mut Vec<Problem>) {
        let mut names = BTreeMap::new();
        for (hook, n) in self.settings.hooks.iter().zip(1..) {
            let table = format!("hook.{n}");
            for (key, text) in hook.problems() {
                // What cannot be read is told already.
                let path = format!("{table}.{key}");
                if problems.iter().all(|problem| problem.key.as_ref() != Some(&path)) {
                    problems.push(self.at(&table, key, text.into()));
                }
            }
            if let Some(first) = names.insert(&hook.name.0, n) {
                problems.push(self.at(&table, "name", format!("hook {first} has this name, too")));
            }
        }
    }

    /// Returns the keys with which the file tells what is nobody else's business.
    pub(crate) fn secrets(&self) -> Vec<String> {
        let tables = self.settings.tables().into_iter().chain(self.settings.file_tables());
        let secrets = tables.flat_map(|(table, keys)| {
            let is_told = |key: &&Key| {
                let is_of_file = matches!(self.origin(&table, key.name), Origin::File { .. });
                is_secret(key.name) && is_of_file && keys.show(key.name) != quoted("")
            };
            keys.keys().iter().filter(is_told).map(|key| format!("{table}.{}", key.name)).collect::<Vec<_>>()
        });
        secrets.collect()
    }

    fn file_name(&self) -> String {
        self.file.as_deref().map_or_else(String::new, |path| path.display().to_string())
    }

    /// Returns a problem with the value of a key, wherever that was given.
    fn at(&self, table: &str, key: &str, text: String) -> Problem {
        let (place, line) = match self.origin(table, key) {
            Origin::File { name, line } => (name.clone(), Some(*line)),
            // What is missing is so in the file.
            Origin::Default if table.starts_with("hook.") => (self.file_name(), None),
            other => (other.to_string(), None),
        };
        Problem { place, line, key: Some(format!("{table}.{key}")), text }
    }
}

/// Returns each time that ends a connection, with how long it must be.
fn shortest_times(session: &Session) -> [(&'static str, Duration, Duration); 5] {
    let second = Duration::from_secs(1);
    [
        ("keepalive", session.keepalive, second),
        ("silence_timeout", session.silence_timeout, session.keepalive + second),
        ("handshake_timeout", session.handshake_timeout, second),
        ("round_timeout", session.round_timeout, second),
        ("undeliverable_timeout", session.undeliverable_timeout, second),
    ]
}
