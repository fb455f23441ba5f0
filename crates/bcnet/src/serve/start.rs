//! Builds the parts of a server from its settings.
//!
//! Binds the sockets, and prepares the log, hooks, metrics, scores, bans and capture files. It does not start
//! worker threads: see [`workers`](super::workers).

use std::io::ErrorKind;
use std::net::{SocketAddrV4, TcpListener};
use std::num::NonZero;
use std::path::{self, Path, PathBuf};
use std::sync::Arc;
use std::thread;

use anyhow::{Context, bail};
use bcnet_session::game::Opcode;
use bcnet_session::{Checksums, Config, Mission, SayAs};
use bcnet_transport::{IdPolicy, ProofPolicy};
use bcnet_udp::{Clock, Io, Socket, wall_now};
use tracing::level_filters::LevelFilter;

use super::ban_list::BanList;
use super::coalescing::CoalescingLimits;
use super::control_plane::ControlPlane;
use super::control_socket::ControlSocket;
use super::hooks::Hooks;
use super::session_host::SessionHost;
use crate::config::{self, Loaded, Origin, Settings};
use crate::query::{FIRST_PORT, LAST_PORT};
use crate::random::random_u64;
use crate::recorder::CaptureRing;
use crate::scores::{self, ScoreRecorder};
use crate::{bans, control, log, manifest};

/// Binds a socket for every session.
pub(super) fn hosts(settings: &Settings, io: Io) -> anyhow::Result<Vec<SessionHost>> {
    // Bind fixed ports first, so that no other session takes one of them.
    let mut sockets = Vec::new();
    for session in &settings.sessions {
        let fixed = session.port.fixed().map(|port| bind(settings, port, io));
        sockets.push(fixed.transpose()?);
    }
    let mut ours: Vec<u16> = settings.sessions.iter().filter_map(|session| session.port.fixed()).collect();
    let mut hosts = Vec::new();
    for (session, socket) in settings.sessions.iter().zip(sockets) {
        let socket = socket.map_or_else(|| bind_any(settings, io, &ours), Ok)?;
        let address = socket.local_address()?;
        ours.push(address.port());
        hosts.push(SessionHost::new(hosts.len(), session_config(session)?, random_u64(), socket, address));
    }
    Ok(hosts)
}

fn bind(settings: &Settings, port: u16, io: Io) -> anyhow::Result<Socket> {
    let address = SocketAddrV4::new(settings.server.bind, port);
    Socket::bind(address, io).map_err(|error| match error.kind() {
        ErrorKind::AddrInUse => {
            anyhow::anyhow!("UDP port {port} is in use; stop the other program, or pass another --port")
        }
        ErrorKind::PermissionDenied if cfg!(windows) => {
            anyhow::anyhow!(
                "UDP port {port} is used by another program or reserved by Windows (`netsh interface ipv4 show \
                 excludedportrange udp` lists reserved ports); pass another --port"
            )
        }
        ErrorKind::PermissionDenied => {
            anyhow::anyhow!(
                "UDP port {port} needs more rights than this user has; pass a --port above 1023, or run as root"
            )
        }
        ErrorKind::AddrNotAvailable => {
            let ip = settings.server.bind;
            anyhow::anyhow!("{ip} is not an address of this machine; pass one of its addresses as --bind, or 0.0.0.0")
        }
        _ => anyhow::Error::new(error).context(format!("cannot bind UDP {address}")),
    })
}

/// Returns whether a port below `port` in the scanned range is used by another program.
///
/// `ours` are the ports of this server's own sessions.
fn is_port_moved(port: u16, ours: &[u16]) -> bool {
    (FIRST_PORT..port).any(|before| !ours.contains(&before))
}

