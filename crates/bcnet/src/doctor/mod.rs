//! `bcnet doctor`: looks at everything that keeps players from joining, and says what to do about it.
//!
//! [`machine`] looks at the computer, [`server`] at the configuration and the server itself. Nothing is sent but to this
//! machine, to the list servers of the configuration and to those whom they have at our ports, and nothing is changed.

mod machine;
mod server;

use std::io::{self, Write};

use serde_json::json;

use crate::{CommandStatus, config};

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
    flags: config::ConfigFlags,

    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// How something is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CheckState {
    Ok,
    Warn,
    Bad,
}

impl CheckState {
    const fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warn => "warn",
            Self::Bad => "bad",
        }
    }
}

/// One thing that was looked at.
#[derive(Debug)]
struct HealthCheck {
    name: &'static str,
    state: CheckState,
    /// What was seen, and what to do if it is not right.
    text: String,
}

/// All that was looked at so far.
#[derive(Debug, Default)]
struct DoctorReport(Vec<HealthCheck>);

impl DoctorReport {
    fn ok(&mut self, name: &'static str, text: impl Into<String>) {
        self.add(name, (CheckState::Ok, text.into()));
    }

    fn warn(&mut self, name: &'static str, text: impl Into<String>) {
        self.add(name, (CheckState::Warn, text.into()));
    }

    fn bad(&mut self, name: &'static str, text: impl Into<String>) {
        self.add(name, (CheckState::Bad, text.into()));
    }

    fn add(&mut self, name: &'static str, (state, text): (CheckState, String)) {
        self.0.push(HealthCheck { name, state, text });
    }

    fn is_bad(&self) -> bool {
        self.0.iter().any(|check| check.state == CheckState::Bad)
    }
}

pub(crate) fn run(args: &Args) -> anyhow::Result<CommandStatus> {
    let mut report = DoctorReport::default();
    report.ok("version", format!("bcnet {}", crate::VERSION));
    if let Some(loaded) = server::load_configuration(&args.flags, &mut report) {
        server::check_secrets(&loaded, &mut report);
        let settings = &loaded.settings;
        let written = [Some(&settings.server.bans), settings.server.history.as_ref()];
        machine::check_clock(written.into_iter().flatten(), &mut report);
        let running = server::query_running_server(settings, &mut report);
        let ports = server::check_ports(settings, running.as_ref(), &mut report);
        machine::check_addresses(settings.server.bind, &ports, &mut report);
        machine::check_firewall(&ports, &mut report);
        server::check_listeners(settings, running.as_ref(), &mut report);
        let listed = server::check_list_servers(settings, running.as_ref(), &ports, &mut report);
        server::check_joins(settings, running.as_ref(), &mut report);
        server::check_public_join(settings, running.as_ref(), &listed, &mut report);
        machine::check_files(settings, &mut report);
        machine::check_limits(settings.sessions.len(), &mut report);
    } else {
        machine::check_clock([], &mut report);
    }
    print(&report, args.json)?;
    Ok(if report.is_bad() { CommandStatus::Findings } else { CommandStatus::Clean })
}

fn print(report: &DoctorReport, as_json: bool) -> io::Result<()> {
    let mut out = io::stdout().lock();
    if as_json {
        let check = |check: &HealthCheck| json!({"check": check.name, "state": check.state.name(), "text": check.text});
        let checks: Vec<_> = report.0.iter().map(check).collect();
        return writeln!(out, "{}", json!({"ok": !report.is_bad(), "checks": checks}));
    }
    for HealthCheck { name, state, text } in &report.0 {
        writeln!(out, "{:<4}  {name:<13}  {text}", state.name())?;
    }
    Ok(())
}
