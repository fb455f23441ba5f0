//! A game client without I/O: the counterpart of a [`Session`](crate::Session) ([S-80] to [S-84]).
//!
//! [`Client`] connects, sends its name, answers the file check, enters the game and reports what the server sends as
//! events. The caller decides: it supplies the file hashes, loads the mission and sends chat and ships by commands.
//! The driver in `bcnet-udp` runs a client on a socket; its example `join` is a bot. Without it, drive a client like an
//! [`Endpoint`]: pass in each datagram and the time, then drain [`poll_event`](Client::poll_event), then
//! [`poll_transmit`](Client::poll_transmit). Then sleep until [`next_timeout`](Client::next_timeout) or the next datagram.
//!
//! This complete client joins a server in memory and sends one line of chat.
//!
//! ```
//! use std::net::{Ipv4Addr, SocketAddrV4};
//! use std::time::Duration;
//!
//! use bcnet_session::client::{Client, ClientOptions, Event};
//! use bcnet_session::{Config, Manifest, Session};
//! use bcnet_transport::{Connect, Time};
//!
//! let [server, own] = [1, 2].map(|n| SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, n), 22101));
//! let mut now = Time::ZERO;
//! let connect = Connect { host: server, nonce: 0x0A5F /* a random number */, password: "" };
//! let mut client = Client::connect(Default::default(), connect, ClientOptions::with_name("Kirk"), now);
//! let mut session = Session::new(Config::default(), 1701);
//!
//! let files = Manifest::placeholder();
//! let (mut payload, mut buffer, mut received) = (Vec::new(), [0; 2048], Vec::new());
//! while received.is_empty() {
//!     now = now + Duration::from_millis(10);
//!     client.handle_timeout(now);
//!     while let Some(event) = client.poll_event(&mut payload, now) {
//!         match event {
//!             Event::FileCheck(_) => client.answer_from_manifest(&files, now)?,
//!             Event::Load => client.enter(now)?,
//!             Event::Entered => client.chat("hailing frequencies open", now)?,
//!             Event::Chat { name, text, .. } => received.push(format!("{name}: {text}")),
//!             Event::Gone { state, reason } => panic!("{state}: {reason}"),
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
//! assert_eq!(received, ["Kirk: hailing frequencies open"]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Guarantees
//!
//! - No input from a server makes a client panic, grow without bound or work without bound. Malformed and impossible
//!   messages are counted, reported by [`Event::Anomaly`] at a falling rate, and have no other effect ([S-84]).
//! - Every game message gives exactly one event, in the order of arrival, except anomalies.
//! - A client is deterministic: it reads no clock and uses no random numbers. The same input gives the same output.
//!
//! [S-80]: bcnet_transport::wire::protocol#s-80
//! [S-84]: bcnet_transport::wire::protocol#s-84

mod event;
mod receive;

use std::collections::BTreeMap;
use std::net::SocketAddrV4;
use std::time::Duration;

use bcnet_transport::wire::{PeerId, Text};
use bcnet_transport::{Config, Connect, DeliveryMode, Endpoint, Engine, LeaveReason, Time, Transmit};

use crate::config::MAX_SLOTS;
use crate::game::{
    self, Created, FILE_CHECK_ROUNDS, Message, NewPlayerInGame, ObjectCreateTeam, ObjectId, StateUpdate,
    TeamChat, Text16, UnknownFlags,
};
use crate::manifest::Manifest;
use crate::message::{self as messages, Score};
pub use event::{
    ClientState, CommandError, DisconnectReason, Event, FileCheck, GameSettings, Milestone, PlayerShip,
    ServerAnomaly, ShipPosition,
};

/// Settings of a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientOptions {
    /// The player's name.
    pub name: String,
    /// The longest time from the connect request to [`Event::Entered`], including the caller's own time. With `None`,
    /// only the idle timeout of the transport applies. [`with_name`](Self::with_name) sets 60 s.
    pub handshake_timeout: Option<Duration>,
}

impl ClientOptions {
    /// Returns the default settings with this player name.
    #[must_use]
    pub fn with_name(name: &str) -> Self {
        Self { name: name.into(), handshake_timeout: Some(DEFAULT_HANDSHAKE_TIMEOUT) }
    }
}

/// A player that a client knows of.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct KnownPlayer {
    /// The player's name; empty if it is not known.
    pub name: String,
    /// True if the server lists the player as taking part ([S-81]).
    ///
    /// [S-81]: bcnet_transport::wire::protocol#s-81
    pub listed: bool,
    /// The player's score.
    pub score: Score,
    /// The player's team, in missions with teams.
    pub team: Option<u8>,
}

