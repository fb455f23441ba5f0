//! The control socket as a Unix socket that only one user can access.

use std::env;
use std::fs::{self, DirBuilder, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use anyhow::bail;

use super::SocketInUse;
use crate::config::first_directory;

/// The hint for users without access to the server.
pub(crate) const ACCESS_HINT: &str = "only the user who runs the server, or root, may control it";

/// One end of a control connection.
pub(crate) use std::os::unix::net::UnixStream as ControlStream;

/// The listening end of the control socket.
#[derive(Debug)]
pub(crate) struct ControlListener(UnixListener);

impl ControlListener {
    /// Creates the socket, with access for this user only.
    ///
    /// Fails with an [`io::Error`] if the system refuses, and with [`SocketInUse`] if another server listens
    /// there.
    pub(crate) fn bind(path: &Path) -> anyhow::Result<Self> {
        if let Some(parent) = path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
            create_directory(parent)?;
        }
        if fs::symlink_metadata(path).is_ok_and(|old| !old.file_type().is_socket()) {
            bail!("a file with that name exists and is not a socket; set another path with `server.control`");
        }
        if ControlStream::connect(path).is_ok() {
            return Err(SocketInUse.into());
        }
        // The socket gets its final name only after its mode is set. So no other user can connect in between.
        let temporary = path.with_extension("new");
        drop(fs::remove_file(&temporary));
        let listener = UnixListener::bind(&temporary)?;
        fs::set_permissions(&temporary, Permissions::from_mode(0o600))?;
        fs::rename(&temporary, path)?;
        Ok(Self(listener))
    }

    /// Waits for a client.
    pub(crate) fn accept(&self) -> io::Result<ControlStream> {
        self.0.accept().map(|(stream, _)| stream)
    }
}

/// Deletes the socket.
pub(crate) fn remove(path: &Path) {
    drop(fs::remove_file(path));
}

/// Returns the directories for sockets, the preferred one first.
///
/// These are the service manager's directory, the user's runtime directory, the directory of system services,
/// and a private directory of this user.
pub(super) fn runtime_directories() -> impl Iterator<Item = PathBuf> {
    let named = ["RUNTIME_DIRECTORY", "XDG_RUNTIME_DIR"].into_iter().filter_map(env::var_os);
    named
        .map(|directories| first_directory(&directories))
        .chain(["/run/bcnet".into()])
        .chain(user_directory())
}

/// Returns a private directory for the sockets of this user, if the system reports the user id.
fn user_directory() -> Option<PathBuf> {
    user_id().map(|user| format!("/tmp/bcnet-{user}").into())
}

/// Returns the id of the user who runs this process, if the system reports it.
pub(crate) fn user_id() -> Option<u32> {
    fs::metadata("/proc/self").ok().map(|process| process.uid())
}

/// Creates the directory of a socket, if it does not exist.
fn create_directory(directory: &Path) -> io::Result<()> {
    if user_directory().as_deref() == Some(directory) {
        create_private_directory(directory)
    } else {
        fs::create_dir_all(directory)
    }
}

/// Returns whether the user can trust a socket at this path.
///
/// Every user may write to `/tmp`, and could create a directory there with the name of this user's directory.
pub(crate) fn is_trusted(socket: &Path) -> bool {
    let directory = socket.parent();
    directory.is_none_or(|directory| {
        user_directory().as_deref() != Some(directory) || is_private_directory(directory)
    })
}

fn create_private_directory(directory: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(0o700).create(directory) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
        made => made?,
    }
    if is_private_directory(directory) {
        Ok(())
    } else {
        Err(io::Error::other("other users can access this directory"))
    }
}

fn is_private_directory(directory: &Path) -> bool {
    fs::symlink_metadata(directory).is_ok_and(|found| {
        found.is_dir() && Some(found.uid()) == user_id() && found.permissions().mode() & 0o077 == 0
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directory_open_to_other_users_is_not_trusted() {
        let base = env::temp_dir().join(format!("bcnet-control-{}", std::process::id()));
        fs::create_dir_all(&base).expect("a directory");
        let [own, open, link, file] = ["own", "open", "link", "file"].map(|name| base.join(name));
        create_private_directory(&own).expect("created");
        create_private_directory(&own).expect("an existing private directory is fine");
        fs::create_dir(&open).expect("created");
        fs::set_permissions(&open, Permissions::from_mode(0o755)).expect("changed");
        std::os::unix::fs::symlink(&own, &link).expect("linked");
        fs::write(&file, "").expect("written");
        let refused = [&open, &link, &file].map(|place| create_private_directory(place).is_err());
        drop(fs::remove_dir_all(&base));
        assert_eq!(refused, [true; 3]);
    }
}
