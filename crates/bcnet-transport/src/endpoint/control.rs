//! Control messages take effect, and timers that end a peer.

use alloc::boxed::Box;
use alloc::format;
use core::net::Ipv4Addr;

use super::Endpoint;
use super::table::Handle;
use crate::event::{Event, Leave};
use crate::peer::{Name, State};
use crate::stats::Cause;
use crate::time::Time;
use crate::wire::{Body, BootReason, PeerId, Role, Text};

/// A peer has said that a conversation is over.
#[derive(Debug)]
pub(super) struct Farewell {
    handle: Handle,
    who: PeerId,
    /// Of a client that leaves, as it sees itself.
    address: Ipv4Addr,
    reason: Leave,
}

impl Endpoint {
    /// A control message takes effect, in its order.
    pub(super) fn dispatch(&mut self, handle: Handle, body: &Body<'_>, now: Time) {
        let result = match self.role {
            Role::Host => self.dispatch_from_client(handle, body, now),
            Role::Client => self.dispatch_from_host(handle, body),
        };
        if let Err(cause) = result {
            self.reject_from(handle, cause);
        }
    }

    fn dispatch_from_client(&mut self, handle: Handle, body: &Body<'_>, now: Time) -> Result<(), Cause> {
        let peer = self.peers.get(handle).ok_or(Cause::UnknownSender)?;
        match *body {
            Body::Identity { peer: subject, address, name } if subject == peer.id => {
                self.rename(handle, address, name, now)
            }
            Body::Disconnect { peer: leaver, address } if leaver == peer.id => {
                self.farewell.get_or_insert(Farewell {
                    handle,
                    who: peer.id,
                    address,
                    reason: Leave::Disconnected,
                });
                Ok(())
            }
            Body::Identity { .. } | Body::Disconnect { .. } => Err(Cause::Impostor),
            Body::ConnectRequest { .. } | Body::ConnectReply { .. } | Body::Boot { .. } => {
                Err(Cause::NotAllowed)
            }
        }
    }

    fn dispatch_from_host(&mut self, handle: Handle, body: &Body<'_>) -> Result<(), Cause> {
        match *body {
            Body::ConnectReply { assigned } => self.connected(handle, assigned),
            Body::Identity { peer, address, name } => {
                self.events.push(Event::Identity { peer, address, cleaned: false }, name.as_bytes());
                Ok(())
            }
            Body::Boot { reason, target } => {
                self.gone(handle, target, Leave::Booted(reason));
                Ok(())
            }
            Body::Disconnect { peer, .. } => {
                self.gone(handle, peer, Leave::Disconnected);
                Ok(())
            }
            Body::ConnectRequest { .. } => Err(Cause::NotAllowed),
        }
    }

    /// T-52: a host keeps the name and passes it on to everyone, its owner included.
    fn rename(&mut self, handle: Handle, address: Ipv4Addr, name: Text<'_>, now: Time) -> Result<(), Cause> {
        let peer = self.peers.get_mut(handle).ok_or(Cause::UnknownSender)?;
        if !peer.state.is_connected() {
            return Err(Cause::NotAllowed);
        }
        // What was sent at its time may arrive with others, when the first of them was lost.
        if now.plus(NAMES_AT_ONCE * NAME_INTERVAL) <= peer.next_name {
            return Err(Cause::Flood);
        }
        peer.next_name = peer.next_name.max(now).plus(NAME_INTERVAL);
        let id = peer.id;
        let utf16le = clean_name(name, id);
        let cleaned = *utf16le != *name.as_bytes();
        peer.name = Some(Name { address, utf16le: utf16le.clone() });
        self.events.push(Event::Identity { peer: id, address, cleaned }, &utf16le);
        let name = Text::new(&utf16le).unwrap_or_default();
        self.tell(Body::Identity { peer: id, address, name }, now);
        Ok(())
    }

