//! What Windows asks to end for: Ctrl-C, Ctrl-Break, the window is closed, the user logs off, the machine shuts down.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use std::{io, thread};

use super::Signal;
use crate::win32::{self, Ending};

type Handler = Box<dyn FnMut(Signal, i32) + Send>;

static HANDLER: Mutex<Option<Handler>> = Mutex::new(None);
static IGNORES_CONSOLE: AtomicBool = AtomicBool::new(false);
/// Whether the handler was told to stop.
static IS_ENDING: AtomicBool = AtomicBool::new(false);

/// What asks for anything but the end does not exist here. The last handler takes the place of others.
pub(super) fn listen(wanted: &[Signal], handle: impl FnMut(Signal, i32) + Send + 'static) -> io::Result<()> {
    if wanted.contains(&Signal::Stop) {
        *HANDLER.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(handle));
        IS_ENDING.store(false, Ordering::Relaxed);
        if !IGNORES_CONSOLE.load(Ordering::Relaxed) {
            win32::listen_to_endings(tell)?;
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
fn tell(ending: Ending) {
    begin(ending);
    if ending == Ending::Imminent {
        // The process is ended as soon as this function returns, and maybe some seconds later if it does not: time for goodbyes,
        // at whose end the process ends by itself.
        thread::sleep(PATIENCE);
    }
}

/// The console may tell of the end of a session that its window has told of already: nobody has asked twice.
fn begin(ending: Ending) {
    if ending == Ending::Asked || !IS_ENDING.load(Ordering::Relaxed) {
        stop();
    }
}

/// As long as the service manager is asked to wait.
const PATIENCE: Duration = Duration::from_secs(20);
/// As that of a program which Ctrl-C ends elsewhere.
const EXIT_CODE: i32 = 130;

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn only_who_asks_twice_is_heard_twice_and_the_last_handler_hears_all() {
        let (sender, first) = channel();
        listen(&[Signal::Stop], move |signal, _| sender.send(signal).expect("is heard")).expect("listens");
        let heard = |ending| {
            begin(ending);
            first.try_iter().count()
        };
        let told = [Ending::Imminent, Ending::Imminent, Ending::Asked, Ending::Imminent, Ending::Asked];
        assert_eq!(told.map(heard), [1, 0, 1, 0, 1]);
        let (sender, second) = channel();
        listen(&[Signal::Stop], move |signal, _| sender.send(signal).expect("is heard")).expect("listens");
        assert_eq!(heard(Ending::Imminent), 0);
        assert_eq!(second.try_iter().count(), 1);
    }
}
