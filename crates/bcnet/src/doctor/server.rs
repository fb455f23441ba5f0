//! Checks of the configuration and of the running server.

use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener, TcpStream, UdpSocket};
use std::path::Path;
use std::time::Duration;

use serde_json::Value;

use super::DoctorReport;
use super::machine::is_private;
use crate::config::{self, ConfigFlags, HostPort, Loaded, Problems, Settings};
use crate::double_click::local_address;
use crate::number_format::pluralize;
use crate::query::{FIRST_PORT, LAST_PORT, LIST_PORT, fetch_list, query_names};
use crate::{control, ctl, file, join, lookup, manifest};

/// Loads the configuration, and reports problems in it.
pub(super) fn load_configuration(flags: &ConfigFlags, report: &mut DoctorReport) -> Option<Loaded> {
    let loaded = match config::load(flags, env::vars_os()) {
        Ok(loaded) => loaded,
        Err(error) => {
            match error.downcast::<Problems>() {
                Ok(problems) => {
                    problems.0.iter().for_each(|problem| report.bad("configuration", problem.to_string()));
                }
                Err(error) => report.bad("configuration", format!("{error:#}")),
            }
            return None;
        }
    };
    let source = loaded.file.as_ref().map_or_else(|| "no file".into(), |file| file.display().to_string());
    report.ok("configuration", format!("{source}: {}", pluralize(loaded.settings.sessions.len(), "session")));
    for name in &loaded.ignored_variables {
        report.warn("configuration", format!("{name}: bcnet has no such setting; the variable is ignored"));
    }
    for path in loaded.settings.sessions.iter().flat_map(|session| &session.manifests) {
        if let Err(error) = manifest::read(path) {
            report.bad("configuration", format!("{error:#}"));
        }
    }
    Some(loaded)
}

/// Checks whether other users of this machine can read secrets, where the system reports it.
pub(super) fn check_secrets(loaded: &Loaded, report: &mut DoctorReport) {
    let is_open = |path: &Path| file::is_reachable_by_all_users(path).unwrap_or(false);
    let (keys, web) = (loaded.secret_keys_in_file(), &loaded.settings.web);
    if let Some(path) = loaded.file.as_deref().filter(|path| !keys.is_empty() && is_open(path)) {
        let (path, keys) = (path.display(), format_keys(&keys));
        report.warn(
            "secrets",
            format!(
                "{path}: every user of this machine can read the file, which contains {keys}; run `chmod 640 {path}`, after \
                 `chgrp` to the group of the server's user if the file belongs to another group"
            ),
        );
    }
    if let Some(key) = web.key.as_deref().filter(|key| web.enabled && is_open(key)) {
        let key = key.display();
        report.warn(
            "secrets",
            format!("{key}: every user of this machine can read the key of the page's certificate; run `chmod 640 {key}`"),
        );
    }
    // The server itself checks only the mode of the file, not of the directories above.
    if web.enabled && file::is_world_accessible(&web.token_file).unwrap_or(false) {
        let token = web.token_file.display();
        report.bad(
            "secrets",
            format!("{token}: every user of this machine may read the file, so the server does not start; run `chmod 600 {token}`"),
        );
    }
}

/// Formats a list of keys for a message.
fn format_keys(keys: &[String]) -> String {
    let shown: Vec<String> = keys.iter().take(MAX_KEYS_SHOWN).map(|key| format!("`{key}`")).collect();
    let more = if keys.len() > MAX_KEYS_SHOWN { ", …" } else { "" };
    shown.join(", ") + more
}

/// Requests the status of the server that runs with this configuration, if there is one.
pub(super) fn query_running_server(settings: &Settings, report: &mut DoctorReport) -> Option<Value> {
    let places = control::socket_paths(settings);
    if places.is_empty() {
        report.warn(
            "control",
            "`server.control` is \"none\", so doctor cannot find out whether the server runs",
        );
        return None;
    }
    match ctl::query_status(&places) {
        Ok(status) => {
            let (version, uptime) = (status["version"].as_str().unwrap_or("?"), &status["uptime_s"]);
            report.ok("control", format!("the server has been running for {uptime} s, bcnet {version}"));
            Some(status)
        }
        Err(error) => {
            match error.downcast_ref::<io::Error>().map(io::Error::kind) {
                Some(ErrorKind::NotFound | ErrorKind::ConnectionRefused) => {
                    report.ok("control", "no server runs with this configuration");
                }
                Some(ErrorKind::PermissionDenied) => report.warn(
                    "control",
                    format!(
                        "cannot find out whether the server runs: {error:#}; run doctor as the server's user"
                    ),
                ),
                // A process listens there but does not answer, or its answer is invalid.
                _ => report.bad("control", format!("{error:#}; see the server's log, or restart it")),
            }
            None
        }
    }
}

