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

use crate::browser::STATUS;
use crate::network::Network;
use crate::query::validate;
use crate::share::{Crowd, Shares};
use challenge::{Challenges, PortHints};
pub use text::Challenge;
use text::Pairs;

/// A datagram to send.
pub type Outgoing = (SocketAddrV4, Vec<u8>);

/// Something that the operator may want to know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Note {
    /// A server is new in the list.
    Listed(SocketAddrV4),
    /// A server did not answer any more.
    Expired(SocketAddrV4),
    /// A server said goodbye.
    Left(SocketAddrV4),
    /// A server gave way to one of another network, because the list is full.
    GaveWay(SocketAddrV4),
    /// The answer to the challenge was wrong.
    WrongAnswer(SocketAddrV4),
    /// There is no room for another server, or its network has its share.
    Full(SocketAddrV4),
}

/// The servers that a list server knows.
#[derive(Debug)]
pub struct List {
    challenges: Challenges,
    /// Where players would reach those who were asked to prove themselves.
    hints: PortHints,
    /// Those who did, by where their heartbeats come from.
    servers: BTreeMap<SocketAddrV4, Server>,
    crowd: Crowd,
    /// How many of a network were let in lately.
    newcomers: Shares,
    notes: Vec<Note>,
}

#[derive(Debug, Clone, Copy)]
struct Server {
    /// Where players reach it.
    listed: SocketAddrV4,
    /// When it was last asked for its status.
    asked: Time,
    /// When it last told its status; `None` if never, and so it is not listed.
    seen: Option<Time>,
    /// How many questions it has not answered, one after the other.
    silences: u32,
    /// When it last said goodbye.
    parted: Option<Time>,
    /// Whether it has said goodbye and not been heard of since.
    is_leaving: bool,
}

impl Server {
    const fn new(listed: SocketAddrV4, now: Time) -> Self {
        Self { listed, asked: now, seen: None, silences: 0, parted: None, is_leaving: false }
    }

    /// Returns the question for its status. The one before counts as not answered if it was not.
    fn ask(&mut self, now: Time) -> Outgoing {
        self.silences += u32::from(!self.has_answered());
        self.asked = now;
        (self.listed, STATUS.to_vec())
    }

    fn has_answered(&self) -> bool {
        self.seen.is_some_and(|seen| seen >= self.asked)
    }

    /// Returns whether it is time to ask, or to give it up.
    fn is_due(&self, now: Time) -> bool {
        let pause = if self.seen.is_some() && !self.is_leaving { ASK_EVERY } else { ASK_AGAIN };
        now.since(self.asked) >= pause
    }

    fn is_listed(&self) -> bool {
        self.seen.is_some() && !self.is_leaving
    }

    /// Returns whether it answers, as far as is known.
    fn is_well(&self) -> bool {
        self.is_listed() && self.silences == 0
    }
}

impl List {
    /// Returns an empty list. `secret` must be a number that nobody can guess.
    #[must_use]
    pub fn new(secret: u64) -> Self {
        Self {
            challenges: Challenges::new(secret),
            hints: PortHints::new(secret),
            servers: BTreeMap::new(),
            crowd: Crowd::new(MAX_PER_ADDRESS, MAX_PER_NETWORK),
            newcomers: Shares::new(24, MAX_NEWCOMERS, NEWCOMERS_SPAN, 4096, secret),
            notes: Vec::new(),
        }
    }

    /// Takes a datagram. Returns the one to answer it with, if any.
    pub fn handle_datagram(&mut self, from: SocketAddrV4, bytes: &[u8], now: Time) -> Option<Outgoing> {
        let text = Pairs::parse(bytes)?;
        if let Some(port) = text.get("heartbeat") {
            let listed = SocketAddrV4::new(*from.ip(), listed_port(port)?);
            return match text.get("gamename") {
                Some(GAME) if text.has("final") => self.goodbye(from, now),
                Some(GAME) => self.heartbeat(from, listed, now),
                _ => None,
            };
        }
        if let Some(answer) = text.get("validate")
            && !self.servers.contains_key(&from)
        {
            return self.answered(from, answer, now);
        }
        if text.get("hostname").is_some() {
            self.status(from, now);
        }
        None
    }

