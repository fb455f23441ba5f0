//! Runs the example `game` with a host and three players over loopback.

use std::thread;

use bcnet_udp::Driver;

#[path = "../examples/game.rs"]
#[expect(dead_code, reason = "the test needs no `main`")]
mod game;

#[test]
fn every_player_sees_the_chat_and_positions_of_the_others() {
    let driver = Driver::bind("127.0.0.1:0".parse().expect("an address")).expect("loopback");
    let address = driver.local_address().expect("bound");
    thread::spawn(|| game::host(driver).expect("the host runs"));
    let players = ["one", "two", "three"].map(|greeting| {
        // A player stays for a second after it has seen the others, so that they see it, too.
        let is_over = |game: &game::Game| {
            (game.positions.len() == 2 && game.chat.len() == 2 && game.ticks >= 240) || game.ticks == 2000
        };
        thread::spawn(move || game::play(address, greeting, is_over).expect("the player runs"))
    });
    let games = players.map(|player| player.join().expect("no panic"));
    for (greeting, game) in ["one", "two", "three"].iter().zip(&games) {
        assert_eq!((game.positions.len(), game.chat.len()), (2, 2), "{greeting}");
        assert!(!game.chat.values().any(|text| text == greeting), "{greeting}: {:?}", game.chat);
        for [x, y] in game.positions.values() {
            assert!((x.hypot(*y) - 1.0).abs() < 0.001, "{greeting}: {x}, {y}");
        }
    }
}
