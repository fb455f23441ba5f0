//! `bcnet proxy`: between players and a server that nobody can change.
//!
//! [`relay`] is the loop and the sockets around the proxy of `bcnet-proxy`, which decides what goes where; [`watch`]
//! looks over its shoulder and tells what it sees.

mod options;
mod relay;
mod watch;

use std::io::{self, Write};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use tracing::level_filters::LevelFilter;

use crate::serve::clock::{Clock, wall_now};
use crate::serve::recorder::{Recorder, Ring};
use crate::{Verdict, bans, log};
use options::{Pool, Upstream};
use relay::{Relay, Setup};

#[derive(clap::Args)]
#[command(after_help = "\
Without --heal every byte passes as it came. With it, ACKs that say nothing new are taken out and messages that have \
arrived are not passed on again; every game byte stays what it was.

A stock server tells players apart by their IPv4 address alone. Give the proxy a network of addresses of this machine \
with --upstream-source, one for each player; on the same machine as the server 127.1.0.0/16 needs no setup. Without \
one, the proxy lets in one player at a time.

SIGTERM and SIGINT end it, SIGUSR1 prints the queues, SIGHUP reads the bans again.

Exit codes: 0 ended as told, 2 could not run.

Examples:
  bcnet proxy --listen 0.0.0.0:22101 --upstream 127.0.0.1:22102 --upstream-source 127.1.0.0/16 --heal
  bcnet proxy --listen 0.0.0.0:22101 --upstream server.example:22101 --observe --queues 30 --write game.pcapng")]
pub(crate) struct Args {
    /// Where players connect to
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "0.0.0.0:22101")]
    listen: std::net::SocketAddr,

    /// The server behind the proxy
    #[arg(long, value_name = "HOST:PORT")]
    upstream: Upstream,

    /// Addresses of this machine toward the server, one for each player: a network, or addresses with commas between
    #[arg(long, value_name = "POOL", default_value = "")]
    upstream_source: Pool,

    /// Take the faults of the stock transport out of what passes
    #[arg(long)]
    heal: bool,

    /// Pass everything unchanged and tell what is seen (this is what happens without --heal)
    #[arg(long, conflicts_with = "heal")]
    observe: bool,

    /// Print the queues of all conversations this often, in seconds
    #[arg(long, value_name = "SECONDS")]
    queues: Option<u32>,

    /// Write everything that arrives to a ring of capture files for Wireshark, with remarks on what is wrong
    #[arg(long, value_name = "FILE.pcapng")]
    write: Option<PathBuf>,

    /// Turn away whom this file bans; its form is that of `bcnet serve`
    #[arg(long, value_name = "FILE")]
    bans: Option<PathBuf>,

    /// The most datagrams a second from one player; 0 is any number
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    rate: u32,

    /// Do not pass on what players send malformed
    #[arg(long)]
    drop_malformed: bool,

    /// Tell list servers of this port, which players reach the proxy at
    #[arg(long, value_name = "PORT", requires = "master")]
    advertise: Option<u16>,

    /// A list server; may be given more than once
    #[arg(long, value_name = "HOST[:PORT]", requires = "advertise")]
    master: Vec<options::Master>,

    /// Write the log as JSON
    #[arg(long)]
    log_json: bool,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<Verdict> {
    let listen = options::ipv4(args.listen)?;
    let _log = log::start(&log::Options { level: LevelFilter::INFO, json: args.log_json, file: None })?;
    let upstream = args.upstream.resolve()?;
    let masters = args.master.iter().filter_map(options::Master::resolve).collect();
    let recorder =
        args.write.clone().map(|path| Recorder::start(Ring { path, size: RING_SIZE, files: RING_FILES }));
    let setup = Setup {
        listen,
        upstream,
        config: bcnet_proxy::Config {
            heal: args.heal,
            sources: args.upstream_source.addresses(),
            bans: read_bans(args)?,
            rate: args.rate,
            drop_malformed: args.drop_malformed,
            ..bcnet_proxy::Config::default()
        },
        queues: args.queues.map(|seconds| Duration::from_secs(seconds.max(1).into())),
        advertise: args.advertise.unwrap_or(0),
        masters,
    };
    let mut relay = Relay::new(setup, Clock::start(), recorder.transpose()?)?;
    let orders = relay.orders();
    options::listen_to_signals(orders, args.bans.clone())?;
    let ready = format!("proxy ready port={} upstream={upstream}\n", relay.port());
    // Whoever started the proxy may not be interested in its output.
    drop(io::stdout().write_all(ready.as_bytes()).and_then(|()| io::stdout().flush()));
    relay.run().context("waiting for datagrams")?;
    tracing::info!(event = "stopped");
    Ok(Verdict::Clean)
}

fn read_bans(args: &Args) -> anyhow::Result<Vec<(std::net::Ipv4Addr, u8)>> {
    let Some(path) = &args.bans else { return Ok(Vec::new()) };
    Ok(bans::load(path, wall_now().as_secs())?.networks().collect())
}

const RING_SIZE: u64 = 64 << 20;
const RING_FILES: u32 = 4;
