//! The way of a datagram through the proxy: the checks of [T-80], the proof, and healing.
//!
//! [T-80]: bcnet_transport::wire::protocol#t-80

use std::net::SocketAddrV4;
use std::time::Duration;

use bcnet_session::any_contains;
use bcnet_transport::wire::{Body, BootReason, Control, Message, PeerId, Seq, Writer};
use bcnet_transport::{ProofPolicy, Time, acks_a_cookie, cookie_in};

use crate::admission::{ForwardDecision, refuses, take_token, write_cookie, write_offer, write_with_cookie};
use crate::client::{ProofState, ProxyClient, assigned_id, messages};
use crate::gate::{self, ClientDatagram, JoinRequest, Presence};
use crate::healer::{Inbound, OutboundBytes, ProxyDirection, copy_without};
use crate::output::{DatagramTarget, ProxyEvent, ProxyOutput, RefusalReason};
use crate::proxy::{MAX_OWN_LEN, Proxy};
use crate::sources::LINGER;

/// The decision about a datagram of a client.
#[derive(Debug, Clone, Copy)]
enum Accepted {
    /// Forward it.
    Whole(u32),
    /// Forward it without the ACKs that are not for the server.
    WithoutAcks(u32),
    /// Answer the client with the proxy's own buffer, and forward nothing.
    Answer,
    /// Forward nothing.
    Nothing,
}

