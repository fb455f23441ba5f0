//! Where captures come from: packed files, several files as one, directories, dumps in texts.

use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::path::Path;

use flate2::Compression;
use flate2::write::GzEncoder;
use ruzstd::encoding::{CompressionLevel, compress_to_vec};
use serde_json::Value;

use crate::captures::{ETHERNET, Packet, RAW, datagrams, directory, inspect, ip, pcap, pcapng, session};
use crate::run::{Run, bcnet};

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut packer = GzEncoder::new(Vec::new(), Compression::default());
    packer.write_all(bytes).expect("memory");
    packer.finish().expect("memory")
}

fn zstd(bytes: &[u8]) -> Vec<u8> {
    compress_to_vec(bytes, CompressionLevel::Fastest)
}

/// A frame that says nothing.
fn skippable() -> Vec<u8> {
    [&[0x5A, 0x2A, 0x4D, 0x18, 5, 0, 0, 0][..], b"hello"].concat()
}

fn text(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

#[test]
fn packed_captures_show_the_same_whatever_they_are_called() {
    for capture in [pcap(&session(), RAW), pcapng(&session(), ETHERNET)] {
        let expected = inspect(&capture, &["--json"]);
        assert_eq!((expected.code, expected.stderr.as_str()), (0, ""));
        let (one, other) = capture.split_at(capture.len() / 3);
        let packed = [
            gzip(&capture),
            [gzip(one), gzip(&[]), gzip(other)].concat(),
            zstd(&capture),
            [skippable(), zstd(one), skippable(), zstd(other)].concat(),
        ];
        for (place, packed) in packed.iter().enumerate() {
            let run = inspect(packed, &["--json"]);
            assert_eq!((run.code, run.stderr.as_str()), (0, ""), "{place}");
            assert!(run.stdout == expected.stdout, "{place}: {}", run.stdout);
        }
    }
    // What is inside can be any input.
    let log = fs::read(crate::run::path("crates/bcnet/tests/packet-log.txt")).expect("a log");
    assert_eq!(inspect(&gzip(&log), &["--json"]).stdout, inspect(&log, &["--json"]).stdout);
    let hex = bcnet(&["inspect", "--hex", "-", "--plain"], zstd(b"01 01 02\n"));
    assert!(hex.code == 0 && hex.stdout.contains("keepalive"), "{}{}", hex.stdout, hex.stderr);
}

#[test]
fn what_comes_before_the_damage_of_a_packed_capture_is_shown() {
    let capture = pcap(&session(), ETHERNET);
    let whole = datagrams(&inspect(&capture, &["--json"]));
    let (one, other) = capture.split_at(capture.len() / 2);
    let frames = [gzip(one), gzip(other)].map(|part| part.len());
    for (name, packed, first) in [
        ("gzip", [gzip(one), gzip(other)].concat(), frames[0]),
        ("zstd", [zstd(one), zstd(other)].concat(), zstd(one).len()),
    ] {
        for cut in (12..packed.len() - 1).step_by(packed.len() / 19) {
            let run = inspect(&packed[..cut], &["--json"]);
            let shown = datagrams(&run);
            assert!(whole.starts_with(&shown), "{name} cut at {cut}");
            assert!(
                cut <= first || shown.len() >= whole.len() / 2 - 2,
                "{name} cut at {cut}: {}",
                shown.len()
            );
            if cut == first {
                continue;
            }
            let code = if shown.is_empty() && run.code == 2 { 2 } else { 1 };
            assert_eq!(run.code, code, "{name} cut at {cut}: {}", run.stderr);
            let place = run.stderr.split("damaged at byte ").nth(1).and_then(|rest| rest.split(':').next());
            let place: usize = place.expect(&run.stderr).parse().expect("a place");
            assert!(place <= cut, "{name}: {place} is behind {cut}");
            assert!(run.stderr.contains(&format!(": {name}: ")), "{}", run.stderr);
        }
        let mut wrong = packed.clone();
        let last = wrong.len() - 5;
        wrong[last] ^= 1;
        let run = inspect(&wrong, &["--json"]);
        assert_eq!(run.code, 1, "{name}: {}", run.stderr);
        assert!(run.stderr.contains("damaged at byte "), "{}", run.stderr);
        let trailing = [packed, b"something else".to_vec()].concat();
        let run = inspect(&trailing, &["--json"]);
        assert_eq!((run.code, datagrams(&run).len()), (1, whole.len()), "{name}: {}", run.stderr);
    }
}

/// A file of some kilobytes that becomes 256 MB, in the middle of a capture, is read in less memory than that.
#[cfg(unix)]
#[test]
fn a_bomb_is_unpacked_in_bounded_memory() {
    const REPEATED: u32 = 128 * 1024;
    const BLOCKS: u32 = 2048;
    let capture = pcapng(&session(), RAW);
    let length = (12 + REPEATED * BLOCKS).to_le_bytes();
    let head = [&capture[..28], &0x0BAD_u32.to_le_bytes(), &length].concat();
    let mut packed = vec![0x28, 0xB5, 0x2F, 0xFD, 0, 0x58];
    let raw = |packed: &mut Vec<u8>, bytes: &[u8], last: u32| {
        let header = u32::try_from(bytes.len()).expect("small") << 3 | last;
        packed.extend(&header.to_le_bytes()[..3]);
        packed.extend(bytes);
    };
    raw(&mut packed, &head, 0);
    for _ in 0..BLOCKS {
        packed.extend(&(REPEATED << 3 | 1 << 1).to_le_bytes()[..3]);
        packed.push(0);
    }
    raw(&mut packed, &[&length, &capture[28..]].concat(), 1);
    let file = directory("bomb").join("bomb.zst");
    fs::write(&file, &packed).expect("written");
    let limited =
        format!("ulimit -v 131072; exec '{}' inspect '{}' --json", env!("CARGO_BIN_EXE_bcnet"), text(&file));
    let run = std::process::Command::new("sh").args(["-c", &limited]).output().expect("a shell");
    let run = Run::from(run);
    assert_eq!((run.code, run.stderr.as_str()), (0, ""));
    assert_eq!(datagrams(&run).len(), session().len());
}

/// The session in three files of different kinds, which are named so that their names are in no order.
fn rotated(directory: &Path) -> [String; 3] {
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
        text(&file).to_owned()
    })
}

