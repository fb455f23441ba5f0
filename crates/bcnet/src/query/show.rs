//! Formats replies as text and as JSON.

use std::io::{self, Write};
use std::net::SocketAddrV4;
use std::time::Duration;

use bcnet_session::browser::ServerReply;
use serde_json::{Map, Value, json};

/// A server that answered.
#[derive(Debug)]
pub(super) struct AnsweredServer {
    pub(super) address: SocketAddrV4,
    /// Time from the query to the end of the answer.
    pub(super) delay: Duration,
    pub(super) reply: ServerReply,
}

/// Writes all details of one server.
pub(super) fn details(server: &AnsweredServer, out: &mut impl Write) -> io::Result<()> {
    let reply = &server.reply;
    writeln!(
        out,
        "{}  {}  {} ms",
        server.address,
        reply.get("hostname").unwrap_or("(no name)"),
        server.delay.as_millis()
    )?;
    for (key, value) in reply.rules().filter(|(key, _)| *key != "hostname") {
        writeln!(out, "  {key:<14} {value}")?;
    }
    let players: Vec<&str> = reply.players().collect();
    if !players.is_empty() {
        writeln!(out, "  players")?;
    }
    for player in players {
        writeln!(out, "    {player}")?;
    }
    Ok(())
}

/// Writes one line for each server.
pub(super) fn table(servers: &[AnsweredServer], out: &mut impl Write) -> io::Result<()> {
    writeln!(
        out,
        "{:<21}  {:>7}  {:<10}  {:<9}  {:>6}  name",
        "address", "players", "mission", "system", "delay"
    )?;
    for AnsweredServer { address, delay, reply } in servers {
        let word = |key| reply.get(key).unwrap_or("?");
        let players = format!("{}/{}", word("numplayers"), word("maxplayers"));
        let (mission, system, name) = (word("mapname"), word("system"), word("hostname"));
        let address = address.to_string();
        let delay = format!("{} ms", delay.as_millis());
        writeln!(out, "{address:<21}  {players:>7}  {mission:<10}  {system:<9}  {delay:>6}  {name}")?;
    }
    Ok(())
}

/// Returns a reply as a JSON object. If a key occurs twice, the first value counts.
pub(super) fn json(server: &AnsweredServer) -> Value {
    let mut rules = Map::new();
    for (key, value) in server.reply.rules() {
        rules.entry(key).or_insert_with(|| value.into());
    }
    let micros = u64::try_from(server.delay.as_micros()).unwrap_or(u64::MAX);
    json!({
        "address": server.address.to_string(),
        "delay_us": micros,
        "players": server.reply.players().collect::<Vec<_>>(),
        "rules": rules,
    })
}

/// Returns a JSON object for a listed server that does not answer.
pub(super) fn silent_json(address: SocketAddrV4) -> Value {
    json!({ "address": address.to_string(), "error": "no answer" })
}
