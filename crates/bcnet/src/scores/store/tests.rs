use super::*;

/// A scores file in a new directory, deleted with all files of SQLite at the end of the test.
pub(crate) struct ScoresFile(pub(crate) PathBuf);

impl ScoresFile {
    pub(crate) fn new(name: &str) -> Self {
        let directory = std::env::temp_dir().join(format!("bcnet-scores-{name}-{}", std::process::id()));
        drop(fs::remove_dir_all(&directory));
        fs::create_dir(&directory).expect("a directory");
        Self(directory.join("scores.db"))
    }

    fn open(&self) -> ScoreStore {
        ScoreStore::open(&self.0).expect("a file of scores")
    }
}

impl Drop for ScoresFile {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(self.0.with_file_name("")));
    }
}

fn round(day: i64, system: &str, players: &[(&str, i64)]) -> RoundResult {
    let score = |(name, points): &(&str, i64)| PlayerResult {
        name: (*name).into(),
        seconds: 60,
        points: *points,
        kills: 1,
        deaths: 2,
    };
    RoundResult {
        ended: day * SECONDS_PER_DAY + 5,
        session: "Friday".into(),
        port: 22101,
        number: 1,
        system: system.into(),
        reason: "time".into(),
        seconds: 100,
        players: players.iter().map(score).collect(),
    }
}

fn names(store: &ScoreStore, range: ScoreQuery, order: StandingOrder) -> Vec<(String, i64, i64)> {
    let standings = store.standings(range, order).expect("standings");
    standings.into_iter().map(|one| (one.score.name, one.rounds, one.score.points)).collect()
}

const ALL: ScoreQuery = ScoreQuery { since: None, limit: None };

/// Checks that the stored totals are the sums of all results.
fn assert_totals_consistent(store: &ScoreStore) {
    let one = |sql: &str| store.connection.query_row(sql, [], |row| row.get::<_, i64>(0)).expect(sql);
    for sql in [
        "SELECT count(*) FROM round WHERE players <> (SELECT count(*) FROM result WHERE round = round.id)",
        "SELECT count(*) FROM player WHERE rounds <> (SELECT count(*) FROM result WHERE player = player.id)",
        "SELECT count(*) FROM player WHERE points <> (SELECT sum(points) FROM result WHERE player = player.id)",
        "SELECT count(*) FROM player WHERE rounds <> (SELECT sum(rounds) FROM player_day WHERE player = player.id)",
        "SELECT (SELECT count(*) FROM round) <> (SELECT coalesce(sum(rounds), 0) FROM system_day)",
        "SELECT count(*) FROM player_day WHERE player NOT IN (SELECT id FROM player)",
    ] {
        assert_eq!(one(sql), 0, "{sql}");
    }
}

#[test]
fn rounds_add_up_to_player_and_system_totals() {
    let file = ScoresFile::new("totals");
    let mut store = file.open();
    for round in [
        round(10, "Multi1", &[("Kirk", 5), ("Spock", 7)]),
        round(11, "Multi1", &[("Kirk", 4)]),
        round(12, "Albirea", &[("Spock", 1), ("Sulu", 8)]),
    ] {
        store.add_round(&round).expect("kept");
    }
    assert_totals_consistent(&store);
    let name = |name: &str, rounds, points| (name.to_owned(), rounds, points);
    assert_eq!(
        names(&store, ALL, StandingOrder::Points),
        [name("Kirk", 2, 9), name("Spock", 2, 8), name("Sulu", 1, 8)]
    );
    let since = ScoreQuery { since: Some(11), limit: Some(2) };
    assert_eq!(names(&store, since, StandingOrder::Points), [name("Sulu", 1, 8), name("Kirk", 1, 4)]);
    assert_eq!(names(&store, ALL, StandingOrder::Name)[2].0, "Sulu");
    // Near the first day the code subtracts earlier days, near the last day it adds up later ones.
    for (since, expected) in [
        (0, vec![name("Kirk", 2, 9), name("Spock", 2, 8), name("Sulu", 1, 8)]),
        (11, vec![name("Sulu", 1, 8), name("Kirk", 1, 4), name("Spock", 1, 1)]),
        (12, vec![name("Sulu", 1, 8), name("Spock", 1, 1)]),
        (13, vec![]),
        (i64::MAX, vec![]),
    ] {
        assert_eq!(
            names(&store, ScoreQuery { since: Some(since), limit: None }, StandingOrder::Points),
            expected,
            "{since}"
        );
    }
    let systems = store.systems(ALL).expect("systems");
    let total = |system: &str, rounds, players| SystemTotal {
        system: system.into(),
        rounds,
        seconds: 100 * rounds,
        players,
    };
    assert_eq!(systems, [total("Multi1", 2, 3), total("Albirea", 1, 2)]);
    let rounds = store.rounds(ScoreQuery { limit: Some(1), ..since }).expect("rounds");
    assert_eq!(rounds, [round(12, "Albirea", &[("Sulu", 8), ("Spock", 1)])]);
}

