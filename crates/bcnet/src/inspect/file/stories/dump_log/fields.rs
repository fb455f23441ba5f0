//! The words of a line: `seq=0x0002 frag=1 idx=0 below32=0 retx=3`.

use bcnet_transport::wire::Channel;

use super::{Entry, List, Written};

/// Which queue an entry is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Queue {
    Retx,
    Acks,
    /// What was never sent: the capture cannot tell, so it is not compared.
    First,
}

impl Queue {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Retx => "retx",
            Self::Acks => "ack",
            Self::First => "first",
        }
    }

    pub(super) const fn count_name(self) -> &'static str {
        match self {
            Self::Retx => "retxQ",
            Self::Acks => "ackOutQ",
            Self::First => "firstQ",
        }
    }

    /// Returns the queue of what was written, if it has such a one.
    pub(super) const fn list(self, what: &mut Written) -> Option<&mut List> {
        match (self, what) {
            (Self::Retx, Written::Dump { retx, .. } | Written::Handled { retx, .. }) => Some(retx),
            (Self::Acks, Written::Dump { acks, .. }) => Some(acks),
            (Self::Acks, Written::Handled { .. }) | (Self::First, _) => None,
        }
    }
}

/// Returns the queue and the place of an entry, and what follows: `ack[3] seq=…`.
pub(super) fn entry_head(text: &str) -> Option<(Queue, Option<usize>, &str)> {
    let queues = [Queue::Retx, Queue::Acks, Queue::First];
    queues.into_iter().find_map(|queue| {
        let rest = text.strip_prefix(queue.name())?.strip_prefix('[')?;
        let (place, rest) = rest.split_once(']')?;
        Some((queue, place.parse().ok(), rest))
    })
}

/// Returns a line without what somebody has remarked on it, and the remark behind `#`.
pub(super) fn split_remark(text: &str) -> (&str, Option<&str>) {
    let arrow = [text.find('\u{2190}'), text.find("<-")].into_iter().flatten().min();
    let text = &text[..arrow.unwrap_or(text.len())];
    match text.split_once(" # ") {
        Some((text, remark)) => (text, Some(remark.trim())),
        None => (text, None),
    }
}

/// Reads the head of a dump, or a handled ACK.
pub(super) fn head(text: &str) -> Result<Written, String> {
    if let Some((_, rest)) = text.split_once("HandleACK:") {
        let fields = Fields::of(rest);
        let retx = List { count: fields.number("retxQ")?.ok_or("retxQ is missing")?, ..List::default() };
        return Ok(Written::Handled { ack: fields.entry()?, retx });
    }
    let fields = Fields::of(text);
    let peer = fields.number("peer")?.ok_or("peer is missing")?;
    let list = |name: &'static str| -> Result<List, String> {
        Ok(List {
            count: fields.number(name)?.ok_or_else(|| format!("{name} is missing"))?,
            ..List::default()
        })
    };
    Ok(Written::Dump { peer, retx: list("retxQ")?, acks: list("ackOutQ")? })
}

/// The words of a line.
pub(super) struct Fields<'a>(&'a str);

impl<'a> Fields<'a> {
    pub(super) fn of(text: &'a str) -> Self {
        Self(split_remark(text).0)
    }

    fn value(&self, name: &str) -> Option<&'a str> {
        self.0.split_whitespace().find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
    }

    /// Returns a number, decimal or hex behind `0x`, if it is there.
    fn number<T: TryFrom<u32>>(&self, name: &str) -> Result<Option<T>, String> {
        let Some(text) = self.value(name) else { return Ok(None) };
        let number = match text.strip_prefix("0x") {
            Some(hex) => u32::from_str_radix(hex, 16).ok(),
            None => text.parse().ok(),
        };
        let number = number.and_then(|number| T::try_from(number).ok());
        number.map(Some).ok_or_else(|| format!("{name}={text} is no number that it can be"))
    }

    /// Reads an entry.
    pub(super) fn entry(&self) -> Result<Entry, String> {
        let is_part = self.number::<u8>("frag")?.unwrap_or(0) != 0;
        let part = self.number("idx")?;
        if is_part != part.is_some() {
            return Err(if is_part { "frag=1 without idx" } else { "idx without frag=1" }.into());
        }
        let below = self.number::<u8>("below32")?;
        let interval = match self.value("intv") {
            None => None,
            Some(text) => Some(text.parse().map_err(|_| format!("intv={text} is no number"))?),
        };
        Ok(Entry {
            seq: self.number("seq")?.ok_or("seq is missing")?,
            part,
            channel: below.map(|below| if below != 0 { Channel::Control } else { Channel::Game }),
            retx: self.number("retx")?,
            interval,
        })
    }
}
