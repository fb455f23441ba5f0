//! Reloads, shows and changes the settings of a running server.

use std::sync::PoisonError;

use anyhow::ensure;
use bcnet_control::{RequestError, did_you_mean, escape_key, is_secret};
use bcnet_session::{Config, Network};
use bcnet_udp::wall_now;
use serde_json::{Value, json};

use super::{ControlPlane, ControlState};
use crate::config::table::KeyInfo;
use crate::config::{self, ConfigFlags, ConfigValue as _, Loaded, Session, Settings};
use crate::serve::requests::SelectedSessions;
use crate::serve::start;

impl ControlPlane {
    /// Reloads the configuration and the bans. Changes nothing if either is invalid.
    pub(in crate::serve) fn reload(&self) -> Result<Value, RequestError> {
        let _alone = self.reload_lock.lock().unwrap_or_else(PoisonError::into_inner);
        let restart = self.try_reload().map_err(|error| {
            let problem = format!("{error:#}; nothing was changed");
            tracing::error!(event = "reload_failed", error = problem);
            RequestError(problem)
        })?;
        tracing::info!(event = "reloaded", restart = restart.join(", "));
        let rest = if restart.is_empty() {
            String::new()
        } else {
            format!("; restart the server to apply {}", restart.join(", "))
        };
        let done = format!("reloaded{rest}");
        Ok(json!({ "done": done, "needs_restart": restart, "server": self.server_name()? }))
    }

    /// Reloads, and returns the settings that need a restart.
    ///
    /// New list servers are used only after their names are resolved, which may take long.
    fn try_reload(&self) -> anyhow::Result<Vec<String>> {
        let flags = self.flags_for(&self.state().loaded);
        let loaded = config::load(&flags, std::env::vars_os())?;
        let (old, new) = (self.initial_settings.sessions.len(), loaded.settings.sessions.len());
        ensure!(
            old == new,
            "the configuration has {new} sessions, the server runs {old}; restart the server"
        );
        let restart = needs_restart(&self.initial_settings, &loaded.settings);
        let configs = session_configs(&loaded)?;
        let mut state = self.state();
        state.bans.reload(wall_now().as_secs())?;
        self.apply_bans(&state);
        self.triggers.bans.fire();
        self.apply(&mut state, loaded, &configs);
        Ok(restart)
    }

    /// Applies settings to all parts of the server.
    fn apply(&self, state: &mut ControlState, loaded: Loaded, configs: &[Config]) {
        let is_moved = state.loaded.settings.server.masters != loaded.settings.server.masters;
        state.loaded = loaded;
        self.hooks().set(&state.loaded.settings.hooks);
        let limits = start::coalescing_limits(&state.loaded.settings);
        self.log.set_level(start::log_options(&state.loaded.settings).level);
        self.workers.send_to_threads(move |group, _| group.coalescing.limits = limits);
        self.workers.send_to_sessions(|session| {
            let config = configs.get(session).cloned();
            move |host, now| {
                let Some(config) = config else { return };
                let masters = host.session.config().masters.clone();
                host.reconfigure(Config { masters, ..config }, now);
            }
        });
        if is_moved {
            self.triggers.masters.fire();
        }
    }

    /// Returns the settings whose keys contain `part`, each with the time at which a change takes effect.
    pub(super) fn get(
        &self,
        chosen: &SelectedSessions<'_>,
        part: Option<&str>,
    ) -> Result<Value, RequestError> {
        let sessions = chosen.session_numbers()?;
        let is_selected = |table: &str| match session_number(table) {
            Some(number) => sessions.contains(&number),
            None => chosen.is_all(),
        };
        let state = self.state();
        let (mut rows, mut names) = (Vec::new(), Vec::new());
        for (table, keys) in state.loaded.settings.tables() {
            for key in keys.keys().iter().filter(|_| is_selected(&table)) {
                let path = format!("{table}.{}", key.name);
                names.push(key.name);
                let value = if is_secret(key.name) { HIDDEN_VALUE.into() } else { keys.show(key.name) };
                if part.is_none_or(|part| path.contains(part)) {
                    rows.push(json!({ "key": path, "value": value, "effect": effect(&table, key.name) }));
                }
            }
        }
        match part {
            Some(part) if rows.is_empty() => {
                let hint = did_you_mean(part, names.into_iter());
                let part = escape_key(part);
                Err(RequestError(format!(
                    "no setting has `{part}` in its key{hint}; `bcnet ctl get` lists all"
                )))
            }
            _ => Ok(json!({ "settings": rows })),
        }
    }

