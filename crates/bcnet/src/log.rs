//! The log: one line for each event, with a stable name in the field `event`.
//!
//! Lines go to standard error and, if configured, to a daily file. Separate threads write them. Lines that
//! these threads cannot keep up with are dropped: a blocked terminal must not stop the game.

mod feed;
mod nested_json;
mod rate_limit;

use std::fmt::Debug;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow};
use bcnet_udp::wall_now;
use tracing::field::Field;
use tracing::level_filters::LevelFilter;
use tracing_appender::non_blocking::WorkerGuard;
use tracing_appender::rolling::{RollingFileAppender, Rotation};
use tracing_subscriber::field::MakeExt as _;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::fmt::format::{Writer, debug_fn};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, Registry, fmt, registry, reload};

use crate::bans::Timestamp;
use crate::file::parent_directory;
pub(crate) use feed::Feed;
use nested_json::NestedJson;
pub(crate) use rate_limit::LogRateLimiter;

/// The content and the outputs of the log.
#[derive(Debug)]
pub(crate) struct LogOptions<'a> {
    pub(crate) level: LevelFilter,
    pub(crate) json: bool,
    /// The path of the log file, and the number of days to keep.
    pub(crate) file: Option<(&'a Path, usize)>,
}

/// Writes the remaining lines when it is dropped.
#[must_use]
pub(crate) struct LogGuard {
    _writers: Vec<WorkerGuard>,
    pub(crate) controls: LogControls,
}

/// Changes the log while it runs, and reads its last lines.
#[derive(Clone)]
pub(crate) struct LogControls {
    level: reload::Handle<LevelFilter, Registry>,
    pub(crate) feed: Feed,
}

impl LogControls {
    /// Sets the lowest level of lines to write.
    pub(crate) fn set_level(&self, level: LevelFilter) {
        // This fails only if the log has ended.
        drop(self.level.reload(level));
    }
}

/// Starts the log of this process.
pub(crate) fn start(options: &LogOptions<'_>) -> anyhow::Result<LogGuard> {
    let (terminal, guard) = tracing_appender::non_blocking(io::stderr());
    let mut writers = vec![guard];
    let file = match options.file {
        None => None,
        Some((path, max_files)) => {
            let (file, guard) = tracing_appender::non_blocking(DailyFile::start(path, max_files)?);
            writers.push(guard);
            Some(layer(file, options.json))
        }
    };
    let (filter, level) = reload::Layer::new(options.level);
    let controls = LogControls { level, feed: Feed::default() };
    let feed = layer(controls.feed.clone(), true);
    registry().with(filter).with(layer(terminal, options.json)).with(file).with(feed).try_init()?;
    Ok(LogGuard { _writers: writers, controls })
}

fn layer<S, W>(writer: W, json: bool) -> Box<dyn Layer<S> + Send + Sync>
where
    S: tracing::Subscriber + for<'a> LookupSpan<'a>,
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    let layer = fmt::layer().with_target(false).with_ansi(false);
    if json {
        Box::new(layer.json().flatten_event(true).with_writer(NestedJson(writer)))
    } else {
        Box::new(layer.fmt_fields(debug_fn(write_field).delimited(" ")).with_writer(writer))
    }
}

/// Writes a field, in quotes if the value has a space, so that a reader finds its end.
fn write_field(writer: &mut Writer<'_>, field: &Field, value: &dyn Debug) -> std::fmt::Result {
    let (name, text) = (field.name(), format!("{value:?}"));
    let is_quoted = text.len() > 1 && text.starts_with('"') && text.ends_with('"');
    match name {
        "message" => writer.write_str(&text),
        _ if !is_quoted && text.contains(char::is_whitespace) => write!(writer, "{name}={text:?}"),
        _ => write!(writer, "{name}={text}"),
    }
}

/// A log with one file for each day. Only the newest files are kept.
struct DailyFile {
    appender: RollingFileAppender,
    files: LogFiles,
    /// The day of the current file, in days since 1970. Old files were deleted on that day.
    day: u64,
}

impl DailyFile {
    fn start(path: &Path, max_files: usize) -> anyhow::Result<Self> {
        let name = || path.display().to_string();
        let files = LogFiles::new(path, max_files);
        // These calls give clear errors. The appender would print its own text on standard error.
        fs::create_dir_all(&files.directory)
            .and_then(|()| fs::read_dir(&files.directory))
            .with_context(name)?;
        let appender = files.open().map_err(|error| anyhow!("{}: {}", name(), error.root_cause()))?;
        files.prune();
        Ok(Self { appender, files, day: today() })
    }
}

impl Write for DailyFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let today = today();
        // The appender only moves forward: after the clock was set back, it would stay in a future day's
        // file.
        if today < self.day
            && let Ok(appender) = self.files.open()
        {
            self.appender = appender;
        }
        let written = self.appender.write(bytes);
        if self.day != today {
            self.day = today;
            self.files.prune();
        }
        written
    }

    fn flush(&mut self) -> io::Result<()> {
        self.appender.flush()
    }
}

fn today() -> u64 {
    wall_now().as_secs() / 86_400
}

/// The files of a log, named STEM.YYYY-MM-DD.EXTENSION.
struct LogFiles {
    directory: PathBuf,
    stem: String,
    extension: String,
    max_files: usize,
}

