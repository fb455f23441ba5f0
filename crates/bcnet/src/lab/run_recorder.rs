//! Records a run: a capture, and the datagrams of a time window for its page.

use std::net::SocketAddrV4;
use std::path::Path;
use std::str::FromStr;
use std::time::Duration;

use anyhow::Context;
use bcnet_lab::{ObservedDatagram, Scenario, World};
use bcnet_transport::wire::{Channel, Datagram, Message, PeerId};
use bcnet_transport::{Time, cipher};

use crate::capture::{CaptureWriter, CapturedDatagram};
use crate::number_format::pluralize;

/// A time range of the experiment, in seconds.
#[derive(Debug, Clone, Copy)]
pub(super) struct TimeWindow {
    from: f64,
    to: f64,
}

impl FromStr for TimeWindow {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text}: expected FROM..TO in seconds, such as 1.5..3");
        let (from, to) = text.split_once("..").ok_or_else(wrong)?;
        let seconds =
            |text: &str| text.trim().parse::<f64>().ok().filter(|seconds| (0.0..1e9).contains(seconds));
        let (from, to) = seconds(from).zip(seconds(to)).filter(|(from, to)| from < to).ok_or_else(wrong)?;
        Ok(Self { from, to })
    }
}

/// A datagram on its way from one node to another.
pub(super) struct DatagramHop {
    pub(super) from: usize,
    pub(super) to: usize,
    number: u64,
    /// Send time since the start of the experiment.
    pub(super) sent: Duration,
    /// Travel time; `None` if the datagram was lost or had not arrived at the end of the run.
    pub(super) travel_time: Option<Duration>,
    /// Content of the datagram, for people.
    pub(super) label: String,
    /// `true` if the datagram has only ACKs.
    pub(super) only_acks: bool,
}

/// Recorder of the datagrams of a run.
pub(super) struct RunRecorder {
    capture: Option<CaptureWriter>,
    /// Restricts the capture to the datagrams that this node sends or receives.
    only_node: Option<usize>,
    nodes: usize,
    start: Time,
    window: Option<TimeWindow>,
    pub(super) hops: Vec<DatagramHop>,
    /// The first error in writing the capture.
    failure: Option<anyhow::Error>,
}

impl RunRecorder {
    /// Creates a recorder for a run. `at` is the name of a node or of the proxy.
    pub(super) fn new(
        scenario: &Scenario,
        capture: Option<&Path>,
        at: Option<&str>,
        window: Option<TimeWindow>,
    ) -> anyhow::Result<Self> {
        let names = || scenario.node_names().chain(scenario.proxy_name());
        let number = |name: &str| {
            let known = || names().collect::<Vec<_>>().join(", ");
            names()
                .position(|known| known == name)
                .with_context(|| format!("--at {name}: unknown node; known: {}", known()))
        };
        Ok(Self {
            only_node: at.map(number).transpose()?,
            capture: capture.map(CaptureWriter::create).transpose()?,
            nodes: scenario.node_names().count(),
            start: Time::ZERO + scenario.settle,
            window,
            hops: Vec::new(),
            failure: None,
        })
    }

    /// Closes the capture and returns the datagrams of the window.
    pub(super) fn finish(mut self) -> anyhow::Result<Vec<DatagramHop>> {
        if let Some(failure) = self.failure {
            return Err(failure);
        }
        if let Some(capture) = &mut self.capture {
            capture.flush()?;
        }
        Ok(self.hops)
    }

    pub(super) fn on_datagram(&mut self, mut seen: ObservedDatagram) {
        self.record_hop(&seen);
        let wanted = match self.only_node {
            None => seen.sent,
            Some(at) => self.column(if seen.sent { seen.meta.from } else { seen.meta.to }) == at,
        };
        let Some(capture) = self.capture.as_mut().filter(|_| wanted && self.failure.is_none()) else {
            return;
        };
        if seen.bytes.first() != Some(&PeerId::GAMESPY.0) {
            cipher::encrypt(&mut seen.bytes);
        }
        let [from, to]: [SocketAddrV4; 2] = [seen.meta.from, seen.meta.to].map(World::address);
        let time = seen.meta.now.since(Time::ZERO);
        let packet = CapturedDatagram { from, to, time, bytes: &seen.bytes, comment: None };
        self.failure = capture.write(&packet).err();
    }

    /// Returns the column of a node in the diagram. All addresses of the proxy share one column.
    fn column(&self, number: usize) -> usize {
        number.min(self.nodes)
    }

    /// Records a datagram that is sent in the window, or its arrival.
    fn record_hop(&mut self, seen: &ObservedDatagram) {
        let ObservedDatagram { meta, sent, bytes } = seen;
        let now = meta.now.since(self.start);
        if meta.now < self.start {
            return;
        }
        if !sent {
            let hop =
                self.hops.iter_mut().rev().find(|hop| hop.number == meta.number && hop.travel_time.is_none());
            if let Some(hop) = hop {
                hop.travel_time = Some(now.saturating_sub(hop.sent));
            }
            return;
        }
        let first = self.hops.first().map_or(now, |hop| hop.sent).as_secs_f64();
        let TimeWindow { from, to } =
            self.window.unwrap_or(TimeWindow { from: first, to: first + DEFAULT_WINDOW });
        if !(from..=to).contains(&now.as_secs_f64()) || self.hops.len() >= MAX_HOPS {
            return;
        }
        let (label, only_acks) = describe_datagram(bytes);
        let (from, to) = (self.column(meta.from), self.column(meta.to));
        self.hops.push(DatagramHop {
            from,
            to,
            number: meta.number,
            sent: now,
            travel_time: None,
            label,
            only_acks,
        });
    }
}

/// Describes the content of a datagram in a few words. Returns `true` if it has only ACKs.
fn describe_datagram(bytes: &[u8]) -> (String, bool) {
    let Ok(datagram) = Datagram::parse(bytes, None) else { return ("malformed".into(), false) };
    let (mut acks, mut states, mut others) = (0, 0, Vec::new());
    for message in datagram.messages() {
        match message.id() {
            _ if matches!(message, Message::Ack(_)) => acks += 1,
            _ if matches!(message, Message::Keepalive) => others.push("keepalive".into()),
            None => states += 1,
            Some(id) => {
                let channel = if id.channel == Channel::Control { "control" } else { "game" };
                let part = id.fragment.map(|part| format!(" fragment {part}")).unwrap_or_default();
                others.push(format!("{channel} {}{part}", id.seq.0));
            }
        }
    }
    let only_acks = states == 0 && others.is_empty();
    others.extend((states > 0).then(|| format!("{states} unreliable")));
    others.extend((acks > 0).then(|| pluralize(acks, "ACK")));
    (others.join(", "), only_acks)
}

/// Default length of the window in seconds.
const DEFAULT_WINDOW: f64 = 2.0;
/// Maximum number of datagrams on a page.
const MAX_HOPS: usize = 150;
