//! Holds datagrams back until all findings about them are known.
//!
//! The cause of a retransmission is often known only when its ACK comes, or does not come. A [`DatagramOutput`] gets
//! each datagram with all its findings, in the order of the capture. A datagram whose findings are not final is held
//! back, and all datagrams after it too.
//!
//! Memory is bounded: the observer must decide after [`MAX_DELAY`], or when more than [`MAX_BYTES`] are held. Datagrams
//! that need not be held back are not copied.

use std::collections::VecDeque;
use std::io;
use std::mem;
use std::time::Duration;

use bcnet_observe::{
    Content, ConversationId, Finding, MessageBuffer, NO_MARK, Observed, Observer, ParsedDatagram, Side,
};
use bcnet_transport::Time;
use bcnet_transport::wire::{PeerId, WireError};

use super::{AnalyzedDatagram, CaptureEnd, PacketInfo, PacketLocation, Sink};

/// A datagram with all its findings.
pub(super) struct DatagramWithFindings<'a> {
    pub(super) packet: &'a PacketInfo,
    pub(super) content: DatagramContent<'a>,
    pub(super) findings: &'a [Finding],
}

/// The content of a datagram that is shown.
#[derive(Debug, Clone, Copy)]
pub(super) enum DatagramContent<'a> {
    /// A datagram of a conversation, with its bytes.
    Datagram(&'a ParsedDatagram<'a>, ConversationRef),
    GameSpy(&'a [u8]),
    Malformed(WireError, &'a [u8]),
}

/// The position of a datagram in a conversation.
#[derive(Debug, Clone, Copy)]
pub(super) struct ConversationRef {
    pub(super) id: ConversationId,
    /// The sender.
    pub(super) side: Side,
    /// The peer id of the receiver, if it was known at that time.
    pub(super) receiver: Option<PeerId>,
}

/// A finding that belongs to no datagram, or to one that was shown already.
#[derive(Debug, Clone, Copy)]
pub(super) struct DetachedFinding {
    pub(super) finding: Finding,
    /// The position of the datagram that the finding is about.
    pub(super) location: Option<PacketLocation>,
    /// The peer ids of the two sides, if they were known at that time.
    pub(super) peer_ids: [Option<PeerId>; 2],
}

/// An output that shows datagrams one by one.
pub(super) trait DatagramOutput {
    fn show(&mut self, shown: &DatagramWithFindings<'_>) -> io::Result<()>;
    /// Shows a finding that belongs to no datagram, or to one that was shown before.
    fn show_finding(&mut self, detached: &DetachedFinding) -> io::Result<()>;
    /// Ends the output.
    fn finish(&mut self, end: &CaptureEnd<'_>) -> io::Result<()>;
}

/// Holds datagrams back until their findings are final, then passes them to the output.
pub(super) struct DelayedOutput<S> {
    output: S,
    /// True if datagrams are shown at once. Later findings are then shown separately.
    is_immediate: bool,
    delayed: VecDeque<DelayedItem>,
    /// The bytes of all held datagrams, after `shown_bytes` bytes of datagrams that were already shown.
    bytes: Vec<u8>,
    shown_bytes: usize,
    messages: MessageBuffer<'static>,
    /// True if findings came since the last check of the first held datagram.
    has_new_findings: bool,
}

enum DelayedItem {
    Datagram { packet: PacketInfo, len: usize, conversation: Option<ConversationRef>, findings: Vec<Finding> },
    Finding(DetachedFinding),
}

impl<S: DatagramOutput> DelayedOutput<S> {
    pub(super) fn new(shows: S, at_once: bool) -> Self {
        Self {
            output: shows,
            is_immediate: at_once,
            delayed: VecDeque::new(),
            bytes: Vec::new(),
            shown_bytes: 0,
            messages: MessageBuffer::default(),
            has_new_findings: false,
        }
    }

    fn delay(&mut self, analyzed: &AnalyzedDatagram<'_>, conversation: Option<ConversationRef>) {
        self.bytes.extend_from_slice(analyzed.bytes);
        self.delayed.push_back(DelayedItem::Datagram {
            packet: analyzed.packet.clone(),
            len: analyzed.bytes.len(),
            conversation,
            findings: analyzed.findings.to_vec(),
        });
    }

    /// Returns whether the first held datagram may be final now.
    ///
    /// Three events can make it final: a datagram of the same conversation, a new finding, or the end of the longest delay.
    fn may_release(&self, analyzed: &AnalyzedDatagram<'_>, conversation: Option<ConversationRef>) -> bool {
        let Some(DelayedItem::Datagram { conversation: Some(first), .. }) = self.delayed.front() else {
            return true;
        };
        self.has_new_findings
            || conversation.is_some_and(|talk| talk.id == first.id)
            || self.is_late(analyzed.packet.time)
    }

    /// Shows held datagrams up to the first that is not final.
    fn release(&mut self, is_decided: impl Fn(ConversationId, u64) -> bool) -> io::Result<()> {
        self.has_new_findings = false;
        while let Some(first) = self.delayed.front() {
            if let DelayedItem::Datagram { packet, conversation: Some(talk), .. } = first
                && !is_decided(talk.id, packet.number)
            {
                break;
            }
            match self.delayed.pop_front() {
                Some(DelayedItem::Datagram { packet, len, conversation: talk, findings }) => {
                    self.show_delayed(&packet, len, talk, &findings)?;
                }
                Some(DelayedItem::Finding(detached)) => self.output.show_finding(&detached)?,
                None => {}
            }
        }
        // The remaining bytes move to the front once they are no more than the bytes already shown.
        if self.shown_bytes * 2 >= self.bytes.len() {
            self.bytes.drain(..self.shown_bytes);
            self.shown_bytes = 0;
        }
        Ok(())
    }

    fn show_delayed(
        &mut self,
        packet: &PacketInfo,
        len: usize,
        conversation: Option<ConversationRef>,
        findings: &[Finding],
    ) -> io::Result<()> {
        let bytes = self.bytes.get(self.shown_bytes..self.shown_bytes + len).unwrap_or_default();
        self.shown_bytes += len;
        let mut buffer = mem::take(&mut self.messages).reuse();
        let content = buffer.read(bytes, None);
        let what = match (&content, conversation) {
            (Content::Datagram(datagram), Some(conversation)) => {
                Some(DatagramContent::Datagram(datagram, conversation))
            }
            (Content::GameSpy(text), _) => Some(DatagramContent::GameSpy(text)),
            (Content::Malformed(error), _) => Some(DatagramContent::Malformed(*error, bytes)),
            (Content::Datagram(_), None) => None,
        };
        let done = what.map_or(Ok(()), |what| {
            self.output.show(&DatagramWithFindings { packet, content: what, findings })
        });
        self.messages = buffer.reuse();
        done
    }

    /// Returns the findings of the held datagram with the packet number `mark`.
    fn delayed_findings(&mut self, mark: u64) -> Option<&mut Vec<Finding>> {
        if mark == NO_MARK {
            return None;
        }
        let is_it = |held: &&mut DelayedItem| matches!(held, DelayedItem::Datagram { packet, .. } if packet.number == mark);
        match self.delayed.iter_mut().rev().find(is_it) {
            Some(DelayedItem::Datagram { findings, .. }) => Some(findings),
            Some(DelayedItem::Finding(_)) | None => None,
        }
    }

    /// Returns whether the first held datagram has waited for too long, or too much is held.
    fn is_late(&self, now: Time) -> bool {
        let Some(DelayedItem::Datagram { packet, .. }) = self.delayed.front() else { return false };
        let waits = self.bytes.len() - self.shown_bytes + self.delayed.len() * size_of::<DelayedItem>();
        now.since(packet.time) > MAX_DELAY || waits > MAX_BYTES
    }
}

impl<S: DatagramOutput> Sink for DelayedOutput<S> {
    fn on_datagram(&mut self, analyzed: &AnalyzedDatagram<'_>) -> io::Result<()> {
        let AnalyzedDatagram { packet, content: what, bytes, findings, observer } = analyzed;
        let of = |id: ConversationId, side: Side| {
            let conversation = observer.conversation(id);
            let receiver = conversation.and_then(|conversation| conversation.peer(side.other()));
            (ConversationRef { id, side, receiver }, conversation)
        };
        let (talk, conversation, what) = match what {
            Observed::Datagram(datagram, id, side) => {
                let (talk, conversation) = of(*id, *side);
                (Some(talk), conversation, DatagramContent::Datagram(datagram, talk))
            }
            Observed::Malformed(error, id, side) => {
                let (talk, conversation) = of(*id, *side);
                (Some(talk), conversation, DatagramContent::Malformed(*error, bytes))
            }
            Observed::GameSpy(text) => (None, None, DatagramContent::GameSpy(text)),
            Observed::Foreign(_) => return Ok(()),
        };
        let is_decided =
            || conversation.is_none_or(|conversation| conversation.are_findings_final(packet.number));
        if self.is_immediate || self.delayed.is_empty() && is_decided() {
            return self.output.show(&DatagramWithFindings { packet, content: what, findings });
        }
        self.delay(analyzed, talk);
        if self.may_release(analyzed, talk) {
            self.release(|id, mark| observer.are_findings_final(id, mark))?;
        }
        Ok(())
    }

    fn on_finding(
        &mut self,
        finding: &Finding,
        place: Option<PacketLocation>,
        observer: &Observer,
    ) -> io::Result<()> {
        self.has_new_findings = true;
        if let Some(findings) = self.delayed_findings(finding.mark) {
            findings.push(*finding);
            return Ok(());
        }
        let conversation = observer.conversation(finding.conversation);
        let peers = [Side::First, Side::Second].map(|side| conversation.and_then(|talk| talk.peer(side)));
        let detached = DetachedFinding { finding: *finding, location: place, peer_ids: peers };
        if self.delayed.is_empty() {
            return self.output.show_finding(&detached);
        }
        self.delayed.push_back(DelayedItem::Finding(detached));
        Ok(())
    }

    fn overdue_datagram(&self, now: Time, observer: &Observer) -> Option<(ConversationId, u64)> {
        let Some(DelayedItem::Datagram { packet, conversation: Some(talk), .. }) = self.delayed.front()
        else {
            return None;
        };
        let is_late = self.is_late(now);
        (is_late && !observer.are_findings_final(talk.id, packet.number)).then_some((talk.id, packet.number))
    }

    fn on_end(&mut self, end: &CaptureEnd<'_>) -> io::Result<()> {
        self.release(|_, _| true)?;
        self.output.finish(end)
    }
}

/// The longest delay of a datagram, on the clock of the capture.
///
/// It exceeds the 28 seconds after which the observer reports an unsent sequence number as missing.
const MAX_DELAY: Duration = Duration::from_secs(30);
/// The most bytes that are held back.
const MAX_BYTES: usize = 2 << 20;
