//! The way of a client into the proxy and out of it: its source, its limits and its goodbye.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::Duration;

use bcnet_session::TokenBucket;
use bcnet_transport::Time;

use crate::admission::{JoinPriority, per_second};
use crate::client::{MAX_SILENCE, ProofState, ProxyClient};
use crate::gate::JoinRequest;
use crate::goodbye::Goodbye;
use crate::healer::ProxyDirection;
use crate::output::{ProxyEvent, RefusalReason, UpstreamSource};
use crate::proxy::Proxy;

impl Proxy {
    /// Opens a source for a player with a connect request.
    pub(crate) fn open_player(
        &mut self,
        address: SocketAddrV4,
        request: JoinRequest,
        now: Time,
    ) -> Result<u32, RefusalReason> {
        // A stock server also looks peers up by the address in the request.
        if self.config.sources.contains(&request.address) {
            return Err(RefusalReason::ForeignId);
        }
        let priority = self.admission.check_join(&self.config, address, now)?;
        let under_way = self.clients.iter().flatten().filter(|client| client.is_under_way()).count();
        let places = if priority == JoinPriority::Behind { MAX_UNDER_WAY - 1 } else { MAX_UNDER_WAY };
        if !self.server_verifies && under_way >= places {
            return Err(RefusalReason::Busy);
        }
        let own = self.take_source(priority, now)?;
        let number = self.open_client(address, Some(request), own, now);
        if let Some(Some(client)) = self.clients.get_mut(number as usize) {
            client.healer = self.config.heal.then(Box::default);
        }
        Ok(number)
    }

    /// Opens a source for a browser.
    pub(crate) fn open_browser(&mut self, address: SocketAddrV4, now: Time) -> Result<u32, RefusalReason> {
        self.admission.check_address_limits(&self.config, *address.ip(), false, now)?;
        self.evict_browser(now)?;
        Ok(self.open_client(address, None, None, now))
    }

    fn open_client(
        &mut self,
        address: SocketAddrV4,
        request: Option<JoinRequest>,
        own: Option<Ipv4Addr>,
        now: Time,
    ) -> u32 {
        let number = self.free_numbers.pop().unwrap_or_else(|| {
            self.clients.push(None);
            u32::try_from(self.clients.len() - 1).unwrap_or(u32::MAX)
        });
        let source = UpstreamSource { number, address: own };
        // The first datagram counts too.
        let mut bucket = TokenBucket::new(per_second(self.config.rate), now);
        let _ = bucket.take(1, per_second(self.config.rate), now);
        let client = ProxyClient::new(address, source, request, bucket, now);
        let player = client.is_player();
        self.expiry_timers.set(number, Some(self.expires_at(&client)));
        if let Some(place) = self.clients.get_mut(number as usize) {
            *place = Some(client);
        }
        self.by_address.insert((address, player), number);
        self.admission.on_admitted(address, player, bucket);
        self.events.push_back(ProxyEvent::Opened { client: address, source, player });
        number
    }

    /// Returns a source for a new player.
    ///
    /// If none is free, a client that asked before or has acknowledged a cookie replaces another one. That is one that
    /// the server verifies and that stayed unverified for a while. While an unverified client has a source, no client
    /// gets the answer that the server is full.
    fn take_source(&mut self, priority: JoinPriority, now: Time) -> Result<Option<Ipv4Addr>, RefusalReason> {
        if let Some(source) = self.source_pool.pop_front() {
            return Ok(source);
        }
        let unverified = |client: &&ProxyClient| client.is_player() && !client.is_verified();
        let waits =
            self.clients.iter().flatten().any(|client| unverified(&client) || client.goodbye.is_some());
        let may_go = |client: &&ProxyClient| unverified(client) && !client.is_under_way();
        let oldest = self.clients.iter().flatten().filter(may_go).min_by_key(|client| client.created);
        let may_replace = matches!(priority, JoinPriority::Again | JoinPriority::Preferred);
        match oldest {
            Some(oldest) if may_replace && now.since(oldest.created) >= MIN_SOURCE_TIME => {
                self.close_client(oldest.source.number as usize);
                self.source_pool.pop_front().ok_or(RefusalReason::NoSource)
            }
            _ if waits => Err(RefusalReason::Busy),
            _ => Err(RefusalReason::NoSource),
        }
    }

