//! Hooks: what happens is posted to addresses of the host's choice.
//!
//! A [`Notifier`] copies what happened into a queue without waiting; a thread puts that into words and hands it to the hooks,
//! each of which has a queue and a thread of its own, so that one that never answers delays nobody. Nothing but the name and
//! the host of a hook is ever told: the rest of its address is a secret.

mod message;
mod notice;
mod sender;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use std::{io, thread};

use bcnet_control::did_you_mean;
use bcnet_session::{Bucket, EndReason, Rate, Summary};
use bcnet_transport::Time;
use bcnet_udp::{Clock, wall_now};
use serde_json::{Value, json};

use crate::bans::Moment;
use crate::config::{Hook, HookFormat};
use crate::http_client::{Answer, Client};
use crate::log::LineLimit;
use crate::metrics::Page;
pub(super) use notice::Notifier;
use notice::{Dropped, Notice, Wanted, Way, What};
use sender::{Queue, Sender, Tally};

/// All hooks of a server.
pub(super) struct Hooks {
    shared: Arc<Shared>,
    /// Ends when all threads have.
    ended: Mutex<Receiver<()>>,
}

struct Shared {
    client: Client,
    clock: Clock,
    wanted: Wanted,
    dropped: Dropped,
    state: Mutex<State>,
}

struct State {
    running: Vec<Running>,
    /// What each thread has one of as long as it runs; `None` when no more may begin.
    alive: Option<mpsc::Sender<()>>,
}

/// A hook with a thread.
struct Running {
    hook: Hook,
    queue: Arc<Queue>,
    tally: Arc<Tally>,
    /// How much of what players can do at will is told: those who come and go, and rounds that all have left.
    buckets: [Bucket; 2],
    /// How often it is told that something was dropped.
    lines: LineLimit,
}

impl Running {
    /// Hands a notice to the hook, before which others got lost `on_the_way`.
    fn tell(&mut self, notice: &Notice, on_the_way: u64, now: Time) {
        let bucket = at_will(&notice.what).and_then(|number| self.buckets.get_mut(number));
        let is_flood = bucket.is_some_and(|bucket| !bucket.take(1, AT_WILL, now));
        let is_dropped = is_flood || !self.queue.push(text(&self.hook, notice));
        let dropped = on_the_way + u64::from(is_dropped);
        self.tally.dropped.fetch_add(dropped, Ordering::Relaxed);
        if dropped > 0
            && let Some(held_back) = self.lines.pass(now)
        {
            let hook = &self.hook.name.0;
            tracing::warn!(event = "hook_dropped", hook, dropped, held_back, "more happens than it takes");
        }
    }
}

impl Hooks {
    /// Starts the threads. The [`Notifier`]s that `notifier` makes lead to them; when all are gone, so are the threads.
    pub(super) fn start(hooks: &[Hook], clock: Clock) -> io::Result<(Self, impl Fn() -> Notifier + use<>)> {
        let (notices, to_tell) = mpsc::sync_channel(MAX_NOTICES);
        let (alive, ended) = mpsc::channel();
        let shared = Arc::new(Shared {
            client: Client::new(),
            clock,
            wanted: Wanted::default(),
            dropped: Dropped::default(),
            state: Mutex::new(State { running: Vec::new(), alive: Some(alive.clone()) }),
        });
        shared.set(hooks);
        let teller = Arc::clone(&shared);
        let tell = move || {
            let _alive = alive;
            to_tell.iter().for_each(|notice| teller.tell(&notice, teller.clock.now()));
            teller.close();
        };
        thread::Builder::new().name("hooks".into()).spawn(tell)?;
        let way = Way { wanted: shared.wanted.clone(), notices, dropped: shared.dropped.clone() };
        let notifier = move || Notifier::new(way.clone());
        Ok((Self { shared, ended: Mutex::new(ended) }, notifier))
    }

    /// Has other hooks from now on. Those that are the same go on with what waits for them; what waits for others is dropped,
    /// for nobody wants it there any more.
    pub(super) fn set(&self, hooks: &[Hook]) {
        self.shared.set(hooks);
    }

    /// Waits until what was left is posted, but not for ever. There must be no [`Notifier`] any more.
    pub(super) fn finish(&self, patience: Duration) {
        self.shared.state().alive = None;
        let deadline = self.shared.clock.now() + patience;
        let ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        while let Err(RecvTimeoutError::Timeout) = ended.recv_timeout(deadline.since(self.shared.clock.now()))
        {
            if self.shared.clock.now() >= deadline {
                let waiting: usize = self.shared.state().running.iter().map(|one| one.queue.len()).sum();
                tracing::warn!(event = "hooks_unfinished", waiting, "some did not answer in time");
                return;
            }
        }
    }

