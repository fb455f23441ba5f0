//! Builds the JSON data that the script of the report page reads.

use std::collections::BTreeMap;
use std::rc::Rc;

use bcnet_observe::{
    AckLifetimes, AggregateCounters, Content, Conversation, ConversationId, MessageBuffer, MessageCounter,
    NO_MARK, Side, SideCounters,
};
use bcnet_session::game::{Opcode, describe};
use bcnet_transport::wire::{Message, PeerId};
use serde::Serialize;

use super::super::finding_counts::FindingStats;
use super::super::summary::short_name;
use super::datagram_store::StoredDatagram;
use super::series::{ReportSeries, SeriesInterval};
use super::{HtmlReport, StoredFinding};
use crate::inspect::{explain, human, latin1_to_string};

/// All data except the datagrams.
#[derive(Serialize)]
struct ReportJson {
    /// The start of the capture and its duration, in microseconds.
    start: u64,
    span: u64,
    kinds: Vec<FindingKindJson>,
    all: DetailJson,
    talks: Vec<ConversationJson>,
    findings: Vec<FindingJson>,
}

/// A kind of finding.
#[derive(Serialize)]
struct FindingKindJson {
    title: &'static str,
    weight: u8,
    count: u64,
}

/// A conversation. Arrays of two are for the client and the host.
#[derive(Serialize)]
struct ConversationJson {
    who: [String; 2],
    address: [String; 2],
    from: u64,
    to: u64,
    datagrams: [u64; 2],
    bytes: [u64; 2],
    acks: [u64; 2],
    stale: [u64; 2],
    again: [u64; 2],
    faults: u64,
    trip: [Option<u64>; 2],
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<DetailJson>,
}

