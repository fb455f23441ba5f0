//! The original engine of 2002 as a model, faults included.
//!
//! [`Stock`] is a host or a client. It does what the original does, in the original's order and in 32-bit floats, so
//! that its queue dumps can be held against recorded ones. It is linear where the original is linear, and counts what
//! that costs ([`Tally`]). It knows nothing of what it is used for: every number that can be turned is in [`Params`].
//!
//! A frame ([`Stock::service`]) is, in this order: the request to be let in or keepalives, the send pass, the receive
//! phase, dispatch of the low channel, delivery of the high channel, timeouts. Sending comes before receiving, so an
//! ACK leaves one frame after its message arrived, and an answer to an event in the frame after that.
//!
//! # Quirks
//!
//! Each has a test in `tests/stock`. The letter is how sure the rule is: H is seen in the program and in captured
//! bytes, M has one good source, L is a guess.
//!
//! | name | rule | |
//! |---|---|---|
//! | one datagram | a peer gets at most one datagram per frame, of at most 512 bytes and 255 messages | H |
//! | rotation | peers are served from behind the last one served on: the second entry of the table first, the first one last | H |
//! | deaf socket | a peer whose socket cannot send is passed over and does not count as served | M |
//! | repeated ACKs | an ACK is sent three times by itself, 0.6666 s apart, and stays in the outbox | H |
//! | gate | six more sends only happen with other traffic, or to a deleted peer; with the ninth it is forgotten | H |
//! | ACK restart | a repeated message starts its ACK again from zero; it is found by a linear search | H |
//! | ACK first | a reliable message is acknowledged before anyone looks whether it is of use | H |
//! | strict clock | a timer is due only when the clock shows more; in its own frame an ACK is not | H |
//! | blocked clock | the clock is read once per frame; what is sent after a long pause in a frame is due in the next | M |
//! | one retransmit | the first message that is due ends the search, even if it does not fit | H |
//! | sawtooth | waits of 1, 2, 3, 4, 5 s, then 1 s again; mode 0 keeps the wait, mode 2 doubles without a limit | H |
//! | idle step | a goodbye's step of 0.5 s is never used: it is repeated every 1.0 s | H |
//! | age limit | after 360 s a message is given up in silence, when a pass walks over it while it is not due | H |
//! | head insertion | urgent messages go to the head, so they leave in reverse order, parts too | H |
//! | aggregate flag | of messages without it, one goes into a datagram; the others wait while the walk goes on | H |
//! | forced reliable | an unreliable message that must be split is sent reliably with number 0: it is lost | M |
//! | 256 parts | index and total are cut to eight bits; a total of 0 is complete with part 0 | H |
//! | pending limit | 32768 waiting messages are one too many; no number is used | H |
//! | raw window | numbers are compared by plain difference, not around the circle | H |
//! | wrap leftover | a queued duplicate of number 65535 stays until the numbers come around | H |
//! | sender-blind parts | parts of different senders with the same number are joined | H |
//! | hold-back | an incomplete message whose turn it is stops delivery for everyone behind it | H |
//! | missing part | enough parts with a gap among them end the program | H |
//! | urgent arrival | an urgent unreliable message goes behind the head if that is not urgent | H |
//! | unreliable first | of what arrived at the same time the unreliable is delivered first | H |
//! | mixed ACK | an ACK of a part never clears a whole message, nor the other way round | H |
//! | unknown id | a datagram with an unknown id makes a peer; where it comes from is not compared | H |
//! | nonce | a request with another nonce and the same own address replaces the peer; otherwise it is one more | H |
//! | ports by address | one port per IPv4 address: two players behind one address share it | H |
//! | own entry | a host that sends to itself has an entry for itself, without keepalives or timeout | M |
//! | linger | a deleted peer is served for 15 s, with the gate open | M |
//! | unknown type | it ends the receive phase: the rest of the datagram is lost, the other datagrams wait | H |
//! | recomputed size | reading goes on behind the size computed from the message, not behind the one it tells | H |
//! | missing flag | a low message without the reliable bit is read with a number and passed over without it | L |
//! | undersized | a message that says to be smaller than its header ends the program | H |
//! | over-read | behind the end of a datagram the reader finds whatever is there: zeros here | L |
//!
//! Where the original would end, the model stops and tells why ([`Stock::crash`]). It also stops when more waits than
//! any honest use could cause: the original has no such limits.

mod clock;
mod connection;
mod counters;
mod dispatch;
mod dump;
mod engine;
mod incoming;
mod message;
mod params;
mod peer;
mod receive;
mod schedule;
mod send;
mod send_pass;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::{Ipv4Addr, SocketAddrV4};

