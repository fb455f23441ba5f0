//! Unix sockets, in places that only one user may use.

use std::env;
use std::fs::{self, DirBuilder, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use anyhow::bail;

use super::SocketInUse;
use crate::config::first_directory;

/// Who may talk to a server, for those who may not.
pub(crate) const ACCESS_HINT: &str = "only the user who runs the server, or root, may talk to it";

/// One of two ends that talk.
pub(crate) use std::os::unix::net::UnixStream as ControlStream;

/// Where clients come to.
#[derive(Debug)]
pub(crate) struct ControlListener(UnixListener);

impl ControlListener {
    /// Listens at a place, for this user only. What the system does not allow is an [`io::Error`]; that somebody else is there
    /// is another.
    pub(crate) fn bind(path: &Path) -> anyhow::Result<Self> {
        if let Some(parent) = path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
            create_directory(parent)?;
        }
        if fs::symlink_metadata(path).is_ok_and(|old| !old.file_type().is_socket()) {
            bail!("there is a file of that name that is no socket; name another one with `server.control`");
        }
        if ControlStream::connect(path).is_ok() {
            return Err(SocketInUse.into());
        }
        // Nobody may use the socket between its creation and the change of its mode, so it gets its name only afterwards.
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

/// Nobody listens there any more.
pub(crate) fn remove(path: &Path) {
    drop(fs::remove_file(path));
}

/// Returns where sockets belong: what the service manager says, the user's place, the place of system services, and
/// for a user who has none of them one of its own.
pub(super) fn runtime_directories() -> impl Iterator<Item = PathBuf> {
    let named = ["RUNTIME_DIRECTORY", "XDG_RUNTIME_DIR"].into_iter().filter_map(env::var_os);
    named
        .map(|directories| first_directory(&directories))
        .chain(["/run/bcnet".into()])
        .chain(user_directory())
}

/// Returns a directory for the sockets of this user alone, if the system tells who that is.
fn user_directory() -> Option<PathBuf> {
    user_id().map(|user| format!("/tmp/bcnet-{user}").into())
}

/// Returns the number of the user who runs this process, if the system tells.
pub(crate) fn user_id() -> Option<u32> {
    fs::metadata("/proc/self").ok().map(|process| process.uid())
}

/// Makes the directory of a socket, if there is none.
fn create_directory(directory: &Path) -> io::Result<()> {
    if user_directory().as_deref() == Some(directory) {
        create_private_directory(directory)
    } else {
        fs::create_dir_all(directory)
    }
}

/// Returns whether a socket there is one that the user can trust: everyone may write to `/tmp`, and make a directory
/// there that is called like another's.
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
        Err(io::Error::other("it is not this user's alone"))
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
        create_private_directory(&own).expect("made");
        create_private_directory(&own).expect("it is there already");
        fs::create_dir(&open).expect("made");
        fs::set_permissions(&open, Permissions::from_mode(0o755)).expect("changed");
        std::os::unix::fs::symlink(&own, &link).expect("linked");
        fs::write(&file, "").expect("written");
        let refused = [&open, &link, &file].map(|place| create_private_directory(place).is_err());
        drop(fs::remove_dir_all(&base));
        assert_eq!(refused, [true; 3]);
    }
}
