//! `bcnet serve`: the dedicated server.
//!
//! [`workers`] are the threads that run sessions. Each worker has one [`session_group`], which drives its
//! sessions from one event loop.
//! A [`session_host`] is one session with its socket, counters and log.
//! The [`control_plane`] handles requests that need files or name lookups. Its callers are the
//! [`control_socket`], the operator page ([`web`]) and signals. It sends commands to the workers.

mod agones;
mod ban_list;
mod coalescing;
mod console;
mod control_plane;
mod control_socket;
mod event_log;
mod history;
mod hooks;
mod load_shedding;
mod metrics;
mod panic_isolation;
mod rejections;
mod requests;
mod samples;
mod service_manager;
mod session_group;
mod session_host;
mod session_metrics;
mod start;
mod status_json;
mod web;
mod workers;

use std::env;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;

use bcnet_control::{Envelope, Request};
use bcnet_udp::{Clock, Io};

use crate::background::BackgroundTask;
use crate::recorder::Recorder;
use crate::scores::ScoreRecorder;
use crate::signals::{self, Signal};
use crate::{CommandStatus, config, file, metrics_server};
use agones::Agones;
use control_plane::{ControlPlane, MaintenanceTriggers, WriterCounters};
use service_manager::ServiceManager;

const SIGNALS: &str = if cfg!(windows) {
    "Ctrl-C, or closing the window, disconnects the players and stops the server; a second Ctrl-C stops it at once. \
     `bcnet ctl reload` reads the configuration and the bans again. `bcnet ctl queues` shows the queues of all players."
} else {
    "SIGTERM and SIGINT disconnect the players and stop the server; a second one stops it at once. SIGHUP, like \
     `bcnet ctl reload`, reads the configuration and the bans again. SIGUSR1 prints the queues of all players on \
     standard output."
};

#[derive(clap::Args)]
#[command(after_help = format!("\
Without a configuration the server hosts one game on UDP port 22101, or on the next free port up to 22201. \
`server ready port=…` on standard output means that players can join. The log goes to standard error.

{SIGNALS}

Exit codes: 0 stopped on request, 2 could not run.

Examples:
  bcnet serve --name \"Friday night\"
  bcnet serve --port 22150 --write game.pcapng
  bcnet serve --config /etc/bcnet/bcnet.toml"))]
pub(crate) struct Args {
    #[command(flatten)]
    flags: config::ConfigFlags,

    /// Write all datagrams to a ring of capture files for Wireshark
    #[arg(long, value_name = "FILE.pcapng")]
    write: Option<PathBuf>,

    /// Read commands from standard input, one per line, as for `bcnet ctl`; for hosting panels
    #[arg(long)]
    console: bool,

    /// Use only portable system calls: one datagram per call
    #[arg(long, hide = true)]
    portable_io: bool,
}

/// The addresses of a running server, for players and for the operator.
#[derive(Debug)]
pub(crate) struct ReadyServer {
    pub(crate) games: Vec<HostedGame>,
    /// URL of the operator page.
    pub(crate) page_url: Option<String>,
    /// The file that holds the settings.
    pub(crate) config: Option<String>,
}

/// A game that players can join.
#[derive(Debug)]
pub(crate) struct HostedGame {
    pub(crate) name: String,
    pub(crate) port: u16,
}

impl HostedGame {
    fn of(host: &session_host::SessionHost) -> Self {
        Self { name: host.session.config().name.clone(), port: host.address.port() }
    }
}

pub(crate) fn run(args: &Args) -> anyhow::Result<CommandStatus> {
    file::restrict_new_files();
    serve(args, |server| {
        let lines = server
            .games
            .iter()
            .map(|HostedGame { name, port }| format!("server ready port={port} name={name}\n"));
        // Write errors are ignored: the parent process may have closed the pipe.
        drop(
            io::stdout().write_all(lines.collect::<String>().as_bytes()).and_then(|()| io::stdout().flush()),
        );
    })
}

/// Hosts the games of the configuration. Calls `ready` when players can join.
pub(crate) fn host(
    flags: config::ConfigFlags,
    ready: impl FnOnce(&ReadyServer),
) -> anyhow::Result<CommandStatus> {
    serve(&Args { flags, write: None, console: false, portable_io: false }, ready)
}