use bcnet_transport::wire::{PeerId, Role};
use bcnet_transport::{Event, LeaveReason, Time, Transmit, cipher};

use clock::FrameClock;
pub use counters::StockCounters;
pub use dump::{
    ACK_ENTRY_BYTES, AckEntry, AckTraceEntry, PeerQueueDump, QueueLengths, RetxEntry, SendFlags, UnsentEntry,
};
use incoming::IncomingQueues;
pub use message::Crash;
pub use params::{
    AckDedup, AckGate, AckPosition, Backoff, BackoffMode, Params, PortLearning, RetransmitsPerFrame,
};
use peer::PeerTable;
pub use send::{SendOptions, StockSendError};

/// One end of a session as the original runs it.
#[derive(Debug)]
pub struct StockEngine {
    params: Params,
    clock: FrameClock,
    role: Role,
    state: StockState,
    id: PeerId,
    /// The own address and the host's.
    own_address: Ipv4Addr,
    host_address: Ipv4Addr,
    ports: BTreeMap<Ipv4Addr, u16>,
    peers: PeerTable,
    /// The request to be let in, until it is queued.
    connect_request: Option<Vec<u8>>,
    /// Addresses are not passed on. The original has no such switch; it is off unless a session asks for it.
    masks_addresses: bool,
    /// What the clock shows: in a frame, what it showed when the frame began.
    now: f32,
    /// When the host was heard, and when something was queued for it.
    host_last_received: f32,
    host_last_queued: f32,
    /// Datagrams that have arrived, deciphered.
    socket_buffer: VecDeque<(SocketAddrV4, Vec<u8>)>,
    incoming: IncomingQueues,
    outgoing_datagrams: VecDeque<(SocketAddrV4, Vec<u8>)>,
    events: VecDeque<(Event, Vec<u8>)>,
    ack_trace: VecDeque<AckTraceEntry>,
    last_frame: Option<Time>,
    /// The end of the last frame changed something that the next one has to look at.
    must_run_next_frame: bool,
    leave_reason: Option<LeaveReason>,
    leaving_since: Option<f32>,
    /// Where the search for a free id goes on.
    next_id: u8,
    /// The entry that the last send pass served last.
    last_served: usize,
    /// Peers to whom the socket cannot send now; `None` is all.
    unwritable: BTreeSet<Option<PeerId>>,
    crash: Option<Crash>,
    counters: StockCounters,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StockState {
    /// Or hosting.
    Connected,
    Connecting,
    Closed,
}

impl StockEngine {
    /// Makes a host.
    #[must_use]
    pub fn host(params: Params) -> Self {
        let address = params.address;
        let host = SocketAddrV4::new(address, DEFAULT_PORT);
        Self::new(params, Role::Host, PeerId::HOST, address, host)
    }

    /// Makes a client that asks `host` to be let in. `password` is UTF-16LE.
    #[must_use]
    pub fn connect(
        params: Params,
        host: SocketAddrV4,
        own: Ipv4Addr,
        nonce: u32,
        password: &[u8],
        now: Time,
    ) -> Self {
        let mut stock = Self::new(params, Role::Client, PeerId::UNASSIGNED, own, host);
        let mut request = own.octets().to_vec();
        request.extend(nonce.to_le_bytes());
        request.extend(password);
        request.extend([0, 0]);
        stock.connect_request = Some(request);
        stock.now = stock.clock.reading_at(now);
        (stock.host_last_received, stock.host_last_queued) = (stock.now, stock.now);
        stock
    }

    /// Makes one that has left: it takes everything and says nothing.
    pub(crate) fn closed() -> Self {
        Self { state: StockState::Closed, ..Self::host(Params::default()) }
    }

    fn new(params: Params, role: Role, id: PeerId, address: Ipv4Addr, host: SocketAddrV4) -> Self {
        Self {
            clock: FrameClock::new(params.granularity),
            params,
            role,
            state: if role == Role::Host { StockState::Connected } else { StockState::Connecting },
            id,
            own_address: address,
            host_address: *host.ip(),
            ports: BTreeMap::from([(*host.ip(), host.port())]),
            peers: PeerTable::default(),
            connect_request: None,
            masks_addresses: false,
            now: 0.0,
            host_last_received: 0.0,
            host_last_queued: 0.0,
            socket_buffer: VecDeque::new(),
            incoming: IncomingQueues::default(),
            outgoing_datagrams: VecDeque::new(),
            events: VecDeque::new(),
            ack_trace: VecDeque::new(),
            last_frame: None,
            must_run_next_frame: false,
            leave_reason: None,
            leaving_since: None,
            next_id: 2,
            last_served: 0,
            unwritable: BTreeSet::new(),
            crash: None,
            counters: StockCounters::default(),
        }
    }

