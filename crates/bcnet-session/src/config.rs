//! The settings of a session, with their defaults.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::Duration;

use bcnet_transport::IdPolicy;

use crate::game::{Opcode, SystemNumber};
use crate::manifest::Manifest;
use crate::network::Network;

/// The settings of a session. The defaults are those of a stock dedicated server, unless a field says otherwise.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// The name that browsers show. The default is `bcnet`.
    pub name: String,
    /// The mission that players load. The default is a deathmatch: `Multiplayer.Episode.Mission1.Mission1`.
    pub mission: Mission,
    /// The star system of the first round. The default is `Multi1`.
    pub system: System,
    /// The systems of the following rounds. After the last, the first follows again.
    ///
    /// If it is empty, every round is in [`system`](Self::system). The default is empty.
    pub rotation: Vec<System>,
    /// The length of a round in minutes, 1 to 254. With `None`, rounds have no time limit.
    ///
    /// The default is `None`.
    pub time_limit: Option<u8>,
    /// The number of kills that ends a round. The server only announces it, because it does not see kills ([S-60]).
    ///
    /// The default is `None`.
    ///
    /// [S-60]: bcnet_transport::wire::protocol#s-60
    pub frag_limit: Option<u8>,
    /// The time from the end of a round to the next one.
    ///
    /// With `None`, the next round starts when [`restart`](crate::Session::restart) is called.
    /// The default is 30 s.
    pub intermission: Option<Duration>,
    /// The highest number of players, at most 16 ([S-04]). The default is 8.
    ///
    /// [S-04]: bcnet_transport::wire::protocol#s-04
    pub player_limit: u8,
    /// The highest number of players from one address; `None` means three quarters of all ([S-13]).
    ///
    /// That is enough for a household or a LAN party behind one address, and leaves places for others.
    /// The default is `None`.
    ///
    /// [S-13]: bcnet_transport::wire::protocol#s-13
    pub players_per_address: Option<u8>,
    /// The highest number of players from one network (/16); `None` means three quarters of all.
    ///
    /// Neither limit applies to [`home_networks`](Self::home_networks). The default is `None`.
    pub players_per_network: Option<u8>,
    /// The password that a client must send to be admitted. The default is `None`: anybody may join.
    pub password: Option<String>,
    /// The text that each player gets as chat on entering, line by line. Empty for none.
    ///
    /// The default is empty.
    pub welcome: String,
    /// The peer id under which the server sends chat ([S-41]). The default is [`SayAs::Recipient`].
    ///
    /// [S-41]: bcnet_transport::wire::protocol#s-41
    pub say_as: SayAs,
    /// The prefix of the server's own lines of chat. The default is `[server] `.
    pub say_prefix: String,
    /// True to list a player `Dedicated Server` in replies to queries, as stock does ([S-06]).
    ///
    /// Many query programs then lose the last real player. The default is `false`.
    ///
    /// [S-06]: bcnet_transport::wire::protocol#s-06
    pub list_host_as_player: bool,
    /// The opcode of the message that tells a client that its files differ: 0x22 or 0x23 ([S-24]).
    ///
    /// The default is 0x22.
    ///
    /// [S-24]: bcnet_transport::wire::protocol#s-24
    pub refusal_opcode: Opcode,
    /// The files that clients must have. The default is [`Checksums::Permissive`].
    pub checksums: Checksums,
    /// True to accept files that no manifest contains. The default is `false`.
    pub extra_files: bool,
    /// True to report the manifest of each player that joins.
    ///
    /// The event is [`Event::ManifestLearned`](crate::Event::ManifestLearned). The default is `false`.
    pub learn_manifests: bool,
    /// True to report each message of a player in the game as [`Event::Game`](crate::Event::Game).
    ///
    /// The caller must then poll events often.
    pub game_events: bool,
    /// True to relay messages with unknown opcodes: mods have such messages ([S-34]).
    ///
    /// The default is `true`.
    ///
    /// [S-34]: bcnet_transport::wire::protocol#s-34
    pub forward_unknown: bool,
    /// True to relay ships and events that the stock game does not have ([S-32]). The default is `false`.
    ///
    /// [S-32]: bcnet_transport::wire::protocol#s-32
    pub allow_mods: bool,
    /// True to remove the addresses from names and disconnect notices that are relayed ([S-03]).
    ///
    /// The default is `false`.
    ///
    /// [S-03]: bcnet_transport::wire::protocol#s-03
    pub mask_addresses: bool,
    /// True if ships can collide. The default is `true`.
    pub collisions: bool,
    /// True if weapons can hit ships of the shooter's team. The default is `false`.
    pub friendly_fire: bool,
    /// True to credit a destroyed ship to the player that fired at it last: a guess ([S-45]).
    ///
    /// The default is `false`.
    ///
    /// [S-45]: bcnet_transport::wire::protocol#s-45
    pub credit_last_shot: bool,
    /// The list servers that get heartbeats ([S-09]). Empty for none. The default is empty.
    ///
    /// [S-09]: bcnet_transport::wire::protocol#s-09
    pub masters: Vec<SocketAddrV4>,
    /// The UDP port at which players reach this server, for [`masters`](Self::masters).
    ///
    /// The default is 22101.
    pub advertise_port: u16,
    /// The only networks that are admitted, besides [`trusted`](Self::trusted) ones ([S-15]). Empty to admit all.
    ///
    /// The default is empty.
    ///
    /// [S-15]: bcnet_transport::wire::protocol#s-15
    pub whitelist: Vec<Network>,
    /// Networks without limits by address, whose clients need no address verification ([S-13]).
    ///
    /// They are for proxies, and for tests with many players. The default is 127.0.0.0/8.
    ///
    /// [S-13]: bcnet_transport::wire::protocol#s-13
    pub trusted: Vec<Network>,
    /// The host's own networks: they have a separate budget for queries, and no limits of players ([S-13]).
    ///
    /// Their clients need address verification. The default is [`Network::DEFAULT_HOME`].
    ///
    /// [S-13]: bcnet_transport::wire::protocol#s-13
    pub home_networks: Vec<Network>,
    /// The most replies to queries of unverified addresses per second, with 250 bytes for each ([S-07]).
    ///
    /// A longer reply counts as several. The default is 100.
    ///
    /// [S-07]: bcnet_transport::wire::protocol#s-07
    pub query_rate: u32,
    /// The most lines of chat of one player that are relayed per second, after ten at once ([S-42]).
    ///
    /// The default is 3.
    ///
    /// [S-42]: bcnet_transport::wire::protocol#s-42
    pub chat_rate: u32,
    /// The most bytes of one player that are relayed per second. Each message counts 32 bytes more than it has ([S-33]).
    ///
    /// The default is 64 KiB.
    ///
    /// [S-33]: bcnet_transport::wire::protocol#s-33
    pub relay_rate: u32,
    /// The most bytes per second to all players together, with all headers ([S-46]).
    ///
    /// `None` is 4,400 for each pair of sender and receiver. The default is `None`.
    ///
    /// [S-46]: bcnet_transport::wire::protocol#s-46
    pub uplink: Option<u32>,
    /// The longest time from a client's connect request until it has entered the game ([S-26]).
    ///
    /// The default is 60 s.
    ///
    /// [S-26]: bcnet_transport::wire::protocol#s-26
    pub handshake_timeout: Duration,
    /// The longest time for a client's answer in one round of the file check ([S-22]). The default is 20 s.
    ///
    /// [S-22]: bcnet_transport::wire::protocol#s-22
    pub round_timeout: Duration,
    /// The settings of the transport.
    ///
    /// With `cipher` off, the caller ciphers, for example in batches. It must not cipher datagrams that begin with `\`.
    /// The default is that of the transport, with [`IdPolicy::Random`].
    pub transport: bcnet_transport::Config,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            name: "bcnet".into(),
            mission: Mission::default(),
            system: System::default(),
            rotation: Vec::new(),
            time_limit: None,
            frag_limit: None,
            intermission: Some(Duration::from_secs(30)),
            player_limit: 8,
            players_per_address: None,
            players_per_network: None,
            password: None,
            welcome: String::new(),
            say_as: SayAs::default(),
            say_prefix: "[server] ".into(),
            list_host_as_player: false,
            refusal_opcode: Opcode::CHECKSUM_FAILURE,
            checksums: Checksums::default(),
            extra_files: false,
            learn_manifests: false,
            game_events: false,
            forward_unknown: true,
            allow_mods: false,
            mask_addresses: false,
            collisions: true,
            friendly_fire: false,
            credit_last_shot: false,
            masters: Vec::new(),
            advertise_port: 22101,
            whitelist: Vec::new(),
            trusted: vec![Network::containing(Ipv4Addr::LOCALHOST, 8)],
            home_networks: Network::DEFAULT_HOME.to_vec(),
            query_rate: 100,
            chat_rate: 3,
            relay_rate: 64 << 10,
            uplink: None,
            handshake_timeout: Duration::from_secs(60),
            round_timeout: Duration::from_secs(20),
            transport: bcnet_transport::Config {
                id_policy: IdPolicy::Random,
                ..bcnet_transport::Config::default()
            },
        }
    }
}

