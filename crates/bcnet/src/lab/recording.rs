//! Who said what when, read from a capture.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::SocketAddrV4;
use std::path::Path;
use std::time::Duration;

use anyhow::ensure;
use bcnet_lab::GameMessage;
use bcnet_transport::wire::{Data, Datagram, Delivery, Message, MessageId, PeerId, Seq};
use bcnet_transport::{DeliveryMode, Time};

use crate::inspect::for_each_datagram;

/// What is in a capture, as far as it can be sent anew.
#[derive(Default)]
pub(super) struct Recording {
    /// The addresses of the clients, in the order in which they were seen.
    pub(super) clients: Vec<SocketAddrV4>,
    /// Every payload that was given to an engine, with its time since the first.
    pub(super) messages: Vec<GameMessage>,
    pub(super) datagrams: u64,
    pub(super) bytes: u64,
    pub(super) ack_bytes: u64,
    /// Reliable messages and parts that were sent, and those of them that were sent again.
    pub(super) reliable: u64,
    pub(super) retransmissions: u64,
    /// From a message to its ACK, in microseconds, of those sent by the host and by clients.
    ack_delays: [Vec<u64>; 2],
}

impl Recording {
    /// Reads a capture.
    pub(super) fn read(path: &Path) -> anyhow::Result<Self> {
        let mut reader = RecordingReader::default();
        for_each_datagram(path, |time, from, to, bytes| reader.on_datagram(time, from, to, bytes))?;
        let name = path.display();
        ensure!(
            reader
                .conversations
                .values()
                .any(|talk| talk.directions.iter().any(|lane| lane.sent > 0 || lane.unreliable > 0)),
            "{name}: no game traffic between a host and a player in it"
        );
        ensure!(reader.recording.clients.len() <= MAX_CLIENTS, "{name}: more than {MAX_CLIENTS} players");
        Ok(reader.finish())
    }

    /// Returns the time under way, one way, with the waits of both programs in it, if any ACK tells.
    pub(super) fn delay(&self) -> Option<Duration> {
        let medians = self.ack_delays.iter().filter_map(|waits| waits.get(waits.len() / 2));
        let sum: u64 = medians.sum();
        (sum > 0).then(|| Duration::from_micros(sum / 2))
    }

    /// Returns the share of reliable messages that were sent again.
    pub(super) fn loss(&self) -> f64 {
        self.retransmissions as f64 / self.reliable.max(1) as f64
    }
}

/// Reads datagrams one by one.
#[derive(Default)]
struct RecordingReader {
    recording: Recording,
    start: Option<Time>,
    /// By the addresses of the host and the client.
    conversations: BTreeMap<(SocketAddrV4, SocketAddrV4), RecordedConversation>,
}

/// What passes between the host and one client.
#[derive(Default)]
struct RecordedConversation {
    client: usize,
    /// From the host, and from the client.
    directions: [RecordedDirection; 2],
}

/// What went one way.
#[derive(Default)]
struct RecordedDirection {
    /// How many reliable messages and parts were sent.
    sent: u64,
    unreliable: u64,
    /// When each number was sent, counted in such messages.
    last_sent: HashMap<MessageId, u64>,
    /// What was sent once and not acknowledged yet.
    unacknowledged: HashMap<MessageId, Time>,
    /// Where the payload of a number is that comes in parts.
    split_payloads: HashMap<Seq, usize>,
}

