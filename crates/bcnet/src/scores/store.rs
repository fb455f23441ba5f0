//! Results of rounds in an SQLite file.
//!
//! Each round is one transaction, so a crash cannot leave a partial round. Totals by player and by day are
//! stored too: adding up a million rounds for each request would take too long.

use std::cmp::{Ordering, Reverse};
use std::collections::HashMap;
use std::fs;
use std::io;
use std::mem;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use rusqlite::{
    Connection, ErrorCode, MAIN_DB, OpenFlags, OptionalExtension, Transaction, TransactionBehavior, params,
};

use super::read_limits::{self, ResultBudget, TIME_LIMIT};
use crate::file::ensure_regular_or_absent;

/// An open scores file.
pub(crate) struct ScoreStore {
    connection: Connection,
    path: PathBuf,
}

/// The result of a round.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct RoundResult {
    /// The end of the round, in Unix seconds.
    pub(crate) ended: i64,
    pub(crate) session: String,
    pub(crate) port: u16,
    /// The number of the round in its session.
    pub(crate) number: u32,
    pub(crate) system: String,
    pub(crate) reason: String,
    pub(crate) seconds: i64,
    /// The players, each only once.
    pub(crate) players: Vec<PlayerResult>,
}

/// The result of a player in one round, or the sum of many.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct PlayerResult {
    pub(crate) name: String,
    pub(crate) seconds: i64,
    pub(crate) points: i64,
    pub(crate) kills: i64,
    pub(crate) deaths: i64,
}

/// A player with the totals of all rounds.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct PlayerStanding {
    pub(crate) rounds: i64,
    /// The end of the player's last round.
    pub(crate) last_played: i64,
    pub(crate) score: PlayerResult,
}

/// A system with the totals of all its rounds.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct SystemTotal {
    pub(crate) system: String,
    pub(crate) rounds: i64,
    pub(crate) seconds: i64,
    /// The sum of the numbers of players of all rounds.
    pub(crate) players: i64,
}

/// The order of players. All but the name are in descending order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum StandingOrder {
    Points,
    Kills,
    Deaths,
    Rounds,
    Time,
    Name,
}

impl StandingOrder {
    /// Compares two players.
    ///
    /// Ties are common, because the server sees few points and kills. Then points, kills and playing time decide.
    fn compare(self, a: &PlayerStanding, b: &PlayerStanding) -> Ordering {
        let usual = |one: &PlayerStanding| {
            let PlayerResult { seconds, points, kills, deaths, .. } = one.score;
            (Reverse(points), Reverse(kills), Reverse(seconds), deaths)
        };
        let first = match self {
            Self::Points => Ordering::Equal,
            Self::Kills => b.score.kills.cmp(&a.score.kills),
            Self::Deaths => b.score.deaths.cmp(&a.score.deaths),
            Self::Rounds => b.rounds.cmp(&a.rounds),
            Self::Time => b.score.seconds.cmp(&a.score.seconds),
            Self::Name => a.score.name.cmp(&b.score.name),
        };
        first.then_with(|| usual(a).cmp(&usual(b))).then_with(|| a.score.name.cmp(&b.score.name))
    }
}

/// Selects rounds, and limits the rows of the result.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ScoreQuery {
    /// Only rounds of this day or later, in days since 1970 (UTC).
    pub(crate) since: Option<i64>,
    /// The maximum number of rows.
    pub(crate) limit: Option<u32>,
}

impl ScoreQuery {
    fn sql_limit(self) -> i64 {
        self.limit.map_or(-1, i64::from)
    }
}

impl ScoreStore {
    /// Opens a file for writing, and creates it if it does not exist.
    pub(crate) fn open(path: &Path) -> anyhow::Result<Self> {
        Self::try_open(path).with_context(|| path.display().to_string())
    }

    fn try_open(path: &Path) -> anyhow::Result<Self> {
        ensure_regular_files(path)?;
        Self::prepare_for_writing(
            Connection::open_with_flags(path, OPEN_FLAGS | OpenFlags::SQLITE_OPEN_CREATE)?,
            path,
        )
    }

