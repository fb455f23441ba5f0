//! Follows one message from its first send to its ACK: each send, each ACK, their effects and causes.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Write};

use bcnet_observe::{
    CaptureMiss, ConversationId, Finding, FindingKind, HandledAck, Observed, Observer, Side,
};
use bcnet_transport::Time;
use bcnet_transport::wire::{Channel, Message, MessageId, Role, Seq};

use super::super::summary::short_name;
use super::super::{AnalyzedDatagram, CaptureEnd, PacketLocation, Sink};
use super::{CaptureSpan, DetailContext, check_peer};
use crate::inspect::human;

mod output;

/// Selects the message to follow.
#[derive(Debug, Clone, Copy)]
pub(super) struct MessageSelector {
    pub(super) seq: u16,
    pub(super) channel: Option<Channel>,
    pub(super) sent_by: Option<Role>,
    pub(super) part: Option<u8>,
}

impl MessageSelector {
    /// Returns whether a message, or an ACK of it, is selected.
    ///
    /// An ACK without a fragment index matches each fragment.
    fn matches(&self, id: MessageId, is_ack: bool) -> bool {
        let part = match (self.part, id.fragment) {
            (None, _) => true,
            (Some(wanted), Some(part)) => wanted == part,
            (Some(_), None) => is_ack,
        };
        part && id.seq.0 == self.seq && self.channel.is_none_or(|channel| channel == id.channel)
    }
}

/// The sender of a message in its conversation, and whether it is on the game channel.
type TimelineKey = (ConversationId, Side, bool);

/// All events of the messages with one sequence number.
#[derive(Default)]
struct MessageTimeline {
    events: Vec<MessageEvent>,
    /// The number of events that were not kept.
    omitted: u64,
    /// For each fragment: the number of sends, and a hash of its content.
    sends: BTreeMap<Option<u8>, (u32, u64)>,
    /// For each fragment: the number of ACKs.
    acks: BTreeMap<Option<u8>, u32>,
    /// For each fragment: the times of its first send, and of its removal from the retransmit queue.
    sent_and_cleared: BTreeMap<Option<u8>, (Time, Option<Time>)>,
}

struct MessageEvent {
    at: Time,
    packet: Option<u64>,
    kind: MessageEventKind,
}

enum MessageEventKind {
    Sent { part: Option<u8>, times: u32, is_new: bool, text: String },
    Acked { part: Option<u8>, times: u32 },
    AckHandled { part: Option<u8>, cleared: bool, waiting: usize },
    Finding(FindingKind),
}

impl MessageTimeline {
    fn add_event(&mut self, at: Time, packet: Option<u64>, what: MessageEventKind) {
        if self.events.len() < MAX_EVENTS {
            self.events.push(MessageEvent { at, packet, kind: what });
        } else {
            self.omitted += 1;
        }
    }

    fn on_sent(&mut self, at: Time, packet: u64, id: MessageId, message: &Message<'_>) {
        let print = fingerprint(message);
        let (times, known) = self.sends.entry(id.fragment).or_insert((0, print));
        let is_new = *known != print;
        if is_new {
            (*times, *known) = (0, print);
        }
        *times += 1;
        let times = *times;
        if times == 1 {
            self.sent_and_cleared.insert(id.fragment, (at, None));
        }
        let text = human::message_text(message);
        self.add_event(at, Some(packet), MessageEventKind::Sent { part: id.fragment, times, is_new, text });
    }

    fn on_ack(&mut self, at: Time, packet: u64, id: MessageId) {
        let times = self.acks.entry(id.fragment).or_default();
        *times += 1;
        let times = *times;
        self.add_event(at, Some(packet), MessageEventKind::Acked { part: id.fragment, times });
    }

