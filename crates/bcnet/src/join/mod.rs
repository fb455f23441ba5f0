//! `bcnet join`: a client for the terminal. It prints all events and sends chat; it has no ship.

mod check;
mod diagnosis;
mod driver;
mod input;
mod show;

use std::collections::VecDeque;
use std::io::Write;
use std::iter;
use std::net::SocketAddrV4;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::ensure;
use bcnet_session::Manifest;
use bcnet_session::client::{self, ClientOptions, ClientState, CommandError, DisconnectReason, MAX_CHAT};
use bcnet_transport::wire::is_printable;
use bcnet_transport::{SendError, Time};

use crate::config::{ConfigValue, HostPort};
use crate::query;
use crate::{CommandStatus, lookup, manifest, standard_output};
use diagnosis::JoinDiagnosis;
use driver::{ClientDriver, LeaveResult};
use input::Input;

/// The default player name. [`try_join`] always uses it.
///
/// A server calls no hook when a player with this name joins or leaves: regular join checks would cause many events.
pub(crate) const CHECK_NAME: &str = "bcnet";

#[derive(clap::Args)]
#[command(after_help = "\
Typed lines are sent as chat. A long line is split into several chat messages. Ctrl-C or the end of the input leaves the game.

Exit codes: 0 joined and left, 1 could not join or was disconnected, 2 could not run.

Examples:
  bcnet join 192.0.2.1 --name Scotty
  bcnet join games.example:22150 --say \"server restarts in five minutes\"
  bcnet join 127.0.0.1 --check
  bcnet join 127.0.0.1 --json | jq -r \".text // empty\"")]
pub(crate) struct Args {
    /// The server; the default port is 22101
    #[arg(value_name = "HOST[:PORT]", value_parser = query::parse_host)]
    host: HostPort<22101>,

    /// Player name
    #[arg(long, default_value = CHECK_NAME, value_parser = parse_name)]
    name: String,

    /// Password of the server
    #[arg(long, default_value = "", hide_default_value = true)]
    password: String,

    /// Answer file checks from this manifest; see `bcnet manifest`
    ///
    /// Without a manifest, only a server without `checksums = "strict"` accepts the answers.
    #[arg(long, value_name = "FILE")]
    manifest: Option<PathBuf>,

    /// Time limit for joining, for example 500ms or 15s
    #[arg(long, value_name = "TIME", default_value = "15s", value_parser = Duration::from_text)]
    timeout: Duration,

    /// Send this chat message and leave; a long text is split into several messages
    #[arg(long, value_name = "TEXT", conflicts_with = "check", value_parser = parse_chat)]
    say: Option<String>,

    /// Join, print the time of each step, and leave: tests whether players can join
    #[arg(long)]
    check: bool,

    /// Print JSON: one object per event and line; with --check, one object
    #[arg(long)]
    json: bool,
}

fn parse_name(text: &str) -> Result<String, String> {
    let clean = !text.trim().is_empty() && text.chars().all(is_printable);
    clean.then(|| text.into()).ok_or_else(|| "expected a name of visible characters".into())
}

fn parse_chat(text: &str) -> Result<String, String> {
    let has_words = !text.trim().is_empty();
    has_words.then(|| text.into()).ok_or_else(|| "expected a text with visible characters".into())
}

/// Joins a server and leaves immediately, like `--check`. Returns the time that this took.
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
    TerminalClient::new(&args, server)?.try_join()
}

pub(crate) fn run(args: &Args) -> anyhow::Result<CommandStatus> {
    ensure!(args.timeout > Duration::ZERO, "--timeout: expected a time above zero, such as 3s");
    let mut client = TerminalClient::new(args, lookup::first_ipv4_address(&args.host)?)?;
    if !args.check && args.say.is_none() {
        input::spawn_line_reader(client.driver.input_sender())?;
    }
    let out = &mut standard_output::lock();
    let verdict = if args.check { client.check(out) } else { client.run_interactive(out) };
    // Leaves the game even if the output can no longer be written.
    if verdict.is_err() {
        client.driver.leave()?;
    }
    verdict
}

/// A client at a terminal.
struct TerminalClient<'a> {
    driver: ClientDriver,
    args: &'a Args,
    server: SocketAddrV4,
    files: Manifest,
    /// Observations that explain a failed join.
    diagnosis: JoinDiagnosis,
    /// Typed lines that are not sent yet. `None` is the end of the input.
    pending_lines: VecDeque<Option<String>>,
}

impl<'a> TerminalClient<'a> {
    fn new(args: &'a Args, server: SocketAddrV4) -> anyhow::Result<Self> {
        let files = args.manifest.as_deref().map_or_else(|| Ok(Manifest::placeholder()), manifest::read)?;
        let options = ClientOptions { name: args.name.clone(), handshake_timeout: Some(args.timeout) };
        let driver = ClientDriver::connect(server, &args.password, options)?;
        Ok(Self {
            driver,
            args,
            server,
            files,
            diagnosis: JoinDiagnosis::default(),
            pending_lines: VecDeque::new(),
        })
    }
}

