//! Reports to systemd that the server is ready and that all worker threads respond.
//!
//! Each report is one datagram to the socket in `NOTIFY_SOCKET`. Without that variable this module does
//! nothing.

use std::env;
use std::time::Duration;

use super::workers::Workers;
use crate::number_format::pluralize;

/// The socket and watchdog interval of the service manager, if there is one.
#[derive(Debug, Clone)]
pub(super) struct ServiceManager {
    socket: Option<String>,
    watchdog: Option<Duration>,
}

impl ServiceManager {
    /// Reads the environment variables of the service manager.
    pub(super) fn from_env() -> Self {
        let var = |name| env::var(name).ok();
        Self::new(var("NOTIFY_SOCKET"), var("WATCHDOG_USEC"), var("WATCHDOG_PID"))
    }

    fn new(socket: Option<String>, watchdog: Option<String>, pid: Option<String>) -> Self {
        let is_for_this_process = pid.is_none_or(|pid| pid == std::process::id().to_string());
        let time = watchdog
            .filter(|_| is_for_this_process)
            .and_then(|micros| micros.parse().ok())
            .filter(|micros| *micros > 0);
        Self { socket, watchdog: time.map(Duration::from_micros) }
    }

    /// Reports that the server is ready, and starts the thread that reports its health.
    pub(super) fn start_reporting(&self, workers: &Workers) -> anyhow::Result<()> {
        if self.socket.is_none() {
            return Ok(());
        }
        self.notify("READY=1");
        let (manager, workers) = (self.clone(), workers.clone());
        // Report twice per watchdog interval, as systemd advises. Each thread has half of that pause to answer.
        let pause = self.watchdog.map_or(STATUS_INTERVAL, |time| time / 2);
        let watch = move || {
            while manager.report_health(&workers, pause / 2) {
                std::thread::sleep(pause);
            }
        };
        std::thread::Builder::new().name("watchdog".to_owned()).spawn(watch)?;
        Ok(())
    }

    /// Asks all threads, and reports if each has answered. Returns `false` if all threads have ended.
    fn report_health(&self, workers: &Workers, timeout: Duration) -> bool {
        let answers = workers.check_threads(timeout);
        if answers.are_all_responsive() {
            let (players, sessions) = count_players_and_sessions(workers);
            let status =
                format!("STATUS={} in {}", pluralize(players, "player"), pluralize(sessions, "session"));
            // The watchdog message is sent only if systemd asked for it.
            let watchdog = if self.watchdog.is_some() { "WATCHDOG=1\n" } else { "" };
            self.notify(&format!("{watchdog}{status}"));
        }
        !answers.have_all_ended()
    }

    #[cfg(target_os = "linux")]
    fn notify(&self, message: &str) {
        use std::os::linux::net::SocketAddrExt;
        use std::os::unix::net::{SocketAddr, UnixDatagram};

        let Some(name) = &self.socket else { return };
        let address = match name.strip_prefix('@') {
            Some(name) => SocketAddr::from_abstract_name(name),
            None => SocketAddr::from_pathname(name),
        };
        let sent =
            address.and_then(|address| UnixDatagram::unbound()?.send_to_addr(message.as_bytes(), &address));
        if let Err(error) = sent {
            let error = error.to_string();
            tracing::warn!(event = "service_manager_unreachable", socket = name.as_str(), message, error);
        }
    }

    #[cfg(not(target_os = "linux"))]
    fn notify(&self, _: &str) {}
}

/// Returns the number of players in open sessions, and of open sessions.
fn count_players_and_sessions(workers: &Workers) -> (usize, usize) {
    let open =
        workers.call_sessions(|host, _, _| (!host.is_stopped()).then(|| host.session.players_in_game()));
    let open: Vec<usize> = open.into_iter().flatten().collect();
    (open.iter().sum(), open.len())
}

/// Interval of reports without a watchdog.
const STATUS_INTERVAL: Duration = Duration::from_secs(10);

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::os::unix::net::UnixDatagram;

    use super::*;
    use crate::serve::session_group::SessionGroup;
    use crate::serve::workers;

    #[test]
    fn watchdog_applies_only_to_the_named_process() {
        let own = std::process::id().to_string();
        let watchdog = |pid: Option<&str>, micros: &str| {
            ServiceManager::new(None, Some(micros.to_owned()), pid.map(str::to_owned)).watchdog
        };
        assert_eq!(watchdog(None, "2000000"), Some(Duration::from_secs(2)));
        assert_eq!(watchdog(Some(&own), "2000000"), Some(Duration::from_secs(2)));
        assert_eq!(watchdog(Some("1"), "2000000"), None);
        assert_eq!((watchdog(None, "0"), watchdog(None, "soon")), (None, None));
    }

    /// A hanging thread stops the watchdog messages. An ended thread does not: the log reports it and the
    /// others continue.
    #[test]
    fn watchdog_is_fed_while_all_remaining_threads_respond() {
        let path = env::temp_dir().join(format!("bcnet-notify-{}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let systemd = UnixDatagram::bind(&path).expect("bind");
        systemd.set_nonblocking(true).expect("non-blocking socket");
        let received = || {
            let mut buffer = [0; 64];
            let message =
                systemd.recv(&mut buffer).map(|len| String::from_utf8_lossy(&buffer[..len]).into_owned());
            message.unwrap_or_default()
        };
        let socket = path.to_str().map(str::to_owned);
        let manager = ServiceManager::new(socket.clone(), Some("60000000".to_owned()), None);
        let patience = Duration::from_secs(60);
        let (worker_handle, threads) = workers::tests::test_workers(3, 3);
        let running = std::thread::spawn(move || workers::run(threads));
        let without_watchdog = ServiceManager::new(socket, None, None);
        assert!(without_watchdog.report_health(&worker_handle, patience));
        assert_eq!(received(), "STATUS=0 players in 3 sessions");
        assert!(manager.report_health(&worker_handle, patience));
        assert_eq!(received(), "WATCHDOG=1\nSTATUS=0 players in 3 sessions");
        worker_handle.send_to_thread(1, |_, _| panic!("on purpose"));
        assert!(manager.report_health(&worker_handle, patience));
        let report = received();
        assert!(report.starts_with("WATCHDOG=1\nSTATUS=0 players in "), "two threads are left: {report}");
        let (release, held) = std::sync::mpsc::channel::<()>();
        worker_handle.send_to_thread(0, move |_, _| {
            let _ = held.recv();
        });
        assert!(manager.report_health(&worker_handle, Duration::from_millis(50)));
        assert_eq!(received(), "", "one thread hangs");
        drop(release);
        worker_handle.send_to_threads(SessionGroup::stop);
        running.join().expect("no panic").expect("stopped by request");
        assert!(!manager.report_health(&worker_handle, patience), "no thread is left");
        std::fs::remove_file(&path).expect("remove socket file");
    }
}