#[test]
fn prune_deletes_old_rounds_and_their_totals() {
    let file = ScoresFile::new("prune");
    let mut store = file.open();
    for day in 10..20 {
        store.add_round(&round(day, "Multi1", &[("Kirk", day)])).expect("kept");
    }
    store.add_round(&round(10, "Multi2", &[("Guest", 1)])).expect("kept");
    assert_eq!(store.prune(18).expect("pruned"), 9);
    assert_totals_consistent(&store);
    assert_eq!(names(&store, ALL, StandingOrder::Points), [("Kirk".to_owned(), 2, 18 + 19)]);
    assert_eq!(store.prune(18).expect("pruned"), 0);
    assert_eq!(store.prune(100).expect("pruned"), 2);
    assert_eq!(names(&store, ALL, StandingOrder::Points), []);
}

/// Overwritten data may leave copies where SQLite had moved it before.
#[test]
fn pruned_names_leave_no_bytes_in_the_file() {
    let file = ScoresFile::new("retention");
    let mut store = file.open();
    store.connection.execute_batch("PRAGMA synchronous = OFF").expect("set");
    // The mixed order of names makes SQLite split pages.
    for number in 0..1500_i64 {
        let (day, mixed) = (number / 20, number * 7919 % 100_003);
        let names = [format!("Gone {mixed:06} of those"), format!("Stay {:06} of those", mixed % 400)];
        let stays = day >= 40 || number % 3 == 0;
        let name = if stays { &names[1] } else { &names[0] };
        store.add_round(&round(day, "Multi1", &[(name.as_str(), 1)])).expect("kept");
    }
    store.prune(60).expect("pruned");
    assert_totals_consistent(&store);
    let bytes = fs::read(&file.0).expect("a file");
    let count = |name: &[u8]| bytes.windows(name.len()).filter(|part| part == &name).count();
    assert!(count(b"Stay") > 100);
    assert_eq!(count(b"Gone"), 0);
}

/// No byte of the deleted name may remain, whatever else is in the file.
#[test]
fn deleted_player_leaves_no_bytes_in_the_file() {
    let file = ScoresFile::new("forget");
    let mut store = file.open();
    for number in 0..500 {
        let other = format!("Player {}", number % 60);
        store.add_round(&round(number / 10, "Multi1", &[("Unforgettable", 1), (&other, 2)])).expect("kept");
    }
    let has_name = || {
        let bytes = fs::read(&file.0).expect("a file");
        bytes.windows(7).any(|part| part == b"Unforge")
    };
    assert!(has_name());
    assert_eq!(store.delete_player("unforgettable").expect("asked"), None);
    assert_eq!(store.delete_player("Unforgettable").expect("asked"), Some(500));
    store.compact().expect("compacted");
    assert!(!has_name());
    assert_eq!(store.delete_player("Unforgettable").expect("asked"), None);
    assert_eq!(names(&store, ALL, StandingOrder::Points).len(), 60);
    assert_eq!(store.rounds(ALL).expect("rounds").len(), 500);
}

/// The size of the file is limited, like the space on a disk.
#[test]
fn full_disk_stores_no_partial_round_and_recovers() {
    let file = ScoresFile::new("full");
    let mut store = file.open();
    let pages = |store: &ScoreStore, most: i64| {
        store
            .connection
            .pragma_update_and_check(None, "max_page_count", most, |row| row.get::<_, i64>(0))
            .expect("set");
    };
    let used: i64 =
        store.connection.pragma_query_value(None, "page_count", |row| row.get(0)).expect("counted");
    pages(&store, used + 3);
    let (mut kept, error) = (0, fill_file(&mut store));
    kept += error.0;
    assert!(is_temporary(&error.1.into()), "the write is retried");
    assert_totals_consistent(&store);
    assert_eq!(store.rounds(ALL).expect("rounds").len(), kept);
    pages(&store, 1 << 20);
    store.add_round(&round(3, "Multi1", &[("Kirk", 1)])).expect("there is space again");
    assert_totals_consistent(&store);
    assert_eq!(store.rounds(ALL).expect("rounds").len(), kept + 1);
}

