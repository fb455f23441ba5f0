//! What is drawn of the last hour. The page and `bcnet top` draw it each in its own way.

use crate::server_info::ServerSample;

/// One line or two.
pub(crate) struct Plot {
    pub(crate) name: &'static str,
    /// The name where there is little room, with the unit.
    pub(crate) short_name: &'static str,
    /// What it is called in a page.
    pub(crate) id: &'static str,
    pub(crate) unit: Unit,
    /// The name of each, and what it shows.
    pub(crate) series: &'static [(&'static str, PlotValue)],
}

pub(crate) type PlotValue = fn(&ServerSample) -> Option<f64>;

/// What values are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unit {
    Number,
    Millis,
    Percent,
    Bytes,
    /// Bytes, and always many.
    Memory,
}

pub(crate) const PLOTS: [Plot; 8] = [
    Plot {
        name: "Players",
        short_name: "players",
        id: "plot-players",
        unit: Unit::Number,
        series: &[("", |one| Some(one.players))],
    },
    Plot {
        name: "Datagrams per second",
        short_name: "datagrams/s",
        id: "plot-datagrams",
        unit: Unit::Number,
        series: &[
            ("in", |one| Some(one.datagrams_in_per_second)),
            ("out", |one| Some(one.datagrams_out_per_second)),
        ],
    },
    Plot {
        name: "Round trip",
        short_name: "RTT/ms",
        id: "plot-round-trip",
        unit: Unit::Millis,
        series: &[("p50", |one| one.round_trip_p50_ms), ("p99", |one| one.round_trip_p99_ms)],
    },
    Plot {
        name: "Relay delay",
        short_name: "relay/ms",
        id: "plot-relay",
        unit: Unit::Millis,
        series: &[("p50", |one| one.relay_p50_ms), ("p99", |one| one.relay_p99_ms)],
    },
    Plot {
        name: "Sent again per second",
        short_name: "sent again/s",
        id: "plot-retransmissions",
        unit: Unit::Number,
        series: &[("", |one| Some(one.retransmissions_per_second))],
    },
    Plot {
        name: "ACK bytes per second",
        short_name: "ACK bytes/s",
        id: "plot-acks",
        unit: Unit::Bytes,
        series: &[("", |one| Some(one.ack_bytes_per_second))],
    },
    Plot {
        name: "Share of a core",
        short_name: "% of a core",
        id: "plot-core",
        unit: Unit::Percent,
        series: &[("", |one| one.core_share.map(|share| 100.0 * share))],
    },
    Plot {
        name: "Memory",
        short_name: "memory/MB",
        id: "plot-memory",
        unit: Unit::Memory,
        series: &[("", |one| one.memory_bytes)],
    },
];
