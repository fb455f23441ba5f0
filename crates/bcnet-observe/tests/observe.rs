//! The observer on traffic written by hand.

use std::net::{Ipv4Addr, SocketAddrV4};

use bcnet_observe::{
    Content, ConversationId, Limits, MessageBuffer, Missed, NonStock, Observed, Observer, RetransmitCause,
    Side, What,
};
use bcnet_wire::{Channel, Kind, Seq, Time};

/// An observer with a host and a client.
struct Tap {
    observer: Observer,
    mark: u64,
}

impl Tap {
    fn new() -> Self {
        Self { observer: Observer::new(Limits::default()), mark: 0 }
    }

    /// A datagram, plain and as hex; the first byte tells who sends it.
    fn see(&mut self, seconds: f64, hex: &str) {
        self.see_as(seconds, hex, |_| {});
    }

    /// As [`see`](Self::see), for who wants to know what it turned out to be.
    fn see_as<R>(&mut self, seconds: f64, hex: &str, told: impl FnOnce(Observed<'_>) -> R) -> R {
        let bytes = bytes(hex);
        let (from, to) = if bytes[0] == 1 { (HOST, CLIENT) } else { (CLIENT, HOST) };
        self.mark += 1;
        read(&bytes, |content| told(self.observer.observe(self.mark, at(seconds), from, to, content)))
    }

    fn found(&mut self) -> Vec<What> {
        std::iter::from_fn(|| self.observer.poll_finding()).map(|finding| finding.what).collect()
    }

    fn dump(&self, side: Side, seconds: f64) -> String {
        self.observer.queues(ConversationId(0), side, at(seconds)).expect("known").to_string()
    }
}

fn bytes(hex: &str) -> Vec<u8> {
    hex.split_whitespace().map(|byte| u8::from_str_radix(byte, 16).expect("hex")).collect()
}

/// Reads a deciphered datagram of which nobody says who sent it.
fn read<R>(plain: &[u8], use_it: impl FnOnce(&Content<'_>) -> R) -> R {
    use_it(&MessageBuffer::default().read(plain, None))
}

fn at(seconds: f64) -> Time {
    Time::from_micros((seconds * 1e6) as u64)
}

const HOST: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 1), 22101);
const CLIENT: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 2), 22101);

/// T-76: a cookie is a message like any other whose number nobody expects; no fault is made of it, and no queue keeps it.
#[test]
fn a_cookie_is_no_fault() {
    for number in ["00 40", "34 52", "FF 7F", "00 80", "FF BF"] {
        let mut tap = Tap::new();
        tap.see(0.0, "FF 01 03 0F C0 00 00 0A 00 00 02 5F 0A 00 00 00 00");
        tap.see(0.02, &format!("01 03 01 00 00 02 03 06 C0 00 00 02 32 05 80 {number}"));
        tap.see(0.04, &format!("02 02 01 00 00 02 01 {number} 00"));
        for seq in 0..3_u8 {
            let at = 0.06 + 0.04 * f64::from(seq);
            tap.see(at, &format!("01 01 32 07 80 {seq:02X} 00 20 00"));
            tap.see(at + 0.02, &format!("02 01 01 {seq:02X} 00 00"));
        }
        assert_eq!(tap.found(), [], "{number}");
        // Only bcnet sends one, and it sends each ACK once.
        assert_eq!(tap.dump(Side::Second, 0.3), "peer=2 retxQ=0 ackOutQ=0", "{number}");
    }
}

#[test]
fn a_repeated_ack_is_stale_and_names_what_it_once_acknowledged() {
    let mut tap = Tap::new();
    tap.see(0.0, "02 01 32 07 80 00 00 2A 20");
    assert_eq!(
        tap.dump(Side::First, 0.0),
        "peer=255 retxQ=1 ackOutQ=0\n  retx[0] seq=0x0000 frag=0 rel=1 retx=0 intv=1.00"
    );
    tap.see(0.02, "01 01 01 00 00 00");
    assert_eq!(tap.dump(Side::First, 0.03), "peer=1 retxQ=0 ackOutQ=0");
    assert_eq!(
        tap.dump(Side::Second, 0.03),
        "peer=2 retxQ=0 ackOutQ=1\n  ack[0] seq=0x0000 frag=0 below32=0 retx=1"
    );
    tap.see(0.69, "01 01 01 00 00 00");
    let found = tap.found();
    let [What::StaleAck { about, age, times: 2 }] = found[..] else { panic!("{found:?}") };
    assert_eq!((about.opcode, age.as_millis()), (Some(0x2A), 670));
    assert_eq!(
        found[0].to_string(),
        "stale ACK of game seq=0 opcode=0x2A, sent 2 times, cleared 0.670 s ago"
    );
}

