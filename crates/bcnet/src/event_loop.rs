//! The event loop of a service: one wait for its sockets, for other threads and for the time.
//!
//! A [`Service`] is what happens in one thread, so nothing in it needs a lock. Whatever may wait for a disk, a name server
//! or a person has a thread of its own and hands the loop commands, which it carries out between two looks at the
//! sockets. Nothing here is shared by two loops: a program may have as many as it has threads for.

use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::Duration;

use bcnet_transport::Time;
use bcnet_udp::Clock;
use mio::event::Source;
use mio::{Events, Interest, Poll, Registry, Token, Waker};

/// What an event loop drives.
pub(crate) trait Service: Sized {
    /// Returns when the next turn is due, whatever arrives.
    fn next_timeout(&self) -> Option<Time>;

    /// Something has arrived at a socket that was empty, or more at one that was not.
    fn on_readable(&mut self, socket: u32);

    /// Takes what has arrived, and does what is due.
    fn turn(&mut self, now: Time);

    /// Returns whether there is nothing more to do.
    fn is_finished(&self, now: Time) -> bool;
}

/// Waits for everything that a service reacts to.
pub(crate) struct EventLoop<S> {
    poll: Poll,
    events: Events,
    clock: Clock,
    commands: Receiver<Command<S>>,
    sender: CommandSender<S>,
    /// Commands may wait that there was no time for.
    has_commands: bool,
    /// When the last turn was.
    last_turn: Time,
    /// When the clock was looked at last, by itself, and how much of its time does not count.
    last_clock_read: Time,
    suspended: Duration,
}

impl<S: Service> EventLoop<S> {
    pub(crate) fn new(clock: Clock) -> io::Result<Self> {
        #[cfg(windows)]
        crate::win32::set_timer_resolution();
        let poll = Poll::new()?;
        let waker = Arc::new(Waker::new(poll.registry(), WAKE_TOKEN)?);
        let (sender, commands) = mpsc::channel();
        let sender = CommandSender { sender, waker };
        Ok(Self {
            poll,
            events: Events::with_capacity(1024),
            clock,
            commands,
            sender,
            has_commands: false,
            last_turn: Time::ZERO,
            last_clock_read: clock.now(),
            suspended: Duration::ZERO,
        })
    }

    /// Hands commands to the service, from any thread.
    pub(crate) fn command_sender(&self) -> CommandSender<S> {
        self.sender.clone()
    }

    /// Tells the loop which sockets to wait for, now and while it runs.
    pub(crate) fn registrar(&self) -> io::Result<Registrar> {
        self.poll.registry().try_clone().map(Registrar)
    }

    /// Drives `service` until it is over.
    pub(crate) fn run(&mut self, service: &mut S) -> io::Result<()> {
        while !service.is_finished(self.last_turn) {
            self.turn(service)?;
        }
        Ok(())
    }

    /// Waits until something is to be done, and has it done.
    pub(crate) fn turn(&mut self, service: &mut S) -> io::Result<()> {
        let due = if self.has_commands { Some(Time::ZERO) } else { service.next_timeout() };
        let now = self.read_clock(Duration::ZERO);
        let wait = due.map_or(MAX_WAIT, |due| due.since(now).min(MAX_WAIT));
        let waited = self.poll.poll(&mut self.events, Some(wait));
        let now = self.read_clock_after_wait(waited, wait)?;
        self.last_turn = now;
        for event in &self.events {
            match event.token() {
                WAKE_TOKEN => self.has_commands = true,
                Token(socket) => service.on_readable(socket as u32),
            }
        }
        if self.has_commands {
            self.has_commands = self.run_commands(service, now);
        }
        service.turn(now);
        Ok(())
    }

    /// Returns the time of the service after a wait of so long at the most. A signal that interrupts it has brought nothing, and
    /// the time until then was waited all the same.
    fn read_clock_after_wait(&mut self, waited: io::Result<()>, wait: Duration) -> io::Result<Time> {
        match waited {
            Err(error) if error.kind() != ErrorKind::Interrupted => Err(error),
            _ => Ok(self.read_clock(wait)),
        }
    }

