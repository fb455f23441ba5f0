//! A server in a fleet, with a stub of the Agones sidecar.
//!
//! The stub accepts exactly the calls of the REST interface.

use std::io::Write;
use std::net::{TcpListener, UdpSocket};
use std::process::Command;

use serde_json::{Value, json};
use yaml_rust2::{Yaml, YamlLoader};

use crate::http_stub::{HttpStub, StubRequest};
use crate::metrics::{get, metric_value, metrics_address};
use crate::player::LoopbackPlayer;
use crate::server::{ServerProcess, TEST_TIMEOUT, TestDirectory};

/// Starts a stub of the sidecar. `failures` gives the number of failing calls for each path.
fn sidecar(port: u16, failures: &'static [(&'static str, usize)]) -> HttpStub {
    let mut seen = Vec::new();
    HttpStub::start_at(port, move |_, request, stream| {
        let before = seen.iter().filter(|path| **path == request.path).count();
        seen.push(request.path.clone());
        let fails = failures.iter().any(|(path, count)| *path == request.path && before < *count);
        let (status, body) =
            if fails { ("500 Internal Server Error", json!({})) } else { sidecar_response(request) };
        let body = body.to_string();
        let head = format!(
            "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        drop(stream.write_all((head + &body).as_bytes()));
    })
}

fn sidecar_response(StubRequest { method, path, headers, body }: &StubRequest) -> (&'static str, Value) {
    let is_json =
        || headers.iter().any(|(name, value)| name == "content-type" && value == "application/json");
    let number = |key: &str| body[key].as_str().and_then(|text| text.parse::<i64>().ok());
    match (method.as_str(), path.as_str()) {
        ("GET", "/gameserver") => {
            let ports = json!([{ "name": "game", "port": 7777 }]);
            let meta = json!({ "name": "bcnet-x", "labels": {} });
            (
                "200 OK",
                json!({ "object_meta": meta, "status": { "state": "Scheduled", "address": "192.0.2.1", "ports": ports } }),
            )
        }
        ("POST", "/ready" | "/allocate" | "/health" | "/shutdown") if is_json() && *body == json!({}) => {
            ("200 OK", json!({}))
        }
        ("PATCH", "/v1beta1/counters/players") if is_json() => match (number("count"), number("capacity")) {
            (Some(count), Some(capacity)) if (0..=capacity).contains(&count) => {
                ("200 OK", json!({ "name": "players", "count": body["count"], "capacity": body["capacity"] }))
            }
            _ => ("400 Bad Request", json!({ "code": 11, "message": "out of range" })),
        },
        _ => ("404 Not Found", json!({ "code": 5, "message": "Not Found" })),
    }
}

/// Waits for the next call except health calls.
fn next_call(sidecar: &HttpStub) -> String {
    loop {
        let StubRequest { method, path, body, .. } = sidecar.wait_for_request();
        match (path.as_str(), body["count"].as_str().zip(body["capacity"].as_str())) {
            ("/health", _) => {}
            (_, Some((count, capacity))) => return format!("{method} {path} {count}/{capacity}"),
            (_, None) => return format!("{method} {path}"),
        }
    }
}

fn start(sidecar: u16, settings: &[&str]) -> ServerProcess {
    let set = settings.iter().flat_map(|setting| ["--set", setting]);
    let args: Vec<&str> =
        ["--set", "fleet.agones=true", "--set", "fleet.empty_after=0s"].into_iter().chain(set).collect();
    let port = sidecar.to_string();
    ServerProcess::start_with(TestDirectory::new(), &args, 1, &[("AGONES_SDK_HTTP_PORT", &port)])
}

#[test]
fn server_reports_ready_allocated_and_player_count() {
    let sidecar = sidecar(0, &[]);
    let server = start(sidecar.port, &[]);
    let expect_calls =
        |expected: &[&str]| expected.iter().for_each(|call| assert_eq!(next_call(&sidecar), *call));
    let counter = "PATCH /v1beta1/counters/players";
    expect_calls(&["GET /gameserver", "POST /ready", &format!("{counter} 0/8")]);
    let mut alice = LoopbackPlayer::join(server.address(), "Alice");
    expect_calls(&["POST /allocate", &format!("{counter} 1/8")]);
    server.ctl_json(&["set", "session.player_limit", "6"]);
    expect_calls(&[&format!("{counter} 1/6")]);
    alice.leave();
    expect_calls(&["POST /ready", &format!("{counter} 0/6")]);
    server.stop();
    assert!(server.wait_for_exit().0.success());
    expect_calls(&["POST /shutdown"]);
}

#[test]
fn empty_server_shuts_down_if_configured() {
    let sidecar = sidecar(0, &[]);
    let server = start(sidecar.port, &["fleet.when_empty=shutdown", "fleet.counter=none"]);
    let mut alice = LoopbackPlayer::join(server.address(), "Alice");
    let calls: Vec<_> = (0..3).map(|_| next_call(&sidecar)).collect();
    assert_eq!(calls, ["GET /gameserver", "POST /ready", "POST /allocate"]);
    alice.leave();
    assert_eq!(next_call(&sidecar), "POST /shutdown");
    server.stop();
    assert!(server.wait_for_exit().0.success());
    assert!(
        std::iter::from_fn(|| sidecar.try_next_request()).all(|request| request.path == "/health"),
        "the shutdown is reported once"
    );
}

#[test]
fn server_runs_without_sidecar_and_reports_when_it_appears() {
    let free = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = free.local_addr().expect("bound").port();
    drop(free);
    let server = start(port, &["server.metrics=127.0.0.1:0"]);
    let metrics = metrics_address(&server);
    server.wait_for_log(&["event=\"agones_failed\"", "path=\"/gameserver\""]);
    let _alice = LoopbackPlayer::join(server.address(), "Alice");
    let sidecar = sidecar(port, &[("/gameserver", 1), ("/ready", 2), ("/health", 1)]);
    let calls: Vec<_> =
        (0..6).map(|_| next_call(&sidecar)).filter(|call| !call.starts_with("PATCH")).collect();
    let expected = ["GET /gameserver", "GET /gameserver", "POST /ready", "POST /ready", "POST /ready"];
    assert_eq!(calls, expected);
    assert_eq!(next_call(&sidecar), "POST /allocate");
    server.wait_for_log(&["event=\"agones_works\""]);
    // One failed call without a sidecar, and four failures of the stub.
    assert!(metric_value(&get(&metrics, "GET /metrics").1, "bcnet_agones_failed_calls_total") >= 1.0 + 4.0);
}

#[test]
fn list_servers_get_the_public_port() {
    let master = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    master.set_read_timeout(Some(TEST_TIMEOUT)).expect("a timeout");
    let masters = format!("server.masters={}", master.local_addr().expect("bound"));
    let sidecar = sidecar(0, &[]);
    let _server = start(sidecar.port, &[&masters]);
    let mut buffer = [0; 256];
    loop {
        let (len, _) = master.recv_from(&mut buffer).expect("a heartbeat");
        if String::from_utf8_lossy(&buffer[..len]).starts_with("\\heartbeat\\7777\\") {
            return;
        }
    }
}

#[test]
fn invalid_sidecar_port_is_reported_at_startup() {
    let directory = TestDirectory::new();
    let mut serve = directory.bcnet(&["serve", "--set", "fleet.agones=true"]);
    let output = serve.env("AGONES_SDK_HTTP_PORT", "x").output().expect("runs");
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{error}");
    assert!(error.contains("AGONES_SDK_HTTP_PORT is not a port number"), "{error}");
}

/// Checks the manifest against the program, without Kubernetes.
#[test]
fn fleet_manifest_matches_the_program() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/agones-fleet.yaml");
    let text = std::fs::read_to_string(path).expect(path);
    let documents = YamlLoader::load_from_str(&text).expect("YAML");
    let [fleet, autoscaler] = documents.as_slice() else { panic!("two documents") };
    assert_eq!(
        (fleet["apiVersion"].as_str(), fleet["kind"].as_str()),
        (Some("agones.dev/v1"), Some("Fleet"))
    );
    assert_eq!(autoscaler["spec"]["fleetName"], fleet["metadata"]["name"]);
    let server = &fleet["spec"]["template"]["spec"];
    let port = &server["ports"][0];
    assert_eq!((port["portPolicy"].as_str(), port["protocol"].as_str()), (Some("Dynamic"), Some("UDP")));
    assert!(
        server["health"]["periodSeconds"].as_i64() > Some(2),
        "the server reports once a second, and may wait two seconds for an answer"
    );
    let container = &server["template"]["spec"]["containers"][0];
    assert_eq!(container["name"], server["container"]);
    assert_eq!(container["args"].as_vec().map(Vec::as_slice), Some(&[Yaml::String("serve".into())][..]));
    let variables = container["env"].as_vec().expect("a list").iter();
    let variables: Vec<_> = variables
        .map(|one| (one["name"].as_str().expect("a name"), one["value"].as_str().expect("a text")))
        .collect();
    let value = |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| *value);
    assert_eq!(value("BCNET_FLEET_AGONES"), Some("true"));
    assert_eq!(value("BCNET_PORT"), port["containerPort"].as_i64().map(|port| port.to_string()).as_deref());
    assert_eq!(
        value("BCNET_PLAYER_LIMIT"),
        server["counters"]["players"]["capacity"].as_i64().map(|count| count.to_string()).as_deref()
    );
    let directory = TestDirectory::new();
    let mut check = Command::new(env!("CARGO_BIN_EXE_bcnet"));
    let check =
        check.args(["config", "check"]).env_clear().envs(variables.iter().copied()).current_dir(&directory.0);
    let output = check.output().expect("runs");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "fine: 1 session\n");
}
