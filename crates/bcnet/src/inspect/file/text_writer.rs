//! Writes datagrams as text: a line for each message, and the findings.
//!
//! All ACKs of a datagram share a line. Each line starts with time and addresses, so that a search for them finds it.
//! On a narrow terminal they are on a separate line above the messages, because they would leave little space.

use std::fmt::Write as _;
use std::io::{self, IsTerminal as _, Write};

use bcnet_observe::{Finding, NO_MARK, NonStock, ParsedDatagram, ReassembledPayload};
use bcnet_transport::wire::{Message, MessageId, PeerId};

use super::delayed_output::{DatagramContent, DatagramWithFindings, DetachedFinding};
use super::filter::Filter;
use super::finding_counts::finding_title;
use super::player_names::PlayerNames;
use super::{PacketInfo, PacketLocation};
use crate::inspect::{explain, human, latin1_to_string};

/// The option `--color`: the use of colours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(in crate::inspect) enum Color {
    /// If the output is a terminal and NO_COLOR is not set.
    Auto,
    Always,
    Never,
}

/// The style of the output.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct TextStyle {
    pub(super) color: bool,
    /// The most columns of a line.
    pub(super) width: Option<usize>,
}

impl TextStyle {
    /// Returns the style for standard output.
    pub(super) fn of(color: Color) -> Self {
        let is_terminal = io::stdout().is_terminal();
        let no_color = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let color = match color {
            Color::Auto => is_terminal && !no_color,
            Color::Always => true,
            Color::Never => false,
        };
        let size = terminal_size::terminal_size().filter(|_| is_terminal);
        Self { color, width: size.map(|(terminal_size::Width(columns), _)| columns.into()) }
    }
}

/// Writes datagrams and findings as lines. Collects the names of players for them.
#[derive(Debug, Default)]
pub(super) struct TextWriter {
    style: TextStyle,
    names: PlayerNames,
}

impl TextWriter {
    pub(super) fn new(style: TextStyle) -> Self {
        Self { style, names: PlayerNames::default() }
    }

    /// Learns player names from a datagram that is not shown.
    pub(super) fn note_names(&mut self, shown: &DatagramWithFindings<'_>) {
        if let DatagramContent::Datagram(datagram, _) = shown.content {
            self.names.learn(shown.packet, datagram);
        }
    }

    /// Writes one datagram with its findings; `since` is its time from the start in seconds.
    pub(super) fn write_datagram(
        &mut self,
        out: &mut impl Write,
        shown: &DatagramWithFindings<'_>,
        joined: &[ReassembledPayload],
        since: f64,
        (filter, explain): (&Filter, bool),
    ) -> io::Result<()> {
        let DatagramWithFindings { packet, content: what, findings } = shown;
        let sender =
            if let DatagramContent::Datagram(datagram, _) = what { Some(datagram.sender()) } else { None };
        let head = self.write_prefix(out, packet, sender, since)?;
        match what {
            DatagramContent::Datagram(datagram, _) => {
                self.write_messages(out, &head, packet, datagram, (filter, explain))?;
                for ReassembledPayload { seq, fragments: parts, payload } in joined {
                    let text = human::payload_text(payload);
                    self.write_line(
                        out,
                        &head,
                        &format!(
                            "reassembled game {seq}, {} bytes in {parts} fragments{text}",
                            payload.len()
                        ),
                        DEFAULT_COLOR,
                    )?;
                }
                self.names.learn(packet, datagram);
            }
            DatagramContent::GameSpy(text) => {
                let (size, text) = (human::byte_count(text), human::printable(&latin1_to_string(text)));
                self.write_line(
                    out,
                    &head,
                    &format!("gamespy {size}: {text}{}", comment_suffix(packet)),
                    DEFAULT_COLOR,
                )?;
            }
            DatagramContent::Malformed(error, _) => {
                self.write_line(
                    out,
                    &head,
                    &format!("error: {error}{}", comment_suffix(packet)),
                    FAULT_COLOR,
                )?;
            }
        }
        let wanted: Vec<&Finding> = findings.iter().filter(|finding| filter.wants_finding(finding)).collect();
        for group in group_findings(&wanted) {
            let head = if self.is_narrow() {
                NARROW_FINDING_PREFIX.into()
            } else {
                finding_prefix(group[0].mark, since)
            };
            self.write_findings(out, &head, &group)?;
        }
        Ok(())
    }