impl TerminalClient<'_> {
    /// Joins, prints events and sends chat, until the user leaves or the connection ends.
    fn run_interactive(&mut self, out: &mut impl Write) -> anyhow::Result<CommandStatus> {
        if let Some(text) = &self.args.say {
            self.pending_lines.extend(split_chat(text).map(Some).chain([None]));
        }
        loop {
            while let Some((event, at)) = self.next_event()? {
                if let client::Event::Gone { state: step, reason: end } = event {
                    self.driver.flush()?;
                    return self.finish(step, end, Some(self.failure_reason(step, end)), out);
                }
                self.print_event(&event, at, out)?;
            }
            if self.driver.client.has_entered() && self.send_lines()? {
                let (end, why) =
                    self.leave()?.map_or((DisconnectReason::Left, None), |(end, why)| (end, Some(why)));
                return self.finish(ClientState::Lobby, end, why, out);
            }
            match self.driver.wait()? {
                Some(Input::Line(line)) => self.pending_lines.extend(split_chat(&line).map(Some)),
                Some(Input::Eof) => self.pending_lines.push_back(None),
                Some(Input::Interrupt) => return self.leave_on_interrupt(out),
                Some(Input::Unreachable) if self.driver.client.has_entered() && !self.args.json => {
                    writeln!(out, "* no program listens on the server's port any more")?;
                    out.flush()?;
                }
                Some(Input::Datagram(_) | Input::Unreachable) | None => {}
            }
        }
    }

    /// Leaves the game. Returns the failure, if there was one.
    ///
    /// The disconnect follows all chat messages: if the server acknowledges it, the server has all of them.
    fn leave(&mut self) -> anyhow::Result<Option<(DisconnectReason, String)>> {
        let step = self.driver.client.state();
        Ok(match self.driver.leave()? {
            LeaveResult::Acknowledged => None,
            LeaveResult::Unacknowledged => {
                Some((DisconnectReason::Left, "the server did not acknowledge the disconnect".into()))
            }
            LeaveResult::EndedByServer(end) => Some((end, self.failure_reason(step, end))),
        })
    }

    /// Leaves because of an interrupt.
    fn leave_on_interrupt(&mut self, out: &mut impl Write) -> anyhow::Result<CommandStatus> {
        let step = self.diagnosis.visible_step(self.driver.client.state());
        let (end, why) = match self.driver.leave()? {
            LeaveResult::EndedByServer(end) => (end, Some(self.failure_reason(step, end))),
            // A second interrupt ends the wait for the ACK. This is no fault of the server.
            LeaveResult::Acknowledged | LeaveResult::Unacknowledged
                if self.args.say.is_none() && step >= ClientState::Lobby =>
            {
                (DisconnectReason::Left, None)
            }
            LeaveResult::Acknowledged | LeaveResult::Unacknowledged => {
                (DisconnectReason::Left, Some(format!("interrupted while {step}")))
            }
        };
        self.finish(step, end, why, out)
    }

    /// Returns the next event with its time.
    ///
    /// Reacts to the event first: answers a file check, enters the game, or records it for the diagnosis.
    fn next_event(&mut self) -> anyhow::Result<Option<(client::Event, Time)>> {
        let Some((event, at)) = self.driver.poll_event() else { return Ok(None) };
        if let client::Event::FileCheck(_) = event {
            self.diagnosis.check_unanswered =
                self.driver.client.answer_from_manifest(&self.files, at).is_err();
        } else if let client::Event::Load = event {
            self.driver.client.enter(at)?;
        } else if let client::Event::Settings(_) = event {
            self.diagnosis.files_passed = true;
        } else if let client::Event::FilesDiffer { file } = &event {
            self.diagnosis.refusal_text = Some(file.clone());
        } else if let client::Event::Anomaly { kind: what, .. } = event {
            self.diagnosis.anomaly = Some(what);
        }
        Ok(Some((event, at)))
    }

    /// Sends the typed lines. Returns `true` if the input has ended and all lines are sent.
    fn send_lines(&mut self) -> anyhow::Result<bool> {
        while let Some(line) = self.pending_lines.front() {
            let Some(line) = line else { return Ok(true) };
            match self.driver.chat(line) {
                // The send queue is full: the line is sent once the server has acknowledged earlier lines.
                Err(CommandError::Send(SendError::QueueFull { .. })) => return Ok(false),
                result => result?,
            }
            self.pending_lines.pop_front();
        }
        Ok(false)
    }

    fn print_event(&self, event: &client::Event, at: Time, out: &mut impl Write) -> anyhow::Result<()> {
        let line = if self.args.json {
            show::json(event, at).map(|value| value.to_string())
        } else {
            show::text(event, &self.driver.client, self.server)
        };
        if let Some(line) = line {
            writeln!(out, "{line}")?;
            out.flush()?;
        }
        Ok(())
    }

    /// Reports the end of the connection. Prints the reason in one line, unless the user wanted to leave.
    fn finish(
        &self,
        step: ClientState,
        end: DisconnectReason,
        why: Option<String>,
        out: &mut impl Write,
    ) -> anyhow::Result<CommandStatus> {
        if self.args.json {
            let gone = client::Event::Gone { state: self.diagnosis.visible_step(step), reason: end };
            let mut value = show::json(&gone, self.driver.clock.now()).unwrap_or_default();
            value["error"] = why.clone().into();
            writeln!(out, "{value}")?;
            out.flush()?;
        }
        let Some(why) = why else { return Ok(CommandStatus::Clean) };
        eprintln!("bcnet: {}: {why}", self.server);
        Ok(CommandStatus::Findings)
    }

    /// Returns the reason of a failure, for people.
    fn failure_reason(&self, step: ClientState, end: DisconnectReason) -> String {
        let context = diagnosis::JoinContext {
            timeout: self.args.timeout.to_toml().trim_matches('"').to_owned(),
            has_password: !self.args.password.is_empty(),
            manifest: self.args.manifest.as_deref(),
            is_unreachable: self.driver.is_unreachable(),
        };
        self.diagnosis.reason(step, end, &context)
    }
}

/// Splits a text into lines that fit in a chat message, between words where possible.
fn split_chat(text: &str) -> impl Iterator<Item = String> {
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
    fn long_chat_is_split_into_lines_between_words() {
        let lines = |text: &str| split_chat(text).collect::<Vec<_>>();
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
