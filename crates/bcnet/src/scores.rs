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

use bcnet_session::{Participant, RoundSummary};
use bcnet_transport::Time;
use bcnet_udp::wall_now;

use crate::log::LogRateLimiter;
pub(crate) use store::{
    PlayerResult, PlayerStanding, RoundResult, SECONDS_PER_DAY, ScoreQuery, ScoreStore, StandingOrder,
    SystemTotal,
};

/// What is kept, where and for how long.
#[derive(Debug, Clone)]
pub(crate) struct ScoreOptions {
    pub(crate) file: PathBuf,
    /// Rounds that ended longer ago are deleted.
    pub(crate) keep: Option<Duration>,
    /// Shorter rounds, and those who were in one for a shorter time, are left out.
    pub(crate) shortest: Duration,
}

/// Takes rounds. Every session has one of its own.
#[derive(Clone)]
pub(crate) struct ScoreRecorder {
    rounds: SyncSender<RoundResult>,
    shortest: Duration,
    shared: Arc<ScoreShared>,
    /// Dropped last.
    _writer_guard: Arc<ScoreWriterGuard>,
}

/// What sessions and the thread that writes have in common.
struct ScoreShared {
    counters: ScoreCounters,
    log_limiter: Mutex<LogRateLimiter>,
    is_stopping: AtomicBool,
}

impl ScoreShared {
    fn new() -> Self {
        let log_limiter = Mutex::new(LogRateLimiter::new(1, LOG_INTERVAL));
        Self { counters: ScoreCounters::default(), log_limiter, is_stopping: AtomicBool::new(false) }
    }
}

/// How many rounds were kept, how many were lost because the disk was too slow, or full, and what is wrong now.
#[derive(Debug, Clone, Default)]
pub(crate) struct ScoreCounters(Arc<ScoreCounterValues>);

#[derive(Debug, Default)]
struct ScoreCounterValues {
    kept: AtomicU64,
    left_out: AtomicU64,
    problem: Mutex<Option<String>>,
}

impl ScoreCounters {
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
struct ScoreWriterGuard {
    shared: Arc<ScoreShared>,
    ended: Mutex<Receiver<()>>,
}

impl Drop for ScoreWriterGuard {
    /// When the last session is gone, all its rounds are in the file, unless the disk has stopped.
    fn drop(&mut self) {
        self.shared.is_stopping.store(true, Ordering::Release);
        let end = self.ended.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Err(RecvTimeoutError::Timeout) = end.recv_timeout(FINISH_TIMEOUT) {
            tracing::warn!(event = "scores_unfinished", "the last rounds may not be in the file");
        }
    }
}

impl ScoreRecorder {
    /// Opens the file, and starts the thread that writes it. A file that can never be written is an error; one that cannot be
    /// now is tried again.
    pub(crate) fn start(options: ScoreOptions) -> anyhow::Result<Self> {
        let (rounds, waiting) = mpsc::sync_channel(MAX_QUEUED_ROUNDS);
        let (ended, end) = mpsc::sync_channel(1);
        let shared = Arc::new(ScoreShared::new());
        let shortest = options.shortest;
        let mut writer = ScoreWriter::new(options, Arc::clone(&shared));
        match writer.open() {
            Err(error) if !store::is_temporary(&error) => return Err(error.context("scores.file")),
            Err(error) => writer.on_error(&error),
            Ok(_) => {}
        }
        let write = move || {
            writer.run(&waiting);
            // Whoever waits for it may be gone.
            let _ = ended.try_send(());
        };
        thread::Builder::new().name("scores".into()).spawn(write)?;
        let writer_guard = ScoreWriterGuard { shared: Arc::clone(&shared), ended: Mutex::new(end) };
        Ok(Self { rounds, shortest, shared, _writer_guard: Arc::new(writer_guard) })
    }

