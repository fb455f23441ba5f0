//! `bcnet doctor`: finds problems that keep players from joining, and names a remedy for each.
//!
//! [`machine`] checks the computer, [`server`] checks the configuration and the server. The command changes
//! nothing. It contacts only this machine, the list servers of the configuration, and servers that they list
//! with our ports.

mod machine;
mod server;

use std::io::{self, Write};

use serde_json::json;

use crate::{CommandStatus, config, standard_output};

#[derive(clap::Args)]
#[command(after_help = "\
Run it as the user who runs the server, with the same flags. If the server runs,
a test player called bcnet joins it for a moment.

Exit codes: 0 no check is bad, 1 a check is bad, 2 the checks could not run.

Examples:
  bcnet doctor
  bcnet doctor --config /etc/bcnet/bcnet.toml
  bcnet doctor --json | jq -r \".checks[].text\"")]
pub(crate) struct Args {
    #[command(flatten)]
    flags: config::ConfigFlags,

    /// Print the report as one JSON object
    #[arg(long)]
    json: bool,
}

/// The state of a check.
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

/// The result of one check.
#[derive(Debug)]
struct HealthCheck {
    name: &'static str,
    state: CheckState,
    /// The observation and, if it is not good, the remedy.
    text: String,
}

/// The results of all checks so far.
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
    let mut out = standard_output::lock();
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