    /// Makes room for a browser: at the limit, forgets one that was answered or has waited for a while.
    fn evict_browser(&mut self, now: Time) -> Result<(), RefusalReason> {
        let browsers = || self.clients.iter().flatten().filter(|client| !client.is_player());
        if browsers().count() < self.config.max_browsers {
            return Ok(());
        }
        let may_go = |client: &&ProxyClient| client.answered || now.since(client.created) >= MIN_BROWSER_TIME;
        let oldest = browsers().filter(may_go).min_by_key(|client| client.last_active);
        let number = oldest.ok_or(RefusalReason::TooManyBrowsers)?.source.number;
        self.close_client(number as usize);
        Ok(())
    }

    /// Reports a player to the server as gone. Its source stays open until the server has acknowledged that, and
    /// its address may connect again.
    pub(crate) fn start_goodbye(&mut self, number: u32, now: Time) {
        let Some(client) = self.clients.get_mut(number as usize).and_then(Option::as_mut) else { return };
        let goodbye = Goodbye::new(client.id, client.next_control, *client.address.ip(), now);
        (client.goodbye, client.next_offer) = (Some(goodbye), None);
        self.goodbyes += 1;
        let address = client.address;
        self.verifier.withdraw(address);
        self.forget_address(address, true);
        self.expiry_timers.set(number, Some(goodbye.give_up));
        self.retransmit_timers.set(number, goodbye.next_send());
    }

    fn forget_address(&mut self, address: SocketAddrV4, player: bool) {
        self.by_address.remove(&(address, player));
        self.admission.on_left(*address.ip(), player);
    }

    pub(crate) fn close_client(&mut self, index: usize) {
        let Some(client) = self.clients.get_mut(index).and_then(Option::take) else { return };
        let (up, down) = (client.healed(ProxyDirection::ToServer), client.healed(ProxyDirection::ToClient));
        let [all_up, all_down] = &mut self.healed;
        (*all_up, *all_down) = (*all_up + up, *all_down + down);
        let (player, verified) = (client.is_player(), client.is_verified());
        let ProxyClient { address, source, goodbye, .. } = client;
        if goodbye.is_none() {
            self.forget_address(address, player);
        }
        if player && !verified && goodbye.is_none() {
            self.verifier.withdraw(address);
        }
        self.expiry_timers.set(source.number, None);
        self.retransmit_timers.set(source.number, None);
        self.free_numbers.push(source.number);
        if player {
            self.source_pool.push_back(source.address);
        }
        self.events.push_back(ProxyEvent::Closed { client: address, source, player, verified, up, down });
    }

    /// Returns when a client is forgotten if nothing else happens.
    pub(crate) fn expires_at(&self, client: &ProxyClient) -> Time {
        if let Some(goodbye) = &client.goodbye {
            return goodbye.give_up;
        }
        let idle = match client.proof {
            ProofState::Verified => client.last_active + self.config.idle_timeout,
            ProofState::Requested | ProofState::Offered if client.is_player() => {
                client.created + PROOF_TIMEOUT
            }
            _ => client.last_active + UNVERIFIED_TIMEOUT,
        };
        // A keepalive shows after a forged disconnect that a player is still there.
        let linger = if client.is_verified() { MAX_SILENCE } else { LINGER };
        client.left_at.map_or(idle, |left| idle.min(left + linger))
    }
}

/// Most connects under way without a proof (T-80): the slots that forged addresses can hold.
const MAX_UNDER_WAY: usize = 2;
/// The time for the proof after the first request. The goodbye is repeated once within three seconds.
const PROOF_TIMEOUT: Duration = Duration::from_millis(2_750);
/// Silence after which a browser, or a player whose address the server verifies, is forgotten.
///
/// For a browser, the datagrams of both sides count.
const UNVERIFIED_TIMEOUT: Duration = Duration::from_secs(10);
/// The time for which an unverified player keeps its source before a server that verifies addresses.
const MIN_SOURCE_TIME: Duration = Duration::from_secs(3);
/// The time for which a browser without an answer keeps its source.
const MIN_BROWSER_TIME: Duration = Duration::from_secs(1);
/// After a disconnect or boot, a source is free when the client has been silent this long.
///
/// A client that is still there repeats its disconnect sooner.
pub(crate) const LINGER: Duration = Duration::from_secs(5);
