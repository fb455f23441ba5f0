//! The servers that a list server knows. No socket and no clock here.
//!
//! A server is listed when it has answered the challenge that its heartbeat was answered with, so that nobody can list
//! an address that is not theirs, and when the address that players would use has answered `\status\`. It stays for
//! half an hour after its last such answer.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddrV4;
use std::time::Duration;

use bcnet_session::validate;
use bcnet_transport::Time;

use super::text::{Challenge, Pairs};
use crate::query::{FIRST_PORT, STATUS};

/// A datagram to send.
pub(crate) type Outgoing = (SocketAddrV4, Vec<u8>);

/// Something that the operator may want to know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Note {
    /// A server is new in the list.
    Listed(SocketAddrV4),
    /// A server was not heard of for too long.
    Expired(SocketAddrV4),
    /// The answer to the challenge was wrong.
    WrongAnswer(SocketAddrV4),
    /// There is no room for another server.
    Full(SocketAddrV4),
}

/// The list.
#[derive(Debug, Default)]
pub(crate) struct List {
    /// Those who must prove that they are where they say, by where their heartbeat came from.
    strangers: BTreeMap<SocketAddrV4, Stranger>,
    /// The same by age, so that a flood is cheap.
    by_age: BTreeSet<(Time, SocketAddrV4)>,
    /// Those who did.
    servers: BTreeMap<SocketAddrV4, Server>,
    notes: Vec<Note>,
}

#[derive(Debug)]
struct Stranger {
    challenge: Challenge,
    /// Where players would reach it.
    listed: SocketAddrV4,
    since: Time,
}

#[derive(Debug)]
struct Server {
    listed: SocketAddrV4,
    heartbeat: Time,
    /// When it was last asked for its status.
    asked: Time,
    /// When it last told its status; `None` if never, and so it is not listed.
    seen: Option<Time>,
}

impl List {
    /// Takes a datagram. `random` must be a number that the sender cannot guess.
    pub(crate) fn handle_datagram(
        &mut self,
        from: SocketAddrV4,
        bytes: &[u8],
        random: u64,
        now: Time,
    ) -> Option<Outgoing> {
        let text = Pairs::parse(bytes)?;
        if let Some(port) = text.get("heartbeat") {
            let is_game = text.get("gamename").is_some_and(|game| game == GAME);
            return if is_game { self.heartbeat(from, listed_port(port)?, random, now) } else { None };
        }
        if let Some(answer) = text.get("validate")
            && let Some(stranger) = self.forget(from)
        {
            return self.answered(from, &stranger, answer, now);
        }
        if text.get("hostname").is_some() {
            self.status(from, now);
        }
        None
    }

    /// A server says that it lives. Returns the question for its status, or the one to prove itself.
    fn heartbeat(&mut self, from: SocketAddrV4, port: u16, random: u64, now: Time) -> Option<Outgoing> {
        let listed = SocketAddrV4::new(*from.ip(), port);
        if let Some(server) = self.servers.get_mut(&from).filter(|server| server.listed == listed) {
            server.heartbeat = now;
            let is_early = now.since(server.asked) < ASK_AGAIN;
            if !is_early {
                server.asked = now;
            }
            return (!is_early).then(|| (listed, STATUS.to_vec()));
        }
        if let Some(stranger) = self.strangers.get(&from)
            && now.since(stranger.since) < ASK_AGAIN
        {
            return None;
        }
        self.forget(from);
        if self.strangers.len() >= MAX_STRANGERS
            && let Some((_, oldest)) = self.by_age.first().copied()
        {
            self.forget(oldest);
        }
        let challenge = Challenge::new(random);
        let question = format!("\\secure\\{}", challenge.text()).into_bytes();
        self.strangers.insert(from, Stranger { challenge, listed, since: now });
        self.by_age.insert((now, from));
        Some((from, question))
    }

    /// A stranger has answered its challenge. Returns the question for its status if the answer is right.
    fn answered(
        &mut self,
        from: SocketAddrV4,
        stranger: &Stranger,
        answer: &[u8],
        now: Time,
    ) -> Option<Outgoing> {
        if validate(stranger.challenge.text().as_bytes()).as_bytes() != answer {
            self.note(Note::WrongAnswer(from));
            return None;
        }
        let neighbours = self.servers.keys().filter(|other| other.ip() == from.ip()).count();
        let is_new = !self.servers.contains_key(&from);
        if is_new && (self.servers.len() >= MAX_SERVERS || neighbours >= MAX_PER_ADDRESS) {
            self.note(Note::Full(from));
            return None;
        }
        self.servers.insert(from, Server { listed: stranger.listed, heartbeat: now, asked: now, seen: None });
        Some((stranger.listed, STATUS.to_vec()))
    }

