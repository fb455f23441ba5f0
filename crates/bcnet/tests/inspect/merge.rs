//! Tests captures that overlap in time and are read as one.

use std::fs;
use std::path::Path;

use serde_json::Value;

#[cfg(unix)]
use crate::captures::inspect_with_ulimit;
use crate::captures::{
    ETHERNET, RAW, TestPacket, chat, datagrams, inspect, path_str, pcap, pcapng, session, test_directory,
    without_locations,
};
use crate::compressed::{gzip, zstd};
use crate::run::bcnet;

/// Writes the packets into several captures, as `of` distributes them. Returns the paths.
fn write_split_captures<const N: usize>(
    directory: &Path,
    packets: &[TestPacket],
    of: impl Fn(usize) -> usize,
) -> [String; N] {
    let numbers: [usize; N] = std::array::from_fn(|number| number);
    numbers.map(|number| {
        let dealt = packets.iter().enumerate().filter(|(place, _)| of(*place) == number);
        let dealt: Vec<TestPacket> = dealt.map(|(_, packet)| packet.clone()).collect();
        let bytes = match number % 3 {
            0 => pcap(&dealt, ETHERNET),
            1 => gzip(&pcapng(&dealt, RAW)),
            _ => zstd(&pcap(&dealt, RAW)),
        };
        fs::create_dir_all(directory).expect("a directory");
        let file = directory.join(format!("{number}.pcap"));
        fs::write(&file, bytes).expect("written");
        path_str(&file).to_owned()
    })
}

/// Returns the session with different times for all packets.
fn distinct_session() -> Vec<TestPacket> {
    let mut packets = session();
    for place in 1..packets.len() {
        packets[place].at = packets[place].at.max(packets[place - 1].at + 1e-6);
    }
    packets
}

#[test]
fn overlapping_captures_are_merged_by_time() {
    let (directory, packets) = (test_directory("overlapping"), distinct_session());
    let expected = without_locations(&inspect(&pcap(&packets, RAW), &["--json"]));
    // Two interfaces; three files with mixed packets; one file whose time lies within another.
    let two = write_split_captures::<2>(&directory.join("two"), &packets, |place| place % 2);
    let three = write_split_captures::<3>(&directory.join("three"), &packets, |place| place * 7 / 3 % 3);
    let within = write_split_captures::<2>(&directory.join("within"), &packets, |place| {
        usize::from((6..15).contains(&place))
    });
    for files in [&two[..], &three, &within] {
        for is_reversed in [false, true] {
            let mut named: Vec<&str> = files.iter().map(String::as_str).collect();
            if is_reversed {
                named.reverse();
            }
            let run = bcnet(&[&["inspect", "--merge", "--json"][..], &named].concat(), b"");
            assert_eq!((run.code, run.stderr.as_str()), (0, ""), "{named:?}");
            assert_eq!(without_locations(&run), expected, "{named:?}");
        }
    }
    let run = bcnet(&["inspect", "--merge", "--json", &two[1], &two[0]], b"");
    for (place, datagram) in datagrams(&run).iter().enumerate() {
        assert_eq!(datagram["file"], two[place % 2].as_str(), "{datagram}");
    }
    let run = bcnet(&["inspect", "--merge", "--summary", &within[0], &within[1]], b"");
    let expected_lines = [
        format!("  15 of packets 1 to 24: {}\n", within[0]),
        format!("  packets 7 to 15: {}\n", within[1]),
        format!("first: packet 18 at byte 583 of {}, ", within[0]),
    ];
    expected_lines.iter().for_each(|words| assert!(run.stdout.contains(words), "{words}: {}", run.stdout));
    let json = bcnet(&["inspect", "--merge", "--summary", "--json", &within[0], &within[1]], b"").json();
    let files = serde_json::json!([
        { "file": within[0], "first": 1, "last": 24, "packets": 15 },
        { "file": within[1], "first": 7, "last": 15, "packets": 9 },
    ]);
    assert_eq!(json[0]["files"], files);
    // The text names each file once, at its first packet.
    let text = bcnet(&["inspect", "--merge", &two[0], &two[1]], b"").stdout;
    let names: Vec<&str> = text.lines().filter(|line| line.ends_with(".pcap:")).collect();
    assert_eq!(names, [format!("{}:", two[0]), format!("{}:", two[1])]);
}

