//! The nodes that [`LiveDriver`](super::driver::LiveDriver) drives: the session of a host, or a client.

use std::net::SocketAddrV4;

use bcnet_lab::LabEngine;
use bcnet_lab::stock::PeerQueueDump;
use bcnet_session::client::{Client, ClientState, DisconnectReason, Milestone};
use bcnet_session::{Manifest, Session};
use bcnet_transport::{Time, Transmit};

/// A node with an engine that [`LiveDriver`](super::driver::LiveDriver) drives.
pub(super) trait LiveNode {
    fn handle_datagram(&mut self, from: SocketAddrV4, bytes: &mut [u8], now: Time);
    fn handle_timeout(&mut self, now: Time);
    fn poll_transmit(&mut self, buffer: &mut [u8], now: Time) -> Option<Transmit>;
    /// Removes the next event and returns a text about it.
    fn poll_event_text(&mut self, now: Time) -> Option<String>;
    /// Handles a typed line. Returns `true` if it asks for a dump of the queues.
    fn on_input_line(&mut self, line: &str, now: Time) -> bool;
    /// Returns the engine.
    fn engine(&self) -> &dyn LabEngine;
    /// Starts to leave: sends a disconnect. The caller drives the node until it is finished.
    fn stop(&mut self, now: Time);
    /// Returns whether the node is finished: it has left, or its connection has ended.
    fn is_finished(&self) -> bool;
    /// Returns the reason why the node failed, if it failed.
    fn failure(&self) -> Option<String>;

    /// Returns dumps of all queues.
    fn dumps(&self, now: Time) -> Vec<PeerQueueDump> {
        let engine = self.engine();
        engine.peers_with_queues().into_iter().filter_map(|peer| engine.dump(peer, now)).collect()
    }
}

/// A host. Any typed line requests a dump of the queues.
pub(super) struct LiveHost<E: LabEngine>(pub(super) Session<E>);

impl<E: LabEngine> LiveNode for LiveHost<E> {
    fn handle_datagram(&mut self, from: SocketAddrV4, bytes: &mut [u8], now: Time) {
        self.0.handle_datagram(from, bytes, now);
    }

    fn handle_timeout(&mut self, now: Time) {
        self.0.handle_timeout(now);
    }

    fn poll_transmit(&mut self, buffer: &mut [u8], now: Time) -> Option<Transmit> {
        self.0.poll_transmit(buffer, now)
    }

    fn poll_event_text(&mut self, _: Time) -> Option<String> {
        self.0.poll_event().map(|event| format!("{event:?}"))
    }

    fn on_input_line(&mut self, _: &str, _: Time) -> bool {
        true
    }

    fn engine(&self) -> &dyn LabEngine {
        self.0.engine()
    }

    fn stop(&mut self, now: Time) {
        self.0.shutdown(now);
    }

    fn is_finished(&self) -> bool {
        self.0.is_closed()
    }

    fn failure(&self) -> Option<String> {
        None
    }
}

/// A client that joins the game and answers file checks with made-up hashes.
///
/// A typed line is sent as chat, except `/dump`, which requests a dump of the queues.
pub(super) struct LiveClient<E: LabEngine> {
    client: Client<E>,
    files: Manifest,
    payload: Vec<u8>,
    has_entered: bool,
    /// State in which the user stopped the client.
    stopped_in: Option<ClientState>,
    /// State in which the connection ended, and the reason.
    ended_in: Option<(ClientState, DisconnectReason)>,
}

impl<E: LabEngine> LiveClient<E> {
    pub(super) fn new(client: Client<E>) -> Self {
        let (files, payload) = (Manifest::placeholder(), Vec::new());
        Self { client, files, payload, has_entered: false, stopped_in: None, ended_in: None }
    }
}

impl<E: LabEngine> LiveNode for LiveClient<E> {
    fn handle_datagram(&mut self, from: SocketAddrV4, bytes: &mut [u8], now: Time) {
        self.client.handle_datagram(from, bytes, now);
    }

    fn handle_timeout(&mut self, now: Time) {
        self.client.handle_timeout(now);
    }

    fn poll_transmit(&mut self, buffer: &mut [u8], now: Time) -> Option<Transmit> {
        self.client.poll_transmit(buffer, now)
    }

    fn poll_event_text(&mut self, now: Time) -> Option<String> {
        let event = self.client.poll_event(&mut self.payload, now)?;
        // Errors are ignored: without this answer the join fails, and a later event has the reason.
        match event.milestone() {
            Some(Milestone::FileCheck(_)) => drop(self.client.answer_from_manifest(&self.files, now)),
            Some(Milestone::Load) => drop(self.client.enter(now)),
            Some(Milestone::Entered) => self.has_entered = true,
            Some(Milestone::Gone { state: step, reason: end }) => self.ended_in = Some((step, end)),
            Some(Milestone::Connected(_) | Milestone::Settings(_)) | None => {}
        }
        Some(format!("{event:?}"))
    }

    fn on_input_line(&mut self, line: &str, now: Time) -> bool {
        if line == "/dump" {
            return true;
        }
        if let Err(error) = self.client.chat(line, now) {
            eprintln!("bcnet: {error}");
        }
        false
    }

    fn engine(&self) -> &dyn LabEngine {
        self.client.engine()
    }

    fn stop(&mut self, now: Time) {
        self.stopped_in = Some(self.client.state());
        self.client.leave(now);
    }

    fn is_finished(&self) -> bool {
        self.ended_in.is_some() || self.client.is_closed()
    }

    fn failure(&self) -> Option<String> {
        match (self.stopped_in, self.ended_in) {
            _ if self.has_entered => None,
            (Some(step), _) => Some(format!("stopped while {step}")),
            (None, end) => end.map(|(step, end)| format!("{step}: {end}")),
        }
    }
}
