//! Every setting with its type, its default and its description.
//!
//! The doc comments of the keys are the documentation for hosts: `bcnet config default` and
//! docs/reference/configuration.md are generated from them.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::PathBuf;
use std::time::Duration;

use bcnet_session::{Network, System};
use toml::de::DeValue;

use super::hook::Hook;
use super::table::{Table, table};
use super::text::{CounterName, HostName, Latin1Line, Latin1Text, ListServerAddress, Password};
use super::value::{
    Auto, BoundedU16, ByteSize, ConfigValue, Port, describe_value, expected_message, quoted, unknown_word,
    words,
};

/// All settings of a server.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Settings {
    pub(crate) server: Server,
    pub(crate) log: Log,
    pub(crate) capture: Capture,
    pub(crate) web: Web,
    pub(crate) scores: Scores,
    pub(crate) fleet: Fleet,
    /// Never empty.
    pub(crate) sessions: Vec<Session>,
    /// Set in the file only, never by variables or flags.
    pub(crate) hooks: Vec<Hook>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            server: Server::default(),
            log: Log::default(),
            capture: Capture::default(),
            web: Web::default(),
            scores: Scores::default(),
            fleet: Fleet::default(),
            sessions: vec![Session::default()],
            hooks: Vec::new(),
        }
    }
}

/// The single tables of a file; [`TABLE_ARRAYS`] lists the tables that may be repeated.
pub(super) const TABLES: [&str; 6] = ["server", "log", "capture", "web", "scores", "fleet"];
pub(super) const TABLE_ARRAYS: [&str; 2] = ["session", "hook"];

impl Settings {
    /// Returns the tables that file, variables and flags may set, by name.
    ///
    /// The names are those of [`TABLES`], then `session.1`, `session.2`, …
    pub(crate) fn tables(&self) -> Vec<(String, &dyn Table)> {
        let mut tables: Vec<(String, &dyn Table)> = vec![
            ("server".into(), &self.server),
            ("log".into(), &self.log),
            ("capture".into(), &self.capture),
            ("web".into(), &self.web),
            ("scores".into(), &self.scores),
            ("fleet".into(), &self.fleet),
        ];
        let sessions = self.sessions.iter().zip(1..);
        tables.extend(sessions.map(|(session, n)| (format!("session.{n}"), session as &dyn Table)));
        tables
    }

    /// Returns the tables that only the file may set: `hook.1`, `hook.2`, …
    pub(crate) fn file_only_tables(&self) -> Vec<(String, &dyn Table)> {
        self.hooks.iter().zip(1..).map(|(hook, n)| (format!("hook.{n}"), hook as &dyn Table)).collect()
    }

    /// Sets the number of tables in the list named `list`, all with default values.
    pub(super) fn resize_list(&mut self, list: &str, count: usize) {
        match list {
            "hook" => self.hooks = (1..=count).map(Hook::with_default_name).collect(),
            _ => self.sessions = vec![Session::default(); count.max(1)],
        }
    }

    /// Returns the table of that name, for changes.
    pub(crate) fn table_mut(&mut self, name: &str) -> Option<&mut dyn Table> {
        match name {
            "server" => Some(&mut self.server),
            "log" => Some(&mut self.log),
            "capture" => Some(&mut self.capture),
            "web" => Some(&mut self.web),
            "scores" => Some(&mut self.scores),
            "fleet" => Some(&mut self.fleet),
            name => {
                let (list, number) = name.split_once('.')?;
                let number = number.parse::<usize>().ok()?.checked_sub(1)?;
                match list {
                    "session" => Some(self.sessions.get_mut(number)?),
                    "hook" => Some(self.hooks.get_mut(number)?),
                    _ => None,
                }
            }
        }
    }
}

