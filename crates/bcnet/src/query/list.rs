//! Requests the list of servers from a list server, like a game.

use std::collections::BTreeSet;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddrV4, TcpStream};
use std::time::Duration;

use bcnet_session::challenge_response;
use bcnet_transport::Time;
use bcnet_udp::Clock;

/// Returns the listed servers. An error is one line for people, without the address.
pub(crate) fn fetch(address: SocketAddrV4, timeout: Duration) -> Result<BTreeSet<SocketAddrV4>, String> {
    let clock = Clock::start();
    let end = clock.now() + timeout;
    let stream = TcpStream::connect_timeout(&address.into(), timeout)
        .map_err(|error| format!("cannot connect to the list server: {error}"))?;
    let mut connection = ListConnection { stream, clock, end, received: Vec::new() };
    let challenge = connection.read_until(MAX_GREETING, parse_challenge)??;
    let login = format!(
        "\\gamename\\bcommander\\gamever\\1.6\\location\\0\\validate\\{}\\final\\\\queryid\\1.1\\\
         \\list\\cmp\\gamename\\bcommander\\final\\",
        challenge_response(&challenge)
    );
    connection
        .stream
        .write_all(login.as_bytes())
        .map_err(|error| format!("cannot send the list request: {error}"))?;
    connection.received.clear();
    connection.read_until(MAX_LIST, parse_list)
}

/// A TCP connection to a list server, with a deadline.
struct ListConnection {
    stream: TcpStream,
    clock: Clock,
    end: Time,
    received: Vec<u8>,
}

impl ListConnection {
    /// Reads until `parse` returns a value, at most `max` bytes.
    fn read_until<T>(&mut self, max: usize, parse: impl Fn(&[u8]) -> Option<T>) -> Result<T, String> {
        let mut buffer = [0; 2048];
        loop {
            let left = self.end.since(self.clock.now());
            if left.is_zero() {
                return Err("the list server did not answer in time".into());
            }
            let read = self.stream.set_read_timeout(Some(left)).and_then(|()| self.stream.read(&mut buffer));
            match read {
                Ok(0) if self.received.is_empty() => {
                    return Err("the list server closed the connection without an answer".into());
                }
                Ok(0) => return Err("the answer of the list server is truncated or not a list".into()),
                Ok(len) => self.received.extend(buffer.iter().take(len)),
                Err(error) if is_transient(&error) => continue,
                Err(error) => return Err(format!("cannot read from the list server: {error}")),
            }
            if self.received.len() > max {
                return Err(format!("the answer of the list server is longer than {max} bytes"));
            }
            if let Some(parsed) = parse(&self.received) {
                return Ok(parsed);
            }
        }
    }
}

fn is_transient(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::TimedOut | ErrorKind::WouldBlock)
}

/// Returns the six letters of the challenge once the greeting is complete.
///
/// Returns an error if the bytes are not a greeting.
fn parse_challenge(received: &[u8]) -> Option<Result<[u8; 6], String>> {
    let common = received.len().min(GREETING.len());
    if received.get(..common) != GREETING.get(..common) {
        return Some(Err("the program at this address is not a list server of the game".into()));
    }
    let letters: [u8; 6] = received.get(GREETING.len()..GREETING.len() + 6)?.try_into().ok()?;
    let is_right = letters.iter().all(u8::is_ascii_graphic);
    Some(is_right.then_some(letters).ok_or_else(|| "the challenge of the list server is malformed".into()))
}

/// Parses a complete list: six bytes for each server, then the end mark.
fn parse_list(received: &[u8]) -> Option<BTreeSet<SocketAddrV4>> {
    let (servers, rest) = received.strip_suffix(LIST_END)?.as_chunks::<6>();
    let server = |&[a, b, c, d, high, low]: &[u8; 6]| {
        SocketAddrV4::new(Ipv4Addr::new(a, b, c, d), u16::from_be_bytes([high, low]))
    };
    let is_host = |server: &SocketAddrV4| {
        let ip = server.ip();
        server.port() != 0 && !ip.is_unspecified() && !ip.is_multicast() && !ip.is_broadcast()
    };
    rest.is_empty().then(|| servers.iter().map(server).filter(is_host).collect())
}

const GREETING: &[u8] = b"\\basic\\\\secure\\";
const LIST_END: &[u8] = b"\\final\\";
/// Maximum length of a greeting. A normal one has 21 bytes.
const MAX_GREETING: usize = 256;
/// Length of a list with the maximum number of servers.
const MAX_LIST: usize = super::MAX_SERVERS * 6 + LIST_END.len();

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn list_is_parsed_only_when_complete() {
        assert_eq!(parse_list(b"\\final\\"), Some(BTreeSet::new()));
        let one = SocketAddrV4::new([192, 0, 2, 1].into(), 22101);
        assert_eq!(parse_list(b"\xC0\x00\x02\x01\x56\x55\\final\\"), Some([one].into()));
        // A broadcast address and port 0 are not servers.
        assert_eq!(
            parse_list(b"\xFF\xFF\xFF\xFF\x56\x55\xC0\x00\x02\x01\x00\x00\\final\\"),
            Some(BTreeSet::new())
        );
        for cut in [&b"\xC0\x00\x02\x01\x56\\final\\"[..], b"\xC0\x00\x02\x01\x56\x55\\fina", b""] {
            assert_eq!(parse_list(cut), None);
        }
    }

    #[test]
    fn greeting_without_a_challenge_is_rejected() {
        assert_eq!(parse_challenge(b"\\basic\\\\secure\\ABCDEF"), Some(Ok(*b"ABCDEF")));
        assert_eq!(parse_challenge(b"\\basic\\\\secure\\ABC"), None);
        assert!(parse_challenge(b"HTTP/1.1 400").is_some_and(|challenge| challenge.is_err()));
        assert!(parse_challenge(b"\\basic\\\\secure\\ABC\x00EF").is_some_and(|challenge| challenge.is_err()));
    }
}
