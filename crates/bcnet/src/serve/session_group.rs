//! All sessions of one thread, driven by one event loop.
//!
//! A session to which something arrived is due at once, but not before [`FLUSH_EVERY`] has passed since its last
//! datagrams left: an idle server answers at once, and in a busy one what would leave in many small datagrams leaves in
//! few. Until then its arrivals wait in the socket, so that a turn takes the arrivals of each session that is due in
//! one go, deciphers all together, and sends while what it has just touched is still in the cache. Only where more
//! arrives than a socket might hold, it is emptied every turn.

use std::collections::VecDeque;
use std::io;
use std::time::Duration;

use bcnet_transport::{Deadlines, Time, cipher};

use super::session_host::SessionHost;
use crate::clock::Clock;
use crate::event_loop::{CommandSender, Registrar, Service};
use crate::recorder::Recorder;
use crate::udp::{Batch, Received};

/// The sessions of one thread.
pub(super) struct SessionGroup {
    pub(super) hosts: Vec<SessionHost>,
    pub(super) recorder: Option<Recorder>,
    clock: Clock,
    deadlines: Deadlines,
    /// Sessions whose sockets are to be emptied now.
    unread: VecDeque<u32>,
    /// Sessions that are to be served in this turn.
    due: Vec<u32>,
    inbound: Batch,
    outbound: Batch,
    /// When to go, even if somebody has not heard the goodbye.
    leaving: Option<Time>,
}

/// Hands commands to the sessions, from any thread.
pub(super) type Commands = CommandSender<SessionGroup>;

impl Service for SessionGroup {
    const TURN_EVERY: Duration = Duration::from_millis(5);

    fn next_timeout(&self) -> Option<Time> {
        if !self.unread.is_empty() {
            return Some(Time::ZERO);
        }
        let due = self.deadlines.first().map(|(due, _)| due);
        [due, self.leaving].into_iter().flatten().min()
    }

    fn note_readable(&mut self, socket: u32) {
        let Some(host) = self.hosts.get_mut(socket as usize).filter(|host| !host.is_unread) else { return };
        host.is_unread = true;
        // What is recorded has the time at which it came.
        if host.is_crowded || self.recorder.is_some() {
            self.unread.push_back(socket);
        }
        self.deadlines.set(socket, Some(host.flushed + FLUSH_EVERY));
    }

    fn note_commands(&mut self) {
        self.wake_all();
    }

    fn turn(&mut self, now: Time) {
        self.call_due(now);
        for _ in 0..self.unread.len() {
            self.receive(now);
        }
        self.handle_inbound(now);
        while let Some(index) = self.due.pop() {
            self.serve(index, now);
        }
        self.send(now);
    }

    fn is_over(&self, now: Time) -> bool {
        let said = || self.hosts.iter().all(|host| host.session.is_closed());
        self.leaving.is_some_and(|end| now >= end || said())
    }
}

impl SessionGroup {
    pub(super) fn new(
        mut hosts: Vec<SessionHost>,
        registrar: &Registrar,
        clock: Clock,
        recorder: Option<Recorder>,
    ) -> io::Result<Self> {
        for (host, number) in hosts.iter_mut().zip(0..) {
            registrar.add(&mut host.socket, number)?;
        }
        let mut group = Self {
            hosts,
            recorder,
            clock,
            deadlines: Deadlines::new(),
            unread: VecDeque::new(),
            due: Vec::new(),
            inbound: Batch::new(),
            outbound: Batch::new(),
            leaving: None,
        };
        // A session may have something to do from the start: masters, say.
        group.wake_all();
        Ok(group)
    }

    /// Lists the sessions whose time has come, and the sockets to empty before that.
    fn call_due(&mut self, now: Time) {
        while let Some((_, index)) = self.deadlines.first().filter(|(due, _)| *due <= now) {
            self.deadlines.set(index, None);
            let Some(host) = self.hosts.get(index as usize) else { continue };
            if host.is_unread && !host.is_crowded && self.recorder.is_none() {
                self.unread.push_back(index);
            }
            self.due.push(index);
        }
    }