table! {
    /// Settings that all sessions of the process share.
    Server {
        /// Local address that the game sockets listen on. `0.0.0.0` listens on all addresses of the
        /// machine. Set one address if the game should use only that one.
        bind: Ipv4Addr = Ipv4Addr::UNSPECIFIED,
        /// Control socket for `bcnet ctl`. Only the user who runs the server can use it. `"none"` turns it
        /// off. A name without a directory is in the runtime directory: `RUNTIME_DIRECTORY`, else
        /// `XDG_RUNTIME_DIR`, else `/run/bcnet`, else `/tmp/bcnet-` and the user id. `"./bcnet.sock"` is in
        /// the directory of this file. On Windows it is a named pipe, which administrators can use too.
        control: Option<PathBuf> = Some("bcnet.sock".into()),
        /// File with the bans. The server writes it, so it must not be this file. A relative path is in the
        /// directory of this file, or in the state directory of a service (`STATE_DIRECTORY`).
        bans: PathBuf = "bans.toml".into(),
        /// File that records the actions of operators: kicks, bans, changed settings. It has one JSON
        /// object per line. At 1 MiB the server starts a new file and keeps one old file. `"none"` records
        /// nothing. A relative path is in the directory of the bans.
        history: Option<PathBuf> = Some("history.jsonl".into()),
        /// Duration of a ban if the command names none. IP addresses are reassigned, so a ban should
        /// expire. `"none"` makes such bans permanent.
        ban_expiry: Option<Duration> = Some(Duration::from_secs(30 * 86_400)),
        /// List servers that publish the sessions on the internet. Add the list servers that your players
        /// use. With an empty list the server sends nothing to anyone unasked.
        masters: Vec<ListServerAddress> = Vec::new(),
        /// Address of an HTTP endpoint for monitoring. It has Prometheus metrics at `/metrics` and health
        /// checks at `/livez` and `/readyz`. `"none"` turns it off. It has no login: use an address of the
        /// machine itself, or of a network that you control.
        metrics: Option<SocketAddrV4> = None,
        /// Number of threads that run sessions. Each session belongs to one thread. `"auto"` is one thread
        /// per CPU core. Set a lower number to leave cores to other programs. There are never more threads
        /// than sessions.
        threads: Auto<1, 256> = Auto::Auto,
        /// Share of a CPU core that relaying may use in each thread, in percent. Below three quarters of
        /// it, the server relays every state update at once. Above that, it coalesces several updates in
        /// one datagram. A higher value means shorter delays under load and more CPU time.
        cpu_budget: BoundedU16<1, 100> = BoundedU16::new(50),
        /// Longest time that a state update is delayed for coalescing when the CPU budget is used up. A
        /// higher value saves more CPU time under load. Chat, orders and other messages are never delayed.
        coalesce_max: Duration = Duration::from_millis(20),
        /// Time that every state update is delayed for coalescing, even without load. Zero delays nothing.
        /// `"20ms"` saves about a quarter of the bandwidth. It applies even if it is above `coalesce_max`.
        coalesce_min: Duration = Duration::ZERO,
    }
}

table! {
    /// The server's log, on standard error and in a file.
    Log {
        /// Least severe level that is logged. `"debug"` and `"trace"` add details for finding a problem.
        level: LogLevel = LogLevel::Info,
        /// Format of log lines: `"text"` for people, `"json"` for programs that collect logs.
        format: LogFormat = LogFormat::Text,
        /// File that gets the same lines as standard error. The server starts a new file every day, with
        /// the date in its name. `"none"` writes to standard error only.
        file: Option<PathBuf> = None,
        /// Number of log files to keep, one for each day. Older files are deleted.
        keep: BoundedU16<1, 365> = BoundedU16::new(14),
    }
}

table! {
    /// A capture of all datagrams, for Wireshark and `bcnet inspect`.
    Capture {
        /// Path of the capture (pcapng). `"none"` captures nothing. Turn it on to find a problem; a capture
        /// contains chat and IP addresses.
        file: Option<PathBuf> = None,
        /// Size at which the server starts the next capture file.
        size: ByteSize = ByteSize(64 << 20),
        /// Number of capture files to keep. Older files are deleted, so the capture takes at most `files`
        /// times `size` on the disk.
        files: BoundedU16<1, 1000> = BoundedU16::new(4),
    }
}

