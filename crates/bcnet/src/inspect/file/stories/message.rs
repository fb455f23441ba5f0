//! One message from its first sending to its clearing: every sending, every ACK, what each did, and why it was sent again.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Write};

use bcnet_observe::{ConversationId, Finding, HandledAck, Missed, Observed, Observer, Side, What};
use bcnet_transport::Time;
use bcnet_transport::wire::{Channel, Message, MessageId, Role, Seq};

use super::super::summary::short_name;
use super::super::{End, Evidence, Sight, Sink};
use super::{Span, Stage, check_peer};
use crate::inspect::human;

mod shown;

/// Which message is followed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wanted {
    pub(super) seq: u16,
    pub(super) channel: Option<Channel>,
    pub(super) sent_by: Option<Role>,
    pub(super) part: Option<u8>,
}

impl Wanted {
    /// Returns whether a message is wanted, or an ACK of it: one that names the whole is about each part, too.
    fn takes(&self, id: MessageId, is_ack: bool) -> bool {
        let part = match (self.part, id.part) {
            (None, _) => true,
            (Some(wanted), Some(part)) => wanted == part,
            (Some(_), None) => is_ack,
        };
        part && id.seq.0 == self.seq && self.channel.is_none_or(|channel| channel == id.channel)
    }
}

/// Whose message: by whom in which conversation, and whether it is of the game's channel.
type Owner = (ConversationId, Side, bool);

/// All that happened to the messages with one number.
#[derive(Default)]
struct Story {
    events: Vec<Event>,
    /// How many events were not kept.
    left_out: u64,
    /// How often each part was sent, and what it was.
    sends: BTreeMap<Option<u8>, (u32, u64)>,
    /// How often each ACK was seen.
    acks: BTreeMap<Option<u8>, u32>,
    /// When each part was sent for the first time, and when an ACK cleared it.
    spans: BTreeMap<Option<u8>, (Time, Option<Time>)>,
}

struct Event {
    at: Time,
    packet: Option<u64>,
    what: Happened,
}

enum Happened {
    Sent { part: Option<u8>, times: u32, is_new: bool, text: String },
    Acked { part: Option<u8>, times: u32 },
    Handled { part: Option<u8>, cleared: bool, waiting: usize },
    Found(What),
}

impl Story {
    fn add(&mut self, at: Time, packet: Option<u64>, what: Happened) {
        if self.events.len() < MAX_EVENTS {
            self.events.push(Event { at, packet, what });
        } else {
            self.left_out += 1;
        }
    }

    fn send(&mut self, at: Time, packet: u64, id: MessageId, message: &Message<'_>) {
        let print = fingerprint(message);
        let (times, known) = self.sends.entry(id.part).or_insert((0, print));
        let is_new = *known != print;
        if is_new {
            (*times, *known) = (0, print);
        }
        *times += 1;
        let times = *times;
        if times == 1 {
            self.spans.insert(id.part, (at, None));
        }
        let text = human::message(message);
        self.add(at, Some(packet), Happened::Sent { part: id.part, times, is_new, text });
    }

    fn acknowledge(&mut self, at: Time, packet: u64, id: MessageId) {
        let times = self.acks.entry(id.part).or_default();
        *times += 1;
        let times = *times;
        self.add(at, Some(packet), Happened::Acked { part: id.part, times });
    }

    fn handle(&mut self, handled: &HandledAck) {
        let (part, cleared) = (handled.id.part, handled.cleared().is_some());
        if let Some((_, clearing)) = self.spans.get_mut(&part).filter(|_| cleared) {
            *clearing = Some(handled.at);
        }
        let waiting = handled.waiting.len();
        self.add(handled.at, Some(handled.mark), Happened::Handled { part, cleared, waiting });
    }
}

pub(super) struct Stories<W> {
    stage: Stage<W>,
    wanted: Wanted,
    span: Span,
    stories: BTreeMap<Owner, Story>,
    /// The lowest and the highest number of each channel that was seen.
    numbers: BTreeMap<&'static str, (u16, u16)>,
    is_full: bool,
}

impl<W: Write> Stories<W> {
    pub(super) fn new(stage: Stage<W>, wanted: Wanted) -> Self {
        let (span, stories, numbers) = (Span::default(), BTreeMap::new(), BTreeMap::new());
        Self { stage, wanted, span, stories, numbers, is_full: false }
    }

    /// Returns the story of a message that this side has sent, if it is wanted.
    fn story(
        &mut self,
        (conversation, sender): (ConversationId, Side),
        at: Time,
        channel: Channel,
        observer: &Observer,
    ) -> Option<&mut Story> {
        let talk = observer.conversation(conversation)?;
        let filter = &self.stage.filter;
        let by = self.wanted.sent_by.is_none_or(|role| talk.role(sender) == Some(role));
        let start = self.span.start.unwrap_or(0);
        if !by || !filter.wants_talk(&talk) || !filter.wants_time(at.as_micros(), start) {
            return None;
        }
        let owner = (conversation, sender, channel == Channel::Game);
        if self.stories.len() >= MAX_STORIES && !self.stories.contains_key(&owner) {
            self.is_full = true;
            return None;
        }
        Some(self.stories.entry(owner).or_default())
    }

