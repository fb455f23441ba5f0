//! `bcnet query`: queries the status of servers.
//!
//! The servers are one address, the local network, or those of a list server.

mod list;
mod show;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, ErrorKind, Write};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};
use std::time::Duration;

use anyhow::{Context, ensure};
use bcnet_session::browser::{ReplyAssembler, STATUS_QUERY};
use bcnet_transport::Time;
use bcnet_udp::Clock;

use crate::CommandStatus;
use crate::config::{ConfigValue, HostPort};
use crate::lookup;
use crate::standard_output;
pub(crate) use list::fetch as fetch_list;
use show::AnsweredServer;

#[derive(clap::Args)]
#[command(after_help = "\
Exit codes: 0 a server answered, 1 no server answered or there is no list, 2 the
query could not be sent. An empty list counts as a list.

Examples:
  bcnet query 192.0.2.1
  bcnet query games.example:22150 --json | jq -r \".players[]\"
  bcnet query --lan
  bcnet query --master games.example")]
pub(crate) struct Args {
    /// The server; the default port is 22101
    #[arg(value_name = "HOST[:PORT]", required_unless_present_any = ["lan", "master"], value_parser = parse_host)]
    host: Option<HostPort<22101>>,

    /// Query all servers in the local network, as the game does: ports 22101 to 22201
    #[arg(long, conflicts_with = "host")]
    lan: bool,

    /// Query a list server (default TCP port 28900) and all servers that it lists
    #[arg(long, value_name = "HOST[:PORT]", conflicts_with_all = ["host", "lan"], value_parser = parse_list_server)]
    master: Option<HostPort<LIST_PORT>>,

    /// Destination of the query with --lan, for example the broadcast address of one network
    #[arg(long, value_name = "ADDRESS", default_value = "255.255.255.255", requires = "lan")]
    broadcast: Ipv4Addr,

    /// Time to wait for answers, for example 500ms or 3s
    #[arg(long, value_name = "TIME", default_value = "3s", value_parser = Duration::from_text)]
    timeout: Duration,

    /// Print JSON: one object per server and line
    #[arg(long, conflicts_with = "raw")]
    json: bool,

    /// Print the received datagrams, one per line; non-ASCII bytes are printed as \xNN
    #[arg(long)]
    raw: bool,
}

pub(crate) fn parse_host(text: &str) -> Result<HostPort<22101>, String> {
    ConfigValue::from_text(text)
}

fn parse_list_server(text: &str) -> Result<HostPort<LIST_PORT>, String> {
    ConfigValue::from_text(text)
}

pub(crate) fn run(args: &Args) -> anyhow::Result<CommandStatus> {
    if let Some(master) = &args.master {
        return query_list_server(args, master);
    }
    let mut query = StatusQuery::new(args.timeout, args.raw)?;
    let out = &mut standard_output::lock();
    let found = match &args.host {
        Some(host) => {
            let address = lookup::first_ipv4_address(host)?;
            query.query_one(address, out)?;
            if query.replies.is_empty() {
                eprintln!("bcnet: {address}: no answer within {}", args.timeout.to_toml().trim_matches('"'));
            }
            query.replies
        }
        None => {
            query.query_broadcast(args.broadcast, out)?;
            if query.replies.is_empty() {
                eprintln!("bcnet: no server in the local network answered");
            }
            query.replies
        }
    };
    let verdict = if found.is_empty() { CommandStatus::Findings } else { CommandStatus::Clean };
    let found: Vec<AnsweredServer> = found.into_values().collect();
    match found.as_slice() {
        _ if args.raw => {}
        found if args.json => {
            for found in found {
                writeln!(out, "{}", show::json(found))?;
            }
        }
        [] => {}
        [one] if !args.lan => show::details(one, out)?,
        found => show::table(found, out)?,
    }
    Ok(verdict)
}

