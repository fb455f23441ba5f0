//! Every setting with its default and its meaning. The comments of the keys are the documentation: `bcnet config
//! default` and docs/configuration.md are made of them.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::PathBuf;
use std::time::Duration;

use bcnet_session::{Network, System};
use toml::de::DeValue;

use super::hook::Hook;
use super::table::{Table, table};
use super::text::{CounterName, HostName, Line, Lines, Master, Password};
use super::value::{Auto, Port, Size, Value, Within, expected, plain, quoted, unknown_word, words};

/// All settings of a server.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Settings {
    pub(crate) server: Server,
    pub(crate) log: Log,
    pub(crate) capture: Capture,
    pub(crate) web: Web,
    pub(crate) scores: Scores,
    pub(crate) fleet: Fleet,
    /// At least one.
    pub(crate) sessions: Vec<Session>,
    /// Of the file only.
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

/// The tables of a file, and those of which there may be several.
pub(super) const TABLES: [&str; 6] = ["server", "log", "capture", "web", "scores", "fleet"];
pub(super) const LISTS: [&str; 2] = ["session", "hook"];

impl Settings {
    /// Returns the tables that everyone may set, by their names: those of [`TABLES`], `session.1`, `session.2`, …
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
    pub(crate) fn file_tables(&self) -> Vec<(String, &dyn Table)> {
        self.hooks.iter().zip(1..).map(|(hook, n)| (format!("hook.{n}"), hook as &dyn Table)).collect()
    }

    /// Makes so many tables of a list.
    pub(super) fn make_room(&mut self, list: &str, count: usize) {
        match list {
            "hook" => self.hooks = (1..=count).map(Hook::numbered).collect(),
            _ => self.sessions = vec![Session::default(); count.max(1)],
        }
    }

    /// Returns the table of that name, to be changed.
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
    /// What all sessions of the process share.
    Server {
        /// The local address of the game's sockets. `0.0.0.0` is all of them.
        bind: Ipv4Addr = Ipv4Addr::UNSPECIFIED,
        /// The socket for `bcnet ctl`. Only the user who runs the server may use it. A name without a directory is one in
        /// the runtime directory (`RUNTIME_DIRECTORY`, else `XDG_RUNTIME_DIR`, else `/run/bcnet`, else `/tmp/bcnet-` and
        /// the user's number); `"./bcnet.sock"` is beside this file. On Windows it is a named pipe, which administrators
        /// may use too.
        control: Option<PathBuf> = Some("bcnet.sock".into()),
        /// The file with the bans. The server writes it, so it is not this file. It is beside this file, or in the
        /// state directory of a service (`STATE_DIRECTORY`), unless the path begins with `/`.
        bans: PathBuf = "bans.toml".into(),
        /// The file with who did what: kicks, bans, settings, one JSON object per line. At 1 MiB it is begun anew, and the
        /// one before is kept. It is where the bans are.
        history: Option<PathBuf> = Some("history.jsonl".into()),
        /// How long a ban lasts if the command does not say. Addresses change hands, so it should end some day.
        ban_expiry: Option<Duration> = Some(Duration::from_secs(30 * 86_400)),
        /// Master servers that list the sessions. Without any, nothing is sent to anyone who did not ask.
        masters: Vec<Master> = Vec::new(),
        /// Gives out figures for Prometheus at `/metrics` and health at `/livez` and `/readyz`, by HTTP, to everyone who reaches
        /// this address: use one of the machine itself, or of a network that is yours.
        metrics: Option<SocketAddrV4> = None,
        /// How many threads play. Each has sessions of its own; `"auto"` is one for each core. There are never more than
        /// sessions.
        threads: Auto<1, 256> = Auto::Auto,
        /// How much of a core relaying may take in each thread before state updates wait for company, in percent. Below
        /// three quarters of it every update is passed on at once; above that, one datagram carries several.
        cpu_budget: Within<1, 100> = Within::new(50),
        /// How long a state update waits for company at the most, when the budget is used up. Chat, orders and all else
        /// never wait.
        coalesce_max: Duration = Duration::from_millis(20),
        /// How long a state update always waits for company. `"20ms"` takes about a quarter off what a line must carry; it
        /// counts even if it is above `coalesce_max`.
        coalesce_min: Duration = Duration::ZERO,
    }
}

