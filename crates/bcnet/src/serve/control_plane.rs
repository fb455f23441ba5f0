//! Handles requests that need files or name lookups: bans, the configuration, list servers.
//!
//! The callers are the control socket, the operator page, the console and signals. Worker threads never wait
//! for this module.

mod ban_requests;
mod settings;

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bcnet_control::{Envelope, Request, RequestError};
use serde_json::{Value, json};

use super::ban_list::BanList;
use super::history::History;
use super::hooks::Hooks;
use super::requests::SelectedSessions;
use super::samples::{self, SampleHistory};
use super::session_group::SessionGroup;
use super::workers::Workers;
use crate::background::Trigger;
use crate::bans::{Ban, Bans};
use crate::config::{ConfigFlags, ConfigValue as _, Latin1Line, Loaded, Settings};
use crate::recorder::{LeftOutCounter, Recorder};
use crate::scores::{ScoreCounters, ScoreRecorder};
use crate::{list_servers, log};

/// The state of the server outside its sessions.
pub(super) struct ControlPlane {
    flags: ConfigFlags,
    workers: Workers,
    writer_counters: WriterCounters,
    is_stopping: AtomicBool,
    /// The settings at start. Keys that need a restart keep these values.
    initial_settings: Settings,
    state: Mutex<ControlState>,
    triggers: MaintenanceTriggers,
    history: History,
    samples: SampleHistory,
    pub(super) log: log::LogControls,
    /// Held during a reload: the settings that were read last must be applied last.
    reload_lock: Mutex<()>,
}

/// Counters of the threads that write files.
pub(super) struct WriterCounters {
    /// Datagrams missing from the capture, if there is one.
    capture_left_out: Option<LeftOutCounter>,
    /// Rounds written and left out, if scores are kept.
    scores: Option<ScoreCounters>,
}

impl WriterCounters {
    pub(super) fn new(recorder: Option<Recorder>, scores: Option<&ScoreRecorder>) -> Self {
        let capture_left_out = recorder.map(|recorder| recorder.left_out());
        Self { capture_left_out, scores: scores.map(ScoreRecorder::counters) }
    }
}

/// Triggers of background tasks.
pub(super) struct MaintenanceTriggers {
    /// Starts [`resolve_list_servers`](ControlPlane::resolve_list_servers).
    pub(super) masters: Trigger,
    /// Starts [`maintain_bans`](ControlPlane::maintain_bans).
    pub(super) bans: Trigger,
    /// Posts events to the programs of the operator.
    pub(super) hooks: Hooks,
}

struct ControlState {
    /// The settings in force, with the path of the file that was read last.
    ///
    /// A reload reads the same file again. If the file is missing, the reload fails: with the defaults the server
    /// would have no password.
    loaded: Loaded,
    /// List servers whose host names could not be resolved.
    unknown_masters: Vec<String>,
    bans: BanList,
}

impl ControlPlane {
    pub(super) fn new(
        flags: ConfigFlags,
        loaded: Loaded,
        bans: BanList,
        workers: Workers,
        writer_counters: WriterCounters,
        triggers: MaintenanceTriggers,
        log: log::LogControls,
    ) -> Self {
        let initial_settings = loaded.settings.clone();
        let plane = Self {
            flags,
            workers,
            writer_counters,
            is_stopping: AtomicBool::new(false),
            history: History::open(initial_settings.server.history.clone()),
            samples: SampleHistory::new(initial_settings.sessions.len()),
            initial_settings,
            state: Mutex::new(ControlState { loaded, unknown_masters: Vec::new(), bans }),
            triggers,
            log,
            reload_lock: Mutex::new(()),
        };
        plane.apply_bans(&plane.state());
        plane
    }

