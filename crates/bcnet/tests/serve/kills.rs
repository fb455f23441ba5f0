//! Kills that the server credits to the last shot: messages to players, statistics and hooks.

use std::fs;

use serde_json::{Value, json};

use crate::http_stub::HttpStub;
use crate::player::{LoopbackPlayer, join_two, run_all_until};
use crate::server::{ServerProcess, TestDirectory, wait_until};

/// Alice is peer 2 in slot 0, Bob peer 3 in slot 1.
const ALICE_SHIP: u32 = 0x3FFF_FFFF;
const BOB_SHIP: u32 = 0x4003_FFFF;
/// Difference between the object ids of two successive ships.
const SHIP_ID_STEP: u32 = 34;

fn ship(slot: u8, object: u32) -> Vec<u8> {
    let head = [&[0x03, slot, slot + 2, 0x08, 0x80, 0, 0][..], &object.to_le_bytes(), &[5]].concat();
    [&head[..], &[0; 35], b"\x05Cady2\x06Multi1", &[0xFF; 53]].concat()
}

fn torpedo(weapon: u32, target: u32) -> Vec<u8> {
    [&[0x19][..], &weapon.to_le_bytes(), &[2, 1, 0, 127, 0], &target.to_le_bytes(), &[0, 127, 0, 80]].concat()
}

/// Alice hits Bob's ship, and Bob creates a new one. Both run until Alice has seen the new ship.
fn shoot_down(players: &mut [LoopbackPlayer; 2], ship_of_bob: u32) {
    let shot = torpedo(ALICE_SHIP + 14, ship_of_bob);
    players[0].send(&shot);
    run_all_until(players, |players| players[1].has_received(&shot));
    let next = ship(1, ship_of_bob + SHIP_ID_STEP);
    players[1].send(&next);
    run_all_until(players, |players| players[0].has_received(&next));
}

fn kill_messages(player: &LoopbackPlayer) -> Vec<&Vec<u8>> {
    player.received.iter().filter(|payload| payload[0] == 0x36).collect()
}

/// Returns kills and deaths of each player, sorted by name.
fn kills_and_deaths(rows: &Value) -> Vec<Value> {
    let mut scores: Vec<Value> = rows
        .as_array()
        .expect("a list")
        .iter()
        .map(|row| json!([row["name"], row["kills"], row["deaths"]]))
        .collect();
    scores.sort_by_key(ToString::to_string);
    scores
}

/// S-45: the setting is off at first, then turned on during the game.
#[test]
fn credited_kill_is_reported_to_players_stats_and_hooks() {
    let stub = HttpStub::with_statuses(&["204 No Content"]);
    let directory = TestDirectory::new();
    let file = format!(
        "[scores]\nfile = \"scores.db\"\nshortest = \"0s\"\n[[session]]\nname = \"Friday\"\n[[hook]]\nname = \"crew\"\n\
         url = \"http://127.0.0.1:{}/\"\nallow_http = true\nevents = [\"round_ended\"]\n",
        stub.port
    );
    fs::write(directory.path("bcnet.toml"), file).expect("written");
    let server = ServerProcess::start_in(directory, &[], 1);
    let mut players = join_two(server.address(), ["Alice", "Bob"]);
    let ships = [ship(0, ALICE_SHIP), ship(1, BOB_SHIP)];
    for (player, ship) in players.iter_mut().zip(&ships) {
        player.send(ship);
    }
    run_all_until(&mut players, |players| {
        players[0].has_received(&ships[1]) && players[1].has_received(&ships[0])
    });
    shoot_down(&mut players, BOB_SHIP);
    assert!(players.iter().all(|player| kill_messages(player).is_empty()), "the setting is off");

    let set = server.ctl_json(&["set", "credit_kills", "last-shot"]);
    assert_eq!(set["effect"], "now");
    shoot_down(&mut players, BOB_SHIP + SHIP_ID_STEP);
    run_all_until(&mut players, |players| players.iter().all(|player| !kill_messages(player).is_empty()));
    // The killer with its kills and points, then the victim with its deaths.
    let kill = [&[0x36][..], &[2, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0], &[3, 0, 0, 0, 1, 0, 0, 0], &[0]].concat();
    assert!(players.iter().all(|player| kill_messages(player) == [&kill]));
    let expected = [json!(["Alice", 1, 0]), json!(["Bob", 0, 1])];
    assert_eq!(kills_and_deaths(&server.ctl_json(&["players"])["players"]), expected);

    server.ctl_json(&["restart"]);
    let ended = stub.wait_for_request().body;
    assert_eq!(
        (&ended["event"], kills_and_deaths(&ended["scores"])),
        (&json!("round_ended"), expected.to_vec())
    );
    wait_until("the round is stored", || server.ctl_json(&["status"])["scores"]["kept"] == 1);
    let output = server.directory.bcnet(&["stats", "--format", "json"]).output().expect("it runs");
    let stats: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(kills_and_deaths(&stats["players"]), expected);
    assert_eq!(
        kills_and_deaths(&server.ctl_json(&["players"])["players"]),
        [json!(["Alice", 0, 0]), json!(["Bob", 0, 0])]
    );
}
