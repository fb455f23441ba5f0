//! Tests the input formats: link types, capture formats, packet logs and damaged files.

use std::fs;

use bcnet_lab::Rng;
use serde_json::{Value, json};

use crate::captures::{
    COOKED, COOKED_2, ETHERNET, HOST, IPV4, LOOP, NULL, RAW, TestPacket, VLAN, add_pcap_record, datagrams,
    inspect, ip_packet, message_count, pcap, pcap_with, pcapng, session, test_directory, without_locations,
};
use crate::run::{bcnet, path};

#[test]
fn every_link_type_and_format_shows_the_same() {
    let expected = inspect(&pcap(&session(), RAW), &["--json"]);
    assert_eq!((expected.code, expected.stderr.as_str()), (0, ""));
    assert!(message_count(&expected) > 20, "{}", expected.stdout);
    for link in [NULL, ETHERNET, VLAN, LOOP, COOKED, COOKED_2, IPV4] {
        for capture in [pcap(&session(), link), pcapng(&session(), link)] {
            let run = inspect(&capture, &["--json"]);
            assert_eq!((run.code, run.stderr.as_str()), (0, ""), "link {link:?}");
            assert_eq!(without_locations(&run), without_locations(&expected), "link {link:?}");
            // With a single file, lines do not name it.
            assert!(run.json().iter().all(|entry| entry.get("file").is_none()), "link {link:?}");
        }
    }
    let swapped = pcap_with(&session(), RAW, &u32::to_be_bytes);
    assert_eq!(without_locations(&inspect(&swapped, &["--json"])), without_locations(&expected));
}

#[test]
fn foreign_packets_are_counted_and_not_shown() {
    let mut packets = session();
    let dns = "10.0.0.9:53".parse().expect("an address");
    packets.push(TestPacket { at: 9.0, from: dns, to: HOST, bytes: b"\x12\x34\x01\x00\x00\x01".to_vec() });
    let mut capture = pcap(&packets, RAW);
    let fragment = {
        let mut ip = ip_packet(&packets[0]);
        ip[6] = 0x20;
        ip
    };
    add_pcap_record(&mut capture, 10.0, &fragment, &u32::to_le_bytes);
    add_pcap_record(&mut capture, 10.0, &ip_packet(&packets[0])[..40], &u32::to_le_bytes);
    let run = inspect(&capture, &["--json"]);
    let mut lines = without_locations(&run);
    let last = lines.pop().expect("a last line");
    assert_eq!(lines, without_locations(&inspect(&pcap(&session(), RAW), &["--json"])));
    let skipped = "1 IPv4 fragments (the game sends none), 1 packets cut short by the capture, 1 UDP datagrams of other programs";
    assert_eq!(last, json!({"not_looked_at": skipped, "fragments": 1, "cut": 1, "foreign": 1}));
    let message = format!("bcnet: standard input: skipped: {skipped}\n");
    assert_eq!((run.code, run.stderr), (0, message));
    let words = format!("skipped: {skipped}");
    for (form, words) in [(&[][..], &words), (&["--summary"], &words), (&["--csv"], &words.replace(',', ""))]
    {
        let run = inspect(&capture, form);
        assert!(run.stdout.contains(words.as_str()), "{form:?}: {}", run.stdout);
    }
}

#[test]
fn packets_before_damage_are_shown() {
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
    let damage = format!("damaged at byte {length}: a packet claims a length of 4294967295 bytes");
    assert!(run.stderr.contains(&damage), "{}", run.stderr);
}

#[test]
fn random_bytes_after_a_capture_header_do_not_crash() {
    let mut rng = Rng::new(11);
    for capture in [pcap(&session(), ETHERNET), pcapng(&session(), ETHERNET)] {
        for _ in 0..40 {
            let mut broken = capture.clone();
            for _ in 0..8 {
                let at = 24 + rng.index(broken.len() - 24);
                broken[at] ^= rng.below(256) as u8;
            }
            let run = inspect(&broken, &["--summary"]);
            assert!(run.code < 2, "{}", run.stderr);
        }
    }
}

#[test]
fn community_packet_logs_are_read() {
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
    assert_eq!(datagrams(&run).len(), datagrams(&inspect(text.as_bytes(), &["--json"])).len() - 1);
    assert!(run.stderr.contains("1 packets cut short"), "{}", run.stderr);
    // Text has one byte for each character, as on the wire.
    let name = text.replace("\\gamename\\bcommander", "\\hostname\\K?ln").into_bytes();
    let name: Vec<u8> = name.into_iter().map(|byte| if byte == b'?' { 0xF6 } else { byte }).collect();
    let run = bcnet(&["inspect", "-", "--json"], &name);
    assert!(run.stdout.contains("\\\\hostname\\\\Köln"), "{}", run.stdout);
    let run = bcnet(&["inspect", "-"], b"neither this nor that\n");
    assert_eq!((run.code, run.stdout.as_str()), (2, ""));
    assert!(run.stderr.contains("is neither pcap nor pcapng nor a packet log"), "{}", run.stderr);
}

#[test]
fn packet_comments_are_shown() {
    let capture = pcapng(&session(), ETHERNET);
    let run = inspect(&capture, &["--json"]);
    assert!(datagrams(&run).iter().all(|entry| entry["comment"] == "hi"), "{}", run.stdout);
    let run = inspect(&capture, &[]);
    let comments = run.stdout.lines().filter(|line| line.ends_with("  # hi")).count();
    assert_eq!(comments, session().len(), "one for each packet:\n{}", run.stdout);
}

#[test]
fn unreadable_input_is_reported_in_one_line() {
    let directory = test_directory("bad");
    let empty = directory.join("empty.pcap");
    fs::write(&empty, b"").expect("written");
    let [directory, empty] = [&directory, &empty].map(|path| path.to_str().expect("UTF-8"));
    let run = bcnet(&["inspect", directory, empty], b"");
    assert_eq!((run.code, run.stdout.as_str()), (2, ""));
    assert!(run.stderr.contains("is a directory; name a file, or read"), "{}", run.stderr);
    let missing = format!("{directory}/missing.pcap");
    for (file, message) in [(empty, "is empty"), (missing.as_str(), "(os error 2)")] {
        for form in [&["--summary"][..], &["--json"], &["--csv"], &[file]] {
            let run = bcnet(&[&["inspect", file], form].concat(), b"");
            assert_eq!((run.code, run.stdout.as_str()), (2, ""), "{file} {form:?}: {}", run.stderr);
            assert_eq!(run.stderr.lines().count(), 1, "{}", run.stderr);
            assert!(run.stderr.contains(file) && run.stderr.contains(message), "{}", run.stderr);
        }
    }
}