table! {
    /// What the server tells about itself, on standard error and in a file.
    Log {
        /// The least important lines to show.
        level: Level = Level::Info,
        /// Lines for people, or JSON.
        format: Format = Format::Text,
        /// A file that gets the same lines. A new one is begun every day, with the date in its name.
        file: Option<PathBuf> = None,
        /// How many of those files to keep.
        keep: Within<1, 365> = Within::new(14),
    }
}

table! {
    /// A capture of all datagrams, for Wireshark and `bcnet inspect`.
    Capture {
        /// Where to write it (pcapng).
        file: Option<PathBuf> = None,
        /// When a file has this size, the next is begun.
        size: Size = Size(64 << 20),
        /// How many files to keep.
        files: Within<1, 1000> = Within::new(4),
    }
}

table! {
    /// A page for the operator's browser: who plays and how well, and what `bcnet ctl` can do.
    Web {
        /// Whether there is one.
        enabled: bool = false,
        /// Where. At an address of the machine itself everyone on it sees the figures of players; all else needs the
        /// token. At any other address everything needs the token, and `certificate` and `key`, or `behind_proxy`.
        bind: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 8101),
        /// Whether `/standings` shows the best of `[scores]` to everyone who reaches the page, without the token.
        standings: bool = false,
        /// The file with the certificate (PEM, with those that it depends on), for https.
        certificate: Option<PathBuf> = None,
        /// The file with the key of the certificate (PEM).
        key: Option<PathBuf> = None,
        /// Another program (nginx, Caddy) stands before the page and does https. Everything needs the token then, and the last
        /// address in `X-Forwarded-For` counts as the visitor's.
        behind_proxy: bool = false,
        /// The names by which browsers may call the page, besides `localhost` and addresses. All other names are refused: one
        /// that somebody else has given this address may be an attack.
        hosts: Vec<HostName> = Vec::new(),
        /// The file with the token, for the user of the server alone. If there is none the server makes one. It is where the
        /// bans are.
        token_file: PathBuf = "web-token".into(),
        /// A browser in which nobody did anything for this long must show the token again.
        idle: Duration = Duration::from_secs(30 * 60),
        /// So must every browser after this time.
        lifetime: Duration = Duration::from_secs(12 * 3600),
    }
}

table! {
    /// Results of rounds and totals of players that outlive the server, for `bcnet stats`. Off unless there is a file: names of
    /// players are data about people, to be kept only by who wants to.
    Scores {
        /// Where to keep them (a database of SQLite). It is where the bans are.
        file: Option<PathBuf> = None,
        /// How long rounds are kept, in whole days. Totals are those of the rounds that are kept.
        keep: Option<Duration> = Some(Duration::from_secs(365 * 86_400)),
        /// Shorter rounds are not kept, nor are those who were in a round for a shorter time.
        shortest: Duration = Duration::from_secs(60),
    }
}

table! {
    /// One of many servers, kept by others.
    Fleet {
        /// Tells Agones, which keeps fleets of game servers on Kubernetes, through its sidecar at port 9358 or
        /// `AGONES_SDK_HTTP_PORT`: ready, in use since the first player came, well, how many play.
        agones: bool = false,
        /// What a server is told to be when the last player has left: ready for others again, over, or still in use.
        when_empty: WhenEmpty = WhenEmpty::Ready,
        /// How long nobody must be there for that.
        empty_after: Duration = Duration::from_secs(30),
        /// The counter of Agones that has the players and the places for them.
        counter: Option<CounterName> = Some(CounterName("players".into())),
    }
}

words! {
    /// What a server of a fleet is when the last player has left.
    WhenEmpty { Ready = "ready", Shutdown = "shutdown", Allocated = "allocated", }
}

