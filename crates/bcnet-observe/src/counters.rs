//! What one side has sent, counted.

use alloc::vec::Vec;

use bcnet_wire::Message;

/// Messages and their bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MessageCounter {
    /// How many.
    pub messages: u64,
    /// Their bytes, with headers.
    pub bytes: u64,
}

impl MessageCounter {
    pub(crate) const fn add(&mut self, bytes: usize) {
        self.messages += 1;
        self.bytes += bytes as u64;
    }

    const fn merge(&mut self, other: Self) {
        self.messages += other.messages;
        self.bytes += other.bytes;
    }
}

/// What one side has sent, as far as it was seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SideCounters {
    /// Datagrams, GameSpy text and unreadable ones not among them.
    pub datagrams: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Datagrams that could not be read.
    pub malformed: u64,
    /// All ACKs.
    pub acks: MessageCounter,
    /// Those that name a part.
    pub fragment_acks: MessageCounter,
    /// Those that had nothing left to clear.
    pub stale_acks: MessageCounter,
    /// Keepalives.
    pub keepalives: MessageCounter,
    /// Connections and names.
    pub control: MessageCounter,
    /// Game data, parts among it.
    pub data: MessageCounter,
    /// Parts.
    pub fragments: MessageCounter,
    /// Reliable messages that were sent again.
    pub retransmissions: MessageCounter,
    /// In the order in which they were first seen: the commonest comes early.
    opcodes: Vec<(u8, MessageCounter)>,
}

impl SideCounters {
    pub(crate) const fn new() -> Self {
        let none = MessageCounter { messages: 0, bytes: 0 };
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
            opcodes: Vec::new(),
        }
    }

    /// Game data by the first byte of the payload, without those that were not sent. Parts behind the first are not
    /// among them: they have no opcode.
    pub fn opcodes(&self) -> impl Iterator<Item = (u8, MessageCounter)> {
        let mut opcodes = self.opcodes.clone();
        opcodes.sort_unstable_by_key(|(opcode, _)| *opcode);
        opcodes.into_iter()
    }

    fn opcode_mut(&mut self, opcode: u8) -> Option<&mut MessageCounter> {
        let known = self.opcodes.iter().position(|(other, _)| *other == opcode);
        let place = known.unwrap_or_else(|| {
            self.opcodes.push((opcode, MessageCounter::default()));
            self.opcodes.len() - 1
        });
        self.opcodes.get_mut(place).map(|(_, count)| count)
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        self.datagrams += other.datagrams;
        self.bytes += other.bytes;
        self.malformed += other.malformed;
        self.acks.merge(other.acks);
        self.fragment_acks.merge(other.fragment_acks);
        self.stale_acks.merge(other.stale_acks);
        self.keepalives.merge(other.keepalives);
        self.control.merge(other.control);
        self.data.merge(other.data);
        self.fragments.merge(other.fragments);
        self.retransmissions.merge(other.retransmissions);
        for (opcode, count) in &other.opcodes {
            if let Some(sum) = self.opcode_mut(*opcode) {
                sum.merge(*count);
            }
        }
    }

    pub(crate) fn count_message(&mut self, message: &Message<'_>) {
        let len = message.wire_len();
        match message {
            Message::Ack(ack) => {
                self.acks.add(len);
                if ack.id.fragment.is_some() {
                    self.fragment_acks.add(len);
                }
            }
            Message::Keepalive => self.keepalives.add(len),
            Message::Control(_) => self.control.add(len),
            Message::Data(data) => {
                self.data.add(len);
                if data.delivery.fragment().is_some() {
                    self.fragments.add(len);
                }
                let count = opcode(message).and_then(|opcode| self.opcode_mut(opcode));
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
    data.payload.first().copied().filter(|_| data.delivery.fragment().is_none_or(|part| part.index() == 0))
}
