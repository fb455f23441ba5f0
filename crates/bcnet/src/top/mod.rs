//! `bcnet top`: a running server, live in a terminal.
//!
//! Two connections to its control socket have a thread each ([`link`]), the keyboard has another. What they bring changes the
//! [`state`], which [`keys`] decide about and the [`view`] draws, in this thread. Nothing is known here that `bcnet ctl` does
//! not print.

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
Shows sessions, players, the queues of a player, the last hour as plots, and the log; talks to players and throws them \
out. `?` lists the keys. Programs read the same from `bcnet ctl … --json`. NO_COLOR is respected.

Exit codes: 0 ended as told, 1 the server is gone, 2 there is no server or no terminal.

Examples:
  bcnet top
  bcnet top --session 22102
  ssh -t games.example bcnet top --socket /run/bcnet/bcnet.sock")]
pub(crate) struct Args {
    #[command(flatten)]
    place: ctl::ConnectArgs,

    /// The session to begin with, by name or port
    #[arg(long, value_name = "SESSION")]
    session: Option<String>,
}

/// What the threads tell.
enum TopEvent {
    Snapshot(Box<TopSnapshot>),
    /// Lines of the log.
    LogEvents(Vec<Value>),
    /// What became of something that was asked for.
    RequestDone(Result<String, String>),
    Input(Event),
    /// Somebody wants it to end.
    Stop,
    /// There is no server any more: why.
    ConnectionLost(String),
}

pub(crate) fn run(args: &Args) -> anyhow::Result<CommandStatus> {
    ensure!(
        is_terminal(),
        "`bcnet top` needs a terminal; programs read the same from `bcnet ctl status --json`, `bcnet ctl players --json` and \
         `bcnet ctl samples --json`"
    );
    let places = args.place.socket_paths()?;
    let (tell, news) = mpsc::sync_channel(EVENT_QUEUE_CAPACITY);
    let (wish, wishes) = mpsc::channel();
    let by = args.place.by();
    let [asking, following] = [ControlConnection::open(&places)?, ControlConnection::open(&places)?];
    asking.spawn_poller(args.session.clone(), wishes, tell.clone())?;
    following.spawn_log_follower(tell.clone())?;
    let stopped = tell.clone();
    // Whoever does not read has ended already.
    signals::listen(vec![(Signal::Stop, Box::new(move || drop(stopped.try_send(TopEvent::Stop))))])?;
    let mut terminal = open_terminal()?;
    let end =
        spawn_key_reader(tell).map_err(Into::into).and_then(|()| run_screen(&mut terminal, by, &news, &wish));
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

/// Takes the terminal over. From here on a panic puts it back, in whatever thread.
fn open_terminal() -> anyhow::Result<DefaultTerminal> {
    let former = panic::take_hook();
    panic::set_hook(Box::new(move |panic| {
        disable_bracketed_paste();
        former(panic);
    }));
    let terminal = ratatui::try_init().context("the terminal cannot be used")?;
    // What is pasted has lines, which would be keys. Windows tells it apart by keys as well, which would be worse.
    if cfg!(unix) {
        drop(execute!(io::stdout(), EnableBracketedPaste));
    }
    Ok(terminal)
}

/// Has what is pasted come as if it was typed, as terminals do by themselves.
fn disable_bracketed_paste() {
    if cfg!(unix) {
        drop(execute!(io::stdout(), DisableBracketedPaste));
    }
}

fn is_terminal() -> bool {
    let is_dumb = env::var("TERM").is_ok_and(|kind| kind == "dumb");
    io::stdin().is_terminal() && io::stdout().is_terminal() && !is_dumb
}

/// Shows what comes until somebody has seen enough. Returns why there is no more to see, if that is so.
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
        let Ok(first) = events.recv() else { return Ok(Some("nothing comes any more".into())) };
        // What has come meanwhile is drawn together.
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
                // If nobody takes it, the reason is on its way.
                LoopAction::Send(wished) => drop(requests.send(wished)),
            }
        }
    }
}

fn spawn_key_reader(tell: SyncSender<TopEvent>) -> io::Result<()> {
    let listen = move || {
        loop {
            let news = match event::read() {
                Ok(event) => TopEvent::Input(event),
                Err(error) => TopEvent::ConnectionLost(format!("the terminal is gone: {error}")),
            };
            let is_last = matches!(news, TopEvent::ConnectionLost(_));
            if tell.send(news).is_err() || is_last {
                return;
            }
        }
    };
    thread::Builder::new().name("keys".into()).spawn(listen).map(drop)
}

/// How much may wait to be drawn. A terminal that stands still makes the threads wait, not grow.
const EVENT_QUEUE_CAPACITY: usize = 256;
