//! A conversation as a sequence diagram: an arrow for each datagram, with what is in it and what is wrong with it.
//!
//! [`Rung`] is the data, [`shown`] draws it; whoever draws it otherwise takes the JSON.

mod shown;

use std::collections::BTreeMap;
use std::io::{self, Write};

use bcnet_observe::{
    Conversation, ConversationId, Finding, NO_MARK, Observed, Observer, Parsed, Side, opcode,
};
use bcnet_session::game::Opcode;
use bcnet_transport::Time;
use bcnet_transport::wire::{Channel, Message, MessageId, Role};

use super::super::{End, Evidence, Sight, Sink};
use super::{Span, Stage, check_peer};

/// A datagram on its way.
struct Rung {
    packet: u64,
    at: Time,
    side: Side,
    /// What is in it, in a few words each.
    items: Vec<String>,
    /// What is wrong with it: the kind, how often, and the first of it in words.
    findings: Vec<(&'static str, u64, String)>,
}

/// The datagrams of a conversation, in their order.
#[derive(Default)]
struct Ladder {
    rungs: Vec<Rung>,
    left_out: u64,
}

pub(super) struct Ladders<W> {
    stage: Stage<W>,
    span: Span,
    ladders: BTreeMap<ConversationId, Ladder>,
    count: usize,
}

impl<W: Write> Ladders<W> {
    pub(super) fn new(stage: Stage<W>) -> Self {
        Self { stage, span: Span::default(), ladders: BTreeMap::new(), count: 0 }
    }

    fn found(&mut self, finding: &Finding) {
        if finding.mark == NO_MARK || !finding.what.is_fault() {
            return;
        }
        let Some(ladder) = self.ladders.get_mut(&finding.conversation) else { return };
        let Ok(place) = ladder.rungs.binary_search_by_key(&finding.mark, |rung| rung.packet) else { return };
        let (name, findings) = (finding.what.name(), &mut ladder.rungs[place].findings);
        match findings.iter_mut().find(|(known, ..)| *known == name) {
            Some((_, count, _)) => *count += 1,
            None => findings.push((name, 1, finding.what.to_string())),
        }
    }

    fn wants(&self, sight: &Sight<'_>, datagram: &Parsed<'_>, talk: &Conversation<'_>) -> bool {
        let filter = &self.stage.filter;
        filter.wants_talk(talk)
            && filter.wants_time(sight.packet.time.as_micros(), self.span.start.unwrap_or(0))
            && filter.wants_packet(sight.packet.number)
            && (!filter.selects_messages()
                || datagram.messages().iter().any(|message| filter.wants_message(message)))
    }
}

impl<W: Write> Sink for Ladders<W> {
    fn before(&mut self, next: Time, _: &Observer) -> io::Result<()> {
        self.span.note(next.as_micros());
        Ok(())
    }

    fn see(&mut self, sight: &Sight<'_>) -> io::Result<()> {
        let Observed::Datagram(datagram, conversation, side) = &sight.what else { return Ok(()) };
        let Some(talk) = sight.observer.conversation(*conversation) else { return Ok(()) };
        if self.wants(sight, datagram, &talk) {
            let ladder = self.ladders.entry(*conversation).or_default();
            if self.count >= MAX_RUNGS {
                ladder.left_out += 1;
                return Ok(());
            }
            self.count += 1;
            let filter = &self.stage.filter;
            let wanted: Vec<&Message<'_>> =
                datagram.messages().iter().filter(|message| filter.wants_message(message)).collect();
            ladder.rungs.push(Rung {
                packet: sight.packet.number,
                at: sight.packet.time,
                side: *side,
                items: items(&wanted),
                findings: Vec::new(),
            });
            sight.findings.iter().for_each(|finding| self.found(finding));
        }
        Ok(())
    }

    fn find(&mut self, finding: &Finding, _: Option<Evidence>, _: &Observer) -> io::Result<()> {
        self.found(finding);
        Ok(())
    }

    fn finish(&mut self, end: &End<'_>) -> io::Result<()> {
        check_peer(&self.stage.filter, end.observer)?;
        for (conversation, ladder) in &self.ladders {
            let Some(talk) = end.observer.conversation(*conversation) else { continue };
            if self.stage.json {
                shown::write_json(&mut self.stage.out, &talk, ladder)?;
            } else {
                shown::write(&mut self.stage.out, &talk, left(&talk), ladder, &self.span)?;
            }
        }
        self.stage.out.flush()
    }
}

/// Returns the side that stands at the left: the client, whoever was seen first.
fn left(talk: &Conversation<'_>) -> Side {
    if talk.role(Side::First) == Some(Role::Host) { Side::Second } else { Side::First }
}

/// Returns what is in a datagram: ACKs and unreliable data together, the rest one by one.
fn items(messages: &[&Message<'_>]) -> Vec<String> {
    let mut acks: Vec<MessageId> = Vec::new();
    let (mut items, mut unreliable): (Vec<String>, BTreeMap<Option<u8>, u32>) = (Vec::new(), BTreeMap::new());
    for message in messages {
        match message {
            Message::Ack(ack) => acks.push(ack.id),
            Message::Keepalive => items.push("keepalive".into()),
            Message::Control(_) => items.push(message.to_string().split(": ").next().unwrap_or("").into()),
            Message::Data(_) => match message.id() {
                Some(id) => items.push(data(id, opcode(message))),
                None => *unreliable.entry(opcode(message)).or_default() += 1,
            },
        }
    }
    if !acks.is_empty() {
        items.insert(0, runs(&acks));
    }
    items.extend(unreliable.into_iter().map(|(opcode, count)| {
        let times = if count == 1 { String::new() } else { format!("{count} ") };
        format!("{times}{}", name(opcode))
    }));
    items
}

fn data(id: MessageId, opcode: Option<u8>) -> String {
    let part = id.part.map_or_else(String::new, |part| format!(" part {part}"));
    format!("{} g{}{part}", if opcode.is_some() { name(opcode) } else { "data".into() }, id.seq.0)
}

fn name(opcode: Option<u8>) -> String {
    let Some(opcode) = opcode else { return "data".into() };
    Opcode(opcode).name().map_or_else(|| format!("0x{opcode:02X}"), Into::into)
}

/// Returns ACKs with those that follow each other together: `ACK c0 g3-5 g7.0-2`.
fn runs(acks: &[MessageId]) -> String {
    let mut text = String::from("ACK");
    let mut rest = acks;
    while let [first, ..] = rest {
        let follows = |one: &MessageId, next: &MessageId| match (one.part, next.part) {
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
        if let Some(part) = first.part {
            text.push_str(&format!(".{part}"));
        }
        if length > 1 {
            let end = last.part.map_or(last.seq.0, u16::from);
            text.push_str(&format!("-{end}"));
        }
        rest = &rest[length..];
    }
    text
}

/// As many datagrams are drawn, of all conversations.
const MAX_RUNGS: usize = 50_000;