/// A game client without socket and clock, on any engine. See the [module](self).
#[derive(Debug)]
pub struct Client<E = Endpoint> {
    engine: E,
    name: String,
    state: ClientState,
    /// The reason of the end, once the connection has ended.
    disconnect_reason: Option<DisconnectReason>,
    /// The time by which the server must have listed this client.
    deadline: Option<Time>,
    /// The wire index of the file check request that has no answer yet.
    pending_file_check: Option<u8>,
    slot: Option<u8>,
    /// The game time that the server sent, and when it arrived.
    game_clock: Option<(f32, Time)>,
    /// The known players by peer id, at most 256.
    players: BTreeMap<u8, KnownPlayer>,
    /// The last ship of each slot, including this client's own.
    ships: [Option<PlayerShip>; MAX_SLOTS],
    /// The positions of these ships.
    positions: [Option<ShipPosition>; MAX_SLOTS],
    anomalies: u64,
    /// The buffer for the next payload; reused to avoid allocations.
    payload: Vec<u8>,
}

impl Client {
    /// Returns a client that sends a connect request to a host.
    #[must_use]
    pub fn connect(config: Config, connect: Connect<'_>, options: ClientOptions, now: Time) -> Self {
        Self::new(Endpoint::connect(config, connect, now), options, now)
    }
}

impl<E: Engine> Client<E> {
    /// Returns a client on an engine that sends a connect request.
    #[must_use]
    pub fn new(engine: E, options: ClientOptions, now: Time) -> Self {
        Self {
            engine,
            name: options.name,
            state: ClientState::Connecting,
            disconnect_reason: None,
            deadline: options.handshake_timeout.map(|timeout| now + timeout),
            pending_file_check: None,
            slot: None,
            game_clock: None,
            players: BTreeMap::new(),
            ships: [None; MAX_SLOTS],
            positions: [None; MAX_SLOTS],
            anomalies: 0,
            payload: Vec::new(),
        }
    }

    /// Handles a datagram that arrived from `from`.
    pub fn handle_datagram(&mut self, from: SocketAddrV4, bytes: &mut [u8], now: Time) {
        self.engine.handle_datagram(from, bytes, now);
    }

    /// Runs the timers that are due at `now`.
    pub fn handle_timeout(&mut self, now: Time) {
        self.engine.handle_timeout(now);
    }

    /// Returns the time at which [`handle_timeout`](Self::handle_timeout) is due.
    #[must_use]
    pub fn next_timeout(&self) -> Option<Time> {
        [self.engine.next_timeout(), self.deadline].into_iter().flatten().min()
    }

    /// Writes the next datagram into `buffer`, which should have at least 2048 bytes.
    pub fn poll_transmit(&mut self, buffer: &mut [u8], now: Time) -> Option<Transmit> {
        self.engine.poll_transmit(buffer, now)
    }

    /// Returns the next event. `payload` gets the bytes of a game message, and is empty for other events.
    pub fn poll_event(&mut self, payload: &mut Vec<u8>, now: Time) -> Option<Event> {
        while let Some(event) = self.engine.poll_event(payload) {
            if self.state == ClientState::Gone {
                self.note_boot(event);
            } else if let Some(event) = self.on_transport_event(event, payload, now) {
                return Some(event);
            }
        }
        payload.clear();
        self.deadline.filter(|deadline| *deadline <= now)?;
        self.engine.leave(now);
        Some(self.finish(DisconnectReason::HandshakeTimedOut))
    }

    /// Answers the pending file check request with the hashes of a manifest.
    ///
    /// # Errors
    /// Returns a [`CommandError`], for example if the manifest does not have that round.
    pub fn answer_from_manifest(&mut self, manifest: &Manifest, now: Time) -> Result<(), CommandError> {
        let index = self.pending_file_check.ok_or(CommandError::NoAnswer)?;
        let round = FILE_CHECK_ROUNDS.iter().position(|round| round.index == index);
        let answer = round.and_then(|round| manifest.encode_answer(round)).ok_or(CommandError::NoAnswer)?;
        self.answer_file_check(&answer, now)
    }

    /// Answers the pending file check request with these bytes, which are sent unchecked ([S-21]).
    ///
    /// A caller that does not want to answer does not call it.
    ///
    /// # Errors
    /// Returns a [`CommandError`] if no request is pending or the message cannot be queued.
    ///
    /// [S-21]: bcnet_transport::wire::protocol#s-21
    pub fn answer_file_check(&mut self, answer: &[u8], now: Time) -> Result<(), CommandError> {
        self.pending_file_check.ok_or(CommandError::NoAnswer)?;
        self.send(answer, DeliveryMode::Reliable, now)?;
        self.pending_file_check = None;
        Ok(())
    }