table! {
    /// The operator page for a web browser: players, connection quality, and the actions of `bcnet
    /// ctl`.
    Web {
        /// Turns the operator page on.
        enabled: bool = false,
        /// Address and port of the operator page. On a loopback address, everyone on the machine can see
        /// the metrics of players; all else needs the token. On any other address everything needs the
        /// token, and either `certificate` and `key` or `behind_proxy`.
        bind: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 8101),
        /// Shows the best players of `[scores]` at `/standings`. Everyone who reaches the page can see
        /// them, without the token.
        standings: bool = false,
        /// File with the TLS certificate and its chain (PEM), for https. It needs `key` too. `"none"`
        /// serves unencrypted http.
        certificate: Option<PathBuf> = None,
        /// File with the private key of the certificate (PEM).
        key: Option<PathBuf> = None,
        /// Set it if a reverse proxy (nginx, Caddy) in front of the page does https. Everything then needs
        /// the token, and the last address in `X-Forwarded-For` counts as the client's address.
        behind_proxy: bool = false,
        /// Tells browsers to use only https for this host for a year (HSTS). It applies to all ports of the
        /// host and cannot be taken back quickly. Without https it has no effect.
        hsts: bool = false,
        /// Host names that browsers may use for the page, besides `localhost` and IP addresses. Requests
        /// for other names are refused, to stop DNS rebinding attacks.
        hosts: Vec<HostName> = Vec::new(),
        /// File with the login token, readable only by the server's user. The server creates it if it does
        /// not exist. A relative path is in the directory of the bans.
        token_file: PathBuf = "web-token".into(),
        /// A browser without activity for this long must enter the token again.
        idle: Duration = Duration::from_secs(30 * 60),
        /// A browser must enter the token again after this time, even with activity.
        lifetime: Duration = Duration::from_secs(12 * 3600),
    }
}

table! {
    /// Stored results of rounds and totals of players, for `bcnet stats`. Off by default, because
    /// player names are personal data.
    Scores {
        /// File of the SQLite database. `"none"` stores nothing. A relative path is in the directory of the
        /// bans.
        file: Option<PathBuf> = None,
        /// Time that rounds are stored, in whole days. Totals count stored rounds only. `"none"` stores
        /// them for ever.
        keep: Option<Duration> = Some(Duration::from_secs(365 * 86_400)),
        /// Rounds shorter than this are not stored. A player who was in a round for less than this is not
        /// stored either.
        shortest: Duration = Duration::from_secs(60),
    }
}

table! {
    /// Use in a fleet of servers that an orchestrator manages.
    Fleet {
        /// Reports to Agones, which runs game servers on Kubernetes. Agones' sidecar is at port 9358 or
        /// `AGONES_SDK_HTTP_PORT`. The reports are: ready, allocated when the first player joins, healthy,
        /// and the number of players. The other keys of this table have no effect without it.
        agones: bool = false,
        /// State that the server reports after the last player has left. `"ready"` accepts new players,
        /// `"shutdown"` lets Agones replace the server, `"allocated"` changes nothing.
        when_empty: WhenEmpty = WhenEmpty::Ready,
        /// Time without players before the server reports `when_empty`.
        empty_after: Duration = Duration::from_secs(30),
        /// Agones counter for the number of players and player slots. `"none"` reports no number.
        counter: Option<CounterName> = Some(CounterName("players".into())),
    }
}

words! {
    /// State that a fleet server reports after the last player has left.
    WhenEmpty { Ready = "ready", Shutdown = "shutdown", Allocated = "allocated", }
}

