//! The clients of the proxy and their source addresses toward the server.

use std::collections::{HashMap, VecDeque};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::Duration;

use bcnet_session::{Network, TokenBucket, any_contains};
use bcnet_transport::wire::{Body, BootReason, Control, Message, PeerId, Seq, Writer};
use bcnet_transport::{Deadlines, Time};

use crate::admission::{ForwardDecision, ProxyAdmission, per_second, take_token, write_id_reply};
use crate::client::ProxyClient;
use crate::healer::{HealCounters, Healer, Inbound, OutboundBytes, ProxyDirection};
use crate::output::{DatagramTarget, ProxyEvent, ProxyOutput, ProxyPlayer, RefusalReason, UpstreamSource};

/// Settings of a proxy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProxyConfig {
    /// True if conversations are healed; otherwise every byte passes unchanged.
    pub heal: bool,
    /// Addresses of this machine, one for each player toward the server. Without any, one player can be served.
    pub sources: Vec<Ipv4Addr>,
    /// Networks whose datagrams are refused.
    pub bans: Vec<Network>,
    /// Limit of datagrams per second of a client, and of new clients per second of an address. A burst may be as
    /// large as the number for one second. 0 means no limit.
    pub rate: u32,
    /// True if malformed datagrams of players are dropped.
    pub drop_malformed: bool,
    /// Silence in both directions after which a player is forgotten.
    pub idle_timeout: Duration,
    /// Most browsers that wait for an answer at the same time.
    pub max_browsers: usize,
    /// Most answers per second to queries of unverified addresses, with 250 bytes for each (S-07).
    pub query_rate: u32,
    /// Trusted networks. Of the limits by address, only `rate` and the limit of clients per address apply to them.
    pub trusted: Vec<Network>,
    /// Networks with a separate budget for queries (S-07).
    pub home_networks: Vec<Network>,
    /// A secret random number.
    pub seed: u64,
}

impl Default for ProxyConfig {
    fn default() -> Self {
        Self {
            heal: false,
            sources: Vec::new(),
            bans: Vec::new(),
            rate: 0,
            drop_malformed: false,
            idle_timeout: Duration::from_secs(60),
            max_browsers: 256,
            query_rate: 100,
            trusted: vec![Network::containing(Ipv4Addr::LOCALHOST, 8)],
            home_networks: Network::DEFAULT_HOME.to_vec(),
            seed: 0,
        }
    }
}

/// A proxy without its sockets.
#[derive(Debug)]
pub struct Proxy {
    config: ProxyConfig,
    clients: Vec<Option<ProxyClient>>,
    /// Counters of clients that have left.
    healed: [HealCounters; 2],
    /// Players and browsers have separate sources, so one address may be both.
    by_address: HashMap<(SocketAddrV4, bool), u32>,
    admission: ProxyAdmission,
    free_numbers: Vec<u32>,
    /// Free source addresses, the longest free first. A server remembers the last player of an address for
    /// a while.
    source_pool: VecDeque<Option<Ipv4Addr>>,
    expiry_timers: Deadlines,
    /// Deadlines of the healers.
    retransmit_timers: Deadlines,
    events: VecDeque<ProxyEvent>,
    refused: [u64; RefusalReason::ALL.len()],
    /// Buffer for the proxy's own datagrams.
    own_buffer: Vec<u8>,
}

impl Proxy {
    /// Creates a proxy without clients.
    #[must_use]
    pub fn new(config: ProxyConfig) -> Self {
        let pool = if config.sources.is_empty() {
            VecDeque::from([None])
        } else {
            config.sources.iter().copied().map(Some).collect()
        };
        Self {
            admission: ProxyAdmission::new(config.seed),
            config,
            clients: Vec::new(),
            healed: Default::default(),
            by_address: HashMap::new(),
            free_numbers: Vec::new(),
            source_pool: pool,
            expiry_timers: Deadlines::new(),
            retransmit_timers: Deadlines::new(),
            events: VecDeque::new(),
            refused: [0; RefusalReason::ALL.len()],
            own_buffer: vec![0; 64],
        }
    }

