//! Datagrams that wait until all is known that was found in them.
//!
//! Why something was sent again often shows only when its ACK comes, or does not. Whoever shows datagrams one by one gets each
//! with all that was found in it, in the order of the capture: a datagram about which something is open waits, and those
//! behind it do too. That costs memory, and so there is a bound to it: what waits for longer than [`MAX_WAIT`], or is more
//! than [`MAX_BYTES`], is decided as it looks then. While nothing is open nothing is copied.

use std::collections::VecDeque;
use std::io;
use std::mem;
use std::time::Duration;

use bcnet_observe::{
    Content, ConversationId, Finding, MessageBuffer, NO_MARK, Observed, Observer, Parsed, Side,
};
use bcnet_transport::Time;
use bcnet_transport::wire::{PeerId, WireError};

use super::{End, Evidence, Packet, Sight, Sink};

/// A datagram with all that was found in it.
pub(super) struct Shown<'a> {
    pub(super) packet: &'a Packet,
    pub(super) what: What<'a>,
    pub(super) findings: &'a [Finding],
}

/// What a datagram that is shown is.
#[derive(Debug, Clone, Copy)]
pub(super) enum What<'a> {
    /// One of a conversation, with its bytes.
    Datagram(&'a Parsed<'a>, Talk),
    GameSpy(&'a [u8]),
    Malformed(WireError, &'a [u8]),
}

/// Where in a conversation a datagram belongs.
#[derive(Debug, Clone, Copy)]
pub(super) struct Talk {
    pub(super) id: ConversationId,
    /// Who has sent it.
    pub(super) side: Side,
    /// The id of whoever it goes to, as far as it was known then.
    pub(super) receiver: Option<PeerId>,
}

/// A finding that stands at no datagram.
#[derive(Debug, Clone, Copy)]
pub(super) struct Loose {
    pub(super) finding: Finding,
    /// Where the datagram was that it is about.
    pub(super) place: Option<Evidence>,
    /// The ids of the two sides, as far as they were known then.
    pub(super) peers: [Option<PeerId>; 2],
}

/// Whoever shows datagrams one by one.
pub(super) trait Shows {
    fn show(&mut self, shown: &Shown<'_>) -> io::Result<()>;
    /// Something that no datagram shows, or that is about one that was shown before.
    fn show_loose(&mut self, loose: &Loose) -> io::Result<()>;
    /// Nothing more comes.
    fn finish(&mut self, end: &End<'_>) -> io::Result<()>;
}

/// Holds back what is not decided, for whoever shows it.
pub(super) struct HoldBack<S> {
    shows: S,
    /// Whether nothing waits: what is known later is told later.
    at_once: bool,
    held: VecDeque<Held>,
    /// The bytes of all that is held, one after the other, behind so many of what was shown.
    bytes: Vec<u8>,
    shown: usize,
    messages: MessageBuffer<'static>,
    /// Whether something was told since the first that is held was looked at.
    is_told: bool,
}

enum Held {
    Datagram { packet: Packet, len: usize, talk: Option<Talk>, findings: Vec<Finding> },
    Finding(Loose),
}

impl<S: Shows> HoldBack<S> {
    pub(super) fn new(shows: S, at_once: bool) -> Self {
        Self {
            shows,
            at_once,
            held: VecDeque::new(),
            bytes: Vec::new(),
            shown: 0,
            messages: MessageBuffer::default(),
            is_told: false,
        }
    }

    fn hold(&mut self, sight: &Sight<'_>, talk: Option<Talk>) {
        self.bytes.extend_from_slice(sight.bytes);
        self.held.push_back(Held::Datagram {
            packet: sight.packet.clone(),
            len: sight.bytes.len(),
            talk,
            findings: sight.findings.to_vec(),
        });
    }

    /// Returns whether what is held first may be decided now that this was seen: only its own conversation, time or what was
    /// told can do that.
    fn may_release(&self, sight: &Sight<'_>, talk: Option<Talk>) -> bool {
        let Some(Held::Datagram { talk: Some(first), .. }) = self.held.front() else { return true };
        self.is_told || talk.is_some_and(|talk| talk.id == first.id) || self.is_late(sight.packet.time)
    }

    /// Shows what is decided, up to the first that is not.
    fn release(&mut self, is_decided: impl Fn(ConversationId, u64) -> bool) -> io::Result<()> {
        self.is_told = false;
        while let Some(first) = self.held.front() {
            if let Held::Datagram { packet, talk: Some(talk), .. } = first
                && !is_decided(talk.id, packet.number)
            {
                break;
            }
            match self.held.pop_front() {
                Some(Held::Datagram { packet, len, talk, findings }) => {
                    self.show(&packet, len, talk, &findings)?;
                }
                Some(Held::Finding(loose)) => self.shows.show_loose(&loose)?,
                None => {}
            }
        }
        // What is left moves to the front when it is no more than what was shown.
        if self.shown * 2 >= self.bytes.len() {
            self.bytes.drain(..self.shown);
            self.shown = 0;
        }
        Ok(())
    }

    fn show(
        &mut self,
        packet: &Packet,
        len: usize,
        talk: Option<Talk>,
        findings: &[Finding],
    ) -> io::Result<()> {
        let bytes = self.bytes.get(self.shown..self.shown + len).unwrap_or_default();
        self.shown += len;
        let mut buffer = mem::take(&mut self.messages).reuse();
        let content = buffer.read(bytes, None);
        let what = match (&content, talk) {
            (Content::Datagram(datagram), Some(talk)) => Some(What::Datagram(datagram, talk)),
            (Content::GameSpy(text), _) => Some(What::GameSpy(text)),
            (Content::Malformed(error), _) => Some(What::Malformed(*error, bytes)),
            (Content::Datagram(_), None) => None,
        };
        let done = what.map_or(Ok(()), |what| self.shows.show(&Shown { packet, what, findings }));
        self.messages = buffer.reuse();
        done
    }

    /// Returns where what is about an earlier datagram belongs.
    fn findings_of(&mut self, mark: u64) -> Option<&mut Vec<Finding>> {
        if mark == NO_MARK {
            return None;
        }
        let is_it = |held: &&mut Held| matches!(held, Held::Datagram { packet, .. } if packet.number == mark);
        match self.held.iter_mut().rev().find(is_it) {
            Some(Held::Datagram { findings, .. }) => Some(findings),
            Some(Held::Finding(_)) | None => None,
        }
    }

    /// Returns whether the first that is held has waited for too long, or too much waits.
    fn is_late(&self, now: Time) -> bool {
        let Some(Held::Datagram { packet, .. }) = self.held.front() else { return false };
        let waits = self.bytes.len() - self.shown + self.held.len() * size_of::<Held>();
        now.since(packet.time) > MAX_WAIT || waits > MAX_BYTES
    }
}

impl<S: Shows> Sink for HoldBack<S> {
    fn see(&mut self, sight: &Sight<'_>) -> io::Result<()> {
        let Sight { packet, what, bytes, findings, observer } = sight;
        let of = |id: ConversationId, side: Side| {
            let conversation = observer.conversation(id);
            let receiver = conversation.and_then(|conversation| conversation.peer(side.other()));
            (Talk { id, side, receiver }, conversation)
        };
        let (talk, conversation, what) = match what {
            Observed::Datagram(datagram, id, side) => {
                let (talk, conversation) = of(*id, *side);
                (Some(talk), conversation, What::Datagram(datagram, talk))
            }
            Observed::Malformed(error, id, side) => {
                let (talk, conversation) = of(*id, *side);
                (Some(talk), conversation, What::Malformed(*error, bytes))
            }
            Observed::GameSpy(text) => (None, None, What::GameSpy(text)),
            Observed::Foreign(_) => return Ok(()),
        };
        let is_decided = || conversation.is_none_or(|conversation| conversation.is_decided(packet.number));
        if self.at_once || self.held.is_empty() && is_decided() {
            return self.shows.show(&Shown { packet, what, findings });
        }
        self.hold(sight, talk);
        if self.may_release(sight, talk) {
            self.release(|id, mark| observer.is_decided(id, mark))?;
        }
        Ok(())
    }

    fn find(&mut self, finding: &Finding, place: Option<Evidence>, observer: &Observer) -> io::Result<()> {
        self.is_told = true;
        if let Some(findings) = self.findings_of(finding.mark) {
            findings.push(*finding);
            return Ok(());
        }
        let talk = observer.conversation(finding.conversation);
        let peers = [Side::First, Side::Second].map(|side| talk.and_then(|talk| talk.peer(side)));
        let loose = Loose { finding: *finding, place, peers };
        if self.held.is_empty() {
            return self.shows.show_loose(&loose);
        }
        self.held.push_back(Held::Finding(loose));
        Ok(())
    }

    fn overdue(&self, now: Time, observer: &Observer) -> Option<(ConversationId, u64)> {
        let Some(Held::Datagram { packet, talk: Some(talk), .. }) = self.held.front() else { return None };
        let is_late = self.is_late(now);
        (is_late && !observer.is_decided(talk.id, packet.number)).then_some((talk.id, packet.number))
    }

    fn finish(&mut self, end: &End<'_>) -> io::Result<()> {
        self.release(|_, _| true)?;
        self.shows.finish(end)
    }
}

/// For so long what a datagram has left open is waited for, as the capture's clock goes: a number that is not sent for 28
/// seconds is missing.
const MAX_WAIT: Duration = Duration::from_secs(30);
/// So much may wait.
const MAX_BYTES: usize = 2 << 20;
