//! Bans of addresses and networks, with end time and reason, and the file that stores them.
//!
//! [`Bans`] uses neither files nor clocks: callers pass the time in Unix seconds. Only [`load`] and [`save`]
//! access files. A crash at any moment leaves either the old file or the new one, never a partial file.

mod timestamp;

use std::collections::BTreeMap;
use std::fmt;
use std::net::Ipv4Addr;
use std::path::Path;

use anyhow::{Context, ensure};
use bcnet_control::escape_key;
use bcnet_session::Network;

use crate::config::{ConfigValue, Document, Latin1Line, Problems, Table, quoted, table};
use crate::file::{check_replaceable, parent_directory, read_text, replace};
pub(crate) use timestamp::Timestamp;

table! {
    /// An address or a network that may not play.
    Ban {
        /// Banned address or network.
        address: Network = Network::containing(Ipv4Addr::UNSPECIFIED, 32),
        /// Name of the player, if an operator banned a player instead of an address.
        player: Latin1Line<64> = Latin1Line(String::new()),
        /// End of the ban. `"none"`: the ban never ends.
        expires: Option<Timestamp> = None,
        /// Reason of the ban.
        reason: Latin1Line<200> = Latin1Line(String::new()),
        /// Operator who set the ban.
        by: Latin1Line<64> = Latin1Line(String::new()),
        /// Start of the ban.
        since: Timestamp = Timestamp(0),
    }
}

impl Ban {
    /// Returns whether the ban is still in force at `now`.
    pub(crate) fn is_in_force(&self, now: u64) -> bool {
        self.expires.is_none_or(|Timestamp(end)| now < end)
    }
}

impl fmt::Display for Ban {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}", self.address)?;
        if !self.player.0.is_empty() {
            write!(out, " ({})", self.player.0)?;
        }
        write!(out, " since {}", self.since)?;
        match self.expires {
            Some(end) => write!(out, " until {end}")?,
            None => write!(out, " for ever")?,
        }
        for (word, text) in [(" by", &self.by.0), (":", &self.reason.0)] {
            if !text.is_empty() {
                write!(out, "{word} {text}")?;
            }
        }
        Ok(())
    }
}

impl ConfigValue for Network {
    fn form() -> String {
        "an IPv4 address or a network such as `\"192.0.2.0/24\"`".into()
    }

    fn from_text(text: &str) -> Result<Self, String> {
        let (address, prefix) = text.split_once('/').unwrap_or((text, "32"));
        let address = Ipv4Addr::from_text(address)?;
        // A ban of /0 would exclude everyone and is most likely a mistake. To close a server, set a password.
        let prefix: Option<u8> = prefix.parse().ok().filter(|prefix| (1..=32).contains(prefix));
        let network =
            Self::containing(address, prefix.ok_or("a network has 1 to 32 bits, such as 192.0.2.0/24")?);
        if network.first() == address {
            Ok(network)
        } else {
            Err(format!("{text} is not a network address; did you mean {network}?"))
        }
    }

    fn to_toml(&self) -> String {
        quoted(&self.to_string())
    }
}

/// All bans, by network.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Bans(BTreeMap<Network, Ban>);

impl Bans {
    /// Adds a ban, or replaces the ban of the same network. Returns `false` if the list is full.
    #[must_use]
    pub(crate) fn add(&mut self, ban: Ban) -> bool {
        let has_capacity = self.0.len() < MAX_BANS || self.0.contains_key(&ban.address);
        if has_capacity {
            self.0.insert(ban.address, ban);
        }
        has_capacity
    }

    /// Removes a ban. Returns `None` if exactly this network is not banned.
    pub(crate) fn remove(&mut self, network: Network) -> Option<Ban> {
        self.0.remove(&network)
    }

    /// Returns the bans with `text` in their address, player, reason or author.
    ///
    /// If `text` is an address, bans of networks that contain it match too. An empty `text` matches all bans.
    pub(crate) fn search<'a>(&'a self, text: &'a str) -> impl Iterator<Item = &'a Ban> {
        let address: Option<Ipv4Addr> = text.parse().ok();
        let lower = text.to_lowercase();
        self.0.values().filter(move |ban| {
            address.is_some_and(|address| ban.address.contains(address))
                || ban.address.to_string().contains(text)
                || [&ban.player.0, &ban.reason.0, &ban.by.0]
                    .iter()
                    .any(|field| field.to_lowercase().contains(&lower))
        })
    }

