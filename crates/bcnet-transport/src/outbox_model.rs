//! Test of the outbox against a simple model: a list that is searched from the front each time.

use alloc::vec;
use alloc::vec::Vec;
use core::num::NonZeroU8;

use super::*;
use crate::congestion::RttEstimator;
use crate::lcg::Lcg;
use crate::wire::{Body, Control, Data, Datagram, Delivery, Fragment, Message, PeerId, Role, Writer};

/// A message or fragment in the model.
#[derive(Debug, Clone)]
struct NaiveItem {
    id: MessageId,
    len: usize,
    urgent: bool,
    state: SegmentState,
    sends: u8,
    sent_at: Time,
    /// Without the wrap of the outbox at 2³².
    datagram: u64,
}

/// The next content of a datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NaiveNext {
    Ack(MessageId),
    Segment(MessageId),
    /// An unreliable message, by its number in the payload.
    Unreliable(u32),
}

#[derive(Default)]
struct NaiveOutbox {
    /// In the order of queueing; acknowledged items remain.
    items: Vec<NaiveItem>,
    /// Unsent unreliable messages: number, length, and how many items were queued before.
    unreliable: Vec<(u32, usize, usize)>,
    acks: Vec<MessageId>,
    datagrams: u64,
    newest: u64,
}

impl NaiveOutbox {
    fn in_flight(&self) -> usize {
        self.items.iter().filter(|item| item.state == SegmentState::InFlight).map(|item| item.len).sum()
    }

    fn waiting(&self) -> impl Iterator<Item = &NaiveItem> {
        self.items.iter().filter(|item| item.state != SegmentState::Acked)
    }

    /// Returns everything that could be sent, in the right order (T-66).
    fn order(&self) -> Vec<NaiveNext> {
        let of = |channel: Channel, state: SegmentState| {
            let items = self.items.iter().enumerate();
            items.filter(move |(_, item)| item.id.channel == channel && item.state == state)
        };
        let segments = |channel, state| of(channel, state).map(|(_, item)| NaiveNext::Segment(item.id));
        let mut order: Vec<NaiveNext> = self.acks.iter().map(|id| NaiveNext::Ack(*id)).collect();
        order.extend(segments(Channel::Control, SegmentState::Lost));
        order.extend(segments(Channel::Game, SegmentState::Lost));
        order.extend(segments(Channel::Control, SegmentState::Unsent));
        let fresh = of(Channel::Game, SegmentState::Unsent);
        let (urgent, normal): (Vec<_>, Vec<_>) = fresh.partition(|(_, item)| item.urgent);
        order.extend(urgent.iter().map(|(_, item)| NaiveNext::Segment(item.id)));
        let mut rest: Vec<(usize, NaiveNext)> =
            normal.iter().map(|(at, item)| (*at, NaiveNext::Segment(item.id))).collect();
        // A message that was queued after n items is before item n.
        for (number, _, before) in &self.unreliable {
            let place =
                rest.iter().position(|(at, next)| matches!(next, NaiveNext::Segment(_)) && at >= before);
            rest.insert(place.unwrap_or(rest.len()), (*before, NaiveNext::Unreliable(*number)));
        }
        order.extend(rest.into_iter().map(|(_, next)| next));
        order
    }

