//! A `bcnet serve` process in a temporary directory.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use bcnet_udp::Clock;
use serde_json::Value;

use crate::run;
pub(crate) use crate::run::signal;

/// Time after which a test fails: much longer than any step takes.
pub(crate) const TEST_TIMEOUT: Duration = Duration::from_secs(30);

/// A directory that is removed when dropped.
pub(crate) struct TestDirectory(pub(crate) PathBuf);

impl TestDirectory {
    pub(crate) fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("bcnet-serve-{}-{number}", std::process::id()));
        fs::create_dir_all(&path).expect("a directory");
        Self(path)
    }

    /// Returns a command in this directory. Peer ids are sequential, so that tests know them beforehand.
    pub(crate) fn bcnet(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_bcnet"));
        run::in_own_process_group(&mut command)
            .args(args)
            .current_dir(&self.0)
            .env("XDG_RUNTIME_DIR", &self.0)
            .env("BCNET_IDS", "sequential")
            .env_remove("RUNTIME_DIRECTORY");
        command
    }

    pub(crate) fn ctl(&self, args: &[&str]) -> Output {
        self.bcnet(&[&["ctl"], args].concat()).output().expect("bcnet ctl runs")
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for TestDirectory {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.0));
    }
}

/// A server that is ready for players.
pub(crate) struct ServerProcess {
    pub(crate) directory: TestDirectory,
    /// The port of each session.
    pub(crate) ports: Vec<u16>,
    child: Child,
    log: Receiver<String>,
    /// Standard output after the `server ready` lines.
    #[cfg_attr(windows, expect(dead_code, reason = "only signals make the server print"))]
    output: Receiver<String>,
}

impl ServerProcess {
    /// Starts a server on 127.0.0.1 and waits until it is ready. It trusts nobody, unless `args` set `session.trusted`.
    pub(crate) fn start(args: &[&str]) -> Self {
        Self::start_in(TestDirectory::new(), args, 1)
    }

    pub(crate) fn start_in(directory: TestDirectory, args: &[&str], sessions: usize) -> Self {
        Self::start_with(directory, args, sessions, &[])
    }

    pub(crate) fn start_with(
        directory: TestDirectory,
        args: &[&str],
        sessions: usize,
        variables: &[(&str, &str)],
    ) -> Self {
        let local: &[&str] = if args.contains(&"--bind") { &[] } else { &["--bind", "127.0.0.1"] };
        // Players and browsers on the internet are not trusted, so those of the tests are not either.
        let is_named = |arg: &&str| arg.starts_with("session.trusted=");
        let trusted: &[&str] = if args.iter().any(is_named) { &[] } else { &["--set", "session.trusted="] };
        let mut child = directory
            .bcnet(&[&["serve"], local, trusted, args].concat())
            .envs(variables.iter().copied())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("bcnet serve runs");
        let output = spawn_line_reader(child.stdout.take().expect("piped"));
        let log = spawn_line_reader(child.stderr.take().expect("piped"));
        let ports = (0..sessions).map(|_| {
            let line = output
                .recv_timeout(TEST_TIMEOUT)
                .unwrap_or_else(|_| panic!("not ready: {:?}", log.try_recv()));
            let rest = line.strip_prefix("server ready port=").unwrap_or_else(|| panic!("{line}"));
            rest.split(' ').next().and_then(|port| port.parse().ok()).unwrap_or_else(|| panic!("{line}"))
        });
        let ports = ports.collect();
        Self { directory, ports, child, log, output }
    }

    pub(crate) fn address(&self) -> SocketAddrV4 {
        SocketAddrV4::new(Ipv4Addr::LOCALHOST, self.ports[0])
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn signal(&self, name: &str) {
        signal(self.id(), name);
    }

    /// Stops the server with a signal, or with a command on Windows, where the process has no console.
    pub(crate) fn stop(&self) {
        #[cfg(unix)]
        self.signal("TERM");
        #[cfg(windows)]
        assert_eq!(self.directory.ctl(&["stop"]).status.code(), Some(0));
    }

    /// Makes the server reload its files. The result is not checked.
    pub(crate) fn reload(&self) {
        #[cfg(unix)]
        self.signal("HUP");
        #[cfg(windows)]
        drop(self.directory.ctl(&["reload"]));
    }

    /// Waits for a line of the log that has all of `parts`.
    pub(crate) fn wait_for_log(&self, parts: &[&str]) -> String {
        loop {
            let line =
                self.log.recv_timeout(TEST_TIMEOUT).unwrap_or_else(|_| panic!("no line with {parts:?}"));
            if parts.iter().all(|part| line.contains(part)) {
                return line;
            }
        }
    }

    /// Returns the next line of the log, or `None` at its end.
    pub(crate) fn next_log_line(&self) -> Option<String> {
        self.log.recv_timeout(TEST_TIMEOUT).ok()
    }

    /// Waits for a line of standard output.
    #[cfg(unix)]
    pub(crate) fn wait_for_output(&self) -> String {
        self.output.recv_timeout(TEST_TIMEOUT).expect("a line")
    }

    /// Kills the process, like a crash.
    pub(crate) fn kill(mut self) -> TestDirectory {
        self.child.kill().expect("the server runs");
        self.wait_for_exit().1
    }

    /// Waits for the exit of the process.
    pub(crate) fn wait_for_exit(mut self) -> (ExitStatus, TestDirectory) {
        // The log ends with the process.
        drain_lines(&self.log);
        let status = self.child.try_wait().expect("a child").or_else(|| self.child.wait().ok());
        let directory = std::mem::replace(&mut self.directory, TestDirectory(PathBuf::new()));
        (status.expect("an exit status"), directory)
    }

    /// Returns the answer to a request, as JSON.
    pub(crate) fn ctl_json(&self, args: &[&str]) -> Value {
        let output = self.directory.ctl(&[args, &["--json"]].concat());
        assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).expect("JSON")
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Repeats a check until it succeeds. After [`TEST_TIMEOUT`] it panics and names what did not happen.
pub(crate) fn wait_until(what: &str, mut check: impl FnMut() -> bool) {
    let clock = Clock::start();
    let started = clock.now();
    while !check() {
        assert!(clock.now().since(started) < TEST_TIMEOUT, "after {TEST_TIMEOUT:?}, still not: {what}");
    }
}

/// Reads the output of a process until its end. Panics if the process is silent for [`TEST_TIMEOUT`] instead.
pub(crate) fn drain_lines(lines: &Receiver<String>) {
    loop {
        match lines.recv_timeout(TEST_TIMEOUT) {
            Ok(_) => {}
            Err(RecvTimeoutError::Disconnected) => return,
            Err(RecvTimeoutError::Timeout) => panic!("the process did not end within {TEST_TIMEOUT:?}"),
        }
    }
}

pub(crate) fn spawn_line_reader(from: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        for line in BufReader::new(from).lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                break;
            }
        }
    });
    receiver
}
