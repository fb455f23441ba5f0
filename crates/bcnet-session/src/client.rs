//! The other side of a [`Session`](crate::Session): a player's client, without I/O.
//!
//! [`Client`] connects, tells its name, is asked about its files, enters the game, and tells what it hears. It decides
//! nothing: what its files are, when a mission is loaded and what is said are commands of the caller. Drive it like an
//! [`Endpoint`]: hand over what arrived and the time, then empty [`poll_event`](Client::poll_event), then
//! [`poll_transmit`](Client::poll_transmit), then sleep until [`next_timeout`](Client::next_timeout) or the next datagram.
//!
//! Here is a whole client, which joins a server in memory and says something; `examples/join.rs` is the same over UDP.
//!
//! ```
//! use std::net::{Ipv4Addr, SocketAddrV4};
//! use std::time::Duration;
//!
//! use bcnet_session::client::{Client, Event, Options};
//! use bcnet_session::{Config, Manifest, Session};
//! use bcnet_transport::{Connect, Time};
//!
//! let [server, own] = [1, 2].map(|n| SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, n), 22101));
//! let mut now = Time::ZERO;
//! let connect = Connect { host: server, nonce: 0x0A5F /* a random number */, password: "" };
//! let mut client = Client::connect(Default::default(), connect, Options::named("Kirk"), now);
//! let mut session = Session::new(Config::default(), 1701);
//!
//! let files = Manifest::stand_in();
//! let (mut payload, mut buffer, mut heard) = (Vec::new(), [0; 2048], Vec::new());
//! while heard.is_empty() {
//!     now = now + Duration::from_millis(10);
//!     client.handle_timeout(now);
//!     while let Some(event) = client.poll_event(&mut payload, now) {
//!         match event {
//!             Event::FileCheck(_) => client.answer_from(&files, now)?,
//!             Event::Load => client.enter(now)?,
//!             Event::Entered => client.chat("hailing frequencies open", now)?,
//!             Event::Chat { name, text, .. } => heard.push(format!("{name}: {text}")),
//!             Event::Gone { step, end } => panic!("{step}: {end}"),
//!             _ => {}
//!         }
//!     }
//!     while let Some(transmit) = client.poll_transmit(&mut buffer, now) {
//!         session.handle_datagram(own, &mut buffer[..transmit.len], now);
//!     }
//!     session.handle_timeout(now);
//!     while let Some(transmit) = session.poll_transmit(&mut buffer, now) {
//!         client.handle_datagram(server, &mut buffer[..transmit.len], now);
//!     }
//! }
//! assert_eq!(heard, ["Kirk: hailing frequencies open"]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # What it promises
//!
//! - Nothing that a server sends makes it panic, grow without bound or work without bound. What makes no sense is counted,
//!   told now and then ([`Event::Nonsense`]), and has no other effect.
//! - Every game message gives exactly one event, in the order of arrival; nonsense is the exception.
//! - Same input, same output: it reads no clock and has no chance of its own.

mod event;
mod react;

use std::collections::BTreeMap;
use std::net::SocketAddrV4;
use std::time::Duration;

use bcnet_transport::wire::{PeerId, Text};
use bcnet_transport::{Config, Connect, Endpoint, Engine, Leave, Quality, Time, Transmit};

use crate::config::MAX_SLOTS;
use crate::game::{
    self, Created, Message, NewPlayerInGame, ObjectCreateTeam, ObjectId, ROUNDS, StateUpdate, TeamChat,
    Text16, UnknownFlags,
};
use crate::manifest::Manifest;
use crate::message::{self as messages, Score};
pub use event::{CommandError, End, Event, FileCheck, GameSettings, Milestone, Nonsense, PlayerShip, State};

/// How a client behaves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// What it calls itself.
    pub name: String,
    /// How long it may take from the connect request to [`Event::Entered`], the caller's own time included. `None`: as
    /// long as the server is not silent.
    pub handshake_timeout: Option<Duration>,
}

