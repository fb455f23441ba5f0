//! Tests the position of findings: at the datagram that they are about, in every format.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::process::Command;
use std::{env, fs};

use bcnet_lab::{RunOptions, Scenario, World, capture_datagrams};
use bcnet_transport::cipher;
use serde_json::Value;

use crate::captures::{
    RAW, TestPacket, datagrams, inspect, pcap, session, test_directory, without_locations,
};
use crate::run::{ProcessOutput, bcnet};

/// Findings by packet; findings without a packet have the key 0.
type FindingsByPacket = BTreeMap<u64, Vec<String>>;

/// Returns a battle of stock engines with packet loss.
pub(crate) fn battle(seconds: f64, loss: f64) -> Vec<TestPacket> {
    let text = include_str!("../../../bcnet-lab/scenarios/battle-loss5.toml");
    let duration = format!("duration = {seconds:.1}");
    let text = text.replace("duration = 600.0", &duration).replace("loss = 0.05", &format!("loss = {loss}"));
    let scenario = Scenario::parse(&text).expect("a scenario");
    let ciphered = |mut bytes: Vec<u8>| {
        cipher::encrypt(&mut bytes);
        bytes
    };
    let datagrams =
        capture_datagrams(&scenario, &RunOptions { seed: Some(7), ..RunOptions::default() }, 1 << 20);
    let packet = |(meta, bytes): (bcnet_lab::DatagramMeta, Vec<u8>)| TestPacket {
        at: meta.now.as_micros() as f64 / 1e6,
        from: World::address(meta.from),
        to: World::address(meta.to),
        bytes: ciphered(bytes),
    };
    datagrams.into_iter().map(packet).collect()
}

/// Returns the findings, which follow their datagram.
fn findings_in_json(lines: &[Value]) -> FindingsByPacket {
    let (mut found, mut last) = (FindingsByPacket::new(), 0);
    for line in lines {
        let packet = line["packet"].as_u64();
        let Some(name) = line["finding"].as_str() else {
            last = packet.expect("a number");
            continue;
        };
        assert!(packet.is_none_or(|packet| packet == last), "behind packet {last}: {line}");
        found.entry(packet.unwrap_or(0)).or_default().push(name.into());
    }
    found
}

fn findings_in_csv(text: &str) -> FindingsByPacket {
    let mut found = FindingsByPacket::new();
    for row in text.lines().skip(1) {
        let cells: Vec<&str> = row.split(',').collect();
        let (packet, names) = (cells[0].parse().unwrap_or(0), cells[14].split_whitespace());
        found.entry(packet).or_default().extend(names.map(str::to_owned));
    }
    found
}

/// Returns the findings below each packet in text. Findings that share a line are separated.
fn findings_in_text(text: &str) -> FindingsByPacket {
    let (mut found, mut last) = (FindingsByPacket::new(), 0);
    for line in text.lines() {
        let packet = line.split_whitespace().next().and_then(|number| number.parse().ok());
        let Some((_, finding)) = line.split_once(" ! ").filter(|_| !line.contains("> ")) else {
            last = packet.expect("a number");
            continue;
        };
        assert_eq!(packet, Some(last), "{line}");
        found.entry(last).or_default().extend(expand_grouped_finding(finding));
    }
    found
}

/// Expands a grouped finding: `10.0.0.1:5: 3 stale ACKs: game 7 9-10` contains three.
fn expand_grouped_finding(grouped: &str) -> Vec<String> {
    let (by, what) = grouped.split_once(": ").expect("the side");
    let group = what.split_once(": ").and_then(|(head, ids)| {
        let (count, title) = head.split_once(' ')?;
        Some((count.parse::<usize>().ok()?, title, ids))
            .filter(|_| TITLES.iter().any(|(_, known)| *known == title))
    });
    let Some((count, title, ids)) = group else { return vec![grouped.into()] };
    let (mut channel, mut each) = ("", Vec::new());
    for word in ids.split(' ') {
        if ["control", "game"].contains(&word) {
            channel = word;
            continue;
        }
        let (head, range) =
            word.split_once('/').map_or((String::new(), word), |(seq, parts)| (format!("{seq}/"), parts));
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let [first, last] = [first, last].map(|number| number.parse::<u16>().expect("a number"));
        each.extend((first..=last).map(|number| format!("{by}: {title}: {channel} {head}{number}")));
    }
    assert_eq!(each.len(), count, "{grouped}");
    each
}

/// Returns the expected findings in text. Findings of one kind and side at a packet share a line.
fn expected_in_text(lines: &[Value]) -> FindingsByPacket {
    let mut groups: BTreeMap<(u64, &str, &str), Vec<&Value>> = BTreeMap::new();
    let mut found = FindingsByPacket::new();
    for line in lines.iter().filter(|line| line.get("finding").is_some()) {
        let packet = line["packet"].as_u64().expect("a packet");
        let kind = line["cause"].as_str().or_else(|| line["finding"].as_str()).expect("a name");
        let title = TITLES.iter().find(|(name, _)| *name == kind).map_or(kind, |(_, title)| title);
        groups.entry((packet, line["by"].as_str().expect("an address"), title)).or_default().push(line);
    }
    for ((packet, by, title), group) in groups {
        let each = group.iter().map(|line| match line["seq"].as_u64() {
            Some(seq) if group.len() > 1 => {
                let part = line["part"].as_u64().map(|part| format!("/{part}")).unwrap_or_default();
                format!("{by}: {title}: {} {seq}{part}", line["channel"].as_str().expect("a channel"))
            }
            _ => format!("{by}: {}", line["text"].as_str().expect("words")),
        });
        found.entry(packet).or_default().extend(each);
    }
    found
}

