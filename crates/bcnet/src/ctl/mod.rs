//! `bcnet ctl`: sends one request to a running server on the same machine and prints the answer.

use std::error::Error;
use std::fmt;
use std::io::{self, BufRead, BufReader, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, anyhow, bail, ensure};
use bcnet_control::{ControlResponse, Envelope, Request, render_answer};
use serde_json::{Map, Value, json};

use crate::CommandStatus;
use crate::config::{self, ConfigFlags};
use crate::control::{self, ControlStream};
use crate::standard_output;

#[derive(clap::Args)]
#[command(after_help = "\
Exit codes: 0 done, 1 the server refused the request or did not answer, 2 no server could be reached.

Examples:
  bcnet ctl players
  bcnet ctl ban 192.0.2.0/24 --expiry 7d --reason \"team killing\"
  bcnet ctl --session 22102 say \"restart in five minutes\"
  bcnet ctl status --json | jq .sessions")]
pub(crate) struct Args {
    #[command(flatten)]
    connect: ConnectArgs,

    /// Only this session, by name or port; not for requests about the whole server
    #[arg(long, value_name = "SESSION", global = true)]
    session: Option<String>,

    /// Print the answer as JSON
    #[arg(long, global = true)]
    json: bool,

    #[command(subcommand)]
    request: Request,
}

/// The server to connect to, and the name of the operator.
#[derive(clap::Args)]
pub(crate) struct ConnectArgs {
    /// The server's control socket; default: the one in the configuration
    #[arg(long, value_name = "PATH", global = true)]
    socket: Option<PathBuf>,

    /// The configuration file; default: BCNET_CONFIG, else bcnet.toml if it exists
    #[arg(long, value_name = "FILE", global = true)]
    config: Option<PathBuf>,

    /// The name of the operator, for the history of actions; default: the current user
    #[arg(long, value_name = "NAME", global = true)]
    by: Option<String>,
}

impl ConnectArgs {
    /// Returns the paths at which the server may listen.
    pub(crate) fn socket_paths(&self) -> anyhow::Result<Vec<PathBuf>> {
        match &self.socket {
            Some(path) => Ok(vec![path.clone()]),
            None => configured_sockets(self.config.clone()),
        }
    }

    /// Returns the name of the operator.
    pub(crate) fn by(&self) -> Option<String> {
        self.by.clone().or_else(current_user)
    }
}

pub(crate) fn run(args: &Args) -> anyhow::Result<CommandStatus> {
    let paths = args.connect.socket_paths()?;
    let (path, stream) = connect(&paths)?;
    let (session, by) = (args.session.clone(), args.connect.by());
    let envelope = Envelope { session, by, request: args.request.clone() };
    let mut answers = BufReader::new(&stream);
    match send_request(path, &stream, &mut answers, &envelope) {
        Ok(ControlResponse::Error(reason)) => {
            eprintln!("bcnet: {reason}");
            Ok(CommandStatus::Findings)
        }
        Ok(ControlResponse::Ok(mut value)) => {
            if let Some(answer) = value.as_object_mut().filter(|answer| identifies_server(answer)) {
                answer.insert("socket".into(), absolute_path(path).display().to_string().into());
            }
            let mut out = standard_output::lock();
            if args.json && !is_follow_request(&args.request) {
                writeln!(out, "{value}")?;
            } else {
                out.write_all(render_answer(&value).as_bytes())?;
            }
            if is_follow_request(&args.request) {
                print_events(path, &mut answers, &mut out)?;
            }
            Ok(CommandStatus::Clean)
        }
        Err(error) if error.is::<NoAnswer>() => {
            eprintln!("bcnet: {error:#}");
            Ok(CommandStatus::Findings)
        }
        Err(error) => Err(error),
    }
}

fn is_follow_request(request: &Request) -> bool {
    matches!(request, Request::Events { follow: true, .. })
}

/// Prints events until the server closes the connection or the output is closed.
fn print_events(path: &Path, answers: &mut impl BufRead, out: &mut impl Write) -> anyhow::Result<()> {
    let mut line = String::new();
    loop {
        out.flush()?;
        line.clear();
        if answers.read_line(&mut line).map_err(|error| read_error(path, error))? == 0 {
            return Ok(());
        }
        // The server sends empty lines to keep the connection alive.
        if let Ok(event) = serde_json::from_str::<Value>(&line) {
            out.write_all(render_answer(&json!({ "events": [event] })).as_bytes())?;
        }
    }
}

/// Returns whether an answer is about the whole server.
///
/// Such answers show the socket path: the operator may have meant another server.
fn identifies_server(answer: &Map<String, Value>) -> bool {
    answer.contains_key("server") || answer.contains_key("sessions")
}

