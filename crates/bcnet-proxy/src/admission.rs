//! Limits of clients by address, and the byte limits of unverified addresses.
//!
//! A source address may be forged. `bcnet_transport::AddressVerifier` verifies it; this module limits what an
//! address gets before that.

use std::collections::{HashMap, VecDeque};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::Duration;

use bcnet_session::{
    AddressLimiter, BloomFilter, QueryLimiter, QueryOrigin, Quotas, Rate, TokenBucket, any_contains, is_reply,
};
use bcnet_transport::wire::{
    Ack, Body, Channel, Control, DATAGRAM_HEADER, Message, MessageId, PeerId, Seq, Writer,
};
use bcnet_transport::{Time, cookie_message};

use crate::client::{ProxyClient, assigned_id, messages};
use crate::healer::Inbound;
use crate::output::RefusalReason;
use crate::proxy::{MAX_OWN_LEN, ProxyConfig};

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
    /// Addresses that wait for a place and have acknowledged a cookie without an id.
    preferred: VecDeque<(SocketAddrV4, Time)>,
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
            preferred: VecDeque::new(),
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

    /// Deducts an answer to a query that passed [`check_query`](Self::check_query) (S-07).
    ///
    /// `prepaid` bytes of it were counted with the query.
    pub(crate) fn charge_answer(
        &mut self,
        config: &ProxyConfig,
        to: Ipv4Addr,
        (bytes, prepaid): (usize, usize),
        now: Time,
    ) {
        let asker = self.querier(config, to);
        let unpaid = u32::try_from(bytes.saturating_sub(prepaid)).unwrap_or(u32::MAX);
        self.queries.charge(asker, to, unpaid, config.query_rate, now);
    }

    /// Returns whether an answer may be sent to a browser, and deducts it.
    ///
    /// The query was checked, so an answer is limited only in length.
    pub(crate) fn may_answer(
        &mut self,
        config: &ProxyConfig,
        client: &mut ProxyClient,
        bytes: usize,
        now: Time,
    ) -> bool {
        let to = *client.address.ip();
        if any_contains(&config.trusted, to) {
            return true;
        }
        let Some(left) = client.unverified_bytes_left.checked_sub(bytes) else { return false };
        client.unverified_bytes_left = left;
        self.charge_answer(config, to, (bytes, client.prepaid_bytes), now);
        client.prepaid_bytes = client.prepaid_bytes.saturating_sub(bytes);
        true
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

    /// Checks a join request of a new client.
    pub(crate) fn check_join(
        &mut self,
        config: &ProxyConfig,
        from: SocketAddrV4,
        now: Time,
    ) -> Result<JoinPriority, RefusalReason> {
        let ip = *from.ip();
        self.check_address_limits(config, ip, true, now)?;
        let again = self.recent_requests.check_and_insert(ip, now);
        self.preferred.retain(|(_, since)| now.since(*since) < PREFERRED_FOR);
        let is_preferred = self.is_preferred(from, now);
        let is_heard = self.join_limiter.take(1, JOIN_RATE, now)
            || again
            || is_preferred
            || any_contains(&config.trusted, ip);
        match is_heard {
            true if is_preferred => Ok(JoinPriority::Preferred),
            true if !self.preferred.is_empty() => Ok(JoinPriority::Behind),
            true if again => Ok(JoinPriority::Again),
            true => Ok(JoinPriority::First),
            false => Err(RefusalReason::Busy),
        }
    }

    /// Prefers a client that receives what is sent to its address. Its next request may take the last place.
    pub(crate) fn prefer(&mut self, from: SocketAddrV4, now: Time) {
        self.preferred.retain(|(address, _)| *address != from);
        let same = self.preferred.iter().filter(|(address, _)| address.ip() == from.ip()).count();
        if self.preferred.len() < MAX_PREFERRED && same < MAX_PREFERRED_PER_ADDRESS {
            self.preferred.push_back((from, now));
        }
    }

    /// Returns whether a client has shown lately that it receives what is sent to its address.
    pub(crate) fn is_preferred(&self, from: SocketAddrV4, now: Time) -> bool {
        self.preferred.iter().any(|(address, since)| *address == from && now.since(*since) < PREFERRED_FOR)
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
    pub(crate) fn on_admitted(&mut self, from: SocketAddrV4, player: bool, bucket: TokenBucket) {
        self.preferred.retain(|(address, _)| *address != from);
        self.counts(player).add(*from.ip());
        self.address_limiters.entry((*from.ip(), player)).or_insert(bucket);
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

    /// Decides how much of a server's datagram is sent to an unverified client. `cookie` is to follow it.
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
        cookie: Option<Seq>,
        now: Time,
    ) -> ForwardDecision {
        let is_reply = assigned_id(inbound).is_some();
        // A client with this ACK does not repeat its request, so it gets the ACK only with its id.
        if !is_reply && messages(inbound).iter().any(is_request_ack) && !refuses(inbound) {
            return ForwardDecision::Discard;
        }
        let len = inbound.wire.len() + cookie.map_or(0, |number| cookie_message(number).wire_len());
        let fits = cookie.is_none() || len <= MAX_OWN_LEN;
        let is_trusted = any_contains(&config.trusted, *client.address.ip());
        let reserve = if is_reply { 0 } else { ID_RESERVE };
        if fits && (is_trusted || self.charge(client, len, reserve, now)) {
            return ForwardDecision::Whole;
        }
        if is_reply && (is_trusted || self.charge(client, OFFER_LEN, 0, now)) {
            return ForwardDecision::IdOnly;
        }
        ForwardDecision::Discard
    }

    /// Decides how much of its offer an unverified client gets again.
    ///
    /// This is the id with the cookie, or the cookie alone.
    pub(crate) fn decide_repeat(
        &mut self,
        config: &ProxyConfig,
        client: &mut ProxyClient,
        now: Time,
    ) -> ForwardDecision {
        let is_trusted = any_contains(&config.trusted, *client.address.ip());
        if is_trusted || self.charge(client, OFFER_LEN, 0, now) {
            ForwardDecision::Whole
        } else if self.may_repeat_cookie(config, client, now) {
            ForwardDecision::CookieOnly
        } else {
            ForwardDecision::Discard
        }
    }

    /// Returns whether an unverified client may get a cookie again.
    pub(crate) fn may_repeat_cookie(
        &mut self,
        config: &ProxyConfig,
        client: &mut ProxyClient,
        now: Time,
    ) -> bool {
        any_contains(&config.trusted, *client.address.ip()) || self.charge(client, COOKIE_LEN, 0, now)
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

/// The rank of a join request while other clients are under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum JoinPriority {
    /// The client has not asked before.
    First,
    /// The client has asked before: most forgers do not ask again.
    Again,
    /// Clients that have acknowledged a cookie wait, and this one has not.
    Behind,
    /// The client has acknowledged a cookie.
    Preferred,
}

/// The part of a datagram that is forwarded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ForwardDecision {
    Whole,
    /// Only the id: what [`write_offer`] writes.
    IdOnly,
    /// Only what [`write_cookie`] writes.
    CookieOnly,
    Discard,
}

/// Writes the offer of an id as a bcnet host does (T-75).
///
/// It has the ACK of the request, the id, and the cookie if there is one.
pub(crate) fn write_offer(buffer: &mut [u8], id: PeerId, cookie: Option<Seq>) -> Option<&[u8]> {
    let mut writer = Writer::new(buffer, PeerId::HOST);
    let reply = Control::new(Seq(0), Body::ConnectReply { assigned: id });
    let is_written = writer.push(&Message::Ack(Ack::new(REQUEST)))
        && writer.push(&Message::Control(reply))
        && cookie.is_none_or(|number| writer.push(&cookie_message(number)));
    writer.finish().filter(|_| is_written).map(|datagram| &*datagram)
}

/// Writes a cookie alone.
pub(crate) fn write_cookie(buffer: &mut [u8], number: Seq) -> Option<&[u8]> {
    let mut writer = Writer::new(buffer, PeerId::HOST);
    let is_written = writer.push(&cookie_message(number));
    writer.finish().filter(|_| is_written).map(|datagram| &*datagram)
}

/// Writes a cookie behind the messages of a plaintext datagram.
pub(crate) fn write_with_cookie(buffer: &mut Vec<u8>, plain: &[u8], number: Seq) -> bool {
    let mut alone = [0; DATAGRAM_HEADER + 8];
    let Some(bytes) = write_cookie(&mut alone, number).and_then(|bytes| bytes.get(DATAGRAM_HEADER..)) else {
        return false;
    };
    buffer.clear();
    buffer.extend_from_slice(plain);
    buffer.extend_from_slice(bytes);
    let count = buffer.get_mut(1).and_then(|count| Some((count.checked_add(1)?, count)));
    let Some((more, count)) = count else { return false };
    *count = more;
    buffer.len() <= MAX_OWN_LEN
}

fn is_request_ack(message: &Message<'_>) -> bool {
    matches!(message, Message::Ack(ack) if ack.id == REQUEST)
}

/// Returns whether a server's datagram refuses a client without an id (T-54).
pub(crate) fn refuses(inbound: Inbound<'_>) -> bool {
    messages(inbound).iter().any(|message| match message {
        Message::Control(Control { body: Body::Boot { target, .. }, .. }) => *target == PeerId::UNASSIGNED,
        Message::Control(_) | Message::Ack(_) | Message::Data(_) | Message::Keepalive => false,
    })
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
/// The time for which a client that has acknowledged a cookie is preferred. It asks every second.
const PREFERRED_FOR: Duration = Duration::from_millis(2_500);
const MAX_PREFERRED: usize = 32;
const MAX_PREFERRED_PER_ADDRESS: usize = 4;
/// The first message of a client: its connect request.
const REQUEST: MessageId = MessageId { channel: Channel::Control, seq: Seq(0), fragment: None };
/// The length of an offer with a cookie, and of the shortest connect request.
const OFFER_LEN: usize = 17;
const COOKIE_LEN: usize = 7;
/// Bytes of an unverified client's limit that are reserved for its id: a reply alone has eight bytes.
const ID_RESERVE: usize = 16;
