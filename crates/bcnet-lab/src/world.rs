//! Engines on a virtual network, in virtual time.

mod session;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::Duration;

use bcnet_transport::{Deadlines, Endpoint, Event, Time};

use crate::behavior::NodeBehavior;
use crate::engine::LabEngine;
use crate::link::{Faults, Link, LinkStats, Script};
use crate::middle::{ProxyNode, Sent};
use crate::observer::{DatagramMeta, Listener, Observer};

/// An engine with an address and its behavior.
#[derive(Debug)]
struct Node<E: ?Sized> {
    behavior: NodeBehavior,
    /// What waits in its socket.
    inbox: Vec<(SocketAddrV4, Vec<u8>)>,
    /// How often it was serviced at the time of the last service.
    services: (Time, u32),
    /// Its program does something else until then.
    busy: Time,
    /// When a frame began that was held up after it had looked at the clock.
    held_up: Option<Time>,
    engine: Box<E>,
}

impl<E: LabEngine + ?Sized> Node<E> {
    /// Returns when it is serviced if something is due at `due`: at the next tick, a frame only once.
    fn service_at(&self, due: Time) -> Time {
        let again = self.engine.has_frames() && self.services.1 > 0;
        let earliest = if again { self.services.0 + Duration::from_micros(1) } else { Time::ZERO };
        self.behavior.next_tick(due.max(earliest).max(self.busy))
    }
}

/// A datagram under way, in the order of arrival.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Flight {
    at: Time,
    /// How many were sent before it: those that arrive together arrive in that order.
    number: u64,
    from: usize,
    to: usize,
    bytes: Vec<u8>,
    corrupted: bool,
}

/// All nodes, the links between them, and the datagrams under way.
#[derive(Debug)]
pub struct World<E: ?Sized = Endpoint> {
    now: Time,
    seed: u64,
    nodes: Vec<Node<E>>,
    proxy: Option<ProxyNode>,
    /// When each node is serviced next.
    services: Deadlines,
    links: BTreeMap<(usize, usize), Link>,
    faults: Faults,
    flying: BinaryHeap<Reverse<Flight>>,
    /// How many datagrams were sent.
    sent: u64,
    buffer: Vec<u8>,
    payload: Vec<u8>,
    trace: u64,
    /// Buffers that are used again.
    spare: Vec<Vec<u8>>,
}

impl<E: LabEngine + ?Sized> World<E> {
    /// Makes an empty world whose links all have these faults, each with a chance of its own.
    #[must_use]
    pub fn new(faults: Faults, seed: u64) -> Self {
        Self {
            now: Time::ZERO,
            seed,
            nodes: Vec::new(),
            proxy: None,
            services: Deadlines::new(),
            links: BTreeMap::new(),
            faults,
            flying: BinaryHeap::new(),
            sent: 0,
            buffer: vec![0; 2048],
            payload: Vec::new(),
            trace: 0xCBF2_9CE4_8422_2325,
            spare: Vec::new(),
        }
    }

    /// Returns the time.
    #[must_use]
    pub const fn now(&self) -> Time {
        self.now
    }

    /// Returns a fingerprint of all traffic so far: equal for equal runs.
    #[must_use]
    pub const fn trace(&self) -> u64 {
        self.trace
    }

    /// Adds a node and tells its number.
    pub fn add_node(&mut self, engine: Box<E>, behavior: NodeBehavior) -> usize {
        let number = self.nodes.len();
        let (services, busy) = ((Time::ZERO, 0), Time::ZERO);
        self.nodes.push(Node { behavior, inbox: Vec::new(), services, busy, held_up: None, engine });
        self.schedule(number);
        number
    }

    /// Puts a proxy before a node, for so many players. It has the number behind the last node's, so no node follows.
    pub(crate) fn add_proxy(&mut self, server: usize, heal: bool, players: usize) {
        self.proxy = Some(ProxyNode::new(self.nodes.len(), server, heal, players));
    }

