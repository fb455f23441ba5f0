//! Who may come in, and what is sent to an address that has proved nothing.
//!
//! Addresses may be forged. A client has proved itself when it uses the id that the server gave it; a forger has to guess
//! that, and a stock server's ids are not hard to guess, which nobody but the server can change.

use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::time::Duration;

use bcnet_session::{Asker, Bucket, Crowd, QueryLimiter, Rate, Recent, Shares, any_contains, is_answer};
use bcnet_transport::Time;

use crate::client::{Client, assigned};
use crate::heal::Inbound;
use crate::output::Refusal;
use crate::proxy::Config;

/// What is known of addresses, whoever is there.
#[derive(Debug)]
pub(crate) struct Admission {
    players: Crowd,
    browsers: Crowd,
    /// How many more each address may bring now. It has no entry while nobody of it is there.
    newcomers: HashMap<(Ipv4Addr, bool), Bucket>,
    /// Who asks to be let in, all addresses together.
    all: Bucket,
    asked: Recent,
    queries: QueryLimiter,
    list_servers: Vec<Ipv4Addr>,
    /// What addresses that have proved nothing are sent beyond what they have sent.
    extra: Shares,
}

impl Admission {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            players: Crowd::new(MAX_PER_ADDRESS, MAX_PER_NETWORK),
            browsers: Crowd::new(MAX_PER_ADDRESS, MAX_PER_NETWORK),
            newcomers: HashMap::new(),
            all: Bucket::new(NEWCOMERS, Time::ZERO),
            asked: Recent::new(ASKED_AGAIN, seed),
            queries: QueryLimiter::new(seed),
            list_servers: Vec::new(),
            extra: Shares::new(32, MAX_EXTRA, EXTRA_SPAN, EXTRA_PLACES, seed),
        }
    }

    pub(crate) fn set_list_servers(&mut self, addresses: Vec<Ipv4Addr>) {
        self.list_servers = addresses;
    }

    /// Returns whether a text of a browser or a list server may pass (S-05, S-07).
    pub(crate) fn ask(
        &mut self,
        config: &Config,
        from: Ipv4Addr,
        text: &[u8],
        now: Time,
    ) -> Result<(), Refusal> {
        if is_answer(text) {
            return Err(Refusal::Answer);
        }
        let asker = self.asker(config, from);
        self.queries.ask(asker, from, config.query_rate, now).then_some(()).ok_or(Refusal::Queries)
    }

    /// Returns whether `to` may be sent an answer of so many bytes (S-07).
    pub(crate) fn may_hear(&mut self, config: &Config, to: Ipv4Addr, bytes: usize, now: Time) -> bool {
        let asker = self.asker(config, to);
        self.queries.spend(asker, to, bytes, now)
    }

    fn asker(&self, config: &Config, who: Ipv4Addr) -> Asker {
        if any_contains(&config.trusted, who) {
            Asker::Trusted
        } else if self.list_servers.contains(&who) {
            Asker::ListServer
        } else {
            Asker::Anyone
        }
    }

    /// Somebody new asks to be let in. Returns whether it has asked before, which forgers of addresses do not.
    pub(crate) fn request(&mut self, config: &Config, from: Ipv4Addr, now: Time) -> Result<bool, Refusal> {
        self.check_share(config, from, true, now)?;
        let again = self.asked.note(from, now);
        let is_heard = self.all.take(1, NEWCOMERS, now) || again || any_contains(&config.trusted, from);
        if is_heard { Ok(again) } else { Err(Refusal::Busy) }
    }

    /// Returns whether one more of an address and its network may be there.
    pub(crate) fn check_share(
        &mut self,
        config: &Config,
        from: Ipv4Addr,
        player: bool,
        now: Time,
    ) -> Result<(), Refusal> {
        if let Some(bucket) = self.newcomers.get_mut(&(from, player)) {
            take(bucket, config.rate, now)?;
        }
        let crowd = if player { &self.players } else { &self.browsers };
        let has_room = match any_contains(&config.trusted, from) {
            true => crowd.of_address(from) < MAX_PER_ADDRESS,
            false => crowd.has_room(from),
        };
        if has_room { Ok(()) } else { Err(Refusal::AddressFull) }
    }

    /// A client is let in. `bucket` is what it may still send.
    pub(crate) fn enter(&mut self, from: Ipv4Addr, player: bool, bucket: Bucket) {
        self.crowd(player).enter(from);
        self.newcomers.entry((from, player)).or_insert(bucket);
    }

    pub(crate) fn leave(&mut self, from: Ipv4Addr, player: bool) {
        self.crowd(player).leave(from);
        if self.crowd(player).of_address(from) == 0 {
            self.newcomers.remove(&(from, player));
        }
    }

    fn crowd(&mut self, player: bool) -> &mut Crowd {
        if player { &mut self.players } else { &mut self.browsers }
    }

    /// Returns whether a client may be sent a datagram of the server. One that has proved nothing has at most three times
    /// the bytes of its last datagram, and beyond its own bytes only little in a long time. Of that little the datagram
    /// that gives it its id may take all, since a stock server puts the names of all players into it.
    pub(crate) fn may_receive(
        &mut self,
        config: &Config,
        client: &mut Client,
        inbound: Inbound<'_>,
        now: Time,
    ) -> bool {
        let (address, bytes) = (*client.address.ip(), inbound.wire.len());
        if client.proved || any_contains(&config.trusted, address) {
            return true;
        }
        let is_reply = assigned(inbound).is_some();
        // An acknowledged game does not ask again, so there must always be room for its id.
        let reserve = if is_reply { 0 } else { RESERVE };
        if client.room < bytes + reserve && !is_reply {
            return false;
        }
        let unpaid = bytes.saturating_sub(client.credit);
        let is_paid =
            unpaid == 0 || u16::try_from(unpaid).is_ok_and(|unpaid| self.extra.take(address, unpaid, now));
        if is_paid || is_reply && bytes <= RESERVE {
            client.room = client.room.saturating_sub(bytes);
            client.credit = client.credit.saturating_sub(bytes);
            return true;
        }
        false
    }
}

/// Counts something that may happen `rate` times a second; 0 is any number.
pub(crate) fn take(bucket: &mut Bucket, rate: u32, now: Time) -> Result<(), Refusal> {
    if rate == 0 || bucket.take(1, per_second(rate), now) { Ok(()) } else { Err(Refusal::Flood) }
}

pub(crate) const fn per_second(rate: u32) -> Rate {
    Rate::per_second(rate, rate)
}

/// As many players of one address may be there at the same time, and as many browsers: a household, not a flood.
pub const MAX_PER_ADDRESS: usize = 16;
/// The same for a /24 network: a local network with friends.
pub const MAX_PER_NETWORK: usize = 64;
/// Players who ask to be let in at once, and one more in this time; beyond that who asks again.
const NEWCOMERS: Rate = Rate::every(Duration::from_secs(2), 32);
/// A client asks every second.
const ASKED_AGAIN: Duration = Duration::from_secs(5);
/// Bytes beyond its own, in this time: enough for the players of a household to be let in.
const MAX_EXTRA: u16 = 1200;
const EXTRA_SPAN: Duration = Duration::from_secs(600);
const EXTRA_PLACES: usize = 8192;
/// What a client that has proved nothing is not sent of its room, but for its id: a reply alone has eight bytes.
const RESERVE: usize = 16;