impl Options {
    /// Returns the usual ones, with this name.
    #[must_use]
    pub fn named(name: &str) -> Self {
        Self { name: name.into(), handshake_timeout: Some(HANDSHAKE) }
    }
}

/// A player that a client knows.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Player {
    /// What it calls itself; empty if that is not known.
    pub name: String,
    /// Whether the server lists it: it takes part.
    pub listed: bool,
    /// What it has reached.
    pub score: Score,
    /// Its team, where there are teams.
    pub team: Option<u8>,
}

/// A player's client without its socket and clock, on any engine. See the [module](self).
#[derive(Debug)]
pub struct Client<E = Endpoint> {
    engine: E,
    name: String,
    state: State,
    /// Why it is over, if it is.
    end: Option<End>,
    /// When the server must have listed it.
    deadline: Option<Time>,
    /// The round of the file check that was not answered yet.
    asked: Option<u8>,
    slot: Option<u8>,
    /// What the server's game clock said, and when.
    game_clock: Option<(f32, Time)>,
    /// By peer id, so there are 256 at the most.
    players: BTreeMap<u8, Player>,
    /// The last ship of each slot, this client's own among them.
    ships: [Option<PlayerShip>; MAX_SLOTS],
    nonsense: u64,
    /// What is written next; kept for its memory.
    payload: Vec<u8>,
}

impl Client {
    /// Returns a client that asks a server to be let in.
    #[must_use]
    pub fn connect(config: Config, connect: Connect<'_>, options: Options, now: Time) -> Self {
        Self::new(Endpoint::connect(config, connect, now), options, now)
    }
}

impl<E: Engine> Client<E> {
    /// Returns a client on an engine that asks to be let in.
    #[must_use]
    pub fn new(engine: E, options: Options, now: Time) -> Self {
        Self {
            engine,
            name: options.name,
            state: State::Connecting,
            end: None,
            deadline: options.handshake_timeout.map(|timeout| now + timeout),
            asked: None,
            slot: None,
            game_clock: None,
            players: BTreeMap::new(),
            ships: [None; MAX_SLOTS],
            nonsense: 0,
            payload: Vec::new(),
        }
    }

    /// A datagram arrived.
    pub fn handle_datagram(&mut self, from: SocketAddrV4, bytes: &mut [u8], now: Time) {
        self.engine.handle_datagram(from, bytes, now);
    }

    /// Time has passed.
    pub fn handle_timeout(&mut self, now: Time) {
        self.engine.handle_timeout(now);
    }

    /// Returns when [`handle_timeout`](Self::handle_timeout) is due.
    #[must_use]
    pub fn next_timeout(&self) -> Option<Time> {
        [self.engine.next_timeout(), self.deadline].into_iter().flatten().min()
    }

    /// Writes the next datagram to send into `buffer`, which should have 2048 bytes.
    pub fn poll_transmit(&mut self, buffer: &mut [u8], now: Time) -> Option<Transmit> {
        self.engine.poll_transmit(buffer, now)
    }

    /// Takes the next thing that happened. If that is a game message, `payload` gets it; otherwise `payload` is empty.
    pub fn poll_event(&mut self, payload: &mut Vec<u8>, now: Time) -> Option<Event> {
        while let Some(event) = self.engine.poll_event(payload) {
            if self.state == State::Gone {
                self.note_boot(event);
            } else if let Some(event) = self.react(event, payload, now) {
                return Some(event);
            }
        }
        payload.clear();
        self.deadline.filter(|deadline| *deadline <= now)?;
        self.engine.leave(now);
        Some(self.finish(End::Stalled))
    }

    /// Answers the last file check out of a manifest.
    ///
    /// # Errors
    /// See [`CommandError`]: the manifest may not have that round.
    pub fn answer_from(&mut self, manifest: &Manifest, now: Time) -> Result<(), CommandError> {
        let asked = self.asked.ok_or(CommandError::NoAnswer)?;
        let round = ROUNDS.iter().position(|round| round.index == asked);
        let answer = round.and_then(|round| manifest.answer(round)).ok_or(CommandError::NoAnswer)?;
        self.answer(&answer, now)
    }

