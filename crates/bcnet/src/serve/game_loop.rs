//! The loop that drives all sessions: one thread, one wait for all sockets.
//!
//! A session to which something arrived is due at once, but not before [`FLUSH_EVERY`] has passed since its last
//! datagrams left: an idle server answers at once, and in a busy one what would leave in many small datagrams leaves in
//! few. Until then its arrivals wait in the socket, so that a turn takes the arrivals of each session that is due in
//! one go, deciphers all together, and sends while what it has just touched is still in the cache. Only where more
//! arrives than a socket might hold, it is emptied every turn.

use std::io::{self, ErrorKind};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::Duration;

use bcnet_transport::{Deadlines, Time};
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token, Waker};

use super::session_host::SessionHost;
use crate::clock::Clock;
use crate::recorder::Recorder;
use crate::udp::{Batch, Received};

/// All sessions of the process.
pub(super) struct GameLoop {
    pub(super) hosts: Vec<SessionHost>,
    pub(super) clock: Clock,
    pub(super) recorder: Option<Recorder>,
    poll: Poll,
    commands: Receiver<Command>,
    deadlines: Deadlines,
    /// Rooms whose sockets are to be emptied now.
    unread: Vec<u32>,
    /// Rooms that are to be served in this turn.
    due: Vec<u32>,
    inbound: Batch,
    outbound: Batch,
    /// When the last turn was.
    turned: Time,
    /// When to go, even if somebody has not heard the goodbye.
    pub(super) leaving: Option<Time>,
}

/// Something that the rest of the program wants done between two looks at the sockets. It must not wait.
type Command = Box<dyn FnOnce(&mut GameLoop, Time) + Send>;

/// Hands commands to the game, from any thread.
#[derive(Debug, Clone)]
pub(super) struct CommandSender {
    sender: Sender<Command>,
    waker: Arc<Waker>,
}

impl CommandSender {
    /// Has something done. `false` if the game is over.
    pub(super) fn give(&self, order: impl FnOnce(&mut GameLoop, Time) + Send + 'static) -> bool {
        self.sender.send(Box::new(order)).is_ok() && self.waker.wake().is_ok()
    }

    /// Has something done and waits for the result. `None` if the game is over.
    pub(super) fn ask<T: Send + 'static>(
        &self,
        question: impl FnOnce(&mut GameLoop, Time) -> T + Send + 'static,
    ) -> Option<T> {
        let (reply, answer) = mpsc::sync_channel(1);
        // Whoever asked may be gone.
        let given = self.give(move |game, now| drop(reply.try_send(question(game, now))));
        given.then(|| answer.recv_timeout(PATIENCE).ok()).flatten()
    }
}

impl GameLoop {
    pub(super) fn new(
        hosts: Vec<SessionHost>,
        clock: Clock,
        recorder: Option<Recorder>,
    ) -> io::Result<(Self, CommandSender)> {
        let poll = Poll::new()?;
        for (index, host) in hosts.iter().enumerate() {
            let socket = host.socket.as_udp().as_raw_fd();
            poll.registry().register(&mut SourceFd(&socket), Token(index), Interest::READABLE)?;
        }
        let waker = Arc::new(Waker::new(poll.registry(), WAKE)?);
        let (sender, commands) = mpsc::channel();
        let game = Self {
            hosts,
            clock,
            recorder,
            poll,
            commands,
            deadlines: Deadlines::new(),
            unread: Vec::new(),
            due: Vec::new(),
            inbound: Batch::new(),
            outbound: Batch::new(),
            turned: Time::ZERO,
            leaving: None,
        };
        Ok((game, CommandSender { sender, waker }))
    }

    /// Plays until it is told to stop.
    pub(super) fn run(&mut self) -> io::Result<()> {
        let mut events = Events::with_capacity(1024);
        // A session may have something to do from the start: masters, say.
        self.wake_all();
        while !self.is_over() {
            self.turn(&mut events)?;
        }
        Ok(())
    }

    fn is_over(&self) -> bool {
        let said = || self.hosts.iter().all(|host| host.session.is_closed());
        self.leaving.is_some_and(|end| self.clock.now() >= end || said())
    }

