//! Datagrams on their way to the capture: each waits until what it left open is decided, so that it carries all remarks.
//!
//! That costs memory for as long as something is open, half a minute of traffic at most and no more than [`MAX_BYTES`]; what
//! waits when the program is killed is not in the capture.

use std::collections::VecDeque;
use std::mem;
use std::net::SocketAddrV4;
use std::time::Duration;

use bcnet_observe::{ConversationId, Finding, NO_MARK, Observer};
use bcnet_transport::Time;

use crate::capture::add_remark;
use crate::recorder::Recorder;

/// A datagram that waits.
pub(super) struct Held {
    /// Its mark.
    pub(super) number: u64,
    pub(super) conversation: Option<ConversationId>,
    pub(super) from: SocketAddrV4,
    pub(super) to: SocketAddrV4,
    pub(super) at: Time,
    /// Since 1970.
    pub(super) wall: Duration,
    pub(super) bytes: Vec<u8>,
    pub(super) remark: String,
}

pub(super) struct Tape {
    recorder: Recorder,
    held: VecDeque<Held>,
    bytes: usize,
    /// What no datagram shows, for the next.
    loose: String,
    /// Memory for the bytes of the next.
    spare: Vec<Vec<u8>>,
}

impl Tape {
    pub(super) const fn new(recorder: Recorder) -> Self {
        Self { recorder, held: VecDeque::new(), bytes: 0, loose: String::new(), spare: Vec::new() }
    }

    /// Returns whether something waits.
    pub(super) fn is_waiting(&self) -> bool {
        !self.held.is_empty()
    }

    /// Returns a copy of some bytes, in memory that was used before if there is any.
    pub(super) fn copy(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut copy = self.spare.pop().unwrap_or_default();
        copy.extend_from_slice(bytes);
        copy
    }

    pub(super) fn hold(&mut self, held: Held) {
        self.bytes += held.bytes.len() + size_of::<Held>();
        self.held.push_back(Held { remark: mem::take(&mut self.loose), ..held });
    }

    /// Remarks something on the datagram that it is about, which waits.
    pub(super) fn remark(&mut self, finding: &Finding) {
        if finding.mark == NO_MARK {
            add_remark(&mut self.loose, &format!("{}: {}", finding.by, finding.what));
            return;
        }
        let place = self.held.binary_search_by_key(&finding.mark, |held| held.number);
        if let Some(held) = place.ok().and_then(|place| self.held.get_mut(place)) {
            add_remark(&mut held.remark, &finding.what.to_string());
        }
    }

    /// Records what is decided, up to the first that is not. Returns what has waited for too long to be decided.
    pub(super) fn release(&mut self, observer: &Observer, now: Time) -> Option<(ConversationId, u64)> {
        while let Some(first) = self.held.front() {
            if let Some(conversation) = first.conversation
                && !observer.is_decided(conversation, first.number)
            {
                let is_late = now.since(first.at) > MAX_WAIT || self.bytes > MAX_BYTES;
                return is_late.then_some((conversation, first.number));
            }
            self.record_first();
        }
        None
    }

    fn record_first(&mut self) {
        let Some(Held { from, to, wall, mut bytes, remark, .. }) = self.held.pop_front() else { return };
        self.bytes -= bytes.len() + size_of::<Held>();
        let remark = Some(remark.as_str()).filter(|remark| !remark.is_empty());
        self.recorder.record_with(from, to, wall, &bytes, remark);
        if self.spare.len() < MAX_SPARE {
            bytes.clear();
            self.spare.push(bytes);
        }
    }
}

impl Drop for Tape {
    /// What waits at the end is recorded as it is.
    fn drop(&mut self) {
        while !self.held.is_empty() {
            self.record_first();
        }
    }
}

/// For so long what a datagram has left open is waited for.
const MAX_WAIT: Duration = Duration::from_secs(30);
/// So much may wait, with what it takes besides its bytes.
const MAX_BYTES: usize = 4 << 20;
const MAX_SPARE: usize = 64;
