//! `bcnet top`: a running server, live in a terminal.
//!
//! Two connections to its control socket have a thread each ([`link`]), the keyboard has another. What they bring changes the
//! [`state`], which [`keys`] decide about and the [`view`] draws, in this thread. Nothing is known here that `bcnet ctl` does
//! not print.

mod keys;
mod link;
mod log_line;
mod picture;
mod plot;
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
use crate::{Verdict, ctl};
use keys::Step;
use link::{Link, Wish};
use picture::Picture;
use state::State;
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
    place: ctl::Place,

    /// The session to begin with, by name or port
    #[arg(long, value_name = "SESSION")]
    session: Option<String>,
}

/// What the threads tell.
enum News {
    Picture(Box<Picture>),
    /// Lines of the log.
    Events(Vec<Value>),
    /// What became of something that was asked for.
    Done(Result<String, String>),
    Input(Event),
    /// Somebody wants it to end.
    Stop,
    /// There is no server any more: why.
    Lost(String),
}

pub(crate) fn run(args: &Args) -> anyhow::Result<Verdict> {
    ensure!(
        is_terminal(),
        "`bcnet top` needs a terminal; programs read the same from `bcnet ctl status --json`, `bcnet ctl players --json` and \
         `bcnet ctl samples --json`"
    );
    let places = args.place.places()?;
    let (tell, news) = mpsc::sync_channel(MAX_NEWS);
    let (wish, wishes) = mpsc::channel();
    let by = args.place.by();
    let [asking, following] = [Link::open(&places)?, Link::open(&places)?];
    asking.ask_on(args.session.clone(), wishes, tell.clone())?;
    following.follow(tell.clone())?;
    let stopped = tell.clone();
    // Whoever does not read has ended already.
    signals::listen(vec![(Signal::Stop, Box::new(move || drop(stopped.try_send(News::Stop))))])?;
    let mut terminal = open_terminal()?;
    let end = listen_to_keys(tell).map_err(Into::into).and_then(|()| show(&mut terminal, by, &news, &wish));
    type_pastes();
    ratatui::restore();
    match end? {
        None => Ok(Verdict::Clean),
        Some(reason) => {
            eprintln!("bcnet: {reason}");
            Ok(Verdict::Findings)
        }
    }
}

/// Takes the terminal over. From here on a panic puts it back, in whatever thread.
fn open_terminal() -> anyhow::Result<DefaultTerminal> {
    let former = panic::take_hook();
    panic::set_hook(Box::new(move |panic| {
        type_pastes();
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
fn type_pastes() {
    if cfg!(unix) {
        drop(execute!(io::stdout(), DisableBracketedPaste));
    }
}

fn is_terminal() -> bool {
    let is_dumb = env::var("TERM").is_ok_and(|kind| kind == "dumb");
    io::stdin().is_terminal() && io::stdout().is_terminal() && !is_dumb
}

/// Shows what comes until somebody has seen enough. Returns why there is no more to see, if that is so.
fn show(
    terminal: &mut DefaultTerminal,
    by: Option<String>,
    news: &Receiver<News>,
    wish: &Sender<Wish>,
) -> anyhow::Result<Option<String>> {
    let mut state = State::new(by);
    let theme = Theme::from_env();
    loop {
        terminal.draw(|frame| view::draw(frame, &mut state, &theme))?;
        let Ok(first) = news.recv() else { return Ok(Some("nothing comes any more".into())) };
        // What has come meanwhile is drawn together.
        for one in std::iter::once(first).chain(news.try_iter()) {
            let step = match one {
                News::Picture(picture) => state.take(*picture),
                News::Events(events) => state.log(&events),
                News::Done(outcome) => state.tell(outcome),
                News::Input(Event::Key(key)) if key.kind != KeyEventKind::Release => state.press(key),
                News::Input(Event::Paste(text)) => state.paste(&text),
                News::Input(_) => Step::Stay,
                News::Stop => Step::Quit,
                News::Lost(reason) => return Ok(Some(reason)),
            };
            match step {
                Step::Stay => {}
                Step::Quit => return Ok(None),
                // If nobody takes it, the reason is on its way.
                Step::Ask(wished) => drop(wish.send(wished)),
            }
        }
    }
}

fn listen_to_keys(tell: SyncSender<News>) -> io::Result<()> {
    let listen = move || {
        loop {
            let news = match event::read() {
                Ok(event) => News::Input(event),
                Err(error) => News::Lost(format!("the terminal is gone: {error}")),
            };
            let is_over = matches!(news, News::Lost(_));
            if tell.send(news).is_err() || is_over {
                return;
            }
        }
    };
    thread::Builder::new().name("keys".into()).spawn(listen).map(drop)
}

/// How much may wait to be drawn. A terminal that stands still makes the threads wait, not grow.
const MAX_NEWS: usize = 256;
