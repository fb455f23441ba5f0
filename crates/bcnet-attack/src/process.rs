//! The attacked program: `bcnet serve`, `master`, `proxy` or `lab host`, in a temporary directory.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::net::SocketAddrV4;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::Environment;

/// A process of the attacked program.
pub(crate) struct Process {
    child: Child,
    directory: PathBuf,
    bcnet: PathBuf,
    /// The line that the program printed when it was ready.
    ready_line: String,
    /// `true` if the program answers `bcnet ctl`.
    has_control: bool,
    env: Environment,
    password: String,
}

/// CPU time and memory of a process.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct TargetUsage {
    pub(crate) cpu_time: Duration,
    /// Peak memory so far.
    pub(crate) peak_bytes: u64,
}

impl Process {
    /// Starts a server with one session and these settings.
    pub(crate) fn serve(env: &Environment, options: &[&str]) -> anyhow::Result<Self> {
        let bind = env.sandbox.server_address().to_string();
        let fixed = ["serve", "--bind", &bind, "--name", "Target", "--set", "log.format=json"];
        let control = ["--set", "server.control=control.sock"];
        // On loopback, the server must not trust its clients: no limit would apply to them.
        let untrusted = (!env.sandbox.can_forge()).then_some("session.trusted=");
        let further = env.set.iter().map(String::as_str);
        let all = untrusted.into_iter().chain(options.iter().copied()).chain(further);
        let sets: Vec<&str> = all.flat_map(|option| ["--set", option]).collect();
        let mut process = Self::start(env, "", &[&fixed[..], &control, &sets].concat())?;
        let password = options.iter().find_map(|option| option.strip_prefix("session.password="));
        process.password = password.unwrap_or_default().into();
        Ok(process)
    }

    pub(crate) fn master(env: &Environment) -> anyhow::Result<Self> {
        let bind = env.sandbox.server_address().to_string();
        Self::start(env, "", &["master", "--bind", &bind, "--udp", "0", "--tcp", "0", "--json"])
    }

    pub(crate) fn proxy(env: &Environment, upstream: SocketAddrV4, options: &[&str]) -> anyhow::Result<Self> {
        let (listen, upstream) = (format!("{}:0", env.sandbox.server_address()), upstream.to_string());
        let fixed = ["proxy", "--listen", &listen, "--upstream", &upstream, "--log-json"];
        Self::start(env, "", &[&fixed[..], options].concat())
    }

    /// Starts a host with the engine of the original, as a model of a stock server.
    ///
    /// It has no control socket.
    pub(crate) fn stock_host(env: &Environment) -> anyhow::Result<Self> {
        let listen = format!("{}:0", env.sandbox.server_address());
        let directory = new_directory()?;
        let events = File::create(directory.join(EVENTS_FILE))?.into();
        let mut process =
            Self::spawn(env, directory, &["lab", "host", "--public", "--listen", &listen], events)?;
        let end = env.clock.now() + START_TIMEOUT;
        let port = loop {
            let log = process.log()?;
            let listening = log.split_once("hosting at ").and_then(|(_, rest)| rest.split_once(' '));
            if let Some((address, _)) = listening {
                break address.parse::<SocketAddrV4>()?.port();
            }
            if !process.is_alive() || env.clock.now() > end {
                bail!("`bcnet lab host` does not start: {}", log.trim());
            }
            thread::sleep(Duration::from_millis(10));
        };
        process.ready_line = format!("host ready port={port}");
        process.has_control = false;
        Ok(process)
    }

    /// Starts a server with this configuration file.
    pub(crate) fn serve_configured(env: &Environment, config: &str) -> anyhow::Result<Self> {
        let bind = env.sandbox.server_address().to_string();
        let control = ["--set", "server.control=control.sock", "--set", "log.format=json"];
        Self::start(env, config, &[&["serve", "--bind", &bind], &control[..]].concat())
    }

    fn start(env: &Environment, config: &str, args: &[&str]) -> anyhow::Result<Self> {
        let directory = new_directory()?;
        if !config.is_empty() {
            fs::write(directory.join("bcnet.toml"), config)?;
        }
        let mut process = Self::spawn(env, directory, args, Stdio::piped())?;
        let output = process.child.stdout.take().context("the program has no standard output")?;
        let (sender, receiver) = mpsc::channel();
        thread::spawn(move || {
            let mut line = String::new();
            // The error is ignored: after a timeout the receiver no longer exists, and nobody needs the line.
            drop(BufReader::new(output).read_line(&mut line).map(|_| sender.send(line)));
        });
        process.ready_line = receiver.recv_timeout(START_TIMEOUT).unwrap_or_default();
        if !process.ready_line.contains(" ready ") {
            let command = format!("{} {}", env.bcnet.display(), args.join(" "));
            bail!("`{command}` does not start: {}", process.log().unwrap_or_default().trim());
        }
        Ok(process)
    }

    /// Starts the program in a directory. The caller waits until it is ready.
    fn spawn(env: &Environment, directory: PathBuf, args: &[&str], output: Stdio) -> anyhow::Result<Self> {
        let log = File::create(directory.join(LOG_FILE))?;
        let child = Command::new(&env.bcnet)
            .args(args)
            .current_dir(&directory)
            .env("XDG_RUNTIME_DIR", &directory)
            .env_remove("RUNTIME_DIRECTORY")
            .env_remove("BCNET_CONFIG")
            .stdin(Stdio::null())
            .stdout(output)
            .stderr(log)
            .spawn()
            .with_context(|| format!("cannot run {}", env.bcnet.display()))?;
        Ok(Self {
            child,
            directory,
            bcnet: env.bcnet.clone(),
            ready_line: String::new(),
            has_control: true,
            env: env.clone(),
            password: String::new(),
        })
    }

