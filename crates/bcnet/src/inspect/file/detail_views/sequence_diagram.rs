//! Shows a conversation as a sequence diagram: an arrow for each datagram, with content and findings.
//!
//! [`DatagramArrow`] is the data, [`output`] draws it. Other programs can draw it from the JSON.

mod output;

use std::collections::BTreeMap;
use std::io::{self, Write};

use bcnet_observe::{
    Conversation, ConversationId, Finding, NO_MARK, Observed, Observer, ParsedDatagram, Side, opcode,
};
use bcnet_session::game::Opcode;
use bcnet_transport::Time;
use bcnet_transport::wire::{Channel, Message, MessageId, Role};

use super::super::{AnalyzedDatagram, CaptureEnd, PacketLocation, Sink};
use super::{CaptureSpan, DetailContext, check_peer};

/// A datagram in the diagram.
struct DatagramArrow {
    packet: u64,
    at: Time,
    side: Side,
    /// The contents, in a few words each.
    items: Vec<String>,
    /// The findings: the kind, how many, and the text of the first one.
    findings: Vec<(&'static str, u64, String)>,
}

/// The datagrams of a conversation, in their order.
#[derive(Default)]
struct SequenceDiagram {
    arrows: Vec<DatagramArrow>,
    omitted: u64,
}

pub(super) struct SequenceDiagrams<W> {
    context: DetailContext<W>,
    span: CaptureSpan,
    diagrams: BTreeMap<ConversationId, SequenceDiagram>,
    arrow_count: usize,
}

impl<W: Write> SequenceDiagrams<W> {
    pub(super) fn new(context: DetailContext<W>) -> Self {
        Self { context, span: CaptureSpan::default(), diagrams: BTreeMap::new(), arrow_count: 0 }
    }

    fn add_finding(&mut self, finding: &Finding) {
        if finding.mark == NO_MARK || !finding.kind.is_fault() {
            return;
        }
        let Some(ladder) = self.diagrams.get_mut(&finding.conversation) else { return };
        let Ok(place) = ladder.arrows.binary_search_by_key(&finding.mark, |rung| rung.packet) else { return };
        let (name, findings) = (finding.kind.name(), &mut ladder.arrows[place].findings);
        match findings.iter_mut().find(|(known, ..)| *known == name) {
            Some((_, count, _)) => *count += 1,
            None => findings.push((name, 1, finding.kind.to_string())),
        }
    }

    fn wants_datagram(
        &self,
        analyzed: &AnalyzedDatagram<'_>,
        datagram: &ParsedDatagram<'_>,
        conversation: &Conversation<'_>,
    ) -> bool {
        let filter = &self.context.filter;
        filter.wants_conversation(conversation)
            && filter.wants_time(analyzed.packet.time.as_micros(), self.span.start.unwrap_or(0))
            && filter.wants_packet_number(analyzed.packet.number)
            && (!filter.selects_messages()
                || datagram.messages().iter().any(|message| filter.wants_message(message)))
    }
}

impl<W: Write> Sink for SequenceDiagrams<W> {
    fn before_datagram(&mut self, next: Time, _: &Observer) -> io::Result<()> {
        self.span.extend(next.as_micros());
        Ok(())
    }

    fn on_datagram(&mut self, analyzed: &AnalyzedDatagram<'_>) -> io::Result<()> {
        let Observed::Datagram(datagram, id, side) = &analyzed.content else { return Ok(()) };
        let Some(conversation) = analyzed.observer.conversation(*id) else { return Ok(()) };
        if self.wants_datagram(analyzed, datagram, &conversation) {
            let ladder = self.diagrams.entry(*id).or_default();
            if self.arrow_count >= MAX_ARROWS {
                ladder.omitted += 1;
                return Ok(());
            }
            self.arrow_count += 1;
            let filter = &self.context.filter;
            let wanted: Vec<&Message<'_>> =
                datagram.messages().iter().filter(|message| filter.wants_message(message)).collect();
            ladder.arrows.push(DatagramArrow {
                packet: analyzed.packet.number,
                at: analyzed.packet.time,
                side: *side,
                items: datagram_items(&wanted),
                findings: Vec::new(),
            });
            analyzed.findings.iter().for_each(|finding| self.add_finding(finding));
        }
        Ok(())
    }

