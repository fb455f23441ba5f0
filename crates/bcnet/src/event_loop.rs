//! The event loop of a service: one wait for sockets, commands and deadlines.
//!
//! A [`Service`] runs in one thread, so it needs no locks. Work that may block on a disk, a name server or a
//! person runs in other threads. These threads send commands, which the loop runs between two polls of the
//! sockets. Loops share nothing, so a program may run one in each thread.

use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::Duration;

use bcnet_transport::Time;
use bcnet_udp::Clock;
use mio::event::Source;
use mio::{Events, Interest, Poll, Registry, Token, Waker};

/// The part of a program that an event loop runs.
pub(crate) trait Service: Sized {
    /// Returns the time of the next turn, if nothing arrives before.
    fn next_timeout(&self) -> Option<Time>;

    /// Marks a socket as readable: datagrams have arrived there.
    fn on_readable(&mut self, socket: u32);

    /// Handles received datagrams, and everything that is due.
    fn turn(&mut self, now: Time);

    /// Returns whether the service has ended.
    fn is_finished(&self, now: Time) -> bool;
}

/// Waits for sockets, commands and deadlines, and runs a service.
pub(crate) struct EventLoop<S> {
    poll: Poll,
    events: Events,
    clock: Clock,
    commands: Receiver<Command<S>>,
    sender: CommandSender<S>,
    /// `true` if commands are left from the last turn.
    has_commands: bool,
    /// The time of the last turn.
    last_turn: Time,
    /// The last reading of the clock. `suspended` is the sum of all suspends, which does not count.
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

    /// Returns a handle that sends commands to the service from any thread.
    pub(crate) fn command_sender(&self) -> CommandSender<S> {
        self.sender.clone()
    }

    /// Returns a handle that adds and removes sockets, also while the loop runs.
    pub(crate) fn registrar(&self) -> io::Result<Registrar> {
        self.poll.registry().try_clone().map(Registrar)
    }

    /// Runs `service` until it has ended.
    pub(crate) fn run(&mut self, service: &mut S) -> io::Result<()> {
        while !service.is_finished(self.last_turn) {
            self.turn(service)?;
        }
        Ok(())
    }

    /// Waits for the next event, command or deadline, then runs one turn.
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

    /// Returns the time of the service after a wait of at most `wait`.
    ///
    /// A signal that interrupts the wait is not an error; the time until then counts as waited.
    fn read_clock_after_wait(&mut self, waited: io::Result<()>, wait: Duration) -> io::Result<Time> {
        match waited {
            Err(error) if error.kind() != ErrorKind::Interrupted => Err(error),
            _ => Ok(self.read_clock(wait)),
        }
    }

    /// Returns the time of the service, which should be at most `expected` after the last reading.
    ///
    /// A much later time means that the machine or this process was suspended. That time does not count: no
    /// datagram could arrive, so no peer may time out because of it.
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
                "the machine or this process was suspended; timeouts do not count this time"
            );
        }
        Time::ZERO + now.since(Time::ZERO + self.suspended)
    }

    /// Runs commands of other threads in order, up to a time limit. Returns whether there may be more.
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

/// A command of another thread.
///
/// It must not block. Long work is split into several commands, so that datagrams are handled in between.
type Command<S> = Box<dyn FnOnce(&mut S, Time) + Send>;

/// Sends commands to a service, from any thread.
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
    /// Sends a command. It is dropped if the service has ended.
    pub(crate) fn send(&self, command: impl FnOnce(&mut S, Time) + Send + 'static) {
        if self.sender.send(Box::new(command)).is_ok() {
            // The waker fails only if the loop has ended.
            drop(self.waker.wake());
        }
    }

    /// Sends a command and waits for its result. Returns `None` if the service has ended or does not answer.
    pub(crate) fn call<T: Send + 'static>(
        &self,
        command: impl FnOnce(&mut S, Time) -> T + Send + 'static,
    ) -> Option<T> {
        let (reply, answer) = mpsc::sync_channel(1);
        // The caller may have stopped waiting.
        self.send(move |service, now| drop(reply.try_send(command(service, now))));
        answer.recv_timeout(REPLY_TIMEOUT).ok()
    }
}

/// Adds and removes the sockets of an event loop.
#[derive(Debug)]
pub(crate) struct Registrar(Registry);

impl Registrar {
    /// Starts to wait for `socket`, which is reported under this number.
    pub(crate) fn add(&self, socket: &mut impl Source, number: u32) -> io::Result<()> {
        self.0.register(socket, Token(number as usize), Interest::READABLE)
    }

    /// Stops waiting for `socket`.
    pub(crate) fn remove(&self, socket: &mut impl Source) {
        // An error does no harm: the caller closes the socket next, which removes it too.
        drop(self.0.deregister(socket));
    }
}

const WAKE_TOKEN: Token = Token(usize::MAX);
const MAX_WAIT: Duration = Duration::from_secs(60);
/// A delay of this much beyond the expected time is treated as a suspend.
const MIN_SUSPEND: Duration = Duration::from_secs(2);
/// After this much time in commands, datagrams are handled before the next command.
const COMMAND_TIME_LIMIT: Duration = Duration::from_micros(50);
/// The time limit for a service's answer.
pub(crate) const REPLY_TIMEOUT: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    /// A service that counts its turns.
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
        assert_eq!(caller.join().expect("no panic"), Some(0), "commands run before the turn");
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
        // The system waits in whole milliseconds.
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