    /// Checks that the sent messages are the first of the order, and as many as fit (T-60, T-66).
    fn check_sent(&mut self, datagram: Option<&[u8]>, window: usize, now: Time) {
        // T-62: datagrams that are not sent do not count.
        self.datagrams += u64::from(datagram.is_some());
        let (ready, mut acks) = (self.is_ready(window), 0);
        let mut size = 2;
        let mut order = self.order().into_iter().peekable();
        let parsed = datagram.map(|bytes| Datagram::parse(bytes, Some(Role::Client)).expect("well formed"));
        for message in parsed.iter().flat_map(|datagram| datagram.messages()) {
            size += message.wire_len();
            let found = match (message, message.id()) {
                (Message::Ack(ack), _) => NaiveNext::Ack(ack.id),
                (_, Some(id)) => NaiveNext::Segment(id),
                (Message::Data(data), None) => NaiveNext::Unreliable(unreliable_number(data.payload)),
                other => panic!("{other:?}"),
            };
            assert_eq!(Some(found), order.next());
            match found {
                NaiveNext::Ack(_) => {
                    self.acks.remove(0);
                    acks += 1;
                }
                NaiveNext::Unreliable(_) => drop(self.unreliable.remove(0)),
                NaiveNext::Segment(id) => {
                    assert!(self.in_flight() == 0 || self.in_flight() + message.wire_len() <= window);
                    let datagram = self.datagrams;
                    let item = self
                        .items
                        .iter_mut()
                        .find(|item| item.id == id)
                        .expect("a sent item is in the order");
                    assert_eq!(item.len, message.wire_len());
                    (item.state, item.sent_at, item.datagram, item.sends) =
                        (SegmentState::InFlight, now, datagram, item.sends + 1);
                }
            }
        }
        let fits = match order.next() {
            None => false,
            // T-60: at most 16 ACKs if there is nothing else.
            Some(NaiveNext::Ack(id)) => {
                (ready || acks < 16) && size + 4 + usize::from(id.fragment.is_some()) <= 512
            }
            Some(NaiveNext::Unreliable(found)) => {
                self.unreliable.iter().any(|(number, len, _)| *number == found && size + len <= 512)
            }
            Some(NaiveNext::Segment(id)) => {
                let item = self.items.iter().find(|item| item.id == id).expect("an item of the order exists");
                let room = self.in_flight() == 0 || self.in_flight() + item.len <= window;
                room && size + item.len <= 512
            }
        };
        assert!(ready || acks <= 16, "{acks} ACKs in one datagram");
        assert!(!fits, "there was room for more after {size} bytes");
    }

    /// Returns whether anything besides ACKs may be sent.
    fn is_ready(&self, window: usize) -> bool {
        let first = self.order().into_iter().find_map(|next| match next {
            NaiveNext::Ack(_) => None,
            NaiveNext::Unreliable(_) => Some(0),
            NaiveNext::Segment(id) => self.items.iter().find(|item| item.id == id).map(|item| item.len),
        });
        let room = |len| self.in_flight() == 0 || self.in_flight() + len <= window;
        !self.unreliable.is_empty() || first.is_some_and(room)
    }

    /// Marks items as lost: timed out, or overtaken by three datagrams (T-61, T-62).
    fn detect_loss(&mut self, timeout: u64, now: Time) -> usize {
        let newest = self.newest;
        let late = |item: &NaiveItem| item.sent_at.plus(timeout) <= now || newest >= item.datagram + 3;
        let lost = self.items.iter_mut().filter(|item| item.state == SegmentState::InFlight && late(item));
        lost.map(|item| {
            item.state = SegmentState::Lost;
            item.len
        })
        .sum()
    }
}

fn unreliable_number(payload: &[u8]) -> u32 {
    u32::from_le_bytes(payload[..4].try_into().expect("a number"))
}

/// Returns the encoded message.
fn encode(message: &Message<'_>) -> Vec<u8> {
    let mut buffer = [0; 512];
    let mut writer = Writer::new(&mut buffer, PeerId(2));
    assert!(writer.push(message));
    writer.finish().expect("one message")[2..].to_vec()
}

/// Both outboxes, and the state of the test.
struct OutboxPair {
    random: Lcg,
    outbox: Outbox,
    naive: NaiveOutbox,
    seqs: [Seq; 2],
    numbers: u32,
    now: Time,
    /// The number of datagrams that used the fast path.
    single_messages: usize,
}

impl OutboxPair {
    fn queue(&mut self, channel: Channel, fragments: Option<u8>, bytes: &[u8], id: MessageId, urgent: bool) {
        let (head, body) = bytes.split_first_chunk::<3>().expect("a header");
        self.outbox.queue(channel, id.seq, fragments, head, body);
        let (len, state) = (bytes.len(), SegmentState::Unsent);
        self.naive.items.push(NaiveItem {
            id,
            len,
            urgent,
            state,
            sends: 0,
            sent_at: Time::ZERO,
            datagram: 0,
        });
    }

    fn take_seq(&mut self, channel: Channel) -> Seq {
        let seq = &mut self.seqs[channel as usize];
        *seq = seq.next();
        *seq
    }

