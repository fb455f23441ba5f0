//! Hooks: posts events to URLs that the operator configures.
//!
//! A [`Notifier`] copies an event into a queue without waiting. One thread formats the events and distributes
//! them to the hooks. Each hook has its own queue and thread, so that a hook without an answer delays no
//! other hook.
//!
//! Only the name and the host of a hook are ever shown: the rest of its URL is a secret.

mod message;
mod notifier;
mod sender;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use std::{io, thread};

use bcnet_control::did_you_mean;
use bcnet_session::{EndReason, Rate, RoundSummary, TokenBucket};
use bcnet_transport::Time;
use bcnet_udp::{Clock, wall_now};
use serde_json::{Value, json};

use crate::bans::Timestamp;
use crate::config::{Hook, HookFormat};
use crate::http_client::{HttpClient, ResponseHead};
use crate::log::LogRateLimiter;
use crate::metrics::MetricsPage;
pub(super) use notifier::Notifier;
use notifier::{DroppedEvents, Notification, NotificationEvent, NotificationSender, SubscribedEvents};
use sender::{HookCounters, HookQueue, HookSender};

/// All hooks of a server.
pub(super) struct Hooks {
    shared: Arc<HookShared>,
    /// Disconnected when all threads have ended.
    ended: Mutex<Receiver<()>>,
}

struct HookShared {
    client: HttpClient,
    clock: Clock,
    subscribed: SubscribedEvents,
    dropped: DroppedEvents,
    state: Mutex<HookState>,
}

struct HookState {
    running: Vec<RunningHook>,
    /// Each thread holds a clone while it runs. `None` if no more threads may start.
    alive: Option<mpsc::Sender<()>>,
}

/// A hook and the queue of its thread.
struct RunningHook {
    hook: Hook,
    queue: Arc<HookQueue>,
    counters: Arc<HookCounters>,
    /// Rate limits for events that players can cause at will.
    ///
    /// The first one is for joining, leaving and a full session, the second one for rounds that end because all players left.
    player_event_limiters: [TokenBucket; 2],
    /// Limits the log lines about dropped events.
    log_limiter: LogRateLimiter,
}

impl RunningHook {
    /// Queues a notification.
    ///
    /// `dropped_before` is the number of notifications that the queue from the sessions dropped since the last
    /// call.
    fn enqueue(&mut self, notification: &Notification, dropped_before: u64, now: Time) {
        let limiter = player_event_limiter_index(&notification.event)
            .and_then(|number| self.player_event_limiters.get_mut(number));
        let is_flood = limiter.is_some_and(|bucket| !bucket.take(1, PLAYER_EVENT_RATE, now));
        let is_dropped = is_flood || !self.queue.push(format_notification(&self.hook, notification));
        let dropped = dropped_before + u64::from(is_dropped);
        self.counters.dropped.fetch_add(dropped, Ordering::Relaxed);
        if dropped > 0
            && let Some(held_back) = self.log_limiter.allow(now)
        {
            let hook = &self.hook.name.0;
            tracing::warn!(
                event = "hook_dropped",
                hook,
                dropped,
                held_back,
                "events dropped: they come faster than the hook accepts them"
            );
        }
    }
}

impl Hooks {
    /// Starts the threads, and returns a function that creates a [`Notifier`].
    ///
    /// The threads end when all notifiers are dropped.
    pub(super) fn start(hooks: &[Hook], clock: Clock) -> io::Result<(Self, impl Fn() -> Notifier + use<>)> {
        let (queue_sender, queue) = mpsc::sync_channel(MAX_QUEUED_NOTIFICATIONS);
        let (alive, ended) = mpsc::channel();
        let shared = Arc::new(HookShared {
            client: HttpClient::new(),
            clock,
            subscribed: SubscribedEvents::default(),
            dropped: DroppedEvents::default(),
            state: Mutex::new(HookState { running: Vec::new(), alive: Some(alive.clone()) }),
        });
        shared.set(hooks);
        let dispatcher = Arc::clone(&shared);
        let dispatch = move || {
            let _alive = alive;
            queue.iter().for_each(|notification| dispatcher.dispatch(&notification, dispatcher.clock.now()));
            dispatcher.close();
        };
        thread::Builder::new().name("hooks".into()).spawn(dispatch)?;
        let sender = NotificationSender {
            subscribed: shared.subscribed.clone(),
            queue: queue_sender,
            dropped: shared.dropped.clone(),
        };
        let notifier = move || Notifier::new(sender.clone());
        Ok((Self { shared, ended: Mutex::new(ended) }, notifier))
    }