    /// Returns the time of the service, if it should be `expected` after the last look at most. When it is much later, the
    /// machine slept, or this process did: in that time nobody could be heard, so it does not count, and nobody is given up
    /// for a silence that was not theirs.
    fn read_clock(&mut self, expected: Duration) -> Time {
        let now = self.clock.now();
        let late = now.since(self.last_clock_read).saturating_sub(expected);
        self.last_clock_read = now;
        if late >= MIN_SUSPEND {
            self.suspended += late;
            let seconds = late.as_secs();
            tracing::warn!(
                event = "slept",
                seconds,
                "the machine or this process stood still; it does not count"
            );
        }
        Time::ZERO + now.since(Time::ZERO + self.suspended)
    }

    /// Carries out what other threads have asked for, in order, until it has taken its share of the turn. Returns whether
    /// there may be more.
    fn run_commands(&self, service: &mut S, now: Time) -> bool {
        let began = self.clock.now();
        while let Ok(command) = self.commands.try_recv() {
            command(service, now);
            if self.clock.now().since(began) >= COMMAND_TIME_LIMIT {
                return true;
            }
        }
        false
    }
}

/// Something that another thread wants done. It must not wait, and what takes long is given in pieces: datagrams are looked
/// at in between.
type Command<S> = Box<dyn FnOnce(&mut S, Time) + Send>;

/// Hands commands to a service, from any thread.
#[derive(Debug)]
pub(crate) struct CommandSender<S> {
    sender: Sender<Command<S>>,
    waker: Arc<Waker>,
}

impl<S> Clone for CommandSender<S> {
    fn clone(&self) -> Self {
        Self { sender: self.sender.clone(), waker: Arc::clone(&self.waker) }
    }
}

impl<S> CommandSender<S> {
    /// Has something done, unless the service is over.
    pub(crate) fn send(&self, command: impl FnOnce(&mut S, Time) + Send + 'static) {
        if self.sender.send(Box::new(command)).is_ok() {
            // A loop that is gone does not have to be woken.
            drop(self.waker.wake());
        }
    }

    /// Has something done and waits for the result. Returns `None` if the service is over.
    pub(crate) fn call<T: Send + 'static>(
        &self,
        command: impl FnOnce(&mut S, Time) -> T + Send + 'static,
    ) -> Option<T> {
        let (reply, answer) = mpsc::sync_channel(1);
        // Whoever asked may be gone.
        self.send(move |service, now| drop(reply.try_send(command(service, now))));
        answer.recv_timeout(REPLY_TIMEOUT).ok()
    }
}

/// Tells an event loop which sockets to wait for.
#[derive(Debug)]
pub(crate) struct Registrar(Registry);

impl Registrar {
    /// Waits for `socket` from now on, under this number.
    pub(crate) fn add(&self, socket: &mut impl Source, number: u32) -> io::Result<()> {
        self.0.register(socket, Token(number as usize), Interest::READABLE)
    }

    /// Does not wait for `socket` any more.
    pub(crate) fn remove(&self, socket: &mut impl Source) {
        // It is closed next, which does the same.
        drop(self.0.deregister(socket));
    }
}

