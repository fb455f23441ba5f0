//! The TCP side: a player's game asks for the list.

use std::io::{self, ErrorKind, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use bcnet_session::validate;

use super::list::{GAME, compact, plain};
use super::server::Commands;
use super::text::{Challenge, Pairs};
use crate::clock::Clock;
use crate::connections::{self, read_request};
use crate::random::unguessable;

/// Serves lists for ever.
pub(super) fn run(listener: &TcpListener, commands: &Commands, clock: Clock) {
    let commands = commands.clone();
    connections::serve(listener, clock, move |stream| match serve(stream, &commands, clock) {
        Ok(count) => tracing::debug!(event = "list_sent", servers = count),
        Err(error) => tracing::debug!(event = "list_refused", %error),
    });
}

/// One conversation: challenge, answer, question, list. Tells how many servers were listed.
fn serve(mut stream: TcpStream, commands: &Commands, clock: Clock) -> io::Result<usize> {
    stream.set_write_timeout(Some(PATIENCE))?;
    let challenge = Challenge::new(unguessable());
    stream.write_all(format!("\\basic\\\\secure\\{}", challenge.text()).as_bytes())?;
    let request = read_request(&mut stream, clock, PATIENCE, is_complete)?;
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

/// Returns whether a client has asked for a list: `\list\…\final\`.
fn is_complete(request: &[u8]) -> bool {
    let find = |part: &[u8]| request.windows(part.len()).position(|window| window == part);
    find(b"\\list\\")
        .is_some_and(|at| request.get(at..).is_some_and(|rest| rest.windows(6).any(|end| end == b"\\final")))
}

/// How long a client may take.
const PATIENCE: Duration = Duration::from_secs(10);
