//! The control socket as a named pipe that only one user and administrators can use.
//!
//! A pipe is not a file. Each path maps to a different pipe name.

use std::cell::{Cell, RefCell};
use std::env;
use std::fs::OpenOptions;
use std::io::{self, ErrorKind, Read, Write};
use std::os::windows::fs::OpenOptionsExt;
use std::path::{Path, PathBuf, absolute};
use std::thread;
use std::time::Duration;

use mio::windows::NamedPipe;
use mio::{Events, Interest, Poll, Token};

use super::SocketInUse;
use crate::config::first_directory;
use crate::win32;

/// The hint for users without access to the server.
pub(crate) const ACCESS_HINT: &str = "only the user who runs the server, or an administrator, may control it; \
                                  start the terminal with `Run as administrator`";

/// The listening end of the control pipe.
#[derive(Debug)]
pub(crate) struct ControlListener {
    name: String,
    /// The pipe instance for the next client.
    next: RefCell<ControlStream>,
}

impl ControlListener {
    /// Creates the pipe, with access for this user and administrators only.
    ///
    /// Fails with an [`io::Error`] if the system refuses, and with [`SocketInUse`] if another server listens
    /// there.
    pub(crate) fn bind(path: &Path) -> anyhow::Result<Self> {
        let name = pipe_name(path)?;
        let is_taken = |error: &io::Error| error.kind() == ErrorKind::PermissionDenied;
        // A connection that succeeds shows that another server listens. The flag for the first instance
        // detects a server that starts in between.
        let next = match ControlStream::connect(path) {
            Ok(_) => Err(ErrorKind::PermissionDenied.into()),
            Err(error) if is_taken(&error) => Err(error),
            Err(_) => ControlStream::create_listening(&name, true),
        };
        match next {
            // The system reports an existing pipe only as "permission denied".
            Err(error) if is_taken(&error) => Err(SocketInUse.into()),
            next => Ok(Self { next: RefCell::new(next?), name }),
        }
    }

    /// Waits for a client.
    pub(crate) fn accept(&self) -> io::Result<ControlStream> {
        let mut next = self.next.borrow_mut();
        let connected = next.wait_for_client();
        // The next instance is needed even if this client failed: without it no client could connect any
        // more.
        let following = loop {
            match ControlStream::create_listening(&self.name, false) {
                Ok(after) => break after,
                Err(_) => thread::sleep(RETRY_DELAY),
            }
        };
        let client = std::mem::replace(&mut *next, following);
        connected.map(|()| client)
    }
}

/// One end of a control connection.
#[derive(Debug)]
pub(crate) struct ControlStream {
    pipe: NamedPipe,
    wait: RefCell<(Poll, Events)>,
    read_timeout: Cell<Option<Duration>>,
    write_timeout: Cell<Option<Duration>>,
}

impl ControlStream {
    /// Connects to the server at a path, if its pipe belongs to an owner that this user can trust.
    pub(crate) fn connect(path: &Path) -> io::Result<Self> {
        let name = pipe_name(path)?;
        let mut tries = 0;
        let file = loop {
            let mut options = OpenOptions::new();
            options
                .read(true)
                .write(true)
                .custom_flags(win32::OVERLAPPED)
                .security_qos_flags(win32::IDENTIFICATION_ONLY);
            match options.open(&name) {
                // Another client has just connected, and the server has not created the next instance yet.
                Err(error) if win32::is_pipe_busy(&error) && tries < MAX_ATTEMPTS => {
                    tries += 1;
                    thread::sleep(RETRY_DELAY);
                }
                file => break file?,
            }
        };
        // Any user can create a pipe with a free name, so the client checks the owner.
        let owner = win32::pipe_owner_sid(&file)?;
        if owner != win32::current_user_sid()? && !is_system_account(&owner) {
            return Err(io::Error::new(
                ErrorKind::PermissionDenied,
                format!("the pipe belongs to {owner}, not to you or to the system"),
            ));
        }
        Self::new(win32::pipe_from_file(file))
    }

    fn new(mut pipe: NamedPipe) -> io::Result<Self> {
        let poll = Poll::new()?;
        poll.registry().register(&mut pipe, Token(0), Interest::READABLE | Interest::WRITABLE)?;
        let wait = RefCell::new((poll, Events::with_capacity(4)));
        Ok(Self { pipe, wait, read_timeout: Cell::default(), write_timeout: Cell::default() })
    }

