//! A list server without I/O: it keeps a list of game servers and sends it to players ([S-09]).
//!
//! A server is listed after two proofs. First it answers the challenge that it gets for its heartbeat, so no one can
//! list the address of others. Then the address for players answers `\status\`. A listed server gets this query every
//! minute. It is removed after three unanswered queries. After a final heartbeat, it is not listed until it answers a
//! query.
//!
//! No data of a heartbeat is stored until the challenge is answered, except for the port in a table of fixed size. A
//! challenge is shorter than a heartbeat. So a flood of spoofed heartbeats takes no memory and floods no other address.
//!
//! [S-09]: bcnet_transport::wire::protocol#s-09

mod challenge;
mod text;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddrV4;
use std::time::Duration;

use bcnet_transport::Time;

use crate::browser::STATUS_QUERY;
use crate::network::Network;
use crate::query::challenge_response;
use crate::quota::{AddressLimiter, Quotas};
use challenge::{Challenges, PortHints};
pub use text::Challenge;
use text::GameSpyPairs;

/// A datagram to send.
pub type OutgoingDatagram = (SocketAddrV4, Vec<u8>);

/// An event for the operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ListEvent {
    /// A server is new in the list.
    Listed(SocketAddrV4),
    /// A server has stopped answering.
    Expired(SocketAddrV4),
    /// A server has sent its final heartbeat.
    Left(SocketAddrV4),
    /// A server was removed for one of another network, because the list is full.
    Evicted(SocketAddrV4),
    /// A server has answered the challenge wrongly.
    WrongAnswer(SocketAddrV4),
    /// There is no place for another server, in the list or for its network.
    Full(SocketAddrV4),
}

/// The servers that a list server knows.
#[derive(Debug)]
pub struct ServerList {
    challenges: Challenges,
    /// The ports for players of servers that have not answered their challenge yet.
    port_hints: PortHints,
    /// The servers that have answered their challenge, by the address of their heartbeats.
    servers: BTreeMap<SocketAddrV4, KnownServer>,
    address_limiter: AddressLimiter,
    /// The number of servers of each network that were admitted lately.
    admission_quota: Quotas,
    events: Vec<ListEvent>,
}

#[derive(Debug, Clone, Copy)]
struct KnownServer {
    /// The address for players.
    game_address: SocketAddrV4,
    /// The time of the last status query.
    queried_at: Time,
    /// The time of the last status reply. With `None`, the server is not listed.
    status_at: Option<Time>,
    /// The number of consecutive unanswered queries.
    unanswered: u32,
    /// The time of the last final heartbeat.
    final_heartbeat_at: Option<Time>,
    /// True if the server has sent a final heartbeat, and no status reply since then.
    is_leaving: bool,
}

impl KnownServer {
    const fn new(listed: SocketAddrV4, now: Time) -> Self {
        Self {
            game_address: listed,
            queried_at: now,
            status_at: None,
            unanswered: 0,
            final_heartbeat_at: None,
            is_leaving: false,
        }
    }

    /// Returns a status query. Counts the query before as unanswered if there was no reply.
    fn query_status(&mut self, now: Time) -> OutgoingDatagram {
        self.unanswered += u32::from(!self.has_answered());
        self.queried_at = now;
        (self.game_address, STATUS_QUERY.to_vec())
    }

    fn has_answered(&self) -> bool {
        self.status_at.is_some_and(|seen| seen >= self.queried_at)
    }

    /// Returns whether a query is due, or the removal.
    fn is_due(&self, now: Time) -> bool {
        let interval =
            if self.status_at.is_some() && !self.is_leaving { STATUS_INTERVAL } else { MIN_STATUS_INTERVAL };
        now.since(self.queried_at) >= interval
    }

    fn is_listed(&self) -> bool {
        self.status_at.is_some() && !self.is_leaving
    }

    /// Returns whether the server has answered the last queries.
    fn is_responsive(&self) -> bool {
        self.is_listed() && self.unanswered == 0
    }
}

impl ServerList {
    /// Returns an empty list. `secret` must be unpredictable.
    #[must_use]
    pub fn new(secret: u64) -> Self {
        Self {
            challenges: Challenges::new(secret),
            port_hints: PortHints::new(secret),
            servers: BTreeMap::new(),
            address_limiter: AddressLimiter::new(MAX_PER_ADDRESS, MAX_PER_NETWORK),
            admission_quota: Quotas::new(24, MAX_ADMISSIONS, ADMISSION_SPAN, 4096, secret),
            events: Vec::new(),
        }
    }

    /// Handles a datagram. Returns the reply, if any.
    pub fn handle_datagram(
        &mut self,
        from: SocketAddrV4,
        bytes: &[u8],
        now: Time,
    ) -> Option<OutgoingDatagram> {
        let text = GameSpyPairs::parse(bytes)?;
        if let Some(port) = text.get("heartbeat") {
            let listed = SocketAddrV4::new(*from.ip(), advertised_port(port)?);
            return match text.get("gamename") {
                Some(GAME_NAME) if text.has("final") => self.on_final_heartbeat(from, now),
                Some(GAME_NAME) => self.on_heartbeat(from, listed, now),
                _ => None,
            };
        }
        if let Some(answer) = text.get("validate")
            && !self.servers.contains_key(&from)
        {
            return self.on_challenge_answer(from, answer, now);
        }
        if text.get("hostname").is_some() {
            self.on_status(from, now);
        }
        None
    }