/// The data of the plots.
#[derive(Serialize)]
struct DetailJson {
    /// The length of an interval in microseconds.
    width: u64,
    sides: [SeriesJson; 2],
    /// For each opcode: number, name, and the messages and the bytes of both sides.
    opcodes: Vec<(u8, &'static str, [u64; 2], [u64; 2])>,
    lives: [AckLifetimesJson; 2],
}

#[derive(Serialize)]
struct SeriesJson {
    owed: Vec<u64>,
    waiting: Vec<u64>,
    bytes: Vec<u64>,
    acks: Vec<u64>,
    again: Vec<u64>,
    trip: Vec<Option<u64>>,
    fullest: Vec<u64>,
}

/// Statistics of a side's ACKs: those it dropped, and those it kept to the end of the capture.
#[derive(Serialize)]
struct AckLifetimesJson {
    sends: Vec<u64>,
    most: u32,
    longest: f64,
    kept: u64,
    kept_most: u32,
}

/// A finding with its datagrams.
#[derive(Serialize)]
struct FindingJson {
    kind: usize,
    at: u64,
    packet: Option<u64>,
    talk: Option<usize>,
    side: usize,
    text: String,
    about: Vec<u64>,
    left_out: u64,
}

#[derive(Serialize)]
struct DatagramJson {
    n: u64,
    at: u64,
    talk: Option<usize>,
    side: usize,
    /// The addresses, if the datagram belongs to no conversation.
    #[serde(skip_serializing_if = "Option::is_none")]
    ends: Option<[String; 2]>,
    place: u64,
    len: usize,
    hex: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    comment: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    joined: Vec<String>,
    /// Kind, count, and the text of the first finding.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    found: Vec<(usize, u64, String)>,
    messages: Vec<MessageJson>,
}

/// A message: position, length, kind, text, and its fields with position, length, name index and value.
type MessageJson = (usize, usize, String, String, Vec<(usize, usize, usize, String)>);

/// Returns the data as JSON that is safe inside a script, and the number of datagrams in it.
///
/// `rest` counts the conversations that were evicted from memory.
pub(super) fn report_json(
    report: &HtmlReport,
    rest: Option<&AggregateCounters>,
    ranked: &[&FindingStats],
    conversations: &[Conversation<'_>],
) -> (String, usize) {
    let mut writer = ReportJsonBuilder {
        report,
        start: report.start_micros.unwrap_or(0),
        kind_indices: ranked.iter().enumerate().map(|(place, stats)| (stats.class.title, place)).collect(),
        conversations: conversations
            .iter()
            .enumerate()
            .map(|(place, talk)| (talk.id(), (place, *talk)))
            .collect(),
        fields: Vec::new(),
    };
    let kind = |FindingStats { class: kind, count, .. }: &&FindingStats| FindingKindJson {
        title: kind.title,
        weight: kind.severity,
        count: *count,
    };
    let data = ReportJson {
        start: writer.start,
        span: report.last_micros.saturating_sub(writer.start),
        kinds: ranked.iter().map(kind).collect(),
        all: writer.all_conversations(rest, conversations),
        talks: conversations.iter().map(|conversation| writer.conversation(conversation)).collect(),
        findings: writer.findings(),
    };
    let mut json = to_json_text(&data);
    let datagrams = writer.datagrams(MAX_DATA_BYTES.saturating_sub(json.len()).min(MAX_DATAGRAM_BYTES));
    // The members `datagrams` and `fields` are inserted before the closing brace.
    json.pop();
    json.push_str(",\"datagrams\":[");
    json.push_str(&datagrams.join(","));
    json.push_str("],\"fields\":");
    json.push_str(&to_json_text(&writer.fields));
    json.push('}');
    // A text with `</script>` must not end the script. In JSON the character `<` occurs only in strings.
    (json.replace('<', "\\u003c"), datagrams.len())
}

struct ReportJsonBuilder<'a> {
    report: &'a HtmlReport,
    start: u64,
    /// The indices of kinds and of conversations in their lists.
    kind_indices: BTreeMap<&'static str, usize>,
    conversations: BTreeMap<ConversationId, (usize, Conversation<'a>)>,
    /// The field names that were needed so far, with their rules.
    fields: Vec<(&'static str, &'static str)>,
}

impl ReportJsonBuilder<'_> {
    fn micros_since_start(&self, micros: u64) -> u64 {
        micros.saturating_sub(self.start)
    }

    /// Returns the index of a conversation, and 1 if the side is the host or 0 if it is the client.
    fn conversation_and_side(&self, id: ConversationId, side: Side) -> (Option<usize>, usize) {
        let Some((place, talk)) = self.conversations.get(&id) else { return (None, super::side_index(side)) };
        (Some(*place), usize::from(talk.client_and_host()[1] == side))
    }

    fn all_conversations(
        &self,
        rest: Option<&AggregateCounters>,
        conversations: &[Conversation<'_>],
    ) -> DetailJson {
        let mut lives = [[AckLifetimes::default(); 2]; 2];
        for (talk, sides) in conversations.iter().map(|talk| (talk, talk.client_and_host())) {
            for ([gone, kept], side) in lives.iter_mut().zip(sides) {
                gone.add(talk.dropped_ack_lifetimes(side));
                kept.add(&talk.pending_ack_lifetimes(side));
            }
        }
        let each = conversations
            .iter()
            .map(|conversation| conversation.client_and_host().map(|side| conversation.counters(side)));
        let rest = rest.map(|rest| [&rest.clients, &rest.hosts]);
        detail(self.report.all_series.clone(), each.chain(rest), lives)
    }

    fn conversation(&self, talk: &Conversation<'_>) -> ConversationJson {
        let sides = talk.client_and_host();
        let traffic = sides.map(|side| talk.counters(side));
        let messages =
            |count: &dyn Fn(&SideCounters) -> MessageCounter| traffic.map(|traffic| count(traffic).messages);
        let host = talk.address(sides[1]);
        let name = |side: Side| {
            let id = talk.peer(side).filter(|id| *id != PeerId::HOST)?;
            self.report.player_names.get(host, id).map(|name| format!("{name} ({id})"))
        };
        let series = self.report.plotted.get(&talk.id()).cloned();
        let detail = series.map(|series| {
            let lives =
                sides.map(|side| [*talk.dropped_ack_lifetimes(side), talk.pending_ack_lifetimes(side)]);
            let [first, second] = series;
            let series = if sides[0] == Side::First { [first, second] } else { [second, first] };
            detail(series, [traffic], lives)
        });
        ConversationJson {
            who: sides.map(|side| name(side).unwrap_or_else(|| short_name(talk, side))),
            address: sides.map(|side| talk.address(side).to_string()),
            from: self.micros_since_start(talk.started().as_micros()),
            to: self.micros_since_start(talk.last_seen().as_micros()),
            datagrams: traffic.map(|traffic| traffic.datagrams),
            bytes: traffic.map(|traffic| traffic.bytes),
            acks: traffic.map(|traffic| traffic.acks.bytes),
            stale: messages(&|traffic| traffic.stale_acks),
            again: messages(&|traffic| traffic.retransmissions),
            faults: self.report.fault_counts.get(&talk.id()).copied().unwrap_or(0),
            trip: sides.map(|side| talk.rtt(side).and_then(|trip| u64::try_from(trip.as_micros()).ok())),
            detail,
        }
    }

    fn findings(&self) -> Vec<FindingJson> {
        let samples = self.report.samples.iter().flat_map(|(title, samples)| {
            samples.items().iter().map(|kept| (self.kind_indices.get(title).copied().unwrap_or(0), kept))
        });
        let found = |(kind, StoredFinding { finding, related_datagrams: about, omitted: left_out }): (
            usize,
            &StoredFinding,
        )| {
            let (talk, side) = self.conversation_and_side(finding.conversation, finding.side);
            FindingJson {
                kind,
                at: self.micros_since_start(finding.at.as_micros()),
                packet: (finding.mark != NO_MARK).then_some(finding.mark),
                talk,
                side,
                text: finding.kind.to_string(),
                about: about.iter().map(|kept| kept.number).collect(),
                left_out: *left_out,
            }
        };
        let mut all: Vec<FindingJson> = samples.map(found).collect();
        all.sort_by_key(|found| found.at);
        all
    }

    /// Returns datagrams as JSON, up to `room` bytes, in the order of the capture.
    ///
    /// Datagrams with a finding are chosen first, then other datagrams of findings, then the first ones of the capture.
    fn datagrams(&mut self, room: usize) -> Vec<String> {
        let report = self.report;
        let samples = || report.samples.iter().flat_map(|(_, samples)| samples.items());
        let own = samples().flat_map(|kept| {
            kept.related_datagrams.iter().filter(|datagram| datagram.number == kept.finding.mark)
        });
        let about = samples().flat_map(|kept| &kept.related_datagrams);
        let mut shown: BTreeMap<u64, String> = BTreeMap::new();
        let mut used = 0;
        for kept in own.chain(about).chain(report.datagram_store.first()) {
            if shown.contains_key(&kept.number) {
                continue;
            }
            let text = to_json_text(&self.datagram(kept));
            used += text.len() + 1;
            if used > room {
                break;
            }
            shown.insert(kept.number, text);
        }
        shown.into_values().collect()
    }

    fn datagram(&mut self, kept: &Rc<StoredDatagram>) -> DatagramJson {
        let (talk, side) =
            kept.conversation.map_or((None, 0), |(id, side)| self.conversation_and_side(id, side));
        let found = kept.findings.borrow();
        let found = found.iter().map(|found| {
            (
                self.kind_indices.get(found.title).copied().unwrap_or(0),
                found.count,
                found.first.kind.to_string(),
            )
        });
        let found = found.collect();
        DatagramJson {
            n: kept.number,
            at: self.micros_since_start(kept.at),
            talk,
            side,
            ends: talk.is_none().then(|| [kept.from, kept.to].map(|end| end.to_string())),
            place: kept.index_in_conversation,
            len: kept.len,
            hex: kept.bytes.iter().map(|byte| format!("{byte:02x}")).collect(),
            comment: kept.comment.as_deref().map(human::printable),
            joined: kept.reassembled.clone(),
            found,
            messages: self.messages(kept),
        }
    }

    fn messages(&mut self, kept: &StoredDatagram) -> Vec<MessageJson> {
        let mut buffer = MessageBuffer::default();
        let whole = |kind: &str, text: String| vec![(0, kept.bytes.len(), kind.to_owned(), text, Vec::new())];
        match buffer.read(&kept.bytes, None) {
            Content::Datagram(datagram) => {
                let mut at = explain::DATAGRAM_HEADER_LEN;
                let messages = datagram.messages().iter().map(|message| {
                    let start = at;
                    at += message.wire_len();
                    self.message(message, start)
                });
                messages.collect()
            }
            Content::GameSpy(text) => whole("gamespy", human::printable(&latin1_to_string(text))),
            Content::Malformed(_) if kept.len > kept.bytes.len() => {
                whole("too long", format!("{} bytes; only the first bytes are in this page", kept.len))
            }
            Content::Malformed(error) => whole("malformed", error.to_string()),
        }
    }

    fn message(&mut self, message: &Message<'_>, at: usize) -> MessageJson {
        let mut fields = Vec::new();
        for row in explain::message(message, at) {
            fields.push((row.at, row.len, self.field_index((row.field.name(), row.rule)), row.value));
        }
        if let Message::Data(data) = message
            && data.delivery.fragment().is_none_or(|part| part.index() == 0)
        {
            let start = at + message.wire_len() - data.payload.len();
            if let Some(opcode) = data.payload.first() {
                let name = Opcode(*opcode).name().unwrap_or("unknown");
                fields.push((start, 1, self.field_index(("opcode", "")), format!("0x{opcode:02X} {name}")));
            }
            for field in describe(data.payload).fields {
                let place = self.field_index((field.name, ""));
                fields.push((start + field.range.start, field.range.len(), place, field.value.to_string()));
            }
        }
        let kind = message.kind().name().unwrap_or("unknown").to_owned();
        (at, message.wire_len(), kind, human::message_text(message), fields)
    }

    /// Returns the index of a field name in the list of names.
    fn field_index(&mut self, name: (&'static str, &'static str)) -> usize {
        self.fields.iter().position(|known| *known == name).unwrap_or_else(|| {
            self.fields.push(name);
            self.fields.len() - 1
        })
    }
}

fn detail<'a>(
    mut series: [ReportSeries; 2],
    traffic: impl IntoIterator<Item = [&'a SideCounters; 2]>,
    lives: [[AckLifetimes; 2]; 2],
) -> DetailJson {
    let width = series.iter().map(ReportSeries::width).max().unwrap_or(1);
    series.iter_mut().for_each(|series| series.widen_to(width));
    let mut opcodes: BTreeMap<u8, [MessageCounter; 2]> = BTreeMap::new();
    for (place, traffic) in traffic.into_iter().flat_map(|sides| sides.into_iter().enumerate()) {
        for (opcode, count) in traffic.opcodes() {
            let sum = &mut opcodes.entry(opcode).or_default()[place];
            sum.messages += count.messages;
            sum.bytes += count.bytes;
        }
    }
    let row = |(opcode, counts): (u8, [MessageCounter; 2])| {
        let name = Opcode(opcode).name().unwrap_or("unknown");
        (opcode, name, counts.map(|count| count.messages), counts.map(|count| count.bytes))
    };
    DetailJson {
        width,
        sides: series.map(|series| series_json(series.intervals())),
        opcodes: opcodes.into_iter().map(row).collect(),
        lives: lives.map(|[gone, kept]| AckLifetimesJson {
            sends: gone.by_send_count.to_vec(),
            most: gone.max_sends,
            longest: gone.max_lifetime.as_secs_f64(),
            kept: kept.count(),
            kept_most: kept.max_sends,
        }),
    }
}

fn series_json(steps: &[SeriesInterval]) -> SeriesJson {
    let line = |value: &dyn Fn(&SeriesInterval) -> u64| steps.iter().map(value).collect();
    SeriesJson {
        owed: line(&|step| step.pending_acks.max),
        waiting: line(&|step| step.unacknowledged.max),
        bytes: line(&|step| step.bytes),
        acks: line(&|step| step.ack_bytes),
        again: line(&|step| step.retransmissions),
        trip: steps.iter().map(|step| step.round_trip_micros.map(|trip| trip.max)).collect(),
        fullest: line(&|step| step.largest_datagram),
    }
}

fn to_json_text(value: &impl Serialize) -> String {
    // Serialisation cannot fail: all keys are strings.
    serde_json::to_string(value).unwrap_or_default()
}

/// The most bytes of all data, and of the datagrams in it.
const MAX_DATA_BYTES: usize = 4_700_000;
const MAX_DATAGRAM_BYTES: usize = 2_500_000;
