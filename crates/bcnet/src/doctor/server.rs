//! What the configuration and the server are like.

use std::collections::BTreeSet;
use std::env;
use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::time::Duration;

use serde_json::Value;

use super::Report;
use crate::config::{self, Flags, HostPort, Loaded, Problems, Settings};
use crate::number::counted;
use crate::query::{FIRST_PORT, LAST_PORT, LIST_PORT, ask_names, fetch_list};
use crate::{control, ctl, join, lookup, manifest};

/// Reads the configuration.
pub(super) fn configuration(flags: &Flags, report: &mut Report) -> Option<Loaded> {
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
    report.ok("configuration", format!("{place}: {}", counted(loaded.settings.sessions.len(), "session")));
    for name in &loaded.strange {
        report.warn("configuration", format!("{name}: no setting of bcnet, ignored"));
    }
    for path in loaded.settings.sessions.iter().flat_map(|session| &session.manifests) {
        if let Err(error) = manifest::read(path) {
            report.bad("configuration", format!("{error:#}"));
        }
    }
    Some(loaded)
}

/// Asks the server that runs with this configuration how it is, if one does.
pub(super) fn running(settings: &Settings, report: &mut Report) -> Option<Value> {
    let places = control::places(settings);
    if places.is_empty() {
        report.warn("control", "`server.control` is \"none\": whether the server runs cannot be told");
        return None;
    }
    match ctl::status(&places) {
        Ok(status) => {
            let (version, uptime) = (status["version"].as_str().unwrap_or("?"), &status["uptime_s"]);
            report.ok("control", format!("the server runs since {uptime} s, bcnet {version}"));
            Some(status)
        }
        Err(error) => {
            let kind = error.downcast_ref::<io::Error>().map(io::Error::kind);
            if let Some(ErrorKind::NotFound | ErrorKind::ConnectionRefused) = kind {
                report.ok("control", "no server runs with this configuration");
            } else {
                report.warn("control", format!("whether the server runs cannot be told: {error:#}"));
            }
            None
        }
    }
}

fn sessions(running: Option<&Value>) -> impl Iterator<Item = &Value> {
    running.and_then(|status| status["sessions"].as_array()).into_iter().flatten()
}

fn port(session: &Value) -> Option<u16> {
    session["port"].as_u64().and_then(|port| port.try_into().ok())
}

/// Looks at the ports of all sessions. Returns those that players use.
pub(super) fn ports(settings: &Settings, running: Option<&Value>, report: &mut Report) -> Vec<u16> {
    if running.is_some() {
        let ports: Vec<u16> = sessions(running).filter_map(port).collect();
        for session in sessions(running) {
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

/// Looks at the list servers: do they answer, do they list us.
pub(super) fn list_servers(settings: &Settings, running: Option<&Value>, ports: &[u16], report: &mut Report) {
    if settings.server.masters.is_empty() {
        report.ok("list servers", "none in `server.masters`: players elsewhere must know the address");
    }
    for master in &settings.server.masters {
        let host = &master.host;
        let lists = HostPort::<LIST_PORT> { host: host.clone(), port: LIST_PORT };
        let address = match lookup::first(&lists) {
            Ok(address) => address,
            Err(error) => {
                report.bad(
                    "list servers",
                    format!("{error:#}; mend `server.masters`, or look at the name server"),
                );
                continue;
            }
        };
        match fetch_list(address, PATIENCE) {
            Err(why) => report.warn("list servers", format!("{host}: {why}")),
            Ok(listed) if running.is_none() => {
                report
                    .ok("list servers", format!("{host} answers, with {}", counted(listed.len(), "server")));
            }
            Ok(listed) => {
                // Which address it has for the list server, a server behind a router does not know.
                let advertised =
                    settings.sessions.iter().filter_map(|session| session.advertise_port.fixed());
                let ours: Vec<u16> = advertised.chain(ports.iter().copied()).collect();
                let likely = listed.into_iter().filter(|server| ours.contains(&server.port()));
                is_listed(host, &likely.take(MAX_ASKED).collect(), running, report);
            }
        }
    }
}

/// Tells whether one of the servers that a list server has at our ports is ours: it has the name of one of our sessions.
fn is_listed(host: &str, likely: &BTreeSet<SocketAddrV4>, running: Option<&Value>, report: &mut Report) {
    let Some(first) = likely.first() else {
        report.warn(
            "list servers",
            format!("{host} answers and does not list us: it must reach our port from outside; see address and firewall"),
        );
        return;
    };
    let names = ask_names(likely, PATIENCE).unwrap_or_default();
    let is_ours = |name: &str| sessions(running).any(|session| session["name"] == name);
    if let Some((address, _)) = names.iter().find(|(_, name)| is_ours(name)) {
        report.ok("list servers", format!("{host} lists {address}, which answers by our name"));
    } else if names.len() == likely.len() {
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
}

/// Joins every session of the running server for a moment.
pub(super) fn joins(settings: &Settings, running: Option<&Value>, report: &mut Report) {
    if running.is_none() {
        report.ok("join", "not tried, for no server runs; start it, and run this again");
    }
    for (session, set) in sessions(running).zip(&settings.sessions) {
        let Some(port) = port(session) else { continue };
        let bind = settings.server.bind;
        let ip = if bind.is_unspecified() { Ipv4Addr::LOCALHOST } else { bind };
        let address = SocketAddrV4::new(ip, port);
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

/// How many servers at our port are asked for their names. A list may have any number.
const MAX_ASKED: usize = 16;
/// How long a list server, or those whom it lists, may take.
const PATIENCE: Duration = Duration::from_secs(5);