table! {
    /// A game with its own UDP port. Write one `[[session]]` for each game. Without any, the server
    /// runs one session with the defaults.
    Session {
        /// Name in the players' server list.
        name: Latin1Line<64> = Latin1Line("bcnet".into()),
        /// UDP port. `"auto"` takes the first free port from 22101 to 22201, where the game searches for
        /// servers in the local network. A number is used as given. Set one if a router forwards the port.
        port: Port = Port::Auto,
        /// Port reported to list servers, if players reach the server at another port (port forwarding).
        /// `"auto"` reports the port of the session.
        advertise_port: Port = Port::Auto,
        /// Password that players must type to join. An empty password admits everyone. Set it with
        /// `BCNET_PASSWORD` to keep it out of this file.
        password: Password = Password::default(),
        /// Maximum number of players.
        player_limit: BoundedU16<1, 16> = BoundedU16::new(8),
        /// Maximum number of players with the same IP address. `"auto"` is three quarters of
        /// `player_limit`: enough for a household, and one address cannot fill the server. 16 is no limit.
        /// Addresses in `home_networks` have no limit.
        players_per_address: Auto<1, 16> = Auto::Auto,
        /// Maximum number of players from the same /16 network. `"auto"` is three quarters of
        /// `player_limit`. 16 is no limit. Addresses in `home_networks` have no limit.
        players_per_network: Auto<1, 16> = Auto::Auto,
        /// Address verification of new clients. `"ack"`: the client must acknowledge a message. `"id"`: the
        /// client must know its peer id, which is weaker. `"auto"`: `"ack"`, but `"id"` is enough while no
        /// attack is detected.
        prove: ProofSetting = ProofSetting::Auto,
        /// Assignment of peer ids. `"random"`: any free id. `"sequential"`: ascending, as the stock server
        /// does, which makes forged datagrams easier.
        ids: IdSetting = IdSetting::Random,
        /// Game mode. `"DM"`: everyone against everyone. `"TDM"`: two teams. `"FactionDM"`: Federation
        /// against the others. Any other value is the mission script of a mod.
        mission: MissionSetting = MissionSetting::Stock(StockMission::Deathmatch),
        /// Star system of the first round.
        system: System = System::default(),
        /// Star systems of the following rounds, in turn. An empty list keeps `system`.
        rotation: Vec<System> = Vec::new(),
        /// Length of a round in minutes. `"none"` is no limit.
        time_limit: Option<BoundedU16<1, 254>> = None,
        /// Number of kills that ends a round. Clients display it; the server cannot see kills and never
        /// ends a round because of it. `"none"` displays no limit.
        frag_limit: Option<BoundedU16<1, 254>> = None,
        /// Time between the end of a round and the start of the next. With `"none"`, an operator starts the
        /// next round with `bcnet ctl`.
        intermission: Option<Duration> = Some(Duration::from_secs(30)),
        /// Ships take damage from collisions.
        collisions: bool = true,
        /// Weapons damage ships of the same team.
        friendly_fire: bool = false,
        /// Kill credit. `"none"`: no credit, because the server cannot see kills. `"last-shot"`: an
        /// estimate. The player who last fired a torpedo or pulse at a ship gets the kill if the ship's
        /// owner has a new ship within 30 seconds. The server reports kills to the players. Untested with
        /// stock clients.
        credit_kills: CreditKills = CreditKills::None,
        /// Chat text that a player receives after joining. Empty sends nothing.
        welcome: Latin1Text<1000> = Latin1Text(String::new()),
        /// Player name in front of the server's chat lines. `"recipient"`: the reader's own name, which
        /// every client knows. A number: the player with that peer id. Untested with stock clients.
        say_as: SayAsSetting = SayAsSetting::Recipient,
        /// Text at the start of the server's chat lines. It shows players that the server wrote the line.
        say_prefix: Latin1Line<32> = Latin1Line("[server] ".into()),
        /// Check of the clients' game files. `"permissive"` admits everyone. `"strict"` admits only clients
        /// that match one of the `manifests`.
        checksums: ChecksumSetting = ChecksumSetting::Permissive,
        /// Files made by `bcnet manifest learn`, for `"strict"`.
        manifests: Vec<PathBuf> = Vec::new(),
        /// With `"strict"`: accepts files that are in no manifest.
        extra_files: bool = false,
        /// Opcode of the message that refuses a player with other game files. The sources about the
        /// protocol disagree on the opcode. Try the other value if refused players do not see the reason.
        refusal_opcode: RefusalOpcode = RefusalOpcode::Mismatch22,
        /// Relays messages that the stock game does not have. Mods need it. Turn it off if only stock
        /// clients play.
        forward_unknown: bool = true,
        /// Relays ships, torpedoes and events that the stock game does not have. Turn it on only if all
        /// players have the mod: a client without it may crash.
        allow_mods: bool = false,
        /// Hides the IP addresses that clients report in their messages. The server relays names and
        /// disconnect notices with 0.0.0.0 instead. Untested with stock clients.
        mask_addresses: bool = false,
        /// Lists a player named `Dedicated Server`, as the stock server does. Some server browsers then
        /// hide the last player, because the number of players does not count this name.
        list_host_as_player: bool = false,
        /// Only players from these networks and from `trusted` networks may join. An empty list allows
        /// everyone.
        whitelist: Vec<Network> = Vec::new(),
        /// Networks without limits per address. Clients there are admitted without address verification,
        /// except at loopback addresses other than 127.0.0.1. Use it for load tests and local proxies.
        trusted: Vec<Network> = vec![Network::containing(Ipv4Addr::LOCALHOST, 8)],
        /// The host's own networks. Their players have no limits per address or network. Their server
        /// browser queries have a separate budget of 8,000 bytes per second. Add the range of a VPN,
        /// such as `"25.0.0.0/8"` or `"26.0.0.0/8"`. Addresses must be verified as usual.
        home_networks: Vec<Network> = Network::DEFAULT_HOME.to_vec(),
        /// Server browser queries answered per second, for all other networks together. An answer counts
        /// as one for each 250 bytes. In any second, the server sends at most 250 bytes times this number,
        /// plus one answer. Addresses and networks have shares of it. Near the limit, only clients that
        /// repeat their query within five seconds get an answer.
        query_rate: BoundedU16<1, 1000> = BoundedU16::new(100),
        /// Chat lines per second that the server relays for one player, after a burst of ten. The server
        /// drops further lines and informs the player.
        chat_rate: BoundedU16<1, 100> = BoundedU16::new(3),
        /// Bytes per second that the server relays for one player. Each message counts with 32 extra bytes.
        /// Raise it if a mod sends more than the stock game.
        relay_rate: ByteSize = ByteSize(64 << 10),
        /// Kilobits per second that the server sends to all players together, with all headers. `"auto"` is
        /// about 35 for each pair of sender and receiver: 1,971 for eight players. That is five times the
        /// traffic of the stock game. Above it, state updates of the busiest players are dropped, and their other
        /// messages wait. Every address and every player has a share. Raise it together with `relay_rate`.
        uplink: Auto<64, 65535> = Auto::Auto,
        /// The server sends a keepalive to a player when it has sent nothing else for this long. The stock
        /// game does the same.
        keepalive: Duration = Duration::from_secs(5),
        /// A player is disconnected when the server receives nothing from it for this long. A lower value
        /// frees the slots of lost players sooner.
        silence_timeout: Duration = Duration::from_secs(45),
        /// Time limit for joining. A player who takes longer is disconnected.
        handshake_timeout: Duration = Duration::from_secs(60),
        /// Time limit for each of the five file checks of a joining player. After it, `"permissive"`
        /// continues without that check, and `"strict"` refuses the player.
        round_timeout: Duration = Duration::from_secs(20),
        /// A player is disconnected when a message to it stays unacknowledged for this long. The same happens
        /// if a missing message from it does not arrive for this long.
        undeliverable_timeout: Duration = Duration::from_secs(360),
    }
}

