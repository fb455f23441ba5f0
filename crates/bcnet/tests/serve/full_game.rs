//! A whole game over loopback, compared byte by byte with captured payloads.

use bcnet_session::client::DisconnectReason;
use bcnet_transport::wire::BootReason;
use serde_json::Value;

use crate::player::{LoopbackPlayer, run_all_until};
use crate::server::ServerProcess;

const SESSION: &str = include_str!("../../../../captures/session.json");

/// Returns the bytes of a captured payload.
fn captured_payload(id: &str) -> Vec<u8> {
    let file: Value = serde_json::from_str(SESSION).expect("captures/session.json");
    let vectors = file["vectors"].as_array().expect("vectors");
    let vector = vectors.iter().find(|vector| vector["id"] == id).unwrap_or_else(|| panic!("no vector {id}"));
    let digits = vector["plain"].as_str().expect("plain").as_bytes();
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).expect("ASCII"), 16).expect("hex");
    digits.chunks(2).map(byte).collect()
}

/// Returns the slot of a player. Asserts that its settings are as captured, except for the time and the slot.
fn slot(player: &LoopbackPlayer) -> u8 {
    let settings = player.received.iter().find(|payload| payload[0] == 0).expect("settings");
    let mut expected = captured_payload("pl-settings-a");
    expected[1..5].copy_from_slice(&settings[1..5]);
    expected[6] = settings[6];
    assert_eq!(*settings, expected);
    settings[6]
}

/// Returns the captured ship with the ids of a player.
fn ship(player: &LoopbackPlayer) -> Vec<u8> {
    let (slot, mut ship) = (slot(player), captured_payload("pl-03-sovereign"));
    (ship[1], ship[2]) = (slot, player.client.id().0);
    ship[7..11].copy_from_slice(&object_id(slot));
    ship
}

fn object_id(slot: u8) -> [u8; 4] {
    (0x3FFF_FFFF + (u32::from(slot) << 18)).to_le_bytes()
}

/// Returns how many times a player received exactly this payload.
fn times_received(player: &LoopbackPlayer, payload: &[u8]) -> usize {
    player.received.iter().filter(|received| *received == payload).count()
}

/// Sends a payload. Asserts that everyone but the sender receives it once.
fn send_and_expect_relay(players: &mut [LoopbackPlayer], sender: usize, payload: &[u8]) {
    players[sender].send(payload);
    let others = |at: &usize| *at != sender;
    run_all_until(players, |all| {
        (0..all.len()).filter(others).all(|at| times_received(&all[at], payload) == 1)
    });
    assert_eq!(times_received(&players[sender], payload), 0);
}

#[test]
fn eight_players_complete_a_full_game() {
    // All players have one address: without a limit, because it is at home.
    let server = ServerProcess::start(&["--set", "session.home_networks=127.0.0.0/8"]);
    let mut players: Vec<LoopbackPlayer> =
        (0..8).map(|n| LoopbackPlayer::connect(server.address(), &format!("Player {n}"))).collect();
    run_all_until(&mut players, |all| all.iter().all(LoopbackPlayer::is_in_game));
    let mut slots: Vec<u8> = players.iter().map(slot).collect();
    slots.sort_unstable();
    assert_eq!(slots, [0, 1, 2, 3, 4, 5, 6, 7]);
    players.sort_by_key(slot);
    assert_eq!(
        LoopbackPlayer::connect(server.address(), "Late").run_until_end(),
        DisconnectReason::Booted(BootReason::FULL)
    );

    // Ships, weapon fire and a self-destruct, as captured.
    for at in 0..8 {
        let ship = ship(&players[at]);
        send_and_expect_relay(&mut players, at, &ship);
    }
    send_and_expect_relay(&mut players, 0, &captured_payload("pl-07"));
    players[0].send(&captured_payload("pl-13"));
    let explosion = captured_payload("pl-06-8129-selfdestruct");
    run_all_until(&mut players, |all| all.iter().all(|player| times_received(player, &explosion) == 1));
    let line = players[3].chat_payload("everything good for you?");
    players[3].send(&line);
    run_all_until(&mut players, |all| all.iter().all(|player| times_received(player, &line) == 1));

    // One player leaves: its ship is removed, and all others get its name.
    let mut leaver = players.pop().expect("eight");
    let gone = [&[0x18, 8, 0][..], leaver.name.as_bytes()].concat();
    leaver.leave();
    run_all_until(&mut players, |all| all.iter().all(|player| times_received(player, &gone) == 1));
    let destroyed = [&[0x14][..], &object_id(7)].concat();
    assert!(players.iter().all(|player| times_received(player, &destroyed) == 1));

    // The player comes back to its old slot, and gets the living ships as they were created.
    players.push(LoopbackPlayer::connect(server.address(), &leaver.name));
    run_all_until(&mut players, |all| all[7].is_in_game());
    assert_eq!(slot(&players[7]), 7);
    let mut ships: Vec<Vec<u8>> = players[1..7].iter().map(ship).collect();
    ships.sort();
    let seen = |player: &LoopbackPlayer| {
        let mut seen: Vec<_> = player.received.iter().filter(|payload| payload[0] == 0x03).cloned().collect();
        seen.sort();
        seen
    };
    run_all_until(&mut players, |all| seen(&all[7]).len() >= ships.len());
    assert_eq!(seen(&players[7]), ships);

    // One player is kicked, and the next round begins.
    server.ctl_json(&["kick", &players[6].name]);
    assert_eq!(players.remove(6).run_until_end(), DisconnectReason::Booted(BootReason::KICKED));
    server.ctl_json(&["restart"]);
    run_all_until(&mut players, |all| all.iter().all(|player| times_received(player, &[0x39]) == 1));
    server.wait_for_log(&["event=\"round_started\"", "round=2"]);
    server.stop();
    run_all_until(&mut players, |all| {
        all.iter().all(|player| player.end == Some(DisconnectReason::HostLeft))
    });
}

#[test]
fn join_requires_the_password() {
    let server = ServerProcess::start(&["--set", "session.password=engage"]);
    for wrong in ["", "Engage", "engage!"] {
        let mut player = LoopbackPlayer::connect_with(server.address(), "Q", wrong);
        assert_eq!(player.run_until_end(), DisconnectReason::Booted(BootReason::WRONG_PASSWORD));
    }
    let mut player = LoopbackPlayer::connect_with(server.address(), "Picard", "engage");
    player.run_until(LoopbackPlayer::is_in_game);
}

#[test]
fn silent_player_times_out() {
    let server = ServerProcess::start(&["--set", "session.silence_timeout=6s"]);
    let _silent = LoopbackPlayer::join(server.address(), "Silent");
    server.wait_for_log(&["event=\"left\"", "player=\"Silent\"", "reason=\"silent"]);
    assert_eq!(server.ctl_json(&["players"])["players"], serde_json::json!([]));
}
