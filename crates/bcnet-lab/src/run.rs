//! Runs a scenario: the settle phase, in which the clients join, then the experiment, and the summary.
//!
//! [`build`] creates the engines, [`actions`] performs the actions, and [`World`] advances virtual time.

mod actions;
mod build;

pub use build::NodeSetup;

use std::time::Duration;

use bcnet_transport::Time;

use crate::battle::BattleTraffic;
use crate::counters::RunCounters;
use crate::engine::LabEngine;
use crate::meter::{Meter, ObservedDatagram};
use crate::observer::DatagramMeta;
use crate::run_summary::{DumpRecord, NodeSample, NodeSummary, ProxySummary, RunSample, RunSummary};
use crate::scenario::{DumpRequest, EngineKind, NodeRole, ProxySetup, Scenario, TimedAction};
use crate::stock::QueueLengths;
use crate::world::World;
use bcnet_transport::link::Faults;

/// Options of a run that are not in the scenario file.
#[derive(Debug, Clone, Copy, Default)]
pub struct RunOptions {
    /// Engine of nodes without an `engine` key, instead of the engine of the file.
    pub engine: Option<EngineKind>,
    /// Seed, instead of the seed of the file.
    pub seed: Option<u64>,
    /// Records every ACK that an engine handles.
    pub trace: bool,
    /// Time of an extra dump of all queues.
    pub dump: Option<Time>,
}

/// Runs a scenario.
#[must_use]
pub fn run(scenario: &Scenario, options: &RunOptions) -> RunSummary {
    let mut runner = ScenarioRunner::new(scenario, options);
    runner.run_settle_phase();
    runner.run_experiment();
    runner.finish()
}

/// Runs a scenario and passes every datagram that is sent or arrives to a callback.
///
/// Datagrams of the settle phase are included.
pub fn run_observed(
    scenario: &Scenario,
    options: &RunOptions,
    mut on_datagram: impl FnMut(ObservedDatagram),
) -> RunSummary {
    let mut runner = ScenarioRunner::new(scenario, options);
    runner.meter.observed = Some(Vec::new());
    runner.on_datagram = Some(&mut on_datagram);
    runner.run_settle_phase();
    runner.run_experiment();
    runner.finish()
}

/// Runs a scenario and returns the first `max` datagrams between different nodes, in plaintext.
#[must_use]
pub fn capture_datagrams(
    scenario: &Scenario,
    options: &RunOptions,
    max: usize,
) -> Vec<(DatagramMeta, Vec<u8>)> {
    let mut captured = Vec::new();
    drop(run_observed(scenario, options, |ObservedDatagram { meta, sent, bytes }| {
        if sent && meta.from != meta.to && captured.len() < max {
            captured.push((meta, bytes));
        }
    }));
    captured
}

struct ScenarioRunner<'a> {
    scenario: &'a Scenario,
    /// Callback that receives every datagram.
    on_datagram: Option<&'a mut dyn FnMut(ObservedDatagram)>,
    engine: EngineKind,
    seed: u64,
    start: Time,
    world: World<dyn LabEngine>,
    meter: Meter,
    /// Actions that are not finished, each with its next time.
    actions: Vec<(Time, &'a TimedAction)>,
    battles: Vec<(BattleTraffic, Time)>,
    /// Number of messages of the scenario's recording that were sent.
    recorded_sent: usize,
    /// Dumps still to take, the next one last.
    pending_dumps: Vec<DumpRequest>,
    taken_dumps: Vec<DumpRecord>,
    samples: Vec<RunSample>,
    payload: Vec<u8>,
    /// Comparisons of each engine when the experiment began.
    comparisons_at_start: Vec<Option<u64>>,
}

