//! `bcnet join`: a client for the terminal. It hears everything, chats, and has no ship.

mod check;
mod failure;
mod input;
mod show;
mod wire;

use std::collections::VecDeque;
use std::io::{self, Write};
use std::iter;
use std::net::SocketAddrV4;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::ensure;
use bcnet_session::Manifest;
use bcnet_session::client::{CommandError, End, Event, MAX_CHAT, Options, State};
use bcnet_transport::wire::is_shown;
use bcnet_transport::{SendError, Time};

use crate::config::{HostPort, Value};
use crate::query;
use crate::{Verdict, lookup, manifest};
use failure::Failure;
use input::Input;
use wire::{Goodbye, Wire};

/// What checks are called in a game unless they are told otherwise. Servers tell their hooks nothing of it.
pub(crate) const CHECK_NAME: &str = "bcnet";

#[derive(clap::Args)]
#[command(after_help = "\
Typed lines are chat, longer ones than the game takes in several. Ctrl-C, or the end of the input, leaves the game.

Exit codes: 0 it was in the game and has left, 1 it did not get in or was thrown out, 2 it could not run.

Examples:
  bcnet join 192.0.2.1 --name Scotty
  bcnet join games.example:22150 --say \"server restarts in five minutes\"
  bcnet join 127.0.0.1 --check
  bcnet join 127.0.0.1 --json | jq -r \".text // empty\"")]
pub(crate) struct Args {
    /// The server, on port 22101 if none is given
    #[arg(value_name = "HOST[:PORT]", value_parser = query::host)]
    host: HostPort<22101>,

    /// What to be called in the game
    #[arg(long, default_value = CHECK_NAME, value_parser = name)]
    name: String,

    /// What the server wants to hear before it lets anyone in
    #[arg(long, default_value = "", hide_default_value = true)]
    password: String,

    /// Answer the server's file checks as the installation that this manifest was learned from; see `bcnet manifest`
    ///
    /// Without it the answers are such that only a server without `checksums = "strict"` takes them.
    #[arg(long, value_name = "FILE")]
    manifest: Option<PathBuf>,

    /// How long it may take to get into the game, for example 500ms or 15s
    #[arg(long, value_name = "TIME", default_value = "15s", value_parser = Duration::from_text)]
    timeout: Duration,

    /// Say this, and leave; what is too long for one line of chat is said in several
    #[arg(long, value_name = "TEXT", conflicts_with = "check", value_parser = words)]
    say: Option<String>,

    /// Join, print how long each step took, and leave: can people join?
    #[arg(long)]
    check: bool,

    /// Print JSON: one object per event and line, with --check one object
    #[arg(long)]
    json: bool,
}

fn name(text: &str) -> Result<String, String> {
    let clean = !text.trim().is_empty() && text.chars().all(is_shown);
    clean.then(|| text.into()).ok_or_else(|| "expected a name, of characters that can be seen".into())
}

fn words(text: &str) -> Result<String, String> {
    let has_words = !text.trim().is_empty();
    has_words.then(|| text.into()).ok_or_else(|| "expected something to say".into())
}

/// Joins a server for a moment, as `--check` does. Returns how long it took.
pub(crate) fn try_join(
    server: SocketAddrV4,
    password: &str,
    manifest: Option<PathBuf>,
) -> anyhow::Result<Duration> {
    let host = HostPort { host: server.ip().to_string(), port: server.port() };
    let (timeout, password) = (Duration::from_secs(15), password.to_owned());
    let args = Args {
        host,
        name: CHECK_NAME.into(),
        password,
        manifest,
        timeout,
        say: None,
        check: true,
        json: true,
    };
    Guest::new(&args, server)?.try_join()
}

pub(crate) fn run(args: &Args) -> anyhow::Result<Verdict> {
    ensure!(args.timeout > Duration::ZERO, "--timeout: it must be more than nothing");
    let mut guest = Guest::new(args, lookup::first(&args.host)?)?;
    if !args.check && args.say.is_none() {
        input::read_lines(guest.wire.inputs())?;
    }
    let out = &mut io::stdout().lock();
    let verdict = if args.check { guest.check(out) } else { guest.visit(out) };
    // Whoever reads no more, say, is no reason to stay in the game.
    if verdict.is_err() {
        guest.wire.leave()?;
    }
    verdict
}

