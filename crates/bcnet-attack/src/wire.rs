//! What a forger says, byte by byte: it hears no answers, so everything in it is known beforehand or guessed.

use std::net::Ipv4Addr;

use bcnet_transport::cipher;
use bcnet_transport::wire::{Kind, PeerId, Text};

/// Returns a datagram of these messages, enciphered.
pub(crate) fn datagram(sender: u8, messages: &[Vec<u8>]) -> Vec<u8> {
    let mut datagram = vec![sender, messages.len() as u8];
    datagram.extend(messages.iter().flatten());
    cipher::encrypt(&mut datagram);
    datagram
}

/// Returns a datagram that asks to be let in: 17 bytes without a password.
pub(crate) fn connect(nonce: u32, password: &str) -> Vec<u8> {
    let mut body = Ipv4Addr::new(192, 168, 0, 2).octets().to_vec();
    body.extend(nonce.to_le_bytes());
    body.extend(Text::encode(password).unwrap_or_default());
    body.extend([0, 0]);
    datagram(PeerId::UNASSIGNED.0, &[control(0, Kind::CONNECT, &body)])
}

/// Returns a message of the control channel.
pub(crate) fn control(seq: u16, kind: Kind, body: &[u8]) -> Vec<u8> {
    let [low, high] = (0xC000 | (5 + body.len()) as u16).to_le_bytes();
    let [seq_low, seq_high] = seq.to_le_bytes();
    [&[kind.0, low, high, seq_low, seq_high], body].concat()
}

/// Returns a reliable game message.
pub(crate) fn order(seq: u16, payload: &[u8]) -> Vec<u8> {
    let [low, high] = (0x8000 | (5 + payload.len()) as u16).to_le_bytes();
    let [seq_low, seq_high] = seq.to_le_bytes();
    [&[Kind::DATA.0, low, high, seq_low, seq_high], payload].concat()
}

/// Returns the ACK of a whole message.
pub(crate) fn ack(seq: u16, is_control: bool) -> Vec<u8> {
    let [low, high] = seq.to_le_bytes();
    vec![Kind::ACK.0, low, high, u8::from(is_control) << 1]
}

/// Returns the name of a player, given as UTF-16 in bytes.
pub(crate) fn identity(seq: u16, id: u8, utf16: &[u8]) -> Vec<u8> {
    let body = [&[id, 192, 168, 0, 2], utf16, &[0, 0]].concat();
    control(seq, Kind::IDENTITY, &body)
}

/// Returns a goodbye.
pub(crate) fn goodbye(seq: u16, id: u8) -> Vec<u8> {
    control(seq, Kind::DISCONNECT, &[id, 192, 168, 0, 2])
}

/// Returns the answer to a round of the file check, of an installation without any files.
pub(crate) fn files(round: u8) -> Vec<u8> {
    let version: &[u8] = if round == 0 { &[1, 2, 3, 4] } else { &[] };
    [&[0x21, round], version, &[5, 6, 7, 8, 0, 0, 0]].concat()
}

/// Returns everything that a client says between its connect request and the game, as datagrams, if it has this id.
pub(crate) fn blind_join(id: u8, name: &str) -> Vec<Vec<u8>> {
    let name = Text::encode(name).unwrap_or_default();
    let mut datagrams = vec![datagram(id, &[ack(0, true), ack(0, false), identity(1, id, &name)])];
    for (seq, round) in (0..).zip(ROUNDS) {
        let acks = [ack(seq, false), ack(seq + 1, false)];
        datagrams.push(datagram(id, &[acks.as_slice(), &[order(seq, &files(round))]].concat()));
    }
    datagrams.push(datagram(id, &[order(ROUNDS.len() as u16, &READY)]));
    datagrams.push(hold(id, 0));
    datagrams
}

/// Returns a datagram that keeps a player who hears nothing in the game: ACKs for what it was most likely told.
pub(crate) fn hold(id: u8, first: u16) -> Vec<u8> {
    let acks: Vec<_> = (first..first + 40).flat_map(|seq| [ack(seq, true), ack(seq, false)]).collect();
    datagram(id, &acks)
}

/// Returns ACKs for every number that a game message can have.
pub(crate) fn all_acks(id: u8) -> Vec<Vec<u8>> {
    let numbers: Vec<u16> = (0..=u16::MAX).collect();
    let acks = |numbers: &[u16]| numbers.iter().map(|number| ack(*number, false)).collect::<Vec<_>>();
    numbers.chunks(ACKS).map(|numbers| datagram(id, &acks(numbers))).collect()
}

/// How many fit a datagram.
const ACKS: usize = 127;
/// That a mission is loaded.
pub(crate) const READY: [u8; 2] = [0x2A, 0x20];
/// The rounds of the file check.
pub(crate) const ROUNDS: [u8; 5] = [0, 1, 2, 3, 0xFF];

#[cfg(test)]
mod tests {
    use bcnet_transport::wire::{Datagram, Role};

    use super::*;

    #[test]
    fn everything_that_a_forger_says_is_well_formed() {
        let said =
            [vec![connect(7, ""), connect(7, "secret"), datagram(3, &[goodbye(2, 3)])], blind_join(3, "Q")];
        for mut bytes in said.concat() {
            cipher::decrypt(&mut bytes);
            let datagram = Datagram::parse(&bytes, Some(Role::Client)).expect("well formed");
            assert!(datagram.messages().count() > 0);
        }
        assert_eq!(connect(7, "").len(), 17);
    }
}
