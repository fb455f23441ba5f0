//! Datagrams that wait to be written to the capture with their findings as comments.
//!
//! A datagram waits until all findings about it are final. Waiting datagrams take memory for at most 30
//! seconds of traffic and at most [`MAX_BYTES`]. If the program is killed, waiting datagrams are not in the
//! capture.

use std::collections::VecDeque;
use std::mem;
use std::net::SocketAddrV4;
use std::time::Duration;

use bcnet_observe::{ConversationId, Finding, NO_MARK, Observer};
use bcnet_transport::Time;

use crate::capture::add_comment;
use crate::recorder::Recorder;

/// A datagram that waits to be written.
pub(super) struct PendingDatagram {
    /// The number by which findings refer to the datagram.
    pub(super) mark: u64,
    pub(super) conversation: Option<ConversationId>,
    pub(super) from: SocketAddrV4,
    pub(super) to: SocketAddrV4,
    pub(super) at: Time,
    /// The time since 1970.
    pub(super) wall: Duration,
    pub(super) bytes: Vec<u8>,
    pub(super) comment: String,
}

pub(super) struct AnnotatedRecorder {
    recorder: Recorder,
    pending: VecDeque<PendingDatagram>,
    bytes: usize,
    /// Findings that belong to no datagram. They become comments of the next one.
    unattached_comment: String,
    /// Buffers to reuse for the bytes of later datagrams.
    spare_buffers: Vec<Vec<u8>>,
}

impl AnnotatedRecorder {
    pub(super) const fn new(recorder: Recorder) -> Self {
        Self {
            recorder,
            pending: VecDeque::new(),
            bytes: 0,
            unattached_comment: String::new(),
            spare_buffers: Vec::new(),
        }
    }

    /// Returns whether datagrams wait.
    pub(super) fn has_pending(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Returns a copy of the bytes, in a reused buffer if there is one.
    pub(super) fn copy_bytes(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut copy = self.spare_buffers.pop().unwrap_or_default();
        copy.extend_from_slice(bytes);
        copy
    }

    pub(super) fn push(&mut self, held: PendingDatagram) {
        self.bytes += held.bytes.len() + size_of::<PendingDatagram>();
        self.pending.push_back(PendingDatagram { comment: mem::take(&mut self.unattached_comment), ..held });
    }

    /// Adds a finding as a comment to its waiting datagram.
    pub(super) fn add_comment(&mut self, finding: &Finding) {
        if finding.mark == NO_MARK {
            add_comment(&mut self.unattached_comment, &format!("{}: {}", finding.by, finding.kind));
            return;
        }
        let index = self.pending.binary_search_by_key(&finding.mark, |held| held.mark);
        if let Some(held) = index.ok().and_then(|index| self.pending.get_mut(index)) {
            add_comment(&mut held.comment, &finding.kind.to_string());
        }
    }

    /// Writes datagrams whose findings are final, up to the first that is not.
    ///
    /// Returns that datagram if it has waited too long, or if too many bytes wait.
    pub(super) fn record_final(&mut self, observer: &Observer, now: Time) -> Option<(ConversationId, u64)> {
        while let Some(first) = self.pending.front() {
            if let Some(conversation) = first.conversation
                && !observer.are_findings_final(conversation, first.mark)
            {
                let is_late = now.since(first.at) > MAX_WAIT || self.bytes > MAX_BYTES;
                return is_late.then_some((conversation, first.mark));
            }
            self.record_front();
        }
        None
    }

    fn record_front(&mut self) {
        let Some(PendingDatagram { from, to, wall, mut bytes, comment: remark, .. }) =
            self.pending.pop_front()
        else {
            return;
        };
        self.bytes -= bytes.len() + size_of::<PendingDatagram>();
        let remark = Some(remark.as_str()).filter(|remark| !remark.is_empty());
        self.recorder.record_with_comment(from, to, wall, &bytes, remark);
        if self.spare_buffers.len() < MAX_SPARE_BUFFERS {
            bytes.clear();
            self.spare_buffers.push(bytes);
        }
    }
}

impl Drop for AnnotatedRecorder {
    /// Writes all waiting datagrams with the comments they have.
    fn drop(&mut self) {
        while !self.pending.is_empty() {
            self.record_front();
        }
    }
}

/// The maximum time for which a datagram waits for its findings.
const MAX_WAIT: Duration = Duration::from_secs(30);
/// The maximum number of waiting bytes, including the bookkeeping.
const MAX_BYTES: usize = 4 << 20;
const MAX_SPARE_BUFFERS: usize = 64;
