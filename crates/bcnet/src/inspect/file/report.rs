//! A page about a capture for a host who is no analyst: what is wrong in plain words, then plots over time.
//!
//! The page stands alone: no script, no font, no picture from elsewhere.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::PathBuf;

use bcnet_observe::{Conversation, ConversationId, Finding, Observed, Observer, Side, What};
use bcnet_transport::wire::Message;

use super::filter::Filter;
use super::plot::{Line, escape, plot};
use super::series::{Series, Step};
use super::summary::{short_name, side_name};
use super::tally::{Tallied, Tally};
use super::{End, Evidence, Sight, Sink};
use crate::number::{counted, thousands};

pub(super) struct Report {
    path: PathBuf,
    filter: Filter,
    tally: Tally,
    start: Option<u64>,
    /// Both sides of the conversations that are plotted.
    talks: BTreeMap<ConversationId, [Series; 2]>,
}

impl Report {
    pub(super) fn new(path: PathBuf, filter: Filter) -> Self {
        Self { path, filter, tally: Tally::default(), start: None, talks: BTreeMap::new() }
    }

    /// Returns the step of a side at a time, if its conversation is plotted.
    fn step(&mut self, id: ConversationId, side: Side, micros: u64) -> Option<&mut Step> {
        let start = *self.start.get_or_insert(micros);
        if self.talks.len() >= MAX_TALKS && !self.talks.contains_key(&id) {
            return None;
        }
        let series = self.talks.entry(id).or_insert_with(|| [Series::new(start), Series::new(start)]);
        Some(series[place(side)].at(micros))
    }

    fn note(&mut self, finding: &Finding, evidence: Option<Evidence>, observer: &Observer) {
        if !self.filter.wants_late(finding, observer, 0) {
            return;
        }
        self.tally.add(finding, evidence, observer);
        if matches!(finding.what, What::Retransmission { .. })
            && finding.what.is_fault()
            && let Some(step) = self.step(finding.conversation, finding.side, finding.at.as_micros())
        {
            step.retransmissions += 1;
        }
    }

    fn page(&self, end: &End<'_>) -> String {
        let mut page = String::from(HEAD);
        let title = escape(end.name);
        let _ = write!(page, "<title>{title}</title></head><body><h1>{title}</h1>");
        let mut talks: Vec<Conversation<'_>> =
            end.observer.conversations().filter(|talk| self.filter.wants_talk(talk)).collect();
        talks.sort_by_key(|talk| std::cmp::Reverse(bytes(talk)));
        let rest = end.observer.rest();
        let total: u64 = talks.iter().map(bytes).sum::<u64>() + rest.clients.bytes + rest.hosts.bytes;
        let count = talks.len() as u64 + rest.conversations;
        let _ = write!(
            page,
            "<p>{}, {}, {} of game traffic.</p>",
            counted(end.packets, "packet"),
            counted(count, "conversation"),
            counted(total, "byte")
        );
        if !end.skipped.is_empty() {
            let _ = write!(page, "<p class=quiet>Not looked at: {}.</p>", escape(&end.skipped.to_string()));
        }
        self.verdict(&mut page);
        for text in end.left_out() {
            let _ = write!(page, "<p class=quiet>{}.</p>", escape(&text));
        }
        let plotted = talks.iter().filter(|talk| self.talks.contains_key(&talk.id())).take(MAX_SHOWN);
        let shown = plotted.map(|talk| self.talk(&mut page, talk)).count() as u64;
        if count > shown {
            let rest = thousands(count - shown);
            let _ = write!(page, "<p class=quiet>{rest} more conversations are not plotted.</p>");
        }
        page.push_str("</body></html>\n");
        page
    }

    /// What is wrong, the worst first.
    fn verdict(&self, page: &mut String) {
        let ranked = self.tally.ranked();
        page.push_str("<h2>What was found</h2>");
        if ranked.is_empty() {
            page.push_str("<p>Nothing: everything arrived and was acknowledged as it should.</p>");
            return;
        }
        page.push_str("<table><tr><th>how often<th>what<th>what it means<th>first seen</tr>");
        for tallied in ranked {
            let Tallied { kind, count, first, place, who, .. } = tallied;
            let class = match kind.weight {
                0 => "none",
                1..=3 => "mild",
                4..=6 => "bad",
                _ => "worst",
            };
            let start = self.start.unwrap_or(0);
            let time = first.at.as_micros().saturating_sub(start) as f64 / 1e6;
            let packet = place.map_or_else(String::new, |place| format!(", packet {}", place.number));
            let _ = write!(
                page,
                "<tr class={class}><td class=number>{}<td>{}<td>{}<td>{time:.1} s{packet}, {}</tr>",
                thousands(*count),
                kind.title,
                tallied.meaning(),
                escape(who)
            );
        }
        page.push_str("</table>");
    }

