//! What the script of a page reads, as JSON.

use std::collections::BTreeMap;
use std::rc::Rc;

use bcnet_observe::{
    AckLives, Content, Conversation, ConversationId, Count, MessageBuffer, NO_MARK, Side, Totals, Traffic,
};
use bcnet_session::game::{Opcode, describe};
use bcnet_transport::wire::{Message, PeerId};
use serde::Serialize;

use super::super::summary::short_name;
use super::super::tally::Tallied;
use super::keep::Kept;
use super::series::{Series, Step};
use super::{KeptFinding, Report};
use crate::inspect::{explain, human, latin1};

/// Everything but the datagrams.
#[derive(Serialize)]
struct Data {
    /// When the capture begins, and how long it lasts, in microseconds.
    start: u64,
    span: u64,
    kinds: Vec<Kind>,
    all: Detail,
    talks: Vec<Talk>,
    findings: Vec<Found>,
}

/// A kind of finding.
#[derive(Serialize)]
struct Kind {
    title: &'static str,
    weight: u8,
    count: u64,
}

/// A conversation. Pairs are of the client and the host.
#[derive(Serialize)]
struct Talk {
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
    detail: Option<Detail>,
}

/// What is plotted.
#[derive(Serialize)]
struct Detail {
    /// The length of a step in microseconds.
    width: u64,
    sides: [Lines; 2],
    /// Number, name, and messages and bytes of both sides.
    opcodes: Vec<(u8, &'static str, [u64; 2], [u64; 2])>,
    lives: [Lives; 2],
}

#[derive(Serialize)]
struct Lines {
    owed: Vec<u64>,
    waiting: Vec<u64>,
    bytes: Vec<u64>,
    acks: Vec<u64>,
    again: Vec<u64>,
    trip: Vec<Option<u64>>,
    fullest: Vec<u64>,
}

/// How often ACKs were sent.
#[derive(Serialize)]
struct Lives {
    sends: Vec<u64>,
    most: u32,
    longest: f64,
    kept: u64,
    kept_most: u32,
}

/// A finding with its datagrams.
#[derive(Serialize)]
struct Found {
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
struct Datagram {
    n: u64,
    at: u64,
    talk: Option<usize>,
    side: usize,
    /// If it is of no conversation.
    #[serde(skip_serializing_if = "Option::is_none")]
    ends: Option<[String; 2]>,
    place: u64,
    len: usize,
    hex: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    comment: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    joined: Vec<String>,
    /// Kind, how often, and the first in words.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    found: Vec<(usize, u64, String)>,
    messages: Vec<Shown>,
}

/// A message: where it is and how long, its kind, what it says, and its fields: where, how long, which, and its value.
type Shown = (usize, usize, String, String, Vec<(usize, usize, usize, String)>);

/// Returns the data as JSON that can stand in a script, and how many datagrams are in it. `rest` are conversations of
/// which only counts are known.
pub(super) fn json(
    report: &Report,
    rest: Option<&Totals>,
    ranked: &[&Tallied],
    talks: &[Conversation<'_>],
) -> (String, usize) {
    let mut writer = Writer {
        report,
        start: report.start.unwrap_or(0),
        kinds: ranked.iter().enumerate().map(|(place, tallied)| (tallied.kind.title, place)).collect(),
        talks: talks.iter().enumerate().map(|(place, talk)| (talk.id(), (place, *talk))).collect(),
        fields: Vec::new(),
    };
    let kind = |Tallied { kind, count, .. }: &&Tallied| Kind {
        title: kind.title,
        weight: kind.weight,
        count: *count,
    };
    let data = Data {
        start: writer.start,
        span: report.last.saturating_sub(writer.start),
        kinds: ranked.iter().map(kind).collect(),
        all: writer.all(rest, talks),
        talks: talks.iter().map(|talk| writer.talk(talk)).collect(),
        findings: writer.findings(),
    };
    let mut json = text(&data);
    let datagrams = writer.datagrams(MAX_DATA.saturating_sub(json.len()).min(MAX_DATAGRAMS));
    // Two members more, in front of the bracket that ends it.
    json.pop();
    json.push_str(",\"datagrams\":[");
    json.push_str(&datagrams.join(","));
    json.push_str("],\"fields\":");
    json.push_str(&text(&writer.fields));
    json.push('}');
    // So no text ends the script; in JSON this letter stands in texts only.
    (json.replace('<', "\\u003c"), datagrams.len())
}

struct Writer<'a> {
    report: &'a Report,
    start: u64,
    /// The places of kinds and of conversations in their lists.
    kinds: BTreeMap<&'static str, usize>,
    talks: BTreeMap<ConversationId, (usize, Conversation<'a>)>,
    /// Names of fields with their rules, as far as they were needed.
    fields: Vec<(&'static str, &'static str)>,
}

impl Writer<'_> {
    fn since(&self, micros: u64) -> u64 {
        micros.saturating_sub(self.start)
    }

    /// Returns the place of a conversation, and 1 if a side of it is the host, 0 if it is the client.
    fn place_of(&self, id: ConversationId, side: Side) -> (Option<usize>, usize) {
        let Some((place, talk)) = self.talks.get(&id) else { return (None, super::place(side)) };
        (Some(*place), usize::from(talk.sides()[1] == side))
    }

    fn all(&self, rest: Option<&Totals>, talks: &[Conversation<'_>]) -> Detail {
        let mut lives = [[AckLives::default(); 2]; 2];
        for (talk, sides) in talks.iter().map(|talk| (talk, talk.sides())) {
            for ([gone, kept], side) in lives.iter_mut().zip(sides) {
                gone.add(talk.ack_lives(side));
                kept.add(&talk.kept_acks(side));
            }
        }
        let each = talks.iter().map(|talk| talk.sides().map(|side| talk.traffic(side)));
        let rest = rest.map(|rest| [&rest.clients, &rest.hosts]);
        detail(self.report.all.clone(), each.chain(rest), lives)
    }

    fn talk(&self, talk: &Conversation<'_>) -> Talk {
        let sides = talk.sides();
        let traffic = sides.map(|side| talk.traffic(side));
        let messages = |count: &dyn Fn(&Traffic) -> Count| traffic.map(|traffic| count(traffic).messages);
        let host = talk.address(sides[1]);
        let name = |side: Side| {
            let id = talk.peer(side).filter(|id| *id != PeerId::HOST)?;
            self.report.names.get(host, id).map(|name| format!("{name} ({id})"))
        };
        let series = self.report.talks.get(&talk.id()).cloned();
        let detail = series.map(|series| {
            let lives = sides.map(|side| [*talk.ack_lives(side), talk.kept_acks(side)]);
            let [first, second] = series;
            let series = if sides[0] == Side::First { [first, second] } else { [second, first] };
            detail(series, [traffic], lives)
        });
        Talk {
            who: sides.map(|side| name(side).unwrap_or_else(|| short_name(talk, side))),
            address: sides.map(|side| talk.address(side).to_string()),
            from: self.since(talk.started().as_micros()),
            to: self.since(talk.last().as_micros()),
            datagrams: traffic.map(|traffic| traffic.datagrams),
            bytes: traffic.map(|traffic| traffic.bytes),
            acks: traffic.map(|traffic| traffic.acks.bytes),
            stale: messages(&|traffic| traffic.stale_acks),
            again: messages(&|traffic| traffic.retransmissions),
            faults: self.report.faults.get(&talk.id()).copied().unwrap_or(0),
            trip: sides
                .map(|side| talk.round_trip(side).and_then(|trip| u64::try_from(trip.as_micros()).ok())),
            detail,
        }
    }

    fn findings(&self) -> Vec<Found> {
        let samples = self.report.samples.iter().flat_map(|(title, samples)| {
            samples.items().iter().map(|kept| (self.kinds.get(title).copied().unwrap_or(0), kept))
        });
        let found = |(kind, KeptFinding { finding, about, left_out }): (usize, &KeptFinding)| {
            let (talk, side) = self.place_of(finding.conversation, finding.side);
            Found {
                kind,
                at: self.since(finding.at.as_micros()),
                packet: (finding.mark != NO_MARK).then_some(finding.mark),
                talk,
                side,
                text: finding.what.to_string(),
                about: about.iter().map(|kept| kept.number).collect(),
                left_out: *left_out,
            }
        };
        let mut all: Vec<Found> = samples.map(found).collect();
        all.sort_by_key(|found| found.at);
        all
    }

    /// Returns as many datagrams as fit, in their order: those at which findings stand come before those that they are
    /// about, and these before the first of the capture.
    fn datagrams(&mut self, room: usize) -> Vec<String> {
        let report = self.report;
        let samples = || report.samples.iter().flat_map(|(_, samples)| samples.items());
        let own = samples()
            .flat_map(|kept| kept.about.iter().filter(|datagram| datagram.number == kept.finding.mark));
        let about = samples().flat_map(|kept| &kept.about);
        let mut shown: BTreeMap<u64, String> = BTreeMap::new();
        let mut used = 0;
        for kept in own.chain(about).chain(report.shelf.first()) {
            if shown.contains_key(&kept.number) {
                continue;
            }
            let text = text(&self.datagram(kept));
            used += text.len() + 1;
            if used > room {
                break;
            }
            shown.insert(kept.number, text);
        }
        shown.into_values().collect()
    }

    fn datagram(&mut self, kept: &Rc<Kept>) -> Datagram {
        let (talk, side) = kept.talk.map_or((None, 0), |(id, side)| self.place_of(id, side));
        let found = kept.found.borrow();
        let found = found.iter().map(|found| {
            (self.kinds.get(found.title).copied().unwrap_or(0), found.count, found.first.what.to_string())
        });
        let found = found.collect();
        Datagram {
            n: kept.number,
            at: self.since(kept.at),
            talk,
            side,
            ends: talk.is_none().then(|| [kept.from, kept.to].map(|end| end.to_string())),
            place: kept.place,
            len: kept.len,
            hex: kept.bytes.iter().map(|byte| format!("{byte:02x}")).collect(),
            comment: kept.comment.as_deref().map(human::printable),
            joined: kept.joined.clone(),
            found,
            messages: self.messages(kept),
        }
    }

    fn messages(&mut self, kept: &Kept) -> Vec<Shown> {
        let mut buffer = MessageBuffer::default();
        let whole = |kind: &str, said: String| vec![(0, kept.bytes.len(), kind.to_owned(), said, Vec::new())];
        match buffer.read(&kept.bytes, None) {
            Content::Datagram(datagram) => {
                let mut at = explain::DATAGRAM_HEADER;
                let messages = datagram.messages().iter().map(|message| {
                    let start = at;
                    at += message.wire_len();
                    self.message(message, start)
                });
                messages.collect()
            }
            Content::GameSpy(said) => whole("gamespy", human::printable(&latin1(said))),
            Content::Malformed(_) if kept.len > kept.bytes.len() => {
                whole("too long", format!("{} bytes, of which these are kept", kept.len))
            }
            Content::Malformed(error) => whole("malformed", error.to_string()),
        }
    }

    fn message(&mut self, message: &Message<'_>, at: usize) -> Shown {
        let mut fields = Vec::new();
        for row in explain::message(message, at) {
            fields.push((row.at, row.len, self.field((row.field.name(), row.rule)), row.value));
        }
        if let Message::Data(data) = message
            && data.delivery.part().is_none_or(|part| part.index() == 0)
        {
            let start = at + message.wire_len() - data.payload.len();
            if let Some(opcode) = data.payload.first() {
                let name = Opcode(*opcode).name().unwrap_or("unknown");
                fields.push((start, 1, self.field(("opcode", "")), format!("0x{opcode:02X} {name}")));
            }
            for field in describe(data.payload).fields {
                let place = self.field((field.name, ""));
                fields.push((start + field.at.start, field.at.len(), place, field.value.to_string()));
            }
        }
        let kind = message.kind().name().unwrap_or("unknown").to_owned();
        (at, message.wire_len(), kind, human::message(message), fields)
    }

    /// Returns the place of a name of a field in the list of those.
    fn field(&mut self, name: (&'static str, &'static str)) -> usize {
        self.fields.iter().position(|known| *known == name).unwrap_or_else(|| {
            self.fields.push(name);
            self.fields.len() - 1
        })
    }
}

fn detail<'a>(
    mut series: [Series; 2],
    traffic: impl IntoIterator<Item = [&'a Traffic; 2]>,
    lives: [[AckLives; 2]; 2],
) -> Detail {
    let width = series.iter().map(Series::width).max().unwrap_or(1);
    series.iter_mut().for_each(|series| series.widen_to(width));
    let mut opcodes: BTreeMap<u8, [Count; 2]> = BTreeMap::new();
    for (place, traffic) in traffic.into_iter().flat_map(|sides| sides.into_iter().enumerate()) {
        for (opcode, count) in traffic.opcodes() {
            let sum = &mut opcodes.entry(opcode).or_default()[place];
            sum.messages += count.messages;
            sum.bytes += count.bytes;
        }
    }
    let row = |(opcode, counts): (u8, [Count; 2])| {
        let name = Opcode(opcode).name().unwrap_or("unknown");
        (opcode, name, counts.map(|count| count.messages), counts.map(|count| count.bytes))
    };
    Detail {
        width,
        sides: series.map(|series| lines(series.steps())),
        opcodes: opcodes.into_iter().map(row).collect(),
        lives: lives.map(|[gone, kept]| Lives {
            sends: gone.sends.to_vec(),
            most: gone.most,
            longest: gone.longest.as_secs_f64(),
            kept: kept.count(),
            kept_most: kept.most,
        }),
    }
}

fn lines(steps: &[Step]) -> Lines {
    let line = |value: &dyn Fn(&Step) -> u64| steps.iter().map(value).collect();
    Lines {
        owed: line(&|step| step.owed.most),
        waiting: line(&|step| step.waiting.most),
        bytes: line(&|step| step.bytes),
        acks: line(&|step| step.ack_bytes),
        again: line(&|step| step.retransmissions),
        trip: steps.iter().map(|step| step.round_trip.map(|trip| trip.most)).collect(),
        fullest: line(&|step| step.fullest),
    }
}

fn text(value: &impl Serialize) -> String {
    // Nothing here has keys that are no texts, so it does not fail.
    serde_json::to_string(value).unwrap_or_default()
}

/// The most that all data may take, and the datagrams among it, in bytes.
const MAX_DATA: usize = 4_700_000;
const MAX_DATAGRAMS: usize = 2_500_000;
