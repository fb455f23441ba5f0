//! Scores that survive the server: `bcnet stats` and the scores file.

use std::fs;

use rusqlite::Connection;
use serde_json::Value;

use crate::player::{LoopbackPlayer, join_two};
use crate::server::{ServerProcess, TestDirectory};

const SCORES_ENABLED: [&str; 4] = ["--set", "scores.file=scores.db", "--set", "scores.shortest=0s"];

/// Runs `bcnet stats` on the scores of a directory. Returns the exit code and the output.
fn stats(directory: &TestDirectory, args: &[&str]) -> (Option<i32>, String) {
    let output =
        directory.bcnet(&[&["stats", "--file", "scores.db"], args].concat()).output().expect("it runs");
    let text = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8(text).expect("text"))
}

fn stats_json(directory: &TestDirectory, what: &str) -> Vec<Value> {
    let (code, text) = stats(directory, &[what, "--format", "json"]);
    assert_eq!(code, Some(0), "{text}");
    let json: Value = serde_json::from_str(&text).expect("JSON");
    json[what].as_array().expect("a list").clone()
}

/// Waits until the file has this number of rounds. Each query starts a process, so this is no busy loop.
fn wait_for_kept_rounds(server: &ServerProcess, rounds: u64) {
    let kept = || server.ctl_json(&["status"])["scores"]["kept"].as_u64().expect("a number");
    assert!((0..3_000).any(|_| kept() >= rounds), "{}", server.ctl_json(&["status"])["scores"]);
}

#[test]
fn stats_work_while_the_server_runs_and_afterwards() {
    let server = ServerProcess::start(&SCORES_ENABLED);
    let _players = join_two(server.address(), ["Alice", "=1+1"]);
    server.ctl_json(&["restart"]);
    wait_for_kept_rounds(&server, 1);
    let (code, table) = stats(&server.directory, &[]);
    assert!(code == Some(0) && table.starts_with("#  NAME"), "{table}");
    assert!(table.contains("Alice") && table.contains("=1+1"), "{table}");
    let (_, csv) = stats(&server.directory, &["players", "--format", "csv", "--sort", "name"]);
    let lines: Vec<&str> = csv.lines().collect();
    assert_eq!(lines[0], "place,name,points,kills,deaths,rounds,played_s,last");
    assert!(lines[1].starts_with("1,'=1+1,0,0,0,1,") && lines[2].starts_with("2,Alice,0,0,0,1,"), "{csv}");

    server.stop();
    let (status, directory) = server.wait_for_exit();
    assert_eq!(status.code(), Some(0));
    let rounds = stats_json(&directory, "rounds");
    let reasons: Vec<_> = rounds.iter().map(|round| (&round["round"], &round["reason"])).collect();
    assert_eq!(reasons, [(&2.into(), &"empty".into()), (&1.into(), &"restart".into())]);
    assert_eq!(rounds[0]["players"].as_array().map(Vec::len), Some(2), "{rounds:?}");
    let systems = stats_json(&directory, "systems");
    assert_eq!((&systems[0]["system"], &systems[0]["rounds"]), (&"Multi1".into(), &2.into()));
    assert_eq!(systems[0]["participants"], 4);
    assert_eq!(stats(&directory, &["players", "--since", "2999-01-01"]).1, "no players\n");
    assert_eq!(stats(&directory, &["rounds", "--limit", "1"]).1.lines().count(), 2);
}

#[test]
fn player_can_be_deleted_while_the_server_runs() {
    let server = ServerProcess::start(&SCORES_ENABLED);
    let _players = join_two(server.address(), ["Unforgettable", "Bob"]);
    server.ctl_json(&["restart"]);
    wait_for_kept_rounds(&server, 1);
    let directory = &server.directory;
    let (code, text) = stats(directory, &["forget", "Unforgettable"]);
    assert!(code == Some(2) && text.contains("--yes"), "{text}");
    let (code, text) = stats(directory, &["forget", "Nobody", "--yes"]);
    assert!(code == Some(1) && text.contains("no player has the name \"Nobody\""), "{text}");
    assert_eq!(stats_json(directory, "players").len(), 2);
    let (code, text) = stats(directory, &["forget", "Unforgettable", "--yes"]);
    assert_eq!((code, text.as_str()), (Some(0), "deleted \"Unforgettable\" from 1 round\n"));
    let bytes = fs::read(directory.path("scores.db")).expect("a file");
    assert!(!bytes.windows(13).any(|part| part == b"Unforgettable"));
    let players = stats_json(directory, "players");
    assert_eq!((players.len(), &players[0]["name"]), (1, &"Bob".into()));
    server.ctl_json(&["restart"]);
    wait_for_kept_rounds(&server, 2);
    assert_eq!(
        stats_json(directory, "players").len(),
        2,
        "the player is still in the game, and is counted again"
    );
}

