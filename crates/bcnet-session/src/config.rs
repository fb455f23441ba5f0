//! Every setting of a session, with its default.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::Duration;

use bcnet_transport::IdPolicy;

use crate::game::{Opcode, SystemNumber};
use crate::manifest::Manifest;
use crate::network::Network;

/// How a session behaves. The defaults are those of a stock dedicated server, apart from what their docs say.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// The name that browsers show.
    pub name: String,
    /// What is played.
    pub mission: Mission,
    /// Where it is played first.
    pub system: System,
    /// Where it is played afterwards, round by round, and then again from the first. Empty: always in
    /// [`system`](Self::system).
    pub rotation: Vec<System>,
    /// How long a round takes, in minutes, 1 to 254.
    pub time_limit: Option<u8>,
    /// How many kills end a round. It is only announced: a server without simulation does not see kills.
    pub frag_limit: Option<u8>,
    /// How long after the end of a round the next one begins by itself; `None` waits for
    /// [`restart`](crate::Session::restart).
    pub intermission: Option<Duration>,
    /// How many players there can be, at most 16 (S-04).
    pub player_limit: u8,
    /// How many players there can be from one address; `None` is three quarters of all. A household or a LAN party behind
    /// one address has that many, and there is room for others (S-13).
    pub players_per_address: Option<u8>,
    /// The same for one network, /16. Private addresses are the host's own network and do not count.
    pub players_per_network: Option<u8>,
    /// What a client must know to be let in.
    pub password: Option<String>,
    /// What a player is told on arrival, line by line. Empty: nothing.
    pub welcome: String,
    /// In whose name the server chats (S-41).
    pub say_as: SayAs,
    /// What the server's own chat lines begin with.
    pub say_prefix: String,
    /// List a player `Dedicated Server`, as stock does. Many query clients then lose the last real one (S-06).
    pub list_host_as_player: bool,
    /// Which opcode tells a client that its files differ: 0x22 or 0x23 (S-24).
    pub refusal_opcode: Opcode,
    /// Which files clients must have.
    pub checksums: Checksums,
    /// Let clients have files that a manifest does not know.
    pub extra_files: bool,
    /// Tell the manifest of everyone who joins, by [`Event::ManifestLearned`](crate::Event::ManifestLearned).
    pub learn_manifests: bool,
    /// Pass on opcodes that nobody knows: mods have their own (S-34).
    pub forward_unknown: bool,
    /// Pass on ships and events that the stock game does not have (S-32).
    pub allow_mods: bool,
    /// Pass names and goodbyes on without the addresses in them (S-03).
    pub mask_addresses: bool,
    /// Ships may collide.
    pub collisions: bool,
    /// Own team mates can be hit.
    pub friendly_fire: bool,
    /// A ship that its owner replaces was destroyed by who fired at it last, and everyone is told: a guess (S-45).
    pub credit_last_shot: bool,
    /// List servers that are told that this server exists. Empty: nobody.
    pub masters: Vec<SocketAddrV4>,
    /// The UDP port that players reach this server at, for [`masters`](Self::masters).
    pub advertise_port: u16,
    /// The only networks that are let in, besides [`trusted`](Self::trusted) ones; empty for all (S-15).
    pub whitelist: Vec<Network>,
    /// Networks to which no limit by address applies, and whose clients are let in without proof (S-13): of proxies, and of
    /// whoever tests with many players.
    pub trusted: Vec<Network>,
    /// Replies to queries per second, to all networks together (S-07).
    pub query_rate: u32,
    /// Chat lines of one player that are passed on per second, after ten at once (S-42).
    pub chat_rate: u32,
    /// Bytes that one player may have passed on per second; each message counts 32 more than it has (S-33).
    pub relay_rate: u32,
    /// How long a client may take from its connect request to the game.
    pub handshake_timeout: Duration,
    /// How long a client may take for one round of the file check.
    pub round_timeout: Duration,
    /// The transport below. With `cipher` off the caller ciphers, in batches say; not what begins with `\`.
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
            query_rate: 100,
            chat_rate: 3,
            relay_rate: 64 << 10,
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
    /// Returns how many players there can be.
    pub(crate) fn max_players(&self) -> usize {
        usize::from(self.player_limit).min(MAX_SLOTS)
    }

    /// Returns how many players of one address or network there can be.
    pub(crate) fn per_origin_limit(&self, limit: Option<u8>) -> usize {
        limit.map_or_else(|| (self.max_players() * 3 / 4).max(2), usize::from)
    }

    /// Returns what clients are told before they load.
    pub(crate) fn rules(&self) -> MissionRules {
        let Self { mission, collisions, friendly_fire, .. } = self;
        MissionRules { mission: mission.clone(), collisions: *collisions, friendly_fire: *friendly_fire }
    }

    /// Returns the time limit, if it is one that the wire can tell.
    pub(crate) fn valid_time_limit(&self) -> Option<u8> {
        self.time_limit.filter(|minutes| (1..=254).contains(minutes))
    }
}

/// What a client is told before it loads the mission, and never again (S-25).
#[derive(Debug, Clone)]
pub(crate) struct MissionRules {
    pub(crate) mission: Mission,
    pub(crate) collisions: bool,
    pub(crate) friendly_fire: bool,
}

/// What is played.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mission {
    /// The script that clients load.
    pub script: String,
    /// What browsers show.
    pub short_name: String,
    /// Whether players are in teams.
    pub teams: bool,
}

impl Default for Mission {
    fn default() -> Self {
        Self { script: "Multiplayer.Episode.Mission1.Mission1".into(), short_name: "DM".into(), teams: false }
    }
}

/// A star system that the stock game has for multiplayer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct System(u8);

impl System {
    /// By its number on the wire, 1 to 9.
    #[must_use]
    pub fn new(number: u8) -> Option<Self> {
        SystemNumber(number).name().map(|_| Self(number))
    }

    /// By its name, in any case.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::all().find(|system| system.name().eq_ignore_ascii_case(name))
    }

    /// Returns all of them, in the order of their numbers.
    pub fn all() -> impl Iterator<Item = Self> + Clone {
        SystemNumber::KNOWN.iter().map(|(number, _)| Self(number.0))
    }

    /// Returns its number on the wire.
    #[must_use]
    pub(crate) const fn number(self) -> u8 {
        self.0
    }

    /// Returns its name in queries.
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

/// Which files clients must have.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Checksums {
    /// Any (S-22).
    #[default]
    Permissive,
    /// Those of one of these manifests (S-23). Without any, nobody fits.
    Strict(Vec<Manifest>),
}

/// In whose name the server chats. No stock client has been seen with either.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SayAs {
    /// In that of whoever reads it: the only player whose name every client is sure to know.
    #[default]
    Recipient,
    /// In that of this peer id.
    Peer(u8),
}

/// How many players the stock game has room for.
pub(crate) const MAX_SLOTS: usize = 16;