    /// Reports to the server that the mission is loaded, after [`Event::Load`].
    ///
    /// # Errors
    /// Returns a [`CommandError`] if the client is not in [`ClientState::Loading`] or the message cannot be queued.
    pub fn enter(&mut self, now: Time) -> Result<(), CommandError> {
        self.require_state(&[ClientState::Loading])?;
        let ready = NewPlayerInGame { flags: UnknownFlags::default() };
        self.send_message(&Message::NewPlayerInGame(ready), DeliveryMode::Reliable, now)?;
        self.state = ClientState::Entering;
        Ok(())
    }

    /// Sends a line of chat to everyone.
    ///
    /// Characters outside Latin-1 become `?`. Text beyond [`MAX_CHAT`] characters is cut off.
    ///
    /// # Errors
    /// Returns a [`CommandError`] if the client has not entered or the message cannot be queued.
    pub fn chat(&mut self, text: &str, now: Time) -> Result<(), CommandError> {
        self.require_state(&[ClientState::Lobby, ClientState::InGame])?;
        self.send_message(
            &messages::chat(self.engine.id().0, &messages::wire_text(text)),
            DeliveryMode::Reliable,
            now,
        )
    }

    /// Sends a line of chat to this client's team. See [`chat`](Self::chat).
    ///
    /// # Errors
    /// Returns a [`CommandError`] if the client has not entered or the message cannot be queued.
    pub fn team_chat(&mut self, text: &str, now: Time) -> Result<(), CommandError> {
        self.require_state(&[ClientState::Lobby, ClientState::InGame])?;
        let text = messages::wire_text(text);
        let chat = TeamChat { sender: self.engine.id().0.into(), text: Text16(&text) };
        self.send_message(&Message::TeamChat(chat), DeliveryMode::Reliable, now)
    }

    /// Creates this client's ship ([S-82]); the client is in the game afterwards.
    ///
    /// `number` is the number of the ship among the object ids of this client's slot, 0 for the first. The subsystems
    /// get the numbers after it, so the next ship needs a number above theirs.
    ///
    /// # Errors
    /// Returns a [`CommandError`] if the client has not entered or the message cannot be queued.
    ///
    /// [S-82]: bcnet_transport::wire::protocol#s-82
    pub fn create_ship(
        &mut self,
        number: u32,
        ship: game::Ship<'_>,
        now: Time,
    ) -> Result<ObjectId, CommandError> {
        self.require_state(&[ClientState::Lobby, ClientState::InGame])?;
        let slot = self.slot.ok_or(CommandError::WrongState(self.state))?;
        let (peer, object) = (self.engine.id(), ObjectId::new(slot, number));
        let (species, position) = (ship.species, ship.position);
        let object_create = ObjectCreateTeam { slot, peer: peer.0, object: Created::Ship { object, ship } };
        self.send_message(&Message::ObjectCreateTeam(object_create), DeliveryMode::Reliable, now)?;
        self.add_ship(PlayerShip { slot, peer: Some(peer), object, species }, position);
        Ok(object)
    }

    /// Sends the position of this client's ship as an unreliable message. Ten per second are usual.
    ///
    /// The time in the update must be that of the [game clock](Self::game_time).
    ///
    /// # Errors
    /// Returns a [`CommandError`] if the client has no ship or the message cannot be queued.
    pub fn send_state_update(&mut self, update: StateUpdate<'_>, now: Time) -> Result<(), CommandError> {
        self.require_state(&[ClientState::InGame])?;
        self.track(&update);
        self.send_message(&Message::StateUpdate(update), DeliveryMode::Unreliable, now)
    }

    /// Sends any game message to the server.
    ///
    /// # Errors
    /// Returns a [`CommandError`] if the message cannot be queued.
    pub fn send_message(
        &mut self,
        message: &Message<'_>,
        mode: DeliveryMode,
        now: Time,
    ) -> Result<(), CommandError> {
        self.payload.clear();
        message.write(&mut self.payload);
        Ok(self.engine.send(PeerId::HOST, &self.payload, mode, now)?)
    }

    /// Sends any bytes to the server as a game message, for example a message of a mod.
    ///
    /// # Errors
    /// Returns a [`CommandError`] if the message cannot be queued.
    pub fn send(&mut self, payload: &[u8], mode: DeliveryMode, now: Time) -> Result<(), CommandError> {
        Ok(self.engine.send(PeerId::HOST, payload, mode, now)?)
    }

    /// Changes the player's name and sends the new name to the server.
    ///
    /// # Errors
    /// Returns a [`CommandError`] before [`Event::Connected`]. The client sends the stored name when it is connected.
    pub fn rename(&mut self, name: &str, now: Time) -> Result<(), CommandError> {
        self.name = name.into();
        self.identify(now)
    }

