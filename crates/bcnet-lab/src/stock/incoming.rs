//! Queues of received messages before dispatch, and reassembly of fragments.

use std::collections::VecDeque;

use bcnet_transport::wire::{Channel, Seq};

use super::counters::StockCounters;
use super::message::{Crash, StockMessage};
use super::peer::channel_index;

/// Queues of unreliable and reliable messages, for each channel. All peers share them.
#[derive(Debug, Default)]
pub(super) struct IncomingQueues {
    pub(super) unreliable: [VecDeque<StockMessage>; 2],
    pub(super) reliable: [VecDeque<StockMessage>; 2],
}

impl IncomingQueues {
    /// Queues an unreliable message.
    ///
    /// An urgent message is inserted after the urgent messages at the head of the queue. If the message at the
    /// head is not urgent, the urgent message gets the second place.
    pub(super) fn push_unreliable(&mut self, channel: Channel, message: StockMessage) {
        let queue = &mut self.unreliable[channel_index(channel)];
        let place = if message.urgent {
            let leading = queue.iter().take_while(|other| other.urgent).count();
            leading.max(1).min(queue.len())
        } else {
            queue.len()
        };
        queue.insert(place, message);
    }

    /// Combines a fragment with the queued fragments that have the same sequence number, from any sender.
    ///
    /// Returns the whole message if the number of fragments is reached. Otherwise returns the fragment, to be
    /// queued.
    ///
    /// # Errors
    ///
    /// Returns a crash if the number is reached although a fragment is missing, as the original crashes.
    pub(super) fn reassemble(
        &mut self,
        mut part: StockMessage,
        tally: &mut StockCounters,
    ) -> Result<StockMessage, Crash> {
        let queue = &mut self.reliable[channel_index(Channel::Game)];
        let mut slots: [Option<&StockMessage>; 256] = [None; 256];
        for waiting in queue.iter() {
            tally.comparisons += 1;
            if let Some(index) = waiting.fragment.filter(|_| waiting.seq == part.seq) {
                slots[usize::from(index)] = Some(waiting);
            }
        }
        slots[usize::from(part.fragment.unwrap_or(0))] = Some(&part);
        let filled = slots.iter().flatten().count();
        let Some(first) = slots[0].filter(|first| filled >= usize::from(first.fragment_count)) else {
            return Ok(part);
        };
        let mut whole = Vec::with_capacity(filled * first.payload.len());
        for (index, slot) in (0..=u8::MAX).zip(&slots[..filled]) {
            let Some(part) = slot else {
                return Err(Crash::MissingFragment { seq: Seq(first.seq), index });
            };
            whole.extend_from_slice(&part.payload);
        }
        queue.retain(|waiting| waiting.fragment.is_none() || waiting.seq != part.seq);
        part.payload = whole;
        part.fragment = None;
        Ok(part)
    }
}