    fn on_handled_ack(&mut self, handled: &HandledAck) {
        let (part, cleared) = (handled.id.fragment, handled.cleared_position().is_some());
        if let Some((_, clearing)) = self.sent_and_cleared.get_mut(&part).filter(|_| cleared) {
            *clearing = Some(handled.at);
        }
        let waiting = handled.retransmit_queue.len();
        self.add_event(
            handled.at,
            Some(handled.mark),
            MessageEventKind::AckHandled { part, cleared, waiting },
        );
    }
}

pub(super) struct MessageTimelines<W> {
    context: DetailContext<W>,
    selector: MessageSelector,
    span: CaptureSpan,
    timelines: BTreeMap<TimelineKey, MessageTimeline>,
    /// The lowest and the highest sequence number of each channel in the capture.
    seq_ranges: BTreeMap<&'static str, (u16, u16)>,
    is_full: bool,
}

impl<W: Write> MessageTimelines<W> {
    pub(super) fn new(context: DetailContext<W>, wanted: MessageSelector) -> Self {
        let (span, timelines, numbers) = (CaptureSpan::default(), BTreeMap::new(), BTreeMap::new());
        Self { context, selector: wanted, span, timelines, seq_ranges: numbers, is_full: false }
    }

    /// Returns the timeline of a message from this side, if it is selected.
    fn timeline(
        &mut self,
        (id, sender): (ConversationId, Side),
        at: Time,
        channel: Channel,
        observer: &Observer,
    ) -> Option<&mut MessageTimeline> {
        let conversation = observer.conversation(id)?;
        let filter = &self.context.filter;
        let by = self.selector.sent_by.is_none_or(|role| conversation.role(sender) == Some(role));
        let start = self.span.start.unwrap_or(0);
        if !by || !filter.wants_conversation(&conversation) || !filter.wants_time(at.as_micros(), start) {
            return None;
        }
        let owner = (id, sender, channel == Channel::Game);
        if self.timelines.len() >= MAX_TIMELINES && !self.timelines.contains_key(&owner) {
            self.is_full = true;
            return None;
        }
        Some(self.timelines.entry(owner).or_default())
    }

    fn add_finding(&mut self, finding: &Finding, observer: &Observer) {
        let id = match finding.kind {
            FindingKind::Retransmission { about, .. } | FindingKind::DuplicateDelivery { about } => about.id,
            FindingKind::StuckFragments { seq, .. } => {
                MessageId { channel: Channel::Game, seq, fragment: None }
            }
            FindingKind::SequenceGap { channel, seq } => MessageId { channel, seq, fragment: None },
            FindingKind::CaptureLoss(CaptureMiss::Message(id)) => id,
            FindingKind::CaptureLoss(CaptureMiss::Ack(_) | CaptureMiss::Side)
            | FindingKind::StaleAck { .. }
            | FindingKind::RepeatedAck { .. }
            | FindingKind::ClosedGate { .. }
            | FindingKind::Starvation { .. }
            | FindingKind::UnknownType(_)
            | FindingKind::Malformed(_)
            | FindingKind::NonStock(_)
            | FindingKind::AcksOnce
            | FindingKind::Silence { .. }
            | FindingKind::Timeout { .. } => return,
        };
        if !self.selector.matches(id, true) {
            return;
        }
        let place = (finding.conversation, finding.side);
        let packet = (finding.mark != bcnet_observe::NO_MARK).then_some(finding.mark);
        let (at, what) = (finding.at, finding.kind);
        if let Some(timeline) = self.timeline(place, at, id.channel, observer) {
            timeline.add_event(at, packet, MessageEventKind::Finding(what));
        }
    }

    /// Returns the error for a capture without the selected message.
    fn not_found_error(&self) -> io::Error {
        let seen = self.seq_ranges.iter().map(|(name, (low, high))| format!("{name} {low} to {high}"));
        let seen = seen.collect::<Vec<_>>().join(", ");
        let seen = if seen.is_empty() { "no reliable messages".into() } else { seen };
        let seq = self.selector.seq;
        io::Error::other(format!("--follow-message {seq}: no such message; the capture has {seen}"))
    }
}

