//! Compares two lists of queue entries, entry by entry.

use bcnet_observe::PeerQueues;
use bcnet_transport::wire::{Channel, MessageId};

use super::super::dump_log::{DumpContent, DumpedEntry, DumpedQueue};

/// The differences between queues of a dump log and of a capture, each as a text.
#[derive(Debug, Default)]
pub(super) struct QueueDifference(pub(super) Vec<String>);

impl QueueDifference {
    /// Compares a dump with the queues of a capture.
    pub(super) fn of(what: &DumpContent, queues: &PeerQueues) -> Self {
        let DumpContent::Dump { retx, acks, .. } = what else { return Self::default() };
        let entry = |id: MessageId, retx, interval| DumpedEntry {
            seq: id.seq.0,
            part: id.fragment,
            channel: Some(id.channel),
            retx: Some(retx),
            interval,
        };
        let waiting = queues
            .retransmit
            .iter()
            .map(|message| entry(message.id, message.retransmissions, Some(message.interval.as_secs_f64())));
        let pending_acks = queues.acks.iter().map(|ack| entry(ack.id, ack.sends, None));
        let mut found = Self::default();
        found.compare_queue("retx", retx, &waiting.collect::<Vec<_>>());
        found.compare_queue("ack", acks, &pending_acks.collect::<Vec<_>>());
        found
    }

    /// Compares a logged retransmit queue with that of the capture, at the moment when an ACK was handled.
    pub(super) fn of_retransmit_queue(list: &DumpedQueue, waiting: &[MessageId]) -> Self {
        let entry = |id: &MessageId| DumpedEntry {
            seq: id.seq.0,
            part: id.fragment,
            channel: Some(id.channel),
            retx: None,
            interval: None,
        };
        let mut found = Self::default();
        if list.count != waiting.len() {
            found.0.push(format!("retxQ={} in the log, {} in the capture", list.count, waiting.len()));
        }
        if !list.entries.is_empty() {
            found.compare_queue("retx", list, &waiting.iter().map(entry).collect::<Vec<_>>());
        }
        found
    }

    /// Returns the difference for an ACK that the capture does not contain.
    pub(super) fn missing_ack() -> Self {
        Self(vec!["the capture has no such ACK at that time".into()])
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) const fn len(&self) -> usize {
        self.0.len()
    }

    fn compare_queue(&mut self, queue: &str, list: &DumpedQueue, capture: &[DumpedEntry]) {
        let before = self.0.len();
        for entry in &list.entries {
            match capture.iter().find(|other| other.is_same_message(entry)) {
                None => self.0.push(format!("{queue} {} only in the log", entry_text(entry))),
                Some(other) => self.compare_counts(queue, entry, other),
            }
        }
        if !list.is_truncated {
            for other in
                capture.iter().filter(|other| !list.entries.iter().any(|entry| entry.is_same_message(other)))
            {
                self.0.push(format!("{queue} {} only in the capture", entry_text(other)));
            }
        } else if list.count != capture.len() {
            self.0.push(format!(
                "{} {queue} entries in the log, {} in the capture",
                list.count,
                capture.len()
            ));
        }
        let places =
            list.entries.iter().map(|entry| capture.iter().position(|other| other.is_same_message(entry)));
        if self.0.len() == before && !places.is_sorted() {
            self.0.push(format!("the order of the {queue} entries differs"));
        }
    }

    fn compare_counts(&mut self, queue: &str, log: &DumpedEntry, capture: &DumpedEntry) {
        let counts = log.retx.zip(capture.retx).filter(|(one, other)| one != other);
        if let Some((one, other)) = counts {
            self.0.push(format!("{queue} {} retx={one} in the log, {other} in the capture", entry_text(log)));
        }
        let intervals = log.interval.zip(capture.interval).filter(|(one, other)| (one - other).abs() > 0.006);
        if let Some((one, other)) = intervals {
            self.0.push(format!(
                "{queue} {} intv={one:.2} in the log, {other:.2} in the capture",
                entry_text(log)
            ));
        }
    }
}

/// Returns whether an ACK of a log acknowledges this message.
pub(super) fn acknowledges(ack: &DumpedEntry, id: MessageId) -> bool {
    ack.seq == id.seq.0 && ack.part == id.fragment && ack.channel.is_none_or(|channel| channel == id.channel)
}

pub(super) fn entry_text(entry: &DumpedEntry) -> String {
    let part = entry.part.map_or_else(String::new, |part| format!(" idx={part}"));
    let below = entry
        .channel
        .map_or_else(String::new, |channel| format!(" below32={}", u8::from(channel == Channel::Control)));
    format!("seq=0x{:04X}{part}{below}", entry.seq)
}
