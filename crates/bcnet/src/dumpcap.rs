//! Captures with `dumpcap`, the small capture program of Wireshark.
//!
//! `dumpcap` has the permission to capture, so this program needs none. It is available on every system on
//! which Wireshark runs.

use std::io::{self, Read};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::thread::{self, JoinHandle};

use anyhow::{Context, anyhow, bail};

/// A running `dumpcap`.
pub(crate) struct DumpcapProcess {
    child: Child,
    /// Collects its standard error.
    stderr: JoinHandle<String>,
}

/// A network interface.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Interface {
    pub(crate) name: String,
    /// The name for people, if it differs.
    pub(crate) display_name: Option<String>,
}

impl DumpcapProcess {
    /// Starts a capture of UDP, or of `filter`. Returns the process and its output, which is pcapng.
    pub(crate) fn start(interface: &str, filter: Option<&str>) -> anyhow::Result<(Self, ChildStdout)> {
        let arguments = ["-q", "-i", interface, "-f", filter.unwrap_or("udp"), "-w", "-"];
        let mut child = spawn(&arguments)?;
        let (out, errors) = child.stdout.take().zip(child.stderr.take()).context("dumpcap has no pipes")?;
        let reader = thread::Builder::new().name("dumpcap".into()).spawn(move || {
            let mut text = Vec::new();
            let _ = errors.take(MAX_STDERR).read_to_end(&mut text);
            String::from_utf8_lossy(&text).into_owned()
        })?;
        Ok((Self { child, stderr: reader }, out))
    }

    /// Waits for the end of the process, and kills it first if `is_wanted`.
    ///
    /// Returns its error message if it failed by itself.
    pub(crate) fn stop(mut self, is_wanted: bool) -> Option<String> {
        if is_wanted {
            let _ = self.child.kill();
        }
        let status = self.child.wait();
        let text = self.stderr.join().unwrap_or_default();
        if is_wanted || status.is_ok_and(|status| status.success()) {
            return None;
        }
        Some(error_message(&text))
    }
}

/// Returns all interfaces that `dumpcap` can capture from.
pub(crate) fn interfaces() -> anyhow::Result<Vec<Interface>> {
    let output = spawn(&["-D"])?.wait_with_output()?;
    if !output.status.success() {
        bail!(error_message(&String::from_utf8_lossy(&output.stderr)));
    }
    Ok(String::from_utf8_lossy(&output.stdout).lines().filter_map(parse_interface).collect())
}

/// Parses a line such as `3. lo (Loopback)`.
fn parse_interface(line: &str) -> Option<Interface> {
    let (_, rest) = line.split_once(". ")?;
    let (name, title) = match rest.split_once(" (") {
        Some((name, title)) => (name, title.strip_suffix(')')),
        None => (rest, None),
    };
    Some(Interface { name: name.trim().to_owned(), display_name: title.map(str::to_owned) })
}

fn spawn(arguments: &[&str]) -> anyhow::Result<Child> {
    for program in candidate_paths() {
        let mut command = Command::new(&program);
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        match command.spawn() {
            Ok(child) => return Ok(child),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                bail!("{}: no permission to run it; {PERMISSION_HINT}", program.display())
            }
            Err(error) => return Err(error).with_context(|| program.display().to_string()),
        }
    }
    Err(anyhow!("dumpcap is not installed; install Wireshark (on Debian, the package wireshark-common)"))
}

/// Returns the paths to try: `dumpcap` in the search path, then the usual places of the system.
fn candidate_paths() -> Vec<PathBuf> {
    let mut programs = vec![PathBuf::from("dumpcap")];
    if cfg!(windows) {
        let folders = ["ProgramFiles", "ProgramFiles(x86)"].into_iter().filter_map(std::env::var_os);
        programs.extend(folders.map(|folder| PathBuf::from(folder).join("Wireshark").join("dumpcap.exe")));
    } else if cfg!(target_os = "macos") {
        programs.push("/Applications/Wireshark.app/Contents/MacOS/dumpcap".into());
    }
    programs
}

/// Returns the error of `dumpcap` in one line.
fn error_message(stderr: &str) -> String {
    let usual = ["Running as user", "Capturing on", "File: ", "Packets "];
    let lines = stderr.lines().map(|line| line.trim().trim_start_matches("dumpcap: "));
    let lines = lines.filter(|line| !line.is_empty());
    let lines = lines.filter(|line| !usual.iter().any(|start| line.starts_with(start)));
    // The rest is advice for one system. Our own hint covers it.
    let lines = lines.take_while(|line| !line.starts_with("On Debian"));
    let text: Vec<&str> = lines.take(MAX_ERROR_LINES).collect();
    let is_right = stderr.contains("ermission") || stderr.contains("not permitted");
    let hint = if is_right { format!(" ({PERMISSION_HINT})") } else { String::new() };
    match text.join(" ") {
        text if text.is_empty() => "dumpcap failed without an error message".into(),
        text => format!("dumpcap: {text}{hint}"),
    }
}

const PERMISSION_HINT: &str = "the installation of Wireshark decides who may capture; on Debian, run dpkg-reconfigure wireshark-common and join the group wireshark";
const MAX_STDERR: u64 = 1 << 16;
const MAX_ERROR_LINES: usize = 4;
