//! A page about a capture: what is wrong in plain words for a host who is no analyst, and all that is needed to hunt for
//! one who is: plots over time, findings with their datagrams, conversations, opcodes, a sequence diagram.
//!
//! The page stands alone: its script, its style and its data are in it, and it asks nobody for anything. How much of a
//! capture is in it is bounded, so its size and the memory to make it are; it tells what was left out.

mod data;
mod keep;
mod page;
mod series;

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::PathBuf;
use std::rc::Rc;

use bcnet_observe::{ConversationId, Finding, Joined, Observed, Observer, PartJoiner, Side, What};
use bcnet_transport::wire::Message;

use super::filter::Filter;
use super::names::Names;
use super::tally::{Tally, title};
use super::{End, Evidence, Sight, Sink};
use crate::inspect::human;
use keep::{Kept, Samples, Shelf};
use series::{Series, Step};

pub(super) struct Report {
    path: PathBuf,
    filter: Filter,
    tally: Tally,
    names: Names,
    parts: PartJoiner,
    start: Option<u64>,
    last: u64,
    datagrams: u64,
    /// What clients and hosts have sent together.
    all: [Series; 2],
    /// Both sides of the conversations that are plotted by themselves.
    talks: BTreeMap<ConversationId, [Series; 2]>,
    faults: BTreeMap<ConversationId, u64>,
    shelf: Shelf,
    samples: Vec<(&'static str, Samples<KeptFinding>)>,
}

/// A finding that is shown with its datagrams.
struct KeptFinding {
    finding: Finding,
    about: Vec<Rc<Kept>>,
    /// How many datagrams that it is about are not among them.
    left_out: u64,
}

impl Report {
    pub(super) fn new(path: PathBuf, filter: Filter) -> Self {
        Self {
            path,
            filter,
            tally: Tally::default(),
            names: Names::default(),
            parts: PartJoiner::default(),
            start: None,
            last: 0,
            datagrams: 0,
            all: [Series::new(0), Series::new(0)],
            talks: BTreeMap::new(),
            faults: BTreeMap::new(),
            shelf: Shelf::default(),
            samples: Vec::new(),
        }
    }

    /// Does something with the step of a side at a time, of all conversations and of its own, if that is plotted.
    fn steps(
        &mut self,
        (id, side, is_host): (ConversationId, Side, bool),
        micros: u64,
        change: impl Fn(&mut Step),
    ) {
        let start = *self.start.get_or_insert(micros);
        let since = micros.saturating_sub(start);
        change(self.all[usize::from(is_host)].at(since));
        if self.talks.len() >= MAX_TALKS && !self.talks.contains_key(&id) {
            return;
        }
        let series = self.talks.entry(id).or_insert_with(|| [Series::new(0), Series::new(0)]);
        change(series[place(side)].at(since));
    }

    fn note(&mut self, finding: &Finding, evidence: Option<Evidence>, observer: &Observer) {
        if !self.filter.wants_late(finding, observer, 0) {
            return;
        }
        self.tally.add(finding, evidence, observer);
        let Finding { conversation, side, .. } = *finding;
        if finding.what.is_fault() {
            self.count_fault(conversation, observer);
            if matches!(finding.what, What::Retransmission { .. }) {
                let is_host = observer.conversation(conversation).is_some_and(|talk| talk.sides()[1] == side);
                let whose = (conversation, side, is_host);
                self.steps(whose, finding.at.as_micros(), |step| step.retransmissions += 1);
            }
        }
        self.shelf.note(finding);
        let title = title(&finding.what);
        let known = self.samples.iter().position(|(known, _)| *known == title);
        let at = known.unwrap_or_else(|| {
            self.samples.push((title, Samples::default()));
            self.samples.len() - 1
        });
        self.samples[at].1.offer(|| {
            let (about, left_out) = self.shelf.about(finding);
            KeptFinding { finding: *finding, about, left_out }
        });
    }

    fn count_fault(&mut self, conversation: ConversationId, observer: &Observer) {
        *self.faults.entry(conversation).or_default() += 1;
        if self.faults.len() > MAX_COUNTED {
            self.faults.retain(|id, _| observer.conversation(*id).is_some());
        }
    }

