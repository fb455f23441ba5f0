//! A small HTTP server for monitoring: Prometheus metrics and health checks.

use std::io::{self, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use bcnet_transport::Time;
use bcnet_udp::Clock;

use crate::connections::{self, read_request};
use crate::metrics::MetricsPage;

/// A program that can be monitored. Each answer comes from the program's event loops.
pub(crate) trait Monitored: Clone + Send + 'static {
    /// Returns all metrics, or `None` if a loop does not answer.
    fn metrics(&self) -> Option<MetricsPage>;

    /// Returns whether every event loop answers.
    fn is_alive(&self) -> bool;

    /// Returns whether the program serves new clients.
    fn is_ready(&self) -> bool;
}

/// Serves `GET /metrics`, `/livez` and `/readyz` for ever, in separate threads.
///
/// Returns the local address.
pub(crate) fn start(
    listener: TcpListener,
    clock: Clock,
    monitored: impl Monitored + Sync,
) -> io::Result<SocketAddr> {
    let address = listener.local_addr()?;
    let latest = Arc::new(CachedMetrics::default());
    let serve = move || {
        connections::serve(&listener, clock, move |stream| {
            // Write errors are ignored: the client has gone.
            drop(respond(stream, &monitored, &latest, clock));
        });
    };
    thread::Builder::new().name("metrics".into()).spawn(serve)?;
    Ok(address)
}

/// The last metrics page, and its time.
type CachedMetrics = Mutex<Option<(Time, String)>>;

fn respond(
    mut stream: TcpStream,
    monitored: &impl Monitored,
    latest: &CachedMetrics,
    clock: Clock,
) -> io::Result<()> {
    stream.set_write_timeout(Some(CLIENT_TIMEOUT))?;
    let request = read_request(&mut stream, clock, CLIENT_TIMEOUT, |head| {
        head.windows(4).any(|end| end == b"\r\n\r\n")
    })?;
    let (status, body) = match request_path(&request) {
        Some(b"/metrics") => match cached_metrics(monitored, latest, clock.now()) {
            Some(page) => ("200 OK", page),
            None => ("503 Service Unavailable", "the event loops do not answer\n".into()),
        },
        Some(b"/livez") => health(monitored.is_alive(), "an event loop does not answer\n"),
        Some(b"/readyz") => {
            health(monitored.is_alive() && monitored.is_ready(), "no session accepts players\n")
        }
        Some(_) => ("404 Not Found", "not found; use /metrics, /livez or /readyz\n".into()),
        None => ("405 Method Not Allowed", "only GET is supported\n".into()),
    };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes())?;
    stream.write_all(body.as_bytes())
}

/// Returns the path of a GET request without its query, or `None` for other methods.
fn request_path(request: &[u8]) -> Option<&[u8]> {
    let rest = request.strip_prefix(b"GET ")?;
    rest.split(|byte| matches!(byte, b' ' | b'?' | b'\r' | b'\n')).next()
}

fn health(is_well: bool, problem: &str) -> (&'static str, String) {
    if is_well { ("200 OK", "ok\n".into()) } else { ("503 Service Unavailable", problem.into()) }
}

/// Returns the metrics page, at most [`CACHE_TIME`] old.
///
/// So requests cannot slow down the event loops.
fn cached_metrics(monitored: &impl Monitored, latest: &CachedMetrics, now: Time) -> Option<String> {
    let mut latest = latest.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, text)) = latest.as_ref().filter(|(at, _)| now.since(*at) < CACHE_TIME) {
        return Some(text.clone());
    }
    let text = monitored.metrics()?.finish();
    *latest = Some((now, text.clone()));
    Some(text)
}

/// The time limit for a client.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(2);
/// The time for which a page is reused for further requests.
const CACHE_TIME: Duration = Duration::from_millis(50);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_path_is_read_from_get_requests_only() {
        assert_eq!(request_path(b"GET /metrics?x=1 HTTP/1.1\r\n\r\n"), Some(&b"/metrics"[..]));
        assert_eq!(request_path(b"GET /livez\r\n\r\n"), Some(&b"/livez"[..]));
        assert_eq!(request_path(b"POST /metrics HTTP/1.1\r\n\r\n"), None);
        assert_eq!(request_path(b""), None);
    }
}