/// Without what tells where in which file something is.
fn anywhere(run: &Run) -> Vec<Value> {
    let mut lines = run.json();
    for line in &mut lines {
        let line = line.as_object_mut().expect("an object");
        line.retain(|name, _| !["file", "offset", "comment"].contains(&name.as_str()));
    }
    lines
}

#[test]
fn several_files_are_one_capture_in_the_order_of_time() {
    let directory = directory("rotated");
    let [first, second, third] = rotated(&directory);
    let whole = inspect(&pcap(&session(), RAW), &["--json"]);
    let expected = anywhere(&whole);
    let orders = [[&third, &first, &second], [&first, &second, &third]];
    for order in orders.map(|order| order.map(String::as_str)) {
        let run = bcnet(&[&["inspect", "--json"][..], &order].concat(), b"");
        assert_eq!((run.code, run.stderr.as_str()), (0, ""));
        assert_eq!(anywhere(&run), expected);
        let files: Vec<_> = datagrams(&run).iter().map(|entry| entry["file"].clone()).collect();
        assert_eq!((files[4].clone(), files[5].clone()), (first.as_str().into(), second.as_str().into()));
        assert_eq!(files[14], third.as_str());
    }
    let merged = bcnet(&["inspect", "--merge", &second, &first, "--json"], b"");
    let both = inspect(&pcap(&session()[..14], RAW), &["--json"]);
    assert_eq!((merged.code, anywhere(&merged)), (0, anywhere(&both)));
    let run = bcnet(&["inspect", &third, &first, &second, "--summary"], b"");
    let told = [
        "3 files: 24 packets in ",
        &format!("  packets 1 to 5: {first}\n"),
        &format!("  packets 6 to 14: {second}\n"),
        &format!("  packets 15 to 24: {third}\n"),
        &format!(" of {third}, "),
    ];
    told.iter().for_each(|words| assert!(run.stdout.contains(words), "{words}: {}", run.stdout));
    let run = bcnet(&["inspect", &third, &first, &second], b"");
    for file in [&first, &second, &third] {
        assert_eq!(
            run.stdout.lines().filter(|line| **line == format!("{file}:")).count(),
            1,
            "{}",
            run.stdout
        );
    }
    // Two are joined, unless one says otherwise.
    let run = bcnet(&["inspect", &first, &second, "--summary"], b"");
    assert!(run.code == 2 && run.stderr.contains("--merge"), "{}", run.stderr);
}

#[test]
fn a_directory_is_its_captures_and_the_others_are_named() {
    let directory = directory("directory");
    rotated(&directory);
    fs::write(directory.join("README.txt"), "not a capture").expect("written");
    fs::create_dir(directory.join("more")).expect("a directory");
    let run = bcnet(&["inspect", text(&directory), "--json"], b"");
    let expected = anywhere(&inspect(&pcap(&session(), RAW), &["--json"]));
    assert_eq!((run.code, anywhere(&run)), (0, expected));
    let said = format!("bcnet: {}: no captures, and not read: README.txt, more\n", text(&directory));
    assert_eq!(run.stderr, said);
}

