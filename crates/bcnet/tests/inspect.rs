//! `bcnet inspect` on captures and packet logs, as a user runs it.

mod run;

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddrV4;
use std::path::{Path, PathBuf};

use bcnet_transport::cipher;
use serde_json::Value;

use run::{Run, bcnet, command, path};

#[test]
fn every_link_type_and_both_formats_show_the_same() {
    let expected = inspect(&pcap(&session(), RAW), &["--json"]);
    assert_eq!((expected.code, expected.stderr.as_str()), (0, ""));
    assert!(messages(&expected) > 20, "{}", expected.stdout);
    for link in [NULL, ETHERNET, VLAN, LOOP, COOKED, COOKED_2, IPV4] {
        for capture in [pcap(&session(), link), pcapng(&session(), link)] {
            let run = inspect(&capture, &["--json"]);
            assert_eq!((run.code, run.stderr.as_str()), (0, ""), "link {link:?}");
            assert_eq!(without_offsets(&run), without_offsets(&expected), "link {link:?}");
        }
    }
    let swapped = pcap_with(&session(), RAW, &u32::to_be_bytes);
    assert_eq!(without_offsets(&inspect(&swapped, &["--json"])), without_offsets(&expected));
}

#[test]
fn what_is_not_the_games_is_counted_and_nothing_else() {
    let mut packets = session();
    let dns = "10.0.0.9:53".parse().expect("an address");
    packets.push(Packet { at: 9.0, from: dns, to: HOST, bytes: b"\x12\x34\x01\x00\x00\x01".to_vec() });
    let mut capture = pcap(&packets, RAW);
    let fragment = {
        let mut ip = ip(&packets[0]);
        ip[6] = 0x20;
        ip
    };
    record(&mut capture, 10.0, &fragment, &u32::to_le_bytes);
    record(&mut capture, 10.0, &ip(&packets[0])[..40], &u32::to_le_bytes);
    let run = inspect(&capture, &["--json"]);
    assert_eq!(without_offsets(&run), without_offsets(&inspect(&pcap(&session(), RAW), &["--json"])));
    let skipped = "bcnet: standard input: not looked at: 1 IPv4 fragments, which the game does not make, 1 packets cut short by the capture, 1 UDP datagrams of something else\n";
    assert_eq!((run.code, run.stderr.as_str()), (0, skipped));
}

#[test]
fn everything_before_the_damage_is_shown() {
    for capture in [pcap(&session(), ETHERNET), pcapng(&session(), ETHERNET)] {
        let whole = datagrams(&inspect(&capture, &["--json"]));
        let step = capture.len() / 23;
        for cut in (30..capture.len() - 1).step_by(step) {
            let run = inspect(&capture[..cut], &["--json"]);
            assert!(whole.starts_with(&datagrams(&run)), "cut at {cut}");
            if run.code == 0 {
                // The cut is between two packets.
                continue;
            }
            assert_eq!(run.code, 1, "cut at {cut}: {}", run.stderr);
            assert!(run.stderr.contains("damaged at byte "), "{}", run.stderr);
        }
    }
    let mut capture = pcap(&session(), RAW);
    let length = capture.len();
    capture.extend([0xFF; 40]);
    let run = inspect(&capture, &["--json"]);
    assert_eq!(datagrams(&run), datagrams(&inspect(&capture[..length], &["--json"])));
    assert_eq!(run.code, 1);
    let damage = format!("damaged at byte {length}: a packet says to have 4294967295 bytes");
    assert!(run.stderr.contains(&damage), "{}", run.stderr);
}

#[test]
fn any_bytes_behind_the_head_of_a_capture_are_survived() {
    let mut state = 11_u32;
    for capture in [pcap(&session(), ETHERNET), pcapng(&session(), ETHERNET)] {
        for _ in 0..40 {
            let mut broken = capture.clone();
            for _ in 0..8 {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                let at = 24 + (state >> 8) as usize % (broken.len() - 24);
                broken[at] ^= (state >> 3) as u8;
            }
            let run = inspect(&broken, &["--summary"]);
            assert!(run.code < 2, "{}", run.stderr);
        }
    }
}

#[test]
fn packet_logs_of_the_community_are_read() {
    let log = path("crates/bcnet/tests/packet-log.txt");
    let run = bcnet(&["inspect", log.to_str().expect("UTF-8"), "--json"], b"");
    assert_eq!((run.code, run.stderr.as_str()), (0, ""));
    let entries: Vec<Value> = run.json().into_iter().filter(|entry| entry.get("finding").is_none()).collect();
    assert_eq!(entries.len(), 4);
    assert_eq!((&entries[0]["packet"], &entries[0]["direction"]), (&1758.into(), &"C".into()));
    assert_eq!(entries[0]["messages"][1]["seq"], 40);
    assert_eq!(entries[0]["from"], "10.10.10.239:22101");
    assert_eq!(entries[1]["messages"][0]["kind"], "keepalive");
    assert_eq!(entries[2]["messages"][0]["channel"], "control");
    assert_eq!(entries[3]["gamespy"], "\\heartbeat\\0\\gamename\\bcommander\\statechanged\\1");
    // Some tools leave lines out, or cut dumps short.
    let text = fs::read_to_string(&log).expect("the log");
    let cut = text.replace("02 02 01 27 00 00 01 28 00 00 ", "02 02 01 27 00 ");
    let run = bcnet(&["inspect", "-", "--json"], cut.as_bytes());
    assert_eq!(run.json().len(), inspect(text.as_bytes(), &["--json"]).json().len() - 1);
    assert!(run.stderr.contains("1 packets cut short"), "{}", run.stderr);
    // Text is of one byte per character, as it was on the wire.
    let name = text.replace("\\gamename\\bcommander", "\\hostname\\K?ln").into_bytes();
    let name: Vec<u8> = name.into_iter().map(|byte| if byte == b'?' { 0xF6 } else { byte }).collect();
    let run = bcnet(&["inspect", "-", "--json"], &name);
    assert!(run.stdout.contains("\\\\hostname\\\\Köln"), "{}", run.stdout);
    let run = bcnet(&["inspect", "-"], b"neither this nor that\n");
    assert_eq!((run.code, run.stdout.as_str()), (2, ""));
    assert!(run.stderr.contains("is neither pcap nor pcapng nor a packet log"), "{}", run.stderr);
}

