//! What a client at a terminal waits for: datagrams, typed lines, signals. Each has a thread that waits for it.

use std::io::{self, BufRead, ErrorKind};
use std::net::UdpSocket;
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::thread;

use crate::signals::{self, Signal};

#[derive(Debug)]
pub(super) enum Input {
    /// From the server.
    Datagram(Vec<u8>),
    /// Nobody listens at the server's port.
    Unreachable,
    /// The user has typed a line.
    Line(String),
    /// Nobody will type any more.
    EndOfInput,
    /// The user wants it to end.
    Interrupt,
}

/// A channel with so much room that a burst fits, and no more: what floods the socket waits in the system.
pub(super) fn channel() -> (SyncSender<Input>, Receiver<Input>) {
    mpsc::sync_channel(256)
}

/// Hears the server from now on.
pub(super) fn spawn_receiver(socket: UdpSocket, inputs: SyncSender<Input>) -> io::Result<()> {
    let receive = move || {
        let mut buffer = [0; 2048];
        loop {
            let input = match socket.recv(&mut buffer) {
                Ok(len) => Input::Datagram(buffer.get(..len).unwrap_or_default().to_vec()),
                Err(error) if error.kind() == ErrorKind::ConnectionRefused => Input::Unreachable,
                // The same, on Windows.
                Err(error) if error.kind() == ErrorKind::ConnectionReset => Input::Unreachable,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                // A network that is gone shows as silence.
                Err(_) => break,
            };
            if inputs.send(input).is_err() {
                break;
            }
        }
    };
    thread::Builder::new().name("receive".into()).spawn(receive).map(drop)
}

/// Reads standard input from now on.
pub(super) fn spawn_line_reader(inputs: SyncSender<Input>) -> io::Result<()> {
    let read = move || {
        let mut input = io::stdin().lock();
        let mut line = Vec::new();
        loop {
            line.clear();
            // A line that ends in an error is said as far as it came.
            let ended = !matches!(input.read_until(b'\n', &mut line), Ok(1..));
            let text = String::from_utf8_lossy(&line).trim_end().to_owned();
            let next = if ended { Input::EndOfInput } else { Input::Line(text) };
            if inputs.send(next).is_err() || ended {
                break;
            }
        }
    };
    thread::Builder::new().name("input".into()).spawn(read).map(drop)
}

/// Hears Ctrl-C and SIGTERM from now on.
pub(super) fn forward_signals(inputs: SyncSender<Input>) -> io::Result<()> {
    signals::listen_to_each(&[Signal::Stop], move |_, _| drop(inputs.send(Input::Interrupt)))
}
