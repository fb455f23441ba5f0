//! Where captures come from: packed files, several files as one, directories, dumps in texts.

use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::path::Path;

use flate2::Compression;
use flate2::write::GzEncoder;
use ruzstd::encoding::{CompressionLevel, compress_to_vec};
use serde_json::Value;

use crate::captures::{
    ETHERNET, Packet, RAW, chat, datagrams, directory, inspect, ip, pcap, pcapng, session,
};
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
            assert_eq!(run.code, 1, "{name} cut at {cut}: {}", run.stderr);
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

/// What unpacks without complaint may make no sense all the same.
#[test]
fn damage_of_what_is_unpacked_is_told_by_its_place_there() {
    let capture = pcap(&session(), RAW);
    let mut wrong = capture.clone();
    let at = wrong.len() - 30;
    wrong.truncate(at);
    wrong.extend([0xFF; 40]);
    let plain = inspect(&wrong, &["--json"]);
    let place = plain
        .stderr
        .split("damaged at byte ")
        .nth(1)
        .and_then(|rest| rest.split(':').next())
        .expect("a place");
    for packed in [gzip(&wrong), zstd(&wrong)] {
        let run = inspect(&packed, &["--json"]);
        assert_eq!((run.code, datagrams(&run)), (1, datagrams(&plain)));
        let said = format!("standard input: damaged at byte {place} of what it is unpacked to: ");
        assert!(run.stderr.contains(&said), "{}", run.stderr);
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

/// Writes captures, each with the packets of the session that it is said to have. Returns their paths.
fn dealt<const N: usize>(directory: &Path, packets: &[Packet], of: impl Fn(usize) -> usize) -> [String; N] {
    let numbers: [usize; N] = std::array::from_fn(|number| number);
    numbers.map(|number| {
        let dealt = packets.iter().enumerate().filter(|(place, _)| of(*place) == number);
        let dealt: Vec<Packet> = dealt.map(|(_, packet)| packet.clone()).collect();
        let bytes = match number % 3 {
            0 => pcap(&dealt, ETHERNET),
            1 => gzip(&pcapng(&dealt, RAW)),
            _ => zstd(&pcap(&dealt, RAW)),
        };
        fs::create_dir_all(directory).expect("a directory");
        let file = directory.join(format!("{number}.pcap"));
        fs::write(&file, bytes).expect("written");
        text(&file).to_owned()
    })
}

/// The session, with no two packets at the same time.
fn distinct_session() -> Vec<Packet> {
    let mut packets = session();
    for place in 1..packets.len() {
        packets[place].at = packets[place].at.max(packets[place - 1].at + 1e-6);
    }
    packets
}

#[test]
fn captures_that_overlap_are_merged_by_time() {
    let (directory, packets) = (directory("overlapping"), distinct_session());
    let expected = anywhere(&inspect(&pcap(&packets, RAW), &["--json"]));
    // Two interfaces; three that share what comes by chance; one that is begun while another is under way, and ends before it.
    let two = dealt::<2>(&directory.join("two"), &packets, |place| place % 2);
    let three = dealt::<3>(&directory.join("three"), &packets, |place| place * 7 / 3 % 3);
    let within =
        dealt::<2>(&directory.join("within"), &packets, |place| usize::from((6..15).contains(&place)));
    for files in [&two[..], &three, &within] {
        for is_reversed in [false, true] {
            let mut named: Vec<&str> = files.iter().map(String::as_str).collect();
            if is_reversed {
                named.reverse();
            }
            let run = bcnet(&[&["inspect", "--merge", "--json"][..], &named].concat(), b"");
            assert_eq!((run.code, run.stderr.as_str()), (0, ""), "{named:?}");
            assert_eq!(anywhere(&run), expected, "{named:?}");
        }
    }
    let run = bcnet(&["inspect", "--merge", "--json", &two[1], &two[0]], b"");
    for (place, datagram) in datagrams(&run).iter().enumerate() {
        assert_eq!(datagram["file"], two[place % 2].as_str(), "{datagram}");
    }
    let run = bcnet(&["inspect", "--merge", "--summary", &within[0], &within[1]], b"");
    let told = [
        format!("  15 of packets 1 to 24: {}\n", within[0]),
        format!("  packets 7 to 15: {}\n", within[1]),
        format!("first: packet 18 at byte 583 of {}, ", within[0]),
    ];
    told.iter().for_each(|words| assert!(run.stdout.contains(words), "{words}: {}", run.stdout));
    let json = bcnet(&["inspect", "--merge", "--summary", "--json", &within[0], &within[1]], b"").json();
    let files = serde_json::json!([
        { "file": within[0], "first": 1, "last": 24, "packets": 15 },
        { "file": within[1], "first": 7, "last": 15, "packets": 9 },
    ]);
    assert_eq!(json[0]["files"], files);
    // Text names each once, where it begins.
    let text = bcnet(&["inspect", "--merge", &two[0], &two[1]], b"").stdout;
    let names: Vec<&str> = text.lines().filter(|line| line.ends_with(".pcap:")).collect();
    assert_eq!(names, [format!("{}:", two[0]), format!("{}:", two[1])]);
}

#[test]
fn at_the_same_time_the_file_that_began_first_comes_first() {
    let directory = directory("same-time");
    let packets: Vec<Packet> = (0..6).map(|number| chat(2, number, 1.0 + f64::from(number / 4))).collect();
    let [one, other] = dealt::<2>(&directory, &packets, |place| place % 2);
    for order in [[&one, &other], [&other, &one]] {
        let run = bcnet(&["inspect", "--merge", "--json", order[0], order[1]], b"");
        let files: Vec<Value> = datagrams(&run).iter().map(|entry| entry["file"].clone()).collect();
        let [first, second] = order.map(String::as_str);
        assert_eq!(files, [first, first, second, second, first, second]);
    }
}

#[test]
fn a_file_that_goes_back_in_time_keeps_its_order_and_is_told() {
    let directory = directory("backwards");
    let mut packets = distinct_session();
    let [one, other] = dealt::<2>(&directory, &packets, |place| place % 2);
    // The third and the fourth of the first file change places.
    packets.swap(4, 6);
    let [spoiled, _] = dealt::<2>(&directory.join("spoiled"), &packets, |place| place % 2);
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
    let said = format!(
        "bcnet: {spoiled}: 1 packet is earlier than one before, the first is packet {} at byte {}; the file keeps its order\n",
        back["packet"], back["offset"]
    );
    assert_eq!(run.stderr, said);
    assert_eq!(bcnet(&["inspect", "--merge", "--json", &one, &other], b"").stderr, "");
}

/// Each of the files begins before any ends.
#[test]
fn more_files_at_once_than_can_be_open_are_all_read_and_that_is_told() {
    const FILES: usize = 70;
    let directory = directory("crowd");
    let chat = |number: usize| chat(2, u16::try_from(number).expect("small"), 1.0 + number as f64 / 100.0);
    let packets: Vec<Packet> = (0..2 * FILES).map(chat).collect();
    let files = dealt::<FILES>(&directory, &packets, |place| place % FILES);
    let named: Vec<&str> = files.iter().map(String::as_str).collect();
    let run = bcnet(&[&["inspect", "--json"][..], &named].concat(), b"");
    assert_eq!((run.code, datagrams(&run).len()), (1, 2 * FILES), "{}", run.stderr);
    let said = "bcnet: 70 files: more than 64 files overlap in time; 6 were begun late, so not all is in the order of time\n";
    assert_eq!(run.stderr, said);
    let run = bcnet(&[&["inspect", "--json"][..], &named[..64]].concat(), b"");
    assert_eq!((run.code, run.stderr.as_str(), datagrams(&run).len()), (0, "", 128));
}

/// Rotated captures are open one at a time.
#[cfg(unix)]
#[test]
fn files_that_do_not_overlap_are_not_open_at_the_same_time() {
    const FILES: usize = 40;
    let directory = directory("one-by-one");
    let packets: Vec<Packet> = (0..80_u16).map(|number| chat(2, number, 1.0 + f64::from(number))).collect();
    dealt::<FILES>(&directory, &packets, |place| place / 2);
    let limited =
        format!("ulimit -n 20; exec '{}' inspect '{}' --json", env!("CARGO_BIN_EXE_bcnet"), text(&directory));
    let run = Run::from(std::process::Command::new("sh").args(["-c", &limited]).output().expect("a shell"));
    assert_eq!((run.code, run.stderr.as_str(), datagrams(&run).len()), (0, "", 80));
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
        assert_eq!(run.stderr, format!("bcnet: {}: is a directory without captures\n", text(&directory)));
    }
}

/// What cannot be seen to be something else may be a capture.
#[test]
fn damaged_captures_of_a_directory_are_faults() {
    let directory = directory("damaged-directory");
    let [_, second, _] = rotated(&directory);
    let bytes = fs::read(&second).expect("a capture");
    fs::write(&second, &bytes[..bytes.len() / 2]).expect("written");
    fs::write(directory.join("d.gz"), &bytes[..14]).expect("written");
    fs::write(directory.join("notes.txt"), "nothing").expect("written");
    let run = bcnet(&["inspect", text(&directory), "--json"], b"");
    let shown = datagrams(&run).len();
    assert!(run.code == 1 && shown >= 15 && shown < session().len(), "{shown}: {}", run.stderr);
    let half = bytes.len() / 2;
    for said in [
        format!("bcnet: {}: no captures, and not read: notes.txt\n", text(&directory)),
        format!("{second}: damaged at byte {half}: gzip: the file ends too early; it was unpacked to "),
        "d.gz: damaged at byte 14: gzip: the file ends too early; it was unpacked to 0 bytes before; 0 packets before it were read\n".to_owned(),
    ] {
        assert!(run.stderr.contains(&said), "{said}: {}", run.stderr);
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