    /// Executes a request of `bcnet ctl` and records changes in the history.
    ///
    /// `stop` for the whole server only answers here. The caller sends the answer, then calls
    /// [`stop`](Self::stop).
    pub(super) fn dispatch(
        &self,
        Envelope { session, by, request }: Envelope,
    ) -> Result<Value, RequestError> {
        let by: Latin1Line<64> = parse_line("by", by)?;
        let change = request.is_change().then(|| request.to_string());
        let result = self.handle(session.clone(), &by, request);
        if let Some(change) = change {
            self.history.record(&by.0, session.as_deref(), &change, &result);
        }
        result
    }

    fn handle(
        &self,
        session: Option<String>,
        by: &Latin1Line<64>,
        request: Request,
    ) -> Result<Value, RequestError> {
        if let (Some(_), Some(word)) = (&session, request.server_wide_name()) {
            let problem = format!("`{word}` applies to the whole server; leave out the session");
            return Err(RequestError(problem));
        }
        let chosen = SelectedSessions::new(&self.workers, session);
        match request {
            Request::Players => chosen.players(),
            Request::Say { to, text } => chosen.say(to.as_deref(), text.join(" ")),
            Request::Kick { player, reason } => chosen.kick(&player, reason.as_deref()),
            Request::Mute { player } => chosen.mute(&player, true),
            Request::Unmute { player } => chosen.mute(&player, false),
            Request::Ban { target, expiry, reason, yes } => {
                let (reason, by) = (parse_line("reason", reason)?, by.clone());
                let target = self.ban_target(&chosen, &target)?;
                if !yes {
                    target.ensure_not_shared()?;
                }
                self.ban(&target, Ban { reason, by, ..Ban::default() }, expiry.as_deref())
            }
            Request::Unban { target } => self.unban(&target),
            Request::Bans => Ok(json!({ "bans": bans_json(self.state().bans.in_force(), "") })),
            Request::Whitelist { add, remove, save } => {
                self.whitelist(&chosen, add.as_deref(), remove.as_deref(), save)
            }
            Request::Get { key } => self.get(&chosen, key.as_deref()),
            Request::Set { key, value, save } => self.set(&chosen, &key, &value, save),
            Request::History { text, count } => {
                Ok(json!({ "history": self.history.last(&text.unwrap_or_default(), count) }))
            }
            Request::Events { count, .. } => Ok(self.events(count)),
            Request::Search { text } => {
                let mut answer = chosen.search(&text)?;
                answer["bans"] = bans_json(self.state().bans.in_force(), &text).into();
                Ok(answer)
            }
            Request::Restart => chosen.restart(),
            Request::Status => self.status(&chosen),
            Request::Samples { since } => self.samples(&chosen, since),
            Request::Queues { player } => chosen.queues(player.as_deref()),
            Request::Reload => self.reload(),
            Request::Start => chosen.start(),
            Request::TestHook { hook } => {
                let done = self.hooks().test(&hook, self.server_name()?).map_err(RequestError)?;
                Ok(json!({ "done": done }))
            }
            Request::Stop if !chosen.is_all() => chosen.stop(),
            Request::Stop => Ok(
                json!({ "done": "the server disconnects all players and stops", "server": self.server_name()? }),
            ),
            #[cfg(debug_assertions)]
            Request::Panic => chosen.panic(),
        }
    }

    /// Returns the status of the selected sessions, and of scores, list servers and hooks.
    fn status(&self, chosen: &SelectedSessions<'_>) -> Result<Value, RequestError> {
        let mut answer = chosen.status(self.capture_left_out())?;
        let counts = |counts: &ScoreCounters| json!({ "kept": counts.kept(), "left_out": counts.left_out(), "problem": counts.problem() });
        answer["scores"] = self.scores().map_or(Value::Null, counts);
        answer["unknown_masters"] = self.state().unknown_masters.clone().into();
        answer["hooks"] = self.hooks().status().into();
        Ok(answer)
    }

    /// Returns the samples of the last hour, for all sessions or for one.
    fn samples(&self, chosen: &SelectedSessions<'_>, since: Option<u64>) -> Result<Value, RequestError> {
        let session = if chosen.is_all() { None } else { chosen.session_numbers()?.first().copied() };
        Ok(self.samples.to_json(session, since))
    }

