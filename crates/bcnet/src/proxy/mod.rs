//! `bcnet proxy`: forwards datagrams between players and a server that cannot be changed.
//!
//! [`relay`] is the service that the event loop runs. It wraps the proxy of `bcnet-proxy`, which decides
//! where each datagram goes. [`sockets`] has the sockets, [`proxy_observer`] reports findings,
//! [`annotated_recorder`] holds datagrams for the capture, and [`metrics`] counts.

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
use bcnet_transport::ProofPolicy;
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
    "Ctrl-C or closing the window stops the proxy. It reads the bans again every minute."
} else {
    "SIGTERM and SIGINT stop the proxy. SIGUSR1 prints the queues. SIGHUP reads the bans again, which also happens every minute."
};

#[derive(clap::Args)]
#[command(after_help = format!("\
Without --heal the proxy forwards datagrams of up to 2048 bytes unchanged. It drops longer ones, which no known \
sender makes. With --heal it removes ACKs that acknowledge nothing new, and messages that have already arrived; the \
data of the game stays the same.

In both cases a client must show that it receives what is sent to its address, and may use only the id that the server \
assigned to it. Other datagrams are dropped and counted. At most two clients at a time may ask the server for a place \
without that proof; after 3 seconds the proxy tells the server that they have left.

A stock server distinguishes players only by IPv4 address. Give the proxy a network of addresses of this machine \
with --upstream-source, one for each player. If the server runs on the same machine, 127.1.0.0/16 needs no setup. Without \
a network, the proxy admits one player at a time.

{SIGNALS}

Exit codes: 0 stopped on request, 2 could not run.

Examples:
  bcnet proxy --upstream 127.0.0.1:22102 --upstream-source 127.1.0.0/16 --heal
  bcnet proxy --listen 0.0.0.0:22150 --upstream server.example:22101 --observe
  bcnet proxy --upstream server.example:22101 --queues 30 --write game.pcapng
  bcnet proxy --upstream server.example:22101 --metrics 127.0.0.1:9110"))]
pub(crate) struct Args {
    /// The address and port for players to connect to
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "0.0.0.0:22101")]
    listen: SocketAddr,

    /// The server to forward to
    #[arg(long, value_name = "HOST:PORT")]
    upstream: Upstream,

    /// Source addresses toward the server, one for each player: a network, or addresses separated by commas
    #[arg(long, value_name = "POOL", default_value = "")]
    upstream_source: SourcePool,

    /// Remove the faults of the stock transport from the traffic
    #[arg(long)]
    heal: bool,

    /// Forward what clients may send unchanged and report findings; the default without --heal
    #[arg(long, conflicts_with = "heal")]
    observe: bool,

    /// Print the queues of all conversations at this interval, in seconds
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..))]
    queues: Option<u32>,

    /// Log for each ACK what its receiver clears, and what was in its queue
    #[arg(long)]
    handle_acks: bool,

    /// Write the traffic to a ring of capture files for Wireshark, with findings as comments
    #[arg(long, value_name = "FILE.pcapng")]
    write: Option<PathBuf>,

    /// Refuse the players whom this file bans; it has the format of the bans file of `bcnet serve`
    #[arg(long, value_name = "FILE")]
    bans: Option<PathBuf>,

    /// Limit per second for datagrams of a player, and for new players of an address; 0: no limit
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    rate: u32,

    /// Answers to browser queries per second, 250 bytes each; near it, only queries repeated in 5 s pass
    #[arg(long, value_name = "NUMBER", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=1000))]
    query_rate: u32,

    /// A network with no limit per address but that of 16 players, like 127.0.0.0/8; may be repeated
    #[arg(long, value_name = "NETWORK", value_parser = Network::from_text)]
    trusted: Vec<Network>,

    /// A network with a separate budget for browser queries, like the private ones; may be repeated
    #[arg(long, value_name = "NETWORK", value_parser = Network::from_text)]
    home_network: Vec<Network>,

    /// Drop malformed datagrams of players; --heal implies it
    #[arg(long)]
    drop_malformed: bool,

    /// Forward malformed datagrams of players with --heal, too. A stock server may crash or obey them
    #[arg(long, conflicts_with = "drop_malformed")]
    pass_malformed: bool,

    /// The proof of an address: ack (of a cookie), or id (use of the id, which can be guessed)
    #[arg(long, value_name = "PROOF", value_enum, default_value = "ack")]
    prove: Proof,

    /// The port to announce to list servers, at which players reach the proxy
    #[arg(long, value_name = "PORT", requires = "master", value_parser = clap::value_parser!(u16).range(1..))]
    advertise: Option<u16>,

    /// A list server; may be repeated
    #[arg(long, value_name = "HOST[:PORT]", requires = "advertise", value_parser = ListServerAddress::from_text)]
    master: Vec<ListServerAddress>,

    /// Serve Prometheus metrics at http://ADDRESS:PORT/metrics, and health at /livez and /readyz
    #[arg(long, value_name = "ADDRESS:PORT")]
    metrics: Option<SocketAddr>,

    /// Write the log as JSON lines
    #[arg(long)]
    log_json: bool,
}

/// The proof of an address before a server that does not ask for one.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum Proof {
    Ack,
    Id,
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
    // A failure is ignored: the parent process may have closed the output.
    drop(io::stdout().write_all(ready.as_bytes()).and_then(|()| io::stdout().flush()));
    event_loop.run(&mut relay).context("cannot wait for datagrams")?;
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
            drop_malformed: (args.heal || args.drop_malformed) && !args.pass_malformed,
            proof_policy: match args.prove {
                Proof::Ack => ProofPolicy::Ack,
                Proof::Id => ProofPolicy::Id,
            },
            query_rate: args.query_rate,
            trusted: [&defaults.trusted[..], &args.trusted].concat(),
            home_networks: [&defaults.home_networks[..], &args.home_network].concat(),
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