fn running_sessions(running: Option<&Value>) -> impl Iterator<Item = &Value> {
    running.and_then(|status| status["sessions"].as_array()).into_iter().flatten()
}

fn session_port(session: &Value) -> Option<u16> {
    session["port"].as_u64().and_then(|port| port.try_into().ok())
}

/// Checks the UDP ports of all sessions. Returns those that players use.
pub(super) fn check_ports(
    settings: &Settings,
    running: Option<&Value>,
    report: &mut DoctorReport,
) -> Vec<u16> {
    if running.is_some() {
        let ports: Vec<u16> = running_sessions(running).filter_map(session_port).collect();
        for session in running_sessions(running) {
            let (port, players, limit) = (&session["port"], &session["players"], &session["limit"]);
            report
                .ok("port", format!("the running server has UDP port {port}: {players} of {limit} players"));
        }
        return ports;
    }
    let bind = settings.server.bind;
    let mut ports = Vec::new();
    for session in &settings.sessions {
        let Some(port) = session.port.fixed() else {
            let is_free = |port: &u16| !ports.contains(port) && UdpSocket::bind((bind, *port)).is_ok();
            match (FIRST_PORT..=LAST_PORT).find(is_free) {
                Some(port) => {
                    report.ok("port", format!("UDP port {port} is free, and the server will take it"));
                    ports.push(port);
                }
                None => report
                    .bad("port", format!("no UDP port from {FIRST_PORT} to {LAST_PORT} is free at {bind}; stop another program or set `port`")),
            }
            continue;
        };
        ports.push(port);
        match UdpSocket::bind((bind, port)) {
            Ok(_) => report.ok("port", format!("UDP port {port} is free")),
            Err(error) => report.bad(
                "port",
                format!(
                    "UDP port {port} is not available ({error}); stop the other program, or set another `port`"
                ),
            ),
        }
    }
    ports
}

/// Checks the TCP ports of metrics and page.
///
/// With a running server they must answer, otherwise they must be free.
pub(super) fn check_listeners(settings: &Settings, running: Option<&Value>, report: &mut DoctorReport) {
    let web = &settings.web;
    let page = web.enabled.then_some(web.bind);
    for (name, key, address) in
        [("metrics", "server.metrics", settings.server.metrics), ("page", "web.bind", page)]
    {
        let Some(address) = address else { continue };
        if running.is_none() {
            match TcpListener::bind(address) {
                Ok(_) => report.ok(name, format!("TCP {address} is free")),
                Err(error) => report.bad(
                    name,
                    format!("TCP {address} is not available ({error}), so the server will not start; set another `{key}`"),
                ),
            }
            continue;
        }
        match TcpStream::connect_timeout(&connect_address(address).into(), NETWORK_TIMEOUT) {
            Ok(_) => report.ok(name, format!("TCP {address} answers")),
            Err(error) => report.bad(
                name,
                format!("TCP {address} does not answer ({error}); if you changed `{key}` after the server started, restart the server"),
            ),
        }
    }
}

/// Returns the address by which this machine reaches a socket that is bound to `bound`.
fn connect_address(bound: SocketAddrV4) -> SocketAddrV4 {
    let is_any = bound.ip().is_unspecified();
    SocketAddrV4::new(if is_any { Ipv4Addr::LOCALHOST } else { *bound.ip() }, bound.port())
}

/// The sessions of this server that a list server lists: address and name.
pub(super) type ListedServers = BTreeMap<SocketAddrV4, String>;

/// Checks whether the list servers answer and list our sessions. Returns our sessions that they list.
pub(super) fn check_list_servers(
    settings: &Settings,
    running: Option<&Value>,
    ports: &[u16],
    report: &mut DoctorReport,
) -> ListedServers {
    let mut ours = ListedServers::new();
    if settings.server.masters.is_empty() {
        report.ok("list servers", "none in `server.masters`: players must know the address");
    }
    for master in &settings.server.masters {
        let host = &master.host;
        let lists = HostPort::<LIST_PORT> { host: host.clone(), port: LIST_PORT };
        let address = match lookup::first_ipv4_address(&lists) {
            Ok(address) => address,
            Err(error) => {
                report.bad(
                    "list servers",
                    format!("{error:#}; correct `server.masters`, or check the name server"),
                );
                continue;
            }
        };
        match fetch_list(address, NETWORK_TIMEOUT) {
            Err(why) => report.warn(
                "list servers",
                format!("{host}: {why}; players cannot find the server there: ask its operator, or remove it from `server.masters`"),
            ),
            Ok(listed) if running.is_none() => {
                report
                    .ok("list servers", format!("{host} answers, with {}", pluralize(listed.len(), "server")));
            }
            Ok(listed) => {
                // A server behind a router does not know the address under which a list server lists it.
                let advertised =
                    settings.sessions.iter().filter_map(|session| session.advertise_port.fixed());
                let own_ports: Vec<u16> = advertised.chain(ports.iter().copied()).collect();
                let candidates = listed.into_iter().filter(|server| own_ports.contains(&server.port()));
                ours.extend(find_own_servers(host, &candidates.take(MAX_QUERIED).collect(), running, report));
            }
        }
    }
    ours
}

