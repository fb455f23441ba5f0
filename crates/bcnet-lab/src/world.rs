//! Engines on a virtual network, in virtual time.
//!
//! A [`World`] owns the engines, the links between them, the datagrams in flight, and the clock. It services a node when
//! a datagram arrives or a timer is due: the engine handles its datagrams and timers, then its datagrams are sent. The
//! world reports everything to a [`WorldObserver`].

mod session;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::Duration;

use bcnet_transport::{Deadlines, Endpoint, Event, Time};

use crate::behavior::NodeBehavior;
use crate::engine::LabEngine;
use crate::observer::{DatagramMeta, EventObserver, WorldObserver};
use crate::proxy_node::{ProxyDatagram, ProxyNode};
use bcnet_transport::link::{FaultScript, Faults, Link, LinkStats};

/// An engine with its socket and its behaviour.
#[derive(Debug)]
struct WorldNode<E: ?Sized> {
    behavior: NodeBehavior,
    /// Datagrams in the socket buffer.
    inbox: Vec<(SocketAddrV4, Vec<u8>)>,
    /// Time of the last service, and the number of services at that time.
    last_service: (Time, u32),
    /// Time until which the program is busy.
    busy_until: Time,
    /// Start of a frame that was blocked after it had read the clock.
    blocked_frame_start: Option<Time>,
    engine: Box<E>,
}

impl<E: LabEngine + ?Sized> WorldNode<E> {
    /// Returns the time of the next service if something is due at `due`.
    ///
    /// That is the first tick from `due` on at which the node is not busy. An engine with frames runs at most one
    /// frame per instant.
    fn service_at(&self, due: Time) -> Time {
        let again = self.engine.runs_in_frames() && self.last_service.1 > 0;
        let earliest = if again { self.last_service.0 + Duration::from_micros(1) } else { Time::ZERO };
        self.behavior.next_tick(due.max(earliest).max(self.busy_until))
    }
}

/// A datagram in flight. The order is that of arrival.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct InFlightDatagram {
    at: Time,
    /// Number of datagrams sent before: simultaneous arrivals keep the order of sending.
    number: u64,
    from: usize,
    to: usize,
    bytes: Vec<u8>,
    corrupted: bool,
}

/// All nodes, the links between them, and the datagrams in flight.
#[derive(Debug)]
pub struct World<E: ?Sized = Endpoint> {
    now: Time,
    seed: u64,
    nodes: Vec<WorldNode<E>>,
    proxy: Option<ProxyNode>,
    /// Next service of each node.
    service_deadlines: Deadlines,
    links: BTreeMap<(usize, usize), Link>,
    faults: Faults,
    in_flight: BinaryHeap<Reverse<InFlightDatagram>>,
    /// Number of datagrams sent.
    sent_count: u64,
    buffer: Vec<u8>,
    payload: Vec<u8>,
    fingerprint: u64,
    /// Buffers for reuse.
    spare_buffers: Vec<Vec<u8>>,
}

impl<E: LabEngine + ?Sized> World<E> {
    /// Creates an empty world. All links have these faults, each with its own random numbers.
    #[must_use]
    pub fn new(faults: Faults, seed: u64) -> Self {
        Self {
            now: Time::ZERO,
            seed,
            nodes: Vec::new(),
            proxy: None,
            service_deadlines: Deadlines::new(),
            links: BTreeMap::new(),
            faults,
            in_flight: BinaryHeap::new(),
            sent_count: 0,
            buffer: vec![0; 2048],
            payload: Vec::new(),
            fingerprint: 0xCBF2_9CE4_8422_2325,
            spare_buffers: Vec::new(),
        }
    }

    /// Returns the virtual time.
    #[must_use]
    pub const fn now(&self) -> Time {
        self.now
    }

    /// Returns a fingerprint of all traffic so far. Equal runs have equal fingerprints.
    #[must_use]
    pub const fn fingerprint(&self) -> u64 {
        self.fingerprint
    }

    /// Adds a node and returns its number.
    pub fn add_node(&mut self, engine: Box<E>, behavior: NodeBehavior) -> usize {
        let number = self.nodes.len();
        let (last_service, busy_until) = ((Time::ZERO, 0), Time::ZERO);
        self.nodes.push(WorldNode {
            behavior,
            inbox: Vec::new(),
            last_service,
            busy_until,
            blocked_frame_start: None,
            engine,
        });
        self.schedule(number);
        number
    }