    /// A server has told its status.
    fn status(&mut self, from: SocketAddrV4, now: Time) {
        let at_port = SocketAddrV4::new(*from.ip(), 0)..=SocketAddrV4::new(*from.ip(), u16::MAX);
        let Some((_, server)) = self.servers.range_mut(at_port).find(|(_, server)| server.listed == from)
        else {
            return;
        };
        let is_new = server.seen.is_none();
        server.seen = Some(now);
        if is_new {
            self.note(Note::Listed(from));
        }
    }

    /// Forgets who was not heard of for too long.
    pub(crate) fn expire(&mut self, now: Time) {
        while let Some((since, from)) =
            self.by_age.first().copied().filter(|(since, _)| now.since(*since) >= PATIENCE)
        {
            self.by_age.remove(&(since, from));
            self.strangers.remove(&from);
        }
        let mut gone = Vec::new();
        self.servers.retain(|_, server| {
            let last = server.seen.unwrap_or(server.heartbeat);
            let stays = now.since(last) < if server.seen.is_some() { LIFETIME } else { PATIENCE };
            if !stays && server.seen.is_some() {
                gone.push(server.listed);
            }
            stays
        });
        for address in gone {
            self.note(Note::Expired(address));
        }
    }

    /// Returns where players can play, each address once.
    pub(crate) fn listed(&self) -> BTreeSet<SocketAddrV4> {
        self.servers.values().filter(|server| server.seen.is_some()).map(|server| server.listed).collect()
    }

    /// Returns what happened since the last call.
    pub(crate) fn take_notes(&mut self) -> Vec<Note> {
        std::mem::take(&mut self.notes)
    }

    fn note(&mut self, note: Note) {
        if self.notes.len() < MAX_NOTES {
            self.notes.push(note);
        }
    }

    fn forget(&mut self, from: SocketAddrV4) -> Option<Stranger> {
        let stranger = self.strangers.remove(&from)?;
        self.by_age.remove(&(stranger.since, from));
        Some(stranger)
    }
}

/// Returns the port in a heartbeat. Stock servers say 0 and mean their usual one.
fn listed_port(text: &[u8]) -> Option<u16> {
    match std::str::from_utf8(text).ok()?.parse().ok()? {
        0 => Some(FIRST_PORT),
        port => Some(port),
    }
}

/// Returns the list in the form `cmp`: six bytes for each server.
pub(crate) fn compact(servers: &BTreeSet<SocketAddrV4>) -> Vec<u8> {
    let mut list = Vec::new();
    for server in servers {
        list.extend(server.ip().octets());
        list.extend(server.port().to_be_bytes());
    }
    list.extend(END);
    list
}

/// Returns the list as text.
pub(crate) fn plain(servers: &BTreeSet<SocketAddrV4>) -> Vec<u8> {
    let mut list: Vec<u8> =
        servers.iter().flat_map(|server| format!("\\ip\\{server}").into_bytes()).collect();
    list.extend(END);
    list
}

