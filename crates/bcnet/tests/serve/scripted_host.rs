//! A host with scripted answers, for one client.

use std::net::UdpSocket;
use std::time::{Duration, Instant};

use bcnet_session::game::{
    self, ChecksumRequest, EventDetail, EventNumber, GameInit, Message, ObjectId, Opcode, RequestFlags,
    Settings, SettingsFlags, Text16,
};
use bcnet_transport::wire::{BootReason, PeerId};
use bcnet_transport::{Config, DeliveryMode, Endpoint, Engine, Event, Time};

use crate::server::TEST_TIMEOUT;

/// Returns the answers that lead a client into the game with one file check.
pub(crate) fn admission_messages(peer: PeerId, received: &[u8]) -> Vec<Message<'static>> {
    match Opcode::of(received) {
        None => vec![Message::ChecksumRequest(ChecksumRequest {
            round: 0,
            directory: Text16(b"scripts/"),
            filter: Text16(b"App.pyc"),
            flags: RequestFlags::default(),
        })],
        Some(Opcode::CHECKSUM_RESPONSE) => {
            let (flags, mission) = (SettingsFlags::default(), Text16(b"Mission1"));
            let settings = Settings { time: 0.0, flags, slot: 0, mission, correction_data: &[] };
            vec![Message::Settings(settings), Message::GameInit(GameInit {})]
        }
        Some(Opcode::NEW_PLAYER_IN_GAME) => vec![Message::PlayerListEvent(game::GameEvent {
            event: EventNumber::NEW_PLAYER_IN_GAME,
            source: ObjectId::NONE,
            related: ObjectId::NONE,
            detail: EventDetail::Player(peer.0),
        })],
        Some(_) => Vec::new(),
    }
}

/// Admits one client and sends the messages of `answer` until the client leaves.
///
/// `answer` is called once after the admission, with an empty payload, and for each received message. A
/// client that sends chat is kicked.
pub(crate) fn run_scripted_host(socket: &UdpSocket, answer: impl Fn(PeerId, &[u8]) -> Vec<Message<'static>>) {
    let mut host = Endpoint::host(Config::default());
    #[expect(clippy::disallowed_methods, reason = "real sockets have real time")]
    let started = Instant::now();
    let (mut buffer, mut payload, mut left) = ([0; 2048], Vec::new(), false);
    socket.set_read_timeout(Some(Duration::from_millis(50))).expect("a timeout");
    while !left && started.elapsed() < TEST_TIMEOUT {
        let now = Time::ZERO + started.elapsed();
        if let Ok((len, std::net::SocketAddr::V4(from))) = socket.recv_from(&mut buffer) {
            host.handle_datagram(from, &mut buffer[..len], now);
        }
        host.handle_timeout(now);
        while let Some(event) = host.poll_event(&mut payload) {
            match event {
                Event::Request { from, .. } => drop(host.admit(from, now)),
                Event::Received { peer, .. } if Opcode::of(&payload) == Some(Opcode::CHAT) => {
                    host.boot(peer, BootReason::KICKED, now).expect("connected");
                }
                Event::Joined { peer } | Event::Received { peer, .. } => {
                    for message in answer(peer, &payload) {
                        let mut bytes = Vec::new();
                        message.write(&mut bytes);
                        host.send(peer, &bytes, DeliveryMode::Reliable, now).expect("queue has capacity");
                    }
                }
                Event::Left { .. } => left = true,
                _ => {}
            }
        }
        while let Some(transmit) = host.poll_transmit(&mut buffer, now) {
            socket.send_to(&buffer[..transmit.len], transmit.to).expect("sent");
        }
    }
    assert!(left, "the client did not leave");
}