impl<W: Write> Sink for MessageTimelines<W> {
    fn wants_handled_acks(&self) -> bool {
        true
    }

    fn before_datagram(&mut self, next: Time, _: &Observer) -> io::Result<()> {
        self.span.extend(next.as_micros());
        Ok(())
    }

    fn on_datagram(&mut self, analyzed: &AnalyzedDatagram<'_>) -> io::Result<()> {
        if let Observed::Datagram(datagram, conversation, side) = &analyzed.content {
            let (at, packet) = (analyzed.packet.time, analyzed.packet.number);
            for message in datagram.messages() {
                if let Message::Ack(ack) = message {
                    let place = (*conversation, side.other());
                    if self.selector.matches(ack.id, true)
                        && let Some(timeline) = self.timeline(place, at, ack.id.channel, analyzed.observer)
                    {
                        timeline.on_ack(at, packet, ack.id);
                    }
                } else if let Some(id) = message.id() {
                    let Seq(seq) = id.seq;
                    let (low, high) = self.seq_ranges.entry(id.channel.name()).or_insert((seq, seq));
                    (*low, *high) = ((*low).min(seq), (*high).max(seq));
                    if self.selector.matches(id, false)
                        && let Some(timeline) =
                            self.timeline((*conversation, *side), at, id.channel, analyzed.observer)
                    {
                        timeline.on_sent(at, packet, id, message);
                    }
                }
            }
        }
        analyzed.findings.iter().for_each(|finding| self.add_finding(finding, analyzed.observer));
        Ok(())
    }

    fn on_handled_ack(&mut self, handled: &HandledAck, observer: &Observer) -> io::Result<()> {
        let place = (handled.conversation, handled.side);
        if self.selector.matches(handled.id, true)
            && let Some(timeline) = self.timeline(place, handled.at, handled.id.channel, observer)
        {
            timeline.on_handled_ack(handled);
        }
        Ok(())
    }

    fn on_finding(
        &mut self,
        finding: &Finding,
        _: Option<PacketLocation>,
        observer: &Observer,
    ) -> io::Result<()> {
        self.add_finding(finding, observer);
        Ok(())
    }

    fn on_end(&mut self, end: &CaptureEnd<'_>) -> io::Result<()> {
        check_peer(&self.context.filter, end.observer)?;
        if self.timelines.values().all(|timeline| timeline.sends.is_empty()) {
            return Err(self.not_found_error());
        }
        for ((conversation, side, game), mut timeline) in std::mem::take(&mut self.timelines) {
            let Some(conversation) = end.observer.conversation(conversation) else { continue };
            if timeline.sends.is_empty() {
                continue;
            }
            // The effect of an ACK becomes known only when its receiver sends again, so these events are added late.
            timeline.events.sort_by_key(|event| (event.at, event.packet));
            let names = [side, side.other()].map(|side| short_name(&conversation, side));
            let addresses = [side, side.other()].map(|side| conversation.address(side));
            let channel = if game { Channel::Game } else { Channel::Control };
            let title = output::TimelineHeader { seq: self.selector.seq, channel, names, addresses };
            output::write_timeline(&mut self.context.out, &title, &timeline, &self.span, self.context.json)?;
        }
        if self.is_full && !self.context.json {
            writeln!(
                self.context.out,
                "\nmore than {MAX_TIMELINES} such messages; choose with --peer or --from"
            )?;
        }
        self.context.out.flush()
    }
}

/// Returns a hash that tells apart different messages with the same sequence number.
fn fingerprint(message: &Message<'_>) -> u64 {
    let mut hasher = DefaultHasher::new();
    message.kind().0.hash(&mut hasher);
    if let Message::Data(data) = message {
        data.payload.hash(&mut hasher);
    } else {
        message.to_string().hash(&mut hasher);
    }
    hasher.finish()
}

const MAX_EVENTS: usize = 10_000;
const MAX_TIMELINES: usize = 64;
