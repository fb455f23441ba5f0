//! Samples a session once per second, and logs a summary every ten minutes.

use std::time::Duration;

use bcnet_transport::Time;

use super::{SessionHost, acknowledged_messages, millis};
use crate::serve::session_metrics::{ByteCounts, OverheadCounters, PlayerCounters};

impl SessionHost {
    /// Samples the counters if a second has passed, and logs a summary if that is due.
    pub(in crate::serve) fn sample_and_log(&mut self, now: Time) {
        if !self.metrics.is_sample_due(now) {
            return;
        }
        self.count_overflow(now);
        self.metrics.sample(self.socket_counters.wire_bytes(), self.session.rtts(), now);
        let session = &self.session;
        let player_counters = session.players().filter_map(|player| {
            let counters = session.peer_counters(player.id)?;
            let overhead =
                OverheadCounters { acks: counters.acks_out, retransmissions: counters.retransmits };
            Some((player.id, PlayerCounters { overhead, delivered: acknowledged_messages(&counters) }))
        });
        self.metrics.update_player_counters(player_counters, now);
        let players = self.session.players_in_game();
        if players == 0 {
            self.last_summary = now;
        }
        if now.since(self.last_summary) < SUMMARY_INTERVAL {
            return;
        }
        self.last_summary = now;
        let (delay, rtt) = self.metrics.take_quantiles();
        let ByteCounts { bytes_in, bytes_out } =
            self.metrics.bytes_per_second(self.socket_counters.wire_bytes(), now);
        tracing::info!(
            event = "summary",
            port = self.address.port(),
            players,
            relay_p50_ms = delay.p50.map(millis),
            relay_p99_ms = delay.p99.map(millis),
            round_trip_p50_ms = rtt.p50.map(millis),
            round_trip_p99_ms = rtt.p99.map(millis),
            bytes_in_per_second = bytes_in,
            bytes_out_per_second = bytes_out,
        );
    }

    /// Counts the datagrams that the system dropped because the receive buffer was full.
    fn count_overflow(&mut self, now: Time) {
        let Some(dropped) = self.socket.dropped() else { return };
        let datagrams = dropped.wrapping_sub(self.last_drop_count);
        self.last_drop_count = dropped;
        self.socket_counters.overflowed += u64::from(datagrams);
        if datagrams > 0 && self.overflow_log_limiter.allow(now).is_some() {
            let (port, overflowed) = (self.address.port(), self.socket_counters.overflowed);
            tracing::warn!(
                event = "overflow",
                port,
                overflowed,
                "the receive buffer is full: datagrams arrive faster than the server handles them"
            );
        }
    }
}

/// Time between two summaries, while there are players.
const SUMMARY_INTERVAL: Duration = Duration::from_secs(600);