#[test]
fn a_summary_ranks_faults_with_their_first_evidence() {
    let run = inspect(&pcap(&session(), RAW), &["--summary"]);
    assert_eq!((run.code, run.stderr.as_str()), (0, ""));
    for part in [
        "standard input: 24 packets",
        "conversation 1: peer 2 (10.0.0.2:4711) and host (10.0.0.1:26000)",
        "0x2C Chat",
        "retransmissions, no ACK sent",
        "stale ACKs",
        "first: packet 11 at byte 581",
        "stale ACK of connect control seq=0, sent 2 times",
    ] {
        assert!(run.stdout.contains(part), "{part}\n{}", run.stdout);
    }
    let place = |part: &str| run.stdout.find(part).expect("found above");
    assert!(place("retransmissions, no ACK sent") < place("stale ACKs"));
}

/// The host sends something to a player who leaves, again and again: the player is not there to see a lag.
#[test]
fn a_normal_leave_is_no_fault() {
    let mut packets = vec![packet(0.0, "02 01 02"), chat(1, 0, 0.1)];
    packets.push(packet(0.2, "02 01 05 0A C0 02 00 02 0A 00 00 02"));
    packets.push(packet(0.25, "01 01 01 02 00 02"));
    packets.extend([1.1, 3.1, 6.1].map(|at| chat(1, 0, at)));
    let directory = directory("leave");
    let page = directory.join("out.html");
    let run = inspect(&pcap(&packets, RAW), &["--summary", "--report", page.to_str().expect("UTF-8")]);
    assert_eq!((run.code, run.stderr.as_str()), (0, ""));
    let told = "\nnot a fault\n          3  retransmissions to someone who had left\n";
    assert!(run.stdout.contains(told) && !run.stdout.contains("the worst first"), "{}", run.stdout);
    let page = fs::read_to_string(&page).expect("a report");
    assert!(page.contains("had left") && !page.contains("sees a lag"), "{page}");
    let json = inspect(&pcap(&packets, RAW), &["--json"]).json();
    let found: Vec<&Value> = json.iter().filter(|entry| entry.get("finding").is_some()).collect();
    assert_eq!(found.len(), 3, "{found:?}");
    assert!(found.iter().all(|found| found["fault"] == false && found["cause"] == "receiver_left"));
}

/// More than four thousand repeats that nothing explains come to their end together.
#[test]
fn findings_that_were_not_kept_are_told_in_every_form() {
    let mut packets = Vec::new();
    for port in 1..=9_u16 {
        let from = SocketAddrV4::new(*CLIENT.ip(), 5000 + port);
        for number in 0..515_u16 {
            let [low, high] = number.to_le_bytes();
            let hex = format!("02 02 32 06 80 00 00 19 32 05 00 {low:02X} {high:02X}");
            packets.push(Packet { from, ..packet(1.0, &hex) });
        }
    }
    let directory = directory("lost");
    let report = directory.join("out.html");
    let capture = pcap(&packets, RAW);
    let lost = "512 findings more came at once than can be kept, and are not counted";
    let summary = inspect(&capture, &["--summary"]);
    assert!(
        summary.stdout.ends_with(&format!("\n{lost}\n")) && summary.stderr.is_empty(),
        "{}",
        summary.stdout
    );
    for form in [&["--json"][..], &["--csv"], &[], &["--report", report.to_str().expect("UTF-8")]] {
        let run = inspect(&capture, form);
        assert_eq!((run.code, run.stderr), (0, format!("bcnet: standard input: {lost}\n")), "{form:?}");
    }
    assert!(fs::read_to_string(&report).expect("a report").contains(lost));
}

#[test]
fn filters_choose_datagrams_messages_and_times() {
    let capture = pcap(&session(), RAW);
    let shown = |flags: &[&str]| {
        let run = inspect(&capture, &[flags, &["--csv"]].concat());
        assert_eq!(run.code, 0, "{}", run.stderr);
        run.stdout.lines().skip(1).map(str::to_owned).collect::<Vec<_>>()
    };
    let all = shown(&[]);
    assert!(shown(&["--kind", "ack"]).iter().all(|row| row.contains(",ack,")));
    assert_eq!(shown(&["--opcode", "chat"]), shown(&["--opcode", "0x2c"]));
    assert_eq!(shown(&["--opcode", "Chat"]).len(), 9);
    // The request was sent without an id.
    assert_eq!(shown(&["--peer", "2"]), all[1..]);
    assert_eq!(shown(&["--peer", "10.0.0.3"]).len(), 0);
    assert_eq!(shown(&["--peer", "10.0.0.2:4711"]), all);
    let early = shown(&["--to", "0.95"]);
    let late = shown(&["--from", "0.951"]);
    assert!(!early.is_empty() && !late.is_empty());
    assert_eq!([early, late].concat(), all);
    let anomalies = shown(&["--anomalies"]);
    assert!(anomalies.iter().any(|row| row.ends_with(",stale_ack")) && anomalies.len() < all.len());
    for bad in [["--peer", "x"], ["--kind", "x"], ["--opcode", "x"], ["--from", "x"]] {
        assert_eq!(inspect(&capture, &bad).code, 2, "{bad:?}");
    }
}

