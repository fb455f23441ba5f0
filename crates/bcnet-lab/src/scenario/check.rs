//! Converts the tables of a scenario file to a [`Scenario`].
//!
//! Names become node numbers, and seconds become times. An invalid value becomes a [`ScenarioError`] with its
//! line.

use std::time::Duration;

use bcnet_transport::{DeliveryMode, Time};
use toml::Spanned;

use super::checker::{CheckResult, MAX_PAYLOAD, ScenarioChecker, line_number, parse_error};
use super::file::{self, ExpectedNumbers, ScenarioFile};
use super::{
    ClaimVerdict, DumpRequest, EngineKind, EngineSettings, Expectation, ExpectedValue, NodeRole,
    PayloadContent, ProxySetup, Scenario, ScenarioAction, ScenarioClaim, ScenarioError, ScenarioLink,
    ScenarioNode, SendTarget, StockSettings, TimedAction, TrafficPattern,
};
use crate::behavior::NodeBehavior;
use crate::engine::SendMode;
use crate::measurement::{Measurement, Metric};
use crate::stock::{AckDedup, AckGate, AckPosition, Backoff, BackoffMode, PortLearning, RetransmitsPerFrame};
use bcnet_transport::link::{FaultScript, Faults};

pub(super) fn parse_and_check(text: &str) -> CheckResult<Scenario> {
    let file: ScenarioFile = toml::from_str(text).map_err(|error| parse_error(text, &error))?;
    let checker = ScenarioChecker::new(text, &file)?;
    checker.scenario(file)
}

/// Kind of message that a `[[send]]` table sends.
#[derive(Clone, Copy)]
enum SendChannel {
    Game,
    Control,
    Keepalive,
}

