//! `--check`: how long each step into the game takes, and which one fails.

use std::io::{self, Write};
use std::time::Duration;

use anyhow::bail;
use bcnet_session::client::{Event, Milestone, State};
use bcnet_transport::Time;
use serde_json::json;

use super::Guest;
use super::input::Input;
use super::show::millis;
use crate::Verdict;
use crate::number::counted;

/// A step that worked.
struct Step {
    name: &'static str,
    took: Duration,
    remark: String,
}

impl Guest<'_> {
    /// Joins, tells how long each step took, and leaves.
    pub(super) fn check(&mut self, out: &mut impl Write) -> anyhow::Result<Verdict> {
        let start = self.wire.clock.now();
        let mut steps = Vec::new();
        let failure = self.walk_in_and_out(start, &mut steps, out)?;
        let all = self.wire.clock.now().since(start);
        if self.args.json {
            let list: Vec<_> =
                steps.iter().map(|step| json!({"step": step.name, "ms": millis(step.took)})).collect();
            let (failed, error) = failure.clone().unzip();
            let value = json!({
                "address": self.server.to_string(), "ok": failure.is_none(), "ms": millis(all),
                "steps": list, "failed": failed, "error": error,
            });
            writeln!(out, "{value}")?;
        } else if failure.is_none() {
            writeln!(out, "{}: players can join, in {:.0} ms", self.server, millis(all))?;
        }
        out.flush()?;
        let Some((step, why)) = failure else { return Ok(Verdict::Clean) };
        eprintln!("bcnet: {}: {step}: {why}", self.server);
        Ok(Verdict::Findings)
    }

    /// Joins and leaves without a word. Returns how long that took, or the step that failed and why.
    pub(super) fn try_join(&mut self) -> anyhow::Result<Duration> {
        let start = self.wire.clock.now();
        match self.walk_in_and_out(start, &mut Vec::new(), &mut io::sink())? {
            None => Ok(self.wire.clock.now().since(start)),
            Some((step, why)) => bail!("{step}: {why}"),
        }
    }

    /// Goes into the game and leaves it. Returns the step that failed, and why.
    fn walk_in_and_out(
        &mut self,
        start: Time,
        steps: &mut Vec<Step>,
        out: &mut impl Write,
    ) -> anyhow::Result<Option<(&'static str, String)>> {
        let failure = self.walk(start, steps, out)?;
        if failure.is_some() {
            return Ok(failure);
        }
        let before = self.wire.clock.now();
        let failure = self.leave()?.map(|(_, why)| ("leave", why));
        if failure.is_none() {
            let took = self.wire.clock.now().since(before);
            self.done(Step { name: "leave", took, remark: String::new() }, steps, out)?;
        }
        Ok(failure)
    }

    /// Goes into the game step by step. Returns the step that failed, and why.
    fn walk(
        &mut self,
        start: Time,
        steps: &mut Vec<Step>,
        out: &mut impl Write,
    ) -> anyhow::Result<Option<(&'static str, String)>> {
        let (mut before, mut progress) = (start, Progress::default());
        loop {
            while let Some((event, at)) = self.next_event()? {
                if let Event::Gone { step, end } = event {
                    self.wire.finish()?;
                    return Ok(Some((step_name(self.failure.step(step)), self.why(step, end))));
                }
                let players = self.wire.client.players().count();
                let Some((name, remark)) = progress.step(&event, players) else { continue };
                self.done(Step { name, took: at.since(before), remark }, steps, out)?;
                before = at;
            }
            if self.wire.client.has_entered() {
                return Ok(None);
            }
            if let Some(Input::Interrupt) = self.wire.wait()? {
                let step = step_name(self.failure.step(self.wire.client.state()));
                self.wire.leave()?;
                return Ok(Some((step, "interrupted".into())));
            }
        }
    }

    fn done(&self, step: Step, steps: &mut Vec<Step>, out: &mut impl Write) -> anyhow::Result<()> {
        if !self.args.json {
            let line = format!("{:<8} {:>8.1} ms  {}", step.name, millis(step.took), step.remark);
            writeln!(out, "{}", line.trim_end())?;
            out.flush()?;
        }
        steps.push(step);
        Ok(())
    }
}

/// What was heard so far and is told with a later step.
#[derive(Debug, Default)]
struct Progress {
    checks: u32,
    /// What is played, and in which slot.
    game: String,
}

impl Progress {
    /// Returns the step that ends with this event, if one does, and what there is to say of it.
    fn step(&mut self, event: &Event, players: usize) -> Option<(&'static str, String)> {
        match event.milestone()? {
            Milestone::Connected(id) => Some(("connect", id.to_string())),
            Milestone::FileCheck(_) => {
                self.checks += 1;
                None
            }
            Milestone::Settings(settings) => {
                self.game = format!("{}, slot {}", settings.mission, settings.slot);
                Some(("files", counted(self.checks, "check")))
            }
            Milestone::Load => Some(("load", std::mem::take(&mut self.game))),
            Milestone::Entered => Some(("enter", others(players.saturating_sub(1)))),
            Milestone::Gone { .. } => None,
        }
    }
}

fn others(count: usize) -> String {
    match count {
        0 => "nobody else there".into(),
        1 => "1 other there".into(),
        _ => format!("{count} others there"),
    }
}

/// Returns the step that a client in this state is at.
const fn step_name(state: State) -> &'static str {
    match state {
        State::Connecting => "connect",
        State::Checking => "files",
        State::Loading => "load",
        State::Entering => "enter",
        State::Lobby | State::InGame | State::Gone => "leave",
    }
}
