//! Faults outside the game: floods, failing sockets, panics, clock jumps.

use bcnet_session::Network;

use super::*;

#[test]
fn flood_at_one_socket_does_not_starve_the_others() {
    let mut world = GroupWorld::new(2);
    let [kirk, spock] = [1, 1].map(|session| world.join(session));
    world.drain();
    let before = world.group.hosts[0].socket_counters.datagrams_in;
    let stranger = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("bind");
    for _ in 0..2 * BATCH_SIZE + 20 {
        stranger.send_to(&[9; 40], world.group.hosts[0].address).expect("sent");
    }
    // With a limit of zero, the time of each socket is over after one batch.
    world.group.receive_time_limit = Duration::ZERO;
    world.send_state_update(kirk, 1);
    world.turn();
    assert_eq!(world.take_received(spock), (vec!["1".into()], 1));
    let taken = world.group.hosts[0].socket_counters.datagrams_in - before;
    assert_eq!(
        (taken, world.group.next_timeout()),
        (BATCH_SIZE as u64, Some(Time::ZERO)),
        "the next turn receives the rest"
    );
    world.group.receive_time_limit = Duration::from_secs(60);
    world.group.turn(world.now);
    assert_eq!(world.group.hosts[0].socket_counters.datagrams_in - before, 2 * BATCH_SIZE as u64 + 20);
    assert!(world.group.next_timeout().is_some_and(|next| next > world.now), "no work is left");
}

#[cfg(target_os = "linux")]
#[test]
fn player_datagrams_get_through_an_overload() {
    let mut world = GroupWorld::new(1);
    let [kirk, spock] = [0, 0].map(|session| world.join(session));
    world.drain();
    let stranger = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("bind");
    let address = world.group.hosts[0].address;
    let flood = |datagrams| (0..datagrams).for_each(|_| drop(stranger.send_to(&[9; 40], address)));
    world.group.receive_time_limit = Duration::ZERO;
    for _ in 0..100 {
        flood(2 * BATCH_SIZE);
        world.turn();
        world.wait(5);
    }
    // From here on the receive limit no longer ends a turn early: a turn drains the socket.
    world.group.receive_time_limit = Duration::from_secs(60);
    world.turn();
    let before = world.group.hosts[0].socket_counters.datagrams_in;
    // With the system's default buffer size, a socket holds only half of these datagrams.
    flood(600);
    world.send_state_update(kirk, 1);
    world.turn();
    assert_eq!(world.take_received(spock).0, ["1"]);
    let taken = world.group.hosts[0].socket_counters.datagrams_in - before;
    assert!(taken < 380, "{taken} of 600");
    // After the overload, datagrams of all senders pass again.
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
    assert!(
        (0..5000).all(|_| host.should_record(&[id, 1], true, world.now)),
        "all datagrams of a player are recorded"
    );
    assert!(
        !host.should_record(&[id, 1], false, world.now),
        "a rejected datagram with a player's id is rate limited"
    );
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
    // The descriptor is no socket any more, and another program takes the port.
    world.group.hosts[0].socket = Socket::broken();
    let thief = UdpSocket::bind(world.group.hosts[0].address).expect("the port is free");
    let mut tries = std::collections::HashSet::new();
    for number in 0..100 {
        world.send_state_update(kirk, number);
        world.turn();
        assert_eq!(
            world.take_received(spock),
            (vec![number.to_string()], 1),
            "the other session still relays"
        );
        let next = world.group.next_timeout().expect("a retry is scheduled");
        assert!(next > world.now, "the retry is not immediate");
        let ReceiveState::Failing { next, .. } = world.group.hosts[0].receive_state else {
            panic!("the socket works")
        };
        tries.insert(next);
        world.wait(100);
    }
    assert!((5..10).contains(&tries.len()), "the delay between retries grows: {tries:?}");
    drop(thief);
    world.wait(5000);
    world.turn();
    world.turn();
    assert_eq!(world.group.hosts[0].receive_state, ReceiveState::Working);
    world.chat(picard, "we are still here");
    world.turn();
    assert_eq!(world.take_received(picard).0, ["we are still here"], "the player is still connected");
}

#[test]
fn working_socket_is_not_rebound() {
    let mut world = GroupWorld::new(1);
    world.join(0);
    let host = &mut world.group.hosts[0];
    assert!(
        !host.update_receive_state(false, world.now) && !host.update_receive_state(true, world.now),
        "a single error may be temporary"
    );
    assert!(!host.update_receive_state(true, world.now), "the retry delay is not over");
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
    // The machine was suspended for less than the silence timeout; then the clock does not advance for a
    // while.
    world.wait(30_000);
    for number in [1, 2, 3] {
        world.send_state_update(kirk, number);
        world.turn();
        assert_eq!(world.take_received(spock), (vec![number.to_string()], 1));
    }
}

#[test]
fn panicking_session_restarts_without_affecting_others() {
    // The panic happens in a command, so the group must survive it outside of a turn.
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
    let riker = world.join(0);
    assert_eq!(world.group.hosts[0].session.bans(), [ban], "the new session keeps the bans");
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
    // No player acknowledges the disconnect notice; the timeout ends the session.
    world.group.hosts[0].on_panic("third", world.now);
    world.players.clear();
    world.wait(2000);
    world.turn();
    world.join(0);
}

/// Send errors of a firewall, a full queue, a missing interface and a returning interface.
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
            let next = world.group.next_timeout().expect("a deadline");
            assert!(next > world.now, "the loop would spin: {error:?}");
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
    let stranger = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("bind");
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
