//! Shutdown requests: from the console, and from the user's session.
//!
//! A console reports the end of a session only to programs that have not loaded `user32.dll`. This program
//! has loaded it, through crates for terminal input. To such programs Windows reports the end only through
//! their windows, so this module creates a hidden window.

use std::sync::OnceLock;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::{io, ptr, thread};

use windows_sys::Win32::Foundation::{HWND, LPARAM, LRESULT, WPARAM};
use windows_sys::Win32::System::Console::{CTRL_BREAK_EVENT, CTRL_C_EVENT, SetConsoleCtrlHandler};
use windows_sys::Win32::System::Shutdown::ShutdownBlockReasonCreate;
use windows_sys::Win32::UI::WindowsAndMessaging::{
    CreateWindowExW, DefWindowProcW, DispatchMessageW, GetMessageW, MSG, RegisterClassW, WM_CLOSE,
    WM_ENDSESSION, WM_QUERYENDSESSION, WNDCLASSW,
};
use windows_sys::core::{BOOL, w};

use super::check;

/// The kind of a shutdown request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ShutdownRequest {
    /// By a person or another program: Ctrl-C, Ctrl-Break, `taskkill`.
    Requested,
    /// By the system, which ends the process as soon as the listener returns.
    ///
    /// The reasons are a closed console window, logging off, and shutting down.
    Imminent,
}

static LISTENER: OnceLock<fn(ShutdownRequest)> = OnceLock::new();

/// Calls `listener` for each shutdown request, in other threads. The first listener stays.
pub(crate) fn listen_for_shutdown(listener: fn(ShutdownRequest)) -> io::Result<()> {
    if LISTENER.set(listener).is_err() {
        return Ok(());
    }
    // SAFETY: the handler is a function, which exists as long as the process.
    check(unsafe { SetConsoleCtrlHandler(Some(handle_console), 1) })?;
    // Without a desktop there can be no window, and no session ends.
    drop(create_hidden_window());
    Ok(())
}

fn notify(request: ShutdownRequest) {
    if let Some(listener) = LISTENER.get() {
        listener(request);
    }
}

extern "system" fn handle_console(kind: u32) -> BOOL {
    notify(if matches!(kind, CTRL_C_EVENT | CTRL_BREAK_EVENT) {
        ShutdownRequest::Requested
    } else {
        ShutdownRequest::Imminent
    });
    1
}

/// Creates the hidden window and its thread. Returns when the window exists.
fn create_hidden_window() -> io::Result<()> {
    let (sender, receiver) = sync_channel(1);
    thread::Builder::new().name("session end".into()).spawn(move || run_window(&sender))?;
    receiver.recv().unwrap_or_else(|_| Err(io::ErrorKind::Other.into()))
}

fn run_window(made: &SyncSender<io::Result<()>>) {
    let class =
        WNDCLASSW { lpfnWndProc: Some(handle_message), lpszClassName: WINDOW_CLASS, ..Default::default() };
    // SAFETY: the pointer is to a variable of this function, with a static function and a static name.
    let class_id = unsafe { RegisterClassW(&raw const class) };
    let no_one = ptr::null_mut();
    // The window has no parent, because only top-level windows receive the message. It has no style, so it is
    // invisible.
    // SAFETY: the names are zero-terminated constants, and all other pointers are null, which is allowed.
    let window = unsafe {
        CreateWindowExW(0, WINDOW_CLASS, WINDOW_CLASS, 0, 0, 0, 0, 0, no_one, no_one, no_one, ptr::null())
    };
    let is_made = class_id != 0 && !window.is_null();
    drop(made.send(if is_made { Ok(()) } else { Err(io::Error::last_os_error()) }));
    let mut message = MSG::default();
    // SAFETY: the pointer is to a variable of this function. Without a window the result is an error, which
    // is below zero.
    while is_made && unsafe { GetMessageW(&raw mut message, ptr::null_mut(), 0, 0) } > 0 {
        // SAFETY: the system has filled the variable, and it is still valid.
        unsafe { DispatchMessageW(&raw const message) };
    }
}

/// Handles a message of the hidden window. The system calls it in the window's thread.
unsafe extern "system" fn handle_message(
    window: HWND,
    message: u32,
    wparam: WPARAM,
    lparam: LPARAM,
) -> LRESULT {
    match message {
        // The system asks whether the session may end: yes.
        WM_QUERYENDSESSION => 1,
        // The session ends. With zero, another program has prevented that.
        WM_ENDSESSION if wparam != 0 => {
            // Without a reason, the system would end a program without a visible window at once.
            // SAFETY: the window belongs to this thread, and the text is a zero-terminated constant.
            unsafe { ShutdownBlockReasonCreate(window, w!("Disconnecting players.")) };
            notify(ShutdownRequest::Imminent);
            0
        }
        WM_CLOSE => {
            notify(ShutdownRequest::Requested);
            0
        }
        // SAFETY: these are the arguments from the system.
        _ => unsafe { DefWindowProcW(window, message, wparam, lparam) },
    }
}

const WINDOW_CLASS: *const u16 = w!("bcnet");
