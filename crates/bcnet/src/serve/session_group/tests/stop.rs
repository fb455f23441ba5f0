//! A session that is stopped, and begins again.

use super::*;
use crate::serve::session_host::Begins;

/// Stops the session as operators do.
fn stop(world: &mut World) {
    world.group.act(0, world.now, |host, _, now| assert!(host.stop(now)));
    assert_eq!(world.group.hosts[0].state(), "stopping");
}

#[test]
fn a_session_is_stopped_when_all_have_heard_the_goodbye_and_begins_no_sooner() {
    let mut world = World::new(1);
    let kirk = world.join(0);
    world.settle();
    assert_eq!((world.group.hosts[0].state(), world.group.hosts[0].start(world.now)), ("open", None));
    stop(&mut world);
    world.turn();
    // Kirk has heard it, but has not said so yet.
    let host = &mut world.group.hosts[0];
    assert_eq!((host.state(), host.stop(world.now)), ("stopping", false));
    assert_eq!(host.start(world.now), Some(Begins::WhenAllHaveLeft));
    assert_eq!((host.state(), host.start(world.now)), ("starting", Some(Begins::WhenAllHaveLeft)));
    assert!(host.stop(world.now) && host.state() == "stopping", "or not at all");
    world.settle();
    let host = &mut world.group.hosts[0];
    assert_eq!((host.state(), host.start(world.now), host.state()), ("stopped", Some(Begins::Now), "open"));
    assert_eq!(world.players[kirk].gone, Some(End::HostLeft));
    world.join(0);
}

#[test]
fn whoever_does_not_hear_the_goodbye_keeps_nobody_out_for_ever() {
    let mut world = World::new(1);
    world.join(0);
    world.settle();
    world.players.clear();
    stop(&mut world);
    assert_eq!(world.group.hosts[0].start(world.now), Some(Begins::WhenAllHaveLeft));
    // Nothing arrives any more, so the loop has to know itself when to look.
    let began = world.now;
    while world.group.hosts[0].state() == "starting" {
        world.now = world.group.next_timeout().expect("it goes on").max(world.now);
        world.group.turn(world.now);
        assert!(world.now.since(began) < Duration::from_secs(60), "it never begins");
    }
    assert_eq!(world.group.hosts[0].state(), "open");
    world.join(0);
}

#[test]
fn a_server_that_ends_begins_no_session_again() {
    let mut world = World::new(1);
    world.join(0);
    world.settle();
    stop(&mut world);
    assert_eq!(world.group.hosts[0].start(world.now), Some(Begins::WhenAllHaveLeft));
    world.group.stop(world.now);
    world.settle();
    assert_eq!(world.group.hosts[0].state(), "stopped");
    assert!(world.group.is_over(world.now));
}

#[test]
fn a_stopped_session_that_panics_stays_stopped() {
    let mut world = World::new(1);
    let panic = |world: &mut World| world.group.act(0, world.now, |_, _, _| panic!("on purpose"));
    let stopped_at_last = |world: &mut World| {
        world.settle();
        // Nobody waits for the goodbye any more.
        world.wait(2000);
        world.turn();
        let host = &mut world.group.hosts[0];
        assert_eq!((host.state(), host.is_to_renew(world.now)), ("stopped", false));
        assert_eq!((host.start(world.now), host.state()), (Some(Begins::Now), "open"));
    };
    // While it says goodbye, so that it cannot even do that, when it has said it, and if it is stopped only then.
    for panics in [1, 2] {
        world.join(0);
        world.settle();
        stop(&mut world);
        (0..panics).for_each(|_| panic(&mut world));
        assert_ne!(world.group.hosts[0].state(), "open");
        stopped_at_last(&mut world);
    }
    world.group.act(0, world.now, |host, _, now| assert!(host.stop(now) && host.state() == "stopped"));
    panic(&mut world);
    stopped_at_last(&mut world);
    world.join(0);
    world.settle();
    panic(&mut world);
    stop(&mut world);
    stopped_at_last(&mut world);
    // Who was told to begin again does.
    world.join(0);
    world.settle();
    stop(&mut world);
    assert_eq!(world.group.hosts[0].start(world.now), Some(Begins::WhenAllHaveLeft));
    panic(&mut world);
    world.settle();
    world.wait(2000);
    world.turn();
    assert_eq!(world.group.hosts[0].state(), "open");
}

#[test]
fn a_server_that_ends_is_over_even_if_a_session_panics_meanwhile() {
    let mut world = World::new(1);
    world.join(0);
    world.settle();
    world.group.stop(world.now);
    (0..2).for_each(|_| world.group.act(0, world.now, |_, _, _| panic!("on purpose")));
    world.turn();
    assert_eq!((world.group.hosts[0].state(), world.group.is_over(world.now)), ("stopped", true));
    assert_eq!(world.group.hosts[0].start(world.now), None);
}
