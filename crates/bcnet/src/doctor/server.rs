//! What the configuration and the server are like.

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

/// Reads the configuration.
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
    let place = loaded.file.as_ref().map_or_else(|| "no file".into(), |file| file.display().to_string());
    report.ok("configuration", format!("{place}: {}", pluralize(loaded.settings.sessions.len(), "session")));
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

/// Looks whether others on this machine can read what is for the server alone, as far as the system tells.
pub(super) fn check_secrets(loaded: &Loaded, report: &mut DoctorReport) {
    let is_open = |path: &Path| file::is_reachable_by_all_users(path).unwrap_or(false);
    let (keys, web) = (loaded.secret_keys_in_file(), &loaded.settings.web);
    if let Some(path) = loaded.file.as_deref().filter(|path| !keys.is_empty() && is_open(path)) {
        let (path, keys) = (path.display(), format_keys(&keys));
        report.warn(
            "secrets",
            format!(
                "{path}: every user of this machine can read it, and it has {keys}; `chmod 640 {path}`, after a `chgrp` to \
                 the group of the server's user if it belongs to another"
            ),
        );
    }
    if let Some(key) = web.key.as_deref().filter(|key| web.enabled && is_open(key)) {
        let key = key.display();
        report.warn(
            "secrets",
            format!("{key}: every user of this machine can read the key of the page's certificate; `chmod 640 {key}`"),
        );
    }
    // The server looks at the file alone.
    if web.enabled && file::is_world_accessible(&web.token_file).unwrap_or(false) {
        let token = web.token_file.display();
        report.bad(
            "secrets",
            format!("{token}: the server does not start while every user of this machine may read it; `chmod 600 {token}`"),
        );
    }
}

/// Names some keys.
fn format_keys(keys: &[String]) -> String {
    let shown: Vec<String> = keys.iter().take(MAX_KEYS_SHOWN).map(|key| format!("`{key}`")).collect();
    let more = if keys.len() > MAX_KEYS_SHOWN { ", …" } else { "" };
    shown.join(", ") + more
}

/// Asks the server that runs with this configuration how it is, if one does.
pub(super) fn query_running_server(settings: &Settings, report: &mut DoctorReport) -> Option<Value> {
    let places = control::socket_paths(settings);
    if places.is_empty() {
        report.warn("control", "`server.control` is \"none\": whether the server runs cannot be told");
        return None;
    }
    match ctl::query_status(&places) {
        Ok(status) => {
            let (version, uptime) = (status["version"].as_str().unwrap_or("?"), &status["uptime_s"]);
            report.ok("control", format!("the server runs since {uptime} s, bcnet {version}"));
            Some(status)
        }
        Err(error) => {
            match error.downcast_ref::<io::Error>().map(io::Error::kind) {
                Some(ErrorKind::NotFound | ErrorKind::ConnectionRefused) => {
                    report.ok("control", "no server runs with this configuration");
                }
                Some(ErrorKind::PermissionDenied) => report.warn(
                    "control",
                    format!("whether the server runs cannot be told: {error:#}; run this as its user"),
                ),
                // Somebody is there who says nothing, or nonsense.
                _ => report.bad("control", format!("{error:#}; if its log tells nothing, restart it")),
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

/// Looks at the ports of all sessions. Returns those that players use.
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
                .ok("port", format!("UDP port {port} is the running server's: {players} of {limit} players"));
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
                    report.ok("port", format!("UDP port {port} is free, and will be taken"));
                    ports.push(port);
                }
                None => report
                    .bad("port", format!("no UDP port of {FIRST_PORT} to {LAST_PORT} can be had at {bind}")),
            }
            continue;
        };
        ports.push(port);
        match UdpSocket::bind((bind, port)) {
            Ok(_) => report.ok("port", format!("UDP port {port} is free")),
            Err(error) => report.bad(
                "port",
                format!(
                    "UDP port {port} cannot be had ({error}); end the other program, or choose another `port`"
                ),
            ),
        }
    }
    ports
}

/// Looks at the TCP ports of metrics and page: of a server that runs they answer, else they must be free.
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
                    format!("TCP {address} cannot be had ({error}), and the server does not start without; choose another `{key}`"),
                ),
            }
            continue;
        }
        match TcpStream::connect_timeout(&connect_address(address).into(), NETWORK_TIMEOUT) {
            Ok(_) => report.ok(name, format!("TCP {address} answers")),
            Err(error) => report.bad(
                name,
                format!("TCP {address} does not answer ({error}); if `{key}` was changed since its start, restart the server"),
            ),
        }
    }
}

/// Returns the address by which this machine reaches what is bound to one.
fn connect_address(bound: SocketAddrV4) -> SocketAddrV4 {
    let is_any = bound.ip().is_unspecified();
    SocketAddrV4::new(if is_any { Ipv4Addr::LOCALHOST } else { *bound.ip() }, bound.port())
}