    /// Takes what has arrived at the next socket: a bounded amount, so that a flood at one does not starve the others.
    fn receive(&mut self, now: Time) {
        let Some(index) = self.unread.pop_front() else { return };
        let (mut left, mut weight) = (SHARE, 0);
        while let Some(host) = self.hosts.get_mut(index as usize) {
            let before = self.inbound.len();
            let received = host.socket.receive(&mut self.inbound, index, left);
            left -= self.inbound.len() - before;
            weight += self.inbound.weight(before);
            let is_all = match received {
                Ok(received) => received == Received::All,
                // The network complains of something sent earlier; behind that, there may be datagrams.
                Err(error) => {
                    host.note_failure("receive_failed", Some(&error), now);
                    left = left.saturating_sub(ERROR_COST);
                    false
                }
            };
            if is_all || left == 0 {
                host.note_emptying(weight, !is_all, now);
                self.unread.extend((!is_all).then_some(index));
                return;
            }
            if self.inbound.is_full() {
                self.handle_inbound(now);
            }
        }
    }

    /// Hands a batch of arrivals to their sessions.
    fn handle_inbound(&mut self, now: Time) {
        let Self { hosts, inbound, recorder, clock, .. } = self;
        if let Some(recorder) = recorder {
            for (head, bytes) in inbound.iter_mut() {
                if let Some(host) = hosts.get(head.owner as usize) {
                    recorder.record(head.remote, host.local(head.local), clock.wall(now), bytes);
                }
            }
        }
        inbound.apply(cipher::decrypt_batch, |_| true);
        for (head, bytes) in inbound.iter_mut() {
            if let Some(host) = hosts.get_mut(head.owner as usize) {
                host.handle(head, bytes, now);
            }
        }
        inbound.clear();
    }

    /// Has a session do what is due, and puts all that it has to send into the batch.
    fn serve(&mut self, index: u32, now: Time) {
        let Some(host) = self.hosts.get_mut(index as usize) else { return };
        host.session.handle_timeout(now);
        host.report(now);
        host.flushed = now;
        while let Some(host) = self.hosts.get_mut(index as usize) {
            if self.outbound.is_full() {
                self.send(now);
            } else if !host.transmit(index, &mut self.outbound, now) {
                let next = if host.is_unread { Some(now) } else { host.session.next_timeout() };
                self.deadlines.set(index, next.map(|due| due.max(now + FLUSH_EVERY)));
                return;
            }
        }
    }

    /// Sends the batch of what is to leave.
    fn send(&mut self, now: Time) {
        let Self { hosts, outbound, recorder, clock, .. } = self;
        outbound.apply(cipher::encrypt_batch, |_| true);
        if let Some(recorder) = recorder {
            for (head, bytes) in outbound.iter_mut() {
                if let Some(host) = hosts.get(head.owner as usize) {
                    recorder.record(host.local(head.local), head.remote, clock.wall(now), bytes);
                }
            }
        }
        for (index, range) in outbound.runs() {
            let Some(host) = hosts.get_mut(index as usize) else { continue };
            if let Err(unsent) = host.socket.send(outbound, range) {
                host.note_unsent(&unsent, now);
            }
        }
        outbound.clear();
    }

    /// Says goodbye to everyone.
    pub(super) fn stop(&mut self, now: Time) {
        if self.leaving.is_none() {
            tracing::info!(event = "stopping");
            self.leaving = Some(now + GOODBYE);
            for host in &mut self.hosts {
                host.session.shutdown(now);
            }
        }
    }

    /// Every session is to be looked at.
    fn wake_all(&mut self) {
        for index in 0..self.hosts.len() as u32 {
            self.deadlines.set(index, Some(Time::ZERO));
        }
    }
}

