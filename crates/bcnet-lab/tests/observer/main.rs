//! Compares the observer with the state of the nodes themselves.

mod host_client_pair;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bcnet_lab::stock::PeerQueueDump;
use bcnet_lab::{Faults, Rng};
use bcnet_observe::{
    ConversationId, Finding, FindingKind, MessageBuffer, Observer, ObserverLimits, PeerQueues, QueuedAck,
    QueuedMessage, RetransmitCause, Side,
};
use bcnet_transport::wire::{Datagram, Message, MessageId, PeerId, Seq};
use bcnet_transport::{Time, cipher};

use host_client_pair::{ADDRESSES, EitherEngine, EngineChoice, HostClientPair, PEERS, PairObserver};

/// The observer's queues and causes match the stock nodes.
///
/// A complete capture gives exact queues and right causes. If one datagram in twenty is missing, the observer
/// reports the loss, and reports nothing that did not happen.
#[test]
fn observer_matches_stock_nodes() {
    let (mut compared, mut causes) = ((0, 0), CauseMatrix::default());
    let (mut losses, mut blamed, mut handled) = (0, 0, [0, 0]);
    for seed in seeds() {
        let mut check = run([EngineChoice::Stock; 2], seed, &CompareMode::Exactly);
        for finding in &check.complete.findings() {
            let missed = matches!(finding.kind, FindingKind::CaptureLoss(_));
            assert!(
                !missed && !is_unexpected(finding),
                "seed {seed}: the observer reported something that did not happen: {finding:?}"
            );
        }
        causes.add(&check.complete, &check.truth);
        let findings = check.partial.findings();
        losses +=
            u64::from(findings.iter().any(|finding| matches!(finding.kind, FindingKind::CaptureLoss(_))));
        blamed += 1;
        for finding in findings {
            assert!(
                !is_unexpected(&finding),
                "seed {seed}: the finding blames the game, but the capture is incomplete: {finding:?}"
            );
            check.truth.assert_happened(&finding, seed);
        }
        compared.0 += check.compared.0;
        compared.1 += check.compared.1;
        let alike = check.count_matching_acks();
        handled = [handled[0] + alike[0], handled[1] + alike[1]];
    }
    println!("{} dumps with {} entries were equal", compared.0, compared.1);
    assert!(compared.0 > 0 && compared.1 > 0, "no dump was compared");
    println!("of {} ACKs handled, the observer had the exact queue for {}", handled[0], handled[1]);
    assert!(handled[0] > 10_000 && handled[1] * 100 >= handled[0] * 99, "{handled:?}");
    println!("causes: {causes:?}");
    println!("gaps reported as capture loss: {losses} of {blamed}");
    assert!(causes.accuracy() >= 0.95, "{causes:?}");
    assert!(losses * 100 >= blamed * 99, "only {losses} of {blamed} gaps were reported as capture loss");
}

/// The observer matches a bcnet node, which does not repeat ACKs and retransmits sooner, with a stock node.
#[test]
fn observer_matches_bcnet_and_stock_nodes() {
    let (mut compared, mut phantoms) = ((0, 0), (0, 0));
    let mut causes = CauseMatrix::default();
    for seed in seeds() {
        let engines =
            [[EngineChoice::Bcnet, EngineChoice::Stock], [EngineChoice::Stock, EngineChoice::Bcnet]];
        let mut check = run(engines[usize::from(seed % 2 == 0)], seed, &CompareMode::Messages);
        for finding in &check.complete.findings() {
            let missed = matches!(finding.kind, FindingKind::CaptureLoss(_));
            assert!(
                !missed && !is_unexpected(finding),
                "seed {seed}: the observer reported something that did not happen: {finding:?}"
            );
        }
        causes.add(&check.complete, &check.truth);
        for finding in check.partial.findings() {
            assert!(
                !is_unexpected(&finding),
                "seed {seed}: the finding blames the game, but the capture is incomplete: {finding:?}"
            );
            check.truth.assert_happened(&finding, seed);
        }
        compared.0 += check.compared.0;
        compared.1 += check.compared.1;
        phantoms.0 += check.phantom_acks.0;
        phantoms.1 += check.phantom_acks.1;
    }
    println!("{} dumps with {} entries were equal", compared.0, compared.1);
    assert!(compared.0 > 0 && compared.1 > 0, "no dump was compared");
    println!("{} phantom ACKs in {} dumps of bcnet nodes", phantoms.1, phantoms.0);
    // A missing repetition is visible only when the first ACK would have been repeated.
    assert!(phantoms.0 > 0 && phantoms.1 * 8 < phantoms.0, "{phantoms:?}");
    println!("causes: {causes:?}");
    // bcnet sends fewer ACKs: about two causes of three are right.
    assert!(causes.accuracy() >= 0.6, "{causes:?}");
}