    /// Returns the own id: [`PeerId::HOST`] for a host, [`PeerId::UNASSIGNED`] for a client that was not let in yet.
    #[must_use]
    pub const fn id(&self) -> PeerId {
        self.id
    }

    /// Returns all others that are there and have an id.
    #[must_use]
    pub fn peers(&self) -> Vec<PeerId> {
        let others = self.peers.iter().filter(|peer| peer.is_live() && peer.id != self.id);
        others.map(|peer| peer.id).filter(|id| *id != PeerId::UNASSIGNED).collect()
    }

    /// Returns what it did so far.
    #[must_use]
    pub const fn stock_counters(&self) -> StockCounters {
        self.counters
    }

    /// Returns what would have ended the original program. Nothing happens any more then.
    #[must_use]
    pub const fn crash(&self) -> Option<Crash> {
        self.crash
    }

    /// Returns whether it has left, by itself or because the session is over.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.state == StockState::Closed
    }

    /// Puts a datagram into the socket, where it stays until a frame takes it. GameSpy text is told at once. What a
    /// socket cannot hold is lost.
    pub fn handle_datagram(&mut self, from: SocketAddrV4, bytes: &[u8], _now: Time) {
        if bytes.first() == Some(&PeerId::GAMESPY.0) {
            self.push_event(Event::Query { from }, bytes);
            return;
        }
        let mut bytes = bytes.to_vec();
        if self.params.cipher {
            cipher::decrypt(&mut bytes);
        }
        self.push_to_socket(from, bytes);
    }

    /// Lets one message, plain, arrive from a peer as if that peer had sent it in a datagram of its own. One that is not
    /// known yet has an address of a network for documentation.
    pub fn inject(&mut self, peer: PeerId, message: &[u8], _now: Time) {
        let known = self.peers.find(peer).and_then(|place| self.peers.get(place));
        let address = match known {
            Some(known) => known.address,
            None if peer == PeerId::HOST => self.host_address,
            None => Ipv4Addr::new(192, 0, 2, peer.0),
        };
        let port = self.ports.get(&address).copied().unwrap_or(DEFAULT_PORT);
        let mut bytes = vec![peer.0, 1];
        bytes.extend(message);
        self.push_to_socket(SocketAddrV4::new(address, port), bytes);
    }

    fn push_to_socket(&mut self, from: SocketAddrV4, bytes: Vec<u8>) {
        let open = self.state != StockState::Closed && self.crash.is_none();
        if open && self.socket_buffer.len() < MAX_SOCKET_DATAGRAMS {
            self.socket_buffer.push_back((from, bytes));
        }
    }

    /// One frame, at whose beginning the clock shows `now`. A frame that is held up after that is given the old time.
    pub fn run_frame(&mut self, now: Time) {
        if self.crash.is_some() || self.state == StockState::Closed {
            return;
        }
        self.now = self.clock.reading_at(now);
        self.last_frame = Some(now);
        self.must_run_next_frame = false;
        self.queue_connect_or_keepalives();
        self.send_pass();
        self.receive();
        if self.crash.is_none() {
            self.dispatch_control();
            if self.state == StockState::Connected {
                self.deliver_game();
            }
            self.check_timeouts();
        }
    }

    /// Takes the next datagram to send.
    ///
    /// # Panics
    /// If it does not fit `buffer`.
    pub fn poll_transmit(&mut self, buffer: &mut [u8]) -> Option<Transmit> {
        let (to, bytes) = self.outgoing_datagrams.pop_front()?;
        buffer[..bytes.len()].copy_from_slice(&bytes);
        Some(Transmit { to, len: bytes.len() })
    }

    /// Takes the next thing that happened; its bytes, if it has any, are put into `payload`.
    pub fn poll_event(&mut self, payload: &mut Vec<u8>) -> Option<Event> {
        let (event, bytes) = self.events.pop_front()?;
        *payload = bytes;
        Some(event)
    }

    /// Takes the next ACK that was dispatched, if [`trace`](Params::trace) is on.
    pub fn poll_ack_trace(&mut self) -> Option<AckTraceEntry> {
        self.ack_trace.pop_front()
    }

    fn push_event(&mut self, event: Event, bytes: &[u8]) {
        self.events.push_back((event, bytes.to_vec()));
    }
}

/// Where a game listens if nothing else is known.
const DEFAULT_PORT: u16 = 22101;
/// More datagrams than arrive between two frames in honest use.
const MAX_SOCKET_DATAGRAMS: usize = 1 << 16;
