//! What is decided beside the game and needs files or names: bans, the configuration, masters.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::ensure;
use serde_json::{Value, json};

use super::game_loop::{CommandSender, GameLoop};
use super::start;
use crate::bans::{self, Ban, Bans, Moment, Network};
use crate::clock::wall_now;
use crate::config::table::Key;
use crate::config::{self, Flags, Line, Settings, Value as _};
use crate::control::{Envelope, Refusal, Request};
use crate::masters;

/// Everything about the server that the game itself does not know.
pub(super) struct ControlPlane {
    pub(super) flags: Flags,
    pub(super) commands: CommandSender,
    /// What some settings are until the end.
    started: Settings,
    state: Mutex<State>,
    /// The settings are others.
    changed: Condvar,
    /// Held during a reload, so that what was read last is in force last.
    reloading: Mutex<()>,
}

struct State {
    settings: Settings,
    bans: Bans,
}

impl ControlPlane {
    pub(super) fn new(flags: Flags, settings: Settings, bans: Bans, commands: CommandSender) -> Self {
        let started = settings.clone();
        let plane = Self {
            flags,
            commands,
            started,
            state: Mutex::new(State { settings, bans }),
            changed: Condvar::new(),
            reloading: Mutex::new(()),
        };
        plane.enforce(&plane.state());
        plane
    }

    /// Does what `bcnet ctl` asks.
    pub(super) fn dispatch(&self, envelope: Envelope) -> Result<Value, Refusal> {
        match envelope.request {
            Request::Ban { target, expiry, reason, by } => {
                let network = self.network(envelope.session, &target)?;
                let ban = Ban {
                    address: network,
                    reason: line("reason", reason)?,
                    by: line("by", by)?,
                    ..Ban::default()
                };
                self.ban(ban, expiry.as_deref())
            }
            Request::Unban { target } => self.unban(&target),
            Request::Bans => Ok(json!({ "bans": list(&self.state().bans, "") })),
            Request::Reload => self.reload(),
            Request::Search { ref text } => {
                let found = list(&self.state().bans, text);
                let mut answer = self.ask(envelope)?;
                answer["bans"] = found.into();
                Ok(answer)
            }
            _ => self.ask(envelope),
        }
    }

    fn ask(&self, envelope: Envelope) -> Result<Value, Refusal> {
        self.commands.ask(move |game, now| game.answer(&envelope, now)).unwrap_or_else(|| Err(ending()))
    }

    /// Puts a ban in force, from now on.
    fn ban(&self, ban: Ban, expiry: Option<&str>) -> Result<Value, Refusal> {
        let mut state = self.state();
        let lasts = match expiry {
            None => state.settings.server.ban_expiry,
            Some("never") => None,
            Some(text) => {
                Some(Duration::from_text(text).map_err(|problem| Refusal(format!("expiry: {problem}")))?)
            }
        };
        if lasts == Some(Duration::ZERO) {
            return Err(Refusal("expiry: such a ban would be over at once; say 7d, say, or never".into()));
        }
        let now = wall_now().as_secs();
        let expires = lasts.map(|lasts| Moment(now.saturating_add(lasts.as_secs())));
        let ban = Ban { expires, since: Moment(now), ..ban };
        let mut bans = state.bans.clone();
        bans.expire(now);
        if !bans.add(ban.clone()) {
            return Err(Refusal("there is no room for more bans; join addresses to networks".into()));
        }
        self.keep(&mut state, bans)?;
        let (network, by, reason) = (ban.address, &ban.by.0, &ban.reason.0);
        tracing::info!(event = "banned", %network, expires = expires.map(|end| end.to_string()), by, reason);
        Ok(json!({ "done": format!("banned {ban}"), "network": network.to_string() }))
    }

    fn unban(&self, target: &str) -> Result<Value, Refusal> {
        let network: Network = target.parse().map_err(Refusal)?;
        let mut state = self.state();
        let mut bans = state.bans.clone();
        if bans.remove(network).is_none() {
            let problem =
                format!("{network} is not banned as such; `bcnet ctl search {target}` shows what covers it");
            return Err(Refusal(problem));
        }
        self.keep(&mut state, bans)?;
        tracing::info!(event = "unbanned", %network);
        Ok(json!({ "done": format!("{network} may play again") }))
    }

    /// Puts bans into the file and then in force.
    fn keep(&self, state: &mut State, bans: Bans) -> Result<(), Refusal> {
        bans::save(&self.started.server.bans, &bans).map_err(|error| Refusal(format!("{error:#}")))?;
        state.bans = bans;
        self.enforce(state);
        Ok(())
    }

    fn enforce(&self, state: &State) {
        let networks: Vec<(Ipv4Addr, u8)> = state.bans.networks().collect();
        self.commands.give(move |game, now| {
            for host in &mut game.hosts {
                host.session.set_bans(networks.clone(), now);
            }
        });
    }

