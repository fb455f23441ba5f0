//! The plots of the last hour, as drawn by the operator page and by `bcnet top`.

use crate::server_info::ServerSample;

/// A plot with one or two series.
pub(crate) struct Plot {
    pub(crate) name: &'static str,
    /// The short name, with the unit.
    pub(crate) short_name: &'static str,
    /// The HTML id in the operator page.
    pub(crate) id: &'static str,
    pub(crate) unit: Unit,
    /// The name and the value of each series.
    pub(crate) series: &'static [(&'static str, PlotValue)],
}

pub(crate) type PlotValue = fn(&ServerSample) -> Option<f64>;

/// The unit of the values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unit {
    Number,
    Millis,
    Percent,
    Bytes,
    /// Bytes, shown in a large unit.
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
        name: "Round-trip time",
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
        name: "Retransmits per second",
        short_name: "retransmits/s",
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
