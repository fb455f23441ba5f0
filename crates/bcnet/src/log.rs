//! The log: one line per thing that happened, each with a stable name in its field `event`.
//!
//! Lines go to standard error and, if wanted, to a file that is begun anew every day. Threads of their own write
//! them, and what they cannot keep up with is left out: a terminal that stands still must not stop the game.

use std::fs;
use std::io::{self, IsTerminal};
use std::path::Path;

use anyhow::{Context, anyhow};
use tracing::level_filters::LevelFilter;
use tracing_appender::non_blocking::{NonBlocking, WorkerGuard};
use tracing_appender::rolling::{RollingFileAppender, Rotation};
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, fmt, registry};

use crate::file::directory;

/// What the log shows, and where.
#[derive(Debug)]
pub(crate) struct Options<'a> {
    pub(crate) level: LevelFilter,
    pub(crate) json: bool,
    /// A file, and how many of its days to keep.
    pub(crate) file: Option<(&'a Path, usize)>,
}

/// Writes what is left when it is dropped.
#[must_use]
pub(crate) struct Log {
    _writers: Vec<WorkerGuard>,
}

/// Starts the log of this process.
pub(crate) fn start(options: &Options<'_>) -> anyhow::Result<Log> {
    let (terminal, guard) = tracing_appender::non_blocking(io::stderr());
    let mut writers = vec![guard];
    let file = match options.file {
        None => None,
        Some((path, keep)) => {
            let (file, guard) = tracing_appender::non_blocking(daily(path, keep)?);
            writers.push(guard);
            Some(layer(file, options.json, false))
        }
    };
    registry()
        .with(options.level)
        .with(layer(terminal, options.json, io::stderr().is_terminal()))
        .with(file)
        .try_init()?;
    Ok(Log { _writers: writers })
}

fn layer<S>(writer: NonBlocking, json: bool, colours: bool) -> Box<dyn Layer<S> + Send + Sync>
where
    S: tracing::Subscriber + for<'a> LookupSpan<'a>,
    NonBlocking: for<'a> MakeWriter<'a>,
{
    let layer = fmt::layer().with_writer(writer).with_target(false).with_ansi(colours);
    if json { Box::new(layer.json().flatten_event(true)) } else { Box::new(layer) }
}

fn daily(path: &Path, keep: usize) -> anyhow::Result<RollingFileAppender> {
    let name = || path.display().to_string();
    let directory = directory(path);
    // The appender would complain on standard error, in words of its own.
    fs::create_dir_all(directory).and_then(|()| fs::read_dir(directory)).with_context(name)?;
    let part = |part: Option<&std::ffi::OsStr>| part.unwrap_or_default().to_string_lossy().into_owned();
    RollingFileAppender::builder()
        .rotation(Rotation::DAILY)
        .filename_prefix(part(path.file_stem()))
        .filename_suffix(part(path.extension()))
        .max_log_files(keep)
        .build(directory)
        .map_err(|error| anyhow!("{}: {}", name(), anyhow::Error::new(error).root_cause()))
}
