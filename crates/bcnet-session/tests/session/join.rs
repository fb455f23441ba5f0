//! From the connect request to the game.

use bcnet_session::{Config, Event};
use bcnet_transport::wire::PeerId;

use crate::vectors::{bytes, hex, payload};
use crate::world::World;

/// S-20, S-25, S-30, S-31
#[test]
fn one_player_gets_what_a_stock_server_sends() {
    let mut world = World::new(Config::default());
    let cady = world.join("Cady2");
    assert_eq!(world.id(cady), PeerId(2));
    world.run(std::time::Duration::from_secs(1));
    let received = world.take(cady);
    let requests = ["dg-connect-reply-plus-req0", "dg-req1", "dg-req2", "dg-req3", "dg-reqFF"].map(payload);
    assert_eq!(received[..5], requests);
    assert_eq!(received[5], [0x28]);
    let mut settings = received[6].clone();
    let time = f32::from_le_bytes(settings[1..5].try_into().expect("four bytes"));
    assert!((0.0..2.0).contains(&time), "{time}");
    settings[1..5].copy_from_slice(&bytes("pl-settings-a")[1..5]);
    assert_eq!(settings, bytes("pl-settings-a"));
    assert_eq!(received[7], [0x01]);
    assert_eq!(received[8], bytes("pl-35"));
    assert_eq!(received[9], hex("37 02000000 00000000 00000000 00000000"));
    let mut join = bytes("pl-17-join-a");
    join[13..17].fill(0);
    assert_eq!(received[10..], [join]);
    let names: Vec<&str> = world.events.iter().map(Event::name).collect();
    assert_eq!(names, ["joining", "joined", "round_started", "in_game"]);
}
