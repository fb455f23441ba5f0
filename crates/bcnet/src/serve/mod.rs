//! `bcnet serve`: the dedicated server.
//!
//! The [`workers`] are the threads that play. A [`session_group`] is all sessions of one of them, driven by an event loop;
//! each session has a [`session_host`]: the sans-I/O session, its socket and its log. The [`control_plane`] decides what
//! needs files and names, in the threads of the [`control_socket`], of the page ([`web`]) and of signals, and hands the workers
//! commands.

mod agones;
mod ban_list;
mod coalescing;
mod console;
mod containment;
mod control_plane;
mod control_socket;
mod describe;
mod event_log;
mod figures;
mod history;
mod hooks;
mod metrics;
mod overload;
mod rejections;
mod requests;
mod samples;
mod service_manager;
mod session_group;
mod session_host;
mod start;
mod web;
mod workers;

use std::env;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;

use bcnet_control::{Envelope, Request};
use bcnet_udp::{Clock, Io};

use crate::background::Background;
use crate::recorder::Recorder;
use crate::scores::Scores;
use crate::signals::{self, Signal};
use crate::{Verdict, config, http};
use agones::Agones;
use control_plane::{ControlPlane, Kept, Triggers};
use service_manager::ServiceManager;

const SIGNALS: &str = if cfg!(windows) {
    "Ctrl-C or closing the window says goodbye to the players and ends it, a second Ctrl-C ends it at once; `bcnet ctl \
     reload` has it read the configuration and the bans again, and `bcnet ctl queues` shows the queues of all players."
} else {
    "SIGTERM and SIGINT say goodbye to the players and end it, a second one ends it at once; SIGHUP, or `bcnet ctl \
     reload`, has it read the configuration and the bans again; SIGUSR1 prints the queues of all players on standard \
     output."
};

#[derive(clap::Args)]
#[command(after_help = format!("\
Without a configuration it hosts one game at UDP port 22101, or at the next free one up to 22201. `server ready \
port=…` on standard output tells that players can come; the log is on standard error.

{SIGNALS}

Exit codes: 0 ended as told, 2 could not run.

Examples:
  bcnet serve --name \"Friday night\"
  bcnet serve --port 22150 --write game.pcapng
  bcnet serve --config /etc/bcnet/bcnet.toml"))]
pub(crate) struct Args {
    #[command(flatten)]
    flags: config::Flags,

    /// Write all datagrams to a ring of capture files for Wireshark
    #[arg(long, value_name = "FILE.pcapng")]
    write: Option<PathBuf>,

    /// Take commands from standard input, as `bcnet ctl` has them, one a line; for panels
    #[arg(long)]
    console: bool,

    /// Use only what every platform has, one datagram per system call
    #[arg(long, hide = true)]
    portable_io: bool,
}

/// What players and the operator can come to.
#[derive(Debug)]
pub(crate) struct Open {
    pub(crate) games: Vec<Hosted>,
    /// The address of the page for browsers.
    pub(crate) page: Option<String>,
    /// The file that the settings are read from.
    pub(crate) config: Option<String>,
}

/// A game that is open.
#[derive(Debug)]
pub(crate) struct Hosted {
    pub(crate) name: String,
    pub(crate) port: u16,
}

impl Hosted {
    fn of(host: &session_host::SessionHost) -> Self {
        Self { name: host.session.config().name.clone(), port: host.address.port() }
    }
}

pub(crate) fn run(args: &Args) -> anyhow::Result<Verdict> {
    serve(args, |open| {
        let lines =
            open.games.iter().map(|Hosted { name, port }| format!("server ready port={port} name={name}\n"));
        // Whoever started the server may not be interested in its output.
        drop(
            io::stdout().write_all(lines.collect::<String>().as_bytes()).and_then(|()| io::stdout().flush()),
        );
    })
}

/// Hosts as the configuration says. Calls `ready` when players can come.
pub(crate) fn host(flags: config::Flags, ready: impl FnOnce(&Open)) -> anyhow::Result<Verdict> {
    serve(&Args { flags, write: None, console: false, portable_io: false }, ready)
}

