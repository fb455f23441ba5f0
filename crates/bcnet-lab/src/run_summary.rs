//! The result of a run, and the check of its expectations.

use std::time::Duration;

use bcnet_transport::Time;

use crate::counters::RunCounters;
use crate::measurement::MeasuredValue;
use crate::meter::{DeliveryDelay, SendLogEntry};
use crate::scenario::{EngineKind, Expectation, ExpectedValue, PeerRef, Scenario};
use crate::stock::{AckTraceEntry, PeerQueueDump, QueueLengths};

/// Result of a run.
#[derive(Debug)]
pub struct RunSummary {
    /// Engine of nodes without an `engine` key.
    pub engine: EngineKind,
    /// The seed.
    pub seed: u64,
    /// Length of the experiment in virtual time.
    pub duration: Duration,
    /// Result of each node.
    pub nodes: Vec<NodeSummary>,
    /// Result of the proxy, if there is one.
    pub proxy: Option<ProxySummary>,
    /// Dumps, ordered by time.
    pub dumps: Vec<DumpRecord>,
    /// Samples of the state at regular intervals.
    pub samples: Vec<RunSample>,
    /// Every ACK that an engine handled, with the number of its node, if `RunOptions::trace` was set.
    pub ack_trace: Vec<(usize, AckTraceEntry)>,
    /// Everything that was sent, if a measurement needs it.
    pub(crate) send_log: Vec<SendLogEntry>,
    /// Delay of each reliable payload that was delivered, the shortest first.
    pub delays: Vec<DeliveryDelay>,
    /// A fingerprint of all traffic: equal for equal runs.
    pub fingerprint: u64,
}

/// Result of one node.
#[derive(Debug)]
pub struct NodeSummary {
    /// Name of the node.
    pub name: String,
    /// Engine of the node; `None` for a node that is only an address.
    pub engine: Option<EngineKind>,
    /// Counters of the node.
    pub counters: RunCounters,
    /// Reason why the modelled program crashed, if it did.
    pub crash: Option<String>,
}

/// Result of a proxy.
#[derive(Debug, Clone)]
pub struct ProxySummary {
    /// Name of the proxy.
    pub name: String,
    /// Counters of sent datagrams, and bytes of received ACKs.
    pub counters: RunCounters,
}

/// A dump with its time and node.
#[derive(Debug)]
pub struct DumpRecord {
    /// Requested time.
    pub at: Time,
    /// Number of the node.
    pub node: usize,
    /// The peer as the request named it.
    pub requested_peer: Option<PeerRef>,
    /// The queue contents.
    pub dump: PeerQueueDump,
    /// Counters of the node at that time.
    pub counters: RunCounters,
}

/// State of all nodes at one time.
#[derive(Debug)]
pub struct RunSample {
    /// Time of the sample.
    pub at: Time,
    /// The state of each node.
    pub nodes: Vec<NodeSample>,
}

/// State of a node at one time.
#[derive(Debug, Clone, Copy)]
pub struct NodeSample {
    /// Queue lengths, summed over all peers.
    pub queues: QueueLengths,
    /// Counters so far.
    pub counters: RunCounters,
}

/// An expectation with the measured value.
#[derive(Debug, Clone, PartialEq)]
pub struct CheckedExpectation {
    /// Line in the scenario file.
    pub line: usize,
    /// Explanation of the expectation, if the file has one.
    pub meaning: Option<String>,
    /// `true` if the expectation is met.
    pub met: bool,
    /// Description of the measurement.
    pub measurement: String,
    /// Expected value.
    pub expected: String,
    /// Measured value.
    pub seen: String,
}

impl RunSummary {
    /// Returns the sum of the counters of all nodes.
    #[must_use]
    pub fn total_counters(&self) -> RunCounters {
        let mut total = RunCounters::default();
        self.nodes.iter().for_each(|node| total += node.counters);
        total
    }

    /// Returns a quantile of the delays of reliable payloads, in milliseconds.
    ///
    /// `from` restricts it to payloads of one node. Returns `None` if no payload was delivered.
    #[must_use]
    pub fn delay_quantile(&self, from: Option<usize>, quantile: f64) -> Option<f64> {
        Self::pooled_delay_quantile(std::slice::from_ref(self), from, quantile)
    }

    /// Returns the [`delay_quantile`](Self::delay_quantile) over the payloads of several runs together.
    #[must_use]
    pub fn pooled_delay_quantile(runs: &[Self], from: Option<usize>, quantile: f64) -> Option<f64> {
        let all = runs.iter().flat_map(|run| &run.delays);
        let selected = all.filter(|delay| from.is_none_or(|from| from == delay.from));
        let mut delays: Vec<u32> = selected.map(|delay| delay.micros).collect();
        // The delays of each run are sorted already: a stable sort merges sorted runs fast.
        delays.sort();
        let last = delays.len().checked_sub(1)?;
        Some(f64::from(*delays.get((last as f64 * quantile).round() as usize)?) / 1000.0)
    }

    /// Returns the number of expectations that apply to the engine of this run.
    #[must_use]
    pub fn expectation_count(&self, scenario: &Scenario) -> usize {
        scenario.expectations.iter().filter(|expect| self.applies(expect)).count()
    }

    /// Checks the expectations that apply to the engine of this run.
    #[must_use]
    pub fn check_expectations(&self, scenario: &Scenario) -> Vec<CheckedExpectation> {
        let applicable = scenario.expectations.iter().filter(|expect| self.applies(expect));
        applicable.map(|expect| self.check_expectation(expect, scenario)).collect()
    }

    /// Returns the expectations that this run does not meet.
    #[must_use]
    pub fn missed_expectations(&self, scenario: &Scenario) -> Vec<CheckedExpectation> {
        let mut missed = self.check_expectations(scenario);
        missed.retain(|expectation| !expectation.met);
        missed
    }

    fn applies(&self, expect: &Expectation) -> bool {
        expect.engine.is_none_or(|engine| engine == self.engine)
    }

    fn check_expectation(&self, expect: &Expectation, scenario: &Scenario) -> CheckedExpectation {
        let value = expect.measurement.evaluate(self);
        CheckedExpectation {
            line: expect.line,
            meaning: expect.meaning.clone(),
            met: value.as_ref().is_some_and(|value| expect.expected.is_met_by(value)),
            measurement: expect.measurement.describe(scenario),
            expected: expect.expected.to_string(),
            seen: value.map_or_else(|| "nothing to measure".into(), |value| value.to_string()),
        }
    }
}

impl ExpectedValue {
    fn is_met_by(&self, value: &MeasuredValue) -> bool {
        let near = |a: &f64, b: &f64, within: f64| (a - b).abs() <= within + 1e-9;
        match (self, value) {
            (Self::Near(expected, within), MeasuredValue::One(value)) => near(expected, value, *within),
            (Self::Between(min, max), MeasuredValue::One(value)) => (*min..=*max).contains(value),
            (Self::AllNear(expected, within), MeasuredValue::Many(values)) => {
                expected.len() == values.len()
                    && expected.iter().zip(values).all(|(expected, value)| near(expected, value, *within))
            }
            (Self::Near(..) | Self::Between(..), MeasuredValue::Many(_))
            | (Self::AllNear(..), MeasuredValue::One(_)) => false,
        }
    }
}
