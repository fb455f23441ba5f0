//! Raw connections to the control socket or pipe of a server, as other programs open them.

use std::fs;
use std::path::PathBuf;

use crate::server::{ServerProcess, TestDirectory};

#[cfg(unix)]
pub(crate) type RawControlConnection = std::os::unix::net::UnixStream;
#[cfg(windows)]
pub(crate) type RawControlConnection = fs::File;

/// Returns a directory whose servers listen where [`connect`] expects them.
pub(crate) fn directory_with_control() -> TestDirectory {
    let directory = TestDirectory::new();
    let configuration = format!("[server]\ncontrol = '{}'\n", socket_path(&directory).display());
    fs::write(directory.path("bcnet.toml"), configuration).expect("written");
    directory
}

fn socket_path(directory: &TestDirectory) -> PathBuf {
    #[cfg(unix)]
    return directory.path("bcnet.sock");
    #[cfg(windows)]
    return PathBuf::from(r"\\.\pipe").join(directory.0.file_name().expect("a name"));
}

/// Connects to a server in a directory of [`directory_with_control`].
#[cfg(unix)]
pub(crate) fn connect(server: &ServerProcess) -> RawControlConnection {
    let stream = RawControlConnection::connect(socket_path(&server.directory)).expect("a server");
    stream.set_read_timeout(Some(crate::server::TEST_TIMEOUT)).expect("a timeout");
    stream
}

/// Connects to a server in a directory of [`directory_with_control`].
#[cfg(windows)]
pub(crate) fn connect(server: &ServerProcess) -> RawControlConnection {
    use windows_sys::Win32::Foundation::ERROR_PIPE_BUSY;
    loop {
        match fs::File::options().read(true).write(true).open(socket_path(&server.directory)) {
            // Another client has just connected, and the next pipe instance does not exist yet.
            Err(error) if error.raw_os_error() == Some(ERROR_PIPE_BUSY.cast_signed()) => {
                std::thread::yield_now();
            }
            pipe => return pipe.expect("a server"),
        }
    }
}