    fn prepare_for_writing(connection: Connection, path: &Path) -> anyhow::Result<Self> {
        connection.busy_timeout(BUSY_TIMEOUT)?;
        // The journal mode is stored in the file. It must not change in a file of another program.
        let is_made = has_schema(&connection)?;
        // SQLite opens a write-protected file without an error.
        ensure!(
            !connection.is_readonly(MAIN_DB)?,
            "the file is write-protected; give the server's user the right to write it"
        );
        // Deleted names are overwritten. A truncated journal, unlike a deleted one, causes no conflict with
        // virus scanners.
        connection.execute_batch(
            "PRAGMA secure_delete = ON; PRAGMA journal_mode = TRUNCATE; PRAGMA synchronous = FULL;",
        )?;
        let mut store = Self { connection, path: path.to_owned() };
        if !is_made {
            store.create()?;
        }
        Ok(store)
    }

    /// Opens an existing file to delete data from it.
    pub(crate) fn open_existing(path: &Path) -> anyhow::Result<Self> {
        ensure_exists(path)?;
        Self::open(path)
    }

    /// Opens an existing file for reading, with limits of time and memory.
    pub(crate) fn open_read_only(path: &Path) -> anyhow::Result<Self> {
        ensure_exists(path)?;
        Self::try_open_read_only(path, TIME_LIMIT)
            .map_err(read_limits::explain)
            .with_context(|| path.display().to_string())
    }

    fn try_open_read_only(path: &Path, time_limit: Duration) -> anyhow::Result<Self> {
        ensure_regular_files(path)?;
        // A killed server may leave a transaction to roll back, which needs write access.
        let mut connection = Connection::open_with_flags(path, OPEN_FLAGS)?;
        connection.busy_timeout(BUSY_TIMEOUT)?;
        read_limits::apply(&mut connection, time_limit)?;
        ensure!(has_schema(&connection)?, "the file is empty: no round has been stored yet");
        connection.pragma_update(None, "query_only", true)?;
        Ok(Self { connection, path: path.to_owned() })
    }

    fn create(&mut self) -> anyhow::Result<()> {
        let transaction = self.begin()?;
        // Another server may have created the schema at the same moment.
        if !has_schema(&transaction)? {
            transaction.execute_batch(SCHEMA)?;
            transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
            transaction.pragma_update(None, "user_version", SCHEMA_VERSION)?;
        }
        Ok(transaction.commit()?)
    }

