//! What is decided beside the event loop and needs files or names: bans, the configuration, masters.

mod banning;

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::ensure;
use bcnet_control::{Envelope, Refusal, Request};
use bcnet_session::Config;
use bcnet_udp::wall_now;
use serde_json::{Value, json};

use super::ban_list::BanList;
use super::requests::Chosen;
use super::session_group::SessionGroup;
use super::start;
use super::workers::Workers;
use crate::background::Trigger;
use crate::bans::{Ban, Bans};
use crate::config::table::Key;
use crate::config::{self, Flags, Line, Loaded, Settings, Value as _};
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
    triggers: Triggers,
    /// Held during a reload, so that what was read last is in force last.
    reloading: Mutex<()>,
}

/// What is done in threads of its own, and sooner when asked.
pub(super) struct Triggers {
    /// Has [`look_up_masters`](ControlPlane::look_up_masters) done.
    pub(super) masters: Trigger,
    /// Has [`look_after_bans`](ControlPlane::look_after_bans) done.
    pub(super) bans: Trigger,
}

struct State {
    settings: Settings,
    /// The configuration that was read last. It must not vanish: the password would with it.
    file: Option<PathBuf>,
    bans: BanList,
}

impl ControlPlane {
    pub(super) fn new(
        flags: Flags,
        Loaded { settings, file, .. }: Loaded,
        bans: BanList,
        workers: Workers,
        capture_left_out: Option<LeftOut>,
        triggers: Triggers,
    ) -> Self {
        let started = settings.clone();
        let plane = Self {
            flags,
            workers,
            capture_left_out,
            is_stopping: AtomicBool::new(false),
            started,
            state: Mutex::new(State { settings, file, bans }),
            triggers,
            reloading: Mutex::new(()),
        };
        plane.enforce(&plane.state());
        plane
    }

    /// Does what `bcnet ctl` asks; but the end of the server comes with [`stop`](Self::stop), after the answer.
    pub(super) fn dispatch(&self, Envelope { session, request }: Envelope) -> Result<Value, Refusal> {
        if let (Some(_), Some(word)) = (&session, request.of_server()) {
            let problem =
                format!("`{word}` is about the whole server, not about one session; leave that out");
            return Err(Refusal(problem));
        }
        let chosen = Chosen::new(&self.workers, session);
        match request {
            Request::Players => chosen.players(),
            Request::Say { to, text } => chosen.say(to.as_deref(), text.join(" ")),
            Request::Kick { player } => chosen.kick(&player),
            Request::Ban { target, expiry, reason, by, yes } => {
                let (reason, by) = (line("reason", reason)?, line("by", by)?);
                let target = self.target(&chosen, &target)?;
                if !yes {
                    target.check_alone()?;
                }
                self.ban(&target, Ban { reason, by, ..Ban::default() }, expiry.as_deref())
            }
            Request::Unban { target } => self.unban(&target),
            Request::Bans => Ok(json!({ "bans": list(self.state().bans.in_force(), "") })),
            Request::Search { text } => {
                let mut answer = chosen.search(&text)?;
                answer["bans"] = list(self.state().bans.in_force(), &text).into();
                Ok(answer)
            }
            Request::Restart => chosen.restart(),
            Request::Status => chosen.status(self.capture_left_out.as_ref().map(LeftOut::count)),
            Request::Queues { player } => chosen.queues(player.as_deref()),
            Request::Reload => self.reload(),
            Request::Stop => {
                Ok(json!({ "done": "the server says goodbye and ends", "server": self.name()? }))
            }
            #[cfg(debug_assertions)]
            Request::Panic => chosen.panic(),
        }
    }

    /// Ends the server.
    pub(super) fn stop(&self) {
        if !self.is_stopping.swap(true, Ordering::Relaxed) {
            tracing::info!(event = "stopping");
        }
        self.workers.give_all(SessionGroup::stop);
    }

    fn enforce(&self, state: &State) {
        let networks = state.bans.in_force().networks();
        self.workers.give_each(|_| {
            let networks = networks.clone();
            move |host, now| host.session.set_bans(networks, now)
        });
    }

    /// Returns which server it is, for who may have meant another.
    fn name(&self) -> Result<String, Refusal> {
        Chosen::new(&self.workers, None).name()
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
        let done = format!("reloaded{rest}");
        Ok(json!({ "done": done, "needs_restart": restart, "server": self.name()? }))
    }

    /// Returns the settings that need a restart. Masters follow when their names are looked up, which may take long.
    fn try_reload(&self) -> anyhow::Result<Vec<String>> {
        let config = self.state().file.clone().or_else(|| self.flags.config.clone());
        let loaded = config::load(&Flags { config, ..self.flags.clone() }, std::env::vars_os())?;
        let (old, new) = (self.started.sessions.len(), loaded.settings.sessions.len());
        ensure!(old == new, "there are {new} sessions instead of {old}; restart the server for that");
        let configs: anyhow::Result<Vec<_>> = loaded.settings.sessions.iter().map(start::config).collect();
        let configs = configs?;
        let restart = needs_restart(&self.started, &loaded.settings);
        let mut state = self.state();
        state.bans.reload(wall_now().as_secs())?;
        let is_moved = state.settings.server.masters != loaded.settings.server.masters;
        (state.settings, state.file) = (loaded.settings, loaded.file);
        self.enforce(&state);
        self.triggers.bans.fire();
        let limits = start::limits(&state.settings);
        self.workers.give_all(move |group, _| group.coalescing.limits = limits);
        self.workers.give_each(|session| {
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
        Ok(restart)
    }

    /// Looks up where the masters are, for they move. Returns when to do that again.
    pub(super) fn look_up_masters(&self) -> Duration {
        let names = self.state().settings.server.masters.clone();
        let masters = Arc::new(masters::resolve(&names));
        // Names that were changed meanwhile are looked up next.
        if self.state().settings.server.masters == names {
            self.workers.give_each(|_| {
                let masters = Arc::clone(&masters);
                move |host, now| host.set_masters(&masters, now)
            });
        }
        HOUSEKEEPING
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Whoever panicked has changed nothing by halves: each change is one assignment.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
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

fn list(bans: &Bans, text: &str) -> Vec<Value> {
    let show = |ban: &Ban| {
        json!({
            "network": ban.address.to_string(),
            "player": ban.player.0,
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

/// How often masters are looked up, and the bans looked after.
const HOUSEKEEPING: Duration = Duration::from_secs(60);
