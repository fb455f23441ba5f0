//! Standard output whose errors can be told from errors of sockets and files.

use std::error::Error;
use std::fmt;
use std::io::{self, ErrorKind, StdoutLock, Write};

/// Locks standard output.
///
/// If the reader has closed it, writes fail with an error that [`is_closed`] recognizes.
pub(crate) fn lock() -> StandardOutput {
    StandardOutput(io::stdout().lock())
}

/// Standard output. A broken pipe becomes [`OutputClosed`].
pub(crate) struct StandardOutput(StdoutLock<'static>);

impl Write for StandardOutput {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes).map_err(mark_closed)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush().map_err(mark_closed)
    }
}

fn mark_closed(error: io::Error) -> io::Error {
    match error.kind() {
        ErrorKind::BrokenPipe => io::Error::new(ErrorKind::BrokenPipe, OutputClosed),
        _ => error,
    }
}

/// The error for a closed standard output.
#[derive(Debug)]
struct OutputClosed;

impl fmt::Display for OutputClosed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("standard output is closed")
    }
}

impl Error for OutputClosed {}

/// Returns whether the reader of standard output has closed it (`bcnet … | head`): not a failure.
pub(crate) fn is_closed(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        let cause = cause.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        cause.is_some_and(|cause| cause.is::<OutputClosed>())
    })
}

#[cfg(test)]
mod tests {
    use anyhow::Context;

    use super::*;

    #[test]
    fn only_errors_of_standard_output_count_as_closed() {
        let broken = || io::Error::from(ErrorKind::BrokenPipe);
        assert!(is_closed(&mark_closed(broken()).into()));
        assert!(is_closed(&Err::<(), _>(mark_closed(broken())).context("table").expect_err("an error")));
        assert!(!is_closed(&broken().into()));
        assert!(!is_closed(&mark_closed(ErrorKind::StorageFull.into()).into()));
        assert_eq!(mark_closed(broken()).kind(), ErrorKind::BrokenPipe);
    }
}
