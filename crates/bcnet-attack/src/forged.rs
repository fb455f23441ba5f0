//! Datagrams that an attacker sends with forged source addresses.
//!
//! Most forgers receive no answers, so they cannot use a client: they know or guess all content in advance.
//! The codecs of the transport and of the game write the bytes.

use std::net::Ipv4Addr;

use bcnet_session::game::{
    self, Chat, ChecksumResponse, DirectoryHashes, FILE_CHECK_ROUNDS, NewPlayerInGame, Opcode, Text16,
};
use bcnet_transport::cipher;
use bcnet_transport::wire::{
    Ack, Body, Channel, Control, Data, Datagram, Delivery, Message, MessageId, PeerId, Role, Seq, Text,
    Writer,
};

/// Returns an encrypted datagram with these messages.
pub(crate) fn datagram(sender: PeerId, messages: &[Message<'_>]) -> Vec<u8> {
    let mut buffer = [0; 2048];
    let mut writer = Writer::with_limit(&mut buffer, sender, 2048);
    for message in messages {
        let is_written = writer.push(message);
        debug_assert!(is_written, "{message} does not fit");
    }
    let mut datagram = writer.finish().unwrap_or_default().to_vec();
    cipher::encrypt(&mut datagram);
    datagram
}

/// Returns a connect request: 17 bytes without a password.
pub(crate) fn connect(nonce: u32, password: &str) -> Vec<u8> {
    let password = Text::encode(password).unwrap_or_default();
    let password = Text::new(&password).unwrap_or_default();
    let request = Body::ConnectRequest { address: OWN_ADDRESS, nonce, password };
    datagram(PeerId::UNASSIGNED, &[control(0, request)])
}

fn control(seq: u16, body: Body<'_>) -> Message<'_> {
    Message::Control(Control::new(Seq(seq), body))
}

/// Returns a reliable game message.
pub(crate) fn reliable(seq: u16, payload: &[u8]) -> Message<'_> {
    Message::Data(Data { delivery: Delivery::Reliable(Seq(seq)), urgent: false, payload })
}

/// Returns the ACK of a whole message.
pub(crate) fn ack(channel: Channel, seq: u16) -> Message<'static> {
    Message::Ack(Ack::new(MessageId { channel, seq: Seq(seq), fragment: None }))
}

/// Returns a message with the name of a player.
pub(crate) fn identity(seq: u16, peer: PeerId, name: Text<'_>) -> Message<'_> {
    control(seq, Body::Identity { peer, address: OWN_ADDRESS, name })
}

/// Returns a disconnect message.
pub(crate) fn disconnect(seq: u16, peer: PeerId) -> Message<'static> {
    control(seq, Body::Disconnect { peer, address: OWN_ADDRESS })
}

/// Returns a disconnect message that expects no ACK, so that its sequence number does not count.
pub(crate) fn unreliable_disconnect(peer: PeerId) -> Message<'static> {
    let body = Body::Disconnect { peer, address: OWN_ADDRESS };
    Message::Control(Control { reliable: false, ..Control::new(Seq(0), body) })
}

/// Returns a chat message as the payload of a game message.
pub(crate) fn chat(sender: PeerId, text: &[u8]) -> Vec<u8> {
    payload(&game::Message::Chat(Chat { sender: sender.0.into(), text: Text16(text) }))
}

/// Returns the answer to a round of the file check, from an installation without files.
pub(crate) fn checksum_response(round: u8) -> Vec<u8> {
    let version = (round == 0).then_some(0);
    payload(&game::Message::ChecksumResponse(ChecksumResponse {
        round,
        version,
        directory: 0,
        tree: vec![DirectoryHashes { files: Vec::new(), directories: Vec::new() }],
    }))
}

fn payload(message: &game::Message<'_>) -> Vec<u8> {
    let mut payload = Vec::new();
    message.write(&mut payload);
    payload
}

/// Returns an opcode that the game does not use: the server relays such messages unchanged.
pub(crate) fn unknown_opcode() -> Opcode {
    (0..=u8::MAX).rev().map(Opcode).find(|opcode| opcode.name().is_none()).unwrap_or(Opcode::CHAT)
}

