//! The HTTP server of the operator page.
//!
//! One thread accepts, reads and writes; a few threads wait for the answers of the sessions. Connections,
//! their duration, and the sizes of heads and forms are limited. A client that exceeds a limit is
//! disconnected.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::net::{IpAddr, TcpListener};
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use bcnet_udp::Clock;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::header::{
    ALLOW, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, COOKIE, FORWARDED, HOST, HeaderMap,
    HeaderName, HeaderValue, LOCATION, ORIGIN, REFERRER_POLICY, RETRY_AFTER, SET_COOKIE,
    STRICT_TRANSPORT_SECURITY, VIA, X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::runtime::Builder;
use tokio::sync::Semaphore;
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;

use super::site::{PageRequest, PageResponse, Site};
use super::tls::Certificate;
use crate::connections::OpenConnections;

/// Starts the thread that serves the page until the process ends.
pub(super) fn start(
    listener: TcpListener,
    certificate: Option<Certificate>,
    clock: Clock,
    site: Arc<Site>,
) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    let runtime = Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(WORKER_THREADS)
        .thread_name("page")
        .build()?;
    let serve = move || drop(runtime.block_on(serve(listener, certificate, clock, site)));
    thread::Builder::new().name("web".into()).spawn(serve).map(drop)
}

async fn serve(
    listener: TcpListener,
    mut certificate: Option<Certificate>,
    clock: Clock,
    site: Arc<Site>,
) -> io::Result<()> {
    let listener = tokio::net::TcpListener::from_std(listener)?;
    // Behind a proxy all clients have the same address, so quotas per address would not work.
    let open =
        if site.policy.behind_proxy { OpenConnections::without_quotas() } else { OpenConnections::default() };
    let open = Arc::new(Mutex::new(open));
    let threads = Arc::new(Semaphore::new(WORKER_THREADS));
    loop {
        let Ok((stream, peer)) = listener.accept().await else {
            // Most likely no file descriptors are left; wait until other connections are closed.
            sleep(Duration::from_millis(50)).await;
            continue;
        };
        let tls = certificate.as_mut().map(|certificate| certificate.acceptor(clock.now()));
        let (site, threads, peer) = (Arc::clone(&site), Arc::clone(&threads), peer.ip());
        let reply = move |request| handle_request(Arc::clone(&site), Arc::clone(&threads), peer, request);
        admit(&open, peer, serve_stream(stream, tls, reply));
    }
}

/// Serves a connection. If too many are open, [`OpenConnections::add`] selects one that is closed.
fn admit(
    open: &Arc<Mutex<OpenConnections<AbortHandle>>>,
    address: IpAddr,
    connection: impl Future<Output = ()> + Send + 'static,
) {
    let (id_sender, id) = tokio::sync::oneshot::channel::<u64>();
    let connections = Arc::clone(open);
    let task = tokio::spawn(async move {
        let Ok(id) = id.await else { return };
        let _slot = ConnectionSlot { connections, id };
        connection.await;
    });
    let (id, evicted) = lock(open).add(address, task.abort_handle());
    if let Some(evicted) = evicted {
        evicted.abort();
    }
    let _ = id_sender.send(id);
}

/// The slot of one connection. Dropping it frees the slot.
struct ConnectionSlot {
    connections: Arc<Mutex<OpenConnections<AbortHandle>>>,
    id: u64,
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        lock(&self.connections).remove(self.id);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn serve_stream<F>(stream: TcpStream, tls: Option<TlsAcceptor>, answer: impl Fn(Request<Incoming>) -> F)
where
    F: Future<Output = Result<Response<Full<Bytes>>, Infallible>>,
{
    // Disables Nagle's algorithm: a page is written in one piece, so delaying a segment gains nothing.
    drop(stream.set_nodelay(true));
    match tls {
        None => serve_http(stream, answer).await,
        Some(tls) => {
            if let Ok(Ok(stream)) = timeout(CLIENT_TIMEOUT, tls.accept(stream)).await {
                serve_http(stream, answer).await;
            }
        }
    }
}

/// Serves one connection, for a limited time: a client must read its answers in time.
async fn serve_http<F>(
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    answer: impl Fn(Request<Incoming>) -> F,
) where
    F: Future<Output = Result<Response<Full<Bytes>>, Infallible>>,
{
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(CLIENT_TIMEOUT)
        .max_buf_size(MAX_HEAD_BYTES)
        .max_headers(MAX_HEADERS)
        .serve_connection(TokioIo::new(stream), service_fn(answer));
    let mut connection = pin!(connection);
    if timeout(CONNECTION_LIFETIME, connection.as_mut()).await.is_err() {
        connection.as_mut().graceful_shutdown();
        // Requests that are still running are aborted after this timeout.
        drop(timeout(CLIENT_TIMEOUT, connection).await);
    }
}

async fn handle_request(
    site: Arc<Site>,
    threads: Arc<Semaphore>,
    peer: IpAddr,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let is_hsts = site.policy.is_hsts;
    let reply = match parse_request(peer, request).await {
        Err(reply) => {
            site.log_refusal(peer, &reply);
            reply
        }
        Ok(asked) => {
            // This waits for the sessions, so it must not run in the thread that serves all connections.
            let answered = run_blocking(threads, move || site.handle(&asked)).await;
            answered.unwrap_or_else(|| {
                PageResponse::error(500, "the request failed; the log of the server has the reason")
            })
        }
    };
    let mut response = build_response(reply);
    if is_hsts {
        insert_header(response.headers_mut(), STRICT_TRANSPORT_SECURITY, HSTS_POLICY);
    }
    Ok(response)
}

/// Runs `work` in another thread as soon as one is free.
///
/// If the connection is closed before that, `work` never runs and nothing stays queued.
async fn run_blocking<T: Send + 'static>(
    threads: Arc<Semaphore>,
    work: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    let thread = threads.acquire_owned().await.ok()?;
    let work = move || {
        let _thread = thread;
        work()
    };
    tokio::task::spawn_blocking(work).await.ok()
}

