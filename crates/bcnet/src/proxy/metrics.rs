//! What the proxy has counted, for Prometheus.

use bcnet_proxy::{Bytes, Direction, Healed, Leg, Output, Proxy, Refusal};

use super::relay::Commands;
use super::watch::Watch;
use crate::http::Monitored;
use crate::metrics::{Labels, Page};

/// Datagrams and their bytes.
#[derive(Debug, Clone, Copy, Default)]
struct Volume {
    datagrams: u64,
    bytes: u64,
}

impl Volume {
    const fn add(&mut self, bytes: &[u8]) {
        self.datagrams += 1;
        self.bytes += bytes.len() as u64;
    }
}

/// What came and what left.
#[derive(Debug, Default)]
pub(super) struct Metrics {
    from_clients: Volume,
    from_server: Volume,
    to_clients: Volume,
    to_server: Volume,
    /// Datagrams that were too long to be passed on.
    pub(super) oversized: u64,
    /// Datagrams to a source that the server did not send.
    pub(super) foreign: u64,
    /// Challenges in the name of list servers that were too many to be answered.
    pub(super) unanswered: u64,
}

impl Metrics {
    /// A datagram came, and this is what was made of it.
    pub(super) fn note(&mut self, from_server: bool, bytes: &[u8], output: &Output<'_>) {
        if from_server {
            self.from_server.add(bytes);
        } else {
            self.from_clients.add(bytes);
        }
        for (leg, bytes) in [output.forward, output.answer].into_iter().flatten() {
            self.note_sent(leg, bytes);
        }
    }

    /// A datagram leaves.
    pub(super) const fn note_sent(&mut self, leg: Leg, bytes: Bytes<'_>) {
        match leg {
            Leg::Client(_) => self.to_clients.add(bytes.as_slice()),
            Leg::Server(_) => self.to_server.add(bytes.as_slice()),
        }
    }
}

/// Everything for Prometheus.
pub(super) fn render(metrics: &Metrics, proxy: &Proxy, watch: &Watch, unsent: u64) -> Page {
    let mut page = Page::new("bcnet_proxy");
    let came = [(("from", "clients"), metrics.from_clients), (("from", "server"), metrics.from_server)];
    let left = [(("to", "clients"), metrics.to_clients), (("to", "server"), metrics.to_server)];
    volumes(&mut page, "received", "that came", came);
    volumes(&mut page, "sent", "that left", left);
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
    let refused = Refusal::ALL.map(|why| (vec![("reason", why.name().to_string())], proxy.refused(why)));
    page.counter("refused_datagrams", "Datagrams that were turned away", refused);
    let found = watch.found().map(|(kind, count)| (vec![("kind", kind.to_string())], count));
    page.counter("findings", "Faults that were seen in what passed", found);
    let [up, down] = [Direction::Up, Direction::Down].map(|direction| proxy.healed(direction));
    for (name, help, figure) in HEALED {
        page.counter(
            name,
            help,
            [(label(("from", "client")), figure(&up)), (label(("from", "server")), figure(&down))],
        );
    }
    page
}

type HealedMetric = (&'static str, &'static str, fn(&Healed) -> u64);

const HEALED: [HealedMetric; 7] = [
    ("healed_acks", "ACKs without news that were taken out", |healed| healed.acks),
    ("healed_repeats", "Messages that had arrived and were not passed on again", |healed| healed.repeats),
    ("healed_answers", "ACKs given in place of the receiver", |healed| healed.answers),
    ("healed_parts", "Parts that the proxy repeats instead of their sender", |healed| healed.held),
    ("healed_copies", "Copies that it sent of those", |healed| healed.copies),
    ("healed_datagrams", "Datagrams of which nothing was left", |healed| healed.emptied),
    ("healed_bytes", "Bytes that were not passed on", |healed| healed.bytes),
];

type Label = (&'static str, &'static str);

fn label((name, value): Label) -> Labels {
    vec![(name, value.to_owned())]
}

fn volumes(page: &mut Page, name: &str, which: &str, volumes: [(Label, Volume); 2]) {
    let datagrams = volumes.map(|(side, volume)| (label(side), volume.datagrams));
    page.counter(&format!("{name}_datagrams"), &format!("Datagrams {which}"), datagrams);
    let bytes = volumes.map(|(side, volume)| (label(side), volume.bytes));
    page.counter(&format!("{name}_bytes"), &format!("Bytes of the datagrams {which}"), bytes);
}

impl Monitored for Commands {
    fn metrics(&self) -> Option<Page> {
        self.ask(|relay, _| relay.render_metrics())
    }

    fn is_alive(&self) -> bool {
        self.ask(|_, _| ()).is_some()
    }

    fn is_ready(&self) -> bool {
        self.is_alive()
    }
}