/// The closed gate of the original: after three sends an ACK leaves only with something else.
#[test]
fn an_ack_that_had_its_three_sends_and_waits_for_company_stands_before_a_closed_gate() {
    let told = |idle: f64, fourth: &str, between: &[f64]| {
        let mut tap = Tap::new();
        tap.see(0.0, "02 01 32 07 80 00 00 2A 20");
        for send in 0..3 {
            tap.see(0.02 + 0.67 * f64::from(send), "01 01 01 00 00 00");
        }
        between.iter().for_each(|seconds| tap.see(*seconds, "01 01 02"));
        tap.see(1.36 + 0.6666 + idle, fourth);
        let closed = |what: &What| matches!(what, What::ClosedGate { .. });
        tap.found().into_iter().filter(closed).map(|what| what.to_string()).collect::<Vec<_>>()
    };
    let with_keepalive = "01 02 02 01 00 00 00";
    assert_eq!(told(3.0, with_keepalive, &[]), ["1 ACK waited 3.000 s for something to leave with"]);
    assert!(told(0.1, with_keepalive, &[]).is_empty(), "a frame is no gate");
    assert!(told(3.0, with_keepalive, &[3.0]).is_empty(), "something left, and the ACK was not with it");
    assert!(told(3.0, "01 01 02", &[]).is_empty(), "there is no ACK in it");
}

#[test]
fn an_ack_that_passed_and_did_not_arrive_is_lost_and_a_plain_one_for_a_part_has_the_wrong_form() {
    let mut tap = Tap::new();
    tap.see(0.0, "02 01 32 06 80 00 00 19");
    tap.see(0.02, "01 01 01 00 00 00");
    tap.see(1.0, "02 01 32 06 80 00 00 19");
    let found = tap.found();
    assert!(
        matches!(found[0], What::Retransmission { cause: RetransmitCause::AckLost, times: 2, .. }),
        "{found:?}"
    );
    assert!(matches!(found[1], What::DuplicateDelivery { .. }), "{found:?}");
    let mut tap = Tap::new();
    for seconds in [0.0, 1.0, 3.0, 6.0, 10.0] {
        tap.see(seconds, "02 01 32 08 A0 00 00 00 02 19");
        tap.see(seconds + 0.02, "01 01 01 00 00 00");
    }
    let found = tap.found();
    let wrong = |what: &&What| matches!(what, What::Retransmission { cause: RetransmitCause::WrongForm, .. });
    assert_eq!(found.iter().filter(wrong).count(), 4);
    assert!(
        found.iter().any(|what| matches!(what, What::StuckFragments { seq: Seq(0), wrong_form: true, .. }))
    );
}

#[test]
fn what_was_acknowledged_and_not_seen_is_missed_by_the_capture() {
    let mut tap = Tap::new();
    tap.see(0.0, "02 01 32 06 80 05 00 19");
    tap.see(0.02, "01 02 01 05 00 00 01 06 00 00");
    // Before the beginning of the capture there is nothing to miss.
    tap.see(0.03, "01 01 01 04 00 00");
    let found = tap.found();
    assert!(matches!(found[..], [What::CaptureLoss(Missed::Message(id))] if id.seq == Seq(6)), "{found:?}");
    assert!(!found[0].is_fault());
}

#[test]
fn a_number_that_nobody_sends_is_a_gap() {
    let mut tap = Tap::new();
    tap.see(0.0, "02 01 32 06 80 00 00 19");
    tap.see(0.1, "02 01 32 06 80 02 00 19");
    tap.see(0.2, "01 02 01 00 00 00 01 02 00 00");
    for second in 1..40 {
        tap.see(f64::from(second), "02 01 02");
        tap.see(f64::from(second) + 0.5, "01 01 02");
    }
    assert_eq!(tap.found(), [What::SequenceGap { channel: Channel::Game, seq: Seq(1) }]);
}