/// Reads the parts of a request that the site uses.
async fn parse_request(peer: IpAddr, request: Request<Incoming>) -> Result<PageRequest, PageResponse> {
    let (head, body) = request.into_parts();
    if head.uri.authority().is_some() {
        return Err(PageResponse::error(400, "this server is not a proxy"));
    }
    let text = |name: HeaderName| {
        let mut values = head.headers.get_all(name).iter();
        let first = values.next().and_then(|value| value.to_str().ok()).map(ToOwned::to_owned);
        // A repeated header may be an attack: it counts as missing.
        first.filter(|_| values.next().is_none())
    };
    // A proxy appends its entry after those of the client, in the same header line or in a new one.
    let last = |name: HeaderName| {
        head.headers.get_all(name).iter().next_back()?.to_str().ok().map(ToOwned::to_owned)
    };
    let form = match head.method {
        Method::GET | Method::HEAD => None,
        Method::POST => {
            let kind = text(CONTENT_TYPE).unwrap_or_default();
            if !kind.starts_with("application/x-www-form-urlencoded") {
                return Err(PageResponse::error(415, "only URL-encoded forms are accepted"));
            }
            Some(read_form(body).await?)
        }
        _ => {
            return Err(PageResponse {
                allow: Some("GET, HEAD, POST"),
                ..PageResponse::error(405, "only GET, HEAD and POST are supported")
            });
        }
    };
    Ok(PageRequest {
        peer,
        path: head.uri.path().to_owned(),
        query: head.uri.query().unwrap_or_default().to_owned(),
        form,
        host: text(HOST).unwrap_or_default(),
        origin: text(ORIGIN),
        cookies: text(COOKIE).unwrap_or_default(),
        forwarded: last(FORWARDED_FOR),
        is_forwarded: [FORWARDED_FOR, FORWARDED, REAL_IP, VIA]
            .iter()
            .any(|name| head.headers.contains_key(name)),
        live_until: head
            .headers
            .get(LIVE_HEADER)
            .map(|until| until.to_str().ok().and_then(|until| until.parse().ok()).unwrap_or(0)),
    })
}

async fn read_form(body: Incoming) -> Result<String, PageResponse> {
    let whole = timeout(CLIENT_TIMEOUT, Limited::new(body, MAX_FORM_BYTES).collect()).await;
    match whole {
        Err(_) => Err(PageResponse::error(408, "the form did not arrive in time")),
        Ok(Err(_)) => Err(PageResponse::error(413, "the form is incomplete or larger than 16 KiB")),
        Ok(Ok(whole)) => String::from_utf8(whole.to_bytes().into())
            .map_err(|_| PageResponse::error(400, "the form is not valid UTF-8")),
    }
}

