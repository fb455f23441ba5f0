//! Runs a scenario.

use std::time::Duration;

use bcnet_transport::wire::{PeerId, Text};
use bcnet_transport::{Config, Connect, Endpoint, Quality, Time};

use crate::battle::{Battle, Shot};
use crate::engine::{LabEngine, SendMode};
use crate::link::Faults;
use crate::meter::Meter;
use crate::observer::DatagramMeta;
use crate::outcome::{DumpRecord, NodeOutcome, Outcome, Sample};
use crate::scenario::{
    Action, Content, DumpAt, EngineKind, Node, NodeRole, PeerRef, Scenario, Settings, TimedAction,
};
use crate::stock::{Params, Stock};
use crate::totals::Totals;
use crate::world::{World, address};

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

/// Runs a scenario and gives the first datagrams that were sent in it, at most `max`, in the clear.
#[must_use]
pub fn capture(scenario: &Scenario, options: &Options, max: usize) -> Vec<(DatagramMeta, Vec<u8>)> {
    let mut runner = Runner::new(scenario, options);
    runner.meter.captured.reserve_exact(max);
    runner.settle();
    runner.experiment();
    runner.meter.captured
}

struct Runner<'a> {
    scenario: &'a Scenario,
    engine: EngineKind,
    seed: u64,
    start: Time,
    world: World<dyn LabEngine>,
    meter: Meter,
    /// What is still to be done, with the next time of each.
    actions: Vec<(Time, &'a TimedAction)>,
    battles: Vec<(Battle, Time)>,
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
            world.add_node(build(node, number, scenario, engine), node.behavior.clone());
        }
        let present = scenario.nodes.iter().map(|node| node.role != NodeRole::Nobody).collect();
        let mut meter = Meter::new(present, start);
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
            engine,
            seed,
            start,
            world,
            meter,
            actions: scenario.actions.iter().map(|timed| (timed.at + scenario.settle, timed)).collect(),
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
        let nodes = self.scenario.nodes.len();
        self.compared = (0..nodes).map(|node| self.world.node(node).comparisons()).collect();
        self.world.set_faults(Faults::default());
        for link in &self.scenario.links {
            let ends = |end: Option<usize>| end.map_or(0..nodes, |end| end..end + 1);
            for from in ends(link.from) {
                for to in ends(link.to).filter(|to| *to != from) {
                    self.world.set_link(from, to, link.faults.clone());
                    self.world.set_script(from, to, link.script.clone());
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
        }
        self.world.watch(end, &mut self.meter);
    }

    fn next_action(&self) -> Option<Time> {
        let actions = self.actions.iter().map(|(at, _)| *at);
        let battles = self.battles.iter().map(|(battle, until)| (battle.next(), until));
        let battles = battles.filter(|(at, until)| at < until).map(|(at, _)| at);
        actions.chain(battles).min()
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
        for index in 0..self.battles.len() {
            let (battle, until) = &mut self.battles[index];
            if battle.next() == at && at < *until {
                for shot in battle.frame() {
                    self.shoot(shot);
                }
            }
        }
    }

    fn perform(&mut self, action: &Action) {
        let now = self.world.now();
        match action {
            Action::Send { from, to, what, count, mode } => {
                for _ in 0..*count {
                    for peer in self.receivers(*from, *to) {
                        match what {
                            Content::Size(size) => self.send(*from, peer, *size, *mode),
                            Content::Bytes(bytes) => {
                                let taken = self.world.node_mut(*from).send_as(peer, bytes, *mode, now);
                                self.meter.gave(*from, taken, false);
                            }
                        }
                    }
                }
            }
            Action::Identify { from } => {
                let name: Vec<u8> = "lab".encode_utf16().flat_map(u16::to_le_bytes).collect();
                let name = Text::new(&name).unwrap_or_default();
                // There may be nobody to tell yet.
                let _ = self.world.node_mut(*from).identify(name, now);
            }
            Action::Inject { into, from, datagram } => self.world.put(*from, *into, datagram),
            Action::Leave { node } => self.world.node_mut(*node).leave(now),
        }
    }

    fn receivers(&self, from: usize, to: Option<PeerRef>) -> Vec<PeerId> {
        match to {
            Some(PeerRef::Id(id)) => vec![id],
            Some(PeerRef::Node(node)) => vec![self.id_of(node)],
            None => self.world.node(from).peer_ids(),
        }
    }

    /// Returns the id that the engine of a node has now; a node that is nobody stands for the host if it is the first.
    fn id_of(&self, node: usize) -> PeerId {
        match self.scenario.nodes.get(node).map(|node| node.role) {
            Some(NodeRole::Nobody) if node == 0 => PeerId::HOST,
            Some(NodeRole::Nobody) => PeerId(u8::try_from(node + 1).unwrap_or(u8::MAX)),
            Some(NodeRole::Host | NodeRole::Client) | None => self.world.node(node).id(),
        }
    }

    fn shoot(&mut self, shot: Shot) {
        let Some(host) = self.scenario.host() else { return };
        let nodes = self.scenario.nodes.iter().enumerate();
        let mut clients = nodes.filter(|(_, node)| node.role == NodeRole::Client);
        let Some((client, _)) = clients.nth(shot.ship) else { return };
        let (from, to) = if shot.from_host { (host, client) } else { (client, host) };
        let peer = self.id_of(to);
        if shot.quality == Quality::Unreliable {
            // Not worth a number: there are many of them, and nobody asks when they arrive.
            let now = self.world.now();
            let (state, mode) = (&STATE[..shot.size.min(STATE.len())], SendMode::Plain(shot.quality));
            let taken = self.world.node_mut(from).send_as(peer, state, mode, now);
            return self.meter.gave(from, taken, false);
        }
        self.send(from, peer, shot.size, SendMode::Plain(shot.quality));
    }

    fn send(&mut self, from: usize, to: PeerId, size: usize, mode: SendMode) {
        let now = self.world.now();
        let mut payload = std::mem::take(&mut self.payload);
        // What is too large for one message is made reliable.
        let unreliable = mode == SendMode::Plain(Quality::Unreliable);
        let reliable = !unreliable || size > LARGEST_UNRELIABLE;
        self.meter.stamp(&mut payload, from, size, reliable, now);
        let taken = self.world.node_mut(from).send_as(to, &payload, mode, now);
        self.meter.gave(from, taken, true);
        self.payload = payload;
    }

    fn take_dump(&mut self) {
        let Some(DumpAt { at, node, peer }) = self.dumps.pop() else { return };
        let now = self.world.now();
        for id in self.receivers(node, peer) {
            if let Some(mut dump) = self.world.node(node).dump(id, now) {
                dump.at = at;
                self.taken.push(DumpRecord { at, node, asked: peer, dump });
            }
        }
    }

    fn take_sample(&mut self) {
        let now = self.world.now();
        let state = |(node, totals): (usize, &Totals)| {
            let engine = self.world.node(node);
            let acks = engine.peer_ids().into_iter().map(|peer| engine.lengths(peer, now)[0]).sum();
            (acks, Totals { comparisons: self.compared(node), ..*totals })
        };
        let nodes = self.meter.totals.iter().enumerate().map(state).collect();
        self.samples.push(Sample { at: Time::ZERO + now.since(self.start), nodes });
    }

    /// Returns what an engine has compared since the experiment began.
    fn compared(&self, node: usize) -> Option<u64> {
        let before = self.compared.get(node).copied().flatten()?;
        Some(self.world.node(node).comparisons()? - before)
    }

    fn finish(mut self) -> Outcome {
        self.meter.finish(self.world.now());
        let mut delays = std::mem::take(&mut self.meter.delays);
        delays.sort_unstable_by_key(|(_, micros)| *micros);
        let totals = self.meter.totals.iter().enumerate();
        let nodes = totals.zip(&self.scenario.nodes).map(|((number, totals), node)| NodeOutcome {
            name: node.name.clone(),
            engine: (node.role != NodeRole::Nobody).then(|| node.engine.unwrap_or(self.engine)),
            totals: Totals { comparisons: self.compared(number), ..*totals },
            crash: self.world.node(number).crash(),
        });
        let nodes = nodes.collect();
        Outcome {
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

/// Returns the engine of a node.
fn build(node: &Node, number: usize, scenario: &Scenario, engine: EngineKind) -> Box<dyn LabEngine> {
    let host = address(scenario.host().unwrap_or(0));
    let own = *address(number).ip();
    let nonce = 0x0A5F + u32::try_from(number).unwrap_or(0);
    let now = Time::ZERO;
    match (node.role, node.engine.unwrap_or(engine)) {
        (NodeRole::Nobody, _) => Box::new(Stock::closed()),
        (NodeRole::Host, EngineKind::Stock) => Box::new(Stock::host(Params { address: own, ..params(node) })),
        (NodeRole::Host, EngineKind::Bcnet) => {
            Box::new(Endpoint::host(Config { address: own, ..config(node) }))
        }
        (NodeRole::Client, EngineKind::Stock) => {
            Box::new(Stock::connect(params(node), host, own, nonce, &[], now))
        }
        (NodeRole::Client, EngineKind::Bcnet) => {
            let connect = Connect { host, nonce, password: Text::default() };
            Box::new(Endpoint::connect(Config { address: own, ..config(node) }, connect, now))
        }
    }
}

fn params(node: &Node) -> Params {
    let Settings { keepalive, silence, linger, buffer, clock, free_acks, last_ack, ack_step, gate } =
        &node.settings;
    let default = Params::default();
    let seconds = |wanted: &Option<Duration>, default: Option<f32>| match wanted {
        Some(length) => (!length.is_zero()).then_some(length.as_secs_f32()),
        None => default,
    };
    Params {
        cipher: false,
        keepalive: seconds(keepalive, default.keepalive),
        silence: seconds(silence, default.silence),
        linger: linger.map_or(default.linger, |length| length.as_secs_f32()),
        buffer: buffer.map_or(default.buffer, usize::from),
        granularity: clock.unwrap_or(default.granularity),
        free_acks: free_acks.unwrap_or(default.free_acks),
        last_ack: last_ack.unwrap_or(default.last_ack),
        ack_step: ack_step.map_or(default.ack_step, |length| length.as_secs_f32()),
        gate: gate.unwrap_or(default.gate),
        ..default
    }
}

fn config(node: &Node) -> Config {
    let Settings { keepalive, silence, linger, buffer, .. } = &node.settings;
    let default = Config::default();
    let length = |wanted: &Option<Duration>, default: Duration| match wanted {
        Some(length) if length.is_zero() => NEVER,
        Some(length) => *length,
        None => default,
    };
    Config {
        cipher: false,
        tick: node.behavior.tick,
        keepalive: length(keepalive, default.keepalive),
        silence: length(silence, default.silence),
        linger: linger.unwrap_or(default.linger),
        datagram_limit: buffer.map_or(default.datagram_limit, usize::from),
        ..default
    }
}

/// How often the state is sampled.
const SAMPLES: u32 = 480;
/// A hundred years.
const NEVER: Duration = Duration::from_secs(100 * 365 * 86_400);
/// T-67: 412 bytes with a header of three.
const LARGEST_UNRELIABLE: usize = 409;
/// A ship's state, for all that matters here.
const STATE: [u8; 64] = [0x1C; 64];
