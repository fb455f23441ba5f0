//! What a capture holds, in numbers: conversations, traffic by opcode, and faults by their weight.

use std::collections::BTreeMap;
use std::io::{self, Write};

use bcnet_observe::{Conversation, Count, Finding, Observed, Observer, Side, Totals, Traffic};
use bcnet_session::game::Opcode;
use bcnet_transport::wire::{PeerId, Role};

use super::filter::Filter;
use super::lives::{self, Lives};
use super::tally::{Tallied, Tally};
use super::{End, Evidence, FilePart, Sight, Sink, figures};
use crate::number::{counted, thousands};

pub(super) struct Summary<W> {
    out: W,
    filter: Filter,
    tally: Tally,
    gamespy: u64,
    /// Whether it is for a program.
    json: bool,
}

impl<W: Write> Summary<W> {
    pub(super) fn new(out: W, filter: Filter, json: bool) -> Self {
        Self { out, filter, tally: Tally::default(), gamespy: 0, json }
    }

    fn conversation(&mut self, number: usize, talk: &Conversation<'_>) -> io::Result<()> {
        let lasted = talk.last().since(talk.started()).as_secs_f64();
        let sides = talk.sides();
        let [a, b] = sides.map(|side| side_name(talk, side));
        writeln!(self.out, "\nconversation {number}: {a} and {b}, {lasted:.1} s")?;
        let trips = sides.map(|side| {
            talk.round_trip(side)
                .map_or_else(|| "–".into(), |trip| format!("{:.0} ms", trip.as_secs_f64() * 1e3))
        });
        let traffic = sides.map(|side| talk.traffic(side));
        self.traffic(&sides.map(|side| short_name(talk, side)), traffic, Lives::of(talk), Some(trips))
    }

    fn totals(&mut self, totals: &Totals) -> io::Result<()> {
        writeln!(self.out, "\nall {} conversations", thousands(totals.conversations))?;
        let lives = Lives { dropped: totals.dropped_acks, kept: totals.kept_acks };
        self.traffic(&["clients".into(), "hosts".into()], [&totals.clients, &totals.hosts], lives, None)
    }

    fn traffic(
        &mut self,
        names: &[String; 2],
        [one, other]: [&Traffic; 2],
        lives: Lives,
        trips: Option<[String; 2]>,
    ) -> io::Result<()> {
        writeln!(self.out, "  {:<28}{:>22}{:>22}", "sent by", names[0], names[1])?;
        let mut row = |title: &str, cells: [String; 2]| {
            writeln!(self.out, "  {title:<28}{:>22}{:>22}", cells[0], cells[1])
        };
        let both = |cell: &dyn Fn(&Traffic) -> String| [cell(one), cell(other)];
        row("datagrams", both(&|traffic| thousands(traffic.datagrams)))?;
        row("bytes", both(&|traffic| thousands(traffic.bytes)))?;
        row("ACKs, of all bytes", both(&|traffic| share(traffic.acks, traffic)))?;
        row("  stale", both(&|traffic| share(traffic.stale_acks, traffic)))?;
        row("  of parts", both(&|traffic| share(traffic.fragment_acks, traffic)))?;
        for (title, cells) in lives::rows(lives) {
            row(&title, cells)?;
        }
        row("retransmissions", both(&|traffic| share(traffic.retransmissions, traffic)))?;
        row("keepalives", both(&|traffic| thousands(traffic.keepalives.messages)))?;
        row("control messages", both(&|traffic| share(traffic.control, traffic)))?;
        if let Some(trips) = trips {
            row("round trip, at the capture", trips)?;
        }
        row("game data", both(&|traffic| share(traffic.data, traffic)))?;
        let mut opcodes: BTreeMap<u8, [Count; 2]> = BTreeMap::new();
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
            row(&title, [share(one_count, one), share(other_count, other)])?;
        }
        if !rest.is_empty() {
            let sum = |place: usize| {
                let add = |sum: Count, count: Count| Count {
                    messages: sum.messages + count.messages,
                    bytes: sum.bytes + count.bytes,
                };
                rest.iter().map(|(_, counts)| counts[place]).fold(Count::default(), add)
            };
            row(&format!("  {} other opcodes", rest.len()), [share(sum(0), one), share(sum(1), other)])?;
        }
        Ok(())
    }

    fn faults(&mut self, end: &End<'_>) -> io::Result<()> {
        let (faults, others): (Vec<_>, Vec<_>) =
            self.tally.ranked().into_iter().partition(|tallied| tallied.kind.weight > 0);
        for (title, list) in [("faults, the worst first", faults), ("not a fault", others)] {
            if list.is_empty() {
                continue;
            }
            writeln!(self.out, "\n{title}")?;
            for Tallied { kind, count, first, place, who, .. } in list {
                writeln!(self.out, "  {:>9}  {}", thousands(*count), kind.title)?;
                let time = first.at.as_micros().saturating_sub(end.start) as f64 / 1e6;
                let place = place.map_or_else(String::new, |place| {
                    let of_file = end.file_of(place).map(|name| format!(" of {name}")).unwrap_or_default();
                    let Evidence { number, offset, .. } = place;
                    format!("packet {number} at byte {offset}{of_file}, ")
                });
                writeln!(self.out, "{:13}first: {place}{time:.3} s, {who}: {}", "", first.what)?;
            }
        }
        Ok(())
    }
}

