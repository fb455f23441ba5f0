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
use mio::event::Source;
use mio::{Events, Interest, Poll, Registry, Token, Waker};

use crate::clock::Clock;

/// What an event loop drives.
pub(crate) trait Service: Sized {
    /// Returns when the next turn is due, whatever arrives.
    fn next_timeout(&self) -> Option<Time>;

    /// Something has arrived at a socket that was empty, or more at one that was not.
    fn note_readable(&mut self, socket: u32);

    /// Commands were carried out, and may have changed anything.
    fn note_commands(&mut self) {}

    /// Takes what has arrived, and does what is due.
    fn turn(&mut self, now: Time);

    /// Returns whether there is nothing more to do.
    fn is_over(&self, now: Time) -> bool;
}

/// Waits for everything that a service reacts to.
pub(crate) struct EventLoop<S> {
    poll: Poll,
    events: Events,
    clock: Clock,
    commands: Receiver<Command<S>>,
    sender: CommandSender<S>,
    /// When the last turn was.
    turned: Time,
}

impl<S: Service> EventLoop<S> {
    pub(crate) fn new(clock: Clock) -> io::Result<Self> {
        let poll = Poll::new()?;
        let waker = Arc::new(Waker::new(poll.registry(), WAKE)?);
        let (sender, commands) = mpsc::channel();
        let sender = CommandSender { sender, waker };
        Ok(Self { poll, events: Events::with_capacity(1024), clock, commands, sender, turned: Time::ZERO })
    }

    /// Hands commands to the service, from any thread.
    pub(crate) fn commands(&self) -> CommandSender<S> {
        self.sender.clone()
    }

    /// Tells the loop which sockets to wait for, now and while it runs.
    pub(crate) fn registrar(&self) -> io::Result<Registrar> {
        self.poll.registry().try_clone().map(Registrar)
    }

    /// Drives `service` until it is over.
    pub(crate) fn run(&mut self, service: &mut S) -> io::Result<()> {
        while !service.is_over(self.turned) {
            self.turn(service)?;
        }
        Ok(())
    }

    /// Waits until something is to be done, and has it done.
    pub(crate) fn turn(&mut self, service: &mut S) -> io::Result<()> {
        let wait = service
            .next_timeout()
            .map_or(LONGEST_WAIT, |next| next.since(self.clock.now()).min(LONGEST_WAIT));
        match self.poll.poll(&mut self.events, Some(wait)) {
            Err(error) if error.kind() == ErrorKind::Interrupted => return Ok(()),
            result => result?,
        }
        let now = self.clock.now();
        self.turned = now;
        for event in &self.events {
            match event.token() {
                WAKE => dispatch(&self.commands, service, now),
                Token(socket) => service.note_readable(socket as u32),
            }
        }
        service.turn(now);
        Ok(())
    }
}

/// Carries out what other threads have asked for.
fn dispatch<S: Service>(commands: &Receiver<Command<S>>, service: &mut S, now: Time) {
    while let Ok(command) = commands.try_recv() {
        command(service, now);
    }
    service.note_commands();
}

/// Something that another thread wants done. It must not wait.
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
    pub(crate) fn give(&self, command: impl FnOnce(&mut S, Time) + Send + 'static) {
        if self.sender.send(Box::new(command)).is_ok() {
            // A loop that is gone does not have to be woken.
            drop(self.waker.wake());
        }
    }

    /// Has something done and waits for the result. Returns `None` if the service is over.
    pub(crate) fn ask<T: Send + 'static>(
        &self,
        question: impl FnOnce(&mut S, Time) -> T + Send + 'static,
    ) -> Option<T> {
        self.start_asking(question).wait()
    }

    /// Has something done. The result can be waited for.
    pub(crate) fn start_asking<T: Send + 'static>(
        &self,
        question: impl FnOnce(&mut S, Time) -> T + Send + 'static,
    ) -> Pending<T> {
        let (reply, answer) = mpsc::sync_channel(1);
        // Whoever asked may be gone.
        self.give(move |service, now| drop(reply.try_send(question(service, now))));
        Pending(answer)
    }
}

/// An answer that is still to come.
#[derive(Debug)]
pub(crate) struct Pending<T>(Receiver<T>);

impl<T> Pending<T> {
    /// Waits for the answer. Returns `None` if the service is over.
    pub(crate) fn wait(self) -> Option<T> {
        self.0.recv_timeout(PATIENCE).ok()
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

const WAKE: Token = Token(usize::MAX);
const LONGEST_WAIT: Duration = Duration::from_secs(60);
/// How long a service may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    /// Counts its turns.
    #[derive(Default)]
    struct Counter {
        turns: u32,
        commands: u32,
        next: Option<Time>,
        is_over: bool,
    }

    impl Service for Counter {
        fn next_timeout(&self) -> Option<Time> {
            self.next
        }

        fn note_readable(&mut self, _: u32) {}

        fn note_commands(&mut self) {
            self.commands += 1;
        }

        fn turn(&mut self, _: Time) {
            self.turns += 1;
        }

        fn is_over(&self, _: Time) -> bool {
            self.is_over
        }
    }

    #[test]
    fn a_command_of_another_thread_wakes_the_loop_and_is_answered() {
        let mut event_loop = EventLoop::new(Clock::start()).expect("a loop");
        let commands = event_loop.commands();
        let asking = thread::spawn(move || {
            let turns = commands.ask(|counter: &mut Counter, _| counter.turns);
            commands.give(|counter, _| counter.is_over = true);
            turns
        });
        let mut counter = Counter::default();
        event_loop.run(&mut counter).expect("run");
        assert_eq!(asking.join().expect("no panic"), Some(0), "commands come before the turn");
        assert!(counter.commands >= 1 && counter.turns >= 1);
    }

    #[test]
    fn a_turn_comes_when_it_is_due_and_nothing_has_arrived() {
        let clock = Clock::start();
        let mut event_loop = EventLoop::new(clock).expect("a loop");
        let due = clock.now() + Duration::from_millis(30);
        let mut counter = Counter { next: Some(due), ..Counter::default() };
        event_loop.turn(&mut counter).expect("a turn");
        // The system counts whole milliseconds.
        assert!(clock.now() + Duration::from_millis(1) >= due);
        assert_eq!(counter.turns, 1);
    }

    #[test]
    fn nobody_waits_for_a_service_that_is_over() {
        let event_loop = EventLoop::<Counter>::new(Clock::start()).expect("a loop");
        let commands = event_loop.commands();
        drop(event_loop);
        assert_eq!(commands.ask(|counter, _| counter.turns), None);
    }
}