    fn on_finding(&mut self, finding: &Finding, _: Option<PacketLocation>, _: &Observer) -> io::Result<()> {
        self.add_finding(finding);
        Ok(())
    }

    fn on_end(&mut self, end: &CaptureEnd<'_>) -> io::Result<()> {
        check_peer(&self.context.filter, end.observer)?;
        for (conversation, ladder) in &self.diagrams {
            let Some(conversation) = end.observer.conversation(*conversation) else { continue };
            if self.context.json {
                output::write_diagram_json(&mut self.context.out, &conversation, ladder)?;
            } else {
                output::write_diagram(
                    &mut self.context.out,
                    &conversation,
                    left_side(&conversation),
                    ladder,
                    &self.span,
                )?;
            }
        }
        self.context.out.flush()
    }
}

/// Returns the side on the left: the client, or the side seen first if the roles are unknown.
fn left_side(conversation: &Conversation<'_>) -> Side {
    if conversation.role(Side::First) == Some(Role::Host) { Side::Second } else { Side::First }
}

/// Returns the contents of a datagram: ACKs and unreliable data grouped, other messages one by one.
fn datagram_items(messages: &[&Message<'_>]) -> Vec<String> {
    let mut acks: Vec<MessageId> = Vec::new();
    let (mut items, mut unreliable): (Vec<String>, BTreeMap<Option<u8>, u32>) = (Vec::new(), BTreeMap::new());
    for message in messages {
        match message {
            Message::Ack(ack) => acks.push(ack.id),
            Message::Keepalive => items.push("keepalive".into()),
            Message::Control(_) => items.push(message.to_string().split(": ").next().unwrap_or("").into()),
            Message::Data(_) => match message.id() {
                Some(id) => items.push(data_item(id, opcode(message))),
                None => *unreliable.entry(opcode(message)).or_default() += 1,
            },
        }
    }
    if !acks.is_empty() {
        items.insert(0, ack_ranges(&acks));
    }
    items.extend(unreliable.into_iter().map(|(opcode, count)| {
        let times = if count == 1 { String::new() } else { format!("{count} ") };
        format!("{times}{}", opcode_name(opcode))
    }));
    items
}

fn data_item(id: MessageId, opcode: Option<u8>) -> String {
    let part = id.fragment.map_or_else(String::new, |part| format!(" part {part}"));
    format!("{} g{}{part}", if opcode.is_some() { opcode_name(opcode) } else { "data".into() }, id.seq.0)
}

fn opcode_name(opcode: Option<u8>) -> String {
    let Some(opcode) = opcode else { return "data".into() };
    Opcode(opcode).name().map_or_else(|| format!("0x{opcode:02X}"), Into::into)
}

/// Returns ACKs with consecutive numbers grouped: `ACK c0 g3-5 g7.0-2`.
///
/// `c` is the control channel and `g` the game channel; `.0-2` are fragments.
fn ack_ranges(acks: &[MessageId]) -> String {
    let mut text = String::from("ACK");
    let mut rest = acks;
    while let [first, ..] = rest {
        let follows = |one: &MessageId, next: &MessageId| match (one.fragment, next.fragment) {
            (None, None) => one.channel == next.channel && next.seq == one.seq.next(),
            (Some(part), Some(after)) => {
                (one.channel, one.seq) == (next.channel, next.seq) && part.checked_add(1) == Some(after)
            }
            (None, Some(_)) | (Some(_), None) => false,
        };
        let length = 1 + rest.windows(2).take_while(|pair| follows(&pair[0], &pair[1])).count();
        let last = rest[length - 1];
        let channel = if first.channel == Channel::Control { 'c' } else { 'g' };
        text.push_str(&format!(" {channel}{}", first.seq.0));
        if let Some(part) = first.fragment {
            text.push_str(&format!(".{part}"));
        }
        if length > 1 {
            let end = last.fragment.map_or(last.seq.0, u16::from);
            text.push_str(&format!("-{end}"));
        }
        rest = &rest[length..];
    }
    text
}

/// The most datagrams that are drawn, over all conversations.
const MAX_ARROWS: usize = 50_000;
