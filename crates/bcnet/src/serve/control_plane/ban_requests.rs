//! Requests that add or remove bans, and the removal of expired bans.

use std::net::IpAddr;
use std::time::Duration;

use bcnet_control::RequestError;
use bcnet_session::{Network, PlayerStatus};
use bcnet_udp::wall_now;
use serde_json::{Value, json};

use super::{ControlPlane, ControlState, HOUSEKEEPING_INTERVAL};
use crate::bans::{Ban, Timestamp};
use crate::config::{ConfigValue as _, Latin1Line};
use crate::serve::requests::{FoundPlayer, SelectedSessions};

/// The network that a ban would cover, and the players in it.
pub(super) struct BanTarget {
    network: Network,
    /// The player named in the request. `None` if the request names an address.
    player: Option<FoundPlayer>,
    /// All players with an address in the network.
    affected: Vec<FoundPlayer>,
}

impl BanTarget {
    /// Fails if a ban of one player would also remove other players with the same address.
    pub(super) fn ensure_not_shared(&self) -> Result<(), RequestError> {
        let Some(player) = &self.player else { return Ok(()) };
        let others: Vec<_> =
            self.affected.iter().filter(|found| !found.is_same_player(player)).map(display_name).collect();
        if others.is_empty() {
            return Ok(());
        }
        let (name, network, others) = (display_name(player), self.network, others.join(", "));
        let all = format!("{name} shares the address {network} with {others}; a ban removes all of them");
        Err(RequestError(format!("{all}; add --yes to ban the address, or kick only {name}")))
    }

    fn affected_names(&self) -> Vec<&str> {
        self.affected.iter().map(display_name).collect()
    }
}

impl ControlPlane {
    /// Returns the target of a ban: a network, or the address of a player.
    pub(super) fn ban_target(
        &self,
        chosen: &SelectedSessions<'_>,
        target: &str,
    ) -> Result<BanTarget, RequestError> {
        let (network, player) = match Network::from_text(target) {
            Ok(network) if chosen.is_all() => (network, None),
            Ok(_) => {
                return Err(RequestError(
                    "a ban of an address applies to all sessions; leave out the session".into(),
                ));
            }
            Err(problem) if looks_like_address(target) => return Err(RequestError(problem)),
            Err(_) => {
                let found = chosen.find(target)?;
                (Network::containing(*found.player.address.ip(), 32), Some(found))
            }
        };
        let is_there = move |player: &PlayerStatus| network.contains(*player.address.ip());
        let affected = SelectedSessions::new(&self.workers, None).find_all(is_there)?;
        Ok(BanTarget { network, player, affected })
    }

    /// Adds a ban, applies it to all sessions and writes it to the file.
    pub(super) fn ban(
        &self,
        target: &BanTarget,
        ban: Ban,
        expiry: Option<&str>,
    ) -> Result<Value, RequestError> {
        let mut state = self.state();
        let now = wall_now().as_secs();
        let duration = ban_duration(expiry, state.loaded.settings.server.ban_expiry)?;
        let expires = duration.map(|lasts| Timestamp(now.saturating_add(lasts.as_secs())));
        let player = target.player.as_ref().map_or("", |found| &found.player.name);
        let ban = Ban {
            address: target.network,
            player: Latin1Line::lossy(player),
            expires,
            since: Timestamp(now),
            ..ban
        };
        if !state.bans.add(ban.clone()) {
            return Err(RequestError(
                "the ban list is full; ban networks instead of single addresses".into(),
            ));
        }
        let (network, by, reason, names) = (ban.address, &ban.by.0, &ban.reason.0, target.affected_names());
        let (expires, out) = (expires.map(|end| end.to_string()), names.join(", "));
        tracing::info!(event = "banned", %network, player, expires, by, reason, out);
        let mut done = format!("banned {ban}");
        if !out.is_empty() {
            done = format!("{done}; removed: {out}");
        }
        self.apply_and_save_bans(&mut state, &done)?;
        drop(state);
        Ok(
            json!({ "done": done, "network": network.to_string(), "out": names, "server": self.server_name()? }),
        )
    }

