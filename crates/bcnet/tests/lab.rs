//! `bcnet lab` as a user runs it.

mod run;

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

use run::ProcessOutput;

/// The dump of a stock server three seconds after a client joined matches the recorded dump, except for its
/// clock.
#[test]
fn dump_text_matches_the_recorded_dump() {
    let run = lab(&["dump", "p01", "--at", "2.77"]);
    let recorded = "\
# host
[2.770] peer=2 retxQ=0 ackOutQ=10
  ack[0] seq=0x0000 frag=0 below32=1 retx=4
  ack[1] seq=0x0001 frag=0 below32=1 retx=4
  ack[2] seq=0x0000 frag=0 below32=0 retx=4
  ack[3] seq=0x0001 frag=0 below32=0 retx=4
  ack[4] seq=0x0002 frag=1 idx=0 below32=0 retx=3
  ack[5] seq=0x0002 frag=1 idx=1 below32=0 retx=3
  ack[6] seq=0x0002 frag=1 idx=2 below32=0 retx=3
  ack[7] seq=0x0003 frag=0 below32=0 retx=3
  ack[8] seq=0x0004 frag=0 below32=0 retx=3
  ack[9] seq=0x0005 frag=0 below32=0 retx=2
";
    assert_eq!((run.code, run.stdout.as_str(), run.stderr.as_str()), (0, recorded, ""));
}

#[test]
fn dump_json_has_the_documented_form() {
    let run = lab(&["dump", "p01", "--at", "0.05", "--json"]);
    let ack = |seq: u32, channel: &str| json!({"seq": seq, "channel": channel, "part": null, "retx": 1});
    let expected = json!({
        "t": 0.05, "node": "host", "peer": 2,
        "retx": [{
            "seq": 2, "channel": "game", "part": null, "retx": 0, "interval": 1.0, "age": 0.02,
            "handling": {"reliable": true, "urgent": false, "aggregate": true, "mode": 1},
        }],
        "acks": [ack(0, "control"), ack(1, "control"), ack(0, "game"), ack(1, "game")],
        "first": [], "first_count": 0,
    });
    assert_eq!(run.json(), [expected]);
}

/// Dumps show a host's entry for itself, and unsent messages, which no recorded dump has.
#[test]
fn dump_shows_the_own_entry_and_all_three_queues() {
    let run = lab(&["dump", "p07-own-entry", "--at", "600"]);
    let own = "\
# host
[600.000] peer=1 retxQ=0 ackOutQ=2
  ack[0] seq=0x0000 frag=0 below32=1 retx=3
  ack[1] seq=0x0000 frag=0 below32=0 retx=3
";
    assert_eq!((run.code, run.stdout.as_str()), (0, own), "{}", run.stderr);
    let run = lab(&["dump", "three-queues", "--at", "1.01"]);
    let first = "  first[0] seq=0x0001 frag=0 below32=0 rel=1 pri=0 agg=1 mode=1 age=0.01\n";
    assert!(
        run.stdout.contains("retxQ=1 ackOutQ=2 firstQ=29\n") && run.stdout.contains(first),
        "{}",
        run.stdout
    );
    let [dump] = &lab(&["dump", "three-queues", "--at", "1.01", "--json"]).json()[..] else {
        panic!("one dump")
    };
    assert_eq!((dump["first"].as_array().map(Vec::len), &dump["first_count"]), (Some(29), &json!(29)));
}

#[test]
fn expectations_flag_prints_every_expectation() {
    let run = lab(&["run", "static-checks", "--expectations"]);
    let met: Vec<&str> = run.stdout.lines().filter(|line| line.starts_with("  met")).collect();
    assert_eq!((run.code, met.len()), (0, 9), "{}", run.stdout);
    assert!(
        met[5].contains("ACK matching (0x6B64D0)") && met[5].ends_with("expected 0, measured 0"),
        "{}",
        met[5]
    );
}