#[test]
fn a_summary_and_a_report_can_be_of_one_peer() {
    let mut packets = session();
    // Another player, with a datagram that makes no sense.
    let other = SocketAddrV4::new(std::net::Ipv4Addr::new(10, 0, 0, 3), 4711);
    for (at, hex) in [(1.8, "03 01 32 06 80 00 00 19"), (1.81, "03 01 77 00")] {
        packets.push(Packet { from: other, ..packet(at, hex) });
    }
    packets.push(Packet { from: other, bytes: b"\\info\\".to_vec(), ..packet(1.82, "02 01 02") });
    let capture = pcap(&packets, RAW);
    let directory = directory("one-peer");
    let report = directory.join("out.html");
    for (flags, conversations, gamespy, unknown, stale) in [
        (&[][..], "2 conversations", "2 GameSpy", true, true),
        (&["--peer", "2"], "1 conversation", "0 GameSpy", false, true),
        (&["--peer", "10.0.0.2"], "1 conversation", "1 GameSpy", false, true),
        (&["--peer", "3"], "1 conversation", "0 GameSpy", true, false),
        (&["--peer", "9"], "0 conversations", "0 GameSpy", false, false),
    ] {
        let report_flags = ["--summary", "--report", report.to_str().expect("UTF-8")];
        let run = inspect(&capture, &[flags, &report_flags].concat());
        assert_eq!(run.code, 1, "{}", run.stderr);
        assert!(run.stdout.contains(&format!(" {conversations}, {gamespy}")), "{flags:?}\n{}", run.stdout);
        let page = fs::read_to_string(&report).expect("a report");
        assert!(page.contains(&format!(" {conversations}, ")), "{flags:?}");
        for text in [&run.stdout, &page] {
            let found = [text.contains("datagrams with unknown types"), text.contains("stale ACKs")];
            assert_eq!(found, [unknown, stale], "{flags:?}\n{text}");
        }
        let plots = 6 * conversations[..1].parse::<usize>().expect("a digit");
        assert_eq!(page.matches("<svg").count(), plots, "{flags:?}");
    }
}

/// Nothing is worse than an option that is taken and does nothing.
#[test]
fn options_that_do_not_fit_together_are_refused() {
    let file = directory("refused").join("a.pcap");
    fs::write(&file, pcap(&session(), RAW)).expect("written");
    let file = file.to_str().expect("UTF-8");
    for whole in [&["--summary"][..], &["--report", "never.html"]] {
        for filter in [
            &["--kind", "ack"][..],
            &["--opcode", "Chat"],
            &["--from", "1"],
            &["--to", "1"],
            &["--anomalies"],
        ] {
            refused(&[&[file], whole, filter].concat(), &[whole[0], filter[0]]);
        }
    }
    for option in
        [&["--write", "never.pcapng"][..], &["--explain"], &["--plain"], &["--message"], &["--payload"]]
    {
        refused(&[&[file], option].concat(), &[option[0]]);
    }
    for option in [
        &["--summary"][..],
        &["--csv"],
        &["--report", "never.html"],
        &["--parquet", "never.parquet"],
        &["--follow"],
        &["--peer", "2"],
        &["--kind", "ack"],
        &["--anomalies"],
    ] {
        refused(&[&[file, file], option].concat(), &[option[0], "is for one capture"]);
        refused(&[&["--hex", "-"], option].concat(), &[option[0], "--hex"]);
    }
    refused(&["-", "-"], &["standard input can be read only once"]);
}

/// It cannot run, says why, and shows nothing.
fn refused(args: &[&str], said: &[&str]) {
    let run = bcnet(&[&["inspect"], args].concat(), b"");
    assert_eq!((run.code, run.stdout.as_str()), (2, ""), "{args:?}: {}", run.stderr);
    assert!(said.iter().all(|said| run.stderr.contains(said)), "{args:?}: {}", run.stderr);
}

/// Each form shows what it has as it comes, or when it is told to end: the file may end within a packet.
#[test]
fn what_is_followed_is_shown_at_once_or_when_it_is_stopped() {
    let directory = directory("stopped");
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
    stop(&child, "INT");
    assert_eq!(child.wait().expect("bcnet ends").code(), Some(0));
    // No pipe holds so much: when all is written, much of it was read.
    let much: Vec<Packet> = (0..30_000).map(|number| chat(2, number, f64::from(number) * 0.01)).collect();
    let much = pcap(&much, RAW);
    for (signal, flags) in [("INT", &["--summary"][..]), ("TERM", &["--summary", "--report", page])] {
        let mut child = follow("-", flags);
        let mut stdin = child.stdin.take().expect("a pipe");
        stdin.write_all(&much).expect("written");
        stop(&child, signal);
        let run = Run::from(child.wait_with_output().expect("bcnet ends"));
        assert_eq!((run.code, run.stderr.as_str()), (0, ""), "{signal}");
        assert!(run.stdout.contains("1 conversation,"), "{}", run.stdout);
    }
    assert!(fs::read_to_string(page).expect("a report").contains("</html>"));
}

fn stop(child: &std::process::Child, signal: &str) {
    let killed = std::process::Command::new("kill").args(["-s", signal, &child.id().to_string()]).status();
    assert!(killed.expect("kill starts").success());
}

#[test]
fn a_pipe_is_followed_as_it_is_written() {
    let capture = pcap(&session(), RAW);
    let mut child = command(&["inspect", "-", "--follow"]).spawn().expect("bcnet starts");
    let mut stdin = child.stdin.take().expect("a pipe");
    let mut stdout = BufReader::new(child.stdout.take().expect("a pipe"));
    // The first packet and not a byte more.
    let first = 24 + 16 + ip(&session()[0]).len();
    stdin.write_all(&capture[..first]).expect("written");
    stdin.flush().expect("written");
    let mut line = String::new();
    stdout.read_line(&mut line).expect("a line comes while the pipe is open");
    assert!(line.contains("connect request"), "{line}");
    drop(stdin);
    assert_eq!(child.wait().expect("bcnet ends").code(), Some(0));
}

#[test]
fn a_file_is_followed_as_it_grows() {
    let path = directory("follow").join("growing.pcap");
    let capture = pcap(&session(), RAW);
    let packet = |place: usize| 16 + ip(&session()[place]).len();
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
    child.kill().expect("it waits for more");
    child.wait().expect("it ends");
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
    child.wait().expect("bcnet ends");
}

