//! Stops a running program as its user does.

use std::process::Command;

/// Starts the program in a new process group, so that signals to it do not reach the test.
pub(crate) fn in_own_process_group(command: &mut Command) -> &mut Command {
    #[cfg(windows)]
    std::os::windows::process::CommandExt::creation_flags(command, CREATE_NEW_PROCESS_GROUP);
    command
}

/// Sends a signal by its name without `SIG`.
#[cfg(unix)]
pub(crate) fn signal(process: u32, name: &str) {
    let sent = Command::new("sh").args(["-c", &format!("kill -{name} {process}")]).status();
    assert!(sent.expect("a shell").success());
}

/// Sends Ctrl-Break, which can go to a single program, or ends the process. Windows has no other signals.
#[cfg(windows)]
pub(crate) fn signal(process: u32, name: &str) {
    use windows_sys::Win32::System::Console::{CTRL_BREAK_EVENT, GenerateConsoleCtrlEvent};
    match name {
        "INT" | "TERM" => {
            #[expect(unsafe_code, reason = "the standard library has no such call")]
            // SAFETY: the function takes two numbers.
            let sent = unsafe { GenerateConsoleCtrlEvent(CTRL_BREAK_EVENT, process) };
            assert_ne!(sent, 0, "{}", std::io::Error::last_os_error());
        }
        "KILL" => {
            let killed = Command::new("taskkill").args(["/F", "/PID", &process.to_string()]).output();
            assert!(killed.expect("taskkill").status.success());
        }
        other => panic!("no such signal: {other}"),
    }
}

#[cfg(windows)]
const CREATE_NEW_PROCESS_GROUP: u32 = 0x200;
