//! What Windows asks to end for: Ctrl-C, Ctrl-Break, the window is closed, the user logs off, the machine shuts down.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use std::{io, thread};

use super::Signal;
use crate::win32::{self, ShutdownRequest};

type SignalHandler = Box<dyn FnMut(Signal, i32) + Send>;

static HANDLER: Mutex<Option<SignalHandler>> = Mutex::new(None);
static IGNORES_CONSOLE: AtomicBool = AtomicBool::new(false);
/// Whether the handler was told to stop.
static IS_ENDING: AtomicBool = AtomicBool::new(false);

/// What asks for anything but the end does not exist here. The last handler takes the place of others.
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

/// Has what a console and a session tell mean nothing. A service hears of everyone who logs off, and ends when its manager says
/// so.
pub(crate) fn ignore_console() {
    IGNORES_CONSOLE.store(true, Ordering::Relaxed);
}

/// Does what a signal to stop does.
pub(crate) fn stop() {
    if let Some(handle) = HANDLER.lock().unwrap_or_else(PoisonError::into_inner).as_mut() {
        IS_ENDING.store(true, Ordering::Relaxed);
        handle(Signal::Stop, EXIT_CODE);
    }
}

/// Called in a thread that has nothing else to do.
fn on_ending(ending: ShutdownRequest) {
    stop_once(ending);
    if ending == ShutdownRequest::Imminent {
        // The process is ended as soon as this function returns, and maybe some seconds later if it does not: time for goodbyes,
        // at whose end the process ends by itself.
        thread::sleep(SHUTDOWN_WAIT);
    }
}

/// The console may tell of the end of a session that its window has told of already: nobody has asked twice.
fn stop_once(ending: ShutdownRequest) {
    if ending == ShutdownRequest::Requested || !IS_ENDING.load(Ordering::Relaxed) {
        stop();
    }
}

/// As long as the service manager is asked to wait.
const SHUTDOWN_WAIT: Duration = Duration::from_secs(20);
/// As that of a program which Ctrl-C ends elsewhere.
const EXIT_CODE: i32 = 130;

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn only_explicit_requests_repeat_and_last_handler_wins() {
        let (sender, first) = channel();
        listen(&[Signal::Stop], move |signal, _| sender.send(signal).expect("is heard")).expect("listens");
        let heard = |ending| {
            stop_once(ending);
            first.try_iter().count()
        };
        let told = [
            ShutdownRequest::Imminent,
            ShutdownRequest::Imminent,
            ShutdownRequest::Requested,
            ShutdownRequest::Imminent,
            ShutdownRequest::Requested,
        ];
        assert_eq!(told.map(heard), [1, 0, 1, 0, 1]);
        let (sender, second) = channel();
        listen(&[Signal::Stop], move |signal, _| sender.send(signal).expect("is heard")).expect("listens");
        assert_eq!(heard(ShutdownRequest::Imminent), 0);
        assert_eq!(second.try_iter().count(), 1);
    }
}