#[test]
fn comments_of_a_capture_are_shown() {
    let capture = pcapng(&session(), ETHERNET);
    let run = inspect(&capture, &["--json"]);
    assert!(datagrams(&run).iter().all(|entry| entry["comment"] == "hi"), "{}", run.stdout);
    let run = inspect(&capture, &[]);
    let comments = run.stdout.lines().filter(|line| line.ends_with("  # hi")).count();
    assert_eq!(comments, session().len(), "one for each packet:\n{}", run.stdout);
}

/// The cause of a retransmission is known later, and belongs to those who talk there.
#[test]
fn late_findings_are_chosen_as_datagrams_are() {
    let capture = pcap(&session(), RAW);
    let found = |flags: &[&str]| {
        let run = inspect(&capture, &[flags, &["--json"]].concat());
        let names =
            run.json().into_iter().filter_map(|entry| Some(entry.get("finding")?.as_str()?.to_owned()));
        names.collect::<Vec<_>>()
    };
    let all = found(&[]);
    assert!(all.contains(&"retransmission".to_owned()), "{all:?}");
    assert_eq!(found(&["--anomalies"]), all);
    assert_eq!(found(&["--peer", "10.0.0.2"]), all);
    assert_eq!(found(&["--peer", "2"]), all);
    for nobody in [["--peer", "10.0.0.9"], ["--peer", "9"], ["--from", "99"]] {
        assert_eq!(found(&nobody), Vec::<String>::new(), "{nobody:?}");
    }
}

#[test]
fn what_cannot_be_read_is_told_in_one_line() {
    let directory = directory("bad");
    let empty = directory.join("empty.pcap");
    fs::write(&empty, b"").expect("written");
    let [directory, empty] = [&directory, &empty].map(|path| path.to_str().expect("UTF-8"));
    let missing = format!("{directory}/missing.pcap");
    for (file, said) in
        [(empty, "is empty"), (directory, "is a directory"), (missing.as_str(), "No such file or directory")]
    {
        for form in [&["--summary"][..], &["--json"], &["--csv"], &[file]] {
            let run = bcnet(&[&["inspect", file], form].concat(), b"");
            assert_eq!((run.code, run.stdout.as_str()), (2, ""), "{file} {form:?}: {}", run.stderr);
            assert_eq!(run.stderr.lines().count(), 1, "{}", run.stderr);
            assert!(run.stderr.contains(file) && run.stderr.contains(said), "{}", run.stderr);
        }
    }
}

#[test]
fn two_captures_tell_what_was_lost_and_how_long_the_way_is() {
    let (mut here, mut there) = (Vec::new(), Vec::new());
    for number in 0_u16..200 {
        let at = 1.0 + f64::from(number) * 0.05;
        let ping = chat(2, number, at);
        // The other clock is 5.5 s ahead; the way takes 40 ms, once in ten 200 ms.
        let delay = if number % 10 == 9 { 0.2 } else { 0.04 };
        if number % 20 != 7 {
            there.push(Packet { at: at + 5.5 + delay, ..ping.clone() });
        }
        here.push(ping);
        let answer = chat(1, number, at + 0.01);
        there.push(Packet { at: answer.at + 5.5, ..answer.clone() });
        here.push(Packet { at: answer.at + 0.04, ..answer });
    }
    let by_time = |packets: &mut Vec<Packet>| packets.sort_by(|a, b| a.at.total_cmp(&b.at));
    by_time(&mut here);
    by_time(&mut there);
    let directory = directory("join");
    let [a, b] =
        [("a.pcap", pcap(&here, RAW)), ("b.pcapng", pcapng(&there, ETHERNET))].map(|(name, bytes)| {
            let path = directory.join(name);
            fs::write(&path, bytes).expect("written");
            path.to_str().expect("UTF-8").to_owned()
        });
    for files in [[&a, &b], [&b, &a]] {
        let run = bcnet(&["inspect", files[0], files[1], "--json"], b"");
        assert_eq!((run.code, run.stderr.as_str()), (0, ""));
        let [client, host] = &run.json()[..] else { panic!("{}", run.stdout) };
        assert_eq!((client["sent"].as_u64(), client["lost"].as_u64()), (Some(200), Some(10)));
        assert_eq!((host["sent"].as_u64(), host["lost"].as_u64()), (Some(200), Some(0)));
        assert_eq!((client["late"].as_u64(), host["late"].as_u64()), (Some(20), Some(0)));
        let close = |value: &Value, to: f64| (value.as_f64().expect("a number") - to).abs() < 0.001;
        assert!(close(&client["least"], 0.04) && close(&client["median"], 0.04), "{client}");
        assert!(close(&client["most"], 0.2) && close(&host["most"], 0.04), "{client} {host}");
        let offset = if files[0] == &a { 5.5 } else { -5.5 };
        assert!(close(&client["clock_offset"], offset), "{client}");
    }
    let text = bcnet(&["inspect", &a, &b], b"").stdout;
    assert!(text.contains("10, 5.00 %") && text.contains("40.0 / 40.0 / 200.0 / 200.0"), "{text}");
}

/// One is much longer than the other: what only one of them could see is neither lost nor too early.
#[test]
fn captures_that_begin_and_end_at_other_times_are_joined_where_both_are() {
    let (mut here, mut there) = (Vec::new(), Vec::new());
    for number in 0_u16..30_000 {
        let at = 1.0 + f64::from(number) * 0.01;
        let (ping, answer) = (chat(2, number, at), chat(1, number, at + 0.004));
        if number % 100 != 50 {
            there.push(Packet { at: at + 5.54, ..ping.clone() });
        }
        there.push(Packet { at: answer.at + 5.5, ..answer.clone() });
        here.extend([ping, Packet { at: answer.at + 0.04, ..answer }]);
    }
    there.retain(|packet| (290.0..300.0).contains(&packet.at));
    let files = saved("apart", [here, there]);
    for files in [[&files[0], &files[1]], [&files[1], &files[0]]] {
        let run = bcnet(&["inspect", files[0], files[1], "--json"], b"");
        assert_eq!((run.code, run.stderr.as_str()), (0, ""));
        let [client, host] = &run.json()[..] else { panic!("{}", run.stdout) };
        assert_eq!(counts(client), [1000, 10, 0, 29_000], "{client}");
        assert_eq!(counts(host), [1000, 0, 0, 29_000], "{host}");
        let delay = |way: &Value| (way["most"].as_f64().expect("a number") - 0.04).abs() < 0.001;
        assert!(delay(client) && delay(host), "{client} {host}");
    }
}