    /// Returns a value from the ready line of the process, such as `port`.
    pub(crate) fn ready_value(&self, key: &str) -> anyhow::Result<&str> {
        let words = self.ready_line.split_whitespace();
        let value = words.filter_map(|word| word.split_once('=')).find(|(name, _)| *name == key);
        value.map(|(_, value)| value).ok_or_else(|| anyhow!("no {key} in: {}", self.ready_line.trim()))
    }

    /// Returns the address of the program, with the port under `key` in the ready line.
    pub(crate) fn ready_address(&self, key: &str) -> anyhow::Result<SocketAddrV4> {
        Ok(SocketAddrV4::new(self.env.sandbox.server_address(), self.ready_value(key)?.parse()?))
    }

    /// Returns the address that players join, with port 0 if there is none.
    pub(crate) fn address(&self) -> SocketAddrV4 {
        self.ready_address("port").unwrap_or_else(|_| SocketAddrV4::new(self.env.sandbox.server_address(), 0))
    }

    pub(crate) fn password(&self) -> &str {
        &self.password
    }

    /// Sends a command to the server, and returns the JSON response.
    pub(crate) fn control(&self, args: &[&str]) -> anyhow::Result<Value> {
        let output = self.control_output(&[args, &["--json"]].concat())?;
        serde_json::from_str(&output).with_context(|| format!("bcnet ctl {}: {output}", args.join(" ")))
    }

    /// Sends a command to the server, and returns the text that people see.
    pub(crate) fn control_output(&self, args: &[&str]) -> anyhow::Result<String> {
        let output = Command::new(&self.bcnet)
            .args(["ctl", "--socket", "control.sock"])
            .args(args)
            .current_dir(&self.directory)
            .env("XDG_RUNTIME_DIR", &self.directory)
            .output()?;
        if !output.status.success() {
            bail!("bcnet ctl {}: {}", args.join(" "), String::from_utf8_lossy(&output.stderr).trim());
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Returns whether the program can list its players.
    pub(crate) const fn has_control(&self) -> bool {
        self.has_control
    }

    /// Returns names and ids of all players, including those who are still joining.
    pub(crate) fn players(&self) -> anyhow::Result<Vec<(String, u8)>> {
        let answer = self.control(&["players"])?;
        let players = answer["players"].as_array().context("the response has no `players`")?;
        let read = |player: &Value| {
            let id = player["peer"].as_u64().and_then(|id| id.try_into().ok())?;
            Some((player["name"].as_str()?.to_owned(), id))
        };
        Ok(players.iter().filter_map(read).collect())
    }

    pub(crate) fn usage(&self) -> TargetUsage {
        read_usage(self.child.id()).unwrap_or_default()
    }

    /// Returns whether the process is running.
    pub(crate) fn is_alive(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Returns the log so far.
    pub(crate) fn log(&self) -> anyhow::Result<String> {
        let bytes = fs::read(self.directory.join(LOG_FILE))?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Returns the events of a stock host so far, one in each line.
    pub(crate) fn stock_events(&self) -> anyhow::Result<String> {
        Ok(fs::read_to_string(self.directory.join(EVENTS_FILE))?)
    }

    /// Runs the program to its end in the directory of this process.
    pub(crate) fn run_beside(&self, args: &[&str]) -> anyhow::Result<Output> {
        Ok(Command::new(&self.bcnet).args(args).current_dir(&self.directory).output()?)
    }

    /// Returns the log lines with this event.
    pub(crate) fn log_events(&self, event: &str) -> anyhow::Result<Vec<Value>> {
        let log = self.log()?;
        let lines = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        Ok(lines.filter(|line| line["event"] == event).collect())
    }
}

impl Process {
    /// Stops the program with a signal, and waits until it has ended or a timeout has passed.
    pub(crate) fn stop(&mut self) {
        let id = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        // The process may have exited already.
        let _ = id.map(|id| kill_process(id, Signal::TERM));
        let end = self.env.clock.now() + STOP_TIMEOUT;
        while self.is_alive() && self.env.clock.now() < end {
            thread::sleep(Duration::from_millis(10));
        }
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.stop();
        drop(fs::remove_dir_all(&self.directory));
    }
}

/// Creates a temporary directory for a process.
fn new_directory() -> anyhow::Result<PathBuf> {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    let directory = std::env::temp_dir().join(format!("bcnet-attack-{}-{number}", std::process::id()));
    fs::create_dir_all(&directory).with_context(|| directory.display().to_string())?;
    Ok(directory)
}

fn read_usage(process: u32) -> Option<TargetUsage> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The program's name, in parentheses, may contain spaces.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
    let ticks: u64 = fields.next()?.parse::<u64>().ok()? + fields.next()?.parse::<u64>().ok()?;
    let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kibibytes: u64 = peak.split_whitespace().next()?.parse().ok()?;
    let per_second = rustix::param::clock_ticks_per_second();
    let processor = Duration::from_secs_f64(ticks as f64 / per_second as f64);
    Some(TargetUsage { cpu_time: processor, peak_bytes: kibibytes << 10 })
}

const LOG_FILE: &str = "log";
/// The file with the standard output of a stock host.
const EVENTS_FILE: &str = "events";
/// The longest wait until the program is ready.
const START_TIMEOUT: Duration = Duration::from_secs(10);
/// The longest wait for a graceful shutdown.
const STOP_TIMEOUT: Duration = Duration::from_secs(3);
