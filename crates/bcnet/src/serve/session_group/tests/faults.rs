//! What goes wrong beside the game: floods, sockets, panics, time.

use bcnet_session::Network;

use super::*;

#[test]
fn flood_at_one_socket_does_not_starve_the_others() {
    let mut world = GroupWorld::new(2);
    let [kirk, spock] = [1, 1].map(|session| world.join(session));
    world.drain();
    let before = world.group.hosts[0].socket_counters.datagrams_in;
    let stranger = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a socket");
    for _ in 0..2 * BATCH_SIZE + 20 {
        stranger.send_to(&[9; 40], world.group.hosts[0].address).expect("sent");
    }
    // Their time is over after a batch of each.
    world.group.receive_time_limit = Duration::ZERO;
    world.send_state_update(kirk, 1);
    world.turn();
    assert_eq!(world.take_received(spock), (vec!["1".into()], 1));
    let taken = world.group.hosts[0].socket_counters.datagrams_in - before;
    assert_eq!(
        (taken, world.group.next_timeout()),
        (BATCH_SIZE as u64, Some(Time::ZERO)),
        "the rest comes next"
    );
    world.group.receive_time_limit = Duration::from_secs(60);
    world.group.turn(world.now);
    assert_eq!(world.group.hosts[0].socket_counters.datagrams_in - before, 2 * BATCH_SIZE as u64 + 20);
    assert!(world.group.next_timeout().is_some_and(|next| next > world.now), "and then it rests");
}

#[cfg(target_os = "linux")]
#[test]
fn player_datagrams_get_through_an_overload() {
    let mut world = GroupWorld::new(1);
    let [kirk, spock] = [0, 0].map(|session| world.join(session));
    world.drain();
    let stranger = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a socket");
    let address = world.group.hosts[0].address;
    let flood = |datagrams| (0..datagrams).for_each(|_| drop(stranger.send_to(&[9; 40], address)));
    world.group.receive_time_limit = Duration::ZERO;
    for _ in 0..100 {
        flood(2 * BATCH_SIZE);
        world.turn();
        world.wait(5);
    }
    // Now and then it could be emptied because so few are let in.
    world.group.receive_time_limit = Duration::from_secs(60);
    world.turn();
    let before = world.group.hosts[0].socket_counters.datagrams_in;
    // Half of them have room where the system gives a socket no more than it does by default.
    flood(600);
    world.send_state_update(kirk, 1);
    world.turn();
    assert_eq!(world.take_received(spock).0, ["1"]);
    let taken = world.group.hosts[0].socket_counters.datagrams_in - before;
    assert!(taken < 380, "{taken} of 600");
    // When it is over everybody is heard again.
    world.drain();
    let before = world.group.hosts[0].socket_counters.datagrams_in;
    flood(1000);
    world.turn();
    assert!(world.group.hosts[0].socket_counters.datagrams_in >= before + 1000);
    world.join(0);
}

#[test]
fn flood_does_not_displace_players_from_the_capture() {
    let mut world = GroupWorld::new(1);
    let kirk = world.join(0);
    let id = world.group.hosts[0].session.players().next().expect("Kirk").id.0;
    let host = &mut world.group.hosts[0];
    let recorded = (0..5000).filter(|_| host.should_record(&[9; 40], false, world.now)).count();
    assert_eq!(recorded, 1000);
    assert!(
        !host.should_record(b"\\status\\", true, world.now)
            && !host.should_record(&[0xFF, 1], true, world.now)
    );
    assert!((0..5000).all(|_| host.should_record(&[id, 1], true, world.now)), "a player's are all there");
    assert!(!host.should_record(&[id, 1], false, world.now), "but not what only claims to be");
    world.wait(1000);
    let host = &mut world.group.hosts[0];
    assert_eq!((0..5000).filter(|_| host.should_record(&[9; 40], false, world.now)).count(), 100);
    assert!(world.take_received(kirk).0.is_empty());
}

#[test]
fn failed_socket_is_rebound_without_affecting_others() {
    let mut world = GroupWorld::new(2);
    let [picard, kirk, spock] = [0, 1, 1].map(|session| world.join(session));
    world.drain();
    // Closed and opened again by nobody: it is not a socket any more, and its port is taken.
    world.group.hosts[0].socket = Socket::broken();
    let thief = UdpSocket::bind(world.group.hosts[0].address).expect("the port is free");
    let mut tries = std::collections::HashSet::new();
    for number in 0..100 {
        world.send_state_update(kirk, number);
        world.turn();
        assert_eq!(
            world.take_received(spock),
            (vec![number.to_string()], 1),
            "the other session does not notice"
        );
        let next = world.group.next_timeout().expect("it is tried again");
        assert!(next > world.now, "but not at once");
        let ReceiveState::Failing { next, .. } = world.group.hosts[0].receive_state else {
            panic!("it works")
        };
        tries.insert(next);
        world.wait(100);
    }
    assert!((5..10).contains(&tries.len()), "ever later: {tries:?}");
    drop(thief);
    world.wait(5000);
    world.turn();
    world.turn();
    assert_eq!(world.group.hosts[0].receive_state, ReceiveState::Working);
    world.chat(picard, "we are still here");
    world.turn();
    assert_eq!(world.take_received(picard).0, ["we are still here"], "nobody had to leave");
}

