//! `bcnet forward`: passes datagrams on between one client and a server, with the sockets and the waiting of a proxy and
//! nothing else.
//!
//! What it costs is what the system takes for that: the yardstick for `bcnet proxy`.

use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::AsRawFd;

use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token};

use crate::Verdict;
use crate::udp::{Batch, Io, Received, Socket};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Where the client sends to
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen: SocketAddrV4,

    /// Where it goes
    #[arg(long, value_name = "ADDRESS:PORT")]
    upstream: SocketAddrV4,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<Verdict> {
    let any = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0);
    let sockets = [Socket::bind(args.listen, Io::BEST)?, Socket::connect(any, args.upstream, Io::BEST)?];
    let mut poll = Poll::new()?;
    for (number, socket) in sockets.iter().enumerate() {
        let source = socket.as_udp().as_raw_fd();
        poll.registry().register(&mut SourceFd(&source), Token(number), Interest::READABLE)?;
    }
    println!("forward ready port={}", sockets[0].local()?.port());
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
                    // The server has refused an earlier one; behind that, there may be datagrams.
                    Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => Received::More,
                    received => received?,
                };
                if let (true, Some((head, _))) = (up, batch.iter_mut().last()) {
                    client = head.remote;
                }
                batch.redirect(if up { args.upstream } else { client });
                // What the system does not take is lost, as with any other socket.
                drop(to.send(&batch, 0..batch.len()));
                if received == Received::All {
                    break;
                }
            }
        }
    }
}