    /// Posts a test, and returns what came of it.
    pub(super) fn test(&self, name: &str, session: String) -> Result<String, String> {
        let state = self.shared.state();
        let names = || state.running.iter().map(|one| one.hook.name.0.as_str());
        let Some(hook) = state.running.iter().find(|one| one.hook.name.0 == name).map(|one| one.hook.clone())
        else {
            let near = did_you_mean(name, names());
            return Err(format!("there is no hook of that name{near}; `bcnet ctl status` lists them"));
        };
        drop(state);
        let body = match hook.format {
            HookFormat::Json => {
                let time = Moment(wall_now().as_secs()).to_string();
                json!({ "event": "test", "time": time, "session": session }).to_string()
            }
            HookFormat::Discord => message::discord_body("A test of bcnet: this hook works."),
        };
        let outcome = sender::post(&self.shared.client, &hook, body, hook.timeout.min(TEST_PATIENCE));
        let told = format!("{}: {}", hook.url.host(), sender::told(&outcome));
        if outcome.is_ok_and(Answer::is_good) { Ok(told) } else { Err(told) }
    }

    /// Returns how each hook is doing.
    pub(super) fn status(&self) -> Vec<Value> {
        let show = |Running { hook, queue, tally, .. }: &Running| {
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

    /// Adds figures to a page, if there are hooks.
    pub(super) fn add_figures(&self, page: &mut Page) {
        type Figure = (&'static str, &'static str, fn(&Tally) -> &AtomicU64);
        const FIGURES: [Figure; 3] = [
            ("hook_sent_events", "Events that a hook has taken", |tally| &tally.sent),
            ("hook_failed_events", "Events that a hook did not take", |tally| &tally.failed),
            ("hook_dropped_events", "Events that were too many for a hook", |tally| &tally.dropped),
        ];
        let state = self.shared.state();
        if state.running.is_empty() {
            return;
        }
        for (name, help, figure) in FIGURES {
            let value = |one: &Running| {
                (vec![("hook", one.hook.name.0.clone())], figure(&one.tally).load(Ordering::Relaxed))
            };
            page.counter(name, help, state.running.iter().map(value));
        }
    }
}

impl Shared {
    fn set(&self, hooks: &[Hook]) {
        let mut state = self.state();
        let mut old = std::mem::take(&mut state.running);
        for hook in hooks {
            let same = old.iter().position(|one| one.hook == *hook);
            let running = match same.map(|at| old.swap_remove(at)) {
                Some(running) => Ok(running),
                None => {
                    let tally = old.iter().find(|one| one.hook.name == hook.name);
                    let tally = tally.map_or_else(Arc::default, |one| Arc::clone(&one.tally));
                    self.run(hook, tally, state.alive.clone())
                }
            };
            match running {
                Ok(running) => state.running.push(running),
                Err(error) => {
                    let (hook, error) = (&hook.name.0, error.to_string());
                    tracing::error!(event = "hook_failed", hook, error, "it has no thread");
                }
            }
        }
        for one in old {
            one.tally.dropped.fetch_add(one.queue.abandon(), Ordering::Relaxed);
        }
        let events = state.running.iter().flat_map(|one| one.hook.events.iter().copied());
        self.wanted.set(events);
    }

    fn run(&self, hook: &Hook, tally: Arc<Tally>, alive: Option<mpsc::Sender<()>>) -> io::Result<Running> {
        let queue = Arc::new(Queue::default());
        let sender = Sender {
            hook: hook.clone(),
            queue: Arc::clone(&queue),
            tally: Arc::clone(&tally),
            client: self.client.clone(),
            clock: self.clock,
            lines: LineLimit::new(LINES_AT_ONCE, LINE_EVERY),
            has_complained: false,
        };
        let post = move || {
            let _alive = alive;
            sender.run();
        };
        thread::Builder::new().name(format!("hook {}", hook.name.0)).spawn(post)?;
        let buckets = [Bucket::new(AT_WILL, Time::ZERO); 2];
        let lines = LineLimit::new(LINES_AT_ONCE, LINE_EVERY);
        Ok(Running { hook: hook.clone(), queue, tally, buckets, lines })
    }

    /// Hands a notice to every hook that wants it.
    fn tell(&self, notice: &Notice, now: Time) {
        let event = notice.what.event();
        let mut state = self.state();
        let on_the_way = self.dropped.take(event);
        for one in state.running.iter_mut().filter(|one| one.hook.events.contains(&event)) {
            one.tell(notice, on_the_way, now);
        }
    }

    fn close(&self) {
        self.state().running.iter().for_each(|one| one.queue.close());
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Each change is one assignment, or a thread of its own finishes it.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn text(hook: &Hook, notice: &Notice) -> String {
    match hook.format {
        HookFormat::Json => message::json(notice),
        HookFormat::Discord => message::discord(notice),
    }
}

/// Returns which bucket counts it, if players can have it happen as often as they like. Those who come and go must not keep
/// the scores of a round from being told.
const fn at_will(what: &What) -> Option<usize> {
    match what {
        What::Joined { .. } | What::Left { .. } | What::Full => Some(0),
        What::RoundEnded(Summary { reason: EndReason::Empty, .. }) => Some(1),
        What::RoundEnded(_) | What::MasterLost { .. } => None,
    }
}

/// What players can have happen is told so often at the most: Discord takes thirty messages a minute.
const AT_WILL: Rate = Rate::every(Duration::from_secs(2), 40);
/// Notices on their way from the game to the hooks.
const MAX_NOTICES: usize = 1000;
/// How long a test may take; `bcnet ctl` waits somewhat longer.
const TEST_PATIENCE: Duration = Duration::from_secs(8);
/// So many lines at once, and after that one in this time.
const LINES_AT_ONCE: u32 = 5;
const LINE_EVERY: Duration = Duration::from_secs(60);
/// What is left when the server ends gets this long.
pub(super) const FINISH: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, SocketAddrV4, TcpListener};

    use bcnet_session::System;

    use super::*;
    use crate::config::table::Given;
    use crate::config::{HookEvent, HookName, Table as _};
    use crate::log::Feed;

    const PATIENCE: Duration = Duration::from_secs(30);

    /// A hook whose other side takes connections and never says a word.
    fn silent() -> (Hook, TcpListener) {
        silent_of("joined,left,round_ended,full,master_lost")
    }

    fn silent_of(events: &str) -> (Hook, TcpListener) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let mut hook = Hook::default();
        let url = format!("http://{}/", listener.local_addr().expect("bound"));
        for (key, value) in [("name", "silent"), ("url", &url), ("timeout", "60s"), ("events", events)] {
            hook.set(key, Given::Text(value)).expect(key);
        }
        (hook, listener)
    }

    fn notice(what: What) -> Notice {
        Notice { at: Moment(0), session: "x".into(), port: 22101, players: 1, limit: 8, what }
    }

    fn lost() -> Notice {
        notice(What::MasterLost { master: SocketAddrV4::new(Ipv4Addr::LOCALHOST, 27900) })
    }

    fn joined() -> Notice {
        notice(What::Joined { player: "Alice".into() })
    }

    fn ended(reason: EndReason) -> Notice {
        let (system, duration, players) = (System::default(), Duration::ZERO, Vec::new());
        notice(What::RoundEnded(Summary { round: 1, system, duration, reason, players }))
    }

    #[test]
    fn what_is_too_much_for_a_hook_is_dropped_and_counted() {
        let (hook, listener) = silent();
        let (hooks, _notifier) = Hooks::start(&[hook], Clock::start()).expect("threads");
        hooks.shared.tell(&lost(), Time::ZERO);
        // The thread has taken the first, and waits for its answer.
        let _connection = listener.accept().expect("a connection");
        (0..250).for_each(|_| hooks.shared.tell(&lost(), Time::ZERO));
        let status = &hooks.status()[0];
        assert_eq!((&status["dropped"], &status["waiting"]), (&json!(150), &json!(100)), "{status}");
        // What players can do at will is dropped before it pushes anything else out.
        (0..100).for_each(|_| hooks.shared.tell(&joined(), Time::ZERO));
        let dropped = hooks.status()[0]["dropped"].as_u64().expect("a number");
        assert_eq!(dropped, 150 + 100, "40 pushed others out, 60 came too fast");
        let mut page = Page::new("bcnet");
        hooks.add_figures(&mut page);
        assert!(page.finish().contains("bcnet_hook_dropped_events_total{hook=\"silent\"} 250\n"));
    }

    /// Whoever comes and goes alone ends a round each time.
    #[test]
    fn rounds_that_players_end_at_will_are_told_so_often_and_no_flood_of_others_takes_their_place() {
        let (hook, listener) = silent();
        let (hooks, _notifier) = Hooks::start(&[hook], Clock::start()).expect("threads");
        hooks.shared.tell(&lost(), Time::ZERO);
        let _connection = listener.accept().expect("a connection");
        let dropped = |count: u64, told: &Notice, now: Time| {
            let all = || hooks.status()[0]["dropped"].as_u64().expect("a number");
            let before = all();
            (0..count).for_each(|_| hooks.shared.tell(told, now));
            all() - before
        };
        assert_eq!(dropped(50, &notice(What::Full), Time::ZERO), 10);
        assert_eq!(dropped(50, &ended(EndReason::Empty), Time::ZERO), 10);
        assert_eq!(dropped(10, &ended(EndReason::Time), Time::ZERO), 0);
        assert_eq!(hooks.status()[0]["waiting"], 90, "none has pushed another out");
        // Every two seconds there is room for one more.
        for told in [notice(What::Full), ended(EndReason::Empty)] {
            assert_eq!(dropped(1, &told, Time::from_micros(1_999_999)), 1);
            assert_eq!(dropped(2, &told, Time::from_micros(2_000_000)), 1);
        }
    }

    #[test]
    fn what_got_lost_on_the_way_is_counted_of_those_who_wanted_it() {
        let ((first, _kept), (second, _kept_too)) = (silent_of("master_lost"), silent_of("full"));
        let second = Hook { name: HookName("second".into()), ..second };
        let (hooks, _notifier) = Hooks::start(&[first, second], Clock::start()).expect("threads");
        let dropped = || hooks.status().iter().map(|one| one["dropped"].as_u64()).collect::<Vec<_>>();
        (0..3).for_each(|_| hooks.shared.dropped.add(HookEvent::Full));
        let log = Feed::default();
        let subscriber = tracing_subscriber::fmt().with_writer(log.clone()).with_ansi(false).finish();
        tracing::subscriber::with_default(subscriber, || {
            hooks.shared.tell(&lost(), Time::ZERO);
            assert_eq!(dropped(), [Some(0), Some(0)]);
            hooks.shared.tell(&notice(What::Full), Time::ZERO);
            assert_eq!(dropped(), [Some(0), Some(3)]);
        });
        let lines = log.last(9).lines;
        assert_eq!(lines.len(), 1, "{lines:?}");
        assert!(lines[0].contains("event=\"hook_dropped\" hook=\"second\" dropped=3"), "{}", lines[0]);
    }

    #[test]
    fn each_hook_counts_what_it_was_not_told_and_no_other_does() {
        let [(one, _here), (two, _there), (three, _elsewhere)] = [silent(), silent(), silent()];
        let (hooks, _notifier) = Hooks::start(&[one, two, three], Clock::start()).expect("threads");
        (0..140).for_each(|_| hooks.shared.tell(&joined(), Time::ZERO));
        for status in hooks.status() {
            assert_eq!(status["dropped"], 100, "{status}");
        }
    }

    #[test]
    fn hooks_that_stay_the_same_go_on_and_those_of_the_same_name_count_on() {
        let (hook, _listener) = silent();
        let (hooks, notifier) = Hooks::start(&[], Clock::start()).expect("threads");
        assert!(hooks.status().is_empty());
        hooks.set(std::slice::from_ref(&hook));
        (0..150).for_each(|_| hooks.shared.tell(&lost(), Time::ZERO));
        let before = hooks.status();
        hooks.set(std::slice::from_ref(&hook));
        assert_eq!(hooks.status()[0]["dropped"], before[0]["dropped"], "and what waits is not lost");
        assert!(hooks.status()[0]["waiting"].as_u64() >= Some(99));
        let number = |status: &Value, key: &str| status[key].as_u64().expect("a number");
        let other = Hook { timeout: Duration::from_secs(1), ..hook };
        hooks.set(&[other]);
        let after = &hooks.status()[0];
        assert_eq!(number(after, "waiting"), 0);
        // One may be under way.
        assert!((149..=150).contains(&number(after, "dropped")), "what waited goes nowhere: {after}");
        drop(notifier);
        hooks.set(&[]);
        assert!(hooks.status().is_empty());
    }

    #[test]
    fn without_anything_to_do_the_end_does_not_wait() {
        let (hook, _listener) = silent();
        let (hooks, notifier) = Hooks::start(&[hook], Clock::start()).expect("threads");
        drop(notifier);
        hooks.finish(PATIENCE);
        assert!(hooks.ended.lock().expect("no panic").recv().is_err(), "all threads have ended");
    }
}
