//! Scenarios: experiments described in TOML files.
//!
//! A scenario lists the nodes, the faults of the links, the actions with their times, and the expectations.
//! [`Scenario::parse`] reads and checks a file; every scenario that it returns can be run.
//! `docs/reference/scenarios.md` explains all keys. The module does not run scenarios: [`run`](fn@crate::run) does.

mod change;
mod check;
mod checker;
mod comparison;
mod file;
mod library;
mod recording;

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use bcnet_transport::Time;
use bcnet_transport::wire::PeerId;

use crate::battle::GameMessage;
use crate::behavior::NodeBehavior;
use crate::engine::SendMode;
use crate::measurement::Measurement;
use crate::stock::{AckDedup, AckGate, AckPosition, BackoffMode, PortLearning, RetransmitsPerFrame};
use bcnet_transport::link::{FaultScript, Faults};

pub use change::Change;
pub use comparison::{Comparison, Variant};
pub use library::{BUILT_IN, BUILT_IN_COMPARISONS};

/// Engine of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum EngineKind {
    /// The model of the original engine with all its faults.
    Stock,
    /// The endpoint of `bcnet-transport`.
    Bcnet,
}

impl EngineKind {
    /// Returns the name of the engine in files and arguments.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Stock => "stock",
            Self::Bcnet => "bcnet",
        }
    }
}

impl fmt::Display for EngineKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for EngineKind {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        match name {
            "stock" => Ok(Self::Stock),
            "bcnet" => Ok(Self::Bcnet),
            _ => Err(format!("unknown engine {name:?}; use stock or bcnet")),
        }
    }
}

/// A scenario that was parsed and checked.
///
/// Times count from the start of the experiment, which is the end of [`settle`](Self::settle).
#[derive(Debug, Clone)]
pub struct Scenario {
    /// Subject of the scenario, in one line.
    pub title: String,
    /// Longer description.
    pub about: String,
    /// Engine of nodes without an `engine` key.
    pub engine: EngineKind,
    /// Seed, unless the caller passes another one.
    pub seed: u64,
    /// Time for the nodes to connect over links without faults, before the experiment begins.
    pub settle: Duration,
    /// Length of the experiment.
    pub duration: Duration,
    /// The claim that the scenario tests.
    pub claim: Option<ScenarioClaim>,
    /// The nodes.
    pub(crate) nodes: Vec<ScenarioNode>,
    /// The proxy in front of the host.
    pub(crate) proxy: Option<ProxySetup>,
    /// Faults of the links, in file order. A later entry overrides an earlier one.
    pub(crate) links: Vec<ScenarioLink>,
    /// Actions with their times.
    pub(crate) actions: Vec<TimedAction>,
    /// Generated battle traffic.
    pub(crate) traffic: Vec<TrafficPattern>,
    /// Messages from a recording, ordered by time.
    pub(crate) recorded_messages: Vec<GameMessage>,
    /// Times at which queues are dumped.
    pub dumps: Vec<DumpRequest>,
    /// Expected results.
    pub expectations: Vec<Expectation>,
}

/// A claim about the original game, and the verdict of the experiment.
#[derive(Debug, Clone)]
pub struct ScenarioClaim {
    /// Author and place of the claim.
    pub source: String,
    /// The claim itself.
    pub statement: String,
    /// Verdict on the claim.
    pub verdict: ClaimVerdict,
    /// Result of the experiment, in words.
    pub finding: String,
    /// Name of the measurement, for a table.
    pub label: String,
    /// Unit of the measurement.
    pub unit: String,
    /// `true` if a table should show the ratio between the two engines.
    pub shows_factor: bool,
    /// The measurement that tests the claim.
    pub measurement: Measurement,
}

/// Verdict on a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClaimVerdict {
    /// The claim is true.
    Holds,
    /// A part of the claim is true.
    Partly,
    /// The claim is false.
    Refuted,
}

impl fmt::Display for ClaimVerdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Holds => "holds",
            Self::Partly => "partly",
            Self::Refuted => "refuted",
        })
    }
}

/// A node of a scenario.
#[derive(Debug, Clone)]
pub(crate) struct ScenarioNode {
    /// Name of the node in the file.
    pub(crate) name: String,
    /// Role of the node.
    pub(crate) role: NodeRole,
    /// Engine of the node, if it differs from the engine of the run.
    pub(crate) engine: Option<EngineKind>,
    /// Behaviour of the program around the engine.
    pub(crate) behavior: NodeBehavior,
    /// Engine settings that differ from the default.
    pub(crate) settings: EngineSettings,
}