#[test]
fn run_json_prints_one_object_per_dump_and_per_run() {
    let run = lab(&["run", "p17", "--json"]);
    assert_eq!(run.code, 0, "{}", run.stderr);
    let objects = run.json();
    let total = objects.last().expect("a run");
    assert_eq!(
        (total["scenario"].as_str(), total["engine"].as_str(), total["seed"].as_u64()),
        (Some("p17"), Some("stock"), Some(1))
    );
    let figures = ["useful_acks", "useless_acks", "ack_bytes", "retransmits", "delivered", "expectations"];
    let values = figures.map(|figure| total[figure].as_u64().unwrap_or_else(|| panic!("{figure}")));
    assert_eq!(values[..4], [100, 800, 3600, 0]);
    assert!(total["comparisons"].as_u64() > Some(0) && total["delay_ms"]["p99"].as_f64() > Some(0.0));
    assert!(
        total["ack_queue"]["mean"].as_f64() > Some(0.0) && total["retx_queue"]["peak"].as_u64() == Some(1)
    );
    assert_eq!(total["missed"], json!([]));
    let bcnet = lab(&["run", "p17", "--json", "--engine", "bcnet", "--seed", "9"]).json();
    assert_eq!(
        (&bcnet[0]["useless_acks"], &bcnet[0]["comparisons"], &bcnet[0]["seed"]),
        (&json!(0), &Value::Null, &json!(9))
    );
}

#[test]
fn trace_prints_a_line_for_every_ack() {
    let run = lab(&["run", "p17", "--trace"]);
    let lines: Vec<&str> = run.stdout.lines().filter(|line| line.contains("HandleACK: ack seq=0x")).collect();
    assert_eq!(lines.len(), 900);
    assert!(lines.iter().filter(|line| line.contains("| retxQ=0")).count() > 500);
    assert!(run.stdout.contains("% of 900 ACKs arrived while no message was unacknowledged"));
}

#[test]
fn missed_expectation_prints_expected_and_measured_value() {
    let text = fs::read_to_string(root().join("crates/bcnet-lab/scenarios/p03.toml")).expect("there");
    let path = write_scratch_file("missed.toml", &text.replace("is = [8]", "is = [7]"));
    let run = lab(&["run", path.to_str().expect("UTF-8")]);
    assert_eq!(run.code, 1);
    assert!(
        run.stdout.contains("acks of host for peer 2 at 5.34: expected [7], measured [8]"),
        "{}",
        run.stdout
    );
    assert!(run.stdout.contains("2 of 3 expectations met"), "{}", run.stdout);
}

#[test]
fn scenario_error_names_file_and_line_before_any_run() {
    let path = write_scratch_file("mistake.toml", "title = \"t\"\nduration = 1\n[[nod]]\nname = \"a\"\n");
    let name = path.to_str().expect("UTF-8");
    let run = lab(&["run", "p03", name]);
    assert_eq!((run.code, run.stdout.as_str()), (2, ""));
    assert_eq!(run.stderr, format!("bcnet: {name}:3: unknown key `nod`; did you mean `node`?\n"));
    let run = lab(&["run", "p99"]);
    assert_eq!(run.code, 2);
    assert!(run.stderr.contains("p99: no such file and no such built-in scenario"), "{}", run.stderr);
    let near = lab(&["run", "p1"]).stderr;
    assert!(near.ends_with("; did you mean `p01`?\n"), "{near}");
    let run = lab(&["dump", "p03", "--at", "1e9"]);
    assert!(run.code == 2 && run.stderr.contains("lasts from 0 to 8 seconds"), "{}", run.stderr);
}

/// Every scenario of the project is built in, and `list` works without a scenario directory.
#[test]
fn list_prints_every_scenario_in_any_directory() {
    let elsewhere = write_scratch_file("empty/here", "");
    let built_in = lab_in(&["list"], elsewhere.parent().expect("a directory"));
    let names: BTreeSet<String> =
        built_in.stdout.lines().filter_map(|line| line.split(' ').next()).map(str::to_owned).collect();
    let files = fs::read_dir(root().join("crates/bcnet-lab/scenarios"))
        .expect("scenarios")
        .map(|file| file.expect("readable").path());
    let files: BTreeSet<String> =
        files.map(|path| path.file_stem().expect("named").to_string_lossy().into_owned()).collect();
    assert_eq!(names, files);
    assert_eq!(lab_in(&["list"], &root().join("crates/bcnet-lab")).stdout, built_in.stdout);
}