#[test]
fn fragments_acked_as_a_whole_are_reported_as_stuck() {
    let findings: Vec<Finding> = (0..8)
        .flat_map(|seed| {
            run([EngineChoice::PlainAcks, EngineChoice::Stock], seed, &CompareMode::Nothing)
                .complete
                .findings()
        })
        .collect();
    let stuck = findings
        .iter()
        .filter(|finding| matches!(finding.kind, FindingKind::StuckFragments { wrong_form: true, .. }));
    assert!(stuck.count() > 0);
    let causes = findings.iter().filter_map(|finding| match finding.kind {
        FindingKind::Retransmission { about, cause, .. } if about.id.fragment.is_some() => Some(cause),
        _ => None,
    });
    let causes: Vec<_> = causes.collect();
    let wrong = causes.iter().filter(|cause| **cause == RetransmitCause::WrongForm).count();
    assert!(wrong > 20 && wrong * 10 > causes.len() * 9, "{wrong} of {}", causes.len());
}

fn run(engines: [EngineChoice; 2], seed: u64, compare: &CompareMode) -> ObserverCheck {
    let mut watch = ObserverCheck::new(seed, compare);
    HostClientPair::new(engines, &lossy(0.05), seed).run(RUN_LENGTH, &mut watch);
    watch
}

/// Returns whether a finding never occurs between healthy engines on a lossy network.
fn is_unexpected(finding: &Finding) -> bool {
    matches!(
        finding.kind,
        FindingKind::SequenceGap { .. }
            | FindingKind::UnknownType(_)
            | FindingKind::Malformed(_)
            | FindingKind::NonStock(_)
            | FindingKind::Silence { .. }
            | FindingKind::Timeout { .. }
            | FindingKind::StuckFragments { wrong_form: true, .. }
    )
}

/// Converts a dump to queues with the same order and counts.
pub fn queues_from_dump(dump: &PeerQueueDump) -> PeerQueues {
    let id = |seq, channel, part| MessageId { seq: Seq(seq), channel, fragment: part };
    let retransmit = dump.retx.iter().map(|entry| QueuedMessage {
        id: id(entry.seq, entry.channel, entry.part),
        retransmissions: entry.retx,
        interval: Duration::from_secs_f32(entry.interval),
    });
    let acks = dump
        .acks
        .iter()
        .map(|entry| QueuedAck { id: id(entry.seq, entry.channel, entry.part), sends: entry.retx });
    PeerQueues { peer: dump.peer, retransmit: retransmit.collect(), acks: acks.collect() }
}

/// Extent of the comparison at each dump.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CompareMode {
    /// No comparison.
    Nothing,
    /// All fields of a dump.
    Exactly,
    /// The unacknowledged messages, and their numbers of sends.
    Messages,
}

/// An observer next to each node.
struct ObserverPair {
    observers: [Observer; 2],
    findings: [Vec<Finding>; 2],
    /// ACKs that each node handled according to its observer, with the unacknowledged messages.
    handled: [Vec<(MessageId, Vec<MessageId>)>; 2],
    /// Probability that an observer misses a datagram.
    miss_probability: f64,
    rng: Rng,
}

