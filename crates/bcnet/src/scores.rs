//! Stored scores: a thread writes the results of rounds to a database.
//!
//! The disk must not delay the game. Rounds wait for the thread in a bounded queue; rounds beyond its
//! capacity are dropped and counted. While the disk is full, or another program locks the file, the thread
//! retries.

mod read_limits;
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

/// The file of the scores, and the rules for what to store.
#[derive(Debug, Clone)]
pub(crate) struct ScoreOptions {
    pub(crate) file: PathBuf,
    /// The maximum age of rounds. Older rounds are deleted.
    pub(crate) keep: Option<Duration>,
    /// The minimum duration of a round, and of a player's time in it. Shorter ones are not stored.
    pub(crate) shortest: Duration,
}

/// Accepts the rounds of a session. Each session has a clone.
#[derive(Clone)]
pub(crate) struct ScoreRecorder {
    rounds: SyncSender<RoundResult>,
    shortest: Duration,
    shared: Arc<ScoreShared>,
    /// The last clone waits for the writer thread when it is dropped.
    _writer_guard: Arc<ScoreWriterGuard>,
}

/// State that sessions share with the writer thread.
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

/// Counters of stored and lost rounds, and the current problem.
///
/// Rounds are lost if the disk is too slow or full.
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

    /// Returns the reason why the file cannot be written, if there is one.
    pub(crate) fn problem(&self) -> Option<String> {
        self.0.problem.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set_problem(&self, problem: Option<String>) {
        *self.0.problem.lock().unwrap_or_else(PoisonError::into_inner) = problem;
    }
}

/// Waits for the writer thread when dropped. The mutex is there only to make the type `Sync`.
struct ScoreWriterGuard {
    shared: Arc<ScoreShared>,
    ended: Mutex<Receiver<()>>,
}

impl Drop for ScoreWriterGuard {
    /// Waits until all rounds of the last session are in the file, up to [`FINISH_TIMEOUT`].
    fn drop(&mut self) {
        self.shared.is_stopping.store(true, Ordering::Release);
        let end = self.ended.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Err(RecvTimeoutError::Timeout) = end.recv_timeout(FINISH_TIMEOUT) {
            tracing::warn!(
                event = "scores_unfinished",
                "the disk is too slow: the last rounds may not be in the scores file"
            );
        }
    }
}

impl ScoreRecorder {
    /// Opens the file and starts the writer thread.
    ///
    /// A file that can never be written is an error. A file that cannot be written now is retried.
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
            // The receiver may have gone.
            let _ = ended.try_send(());
        };
        thread::Builder::new().name("scores".into()).spawn(write)?;
        let writer_guard = ScoreWriterGuard { shared: Arc::clone(&shared), ended: Mutex::new(end) };
        Ok(Self { rounds, shortest, shared, _writer_guard: Arc::new(writer_guard) })
    }

    /// Queues a round of a session, if it was long enough. Never blocks.
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
                    "rounds end faster than the disk can store them, so some are lost"
                );
            }
        }
    }

    pub(crate) fn counters(&self) -> ScoreCounters {
        self.shared.counters.clone()
    }
}

/// Returns the result to store, or `None` if the round or all players' times were too short.
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
        let index = players.iter().position(|known| known.name == *name);
        let index = index.unwrap_or_else(|| {
            players.push(PlayerResult { name: name.clone(), ..PlayerResult::default() });
            players.len() - 1
        });
        // Several players may have the same name; their results are added.
        if let Some(known) = players.get_mut(index) {
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

/// The writer thread.
struct ScoreWriter {
    options: ScoreOptions,
    /// `None` while the file cannot be opened.
    store: Option<ScoreStore>,
    is_failing: bool,
    /// The day of the last deletion of old rounds.
    pruned_day: Option<i64>,
    shared: Arc<ScoreShared>,
}

impl ScoreWriter {
    const fn new(options: ScoreOptions, shared: Arc<ScoreShared>) -> Self {
        Self { options, store: None, is_failing: false, pruned_day: None, shared }
    }

    /// Writes rounds until the queue is closed, and logs the number of unwritten rounds.
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
                "the scores file could not be written, so these rounds are lost"
            );
        }
    }

    /// Writes a round, and retries until that succeeds or the server stops.
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

    /// Logs the first error, and closes the file so that the next attempt opens it again.
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
                "the scores file cannot be written; rounds wait in memory, and the server retries every second"
            );
        }
        self.is_failing = true;
    }

    /// Records a success, and logs it after a failure.
    fn on_success(&mut self) {
        if mem::take(&mut self.is_failing) {
            self.shared.counters.set_problem(None);
            let left_out = self.shared.counters.left_out();
            tracing::info!(event = "scores_resumed", left_out);
        }
    }

    /// Deletes old rounds, once a day.
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

/// The capacity of the queue. The rounds of all sessions of a process may end at once.
const MAX_QUEUED_ROUNDS: usize = if cfg!(test) { 50 } else { 1024 };
/// The interval between log lines about dropped rounds.
const LOG_INTERVAL: Duration = Duration::from_secs(60);
/// The delay before a failed write is retried.
const RETRY_DELAY: Duration = Duration::from_secs(1);
/// The interval at which the age of rounds is checked.
const PRUNE_CHECK_INTERVAL: Duration = Duration::from_secs(3600);
/// The time limit for the last writes. It is long in tests, because the machine may be busy.
const FINISH_TIMEOUT: Duration = if cfg!(test) { Duration::from_secs(60) } else { Duration::from_secs(2) };

#[cfg(test)]
mod tests {
    use bcnet_session::{EndReason, System};
    use bcnet_udp::Clock;

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

    /// Another program locks the file for a while. A full disk has the same effect.
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
        // The thread may have taken one round, or it is still in the queue.
        (0..MAX_QUEUED_ROUNDS + 2).for_each(|_| record());
        let clock = Clock::start();
        while counts.problem().is_none() {
            assert!(clock.now() < Time::ZERO + Duration::from_secs(30), "the writer reports no problem");
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
        assert_eq!(counts.problem(), None, "the problem is solved");
    }

    /// There may be no new rounds for weeks.
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
        let scores = ScoreRecorder::start(options.clone()).expect("a locked file is not an error");
        other.execute_batch("ROLLBACK").expect("free");
        scores.record("Friday", 22101, &summary(vec![participant("Kirk", 1, 1)], 1), Time::ZERO);
        drop((scores, other));
        let rounds = ScoreStore::open_read_only(&options.file).expect("scores").rounds(ScoreQuery::default());
        assert_eq!(rounds.expect("rounds").len(), 1);
    }
}
