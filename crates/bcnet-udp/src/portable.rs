//! Receives and sends datagrams one by one.

use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};

use mio::net::UdpSocket;

use super::batch::FreeSlots;
use super::{BUFFER_SIZE, Batch, DatagramInfo};

/// Fills slots with received datagrams; `read` receives each.
///
/// Returns how many datagrams it received and how many it requested.
pub(super) fn receive(
    slots: FreeSlots<'_>,
    read: impl Fn(&mut [u8; BUFFER_SIZE]) -> io::Result<DatagramInfo>,
) -> io::Result<(usize, usize)> {
    let FreeSlots { infos, buffers, timestamps } = slots;
    let requested = infos.len();
    timestamps.fill(None);
    for (received, (info, buffer)) in infos.iter_mut().zip(buffers).enumerate() {
        match read(buffer) {
            Ok(read) => *info = read,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok((received, requested)),
            // The received datagrams must not be lost; a lasting error appears again in the next call.
            Err(_) if received > 0 => return Ok((received, received)),
            Err(error) if error.kind() == ErrorKind::Interrupted => return Ok((0, 0)),
            Err(error) => return Err(error),
        }
    }
    Ok((requested, requested))
}

/// Sends the datagrams of the first slots and returns how many it sent; `write` sends each.
pub(super) fn send(
    batch: &Batch,
    slots: &[usize],
    write: impl Fn(&DatagramInfo, &[u8]) -> io::Result<()>,
) -> io::Result<usize> {
    for (sent, slot) in slots.iter().enumerate() {
        let (info, bytes) = batch.datagram(*slot);
        match write(info, bytes) {
            Ok(()) => {}
            Err(_) if sent > 0 => return Ok(sent),
            Err(error) => return Err(error),
        }
    }
    Ok(slots.len())
}

/// Receives a datagram with the standard library.
///
pub(super) fn read(socket: &UdpSocket, buffer: &mut [u8; BUFFER_SIZE]) -> io::Result<DatagramInfo> {
    let (len, remote) = match socket.recv_from(buffer) {
        Ok((len, SocketAddr::V4(remote))) => (len, remote),
        Ok((_, SocketAddr::V6(_))) => return Err(ErrorKind::InvalidData.into()),
        // The sender of a datagram that is too long is unknown.
        Err(error) if is_message_too_long(&error) => {
            (BUFFER_SIZE, SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0))
        }
        Err(error) => return Err(error),
    };
    // A datagram that fills the buffer may have been longer; no known datagram is that long.
    Ok(DatagramInfo { owner: 0, remote, local: None, len, truncated: len == BUFFER_SIZE })
}

/// Returns whether the error means that a datagram was longer than its buffer (only on Windows).
fn is_message_too_long(error: &io::Error) -> bool {
    cfg!(windows) && error.raw_os_error() == Some(WSAEMSGSIZE)
}

const WSAEMSGSIZE: i32 = 10_040;

/// Sends a datagram to the connected remote, or else to the address in `info`.
pub(super) fn write(
    socket: &UdpSocket,
    is_connected: bool,
    info: &DatagramInfo,
    bytes: &[u8],
) -> io::Result<()> {
    if is_connected { socket.send(bytes) } else { socket.send_to(bytes, info.remote.into()) }.map(drop)
}
