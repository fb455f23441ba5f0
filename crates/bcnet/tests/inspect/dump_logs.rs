//! Tests the comparison of dump logs of the original engine with captures.

use std::fs;

use crate::captures::test_directory;
use crate::run::{ProcessOutput, bcnet};

/// Compares a log with the capture of the first prediction, whose host joins like the recorded one.
fn compare_with_capture(name: &str, log: &str, flags: &[&str]) -> ProcessOutput {
    let directory = test_directory(name);
    let (capture, path) = (directory.join("lab.pcapng"), directory.join("dump.log"));
    let capture = capture.to_str().expect("UTF-8");
    let run = bcnet(&["lab", "run", "p01", "--write", capture, "--at", "host"], "");
    assert_eq!(run.code, 0, "{}", run.stderr);
    fs::write(&path, log).expect("a file");
    let path = path.to_str().expect("UTF-8");
    bcnet(&[&["inspect", capture, "--dump-log", path], flags].concat(), "")
}

/// A log as recorded: with comments, with omitted entries, without fields that are zero.
const RECORDED: &str = "\
Some other line of the log
[11:37:29.975] peer=1 retxQ=0 ackOutQ=2
  ack[0] seq=0x0000 frag=0 below32=1 retx=1
  ack[1] seq=0x0000 frag=0 below32=0 retx=1
[11:37:53.596] peer=2 retxQ=1 ackOutQ=4
  retx[0] seq=0x0002 frag=0 rel=1 retx=0 intv=1.00
  ack[0] seq=0x0000 below32=1 retx=1
  ack[1] seq=0x0001 below32=1 retx=1
  ack[2] seq=0x0000 below32=0 retx=1
  ack[3] seq=0x0001 below32=0 retx=1
[11:37:56.315] peer=2 retxQ=0 ackOutQ=10
  ack[0] seq=0x0000 frag=0 below32=1 retx=4      \u{2190} stale (from connect)
  ack[1] seq=0x0001 frag=0 below32=1 retx=4
  ...
  ack[4] seq=0x0002 frag=1 idx=0 retx=3
  ack[5] seq=0x0002 frag=1 idx=1 retx=3
  ... 4 more entries
[11:37:53.606] HandleACK: ack seq=0x0002 below32=0 | retxQ=1
";

#[test]
fn recorded_dumps_match_the_predicted_capture() {
    let run = compare_with_capture("recorded", RECORDED, &["--dump-offset", "-41873.546"]);
    assert_eq!((run.code, run.stderr.as_str()), (0, ""), "{}", run.stdout);
    let verdicts: Vec<&str> = run.stdout.lines().skip(1).collect();
    assert_eq!(
        verdicts,
        [
            "  line  time         peer retxQ ackOutQ",
            "     2  11:37:29.975    1     0       2  the host's entry for itself is not on the wire",
            "     5  11:37:53.596    2     1       4  equal",
            "    11  11:37:56.315    2     0      10  equal",
            "dumps: 3, 2 equal, 0 different, 1 not comparable",
            "HandleACK lines: 1, 1 equal, 0 different",
        ]
    );
    let json =
        compare_with_capture("recorded-json", RECORDED, &["--dump-offset", "-41873.546", "--json"]).json();
    let verdicts: Vec<&str> = json.iter().filter_map(|line| line["verdict"].as_str()).collect();
    assert_eq!(verdicts, ["not_comparable", "equal", "equal", "equal"]);
}

#[test]
fn differences_are_reported_entry_by_entry() {
    let log = RECORDED.replace("idx=1 retx=3", "idx=1 retx=2").replace("| retxQ=1", "| retxQ=0");
    let log = log.replace("ack[3] seq=0x0001", "ack[3] seq=0x0009");
    let run = compare_with_capture("different", &log, &["--dump-offset", "-41873.546"]);
    assert_eq!(run.code, 1, "{}", run.stdout);
    for part in [
        "     5  11:37:53.596    2     1       4  different, packet 9\n        ack seq=0x0009 below32=0 only in the log\n        ack seq=0x0001 below32=0 only in the capture\n",
        "    11  11:37:56.315    2     0      10  different, packet 37\n        ack seq=0x0002 idx=1 retx=2 in the log, 3 in the capture\n",
        "    18  11:37:53.606 HandleACK seq=0x0002 below32=0  different, packet 10\n        retxQ=0 in the log, 1 in the capture\n",
        "dumps: 3, 0 equal, 2 different, 1 not comparable\n",
    ] {
        assert!(run.stdout.contains(part), "{part}\n{}", run.stdout);
    }
}

