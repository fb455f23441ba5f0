//! The counters that the tables of a run show for each node, one column each.

use bcnet_lab::RunCounters;

/// A column: its title, its width in text, and the function that reads its value.
pub(super) struct CounterColumn {
    pub(super) title: &'static str,
    pub(super) width: usize,
    pub(super) value: fn(&RunCounters) -> u64,
}

/// Counters of sent and delivered messages.
pub(super) const COUNTER_COLUMNS: [CounterColumn; 7] = [
    CounterColumn { title: "datagrams", width: 9, value: |totals| totals.datagrams },
    CounterColumn { title: "bytes", width: 9, value: |totals| totals.bytes },
    CounterColumn { title: "ACKs", width: 7, value: |totals| totals.acks },
    CounterColumn { title: "ACK bytes", width: 9, value: |totals| totals.ack_bytes },
    CounterColumn { title: "useful", width: 7, value: |totals| totals.useful_acks },
    CounterColumn { title: "useless", width: 7, value: |totals| totals.useless_acks },
    CounterColumn { title: "resent", width: 6, value: |totals| totals.retransmits },
];
