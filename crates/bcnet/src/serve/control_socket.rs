//! The control socket, on which `bcnet ctl` reaches a running server.
//!
//! Each client has its own thread, because clients may be slow. The threads pass requests to the control
//! plane.

use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, anyhow};
use bcnet_control::{ControlResponse, Envelope, MAX_REQUEST, Request, RequestError};

use super::control_plane::ControlPlane;
use crate::control::{self, ControlListener, ControlStream};

/// The control socket. Dropping it removes the socket file.
pub(super) struct ControlSocket {
    path: PathBuf,
}

impl ControlSocket {
    /// Listens at the first of `places` that the system allows, for this user only.
    pub(super) fn start(places: &[PathBuf], plane: Arc<ControlPlane>) -> anyhow::Result<Self> {
        let (path, listener) = bind_first(places)?;
        let serve = move || accept_clients(&listener, &plane);
        thread::Builder::new().name("control".into()).spawn(serve)?;
        Ok(Self { path: path.to_owned() })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for ControlSocket {
    fn drop(&mut self) {
        control::remove(&self.path);
    }
}

/// Binds the first possible path. If none is possible, returns the error of the first path.
fn bind_first(places: &[PathBuf]) -> anyhow::Result<(&Path, ControlListener)> {
    let mut first = None;
    for path in places {
        match ControlListener::bind(path).with_context(|| format!("control socket {}", path.display())) {
            Ok(listener) => return Ok((path, listener)),
            // A path in use is an error: `bcnet ctl` would reach the other server there. After a refusal by
            // the system, the next path is tried.
            Err(error) if !error.root_cause().is::<io::Error>() => return Err(error),
            Err(error) => first = first.or(Some(error)),
        }
    }
    Err(first.unwrap_or_else(|| anyhow!("no path for a control socket is configured")))
}

fn accept_clients(listener: &ControlListener, plane: &Arc<ControlPlane>) {
    let (clients, followers) = (Arc::default(), Arc::default());
    loop {
        let Ok(stream) = listener.accept() else {
            // For example too many open files: the error is temporary, and the loop must not use a full core
            // meanwhile.
            thread::sleep(Duration::from_millis(100));
            continue;
        };
        let Some(permit) = ClientPermit::take(&clients, MAX_CLIENTS) else {
            drop(send_answer(
                &stream,
                &refusal(format!(
                    "{MAX_CLIENTS} control connections are already open; close one and try again"
                )),
            ));
            continue;
        };
        let (plane, followers) = (Arc::clone(plane), Arc::clone(&followers));
        let serve = move || drop(serve_client(&stream, &plane, permit, &followers));
        if thread::Builder::new().name("control client".into()).spawn(serve).is_err() {
            tracing::warn!(
                event = "control_failed",
                "cannot start a thread for a control connection; the connection was closed"
            );
        }
    }
}

/// A permit for one client. Dropping it frees the place, even if the client's thread never started.
struct ClientPermit(Arc<AtomicUsize>);

impl ClientPermit {
    fn take(clients: &Arc<AtomicUsize>, max: usize) -> Option<Self> {
        let permit = Self(Arc::clone(clients));
        (clients.fetch_add(1, Ordering::Relaxed) < max).then_some(permit)
    }

    /// Exchanges this permit for one of another pool. Returns `false` if that pool is exhausted.
    fn move_to_pool(&mut self, others: &Arc<AtomicUsize>, max: usize) -> bool {
        Self::take(others, max).is_some_and(|permit| {
            *self = permit;
            true
        })
    }
}

impl Drop for ClientPermit {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Answers requests until the client closes, sends an overlong line, or stops reading.
fn serve_client(
    stream: &ControlStream,
    plane: &ControlPlane,
    mut permit: ClientPermit,
    followers: &Arc<AtomicUsize>,
) -> io::Result<()> {
    stream.set_write_timeout(Some(WRITE_TIMEOUT))?;
    stream.set_read_timeout(Some(IDLE_TIMEOUT))?;
    let mut input = BufReader::new(stream);
    let mut line = Vec::new();
    loop {
        line.clear();
        (&mut input).take(MAX_REQUEST).read_until(b'\n', &mut line)?;
        if line.is_empty() {
            return Ok(());
        }
        if line.len() as u64 == MAX_REQUEST {
            send_answer(stream, &refusal(format!("a request must be shorter than {MAX_REQUEST} bytes")))?;
            return Err(ErrorKind::InvalidData.into());
        }
        let (reply, after) = match Envelope::parse(&line) {
            Ok(envelope) => match FollowUp::of(&envelope) {
                // Clients that follow the log for hours must not block clients with short requests.
                FollowUp::Follow if !permit.move_to_pool(followers, MAX_FOLLOWERS) => (
                    refusal(format!("{MAX_FOLLOWERS} clients already follow events; stop one and try again")),
                    FollowUp::Nothing,
                ),
                after => (plane.dispatch(envelope).into(), after),
            },
            Err(error) => (refusal(format!("invalid request: {error}")), FollowUp::Nothing),
        };
        let answered = send_answer(stream, &reply);
        match (after, reply) {
            // Stop only after the answer was sent: the exit of the process does not wait for answers.
            (FollowUp::Stop, ControlResponse::Ok(_)) => plane.stop(),
            (FollowUp::Follow, ControlResponse::Ok(events)) => {
                answered?;
                return follow(stream, plane, events["next"].as_u64().unwrap_or(0));
            }
            _ => {}
        }
        answered?;
    }
}

/// The action after an answer.
enum FollowUp {
    Nothing,
    /// Stop the server.
    Stop,
    /// Send new log lines until the client disconnects.
    Follow,
}

impl FollowUp {
    fn of(Envelope { session, request, .. }: &Envelope) -> Self {
        match request {
            Request::Stop if session.is_none() => Self::Stop,
            Request::Events { follow: true, .. } => Self::Follow,
            _ => Self::Nothing,
        }
    }
}

/// Writes log lines as they are logged.
///
/// Writes an empty line at each keepalive interval: only a failing write shows that the client is gone.
fn follow(mut stream: &ControlStream, plane: &ControlPlane, mut next: u64) -> io::Result<()> {
    loop {
        let batch = plane.log.feed.wait(next, KEEPALIVE_INTERVAL);
        next = batch.next;
        let mut text = String::new();
        if batch.missed > 0 {
            text = format!("{{\"event\":\"missed\",\"lines\":{}}}\n", batch.missed);
        }
        for line in &batch.lines {
            text.push_str(line);
            text.push('\n');
        }
        if text.is_empty() {
            text.push('\n');
        }
        stream.write_all(text.as_bytes())?;
    }
}

fn send_answer(mut stream: &ControlStream, answer: &ControlResponse) -> io::Result<()> {
    let mut line = serde_json::to_vec(answer)?;
    line.push(b'\n');
    stream.write_all(&line)
}

fn refusal(reason: String) -> ControlResponse {
    Err(RequestError(reason)).into()
}

const MAX_CLIENTS: usize = 16;
/// Clients that may follow the log, in addition to `MAX_CLIENTS`.
const MAX_FOLLOWERS: usize = 16;
/// Interval of empty lines to a client that follows the log.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);
/// Time that a client has to read its answer.
const WRITE_TIMEOUT: Duration = Duration::from_secs(5);
/// Time without a request after which a client is disconnected.
const IDLE_TIMEOUT: Duration = Duration::from_secs(600);

#[cfg(test)]
mod tests {
    use super::*;

    /// Users without a runtime directory (su, cron, containers) get a socket at another path.
    #[cfg(unix)]
    #[test]
    fn next_path_is_used_if_a_socket_cannot_be_created() {
        let base = std::env::temp_dir().join(format!("bcnet-places-{}", std::process::id()));
        // No user can create directories there, not even root.
        let places = [PathBuf::from("/proc/bcnet/bcnet.sock"), base.join("bcnet.sock")];
        let taken = bind_first(&places).expect("second path is free");
        assert_eq!(taken.0, places[1]);
        // A path in use by another server does not lead to the next path.
        let more = [places[1].clone(), base.join("other.sock")];
        let error = format!("{:#}", bind_first(&more).expect_err("path in use"));
        let none = format!("{:#}", bind_first(&places[..1]).expect_err("no path is possible"));
        drop(std::fs::remove_dir_all(&base));
        assert!(error.contains("another server listens there"), "{error}");
        assert!(none.starts_with("control socket /proc/bcnet/bcnet.sock: "), "{none}");
    }

    #[test]
    fn client_without_a_thread_returns_its_permit() {
        let clients = Arc::default();
        let take = || ClientPermit::take(&clients, MAX_CLIENTS);
        let mut permits: Vec<_> = (0..MAX_CLIENTS).map(|_| take().expect("free permit")).collect();
        assert!(take().is_none() && take().is_none());
        let permit = permits.pop();
        let never_run = move || drop(permit);
        assert!(take().is_none());
        drop(never_run);
        assert!(take().is_some());
    }
}
