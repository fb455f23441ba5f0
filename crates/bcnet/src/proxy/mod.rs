//! `bcnet proxy`: between players and a server that nobody can change.
//!
//! [`relay`] is what its event loop drives, around the proxy of `bcnet-proxy`, which decides what goes where; [`sockets`] are its sockets,
//! [`watch`] looks over its shoulder and tells what it sees, [`tape`] has what waits for the capture, and [`metrics`] counts.

mod annotated_recorder;
mod metrics;
mod options;
mod proxy_observer;
mod relay;
mod sockets;
mod upstream_timeout;

use std::io::{self, Write};
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use bcnet_session::Network;
use bcnet_udp::{Clock, wall_now};
use tracing::level_filters::LevelFilter;

use crate::config::{ConfigValue as _, ListServerAddress};
use crate::event_loop::EventLoop;
use crate::random::random_u64;
use crate::recorder::{CaptureRing, Recorder};
use crate::{CommandStatus, bans, log, metrics_server};
use options::{SourcePool, Upstream};
use relay::{Relay, RelaySetup};

const SIGNALS: &str = if cfg!(windows) {
    "Ctrl-C or closing the window ends it. The bans are read again every minute."
} else {
    "SIGTERM and SIGINT end it, SIGUSR1 prints the queues, SIGHUP reads the bans again, as every minute does."
};

#[derive(clap::Args)]
#[command(after_help = format!("\
Without --heal every byte passes as it came, in datagrams of up to 2048 bytes; no known sender makes longer ones, and \
they are dropped. With it, ACKs that say nothing new are taken out and messages that have \
arrived are not passed on again; every game byte stays what it was.

A stock server tells players apart by their IPv4 address alone. Give the proxy a network of addresses of this machine \
with --upstream-source, one for each player; on the same machine as the server 127.1.0.0/16 needs no setup. Without \
one, the proxy lets in one player at a time.

{SIGNALS}

Exit codes: 0 ended as told, 2 could not run.

Examples:
  bcnet proxy --upstream 127.0.0.1:22102 --upstream-source 127.1.0.0/16 --heal
  bcnet proxy --listen 0.0.0.0:22150 --upstream server.example:22101 --observe
  bcnet proxy --upstream server.example:22101 --queues 30 --write game.pcapng
  bcnet proxy --upstream server.example:22101 --metrics 127.0.0.1:9110"))]
pub(crate) struct Args {
    /// Where players connect to
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "0.0.0.0:22101")]
    listen: SocketAddr,

    /// The server behind the proxy
    #[arg(long, value_name = "HOST:PORT")]
    upstream: Upstream,

    /// Addresses of this machine toward the server, one for each player: a network, or addresses with commas between
    #[arg(long, value_name = "POOL", default_value = "")]
    upstream_source: SourcePool,

    /// Take the faults of the stock transport out of what passes
    #[arg(long)]
    heal: bool,

    /// Pass everything up to 2048 bytes unchanged and tell what is seen (this is what happens without --heal)
    #[arg(long, conflicts_with = "heal")]
    observe: bool,

    /// Print the queues of all conversations this often, in seconds
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..))]
    queues: Option<u32>,

    /// Log what each side does with every ACK that it gets: what it clears, and what waited then
    #[arg(long)]
    handle_acks: bool,

    /// Write what players and server say to a ring of capture files for Wireshark, with remarks on what is wrong
    #[arg(long, value_name = "FILE.pcapng")]
    write: Option<PathBuf>,

    /// Turn away whom this file bans; its form is that of `bcnet serve`
    #[arg(long, value_name = "FILE")]
    bans: Option<PathBuf>,

    /// The most datagrams a second from one player, and new players from one address; 0 is any number
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    rate: u32,

    /// The most questions of browsers a second, of all networks together; beyond that only who asks again within five
    /// seconds is heard
    #[arg(long, value_name = "NUMBER", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=1000))]
    query_rate: u32,

    /// A network to which no limit by address applies but that of 16 players, besides 127.0.0.0/8; may be given more than once
    #[arg(long, value_name = "NETWORK", value_parser = Network::from_text)]
    trusted: Vec<Network>,

    /// Do not pass on what players send malformed
    #[arg(long)]
    drop_malformed: bool,

    /// Tell list servers of this port, which players reach the proxy at
    #[arg(long, value_name = "PORT", requires = "master", value_parser = clap::value_parser!(u16).range(1..))]
    advertise: Option<u16>,

    /// A list server; may be given more than once
    #[arg(long, value_name = "HOST[:PORT]", requires = "advertise", value_parser = ListServerAddress::from_text)]
    master: Vec<ListServerAddress>,

    /// Give out figures for Prometheus at http://ADDRESS:PORT/metrics, health at /livez and /readyz
    #[arg(long, value_name = "ADDRESS:PORT")]
    metrics: Option<SocketAddr>,

    /// Write the log as JSON
    #[arg(long)]
    log_json: bool,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<CommandStatus> {
    let _log = log::start(&log::LogOptions { level: LevelFilter::INFO, json: args.log_json, file: None })?;
    let setup = setup(args)?;
    let metrics = args.metrics.map(|address| {
        TcpListener::bind(address).with_context(|| format!("--metrics: cannot listen at TCP {address}"))
    });
    let clock = Clock::start();
    let mut event_loop = EventLoop::new(clock)?;
    let mut relay = Relay::new(setup, &event_loop)?;
    options::listen_to_signals(&event_loop.command_sender(), args.bans.clone())?;
    options::start_housekeeping(event_loop.command_sender(), args.master.clone(), args.bans.clone())?;
    let mut ready = format!("proxy ready port={} upstream={}", relay.port(), relay.upstream());
    if let Some(listener) = metrics.transpose()? {
        let address = metrics_server::start(listener, clock, event_loop.command_sender())?;
        ready.push_str(&format!(" metrics={address}"));
    }
    ready.push('\n');
    // Whoever started the proxy may not be interested in its output.
    drop(io::stdout().write_all(ready.as_bytes()).and_then(|()| io::stdout().flush()));
    event_loop.run(&mut relay).context("waiting for datagrams")?;
    tracing::info!(event = "stopped");
    Ok(CommandStatus::Clean)
}

fn setup(args: &Args) -> anyhow::Result<RelaySetup> {
    let defaults = bcnet_proxy::ProxyConfig::default();
    let ring = |path| CaptureRing { path, file_size: RING_FILE_BYTES, file_count: RING_FILES };
    Ok(RelaySetup {
        listen: options::require_ipv4(args.listen)?,
        upstream: args.upstream.clone(),
        config: bcnet_proxy::ProxyConfig {
            heal: args.heal,
            sources: args.upstream_source.addresses(),
            bans: read_bans(args)?,
            rate: args.rate,
            drop_malformed: args.drop_malformed,
            query_rate: args.query_rate,
            trusted: [&defaults.trusted[..], &args.trusted].concat(),
            seed: random_u64(),
            ..defaults
        },
        dump_interval: args.queues.map(|seconds| Duration::from_secs(seconds.into())),
        log_handled_acks: args.handle_acks,
        advertise: args.advertise.unwrap_or(0),
        recorder: args.write.clone().map(ring).map(Recorder::start).transpose()?,
    })
}

fn read_bans(args: &Args) -> anyhow::Result<Vec<Network>> {
    let Some(path) = &args.bans else { return Ok(Vec::new()) };
    let bans = bans::load_existing(path, wall_now().as_secs()).context("--bans")?;
    Ok(bans.networks())
}

const RING_FILE_BYTES: u64 = 64 << 20;
const RING_FILES: u32 = 4;
