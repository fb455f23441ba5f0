//! Who talks through the proxy, and from which source address toward the server.

use std::collections::{HashMap, VecDeque};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::Duration;

use bcnet_session::{Bucket, Network, any_contains};
use bcnet_transport::wire::{Body, BootReason, Control, Message, PeerId, Seq, Writer};
use bcnet_transport::{Deadlines, Time};

use crate::admission::{Admission, Passage, per_second, take, write_id};
use crate::client::Client;
use crate::heal::{Bytes, Direction, Healed, Healer, Inbound};
use crate::output::{Event, Leg, Output, Player, Refusal, Source};

/// What a proxy is to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// Whether conversations are healed; otherwise every byte passes as it came.
    pub heal: bool,
    /// Addresses of this machine, one for each player toward the server. Without any, one player can be served.
    pub sources: Vec<Ipv4Addr>,
    /// Networks whose datagrams are turned away.
    pub bans: Vec<Network>,
    /// How many datagrams a second a client may send, and how many clients a second one address may bring. As many may
    /// come at once. 0 is any number.
    pub rate: u32,
    /// Whether datagrams of players that are not well formed are dropped rather than passed on.
    pub drop_malformed: bool,
    /// After how long without a word in either direction a player is forgotten.
    pub idle: Duration,
    /// How many browsers may wait for an answer at the same time.
    pub browsers: usize,
    /// How many questions of browsers pass per second; beyond that who asks again (S-07).
    pub query_rate: u32,
    /// Networks to which no limit by address applies but that of sources.
    pub trusted: Vec<Network>,
    /// A number that nobody can guess.
    pub seed: u64,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            heal: false,
            sources: Vec::new(),
            bans: Vec::new(),
            rate: 0,
            drop_malformed: false,
            idle: Duration::from_secs(60),
            browsers: 256,
            query_rate: 100,
            trusted: vec![Network::around(Ipv4Addr::LOCALHOST, 8)],
            seed: 0,
        }
    }
}

/// A proxy without its sockets.
#[derive(Debug)]
pub struct Proxy {
    config: Config,
    clients: Vec<Option<Client>>,
    /// What was healed for those who have left.
    healed: [Healed; 2],
    /// Players and browsers have sources of their own, so one address may be both.
    by_address: HashMap<(SocketAddrV4, bool), u32>,
    admission: Admission,
    free: Vec<u32>,
    /// Source addresses in the order in which they became free: a server remembers the last player of one for a while.
    pool: VecDeque<Option<Ipv4Addr>>,
    expiry: Deadlines,
    /// When the healer of each client has something to send.
    repeats: Deadlines,
    events: VecDeque<Event>,
    refused: [u64; Refusal::ALL.len()],
    /// What the proxy says itself.
    own: Vec<u8>,
}

impl Proxy {
    /// Returns a proxy that knows nobody yet.
    #[must_use]
    pub fn new(config: Config) -> Self {
        let pool = if config.sources.is_empty() {
            VecDeque::from([None])
        } else {
            config.sources.iter().copied().map(Some).collect()
        };
        Self {
            admission: Admission::new(config.seed),
            config,
            clients: Vec::new(),
            healed: Default::default(),
            by_address: HashMap::new(),
            free: Vec::new(),
            pool,
            expiry: Deadlines::new(),
            repeats: Deadlines::new(),
            events: VecDeque::new(),
            refused: [0; Refusal::ALL.len()],
            own: vec![0; 64],
        }
    }

    /// Returns the players, in the order of their sources' numbers.
    pub fn players(&self) -> impl Iterator<Item = Player> {
        self.clients.iter().flatten().filter(|client| client.player).map(|client| Player {
            address: client.address,
            source: client.source,
            up: client.healed(Direction::Up),
            down: client.healed(Direction::Down),
        })
    }

    /// Returns what was healed in one direction for everyone so far.
    #[must_use]
    pub fn healed(&self, direction: Direction) -> Healed {
        let [up, down] = self.healed;
        let left = match direction {
            Direction::Up => up,
            Direction::Down => down,
        };
        self.clients.iter().flatten().fold(left, |sum, client| sum + client.healed(direction))
    }

    /// Returns whose source this is.
    #[must_use]
    pub fn client(&self, source: u32) -> Option<SocketAddrV4> {
        self.clients.get(source as usize).and_then(Option::as_ref).map(|client| client.address)
    }