impl LogFiles {
    fn new(path: &Path, max_files: usize) -> Self {
        let part = |part: Option<&std::ffi::OsStr>| part.unwrap_or_default().to_string_lossy().into_owned();
        let (stem, extension) = (part(path.file_stem()), part(path.extension()));
        Self { directory: parent_directory(path).to_owned(), stem, extension, max_files }
    }

    /// Opens an appender that writes to today's file, and to the next one each day.
    fn open(&self) -> anyhow::Result<RollingFileAppender> {
        let builder = RollingFileAppender::builder().rotation(Rotation::DAILY);
        Ok(builder.filename_prefix(&self.stem).filename_suffix(&self.extension).build(&self.directory)?)
    }

    /// Deletes the oldest files.
    ///
    /// The appender could delete too, but it takes every file with the stem and the extension for a log.
    /// Files of future days exist if the clock was set back; they do not count.
    fn prune(&self) {
        let Ok(entries) = fs::read_dir(&self.directory) else { return };
        let files = entries.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_file()));
        let mut names: Vec<String> = files.filter_map(|entry| entry.file_name().into_string().ok()).collect();
        let today = Timestamp(wall_now().as_secs()).to_string();
        names.retain(|name| self.date_in_name(name).is_some_and(|day| today.get(..day.len()) >= Some(day)));
        names.sort();
        names.truncate(names.len().saturating_sub(self.max_files));
        for name in names {
            // A file that cannot be deleted stays. The next attempt is on the next day.
            drop(fs::remove_file(self.directory.join(name)));
        }
    }

    /// Returns the date in the name of a log file.
    fn date_in_name<'a>(&self, name: &'a str) -> Option<&'a str> {
        let end = if self.extension.is_empty() { String::new() } else { format!(".{}", self.extension) };
        let day = name.strip_prefix(&self.stem).and_then(|rest| rest.strip_prefix('.'));
        day.and_then(|rest| rest.strip_suffix(&end)).filter(|day| is_date(day))
    }
}

/// Returns whether the text is a date such as 2002-02-19.
fn is_date(text: &str) -> bool {
    let fits = |(letter, form): (u8, u8)| if form == b'-' { letter == form } else { letter.is_ascii_digit() };
    text.len() == 10 && text.bytes().zip(*b"0000-00-00").all(fits)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_log_file(log: &LogFiles, name: &str) -> bool {
        log.date_in_name(name).is_some()
    }

    #[test]
    fn log_files_have_a_date_between_stem_and_extension() {
        let log = LogFiles::new(Path::new("logs/server.log"), 1);
        assert!(is_log_file(&log, "server.2026-11-16.log"));
        for name in [
            "server.log",
            "server.2026-11-16",
            "server.2026-11-16.log.gz",
            "server.2026-11-1.log",
            "server.2026-11-16x.log",
            "server.20261116ab.log",
            "server.old.log",
            "server2026-11-16.log",
            "server.2026-11-16log",
            "myserver.2026-11-16.log",
        ] {
            assert!(!is_log_file(&log, name), "{name}");
        }
        let bare = LogFiles::new(Path::new("bcnet"), 1);
        assert!(
            is_log_file(&bare, "bcnet.2026-11-16")
                && !is_log_file(&bare, "bcnet.toml")
                && !is_log_file(&bare, "bcnet.2026-11-16.log")
        );
    }

    #[test]
    fn new_day_deletes_only_the_oldest_log_files() {
        let path = std::env::temp_dir().join(format!("bcnet-log-{}", std::process::id()));
        let mut log = DailyFile::start(&path.join("server.log"), 3).expect("a log");
        let others = ["server.toml", "server.1999-01-01.txt", "server.old.log"];
        let days = ["server.2002-02-19.log", "server.2001-01-01.log", "server.2003-03-03.log"];
        for name in others.iter().chain(&days) {
            fs::write(path.join(name), "x").expect("written");
        }
        let left = |path: &Path| -> Vec<&str> {
            others.iter().chain(&days).copied().filter(|name| path.join(name).exists()).collect()
        };
        log.write_all(b"the same day\n").expect("written");
        assert_eq!(left(&path).len(), 6);
        log.day -= 1;
        log.write_all(b"the next day\n").expect("written");
        let expected = ["server.toml", "server.1999-01-01.txt", "server.old.log", days[0], days[2]];
        let left = left(&path);
        drop(fs::remove_dir_all(&path));
        assert_eq!(left, expected, "the newest files and the file of today");
    }

    #[test]
    fn clock_set_back_opens_that_days_file_and_deletes_none() {
        let path = std::env::temp_dir().join(format!("bcnet-log-back-{}", std::process::id()));
        let mut log = DailyFile::start(&path.join("server.log"), 1).expect("a log");
        let files = |path: &Path| -> Vec<String> {
            let entries = fs::read_dir(path).expect("a directory").flatten();
            entries.filter_map(|entry| entry.file_name().into_string().ok()).collect()
        };
        let today = files(&path).pop().expect("a file");
        // The log began while the clock was ahead.
        let ahead = path.join("server.9999-12-31.log");
        fs::rename(path.join(&today), &ahead).expect("renamed");
        log.day += 1;
        log.write_all(b"set back\n").expect("written");
        let written = fs::read_to_string(path.join(&today));
        let count = files(&path).len();
        drop(fs::remove_dir_all(&path));
        assert_eq!((written.ok().as_deref(), count), (Some("set back\n"), 2));
    }
}
