//! Datagrams for a person who reads: a line for each message, the ACKs of a datagram on one, what was found in it together.
//!
//! Time and addresses stand in front of each line, so that each can be found by itself. On a narrow terminal they would leave
//! little room, and stand above the lines of a datagram instead.

use std::fmt::Write as _;
use std::io::{self, IsTerminal as _, Write};

use bcnet_observe::{Finding, Joined, NO_MARK, NonStock, Parsed};
use bcnet_transport::wire::{Message, MessageId, PeerId};

use super::filter::Filter;
use super::hold::{Loose, Shown, What};
use super::names::Names;
use super::tally::title;
use super::{Evidence, Packet};
use crate::inspect::{explain, human, latin1};

/// Whether lines have colours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(in crate::inspect) enum Color {
    /// If they go to a terminal, and NO_COLOR is not set.
    Auto,
    Always,
    Never,
}

/// What is to be known of where lines go.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Style {
    pub(super) color: bool,
    /// As many columns as a line may have.
    pub(super) width: Option<usize>,
}

impl Style {
    /// Returns how lines look where standard output goes.
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

/// Writes lines.
#[derive(Debug, Default)]
pub(super) struct Lines {
    style: Style,
    names: Names,
}

impl Lines {
    pub(super) fn new(style: Style) -> Self {
        Self { style, names: Names::default() }
    }

    /// Notes the names that a datagram tells which is not shown.
    pub(super) fn pass_over(&mut self, shown: &Shown<'_>) {
        if let What::Datagram(datagram, _) = shown.what {
            self.names.learn(shown.packet, datagram);
        }
    }

    /// Writes one datagram with what was found in it; `since` is its time from the beginning.
    pub(super) fn datagram(
        &mut self,
        out: &mut impl Write,
        shown: &Shown<'_>,
        joined: &[Joined],
        since: f64,
        (filter, explain): (&Filter, bool),
    ) -> io::Result<()> {
        let Shown { packet, what, findings } = shown;
        let sender = if let What::Datagram(datagram, _) = what { Some(datagram.sender()) } else { None };
        let head = self.begin(out, packet, sender, since)?;
        match what {
            What::Datagram(datagram, _) => {
                self.messages(out, &head, packet, datagram, (filter, explain))?;
                for Joined { seq, parts, payload } in joined {
                    let said = human::payload(payload);
                    self.line(
                        out,
                        &head,
                        &format!("joined game {seq}, {} bytes in {parts} parts{said}", payload.len()),
                        PLAIN,
                    )?;
                }
                self.names.learn(packet, datagram);
            }
            What::GameSpy(text) => {
                let (size, said) = (human::count(text), human::printable(&latin1(text)));
                self.line(out, &head, &format!("gamespy {size}: {said}{}", comment(packet)), PLAIN)?;
            }
            What::Malformed(error, _) => {
                self.line(out, &head, &format!("error: {error}{}", comment(packet)), FAULT)?;
            }
        }
        let wanted: Vec<&Finding> = findings.iter().filter(|finding| filter.wants_finding(finding)).collect();
        for group in grouped(&wanted) {
            let head =
                if self.is_narrow() { NARROW_FINDING.into() } else { finding_head(group[0].mark, since) };
            self.found(out, &head, &group)?;
        }
        Ok(())
    }

    /// Returns what stands in front of each line of a datagram; on a narrow terminal writes that first.
    fn begin(
        &self,
        out: &mut impl Write,
        packet: &Packet,
        sender: Option<PeerId>,
        since: f64,
    ) -> io::Result<String> {
        let head = self.head(packet, sender, since);
        if !self.is_narrow() {
            return Ok(head);
        }
        self.line(out, head.trim_end(), "", PLAIN)?;
        Ok(NARROW_LINE.into())
    }

    fn is_narrow(&self) -> bool {
        self.style.width.is_some_and(|width| width < NARROW)
    }

    fn messages(
        &self,
        out: &mut impl Write,
        head: &str,
        packet: &Packet,
        datagram: &Parsed<'_>,
        (filter, explain): (&Filter, bool),
    ) -> io::Result<()> {
        let odd = human::odd(NonStock::of_datagram(datagram.datagram()));
        let mut comment = comment(packet);
        let mut next = explain::DATAGRAM_HEADER;
        let places = datagram.messages().iter().map(|message| {
            let at = next;
            next += message.wire_len();
            (at, message)
        });
        let wanted: Vec<_> = places.filter(|(_, message)| filter.wants_message(message)).collect();
        // Whoever wants every field wants every ACK.
        let acks: Vec<MessageId> =
            wanted.iter().filter(|_| !explain).filter_map(|(_, message)| plain_ack(message)).collect();
        let mut folded = false;
        for (at, message) in wanted {
            let text = match plain_ack(message) {
                Some(_) if acks.len() > 1 && folded => continue,
                Some(_) if acks.len() > 1 => {
                    folded = true;
                    format!("{} acks: {}", acks.len(), ranges(&acks))
                }
                _ => human::message(message),
            };
            self.line(out, head, &format!("{text}{odd}{comment}"), PLAIN)?;
            human::fields(out, message, at, explain)?;
            comment.clear();
        }
        Ok(())
    }

