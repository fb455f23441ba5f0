//! Where and how `bcnet ctl` and a running server meet.
//!
//! They meet at a Unix socket, or at a named pipe of Windows. Both have the same interface: a [`Listener`] that accepts, and a
//! [`Stream`] that is read and written with patience.

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

/// Another server listens at a place.
#[derive(Debug)]
pub(crate) struct SocketInUse;

impl fmt::Display for SocketInUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("another server listens there; give this one its own `server.control`")
    }
}

impl Error for SocketInUse {}

/// Returns where the control socket may be, the usual place first; nowhere if the server has none. A name without a
/// directory may be in each of the places for sockets; any other path is one place.
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
