//! Kills that the server guesses, from a shot to everyone who is told of them.

use std::fs;

use serde_json::{Value, json};

use crate::http_stub::HttpStub;
use crate::player::{Player, all_until, join_two};
use crate::server::{Directory, Server};

/// Alice is peer 2 in slot 0, Bob peer 3 in slot 1.
const ALICE: u32 = 0x3FFF_FFFF;
const BOB: u32 = 0x4003_FFFF;
/// How far a ship is behind the last.
const NEXT: u32 = 34;

fn ship(slot: u8, object: u32) -> Vec<u8> {
    let head = [&[0x03, slot, slot + 2, 0x08, 0x80, 0, 0][..], &object.to_le_bytes(), &[5]].concat();
    [&head[..], &[0; 35], b"\x05Cady2\x06Multi1", &[0xFF; 53]].concat()
}

fn torpedo(weapon: u32, target: u32) -> Vec<u8> {
    [&[0x19][..], &weapon.to_le_bytes(), &[2, 1, 0, 127, 0], &target.to_le_bytes(), &[0, 127, 0, 80]].concat()
}

/// Alice fires at Bob's ship, and Bob has another. Both play on until Alice has seen that.
fn shoot_down(players: &mut [Player; 2], ship_of_bob: u32) {
    let shot = torpedo(ALICE + 14, ship_of_bob);
    players[0].send(&shot);
    all_until(players, |players| players[1].has(&shot));
    let next = ship(1, ship_of_bob + NEXT);
    players[1].send(&next);
    all_until(players, |players| players[0].has(&next));
}

fn killed(player: &Player) -> Vec<&Vec<u8>> {
    player.heard.iter().filter(|payload| payload[0] == 0x36).collect()
}

/// Kills and deaths of each, by name.
fn scores(rows: &Value) -> Vec<Value> {
    let mut scores: Vec<Value> = rows
        .as_array()
        .expect("a list")
        .iter()
        .map(|row| json!([row["name"], row["kills"], row["deaths"]]))
        .collect();
    scores.sort_by_key(ToString::to_string);
    scores
}

/// S-45: first without, then it is turned on while they play.
#[test]
fn a_guessed_kill_is_told_to_players_stats_and_hooks() {
    let stub = HttpStub::with_statuses(&["204 No Content"]);
    let directory = Directory::new();
    let file = format!(
        "[scores]\nfile = \"scores.db\"\nshortest = \"0s\"\n[[session]]\nname = \"Friday\"\n[[hook]]\nname = \"crew\"\n\
         url = \"http://127.0.0.1:{}/\"\nallow_http = true\nevents = [\"round_ended\"]\n",
        stub.port
    );
    fs::write(directory.path("bcnet.toml"), file).expect("written");
    let server = Server::start_in(directory, &[], 1);
    let mut players = join_two(server.address(), ["Alice", "Bob"]);
    let ships = [ship(0, ALICE), ship(1, BOB)];
    for (player, ship) in players.iter_mut().zip(&ships) {
        player.send(ship);
    }
    all_until(&mut players, |players| players[0].has(&ships[1]) && players[1].has(&ships[0]));
    shoot_down(&mut players, BOB);
    assert!(players.iter().all(|player| killed(player).is_empty()), "it is off");

    let set = server.ask(&["set", "credit_kills", "last-shot"]);
    assert_eq!(set["effect"], "now");
    shoot_down(&mut players, BOB + NEXT);
    all_until(&mut players, |players| players.iter().all(|player| !killed(player).is_empty()));
    // The killer, its kills and points, the victim, its deaths.
    let told = [&[0x36][..], &[2, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0], &[3, 0, 0, 0, 1, 0, 0, 0], &[0]].concat();
    assert!(players.iter().all(|player| killed(player) == [&told]));
    let expected = [json!(["Alice", 1, 0]), json!(["Bob", 0, 1])];
    assert_eq!(scores(&server.ask(&["players"])["players"]), expected);

    server.ask(&["restart"]);
    let ended = stub.next().body;
    assert_eq!((&ended["event"], scores(&ended["scores"])), (&json!("round_ended"), expected.to_vec()));
    while server.ask(&["status"])["scores"]["kept"] != 1 {}
    let output = server.directory.bcnet(&["stats", "--format", "json"]).output().expect("it runs");
    let stats: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(scores(&stats["players"]), expected);
    assert_eq!(scores(&server.ask(&["players"])["players"]), [json!(["Alice", 0, 0]), json!(["Bob", 0, 0])]);
}
