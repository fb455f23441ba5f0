//! A second model of the three queues of one peer, written from the rules alone. It shares no code with the engine.

/// Low channel or not, number, part.
pub(crate) type Key = (bool, u16, Option<u8>);

/// A message of one's own.
#[derive(Clone, Debug)]
struct Own {
    key: Key,
    size: usize,
    reliable: bool,
    growth: Growth,
    again: u32,
    wait: f32,
    sent: f32,
    born: f32,
}

/// How the wait grows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Growth {
    Same,
    Saw,
    Double,
}

#[derive(Debug, Default)]
pub(crate) struct Model {
    /// Never sent; the front leaves first.
    fresh: Vec<Own>,
    unsettled: Vec<Own>,
    /// Which, how often sent, and the clock that must be passed before the next send.
    owed: Vec<(Key, u32, f32)>,
    /// What arrives in the next frame: a reliable message, or an ACK.
    arriving: Vec<(Key, bool)>,
    numbers: [u16; 2],
    /// Whether the peer is on its way out.
    pub(crate) doomed: bool,
}

impl Model {
    pub(crate) fn message_arrives(&mut self, key: Key) {
        self.arriving.push((key, false));
    }

    pub(crate) fn ack_arrives(&mut self, key: Key) {
        self.arriving.push((key, true));
    }

    /// Queues `len` bytes of payload.
    pub(crate) fn queue(&mut self, low: bool, len: usize, reliable: bool, urgent: bool, growth: Growth) {
        let number = if reliable { self.numbers[usize::from(low)] } else { 0 };
        if reliable {
            self.numbers[usize::from(low)] = number.wrapping_add(1);
        }
        let whole = 3 + if reliable { 2 } else { 0 } + len;
        let mut sizes = vec![whole];
        let split = whole > 412;
        if split {
            // 405 bytes behind a header of 7, then 406 behind 6.
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
            let own = Own { key, size, reliable, growth, again: 0, wait: 1.0, sent: 0.0, born: 0.0 };
            let place = if urgent { 0 } else { self.fresh.len() };
            self.fresh.insert(place, own);
        }
    }

    /// One frame: send, then receive.
    pub(crate) fn frame(&mut self, now: f32) {
        let (mut room, mut messages) = (510_usize, 0_u32);
        self.acks(now, 0..3, &mut room, &mut messages);
        if messages < 255 {
            self.again(now, &mut room, &mut messages);
        }
        while messages < 255 && self.fresh.first().is_some_and(|own| own.size <= room) {
            let mut own = self.fresh.remove(0);
            room -= own.size;
            messages += 1;
            if own.reliable {
                (own.born, own.sent) = (now, now);
                self.unsettled.push(own);
            }
        }
        if messages > 0 || self.doomed {
            self.acks(now, 3..9, &mut room, &mut messages);
        }
        self.owed.retain(|owed| owed.1 < 9);
        self.receive(now);
    }

    fn acks(&mut self, now: f32, counts: std::ops::Range<u32>, room: &mut usize, messages: &mut u32) {
        for (key, count, after) in &mut self.owed {
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

    fn again(&mut self, now: f32, room: &mut usize, messages: &mut u32) {
        let due = self.unsettled.iter().position(|own| own.sent + own.wait < now);
        if let Some(own) = due.map(|due| &mut self.unsettled[due])
            && own.size <= *room
        {
            *room -= own.size;
            *messages += 1;
            own.again += 1;
            own.sent = now;
            own.wait = match own.growth {
                Growth::Same => 1.0,
                Growth::Saw if own.wait == 5.0 => 1.0,
                Growth::Saw => own.wait + 1.0,
                Growth::Double => 1.0 + (1_u64 << (own.again - 1)) as f32,
            };
        }
        let mut place = 0;
        self.unsettled.retain(|own| {
            let passed = due.is_none_or(|due| place < due);
            place += 1;
            !passed || now - own.born <= 360.0
        });
    }

    fn receive(&mut self, now: f32) {
        for (key, is_ack) in std::mem::take(&mut self.arriving) {
            if is_ack {
                if let Some(place) = self.unsettled.iter().position(|own| own.key == key) {
                    self.unsettled.remove(place);
                }
            } else if let Some(owed) = self.owed.iter_mut().find(|owed| owed.0 == key) {
                (owed.1, owed.2) = (0, now);
            } else {
                self.owed.push((key, 0, now));
            }
        }
    }

    /// What a dump shows: ACKs with their counts; messages with their counts and waits.
    pub(crate) fn dump(&self) -> Shown {
        let acks = self.owed.iter().map(|(key, count, _)| (*key, *count)).collect();
        (acks, self.unsettled.iter().map(|own| (own.key, own.again, own.wait)).collect())
    }
}

/// ACKs and waiting messages.
pub(crate) type Shown = (Vec<(Key, u32)>, Vec<(Key, u32, f32)>);