    /// Returns the hops between two nodes, or between a node and the proxy.
    pub(crate) fn hops(&self, from: usize, to: usize) -> Vec<(usize, usize)> {
        self.proxy.as_ref().map_or_else(|| vec![(from, to)], |proxy| proxy.hops(from, to))
    }

    /// Returns a node.
    ///
    /// # Panics
    /// If there is none with this number; so do all functions that take one.
    #[must_use]
    pub fn node(&self, number: usize) -> &E {
        &self.nodes[number].engine
    }

    /// Returns a node, to do something with. It is serviced at the next opportunity.
    pub fn node_mut(&mut self, number: usize) -> &mut E {
        self.schedule_at(number, self.now);
        &mut self.nodes[number].engine
    }

    /// Returns a node, to do something with that gives it no work.
    pub(crate) fn engine_mut(&mut self, number: usize) -> &mut E {
        &mut self.nodes[number].engine
    }

    /// The faults of all links, from now on.
    pub(crate) fn set_faults(&mut self, faults: Faults) {
        for link in self.links.values_mut() {
            link.set_faults(faults.clone());
        }
        self.faults = faults;
    }

    /// The faults of one link, from now on.
    pub fn set_link(&mut self, from: usize, to: usize, faults: Faults) {
        self.link(from, to).set_faults(faults);
    }

    /// Which datagrams of one link are lost or doubled, counted from now on.
    pub(crate) fn set_script(&mut self, from: usize, to: usize, script: Script) {
        self.link(from, to).set_script(script);
    }

    /// Returns what happened on the link from one node to another.
    #[must_use]
    pub fn stats(&self, from: usize, to: usize) -> LinkStats {
        self.links.get(&(from, to)).map(Link::stats).unwrap_or_default()
    }

    /// Returns what happened on all links together.
    #[must_use]
    pub fn total(&self) -> LinkStats {
        let mut total = LinkStats::default();
        self.links.values().for_each(|link| total += link.stats());
        total
    }

    /// Puts a datagram on the way as if node `from` had sent it; observers see only its arrival.
    pub fn inject(&mut self, from: usize, to: usize, bytes: &[u8]) {
        self.launch(from, to, bytes);
    }

    /// Puts a datagram into the socket of a node at once, as if it came from `from`.
    pub(crate) fn put(&mut self, from: SocketAddrV4, to: usize, bytes: &[u8]) {
        self.nodes[to].inbox.push((from, bytes.to_vec()));
        self.schedule_at(to, self.now);
    }

    /// Lets time pass until `until`; `on_event` hears every event, with the number of the node and its engine.
    ///
    /// # Panics
    /// If a node asks to be serviced again and again without time passing.
    pub fn run(&mut self, until: Time, on_event: impl FnMut(usize, Event, &[u8], &mut E, Time)) {
        self.watch(until, &mut Listener(on_event));
    }

    /// Lets time pass until `until`, watched by `observer`.
    ///
    /// # Panics
    /// As [`run`](Self::run).
    pub fn watch(&mut self, until: Time, observer: &mut impl Observer<E>) {
        while let Some(next) = self.next().filter(|next| *next <= until) {
            self.step(next, observer);
        }
        self.now = self.now.max(until);
    }

    /// Lets time pass until just before anything happens at `until`.
    ///
    /// # Panics
    /// As [`run`](Self::run).
    pub(crate) fn watch_before(&mut self, until: Time, observer: &mut impl Observer<E>) {
        while let Some(next) = self.next().filter(|next| *next < until) {
            self.step(next, observer);
        }
        self.now = self.now.max(until);
    }

    fn step(&mut self, next: Time, observer: &mut impl Observer<E>) {
        self.now = self.now.max(next);
        self.deliver(observer);
        let sent = self.proxy.as_mut().map(|proxy| proxy.advance(self.now)).unwrap_or_default();
        self.send_passed(sent, observer);
        while let Some((_, number)) = self.services.first().filter(|(due, _)| *due <= self.now) {
            self.service(number as usize, observer);
        }
    }