    /// Handles a heartbeat. Returns a status query, or a challenge for an unknown server.
    fn on_heartbeat(
        &mut self,
        from: SocketAddrV4,
        listed: SocketAddrV4,
        now: Time,
    ) -> Option<OutgoingDatagram> {
        if let Some(server) = self.servers.get_mut(&from) {
            let is_early = now.since(server.queried_at) < MIN_STATUS_INTERVAL;
            // The heartbeat may be spoofed. A server that still answers at its old address has not moved.
            if server.game_address != listed && !server.is_responsive() && !is_early {
                *server = KnownServer::new(listed, now);
                return Some((listed, STATUS_QUERY.to_vec()));
            }
            return (!is_early).then(|| server.query_status(now));
        }
        self.port_hints.record(from, listed.port());
        Some((from, format!("\\secure\\{}", self.challenges.current(from, now).text()).into_bytes()))
    }

    /// Handles a final heartbeat. The server is not listed until it answers: the heartbeat may be spoofed.
    fn on_final_heartbeat(&mut self, from: SocketAddrV4, now: Time) -> Option<OutgoingDatagram> {
        let server = self.servers.get_mut(&from)?;
        if server.final_heartbeat_at.is_some_and(|sent| now.since(sent) < MIN_STATUS_INTERVAL) {
            return None;
        }
        (server.final_heartbeat_at, server.is_leaving) = (Some(now), true);
        server.queried_at = now;
        Some((server.game_address, STATUS_QUERY.to_vec()))
    }

    /// Handles the answer to a challenge. Returns a status query if the answer is right.
    fn on_challenge_answer(
        &mut self,
        from: SocketAddrV4,
        answer: &[u8],
        now: Time,
    ) -> Option<OutgoingDatagram> {
        let mut challenges = self.challenges.recent(from, now);
        if !challenges.any(|challenge| challenge_response(challenge.text().as_bytes()).as_bytes() == answer) {
            self.push_event(ListEvent::WrongAnswer(from));
            return None;
        }
        if !self.admission_quota.take(*from.ip(), 1, now) || !self.evict_for(from) {
            self.push_event(ListEvent::Full(from));
            return None;
        }
        let listed = SocketAddrV4::new(*from.ip(), self.port_hints.find(from).unwrap_or_else(|| from.port()));
        self.servers.insert(from, KnownServer::new(listed, now));
        self.address_limiter.add(*from.ip());
        Some((listed, STATUS_QUERY.to_vec()))
    }

    /// Returns whether there is a place for a server. Evicts another server if necessary.
    ///
    /// If the network of the new server is at its limit, a server of that network that does not answer is evicted. If
    /// the list is full, a server of the largest network can be evicted too.
    fn evict_for(&mut self, new_server: SocketAddrV4) -> bool {
        let is_within_limit = self.address_limiter.has_capacity(*new_server.ip());
        if is_within_limit && self.servers.len() < MAX_SERVERS {
            return true;
        }
        let own = self.address_limiter.count_of_network(*new_server.ip());
        let limiter = &self.address_limiter;
        let prefix = if limiter.count_of_address(*new_server.ip()) < MAX_PER_ADDRESS { 24 } else { 32 };
        let own_network = Network::containing(*new_server.ip(), prefix);
        let is_evictable = |(from, server): &(&SocketAddrV4, &KnownServer)| match is_within_limit {
            true => !server.is_responsive() || limiter.count_of_network(*from.ip()) > own + 1,
            false => !server.is_responsive() && own_network.contains(*from.ip()),
        };
        let eviction_order = |(from, server): &(&SocketAddrV4, &KnownServer)| {
            (!server.is_responsive(), limiter.count_of_network(*from.ip()), server.unanswered)
        };
        let evicted =
            self.servers.iter().filter(is_evictable).max_by_key(eviction_order).map(|(from, _)| *from);
        let Some(evicted) = evicted else { return false };
        self.remove(evicted, ListEvent::Evicted);
        self.address_limiter.has_capacity(*new_server.ip())
    }

    /// Handles a status reply.
    fn on_status(&mut self, from: SocketAddrV4, now: Time) {
        let at_port = SocketAddrV4::new(*from.ip(), 0)..=SocketAddrV4::new(*from.ip(), u16::MAX);
        let Some((_, server)) =
            self.servers.range_mut(at_port).find(|(_, server)| server.game_address == from)
        else {
            return;
        };
        let is_new = !server.is_listed();
        (server.status_at, server.unanswered, server.is_leaving) = (Some(now), 0, false);
        if is_new {
            self.push_event(ListEvent::Listed(from));
        }
    }

