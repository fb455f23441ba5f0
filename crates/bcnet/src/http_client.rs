//! A small HTTP client for hooks and for the Agones sidecar.
//!
//! It sends JSON and reads only the status of the answer, except in [`HttpClient::fetch`]. It follows no
//! redirects and uses no proxies. Unencrypted requests go only to loopback addresses, whatever the name
//! resolves to. Errors never contain the URL, which may be a secret.

use std::fmt;
use std::io::{ErrorKind, Read as _};
use std::net::SocketAddr;
use std::time::Duration;

use ureq::config::Config;
use ureq::http::{HeaderMap, Method, Request, Response, Uri};
use ureq::tls::{RootCerts, TlsConfig};
use ureq::unversioned::resolver::{DefaultResolver, ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::{DefaultConnector, NextTimeout};
use ureq::{Agent, AsSendBody, Body, Error};

/// Sends HTTP requests. Clones share their state.
#[derive(Debug, Clone)]
pub(crate) struct HttpClient(Agent);

/// The parts of an answer that callers need.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ResponseHead {
    pub(crate) status: u16,
    /// The time until a new attempt, from the header `Retry-After`.
    pub(crate) retry_after: Option<Duration>,
}

impl ResponseHead {
    /// Returns whether the status is a success (2xx).
    pub(crate) const fn is_success(self) -> bool {
        matches!(self.status, 200..300)
    }
}

/// The reason why a request failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum HttpError {
    Timeout(Duration),
    /// The connection failed, with the text of the system.
    Connection(String),
    /// The server's certificate is not trusted, or the encryption failed.
    Tls(String),
    /// The request would leave this machine unencrypted.
    NotLocal,
    /// The answer has an error status.
    ErrorStatus(u16),
    /// The answer is not HTTP, or is too long.
    InvalidResponse,
}

impl HttpError {
    /// Returns whether a later attempt may succeed.
    pub(crate) const fn is_temporary(&self) -> bool {
        matches!(self, Self::Timeout(_) | Self::Connection(_))
    }
}

impl fmt::Display for HttpError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Timeout(time) => write!(out, "no answer within {time:?}"),
            Self::Connection(problem) => out.write_str(problem),
            Self::Tls(problem) => write!(out, "no secure connection: {problem}"),
            Self::NotLocal => {
                out.write_str("the name resolves to another machine, and unencrypted requests may only go to this machine; use https")
            }
            Self::ErrorStatus(status) => write!(out, "the server answered with status {status}"),
            Self::InvalidResponse => out.write_str("the answer is not valid HTTP"),
        }
    }
}

impl HttpClient {
    pub(crate) fn new() -> Self {
        Self::with_roots(RootCerts::WebPki)
    }

    /// Creates a client that trusts certificates signed by `roots`.
    fn with_roots(roots: RootCerts) -> Self {
        let config = Config::builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .proxy(None)
            .tls_config(TlsConfig::builder().root_certs(roots).build())
            .user_agent(concat!("bcnet/", env!("CARGO_PKG_VERSION")))
            .max_response_header_size(MAX_HEADER_SIZE)
            .input_buffer_size(MAX_HEADER_SIZE)
            // The client does not read the body of an answer, so it cannot reuse the connection.
            .max_idle_connections(0)
            .build();
        Self(Agent::with_parts(
            config,
            DefaultConnector::default(),
            LoopbackResolver(DefaultResolver::default()),
        ))
    }

    /// Sends JSON and waits up to `timeout` for the answer.
    pub(crate) fn send(
        &self,
        method: Method,
        uri: &Uri,
        json: String,
        timeout: Duration,
    ) -> Result<ResponseHead, HttpError> {
        let answer = self.send_request(method, uri, json, timeout)?;
        let (status, retry_after) = (answer.status().as_u16(), retry_after(answer.headers()));
        Ok(ResponseHead { status, retry_after })
    }

    /// Requests a document, and reads at most `max_bytes` of it.
    pub(crate) fn fetch(&self, uri: &Uri, max_bytes: u64, timeout: Duration) -> Result<Vec<u8>, HttpError> {
        let answer = self.send_request(Method::GET, uri, (), timeout)?;
        if !answer.status().is_success() {
            return Err(HttpError::ErrorStatus(answer.status().as_u16()));
        }
        let mut bytes = Vec::new();
        let read = answer.into_body().into_reader().take(max_bytes).read_to_end(&mut bytes);
        read.map_err(|error| to_http_error(error.into(), timeout))?;
        Ok(bytes)
    }

    fn send_request(
        &self,
        method: Method,
        uri: &Uri,
        body: impl AsSendBody,
        timeout: Duration,
    ) -> Result<Response<Body>, HttpError> {
        let request =
            Request::builder().method(method).uri(uri.clone()).header("content-type", "application/json");
        // This cannot fail: every parsed URL is valid in a request.
        let request = request.body(body).map_err(|_| HttpError::InvalidResponse)?;
        let request = self.0.configure_request(request).timeout_global(Some(timeout)).build();
        self.0.run(request).map_err(|error| to_http_error(error, timeout))
    }
}

/// Returns the value of the header `Retry-After` in seconds. A date is ignored.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let seconds: f64 = headers.get("retry-after")?.to_str().ok()?.trim().parse().ok()?;
    Duration::try_from_secs_f64(seconds).ok()
}