impl<'a> ScenarioRunner<'a> {
    fn new(scenario: &'a Scenario, options: &RunOptions) -> Self {
        let engine = options.engine.unwrap_or(scenario.engine);
        let seed = options.seed.unwrap_or(scenario.seed);
        let start = Time::ZERO + scenario.settle;
        let delay = |link: &crate::scenario::ScenarioLink| link.faults.delay;
        let without_faults =
            Faults { delay: scenario.links.iter().map(delay).max().unwrap_or_default(), ..Faults::default() };
        let mut world = World::new(without_faults, seed);
        for (number, node) in scenario.nodes.iter().enumerate() {
            world.add_node(build::build_engine(node, number, scenario, engine), node.behavior.clone());
        }
        if let Some(ProxySetup { before, heal, .. }) = &scenario.proxy {
            world.add_proxy(*before, *heal, scenario.nodes.len());
        }
        let has_engine = scenario.nodes.iter().map(|node| node.role != NodeRole::AddressOnly).collect();
        let mut meter = Meter::new(has_engine, start);
        meter.proxy_counters = scenario.proxy.as_ref().map(|_| RunCounters::default());
        let measurements = || {
            scenario
                .expectations
                .iter()
                .map(|expect| &expect.measurement)
                .chain(scenario.claim.iter().map(|claim| &claim.measurement))
        };
        meter.send_log = measurements().any(|measurement| measurement.needs_log()).then(Vec::new);
        meter.ack_trace = options.trace.then(Vec::new);
        let battle = |traffic: &crate::scenario::TrafficPattern| {
            (
                BattleTraffic::new(seed, traffic.players, traffic.at + scenario.settle),
                traffic.until + scenario.settle,
            )
        };
        Self {
            scenario,
            on_datagram: None,
            engine,
            seed,
            start,
            world,
            meter,
            actions: scenario.actions.iter().map(|timed| (timed.at + scenario.settle, timed)).collect(),
            recorded_sent: 0,
            battles: scenario.traffic.iter().map(battle).collect(),
            pending_dumps: requested_dumps(scenario, options),
            taken_dumps: Vec::new(),
            samples: Vec::new(),
            payload: Vec::new(),
            comparisons_at_start: Vec::new(),
        }
    }

    /// Lets the clients join over links without loss, then sets the faults of the links.
    fn run_settle_phase(&mut self) {
        self.world.run_observed_before(self.start, &mut self.meter);
        self.emit_datagrams();
        let nodes = self.scenario.nodes.len();
        self.comparisons_at_start = (0..nodes).map(|node| self.world.node(node).comparisons()).collect();
        (0..nodes).for_each(|node| self.world.engine_mut(node).reset_longest_ack());
        self.world.set_faults(Faults::default());
        for link in &self.scenario.links {
            let ends = |end: Option<usize>| end.map_or(0..nodes, |end| end..end + 1);
            for from in ends(link.from) {
                for to in ends(link.to).filter(|to| *to != from) {
                    for (from, to) in self.world.hops(from, to) {
                        self.world.set_link_faults(from, to, link.faults.clone());
                        self.world.set_link_script(from, to, link.script.clone());
                    }
                }
            }
        }
    }