/// The titles of several findings in text, by their name or cause.
const TITLES: [(&str, &str); 6] = [
    ("stale_ack", "stale ACKs"),
    ("repeated_ack", "messages acknowledged repeatedly"),
    ("duplicate_delivery", "messages delivered twice"),
    ("ack_lost", "retransmissions, ACK lost"),
    ("ack_late", "retransmissions, ACK late"),
    ("ack_never_sent", "retransmissions, no ACK sent"),
];

/// Returns the expected comment of each packet.
fn expected_comments(lines: &[Value]) -> Vec<String> {
    let mut comments: Vec<Vec<String>> = Vec::new();
    for line in lines {
        let Some(text) = line.get("finding").and_then(|_| line["text"].as_str()) else {
            comments.push(Vec::new());
            continue;
        };
        let by = line["by"].as_str().expect("an address");
        let text = if line["packet"].is_null() { format!("{by}: {text}") } else { text.into() };
        comments.last_mut().expect("behind a packet").push(text);
    }
    comments.into_iter().map(|texts| texts.join("; ")).collect()
}

fn sorted(mut found: FindingsByPacket) -> FindingsByPacket {
    found.values_mut().for_each(|names| names.sort());
    found.retain(|_, names| !names.is_empty());
    found
}

#[test]
fn findings_appear_at_their_datagram_in_every_format() {
    let bytes = pcap(&battle(120.0, 0.1), RAW);
    let json = inspect(&bytes, &["--json"]).json();
    let expected = sorted(findings_in_json(&json));
    let count = |name: &str| expected.values().flatten().filter(|other| *other == name).count();
    assert!(count("retransmission") > 50 && count("repeated_ack") > 50 && count("stale_ack") > 500);
    assert_eq!(sorted(findings_in_csv(&inspect(&bytes, &["--csv"]).stdout)), expected);
    assert_eq!(sorted(findings_in_text(&inspect(&bytes, &[]).stdout)), sorted(expected_in_text(&json)));
    let written = test_directory("places").join("out.pcapng");
    let out = written.to_str().expect("UTF-8");
    assert_eq!(inspect(&bytes, &["--write", out]).stdout, "");
    let copy = bcnet(&["inspect", out, "--json"], b"");
    let comments = |run: &ProcessOutput| -> Vec<String> {
        let text = |entry: &Value| entry["comment"].as_str().unwrap_or_default().to_owned();
        datagrams(run).iter().map(text).collect()
    };
    assert!(comments(&copy) == expected_comments(&json), "{:?}", &comments(&copy)[..20]);
    // Datagrams and findings are the same, and comments do not accumulate.
    assert!(without_locations(&copy) == without_locations(&inspect(&bytes, &["--json"])));
    let again = written.with_file_name("again.pcapng");
    bcnet(&["inspect", out, "--write", again.to_str().expect("UTF-8")], b"");
    assert!(fs::read(&again).expect("written") == fs::read(&written).expect("written"));
    // A retransmitted message is in the datagram that the finding names.
    let messages: BTreeMap<u64, &Value> = json
        .iter()
        .filter(|line| line.get("messages").is_some())
        .map(|line| (line["packet"].as_u64().expect("a number"), line))
        .collect();
    for finding in json.iter().filter(|line| line["finding"] == "retransmission") {
        let datagram = messages[&finding["packet"].as_u64().expect("a number")];
        let repeats = |message: &Value| message["kind"] != "ack" && message["seq"] == finding["seq"];
        assert!(datagram["messages"].as_array().expect("messages").iter().any(repeats), "{finding}");
    }
    let acks: Vec<&Value> = json.iter().filter(|line| line["finding"] == "repeated_ack").collect();
    assert!(acks.iter().all(|ack| ack["seq"].is_u64() && ack["channel"].is_string()), "{}", acks[0]);
    // The summary has the same counts.
    let summary = inspect(&bytes, &["--summary"]).stdout;
    let counted: usize = summary
        .lines()
        .filter(|line| line.contains("  retransmissions, "))
        .map(|line| line.split_whitespace().next().expect("a number").replace(',', ""))
        .map(|number| number.parse::<usize>().expect("a number"))
        .sum();
    assert_eq!(counted, count("retransmission"), "{summary}");
}

