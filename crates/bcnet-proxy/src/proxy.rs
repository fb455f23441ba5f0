//! The clients of the proxy and their source addresses toward the server.

use std::collections::{HashMap, VecDeque};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::Duration;

use bcnet_observe::MessageBuffer;
use bcnet_session::{MIN_REPLY_COST, Network, any_contains};
use bcnet_transport::{AddressVerifier, Deadlines, ProofPolicy, Time};

use crate::admission::ProxyAdmission;
use crate::client::{ProofState, ProxyClient};
use crate::forward::OFFER_INTERVAL;
use crate::healer::{HealCounters, OutboundBytes, ProxyDirection};
use crate::output::{DatagramTarget, ProxyEvent, ProxyPlayer, RefusalReason, UpstreamSource};

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
    ///
    /// Without it, a player can send a stock server control messages that name others, in a form that the proxy
    /// cannot read.
    pub drop_malformed: bool,
    /// The proof of an address before a server that does not ask for one.
    ///
    /// `Id` is for clients that do not acknowledge cookies. `Auto` is little better than `Id`: the ids of a stock
    /// server can be predicted.
    pub proof_policy: ProofPolicy,
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
            proof_policy: ProofPolicy::Ack,
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
    pub(crate) config: ProxyConfig,
    pub(crate) clients: Vec<Option<ProxyClient>>,
    /// Counters of clients that have left.
    pub(crate) healed: [HealCounters; 2],
    /// Players and browsers have separate sources, so one address may be both.
    pub(crate) by_address: HashMap<(SocketAddrV4, bool), u32>,
    pub(crate) admission: ProxyAdmission,
    pub(crate) verifier: AddressVerifier,
    /// True if the server put a cookie into its last connect reply: it verifies addresses itself.
    pub(crate) server_verifies: bool,
    pub(crate) free_numbers: Vec<u32>,
    /// Free source addresses, the longest free first. A server remembers the last player of an address for
    /// a while.
    pub(crate) source_pool: VecDeque<Option<Ipv4Addr>>,
    pub(crate) expiry_timers: Deadlines,
    /// Deadlines of the healers and of goodbyes.
    pub(crate) retransmit_timers: Deadlines,
    pub(crate) events: VecDeque<ProxyEvent>,
    pub(crate) refused: [u64; RefusalReason::ALL.len()],
    /// Goodbyes to the server, without retransmissions.
    pub(crate) goodbyes: u64,
    /// Buffer for the proxy's own datagrams.
    pub(crate) own_buffer: Vec<u8>,
    /// Messages of a datagram that the proxy has changed.
    pub(crate) messages: MessageBuffer<'static>,
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
            verifier: AddressVerifier::new(config.seed.rotate_left(17)),
            server_verifies: false,
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
            goodbyes: 0,
            own_buffer: vec![0; MAX_OWN_LEN],
            messages: MessageBuffer::default(),
        }
    }

    /// Returns the players, in the order of their source numbers.
    pub fn players(&self) -> impl Iterator<Item = ProxyPlayer> {
        let is_player = |client: &&ProxyClient| client.is_player() && client.goodbye.is_none();
        self.clients.iter().flatten().filter(is_player).map(|client| ProxyPlayer {
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

    /// Returns how many clients the proxy has reported to the server as gone.
    #[must_use]
    pub const fn goodbyes(&self) -> u64 {
        self.goodbyes
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
        if asked.is_ok() {
            self.admission.charge_answer(&self.config, from, (bytes, MIN_REPLY_COST as usize), now);
        }
        asked.is_ok()
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

    /// Returns the next datagram that the proxy itself sends.
    ///
    /// It is a goodbye, an offer or a retransmission of a healer.
    pub fn poll_transmit(&mut self, now: Time) -> Option<(DatagramTarget, OutboundBytes<'_>)> {
        let (number, target) = loop {
            let (_, number) = self.retransmit_timers.first().filter(|(due, _)| *due <= now)?;
            if let Some(target) = self.write_due(number, now) {
                break (number, target);
            }
        };
        let client = self.clients.get(number as usize)?.as_ref()?;
        let bytes = match &client.healer {
            Some(healer) if client.is_verified() && client.goodbye.is_none() => healer.due_datagram(),
            _ => OutboundBytes::Plaintext(&self.own_buffer),
        };
        Some((target, bytes))
    }

    /// Writes the due datagram of a client and sets its next timer. Returns the target if it wrote one.
    fn write_due(&mut self, number: u32, now: Time) -> Option<DatagramTarget> {
        let client = self.clients.get_mut(number as usize).and_then(Option::as_mut);
        let (target, next) = match client {
            Some(ProxyClient { goodbye: Some(goodbye), .. }) => {
                self.own_buffer.resize(MAX_OWN_LEN, 0);
                let len = goodbye.write(&mut self.own_buffer, now).map_or(0, <[u8]>::len);
                self.own_buffer.truncate(len);
                ((len > 0).then_some(DatagramTarget::Server(number)), goodbye.next_send())
            }
            Some(client) if client.next_offer.is_some() => {
                client.next_offer = Some(now + OFFER_INTERVAL);
                let (to, next) = (DatagramTarget::Client(client.address), client.next_offer);
                (self.write_repeated_offer(number, now).then_some(to), next)
            }
            Some(ProxyClient { healer: Some(healer), address, .. }) => {
                let target = healer.write_due_datagram(now).map(|direction| match direction {
                    ProxyDirection::ToServer => DatagramTarget::Server(number),
                    ProxyDirection::ToClient => DatagramTarget::Client(*address),
                });
                (target, healer.next_timeout())
            }
            Some(_) | None => (None, None),
        };
        self.retransmit_timers.set(number, next);
        target
    }

    /// Forgets clients that were silent for too long, and starts goodbyes of unverified ones.
    pub fn handle_timeout(&mut self, now: Time) {
        while let Some((_, number)) = self.expiry_timers.first().filter(|(due, _)| *due <= now) {
            let index = number as usize;
            let client = self.clients.get(index).and_then(Option::as_ref);
            match client.map(|client| (self.expires_at(client), client)) {
                Some((due, _)) if due > now => self.expiry_timers.set(number, Some(due)),
                Some((_, client)) if client.goodbye.is_none() && self.may_hold_slot(client) => {
                    self.start_goodbye(number, now);
                }
                Some(_) | None => self.close_client(index),
            }
        }
    }

    /// Returns whether the server may hold a slot for an unverified client that the proxy gives up.
    ///
    /// A server that verifies addresses itself holds none before it has answered.
    fn may_hold_slot(&self, client: &ProxyClient) -> bool {
        client.is_under_way() && (client.proof == ProofState::Offered || !self.server_verifies)
    }
}

/// The largest datagram that the proxy writes: that of a server with a cookie behind it.
pub(crate) const MAX_OWN_LEN: usize = 512;
