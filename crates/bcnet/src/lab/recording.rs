//! Reads from a capture which player sent which payload when.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::SocketAddrV4;
use std::path::Path;
use std::time::Duration;

use anyhow::ensure;
use bcnet_lab::GameMessage;
use bcnet_transport::wire::{Data, Datagram, Delivery, Message, MessageId, PeerId, Seq};
use bcnet_transport::{DeliveryMode, Time};

use crate::inspect::for_each_datagram;

/// The payloads of a capture that can be replayed, with counters of the capture.
#[derive(Default)]
pub(super) struct Recording {
    /// Addresses of the clients, in the order of their first datagrams.
    pub(super) clients: Vec<SocketAddrV4>,
    /// Every payload that a client or the host sent, with its time since the first datagram.
    pub(super) messages: Vec<GameMessage>,
    pub(super) datagrams: u64,
    pub(super) bytes: u64,
    pub(super) ack_bytes: u64,
    /// Reliable messages and fragments sent, and those of them that were retransmissions.
    pub(super) reliable: u64,
    pub(super) retransmissions: u64,
    /// Times from a message to its ACK in microseconds, for messages of the host and of clients.
    ack_delays: [Vec<u64>; 2],
}

impl Recording {
    /// Reads a capture.
    pub(super) fn read(path: &Path) -> anyhow::Result<Self> {
        let mut reader = RecordingReader::default();
        for_each_datagram(path, |time, from, to, bytes| reader.on_datagram(time, from, to, bytes))?;
        let name = path.display();
        ensure!(
            reader.conversations.values().any(|conversation| conversation
                .directions
                .iter()
                .any(|lane| lane.sent > 0 || lane.unreliable > 0)),
            "{name}: the capture has no game traffic between a host and a player"
        );
        ensure!(
            reader.recording.clients.len() <= MAX_CLIENTS,
            "{name}: the capture has more than {MAX_CLIENTS} players"
        );
        Ok(reader.finish())
    }

    /// Returns the estimated one-way delay, including the time in both programs. `None` without ACKs.
    pub(super) fn delay(&self) -> Option<Duration> {
        let medians = self.ack_delays.iter().filter_map(|waits| waits.get(waits.len() / 2));
        let sum: u64 = medians.sum();
        (sum > 0).then(|| Duration::from_micros(sum / 2))
    }

    /// Returns the fraction of reliable messages sent that were retransmissions.
    pub(super) fn loss(&self) -> f64 {
        self.retransmissions as f64 / self.reliable.max(1) as f64
    }
}

/// Builds a recording from single datagrams.
#[derive(Default)]
struct RecordingReader {
    recording: Recording,
    start: Option<Time>,
    /// Conversations, by the addresses of host and client.
    conversations: BTreeMap<(SocketAddrV4, SocketAddrV4), RecordedConversation>,
}

/// Traffic between the host and one client.
#[derive(Default)]
struct RecordedConversation {
    client: usize,
    /// Messages from the host, and messages from the client.
    directions: [RecordedDirection; 2],
}

/// Messages in one direction.
#[derive(Default)]
struct RecordedDirection {
    /// Number of reliable messages and fragments sent.
    sent: u64,
    unreliable: u64,
    /// Value of `sent` when each message id was last sent.
    last_sent: HashMap<MessageId, u64>,
    /// Send times of messages that were sent once and are not acknowledged.
    unacknowledged: HashMap<MessageId, Time>,
    /// Index of the payload for each sequence number with fragments.
    split_payloads: HashMap<Seq, usize>,
}

impl RecordingReader {
    fn on_datagram(&mut self, time: Time, from: SocketAddrV4, to: SocketAddrV4, bytes: &[u8]) {
        let Ok(datagram) = Datagram::parse(bytes, None) else { return };
        let from_host = datagram.sender() == PeerId::HOST;
        let pair = if from_host { (from, to) } else { (to, from) };
        let clients = &mut self.recording.clients;
        let conversation = self.conversations.entry(pair).or_insert_with(|| {
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
                    if let Some(sent) = conversation.directions[other].unacknowledged.remove(&ack.id) {
                        let wait = u64::try_from(time.since(sent).as_micros()).unwrap_or(u64::MAX);
                        self.recording.ack_delays[other].push(wait);
                    }
                }
                Message::Data(data) => {
                    let lane = &mut conversation.directions[own];
                    let place = lane.record_message(&message, data, time, &mut self.recording);
                    let message = GameMessage {
                        at,
                        ship: conversation.client,
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

    /// Removes clients without a payload in either direction.
    fn finish(mut self) -> Recording {
        let senders: HashSet<usize> = self.recording.messages.iter().map(|message| message.ship).collect();
        let kept: Vec<usize> =
            (0..self.recording.clients.len()).filter(|client| senders.contains(client)).collect();
        for message in &mut self.recording.messages {
            message.ship = kept.iter().position(|client| *client == message.ship).unwrap_or(0);
        }
        self.recording.clients = kept.iter().map(|client| self.recording.clients[*client]).collect();
        self.recording.ack_delays.iter_mut().for_each(|waits| waits.sort_unstable());
        self.recording
    }
}

/// Relation of a message to the payloads seen before.
enum PayloadStatus {
    /// A new payload, or the first fragment of one.
    New,
    /// A further fragment of the payload with this index.
    Fragment(usize),
    /// A retransmission.
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
            // It is unknown which of the copies an ACK answers.
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

/// A message id that recurs within this many messages is a retransmission. Later it is a reused id.
const MAX_RETRANSMIT_DISTANCE: u64 = 30_000;
/// Fragments with the same sequence number that are farther apart belong to different payloads.
const MAX_FRAGMENT_DISTANCE: usize = 30_000;
/// Number of ids that a host can assign.
const MAX_CLIENTS: usize = 124;