/// Two captures as files.
fn saved(name: &str, captures: [Vec<Packet>; 2]) -> [String; 2] {
    let directory = directory(name);
    let mut number = 0;
    captures.map(|mut packets| {
        packets.sort_by(|a, b| a.at.total_cmp(&b.at));
        number += 1;
        let path = directory.join(format!("{number}.pcap"));
        fs::write(&path, pcap(&packets, RAW)).expect("written");
        path.to_str().expect("UTF-8").to_owned()
    })
}

/// Some take long, some are lost and sent again: each arrival belongs to the sending that is nearest to the usual time.
#[test]
fn what_is_sent_again_is_joined_to_the_right_sending() {
    let (mut here, mut there) = (Vec::new(), Vec::new());
    let mut state = 5_u32;
    for number in 0_u16..300 {
        let at = 1.0 + f64::from(number) * 0.05;
        for sender in [1, 2] {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let jitter = f64::from(state >> 16) / 65536.0 * 0.03;
            let delay = if (sender, number) == (1, 20) { 0.9 } else { 0.04 + jitter };
            let (near, far) = if sender == 1 { (&mut there, &mut here) } else { (&mut here, &mut there) };
            near.push(chat(sender, number, at));
            if number % 15 == 7 {
                near.push(chat(sender, number, at + 1.0));
                far.push(chat(sender, number, at + 1.0 + delay));
            } else {
                far.push(chat(sender, number, at + delay));
            }
        }
    }
    let files = saved("again", [here, there]);
    let run = bcnet(&["inspect", &files[0], &files[1], "--json"], b"");
    assert_eq!((run.code, run.stderr.as_str()), (0, ""));
    for (way, most) in run.json().iter().zip([0.07, 0.9]) {
        assert_eq!((way["sent"].as_u64(), way["lost"].as_u64()), (Some(320), Some(20)), "{way}");
        let within = |key: &str, low: f64, high: f64| {
            let value = way[key].as_f64().expect("a number");
            assert!((low - 0.003..=high + 0.003).contains(&value), "{key}: {way}");
        };
        within("clock_offset", 0.0, 0.0);
        within("least", 0.04, 0.042);
        within("median", 0.05, 0.06);
        within("p99", 0.06, 0.07);
        within("most", most - 0.003, most);
    }
}

/// A server's capture has all players, and much is said to all of them at once; a player's capture has only its own.
#[test]
fn a_players_capture_is_joined_to_its_own_conversation_in_the_servers() {
    let (mut server, mut player) = (Vec::new(), Vec::new());
    for number in 0_u16..300 {
        let at = 1.0 + f64::from(number) * 0.05;
        let [low, high] = number.to_le_bytes();
        for peer in [2, 3, 4] {
            // The same state to all, a line of chat that has the same number for all, and what the player says itself.
            let said = format!("01 02 32 08 00 1C {low:02X} {high:02X} 00 00 {}", chat_message(1, number));
            let told = between(peer, packet(at + f64::from(peer) * 0.001, &said));
            let own = between(peer, chat(peer, number, at));
            if peer != 3 {
                server.extend([told, own]);
                continue;
            }
            // The way takes 300 ms; the player is behind NAT, and its clock is 5.5 s ahead.
            if number % 10 != 5 {
                player.push(behind_nat(Packet { at: told.at + 5.8, ..told.clone() }));
            }
            player.push(behind_nat(Packet { at: at + 5.5 - 0.3, ..own.clone() }));
            server.push(told);
            if number % 20 != 7 {
                server.push(own);
            }
        }
    }
    let [server, player] = saved("server-and-player", [server, player]);
    for (files, offset) in [([&server, &player], 5.5), ([&player, &server], -5.5)] {
        let run = bcnet(&["inspect", files[0], files[1], "--json"], b"");
        assert_eq!((run.code, run.stderr.as_str()), (0, ""));
        let [client, host, others @ ..] = &run.json()[..] else { panic!("{}", run.stdout) };
        assert_eq!(counts(client), [300, 15, 0, 0], "{client}");
        assert_eq!(counts(host), [600, 60, 0, 0], "{host}");
        for way in [client, host] {
            assert_eq!(way["conversations"], 1, "{way}");
            let close = |key: &str, to: f64| (way[key].as_f64().expect("a number") - to).abs() < 0.001;
            assert!(close("clock_offset", offset) && close("least", 0.3) && close("most", 0.3), "{way}");
        }
        let named: Vec<_> = others.iter().map(|life| (&life["only_in"], &life["peer"])).collect();
        let expected = [(Value::from(server.as_str()), 2.into()), (server.as_str().into(), 4.into())];
        assert_eq!(named, expected.iter().map(|(file, peer)| (file, peer)).collect::<Vec<_>>());
    }
    let text = bcnet(&["inspect", &player, &server], b"").stdout;
    assert!(text.contains("in both: 192.168.1.2:61000 = 10.0.0.2:4713 (peer 3)\n"), "{text}");
    assert!(
        text.contains(&format!("only in {server}: 10.0.0.2:4714 (peer 4) with 900 messages\n")),
        "{text}"
    );
    assert!(text.contains("15, 5.00 %         0  300.0 / 300.0 / 300.0 / 300.0\n"), "{text}");
}

