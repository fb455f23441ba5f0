//! A model of the original engine of 2002, including its faults.
//!
//! [`StockEngine`] is a host or a client. It performs the original's steps in the original's order and in
//! 32-bit floats, so that its queue dumps can be compared with recorded dumps. It searches linearly where the
//! original does, and counts the comparisons ([`StockCounters`]). Every tunable number is in [`Params`].
//!
//! A frame ([`StockEngine::run_frame`]) has these steps, in this order: connect request or keepalives, send
//! pass, receive phase, dispatch of the control channel, delivery of the game channel, timeouts. Sending
//! comes before receiving. So the ACK of a message, and any answer to it, leave in the frame after the one
//! that read the message.
//!
//! # Quirks
//!
//! Each quirk has a test in `tests/stock`. The letter is the confidence: H is seen in the program and in
//! captured bytes, M has one good source, L is a guess.
//!
//! | name | rule | |
//! |---|---|---|
//! | one datagram | a peer gets at most one datagram per frame, of at most 512 bytes and 255 messages | H |
//! | rotation | a pass starts after the peer that was served last: with all sockets writable, the second table entry is first and the first is last | H |
//! | deaf socket | a peer whose socket cannot send is skipped and does not count as served | M |
//! | repeated ACKs | an ACK is sent three times without other traffic, 0.6666 s apart, and stays in the outbox | H |
//! | gate | six more sends need other traffic or a deleted peer; after the ninth send the ACK is removed | H |
//! | ACK restart | a duplicate message restarts its ACK from zero; a linear search finds the ACK | H |
//! | ACK first | a reliable message is acknowledged before the engine checks whether it can use it | H |
//! | strict clock | a timer is due only when the clock shows more than its time; an ACK is not due in its own frame | H |
//! | blocked clock | the clock is read once per frame; a message sent after a long pause in a frame is due again in the next | M |
//! | one retransmit | the first message that is due ends the search, even if it does not fit | H |
//! | sawtooth | waits of 1, 2, 3, 4, 5 s, then 1 s again; mode 0 keeps the wait, mode 2 doubles without a limit | H |
//! | idle step | the step of 0.5 s of a disconnect is never used: it is retransmitted every 1.0 s | H |
//! | age limit | a message older than 360 s is dropped without a report, when a pass skips it because it is not due | H |
//! | head insertion | urgent messages are queued at the head, so they are sent in reverse order, fragments too | H |
//! | aggregate flag | a datagram has at most one message without this flag; the others wait while the search goes on | H |
//! | forced reliable | an unreliable message that must be split is sent reliably with number 0: it is lost | M |
//! | 256 fragments | fragment number and total are truncated to eight bits; a total of 0 is complete with fragment 0 | H |
//! | pending limit | a message is refused if 32768 messages would be pending; no number is used | H |
//! | raw window | sequence numbers are compared by plain difference, without wrap-around | H |
//! | wrap leftover | a queued duplicate of number 65535 stays until the numbers wrap around | H |
//! | sender-blind fragments | fragments of different senders with the same number are joined | H |
//! | hold-back | an incomplete message that is next in sequence blocks delivery for everyone behind it | H |
//! | missing fragment | enough fragments with a gap among them crash the program | H |
//! | urgent arrival | an urgent unreliable message is queued after the head if the head is not urgent | H |
//! | unreliable first | of messages that arrive together, unreliable ones are delivered first | H |
//! | mixed ACK | an ACK of a fragment never clears a whole message, and a plain ACK never clears a fragment | H |
//! | unknown id | a datagram with an unknown id creates a peer; its source address is not compared | H |
//! | nonce | a request with another nonce and the same own address replaces the peer; otherwise it adds one | H |
//! | ports by address | one port per IPv4 address: two players behind one address share it | H |
//! | own entry | a host that sends to itself has an entry for itself, without keepalives or timeout | M |
//! | linger | a deleted peer is served for 15 s, with the gate open | M |
//! | unknown type | it ends the receive phase: the rest of the datagram is lost, the other datagrams wait | H |
//! | recomputed size | the parser advances by the size computed from the message, not by the size field | H |
//! | missing flag | a control message without the reliable bit is read with a sequence number, but its computed size does not include the number | L |
//! | undersized | a message with a size field smaller than its header crashes the program | H |
//! | over-read | the parser reads unknown memory after the end of a datagram: zeros in the model | L |
//!
//! Where the original would crash, the model stops and reports the cause ([`StockEngine::crash`]). It also
//! stops when its queues exceed limits that normal use never reaches: the original has no such limits.

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

