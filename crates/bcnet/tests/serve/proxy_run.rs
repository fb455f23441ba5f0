//! A running `bcnet proxy` process.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddrV4, TcpStream};
use std::process::{Child, Stdio};
use std::sync::mpsc::Receiver;

use crate::server::{TEST_TIMEOUT, TestDirectory, drain_lines, signal, spawn_line_reader};

/// A proxy that is ready for players.
pub(crate) struct ProxyProcess {
    pub(crate) directory: TestDirectory,
    pub(crate) child: Child,
    pub(crate) address: SocketAddrV4,
    /// The address of the metrics, if they are enabled.
    pub(crate) metrics: Option<SocketAddrV4>,
    pub(crate) output: Receiver<String>,
    pub(crate) log: Receiver<String>,
}

impl ProxyProcess {
    pub(crate) fn start(upstream: SocketAddrV4, args: &[&str]) -> Self {
        Self::start_in(TestDirectory::new(), upstream, args)
    }

    pub(crate) fn start_in(directory: TestDirectory, upstream: SocketAddrV4, args: &[&str]) -> Self {
        let upstream = upstream.to_string();
        let own = ["proxy", "--listen", "127.0.0.1:0", "--upstream", &upstream];
        let mut child = directory
            .bcnet(&[&own, args].concat())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("bcnet proxy runs");
        let output = spawn_line_reader(child.stdout.take().expect("piped"));
        let log = spawn_line_reader(child.stderr.take().expect("piped"));
        let ready =
            output.recv_timeout(TEST_TIMEOUT).unwrap_or_else(|_| panic!("not ready: {:?}", log.try_recv()));
        let word = |key: &str| ready.split(' ').find_map(|word| word.strip_prefix(key));
        assert_eq!(word("upstream="), Some(upstream.as_str()));
        let port = word("port=").and_then(|port| port.parse().ok()).expect(&ready);
        let metrics = word("metrics=").map(|address| address.parse().expect(&ready));
        Self { directory, child, address: SocketAddrV4::new(Ipv4Addr::LOCALHOST, port), metrics, output, log }
    }

    pub(crate) fn signal(&self, name: &str) {
        signal(self.child.id(), name);
    }

    /// Waits for a line that has all of `parts`.
    pub(crate) fn wait_for_line(lines: &Receiver<String>, parts: &[&str]) -> String {
        loop {
            let line = lines.recv_timeout(TEST_TIMEOUT).unwrap_or_else(|_| panic!("no line with {parts:?}"));
            if parts.iter().all(|part| line.contains(part)) {
                return line;
            }
        }
    }

    pub(crate) fn wait_for_log(&self, parts: &[&str]) -> String {
        Self::wait_for_line(&self.log, parts)
    }

    /// Gets a page of the metrics server. Returns the status line and the body.
    pub(crate) fn get(&self, page: &str) -> (String, String) {
        let mut stream = TcpStream::connect(self.metrics.expect("metrics")).expect("connected");
        stream.set_read_timeout(Some(TEST_TIMEOUT)).expect("a timeout");
        stream.write_all(format!("GET {page} HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes()).expect("sent");
        let mut text = String::new();
        stream.read_to_string(&mut text).expect("an answer");
        let (head, body) = text.split_once("\r\n\r\n").expect(&text);
        (head.lines().next().unwrap_or_default().into(), body.into())
    }

    /// Stops the proxy with SIGTERM and waits for its exit.
    pub(crate) fn stop(mut self) -> TestDirectory {
        self.signal("TERM");
        self.wait_for_log(&["event=\"stopped\""]);
        drain_lines(&self.log);
        assert_eq!(self.child.wait().expect("ended").code(), Some(0));
        std::mem::replace(&mut self.directory, TestDirectory(Default::default()))
    }
}

impl Drop for ProxyProcess {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
