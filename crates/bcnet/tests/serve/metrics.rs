//! Metrics, health endpoints, alerts, and the reports to systemd.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::player::join_two;
use crate::proxy_run::ProxyProcess;
use crate::server::{ServerProcess, TEST_TIMEOUT, TestDirectory};

/// Sends a request. Returns the status line and the body.
pub(crate) fn get(address: &str, request: &str) -> (String, String) {
    let mut stream = TcpStream::connect(address).expect("connected");
    stream.set_read_timeout(Some(TEST_TIMEOUT)).expect("a timeout");
    stream.write_all(format!("{request} HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes()).expect("sent");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("an answer");
    let (head, body) = text.split_once("\r\n\r\n").expect(&text);
    (head.lines().next().unwrap_or_default().into(), body.into())
}

/// Runs `promtool`. Skipped if it is not installed, unless `REQUIRE_PROMTOOL` is set.
pub(crate) fn promtool(args: &[&str], input: &str) {
    let mut check = Command::new("promtool");
    let check = check.args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let Ok(mut check) = check.spawn() else {
        assert!(
            std::env::var_os("REQUIRE_PROMTOOL").is_none(),
            "REQUIRE_PROMTOOL is set, but promtool is not installed"
        );
        return;
    };
    check.stdin.take().expect("piped").write_all(input.as_bytes()).expect("read");
    let output = crate::run::wait_with_output(check);
    let [stdout, stderr] = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
    assert!(output.status.success() && stderr.is_empty(), "{stdout}{stderr}");
}

/// Starts a server with metrics. Returns it and the address of the metrics.
fn start_monitored_server() -> (ServerProcess, String) {
    let server = ServerProcess::start(&["--set", "server.metrics=127.0.0.1:0"]);
    let address = metrics_address(&server);
    (server, address)
}

/// Returns the address of a server's metrics, from its log.
pub(crate) fn metrics_address(server: &ServerProcess) -> String {
    let line = server.wait_for_log(&["event=\"started\""]);
    let address =
        line.split("metrics=\"").nth(1).and_then(|rest| rest.split('"').next()).expect("an address");
    address.to_owned()
}

pub(crate) fn metric_value(page: &str, name: &str) -> f64 {
    let line = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("{name} in {page}"))
}

#[test]
fn server_metrics_are_valid_for_prometheus() {
    let (server, address) = start_monitored_server();
    let [mut alice, mut bob] = join_two(server.address(), ["Alice", "<script>"]);
    let line = alice.chat_payload("hello");
    alice.chat("hello");
    alice.run_until(|alice| alice.has_received(&line));
    bob.run_until(|bob| bob.has_received(&line));
    let (status, page) = get(&address, "GET /metrics");
    assert_eq!(status, "HTTP/1.1 200 OK");
    let port = format!("{{port=\"{}\"}}", server.ports[0]);
    let of = |name: &str| metric_value(&page, &format!("bcnet_{name}{port}"));
    assert!((of("players_in_game"), of("player_limit"), of("session_open")) == (2.0, 8.0, 1.0), "{page}");
    assert!(of("received_datagrams_total") > 10.0 && of("sent_bytes_total") > 100.0);
    assert!(of("relay_delay_seconds_count") > 0.0 && of("admitted_players_total") == 2.0);
    assert!(
        metric_value(&page, "bcnet_sessions") == 1.0
            && metric_value(&page, "process_cpu_seconds_total") > 0.0
    );
    assert!(!page.contains("script") && !page.contains("Alice"), "player names must not be labels");
    promtool(&["check", "metrics"], &page);
}

#[test]
fn health_endpoints_reflect_the_game_loop() {
    let (server, address) = start_monitored_server();
    for path in ["GET /livez", "GET /readyz"] {
        assert_eq!(get(&address, path), ("HTTP/1.1 200 OK".into(), "ok\n".into()));
    }
    let port = server.ports[0].to_string();
    server.ctl_json(&["--session", &port, "stop"]);
    assert_eq!(get(&address, "GET /readyz").0, "HTTP/1.1 503 Service Unavailable", "no session is open");
    assert_eq!(get(&address, "GET /livez").0, "HTTP/1.1 200 OK");
    server.ctl_json(&["start"]);
    assert_eq!(get(&address, "GET /readyz").0, "HTTP/1.1 200 OK");
    assert_eq!(get(&address, "POST /metrics").0, "HTTP/1.1 405 Method Not Allowed");
    assert_eq!(get(&address, "GET /etc/passwd").0, "HTTP/1.1 404 Not Found");
}

/// Returns the names of all metrics of serve, proxy and master, including those without values yet.
fn metric_names() -> BTreeSet<String> {
    let more =
        "[[hook]]\nname = \"crew\"\nurl = \"https://hooks.example/\"\n[scores]\nfile = \"scores.db\"\n";
    let directory = TestDirectory::new();
    fs::write(directory.path("bcnet.toml"), more).expect("written");
    let args =
        ["--set", "server.metrics=127.0.0.1:0", "--set", "fleet.agones=true", "--set", "web.enabled=true"];
    let args = [&args[..], &["--set", "web.bind=127.0.0.1:0"]].concat();
    // No Agones sidecar listens on port 1.
    let server = ServerProcess::start_with(directory, &args, 1, &[("AGONES_SDK_HTTP_PORT", "1")]);
    let mut pages = get(&metrics_address(&server), "GET /metrics").1;
    let proxy = ProxyProcess::start(server.address(), &["--metrics", "127.0.0.1:0"]);
    pages += &proxy.get("/metrics").1;
    let (mut master, address) = start_list_server(&server.directory);
    pages += &get(&address, "GET /metrics").1;
    master.kill().and_then(|()| master.wait()).expect("ended");
    let described = pages.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '));
    let all = described.flat_map(|(name, kind)| match kind {
        "histogram" => ["_bucket", "_sum", "_count"].map(|part| format!("{name}{part}")).to_vec(),
        _ => vec![name.to_owned()],
    });
    all.collect()
}

/// Starts a list server with metrics. Returns it and the address of the metrics.
fn start_list_server(directory: &TestDirectory) -> (std::process::Child, String) {
    let ports = ["--bind", "127.0.0.1", "--udp", "0", "--tcp", "0", "--metrics", "127.0.0.1:0"];
    let mut command = directory.bcnet(&[&["master"], &ports[..]].concat());
    let mut master = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("runs");
    let mut ready = String::new();
    BufReader::new(master.stdout.take().expect("piped")).read_line(&mut ready).expect("a line");
    let address = ready.trim_end().split("metrics=").nth(1).expect(&ready).to_owned();
    (master, address)
}

#[test]
fn list_server_serves_metrics_and_health() {
    let directory = TestDirectory::new();
    let (mut master, address) = start_list_server(&directory);
    let (status, page) = get(&address, "GET /metrics");
    assert_eq!((status.as_str(), metric_value(&page, "bcnet_master_servers")), ("HTTP/1.1 200 OK", 0.0));
    promtool(&["check", "metrics"], &page);
    for path in ["GET /livez", "GET /readyz"] {
        assert_eq!(get(&address, path), ("HTTP/1.1 200 OK".into(), "ok\n".into()));
    }
    master.kill().and_then(|()| master.wait()).expect("ended");
}

/// The page lists every metric of serve, proxy and master; histograms by their name.
#[test]
fn metrics_are_all_documented() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/metrics.md");
    let page = fs::read_to_string(page).expect("docs/reference/metrics.md");
    let family = |name: &str| {
        let parts = ["_seconds_bucket", "_seconds_sum", "_seconds_count"];
        let base = parts.iter().find_map(|part| name.strip_suffix(part));
        base.map_or_else(|| name.to_owned(), |base| format!("{base}_seconds"))
    };
    let names = metric_names();
    let missing: BTreeSet<String> =
        names.iter().map(|name| family(name)).filter(|name| !page.contains(&format!("`{name}`"))).collect();
    assert_eq!(missing, BTreeSet::new());
}