/// The first deletion could not rewrite the file, so that a copy of the name was left.
#[test]
fn second_deletion_removes_leftovers_of_the_first() {
    let server = ServerProcess::start(&SCORES_ENABLED);
    let _players = join_two(server.address(), ["Unforgettable", "Bob"]);
    server.ctl_json(&["restart"]);
    wait_for_kept_rounds(&server, 1);
    server.stop();
    let directory = server.wait_for_exit().1;
    let database = Connection::open(directory.path("scores.db")).expect("a database");
    database.pragma_update(None, "secure_delete", false).expect("set");
    for table in ["result", "player_day", "player"] {
        let column = if table == "player" { "id" } else { "player" };
        let sql = format!(
            "DELETE FROM {table} WHERE {column} = (SELECT id FROM player WHERE name = 'Unforgettable')"
        );
        assert!(database.execute(&sql, []).expect(&sql) > 0);
    }
    drop(database);
    let has_name = || {
        let bytes = fs::read(directory.path("scores.db")).expect("a file");
        bytes.windows(13).any(|part| part == b"Unforgettable")
    };
    assert!(has_name());
    let (code, text) = stats(&directory, &["forget", "Unforgettable", "--yes"]);
    assert!(code == Some(1) && text.contains("no player has the name"), "{text}");
    assert!(!has_name());
}

#[test]
fn unwritten_rounds_at_shutdown_are_logged() {
    let server = ServerProcess::start(&SCORES_ENABLED);
    let _players = join_two(server.address(), ["Alice", "Bob"]);
    let database = Connection::open(server.directory.path("scores.db")).expect("a database");
    database.execute_batch("BEGIN EXCLUSIVE").expect("locked");
    server.stop();
    server.wait_for_log(&["event=\"scores_unfinished\""]);
    assert!(server.wait_for_exit().0.success());
}

#[test]
fn stats_output_does_not_overwrite_the_scores() {
    let server = ServerProcess::start(&SCORES_ENABLED);
    let before = fs::read(server.directory.path("scores.db")).expect("a file");
    for format in ["csv", "parquet"] {
        let (code, text) = stats(&server.directory, &["--format", format, "--output", "./scores.db"]);
        assert!(code == Some(2) && text.contains("is the input; name another file for --output"), "{text}");
    }
    assert_eq!(fs::read(server.directory.path("scores.db")).expect("a file"), before);
}

/// Kills the server while rounds end in quick succession.
#[test]
fn killed_server_leaves_complete_rounds_only() {
    let mut directory = TestDirectory::new();
    let mut before = 0;
    for rounds in [1, 7, 3, 12, 5] {
        let server = ServerProcess::start_in(directory, &SCORES_ENABLED, 1);
        let _players = join_two(server.address(), ["Alice", "Bob"]);
        for _ in 0..rounds {
            server.ctl_json(&["restart"]);
        }
        let kept = server.ctl_json(&["status"])["scores"]["kept"].as_i64().expect("a number");
        directory = server.kill();
        let found = count_consistent_rounds(&directory);
        assert!((before + kept..=before + rounds).contains(&found), "{found} after {before}, {kept} kept");
        before = found;
    }
    assert!(before > 0);
    assert_eq!(stats_json(&directory, "players")[0]["rounds"], before);
}

/// Returns the number of rounds. Asserts that each has all its players and is in all totals.
fn count_consistent_rounds(directory: &TestDirectory) -> i64 {
    let database = Connection::open(directory.path("scores.db")).expect("a database");
    let integrity: String =
        database.query_row("PRAGMA integrity_check", [], |row| row.get(0)).expect("checked");
    assert_eq!(integrity, "ok");
    let number = |sql: &str| database.query_row(sql, [], |row| row.get::<_, i64>(0)).expect(sql);
    let rounds = number("SELECT count(*) FROM round");
    assert_eq!(number("SELECT count(*) FROM result"), 2 * rounds);
    assert_eq!(number("SELECT coalesce(sum(rounds), 0) FROM player"), 2 * rounds);
    assert_eq!(number("SELECT coalesce(sum(rounds), 0) FROM player_day"), 2 * rounds);
    assert_eq!(number("SELECT coalesce(sum(rounds), 0) FROM system_day"), rounds);
    rounds
}

#[test]
fn scores_of_a_newer_version_are_refused() {
    let server = ServerProcess::start(&SCORES_ENABLED);
    let directory = server.kill();
    let database = Connection::open(directory.path("scores.db")).expect("a database");
    database.pragma_update(None, "user_version", 99).expect("set");
    drop(database);
    let output = directory.bcnet(&[&["serve", "--bind", "127.0.0.1"], &SCORES_ENABLED[..]].concat()).output();
    let output = output.expect("it runs");
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{error}");
    assert!(error.contains("bcnet: scores.file: scores.db: written by a newer bcnet (format 99"), "{error}");
    let (code, text) = stats(&directory, &[]);
    assert!(code == Some(2) && text.contains("newer bcnet"), "{text}");
}