    /// Removes servers that do not answer. Returns the queries that are due.
    pub fn poll_servers(&mut self, now: Time) -> Vec<OutgoingDatagram> {
        let (mut queries, mut gone) = (Vec::new(), Vec::new());
        for (from, server) in self.servers.iter_mut().filter(|(_, server)| server.is_due(now)) {
            if server.is_leaving {
                gone.push((*from, ListEvent::Left as fn(SocketAddrV4) -> ListEvent));
                continue;
            }
            let query = server.query_status(now);
            if server.unanswered >= MAX_UNANSWERED {
                gone.push((*from, ListEvent::Expired));
            } else {
                queries.push(query);
            }
        }
        for (from, event) in gone {
            self.remove(from, event);
        }
        queries
    }

    /// Returns the addresses for players of all listed servers.
    #[must_use]
    pub fn listed(&self) -> BTreeSet<SocketAddrV4> {
        self.servers.values().filter(|server| server.is_listed()).map(|server| server.game_address).collect()
    }

    /// Returns the events since the last call.
    pub fn take_events(&mut self) -> Vec<ListEvent> {
        std::mem::take(&mut self.events)
    }

    fn push_event(&mut self, event: ListEvent) {
        if self.events.len() < MAX_LIST_EVENTS {
            self.events.push(event);
        }
    }

    fn remove(&mut self, from: SocketAddrV4, event: fn(SocketAddrV4) -> ListEvent) {
        let Some(server) = self.servers.remove(&from) else { return };
        self.address_limiter.remove(*from.ip());
        // A server that was never listed is removed without an event.
        if server.status_at.is_some() {
            self.push_event(event(server.game_address));
        }
    }
}

/// Returns the port in a heartbeat. Stock servers send 0, which means their default port.
fn advertised_port(text: &[u8]) -> Option<u16> {
    match std::str::from_utf8(text).ok()?.parse().ok()? {
        0 => Some(DEFAULT_PORT),
        port => Some(port),
    }
}

/// Returns the first message of a list server to a game that connects by TCP.
#[must_use]
pub fn greeting(challenge: &Challenge) -> Vec<u8> {
    format!("\\basic\\\\secure\\{}", challenge.text()).into_bytes()
}

/// Returns whether a request for a list is complete: `\list\…\final\`.
#[must_use]
pub fn is_complete_request(request: &[u8]) -> bool {
    let find = |part: &[u8]| request.windows(part.len()).position(|window| window == part);
    find(b"\\list\\")
        .is_some_and(|at| request.get(at..).is_some_and(|rest| rest.windows(6).any(|end| end == b"\\final")))
}

/// The format of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ListFormat {
    /// Six bytes for each server (`cmp`).
    Compact,
    /// Text.
    Text,
}

impl ListFormat {
    /// Returns the format that a game requests, if it has answered this challenge.
    ///
    /// # Errors
    /// Returns the reason why the game gets no list.
    pub fn from_request(request: &[u8], challenge: &Challenge) -> Result<Self, &'static str> {
        let text = GameSpyPairs::parse(request).ok_or("the request is not GameSpy text")?;
        if text.get("validate") != Some(challenge_response(challenge.text().as_bytes()).as_bytes()) {
            return Err("the answer to the challenge is wrong");
        }
        match (text.get("gamename"), text.get("list")) {
            (Some(GAME_NAME), Some(b"cmp")) => Ok(Self::Compact),
            (Some(GAME_NAME), _) => Ok(Self::Text),
            _ => Err("the request is for another game"),
        }
    }

    /// Returns the list in this format.
    #[must_use]
    pub fn write(self, servers: &BTreeSet<SocketAddrV4>) -> Vec<u8> {
        let mut list = Vec::new();
        for server in servers {
            match self {
                Self::Compact => {
                    list.extend(server.ip().octets());
                    list.extend(server.port().to_be_bytes());
                }
                Self::Text => list.extend(format!("\\ip\\{server}").into_bytes()),
            }
        }
        list.extend(LIST_END);
        list
    }
}

/// The only game that is listed.
const GAME_NAME: &[u8] = b"bcommander";
/// The default port of a stock server.
const DEFAULT_PORT: u16 = 22101;
const LIST_END: &[u8] = b"\\final\\";
/// The interval of status queries to a listed server.
const STATUS_INTERVAL: Duration = Duration::from_secs(60);
/// The shortest interval of status queries to a server, and the interval while it is not listed.
const MIN_STATUS_INTERVAL: Duration = Duration::from_secs(10);
/// A server is removed after this number of consecutive unanswered queries.
const MAX_UNANSWERED: u32 = 3;
/// The most servers in a list.
pub const MAX_SERVERS: usize = 4096;
/// Many sessions may run on one machine, and many machines in one network. No network can fill the list.
const MAX_PER_ADDRESS: usize = 64;
const MAX_PER_NETWORK: usize = 128;
/// The most servers of one network that are admitted in [`ADMISSION_SPAN`].
const MAX_ADMISSIONS: u16 = 128;
const ADMISSION_SPAN: Duration = Duration::from_secs(60);
/// The most events that wait for [`ServerList::take_events`].
pub const MAX_LIST_EVENTS: usize = 64;

#[cfg(test)]
mod tests;