/// Finds our sessions among the listed servers with our ports: they have the names of our sessions.
fn find_own_servers(
    host: &str,
    candidates: &BTreeSet<SocketAddrV4>,
    running: Option<&Value>,
    report: &mut DoctorReport,
) -> ListedServers {
    let Some(first) = candidates.first() else {
        report.warn(
            "list servers",
            format!("{host} answers but does not list us: it must reach our port from outside; see address and firewall"),
        );
        return ListedServers::new();
    };
    let mut ours = query_names(candidates, NETWORK_TIMEOUT).unwrap_or_default();
    let all_answered = ours.len() == candidates.len();
    ours.retain(|_, name| running_sessions(running).any(|session| session["name"] == name.as_str()));
    let is_missing = |name: &&str| !ours.values().any(|listed| listed == name);
    let missing: Vec<&str> =
        running_sessions(running).filter_map(|one| one["name"].as_str()).filter(is_missing).collect();
    if let Some((address, _)) = ours.first_key_value() {
        report.ok("list servers", format!("{host} lists {address}, which answers with our name"));
        // Servers that do not answer, and servers beyond the limit of queries, may be ours.
        if let (Some(name), true) = (missing.first(), all_answered && candidates.len() < MAX_QUERIED) {
            report.warn(
                "list servers",
                format!("{host} does not list {name}: each port must be reachable from outside; see address and firewall"),
            );
        }
    } else if all_answered {
        report.warn(
            "list servers",
            format!("{host} answers but does not list us: the server that it lists with our port has another name; see address and firewall"),
        );
    } else {
        report.warn(
            "list servers",
            format!(
                "{host} lists {first}, which has our port but does not answer from here; \
                     if that is our public address, ask a friend on the internet to run `bcnet query {first}`"
            ),
        );
    }
    ours
}

/// Joins each session of the running server for a moment.
pub(super) fn check_joins(settings: &Settings, running: Option<&Value>, report: &mut DoctorReport) {
    if running.is_none() {
        report.ok("join", "not tried: no server is running; start it and run doctor again");
    }
    for (session, set) in running_sessions(running).zip(&settings.sessions) {
        let Some(port) = session_port(session) else { continue };
        let bind = settings.server.bind;
        // A join through the network address tests more than a join through loopback.
        let own = if bind.is_unspecified() { local_address() } else { Some(bind) };
        let address = SocketAddrV4::new(own.unwrap_or(Ipv4Addr::LOCALHOST), port);
        let state = session["state"].as_str().unwrap_or_default();
        if state != "open" {
            report.warn(
                "join",
                format!("{address}: the session is {state}; open it with `bcnet ctl --session {port} start`"),
            );
            continue;
        }
        if session["players"] == session["limit"] {
            report.warn("join", format!("{address}: not tried: the session is full"));
            continue;
        }
        let manifest = set.manifests.first().cloned();
        match join::try_join(address, set.password.get().unwrap_or_default(), manifest) {
            Ok(took) => report.ok(
                "join",
                format!("{address}: players on this machine can join, in {} ms", took.as_millis()),
            ),
            Err(error) => report.bad("join", format!("{address}: {error:#}; see the server's log")),
        }
    }
}

/// Joins a session at the public address that list servers give to players.
///
/// The test goes out through the router and back in, which is as close to a player's way as this machine can
/// get.
pub(super) fn check_public_join(
    settings: &Settings,
    running: Option<&Value>,
    listed: &ListedServers,
    report: &mut DoctorReport,
) {
    let Some((address, name)) = listed.iter().find(|(address, _)| !is_private(*address.ip())) else { return };
    let named = running_sessions(running)
        .zip(&settings.sessions)
        .find(|(session, _)| session["name"] == name.as_str());
    let Some((_, set)) = named else { return };
    match join::try_join(*address, set.password.get().unwrap_or_default(), set.manifests.first().cloned()) {
        Ok(_) => {
            report.ok("join outside", format!("{address}, the address on list servers: players can join"))
        }
        Err(error) => report.warn(
            "join outside",
            format!(
                "{address}, the address on list servers: {error:#}. Many routers do not forward from inside; \
                 ask a friend on the internet to run `bcnet join {address} --check`"
            ),
        ),
    }
}

/// The maximum number of keys in a message.
const MAX_KEYS_SHOWN: usize = 4;
/// The maximum number of servers to query for their names. A list may have any number.
const MAX_QUERIED: usize = 16;
/// The time limit for a list server, and for the servers that it lists.
const NETWORK_TIMEOUT: Duration = Duration::from_secs(5);
