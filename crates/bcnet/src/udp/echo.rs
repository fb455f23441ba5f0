//! `bcnet echo`: sends every datagram back, with the sockets and the waiting of a server and nothing else.
//!
//! What it costs is what the system takes for datagrams of that size and number: the yardstick for `bcnet serve`.

use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::AsRawFd;

use anyhow::Context;
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token};

use super::{Batch, Io, Received, Socket};
use crate::Verdict;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The first UDP port
    #[arg(long, default_value_t = 22101)]
    port: u16,

    /// How many ports
    #[arg(long, default_value_t = 1)]
    sockets: u16,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<Verdict> {
    let mut poll = Poll::new()?;
    let mut sockets = Vec::new();
    for port in args.port..args.port.saturating_add(args.sockets) {
        // Only for this machine: to anybody else it would be a means to hide behind.
        let address = SocketAddrV4::new(Ipv4Addr::LOCALHOST, port);
        let socket = Socket::bind(address, Io::BEST).with_context(|| format!("UDP {address}"))?;
        let source = socket.as_udp().as_raw_fd();
        poll.registry().register(&mut SourceFd(&source), Token(sockets.len()), Interest::READABLE)?;
        sockets.push(socket);
    }
    println!("echo ready port={} sockets={}", args.port, args.sockets);
    let mut events = Events::with_capacity(1024);
    let mut batch = Batch::new();
    loop {
        match poll.poll(&mut events, None) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            result => result?,
        }
        for socket in events.iter().filter_map(|event| sockets.get(event.token().0)) {
            loop {
                batch.clear();
                let received = socket.receive(&mut batch, 0, usize::MAX)?;
                // What the system does not take is lost, as with any other socket.
                drop(socket.send(&batch, 0..batch.len()));
                if received == Received::All {
                    break;
                }
            }
        }
    }
}