/// Creates a file with a million rounds of six players each, a thousand a day.
///
/// Few of the 20,000 players play often. The test prints the path, for `bcnet stats --file`. Run it with
/// `cargo test -p bcnet million -- --ignored --nocapture`.
#[test]
#[ignore = "creates a large file for measuring queries"]
fn create_a_million_rounds() {
    let path = std::env::temp_dir().join("bcnet-million.db");
    drop(fs::remove_file(&path));
    let store = ScoreStore::open(&path).expect("a file of scores");
    store.connection.execute_batch(MILLION_ROUNDS_SQL).expect("made");
    for what in ["round", "result", "player", "player_day", "system_day"] {
        let count = format!("SELECT count(*) FROM {what}");
        let count: i64 = store.connection.query_row(&count, [], |row| row.get(0)).expect("counted");
        println!("{what}: {count}");
    }
    println!("{}: {} MiB", path.display(), fs::metadata(&path).expect("a file").len() >> 20);
    assert_eq!(store.standings(ALL, StandingOrder::Points).expect("standings").len(), 20_000);
}

/// Inserts in one batch what [`ScoreStore::add_round`] would store.
const MILLION_ROUNDS_SQL: &str = "
PRAGMA synchronous = OFF;
BEGIN;
INSERT INTO round WITH RECURSIVE n (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM n WHERE n < 999999)
    SELECT n + 1, 1700000000 + n * 86, 'Friday', 22101, n, 'Multi' || (1 + n % 7), 'time', 1200, 6 FROM n;
INSERT OR IGNORE INTO result
    WITH RECURSIVE seat (seat) AS (SELECT 0 UNION ALL SELECT seat + 1 FROM seat WHERE seat < 5)
    SELECT id, CASE WHEN seat % 2 = 0 THEN 1 + abs(random() % 300) ELSE 1 + abs(random() % 20000) END,
    600 + seat, id % 97, id % 7, id % 5 FROM round CROSS JOIN seat;
INSERT INTO player_day SELECT ended / 86400, player, count(*), sum(result.seconds), sum(points), sum(kills), sum(deaths)
    FROM result JOIN round ON round.id = result.round GROUP BY 1, 2;
INSERT INTO player SELECT player, 'Player ' || player, sum(rounds), sum(seconds), sum(points), sum(kills), sum(deaths),
    86400 * max(day) FROM player_day GROUP BY player;
INSERT INTO system_day SELECT ended / 86400, system, count(*), sum(seconds), sum(players) FROM round GROUP BY 1, 2;
COMMIT;
";

/// Stores rounds until the file is full. Returns their number and the error.
fn fill_file(store: &mut ScoreStore) -> (usize, rusqlite::Error) {
    for kept in 0..10_000 {
        let guests: Vec<String> = (0..8).map(|guest| format!("Guest {kept} {guest}")).collect();
        let guests: Vec<(&str, i64)> = guests.iter().map(|name| (name.as_str(), 1)).collect();
        if let Err(error) = store.add_round(&round(3, "Multi1", &guests)) {
            return (kept, error);
        }
    }
    panic!("the file is never full");
}

#[test]
fn foreign_and_newer_files_are_refused_unchanged() {
    let file = ScoresFile::new("foreign");
    let refused = |part: &str| {
        let before = fs::read(&file.0).expect("a file");
        for opened in [ScoreStore::open(&file.0), ScoreStore::open_read_only(&file.0)] {
            let error = format!("{:#}", opened.err().expect("refused"));
            assert!(error.contains(part) && error.contains("scores.db"), "{error}");
        }
        assert_eq!(fs::read(&file.0).expect("a file"), before);
    };
    fs::write(&file.0, "Dear diary, today I have lost a ship. ".repeat(40)).expect("written");
    refused("not a database");
    fs::remove_file(&file.0).expect("removed");
    let other = Connection::open(&file.0).expect("a database");
    other.execute_batch("CREATE TABLE diary (text)").expect("made");
    // The journal mode is stored in the file too, and must not change.
    for mode in ["DELETE", "WAL"] {
        let set = format!("PRAGMA journal_mode = {mode}");
        let now: String = other.query_row(&set, [], |row| row.get(0)).expect("set");
        assert_eq!(now, mode.to_lowercase());
        refused("another program");
    }
    drop(other);
    fs::remove_file(&file.0).expect("removed");
    file.open().connection.pragma_update(None, "user_version", SCHEMA_VERSION + 1).expect("set");
    refused("newer bcnet (format 2, this one knows 1)");
}

/// Creates a file whose table is a view with these columns.
fn file_with_view(name: &str, table: &str, select: &str) -> ScoresFile {
    let file = ScoresFile::new(name);
    let sql = format!("DROP TABLE {table}; CREATE VIEW {table} AS {select}");
    file.open().connection.execute_batch(&sql).expect("replaced");
    file
}

