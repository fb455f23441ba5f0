//! Summarises a capture in numbers: conversations, traffic by opcode, and faults by severity.

use std::collections::BTreeMap;
use std::io::{self, Write};

use bcnet_observe::{
    AggregateCounters, Conversation, Finding, MessageCounter, Observed, Observer, Side, SideCounters,
};
use bcnet_session::game::Opcode;
use bcnet_transport::wire::{PeerId, Role};

use super::ack_lifetimes::{self, AckLifetimePair};
use super::filter::Filter;
use super::finding_counts::{FindingCounts, FindingStats};
use super::{AnalyzedDatagram, CaptureEnd, MergedFile, PacketLocation, Sink, summary_json};
use crate::number_format::{group_digits, pluralize};

pub(super) struct SummarySink<W> {
    out: W,
    filter: Filter,
    finding_counts: FindingCounts,
    gamespy_count: u64,
    /// True if the output is JSON.
    json: bool,
}

impl<W: Write> SummarySink<W> {
    pub(super) fn new(out: W, filter: Filter, json: bool) -> Self {
        Self { out, filter, finding_counts: FindingCounts::default(), gamespy_count: 0, json }
    }

    fn write_conversation(&mut self, number: usize, conversation: &Conversation<'_>) -> io::Result<()> {
        let lasted = conversation.last_seen().since(conversation.started()).as_secs_f64();
        let sides = conversation.client_and_host();
        let [a, b] = sides.map(|side| side_name(conversation, side));
        writeln!(self.out, "\nconversation {number}: {a} and {b}, {lasted:.1} s")?;
        let trips = sides.map(|side| {
            conversation
                .rtt(side)
                .map_or_else(|| "–".into(), |trip| format!("{:.0} ms", trip.as_secs_f64() * 1e3))
        });
        let traffic = sides.map(|side| conversation.counters(side));
        self.write_traffic(
            &sides.map(|side| short_name(conversation, side)),
            traffic,
            AckLifetimePair::of(conversation),
            Some(trips),
        )
    }

    fn write_totals(&mut self, totals: &AggregateCounters) -> io::Result<()> {
        writeln!(self.out, "\nall {} conversations", group_digits(totals.conversations))?;
        let lives =
            AckLifetimePair { dropped: totals.dropped_ack_lifetimes, pending: totals.pending_ack_lifetimes };
        self.write_traffic(&["clients".into(), "hosts".into()], [&totals.clients, &totals.hosts], lives, None)
    }

    fn write_traffic(
        &mut self,
        names: &[String; 2],
        [one, other]: [&SideCounters; 2],
        lives: AckLifetimePair,
        trips: Option<[String; 2]>,
    ) -> io::Result<()> {
        writeln!(self.out, "  {:<28}{:>22}{:>22}", "sent by", names[0], names[1])?;
        let mut row = |title: &str, cells: [String; 2]| {
            writeln!(self.out, "  {title:<28}{:>22}{:>22}", cells[0], cells[1])
        };
        let both = |cell: &dyn Fn(&SideCounters) -> String| [cell(one), cell(other)];
        row("datagrams", both(&|traffic| group_digits(traffic.datagrams)))?;
        row("bytes", both(&|traffic| group_digits(traffic.bytes)))?;
        row("ACKs, of all bytes", both(&|traffic| count_with_share(traffic.acks, traffic)))?;
        row("  stale", both(&|traffic| count_with_share(traffic.stale_acks, traffic)))?;
        row("  of fragments", both(&|traffic| count_with_share(traffic.fragment_acks, traffic)))?;
        for (title, cells) in ack_lifetimes::rows(lives) {
            row(&title, cells)?;
        }
        row("retransmissions", both(&|traffic| count_with_share(traffic.retransmissions, traffic)))?;
        row("keepalives", both(&|traffic| group_digits(traffic.keepalives.messages)))?;
        row("control messages", both(&|traffic| count_with_share(traffic.control, traffic)))?;
        if let Some(trips) = trips {
            row("round trip from capture", trips)?;
        }
        row("game data", both(&|traffic| count_with_share(traffic.data, traffic)))?;
        let mut opcodes: BTreeMap<u8, [MessageCounter; 2]> = BTreeMap::new();
        for (place, traffic) in [one, other].into_iter().enumerate() {
            for (opcode, count) in traffic.opcodes() {
                opcodes.entry(opcode).or_default()[place] = count;
            }
        }
        let mut opcodes: Vec<_> = opcodes.into_iter().collect();
        opcodes
            .sort_by_key(|(opcode, counts)| (std::cmp::Reverse(counts[0].bytes + counts[1].bytes), *opcode));
        let rest = opcodes.split_off(opcodes.len().min(MAX_OPCODES));
        for (opcode, [one_count, other_count]) in opcodes {
            let title = format!("  0x{opcode:02X} {}", Opcode(opcode).name().unwrap_or("unknown"));
            row(&title, [count_with_share(one_count, one), count_with_share(other_count, other)])?;
        }
        if !rest.is_empty() {
            let sum = |place: usize| {
                let add = |sum: MessageCounter, count: MessageCounter| MessageCounter {
                    messages: sum.messages + count.messages,
                    bytes: sum.bytes + count.bytes,
                };
                rest.iter().map(|(_, counts)| counts[place]).fold(MessageCounter::default(), add)
            };
            row(
                &format!("  {} other opcodes", rest.len()),
                [count_with_share(sum(0), one), count_with_share(sum(1), other)],
            )?;
        }
        Ok(())
    }