    fn begin(&mut self) -> rusqlite::Result<Transaction<'_>> {
        self.connection.transaction_with_behavior(TransactionBehavior::Immediate)
    }

    /// Stores a round in one transaction.
    pub(crate) fn add_round(&mut self, round: &RoundResult) -> rusqlite::Result<()> {
        let transaction = self.begin()?;
        insert_round(&transaction, round)?;
        transaction.commit()
    }

    /// Deletes the rounds of all days before `first`, and their share of the totals.
    ///
    /// Returns the number of deleted rounds.
    pub(crate) fn prune(&mut self, first: i64) -> rusqlite::Result<usize> {
        let mut rounds = 0;
        // One transaction for each day, so that other programs do not wait long. The days only grow, so a day that
        // cannot be deleted does not stop the loop.
        let mut previous = i64::MIN;
        while let Some(day) = self.next_day(previous)?.filter(|day| *day < first) {
            previous = day;
            let transaction = self.begin()?;
            let times = params![day * SECONDS_PER_DAY, (day + 1) * SECONDS_PER_DAY];
            transaction.execute(SUBTRACT_DAY_FROM_PLAYERS, [day])?;
            transaction.execute("DELETE FROM player_day WHERE day = ?1", [day])?;
            transaction.execute("DELETE FROM system_day WHERE day = ?1", [day])?;
            transaction.execute(
                "DELETE FROM result WHERE round IN (SELECT id FROM round WHERE ended >= ?1 AND ended < ?2)",
                times,
            )?;
            rounds += transaction.execute("DELETE FROM round WHERE ended >= ?1 AND ended < ?2", times)?;
            transaction.execute("DELETE FROM player WHERE rounds <= 0", [])?;
            transaction.commit()?;
        }
        if rounds > 0 {
            self.compact()?;
        }
        Ok(rounds)
    }

    /// Returns the first stored day after `previous`.
    fn next_day(&self, previous: i64) -> rusqlite::Result<Option<i64>> {
        self.connection
            .query_row("SELECT min(day) FROM system_day WHERE day > ?1", [previous], |row| row.get(0))
    }

    /// Deletes everything about a player.
    ///
    /// Returns the number of the player's rounds, or `None` if the player is unknown.
    pub(crate) fn delete_player(&mut self, name: &str) -> rusqlite::Result<Option<i64>> {
        let transaction = self.begin()?;
        let found: Option<(i64, i64)> = transaction
            .query_row("SELECT id, rounds FROM player WHERE name = ?1", [name], |row| {
                Ok((row.get(0)?, row.get(1)?))
            })
            .optional()?;
        let Some((player, rounds)) = found else { return Ok(None) };
        transaction.execute("DELETE FROM result WHERE player = ?1", [player])?;
        transaction.execute("DELETE FROM player_day WHERE player = ?1", [player])?;
        transaction.execute("DELETE FROM player WHERE id = ?1", [player])?;
        transaction.commit()?;
        Ok(Some(rounds))
    }

    /// Rewrites the whole file so that it has no traces of deleted data.
    ///
    /// Overwriting is not enough: SQLite may have moved the data before and left copies.
    pub(crate) fn compact(&self) -> rusqlite::Result<()> {
        self.connection.execute_batch("VACUUM")
    }

    /// Returns the players, the best first.
    pub(crate) fn standings(
        &self,
        range: ScoreQuery,
        order: StandingOrder,
    ) -> anyhow::Result<Vec<PlayerStanding>> {
        self.read_standings(range, order).map_err(read_limits::explain)
    }

    fn read_standings(&self, range: ScoreQuery, order: StandingOrder) -> anyhow::Result<Vec<PlayerStanding>> {
        // One transaction makes totals and days consistent, even if the server writes meanwhile.
        let _snapshot = self.connection.unchecked_transaction()?;
        let mut players = self.totals()?;
        if let Some(since) = range.since {
            self.restrict_totals(&mut players, since)?;
        }
        let mut standings: Vec<PlayerStanding> = players.into_values().filter(|one| one.rounds > 0).collect();
        standings.sort_unstable_by(|a, b| order.compare(a, b));
        standings.truncate(range.limit.map_or(usize::MAX, |limit| limit as usize));
        Ok(standings)
    }

    /// Returns the totals of all players, by their id in the file.
    fn totals(&self) -> anyhow::Result<HashMap<i64, PlayerStanding>> {
        let sql = "SELECT id, rounds, seconds, points, kills, deaths, last, name FROM player";
        let mut statement = self.connection.prepare(sql)?;
        let mut rows = statement.query([])?;
        let (mut players, mut budget) = (HashMap::new(), ResultBudget::new());
        while let Some(row) = rows.next()? {
            let (name, seconds, points) = (row.get::<_, String>(7)?, row.get(2)?, row.get(3)?);
            budget.take_row(name.len())?;
            let score = PlayerResult { name, seconds, points, kills: row.get(4)?, deaths: row.get(5)? };
            let standing = PlayerStanding { rounds: row.get(1)?, last_played: row.get(6)?, score };
            players.insert(row.get(0)?, standing);
        }
        Ok(players)
    }

    /// Restricts totals of all rounds to those since a day.
    ///
    /// It subtracts the earlier days or adds up the later ones, whichever are fewer. SQLite would sort all
    /// rows first, which takes several times as long.
    fn restrict_totals(
        &self,
        players: &mut HashMap<i64, PlayerStanding>,
        since: i64,
    ) -> rusqlite::Result<()> {
        let days: (Option<i64>, Option<i64>) =
            self.connection.query_row("SELECT min(day), max(day) FROM system_day", [], |row| {
                Ok((row.get(0)?, row.get(1)?))
            })?;
        let (Some(first), Some(last)) = days else { return Ok(()) };
        let is_less_before = since.saturating_sub(first) <= last.saturating_sub(since);
        let (from, to, sign) = if is_less_before { (first, since, -1) } else { (since, i64::MAX, 1) };
        if !is_less_before {
            for PlayerStanding { rounds, score, .. } in players.values_mut() {
                *rounds = 0;
                *score = PlayerResult { name: mem::take(&mut score.name), ..PlayerResult::default() };
            }
        }
        let mut statement = self.connection.prepare(
            "SELECT player, rounds, seconds, points, kills, deaths FROM player_day WHERE day >= ?1 AND day < ?2",
        )?;
        let mut rows = statement.query([from, to])?;
        while let Some(row) = rows.next()? {
            let Some(PlayerStanding { rounds, score, .. }) = players.get_mut(&row.get(0)?) else { continue };
            let PlayerResult { seconds, points, kills, deaths, .. } = score;
            for (column, total) in (1..).zip([rounds, seconds, points, kills, deaths]) {
                // A file that was edited by hand may give wrong totals, but must not cause a panic.
                *total = total.saturating_add(row.get::<_, i64>(column)?.saturating_mul(sign));
            }
        }
        Ok(())
    }

    /// Returns the rounds, the latest first.
    pub(crate) fn rounds(&self, range: ScoreQuery) -> anyhow::Result<Vec<RoundResult>> {
        self.read_rounds(range).map_err(read_limits::explain)
    }

    fn read_rounds(&self, range: ScoreQuery) -> anyhow::Result<Vec<RoundResult>> {
        let mut statement = self.connection.prepare(
            "SELECT id, ended, session, port, number, system, reason, seconds FROM round WHERE ended >= ?1 \
             ORDER BY ended DESC, id DESC LIMIT ?2",
        )?;
        let mut results = self.connection.prepare(
            "SELECT name, result.seconds, result.points, result.kills, result.deaths \
             FROM result JOIN player ON player.id = result.player WHERE round = ?1 \
             ORDER BY 3 DESC, 4 DESC, 2 DESC, 5, 1",
        )?;
        let since = range.since.map_or(i64::MIN, |day| day * SECONDS_PER_DAY);
        let mut rows = statement.query(params![since, range.sql_limit()])?;
        let (mut rounds, mut budget) = (Vec::new(), ResultBudget::new());
        while let Some(row) = rows.next()? {
            let mut round = RoundResult {
                ended: row.get(1)?,
                session: row.get(2)?,
                port: row.get(3)?,
                number: row.get(4)?,
                system: row.get(5)?,
                reason: row.get(6)?,
                seconds: row.get(7)?,
                players: Vec::new(),
            };
            budget.take_row(round.session.len() + round.system.len() + round.reason.len())?;
            let mut rows = results.query([row.get::<_, i64>(0)?])?;
            while let Some(row) = rows.next()? {
                let (name, seconds, points) = (row.get::<_, String>(0)?, row.get(1)?, row.get(2)?);
                budget.take_row(name.len())?;
                round.players.push(PlayerResult {
                    name,
                    seconds,
                    points,
                    kills: row.get(3)?,
                    deaths: row.get(4)?,
                });
            }
            rounds.push(round);
        }
        Ok(rounds)
    }

    /// Returns the systems, those with the most rounds first.
    pub(crate) fn systems(&self, range: ScoreQuery) -> anyhow::Result<Vec<SystemTotal>> {
        self.read_systems(range).map_err(read_limits::explain)
    }

    fn read_systems(&self, range: ScoreQuery) -> anyhow::Result<Vec<SystemTotal>> {
        let mut statement = self.connection.prepare(
            "SELECT system, sum(rounds), sum(seconds), sum(players) FROM system_day WHERE day >= ?1 \
             GROUP BY system ORDER BY 2 DESC, 3 DESC, 1 LIMIT ?2",
        )?;
        let mut rows = statement.query(params![range.since.unwrap_or(i64::MIN), range.sql_limit()])?;
        let (mut systems, mut budget) = (Vec::new(), ResultBudget::new());
        while let Some(row) = rows.next()? {
            let (system, rounds) = (row.get::<_, String>(0)?, row.get(1)?);
            budget.take_row(system.len())?;
            systems.push(SystemTotal { system, rounds, seconds: row.get(2)?, players: row.get(3)? });
        }
        Ok(systems)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

/// Returns whether a file has the schema, or `false` if it is empty. Files of other programs are errors.
fn has_schema(connection: &Connection) -> anyhow::Result<bool> {
    let pragma = |name| connection.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
    let (application, version) = (pragma("application_id")?, pragma("user_version")?);
    let count = "SELECT count(*) FROM sqlite_schema";
    let tables: i64 = connection.query_row(count, [], |row| row.get(0))?;
    match (application, version) {
        (0, 0) if tables == 0 => Ok(false),
        (APPLICATION_ID, SCHEMA_VERSION) => Ok(true),
        (APPLICATION_ID, version) if version > SCHEMA_VERSION => bail!(
            "written by a newer bcnet (format {version}, this one knows {SCHEMA_VERSION}); use the newer bcnet, or another file"
        ),
        _ => bail!("this is a database of another program; set another file for the scores"),
    }
}

/// Checks that a scores file and its journals are regular files.
///
/// SQLite would wait for the writer of a pipe.
fn ensure_regular_files(path: &Path) -> io::Result<()> {
    for suffix in ["", "-journal", "-wal"] {
        let mut name = path.as_os_str().to_owned();
        name.push(suffix);
        ensure_regular_or_absent(Path::new(&name))?;
    }
    Ok(())
}

/// Checks that the file exists. Otherwise SQLite would create an empty file.
fn ensure_exists(path: &Path) -> anyhow::Result<()> {
    let problem = || {
        format!(
            "{}: no scores here; a server stores them in `scores.file` of its configuration, a systemd service in \
             /var/lib/bcnet; name the file with --file",
            path.display()
        )
    };
    fs::metadata(path).map(drop).with_context(problem)
}

/// Adds a round to the rounds and to the totals.
fn insert_round(transaction: &Transaction<'_>, round: &RoundResult) -> rusqlite::Result<()> {
    let RoundResult { ended, session, port, number, system, reason, seconds, players } = round;
    let (day, count) = (ended.div_euclid(SECONDS_PER_DAY), players.len().cast_signed() as i64);
    transaction.execute(
        "INSERT INTO round (ended, session, port, number, system, reason, seconds, players) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
        params![ended, session, port, number, system, reason, seconds, count],
    )?;
    let id = transaction.last_insert_rowid();
    transaction.execute(UPSERT_SYSTEM_DAY, params![day, system, seconds, count])?;
    let mut player = transaction.prepare(UPSERT_PLAYER)?;
    let mut by_day = transaction.prepare(UPSERT_PLAYER_DAY)?;
    let mut result = transaction.prepare("INSERT INTO result VALUES (?1, ?2, ?3, ?4, ?5, ?6)")?;
    for PlayerResult { name, seconds, points, kills, deaths } in players {
        let player_id: i64 =
            player.query_row(params![name, seconds, points, kills, deaths, ended], |row| row.get(0))?;
        by_day.execute(params![day, player_id, seconds, points, kills, deaths])?;
        result.execute(params![id, player_id, seconds, points, kills, deaths])?;
    }
    Ok(())
}

/// Returns whether an error may disappear by itself.
///
/// The disk is full, or another program locks the file.
pub(crate) fn is_temporary(error: &anyhow::Error) -> bool {
    let code = error.downcast_ref::<rusqlite::Error>().and_then(rusqlite::Error::sqlite_error_code);
    let temporary = [
        ErrorCode::DatabaseBusy,
        ErrorCode::DatabaseLocked,
        ErrorCode::DiskFull,
        ErrorCode::SystemIoFailure,
        ErrorCode::OutOfMemory,
    ];
    code.is_some_and(|code| temporary.contains(&code))
}

const OPEN_FLAGS: OpenFlags = OpenFlags::SQLITE_OPEN_READ_WRITE.union(OpenFlags::SQLITE_OPEN_NO_MUTEX);
/// The time for which another program may lock the file.
const BUSY_TIMEOUT: Duration = if cfg!(test) { Duration::from_millis(50) } else { Duration::from_secs(5) };
/// The SQLite application id of our files: "bcnS".
const APPLICATION_ID: i64 = 0x6263_6e53;
/// The version of the schema.
const SCHEMA_VERSION: i64 = 1;
/// The number of seconds in a day.
pub(crate) const SECONDS_PER_DAY: i64 = 86_400;

const SCHEMA: &str = "
CREATE TABLE round (
    id INTEGER PRIMARY KEY,
    ended INTEGER NOT NULL, -- Unix seconds
    session TEXT NOT NULL,
    port INTEGER NOT NULL,
    number INTEGER NOT NULL,
    system TEXT NOT NULL,
    reason TEXT NOT NULL,
    seconds INTEGER NOT NULL,
    players INTEGER NOT NULL
);
CREATE INDEX round_ended ON round (ended);
CREATE TABLE player ( -- with the totals of all rounds
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    rounds INTEGER NOT NULL,
    seconds INTEGER NOT NULL,
    points INTEGER NOT NULL,
    kills INTEGER NOT NULL,
    deaths INTEGER NOT NULL,
    last INTEGER NOT NULL -- Unix seconds
);
CREATE TABLE result (
    round INTEGER NOT NULL,
    player INTEGER NOT NULL,
    seconds INTEGER NOT NULL,
    points INTEGER NOT NULL,
    kills INTEGER NOT NULL,
    deaths INTEGER NOT NULL,
    PRIMARY KEY (round, player)
) WITHOUT ROWID;
CREATE TABLE player_day ( -- days since 1970, UTC
    day INTEGER NOT NULL,
    player INTEGER NOT NULL,
    rounds INTEGER NOT NULL,
    seconds INTEGER NOT NULL,
    points INTEGER NOT NULL,
    kills INTEGER NOT NULL,
    deaths INTEGER NOT NULL,
    PRIMARY KEY (day, player)
) WITHOUT ROWID;
CREATE TABLE system_day (
    day INTEGER NOT NULL,
    system TEXT NOT NULL,
    rounds INTEGER NOT NULL,
    seconds INTEGER NOT NULL,
    players INTEGER NOT NULL,
    PRIMARY KEY (day, system)
) WITHOUT ROWID;
";

const UPSERT_SYSTEM_DAY: &str = "INSERT INTO system_day VALUES (?1, ?2, 1, ?3, ?4) \
     ON CONFLICT DO UPDATE SET rounds = rounds + 1, seconds = seconds + excluded.seconds, \
     players = players + excluded.players";

const UPSERT_PLAYER: &str = "INSERT INTO player (name, rounds, seconds, points, kills, deaths, last) \
     VALUES (?1, 1, ?2, ?3, ?4, ?5, ?6) \
     ON CONFLICT (name) DO UPDATE SET rounds = rounds + 1, seconds = seconds + excluded.seconds, \
     points = points + excluded.points, kills = kills + excluded.kills, deaths = deaths + excluded.deaths, \
     last = max(last, excluded.last) RETURNING id";

const UPSERT_PLAYER_DAY: &str = "INSERT INTO player_day VALUES (?1, ?2, 1, ?3, ?4, ?5, ?6) \
     ON CONFLICT DO UPDATE SET rounds = rounds + 1, seconds = seconds + excluded.seconds, \
     points = points + excluded.points, kills = kills + excluded.kills, deaths = deaths + excluded.deaths";

const SUBTRACT_DAY_FROM_PLAYERS: &str = "UPDATE player SET rounds = player.rounds - gone.rounds, \
     seconds = player.seconds - gone.seconds, points = player.points - gone.points, \
     kills = player.kills - gone.kills, deaths = player.deaths - gone.deaths \
     FROM player_day AS gone WHERE gone.day = ?1 AND gone.player = player.id";

#[cfg(test)]
pub(crate) mod tests;