table! {
    /// A game on a port of its own. Write one `[[session]]` for each; without any, there is one with the defaults.
    Session {
        /// What players see in their list.
        name: Line<64> = Line("bcnet".into()),
        /// The UDP port. `"auto"` takes the first free one of 22101 to 22201, where the game looks for servers in the
        /// local network; a number is never changed.
        port: Port = Port::Auto,
        /// The port that masters are told, if players reach the server by another one (port forwarding).
        advertise_port: Port = Port::Auto,
        /// What players must type to join. `BCNET_PASSWORD` keeps it out of this file.
        password: Password = Password::default(),
        /// The most players.
        player_limit: Within<1, 16> = Within::new(8),
        /// The most players of one address. `"auto"` is three quarters of all: a household or a LAN party behind one
        /// address does not notice, and nobody else is kept out. 16 is no limit.
        players_per_address: Auto<1, 16> = Auto::Auto,
        /// The most players of one network (/16). `"auto"` is three quarters of all, 16 is no limit. Private addresses do
        /// not count.
        players_per_network: Auto<1, 16> = Auto::Auto,
        /// What a newcomer must do to show that it is where it says: confirm a message (`"ack"`), just know its id
        /// (`"id"`), or `"auto"`: the first, and while no attack is seen the second will do.
        prove: Prove = Prove::Auto,
        /// Which ids players get: any that is free, or one after the other as the stock server does, which helps forgers.
        ids: Ids = Ids::Random,
        /// What is played: everyone for themselves, two teams, or Federation against the others. Or the script of a mod.
        mission: Mission = Mission::Stock(StockMission::Deathmatch),
        /// Where it takes place.
        system: System = System::default(),
        /// The systems of the following rounds, in turn. Empty to stay.
        rotation: Vec<System> = Vec::new(),
        /// How long a round lasts, in minutes.
        time_limit: Option<Within<1, 254>> = None,
        /// How many kills end a round. Players are told; the server cannot see kills, and ends no round by them.
        frag_limit: Option<Within<1, 254>> = None,
        /// How long after the end of a round the next one begins. With none, `bcnet ctl` begins it.
        intermission: Option<Duration> = Some(Duration::from_secs(30)),
        /// Ships collide.
        collisions: bool = true,
        /// Weapons hurt one's own team.
        friendly_fire: bool = false,
        /// Who has destroyed a ship: `"none"`, for the server cannot see it, or `"last-shot"`, a guess: who fired the last torpedo
        /// or pulse at a ship in the 30 seconds before its owner has a new one. Players are told. Untested with stock clients.
        credit_kills: CreditKills = CreditKills::None,
        /// What a player reads after joining. Empty for nothing.
        welcome: Lines<1000> = Lines(String::new()),
        /// Whose name stands before what the server says: the reader's own, which every client knows, or that of a
        /// peer id. Untested with stock clients.
        say_as: SayAs = SayAs::Recipient,
        /// What the server's own chat lines begin with.
        say_prefix: Line<32> = Line("[server] ".into()),
        /// Whether game files must match: `"permissive"` lets everyone in, `"strict"` only who matches one of the manifests.
        checksums: Checksums = Checksums::Permissive,
        /// The files of `bcnet manifest learn` that `"strict"` compares with.
        manifests: Vec<PathBuf> = Vec::new(),
        /// With `"strict"`: files that no manifest knows are fine.
        extra_files: bool = false,
        /// The message that tells a player about files that do not match. Documents do not agree which of the two it is.
        refusal_opcode: RefusalOpcode = RefusalOpcode::Mismatch22,
        /// Passes on messages that the stock game does not have. Mods need it.
        forward_unknown: bool = true,
        /// Passes on ships, torpedoes and events that the stock game does not have. A client without the mod may crash.
        allow_mods: bool = false,
        /// Hides what address a player's game has told: names and goodbyes are passed on with 0.0.0.0 instead. Untested with
        /// stock clients.
        mask_addresses: bool = false,
        /// Lists a player `Dedicated Server`, as the stock server does. Some browsers then hide the last player.
        list_host_as_player: bool = false,
        /// The only networks whose players may join, besides those that are `trusted`. Empty for everyone.
        whitelist: Vec<Network> = Vec::new(),
        /// Networks to which no limit by address applies and whose players need not show where they are: of proxies, and
        /// of load tests.
        trusted: Vec<Network> = vec![Network::around(Ipv4Addr::LOCALHOST, 8)],
        /// How many questions of browsers are answered per second, of all networks together. Beyond that only who asks
        /// again within five seconds is answered. One network (/24) gets 2,000 bytes of answers in ten seconds in any case.
        query_rate: Within<1, 1000> = Within::new(100),
        /// How many lines of chat of one player are passed on per second, after ten at once. Its writer is told of others.
        chat_rate: Within<1, 100> = Within::new(3),
        /// How much of one player's messages is passed on per second. Each counts 32 bytes more than it has.
        relay_rate: Size = Size(64 << 10),
        /// A player to whom nothing was sent for this long gets a sign of life. The stock game does the same.
        keepalive: Duration = Duration::from_secs(5),
        /// A player of whom nothing is heard for this long is gone.
        silence_timeout: Duration = Duration::from_secs(45),
        /// How long joining may take.
        handshake_timeout: Duration = Duration::from_secs(60),
        /// How long one of the five file checks may take before `"permissive"` goes on without it.
        round_timeout: Duration = Duration::from_secs(20),
        /// A player who does not confirm a message for this long is gone.
        undeliverable_timeout: Duration = Duration::from_secs(360),
    }
}

