//! What one side has sent, counted.

use alloc::boxed::Box;
use alloc::vec;

use bcnet_wire::Message;

/// Messages and their bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Count {
    /// How many.
    pub messages: u64,
    /// Their bytes, with headers.
    pub bytes: u64,
}

impl Count {
    pub(crate) const fn add(&mut self, bytes: usize) {
        self.messages += 1;
        self.bytes += bytes as u64;
    }
}

/// What one side has sent, as far as it was seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Traffic {
    /// Datagrams, GameSpy text and unreadable ones not among them.
    pub datagrams: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Datagrams that could not be read.
    pub malformed: u64,
    /// All ACKs.
    pub acks: Count,
    /// Those that name a part.
    pub fragment_acks: Count,
    /// Those that had nothing left to clear.
    pub stale_acks: Count,
    /// Keepalives.
    pub keepalives: Count,
    /// Connections and names.
    pub control: Count,
    /// Game data, parts among it.
    pub data: Count,
    /// Parts.
    pub fragments: Count,
    /// Reliable messages that were sent again.
    pub retransmissions: Count,
    opcodes: Box<[Count]>,
}

impl Traffic {
    pub(crate) fn new() -> Self {
        let none = Count::default();
        Self {
            datagrams: 0,
            bytes: 0,
            malformed: 0,
            acks: none,
            fragment_acks: none,
            stale_acks: none,
            keepalives: none,
            control: none,
            data: none,
            fragments: none,
            retransmissions: none,
            opcodes: vec![none; 256].into(),
        }
    }

    /// Game data by the first byte of the payload, without those that were not sent. Parts behind the first are not
    /// among them: they have no opcode.
    pub fn opcodes(&self) -> impl Iterator<Item = (u8, Count)> {
        (0..=u8::MAX).zip(self.opcodes.iter().copied()).filter(|(_, count)| count.messages > 0)
    }

    pub(crate) fn note(&mut self, message: &Message<'_>) {
        let len = message.wire_len();
        match message {
            Message::Ack(ack) => {
                self.acks.add(len);
                if ack.id.part.is_some() {
                    self.fragment_acks.add(len);
                }
            }
            Message::Keepalive => self.keepalives.add(len),
            Message::Control(_) => self.control.add(len),
            Message::Data(data) => {
                self.data.add(len);
                if data.delivery.part().is_some() {
                    self.fragments.add(len);
                }
                let count = opcode(message).and_then(|opcode| self.opcodes.get_mut(usize::from(opcode)));
                if let Some(count) = count {
                    count.add(len);
                }
            }
        }
    }
}

/// Returns the game's opcode: the first byte of a whole payload or of a first part.
#[must_use]
pub fn opcode(message: &Message<'_>) -> Option<u8> {
    let Message::Data(data) = message else { return None };
    data.payload.first().copied().filter(|_| data.delivery.part().is_none_or(|part| part.index() == 0))
}
