//! The two connections to a server: one asks, the other hears the log.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender};
use std::thread;
use std::time::Duration;

use anyhow::{anyhow, bail};
use bcnet_control::{Answer, Envelope, Request};
use bcnet_udp::Clock;
use serde_json::Value;

use super::News;
use super::picture::{Picture, port_of};
use crate::answers::{Samples, Status, list, read};
use crate::control::Stream;
use crate::ctl;

/// What the asking thread is asked.
pub(super) enum Wish {
    /// To look at the session with this port from now on, and to tell the last hour of it or of all.
    Look { port: u16, is_whole: bool },
    /// To have something done.
    Do(Envelope),
}

/// A connection.
pub(super) struct Link {
    path: PathBuf,
    stream: Stream,
}

impl Link {
    pub(super) fn open(places: &[PathBuf]) -> anyhow::Result<Self> {
        let (path, stream) = ctl::connect(places)?;
        Ok(Self { path: path.to_owned(), stream })
    }

    /// Asks again and again how the server is doing, in a thread of its own.
    pub(super) fn ask_on(
        self,
        session: Option<String>,
        wishes: Receiver<Wish>,
        tell: SyncSender<News>,
    ) -> anyhow::Result<()> {
        start("asking", tell, move |tell| {
            let answers = BufReader::new(&self.stream);
            let mut asker = Asker {
                path: &self.path,
                stream: &self.stream,
                answers,
                session,
                port: None,
                is_whole: true,
                since: None,
            };
            asker.run(&wishes, tell)
        })
    }

    /// Tells the log as it is written, in a thread of its own.
    pub(super) fn follow(self, tell: SyncSender<News>) -> anyhow::Result<()> {
        start("following", tell, move |tell| {
            let mut answers = BufReader::new(&self.stream);
            let request = Request::Events { count: FORMER_LINES, follow: true };
            let envelope = Envelope { session: None, by: None, request };
            let Answer::Ok(former) = ctl::ask(&self.path, &self.stream, &mut answers, &envelope)? else {
                bail!("{}: the server does not tell its log", self.path.display());
            };
            let former = former.get("events").and_then(Value::as_array).cloned().unwrap_or_default();
            if tell.send(News::Events(former)).is_err() {
                return Ok(());
            }
            let mut line = String::new();
            loop {
                line.clear();
                if answers.read_line(&mut line).map_err(|error| ctl::unheard(&self.path, error))? == 0 {
                    bail!("{}: the server has ended, or closed the connection", self.path.display());
                }
                // Empty lines are signs of life.
                if let Ok(event) = serde_json::from_str(&line)
                    && tell.send(News::Events(vec![event])).is_err()
                {
                    return Ok(());
                }
            }
        })
    }
}

/// Starts a thread whose end is told, however it comes.
fn start(
    name: &str,
    tell: SyncSender<News>,
    run: impl FnOnce(&SyncSender<News>) -> anyhow::Result<()> + Send + 'static,
) -> anyhow::Result<()> {
    let talk = move || {
        let last_word = LastWord(tell);
        if let Err(error) = run(&last_word.0) {
            drop(last_word.0.send(News::Lost(format!("{error:#}"))));
        }
    };
    thread::Builder::new().name(name.into()).spawn(talk)?;
    Ok(())
}

/// Tells that a thread is over, also if it has panicked.
struct LastWord(SyncSender<News>);

impl Drop for LastWord {
    fn drop(&mut self) {
        drop(self.0.send(News::Lost("the connection is over".into())));
    }
}

/// Asks one thing after the other.
struct Asker<'a> {
    path: &'a Path,
    stream: &'a Stream,
    answers: BufReader<&'a Stream>,
    /// The session to begin with.
    session: Option<String>,
    /// The session that is looked at.
    port: Option<u16>,
    /// The last hour of all sessions is wanted, not of that one.
    is_whole: bool,
    /// The time of the last sample.
    since: Option<u64>,
}

impl Asker<'_> {
    fn run(&mut self, wishes: &Receiver<Wish>, tell: &SyncSender<News>) -> anyhow::Result<()> {
        let clock = Clock::start();
        loop {
            let started = clock.now();
            if tell.send(News::Picture(Box::new(self.look()?))).is_err() {
                return Ok(());
            }
            // Whoever looks on takes a small part of the time, however many sessions there are.
            let pause = (clock.now().since(started) * PAUSES).max(EVERY);
            let first = match wishes.recv_timeout(pause) {
                Ok(wish) => wish,
                Err(RecvTimeoutError::Timeout) => continue,
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
            };
            for wish in std::iter::once(first).chain(wishes.try_iter()) {
                match wish {
                    Wish::Look { port, is_whole } => {
                        if is_whole != self.is_whole || (!is_whole && Some(port) != self.port) {
                            self.since = None;
                        }
                        (self.port, self.is_whole) = (Some(port), is_whole);
                    }
                    Wish::Do(envelope) => {
                        if tell.send(News::Done(self.done(&envelope)?)).is_err() {
                            return Ok(());
                        }
                    }
                }
            }
        }
    }

    fn done(&mut self, envelope: &Envelope) -> anyhow::Result<Result<String, String>> {
        Ok(match ctl::ask(self.path, self.stream, &mut self.answers, envelope)? {
            Answer::Ok(answer) => Ok(bcnet_control::show(&answer).trim_end().to_owned()),
            Answer::Error(reason) => Err(reason),
        })
    }

    /// Asks for everything that is shown.
    fn look(&mut self) -> anyhow::Result<Picture> {
        let told = |problem: String| anyhow!(problem);
        let status: Status = read(self.ask(None, Request::Status)?).map_err(told)?;
        let port = match (self.port, self.session.take()) {
            (Some(port), _) => port,
            (None, wanted) => port_of(&status.sessions, wanted.as_deref()).map_err(told)?,
        };
        self.port = Some(port);
        let session = Some(port.to_string());
        let players = list(self.ask(session.clone(), Request::Players)?, "players").map_err(told)?;
        let queues = self.ask(session.clone(), Request::Queues { player: None })?;
        let queues = list(queues, "queues").map_err(told)?;
        let (is_new, session) = (self.since.is_none(), session.filter(|_| !self.is_whole));
        let samples: Samples =
            read(self.ask(session, Request::Samples { since: self.since })?).map_err(told)?;
        let picture = Picture::new(status, port, players, queues).with(samples, is_new);
        self.since = picture.samples.last().map(|sample| sample.time).or(self.since);
        Ok(picture)
    }

    /// Asks for something that the server has no reason to refuse.
    fn ask(&mut self, session: Option<String>, request: Request) -> anyhow::Result<Value> {
        let envelope = Envelope { session, by: None, request };
        match ctl::ask(self.path, self.stream, &mut self.answers, &envelope)? {
            Answer::Ok(answer) => Ok(answer),
            Answer::Error(reason) => bail!("{}: {reason}", self.path.display()),
        }
    }
}

/// How often the server is asked, and how many times as long as the asking took it is left alone.
const EVERY: Duration = Duration::from_secs(1);
const PAUSES: u32 = 20;
/// Lines of the log from before.
const FORMER_LINES: usize = 200;
