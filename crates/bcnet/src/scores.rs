//! Scores that last: results of rounds, written by a thread of its own.
//!
//! The disk must not hold up the game: rounds wait for the thread in a queue with an end, and what finds no room there is left
//! out and counted. While the disk is full, or another program is at the file, the thread tries again and again.

mod store;

use std::mem;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender, TrySendError};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use bcnet_session::{Participant, Summary};
use bcnet_transport::Time;
use bcnet_udp::wall_now;

use crate::log::LineLimit;
pub(crate) use store::{DAY, Order, Range, Round, Score, Standing, Store, SystemTotal};

/// What is kept, where and for how long.
#[derive(Debug, Clone)]
pub(crate) struct Options {
    pub(crate) file: PathBuf,
    /// Rounds that ended longer ago are deleted.
    pub(crate) keep: Option<Duration>,
    /// Shorter rounds, and those who were in one for a shorter time, are left out.
    pub(crate) shortest: Duration,
}

/// Takes rounds. Every session has one of its own.
#[derive(Clone)]
pub(crate) struct Scores {
    rounds: SyncSender<Round>,
    shortest: Duration,
    shared: Arc<Shared>,
    /// Dropped last.
    _written: Arc<Written>,
}

/// What sessions and the thread that writes have in common.
struct Shared {
    counts: Counts,
    lines: Mutex<LineLimit>,
    is_over: AtomicBool,
}

impl Shared {
    fn new() -> Self {
        let lines = Mutex::new(LineLimit::new(1, LINE_EVERY));
        Self { counts: Counts::default(), lines, is_over: AtomicBool::new(false) }
    }
}

/// How many rounds were kept, how many were lost because the disk was too slow, or full, and what is wrong now.
#[derive(Debug, Clone, Default)]
pub(crate) struct Counts(Arc<Tally>);

#[derive(Debug, Default)]
struct Tally {
    kept: AtomicU64,
    left_out: AtomicU64,
    problem: Mutex<Option<String>>,
}

impl Counts {
    pub(crate) fn kept(&self) -> u64 {
        self.0.kept.load(Ordering::Relaxed)
    }

    pub(crate) fn left_out(&self) -> u64 {
        self.0.left_out.load(Ordering::Relaxed)
    }

    /// Returns why the file cannot be written, if that is so.
    pub(crate) fn problem(&self) -> Option<String> {
        self.0.problem.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set_problem(&self, problem: Option<String>) {
        *self.0.problem.lock().unwrap_or_else(PoisonError::into_inner) = problem;
    }
}

/// Tells when everything is written. Nobody ever waits for the lock.
struct Written {
    shared: Arc<Shared>,
    end: Mutex<Receiver<()>>,
}

impl Drop for Written {
    /// When the last session is gone, all its rounds are in the file, unless the disk has stopped.
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::Release);
        let end = self.end.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Err(RecvTimeoutError::Timeout) = end.recv_timeout(PATIENCE) {
            tracing::warn!(event = "scores_unfinished", "the last rounds may not be in the file");
        }
    }
}

impl Scores {
    /// Opens the file, and starts the thread that writes it. A file that can never be written is an error; one that cannot be
    /// now is tried again.
    pub(crate) fn start(options: Options) -> anyhow::Result<Self> {
        let (rounds, waiting) = mpsc::sync_channel(MAX_WAITING);
        let (ended, end) = mpsc::sync_channel(1);
        let shared = Arc::new(Shared::new());
        let shortest = options.shortest;
        let mut writer = Writer::new(options, Arc::clone(&shared));
        match writer.open() {
            Err(error) if !store::may_pass(&error) => return Err(error.context("scores.file")),
            Err(error) => writer.failed(&error),
            Ok(_) => {}
        }
        let write = move || {
            writer.run(&waiting);
            // Whoever waits for it may be gone.
            let _ = ended.try_send(());
        };
        thread::Builder::new().name("scores".into()).spawn(write)?;
        let written = Written { shared: Arc::clone(&shared), end: Mutex::new(end) };
        Ok(Self { rounds, shortest, shared, _written: Arc::new(written) })
    }

