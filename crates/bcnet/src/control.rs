//! Where `bcnet ctl` and a running server meet.

use std::env;
use std::fs::{self, DirBuilder};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use crate::config::{Settings, first, is_bare};

/// Returns where the control socket may be, the usual place first; nowhere if the server has none. A name without a
/// directory may be in each of the places for sockets; any other path is one place.
pub(crate) fn places(settings: &Settings) -> Vec<PathBuf> {
    match &settings.server.control {
        None => Vec::new(),
        Some(path) if !is_bare(path) => vec![path.clone()],
        Some(name) => runtime_directories().map(|directory| directory.join(name)).collect(),
    }
}

/// Returns where sockets belong: what the service manager says, the user's place, the place of system services, and
/// for a user who has none of them one of its own.
fn runtime_directories() -> impl Iterator<Item = PathBuf> {
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
pub(crate) fn make_directory(directory: &Path) -> io::Result<()> {
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
    fn only_a_name_without_a_directory_is_looked_for_elsewhere() {
        let places = |control: &str| {
            let mut settings = Settings::default();
            settings.server.control = Some(control.into());
            places(&settings)
        };
        assert!(places("bcnet.sock").contains(&"/run/bcnet/bcnet.sock".into()));
        for one in ["./bcnet.sock", "sockets/bcnet.sock", "/srv/bcnet.sock"] {
            assert_eq!(places(one), [PathBuf::from(one)]);
        }
    }

    #[test]
    fn a_directory_that_others_could_have_made_is_not_trusted() {
        let base = env::temp_dir().join(format!("bcnet-control-{}", std::process::id()));
        fs::create_dir_all(&base).expect("a directory");
        let [own, open, link, file] = ["own", "open", "link", "file"].map(|name| base.join(name));
        make_private(&own).expect("made");
        make_private(&own).expect("it is there already");
        fs::create_dir(&open).expect("made");
        fs::set_permissions(&open, fs::Permissions::from_mode(0o755)).expect("changed");
        std::os::unix::fs::symlink(&own, &link).expect("linked");
        fs::write(&file, "").expect("written");
        let refused = [&open, &link, &file].map(|place| make_private(place).is_err());
        drop(fs::remove_dir_all(&base));
        assert_eq!(refused, [true; 3]);
    }
}