    fn queue_control(&mut self) {
        let (channel, part) = (Channel::Control, None);
        let seq = self.take_seq(channel);
        let body = Body::Disconnect { peer: PeerId(2), address: core::net::Ipv4Addr::LOCALHOST };
        let bytes = encode(&Message::Control(Control::new(seq, body)));
        self.queue(channel, None, &bytes, MessageId { channel, seq, fragment: part }, false);
    }

    fn queue_game(&mut self) {
        let (channel, urgent) = (Channel::Game, self.random.index(5) == 0);
        let seq = self.take_seq(channel);
        let total = u8::try_from(self.random.index(6).saturating_sub(1)).unwrap_or(0);
        let payload = vec![7; self.random.index(400)];
        let mut add = |delivery: Delivery| {
            let bytes = encode(&Message::Data(Data { delivery, urgent: false, payload: &payload }));
            let part = delivery.fragment().map(Fragment::index);
            let parts = delivery.fragment().map(|_| total);
            self.queue(channel, parts, &bytes, MessageId { channel, seq, fragment: part }, urgent);
        };
        match NonZeroU8::new(total) {
            None => add(Delivery::Reliable(seq)),
            Some(total) => {
                add(Delivery::Fragment(seq, Fragment::First { total }));
                let later = (1..total.get()).filter_map(NonZeroU8::new);
                later.for_each(|index| add(Delivery::Fragment(seq, Fragment::Later { index })));
            }
        }
        if urgent {
            self.outbox.mark_urgent(seq);
        }
    }

    fn queue_unreliable(&mut self) {
        self.numbers += 1;
        let mut payload = vec![7; 4 + self.random.index(300)];
        payload[..4].copy_from_slice(&self.numbers.to_le_bytes());
        let delivery = Delivery::Unreliable;
        let bytes = encode(&Message::Data(Data { delivery, urgent: false, payload: &payload }));
        let (head, body) = bytes.split_first_chunk::<3>().expect("a header");
        self.outbox.queue_unreliable(head, body, self.seqs[Channel::Game as usize].next());
        self.naive.unreliable.push((self.numbers, bytes.len(), self.naive.items.len()));
    }

    fn queue_ack(&mut self) {
        let channel = Channel::Game;
        let seq = Seq(u16::try_from(self.random.index(0x1_0000)).unwrap_or(0));
        let part = (self.random.index(2) == 0).then_some(3);
        let id = MessageId { channel, seq, fragment: part };
        assert!(self.outbox.queue_ack(id, 1));
        self.naive.acks.push(id);
    }

    fn fill(&mut self) {
        let window = [600, 2000, 50_000][self.random.index(3)];
        let mut buffer = [0; 512];
        if self.random.index(4) > 0
            && let Some(len) = self.fill_single_message(&mut buffer, window)
        {
            return self.naive.check_sent(buffer.get(..len), window, self.now);
        }
        let mut writer = Writer::new(&mut buffer, PeerId(2));
        let ready = self.outbox.readiness(window);
        self.outbox.fill(&mut writer, ready, window, self.now);
        self.naive.check_sent(writer.finish().as_deref(), window, self.now);
    }

    fn fill_single_message(&mut self, buffer: &mut [u8], window: usize) -> Option<usize> {
        let (head, room) = buffer.split_first_chunk_mut()?;
        *head = [2, 1];
        let len = if self.outbox.has_pending_acks() {
            self.outbox.fill_single_ack(room)
        } else {
            self.outbox.fill_single_data(room, window, self.now)
        };
        self.single_messages += usize::from(len.is_some());
        len.map(|len| 2 + len)
    }