    /// Returns when something happens next.
    #[must_use]
    pub(crate) fn next(&self) -> Option<Time> {
        let arrival = self.flying.peek().map(|Reverse(flight)| flight.at);
        let service = self.services.first().map(|(due, _)| due);
        let proxy = self.proxy.as_ref().and_then(ProxyNode::next_timeout);
        arrival.into_iter().chain(service).chain(proxy).min()
    }

    /// Moves what has arrived by now into the nodes' sockets.
    fn deliver(&mut self, observer: &mut impl Observer<E>) {
        while self.flying.peek().is_some_and(|Reverse(flight)| flight.at <= self.now) {
            let Some(Reverse(flight)) = self.flying.pop() else { break };
            let Flight { from, to, number, bytes, corrupted, .. } = flight;
            let meta = DatagramMeta { from, to, number, now: self.now };
            if !corrupted {
                observer.on_arrival(meta, &bytes);
            } else if !observer.on_corrupted(meta, &bytes) {
                self.spare.push(bytes);
                continue;
            }
            if to >= self.nodes.len() {
                self.pass(from, to, bytes, observer);
                continue;
            }
            self.nodes[to].inbox.push((address(from), bytes));
            self.schedule_at(to, self.now);
        }
    }

    /// Gives the proxy a datagram that has reached it, and sends what it sends.
    fn pass(&mut self, from: usize, to: usize, bytes: Vec<u8>, observer: &mut impl Observer<E>) {
        let sent =
            self.proxy.as_mut().map(|proxy| proxy.pass(from, to, &bytes, self.now)).unwrap_or_default();
        self.spare.push(bytes);
        self.send_passed(sent, observer);
    }

    fn send_passed(&mut self, sent: Vec<Sent>, observer: &mut impl Observer<E>) {
        for Sent { from, to, bytes } in sent {
            let meta = DatagramMeta { from, to, number: self.sent, now: self.now };
            observer.on_passed(meta, &bytes);
            self.launch(from, to, &bytes);
        }
    }

    /// One turn of a node's drive loop.
    fn service(&mut self, number: usize, observer: &mut impl Observer<E>) {
        let now = self.now;
        let node = &mut self.nodes[number];
        let again = if node.services.0 == now { node.services.1 + 1 } else { 1 };
        assert!(again < MAX_SERVICES, "node {number} does not come to rest at {now}");
        node.services = (now, again);
        if let Some(blocked) = node.behavior.block(now) {
            node.busy = now + blocked;
            // An engine that is not run in frames is told the time when it gets its turn.
            node.held_up = node.held_up.or_else(|| node.engine.has_frames().then_some(now));
            return self.schedule_at(number, now);
        }
        // What the clock showed when the frame began.
        let clock = node.held_up.take().unwrap_or(now);
        let compared = node.engine.comparisons();
        for (from, mut bytes) in node.inbox.drain(..) {
            node.behavior.rewrite_incoming(&mut bytes);
            observer.on_taken(number, place(from), &bytes, &node.engine, now);
            node.engine.handle_datagram(from, &mut bytes, clock);
            self.spare.push(bytes);
        }
        node.engine.handle_timeout(clock);
        while let Some(event) = node.engine.poll_event(&mut self.payload) {
            observer.on_event(number, event, &self.payload, &mut node.engine, now);
        }
        self.transmit(number, clock, observer);
        let node = &mut self.nodes[number];
        let compared = node.engine.comparisons().zip(compared).map_or(0, |(after, before)| after - before);
        node.busy = now + node.behavior.search_time(compared);
        observer.on_serviced(number, &node.engine, now);
        self.schedule(number);
    }