    fn found(&mut self, finding: &Finding, observer: &Observer) {
        let id = match finding.what {
            What::Retransmission { about, .. } | What::DuplicateDelivery { about } => about.id,
            What::StuckFragments { seq, .. } => MessageId { channel: Channel::Game, seq, part: None },
            What::SequenceGap { channel, seq } => MessageId { channel, seq, part: None },
            What::CaptureLoss(Missed::Message(id)) => id,
            What::CaptureLoss(Missed::Ack(_) | Missed::Side)
            | What::StaleAck { .. }
            | What::RepeatedAck { .. }
            | What::ClosedGate { .. }
            | What::Starvation { .. }
            | What::UnknownType(_)
            | What::Malformed(_)
            | What::NonStock(_)
            | What::AcksOnce
            | What::Silence { .. }
            | What::Timeout { .. } => return,
        };
        if !self.wanted.takes(id, true) {
            return;
        }
        let place = (finding.conversation, finding.side);
        let packet = (finding.mark != bcnet_observe::NO_MARK).then_some(finding.mark);
        let (at, what) = (finding.at, finding.what);
        if let Some(story) = self.story(place, at, id.channel, observer) {
            story.add(at, packet, Happened::Found(what));
        }
    }

    /// Returns the error if there is no such message.
    fn nothing(&self) -> io::Error {
        let seen = self.numbers.iter().map(|(name, (low, high))| format!("{name} {low} to {high}"));
        let seen = seen.collect::<Vec<_>>().join(", ");
        let seen = if seen.is_empty() { "no reliable message at all".into() } else { seen };
        let seq = self.wanted.seq;
        io::Error::other(format!("--follow-message {seq}: no such message; there is {seen}"))
    }
}

impl<W: Write> Sink for Stories<W> {
    fn follows_acks(&self) -> bool {
        true
    }

    fn before(&mut self, next: Time, _: &Observer) -> io::Result<()> {
        self.span.note(next.as_micros());
        Ok(())
    }

    fn see(&mut self, sight: &Sight<'_>) -> io::Result<()> {
        if let Observed::Datagram(datagram, conversation, side) = &sight.what {
            let (at, packet) = (sight.packet.time, sight.packet.number);
            for message in datagram.messages() {
                if let Message::Ack(ack) = message {
                    let place = (*conversation, side.other());
                    if self.wanted.takes(ack.id, true)
                        && let Some(story) = self.story(place, at, ack.id.channel, sight.observer)
                    {
                        story.acknowledge(at, packet, ack.id);
                    }
                } else if let Some(id) = message.id() {
                    let Seq(seq) = id.seq;
                    let (low, high) = self.numbers.entry(id.channel.name()).or_insert((seq, seq));
                    (*low, *high) = ((*low).min(seq), (*high).max(seq));
                    if self.wanted.takes(id, false)
                        && let Some(story) =
                            self.story((*conversation, *side), at, id.channel, sight.observer)
                    {
                        story.send(at, packet, id, message);
                    }
                }
            }
        }
        sight.findings.iter().for_each(|finding| self.found(finding, sight.observer));
        Ok(())
    }

    fn handled(&mut self, handled: &HandledAck, observer: &Observer) -> io::Result<()> {
        let place = (handled.conversation, handled.side);
        if self.wanted.takes(handled.id, true)
            && let Some(story) = self.story(place, handled.at, handled.id.channel, observer)
        {
            story.handle(handled);
        }
        Ok(())
    }

    fn find(&mut self, finding: &Finding, _: Option<Evidence>, observer: &Observer) -> io::Result<()> {
        self.found(finding, observer);
        Ok(())
    }

    fn finish(&mut self, end: &End<'_>) -> io::Result<()> {
        check_peer(&self.stage.filter, end.observer)?;
        if self.stories.values().all(|story| story.sends.is_empty()) {
            return Err(self.nothing());
        }
        for ((conversation, side, game), mut story) in std::mem::take(&mut self.stories) {
            let Some(talk) = end.observer.conversation(conversation) else { continue };
            if story.sends.is_empty() {
                continue;
            }
            // What a node has read is known when it sends: later than what came meanwhile.
            story.events.sort_by_key(|event| (event.at, event.packet));
            let names = [side, side.other()].map(|side| short_name(&talk, side));
            let addresses = [side, side.other()].map(|side| talk.address(side));
            let channel = if game { Channel::Game } else { Channel::Control };
            let title = shown::Title { seq: self.wanted.seq, channel, names, addresses };
            shown::write(&mut self.stage.out, &title, &story, &self.span, self.stage.json)?;
        }
        if self.is_full && !self.stage.json {
            writeln!(
                self.stage.out,
                "\nmore than {MAX_STORIES} such messages; choose with --peer or --from"
            )?;
        }
        self.stage.out.flush()
    }
}

/// Enough to tell another message under the same number.
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
const MAX_STORIES: usize = 64;
