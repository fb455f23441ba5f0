//! Whoever is told what a capture holds, one or several.

use std::io;

use bcnet_observe::{ConversationId, Finding, HandledAck, Observer};
use bcnet_transport::Time;

use super::{AnalyzedDatagram, CaptureEnd, PacketLocation};

/// Whoever is told what a capture holds.
pub(super) trait Sink {
    /// A datagram of this time comes next. The observer has not looked at it.
    fn before_datagram(&mut self, _next: Time, _observer: &Observer) -> io::Result<()> {
        Ok(())
    }
    /// Whether what is done with each ACK is to be told.
    fn wants_handled_acks(&self) -> bool {
        false
    }
    /// What a node has done with an ACK.
    fn on_handled_ack(&mut self, _handled: &HandledAck, _observer: &Observer) -> io::Result<()> {
        Ok(())
    }
    /// Whether the capture is not as it was said to be.
    fn has_differences(&self) -> bool {
        false
    }
    /// A datagram.
    fn on_datagram(&mut self, _sight: &AnalyzedDatagram<'_>) -> io::Result<()> {
        Ok(())
    }
    /// Something about an earlier datagram, or about none.
    fn on_finding(
        &mut self,
        _: &Finding,
        _place: Option<PacketLocation>,
        _observer: &Observer,
    ) -> io::Result<()> {
        Ok(())
    }
    /// Nothing comes just now, of a capture that is under way.
    fn on_idle(&mut self, _observer: &Observer) -> io::Result<()> {
        Ok(())
    }
    /// Returns a datagram that waits for too long to be decided, if there is one.
    fn overdue_datagram(&self, _now: Time, _observer: &Observer) -> Option<(ConversationId, u64)> {
        None
    }
    /// Nothing more comes.
    fn on_end(&mut self, end: &CaptureEnd<'_>) -> io::Result<()>;
}

/// All of them, one after the other.
impl Sink for Vec<Box<dyn Sink + '_>> {
    fn before_datagram(&mut self, next: Time, observer: &Observer) -> io::Result<()> {
        self.iter_mut().try_for_each(|sink| sink.before_datagram(next, observer))
    }

    fn wants_handled_acks(&self) -> bool {
        self.iter().any(|sink| sink.wants_handled_acks())
    }

    fn on_handled_ack(&mut self, handled: &HandledAck, observer: &Observer) -> io::Result<()> {
        self.iter_mut().try_for_each(|sink| sink.on_handled_ack(handled, observer))
    }

    fn has_differences(&self) -> bool {
        self.iter().any(|sink| sink.has_differences())
    }

    fn on_datagram(&mut self, analyzed: &AnalyzedDatagram<'_>) -> io::Result<()> {
        self.iter_mut().try_for_each(|sink| sink.on_datagram(analyzed))
    }

    fn on_finding(
        &mut self,
        finding: &Finding,
        place: Option<PacketLocation>,
        observer: &Observer,
    ) -> io::Result<()> {
        self.iter_mut().try_for_each(|sink| sink.on_finding(finding, place, observer))
    }

    fn on_idle(&mut self, observer: &Observer) -> io::Result<()> {
        self.iter_mut().try_for_each(|sink| sink.on_idle(observer))
    }

    fn overdue_datagram(&self, now: Time, observer: &Observer) -> Option<(ConversationId, u64)> {
        self.iter().find_map(|sink| sink.overdue_datagram(now, observer))
    }

    fn on_end(&mut self, end: &CaptureEnd<'_>) -> io::Result<()> {
        self.iter_mut().try_for_each(|sink| sink.on_end(end))
    }
}