words! {
    /// How important a line of the log is.
    Level { Error = "error", Warn = "warn", Info = "info", Debug = "debug", Trace = "trace", }
}

words! {
    /// What a newcomer must do to show that it is where it says.
    Prove { Auto = "auto", Ack = "ack", Id = "id", }
}

words! {
    /// Which ids players get.
    Ids { Random = "random", Sequential = "sequential", }
}

words! {
    /// The form of the log's lines.
    Format { Text = "text", Json = "json", }
}

words! {
    /// The missions of the stock game that need no simulation.
    StockMission {
        /// Everyone for themselves.
        Deathmatch = "DM",
        /// Two teams.
        TeamDeathmatch = "TDM",
        /// Federation against the others.
        Factions = "FactionDM",
    }
}

/// What is played.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Mission {
    Stock(StockMission),
    /// The script of a mod's mission.
    Script(String),
}

impl Value for Mission {
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

/// Scripts of the stock game have 37.
const MAX_SCRIPT: usize = 128;

impl Value for System {
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

/// Who seems to say what the server says.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum SayAs {
    /// The player who reads it.
    Recipient,
    /// The peer with this id; 1 is the host.
    Peer(Within<1, 255>),
}

impl Value for SayAs {
    fn form() -> String {
        "`\"recipient\"`, or a peer id from 1 to 255".into()
    }

    fn from_text(text: &str) -> Result<Self, String> {
        match text {
            "recipient" => Ok(Self::Recipient),
            text => Within::from_text(text).map(Self::Peer).map_err(|_| expected::<Self>(&quoted(text))),
        }
    }

    fn from_toml(value: &DeValue<'_>) -> Result<Self, String> {
        match value {
            DeValue::String(text) => Self::from_text(text),
            number => Within::from_toml(number).map(Self::Peer).map_err(|_| expected::<Self>(&plain(number))),
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
    /// Who has destroyed a ship.
    CreditKills { None = "none", LastShot = "last-shot", }
}

words! {
    /// How strictly game files are compared.
    Checksums { Permissive = "permissive", Strict = "strict", }
}

words! {
    /// The opcode of the refusal for files that do not match.
    RefusalOpcode { Mismatch22 = "0x22", Mismatch23 = "0x23", }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_the_tables_of_the_settings_and_no_others() {
        let mut settings = Settings { hooks: vec![Hook::default()], ..Settings::default() };
        let names: Vec<String> =
            settings.tables().into_iter().chain(settings.file_tables()).map(|(name, _)| name).collect();
        let lists = LISTS.map(|list| format!("{list}.1"));
        assert_eq!(names, [&TABLES.map(String::from)[..], &lists].concat());
        assert!(names.iter().all(|name| settings.table_mut(name).is_some()), "{names:?}");
    }
}
