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