    /// Everyone's sources, those of browsers too.
    pub fn sources(&self) -> impl Iterator<Item = (SocketAddrV4, Source)> {
        self.clients.iter().flatten().map(|client| (client.address, client.source))
    }

    /// Forgets whose source this is, since it cannot be had: who asks to be let in again gets one anew.
    pub fn forget(&mut self, source: u32) {
        self.close(source as usize);
    }

    /// Returns how many datagrams were turned away for this reason.
    #[must_use]
    pub fn refused(&self, refusal: Refusal) -> u64 {
        self.refused.get(refusal as usize).copied().unwrap_or(0)
    }

    /// Turns other networks away from now on. Players from there are forgotten. `false` if they are no others.
    pub fn set_bans(&mut self, bans: Vec<Network>) -> bool {
        if self.config.bans == bans {
            return false;
        }
        self.config.bans = bans;
        for number in 0..self.clients.len() {
            let address =
                self.clients.get(number).and_then(Option::as_ref).map(|client| *client.address.ip());
            if address.is_some_and(|address| any_contains(&self.config.bans, address)) {
                self.close(number);
            }
        }
        true
    }

    /// These list servers were named by the host: their questions always pass (S-07).
    pub fn set_list_servers(&mut self, addresses: Vec<Ipv4Addr>) {
        self.admission.set_list_servers(addresses);
    }

    /// Returns whether a question that the caller answers itself may be answered, by so many bytes.
    pub fn may_answer(&mut self, from: Ipv4Addr, question: &[u8], bytes: usize, now: Time) -> bool {
        let asked = self.admission.ask(&self.config, from, question, now);
        asked.is_ok() && self.admission.may_hear(&self.config, from, bytes, now)
    }

    /// Returns what happened, in order.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Returns when [`handle_timeout`](Self::handle_timeout) is due, or [`poll_transmit`](Self::poll_transmit).
    #[must_use]
    pub fn next_timeout(&self) -> Option<Time> {
        self.expiry.first().into_iter().chain(self.repeats.first()).map(|(due, _)| due).min()
    }

    /// Returns what the healers send by themselves, one datagram at a time.
    pub fn poll_transmit(&mut self, now: Time) -> Option<(Leg, Bytes<'_>)> {
        let (number, direction) = loop {
            let (_, number) = self.repeats.first().filter(|(due, _)| *due <= now)?;
            let healer = self.healer(number);
            let (direction, next) =
                healer.map_or((None, None), |healer| (healer.write_repeat(now), healer.next_timeout()));
            self.repeats.set(number, next);
            if let Some(direction) = direction {
                break (number, direction);
            }
        };
        let leg = match direction {
            Direction::Up => Leg::Server(number),
            Direction::Down => Leg::Client(self.client(number)?),
        };
        Some((leg, self.healer(number)?.written()))
    }

    fn healer(&mut self, number: u32) -> Option<&mut Healer> {
        self.clients.get_mut(number as usize)?.as_mut()?.healer.as_deref_mut()
    }

    /// Forgets who has been silent for too long.
    pub fn handle_timeout(&mut self, now: Time) {
        while let Some((_, number)) = self.expiry.first().filter(|(due, _)| *due <= now) {
            let index = number as usize;
            let client = self.clients.get(index).and_then(Option::as_ref);
            match client.map(|client| self.due(client)) {
                Some(due) if due > now => self.expiry.set(number, Some(due)),
                _ => self.close(index),
            }
        }
    }

