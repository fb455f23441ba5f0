//! Selects a bounded number of datagrams and findings that the report page shows with their bytes.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::net::SocketAddrV4;
use std::rc::Rc;

use bcnet_observe::{Content, ConversationId, Finding, FindingKind, MessageBuffer, Side};
use bcnet_transport::wire::{Channel, Message, MessageId, Seq};

use super::super::finding_counts::finding_title;

/// A datagram with its findings.
#[derive(Debug)]
pub(super) struct StoredDatagram {
    pub(super) number: u64,
    /// The time in microseconds.
    pub(super) at: u64,
    pub(super) from: SocketAddrV4,
    pub(super) to: SocketAddrV4,
    /// The conversation and the sender, if it belongs to one.
    pub(super) conversation: Option<(ConversationId, Side)>,
    /// The number of the datagram in its conversation.
    pub(super) index_in_conversation: u64,
    /// The full length; fewer bytes may be stored.
    pub(super) len: usize,
    /// The deciphered bytes.
    pub(super) bytes: Box<[u8]>,
    pub(super) comment: Option<Box<str>>,
    /// Descriptions of payloads whose last missing fragment is in this datagram.
    pub(super) reassembled: Vec<String>,
    pub(super) findings: RefCell<Vec<DatagramFindings>>,
}

/// Findings of one kind in one datagram.
#[derive(Debug)]
pub(super) struct DatagramFindings {
    pub(super) title: &'static str,
    pub(super) count: u64,
    pub(super) first: Finding,
}

impl StoredDatagram {
    /// Returns the bytes of a datagram that are stored.
    pub(super) fn truncate_bytes(bytes: &[u8]) -> Box<[u8]> {
        bytes.get(..MAX_BYTES).unwrap_or(bytes).into()
    }

    fn add_finding(&self, finding: &Finding) {
        let (title, mut found) = (finding_title(&finding.kind), self.findings.borrow_mut());
        match found.iter_mut().find(|known| known.title == title) {
            Some(known) => known.count += 1,
            None => found.push(DatagramFindings { title, count: 1, first: *finding }),
        }
    }
}

/// The latest datagrams, and the first.
#[derive(Debug, Default)]
pub(super) struct DatagramStore {
    latest: VecDeque<Rc<StoredDatagram>>,
    first: Vec<Rc<StoredDatagram>>,
}

impl DatagramStore {
    /// Stores a datagram for a while.
    ///
    /// The first datagrams of the capture and of each plotted conversation are kept to the end.
    pub(super) fn push(&mut self, kept: StoredDatagram, is_plotted: bool) {
        let kept = Rc::new(kept);
        if self.first.len() < MAX_FIRST
            || is_plotted && kept.index_in_conversation <= MAX_FIRST_PER_CONVERSATION
        {
            self.first.push(Rc::clone(&kept));
        }
        if self.latest.len() >= MAX_LATEST {
            self.latest.pop_front();
        }
        self.latest.push_back(kept);
    }

    /// Returns the datagrams that are kept to the end.
    pub(super) fn first(&self) -> &[Rc<StoredDatagram>] {
        &self.first
    }

    /// Adds a finding to its datagram, if it is stored.
    pub(super) fn add_finding(&self, finding: &Finding) {
        let latest = self.latest.binary_search_by_key(&finding.mark, |kept| kept.number);
        let latest = latest.ok().and_then(|at| self.latest.get(at));
        let first = || self.first.binary_search_by_key(&finding.mark, |kept| kept.number).ok();
        if let Some(kept) = latest.or_else(|| first().and_then(|at| self.first.get(at))) {
            kept.add_finding(finding);
        }
    }

    /// Returns the datagrams of a finding in their order, and the number of those left out.
    ///
    /// These are the datagram of the finding, those with its message, and their ACKs. A finding without a message gets
    /// the datagrams before it instead.
    pub(super) fn related_datagrams(&self, finding: &Finding) -> (Vec<Rc<StoredDatagram>>, u64) {
        let subject = FindingSubject::of(finding);
        let mut about: Vec<&Rc<StoredDatagram>> = Vec::new();
        let mut messages = MessageBuffer::default();
        let oldest = finding.at.as_micros().saturating_sub(MAX_LOOK_BACK);
        for kept in self.latest.iter().rev().take_while(|kept| kept.at >= oldest) {
            if kept.conversation.is_none_or(|(id, _)| id != finding.conversation) {
                continue;
            }
            let is_it = kept.number == finding.mark
                || match &subject {
                    Some(subject) => subject.is_in(kept, &mut messages),
                    None => kept.number < finding.mark && about.len() < MAX_PRECEDING,
                };
            if is_it {
                about.push(kept);
            }
        }
        about.reverse();
        let middle = MAX_RELATED / 2..about.len().saturating_sub(MAX_RELATED / 2).max(MAX_RELATED / 2);
        let is_kept =
            |(at, kept): &(usize, &&Rc<StoredDatagram>)| !middle.contains(at) || kept.number == finding.mark;
        let chosen: Vec<_> =
            about.iter().enumerate().filter(is_kept).map(|(_, kept)| Rc::clone(kept)).collect();
        let left_out = (about.len() - chosen.len()) as u64;
        (chosen, left_out)
    }
}