#[test]
fn compare_prints_and_plots_every_variant() {
    let page = write_scratch_file("compare.html", "");
    let args = ["compare", "deadlock-keepalives", "--vary", "gate=traffic,always", "--vary", "last_ack=9,1"];
    let run = lab(&[&args[..], &["--json", "--report", page.to_str().expect("UTF-8")]].concat());
    assert_eq!(run.code, 0, "{}", run.stderr);
    let [object] = &run.json()[..] else { panic!("one object") };
    let rows = object["scenarios"][0]["rows"].as_array().expect("rows");
    let names: Vec<_> = rows.iter().map(|row| row["variant"].as_str().expect("a name")).collect();
    let expected =
        ["traffic", "always"].map(|gate| [9, 1].map(|last| format!("gate={gate}, last_ack={last}")));
    assert_eq!(names, expected.concat());
    let bytes: Vec<_> = rows.iter().map(|row| row["figures"]["ACK_bytes"].as_f64().expect("bytes")).collect();
    assert_eq!(bytes, [36.0, 4.0, 36.0, 4.0], "nine sends or one");
    let html = fs::read_to_string(page).expect("written");
    assert_eq!(html.matches("<svg").count(), 5);
    assert!(html.contains("gate=always, last_ack=1") && !html.contains("http") && !html.contains("<script"));
    let table = lab(&args).stdout;
    assert!(names.iter().all(|name| table.matches(name).count() == 2), "{table}");
}

#[test]
fn compare_reports_invalid_arguments() {
    for (args, part) in [
        (
            &["deadlock", "--vary", "gat=always"][..],
            "--vary gat=always: scenarios/deadlock.toml: unknown key `gat`; did you mean `gate`?",
        ),
        (&["deadlock", "--vary", "gate=alway"], "unknown gate `alway`; did you mean `always`?"),
        (&["deadlock", "--vary", "hots.gate=always"], "unknown node `hots`; did you mean `host`?"),
        (&["deadlock", "--vary", "proxy=yes"], "`proxy` must be none, pass or heal"),
        (&["deadlock", "--vary", "gate"], "--vary gate: expected KEY=A,B"),
        (&["deadlock", "--vary", "gate=,"], "a value is empty"),
        (&["deadlock"], "deadlock: nothing to compare"),
        (&["cures", "--vary", "gate=always"], "a comparison has its own variants"),
        (&["cure", "--vary", "gate=always"], "did you mean `cures`?"),
        (&["deadlock", "--vary", "gate=always", "--seeds", "0"], "must be 1 to 1000"),
        (&["battle-day", "--vary", "gate=always", "--seeds", "1000"], "1000 runs would take about"),
    ] {
        let run = lab(&[&["compare"], args].concat());
        assert_eq!((run.code, run.stdout.as_str()), (2, ""), "{args:?}");
        assert!(run.stderr.contains(part), "{args:?}: {}", run.stderr);
    }
    let path = write_scratch_file(
        "comparison.toml",
        "title = \"t\"\nscenarios = [\"p99\"]\n[[variant]]\nname = \"a\"\n",
    );
    let run = lab(&["compare", path.to_str().expect("UTF-8")]);
    assert!(run.code == 2 && run.stderr.contains(":2: unknown built-in scenario `p99`"), "{}", run.stderr);
}

#[test]
fn run_writes_a_capture_and_a_page() {
    let (capture, page) = (write_scratch_file("run.pcapng", ""), write_scratch_file("run.html", ""));
    let (capture, page) = (capture.to_str().expect("UTF-8"), page.to_str().expect("UTF-8"));
    let run =
        lab(&["run", "battle-loss5", "--write", capture, "--report", page, "--window", "10..10.5", "--json"]);
    assert_eq!(run.code, 0, "{}", run.stderr);
    let sent: u64 = run.json()[0]["datagrams"].as_u64().expect("datagrams");
    let summary = inspect(&["--summary", capture]);
    assert!(summary.contains("10.0.0.1:22101") && summary.contains("10.0.0.4:22101"), "{summary}");
    let all =
        inspect(&["--json", capture]).lines().filter(|line| line.starts_with("{\"packet\":")).count() as u64;
    assert!(all >= sent, "{all} datagrams in the capture, {sent} sent in the experiment");
    let html = fs::read_to_string(page).expect("written");
    // Plots: the queues of four nodes, the delays, and the datagrams of the window.
    assert_eq!(html.matches("<svg").count(), 6);
    assert!(html.contains("Single datagrams") && html.contains(">kirk<") && html.contains("99 in a hundred"));
    assert!(html.ends_with("</main></body></html>\n") && !html.contains("http") && !html.contains("<script"));
    // A capture at one node has only its own datagrams, without those lost on the way to it.
    let at = lab(&["run", "battle-loss5", "--write", capture, "--at", "kirk"]);
    assert_eq!(at.code, 0, "{}", at.stderr);
    let own = inspect(&["--summary", capture]);
    assert!(own.contains("10.0.0.2:22101") && !own.contains("10.0.0.3:22101"), "{own}");
    for (args, part) in [
        (
            &["run", "p03", "--write", capture, "--at", "nobody"][..],
            "--at nobody: unknown node; known: host, client",
        ),
        (&["run", "p03", "p04", "--write", capture], "one scenario at a time"),
        (&["run", "p03", "--write", "/nowhere/x.pcapng"], "/nowhere/x.pcapng"),
        (&["run", "p03", "--report", page, "--window", "3..1"], "expected FROM..TO"),
    ] {
        let run = lab(args);
        assert!(run.code == 2 && run.stderr.contains(part), "{args:?}: {}", run.stderr);
    }
}

