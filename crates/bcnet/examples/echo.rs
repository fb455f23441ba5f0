//! Sends every datagram back, with the sockets and the polling of a server and nothing else.
//!
//! This is the baseline for `bcnet serve` in `.ci/bars`: it costs what the system takes for datagrams of that
//! size and number. `echo PORT SOCKETS` listens at that many ports from `PORT` on.

use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};

use anyhow::Context;
use bcnet_udp::{Batch, Io, ReceiveStatus, Socket};
use mio::{Events, Interest, Poll, Token};

fn main() -> anyhow::Result<()> {
    let numbers: Vec<u16> = std::env::args()
        .skip(1)
        .map(|number| number.parse())
        .collect::<Result<_, _>>()
        .context("usage: echo PORT SOCKETS")?;
    let [port, count] = numbers.as_slice() else { anyhow::bail!("usage: echo PORT SOCKETS") };
    let mut poll = Poll::new()?;
    let mut sockets = Vec::new();
    for port in *port..port.saturating_add(*count) {
        // Only for this machine: others could use it to reflect datagrams.
        let address = SocketAddrV4::new(Ipv4Addr::LOCALHOST, port);
        let mut socket = Socket::bind(address, Io::BEST).with_context(|| format!("UDP {address}"))?;
        poll.registry().register(&mut socket, Token(sockets.len()), Interest::READABLE)?;
        sockets.push(socket);
    }
    println!("echo ready port={port} sockets={count}");
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
                // Datagrams that the system does not send are lost, as with any other socket.
                drop(socket.send(&batch, 0..batch.len()));
                if received == ReceiveStatus::Drained {
                    break;
                }
            }
        }
    }
}
