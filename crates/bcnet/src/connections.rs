//! TCP servers that answer one short question per connection: lists of servers, and metrics.
//!
//! Each connection has a thread, a deadline and a limit of what is read. There is always room for one more: if there are
//! too many connections, or too many of an address or a network, the oldest of those gives way.

use std::io::{self, ErrorKind, Read};
use std::net::{IpAddr, Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use bcnet_session::Network;
use bcnet_udp::Clock;

use crate::log::LineLimit;

/// Has `answer` answer connections for ever, each in a thread of its own.
pub(crate) fn serve<A>(listener: &TcpListener, clock: Clock, answer: A)
where
    A: Fn(TcpStream) + Clone + Send + 'static,
{
    let (open, threads) = (Arc::new(Mutex::new(Open::default())), Arc::new(AtomicUsize::new(0)));
    let mut failures = LineLimit::new(5, LOG_EVERY);
    let mut complain = |error: &io::Error| {
        if let Some(held_back) = failures.pass(clock.now()) {
            tracing::warn!(event = "connection_failed", %error, held_back);
        }
    };
    for stream in listener.incoming() {
        let stream = match stream {
            Ok(stream) => stream,
            Err(error) => {
                complain(&error);
                // Most likely there are no file descriptors left; others must get time to give theirs back.
                thread::sleep(Duration::from_millis(50));
                continue;
            }
        };
        // Those who gave way take a moment to end.
        if threads.load(Ordering::Relaxed) >= 2 * MAX_CONNECTIONS {
            continue;
        }
        let Ok(permit) = Permit::take(&open, &threads, &stream) else { continue };
        let answer = answer.clone();
        let spawned = thread::Builder::new().name("connection".into()).spawn(move || {
            answer(stream);
            drop(permit);
        });
        if let Err(error) = spawned {
            complain(&error);
        }
    }
}

/// Reads until a client has asked, as `is_complete` says, or has had its time.
pub(crate) fn read_request(
    stream: &mut TcpStream,
    clock: Clock,
    patience: Duration,
    is_complete: impl Fn(&[u8]) -> bool,
) -> io::Result<Vec<u8>> {
    let deadline = clock.now() + patience;
    let (mut request, mut buffer) = (Vec::new(), [0; 512]);
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

/// The connections that are open, the oldest first.
#[derive(Debug)]
pub(crate) struct Open<C> {
    connections: Vec<(u64, Ipv4Addr, C)>,
    next: u64,
    shares: &'static [Share],
}

/// How many of a network with so many bits may be open.
type Share = (u8, usize);

impl<C> Default for Open<C> {
    fn default() -> Self {
        Self { connections: Vec::new(), next: 0, shares: SHARES }
    }
}

impl<C> Open<C> {
    /// Returns none yet, of which all may be of one address.
    pub(crate) fn of_one_address() -> Self {
        Self { shares: &[], ..Self::default() }
    }

    /// Adds a connection and returns its number, and the connection that gives way to it, if one must.
    pub(crate) fn add(&mut self, address: IpAddr, connection: C) -> (u64, Option<C>) {
        let address = in_four_bytes(address);
        let addresses: Vec<Ipv4Addr> = self.connections.iter().map(|(_, address, _)| *address).collect();
        let gives_way =
            who_gives_way(&addresses, address, self.shares).map(|at| self.connections.remove(at).2);
        let number = self.next;
        self.next += 1;
        self.connections.push((number, address, connection));
        (number, gives_way)
    }

    /// Forgets a connection that is closed.
    pub(crate) fn remove(&mut self, number: u64) {
        self.connections.retain(|(other, ..)| *other != number);
    }
}

/// Returns which of the addresses that are there, the oldest first, gives way to one more.
fn who_gives_way(there: &[Ipv4Addr], newcomer: Ipv4Addr, shares: &[Share]) -> Option<usize> {
    let of = |network: Network| there.iter().filter(|address| network.contains(**address)).count();
    let oldest = |network: Network| there.iter().position(|address| network.contains(*address));
    for (prefix, most) in shares {
        let network = Network::around(newcomer, *prefix);
        if of(network) >= *most {
            return oldest(network);
        }
    }
    if there.len() < MAX_CONNECTIONS {
        return None;
    }
    let networks = there.iter().map(|address| Network::around(*address, 24));
    networks.max_by_key(|network| of(*network)).and_then(oldest)
}

/// Lets one client talk; given back when it is dropped.
struct Permit {
    open: Arc<Mutex<Open<TcpStream>>>,
    threads: Arc<AtomicUsize>,
    number: u64,
}

impl Permit {
    fn take(
        open: &Arc<Mutex<Open<TcpStream>>>,
        threads: &Arc<AtomicUsize>,
        stream: &TcpStream,
    ) -> io::Result<Self> {
        let address = stream.peer_addr()?.ip();
        let copy = stream.try_clone()?;
        let (number, gives_way) = lock(open).add(address, copy);
        if let Some(stream) = gives_way {
            // Its thread notices and ends.
            drop(stream.shutdown(Shutdown::Both));
        }
        threads.fetch_add(1, Ordering::Relaxed);
        Ok(Self { open: Arc::clone(open), threads: Arc::clone(threads), number })
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        lock(&self.open).remove(self.number);
        self.threads.fetch_sub(1, Ordering::Relaxed);
    }
}

fn lock<C>(open: &Mutex<Open<C>>) -> MutexGuard<'_, Open<C>> {
    open.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns an address as shares are counted; of IPv6 its network, folded.
fn in_four_bytes(address: IpAddr) -> Ipv4Addr {
    match address.to_canonical() {
        IpAddr::V4(address) => address,
        IpAddr::V6(address) => {
            let network = address.to_bits() >> 64;
            Ipv4Addr::from_bits((network ^ network >> 32) as u32)
        }
    }
}

const MAX_CONNECTIONS: usize = 128;
const MAX_PER_ADDRESS: usize = 16;
const MAX_PER_NETWORK: usize = 32;
const SHARES: &[Share] = &[(32, MAX_PER_ADDRESS), (24, MAX_PER_NETWORK)];
/// What anybody has to ask has less than a few hundred bytes.
const MAX_REQUEST: usize = 4096;
const LOG_EVERY: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_always_room_and_the_oldest_of_the_greediest_gives_way() {
        let address = |network: usize, host: usize| Ipv4Addr::from([10, 0, network as u8, host as u8]);
        let mut there = vec![address(0, 1)];
        assert_eq!(who_gives_way(&there, address(0, 1), SHARES), None);
        there.extend([address(1, 7); MAX_PER_ADDRESS]);
        assert_eq!(who_gives_way(&there, address(1, 7), SHARES), Some(1), "the oldest of its own");
        assert_eq!(who_gives_way(&there, address(1, 8), SHARES), None);
        there.extend((0..MAX_PER_NETWORK - MAX_PER_ADDRESS).map(|host| address(1, 100 + host)));
        assert_eq!(who_gives_way(&there, address(1, 8), SHARES), Some(1), "the oldest of its network");
        there.extend((there.len()..MAX_CONNECTIONS).map(|n| address(2 + n, 1)));
        assert_eq!(
            who_gives_way(&there, address(250, 1), SHARES),
            Some(1),
            "the oldest of the network that has most"
        );
        let one = vec![address(1, 7); MAX_CONNECTIONS - 1];
        assert_eq!(who_gives_way(&one, address(1, 7), &[]), None, "without shares one may have all");
        assert_eq!(who_gives_way(&[address(1, 7); MAX_CONNECTIONS], address(1, 7), &[]), Some(0));
    }
}
