//! What a run counts.

use std::time::Duration;

use serde_json::{Value, json};

/// Counts of all players together.
#[derive(Debug)]
pub(super) struct SwarmTotals {
    /// Copies that were heard as they were said, and how long they took: how many by milliseconds.
    pub(super) delivered: u64,
    delays: Vec<u64>,
    pub(super) worst: Duration,
    /// Copies that were never heard.
    pub(super) lost: u64,
    pub(super) doubled: u64,
    pub(super) reordered: u64,
    /// Copies with bytes that nobody has said.
    pub(super) changed: u64,
    /// Copies that came back to their sender, or that the host should have kept.
    pub(super) echoed: u64,
    /// Players that were thrown out, or lost their server.
    pub(super) dropped: u64,
    /// Players that never got into the game.
    pub(super) absent: u64,
    /// Orders and states that were said, and how many copies of states should be and were heard.
    pub(super) said: u64,
    pub(super) states_said: u64,
    pub(super) states_due: u64,
    pub(super) states_heard: u64,
    /// What the host said itself.
    pub(super) host_said: u64,
    pub(super) joined: u64,
    pub(super) left: u64,
    pub(super) vanished: u64,
    pub(super) refused: u64,
    /// Frames, and how many came more than a frame too late because the machine had no time for them.
    pub(super) frames: u64,
    pub(super) late_frames: u64,
    pub(super) sent: Datagrams,
    pub(super) received: Datagrams,
}

/// Datagrams by size.
#[derive(Debug, Clone)]
pub(super) struct Datagrams {
    pub(super) count: u64,
    pub(super) bytes: u64,
    pub(super) sizes: Vec<u64>,
}

impl Default for Datagrams {
    fn default() -> Self {
        Self { count: 0, bytes: 0, sizes: vec![0; crate::udp::ROOM + 1] }
    }
}

impl Datagrams {
    pub(super) fn add(&mut self, len: usize) {
        self.count += 1;
        self.bytes += len as u64;
        self.sizes.get_mut(len).into_iter().for_each(|count| *count += 1);
    }
}

impl Default for SwarmTotals {
    fn default() -> Self {
        Self {
            delivered: 0,
            delays: vec![0; 10_001],
            worst: Duration::ZERO,
            lost: 0,
            doubled: 0,
            reordered: 0,
            changed: 0,
            echoed: 0,
            dropped: 0,
            absent: 0,
            said: 0,
            states_said: 0,
            states_due: 0,
            states_heard: 0,
            host_said: 0,
            joined: 0,
            left: 0,
            vanished: 0,
            refused: 0,
            frames: 0,
            late_frames: 0,
            sent: Datagrams::default(),
            received: Datagrams::default(),
        }
    }
}

impl SwarmTotals {
    pub(super) fn delivered(&mut self, delay: Duration) {
        self.delivered += 1;
        self.worst = self.worst.max(delay);
        let at = (delay.as_millis() as usize).min(self.delays.len() - 1);
        self.delays.get_mut(at).into_iter().for_each(|count| *count += 1);
    }

    /// Returns all datagrams, of both directions.
    pub(super) fn traffic(&self) -> Datagrams {
        let sizes = self.sent.sizes.iter().zip(&self.received.sizes).map(|(sent, received)| sent + received);
        Datagrams {
            count: self.sent.count + self.received.count,
            bytes: self.sent.bytes + self.received.bytes,
            sizes: sizes.collect(),
        }
    }

    /// Returns how many things went wrong.
    pub(super) const fn findings(&self) -> u64 {
        self.lost + self.doubled + self.reordered + self.changed + self.echoed + self.dropped + self.absent
    }

    /// Returns the delay, in milliseconds, that this share of all copies did not exceed.
    pub(super) fn delay_ms(&self, share: f64) -> u64 {
        let wanted = (self.delivered as f64 * share).ceil() as u64;
        let mut seen = 0;
        let place = self.delays.iter().position(|count| {
            seen += count;
            seen >= wanted
        });
        place.unwrap_or(0) as u64
    }

    pub(super) fn json(&self) -> Value {
        json!({
            "said": self.said,
            "delivered": self.delivered,
            "lost": self.lost,
            "doubled": self.doubled,
            "reordered": self.reordered,
            "changed": self.changed,
            "echoed": self.echoed,
            "delay_ms": {
                "median": self.delay_ms(0.5),
                "p99": self.delay_ms(0.99),
                "worst": self.worst.as_millis() as u64,
            },
            "states": { "said": self.states_said, "due": self.states_due, "heard": self.states_heard },
            "host_said": self.host_said,
            "joined": self.joined,
            "left": self.left,
            "vanished": self.vanished,
            "refused": self.refused,
            "dropped": self.dropped,
            "absent": self.absent,
            "frames": { "all": self.frames, "late": self.late_frames },
            "datagrams": {
                "sent": self.sent.count,
                "received": self.received.count,
                "bytes_sent": self.sent.bytes,
                "bytes_received": self.received.bytes,
            },
        })
    }
}
