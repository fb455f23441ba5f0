//! Queries of browsers and list servers, and heartbeats (S-05 to S-09).

use std::net::SocketAddrV4;
use std::time::Duration;

use bcnet_session::{Config, Mission, Session, System};
use bcnet_transport::Time;

use crate::play::world_with_players;
use crate::vectors::bytes;
use crate::world::{HOST, TestWorld};

const SECOND: Duration = Duration::from_secs(1);

fn browser_address() -> SocketAddrV4 {
    "198.51.100.7:4000".parse().expect("an address")
}

fn ask(world: &mut TestWorld, query: &[u8]) -> Vec<String> {
    world.sent_elsewhere.clear();
    world.inject(browser_address(), query);
    world.run(SECOND);
    let replies = world.sent_elsewhere.drain(..);
    replies
        .map(|(to, bytes)| {
            assert_eq!(to, browser_address());
            bytes.iter().map(|byte| char::from(*byte)).collect()
        })
        .collect()
}

/// S-06: the captured reply, byte for byte.
#[test]
fn reply_matches_the_stock_server() {
    let config = Config { name: "My Game23".into(), list_host_as_player: true, ..Config::default() };
    let mut world = TestWorld::new(config);
    ask(&mut world, b"\\status\\");
    world.inject(browser_address(), &bytes("gs-status-query"));
    world.run(SECOND);
    assert_eq!(world.sent_elsewhere, [(browser_address(), bytes("gs-status-reply"))]);
}

/// S-05, S-06
#[test]
fn each_query_gets_its_own_section() {
    let config = Config {
        name: "Tést\\\u{7}🖖".into(),
        password: Some("x".into()),
        time_limit: Some(20),
        frag_limit: Some(15),
        player_limit: 6,
        system: System::from_name("poseidon").expect("a system"),
        mission: Mission { short_name: "TDM".into(), ..Mission::default() },
        ..Config::default()
    };
    let mut world = TestWorld::new(config);
    let basic = "\\gamename\\bcommander\\gamever\\60\\location\\1";
    let info = "\\hostname\\*Tést ?\\missionscript\\Multiplayer.Episode.Mission1.Mission1\\mapname\\TDM\\numplayers\\0\\maxplayers\\6\\gamemode\\openplaying";
    let rules = "\\timelimit\\20\\fraglimit\\15\\system\\Poseidon\\password\\1";
    let all = format!("{basic}{info}{rules}");
    for (at, (query, parts)) in [
        (&b"\\basic\\"[..], basic),
        (b"\\info\\xserverquery", info),
        (b"\\rules\\xserverquery", rules),
        (b"\\players\\xserverquery", ""),
        (b"\\status\\xserverquery", &all),
        (b"\\echo\\hello", "\\echo\\hello"),
    ]
    .into_iter()
    .enumerate()
    {
        let expected = format!("{parts}\\final\\\\queryid\\{}.1", at + 1);
        assert_eq!(ask(&mut world, query), [expected]);
    }
    assert_eq!(ask(&mut world, b"\\heartbeat\\"), [] as [String; 0]);
    let counters = world.session.counters();
    assert_eq!((counters.queries, counters.queries_answered, counters.queries_limited), (7, 6, 0));
}

/// S-06: the reply lists every player, and `numplayers` counts exactly those.
#[test]
fn reply_lists_the_current_players() {
    let mut world = world_with_players(Config { time_limit: Some(1), ..Config::default() }, 0);
    for name in ["Müller", "Back\\slash", "Ctrl\u{1}", "日本"] {
        world.join(name);
    }
    let reply = ask(&mut world, b"\\status\\").remove(0);
    assert!(reply.contains("\\numplayers\\4\\"), "{reply}");
    let list = "\\player_0\\Müller\\player_1\\Backslash\\player_2\\Ctrl\\player_3\\??\\final\\";
    assert!(reply.contains(list), "{reply}");
    world.leave_and_wait(&[1]);
    world.run(SECOND);
    let reply = ask(&mut world, b"\\players\\").remove(0);
    assert_eq!(reply, "\\player_0\\Müller\\player_1\\Ctrl\\player_2\\??\\final\\\\queryid\\2.1");
    world.run(60 * SECOND);
    assert!(ask(&mut world, b"\\info\\")[0].contains("\\gamemode\\settings\\"));
}

