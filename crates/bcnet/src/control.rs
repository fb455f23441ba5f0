//! The local connection between `bcnet ctl` and a running server.
//!
//! It is a Unix socket, or a named pipe on Windows. Both have the same interface: a [`ControlListener`] that
//! accepts clients, and a [`ControlStream`] that reads and writes with timeouts.

#[cfg_attr(unix, path = "control/unix.rs")]
#[cfg_attr(windows, path = "control/windows.rs")]
mod system;

use std::error::Error;
use std::fmt;
use std::path::PathBuf;

use crate::config::{Settings, is_bare_file_name};
#[cfg(windows)]
pub(crate) use system::SERVICE_DIRECTORY;
pub(crate) use system::{ACCESS_HINT, ControlListener, ControlStream, is_trusted, remove, user_id};

/// The error for a control socket at which another server already listens.
#[derive(Debug)]
pub(crate) struct SocketInUse;

impl fmt::Display for SocketInUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("another server listens there; set a different `server.control` for this server")
    }
}

impl Error for SocketInUse {}

/// Returns the possible paths of the control socket, the preferred one first.
///
/// A name without a directory is searched for in each runtime directory. Any other path is the only one.
/// The list is empty if the configuration disables the control socket.
pub(crate) fn socket_paths(settings: &Settings) -> Vec<PathBuf> {
    match &settings.server.control {
        None => Vec::new(),
        Some(path) if !is_bare_file_name(path) => vec![path.clone()],
        Some(name) => system::runtime_directories().map(|directory| directory.join(name)).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bare_socket_names_are_searched_in_all_directories() {
        let places = |control: &str| {
            let mut settings = Settings::default();
            settings.server.control = Some(control.into());
            socket_paths(&settings)
        };
        let elsewhere = places("bcnet.sock");
        assert!(
            elsewhere.len() > 1
                && elsewhere.iter().all(|place| place.ends_with("bcnet.sock") && !is_bare_file_name(place))
        );
        for one in ["./bcnet.sock", "sockets/bcnet.sock", "/srv/bcnet.sock"] {
            assert_eq!(places(one), [PathBuf::from(one)]);
        }
    }
}
