//! Writes a page about a capture for a browser.
//!
//! For hosts the page explains the faults in plain words. For analysts it has plots over time, findings with their
//! datagrams, conversations, opcodes and a sequence diagram.
//!
//! The page is a single file with script, style and data; it loads nothing from the network. The amount of data is
//! bounded, and with it the size of the page and the memory to make it. The page says what was left out.

mod data;
mod datagram_store;
mod page;
mod series;

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::PathBuf;
use std::rc::Rc;

use bcnet_observe::{
    ConversationId, Finding, FindingKind, Observed, Observer, ReassembledPayload, Reassembler, Side,
};
use bcnet_transport::wire::Message;

use super::filter::Filter;
use super::finding_counts::{FindingCounts, finding_title};
use super::player_names::PlayerNames;
use super::{AnalyzedDatagram, CaptureEnd, PacketLocation, Sink};
use crate::inspect::human;
use datagram_store::{DatagramStore, EvenSamples, StoredDatagram};
use series::{ReportSeries, SeriesInterval};

pub(super) struct HtmlReport {
    path: PathBuf,
    filter: Filter,
    finding_counts: FindingCounts,
    player_names: PlayerNames,
    reassembler: Reassembler,
    start_micros: Option<u64>,
    last_micros: u64,
    datagram_count: u64,
    /// The series of all clients together, and of all hosts together.
    all_series: [ReportSeries; 2],
    /// The series of both sides, for conversations that have their own plots.
    plotted: BTreeMap<ConversationId, [ReportSeries; 2]>,
    fault_counts: BTreeMap<ConversationId, u64>,
    datagram_store: DatagramStore,
    samples: Vec<(&'static str, EvenSamples<StoredFinding>)>,
}

/// A finding that is shown with its datagrams.
struct StoredFinding {
    finding: Finding,
    related_datagrams: Vec<Rc<StoredDatagram>>,
    /// The number of related datagrams that are left out.
    omitted: u64,
}

impl HtmlReport {
    pub(super) fn new(path: PathBuf, filter: Filter) -> Self {
        Self {
            path,
            filter,
            finding_counts: FindingCounts::default(),
            player_names: PlayerNames::default(),
            reassembler: Reassembler::default(),
            start_micros: None,
            last_micros: 0,
            datagram_count: 0,
            all_series: [ReportSeries::new(0), ReportSeries::new(0)],
            plotted: BTreeMap::new(),
            fault_counts: BTreeMap::new(),
            datagram_store: DatagramStore::default(),
            samples: Vec::new(),
        }
    }

    /// Applies a change to the interval at a time, in the total series and in a plotted conversation.
    fn update_intervals(
        &mut self,
        (id, side, is_host): (ConversationId, Side, bool),
        micros: u64,
        change: impl Fn(&mut SeriesInterval),
    ) {
        let start = *self.start_micros.get_or_insert(micros);
        let since = micros.saturating_sub(start);
        change(self.all_series[usize::from(is_host)].interval_at(since));
        if self.plotted.len() >= MAX_PLOTTED_CONVERSATIONS && !self.plotted.contains_key(&id) {
            return;
        }
        let series = self.plotted.entry(id).or_insert_with(|| [ReportSeries::new(0), ReportSeries::new(0)]);
        change(series[side_index(side)].interval_at(since));
    }

    fn add_finding(&mut self, finding: &Finding, evidence: Option<PacketLocation>, observer: &Observer) {
        if !self.filter.wants_late_finding(finding, observer, 0) {
            return;
        }
        self.finding_counts.add(finding, evidence, observer);
        let Finding { conversation, side, .. } = *finding;
        if finding.kind.is_fault() {
            self.count_fault(conversation, observer);
            if matches!(finding.kind, FindingKind::Retransmission { .. }) {
                let is_host =
                    observer.conversation(conversation).is_some_and(|talk| talk.client_and_host()[1] == side);
                let source = (conversation, side, is_host);
                self.update_intervals(source, finding.at.as_micros(), |step| step.retransmissions += 1);
            }
        }
        self.datagram_store.add_finding(finding);
        let title = finding_title(&finding.kind);
        let known = self.samples.iter().position(|(known, _)| *known == title);
        let at = known.unwrap_or_else(|| {
            self.samples.push((title, EvenSamples::default()));
            self.samples.len() - 1
        });
        self.samples[at].1.offer(|| {
            let (about, left_out) = self.datagram_store.related_datagrams(finding);
            StoredFinding { finding: *finding, related_datagrams: about, omitted: left_out }
        });
    }

    fn count_fault(&mut self, conversation: ConversationId, observer: &Observer) {
        *self.fault_counts.entry(conversation).or_default() += 1;
        if self.fault_counts.len() > MAX_FAULT_COUNTS {
            self.fault_counts.retain(|id, _| observer.conversation(*id).is_some());
        }
    }

