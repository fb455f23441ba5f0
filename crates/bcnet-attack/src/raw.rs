//! A client that says exactly what it is told, byte for byte, at its own address.
//!
//! It may want to play or not. If it is strict, it takes a datagram with text that no game would write for a broken one, and
//! does as if it had never come.

use std::collections::HashSet;
use std::io::ErrorKind::{TimedOut, WouldBlock};
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::time::Duration;

use bcnet_session::game::{self, Opcode};
use bcnet_transport::wire::{Body, Channel, Control, Datagram, Message, Role, Text};
use bcnet_transport::{Time, cipher};

use crate::Setting;
use crate::clock::Clock;
use crate::wire;

/// How a client behaves.
#[derive(Debug, Clone)]
pub(crate) struct Manner {
    pub(crate) from: Ipv4Addr,
    /// What it calls itself, in UTF-16 as the wire has it; nothing if it keeps that to itself.
    pub(crate) name: Option<Vec<u8>>,
    /// Whether it answers about its files, and enters the game.
    pub(crate) plays: bool,
    pub(crate) is_strict: bool,
}

/// A client and its socket.
pub(crate) struct RawClient {
    pub(crate) id: Option<u8>,
    /// Chat that it has heard.
    pub(crate) lines: Vec<Vec<u8>>,
    /// Datagrams that it refused.
    pub(crate) refused: u64,
    pub(crate) has_entered: bool,
    manner: Manner,
    socket: UdpSocket,
    clock: Clock,
    since: Time,
    is_booted: bool,
    control: u16,
    game: u16,
    heard: HashSet<u16>,
}

impl RawClient {
    /// Asks to be let in.
    pub(crate) fn connect(
        setting: &Setting,
        server: SocketAddrV4,
        nonce: u32,
        manner: Manner,
    ) -> anyhow::Result<Self> {
        setting.arena.check(server)?;
        let socket = UdpSocket::bind((manner.from, 0))?;
        socket.connect(server)?;
        let client = Self {
            id: None,
            lines: Vec::new(),
            refused: 0,
            has_entered: false,
            manner,
            socket,
            clock: setting.clock,
            since: setting.clock.now(),
            is_booted: false,
            control: 1,
            game: 0,
            heard: HashSet::new(),
        };
        client.say_raw(&wire::connect(nonce, ""));
        Ok(client)
    }

    /// Does what it does when something arrives, until `end`.
    pub(crate) fn listen(&mut self, end: Time) {
        let mut buffer = [0; 2048];
        loop {
            let left = end.since(self.clock.now());
            if left.is_zero() || self.socket.set_read_timeout(Some(left)).is_err() {
                return;
            }
            match self.socket.recv(&mut buffer) {
                Ok(len) => self.take(buffer.get_mut(..len).unwrap_or_default()),
                Err(error) if matches!(error.kind(), TimedOut | WouldBlock) => {}
                Err(_) => self.is_booted = true,
            }
        }
    }

    fn take(&mut self, bytes: &mut [u8]) {
        cipher::decrypt(bytes);
        let Ok(datagram) = Datagram::parse(bytes, Some(Role::Host)) else { return };
        if self.manner.is_strict && !datagram.messages().all(|message| is_clean(&message)) {
            self.refused += 1;
            return;
        }
        // Whoever is let in says that it has heard so before anything else.
        let is_let_in = self.id.is_none() && self.note_id(&datagram);
        let acks: Vec<_> = datagram.messages().filter_map(|message| message.id()).collect();
        let acks: Vec<_> =
            acks.iter().map(|id| wire::ack(id.seq.0, id.channel == Channel::Control)).collect();
        if !acks.is_empty() {
            self.say(&acks);
        }
        if is_let_in {
            self.tell_name();
        }
        for message in datagram.messages() {
            match message {
                Message::Control(control) => self.is_booted |= matches!(control.body, Body::Boot { .. }),
                Message::Data(data) => {
                    let is_new = data.delivery.seq().is_none_or(|seq| self.heard.insert(seq.0));
                    if is_new && data.delivery.part().is_none() {
                        self.play(data.payload);
                    }
                }
                Message::Ack(_) | Message::Keepalive => {}
            }
        }
    }

