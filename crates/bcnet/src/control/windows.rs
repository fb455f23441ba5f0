//! Named pipes, which only one user and administrators may use.
//!
//! A pipe is no file, so of a path only the name of a pipe is made: each path has another.

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

/// Who may talk to a server, for those who may not.
pub(crate) const ACCESS_HINT: &str = "only the user who runs the server, or an administrator, may talk to it; \
                                  start the terminal with `Run as administrator`";

/// Where clients come to.
#[derive(Debug)]
pub(crate) struct ControlListener {
    name: String,
    /// Where the next client comes to.
    next: RefCell<ControlStream>,
}

impl ControlListener {
    /// Listens at a place, for this user and administrators only. What the system does not allow is an [`io::Error`]; that
    /// somebody else is there is another.
    pub(crate) fn bind(path: &Path) -> anyhow::Result<Self> {
        let name = pipe_name(path)?;
        let is_taken = |error: &io::Error| error.kind() == ErrorKind::PermissionDenied;
        // Whoever answers is there; whoever comes in between is noticed by the flag of the first.
        let next = match ControlStream::connect(path) {
            Ok(_) => Err(ErrorKind::PermissionDenied.into()),
            Err(error) if is_taken(&error) => Err(error),
            Err(_) => ControlStream::create_listening(&name, true),
        };
        match next {
            // The system says no more of a pipe that is there already.
            Err(error) if is_taken(&error) => Err(SocketInUse.into()),
            next => Ok(Self { next: RefCell::new(next?), name }),
        }
    }

    /// Waits for a client.
    pub(crate) fn accept(&self) -> io::Result<ControlStream> {
        let mut next = self.next.borrow_mut();
        let connected = next.wait_for_client();
        // Without a next one, nobody could come in any more, whatever became of this one.
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

/// One of two ends that talk.
#[derive(Debug)]
pub(crate) struct ControlStream {
    pipe: NamedPipe,
    wait: RefCell<(Poll, Events)>,
    read_timeout: Cell<Option<Duration>>,
    write_timeout: Cell<Option<Duration>>,
}

impl ControlStream {
    /// Connects to the server at a place, if it is one that this user can trust.
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
                // Another client has just come in, and the next pipe is not made yet.
                Err(error) if win32::is_pipe_busy(&error) && tries < MAX_ATTEMPTS => {
                    tries += 1;
                    thread::sleep(RETRY_DELAY);
                }
                file => break file?,
            }
        };
        // Anybody may make a pipe of any name while there is none.
        let owner = win32::pipe_owner_sid(&file)?;
        if owner != win32::current_user_sid()? && !is_system_account(&owner) {
            return Err(io::Error::new(ErrorKind::PermissionDenied, format!("it belongs to {owner}")));
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

    /// Waits until something about it has changed.
    fn wait(&self, timeout: Option<Duration>) -> io::Result<()> {
        let (poll, events) = &mut *self.wait.borrow_mut();
        poll.poll(events, timeout)?;
        if events.is_empty() && timeout.is_some() { Err(ErrorKind::TimedOut.into()) } else { Ok(()) }
    }

    /// Limits how long it may take until something comes.
    pub(crate) fn set_read_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.read_timeout.set(timeout);
        Ok(())
    }

    /// Limits how long it may take until something leaves.
    pub(crate) fn set_write_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.write_timeout.set(timeout);
        Ok(())
    }
}

impl Drop for ControlStream {
    /// What the other end has not read would keep this one open until it does, and nobody would close it then. It reads what is
    /// there, and sees the end.
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

/// Nobody listens there any more. A pipe is gone with the process.
pub(crate) const fn remove(_: &Path) {}

/// Returns the name of the pipe for a path: each path has another, however it is written. What is the name of a pipe already
/// is that.
fn pipe_name(path: &Path) -> io::Result<String> {
    let unusable = || io::Error::new(ErrorKind::InvalidInput, "no name for a pipe");
    let given = path.to_str().ok_or_else(unusable)?;
    if given.to_lowercase().starts_with(PIPE_PREFIX) {
        return Ok(given.to_owned());
    }
    let whole = absolute(path)?.to_str().ok_or_else(unusable)?.to_lowercase();
    let short: String = whole.rsplit('\\').next().unwrap_or_default().chars().take(MAX_NAME).collect();
    Ok(format!("{PIPE_PREFIX}bcnet-{:016x}-{short}", hash(&whole)))
}

/// FNV-1a, which is the same in every build.
fn hash(text: &str) -> u64 {
    text.bytes()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}

/// Returns whether nobody but an administrator can have had a program run as this user: the system, administrators, services.
fn is_system_account(owner: &str) -> bool {
    ["S-1-5-18", "S-1-5-19", "S-1-5-20", "S-1-5-32-544"].contains(&owner) || owner.starts_with("S-1-5-80-")
}

/// Returns where sockets belong: what the environment says, the user's place, the place of services.
pub(super) fn runtime_directories() -> impl Iterator<Item = PathBuf> {
    let named = ["RUNTIME_DIRECTORY", "XDG_RUNTIME_DIR"].into_iter().filter_map(env::var_os);
    let own = env::var_os("LOCALAPPDATA").map(|base| PathBuf::from(base).join("bcnet"));
    named.map(|directories| first_directory(&directories)).chain(own).chain([SERVICE_DIRECTORY.into()])
}

/// Where everyone looks for the service: among the pipes themselves, which does not depend on anybody's variables.
pub(crate) const SERVICE_DIRECTORY: &str = r"\\.\pipe";

/// Users have no numbers here.
pub(crate) const fn user_id() -> Option<u32> {
    None
}

/// Returns whether a pipe there is one that the user can trust. Whoever connects finds out.
pub(crate) const fn is_trusted(_: &Path) -> bool {
    true
}

const PIPE_PREFIX: &str = r"\\.\pipe\";
/// The system takes 256 for all of a name.
const MAX_NAME: usize = 64;
const RETRY_DELAY: Duration = Duration::from_millis(10);
/// How often a client tries to get a pipe: for five seconds.
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
                // The second server has only looked whether somebody is there.
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
        // Only who never sees it waits so long.
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