/// A server that a list server has, and its name.
pub(super) type ListedServers = BTreeMap<SocketAddrV4, String>;

/// Looks at the list servers: do they answer, do they list us. Returns those of ours that they list.
pub(super) fn check_list_servers(
    settings: &Settings,
    running: Option<&Value>,
    ports: &[u16],
    report: &mut DoctorReport,
) -> ListedServers {
    let mut ours = ListedServers::new();
    if settings.server.masters.is_empty() {
        report.ok("list servers", "none in `server.masters`: players elsewhere must know the address");
    }
    for master in &settings.server.masters {
        let host = &master.host;
        let lists = HostPort::<LIST_PORT> { host: host.clone(), port: LIST_PORT };
        let address = match lookup::first_ipv4_address(&lists) {
            Ok(address) => address,
            Err(error) => {
                report.bad(
                    "list servers",
                    format!("{error:#}; mend `server.masters`, or look at the name server"),
                );
                continue;
            }
        };
        match fetch_list(address, NETWORK_TIMEOUT) {
            Err(why) => report.warn(
                "list servers",
                format!("{host}: {why}; who looks there does not find us: ask who runs it, or take it out of `server.masters`"),
            ),
            Ok(listed) if running.is_none() => {
                report
                    .ok("list servers", format!("{host} answers, with {}", pluralize(listed.len(), "server")));
            }
            Ok(listed) => {
                // Which address it has for the list server, a server behind a router does not know.
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

/// Tells which of the servers that a list server has at our ports are ours: they have the names of our sessions.
fn find_own_servers(
    host: &str,
    candidates: &BTreeSet<SocketAddrV4>,
    running: Option<&Value>,
    report: &mut DoctorReport,
) -> ListedServers {
    let Some(first) = candidates.first() else {
        report.warn(
            "list servers",
            format!("{host} answers and does not list us: it must reach our port from outside; see address and firewall"),
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
        report.ok("list servers", format!("{host} lists {address}, which answers by our name"));
        // Of those who do not answer, and of more than are asked, nothing is known.
        if let (Some(name), true) = (missing.first(), all_answered && candidates.len() < MAX_QUERIED) {
            report.warn(
                "list servers",
                format!("{host} does not list {name}: each port must be reached from outside; see address and firewall"),
            );
        }
    } else if all_answered {
        report.warn(
            "list servers",
            format!("{host} answers and does not list us: whom it has at our port has another name; see address and firewall"),
        );
    } else {
        report.warn(
            "list servers",
            format!(
                "{host} lists {first}, which has our port and does not answer from here; \
                     if that is our address outside, a friend elsewhere can tell: `bcnet query {first}`"
            ),
        );
    }
    ours
}

/// Joins every session of the running server for a moment.
pub(super) fn check_joins(settings: &Settings, running: Option<&Value>, report: &mut DoctorReport) {
    if running.is_none() {
        report.ok("join", "not tried, for no server runs; start it, and run this again");
    }
    for (session, set) in running_sessions(running).zip(&settings.sessions) {
        let Some(port) = session_port(session) else { continue };
        let bind = settings.server.bind;
        // By its address in the network it is as far away as this machine can be.
        let own = if bind.is_unspecified() { local_address() } else { Some(bind) };
        let address = SocketAddrV4::new(own.unwrap_or(Ipv4Addr::LOCALHOST), port);
        let state = session["state"].as_str().unwrap_or_default();
        if state != "open" {
            report.warn(
                "join",
                format!("{address}: the session is {state}; `bcnet ctl --session {port} start` opens it"),
            );
            continue;
        }
        if session["players"] == session["limit"] {
            report.warn("join", format!("{address}: not tried, for it is full"));
            continue;
        }
        let manifest = set.manifests.first().cloned();
        match join::try_join(address, set.password.get().unwrap_or_default(), manifest) {
            Ok(took) => report.ok(
                "join",
                format!("{address}: players of this machine can join, in {} ms", took.as_millis()),
            ),
            Err(error) => report.bad("join", format!("{address}: {error:#}; the server's log tells more")),
        }
    }
}

/// Joins a session by the address that list servers tell players, if that is not one of this network: as far as a way out and
/// back in goes, that is how players come.
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
        Ok(_) => report.ok("join outside", format!("{address}, as list servers have it: players can join")),
        Err(error) => report.warn(
            "join outside",
            format!(
                "{address}, as list servers have it: {error:#}. Many routers do not lead back in; \
                 a friend elsewhere can tell: `bcnet join {address} --check`"
            ),
        ),
    }
}

/// How many keys a line names.
const MAX_KEYS_SHOWN: usize = 4;
/// How many servers at our port are asked for their names. A list may have any number.
const MAX_QUERIED: usize = 16;
/// How long a list server, or those whom it lists, may take.
const NETWORK_TIMEOUT: Duration = Duration::from_secs(5);
