//! Honest query clients: up to three tries in five seconds each.

use std::io::ErrorKind::{TimedOut, WouldBlock};
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::time::Duration;

use crate::Environment;
use crate::delays::{DelaySamples, sleep_until};

/// Results of queries.
#[derive(Debug, Clone, Default)]
pub(crate) struct QueryResults {
    pub(crate) queries: u64,
    pub(crate) delays: DelaySamples,
}

impl QueryResults {
    pub(crate) fn answered_share(&self) -> f64 {
        self.delays.count() as f64 / self.queries.max(1) as f64
    }

    /// Adds the results of another client.
    pub(crate) fn add(&mut self, other: Self) {
        self.queries += other.queries;
        self.delays.extend(other.delays);
    }
}

/// Queries again and again, each time from a different network.
pub(crate) fn query_repeatedly(env: &Environment, server: SocketAddrV4) -> anyhow::Result<QueryResults> {
    let mut answers = QueryResults::default();
    let start = env.clock.now();
    let mut number = 0;
    while env.clock.now().since(start) < env.measure_time || number < MIN_QUERIES {
        sleep_until(env.clock, start + QUERY_INTERVAL * u32::from(number));
        answers.queries += 1;
        if let Some(delay) = query_from(env, server, env.sandbox.honest_address(FIRST_ADDRESS + number))? {
            answers.delays.add(delay);
        }
        number += 1;
    }
    Ok(answers)
}

/// Returns how long the answer took; `None` if there was none after three tries.
pub(crate) fn query_from(
    env: &Environment,
    server: SocketAddrV4,
    address: Ipv4Addr,
) -> anyhow::Result<Option<Duration>> {
    env.sandbox.check(server)?;
    let socket = UdpSocket::bind((address, 0))?;
    socket.connect(server)?;
    let start = env.clock.now();
    let mut buffer = [0; 2048];
    for attempt in 1..=TRIES {
        socket.send(b"\\status\\")?;
        let end = start + QUERY_TIMEOUT * attempt / TRIES;
        loop {
            let left = end.since(env.clock.now());
            if left.is_zero() {
                break;
            }
            socket.set_read_timeout(Some(left))?;
            match socket.recv(&mut buffer) {
                Ok(len) if buffer.get(..len).is_some_and(has_name) => {
                    return Ok(Some(env.clock.now().since(start)));
                }
                Ok(_) => {}
                Err(error) if matches!(error.kind(), TimedOut | WouldBlock) => break,
                Err(_) => break,
            }
        }
    }
    Ok(None)
}

/// Returns whether an answer has the name of the server.
pub(crate) fn has_name(answer: &[u8]) -> bool {
    answer.windows(10).any(|window| window == b"\\hostname\\")
}

/// The number of the first query client's address; players have lower numbers.
const FIRST_ADDRESS: u16 = 3000;
const TRIES: u32 = 3;
/// The time for all tries.
const QUERY_TIMEOUT: Duration = Duration::from_secs(5);
const QUERY_INTERVAL: Duration = Duration::from_millis(200);
const MIN_QUERIES: u16 = 10;
