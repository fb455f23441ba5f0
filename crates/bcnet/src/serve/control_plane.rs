//! What is decided beside the event loop and needs files or names: bans, the configuration, masters.

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

/// Everything about the server that its sessions do not know.
pub(super) struct ControlPlane {
    flags: ConfigFlags,
    workers: Workers,
    writer_counters: WriterCounters,
    is_stopping: AtomicBool,
    /// What some settings are until the end.
    initial_settings: Settings,
    state: Mutex<ControlState>,
    triggers: MaintenanceTriggers,
    history: History,
    samples: SampleHistory,
    pub(super) log: log::LogControls,
    /// Held during a reload, so that what was read last is in force last.
    reload_lock: Mutex<()>,
}

/// How much of what is to be kept is, by the threads that write.
pub(super) struct WriterCounters {
    /// Datagrams that are not in the capture, if there is one.
    capture_left_out: Option<LeftOutCounter>,
    /// Rounds, if any are to be kept.
    scores: Option<ScoreCounters>,
}

impl WriterCounters {
    pub(super) fn new(recorder: Option<Recorder>, scores: Option<&ScoreRecorder>) -> Self {
        let capture_left_out = recorder.map(|recorder| recorder.left_out());
        Self { capture_left_out, scores: scores.map(ScoreRecorder::counters) }
    }
}

/// What is done in threads of its own, when asked.
pub(super) struct MaintenanceTriggers {
    /// Has [`look_up_masters`](ControlPlane::look_up_masters) done.
    pub(super) masters: Trigger,
    /// Has [`look_after_bans`](ControlPlane::look_after_bans) done.
    pub(super) bans: Trigger,
    /// Tell others what happens.
    pub(super) hooks: Hooks,
}

struct ControlState {
    /// The settings in force. The file that was read last must not vanish: the password would with it.
    loaded: Loaded,
    /// List servers whose names nobody knows.
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

    /// Does what `bcnet ctl` asks; but the end of the server comes with [`stop`](Self::stop), after the answer.
    pub(super) fn dispatch(
        &self,
        Envelope { session, by, request }: Envelope,
    ) -> Result<Value, RequestError> {
        let by: Latin1Line<64> = parse_line("by", by)?;
        let what = request.is_change().then(|| request.to_string());
        let result = self.handle(session.clone(), &by, request);
        if let Some(what) = what {
            self.history.record(&by.0, session.as_deref(), &what, &result);
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
            let problem =
                format!("`{word}` is about the whole server, not about one session; leave that out");
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
            Request::Stop => {
                Ok(json!({ "done": "the server says goodbye and ends", "server": self.server_name()? }))
            }
            #[cfg(debug_assertions)]
            Request::Panic => chosen.panic(),
        }
    }

    /// Returns how all sessions, or one, are doing, and what the server does beside them.
    fn status(&self, chosen: &SelectedSessions<'_>) -> Result<Value, RequestError> {
        let mut answer = chosen.status(self.capture_left_out())?;
        let counts = |counts: &ScoreCounters| json!({ "kept": counts.kept(), "left_out": counts.left_out(), "problem": counts.problem() });
        answer["scores"] = self.scores().map_or(Value::Null, counts);
        answer["unknown_masters"] = self.state().unknown_masters.clone().into();
        answer["hooks"] = self.hooks().status().into();
        Ok(answer)
    }

    /// Returns what all sessions, or one, did in the last hour.
    fn samples(&self, chosen: &SelectedSessions<'_>, since: Option<u64>) -> Result<Value, RequestError> {
        let session = if chosen.is_all() { None } else { chosen.session_numbers()?.first().copied() };
        Ok(self.samples.to_json(session, since))
    }

    /// Looks at what the sessions do. Returns when to do that again, unless the server is over.
    pub(super) fn take_sample(&self) -> Option<Duration> {
        let is_over = self.is_stopping.load(Ordering::Relaxed);
        self.samples.take(&self.workers);
        (!is_over).then_some(samples::INTERVAL)
    }

    /// Returns the last lines of the log.
    fn events(&self, count: usize) -> Value {
        let news = self.log.feed.last(count);
        let events = news.lines.iter().filter_map(|line| serde_json::from_str(line).ok());
        json!({ "events": events.collect::<Vec<Value>>(), "next": news.next })
    }

    /// Has done what is done in threads of its own.
    pub(super) fn fire_triggers(&self) {
        self.triggers.masters.fire();
        self.triggers.bans.fire();
    }

    /// Returns what the settings were at the start.
    pub(super) const fn initial_settings(&self) -> &Settings {
        &self.initial_settings
    }

    pub(super) const fn hooks(&self) -> &Hooks {
        &self.triggers.hooks
    }

    /// Returns how many datagrams are not in the capture, if there is one.
    pub(super) fn capture_left_out(&self) -> Option<u64> {
        self.writer_counters.capture_left_out.as_ref().map(LeftOutCounter::count)
    }

    /// Returns the file with the standings, if everyone may see them.
    pub(super) fn public_standings(&self) -> Option<&Path> {
        self.initial_settings.scores.file.as_deref().filter(|_| self.initial_settings.web.standings)
    }

    /// Returns how many rounds were kept, and how many were not, if any are to be.
    pub(super) fn scores(&self) -> Option<&ScoreCounters> {
        self.writer_counters.scores.as_ref()
    }

    /// Ends the server.
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

    /// Returns which server it is, for who may have meant another.
    fn server_name(&self) -> Result<String, RequestError> {
        SelectedSessions::new(&self.workers, None).server_name()
    }

    /// Looks up where the masters are, for they move. Returns when to do that again.
    pub(super) fn resolve_list_servers(&self) -> Duration {
        let names = self.state().loaded.settings.server.masters.clone();
        let resolved = Arc::new(list_servers::resolve(&names));
        // Names that were changed meanwhile are looked up next.
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
        // Whoever panicked has changed nothing by halves: each change is one assignment.
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

/// Returns a text of one line that a request may have.
fn parse_line<const MOST: usize>(name: &str, text: Option<String>) -> Result<Latin1Line<MOST>, RequestError> {
    Latin1Line::from_text(&text.unwrap_or_default())
        .map_err(|problem| RequestError(format!("{name}: {problem}")))
}

/// How often masters are looked up, and the bans looked after.
const HOUSEKEEPING_INTERVAL: Duration = Duration::from_secs(60);
