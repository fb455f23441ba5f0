//! The values that scenarios check and reports show.
//!
//! A [`Measurement`] names a [`Metric`], a node and a time. It is read from a
//! [`RunSummary`] after the run; [`Meter`](crate::meter::Meter) collects the data during the run.

use std::fmt;
use std::time::Duration;

use bcnet_transport::Time;

use crate::counters::RunCounters;
use crate::meter::{SendLogEntry, SentItem};
use crate::run_summary::RunSummary;
use crate::scenario::{ExpectedValue, PeerRef, Scenario};
use crate::stock::{ACK_ENTRY_BYTES, PeerQueueDump};

/// A measurement of a run: a metric, a node, and a time.
#[derive(Debug, Clone, PartialEq)]
pub struct Measurement {
    /// The metric.
    pub metric: Metric,
    /// The node; `None` is the sum over all nodes.
    pub node: Option<usize>,
    /// The peer whose queues are read; `None` reads the first dump of that node and time.
    pub peer: Option<PeerRef>,
    /// Time of the dump that is read.
    pub at: Option<Time>,
    /// Start of the measured interval.
    pub since: Option<Time>,
    /// End of the measured interval.
    pub until: Option<Time>,
    /// Restricts the measurement to one fragment number.
    pub part: Option<u8>,
}

impl Measurement {
    /// Returns a description for people: metric, node, peer and time.
    #[must_use]
    pub(crate) fn describe(&self, scenario: &Scenario) -> String {
        let name = |node: usize| scenario.nodes.get(node).map_or("?", |node| node.name.as_str());
        let mut text = self.metric.name().to_owned();
        if let Some(node) = self.node {
            text += &format!(" of {}", name(node));
        }
        match self.peer {
            Some(PeerRef::Node(node)) => text += &format!(" for {}", name(node)),
            Some(PeerRef::Id(id)) => text += &format!(" for peer {}", id.0),
            None => {}
        }
        if let Some(fragment) = self.part {
            text += &format!(", part {fragment}");
        }
        for (preposition, time) in [("at", self.at), ("from", self.since), ("to", self.until)] {
            if let Some(time) = time {
                text += &format!(" {preposition} {}", time.as_micros() as f64 / 1e6);
            }
        }
        text
    }
}

/// One number or a list of numbers.
#[derive(Debug, Clone, PartialEq)]
pub enum MeasuredValue {
    /// One number.
    One(f64),
    /// A list, in order.
    Many(Vec<f64>),
}

impl fmt::Display for MeasuredValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::One(value) => write!(f, "{}", ShortNumber(*value)),
            Self::Many(values) => {
                f.write_str("[")?;
                for (i, value) in values.iter().enumerate() {
                    write!(f, "{}{}", if i == 0 { "" } else { ", " }, ShortNumber(*value))?;
                }
                f.write_str("]")
            }
        }
    }
}

impl fmt::Display for ExpectedValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let write_tolerance = |f: &mut fmt::Formatter<'_>, within: f64| match within {
            0.0 => Ok(()),
            _ => write!(f, " ± {within}"),
        };
        match self {
            Self::Near(value, within) => {
                write!(f, "{}", ShortNumber(*value))?;
                write_tolerance(f, *within)
            }
            Self::AllNear(values, within) => {
                write!(f, "{}", MeasuredValue::Many(values.clone()))?;
                write_tolerance(f, *within)
            }
            Self::Between(min, max) if max.is_infinite() => write!(f, "at least {min}"),
            Self::Between(min, max) if min.is_infinite() => write!(f, "at most {max}"),
            Self::Between(min, max) => write!(f, "{min} to {max}"),
        }
    }
}

/// A number that is printed with at most three decimals.
struct ShortNumber(f64);

impl fmt::Display for ShortNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.fract() == 0.0 { write!(f, "{}", self.0) } else { write!(f, "{:.3}", self.0) }
    }
}

