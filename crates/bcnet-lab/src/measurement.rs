//! The figures that scenarios expect and reports show.

use std::fmt;
use std::time::Duration;

use bcnet_transport::Time;

use crate::meter::{Log, Sent};
use crate::outcome::Outcome;
use crate::scenario::{PeerRef, Scenario, Wanted};
use crate::stock::{ACK_ENTRY_BYTES, Dump};
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
    ($($(#[doc = $about:literal])+ $source:ident($kind:ident: $reader:ty) {
        $($(#[doc = $doc:literal])+ $metric:ident = $name:literal => $read:expr,)+
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
        }

        impl $kind {
            /// Returns how it is read.
            fn reader(self) -> $reader {
                match self {
                    $(Self::$metric => $read,)+
                }
            }
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

/// Which entries of the log it is about, and what is read from each.
type LogReader = (fn(&Sent) -> bool, fn(&Log) -> f64);
/// The total of a run; and which entries of the log it is about, and what each adds.
type CountReader = (fn(&Totals) -> u64, fn(&Sent) -> bool, fn(&Log) -> f64);

metrics! {
    /// From a dump of the queues.
    Queues(QueueMetric: fn(&Dump) -> Value) {
        /// How often each ACK in the outbox was sent, in the order of the outbox.
        Acks = "acks" => |dump| many(&dump.acks, |ack| f64::from(ack.retx)),
        /// How often each message that waits for its ACK was sent again.
        Retx = "retx" => |dump| many(&dump.retx, |entry| f64::from(entry.retx)),
        /// The wait of each message that waits for its ACK, in seconds.
        Intervals = "intervals" => |dump| many(&dump.retx, |entry| f64::from(entry.interval)),
        /// The sequence numbers of the ACKs in the outbox.
        AckNumbers = "ack_numbers" => |dump| many(&dump.acks, |ack| f64::from(ack.seq)),
        /// How many ACKs are in the outbox.
        AckEntries = "ack_entries" => |dump| Value::One(dump.acks.len() as f64),
        /// What they took in the original, in bytes.
        AckMemory = "ack_memory" => |dump| Value::One((dump.acks.len() * ACK_ENTRY_BYTES) as f64),
        /// How many messages wait for their ACK.
        RetxEntries = "retx_entries" => |dump| Value::One(dump.retx.len() as f64),
        /// The sequence numbers of those, in the order of the queue.
        RetxNumbers = "retx_numbers" => |dump| many(&dump.retx, |entry| f64::from(entry.seq)),
        /// How many messages were not sent yet.
        FirstEntries = "first_entries" => |dump| Value::One(dump.first_count as f64),
        /// The sequence numbers of those, in the order of the queue; stock only.
        FirstNumbers = "first_numbers" => |dump| many(&dump.first, |entry| f64::from(entry.seq)),
        /// Seconds since each of those was queued; stock only.
        FirstAges = "first_ages" => |dump| many(&dump.first, |entry| f64::from(entry.age)),
    }
    /// From the log of everything that was sent.
    Log(LogMetric: LogReader) {
        /// The size of each datagram.
        DatagramSizes = "datagram_sizes" => (is_datagram, |entry| f64::from(entry.len)),
        /// When each datagram was sent.
        DatagramTimes = "datagram_times" => (is_datagram, Log::seconds),
        /// When each ACK was sent.
        AckTimes = "ack_times" => (is_ack, Log::seconds),
        /// When each reliable message or part was sent again.
        RetransmitTimes = "retransmit_times" => (is_again, Log::seconds),
    }
    /// From the totals of a run or, for a stretch of it or one part of messages, from the log.
    Count(CountMetric: CountReader) {
        /// Datagrams that were sent.
        Datagrams = "datagrams" => (|total| total.datagrams, is_datagram, one_each),
        /// Bytes of those, without IP and UDP.
        Bytes = "bytes" => (|total| total.bytes, is_datagram, its_bytes),
        /// ACKs that were sent.
        AcksSent = "acks_sent" => (|total| total.acks, is_ack, one_each),
        /// Bytes of those.
        AckBytes = "ack_bytes" => (|total| total.ack_bytes, is_ack, its_bytes),
        /// Reliable messages and parts that were sent again.
        Retransmits = "retransmits" => (|total| total.retransmits, is_again, one_each),
        /// Keepalives that were sent.
        Keepalives = "keepalives" => (|total| total.keepalives, is_keepalive, one_each),
    }
    /// From the totals of a run.
    Total(TotalMetric: fn(&Totals, Duration) -> Option<f64>) {
        /// Bytes of ACKs that came.
        AckBytesTaken = "ack_bytes_taken" => |total, _| one(total.ack_bytes_taken),
        /// Bytes of ACKs per datagram sent.
        AckBytesPerDatagram = "ack_bytes_per_datagram" => |total, _| ratio(total.ack_bytes, total.datagrams),
        /// The most bytes of ACKs in one datagram.
        MaxAckBytes = "most_ack_bytes" => |total, _| one(total.max_ack_bytes),
        /// The most messages in one datagram.
        MaxMessages = "most_messages" => |total, _| one(total.max_messages),
        /// The most ACKs in one datagram.
        MaxAcks = "most_acks" => |total, _| one(total.max_acks),
        /// Datagrams in which ACKs left no room for the largest message.
        Crowded = "crowded" => |total, _| one(total.crowded),
        /// ACKs that cleared a message that waited.
        UsefulAcks = "useful_acks" => |total, _| one(total.useful_acks),
        /// ACKs that cleared nothing.
        UselessAcks = "useless_acks" => |total, _| one(total.useless_acks),
        /// The share of ACKs that found nothing waiting at all.
        EmptyShare = "empty_share" => |total, _| ratio(total.empty_acks, total.useful_acks + total.useless_acks),
        /// Entries of lists that were compared; 0 for an engine that searches no lists.
        Comparisons = "comparisons" => |total, _| one(total.comparisons.unwrap_or(0)),
        /// The same per second.
        ComparisonRate = "comparisons_per_second" => |total, time| Some(total.comparisons.unwrap_or(0) as f64 / time.as_secs_f64()),
        /// The most ACKs that were in one outbox.
        PeakAcks = "peak_acks" => |total, _| one(total.queues.peak_acks as u64),
        /// How many ACKs were in one outbox on average.
        MeanAcks = "mean_acks" => |total, _| Some(total.queues.mean_acks()),
        /// The most messages that waited for their ACK.
        PeakRetx = "peak_retx" => |total, _| one(total.queues.peak_retx as u64),
        /// How many messages waited for their ACK on average.
        MeanRetx = "mean_retx" => |total, _| Some(total.queues.mean_retx()),
        /// The most messages for one peer that were not sent yet.
        PeakFirst = "peak_first" => |total, _| one(total.queues.peak_first as u64),
        /// How many messages for one peer were not sent yet on average.
        MeanFirst = "mean_first" => |total, _| Some(total.queues.mean_first()),
        /// Seconds that the ACK was in an outbox that was there longest.
        LongestAck = "longest_ack" => |total, _| Some(total.longest_ack.as_secs_f64()),
        /// Payloads that were given to an engine and taken.
        PayloadsSent = "payloads_sent" => |total, _| one(total.payloads),
        /// Payloads that an engine refused.
        Refused = "refused" => |total, _| one(total.refused),
        /// Payloads that were delivered.
        Delivered = "delivered" => |total, _| one(total.delivered),
        /// Reliable payloads, or such as became reliable, that were not delivered.
        Missing = "missing" => |total, _| one(total.missing),
        /// Payloads that were delivered, but not as they were sent.
        Garbled = "garbled" => |total, _| one(total.garbled),
        /// Peers that were lost because nothing was heard of them.
        Silent = "silent" => |total, _| one(total.silent),
        /// Bytes on the wire per payload delivered.
        BytesPerPayload = "bytes_per_payload" => |total, _| ratio(total.bytes, total.delivered),
        /// Nodes whose program would have ended.
        Crashed = "crashed" => |total, _| one(total.crashed),
    }
    /// From the delays of all payloads.
    Delay(DelayMetric: f64) {
        /// Milliseconds from sending to delivery of reliable payloads, the median.
        DelayMedian = "delay_p50" => 0.5,
        /// The same, exceeded by one in a hundred.
        DelayP99 = "delay_p99" => 0.99,
        /// The same, the longest.
        DelayMax = "delay_max" => 1.0,
    }
}

impl Metric {
    /// Returns whether it is read from a dump.
    #[must_use]
    pub(crate) const fn is_of_queues(self) -> bool {
        matches!(self, Self::Queues(_))
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
            Metric::Queues(metric) => self.dump(outcome).map(metric.reader()),
            Metric::Log(metric) => {
                let (what, figure) = metric.reader();
                Some(Value::Many(self.chosen(&outcome.log, what).map(figure).collect()))
            }
            Metric::Count(metric) => {
                let (total, what, amount) = metric.reader();
                Some(Value::One(if self.is_narrowed() {
                    self.chosen(&outcome.log, what).map(amount).sum()
                } else {
                    total(&self.totals(outcome)?) as f64
                }))
            }
            Metric::Total(_) | Metric::Delay(_) if self.is_narrowed() => None,
            Metric::Total(metric) => {
                metric.reader()(&self.totals(outcome)?, outcome.duration).map(Value::One)
            }
            Metric::Delay(metric) => outcome.delay(self.node, metric.reader()).map(Value::One),
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
            return Outcome::pooled_delay(runs, self.node, metric.reader());
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

    /// Returns the dump that it is read from.
    fn dump<'a>(&self, outcome: &'a Outcome) -> Option<&'a Dump> {
        let (at, node) = (self.at?, self.node?);
        let mut taken = outcome.dumps.iter().filter(|dump| dump.at == at && dump.node == node);
        Some(&taken.find(|dump| self.peer.is_none() || dump.asked == self.peer)?.dump)
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

const fn is_keepalive(what: &Sent) -> bool {
    matches!(what, Sent::Keepalive)
}

/// What an entry of the log adds to a count.
const fn one_each(_: &Log) -> f64 {
    1.0
}

/// What an entry of the log adds to a number of bytes.
fn its_bytes(entry: &Log) -> f64 {
    f64::from(entry.len)
}

fn many<T>(entries: &[T], figure: fn(&T) -> f64) -> Value {
    Value::Many(entries.iter().map(figure).collect())
}

#[allow(clippy::unnecessary_wraps, reason = "some totals tell nothing, and all are read alike")]
const fn one(value: u64) -> Option<f64> {
    Some(value as f64)
}

fn ratio(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}