impl ObserverPair {
    fn new(seed: u64, missing: f64) -> Self {
        Self {
            observers: [0, 1].map(|_| {
                let mut observer = Observer::new(ObserverLimits::default());
                observer.track_handled_acks();
                observer
            }),
            findings: [Vec::new(), Vec::new()],
            handled: [Vec::new(), Vec::new()],
            miss_probability: missing,
            rng: Rng::new(seed ^ 0xCA7),
        }
    }

    fn observe(&mut self, node: usize, from: usize, number: u64, now: Time, bytes: &[u8]) {
        if !self.rng.chance(self.miss_probability) {
            let (mut plain, mut messages) = (bytes.to_vec(), MessageBuffer::default());
            cipher::decrypt(&mut plain);
            let content = messages.read(&plain, None);
            self.observers[node].observe(number, now, ADDRESSES[from], ADDRESSES[1 - from], &content);
        }
        self.findings[node].extend(std::iter::from_fn(|| self.observers[node].poll_finding()));
        let own = self.side(node);
        while let Some(handled) = self.observers[node].poll_handled_ack(ConversationId(0)) {
            if Some(handled.side) == own {
                self.handled[node].push((handled.id, handled.retransmit_queue));
            }
        }
    }

    /// Returns the findings of both observers.
    fn findings(&mut self) -> Vec<Finding> {
        for node in [0, 1] {
            assert!(self.observers[node].finish(RUN_LENGTH));
            self.findings[node].extend(std::iter::from_fn(|| self.observers[node].poll_finding()));
            assert_eq!(self.observers[node].dropped_findings(), 0);
        }
        self.findings.concat()
    }

    /// Returns the side of a node in the conversation.
    fn side(&self, node: usize) -> Option<Side> {
        let conversation = self.observers[node].conversation(ConversationId(0))?;
        [Side::First, Side::Second].into_iter().find(|side| conversation.address(*side) == ADDRESSES[node])
    }
}

/// Observers that see all datagrams, observers that miss some, and the ground truth.
struct ObserverCheck {
    seed: u64,
    complete: ObserverPair,
    partial: ObserverPair,
    compare: CompareMode,
    /// Number of equal dumps, and of the entries in them.
    compared: (u64, u64),
    /// ACKs that each node handled according to its own trace.
    handled: [Vec<(MessageId, Vec<MessageId>)>; 2],
    /// Number of dumps of bcnet nodes, and of the ACKs that only the observer had.
    phantom_acks: (u64, u64),
    truth: GroundTruth,
}

impl ObserverCheck {
    fn new(seed: u64, compare: &CompareMode) -> Self {
        Self {
            seed,
            complete: ObserverPair::new(seed, 0.0),
            partial: ObserverPair::new(seed, 0.05),
            compare: *compare,
            compared: (0, 0),
            handled: [Vec::new(), Vec::new()],
            phantom_acks: (0, 0),
            truth: GroundTruth::default(),
        }
    }
}

impl ObserverCheck {
    /// Counts phantom ACKs: a bcnet node removes an ACK from its outbox once it is sent.
    fn count_phantom_acks(&mut self, node: usize, engine: &EitherEngine, now: Time) {
        let (EitherEngine::Bcnet(_), Some(side)) = (engine, self.complete.side(node)) else { return };
        let Some(own) = engine.queues(PEERS[node], now) else { return };
        let seen = self.complete.observers[node].queues(ConversationId(0), side, now).expect("known");
        self.phantom_acks.0 += 1;
        let is_there = |ack: &&QueuedAck| own.acks.iter().any(|own| own.id == ack.id);
        self.phantom_acks.1 += (seen.acks.len() - seen.acks.iter().filter(is_there).count()) as u64;
    }