/// The page of a run plots the queues of all nodes. If there are too many, it names the number of omitted
/// nodes.
#[test]
fn run_page_plots_the_queues_of_every_node() {
    for (clients, drawn, left_out) in
        [(6, 7, None), (33, 32, Some("The queues of 2 more nodes are not drawn"))]
    {
        let mut text =
            String::from("title = \"Many\"\nduration = 1.0\n[[node]]\nname = \"host\"\nrole = \"host\"\n");
        for number in 0..clients {
            text += &format!("[[node]]\nname = \"client{number}\"\nrole = \"client\"\n");
        }
        let (file, page) =
            (write_scratch_file(&format!("many{clients}.toml"), &text), write_scratch_file("many.html", ""));
        let run = lab(&["run", file.to_str().expect("UTF-8"), "--report", page.to_str().expect("UTF-8")]);
        assert_eq!(run.code, 0, "{}", run.stderr);
        let html = fs::read_to_string(page).expect("written");
        assert_eq!(html.matches("<h2>Queues of ").count(), drawn);
        assert_eq!(html.matches("more nodes are not drawn").count(), usize::from(left_out.is_some()));
        assert!(left_out.is_none_or(|words| html.contains(words)));
    }
}

#[test]
fn growth_measures_every_cure() {
    let page = write_scratch_file("growth.html", "");
    let run = lab(&["growth", "--hours", "0.5", "--json", "--report", page.to_str().expect("UTF-8")]);
    assert_eq!(run.code, 0, "{}", run.stderr);
    let [object] = &run.json()[..] else { panic!("one object") };
    let rows = object["rows"].as_array().expect("rows");
    assert_eq!((rows[0]["variant"].as_str(), rows.len()), (Some("the original"), 11));
    let at = |row: usize, figure: &str| rows[row]["moments"][1][figure].as_u64().expect("a number");
    assert_eq!(rows[0]["moments"].as_array().map(Vec::len), Some(2), "2 and 30 minutes");
    // Seed 001 expects 600 entries after half an hour.
    assert!((10..70).contains(&at(0, "peak")) && at(0, "entries") <= at(0, "peak"));
    assert!(at(10, "ack_bytes") * 8 < at(0, "ack_bytes") && at(10, "comparisons") == 0);
    let html = fs::read_to_string(page).expect("written");
    assert_eq!(html.matches("<svg").count(), 3);
    let table = lab(&["growth", "--hours", "0.1"]).stdout;
    assert!(table.contains("seed 001 expects") && table.contains("forget after one"), "{table}");
    for (hours, part) in [("1000", "0.05 to 720"), ("720", "11 runs would take about")] {
        let run = lab(&["growth", "--hours", hours]);
        assert!(run.code == 2 && run.stderr.contains(part), "{}", run.stderr);
    }
}

/// A captured stock session gives the same figures when the stock engine replays it. bcnet delivers all of
/// it, too.
#[test]
fn replay_runs_a_captured_session_on_either_engine() {
    let (capture, page) = (write_scratch_file("replay.pcapng", ""), write_scratch_file("replay.html", ""));
    let (capture, page) = (capture.to_str().expect("UTF-8"), page.to_str().expect("UTF-8"));
    let recorded = lab(&["run", "battle", "--write", capture, "--json"]).json();
    let sent = recorded[0]["payloads"].as_u64().expect("payloads");
    let run = lab(&["replay", capture, "--delay", "0.05", "--loss", "0", "--json", "--report", page]);
    assert_eq!(run.code, 0, "{}", run.stderr);
    let [object] = &run.json()[..] else { panic!("one object") };
    assert_eq!(object["players"].as_array().map(Vec::len), Some(3));
    // A message may still be unsent when the run ends.
    assert!(object["payloads"].as_u64().is_some_and(|payloads| sent - payloads < 5), "{object}");
    let row =
        |place: usize, figure: &str| object["rows"][place]["figures"][figure].as_f64().expect("a number");
    let (captured, stock, bcnet) = (0, 1, 2);
    let share = row(stock, "ACK_bytes") / row(captured, "ACK_bytes");
    assert!((0.98..1.02).contains(&share), "{share}");
    assert!(row(bcnet, "ACK_bytes") * 8.0 < row(stock, "ACK_bytes"));
    assert_eq!((row(stock, "missing"), row(bcnet, "missing")), (0.0, 0.0));
    let html = fs::read_to_string(page).expect("written");
    assert_eq!(html.matches("<svg").count(), 3);
    // Without --delay and --loss, the command estimates both from the capture.
    let guess = lab(&["replay", capture, "--engine", "bcnet", "--json"]).json();
    let delay = guess[0]["delay"].as_f64().expect("a delay");
    assert!((0.05..0.09).contains(&delay) && guess[0]["loss"] == 0.0, "{delay}");
}

