//! Whoever is told what a capture holds, one or several.

use std::io;

use bcnet_observe::{ConversationId, Finding, HandledAck, Observer};
use bcnet_transport::Time;

use super::{End, Evidence, Sight};

/// Whoever is told what a capture holds.
pub(super) trait Sink {
    /// A datagram of this time comes next. The observer has not looked at it.
    fn before(&mut self, _next: Time, _observer: &Observer) -> io::Result<()> {
        Ok(())
    }
    /// Whether what is done with each ACK is to be told.
    fn follows_acks(&self) -> bool {
        false
    }
    /// What a node has done with an ACK.
    fn handled(&mut self, _handled: &HandledAck, _observer: &Observer) -> io::Result<()> {
        Ok(())
    }
    /// Whether the capture is not as it was said to be.
    fn differs(&self) -> bool {
        false
    }
    /// A datagram.
    fn see(&mut self, _sight: &Sight<'_>) -> io::Result<()> {
        Ok(())
    }
    /// Something about an earlier datagram, or about none.
    fn find(&mut self, _: &Finding, _place: Option<Evidence>, _observer: &Observer) -> io::Result<()> {
        Ok(())
    }
    /// Nothing comes just now, of a capture that is under way.
    fn idle(&mut self, _observer: &Observer) -> io::Result<()> {
        Ok(())
    }
    /// Returns a datagram that waits for too long to be decided, if there is one.
    fn overdue(&self, _now: Time, _observer: &Observer) -> Option<(ConversationId, u64)> {
        None
    }
    /// Nothing more comes.
    fn finish(&mut self, end: &End<'_>) -> io::Result<()>;
}

/// All of them, one after the other.
impl Sink for Vec<Box<dyn Sink + '_>> {
    fn before(&mut self, next: Time, observer: &Observer) -> io::Result<()> {
        self.iter_mut().try_for_each(|sink| sink.before(next, observer))
    }

    fn follows_acks(&self) -> bool {
        self.iter().any(|sink| sink.follows_acks())
    }

    fn handled(&mut self, handled: &HandledAck, observer: &Observer) -> io::Result<()> {
        self.iter_mut().try_for_each(|sink| sink.handled(handled, observer))
    }

    fn differs(&self) -> bool {
        self.iter().any(|sink| sink.differs())
    }

    fn see(&mut self, sight: &Sight<'_>) -> io::Result<()> {
        self.iter_mut().try_for_each(|sink| sink.see(sight))
    }

    fn find(&mut self, finding: &Finding, place: Option<Evidence>, observer: &Observer) -> io::Result<()> {
        self.iter_mut().try_for_each(|sink| sink.find(finding, place, observer))
    }

    fn idle(&mut self, observer: &Observer) -> io::Result<()> {
        self.iter_mut().try_for_each(|sink| sink.idle(observer))
    }

    fn overdue(&self, now: Time, observer: &Observer) -> Option<(ConversationId, u64)> {
        self.iter().find_map(|sink| sink.overdue(now, observer))
    }

    fn finish(&mut self, end: &End<'_>) -> io::Result<()> {
        self.iter_mut().try_for_each(|sink| sink.finish(end))
    }
}