    /// Answers the last file check with these bytes, which are not looked at (S-21). Whoever does not want to answer,
    /// does not.
    ///
    /// # Errors
    /// See [`CommandError`].
    pub fn answer(&mut self, answer: &[u8], now: Time) -> Result<(), CommandError> {
        self.asked.ok_or(CommandError::NoAnswer)?;
        self.send(answer, Quality::Reliable, now)?;
        self.asked = None;
        Ok(())
    }

    /// Tells the server that the mission is loaded, after [`Event::Load`].
    ///
    /// # Errors
    /// See [`CommandError`].
    pub fn enter(&mut self, now: Time) -> Result<(), CommandError> {
        self.expect(&[State::Loading])?;
        let ready = NewPlayerInGame { flags: UnknownFlags::default() };
        self.say(&Message::NewPlayerInGame(ready), Quality::Reliable, now)?;
        self.state = State::Entering;
        Ok(())
    }

    /// Says something to everyone. What the game has no letters for becomes `?`; what is longer than [`MAX_CHAT`] is cut.
    ///
    /// # Errors
    /// See [`CommandError`].
    pub fn chat(&mut self, text: &str, now: Time) -> Result<(), CommandError> {
        self.expect(&[State::Lobby, State::InGame])?;
        self.say(&messages::chat(self.engine.id().0, &messages::text(text)), Quality::Reliable, now)
    }

    /// Says something to its own team. See [`chat`](Self::chat).
    ///
    /// # Errors
    /// See [`CommandError`].
    pub fn team_chat(&mut self, text: &str, now: Time) -> Result<(), CommandError> {
        self.expect(&[State::Lobby, State::InGame])?;
        let text = messages::text(text);
        let chat = TeamChat { sender: self.engine.id().0.into(), text: Text16(&text) };
        self.say(&Message::TeamChat(chat), Quality::Reliable, now)
    }

    /// Takes a ship, and is in the game then. `number` is that of the ship among the object ids of this client's slot,
    /// 0 for the first; its subsystems have the numbers after it, so the next ship's is higher than theirs.
    ///
    /// # Errors
    /// See [`CommandError`].
    pub fn create_ship(
        &mut self,
        number: u32,
        ship: game::Ship<'_>,
        now: Time,
    ) -> Result<ObjectId, CommandError> {
        self.expect(&[State::Lobby, State::InGame])?;
        let slot = self.slot.ok_or(CommandError::State(self.state))?;
        let (peer, object, species) = (self.engine.id(), ObjectId::new(slot, number), ship.species);
        let object_create = ObjectCreateTeam { slot, peer: peer.0, object: Created::Ship { object, ship } };
        self.say(&Message::ObjectCreateTeam(object_create), Quality::Reliable, now)?;
        self.put_ship(PlayerShip { slot, peer: Some(peer), object, species });
        Ok(object)
    }

    /// Tells the others where its ship is, unreliably: ten times a second is usual. The time in it is that of the
    /// [game clock](Self::game_time).
    ///
    /// # Errors
    /// See [`CommandError`].
    pub fn update(&mut self, update: StateUpdate<'_>, now: Time) -> Result<(), CommandError> {
        self.expect(&[State::InGame])?;
        self.say(&Message::StateUpdate(update), Quality::Unreliable, now)
    }

    /// Says anything that the game knows.
    ///
    /// # Errors
    /// See [`CommandError`].
    pub fn say(&mut self, message: &Message<'_>, quality: Quality, now: Time) -> Result<(), CommandError> {
        self.payload.clear();
        message.write(&mut self.payload);
        Ok(self.engine.send(PeerId::HOST, &self.payload, quality, now)?)
    }

    /// Sends any bytes as a game message: a mod's, say.
    ///
    /// # Errors
    /// See [`CommandError`].
    pub fn send(&mut self, payload: &[u8], quality: Quality, now: Time) -> Result<(), CommandError> {
        Ok(self.engine.send(PeerId::HOST, payload, quality, now)?)
    }

