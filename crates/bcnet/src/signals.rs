//! What the system tells a running service.

#[cfg_attr(unix, path = "signals/unix.rs")]
#[cfg_attr(windows, path = "signals/windows.rs")]
mod system;

use std::{io, process};

#[cfg(windows)]
pub(crate) use system::{ignore_console, stop};

/// What a signal asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Signal {
    /// SIGTERM or SIGINT; on Windows Ctrl-C, Ctrl-Break, a closed window, the end of the session: to end. A second one ends
    /// the process at once.
    Stop,
    /// SIGHUP: to read files again. Windows has none.
    Reload,
    /// SIGUSR1: to print the queues. Windows has none.
    Dump,
}

/// What is done about a signal. It must not wait, for the end must be heard.
pub(crate) type Handler = Box<dyn FnMut() + Send>;

/// Listens to these signals from now on, in a thread of its own.
pub(crate) fn listen(mut handlers: Vec<(Signal, Handler)>) -> io::Result<()> {
    let wanted: Vec<Signal> = handlers.iter().map(|(signal, _)| *signal).collect();
    let mut is_ending = false;
    listen_to_each(&wanted, move |received, exit_code| {
        let Some((_, handle)) = handlers.iter_mut().find(|(signal, _)| *signal == received) else { return };
        if received == Signal::Stop {
            // Whoever asks twice does not want to wait for goodbyes.
            if is_ending {
                process::exit(exit_code);
            }
            is_ending = true;
        }
        handle();
    })
}

/// Has `handle` hear each of these signals from now on, with the exit code of a process that it ends, in a thread of its own.
pub(crate) fn listen_to_each(
    signals: &[Signal],
    handle: impl FnMut(Signal, i32) + Send + 'static,
) -> io::Result<()> {
    system::listen(signals, handle)
}
