//! Counters of the messages that one side has sent.

use alloc::vec::Vec;

use bcnet_wire::Message;

/// A number of messages and the sum of their bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MessageCounter {
    /// Number of messages.
    pub messages: u64,
    /// Sum of their bytes, including headers.
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

/// Counters of everything that was seen from one side.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SideCounters {
    /// Datagrams, without GameSpy text and without unreadable ones.
    pub datagrams: u64,
    /// Bytes of these datagrams.
    pub bytes: u64,
    /// Datagrams that could not be parsed.
    pub malformed: u64,
    /// All ACKs.
    pub acks: MessageCounter,
    /// ACKs that name a fragment.
    pub fragment_acks: MessageCounter,
    /// ACKs that cleared nothing because the message was already acknowledged.
    pub stale_acks: MessageCounter,
    /// Keepalives.
    pub keepalives: MessageCounter,
    /// Control messages: connections and names.
    pub control: MessageCounter,
    /// Game data, including fragments.
    pub data: MessageCounter,
    /// Fragments.
    pub fragments: MessageCounter,
    /// Retransmitted reliable messages.
    pub retransmissions: MessageCounter,
    /// In the order of first use: frequent opcodes come early, so the search is short.
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

    /// Returns the game data by opcode, the first byte of the payload. Unused opcodes are left out.
    ///
    /// Fragments after the first are not counted here, because they have no opcode.
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

/// Returns the game's opcode: the first byte of a whole payload or of a first fragment.
#[must_use]
pub fn opcode(message: &Message<'_>) -> Option<u8> {
    let Message::Data(data) = message else { return None };
    data.payload.first().copied().filter(|_| data.delivery.fragment().is_none_or(|part| part.index() == 0))
}