/// The Parquet file has the same cells as the CSV table, which has each finding at its datagram.
#[cfg(feature = "parquet")]
#[test]
fn parquet_file_has_the_rows_of_the_table() {
    use parquet::file::reader::{FileReader, SerializedFileReader};
    use parquet::record::Field;

    let bytes = pcap(&battle(120.0, 0.1), RAW);
    let path = test_directory("parquet").join("out.parquet");
    let run = inspect(&bytes, &["--parquet", path.to_str().expect("UTF-8")]);
    assert_eq!((run.code, run.stdout.as_str(), run.stderr.as_str()), (0, "", ""));
    let cell = |field: &Field| match field {
        Field::Null => String::new(),
        Field::TimestampMicros(micros) => format!("{}.{:06}", micros / 1_000_000, micros % 1_000_000),
        Field::Str(text) => text.clone(),
        number => number.to_string(),
    };
    let reader = SerializedFileReader::new(fs::File::open(&path).expect("a file")).expect("Parquet");
    let mut rows = vec![
        reader
            .metadata()
            .file_metadata()
            .schema()
            .get_fields()
            .iter()
            .map(|field| field.name().to_owned())
            .collect::<Vec<_>>(),
    ];
    rows.extend(
        reader
            .get_row_iter(None)
            .expect("rows")
            .map(|row| row.expect("a row").get_column_iter().map(|(_, field)| cell(field)).collect()),
    );
    let lines: Vec<String> = rows.iter().map(|row| row.join(",")).collect();
    let table = inspect(&bytes, &["--csv"]).stdout;
    assert!(lines.len() > 1 << 14, "only {} rows: the test needs more than one row group", lines.len());
    for (line, row) in lines.iter().zip(table.lines()) {
        assert_eq!(line, row);
    }
    assert_eq!(lines.len(), table.lines().count());
    let expected = sorted(findings_in_json(&inspect(&bytes, &["--json"]).json()));
    assert_eq!(sorted(findings_in_csv(&lines.join("\n"))), expected);
}

#[test]
fn annotated_capture_is_filtered_and_never_overwrites_input() {
    let directory = test_directory("comments");
    let [input, out] = ["in.pcap", "out.pcapng"].map(|name| directory.join(name));
    fs::write(&input, pcap(&session(), RAW)).expect("written");
    let [input, out] = [&input, &out].map(|path| path.to_str().expect("UTF-8"));
    let json = |flags: &[&str]| bcnet(&[&["inspect", input, "--json"], flags].concat(), b"");
    let run = json(&["--anomalies", "--write", out]);
    assert_eq!((run.code, run.stderr.as_str()), (0, ""));
    assert_eq!(run.stdout, json(&["--anomalies"]).stdout);
    let copy = bcnet(&["inspect", out, "--json"], b"");
    assert_eq!(datagrams(&copy).len(), datagrams(&run).len());
    let summary = bcnet(&["inspect", input, "--summary", "--write", out], b"");
    assert!(summary.stdout.contains("retransmissions, no ACK sent"), "{}", summary.stdout);
    let copy = bcnet(&["inspect", out, "--json"], b"");
    // GameSpy text is not ciphered.
    assert!(without_locations(&copy) == without_locations(&json(&[])), "{}", copy.stdout);
    for (flags, message) in [
        (&["--write", input][..], "is the input; name another file for --write"),
        (
            &["--report", &format!("{}/./in.pcap", directory.display())],
            "is the input; name another file for --report",
        ),
        (&["--write", "-"], "--write needs the name of a file"),
        (&[input, "--write", out], "--write is for one capture"),
        (&["--write", out, "--ladder"], "--write"),
    ] {
        let run = bcnet(&[&["inspect", input], flags].concat(), b"");
        assert_eq!((run.code, run.stdout.as_str()), (2, ""), "{flags:?}");
        assert!(run.stderr.contains(message), "{flags:?}: {}", run.stderr);
    }
}

/// Wireshark shows each comment at its frame.
#[test]
fn wireshark_shows_every_comment_at_its_frame() {
    if Command::new("tshark").arg("--version").output().is_err() {
        assert!(env::var_os("REQUIRE_TSHARK").is_none(), "tshark is required but not installed");
        let _ = io::stderr().write_all(b"\n*** SKIPPED: tshark is not installed ***\n");
        return;
    }
    let bytes = pcap(&battle(120.0, 0.1), RAW);
    let directory = test_directory("wireshark");
    let out = directory.join("out.pcapng");
    assert_eq!(inspect(&bytes, &["--write", out.to_str().expect("UTF-8")]).code, 0);
    let output = Command::new("tshark")
        .arg("-r")
        .arg(&out)
        .args(["-T", "fields", "-e", "frame.number", "-e", "frame.comment"])
        .env("WIRESHARK_CONFIG_DIR", &directory)
        .env("HOME", &directory)
        .output()
        .expect("tshark runs");
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    let shown: Vec<(usize, &str)> = text
        .lines()
        .map(|line| line.split_once('\t').expect("two columns"))
        .map(|(number, comment)| (number.parse().expect("a number"), comment))
        .collect();
    let expected = expected_comments(&inspect(&bytes, &["--json"]).json());
    assert!(expected.iter().filter(|comment| comment.contains(" sent for the 2nd time")).count() > 50);
    assert_eq!(shown.len(), expected.len());
    for (place, (number, comment)) in shown.into_iter().enumerate() {
        assert_eq!((number, comment), (place + 1, expected[place].as_str()));
    }
}
