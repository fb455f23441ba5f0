//! Admission of clients, and the byte limits of unverified addresses.
//!
//! A source address may be forged. A client is verified when it uses the id that the server assigned. A forger must
//! guess that id. The ids of a stock server are easy to guess, which only the server could change.

use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::time::Duration;

use bcnet_observe::ParsedDatagram;
use bcnet_session::{
    AddressLimiter, BloomFilter, QueryLimiter, QueryOrigin, Quotas, Rate, TokenBucket, any_contains, is_reply,
};
use bcnet_transport::Time;
use bcnet_transport::wire::{Body, Channel, Control, DATAGRAM_HEADER, Message, PeerId, Writer};

use crate::client::{ProxyClient, assigned_id};
use crate::healer::Inbound;
use crate::output::RefusalReason;
use crate::proxy::ProxyConfig;

/// Limits by address and network, separate for players and for browsers.
#[derive(Debug)]
pub(crate) struct ProxyAdmission {
    players: AddressLimiter,
    browsers: AddressLimiter,
    /// The rate limit of new clients for each address, separate for players (`true`) and browsers.
    ///
    /// An address without clients has no entry.
    address_limiters: HashMap<(Ipv4Addr, bool), TokenBucket>,
    /// Limits join requests of all addresses together.
    join_limiter: TokenBucket,
    recent_requests: BloomFilter,
    queries: QueryLimiter,
    list_servers: Vec<Ipv4Addr>,
    /// Bytes sent to unverified addresses beyond the bytes that they sent.
    extra_quota: Quotas,
}

impl ProxyAdmission {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            players: AddressLimiter::new(MAX_PER_ADDRESS, MAX_PER_NETWORK),
            browsers: AddressLimiter::new(MAX_PER_ADDRESS, MAX_PER_NETWORK),
            address_limiters: HashMap::new(),
            join_limiter: TokenBucket::new(JOIN_RATE, Time::ZERO),
            recent_requests: BloomFilter::new(RETRY_WINDOW, seed),
            queries: QueryLimiter::new(seed),
            list_servers: Vec::new(),
            extra_quota: Quotas::new(32, MAX_EXTRA_BYTES, EXTRA_WINDOW, EXTRA_SLOTS, seed),
        }
    }

    pub(crate) fn set_list_servers(&mut self, addresses: Vec<Ipv4Addr>) {
        self.list_servers = addresses;
    }

    /// Returns whether a query of a browser or a list server may pass (S-05, S-07).
    pub(crate) fn check_query(
        &mut self,
        config: &ProxyConfig,
        from: Ipv4Addr,
        text: &[u8],
        now: Time,
    ) -> Result<(), RefusalReason> {
        if is_reply(text) {
            return Err(RefusalReason::UnsolicitedAnswer);
        }
        let asker = self.querier(config, from);
        // The query counts as an empty reply, because the server may never answer it.
        let rate = config.query_rate;
        (self.queries.allow_query(asker, from, rate, now)
            && self.queries.allow_reply(asker, from, 0, rate, now))
        .then_some(())
        .ok_or(RefusalReason::QueryLimit)
    }

    /// Returns whether an answer of `bytes` bytes may be sent to `to` (S-07).
    pub(crate) fn may_answer(&mut self, config: &ProxyConfig, to: Ipv4Addr, bytes: usize, now: Time) -> bool {
        let asker = self.querier(config, to);
        self.queries.allow_reply(asker, to, bytes, config.query_rate, now)
    }

    fn querier(&self, config: &ProxyConfig, who: Ipv4Addr) -> QueryOrigin {
        if any_contains(&config.trusted, who) {
            QueryOrigin::Trusted
        } else if self.list_servers.contains(&who) {
            QueryOrigin::ListServer
        } else if any_contains(&config.home_networks, who) {
            QueryOrigin::Home
        } else {
            QueryOrigin::Unverified
        }
    }

    /// Checks a join request of a new client. Returns whether the client has asked before: forgers do not ask
    /// again.
    pub(crate) fn check_join(
        &mut self,
        config: &ProxyConfig,
        from: Ipv4Addr,
        now: Time,
    ) -> Result<bool, RefusalReason> {
        self.check_address_limits(config, from, true, now)?;
        let again = self.recent_requests.check_and_insert(from, now);
        let is_heard =
            self.join_limiter.take(1, JOIN_RATE, now) || again || any_contains(&config.trusted, from);
        if is_heard { Ok(again) } else { Err(RefusalReason::Busy) }
    }

    /// Checks the limits of clients for an address and its network.
    pub(crate) fn check_address_limits(
        &mut self,
        config: &ProxyConfig,
        from: Ipv4Addr,
        player: bool,
        now: Time,
    ) -> Result<(), RefusalReason> {
        if let Some(bucket) = self.address_limiters.get_mut(&(from, player)) {
            take_token(bucket, config.rate, now)?;
        }
        let crowd = if player { &self.players } else { &self.browsers };
        let has_room = match any_contains(&config.trusted, from) {
            true => crowd.count_of_address(from) < MAX_PER_ADDRESS,
            false => crowd.has_capacity(from),
        };
        if has_room { Ok(()) } else { Err(RefusalReason::AddressFull) }
    }

    /// Records an admitted client. `bucket` is its remaining rate limit.
    pub(crate) fn on_admitted(&mut self, from: Ipv4Addr, player: bool, bucket: TokenBucket) {
        self.counts(player).add(from);
        self.address_limiters.entry((from, player)).or_insert(bucket);
    }

    pub(crate) fn on_left(&mut self, from: Ipv4Addr, player: bool) {
        self.counts(player).remove(from);
        if self.counts(player).count_of_address(from) == 0 {
            self.address_limiters.remove(&(from, player));
        }
    }

    fn counts(&mut self, player: bool) -> &mut AddressLimiter {
        if player { &mut self.players } else { &mut self.browsers }
    }

    /// Decides how much of a server's datagram is sent to a client.
    ///
    /// An unverified client gets at most three times the bytes of its last datagram. Bytes beyond those that it sent
    /// are taken from a small quota of its address.
    ///
    /// A stock server puts the names of all players into the datagram with the id. If that datagram is too long, only
    /// the id is sent. The server repeats the names, and by then the client is verified.
    pub(crate) fn decide_forward(
        &mut self,
        config: &ProxyConfig,
        client: &mut ProxyClient,
        inbound: Inbound<'_>,
        now: Time,
    ) -> ForwardDecision {
        if client.verified || any_contains(&config.trusted, *client.address.ip()) {
            return ForwardDecision::Whole;
        }
        let is_reply = assigned_id(inbound).is_some();
        // A client does not repeat a request that was acknowledged, so there must always be room for its id.
        let reserve = if is_reply { 0 } else { ID_RESERVE };
        if self.charge(client, inbound.wire.len(), reserve, now) {
            return ForwardDecision::Whole;
        }
        if is_reply && self.charge(client, id_reply_len(inbound), 0, now) {
            return ForwardDecision::IdOnly;
        }
        ForwardDecision::Discard
    }

    /// Charges bytes to an unverified client and returns whether they may be sent.
    ///
    /// `reserve` more bytes must be left. Bytes beyond those that the client sent are taken from the quota of its
    /// address.
    fn charge(&mut self, client: &mut ProxyClient, bytes: usize, reserve: usize, now: Time) -> bool {
        if client.unverified_bytes_left < bytes + reserve {
            return false;
        }
        let unpaid = (bytes + reserve).saturating_sub(client.prepaid_bytes);
        let extra = u16::try_from(unpaid).unwrap_or(u16::MAX);
        if unpaid > 0 && !self.extra_quota.take(*client.address.ip(), extra, now) {
            return false;
        }
        client.unverified_bytes_left -= bytes;
        client.prepaid_bytes = client.prepaid_bytes.saturating_sub(bytes);
        true
    }
}

