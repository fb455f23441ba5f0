//! Datagrams one by one, with what the standard library has.

use std::io::{self, ErrorKind};
use std::net::{SocketAddr, UdpSocket};

use super::batch::Slots;
use super::{Batch, Head, ROOM};

/// Fills slots with what has arrived, from anybody or from whom the socket is connected to. Returns how many, and how
/// many it could have been.
pub(super) fn receive(socket: &UdpSocket, slots: Slots<'_>) -> io::Result<(usize, usize)> {
    let Slots { heads, room, arrived } = slots;
    let asked = heads.len();
    arrived.fill(None);
    for (got, (head, room)) in heads.iter_mut().zip(room).enumerate() {
        match socket.recv_from(room) {
            Ok((len, SocketAddr::V4(remote))) => {
                // A datagram that fills the room may have been longer; none that we know is as long.
                *head = Head { owner: 0, remote, local: None, len, cut: len == ROOM };
            }
            Ok((_, SocketAddr::V6(_))) => return Err(ErrorKind::InvalidData.into()),
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok((got, asked)),
            // What was received so far must not be lost; a lasting error shows again at the next look.
            Err(_) if got > 0 => return Ok((got, got)),
            Err(error) if error.kind() == ErrorKind::Interrupted => return Ok((0, 0)),
            Err(error) => return Err(error),
        }
    }
    Ok((asked, asked))
}

/// Sends the datagrams of the first slots, where the socket is connected to or else where they say. Returns how many.
pub(super) fn send(
    socket: &UdpSocket,
    is_connected: bool,
    batch: &Batch,
    slots: &[usize],
) -> io::Result<usize> {
    for (sent, slot) in slots.iter().enumerate() {
        let (head, bytes) = batch.datagram(*slot);
        let done = if is_connected { socket.send(bytes) } else { socket.send_to(bytes, head.remote) };
        match done {
            Ok(_) => {}
            Err(_) if sent > 0 => return Ok(sent),
            Err(error) => return Err(error),
        }
    }
    Ok(slots.len())
}
