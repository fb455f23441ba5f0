//! Joins two captures of the same traffic.

use std::fs;
use std::net::SocketAddrV4;

use bcnet_lab::Rng;
use serde_json::Value;

use crate::captures::{
    CLIENT, ETHERNET, HOST, RAW, TestPacket, chat, chat_message, packet, pcap, pcapng, test_directory,
};
use crate::run::{ProcessOutput, bcnet};

#[test]
fn two_captures_show_loss_and_one_way_delay() {
    let (mut here, mut there) = (Vec::new(), Vec::new());
    for number in 0_u16..200 {
        let at = 1.0 + f64::from(number) * 0.05;
        let ping = chat(2, number, at);
        // The other clock is 5.5 s ahead; the delay is 40 ms, and 200 ms for one message in ten.
        let delay = if number % 10 == 9 { 0.2 } else { 0.04 };
        if number % 20 != 7 {
            there.push(TestPacket { at: at + 5.5 + delay, ..ping.clone() });
        }
        here.push(ping);
        let answer = chat(1, number, at + 0.01);
        there.push(TestPacket { at: answer.at + 5.5, ..answer.clone() });
        here.push(TestPacket { at: answer.at + 0.04, ..answer });
    }
    let by_time = |packets: &mut Vec<TestPacket>| packets.sort_by(|a, b| a.at.total_cmp(&b.at));
    by_time(&mut here);
    by_time(&mut there);
    let directory = test_directory("join");
    let [a, b] =
        [("a.pcap", pcap(&here, RAW)), ("b.pcapng", pcapng(&there, ETHERNET))].map(|(name, bytes)| {
            let path = directory.join(name);
            fs::write(&path, bytes).expect("written");
            path.to_str().expect("UTF-8").to_owned()
        });
    for files in [[&a, &b], [&b, &a]] {
        let run = bcnet(&["inspect", files[0], files[1], "--json"], b"");
        assert_eq!((run.code, run.stderr.as_str()), (0, ""));
        let lines = run.json();
        let [client, host, lost @ ..] = &lines[..] else { panic!("{}", run.stdout) };
        let numbers: Vec<u64> = lost.iter().filter_map(|lost| lost["seq"].as_u64()).collect();
        assert_eq!(numbers, [7, 27, 47, 67, 87, 107, 127, 147, 167, 187]);
        assert!(lost.iter().all(|lost| lost["lost_from"] == "client" && lost["opcode"] == 0x2C));
        assert!(lost[0]["channel"] == "game" && lost[0]["kind"] == "data" && lost[0]["time"] == 1.35);
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
    assert!(
        text.contains("\n  lost messages from the client:\n    00:00:01.350  game seq=7  0x2C Chat\n"),
        "{text}"
    );
    assert!(text.contains("10, 5.00 %") && text.contains("40.0 / 40.0 / 200.0 / 200.0"), "{text}");
}

/// One capture is much longer than the other: messages that only one could see are neither lost nor early.
#[test]
fn captures_are_joined_where_they_overlap() {
    let (mut here, mut there) = (Vec::new(), Vec::new());
    for number in 0_u16..30_000 {
        let at = 1.0 + f64::from(number) * 0.01;
        let (ping, answer) = (chat(2, number, at), chat(1, number, at + 0.004));
        if number % 100 != 50 {
            there.push(TestPacket { at: at + 5.54, ..ping.clone() });
        }
        there.push(TestPacket { at: answer.at + 5.5, ..answer.clone() });
        here.extend([ping, TestPacket { at: answer.at + 0.04, ..answer }]);
    }
    there.retain(|packet| (290.0..300.0).contains(&packet.at));
    let files = save_captures("apart", [here, there]);
    for files in [[&files[0], &files[1]], [&files[1], &files[0]]] {
        let run = bcnet(&["inspect", files[0], files[1], "--json"], b"");
        assert_eq!((run.code, run.stderr.as_str()), (0, ""));
        let [client, host] = &without_lost(&run)[..] else { panic!("{}", run.stdout) };
        assert_eq!(direction_counts(client), [1000, 10, 0, 29_000], "{client}");
        assert_eq!(direction_counts(host), [1000, 0, 0, 29_000], "{host}");
        let delay = |direction: &Value| (direction["most"].as_f64().expect("a number") - 0.04).abs() < 0.001;
        assert!(delay(client) && delay(host), "{client} {host}");
    }
}

/// Writes two captures as files.
fn save_captures(name: &str, captures: [Vec<TestPacket>; 2]) -> [String; 2] {
    let directory = test_directory(name);
    let mut number = 0;
    captures.map(|mut packets| {
        packets.sort_by(|a, b| a.at.total_cmp(&b.at));
        number += 1;
        let path = directory.join(format!("{number}.pcap"));
        fs::write(&path, pcap(&packets, RAW)).expect("written");
        path.to_str().expect("UTF-8").to_owned()
    })
}

/// Some messages are late, some are lost and retransmitted: each arrival is matched to the send with the most typical
/// delay.
#[test]
fn retransmissions_are_joined_to_the_right_sending() {
    let (mut here, mut there) = (Vec::new(), Vec::new());
    let mut rng = Rng::new(5);
    for number in 0_u16..300 {
        let at = 1.0 + f64::from(number) * 0.05;
        for sender in [1, 2] {
            let jitter = rng.fraction() * 0.03;
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
    let files = save_captures("again", [here, there]);
    let run = bcnet(&["inspect", &files[0], &files[1], "--json"], b"");
    assert_eq!((run.code, run.stderr.as_str()), (0, ""));
    for (direction, most) in without_lost(&run).iter().zip([0.07, 0.9]) {
        assert_eq!(
            (direction["sent"].as_u64(), direction["lost"].as_u64()),
            (Some(320), Some(20)),
            "{direction}"
        );
        let within = |key: &str, low: f64, high: f64| {
            let value = direction[key].as_f64().expect("a number");
            assert!((low - 0.003..=high + 0.003).contains(&value), "{key}: {direction}");
        };
        within("clock_offset", 0.0, 0.0);
        within("least", 0.04, 0.042);
        within("median", 0.05, 0.06);
        within("p99", 0.06, 0.07);
        within("most", most - 0.003, most);
    }
}

/// A server's capture has all players, and many messages to all of them. A player's capture has only its own.
#[test]
fn player_capture_joins_its_conversation_in_server_capture() {
    let (mut server, mut player) = (Vec::new(), Vec::new());
    for number in 0_u16..300 {
        let at = 1.0 + f64::from(number) * 0.05;
        let [low, high] = number.to_le_bytes();
        for peer in [2, 3, 4] {
            // The same state for all, a chat message with the same number for all, and the player's own message.
            let plain = format!("01 02 32 08 00 1C {low:02X} {high:02X} 00 00 {}", chat_message(1, number));
            let from_host = for_client(peer, packet(at + f64::from(peer) * 0.001, &plain));
            let own = for_client(peer, chat(peer, number, at));
            if peer != 3 {
                server.extend([from_host, own]);
                continue;
            }
            // The delay is 300 ms. The player is behind NAT, and its clock is 5.5 s ahead.
            if number % 10 != 5 {
                player.push(behind_nat(TestPacket { at: from_host.at + 5.8, ..from_host.clone() }));
            }
            player.push(behind_nat(TestPacket { at: at + 5.5 - 0.3, ..own.clone() }));
            server.push(from_host);
            if number % 20 != 7 {
                server.push(own);
            }
        }
    }
    let [server, player] = save_captures("server-and-player", [server, player]);
    for (files, offset) in [([&server, &player], 5.5), ([&player, &server], -5.5)] {
        let run = bcnet(&["inspect", files[0], files[1], "--json"], b"");
        assert_eq!((run.code, run.stderr.as_str()), (0, ""));
        let [client, host, others @ ..] = &without_lost(&run)[..] else { panic!("{}", run.stdout) };
        assert_eq!(direction_counts(client), [300, 15, 0, 0], "{client}");
        assert_eq!(direction_counts(host), [600, 60, 0, 0], "{host}");
        for direction in [client, host] {
            assert_eq!(direction["conversations"], 1, "{direction}");
            let close = |key: &str, to: f64| (direction[key].as_f64().expect("a number") - to).abs() < 0.001;
            assert!(
                close("clock_offset", offset) && close("least", 0.3) && close("most", 0.3),
                "{direction}"
            );
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

/// Messages of a host to all players are not a common conversation.
#[test]
fn captures_of_two_players_are_not_joined() {
    let captures = [2, 3].map(|peer| {
        let state =
            |number: u8| packet(f64::from(number), &format!("01 01 32 08 00 1C {number:02X} 00 00 00"));
        let mut packets: Vec<_> = (0..100).map(|number| for_client(peer, state(number))).collect();
        packets.push(for_client(peer, packet(50.5, &format!("{peer:02X} 01 02"))));
        packets
    });
    let [one, other] = save_captures("players", captures);
    let run = bcnet(&["inspect", &one, &other], b"");
    let message = format!(
        "bcnet: {one} and {other} have no conversation in common; check that both captured the same traffic\n"
    );
    assert_eq!((run.code, run.stdout.as_str(), run.stderr), (1, "", message));
}

/// A player rejoins from the same port, which another player used before.
///
/// The host continues the old conversation until it has the new request.
#[test]
fn player_intervals_from_one_address_are_distinguished() {
    let (mut server, mut player) = (Vec::new(), Vec::new());
    for (interval, peer) in [2_u8, 3, 4].into_iter().enumerate() {
        let begin = 1.0 + 10.0 * interval as f64;
        let request = format!("FF 01 03 0F C0 00 00 0A 00 00 02 {peer:02X} 0A 00 00 00 00");
        let mut from_client = vec![packet(begin, &request)];
        let mut from_host = vec![
            packet(begin + 0.01, &format!("01 01 03 06 C0 00 00 {peer:02X}")),
            packet(begin + 0.02, "01 01 02"),
        ];
        for number in 0_u16..195 {
            let at = begin + 0.1 + f64::from(number) * 0.05;
            // Everything except the ids is the same each time.
            from_host.push(chat(1, number, at));
            from_client.push(chat(peer, number, at));
        }
        // The first interval belongs to another player.
        if interval > 0 {
            player.extend(
                from_host.iter().map(|from_host| TestPacket { at: from_host.at + 0.3, ..from_host.clone() }),
            );
            player.extend(
                from_client
                    .iter()
                    .map(|from_client| TestPacket { at: from_client.at - 0.3, ..from_client.clone() }),
            );
        }
        server.extend([from_host, from_client].concat());
    }
    player.retain(|packet| packet.bytes != chat(1, 190, 0.0).bytes || packet.at < 22.0);
    let [server, player] = save_captures("stays", [server, player]);
    for files in [[&server, &player], [&player, &server]] {
        let run = bcnet(&["inspect", files[0], files[1], "--json"], b"");
        assert_eq!((run.code, run.stderr.as_str()), (0, ""));
        let [client, host, other] = &without_lost(&run)[..] else { panic!("{}", run.stdout) };
        assert_eq!(
            (direction_counts(client), direction_counts(host)),
            ([392, 0, 0, 0], [392, 1, 0, 0]),
            "{}",
            run.stdout
        );
        assert_eq!((&client["conversations"], &client["late"]), (&2.into(), &0.into()), "{client}");
        assert_eq!((&other["peer"], &other["messages"]), (&2.into(), &392.into()), "{other}");
    }
    // The beginning of the last interval is cut off; its id still identifies it.
    let whole = fs::read(&player).expect("there");
    let cut = whole.len() - whole.len() / 4;
    let start = (24..cut).rfind(|at| whole[*at..].starts_with(&[0x45, 0])).expect("a packet") - 16;
    fs::write(&player, [&whole[..24], &whole[start..]].concat()).expect("written");
    let run = bcnet(&["inspect", &server, &player, "--json"], b"");
    let [client, host, others @ ..] = &without_lost(&run)[..] else { panic!("{}", run.stdout) };
    assert!(client["sent"].as_u64() > Some(80) && client["outside"].as_u64() > Some(80), "{client}");
    assert_eq!((&client["lost"], &host["lost"], &host["unseen"]), (&0.into(), &1.into(), &0.into()));
    assert_eq!(others.iter().map(|life| life["peer"].as_u64()).collect::<Vec<_>>(), [Some(2), Some(3)]);
}

/// Addresses that only send requests are not remembered without limit. Earlier players are still joined.
#[test]
fn a_flood_of_conversations_takes_bounded_memory() {
    let mut server: Vec<_> = (0..100).map(|number| chat(2, number, f64::from(number) * 0.1)).collect();
    let player = server.clone();
    server.extend((0..66_000_u32).map(|nonce| {
        let [a, b, c, _] = nonce.to_le_bytes();
        let request = format!("FF 01 03 0F C0 00 00 0A 00 00 02 {a:02X} {b:02X} {c:02X} 01 00 00");
        packet(10.0 + f64::from(nonce) * 0.001, &request)
    }));
    let files = save_captures("knocking", [server, player]);
    let run = bcnet(&["inspect", &files[0], &files[1]], b"");
    let message = "more than 65536 conversations; skipped 465 datagrams of the later ones";
    assert_eq!((run.code, run.stderr), (1, format!("bcnet: {}: {message}\n", files[0])));
    let lines = run.stdout.lines().count();
    assert!(run.stdout.contains("client                 100       100         0, 0.00 %"), "{}", run.stdout);
    assert!(run.stdout.contains(": 65,519 more\n") && lines < 40, "{lines} lines");
}

/// A capture that is too long to keep is read twice, which is impossible for a pipe.
#[test]
fn long_captures_are_joined_from_files() {
    let (mut here, mut there) = (Vec::new(), Vec::new());
    for number in 0_u16..4_400 {
        let [low, high] = number.to_le_bytes();
        let states = (0_u8..60).map(|part| format!("32 08 00 1C {low:02X} {high:02X} {part:02X} 00"));
        let datagram =
            packet(f64::from(number) * 0.02, &format!("02 3C {}", states.collect::<Vec<_>>().join(" ")));
        if number >= 4_000 && number % 100 != 50 {
            there.push(TestPacket { at: datagram.at + 0.1, ..datagram.clone() });
        }
        here.push(datagram);
    }
    let [long, other] = save_captures("long", [here, there]);
    let run = bcnet(&["inspect", &long, &other, "--json"], b"");
    assert_eq!((run.code, run.stderr.as_str()), (0, ""));
    assert_eq!(direction_counts(&without_lost(&run)[0]), [24_000, 240, 0, 240_000]);
    let run = bcnet(&["inspect", "-", &other], fs::read(&long).expect("there"));
    let message =
        "bcnet: standard input: too long to join from a pipe; save it as a file and name the file\n";
    assert_eq!((run.code, run.stderr.as_str()), (2, message));
}

/// Returns the messages of a direction: sent, lost, not in the sender's capture, and outside the other capture.
fn direction_counts(direction: &Value) -> [u64; 4] {
    ["sent", "lost", "unseen", "outside"].map(|key| direction[key].as_u64().expect("a number"))
}

/// Returns a datagram between the host and one of several clients.
fn for_client(peer: u8, packet: TestPacket) -> TestPacket {
    readdressed(packet, CLIENT, SocketAddrV4::new(*CLIENT.ip(), 4710 + u16::from(peer)))
}

/// Returns a packet as a player behind NAT sees it, with another address than the server sees.
fn behind_nat(packet: TestPacket) -> TestPacket {
    let client = if packet.from == HOST { packet.to } else { packet.from };
    readdressed(packet, client, "192.168.1.2:61000".parse().expect("an address"))
}

fn readdressed(packet: TestPacket, old: SocketAddrV4, new: SocketAddrV4) -> TestPacket {
    let place = |address| if address == old { new } else { address };
    TestPacket { from: place(packet.from), to: place(packet.to), ..packet }
}

/// Returns the lines about directions and conversations, without those about lost messages.
fn without_lost(run: &ProcessOutput) -> Vec<Value> {
    run.json().into_iter().filter(|line| line.get("lost_from").is_none()).collect()
}
