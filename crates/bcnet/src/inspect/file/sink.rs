//! Defines the receivers of a capture's content and findings.

use std::io;

use bcnet_observe::{ConversationId, Finding, HandledAck, Observer};
use bcnet_transport::Time;

use super::{AnalyzedDatagram, CaptureEnd, PacketLocation};

/// A receiver of the datagrams and findings of a capture.
pub(super) trait Sink {
    /// Called with the time of the next datagram, before the observer processes it.
    fn before_datagram(&mut self, _next: Time, _observer: &Observer) -> io::Result<()> {
        Ok(())
    }
    /// Returns whether [`on_handled_ack`](Self::on_handled_ack) shall be called.
    fn wants_handled_acks(&self) -> bool {
        false
    }
    /// Called when a side has processed an ACK.
    fn on_handled_ack(&mut self, _handled: &HandledAck, _observer: &Observer) -> io::Result<()> {
        Ok(())
    }
    /// Returns whether the capture differs from a dump log that it was compared with.
    fn has_differences(&self) -> bool {
        false
    }
    /// Called for each datagram.
    fn on_datagram(&mut self, _datagram: &AnalyzedDatagram<'_>) -> io::Result<()> {
        Ok(())
    }
    /// Called for a finding about an earlier datagram, or about none.
    fn on_finding(
        &mut self,
        _: &Finding,
        _place: Option<PacketLocation>,
        _observer: &Observer,
    ) -> io::Result<()> {
        Ok(())
    }
    /// Called when a live capture is idle.
    fn on_idle(&mut self, _observer: &Observer) -> io::Result<()> {
        Ok(())
    }
    /// Returns the datagram that has waited too long, so that its findings must be decided now.
    fn overdue_datagram(&self, _now: Time, _observer: &Observer) -> Option<(ConversationId, u64)> {
        None
    }
    /// Called at the end of the capture.
    fn on_end(&mut self, end: &CaptureEnd<'_>) -> io::Result<()>;
}

/// Calls all sinks, one after the other.
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