    /// Acknowledges a random item: one in flight, or sometimes one that was acknowledged before.
    fn on_ack(&mut self) {
        let sent: Vec<usize> = (0..self.naive.items.len())
            .filter(|at| !matches!(self.naive.items[*at].state, SegmentState::Unsent))
            .filter(|at| self.naive.items[*at].state != SegmentState::Acked || self.random.index(50) == 0)
            .collect();
        if sent.is_empty() {
            return;
        }
        // The first items are the likeliest. An item with many sends is picked, so that its intervals do
        // not grow (T-62).
        let sent_often = sent.iter().position(|at| {
            self.naive.items[*at].sends >= 7 && self.naive.items[*at].state != SegmentState::Acked
        });
        let pick = sent_often.unwrap_or_else(|| self.random.index(sent.len().min(12)));
        let item = &mut self.naive.items[sent[pick]];
        let effect = self.outbox.on_ack(item.id, &RttEstimator::default(), self.now);
        self.outbox.release_acked();
        if item.state == SegmentState::Acked {
            return assert_eq!(effect, AckEffect::Useless);
        }
        let AckEffect::Delivered { bytes, rtt: trip, .. } = effect else { panic!("{effect:?}") };
        assert_eq!(bytes, item.len);
        assert_eq!(trip, (item.sends == 1).then(|| self.now.micros_since(item.sent_at)));
        item.state = SegmentState::Acked;
        self.naive.newest = self.naive.newest.max(item.datagram);
    }

    fn compare(&self, step: usize) {
        let (outbox, naive) = (&self.outbox, &self.naive);
        assert_eq!(outbox.queued(), naive.waiting().count() + naive.unreliable.len(), "step {step}");
        let bytes =
            naive.waiting().map(|item| item.len).chain(naive.unreliable.iter().map(|(_, len, _)| *len));
        assert_eq!(outbox.queued_bytes(), bytes.sum::<usize>(), "step {step}");
        assert_eq!(outbox.in_flight(), naive.in_flight(), "step {step}");
        assert!(outbox.pending_acks().eq(naive.acks.iter().copied()), "step {step}");
        let fresh = naive.items.iter().filter(|item| item.state == SegmentState::Unsent).count();
        assert_eq!(outbox.unsent(), fresh + naive.unreliable.len(), "step {step}");
        let mut waiting: Vec<MessageId> = outbox.unacknowledged().map(|(id, ..)| id).collect();
        let sent = naive.waiting().filter(|item| item.state != SegmentState::Unsent);
        assert!(
            sent.map(|item| item.id).all(|id| waiting
                .iter()
                .position(|w| *w == id)
                .map(|at| waiting.swap_remove(at))
                .is_some()),
            "step {step}"
        );
        assert!(waiting.is_empty(), "step {step}");
    }
}

/// T-60 to T-62, T-66: both send the same in the same order, and lose and acknowledge the same.
#[test]
fn outbox_matches_naive_model() {
    let mut single_messages = 0;
    for seed in 1..=25 {
        // Starts close to the wrap of the datagram count and of the sequence numbers.
        let before = u32::MAX - 20;
        let outbox = Outbox { datagram_count: before, newest_acked_datagram: before, ..Outbox::default() };
        let naive = NaiveOutbox { datagrams: before.into(), newest: before.into(), ..NaiveOutbox::default() };
        let seqs = [Seq(0xFFF0), Seq(0xFF80)];
        let now = Time::from_micros(1);
        let mut pair =
            OutboxPair { random: Lcg(seed), outbox, naive, seqs, numbers: 0, now, single_messages: 0 };
        for step in 0..1500 {
            // In half of the runs little is queued, so that often there is only one message to send.
            let quiet = if seed % 2 == 0 && pair.random.index(4) > 0 { 6 } else { 0 };
            match quiet + pair.random.index(20 - quiet) {
                0 => pair.queue_control(),
                1..3 => pair.queue_game(),
                3 => pair.queue_unreliable(),
                4 | 5 => {
                    let max = if seed % 2 == 0 { 3 } else { 12 };
                    (0..pair.random.index(max)).for_each(|_| pair.queue_ack());
                }
                6..11 => pair.fill(),
                11..18 => pair.on_ack(),
                _ => {
                    pair.now = pair.now.plus(pair.random.below(30_000));
                    let (now, timeout) = (pair.now, 40_000);
                    assert_eq!(
                        pair.outbox
                            .detect_loss(RetransmitPolicy { rto: timeout, backoff_after_sends: 8 }, now),
                        pair.naive.detect_loss(timeout, now),
                        "seed {seed} step {step}"
                    );
                }
            }
            pair.compare(step);
        }
        for rounds in 0.. {
            assert!(rounds < 10_000, "seed {seed} does not come to rest");
            if pair.outbox.queued() == 0 && !pair.outbox.has_pending_acks() {
                break;
            }
            pair.fill();
            pair.on_ack();
        }
        assert!(pair.outbox.is_empty() && pair.outbox.in_flight() == 0, "seed {seed}");
        assert!(pair.outbox.datagram_count < before, "seed {seed}: the count did not wrap");
        single_messages += pair.single_messages;
    }
    assert!(single_messages > 100, "only {single_messages} datagrams of one message");
}