/// Converts an error. None of the texts contains the URL.
fn to_http_error(error: Error, timeout: Duration) -> HttpError {
    match error {
        Error::Timeout(_) => HttpError::Timeout(timeout),
        Error::HostNotFound => HttpError::Connection("the host name is unknown".into()),
        // rustls reports a bad certificate as this error.
        Error::Io(error) if error.kind() == ErrorKind::InvalidData => HttpError::Tls(error.to_string()),
        Error::Io(error) => HttpError::Connection(error.to_string()),
        Error::Rustls(error) => HttpError::Tls(error.to_string()),
        Error::Tls(problem) => HttpError::Tls(problem.into()),
        Error::ConnectionFailed => HttpError::Connection("the connection failed".into()),
        Error::Other(error) if error.is::<NotLocalError>() => HttpError::NotLocal,
        _ => HttpError::InvalidResponse,
    }
}

/// A resolver that refuses addresses of other machines for unencrypted requests.
#[derive(Debug)]
struct LoopbackResolver(DefaultResolver);

impl Resolver for LoopbackResolver {
    fn resolve(
        &self,
        uri: &Uri,
        config: &Config,
        timeout: NextTimeout,
    ) -> Result<ResolvedSocketAddrs, Error> {
        let mut found = self.0.resolve(uri, config, timeout)?;
        if uri.scheme_str() == Some("https") {
            return Ok(found);
        }
        // IPv4 first: on Windows, a failed attempt by IPv6 takes one to two seconds.
        found.sort_by_key(SocketAddr::is_ipv6);
        if found.iter().all(|address| address.ip().is_loopback()) {
            Ok(found)
        } else {
            Err(Error::Other(Box::new(NotLocalError)))
        }
    }
}

#[derive(Debug)]
struct NotLocalError;

impl std::error::Error for NotLocalError {}

impl fmt::Display for NotLocalError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        HttpError::NotLocal.fmt(out)
    }
}

/// The maximum size of the head of an answer, and of the read buffer.
const MAX_HEADER_SIZE: usize = 16 << 10;

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;
    use std::sync::Arc;
    use std::thread;

    use rustls::pki_types::pem::PemObject;
    use rustls::pki_types::{CertificateDer, PrivateKeyDer};
    use rustls::{ServerConfig, ServerConnection, StreamOwned};
    use ureq::tls::Certificate;

    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(30);
    const CERTIFICATE: &[u8] = include_bytes!("../tests/tls/certificate.pem");
    const KEY: &[u8] = include_bytes!("../tests/tls/key.pem");

    fn post(client: &HttpClient, address: &str) -> Result<ResponseHead, HttpError> {
        client.send(Method::POST, &address.parse().expect(address), "{}".into(), TIMEOUT)
    }

    /// Answers one request with encryption. Returns the port.
    fn start_tls_server() -> u16 {
        let listener = TcpListener::bind("localhost:0").expect("a port");
        let port = listener.local_addr().expect("bound").port();
        let certificate = CertificateDer::from_pem_slice(CERTIFICATE).expect("a certificate");
        let key = PrivateKeyDer::from_pem_slice(KEY).expect("a key");
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let config = config.expect("versions").with_no_client_auth().with_single_cert(vec![certificate], key);
        let config = Arc::new(config.expect("they belong together"));
        thread::spawn(move || {
            let (socket, _) = listener.accept().expect("a client");
            let mut stream = StreamOwned::new(ServerConnection::new(config).expect("a connection"), socket);
            // A client that does not trust the certificate sends nothing.
            if stream.read(&mut [0; 4096]).is_ok_and(|len| len > 0) {
                drop(stream.write_all(b"HTTP/1.1 204 No Content\r\nretry-after: 1.5\r\n\r\n"));
                stream.conn.send_close_notify();
                drop(stream.flush());
            }
        });
        port
    }

    #[test]
    fn only_servers_with_a_trusted_certificate_are_contacted() {
        let certificate = Certificate::from_pem(CERTIFICATE).expect("a certificate");
        let trusting = HttpClient::with_roots(RootCerts::new_with_certs(&[certificate]));
        let answer = post(&trusting, &format!("https://localhost:{}/", start_tls_server()));
        assert_eq!(answer, Ok(ResponseHead { status: 204, retry_after: Some(Duration::from_millis(1500)) }));
        let refused = post(&HttpClient::new(), &format!("https://localhost:{}/", start_tls_server()));
        assert!(matches!(refused, Err(HttpError::Tls(_))), "{refused:?}");
        assert!(!refused.expect_err("refused").is_temporary());
    }

    #[test]
    fn unencrypted_requests_stay_on_loopback() {
        for address in ["http://192.0.2.1/", "http://[2001:db8::1]/", "http://0.0.0.0:9/"] {
            assert_eq!(post(&HttpClient::new(), address), Err(HttpError::NotLocal), "{address}");
        }
        // No server listens at this port, but the client tries to connect.
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("bound").port();
        drop(listener);
        let answer = post(&HttpClient::new(), &format!("http://127.0.0.1:{port}/"));
        assert!(
            matches!(&answer, Err(failure @ HttpError::Connection(_)) if failure.is_temporary()),
            "{answer:?}"
        );
    }

    #[test]
    fn errors_do_not_contain_the_address() {
        let secret = || "s3cret".to_owned();
        for error in [
            Error::BadUri(secret()),
            Error::RequireHttpsOnly(secret()),
            Error::ConnectProxyFailed(secret()),
            Error::Other(secret().into()),
        ] {
            assert!(!to_http_error(error, TIMEOUT).to_string().contains("s3cret"));
        }
    }
}