/// S-06: sixteen long names do not fit one datagram.
#[test]
fn long_reply_is_split_into_datagrams() {
    let mut world = world_with_players(Config { player_limit: 16, ..Config::default() }, 0);
    for n in 0..16 {
        world.join(&format!("{n:02}{}", "x".repeat(98)));
    }
    let pieces = ask(&mut world, b"\\status\\");
    assert_eq!(pieces.len(), 2);
    assert!(pieces.iter().all(|piece| piece.len() <= 1349));
    assert!(pieces[0].ends_with("\\queryid\\1.1") && !pieces[0].contains("\\final\\"));
    assert!(pieces[1].ends_with("\\final\\\\queryid\\1.2"));
    for n in 0..16 {
        assert!(pieces.iter().any(|piece| piece.contains(&format!("\\player_{n}\\{n:02}xx"))));
    }
}

/// S-07: the replies that an attacker can direct at another address, with the longest names.
#[test]
fn network_gets_only_its_share_of_bytes() {
    let mut world = world_with_players(Config { player_limit: 16, ..Config::default() }, 0);
    for n in 0..16 {
        world.join(&format!("{n:02}{}", "x".repeat(98)));
    }
    let mut sent: Vec<(Time, usize)> = Vec::new();
    for step in 0..1_000_u32 {
        for query in [
            &b"\\status\\"[..],
            b"\\players\\",
            b"\\packets\\",
            b"\\info\\",
            b"\\status\\\\echo\\x\\secure\\ABCDEF",
        ] {
            let last = u8::try_from(step % 250).expect("a byte");
            world.inject(SocketAddrV4::new([198, 51, 100, last].into(), 4000), query);
        }
        world.sent_elsewhere.clear();
        world.run(Duration::from_millis(50));
        let now = world.now;
        sent.extend(world.sent_elsewhere.iter().map(|(_, bytes)| (now, bytes.len())));
    }
    let in_ten_seconds = |(end, _): &(Time, usize)| {
        let inside = |(at, _): &&(Time, usize)| at <= end && end.since(*at) < 10 * SECOND;
        sent.iter().filter(inside).map(|(_, len)| len).sum::<usize>()
    };
    let most = sent.iter().map(in_ten_seconds).max().expect("some replies");
    assert!((18_000..=26_000).contains(&most), "{most}");
    let counters = world.session.counters();
    assert_eq!(counters.queries_answered + counters.queries_limited, 5_000);
}

/// S-07: 20,000 spoofed queries per second, and a browser that asks up to three times in five seconds.
#[test]
fn browser_is_answered_during_a_forged_query_flood() {
    let mut session = Session::new(Config::default(), 1701);
    let (mut buffer, mut answered, mut forged) = ([0; 2048], 0, 0_u32);
    let mut random = bcnet_lab::Rng::new(5);
    let mut is_waiting = false;
    for millis in 0..20_000_u64 {
        let now = Time::from_micros(millis * 1000);
        for _ in 0..20 {
            let address =
                0x0B00_0000 + u32::try_from(random.between(0, 65_000 * 256 - 1)).expect("a small number");
            session.handle_datagram(
                SocketAddrV4::new(address.into(), 53),
                &mut b"\\status\\".to_owned(),
                now,
            );
        }
        // Three queries, and then a pause.
        if [0, 1_700, 3_400].contains(&(millis % 5_000)) {
            is_waiting |= millis % 5_000 == 0;
            if is_waiting {
                session.handle_datagram(browser_address(), &mut b"\\status\\".to_owned(), now);
            }
        }
        while let Some(transmit) = session.poll_transmit(&mut buffer, now) {
            if transmit.to == browser_address() {
                (is_waiting, answered) = (false, answered + 1);
            } else {
                forged += 1;
            }
        }
    }
    assert_eq!(answered, 4, "an answer to each series of queries");
    assert!(forged < 20 * 70, "{forged}");
}