impl Config {
    /// Returns the highest number of players.
    pub(crate) fn max_players(&self) -> usize {
        usize::from(self.player_limit).min(MAX_SLOTS)
    }

    /// Returns the highest number of players from one address or network.
    pub(crate) fn per_origin_limit(&self, limit: Option<u8>) -> usize {
        limit.map_or_else(|| (self.max_players() * 3 / 4).max(2), usize::from)
    }

    /// Returns the most bytes per second to all players together (S-46).
    pub(crate) fn uplink_rate(&self) -> u32 {
        let players = u32::try_from(self.max_players()).unwrap_or(u32::MAX);
        let pairs = players.saturating_mul(players.saturating_sub(1));
        self.uplink.unwrap_or_else(|| pairs.saturating_mul(UPLINK_PER_PAIR).max(MIN_AUTO_UPLINK))
    }

    /// Returns the settings that clients get before they load the mission.
    pub(crate) fn rules(&self) -> MissionRules {
        let Self { mission, collisions, friendly_fire, .. } = self;
        MissionRules { mission: mission.clone(), collisions: *collisions, friendly_fire: *friendly_fire }
    }

    /// Returns the time limit, if the wire format can express it.
    pub(crate) fn valid_time_limit(&self) -> Option<u8> {
        self.time_limit.filter(|minutes| (1..=254).contains(minutes))
    }
}