    /// Leaves the game and starts a graceful shutdown.
    ///
    /// Keep driving the client until [`is_closed`](Self::is_closed): the disconnect notice is retransmitted until the
    /// server acknowledges it. If the server boots the client first, [`disconnect_reason`](Self::disconnect_reason)
    /// changes to that.
    pub fn leave(&mut self, now: Time) {
        self.engine.leave(now);
        self.finish(DisconnectReason::Left);
    }

    /// Returns whether the connection is closed.
    ///
    /// A connection is closed when the server has acknowledged the disconnect notice, or has timed out.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.engine.is_closed()
    }

    /// Returns why the connection has ended, or `None` while it lasts.
    #[must_use]
    pub const fn disconnect_reason(&self) -> Option<DisconnectReason> {
        self.disconnect_reason
    }

    /// Returns the state of the client.
    #[must_use]
    pub const fn state(&self) -> ClientState {
        self.state
    }

    /// Returns whether the client takes part in the game, with a ship or without.
    #[must_use]
    pub const fn has_entered(&self) -> bool {
        matches!(self.state, ClientState::Lobby | ClientState::InGame)
    }

    /// Returns the client's own peer id, [`PeerId::UNASSIGNED`] before [`Event::Connected`].
    #[must_use]
    pub fn id(&self) -> PeerId {
        self.engine.id()
    }

    /// Returns the client's own slot, known after [`Event::Settings`].
    #[must_use]
    pub const fn slot(&self) -> Option<u8> {
        self.slot
    }

    /// Returns the game time in seconds, counted on from the time in [`Event::Settings`].
    #[must_use]
    pub fn game_time(&self, now: Time) -> Option<f32> {
        self.game_clock.map(|(base, at)| base + now.since(at).as_secs_f32())
    }

    /// Returns the known players by peer id, including this client.
    pub fn players(&self) -> impl Iterator<Item = (PeerId, &KnownPlayer)> {
        self.players.iter().map(|(id, player)| (PeerId(*id), player))
    }

    /// Returns the ships in the game, by slot.
    pub fn ships(&self) -> impl Iterator<Item = &PlayerShip> {
        self.ships.iter().flatten()
    }

    /// Returns where a ship was at its last report ([S-76]), for ships in the game.
    ///
    /// The client applies the state updates of others and its own. A report that overtakes an older one counts.
    ///
    /// [S-76]: bcnet_transport::wire::protocol#s-76
    #[must_use]
    pub fn position(&self, ship: ObjectId) -> Option<ShipPosition> {
        let slot = usize::from(ship.owner()?);
        self.ships.get(slot)?.filter(|known| known.object == ship)?;
        *self.positions.get(slot)?
    }

    /// Returns the number of anomalies of the server so far.
    #[must_use]
    pub const fn anomalies(&self) -> u64 {
        self.anomalies
    }

    /// Returns the engine below, for its statistics.
    #[must_use]
    pub const fn engine(&self) -> &E {
        &self.engine
    }

    fn identify(&mut self, now: Time) -> Result<(), CommandError> {
        // A name with a NUL cannot be encoded: an empty name is sent.
        let name = Text::encode(&self.name).unwrap_or_default();
        Ok(self.engine.announce_name(Text::new(&name).unwrap_or_default(), now)?)
    }

    fn require_state(&self, states: &[ClientState]) -> Result<(), CommandError> {
        if states.contains(&self.state) { Ok(()) } else { Err(CommandError::WrongState(self.state)) }
    }

    /// Records a boot that arrives during the graceful shutdown: then the client did not leave by itself.
    fn note_boot(&mut self, event: bcnet_transport::Event) {
        if let bcnet_transport::Event::Left { peer, reason: reason @ LeaveReason::Booted(_) } = event
            && (peer == PeerId::HOST || peer == self.engine.id())
            && self.disconnect_reason == Some(DisconnectReason::Left)
        {
            self.disconnect_reason = Some(reason.into());
        }
    }

    /// Ends the client and returns the event for it. The first reason is kept.
    fn finish(&mut self, reason: DisconnectReason) -> Event {
        let state = std::mem::replace(&mut self.state, ClientState::Gone);
        self.deadline = None;
        self.disconnect_reason = self.disconnect_reason.or(Some(reason));
        Event::Gone { state, reason }
    }
}

/// The most characters in one line of chat.
pub const MAX_CHAT: usize = messages::MAX_TEXT_LEN;
/// The default time to get into the game, equal to that of the bcnet server (S-26).
const DEFAULT_HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(60);