/// A player at a server.
struct Guest<'a> {
    wire: Wire,
    args: &'a Args,
    server: SocketAddrV4,
    files: Manifest,
    /// What is known about why it might not get in.
    failure: Failure,
    /// What was typed and not said yet; `None` is the end of the input.
    lines: VecDeque<Option<String>>,
}

impl<'a> Guest<'a> {
    fn new(args: &'a Args, server: SocketAddrV4) -> anyhow::Result<Self> {
        let files = args.manifest.as_deref().map_or_else(|| Ok(Manifest::stand_in()), manifest::read)?;
        let options = Options { name: args.name.clone(), handshake_timeout: Some(args.timeout) };
        let wire = Wire::connect(server, &args.password, options)?;
        Ok(Self { wire, args, server, files, failure: Failure::default(), lines: VecDeque::new() })
    }
}

impl Guest<'_> {
    /// Joins, tells what happens and says what it is told to, until it leaves or is over.
    fn visit(&mut self, out: &mut impl Write) -> anyhow::Result<Verdict> {
        if let Some(text) = &self.args.say {
            self.lines.extend(chat_lines(text).map(Some).chain([None]));
        }
        loop {
            while let Some((event, at)) = self.next_event()? {
                if let Event::Gone { step, end } = event {
                    self.wire.finish()?;
                    return self.end(step, end, Some(self.why(step, end)), out);
                }
                self.tell(&event, at, out)?;
            }
            if self.wire.client.has_entered() && self.say_lines()? {
                let (end, why) = self.leave()?.map_or((End::Left, None), |(end, why)| (end, Some(why)));
                return self.end(State::Lobby, end, why, out);
            }
            match self.wire.wait()? {
                Some(Input::Line(line)) => self.lines.extend(chat_lines(&line).map(Some)),
                Some(Input::End) => self.lines.push_back(None),
                Some(Input::Interrupt) => return self.interrupt(out),
                Some(Input::Unreachable) if self.wire.client.has_entered() && !self.args.json => {
                    writeln!(out, "* nobody listens at the server's port any more")?;
                    out.flush()?;
                }
                Some(Input::Datagram(_) | Input::Unreachable) | None => {}
            }
        }
    }

    /// Leaves. The goodbye follows all that was said, so the server has all of it if it acknowledges that. Returns what went
    /// wrong, if something did.
    fn leave(&mut self) -> anyhow::Result<Option<(End, String)>> {
        let step = self.wire.client.state();
        Ok(match self.wire.leave()? {
            Goodbye::Heard => None,
            Goodbye::Unheard => Some((End::Left, "the server does not acknowledge the goodbye".into())),
            Goodbye::Overtaken(end) => Some((end, self.why(step, end))),
        })
    }

    /// Leaves because the user wants it to.
    fn interrupt(&mut self, out: &mut impl Write) -> anyhow::Result<Verdict> {
        let step = self.failure.step(self.wire.client.state());
        let (end, why) = match self.wire.leave()? {
            Goodbye::Overtaken(end) => (end, Some(self.why(step, end))),
            // Whoever asks twice does not want to wait, and that is no fault of the server's.
            Goodbye::Heard | Goodbye::Unheard if self.args.say.is_none() && step >= State::Lobby => {
                (End::Left, None)
            }
            Goodbye::Heard | Goodbye::Unheard => (End::Left, Some(format!("interrupted, while {step}"))),
        };
        self.end(step, end, why, out)
    }

    /// Returns the next thing that happened, and when, after what a client has to do about it by itself.
    fn next_event(&mut self) -> anyhow::Result<Option<(Event, Time)>> {
        let Some((event, at)) = self.wire.poll_event() else { return Ok(None) };
        if let Event::FileCheck(_) = event {
            self.failure.unanswered = self.wire.client.answer_from(&self.files, at).is_err();
        } else if let Event::Load = event {
            self.wire.client.enter(at)?;
        } else if let Event::Settings(_) = event {
            self.failure.files_passed = true;
        } else if let Event::FilesDiffer { file } = &event {
            self.failure.file = Some(file.clone());
        } else if let Event::Nonsense { what, .. } = event {
            self.failure.nonsense = Some(what);
        }
        Ok(Some((event, at)))
    }

    /// Says what was typed. Returns whether that was all there will be.
    fn say_lines(&mut self) -> anyhow::Result<bool> {
        while let Some(line) = self.lines.front() {
            let Some(line) = line else { return Ok(true) };
            match self.wire.chat(line) {
                // Its turn comes when the server has heard what waits already.
                Err(CommandError::Send(SendError::QueueFull { .. })) => return Ok(false),
                said => said?,
            }
            self.lines.pop_front();
        }
        Ok(false)
    }

    fn tell(&self, event: &Event, at: Time, out: &mut impl Write) -> anyhow::Result<()> {
        let line = if self.args.json {
            show::json(event, at).map(|value| value.to_string())
        } else {
            show::text(event, &self.wire.client, self.server)
        };
        if let Some(line) = line {
            writeln!(out, "{line}")?;
            out.flush()?;
        }
        Ok(())
    }

    /// It is over. Says in one line why, if that is not what the user wanted.
    fn end(
        &self,
        step: State,
        end: End,
        why: Option<String>,
        out: &mut impl Write,
    ) -> anyhow::Result<Verdict> {
        if self.args.json {
            let gone = Event::Gone { step: self.failure.step(step), end };
            let mut value = show::json(&gone, self.wire.clock.now()).unwrap_or_default();
            value["error"] = why.clone().into();
            writeln!(out, "{value}")?;
            out.flush()?;
        }
        let Some(why) = why else { return Ok(Verdict::Clean) };
        eprintln!("bcnet: {}: {why}", self.server);
        Ok(Verdict::Findings)
    }

    /// Returns why it is over, for people.
    fn why(&self, step: State, end: End) -> String {
        let given = failure::Given {
            timeout: self.args.timeout.to_toml().trim_matches('"').to_owned(),
            password: !self.args.password.is_empty(),
            manifest: self.args.manifest.as_deref(),
            unreachable: self.wire.is_unreachable(),
        };
        self.failure.why(step, end, &given)
    }
}