macro_rules! metrics {
    ($($(#[doc = $about:literal])+ $source:ident($kind:ident: $reader:ty) {
        $($(#[doc = $doc:literal])+ $metric:ident = $name:literal => $read:expr,)+
    })+) => {
        /// Everything that can be measured, grouped by source.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Metric {
            $($(#[doc = $about])+ $source($kind),)+
        }

        $($(#[doc = $about])+
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum $kind {
            $($(#[doc = $doc])+ $metric,)+
        }

        impl $kind {
            /// Returns the function that reads the metric.
            fn reader(self) -> $reader {
                match self {
                    $(Self::$metric => $read,)+
                }
            }
        })+

        impl Metric {
            /// All metrics.
            pub const ALL: &'static [Self] = &[$($(Self::$source($kind::$metric),)+)+];

            /// Returns the name of the metric in scenario files.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $($(Self::$source($kind::$metric) => $name,)+)+
                }
            }
        }
    };
}

/// Filter for log entries, and the value read from each.
type LogReader = (fn(&SentItem) -> bool, fn(&SendLogEntry) -> f64);
/// Reads a counter of the whole run. For a part of the run: the filter for log entries, and the amount of each entry.
type CountReader = (fn(&RunCounters) -> u64, fn(&SentItem) -> bool, fn(&SendLogEntry) -> f64);

metrics! {
    /// Read from a dump of the queues.
    Queues(QueueMetric: fn(&PeerQueueDump) -> MeasuredValue) {
        /// Number of sends of each ACK in the outbox, in outbox order; always 0 for bcnet.
        Acks = "acks" => |dump| value_list(&dump.acks, |ack| f64::from(ack.retx)),
        /// Number of retransmissions of each unacknowledged message.
        Retx = "retx" => |dump| value_list(&dump.retx, |entry| f64::from(entry.retx)),
        /// Retransmission timeout of each unacknowledged message, in seconds.
        Intervals = "intervals" => |dump| value_list(&dump.retx, |entry| f64::from(entry.interval)),
        /// The sequence numbers of the ACKs in the outbox.
        AckNumbers = "ack_numbers" => |dump| value_list(&dump.acks, |ack| f64::from(ack.seq)),
        /// Number of ACKs in the outbox.
        AckEntries = "ack_entries" => |dump| MeasuredValue::One(dump.acks.len() as f64),
        /// Memory that the ACKs in the outbox take in stock, in bytes.
        AckMemory = "ack_memory" => |dump| MeasuredValue::One((dump.acks.len() * ACK_ENTRY_BYTES) as f64),
        /// Number of unacknowledged messages.
        RetxEntries = "retx_entries" => |dump| MeasuredValue::One(dump.retx.len() as f64),
        /// The sequence numbers of the unacknowledged messages, in queue order.
        RetxNumbers = "retx_numbers" => |dump| value_list(&dump.retx, |entry| f64::from(entry.seq)),
        /// Number of unsent messages.
        FirstEntries = "first_entries" => |dump| MeasuredValue::One(dump.first_count as f64),
        /// The sequence numbers of the unsent messages, in queue order; an empty list for bcnet.
        FirstNumbers = "first_numbers" => |dump| value_list(&dump.first, |entry| f64::from(entry.seq)),
        /// Seconds since each unsent message was queued; an empty list for bcnet.
        FirstAges = "first_ages" => |dump| value_list(&dump.first, |entry| f64::from(entry.age)),
    }
    /// Read from the log of everything that was sent.
    Log(LogMetric: LogReader) {
        /// The size of each datagram.
        DatagramSizes = "datagram_sizes" => (is_datagram, |entry| f64::from(entry.len)),
        /// Send time of each datagram.
        DatagramTimes = "datagram_times" => (is_datagram, SendLogEntry::seconds),
        /// Send time of each ACK.
        AckTimes = "ack_times" => (is_ack, SendLogEntry::seconds),
        /// Time of each retransmission of a reliable message or fragment.
        RetransmitTimes = "retransmit_times" => (is_retransmission, SendLogEntry::seconds),
    }
    /// Read from the counters of a run or, for an interval or one fragment number, from the log.
    Count(CountMetric: CountReader) {
        /// Datagrams sent.
        Datagrams = "datagrams" => (|total| total.datagrams, is_datagram, count_one),
        /// Bytes of the datagrams sent, without IP and UDP headers.
        Bytes = "bytes" => (|total| total.bytes, is_datagram, entry_bytes),
        /// ACKs sent.
        AcksSent = "acks_sent" => (|total| total.acks, is_ack, count_one),
        /// Bytes of the ACKs sent.
        AckBytes = "ack_bytes" => (|total| total.ack_bytes, is_ack, entry_bytes),
        /// Retransmissions of reliable messages and fragments.
        Retransmits = "retransmits" => (|total| total.retransmits, is_retransmission, count_one),
        /// Keepalives sent.
        Keepalives = "keepalives" => (|total| total.keepalives, is_keepalive, count_one),
    }
    /// Read from the counters of a run.
    Total(TotalMetric: fn(&RunCounters, Duration) -> Option<f64>) {
        /// Bytes of ACKs received.
        AckBytesTaken = "ack_bytes_taken" => |total, _| count_value(total.ack_bytes_taken),
        /// Bytes of ACKs per datagram sent.
        AckBytesPerDatagram = "ack_bytes_per_datagram" => |total, _| ratio(total.ack_bytes, total.datagrams),
        /// The most bytes of ACKs in one datagram.
        MaxAckBytes = "most_ack_bytes" => |total, _| count_value(total.max_ack_bytes),
        /// The most messages in one datagram.
        MaxMessages = "most_messages" => |total, _| count_value(total.max_messages),
        /// The most ACKs in one datagram.
        MaxAcks = "most_acks" => |total, _| count_value(total.max_acks),
        /// Datagrams whose ACKs left no space for the largest message.
        Crowded = "crowded" => |total, _| count_value(total.crowded),
        /// ACKs that removed an unacknowledged message.
        UsefulAcks = "useful_acks" => |total, _| count_value(total.useful_acks),
        /// ACKs that removed no message.
        UselessAcks = "useless_acks" => |total, _| count_value(total.useless_acks),
        /// Fraction of received ACKs whose receiver had no unacknowledged message for the sender.
        EmptyShare = "empty_share" => |total, _| ratio(total.empty_acks, total.useful_acks + total.useless_acks),
        /// Entries that the engine compared while it searched its queues; 0 for bcnet, which searches none.
        Comparisons = "comparisons" => |total, _| count_value(total.comparisons.unwrap_or(0)),
        /// Entries that the engine compared in its queues, per second.
        ComparisonRate = "comparisons_per_second" => |total, time| Some(total.comparisons.unwrap_or(0) as f64 / time.as_secs_f64()),
        /// The most ACKs in one outbox.
        PeakAcks = "peak_acks" => |total, _| count_value(total.queues.peak_acks as u64),
        /// Mean number of ACKs in one outbox.
        MeanAcks = "mean_acks" => |total, _| Some(total.queues.mean_acks()),
        /// The most unacknowledged messages for one peer.
        PeakRetx = "peak_retx" => |total, _| count_value(total.queues.peak_retx as u64),
        /// Mean number of unacknowledged messages for one peer.
        MeanRetx = "mean_retx" => |total, _| Some(total.queues.mean_retx()),
        /// The most unsent messages for one peer.
        PeakFirst = "peak_first" => |total, _| count_value(total.queues.peak_first as u64),
        /// Mean number of unsent messages for one peer.
        MeanFirst = "mean_first" => |total, _| Some(total.queues.mean_first()),
        /// Longest lifetime of an ACK in an outbox, in seconds.
        LongestAck = "longest_ack" => |total, _| Some(total.longest_ack.as_secs_f64()),
        /// Payloads that an engine accepted for sending.
        PayloadsSent = "payloads_sent" => |total, _| count_value(total.payloads),
        /// Payloads that an engine refused.
        Refused = "refused" => |total, _| count_value(total.refused),
        /// Payloads delivered.
        Delivered = "delivered" => |total, _| count_value(total.delivered),
        /// Payloads that were not delivered, although they were sent reliably.
        Missing = "missing" => |total, _| count_value(total.missing),
        /// Payloads delivered with changed bytes.
        Garbled = "garbled" => |total, _| count_value(total.garbled),
        /// Peers removed after a timeout.
        Silent = "silent" => |total, _| count_value(total.silent),
        /// Bytes on the wire per payload delivered.
        BytesPerPayload = "bytes_per_payload" => |total, _| ratio(total.bytes, total.delivered),
        /// Nodes whose modelled program crashed.
        Crashed = "crashed" => |total, _| count_value(total.crashed),
    }
    /// Read from the delays of all reliable payloads that were delivered.
    Delay(DelayMetric: f64) {
        /// Delay from sending to delivery of reliable payloads, in milliseconds: the median.
        DelayMedian = "delay_p50" => 0.5,
        /// The same delay: the 99th percentile.
        DelayP99 = "delay_p99" => 0.99,
        /// The same delay: the maximum.
        DelayMax = "delay_max" => 1.0,
    }
}

impl Metric {
    /// Returns whether the metric is read from a dump.
    #[must_use]
    pub(crate) const fn reads_dump(self) -> bool {
        matches!(self, Self::Queues(_))
    }
}

impl Measurement {
    /// Returns whether the run must log everything that is sent.
    pub(crate) fn needs_log(&self) -> bool {
        matches!(self.metric, Metric::Log(_)) || self.covers_part_of_run()
    }

    /// Returns whether the measurement covers less than a whole run, so that the counters cannot answer it.
    fn covers_part_of_run(&self) -> bool {
        self.since.is_some() || self.until.is_some() || self.part.is_some()
    }

    /// Reads the measurement from a run. Returns `None` if the run has no data for it.
    #[must_use]
    pub(crate) fn evaluate(&self, summary: &RunSummary) -> Option<MeasuredValue> {
        match self.metric {
            Metric::Queues(metric) => self.find_dump(summary).map(metric.reader()),
            Metric::Log(metric) => {
                let (filter, value) = metric.reader();
                Some(MeasuredValue::Many(
                    self.matching_log_entries(&summary.send_log, filter).map(value).collect(),
                ))
            }
            Metric::Count(metric) => {
                let (total, filter, amount) = metric.reader();
                Some(MeasuredValue::One(if self.covers_part_of_run() {
                    self.matching_log_entries(&summary.send_log, filter).map(amount).sum()
                } else {
                    total(&self.counters(summary)?) as f64
                }))
            }
            Metric::Total(_) | Metric::Delay(_) if self.covers_part_of_run() => None,
            Metric::Total(metric) => {
                metric.reader()(&self.counters(summary)?, summary.duration).map(MeasuredValue::One)
            }
            Metric::Delay(metric) => {
                summary.delay_quantile(self.node, metric.reader()).map(MeasuredValue::One)
            }
        }
    }

    fn counters(&self, summary: &RunSummary) -> Option<RunCounters> {
        match self.node {
            Some(node) => Some(summary.nodes.get(node)?.counters),
            None => Some(summary.total_counters()),
        }
    }

    /// Reads the measurement from several runs.
    ///
    /// A delay is computed over the payloads of all runs. Any other metric is the mean of the runs. Returns `None` if a
    /// run has no value.
    #[must_use]
    pub fn evaluate_runs(&self, runs: &[RunSummary]) -> Option<f64> {
        if let Metric::Delay(metric) = self.metric {
            return RunSummary::pooled_delay_quantile(runs, self.node, metric.reader());
        }
        let each = runs.iter().map(|run| match self.evaluate(run) {
            Some(MeasuredValue::One(value)) => Some(value),
            // A peer without a dump has empty queues.
            None if self.metric.reads_dump() => Some(0.0),
            Some(MeasuredValue::Many(_)) | None => None,
        });
        let each = each.collect::<Option<Vec<f64>>>()?;
        (!each.is_empty()).then(|| each.iter().sum::<f64>() / each.len() as f64)
    }

    /// Returns the dump that the measurement is read from.
    fn find_dump<'a>(&self, summary: &'a RunSummary) -> Option<&'a PeerQueueDump> {
        let (at, node) = (self.at?, self.node?);
        let mut taken = summary.dumps.iter().filter(|dump| dump.at == at && dump.node == node);
        Some(&taken.find(|dump| self.peer.is_none() || dump.requested_peer == self.peer)?.dump)
    }

    /// Returns the log entries that pass the filter and match the measurement.
    fn matching_log_entries<'a>(
        &'a self,
        log: &'a [SendLogEntry],
        filter: fn(&SentItem) -> bool,
    ) -> impl Iterator<Item = &'a SendLogEntry> {
        log.iter().filter(move |entry| {
            self.node.is_none_or(|node| entry.from == node)
                && self.since.is_none_or(|since| entry.at >= since)
                && self.until.is_none_or(|until| entry.at <= until)
                && filter(&entry.item)
                && self.part.is_none_or(|fragment| entry.item.fragment() == Some(fragment))
        })
    }
}

const fn is_datagram(item: &SentItem) -> bool {
    matches!(item, SentItem::Datagram)
}

const fn is_ack(item: &SentItem) -> bool {
    matches!(item, SentItem::Ack(_))
}

const fn is_retransmission(item: &SentItem) -> bool {
    matches!(item, SentItem::Retransmission(_))
}

const fn is_keepalive(item: &SentItem) -> bool {
    matches!(item, SentItem::Keepalive)
}

/// Returns 1: each log entry counts once.
const fn count_one(_: &SendLogEntry) -> f64 {
    1.0
}

/// Returns the bytes of a log entry.
fn entry_bytes(entry: &SendLogEntry) -> f64 {
    f64::from(entry.len)
}

fn value_list<T>(entries: &[T], value: fn(&T) -> f64) -> MeasuredValue {
    MeasuredValue::Many(entries.iter().map(value).collect())
}

#[allow(clippy::unnecessary_wraps, reason = "all readers share one type, and some have no value")]
const fn count_value(value: u64) -> Option<f64> {
    Some(value as f64)
}

fn ratio(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}