#[test]
fn silence_and_timeouts_are_told_once_and_not_after_a_goodbye() {
    let mut tap = Tap::new();
    tap.see(0.0, "02 01 02");
    tap.see(0.1, "01 01 02");
    for second in 1..60 {
        tap.see(f64::from(second), "02 01 02");
    }
    let found = tap.found();
    assert_eq!(found.iter().map(What::name).collect::<Vec<_>>(), ["silence", "timeout"]);
    let times: Vec<_> = found.iter().filter_map(What::time).collect();
    assert!(times.iter().all(|(name, _)| *name == "lasted") && times[0].1 < times[1].1, "{times:?}");
    let mut tap = Tap::new();
    tap.see(0.1, "01 01 02");
    tap.see(0.2, "02 01 05 0A C0 02 00 02 0A 00 00 02");
    tap.observer.advance(at(100.0));
    assert_eq!(tap.found(), []);
}

/// A stock host goes on sending to someone who has left. A goodbye that is sent again was lost as anything else.
#[test]
fn what_is_sent_again_to_someone_who_has_left_is_no_fault() {
    let parting = |goodbye: &str, ack: &str| {
        let mut tap = Tap::new();
        tap.see(0.0, "02 01 32 07 80 00 00 2A 20");
        tap.see(0.05, "01 01 32 08 A0 00 00 00 02 19");
        tap.see(0.1, "01 01 32 06 80 01 00 19");
        tap.see(0.2, "02 01 01 01 00 00");
        tap.see(0.3, goodbye);
        tap.see(0.35, ack);
        tap.see(1.0, "02 01 32 07 80 00 00 2A 20");
        for seconds in [1.1, 3.1, 6.1, 10.1] {
            tap.see(seconds, "01 02 32 08 A0 00 00 00 02 19 32 06 80 01 00 19");
        }
        assert!(tap.observer.finish(at(12.0)));
        tap.found()
    };
    let leave = ("02 01 05 0A C0 02 00 02 0A 00 00 02", "01 01 01 02 00 02");
    let boot = ("01 01 04 07 C0 02 00 04 02", "02 01 01 02 00 02");
    for (goodbye, ack) in [leave, boot] {
        let (faults, rest): (Vec<_>, Vec<_>) = parting(goodbye, ack).into_iter().partition(What::is_fault);
        // What the one who has left sends again nobody has answered.
        let [What::Retransmission { times: 2, cause: RetransmitCause::AckNeverSent, .. }] = faults[..] else {
            panic!("{faults:?}")
        };
        assert_eq!(rest.len(), 8, "{rest:?}");
        for what in rest {
            let What::Retransmission { cause, .. } = what else { panic!("{what:?}") };
            assert_eq!(
                (cause.name(), cause.to_string().as_str()),
                ("receiver_left", "the receiver had left")
            );
        }
    }
    // Someone else has left.
    let names = ["retransmission", "stuck_fragments"];
    let found = parting("02 01 05 0A C0 02 00 05 0A 00 00 02", "01 01 01 02 00 02");
    assert!(found.iter().all(What::is_fault), "{found:?}");
    assert!(names.iter().all(|name| found.iter().any(|what| what.name() == *name)), "{found:?}");
}

/// The same player comes back on the same address.
#[test]
fn a_new_connection_ends_a_goodbye() {
    let mut tap = Tap::new();
    tap.see(0.0, "02 01 02");
    tap.see(0.1, "01 01 02");
    tap.see(0.2, "02 01 05 0A C0 02 00 02 0A 00 00 02");
    let request = "FF 01 03 0F C0 00 00 0A 00 00 02 5F 0A 00 00 00 00";
    read(&bytes(request), |content| {
        tap.observer.observe(9, at(1.0), CLIENT, HOST, content);
    });
    tap.see(1.1, "01 01 03 06 C0 00 00 02");
    tap.see(2.1, "01 01 03 06 C0 00 00 02");
    assert!(tap.observer.finish(at(12.0)));
    let found = tap.found();
    let [What::Retransmission { cause: RetransmitCause::AckNeverSent, .. }] = found[..] else {
        panic!("{found:?}")
    };
}

#[test]
fn whoever_leaves_has_empty_queues_when_that_is_acknowledged_and_the_other_a_while_later() {
    let mut tap = Tap::new();
    tap.see(0.0, "01 01 32 07 80 00 00 2A 20");
    tap.see(0.1, "02 01 32 07 80 00 00 2A 20");
    tap.see(0.2, "02 02 05 0A C0 02 00 02 0A 00 00 02 01 00 00 00");
    assert!(tap.dump(Side::Second, 0.3).starts_with("peer=1 retxQ=2 ackOutQ=1"));
    tap.see(0.3, "01 01 01 02 00 02");
    assert_eq!(tap.dump(Side::Second, 0.4), "peer=1 retxQ=0 ackOutQ=0");
    assert!(tap.dump(Side::First, 0.4).starts_with("peer=2 retxQ=0 ackOutQ=2"));
    assert_eq!(tap.dump(Side::First, 15.3), "peer=2 retxQ=0 ackOutQ=0");
}

