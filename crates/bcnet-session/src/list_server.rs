//! A list server: the servers that it knows, and how it tells of them, without I/O (S-09).
//!
//! A server is listed when it has answered the challenge that its heartbeat was answered with, so that nobody can list
//! an address that is not theirs, and when the address that players would use has answered `\status\`. It is asked again
//! every minute and gone after three silences, or at once when it says goodbye.
//!
//! Nothing that a heartbeat says is kept until the challenge is answered, and nobody is sent more than it has sent: a
//! flood of forged heartbeats takes no room and hurts nobody else.

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

/// Something that the operator may want to know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ListEvent {
    /// A server is new in the list.
    Listed(SocketAddrV4),
    /// A server did not answer any more.
    Expired(SocketAddrV4),
    /// A server said goodbye.
    Left(SocketAddrV4),
    /// A server gave way to one of another network, because the list is full.
    Evicted(SocketAddrV4),
    /// The answer to the challenge was wrong.
    WrongAnswer(SocketAddrV4),
    /// There is no room for another server, or its network has its share.
    Full(SocketAddrV4),
}

/// The servers that a list server knows.
#[derive(Debug)]
pub struct ServerList {
    challenges: Challenges,
    /// Where players would reach those who were asked to prove themselves.
    port_hints: PortHints,
    /// Those who did, by where their heartbeats come from.
    servers: BTreeMap<SocketAddrV4, KnownServer>,
    address_limiter: AddressLimiter,
    /// How many of a network were let in lately.
    admission_quota: Quotas,
    events: Vec<ListEvent>,
}

#[derive(Debug, Clone, Copy)]
struct KnownServer {
    /// Where players reach it.
    game_address: SocketAddrV4,
    /// When it was last asked for its status.
    queried_at: Time,
    /// When it last told its status; `None` if never, and so it is not listed.
    status_at: Option<Time>,
    /// How many questions it has not answered, one after the other.
    unanswered: u32,
    /// When it last said goodbye.
    final_heartbeat_at: Option<Time>,
    /// Whether it has said goodbye and not been heard of since.
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

    /// Returns the question for its status. The one before counts as not answered if it was not.
    fn query_status(&mut self, now: Time) -> OutgoingDatagram {
        self.unanswered += u32::from(!self.has_answered());
        self.queried_at = now;
        (self.game_address, STATUS_QUERY.to_vec())
    }

    fn has_answered(&self) -> bool {
        self.status_at.is_some_and(|seen| seen >= self.queried_at)
    }

    /// Returns whether it is time to ask, or to give it up.
    fn is_due(&self, now: Time) -> bool {
        let pause =
            if self.status_at.is_some() && !self.is_leaving { STATUS_INTERVAL } else { MIN_STATUS_INTERVAL };
        now.since(self.queried_at) >= pause
    }

    fn is_listed(&self) -> bool {
        self.status_at.is_some() && !self.is_leaving
    }

    /// Returns whether it answers, as far as is known.
    fn is_responsive(&self) -> bool {
        self.is_listed() && self.unanswered == 0
    }
}

impl ServerList {
    /// Returns an empty list. `secret` must be a number that nobody can guess.
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

    /// Takes a datagram. Returns the one to answer it with, if any.
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

    /// A server says that it lives. Returns the question for its status, or the one to prove itself.
    fn on_heartbeat(
        &mut self,
        from: SocketAddrV4,
        listed: SocketAddrV4,
        now: Time,
    ) -> Option<OutgoingDatagram> {
        if let Some(server) = self.servers.get_mut(&from) {
            let is_early = now.since(server.queried_at) < MIN_STATUS_INTERVAL;
            // Anybody can say in its name that it has moved; as long as it answers where it is, it has not.
            if server.game_address != listed && !server.is_responsive() && !is_early {
                *server = KnownServer::new(listed, now);
                return Some((listed, STATUS_QUERY.to_vec()));
            }
            return (!is_early).then(|| server.query_status(now));
        }
        self.port_hints.record(from, listed.port());
        Some((from, format!("\\secure\\{}", self.challenges.current(from, now).text()).into_bytes()))
    }

    /// A server says that it ends. It is not listed until it answers: anybody can say so in its name.
    fn on_final_heartbeat(&mut self, from: SocketAddrV4, now: Time) -> Option<OutgoingDatagram> {
        let server = self.servers.get_mut(&from)?;
        if server.final_heartbeat_at.is_some_and(|parted| now.since(parted) < MIN_STATUS_INTERVAL) {
            return None;
        }
        (server.final_heartbeat_at, server.is_leaving) = (Some(now), true);
        server.queried_at = now;
        Some((server.game_address, STATUS_QUERY.to_vec()))
    }

    /// Somebody answers a challenge. Returns the question for its status if the answer is right.
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

