//! The proxy's counters for Prometheus.

use bcnet_proxy::{
    DatagramTarget, HealCounters, OutboundBytes, Proxy, ProxyDirection, ProxyOutput, RefusalReason,
};

use super::proxy_observer::ProxyObserver;
use super::relay::RelayCommands;
use crate::metrics::{Labels, MetricsPage};
use crate::metrics_server::Monitored;

/// A count of datagrams and of their bytes.
#[derive(Debug, Clone, Copy, Default)]
struct DatagramCounter {
    datagrams: u64,
    bytes: u64,
}

impl DatagramCounter {
    const fn add(&mut self, bytes: &[u8]) {
        self.datagrams += 1;
        self.bytes += bytes.len() as u64;
    }
}

/// Counters of received, sent and dropped datagrams.
#[derive(Debug, Default)]
pub(super) struct ProxyMetrics {
    from_clients: DatagramCounter,
    from_server: DatagramCounter,
    to_clients: DatagramCounter,
    to_server: DatagramCounter,
    /// Datagrams that were too long to forward.
    pub(super) oversized: u64,
    /// Datagrams received on a socket toward the server, but sent by another address.
    pub(super) foreign: u64,
    /// Challenges, apparently of list servers, that exceeded the rate limit.
    pub(super) unanswered: u64,
}

impl ProxyMetrics {
    /// Counts a received datagram and the proxy's output for it.
    pub(super) fn on_datagram(&mut self, from_server: bool, bytes: &[u8], output: &ProxyOutput<'_>) {
        if from_server {
            self.from_server.add(bytes);
        } else {
            self.from_clients.add(bytes);
        }
        for (leg, bytes) in [output.forward, output.answer].into_iter().flatten() {
            self.on_sent(leg, bytes);
        }
    }

    /// Counts a sent datagram.
    pub(super) const fn on_sent(&mut self, leg: DatagramTarget, bytes: OutboundBytes<'_>) {
        match leg {
            DatagramTarget::Client(_) => self.to_clients.add(bytes.as_slice()),
            DatagramTarget::Server(_) => self.to_server.add(bytes.as_slice()),
        }
    }
}

/// Returns the page of all metrics.
pub(super) fn render(
    metrics: &ProxyMetrics,
    proxy: &Proxy,
    watch: &ProxyObserver,
    unsent: u64,
) -> MetricsPage {
    let mut page = MetricsPage::new("bcnet_proxy");
    let received = [(("from", "clients"), metrics.from_clients), (("from", "server"), metrics.from_server)];
    let sent = [(("to", "clients"), metrics.to_clients), (("to", "server"), metrics.to_server)];
    write_counters(&mut page, "received", "received", received);
    write_counters(&mut page, "sent", "sent", sent);
    page.counter(
        "oversized_datagrams",
        "Datagrams over 2048 bytes, which the proxy dropped",
        [(Labels::new(), metrics.oversized)],
    );
    page.counter(
        "foreign_datagrams",
        "Datagrams at a source address that did not come from the server",
        [(Labels::new(), metrics.foreign)],
    );
    page.counter(
        "unanswered_challenges",
        "Challenges of list servers above the rate limit, without an answer",
        [(Labels::new(), metrics.unanswered)],
    );
    page.counter("unsent_datagrams", "Datagrams that the system did not send", [(Labels::new(), unsent)]);
    page.gauge("players", "Connected players", [(Labels::new(), proxy.players().count())]);
    let refused =
        RefusalReason::ALL.map(|why| (vec![("reason", why.name().to_string())], proxy.refused(why)));
    page.counter("refused_datagrams", "Refused datagrams", refused);
    page.counter(
        "goodbyes",
        "Clients without a proof of their address, or replaced ones, that the proxy reported to the server as gone",
        [(Labels::new(), proxy.goodbyes())],
    );
    let found = watch.fault_counts().map(|(kind, count)| (vec![("kind", kind.to_string())], count));
    page.counter("findings", "Faults found in the forwarded traffic", found);
    let [up, down] =
        [ProxyDirection::ToServer, ProxyDirection::ToClient].map(|direction| proxy.healed(direction));
    for (name, help, figure) in HEALED_METRICS {
        page.counter(
            name,
            help,
            [(label(("from", "client")), figure(&up)), (label(("from", "server")), figure(&down))],
        );
    }
    page
}

type HealedMetric = (&'static str, &'static str, fn(&HealCounters) -> u64);

const HEALED_METRICS: [HealedMetric; 7] = [
    ("healed_acks", "Removed ACKs that acknowledge nothing new", |healed| healed.acks),
    ("healed_repeats", "Removed copies of messages that had already arrived", |healed| healed.duplicates),
    ("healed_answers", "ACKs that the proxy sent in place of the receiver", |healed| healed.answers),
    ("healed_parts", "Fragments that the proxy retransmits instead of their sender", |healed| {
        healed.held_fragments
    }),
    ("healed_copies", "Copies of these fragments that the proxy sent", |healed| healed.fragment_copies),
    ("healed_datagrams", "Datagrams dropped because healing removed all their messages", |healed| {
        healed.emptied_datagrams
    }),
    ("healed_bytes", "Bytes removed from datagrams", |healed| healed.bytes_removed),
];

type LabelPair = (&'static str, &'static str);

fn label((name, value): LabelPair) -> Labels {
    vec![(name, value.to_owned())]
}

fn write_counters(
    page: &mut MetricsPage,
    name: &str,
    which: &str,
    volumes: [(LabelPair, DatagramCounter); 2],
) {
    let datagrams = volumes.map(|(side, volume)| (label(side), volume.datagrams));
    page.counter(&format!("{name}_datagrams"), &format!("Datagrams {which}"), datagrams);
    let bytes = volumes.map(|(side, volume)| (label(side), volume.bytes));
    page.counter(&format!("{name}_bytes"), &format!("Bytes of the datagrams {which}"), bytes);
}

impl Monitored for RelayCommands {
    fn metrics(&self) -> Option<MetricsPage> {
        self.call(|relay, _| relay.render_metrics())
    }

    fn is_alive(&self) -> bool {
        self.call(|_, _| ()).is_some()
    }

    fn is_ready(&self) -> bool {
        self.is_alive()
    }
}