    /// Sends what a node has to send.
    fn transmit(&mut self, number: usize, clock: Time, observer: &mut impl Observer<E>) {
        let mut buffer = std::mem::take(&mut self.buffer);
        while let Some(transmit) = self.nodes[number].engine.poll_transmit(&mut buffer, clock) {
            let node = &self.nodes[number];
            let len = node.behavior.rewrite_outgoing(&mut buffer[..transmit.len]);
            if let Some(to) = self.number(transmit.to) {
                let bytes = &buffer[..len];
                let meta = DatagramMeta { from: number, to, number: self.sent, now: self.now };
                observer.on_sent(meta, bytes, &node.engine);
                self.launch(number, to, bytes);
            }
        }
        self.buffer = buffer;
    }

    /// Notes when a node is to be serviced for its own sake.
    fn schedule(&mut self, number: usize) {
        let node = &self.nodes[number];
        let due = node.engine.next_timeout().map(|due| node.service_at(due.max(self.now)));
        self.services.set(key(number), due);
    }

    /// Notes that a node is to be serviced at `due`. What it waits for itself may be due later, and is asked then.
    fn schedule_at(&mut self, number: usize, due: Time) {
        self.services.set(key(number), Some(self.nodes[number].service_at(due)));
    }

    fn launch(&mut self, from: usize, to: usize, bytes: &[u8]) {
        self.note(from, to, bytes);
        let (now, number) = (self.now, self.sent);
        self.sent += 1;
        for arrival in self.link(from, to).pass(bytes.len(), now).into_iter().flatten() {
            let mut copy = self.spare.pop().unwrap_or_default();
            copy.clear();
            copy.extend_from_slice(bytes);
            if let Some((place, mask)) = arrival.corrupt {
                let place = usize::try_from(place % bytes.len().max(1) as u64).unwrap_or(0);
                if let Some(byte) = copy.get_mut(place) {
                    *byte ^= mask;
                }
            }
            let (at, corrupted) = (arrival.at, arrival.corrupt.is_some());
            self.flying.push(Reverse(Flight { at, number, from, to, bytes: copy, corrupted }));
        }
    }

    fn link(&mut self, from: usize, to: usize) -> &mut Link {
        let seed = self.seed ^ ((from as u64) << 32 | (to as u64) << 8).wrapping_mul(0x9E37_79B9);
        self.links.entry((from, to)).or_insert_with(|| Link::new(self.faults.clone(), seed))
    }

    /// Returns the number of the node or proxy that listens there.
    fn number(&self, address: SocketAddrV4) -> Option<usize> {
        let there = |number: usize| {
            number < self.nodes.len() || self.proxy.as_ref().is_some_and(|proxy| proxy.has(number))
        };
        Some(place(address)).filter(|number| there(*number) && address.port() == PORT)
    }

    fn note(&mut self, from: usize, to: usize, bytes: &[u8]) {
        let head = [self.now.as_micros(), from as u64, to as u64];
        let words = bytes.chunks(8).map(|chunk| {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            u64::from_le_bytes(word)
        });
        for word in head.into_iter().chain([bytes.len() as u64]).chain(words) {
            self.trace = (self.trace.rotate_left(5) ^ word).wrapping_mul(0x0000_0100_0000_01B3);
        }
    }
}

fn key(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

/// Returns the address that the node with this number has.
pub(crate) fn address(number: usize) -> SocketAddrV4 {
    let number = u32::try_from(number).unwrap_or(0) + 1;
    SocketAddrV4::new(Ipv4Addr::from_bits(FIRST_ADDRESS + number), PORT)
}

/// Returns the number of the node that has this address, or would have it.
pub(crate) fn place(address: SocketAddrV4) -> usize {
    let number = address.ip().to_bits().wrapping_sub(FIRST_ADDRESS + 1);
    usize::try_from(number).unwrap_or(usize::MAX)
}

/// Where all nodes listen.
const PORT: u16 = 22101;
/// The address below that of node 0.
const FIRST_ADDRESS: u32 = 0x0A00_0000;
/// More often than any honest use services a node at one time.
const MAX_SERVICES: u32 = 10_000;
