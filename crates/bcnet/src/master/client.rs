//! The TCP side of the list server: games request the list.

use std::io::{self, ErrorKind, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use bcnet_session::list_server::{self, Challenge, ListFormat};
use bcnet_udp::Clock;

use super::server::ListServerCommands;
use crate::connections::{self, read_request};
use crate::random::random_u64;

/// Accepts connections and serves lists for ever.
pub(super) fn run(listener: &TcpListener, commands: &ListServerCommands, clock: Clock) {
    let commands = commands.clone();
    connections::serve(listener, clock, move |stream| match serve_client(stream, &commands, clock) {
        Ok(count) => tracing::debug!(event = "list_sent", servers = count),
        Err(error) => tracing::debug!(event = "list_refused", %error),
    });
}

/// Serves one client: challenge, response, request, list. Returns the number of listed servers.
fn serve_client(mut stream: TcpStream, commands: &ListServerCommands, clock: Clock) -> io::Result<usize> {
    stream.set_write_timeout(Some(CLIENT_TIMEOUT))?;
    let challenge = Challenge::new(random_u64());
    stream.write_all(&list_server::greeting(&challenge))?;
    let request = read_request(&mut stream, clock, CLIENT_TIMEOUT, list_server::is_complete_request)?;
    let form = ListFormat::from_request(&request, &challenge)
        .map_err(|why| io::Error::new(ErrorKind::InvalidData, why))?;
    let servers = commands.call(|server, _| server.list.listed()).ok_or(ErrorKind::TimedOut)?;
    stream.write_all(&form.write(&servers))?;
    Ok(servers.len())
}

/// The time limit for a client.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(10);