    /// Changes a setting, and the file too if `save` is set.
    ///
    /// # Errors
    ///
    /// Fails, and changes nothing, if the value is invalid or the setting needs a restart.
    pub(super) fn set(
        &self,
        chosen: &SelectedSessions<'_>,
        key: &str,
        value: &str,
        save: bool,
    ) -> Result<Value, RequestError> {
        let (table, name) = key.rsplit_once('.').unwrap_or(("session", key));
        let paths: Vec<String> = match table {
            "session" => {
                chosen.session_numbers()?.into_iter().map(|n| format!("session.{}.{name}", n + 1)).collect()
            }
            _ if chosen.is_all() => vec![key.to_owned()],
            _ => {
                return Err(RequestError(format!(
                    "`{key}` is not a setting of a session; leave out the session"
                )));
            }
        };
        let when = effect(table, name);
        if when == Effect::Restart {
            let problem = format!("`{key}` cannot change while the server runs; set it in the configuration");
            return Err(RequestError(problem + ", and restart the server"));
        }
        let kept =
            self.change(save, |_| Ok(paths.iter().map(|path| (path.clone(), value.to_owned())).collect()))?;
        let shown = if is_secret(name) { HIDDEN_VALUE } else { value };
        let rest = if save {
            format!("saved in {}", kept.join("; "))
        } else {
            "temporary: a reload or a restart restores the value in the file".into()
        };
        let done = format!("{key} = {shown}, {when}; {rest}");
        Ok(json!({ "done": done, "effect": when, "kept": kept, "server": self.server_name()? }))
    }

    /// Shows or changes the whitelist of the selected sessions.
    pub(super) fn whitelist(
        &self,
        chosen: &SelectedSessions<'_>,
        add: Option<&str>,
        remove: Option<&str>,
        save: bool,
    ) -> Result<Value, RequestError> {
        let sessions = chosen.session_numbers()?;
        let network = |target: &str| match Network::from_text(target) {
            Ok(network) => Ok(network),
            Err(problem) if target.starts_with(|first: char| first.is_ascii_digit()) => {
                Err(RequestError(problem))
            }
            Err(_) => Ok(Network::containing(*chosen.find(target)?.player.address.ip(), 32)),
        };
        let (add, remove) = (add.map(network).transpose()?, remove.map(network).transpose()?);
        let mut kept = Vec::new();
        if add.is_some() || remove.is_some() || save {
            let change = |(number, session): (usize, &Session)| {
                let kept =
                    session.whitelist.iter().copied().filter(|one| ![add, remove].contains(&Some(*one)));
                let list: Vec<_> = kept.chain(add).map(|network| network.to_string()).collect();
                (format!("session.{}.whitelist", number + 1), list.join(","))
            };
            kept = self.change(save, |settings| {
                let named =
                    sessions.iter().filter_map(|number| Some((*number, settings.sessions.get(*number)?)));
                let is_missing = |network: &Network| {
                    !named.clone().any(|(_, session)| session.whitelist.contains(network))
                };
                match remove.filter(is_missing) {
                    Some(network) => Err(not_listed(network, save)),
                    None => Ok(named.map(change).collect()),
                }
            })?;
        }
        let state = self.state();
        let named = sessions.iter().filter_map(|number| state.loaded.settings.sessions.get(*number));
        let rows = named.flat_map(|session| {
            let row = |one: &Network| json!({ "session": session.name.0, "network": one.to_string() });
            session.whitelist.iter().map(row)
        });
        Ok(json!({ "whitelist": rows.collect::<Vec<_>>(), "kept": kept }))
    }

