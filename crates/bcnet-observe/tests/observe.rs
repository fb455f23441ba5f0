//! The observer, fed with hand-written datagrams.

use std::net::{Ipv4Addr, SocketAddrV4};

use bcnet_observe::{
    CaptureMiss, Content, ConversationId, FindingKind, MessageBuffer, NonStock, Observed, Observer,
    ObserverLimits, RetransmitCause, Side,
};
use bcnet_wire::{Channel, Kind, Seq, Time};

/// An observer that sees the datagrams between one host and one client.
struct TestObserver {
    observer: Observer,
    mark: u64,
}

impl TestObserver {
    fn new() -> Self {
        Self { observer: Observer::new(ObserverLimits::default()), mark: 0 }
    }

    /// Observes a deciphered datagram, given as hex. Its first byte, the sender byte, selects the addresses.
    fn observe(&mut self, seconds: f64, hex: &str) {
        self.observe_and(seconds, hex, |_| {});
    }

    /// Observes a datagram like [`observe`](Self::observe), and passes its classification to `check`.
    fn observe_and<R>(&mut self, seconds: f64, hex: &str, check: impl FnOnce(Observed<'_>) -> R) -> R {
        let bytes = bytes(hex);
        let (from, to) = if bytes[0] == 1 { (HOST, CLIENT) } else { (CLIENT, HOST) };
        self.mark += 1;
        with_content(&bytes, |content| {
            check(self.observer.observe(self.mark, at(seconds), from, to, content))
        })
    }

    fn findings(&mut self) -> Vec<FindingKind> {
        std::iter::from_fn(|| self.observer.poll_finding()).map(|finding| finding.kind).collect()
    }

    fn dump(&self, side: Side, seconds: f64) -> String {
        self.observer.queues(ConversationId(0), side, at(seconds)).expect("known").to_string()
    }
}

fn bytes(hex: &str) -> Vec<u8> {
    hex.split_whitespace().map(|byte| u8::from_str_radix(byte, 16).expect("hex")).collect()
}

/// Parses a deciphered datagram without a known role of its sender.
fn with_content<R>(plain: &[u8], use_it: impl FnOnce(&Content<'_>) -> R) -> R {
    use_it(&MessageBuffer::default().read(plain, None))
}

fn at(seconds: f64) -> Time {
    Time::from_micros((seconds * 1e6) as u64)
}

const HOST: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 1), 22101);
const CLIENT: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 2), 22101);

/// T-76: a cookie is a message with an unexpected number. It causes no finding and stays in no queue.
#[test]
fn cookie_is_not_a_fault() {
    for number in ["00 40", "34 52", "FF 7F", "00 80", "FF BF"] {
        let mut tap = TestObserver::new();
        tap.observe(0.0, "FF 01 03 0F C0 00 00 0A 00 00 02 5F 0A 00 00 00 00");
        tap.observe(0.02, &format!("01 03 01 00 00 02 03 06 C0 00 00 02 32 05 80 {number}"));
        tap.observe(0.04, &format!("02 02 01 00 00 02 01 {number} 00"));
        for seq in 0..3_u8 {
            let at = 0.06 + 0.04 * f64::from(seq);
            tap.observe(at, &format!("01 01 32 07 80 {seq:02X} 00 20 00"));
            tap.observe(at + 0.02, &format!("02 01 01 {seq:02X} 00 00"));
        }
        // A second cookie, and a conversation that is longer than the time for which a gap may be filled.
        tap.observe(0.2, "01 01 32 05 80 00 A0");
        tap.observe(0.22, "02 01 01 00 A0 00");
        for seq in 3..20_u8 {
            let at = 2.5 * f64::from(seq);
            tap.observe(at, &format!("01 01 32 07 80 {seq:02X} 00 20 00"));
            tap.observe(at + 0.02, &format!("02 01 01 {seq:02X} 00 00"));
        }
        tap.observer.advance(at(50.0));
        let mut findings = tap.findings();
        findings.retain(|finding| !matches!(finding, FindingKind::AcksOnce));
        assert_eq!(findings, [], "{number}");
        // Only bcnet sends cookies, and bcnet sends each ACK once.
        assert_eq!(tap.dump(Side::Second, 50.0), "peer=2 retxQ=0 ackOutQ=0", "{number}");
    }
}