impl<W: Write> Sink for Summary<W> {
    fn see(&mut self, sight: &Sight<'_>) -> io::Result<()> {
        let place = Evidence::of(sight.packet);
        let gamespy = matches!(sight.what, Observed::GameSpy(_));
        self.gamespy += u64::from(gamespy && self.filter.wants(sight.packet, [None, None], 0));
        sight.findings.iter().try_for_each(|finding| self.find(finding, Some(place), sight.observer))
    }

    fn find(&mut self, finding: &Finding, place: Option<Evidence>, observer: &Observer) -> io::Result<()> {
        if self.filter.wants_late(finding, observer, 0) {
            self.tally.add(finding, place, observer);
        }
        Ok(())
    }

    fn finish(&mut self, end: &End<'_>) -> io::Result<()> {
        let talks: Vec<_> =
            end.observer.conversations().filter(|talk| self.filter.wants_talk(talk)).collect();
        let is_all = talks.len() == end.observer.conversations().count();
        let rest = if is_all { end.observer.rest().conversations } else { 0 };
        let count = talks.len() as u64 + rest;
        if self.json {
            let totals = is_all.then(|| end.observer.totals());
            let whole = figures::summary(end, &talks, totals.as_ref(), &self.tally, (count, self.gamespy));
            writeln!(self.out, "{whole}")?;
            return self.out.flush();
        }
        writeln!(
            self.out,
            "{}: {} in {}, {}, {}",
            end.name,
            counted(end.packets, "packet"),
            counted(end.bytes, "byte"),
            counted(count, "conversation"),
            counted(self.gamespy, "GameSpy datagram")
        )?;
        for FilePart { name, first, last, packets } in end.files {
            let range = format!("packets {} to {}", thousands(*first), thousands(*last));
            match *packets {
                0 => writeln!(self.out, "  no packets: {name}")?,
                all if all == last + 1 - first => writeln!(self.out, "  {range}: {name}")?,
                some => writeln!(self.out, "  {} of {range}: {name}", thousands(some))?,
            }
        }
        if !end.skipped.is_empty() {
            writeln!(self.out, "not looked at: {}", end.skipped)?;
        }
        if count > 1 && is_all {
            self.totals(&end.observer.totals())?;
        }
        for (number, talk) in talks.iter().enumerate() {
            self.conversation(number + 1, talk)?;
        }
        self.faults(end)?;
        for text in end.left_out() {
            writeln!(self.out, "\n{text}")?;
        }
        self.out.flush()
    }
}

/// `client peer 2 (10.0.0.2:22101)`.
pub(super) fn side_name(talk: &Conversation<'_>, side: Side) -> String {
    format!("{} ({})", short_name(talk, side), talk.address(side))
}

pub(super) fn short_name(talk: &Conversation<'_>, side: Side) -> String {
    match (talk.role(side), talk.peer(side)) {
        (Some(Role::Host), _) => "host".into(),
        (_, Some(PeerId::UNASSIGNED) | None) => "client".into(),
        (_, Some(id)) => id.to_string(),
    }
}

/// Returns a count with its share of all bytes.
fn share(count: Count, traffic: &Traffic) -> String {
    if count.messages == 0 {
        return "–".into();
    }
    let percent = count.bytes as f64 * 100.0 / traffic.bytes.max(1) as f64;
    format!("{}, {percent:.1} %", thousands(count.messages))
}

/// The rest of the opcodes share a line.
const MAX_OPCODES: usize = 24;
