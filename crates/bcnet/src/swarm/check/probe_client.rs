//! A client that sends exactly the given bytes and keeps everything it receives.

use std::io::ErrorKind::{Interrupted, TimedOut, WouldBlock};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};
use std::time::Duration;

use anyhow::Context;
use bcnet_transport::wire::{Body, BootReason, Control, Datagram, Kind, Message, Role, Text};
use bcnet_transport::{Time, cipher};
use bcnet_udp::Clock;

use super::files;

/// A message of the server.
#[derive(Debug, Clone)]
pub(super) struct ReceivedMessage {
    /// The number of its datagram, counted from 0.
    pub(super) datagram: u32,
    pub(super) at: Time,
    pub(super) bytes: Vec<u8>,
}

impl ReceivedMessage {
    pub(super) fn message(&self) -> Option<Message<'_>> {
        Message::parse(&self.bytes, Some(Role::Host)).ok()
    }

    /// Returns the game payload, if it is one and unfragmented.
    pub(super) fn payload(&self) -> Option<&[u8]> {
        let Message::Data(data) = self.message()? else { return None };
        data.delivery.fragment().is_none().then_some(data.payload)
    }

    pub(super) fn is_reliable(&self) -> bool {
        self.message().is_some_and(|message| message.id().is_some())
    }
}

pub(super) struct ProbeClient {
    socket: UdpSocket,
    pub(super) server: SocketAddrV4,
    pub(super) clock: Clock,
    pub(super) id: u8,
    pub(super) slot: u8,
    pub(super) name: String,
    /// All received messages, repeats included.
    pub(super) received: Vec<ReceivedMessage>,
    /// The error of an unreadable datagram of the server.
    pub(super) parse_error: Option<String>,
    /// True if received messages are acknowledged.
    pub(super) sends_acks: bool,
    /// True if no disconnect is needed: the client was never admitted, or has sent one.
    has_left: bool,
    datagrams_received: u32,
    control_seq: u16,
    game_seq: u16,
    nonce: u32,
}

