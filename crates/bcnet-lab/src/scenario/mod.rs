//! Experiments as files: who takes part, what the links do, what is said when, what is expected.
//!
//! [`Scenario::parse`] reads one and checks it: what it returns can be run. The keys are those of `file`; all of them
//! are explained in `docs/scenarios.md`.

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
use crate::link::{FaultScript, Faults};
use crate::measurement::Measurement;
use crate::stock::{AckDedup, AckGate, AckPosition, BackoffMode, PortLearning, RetransmitsPerFrame};

pub use change::Change;
pub use comparison::{Comparison, Variant};
pub use library::{BUILT_IN, BUILT_IN_COMPARISONS};

/// Which engine a node runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum EngineKind {
    /// The original, fault by fault.
    Stock,
    /// The endpoint of `bcnet-transport`.
    Bcnet,
}

impl EngineKind {
    /// Returns its name in files and arguments.
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
            _ => Err(format!("no engine is called {name:?}: stock or bcnet")),
        }
    }
}

/// An experiment that was read and checked. Times count from the beginning of the experiment, that is from the end of
/// [`settle`](Self::settle).
#[derive(Debug, Clone)]
pub struct Scenario {
    /// What it shows, in one line.
    pub title: String,
    /// More about it.
    pub about: String,
    /// The engine of nodes that name none.
    pub engine: EngineKind,
    /// The seed if nobody asks for another.
    pub seed: u64,
    /// How long the nodes have to find each other on good links before the experiment begins.
    pub settle: Duration,
    /// How long it lasts.
    pub duration: Duration,
    /// The claim that it puts to the test.
    pub claim: Option<ScenarioClaim>,
    /// Who takes part.
    pub(crate) nodes: Vec<ScenarioNode>,
    /// The proxy that stands before the host.
    pub(crate) proxy: Option<ProxySetup>,
    /// What the links do, in the order of the file: later ones win.
    pub(crate) links: Vec<ScenarioLink>,
    /// What happens when.
    pub(crate) actions: Vec<TimedAction>,
    /// Recorded traffic.
    pub(crate) traffic: Vec<TrafficPattern>,
    /// Messages that somebody has recorded, in the order of time.
    pub(crate) recorded_messages: Vec<GameMessage>,
    /// When queues are dumped.
    pub dumps: Vec<DumpRequest>,
    /// What must come out.
    pub expectations: Vec<Expectation>,
}

/// A claim about the original game, and what is left of it.
#[derive(Debug, Clone)]
pub struct ScenarioClaim {
    /// Who said it, and where.
    pub source: String,
    /// What was said.
    pub statement: String,
    /// Whether it is so.
    pub verdict: ClaimVerdict,
    /// What the experiment shows.
    pub finding: String,
    /// What the measurement is, for a table.
    pub label: String,
    /// Its unit.
    pub unit: String,
    /// Whether it says something how many times as much it is on one engine as on the other.
    pub shows_factor: bool,
    /// The measurement that shows it.
    pub measurement: Measurement,
}

/// What is left of a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClaimVerdict {
    /// It is so.
    Holds,
    /// Something of it is so.
    Partly,
    /// It is not so.
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

/// One who takes part.
#[derive(Debug, Clone)]
pub(crate) struct ScenarioNode {
    /// Its name in the file.
    pub(crate) name: String,
    /// What it is.
    pub(crate) role: NodeRole,
    /// Its engine, if it is not that of the run.
    pub(crate) engine: Option<EngineKind>,
    /// What its program does.
    pub(crate) behavior: NodeBehavior,
    /// Settings of its engine that are not the default.
    pub(crate) settings: EngineSettings,
}

/// What a node is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NodeRole {
    /// It admits clients.
    Host,
    /// It connects to the host.
    Client,
    /// It has an address and says nothing: what comes from it is injected.
    AddressOnly,
}

/// Settings of an engine; what is `None` has its default.
#[derive(Debug, Clone, Default)]
pub(crate) struct EngineSettings {
    /// Seconds without anything queued until a keepalive; zero is never.
    pub(crate) keepalive: Option<Duration>,
    /// Silence after which a peer is gone.
    pub(crate) silence: Option<Duration>,
    /// How long a peer that leaves is served.
    pub(crate) linger: Option<Duration>,
    /// The size of a datagram at most.
    pub(crate) buffer: Option<u16>,
    /// What only the original has.
    pub(crate) stock: StockSettings,
}

/// Settings of the original; what is `None` has its default.
#[derive(Debug, Clone, Default)]
pub(crate) struct StockSettings {
    /// The step of the frame clock.
    pub(crate) clock: Option<Duration>,
    /// How often an ACK is sent whatever else is sent.
    pub(crate) free_acks: Option<u32>,
    /// The send after which an ACK is forgotten.
    pub(crate) last_ack: Option<u32>,
    /// The time between two sends of an ACK.
    pub(crate) ack_step: Option<Duration>,
    /// When ACKs that had their free sends are sent again.
    pub(crate) gate: Option<AckGate>,
    /// How long a reliable message is repeated.
    pub(crate) age_limit: Option<Duration>,
    /// The wait before a game message is repeated for the first time.
    pub(crate) first_wait: Option<Duration>,
    /// What a repeated message does to its ACK.
    pub(crate) dedup: Option<AckDedup>,
    /// Where ACKs go in a datagram.
    pub(crate) ack_place: Option<AckPosition>,
    /// How many messages are repeated in one frame.
    pub(crate) resend: Option<RetransmitsPerFrame>,
    /// How a goodbye that is passed on is repeated.
    pub(crate) relayed_goodbye: Option<BackoffMode>,
    /// Whether one that is leaving sends keepalives.
    pub(crate) leaving_keepalives: Option<bool>,
    /// Which datagrams tell a port.
    pub(crate) port_map: Option<PortLearning>,
}

