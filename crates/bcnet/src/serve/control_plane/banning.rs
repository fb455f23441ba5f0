//! Bans, as the operator asks for them.

use std::net::IpAddr;
use std::time::Duration;

use bcnet_control::Refusal;
use bcnet_session::{Network, Player};
use bcnet_udp::wall_now;
use serde_json::{Value, json};

use super::{ControlPlane, HOUSEKEEPING, State};
use crate::bans::{Ban, Moment};
use crate::config::{Line, Value as _};
use crate::serve::requests::{Chosen, Found};

/// Whom a ban would hit.
pub(super) struct Target {
    network: Network,
    /// The player who is meant, unless an address is.
    meant: Option<Found>,
    /// Who plays from there.
    here: Vec<Found>,
}

impl Target {
    /// Whoever is meant may share the address with others, who would go too.
    pub(super) fn check_alone(&self) -> Result<(), Refusal> {
        let Some(meant) = &self.meant else { return Ok(()) };
        let others: Vec<_> = self.here.iter().filter(|found| !found.is(meant)).map(name).collect();
        if others.is_empty() {
            return Ok(());
        }
        let (one, network, others) = (name(meant), self.network, others.join(", "));
        let all = format!("{one} has the address {network}, and so do {others}, who would go too");
        Err(Refusal(format!("{all}; add --yes to ban them all, or kick {one} alone")))
    }

    fn names(&self) -> Vec<&str> {
        self.here.iter().map(name).collect()
    }
}

impl ControlPlane {
    /// Returns whom a ban is about: a network, or the address of a player.
    pub(super) fn target(&self, chosen: &Chosen<'_>, target: &str) -> Result<Target, Refusal> {
        let (network, meant) = match Network::from_text(target) {
            Ok(network) if chosen.is_all() => (network, None),
            Ok(_) => {
                return Err(Refusal("an address is banned from all sessions; leave the session out".into()));
            }
            Err(problem) if looks_like_address(target) => return Err(Refusal(problem)),
            Err(_) => {
                let found = chosen.find(target)?;
                (Network::around(*found.player.address.ip(), 32), Some(found))
            }
        };
        let is_there = move |player: &Player| network.contains(*player.address.ip());
        let here = Chosen::new(&self.workers, None).find_all(is_there)?;
        Ok(Target { network, meant, here })
    }

    /// Puts a ban in force, from now on.
    pub(super) fn ban(&self, target: &Target, ban: Ban, expiry: Option<&str>) -> Result<Value, Refusal> {
        let mut state = self.state();
        let now = wall_now().as_secs();
        let lasts = lasts(expiry, state.loaded.settings.server.ban_expiry)?;
        let expires = lasts.map(|lasts| Moment(now.saturating_add(lasts.as_secs())));
        let player = target.meant.as_ref().map_or("", |found| &found.player.name);
        let ban =
            Ban { address: target.network, player: Line::lossy(player), expires, since: Moment(now), ..ban };
        if !state.bans.add(ban.clone()) {
            return Err(Refusal("there is no room for more bans; join addresses to networks".into()));
        }
        let (network, by, reason, names) = (ban.address, &ban.by.0, &ban.reason.0, target.names());
        let (expires, out) = (expires.map(|end| end.to_string()), names.join(", "));
        tracing::info!(event = "banned", %network, player, expires, by, reason, out);
        let mut done = format!("banned {ban}");
        if !out.is_empty() {
            done = format!("{done}; out: {out}");
        }
        self.keep(&mut state, &done)?;
        drop(state);
        Ok(json!({ "done": done, "network": network.to_string(), "out": names, "server": self.name()? }))
    }

    pub(super) fn unban(&self, target: &str) -> Result<Value, Refusal> {
        let network = Network::from_text(target).map_err(Refusal)?;
        let mut state = self.state();
        if !state.bans.remove(network) {
            let problem =
                format!("{network} is not banned as such; `bcnet ctl search {target}` shows what covers it");
            return Err(Refusal(problem));
        }
        tracing::info!(event = "unbanned", %network);
        let done = format!("{network} may play again");
        self.keep(&mut state, &done)?;
        drop(state);
        Ok(json!({ "done": done, "server": self.name()? }))
    }

    /// Puts bans in force and then into the file. If that fails, what was `done` counts all the same.
    fn keep(&self, state: &mut State, done: &str) -> Result<(), Refusal> {
        self.enforce(state);
        self.write_bans(state).map_err(|error| {
            let but = "that counts, but is not in the file yet and would be gone after a restart";
            Refusal(format!("{done}; {but}: {error}"))
        })?;
        // It may end soon.
        self.triggers.bans.fire();
        Ok(())
    }

    /// Writes what is not in the file yet. An error is logged, and says why.
    fn write_bans(&self, state: &mut State) -> Result<(), String> {
        let before = state.bans.in_force().networks();
        let written = state.bans.write(wall_now().as_secs());
        // Somebody may have changed the file.
        if state.bans.in_force().networks() != before {
            self.enforce(state);
        }
        written.map_err(|error| {
            let error = format!("{error:#}");
            tracing::error!(event = "bans_not_kept", error, "they count, but are not in the file yet");
            error
        })
    }

    /// Ends bans whose time is over, and tries again what could not be written. Returns when to do that again.
    pub(in crate::serve) fn look_after_bans(&self) -> Duration {
        let mut state = self.state();
        let now = wall_now();
        let ended = state.bans.expire(now.as_secs());
        if !ended.is_empty() {
            self.enforce(&state);
        }
        for ban in ended {
            tracing::info!(event = "ban_ended", network = %ban.address, player = ban.player.0);
        }
        if state.bans.is_unwritten() && self.write_bans(&mut state).is_ok() {
            tracing::info!(event = "bans_kept");
        }
        // Somebody may set the clock, so it is looked at now and then.
        let next = state.bans.in_force().next_end();
        next.map_or(HOUSEKEEPING, |Moment(end)| {
            Duration::from_secs(end).saturating_sub(now).min(HOUSEKEEPING)
        })
    }
}

/// Returns how long a ban lasts: as the request says, else as the settings say.
fn lasts(expiry: Option<&str>, usual: Option<Duration>) -> Result<Option<Duration>, Refusal> {
    let lasts = match expiry {
        None => usual,
        Some("never" | "none") => None,
        Some(text) => Some(
            Duration::from_text(text).map_err(|problem| Refusal(format!("expiry: {problem}, or `never`")))?,
        ),
    };
    if lasts == Some(Duration::ZERO) {
        return Err(Refusal("expiry: such a ban would be over at once; say 7d, say, or never".into()));
    }
    Ok(lasts)
}

/// Returns what to call somebody.
fn name(found: &Found) -> &str {
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
