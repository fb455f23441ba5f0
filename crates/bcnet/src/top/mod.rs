//! `bcnet top`: shows a running server live in a terminal.
//!
//! Each of the two connections to the control socket has a thread ([`connection`]), and the keyboard has
//! another. Their events change the [`state`], [`keys`] handles input, and the [`view`] draws, all in the
//! main thread. `bcnet ctl` prints the same information.

mod connection;
mod keys;
mod log_line;
mod plot;
mod snapshot;
mod state;
#[cfg(test)]
mod tests;
mod view;

use std::io::{self, IsTerminal};
use std::sync::mpsc::{self, Receiver, Sender, SyncSender};
use std::{env, panic, thread};

use anyhow::{Context, ensure};
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, DisableBracketedPaste, EnableBracketedPaste, Event, KeyEventKind};
use ratatui::crossterm::execute;
use serde_json::Value;

use crate::signals::{self, Signal};
use crate::{CommandStatus, ctl};
use connection::{ControlConnection, ServerRequest};
use keys::LoopAction;
use snapshot::TopSnapshot;
use state::ScreenState;
use view::Theme;

#[derive(clap::Args)]
#[command(after_help = "\
Shows sessions, players, the queues of a player, plots of the last hour, and the log. You can chat with players and kick \
them. `?` lists the keys. Programs get the same data from `bcnet ctl … --json`. NO_COLOR turns colours off.

Exit codes: 0 ended by the user, 1 the connection was lost, 2 there is no server or no terminal.

Examples:
  bcnet top
  bcnet top --session 22102
  ssh -t games.example bcnet top --socket /run/bcnet/bcnet.sock")]
pub(crate) struct Args {
    #[command(flatten)]
    connect: ctl::ConnectArgs,

    /// The session to show first, by name or port
    #[arg(long, value_name = "SESSION")]
    session: Option<String>,
}

/// An event from one of the threads.
enum TopEvent {
    Snapshot(Box<TopSnapshot>),
    /// Lines of the log.
    LogEvents(Vec<Value>),
    /// The answer to a request.
    RequestDone(Result<String, String>),
    Input(Event),
    /// A request to end the program.
    Stop,
    /// The connection to the server has ended, with the reason.
    ConnectionLost(String),
}

pub(crate) fn run(args: &Args) -> anyhow::Result<CommandStatus> {
    ensure!(
        is_terminal(),
        "`bcnet top` needs a terminal; programs get the same data from `bcnet ctl status --json`, `bcnet ctl players --json` and \
         `bcnet ctl samples --json`"
    );
    let paths = args.connect.socket_paths()?;
    let (sender, events) = mpsc::sync_channel(EVENT_QUEUE_CAPACITY);
    let (requests, request_receiver) = mpsc::channel();
    let by = args.connect.by();
    let [poller, log_follower] = [ControlConnection::open(&paths)?, ControlConnection::open(&paths)?];
    poller.spawn_poller(args.session.clone(), request_receiver, sender.clone())?;
    log_follower.spawn_log_follower(sender.clone())?;
    let stopped = sender.clone();
    // A full queue is ignored: a signal handler must not block.
    signals::listen(vec![(Signal::Stop, Box::new(move || drop(stopped.try_send(TopEvent::Stop))))])?;
    let mut terminal = open_terminal()?;
    let end = spawn_key_reader(sender)
        .map_err(Into::into)
        .and_then(|()| run_screen(&mut terminal, by, &events, &requests));
    disable_bracketed_paste();
    ratatui::restore();
    match end? {
        None => Ok(CommandStatus::Clean),
        Some(reason) => {
            eprintln!("bcnet: {reason}");
            Ok(CommandStatus::Findings)
        }
    }
}

/// Switches the terminal to full-screen mode. A panic in any thread restores it.
fn open_terminal() -> anyhow::Result<DefaultTerminal> {
    let former = panic::take_hook();
    panic::set_hook(Box::new(move |panic| {
        disable_bracketed_paste();
        former(panic);
    }));
    let terminal = ratatui::try_init().context("cannot switch the terminal to full-screen mode")?;
    // Without this mode, pasted text would arrive as key presses. On Windows the mode makes pasted text
    // arrive as keys too, so it stays off.
    if cfg!(unix) {
        drop(execute!(io::stdout(), EnableBracketedPaste));
    }
    Ok(terminal)
}

/// Restores the terminal's default for pasted text.
fn disable_bracketed_paste() {
    if cfg!(unix) {
        drop(execute!(io::stdout(), DisableBracketedPaste));
    }
}

fn is_terminal() -> bool {
    let is_dumb = env::var("TERM").is_ok_and(|kind| kind == "dumb");
    io::stdin().is_terminal() && io::stdout().is_terminal() && !is_dumb
}

/// Runs the screen until the user quits. Returns the reason if the connection ends first.
fn run_screen(
    terminal: &mut DefaultTerminal,
    by: Option<String>,
    events: &Receiver<TopEvent>,
    requests: &Sender<ServerRequest>,
) -> anyhow::Result<Option<String>> {
    let mut state = ScreenState::new(by);
    let theme = Theme::from_env();
    loop {
        terminal.draw(|frame| view::draw(frame, &mut state, &theme))?;
        let Ok(first) = events.recv() else { return Ok(Some("all threads have ended".into())) };
        // Draws once for all events that have arrived meanwhile.
        for one in std::iter::once(first).chain(events.try_iter()) {
            let step = match one {
                TopEvent::Snapshot(snapshot) => state.apply_snapshot(*snapshot),
                TopEvent::LogEvents(events) => state.append_log(&events),
                TopEvent::RequestDone(outcome) => state.set_notice(outcome),
                TopEvent::Input(Event::Key(key)) if key.kind != KeyEventKind::Release => {
                    state.handle_key(key)
                }
                TopEvent::Input(Event::Paste(text)) => state.handle_paste(&text),
                TopEvent::Input(_) => LoopAction::Continue,
                TopEvent::Stop => LoopAction::Quit,
                TopEvent::ConnectionLost(reason) => return Ok(Some(reason)),
            };
            match step {
                LoopAction::Continue => {}
                LoopAction::Quit => return Ok(None),
                // If the polling thread has ended, the reason is already in the event queue.
                LoopAction::Send(request) => drop(requests.send(request)),
            }
        }
    }
}

fn spawn_key_reader(tell: SyncSender<TopEvent>) -> io::Result<()> {
    let listen = move || {
        loop {
            let input = match event::read() {
                Ok(event) => TopEvent::Input(event),
                Err(error) => TopEvent::ConnectionLost(format!("cannot read from the terminal: {error}")),
            };
            let is_last = matches!(input, TopEvent::ConnectionLost(_));
            if tell.send(input).is_err() || is_last {
                return;
            }
        }
    };
    thread::Builder::new().name("keys".into()).spawn(listen).map(drop)
}

/// The capacity of the event queue. If the terminal blocks, the threads wait and memory does not grow.
const EVENT_QUEUE_CAPACITY: usize = 256;