/// The settings that a client gets only once, before it loads the mission (S-25).
#[derive(Debug, Clone)]
pub(crate) struct MissionRules {
    pub(crate) mission: Mission,
    pub(crate) collisions: bool,
    pub(crate) friendly_fire: bool,
}

/// A mission.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mission {
    /// The script that clients load.
    pub script: String,
    /// The name that browsers show.
    pub short_name: String,
    /// True if players are in teams.
    pub teams: bool,
}

impl Default for Mission {
    fn default() -> Self {
        Self { script: "Multiplayer.Episode.Mission1.Mission1".into(), short_name: "DM".into(), teams: false }
    }
}

/// A star system of the stock game's multiplayer missions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct System(u8);

impl System {
    /// Returns the system with this number on the wire, 1 to 9.
    #[must_use]
    pub fn new(number: u8) -> Option<Self> {
        SystemNumber(number).name().map(|_| Self(number))
    }

    /// Returns the system with this name, ignoring case.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::all().find(|system| system.name().eq_ignore_ascii_case(name))
    }

    /// Returns all systems, in the order of their numbers.
    pub fn all() -> impl Iterator<Item = Self> + Clone {
        SystemNumber::KNOWN.iter().map(|(number, _)| Self(number.0))
    }

    /// Returns the number of the system on the wire.
    #[must_use]
    pub(crate) const fn number(self) -> u8 {
        self.0
    }

    /// Returns the name of the system in queries.
    #[must_use]
    pub fn name(self) -> &'static str {
        SystemNumber(self.0).name().unwrap_or_default()
    }
}

impl Default for System {
    fn default() -> Self {
        Self(1)
    }
}

impl fmt::Display for System {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The files that clients must have.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Checksums {
    /// Any files (S-22).
    #[default]
    Permissive,
    /// The files of one of these manifests (S-23). If there is no manifest, no client is admitted.
    Strict(Vec<Manifest>),
}

/// The peer id under which the server sends chat. No stock client was tested with either.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SayAs {
    /// The id of the receiver: the only player whose name each client certainly knows.
    #[default]
    Recipient,
    /// This peer id.
    Peer(u8),
}

/// The default uplink for each player and receiver: five times the bytes of a stock game.
///
/// Eight players have 1.97 Mbit/s.
const UPLINK_PER_PAIR: u32 = 4400;
/// The lowest default uplink.
const MIN_AUTO_UPLINK: u32 = 64_000;
/// The number of slots for players in the stock game.
pub(crate) const MAX_SLOTS: usize = 16;