    /// T-57: a client leaves; a host passes that on.
    fn left(&mut self, handle: Handle, address: Ipv4Addr, now: Time) {
        let Some(peer) = self.peers.get(handle) else { return };
        let (id, live, named) = (peer.id, peer.state.is_connected(), peer.name.is_some());
        self.start_leaving(handle, now);
        if live {
            self.events.push(Event::Left { peer: id, reason: Leave::Disconnected }, &[]);
            self.tell_gone(id, named, Body::Disconnect { peer: id, address }, now);
        }
    }

    /// T-51: the host lets this client in.
    fn connected(&mut self, handle: Handle, assigned: PeerId) -> Result<(), Cause> {
        let peer = self.peers.get_mut(handle).ok_or(Cause::UnknownSender)?;
        if peer.state != State::Connecting || !assigned.is_assignable() {
            return Err(Cause::NotAllowed);
        }
        peer.state = State::Live;
        self.id = assigned;
        self.events.push(Event::Joined { peer: assigned }, &[]);
        Ok(())
    }

    /// To a client: a peer is gone. If it is the host or this client, so is the session.
    fn gone(&mut self, handle: Handle, who: PeerId, reason: Leave) {
        if who == self.id || who == PeerId::HOST || who == PeerId::UNASSIGNED {
            let address = Ipv4Addr::UNSPECIFIED;
            self.farewell.get_or_insert(Farewell { handle, who, address, reason });
        } else {
            self.events.push(Event::Left { peer: who, reason }, &[]);
        }
    }

    /// T-57: a datagram that ends a conversation was read to its end.
    #[cold]
    pub(super) fn part(&mut self, farewell: Farewell, now: Time) {
        let Farewell { handle, who, address, reason } = farewell;
        match self.role {
            Role::Host => self.left(handle, address, now),
            Role::Client => {
                self.events.push(Event::Left { peer: who, reason }, &[]);
                self.start_leaving(handle, now);
            }
        }
    }

    /// Sends a control message to every live peer.
    pub(super) fn tell(&mut self, body: Body<'_>, now: Time) {
        let body = masked(body, self.masks);
        for handle in self.peers.handles() {
            if let Some(peer) = self.peers.get_mut(handle).filter(|peer| peer.state.is_connected()) {
                peer.queue_control(body, now);
                self.touch(handle);
            }
        }
    }

    /// Tells every live peer that one of them is gone; if that never had a name only itself, for nobody else knows it.
    pub(super) fn tell_gone(&mut self, gone: PeerId, named: bool, body: Body<'_>, now: Time) {
        if named {
            return self.tell(body, now);
        }
        if let Some(handle) = self.peers.find(gone)
            && let Some(peer) = self.peers.get_mut(handle).filter(|peer| peer.state.is_connected())
        {
            peer.queue_control(masked(body, self.masks), now);
            self.touch(handle);
        }
    }

    /// A peer's deadline has passed.
    pub(super) fn serve(&mut self, handle: Handle, now: Time) {
        let config = &self.config;
        let Some(peer) = self.peers.get_mut(handle) else { return };
        match peer.state {
            State::Leaving { until, .. } if now >= until => return drop(self.remove(handle, now)),
            State::Leaving { hushed: Some(until), .. } if now >= until => return self.settle_contest(handle),
            State::Draining { since } if now >= since.plus(config.linger / 2) => {
                return self.say_goodbye(handle, now);
            }
            State::Live | State::Contested { .. } | State::Connecting if peer.is_silent(config, now) => {
                return self.lose(handle, Leave::Silent, now);
            }
            State::Contested { until, .. } if now >= until => return self.settle_contest(handle),
            State::Live if peer.is_undeliverable(config, now) => {
                return self.lose(handle, Leave::Undeliverable, now);
            }
            State::Connecting
            | State::Live
            | State::Contested { .. }
            | State::Draining { .. }
            | State::Leaving { .. } => {}
        }
        peer.keep_alive(config, now);
        peer.find_lost(config, now);
        if peer.shrink(now) && self.peers.iter().all(|peer| peer.is_at_rest()) {
            self.pool.shrink();
            self.events.shrink();
        }
    }