/// Returns a datagram that acknowledges `received`, and the peer id that sends it.
///
/// The id is that of a connect reply in `received`, or else `known`.
pub(crate) fn acks_for(received: &[u8], known: Option<PeerId>) -> Option<(PeerId, Vec<u8>)> {
    let mut plain = received.to_vec();
    cipher::decrypt(&mut plain);
    let received = Datagram::parse(&plain, Some(Role::Host)).ok()?;
    let id = received.messages().find_map(assigned_by).or(known)?;
    let acks = received.messages().filter_map(|message| message.id()).map(|id| Message::Ack(Ack::new(id)));
    Some((id, datagram(id, &acks.collect::<Vec<_>>())))
}

/// Returns the id that a host assigns in this datagram.
pub(crate) fn assigned_id(received: &[u8]) -> Option<PeerId> {
    let mut plain = received.to_vec();
    cipher::decrypt(&mut plain);
    Datagram::parse(&plain, Some(Role::Host)).ok()?.messages().find_map(assigned_by)
}

fn assigned_by(message: Message<'_>) -> Option<PeerId> {
    match message {
        Message::Control(Control { body: Body::ConnectReply { assigned }, .. }) => Some(assigned),
        Message::Control(_) | Message::Ack(_) | Message::Keepalive | Message::Data(_) => None,
    }
}

/// Returns all datagrams of a client with this id after its connect request, until it is in the game.
pub(crate) fn blind_join(id: PeerId, name: &str) -> Vec<Vec<u8>> {
    let name = Text::encode(name).unwrap_or_default();
    let name = Text::new(&name).unwrap_or_default();
    let mut datagrams =
        vec![datagram(id, &[ack(Channel::Control, 0), ack(Channel::Game, 0), identity(1, id, name)])];
    for (seq, round) in (0..).zip(FILE_CHECK_ROUNDS) {
        let files = checksum_response(round.index);
        let messages = [ack(Channel::Game, seq), ack(Channel::Game, seq + 1), reliable(seq, &files)];
        datagrams.push(datagram(id, &messages));
    }
    let ready = payload(&game::Message::NewPlayerInGame(NewPlayerInGame { flags: Default::default() }));
    datagrams.push(datagram(id, &[reliable(FILE_CHECK_ROUNDS.len() as u16, &ready)]));
    datagrams.push(stay_connected(id, 0));
    datagrams
}

/// Returns a datagram that keeps a forged player connected, although it receives nothing.
///
/// It acknowledges the messages that the server probably sent.
pub(crate) fn stay_connected(id: PeerId, first: u16) -> Vec<u8> {
    let both = |seq| [ack(Channel::Control, seq), ack(Channel::Game, seq)];
    let acks: Vec<_> = (first..first + 40).flat_map(both).collect();
    datagram(id, &acks)
}

/// Returns ACKs for every sequence number of game messages.
pub(crate) fn all_acks(id: PeerId) -> Vec<Vec<u8>> {
    let numbers: Vec<u16> = (0..=u16::MAX).collect();
    let acks =
        |numbers: &[u16]| -> Vec<_> { numbers.iter().map(|number| ack(Channel::Game, *number)).collect() };
    numbers.chunks(ACKS_PER_DATAGRAM).map(|numbers| datagram(id, &acks(numbers))).collect()
}

/// The IPv4 address in forged messages that have an address field.
const OWN_ADDRESS: Ipv4Addr = Ipv4Addr::new(192, 168, 0, 2);
/// Number of ACKs that fit into a datagram.
pub(crate) const ACKS_PER_DATAGRAM: usize = 127;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forged_datagrams_are_well_formed() {
        let id = PeerId(3);
        let forged = [
            vec![connect(7, ""), connect(7, "secret"), datagram(id, &[disconnect(2, id)])],
            blind_join(id, "Q"),
            all_acks(id),
        ];
        for mut bytes in forged.concat() {
            cipher::decrypt(&mut bytes);
            let datagram = Datagram::parse(&bytes, Some(Role::Client)).expect("well formed");
            assert!(datagram.messages().count() > 0);
            for message in datagram.messages() {
                if let Message::Data(data) = message {
                    let message = game::Message::parse(data.payload).expect("well formed");
                    assert!(!matches!(message, game::Message::Unknown { .. }), "{message:?}");
                }
            }
        }
        assert_eq!(connect(7, "").len(), 17);
        assert!(unknown_opcode().name().is_none());
    }
}
