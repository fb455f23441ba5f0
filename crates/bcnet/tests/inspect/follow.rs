//! Tests files and pipes that are followed as they grow.

use std::fs;
use std::io::{BufRead, BufReader, Write};

use crate::captures::{RAW, TestPacket, chat, ip_packet, pcap, session, test_directory};
use crate::run::{ProcessOutput, command, path};

/// Each format shows data as it comes, or when the program is stopped. The file may end within a packet.
#[test]
fn followed_input_is_shown_immediately_or_on_stop() {
    let directory = test_directory("stopped");
    let [file, page] = ["growing.pcap", "out.html"].map(|name| directory.join(name));
    let capture = pcap(&session(), RAW);
    fs::write(&file, &capture[..capture.len() - 5]).expect("written");
    let [file, page] = [&file, &page].map(|path| path.to_str().expect("UTF-8"));
    let follow = |input: &str, flags: &[&str]| {
        command(&[&["inspect", input, "--follow"], flags].concat()).spawn().expect("bcnet starts")
    };
    // Rows come while the file is open.
    let mut child = follow(file, &["--csv"]);
    let mut rows = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    for _ in 0..20 {
        rows.next().expect("a row").expect("UTF-8");
    }
    crate::run::signal(child.id(), "INT");
    assert_eq!(crate::run::wait_with_output(child).status.code(), Some(0));
    // This is more than a pipe can hold: once all is written, most of it was read.
    let much: Vec<TestPacket> = (0..30_000).map(|number| chat(2, number, f64::from(number) * 0.01)).collect();
    let much = pcap(&much, RAW);
    for (signal, flags) in [("INT", &["--summary"][..]), ("TERM", &["--summary", "--report", page])] {
        let mut child = follow("-", flags);
        let mut stdin = child.stdin.take().expect("a pipe");
        stdin.write_all(&much).expect("written");
        crate::run::signal(child.id(), signal);
        let run = ProcessOutput::from(crate::run::wait_with_output(child));
        assert_eq!((run.code, run.stderr.as_str()), (0, ""), "{signal}");
        assert!(run.stdout.contains("1 conversation,"), "{}", run.stdout);
    }
    assert!(fs::read_to_string(page).expect("a report").contains("</html>"));
}

#[test]
fn a_pipe_is_followed_as_it_is_written() {
    let capture = pcap(&session(), RAW);
    let mut child = command(&["inspect", "-", "--follow"]).spawn().expect("bcnet starts");
    let mut stdin = child.stdin.take().expect("a pipe");
    let mut stdout = BufReader::new(child.stdout.take().expect("a pipe"));
    // The first packet and not a byte more.
    let first = 24 + 16 + ip_packet(&session()[0]).len();
    stdin.write_all(&capture[..first]).expect("written");
    stdin.flush().expect("written");
    let mut line = String::new();
    stdout.read_line(&mut line).expect("a line comes while the pipe is open");
    assert!(line.contains("connect request"), "{line}");
    drop(stdin);
    assert_eq!(crate::run::wait_with_output(child).status.code(), Some(0));
}

#[test]
fn a_file_is_followed_as_it_grows() {
    let path = test_directory("follow").join("growing.pcap");
    let capture = pcap(&session(), RAW);
    let packet = |place: usize| 16 + ip_packet(&session()[place]).len();
    let first = 24 + packet(0);
    fs::write(&path, &capture[..first]).expect("written");
    let mut child = command(&["inspect", path.to_str().expect("UTF-8"), "--follow"]).spawn().expect("starts");
    let mut stdout = BufReader::new(child.stdout.take().expect("a pipe"));
    let mut line = String::new();
    stdout.read_line(&mut line).expect("a line");
    assert!(line.contains("connect request"), "{line}");
    // In two pieces: half a packet is not the end.
    let mut file = fs::OpenOptions::new().append(true).open(&path).expect("the file");
    let second = first + packet(1);
    for piece in [first..first + 20, first + 20..second] {
        file.write_all(&capture[piece]).expect("written");
        file.flush().expect("written");
    }
    line.clear();
    stdout.read_line(&mut line).expect("a line");
    assert!(line.contains("ack control seq=0"), "{line}");
    child.kill().expect("the program waits for more data");
    child.wait().expect("the program ends");
}

#[test]
fn a_log_is_followed_from_its_first_lines_on() {
    let log = fs::read_to_string(path("crates/bcnet/tests/packet-log.txt")).expect("the log");
    let mut child = command(&["inspect", "-", "--follow"]).spawn().expect("bcnet starts");
    let mut stdin = child.stdin.take().expect("a pipe");
    stdin.write_all(log.as_bytes()).expect("written");
    stdin.flush().expect("written");
    let mut line = String::new();
    BufReader::new(child.stdout.take().expect("a pipe")).read_line(&mut line).expect("a line");
    assert!(line.trim_start().starts_with("1758 "), "{line}");
    drop(stdin);
    crate::run::wait_with_output(child);
}
