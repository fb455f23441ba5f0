//! TCP servers that answer one short request per connection: the list server and the metrics server.
//!
//! Each connection has a thread, a deadline and a limit of bytes read. If an address or a network has too many
//! connections, its oldest one is closed for a new one. If there are too many in total, the oldest one of the
//! network with the most connections is closed.

use std::io::{self, ErrorKind, Read};
use std::net::{IpAddr, Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use bcnet_session::Network;
use bcnet_udp::Clock;

use crate::log::LogRateLimiter;

/// Accepts connections for ever and runs `answer` for each in a new thread.
pub(crate) fn serve<A>(listener: &TcpListener, clock: Clock, answer: A)
where
    A: Fn(TcpStream) + Clone + Send + 'static,
{
    let (open, threads) = (Arc::new(Mutex::new(OpenConnections::default())), Arc::new(AtomicUsize::new(0)));
    let mut failures = LogRateLimiter::new(5, LOG_INTERVAL);
    let mut log_failure = |error: &io::Error| {
        if let Some(held_back) = failures.allow(clock.now()) {
            tracing::warn!(event = "connection_failed", %error, held_back);
        }
    };
    for stream in listener.incoming() {
        let stream = match stream {
            Ok(stream) => stream,
            Err(error) => {
                log_failure(&error);
                // Most likely the process has no file descriptors left. The pause lets other connections
                // close theirs.
                thread::sleep(Duration::from_millis(50));
                continue;
            }
        };
        // The threads of evicted connections take a moment to end, so twice the limit is allowed.
        if threads.load(Ordering::Relaxed) >= 2 * MAX_CONNECTIONS {
            continue;
        }
        let Ok(permit) = ConnectionPermit::take(&open, &threads, &stream) else { continue };
        let answer = answer.clone();
        let spawned = thread::Builder::new().name("connection".into()).spawn(move || {
            answer(stream);
            drop(permit);
        });
        if let Err(error) = spawned {
            log_failure(&error);
        }
    }
}

/// Reads until `is_complete` accepts the request or the timeout has passed.
pub(crate) fn read_request(
    stream: &mut TcpStream,
    clock: Clock,
    timeout: Duration,
    is_complete: impl Fn(&[u8]) -> bool,
) -> io::Result<Vec<u8>> {
    let deadline = clock.now() + timeout;
    let (mut request, mut buffer) = (Vec::new(), [0; 512]);
    while !is_complete(&request) {
        let left = deadline.since(clock.now());
        if request.len() > MAX_REQUEST {
            return Err(io::Error::new(ErrorKind::InvalidData, "the request is too long"));
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

/// The open connections, the oldest first.
#[derive(Debug)]
pub(crate) struct OpenConnections<C> {
    connections: Vec<(u64, Ipv4Addr, C)>,
    next_id: u64,
    quotas: &'static [ConnectionQuota],
}

/// The prefix length of a network, and the maximum number of open connections from one.
type ConnectionQuota = (u8, usize);

impl<C> Default for OpenConnections<C> {
    fn default() -> Self {
        Self { connections: Vec::new(), next_id: 0, quotas: QUOTAS }
    }
}

impl<C> OpenConnections<C> {
    /// Returns an empty list without quotas: one address may have all connections.
    pub(crate) fn without_quotas() -> Self {
        Self { quotas: &[], ..Self::default() }
    }

    /// Adds a connection. Returns its id, and the connection to close in exchange, if there is one.
    pub(crate) fn add(&mut self, address: IpAddr, connection: C) -> (u64, Option<C>) {
        let address = quota_key(address);
        let addresses: Vec<Ipv4Addr> = self.connections.iter().map(|(_, address, _)| *address).collect();
        let evicted =
            connection_to_evict(&addresses, address, self.quotas).map(|at| self.connections.remove(at).2);
        let id = self.next_id;
        self.next_id += 1;
        self.connections.push((id, address, connection));
        (id, evicted)
    }

    /// Removes a connection that is closed.
    pub(crate) fn remove(&mut self, id: u64) {
        self.connections.retain(|(other, ..)| *other != id);
    }
}

/// Returns the index of the connection to close for a new one, if there is one.
///
/// `open` has the addresses of all connections, the oldest first.
fn connection_to_evict(open: &[Ipv4Addr], newcomer: Ipv4Addr, quotas: &[ConnectionQuota]) -> Option<usize> {
    let count_in = |network: Network| open.iter().filter(|address| network.contains(**address)).count();
    let oldest = |network: Network| open.iter().position(|address| network.contains(*address));
    for (prefix, most) in quotas {
        let network = Network::containing(newcomer, *prefix);
        if count_in(network) >= *most {
            return oldest(network);
        }
    }
    if open.len() < MAX_CONNECTIONS {
        return None;
    }
    let networks = open.iter().map(|address| Network::containing(*address, 24));
    networks.max_by_key(|network| count_in(*network)).and_then(oldest)
}

/// One open connection. Dropping the permit removes the connection from the list.
struct ConnectionPermit {
    open: Arc<Mutex<OpenConnections<TcpStream>>>,
    threads: Arc<AtomicUsize>,
    id: u64,
}

impl ConnectionPermit {
    fn take(
        open: &Arc<Mutex<OpenConnections<TcpStream>>>,
        threads: &Arc<AtomicUsize>,
        stream: &TcpStream,
    ) -> io::Result<Self> {
        let address = stream.peer_addr()?.ip();
        let copy = stream.try_clone()?;
        let (id, evicted) = lock(open).add(address, copy);
        if let Some(stream) = evicted {
            // The connection's thread sees the end of the stream and exits.
            drop(stream.shutdown(Shutdown::Both));
        }
        threads.fetch_add(1, Ordering::Relaxed);
        Ok(Self { open: Arc::clone(open), threads: Arc::clone(threads), id })
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        lock(&self.open).remove(self.id);
        self.threads.fetch_sub(1, Ordering::Relaxed);
    }
}

fn lock<C>(open: &Mutex<OpenConnections<C>>) -> MutexGuard<'_, OpenConnections<C>> {
    open.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the address under which quotas are counted.
///
/// For IPv6 this is the /64 network, folded to 32 bits.
fn quota_key(address: IpAddr) -> Ipv4Addr {
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
const QUOTAS: &[ConnectionQuota] = &[(32, MAX_PER_ADDRESS), (24, MAX_PER_NETWORK)];
/// The maximum size of a request. Every valid request is smaller than a few hundred bytes.
const MAX_REQUEST: usize = 4096;
const LOG_INTERVAL: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn oldest_connection_of_the_largest_network_is_evicted() {
        let address = |network: usize, host: usize| Ipv4Addr::from([10, 0, network as u8, host as u8]);
        let mut open = vec![address(0, 1)];
        assert_eq!(connection_to_evict(&open, address(0, 1), QUOTAS), None);
        open.extend([address(1, 7); MAX_PER_ADDRESS]);
        assert_eq!(
            connection_to_evict(&open, address(1, 7), QUOTAS),
            Some(1),
            "the oldest of its own address"
        );
        assert_eq!(connection_to_evict(&open, address(1, 8), QUOTAS), None);
        open.extend((0..MAX_PER_NETWORK - MAX_PER_ADDRESS).map(|host| address(1, 100 + host)));
        assert_eq!(connection_to_evict(&open, address(1, 8), QUOTAS), Some(1), "the oldest of its network");
        open.extend((open.len()..MAX_CONNECTIONS).map(|n| address(2 + n, 1)));
        assert_eq!(
            connection_to_evict(&open, address(250, 1), QUOTAS),
            Some(1),
            "the oldest of the network with the most connections"
        );
        let one = vec![address(1, 7); MAX_CONNECTIONS - 1];
        assert_eq!(
            connection_to_evict(&one, address(1, 7), &[]),
            None,
            "without quotas one address may have all connections"
        );
        assert_eq!(connection_to_evict(&[address(1, 7); MAX_CONNECTIONS], address(1, 7), &[]), Some(0));
    }
}
