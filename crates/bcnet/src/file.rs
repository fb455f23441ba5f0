//! Reading files with a size limit, and replacing files atomically.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use anyhow::ensure;

/// Reads a text file up to the size limit. An error names the file.
pub(crate) fn read_text(path: &Path) -> io::Result<String> {
    let named = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
    let mut bytes = Vec::new();
    open_regular(path).and_then(|file| file.take(MAX_SIZE + 1).read_to_end(&mut bytes)).map_err(named)?;
    if bytes.len() as u64 > MAX_SIZE {
        return Err(named(io::Error::other(format!(
            "larger than {} MiB; this is not a file for bcnet",
            MAX_SIZE >> 20
        ))));
    }
    decode(bytes).map_err(|problem| named(io::Error::new(io::ErrorKind::InvalidData, problem)))
}

/// Opens a regular file for reading.
pub(crate) fn open_regular(path: &Path) -> io::Result<File> {
    open_regular_with(path, File::options().read(true))
}

/// Opens a regular file with these options.
///
/// Fails for pipes and devices. Unlike [`File::open`], it never waits for the other end of a pipe.
pub(crate) fn open_regular_with(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    let file = without_waiting(options).open(path)?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(not_regular()) }
}

/// Checks that a path names a regular file or nothing, for files that a library opens.
pub(crate) fn ensure_regular_or_absent(path: &Path) -> io::Result<()> {
    match fs::metadata(path) {
        Ok(metadata) if !metadata.is_file() => Err(not_regular()),
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn not_regular() -> io::Error {
    io::Error::other("not a regular file but a pipe, a device or a directory; put a regular file there")
}

/// Makes `open` fail instead of waiting for the other end of a pipe.
#[cfg(unix)]
fn without_waiting(options: &mut OpenOptions) -> &mut OpenOptions {
    use rustix::fs::OFlags;
    use std::os::unix::fs::OpenOptionsExt;
    options.custom_flags((OFlags::NONBLOCK | OFlags::NOCTTY).bits().cast_signed())
}

/// Does nothing: named pipes of Windows are not in directories.
#[cfg(windows)]
fn without_waiting(options: &mut OpenOptions) -> &mut OpenOptions {
    options
}

/// Creates a file that only its user may read, such as a capture. An existing file keeps its rights.
///
/// On Windows the directory determines the rights.
pub(crate) fn create_capture(path: &Path) -> io::Result<File> {
    let mut options = File::options();
    options.write(true).create(true).truncate(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt;
        options.mode(0o600);
    }
    options.open(path)
}

/// Makes new files of this process unreadable for users outside its group.
///
/// Logs, scores and histories have names and addresses of players.
pub(crate) fn restrict_new_files() {
    #[cfg(unix)]
    {
        use rustix::fs::Mode;
        let private = Mode::RWXO | Mode::WGRP;
        let before = rustix::process::umask(private);
        rustix::process::umask(before | private);
    }
}

/// Decodes the bytes of a text file as UTF-8.
///
/// Notepad on Windows may add a byte order mark, or save in another encoding.
fn decode(bytes: Vec<u8>) -> Result<String, &'static str> {
    let is_utf_16 = [&[0xff, 0xfe], &[0xfe, 0xff]].iter().any(|mark| bytes.starts_with(*mark));
    if is_utf_16 || matches!(bytes[..], [first, second, ..] if (first == 0) != (second == 0)) {
        return Err("the file is saved as UTF-16 (called Unicode in old versions of Notepad); \
                    save it again with the encoding UTF-8 (File, Save as)");
    }
    let mut text = String::from_utf8(bytes).map_err(
        |_| "the file is not valid UTF-8; save it again with the encoding UTF-8 (Notepad: File, Save as)",
    )?;
    if text.starts_with('\u{feff}') {
        text.remove(0);
    }
    Ok(text)
}

/// The size limit. Every file of this program is smaller.
const MAX_SIZE: u64 = 8 << 20;

/// Replaces the content of a file atomically, and keeps its access rights.
///
/// If that fails, the old file is unchanged.
pub(crate) fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let new = temporary_path(path)?;
    let written = write(&new, bytes, path).and_then(|()| rename(&new, path));
    if written.is_err() {
        // On a full disk, a partial file would take the space that the next attempt needs.
        drop(fs::remove_file(&new));
    }
    written?;
    sync_directory(parent_directory(path))
}