    /// Puts a proxy in front of the node `server`, for this number of players.
    ///
    /// The proxy takes the number after the last node, so no node may be added later.
    pub(crate) fn add_proxy(&mut self, server: usize, heal: bool, players: usize) {
        self.proxy = Some(ProxyNode::new(self.nodes.len(), server, heal, players));
    }

    /// Returns the links, as pairs of numbers, that replace the link `from` → `to` if there is a proxy.
    ///
    /// The proxy has one number for each player, so a link between proxy and server becomes several.
    pub(crate) fn hops(&self, from: usize, to: usize) -> Vec<(usize, usize)> {
        self.proxy.as_ref().map_or_else(|| vec![(from, to)], |proxy| proxy.hops(from, to))
    }

    /// Returns the engine of a node.
    ///
    /// # Panics
    /// Panics if no node has this number, like all functions with a node number.
    #[must_use]
    pub fn node(&self, number: usize) -> &E {
        &self.nodes[number].engine
    }

    /// Returns the engine of a node for an action, and schedules a service of the node for its next tick.
    pub fn node_mut(&mut self, number: usize) -> &mut E {
        self.schedule_at(number, self.now);
        &mut self.nodes[number].engine
    }

    /// Returns the engine of a node for an action that needs no service.
    pub(crate) fn engine_mut(&mut self, number: usize) -> &mut E {
        &mut self.nodes[number].engine
    }

    /// Replaces the faults of all links from now on.
    pub(crate) fn set_faults(&mut self, faults: Faults) {
        for link in self.links.values_mut() {
            link.set_faults(faults.clone());
        }
        self.faults = faults;
    }

    /// Replaces the faults of one link from now on.
    pub fn set_link_faults(&mut self, from: usize, to: usize, faults: Faults) {
        self.link_mut(from, to).set_faults(faults);
    }

    /// Replaces the script of one link: the datagrams that it loses or duplicates, counted from now on.
    pub(crate) fn set_link_script(&mut self, from: usize, to: usize, script: FaultScript) {
        self.link_mut(from, to).set_script(script);
    }

    /// Returns the counters of the link from one node to another.
    #[must_use]
    pub fn link_stats(&self, from: usize, to: usize) -> LinkStats {
        self.links.get(&(from, to)).map(Link::stats).unwrap_or_default()
    }

    /// Returns the sum of the counters of all links.
    #[must_use]
    pub fn total_link_stats(&self) -> LinkStats {
        let mut total = LinkStats::default();
        self.links.values().for_each(|link| total += link.stats());
        total
    }

    /// Sends a datagram over the link `from` → `to`, with the faults of the link.
    ///
    /// Observers see its arrival, but not that it was sent.
    pub fn inject(&mut self, from: usize, to: usize, bytes: &[u8]) {
        self.send_datagram(from, to, bytes);
    }

    /// Puts a datagram into the socket of a node at once, with the source address `from`.
    pub(crate) fn push_to_socket(&mut self, from: SocketAddrV4, to: usize, bytes: &[u8]) {
        self.nodes[to].inbox.push((from, bytes.to_vec()));
        self.schedule_at(to, self.now);
    }

    /// Runs until `until` and passes every event, with the node number and its engine, to `on_event`.
    ///
    /// # Panics
    /// Panics if a node requests service endlessly at one instant.
    pub fn run(&mut self, until: Time, on_event: impl FnMut(usize, Event, &[u8], &mut E, Time)) {
        self.run_observed(until, &mut EventObserver(on_event));
    }

    /// Runs until `until` and reports everything to `observer`.
    ///
    /// # Panics
    /// Panics like [`run`](Self::run).
    pub fn run_observed(&mut self, until: Time, observer: &mut impl WorldObserver<E>) {
        while let Some(next) = self.next_event_at().filter(|next| *next <= until) {
            self.step(next, observer);
        }
        self.now = self.now.max(until);
    }

    /// Runs until just before anything happens at `until`.
    ///
    /// # Panics
    /// Panics like [`run`](Self::run).
    pub(crate) fn run_observed_before(&mut self, until: Time, observer: &mut impl WorldObserver<E>) {
        while let Some(next) = self.next_event_at().filter(|next| *next < until) {
            self.step(next, observer);
        }
        self.now = self.now.max(until);
    }