/// The dashboard and the alerts use only existing metrics, and Prometheus can parse their queries.
#[test]
fn dashboard_and_alert_queries_use_existing_metrics() {
    let names = metric_names();
    let deploy = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy");
    let read = |name: &str| fs::read_to_string(format!("{deploy}/{name}")).expect(name);
    let board: Value = serde_json::from_str(&read("grafana.json")).expect("JSON");
    let panels = board["panels"].as_array().expect("panels");
    let targets = panels.iter().flat_map(|panel| panel["targets"].as_array().into_iter().flatten());
    let queries: Vec<&str> = targets.map(|target| target["expr"].as_str().expect("a query")).collect();
    assert!(queries.len() > 20, "{queries:?}");
    let alerts = read("alerts.yml");
    let variables = board["templating"].to_string();
    let is_name = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    let texts = queries.iter().copied().chain([alerts.as_str(), &variables]);
    let words = texts.flat_map(|text| text.split(|letter| !is_name(letter)));
    let asked = words.filter(|word| word.starts_with("bcnet_") || word.starts_with("process_"));
    let unknown: BTreeSet<&str> = asked.filter(|word| !names.contains(*word)).collect();
    assert_eq!(unknown, BTreeSet::new());
    promtool(&["check", "rules", &format!("{deploy}/alerts.yml")], "");
    // `promtool` checks queries only in rules.
    let plain = |query: &str| query.replace("$__rate_interval", "5m").replace("$instance", ".*");
    let rule = |(query, number)| json!({"record": format!("board:{number}"), "expr": plain(query)});
    let rules: Vec<Value> = queries.iter().copied().zip(0..).map(rule).collect();
    let directory = TestDirectory::new();
    let file = directory.path("board.yml");
    fs::write(&file, json!({"groups": [{"name": "board", "rules": rules}]}).to_string()).expect("written");
    promtool(&["check", "rules", file.to_str().expect("a path")], "");
}

