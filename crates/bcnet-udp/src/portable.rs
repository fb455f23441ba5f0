//! Datagrams one by one.

use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};

use mio::net::UdpSocket;

use super::batch::FreeSlots;
use super::{BUFFER_SIZE, Batch, DatagramInfo};

/// Fills slots with what has arrived, as `read` receives each. Returns how many, and how many it could have been.
pub(super) fn receive(
    slots: FreeSlots<'_>,
    read: impl Fn(&mut [u8; BUFFER_SIZE]) -> io::Result<DatagramInfo>,
) -> io::Result<(usize, usize)> {
    let FreeSlots { infos: heads, buffers: room, timestamps: arrived } = slots;
    let asked = heads.len();
    arrived.fill(None);
    for (got, (head, room)) in heads.iter_mut().zip(room).enumerate() {
        match read(room) {
            Ok(read) => *head = read,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok((got, asked)),
            // What was received so far must not be lost; a lasting error shows again at the next look.
            Err(_) if got > 0 => return Ok((got, got)),
            Err(error) if error.kind() == ErrorKind::Interrupted => return Ok((0, 0)),
            Err(error) => return Err(error),
        }
    }
    Ok((asked, asked))
}

/// Sends the datagrams of the first slots, as `write` sends each. Returns how many.
pub(super) fn send(
    batch: &Batch,
    slots: &[usize],
    write: impl Fn(&DatagramInfo, &[u8]) -> io::Result<()>,
) -> io::Result<usize> {
    for (sent, slot) in slots.iter().enumerate() {
        let (head, bytes) = batch.datagram(*slot);
        match write(head, bytes) {
            Ok(()) => {}
            Err(_) if sent > 0 => return Ok(sent),
            Err(error) => return Err(error),
        }
    }
    Ok(slots.len())
}

/// Receives a datagram from anybody or from whom the socket is connected to, with what the standard library has.
pub(super) fn read(socket: &UdpSocket, room: &mut [u8; BUFFER_SIZE]) -> io::Result<DatagramInfo> {
    let (len, remote) = match socket.recv_from(room) {
        Ok((len, SocketAddr::V4(remote))) => (len, remote),
        Ok((_, SocketAddr::V6(_))) => return Err(ErrorKind::InvalidData.into()),
        // Nobody knows whose it was.
        Err(error) if is_message_too_long(&error) => {
            (BUFFER_SIZE, SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0))
        }
        Err(error) => return Err(error),
    };
    // A datagram that fills the room may have been longer; none that we know is as long.
    Ok(DatagramInfo { owner: 0, remote, local: None, len, truncated: len == BUFFER_SIZE })
}

/// Returns whether a datagram had no room, where that is an error.
fn is_message_too_long(error: &io::Error) -> bool {
    cfg!(windows) && error.raw_os_error() == Some(WSAEMSGSIZE)
}

const WSAEMSGSIZE: i32 = 10_040;

/// Sends a datagram where the socket is connected to, or else where its head says.
pub(super) fn write(
    socket: &UdpSocket,
    is_connected: bool,
    head: &DatagramInfo,
    bytes: &[u8],
) -> io::Result<()> {
    if is_connected { socket.send(bytes) } else { socket.send_to(bytes, head.remote.into()) }.map(drop)
}
