//! Runs the program as a user does.
#![allow(dead_code, unused_imports, reason = "each test uses only a part")]

mod signal;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use serde_json::Value;

pub(crate) use signal::{in_own_process_group, signal};

/// Time after which a run fails: much longer than any run takes.
const RUN_TIMEOUT: Duration = Duration::from_secs(300);

/// The output and the exit code of a run.
pub(crate) struct ProcessOutput {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl ProcessOutput {
    /// Returns the JSON lines of the output.
    pub(crate) fn json(&self) -> Vec<Value> {
        self.stdout.lines().map(|line| serde_json::from_str(line).expect(line)).collect()
    }
}

impl From<Output> for ProcessOutput {
    fn from(output: Output) -> Self {
        let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
        Self {
            code: output.status.code().expect("an exit code"),
            stdout: text(output.stdout),
            stderr: text(output.stderr),
        }
    }
}

pub(crate) fn bcnet(args: &[&str], input: impl AsRef<[u8]>) -> ProcessOutput {
    let mut child = command(args).spawn().expect("bcnet starts");
    let mut stdin = child.stdin.take().expect("a pipe");
    let input = input.as_ref().to_owned();
    let feeder = thread::spawn(move || stdin.write_all(&input));
    let output = wait_with_output(child);
    let _ = feeder.join().expect("the feeder does not panic");
    output.into()
}

/// Reads the output of a program until its exit. Kills it and panics after [`RUN_TIMEOUT`].
pub(crate) fn wait_with_output(child: Child) -> Output {
    let id = child.id();
    let (sender, result) = mpsc::channel();
    thread::spawn(move || sender.send(child.wait_with_output()));
    let Ok(output) = result.recv_timeout(RUN_TIMEOUT) else {
        signal(id, "KILL");
        panic!("the program did not end within {RUN_TIMEOUT:?}");
    };
    output.expect("the program ran")
}

pub(crate) fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bcnet"));
    in_own_process_group(&mut command)
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// Returns the path of a file in the repository.
pub(crate) fn path(below_root: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(below_root)
}