    /// Keeps a round of a session, if it is worth it. Never waits.
    pub(crate) fn record(&self, session: &str, port: u16, summary: &RoundSummary, now: Time) {
        let ended = i64::try_from(wall_now().as_secs()).unwrap_or(i64::MAX);
        let Some(round) = round_result(session, port, summary, self.shortest, ended) else { return };
        if let Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) = self.rounds.try_send(round) {
            self.shared.counters.0.left_out.fetch_add(1, Ordering::Relaxed);
            let mut log_limiter = self.shared.log_limiter.lock().unwrap_or_else(PoisonError::into_inner);
            if log_limiter.allow(now).is_some() {
                let left_out = self.shared.counters.left_out();
                tracing::warn!(
                    event = "scores_left_out",
                    left_out,
                    "rounds end faster than they can be kept"
                );
            }
        }
    }

    pub(crate) fn counters(&self) -> ScoreCounters {
        self.shared.counters.clone()
    }
}

/// Returns what is to be kept of a round. `None` if it was too short, or nobody was there for long enough.
fn round_result(
    session: &str,
    port: u16,
    summary: &RoundSummary,
    shortest: Duration,
    ended: i64,
) -> Option<RoundResult> {
    let mut players: Vec<PlayerResult> = Vec::new();
    let played_long_enough = |one: &&Participant| !one.name.is_empty() && one.played >= shortest;
    for Participant { name, score, played } in summary.players.iter().filter(played_long_enough) {
        let place = players.iter().position(|known| known.name == *name);
        let place = place.unwrap_or_else(|| {
            players.push(PlayerResult { name: name.clone(), ..PlayerResult::default() });
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
    is_kept.then(|| RoundResult {
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
struct ScoreWriter {
    options: ScoreOptions,
    /// None while it cannot be opened.
    store: Option<ScoreStore>,
    is_failing: bool,
    /// The day on which old rounds were deleted last.
    pruned_day: Option<i64>,
    shared: Arc<ScoreShared>,
}

impl ScoreWriter {
    const fn new(options: ScoreOptions, shared: Arc<ScoreShared>) -> Self {
        Self { options, store: None, is_failing: false, pruned_day: None, shared }
    }

    /// Keeps rounds until there are no more, and tells if some could not be kept until then.
    fn run(&mut self, queue: &Receiver<RoundResult>) {
        loop {
            self.prune();
            match queue.recv_timeout(PRUNE_CHECK_INTERVAL) {
                Ok(round) => self.write_round(&round),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        let left_out = self.shared.counters.left_out();
        if self.is_failing && left_out > 0 {
            tracing::warn!(
                event = "scores_left_out",
                left_out,
                "the file could not be written until the end"
            );
        }
    }

    /// Keeps a round, as soon as that is possible.
    fn write_round(&mut self, round: &RoundResult) {
        loop {
            let is_last = self.shared.is_stopping.load(Ordering::Acquire);
            let kept = self.open().and_then(|store| Ok(store.add_round(round)?));
            let Err(error) = kept else { break };
            self.on_error(&error);
            if is_last {
                self.shared.counters.0.left_out.fetch_add(1, Ordering::Relaxed);
                return;
            }
            thread::sleep(RETRY_DELAY);
        }
        self.shared.counters.0.kept.fetch_add(1, Ordering::Relaxed);
        self.on_success();
    }

    fn open(&mut self) -> anyhow::Result<&mut ScoreStore> {
        let store = match self.store.take() {
            Some(store) => store,
            None => ScoreStore::open(&self.options.file)?,
        };
        Ok(self.store.insert(store))
    }

    /// Tells it once, and tries it again with the file opened anew.
    fn on_error(&mut self, error: &anyhow::Error) {
        self.store = None;
        let error = format!("{error:#}");
        self.shared.counters.set_problem(Some(error.clone()));
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
    fn on_success(&mut self) {
        if mem::take(&mut self.is_failing) {
            self.shared.counters.set_problem(None);
            let left_out = self.shared.counters.left_out();
            tracing::info!(event = "scores_resumed", left_out);
        }
    }

    /// Deletes what is too old, once a day.
    fn prune(&mut self) {
        let Some(keep) = self.options.keep else { return };
        let today = seconds(wall_now()) / SECONDS_PER_DAY;
        if self.pruned_day == Some(today) {
            return;
        }
        let first = today - seconds(keep) / SECONDS_PER_DAY;
        match self.open().and_then(|store| Ok(store.prune(first)?)) {
            Ok(0) => {}
            Ok(rounds) => tracing::info!(event = "scores_pruned", rounds),
            Err(error) => return self.on_error(&error),
        }
        self.pruned_day = Some(today);
        self.on_success();
    }
}

/// Rounds that wait to be written: those of all sessions that a process can have may end at once.
const MAX_QUEUED_ROUNDS: usize = if cfg!(test) { 50 } else { 1024 };
/// How often a line tells that rounds are left out.
const LOG_INTERVAL: Duration = Duration::from_secs(60);
/// How long until it is tried again what the disk did not do.
const RETRY_DELAY: Duration = Duration::from_secs(1);
/// How often it is looked whether something is too old.
const PRUNE_CHECK_INTERVAL: Duration = Duration::from_secs(3600);
/// How long the disk may take at the end. Tests do not ask how busy the machine is.
const FINISH_TIMEOUT: Duration = if cfg!(test) { Duration::from_secs(60) } else { Duration::from_secs(2) };

#[cfg(test)]
mod tests {
    use bcnet_session::{EndReason, System};

    use super::store::tests::ScoresFile;
    use super::*;

    fn participant(name: &str, points: i32, seconds: u64) -> Participant {
        let score = bcnet_session::Score { points, kills: 1, deaths: 2 };
        Participant { name: name.into(), score, played: Duration::from_secs(seconds) }
    }

    fn summary(players: Vec<Participant>, seconds: u64) -> RoundSummary {
        let (system, duration) = (System::default(), Duration::from_secs(seconds));
        RoundSummary { round: 3, system, duration, reason: EndReason::Empty, players }
    }

    #[test]
    fn short_rounds_and_stays_are_skipped_and_names_merged() {
        let minute = Duration::from_secs(60);
        let players = vec![
            participant("Kirk", 5, 100),
            participant("Spock", 7, 59),
            participant("", 1, 100),
            participant("Kirk", 1, 60),
        ];
        let kept = round_result("Friday", 22101, &summary(players.clone(), 120), minute, 9).expect("kept");
        let kirk = PlayerResult { name: "Kirk".into(), seconds: 160, points: 6, kills: 2, deaths: 4 };
        assert_eq!((kept.players, kept.ended, kept.reason.as_str()), (vec![kirk], 9, "empty"));
        assert_eq!(round_result("Friday", 22101, &summary(players, 59), minute, 9), None);
        assert_eq!(
            round_result("Friday", 22101, &summary(vec![participant("Kirk", 5, 59)], 120), minute, 9),
            None
        );
    }

    fn options(file: &ScoresFile) -> ScoreOptions {
        ScoreOptions { file: file.0.clone(), keep: None, shortest: Duration::ZERO }
    }

    #[test]
    fn drop_of_the_last_recorder_writes_all_rounds() {
        let file = ScoresFile::new("writer-end");
        let options = options(&file);
        let scores = ScoreRecorder::start(options.clone()).expect("started");
        let (other, counts) = (scores.clone(), scores.counters());
        for number in 0..40 {
            let recorder = if number % 2 == 0 { &scores } else { &other };
            recorder.record("Friday", 22101, &summary(vec![participant("Kirk", 1, 1)], 1), Time::ZERO);
        }
        drop((scores, other));
        let standings = ScoreStore::open_read_only(&options.file)
            .expect("scores")
            .standings(ScoreQuery::default(), StandingOrder::Points);
        assert_eq!(standings.expect("standings")[0].rounds, 40);
        assert_eq!((counts.kept(), counts.left_out()), (40, 0));
    }

    /// Another program has the file for itself for a while, as a full disk has no room for a while.
    #[test]
    fn rounds_wait_for_a_locked_file_and_excess_is_counted() {
        let file = ScoresFile::new("writer-busy");
        let options = options(&file);
        let scores = ScoreRecorder::start(options.clone()).expect("started");
        let counts = scores.counters();
        let other = rusqlite::Connection::open(&options.file).expect("opened");
        other.execute_batch("BEGIN EXCLUSIVE").expect("locked");
        let record =
            || scores.record("Friday", 22101, &summary(vec![participant("Kirk", 1, 1)], 1), Time::ZERO);
        // One is in the hands of the thread, or still in the queue.
        (0..MAX_QUEUED_ROUNDS + 2).for_each(|_| record());
        while counts.problem().is_none() {
            thread::yield_now();
        }
        let lost = counts.left_out();
        assert!((1..=2).contains(&lost) && counts.kept() == 0, "{counts:?}");
        other.execute_batch("ROLLBACK").expect("free");
        drop((scores, other));
        let standings = ScoreStore::open_read_only(&options.file)
            .expect("scores")
            .standings(ScoreQuery::default(), StandingOrder::Points);
        let kept = (MAX_QUEUED_ROUNDS + 2) as u64 - lost;
        assert_eq!((standings.expect("standings")[0].rounds as u64, counts.kept()), (kept, kept));
        assert_eq!(counts.problem(), None, "it is over");
    }

    /// Nobody may play for weeks.
    #[test]
    fn failed_prune_is_retried_without_new_rounds() {
        let file = ScoresFile::new("writer-prune");
        let options = ScoreOptions {
            keep: Some(Duration::from_secs(SECONDS_PER_DAY.unsigned_abs())),
            ..options(&file)
        };
        let old =
            round_result("Friday", 22101, &summary(vec![participant("Kirk", 1, 1)], 1), Duration::ZERO, 9);
        let mut writer = ScoreWriter::new(options, Arc::new(ScoreShared::new()));
        writer.write_round(&old.expect("kept"));
        let rounds = || {
            ScoreStore::open_read_only(&file.0)
                .expect("scores")
                .rounds(ScoreQuery::default())
                .expect("rounds")
                .len()
        };
        let other = rusqlite::Connection::open(&file.0).expect("opened");
        other.execute_batch("BEGIN EXCLUSIVE").expect("locked");
        writer.prune();
        assert!(writer.is_failing && writer.pruned_day.is_none());
        other.execute_batch("ROLLBACK").expect("free");
        assert_eq!(rounds(), 1);
        writer.prune();
        assert_eq!((rounds(), writer.is_failing, writer.pruned_day.is_some()), (0, false, true));
    }

    #[test]
    fn unwritable_file_is_an_error_and_a_busy_one_is_not() {
        let file = ScoresFile::new("writer-start");
        let options = options(&file);
        let absent = ScoreOptions { file: options.file.join("absent.db"), ..options.clone() };
        let error = format!("{:#}", ScoreRecorder::start(absent).err().expect("no directory"));
        assert!(error.contains("scores.file") && error.contains("absent.db"), "{error}");
        let other = rusqlite::Connection::open(&options.file).expect("opened");
        other.execute_batch("BEGIN EXCLUSIVE").expect("locked");
        let scores = ScoreRecorder::start(options.clone()).expect("it may be free soon");
        other.execute_batch("ROLLBACK").expect("free");
        scores.record("Friday", 22101, &summary(vec![participant("Kirk", 1, 1)], 1), Time::ZERO);
        drop((scores, other));
        let rounds = ScoreStore::open_read_only(&options.file).expect("scores").rounds(ScoreQuery::default());
        assert_eq!(rounds.expect("rounds").len(), 1);
    }
}
