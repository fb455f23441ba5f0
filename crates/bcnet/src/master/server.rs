//! The UDP side: servers announce themselves.

use std::io;
use std::net::Ipv4Addr;
use std::time::Duration;

use bcnet_session::list_server::{List, Note, Outgoing};
use bcnet_transport::Time;
use bcnet_udp::{Batch, Head, Received, Socket};

use crate::event_loop::{CommandSender, Registrar, Service};
use crate::http::Monitored;
use crate::log::LineLimit;
use crate::metrics::{Labels, Page};
use crate::random::unguessable;

/// The list of servers, and the socket at which they announce themselves.
pub(super) struct ListServer {
    pub(super) list: List,
    socket: Socket,
    /// Something has arrived at the socket.
    is_unread: bool,
    inbound: Batch,
    outbound: Batch,
    lines: LineLimit,
    counts: Counts,
    /// When the list is looked through next.
    housekeeping: Time,
    is_over: bool,
}

/// Hands commands to the list server, from any thread.
pub(super) type Commands = CommandSender<ListServer>;

impl Service for ListServer {
    fn next_timeout(&self) -> Option<Time> {
        Some(if self.is_unread { Time::ZERO } else { self.housekeeping })
    }

    fn note_readable(&mut self, _: u32) {
        self.is_unread = true;
    }

    fn turn(&mut self, now: Time) {
        if self.is_unread {
            self.receive(now);
            self.send();
        }
        if now >= self.housekeeping {
            for question in self.list.look_through(now) {
                self.push(question, None);
            }
            self.send();
            self.housekeeping = now + HOUSEKEEPING;
        }
        for note in self.list.take_notes() {
            self.counts.note(&note);
            if let Some(held_back) = self.lines.pass(now) {
                tell(note, held_back);
            }
        }
    }

    fn is_over(&self, _: Time) -> bool {
        self.is_over
    }
}

impl ListServer {
    pub(super) fn new(mut socket: Socket, registrar: &Registrar) -> io::Result<Self> {
        registrar.add(&mut socket, 0)?;
        Ok(Self {
            list: List::new(unguessable()),
            socket,
            is_unread: false,
            inbound: Batch::new(),
            outbound: Batch::new(),
            lines: LineLimit::new(20, Duration::from_secs(1)),
            counts: Counts::default(),
            housekeeping: Time::ZERO,
            is_over: false,
        })
    }

    /// Ends the list server.
    pub(super) const fn stop(&mut self) {
        self.is_over = true;
    }

    /// Takes a batch of what has arrived, and writes the answers.
    fn receive(&mut self, now: Time) {
        match self.socket.receive(&mut self.inbound, 0, usize::MAX) {
            Ok(received) => self.is_unread = received == Received::More,
            // The network complains of something sent earlier; behind that, there may be datagrams.
            Err(error) => tracing::debug!(event = "receive_failed", %error),
        }
        let mut inbound = std::mem::take(&mut self.inbound);
        self.counts.received += inbound.len() as u64;
        for (head, bytes) in inbound.iter_mut().filter(|(head, _)| !head.cut) {
            if let Some(answer) = self.list.handle_datagram(head.remote, bytes, now) {
                self.push(answer, head.local);
            }
        }
        inbound.clear();
        self.inbound = inbound;
    }

    /// Adds a datagram to what is to leave.
    fn push(&mut self, (to, text): Outgoing, local: Option<Ipv4Addr>) {
        if self.outbound.is_nearly_full() {
            self.send();
        }
        self.outbound.push(|room| {
            room.get_mut(..text.len())?.copy_from_slice(&text);
            Some(Head { owner: 0, remote: to, local, len: text.len(), cut: false })
        });
    }

    fn send(&mut self) {
        self.counts.sent += self.outbound.len() as u64;
        if let Err(unsent) = self.socket.send(&self.outbound, 0..self.outbound.len()) {
            let error = unsent.reason.map(|error| error.to_string());
            tracing::debug!(event = "send_failed", datagrams = unsent.datagrams, error);
        }
        self.outbound.clear();
    }
}

/// What has happened so far.
#[derive(Debug, Default)]
struct Counts {
    received: u64,
    sent: u64,
    listed: u64,
    dropped: u64,
    refused: u64,
}

impl Counts {
    const fn note(&mut self, note: &Note) {
        match note {
            Note::Listed(_) => self.listed += 1,
            Note::Expired(_) | Note::Left(_) | Note::GaveWay(_) => self.dropped += 1,
            Note::WrongAnswer(_) | Note::Full(_) => self.refused += 1,
        }
    }
}

impl Monitored for Commands {
    fn metrics(&self) -> Option<Page> {
        self.ask(|server, _| {
            let mut page = Page::new("bcnet_master");
            page.gauge("servers", "Servers that are listed", [(Labels::new(), server.list.listed().len())]);
            let counts = &server.counts;
            for (name, help, value) in [
                ("received_datagrams", "Datagrams that came", counts.received),
                ("sent_datagrams", "Datagrams that left", counts.sent),
                ("listed_servers", "Servers that were put on the list", counts.listed),
                ("dropped_servers", "Servers that left the list", counts.dropped),
                ("refused_servers", "Servers that were not put on the list", counts.refused),
            ] {
                page.counter(name, help, [(Labels::new(), value)]);
            }
            page
        })
    }

    fn is_alive(&self) -> bool {
        self.ask(|_, _| ()).is_some()
    }

    fn is_ready(&self) -> bool {
        self.is_alive()
    }
}

fn tell(note: Note, held_back: u64) {
    match note {
        Note::Listed(address) => tracing::info!(event = "listed", %address, held_back),
        Note::Expired(address) => tracing::info!(event = "expired", %address, held_back),
        Note::Left(address) => tracing::info!(event = "left", %address, held_back),
        Note::GaveWay(address) => tracing::info!(event = "gave_way", %address, held_back),
        Note::WrongAnswer(address) => tracing::warn!(event = "wrong_answer", %address, held_back),
        Note::Full(address) => tracing::warn!(event = "list_full", %address, held_back),
    }
}

/// How often the list is looked through.
const HOUSEKEEPING: Duration = Duration::from_secs(5);
