//! `bcnet doctor`: looks at everything that keeps players from joining, and says what to do about it.
//!
//! [`machine`] looks at the computer, [`server`] at the configuration and the server itself. Nothing is sent but to this
//! machine, to the list servers of the configuration and to those whom they have at our ports, and nothing is changed.

mod machine;
mod server;

use std::io::{self, Write};

use serde_json::json;

use crate::{Verdict, config};

#[derive(clap::Args)]
#[command(after_help = "\
Run it as the user who runs the server, with the same flags. If the server runs,
it is joined for a moment by a player called bcnet.

Exit codes: 0 nothing is bad, 1 something is, 2 it could not look.

Examples:
  bcnet doctor
  bcnet doctor --config /etc/bcnet/bcnet.toml
  bcnet doctor --json | jq -r \".checks[].text\"")]
pub(crate) struct Args {
    #[command(flatten)]
    flags: config::Flags,

    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// How something is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Ok,
    Warn,
    Bad,
}

impl State {
    const fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warn => "warn",
            Self::Bad => "bad",
        }
    }
}

/// One thing that was looked at.
#[derive(Debug)]
struct Check {
    name: &'static str,
    state: State,
    /// What was seen, and what to do if it is not right.
    text: String,
}

/// All that was looked at so far.
#[derive(Debug, Default)]
struct Report(Vec<Check>);

impl Report {
    fn ok(&mut self, name: &'static str, text: impl Into<String>) {
        self.add(name, (State::Ok, text.into()));
    }

    fn warn(&mut self, name: &'static str, text: impl Into<String>) {
        self.add(name, (State::Warn, text.into()));
    }

    fn bad(&mut self, name: &'static str, text: impl Into<String>) {
        self.add(name, (State::Bad, text.into()));
    }

    fn add(&mut self, name: &'static str, (state, text): (State, String)) {
        self.0.push(Check { name, state, text });
    }

    fn is_bad(&self) -> bool {
        self.0.iter().any(|check| check.state == State::Bad)
    }
}

pub(crate) fn run(args: &Args) -> anyhow::Result<Verdict> {
    let mut report = Report::default();
    report.ok("version", format!("bcnet {}", crate::VERSION));
    if let Some(loaded) = server::configuration(&args.flags, &mut report) {
        server::secrets(&loaded, &mut report);
        let settings = &loaded.settings;
        let written = [Some(&settings.server.bans), settings.server.history.as_ref()];
        machine::clock(written.into_iter().flatten(), &mut report);
        let running = server::running(settings, &mut report);
        let ports = server::ports(settings, running.as_ref(), &mut report);
        machine::addresses(settings.server.bind, &ports, &mut report);
        machine::firewall(&ports, &mut report);
        server::listeners(settings, running.as_ref(), &mut report);
        let listed = server::list_servers(settings, running.as_ref(), &ports, &mut report);
        server::joins(settings, running.as_ref(), &mut report);
        server::joins_from_outside(settings, running.as_ref(), &listed, &mut report);
        machine::files(settings, &mut report);
        machine::limits(settings.sessions.len(), &mut report);
    } else {
        machine::clock([], &mut report);
    }
    show(&report, args.json)?;
    Ok(if report.is_bad() { Verdict::Findings } else { Verdict::Clean })
}

fn show(report: &Report, as_json: bool) -> io::Result<()> {
    let mut out = io::stdout().lock();
    if as_json {
        let check =
            |check: &Check| json!({"check": check.name, "state": check.state.word(), "text": check.text});
        let checks: Vec<_> = report.0.iter().map(check).collect();
        return writeln!(out, "{}", json!({"ok": !report.is_bad(), "checks": checks}));
    }
    for Check { name, state, text } in &report.0 {
        writeln!(out, "{:<4}  {name:<13}  {text}", state.word())?;
    }
    Ok(())
}