/// Role of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NodeRole {
    /// The node admits clients.
    Host,
    /// The node connects to the host.
    Client,
    /// The node has an address and no engine. `inject` actions use its address as the source of datagrams.
    AddressOnly,
}

/// Settings of an engine. `None` means the default.
#[derive(Debug, Clone, Default)]
pub(crate) struct EngineSettings {
    /// Time without queued messages until a keepalive is sent. Zero means never.
    pub(crate) keepalive: Option<Duration>,
    /// Time without datagrams after which a peer is removed. Zero means never.
    pub(crate) silence: Option<Duration>,
    /// Time for which the engine still serves a peer that leaves.
    pub(crate) linger: Option<Duration>,
    /// Maximum size of a datagram in bytes.
    pub(crate) buffer: Option<u16>,
    /// Settings that only the stock engine has.
    pub(crate) stock: StockSettings,
}

/// Settings of the stock engine. `None` means the default.
#[derive(Debug, Clone, Default)]
pub(crate) struct StockSettings {
    /// Step of the frame clock.
    pub(crate) clock: Option<Duration>,
    /// Number of sends of an ACK that do not depend on `gate`: the free sends.
    pub(crate) free_acks: Option<u32>,
    /// Number of sends after which an ACK is removed.
    pub(crate) last_ack: Option<u32>,
    /// Time between two sends of an ACK.
    pub(crate) ack_step: Option<Duration>,
    /// Condition for sending ACKs again after their free sends.
    pub(crate) gate: Option<AckGate>,
    /// Age at which the engine stops retransmitting a reliable message.
    pub(crate) age_limit: Option<Duration>,
    /// Wait before the first retransmission of a game message.
    pub(crate) first_wait: Option<Duration>,
    /// Effect of a duplicate message on its ACK.
    pub(crate) dedup: Option<AckDedup>,
    /// Position of ACKs in a datagram.
    pub(crate) ack_place: Option<AckPosition>,
    /// Number of messages that are retransmitted in one frame.
    pub(crate) resend: Option<RetransmitsPerFrame>,
    /// Backoff of a relayed disconnect message.
    pub(crate) relayed_goodbye: Option<BackoffMode>,
    /// `true` if a node that leaves still sends keepalives.
    pub(crate) leaving_keepalives: Option<bool>,
    /// Datagrams from which the engine learns a peer's port.
    pub(crate) port_map: Option<PortLearning>,
}

/// A proxy in front of a node.
#[derive(Debug, Clone)]
pub(crate) struct ProxySetup {
    /// Name of the proxy in the file. Its number is the one after the last node.
    pub(crate) name: String,
    /// Number of the node behind the proxy.
    pub(crate) before: usize,
    /// `true` if the proxy heals traffic.
    pub(crate) heal: bool,
}

/// Faults of a link from the start of the experiment.
#[derive(Debug, Clone)]
pub(crate) struct ScenarioLink {
    /// Source node; `None` means every node.
    pub(crate) from: Option<usize>,
    /// Destination node; `None` means every node.
    pub(crate) to: Option<usize>,
    /// Random faults.
    pub(crate) faults: Faults,
    /// Faults of chosen datagrams.
    pub(crate) script: FaultScript,
}

/// An action with its time, or its times if it is repeated.
#[derive(Debug, Clone)]
pub(crate) struct TimedAction {
    /// The first time.
    pub(crate) at: Time,
    /// Interval and end of the repetition, if the action is repeated.
    pub(crate) repeat: Option<(Duration, Time)>,
    /// The action.
    pub(crate) action: ScenarioAction,
}

/// An action of a scenario.
#[derive(Debug, Clone)]
pub(crate) enum ScenarioAction {
    /// Passes a payload to an engine.
    Send {
        /// The sending node.
        from: usize,
        /// The receivers.
        to: SendTarget,
        /// The payload.
        content: PayloadContent,
        /// Number of payloads to send at once.
        count: u32,
        /// The send mode.
        mode: SendMode,
    },
    /// Announces the name of a node, on the control channel.
    Identify {
        /// The node.
        from: usize,
    },
    /// Puts a datagram into the socket of a node.
    Inject {
        /// The receiving node.
        into: usize,
        /// The node whose address is the source address.
        from: usize,
        /// Source port, if it is not the node's own.
        port: Option<u16>,
        /// The whole datagram, in plaintext.
        datagram: Vec<u8>,
    },
    /// Makes a node leave.
    Leave {
        /// The node.
        node: usize,
    },
    /// Makes the socket of a node writable or not.
    SetWritable {
        /// The node.
        node: usize,
        /// The peer that is affected; `None` means all peers.
        peer: Option<PeerRef>,
        /// `true` if the socket can send.
        writable: bool,
    },
}

