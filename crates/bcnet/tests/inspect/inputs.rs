//! Tests several files and directories that are read as one capture.

use std::fs;
use std::path::Path;

use crate::captures::{
    ETHERNET, RAW, datagrams, inspect, path_str, pcap, pcapng, session, test_directory, without_locations,
};
use crate::compressed::{gzip, zstd};
use crate::run::bcnet;

/// Writes the session as three files of different formats, whose names are not in the order of time.
fn rotated_files(directory: &Path) -> [String; 3] {
    let packets = session();
    let (first, rest) = packets.split_at(5);
    let (second, third) = rest.split_at(9);
    let parts = [
        ("c.pcap", pcap(first, ETHERNET)),
        ("a.pcapng.gz", gzip(&pcapng(second, RAW))),
        ("b.zst", zstd(&pcap(third, RAW))),
    ];
    parts.map(|(name, bytes)| {
        let file = directory.join(name);
        fs::write(&file, bytes).expect("written");
        path_str(&file).to_owned()
    })
}

#[test]
fn several_files_are_read_as_one_capture_by_time() {
    let directory = test_directory("rotated");
    let [first, second, third] = rotated_files(&directory);
    let whole = inspect(&pcap(&session(), RAW), &["--json"]);
    let expected = without_locations(&whole);
    let orders = [[&third, &first, &second], [&first, &second, &third]];
    for order in orders.map(|order| order.map(String::as_str)) {
        let run = bcnet(&[&["inspect", "--json"][..], &order].concat(), b"");
        assert_eq!((run.code, run.stderr.as_str()), (0, ""));
        assert_eq!(without_locations(&run), expected);
        let files: Vec<_> = datagrams(&run).iter().map(|entry| entry["file"].clone()).collect();
        assert_eq!((files[4].clone(), files[5].clone()), (first.as_str().into(), second.as_str().into()));
        assert_eq!(files[14], third.as_str());
    }
    let merged = bcnet(&["inspect", "--merge", &second, &first, "--json"], b"");
    let both = inspect(&pcap(&session()[..14], RAW), &["--json"]);
    assert_eq!((merged.code, without_locations(&merged)), (0, without_locations(&both)));
    let run = bcnet(&["inspect", &third, &first, &second, "--summary"], b"");
    let expected_lines = [
        "3 files: 24 packets in ",
        &format!("  packets 1 to 5: {first}\n"),
        &format!("  packets 6 to 14: {second}\n"),
        &format!("  packets 15 to 24: {third}\n"),
        &format!(" of {third}, "),
    ];
    expected_lines.iter().for_each(|words| assert!(run.stdout.contains(words), "{words}: {}", run.stdout));
    let run = bcnet(&["inspect", &third, &first, &second], b"");
    for file in [&first, &second, &third] {
        assert_eq!(
            run.stdout.lines().filter(|line| **line == format!("{file}:")).count(),
            1,
            "{}",
            run.stdout
        );
    }
    // Two files are joined by default.
    let run = bcnet(&["inspect", &first, &second, "--summary"], b"");
    assert!(run.code == 2 && run.stderr.contains("--merge"), "{}", run.stderr);
}

#[test]
fn directory_reads_captures_and_lists_other_files() {
    let directory = test_directory("directory");
    rotated_files(&directory);
    fs::write(directory.join("README.txt"), "not a capture").expect("written");
    fs::create_dir(directory.join("more")).expect("a directory");
    let run = bcnet(&["inspect", path_str(&directory), "--json"], b"");
    let expected = without_locations(&inspect(&pcap(&session(), RAW), &["--json"]));
    assert_eq!((run.code, without_locations(&run)), (0, expected));
    let message =
        format!("bcnet: {}: skipped files that are not captures: README.txt, more\n", path_str(&directory));
    assert_eq!(run.stderr, message);
}

#[test]
fn directory_without_captures_is_reported() {
    let directory = test_directory("empty");
    for form in ["--json", "--summary", "--csv"] {
        let run = bcnet(&["inspect", path_str(&directory), form], b"");
        assert_eq!(run.code, 1, "{}", run.stderr);
        assert_eq!(
            run.stderr,
            format!("bcnet: {}: the directory contains no captures\n", path_str(&directory))
        );
    }
}

/// A damaged file of unknown format may be a capture, so it is reported.
#[test]
fn damaged_capture_in_a_directory_is_reported() {
    let directory = test_directory("damaged-directory");
    let [_, second, _] = rotated_files(&directory);
    let bytes = fs::read(&second).expect("a capture");
    fs::write(&second, &bytes[..bytes.len() / 2]).expect("written");
    fs::write(directory.join("d.gz"), &bytes[..14]).expect("written");
    fs::write(directory.join("notes.txt"), "nothing").expect("written");
    let run = bcnet(&["inspect", path_str(&directory), "--json"], b"");
    let shown = datagrams(&run).len();
    assert!(run.code == 1 && shown >= 15 && shown < session().len(), "{shown}: {}", run.stderr);
    let half = bytes.len() / 2;
    for message in [
        format!("bcnet: {}: skipped files that are not captures: notes.txt\n", path_str(&directory)),
        format!("{second}: damaged at byte {half}: gzip: the file ends too early, after "),
        "d.gz: damaged at byte 14: gzip: the file ends too early, after 0 decompressed bytes; 0 packets before it were read\n".to_owned(),
    ] {
        assert!(run.stderr.contains(&message), "{message}: {}", run.stderr);
    }
}

#[test]
fn one_bad_file_does_not_stop_the_others() {
    let directory = test_directory("one-wrong");
    let [first, second, third] = rotated_files(&directory);
    let mut bytes = fs::read(&first).expect("a capture");
    bytes.extend([0xFF; 30]);
    fs::write(&first, &bytes).expect("written");
    let missing = format!("{}/missing.pcap", path_str(&directory));
    let run = bcnet(&["inspect", "--json", &missing, &third, &second, &first], b"");
    let all = datagrams(&inspect(&pcap(&session(), RAW), &["--json"]));
    assert_eq!((run.code, datagrams(&run).len()), (1, all.len()), "{}", run.stderr);
    let at = bytes.len() - 30;
    let damage = format!(
        "bcnet: {first}: damaged at byte {at}: a packet claims a length of 4294967295 bytes; 5 packets before it were read\n"
    );
    assert!(run.stderr.contains(&damage), "{}", run.stderr);
    assert!(run.stderr.contains(&format!("bcnet: {missing}: ")), "{}", run.stderr);
}