    /// Changes the keys that `changes` returns, and the file too if `save` is set.
    ///
    /// `changes` gets the settings in force and returns paths and values. A lock excludes other changes
    /// meanwhile. Returns the places in the file.
    fn change(
        &self,
        save: bool,
        changes: impl FnOnce(&Settings) -> Result<Vec<(String, String)>, RequestError>,
    ) -> Result<Vec<String>, RequestError> {
        let _alone = self.reload_lock.lock().unwrap_or_else(PoisonError::into_inner);
        let refuse = |error: anyhow::Error| RequestError(format!("{error:#}; nothing was changed"));
        let loaded = self.state().loaded.clone();
        let changes = changes(&loaded.settings)?;
        let loaded = loaded.with_changes(&changes).map_err(|problems| refuse(problems.into()))?;
        let configs = session_configs(&loaded).map_err(refuse)?;
        let mut kept = Vec::new();
        if save {
            let environment = std::env::vars_os().collect();
            let places = config::save(&self.flags_for(&loaded), environment, &loaded, &changes);
            kept = places.map_err(refuse)?.iter().map(ToString::to_string).collect();
        }
        self.apply(&mut self.state(), loaded, &configs);
        Ok(kept)
    }

    /// Returns the flags that make a reload read the same file as before.
    fn flags_for(&self, loaded: &Loaded) -> ConfigFlags {
        let config = loaded.file.clone().or_else(|| self.flags.config.clone());
        ConfigFlags { config, ..self.flags.clone() }
    }
}

/// Returns the error for the removal of a network that is not on the whitelist.
fn not_listed(network: Network, save: bool) -> RequestError {
    let keep = if save { "; to save the list unchanged, leave out --remove" } else { "" };
    RequestError(format!(
        "the whitelist has no entry {network}; `bcnet ctl whitelist` lists the entries{keep}"
    ))
}

fn session_configs(loaded: &Loaded) -> anyhow::Result<Vec<Config>> {
    loaded.settings.sessions.iter().map(start::session_config).collect()
}

/// Returns the settings that differ from those at start and need a restart to take effect.
fn needs_restart(started: &Settings, new: &Settings) -> Vec<String> {
    let mut names = Vec::new();
    for ((table, old), (_, new)) in started.tables().iter().zip(new.tables()) {
        let differs = |key: &&KeyInfo| {
            effect(table, key.name) == Effect::Restart && old.show(key.name) != new.show(key.name)
        };
        names.extend(old.keys().iter().filter(differs).map(|key| format!("{table}.{}", key.name)));
    }
    names
}

/// The time at which a changed setting takes effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
enum Effect {
    Now,
    /// At the start of the next round (S-63).
    NextRound,
    /// When the last player has left (S-63).
    Empty,
    Restart,
}

impl std::fmt::Display for Effect {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(match self {
            Self::Now => "now",
            Self::NextRound => "from the next round",
            Self::Empty => "when the last player has left",
            Self::Restart => "after a restart",
        })
    }
}

fn effect(table: &str, key: &str) -> Effect {
    match (table, key) {
        ("log", "level") => Effect::Now,
        ("log" | "capture" | "web" | "scores" | "fleet", _)
        | ("server", "bind" | "control" | "bans" | "history" | "threads" | "metrics")
        | (_, "port" | "keepalive" | "silence_timeout" | "undeliverable_timeout") => Effect::Restart,
        (_, "system" | "time_limit" | "rotation") => Effect::NextRound,
        (_, "mission" | "collisions" | "friendly_fire") => Effect::Empty,
        _ => Effect::Now,
    }
}

/// Returns the session that a table belongs to, counted from 0.
fn session_number(table: &str) -> Option<usize> {
    table.strip_prefix("session.")?.parse::<usize>().ok()?.checked_sub(1)
}

const HIDDEN_VALUE: &str = "…";