    /// A server says that it lives. Returns the question for its status, or the one to prove itself.
    fn heartbeat(&mut self, from: SocketAddrV4, listed: SocketAddrV4, now: Time) -> Option<Outgoing> {
        if let Some(server) = self.servers.get_mut(&from) {
            let is_early = now.since(server.asked) < ASK_AGAIN;
            // Anybody can say in its name that it has moved; as long as it answers where it is, it has not.
            if server.listed != listed && !server.is_well() && !is_early {
                *server = Server::new(listed, now);
                return Some((listed, STATUS.to_vec()));
            }
            return (!is_early).then(|| server.ask(now));
        }
        self.hints.note(from, listed.port());
        Some((from, format!("\\secure\\{}", self.challenges.of(from, now).text()).into_bytes()))
    }

    /// A server says that it ends. It is not listed until it answers: anybody can say so in its name.
    fn goodbye(&mut self, from: SocketAddrV4, now: Time) -> Option<Outgoing> {
        let server = self.servers.get_mut(&from)?;
        if server.parted.is_some_and(|parted| now.since(parted) < ASK_AGAIN) {
            return None;
        }
        (server.parted, server.is_leaving) = (Some(now), true);
        server.asked = now;
        Some((server.listed, STATUS.to_vec()))
    }

    /// Somebody answers a challenge. Returns the question for its status if the answer is right.
    fn answered(&mut self, from: SocketAddrV4, answer: &[u8], now: Time) -> Option<Outgoing> {
        let mut challenges = self.challenges.recent(from, now);
        if !challenges.any(|challenge| validate(challenge.text().as_bytes()).as_bytes() == answer) {
            self.note(Note::WrongAnswer(from));
            return None;
        }
        if !self.newcomers.take(*from.ip(), 1, now) || !self.make_room(from) {
            self.note(Note::Full(from));
            return None;
        }
        let listed = SocketAddrV4::new(*from.ip(), self.hints.find(from).unwrap_or_else(|| from.port()));
        self.servers.insert(from, Server::new(listed, now));
        self.crowd.enter(*from.ip());
        Some((listed, STATUS.to_vec()))
    }

    /// Returns whether there is room for a server, for which another one may have given way: of its own network one
    /// that does not answer, of a full list also one of the network that has most.
    fn make_room(&mut self, newcomer: SocketAddrV4) -> bool {
        let has_share = self.crowd.has_room(*newcomer.ip());
        if has_share && self.servers.len() < MAX_SERVERS {
            return true;
        }
        let own = self.crowd.of_network(*newcomer.ip());
        let crowd = &self.crowd;
        let prefix = if crowd.of_address(*newcomer.ip()) < MAX_PER_ADDRESS { 24 } else { 32 };
        let own_network = Network::around(*newcomer.ip(), prefix);
        let may_go = |(from, server): &(&SocketAddrV4, &Server)| match has_share {
            true => !server.is_well() || crowd.of_network(*from.ip()) > own + 1,
            false => !server.is_well() && own_network.contains(*from.ip()),
        };
        let most = |(from, server): &(&SocketAddrV4, &Server)| {
            (!server.is_well(), crowd.of_network(*from.ip()), server.silences)
        };
        let gone = self.servers.iter().filter(may_go).max_by_key(most).map(|(from, _)| *from);
        let Some(gone) = gone else { return false };
        self.remove(gone, Note::GaveWay);
        self.crowd.has_room(*newcomer.ip())
    }

    /// A server has told its status.
    fn status(&mut self, from: SocketAddrV4, now: Time) {
        let at_port = SocketAddrV4::new(*from.ip(), 0)..=SocketAddrV4::new(*from.ip(), u16::MAX);
        let Some((_, server)) = self.servers.range_mut(at_port).find(|(_, server)| server.listed == from)
        else {
            return;
        };
        let is_new = !server.is_listed();
        (server.seen, server.silences, server.is_leaving) = (Some(now), 0, false);
        if is_new {
            self.note(Note::Listed(from));
        }
    }

