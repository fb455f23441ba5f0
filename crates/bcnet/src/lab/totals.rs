//! What every table of a run tells of a node.

use bcnet_lab::Totals;

/// A column: its title, how wide it is in text, and what stands in it.
pub(super) struct Column {
    pub(super) title: &'static str,
    pub(super) width: usize,
    pub(super) count: fn(&Totals) -> u64,
}

/// What was sent, and what came of it.
pub(super) const COLUMNS: [Column; 7] = [
    Column { title: "datagrams", width: 9, count: |totals| totals.datagrams },
    Column { title: "bytes", width: 9, count: |totals| totals.bytes },
    Column { title: "ACKs", width: 7, count: |totals| totals.acks },
    Column { title: "ACK bytes", width: 9, count: |totals| totals.ack_bytes },
    Column { title: "useful", width: 7, count: |totals| totals.useful_acks },
    Column { title: "useless", width: 7, count: |totals| totals.useless_acks },
    Column { title: "resent", width: 6, count: |totals| totals.retransmits },
];
