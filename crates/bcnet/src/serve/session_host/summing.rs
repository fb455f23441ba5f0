//! What a session looks at once a second, and logs every ten minutes.

use std::time::Duration;

use bcnet_transport::Time;

use super::{SessionHost, millis, settled};
use crate::serve::figures::{Line, Repeats, Volume};

impl SessionHost {
    /// Looks once a second at what is to be known over time, and logs it now and then.
    pub(in crate::serve) fn sum_up(&mut self, now: Time) {
        if !self.figures.is_due(now) {
            return;
        }
        self.note_overflow(now);
        self.figures.sample(self.traffic.volume(), self.session.round_trips(), now);
        let session = &self.session;
        let lines = session.players().filter_map(|player| {
            let counters = session.peer_counters(player.id)?;
            let repeats = Repeats { acks: counters.acks_out, retransmissions: counters.retransmits };
            Some((player.id, Line { repeats, delivered: settled(&counters) }))
        });
        self.figures.note_lines(lines, now);
        let players = self.session.players_in_game();
        if players == 0 {
            self.summed_up = now;
        }
        if now.since(self.summed_up) < SUM_UP_EVERY {
            return;
        }
        self.summed_up = now;
        let (delay, round_trip) = self.figures.take();
        let Volume { bytes_in, bytes_out } = self.figures.per_second(self.traffic.volume(), now);
        tracing::info!(
            event = "summary",
            port = self.address.port(),
            players,
            relay_p50_ms = delay.p50.map(millis),
            relay_p99_ms = delay.p99.map(millis),
            round_trip_p50_ms = round_trip.p50.map(millis),
            round_trip_p99_ms = round_trip.p99.map(millis),
            bytes_in_per_second = bytes_in,
            bytes_out_per_second = bytes_out,
        );
    }

    /// Looks whether more has arrived than the system could keep.
    fn note_overflow(&mut self, now: Time) {
        let Some(dropped) = self.socket.dropped() else { return };
        let datagrams = dropped.wrapping_sub(self.dropped);
        self.dropped = dropped;
        self.traffic.overflowed += u64::from(datagrams);
        if datagrams > 0 && self.overflows.pass(now).is_some() {
            let (port, overflowed) = (self.address.port(), self.traffic.overflowed);
            tracing::warn!(event = "overflow", port, overflowed, "more arrives than can be taken");
        }
    }
}

/// How often the figures are logged, while there are players.
const SUM_UP_EVERY: Duration = Duration::from_secs(600);
