//! The UDP side of the list server: servers announce themselves.

use std::io;
use std::net::Ipv4Addr;
use std::time::Duration;

use bcnet_session::list_server::{ListEvent, OutgoingDatagram, ServerList};
use bcnet_transport::Time;
use bcnet_udp::{Batch, DatagramInfo, ReceiveStatus, Socket};

use crate::event_loop::{CommandSender, Registrar, Service};
use crate::log::LogRateLimiter;
use crate::metrics::{Labels, MetricsPage};
use crate::metrics_server::Monitored;
use crate::random::random_u64;

/// The list of servers, and the socket for their announcements.
pub(super) struct ListServer {
    pub(super) list: ServerList,
    socket: Socket,
    /// `true` if datagrams have arrived at the socket.
    is_readable: bool,
    inbound: Batch,
    outbound: Batch,
    log_limit: LogRateLimiter,
    counters: ListServerCounters,
    /// The time of the next check of the list: queries servers, and removes expired ones.
    next_housekeeping: Time,
    is_over: bool,
}

/// Sends commands to the list server, from any thread.
pub(super) type ListServerCommands = CommandSender<ListServer>;

impl Service for ListServer {
    fn next_timeout(&self) -> Option<Time> {
        Some(if self.is_readable { Time::ZERO } else { self.next_housekeeping })
    }

    fn on_readable(&mut self, _: u32) {
        self.is_readable = true;
    }

    fn turn(&mut self, now: Time) {
        if self.is_readable {
            self.receive(now);
            self.send();
        }
        if now >= self.next_housekeeping {
            for question in self.list.poll_servers(now) {
                self.queue_datagram(question, None);
            }
            self.send();
            self.next_housekeeping = now + HOUSEKEEPING_INTERVAL;
        }
        for note in self.list.take_events() {
            self.counters.count_note(&note);
            if let Some(held_back) = self.log_limit.allow(now) {
                log_note(note, held_back);
            }
        }
    }

    fn is_finished(&self, _: Time) -> bool {
        self.is_over
    }
}

impl ListServer {
    pub(super) fn new(mut socket: Socket, registrar: &Registrar) -> io::Result<Self> {
        registrar.add(&mut socket, 0)?;
        Ok(Self {
            list: ServerList::new(random_u64()),
            socket,
            is_readable: false,
            inbound: Batch::new(),
            outbound: Batch::new(),
            log_limit: LogRateLimiter::new(20, Duration::from_secs(1)),
            counters: ListServerCounters::default(),
            next_housekeeping: Time::ZERO,
            is_over: false,
        })
    }

    /// Stops the list server.
    pub(super) const fn stop(&mut self) {
        self.is_over = true;
    }

    /// Receives a batch of datagrams and queues the answers.
    fn receive(&mut self, now: Time) {
        match self.socket.receive(&mut self.inbound, 0, usize::MAX) {
            Ok(received) => self.is_readable = received == ReceiveStatus::More,
            // The error belongs to an earlier datagram that we sent. Received datagrams may follow.
            Err(error) => tracing::debug!(event = "receive_failed", %error),
        }
        let mut inbound = std::mem::take(&mut self.inbound);
        self.counters.received += inbound.len() as u64;
        for (head, bytes) in inbound.iter_mut().filter(|(head, _)| !head.truncated) {
            if let Some(answer) = self.list.handle_datagram(head.remote, bytes, now) {
                self.queue_datagram(answer, head.local);
            }
        }
        inbound.clear();
        self.inbound = inbound;
    }

    /// Queues a datagram to send.
    fn queue_datagram(&mut self, (to, text): OutgoingDatagram, local: Option<Ipv4Addr>) {
        if self.outbound.is_nearly_full() {
            self.send();
        }
        self.outbound.push(|buffer| {
            buffer.get_mut(..text.len())?.copy_from_slice(&text);
            Some(DatagramInfo { owner: 0, remote: to, local, len: text.len(), truncated: false })
        });
    }

    fn send(&mut self) {
        self.counters.sent += self.outbound.len() as u64;
        if let Err(unsent) = self.socket.send(&self.outbound, 0..self.outbound.len()) {
            let error = unsent.reason.map(|error| error.to_string());
            tracing::debug!(event = "send_failed", datagrams = unsent.datagrams, error);
        }
        self.outbound.clear();
    }
}

/// Counters of the list server.
#[derive(Debug, Default)]
struct ListServerCounters {
    received: u64,
    sent: u64,
    listed: u64,
    dropped: u64,
    refused: u64,
}

impl ListServerCounters {
    const fn count_note(&mut self, note: &ListEvent) {
        match note {
            ListEvent::Listed(_) => self.listed += 1,
            ListEvent::Expired(_) | ListEvent::Left(_) | ListEvent::Evicted(_) => self.dropped += 1,
            ListEvent::WrongAnswer(_) | ListEvent::Full(_) => self.refused += 1,
        }
    }
}

impl Monitored for ListServerCommands {
    fn metrics(&self) -> Option<MetricsPage> {
        self.call(|server, _| {
            let mut page = MetricsPage::new("bcnet_master");
            page.gauge("servers", "Servers on the list", [(Labels::new(), server.list.listed().len())]);
            let counters = &server.counters;
            for (name, help, value) in [
                ("received_datagrams", "Datagrams received", counters.received),
                ("sent_datagrams", "Datagrams sent", counters.sent),
                ("listed_servers", "Servers added to the list", counters.listed),
                ("dropped_servers", "Servers removed from the list", counters.dropped),
                ("refused_servers", "Servers refused", counters.refused),
            ] {
                page.counter(name, help, [(Labels::new(), value)]);
            }
            page
        })
    }

    fn is_alive(&self) -> bool {
        self.call(|_, _| ()).is_some()
    }

    fn is_ready(&self) -> bool {
        self.is_alive()
    }
}

fn log_note(note: ListEvent, held_back: u64) {
    match note {
        ListEvent::Listed(address) => tracing::info!(event = "listed", %address, held_back),
        ListEvent::Expired(address) => tracing::info!(event = "expired", %address, held_back),
        ListEvent::Left(address) => tracing::info!(event = "left", %address, held_back),
        ListEvent::Evicted(address) => tracing::info!(event = "gave_way", %address, held_back),
        ListEvent::WrongAnswer(address) => tracing::warn!(event = "wrong_answer", %address, held_back),
        ListEvent::Full(address) => tracing::warn!(event = "list_full", %address, held_back),
    }
}

/// The interval between two checks of the list.
const HOUSEKEEPING_INTERVAL: Duration = Duration::from_secs(5);
