//! What systemd is told: that the server is ready, and that every thread still plays.
//!
//! It is one datagram each to the socket that `NOTIFY_SOCKET` names. Without that variable nothing happens.

use std::env;
use std::time::Duration;

use super::workers::Workers;
use crate::number::counted;

/// Where the service manager listens, if there is one.
#[derive(Debug, Clone)]
pub(super) struct ServiceManager {
    socket: Option<String>,
    watchdog: Option<Duration>,
}

impl ServiceManager {
    /// Reads what the service manager has left in the environment.
    pub(super) fn from_env() -> Self {
        let var = |name| env::var(name).ok();
        Self::new(var("NOTIFY_SOCKET"), var("WATCHDOG_USEC"), var("WATCHDOG_PID"))
    }

    fn new(socket: Option<String>, watchdog: Option<String>, pid: Option<String>) -> Self {
        let is_meant = pid.is_none_or(|pid| pid == std::process::id().to_string());
        let time =
            watchdog.filter(|_| is_meant).and_then(|micros| micros.parse().ok()).filter(|micros| *micros > 0);
        Self { socket, watchdog: time.map(Duration::from_micros) }
    }

    /// Tells that all sockets are bound, and from now on who plays and, as often as it asks for, that every thread does.
    pub(super) fn ready(&self, workers: &Workers) -> anyhow::Result<()> {
        if self.socket.is_none() {
            return Ok(());
        }
        self.tell("READY=1");
        let (manager, workers) = (self.clone(), workers.clone());
        // Twice in that time, as systemd advises, of which an answer may take half.
        let pause = self.watchdog.map_or(STATUS_EVERY, |time| time / 2);
        let watch = move || {
            while manager.look(&workers, pause / 2) {
                std::thread::sleep(pause);
            }
        };
        std::thread::Builder::new().name("watchdog".to_owned()).spawn(watch)?;
        Ok(())
    }

    /// Asks all threads, and tells it if each has answered. Returns whether there is anybody left to ask.
    fn look(&self, workers: &Workers, patience: Duration) -> bool {
        let answers = workers.ask_threads(patience);
        if answers.are_all_well() {
            let (players, sessions) = census(workers);
            let status = format!("STATUS={} in {}", counted(players, "player"), counted(sessions, "session"));
            // Who did not ask for it is not told.
            let watchdog = if self.watchdog.is_some() { "WATCHDOG=1\n" } else { "" };
            self.tell(&format!("{watchdog}{status}"));
        }
        !answers.is_over()
    }

    #[cfg(target_os = "linux")]
    fn tell(&self, message: &str) {
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
    fn tell(&self, _: &str) {}
}

/// Returns how many players there are, and in how many sessions that take some.
fn census(workers: &Workers) -> (usize, usize) {
    let open = workers.ask_each(|host, _, _| (!host.is_stopped()).then(|| host.session.players_in_game()));
    let open: Vec<usize> = open.into_iter().flatten().collect();
    (open.iter().sum(), open.len())
}

/// How often it is told who plays, if it does not ask for more.
const STATUS_EVERY: Duration = Duration::from_secs(10);

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::os::unix::net::UnixDatagram;

    use super::*;
    use crate::serve::session_group::SessionGroup;
    use crate::serve::workers;

    #[test]
    fn the_watchdog_is_for_the_process_that_it_names() {
        let own = std::process::id().to_string();
        let watchdog = |pid: Option<&str>, micros: &str| {
            ServiceManager::new(None, Some(micros.to_owned()), pid.map(str::to_owned)).watchdog
        };
        assert_eq!(watchdog(None, "2000000"), Some(Duration::from_secs(2)));
        assert_eq!(watchdog(Some(&own), "2000000"), Some(Duration::from_secs(2)));
        assert_eq!(watchdog(Some("1"), "2000000"), None);
        assert_eq!((watchdog(None, "0"), watchdog(None, "soon")), (None, None));
    }

    /// A thread that hangs is what a watchdog is for; one that has ended is told by the log, and the others play on.
    #[test]
    fn only_while_every_thread_that_is_left_answers_is_the_watchdog_fed() {
        let path = env::temp_dir().join(format!("bcnet-notify-{}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let systemd = UnixDatagram::bind(&path).expect("a socket");
        systemd.set_nonblocking(true).expect("a socket");
        let heard = || {
            let mut buffer = [0; 64];
            let heard =
                systemd.recv(&mut buffer).map(|len| String::from_utf8_lossy(&buffer[..len]).into_owned());
            heard.unwrap_or_default()
        };
        let socket = path.to_str().map(str::to_owned);
        let manager = ServiceManager::new(socket.clone(), Some("60000000".to_owned()), None);
        let patience = Duration::from_secs(60);
        let (reach, threads) = workers::tests::dealt(3, 3);
        let running = std::thread::spawn(move || workers::run(threads));
        let without_watchdog = ServiceManager::new(socket, None, None);
        assert!(without_watchdog.look(&reach, patience));
        assert_eq!(heard(), "STATUS=0 players in 3 sessions");
        assert!(manager.look(&reach, patience));
        assert_eq!(heard(), "WATCHDOG=1\nSTATUS=0 players in 3 sessions");
        reach.give_thread(1, |_, _| panic!("on purpose"));
        assert!(manager.look(&reach, patience));
        let told = heard();
        assert!(told.starts_with("WATCHDOG=1\nSTATUS=0 players in "), "two are left, and play: {told}");
        let (release, held) = std::sync::mpsc::channel::<()>();
        reach.give_thread(0, move |_, _| {
            let _ = held.recv();
        });
        assert!(manager.look(&reach, Duration::from_millis(50)));
        assert_eq!(heard(), "", "one hangs");
        drop(release);
        reach.give_all(SessionGroup::stop);
        running.join().expect("no panic").expect("ended as told");
        assert!(!manager.look(&reach, patience), "nobody is left");
        std::fs::remove_file(&path).expect("the socket's file");
    }
}
