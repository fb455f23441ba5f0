//! `bcnet serve`: the dedicated server.
//!
//! The [`workers`] are the threads that play. A [`session_group`] is all sessions of one of them, driven by an event loop;
//! each session has a [`session_host`]: the sans-I/O session, its socket and its log. The [`control_plane`] decides what
//! needs files and names, in the threads of the [`control_socket`] and of signals, and hands the workers commands.

mod coalescing;
mod control_plane;
mod control_socket;
mod event_log;
mod figures;
mod requests;
mod session_group;
mod session_host;
mod start;
mod workers;

use std::env;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::background::Background;
use crate::clock::{Clock, wall_now};
use crate::recorder::Recorder;
use crate::signals::{self, Signal};
use crate::udp::Io;
use crate::{Verdict, bans, config, control, log};
use control_plane::ControlPlane;
use control_socket::ControlSocket;

#[derive(clap::Args)]
#[command(after_help = "\
Without a configuration it hosts one game at UDP port 22101, or at the next free one up to 22201. `server ready \
port=…` on standard output tells that players can come; the log is on standard error.

SIGTERM and SIGINT say goodbye to the players and end it, a second one ends it at once; SIGHUP reads the \
configuration and the bans again.

Exit codes: 0 ended as told, 2 could not run.

Examples:
  bcnet serve --name 'Friday night'
  bcnet serve --port 22150 --write game.pcapng
  bcnet serve --config /etc/bcnet/bcnet.toml")]
pub(crate) struct Args {
    #[command(flatten)]
    flags: config::Flags,

    /// Write all datagrams to a ring of capture files for Wireshark
    #[arg(long, value_name = "FILE.pcapng")]
    write: Option<PathBuf>,

    /// Use only what every platform has, one datagram per system call
    #[arg(long, hide = true)]
    portable_io: bool,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<Verdict> {
    let mut flags = args.flags.clone();
    flags.set.extend(args.write.iter().map(|path| format!("capture.file={}", path.display())));
    let loaded = config::load(&flags, env::vars_os())?;
    let control_is_wanted = *loaded.origin("server", "control") != config::Origin::Default;
    let settings = loaded.settings;
    let _log = log::start(&start::log_options(&settings))?;
    let bans = bans::load(&settings.server.bans, wall_now().as_secs())?;
    let clock = Clock::start();
    let hosts = start::hosts(&settings, if args.portable_io { Io::Portable } else { Io::BEST })?;
    let recorder = start::ring(&settings).map(Recorder::start).transpose()?;
    let ready: String = hosts
        .iter()
        .map(|host| {
            format!("server ready port={} name={}\n", host.address.port(), host.session.config().name)
        })
        .collect();
    let limits = start::limits(&settings);
    let (reach, workers) = workers::deal(hosts, start::threads(&settings), limits, clock, recorder.as_ref())?;
    let control = control::path(&settings);
    let left_out = recorder.map(|recorder| recorder.left_out());
    let (refresh, housekeeping) = Background::new();
    let plane = ControlPlane::new(flags, settings, bans, reach, left_out, refresh.clone());
    let plane = Arc::new(plane);
    listen_to_signals(&plane)?;
    let control = control.map(|path| ControlSocket::start(&path, Arc::clone(&plane))).transpose();
    let _socket = match control {
        Err(error) if !control_is_wanted => {
            tracing::warn!(
                event = "no_control",
                error = format!("{error:#}"),
                "`bcnet ctl` cannot reach this server; name another place with `server.control`"
            );
            None
        }
        control => control?,
    };
    housekeeping.start("housekeeping", Some(HOUSEKEEPING), move || plane.housekeep())?;
    refresh.fire();
    let (version, sessions, threads) = (env!("CARGO_PKG_VERSION"), ready.lines().count(), workers.len());
    tracing::info!(event = "started", version, sessions, threads);
    // Whoever started the server may not be interested in its output.
    drop(io::stdout().write_all(ready.as_bytes()).and_then(|()| io::stdout().flush()));
    workers::run(workers)?;
    tracing::info!(event = "stopped");
    Ok(Verdict::Clean)
}

fn listen_to_signals(plane: &Arc<ControlPlane>) -> anyhow::Result<()> {
    let (reload, reloading) = Background::new();
    let [reloaded, stopped] = [plane, plane].map(Arc::clone);
    // The log tells what became of it.
    reloading.start("reload", None, move || drop(reloaded.reload()))?;
    signals::listen(vec![
        (Signal::Stop, Box::new(move || stopped.stop())),
        (Signal::Reload, Box::new(move || reload.fire())),
    ])?;
    Ok(())
}

const HOUSEKEEPING: Duration = Duration::from_secs(60);
