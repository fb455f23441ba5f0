//! Receives Unix signals in a separate thread, and maps them to [`Signal`].

use std::{io, thread};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1};
use signal_hook::iterator::Signals;

use super::Signal;

/// Returns the Unix signals that have this meaning.
const fn signal_numbers(signal: Signal) -> &'static [i32] {
    match signal {
        Signal::Stop => &[SIGINT, SIGTERM],
        Signal::Reload => &[SIGHUP],
        Signal::Dump => &[SIGUSR1],
    }
}

/// Calls `handle` for each wanted signal, with the exit code that a shell reports for it.
pub(super) fn listen(
    wanted: &[Signal],
    mut handle: impl FnMut(Signal, i32) + Send + 'static,
) -> io::Result<()> {
    let wanted = wanted.to_vec();
    let mut signals = Signals::new(wanted.iter().flat_map(|signal| signal_numbers(*signal)))?;
    let listen = move || {
        for number in signals.forever() {
            if let Some(signal) = wanted.iter().find(|signal| signal_numbers(**signal).contains(&number)) {
                handle(*signal, 128 + number);
            }
        }
    };
    thread::Builder::new().name("signals".into()).spawn(listen).map(drop)
}
