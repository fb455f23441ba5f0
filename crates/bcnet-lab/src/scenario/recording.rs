//! A scenario made of what was recorded of a session.

use std::time::Duration;

use bcnet_transport::Time;

use super::{EngineKind, EngineSettings, NodeRole, Scenario, ScenarioLink, ScenarioNode};
use crate::battle::GameMessage;
use crate::behavior::NodeBehavior;
use crate::link::{FaultScript, Faults};

impl Scenario {
    /// Makes a scenario of what was said in a session: a host, a client with each of these names, and all messages that one
    /// gave to its engine. Links in both directions have these faults from the beginning on.
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
            // What was sent last is to arrive.
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

/// A dedicated host, and clients at 60 frames a second.
const HOST_TICK: Duration = Duration::from_millis(3);
const CLIENT_TICK: Duration = Duration::from_micros(16_667);
/// As long as stock takes to send all ACKs of a join.
const RECORDED_SETTLE: Duration = Duration::from_secs(60);
