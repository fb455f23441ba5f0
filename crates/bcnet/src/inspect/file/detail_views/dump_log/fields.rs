//! Parses the fields of a line: `seq=0x0002 frag=1 idx=0 below32=0 retx=3`.

use bcnet_transport::wire::Channel;

use super::{DumpContent, DumpedEntry, DumpedQueue};

/// The queue of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DumpQueue {
    Retransmit,
    Acks,
    /// Messages that were never sent. They are not compared, because the capture does not show them.
    FirstSend,
}

impl DumpQueue {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Retransmit => "retx",
            Self::Acks => "ack",
            Self::FirstSend => "first",
        }
    }

    pub(super) const fn count_name(self) -> &'static str {
        match self {
            Self::Retransmit => "retxQ",
            Self::Acks => "ackOutQ",
            Self::FirstSend => "firstQ",
        }
    }

    /// Returns this queue of a record, if the record has one.
    pub(super) const fn queue_in(self, what: &mut DumpContent) -> Option<&mut DumpedQueue> {
        match (self, what) {
            (Self::Retransmit, DumpContent::Dump { retx, .. } | DumpContent::HandledAck { retx, .. }) => {
                Some(retx)
            }
            (Self::Acks, DumpContent::Dump { acks, .. }) => Some(acks),
            (Self::Acks, DumpContent::HandledAck { .. }) | (Self::FirstSend, _) => None,
        }
    }
}

/// Returns the queue and the index of an entry, and the rest of the line: `ack[3] seq=…`.
pub(super) fn parse_entry_head(text: &str) -> Option<(DumpQueue, Option<usize>, &str)> {
    let queues = [DumpQueue::Retransmit, DumpQueue::Acks, DumpQueue::FirstSend];
    queues.into_iter().find_map(|queue| {
        let rest = text.strip_prefix(queue.name())?.strip_prefix('[')?;
        let (place, rest) = rest.split_once(']')?;
        Some((queue, place.parse().ok(), rest))
    })
}

/// Splits off the comments: text after an arrow is dropped, text after ` # ` is returned.
pub(super) fn split_comment(text: &str) -> (&str, Option<&str>) {
    let arrow = [text.find('\u{2190}'), text.find("<-")].into_iter().flatten().min();
    let text = &text[..arrow.unwrap_or(text.len())];
    match text.split_once(" # ") {
        Some((text, comment)) => (text, Some(comment.trim())),
        None => (text, None),
    }
}

/// Parses the head of a dump, or a handled ACK.
pub(super) fn parse_head(text: &str) -> Result<DumpContent, String> {
    if let Some((_, rest)) = text.split_once("HandleACK:") {
        let fields = DumpFields::of(rest);
        let retx = DumpedQueue {
            count: fields.number("retxQ")?.ok_or("retxQ is missing")?,
            ..DumpedQueue::default()
        };
        return Ok(DumpContent::HandledAck { ack: fields.parse_entry()?, retx });
    }
    let fields = DumpFields::of(text);
    let peer = fields.number("peer")?.ok_or("peer is missing")?;
    let list = |name: &'static str| -> Result<DumpedQueue, String> {
        Ok(DumpedQueue {
            count: fields.number(name)?.ok_or_else(|| format!("{name} is missing"))?,
            ..DumpedQueue::default()
        })
    };
    Ok(DumpContent::Dump { peer, retx: list("retxQ")?, acks: list("ackOutQ")? })
}

/// The fields of a line.
pub(super) struct DumpFields<'a>(&'a str);

impl<'a> DumpFields<'a> {
    pub(super) fn of(text: &'a str) -> Self {
        Self(split_comment(text).0)
    }

    fn value(&self, name: &str) -> Option<&'a str> {
        self.0.split_whitespace().find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
    }

    /// Returns a number, decimal or hex with `0x`, if the field is there.
    fn number<T: TryFrom<u32>>(&self, name: &str) -> Result<Option<T>, String> {
        let Some(text) = self.value(name) else { return Ok(None) };
        let number = match text.strip_prefix("0x") {
            Some(hex) => u32::from_str_radix(hex, 16).ok(),
            None => text.parse().ok(),
        };
        let number = number.and_then(|number| T::try_from(number).ok());
        number.map(Some).ok_or_else(|| format!("{name}={text} is not a valid number"))
    }

    /// Parses an entry.
    pub(super) fn parse_entry(&self) -> Result<DumpedEntry, String> {
        let is_part = self.number::<u8>("frag")?.unwrap_or(0) != 0;
        let part = self.number("idx")?;
        if is_part != part.is_some() {
            return Err(if is_part { "frag=1 without idx" } else { "idx without frag=1" }.into());
        }
        let below = self.number::<u8>("below32")?;
        let interval = match self.value("intv") {
            None => None,
            Some(text) => Some(text.parse().map_err(|_| format!("intv={text} is not a number"))?),
        };
        Ok(DumpedEntry {
            seq: self.number("seq")?.ok_or("seq is missing")?,
            part,
            channel: below.map(|below| if below != 0 { Channel::Control } else { Channel::Game }),
            retx: self.number("retx")?,
            interval,
        })
    }
}
