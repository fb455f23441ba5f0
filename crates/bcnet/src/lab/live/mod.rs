//! `bcnet lab host` and `bcnet lab join`: the engines of the laboratory on real sockets, in real time.
//!
//! The engines themselves have no sockets and no clock; this module adds both.

mod driver;
mod node;

use std::io::{self, Write};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, anyhow, ensure};
use bcnet_lab::NodeSetup;
use bcnet_lab::scenario::{Change, EngineKind};
use bcnet_lab::stock::{Params, StockEngine};
use bcnet_session::client::{Client, ClientOptions};
use bcnet_session::{Config, Session};
use bcnet_transport::wire::Text;
use bcnet_transport::{Connect, Endpoint, Time};

use crate::CommandStatus;
use crate::config::HostPort;
use crate::random::random_u64;
use crate::{lookup, query};
use driver::LiveDriver;
use node::{LiveClient, LiveHost};

const HOST_SIGNALS: &str = if cfg!(windows) {
    "A line on standard input prints the queues."
} else {
    "SIGUSR1, or a line on standard input, prints the queues."
};
const JOIN_SIGNALS: &str = if cfg!(windows) { "" } else { ", as SIGUSR1 does" };

#[derive(clap::Args)]
#[command(after_help = format!("\
This engine has the faults of the original, so that you can examine them: with `bcnet inspect` on its capture, with Wireshark, or through `bcnet proxy`. \
To host games, use `bcnet serve`. Like the original, it answers forged requests and crashes on malformed datagrams, so it listens only on the loopback \
network unless you pass --public. Like the original, it has one port for each address: players behind one address collide. Put `bcnet proxy` in front \
of it, which gives each player an address.

{HOST_SIGNALS}

Examples:
  bcnet lab host --listen 127.0.0.1:22101 --write host.pcapng
  bcnet lab host --set gate=always --set last_ack=3 --dump-every 5
  bcnet lab host --listen 127.0.0.1:22101 --engine bcnet"))]
pub(in crate::lab) struct HostArgs {
    /// Address to listen on
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:22101")]
    listen: SocketAddrV4,

    /// Allow an address outside the loopback network
    #[arg(long)]
    public: bool,

    /// Name of the game
    #[arg(long, default_value = "bcnet laboratory")]
    name: String,

    #[command(flatten)]
    common: CommonArgs,
}

#[derive(clap::Args)]
#[command(after_help = format!("\
Typed lines are sent as chat, and /dump prints the queues{JOIN_SIGNALS}.

Examples:
  bcnet lab join 127.0.0.1 --name Kirk
  bcnet lab join 127.0.0.1:22101 --set plain_acks=true --dump-every 5"))]
pub(in crate::lab) struct JoinArgs {
    /// The server; the default port is 22101
    #[arg(value_name = "HOST[:PORT]", value_parser = query::parse_host)]
    host: HostPort<22101>,

    /// Player name
    #[arg(long, default_value = "stock")]
    name: String,

    /// Password of the server
    #[arg(long, default_value = "", hide_default_value = true)]
    password: String,

    #[command(flatten)]
    common: CommonArgs,
}

#[derive(clap::Args)]
struct CommonArgs {
    /// The engine: stock or bcnet
    #[arg(long, default_value = "stock")]
    engine: EngineKind,

    /// A key of a [[node]] table and its value, for example gate=always; see docs/reference/scenarios.md
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,

    /// Print the queues at this interval, in seconds
    #[arg(long, value_name = "SECONDS")]
    dump_every: Option<f64>,

    /// Stop after this number of seconds
    #[arg(long, value_name = "SECONDS")]
    seconds: Option<f64>,

    /// Write all datagrams to a capture
    #[arg(long, value_name = "FILE.pcapng")]
    write: Option<PathBuf>,
}

impl CommonArgs {
    fn setup(&self, tick: &str) -> anyhow::Result<NodeSetup> {
        let mut keys = vec![Change::new("tick", tick)];
        for text in &self.set {
            let (key, value) =
                text.split_once('=').with_context(|| format!("--set {text}: expected KEY=VALUE"))?;
            ensure!(
                !NON_ENGINE_KEYS.contains(&key) && !key.contains('.'),
                "--set {key}: not a key of an engine"
            );
            keys.push(Change::new(key, value));
        }
        NodeSetup::from_keys(&keys).map_err(|error| anyhow!("--set: {}", error.message))
    }