#[test]
fn working_socket_is_not_rebound() {
    let mut world = GroupWorld::new(1);
    world.join(0);
    let host = &mut world.group.hosts[0];
    assert!(
        !host.update_receive_state(false, world.now) && !host.update_receive_state(true, world.now),
        "an error may pass"
    );
    assert!(!host.update_receive_state(true, world.now), "it was not waited for long enough");
    world.wait(100);
    let host = &mut world.group.hosts[0];
    assert!(!host.update_receive_state(false, world.now) && host.receive_state == ReceiveState::Working);
    assert!(!host.update_receive_state(true, world.now));
    world.wait(100);
    assert!(world.group.hosts[0].update_receive_state(true, world.now));
}

#[test]
fn time_jump_does_not_end_the_game() {
    let mut world = GroupWorld::new(1);
    let [kirk, spock] = [0, 0].map(|session| world.join(session));
    world.drain();
    // The machine slept, for less than players are silent at the most; then the clock stands still for a while.
    world.wait(30_000);
    for number in [1, 2, 3] {
        world.send_state_update(kirk, number);
        world.turn();
        assert_eq!(world.take_received(spock), (vec![number.to_string()], 1));
    }
}

#[test]
fn panicking_session_restarts_without_affecting_others() {
    // In a command, while a datagram is handled, and in the middle of sending.
    let mut world = GroupWorld::new(2);
    let [picard, kirk, spock] = [0, 1, 1].map(|session| world.join(session));
    world.drain();
    let ban = Network::containing(Ipv4Addr::new(192, 0, 2, 1), 32);
    world.group.hosts[0].session.set_bans(vec![ban], world.now);
    world.group.with_session(0, world.now, |_, _, _| panic!("on purpose"));
    world.send_state_update(kirk, 1);
    world.turn();
    assert_eq!(world.take_received(spock), (vec!["1".into()], 1));
    world.drain();
    assert_eq!(world.players[picard].end, Some(DisconnectReason::HostLeft));
    assert_eq!((world.players[kirk].end, world.players[spock].end), (None, None));
    assert_eq!(world.group.hosts[0].session.bans(), [ban], "what was forbidden still is");
    let riker = world.join(0);
    world.drain();
    world.chat(riker, "what was that?");
    world.turn();
    assert_eq!(world.take_received(riker).0, ["what was that?"]);
}

#[test]
fn session_that_cannot_shut_down_is_replaced_at_once() {
    let mut world = GroupWorld::new(1);
    world.join(0);
    let host = &mut world.group.hosts[0];
    host.on_panic("first", world.now);
    assert!(!host.needs_replacement(world.now));
    host.on_panic("second", world.now);
    assert_eq!(host.session.status(world.now).players, 0);
    let scotty = world.join(0);
    assert_eq!(world.players[scotty].end, None);
    // Nobody acknowledges the goodbye, and still it ends.
    world.group.hosts[0].on_panic("third", world.now);
    world.players.clear();
    world.wait(2000);
    world.turn();
    world.join(0);
}

/// What the system says of a firewall, a full queue, an interface that is gone and one that comes back.
#[cfg(target_os = "linux")]
const SEND_ERRORS: [i32; 4] = [libc::EPERM, libc::ENOBUFS, libc::ENETUNREACH, libc::EINVAL];
/// `WSAEACCES`, `WSAENOBUFS`, `WSAENETUNREACH`, `WSAEINVAL`.
#[cfg(windows)]
const SEND_ERRORS: [i32; 4] = [10013, 10055, 10051, 10022];

#[cfg(any(target_os = "linux", windows))]
#[test]
fn send_errors_lose_no_player() {
    for error in SEND_ERRORS {
        let mut world = GroupWorld::new(1);
        let [kirk, spock] = [0, 0].map(|session| world.join(session));
        world.drain();
        world.group.hosts[0].socket.send_error = Some(error);
        world.chat(kirk, "can you hear me?");
        for number in 0..200 {
            world.send_state_update(kirk, number);
            world.players.iter_mut().for_each(|player| player.send(world.now));
            world.turn();
            let next = world.group.next_timeout().expect("it goes on");
            assert!(next > world.now, "and burns no core: {error:?}");
            world.wait(100);
        }
        assert_eq!(world.take_received(spock), (vec![], 0));
        let unsent = world.group.hosts[0].socket_counters.unsent;
        assert!(unsent > 200, "{error:?}: {unsent}");
        world.group.hosts[0].socket.send_error = None;
        for _ in 0..200 {
            world.wait(25);
            world.players.iter_mut().for_each(|player| player.send(world.now));
            world.turn();
        }
        assert!(world.take_received(spock).0.contains(&"can you hear me?".into()), "{error:?}");
        assert_eq!(world.players.iter().map(|player| player.end).collect::<Vec<_>>(), [None, None]);
        assert_eq!(world.group.hosts[0].session.status(world.now).in_game, 2);
    }
}

#[cfg(target_os = "linux")]
#[test]
fn datagrams_dropped_by_the_system_are_counted() {
    let mut world = GroupWorld::new(1);
    let stranger = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a socket");
    for _ in 0..100_000 {
        stranger.send_to(&[9; 1000], world.group.hosts[0].address).expect("sent");
    }
    world.wait(2000);
    world.turn();
    assert!(world.group.hosts[0].socket_counters.overflowed > 10_000);
    let overflowed = world.group.hosts[0].socket_counters.overflowed;
    world.wait(2000);
    world.turn();
    assert_eq!(world.group.hosts[0].socket_counters.overflowed, overflowed);
}