#[test]
fn equal_times_are_ordered_by_file_start() {
    let directory = test_directory("same-time");
    let packets: Vec<TestPacket> =
        (0..6).map(|number| chat(2, number, 1.0 + f64::from(number / 4))).collect();
    let [one, other] = write_split_captures::<2>(&directory, &packets, |place| place % 2);
    for order in [[&one, &other], [&other, &one]] {
        let run = bcnet(&["inspect", "--merge", "--json", order[0], order[1]], b"");
        let files: Vec<Value> = datagrams(&run).iter().map(|entry| entry["file"].clone()).collect();
        let [first, second] = order.map(String::as_str);
        assert_eq!(files, [first, first, second, second, first, second]);
    }
}

#[test]
fn file_with_backward_times_keeps_order_and_warns() {
    let directory = test_directory("backwards");
    let mut packets = distinct_session();
    let [one, other] = write_split_captures::<2>(&directory, &packets, |place| place % 2);
    // The third and the fourth packet of the first file are swapped.
    packets.swap(4, 6);
    let [spoiled, _] = write_split_captures::<2>(&directory.join("spoiled"), &packets, |place| place % 2);
    let run = bcnet(&["inspect", "--merge", "--json", &spoiled, &other], b"");
    assert_eq!(run.code, 0, "{}", run.stderr);
    let times: Vec<f64> = datagrams(&run)
        .iter()
        .filter(|entry| entry["file"] == spoiled.as_str())
        .map(|entry| entry["time"].as_f64().expect("a time"))
        .collect();
    let expected: Vec<f64> = packets.iter().step_by(2).map(|packet| packet.at).collect();
    assert!(times.iter().zip(&expected).all(|(time, at)| (time - at).abs() < 1e-6), "{times:?} {expected:?}");
    assert_eq!(times.len(), expected.len());
    let is_back = |entry: &Value| (entry["time"].as_f64().expect("a time") - packets[6].at).abs() < 1e-6;
    let back = datagrams(&run).into_iter().find(is_back).expect("it is there");
    let message = format!(
        "bcnet: {spoiled}: 1 packet is out of order, first packet {} at byte {}; the file is read in its own order\n",
        back["packet"], back["offset"]
    );
    assert_eq!(run.stderr, message);
    assert_eq!(bcnet(&["inspect", "--merge", "--json", &one, &other], b"").stderr, "");
}

/// Each file begins before any other ends.
#[test]
fn too_many_overlapping_files_are_read_with_a_warning() {
    const FILES: usize = 70;
    let directory = test_directory("crowd");
    let chat = |number: usize| chat(2, u16::try_from(number).expect("small"), 1.0 + number as f64 / 100.0);
    let packets: Vec<TestPacket> = (0..2 * FILES).map(chat).collect();
    let files = write_split_captures::<FILES>(&directory, &packets, |place| place % FILES);
    let named: Vec<&str> = files.iter().map(String::as_str).collect();
    let run = bcnet(&[&["inspect", "--json"][..], &named].concat(), b"");
    assert_eq!((run.code, datagrams(&run).len()), (1, 2 * FILES), "{}", run.stderr);
    let message = "bcnet: 70 files: more than 64 files overlap in time; 6 were opened late, so some packets are out of order\n";
    assert_eq!(run.stderr, message);
    let run = bcnet(&[&["inspect", "--json"][..], &named[..64]].concat(), b"");
    assert_eq!((run.code, run.stderr.as_str(), datagrams(&run).len()), (0, "", 128));
}

/// Rotated captures are open one at a time.
#[cfg(unix)]
#[test]
fn non_overlapping_files_are_opened_one_at_a_time() {
    const FILES: usize = 40;
    let directory = test_directory("one-by-one");
    let packets: Vec<TestPacket> =
        (0..80_u16).map(|number| chat(2, number, 1.0 + f64::from(number))).collect();
    write_split_captures::<FILES>(&directory, &packets, |place| place / 2);
    let run = inspect_with_ulimit("-n 20", &directory);
    assert_eq!((run.code, run.stderr.as_str(), datagrams(&run).len()), (0, "", 80));
}