    /// Returns the players, in the order of their source numbers.
    pub fn players(&self) -> impl Iterator<Item = ProxyPlayer> {
        self.clients.iter().flatten().filter(|client| client.player).map(|client| ProxyPlayer {
            address: client.address,
            source: client.source,
            up: client.healed(ProxyDirection::ToServer),
            down: client.healed(ProxyDirection::ToClient),
        })
    }

    /// Returns the counters of one direction for all clients, past ones included.
    #[must_use]
    pub fn healed(&self, direction: ProxyDirection) -> HealCounters {
        let [up, down] = self.healed;
        let left = match direction {
            ProxyDirection::ToServer => up,
            ProxyDirection::ToClient => down,
        };
        self.clients.iter().flatten().fold(left, |sum, client| sum + client.healed(direction))
    }

    /// Returns the client of a source.
    #[must_use]
    pub fn client_address(&self, source: u32) -> Option<SocketAddrV4> {
        self.clients.get(source as usize).and_then(Option::as_ref).map(|client| client.address)
    }

    /// Returns the sources of all clients, browsers included.
    pub fn sources(&self) -> impl Iterator<Item = (SocketAddrV4, UpstreamSource)> {
        self.clients.iter().flatten().map(|client| (client.address, client.source))
    }

    /// Forgets the client of a source that cannot be opened. A client that asks again gets a new source.
    pub fn close_source(&mut self, source: u32) {
        self.close_client(source as usize);
    }

    /// Returns how many datagrams were refused for a reason.
    #[must_use]
    pub fn refused(&self, refusal: RefusalReason) -> u64 {
        self.refused.get(refusal as usize).copied().unwrap_or(0)
    }

    /// Replaces the banned networks and forgets players from there. Returns `false` if nothing changed.
    pub fn set_bans(&mut self, bans: Vec<Network>) -> bool {
        if self.config.bans == bans {
            return false;
        }
        self.config.bans = bans;
        for number in 0..self.clients.len() {
            let address =
                self.clients.get(number).and_then(Option::as_ref).map(|client| *client.address.ip());
            if address.is_some_and(|address| any_contains(&self.config.bans, address)) {
                self.close_client(number);
            }
        }
        true
    }

    /// Sets the list servers that the operator named: their queries pass even during a flood (S-07).
    ///
    /// A separate byte quota limits the answers to each of them.
    pub fn set_list_servers(&mut self, addresses: Vec<Ipv4Addr>) {
        self.admission.set_list_servers(addresses);
    }

    /// Returns whether a query that the caller answers may get an answer of `bytes` bytes.
    pub fn may_answer(&mut self, from: Ipv4Addr, question: &[u8], bytes: usize, now: Time) -> bool {
        let asked = self.admission.check_query(&self.config, from, question, now);
        asked.is_ok() && self.admission.may_answer(&self.config, from, bytes, now)
    }

    /// Returns the next event.
    pub fn poll_event(&mut self) -> Option<ProxyEvent> {
        self.events.pop_front()
    }

    /// Returns the next deadline.
    ///
    /// It is that of [`handle_timeout`](Self::handle_timeout) or [`poll_transmit`](Self::poll_transmit).
    #[must_use]
    pub fn next_timeout(&self) -> Option<Time> {
        self.expiry_timers.first().into_iter().chain(self.retransmit_timers.first()).map(|(due, _)| due).min()
    }

    /// Returns the next datagram that a healer itself sends.
    pub fn poll_transmit(&mut self, now: Time) -> Option<(DatagramTarget, OutboundBytes<'_>)> {
        let (number, direction) = loop {
            let (_, number) = self.retransmit_timers.first().filter(|(due, _)| *due <= now)?;
            let healer = self.healer(number);
            let (direction, next) =
                healer.map_or((None, None), |healer| (healer.write_due_datagram(now), healer.next_timeout()));
            self.retransmit_timers.set(number, next);
            if let Some(direction) = direction {
                break (number, direction);
            }
        };
        let leg = match direction {
            ProxyDirection::ToServer => DatagramTarget::Server(number),
            ProxyDirection::ToClient => DatagramTarget::Client(self.client_address(number)?),
        };
        Some((leg, self.healer(number)?.due_datagram()))
    }