    /// Replaces the hooks. Unchanged hooks keep their queues; the queues of other hooks are dropped.
    pub(super) fn set(&self, hooks: &[Hook]) {
        self.shared.set(hooks);
    }

    /// Waits until all queued events are posted, at most for `timeout`. All notifiers must be dropped.
    pub(super) fn finish(&self, timeout: Duration) {
        self.shared.state().alive = None;
        let deadline = self.shared.clock.now() + timeout;
        let ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        while let Err(RecvTimeoutError::Timeout) = ended.recv_timeout(deadline.since(self.shared.clock.now()))
        {
            if self.shared.clock.now() >= deadline {
                let waiting: usize = self.shared.state().running.iter().map(|one| one.queue.len()).sum();
                tracing::warn!(
                    event = "hooks_unfinished",
                    waiting,
                    "hooks did not answer before the server stopped; waiting events are lost"
                );
                return;
            }
        }
    }

    /// Posts a test event and returns the result as text.
    pub(super) fn test(&self, name: &str, session: String) -> Result<String, String> {
        let state = self.shared.state();
        let names = || state.running.iter().map(|one| one.hook.name.0.as_str());
        let Some(hook) = state.running.iter().find(|one| one.hook.name.0 == name).map(|one| one.hook.clone())
        else {
            let near = did_you_mean(name, names());
            return Err(format!("no hook is named {name}{near}; `bcnet ctl status` lists the hooks"));
        };
        drop(state);
        let body = match hook.format {
            HookFormat::Json => {
                let time = Timestamp(wall_now().as_secs()).to_string();
                json!({ "event": "test", "time": time, "session": session }).to_string()
            }
            HookFormat::Discord => message::discord_body("Test of bcnet: this hook works."),
        };
        let outcome = sender::post(&self.shared.client, &hook, body, hook.timeout.min(TEST_TIMEOUT));
        let text = format!("{}: {}", hook.url.host(), sender::describe_outcome(&outcome));
        if outcome.is_ok_and(ResponseHead::is_success) { Ok(text) } else { Err(text) }
    }

    /// Returns the status of each hook.
    pub(super) fn status(&self) -> Vec<Value> {
        let show = |RunningHook { hook, queue, counters: tally, .. }: &RunningHook| {
            json!({
                "name": hook.name.0,
                "host": hook.url.host(),
                "sent": tally.sent.load(Ordering::Relaxed),
                "failed": tally.failed.load(Ordering::Relaxed),
                "dropped": tally.dropped.load(Ordering::Relaxed),
                "waiting": queue.len(),
                "problem": tally.problem(),
            })
        };
        self.shared.state().running.iter().map(show).collect()
    }

    /// Adds the counters of the hooks to a metrics page, if there are hooks.
    pub(super) fn add_metrics(&self, page: &mut MetricsPage) {
        type HookMetric = (&'static str, &'static str, fn(&HookCounters) -> &AtomicU64);
        const HOOK_METRICS: [HookMetric; 3] = [
            ("hook_sent_events", "Events that a hook accepted", |tally| &tally.sent),
            ("hook_failed_events", "Events that a hook did not accept", |tally| &tally.failed),
            ("hook_dropped_events", "Events dropped because of a full queue or a rate limit", |tally| {
                &tally.dropped
            }),
        ];
        let state = self.shared.state();
        if state.running.is_empty() {
            return;
        }
        for (name, help, counter) in HOOK_METRICS {
            let value = |one: &RunningHook| {
                (vec![("hook", one.hook.name.0.clone())], counter(&one.counters).load(Ordering::Relaxed))
            };
            page.counter(name, help, state.running.iter().map(value));
        }
    }
}

