//! `bcnet manifest`: records and checks the game files that players must have.
//!
//! A manifest is learned from a player whose files are good.

use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, ensure};
use bcnet_session::{Config, Event, Manifest, Session};
use bcnet_udp::Clock;

use crate::CommandStatus;
use crate::file::{read_text, replace};
use crate::number_format::pluralize;
use crate::random::random_u64;
use crate::standard_output;

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Record the game files of a player as a manifest
    ///
    /// This hosts a game called `bcnet manifest`. Join it with the installation that all players should have.
    /// Use the file with `checksums = "strict"` and `manifests = ["FILE"]` in the server's configuration.
    Learn {
        /// The file to write; it must not exist
        #[arg(long, value_name = "FILE")]
        out: PathBuf,

        /// The name of the manifest; default: the name of the file
        #[arg(long)]
        name: Option<String>,

        /// The UDP port; 0 selects any free port
        #[arg(long, default_value_t = 22101)]
        port: u16,

        /// The local address to listen at; 0.0.0.0 stands for all addresses
        #[arg(long, value_name = "ADDRESS", default_value = "0.0.0.0")]
        bind: Ipv4Addr,
    },
    /// Check manifests and print a summary of each
    ///
    /// Exit codes: 0 all manifests are good, 1 a manifest is invalid or lacks rounds, 2 a file could not be
    /// read.
    Check {
        /// The manifests to check
        #[arg(value_name = "FILE", required = true)]
        files: Vec<PathBuf>,

        /// Print the whole content of each manifest
        #[arg(long)]
        all: bool,
    },
}

pub(crate) fn run(args: &Args) -> anyhow::Result<CommandStatus> {
    match &args.command {
        Command::Learn { out, name, port, bind } => {
            check_writable(out).with_context(|| out.display().to_string())?;
            let name =
                name.clone().unwrap_or_else(|| out.file_stem().unwrap_or_default().to_string_lossy().into());
            let socket = UdpSocket::bind((*bind, *port)).with_context(|| {
                format!("cannot listen at UDP {bind}:{port}; choose another --port or --bind")
            })?;
            let mut manifest = learn(&socket)?;
            manifest.name = name;
            replace(out, manifest.to_string().as_bytes()).with_context(|| out.display().to_string())?;
            writeln!(standard_output::lock(), "{}: written", out.display())?;
            Ok(CommandStatus::Clean)
        }
        Command::Check { files, all } => {
            let mut verdict = CommandStatus::Clean;
            for file in files {
                if check(file, *all, &mut standard_output::lock())? == CommandStatus::Findings {
                    verdict = CommandStatus::Findings;
                }
            }
            Ok(verdict)
        }
    }
}

/// Reads a manifest that players are checked against. It must be complete.
pub(crate) fn read(path: &Path) -> anyhow::Result<Manifest> {
    let manifest = Manifest::parse(&read_text(path)?).with_context(|| path.display().to_string())?;
    ensure!(manifest.is_complete(), "{}: {}", path.display(), describe_missing_rounds(&manifest));
    Ok(manifest)
}

/// Describes the rounds of file checks that a manifest lacks.
fn describe_missing_rounds(manifest: &Manifest) -> String {
    let missing: Vec<String> = manifest.missing_rounds().map(|round| round.to_string()).collect();
    let rounds = if missing.len() == 1 { "round" } else { "rounds" };
    format!(
        "{rounds} {} missing, so no player can match; record it again with `bcnet manifest learn`",
        missing.join(", ")
    )
}

fn check(path: &Path, all: bool, out: &mut impl Write) -> anyhow::Result<CommandStatus> {
    let text = read_text(path)?;
    let manifest = match Manifest::parse(&text) {
        Ok(manifest) => manifest,
        Err(error) => {
            eprintln!("bcnet: {}: {error}", path.display());
            return Ok(CommandStatus::Findings);
        }
    };
    if all {
        write!(out, "# {}\n{manifest}", path.display())?;
    } else {
        let (rounds, files) =
            (pluralize(manifest.count_rounds(), "round"), pluralize(manifest.count_files(), "file"));
        writeln!(out, "{}: {}: {rounds}, {files}", path.display(), manifest.name)?;
    }
    if manifest.is_complete() {
        return Ok(CommandStatus::Clean);
    }
    eprintln!("bcnet: {}: {}", path.display(), describe_missing_rounds(&manifest));
    Ok(CommandStatus::Findings)
}

/// Checks whether a new file can be written, before a player has to join for it.
fn check_writable(path: &Path) -> anyhow::Result<()> {
    let tried = File::create_new(path);
    let exists = tried.as_ref().is_err_and(|error| error.kind() == ErrorKind::AlreadyExists);
    ensure!(!exists, "the file exists already; choose another name or delete it");
    tried?;
    Ok(fs::remove_file(path)?)
}

/// Hosts a game until a player has sent the checksums of all its files.
fn learn(socket: &UdpSocket) -> anyhow::Result<Manifest> {
    let clock = Clock::start();
    let config = Config { name: "bcnet manifest".into(), learn_manifests: true, ..Config::default() };
    let mut session = Session::new(config, random_u64());
    drop(writeln!(standard_output::lock(), "manifest ready port={}", socket.local_addr()?.port()));
    let mut learned = None;
    let mut end = None;
    loop {
        transmit(socket, &mut session, &clock);
        while let Some(event) = session.poll_event() {
            if let Event::ManifestLearned { peer, manifest } = event {
                if !manifest.is_complete() {
                    eprintln!("bcnet: player {peer} did not answer all five rounds; waiting for another");
                } else if learned.is_none() {
                    learned = Some(*manifest);
                    session.shutdown(clock.now());
                    end = Some(clock.now() + LINGER);
                }
            }
        }
        if session.is_closed() || end.is_some_and(|end| clock.now() >= end) {
            return learned.context("the game ended before a player joined");
        }
        transmit(socket, &mut session, &clock);
        receive(socket, &mut session, &clock)?;
    }
}

fn transmit(socket: &UdpSocket, session: &mut Session, clock: &Clock) {
    let mut buffer = [0; 2048];
    while let Some(transmit) = session.poll_transmit(&mut buffer, clock.now()) {
        // A send error counts as a lost datagram: the transport sends it again.
        drop(socket.send_to(buffer.get(..transmit.len).unwrap_or_default(), transmit.to));
    }
}

/// Waits for the next datagram or the session's next deadline.
fn receive(socket: &UdpSocket, session: &mut Session, clock: &Clock) -> anyhow::Result<()> {
    let wait =
        session.next_timeout().map_or(MAX_POLL_WAIT, |next| next.since(clock.now()).min(MAX_POLL_WAIT));
    socket.set_read_timeout(Some(wait.max(Duration::from_millis(1))))?;
    let mut buffer = [0; 2048];
    match socket.recv_from(&mut buffer) {
        Ok((len, SocketAddr::V4(from))) => {
            session.handle_datagram(from, buffer.get_mut(..len).unwrap_or_default(), clock.now());
        }
        Ok(_) => {}
        Err(error) if error.kind() == ErrorKind::WouldBlock || error.kind() == ErrorKind::TimedOut => {}
        Err(error)
            if error.kind() == ErrorKind::Interrupted || error.kind() == ErrorKind::ConnectionReset => {}
        Err(error) => return Err(error).context("cannot receive"),
    }
    session.handle_timeout(clock.now());
    Ok(())
}

/// The time during which disconnect messages are repeated at the end.
const LINGER: Duration = Duration::from_secs(2);
const MAX_POLL_WAIT: Duration = Duration::from_secs(1);
