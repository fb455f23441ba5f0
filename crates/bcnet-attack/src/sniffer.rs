//! Receives the datagrams that one program sends to any address in the namespace, or receives from it.
//!
//! It plays the part of an attacker with many real addresses, of the third party of a reflection attack, or of the
//! program's link.

use std::mem::MaybeUninit;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::OwnedFd;
use std::time::Duration;

use anyhow::Context;
use bcnet_transport::Time;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{AddressFamily, RecvFlags, SocketType, ipproto, recv, socket, sockopt};

use bcnet_udp::Clock;

/// A socket that receives all datagrams from one address, and to it.
pub(crate) struct Sniffer {
    socket: OwnedFd,
    address: SocketAddrV4,
    buffer: Vec<MaybeUninit<u8>>,
}

impl Sniffer {
    pub(crate) fn new(address: SocketAddrV4) -> anyhow::Result<Self> {
        let socket = socket(AddressFamily::INET, SocketType::RAW, Some(ipproto::UDP))
            .context("cannot receive datagrams of other addresses: raw sockets need CAP_NET_RAW")?;
        // The system may grant a smaller buffer.
        let _ = sockopt::set_socket_recv_buffer_size_force(&socket, 8 << 20)
            .or_else(|_| sockopt::set_socket_recv_buffer_size(&socket, 4 << 20));
        Ok(Self { socket, address, buffer: vec![MaybeUninit::uninit(); 4096] })
    }

    /// Calls `on_datagram` with destination and payload of each datagram from the address until `end`.
    pub(crate) fn receive_until(
        &mut self,
        clock: Clock,
        end: Time,
        mut on_datagram: impl FnMut(SocketAddrV4, &[u8]),
    ) {
        self.receive_both_until(clock, end, |direction, other, payload| {
            if direction == Direction::From {
                on_datagram(other, payload);
            }
        });
    }

    /// Calls `on_datagram` with direction, other address and payload of each datagram until `end`.
    pub(crate) fn receive_both_until(
        &mut self,
        clock: Clock,
        end: Time,
        mut on_datagram: impl FnMut(Direction, SocketAddrV4, &[u8]),
    ) {
        loop {
            while let Ok((packet, _)) =
                recv(&self.socket, self.buffer.as_mut_slice(), RecvFlags::DONTWAIT).map(|it| it.0)
            {
                match parse(packet) {
                    Some((from, to, payload)) if from == self.address => {
                        on_datagram(Direction::From, to, payload);
                    }
                    Some((from, to, payload)) if to == self.address => {
                        on_datagram(Direction::To, from, payload);
                    }
                    Some(_) | None => {}
                }
            }
            let left = end.since(clock.now());
            if left.is_zero() {
                return;
            }
            let timeout = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
            // A signal only ends the wait early.
            let _ = poll(&mut [PollFd::new(&self.socket, PollFlags::IN)], Some(&timeout));
        }
    }
}

/// The direction of a datagram, seen from the address of a [`Sniffer`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    From,
    To,
}

/// Returns the most bytes within a time of this length. The datagrams are in the order of time.
pub(crate) fn most_bytes(datagrams: &[(Time, usize)], length: Duration) -> f64 {
    let (mut window, mut bytes, mut most) = (datagrams, 0, 0);
    for (end, len) in datagrams {
        bytes += len;
        while let Some(((start, first), rest)) = window.split_first()
            && end.since(*start) >= length
        {
            (window, bytes) = (rest, bytes - first);
        }
        most = most.max(bytes);
    }
    most as f64
}

/// Returns source, destination and payload of a UDP datagram in an IPv4 packet.
fn parse(packet: &[u8]) -> Option<(SocketAddrV4, SocketAddrV4, &[u8])> {
    let header = 4 * usize::from(packet.first()? & 0x0F);
    let address = |at: usize| packet.get(at..)?.first_chunk().copied().map(Ipv4Addr::from);
    let udp = packet.get(header..)?;
    let port = |at: usize| udp.get(at..)?.first_chunk().copied().map(u16::from_be_bytes);
    let [from, to] = [(12, 0), (16, 2)].map(|(ip, at)| Some(SocketAddrV4::new(address(ip)?, port(at)?)));
    Some((from?, to?, udp.get(8..)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn most_bytes_are_those_of_the_worst_second() {
        let at = |millis, len| (Time::ZERO + Duration::from_millis(millis), len);
        let most = |datagrams: &[_]| most_bytes(datagrams, Duration::from_secs(1)) as u32;
        assert_eq!(most(&[]), 0);
        assert_eq!(most(&[at(0, 5), at(999, 7), at(1000, 1), at(1998, 3), at(5000, 9)]), 12);
        assert_eq!(most(&[at(0, 1), at(1500, 2), at(1600, 4)]), 6);
    }
}
