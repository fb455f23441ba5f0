//! One client of a proxy: the state of its conversation and its end.

use std::net::SocketAddrV4;
use std::time::Duration;

use bcnet_observe::ParsedDatagram;
use bcnet_session::{MIN_REPLY_COST, TokenBucket};
use bcnet_transport::Time;
use bcnet_transport::wire::{Body, Channel, Control, Message, MessageId, PeerId, Seq};

use crate::gate::{JoinRequest, Presence};
use crate::goodbye::Goodbye;
use crate::healer::{HealCounters, Healer, Inbound, ProxyDirection};
use crate::output::UpstreamSource;

/// The progress of a player in the verification of its address (T-80).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ProofState {
    /// The server has its request and has not answered.
    Requested,
    /// The server has assigned an id, and the proxy has sent its cookie behind it.
    Offered,
    /// The server has assigned an id and has sent a cookie itself.
    OfferedByServer,
    /// The server has refused it.
    Refused,
    /// The client receives what is sent to its address.
    Verified,
}

/// One client and the state of its conversation.
#[derive(Debug)]
pub(crate) struct ProxyClient {
    pub(crate) address: SocketAddrV4,
    pub(crate) source: UpstreamSource,
    pub(crate) healer: Option<Box<Healer>>,
    /// The connect request of a player; `None` for a browser.
    pub(crate) request: Option<JoinRequest>,
    pub(crate) proof: ProofState,
    /// The id that the server assigned; `UNASSIGNED` before.
    pub(crate) id: PeerId,
    /// Cookies of the proxy, whose ACKs the server must not get, and cookies of the server.
    pub(crate) cookies: SentCookies,
    pub(crate) server_cookies: SentCookies,
    /// The time to repeat the offer of an id.
    pub(crate) next_offer: Option<Time>,
    /// The number of its next control message, for a goodbye in its place.
    pub(crate) next_control: Seq,
    /// The goodbye to the server. The client itself is forgotten.
    pub(crate) goodbye: Option<Goodbye>,
    pub(crate) created: Time,
    pub(crate) last_active: Time,
    /// Time of its last datagram.
    pub(crate) last_heard: Time,
    /// Time of its last datagram since a disconnect or boot passed; `None` if none has passed.
    pub(crate) left_at: Option<Time>,
    /// True if the server has sent it anything.
    pub(crate) answered: bool,
    /// Bytes that may be sent to it while unverified, or in answer to its last query. The second field is the part of
    /// them that its own bytes or its query cover.
    pub(crate) unverified_bytes_left: usize,
    pub(crate) prepaid_bytes: usize,
    pub(crate) rate_limiter: TokenBucket,
}

impl ProxyClient {
    pub(crate) fn new(
        address: SocketAddrV4,
        source: UpstreamSource,
        request: Option<JoinRequest>,
        rate_limiter: TokenBucket,
        now: Time,
    ) -> Self {
        Self {
            address,
            source,
            healer: None,
            request,
            proof: ProofState::Requested,
            id: PeerId::UNASSIGNED,
            cookies: SentCookies::default(),
            server_cookies: SentCookies::default(),
            next_offer: None,
            next_control: Seq(1),
            goodbye: None,
            created: now,
            last_active: now,
            last_heard: now,
            left_at: None,
            answered: false,
            unverified_bytes_left: 0,
            prepaid_bytes: 0,
            rate_limiter,
        }
    }

    pub(crate) const fn is_player(&self) -> bool {
        self.request.is_some()
    }

    pub(crate) fn is_verified(&self) -> bool {
        self.proof == ProofState::Verified
    }

    /// Returns whether the server may hold a slot for this player although its address may be forged.
    pub(crate) const fn is_under_way(&self) -> bool {
        self.is_player() && matches!(self.proof, ProofState::Requested | ProofState::Offered)
    }

    /// Returns whether another connect request from this address may replace this client (T-80).
    pub(crate) fn may_be_replaced(&self, now: Time) -> bool {
        match self.proof {
            ProofState::Refused => true,
            ProofState::Verified => self.left_at.is_some() || now.since(self.last_heard) >= MAX_SILENCE,
            ProofState::Requested | ProofState::Offered | ProofState::OfferedByServer => false,
        }
    }

    pub(crate) fn healed(&self, direction: ProxyDirection) -> HealCounters {
        self.healer.as_ref().map(|healer| healer.healed(direction)).unwrap_or_default()
    }

    /// Updates the byte limits of a browser whose query passes.
    pub(crate) const fn expect_answer(&mut self) {
        self.unverified_bytes_left = MAX_ANSWER_LEN;
        self.prepaid_bytes = MIN_REPLY_COST as usize;
    }

