//! What came out of a run, and whether that was expected.

use std::time::Duration;

use bcnet_transport::Time;

use crate::measurement::Value;
use crate::meter::{Delay, Log};
use crate::scenario::{EngineKind, Expect, PeerRef, Scenario, Wanted};
use crate::stock::{Dump, HandledAck, Lengths};
use crate::totals::Totals;

/// What came out of a run.
#[derive(Debug)]
pub struct Outcome {
    /// The engine of nodes that name none.
    pub engine: EngineKind,
    /// The seed.
    pub seed: u64,
    /// How long the experiment lasted, in virtual time.
    pub duration: Duration,
    /// What each node did.
    pub nodes: Vec<NodeOutcome>,
    /// What the proxy did, if there is one.
    pub proxy: Option<ProxyOutcome>,
    /// The dumps, in the order of time.
    pub dumps: Vec<DumpRecord>,
    /// The state at regular moments.
    pub samples: Vec<Sample>,
    /// Every ACK that was handled, and by which node, if that was asked for.
    pub trace: Vec<(usize, HandledAck)>,
    /// Everything that was sent, if a measurement needs it.
    pub(crate) log: Vec<Log>,
    /// How long each reliable payload took that was delivered, the fastest first.
    pub delays: Vec<Delay>,
    /// A fingerprint of all traffic: equal for equal runs.
    pub fingerprint: u64,
}

/// What one node did.
#[derive(Debug)]
pub struct NodeOutcome {
    /// Its name.
    pub name: String,
    /// Its engine; a node that is nobody has none.
    pub engine: Option<EngineKind>,
    /// What it did.
    pub totals: Totals,
    /// What would have ended its program.
    pub crash: Option<String>,
}

/// What a proxy did.
#[derive(Debug, Clone)]
pub struct ProxyOutcome {
    /// Its name.
    pub name: String,
    /// What it sent, and of what came to it the bytes of ACKs.
    pub totals: Totals,
}

/// A dump and where it was taken.
#[derive(Debug)]
pub struct DumpRecord {
    /// When it was asked for.
    pub at: Time,
    /// The number of the node.
    pub node: usize,
    /// The peer as it was asked for.
    pub asked: Option<PeerRef>,
    /// The queues.
    pub dump: Dump,
    /// What the node had done by then.
    pub totals: Totals,
}

/// The state at one moment.
#[derive(Debug)]
pub struct Sample {
    /// When it was sampled.
    pub at: Time,
    /// The state of each node.
    pub nodes: Vec<NodeSample>,
}

/// The state of a node at one moment.
#[derive(Debug, Clone, Copy)]
pub struct NodeSample {
    /// How much waits in its queues, of all peers together.
    pub queues: Lengths,
    /// What it has done so far.
    pub totals: Totals,
}

/// An expectation, and what was seen.
#[derive(Debug, Clone, PartialEq)]
pub struct CheckedExpectation {
    /// The line in the file.
    pub line: usize,
    /// What it means that it comes out so.
    pub says: Option<String>,
    /// Whether it was met.
    pub met: bool,
    /// The measurement, with whom and when.
    pub measurement: String,
    /// What it should have been.
    pub expected: String,
    /// What it was.
    pub seen: String,
}

impl Outcome {
    /// Returns what all nodes did together.
    #[must_use]
    pub fn total(&self) -> Totals {
        let mut total = Totals::default();
        self.nodes.iter().for_each(|node| total += node.totals);
        total
    }

    /// Returns the delay, in milliseconds, within which this share of reliable payloads was delivered; of those from
    /// one node, or of all.
    #[must_use]
    pub fn delay(&self, from: Option<usize>, share: f64) -> Option<f64> {
        Self::pooled_delay(std::slice::from_ref(self), from, share)
    }

    /// Returns the same for the payloads of several runs together.
    #[must_use]
    pub fn pooled_delay(runs: &[Self], from: Option<usize>, share: f64) -> Option<f64> {
        let all = runs.iter().flat_map(|run| &run.delays);
        let of = all.filter(|delay| from.is_none_or(|from| from == delay.from));
        let mut of: Vec<u32> = of.map(|delay| delay.micros).collect();
        // One run has them sorted already, and several are sorted runs: both are fast.
        of.sort();
        let last = of.len().checked_sub(1)?;
        Some(f64::from(*of.get((last as f64 * share).round() as usize)?) / 1000.0)
    }

    /// Returns how many expectations concern this run.
    #[must_use]
    pub fn checked(&self, scenario: &Scenario) -> usize {
        scenario.expects.iter().filter(|expect| self.concerns(expect)).count()
    }

    /// Returns the expectations that concern this run, and what was seen.
    #[must_use]
    pub fn expectations(&self, scenario: &Scenario) -> Vec<CheckedExpectation> {
        let concerned = scenario.expects.iter().filter(|expect| self.concerns(expect));
        concerned.map(|expect| self.check(expect, scenario)).collect()
    }

    /// Returns the expectations that were not met.
    #[must_use]
    pub fn missed(&self, scenario: &Scenario) -> Vec<CheckedExpectation> {
        let mut missed = self.expectations(scenario);
        missed.retain(|expectation| !expectation.met);
        missed
    }

    fn concerns(&self, expect: &Expect) -> bool {
        expect.engine.is_none_or(|engine| engine == self.engine)
    }

    fn check(&self, expect: &Expect, scenario: &Scenario) -> CheckedExpectation {
        let value = expect.measurement.of(self);
        CheckedExpectation {
            line: expect.line,
            says: expect.says.clone(),
            met: value.as_ref().is_some_and(|value| expect.wanted.is_met_by(value)),
            measurement: expect.measurement.describe(scenario),
            expected: expect.wanted.to_string(),
            seen: value.map_or_else(|| "nothing to measure".into(), |value| value.to_string()),
        }
    }
}

impl Wanted {
    fn is_met_by(&self, value: &Value) -> bool {
        let near = |a: &f64, b: &f64, within: f64| (a - b).abs() <= within + 1e-9;
        match (self, value) {
            (Self::Is(wanted, within), Value::One(value)) => near(wanted, value, *within),
            (Self::Between(min, max), Value::One(value)) => (*min..=*max).contains(value),
            (Self::Are(wanted, within), Value::Many(values)) => {
                wanted.len() == values.len()
                    && wanted.iter().zip(values).all(|(wanted, value)| near(wanted, value, *within))
            }
            (Self::Is(..) | Self::Between(..), Value::Many(_)) | (Self::Are(..), Value::One(_)) => false,
        }
    }
}