    /// Returns the prefix of each line of a datagram. On a narrow terminal writes the prefix on its own line.
    fn write_prefix(
        &self,
        out: &mut impl Write,
        packet: &PacketInfo,
        sender: Option<PeerId>,
        since: f64,
    ) -> io::Result<String> {
        let head = self.line_prefix(packet, sender, since);
        if !self.is_narrow() {
            return Ok(head);
        }
        self.write_line(out, head.trim_end(), "", DEFAULT_COLOR)?;
        Ok(NARROW_PREFIX.into())
    }

    fn is_narrow(&self) -> bool {
        self.style.width.is_some_and(|width| width < NARROW_WIDTH)
    }

    fn write_messages(
        &self,
        out: &mut impl Write,
        head: &str,
        packet: &PacketInfo,
        datagram: &ParsedDatagram<'_>,
        (filter, explain): (&Filter, bool),
    ) -> io::Result<()> {
        let note = human::non_stock_note(NonStock::of_datagram(datagram.datagram()));
        let mut comment = comment_suffix(packet);
        let mut next = explain::DATAGRAM_HEADER_LEN;
        let places = datagram.messages().iter().map(|message| {
            let at = next;
            next += message.wire_len();
            (at, message)
        });
        let wanted: Vec<_> = places.filter(|(_, message)| filter.wants_message(message)).collect();
        // With --explain each ACK is shown with its fields, so ACKs are not merged.
        let acks: Vec<MessageId> =
            wanted.iter().filter(|_| !explain).filter_map(|(_, message)| plain_ack(message)).collect();
        let mut folded = false;
        for (at, message) in wanted {
            let text = match plain_ack(message) {
                Some(_) if acks.len() > 1 && folded => continue,
                Some(_) if acks.len() > 1 => {
                    folded = true;
                    format!("{} acks: {}", acks.len(), id_ranges(&acks))
                }
                _ => human::message_text(message),
            };
            self.write_line(out, head, &format!("{text}{note}{comment}"), DEFAULT_COLOR)?;
            human::write_fields(out, message, at, explain)?;
            comment.clear();
        }
        Ok(())
    }

    /// Writes a finding that belongs to no datagram.
    pub(super) fn write_detached_finding(
        &self,
        out: &mut impl Write,
        DetachedFinding { finding, location: place, .. }: &DetachedFinding,
        since: f64,
    ) -> io::Result<()> {
        let number = place.map_or(finding.mark, |PacketLocation { number, .. }| number);
        self.write_findings(out, &finding_prefix(number, since), &[finding])
    }

    /// Writes findings of one kind by one side.
    fn write_findings(&self, out: &mut impl Write, head: &str, group: &[&Finding]) -> io::Result<()> {
        let [first, rest @ ..] = group else { return Ok(()) };
        let ids: Vec<MessageId> = group.iter().filter_map(|finding| finding.kind.message_id()).collect();
        let text = match rest {
            [] => format!("{}: {}", first.by, first.kind),
            _ => format!("{}: {} {}: {}", first.by, group.len(), finding_title(&first.kind), id_ranges(&ids)),
        };
        self.write_line(out, head, &text, if first.kind.is_fault() { FAULT_COLOR } else { DIM })
    }

    /// Returns the prefix of each message.
    fn line_prefix(&self, packet: &PacketInfo, sender: Option<PeerId>, since: f64) -> String {
        let mark = match sender {
            Some(PeerId::HOST) => "S>",
            Some(_) => "C>",
            None => "  ",
        };
        let PacketInfo { number, from, to, .. } = packet;
        let (host, id) = if sender == Some(PeerId::HOST) { (from, None) } else { (to, sender) };
        let name = id.and_then(|id| self.names.get(*host, id));
        let name = name.map(|name| format!("{name} ")).unwrap_or_default();
        format!("{number:>6} {since:>11.6} {mark} {name}{from} > {to}  ")
    }

