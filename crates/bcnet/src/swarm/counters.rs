//! Counters of a run.

use serde_json::{Value, json};

use super::DelayHistogram;
use super::delay::{JoinTimes, RelayDelays};

/// Counters of all players together.
#[derive(Debug, Default)]
pub(super) struct SwarmCounters {
    /// Copies that arrived unchanged.
    pub(super) delivered: u64,
    pub(super) delays: RelayDelays,
    pub(super) joins: JoinTimes,
    /// Copies that never arrived.
    pub(super) lost: u64,
    pub(super) duplicated: u64,
    pub(super) reordered: u64,
    /// Copies with bytes that no player sent.
    pub(super) changed: u64,
    /// Copies that came back to their sender, or that the host should not have relayed.
    pub(super) echoed: u64,
    /// Players that were removed, or lost their server.
    pub(super) dropped: u64,
    /// Players that never joined the game.
    pub(super) absent: u64,
    /// Reliable messages and states sent, and copies of states expected and received.
    pub(super) messages_sent: u64,
    pub(super) states_sent: u64,
    pub(super) states_expected: u64,
    pub(super) states_received: u64,
    /// Messages of the host itself.
    pub(super) host_messages: u64,
    pub(super) joined: u64,
    pub(super) left: u64,
    pub(super) vanished: u64,
    pub(super) refused: u64,
    /// Ticks, and ticks that were more than a tick late because the machine was busy.
    pub(super) frames: u64,
    pub(super) late_frames: u64,
    /// Delay of ticks. Large values mean that the players themselves are the limit.
    pub(super) lateness: DelayHistogram,
    pub(super) datagrams_sent: DatagramCounters,
    pub(super) datagrams_received: DatagramCounters,
}

/// Datagrams by size.
#[derive(Debug, Clone)]
pub(super) struct DatagramCounters {
    pub(super) count: u64,
    pub(super) bytes: u64,
    pub(super) by_size: Vec<u64>,
}

impl Default for DatagramCounters {
    fn default() -> Self {
        Self { count: 0, bytes: 0, by_size: vec![0; bcnet_udp::BUFFER_SIZE + 1] }
    }
}

impl DatagramCounters {
    pub(super) fn add(&mut self, len: usize) {
        self.count += 1;
        self.bytes += len as u64;
        self.by_size.get_mut(len).into_iter().for_each(|count| *count += 1);
    }
}

impl SwarmCounters {
    /// Returns the datagrams of both directions.
    pub(super) fn all_datagrams(&self) -> DatagramCounters {
        let sizes = self
            .datagrams_sent
            .by_size
            .iter()
            .zip(&self.datagrams_received.by_size)
            .map(|(sent, received)| sent + received);
        DatagramCounters {
            count: self.datagrams_sent.count + self.datagrams_received.count,
            bytes: self.datagrams_sent.bytes + self.datagrams_received.bytes,
            by_size: sizes.collect(),
        }
    }

    /// Returns the number of problems.
    pub(super) const fn findings(&self) -> u64 {
        self.lost + self.duplicated + self.reordered + self.changed + self.echoed + self.dropped + self.absent
    }

    pub(super) fn json(&self) -> Value {
        json!({
            "said": self.messages_sent,
            "delivered": self.delivered,
            "lost": self.lost,
            "doubled": self.duplicated,
            "reordered": self.reordered,
            "changed": self.changed,
            "echoed": self.echoed,
            "delay_us": self.delays.json(),
            "joins_us": self.joins.json(),
            "states": { "said": self.states_sent, "due": self.states_expected, "heard": self.states_received },
            "host_said": self.host_messages,
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
                "sent": self.datagrams_sent.count,
                "received": self.datagrams_received.count,
                "bytes_sent": self.datagrams_sent.bytes,
                "bytes_received": self.datagrams_received.bytes,
            },
        })
    }
}