#[test]
fn replay_reports_unusable_captures() {
    let (text, empty) = (write_scratch_file("replay.txt", "hello\n"), write_scratch_file("empty.pcapng", ""));
    let (text, empty) = (text.to_str().expect("UTF-8"), empty.to_str().expect("UTF-8"));
    // The run sends only keepalives.
    assert_eq!(lab(&["run", "p15", "--write", empty]).code, 0);
    for (args, part) in [
        (&[text][..], "neither pcap nor pcapng nor a packet log"),
        (&[empty], "the capture has no game traffic between a host and a player"),
        (&["/nowhere/x.pcapng"], "/nowhere/x.pcapng"),
        (&[empty, "--loss", "1"], "no game traffic"),
    ] {
        let run = lab(&[&["replay"], args].concat());
        assert!(
            run.code == 2 && run.stdout.is_empty() && run.stderr.contains(part),
            "{args:?}: {}",
            run.stderr
        );
    }
}

/// The stock engine hosts on a real socket: a player joins and leaves, and its ACKs stay in the outbox.
#[test]
fn stock_engine_hosts_on_a_real_socket() {
    // A deleted peer lingers for long, so that its ACKs stay in the outbox on a slow machine, too.
    let host = Command::new(env!("CARGO_BIN_EXE_bcnet"))
        .args(["lab", "host", "--listen", "127.0.0.1:0", "--set", "gate=never", "--set", "linger=600"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut host = KillOnDrop(host.expect("the program runs"));
    let host = &mut host.0;
    let mut errors = BufReader::new(host.stderr.take().expect("piped")).lines();
    let first = errors.next().expect("a line").expect("UTF-8");
    assert!(first.contains("faults included"), "{first}");
    let address = first.split(' ').find(|word| word.starts_with("127.0.0.1:")).expect("where it listens");
    let join = Command::new(env!("CARGO_BIN_EXE_bcnet")).args(["join", address, "--check"]).output();
    let join: ProcessOutput = join.expect("the program runs").into();
    assert_eq!(join.code, 0, "{}{}", join.stdout, join.stderr);
    // The ACKs of the deleted peer are still in the outbox. A line on standard input prints the queues.
    let mut news =
        BufReader::new(host.stdout.take().expect("piped")).lines().map(|line| line.expect("UTF-8"));
    assert!(news.by_ref().any(|line| line.contains("Left")), "the host reports no departure");
    writeln!(host.stdin.as_mut().expect("piped")).expect("written");
    assert!(news.by_ref().any(|line| line.contains("ackOutQ=")), "the host prints no queues");
    assert!(
        news.by_ref().any(|line| line.contains("ack[0] seq=0x0000 frag=0 below32=1 retx=")),
        "the dump has no ACK"
    );
}

/// A child process that is killed at the end of the test.
struct KillOnDrop(Child);

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

#[test]
fn live_commands_reject_public_addresses_and_unknown_keys() {
    for (args, part) in [
        (&["host", "--listen", "0.0.0.0:0"][..], "listens there only with --public"),
        (
            &["host", "--listen", "127.0.0.1:0", "--set", "gat=always"],
            "--set: unknown key `gat`; did you mean `gate`?",
        ),
        (&["host", "--listen", "127.0.0.1:0", "--set", "gate"], "--set gate: expected KEY=VALUE"),
        (&["host", "--listen", "127.0.0.1:0", "--dump-every", "0"], "--dump-every"),
        (&["join", "127.0.0.1:1", "--set", "role=nobody"], "--set role: not a key of an engine"),
    ] {
        let run = lab(args);
        assert!(run.code == 2 && run.stderr.contains(part), "{args:?}: {} {}", run.code, run.stderr);
    }
}

/// A client that never joins reports its last step.
#[test]
fn join_without_an_answer_reports_how_far_it_came() {
    let run = lab(&["join", "127.0.0.1:1", "--seconds", "0.1"]);
    assert_eq!((run.code, run.stdout.as_str()), (1, ""));
    assert!(run.stderr.ends_with("bcnet: stopped while connecting\n"), "{}", run.stderr);
}

/// A tour of the user's own scenarios reports only those.
#[test]
fn tour_of_custom_scenarios_has_its_own_table_and_page() {
    let text = "title = \"Mine\"\nduration = 5\nsettle = 2\n\
        node = [{ name = \"a\", role = \"host\" }, { name = \"b\", role = \"client\" }]\n\
        send = [{ at = 1, from = \"a\", size = 20 }]\n";
    let path = write_scratch_file("own/scenarios/mine.toml", text);
    let directory = path.parent().and_then(Path::parent).expect("a directory");
    let run = lab_in(&["tour", "--report", "page.html"], directory);
    assert_eq!(run.code, 0, "{}", run.stderr);
    assert!(run.stdout.contains("mine") && !run.stdout.contains("fault"), "{}", run.stdout);
    let html = fs::read_to_string(directory.join("page.html")).expect("written");
    assert!(html.contains("<h2>Mine</h2>") && !html.contains("two faults"), "{html}");
    assert_eq!(html.matches("<svg").count(), 1);
}

/// The tour meets all expectations. Its report is complete, self-contained, and has the figures of the table.
#[test]
fn tour_writes_one_table_and_one_report() {
    let report = write_scratch_file("tour.html", "");
    let run = lab(&["tour", "--json", "--report", report.to_str().expect("UTF-8")]);
    assert_eq!(run.code, 0, "{}{}", run.stdout, run.stderr);
    let [tour] = &run.json()[..] else { panic!("one object") };
    let rows = tour["rows"].as_array().expect("rows");
    assert!(rows.len() >= 30 && tour["missed"] == 0 && tour["expectations"].as_u64() >= Some(150));
    assert!(rows.iter().all(|row| row["stock"].is_number() && row["bcnet"].is_number()), "{rows:#?}");
    let html = fs::read_to_string(report).expect("written");
    assert_eq!(html.matches("<svg").count(), 6);
    assert!(html.ends_with("</main></body></html>\n") && !html.contains("http") && !html.contains("<script"));
    for row in rows {
        assert!(
            html.contains(&format!("<code>{}</code>", row["scenario"].as_str().expect("named"))),
            "{row}"
        );
    }
    let battle = rows.iter().find(|row| row["scenario"] == "battle").expect("a battle");
    let (stock, bcnet) = (battle["stock"].as_f64().expect("bytes"), battle["bcnet"].as_f64().expect("bytes"));
    assert!(bcnet / stock <= 0.12, "{battle}");
    let seeds = |name: &str| rows.iter().find(|row| row["scenario"] == name).map(|row| &row["seeds"]);
    let pooled = ["battle", "battle-loss5", "battle-day"].map(seeds);
    assert_eq!(
        pooled,
        [Some(&json!(20)), Some(&json!(20)), Some(&json!(1))],
        "a run of a day needs only one seed"
    );
    let stock = stock.round() as u64;
    let thousands = format!("{},{:03}", stock / 1000, stock % 1000);
    assert!(html.contains(&thousands), "{thousands}");
}

fn inspect(args: &[&str]) -> String {
    let command = Command::new(env!("CARGO_BIN_EXE_bcnet")).arg("inspect").args(args).output();
    String::from_utf8(command.expect("the program runs").stdout).expect("UTF-8")
}

fn lab(args: &[&str]) -> ProcessOutput {
    lab_in(args, Path::new(env!("CARGO_TARGET_TMPDIR")))
}

fn lab_in(args: &[&str], directory: &Path) -> ProcessOutput {
    let command =
        Command::new(env!("CARGO_BIN_EXE_bcnet")).arg("lab").args(args).current_dir(directory).output();
    command.expect("the program runs").into()
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Writes a file in the directory of this test.
fn write_scratch_file(name: &str, text: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("lab").join(name);
    fs::create_dir_all(path.parent().expect("a directory")).expect("made");
    fs::write(&path, text).expect("written");
    path
}