/// What a host says to all is no conversation in common.
#[test]
fn captures_of_two_players_are_not_joined() {
    let captures = [2, 3].map(|peer| {
        let state =
            |number: u8| packet(f64::from(number), &format!("01 01 32 08 00 1C {number:02X} 00 00 00"));
        let mut packets: Vec<_> = (0..100).map(|number| between(peer, state(number))).collect();
        packets.push(between(peer, packet(50.5, &format!("{peer:02X} 01 02"))));
        packets
    });
    let [one, other] = saved("players", captures);
    let run = bcnet(&["inspect", &one, &other], b"");
    let told =
        format!("bcnet: {one} and {other} have no conversation in common; are they of the same traffic?\n");
    assert_eq!((run.code, run.stdout.as_str(), run.stderr), (1, "", told));
}

/// A player comes back from the same port, and the port was somebody else's before. The host goes on with the old
/// conversation until it has the new request.
#[test]
fn stays_from_the_same_address_are_told_apart() {
    let (mut server, mut player) = (Vec::new(), Vec::new());
    for (stay, peer) in [2_u8, 3, 4].into_iter().enumerate() {
        let begin = 1.0 + 10.0 * stay as f64;
        let request = format!("FF 01 03 0F C0 00 00 0A 00 00 02 {peer:02X} 0A 00 00 00 00");
        let mut said = vec![packet(begin, &request)];
        let mut told = vec![
            packet(begin + 0.01, &format!("01 01 03 06 C0 00 00 {peer:02X}")),
            packet(begin + 0.02, "01 01 02"),
        ];
        for number in 0_u16..195 {
            let at = begin + 0.1 + f64::from(number) * 0.05;
            // All of it but the ids is the same each time.
            told.push(chat(1, number, at));
            said.push(chat(peer, number, at));
        }
        // The first stay is somebody else's.
        if stay > 0 {
            player.extend(told.iter().map(|told| Packet { at: told.at + 0.3, ..told.clone() }));
            player.extend(said.iter().map(|said| Packet { at: said.at - 0.3, ..said.clone() }));
        }
        server.extend([told, said].concat());
    }
    player.retain(|packet| packet.bytes != chat(1, 190, 0.0).bytes || packet.at < 22.0);
    let [server, player] = saved("stays", [server, player]);
    for files in [[&server, &player], [&player, &server]] {
        let run = bcnet(&["inspect", files[0], files[1], "--json"], b"");
        assert_eq!((run.code, run.stderr.as_str()), (0, ""));
        let [client, host, other] = &run.json()[..] else { panic!("{}", run.stdout) };
        assert_eq!((counts(client), counts(host)), ([392, 0, 0, 0], [392, 1, 0, 0]), "{}", run.stdout);
        assert_eq!((&client["conversations"], &client["late"]), (&2.into(), &0.into()), "{client}");
        assert_eq!((&other["peer"], &other["messages"]), (&2.into(), &392.into()), "{other}");
    }
    // Without the beginning of the last stay, which its id still tells.
    let whole = fs::read(&player).expect("there");
    let cut = whole.len() - whole.len() / 4;
    let start = (24..cut).rfind(|at| whole[*at..].starts_with(&[0x45, 0])).expect("a packet") - 16;
    fs::write(&player, [&whole[..24], &whole[start..]].concat()).expect("written");
    let run = bcnet(&["inspect", &server, &player, "--json"], b"");
    let [client, host, others @ ..] = &run.json()[..] else { panic!("{}", run.stdout) };
    assert!(client["sent"].as_u64() > Some(80) && client["outside"].as_u64() > Some(80), "{client}");
    assert_eq!((&client["lost"], &host["lost"], &host["unseen"]), (&0.into(), &1.into(), &0.into()));
    assert_eq!(others.iter().map(|life| life["peer"].as_u64()).collect::<Vec<_>>(), [Some(2), Some(3)]);
}

/// Those who only knock are not remembered without end, and players who were there before are joined as ever.
#[test]
fn a_flood_of_conversations_takes_bounded_memory() {
    let mut server: Vec<_> = (0..100).map(|number| chat(2, number, f64::from(number) * 0.1)).collect();
    let player = server.clone();
    server.extend((0..66_000_u32).map(|nonce| {
        let [a, b, c, _] = nonce.to_le_bytes();
        let request = format!("FF 01 03 0F C0 00 00 0A 00 00 02 {a:02X} {b:02X} {c:02X} 01 00 00");
        packet(10.0 + f64::from(nonce) * 0.001, &request)
    }));
    let files = saved("knocking", [server, player]);
    let run = bcnet(&["inspect", &files[0], &files[1]], b"");
    let told = "has more than 65536 conversations; 465 datagrams of later ones were not looked at";
    assert_eq!((run.code, run.stderr), (1, format!("bcnet: {}: {told}\n", files[0])));
    let lines = run.stdout.lines().count();
    assert!(run.stdout.contains("client                 100       100         0, 0.00 %"), "{}", run.stdout);
    assert!(run.stdout.contains(": 65,519 more\n") && lines < 40, "{lines} lines");
}

/// What is too long to be kept is read twice, which a pipe cannot be.
#[test]
fn long_captures_are_joined_from_files() {
    let (mut here, mut there) = (Vec::new(), Vec::new());
    for number in 0_u16..4_400 {
        let [low, high] = number.to_le_bytes();
        let states = (0_u8..60).map(|part| format!("32 08 00 1C {low:02X} {high:02X} {part:02X} 00"));
        let datagram =
            packet(f64::from(number) * 0.02, &format!("02 3C {}", states.collect::<Vec<_>>().join(" ")));
        if number >= 4_000 && number % 100 != 50 {
            there.push(Packet { at: datagram.at + 0.1, ..datagram.clone() });
        }
        here.push(datagram);
    }
    let [long, other] = saved("long", [here, there]);
    let run = bcnet(&["inspect", &long, &other, "--json"], b"");
    assert_eq!((run.code, run.stderr.as_str()), (0, ""));
    assert_eq!(counts(&run.json()[0]), [24_000, 240, 0, 240_000]);
    let run = bcnet(&["inspect", "-", &other], fs::read(&long).expect("there"));
    let told = "bcnet: standard input: is too long to be joined from a pipe; name a file\n";
    assert_eq!((run.code, run.stderr.as_str()), (2, told));
}