/// The only game that is listed.
pub(crate) const GAME: &[u8] = b"bcommander";
const END: &[u8] = b"\\final\\";
/// How long a server stays without a sign of life.
const LIFETIME: Duration = Duration::from_secs(1800);
/// How long a server may take to prove itself.
const PATIENCE: Duration = Duration::from_secs(60);
/// No server is asked more often than this.
const ASK_AGAIN: Duration = Duration::from_secs(10);
const MAX_SERVERS: usize = 4096;
const MAX_PER_ADDRESS: usize = 256;
const MAX_STRANGERS: usize = 1024;
const MAX_NOTES: usize = 64;

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    const HEARTBEAT: &[u8] = b"\\heartbeat\\22150\\gamename\\bcommander";
    const INFO: &[u8] = b"\\gamename\\bcommander\\hostname\\x\\final\\\\queryid\\1.1";

    fn at(seconds: u64) -> Time {
        Time::ZERO + Duration::from_secs(seconds)
    }

    fn address(ip: [u8; 4], port: u16) -> SocketAddrV4 {
        SocketAddrV4::new(ip.into(), port)
    }

    /// Returns the right answer to a `\secure\` question.
    fn answer(question: &[u8]) -> Vec<u8> {
        let challenge = question.strip_prefix(b"\\secure\\").expect("a challenge");
        format!("\\gamename\\bcommander\\validate\\{}\\final\\\\queryid\\1.1", validate(challenge))
            .into_bytes()
    }

    /// Brings a server up to its `\status\` question.
    fn prove(list: &mut List, from: SocketAddrV4, heartbeat: &[u8], now: Time) -> Option<Outgoing> {
        let (to, question) = list.handle_datagram(from, heartbeat, u64::from(from.port()), now)?;
        assert_eq!(to, from);
        list.handle_datagram(from, &answer(&question), 0, now)
    }

    #[test]
    fn a_server_is_listed_when_it_proved_itself_and_answers_where_players_ask() {
        let (mut list, from, players) =
            (List::default(), address([192, 0, 2, 1], 40_000), address([192, 0, 2, 1], 22150));
        assert_eq!(prove(&mut list, from, HEARTBEAT, at(0)), Some((players, STATUS.to_vec())));
        assert_eq!(list.listed().len(), 0);
        list.handle_datagram(from, INFO, 0, at(1));
        assert_eq!(list.listed().len(), 0, "another port than the one players use");
        list.handle_datagram(players, INFO, 0, at(1));
        assert_eq!(list.listed().into_iter().collect::<Vec<_>>(), [players]);
        assert_eq!(list.take_notes(), [Note::Listed(players)]);
    }

    #[test]
    fn a_wrong_answer_lists_nobody() {
        let (mut list, from) = (List::default(), address([192, 0, 2, 1], 22150));
        list.handle_datagram(from, HEARTBEAT, 7, at(0)).expect("a challenge");
        let wrong = b"\\gamename\\bcommander\\validate\\AAAAAAAA\\final\\";
        assert_eq!(list.handle_datagram(from, wrong, 0, at(0)), None);
        assert_eq!(list.take_notes(), [Note::WrongAnswer(from)]);
        list.handle_datagram(from, INFO, 0, at(0));
        assert_eq!(list.listed().len(), 0);
        let other = address([192, 0, 2, 2], 22150);
        let (_, question) = list.handle_datagram(from, HEARTBEAT, 8, at(1)).expect("another try");
        assert_eq!(list.handle_datagram(other, &answer(&question), 0, at(1)), None, "somebody else's answer");
    }

    #[test]
    fn a_server_stays_half_an_hour_after_its_last_answer() {
        let (mut list, from) = (List::default(), address([192, 0, 2, 1], 22150));
        prove(&mut list, from, HEARTBEAT, at(0)).expect("a question");
        list.handle_datagram(from, INFO, 0, at(0));
        assert_eq!(list.handle_datagram(from, HEARTBEAT, 0, at(9)), None, "asked a moment ago");
        assert_eq!(list.handle_datagram(from, HEARTBEAT, 0, at(60)), Some((from, STATUS.to_vec())));
        list.handle_datagram(from, INFO, 0, at(61));
        list.expire(at(61 + 1799));
        assert_eq!(list.listed().len(), 1);
        list.expire(at(61 + 1800));
        assert_eq!((list.listed().len(), list.take_notes().last()), (0, Some(&Note::Expired(from))));
    }

    #[test]
    fn port_zero_is_the_usual_port_and_other_games_are_not_ours() {
        let (mut list, from) = (List::default(), address([192, 0, 2, 1], 1));
        let stock = b"\\heartbeat\\0\\gamename\\bcommander\\statechanged\\1";
        assert_eq!(prove(&mut list, from, stock, at(0)).map(|(to, _)| to.port()), Some(22101));
        for text in [
            &b"\\heartbeat\\22101\\gamename\\ut"[..],
            b"\\heartbeat\\22101",
            b"\\heartbeat\\99999\\gamename\\bcommander",
            b"\\heartbeat\\",
            b"\\heartbeat",
            b"\\",
            b"",
            b"\x01\xFF",
        ] {
            assert_eq!(list.handle_datagram(address([192, 0, 2, 9], 1), text, 0, at(0)), None, "{text:?}");
        }
    }

    #[test]
    fn a_flood_takes_bounded_memory_and_leaves_the_listed_alone() {
        let (mut list, good) = (List::default(), address([192, 0, 2, 1], 22150));
        prove(&mut list, good, HEARTBEAT, at(0)).expect("a question");
        list.handle_datagram(good, INFO, 0, at(0));
        for n in 0..20_000_u32 {
            let from = SocketAddrV4::new(Ipv4Addr::from(0x0A00_0000 + n), 22101);
            list.handle_datagram(from, HEARTBEAT, u64::from(n), at(u64::from(n) / 1000));
        }
        assert_eq!(
            (list.strangers.len(), list.by_age.len(), list.servers.len()),
            (MAX_STRANGERS, MAX_STRANGERS, 1)
        );
        for port in 1..1000 {
            prove(&mut list, address([192, 0, 2, 66], port), HEARTBEAT, at(30));
        }
        assert_eq!(list.servers.len(), 1 + MAX_PER_ADDRESS);
        assert!(list.listed().contains(&good) && list.notes.len() <= MAX_NOTES);
        list.expire(at(90));
        assert_eq!(
            (list.strangers.len(), list.servers.len()),
            (0, 1),
            "who proves nothing more is forgotten"
        );
    }

    #[test]
    fn lists_have_the_form_that_clients_read() {
        let servers = BTreeSet::from([address([10, 0, 0, 1], 22101), address([192, 0, 2, 1], 258)]);
        assert_eq!(compact(&servers), b"\x0A\x00\x00\x01\x56\x55\xC0\x00\x02\x01\x01\x02\\final\\");
        assert_eq!(plain(&servers), b"\\ip\\10.0.0.1:22101\\ip\\192.0.2.1:258\\final\\");
        assert_eq!(compact(&BTreeSet::new()), END);
    }
}
