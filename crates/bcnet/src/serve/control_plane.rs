//! What is decided beside the event loop and needs files or names: bans, the configuration, masters.

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::ensure;
use bcnet_session::{Config, Network};
use serde_json::{Value, json};

use super::requests::Chosen;
use super::session_group::SessionGroup;
use super::start;
use super::workers::Workers;
use crate::background::Trigger;
use crate::bans::{self, Ban, Bans, Moment};
use crate::clock::wall_now;
use crate::config::table::Key;
use crate::config::{self, Flags, Line, Settings, Value as _};
use crate::control::{Envelope, Refusal, Request};
use crate::masters;
use crate::recorder::LeftOut;

/// Everything about the server that its sessions do not know.
pub(super) struct ControlPlane {
    flags: Flags,
    workers: Workers,
    /// Datagrams that are not in the capture, if there is one.
    capture_left_out: Option<LeftOut>,
    is_stopping: AtomicBool,
    /// What some settings are until the end.
    started: Settings,
    state: Mutex<State>,
    /// Has [`housekeep`](Self::housekeep) done.
    housekeeping: Trigger,
    /// Held during a reload, so that what was read last is in force last.
    reloading: Mutex<()>,
}

struct State {
    settings: Settings,
    bans: Bans,
}

impl ControlPlane {
    pub(super) fn new(
        flags: Flags,
        settings: Settings,
        bans: Bans,
        workers: Workers,
        capture_left_out: Option<LeftOut>,
        housekeeping: Trigger,
    ) -> Self {
        let started = settings.clone();
        let plane = Self {
            flags,
            workers,
            capture_left_out,
            is_stopping: AtomicBool::new(false),
            started,
            state: Mutex::new(State { settings, bans }),
            housekeeping,
            reloading: Mutex::new(()),
        };
        plane.enforce(&plane.state());
        plane
    }

    /// Does what `bcnet ctl` asks.
    pub(super) fn dispatch(&self, Envelope { session, request }: Envelope) -> Result<Value, Refusal> {
        let chosen = Chosen::new(&self.workers, session);
        match request {
            Request::Players => chosen.players(),
            Request::Say { to, text } => chosen.say(to.as_deref(), text.join(" ")),
            Request::Kick { player } => chosen.kick(&player),
            Request::Ban { target, expiry, reason, by } => {
                let address = network(&chosen, &target)?;
                let (reason, by) = (line("reason", reason)?, line("by", by)?);
                self.ban(Ban { address, reason, by, ..Ban::default() }, expiry.as_deref())
            }
            Request::Unban { target } => self.unban(&target),
            Request::Bans => Ok(json!({ "bans": list(&self.state().bans, "") })),
            Request::Search { text } => {
                let mut answer = chosen.search(&text)?;
                answer["bans"] = list(&self.state().bans, &text).into();
                Ok(answer)
            }
            Request::Restart => chosen.restart(),
            Request::Status => chosen.status(self.capture_left_out.as_ref().map(LeftOut::count)),
            Request::Queues { player } => chosen.queues(player.as_deref()),
            Request::Reload => self.reload(),
            Request::Stop => {
                chosen.each(|_, _| ())?;
                self.stop();
                Ok(json!({ "done": "the server says goodbye and ends" }))
            }
        }
    }

    /// Ends the server.
    pub(super) fn stop(&self) {
        if !self.is_stopping.swap(true, Ordering::Relaxed) {
            tracing::info!(event = "stopping");
        }
        self.workers.give_all(SessionGroup::stop);
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
        let network = Network::from_text(target).map_err(Refusal)?;
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
        let networks = state.bans.networks();
        self.workers.give_all(move |group, now| {
            for host in &mut group.hosts {
                host.session.set_bans(networks.clone(), now);
            }
        });
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

    /// Returns the settings that need a restart. Masters follow when their names are looked up, which may take long.
    fn try_reload(&self) -> anyhow::Result<Vec<String>> {
        let loaded = config::load(&self.flags, std::env::vars_os())?;
        let (old, new) = (self.started.sessions.len(), loaded.settings.sessions.len());
        ensure!(old == new, "there are {new} sessions instead of {old}; restart the server for that");
        let configs: anyhow::Result<Vec<_>> = loaded.settings.sessions.iter().map(start::config).collect();
        let configs = Arc::new(configs?);
        let restart = needs_restart(&self.started, &loaded.settings);
        let mut state = self.state();
        let bans = bans::load(&self.started.server.bans, wall_now().as_secs())?;
        let is_moved = state.settings.server.masters != loaded.settings.server.masters;
        *state = State { settings: loaded.settings, bans };
        self.enforce(&state);
        let limits = start::limits(&state.settings);
        self.workers.give_all(move |group, now| {
            group.coalescing.limits = limits;
            for host in &mut group.hosts {
                let Some(config) = configs.get(host.number) else { continue };
                let masters = host.session.config().masters.clone();
                host.reconfigure(Config { masters, ..config.clone() }, now);
            }
        });
        if is_moved {
            self.housekeeping.fire();
        }
        Ok(restart)
    }

    /// Looks after what changes by itself: bans end, masters move.
    pub(super) fn housekeep(&self) {
        let mut state = self.state();
        if state.bans.expire(wall_now().as_secs()) > 0 {
            self.enforce(&state);
        }
        let names = state.settings.server.masters.clone();
        drop(state);
        let masters = Arc::new(masters::resolve(&names));
        // Names that were changed meanwhile are looked up next.
        if self.state().settings.server.masters == names {
            self.workers.give_all(move |group, now| {
                for host in &mut group.hosts {
                    host.set_masters(&masters, now);
                }
            });
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Whoever panicked has changed nothing by halves: each change is one assignment.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns what a ban is about: a network, or the address of a player.
fn network(chosen: &Chosen<'_>, target: &str) -> Result<Network, Refusal> {
    match Network::from_text(target) {
        Ok(network) => Ok(network),
        Err(problem) if looks_like_address(target) => Err(Refusal(problem)),
        Err(_) => Ok(Network::around(*chosen.find(target)?.player.address.ip(), 32)),
    }
}

/// Returns the settings that differ from what the server was started with, and stay as they were until it is restarted.
fn needs_restart(started: &Settings, new: &Settings) -> Vec<String> {
    let mut names = Vec::new();
    for ((table, old), (_, new)) in started.tables().iter().zip(new.tables()) {
        let differs = |key: &&Key| is_fixed(table, key.name) && old.show(key.name) != new.show(key.name);
        names.extend(old.keys().iter().filter(differs).map(|key| format!("{table}.{}", key.name)));
    }
    names
}

/// Returns whether a running server keeps a setting.
fn is_fixed(table: &str, key: &str) -> bool {
    match table {
        "log" | "capture" => true,
        "server" => matches!(key, "bind" | "control" | "bans" | "threads"),
        _ => matches!(key, "port" | "keepalive" | "silence_timeout" | "undeliverable_timeout"),
    }
}

/// Returns whether a target of a ban is meant to be an address or a network, not a player's name.
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

/// Returns a text of one line that a request may have.
fn line<const MOST: usize>(name: &str, text: Option<String>) -> Result<Line<MOST>, Refusal> {
    Line::from_text(&text.unwrap_or_default()).map_err(|problem| Refusal(format!("{name}: {problem}")))
}