    fn healer(&mut self, number: u32) -> Option<&mut Healer> {
        self.clients.get_mut(number as usize)?.as_mut()?.healer.as_deref_mut()
    }

    /// Forgets clients that have been silent for too long.
    pub fn handle_timeout(&mut self, now: Time) {
        while let Some((_, number)) = self.expiry_timers.first().filter(|(due, _)| *due <= now) {
            let index = number as usize;
            let client = self.clients.get(index).and_then(Option::as_ref);
            match client.map(|client| self.expires_at(client)) {
                Some(due) if due > now => self.expiry_timers.set(number, Some(due)),
                _ => self.close_client(index),
            }
        }
    }

    /// Handles a datagram of a client from the listening socket.
    pub fn handle_client<'a>(
        &'a mut self,
        from: SocketAddrV4,
        inbound: Inbound<'a>,
        now: Time,
    ) -> ProxyOutput<'a> {
        match self.accept(from, inbound, now) {
            Ok(number) => self.forward(number, ProxyDirection::ToServer, inbound, now),
            Err(refusal) => self.refuse(from, inbound, refusal),
        }
    }

    /// Handles a datagram of the server that arrived at a source.
    pub fn handle_server<'a>(&'a mut self, source: u32, inbound: Inbound<'a>, now: Time) -> ProxyOutput<'a> {
        self.forward(source, ProxyDirection::ToClient, inbound, now)
    }

    fn forward<'a>(
        &'a mut self,
        number: u32,
        direction: ProxyDirection,
        inbound: Inbound<'a>,
        now: Time,
    ) -> ProxyOutput<'a> {
        let Some(client) = self.clients.get_mut(number as usize).and_then(Option::as_mut) else {
            return ProxyOutput::default();
        };
        let passage = match direction {
            ProxyDirection::ToServer => ForwardDecision::Whole,
            ProxyDirection::ToClient if client.player => {
                self.admission.decide_forward(&self.config, client, inbound, now)
            }
            ProxyDirection::ToClient => {
                let (to, bytes) = (*client.address.ip(), inbound.wire.len());
                let may_hear = self.admission.may_answer(&self.config, to, bytes, now);
                if may_hear { ForwardDecision::Whole } else { ForwardDecision::Discard }
            }
        };
        if direction == ProxyDirection::ToServer && client.verify(inbound) {
            self.events.push_back(ProxyEvent::Verified { client: client.address, source: client.source });
            if let Some(healer) = &mut client.healer {
                healer.allow_retransmissions();
            }
        }
        if client.on_datagram(direction, inbound, now) {
            self.expiry_timers.set(number, Some(now + LINGER));
        }
        match passage {
            ForwardDecision::Whole => {}
            ForwardDecision::IdOnly => {
                let id = write_id_reply(&mut self.own_buffer, inbound);
                let forward =
                    id.map(|id| (DatagramTarget::Client(client.address), OutboundBytes::Plaintext(id)));
                return ProxyOutput { forward, ..ProxyOutput::default() };
            }
            ForwardDecision::Discard => {
                let refusal =
                    if client.player { RefusalReason::Unverified } else { RefusalReason::QueryLimit };
                count_refusal(&mut self.refused, refusal);
                return ProxyOutput { refusal: Some(refusal), ..ProxyOutput::default() };
            }
        }
        let (to_client, to_server) = (DatagramTarget::Client(client.address), DatagramTarget::Server(number));
        let (ahead, back) = match direction {
            ProxyDirection::ToServer => (to_server, to_client),
            ProxyDirection::ToClient => (to_client, to_server),
        };
        let Some(healer) = client.healer.as_mut() else {
            return ProxyOutput {
                forward: Some((ahead, OutboundBytes::Wire(inbound.wire))),
                ..ProxyOutput::default()
            };
        };
        let passed = healer.handle_datagram(direction, inbound, now);
        self.retransmit_timers.set(number, passed.timeout);
        ProxyOutput {
            forward: passed.forward.map(|bytes| (ahead, bytes)),
            answer: passed.answer.map(|bytes| (back, bytes)),
            refusal: None,
        }
    }

    /// Returns the source of a client's datagram; opens one if the datagram may begin a conversation.
    fn accept(&mut self, from: SocketAddrV4, inbound: Inbound<'_>, now: Time) -> Result<u32, RefusalReason> {
        if any_contains(&self.config.bans, *from.ip()) {
            return Err(RefusalReason::Banned);
        }
        let player = !inbound.is_gamespy_text();
        if !player {
            self.admission.check_query(&self.config, *from.ip(), inbound.wire, now)?;
        }
        if let Some(number) = self.by_address.get(&(from, player)).copied() {
            self.check_rate(number, now)?;
            if player && self.config.drop_malformed && inbound.content.datagram().is_none() {
                return Err(RefusalReason::Malformed);
            }
            return Ok(number);
        }
        if player && !inbound.is_connect_request() {
            return Err(RefusalReason::NotConnected);
        }
        self.open_client(from, player, now)
    }

    fn open_client(&mut self, address: SocketAddrV4, player: bool, now: Time) -> Result<u32, RefusalReason> {
        let own = if player {
            let again = self.admission.check_join(&self.config, *address.ip(), now)?;
            self.take_source(again, now)?
        } else {
            self.admission.check_address_limits(&self.config, *address.ip(), false, now)?;
            self.evict_browser(now)?;
            None
        };
        let number = self.free_numbers.pop().unwrap_or_else(|| {
            self.clients.push(None);
            u32::try_from(self.clients.len() - 1).unwrap_or(u32::MAX)
        });
        let source = UpstreamSource { number, address: own };
        // The first datagram counts too.
        let mut bucket = TokenBucket::new(per_second(self.config.rate), now);
        let _ = bucket.take(1, per_second(self.config.rate), now);
        let healer = (player && self.config.heal).then(Box::default);
        let client = ProxyClient {
            address,
            source,
            player,
            healer,
            last_active: now,
            id: PeerId::UNASSIGNED,
            left_at: None,
            answered: false,
            assigned: None,
            verified: false,
            unverified_bytes_left: 0,
            prepaid_bytes: 0,
            created: now,
            rate_limiter: bucket,
        };
        self.expiry_timers.set(number, Some(self.expires_at(&client)));
        if let Some(place) = self.clients.get_mut(number as usize) {
            *place = Some(client);
        }
        self.by_address.insert((address, player), number);
        self.admission.on_admitted(*address.ip(), player, bucket);
        self.events.push_back(ProxyEvent::Opened { client: address, source, player });
        Ok(number)
    }

    /// Returns a source for a new player. If none is free, a client that asked before replaces one that stayed
    /// unverified for a while. While such a client exists, no client gets the answer that the server is full.
    fn take_source(&mut self, has_asked: bool, now: Time) -> Result<Option<Ipv4Addr>, RefusalReason> {
        if let Some(source) = self.source_pool.pop_front() {
            return Ok(source);
        }
        let unproved = |client: &&ProxyClient| client.player && !client.verified;
        let oldest = self.clients.iter().flatten().filter(unproved).min_by_key(|client| client.created);
        let Some(oldest) = oldest else { return Err(RefusalReason::NoSource) };
        if !has_asked || now.since(oldest.created) < MIN_SOURCE_TIME {
            return Err(RefusalReason::Busy);
        }
        self.close_client(oldest.source.number as usize);
        self.source_pool.pop_front().ok_or(RefusalReason::NoSource)
    }

    /// Makes room for a browser: at the limit, forgets one that was answered or has waited for a while.
    fn evict_browser(&mut self, now: Time) -> Result<(), RefusalReason> {
        let browsers = || self.clients.iter().flatten().filter(|client| !client.player);
        if browsers().count() < self.config.max_browsers {
            return Ok(());
        }
        let may_go = |client: &&ProxyClient| client.answered || now.since(client.created) >= MIN_BROWSER_TIME;
        let oldest = browsers().filter(may_go).min_by_key(|client| client.last_active);
        let number = oldest.ok_or(RefusalReason::TooManyBrowsers)?.source.number;
        self.close_client(number as usize);
        Ok(())
    }

    fn close_client(&mut self, index: usize) {
        let Some(client) = self.clients.get_mut(index).and_then(Option::take) else { return };
        let [up, down] = &mut self.healed;
        *up = *up + client.healed(ProxyDirection::ToServer);
        *down = *down + client.healed(ProxyDirection::ToClient);
        let (up, down) = (client.healed(ProxyDirection::ToServer), client.healed(ProxyDirection::ToClient));
        let ProxyClient { address, source, player, verified: proved, .. } = client;
        self.by_address.remove(&(address, player));
        self.admission.on_left(*address.ip(), player);
        self.expiry_timers.set(source.number, None);
        self.retransmit_timers.set(source.number, None);
        self.free_numbers.push(source.number);
        if player {
            self.source_pool.push_back(source.address);
        }
        self.events.push_back(ProxyEvent::Closed {
            client: address,
            source,
            player,
            verified: proved,
            up,
            down,
        });
    }

    fn check_rate(&mut self, number: u32, now: Time) -> Result<(), RefusalReason> {
        let Some(client) = self.clients.get_mut(number as usize).and_then(Option::as_mut) else {
            return Ok(());
        };
        take_token(&mut client.rate_limiter, self.config.rate, now)
    }

    fn refuse(
        &mut self,
        client: SocketAddrV4,
        inbound: Inbound<'_>,
        refusal: RefusalReason,
    ) -> ProxyOutput<'_> {
        count_refusal(&mut self.refused, refusal);
        if self.events.len() < MAX_EVENTS {
            self.events.push_back(ProxyEvent::Refused { client, refusal });
        }
        let reason = refusal.boot_reason().filter(|_| inbound.is_connect_request());
        let answer = reason.and_then(|reason| write_boot(&mut self.own_buffer, reason));
        let answer =
            answer.map(|datagram| (DatagramTarget::Client(client), OutboundBytes::Plaintext(datagram)));
        ProxyOutput { forward: None, answer, refusal: Some(refusal) }
    }

    /// Returns when a client is forgotten if nothing else happens.
    fn expires_at(&self, client: &ProxyClient) -> Time {
        let patience = if client.verified { self.config.idle_timeout } else { UNVERIFIED_TIMEOUT };
        let idle = client.last_active + patience;
        client.left_at.map_or(idle, |parted| idle.min(parted + LINGER))
    }
}

