//! Bans, as the operator asks for them.

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

/// Whom a ban would hit.
pub(super) struct BanTarget {
    network: Network,
    /// The player who is meant, unless an address is.
    player: Option<FoundPlayer>,
    /// Who plays from there.
    affected: Vec<FoundPlayer>,
}

impl BanTarget {
    /// Whoever is meant may share the address with others, who would go too.
    pub(super) fn ensure_not_shared(&self) -> Result<(), RequestError> {
        let Some(player) = &self.player else { return Ok(()) };
        let others: Vec<_> =
            self.affected.iter().filter(|found| !found.is_same_player(player)).map(display_name).collect();
        if others.is_empty() {
            return Ok(());
        }
        let (one, network, others) = (display_name(player), self.network, others.join(", "));
        let all = format!("{one} has the address {network}, and so do {others}, who would go too");
        Err(RequestError(format!("{all}; add --yes to ban them all, or kick {one} alone")))
    }

    fn affected_names(&self) -> Vec<&str> {
        self.affected.iter().map(display_name).collect()
    }
}

impl ControlPlane {
    /// Returns whom a ban is about: a network, or the address of a player.
    pub(super) fn ban_target(
        &self,
        chosen: &SelectedSessions<'_>,
        target: &str,
    ) -> Result<BanTarget, RequestError> {
        let (network, player) = match Network::from_text(target) {
            Ok(network) if chosen.is_all() => (network, None),
            Ok(_) => {
                return Err(RequestError(
                    "an address is banned from all sessions; leave the session out".into(),
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

    /// Puts a ban in force, from now on.
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
            return Err(RequestError("there is no room for more bans; join addresses to networks".into()));
        }
        let (network, by, reason, names) = (ban.address, &ban.by.0, &ban.reason.0, target.affected_names());
        let (expires, out) = (expires.map(|end| end.to_string()), names.join(", "));
        tracing::info!(event = "banned", %network, player, expires, by, reason, out);
        let mut done = format!("banned {ban}");
        if !out.is_empty() {
            done = format!("{done}; out: {out}");
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
            let problem =
                format!("{network} is not banned as such; `bcnet ctl search {target}` shows what covers it");
            return Err(RequestError(problem));
        }
        tracing::info!(event = "unbanned", %network);
        let done = format!("{network} may play again");
        self.apply_and_save_bans(&mut state, &done)?;
        drop(state);
        Ok(json!({ "done": done, "server": self.server_name()? }))
    }

    /// Puts bans in force and then into the file. If that fails, what was `done` counts all the same.
    fn apply_and_save_bans(&self, state: &mut ControlState, done: &str) -> Result<(), RequestError> {
        self.apply_bans(state);
        self.write_bans(state).map_err(|error| {
            let but = "that counts, but is not in the file yet and would be gone after a restart";
            RequestError(format!("{done}; {but}: {error}"))
        })?;
        // It may end soon.
        self.triggers.bans.fire();
        Ok(())
    }

    /// Writes what is not in the file yet. An error is logged, and says why.
    fn write_bans(&self, state: &mut ControlState) -> Result<(), String> {
        let before = state.bans.in_force().networks();
        let written = state.bans.write(wall_now().as_secs());
        // Somebody may have changed the file.
        if state.bans.in_force().networks() != before {
            self.apply_bans(state);
        }
        written.map_err(|error| {
            let error = format!("{error:#}");
            tracing::error!(event = "bans_not_kept", error, "they count, but are not in the file yet");
            error
        })
    }

    /// Ends bans whose time is over, and tries again what could not be written. Returns when to do that again.
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
        // Somebody may set the clock, so it is looked at now and then.
        let next = state.bans.in_force().next_expiry();
        next.map_or(HOUSEKEEPING_INTERVAL, |Timestamp(end)| {
            Duration::from_secs(end).saturating_sub(now).min(HOUSEKEEPING_INTERVAL)
        })
    }
}

/// Returns how long a ban lasts: as the request says, else as the settings say.
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
        return Err(RequestError("expiry: such a ban would be over at once; say 7d, say, or never".into()));
    }
    Ok(duration)
}

/// Returns what to call somebody.
fn display_name(found: &FoundPlayer) -> &str {
    match found.player.name.as_str() {
        "" => "somebody without a name yet",
        name => name,
    }
}

/// Returns whether a target of a ban is meant to be an address or a network, not a player's name.
fn looks_like_address(target: &str) -> bool {
    let digits = !target.contains(char::is_alphabetic) && target.contains(['.', '/']);
    let address = target.split('/').next().unwrap_or_default();
    digits || address.parse::<IpAddr>().is_ok()
}