/// Waits until a new directory entry is on disk.
#[cfg(unix)]
fn sync_directory(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

/// Does nothing: Windows journals directory entries and has no call to wait for them.
#[cfg(windows)]
fn sync_directory(_: &Path) -> io::Result<()> {
    Ok(())
}

#[cfg(unix)]
fn rename(from: &Path, to: &Path) -> io::Result<()> {
    fs::rename(from, to)
}

/// Renames a file, and retries if access is denied.
///
/// Virus scanners and backups hold new files open for a moment, and the system refuses to rename them then.
#[cfg(windows)]
fn rename(from: &Path, to: &Path) -> io::Result<()> {
    for _ in 0..MAX_RENAME_ATTEMPTS {
        match fs::rename(from, to) {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                std::thread::sleep(std::time::Duration::from_millis(20));
            }
            done => return done,
        }
    }
    fs::rename(from, to)
}

#[cfg(windows)]
const MAX_RENAME_ATTEMPTS: u32 = 10;

/// Checks whether [`replace`] could write, without changing the file.
pub(crate) fn check_replaceable(path: &Path) -> io::Result<()> {
    let new = temporary_path(path)?;
    create_new_version(&new)?;
    fs::remove_file(&new)
}

/// Creates the new version of a file, with the usual access rights.
fn create_new_version(path: &Path) -> io::Result<File> {
    without_waiting(File::options().write(true).create(true).truncate(true)).open(path)
}

/// Returns the name that a file has while it is written.
fn temporary_path(path: &Path) -> io::Result<PathBuf> {
    let mut name = path.file_name().ok_or(io::ErrorKind::IsADirectory)?.to_owned();
    name.push(".new");
    Ok(path.with_file_name(name))
}

fn write(path: &Path, bytes: &[u8], old: &Path) -> io::Result<()> {
    let mut file = create_with_rights_of(path, old)?;
    file.write_all(bytes)?;
    // Without this, a crash of the machine could leave the new name without the content.
    file.sync_all()
}

/// Creates a file with the access rights of `old`, if `old` exists: the content may include a password.
#[cfg(unix)]
fn create_with_rights_of(path: &Path, old: &Path) -> io::Result<File> {
    use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
    let Ok(old) = fs::metadata(old) else { return create_new_version(path) };
    let mut options = File::options();
    options.write(true).create(true).truncate(true).mode(0o600);
    let file = without_waiting(&mut options).open(path)?;
    let new = file.metadata()?;
    if (new.uid(), new.gid()) != (old.uid(), old.gid()) {
        // Only root may change the owner. A member of a group may also set that group.
        drop(fchown(&file, Some(old.uid()), None));
        drop(fchown(&file, None, Some(old.gid())));
    }
    let is_of_group = file.metadata()?.gid() == old.gid();
    let mode = old.permissions().mode() & if is_of_group { 0o777 } else { 0o707 };
    // Special files such as `/dev/full` may refuse a change of mode.
    drop(file.set_permissions(fs::Permissions::from_mode(mode)));
    Ok(file)
}

/// Creates a file with the access rights of `old`, if `old` exists: the content may include a password.
///
/// If there is no old file, the directory determines the rights.
#[cfg(windows)]
fn create_with_rights_of(path: &Path, old: &Path) -> io::Result<File> {
    if !old.try_exists()? {
        return create_new_version(path);
    }
    // A file left from an earlier attempt may have other rights.
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let file = crate::win32::create_private_file(path)?;
    // Some file systems have no access rights. Without this call, only the user and administrators may read
    // the file.
    drop(crate::win32::copy_permissions(old, &file));
    Ok(file)
}