/// A file of a few kilobytes may have tables without an end. Each limit ends the reading of one of them.
#[test]
fn endless_tables_end_with_a_clear_error() {
    let player = "1 AS id, 1 AS rounds, 1 AS seconds, 1 AS points, 1 AS kills, 1 AS deaths, 1 AS last";
    let players = |store: &ScoreStore| store.standings(ALL, StandingOrder::Points).map(drop);
    let systems = |store: &ScoreStore| store.systems(ALL).map(drop);
    let refused = |file: &ScoresFile, time, read: &dyn Fn(&ScoreStore) -> anyhow::Result<()>, part: &str| {
        let store = ScoreStore::try_open_read_only(&file.0, time).expect("opened");
        let error = format!("{:#}", read(&store).expect_err("refused"));
        assert!(error.contains(part), "{error}");
    };
    let rows = format!("{ENDLESS} {player}, hex(zeroblob(30000)) AS name FROM n");
    refused(
        &file_with_view("rows", "player", &rows),
        NO_TIME_LIMIT,
        &players,
        "larger than 512 MiB; ask for",
    );
    let text = format!("SELECT {player}, hex(zeroblob(100000)) AS name");
    refused(
        &file_with_view("text", "player", &text),
        NO_TIME_LIMIT,
        &players,
        "longer than 64 KiB; the file",
    );
    let sum = format!("{ENDLESS} 'x' AS system, 1 AS day, 1 AS rounds, 1 AS seconds, 1 AS players FROM n");
    refused(
        &file_with_view("sum", "system_day", &sum),
        Duration::ZERO,
        &systems,
        "longer than 30 s; the file",
    );
}

/// The start of a query with endless rows `n`.
const ENDLESS: &str = "WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n) SELECT";
const NO_TIME_LIMIT: Duration = Duration::from_secs(u32::MAX as u64);

#[cfg(unix)]
#[test]
fn pipes_in_place_of_scores_are_refused() {
    for suffix in ["", "-journal", "-wal"] {
        let file = ScoresFile::new("pipe");
        if !suffix.is_empty() {
            drop(file.open());
        }
        let pipe = format!("{}{suffix}", file.0.display());
        // The journal may be an empty file.
        drop(fs::remove_file(&pipe));
        let made = std::process::Command::new("mkfifo").arg(&pipe).status().expect("mkfifo");
        assert!(made.success());
        for opened in [ScoreStore::open(&file.0), ScoreStore::open_read_only(&file.0)] {
            let error = format!("{:#}", opened.err().expect("refused"));
            assert!(error.contains("not a regular file") && error.contains("scores.db"), "{error}");
        }
    }
}

#[test]
fn two_servers_starting_at_once_create_one_file() {
    let file = ScoresFile::new("twice");
    let mut store = file.open();
    store.add_round(&round(1, "Multi1", &[("Kirk", 1)])).expect("kept");
    // The second server has also seen an empty file.
    store.create().expect("made already");
    assert_eq!(names(&store, ALL, StandingOrder::Points).len(), 1);
}

#[test]
fn write_protected_file_is_refused() {
    let file = ScoresFile::new("protected");
    drop(file.open());
    // SQLite opens a protected file like this. The test does not change rights, because root may write
    // everything.
    let protected =
        Connection::open_with_flags(&file.0, OpenFlags::SQLITE_OPEN_READ_ONLY).expect("a database");
    let error = ScoreStore::prepare_for_writing(protected, &file.0).err().expect("refused");
    assert!(error.to_string().contains("write-protected") && !is_temporary(&error), "{error:#}");
}

#[test]
fn read_only_store_creates_and_changes_no_file() {
    let file = ScoresFile::new("read");
    let error = format!("{:#}", ScoreStore::open_read_only(&file.0).err().expect("the file does not exist"));
    assert!(error.contains("scores.file"), "{error}");
    assert!(!file.0.exists());
    fs::write(&file.0, "").expect("written");
    assert!(
        format!("{:#}", ScoreStore::open_read_only(&file.0).err().expect("empty"))
            .contains("no round has been stored")
    );
    let mut writer = file.open();
    writer.add_round(&round(1, "Multi1", &[("Kirk", 1)])).expect("kept");
    let mut reader = ScoreStore::open_read_only(&file.0).expect("scores");
    assert!(reader.add_round(&round(1, "Multi1", &[("Kirk", 1)])).is_err());
    writer.add_round(&round(2, "Multi1", &[("Kirk", 1)])).expect("a reader does not block the writer");
    assert_eq!(names(&reader, ALL, StandingOrder::Points), [("Kirk".to_owned(), 2, 2)]);
}
