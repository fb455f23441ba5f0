//! An independent model of the three queues of one peer, written from the rules alone. It shares no code with
//! the engine.

/// Control channel or not, sequence number, fragment number.
pub(crate) type ModelKey = (bool, u16, Option<u8>);

/// A message to send.
#[derive(Clone, Debug)]
struct ModelMessage {
    key: ModelKey,
    size: usize,
    reliable: bool,
    growth: WaitGrowth,
    retransmits: u32,
    wait: f32,
    last_sent: f32,
    first_sent: f32,
}

/// Growth of the wait between retransmissions.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum WaitGrowth {
    Fixed,
    Sawtooth,
    Doubling,
}

#[derive(Debug, Default)]
pub(crate) struct ReferenceModel {
    /// Unsent messages; the first is sent first.
    unsent: Vec<ModelMessage>,
    unacknowledged: Vec<ModelMessage>,
    /// Each pending ACK: message, number of sends, and the clock reading after which it is sent again.
    pending_acks: Vec<(ModelKey, u32, f32)>,
    /// Messages that arrive in the next frame. `true` marks an ACK.
    arriving: Vec<(ModelKey, bool)>,
    numbers: [u16; 2],
    /// `true` if the peer is deleted and lingers.
    pub(crate) deleted: bool,
}

impl ReferenceModel {
    pub(crate) fn message_arrives(&mut self, key: ModelKey) {
        self.arriving.push((key, false));
    }

    pub(crate) fn ack_arrives(&mut self, key: ModelKey) {
        self.arriving.push((key, true));
    }

    /// Queues `len` bytes of payload.
    pub(crate) fn queue(&mut self, low: bool, len: usize, reliable: bool, urgent: bool, growth: WaitGrowth) {
        let number = if reliable { self.numbers[usize::from(low)] } else { 0 };
        if reliable {
            self.numbers[usize::from(low)] = number.wrapping_add(1);
        }
        let whole = 3 + if reliable { 2 } else { 0 } + len;
        let mut sizes = vec![whole];
        let split = whole > 412;
        if split {
            // The first fragment has 405 bytes after a header of 7, each further one 406 bytes after a header
            // of 6.
            sizes = vec![412];
            let mut left = len - 405;
            while left > 0 {
                sizes.push(6 + left.min(406));
                left -= left.min(406);
            }
        }
        for (index, size) in sizes.into_iter().enumerate() {
            let key = (low, number, split.then_some(index as u8));
            let reliable = reliable || split;
            let own = ModelMessage {
                key,
                size,
                reliable,
                growth,
                retransmits: 0,
                wait: 1.0,
                last_sent: 0.0,
                first_sent: 0.0,
            };
            let place = if urgent { 0 } else { self.unsent.len() };
            self.unsent.insert(place, own);
        }
    }

    /// Runs one frame: sends, then receives.
    pub(crate) fn frame(&mut self, now: f32) {
        let (mut room, mut messages) = (510_usize, 0_u32);
        self.send_acks(now, 0..3, &mut room, &mut messages);
        if messages < 255 {
            self.retransmit(now, &mut room, &mut messages);
        }
        while messages < 255 && self.unsent.first().is_some_and(|own| own.size <= room) {
            let mut own = self.unsent.remove(0);
            room -= own.size;
            messages += 1;
            if own.reliable {
                (own.first_sent, own.last_sent) = (now, now);
                self.unacknowledged.push(own);
            }
        }
        if messages > 0 || self.deleted {
            self.send_acks(now, 3..9, &mut room, &mut messages);
        }
        self.pending_acks.retain(|ack| ack.1 < 9);
        self.receive(now);
    }

    fn send_acks(&mut self, now: f32, counts: std::ops::Range<u32>, room: &mut usize, messages: &mut u32) {
        for (key, count, after) in &mut self.pending_acks {
            let size = if key.2.is_some() { 5 } else { 4 };
            if !counts.contains(count) || *after >= now {
                continue;
            }
            if size > *room || *messages == 255 {
                return;
            }
            *room -= size;
            *messages += 1;
            *count += 1;
            *after = now + 0.6666;
        }
    }

    fn retransmit(&mut self, now: f32, room: &mut usize, messages: &mut u32) {
        let due = self.unacknowledged.iter().position(|own| own.last_sent + own.wait < now);
        if let Some(own) = due.map(|due| &mut self.unacknowledged[due])
            && own.size <= *room
        {
            *room -= own.size;
            *messages += 1;
            own.retransmits += 1;
            own.last_sent = now;
            own.wait = match own.growth {
                WaitGrowth::Fixed => 1.0,
                WaitGrowth::Sawtooth if own.wait == 5.0 => 1.0,
                WaitGrowth::Sawtooth => own.wait + 1.0,
                WaitGrowth::Doubling => 1.0 + (1_u64 << (own.retransmits - 1)) as f32,
            };
        }
        let mut place = 0;
        self.unacknowledged.retain(|own| {
            let passed = due.is_none_or(|due| place < due);
            place += 1;
            !passed || now - own.first_sent <= 360.0
        });
    }

    fn receive(&mut self, now: f32) {
        for (key, is_ack) in std::mem::take(&mut self.arriving) {
            if is_ack {
                if let Some(place) = self.unacknowledged.iter().position(|own| own.key == key) {
                    self.unacknowledged.remove(place);
                }
            } else if let Some(ack) = self.pending_acks.iter_mut().find(|ack| ack.0 == key) {
                (ack.1, ack.2) = (0, now);
            } else {
                self.pending_acks.push((key, 0, now));
            }
        }
    }

    /// Returns the contents of a dump: ACKs with their counts; messages with their counts and waits.
    pub(crate) fn dump(&self) -> DumpContents {
        let acks = self.pending_acks.iter().map(|(key, count, _)| (*key, *count)).collect();
        (acks, self.unacknowledged.iter().map(|own| (own.key, own.retransmits, own.wait)).collect())
    }
}

/// ACKs, and unacknowledged messages.
pub(crate) type DumpContents = (Vec<(ModelKey, u32)>, Vec<(ModelKey, u32, f32)>);