/// Queries a list server, then the servers that it lists.
fn query_list_server(args: &Args, master: &HostPort<LIST_PORT>) -> anyhow::Result<CommandStatus> {
    ensure!(args.timeout > Duration::ZERO, "--timeout: expected a time above zero, such as 3s");
    let address = lookup::first_ipv4_address(master)?;
    let listed = match list::fetch(address, args.timeout) {
        Ok(listed) => listed,
        Err(why) => {
            eprintln!("bcnet: {address}: {why}");
            return Ok(CommandStatus::Findings);
        }
    };
    let out = &mut standard_output::lock();
    let mut query = StatusQuery::new(args.timeout, args.raw)?;
    query.query_listed(&listed, out)?;
    let found = query.replies;
    let silent: Vec<_> = listed.into_iter().filter(|address| !found.contains_key(address)).collect();
    let verdict =
        if found.is_empty() && !silent.is_empty() { CommandStatus::Findings } else { CommandStatus::Clean };
    let found: Vec<AnsweredServer> = found.into_values().collect();
    if args.json {
        for found in &found {
            writeln!(out, "{}", show::json(found))?;
        }
        for address in silent {
            writeln!(out, "{}", show::silent_json(address))?;
        }
    } else if !args.raw {
        if found.is_empty() && silent.is_empty() {
            writeln!(out, "{address} lists no servers")?;
        } else {
            show::table(&found, out)?;
        }
        for address in silent {
            writeln!(out, "{:<21}  no answer", address.to_string())?;
        }
    }
    Ok(verdict)
}

/// Returns the names of the servers that answer.
pub(crate) fn query_names(
    servers: &BTreeSet<SocketAddrV4>,
    timeout: Duration,
) -> anyhow::Result<BTreeMap<SocketAddrV4, String>> {
    let mut query = StatusQuery::new(timeout, false)?;
    query.query_listed(servers, &mut io::sink())?;
    let name = |found: AnsweredServer| found.reply.get("hostname").unwrap_or_default().to_owned();
    Ok(query.replies.into_iter().map(|(address, found)| (address, name(found))).collect())
}

/// A status query and the replies to it.
struct StatusQuery {
    socket: UdpSocket,
    clock: Clock,
    end: Time,
    raw: bool,
    /// Servers that may answer; `None` means any server.
    expected_servers: Option<BTreeSet<SocketAddrV4>>,
    assemblies: BTreeMap<SocketAddrV4, ReplyAssembler>,
    replies: BTreeMap<SocketAddrV4, AnsweredServer>,
}

