//! Sessions that the operator stops and starts again.

use bcnet_session::Network;
use bcnet_transport::wire::BootReason;

use super::*;
use crate::serve::session_host::StartTime;

/// Stops the session like `bcnet ctl stop`.
fn stop(world: &mut GroupWorld) {
    world.group.with_session(0, world.now, |host, _, now| assert!(host.stop(now)));
    assert_eq!(world.group.hosts[0].state_name(), "stopping");
}

#[test]
fn restart_waits_until_all_players_have_left() {
    let mut world = GroupWorld::new(1);
    let kirk = world.join(0);
    world.drain();
    assert_eq!((world.group.hosts[0].state_name(), world.group.hosts[0].start(world.now)), ("open", None));
    stop(&mut world);
    world.turn();
    // Kirk has the disconnect notice, but the ACK is not sent yet.
    let host = &mut world.group.hosts[0];
    assert_eq!((host.state_name(), host.stop(world.now)), ("stopping", false));
    assert_eq!(host.start(world.now), Some(StartTime::AfterPlayersLeft));
    assert_eq!((host.state_name(), host.start(world.now)), ("starting", Some(StartTime::AfterPlayersLeft)));
    assert!(host.stop(world.now) && host.state_name() == "stopping", "a stop cancels the pending start");
    world.drain();
    let host = &mut world.group.hosts[0];
    assert_eq!(
        (host.state_name(), host.start(world.now), host.state_name()),
        ("stopped", Some(StartTime::Now), "open")
    );
    assert_eq!(world.players[kirk].end, Some(DisconnectReason::HostLeft));
    world.join(0);
}

#[test]
fn unacknowledged_shutdown_does_not_block_a_restart() {
    let mut world = GroupWorld::new(1);
    world.join(0);
    world.drain();
    world.players.clear();
    stop(&mut world);
    assert_eq!(world.group.hosts[0].start(world.now), Some(StartTime::AfterPlayersLeft));
    // No datagram arrives any more, so only a deadline can wake the loop.
    let began = world.now;
    while world.group.hosts[0].state_name() == "starting" {
        world.now = world.group.next_timeout().expect("a deadline").max(world.now);
        world.group.turn(world.now);
        assert!(world.now.since(began) < Duration::from_secs(60), "the session did not start");
    }
    assert_eq!(world.group.hosts[0].state_name(), "open");
    world.join(0);
}

#[test]
fn stopping_server_restarts_no_session() {
    let mut world = GroupWorld::new(1);
    world.join(0);
    world.drain();
    stop(&mut world);
    assert_eq!(world.group.hosts[0].start(world.now), Some(StartTime::AfterPlayersLeft));
    world.group.stop(world.now);
    world.drain();
    assert_eq!(world.group.hosts[0].state_name(), "stopped");
    assert!(world.group.is_finished(world.now));
}

#[test]
fn stopped_session_stays_stopped_after_a_panic() {
    let mut world = GroupWorld::new(1);
    let panic =
        |world: &mut GroupWorld| world.group.with_session(0, world.now, |_, _, _| panic!("on purpose"));
    let assert_stops = |world: &mut GroupWorld| {
        world.drain();
        // After this time the session no longer waits for ACKs of the disconnect notice.
        world.wait(2000);
        world.turn();
        let host = &mut world.group.hosts[0];
        assert_eq!((host.state_name(), host.needs_replacement(world.now)), ("stopped", false));
        assert_eq!((host.start(world.now), host.state_name()), (Some(StartTime::Now), "open"));
    };
    // Four cases: a panic during the shutdown; a second panic, so that the session is replaced at once; a
    // panic after the shutdown; a stop after a panic.
    for panics in [1, 2] {
        world.join(0);
        world.drain();
        stop(&mut world);
        (0..panics).for_each(|_| panic(&mut world));
        assert_ne!(world.group.hosts[0].state_name(), "open");
        assert_stops(&mut world);
    }
    world
        .group
        .with_session(0, world.now, |host, _, now| assert!(host.stop(now) && host.state_name() == "stopped"));
    panic(&mut world);
    assert_stops(&mut world);
    world.join(0);
    world.drain();
    panic(&mut world);
    stop(&mut world);
    assert_stops(&mut world);
    // A session with a pending start does start.
    world.join(0);
    world.drain();
    stop(&mut world);
    assert_eq!(world.group.hosts[0].start(world.now), Some(StartTime::AfterPlayersLeft));
    panic(&mut world);
    world.drain();
    world.wait(2000);
    world.turn();
    assert_eq!(world.group.hosts[0].state_name(), "open");
}

#[test]
fn stopping_server_finishes_although_a_session_panics() {
    let mut world = GroupWorld::new(1);
    world.join(0);
    world.drain();
    world.group.stop(world.now);
    (0..2).for_each(|_| world.group.with_session(0, world.now, |_, _, _| panic!("on purpose")));
    world.turn();
    assert_eq!((world.group.hosts[0].state_name(), world.group.is_finished(world.now)), ("stopped", true));
    assert_eq!(world.group.hosts[0].start(world.now), None);
}

/// Stops the session, and starts it again when all players have left.
fn renew(world: &mut GroupWorld) {
    stop(world);
    world.drain();
    assert_eq!(world.group.hosts[0].start(world.now), Some(StartTime::Now));
}

#[test]
fn renewed_session_keeps_settings_and_bans() {
    let mut world = GroupWorld::new(1);
    world.join(0);
    world.drain();
    let ban = Network::containing(Ipv4Addr::LOCALHOST, 32);
    let host = &mut world.group.hosts[0];
    host.session.set_bans(vec![ban], world.now);
    let config = bcnet_session::Config { name: "Renamed".into(), ..host.session.config().clone() };
    host.reconfigure(config, world.now);
    renew(&mut world);
    let session = &world.group.hosts[0].session;
    assert_eq!((session.bans(), session.config().name.as_str()), (&[ban][..], "Renamed"));
    let kirk = world.connect(0);
    world.drain();
    assert_eq!(world.players[kirk].end, Some(DisconnectReason::Booted(BootReason::BANNED)));
}

#[test]
fn renewed_session_starts_without_the_output_of_the_old_one() {
    let mut world = GroupWorld::new(1);
    let kirk = world.join(0);
    world.join(0);
    world.drain();
    // A copy waits in a coalescing window when the session is replaced.
    world.group.coalescing.limits.min = LIMITS.max;
    world.wait(1000);
    world.turn();
    world.send_state_update(kirk, 1);
    world.turn();
    let host = &mut world.group.hosts[0];
    assert!(host.coalescing_since.is_some() && host.has_arrivals(), "a copy waits");
    host.replace_session(world.now);
    assert_eq!((host.coalescing_since, host.has_relayed, host.has_arrivals()), (None, false, false));
}