    /// Keeps a datagram, so that it can be shown.
    fn store_datagram(
        &mut self,
        analyzed: &AnalyzedDatagram<'_>,
        conversation: Option<(ConversationId, Side)>,
        joined: &[ReassembledPayload],
    ) {
        let AnalyzedDatagram { packet, bytes, observer, .. } = analyzed;
        let describe_payload =
            |ReassembledPayload { seq, fragments: parts, payload }: &ReassembledPayload| {
                format!(
                    "game {seq}, {} bytes in {parts} fragments{}",
                    payload.len(),
                    human::payload_text(payload)
                )
            };
        let traffic = conversation.and_then(|(id, _)| observer.conversation(id)).map(|talk| {
            [Side::First, Side::Second]
                .map(|side| talk.counters(side).datagrams + talk.counters(side).malformed)
        });
        self.datagram_count += 1;
        let comment =
            packet.comment.as_deref().map(|text| text.chars().take(MAX_COMMENT).collect::<String>());
        let kept = StoredDatagram {
            number: packet.number,
            at: packet.time.as_micros(),
            from: packet.from,
            to: packet.to,
            conversation,
            index_in_conversation: traffic.map_or(0, |[one, other]| one + other),
            len: bytes.len(),
            bytes: StoredDatagram::truncate_bytes(bytes),
            comment: comment.map(Into::into),
            reassembled: joined.iter().map(describe_payload).collect(),
            findings: Default::default(),
        };
        let is_plotted = conversation.is_some_and(|(id, _)| self.plotted.contains_key(&id));
        self.datagram_store.push(kept, is_plotted);
    }
}

impl Sink for HtmlReport {
    fn on_datagram(&mut self, analyzed: &AnalyzedDatagram<'_>) -> io::Result<()> {
        let AnalyzedDatagram { packet, content: what, findings, observer, .. } = analyzed;
        let micros = packet.time.as_micros();
        self.start_micros.get_or_insert(micros);
        self.last_micros = self.last_micros.max(micros);
        let talk = match *what {
            Observed::Datagram(_, id, side) | Observed::Malformed(_, id, side) => Some((id, side)),
            Observed::GameSpy(_) | Observed::Foreign(_) => None,
        };
        let conversation = talk.and_then(|(id, _)| observer.conversation(id));
        let is_wanted = match &conversation {
            Some(talk) => self.filter.wants_conversation(talk),
            None => self.filter.wants_metadata(packet, [None, None], 0),
        };
        if !is_wanted {
            return Ok(());
        }
        let mut joined = Vec::new();
        if let (Observed::Datagram(datagram, id, side), Some(talk)) = (what, &conversation) {
            self.player_names.learn(packet, datagram);
            joined
                .extend(datagram.messages().iter().filter_map(|each| self.reassembler.add(*id, *side, each)));
            let acks = datagram.messages().iter().filter(|message| matches!(message, Message::Ack(_)));
            let ack_bytes: usize = acks.map(|message| message.wire_len()).sum();
            let bytes = datagram.as_bytes().len() as u64;
            for each in [*side, side.other()] {
                let (unacknowledged, pending_acks) =
                    (talk.unacknowledged(each) as u64, talk.pending_acks(each) as u64);
                let trip = talk.rtt(each).and_then(|trip| u64::try_from(trip.as_micros()).ok());
                self.update_intervals((*id, each, talk.client_and_host()[1] == each), micros, |step| {
                    step.unacknowledged.set(unacknowledged);
                    step.pending_acks.set(pending_acks);
                    if let Some(trip) = trip {
                        step.round_trip_micros.get_or_insert_default().set(trip);
                    }
                    if each == *side {
                        step.bytes += bytes;
                        step.ack_bytes += ack_bytes as u64;
                        step.largest_datagram = step.largest_datagram.max(bytes);
                    }
                });
            }
        }
        self.store_datagram(analyzed, talk, &joined);
        let evidence = PacketLocation::of(packet);
        findings.iter().for_each(|finding| self.add_finding(finding, Some(evidence), observer));
        Ok(())
    }

    fn on_finding(
        &mut self,
        finding: &Finding,
        place: Option<PacketLocation>,
        observer: &Observer,
    ) -> io::Result<()> {
        self.add_finding(finding, place, observer);
        Ok(())
    }

    fn on_end(&mut self, end: &CaptureEnd<'_>) -> io::Result<()> {
        let named =
            |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", self.path.display()));
        fs::write(&self.path, page::render_page(self, end)).map_err(named)
    }
}

const fn side_index(side: Side) -> usize {
    match side {
        Side::First => 0,
        Side::Second => 1,
    }
}

/// The most conversations that have their own plots.
const MAX_PLOTTED_CONVERSATIONS: usize = 48;
/// The most conversations whose faults are counted, before evicted conversations are removed.
const MAX_FAULT_COUNTS: usize = 1 << 14;
/// The most characters of a packet comment.
const MAX_COMMENT: usize = 200;