/// How many messages of a direction were sent, lost, not seen by the sender's capture, and not to be seen by the other.
fn counts(way: &Value) -> [u64; 4] {
    ["sent", "lost", "unseen", "outside"].map(|key| way[key].as_u64().expect("a number"))
}

/// A datagram between the host and one of several clients.
fn between(peer: u8, packet: Packet) -> Packet {
    moved(packet, CLIENT, SocketAddrV4::new(*CLIENT.ip(), 4710 + u16::from(peer)))
}

/// As a player sees it whose address is not what the server sees.
fn behind_nat(packet: Packet) -> Packet {
    let client = if packet.from == HOST { packet.to } else { packet.from };
    moved(packet, client, "192.168.1.2:61000".parse().expect("an address"))
}

fn moved(packet: Packet, old: SocketAddrV4, new: SocketAddrV4) -> Packet {
    let place = |address| if address == old { new } else { address };
    Packet { from: place(packet.from), to: place(packet.to), ..packet }
}

#[test]
fn a_report_stands_alone() {
    let directory = directory("report");
    let (capture, report) = (directory.join("<b>.pcap"), directory.join("out.html"));
    fs::write(&capture, pcap(&session(), RAW)).expect("written");
    let [capture, report] = [capture, report].map(|path| path.to_str().expect("UTF-8").to_owned());
    let run = bcnet(&["inspect", &capture, "--report", &report], b"");
    assert_eq!((run.code, run.stdout.as_str(), run.stderr.as_str()), (0, "", ""));
    let page = fs::read_to_string(&report).expect("a report");
    assert!(page.contains("&lt;b&gt;.pcap") && !page.contains("<b>"));
    assert_eq!(page.matches("<svg").count(), 6);
    assert!(page.contains("sent again, a second or more later"));
    for from_elsewhere in ["http", "src=", "href=", "<script", "url("] {
        assert!(!page.contains(from_elsewhere), "{from_elsewhere}");
    }
    let run = bcnet(&["inspect", &capture, "--report", &capture], b"");
    assert!(run.code == 2 && run.stderr.contains("is the input"), "{}", run.stderr);
}

#[cfg(not(feature = "parquet"))]
#[test]
fn without_parquet_it_is_told_how_to_get_it() {
    let run = inspect(&pcap(&session(), RAW), &["--parquet", "out.parquet"]);
    assert_eq!((run.code, run.stdout.as_str()), (2, ""));
    assert!(run.stderr.contains("--features parquet"), "{}", run.stderr);
}

#[cfg(feature = "parquet")]
#[test]
fn a_parquet_file_has_a_row_for_each_message() {
    use parquet::file::reader::{FileReader, SerializedFileReader};
    use parquet::record::RowAccessor;

    let directory = directory("parquet");
    let path = directory.join("out.parquet");
    let run = inspect(&pcap(&session(), RAW), &["--parquet", path.to_str().expect("UTF-8")]);
    assert_eq!((run.code, run.stdout.as_str(), run.stderr.as_str()), (0, "", ""));
    let reader = SerializedFileReader::new(fs::File::open(&path).expect("a file")).expect("Parquet");
    let rows: Vec<_> = reader.get_row_iter(None).expect("rows").map(|row| row.expect("a row")).collect();
    let csv = inspect(&pcap(&session(), RAW), &["--csv"]).stdout;
    assert_eq!(rows.len(), csv.lines().count() - 1);
    assert_eq!(rows[0].get_string(5).expect("a kind"), "connect");
}

#[derive(Debug, Clone)]
struct Packet {
    at: f64,
    from: SocketAddrV4,
    to: SocketAddrV4,
    /// Ciphered.
    bytes: Vec<u8>,
}

/// A client joins on ports that nobody expects, and chats. The third line is lost and sent again, and ACKs are repeated.
fn session() -> Vec<Packet> {
    let request = "FF 01 03 0F C0 00 00 0A 00 00 02 5F 0A 00 00 00 00";
    let reply = "01 02 01 00 00 02 03 06 C0 00 00 02";
    let mut packets = vec![packet(0.0, request), packet(0.02, reply), packet(0.05, "02 01 01 00 00 02")];
    for number in 0_u16..8 {
        let at = 0.1 + f64::from(number) * 0.2;
        packets.push(chat(2, number, at));
        if number != 2 {
            packets.push(packet(at + 0.02, &format!("01 01 01 {number:02X} 00 00")));
        }
        if number == 3 {
            packets.push(packet(at + 0.03, "01 02 01 00 00 02 01 00 00 00"));
        }
    }
    let again = chat(2, 2, 1.5);
    packets.push(again);
    packets.push(packet(1.53, "01 01 01 02 00 00"));
    packets.push(packet(1.6, "01 01 02"));
    packets.push(packet(1.7, "02 01 02"));
    packets.push(Packet { bytes: b"\\status\\".to_vec(), ..packet(1.9, "02 01 02") });
    packets.sort_by(|a, b| a.at.total_cmp(&b.at));
    packets
}

/// A line of chat.
fn chat(sender: u8, number: u16, at: f64) -> Packet {
    packet(at, &format!("{sender:02X} 01 {}", chat_message(sender, number)))
}

fn chat_message(sender: u8, number: u16) -> String {
    let [low, high] = number.to_le_bytes();
    format!("32 0E 80 {low:02X} {high:02X} 2C {sender:02X} 00 00 00 02 00 68 69")
}

/// A datagram from the host or the client, as its first byte says.
fn packet(at: f64, plain: &str) -> Packet {
    let mut bytes: Vec<u8> =
        plain.split_whitespace().map(|byte| u8::from_str_radix(byte, 16).expect("hex")).collect();
    cipher::encrypt(&mut bytes);
    let (from, to) = if bytes[0] == 1 { (HOST, CLIENT) } else { (CLIENT, HOST) };
    Packet { at, from, to, bytes }
}