/// T-66: a sent urgent message leaves the urgent queue, even if it was alone in its datagram.
#[test]
fn sent_urgent_messages_leave_the_urgent_queue() {
    let mut outbox = Outbox::default();
    for n in 0..100 {
        let (channel, seq, part) = (Channel::Game, Seq(n), None);
        outbox.queue(channel, seq, None, &[0x32, 15, 0x80, 0, 0], &[7; 10]);
        outbox.mark_urgent(seq);
        let mut buffer = [0; 512];
        if outbox.fill_single_data(&mut buffer, 5000, Time::ZERO).is_none() {
            let mut writer = Writer::new(&mut buffer, PeerId(2));
            let ready = outbox.readiness(5000);
            assert_eq!(outbox.fill(&mut writer, ready, 5000, Time::ZERO).first_sends, 1);
        }
        outbox.on_ack(MessageId { channel, seq, fragment: part }, &RttEstimator::default(), Time::ZERO);
        outbox.release_acked();
        assert_eq!((outbox.urgent.len(), outbox.queued()), (0, 0), "message {n}");
    }
}

/// T-60: the number of pending ACKs is limited, and consecutive ones are stored as one run.
///
/// The limit is more than a peer can have messages in flight.
#[test]
fn pending_acks_are_bounded_and_stored_as_runs() {
    let mut outbox = Outbox::default();
    let id = |seq| MessageId { channel: Channel::Game, seq: Seq(seq), fragment: None };
    assert!(outbox.queue_ack(id(0), 200) && outbox.queue_ack(id(200), 50));
    assert_eq!((outbox.pending_acks.len(), outbox.pending_acks().count()), (1, 250));
    for seq in 250..2046 {
        assert!(outbox.queue_ack(id(seq), 1), "ACK {seq}");
    }
    // Two of the next five fit.
    assert!(outbox.queue_ack(id(3000), 5));
    assert!(!outbox.queue_ack(id(4000), 1));
    let pending: Vec<u16> = outbox.pending_acks().map(|id| id.seq.0).collect();
    assert_eq!(pending, (0..2046).chain([3000, 3001]).collect::<Vec<_>>());
}

/// A retransmitted game message counts as game data: ACKs wait for such datagrams.
#[test]
fn filled_datagram_reports_whether_it_has_game_data() {
    for (channel, is_game) in [(Channel::Game, true), (Channel::Control, false)] {
        let mut outbox = Outbox::default();
        outbox.queue(channel, Seq(0), None, &[0x32, 15, 0x80, 0, 0], &[7; 10]);
        let fill = |outbox: &mut Outbox, now| {
            let mut buffer = [0; 512];
            let mut writer = Writer::new(&mut buffer, PeerId(2));
            let ready = outbox.readiness(5000);
            outbox.fill(&mut writer, ready, 5000, now)
        };
        let filled = fill(&mut outbox, Time::ZERO);
        assert_eq!((filled.first_sends, filled.retransmits, filled.has_game_data), (1, 0, is_game));
        let late = Time::from_micros(100_000);
        assert_eq!(outbox.detect_loss(RetransmitPolicy { rto: 50_000, backoff_after_sends: 8 }, late), 15);
        let filled = fill(&mut outbox, late);
        assert_eq!((filled.first_sends, filled.retransmits, filled.has_game_data), (0, 1, is_game));
    }
    // A message that does not fit does not count.
    let mut outbox = Outbox::default();
    for seq in 0..2 {
        outbox.queue(Channel::Game, Seq(seq), None, &[0x32, 15, 0x80, 0, 0], &[7; 10]);
        let mut buffer = [0; 512];
        let filled = outbox.fill(&mut Writer::new(&mut buffer, PeerId(2)), Readiness::Now, 15, Time::ZERO);
        assert_eq!((filled.first_sends, filled.has_game_data), (u32::from(seq == 0), seq == 0));
    }
}