    /// Keeps a round of a session, if it is worth it. Never waits.
    pub(crate) fn keep(&self, session: &str, port: u16, summary: &Summary, now: Time) {
        let ended = i64::try_from(wall_now().as_secs()).unwrap_or(i64::MAX);
        let Some(round) = round(session, port, summary, self.shortest, ended) else { return };
        if let Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) = self.rounds.try_send(round) {
            self.shared.counts.0.left_out.fetch_add(1, Ordering::Relaxed);
            let mut lines = self.shared.lines.lock().unwrap_or_else(PoisonError::into_inner);
            if lines.pass(now).is_some() {
                let left_out = self.shared.counts.left_out();
                tracing::warn!(
                    event = "scores_left_out",
                    left_out,
                    "rounds end faster than they can be kept"
                );
            }
        }
    }

    pub(crate) fn counts(&self) -> Counts {
        self.shared.counts.clone()
    }
}

/// Returns what is to be kept of a round. `None` if it was too short, or nobody was there for long enough.
fn round(session: &str, port: u16, summary: &Summary, shortest: Duration, ended: i64) -> Option<Round> {
    let mut players: Vec<Score> = Vec::new();
    let stayed = |one: &&Participant| !one.name.is_empty() && one.played >= shortest;
    for Participant { name, score, played } in summary.players.iter().filter(stayed) {
        let place = players.iter().position(|known| known.name == *name);
        let place = place.unwrap_or_else(|| {
            players.push(Score { name: name.clone(), ..Score::default() });
            players.len() - 1
        });
        // Several may have the same name.
        if let Some(known) = players.get_mut(place) {
            known.seconds += seconds(*played);
            known.points += i64::from(score.points);
            known.kills += i64::from(score.kills);
            known.deaths += i64::from(score.deaths);
        }
    }
    let is_kept = summary.duration >= shortest && !players.is_empty();
    is_kept.then(|| Round {
        ended,
        session: session.into(),
        port,
        number: summary.round,
        system: summary.system.to_string(),
        reason: summary.reason.to_string(),
        seconds: seconds(summary.duration),
        players,
    })
}

fn seconds(time: Duration) -> i64 {
    i64::try_from(time.as_secs()).unwrap_or(i64::MAX)
}

/// The thread that writes.
struct Writer {
    options: Options,
    /// None while it cannot be opened.
    store: Option<Store>,
    is_failing: bool,
    /// The day on which old rounds were deleted last.
    pruned: Option<i64>,
    shared: Arc<Shared>,
}

impl Writer {
    const fn new(options: Options, shared: Arc<Shared>) -> Self {
        Self { options, store: None, is_failing: false, pruned: None, shared }
    }