fn serve(args: &Args, ready: impl FnOnce(&ReadyServer)) -> anyhow::Result<CommandStatus> {
    let mut flags = args.flags.clone();
    flags.set.extend(args.write.iter().map(|path| format!("capture.file={}", path.display())));
    let loaded = config::load(&flags, env::vars_os())?;
    let settings = &loaded.settings;
    let log = start::log(&loaded)?;
    panic_isolation::log_panics();
    let bans = start::bans(settings)?;
    let clock = Clock::start();
    let mut hosts = start::hosts(settings, if args.portable_io { Io::Portable } else { Io::BEST })?;
    let hooks = start::hooks(settings, &mut hosts, clock)?;
    let metrics = start::metrics(settings)?;
    let page = web::OperatorPage::prepare(&settings.web)?;
    let recorder = start::capture_ring(settings).map(Recorder::start).transpose()?;
    let scores = start::scores(settings, &mut hosts)?;
    let games: Vec<HostedGame> = hosts.iter().map(HostedGame::of).collect();
    let limits = start::coalescing_limits(settings);
    let manager = ServiceManager::from_env();
    let (worker_handle, workers) =
        workers::distribute(hosts, start::thread_count(settings), limits, clock, recorder.as_ref())?;
    let writer_counters = WriterCounters::new(recorder, scores.as_ref());
    let files = start::ServerFiles::of(&loaded);
    let monitored_workers = worker_handle.clone();
    let ((resolve_trigger, masters), (ban_trigger, ban_list)) =
        (BackgroundTask::new(), BackgroundTask::new());
    let triggers = MaintenanceTriggers { masters: resolve_trigger, bans: ban_trigger, hooks };
    let plane = Arc::new(ControlPlane::new(
        flags,
        loaded,
        bans,
        worker_handle,
        writer_counters,
        triggers,
        log.controls.clone(),
    ));
    let agones = Agones::start(&plane.initial_settings().fleet, &monitored_workers, clock)?;
    listen_to_signals(&plane)?;
    let socket = files.open_socket(&plane)?;
    start_maintenance(&plane, masters, ban_list)?;
    let monitor = || metrics::Monitor {
        workers: monitored_workers.clone(),
        plane: Arc::clone(&plane),
        page_refusals: page.as_ref().map(web::OperatorPage::refusal_counter),
        agones_failures: agones.as_ref().map(Agones::failed),
    };
    let metrics = metrics.map(|listener| metrics_server::start(listener, clock, monitor())).transpose()?;
    let metrics = metrics.map(|address| address.to_string());
    let web = page.map(|page| page.start(Arc::clone(&plane), clock)).transpose()?;
    if args.console {
        console::start(Arc::clone(&plane))?;
    }
    let (version, sessions, threads) = (crate::VERSION, games.len(), workers.len());
    let control = socket.as_ref().map(|socket| start::absolute_path(socket.path()));
    let (config, bans) = (&files.config, files.bans);
    tracing::info!(event = "started", version, sessions, threads, config, bans, control, metrics, web);
    ready(&ReadyServer { games, page_url: web, config: files.config });
    manager.start_reporting(&monitored_workers)?;
    let outcome = workers::run(workers);
    finish(&plane, scores, agones);
    outcome?;
    tracing::info!(event = "stopped");
    Ok(CommandStatus::Clean)
}

/// Waits until scores are written, hooks are posted and Agones is informed; all three run in parallel.
fn finish(plane: &ControlPlane, scores: Option<ScoreRecorder>, agones: Option<Agones>) {
    let agones = agones.map(Agones::stop);
    // Dropping the recorder writes all queued scores before the `stopped` event is logged.
    drop(scores);
    plane.hooks().finish(hooks::FINISH_TIMEOUT);
    if let Some(agones) = agones {
        agones.wait();
    }
}

/// Starts the background tasks for list servers, bans and samples.
fn start_maintenance(
    plane: &Arc<ControlPlane>,
    masters: BackgroundTask,
    bans: BackgroundTask,
) -> io::Result<()> {
    let (sampling_trigger, samples) = BackgroundTask::new();
    let [masters_of, bans_of, samples_of] = [plane, plane, plane].map(Arc::clone);
    masters.start("masters", move || Some(masters_of.resolve_list_servers()))?;
    bans.start("bans", move || Some(bans_of.maintain_bans()))?;
    samples.start("samples", move || samples_of.take_sample())?;
    plane.fire_triggers();
    sampling_trigger.fire();
    Ok(())
}

fn listen_to_signals(plane: &Arc<ControlPlane>) -> anyhow::Result<()> {
    let ((reload, reloading), (dump, dumping)) = (BackgroundTask::new(), BackgroundTask::new());
    let [reloaded, stopped, dumped] = [plane, plane, plane].map(Arc::clone);
    reloading.start("reload", move || {
        // `reload` logs its result.
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
        // Write errors are ignored: standard output may be closed.
        drop(io::stdout().write_all(bcnet_control::render_answer(&queues).as_bytes()));
    }
}
