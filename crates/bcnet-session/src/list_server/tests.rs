use std::net::Ipv4Addr;

use super::*;

const HEARTBEAT: &[u8] = b"\\heartbeat\\22150\\gamename\\bcommander";
const FINAL_HEARTBEAT: &[u8] = b"\\heartbeat\\22150\\gamename\\bcommander\\final\\";
const STATUS_REPLY: &[u8] = b"\\gamename\\bcommander\\hostname\\x\\final\\\\queryid\\1.1";

fn at(seconds: u64) -> Time {
    Time::ZERO + Duration::from_secs(seconds)
}

fn address(ip: [u8; 4], port: u16) -> SocketAddrV4 {
    SocketAddrV4::new(ip.into(), port)
}

/// Returns the right answer to a challenge.
fn answer(question: &[u8]) -> Vec<u8> {
    let challenge = question.strip_prefix(b"\\secure\\").expect("a challenge");
    format!("\\gamename\\bcommander\\validate\\{}\\final\\\\queryid\\1.1", challenge_response(challenge))
        .into_bytes()
}

/// Sends a heartbeat and answers the challenge. Returns the status query.
fn prove_address(
    list: &mut ServerList,
    from: SocketAddrV4,
    heartbeat: &[u8],
    now: Time,
) -> Option<OutgoingDatagram> {
    let (to, question) = list.handle_datagram(from, heartbeat, now)?;
    assert_eq!(to, from);
    list.handle_datagram(from, &answer(&question), now)
}

/// Returns a list with one server, which has sent its status.
fn list_with_one_server(from: SocketAddrV4, now: Time) -> ServerList {
    let mut list = ServerList::new(1701);
    add_server(&mut list, from, now);
    list
}

fn add_server(list: &mut ServerList, from: SocketAddrV4, now: Time) {
    let heartbeat = format!("\\heartbeat\\{}\\gamename\\bcommander", from.port());
    prove_address(list, from, heartbeat.as_bytes(), now);
    list.handle_datagram(from, STATUS_REPLY, now);
}

#[test]
fn server_is_listed_after_proof_and_status() {
    let (mut list, from, players) =
        (ServerList::new(1701), address([192, 0, 2, 1], 40_000), address([192, 0, 2, 1], 22150));
    assert_eq!(prove_address(&mut list, from, HEARTBEAT, at(0)), Some((players, STATUS_QUERY.to_vec())));
    assert_eq!(list.listed().len(), 0);
    list.handle_datagram(from, STATUS_REPLY, at(1));
    assert_eq!(list.listed().len(), 0, "not the port for players");
    list.handle_datagram(players, STATUS_REPLY, at(1));
    assert_eq!(list.listed().into_iter().collect::<Vec<_>>(), [players]);
    assert_eq!(list.take_events(), [ListEvent::Listed(players)]);
}

#[test]
fn server_with_wrong_answer_is_not_listed() {
    let (mut list, from) = (ServerList::new(1701), address([192, 0, 2, 1], 22150));
    let (_, question) = list.handle_datagram(from, HEARTBEAT, at(0)).expect("a challenge");
    let wrong = b"\\gamename\\bcommander\\validate\\AAAAAAAA\\final\\";
    assert_eq!(list.handle_datagram(from, wrong, at(0)), None);
    assert_eq!(list.take_events(), [ListEvent::WrongAnswer(from)]);
    list.handle_datagram(from, STATUS_REPLY, at(0));
    assert_eq!(list.listed().len(), 0);
    let other = address([192, 0, 2, 2], 22150);
    assert_eq!(list.handle_datagram(other, &answer(&question), at(1)), None, "the answer of another server");
    assert_eq!(list.handle_datagram(from, &answer(&question), at(200)), None, "too late");
    assert!(list.handle_datagram(from, HEARTBEAT, at(200)).is_some(), "a second attempt");
}

#[test]
fn server_expires_after_three_unanswered_queries() {
    let from = address([192, 0, 2, 1], 22150);
    let mut list = list_with_one_server(from, at(0));
    let question = vec![(from, STATUS_QUERY.to_vec())];
    assert_eq!(list.poll_servers(at(59)), []);
    assert_eq!(list.poll_servers(at(60)), question);
    list.handle_datagram(from, STATUS_REPLY, at(61));
    for seconds in [120, 180, 240] {
        assert_eq!(list.poll_servers(at(seconds)), question);
        assert_eq!(list.listed().len(), 1);
    }
    list.take_events();
    assert_eq!(list.poll_servers(at(299)), []);
    assert_eq!(list.poll_servers(at(300)), []);
    assert_eq!((list.listed().len(), list.take_events()), (0, vec![ListEvent::Expired(from)]));
    assert_eq!(list.address_limiter.count_of_address(*from.ip()), 0);
}