    /// What a ban is about: a network, or the address of a player.
    fn network(&self, session: Option<String>, target: &str) -> Result<Network, Refusal> {
        match target.parse() {
            Ok(network) => Ok(network),
            Err(problem) if looks_like_address(target) => Err(Refusal(problem)),
            Err(_) => {
                let name = target.to_owned();
                let find = move |game: &mut GameLoop, now| game.find_in(session.as_deref(), &name, now);
                let player = self.commands.ask(find).unwrap_or_else(|| Err(ending()))?;
                Ok(Network::around(*player.address.ip(), 32))
            }
        }
    }

    /// Reads configuration and bans again. Nothing changes if either is wrong.
    pub(super) fn reload(&self) -> Result<Value, Refusal> {
        let _alone = self.reloading.lock().unwrap_or_else(PoisonError::into_inner);
        let restart = self.try_reload().map_err(|error| {
            let problem = format!("{error:#}; nothing was changed");
            tracing::error!(event = "reload_failed", error = problem);
            Refusal(problem)
        })?;
        tracing::info!(event = "reloaded", restart = restart.join(", "));
        let rest =
            if restart.is_empty() { String::new() } else { format!("; restart for {}", restart.join(", ")) };
        Ok(json!({ "done": format!("reloaded{rest}"), "needs_restart": restart }))
    }

    /// The settings that need a restart. Masters follow when their names are looked up, which may take long.
    fn try_reload(&self) -> anyhow::Result<Vec<String>> {
        let loaded = config::load(&self.flags, std::env::vars_os())?;
        let (old, new) = (self.started.sessions.len(), loaded.settings.sessions.len());
        ensure!(old == new, "there are {new} sessions instead of {old}; restart the server for that");
        let configs: anyhow::Result<Vec<_>> = loaded.settings.sessions.iter().map(start::config).collect();
        let mut configs = configs?;
        let restart = needs_restart(&self.started, &loaded.settings);
        let mut state = self.state();
        let bans = bans::load(&self.started.server.bans, wall_now().as_secs())?;
        *state = State { settings: loaded.settings, bans };
        self.enforce(&state);
        self.commands.give(move |game, now| {
            for (host, mut config) in game.hosts.iter_mut().zip(configs.drain(..)) {
                config.masters.clone_from(&host.session.config().masters);
                host.reconfigure(config, now);
            }
        });
        self.changed.notify_all();
        Ok(restart)
    }

    /// Looks after what changes by itself, for ever: bans end, masters move.
    pub(super) fn housekeep(&self) {
        loop {
            let names = self.state().settings.server.masters.clone();
            let masters = masters::resolve(&names);
            let mut state = self.state();
            if state.settings.server.masters != names {
                continue;
            }
            self.commands.give(move |game, now| {
                for host in &mut game.hosts {
                    host.set_masters(&masters, now);
                }
            });
            let is_same = |state: &mut State| state.settings.server.masters == names;
            let waited = self.changed.wait_timeout_while(state, HOUSEKEEPING, is_same);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
            if state.bans.expire(wall_now().as_secs()) > 0 {
                self.enforce(&state);
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Whoever panicked has changed nothing by halves: each change is one assignment.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The settings that differ from what the server was started with, and stay as they were until it is restarted.
fn needs_restart(started: &Settings, new: &Settings) -> Vec<String> {
    let mut names = Vec::new();
    for ((table, old), (_, new)) in started.tables().iter().zip(new.tables()) {
        let differs = |key: &&Key| is_fixed(table, key.name) && old.show(key.name) != new.show(key.name);
        names.extend(old.keys().iter().filter(differs).map(|key| format!("{table}.{}", key.name)));
    }
    names
}

/// Whether a running server keeps a setting.
fn is_fixed(table: &str, key: &str) -> bool {
    match table {
        "log" | "capture" => true,
        "server" => matches!(key, "bind" | "control" | "bans"),
        _ => matches!(key, "port" | "keepalive" | "silence_timeout" | "undeliverable_timeout"),
    }
}

/// Whether a target of a ban is meant to be an address or a network, not a player's name.
fn looks_like_address(target: &str) -> bool {
    let digits = !target.contains(char::is_alphabetic) && target.contains(['.', '/']);
    let address = target.split('/').next().unwrap_or_default();
    digits || address.parse::<IpAddr>().is_ok()
}

fn list(bans: &Bans, text: &str) -> Vec<Value> {
    let show = |ban: &Ban| {
        json!({
            "network": ban.address.to_string(),
            "since": ban.since.to_string(),
            "expires": ban.expires.map_or_else(|| "never".into(), |end| end.to_string()),
            "by": ban.by.0,
            "reason": ban.reason.0,
        })
    };
    bans.search(text).map(show).collect()
}

/// A text of one line that a request may have.
fn line<const MOST: usize>(name: &str, text: Option<String>) -> Result<Line<MOST>, Refusal> {
    Line::from_text(&text.unwrap_or_default()).map_err(|problem| Refusal(format!("{name}: {problem}")))
}

fn ending() -> Refusal {
    Refusal("the server is ending".into())
}

const HOUSEKEEPING: Duration = Duration::from_secs(60);