    fn run_experiment(&mut self) {
        let end = self.start + self.scenario.duration;
        let step = self.scenario.duration / SAMPLE_COUNT;
        let mut sample = self.start;
        loop {
            let action = self.next_action_at().filter(|at| *at <= end);
            let dump = self.pending_dumps.last().map(|dump| dump.at + self.scenario.settle);
            let observation = dump.into_iter().chain((sample <= end).then_some(sample)).min();
            match (action, observation) {
                (Some(at), observation) if observation.is_none_or(|next| at <= next) => {
                    self.perform_actions_at(at)
                }
                (_, Some(at)) => {
                    self.world.run_observed(at, &mut self.meter);
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
            self.emit_datagrams();
        }
        self.world.run_observed(end, &mut self.meter);
        self.emit_datagrams();
    }

    /// Passes the observed datagrams to the callback.
    fn emit_datagrams(&mut self) {
        if let (Some(on_datagram), Some(observed)) = (&mut self.on_datagram, &mut self.meter.observed) {
            observed.drain(..).for_each(on_datagram);
        }
    }

    fn next_action_at(&self) -> Option<Time> {
        let actions = self.actions.iter().map(|(at, _)| *at);
        let battles = self.battles.iter().map(|(battle, until)| (battle.next_frame_at(), until));
        let battles = battles.filter(|(at, until)| at < until).map(|(at, _)| at);
        let recorded = self
            .scenario
            .recorded_messages
            .get(self.recorded_sent)
            .map(|message| message.at + self.scenario.settle);
        actions.chain(battles).chain(recorded).min()
    }

    /// Performs all actions and sends all messages that are due at `at`.
    fn perform_actions_at(&mut self, at: Time) {
        self.world.run_observed_before(at, &mut self.meter);
        let settle = self.scenario.settle;
        let due: Vec<&TimedAction> =
            self.actions.iter().filter(|(next, _)| *next == at).map(|(_, timed)| *timed).collect();
        for timed in due {
            self.perform_action(&timed.action);
        }
        self.actions.retain_mut(|(next, timed)| {
            if *next != at {
                return true;
            }
            // Each time is the first time plus a multiple of the interval, so that rounding errors do not add up.
            let Some((every, until)) = timed.repeat else { return false };
            let past = next.since(timed.at + settle);
            let number = (past.as_secs_f64() / every.as_secs_f64()).round() as u32 + 1;
            *next = timed.at + settle + every.saturating_mul(number);
            *next < until + settle
        });
        while let Some(message) =
            self.scenario.recorded_messages.get(self.recorded_sent).filter(|next| next.at + settle <= at)
        {
            self.recorded_sent += 1;
            self.send_game_message(*message);
        }
        for index in 0..self.battles.len() {
            let (battle, until) = &mut self.battles[index];
            if battle.next_frame_at() == at && at < *until {
                for message in battle.take_frame() {
                    self.send_game_message(message);
                }
            }
        }
    }

    fn take_dump(&mut self) {
        let Some(DumpRequest { at, node, peer }) = self.pending_dumps.pop() else { return };
        let now = self.world.now();
        let peers =
            peer.map_or_else(|| self.world.node(node).peers_with_queues(), |peer| vec![self.peer_id(peer)]);
        for id in peers {
            if let Some(mut dump) = self.world.node(node).dump(id, now) {
                dump.at = at;
                let counters = self.complete_counters(node, &self.meter.counters[node]);
                self.taken_dumps.push(DumpRecord { at, node, requested_peer: peer, dump, counters });
            }
        }
    }

    fn take_sample(&mut self) {
        let now = self.world.now();
        let state = |(node, counters): (usize, &RunCounters)| {
            let engine = self.world.node(node);
            let mut queues = QueueLengths::default();
            for peer in engine.peers_with_queues() {
                let QueueLengths { acks, retx, first } = engine.queue_lengths(peer, now);
                queues.acks += acks;
                queues.retx += retx;
                queues.first += first;
            }
            NodeSample {
                queues,
                counters: RunCounters { comparisons: self.comparisons_since_start(node), ..*counters },
            }
        };
        let nodes = self.meter.counters.iter().enumerate().map(state).collect();
        self.samples.push(RunSample { at: Time::ZERO + now.since(self.start), nodes });
    }

    /// Returns the comparisons of an engine since the experiment began.
    fn comparisons_since_start(&self, node: usize) -> Option<u64> {
        let before = self.comparisons_at_start.get(node).copied().flatten()?;
        Some(self.world.node(node).comparisons()? - before)
    }

    /// Returns the counters of a node, completed with those that only its engine has.
    fn complete_counters(&self, node: usize, counters: &RunCounters) -> RunCounters {
        let measured = self.world.node(node).longest_ack(self.world.now());
        let longest_ack = measured.unwrap_or(counters.longest_ack);
        let crashed = u64::from(self.world.node(node).crash().is_some());
        RunCounters { comparisons: self.comparisons_since_start(node), longest_ack, crashed, ..*counters }
    }

    fn finish(mut self) -> RunSummary {
        self.meter.finish(self.world.now());
        let mut delays = std::mem::take(&mut self.meter.delays);
        delays.sort_unstable_by_key(|delay| delay.micros);
        let counters = self.meter.counters.iter().enumerate();
        let nodes = counters.zip(&self.scenario.nodes).map(|((number, counters), node)| NodeSummary {
            name: node.name.clone(),
            engine: (node.role != NodeRole::AddressOnly).then(|| node.engine.unwrap_or(self.engine)),
            counters: self.complete_counters(number, counters),
            crash: self.world.node(number).crash(),
        });
        let nodes = nodes.collect();
        let proxy = self.scenario.proxy.as_ref().zip(self.meter.proxy_counters);
        RunSummary {
            proxy: proxy.map(|(setup, counters)| ProxySummary { name: setup.name.clone(), counters }),
            engine: self.engine,
            seed: self.seed,
            duration: self.scenario.duration,
            nodes,
            dumps: self.taken_dumps,
            samples: self.samples,
            ack_trace: self.meter.ack_trace.unwrap_or_default(),
            send_log: self.meter.send_log.unwrap_or_default(),
            delays,
            fingerprint: self.world.fingerprint(),
        }
    }
}

/// Returns the dumps that the scenario, its measurements and the options request, the last one first.
fn requested_dumps(scenario: &Scenario, options: &RunOptions) -> Vec<DumpRequest> {
    let measurements = scenario.expectations.iter().map(|expect| &expect.measurement);
    let measurements = measurements.chain(scenario.claim.iter().map(|claim| &claim.measurement));
    let measurements = measurements.filter(|measurement| measurement.metric.reads_dump());
    let of_measurements = measurements.filter_map(|measurement| {
        Some(DumpRequest { at: measurement.at?, node: measurement.node?, peer: measurement.peer })
    });
    let extra = options.dump.into_iter().flat_map(|at| {
        let nodes = scenario.nodes.iter().enumerate().filter(|(_, node)| node.role != NodeRole::AddressOnly);
        nodes.map(move |(node, _)| DumpRequest { at, node, peer: None })
    });
    let mut dumps: Vec<DumpRequest> =
        scenario.dumps.iter().copied().chain(of_measurements).chain(extra).collect();
    dumps.sort();
    dumps.dedup();
    dumps.reverse();
    dumps
}

/// Number of samples in a run.
const SAMPLE_COUNT: u32 = 480;