const HOST: SocketAddrV4 = SocketAddrV4::new(std::net::Ipv4Addr::new(10, 0, 0, 1), 26000);
const CLIENT: SocketAddrV4 = SocketAddrV4::new(std::net::Ipv4Addr::new(10, 0, 0, 2), 4711);

/// A link type, and what stands in front of IP.
type Link = (u32, &'static [u8]);
const NULL: Link = (0, &[2, 0, 0, 0]);
const ETHERNET: Link = (1, &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 8, 0]);
const VLAN: Link = (1, &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 0x88, 0xA8, 0, 7, 0x81, 0, 0, 9, 8, 0]);
const RAW: Link = (101, &[]);
const LOOP: Link = (108, &[0, 0, 0, 2]);
const COOKED: Link = (113, &[0, 0, 0, 1, 0, 6, 1, 2, 3, 4, 5, 6, 0, 0, 8, 0]);
const IPV4: Link = (228, &[]);
const COOKED_2: Link = (276, &[8, 0, 0, 0, 0, 0, 0, 1, 0, 1, 0, 6, 1, 2, 3, 4, 5, 6, 0, 0]);

fn ip(packet: &Packet) -> Vec<u8> {
    let length = |extra: usize| u16::try_from(packet.bytes.len() + extra).expect("small").to_be_bytes();
    let mut bytes = vec![0x45, 0];
    bytes.extend(length(28));
    bytes.extend([0, 0, 0x40, 0, 64, 17, 0, 0]);
    bytes.extend(packet.from.ip().octets());
    bytes.extend(packet.to.ip().octets());
    bytes.extend(packet.from.port().to_be_bytes());
    bytes.extend(packet.to.port().to_be_bytes());
    bytes.extend(length(8));
    bytes.extend([0, 0]);
    bytes.extend(&packet.bytes);
    bytes
}

fn pcap(packets: &[Packet], link: Link) -> Vec<u8> {
    pcap_with(packets, link, &u32::to_le_bytes)
}

type Order = dyn Fn(u32) -> [u8; 4];

fn pcap_with(packets: &[Packet], link: Link, order: &Order) -> Vec<u8> {
    let little = order(1)[0] == 1;
    let version = if little { 0x0004_0002 } else { 0x0002_0004 };
    let head = [0xA1B2_C3D4, version, 0, 0, 262_144, link.0];
    let mut bytes: Vec<u8> = head.into_iter().flat_map(order).collect();
    for packet in packets {
        record(&mut bytes, packet.at, &[link.1, &ip(packet)].concat(), order);
    }
    bytes
}

fn record(bytes: &mut Vec<u8>, at: f64, frame: &[u8], order: &Order) {
    let micros = (at * 1e6).round() as u64;
    let length = u32::try_from(frame.len()).expect("small");
    let (seconds, rest) = (u32::try_from(micros / 1_000_000), u32::try_from(micros % 1_000_000));
    let head = [seconds.expect("early"), rest.expect("small"), length, length];
    bytes.extend(head.into_iter().flat_map(order));
    bytes.extend(frame);
}

/// With nanoseconds, a name and a comment.
fn pcapng(packets: &[Packet], link: Link) -> Vec<u8> {
    let mut bytes = Vec::new();
    block(
        &mut bytes,
        0x0A0D_0D0A,
        &[0x4D, 0x3C, 0x2B, 0x1A, 1, 0, 0, 0, 255, 255, 255, 255, 255, 255, 255, 255],
    );
    let mut interface = link.0.to_le_bytes().to_vec();
    interface.extend([0, 0, 0, 0, 2, 0, 3, 0, b'e', b't', b'h', 0, 9, 0, 1, 0, 9, 0, 0, 0, 0, 0, 0, 0]);
    block(&mut bytes, 1, &interface);
    block(&mut bytes, 0x0BAD, &[1, 2, 3, 4]);
    for packet in packets {
        let frame = [link.1, &ip(packet)].concat();
        let nanos = (packet.at * 1e6).round() as u64 * 1000;
        let length = u32::try_from(frame.len()).expect("small");
        let (high, low) = (u32::try_from(nanos >> 32).expect("32 bits"), nanos as u32);
        let mut body: Vec<u8> =
            [0, high, low, length, length].into_iter().flat_map(u32::to_le_bytes).collect();
        body.extend(&frame);
        body.resize(body.len().next_multiple_of(4), 0);
        body.extend([1, 0, 2, 0, b'h', b'i', 0, 0, 0, 0, 0, 0]);
        block(&mut bytes, 6, &body);
    }
    bytes
}

fn block(bytes: &mut Vec<u8>, kind: u32, body: &[u8]) {
    let length = u32::try_from(body.len() + 12).expect("small").to_le_bytes();
    bytes.extend(kind.to_le_bytes());
    bytes.extend(length);
    bytes.extend(body);
    bytes.extend(length);
}

fn inspect(capture: &[u8], flags: &[&str]) -> Run {
    bcnet(&[&["inspect", "-"], flags].concat(), capture)
}

/// Without findings: what nothing has explained by the end of a capture is told there.
fn datagrams(run: &Run) -> Vec<Value> {
    run.json().into_iter().filter(|entry| entry.get("finding").is_none()).collect()
}

/// Formats have their packets in different places, and not all have comments.
fn without_offsets(run: &Run) -> Vec<Value> {
    let mut lines = run.json();
    for entry in &mut lines {
        let entry = entry.as_object_mut().expect("an object");
        entry.remove("offset");
        entry.remove("comment");
    }
    lines
}

fn messages(run: &Run) -> usize {
    run.json().iter().filter_map(|entry| entry["messages"].as_array()).map(Vec::len).sum()
}

/// An empty directory of this test.
fn directory(name: &str) -> PathBuf {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("inspect").join(name);
    let _ = fs::remove_dir_all(&directory);
    fs::create_dir_all(&directory).expect("a directory");
    directory
}
