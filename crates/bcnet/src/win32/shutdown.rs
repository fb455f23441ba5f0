//! What asks a program to end: the console, and the session of the user.
//!
//! A console tells of the end of the session only programs that have not loaded `user32.dll`. This one has, through crates that
//! want a terminal's keys, and so Windows asks its windows. It has one for that, which is never seen.

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

/// How a program is asked to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ShutdownRequest {
    /// By a person or another program: Ctrl-C, Ctrl-Break, `taskkill`.
    Requested,
    /// By the system, which ends it as soon as the listener returns: the window of the console is closed, the user logs off, or
    /// the machine shuts down.
    Imminent,
}

static LISTENER: OnceLock<fn(ShutdownRequest)> = OnceLock::new();

/// Has `listener` called whenever the program is asked to end, in threads that are not the caller's. The first listener stays.
pub(crate) fn listen_for_shutdown(listener: fn(ShutdownRequest)) -> io::Result<()> {
    if LISTENER.set(listener).is_err() {
        return Ok(());
    }
    // SAFETY: the handler is a function, which is there as long as the process is.
    check(unsafe { SetConsoleCtrlHandler(Some(handle_console), 1) })?;
    // Where nothing can have a window, no session ends.
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

/// Makes the window that hears of the end of the session, with a thread of its own, and returns when it is there.
fn create_hidden_window() -> io::Result<()> {
    let (sender, receiver) = sync_channel(1);
    thread::Builder::new().name("session end".into()).spawn(move || run_window(&sender))?;
    receiver.recv().unwrap_or_else(|_| Err(io::ErrorKind::Other.into()))
}

fn run_window(made: &SyncSender<io::Result<()>>) {
    let class =
        WNDCLASSW { lpfnWndProc: Some(handle_message), lpszClassName: WINDOW_CLASS, ..Default::default() };
    // SAFETY: the pointer is to a variable of this function, with a function and a name that are always there.
    let class_id = unsafe { RegisterClassW(&raw const class) };
    let no_one = ptr::null_mut();
    // It has no parent, for only windows at the top are told, and no style, so it is not seen.
    // SAFETY: the names are constants that end with a zero, and all other pointers are null, which is allowed.
    let window = unsafe {
        CreateWindowExW(0, WINDOW_CLASS, WINDOW_CLASS, 0, 0, 0, 0, 0, no_one, no_one, no_one, ptr::null())
    };
    let is_made = class_id != 0 && !window.is_null();
    drop(made.send(if is_made { Ok(()) } else { Err(io::Error::last_os_error()) }));
    let mut message = MSG::default();
    // SAFETY: the pointer is to a variable of this function. Without a window there is an error, which is below zero.
    while is_made && unsafe { GetMessageW(&raw mut message, ptr::null_mut(), 0, 0) } > 0 {
        // SAFETY: as before; the system has filled it.
        unsafe { DispatchMessageW(&raw const message) };
    }
}

/// Called by the system, in the thread of the window.
unsafe extern "system" fn handle_message(
    window: HWND,
    message: u32,
    wparam: WPARAM,
    lparam: LPARAM,
) -> LRESULT {
    match message {
        // Whether the session may end.
        WM_QUERYENDSESSION => 1,
        // It does; otherwise another program did not let it.
        WM_ENDSESSION if wparam != 0 => {
            // Or else who has no window to be seen is ended without being waited for.
            // SAFETY: the window is one of this thread, and the text is a constant that ends with a zero.
            unsafe { ShutdownBlockReasonCreate(window, w!("Players are told goodbye.")) };
            notify(ShutdownRequest::Imminent);
            0
        }
        WM_CLOSE => {
            notify(ShutdownRequest::Requested);
            0
        }
        // SAFETY: this is what the system has called with.
        _ => unsafe { DefWindowProcW(window, message, wparam, lparam) },
    }
}

const WINDOW_CLASS: *const u16 = w!("bcnet");
