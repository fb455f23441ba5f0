//! `bcnet swarm --check`: tests a server rule by rule of PROTOCOL.md.

mod files;
mod game;
mod probe_client;
mod raw_payload;
mod transport;

use std::collections::BTreeSet;
use std::io::Write;
use std::net::SocketAddrV4;
use std::time::Duration;

use anyhow::{bail, ensure};
use serde_json::json;

use super::Args;
use crate::CommandStatus;
use crate::standard_output;
use probe_client::ProbeClient;

/// Result of a probe.
enum ProbeVerdict {
    /// The server follows the rule. Contains the evidence.
    Right(String),
    Wrong(String),
    /// The server answered before the probe and does not answer any more.
    Died,
    /// The rule could not be tested. Contains the reason.
    Unclear(String),
}

impl ProbeVerdict {
    /// Returns `Right` if `holds`.
    fn right_if(holds: bool, evidence: impl Into<String>) -> Self {
        if holds { Self::Right(evidence.into()) } else { Self::Wrong(evidence.into()) }
    }
}

/// A test of one rule.
struct Probe {
    rule: &'static str,
    description: &'static str,
    slow: bool,
    /// The probe ends a stock server.
    lethal: bool,
    run: ProbeFn,
}

impl Probe {
    const fn quick(rule: &'static str, what: &'static str, run: ProbeFn) -> Self {
        Self { rule, description: what, slow: false, lethal: false, run }
    }

    /// Creates a probe that takes more than a few seconds.
    const fn slow(rule: &'static str, what: &'static str, run: ProbeFn) -> Self {
        Self { rule, description: what, slow: true, lethal: false, run }
    }

    /// Creates a probe that ends a stock server.
    const fn lethal(rule: &'static str, what: &'static str, run: ProbeFn) -> Self {
        Self { rule, description: what, slow: false, lethal: true, run }
    }
}

type ProbeFn = fn(&ProbeTarget) -> anyhow::Result<ProbeVerdict>;

/// The tested server.
struct ProbeTarget {
    server: SocketAddrV4,
    password: String,
}

impl ProbeTarget {
    /// Creates a client that has sent nothing yet.
    fn new_client(&self) -> anyhow::Result<ProbeClient> {
        ProbeClient::new(self.server, "Probe")
    }

    /// Creates an admitted client; `None` if that fails.
    fn connected_client(&self) -> anyhow::Result<Option<ProbeClient>> {
        let mut client = self.new_client()?;
        Ok(client.connect(&self.password).then_some(client))
    }

    /// Returns players in the game, in the order of joining; `None` if that fails.
    fn players<const N: usize>(&self) -> anyhow::Result<Option<[ProbeClient; N]>> {
        let mut players: Vec<ProbeClient> = Vec::new();
        for number in 0..N {
            let mut player = ProbeClient::new(self.server, &format!("Probe {number}"))?;
            if !self.join(&mut player, &mut players) {
                // On a busy machine an answer may come too late.
                player.leave();
                player = ProbeClient::new(self.server, &format!("Probe {number}"))?;
                if !self.join(&mut player, &mut players) {
                    return Ok(None);
                }
            }
            players.push(player);
        }
        Ok(players.try_into().ok())
    }

    /// Joins `player` while `others`, already in the game, continue to answer. Returns whether that worked.
    fn join(&self, player: &mut ProbeClient, others: &mut [ProbeClient]) -> bool {
        if others.is_empty() {
            return player.join(&self.password);
        }
        std::thread::scope(|scope| {
            let joining = scope.spawn(|| player.join(&self.password));
            while !joining.is_finished() {
                for other in &mut *others {
                    other.receive_until(POLL_INTERVAL, |_| false);
                }
            }
            joining.join().unwrap_or(false)
        })
    }
}

pub(super) fn run(server: SocketAddrV4, args: &Args) -> anyhow::Result<CommandStatus> {
    let probes = select_probes(args)?;
    let target = ProbeTarget { server, password: args.password.clone() };
    transport::check_reachable(&target)?;
    let out = &mut standard_output::lock();
    let (mut tried, mut wrong, mut died_at) = (0, 0, None);
    for probe in &probes {
        let mut verdict = (probe.run)(&target)?;
        if !transport::is_alive(&target)? {
            verdict = ProbeVerdict::Died;
            died_at = Some(probe.rule);
        }
        let Probe { rule, description: what, .. } = probe;
        let (verdict, evidence) = match verdict {
            ProbeVerdict::Right(evidence) => ("right", evidence),
            ProbeVerdict::Wrong(evidence) => ("wrong", evidence),
            ProbeVerdict::Died => ("died", format!("died at {rule}: the server does not answer any more")),
            ProbeVerdict::Unclear(evidence) => ("unclear", evidence),
        };
        tried += 1;
        wrong += u32::from(verdict == "wrong");
        if args.json {
            let line = json!({ "rule": rule, "what": what, "verdict": verdict, "evidence": evidence });
            writeln!(out, "{line}")?;
        } else {
            writeln!(out, "{rule:5} {verdict:8} {what}\n               {evidence}")?;
        }
        out.flush()?;
        if died_at.is_some() {
            break;
        }
    }
    if !args.json {
        let end = died_at.map(|rule| {
            format!("; died at {rule}, {} not tried: start the server again", probes.len() - tried)
        });
        writeln!(out, "{tried} tried, {wrong} wrong{}", end.unwrap_or_default())?;
    }
    Ok(if wrong == 0 && died_at.is_none() { CommandStatus::Clean } else { CommandStatus::Findings })
}

/// Returns the probes of the given rules, or all that the options allow. Lethal probes are last.
fn select_probes(args: &Args) -> anyhow::Result<Vec<&'static Probe>> {
    let Args { rules, slow, lethal, .. } = args;
    let all = || transport::PROBES.iter().chain(game::PROBES);
    for rule in rules {
        ensure!(
            all().any(|probe| probe.rule == rule),
            "--rules {rule}: no test for this rule; there are tests for {}",
            all().map(|probe| probe.rule).collect::<BTreeSet<_>>().into_iter().collect::<Vec<_>>().join(" ")
        );
    }
    let is_named = |probe: &&Probe| rules.iter().any(|rule| rule == probe.rule);
    if let Some(probe) = all().filter(is_named).find(|probe| probe.lethal && !lethal) {
        bail!("--rules {}: this test ends a stock server; add --lethal to run it", probe.rule);
    }
    let is_allowed = |probe: &&Probe| (*slow || !probe.slow) && (*lethal || !probe.lethal);
    let mut probes: Vec<&Probe> =
        if rules.is_empty() { all().filter(is_allowed).collect() } else { all().filter(is_named).collect() };
    probes.sort_by_key(|probe| probe.lethal);
    Ok(probes)
}

/// Time between two reads of a waiting client's socket.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
const NOT_ADMITTED: &str = "no client was admitted";
const NOT_IN_GAME: &str = "the players could not join the game";
