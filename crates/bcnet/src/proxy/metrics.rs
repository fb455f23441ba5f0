//! What the proxy has counted, for Prometheus: its text format, and the small HTTP server that gives it out.

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bcnet_proxy::{Bytes, Healed, Leg, Output, Proxy, Refusal};
use bcnet_transport::Time;
use bcnet_udp::Clock;

use super::relay::Commands;
use super::watch::Watch;
use crate::connections::{self, read_request};

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

/// Everything in the text format of Prometheus.
pub(super) fn render(metrics: &Metrics, proxy: &Proxy, watch: &Watch, unsent: u64) -> String {
    let mut page = Page::default();
    let came = [("from=\"clients\"", metrics.from_clients), ("from=\"server\"", metrics.from_server)];
    let left = [("to=\"clients\"", metrics.to_clients), ("to=\"server\"", metrics.to_server)];
    page.volumes("received", "that came", came);
    page.volumes("sent", "that left", left);
    page.counter(
        "oversized_datagrams",
        "Datagrams over 2048 bytes, which are dropped",
        [("", metrics.oversized)],
    );
    page.counter(
        "foreign_datagrams",
        "Datagrams to a source that the server did not send",
        [("", metrics.foreign)],
    );
    page.counter(
        "unanswered_challenges",
        "Challenges of list servers that were too many to be answered",
        [("", metrics.unanswered)],
    );
    page.counter("unsent_datagrams", "Datagrams that the system did not take", [("", unsent)]);
    page.family("players", "gauge", "Players now", [("", proxy.players().count() as u64)]);
    let refused = Refusal::ALL.map(|why| (format!("reason=\"{}\"", why.name()), proxy.refused(why)));
    page.counter("refused_datagrams", "Datagrams that were turned away", refused);
    let found = watch.found().map(|(kind, count)| (format!("kind=\"{kind}\""), count));
    page.counter("findings", "Faults that were seen in what passed", found);
    for (name, help, figure) in HEALED {
        let healed = proxy.players().flat_map(|player| {
            [("client", player.up), ("server", player.down)].map(|(from, healed)| {
                (format!("player=\"{}\",from=\"{from}\"", player.address), figure(&healed))
            })
        });
        page.counter(name, help, healed);
    }
    page.0
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

#[derive(Default)]
struct Page(String);

impl Page {
    fn volumes(&mut self, name: &str, which: &str, volumes: [(&str, Volume); 2]) {
        let datagrams = volumes.map(|(labels, volume)| (labels, volume.datagrams));
        self.counter(&format!("{name}_datagrams"), &format!("Datagrams {which}"), datagrams);
        let bytes = volumes.map(|(labels, volume)| (labels, volume.bytes));
        self.counter(&format!("{name}_bytes"), &format!("Bytes of the datagrams {which}"), bytes);
    }

    fn counter<L: AsRef<str>>(&mut self, name: &str, help: &str, values: impl IntoIterator<Item = (L, u64)>) {
        self.family(&format!("{name}_total"), "counter", help, values);
    }

    fn family<L: AsRef<str>>(
        &mut self,
        name: &str,
        kind: &str,
        help: &str,
        values: impl IntoIterator<Item = (L, u64)>,
    ) {
        let _ = writeln!(self.0, "# HELP bcnet_proxy_{name} {help}.\n# TYPE bcnet_proxy_{name} {kind}");
        for (labels, value) in values {
            let _ = match labels.as_ref() {
                "" => writeln!(self.0, "bcnet_proxy_{name} {value}"),
                labels => writeln!(self.0, "bcnet_proxy_{name}{{{labels}}} {value}"),
            };
        }
    }
}

/// Answers `GET /metrics` for ever.
pub(super) fn serve(listener: &TcpListener, commands: &Commands, clock: Clock) {
    let (commands, latest) = (commands.clone(), Arc::new(Mutex::new(None)));
    // Whoever does not listen to the answer has none.
    connections::serve(listener, clock, move |stream| drop(answer(stream, &commands, &latest, clock)));
}

/// What was given out last, and when it was asked for.
type Latest = Mutex<Option<(Time, String)>>;

fn answer(mut stream: TcpStream, commands: &Commands, latest: &Latest, clock: Clock) -> io::Result<()> {
    stream.set_write_timeout(Some(PATIENCE))?;
    let request =
        read_request(&mut stream, clock, PATIENCE, |head| head.windows(4).any(|end| end == b"\r\n\r\n"))?;
    let (status, body) = if request.starts_with(b"GET /metrics ") {
        ("200 OK", render_again(commands, latest, clock.now()).ok_or(io::ErrorKind::TimedOut)?)
    } else {
        ("404 Not Found", "only GET /metrics is here\n".into())
    };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes())?;
    stream.write_all(body.as_bytes())
}

/// Returns the figures, which the relay is not asked for more often than it has time for.
fn render_again(commands: &Commands, latest: &Latest, now: Time) -> Option<String> {
    let mut latest = latest.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, text)) = latest.as_ref().filter(|(at, _)| now.since(*at) < FRESH) {
        return Some(text.clone());
    }
    let text = commands.ask(|relay, _| relay.render_metrics())?;
    *latest = Some((now, text.clone()));
    Some(text)
}

/// How long a client may take.
const PATIENCE: Duration = Duration::from_secs(2);
/// For how long figures are good for others who ask.
const FRESH: Duration = Duration::from_millis(50);