const WAKE_TOKEN: Token = Token(usize::MAX);
const MAX_WAIT: Duration = Duration::from_secs(60);
/// A look at the clock that is later than expected by so much tells that the machine slept.
const MIN_SUSPEND: Duration = Duration::from_secs(2);
/// When commands have taken this long, datagrams have their turn before the next.
const COMMAND_TIME_LIMIT: Duration = Duration::from_micros(50);
/// How long a service may take to answer.
pub(crate) const REPLY_TIMEOUT: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    /// Counts its turns.
    #[derive(Default)]
    struct TurnCounter {
        turns: u32,
        next: Option<Time>,
        is_finished: bool,
    }

    impl Service for TurnCounter {
        fn next_timeout(&self) -> Option<Time> {
            self.next
        }

        fn on_readable(&mut self, _: u32) {}

        fn turn(&mut self, _: Time) {
            self.turns += 1;
        }

        fn is_finished(&self, _: Time) -> bool {
            self.is_finished
        }
    }

    #[test]
    fn command_from_another_thread_wakes_the_loop() {
        let mut event_loop = EventLoop::new(Clock::start()).expect("a loop");
        let commands = event_loop.command_sender();
        let caller = thread::spawn(move || {
            let turns = commands.call(|counter: &mut TurnCounter, _| counter.turns);
            commands.send(|counter, _| counter.is_finished = true);
            turns
        });
        let mut counter = TurnCounter::default();
        event_loop.run(&mut counter).expect("run");
        assert_eq!(caller.join().expect("no panic"), Some(0), "commands come before the turn");
        assert!(counter.turns >= 1);
    }

    #[test]
    fn loop_takes_a_turn_between_slow_commands() {
        let clock = Clock::start();
        let mut event_loop = EventLoop::new(clock).expect("a loop");
        let commands = event_loop.command_sender();
        let (seen, turns) = mpsc::channel();
        for _ in 0..3 {
            let seen = seen.clone();
            commands.send(move |counter: &mut TurnCounter, _| {
                let end = clock.now() + COMMAND_TIME_LIMIT;
                while clock.now() < end {}
                seen.send(counter.turns).expect("a listener");
            });
        }
        let mut counter = TurnCounter::default();
        for _ in 0..3 {
            event_loop.turn(&mut counter).expect("a turn");
        }
        assert_eq!(turns.try_iter().collect::<Vec<_>>(), [0, 1, 2]);
    }

    #[test]
    fn turn_runs_at_its_deadline_without_input() {
        let clock = Clock::start();
        let mut event_loop = EventLoop::new(clock).expect("a loop");
        let due = clock.now() + Duration::from_millis(30);
        let mut counter = TurnCounter { next: Some(due), ..TurnCounter::default() };
        event_loop.turn(&mut counter).expect("a turn");
        // The system counts whole milliseconds.
        assert!(clock.now() + Duration::from_millis(1) >= due);
        assert_eq!(counter.turns, 1);
    }

    #[test]
    fn suspended_time_is_not_counted() {
        let mut event_loop = EventLoop::new(Clock::start()).expect("a loop");
        let mut counter = TurnCounter { next: Some(Time::ZERO), ..TurnCounter::default() };
        let mut expected = Duration::ZERO;
        for sleep in [0, 1, 3600, 0, 100_000, 1].map(Duration::from_secs) {
            event_loop.turn(&mut counter).expect("a turn");
            let before = event_loop.last_turn;
            event_loop.clock.jump(sleep);
            event_loop.turn(&mut counter).expect("a turn");
            let passed = event_loop.last_turn.since(before);
            if sleep < MIN_SUSPEND {
                assert!(passed >= sleep, "{sleep:?}");
                expected += sleep;
            } else {
                assert!(passed < MIN_SUSPEND, "{sleep:?}");
            }
        }
        assert!(event_loop.last_turn >= Time::ZERO + expected);
    }

    #[test]
    fn interrupted_wait_is_not_a_suspend() {
        let mut event_loop = EventLoop::<TurnCounter>::new(Clock::start()).expect("a loop");
        for wait in [MAX_WAIT, MAX_WAIT] {
            event_loop.read_clock(Duration::ZERO);
            event_loop.clock.jump(wait / 2);
            event_loop.read_clock_after_wait(Err(ErrorKind::Interrupted.into()), wait).expect("no error");
        }
        assert_eq!(event_loop.suspended, Duration::ZERO);
        assert!(event_loop.read_clock_after_wait(Err(ErrorKind::NotConnected.into()), MAX_WAIT).is_err());
    }

    #[test]
    fn call_to_a_finished_service_returns_none() {
        let event_loop = EventLoop::<TurnCounter>::new(Clock::start()).expect("a loop");
        let commands = event_loop.command_sender();
        drop(event_loop);
        assert_eq!(commands.call(|counter, _| counter.turns), None);
    }
}
