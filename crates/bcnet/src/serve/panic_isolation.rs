//! Limits a panic to the session in which it happened, and logs it.

use std::any::Any;
use std::backtrace::{Backtrace, BacktraceStatus};
use std::panic::{self, AssertUnwindSafe};
use std::thread;

/// Runs `act`. Returns the message of a panic as an error.
///
/// After a panic the session may be in any state, and must be replaced.
pub(super) fn catch_panic<T>(act: impl FnOnce() -> T) -> Result<T, String> {
    panic::catch_unwind(AssertUnwindSafe(act)).map_err(|payload| panic_message(payload.as_ref()).to_owned())
}

/// Logs every panic with its location, and with a backtrace if `RUST_BACKTRACE` is set.
pub(super) fn log_panics() {
    panic::set_hook(Box::new(|panic| {
        let current = thread::current();
        let backtrace = Backtrace::capture();
        let backtrace = (backtrace.status() == BacktraceStatus::Captured).then(|| backtrace.to_string());
        tracing::error!(
            event = "panic",
            thread = current.name(),
            location = panic.location().map(ToString::to_string),
            message = panic_message(panic.payload()),
            backtrace,
        );
    }));
}

fn panic_message(payload: &(dyn Any + Send)) -> &str {
    let text = payload.downcast_ref::<&str>().copied();
    text.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn panic_message_is_returned() {
        assert_eq!(catch_panic(|| 7), Ok(7));
        assert_eq!(catch_panic(|| -> u8 { panic!("on purpose") }), Err("on purpose".into()));
        let number = 7;
        assert_eq!(catch_panic(|| -> u8 { panic!("{number} on purpose") }), Err("7 on purpose".into()));
        assert_eq!(catch_panic(|| -> u8 { panic::panic_any(7) }), Err("no message".into()));
    }
}
