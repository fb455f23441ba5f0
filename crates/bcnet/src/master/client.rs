//! The TCP side: a player's game asks for the list.
//!
//! Each connection has a thread, a deadline and a limit of what is read; there are at most [`MAX_CLIENTS`] at once.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use bcnet_session::validate;

use super::list::{GAME, compact, plain};
use super::server::Commands;
use super::text::{Challenge, Pairs};
use crate::clock::Clock;
use crate::random::unguessable;

/// Serves lists for ever.
pub(super) fn run(listener: &TcpListener, commands: &Commands, clock: Clock) {
    let clients = Arc::new(Mutex::new(Vec::new()));
    for stream in listener.incoming() {
        let Ok(stream) = stream else {
            // Most likely there are no file descriptors left; others must get time to give theirs back.
            thread::sleep(Duration::from_millis(50));
            continue;
        };
        let Some(permit) = Permit::take(&clients, &stream) else { continue };
        let commands = commands.clone();
        let serve = move || {
            let _permit = permit;
            match serve(stream, &commands, clock) {
                Ok(count) => tracing::debug!(event = "list_sent", servers = count),
                Err(error) => tracing::debug!(event = "list_refused", %error),
            }
        };
        if let Err(error) = thread::Builder::new().name("client".into()).spawn(serve) {
            tracing::warn!(event = "no_thread", %error);
        }
    }
}

/// Lets one client talk; given back when it is dropped.
struct Permit {
    clients: Arc<Mutex<Vec<IpAddr>>>,
    address: IpAddr,
}

impl Permit {
    /// Returns `None` if there are too many clients, or too many of this one.
    fn take(clients: &Arc<Mutex<Vec<IpAddr>>>, stream: &TcpStream) -> Option<Self> {
        let address = stream.peer_addr().ok()?.ip();
        let mut present = clients.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let same = present.iter().filter(|other| **other == address).count();
        if present.len() >= MAX_CLIENTS || same >= MAX_PER_ADDRESS {
            return None;
        }
        present.push(address);
        Some(Self { clients: Arc::clone(clients), address })
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut present = self.clients.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some(at) = present.iter().position(|address| *address == self.address) {
            present.swap_remove(at);
        }
    }
}

/// One conversation: challenge, answer, question, list. Tells how many servers were listed.
fn serve(mut stream: TcpStream, commands: &Commands, clock: Clock) -> io::Result<usize> {
    stream.set_write_timeout(Some(PATIENCE))?;
    let challenge = Challenge::new(unguessable());
    stream.write_all(format!("\\basic\\\\secure\\{}", challenge.text()).as_bytes())?;
    let request = read_request(&mut stream, clock)?;
    let refuse = |why| Err(io::Error::new(ErrorKind::InvalidData, why));
    let Some(text) = Pairs::parse(&request) else { return refuse("no GameSpy text") };
    if text.get("validate") != Some(validate(challenge.text().as_bytes()).as_bytes()) {
        return refuse("wrong answer to the challenge");
    }
    if text.get("gamename") != Some(GAME) {
        return refuse("another game");
    }
    let servers = commands.ask(|server, _| server.list.listed()).ok_or(ErrorKind::TimedOut)?;
    let list = if text.get("list") == Some(b"cmp") { compact(&servers) } else { plain(&servers) };
    stream.write_all(&list)?;
    Ok(servers.len())
}

/// Reads until the client has asked for a list: `\list\…\final\`.
fn read_request(stream: &mut TcpStream, clock: Clock) -> io::Result<Vec<u8>> {
    let deadline = clock.now() + PATIENCE;
    let mut request = Vec::new();
    let mut buffer = [0; 512];
    while !is_complete(&request) {
        let left = deadline.since(clock.now());
        if request.len() > MAX_REQUEST {
            return Err(io::Error::new(ErrorKind::InvalidData, "too much"));
        }
        if left.is_zero() {
            return Err(ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(left))?;
        match stream.read(&mut buffer) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(len) => request.extend_from_slice(buffer.get(..len).unwrap_or_default()),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(request)
}

fn is_complete(request: &[u8]) -> bool {
    let find = |part: &[u8]| request.windows(part.len()).position(|window| window == part);
    find(b"\\list\\")
        .is_some_and(|at| request.get(at..).is_some_and(|rest| rest.windows(6).any(|end| end == b"\\final")))
}

/// How long a client may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// What a client has to say has less than two hundred bytes.
const MAX_REQUEST: usize = 1024;
const MAX_CLIENTS: usize = 128;
const MAX_PER_ADDRESS: usize = 16;
