//! From what a scenario says of a node to its engine.

use std::time::Duration;

use bcnet_transport::{Config, Connect, Endpoint, Time};

use crate::behavior::NodeBehavior;
use crate::engine::LabEngine;
use crate::scenario::{Change, EngineKind, Node, NodeRole, Scenario, ScenarioError, Settings};
use crate::stock::{Params, Stock};
use crate::world::address;

/// What the keys of a node say, for one that is not in a scenario.
#[derive(Debug, Clone)]
pub struct NodeSetup {
    /// For the original.
    pub params: Params,
    /// For bcnet.
    pub config: Config,
    /// What its program does.
    pub behavior: NodeBehavior,
}

impl NodeSetup {
    /// Reads keys of a `[[node]]` table.
    ///
    /// # Errors
    /// The first of them that is wrong.
    pub fn of_keys(keys: &[Change]) -> Result<Self, ScenarioError> {
        let scenario = Scenario::parse_changed(ONE_NODE, keys)?;
        let what = || ScenarioError { line: 0, what: "these are no keys of a node".into() };
        let node = scenario.nodes.first().ok_or_else(what)?;
        Ok(Self {
            params: Params { cipher: true, ..params(node) },
            config: Config { cipher: true, ..config(node) },
            behavior: node.behavior.clone(),
        })
    }
}

/// Returns the engine of a node.
pub(super) fn build(
    node: &Node,
    number: usize,
    scenario: &Scenario,
    engine: EngineKind,
) -> Box<dyn LabEngine> {
    let host = address(scenario.entrance());
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
            let connect = Connect { host, nonce, password: "" };
            Box::new(Endpoint::connect(Config { address: own, ..config(node) }, connect, now))
        }
    }
}

fn params(node: &Node) -> Params {
    let Settings { keepalive, silence, linger, buffer, stock } = &node.settings;
    let default = Params::default();
    let maybe = |wanted: &Option<Duration>, default: Option<f32>| match wanted {
        Some(length) => (!length.is_zero()).then_some(length.as_secs_f32()),
        None => default,
    };
    let seconds = |wanted: &Option<Duration>, default: f32| wanted.map_or(default, |w| w.as_secs_f32());
    Params {
        cipher: false,
        keepalive: maybe(keepalive, default.keepalive),
        silence: maybe(silence, default.silence),
        linger: seconds(linger, default.linger),
        buffer: buffer.map_or(default.buffer, usize::from),
        granularity: stock.clock.unwrap_or(default.granularity),
        free_acks: stock.free_acks.unwrap_or(default.free_acks),
        last_ack: stock.last_ack.unwrap_or(default.last_ack),
        ack_step: seconds(&stock.ack_step, default.ack_step),
        gate: stock.gate.unwrap_or(default.gate),
        age_limit: seconds(&stock.age_limit, default.age_limit),
        first_wait: seconds(&stock.first_wait, default.first_wait),
        dedup: stock.dedup.unwrap_or(default.dedup),
        ack_place: stock.ack_place.unwrap_or(default.ack_place),
        resend: stock.resend.unwrap_or(default.resend),
        relayed_goodbye: stock.relayed_goodbye.unwrap_or(default.relayed_goodbye),
        leaving_keepalives: stock.leaving_keepalives.unwrap_or(default.leaving_keepalives),
        port_map: stock.port_map.unwrap_or(default.port_map),
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

/// A hundred years.
const NEVER: Duration = Duration::from_secs(100 * 365 * 86_400);
/// Keys are read as in a scenario.
const ONE_NODE: &str = "title = \"one\"\nduration = 1\nnode = [{ name = \"node\", role = \"host\" }]\n";
