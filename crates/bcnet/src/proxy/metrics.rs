//! What the proxy has counted, for Prometheus.

use bcnet_proxy::{
    DatagramTarget, HealCounters, OutboundBytes, Proxy, ProxyDirection, ProxyOutput, RefusalReason,
};

use super::proxy_observer::ProxyObserver;
use super::relay::RelayCommands;
use crate::metrics::{Labels, MetricsPage};
use crate::metrics_server::Monitored;

/// Datagrams and their bytes.
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

/// What came and what left.
#[derive(Debug, Default)]
pub(super) struct ProxyMetrics {
    from_clients: DatagramCounter,
    from_server: DatagramCounter,
    to_clients: DatagramCounter,
    to_server: DatagramCounter,
    /// Datagrams that were too long to be passed on.
    pub(super) oversized: u64,
    /// Datagrams to a source that the server did not send.
    pub(super) foreign: u64,
    /// Challenges in the name of list servers that were too many to be answered.
    pub(super) unanswered: u64,
}

impl ProxyMetrics {
    /// A datagram came, and this is what was made of it.
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

    /// A datagram leaves.
    pub(super) const fn on_sent(&mut self, leg: DatagramTarget, bytes: OutboundBytes<'_>) {
        match leg {
            DatagramTarget::Client(_) => self.to_clients.add(bytes.as_slice()),
            DatagramTarget::Server(_) => self.to_server.add(bytes.as_slice()),
        }
    }
}

/// Everything for Prometheus.
pub(super) fn render(
    metrics: &ProxyMetrics,
    proxy: &Proxy,
    watch: &ProxyObserver,
    unsent: u64,
) -> MetricsPage {
    let mut page = MetricsPage::new("bcnet_proxy");
    let came = [(("from", "clients"), metrics.from_clients), (("from", "server"), metrics.from_server)];
    let left = [(("to", "clients"), metrics.to_clients), (("to", "server"), metrics.to_server)];
    write_counters(&mut page, "received", "that came", came);
    write_counters(&mut page, "sent", "that left", left);
    page.counter(
        "oversized_datagrams",
        "Datagrams over 2048 bytes, which are dropped",
        [(Labels::new(), metrics.oversized)],
    );
    page.counter(
        "foreign_datagrams",
        "Datagrams to a source that the server did not send",
        [(Labels::new(), metrics.foreign)],
    );
    page.counter(
        "unanswered_challenges",
        "Challenges of list servers that were too many to be answered",
        [(Labels::new(), metrics.unanswered)],
    );
    page.counter("unsent_datagrams", "Datagrams that the system did not take", [(Labels::new(), unsent)]);
    page.gauge("players", "Players now", [(Labels::new(), proxy.players().count())]);
    let refused =
        RefusalReason::ALL.map(|why| (vec![("reason", why.name().to_string())], proxy.refused(why)));
    page.counter("refused_datagrams", "Datagrams that were turned away", refused);
    let found = watch.fault_counts().map(|(kind, count)| (vec![("kind", kind.to_string())], count));
    page.counter("findings", "Faults that were seen in what passed", found);
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
    ("healed_acks", "ACKs without news that were taken out", |healed| healed.acks),
    ("healed_repeats", "Messages that had arrived and were not passed on again", |healed| healed.duplicates),
    ("healed_answers", "ACKs given in place of the receiver", |healed| healed.answers),
    ("healed_parts", "Parts that the proxy repeats instead of their sender", |healed| healed.held_fragments),
    ("healed_copies", "Copies that it sent of those", |healed| healed.fragment_copies),
    ("healed_datagrams", "Datagrams of which nothing was left", |healed| healed.emptied_datagrams),
    ("healed_bytes", "Bytes that were not passed on", |healed| healed.bytes_removed),
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