#[test]
fn status_reply_resets_the_unanswered_count() {
    let from = address([192, 0, 2, 1], 22150);
    let mut list = list_with_one_server(from, at(0));
    for round in 1..100 {
        assert_eq!(list.poll_servers(at(round * 60)).len(), 1);
        if round % 3 == 0 {
            list.handle_datagram(from, STATUS_REPLY, at(round * 60 + 1));
        }
    }
    assert_eq!(list.listed().len(), 1);
    assert_eq!(
        list.handle_datagram(from, HEARTBEAT, at(99 * 60 + 9)),
        None,
        "the last query was sent a moment ago"
    );
    assert!(list.handle_datagram(from, HEARTBEAT, at(99 * 60 + 10)).is_some());
}

#[test]
fn final_heartbeat_delists_until_the_server_answers() {
    let from = address([192, 0, 2, 1], 22150);
    let mut list = list_with_one_server(from, at(0));
    assert_eq!(list.handle_datagram(from, FINAL_HEARTBEAT, at(1)), Some((from, STATUS_QUERY.to_vec())));
    assert_eq!(list.listed().len(), 0);
    // The server still answers: the final heartbeat was spoofed.
    list.handle_datagram(from, STATUS_REPLY, at(1));
    assert_eq!(list.listed().len(), 1);
    assert_eq!(
        list.handle_datagram(from, FINAL_HEARTBEAT, at(2)),
        None,
        "too early for another final heartbeat"
    );
    assert_eq!(list.listed().len(), 1);
    list.handle_datagram(from, FINAL_HEARTBEAT, at(11)).expect("a question");
    assert_eq!(list.listed().len(), 0);
    list.take_events();
    assert_eq!(list.poll_servers(at(21)), []);
    assert_eq!((list.servers.len(), list.take_events()), (0, vec![ListEvent::Left(from)]));
    let stranger = address([192, 0, 2, 9], 22150);
    assert_eq!(list.handle_datagram(stranger, FINAL_HEARTBEAT, at(22)), None);
}

#[test]
fn heartbeat_cannot_change_the_port_of_a_responsive_server() {
    let from = address([192, 0, 2, 1], 22150);
    let mut list = list_with_one_server(from, at(0));
    let moved = b"\\heartbeat\\666\\gamename\\bcommander";
    assert_eq!(list.handle_datagram(from, moved, at(20)), Some((from, STATUS_QUERY.to_vec())));
    assert_eq!(list.listed().into_iter().collect::<Vec<_>>(), [from]);
    // The server does not answer at the old port any more.
    assert_eq!(list.handle_datagram(from, moved, at(30)), Some((from, STATUS_QUERY.to_vec())));
    let there = address([192, 0, 2, 1], 666);
    assert_eq!(list.handle_datagram(from, moved, at(40)), Some((there, STATUS_QUERY.to_vec())));
    list.handle_datagram(there, STATUS_REPLY, at(40));
    assert_eq!(list.listed().into_iter().collect::<Vec<_>>(), [there]);
}

#[test]
fn port_zero_means_default_and_other_games_are_ignored() {
    let (mut list, from) = (ServerList::new(1701), address([192, 0, 2, 1], 1));
    let stock = b"\\heartbeat\\0\\gamename\\bcommander\\statechanged\\1";
    assert_eq!(prove_address(&mut list, from, stock, at(0)).map(|(to, _)| to.port()), Some(22101));
    for text in [
        &b"\\heartbeat\\22101\\gamename\\ut"[..],
        b"\\heartbeat\\22101",
        b"\\heartbeat\\99999\\gamename\\bcommander",
        b"\\heartbeat\\",
        b"\\heartbeat",
        b"\\",
        b"",
        b"\x01\xFF",
    ] {
        assert_eq!(list.handle_datagram(address([192, 0, 2, 9], 1), text, at(0)), None, "{text:?}");
    }
}

