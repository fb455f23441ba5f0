//! Signals of the system to a running service.

#[cfg_attr(unix, path = "signals/unix.rs")]
#[cfg_attr(windows, path = "signals/windows.rs")]
mod system;

use std::{io, process};

#[cfg(windows)]
pub(crate) use system::{ignore_console, stop};

/// A request that a signal carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Signal {
    /// Stop. A second signal ends the process at once.
    ///
    /// On Unix SIGTERM or SIGINT; on Windows Ctrl-C, Ctrl-Break, a closed window, or the end of the session.
    Stop,
    /// Read files again: SIGHUP. Windows has no such signal.
    Reload,
    /// Print the queues: SIGUSR1. Windows has no such signal.
    Dump,
}

/// The handler of a signal. It must not block, because it would delay the handling of a stop.
pub(crate) type Handler = Box<dyn FnMut() + Send>;

/// Starts a thread that calls these handlers.
pub(crate) fn listen(mut handlers: Vec<(Signal, Handler)>) -> io::Result<()> {
    let wanted: Vec<Signal> = handlers.iter().map(|(signal, _)| *signal).collect();
    let mut is_ending = false;
    listen_to_each(&wanted, move |received, exit_code| {
        let Some((_, handle)) = handlers.iter_mut().find(|(signal, _)| *signal == received) else { return };
        if received == Signal::Stop {
            // With a second signal the operator does not want to wait for a graceful shutdown.
            if is_ending {
                process::exit(exit_code);
            }
            is_ending = true;
        }
        handle();
    })
}

/// Starts a thread that calls `handle` for each signal.
///
/// The second argument of `handle` is the exit code for a process that the signal ends.
pub(crate) fn listen_to_each(
    signals: &[Signal],
    handle: impl FnMut(Signal, i32) + Send + 'static,
) -> io::Result<()> {
    system::listen(signals, handle)
}