words! {
    /// Severity of a log line.
    LogLevel { Error = "error", Warn = "warn", Info = "info", Debug = "debug", Trace = "trace", }
}

words! {
    /// Address verification that new clients must pass.
    ProofSetting { Auto = "auto", Ack = "ack", Id = "id", }
}

words! {
    /// Assignment of peer ids.
    IdSetting { Random = "random", Sequential = "sequential", }
}

words! {
    /// Format of log lines.
    LogFormat { Text = "text", Json = "json", }
}

words! {
    /// The missions of the stock game that need no simulation.
    StockMission {
        /// Everyone against everyone.
        Deathmatch = "DM",
        /// Two teams.
        TeamDeathmatch = "TDM",
        /// Federation against the others.
        Factions = "FactionDM",
    }
}

/// The mission of a session.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum MissionSetting {
    Stock(StockMission),
    /// The script of a mod's mission.
    Script(String),
}

impl ConfigValue for MissionSetting {
    fn form() -> String {
        format!("{}, or a script such as `\"Multiplayer.Episode.Mission1.Mission1\"`", StockMission::form())
    }

    fn from_text(text: &str) -> Result<Self, String> {
        let part =
            |part: &str| !part.is_empty() && part.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        if text.contains('.') && text.len() <= MAX_SCRIPT && text.split('.').all(part) {
            return Ok(Self::Script(text.into()));
        }
        StockMission::from_text(text).map(Self::Stock)
    }

