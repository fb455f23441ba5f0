//! A whole game over loopback, from the first player to the last, checked byte by byte against what was captured.

use bcnet_session::client::End;
use bcnet_transport::wire::BootReason;
use serde_json::Value;

use crate::player::{Player, all_until};
use crate::server::Server;

const SESSION: &str = include_str!("../../../../captures/session.json");

/// The bytes of a captured payload.
fn captured(id: &str) -> Vec<u8> {
    let file: Value = serde_json::from_str(SESSION).expect("captures/session.json");
    let vectors = file["vectors"].as_array().expect("vectors");
    let vector = vectors.iter().find(|vector| vector["id"] == id).unwrap_or_else(|| panic!("no vector {id}"));
    let digits = vector["plain"].as_str().expect("plain").as_bytes();
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).expect("ASCII"), 16).expect("hex");
    digits.chunks(2).map(byte).collect()
}

/// The slot that a player was given. Everything else of its settings is as captured, but for the time.
fn slot(player: &Player) -> u8 {
    let settings = player.heard.iter().find(|payload| payload[0] == 0).expect("settings");
    let mut expected = captured("pl-settings-a");
    expected[1..5].copy_from_slice(&settings[1..5]);
    expected[6] = settings[6];
    assert_eq!(*settings, expected);
    settings[6]
}

/// The captured ship, as a player of its own has it.
fn ship(player: &Player) -> Vec<u8> {
    let (slot, mut ship) = (slot(player), captured("pl-03-sovereign"));
    (ship[1], ship[2]) = (slot, player.client.id().0);
    ship[7..11].copy_from_slice(&object(slot));
    ship
}

fn object(slot: u8) -> [u8; 4] {
    (0x3FFF_FFFF + (u32::from(slot) << 18)).to_le_bytes()
}

/// How often a player has heard exactly these bytes.
fn times(player: &Player, payload: &[u8]) -> usize {
    player.heard.iter().filter(|heard| *heard == payload).count()
}

/// Everyone but `speaker` hears it, once.
fn said(players: &mut [Player], speaker: usize, payload: &[u8]) {
    players[speaker].send(payload);
    let others = |at: &usize| *at != speaker;
    all_until(players, |all| (0..all.len()).filter(others).all(|at| times(&all[at], payload) == 1));
    assert_eq!(times(&players[speaker], payload), 0);
}

#[test]
fn eight_players_live_through_a_whole_game() {
    let server = Server::start(&[]);
    let mut players: Vec<Player> =
        (0..8).map(|n| Player::connect(server.address(), &format!("Player {n}"))).collect();
    all_until(&mut players, |all| all.iter().all(Player::is_in_game));
    let mut slots: Vec<u8> = players.iter().map(slot).collect();
    slots.sort_unstable();
    assert_eq!(slots, [0, 1, 2, 3, 4, 5, 6, 7]);
    players.sort_by_key(slot);
    assert_eq!(Player::connect(server.address(), "Late").until_over(), End::Booted(BootReason::FULL));

    // Ships, fire, and one that its captain blows up: as captured.
    for at in 0..8 {
        let ship = ship(&players[at]);
        said(&mut players, at, &ship);
    }
    said(&mut players, 0, &captured("pl-07"));
    players[0].send(&captured("pl-13"));
    let explosion = captured("pl-06-8129-selfdestruct");
    all_until(&mut players, |all| all.iter().all(|player| times(player, &explosion) == 1));
    let line = players[3].chat_of("everything good for you?");
    players[3].send(&line);
    all_until(&mut players, |all| all.iter().all(|player| times(player, &line) == 1));

    // One leaves: its ship is taken away, and everyone is told its name.
    let mut leaver = players.pop().expect("eight");
    let gone = [&[0x18, 8, 0][..], leaver.name.as_bytes()].concat();
    leaver.leave();
    all_until(&mut players, |all| all.iter().all(|player| times(player, &gone) == 1));
    let destroyed = [&[0x14][..], &object(7)].concat();
    assert!(players.iter().all(|player| times(player, &destroyed) == 1));

    // It comes back, to its old slot, and sees the living ships as they were created.
    players.push(Player::connect(server.address(), &leaver.name));
    all_until(&mut players, |all| all[7].is_in_game());
    assert_eq!(slot(&players[7]), 7);
    let mut ships: Vec<Vec<u8>> = players[1..7].iter().map(ship).collect();
    ships.sort();
    let seen = |player: &Player| {
        let mut seen: Vec<_> = player.heard.iter().filter(|payload| payload[0] == 0x03).cloned().collect();
        seen.sort();
        seen
    };
    all_until(&mut players, |all| seen(&all[7]).len() >= ships.len());
    assert_eq!(seen(&players[7]), ships);

    // One is thrown out, and the next round begins.
    server.ask(&["kick", &players[6].name]);
    assert_eq!(players.remove(6).until_over(), End::Booted(BootReason::KICKED));
    server.ask(&["restart"]);
    all_until(&mut players, |all| all.iter().all(|player| times(player, &[0x39]) == 1));
    server.logged(&["event=\"round_started\"", "round=2"]);
    server.stop();
    all_until(&mut players, |all| all.iter().all(|player| player.over == Some(End::HostLeft)));
}

#[test]
fn only_the_password_opens_the_door() {
    let server = Server::start(&["--set", "session.password=engage"]);
    for wrong in ["", "Engage", "engage!"] {
        let mut player = Player::connect_with(server.address(), "Q", wrong);
        assert_eq!(player.until_over(), End::Booted(BootReason::WRONG_PASSWORD));
    }
    let mut player = Player::connect_with(server.address(), "Picard", "engage");
    player.until(Player::is_in_game);
}

#[test]
fn who_falls_silent_is_gone() {
    let server = Server::start(&["--set", "session.silence_timeout=6s"]);
    let _silent = Player::join(server.address(), "Silent");
    server.logged(&["event=\"left\"", "player=\"Silent\"", "reason=\"silent"]);
    assert_eq!(server.ask(&["players"])["players"], serde_json::json!([]));
}
