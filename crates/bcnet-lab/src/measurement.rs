//! The figures that scenarios expect and reports show.

use std::fmt;
use std::time::Duration;

use bcnet_transport::Time;

use crate::meter::{Log, Sent};
use crate::outcome::Outcome;
use crate::scenario::{PeerRef, Scenario, Wanted};
use crate::stock::ACK_ENTRY_BYTES;
use crate::totals::Totals;

/// A measurement of a run: what, of whom, when.
#[derive(Debug, Clone, PartialEq)]
pub struct Measurement {
    /// What is measured.
    pub metric: Metric,
    /// At or from which node; `None` is all together.
    pub node: Option<usize>,
    /// For which peer.
    pub peer: Option<PeerRef>,
    /// At which moment.
    pub at: Option<Time>,
    /// From this moment on.
    pub since: Option<Time>,
    /// Up to this moment.
    pub until: Option<Time>,
    /// Only for this part of split messages.
    pub part: Option<u8>,
}

impl Measurement {
    /// Returns the measurement, with whom and when, for people.
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
        if let Some(part) = self.part {
            text += &format!(", part {part}");
        }
        for (word, time) in [("at", self.at), ("from", self.since), ("to", self.until)] {
            if let Some(time) = time {
                text += &format!(" {word} {}", time.as_micros() as f64 / 1e6);
            }
        }
        text
    }
}

/// A number or several.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// One number.
    One(f64),
    /// Several, in order.
    Many(Vec<f64>),
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::One(value) => write!(f, "{}", Number(*value)),
            Self::Many(values) => {
                f.write_str("[")?;
                for (i, value) in values.iter().enumerate() {
                    write!(f, "{}{}", if i == 0 { "" } else { ", " }, Number(*value))?;
                }
                f.write_str("]")
            }
        }
    }
}

impl fmt::Display for Wanted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let give_or_take = |f: &mut fmt::Formatter<'_>, within: f64| match within {
            0.0 => Ok(()),
            _ => write!(f, " ± {within}"),
        };
        match self {
            Self::Is(value, within) => {
                write!(f, "{}", Number(*value))?;
                give_or_take(f, *within)
            }
            Self::Are(values, within) => {
                write!(f, "{}", Value::Many(values.clone()))?;
                give_or_take(f, *within)
            }
            Self::Between(min, max) if max.is_infinite() => write!(f, "at least {min}"),
            Self::Between(min, max) if min.is_infinite() => write!(f, "at most {max}"),
            Self::Between(min, max) => write!(f, "{min} to {max}"),
        }
    }
}

/// A number without more digits than matter.
struct Number(f64);

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.fract() == 0.0 { write!(f, "{}", self.0) } else { write!(f, "{:.3}", self.0) }
    }
}