/// Each alert fires when it should, and not before.
#[test]
fn alerts_fire_when_something_is_wrong() {
    let [rule_tests, alerts] = [include_str!("alerts.yml"), include_str!("../../../../deploy/alerts.yml")];
    for alert in alerts.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")) {
        let fires = format!("alertname: {alert}\n        exp_alerts:\n");
        let is_silent = format!("alertname: {alert}, exp_alerts: []");
        assert!(rule_tests.contains(&fires) && rule_tests.contains(&is_silent), "{alert} is not tested");
    }
    promtool(&["test", "rules", concat!(env!("CARGO_MANIFEST_DIR"), "/tests/serve/alerts.yml")], "");
}

#[test]
fn metrics_address_in_use_is_reported() {
    let (server, address) = start_monitored_server();
    let taken = format!("server.metrics={address}");
    let output = server.directory.bcnet(&["serve", "--set", &taken]).output().expect("runs");
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{error}");
    assert!(error.contains("server.metrics: cannot listen at TCP 127.0.0.1:"), "{error}");
}

/// The status is reported without a watchdog too.
#[cfg(target_os = "linux")]
#[test]
fn systemd_is_notified_of_readiness_and_players() {
    use std::os::unix::net::UnixDatagram;

    let directory = TestDirectory::new();
    let path = directory.path("notify.sock");
    let systemd = UnixDatagram::bind(&path).expect("a socket");
    systemd.set_read_timeout(Some(TEST_TIMEOUT)).expect("a timeout");
    let notify = [("NOTIFY_SOCKET", path.to_str().expect("a path"))];
    let _server = ServerProcess::start_with(directory, &[], 1, &notify);
    let next_message = || {
        let mut buffer = [0; 64];
        let len = systemd.recv(&mut buffer).expect("a message");
        String::from_utf8_lossy(&buffer[..len]).into_owned()
    };
    assert_eq!([next_message(), next_message()], ["READY=1", "STATUS=0 players in 1 session"]);
}