fn serve(args: &Args, ready: impl FnOnce(&Open)) -> anyhow::Result<Verdict> {
    let mut flags = args.flags.clone();
    flags.set.extend(args.write.iter().map(|path| format!("capture.file={}", path.display())));
    let loaded = config::load(&flags, env::vars_os())?;
    let settings = &loaded.settings;
    let log = start::log(&loaded)?;
    containment::log_panics();
    let bans = start::bans(settings)?;
    let clock = Clock::start();
    let mut hosts = start::hosts(settings, if args.portable_io { Io::Portable } else { Io::BEST })?;
    let hooks = start::hooks(settings, &mut hosts, clock)?;
    let metrics = start::metrics(settings)?;
    let page = web::Page::prepare(&settings.web)?;
    let recorder = start::ring(settings).map(Recorder::start).transpose()?;
    let scores = start::scores(settings, &mut hosts)?;
    let games: Vec<Hosted> = hosts.iter().map(Hosted::of).collect();
    let limits = start::limits(settings);
    let manager = ServiceManager::from_env();
    let (reach, workers) = workers::deal(hosts, start::threads(settings), limits, clock, recorder.as_ref())?;
    let kept = Kept::by(recorder, scores.as_ref());
    let files = start::Files::of(&loaded);
    let threads_of = reach.clone();
    let ((look_up, masters), (look_after, ban_list)) = (Background::new(), Background::new());
    let triggers = Triggers { masters: look_up, bans: look_after, hooks };
    let plane = Arc::new(ControlPlane::new(flags, loaded, bans, reach, kept, triggers, log.controls.clone()));
    let agones = Agones::start(&plane.started().fleet, &threads_of, clock)?;
    listen_to_signals(&plane)?;
    let socket = files.open_socket(&plane)?;
    start_chores(&plane, masters, ban_list)?;
    let monitor = || metrics::Monitor {
        workers: threads_of.clone(),
        plane: Arc::clone(&plane),
        refused: page.as_ref().map(web::Page::refused),
        agones_failed: agones.as_ref().map(Agones::failed),
    };
    let metrics = metrics.map(|listener| http::start(listener, clock, monitor())).transpose()?;
    let metrics = metrics.map(|address| address.to_string());
    let web = page.map(|page| page.start(Arc::clone(&plane), clock)).transpose()?;
    if args.console {
        console::start(Arc::clone(&plane))?;
    }
    let (version, sessions, threads) = (crate::VERSION, games.len(), workers.len());
    let control = socket.as_ref().map(|socket| start::shown(socket.path()));
    let (config, bans) = (&files.config, files.bans);
    tracing::info!(event = "started", version, sessions, threads, config, bans, control, metrics, web);
    ready(&Open { games, page: web, config: files.config });
    manager.ready(&threads_of)?;
    let outcome = workers::run(workers);
    finish(&plane, scores, agones);
    outcome?;
    tracing::info!(event = "stopped");
    Ok(Verdict::Clean)
}

/// Waits for what is left to tell others, for all of them together.
fn finish(plane: &ControlPlane, scores: Option<Scores>, agones: Option<Agones>) {
    let agones = agones.map(Agones::stop);
    // What sessions have told is in the file before the server says that it has ended.
    drop(scores);
    plane.hooks().finish(hooks::FINISH);
    if let Some(agones) = agones {
        agones.wait();
    }
}

/// Looks after list servers, bans and figures, from now on.
fn start_chores(plane: &Arc<ControlPlane>, masters: Background, bans: Background) -> io::Result<()> {
    let (look, samples) = Background::new();
    let [masters_of, bans_of, samples_of] = [plane, plane, plane].map(Arc::clone);
    masters.start("masters", move || Some(masters_of.look_up_masters()))?;
    bans.start("bans", move || Some(bans_of.look_after_bans()))?;
    samples.start("samples", move || samples_of.take_sample())?;
    plane.fire_triggers();
    look.fire();
    Ok(())
}

fn listen_to_signals(plane: &Arc<ControlPlane>) -> anyhow::Result<()> {
    let ((reload, reloading), (dump, dumping)) = (Background::new(), Background::new());
    let [reloaded, stopped, dumped] = [plane, plane, plane].map(Arc::clone);
    reloading.start("reload", move || {
        // The log tells what became of it.
        drop(reloaded.reload());
        None
    })?;
    dumping.start("queues", move || {
        print_queues(&dumped);
        None
    })?;
    signals::listen(vec![
        (Signal::Stop, Box::new(move || stopped.stop())),
        (Signal::Reload, Box::new(move || reload.fire())),
        (Signal::Dump, Box::new(move || dump.fire())),
    ])?;
    Ok(())
}

fn print_queues(plane: &ControlPlane) {
    let request = Envelope { session: None, by: None, request: Request::Queues { player: None } };
    if let Ok(queues) = plane.dispatch(request) {
        // Nobody may be interested.
        drop(io::stdout().write_all(bcnet_control::show(&queues).as_bytes()));
    }
}