    /// Waits until something is to be done, and does it.
    fn turn(&mut self, events: &mut Events) -> io::Result<()> {
        // Taking many datagrams at once costs less than waking up for each.
        let pause = (self.turned + TURN_EVERY).since(self.clock.now());
        if !pause.is_zero() {
            thread::sleep(pause);
        }
        match self.poll.poll(events, Some(self.wait(self.clock.now()))) {
            Err(error) if error.kind() == ErrorKind::Interrupted => return Ok(()),
            result => result?,
        }
        let now = self.clock.now();
        self.turned = now;
        for event in &*events {
            match event.token() {
                WAKE => self.dispatch(now),
                Token(index) => self.note_arrival(index as u32),
            }
        }
        self.call_due(now);
        self.receive(now);
        self.serve(now);
        Ok(())
    }

    /// Something has arrived at a socket that was empty, or more at one that was not.
    fn note_arrival(&mut self, index: u32) {
        let Some(host) = self.hosts.get_mut(index as usize).filter(|host| !host.is_unread) else { return };
        host.is_unread = true;
        // What is recorded has the time at which it came.
        if host.is_crowded || self.recorder.is_some() {
            self.unread.push(index);
        }
        self.deadlines.set(index, Some(host.flushed + FLUSH_EVERY));
    }

    /// Lists the hosts whose time has come, and the sockets to empty before that.
    fn call_due(&mut self, now: Time) {
        while let Some((_, index)) = self.deadlines.first().filter(|(due, _)| *due <= now) {
            self.deadlines.set(index, None);
            let Some(host) = self.hosts.get(index as usize) else { continue };
            if host.is_unread && !host.is_crowded && self.recorder.is_none() {
                self.unread.push(index);
            }
            self.due.push(index);
        }
    }

    /// How long nothing is to be done.
    fn wait(&self, now: Time) -> Duration {
        if !self.unread.is_empty() {
            return Duration::ZERO;
        }
        let due = self.deadlines.first().map(|(due, _)| due);
        let next = [due, self.leaving].into_iter().flatten().min();
        next.map_or(LONGEST_WAIT, |next| next.since(now).min(LONGEST_WAIT))
    }

    /// Takes what has arrived: a bounded amount from each socket, so that a flood at one does not starve the others.
    fn receive(&mut self, now: Time) {
        let count = self.unread.len();
        for at in 0..count {
            let index = self.unread[at];
            let (weight, is_more) = self.receive_from(index, now);
            let Some(host) = self.hosts.get_mut(index as usize) else { continue };
            host.note_emptying(weight, is_more, now);
            if is_more {
                self.unread.push(index);
            }
        }
        self.unread.drain(..count);
        self.handle_inbound(now);
    }

    /// Takes what has arrived at one socket. How much room that took there, and whether there may be more.
    fn receive_from(&mut self, index: u32, now: Time) -> (usize, bool) {
        let (mut left, mut weight) = (TURN, 0);
        while let Some(host) = self.hosts.get_mut(index as usize) {
            let before = self.inbound.len();
            let received = host.socket.receive(&mut self.inbound, index, left);
            left -= self.inbound.len() - before;
            weight += self.inbound.weight(before);
            match received {
                Ok(Received::All) => return (weight, false),
                Ok(Received::More) if left == 0 => return (weight, true),
                Ok(Received::More) => self.handle_inbound(now),
                // The network complains of something sent earlier; behind that, there may be datagrams.
                Err(error) => {
                    host.note_failure("receive_failed", Some(&error), now);
                    left = left.saturating_sub(ERROR_COST);
                    if left == 0 {
                        return (weight, true);
                    }
                }
            }
        }
        (0, false)
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
        inbound.decrypt();
        for (head, bytes) in inbound.iter_mut() {
            if let Some(host) = hosts.get_mut(head.owner as usize) {
                host.handle(head, bytes, now);
            }
        }
        inbound.clear();
    }

    /// Serves every session that is due.
    fn serve(&mut self, now: Time) {
        while let Some(index) = self.due.pop() {
            let Some(host) = self.hosts.get_mut(index as usize) else { continue };
            host.session.handle_timeout(now);
            host.report(now);
            host.flushed = now;
            self.transmit(index, now);
            let Some(host) = self.hosts.get(index as usize) else { continue };
            let next = if host.is_unread { Some(now) } else { host.session.next_timeout() };
            self.deadlines.set(index, next.map(|due| due.max(now + FLUSH_EVERY)));
        }
        self.send(now);
    }