fn count_refusal(refused: &mut [u64; RefusalReason::ALL.len()], refusal: RefusalReason) {
    if let Some(count) = refused.get_mut(refusal as usize) {
        *count += 1;
    }
}

/// Writes the datagram that refuses a client without an id (T-54).
fn write_boot(buffer: &mut [u8], reason: BootReason) -> Option<&[u8]> {
    let mut writer = Writer::new(buffer, PeerId::HOST);
    let body = Body::Boot { reason, target: PeerId::UNASSIGNED };
    let written = writer.push(&Message::Control(Control::new(Seq(0), body)));
    writer.finish().filter(|_| written).map(|datagram| &*datagram)
}

/// Silence after which an unverified player or a browser is forgotten.
///
/// For a browser, the datagrams of both sides count.
const UNVERIFIED_TIMEOUT: Duration = Duration::from_secs(10);
/// An unverified player, or a browser without an answer, keeps its source at least this long.
const MIN_SOURCE_TIME: Duration = Duration::from_secs(3);
const MIN_BROWSER_TIME: Duration = Duration::from_secs(1);
/// After a disconnect or boot, a source is free when the client has been silent this long.
///
/// A client that is still there repeats its disconnect sooner.
const LINGER: Duration = Duration::from_secs(5);
/// Refusals are reported only while fewer events wait.
const MAX_EVENTS: usize = 256;
