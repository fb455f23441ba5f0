//! Runs a scenario.

mod act;
mod build;

pub use build::NodeSetup;

use std::time::Duration;

use bcnet_transport::Time;

use crate::battle::Battle;
use crate::engine::LabEngine;
use crate::link::Faults;
use crate::meter::{Meter, SeenDatagram};
use crate::observer::DatagramMeta;
use crate::outcome::{DumpRecord, NodeOutcome, NodeSample, Outcome, ProxyOutcome, Sample};
use crate::scenario::{DumpAt, EngineKind, NodeRole, ProxySetup, Scenario, TimedAction};
use crate::stock::Lengths;
use crate::totals::Totals;
use crate::world::World;

/// How a scenario is run, where that is not said in its file.
#[derive(Debug, Clone, Copy, Default)]
pub struct Options {
    /// The engine of nodes that name none.
    pub engine: Option<EngineKind>,
    /// Another seed.
    pub seed: Option<u64>,
    /// Whether every ACK that is handled is noted.
    pub trace: bool,
    /// A dump of all queues at this moment, besides those of the file.
    pub dump: Option<Time>,
}

/// Runs a scenario.
#[must_use]
pub fn run(scenario: &Scenario, options: &Options) -> Outcome {
    let mut runner = Runner::new(scenario, options);
    runner.settle();
    runner.experiment();
    runner.finish()
}

/// Runs a scenario and shows every datagram that is sent or arrives in it, those before the experiment too.
pub fn watch(scenario: &Scenario, options: &Options, mut see: impl FnMut(SeenDatagram)) -> Outcome {
    let mut runner = Runner::new(scenario, options);
    runner.meter.seen = Some(Vec::new());
    runner.see = Some(&mut see);
    runner.settle();
    runner.experiment();
    runner.finish()
}

/// Runs a scenario and gives the first datagrams that were sent in it, at most `max`, in the clear.
#[must_use]
pub fn capture(scenario: &Scenario, options: &Options, max: usize) -> Vec<(DatagramMeta, Vec<u8>)> {
    let mut captured = Vec::new();
    drop(watch(scenario, options, |SeenDatagram { meta, sent, bytes }| {
        if sent && meta.from != meta.to && captured.len() < max {
            captured.push((meta, bytes));
        }
    }));
    captured
}

struct Runner<'a> {
    scenario: &'a Scenario,
    /// Who is shown every datagram.
    see: Option<&'a mut dyn FnMut(SeenDatagram)>,
    engine: EngineKind,
    seed: u64,
    start: Time,
    world: World<dyn LabEngine>,
    meter: Meter,
    /// What is still to be done, with the next time of each.
    actions: Vec<(Time, &'a TimedAction)>,
    battles: Vec<(Battle, Time)>,
    /// How many recorded messages were sent.
    replayed: usize,
    /// What is still to be dumped, the next one last.
    dumps: Vec<DumpAt>,
    taken: Vec<DumpRecord>,
    samples: Vec<Sample>,
    payload: Vec<u8>,
    /// What each engine had compared when the experiment began.
    compared: Vec<Option<u64>>,
}

impl<'a> Runner<'a> {
    fn new(scenario: &'a Scenario, options: &Options) -> Self {
        let engine = options.engine.unwrap_or(scenario.engine);
        let seed = options.seed.unwrap_or(scenario.seed);
        let start = Time::ZERO + scenario.settle;
        let delay = |link: &crate::scenario::Link| link.faults.delay;
        let calm =
            Faults { delay: scenario.links.iter().map(delay).max().unwrap_or_default(), ..Faults::default() };
        let mut world = World::new(calm, seed);
        for (number, node) in scenario.nodes.iter().enumerate() {
            world.add_node(build::build(node, number, scenario, engine), node.behavior.clone());
        }
        if let Some(ProxySetup { before, heal, .. }) = &scenario.proxy {
            world.add_proxy(*before, *heal, scenario.nodes.len());
        }
        let present = scenario.nodes.iter().map(|node| node.role != NodeRole::Nobody).collect();
        let mut meter = Meter::new(present, start);
        meter.proxy = scenario.proxy.as_ref().map(|_| Totals::default());
        let measurements = || {
            scenario
                .expects
                .iter()
                .map(|expect| &expect.measurement)
                .chain(scenario.claim.iter().map(|claim| &claim.measurement))
        };
        meter.log = measurements().any(|measurement| measurement.needs_log()).then(Vec::new);
        meter.trace = options.trace.then(Vec::new);
        let battle = |traffic: &crate::scenario::Traffic| {
            (
                Battle::new(seed, traffic.players, traffic.at + scenario.settle),
                traffic.until + scenario.settle,
            )
        };
        Self {
            scenario,
            see: None,
            engine,
            seed,
            start,
            world,
            meter,
            actions: scenario.actions.iter().map(|timed| (timed.at + scenario.settle, timed)).collect(),
            replayed: 0,
            battles: scenario.traffic.iter().map(battle).collect(),
            dumps: wanted_dumps(scenario, options),
            taken: Vec::new(),
            samples: Vec::new(),
            payload: Vec::new(),
            compared: Vec::new(),
        }
    }