/// The part of a datagram that is forwarded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ForwardDecision {
    Whole,
    /// Only what [`write_id_reply`] writes.
    IdOnly,
    Discard,
}

/// Writes the id of a client and the ACK of its request, without the rest of the datagram.
pub(crate) fn write_id_reply<'b>(buffer: &'b mut [u8], inbound: Inbound<'_>) -> Option<&'b [u8]> {
    let sender = PeerId(*inbound.wire.first()?);
    let mut writer = Writer::new(buffer, sender);
    let is_written = id_messages(inbound).all(|message| writer.push(message));
    writer.finish().filter(|_| is_written).map(|datagram| &*datagram)
}

/// Returns the length of the datagram that [`write_id_reply`] writes.
fn id_reply_len(inbound: Inbound<'_>) -> usize {
    DATAGRAM_HEADER + id_messages(inbound).map(Message::wire_len).sum::<usize>()
}

/// Returns the first control ACK and the first id, so that a datagram cannot hold many of them.
fn id_messages<'a>(inbound: Inbound<'a>) -> impl Iterator<Item = &'a Message<'a>> {
    let messages = inbound.content.datagram().map(ParsedDatagram::messages).unwrap_or_default();
    let is_ack = |message: &&Message<'_>| match message {
        Message::Ack(ack) => ack.id.channel == Channel::Control,
        Message::Control(_) | Message::Data(_) | Message::Keepalive => false,
    };
    let is_id = |message: &&Message<'_>| match message {
        Message::Control(Control { body: Body::ConnectReply { .. }, .. }) => true,
        Message::Control(_) | Message::Ack(_) | Message::Data(_) | Message::Keepalive => false,
    };
    messages.iter().find(is_ack).into_iter().chain(messages.iter().find(is_id))
}

/// Takes a token from a bucket with `rate` per second; 0 means no limit.
pub(crate) fn take_token(bucket: &mut TokenBucket, rate: u32, now: Time) -> Result<(), RefusalReason> {
    if rate == 0 || bucket.take(1, per_second(rate), now) { Ok(()) } else { Err(RefusalReason::Flood) }
}

pub(crate) const fn per_second(rate: u32) -> Rate {
    Rate::per_second(rate, rate)
}

/// Most players of one address at the same time, and most browsers: enough for a household.
pub const MAX_PER_ADDRESS: usize = 16;
/// Most clients of one /24 network: enough for a local network with friends.
pub const MAX_PER_NETWORK: usize = 64;
/// The rate of join requests of all addresses: 32 at once, then one every two seconds.
///
/// Above it, only requests of clients that ask again pass.
const JOIN_RATE: Rate = Rate::every(Duration::from_secs(2), 32);
/// Time in which a client must ask again. A stock client asks every second.
const RETRY_WINDOW: Duration = Duration::from_secs(5);
/// Most bytes to an unverified address in [`EXTRA_WINDOW`], beyond the bytes that the address sent.
///
/// This is enough to admit the players of a household.
const MAX_EXTRA_BYTES: u16 = 1200;
const EXTRA_WINDOW: Duration = Duration::from_secs(600);
const EXTRA_SLOTS: usize = 8192;
/// Bytes of an unverified client's limit that are reserved for its id: a reply alone has eight bytes.
const ID_RESERVE: usize = 16;
