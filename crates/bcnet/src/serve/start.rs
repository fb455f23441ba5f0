//! From the settings to sessions with sockets.

use std::io::ErrorKind;
use std::net::{SocketAddrV4, TcpListener};
use std::num::NonZero;
use std::path::{self, Path, PathBuf};
use std::sync::Arc;
use std::thread;

use anyhow::{Context, bail};
use bcnet_session::game::Opcode;
use bcnet_session::{Checksums, Config, Mission, SayAs};
use bcnet_transport::{Ids, Prove};
use bcnet_udp::{Clock, Io, Socket, wall_now};
use tracing::level_filters::LevelFilter;

use super::ban_list::BanList;
use super::coalescing::Limits;
use super::control_plane::ControlPlane;
use super::control_socket::ControlSocket;
use super::hooks::Hooks;
use super::session_host::SessionHost;
use crate::config::{self, Loaded, Origin, Settings};
use crate::query::{FIRST_PORT, LAST_PORT};
use crate::random::unguessable;
use crate::recorder::Ring;
use crate::scores::{self, Scores};
use crate::{bans, control, log, manifest};

/// Binds a socket for every session.
pub(super) fn hosts(settings: &Settings, io: Io) -> anyhow::Result<Vec<SessionHost>> {
    // Fixed ports come first, so that no other session is given one of them.
    let mut sockets = Vec::new();
    for session in &settings.sessions {
        let fixed = session.port.fixed().map(|port| bind(settings, port, io));
        sockets.push(fixed.transpose()?);
    }
    let mut ours: Vec<u16> = settings.sessions.iter().filter_map(|session| session.port.fixed()).collect();
    let mut hosts = Vec::new();
    for (session, socket) in settings.sessions.iter().zip(sockets) {
        let socket = socket.map_or_else(|| bind_any(settings, io, &ours), Ok)?;
        let address = socket.local()?;
        ours.push(address.port());
        hosts.push(SessionHost::new(hosts.len(), config(session)?, unguessable(), socket, address));
    }
    Ok(hosts)
}

fn bind(settings: &Settings, port: u16, io: Io) -> anyhow::Result<Socket> {
    let address = SocketAddrV4::new(settings.server.bind, port);
    Socket::bind(address, io).map_err(|error| match error.kind() {
        ErrorKind::AddrInUse => {
            anyhow::anyhow!("UDP port {port} is in use; end the other program, or choose another --port")
        }
        ErrorKind::PermissionDenied if cfg!(windows) => {
            anyhow::anyhow!(
                "UDP port {port} belongs to another program or is set aside by Windows (`netsh interface ipv4 show \
                 excludedportrange udp` lists such); choose another --port"
            )
        }
        ErrorKind::PermissionDenied => {
            anyhow::anyhow!(
                "UDP port {port} is not for this user; choose a --port above 1023, or run as root"
            )
        }
        ErrorKind::AddrNotAvailable => {
            let ip = settings.server.bind;
            anyhow::anyhow!("{ip} is no address of this machine; use one of its own for --bind, or 0.0.0.0")
        }
        _ => anyhow::Error::new(error).context(format!("UDP {address}")),
    })
}

/// Returns whether another program is why a session has this port, and not the one that everybody expects.
fn is_moved(port: u16, ours: &[u16]) -> bool {
    (FIRST_PORT..port).any(|before| !ours.contains(&before))
}

/// Returns the first free port of those that games look at in the local network; `ours` are those of other sessions.
fn bind_any(settings: &Settings, io: Io, ours: &[u16]) -> anyhow::Result<Socket> {
    for port in FIRST_PORT..=LAST_PORT {
        match Socket::bind(SocketAddrV4::new(settings.server.bind, port), io) {
            Ok(socket) => {
                if is_moved(port, ours) {
                    let text = "ports before it are in use by other programs";
                    tracing::warn!(event = "port_moved", wanted = FIRST_PORT, port, "{text}");
                }
                return Ok(socket);
            }
            Err(error) if error.kind() == ErrorKind::AddrInUse => {}
            // There it is one port's fault, not the user's.
            Err(error) if cfg!(windows) && error.kind() == ErrorKind::PermissionDenied => {}
            Err(_) => return bind(settings, port, io),
        }
    }
    bail!("UDP ports {FIRST_PORT} to {LAST_PORT} are all in use; choose another --port")
}