    pub(super) fn unban(&self, target: &str) -> Result<Value, RequestError> {
        let network = Network::from_text(target).map_err(RequestError)?;
        let mut state = self.state();
        if !state.bans.remove(network) {
            let problem = format!(
                "no ban is exactly {network}; `bcnet ctl search {target}` lists the bans that cover it"
            );
            return Err(RequestError(problem));
        }
        tracing::info!(event = "unbanned", %network);
        let done = format!("unbanned {network}");
        self.apply_and_save_bans(&mut state, &done)?;
        drop(state);
        Ok(json!({ "done": done, "server": self.server_name()? }))
    }

    /// Applies the bans to all sessions, then writes them to the file.
    ///
    /// # Errors
    ///
    /// Fails if the file cannot be written. The ban stays in force; the error starts with `done` and says so.
    fn apply_and_save_bans(&self, state: &mut ControlState, done: &str) -> Result<(), RequestError> {
        self.apply_bans(state);
        self.write_bans(state).map_err(|error| {
            let but = "in force, but not in the file of bans: a restart would lose the change";
            RequestError(format!("{done}; {but}: {error}"))
        })?;
        // The new ban may be the next to expire.
        self.triggers.bans.fire();
        Ok(())
    }

    /// Writes unsaved bans to the file. An error is also logged.
    fn write_bans(&self, state: &mut ControlState) -> Result<(), String> {
        let before = state.bans.in_force().networks();
        let written = state.bans.write(wall_now().as_secs());
        // Writing merges changes that somebody made to the file.
        if state.bans.in_force().networks() != before {
            self.apply_bans(state);
        }
        written.map_err(|error| {
            let error = format!("{error:#}");
            tracing::error!(
                event = "bans_not_kept",
                error,
                "bans are in force, but not in the file; the server tries again within a minute"
            );
            error
        })
    }

    /// Removes expired bans and retries failed writes. Returns the time until the next call.
    pub(in crate::serve) fn maintain_bans(&self) -> Duration {
        let mut state = self.state();
        let now = wall_now();
        let ended = state.bans.expire(now.as_secs());
        if !ended.is_empty() {
            self.apply_bans(&state);
        }
        for ban in ended {
            tracing::info!(event = "ban_ended", network = %ban.address, player = ban.player.0);
        }
        if state.bans.has_unwritten() && self.write_bans(&mut state).is_ok() {
            tracing::info!(event = "bans_kept");
        }
        // The interval is limited because somebody may set the clock.
        let next = state.bans.in_force().next_expiry();
        next.map_or(HOUSEKEEPING_INTERVAL, |Timestamp(end)| {
            Duration::from_secs(end).saturating_sub(now).min(HOUSEKEEPING_INTERVAL)
        })
    }
}

/// Returns the duration of a ban: from the request, else from the settings. `None` means forever.
fn ban_duration(expiry: Option<&str>, usual: Option<Duration>) -> Result<Option<Duration>, RequestError> {
    let duration = match expiry {
        None => usual,
        Some("never" | "none") => None,
        Some(text) => Some(
            Duration::from_text(text)
                .map_err(|problem| RequestError(format!("expiry: {problem}, or `never`")))?,
        ),
    };
    if duration == Some(Duration::ZERO) {
        return Err(RequestError(
            "expiry: a ban of zero seconds has no effect; use for example 7d, or never".into(),
        ));
    }
    Ok(duration)
}

/// Returns the name of a player for messages.
fn display_name(found: &FoundPlayer) -> &str {
    match found.player.name.as_str() {
        "" => "a player without a name",
        name => name,
    }
}

/// Returns whether the target of a ban looks like an address or a network, not like a player's name.
fn looks_like_address(target: &str) -> bool {
    let digits = !target.contains(char::is_alphabetic) && target.contains(['.', '/']);
    let address = target.split('/').next().unwrap_or_default();
    digits || address.parse::<IpAddr>().is_ok()
}
