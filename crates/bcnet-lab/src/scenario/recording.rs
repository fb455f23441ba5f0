//! Builds a scenario from the messages of a recorded session.

use std::time::Duration;

use bcnet_transport::Time;

use super::{EngineKind, EngineSettings, NodeRole, Scenario, ScenarioLink, ScenarioNode};
use crate::battle::GameMessage;
use crate::behavior::NodeBehavior;
use bcnet_transport::link::{FaultScript, Faults};

impl Scenario {
    /// Creates a scenario from the messages of a recorded session.
    ///
    /// It has a host, and one client for each name in `clients`. Each message is passed to the engine of its
    /// sender. All links have `faults` from the start of the experiment.
    #[must_use]
    pub fn from_recording(
        title: &str,
        clients: &[String],
        faults: Faults,
        mut messages: Vec<GameMessage>,
    ) -> Self {
        messages.sort_by_key(|message| message.at);
        let end = messages.last().map_or(Time::ZERO, |message| message.at);
        let node = |name: String, role, tick| ScenarioNode {
            name,
            role,
            engine: None,
            behavior: NodeBehavior { tick, ..NodeBehavior::default() },
            settings: EngineSettings::default(),
        };
        let host = node("host".into(), NodeRole::Host, HOST_TICK);
        let clients = clients.iter().map(|name| node(name.clone(), NodeRole::Client, CLIENT_TICK));
        Self {
            title: title.into(),
            about: String::new(),
            engine: EngineKind::Stock,
            seed: 1,
            settle: RECORDED_SETTLE,
            // Leaves time for the last message to arrive.
            duration: end.since(Time::ZERO) + RECORDED_SETTLE,
            claim: None,
            nodes: [host].into_iter().chain(clients).collect(),
            proxy: None,
            links: vec![ScenarioLink { from: None, to: None, faults, script: FaultScript::default() }],
            actions: Vec::new(),
            traffic: Vec::new(),
            recorded_messages: messages,
            dumps: Vec::new(),
            expectations: Vec::new(),
        }
    }
}

/// Tick of a dedicated host. Clients run at 60 frames per second.
const HOST_TICK: Duration = Duration::from_millis(3);
const CLIENT_TICK: Duration = Duration::from_micros(16_667);
/// Time that the stock engine needs to send all ACKs of a join.
const RECORDED_SETTLE: Duration = Duration::from_secs(60);
