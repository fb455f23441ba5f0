use std::net::Ipv4Addr;

use super::*;

const HEARTBEAT: &[u8] = b"\\heartbeat\\22150\\gamename\\bcommander";
const GOODBYE: &[u8] = b"\\heartbeat\\22150\\gamename\\bcommander\\final\\";
const INFO: &[u8] = b"\\gamename\\bcommander\\hostname\\x\\final\\\\queryid\\1.1";

fn at(seconds: u64) -> Time {
    Time::ZERO + Duration::from_secs(seconds)
}

fn address(ip: [u8; 4], port: u16) -> SocketAddrV4 {
    SocketAddrV4::new(ip.into(), port)
}

/// Returns the right answer to a `\secure\` question.
fn answer(question: &[u8]) -> Vec<u8> {
    let challenge = question.strip_prefix(b"\\secure\\").expect("a challenge");
    format!("\\gamename\\bcommander\\validate\\{}\\final\\\\queryid\\1.1", validate(challenge)).into_bytes()
}

/// Brings a server up to its `\status\` question.
fn prove(list: &mut List, from: SocketAddrV4, heartbeat: &[u8], now: Time) -> Option<Outgoing> {
    let (to, question) = list.handle_datagram(from, heartbeat, now)?;
    assert_eq!(to, from);
    list.handle_datagram(from, &answer(&question), now)
}

/// A list with one server, which has told its status.
fn with_one(from: SocketAddrV4, now: Time) -> List {
    let mut list = List::new(1701);
    enter(&mut list, from, now);
    list
}

fn enter(list: &mut List, from: SocketAddrV4, now: Time) {
    let heartbeat = format!("\\heartbeat\\{}\\gamename\\bcommander", from.port());
    prove(list, from, heartbeat.as_bytes(), now);
    list.handle_datagram(from, INFO, now);
}

#[test]
fn a_server_is_listed_when_it_proved_itself_and_answers_where_players_ask() {
    let (mut list, from, players) =
        (List::new(1701), address([192, 0, 2, 1], 40_000), address([192, 0, 2, 1], 22150));
    assert_eq!(prove(&mut list, from, HEARTBEAT, at(0)), Some((players, STATUS.to_vec())));
    assert_eq!(list.listed().len(), 0);
    list.handle_datagram(from, INFO, at(1));
    assert_eq!(list.listed().len(), 0, "another port than the one players use");
    list.handle_datagram(players, INFO, at(1));
    assert_eq!(list.listed().into_iter().collect::<Vec<_>>(), [players]);
    assert_eq!(list.take_notes(), [Note::Listed(players)]);
}

#[test]
fn a_wrong_answer_lists_nobody() {
    let (mut list, from) = (List::new(1701), address([192, 0, 2, 1], 22150));
    let (_, question) = list.handle_datagram(from, HEARTBEAT, at(0)).expect("a challenge");
    let wrong = b"\\gamename\\bcommander\\validate\\AAAAAAAA\\final\\";
    assert_eq!(list.handle_datagram(from, wrong, at(0)), None);
    assert_eq!(list.take_notes(), [Note::WrongAnswer(from)]);
    list.handle_datagram(from, INFO, at(0));
    assert_eq!(list.listed().len(), 0);
    let other = address([192, 0, 2, 2], 22150);
    assert_eq!(list.handle_datagram(other, &answer(&question), at(1)), None, "somebody else's answer");
    assert_eq!(list.handle_datagram(from, &answer(&question), at(200)), None, "too late");
    assert!(list.handle_datagram(from, HEARTBEAT, at(200)).is_some(), "another try");
}

#[test]
fn a_server_is_asked_every_minute_and_gone_after_three_silences() {
    let from = address([192, 0, 2, 1], 22150);
    let mut list = with_one(from, at(0));
    let question = vec![(from, STATUS.to_vec())];
    assert_eq!(list.look_through(at(59)), []);
    assert_eq!(list.look_through(at(60)), question);
    list.handle_datagram(from, INFO, at(61));
    for seconds in [120, 180, 240] {
        assert_eq!(list.look_through(at(seconds)), question);
        assert_eq!(list.listed().len(), 1);
    }
    list.take_notes();
    assert_eq!(list.look_through(at(299)), []);
    assert_eq!(list.look_through(at(300)), []);
    assert_eq!((list.listed().len(), list.take_notes()), (0, vec![Note::Expired(from)]));
    assert_eq!(list.crowd.of_address(*from.ip()), 0);
}

#[test]
fn an_answer_makes_up_for_silences() {
    let from = address([192, 0, 2, 1], 22150);
    let mut list = with_one(from, at(0));
    for round in 1..100 {
        assert_eq!(list.look_through(at(round * 60)).len(), 1);
        if round % 3 == 0 {
            list.handle_datagram(from, INFO, at(round * 60 + 1));
        }
    }
    assert_eq!(list.listed().len(), 1);
    assert_eq!(list.handle_datagram(from, HEARTBEAT, at(99 * 60 + 9)), None, "asked a moment ago");
    assert!(list.handle_datagram(from, HEARTBEAT, at(99 * 60 + 10)).is_some());
}

