//! Stop requests on Windows: Ctrl-C, Ctrl-Break, a closed window, logging off, shutting down.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use std::{io, thread};

use super::Signal;
use crate::win32::{self, ShutdownRequest};

type SignalHandler = Box<dyn FnMut(Signal, i32) + Send>;

static HANDLER: Mutex<Option<SignalHandler>> = Mutex::new(None);
static IGNORES_CONSOLE: AtomicBool = AtomicBool::new(false);
/// `true` if the handler has received a stop.
static IS_ENDING: AtomicBool = AtomicBool::new(false);

/// Calls `handle` for stop requests. Windows has no other signals. A later handler replaces an earlier one.
pub(super) fn listen(wanted: &[Signal], handle: impl FnMut(Signal, i32) + Send + 'static) -> io::Result<()> {
    if wanted.contains(&Signal::Stop) {
        *HANDLER.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(handle));
        IS_ENDING.store(false, Ordering::Relaxed);
        if !IGNORES_CONSOLE.load(Ordering::Relaxed) {
            win32::listen_for_shutdown(on_ending)?;
        }
    }
    Ok(())
}

/// Ignores requests of the console and the session.
///
/// A service receives them when any user logs off, and must stop only on request of its manager.
pub(crate) fn ignore_console() {
    IGNORES_CONSOLE.store(true, Ordering::Relaxed);
}

/// Acts like a signal to stop.
pub(crate) fn stop() {
    if let Some(handle) = HANDLER.lock().unwrap_or_else(PoisonError::into_inner).as_mut() {
        IS_ENDING.store(true, Ordering::Relaxed);
        handle(Signal::Stop, EXIT_CODE);
    }
}

/// Handles a request. The system calls it in a separate thread.
fn on_ending(ending: ShutdownRequest) {
    stop_once(ending);
    if ending == ShutdownRequest::Imminent {
        // The system ends the process as soon as this function returns, or some seconds later. The wait
        // leaves time for a graceful shutdown, at whose end the process exits.
        thread::sleep(SHUTDOWN_WAIT);
    }
}

/// Passes on a request once.
///
/// The console and the hidden window may both report the end of a session, which is only one request.
fn stop_once(ending: ShutdownRequest) {
    if ending == ShutdownRequest::Requested || !IS_ENDING.load(Ordering::Relaxed) {
        stop();
    }
}

/// The longest time for a graceful shutdown. The service manager is asked to wait as long.
const SHUTDOWN_WAIT: Duration = Duration::from_secs(20);
/// The exit code of programs that Ctrl-C ends on other systems.
const EXIT_CODE: i32 = 130;

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn only_explicit_requests_repeat_and_last_handler_wins() {
        let (sender, first) = channel();
        listen(&[Signal::Stop], move |signal, _| sender.send(signal).expect("is received")).expect("listens");
        let received = |ending| {
            stop_once(ending);
            first.try_iter().count()
        };
        let requests = [
            ShutdownRequest::Imminent,
            ShutdownRequest::Imminent,
            ShutdownRequest::Requested,
            ShutdownRequest::Imminent,
            ShutdownRequest::Requested,
        ];
        assert_eq!(requests.map(received), [1, 0, 1, 0, 1]);
        let (sender, second) = channel();
        listen(&[Signal::Stop], move |signal, _| sender.send(signal).expect("is received")).expect("listens");
        assert_eq!(received(ShutdownRequest::Imminent), 0);
        assert_eq!(second.try_iter().count(), 1);
    }
}
