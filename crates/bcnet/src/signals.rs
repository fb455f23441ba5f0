//! What the system tells a running service.

use std::{io, process, thread};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1};
use signal_hook::iterator::Signals;

/// What a signal asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Signal {
    /// SIGTERM or SIGINT: to end. A second one ends the process at once.
    Stop,
    /// SIGHUP: to read files again.
    Reload,
    /// SIGUSR1: to print the queues.
    Dump,
}

impl Signal {
    const fn numbers(self) -> &'static [i32] {
        match self {
            Self::Stop => &[SIGINT, SIGTERM],
            Self::Reload => &[SIGHUP],
            Self::Dump => &[SIGUSR1],
        }
    }
}

/// What is done about a signal. It must not wait, for the end must be heard.
pub(crate) type Handler = Box<dyn FnMut() + Send>;

/// Listens to these signals from now on, in a thread of its own.
pub(crate) fn listen(mut handlers: Vec<(Signal, Handler)>) -> io::Result<()> {
    let mut signals = Signals::new(handlers.iter().flat_map(|(signal, _)| signal.numbers()))?;
    let listen = move || {
        let mut is_ending = false;
        for number in signals.forever() {
            let Some((signal, handle)) =
                handlers.iter_mut().find(|(signal, _)| signal.numbers().contains(&number))
            else {
                continue;
            };
            if *signal == Signal::Stop {
                // Whoever asks twice does not want to wait for goodbyes.
                if is_ending {
                    process::exit(128 + number);
                }
                is_ending = true;
            }
            handle();
        }
    };
    thread::Builder::new().name("signals".into()).spawn(listen).map(drop)
}
