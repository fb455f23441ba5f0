//! `bcnet ctl samples`: the samples of the last hour.

use std::fs;
use std::time::Duration;

use serde_json::{Value, json};

use crate::player::LoopbackPlayer;
use crate::server::{ServerProcess, TestDirectory};

/// Chats until a sample shows the traffic. Returns that sample.
fn wait_for_sample(server: &ServerProcess, player: &mut LoopbackPlayer) -> Value {
    let is_above = |sample: &Value, key: &str| sample[key].as_f64() > Some(0.0);
    let keys = ["players", "datagrams_in_per_second", "datagrams_out_per_second", "ack_bytes_per_second"];
    loop {
        let answer = server.ctl_json(&["samples"]);
        let samples = answer["samples"].as_array().expect("a list");
        if let Some(sample) = samples.iter().find(|sample| keys.iter().all(|key| is_above(sample, key))) {
            return sample.clone();
        }
        player.chat("still there");
        player.turn(Duration::from_millis(500));
    }
}

#[test]
fn samples_are_available_per_session_and_in_total() {
    let directory = TestDirectory::new();
    fs::write(directory.path("bcnet.toml"), "[[session]]\nname = \"One\"\n[[session]]\nname = \"Two\"\n")
        .expect("written");
    let server = ServerProcess::start_in(directory, &[], 2);
    let mut alice = LoopbackPlayer::join(server.address(), "Alice");
    let all = wait_for_sample(&server, &mut alice);
    assert_eq!(all["players"], 1);
    if cfg!(any(target_os = "linux", windows)) {
        assert!(all["core_share"].is_number() && all["memory_bytes"].as_u64() > Some(1 << 20), "{all}");
    }
    let one = server.ctl_json(&["--session", "One", "samples"]);
    let one = one["samples"].as_array().expect("a list").iter().find(|one| one["time"] == all["time"]);
    let one = one.expect("a sample of the same time");
    assert_eq!(
        one["datagrams_in_per_second"], all["datagrams_in_per_second"],
        "no other session has players"
    );
    let two = server.ctl_json(&["--session", "Two", "samples"]);
    assert_eq!([&two["interval_s"], &two["samples"][0]["players"]], [5, 0], "{two}");
    // `--since` returns newer samples only; the table is for people.
    let later = server.ctl_json(&["samples", "--since", &all["time"].to_string()]);
    let later = later["samples"].as_array().expect("a list");
    assert!(later.iter().all(|one| one["time"].as_u64() > all["time"].as_u64()), "{later:?}");
    assert_eq!(server.ctl_json(&["samples", "--since", "99999999999"])["samples"], json!([]));
    let shown = server.directory.ctl(&["samples"]);
    assert!(String::from_utf8_lossy(&shown.stdout).starts_with("TIME      PLAYERS  IN/s  "), "{shown:?}");
}