    fn step(&mut self, next: Time, observer: &mut impl WorldObserver<E>) {
        self.now = self.now.max(next);
        self.deliver_arrivals(observer);
        let sent = self.proxy.as_mut().map(|proxy| proxy.run_due(self.now)).unwrap_or_default();
        self.send_from_proxy(sent, observer);
        while let Some((_, number)) = self.service_deadlines.first().filter(|(due, _)| *due <= self.now) {
            self.service(number as usize, observer);
        }
    }

    /// Returns the time of the next arrival, service or timer of the proxy.
    #[must_use]
    pub(crate) fn next_event_at(&self) -> Option<Time> {
        let arrival = self.in_flight.peek().map(|Reverse(flight)| flight.at);
        let service = self.service_deadlines.first().map(|(due, _)| due);
        let proxy = self.proxy.as_ref().and_then(ProxyNode::next_timeout);
        arrival.into_iter().chain(service).chain(proxy).min()
    }

    /// Moves the datagrams that have arrived into the sockets of the nodes.
    fn deliver_arrivals(&mut self, observer: &mut impl WorldObserver<E>) {
        while self.in_flight.peek().is_some_and(|Reverse(flight)| flight.at <= self.now) {
            let Some(Reverse(flight)) = self.in_flight.pop() else { break };
            let InFlightDatagram { from, to, number, bytes, corrupted, .. } = flight;
            let meta = DatagramMeta { from, to, number, now: self.now };
            if !corrupted {
                observer.on_arrival(meta, &bytes);
            } else if !observer.on_corrupted(meta, &bytes) {
                self.spare_buffers.push(bytes);
                continue;
            }
            if to >= self.nodes.len() {
                self.forward_through_proxy(from, to, bytes, observer);
                continue;
            }
            self.nodes[to].inbox.push((node_address(from), bytes));
            self.schedule_at(to, self.now);
        }
    }

    /// Passes an arrived datagram to the proxy and sends the datagrams that the proxy returns.
    fn forward_through_proxy(
        &mut self,
        from: usize,
        to: usize,
        bytes: Vec<u8>,
        observer: &mut impl WorldObserver<E>,
    ) {
        let sent = self
            .proxy
            .as_mut()
            .map(|proxy| proxy.forward_datagram(from, to, &bytes, self.now))
            .unwrap_or_default();
        self.spare_buffers.push(bytes);
        self.send_from_proxy(sent, observer);
    }

    fn send_from_proxy(&mut self, sent: Vec<ProxyDatagram>, observer: &mut impl WorldObserver<E>) {
        for ProxyDatagram { from, to, bytes } in sent {
            let meta = DatagramMeta { from, to, number: self.sent_count, now: self.now };
            observer.on_proxy_sent(meta, &bytes);
            self.send_datagram(from, to, &bytes);
        }
    }

    /// Services a node: handles its datagrams and timers, reports its events, and sends its datagrams.
    fn service(&mut self, number: usize, observer: &mut impl WorldObserver<E>) {
        let now = self.now;
        let node = &mut self.nodes[number];
        let services = if node.last_service.0 == now { node.last_service.1 + 1 } else { 1 };
        assert!(services < MAX_SERVICES_PER_INSTANT, "node {number} requests service endlessly at {now}");
        node.last_service = (now, services);
        if let Some(blocked) = node.behavior.take_blocked_period(now) {
            node.busy_until = now + blocked;
            // Only an engine with frames resumes with the old clock reading. Others read the clock again.
            node.blocked_frame_start =
                node.blocked_frame_start.or_else(|| node.engine.runs_in_frames().then_some(now));
            return self.schedule_at(number, now);
        }
        // A blocked frame continues with the time at which it began.
        let clock = node.blocked_frame_start.take().unwrap_or(now);
        let compared = node.engine.comparisons();
        for (from, mut bytes) in node.inbox.drain(..) {
            node.behavior.rewrite_incoming(&mut bytes);
            observer.on_socket_read(number, node_number(from), &bytes, &node.engine, now);
            node.engine.handle_datagram(from, &mut bytes, clock);
            self.spare_buffers.push(bytes);
        }
        node.engine.handle_timeout(clock);
        while let Some(event) = node.engine.poll_event(&mut self.payload) {
            observer.on_event(number, event, &self.payload, &mut node.engine, now);
        }
        self.send_pending(number, clock, observer);
        let node = &mut self.nodes[number];
        let compared = node.engine.comparisons().zip(compared).map_or(0, |(after, before)| after - before);
        node.busy_until = now + node.behavior.comparison_time(compared);
        observer.on_serviced(number, &node.engine, now);
        self.schedule(number);
    }