#[test]
fn repeated_ack_is_reported_stale_with_its_message() {
    let mut tap = TestObserver::new();
    tap.observe(0.0, "02 01 32 07 80 00 00 2A 20");
    assert_eq!(
        tap.dump(Side::First, 0.0),
        "peer=255 retxQ=1 ackOutQ=0\n  retx[0] seq=0x0000 frag=0 rel=1 retx=0 intv=1.00"
    );
    tap.observe(0.02, "01 01 01 00 00 00");
    assert_eq!(tap.dump(Side::First, 0.03), "peer=1 retxQ=0 ackOutQ=0");
    assert_eq!(
        tap.dump(Side::Second, 0.03),
        "peer=2 retxQ=0 ackOutQ=1\n  ack[0] seq=0x0000 frag=0 below32=0 retx=1"
    );
    tap.observe(0.69, "01 01 01 00 00 00");
    let found = tap.findings();
    let [FindingKind::StaleAck { about, age, times: 2 }] = found[..] else { panic!("{found:?}") };
    assert_eq!((about.opcode, age.as_millis()), (Some(0x2A), 670));
    assert_eq!(
        found[0].to_string(),
        "stale ACK of game seq=0 opcode=0x2A, sent 2 times, cleared 0.670 s ago"
    );
}

/// The closed gate of the stock engine: after three sends an ACK leaves only with another message.
#[test]
fn ack_delayed_after_three_sends_is_a_closed_gate() {
    let gate_findings = |idle: f64, fourth: &str, between: &[f64]| {
        let mut tap = TestObserver::new();
        tap.observe(0.0, "02 01 32 07 80 00 00 2A 20");
        for send in 0..3 {
            tap.observe(0.02 + 0.67 * f64::from(send), "01 01 01 00 00 00");
        }
        between.iter().for_each(|seconds| tap.observe(*seconds, "01 01 02"));
        tap.observe(1.36 + 0.6666 + idle, fourth);
        let closed = |what: &FindingKind| matches!(what, FindingKind::ClosedGate { .. });
        tap.findings().into_iter().filter(closed).map(|what| what.to_string()).collect::<Vec<_>>()
    };
    let with_keepalive = "01 02 02 01 00 00 00";
    assert_eq!(
        gate_findings(3.0, with_keepalive, &[]),
        ["1 ACK waited 3.000 s for another message to leave with"]
    );
    assert!(gate_findings(0.1, with_keepalive, &[]).is_empty(), "a wait of one tick is no closed gate");
    assert!(gate_findings(3.0, with_keepalive, &[3.0]).is_empty(), "a keepalive left without the ACK");
    assert!(gate_findings(3.0, "01 01 02", &[]).is_empty(), "the datagram has no ACK");
}

#[test]
fn lost_ack_and_wrong_form_ack_are_told_apart() {
    let mut tap = TestObserver::new();
    tap.observe(0.0, "02 01 32 06 80 00 00 19");
    tap.observe(0.02, "01 01 01 00 00 00");
    tap.observe(1.0, "02 01 32 06 80 00 00 19");
    let found = tap.findings();
    assert!(
        matches!(found[0], FindingKind::Retransmission { cause: RetransmitCause::AckLost, times: 2, .. }),
        "{found:?}"
    );
    assert!(matches!(found[1], FindingKind::DuplicateDelivery { .. }), "{found:?}");
    let mut tap = TestObserver::new();
    for seconds in [0.0, 1.0, 3.0, 6.0, 10.0] {
        tap.observe(seconds, "02 01 32 08 A0 00 00 00 02 19");
        tap.observe(seconds + 0.02, "01 01 01 00 00 00");
    }
    let found = tap.findings();
    let wrong = |what: &&FindingKind| {
        matches!(what, FindingKind::Retransmission { cause: RetransmitCause::WrongForm, .. })
    };
    assert_eq!(found.iter().filter(wrong).count(), 4);
    assert!(
        found
            .iter()
            .any(|what| matches!(what, FindingKind::StuckFragments { seq: Seq(0), wrong_form: true, .. }))
    );
}

