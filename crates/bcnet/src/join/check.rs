//! `bcnet join --check`: measures each step of a join and names the step that fails.

use std::io::{self, Write};
use std::time::Duration;

use anyhow::bail;
use bcnet_session::client::{self, ClientState, Milestone};
use bcnet_transport::Time;
use serde_json::json;

use super::TerminalClient;
use super::input::Input;
use super::show::millis;
use crate::CommandStatus;
use crate::number_format::pluralize;

/// A completed step of a join, for example `connect` or `files`.
struct CompletedStep {
    name: &'static str,
    duration: Duration,
    detail: String,
}

impl TerminalClient<'_> {
    /// Joins, prints the time of each step, and leaves.
    pub(super) fn check(&mut self, out: &mut impl Write) -> anyhow::Result<CommandStatus> {
        let start = self.driver.clock.now();
        let mut steps = Vec::new();
        let failure = self.join_and_leave(start, &mut steps, out)?;
        let all = self.driver.clock.now().since(start);
        if self.args.json {
            let list: Vec<_> =
                steps.iter().map(|step| json!({"step": step.name, "ms": millis(step.duration)})).collect();
            let (failed, error) = failure.clone().unzip();
            let value = json!({
                "address": self.server.to_string(), "ok": failure.is_none(), "ms": millis(all),
                "steps": list, "failed": failed, "error": error,
            });
            writeln!(out, "{value}")?;
        } else if failure.is_none() {
            writeln!(out, "{}: players can join ({:.0} ms)", self.server, millis(all))?;
        }
        out.flush()?;
        let Some((step, why)) = failure else { return Ok(CommandStatus::Clean) };
        eprintln!("bcnet: {}: {step}: {why}", self.server);
        Ok(CommandStatus::Findings)
    }

    /// Joins and leaves without output. Returns the time that it took, or an error that names the failed
    /// step.
    pub(super) fn try_join(&mut self) -> anyhow::Result<Duration> {
        let start = self.driver.clock.now();
        match self.join_and_leave(start, &mut Vec::new(), &mut io::sink())? {
            None => Ok(self.driver.clock.now().since(start)),
            Some((step, why)) => bail!("{step}: {why}"),
        }
    }

    /// Joins the game and leaves it. Returns the failed step and the reason, if a step failed.
    fn join_and_leave(
        &mut self,
        start: Time,
        steps: &mut Vec<CompletedStep>,
        out: &mut impl Write,
    ) -> anyhow::Result<Option<(&'static str, String)>> {
        let failure = self.join_step_by_step(start, steps, out)?;
        if failure.is_some() {
            return Ok(failure);
        }
        let before = self.driver.clock.now();
        let failure = self.leave()?.map(|(_, why)| ("leave", why));
        if failure.is_none() {
            let duration = self.driver.clock.now().since(before);
            self.report_step(CompletedStep { name: "leave", duration, detail: String::new() }, steps, out)?;
        }
        Ok(failure)
    }

    /// Joins step by step. Returns the failed step and the reason, if a step failed.
    fn join_step_by_step(
        &mut self,
        start: Time,
        steps: &mut Vec<CompletedStep>,
        out: &mut impl Write,
    ) -> anyhow::Result<Option<(&'static str, String)>> {
        let (mut before, mut progress) = (start, JoinProgress::default());
        loop {
            while let Some((event, at)) = self.next_event()? {
                if let client::Event::Gone { state: step, reason: end } = event {
                    self.driver.flush()?;
                    return Ok(Some((
                        step_name(self.diagnosis.visible_step(step)),
                        self.failure_reason(step, end),
                    )));
                }
                let players = self.driver.client.players().count();
                let Some((name, detail)) = progress.completed_step(&event, players) else { continue };
                self.report_step(CompletedStep { name, duration: at.since(before), detail }, steps, out)?;
                before = at;
            }
            if self.driver.client.has_entered() {
                return Ok(None);
            }
            if let Some(Input::Interrupt) = self.driver.wait()? {
                let step = step_name(self.diagnosis.visible_step(self.driver.client.state()));
                self.driver.leave()?;
                return Ok(Some((step, "interrupted".into())));
            }
        }
    }

    fn report_step(
        &self,
        step: CompletedStep,
        steps: &mut Vec<CompletedStep>,
        out: &mut impl Write,
    ) -> anyhow::Result<()> {
        if !self.args.json {
            let line = format!("{:<8} {:>8.1} ms  {}", step.name, millis(step.duration), step.detail);
            writeln!(out, "{}", line.trim_end())?;
            out.flush()?;
        }
        steps.push(step);
        Ok(())
    }
}

/// Details of earlier events, which the line of a later step shows.
#[derive(Debug, Default)]
struct JoinProgress {
    file_checks: u32,
    /// Mission and slot.
    game_description: String,
}

impl JoinProgress {
    /// Returns the step that ends with this event, and its details.
    fn completed_step(&mut self, event: &client::Event, players: usize) -> Option<(&'static str, String)> {
        match event.milestone()? {
            Milestone::Connected(id) => Some(("connect", id.to_string())),
            Milestone::FileCheck(_) => {
                self.file_checks += 1;
                None
            }
            Milestone::Settings(settings) => {
                self.game_description = format!("{}, slot {}", settings.mission, settings.slot);
                Some(("files", pluralize(self.file_checks, "check")))
            }
            Milestone::Load => Some(("load", std::mem::take(&mut self.game_description))),
            Milestone::Entered => Some(("enter", describe_other_players(players.saturating_sub(1)))),
            Milestone::Gone { .. } => None,
        }
    }
}

fn describe_other_players(count: usize) -> String {
    match count {
        0 => "no other players".into(),
        1 => "1 other player".into(),
        _ => format!("{count} other players"),
    }
}

/// Returns the name of the step that a client in this state performs.
const fn step_name(state: ClientState) -> &'static str {
    match state {
        ClientState::Connecting => "connect",
        ClientState::Checking => "files",
        ClientState::Loading => "load",
        ClientState::Entering => "enter",
        ClientState::Lobby | ClientState::InGame | ClientState::Gone => "leave",
    }
}