impl StatusQuery {
    fn new(timeout: Duration, raw: bool) -> anyhow::Result<Self> {
        ensure!(timeout > Duration::ZERO, "--timeout: expected a time above zero, such as 3s");
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).context("cannot open a UDP socket")?;
        let clock = Clock::start();
        let end = clock.now() + timeout;
        Ok(Self {
            socket,
            clock,
            end,
            raw,
            expected_servers: None,
            assemblies: BTreeMap::new(),
            replies: BTreeMap::new(),
        })
    }

    /// Queries one server, up to three times, until it answers.
    fn query_one(&mut self, address: SocketAddrV4, out: &mut impl Write) -> anyhow::Result<()> {
        let start = self.clock.now();
        let pause = self.end.since(start) / ATTEMPTS;
        for attempt in 1..=ATTEMPTS {
            self.socket
                .send_to(STATUS_QUERY, address)
                .with_context(|| format!("cannot send to {address}"))?;
            let until = if attempt == ATTEMPTS { self.end } else { start + pause * attempt };
            while self.replies.is_empty() && self.receive(start, until, Some(address), out)? {}
            if !self.replies.is_empty() {
                break;
            }
        }
        Ok(())
    }

    /// Queries all servers by broadcast and collects the answers.
    fn query_broadcast(&mut self, target: Ipv4Addr, out: &mut impl Write) -> anyhow::Result<()> {
        self.socket.set_broadcast(true).context("cannot enable broadcast on the socket")?;
        let start = self.clock.now();
        for port in FIRST_PORT..=LAST_PORT {
            let address = SocketAddrV4::new(target, port);
            self.socket
                .send_to(STATUS_QUERY, address)
                .with_context(|| format!("cannot broadcast to {address}"))?;
        }
        while self.receive(start, self.end, None, out)? {}
        Ok(())
    }

    /// Queries all listed servers at once, up to three times, until all have answered.
    fn query_listed(&mut self, listed: &BTreeSet<SocketAddrV4>, out: &mut impl Write) -> anyhow::Result<()> {
        let start = self.clock.now();
        let pause = self.end.since(start) / ATTEMPTS;
        self.expected_servers = Some(listed.clone());
        for attempt in 1..=ATTEMPTS {
            for address in listed.iter().filter(|address| !self.replies.contains_key(address)) {
                // A send error is ignored: the server counts as one that does not answer.
                drop(self.socket.send_to(STATUS_QUERY, address));
            }
            let until = if attempt == ATTEMPTS { self.end } else { start + pause * attempt };
            while self.replies.len() < listed.len() && self.receive(start, until, None, out)? {}
        }
        Ok(())
    }

    /// Receives one datagram, only from `only` if given. Returns `false` at the time `until`.
    fn receive(
        &mut self,
        start: Time,
        until: Time,
        only: Option<SocketAddrV4>,
        out: &mut impl Write,
    ) -> anyhow::Result<bool> {
        let left = until.since(self.clock.now());
        if left.is_zero() {
            return Ok(false);
        }
        self.socket.set_read_timeout(Some(left))?;
        let mut buffer = [0; 2048];
        let (len, from) = match self.socket.recv_from(&mut buffer) {
            Ok((len, SocketAddr::V4(from))) => (len, from),
            Ok(_) => return Ok(true),
            // The system may report a closed port here; other servers still answer.
            Err(error) if is_transient(&error) => return Ok(true),
            Err(error) => return Err(error).context("cannot receive on the UDP socket"),
        };
        if self.expected_servers.as_ref().is_some_and(|listed| !listed.contains(&from)) {
            return Ok(true);
        }
        let known = self.assemblies.contains_key(&from);
        if only.is_some_and(|only| only != from) || (!known && self.assemblies.len() == MAX_SERVERS) {
            return Ok(true);
        }
        let datagram = buffer.get(..len).unwrap_or_default();
        if self.raw {
            writeln!(out, "{from} {}", printable(datagram))?;
        }
        if let Some(reply) = self.assemblies.entry(from).or_default().add(datagram) {
            let delay = self.clock.now().since(start);
            self.replies.entry(from).or_insert(AnsweredServer { address: from, delay, reply });
        }
        Ok(true)
    }
}

/// Returns ASCII text unchanged and all other bytes as `\xNN`.
fn printable(bytes: &[u8]) -> String {
    let show = |byte: &u8| match byte {
        b' '..=b'~' => char::from(*byte).to_string(),
        other => format!("\\x{other:02X}"),
    };
    bytes.iter().map(show).collect()
}

fn is_transient(error: &io::Error) -> bool {
    use ErrorKind::{ConnectionRefused, ConnectionReset, Interrupted, TimedOut, WouldBlock};
    matches!(error.kind(), ConnectionRefused | ConnectionReset | Interrupted | TimedOut | WouldBlock)
}

/// TCP port of list servers.
pub(crate) const LIST_PORT: u16 = 28900;
/// Number of attempts to query a server.
const ATTEMPTS: u32 = 3;
/// Maximum number of servers that are collected.
const MAX_SERVERS: usize = 1024;
/// Ports on which the game searches for servers in the local network.
pub(crate) const FIRST_PORT: u16 = 22101;
pub(crate) const LAST_PORT: u16 = 22201;