fn build_response(reply: PageResponse) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(reply.body)));
    *response.status_mut() = StatusCode::from_u16(reply.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let headers = response.headers_mut();
    let fixed = [
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (X_FRAME_OPTIONS, "DENY"),
        // With `no-referrer`, browsers would not send the origin of forms.
        (REFERRER_POLICY, "same-origin"),
        (CACHE_CONTROL, "no-store"),
        (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
        (HeaderName::from_static("permissions-policy"), "camera=(), geolocation=(), microphone=()"),
    ];
    for (name, value) in fixed {
        headers.insert(name, HeaderValue::from_static(value));
    }
    let script = reply.nonce.map_or_else(|| "'none'".into(), |nonce| format!("'nonce-{nonce}'"));
    let policy = format!(
        "default-src 'none'; script-src {script}; style-src {script}; connect-src 'self'; img-src data:; \
         form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    );
    insert_header(headers, CONTENT_SECURITY_POLICY, &policy);
    insert_header(headers, CONTENT_TYPE, reply.content_type);
    for (name, value) in [(LOCATION, reply.location), (SET_COOKIE, reply.cookie)] {
        if let Some(value) = value {
            insert_header(headers, name, &value);
        }
    }
    for (name, value) in [(ALLOW, reply.allow), (RETRY_AFTER, reply.retry_after)] {
        if let Some(value) = value {
            insert_header(headers, name, value);
        }
    }
    response
}

fn insert_header(headers: &mut HeaderMap, name: HeaderName, value: &str) {
    // All values are valid in a header, so this never skips one.
    if let Ok(value) = HeaderValue::from_str(value) {
        headers.insert(name, value);
    }
}

/// One year, as browsers recommend. Subdomains are not included: they may be other machines.
const HSTS_POLICY: &str = "max-age=31536000";
const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const REAL_IP: HeaderName = HeaderName::from_static("x-real-ip");
/// The header of requests by the script of the page. Forms of other pages cannot send it.
const LIVE_HEADER: HeaderName = HeaderName::from_static("x-bcnet-live");
/// Threads that wait for the sessions and render pages.
const WORKER_THREADS: usize = 4;
/// Time for a request head, a form or a TLS handshake.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(10);
/// Longest duration of a connection. Requests in progress are completed.
const CONNECTION_LIFETIME: Duration = Duration::from_secs(60);
const MAX_HEAD_BYTES: usize = 16 << 10;
const MAX_HEADERS: usize = 64;
const MAX_FORM_BYTES: usize = 16 << 10;

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};
    use tokio::time::Instant;

    use super::*;

    /// Returns how long the server keeps a client that sends `sent`, then waits and reads nothing. The time
    /// is virtual.
    fn connection_duration(sent: &'static [u8]) -> Duration {
        let runtime = Builder::new_current_thread().enable_all().start_paused(true).build().expect("runtime");
        runtime.block_on(async {
            let (mut browser, server) = duplex(256);
            let began = Instant::now();
            let connection = tokio::spawn(serve_http(server, |request: Request<Incoming>| async {
                let read = read_form(request.into_body()).await;
                Ok(build_response(
                    read.map_or_else(|reply| reply, |_| PageResponse::error(200, &"x".repeat(100_000))),
                ))
            }));
            browser.write_all(sent).await.expect("sent");
            connection.await.expect("no panic");
            began.elapsed()
        })
    }

    #[test]
    fn slow_and_unread_connections_are_closed() {
        assert_eq!(connection_duration(b""), CLIENT_TIMEOUT, "sends nothing");
        assert_eq!(connection_duration(b"GET / HTTP/1.1\r\nHost: x\r\n"), CLIENT_TIMEOUT, "half a head");
        let reads_nothing = connection_duration(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n");
        assert_eq!(reads_nothing, CONNECTION_LIFETIME + CLIENT_TIMEOUT);
        let half = connection_duration(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\na=1");
        assert!(
            half >= CLIENT_TIMEOUT && half <= CONNECTION_LIFETIME + CLIENT_TIMEOUT,
            "half a form: {half:?}"
        );
    }

    /// Clients that disconnect must not leave work behind.
    #[test]
    fn aborted_request_is_not_run() {
        let runtime = Builder::new_current_thread().enable_all().max_blocking_threads(1).build();
        let (done, busy) = (Arc::new(Mutex::new(Vec::new())), std::sync::mpsc::channel::<()>());
        runtime.expect("runtime").block_on(async {
            let threads = Arc::new(Semaphore::new(1));
            let record = |name: &'static str| {
                let done = Arc::clone(&done);
                move || lock(&done).push(name)
            };
            let (release, blocked) = busy;
            let slow = tokio::spawn(run_blocking(Arc::clone(&threads), move || blocked.recv().is_err()));
            tokio::task::yield_now().await;
            let aborted = tokio::spawn(run_blocking(Arc::clone(&threads), record("aborted")));
            let patient = tokio::spawn(run_blocking(threads, record("patient")));
            tokio::task::yield_now().await;
            aborted.abort();
            drop(aborted.await);
            drop(release);
            assert!(
                slow.await.expect("no panic") == Some(true) && patient.await.expect("no panic").is_some()
            );
        });
        assert_eq!(*lock(&done), ["patient"]);
    }

    #[test]
    fn incomplete_form_gets_status_408() {
        let runtime = Builder::new_current_thread().enable_all().start_paused(true).build().expect("runtime");
        let answer = runtime.block_on(async {
            let (mut browser, server) = duplex(4096);
            tokio::spawn(serve_http(server, |request: Request<Incoming>| async {
                let read = read_form(request.into_body()).await;
                Ok(build_response(read.map_or_else(|reply| reply, |_| PageResponse::error(200, "whole"))))
            }));
            let half = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\nConnection: close\r\n\r\na=1";
            browser.write_all(half).await.expect("sent");
            let mut answer = String::new();
            browser.read_to_string(&mut answer).await.expect("answer");
            answer
        });
        assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
    }
}