    /// A datagram of a client came to the listening socket.
    pub fn handle_client<'a>(
        &'a mut self,
        from: SocketAddrV4,
        inbound: Inbound<'a>,
        now: Time,
    ) -> Output<'a> {
        match self.accept(from, inbound, now) {
            Ok(number) => self.pass(number, Direction::Up, inbound, now),
            Err(refusal) => self.refuse(from, inbound, refusal),
        }
    }

    /// A datagram came from the server to a source.
    pub fn handle_server<'a>(&'a mut self, source: u32, inbound: Inbound<'a>, now: Time) -> Output<'a> {
        self.pass(source, Direction::Down, inbound, now)
    }

    fn pass<'a>(
        &'a mut self,
        number: u32,
        direction: Direction,
        inbound: Inbound<'a>,
        now: Time,
    ) -> Output<'a> {
        let Some(client) = self.clients.get_mut(number as usize).and_then(Option::as_mut) else {
            return Output::default();
        };
        let passage = match direction {
            Direction::Up => Passage::Whole,
            Direction::Down if client.player => self.admission.passage(&self.config, client, inbound, now),
            Direction::Down => {
                let (to, bytes) = (*client.address.ip(), inbound.wire.len());
                let may_hear = self.admission.may_hear(&self.config, to, bytes, now);
                if may_hear { Passage::Whole } else { Passage::Nothing }
            }
        };
        if direction == Direction::Up && client.proves_itself(inbound) {
            self.events.push_back(Event::Proved { client: client.address, source: client.source });
            if let Some(healer) = &mut client.healer {
                healer.allow_repeats();
            }
        }
        if client.note(direction, inbound, now) {
            self.expiry.set(number, Some(now + GOODBYE));
        }
        match passage {
            Passage::Whole => {}
            Passage::Id => {
                let id = write_id(&mut self.own, inbound);
                let forward = id.map(|id| (Leg::Client(client.address), Bytes::Plain(id)));
                return Output { forward, ..Output::default() };
            }
            Passage::Nothing => {
                let refusal = if client.player { Refusal::Unproved } else { Refusal::Queries };
                count(&mut self.refused, refusal);
                return Output { refusal: Some(refusal), ..Output::default() };
            }
        }
        let (to_client, to_server) = (Leg::Client(client.address), Leg::Server(number));
        let (ahead, back) = match direction {
            Direction::Up => (to_server, to_client),
            Direction::Down => (to_client, to_server),
        };
        let Some(healer) = client.healer.as_mut() else {
            return Output { forward: Some((ahead, Bytes::Wire(inbound.wire))), ..Output::default() };
        };
        let passed = healer.pass(direction, inbound, now);
        self.repeats.set(number, passed.timeout);
        Output {
            forward: passed.forward.map(|bytes| (ahead, bytes)),
            answer: passed.answer.map(|bytes| (back, bytes)),
            refusal: None,
        }
    }

    /// Returns the conversation that a datagram of a client belongs to; a new one if it may begin one.
    fn accept(&mut self, from: SocketAddrV4, inbound: Inbound<'_>, now: Time) -> Result<u32, Refusal> {
        if any_contains(&self.config.bans, *from.ip()) {
            return Err(Refusal::Banned);
        }
        let player = !inbound.is_text();
        if !player {
            self.admission.ask(&self.config, *from.ip(), inbound.wire, now)?;
        }
        if let Some(number) = self.by_address.get(&(from, player)).copied() {
            self.check_rate(number, now)?;
            if player && self.config.drop_malformed && inbound.content.datagram().is_none() {
                return Err(Refusal::Malformed);
            }
            return Ok(number);
        }
        if player && !inbound.asks_to_join() {
            return Err(Refusal::Stranger);
        }
        self.open(from, player, now)
    }

    fn open(&mut self, address: SocketAddrV4, player: bool, now: Time) -> Result<u32, Refusal> {
        let own = if player {
            let again = self.admission.request(&self.config, *address.ip(), now)?;
            self.take_source(again, now)?
        } else {
            self.admission.check_share(&self.config, *address.ip(), false, now)?;
            self.make_room_for_browser(now)?;
            None
        };
        let number = self.free.pop().unwrap_or_else(|| {
            self.clients.push(None);
            u32::try_from(self.clients.len() - 1).unwrap_or(u32::MAX)
        });
        let source = Source { number, address: own };
        // Who comes has done something already.
        let mut bucket = Bucket::new(per_second(self.config.rate), now);
        let _ = bucket.take(1, per_second(self.config.rate), now);
        let healer = (player && self.config.heal).then(Box::default);
        let client = Client {
            address,
            source,
            player,
            healer,
            heard: now,
            id: PeerId::UNASSIGNED,
            parted: None,
            answered: false,
            assigned: None,
            proved: false,
            room: 0,
            credit: 0,
            since: now,
            bucket,
        };
        self.expiry.set(number, Some(self.due(&client)));
        if let Some(place) = self.clients.get_mut(number as usize) {
            *place = Some(client);
        }
        self.by_address.insert((address, player), number);
        self.admission.enter(*address.ip(), player, bucket);
        self.events.push_back(Event::Opened { client: address, source, player });
        Ok(number)
    }

    /// Returns a source for a new player. If there is none, who has proved nothing for a while gives way to one that has
    /// asked before. While there is such a client, nobody is told that the game is full: it is not.
    fn take_source(&mut self, has_asked: bool, now: Time) -> Result<Option<Ipv4Addr>, Refusal> {
        if let Some(source) = self.pool.pop_front() {
            return Ok(source);
        }
        let unproved = |client: &&Client| client.player && !client.proved;
        let oldest = self.clients.iter().flatten().filter(unproved).min_by_key(|client| client.since);
        let Some(oldest) = oldest else { return Err(Refusal::NoSource) };
        if !has_asked || now.since(oldest.since) < TENURE {
            return Err(Refusal::Busy);
        }
        self.close(oldest.source.number as usize);
        self.pool.pop_front().ok_or(Refusal::NoSource)
    }

    /// A browser that was answered, or has waited for a while, gives way to a new one.
    fn make_room_for_browser(&mut self, now: Time) -> Result<(), Refusal> {
        let browsers = || self.clients.iter().flatten().filter(|client| !client.player);
        if browsers().count() < self.config.browsers {
            return Ok(());
        }
        let may_go = |client: &&Client| client.answered || now.since(client.since) >= BROWSING;
        let oldest = browsers().filter(may_go).min_by_key(|client| client.heard);
        let number = oldest.ok_or(Refusal::Crowded)?.source.number;
        self.close(number as usize);
        Ok(())
    }

    fn close(&mut self, index: usize) {
        let Some(client) = self.clients.get_mut(index).and_then(Option::take) else { return };
        let [up, down] = &mut self.healed;
        *up = *up + client.healed(Direction::Up);
        *down = *down + client.healed(Direction::Down);
        let (up, down) = (client.healed(Direction::Up), client.healed(Direction::Down));
        let Client { address, source, player, proved, .. } = client;
        self.by_address.remove(&(address, player));
        self.admission.leave(*address.ip(), player);
        self.expiry.set(source.number, None);
        self.repeats.set(source.number, None);
        self.free.push(source.number);
        if player {
            self.pool.push_back(source.address);
        }
        self.events.push_back(Event::Closed { client: address, source, player, proved, up, down });
    }

    fn check_rate(&mut self, number: u32, now: Time) -> Result<(), Refusal> {
        let Some(client) = self.clients.get_mut(number as usize).and_then(Option::as_mut) else {
            return Ok(());
        };
        take(&mut client.bucket, self.config.rate, now)
    }

    fn refuse(&mut self, client: SocketAddrV4, inbound: Inbound<'_>, refusal: Refusal) -> Output<'_> {
        count(&mut self.refused, refusal);
        if self.events.len() < MAX_EVENTS {
            self.events.push_back(Event::Refused { client, refusal });
        }
        let reason = refusal.boot().filter(|_| inbound.asks_to_join());
        let answer = reason.and_then(|reason| write_boot(&mut self.own, reason));
        let answer = answer.map(|datagram| (Leg::Client(client), Bytes::Plain(datagram)));
        Output { forward: None, answer, refusal: Some(refusal) }
    }

    /// Returns when a client is forgotten if nothing else happens.
    fn due(&self, client: &Client) -> Time {
        let patience = if client.proved { self.config.idle } else { UNPROVED };
        let idle = client.heard + patience;
        client.parted.map_or(idle, |parted| idle.min(parted + GOODBYE))
    }
}

fn count(refused: &mut [u64; Refusal::ALL.len()], refusal: Refusal) {
    if let Some(count) = refused.get_mut(refusal as usize) {
        *count += 1;
    }
}

/// Returns the datagram that turns away who has no id (T-54).
fn write_boot(buffer: &mut [u8], reason: BootReason) -> Option<&[u8]> {
    let mut writer = Writer::new(buffer, PeerId::HOST);
    let body = Body::Boot { reason, target: PeerId::UNASSIGNED };
    let written = writer.push(&Message::Control(Control::new(Seq(0), body)));
    writer.finish().filter(|_| written).map(|datagram| &*datagram)
}

/// How long a player who has not proved itself is remembered after its last word, and a browser after the last word of
/// either side.
const UNPROVED: Duration = Duration::from_secs(10);
/// A player who has not proved itself has its source at least for so long, and a browser its own.
const TENURE: Duration = Duration::from_secs(3);
const BROWSING: Duration = Duration::from_secs(1);
/// After a goodbye the source is free when the client has been silent for so long. Who repeats its goodbye does so sooner.
const GOODBYE: Duration = Duration::from_secs(5);
/// Refusals are told only while fewer events wait.
const MAX_EVENTS: usize = 256;