macro_rules! metrics {
    ($($(#[doc = $about:literal])+ $source:ident($kind:ident) {
        $($(#[doc = $doc:literal])+ $metric:ident = $name:literal,)+
    })+) => {
        /// What can be measured, by where it is read from.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Metric {
            $($(#[doc = $about])+ $source($kind),)+
        }

        $($(#[doc = $about])+
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum $kind {
            $($(#[doc = $doc])+ $metric,)+
        })+

        impl Metric {
            /// All of them.
            pub const ALL: &'static [Self] = &[$($(Self::$source($kind::$metric),)+)+];

            /// Returns its name in scenario files.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $($(Self::$source($kind::$metric) => $name,)+)+
                }
            }
        }
    };
}

metrics! {
    /// From a dump of the queues.
    Queues(QueueMetric) {
        /// How often each ACK in the outbox was sent, in the order of the outbox.
        Acks = "acks",
        /// How often each message that waits for its ACK was sent again.
        Retx = "retx",
        /// The wait of each message that waits for its ACK, in seconds.
        Intervals = "intervals",
        /// The sequence numbers of the ACKs in the outbox.
        AckNumbers = "ack_numbers",
        /// How many ACKs are in the outbox.
        AckEntries = "ack_entries",
        /// What they took in the original, in bytes.
        AckMemory = "ack_memory",
        /// How many messages wait for their ACK.
        RetxEntries = "retx_entries",
        /// The sequence numbers of those, in the order of the queue.
        RetxNumbers = "retx_numbers",
        /// How many messages were not sent yet.
        FirstEntries = "first_entries",
        /// The sequence numbers of those, in the order of the queue; stock only.
        FirstNumbers = "first_numbers",
        /// Seconds since each of those was queued; stock only.
        FirstAges = "first_ages",
    }
    /// From the log of everything that was sent.
    Log(LogMetric) {
        /// The size of each datagram.
        DatagramSizes = "datagram_sizes",
        /// When each datagram was sent.
        DatagramTimes = "datagram_times",
        /// When each ACK was sent.
        AckTimes = "ack_times",
        /// When each reliable message or part was sent again.
        RetransmitTimes = "retransmit_times",
    }
    /// From the totals of a run or, for a stretch of it or one part of messages, from the log.
    Count(CountMetric) {
        /// Datagrams that were sent.
        Datagrams = "datagrams",
        /// Bytes of those, without IP and UDP.
        Bytes = "bytes",
        /// ACKs that were sent.
        AcksSent = "acks_sent",
        /// Bytes of those.
        AckBytes = "ack_bytes",
        /// Reliable messages and parts that were sent again.
        Retransmits = "retransmits",
        /// Keepalives that were sent.
        Keepalives = "keepalives",
    }
    /// From the totals of a run.
    Total(TotalMetric) {
        /// Bytes of ACKs that came.
        AckBytesTaken = "ack_bytes_taken",
        /// Bytes of ACKs per datagram sent.
        AckBytesPerDatagram = "ack_bytes_per_datagram",
        /// The most bytes of ACKs in one datagram.
        MaxAckBytes = "most_ack_bytes",
        /// The most messages in one datagram.
        MaxMessages = "most_messages",
        /// The most ACKs in one datagram.
        MaxAcks = "most_acks",
        /// Datagrams in which ACKs left no room for the largest message.
        Crowded = "crowded",
        /// ACKs that cleared a message that waited.
        UsefulAcks = "useful_acks",
        /// ACKs that cleared nothing.
        UselessAcks = "useless_acks",
        /// The share of ACKs that found nothing waiting at all.
        EmptyShare = "empty_share",
        /// Entries of lists that were compared; 0 for an engine that searches no lists.
        Comparisons = "comparisons",
        /// The same per second.
        ComparisonRate = "comparisons_per_second",
        /// The most ACKs that were in one outbox.
        PeakAcks = "peak_acks",
        /// How many ACKs were in one outbox on average.
        MeanAcks = "mean_acks",
        /// The most messages that waited for their ACK.
        PeakRetx = "peak_retx",
        /// How many messages waited for their ACK on average.
        MeanRetx = "mean_retx",
        /// The most messages for one peer that were not sent yet.
        PeakFirst = "peak_first",
        /// How many messages for one peer were not sent yet on average.
        MeanFirst = "mean_first",
        /// Seconds that the ACK was in an outbox that was there longest.
        LongestAck = "longest_ack",
        /// Payloads that were given to an engine and taken.
        PayloadsSent = "payloads_sent",
        /// Payloads that an engine refused.
        Refused = "refused",
        /// Payloads that were delivered.
        Delivered = "delivered",
        /// Reliable payloads, or such as became reliable, that were not delivered.
        Missing = "missing",
        /// Payloads that were delivered, but not as they were sent.
        Garbled = "garbled",
        /// Peers that were lost because nothing was heard of them.
        Silent = "silent",
        /// Bytes on the wire per payload delivered.
        BytesPerPayload = "bytes_per_payload",
        /// Nodes whose program would have ended.
        Crashed = "crashed",
    }
    /// From the delays of all payloads.
    Delay(DelayMetric) {
        /// Milliseconds from sending to delivery of reliable payloads, the median.
        DelayMedian = "delay_p50",
        /// The same, exceeded by one in a hundred.
        DelayP99 = "delay_p99",
        /// The same, the longest.
        DelayMax = "delay_max",
    }
}

impl Metric {
    /// Returns whether it is read from a dump.
    #[must_use]
    pub(crate) const fn is_of_queues(self) -> bool {
        matches!(self, Self::Queues(_))
    }
}

impl DelayMetric {
    /// Returns the share of payloads that are delivered within it.
    const fn share(self) -> f64 {
        match self {
            Self::DelayMedian => 0.5,
            Self::DelayP99 => 0.99,
            Self::DelayMax => 1.0,
        }
    }
}

impl Measurement {
    /// Returns whether the run must log everything that is sent.
    pub(crate) fn needs_log(&self) -> bool {
        matches!(self.metric, Metric::Log(_)) || self.is_narrowed()
    }

    /// Returns whether it is about less than a whole run, which totals do not tell.
    fn is_narrowed(&self) -> bool {
        self.since.is_some() || self.until.is_some() || self.part.is_some()
    }

    /// Reads the measurement from a run. `None` if there is nothing to read it from.
    #[must_use]
    pub(crate) fn of(&self, outcome: &Outcome) -> Option<Value> {
        match self.metric {
            Metric::Queues(metric) => self.of_queues(metric, outcome),
            Metric::Log(metric) => Some(Value::Many(self.of_log(metric, &outcome.log))),
            Metric::Count(metric) if self.is_narrowed() => {
                Some(Value::One(self.counted(metric, &outcome.log)))
            }
            Metric::Total(_) | Metric::Delay(_) if self.is_narrowed() => None,
            Metric::Count(metric) => {
                let total = self.totals(outcome)?;
                Some(Value::One(match metric {
                    CountMetric::Datagrams => total.datagrams,
                    CountMetric::Bytes => total.bytes,
                    CountMetric::AcksSent => total.acks,
                    CountMetric::AckBytes => total.ack_bytes,
                    CountMetric::Retransmits => total.retransmits,
                    CountMetric::Keepalives => total.keepalives,
                } as f64))
            }
            Metric::Total(metric) => {
                of_totals(metric, &self.totals(outcome)?, outcome.duration).map(Value::One)
            }
            Metric::Delay(metric) => outcome.delay(self.node, metric.share()).map(Value::One),
        }
    }

    fn totals(&self, outcome: &Outcome) -> Option<Totals> {
        match self.node {
            Some(node) => Some(outcome.nodes.get(node)?.totals),
            None => Some(outcome.total()),
        }
    }

    /// Reads the measurement from runs with different seeds: a delay from all payloads together, anything else as the
    /// mean. `None` if a run has no such number.
    #[must_use]
    pub fn of_all(&self, runs: &[Outcome]) -> Option<f64> {
        if let Metric::Delay(metric) = self.metric {
            return Outcome::pooled_delay(runs, self.node, metric.share());
        }
        let each = runs.iter().map(|run| match self.of(run) {
            Some(Value::One(value)) => Some(value),
            // Nothing waits for a peer that is not there.
            None if self.metric.is_of_queues() => Some(0.0),
            Some(Value::Many(_)) | None => None,
        });
        let each = each.collect::<Option<Vec<f64>>>()?;
        (!each.is_empty()).then(|| each.iter().sum::<f64>() / each.len() as f64)
    }

    fn of_queues(&self, metric: QueueMetric, outcome: &Outcome) -> Option<Value> {
        let (at, node) = (self.at?, self.node?);
        let mut taken = outcome.dumps.iter().filter(|dump| dump.at == at && dump.node == node);
        let dump = &taken.find(|dump| self.peer.is_none() || dump.asked == self.peer)?.dump;
        let acks = || dump.acks.iter();
        let retx = || dump.retx.iter();
        let first = || dump.first.iter();
        Some(match metric {
            QueueMetric::Acks => Value::Many(acks().map(|ack| f64::from(ack.retx)).collect()),
            QueueMetric::AckNumbers => Value::Many(acks().map(|ack| f64::from(ack.seq)).collect()),
            QueueMetric::Retx => Value::Many(retx().map(|entry| f64::from(entry.retx)).collect()),
            QueueMetric::Intervals => Value::Many(retx().map(|entry| f64::from(entry.interval)).collect()),
            QueueMetric::AckEntries => Value::One(dump.acks.len() as f64),
            QueueMetric::AckMemory => Value::One((dump.acks.len() * ACK_ENTRY_BYTES) as f64),
            QueueMetric::RetxEntries => Value::One(dump.retx.len() as f64),
            QueueMetric::RetxNumbers => Value::Many(retx().map(|entry| f64::from(entry.seq)).collect()),
            QueueMetric::FirstEntries => Value::One(dump.first_count as f64),
            QueueMetric::FirstNumbers => Value::Many(first().map(|entry| f64::from(entry.seq)).collect()),
            QueueMetric::FirstAges => Value::Many(first().map(|entry| f64::from(entry.age)).collect()),
        })
    }

    fn of_log(&self, metric: LogMetric, log: &[Log]) -> Vec<f64> {
        let times = |what| self.chosen(log, what).map(|entry| entry.at.as_micros() as f64 / 1e6).collect();
        match metric {
            LogMetric::DatagramSizes => {
                self.chosen(log, is_datagram).map(|entry| f64::from(entry.len)).collect()
            }
            LogMetric::DatagramTimes => times(is_datagram),
            LogMetric::AckTimes => times(is_ack),
            LogMetric::RetransmitTimes => times(is_again),
        }
    }

    fn counted(&self, metric: CountMetric, log: &[Log]) -> f64 {
        let count = |what| self.chosen(log, what).count() as f64;
        let bytes = |what| self.chosen(log, what).map(|entry| f64::from(entry.len)).sum();
        match metric {
            CountMetric::Datagrams => count(is_datagram),
            CountMetric::Bytes => bytes(is_datagram),
            CountMetric::AcksSent => count(is_ack),
            CountMetric::AckBytes => bytes(is_ack),
            CountMetric::Retransmits => count(is_again),
            CountMetric::Keepalives => count(|what| matches!(what, Sent::Keepalive)),
        }
    }

    /// Returns what the log has of a kind, as far as it is asked for.
    fn chosen<'a>(&'a self, log: &'a [Log], what: fn(&Sent) -> bool) -> impl Iterator<Item = &'a Log> {
        log.iter().filter(move |entry| {
            self.node.is_none_or(|node| entry.from == node)
                && self.since.is_none_or(|since| entry.at >= since)
                && self.until.is_none_or(|until| entry.at <= until)
                && what(&entry.what)
                && self.part.is_none_or(|part| entry.what.part() == Some(part))
        })
    }
}

const fn is_datagram(what: &Sent) -> bool {
    matches!(what, Sent::Datagram)
}

const fn is_ack(what: &Sent) -> bool {
    matches!(what, Sent::Ack(_))
}

const fn is_again(what: &Sent) -> bool {
    matches!(what, Sent::Again(_))
}

/// Reads what the totals of a run of that length tell.
fn of_totals(metric: TotalMetric, total: &Totals, duration: Duration) -> Option<f64> {
    let one = |value: u64| Some(value as f64);
    match metric {
        TotalMetric::AckBytesTaken => one(total.ack_bytes_taken),
        TotalMetric::AckBytesPerDatagram => ratio(total.ack_bytes, total.datagrams),
        TotalMetric::MaxAckBytes => one(total.max_ack_bytes),
        TotalMetric::MaxMessages => one(total.max_messages),
        TotalMetric::MaxAcks => one(total.max_acks),
        TotalMetric::Crowded => one(total.crowded),
        TotalMetric::UsefulAcks => one(total.useful_acks),
        TotalMetric::UselessAcks => one(total.useless_acks),
        TotalMetric::EmptyShare => ratio(total.empty_acks, total.useful_acks + total.useless_acks),
        TotalMetric::Comparisons => one(total.comparisons.unwrap_or(0)),
        TotalMetric::ComparisonRate => Some(total.comparisons.unwrap_or(0) as f64 / duration.as_secs_f64()),
        TotalMetric::PeakAcks => one(total.queues.peak_acks as u64),
        TotalMetric::MeanAcks => Some(total.queues.mean_acks()),
        TotalMetric::PeakRetx => one(total.queues.peak_retx as u64),
        TotalMetric::MeanRetx => Some(total.queues.mean_retx()),
        TotalMetric::PeakFirst => one(total.queues.peak_first as u64),
        TotalMetric::MeanFirst => Some(total.queues.mean_first()),
        TotalMetric::LongestAck => Some(total.longest_ack.as_secs_f64()),
        TotalMetric::PayloadsSent => one(total.payloads),
        TotalMetric::Refused => one(total.refused),
        TotalMetric::Delivered => one(total.delivered),
        TotalMetric::Missing => one(total.missing),
        TotalMetric::Garbled => one(total.garbled),
        TotalMetric::Silent => one(total.silent),
        TotalMetric::BytesPerPayload => ratio(total.bytes, total.delivered),
        TotalMetric::Crashed => one(total.crashed),
    }
}

fn ratio(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}