/// Spoofed heartbeats and wrong answers do not keep real servers out.
///
/// The flood has 20,000 heartbeats per second. Each real server answers its challenge within a second.
#[test]
fn forged_heartbeats_do_not_block_listing() {
    let good = address([192, 0, 2, 1], 22150);
    let mut list = list_with_one_server(good, at(0));
    let mut pending: Vec<(SocketAddrV4, Vec<u8>)> = Vec::new();
    for n in 0..400_000_u32 {
        let now = Time::from_micros(u64::from(n) * 50);
        let forged = SocketAddrV4::new(
            Ipv4Addr::from(0x0B00_0000 + n.wrapping_mul(2_654_435_761) % 16_640_000),
            22101,
        );
        let (to, question) = list.handle_datagram(forged, HEARTBEAT, now).expect("a challenge");
        assert!(to == forged && question.len() < HEARTBEAT.len());
        list.handle_datagram(forged, b"\\validate\\AAAAAAAA", now);
        if n % 20_000 == 0 {
            for (from, question) in pending.drain(..) {
                let (listed, _) = list.handle_datagram(from, &answer(&question), now).expect("a question");
                list.handle_datagram(listed, STATUS_REPLY, now);
            }
            let from = address([198, 51, 100, u8::try_from(n / 20_000).expect("fewer than 256")], 22150);
            let (_, question) = list.handle_datagram(from, HEARTBEAT, now).expect("a challenge");
            pending.push((from, question));
        }
    }
    assert_eq!((list.listed().len(), list.servers.len()), (1 + 19, 1 + 19));
    assert!(list.events.len() <= MAX_LIST_EVENTS);
}

#[test]
fn one_network_cannot_fill_the_list() {
    let good = address([192, 0, 2, 1], 22150);
    let mut list = list_with_one_server(good, at(0));
    for port in 1..1000 {
        add_server(&mut list, address([192, 0, 2, 66], port), at(30));
    }
    assert_eq!(list.listed().len(), 1 + MAX_PER_ADDRESS);
    for host in 100..104 {
        for port in 1..1000 {
            add_server(&mut list, address([192, 0, 2, host], port), at(100));
        }
    }
    assert_eq!(list.listed().len(), MAX_PER_NETWORK);
    // When the network is at its limit, a server that does not answer is evicted.
    for seconds in [160, 220] {
        list.poll_servers(at(seconds));
    }
    add_server(&mut list, address([192, 0, 2, 7], 22150), at(230));
    assert!(list.listed().contains(&address([192, 0, 2, 7], 22150)));
    assert_eq!(list.address_limiter.count_of_network([192, 0, 2, 0].into()), MAX_PER_NETWORK);
}

/// The attacker's servers fill the list, and all of them answer correctly.
#[test]
fn full_list_evicts_from_the_largest_network() {
    let mut list = ServerList::new(1701);
    for n in 0..u16::try_from(MAX_SERVERS).expect("fits 16 bits") {
        add_server(&mut list, address([10, 0, u8::try_from(n / 64).expect("fits a byte"), 1], 1 + n), at(0));
    }
    assert_eq!(list.listed().len(), MAX_SERVERS);
    list.take_events();
    for n in 0..40 {
        let honest = address([198, 51, n, 1], 22150);
        add_server(&mut list, honest, at(100 + u64::from(n)));
        assert!(list.listed().contains(&honest));
    }
    assert_eq!(list.listed().len(), MAX_SERVERS);
    assert!(list.take_events().iter().any(|event| matches!(event, ListEvent::Evicted(_))));
    // Another server of the largest network is not admitted.
    assert_eq!(prove_address(&mut list, address([10, 0, 9, 200], 1), HEARTBEAT, at(200)), None);
}

#[test]
fn list_formats_match_the_wire() {
    let servers = BTreeSet::from([address([10, 0, 0, 1], 22101), address([192, 0, 2, 1], 258)]);
    assert_eq!(
        ListFormat::Compact.write(&servers),
        b"\x0A\x00\x00\x01\x56\x55\xC0\x00\x02\x01\x01\x02\\final\\"
    );
    assert_eq!(ListFormat::Text.write(&servers), b"\\ip\\10.0.0.1:22101\\ip\\192.0.2.1:258\\final\\");
    assert_eq!(ListFormat::Compact.write(&BTreeSet::new()), LIST_END);
}