    fn write_faults(&mut self, end: &CaptureEnd<'_>) -> io::Result<()> {
        let (faults, others): (Vec<_>, Vec<_>) =
            self.finding_counts.by_severity().into_iter().partition(|stats| stats.class.severity > 0);
        for (title, list) in [("faults, the worst first", faults), ("not a fault", others)] {
            if list.is_empty() {
                continue;
            }
            writeln!(self.out, "\n{title}")?;
            for FindingStats { class: kind, count, first, first_location: place, first_side: who, .. } in list
            {
                writeln!(self.out, "  {:>9}  {}", group_digits(*count), kind.title)?;
                let time = first.at.as_micros().saturating_sub(end.start_micros) as f64 / 1e6;
                let place = place.map_or_else(String::new, |place| {
                    let of_file = end.file_name(place).map(|name| format!(" of {name}")).unwrap_or_default();
                    let PacketLocation { number, offset, .. } = place;
                    format!("packet {number} at byte {offset}{of_file}, ")
                });
                writeln!(self.out, "{:13}first: {place}{time:.3} s, {who}: {}", "", first.kind)?;
            }
        }
        Ok(())
    }
}

impl<W: Write> Sink for SummarySink<W> {
    fn on_datagram(&mut self, analyzed: &AnalyzedDatagram<'_>) -> io::Result<()> {
        let place = PacketLocation::of(analyzed.packet);
        let gamespy = matches!(analyzed.content, Observed::GameSpy(_));
        self.gamespy_count +=
            u64::from(gamespy && self.filter.wants_metadata(analyzed.packet, [None, None], 0));
        analyzed
            .findings
            .iter()
            .try_for_each(|finding| self.on_finding(finding, Some(place), analyzed.observer))
    }

    fn on_finding(
        &mut self,
        finding: &Finding,
        place: Option<PacketLocation>,
        observer: &Observer,
    ) -> io::Result<()> {
        if self.filter.wants_late_finding(finding, observer, 0) {
            self.finding_counts.add(finding, place, observer);
        }
        Ok(())
    }

    fn on_end(&mut self, end: &CaptureEnd<'_>) -> io::Result<()> {
        let conversations: Vec<_> = end
            .observer
            .conversations()
            .filter(|conversation| self.filter.wants_conversation(conversation))
            .collect();
        let is_all = conversations.len() == end.observer.conversations().count();
        let rest = if is_all { end.observer.evicted_counters().conversations } else { 0 };
        let count = conversations.len() as u64 + rest;
        if self.json {
            let totals = is_all.then(|| end.observer.counters());
            let whole = summary_json::summary_json(
                end,
                &conversations,
                totals.as_ref(),
                &self.finding_counts,
                (count, self.gamespy_count),
            );
            writeln!(self.out, "{whole}")?;
            return self.out.flush();
        }
        writeln!(
            self.out,
            "{}: {} in {}, {}, {}",
            end.name,
            pluralize(end.packets, "packet"),
            pluralize(end.bytes, "byte"),
            pluralize(count, "conversation"),
            pluralize(self.gamespy_count, "GameSpy datagram")
        )?;
        for MergedFile { name, first, last, packets } in end.files {
            let range = format!("packets {} to {}", group_digits(*first), group_digits(*last));
            match *packets {
                0 => writeln!(self.out, "  no packets: {name}")?,
                all if all == last + 1 - first => writeln!(self.out, "  {range}: {name}")?,
                some => writeln!(self.out, "  {} of {range}: {name}", group_digits(some))?,
            }
        }
        if !end.skipped.is_empty() {
            writeln!(self.out, "skipped: {}", end.skipped)?;
        }
        if count > 1 && is_all {
            self.write_totals(&end.observer.counters())?;
        }
        for (number, talk) in conversations.iter().enumerate() {
            self.write_conversation(number + 1, talk)?;
        }
        self.write_faults(end)?;
        for text in end.omissions() {
            writeln!(self.out, "\n{text}")?;
        }
        self.out.flush()
    }
}

/// Returns a name such as `client peer 2 (10.0.0.2:22101)`.
pub(super) fn side_name(conversation: &Conversation<'_>, side: Side) -> String {
    format!("{} ({})", short_name(conversation, side), conversation.address(side))
}

pub(super) fn short_name(conversation: &Conversation<'_>, side: Side) -> String {
    match (conversation.role(side), conversation.peer(side)) {
        (Some(Role::Host), _) => "host".into(),
        (_, Some(PeerId::UNASSIGNED) | None) => "client".into(),
        (_, Some(id)) => id.to_string(),
    }
}

/// Returns a count with its share of all bytes.
fn count_with_share(count: MessageCounter, traffic: &SideCounters) -> String {
    if count.messages == 0 {
        return "–".into();
    }
    let percent = count.bytes as f64 * 100.0 / traffic.bytes.max(1) as f64;
    format!("{}, {percent:.1} %", group_digits(count.messages))
}

/// The most opcodes that get their own line. The others share one.
const MAX_OPCODES: usize = 24;