    /// Returns whether there is room for a server, for which another one may have given way: of its own network one
    /// that does not answer, of a full list also one of the network that has most.
    fn evict_for(&mut self, newcomer: SocketAddrV4) -> bool {
        let is_within_limit = self.address_limiter.has_capacity(*newcomer.ip());
        if is_within_limit && self.servers.len() < MAX_SERVERS {
            return true;
        }
        let own = self.address_limiter.count_of_network(*newcomer.ip());
        let limiter = &self.address_limiter;
        let prefix = if limiter.count_of_address(*newcomer.ip()) < MAX_PER_ADDRESS { 24 } else { 32 };
        let own_network = Network::containing(*newcomer.ip(), prefix);
        let is_evictable = |(from, server): &(&SocketAddrV4, &KnownServer)| match is_within_limit {
            true => !server.is_responsive() || limiter.count_of_network(*from.ip()) > own + 1,
            false => !server.is_responsive() && own_network.contains(*from.ip()),
        };
        let eviction_order = |(from, server): &(&SocketAddrV4, &KnownServer)| {
            (!server.is_responsive(), limiter.count_of_network(*from.ip()), server.unanswered)
        };
        let evicted =
            self.servers.iter().filter(is_evictable).max_by_key(eviction_order).map(|(from, _)| *from);
        let Some(gone) = evicted else { return false };
        self.remove(gone, ListEvent::Evicted);
        self.address_limiter.has_capacity(*newcomer.ip())
    }

    /// A server has told its status.
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

    /// Forgets who does not answer. Returns the questions that are due.
    pub fn poll_servers(&mut self, now: Time) -> Vec<OutgoingDatagram> {
        let (mut questions, mut gone) = (Vec::new(), Vec::new());
        for (from, server) in self.servers.iter_mut().filter(|(_, server)| server.is_due(now)) {
            if server.is_leaving {
                gone.push((*from, ListEvent::Left as fn(SocketAddrV4) -> ListEvent));
                continue;
            }
            let question = server.query_status(now);
            if server.unanswered >= MAX_UNANSWERED {
                gone.push((*from, ListEvent::Expired));
            } else {
                questions.push(question);
            }
        }
        for (from, note) in gone {
            self.remove(from, note);
        }
        questions
    }

    /// Returns where players can play, each address once.
    #[must_use]
    pub fn listed(&self) -> BTreeSet<SocketAddrV4> {
        self.servers.values().filter(|server| server.is_listed()).map(|server| server.game_address).collect()
    }

    /// Returns what happened since the last call.
    pub fn take_events(&mut self) -> Vec<ListEvent> {
        std::mem::take(&mut self.events)
    }

    fn push_event(&mut self, note: ListEvent) {
        if self.events.len() < MAX_LIST_EVENTS {
            self.events.push(note);
        }
    }

    fn remove(&mut self, from: SocketAddrV4, note: fn(SocketAddrV4) -> ListEvent) {
        let Some(server) = self.servers.remove(&from) else { return };
        self.address_limiter.remove(*from.ip());
        // Who was never listed is not missed.
        if server.status_at.is_some() {
            self.push_event(note(server.game_address));
        }
    }
}

/// Returns the port in a heartbeat. Stock servers say 0 and mean their usual one.
fn advertised_port(text: &[u8]) -> Option<u16> {
    match std::str::from_utf8(text).ok()?.parse().ok()? {
        0 => Some(DEFAULT_PORT),
        port => Some(port),
    }
}

/// Returns what a list server says to a game that connects by TCP.
#[must_use]
pub fn greeting(challenge: &Challenge) -> Vec<u8> {
    format!("\\basic\\\\secure\\{}", challenge.text()).into_bytes()
}

/// Returns whether a game has asked for a list: `\list\…\final\`.
#[must_use]
pub fn is_complete_request(request: &[u8]) -> bool {
    let find = |part: &[u8]| request.windows(part.len()).position(|window| window == part);
    find(b"\\list\\")
        .is_some_and(|at| request.get(at..).is_some_and(|rest| rest.windows(6).any(|end| end == b"\\final")))
}

/// A form that a list can have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ListFormat {
    /// Six bytes for each server (`cmp`).
    Compact,
    /// Text.
    Text,
}

impl ListFormat {
    /// Returns the form in which a game asks for the list, if it has answered this challenge.
    ///
    /// # Errors
    /// Why it gets none.
    pub fn from_request(request: &[u8], challenge: &Challenge) -> Result<Self, &'static str> {
        let text = GameSpyPairs::parse(request).ok_or("no GameSpy text")?;
        if text.get("validate") != Some(challenge_response(challenge.text().as_bytes()).as_bytes()) {
            return Err("wrong answer to the challenge");
        }
        match (text.get("gamename"), text.get("list")) {
            (Some(GAME_NAME), Some(b"cmp")) => Ok(Self::Compact),
            (Some(GAME_NAME), _) => Ok(Self::Text),
            _ => Err("another game"),
        }
    }

    /// Returns the list in this form.
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
/// Where a stock server is.
const DEFAULT_PORT: u16 = 22101;
const LIST_END: &[u8] = b"\\final\\";
/// How often a listed server is asked whether it still is there.
const STATUS_INTERVAL: Duration = Duration::from_secs(60);
/// No server is asked more often than this; one that is not listed yet, or any more, is asked as often.
const MIN_STATUS_INTERVAL: Duration = Duration::from_secs(10);
/// Questions without an answer, one after the other, after which a server is gone.
const MAX_UNANSWERED: u32 = 3;
/// The most servers of a list.
pub const MAX_SERVERS: usize = 4096;
/// Many sessions may run on one machine, and many machines in one network; nobody has the whole list.
const MAX_PER_ADDRESS: usize = 64;
const MAX_PER_NETWORK: usize = 128;
/// Of one network so many may come in this time.
const MAX_ADMISSIONS: u16 = 128;
const ADMISSION_SPAN: Duration = Duration::from_secs(60);
/// The most things that wait to be told.
pub const MAX_LIST_EVENTS: usize = 64;

#[cfg(test)]
mod tests;
