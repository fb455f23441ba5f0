//! Where findings stand: at the datagram that they are about, in every form.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::process::Command;
use std::{env, fs};

use bcnet_lab::{Options, Scenario, World, capture};
use bcnet_transport::cipher;
use serde_json::Value;

use crate::captures::{Packet, RAW, datagrams, directory, inspect, pcap, session, without_offsets};
use crate::run::{Run, bcnet};

/// What was found, by packet; under 0 what no packet shows.
type Found = BTreeMap<u64, Vec<String>>;

/// A battle of stock engines in which datagrams are lost.
pub(crate) fn battle(seconds: f64, loss: f64) -> Vec<Packet> {
    let text = include_str!("../../../bcnet-lab/scenarios/battle-loss5.toml");
    let duration = format!("duration = {seconds:.1}");
    let text = text.replace("duration = 600.0", &duration).replace("loss = 0.05", &format!("loss = {loss}"));
    let scenario = Scenario::parse(&text).expect("a scenario");
    let ciphered = |mut bytes: Vec<u8>| {
        cipher::encrypt(&mut bytes);
        bytes
    };
    let datagrams = capture(&scenario, &Options { seed: Some(7), ..Options::default() }, 1 << 20);
    let packet = |(meta, bytes): (bcnet_lab::DatagramMeta, Vec<u8>)| Packet {
        at: meta.now.as_micros() as f64 / 1e6,
        from: World::address(meta.from),
        to: World::address(meta.to),
        bytes: ciphered(bytes),
    };
    datagrams.into_iter().map(packet).collect()
}

/// Returns what was found, each behind its datagram.
fn in_json(lines: &[Value]) -> Found {
    let (mut found, mut last) = (Found::new(), 0);
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

fn in_table(text: &str) -> Found {
    let mut found = Found::new();
    for row in text.lines().skip(1) {
        let cells: Vec<&str> = row.split(',').collect();
        let (packet, names) = (cells[0].parse().unwrap_or(0), cells[14].split_whitespace());
        found.entry(packet).or_default().extend(names.map(str::to_owned));
    }
    found
}

/// Returns how many findings stand in text below each packet.
fn in_text(text: &str) -> BTreeMap<u64, usize> {
    let (mut found, mut last) = (BTreeMap::new(), 0);
    for line in text.lines() {
        let packet = line.split_whitespace().next().and_then(|number| number.parse().ok());
        let Some((_, told)) = line.split_once(" ! ").filter(|_| !line.contains("> ")) else {
            last = packet.expect("a number");
            continue;
        };
        assert_eq!(packet, Some(last), "{line}");
        let told = told.split_once(": ").expect("who").1;
        // Several share a line that ends with their numbers; the text of one may begin with a number as well.
        let is_group = [": game ", ": control "].iter().any(|numbers| told.contains(numbers));
        let count = told.split_once(' ').filter(|_| is_group).and_then(|(count, _)| count.parse().ok());
        *found.entry(last).or_default() += count.unwrap_or(1);
    }
    found
}

/// Returns the remark that each packet is to have.
fn remarks(lines: &[Value]) -> Vec<String> {
    let mut remarks: Vec<Vec<String>> = Vec::new();
    for line in lines {
        let Some(text) = line.get("finding").and_then(|_| line["text"].as_str()) else {
            remarks.push(Vec::new());
            continue;
        };
        let by = line["by"].as_str().expect("an address");
        let text = if line["packet"].is_null() { format!("{by}: {text}") } else { text.into() };
        remarks.last_mut().expect("behind a packet").push(text);
    }
    remarks.into_iter().map(|texts| texts.join("; ")).collect()
}

fn sorted(mut found: Found) -> Found {
    found.values_mut().for_each(|names| names.sort());
    found.retain(|_, names| !names.is_empty());
    found
}

#[test]
fn every_finding_stands_at_its_datagram_in_every_form() {
    let bytes = pcap(&battle(120.0, 0.1), RAW);
    let json = inspect(&bytes, &["--json"]).json();
    let expected = sorted(in_json(&json));
    let count = |name: &str| expected.values().flatten().filter(|other| *other == name).count();
    assert!(count("retransmission") > 50 && count("repeated_ack") > 50 && count("stale_ack") > 500);
    assert_eq!(sorted(in_table(&inspect(&bytes, &["--csv"]).stdout)), expected);
    let counts: BTreeMap<u64, usize> =
        expected.iter().map(|(packet, names)| (*packet, names.len())).collect();
    assert_eq!(in_text(&inspect(&bytes, &[]).stdout), counts);
    let written = directory("places").join("out.pcapng");
    let out = written.to_str().expect("UTF-8");
    assert_eq!(inspect(&bytes, &["--write", out]).stdout, "");
    let copy = bcnet(&["inspect", out, "--json"], b"");
    let comments = |run: &Run| -> Vec<String> {
        let text = |entry: &Value| entry["comment"].as_str().unwrap_or_default().to_owned();
        datagrams(run).iter().map(text).collect()
    };
    assert!(comments(&copy) == remarks(&json), "{:?}", &comments(&copy)[..20]);
    // Datagrams and findings are the same, and remarks do not pile up.
    assert!(without_offsets(&copy) == without_offsets(&inspect(&bytes, &["--json"])));
    let again = written.with_file_name("again.pcapng");
    bcnet(&["inspect", out, "--write", again.to_str().expect("UTF-8")], b"");
    assert!(fs::read(&again).expect("written") == fs::read(&written).expect("written"));
    // What is sent again is in the datagram that is said to repeat it.
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
    // A summary counts the same.
    let summary = inspect(&bytes, &["--summary"]).stdout;
    let counted: usize = summary
        .lines()
        .filter(|line| line.contains("  retransmissions, "))
        .map(|line| line.split_whitespace().next().expect("a number").replace(',', ""))
        .map(|number| number.parse::<usize>().expect("a number"))
        .sum();
    assert_eq!(counted, count("retransmission"), "{summary}");
}

#[test]
fn a_capture_with_remarks_is_of_what_was_chosen_and_never_of_itself() {
    let directory = directory("remarks");
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
    assert!(without_offsets(&copy) == without_offsets(&json(&[])), "{}", copy.stdout);
    for (flags, said) in [
        (&["--write", input][..], "is the input; name another file for --write"),
        (&["--write", "-"], "--write needs the name of a file"),
        (&[input, "--write", out], "--write is for one capture"),
        (&["--write", out, "--ladder"], "--write"),
    ] {
        let run = bcnet(&[&["inspect", input], flags].concat(), b"");
        assert_eq!((run.code, run.stdout.as_str()), (2, ""), "{flags:?}");
        assert!(run.stderr.contains(said), "{flags:?}: {}", run.stderr);
    }
}

/// Wireshark shows the remarks, each at its frame.
#[test]
fn wireshark_shows_every_remark_at_its_frame() {
    if Command::new("tshark").arg("--version").output().is_err() {
        assert!(env::var_os("REQUIRE_TSHARK").is_none(), "tshark is not installed, and it is required");
        let _ = io::stderr().write_all(b"\n*** SKIPPED: tshark is not installed ***\n");
        return;
    }
    let bytes = pcap(&battle(120.0, 0.1), RAW);
    let directory = directory("wireshark");
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
    let expected = remarks(&inspect(&bytes, &["--json"]).json());
    assert!(expected.iter().filter(|remark| remark.contains(" sent for the 2nd time")).count() > 50);
    assert_eq!(shown.len(), expected.len());
    for (place, (number, comment)) in shown.into_iter().enumerate() {
        assert_eq!((number, comment), (place + 1, expected[place].as_str()));
    }
}