    /// Takes a sample of all sessions. Returns the time until the next one, or `None` if the server is
    /// stopping.
    pub(super) fn take_sample(&self) -> Option<Duration> {
        let is_stopping = self.is_stopping.load(Ordering::Relaxed);
        self.samples.take(&self.workers);
        (!is_stopping).then_some(samples::INTERVAL)
    }

    /// Returns the last lines of the log.
    fn events(&self, count: usize) -> Value {
        let batch = self.log.feed.last(count);
        let events = batch.lines.iter().filter_map(|line| serde_json::from_str(line).ok());
        json!({ "events": events.collect::<Vec<Value>>(), "next": batch.next })
    }

    /// Starts the background tasks for list servers and bans.
    pub(super) fn fire_triggers(&self) {
        self.triggers.masters.fire();
        self.triggers.bans.fire();
    }

    /// Returns the settings at start.
    pub(super) const fn initial_settings(&self) -> &Settings {
        &self.initial_settings
    }

    pub(super) const fn hooks(&self) -> &Hooks {
        &self.triggers.hooks
    }

    /// Returns the number of datagrams missing from the capture, if there is one.
    pub(super) fn capture_left_out(&self) -> Option<u64> {
        self.writer_counters.capture_left_out.as_ref().map(LeftOutCounter::count)
    }

    /// Returns the file with the scores, if the page shows the standings to everyone.
    pub(super) fn public_standings(&self) -> Option<&Path> {
        self.initial_settings.scores.file.as_deref().filter(|_| self.initial_settings.web.standings)
    }

    /// Returns the counters of written and left-out rounds, if scores are kept.
    pub(super) fn scores(&self) -> Option<&ScoreCounters> {
        self.writer_counters.scores.as_ref()
    }

    /// Disconnects all players and stops the server.
    pub(super) fn stop(&self) {
        if !self.is_stopping.swap(true, Ordering::Relaxed) {
            tracing::info!(event = "stopping");
        }
        self.workers.send_to_threads(SessionGroup::stop);
    }

    fn apply_bans(&self, state: &ControlState) {
        let networks = state.bans.in_force().networks();
        self.workers.send_to_sessions(|_| {
            let networks = networks.clone();
            move |host, now| host.session.set_bans(networks, now)
        });
    }

    /// Returns names and ports of some sessions, so that the operator sees which server answered.
    fn server_name(&self) -> Result<String, RequestError> {
        SelectedSessions::new(&self.workers, None).server_name()
    }

    /// Resolves the host names of the list servers, because addresses change. Returns the time until the next
    /// lookup.
    pub(super) fn resolve_list_servers(&self) -> Duration {
        let names = self.state().loaded.settings.server.masters.clone();
        let resolved = Arc::new(list_servers::resolve(&names));
        // If a reload changed the names meanwhile, the result is outdated: a new lookup is already triggered.
        let mut state = self.state();
        if state.loaded.settings.server.masters == names {
            state.unknown_masters.clone_from(&resolved.unknown);
            drop(state);
            self.workers.send_to_sessions(|_| {
                let masters = Arc::clone(&resolved);
                move |host, now| host.set_list_servers(&masters, now)
            });
        }
        HOUSEKEEPING_INTERVAL
    }

    fn state(&self) -> MutexGuard<'_, ControlState> {
        // A panic leaves no half-done change: each change is one assignment.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn bans_json(bans: &Bans, text: &str) -> Vec<Value> {
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

/// Parses an optional text of one line from a request.
fn parse_line<const MOST: usize>(name: &str, text: Option<String>) -> Result<Latin1Line<MOST>, RequestError> {
    Latin1Line::from_text(&text.unwrap_or_default())
        .map_err(|problem| RequestError(format!("{name}: {problem}")))
}

/// Interval of list server lookups and of ban maintenance.
const HOUSEKEEPING_INTERVAL: Duration = Duration::from_secs(60);
