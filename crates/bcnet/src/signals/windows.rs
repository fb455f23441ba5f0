//! What Windows tells a program in a console: Ctrl-C, Ctrl-Break, the window is closed, the user logs off.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use std::{io, thread};

use super::Signal;
use crate::win32::{self, ConsoleEvent};

type Handler = Box<dyn FnMut(Signal, i32) + Send>;

static HANDLER: Mutex<Option<Handler>> = Mutex::new(None);
static IGNORES_CONSOLE: AtomicBool = AtomicBool::new(false);

/// What asks for anything but the end does not exist here.
pub(super) fn listen(wanted: &[Signal], handle: impl FnMut(Signal, i32) + Send + 'static) -> io::Result<()> {
    if wanted.contains(&Signal::Stop) {
        *HANDLER.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(handle));
        if !IGNORES_CONSOLE.load(Ordering::Relaxed) {
            win32::listen_to_console(tell)?;
        }
    }
    Ok(())
}

/// Has what a console tells mean nothing. A service hears of everyone who logs off, and ends when its manager says so.
pub(crate) fn ignore_console() {
    IGNORES_CONSOLE.store(true, Ordering::Relaxed);
}

/// Does what a signal to stop does.
pub(crate) fn stop() {
    if let Some(handle) = HANDLER.lock().unwrap_or_else(PoisonError::into_inner).as_mut() {
        handle(Signal::Stop, EXIT_CODE);
    }
}

/// Called by the system, in a thread of its own.
fn tell(event: ConsoleEvent) {
    stop();
    match event {
        ConsoleEvent::Break => {}
        // The process is ended as soon as this function returns, and some seconds later if it does not: time for goodbyes,
        // at whose end the process ends by itself.
        ConsoleEvent::Close => loop {
            thread::sleep(Duration::from_secs(60));
        },
    }
}

/// As that of a program which Ctrl-C ends elsewhere.
const EXIT_CODE: i32 = 130;