/// Returns the settings of a session as the session wants them. The port for masters is 0 if it is that of the socket.
pub(super) fn config(session: &config::Session) -> anyhow::Result<Config> {
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
            config::SayAs::Recipient => SayAs::Recipient,
            config::SayAs::Peer(id) => SayAs::Peer(id.get() as u8),
        },
        say_prefix: session.say_prefix.0.clone(),
        list_host_as_player: session.list_host_as_player,
        refusal_opcode: match session.refusal_opcode {
            config::RefusalOpcode::Mismatch22 => Opcode::CHECKSUM_FAILURE,
            config::RefusalOpcode::Mismatch23 => Opcode::VERSION_DIFFERENT,
        },
        checksums: match session.checksums {
            config::Checksums::Permissive => Checksums::Permissive,
            config::Checksums::Strict => Checksums::Strict(
                session.manifests.iter().map(|path| manifest::read(path)).collect::<Result<_, _>>()?,
            ),
        },
        extra_files: session.extra_files,
        learn: false,
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
        query_rate: session.query_rate.get().into(),
        chat_rate: session.chat_rate.get().into(),
        relay_rate: u32::try_from(session.relay_rate.0).unwrap_or(u32::MAX),
        handshake_timeout: session.handshake_timeout,
        round_timeout: session.round_timeout,
        transport: transport(session),
    })
}

fn transport(session: &config::Session) -> bcnet_transport::Config {
    bcnet_transport::Config {
        // Done in batches, for all sessions together.
        cipher: false,
        keepalive: session.keepalive,
        silence: session.silence_timeout,
        undeliverable: session.undeliverable_timeout,
        ids: match session.ids {
            config::Ids::Random => Ids::Random,
            config::Ids::Sequential => Ids::Sequential,
        },
        prove: match session.prove {
            config::Prove::Auto => Prove::Auto,
            config::Prove::Ack => Prove::Ack,
            config::Prove::Id => Prove::Id,
        },
        ..bcnet_transport::Config::default()
    }
}

fn mission(mission: &config::Mission) -> Mission {
    use config::StockMission::{Deathmatch, Factions, TeamDeathmatch};
    let stock = |number: u8, short_name: &str, teams| Mission {
        script: format!("Multiplayer.Episode.Mission{number}.Mission{number}"),
        short_name: short_name.into(),
        teams,
    };
    match mission {
        config::Mission::Stock(kind @ Deathmatch) => stock(1, kind.word(), false),
        config::Mission::Stock(kind @ TeamDeathmatch) => stock(2, kind.word(), true),
        config::Mission::Stock(kind @ Factions) => stock(3, kind.word(), true),
        config::Mission::Script(script) => Mission { script: script.clone(), ..Mission::default() },
    }
}

/// Starts the log, and tells in it what was given for nothing.
pub(super) fn log(loaded: &Loaded) -> anyhow::Result<log::Log> {
    let log = log::start(&log_options(&loaded.settings))?;
    if !loaded.strange.is_empty() {
        let variables = loaded.strange.join(", ");
        tracing::warn!(event = "unknown_variables", variables, "no settings of bcnet, ignored");
    }
    Ok(log)
}

pub(super) fn log_options(settings: &Settings) -> log::Options<'_> {
    let level = match settings.log.level {
        config::Level::Error => LevelFilter::ERROR,
        config::Level::Warn => LevelFilter::WARN,
        config::Level::Info => LevelFilter::INFO,
        config::Level::Debug => LevelFilter::DEBUG,
        config::Level::Trace => LevelFilter::TRACE,
    };
    let file = settings.log.file.as_deref().map(|path| (path, settings.log.keep.get().into()));
    log::Options { level, json: settings.log.format == config::Format::Json, file }
}

/// Listens where figures are to be given out, if anywhere.
pub(super) fn metrics(settings: &Settings) -> anyhow::Result<Option<TcpListener>> {
    let Some(address) = settings.server.metrics else { return Ok(None) };
    let listener = TcpListener::bind(address);
    let problem =
        || format!("server.metrics: cannot listen at TCP {address}; choose another port or address");
    listener.map(Some).with_context(problem)
}

/// Starts the hooks, and has all sessions tell them what happens.
pub(super) fn hooks(settings: &Settings, hosts: &mut [SessionHost], clock: Clock) -> anyhow::Result<Hooks> {
    let (hooks, notifier) = Hooks::start(&settings.hooks, clock)?;
    hosts.iter_mut().for_each(|host| host.notifier = notifier());
    Ok(hooks)
}