/// Creates a file that only its user may read, and writes `bytes` to it.
pub(crate) fn create_private(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = open_private(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

#[cfg(unix)]
fn open_private(path: &Path) -> io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt;
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
}

#[cfg(windows)]
fn open_private(path: &Path) -> io::Result<File> {
    crate::win32::create_private_file(path)
}

/// Returns whether users other than the owner and the group have any access to a file.
///
/// On Windows the directory determines the rights, so the answer is `false`.
pub(crate) fn is_world_accessible(path: &Path) -> io::Result<bool> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        Ok(fs::metadata(path)?.permissions().mode() & 0o007 != 0)
    }
    #[cfg(windows)]
    fs::metadata(path).map(|_| false)
}

/// Returns whether every user has access to a file and to all directories above it.
pub(crate) fn is_reachable_by_all_users(path: &Path) -> io::Result<bool> {
    let path = path.canonicalize()?;
    Ok(is_world_accessible(&path)?
        && path.ancestors().skip(1).all(|above| is_world_accessible(above).unwrap_or(true)))
}

/// Returns how many bytes this user can write to a directory, if the system reports it.
#[cfg(unix)]
pub(crate) fn free_bytes(directory: &Path) -> Option<u64> {
    let stats = rustix::fs::statvfs(directory).ok()?;
    stats.f_bavail.checked_mul(stats.f_frsize)
}

/// Returns how many bytes this user can write to a directory, if the system reports it.
#[cfg(windows)]
pub(crate) fn free_bytes(directory: &Path) -> Option<u64> {
    crate::win32::free_bytes(directory).ok()
}

/// Returns the directory of a file.
pub(crate) fn parent_directory(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or_else(|| Path::new("."))
}

/// Checks that an output file is not one of the inputs, which it would overwrite.
pub(crate) fn ensure_not_input(out: &Path, inputs: &[PathBuf], option: &str) -> anyhow::Result<()> {
    let is_same_file =
        |input: &PathBuf| matches!((input.canonicalize(), out.canonicalize()), (Ok(a), Ok(b)) if a == b);
    ensure!(
        !inputs.iter().any(is_same_file),
        "{}: is the input; name another file for {option}",
        out.display()
    );
    Ok(())
}

#[cfg(all(test, windows))]
mod tests {
    use super::*;
    use crate::win32::{current_user_sid, descriptor_text};

    #[test]
    fn replaced_file_keeps_its_access_rights() {
        let directory = std::env::temp_dir().join(format!("bcnet-replace-{}", std::process::id()));
        drop(fs::remove_dir_all(&directory));
        fs::create_dir_all(&directory).expect("a directory");
        let [private, usual] = ["private", "usual"].map(|name| directory.join(name));
        create_private(&private, b"old").expect("written");
        replace(&usual, b"old").expect("written");
        let rights = |path: &Path| descriptor_text(path).expect("reported");
        let before = [rights(&private), rights(&usual)];
        assert_ne!(before[0], before[1]);
        // Compares the user by id: for an administrator, the owner of the file is another account.
        assert!(
            before[0].contains(&format!("(A;;FA;;;{})", current_user_sid().expect("reported"))),
            "{}",
            before[0]
        );
        // A crash could leave this file, readable by everyone who may read the directory.
        fs::write(temporary_path(&private).expect("a name"), b"half").expect("written");
        for path in [&private, &usual] {
            replace(path, b"new").expect("replaced");
            assert_eq!(fs::read(path).expect("read"), b"new");
        }
        let after = [rights(&private), rights(&usual)];
        let left = fs::read_dir(&directory).expect("read").count();
        drop(fs::remove_dir_all(&directory));
        assert_eq!((after, left), (before, 2));
    }
}
