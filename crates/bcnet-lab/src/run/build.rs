//! Builds the engine of a node from its keys in a scenario.

use std::time::Duration;

use bcnet_transport::{Config, Connect, Endpoint, Time};

use crate::behavior::NodeBehavior;
use crate::engine::LabEngine;
use crate::scenario::{Change, EngineKind, EngineSettings, NodeRole, Scenario, ScenarioError, ScenarioNode};
use crate::stock::{Params, StockEngine};
use crate::world::node_address;

/// Engine configuration and behaviour from the keys of a `[[node]]` table, for use outside a scenario.
#[derive(Debug, Clone)]
pub struct NodeSetup {
    /// Parameters of the stock engine.
    pub params: Params,
    /// Configuration of the bcnet endpoint.
    pub config: Config,
    /// Behaviour of the program around the engine.
    pub behavior: NodeBehavior,
}

impl NodeSetup {
    /// Parses keys of a `[[node]]` table.
    ///
    /// # Errors
    /// Returns the error of the first wrong key.
    pub fn from_keys(keys: &[Change]) -> Result<Self, ScenarioError> {
        let scenario = Scenario::parse_changed(SINGLE_NODE_SCENARIO, keys)?;
        let no_node = || ScenarioError { line: 0, message: "these keys do not describe a node".into() };
        let node = scenario.nodes.first().ok_or_else(no_node)?;
        Ok(Self {
            params: Params { cipher: true, ..stock_params(node) },
            config: Config { cipher: true, ..bcnet_config(node) },
            behavior: node.behavior.clone(),
        })
    }
}

/// Creates the engine of a node.
pub(super) fn build_engine(
    node: &ScenarioNode,
    number: usize,
    scenario: &Scenario,
    engine: EngineKind,
) -> Box<dyn LabEngine> {
    let host = node_address(scenario.connect_target());
    let own = *node_address(number).ip();
    let nonce = 0x0A5F + u32::try_from(number).unwrap_or(0);
    let now = Time::ZERO;
    match (node.role, node.engine.unwrap_or(engine)) {
        (NodeRole::AddressOnly, _) => Box::new(StockEngine::closed()),
        (NodeRole::Host, EngineKind::Stock) => {
            Box::new(StockEngine::host(Params { address: own, ..stock_params(node) }))
        }
        (NodeRole::Host, EngineKind::Bcnet) => {
            Box::new(Endpoint::host(Config { address: own, ..bcnet_config(node) }))
        }
        (NodeRole::Client, EngineKind::Stock) => {
            Box::new(StockEngine::connect(stock_params(node), host, own, nonce, &[], now))
        }
        (NodeRole::Client, EngineKind::Bcnet) => {
            let connect = Connect { host, nonce, password: "" };
            Box::new(Endpoint::connect(Config { address: own, ..bcnet_config(node) }, connect, now))
        }
    }
}

fn stock_params(node: &ScenarioNode) -> Params {
    let EngineSettings { keepalive, silence, linger, buffer, stock } = &node.settings;
    let default = Params::default();
    let optional = |wanted: &Option<Duration>, default: Option<f32>| match wanted {
        Some(length) => (!length.is_zero()).then_some(length.as_secs_f32()),
        None => default,
    };
    let seconds = |wanted: &Option<Duration>, default: f32| wanted.map_or(default, |w| w.as_secs_f32());
    Params {
        cipher: false,
        keepalive: optional(keepalive, default.keepalive),
        silence: optional(silence, default.silence),
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

fn bcnet_config(node: &ScenarioNode) -> Config {
    let EngineSettings { keepalive, silence, linger, buffer, .. } = &node.settings;
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
        idle_timeout: length(silence, default.idle_timeout),
        linger: linger.unwrap_or(default.linger),
        datagram_limit: buffer.map_or(default.datagram_limit, usize::from),
        ..default
    }
}

/// A timeout that never ends: a hundred years.
const NEVER: Duration = Duration::from_secs(100 * 365 * 86_400);
/// Scenario to which [`NodeSetup::from_keys`] adds the keys, to parse them as in any scenario.
const SINGLE_NODE_SCENARIO: &str =
    "title = \"one\"\nduration = 1\nnode = [{ name = \"node\", role = \"host\" }]\n";
