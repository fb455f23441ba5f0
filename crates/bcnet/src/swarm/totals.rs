//! What a run counts.

use serde_json::{Value, json};

use super::Histogram;
use super::delay::{Delays, Joins};

/// Counts of all players together.
#[derive(Debug, Default)]
pub(super) struct SwarmTotals {
    /// Copies that were heard as they were said.
    pub(super) delivered: u64,
    pub(super) delays: Delays,
    pub(super) joins: Joins,
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
    /// How late frames came. Much of that is a sign that the players themselves are the limit.
    pub(super) lateness: Histogram,
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
        Self { count: 0, bytes: 0, sizes: vec![0; bcnet_udp::ROOM + 1] }
    }
}

impl Datagrams {
    pub(super) fn add(&mut self, len: usize) {
        self.count += 1;
        self.bytes += len as u64;
        self.sizes.get_mut(len).into_iter().for_each(|count| *count += 1);
    }
}

impl SwarmTotals {
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

    pub(super) fn json(&self) -> Value {
        json!({
            "said": self.said,
            "delivered": self.delivered,
            "lost": self.lost,
            "doubled": self.doubled,
            "reordered": self.reordered,
            "changed": self.changed,
            "echoed": self.echoed,
            "delay_us": self.delays.json(),
            "joins_us": self.joins.json(),
            "states": { "said": self.states_said, "due": self.states_due, "heard": self.states_heard },
            "host_said": self.host_said,
            "joined": self.joined,
            "left": self.left,
            "vanished": self.vanished,
            "refused": self.refused,
            "dropped": self.dropped,
            "absent": self.absent,
            "frames": {
                "all": self.frames,
                "late": self.late_frames,
                "lateness_us": self.lateness.json(),
            },
            "datagrams": {
                "sent": self.sent.count,
                "received": self.received.count,
                "bytes_sent": self.sent.bytes,
                "bytes_received": self.received.bytes,
            },
        })
    }
}