#[test]
fn acked_but_unseen_message_is_a_capture_loss() {
    let mut tap = TestObserver::new();
    tap.observe(0.0, "02 01 32 06 80 05 00 19");
    tap.observe(0.02, "01 02 01 05 00 00 01 06 00 00");
    // A message from before the start of the capture is no loss.
    tap.observe(0.03, "01 01 01 04 00 00");
    let found = tap.findings();
    assert!(
        matches!(found[..], [FindingKind::CaptureLoss(CaptureMiss::Message(id))] if id.seq == Seq(6)),
        "{found:?}"
    );
    assert!(!found[0].is_fault());
}

#[test]
fn never_sent_sequence_number_is_a_gap() {
    let mut tap = TestObserver::new();
    tap.observe(0.0, "02 01 32 06 80 00 00 19");
    tap.observe(0.1, "02 01 32 06 80 02 00 19");
    tap.observe(0.2, "01 02 01 00 00 00 01 02 00 00");
    for second in 1..40 {
        tap.observe(f64::from(second), "02 01 02");
        tap.observe(f64::from(second) + 0.5, "01 01 02");
    }
    assert_eq!(tap.findings(), [FindingKind::SequenceGap { channel: Channel::Game, seq: Seq(1) }]);
}

#[test]
fn idle_and_timeout_are_reported_once_unless_disconnected() {
    let mut tap = TestObserver::new();
    tap.observe(0.0, "02 01 02");
    tap.observe(0.1, "01 01 02");
    for second in 1..60 {
        tap.observe(f64::from(second), "02 01 02");
    }
    let found = tap.findings();
    assert_eq!(found.iter().map(FindingKind::name).collect::<Vec<_>>(), ["silence", "timeout"]);
    let times: Vec<_> = found.iter().filter_map(FindingKind::named_duration).collect();
    assert!(times.iter().all(|(name, _)| *name == "lasted") && times[0].1 < times[1].1, "{times:?}");
    let mut tap = TestObserver::new();
    tap.observe(0.1, "01 01 02");
    tap.observe(0.2, "02 01 05 0A C0 02 00 02 0A 00 00 02");
    tap.observer.advance(at(100.0));
    assert_eq!(tap.findings(), []);
}

/// A stock host continues to send to a peer that has left, which is no fault.
#[test]
fn retransmission_to_departed_peer_is_not_a_fault() {
    let parting = |disconnect: &str, ack: &str| {
        let mut tap = TestObserver::new();
        tap.observe(0.0, "02 01 32 07 80 00 00 2A 20");
        tap.observe(0.05, "01 01 32 08 A0 00 00 00 02 19");
        tap.observe(0.1, "01 01 32 06 80 01 00 19");
        tap.observe(0.2, "02 01 01 01 00 00");
        tap.observe(0.3, disconnect);
        tap.observe(0.35, ack);
        tap.observe(1.0, "02 01 32 07 80 00 00 2A 20");
        for seconds in [1.1, 3.1, 6.1, 10.1] {
            tap.observe(seconds, "01 02 32 08 A0 00 00 00 02 19 32 06 80 01 00 19");
        }
        assert!(tap.observer.finish(at(12.0)));
        tap.findings()
    };
    let leave = ("02 01 05 0A C0 02 00 02 0A 00 00 02", "01 01 01 02 00 02");
    let boot = ("01 01 04 07 C0 02 00 04 02", "02 01 01 02 00 02");
    for (disconnect, ack) in [leave, boot] {
        let (faults, rest): (Vec<_>, Vec<_>) =
            parting(disconnect, ack).into_iter().partition(FindingKind::is_fault);
        // The peer that has left retransmits once: nobody answers it.
        let [FindingKind::Retransmission { times: 2, cause: RetransmitCause::AckNeverSent, .. }] = faults[..]
        else {
            panic!("{faults:?}")
        };
        assert_eq!(rest.len(), 8, "{rest:?}");
        for what in rest {
            let FindingKind::Retransmission { cause, .. } = what else { panic!("{what:?}") };
            assert_eq!(
                (cause.name(), cause.to_string().as_str()),
                ("receiver_left", "the receiver had left")
            );
        }
    }
    // The disconnect message names another player.
    let names = ["retransmission", "stuck_fragments"];
    let found = parting("02 01 05 0A C0 02 00 05 0A 00 00 02", "01 01 01 02 00 02");
    assert!(found.iter().all(FindingKind::is_fault), "{found:?}");
    assert!(names.iter().all(|name| found.iter().any(|what| what.name() == *name)), "{found:?}");
}