    fn to_toml(&self) -> String {
        match self {
            Self::Stock(mission) => mission.to_toml(),
            Self::Script(script) => quoted(script),
        }
    }
}

/// Longest script name in characters; scripts of the stock game have 37.
const MAX_SCRIPT: usize = 128;

impl ConfigValue for System {
    fn form() -> String {
        Self::all().map(|system| format!("`\"{system}\"`")).collect::<Vec<_>>().join(", ")
    }

    fn from_text(text: &str) -> Result<Self, String> {
        let known = Self::all().find(|system| system.name() == text);
        known.ok_or_else(|| unknown_word(text, Self::all().map(Self::name)))
    }

    fn to_toml(&self) -> String {
        quoted(self.name())
    }
}

/// Player name shown in front of the server's chat lines.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum SayAsSetting {
    /// The name of the player who receives the line.
    Recipient,
    /// The peer with this id; 1 is the host.
    Peer(BoundedU16<1, 255>),
}

impl ConfigValue for SayAsSetting {
    fn form() -> String {
        "`\"recipient\"`, or a peer id from 1 to 255".into()
    }

    fn from_text(text: &str) -> Result<Self, String> {
        match text {
            "recipient" => Ok(Self::Recipient),
            text => BoundedU16::from_text(text)
                .map(Self::Peer)
                .map_err(|_| expected_message::<Self>(&quoted(text))),
        }
    }

    fn from_toml(value: &DeValue<'_>) -> Result<Self, String> {
        match value {
            DeValue::String(text) => Self::from_text(text),
            number => BoundedU16::from_toml(number)
                .map(Self::Peer)
                .map_err(|_| expected_message::<Self>(&describe_value(number))),
        }
    }

    fn to_toml(&self) -> String {
        match self {
            Self::Recipient => quoted("recipient"),
            Self::Peer(id) => id.to_toml(),
        }
    }
}

words! {
    /// Method that decides which player destroyed a ship.
    CreditKills { None = "none", LastShot = "last-shot", }
}

words! {
    /// Strictness of the game file check.
    ChecksumSetting { Permissive = "permissive", Strict = "strict", }
}

words! {
    /// The opcode of the refusal for files that do not match.
    RefusalOpcode { Mismatch22 = "0x22", Mismatch23 = "0x23", }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_tables_match_the_settings() {
        let mut settings = Settings { hooks: vec![Hook::default()], ..Settings::default() };
        let names: Vec<String> =
            settings.tables().into_iter().chain(settings.file_only_tables()).map(|(name, _)| name).collect();
        let lists = TABLE_ARRAYS.map(|list| format!("{list}.1"));
        assert_eq!(names, [&TABLES.map(String::from)[..], &lists].concat());
        assert!(names.iter().all(|name| settings.table_mut(name).is_some()), "{names:?}");
    }
}