/// Returns a text in lines that fit into the game's chat, broken between words where that is possible.
fn chat_lines(text: &str) -> impl Iterator<Item = String> {
    let mut rest = text.trim();
    iter::from_fn(move || {
        let end = rest.char_indices().nth(MAX_CHAT).map_or(rest.len(), |(at, _)| at);
        let (line, after) = rest.split_at(end);
        let words = line.rfind(' ').filter(|_| !after.is_empty() && !after.starts_with(' '));
        let (line, after) = rest.split_at(words.unwrap_or(end));
        rest = after.trim_start();
        (!line.is_empty()).then(|| line.into())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_too_long_for_a_line_of_chat_is_said_in_several() {
        let lines = |text: &str| chat_lines(text).collect::<Vec<_>>();
        assert_eq!(lines(" aye, sir "), ["aye, sir"]);
        assert_eq!(lines(" "), [] as [&str; 0]);
        let most = "é".repeat(MAX_CHAT);
        assert_eq!(lines(&most), [most.as_str()]);
        assert_eq!(lines(&format!("{most}x")), [most.as_str(), "x"]);
        assert_eq!(lines(&format!("{most} x")), [most.as_str(), "x"]);
        assert_eq!(lines(&format!("to {most}")), ["to", most.as_str()]);
        let long = "make it so ".repeat(100);
        assert_eq!(lines(&long).join(" "), long.trim());
        assert!(lines(&long).iter().all(|line| line.chars().count() <= MAX_CHAT));
    }
}