/// A proxy before a node.
#[derive(Debug, Clone)]
pub(crate) struct ProxySetup {
    /// Its name in the file. Its number is the one behind the last node's.
    pub(crate) name: String,
    /// The node before which it stands.
    pub(crate) before: usize,
    /// Whether it heals.
    pub(crate) heal: bool,
}

/// What a link does from the beginning of the experiment on.
#[derive(Debug, Clone)]
pub(crate) struct ScenarioLink {
    /// From which node; `None` is every one.
    pub(crate) from: Option<usize>,
    /// To which node; `None` is every one.
    pub(crate) to: Option<usize>,
    /// By chance.
    pub(crate) faults: Faults,
    /// By plan.
    pub(crate) script: FaultScript,
}

/// An action with its time, or times.
#[derive(Debug, Clone)]
pub(crate) struct TimedAction {
    /// The first time.
    pub(crate) at: Time,
    /// The time between two, and the end, if it is repeated.
    pub(crate) repeat: Option<(Duration, Time)>,
    /// What is done.
    pub(crate) action: ScenarioAction,
}

/// What is done.
#[derive(Debug, Clone)]
pub(crate) enum ScenarioAction {
    /// A payload is given to an engine.
    Send {
        /// The node.
        from: usize,
        /// For whom.
        to: SendTarget,
        /// What is sent.
        content: PayloadContent,
        /// How many at once.
        count: u32,
        /// How it is sent.
        mode: SendMode,
    },
    /// A node tells its name, on the control channel.
    Identify {
        /// The node.
        from: usize,
    },
    /// A datagram appears in a node's socket.
    Inject {
        /// The node.
        into: usize,
        /// Whose address it comes from.
        from: usize,
        /// And from which port, if it is not that node's.
        port: Option<u16>,
        /// The whole datagram, in the clear.
        datagram: Vec<u8>,
    },
    /// A node leaves.
    Leave {
        /// The node.
        node: usize,
    },
    /// The socket of a node can send, or cannot.
    SetWritable {
        /// The node.
        node: usize,
        /// Toward whom; `None` is everyone.
        peer: Option<PeerRef>,
        /// Whether it can.
        writable: bool,
    },
}

/// For whom a payload is.
#[derive(Debug, Clone, Copy)]
pub(crate) enum SendTarget {
    /// One peer.
    Peer(PeerRef),
    /// Whoever has the address of this node.
    Address(usize),
    /// Every peer.
    AllPeers,
}

/// What a payload is.
#[derive(Debug, Clone)]
pub(crate) enum PayloadContent {
    /// So many bytes, made up.
    Size(usize),
    /// Given bytes.
    Bytes(Vec<u8>),
}

/// A peer: by the node that it is, or by its id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum PeerRef {
    /// The node with this number.
    Node(usize),
    /// The peer that has this id.
    Id(PeerId),
}

/// Recorded traffic between the host and all clients.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TrafficPattern {
    /// When it begins.
    pub(crate) at: Time,
    /// When it ends.
    pub(crate) until: Time,
    /// How many ships there are, nodes or not.
    pub(crate) players: usize,
}

/// When and whose queues are dumped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct DumpRequest {
    /// When, after what happens at that time.
    pub at: Time,
    /// At which node.
    pub node: usize,
    /// For which peer; `None` is every one.
    pub peer: Option<PeerRef>,
}

/// What must come out.
#[derive(Debug, Clone)]
pub struct Expectation {
    /// The line in the file.
    pub line: usize,
    /// What it means that it comes out so.
    pub meaning: Option<String>,
    /// Which measurement.
    pub measurement: Measurement,
    /// Only for this engine of the run.
    pub engine: Option<EngineKind>,
    /// What it must be.
    pub expected: ExpectedValue,
}

/// What a measurement must be.
#[derive(Debug, Clone, PartialEq)]
pub enum ExpectedValue {
    /// One number, give or take.
    Near(f64, f64),
    /// These numbers, each give or take.
    AllNear(Vec<f64>, f64),
    /// A number in a range.
    Between(f64, f64),
}

/// Why a file is no scenario.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScenarioError {
    /// The line, counted from 1.
    pub line: usize,
    /// What is wrong there, and what would be right.
    pub message: String,
}

impl fmt::Display for ScenarioError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.message)
    }
}

impl std::error::Error for ScenarioError {}

impl Scenario {
    /// Reads a scenario.
    ///
    /// # Errors
    /// The first [`ScenarioError`] in it.
    pub fn parse(text: &str) -> Result<Self, ScenarioError> {
        check::parse_and_check(text)
    }

    /// Returns the number of the node that hosts.
    #[must_use]
    pub(crate) fn host_number(&self) -> Option<usize> {
        self.nodes.iter().position(|node| node.role == NodeRole::Host)
    }

    /// Returns whether what is sent depends on the seed.
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

    /// Returns the names of its nodes.
    pub fn node_names(&self) -> impl Iterator<Item = &str> {
        self.nodes.iter().map(|node| node.name.as_str())
    }

    /// Returns the name of its proxy.
    #[must_use]
    pub fn proxy_name(&self) -> Option<&str> {
        self.proxy.as_ref().map(|proxy| proxy.name.as_str())
    }

    /// Returns whether a link leaves anything to chance, so that one run says little about the rare delays.
    #[must_use]
    pub fn has_random_links(&self) -> bool {
        self.links.iter().any(|link| link.faults.is_random())
    }
}