impl Proxy {
    /// Handles a datagram of a client from the listening socket.
    pub fn handle_client<'a>(
        &'a mut self,
        from: SocketAddrV4,
        inbound: Inbound<'a>,
        now: Time,
    ) -> ProxyOutput<'a> {
        match self.accept(from, inbound, now) {
            Ok(Accepted::Whole(number)) => self.forward_to_server(number, inbound, now),
            Ok(Accepted::WithoutAcks(number)) => self.forward_without_acks(number, inbound, now),
            Ok(Accepted::Answer) => {
                let answer = OutboundBytes::Plaintext(&self.own_buffer);
                ProxyOutput { answer: Some((DatagramTarget::Client(from), answer)), ..ProxyOutput::default() }
            }
            Ok(Accepted::Nothing) => ProxyOutput::default(),
            Err(refusal) => self.refuse(from, inbound, refusal, now),
        }
    }

    /// Handles a datagram of the server that arrived at a source.
    pub fn handle_server<'a>(&'a mut self, source: u32, inbound: Inbound<'a>, now: Time) -> ProxyOutput<'a> {
        let Some(client) = self.clients.get_mut(source as usize).and_then(Option::as_mut) else {
            return ProxyOutput::default();
        };
        if let Some(goodbye) = &mut client.goodbye {
            let is_done = goodbye.on_server_datagram(inbound, now);
            self.retransmit_timers.set(source, goodbye.next_send());
            if is_done {
                self.close_client(source as usize);
            }
            return ProxyOutput::default();
        }
        if !client.is_player() {
            if !self.admission.may_answer(&self.config, client, inbound.wire.len(), now) {
                return self.discard(RefusalReason::QueryLimit);
            }
        } else if !client.is_verified() {
            return self.forward_to_unverified(source, inbound, now);
        }
        self.forward_to_client(source, inbound, now)
    }

    /// Decides about a datagram of a client. A connect request or a query may open a source.
    fn accept(
        &mut self,
        from: SocketAddrV4,
        inbound: Inbound<'_>,
        now: Time,
    ) -> Result<Accepted, RefusalReason> {
        if any_contains(&self.config.bans, *from.ip()) {
            return Err(RefusalReason::Banned);
        }
        let player = !inbound.is_gamespy_text();
        if !player {
            self.admission.check_query(&self.config, *from.ip(), inbound.wire, now)?;
        }
        let known = self.by_address.get(&(from, player)).copied();
        if let Some(number) = known {
            self.check_rate(number, now)?;
        }
        match known {
            Some(number) if player => self.accept_player(number, inbound, now),
            None if player => self.accept_newcomer(from, inbound, now),
            _ => {
                let number = known.map_or_else(|| self.open_browser(from, now), Ok)?;
                if let Some(Some(browser)) = self.clients.get_mut(number as usize) {
                    browser.expect_answer();
                }
                Ok(Accepted::Whole(number))
            }
        }
    }

    /// Decides about a datagram of an address without a player.
    fn accept_newcomer(
        &mut self,
        from: SocketAddrV4,
        inbound: Inbound<'_>,
        now: Time,
    ) -> Result<Accepted, RefusalReason> {
        let datagram = inbound.content.datagram().ok_or(RefusalReason::NotConnected)?.datagram();
        let acks_cookie = self.verifier.acks_newcomer_cookie(from, datagram, now);
        if acks_cookie {
            self.admission.prefer(from, now);
        }
        match gate::join_request(inbound) {
            Some(request) => Ok(Accepted::WithoutAcks(self.open_player(from, request, now)?)),
            None if acks_cookie => Ok(Accepted::Nothing),
            None => Err(RefusalReason::NotConnected),
        }
    }

    /// Decides about a datagram of a player.
    fn accept_player(
        &mut self,
        number: u32,
        inbound: Inbound<'_>,
        now: Time,
    ) -> Result<Accepted, RefusalReason> {
        let Some(client) = self.clients.get_mut(number as usize).and_then(Option::as_mut) else {
            return Err(RefusalReason::NotConnected);
        };
        let checked = gate::check(inbound, client.id, self.config.drop_malformed);
        let datagram = inbound.content.datagram();
        let from = client.address;
        if datagram.is_some_and(|datagram| self.verifier.acks_newcomer_cookie(from, datagram.datagram(), now))
        {
            self.admission.prefer(from, now);
        }
        if client.proof == ProofState::Offered {
            return self.accept_offered(number, inbound, checked, now);
        }
        match (checked?, client.proof) {
            (ClientDatagram::Traffic { presence, last_control }, ProofState::Verified) => {
                if client.on_client_datagram(presence, last_control, now) {
                    self.expiry_timers.set(number, Some(now + LINGER));
                }
                client.cookies.expire(now);
                let is_whole = client.cookies.is_empty();
                Ok(if is_whole { Accepted::Whole(number) } else { Accepted::WithoutAcks(number) })
            }
            (ClientDatagram::Traffic { presence, last_control }, _) => {
                client.credit(inbound.wire.len());
                if self.config.proof_policy != ProofPolicy::Id
                    && client.proof == ProofState::OfferedByServer
                    && !acks_any_cookie(inbound)
                {
                    return self.repeat_cookie_of_server(number, now);
                }
                client.on_client_datagram(presence, last_control, now);
                if acks_cookie(client, inbound) {
                    self.on_verified(number, now);
                }
                Ok(Accepted::Whole(number))
            }
            (ClientDatagram::Withdrawal, ProofState::Refused) => {
                client.on_client_datagram(Presence::Leaves, None, now);
                Ok(Accepted::WithoutAcks(number))
            }
            (ClientDatagram::Withdrawal, _) => Err(RefusalReason::NotConnected),
            (ClientDatagram::Request(request), ProofState::Requested | ProofState::OfferedByServer)
                if client.request == Some(request) =>
            {
                client.on_client_datagram(Presence::Unknown, None, now);
                Ok(Accepted::WithoutAcks(number))
            }
            (ClientDatagram::Request(request), _) if client.may_be_replaced(now) => {
                self.replace_player(number, request, now)
            }
            (ClientDatagram::Request(_), ProofState::Verified) => Err(RefusalReason::Active),
            (ClientDatagram::Request(_), _) => Err(RefusalReason::Busy),
        }
    }

    /// Opens another source for the address of a player that has left or is silent.
    ///
    /// The request and the disconnect before it may be forged. So a verified player is replaced only if the address
    /// has acknowledged a cookie.
    fn replace_player(
        &mut self,
        number: u32,
        request: JoinRequest,
        now: Time,
    ) -> Result<Accepted, RefusalReason> {
        let client = self.clients.get(number as usize).and_then(Option::as_ref);
        let client = client.ok_or(RefusalReason::NotConnected)?;
        let (from, is_verified) = (client.address, client.is_verified());
        if is_verified && !self.admission.is_preferred(from, now) {
            return Err(RefusalReason::Busy);
        }
        if is_verified {
            self.start_goodbye(number, now);
        } else {
            self.close_client(number as usize);
        }
        Ok(Accepted::WithoutAcks(self.open_player(from, request, now)?))
    }

    /// Answers a player that uses its id without an ACK of a cookie.
    ///
    /// A server may take the id for the proof while it sees no guesses at other ids. The proxy drops those guesses.
    fn repeat_cookie_of_server(&mut self, number: u32, now: Time) -> Result<Accepted, RefusalReason> {
        let client = self.clients.get_mut(number as usize).and_then(Option::as_mut);
        let client = client.ok_or(RefusalReason::NotConnected)?;
        client.on_client_datagram(Presence::Unknown, None, now);
        let cookie = client.server_cookies.last().ok_or(RefusalReason::Unverified)?;
        if !self.admission.may_repeat_cookie(&self.config, client, now) {
            return Err(RefusalReason::Unverified);
        }
        Ok(self.answer_with(|buffer| write_cookie(buffer, cookie)))
    }

    /// Decides about a datagram of a player whose proof is under way. The server gets nothing before the proof.
    fn accept_offered(
        &mut self,
        number: u32,
        inbound: Inbound<'_>,
        checked: Result<ClientDatagram, RefusalReason>,
        now: Time,
    ) -> Result<Accepted, RefusalReason> {
        let Some(client) = self.clients.get_mut(number as usize).and_then(Option::as_mut) else {
            return Err(RefusalReason::NotConnected);
        };
        client.credit(inbound.wire.len());
        let from = client.address;
        match checked {
            Ok(ClientDatagram::Request(request)) if client.request == Some(request) => {
                let is_written = self.write_repeated_offer(number, now);
                Ok(if is_written { Accepted::Answer } else { Accepted::Nothing })
            }
            Ok(ClientDatagram::Request(_)) => Err(RefusalReason::Busy),
            Ok(ClientDatagram::Withdrawal) => Err(RefusalReason::NotConnected),
            // A wrong id counts as an attack.
            Ok(ClientDatagram::Traffic { .. }) | Err(RefusalReason::ForeignId) => {
                let Some(datagram) = inbound.content.datagram() else { return Err(RefusalReason::Malformed) };
                let policy = self.config.proof_policy;
                let is_verified = self.verifier.is_verified_by(from, datagram.datagram(), policy, now);
                if let (true, Ok(ClientDatagram::Traffic { presence, last_control })) = (is_verified, checked)
                {
                    client.on_client_datagram(presence, last_control, now);
                    self.on_verified(number, now);
                    return Ok(Accepted::WithoutAcks(number));
                }
                match self.verifier.poll_cookie() {
                    Some((_, cookie)) => {
                        client.cookies.add(cookie, now);
                        Ok(self.answer_with(|buffer| write_cookie(buffer, cookie)))
                    }
                    None => Err(checked.err().unwrap_or(RefusalReason::Unverified)),
                }
            }
            Err(refusal) => Err(refusal),
        }
    }

    fn on_verified(&mut self, number: u32, now: Time) {
        let Some(client) = self.clients.get_mut(number as usize).and_then(Option::as_mut) else { return };
        client.proof = ProofState::Verified;
        client.next_offer = None;
        (client.last_active, client.last_heard) = (now, now);
        if let Some(healer) = &mut client.healer {
            healer.allow_retransmissions();
        }
        let next = client.healer.as_ref().and_then(|healer| healer.next_timeout());
        self.retransmit_timers.set(number, next);
        self.events.push_back(ProxyEvent::Verified { client: client.address, source: client.source });
        if let Some(Some(client)) = self.clients.get(number as usize) {
            self.expiry_timers.set(number, Some(self.expires_at(client)));
        }
    }

    /// Writes the offer of a client again, as far as its byte limits allow. Returns whether it wrote anything.
    pub(crate) fn write_repeated_offer(&mut self, number: u32, now: Time) -> bool {
        let Some(client) = self.clients.get_mut(number as usize).and_then(Option::as_mut) else {
            return false;
        };
        let id = client.id;
        let Some(cookie) = self.verifier.offer(id, client.address, now) else { return false };
        client.cookies.add(cookie, now);
        let written = match self.admission.decide_repeat(&self.config, client, now) {
            ForwardDecision::Whole | ForwardDecision::IdOnly => {
                self.answer_with(|buffer| write_offer(buffer, id, Some(cookie)))
            }
            ForwardDecision::CookieOnly => self.answer_with(|buffer| write_cookie(buffer, cookie)),
            ForwardDecision::Discard => Accepted::Nothing,
        };
        matches!(written, Accepted::Answer)
    }

    /// Writes an answer to a client into the proxy's own buffer.
    fn answer_with(&mut self, write: impl FnOnce(&mut [u8]) -> Option<&[u8]>) -> Accepted {
        self.own_buffer.resize(MAX_OWN_LEN, 0);
        let len = write(&mut self.own_buffer).map_or(0, <[u8]>::len);
        self.own_buffer.truncate(len);
        if len > 0 { Accepted::Answer } else { Accepted::Nothing }
    }

    fn forward_to_server<'a>(&'a mut self, number: u32, inbound: Inbound<'a>, now: Time) -> ProxyOutput<'a> {
        let Some(client) = self.clients.get_mut(number as usize).and_then(Option::as_mut) else {
            return ProxyOutput::default();
        };
        if !client.is_player() {
            client.on_client_datagram(Presence::Unknown, None, now);
        }
        self.pass_on(number, ProxyDirection::ToServer, inbound, now)
    }

    /// Forwards a datagram through the healer of its client, if the client has one.
    fn pass_on<'a>(
        &'a mut self,
        number: u32,
        direction: ProxyDirection,
        inbound: Inbound<'a>,
        now: Time,
    ) -> ProxyOutput<'a> {
        let Some(client) = self.clients.get_mut(number as usize).and_then(Option::as_mut) else {
            return ProxyOutput::default();
        };
        let (server, player) = (DatagramTarget::Server(number), DatagramTarget::Client(client.address));
        let (ahead, back) = match direction {
            ProxyDirection::ToServer => (server, player),
            ProxyDirection::ToClient => (player, server),
        };
        let Some(healer) = client.healer.as_mut() else {
            let forward = Some((ahead, OutboundBytes::Wire(inbound.wire)));
            return ProxyOutput { forward, ..ProxyOutput::default() };
        };
        let passed = healer.handle_datagram(direction, inbound, now);
        self.retransmit_timers.set(number, passed.timeout);
        ProxyOutput {
            forward: passed.forward.map(|bytes| (ahead, bytes)),
            answer: passed.answer.map(|bytes| (back, bytes)),
            refusal: None,
        }
    }

    /// Forwards a datagram without the ACKs of the proxy's cookies.
    ///
    /// A client without an id has no ACKs for a server.
    fn forward_without_acks<'a>(
        &'a mut self,
        number: u32,
        inbound: Inbound<'a>,
        now: Time,
    ) -> ProxyOutput<'a> {
        let Some(client) = self.clients.get_mut(number as usize).and_then(Option::as_mut) else {
            return ProxyOutput::default();
        };
        if client.proof != ProofState::Verified {
            client.credit(inbound.wire.len());
        }
        let is_kept = |message: &Message<'_>| match message {
            Message::Ack(ack) if client.is_verified() => !client.cookies.are_acked_by(ack.id),
            Message::Ack(_) => false,
            Message::Control(_) | Message::Data(_) | Message::Keepalive => true,
        };
        let Some(datagram) = inbound.content.datagram().filter(|_| !messages(inbound).iter().all(is_kept))
        else {
            return self.forward_to_server(number, inbound, now);
        };
        copy_without(datagram, &mut self.own_buffer, is_kept);
        let ahead = DatagramTarget::Server(number);
        let Self { clients, own_buffer, messages, retransmit_timers, .. } = self;
        if own_buffer.is_empty() {
            return ProxyOutput::default();
        }
        let client = clients.get_mut(number as usize).and_then(Option::as_mut);
        let Some(client) = client else { return ProxyOutput::default() };
        let back = DatagramTarget::Client(client.address);
        let Some(healer) = client.healer.as_mut() else {
            let forward = Some((ahead, OutboundBytes::Plaintext(own_buffer)));
            return ProxyOutput { forward, ..ProxyOutput::default() };
        };
        let passed = healer.handle_plaintext(ProxyDirection::ToServer, own_buffer, messages, now);
        retransmit_timers.set(number, passed.timeout);
        ProxyOutput {
            forward: passed.forward.map(|bytes| (ahead, bytes)),
            answer: passed.answer.map(|bytes| (back, bytes)),
            refusal: None,
        }
    }

    /// Forwards a datagram of the server to a browser or to a verified player.
    fn forward_to_client<'a>(&'a mut self, number: u32, inbound: Inbound<'a>, now: Time) -> ProxyOutput<'a> {
        let Some(client) = self.clients.get_mut(number as usize).and_then(Option::as_mut) else {
            return ProxyOutput::default();
        };
        if client.on_server_datagram(inbound, now) {
            self.expiry_timers.set(number, Some(now + LINGER));
        }
        self.pass_on(number, ProxyDirection::ToClient, inbound, now)
    }

    /// Handles a datagram of the server to an unverified player.
    fn forward_to_unverified<'a>(
        &'a mut self,
        number: u32,
        inbound: Inbound<'a>,
        now: Time,
    ) -> ProxyOutput<'a> {
        let Some(client) = self.clients.get_mut(number as usize).and_then(Option::as_mut) else {
            return ProxyOutput::default();
        };
        let datagram = inbound.content.datagram();
        let mut cookie = None;
        if let (Some(id), Some(datagram)) = (assigned_id(inbound), datagram) {
            client.id = id;
            let own_cookie = cookie_in(datagram.datagram());
            self.server_verifies = own_cookie.is_some();
            if let Some(own_cookie) = own_cookie {
                client.proof = ProofState::OfferedByServer;
                client.server_cookies.add(own_cookie, now);
            } else {
                client.proof = ProofState::Offered;
                cookie = self.verifier.offer(id, client.address, now);
                if cookie.is_none() {
                    return self.discard(RefusalReason::Unverified);
                }
            }
        } else if client.proof == ProofState::OfferedByServer && has_joined(inbound) {
            self.on_verified(number, now);
            return self.forward_to_client(number, inbound, now);
        } else if client.id == PeerId::UNASSIGNED && refuses(inbound) {
            client.proof = ProofState::Refused;
        }
        let Some(client) = self.clients.get(number as usize).and_then(Option::as_ref) else {
            return ProxyOutput::default();
        };
        self.expiry_timers.set(number, Some(self.expires_at(client)));
        self.forward_part(number, inbound, cookie, now)
    }

    /// Forwards as much of a datagram as an unverified player may get, with its cookie.
    fn forward_part<'a>(
        &'a mut self,
        number: u32,
        inbound: Inbound<'a>,
        cookie: Option<Seq>,
        now: Time,
    ) -> ProxyOutput<'a> {
        let Some(client) = self.clients.get_mut(number as usize).and_then(Option::as_mut) else {
            return ProxyOutput::default();
        };
        let decision = self.admission.decide_forward(&self.config, client, inbound, cookie, now);
        if let Some(cookie) = cookie {
            client.cookies.add(cookie, now);
            client.next_offer = Some(now + OFFER_INTERVAL);
            self.retransmit_timers.set(number, client.next_offer);
        }
        let (address, id) = (client.address, client.id);
        match (decision, cookie, inbound.content.datagram()) {
            (ForwardDecision::Discard, ..) => {
                // The server must not wait for a client that was refused.
                client.on_server_datagram(inbound, now);
                return self.discard(RefusalReason::Unverified);
            }
            (ForwardDecision::Whole, None, _) => return self.forward_to_client(number, inbound, now),
            (ForwardDecision::Whole, Some(cookie), Some(datagram))
                if write_with_cookie(&mut self.own_buffer, datagram.as_bytes(), cookie) =>
            {
                client.on_server_datagram(inbound, now);
                if let Some(healer) = client.healer.as_mut() {
                    healer.handle_datagram(ProxyDirection::ToClient, inbound, now);
                }
            }
            (ForwardDecision::Whole | ForwardDecision::IdOnly | ForwardDecision::CookieOnly, ..) => {
                client.on_server_datagram(inbound, now);
                self.answer_with(|buffer| write_offer(buffer, id, cookie));
            }
        }
        let forward = Some((DatagramTarget::Client(address), OutboundBytes::Plaintext(&self.own_buffer)));
        ProxyOutput { forward, ..ProxyOutput::default() }
    }

    fn check_rate(&mut self, number: u32, now: Time) -> Result<(), RefusalReason> {
        let Some(client) = self.clients.get_mut(number as usize).and_then(Option::as_mut) else {
            return Ok(());
        };
        take_token(&mut client.rate_limiter, self.config.rate, now)
    }

    /// Counts a datagram of the server that is not forwarded.
    fn discard(&mut self, refusal: RefusalReason) -> ProxyOutput<'static> {
        self.count_refusal(refusal);
        ProxyOutput { refusal: Some(refusal), ..ProxyOutput::default() }
    }

    fn refuse(
        &mut self,
        client: SocketAddrV4,
        inbound: Inbound<'_>,
        refusal: RefusalReason,
        now: Time,
    ) -> ProxyOutput<'_> {
        self.count_refusal(refusal);
        if self.events.len() < MAX_EVENTS {
            self.events.push_back(ProxyEvent::Refused { client, refusal });
        }
        let refused = ProxyOutput { refusal: Some(refusal), ..ProxyOutput::default() };
        if !inbound.is_connect_request() {
            return refused;
        }
        let cookie = self.verifier.newcomer_cookie(client, now);
        let written = match refusal.boot_reason() {
            Some(reason) => self.answer_with(|buffer| write_boot(buffer, reason)),
            // The client waits. If it acknowledges the cookie, it goes first.
            None if refusal == RefusalReason::Busy => self.answer_with(|buffer| write_cookie(buffer, cookie)),
            None => return refused,
        };
        let bytes = OutboundBytes::Plaintext(&self.own_buffer);
        let is_written = matches!(written, Accepted::Answer);
        ProxyOutput { answer: is_written.then_some((DatagramTarget::Client(client), bytes)), ..refused }
    }

    fn count_refusal(&mut self, refusal: RefusalReason) {
        if let Some(count) = self.refused.get_mut(refusal as usize) {
            *count += 1;
        }
    }
}