/// The message that a finding is about.
#[derive(Debug)]
struct FindingSubject {
    /// The sender.
    side: Side,
    channel: Channel,
    seq: Seq,
    /// `None` matches every fragment.
    part: Option<u8>,
}

impl FindingSubject {
    fn of(finding: &Finding) -> Option<Self> {
        let side = if finding.kind.is_about_ack() { finding.side.other() } else { finding.side };
        if let FindingKind::StuckFragments { seq, .. } = finding.kind {
            return Some(Self { side, channel: Channel::Game, seq, part: None });
        }
        let MessageId { channel, seq, fragment: part } = finding.kind.message_id()?;
        Some(Self { side, channel, seq, part })
    }

    /// Returns whether a datagram contains the message, or an ACK of it in any form.
    fn is_in<'a>(&self, kept: &'a StoredDatagram, messages: &mut MessageBuffer<'a>) -> bool {
        let is_sender = kept.conversation.is_some_and(|(_, side)| side == self.side);
        let Content::Datagram(datagram) = messages.read(&kept.bytes, None) else { return false };
        datagram.messages().iter().any(|message| {
            let id = match message {
                Message::Ack(ack) if !is_sender => Some(ack.id),
                Message::Data(_) | Message::Control(_) if is_sender => message.id(),
                Message::Ack(_) | Message::Data(_) | Message::Control(_) | Message::Keepalive => None,
            };
            id.is_some_and(|id| {
                let same_part = id.fragment == self.part || id.fragment.is_none() || self.part.is_none();
                (id.channel, id.seq) == (self.channel, self.seq) && same_part
            })
        })
    }
}

/// Evenly spaced samples of a stream. The more items there are, the larger the distance.
#[derive(Debug)]
pub(super) struct EvenSamples<T> {
    stride: u64,
    seen: u64,
    items: Vec<T>,
}

impl<T> Default for EvenSamples<T> {
    fn default() -> Self {
        Self { stride: 1, seen: 0, items: Vec::new() }
    }
}

impl<T> EvenSamples<T> {
    /// Offers the next item. It is created only if it is kept.
    pub(super) fn offer(&mut self, make: impl FnOnce() -> T) {
        let is_wanted = self.seen.is_multiple_of(self.stride);
        self.seen += 1;
        if !is_wanted {
            return;
        }
        if self.items.len() >= MAX_SAMPLES {
            let mut place = 0;
            self.items.retain(|_| {
                place += 1;
                place % 2 == 1
            });
            self.stride *= 2;
        }
        self.items.push(make());
    }

    pub(super) fn items(&self) -> &[T] {
        &self.items
    }
}

/// The most datagrams that are kept to the end: of the capture, and of each plotted conversation.
const MAX_FIRST: usize = 800;
const MAX_FIRST_PER_CONVERSATION: u64 = 20;
/// The most recent datagrams that findings can refer to.
const MAX_LATEST: usize = 1 << 13;
/// The longest time to look back, in microseconds: sequence numbers are reused.
const MAX_LOOK_BACK: u64 = 120_000_000;
/// The most bytes of a datagram that are stored. The game sends at most 512.
const MAX_BYTES: usize = 1500;
/// The most datagrams of a finding (an even number), and those before a finding without a message.
const MAX_RELATED: usize = 10;
const MAX_PRECEDING: usize = 4;
/// The most findings of a kind (an even number).
const MAX_SAMPLES: usize = 80;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_bounded_and_evenly_spaced() {
        let mut samples = EvenSamples::default();
        for number in 0..100_000_u32 {
            samples.offer(|| number);
        }
        let items = samples.items();
        assert!((MAX_SAMPLES / 2..=MAX_SAMPLES).contains(&items.len()), "{}", items.len());
        let distance = items[1];
        assert!(items.iter().zip(0..).all(|(item, place)| *item == place * distance), "{items:?}");
        assert!(items.last().is_some_and(|last| last + distance >= 100_000));
    }
}