/// Binds the first free port in the range that games scan on the local network.
///
/// `ours` are the ports of other sessions of this server.
fn bind_any(settings: &Settings, io: Io, ours: &[u16]) -> anyhow::Result<Socket> {
    for port in FIRST_PORT..=LAST_PORT {
        match Socket::bind(SocketAddrV4::new(settings.server.bind, port), io) {
            Ok(socket) => {
                if is_port_moved(port, ours) {
                    let text =
                        "other programs use the lower ports; players who type the address need this port";
                    tracing::warn!(event = "port_moved", wanted = FIRST_PORT, port, "{text}");
                }
                return Ok(socket);
            }
            Err(error) if error.kind() == ErrorKind::AddrInUse => {}
            // On Windows the system reserves single ports; the next port may work.
            Err(error) if cfg!(windows) && error.kind() == ErrorKind::PermissionDenied => {}
            Err(_) => return bind(settings, port, io),
        }
    }
    bail!("UDP ports {FIRST_PORT} to {LAST_PORT} are all in use; pass another --port")
}

/// Converts the settings of a session to the configuration of the session crate.
///
/// The advertised port is 0 if list servers should get the port of the socket.
pub(super) fn session_config(session: &config::Session) -> anyhow::Result<Config> {
    Ok(Config {
        name: session.name.0.clone(),
        mission: mission(&session.mission),
        system: session.system,
        rotation: session.rotation.clone(),
        time_limit: session.time_limit.map(|minutes| minutes.get() as u8),
        frag_limit: session.frag_limit.map(|kills| kills.get() as u8),
        intermission: session.intermission,
        player_limit: session.player_limit.get() as u8,
        players_per_address: session.players_per_address.fixed().map(|players| players as u8),
        players_per_network: session.players_per_network.fixed().map(|players| players as u8),
        password: session.password.get().map(ToOwned::to_owned),
        welcome: session.welcome.0.clone(),
        say_as: match session.say_as {
            config::SayAsSetting::Recipient => SayAs::Recipient,
            config::SayAsSetting::Peer(id) => SayAs::Peer(id.get() as u8),
        },
        say_prefix: session.say_prefix.0.clone(),
        list_host_as_player: session.list_host_as_player,
        refusal_opcode: match session.refusal_opcode {
            config::RefusalOpcode::Mismatch22 => Opcode::CHECKSUM_FAILURE,
            config::RefusalOpcode::Mismatch23 => Opcode::VERSION_DIFFERENT,
        },
        checksums: match session.checksums {
            config::ChecksumSetting::Permissive => Checksums::Permissive,
            config::ChecksumSetting::Strict => Checksums::Strict(
                session.manifests.iter().map(|path| manifest::read(path)).collect::<Result<_, _>>()?,
            ),
        },
        extra_files: session.extra_files,
        learn_manifests: false,
        game_events: false,
        forward_unknown: session.forward_unknown,
        allow_mods: session.allow_mods,
        mask_addresses: session.mask_addresses,
        collisions: session.collisions,
        friendly_fire: session.friendly_fire,
        credit_last_shot: session.credit_kills == config::CreditKills::LastShot,
        masters: Vec::new(),
        advertise_port: session.advertise_port.fixed().unwrap_or(0),
        trusted: session.trusted.clone(),
        whitelist: session.whitelist.clone(),
        home_networks: session.home_networks.clone(),
        query_rate: session.query_rate.get().into(),
        chat_rate: session.chat_rate.get().into(),
        relay_rate: u32::try_from(session.relay_rate.0).unwrap_or(u32::MAX),
        uplink: session.uplink.fixed().map(|kilobits| u32::from(kilobits) * 125),
        handshake_timeout: session.handshake_timeout,
        round_timeout: session.round_timeout,
        transport: transport(session),
    })
}

fn transport(session: &config::Session) -> bcnet_transport::Config {
    bcnet_transport::Config {
        // The session group encrypts and decrypts in batches, for all sessions together.
        cipher: false,
        keepalive: session.keepalive,
        idle_timeout: session.silence_timeout,
        delivery_timeout: session.undeliverable_timeout,
        id_policy: match session.ids {
            config::IdSetting::Random => IdPolicy::Random,
            config::IdSetting::Sequential => IdPolicy::Sequential,
        },
        proof_policy: match session.prove {
            config::ProofSetting::Auto => ProofPolicy::Auto,
            config::ProofSetting::Ack => ProofPolicy::Ack,
            config::ProofSetting::Id => ProofPolicy::Id,
        },
        ..bcnet_transport::Config::default()
    }
}