/// Returns whether a client's datagram acknowledges the cookie of the server.
fn acks_cookie(client: &ProxyClient, inbound: Inbound<'_>) -> bool {
    client.proof == ProofState::OfferedByServer
        && messages(inbound)
            .iter()
            .any(|message| matches!(message, Message::Ack(ack) if client.server_cookies.are_acked_by(ack.id)))
}

/// Returns whether a client acknowledges a cookie, right or wrong. The server counts the wrong ones.
fn acks_any_cookie(inbound: Inbound<'_>) -> bool {
    inbound.content.datagram().is_some_and(|datagram| acks_a_cookie(datagram.datagram()))
}

/// Returns whether a server that verifies addresses sends what only a verified client gets (T-75).
fn has_joined(inbound: Inbound<'_>) -> bool {
    messages(inbound).iter().any(|message| match message {
        Message::Control(Control { body: Body::Identity { .. }, .. }) => true,
        Message::Data(data) => !data.payload.is_empty(),
        Message::Control(_) | Message::Ack(_) | Message::Keepalive => false,
    })
}

/// Writes the datagram that refuses a client without an id (T-54).
fn write_boot(buffer: &mut [u8], reason: BootReason) -> Option<&[u8]> {
    let mut writer = Writer::new(buffer, PeerId::HOST);
    let body = Body::Boot { reason, target: PeerId::UNASSIGNED };
    let written = writer.push(&Message::Control(Control::new(Seq(0), body)));
    writer.finish().filter(|_| written).map(|datagram| &*datagram)
}

/// The pause between the offers of an id. It is longer than that of the verifier.
pub(crate) const OFFER_INTERVAL: Duration = Duration::from_millis(400);
/// Refusals are reported only while fewer events wait.
const MAX_EVENTS: usize = 256;