#[test]
fn a_directory_without_captures_says_so() {
    let directory = directory("empty");
    for form in ["--json", "--summary", "--csv"] {
        let run = bcnet(&["inspect", text(&directory), form], b"");
        assert_eq!(run.code, 1, "{}", run.stderr);
        let said = format!("bcnet: {}: is a directory without captures\n", text(&directory));
        assert!(run.stderr.contains(&said), "{}", run.stderr);
    }
}

#[test]
fn what_is_wrong_with_one_file_does_not_stop_the_others() {
    let directory = directory("one-wrong");
    let [first, second, third] = rotated(&directory);
    let mut bytes = fs::read(&first).expect("a capture");
    bytes.extend([0xFF; 30]);
    fs::write(&first, &bytes).expect("written");
    let missing = format!("{}/missing.pcap", text(&directory));
    let run = bcnet(&["inspect", "--json", &missing, &third, &second, &first], b"");
    let all = datagrams(&inspect(&pcap(&session(), RAW), &["--json"]));
    assert_eq!((run.code, datagrams(&run).len()), (1, all.len()), "{}", run.stderr);
    let at = bytes.len() - 30;
    let damage = format!(
        "bcnet: {first}: damaged at byte {at}: a packet says to have 4294967295 bytes; 5 packets before it were read\n"
    );
    assert!(run.stderr.contains(&damage), "{}", run.stderr);
    assert!(run.stderr.contains(&format!("bcnet: {missing}: ")), "{}", run.stderr);
}

/// How a tool writes a packet.
type Style = fn(&mut String, &[u8], f64);

fn rows(text: &mut String, bytes: &[u8], row: impl Fn(usize, String, String) -> String) {
    for (place, chunk) in bytes.chunks(16).enumerate() {
        let hex = chunk.iter().map(|byte| format!("{byte:02x} ")).collect();
        let shown =
            |byte: &u8| if byte.is_ascii_graphic() || *byte == b' ' { char::from(*byte) } else { '.' };
        text.push_str(&row(place * 16, hex, chunk.iter().map(shown).collect()));
    }
}

fn pairs(hex: &str) -> String {
    hex.split_whitespace()
        .enumerate()
        .map(|(at, byte)| if at % 2 == 0 { byte.into() } else { format!("{byte} ") })
        .collect()
}

fn xxd(text: &mut String, bytes: &[u8], _: f64) {
    rows(text, bytes, |at, hex, letters| format!("{at:08x}: {:<39}  {letters}\n", pairs(&hex).trim_end()));
}

fn hexdump(text: &mut String, bytes: &[u8], _: f64) {
    rows(text, bytes, |at, hex, letters| {
        let (one, other) = hex.split_at(hex.len().min(24));
        format!("{at:08x}  {one} {other:<25} |{letters}|\n")
    });
    let _ = writeln!(text, "{:08x}", bytes.len());
}

fn tcpdump(text: &mut String, bytes: &[u8], at: f64) {
    let (minute, second) = if at < 0.5 { ("23:59", at + 59.5) } else { ("00:00", at - 0.5) };
    let _ = writeln!(text, "{minute}:{second:09.6} IP 10.0.0.2.4711 > 10.0.0.1.26000: UDP, length 17");
    rows(text, bytes, |at, hex, letters| {
        format!("\t0x{at:04x}:  {:<39}  {letters}\n", pairs(&hex).trim_end())
    });
}

/// With what our dissector has deciphered below.
fn tshark(text: &mut String, bytes: &[u8], at: f64) {
    let _ = writeln!(text, "   12 {at:.9}     10.0.0.1 → 10.0.0.2     UDP 34 22101 → 22101 Len=6\n");
    let row = |at: usize, hex: String, letters: String| format!("{at:04x}  {hex:<48}  {letters}\n");
    let _ = writeln!(text, "Frame ({} bytes):", bytes.len());
    rows(text, bytes, row);
    let _ = writeln!(text, "Deciphered (3 bytes):\n0000  01 02 03                 ...\n");
}

fn of_session(link: &'static [u8], style: Style) -> String {
    let mut text = String::new();
    for packet in session().into_iter().filter(|packet| packet.at < 1.0) {
        style(&mut text, &[link, &ip(&packet)].concat(), packet.at);
    }
    text
}

fn untimed(run: &Run) -> Vec<Value> {
    let mut lines = anywhere(run);
    lines.retain(|line| line.get("messages").is_some());
    lines.iter_mut().for_each(|line| drop(line.as_object_mut().map(|line| line.remove("time"))));
    lines
}