/// The same player reconnects from the same address.
#[test]
fn new_connection_clears_the_disconnect_state() {
    let mut tap = TestObserver::new();
    tap.observe(0.0, "02 01 02");
    tap.observe(0.1, "01 01 02");
    tap.observe(0.2, "02 01 05 0A C0 02 00 02 0A 00 00 02");
    let request = "FF 01 03 0F C0 00 00 0A 00 00 02 5F 0A 00 00 00 00";
    with_content(&bytes(request), |content| {
        tap.observer.observe(9, at(1.0), CLIENT, HOST, content);
    });
    tap.observe(1.1, "01 01 03 06 C0 00 00 02");
    tap.observe(2.1, "01 01 03 06 C0 00 00 02");
    assert!(tap.observer.finish(at(12.0)));
    let found = tap.findings();
    let [FindingKind::Retransmission { cause: RetransmitCause::AckNeverSent, .. }] = found[..] else {
        panic!("{found:?}")
    };
}

#[test]
fn disconnect_empties_both_queues_after_ack_or_linger() {
    let mut tap = TestObserver::new();
    tap.observe(0.0, "01 01 32 07 80 00 00 2A 20");
    tap.observe(0.1, "02 01 32 07 80 00 00 2A 20");
    tap.observe(0.2, "02 02 05 0A C0 02 00 02 0A 00 00 02 01 00 00 00");
    assert!(tap.dump(Side::Second, 0.3).starts_with("peer=1 retxQ=2 ackOutQ=1"));
    tap.observe(0.3, "01 01 01 02 00 02");
    assert_eq!(tap.dump(Side::Second, 0.4), "peer=1 retxQ=0 ackOutQ=0");
    assert!(tap.dump(Side::First, 0.4).starts_with("peer=2 retxQ=0 ackOutQ=2"));
    assert_eq!(tap.dump(Side::First, 15.3), "peer=2 retxQ=0 ackOutQ=0");
}

#[test]
fn game_data_delayed_by_acks_is_starvation() {
    let mut tap = TestObserver::new();
    let acks: String = (0..100).map(|seq| format!(" 01 {seq:02X} 00 00")).collect();
    tap.observe(0.0, "01 01 02");
    tap.observe(0.01, &format!("01 65{acks} 02"));
    let payload = " 19".repeat(200);
    tap.observe(0.02, &format!("01 01 32 CD 80 00 00{payload}"));
    let starved = tap.findings().into_iter().filter(|what| matches!(what, FindingKind::Starvation { .. }));
    assert_eq!(starved.collect::<Vec<_>>(), [FindingKind::Starvation { ack_bytes: 400, waiting_bytes: 205 }]);
}

#[test]
fn unknown_types_are_reported_only_in_known_conversations() {
    let mut tap = TestObserver::new();
    assert!(tap.observe_and(0.0, "02 01 77 00", |seen| matches!(seen, Observed::Foreign(_))));
    tap.observe(0.1, "02 01 02");
    assert!(tap.observe_and(0.2, "02 01 77 00", |seen| matches!(seen, Observed::Malformed(..))));
    tap.observe(0.3, "02 01 32 04 40 19");
    tap.observe(0.4, "02 01 32 04 40 19");
    assert_eq!(
        tap.findings(),
        [FindingKind::UnknownType(Kind(0x77)), FindingKind::NonStock(NonStock::DATA_URGENT)]
    );
    let text = b"\\status\\";
    let seen = |content: &Content<'_>| match tap.observer.observe(9, at(0.5), HOST, CLIENT, content) {
        Observed::GameSpy(seen) => seen == text,
        Observed::Datagram(..) | Observed::Malformed(..) | Observed::Foreign(_) => false,
    };
    assert!(with_content(text, seen));
}

#[test]
fn observer_memory_is_bounded_by_its_limits() {
    let limits = ObserverLimits { conversations: 3, messages: 10, findings: 5 };
    let mut observer = Observer::new(limits);
    for port in 1..=20 {
        let from = SocketAddrV4::new(*CLIENT.ip(), port);
        for seq in 0..200_u8 {
            with_content(&[2, 1, 0x32, 6, 0x80, seq, 0, 0x19], |data| {
                observer.observe(0, at(f64::from(port)), from, HOST, data);
            });
            with_content(&[1, 1, 1, seq.wrapping_mul(7), 0, 0], |ack| {
                observer.observe(0, at(f64::from(port)), HOST, from, ack);
            });
        }
    }
    assert_eq!(observer.conversations().count(), 3);
    for conversation in observer.conversations() {
        for side in [Side::First, Side::Second] {
            assert!(conversation.unacknowledged(side) <= 10 && conversation.pending_acks(side) <= 10);
        }
    }
    assert!(observer.dropped_findings() > 0);
    assert!(std::iter::from_fn(|| observer.poll_finding()).count() <= 5);
}