    /// Keeps a datagram, so that it can be shown.
    fn keep(&mut self, sight: &Sight<'_>, talk: Option<(ConversationId, Side)>, joined: &[Joined]) {
        let Sight { packet, bytes, observer, .. } = sight;
        let said = |Joined { seq, parts, payload }: &Joined| {
            format!("game {seq}, {} bytes in {parts} parts{}", payload.len(), human::payload(payload))
        };
        let traffic = talk.and_then(|(id, _)| observer.conversation(id)).map(|talk| {
            [Side::First, Side::Second]
                .map(|side| talk.traffic(side).datagrams + talk.traffic(side).malformed)
        });
        self.datagrams += 1;
        let comment =
            packet.comment.as_deref().map(|text| text.chars().take(MAX_COMMENT).collect::<String>());
        let kept = Kept {
            number: packet.number,
            at: packet.time.as_micros(),
            from: packet.from,
            to: packet.to,
            talk,
            place: traffic.map_or(0, |[one, other]| one + other),
            len: bytes.len(),
            bytes: Kept::bytes_of(bytes),
            comment: comment.map(Into::into),
            joined: joined.iter().map(said).collect(),
            found: Default::default(),
        };
        let is_plotted = talk.is_some_and(|(id, _)| self.talks.contains_key(&id));
        self.shelf.push(kept, is_plotted);
    }
}

impl Sink for Report {
    fn see(&mut self, sight: &Sight<'_>) -> io::Result<()> {
        let Sight { packet, what, findings, observer, .. } = sight;
        let micros = packet.time.as_micros();
        self.start.get_or_insert(micros);
        self.last = self.last.max(micros);
        let talk = match *what {
            Observed::Datagram(_, id, side) | Observed::Malformed(_, id, side) => Some((id, side)),
            Observed::GameSpy(_) | Observed::Foreign(_) => None,
        };
        let conversation = talk.and_then(|(id, _)| observer.conversation(id));
        let is_wanted = match &conversation {
            Some(talk) => self.filter.wants_talk(talk),
            None => self.filter.wants(packet, [None, None], 0),
        };
        if !is_wanted {
            return Ok(());
        }
        let mut joined = Vec::new();
        if let (Observed::Datagram(datagram, id, side), Some(talk)) = (what, &conversation) {
            self.names.learn(packet, datagram);
            joined.extend(datagram.messages().iter().filter_map(|each| self.parts.add(*id, *side, each)));
            let acks = datagram.messages().iter().filter(|message| matches!(message, Message::Ack(_)));
            let ack_bytes: usize = acks.map(|message| message.wire_len()).sum();
            let bytes = datagram.as_bytes().len() as u64;
            for each in [*side, side.other()] {
                let (waiting, owed) = (talk.unacknowledged(each) as u64, talk.owed_acks(each) as u64);
                let trip = talk.round_trip(each).and_then(|trip| u64::try_from(trip.as_micros()).ok());
                self.steps((*id, each, talk.sides()[1] == each), micros, |step| {
                    step.waiting.note(waiting);
                    step.owed.note(owed);
                    if let Some(trip) = trip {
                        step.round_trip.get_or_insert_default().note(trip);
                    }
                    if each == *side {
                        step.bytes += bytes;
                        step.ack_bytes += ack_bytes as u64;
                        step.fullest = step.fullest.max(bytes);
                    }
                });
            }
        }
        self.keep(sight, talk, &joined);
        let evidence = Evidence::of(packet);
        findings.iter().for_each(|finding| self.note(finding, Some(evidence), observer));
        Ok(())
    }

    fn find(&mut self, finding: &Finding, place: Option<Evidence>, observer: &Observer) -> io::Result<()> {
        self.note(finding, place, observer);
        Ok(())
    }

    fn finish(&mut self, end: &End<'_>) -> io::Result<()> {
        let named =
            |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", self.path.display()));
        fs::write(&self.path, page::page(self, end)).map_err(named)
    }
}

const fn place(side: Side) -> usize {
    match side {
        Side::First => 0,
        Side::Second => 1,
    }
}

/// Conversations that are plotted by themselves.
const MAX_TALKS: usize = 48;
/// Conversations whose faults are counted, before those are forgotten that the observer has forgotten.
const MAX_COUNTED: usize = 1 << 14;
/// Characters of a packet's comment.
const MAX_COMMENT: usize = 200;