    /// Returns the number of handled ACKs that match, and of those with the same unacknowledged messages.
    ///
    /// They may differ if an ACK arrives less than a tick before the node sends something new: the node may
    /// have read it before or after.
    fn count_matching_acks(&self) -> [usize; 2] {
        let nodes = self.handled.iter().zip(&self.complete.handled).enumerate();
        nodes
            .map(|(node, (own, seen))| {
                for (place, (own, seen)) in own.iter().zip(seen).enumerate() {
                    let cleared = |(id, waiting): &(MessageId, Vec<MessageId>)| (*id, waiting.contains(id));
                    assert_eq!(cleared(own), cleared(seen), "seed {} node {node} ACK {place}", self.seed);
                }
                // The node may have read the last ACKs without a visible effect.
                assert!(
                    own.len().abs_diff(seen.len()) < 64,
                    "the node handled {} ACKs, the observer saw {}",
                    own.len(),
                    seen.len()
                );
                [own.len().min(seen.len()), own.iter().zip(seen).filter(|(own, seen)| own == seen).count()]
            })
            .fold([0, 0], |sum, node| [sum[0] + node[0], sum[1] + node[1]])
    }
}

impl PairObserver for ObserverCheck {
    fn on_sent(&mut self, node: usize, number: u64, now: Time, bytes: &[u8], arrives: Option<Time>) {
        self.truth.on_sent(node, number, now, bytes, arrives);
        self.complete.observe(node, node, number, now, bytes);
        self.partial.observe(node, node, number, now, bytes);
    }

    fn on_arrived(&mut self, node: usize, number: u64, now: Time, bytes: &[u8]) {
        self.complete.observe(node, 1 - node, number, now, bytes);
        self.partial.observe(node, 1 - node, number, now, bytes);
    }

    fn on_serviced(&mut self, node: usize, engine: &mut EitherEngine, sent: bool, now: Time) {
        self.truth.on_serviced(node, now);
        self.handled[node].extend(engine.handled_acks());
        self.count_phantom_acks(node, engine, now);
        let settled = self.compare == CompareMode::Exactly || now > COMPARE_AFTER;
        if self.compare == CompareMode::Nothing || !settled || !(sent || now.as_micros().is_multiple_of(5)) {
            return;
        }
        let (Some(own), Some(side)) = (engine.queues(PEERS[node], now), self.complete.side(node)) else {
            return;
        };
        let seen = self.complete.observers[node].queues(ConversationId(0), side, now).expect("known");
        let place = || format!("seed {} node {node} at {now}", self.seed);
        match self.compare {
            CompareMode::Exactly => {
                assert_eq!(own.to_string(), PeerQueues { peer: own.peer, ..seen }.to_string(), "{}", place());
            }
            _ => {
                let numbers = |queues: &PeerQueues| {
                    queues.retransmit.iter().map(|m| (truth_key(m.id), m.retransmissions)).collect()
                };
                let (own, seen): (BTreeSet<_>, BTreeSet<_>) = (numbers(&own), numbers(&seen));
                assert_eq!(own, seen, "{}", place());
            }
        }
        self.compared.0 += 1;
        self.compared.1 += (own.retransmit.len() + own.acks.len()) as u64;
    }
}

/// Number of cases for each pair of real and reported cause.
#[derive(Debug, Default)]
struct CauseMatrix(BTreeMap<(RetransmitCause, RetransmitCause), u64>);

impl CauseMatrix {
    fn add(&mut self, check: &ObserverPair, truth: &GroundTruth) {
        for finding in check.findings.iter().flatten() {
            if let FindingKind::Retransmission { about, cause, .. } = finding.kind {
                let really = truth.causes[&(finding.mark, truth_key(about.id))];
                *self.0.entry((really, cause)).or_default() += 1;
            }
        }
    }

    fn accuracy(&self) -> f64 {
        let right: u64 =
            self.0.iter().filter(|((really, findings), _)| really == findings).map(|(_, n)| n).sum();
        right as f64 / self.0.values().sum::<u64>() as f64
    }
}