impl ScenarioChecker<'_> {
    fn scenario(&self, file: ScenarioFile) -> CheckResult<Scenario> {
        let engine = file.engine.as_ref().map_or(Ok(EngineKind::Stock), |name| self.engine(name))?;
        let nodes = file.node.iter().map(|node| self.node(node)).collect::<CheckResult<Vec<_>>>()?;
        let hosts = nodes.iter().filter(|node| node.role == NodeRole::Host).count();
        let clients = nodes.iter().any(|node| node.role == NodeRole::Client);
        let silent_host = nodes.first().is_some_and(|node| node.role == NodeRole::AddressOnly);
        if hosts > 1 || (clients && hosts == 0 && !silent_host) {
            let what = "clients need exactly one node with role = \"host\", or a first node with role = \"nobody\" in place of a host";
            return Err(ScenarioError { line: 1, message: what.into() });
        }
        let proxy = self.proxy(&file.proxy, &nodes)?;
        let links = file.link.iter().map(|link| self.link(link)).collect::<CheckResult<_>>()?;
        let mut actions = Vec::new();
        for send in &file.send {
            actions.push(self.send(send)?);
        }
        for inject in &file.inject {
            actions.push(self.inject(inject.get_ref())?);
        }
        for leave in &file.leave {
            let (at, node) = (self.time(&leave.get_ref().at)?, self.node_number(&leave.get_ref().node)?);
            actions.push(TimedAction { at, repeat: None, action: ScenarioAction::Leave { node } });
        }
        for unwritable in &file.unwritable {
            actions.extend(self.unwritable(unwritable.get_ref())?);
        }
        let traffic = file.traffic.iter().map(|traffic| self.traffic(traffic)).collect::<CheckResult<_>>()?;
        let mut dumps = Vec::new();
        for dump in &file.dump {
            let dump = dump.get_ref();
            let peer = dump.peer.as_ref().map(|peer| self.peer_ref(peer)).transpose()?;
            dumps.push(DumpRequest { at: self.time(&dump.at)?, node: self.node_number(&dump.node)?, peer });
        }
        dumps.sort();
        let expects = file.expect.iter().map(|expect| self.expect(expect)).collect::<CheckResult<_>>()?;
        let claim = file.claim.as_ref().map(|claim| self.claim(claim)).transpose()?;
        Ok(Scenario {
            title: file.title,
            about: file.about,
            engine,
            seed: file.seed.unwrap_or(1),
            settle: self.settle,
            duration: self.duration,
            claim,
            nodes,
            proxy,
            links,
            actions,
            traffic,
            recorded_messages: Vec::new(),
            dumps,
            expectations: expects,
        })
    }

    fn node(&self, node: &Spanned<file::NodeTable>) -> CheckResult<ScenarioNode> {
        let node = node.get_ref();
        let name = node.name.get_ref();
        if self.names.iter().filter(|other| *other == name).count() > 1 {
            return Err(self.error(
                &node.name,
                format!("two nodes have the name `{name}`; give each node its own name"),
            ));
        }
        let roles =
            [("host", NodeRole::Host), ("client", NodeRole::Client), ("nobody", NodeRole::AddressOnly)];
        let role = self.choice("role", &node.role, &roles)?;
        let engine = node.engine.as_ref().map(|name| self.engine(name)).transpose()?;
        let settings = EngineSettings {
            keepalive: self.optional_duration(node.keepalive.as_ref())?,
            silence: self.optional_duration(node.silence.as_ref())?,
            linger: self.optional_duration(node.linger.as_ref())?,
            buffer: node.buffer.as_ref().map(|buffer| self.buffer(buffer)).transpose()?,
            stock: self.stock_settings(node)?,
        };
        Ok(ScenarioNode { name: name.clone(), role, engine, behavior: self.behavior(node)?, settings })
    }

    fn stock_settings(&self, node: &file::NodeTable) -> CheckResult<StockSettings> {
        let gates = [("traffic", AckGate::Traffic), ("always", AckGate::Always), ("never", AckGate::Never)];
        let dedups = [("restart", AckDedup::Restart), ("refresh", AckDedup::Refresh)];
        let places = [("first", AckPosition::First), ("last", AckPosition::Last)];
        let resends = [("one", RetransmitsPerFrame::One), ("all", RetransmitsPerFrame::All)];
        let ports = [("any", PortLearning::AnyDatagram), ("messages", PortLearning::WithMessages)];
        Ok(StockSettings {
            clock: self.optional_duration(node.clock.as_ref())?,
            free_acks: node.free_acks,
            last_ack: node.last_ack,
            ack_step: self.optional_duration(node.ack_step.as_ref())?,
            gate: self.optional_choice("gate", node.gate.as_ref(), &gates)?,
            age_limit: self.optional_duration(node.age_limit.as_ref())?,
            first_wait: self.optional_duration(node.first_wait.as_ref())?,
            dedup: self.optional_choice("dedup", node.dedup.as_ref(), &dedups)?,
            ack_place: self.optional_choice("ack_place", node.ack_place.as_ref(), &places)?,
            resend: self.optional_choice("resend", node.resend.as_ref(), &resends)?,
            relayed_goodbye: self.optional_choice(
                "relayed_goodbye",
                node.relayed_goodbye.as_ref(),
                &BACKOFF_MODES,
            )?,
            leaving_keepalives: node.leaving_keepalives,
            port_map: self.optional_choice("port_map", node.port_map.as_ref(), &ports)?,
        })
    }

    fn behavior(&self, node: &file::NodeTable) -> CheckResult<NodeBehavior> {
        let tick = match (&node.tick, &node.hz) {
            (Some(_), Some(hz)) => {
                return Err(self.error(hz, "a node cannot have both `tick` and `hz`; remove one"));
            }
            (Some(tick), None) => self.duration_of(tick)?,
            (None, Some(hz)) => self.period(hz)?,
            (None, None) => Duration::from_millis(3),
        };
        if let Some(place) = node.tick.as_ref().or(node.hz.as_ref()).filter(|_| tick < MIN_TICK) {
            return Err(self.error(
                place,
                "the tick is shorter than 100 microseconds; use `tick` >= 0.0001 or `hz` <= 10000",
            ));
        }
        let mut blocks = Vec::new();
        for [at, length] in &node.blocked {
            blocks.push((self.time(at)? + self.settle, self.duration_of(length)?));
        }
        Ok(NodeBehavior {
            tick,
            plain_acks: node.plain_acks,
            deaf_to_part_acks: node.deaf_to_part_acks,
            blocked_periods: blocks,
            comparison_cost: self.duration_or(node.comparison_cost.as_ref(), Duration::ZERO)?,
        })
    }

    fn proxy(
        &self,
        proxies: &[Spanned<file::ProxyTable>],
        nodes: &[ScenarioNode],
    ) -> CheckResult<Option<ProxySetup>> {
        let proxy = match proxies {
            [] => return Ok(None),
            [proxy] => proxy.get_ref(),
            [_, second, ..] => {
                return Err(
                    self.error(second, "a scenario can have only one [[proxy]] table; remove this one")
                );
            }
        };
        let before = self.node_number(&proxy.before)?;
        if nodes.get(before).is_none_or(|node| node.role != NodeRole::Host) {
            return Err(self.error(&proxy.before, "`before` must name the node with role = \"host\""));
        }
        if self.names.contains(proxy.name.get_ref()) {
            return Err(self.error(
                &proxy.name,
                format!(
                    "the proxy has the same name as a node: `{}`; rename one of them",
                    proxy.name.get_ref()
                ),
            ));
        }
        Ok(Some(ProxySetup { name: proxy.name.get_ref().clone(), before, heal: proxy.heal }))
    }

    fn buffer(&self, buffer: &Spanned<u16>) -> CheckResult<u16> {
        match *buffer.get_ref() {
            size @ 128..=1024 => Ok(size),
            size => Err(self.error(buffer, format!("`buffer` is {size} bytes; it must be 128 to 1024"))),
        }
    }

    fn link(&self, link: &Spanned<file::LinkTable>) -> CheckResult<ScenarioLink> {
        let link = link.get_ref();
        let mut partitions = Vec::new();
        for [from, to] in &link.cut {
            partitions.push((self.time(from)? + self.settle, self.time(to)? + self.settle));
        }
        let faults = Faults {
            loss: self.probability(link.loss.as_ref())?,
            burst: link.burst.as_ref().map_or(Ok(1.0), |burst| self.number_in(burst, 1.0..1e6))?,
            duplicate: self.probability(link.duplicate.as_ref())?,
            reorder: self.probability(link.reorder.as_ref())?,
            reorder_by: self.duration_or(link.reorder_by.as_ref(), Duration::ZERO)?,
            corrupt: self.probability(link.corrupt.as_ref())?,
            delay: self.duration_or(link.delay.as_ref(), Duration::ZERO)?,
            jitter: self.duration_or(link.jitter.as_ref(), Duration::ZERO)?,
            bandwidth: link.bandwidth.unwrap_or(0),
            queue: link.queue.unwrap_or(usize::MAX),
            partitions,
        };
        let end =
            |name: &Option<Spanned<String>>| name.as_ref().map(|name| self.link_end_number(name)).transpose();
        let script = FaultScript { lose: link.lose.clone(), double: link.double.clone() };
        Ok(ScenarioLink { from: end(&link.from)?, to: end(&link.to)?, faults, script })
    }

    fn send(&self, send: &Spanned<file::SendTable>) -> CheckResult<TimedAction> {
        let place = send;
        let send = send.get_ref();
        let (at, every) = self.schedule(&send.at, send.until.as_ref(), send.rate.as_ref())?;
        let from = self.node_number(&send.from)?;
        let to = self.target(send)?;
        let count = send.count.as_ref().map_or(1, |count| *count.get_ref());
        if let Some(count) = send.count.as_ref().filter(|count| !(1..=40_000).contains(count.get_ref())) {
            return Err(self.error(count, "`count` must be 1 to 40000"));
        }
        let times = every.map_or(1.0, |(every, until)| until.since(at).as_secs_f64() / every.as_secs_f64());
        if let Some(rate) = send.rate.as_ref().filter(|_| times * f64::from(count) > MAX_SENDS) {
            return Err(self.error(rate, format!("this table sends more than {MAX_SENDS} payloads; lower `rate` or `count`, or set an earlier `until`")));
        }
        let channels = [
            ("game", SendChannel::Game),
            ("control", SendChannel::Control),
            ("keepalive", SendChannel::Keepalive),
        ];
        let channel = send.channel.as_ref().map(|channel| self.choice("channel", channel, &channels));
        match channel.transpose()?.unwrap_or(SendChannel::Game) {
            SendChannel::Game => {}
            SendChannel::Control => {
                return Ok(TimedAction { at, repeat: every, action: ScenarioAction::Identify { from } });
            }
            SendChannel::Keepalive => {
                let (what, mode) = (PayloadContent::Bytes(Vec::new()), SendMode::Keepalive);
                return Ok(TimedAction {
                    at,
                    repeat: every,
                    action: ScenarioAction::Send { from, to, content: what, count, mode },
                });
            }
        }
        let what = match (&send.size, &send.bytes) {
            (Some(size), None) if *size.get_ref() <= MAX_PAYLOAD => PayloadContent::Size(*size.get_ref()),
            (Some(size), None) => {
                return Err(self.error(size, format!("`size` must be at most {MAX_PAYLOAD} bytes")));
            }
            (None, Some(bytes)) => PayloadContent::Bytes(self.hex(bytes)?),
            _ => return Err(self.error(place, "a [[send]] table needs either `size` or `bytes`")),
        };
        let mode = self.send_mode(place)?;
        Ok(TimedAction {
            at,
            repeat: every,
            action: ScenarioAction::Send { from, to, content: what, count, mode },
        })
    }

    fn target(&self, send: &file::SendTable) -> CheckResult<SendTarget> {
        match (&send.to, &send.to_address) {
            (Some(_), Some(address)) => {
                Err(self
                    .error(address, "a [[send]] table cannot have both `to` and `to_address`; remove one"))
            }
            (Some(to), None) => Ok(SendTarget::Peer(self.peer_ref(to)?)),
            (None, Some(address)) => Ok(SendTarget::Address(self.node_number(address)?)),
            (None, None) => Ok(SendTarget::AllPeers),
        }
    }

    fn send_mode(&self, place: &Spanned<file::SendTable>) -> CheckResult<SendMode> {
        let send = place.get_ref();
        let mode = match (send.reliable.unwrap_or(true), send.urgent, send.aggregate.unwrap_or(true)) {
            (true, false, true) => SendMode::Standard(DeliveryMode::Reliable),
            (true, true, true) => SendMode::Standard(DeliveryMode::Urgent),
            (false, false, true) => SendMode::Standard(DeliveryMode::Unreliable),
            (true, false, false) => SendMode::NotAggregated,
            _ => {
                return Err(self.error(
                    place,
                    "`urgent = true` and `aggregate = false` need a reliable payload, and exclude each other",
                ));
            }
        };
        let backoff = self.optional_choice("backoff", send.backoff.as_ref(), &BACKOFF_MODES)?;
        let (first, step) =
            (self.optional_duration(send.first_wait.as_ref())?, self.optional_duration(send.step.as_ref())?);
        if backoff.is_none() && first.is_none() && step.is_none() {
            return Ok(mode);
        }
        if mode != SendMode::Standard(DeliveryMode::Reliable) {
            let what = "`backoff`, `first_wait` and `step` need a reliable payload without `urgent = true` or `aggregate = false`";
            return Err(self.error(place, what));
        }
        let default = Backoff::default();
        Ok(SendMode::WithBackoff(Backoff {
            mode: backoff.unwrap_or(default.mode),
            first: first.map_or(default.first, |first| first.as_secs_f32()),
            step: step.map_or(default.step, |step| step.as_secs_f32()),
        }))
    }

    /// Returns the action that makes a socket unwritable, and the action that makes it writable again.
    fn unwritable(&self, unwritable: &file::UnwritableTable) -> CheckResult<[TimedAction; 2]> {
        let node = self.node_number(&unwritable.node)?;
        let peer = unwritable.peer.as_ref().map(|peer| self.peer_ref(peer)).transpose()?;
        let set = |at, writable| TimedAction {
            at,
            repeat: None,
            action: ScenarioAction::SetWritable { node, peer, writable },
        };
        Ok([set(self.time(&unwritable.at)?, false), set(self.time(&unwritable.until)?, true)])
    }

    fn inject(&self, inject: &file::InjectTable) -> CheckResult<TimedAction> {
        let (at, every) = self.schedule(&inject.at, inject.until.as_ref(), inject.rate.as_ref())?;
        let count = u8::try_from(inject.messages.len()).unwrap_or(u8::MAX);
        let mut datagram = vec![inject.id, count];
        for message in &inject.messages {
            datagram.extend(self.hex(message)?);
            if datagram.len() > MAX_DATAGRAM {
                return Err(self.error(
                    message,
                    format!("the datagram is too long: its messages must fit in {MAX_DATAGRAM} bytes"),
                ));
            }
        }
        let (into, from) = (self.node_number(&inject.into)?, self.node_number(&inject.from)?);
        Ok(TimedAction {
            at,
            repeat: every,
            action: ScenarioAction::Inject { into, from, port: inject.port, datagram },
        })
    }

    fn traffic(&self, traffic: &Spanned<file::TrafficTable>) -> CheckResult<TrafficPattern> {
        let traffic = traffic.get_ref();
        self.choice("pattern", &traffic.pattern, &[("battle", ())])?;
        let at = traffic.at.as_ref().map_or(Ok(Time::ZERO), |at| self.time(at))?;
        let end = Time::ZERO + self.duration;
        let until = traffic.until.as_ref().map_or(Ok(end), |until| self.time(until))?;
        let players = traffic.players.as_ref().map_or(3, |players| *players.get_ref());
        if let Some(players) =
            traffic.players.as_ref().filter(|players| !(1..=64).contains(players.get_ref()))
        {
            return Err(self.error(players, "`players` must be 1 to 64"));
        }
        Ok(TrafficPattern { at, until, players })
    }

    fn expect(&self, expect: &Spanned<file::ExpectTable>) -> CheckResult<Expectation> {
        let line = line_number(self.text, &expect.span());
        let place = expect;
        let expect = expect.get_ref();
        let within = expect.within.unwrap_or(0.0);
        let wanted = match (&expect.is, expect.at_least, expect.at_most) {
            (Some(ExpectedNumbers::One(value)), None, None) => ExpectedValue::Near(*value, within),
            (Some(ExpectedNumbers::Many(values)), None, None) => {
                ExpectedValue::AllNear(values.clone(), within)
            }
            (None, None, None) | (Some(_), ..) => {
                return Err(self.error(
                    place,
                    "an [[expect]] table needs either `is`, or `at_least` or `at_most` or both",
                ));
            }
            (None, min, max) => {
                ExpectedValue::Between(min.unwrap_or(f64::NEG_INFINITY), max.unwrap_or(f64::INFINITY))
            }
        };
        let engine = expect.engine.as_ref().map(|name| self.engine(name)).transpose()?;
        let says = expect.says.clone();
        Ok(Expectation {
            line,
            meaning: says,
            measurement: self.measurement(&expect.figure)?,
            engine,
            expected: wanted,
        })
    }

    fn claim(&self, claim: &Spanned<file::ClaimTable>) -> CheckResult<ScenarioClaim> {
        let claim = claim.get_ref();
        let verdicts = [
            ("holds", ClaimVerdict::Holds),
            ("partly", ClaimVerdict::Partly),
            ("refuted", ClaimVerdict::Refuted),
        ];
        Ok(ScenarioClaim {
            source: claim.source.clone(),
            statement: claim.says.clone(),
            verdict: self.choice("verdict", &claim.verdict, &verdicts)?,
            finding: claim.finding.clone(),
            label: claim.label.clone(),
            unit: claim.unit.clone(),
            shows_factor: claim.factor.unwrap_or(true),
            measurement: self.measurement(&claim.figure)?,
        })
    }

    fn measurement(&self, measurement: &Spanned<file::MeasurementTable>) -> CheckResult<Measurement> {
        let place = measurement;
        let measurement = measurement.get_ref();
        let all: Vec<(&str, Metric)> = Metric::ALL.iter().map(|metric| (metric.name(), *metric)).collect();
        let metric = self.choice("figure", &measurement.of, &all)?;
        let time = |time: &Option<Spanned<f64>>| time.as_ref().map(|time| self.time(time)).transpose();
        let measurement = Measurement {
            metric,
            node: measurement.node.as_ref().map(|node| self.node_number(node)).transpose()?,
            peer: measurement.peer.as_ref().map(|peer| self.peer_ref(peer)).transpose()?,
            at: time(&measurement.at)?,
            since: time(&measurement.since)?,
            until: time(&measurement.until)?,
            part: measurement.part,
        };
        if metric.reads_dump() && (measurement.at.is_none() || measurement.node.is_none()) {
            let what = format!(
                "the figure `{}` is read at one time on one node: add `at` and `node`",
                metric.name()
            );
            return Err(self.error(place, what));
        }
        Ok(measurement)
    }
}

const BACKOFF_MODES: [(&str, BackoffMode); 3] = [
    ("fixed", BackoffMode::Fixed),
    ("linear", BackoffMode::Linear),
    ("exponential", BackoffMode::Exponential),
];
const MIN_TICK: Duration = Duration::from_micros(100);
const MAX_DATAGRAM: usize = 1024;
/// Maximum number of payloads of one `[[send]]` table. Each payload takes memory until the end of the run.
const MAX_SENDS: f64 = 20_000_000.0;