/// A session sends at most this often: twice as often as a stock host was seen to send to each client.
const FLUSH_EVERY: Duration = Duration::from_millis(50);
/// How many datagrams one socket may bring before others have their turn.
const SHARE: usize = 256;
/// How many datagrams an error at a socket counts for.
const ERROR_COST: usize = 16;
/// How long players may take to hear the goodbye.
const GOODBYE: Duration = Duration::from_millis(2000);

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};

    use bcnet_transport::wire::Text;
    use bcnet_transport::{Config, Connect, Endpoint, Engine as _};

    use super::*;
    use crate::allocations;
    use crate::event_loop::EventLoop;
    use crate::udp::{Io, Socket};

    /// Returns a group of one session, for players at this machine, and its loop.
    fn group(io: Io) -> (SessionGroup, EventLoop<SessionGroup>) {
        let socket = Socket::bind(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0), io).expect("a socket");
        let address = socket.local().expect("bound");
        let transport = Config { cipher: false, ..Config::default() };
        let config = bcnet_session::Config { transport, ..bcnet_session::Config::default() };
        let hosts = vec![SessionHost::new(config, 7, socket, address)];
        let event_loop = EventLoop::new(Clock::start()).expect("a loop");
        let registrar = event_loop.registrar().expect("a loop");
        (SessionGroup::new(hosts, &registrar, Clock::start(), None).expect("a group"), event_loop)
    }

    #[test]
    fn arrivals_wait_until_their_session_is_due_unless_there_are_many() {
        let (mut group, _) = group(Io::BEST);
        let at = |millis: u64| Time::from_micros(millis * 1000);
        group.turn(at(0));
        group.hosts[0].flushed = at(100);
        group.note_readable(0);
        group.call_due(at(149));
        assert_eq!((group.unread.len(), group.due.len()), (0, 0), "49 ms after the last datagrams left");
        group.call_due(at(150));
        assert_eq!((group.unread.len(), group.due.len()), (1, 1), "and when they are 50 ms ago");
        group.turn(at(150));
        assert_eq!(group.deadlines.first(), None, "nothing was there, and nothing is to be done");
        // 16 players, each 20 times a second.
        group.hosts[0].note_emptying(16, false, at(200));
        assert!(!group.hosts[0].is_crowded);
        // More than a small socket could hold until the next time.
        group.hosts[0].note_emptying(201, false, at(250));
        assert!(group.hosts[0].is_crowded);
        group.note_readable(0);
        assert_eq!(group.unread, [0], "to be taken now, whatever is due");
        group.turn(at(251));
        assert!(!group.hosts[0].is_crowded, "nothing was there");
        group.hosts[0].note_emptying(SHARE, true, at(300));
        assert!(group.hosts[0].is_unread && group.hosts[0].is_crowded);
    }

    #[test]
    fn a_datagram_costs_no_allocation() {
        for io in [Io::BEST, Io::Portable] {
            let (mut group, mut event_loop) = group(io);
            let address = group.hosts[0].address;
            let client = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a socket");
            let mut player = Endpoint::connect(
                Config { address: Ipv4Addr::LOCALHOST, ..Config::default() },
                Connect { host: address, nonce: 7, password: Text::default() },
                Time::ZERO,
            );
            let mut hello = [0; 512];
            let hello_size = player.poll_transmit(&mut hello, Time::ZERO).expect("a connect request").len;
            let mut counts = Vec::new();
            for round in 0..40 {
                // A connect request again and again, which is acknowledged each time, and nonsense.
                for _ in 0..50 {
                    client.send_to(&hello[..hello_size], address).expect("sent");
                    client.send_to(&[9; 300], address).expect("sent");
                }
                let before = allocations::count();
                let (wanted, sent) = ((round + 1) * 100, group.hosts[0].traffic.datagrams_out);
                while group.hosts[0].traffic.datagrams_in < wanted
                    || group.hosts[0].traffic.datagrams_out == sent
                {
                    event_loop.turn(&mut group).expect("a turn");
                }
                counts.push(allocations::count() - before);
            }
            // What grows with the load has grown by then, and lines of the log are few.
            let late: u64 = counts[20..].iter().sum();
            assert!(late < 40, "{io:?}: {late} allocations for 2000 datagrams; per round {counts:?}");
        }
    }
}