    /// Keeps rounds until there are no more, and tells if some could not be kept until then.
    fn run(&mut self, waiting: &Receiver<Round>) {
        loop {
            self.prune();
            match waiting.recv_timeout(PRUNE_EVERY) {
                Ok(round) => self.keep(&round),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        let left_out = self.shared.counts.left_out();
        if self.is_failing && left_out > 0 {
            tracing::warn!(
                event = "scores_left_out",
                left_out,
                "the file could not be written until the end"
            );
        }
    }

    /// Keeps a round, as soon as that is possible.
    fn keep(&mut self, round: &Round) {
        loop {
            let is_last = self.shared.is_over.load(Ordering::Acquire);
            let kept = self.open().and_then(|store| Ok(store.keep(round)?));
            let Err(error) = kept else { break };
            self.failed(&error);
            if is_last {
                self.shared.counts.0.left_out.fetch_add(1, Ordering::Relaxed);
                return;
            }
            thread::sleep(RETRY);
        }
        self.shared.counts.0.kept.fetch_add(1, Ordering::Relaxed);
        self.resume();
    }

    fn open(&mut self) -> anyhow::Result<&mut Store> {
        let store = match self.store.take() {
            Some(store) => store,
            None => Store::open(&self.options.file)?,
        };
        Ok(self.store.insert(store))
    }

    /// Tells it once, and tries it again with the file opened anew.
    fn failed(&mut self, error: &anyhow::Error) {
        self.store = None;
        let error = format!("{error:#}");
        self.shared.counts.set_problem(Some(error.clone()));
        if !self.is_failing {
            let file = self.options.file.display().to_string();
            tracing::error!(
                event = "scores_failed",
                file,
                error,
                "rounds wait, and it is tried again and again"
            );
        }
        self.is_failing = true;
    }

    /// It works. Tells so, if it did not before.
    fn resume(&mut self) {
        if mem::take(&mut self.is_failing) {
            self.shared.counts.set_problem(None);
            let left_out = self.shared.counts.left_out();
            tracing::info!(event = "scores_resumed", left_out);
        }
    }

    /// Deletes what is too old, once a day.
    fn prune(&mut self) {
        let Some(keep) = self.options.keep else { return };
        let today = seconds(wall_now()) / DAY;
        if self.pruned == Some(today) {
            return;
        }
        let first = today - seconds(keep) / DAY;
        match self.open().and_then(|store| Ok(store.prune(first)?)) {
            Ok(0) => {}
            Ok(rounds) => tracing::info!(event = "scores_pruned", rounds),
            Err(error) => return self.failed(&error),
        }
        self.pruned = Some(today);
        self.resume();
    }
}

/// Rounds that wait to be written: those of all sessions that a process can have may end at once.
const MAX_WAITING: usize = if cfg!(test) { 50 } else { 1024 };
/// How often a line tells that rounds are left out.
const LINE_EVERY: Duration = Duration::from_secs(60);
/// How long until it is tried again what the disk did not do.
const RETRY: Duration = Duration::from_secs(1);
/// How often it is looked whether something is too old.
const PRUNE_EVERY: Duration = Duration::from_secs(3600);
/// How long the disk may take at the end. Tests do not ask how busy the machine is.
const PATIENCE: Duration = if cfg!(test) { Duration::from_secs(60) } else { Duration::from_secs(2) };

#[cfg(test)]
mod tests {
    use bcnet_session::{EndReason, System};

    use super::store::tests::File;
    use super::*;

    fn participant(name: &str, points: i32, seconds: u64) -> Participant {
        let score = bcnet_session::Score { points, kills: 1, deaths: 2 };
        Participant { name: name.into(), score, played: Duration::from_secs(seconds) }
    }

    fn summary(players: Vec<Participant>, seconds: u64) -> Summary {
        let (system, duration) = (System::default(), Duration::from_secs(seconds));
        Summary { round: 3, system, duration, reason: EndReason::Empty, players }
    }

    #[test]
    fn short_rounds_and_short_stays_are_left_out_and_namesakes_are_one() {
        let minute = Duration::from_secs(60);
        let players = vec![
            participant("Kirk", 5, 100),
            participant("Spock", 7, 59),
            participant("", 1, 100),
            participant("Kirk", 1, 60),
        ];
        let kept = round("Friday", 22101, &summary(players.clone(), 120), minute, 9).expect("kept");
        let kirk = Score { name: "Kirk".into(), seconds: 160, points: 6, kills: 2, deaths: 4 };
        assert_eq!((kept.players, kept.ended, kept.reason.as_str()), (vec![kirk], 9, "empty"));
        assert_eq!(round("Friday", 22101, &summary(players, 59), minute, 9), None);
        assert_eq!(round("Friday", 22101, &summary(vec![participant("Kirk", 5, 59)], 120), minute, 9), None);
    }

    fn options(file: &File) -> Options {
        Options { file: file.0.clone(), keep: None, shortest: Duration::ZERO }
    }

    #[test]
    fn all_that_was_told_is_in_the_file_when_the_last_session_is_gone() {
        let file = File::new("writer-end");
        let options = options(&file);
        let scores = Scores::start(options.clone()).expect("started");
        let (other, counts) = (scores.clone(), scores.counts());
        for number in 0..40 {
            let told = if number % 2 == 0 { &scores } else { &other };
            told.keep("Friday", 22101, &summary(vec![participant("Kirk", 1, 1)], 1), Time::ZERO);
        }
        drop((scores, other));
        let standings =
            Store::read(&options.file).expect("scores").standings(Range::default(), Order::Points);
        assert_eq!(standings.expect("standings")[0].rounds, 40);
        assert_eq!((counts.kept(), counts.left_out()), (40, 0));
    }

    /// Another program has the file for itself for a while, as a full disk has no room for a while.
    #[test]
    fn rounds_wait_for_a_file_that_cannot_be_written_and_what_is_too_much_is_counted() {
        let file = File::new("writer-busy");
        let options = options(&file);
        let scores = Scores::start(options.clone()).expect("started");
        let counts = scores.counts();
        let other = rusqlite::Connection::open(&options.file).expect("opened");
        other.execute_batch("BEGIN EXCLUSIVE").expect("locked");
        let tell = || scores.keep("Friday", 22101, &summary(vec![participant("Kirk", 1, 1)], 1), Time::ZERO);
        // One is in the hands of the thread, or still in the queue.
        (0..MAX_WAITING + 2).for_each(|_| tell());
        while counts.problem().is_none() {
            thread::yield_now();
        }
        let lost = counts.left_out();
        assert!((1..=2).contains(&lost) && counts.kept() == 0, "{counts:?}");
        other.execute_batch("ROLLBACK").expect("free");
        drop((scores, other));
        let standings =
            Store::read(&options.file).expect("scores").standings(Range::default(), Order::Points);
        let kept = (MAX_WAITING + 2) as u64 - lost;
        assert_eq!((standings.expect("standings")[0].rounds as u64, counts.kept()), (kept, kept));
        assert_eq!(counts.problem(), None, "it is over");
    }

    /// Nobody may play for weeks.
    #[test]
    fn what_is_too_old_is_deleted_later_if_it_cannot_be_now_whether_rounds_end_or_not() {
        let file = File::new("writer-prune");
        let options = Options { keep: Some(Duration::from_secs(DAY.unsigned_abs())), ..options(&file) };
        let old = round("Friday", 22101, &summary(vec![participant("Kirk", 1, 1)], 1), Duration::ZERO, 9);
        let mut writer = Writer::new(options, Arc::new(Shared::new()));
        writer.keep(&old.expect("kept"));
        let rounds = || Store::read(&file.0).expect("scores").rounds(Range::default()).expect("rounds").len();
        let other = rusqlite::Connection::open(&file.0).expect("opened");
        other.execute_batch("BEGIN EXCLUSIVE").expect("locked");
        writer.prune();
        assert!(writer.is_failing && writer.pruned.is_none());
        other.execute_batch("ROLLBACK").expect("free");
        assert_eq!(rounds(), 1);
        writer.prune();
        assert_eq!((rounds(), writer.is_failing, writer.pruned.is_some()), (0, false, true));
    }

    #[test]
    fn a_file_that_can_never_be_written_is_an_error_and_one_that_is_busy_is_not() {
        let file = File::new("writer-start");
        let options = options(&file);
        let absent = Options { file: options.file.join("absent.db"), ..options.clone() };
        let error = format!("{:#}", Scores::start(absent).err().expect("no directory"));
        assert!(error.contains("scores.file") && error.contains("absent.db"), "{error}");
        let other = rusqlite::Connection::open(&options.file).expect("opened");
        other.execute_batch("BEGIN EXCLUSIVE").expect("locked");
        let scores = Scores::start(options.clone()).expect("it may be free soon");
        other.execute_batch("ROLLBACK").expect("free");
        scores.keep("Friday", 22101, &summary(vec![participant("Kirk", 1, 1)], 1), Time::ZERO);
        drop((scores, other));
        let rounds = Store::read(&options.file).expect("scores").rounds(Range::default());
        assert_eq!(rounds.expect("rounds").len(), 1);
    }
}