/// Returns how many threads may play.
pub(super) fn threads(settings: &Settings) -> usize {
    let cores = || thread::available_parallelism().map_or(1, NonZero::get);
    settings.server.threads.fixed().map_or_else(cores, usize::from)
}

/// Returns how long state updates may wait for company.
pub(super) fn limits(settings: &Settings) -> Limits {
    let server = &settings.server;
    Limits {
        budget: f64::from(server.cpu_budget.get()) / 100.0,
        min: server.coalesce_min,
        max: server.coalesce_max,
    }
}

pub(super) fn ring(settings: &Settings) -> Option<Ring> {
    let capture = &settings.capture;
    let files = capture.files.get().into();
    capture.file.clone().map(|path| Ring { path, size: capture.size.0, files })
}

/// Has the scores of all sessions kept, if they are to be.
pub(super) fn scores(settings: &Settings, hosts: &mut [SessionHost]) -> anyhow::Result<Option<Scores>> {
    let config::Scores { file, keep, shortest } = settings.scores.clone();
    let options = file.map(|file| scores::Options { file, keep, shortest });
    let scores = options.map(Scores::start).transpose()?;
    for host in hosts {
        host.scores = scores.clone();
    }
    Ok(scores)
}

/// Returns the bans. That new ones cannot be kept is told now, not with the first of them.
pub(super) fn bans(settings: &Settings) -> anyhow::Result<BanList> {
    let path = &settings.server.bans;
    let list = BanList::load(path.clone(), wall_now().as_secs())?;
    if let Err(error) = bans::check_writable(path) {
        let error = format!("{error:#}");
        tracing::warn!(event = "bans_not_kept", error, "new ones will be gone after a restart");
    }
    Ok(list)
}

/// The files of a server, as the log names them.
pub(super) struct Files {
    pub(super) config: Option<String>,
    pub(super) bans: String,
    sockets: Vec<PathBuf>,
    is_socket_wanted: bool,
}

impl Files {
    pub(super) fn of(loaded: &Loaded) -> Self {
        Self {
            config: loaded.file.as_deref().map(shown),
            bans: shown(&loaded.settings.server.bans),
            sockets: control::places(&loaded.settings),
            is_socket_wanted: *loaded.origin("server", "control") != Origin::Default,
        }
    }

    /// Opens the control socket, if there is to be one. A server whose operator did not ask for it plays without.
    pub(super) fn open_socket(&self, plane: &Arc<ControlPlane>) -> anyhow::Result<Option<ControlSocket>> {
        if self.sockets.is_empty() {
            return Ok(None);
        }
        match ControlSocket::start(&self.sockets, Arc::clone(plane)) {
            Err(error) if !self.is_socket_wanted => {
                tracing::warn!(
                    event = "no_control",
                    error = format!("{error:#}"),
                    "`bcnet ctl` cannot reach this server; name another place with `server.control`"
                );
                Ok(None)
            }
            socket => socket.map(Some),
        }
    }
}

/// Returns a path that means the same wherever it is read.
pub(super) fn shown(path: &Path) -> String {
    path::absolute(path).unwrap_or_else(|_| path.to_owned()).display().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Table;
    use crate::config::table::Given;

    #[test]
    fn a_port_behind_those_of_other_sessions_was_not_moved() {
        assert!(!is_moved(FIRST_PORT, &[]));
        assert!(!is_moved(FIRST_PORT + 2, &[FIRST_PORT + 1, FIRST_PORT]));
        assert!(is_moved(FIRST_PORT + 2, &[FIRST_PORT]));
    }

    #[test]
    fn the_defaults_of_the_configuration_are_those_of_a_session() {
        let transport = bcnet_transport::Config { cipher: false, ..Config::default().transport };
        let expected = Config { advertise_port: 0, transport, ..Config::default() };
        assert_eq!(config(&config::Session::default()).expect("good"), expected);
    }

    #[test]
    fn every_setting_reaches_the_session() {
        let default = config::Session::default();
        for key in default.keys() {
            let other = match (key.name, default.show(key.name).as_str()) {
                // The socket has it; files are read with the manifests.
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
                ("trusted" | "whitelist", _) => "192.0.2.7",
                (name, _) if name.ends_with("_timeout") || name == "intermission" || name == "keepalive" => {
                    "7s"
                }
                _ => "7",
            };
            let mut changed = default.clone();
            changed.set(key.name, Given::Text(other)).expect(key.name);
            assert_ne!(config(&changed).expect("good"), config(&default).expect("good"), "{}", key.name);
        }
    }
}