#[test]
fn who_says_goodbye_is_gone_at_once_unless_it_still_answers() {
    let from = address([192, 0, 2, 1], 22150);
    let mut list = with_one(from, at(0));
    assert_eq!(list.handle_datagram(from, GOODBYE, at(1)), Some((from, STATUS.to_vec())));
    assert_eq!(list.listed().len(), 0);
    // Somebody else said so.
    list.handle_datagram(from, INFO, at(1));
    assert_eq!(list.listed().len(), 1);
    assert_eq!(list.handle_datagram(from, GOODBYE, at(2)), None, "and not again so soon");
    assert_eq!(list.listed().len(), 1);
    list.handle_datagram(from, GOODBYE, at(11)).expect("a question");
    assert_eq!(list.listed().len(), 0);
    list.take_notes();
    assert_eq!(list.look_through(at(21)), []);
    assert_eq!((list.servers.len(), list.take_notes()), (0, vec![Note::Left(from)]));
    let stranger = address([192, 0, 2, 9], 22150);
    assert_eq!(list.handle_datagram(stranger, GOODBYE, at(22)), None);
}

#[test]
fn a_server_that_answers_has_not_moved_whoever_says_so() {
    let from = address([192, 0, 2, 1], 22150);
    let mut list = with_one(from, at(0));
    let moved = b"\\heartbeat\\666\\gamename\\bcommander";
    assert_eq!(list.handle_datagram(from, moved, at(20)), Some((from, STATUS.to_vec())));
    assert_eq!(list.listed().into_iter().collect::<Vec<_>>(), [from]);
    // It does not answer there any more.
    assert_eq!(list.handle_datagram(from, moved, at(30)), Some((from, STATUS.to_vec())));
    let there = address([192, 0, 2, 1], 666);
    assert_eq!(list.handle_datagram(from, moved, at(40)), Some((there, STATUS.to_vec())));
    list.handle_datagram(there, INFO, at(40));
    assert_eq!(list.listed().into_iter().collect::<Vec<_>>(), [there]);
}

#[test]
fn port_zero_is_the_usual_port_and_other_games_are_not_ours() {
    let (mut list, from) = (List::new(1701), address([192, 0, 2, 1], 1));
    let stock = b"\\heartbeat\\0\\gamename\\bcommander\\statechanged\\1";
    assert_eq!(prove(&mut list, from, stock, at(0)).map(|(to, _)| to.port()), Some(22101));
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

/// 20,000 forged heartbeats a second, and answers to nothing; whoever answers within a second is listed.
#[test]
fn a_flood_of_forged_heartbeats_keeps_nobody_from_being_listed() {
    let good = address([192, 0, 2, 1], 22150);
    let mut list = with_one(good, at(0));
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
                list.handle_datagram(listed, INFO, now);
            }
            let from = address([198, 51, 100, u8::try_from(n / 20_000).expect("few")], 22150);
            let (_, question) = list.handle_datagram(from, HEARTBEAT, now).expect("a challenge");
            pending.push((from, question));
        }
    }
    assert_eq!((list.listed().len(), list.servers.len()), (1 + 19, 1 + 19));
    assert!(list.notes.len() <= MAX_NOTES);
}

#[test]
fn nobody_has_the_whole_list() {
    let good = address([192, 0, 2, 1], 22150);
    let mut list = with_one(good, at(0));
    for port in 1..1000 {
        enter(&mut list, address([192, 0, 2, 66], port), at(30));
    }
    assert_eq!(list.listed().len(), 1 + MAX_PER_ADDRESS);
    for host in 100..104 {
        for port in 1..1000 {
            enter(&mut list, address([192, 0, 2, host], port), at(100));
        }
    }
    assert_eq!(list.listed().len(), MAX_PER_NETWORK);
    // In its share, who does not answer gives way.
    for seconds in [160, 220] {
        list.look_through(at(seconds));
    }
    enter(&mut list, address([192, 0, 2, 7], 22150), at(230));
    assert!(list.listed().contains(&address([192, 0, 2, 7], 22150)));
    assert_eq!(list.crowd.of_network([192, 0, 2, 0].into()), MAX_PER_NETWORK);
}

/// Machines of an attacker that all answer as servers do.
#[test]
fn a_full_list_gives_way_to_networks_that_have_less() {
    let mut list = List::new(1701);
    for n in 0..u16::try_from(MAX_SERVERS).expect("few") {
        enter(&mut list, address([10, 0, u8::try_from(n / 64).expect("few"), 1], 1 + n), at(0));
    }
    assert_eq!(list.listed().len(), MAX_SERVERS);
    list.take_notes();
    for n in 0..40 {
        let honest = address([198, 51, n, 1], 22150);
        enter(&mut list, honest, at(100 + u64::from(n)));
        assert!(list.listed().contains(&honest));
    }
    assert_eq!(list.listed().len(), MAX_SERVERS);
    assert!(list.take_notes().iter().any(|note| matches!(note, Note::GaveWay(_))));
    // One more of those who have most is not let in.
    assert_eq!(prove(&mut list, address([10, 0, 9, 200], 1), HEARTBEAT, at(200)), None);
}

#[test]
fn lists_have_the_form_that_clients_read() {
    let servers = BTreeSet::from([address([10, 0, 0, 1], 22101), address([192, 0, 2, 1], 258)]);
    assert_eq!(Form::Compact.write(&servers), b"\x0A\x00\x00\x01\x56\x55\xC0\x00\x02\x01\x01\x02\\final\\");
    assert_eq!(Form::Plain.write(&servers), b"\\ip\\10.0.0.1:22101\\ip\\192.0.2.1:258\\final\\");
    assert_eq!(Form::Compact.write(&BTreeSet::new()), END);
}