/// The readable lines are shown too.
#[test]
fn inconsistent_log_is_reported_with_line_numbers() {
    let log = "\
[0.050] peer=2 retxQ=1 ackOutQ=4
  retx[0] seq=0x0002 frag=0 rel=1 retx=0 intv=1.00
  ack[0] seq=0x0000 below32=1 retx=1
  ack[2] seq=0x0000 below32=0 retx=1
[2.770] peer=2 retxQ=0 ackOutQ=10
  ack[0] seq=0x0000 frag=0 below32=1 retx=4
  ack[1] seq=0x0000 frag=0 below32=1 retx=4
  ack[2] seq=0x0002 frag=1 below32=0 retx=3
  ... 9 more entries
[1.000] peer=2 retxQ=0 ackOutQ=x
  ack[0] seq=0x0000 frag=0 below32=1 retx=2
[5.490] peer=2 retxQ=0 ackOutQ=11
  ack[0] seq=0x0000 frag=0 below32=1 retx=8
  ...
[25:00:00.000] peer=2 retxQ=0 ackOutQ=0
";
    let run = compare_with_capture("damaged", log, &[]);
    assert_eq!(run.code, 1, "{}", run.stdout);
    let damage: Vec<&str> = run.stdout.lines().filter(|line| line.contains("damaged: ")).collect();
    assert_eq!(
        damage,
        [
            "     1  damaged: ackOutQ=4, but 2 ack entries follow",
            "     4  damaged: ack[2] where ack[1] is expected",
            "     7  damaged: ack[1] is already in the queue",
            "     8  damaged: frag=1 without idx",
            "     9  damaged: 9 more after ack[2] do not make 10",
            "    10  damaged: [1.000] is earlier than the previous record",
            "    10  damaged: ackOutQ=x is not a valid number",
            "    15  damaged: [25:00:00.000] is not a time",
        ]
    );
    assert!(run.stdout.contains("    12  00:00:05.490    2     0      11  equal\n"), "{}", run.stdout);
    let none = compare_with_capture("nothing", "nothing of the kind\n", &[]);
    assert_eq!(none.code, 2);
    assert!(none.stderr.ends_with("not a dump log: no line with retxQ= or HandleACK:\n"), "{}", none.stderr);
    let outside = compare_with_capture("outside", RECORDED, &[]);
    assert_eq!(outside.code, 2, "{}", outside.stdout);
    let error = "from 11:37:29.975 to 11:37:53.606, is outside the capture, which lasts from 00:00:00.000 to 00:00:08.451, 8.451 s; align the clocks with --dump-offset SECONDS\n";
    assert!(outside.stderr.ends_with(error), "{}", outside.stderr);
}

/// The printed output of a capture equals the capture when it is read as a log.
#[test]
fn printed_queues_can_be_read_as_a_dump_log() {
    let directory = test_directory("again");
    let capture = directory.join("lab.pcapng");
    let capture = capture.to_str().expect("UTF-8");
    bcnet(&["lab", "run", "starvation", "--write", capture, "--at", "host"], "");
    let log = directory.join("dump.log");
    let printed = bcnet(&["inspect", capture, "--queues", "--every", "0.7"], "").stdout;
    let hook = bcnet(&["inspect", capture, "--handle-acks"], "").stdout;
    fs::write(&log, printed + &hook).expect("a file");
    let run = bcnet(&["inspect", capture, "--dump-log", log.to_str().expect("UTF-8")], "");
    assert_eq!(run.code, 0, "{}", run.stdout);
    assert!(run.stdout.contains(" equal, 0 different\nHandleACK lines: "), "{}", run.stdout);
}