impl HookShared {
    fn set(&self, hooks: &[Hook]) {
        let mut state = self.state();
        let mut old = std::mem::take(&mut state.running);
        for hook in hooks {
            let same = old.iter().position(|one| one.hook == *hook);
            let running = match same.map(|at| old.swap_remove(at)) {
                Some(running) => Ok(running),
                None => {
                    let counters = old.iter().find(|one| one.hook.name == hook.name);
                    let tally = counters.map_or_else(Arc::default, |one| Arc::clone(&one.counters));
                    self.start_hook(hook, tally, state.alive.clone())
                }
            };
            match running {
                Ok(running) => state.running.push(running),
                Err(error) => {
                    let (hook, error) = (&hook.name.0, error.to_string());
                    tracing::error!(
                        event = "hook_failed",
                        hook,
                        error,
                        "cannot start the thread of the hook; its events are lost until the next reload"
                    );
                }
            }
        }
        for one in old {
            one.counters.dropped.fetch_add(one.queue.abandon(), Ordering::Relaxed);
        }
        let events = state.running.iter().flat_map(|one| one.hook.events.iter().copied());
        self.subscribed.set(events);
    }

    fn start_hook(
        &self,
        hook: &Hook,
        counters: Arc<HookCounters>,
        alive: Option<mpsc::Sender<()>>,
    ) -> io::Result<RunningHook> {
        let queue = Arc::new(HookQueue::default());
        let sender = HookSender {
            hook: hook.clone(),
            queue: Arc::clone(&queue),
            counters: Arc::clone(&counters),
            client: self.client.clone(),
            clock: self.clock,
            log_limiter: LogRateLimiter::new(LOG_BURST, LOG_INTERVAL),
            has_logged_failure: false,
        };
        let post = move || {
            let _alive = alive;
            sender.run();
        };
        thread::Builder::new().name(format!("hook {}", hook.name.0)).spawn(post)?;
        let player_event_limiters = [TokenBucket::new(PLAYER_EVENT_RATE, Time::ZERO); 2];
        let log_limiter = LogRateLimiter::new(LOG_BURST, LOG_INTERVAL);
        Ok(RunningHook { hook: hook.clone(), queue, counters, player_event_limiters, log_limiter })
    }

    /// Queues a notification for every hook that subscribed to its event.
    fn dispatch(&self, notification: &Notification, now: Time) {
        let event = notification.event.kind();
        let mut state = self.state();
        let dropped_before = self.dropped.take(event);
        for one in state.running.iter_mut().filter(|one| one.hook.events.contains(&event)) {
            one.enqueue(notification, dropped_before, now);
        }
    }

    fn close(&self) {
        self.state().running.iter().for_each(|one| one.queue.close());
    }

    fn state(&self) -> MutexGuard<'_, HookState> {
        // The state is used even after a panic: at worst, hooks are missing from it until the next reload.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn format_notification(hook: &Hook, notification: &Notification) -> String {
    match hook.format {
        HookFormat::Json => message::to_json(notification),
        HookFormat::Discord => message::to_discord_text(notification),
    }
}

/// Returns the rate limit of an event that players can cause at will.
///
/// Joining and leaving have a separate limit: a player who rejoins all the time must not suppress the scores
/// of rounds.
const fn player_event_limiter_index(event: &NotificationEvent) -> Option<usize> {
    match event {
        NotificationEvent::Joined { .. } | NotificationEvent::Left { .. } | NotificationEvent::Full => {
            Some(0)
        }
        NotificationEvent::RoundEnded(RoundSummary { reason: EndReason::Empty, .. }) => Some(1),
        NotificationEvent::RoundEnded(_) | NotificationEvent::MasterLost { .. } => None,
    }
}

