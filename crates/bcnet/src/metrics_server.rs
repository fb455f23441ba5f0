//! A small HTTP server for what monitoring asks: figures for Prometheus, and whether the program is well.

use std::io::{self, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use bcnet_transport::Time;
use bcnet_udp::Clock;

use crate::connections::{self, read_request};
use crate::metrics::MetricsPage;

/// What monitoring asks of a program. Each question is answered by what the event loop itself says.
pub(crate) trait Monitored: Clone + Send + 'static {
    /// Returns all figures; `None` if nobody answers.
    fn metrics(&self) -> Option<MetricsPage>;

    /// Returns whether every loop answers.
    fn is_alive(&self) -> bool;

    /// Returns whether those who come are served.
    fn is_ready(&self) -> bool;
}

/// Answers `GET /metrics`, `/livez` and `/readyz` for ever, in threads of its own. Returns where.
pub(crate) fn start(
    listener: TcpListener,
    clock: Clock,
    monitored: impl Monitored + Sync,
) -> io::Result<SocketAddr> {
    let address = listener.local_addr()?;
    let latest = Arc::new(CachedMetrics::default());
    let serve = move || {
        connections::serve(&listener, clock, move |stream| {
            // Whoever does not listen to the answer has none.
            drop(respond(stream, &monitored, &latest, clock));
        });
    };
    thread::Builder::new().name("metrics".into()).spawn(serve)?;
    Ok(address)
}

/// What was given out last, and when it was asked for.
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
            None => ("503 Service Unavailable", "nobody answers\n".into()),
        },
        Some(b"/livez") => health(monitored.is_alive(), "a loop does not answer\n"),
        Some(b"/readyz") => health(monitored.is_alive() && monitored.is_ready(), "nobody is served\n"),
        Some(_) => ("404 Not Found", "only /metrics, /livez and /readyz are here\n".into()),
        None => ("405 Method Not Allowed", "only GET is answered\n".into()),
    };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes())?;
    stream.write_all(body.as_bytes())
}

/// Returns what is asked for, without what stands behind a question mark; `None` if it is not asked for but sent.
fn request_path(request: &[u8]) -> Option<&[u8]> {
    let rest = request.strip_prefix(b"GET ")?;
    rest.split(|byte| matches!(byte, b' ' | b'?' | b'\r' | b'\n')).next()
}

fn health(is_well: bool, problem: &str) -> (&'static str, String) {
    if is_well { ("200 OK", "ok\n".into()) } else { ("503 Service Unavailable", problem.into()) }
}

/// Returns the figures, for which no loop is asked more often than it has time for.
fn cached_metrics(monitored: &impl Monitored, latest: &CachedMetrics, now: Time) -> Option<String> {
    let mut latest = latest.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, text)) = latest.as_ref().filter(|(at, _)| now.since(*at) < CACHE_TIME) {
        return Some(text.clone());
    }
    let text = monitored.metrics()?.finish();
    *latest = Some((now, text.clone()));
    Some(text)
}

/// How long a client may take.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(2);
/// For how long figures are good for others who ask.
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