impl ProbeClient {
    pub(super) fn new(server: SocketAddrV4, name: &str) -> anyhow::Result<Self> {
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).context("cannot open a UDP socket")?;
        let nonce = u32::from(socket.local_addr()?.port()) << 8 | 0x5F;
        Ok(Self {
            socket,
            server,
            clock: Clock::start(),
            id: 0xFF,
            slot: 0,
            name: name.into(),
            received: Vec::new(),
            parse_error: None,
            sends_acks: true,
            has_left: true,
            datagrams_received: 0,
            control_seq: 0,
            game_seq: 0,
            nonce,
        })
    }

    /// Sends one datagram with these messages.
    pub(super) fn send(&self, messages: &[Vec<u8>]) {
        let mut datagram = vec![self.id, messages.len() as u8];
        datagram.extend(messages.iter().flatten());
        cipher::encrypt(&mut datagram);
        self.send_raw(&datagram);
    }

    pub(super) fn send_raw(&self, datagram: &[u8]) {
        // A network error shows as silence.
        drop(self.socket.send_to(datagram, self.server));
    }

    /// Returns a control message with the next sequence number.
    pub(super) fn control_message(&mut self, kind: Kind, body: &[u8]) -> Vec<u8> {
        let [low, high] = (0xC000 | (5 + body.len()) as u16).to_le_bytes();
        let [seq_low, seq_high] = self.control_seq.to_le_bytes();
        self.control_seq += 1;
        [&[kind.0, low, high, seq_low, seq_high], body].concat()
    }

    /// Returns a reliable game message with the next sequence number.
    pub(super) fn reliable_message(&mut self, payload: &[u8]) -> Vec<u8> {
        let [low, high] = (0x8000 | (5 + payload.len()) as u16).to_le_bytes();
        let [seq_low, seq_high] = self.game_seq.to_le_bytes();
        self.game_seq += 1;
        [&[0x32, low, high, seq_low, seq_high], payload].concat()
    }

    /// Returns the same message in fragments.
    pub(super) fn fragments(&mut self, payload: &[u8]) -> Vec<Vec<u8>> {
        let (first, rest) = payload.split_at(payload.len().min(405));
        let chunks = [first].into_iter().chain(rest.chunks(406));
        let total = chunks.clone().count() as u8;
        let [seq_low, seq_high] = self.game_seq.to_le_bytes();
        self.game_seq += 1;
        let fragment = |(index, chunk): (usize, &[u8])| {
            let tail: &[u8] = if index == 0 { &[0, total] } else { &[index as u8] };
            let [low, high] = (0xA000 | (5 + tail.len() + chunk.len()) as u16).to_le_bytes();
            [&[0x32, low, high, seq_low, seq_high], tail, chunk].concat()
        };
        chunks.enumerate().map(fragment).collect()
    }

    pub(super) fn connect_request(&mut self, password: &str) -> Vec<u8> {
        let mut body = Ipv4Addr::LOCALHOST.octets().to_vec();
        body.extend(self.nonce.to_le_bytes());
        body.extend(Text::encode(password).unwrap_or_default());
        body.extend([0, 0]);
        self.control_seq = 0;
        self.control_message(Kind::CONNECT, &body)
    }

    /// Receives until `done`, at most for `max`. Returns the result of `done`.
    pub(super) fn receive_until(&mut self, max: Duration, done: impl Fn(&Self) -> bool) -> bool {
        let end = self.clock.now() + max;
        loop {
            if done(self) {
                return true;
            }
            let left = end.since(self.clock.now());
            if left.is_zero() {
                return false;
            }
            let mut buffer = [0; 2048];
            drop(self.socket.set_read_timeout(Some(left)));
            match self.socket.recv_from(&mut buffer) {
                Ok((len, SocketAddr::V4(from))) if from == self.server => {
                    self.handle_datagram(buffer.get_mut(..len).unwrap_or_default());
                }
                Ok(_) => {}
                // No datagram arrived in time. A process that was suspended gets `Interrupted`.
                Err(error) if matches!(error.kind(), WouldBlock | TimedOut | Interrupted) => {}
                Err(_) => return false,
            }
        }
    }

    fn handle_datagram(&mut self, bytes: &mut [u8]) {
        if bytes.first() == Some(&b'\\') {
            return self.store(bytes);
        }
        cipher::decrypt(bytes);
        let datagram = match Datagram::parse(bytes, Some(Role::Host)) {
            Ok(datagram) => datagram,
            Err(error) => {
                self.parse_error = Some(format!("{error} in {}", hex(bytes)));
                return;
            }
        };
        let mut acks = Vec::new();
        let mut at = 2;
        for message in datagram.messages() {
            let end = at + message.wire_len();
            self.store(bytes.get(at..end).unwrap_or_default());
            at = end;
            if let Message::Control(control) = message
                && let Body::ConnectReply { assigned } = control.body
            {
                self.id = assigned.0;
                self.has_left = false;
            }
            if let Some(id) = message.id() {
                let flags = u8::from(id.fragment.is_some()) | u8::from(message.kind() != Kind::DATA) << 1;
                let [low, high] = id.seq.0.to_le_bytes();
                acks.push([&[0x01, low, high, flags][..], id.fragment.as_slice()].concat());
            }
        }
        self.datagrams_received += 1;
        if self.sends_acks && !acks.is_empty() {
            self.send(&acks);
        }
    }

    fn store(&mut self, bytes: &[u8]) {
        let (datagram, at) = (self.datagrams_received, self.clock.now());
        self.received.push(ReceivedMessage { datagram, at, bytes: bytes.to_vec() });
    }

    /// Returns whether a reliable game message was acknowledged.
    pub(super) fn is_acknowledged(&self, order: &[u8]) -> bool {
        order.get(3..5).is_some_and(|seq| self.has_message(&[&[0x01], seq, &[0]].concat()))
    }

    /// Returns whether a message with these first bytes was received.
    pub(super) fn has_message(&self, start: &[u8]) -> bool {
        self.received.iter().any(|received| received.bytes.starts_with(start))
    }

    /// Returns all game payloads in the order of arrival, unreliable ones included.
    ///
    /// Duplicates of a reliable payload are left out.
    pub(super) fn payloads(&self) -> Vec<&[u8]> {
        let mut seen = Vec::new();
        let is_first_copy =
            |received: &&ReceivedMessage| match received.message().and_then(|message| message.id()) {
                Some(id) if seen.contains(&id) => false,
                Some(id) => {
                    seen.push(id);
                    true
                }
                None => true,
            };
        self.received.iter().filter(is_first_copy).filter_map(ReceivedMessage::payload).collect()
    }

    pub(super) fn has_payload(&self, start: &[u8]) -> bool {
        self.received.iter().filter_map(ReceivedMessage::payload).any(|payload| payload.starts_with(start))
    }

    /// Connects to the server. Returns whether that worked.
    pub(super) fn connect(&mut self, password: &str) -> bool {
        let request = self.connect_request(password);
        for _ in 0..4 {
            self.send(std::slice::from_ref(&request));
            if self.receive_until(RETRANSMIT_INTERVAL, |it| it.id != 0xFF || it.refusal().is_some()) {
                break;
            }
        }
        self.id != 0xFF
    }

    /// Returns the reason of a refusal, if there was one.
    pub(super) fn refusal(&self) -> Option<BootReason> {
        self.received.iter().find_map(|received| {
            let Message::Control(Control { body: Body::Boot { reason, .. }, .. }) = received.message()?
            else {
                return None;
            };
            Some(reason)
        })
    }

    /// Sends its name.
    pub(super) fn send_identity(&mut self) {
        let identity = self.identity_body();
        let message = self.control_message(Kind::IDENTITY, &identity);
        self.send(&[message]);
    }

    /// Returns the body of its identity message.
    pub(super) fn identity_body(&self) -> Vec<u8> {
        let name = Text::encode(&self.name).unwrap_or_default();
        [&[self.id, 127, 0, 0, 1], name.as_slice(), &[0, 0]].concat()
    }

    /// Answers a round of the file check when it is requested. Returns whether it was.
    pub(super) fn answer_round(&mut self, round: u8) -> bool {
        let asked = self.receive_until(ANSWER_TIMEOUT, |it| it.has_payload(&[0x20, round]));
        let reply = files::answer(round).unwrap_or_default();
        if reply.len() > 400 {
            let mut fragments = self.fragments(&reply);
            let last = fragments.split_off(1);
            self.send(&fragments);
            self.send(&last);
        } else {
            let reply = self.reliable_message(&reply);
            self.send(&[reply]);
        }
        asked
    }

    /// Joins the game. Returns whether that worked.
    pub(super) fn join(&mut self, password: &str) -> bool {
        if !self.connect(password) {
            return false;
        }
        self.send_identity();
        FILE_CHECK_ROUNDS.iter().all(|round| self.answer_round(*round)) && self.enter_game()
    }

    /// Reports the loaded mission and waits until the client is in the game.
    pub(super) fn enter_game(&mut self) -> bool {
        if !self.receive_until(ANSWER_TIMEOUT, |it| it.has_payload(&[0x01])) {
            return false;
        }
        let settings = self.payloads().into_iter().find(|payload| payload.first() == Some(&0x00));
        self.slot = settings.and_then(|settings| settings.get(6)).copied().unwrap_or(0);
        let ready = self.reliable_message(&[0x2A, 0x20]);
        self.send(&[ready]);
        self.receive_until(ENTER_TIMEOUT, |it| {
            it.payloads().iter().any(|event| event.first() == Some(&0x17) && event.last() == Some(&it.id))
        })
    }

    /// Sends a disconnect, once. A dropped client does so too: it must not disturb the next probe.
    pub(super) fn leave(&mut self) {
        if std::mem::replace(&mut self.has_left, true) {
            return;
        }
        let notice = self.control_message(Kind::DISCONNECT, &[self.id, 127, 0, 0, 1]);
        self.send(&[notice]);
    }
}

impl Drop for ProbeClient {
    fn drop(&mut self) {
        self.leave();
    }
}

/// Returns bytes as hex, shortened for people.
pub(super) fn hex(bytes: &[u8]) -> String {
    let text: Vec<String> = bytes.iter().take(48).map(|byte| format!("{byte:02X}")).collect();
    let more = if bytes.len() > 48 { format!(" … {} bytes", bytes.len()) } else { String::new() };
    text.join(" ") + &more
}

/// The rounds of the file check.
pub(super) const FILE_CHECK_ROUNDS: [u8; 5] = [0, 1, 2, 3, 0xFF];
/// Longest wait for an answer, much longer than normal.
pub(super) const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// Wait for messages that should not come.
pub(super) const ABSENCE_WAIT: Duration = Duration::from_millis(500);
const RETRANSMIT_INTERVAL: Duration = Duration::from_millis(1500);
/// Longest wait to enter the game. Servers may wait until everyone has a newcomer's name.
const ENTER_TIMEOUT: Duration = Duration::from_secs(8);