    /// Tells the server this name instead of the one before.
    ///
    /// # Errors
    /// See [`CommandError`]: nobody can be told before [`Event::Connected`], which tells the first name by itself.
    pub fn rename(&mut self, name: &str, now: Time) -> Result<(), CommandError> {
        self.name = name.into();
        self.identify(now)
    }

    /// Leaves. Go on until [`is_closed`](Self::is_closed): the goodbye is repeated until it is acknowledged. If the server
    /// throws it out before that, [`end`](Self::end) tells.
    pub fn leave(&mut self, now: Time) {
        self.engine.leave(now);
        self.finish(End::Left);
    }

    /// Returns whether the server knows that this client is gone, or was given up.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.engine.is_closed()
    }

    /// Returns why it is over, if it is.
    #[must_use]
    pub const fn end(&self) -> Option<End> {
        self.end
    }

    /// Returns where the client stands.
    #[must_use]
    pub const fn state(&self) -> State {
        self.state
    }

    /// Returns whether it takes part, with a ship or without.
    #[must_use]
    pub const fn has_entered(&self) -> bool {
        matches!(self.state, State::Lobby | State::InGame)
    }

    /// Returns its own id, [`PeerId::UNASSIGNED`] before [`Event::Connected`].
    #[must_use]
    pub fn id(&self) -> PeerId {
        self.engine.id()
    }

    /// Returns its own slot, which [`Event::Settings`] tells.
    #[must_use]
    pub const fn slot(&self) -> Option<u8> {
        self.slot
    }

    /// Returns what the game clock shows, in seconds: it goes on from what [`Event::Settings`] told.
    #[must_use]
    pub fn game_time(&self, now: Time) -> Option<f32> {
        self.game_clock.map(|(told, at)| told + now.since(at).as_secs_f32())
    }

    /// Returns everyone who is known, by id, this client too.
    pub fn players(&self) -> impl Iterator<Item = (PeerId, &Player)> {
        self.players.iter().map(|(id, player)| (PeerId(*id), player))
    }

    /// Returns the ships that are there, by slot.
    pub fn ships(&self) -> impl Iterator<Item = &PlayerShip> {
        self.ships.iter().flatten()
    }

    /// Returns how much nonsense the server has said so far.
    #[must_use]
    pub const fn nonsense(&self) -> u64 {
        self.nonsense
    }

    /// Returns the engine below, for what it knows.
    #[must_use]
    pub const fn engine(&self) -> &E {
        &self.engine
    }

    fn identify(&mut self, now: Time) -> Result<(), CommandError> {
        // A name that ends early is as good as none.
        let name = Text::encode(&self.name).unwrap_or_default();
        Ok(self.engine.identify(Text::new(&name).unwrap_or_default(), now)?)
    }

    fn expect(&self, states: &[State]) -> Result<(), CommandError> {
        if states.contains(&self.state) { Ok(()) } else { Err(CommandError::State(self.state)) }
    }

    /// Nothing is told after the end, but who is thrown out while it leaves has not left by itself.
    fn note_boot(&mut self, event: bcnet_transport::Event) {
        if let bcnet_transport::Event::Left { peer, reason: reason @ Leave::Booted(_) } = event
            && (peer == PeerId::HOST || peer == self.engine.id())
            && self.end == Some(End::Left)
        {
            self.end = Some(reason.into());
        }
    }

    /// It is over.
    fn finish(&mut self, end: End) -> Event {
        let step = std::mem::replace(&mut self.state, State::Gone);
        self.deadline = None;
        self.end = self.end.or(Some(end));
        Event::Gone { step, end }
    }
}

/// The most characters that one line of chat has.
pub const MAX_CHAT: usize = messages::MAX_TEXT;
/// How long a client may take to get into the game: as long as bcnet lets it (S-26).
const HANDSHAKE: Duration = Duration::from_secs(60);