#[test]
fn dumps_of_packets_show_what_the_capture_shows() {
    let early: Vec<Packet> = session().into_iter().filter(|packet| packet.at < 1.0).collect();
    let expected = inspect(&pcap(&early, RAW), &["--json"]);
    let styles: [(&str, Style); 4] =
        [("xxd", xxd), ("hexdump", hexdump), ("tcpdump", tcpdump), ("tshark", tshark)];
    for (name, style) in styles {
        for link in [RAW, ETHERNET] {
            let dump = of_session(link.1, style);
            let run = inspect(dump.as_bytes(), &["--json"]);
            assert_eq!(run.code, 0, "{name}: {}", run.stderr);
            assert_eq!(untimed(&run), untimed(&expected), "{name}");
            // As lines of hex: the datagrams alone, without addresses.
            let run = bcnet(&["inspect", "--hex", "-", "--json"], &dump);
            let (lines, all) = (untimed(&run), untimed(&expected));
            assert_eq!((run.code, lines.len()), (0, all.len()), "{name}: {}", run.stderr);
            assert!(lines.iter().zip(&all).all(|(line, one)| line["messages"] == one["messages"]), "{name}");
        }
    }
    // Times are those of the lines in front, over midnight.
    for (style, first) in [(tcpdump as Style, 86_399.5), (tshark, 0.0)] {
        let times = inspect(of_session(&[], style).as_bytes(), &["--json"]);
        let times: Vec<f64> = datagrams(&times).iter().filter_map(|line| line["time"].as_f64()).collect();
        let right = times.iter().zip(&early).all(|(time, packet)| (time - packet.at - first).abs() < 1e-4);
        assert!(right && times.len() == early.len(), "{times:?}");
    }
}

#[test]
fn a_dump_of_several_lines_is_one_datagram_of_hex() {
    let long = "02 01 32 26 80 00 00 2C 02 00 00 00 1A 00 61 61 61 61 61 61 61 61 61 61 61 61 61 61 61 61 61 61 61 61 61 61 61 61 61 61";
    let plain = bcnet(&["inspect", "--hex", "-", "--plain", "--json"], long);
    assert_eq!(plain.code, 0, "{}", plain.stdout);
    let bytes: Vec<u8> = long.split(' ').map(|byte| u8::from_str_radix(byte, 16).expect("hex")).collect();
    for style in [xxd as Style, hexdump] {
        let mut dump = String::new();
        style(&mut dump, &bytes, 0.0);
        let run = bcnet(&["inspect", "--hex", "-", "--plain", "--json"], &dump);
        assert_eq!((run.code, &run.stdout), (plain.code, &plain.stdout), "{dump}");
        // Beside other lines, which stay what they are.
        let mixed = format!("S> 01 01 02 # idle\n{dump}\n0101 02\n");
        let run = bcnet(&["inspect", "--hex", "-", "--plain", "--json"], &mixed);
        let lines: Vec<u64> = run.json().iter().filter_map(|line| line["line"].as_u64()).collect();
        let last = 3 + dump.lines().count() as u64;
        assert_eq!((run.code, lines), (0, vec![1, 2, last]), "{mixed}");
    }
    // Lines that equal the one before are left out by some.
    let zeros = "00000000  02 01 32 46 80 00 00 2C  02 00 00 00 3A 00 61 61  |..|\n00000010  61 61 61 61 61 61 61 61  61 61 61 61 61 61 61 61  |aa|\n*\n00000040  61 61 61 61 61 61 61 61                           |aa|\n00000048\n";
    let run = bcnet(&["inspect", "--hex", "-", "--plain", "--json"], zeros);
    assert_eq!((run.code, run.json()[0]["messages"][0]["len"].as_u64()), (0, Some(70)), "{}", run.stdout);
}

#[test]
fn a_dump_that_contradicts_itself_is_named() {
    let dump = "0000: 01 01 02 03\n0010: 05 06\n0000: 02 01 02\n";
    let run = bcnet(&["inspect", "--hex", "-", "--plain"], dump);
    assert_eq!(run.code, 1);
    assert!(run.stdout.contains("line 2 of the dump has offset 0x10 where 0x4 should be"), "{}", run.stdout);
    assert!(run.stdout.contains("keepalive"), "{}", run.stdout);
    let run = inspect(dump.as_bytes(), &["--json"]);
    assert!(run.stderr.contains("1 packets cut short"), "{}", run.stderr);
    let run = bcnet(&["inspect", "--hex", "-"], "0000000 d701 6833\n0000004\n");
    assert!(run.code == 1 && run.stdout.contains("use hexdump -C"), "{}", run.stdout);
}

#[test]
fn what_other_programs_pack_is_named() {
    let run = inspect(b"\xFD7zXZ\0 and so on", &[]);
    assert!(run.code == 2 && run.stderr.contains("`xz -dc FILE | bcnet inspect -`"), "{}", run.stderr);
}