/// The clock of the capture stands still, and no ACK arrives that would explain a retransmission.
#[test]
fn unexplained_retransmissions_are_reported_at_the_limit() {
    let limits = ObserverLimits { conversations: 3, messages: 10, findings: 5 };
    let mut observer = Observer::new(limits);
    let mut reported = 0;
    for mark in 0..1000_u64 {
        // No two datagrams are equal, so none is a duplicate made by the network.
        let [low, high, ..] = mark.to_le_bytes();
        with_content(&[2, 2, 0x32, 6, 0x80, 0, 0, 0x19, 0x32, 5, 0, low, high], |content| {
            observer.observe(mark, at(1.0), CLIENT, HOST, content);
        });
        while let Some(finding) = observer.poll_finding() {
            // Findings come oldest first. The first send is no retransmission.
            reported += 1;
            assert_eq!(finding.mark, reported);
            assert!(
                matches!(
                    finding.kind,
                    FindingKind::Retransmission { cause: RetransmitCause::AckNeverSent, .. }
                ),
                "{finding:?}"
            );
        }
    }
    let unexplained = |observer: &Observer| {
        observer
            .conversations()
            .map(|conversation| conversation.unexplained_retransmissions(Side::First))
            .sum()
    };
    assert_eq!((reported, unexplained(&observer), observer.dropped_findings()), (989, 10, 0));
    // `finish` reports all the others at once, which is more than the queue can hold.
    assert!(observer.finish(at(1.0)));
    assert_eq!((unexplained(&observer), observer.dropped_findings()), (0, 5));
    assert_eq!(std::iter::from_fn(|| observer.poll_finding()).count(), 5);
}

/// Each connection reports its own stuck fragments, although sequence numbers start again.
#[test]
fn stuck_fragments_are_reported_for_each_connection() {
    let mut tap = TestObserver::new();
    for (nonce, start) in [("5F", 0.0), ("60", 20.0)] {
        let request = format!("FF 01 03 0F C0 00 00 0A 00 00 02 {nonce} 0A 00 00 00 00");
        with_content(&bytes(&request), |content| {
            tap.observer.observe(9, at(start), CLIENT, HOST, content);
        });
        for seconds in [0.5, 1.5, 3.5, 6.5, 10.5] {
            tap.observe(start + seconds, "02 01 32 08 A0 00 00 00 02 19");
            tap.observe(start + seconds + 0.02, "01 01 01 00 00 00");
        }
        let found = tap.findings();
        let stuck = found.iter().filter(|what| matches!(what, FindingKind::StuckFragments { .. }));
        assert_eq!(stuck.count(), 1, "connection at {start} s: {found:?}");
    }
}

/// At the memory limit, the observer forgets acknowledged messages first, so waiting messages stay visible.
#[test]
fn memory_limit_drops_acknowledged_messages_first() {
    let limits = ObserverLimits { conversations: 3, messages: 10, findings: 5 };
    let mut observer = Observer::new(limits);
    for seq in 0..100_u8 {
        let now = at(f64::from(seq) / 100.0);
        with_content(&[2, 1, 0x32, 6, 0x80, seq, 0, 0x19], |data| {
            observer.observe(0, now, CLIENT, HOST, data);
        });
        // The first five messages are never acknowledged.
        if seq >= 5 {
            with_content(&[1, 1, 1, seq, 0, 0], |ack| {
                observer.observe(0, now, HOST, CLIENT, ack);
            });
        }
    }
    let conversation = observer.conversations().next().expect("one conversation");
    let side = if conversation.address(Side::First) == CLIENT { Side::First } else { Side::Second };
    let queues = observer.queues(conversation.id(), side, at(1.0)).expect("known");
    let waiting: Vec<u16> = queues.retransmit.iter().map(|message| message.id.seq.0).collect();
    assert_eq!(waiting, [0, 1, 2, 3, 4]);
}
