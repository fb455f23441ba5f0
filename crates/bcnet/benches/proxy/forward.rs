//! Forwards datagrams between one client and a server, with the sockets and the polling of a proxy and
//! nothing else.
//!
//! This is the baseline for `bcnet proxy`: it costs what the system takes.

use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};

use bcnet_udp::{Batch, Io, ReceiveStatus, Socket};
use mio::{Events, Interest, Poll, Token};

/// Forwards datagrams at a new port, which it prints, for ever.
pub(super) fn run(upstream: SocketAddrV4) -> io::Result<()> {
    let [any, own] = [Ipv4Addr::UNSPECIFIED, Ipv4Addr::LOCALHOST].map(|ip| SocketAddrV4::new(ip, 0));
    let mut sockets = [Socket::bind(own, Io::BEST)?, Socket::connect(any, upstream, Io::BEST)?];
    let mut poll = Poll::new()?;
    for (number, socket) in sockets.iter_mut().enumerate() {
        poll.registry().register(socket, Token(number), Interest::READABLE)?;
    }
    println!("forward ready port={}", sockets[0].local_address()?.port());
    let mut events = Events::with_capacity(16);
    let (mut batch, mut client) = (Batch::new(), any);
    loop {
        match poll.poll(&mut events, None) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            result => result?,
        }
        for event in &events {
            let up = event.token() == Token(0);
            let [from, to] = if up { [&sockets[0], &sockets[1]] } else { [&sockets[1], &sockets[0]] };
            loop {
                batch.clear();
                let received = match from.receive(&mut batch, 0, usize::MAX) {
                    // The server has refused an earlier datagram. Received datagrams may follow.
                    Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => ReceiveStatus::More,
                    received => received?,
                };
                if let (true, Some((head, _))) = (up, batch.iter_mut().last()) {
                    client = head.remote;
                }
                for (head, _) in batch.iter_mut() {
                    (head.remote, head.local) = (if up { upstream } else { client }, None);
                }
                // Datagrams that the system does not send are lost, as with any other socket.
                drop(to.send(&batch, 0..batch.len()));
                if received == ReceiveStatus::Drained {
                    break;
                }
            }
        }
    }
}