    pub(crate) fn networks(&self) -> Vec<Network> {
        self.0.keys().copied().collect()
    }

    /// Returns the earliest end time of all bans, if one has an end.
    pub(crate) fn next_expiry(&self) -> Option<Timestamp> {
        self.0.values().filter_map(|ban| ban.expires).min()
    }

    /// Removes and returns the bans that have expired.
    pub(crate) fn expire(&mut self, now: u64) -> Vec<Ban> {
        let ended = self.0.extract_if(.., |_, ban| !ban.is_in_force(now));
        ended.map(|(_, ban)| ban).collect()
    }
}

/// The maximum number of bans. A file with so many stays below the size limit of [`load`].
const MAX_BANS: usize = 10_000;

/// Reads the bans of a file that are still in force. If the file does not exist, there are none.
pub(crate) fn load(path: &Path, now: u64) -> anyhow::Result<Bans> {
    if !path.try_exists().with_context(|| path.display().to_string())? {
        ensure!(
            parent_directory(path).is_dir(),
            "{}: the directory for the bans file does not exist; create it",
            path.display()
        );
        return Ok(Bans::default());
    }
    load_existing(path, now)
}

/// Like [`load`], but fails if the file does not exist.
///
/// A server that reads the bans of another server must not run without them by mistake.
pub(crate) fn load_existing(path: &Path, now: u64) -> anyhow::Result<Bans> {
    let exists = path.try_exists().with_context(|| path.display().to_string())?;
    ensure!(
        exists,
        "{}: the bans file does not exist; create an empty file if nobody is banned",
        path.display()
    );
    let mut bans = parse(path, &read_text(path)?)?;
    bans.expire(now);
    Ok(bans)
}

fn parse(path: &Path, text: &str) -> Result<Bans, Problems> {
    let (mut document, root) = Document::parse(path.display().to_string(), text);
    let mut bans = Bans::default();
    for (key, value) in &root {
        if key.get_ref() != "ban" {
            document.add_problem(
                Some(key.span()),
                Some(escape_key(key.get_ref())),
                "unknown table; a bans file has only `[[ban]]` tables".into(),
            );
            continue;
        }
        for (source, n) in document.expect_tables("ban", value).into_iter().zip(1..) {
            let (mut ban, mut has_address) = (Ban::default(), false);
            let problems = document.problem_count();
            document.fill(&format!("ban.{n}"), &mut ban, source, |key, _| has_address |= key == "address");
            if !has_address && document.problem_count() == problems {
                document.add_problem(
                    Some(value.span()),
                    Some(format!("ban.{n}")),
                    "`address` is missing".into(),
                );
            } else if !bans.add(ban) {
                let text = format!("more than {MAX_BANS} bans; replace single addresses by networks");
                document.add_problem(Some(value.span()), Some(format!("ban.{n}")), text);
            }
        }
    }
    let problems = document.into_problems();
    if problems.is_empty() { Ok(bans) } else { Err(Problems(problems)) }
}

fn serialize(bans: &Bans) -> String {
    let mut text =
        String::from("# Bans. `bcnet serve` writes this file. After you edit it, run `bcnet ctl reload`.\n");
    for ban in bans.0.values() {
        text.push_str("\n[[ban]]\n");
        for key in ban.keys() {
            text.push_str(&format!("{} = {}\n", key.name, ban.show(key.name)));
        }
    }
    text
}

/// Checks whether the file can be written, without changing it.
pub(crate) fn check_writable(path: &Path) -> anyhow::Result<()> {
    check_replaceable(path).with_context(|| format!("{}: bans cannot be saved here", path.display()))
}

/// Replaces the file. A crash leaves either the old file or the new one.
pub(crate) fn save(path: &Path, bans: &Bans) -> anyhow::Result<()> {
    replace(path, serialize(bans).as_bytes())
        .with_context(|| format!("{}: cannot save the bans", path.display()))
}

#[cfg(test)]
mod tests;