fn mission(mission: &config::MissionSetting) -> Mission {
    use config::StockMission::{Deathmatch, Factions, TeamDeathmatch};
    let stock = |number: u8, short_name: &str, teams| Mission {
        script: format!("Multiplayer.Episode.Mission{number}.Mission{number}"),
        short_name: short_name.into(),
        teams,
    };
    match mission {
        config::MissionSetting::Stock(kind @ Deathmatch) => stock(1, kind.word(), false),
        config::MissionSetting::Stock(kind @ TeamDeathmatch) => stock(2, kind.word(), true),
        config::MissionSetting::Stock(kind @ Factions) => stock(3, kind.word(), true),
        config::MissionSetting::Script(script) => Mission { script: script.clone(), ..Mission::default() },
    }
}

/// Starts the log, and warns about environment variables that are not settings.
pub(super) fn log(loaded: &Loaded) -> anyhow::Result<log::LogGuard> {
    let log = log::start(&log_options(&loaded.settings))?;
    if !loaded.ignored_variables.is_empty() {
        let variables = loaded.ignored_variables.join(", ");
        tracing::warn!(event = "unknown_variables", variables, "ignored: not settings of bcnet");
    }
    Ok(log)
}

pub(super) fn log_options(settings: &Settings) -> log::LogOptions<'_> {
    let level = match settings.log.level {
        config::LogLevel::Error => LevelFilter::ERROR,
        config::LogLevel::Warn => LevelFilter::WARN,
        config::LogLevel::Info => LevelFilter::INFO,
        config::LogLevel::Debug => LevelFilter::DEBUG,
        config::LogLevel::Trace => LevelFilter::TRACE,
    };
    let file = settings.log.file.as_deref().map(|path| (path, settings.log.keep.get().into()));
    log::LogOptions { level, json: settings.log.format == config::LogFormat::Json, file }
}

/// Binds the listener for metrics, if the settings ask for one.
pub(super) fn metrics(settings: &Settings) -> anyhow::Result<Option<TcpListener>> {
    let Some(address) = settings.server.metrics else { return Ok(None) };
    let listener = TcpListener::bind(address);
    let problem = || format!("server.metrics: cannot listen at TCP {address}; set another port or address");
    listener.map(Some).with_context(problem)
}

/// Starts the hooks, and gives every session a notifier.
pub(super) fn hooks(settings: &Settings, hosts: &mut [SessionHost], clock: Clock) -> anyhow::Result<Hooks> {
    let (hooks, notifier) = Hooks::start(&settings.hooks, clock)?;
    hosts.iter_mut().for_each(|host| host.notifier = notifier());
    Ok(hooks)
}

/// Returns the number of worker threads.
pub(super) fn thread_count(settings: &Settings) -> usize {
    let cores = || thread::available_parallelism().map_or(1, NonZero::get);
    settings.server.threads.fixed().map_or_else(cores, usize::from)
}

/// Returns the limits for the coalescing of state updates.
pub(super) fn coalescing_limits(settings: &Settings) -> CoalescingLimits {
    let server = &settings.server;
    CoalescingLimits {
        cpu_budget: f64::from(server.cpu_budget.get()) / 100.0,
        min: server.coalesce_min,
        max: server.coalesce_max,
    }
}

pub(super) fn capture_ring(settings: &Settings) -> Option<CaptureRing> {
    let capture = &settings.capture;
    let files = capture.files.get().into();
    capture.file.clone().map(|path| CaptureRing { path, file_size: capture.size.0, file_count: files })
}

/// Starts the score recorder for all sessions, if the settings name a file.
pub(super) fn scores(
    settings: &Settings,
    hosts: &mut [SessionHost],
) -> anyhow::Result<Option<ScoreRecorder>> {
    let config::Scores { file, keep, shortest } = settings.scores.clone();
    let options = file.map(|file| scores::ScoreOptions { file, keep, shortest });
    let scores = options.map(ScoreRecorder::start).transpose()?;
    for host in hosts {
        host.scores = scores.clone();
    }
    Ok(scores)
}

