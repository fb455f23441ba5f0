//! `bcnet swarm --check`: what a server does, rule by rule of PROTOCOL.md.

mod files;
mod game;
mod raw;
mod transport;
mod visitor;

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::net::SocketAddrV4;
use std::time::Duration;

use anyhow::ensure;
use serde_json::json;

use super::Args;
use crate::Verdict;
use visitor::Visitor;

/// What a try has shown.
enum Outcome {
    /// The rule is kept; what shows it.
    Right(String),
    Wrong(String),
    /// It could not be tried, and why.
    Unclear(String),
}

impl Outcome {
    /// Right if `holds`.
    fn when(holds: bool, evidence: impl Into<String>) -> Self {
        if holds { Self::Right(evidence.into()) } else { Self::Wrong(evidence.into()) }
    }
}

/// Something to try.
struct Probe {
    rule: &'static str,
    what: &'static str,
    slow: bool,
    run: Try,
}

impl Probe {
    const fn quick(rule: &'static str, what: &'static str, run: Try) -> Self {
        Self { rule, what, slow: false, run }
    }

    /// One that takes more than a few seconds.
    const fn slow(rule: &'static str, what: &'static str, run: Try) -> Self {
        Self { rule, what, slow: true, run }
    }
}

type Try = fn(&Target) -> anyhow::Result<Outcome>;

/// Whom to try it on.
struct Target {
    server: SocketAddrV4,
    password: String,
}

impl Target {
    /// Makes a visitor that has not said anything yet.
    fn stranger(&self) -> anyhow::Result<Visitor> {
        Visitor::new(self.server, "Probe")
    }

    /// Makes a visitor that was let in; `None` if that does not work.
    fn guest(&self) -> anyhow::Result<Option<Visitor>> {
        let mut visitor = self.stranger()?;
        Ok(visitor.connect(&self.password).then_some(visitor))
    }

    /// Returns players in the game, in the order of their coming; `None` if that does not work.
    fn players<const N: usize>(&self) -> anyhow::Result<Option<[Visitor; N]>> {
        let mut players: Vec<Visitor> = Vec::new();
        for number in 0..N {
            let mut player = Visitor::new(self.server, &format!("Probe {number}"))?;
            if !self.join(&mut player, &mut players) {
                // On a busy machine an answer may come too late.
                player.leave();
                player = Visitor::new(self.server, &format!("Probe {number}"))?;
                if !self.join(&mut player, &mut players) {
                    return Ok(None);
                }
            }
            players.push(player);
        }
        Ok(players.try_into().ok())
    }

    /// Gets `player` into the game while `others`, who are there already, go on answering. Returns whether that worked.
    fn join(&self, player: &mut Visitor, others: &mut [Visitor]) -> bool {
        if others.is_empty() {
            return player.join(&self.password);
        }
        std::thread::scope(|scope| {
            let joining = scope.spawn(|| player.join(&self.password));
            while !joining.is_finished() {
                for other in &mut *others {
                    other.listen(LOOK, |_| false);
                }
            }
            joining.join().unwrap_or(false)
        })
    }
}

pub(super) fn run(server: SocketAddrV4, args: &Args) -> anyhow::Result<Verdict> {
    let probes = chosen(&args.rules, args.slow)?;
    let target = Target { server, password: args.password.clone() };
    transport::greet(&target)?;
    let out = &mut io::stdout().lock();
    let mut wrong = 0;
    for probe in &probes {
        let (verdict, evidence) = match (probe.run)(&target)? {
            Outcome::Right(evidence) => ("right", evidence),
            Outcome::Wrong(evidence) => ("wrong", evidence),
            Outcome::Unclear(evidence) => ("unclear", evidence),
        };
        wrong += u32::from(verdict == "wrong");
        let Probe { rule, what, .. } = probe;
        if args.json {
            let line = json!({ "rule": rule, "what": what, "verdict": verdict, "evidence": evidence });
            writeln!(out, "{line}")?;
        } else {
            writeln!(out, "{rule:5} {verdict:8} {what}\n               {evidence}")?;
        }
        out.flush()?;
    }
    if !args.json {
        writeln!(out, "{} tried, {wrong} wrong", probes.len())?;
    }
    Ok(if wrong == 0 { Verdict::Clean } else { Verdict::Findings })
}

/// Returns what to try: the rules that are named, or all that do not take long.
fn chosen(rules: &[String], slow: bool) -> anyhow::Result<Vec<&'static Probe>> {
    let all = || transport::PROBES.iter().chain(game::PROBES);
    for rule in rules {
        ensure!(
            all().any(|probe| probe.rule == rule),
            "--rules {rule}: there is nothing to try for it; what can be tried is {}",
            all().map(|probe| probe.rule).collect::<BTreeSet<_>>().into_iter().collect::<Vec<_>>().join(" ")
        );
    }
    let is_chosen = |probe: &&Probe| {
        if rules.is_empty() { slow || !probe.slow } else { rules.iter().any(|rule| rule == probe.rule) }
    };
    Ok(all().filter(is_chosen).collect())
}

/// How long a visitor that waits looks at its socket.
const LOOK: Duration = Duration::from_millis(20);
const NOT_LET_IN: &str = "no guest was let in";
const NOT_IN_GAME: &str = "the players did not get into the game";