    /// Forgets who does not answer. Returns the questions that are due.
    pub fn look_through(&mut self, now: Time) -> Vec<Outgoing> {
        let (mut questions, mut gone) = (Vec::new(), Vec::new());
        for (from, server) in self.servers.iter_mut().filter(|(_, server)| server.is_due(now)) {
            if server.is_leaving {
                gone.push((*from, Note::Left as fn(SocketAddrV4) -> Note));
                continue;
            }
            let question = server.ask(now);
            if server.silences >= MAX_SILENCES {
                gone.push((*from, Note::Expired));
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
        self.servers.values().filter(|server| server.is_listed()).map(|server| server.listed).collect()
    }

    /// Returns what happened since the last call.
    pub fn take_notes(&mut self) -> Vec<Note> {
        std::mem::take(&mut self.notes)
    }

    fn note(&mut self, note: Note) {
        if self.notes.len() < MAX_NOTES {
            self.notes.push(note);
        }
    }

    fn remove(&mut self, from: SocketAddrV4, note: fn(SocketAddrV4) -> Note) {
        let Some(server) = self.servers.remove(&from) else { return };
        self.crowd.leave(*from.ip());
        // Who was never listed is not missed.
        if server.seen.is_some() {
            self.note(note(server.listed));
        }
    }
}

/// Returns the port in a heartbeat. Stock servers say 0 and mean their usual one.
fn listed_port(text: &[u8]) -> Option<u16> {
    match std::str::from_utf8(text).ok()?.parse().ok()? {
        0 => Some(USUAL_PORT),
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
pub fn is_complete(request: &[u8]) -> bool {
    let find = |part: &[u8]| request.windows(part.len()).position(|window| window == part);
    find(b"\\list\\")
        .is_some_and(|at| request.get(at..).is_some_and(|rest| rest.windows(6).any(|end| end == b"\\final")))
}

/// A form that a list can have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// Six bytes for each server (`cmp`).
    Compact,
    /// Text.
    Plain,
}

impl Form {
    /// Returns the form in which a game asks for the list, if it has answered this challenge.
    ///
    /// # Errors
    /// Why it gets none.
    pub fn of_request(request: &[u8], challenge: &Challenge) -> Result<Self, &'static str> {
        let text = Pairs::parse(request).ok_or("no GameSpy text")?;
        if text.get("validate") != Some(validate(challenge.text().as_bytes()).as_bytes()) {
            return Err("wrong answer to the challenge");
        }
        match (text.get("gamename"), text.get("list")) {
            (Some(GAME), Some(b"cmp")) => Ok(Self::Compact),
            (Some(GAME), _) => Ok(Self::Plain),
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
                Self::Plain => list.extend(format!("\\ip\\{server}").into_bytes()),
            }
        }
        list.extend(END);
        list
    }
}

/// The only game that is listed.
const GAME: &[u8] = b"bcommander";
/// Where a stock server is.
const USUAL_PORT: u16 = 22101;
const END: &[u8] = b"\\final\\";
/// How often a listed server is asked whether it still is there.
const ASK_EVERY: Duration = Duration::from_secs(60);
/// No server is asked more often than this; one that is not listed yet, or any more, is asked as often.
const ASK_AGAIN: Duration = Duration::from_secs(10);
/// Questions without an answer, one after the other, after which a server is gone.
const MAX_SILENCES: u32 = 3;
/// The most servers of a list.
pub const MAX_SERVERS: usize = 4096;
/// Many sessions may run on one machine, and many machines in one network; nobody has the whole list.
const MAX_PER_ADDRESS: usize = 64;
const MAX_PER_NETWORK: usize = 128;
/// Of one network so many may come in this time.
const MAX_NEWCOMERS: u16 = 128;
const NEWCOMERS_SPAN: Duration = Duration::from_secs(60);
/// The most things that wait to be told.
pub const MAX_NOTES: usize = 64;

#[cfg(test)]
mod tests;