/// Loads the bans. Warns at start, not at the first new ban, if the file cannot be written.
pub(super) fn bans(settings: &Settings) -> anyhow::Result<BanList> {
    let path = &settings.server.bans;
    let list = BanList::load(path.clone(), wall_now().as_secs())?;
    if let Err(error) = bans::check_writable(path) {
        let error = format!("{error:#}");
        tracing::warn!(
            event = "bans_not_kept",
            error,
            "new bans will be lost after a restart; make the file writable"
        );
    }
    Ok(list)
}

/// The files of a server, as absolute paths for the log.
pub(super) struct ServerFiles {
    pub(super) config: Option<String>,
    pub(super) bans: String,
    socket_paths: Vec<PathBuf>,
    is_socket_required: bool,
}

impl ServerFiles {
    pub(super) fn of(loaded: &Loaded) -> Self {
        Self {
            config: loaded.file.as_deref().map(absolute_path),
            bans: absolute_path(&loaded.settings.server.bans),
            socket_paths: control::socket_paths(&loaded.settings),
            is_socket_required: *loaded.origin("server", "control") != Origin::Default,
        }
    }

    /// Opens the control socket, unless the settings disable it.
    ///
    /// # Errors
    ///
    /// Fails only if the settings name the socket. Otherwise the server logs a warning and runs without one.
    pub(super) fn open_socket(&self, plane: &Arc<ControlPlane>) -> anyhow::Result<Option<ControlSocket>> {
        if self.socket_paths.is_empty() {
            return Ok(None);
        }
        match ControlSocket::start(&self.socket_paths, Arc::clone(plane)) {
            Err(error) if !self.is_socket_required => {
                tracing::warn!(
                    event = "no_control",
                    error = format!("{error:#}"),
                    "`bcnet ctl` cannot reach this server; set another path with `server.control`"
                );
                Ok(None)
            }
            socket => socket.map(Some),
        }
    }
}

/// Returns an absolute path, valid from any working directory.
pub(super) fn absolute_path(path: &Path) -> String {
    path::absolute(path).unwrap_or_else(|_| path.to_owned()).display().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Table;
    use crate::config::table::RawValue;

    #[test]
    fn port_after_those_of_other_sessions_is_not_moved() {
        assert!(!is_port_moved(FIRST_PORT, &[]));
        assert!(!is_port_moved(FIRST_PORT + 2, &[FIRST_PORT + 1, FIRST_PORT]));
        assert!(is_port_moved(FIRST_PORT + 2, &[FIRST_PORT]));
    }

    #[test]
    fn configuration_defaults_match_session_defaults() {
        let transport = bcnet_transport::Config { cipher: false, ..Config::default().transport };
        let expected = Config { advertise_port: 0, transport, ..Config::default() };
        assert_eq!(session_config(&config::Session::default()).expect("valid settings"), expected);
    }

    #[test]
    fn every_setting_reaches_the_session() {
        let default = config::Session::default();
        for key in default.keys() {
            let other = match (key.name, default.show(key.name).as_str()) {
                // The socket uses the port, and manifests are files to be read.
                ("port" | "checksums" | "manifests", _) => continue,
                (_, "true") => "false",
                (_, "false") => "true",
                ("mission", _) => "TDM",
                ("system" | "rotation", _) => "Multi2",
                ("refusal_opcode", _) => "0x23",
                ("prove", _) => "ack",
                ("ids", _) => "sequential",
                ("credit_kills", _) => "last-shot",
                ("relay_rate", _) => "7KiB",
                ("uplink", _) => "77",
                ("trusted" | "whitelist" | "home_networks", _) => "192.0.2.7",
                (name, _) if name.ends_with("_timeout") || name == "intermission" || name == "keepalive" => {
                    "7s"
                }
                _ => "7",
            };
            let mut changed = default.clone();
            changed.set(key.name, RawValue::Text(other)).expect(key.name);
            assert_ne!(
                session_config(&changed).expect("valid settings"),
                session_config(&default).expect("valid settings"),
                "{}",
                key.name
            );
        }
    }
}