    /// Writes one line, cut to the width of the terminal.
    fn write_line(&self, out: &mut impl Write, head: &str, text: &str, color: &str) -> io::Result<()> {
        let whole = format!("{head}{text}");
        let end = self.style.width.and_then(|width| whole.char_indices().nth(width.max(MIN_WIDTH)));
        let (shown, more) = match end {
            Some((_, _)) => {
                let width = self.style.width.unwrap_or(MIN_WIDTH).max(MIN_WIDTH);
                (whole.chars().take(width - 1).collect::<String>(), "…")
            }
            None => (whole, ""),
        };
        if !self.style.color {
            return writeln!(out, "{shown}{more}");
        }
        let (dim, bright) = shown.split_at_checked(head.len()).unwrap_or((&shown, ""));
        writeln!(out, "{DIM}{dim}{RESET_COLOR}{color}{bright}{more}{RESET_COLOR}")
    }
}

/// Returns the prefix of a finding about a packet.
fn finding_prefix(packet: u64, since: f64) -> String {
    let number = if packet == NO_MARK { String::new() } else { packet.to_string() };
    format!("{number:>6} {since:>11.6} ! ")
}

/// Groups findings by kind and by side, in the order of the first of each group.
fn group_findings<'a>(findings: &[&'a Finding]) -> Vec<Vec<&'a Finding>> {
    let mut groups: Vec<Vec<&'a Finding>> = Vec::new();
    for finding in findings {
        let same = |group: &&mut Vec<&Finding>| {
            group.first().is_some_and(|first| {
                first.by == finding.by
                    && finding_title(&first.kind) == finding_title(&finding.kind)
                    && finding.kind.message_id().is_some()
            })
        };
        match groups.iter_mut().find(same) {
            Some(group) => group.push(finding),
            None => groups.push(vec![finding]),
        }
    }
    groups
}

/// Returns the id that an ACK acknowledges, if the ACK has no other information.
fn plain_ack(message: &Message<'_>) -> Option<MessageId> {
    match message {
        Message::Ack(ack) if NonStock::of(message).is_empty() => Some(ack.id),
        Message::Ack(_) | Message::Keepalive | Message::Control(_) | Message::Data(_) => None,
    }
}

/// Returns ids in ranges: `control 0, game 3-7 9, 12/0-2`. Fragments of one message are grouped too.
fn id_ranges(ids: &[MessageId]) -> String {
    let mut text = String::new();
    let mut rest = ids;
    let mut channel = None;
    while let [first, ..] = rest {
        let next = |a: &MessageId, b: &MessageId| {
            let of_parts = a
                .fragment
                .zip(b.fragment)
                .is_some_and(|(one, other)| a.seq == b.seq && one.wrapping_add(1) == other);
            let whole = a.fragment.is_none() && b.fragment.is_none() && a.seq.next() == b.seq;
            a.channel == b.channel && (of_parts || whole)
        };
        let run = 1 + rest.windows(2).take_while(|pair| next(&pair[0], &pair[1])).count();
        let gap = if text.is_empty() { "" } else { " " };
        if channel != Some(first.channel) {
            let _ = write!(text, "{gap}{}", first.channel);
        }
        channel = Some(first.channel);
        let _ = match first.fragment {
            Some(part) => write!(text, " {}/{part}", first.seq.0),
            None => write!(text, " {}", first.seq.0),
        };
        if let Some(last) = rest.get(run - 1).filter(|_| run > 1) {
            let _ = write!(text, "-{}", last.fragment.map_or(last.seq.0, u16::from));
        }
        rest = &rest[run..];
    }
    text
}

/// Returns the packet comment, to be added to the first line of a packet.
fn comment_suffix(packet: &PacketInfo) -> String {
    packet.comment.as_deref().map(|text| format!("  # {}", human::printable(text))).unwrap_or_default()
}

const DEFAULT_COLOR: &str = "";
const DIM: &str = "\x1b[2m";
const FAULT_COLOR: &str = "\x1b[31m";
const RESET_COLOR: &str = "\x1b[0m";
/// Terminals with fewer columns are narrow. The next two constants are their prefixes.
const NARROW_WIDTH: usize = 110;
const NARROW_PREFIX: &str = "       ";
const NARROW_FINDING_PREFIX: &str = "     ! ";
/// Lines are not cut to fewer columns than this; narrower terminals wrap.
const MIN_WIDTH: usize = 60;