    fn driver<'a>(
        &self,
        socket: UdpSocket,
        setup: &NodeSetup,
        out: &'a mut dyn Write,
    ) -> anyhow::Result<LiveDriver<'a>> {
        let seconds = |name: &str, value: Option<f64>| -> anyhow::Result<Option<Duration>> {
            let fits = value.is_none_or(|value| (0.01..1e8).contains(&value));
            ensure!(fits, "--{name}: must be 0.01 to 100,000,000 seconds");
            Ok(value.map(Duration::from_secs_f64))
        };
        let (every, end) = (seconds("dump-every", self.dump_every)?, seconds("seconds", self.seconds)?);
        LiveDriver::new(socket, setup.behavior.clone(), every, end, self.write.as_deref(), out)
    }
}

pub(in crate::lab) fn host(args: &HostArgs, out: &mut dyn Write) -> anyhow::Result<CommandStatus> {
    let HostArgs { listen, public, name, common } = args;
    ensure!(
        *public || listen.ip().is_loopback(),
        "{listen} is not a loopback address; an engine with the faults of the original listens there only with --public"
    );
    let setup = common.setup("0.003")?;
    let socket = UdpSocket::bind(listen).with_context(|| listen.to_string())?;
    let address = match socket.local_addr()? {
        SocketAddr::V4(own) => own,
        SocketAddr::V6(_) => *listen,
    };
    print_engine_notice(common.engine, &format!("hosting at {address}"));
    let config = Config { name: name.clone(), ..Config::default() };
    let driver = common.driver(socket, &setup, out)?;
    match common.engine {
        EngineKind::Stock => {
            let params = Params { address: *address.ip(), session_decides_admission: true, ..setup.params };
            driver.run(LiveHost(Session::with_engine(config, StockEngine::host(params), random_u64())))
        }
        EngineKind::Bcnet => {
            let transport = bcnet_transport::Config { address: *address.ip(), ..setup.config };
            driver.run(LiveHost(Session::with_engine(
                config,
                Endpoint::host(transport).with_secret(random_u64()),
                random_u64(),
            )))
        }
    }
}

pub(in crate::lab) fn join(args: &JoinArgs, out: &mut dyn Write) -> anyhow::Result<CommandStatus> {
    let JoinArgs { host, name, password, common } = args;
    let server = lookup::first_ipv4_address(host)?;
    let setup = common.setup("0.016667")?;
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).context("cannot open a UDP socket")?;
    print_engine_notice(common.engine, &format!("joining {server}"));
    let own = own_address(server).with_context(|| format!("cannot send to {server}"))?;
    let (nonce, options) = (random_u64() as u32, ClientOptions::with_name(name));
    let driver = common.driver(socket, &setup, out)?;
    match common.engine {
        EngineKind::Stock => {
            let password = Text::encode(password).unwrap_or_default();
            let engine = StockEngine::connect(setup.params, server, own, nonce, &password, Time::ZERO);
            driver.run(LiveClient::new(Client::new(engine, options, Time::ZERO)))
        }
        EngineKind::Bcnet => {
            let transport = bcnet_transport::Config { address: own, ..setup.config };
            let engine = Endpoint::connect(transport, Connect { host: server, nonce, password }, Time::ZERO);
            driver.run(LiveClient::new(Client::new(engine, options, Time::ZERO)))
        }
    }
}

/// Returns the address of this machine toward a server. A client sends it in its connect request.
fn own_address(server: SocketAddrV4) -> io::Result<Ipv4Addr> {
    let probe = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
    probe.connect(server)?;
    Ok(match probe.local_addr()? {
        SocketAddr::V4(own) => *own.ip(),
        SocketAddr::V6(_) => Ipv4Addr::UNSPECIFIED,
    })
}

/// Node keys that have no effect on an engine outside a scenario.
const NON_ENGINE_KEYS: [&str; 9] =
    ["name", "role", "engine", "seed", "duration", "settle", "proxy", "blocked", "comparison_cost"];

/// Prints which engine runs.
fn print_engine_notice(engine: EngineKind, what: &str) {
    match engine {
        EngineKind::Stock => eprintln!(
            "bcnet: {what} with the engine of the original, faults included: for experiments, not for games"
        ),
        EngineKind::Bcnet => eprintln!("bcnet: {what} with the bcnet engine"),
    }
}
