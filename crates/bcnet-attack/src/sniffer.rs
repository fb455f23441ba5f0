//! Receives the datagrams that one program sends to any address in the namespace.
//!
//! It plays the part of an attacker with many real addresses, or of the third party of a reflection attack.

use std::mem::MaybeUninit;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::OwnedFd;

use anyhow::Context;
use bcnet_transport::Time;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{AddressFamily, RecvFlags, SocketType, ipproto, recv, socket};

use bcnet_udp::Clock;

/// A socket that receives all datagrams from one address.
pub(crate) struct Sniffer {
    socket: OwnedFd,
    from: SocketAddrV4,
    buffer: Vec<MaybeUninit<u8>>,
}

impl Sniffer {
    pub(crate) fn new(from: SocketAddrV4) -> anyhow::Result<Self> {
        let socket = socket(AddressFamily::INET, SocketType::RAW, Some(ipproto::UDP))
            .context("cannot receive datagrams of other addresses: raw sockets need CAP_NET_RAW")?;
        // The system may grant a smaller buffer.
        let _ = rustix::net::sockopt::set_socket_recv_buffer_size(&socket, 4 << 20);
        Ok(Self { socket, from, buffer: vec![MaybeUninit::uninit(); 4096] })
    }

    /// Calls `on_datagram` with the destination and the payload of each datagram until `end`.
    pub(crate) fn receive_until(
        &mut self,
        clock: Clock,
        end: Time,
        mut on_datagram: impl FnMut(SocketAddrV4, &[u8]),
    ) {
        loop {
            while let Ok((packet, _)) =
                recv(&self.socket, self.buffer.as_mut_slice(), RecvFlags::DONTWAIT).map(|it| it.0)
            {
                if let Some((from, to, payload)) = parse(packet)
                    && from == self.from
                {
                    on_datagram(to, payload);
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

/// Returns source, destination and payload of a UDP datagram in an IPv4 packet.
fn parse(packet: &[u8]) -> Option<(SocketAddrV4, SocketAddrV4, &[u8])> {
    let header = 4 * usize::from(packet.first()? & 0x0F);
    let address = |at: usize| packet.get(at..)?.first_chunk().copied().map(Ipv4Addr::from);
    let udp = packet.get(header..)?;
    let port = |at: usize| udp.get(at..)?.first_chunk().copied().map(u16::from_be_bytes);
    let [from, to] = [(12, 0), (16, 2)].map(|(ip, at)| Some(SocketAddrV4::new(address(ip)?, port(at)?)));
    Some((from?, to?, udp.get(8..)?))
}