    /// Puts all that a session has to send into the batch.
    fn transmit(&mut self, index: u32, now: Time) {
        while let Some(host) = self.hosts.get_mut(index as usize) {
            if self.outbound.is_full() {
                self.send(now);
            } else if !host.transmit(index, &mut self.outbound, now) {
                return;
            }
        }
    }

    /// Sends the batch of what is to leave.
    fn send(&mut self, now: Time) {
        let Self { hosts, outbound, recorder, clock, .. } = self;
        outbound.encrypt();
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

    fn dispatch(&mut self, now: Time) {
        while let Ok(order) = self.commands.try_recv() {
            order(self, now);
        }
        self.wake_all();
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
/// A busy server looks at its sockets at most this often.
const TURN_EVERY: Duration = Duration::from_millis(5);
/// How many datagrams one socket may bring before others have their turn.
const TURN: usize = 256;
/// How many datagrams an error at a socket counts for.
const ERROR_COST: usize = 16;
/// How long players may take to hear the goodbye.
const GOODBYE: Duration = Duration::from_millis(2000);
const LONGEST_WAIT: Duration = Duration::from_secs(60);
/// How long the game may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);
const WAKE: Token = Token(usize::MAX);

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};

    use bcnet_transport::wire::Text;
    use bcnet_transport::{Config, Endpoint};

    use super::*;
    use crate::allocations;
    use crate::udp::{Io, Socket};

    /// A game with one session, for players at this machine.
    fn game(io: Io) -> (GameLoop, SocketAddrV4) {
        let socket = Socket::bind(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0), io).expect("a socket");
        let address = socket.local().expect("bound");
        let transport = Config { cipher: false, ..Config::default() };
        let config = bcnet_session::Config { transport, ..bcnet_session::Config::default() };
        let host = SessionHost::new(config, 7, socket, address);
        (GameLoop::new(vec![host], Clock::start(), None).expect("a game").0, address)
    }

    #[test]
    fn arrivals_wait_until_their_session_is_due_unless_there_are_many() {
        let (mut game, _) = game(Io::BEST);
        let at = |millis: u64| Time::from_micros(millis * 1000);
        game.hosts[0].flushed = at(100);
        game.note_arrival(0);
        game.call_due(at(149));
        assert_eq!((game.unread.len(), game.due.len()), (0, 0), "49 ms after the last datagrams left");
        game.call_due(at(150));
        assert_eq!((game.unread.len(), game.due.len()), (1, 1), "and when they are 50 ms ago");
        game.receive(at(150));
        game.serve(at(150));
        assert_eq!(game.deadlines.first(), None, "nothing was there, and nothing is to be done");
        // 16 players, each 20 times a second.
        game.hosts[0].note_emptying(16, false, at(200));
        assert!(!game.hosts[0].is_crowded);
        // More than a small socket could hold until the next time.
        game.hosts[0].note_emptying(201, false, at(250));
        assert!(game.hosts[0].is_crowded);
        game.note_arrival(0);
        assert_eq!(game.unread, [0], "to be taken now, whatever is due");
        game.receive(at(251));
        assert!(!game.hosts[0].is_crowded, "nothing was there");
        game.hosts[0].note_emptying(TURN, true, at(300));
        assert!(game.hosts[0].is_unread && game.hosts[0].is_crowded);
    }

    #[test]
    fn a_datagram_costs_no_allocation() {
        for io in [Io::BEST, Io::Portable] {
            let (mut game, address) = game(io);
            let mut events = Events::with_capacity(16);
            let client = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a socket");
            let mut player = Endpoint::connect(
                Config::default(),
                address,
                Ipv4Addr::LOCALHOST,
                7,
                Text::default(),
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
                let (wanted, sent) = ((round + 1) * 100, game.hosts[0].traffic.datagrams_out);
                while game.hosts[0].traffic.datagrams_in < wanted
                    || game.hosts[0].traffic.datagrams_out == sent
                {
                    game.turn(&mut events).expect("a turn");
                }
                counts.push(allocations::count() - before);
            }
            // What grows with the load has grown by then, and lines of the log are few.
            let late: u64 = counts[20..].iter().sum();
            assert!(late < 40, "{io:?}: {late} allocations for 2000 datagrams; per round {counts:?}");
        }
    }
}
