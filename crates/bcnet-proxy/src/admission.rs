//! Who may come in, and what is sent to an address that has proved nothing.
//!
//! Addresses may be forged. A client has proved itself when it uses the id that the server gave it; a forger has to guess
//! that, and a stock server's ids are not hard to guess, which nobody but the server can change.

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

/// What is known of addresses, whoever is there.
#[derive(Debug)]
pub(crate) struct ProxyAdmission {
    players: AddressLimiter,
    browsers: AddressLimiter,
    /// How many more each address may bring now. It has no entry while nobody of it is there.
    address_limiters: HashMap<(Ipv4Addr, bool), TokenBucket>,
    /// Who asks to be let in, all addresses together.
    join_limiter: TokenBucket,
    recent_requests: BloomFilter,
    queries: QueryLimiter,
    list_servers: Vec<Ipv4Addr>,
    /// What addresses that have proved nothing are sent beyond what they have sent.
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

    /// Returns whether a text of a browser or a list server may pass (S-05, S-07).
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
        self.queries
            .allow_query(asker, from, config.query_rate, now)
            .then_some(())
            .ok_or(RefusalReason::QueryLimit)
    }

    /// Returns whether `to` may be sent an answer of so many bytes (S-07).
    pub(crate) fn may_answer(&mut self, config: &ProxyConfig, to: Ipv4Addr, bytes: usize, now: Time) -> bool {
        let asker = self.querier(config, to);
        self.queries.allow_reply(asker, to, bytes, now)
    }

    fn querier(&self, config: &ProxyConfig, who: Ipv4Addr) -> QueryOrigin {
        if any_contains(&config.trusted, who) {
            QueryOrigin::Trusted
        } else if self.list_servers.contains(&who) {
            QueryOrigin::ListServer
        } else {
            QueryOrigin::Unverified
        }
    }

    /// Somebody new asks to be let in. Returns whether it has asked before, which forgers of addresses do not.
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

    /// Returns whether one more of an address and its network may be there.
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

    /// A client is let in. `bucket` is what it may still send.
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

    /// Returns how much of a datagram of the server a client is sent. One that has proved nothing has at most three times
    /// the bytes of its last datagram, and beyond its own bytes only little in a long time. A stock server puts the names
    /// of all players into the datagram that gives it its id: if that is too long the id comes alone. The server repeats
    /// the names, by when the client has proved itself.
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
        // An acknowledged game does not ask again, so there must always be room for its id.
        let reserve = if is_reply { 0 } else { ID_RESERVE };
        if self.charge(client, inbound.wire.len(), reserve, now) {
            return ForwardDecision::Whole;
        }
        if is_reply && self.charge(client, id_reply_len(inbound), 0, now) {
            return ForwardDecision::IdOnly;
        }
        ForwardDecision::Discard
    }

    /// Returns whether a client that has proved nothing may be sent so many bytes. What it has not paid for with its own
    /// is taken from the little that its address has beyond that.
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

/// How much of a datagram passes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ForwardDecision {
    Whole,
    /// What [`write_id`] writes.
    IdOnly,
    Discard,
}

/// Writes what is left of a datagram that gives a client its id: that, and the ACK of its request.
pub(crate) fn write_id_reply<'b>(buffer: &'b mut [u8], inbound: Inbound<'_>) -> Option<&'b [u8]> {
    let sender = PeerId(*inbound.wire.first()?);
    let mut writer = Writer::new(buffer, sender);
    let is_written = id_messages(inbound).all(|message| writer.push(message));
    writer.finish().filter(|_| is_written).map(|datagram| &*datagram)
}

/// Returns how many bytes that are.
fn id_reply_len(inbound: Inbound<'_>) -> usize {
    DATAGRAM_HEADER + id_messages(inbound).map(Message::wire_len).sum::<usize>()
}

/// Returns the first ACK of a control message and the first id: nobody can make them many.
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

/// Counts something that may happen `rate` times a second; 0 is any number.
pub(crate) fn take_token(bucket: &mut TokenBucket, rate: u32, now: Time) -> Result<(), RefusalReason> {
    if rate == 0 || bucket.take(1, per_second(rate), now) { Ok(()) } else { Err(RefusalReason::Flood) }
}

pub(crate) const fn per_second(rate: u32) -> Rate {
    Rate::per_second(rate, rate)
}

/// As many players of one address may be there at the same time, and as many browsers: a household, not a flood.
pub const MAX_PER_ADDRESS: usize = 16;
/// The same for a /24 network: a local network with friends.
pub const MAX_PER_NETWORK: usize = 64;
/// Players who ask to be let in at once, and one more in this time; beyond that who asks again.
const JOIN_RATE: Rate = Rate::every(Duration::from_secs(2), 32);
/// A client asks every second.
const RETRY_WINDOW: Duration = Duration::from_secs(5);
/// Bytes beyond its own, in this time: enough for the players of a household to be let in.
const MAX_EXTRA_BYTES: u16 = 1200;
const EXTRA_WINDOW: Duration = Duration::from_secs(600);
const EXTRA_SLOTS: usize = 8192;
/// What a client that has proved nothing is not sent of its room, but for its id: a reply alone has eight bytes.
const ID_RESERVE: usize = 16;
