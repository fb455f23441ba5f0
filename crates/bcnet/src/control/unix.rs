//! Unix sockets, in places that only one user may use.

use std::env;
use std::fs::{self, DirBuilder, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use anyhow::bail;

use super::Taken;
use crate::config::first;

/// Who may talk to a server, for those who may not.
pub(crate) const WHO_MAY: &str = "only the user who runs the server, or root, may talk to it";

/// One of two ends that talk.
pub(crate) use std::os::unix::net::UnixStream as Stream;

/// Where clients come to.
#[derive(Debug)]
pub(crate) struct Listener(UnixListener);

impl Listener {
    /// Listens at a place, for this user only. What the system does not allow is an [`io::Error`]; that somebody else is there
    /// is another.
    pub(crate) fn bind(path: &Path) -> anyhow::Result<Self> {
        if let Some(parent) = path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
            make_directory(parent)?;
        }
        if fs::symlink_metadata(path).is_ok_and(|old| !old.file_type().is_socket()) {
            bail!("there is a file of that name that is no socket; name another one with `server.control`");
        }
        if Stream::connect(path).is_ok() {
            return Err(Taken.into());
        }
        // Nobody may use the socket between its creation and the change of its mode, so it gets its name only afterwards.
        let nameless = path.with_extension("new");
        drop(fs::remove_file(&nameless));
        let listener = UnixListener::bind(&nameless)?;
        fs::set_permissions(&nameless, Permissions::from_mode(0o600))?;
        fs::rename(&nameless, path)?;
        Ok(Self(listener))
    }

    /// Waits for a client.
    pub(crate) fn accept(&self) -> io::Result<Stream> {
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
    let said = ["RUNTIME_DIRECTORY", "XDG_RUNTIME_DIR"].into_iter().filter_map(env::var_os);
    said.map(|directories| first(&directories)).chain(["/run/bcnet".into()]).chain(own_directory())
}

/// Returns a directory for the sockets of this user alone, if the system tells who that is.
fn own_directory() -> Option<PathBuf> {
    user().map(|user| format!("/tmp/bcnet-{user}").into())
}

/// Returns the number of the user who runs this process, if the system tells.
pub(crate) fn user() -> Option<u32> {
    fs::metadata("/proc/self").ok().map(|process| process.uid())
}

/// Makes the directory of a socket, if there is none.
fn make_directory(directory: &Path) -> io::Result<()> {
    if own_directory().as_deref() == Some(directory) {
        make_private(directory)
    } else {
        fs::create_dir_all(directory)
    }
}

/// Returns whether a socket there is one that the user can trust: everyone may write to `/tmp`, and make a directory
/// there that is called like another's.
pub(crate) fn is_trusted(socket: &Path) -> bool {
    let directory = socket.parent();
    directory.is_none_or(|directory| own_directory().as_deref() != Some(directory) || is_private(directory))
}

fn make_private(directory: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(0o700).create(directory) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
        made => made?,
    }
    if is_private(directory) { Ok(()) } else { Err(io::Error::other("it is not this user's alone")) }
}

fn is_private(directory: &Path) -> bool {
    fs::symlink_metadata(directory).is_ok_and(|found| {
        found.is_dir() && Some(found.uid()) == user() && found.permissions().mode() & 0o077 == 0
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_that_others_could_have_made_is_not_trusted() {
        let base = env::temp_dir().join(format!("bcnet-control-{}", std::process::id()));
        fs::create_dir_all(&base).expect("a directory");
        let [own, open, link, file] = ["own", "open", "link", "file"].map(|name| base.join(name));
        make_private(&own).expect("made");
        make_private(&own).expect("it is there already");
        fs::create_dir(&open).expect("made");
        fs::set_permissions(&open, Permissions::from_mode(0o755)).expect("changed");
        std::os::unix::fs::symlink(&own, &link).expect("linked");
        fs::write(&file, "").expect("written");
        let refused = [&open, &link, &file].map(|place| make_private(place).is_err());
        drop(fs::remove_dir_all(&base));
        assert_eq!(refused, [true; 3]);
    }
}
