//! The TCP side: a player's game asks for the list.

use std::io::{self, ErrorKind, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use bcnet_session::list_server::{self, Challenge, Form};
use bcnet_udp::Clock;

use super::server::Commands;
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
    stream.write_all(&list_server::greeting(&challenge))?;
    let request = read_request(&mut stream, clock, PATIENCE, list_server::is_complete)?;
    let form =
        Form::of_request(&request, &challenge).map_err(|why| io::Error::new(ErrorKind::InvalidData, why))?;
    let servers = commands.ask(|server, _| server.list.listed()).ok_or(ErrorKind::TimedOut)?;
    stream.write_all(&form.write(&servers))?;
    Ok(servers.len())
}

/// How long a client may take.
const PATIENCE: Duration = Duration::from_secs(10);
