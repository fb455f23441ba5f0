//! Tests hex dumps of packets in text, as other programs write them.

use std::fmt::Write as _;

use serde_json::Value;

use crate::captures::{
    ETHERNET, RAW, TestPacket, datagrams, inspect, ip_packet, pcap, session, without_locations,
};
use crate::run::{ProcessOutput, bcnet};

/// The format of a tool.
type DumpStyle = fn(&mut String, &[u8], f64);

fn add_rows(text: &mut String, bytes: &[u8], row: impl Fn(usize, String, String) -> String) {
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
    add_rows(text, bytes, |at, hex, letters| {
        format!("{at:08x}: {:<39}  {letters}\n", pairs(&hex).trim_end())
    });
}

fn hexdump(text: &mut String, bytes: &[u8], _: f64) {
    add_rows(text, bytes, |at, hex, letters| {
        let (one, other) = hex.split_at(hex.len().min(24));
        format!("{at:08x}  {one} {other:<25} |{letters}|\n")
    });
    let _ = writeln!(text, "{:08x}", bytes.len());
}

fn tcpdump(text: &mut String, bytes: &[u8], at: f64) {
    let (minute, second) = if at < 0.5 { ("23:59", at + 59.5) } else { ("00:00", at - 0.5) };
    let _ = writeln!(text, "{minute}:{second:09.6} IP 10.0.0.2.4711 > 10.0.0.1.26000: UDP, length 17");
    add_rows(text, bytes, |at, hex, letters| {
        format!("\t0x{at:04x}:  {:<39}  {letters}\n", pairs(&hex).trim_end())
    });
}

/// The dump that our dissector deciphered follows below.
fn tshark(text: &mut String, bytes: &[u8], at: f64) {
    let _ = writeln!(text, "   12 {at:.9}     10.0.0.1 → 10.0.0.2     UDP 34 22101 → 22101 Len=6\n");
    let row = |at: usize, hex: String, letters: String| format!("{at:04x}  {hex:<48}  {letters}\n");
    let _ = writeln!(text, "Frame ({} bytes):", bytes.len());
    add_rows(text, bytes, row);
    let _ = writeln!(text, "Deciphered (3 bytes):\n0000  01 02 03                 ...\n");
}

fn dump_session(link: &'static [u8], style: DumpStyle) -> String {
    let mut text = String::new();
    for packet in session().into_iter().filter(|packet| packet.at < 1.0) {
        style(&mut text, &[link, &ip_packet(&packet)].concat(), packet.at);
    }
    text
}

fn without_times(run: &ProcessOutput) -> Vec<Value> {
    let mut lines = without_locations(run);
    lines.retain(|line| line.get("messages").is_some());
    lines.iter_mut().for_each(|line| drop(line.as_object_mut().map(|line| line.remove("time"))));
    lines
}

#[test]
fn packet_dumps_show_the_same_as_the_capture() {
    let early: Vec<TestPacket> = session().into_iter().filter(|packet| packet.at < 1.0).collect();
    let expected = inspect(&pcap(&early, RAW), &["--json"]);
    let styles: [(&str, DumpStyle); 4] =
        [("xxd", xxd), ("hexdump", hexdump), ("tcpdump", tcpdump), ("tshark", tshark)];
    for (name, style) in styles {
        for link in [RAW, ETHERNET] {
            let dump = dump_session(link.1, style);
            let run = inspect(dump.as_bytes(), &["--json"]);
            assert_eq!(run.code, 0, "{name}: {}", run.stderr);
            assert_eq!(without_times(&run), without_times(&expected), "{name}");
            // As hex lines: only the datagrams, without addresses.
            let run = bcnet(&["inspect", "--hex", "-", "--json"], &dump);
            let (lines, all) = (without_times(&run), without_times(&expected));
            assert_eq!((run.code, lines.len()), (0, all.len()), "{name}: {}", run.stderr);
            assert!(lines.iter().zip(&all).all(|(line, one)| line["messages"] == one["messages"]), "{name}");
        }
    }
    // Times come from the lines before the dumps, over midnight.
    for (style, first) in [(tcpdump as DumpStyle, 86_399.5), (tshark, 0.0)] {
        let times = inspect(dump_session(&[], style).as_bytes(), &["--json"]);
        let times: Vec<f64> = datagrams(&times).iter().filter_map(|line| line["time"].as_f64()).collect();
        let right = times.iter().zip(&early).all(|(time, packet)| (time - packet.at - first).abs() < 1e-4);
        assert!(right && times.len() == early.len(), "{times:?}");
    }
}

#[test]
fn multi_line_dump_is_one_datagram() {
    let long = "02 01 32 26 80 00 00 2C 02 00 00 00 1A 00 61 61 61 61 61 61 61 61 61 61 61 61 61 61 61 61 61 61 61 61 61 61 61 61 61 61";
    let plain = bcnet(&["inspect", "--hex", "-", "--plain", "--json"], long);
    assert_eq!(plain.code, 0, "{}", plain.stdout);
    let bytes: Vec<u8> = long.split(' ').map(|byte| u8::from_str_radix(byte, 16).expect("hex")).collect();
    for style in [xxd as DumpStyle, hexdump] {
        let mut dump = String::new();
        style(&mut dump, &bytes, 0.0);
        let run = bcnet(&["inspect", "--hex", "-", "--plain", "--json"], &dump);
        assert_eq!((run.code, &run.stdout), (plain.code, &plain.stdout), "{dump}");
        // A dump between other lines, which are read as usual.
        let mixed = format!("S> 01 01 02 # idle\n{dump}\n0101 02\n");
        let run = bcnet(&["inspect", "--hex", "-", "--plain", "--json"], &mixed);
        let lines: Vec<u64> = run.json().iter().filter_map(|line| line["line"].as_u64()).collect();
        let last = 3 + dump.lines().count() as u64;
        assert_eq!((run.code, lines), (0, vec![1, 2, last]), "{mixed}");
    }
    // Some tools leave out lines that equal the previous line.
    let zeros = "00000000  02 01 32 46 80 00 00 2C  02 00 00 00 3A 00 61 61  |..|\n00000010  61 61 61 61 61 61 61 61  61 61 61 61 61 61 61 61  |aa|\n*\n00000040  61 61 61 61 61 61 61 61                           |aa|\n00000048\n";
    let run = bcnet(&["inspect", "--hex", "-", "--plain", "--json"], zeros);
    assert_eq!((run.code, run.json()[0]["messages"][0]["len"].as_u64()), (0, Some(70)), "{}", run.stdout);
}

#[test]
fn inconsistent_dump_is_reported() {
    let dump = "0000: 01 01 02 03\n0010: 05 06\n0000: 02 01 02\n";
    let run = bcnet(&["inspect", "--hex", "-", "--plain"], dump);
    assert_eq!(run.code, 1);
    assert!(run.stdout.contains("line 2 of the dump has offset 0x10, expected 0x4"), "{}", run.stdout);
    assert!(run.stdout.contains("keepalive"), "{}", run.stdout);
    let run = inspect(dump.as_bytes(), &["--json"]);
    assert!(run.stderr.contains("1 packets cut short"), "{}", run.stderr);
    let run = bcnet(&["inspect", "--hex", "-"], "0000000 d701 6833\n0000004\n");
    assert!(run.code == 1 && run.stdout.contains("use hexdump -C"), "{}", run.stdout);
}