/// S-05: an attacker that makes one server query another causes one reply, and no more.
#[test]
fn two_servers_do_not_answer_each_other() {
    let [mut one, mut other] = [7, 8].map(|seed| Session::new(Config::default(), seed));
    for query in [&b"\\echo\\status"[..], b"\\status\\", b"\\status\\\\echo\\status\\secure\\echo"] {
        one.handle_datagram(browser_address(), &mut query.to_vec(), Time::ZERO);
        let mut buffer = [0; 2048];
        let reply = one.poll_transmit(&mut buffer, Time::ZERO).expect("a reply");
        other.handle_datagram(HOST, &mut buffer[..reply.len].to_vec(), Time::ZERO);
        assert_eq!(other.poll_transmit(&mut buffer, Time::ZERO), None);
    }
    assert_eq!(other.counters().queries_limited, 0, "replies are not queries");
}

/// S-08, S-09
#[test]
fn list_server_gets_heartbeats_and_its_last_contact_is_stored() {
    let master: SocketAddrV4 = "203.0.113.5:27900".parse().expect("an address");
    let config = Config { masters: vec![master], advertise_port: 30_000, ..Config::default() };
    let mut world = TestWorld::new(config.clone());
    world.run(130 * SECOND);
    let heartbeat = (master, b"\\heartbeat\\30000\\gamename\\bcommander".to_vec());
    assert_eq!(world.sent_elsewhere, [heartbeat.clone(), heartbeat.clone()]);
    assert_eq!(world.session.status(world.now).masters, [(master, None)]);
    // The list server's query comes from the next port.
    let query_port = SocketAddrV4::new(*master.ip(), 27901);
    world.sent_elsewhere.clear();
    world.inject(query_port, b"\\secure\\VSEQNJ");
    world.run(SECOND);
    let answer =
        b"\\gamename\\bcommander\\gamever\\60\\location\\1\\validate\\I5p3Pqlb\\final\\\\queryid\\1.1";
    assert_eq!(world.sent_elsewhere, [(query_port, answer.to_vec())]);
    assert_eq!(world.event_names(), ["master_seen"]);
    let seen = world.session.status(world.now).masters[0].1.expect("a datagram has arrived");
    assert!(seen <= 2 * SECOND);
    world.sent_elsewhere.clear();
    world.run(600 * SECOND);
    assert_eq!(world.sent_elsewhere.len(), 10);
    // A new port is announced at once, then at the usual interval.
    world.sent_elsewhere.clear();
    world.session.reconfigure(Config { advertise_port: 30_001, ..config.clone() }, world.now);
    world.run(SECOND);
    let moved = (master, b"\\heartbeat\\30001\\gamename\\bcommander".to_vec());
    assert_eq!(world.sent_elsewhere, [moved]);
    world.session.reconfigure(Config { masters: vec![], ..config }, world.now);
    world.sent_elsewhere.clear();
    world.run(200 * SECOND);
    assert_eq!(world.sent_elsewhere, []);
}

/// S-09: the session reports each silence once.
#[test]
fn silent_list_server_emits_an_event() {
    let master: SocketAddrV4 = "203.0.113.5:27900".parse().expect("an address");
    let mut world = TestWorld::new(Config { masters: vec![master], ..Config::default() });
    world.run(299 * SECOND);
    assert_eq!(world.event_names(), [] as [&str; 0], "not lost yet");
    world.run(600 * SECOND);
    assert_eq!(world.event_names(), ["master_lost"]);
    world.inject(master, b"\\secure\\VSEQNJ");
    world.run(299 * SECOND);
    assert_eq!(world.event_names(), ["master_lost", "master_seen"]);
    world.run(600 * SECOND);
    assert_eq!(world.event_names(), ["master_lost", "master_seen", "master_lost"]);
}

/// S-09: without list servers, a session sends no heartbeats.
#[test]
fn session_sends_nothing_unsolicited() {
    let mut world = TestWorld::new(Config::default());
    assert_eq!(world.session.next_timeout(), None);
    world.run(1000 * SECOND);
    assert_eq!(world.sent_elsewhere, []);
}

/// S-06: a buffer that is too short for a reply is an error of the caller, so the reply must not be lost silently.
#[test]
#[should_panic(expected = "the buffer has 16 bytes, but the GameSpy text has")]
fn short_transmit_buffer_panics() {
    let mut session = Session::new(Config::default(), 1);
    session.handle_datagram(HOST, &mut b"\\status\\".to_owned(), Time::ZERO);
    session.poll_transmit(&mut [0; 16], Time::ZERO);
}