    /// Writes something that stands at no datagram.
    pub(super) fn loose(
        &self,
        out: &mut impl Write,
        Loose { finding, place, .. }: &Loose,
        since: f64,
    ) -> io::Result<()> {
        let number = place.map_or(finding.mark, |Evidence { number, .. }| number);
        self.found(out, &finding_head(number, since), &[finding])
    }

    /// Writes findings of one kind by one side.
    fn found(&self, out: &mut impl Write, head: &str, group: &[&Finding]) -> io::Result<()> {
        let [first, rest @ ..] = group else { return Ok(()) };
        let ids: Vec<MessageId> = group.iter().filter_map(|finding| finding.what.message()).collect();
        let text = match rest {
            [] => format!("{}: {}", first.by, first.what),
            _ => format!("{}: {} {}: {}", first.by, group.len(), title(&first.what), ranges(&ids)),
        };
        self.line(out, head, &text, if first.what.is_fault() { FAULT } else { QUIET })
    }

    /// Returns what stands in front of each message.
    fn head(&self, packet: &Packet, sender: Option<PeerId>, since: f64) -> String {
        let mark = match sender {
            Some(PeerId::HOST) => "S>",
            Some(_) => "C>",
            None => "  ",
        };
        let Packet { number, from, to, .. } = packet;
        let (host, id) = if sender == Some(PeerId::HOST) { (from, None) } else { (to, sender) };
        let name = id.and_then(|id| self.names.get(*host, id));
        let name = name.map(|name| format!("{name} ")).unwrap_or_default();
        format!("{number:>6} {since:>11.6} {mark} {name}{from} > {to}  ")
    }

    /// Writes one line, no wider than it may be.
    fn line(&self, out: &mut impl Write, head: &str, text: &str, color: &str) -> io::Result<()> {
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
        writeln!(out, "{QUIET}{dim}{RESET}{color}{bright}{more}{RESET}")
    }
}

/// What stands in front of a finding about a packet.
fn finding_head(packet: u64, since: f64) -> String {
    let number = if packet == NO_MARK { String::new() } else { packet.to_string() };
    format!("{number:>6} {since:>11.6} ! ")
}

/// Findings by kind and by who did it, each kind where its first was.
fn grouped<'a>(findings: &[&'a Finding]) -> Vec<Vec<&'a Finding>> {
    let mut groups: Vec<Vec<&'a Finding>> = Vec::new();
    for finding in findings {
        let same = |group: &&mut Vec<&Finding>| {
            group.first().is_some_and(|first| {
                first.by == finding.by
                    && title(&first.what) == title(&finding.what)
                    && finding.what.message().is_some()
            })
        };
        match groups.iter_mut().find(same) {
            Some(group) => group.push(finding),
            None => groups.push(vec![finding]),
        }
    }
    groups
}

/// Returns what an ACK acknowledges, if there is nothing else to say of it.
fn plain_ack(message: &Message<'_>) -> Option<MessageId> {
    match message {
        Message::Ack(ack) if NonStock::of(message).is_empty() => Some(ack.id),
        Message::Ack(_) | Message::Keepalive | Message::Control(_) | Message::Data(_) => None,
    }
}

/// `control 0, game 3-7 9, 12/0-2`: numbers in a row are told together, parts of one number too.
fn ranges(ids: &[MessageId]) -> String {
    let mut text = String::new();
    let mut rest = ids;
    let mut channel = None;
    while let [first, ..] = rest {
        let next = |a: &MessageId, b: &MessageId| {
            let of_parts =
                a.part.zip(b.part).is_some_and(|(one, other)| a.seq == b.seq && one.wrapping_add(1) == other);
            let whole = a.part.is_none() && b.part.is_none() && a.seq.next() == b.seq;
            a.channel == b.channel && (of_parts || whole)
        };
        let run = 1 + rest.windows(2).take_while(|pair| next(&pair[0], &pair[1])).count();
        let gap = if text.is_empty() { "" } else { " " };
        if channel != Some(first.channel) {
            let _ = write!(text, "{gap}{}", first.channel);
        }
        channel = Some(first.channel);
        let _ = match first.part {
            Some(part) => write!(text, " {}/{part}", first.seq.0),
            None => write!(text, " {}", first.seq.0),
        };
        if let Some(last) = rest.get(run - 1).filter(|_| run > 1) {
            let _ = write!(text, "-{}", last.part.map_or(last.seq.0, u16::from));
        }
        rest = &rest[run..];
    }
    text
}

/// Returns what stands behind the first message of a packet that has a comment.
fn comment(packet: &Packet) -> String {
    packet.comment.as_deref().map(|text| format!("  # {}", human::printable(text))).unwrap_or_default()
}

const PLAIN: &str = "";
const QUIET: &str = "\x1b[2m";
const FAULT: &str = "\x1b[31m";
const RESET: &str = "\x1b[0m";
/// What stands in front of a line and of a finding on a terminal of fewer columns than this.
const NARROW: usize = 110;
const NARROW_LINE: &str = "       ";
const NARROW_FINDING: &str = "     ! ";
/// Narrower terminals wrap.
const MIN_WIDTH: usize = 60;