    /// Updates the byte limits of an unverified player with its datagram.
    pub(crate) fn credit(&mut self, bytes: usize) {
        self.unverified_bytes_left = MAX_AMPLIFICATION * bytes;
        self.prepaid_bytes = self.unverified_bytes_left.min(self.prepaid_bytes + bytes);
    }

    /// Records a datagram of the client. Returns whether it ends the conversation.
    pub(crate) fn on_client_datagram(
        &mut self,
        presence: Presence,
        last_control: Option<Seq>,
        now: Time,
    ) -> bool {
        (self.last_active, self.last_heard) = (now, now);
        if let Some(seq) = last_control
            && seq.distance_from(self.next_control) >= 0
        {
            self.next_control = seq.next();
        }
        let ends = presence == Presence::Leaves && self.left_at.is_none();
        // A disconnect may be forged: a client that plays on has not left. A client that has left is gone only when
        // it is silent: it repeats a disconnect that was lost between proxy and server.
        if presence == Presence::Plays {
            self.left_at = None;
        } else if ends || self.left_at.is_some() {
            self.left_at = Some(now);
        }
        ends
    }

    /// Records a datagram of the server. Returns whether it ends the conversation.
    pub(crate) fn on_server_datagram(&mut self, inbound: Inbound<'_>, now: Time) -> bool {
        self.answered = true;
        // The server's datagrams show that the client is there only after the client is verified.
        if self.is_verified() || !self.is_player() {
            self.last_active = now;
        }
        let parts = self.is_player() && self.left_at.is_none() && ends_session(self.id, inbound);
        if parts {
            self.left_at = Some(now);
        }
        parts
    }
}

/// The last two cookies that a client was sent.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct SentCookies {
    numbers: [Option<Seq>; 2],
    until: Time,
}

impl SentCookies {
    /// Adds a cookie. The last two are remembered.
    pub(crate) fn add(&mut self, number: Seq, now: Time) {
        self.until = now + COOKIE_MEMORY;
        let [last, _] = self.numbers;
        if last != Some(number) {
            self.numbers = [Some(number), last];
        }
    }

    /// Forgets the cookies after a while: the server's own messages may get these numbers later.
    pub(crate) fn expire(&mut self, now: Time) {
        if self.until <= now {
            self.numbers = [None; 2];
        }
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.numbers[0].is_none()
    }

    /// Returns the last cookie.
    pub(crate) const fn last(&self) -> Option<Seq> {
        self.numbers[0]
    }

    /// Returns whether an ACK acknowledges one of the cookies.
    pub(crate) fn are_acked_by(&self, id: MessageId) -> bool {
        id.channel == Channel::Game && id.fragment.is_none() && self.numbers.contains(&Some(id.seq))
    }
}

/// Returns the id that the server assigns with this datagram.
pub(crate) fn assigned_id(inbound: Inbound<'_>) -> Option<PeerId> {
    messages(inbound).iter().find_map(|message| match message {
        Message::Control(Control { body: Body::ConnectReply { assigned }, .. }) => {
            Some(*assigned).filter(|id| id.is_assignable())
        }
        Message::Control(_) | Message::Ack(_) | Message::Keepalive | Message::Data(_) => None,
    })
}

/// Returns the messages of a datagram; none of a malformed one.
pub(crate) fn messages<'a>(inbound: Inbound<'a>) -> &'a [Message<'a>] {
    inbound.content.datagram().map(ParsedDatagram::messages).unwrap_or_default()
}

/// Returns whether the server removes the client `own`, or ends the session (T-59).
///
/// Datagrams about other clients do not count.
fn ends_session(own: PeerId, inbound: Inbound<'_>) -> bool {
    let ends = |who| [own, PeerId::HOST, PeerId::UNASSIGNED].contains(&who);
    messages(inbound).iter().any(|message| match message {
        Message::Control(Control { body: Body::Disconnect { peer, .. }, .. }) => ends(*peer),
        Message::Control(Control { body: Body::Boot { target, .. }, .. }) => ends(*target),
        Message::Control(_) | Message::Ack(_) | Message::Keepalive | Message::Data(_) => false,
    })
}

/// Limit of bytes sent to an unverified client, as a multiple of its last datagram.
const MAX_AMPLIFICATION: usize = 3;
/// The longest answer to one query, in several datagrams.
const MAX_ANSWER_LEN: usize = 4096;
/// The silence after which a player may be gone (T-53): two and a half keepalive intervals.
pub(crate) const MAX_SILENCE: Duration = Duration::from_millis(12_500);
/// Stock sends the last of nine ACKs of a cookie within 30 seconds.
const COOKIE_MEMORY: Duration = Duration::from_secs(35);