    fn create_listening(name: &str, is_first: bool) -> io::Result<Self> {
        Self::new(win32::create_pipe(name, is_first)?)
    }

    fn wait_for_client(&self) -> io::Result<()> {
        loop {
            match self.pipe.connect() {
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.wait(None)?,
                connected => return connected,
            }
            if let Some(error) = self.pipe.take_error()? {
                return Err(error);
            }
        }
    }

    /// Waits until the state of the pipe changes.
    fn wait(&self, timeout: Option<Duration>) -> io::Result<()> {
        let (poll, events) = &mut *self.wait.borrow_mut();
        poll.poll(events, timeout)?;
        if events.is_empty() && timeout.is_some() { Err(ErrorKind::TimedOut.into()) } else { Ok(()) }
    }

    /// Sets how long a read may wait for data.
    pub(crate) fn set_read_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.read_timeout.set(timeout);
        Ok(())
    }

    /// Sets how long a write may wait for space.
    pub(crate) fn set_write_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.write_timeout.set(timeout);
        Ok(())
    }
}

impl Drop for ControlStream {
    /// Disconnects the client.
    ///
    /// Data that the other end has not read would keep this end open. The other end can still read that data,
    /// then sees the end of the stream.
    fn drop(&mut self) {
        win32::cancel_io(&self.pipe);
    }
}

impl Read for &ControlStream {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            match (&self.pipe).read(into) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.wait(self.read_timeout.get())?,
                // The other end is closed.
                Err(error) if error.kind() == ErrorKind::BrokenPipe => return Ok(0),
                read => return read,
            }
        }
    }
}

impl Write for &ControlStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            match (&self.pipe).write(bytes) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.wait(self.write_timeout.get())?,
                written => return written,
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Does nothing: a pipe disappears with its process.
pub(crate) const fn remove(_: &Path) {}

/// Returns the pipe name for a path.
///
/// Different paths have different names; the spelling of a path does not matter. A path that is already a
/// pipe name is returned unchanged.
fn pipe_name(path: &Path) -> io::Result<String> {
    let unusable = || io::Error::new(ErrorKind::InvalidInput, "the path cannot be made into a pipe name");
    let given = path.to_str().ok_or_else(unusable)?;
    if given.to_lowercase().starts_with(PIPE_PREFIX) {
        return Ok(given.to_owned());
    }
    let whole = absolute(path)?.to_str().ok_or_else(unusable)?.to_lowercase();
    let short: String = whole.rsplit('\\').next().unwrap_or_default().chars().take(MAX_NAME).collect();
    Ok(format!("{PIPE_PREFIX}bcnet-{:016x}-{short}", hash(&whole)))
}

/// FNV-1a, which gives the same value in every build.
fn hash(text: &str) -> u64 {
    text.bytes()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}

/// Returns whether only an administrator can run programs as this user.
///
/// These users are the system, administrators and services.
fn is_system_account(owner: &str) -> bool {
    ["S-1-5-18", "S-1-5-19", "S-1-5-20", "S-1-5-32-544"].contains(&owner) || owner.starts_with("S-1-5-80-")
}

/// Returns the directories for sockets, the preferred one first.
///
/// These are the directories from the environment, the user's directory, and the directory of services.
pub(super) fn runtime_directories() -> impl Iterator<Item = PathBuf> {
    let named = ["RUNTIME_DIRECTORY", "XDG_RUNTIME_DIR"].into_iter().filter_map(env::var_os);
    let own = env::var_os("LOCALAPPDATA").map(|base| PathBuf::from(base).join("bcnet"));
    named.map(|directories| first_directory(&directories)).chain(own).chain([SERVICE_DIRECTORY.into()])
}

/// The directory of the service's pipe. It is the same for every user and does not depend on variables.
pub(crate) const SERVICE_DIRECTORY: &str = r"\\.\pipe";

/// Returns `None`: Windows has no numeric user ids.
pub(crate) const fn user_id() -> Option<u32> {
    None
}

/// Returns `true`: [`ControlStream::connect`] checks the owner of the pipe instead.
pub(crate) const fn is_trusted(_: &Path) -> bool {
    true
}