    /// Lets the nodes find each other, then lets the links do what they are to do.
    fn settle(&mut self) {
        self.world.watch_before(self.start, &mut self.meter);
        self.show();
        let nodes = self.scenario.nodes.len();
        self.compared = (0..nodes).map(|node| self.world.node(node).comparisons()).collect();
        (0..nodes).for_each(|node| self.world.engine_mut(node).forget_longest_ack());
        self.world.set_faults(Faults::default());
        for link in &self.scenario.links {
            let ends = |end: Option<usize>| end.map_or(0..nodes, |end| end..end + 1);
            for from in ends(link.from) {
                for to in ends(link.to).filter(|to| *to != from) {
                    for (from, to) in self.world.hops(from, to) {
                        self.world.set_link(from, to, link.faults.clone());
                        self.world.set_script(from, to, link.script.clone());
                    }
                }
            }
        }
    }

    fn experiment(&mut self) {
        let end = self.start + self.scenario.duration;
        let step = self.scenario.duration / SAMPLES;
        let mut sample = self.start;
        loop {
            let action = self.next_action().filter(|at| *at <= end);
            let dump = self.dumps.last().map(|dump| dump.at + self.scenario.settle);
            let look = dump.into_iter().chain((sample <= end).then_some(sample)).min();
            match (action, look) {
                (Some(at), look) if look.is_none_or(|look| at <= look) => self.act(at),
                (_, Some(at)) => {
                    self.world.watch(at, &mut self.meter);
                    if dump == Some(at) {
                        self.take_dump();
                    }
                    if sample == at {
                        self.take_sample();
                        sample = sample + step.max(Duration::from_micros(1));
                    }
                }
                _ => break,
            }
            self.show();
        }
        self.world.watch(end, &mut self.meter);
        self.show();
    }

    /// Shows what was seen.
    fn show(&mut self) {
        if let (Some(see), Some(seen)) = (&mut self.see, &mut self.meter.seen) {
            seen.drain(..).for_each(see);
        }
    }

    fn next_action(&self) -> Option<Time> {
        let actions = self.actions.iter().map(|(at, _)| *at);
        let battles = self.battles.iter().map(|(battle, until)| (battle.next(), until));
        let battles = battles.filter(|(at, until)| at < until).map(|(at, _)| at);
        let recorded =
            self.scenario.recorded.get(self.replayed).map(|message| message.at + self.scenario.settle);
        actions.chain(battles).chain(recorded).min()
    }

    /// Does all that is to be done at `at`.
    fn act(&mut self, at: Time) {
        self.world.watch_before(at, &mut self.meter);
        let settle = self.scenario.settle;
        let due: Vec<&TimedAction> =
            self.actions.iter().filter(|(next, _)| *next == at).map(|(_, timed)| *timed).collect();
        for timed in due {
            self.perform(&timed.action);
        }
        self.actions.retain_mut(|(next, timed)| {
            if *next != at {
                return true;
            }
            // Multiples, so that rounding does not add up.
            let Some((every, until)) = timed.every else { return false };
            let past = next.since(timed.at + settle);
            let number = (past.as_secs_f64() / every.as_secs_f64()).round() as u32 + 1;
            *next = timed.at + settle + every.saturating_mul(number);
            *next < until + settle
        });
        while let Some(message) =
            self.scenario.recorded.get(self.replayed).filter(|next| next.at + settle <= at)
        {
            self.replayed += 1;
            self.send_game_message(*message);
        }
        for index in 0..self.battles.len() {
            let (battle, until) = &mut self.battles[index];
            if battle.next() == at && at < *until {
                for message in battle.frame() {
                    self.send_game_message(message);
                }
            }
        }
    }