/// Rate and burst of events that players can cause. Discord accepts thirty messages a minute.
const PLAYER_EVENT_RATE: Rate = Rate::every(Duration::from_secs(2), 40);
/// Notifications between the sessions and the hooks.
const MAX_QUEUED_NOTIFICATIONS: usize = 1000;
/// Timeout of a test. `bcnet ctl` waits somewhat longer.
const TEST_TIMEOUT: Duration = Duration::from_secs(8);
/// Log lines in a burst. After a burst, one line is allowed in each `LOG_INTERVAL`.
const LOG_BURST: u32 = 5;
const LOG_INTERVAL: Duration = Duration::from_secs(60);
/// Time to post queued events when the server stops.
pub(super) const FINISH_TIMEOUT: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, SocketAddrV4, TcpListener};

    use bcnet_session::System;

    use super::*;
    use crate::config::table::RawValue;
    use crate::config::{HookEvent, HookName, Table as _};
    use crate::log::Feed;

    const TIMEOUT: Duration = Duration::from_secs(30);

    /// Returns a hook whose server accepts connections and never answers.
    fn silent_hook() -> (Hook, TcpListener) {
        silent_hook_for("joined,left,round_ended,full,master_lost")
    }

    fn silent_hook_for(events: &str) -> (Hook, TcpListener) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
        let mut hook = Hook::default();
        let url = format!("http://{}/", listener.local_addr().expect("local address"));
        for (key, value) in [("name", "silent"), ("url", &url), ("timeout", "60s"), ("events", events)] {
            hook.set(key, RawValue::Text(value)).expect(key);
        }
        (hook, listener)
    }

    fn notification(event: NotificationEvent) -> Notification {
        Notification { at: Timestamp(0), session: "x".into(), port: 22101, players: 1, limit: 8, event }
    }

    fn master_lost() -> Notification {
        notification(NotificationEvent::MasterLost { master: SocketAddrV4::new(Ipv4Addr::LOCALHOST, 27900) })
    }

    fn joined() -> Notification {
        notification(NotificationEvent::Joined { player: "Alice".into() })
    }

    fn round_ended(reason: EndReason) -> Notification {
        let (system, duration, players) = (System::default(), Duration::ZERO, Vec::new());
        notification(NotificationEvent::RoundEnded(RoundSummary {
            round: 1,
            system,
            duration,
            reason,
            players,
        }))
    }

    #[test]
    fn events_beyond_the_hook_queue_are_dropped_and_counted() {
        let (hook, listener) = silent_hook();
        let (hooks, _notifier) = Hooks::start(&[hook], Clock::start()).expect("threads");
        hooks.shared.dispatch(&master_lost(), Time::ZERO);
        // The thread has taken the first event, and waits for the answer.
        let _connection = listener.accept().expect("accept");
        (0..250).for_each(|_| hooks.shared.dispatch(&master_lost(), Time::ZERO));
        let status = &hooks.status()[0];
        assert_eq!((&status["dropped"], &status["waiting"]), (&json!(150), &json!(100)), "{status}");
        // Rate limits drop such events before they push other events out of the queue.
        (0..100).for_each(|_| hooks.shared.dispatch(&joined(), Time::ZERO));
        let dropped = hooks.status()[0]["dropped"].as_u64().expect("count");
        assert_eq!(dropped, 150 + 100, "40 events replaced older ones, 60 exceeded the rate limit");
        let mut page = MetricsPage::new("bcnet");
        hooks.add_metrics(&mut page);
        assert!(page.finish().contains("bcnet_hook_dropped_events_total{hook=\"silent\"} 250\n"));
    }

    /// A lone player who joins and leaves ends a round each time.
    #[test]
    fn rounds_ended_by_players_have_their_own_rate_limit() {
        let (hook, listener) = silent_hook();
        let (hooks, _notifier) = Hooks::start(&[hook], Clock::start()).expect("threads");
        hooks.shared.dispatch(&master_lost(), Time::ZERO);
        let _connection = listener.accept().expect("accept");
        let dropped = |count: u64, sent: &Notification, now: Time| {
            let all = || hooks.status()[0]["dropped"].as_u64().expect("count");
            let before = all();
            (0..count).for_each(|_| hooks.shared.dispatch(sent, now));
            all() - before
        };
        assert_eq!(dropped(50, &notification(NotificationEvent::Full), Time::ZERO), 10);
        assert_eq!(dropped(50, &round_ended(EndReason::Empty), Time::ZERO), 10);
        assert_eq!(dropped(10, &round_ended(EndReason::Time), Time::ZERO), 0);
        assert_eq!(hooks.status()[0]["waiting"], 90, "the queue is not full");
        // The rate limit allows one event every two seconds.
        for sent in [notification(NotificationEvent::Full), round_ended(EndReason::Empty)] {
            assert_eq!(dropped(1, &sent, Time::from_micros(1_999_999)), 1);
            assert_eq!(dropped(2, &sent, Time::from_micros(2_000_000)), 1);
        }
    }

    #[test]
    fn drops_by_the_session_queue_count_for_subscribed_hooks_only() {
        let ((first, _kept), (second, _kept_too)) = (silent_hook_for("master_lost"), silent_hook_for("full"));
        let second = Hook { name: HookName("second".into()), ..second };
        let (hooks, _notifier) = Hooks::start(&[first, second], Clock::start()).expect("threads");
        let dropped = || hooks.status().iter().map(|one| one["dropped"].as_u64()).collect::<Vec<_>>();
        (0..3).for_each(|_| hooks.shared.dropped.add(HookEvent::Full));
        let log = Feed::default();
        let subscriber = tracing_subscriber::fmt().with_writer(log.clone()).with_ansi(false).finish();
        tracing::subscriber::with_default(subscriber, || {
            hooks.shared.dispatch(&master_lost(), Time::ZERO);
            assert_eq!(dropped(), [Some(0), Some(0)]);
            hooks.shared.dispatch(&notification(NotificationEvent::Full), Time::ZERO);
            assert_eq!(dropped(), [Some(0), Some(3)]);
        });
        let lines = log.last(9).lines;
        assert_eq!(lines.len(), 1, "{lines:?}");
        assert!(lines[0].contains("event=\"hook_dropped\" hook=\"second\" dropped=3"), "{}", lines[0]);
    }

    #[test]
    fn each_hook_counts_its_own_dropped_events() {
        let [(one, _here), (two, _there), (three, _elsewhere)] =
            [silent_hook(), silent_hook(), silent_hook()];
        let (hooks, _notifier) = Hooks::start(&[one, two, three], Clock::start()).expect("threads");
        (0..140).for_each(|_| hooks.shared.dispatch(&joined(), Time::ZERO));
        for status in hooks.status() {
            assert_eq!(status["dropped"], 100, "{status}");
        }
    }

    #[test]
    fn unchanged_hooks_keep_queues_and_changed_hooks_keep_counters() {
        let (hook, _listener) = silent_hook();
        let (hooks, notifier) = Hooks::start(&[], Clock::start()).expect("threads");
        assert!(hooks.status().is_empty());
        hooks.set(std::slice::from_ref(&hook));
        (0..150).for_each(|_| hooks.shared.dispatch(&master_lost(), Time::ZERO));
        let before = hooks.status();
        hooks.set(std::slice::from_ref(&hook));
        assert_eq!(hooks.status()[0]["dropped"], before[0]["dropped"], "the queue is kept");
        assert!(hooks.status()[0]["waiting"].as_u64() >= Some(99));
        let number = |status: &Value, key: &str| status[key].as_u64().expect("count");
        let other = Hook { timeout: Duration::from_secs(1), ..hook };
        hooks.set(&[other]);
        let after = &hooks.status()[0];
        assert_eq!(number(after, "waiting"), 0);
        // One event may already be taken by the thread.
        assert!((149..=150).contains(&number(after, "dropped")), "queued events are dropped: {after}");
        drop(notifier);
        hooks.set(&[]);
        assert!(hooks.status().is_empty());
    }

    #[test]
    fn finish_returns_at_once_without_pending_work() {
        let (hook, _listener) = silent_hook();
        let (hooks, notifier) = Hooks::start(&[hook], Clock::start()).expect("threads");
        drop(notifier);
        hooks.finish(TIMEOUT);
        assert!(hooks.ended.lock().expect("no panic").recv().is_err(), "all threads have ended");
    }
}