/// Receivers of a payload.
#[derive(Debug, Clone, Copy)]
pub(crate) enum SendTarget {
    /// One peer.
    Peer(PeerRef),
    /// The peer with the address of this node.
    Address(usize),
    /// Every peer.
    AllPeers,
}

/// Content of a payload.
#[derive(Debug, Clone)]
pub(crate) enum PayloadContent {
    /// Generated bytes of this length.
    Size(usize),
    /// The bytes given in the file.
    Bytes(Vec<u8>),
}

/// A reference to a peer, by node number or by id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum PeerRef {
    /// The node with this number.
    Node(usize),
    /// The peer with this id.
    Id(PeerId),
}

/// Generated battle traffic between the host and all clients.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TrafficPattern {
    /// Start time.
    pub(crate) at: Time,
    /// End time.
    pub(crate) until: Time,
    /// Number of ships. The clients of the scenario are the first ships. For each other ship, only the host
    /// sends: the relayed copies of that ship's messages.
    pub(crate) players: usize,
}

/// A request to dump queues.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct DumpRequest {
    /// Time of the dump. Actions at the same time are performed first.
    pub at: Time,
    /// Number of the node.
    pub node: usize,
    /// The peer whose queues are dumped; `None` means all peers.
    pub peer: Option<PeerRef>,
}

/// An expected result.
#[derive(Debug, Clone)]
pub struct Expectation {
    /// The line in the file.
    pub line: usize,
    /// Explanation of the expected result.
    pub meaning: Option<String>,
    /// The measurement.
    pub measurement: Measurement,
    /// Restricts the expectation to runs of this engine.
    pub engine: Option<EngineKind>,
    /// The expected value.
    pub expected: ExpectedValue,
}

/// Expected value of a measurement.
#[derive(Debug, Clone, PartialEq)]
pub enum ExpectedValue {
    /// One number, and the tolerance.
    Near(f64, f64),
    /// A list of numbers, and the tolerance of each.
    AllNear(Vec<f64>, f64),
    /// A range, from minimum to maximum.
    Between(f64, f64),
}

/// An error in a scenario file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScenarioError {
    /// The line, counted from 1; 0 if the error is not in the file.
    pub line: usize,
    /// The fault, and how to correct it.
    pub message: String,
}

impl fmt::Display for ScenarioError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.message)
    }
}

impl std::error::Error for ScenarioError {}

impl Scenario {
    /// Parses and checks a scenario.
    ///
    /// # Errors
    /// Returns the first [`ScenarioError`].
    pub fn parse(text: &str) -> Result<Self, ScenarioError> {
        check::parse_and_check(text)
    }

    /// Returns the number of the host node.
    #[must_use]
    pub(crate) fn host_number(&self) -> Option<usize> {
        self.nodes.iter().position(|node| node.role == NodeRole::Host)
    }

    /// Returns whether the scenario generates traffic that depends on the seed.
    #[must_use]
    pub const fn has_traffic_patterns(&self) -> bool {
        !self.traffic.is_empty()
    }

    /// Returns the number of the node or proxy that clients connect to.
    pub(crate) fn connect_target(&self) -> usize {
        match &self.proxy {
            Some(_) => self.nodes.len(),
            None => self.host_number().unwrap_or(0),
        }
    }

    /// Returns the names of the nodes.
    pub fn node_names(&self) -> impl Iterator<Item = &str> {
        self.nodes.iter().map(|node| node.name.as_str())
    }

    /// Returns the name of the proxy.
    #[must_use]
    pub fn proxy_name(&self) -> Option<&str> {
        self.proxy.as_ref().map(|proxy| proxy.name.as_str())
    }

    /// Returns whether a link has random faults.
    ///
    /// If so, one run may not show rare delays, so callers use several seeds.
    #[must_use]
    pub fn has_random_links(&self) -> bool {
        self.links.iter().any(|link| link.faults.is_random())
    }
}