    fn take_dump(&mut self) {
        let Some(DumpAt { at, node, peer }) = self.dumps.pop() else { return };
        let now = self.world.now();
        let peers = peer.map_or_else(|| self.world.node(node).entries(), |peer| vec![self.id_of(peer)]);
        for id in peers {
            if let Some(mut dump) = self.world.node(node).dump(id, now) {
                dump.at = at;
                let totals = self.finished(node, &self.meter.totals[node]);
                self.taken.push(DumpRecord { at, node, asked: peer, dump, totals });
            }
        }
    }

    fn take_sample(&mut self) {
        let now = self.world.now();
        let state = |(node, totals): (usize, &Totals)| {
            let engine = self.world.node(node);
            let mut queues = Lengths::default();
            for peer in engine.entries() {
                let Lengths { acks, retx, first } = engine.lengths(peer, now);
                queues.acks += acks;
                queues.retx += retx;
                queues.first += first;
            }
            NodeSample { queues, totals: Totals { comparisons: self.compared(node), ..*totals } }
        };
        let nodes = self.meter.totals.iter().enumerate().map(state).collect();
        self.samples.push(Sample { at: Time::ZERO + now.since(self.start), nodes });
    }

    /// Returns what an engine has compared since the experiment began.
    fn compared(&self, node: usize) -> Option<u64> {
        let before = self.compared.get(node).copied().flatten()?;
        Some(self.world.node(node).comparisons()? - before)
    }

    /// Returns what a node did, with what only its engine knows.
    fn finished(&self, node: usize, totals: &Totals) -> Totals {
        let tells = self.world.node(node).longest_ack(self.world.now());
        let longest_ack = tells.unwrap_or(totals.longest_ack);
        let crashed = u64::from(self.world.node(node).crash().is_some());
        Totals { comparisons: self.compared(node), longest_ack, crashed, ..*totals }
    }

    fn finish(mut self) -> Outcome {
        self.meter.finish(self.world.now());
        let mut delays = std::mem::take(&mut self.meter.delays);
        delays.sort_unstable_by_key(|delay| delay.micros);
        let totals = self.meter.totals.iter().enumerate();
        let nodes = totals.zip(&self.scenario.nodes).map(|((number, totals), node)| NodeOutcome {
            name: node.name.clone(),
            engine: (node.role != NodeRole::Nobody).then(|| node.engine.unwrap_or(self.engine)),
            totals: self.finished(number, totals),
            crash: self.world.node(number).crash(),
        });
        let nodes = nodes.collect();
        let proxy = self.scenario.proxy.as_ref().zip(self.meter.proxy);
        Outcome {
            proxy: proxy.map(|(setup, totals)| ProxyOutcome { name: setup.name.clone(), totals }),
            engine: self.engine,
            seed: self.seed,
            duration: self.scenario.duration,
            nodes,
            dumps: self.taken,
            samples: self.samples,
            trace: self.meter.trace.unwrap_or_default(),
            log: self.meter.log.unwrap_or_default(),
            delays,
            fingerprint: self.world.trace(),
        }
    }
}

/// Returns the dumps that the file, its measurements and the options ask for, the last one first.
fn wanted_dumps(scenario: &Scenario, options: &Options) -> Vec<DumpAt> {
    let measurements = scenario.expects.iter().map(|expect| &expect.measurement);
    let measurements = measurements.chain(scenario.claim.iter().map(|claim| &claim.measurement));
    let measurements = measurements.filter(|measurement| measurement.metric.is_of_queues());
    let of_figures = measurements.filter_map(|measurement| {
        Some(DumpAt { at: measurement.at?, node: measurement.node?, peer: measurement.peer })
    });
    let extra = options.dump.into_iter().flat_map(|at| {
        let nodes = scenario.nodes.iter().enumerate().filter(|(_, node)| node.role != NodeRole::Nobody);
        nodes.map(move |(node, _)| DumpAt { at, node, peer: None })
    });
    let mut dumps: Vec<DumpAt> = scenario.dumps.iter().copied().chain(of_figures).chain(extra).collect();
    dumps.sort();
    dumps.dedup();
    dumps.reverse();
    dumps
}

/// How often the state is sampled.
const SAMPLES: u32 = 480;