    /// Takes the id that it is given. Returns whether it was.
    fn note_id(&mut self, datagram: &Datagram<'_>) -> bool {
        self.id = datagram.messages().find_map(|message| match message {
            Message::Control(Control { body: Body::ConnectReply { assigned }, .. }) => Some(assigned.0),
            _ => None,
        });
        self.id.is_some()
    }

    fn tell_name(&mut self) {
        if let (Some(id), Some(name)) = (self.id, self.manner.name.clone()) {
            let message = wire::identity(self.control, id, &name);
            self.control += 1;
            self.say(&[message]);
        }
    }

    fn play(&mut self, payload: &[u8]) {
        match (Opcode::of(payload), payload) {
            (Some(Opcode::CHAT), _) => self.lines.push(chat_text(payload).to_vec()),
            (Some(Opcode::CHECKSUM_REQUEST), [_, round, ..]) if self.manner.plays => {
                self.order(&wire::files(*round))
            }
            (Some(Opcode::GAME_INIT), _) if self.manner.plays => self.order(&wire::READY),
            (Some(Opcode::PLAYER_LIST_EVENT), [.., peer]) if Some(*peer) == self.id => {
                self.has_entered = true
            }
            _ => {}
        }
    }

    /// Says something reliably; it is said once, so it may get lost.
    pub(crate) fn order(&mut self, payload: &[u8]) {
        let message = wire::order(self.game, payload);
        self.game += 1;
        self.say(&[message]);
    }

    pub(crate) fn chat(&mut self, text: &[u8]) {
        let id = self.id.unwrap_or_default();
        let len = (text.len() as u16).to_le_bytes();
        self.order(&[&[0x2C, id, 0, 0, 0], &len[..], text].concat());
    }

    fn say(&self, messages: &[Vec<u8>]) {
        if let Some(id) = self.id {
            self.say_raw(&wire::datagram(id, messages));
        }
    }

    pub(crate) fn say_raw(&self, datagram: &[u8]) {
        // The network may complain of something said earlier.
        drop(self.socket.send(datagram));
    }

    pub(crate) fn leave(&self) {
        if let Some(id) = self.id {
            self.say(&[wire::goodbye(self.control, id)]);
        }
    }

    /// Returns whether it was thrown out, or never got in.
    pub(crate) fn is_gone(&self) -> bool {
        self.is_booted || (self.id.is_none() && self.clock.now().since(self.since) > PATIENCE)
    }
}

/// Returns whether a game would write this text: UTF-16 that is whole, and nothing that moves a cursor.
fn is_clean(message: &Message<'_>) -> bool {
    match message {
        Message::Control(control) => match control.body {
            Body::Identity { name, .. } => is_clean_name(&name),
            Body::ConnectRequest { .. }
            | Body::ConnectReply { .. }
            | Body::Boot { .. }
            | Body::Disconnect { .. } => true,
        },
        Message::Data(data) => {
            Opcode::of(data.payload) != Some(Opcode::CHAT)
                || !chat_text(data.payload).iter().any(u8::is_ascii_control)
        }
        Message::Ack(_) | Message::Keepalive => true,
    }
}

fn is_clean_name(name: &Text<'_>) -> bool {
    let units = name.as_bytes().as_chunks().0.iter().map(|unit| u16::from_le_bytes(*unit));
    char::decode_utf16(units).all(|letter| letter.is_ok_and(|letter| !is_hostile(letter)))
}

/// Returns whether a letter does more than show itself: control characters, and marks that turn or hide text.
pub(crate) fn is_hostile(letter: char) -> bool {
    let hides = matches!(letter, '\u{200B}'..='\u{200F}' | '\u{202A}'..='\u{202E}' | '\u{2066}'..='\u{2069}' | '\u{FEFF}');
    letter.is_control() || hides
}

/// Returns what a chat message says.
fn chat_text(payload: &[u8]) -> &[u8] {
    match game::Message::parse(payload) {
        Ok(game::Message::Chat(chat)) => chat.text.0,
        _ => &[],
    }
}

/// How long it waits for an id.
const PATIENCE: Duration = Duration::from_secs(2);