    /// Sends the pending datagrams of a node.
    fn send_pending(&mut self, number: usize, clock: Time, observer: &mut impl WorldObserver<E>) {
        let mut buffer = std::mem::take(&mut self.buffer);
        while let Some(transmit) = self.nodes[number].engine.poll_transmit(&mut buffer, clock) {
            let node = &self.nodes[number];
            let len = node.behavior.rewrite_outgoing(&mut buffer[..transmit.len]);
            if let Some(to) = self.number_of(transmit.to) {
                let bytes = &buffer[..len];
                let meta = DatagramMeta { from: number, to, number: self.sent_count, now: self.now };
                observer.on_sent(meta, bytes, &node.engine);
                self.send_datagram(number, to, bytes);
            }
        }
        self.buffer = buffer;
    }

    /// Schedules the next service of a node for the next timer of its engine.
    fn schedule(&mut self, number: usize) {
        let node = &self.nodes[number];
        let due = node.engine.next_timeout().map(|due| node.service_at(due.max(self.now)));
        self.service_deadlines.set(deadline_key(number), due);
    }

    /// Schedules the next service of a node for `due`. The engine's timers count again after that service.
    fn schedule_at(&mut self, number: usize, due: Time) {
        self.service_deadlines.set(deadline_key(number), Some(self.nodes[number].service_at(due)));
    }

    fn send_datagram(&mut self, from: usize, to: usize, bytes: &[u8]) {
        self.update_fingerprint(from, to, bytes);
        let (now, number) = (self.now, self.sent_count);
        self.sent_count += 1;
        for arrival in self.link_mut(from, to).transmit(bytes.len(), now).into_iter().flatten() {
            let mut copy = self.spare_buffers.pop().unwrap_or_default();
            copy.clear();
            copy.extend_from_slice(bytes);
            if let Some((position, mask)) = arrival.corrupt {
                let position = usize::try_from(position % bytes.len().max(1) as u64).unwrap_or(0);
                if let Some(byte) = copy.get_mut(position) {
                    *byte ^= mask;
                }
            }
            let (at, corrupted) = (arrival.at, arrival.corrupt.is_some());
            self.in_flight.push(Reverse(InFlightDatagram { at, number, from, to, bytes: copy, corrupted }));
        }
    }

    fn link_mut(&mut self, from: usize, to: usize) -> &mut Link {
        let seed = self.seed ^ ((from as u64) << 32 | (to as u64) << 8).wrapping_mul(0x9E37_79B9);
        self.links.entry((from, to)).or_insert_with(|| Link::new(self.faults.clone(), seed))
    }

    /// Returns the number of the node or proxy at an address.
    fn number_of(&self, address: SocketAddrV4) -> Option<usize> {
        let exists = |number: usize| {
            number < self.nodes.len() || self.proxy.as_ref().is_some_and(|proxy| proxy.has_number(number))
        };
        Some(node_number(address)).filter(|number| exists(*number) && address.port() == NODE_PORT)
    }

    fn update_fingerprint(&mut self, from: usize, to: usize, bytes: &[u8]) {
        let head = [self.now.as_micros(), from as u64, to as u64];
        let words = bytes.chunks(8).map(|chunk| {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            u64::from_le_bytes(word)
        });
        for word in head.into_iter().chain([bytes.len() as u64]).chain(words) {
            self.fingerprint = (self.fingerprint.rotate_left(5) ^ word).wrapping_mul(0x0000_0100_0000_01B3);
        }
    }
}

fn deadline_key(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

/// Returns the address of the node with this number.
pub(crate) fn node_address(number: usize) -> SocketAddrV4 {
    let number = u32::try_from(number).unwrap_or(0) + 1;
    SocketAddrV4::new(Ipv4Addr::from_bits(BASE_ADDRESS + number), NODE_PORT)
}

/// Returns the number of the node that has, or would have, this address.
pub(crate) fn node_number(address: SocketAddrV4) -> usize {
    let number = address.ip().to_bits().wrapping_sub(BASE_ADDRESS + 1);
    usize::try_from(number).unwrap_or(usize::MAX)
}

/// UDP port of every node.
const NODE_PORT: u16 = 22101;
/// The address before that of node 0.
const BASE_ADDRESS: u32 = 0x0A00_0000;
/// Limit for services of a node at one instant. A correct engine needs far fewer.
const MAX_SERVICES_PER_INSTANT: u32 = 10_000;