/// One end of a session, run by the model of the original engine.
#[derive(Debug)]
pub struct StockEngine {
    params: Params,
    clock: FrameClock,
    role: Role,
    state: StockState,
    id: PeerId,
    /// Address of this node, and address of the host.
    own_address: Ipv4Addr,
    host_address: Ipv4Addr,
    ports: BTreeMap<Ipv4Addr, u16>,
    peers: PeerTable,
    /// Payload of the connect request, until it is queued.
    connect_request: Option<Vec<u8>>,
    /// `true` if a host relays 0.0.0.0 instead of peers' addresses. The original has no such switch.
    masks_addresses: bool,
    /// Clock reading in seconds. During a frame: the reading at its start.
    now: f32,
    /// Time when a message from the host last arrived, and when one was last queued for the host.
    host_last_received: f32,
    host_last_queued: f32,
    /// Datagrams in the socket buffer, after decryption.
    socket_buffer: VecDeque<(SocketAddrV4, Vec<u8>)>,
    incoming: IncomingQueues,
    outgoing_datagrams: VecDeque<(SocketAddrV4, Vec<u8>)>,
    events: VecDeque<(Event, Vec<u8>)>,
    ack_trace: VecDeque<AckTraceEntry>,
    last_frame: Option<Time>,
    /// `true` if the end of the last frame made work for the next frame.
    must_run_next_frame: bool,
    leave_reason: Option<LeaveReason>,
    leaving_since: Option<f32>,
    /// Id at which the search for a free id continues.
    next_id: u8,
    /// Position of the entry that was served last.
    last_served: usize,
    /// Peers that the socket cannot send to; `None` stands for all peers.
    unwritable: BTreeSet<Option<PeerId>>,
    crash: Option<Crash>,
    counters: StockCounters,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StockState {
    /// Connected to a host, or hosting.
    Connected,
    Connecting,
    Closed,
}

impl StockEngine {
    /// Creates a host.
    #[must_use]
    pub fn host(params: Params) -> Self {
        let address = params.address;
        let host = SocketAddrV4::new(address, DEFAULT_PORT);
        Self::new(params, Role::Host, PeerId::HOST, address, host)
    }

    /// Creates a client that connects to `host`. `password` is UTF-16LE.
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

    /// Creates an engine that has left: it ignores all datagrams and sends none.
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

    /// Returns the engine's own id.
    ///
    /// It is [`PeerId::HOST`] for a host, and [`PeerId::UNASSIGNED`] for a client before its admission.
    #[must_use]
    pub const fn id(&self) -> PeerId {
        self.id
    }

    /// Returns the ids of all live peers.
    #[must_use]
    pub fn peers(&self) -> Vec<PeerId> {
        let others = self.peers.iter().filter(|peer| peer.is_live() && peer.id != self.id);
        others.map(|peer| peer.id).filter(|id| *id != PeerId::UNASSIGNED).collect()
    }

    /// Returns the counters.
    #[must_use]
    pub const fn stock_counters(&self) -> StockCounters {
        self.counters
    }

    /// Returns the cause of a crash of the original program. The engine does nothing after a crash.
    #[must_use]
    pub const fn crash(&self) -> Option<Crash> {
        self.crash
    }

    /// Returns whether the engine has left, by itself or because the session ended.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.state == StockState::Closed
    }

    /// Puts a datagram into the socket buffer, where the next frame reads it.
    ///
    /// A GameSpy query is reported at once. If the buffer is full, the datagram is lost.
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

    /// Simulates a datagram from a peer with one message, in plaintext.
    ///
    /// An unknown peer gets an address from a network reserved for documentation.
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

    /// Runs one frame. `now` is the time at which the frame reads the clock, even if it is delayed after that.
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

    /// Returns the next datagram to send.
    ///
    /// # Panics
    /// Panics if the datagram does not fit in `buffer`.
    pub fn poll_transmit(&mut self, buffer: &mut [u8]) -> Option<Transmit> {
        let (to, bytes) = self.outgoing_datagrams.pop_front()?;
        buffer[..bytes.len()].copy_from_slice(&bytes);
        Some(Transmit { to, len: bytes.len() })
    }

    /// Returns the next event, and writes its bytes to `payload`.
    pub fn poll_event(&mut self, payload: &mut Vec<u8>) -> Option<Event> {
        let (event, bytes) = self.events.pop_front()?;
        *payload = bytes;
        Some(event)
    }

    /// Returns the next handled ACK, if [`trace_acks`](Params::trace_acks) is on.
    pub fn poll_ack_trace(&mut self) -> Option<AckTraceEntry> {
        self.ack_trace.pop_front()
    }

    fn push_event(&mut self, event: Event, bytes: &[u8]) {
        self.events.push_back((event, bytes.to_vec()));
    }
}

/// Default UDP port of the game.
const DEFAULT_PORT: u16 = 22101;
/// Size of the socket buffer. Normal use has fewer datagrams between two frames.
const MAX_SOCKET_DATAGRAMS: usize = 1 << 16;