fn absolute_path(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

/// Requests the status of the first server that answers at one of these paths.
pub(crate) fn query_status(paths: &[PathBuf]) -> anyhow::Result<Value> {
    let (path, stream) = connect(paths)?;
    let envelope = Envelope { session: None, by: None, request: Request::Status };
    match send_request(path, &stream, &mut BufReader::new(&stream), &envelope)? {
        ControlResponse::Ok(value) => Ok(value),
        ControlResponse::Error(reason) => bail!("{}: {reason}", path.display()),
    }
}

/// Returns the name of the user who runs this command.
fn current_user() -> Option<String> {
    let names = ["SUDO_USER", "USER", "LOGNAME", "USERNAME"];
    let name = names.into_iter().find_map(|name| std::env::var(name).ok());
    name.or_else(|| control::user_id().map(|number| format!("user {number}")))
}

/// Returns the paths of the control socket, as the configuration has them.
fn configured_sockets(config: Option<PathBuf>) -> anyhow::Result<Vec<PathBuf>> {
    let loaded = config::load_control(&ConfigFlags { config, ..ConfigFlags::default() }, std::env::vars_os())
        .context("the configuration does not tell which socket to use; name one with --socket")?;
    let paths = control::socket_paths(&loaded.settings);
    ensure!(!paths.is_empty(), "`server.control` is \"none\", so the server has no control socket");
    Ok(paths)
}

/// Connects to the first server that this user may control.
pub(crate) fn connect(paths: &[PathBuf]) -> anyhow::Result<(&Path, ControlStream)> {
    let (mut forbidden, mut missing) = (None, None);
    for path in paths.iter().filter(|path| control::is_trusted(path)) {
        match ControlStream::connect(path) {
            Ok(stream) => return Ok((path, stream)),
            Err(error) if error.kind() == ErrorKind::PermissionDenied => {
                forbidden = forbidden.or_else(|| Some(connect_error(path, error)));
            }
            Err(error) if error.kind() == ErrorKind::NotFound => {
                missing = missing.or_else(|| Some(connect_error(path, error)));
            }
            // The socket file exists and this user may use it, so the server meant is the one at this path. Servers
            // at the remaining paths are other servers: do not try them.
            Err(error) => return Err(connect_error(path, error)),
        }
    }
    Err(forbidden.or(missing).unwrap_or_else(|| {
        anyhow!("other users can write to every directory for control sockets; name a socket with --socket")
    }))
}

/// Sends one request and waits for its answer.
///
/// Fails with [`NoAnswer`] if the server was reached but did not answer.
pub(crate) fn send_request(
    path: &Path,
    mut stream: &ControlStream,
    answers: &mut impl BufRead,
    envelope: &Envelope,
) -> anyhow::Result<ControlResponse> {
    stream.set_read_timeout(Some(REQUEST_TIMEOUT))?;
    stream.set_write_timeout(Some(REQUEST_TIMEOUT))?;
    let mut line = serde_json::to_string(envelope)?;
    line.push('\n');
    let sent = stream.write_all(line.as_bytes());
    line.clear();
    // A server with too many connections answers before it reads the request, and closes.
    match (answers.read_line(&mut line), sent) {
        (Ok(0), Ok(())) => Err(no_answer(path, "the server closed the connection without an answer")),
        (Ok(0) | Err(_), Err(error)) | (Err(error), Ok(())) => Err(read_error(path, error)),
        (Ok(_), _) => {
            serde_json::from_str(&line).with_context(|| format!("{}: not a bcnet server", path.display()))
        }
    }
}

/// Returns the error for a server that did not answer.
pub(crate) fn read_error(path: &Path, error: io::Error) -> anyhow::Error {
    if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) {
        no_answer(path, "the server does not answer")
    } else {
        no_answer(path, &format!("the server did not answer: {error}"))
    }
}

fn no_answer(path: &Path, problem: &str) -> anyhow::Error {
    let path = path.display();
    NoAnswer(format!("{path}: {problem}; the request may have had no effect, see the log of the server"))
        .into()
}

/// The error for a server that accepted the connection and did not answer.
#[derive(Debug)]
struct NoAnswer(String);

impl fmt::Display for NoAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Error for NoAnswer {}

fn connect_error(path: &Path, error: io::Error) -> anyhow::Error {
    let shown = path.display();
    let hint = match error.kind() {
        ErrorKind::PermissionDenied => format!("{shown}: {}", control::ACCESS_HINT),
        _ => {
            format!(
                "no server listens at {shown}; start one with `bcnet serve`, or name its socket with --socket"
            )
        }
    };
    anyhow::Error::new(error).context(hint)
}

/// The time limit for a server's answer.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