const PIPE_PREFIX: &str = r"\\.\pipe\";
/// The maximum length of the readable part of a name. The system allows 256 characters for a whole name.
const MAX_NAME: usize = 64;
const RETRY_DELAY: Duration = Duration::from_millis(10);
/// The number of attempts to connect to a busy pipe. Together they take five seconds.
const MAX_ATTEMPTS: u32 = 500;

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};

    use super::*;

    fn place(name: &str) -> PathBuf {
        env::temp_dir().join(format!("bcnet-pipe-{}-{name}", std::process::id()))
    }

    #[test]
    fn pipe_name_is_unique_per_path_and_ignores_spelling() {
        let of = |path: &str| pipe_name(Path::new(path)).expect("a name");
        assert_eq!(of(r"C:\Games\bcnet.sock"), of("c:/games/BCNET.sock"));
        assert_ne!(of(r"C:\Games\bcnet.sock"), of(r"C:\Other\bcnet.sock"));
        assert!(of(r"C:\Games\bcnet.sock").starts_with(r"\\.\pipe\bcnet-"));
        assert!(of(&format!(r"C:\{}", "x".repeat(250))).len() < 256);
        assert_eq!(of(r"\\.\pipe\mine"), r"\\.\pipe\mine");
    }

    #[test]
    fn clients_are_served_in_turn_and_second_server_is_refused() {
        let path = place("served");
        let listener = ControlListener::bind(&path).expect("a pipe");
        let error = ControlListener::bind(&path).expect_err("taken").to_string();
        assert!(error.contains("another server listens there"), "{error}");
        let server = thread::spawn(move || {
            let mut answered = 0;
            while answered < 2 {
                let stream = listener.accept().expect("a client");
                let mut line = String::new();
                BufReader::new(&stream).read_line(&mut line).expect("a line");
                // The second server connected only to find out whether another server listens.
                if !line.is_empty() {
                    (&stream).write_all(line.to_uppercase().as_bytes()).expect("written");
                    answered += 1;
                }
            }
        });
        for text in ["one\n", "two\n"] {
            let stream = ControlStream::connect(&path).expect("a server");
            (&stream).write_all(text.as_bytes()).expect("written");
            let mut line = String::new();
            BufReader::new(&stream).read_line(&mut line).expect("an answer");
            assert_eq!(line, text.to_uppercase());
        }
        server.join().expect("no panic");
        assert_eq!(ControlStream::connect(&path).expect_err("gone").kind(), ErrorKind::NotFound);
    }

    #[test]
    fn read_from_a_silent_client_times_out() {
        let path = place("silent");
        let listener = ControlListener::bind(&path).expect("a pipe");
        let client = ControlStream::connect(&path).expect("a server");
        let stream = listener.accept().expect("a client");
        stream.set_read_timeout(Some(Duration::from_millis(1))).expect("a timeout");
        assert_eq!((&stream).read(&mut [0; 9]).expect_err("silence").kind(), ErrorKind::TimedOut);
        drop(client);
        stream.set_read_timeout(None).expect("none");
        assert_eq!((&stream).read(&mut [0; 9]).expect("the end"), 0);
    }

    #[test]
    fn late_reader_gets_end_of_stream() {
        let path = place("late");
        let listener = ControlListener::bind(&path).expect("a pipe");
        let client = ControlStream::connect(&path).expect("a server");
        let stream = listener.accept().expect("a client");
        stream.set_write_timeout(Some(Duration::from_millis(1))).expect("a timeout");
        let mut written = 0;
        let error = loop {
            match (&stream).write(&[b'x'; 5000]) {
                Ok(len) => written += len,
                Err(error) => break error,
            }
        };
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        drop(stream);
        // The timeout is long: only a reader that never sees the end would wait so long.
        client.set_read_timeout(Some(Duration::from_secs(20))).expect("a timeout");
        let mut read = Vec::new();
        (&client).read_to_end(&mut read).expect("the end");
        assert!(!read.is_empty() && read.len() <= written, "{} of {written}", read.len());
    }

    #[test]
    fn pipes_of_the_user_and_the_system_are_trusted() {
        for system in ["S-1-5-18", "S-1-5-32-544", "S-1-5-80-1-2-3-4-5"] {
            assert!(is_system_account(system), "{system}");
        }
        for other in ["S-1-5-21-1-2-3-1001", "S-1-1-0", "S-1-5-32-545", "S-1-5-180", "S-1-5-8"] {
            assert!(!is_system_account(other), "{other}");
        }
    }
}