#[test]
fn game_data_that_waits_behind_acks_is_starved() {
    let mut tap = Tap::new();
    let acks: String = (0..100).map(|seq| format!(" 01 {seq:02X} 00 00")).collect();
    tap.see(0.0, "01 01 02");
    tap.see(0.01, &format!("01 65{acks} 02"));
    let payload = " 19".repeat(200);
    tap.see(0.02, &format!("01 01 32 CD 80 00 00{payload}"));
    let starved = tap.found().into_iter().filter(|what| matches!(what, What::Starvation { .. }));
    assert_eq!(starved.collect::<Vec<_>>(), [What::Starvation { ack_bytes: 400, waiting_bytes: 205 }]);
}

#[test]
fn unknown_types_and_oddities_are_told_and_strangers_are_not() {
    let mut tap = Tap::new();
    assert!(tap.see_as(0.0, "02 01 77 00", |seen| matches!(seen, Observed::Foreign(_))));
    tap.see(0.1, "02 01 02");
    assert!(tap.see_as(0.2, "02 01 77 00", |seen| matches!(seen, Observed::Malformed(..))));
    tap.see(0.3, "02 01 32 04 40 19");
    tap.see(0.4, "02 01 32 04 40 19");
    assert_eq!(tap.found(), [What::UnknownType(Kind(0x77)), What::NonStock(NonStock::DATA_URGENT)]);
    let text = b"\\status\\";
    let seen = |content: &Content<'_>| match tap.observer.observe(9, at(0.5), HOST, CLIENT, content) {
        Observed::GameSpy(seen) => seen == text,
        Observed::Datagram(..) | Observed::Malformed(..) | Observed::Foreign(_) => false,
    };
    assert!(read(text, seen));
}

#[test]
fn memory_is_bounded_by_its_limits() {
    let limits = Limits { conversations: 3, messages: 10, findings: 5 };
    let mut observer = Observer::new(limits);
    for port in 1..=20 {
        let from = SocketAddrV4::new(*CLIENT.ip(), port);
        for seq in 0..200_u8 {
            read(&[2, 1, 0x32, 6, 0x80, seq, 0, 0x19], |data| {
                observer.observe(0, at(f64::from(port)), from, HOST, data);
            });
            read(&[1, 1, 1, seq.wrapping_mul(7), 0, 0], |ack| {
                observer.observe(0, at(f64::from(port)), HOST, from, ack);
            });
        }
    }
    assert_eq!(observer.conversations().count(), 3);
    for conversation in observer.conversations() {
        for side in [Side::First, Side::Second] {
            assert!(conversation.unacknowledged(side) <= 10 && conversation.owed_acks(side) <= 10);
        }
    }
    assert!(observer.lost_findings() > 0);
    assert!(std::iter::from_fn(|| observer.poll_finding()).count() <= 5);
}

/// The clock of the capture stands still, and no ACK comes that would explain anything.
#[test]
fn repeats_that_nothing_explains_are_told_before_there_are_too_many() {
    let limits = Limits { conversations: 3, messages: 10, findings: 5 };
    let mut observer = Observer::new(limits);
    let mut told = 0;
    for mark in 0..1000_u64 {
        // No two datagrams are equal: this is no copy that the network made.
        let [low, high, ..] = mark.to_le_bytes();
        read(&[2, 2, 0x32, 6, 0x80, 0, 0, 0x19, 0x32, 5, 0, low, high], |content| {
            observer.observe(mark, at(1.0), CLIENT, HOST, content);
        });
        while let Some(finding) = observer.poll_finding() {
            // The oldest first; the first sending is none.
            told += 1;
            assert_eq!(finding.mark, told);
            assert!(
                matches!(finding.what, What::Retransmission { cause: RetransmitCause::AckNeverSent, .. }),
                "{finding:?}"
            );
        }
    }
    let unexplained =
        |observer: &Observer| observer.conversations().map(|talk| talk.unexplained(Side::First)).sum();
    assert_eq!((told, unexplained(&observer), observer.lost_findings()), (989, 10, 0));
    // All that is left comes at once, and is more than fits.
    assert!(observer.finish(at(1.0)));
    assert_eq!((unexplained(&observer), observer.lost_findings()), (0, 5));
    assert_eq!(std::iter::from_fn(|| observer.poll_finding()).count(), 5);
}
