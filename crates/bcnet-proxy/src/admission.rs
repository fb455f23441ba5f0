//! Who may come in, and what is sent to an address that has proved nothing.
//!
//! Addresses may be forged. A client has proved itself when it uses the id that the server gave it; a forger has to guess
//! that, and a stock server's ids are not hard to guess, which nobody but the server can change.

use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::time::Duration;

use bcnet_observe::Parsed;
use bcnet_session::{Asker, Bucket, Crowd, QueryLimiter, Rate, Recent, Shares, any_contains, is_answer};
use bcnet_transport::Time;
use bcnet_transport::wire::{Body, Channel, Control, DATAGRAM_HEADER, Message, PeerId, Writer};

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

    /// Returns how much of a datagram of the server a client is sent. One that has proved nothing has at most three times
    /// the bytes of its last datagram, and beyond its own bytes only little in a long time. A stock server puts the names
    /// of all players into the datagram that gives it its id: if that is too long the id comes alone. The server repeats
    /// the names, by when the client has proved itself.
    pub(crate) fn passage(
        &mut self,
        config: &Config,
        client: &mut Client,
        inbound: Inbound<'_>,
        now: Time,
    ) -> Passage {
        if client.proved || any_contains(&config.trusted, *client.address.ip()) {
            return Passage::Whole;
        }
        let is_reply = assigned(inbound).is_some();
        // An acknowledged game does not ask again, so there must always be room for its id.
        let reserve = if is_reply { 0 } else { RESERVE };
        if self.pay(client, inbound.wire.len(), reserve, now) {
            return Passage::Whole;
        }
        if is_reply && self.pay(client, short_len(inbound), 0, now) {
            return Passage::Id;
        }
        Passage::Nothing
    }

    /// Returns whether a client that has proved nothing may be sent so many bytes. What it has not paid for with its own
    /// is taken from the little that its address has beyond that.
    fn pay(&mut self, client: &mut Client, bytes: usize, reserve: usize, now: Time) -> bool {
        if client.room < bytes + reserve {
            return false;
        }
        let unpaid = (bytes + reserve).saturating_sub(client.credit);
        let extra = u16::try_from(unpaid).unwrap_or(u16::MAX);
        if unpaid > 0 && !self.extra.take(*client.address.ip(), extra, now) {
            return false;
        }
        client.room -= bytes;
        client.credit = client.credit.saturating_sub(bytes);
        true
    }
}

/// How much of a datagram passes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Passage {
    Whole,
    /// What [`write_id`] writes.
    Id,
    Nothing,
}

/// Writes what is left of a datagram that gives a client its id: that, and the ACK of its request.
pub(crate) fn write_id<'b>(buffer: &'b mut [u8], inbound: Inbound<'_>) -> Option<&'b [u8]> {
    let sender = PeerId(*inbound.wire.first()?);
    let mut writer = Writer::new(buffer, sender);
    let is_written = id_messages(inbound).all(|message| writer.push(message));
    writer.finish().filter(|_| is_written).map(|datagram| &*datagram)
}

/// Returns how many bytes that are.
fn short_len(inbound: Inbound<'_>) -> usize {
    DATAGRAM_HEADER + id_messages(inbound).map(Message::wire_len).sum::<usize>()
}

/// Returns the first ACK of a control message and the first id: nobody can make them many.
fn id_messages<'a>(inbound: Inbound<'a>) -> impl Iterator<Item = &'a Message<'a>> {
    let messages = inbound.content.datagram().map(Parsed::messages).unwrap_or_default();
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