impl RecordingReader {
    fn on_datagram(&mut self, time: Time, from: SocketAddrV4, to: SocketAddrV4, bytes: &[u8]) {
        let Ok(datagram) = Datagram::parse(bytes, None) else { return };
        let from_host = datagram.sender() == PeerId::HOST;
        let pair = if from_host { (from, to) } else { (to, from) };
        let clients = &mut self.recording.clients;
        let talk = self.conversations.entry(pair).or_insert_with(|| {
            clients.push(pair.1);
            RecordedConversation { client: clients.len() - 1, ..RecordedConversation::default() }
        });
        let start = *self.start.get_or_insert(time);
        let at = Time::ZERO + time.since(start);
        self.recording.datagrams += 1;
        self.recording.bytes += bytes.len() as u64;
        let (own, other) = if from_host { (0, 1) } else { (1, 0) };
        for message in datagram.messages() {
            match message {
                Message::Ack(ack) => {
                    self.recording.ack_bytes += message.wire_len() as u64;
                    if let Some(sent) = talk.directions[other].unacknowledged.remove(&ack.id) {
                        let wait = u64::try_from(time.since(sent).as_micros()).unwrap_or(u64::MAX);
                        self.recording.ack_delays[other].push(wait);
                    }
                }
                Message::Data(data) => {
                    let lane = &mut talk.directions[own];
                    let place = lane.record_message(&message, data, time, &mut self.recording);
                    let message = GameMessage {
                        at,
                        ship: talk.client,
                        from_host,
                        size: data.payload.len(),
                        mode: delivery_mode(&data),
                    };
                    match place {
                        PayloadStatus::New => self.recording.messages.push(message),
                        PayloadStatus::Fragment(index) => self.recording.messages[index].size += message.size,
                        PayloadStatus::Retransmission => {}
                    }
                }
                Message::Keepalive | Message::Control(_) => {}
            }
        }
    }

    /// Leaves out who never said anything.
    fn finish(mut self) -> Recording {
        let heard: HashSet<usize> = self.recording.messages.iter().map(|message| message.ship).collect();
        let kept: Vec<usize> =
            (0..self.recording.clients.len()).filter(|client| heard.contains(client)).collect();
        for message in &mut self.recording.messages {
            message.ship = kept.iter().position(|client| *client == message.ship).unwrap_or(0);
        }
        self.recording.clients = kept.iter().map(|client| self.recording.clients[*client]).collect();
        self.recording.ack_delays.iter_mut().for_each(|waits| waits.sort_unstable());
        self.recording
    }
}

/// What a message is.
enum PayloadStatus {
    /// A payload, or the first part of one that was seen.
    New,
    /// One more part of the payload that is the so manieth.
    Fragment(usize),
    /// It was there before.
    Retransmission,
}

impl RecordedDirection {
    fn record_message(
        &mut self,
        message: &Message<'_>,
        data: Data<'_>,
        time: Time,
        recording: &mut Recording,
    ) -> PayloadStatus {
        let Some(id) = message.id() else {
            self.unreliable += 1;
            return PayloadStatus::New;
        };
        self.sent += 1;
        recording.reliable += 1;
        let again = self
            .last_sent
            .insert(id, self.sent)
            .is_some_and(|last| self.sent - last < MAX_RETRANSMIT_DISTANCE);
        if again {
            recording.retransmissions += 1;
            // Which of both is acknowledged cannot be told.
            self.unacknowledged.remove(&id);
            return PayloadStatus::Retransmission;
        }
        self.unacknowledged.insert(id, time);
        let Delivery::Fragment(seq, _) = data.delivery else {
            return PayloadStatus::New;
        };
        let next = recording.messages.len();
        match self.split_payloads.get(&seq) {
            Some(index) if next - index < MAX_FRAGMENT_DISTANCE => PayloadStatus::Fragment(*index),
            _ => {
                self.split_payloads.insert(seq, next);
                PayloadStatus::New
            }
        }
    }
}

fn delivery_mode(data: &Data<'_>) -> DeliveryMode {
    match data.delivery {
        Delivery::Unreliable | Delivery::UnreliableFragment(_) => DeliveryMode::Unreliable,
        Delivery::Reliable(_) | Delivery::Fragment(..) if data.urgent => DeliveryMode::Urgent,
        Delivery::Reliable(_) | Delivery::Fragment(..) => DeliveryMode::Reliable,
    }
}

/// A number is used again after 65,536 messages; no message is repeated that long.
const MAX_RETRANSMIT_DISTANCE: u64 = 30_000;
/// Parts of one payload come within so many messages.
const MAX_FRAGMENT_DISTANCE: usize = 30_000;
/// As many as a host has ids.
const MAX_CLIENTS: usize = 124;