    fn talk(&self, page: &mut String, talk: &Conversation<'_>) {
        let Some(series) = self.talks.get(&talk.id()) else { return };
        let mut series = series.clone();
        let width = series.iter().map(Series::width).max().unwrap_or(1_000_000);
        series.iter_mut().for_each(|series| series.widen_to(width));
        let sides = talk.sides();
        let names = sides.map(|side| short_name(talk, side));
        let [a, b] = sides.map(|side| escape(&side_name(talk, side)));
        let _ = write!(page, "<h2>{a} and {b}</h2><div class=plots>");
        let seconds = width as f64 / 1e6;
        let lines = |value: &dyn Fn(&Step) -> Option<f64>, what: &str| -> Vec<Line> {
            let line = |place: usize| Line {
                name: format!("{}{what}", names[place]),
                color: COLORS[place],
                values: series[self::place(sides[place])].steps().iter().map(value).collect(),
            };
            vec![line(0), line(1)]
        };
        let mut add = |title: &str, note: &str, lines: Vec<Line>| {
            page.push_str(&plot(title, note, seconds, &lines));
        };
        add(
            "ACKs in the outbox",
            "How many acknowledgements each side keeps repeating. The stock game sends each up to nine times.",
            lines(&|step| Some(step.owed.most as f64), ""),
        );
        add(
            "Messages waiting for an ACK",
            "Short peaks are normal. A line that stays up means that something does not get through.",
            lines(&|step| Some(step.waiting.most as f64), ""),
        );
        let per_second = |bytes: u64| Some(bytes as f64 / seconds);
        let mut traffic = lines(&|step| per_second(step.bytes), ", all");
        let acks = lines(&|step| per_second(step.ack_bytes), ", ACKs");
        traffic.extend(acks.into_iter().zip(ACK_COLORS).map(|(line, color)| Line { color, ..line }));
        add("Bytes per second", "The pale lines are the acknowledgements among them.", traffic);
        add(
            "Messages sent again",
            "Each was lost on the way, or its acknowledgement was.",
            lines(&|step| Some(step.retransmissions as f64), ""),
        );
        add(
            "Round trip in milliseconds",
            "From a message to its acknowledgement, as seen where the capture was taken.",
            lines(&|step| step.round_trip.map(|micros| micros as f64 / 1e3), ""),
        );
        add(
            "Fullest datagram in % of its room",
            "At 100 % something has to wait for the next datagram.",
            lines(&|step| Some(step.fullest as f64 / 5.12), ""),
        );
        page.push_str("</div>");
    }
}

impl Sink for Report {
    fn see(&mut self, sight: &Sight<'_>) -> io::Result<()> {
        let Sight { packet, what, findings, observer, .. } = sight;
        self.start.get_or_insert(packet.time.as_micros());
        let evidence = Evidence { number: packet.number, offset: packet.offset };
        for finding in *findings {
            self.note(finding, Some(evidence), observer);
        }
        let Observed::Datagram(datagram, id, side) = what else { return Ok(()) };
        let Some(talk) = observer.conversation(*id).filter(|talk| self.filter.wants_talk(talk)) else {
            return Ok(());
        };
        let acks = datagram.messages().iter().filter(|message| matches!(message, Message::Ack(_)));
        let ack_bytes: usize = acks.map(|message| message.wire_len()).sum();
        let bytes = datagram.as_bytes().len() as u64;
        for each in [*side, side.other()] {
            let (waiting, owed) = (talk.unacknowledged(each) as u64, talk.owed_acks(each) as u64);
            let trip = talk.round_trip(each).and_then(|trip| u64::try_from(trip.as_micros()).ok());
            let Some(step) = self.step(*id, each, packet.time.as_micros()) else { return Ok(()) };
            step.waiting.note(waiting);
            step.owed.note(owed);
            step.round_trip = trip.or(step.round_trip);
            if each == *side {
                step.bytes += bytes;
                step.ack_bytes += ack_bytes as u64;
                step.fullest = step.fullest.max(bytes);
            }
        }
        Ok(())
    }

    fn find(&mut self, finding: &Finding, place: Option<Evidence>, observer: &Observer) -> io::Result<()> {
        self.note(finding, place, observer);
        Ok(())
    }

    fn finish(&mut self, end: &End<'_>) -> io::Result<()> {
        let named =
            |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", self.path.display()));
        fs::write(&self.path, self.page(end)).map_err(named)
    }
}

const fn place(side: Side) -> usize {
    match side {
        Side::First => 0,
        Side::Second => 1,
    }
}

fn bytes(talk: &Conversation<'_>) -> u64 {
    talk.traffic(Side::First).bytes + talk.traffic(Side::Second).bytes
}

const HEAD: &str = "<!doctype html><html lang=en><head><meta charset=utf-8><meta name=viewport content=\"width=device-width\"><style>
body{font:16px/1.45 system-ui,sans-serif;max-width:1080px;margin:2em auto;padding:0 1em;color:#1c2430;background:#fff}
h1{font-size:1.5em}h2{font-size:1.15em;margin-top:2em}
table{border-collapse:collapse;width:100%}th{text-align:left;font-weight:600;color:#5b6675}
td,th{padding:.35em .7em;border-bottom:1px solid #dde2e8;vertical-align:top}
.number{text-align:right;font-variant-numeric:tabular-nums}
tr td:first-child{border-left:.4em solid #c9d1da}
tr.mild td:first-child{border-left-color:#e3c14a}tr.bad td:first-child{border-left-color:#e08a2c}
tr.worst td:first-child{border-left-color:#c8382f}
.plots{display:grid;grid-template-columns:repeat(auto-fit,minmax(470px,1fr));gap:1.2em}
figure{margin:0}figcaption{font-weight:600}.quiet,figure p{color:#5b6675;font-size:.85em;margin:.1em 0}
svg{width:100%;height:auto}svg text{font:11px system-ui,sans-serif;fill:#5b6675}
</style>";
const COLORS: [&str; 2] = ["#1f6fb2", "#c25a1b"];
const ACK_COLORS: [&str; 2] = ["#9cc5e6", "#efb795"];
/// Conversations that are remembered, and that are shown.
const MAX_TALKS: usize = 64;
const MAX_SHOWN: usize = 6;
