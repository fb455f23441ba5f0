//! Inputs of the terminal client: datagrams, typed lines, signals. One thread waits for each kind.

use std::io::{self, BufRead, ErrorKind};
use std::net::UdpSocket;
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::thread;

use crate::signals::{self, Signal};

#[derive(Debug)]
pub(super) enum Input {
    /// A datagram from the server.
    Datagram(Vec<u8>),
    /// No program listens at the server's port.
    Unreachable,
    /// A typed line.
    Line(String),
    /// Standard input has ended.
    Eof,
    /// The user wants to leave: Ctrl-C or SIGTERM.
    Interrupt,
}

/// Returns a channel with capacity for a burst. During a flood, datagrams wait in the socket buffer.
pub(super) fn channel() -> (SyncSender<Input>, Receiver<Input>) {
    mpsc::sync_channel(256)
}

/// Starts a thread that receives datagrams from the server.
pub(super) fn spawn_receiver(socket: UdpSocket, inputs: SyncSender<Input>) -> io::Result<()> {
    let receive = move || {
        let mut buffer = [0; 2048];
        loop {
            let input = match socket.recv(&mut buffer) {
                Ok(len) => Input::Datagram(buffer.get(..len).unwrap_or_default().to_vec()),
                Err(error) if error.kind() == ErrorKind::ConnectionRefused => Input::Unreachable,
                // Windows reports an unreachable port in this way.
                Err(error) if error.kind() == ErrorKind::ConnectionReset => Input::Unreachable,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                // A network that is gone shows as silence of the server.
                Err(_) => break,
            };
            if inputs.send(input).is_err() {
                break;
            }
        }
    };
    thread::Builder::new().name("receive".into()).spawn(receive).map(drop)
}

/// Starts a thread that reads lines from standard input.
pub(super) fn spawn_line_reader(inputs: SyncSender<Input>) -> io::Result<()> {
    let read = move || {
        let mut input = io::stdin().lock();
        let mut line = Vec::new();
        loop {
            line.clear();
            // An error ends the input. The bytes of its line are dropped.
            let ended = !matches!(input.read_until(b'\n', &mut line), Ok(1..));
            let text = String::from_utf8_lossy(&line).trim_end().to_owned();
            let next = if ended { Input::Eof } else { Input::Line(text) };
            if inputs.send(next).is_err() || ended {
                break;
            }
        }
    };
    thread::Builder::new().name("input".into()).spawn(read).map(drop)
}

/// Passes Ctrl-C and SIGTERM on as inputs.
pub(super) fn forward_signals(inputs: SyncSender<Input>) -> io::Result<()> {
    signals::listen_to_each(&[Signal::Stop], move |_, _| drop(inputs.send(Input::Interrupt)))
}