/// The real history of reliable messages and their ACKs.
#[derive(Default)]
struct GroundTruth {
    /// Number of sends of each message of each node.
    sends: BTreeMap<(usize, TruthKey), u32>,
    /// Send and arrival times of the ACKs of each message of a node.
    acks: BTreeMap<(usize, TruthKey), Vec<SentAndArrived>>,
    /// Time when each node last read its socket.
    last_read: [Time; 2],
    /// Cause of each retransmission, by datagram number.
    causes: BTreeMap<(u64, TruthKey), RetransmitCause>,
    /// Repeated ACKs, by datagram number.
    repeated_acks: BTreeSet<(u64, TruthKey)>,
}

type TruthKey = (u8, u16, Option<u8>);
/// Send time, and arrival time if it arrived.
type SentAndArrived = (Time, Option<Time>);

fn truth_key(id: MessageId) -> TruthKey {
    (id.channel as u8, id.seq.0, id.fragment)
}

impl GroundTruth {
    fn on_sent(&mut self, node: usize, number: u64, now: Time, bytes: &[u8], arrives: Option<Time>) {
        let mut plain = bytes.to_vec();
        cipher::decrypt(&mut plain);
        let datagram = Datagram::parse(&plain, None).expect("an engine sends valid datagrams");
        for message in datagram.messages() {
            if let Message::Ack(ack) = message {
                // A host ignores ACKs of a client that has no id yet.
                if datagram.sender() == PeerId::UNASSIGNED {
                    continue;
                }
                let acks = self.acks.entry((1 - node, truth_key(ack.id))).or_default();
                if !acks.is_empty() {
                    self.repeated_acks.insert((number, truth_key(ack.id)));
                }
                acks.push((now, arrives));
            } else if let Some(id) = message.id() {
                let sends = self.sends.entry((node, truth_key(id))).or_default();
                *sends += 1;
                if *sends > 1 {
                    let cause = self.cause(node, truth_key(id));
                    self.causes.insert((number, truth_key(id)), cause);
                }
            }
        }
    }

    /// Returns the cause of a retransmission: the reason why the node has read no ACK of the message.
    fn cause(&self, node: usize, key: TruthKey) -> RetransmitCause {
        let acks = self.acks.get(&(node, key)).map_or(&[][..], Vec::as_slice);
        let unread = |(_, arrives): &SentAndArrived| arrives.is_some_and(|at| at > self.last_read[node]);
        if acks.iter().any(unread) {
            RetransmitCause::AckLate
        } else if acks.is_empty() {
            RetransmitCause::AckNeverSent
        } else {
            RetransmitCause::AckLost
        }
    }

    fn on_serviced(&mut self, node: usize, now: Time) {
        self.last_read[node] = now;
    }

    /// Asserts that a finding of an incomplete capture really happened.
    fn assert_happened(&self, finding: &Finding, seed: u64) {
        let happened = match finding.kind {
            FindingKind::Retransmission { about, .. } | FindingKind::DuplicateDelivery { about } => {
                self.causes.contains_key(&(finding.mark, truth_key(about.id)))
            }
            FindingKind::StaleAck { about, .. } => {
                self.repeated_acks.contains(&(finding.mark, truth_key(about.id)))
            }
            _ => true,
        };
        assert!(happened, "seed {seed}: the observer reported something that did not happen: {finding:?}");
    }
}

fn lossy(loss: f64) -> Faults {
    Faults { loss, delay: Duration::from_millis(45), jitter: Duration::from_millis(20), ..Faults::default() }
}

/// Returns the seeds to run: `BCNET_SEED` is one seed, `BCNET_SEEDS` the number of seeds.
fn seeds() -> std::ops::Range<u64> {
    let number = |name| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    match number("BCNET_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("BCNET_SEEDS").unwrap_or(200),
    }
}

/// Start of the comparison. By then an observer knows that the host is not a stock host.
const COMPARE_AFTER: Time = Time::from_micros(10_000_000);
/// Length of each run.
const RUN_LENGTH: Time = Time::from_micros(40_000_000);
