//! `bcnet master`: a small list server for local networks and friends.
//!
//! Servers announce themselves by UDP ([`server`]); games request the list by TCP ([`client`]).

mod client;
mod server;

use std::io::{self, Write};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpListener};
use std::thread;

use anyhow::Context;
use bcnet_udp::{Clock, Io, Socket};
use tracing::level_filters::LevelFilter;

use crate::config::ConfigValue;
use crate::event_loop::EventLoop;
use crate::signals::{self, Signal};
use crate::{CommandStatus, log, metrics_server};
use server::ListServer;

const SIGNAL_HELP: &str =
    if cfg!(windows) { "Ctrl-C or closing the window stops it." } else { "SIGTERM and SIGINT stop it." };

#[derive(clap::Args)]
#[command(after_help = format!("\
Servers announce themselves with `masters = [\"HOST\"]` in their configuration. Games find the list with HOST in their \
masterserver.txt. The list server adds a server that answers its challenge and is reachable at the port it names. It \
queries each server every minute, and removes it after three queries without an answer, or when the server signs off.

The line `master ready udp=… tcp=…` on standard output shows that it listens. The log goes to standard error. {SIGNAL_HELP}

Exit codes: 0 stopped on request, 2 could not run."))]
pub(crate) struct Args {
    /// The local address to listen at; 0.0.0.0 stands for all addresses
    #[arg(long, value_name = "ADDRESS", default_value = "0.0.0.0", value_parser = Ipv4Addr::from_text)]
    bind: Ipv4Addr,

    /// The UDP port for heartbeats of servers; 0 selects any free port
    #[arg(long, value_name = "PORT", default_value_t = 27900)]
    udp: u16,

    /// The TCP port for lists; 0 selects any free port
    #[arg(long, value_name = "PORT", default_value_t = 28900)]
    tcp: u16,

    /// Serve Prometheus metrics at http://ADDRESS:PORT/metrics, and health at /livez and /readyz
    #[arg(long, value_name = "ADDRESS:PORT")]
    metrics: Option<SocketAddr>,

    /// Write the log as JSON lines
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<CommandStatus> {
    let taken = |kind: &'static str, port: u16, flag: &'static str| {
        move || format!("cannot listen at {kind} {}:{port}; choose another {flag} or --bind", args.bind)
    };
    let udp = Socket::bind(SocketAddrV4::new(args.bind, args.udp), Io::BEST)
        .with_context(taken("UDP", args.udp, "--udp"))?;
    let tcp = TcpListener::bind((args.bind, args.tcp)).with_context(taken("TCP", args.tcp, "--tcp"))?;
    let _log = log::start(&log::LogOptions { level: LevelFilter::INFO, json: args.json, file: None })?;
    let mut ready =
        format!("master ready udp={} tcp={}", udp.local_address()?.port(), tcp.local_addr()?.port());
    let metrics = args.metrics.map(|address| {
        TcpListener::bind(address).with_context(|| format!("--metrics: cannot listen at TCP {address}"))
    });
    let clock = Clock::start();
    let mut event_loop = EventLoop::<ListServer>::new(clock)?;
    let mut server = ListServer::new(udp, &event_loop.registrar()?)?;
    let [stopped, asked] = [event_loop.command_sender(), event_loop.command_sender()];
    let stop = Box::new(move || stopped.send(|server, _| server.stop()));
    signals::listen(vec![(Signal::Stop, stop)])?;
    thread::Builder::new().name("clients".into()).spawn(move || client::run(&tcp, &asked, clock))?;
    if let Some(listener) = metrics.transpose()? {
        let address = metrics_server::start(listener, clock, event_loop.command_sender())?;
        ready.push_str(&format!(" metrics={address}"));
    }
    ready.push('\n');
    // A failure is ignored: the parent process may have closed the output.
    drop(io::stdout().write_all(ready.as_bytes()).and_then(|()| io::stdout().flush()));
    event_loop.run(&mut server).context("cannot wait for datagrams")?;
    tracing::info!(event = "stopped");
    Ok(CommandStatus::Clean)
}