#[test]
fn unreadable_scores_are_reported_with_the_file() {
    let server = ServerProcess::start(&SCORES_ENABLED);
    let directory = server.kill();
    let database = Connection::open(directory.path("scores.db")).expect("a database");
    database.execute_batch("DROP TABLE player; DROP TABLE round; DROP TABLE system_day").expect("dropped");
    for what in ["players", "rounds", "systems"] {
        let (code, text) = stats(&directory, &[what]);
        assert!(code == Some(2) && text.starts_with("bcnet: scores.db: no such table"), "{text}");
    }
}

#[test]
fn missing_scores_are_reported_with_the_expected_path() {
    let directory = TestDirectory::new();
    let (code, text) = stats(&directory, &[]);
    assert!(code == Some(2) && text.contains("scores.db: no scores here; a server stores them"), "{text}");
    assert!(!directory.path("scores.db").exists());
    fs::write(directory.path("bcnet.toml"), "[server]\n").expect("written");
    let output = directory.bcnet(&["stats"]).output().expect("it runs");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(2) && error.contains("bcnet.toml: no `scores.file`"), "{error}");
    fs::write(directory.path("bcnet.toml"), "[scores]\nfile = \"kept.db\"\n").expect("written");
    let output = directory.bcnet(&["stats"]).output().expect("it runs");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(2) && error.contains("kept.db: no scores here"), "{error}");
}

/// Players who left before the end of a round are in its results.
#[test]
fn players_who_left_early_are_counted() {
    let server = ServerProcess::start(&SCORES_ENABLED);
    let [mut alice, mut bob] = join_two(server.address(), ["Alice", "Bob"]);
    bob.leave();
    server.wait_for_log(&["event=\"left\"", "player=\"Bob\""]);
    alice.leave();
    server.wait_for_log(&["event=\"round_ended\"", "reason=\"empty\"", "Alice", "Bob"]);
    let _late = LoopbackPlayer::join(server.address(), "Late");
    wait_for_kept_rounds(&server, 1);
    let rounds = stats_json(&server.directory, "rounds");
    assert_eq!(rounds.len(), 1);
    assert_eq!(rounds[0]["players"].as_array().map(Vec::len), Some(2), "{rounds:?}");
}

/// Numbers are numbers, names are text, and a list is one text.
#[cfg(feature = "parquet")]
#[test]
fn parquet_file_has_the_rows_of_the_table() {
    use parquet::file::reader::{FileReader, SerializedFileReader};

    let server = ServerProcess::start(&SCORES_ENABLED);
    let _players = join_two(server.address(), ["Alice", "Bob"]);
    server.ctl_json(&["restart"]);
    wait_for_kept_rounds(&server, 1);
    for (what, rows, first) in
        [("players", 2, "{place: 1, name: \"Alice\", points: 0,"), ("rounds", 1, "{ended: ")]
    {
        let args = [what, "--format", "parquet", "--output", "out.parquet"];
        assert_eq!(stats(&server.directory, &args), (Some(0), String::new()));
        let file = fs::File::open(server.directory.path("out.parquet")).expect("a file");
        let reader = SerializedFileReader::new(file).expect("a Parquet file");
        let found: Vec<String> =
            reader.get_row_iter(None).expect("rows").map(|row| row.expect("a row").to_string()).collect();
        assert!(found.len() == rows && found[0].starts_with(first), "{found:?}");
    }
    let (code, text) = stats(&server.directory, &["--format", "parquet"]);
    assert!(code == Some(2) && text.contains("--output"), "{text}");
}

#[cfg(not(feature = "parquet"))]
#[test]
fn missing_parquet_support_is_explained() {
    let server = ServerProcess::start(&SCORES_ENABLED);
    let (code, text) = stats(&server.directory, &["--format", "parquet", "--output", "out.parquet"]);
    assert!(code == Some(2) && text.contains("--features parquet"), "{text}");
    assert!(!server.directory.path("out.parquet").exists());
}

/// A small file can describe a table without an end, which SQLite would sort in memory.
#[test]
fn stats_of_a_hostile_file_end_with_one_line() {
    let server = ServerProcess::start(&SCORES_ENABLED);
    server.stop();
    let (_, directory) = server.wait_for_exit();
    let file = Connection::open(directory.path("scores.db")).expect("opened");
    let view = "DROP TABLE system_day; CREATE VIEW system_day AS \
                WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n) \
                SELECT n || hex(zeroblob(10000)) AS system, 1 AS day, 1 AS rounds, 1 AS seconds, 1 AS players FROM n";
    file.execute_batch(view).expect("replaced");
    drop(file);
    let (code, error) = stats(&directory, &["systems"]);
    let expected = "bcnet: scores.db: reading takes more than 64 MiB of memory; the file is damaged or was not \
                    written by bcnet: restore it from a backup\n";
    assert_eq!((code, error.as_str()), (Some(2), expected));
}