    /// T-56: a peer is given up; a host tells everyone, and the peer itself if it was only silent: it may be heard again.
    fn lose(&mut self, handle: Handle, reason: Leave, now: Time) {
        let Some(peer) = self.peers.get(handle) else { return };
        let (peer, named) = (peer.id, peer.name.is_some());
        let stays = self.role == Role::Host && reason == Leave::Silent;
        if !stays {
            self.remove(handle, now);
        }
        self.events.push(Event::Left { peer, reason }, &[]);
        if self.role == Role::Host {
            self.tell_gone(peer, named, Body::Boot { reason: BootReason::TIMED_OUT, target: peer }, now);
        }
        if stays {
            self.start_leaving(handle, now);
        }
    }

    /// T-57: what was said last is still repeated and acknowledged for a while.
    pub(super) fn start_leaving(&mut self, handle: Handle, now: Time) {
        self.settle_contest(handle);
        let Some(peer) = self.peers.get_mut(handle) else { return };
        let since = match peer.state {
            State::Leaving { .. } => return,
            State::Draining { since } => since,
            State::Connecting | State::Live | State::Contested { .. } => now,
        };
        peer.state = State::Leaving { until: since.plus(self.config.linger), hushed: None };
        // T-60: who leaves is sent no more data, which an ACK could wait for, and may wait for that of its goodbye.
        peer.ack_due = peer.ack_due.map(|due| due.min(now));
        self.touch(handle);
    }

    /// T-57: a peer leaves, and may have come a step further.
    pub(super) fn finish_leaving(&mut self, handle: Handle, now: Time) {
        let Some(peer) = self.peers.get(handle) else { return };
        match peer.state {
            // Control messages overtake data, so the goodbye waits until none is left.
            State::Draining { .. } if peer.queued() == (0, 0) => self.say_goodbye(handle, now),
            // Who leaves is done as soon as its goodbye is acknowledged; a host stays for repeats of others.
            State::Leaving { .. } if (self.role == Role::Client || self.left) && peer.is_settled() => {
                self.remove(handle, now);
            }
            State::Connecting
            | State::Live
            | State::Contested { .. }
            | State::Draining { .. }
            | State::Leaving { .. } => {}
        }
    }

    fn say_goodbye(&mut self, handle: Handle, now: Time) {
        let goodbye = Body::Disconnect { peer: self.id, address: self.config.address };
        if let Some(peer) = self.peers.get_mut(handle) {
            peer.queue_control(masked(goodbye, self.masks), now);
        }
        self.start_leaving(handle, now);
    }
}

/// S-03: a name or a goodbye without the address in it, if addresses are masked.
pub(super) const fn masked(body: Body<'_>, masks: bool) -> Body<'_> {
    let address = Ipv4Addr::UNSPECIFIED;
    match body {
        Body::Identity { peer, name, .. } if masks => Body::Identity { peer, address, name },
        Body::Disconnect { peer, .. } if masks => Body::Disconnect { peer, address },
        other => other,
    }
}

/// T-71: returns a name as it is passed on. One of which nothing is left says which peer it is.
fn clean_name(name: Text<'_>, peer: PeerId) -> Box<[u8]> {
    let clean = name.cleaned(MAX_NAME);
    let stand_in = || Text::encode(&format!("Player {}", peer.0)).unwrap_or_default();
    if clean.is_empty() { stand_in().into() } else { clean.into() }
}

/// The longest name that is passed on, in bytes of UTF-16LE.
pub(super) const MAX_NAME: usize = 200;
/// How often a peer may change its name, in microseconds.
const NAME_INTERVAL: u64 = 250_000;
/// How many changes may come together.
const NAMES_AT_ONCE: u64 = 8;
