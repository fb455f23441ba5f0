//! Findings by their kind: how often each was found, where first, and what it means.

use std::time::Duration;

use bcnet_observe::{Finding, FindingKind, Observer, RetransmitCause};

use super::PacketLocation;
use super::summary::side_name;

/// A kind of finding, for people.
#[derive(Debug, Clone, Copy)]
pub(super) struct FindingClass {
    /// How bad it is: 0 is no fault at all.
    pub(super) severity: u8,
    /// How several of it are called.
    pub(super) title: &'static str,
    /// What it means for someone who hosts games and does not read protocols.
    pub(super) meaning: &'static str,
}

impl FindingClass {
    const fn new(weight: u8, title: &'static str, meaning: &'static str) -> Self {
        Self { severity: weight, title, meaning }
    }

    /// Returns the kind that a finding is of.
    const fn of(what: &FindingKind) -> Self {
        match what {
            FindingKind::Retransmission { cause, .. } => Self::of_retransmission(*cause),
            FindingKind::Timeout { .. } => Self::new(
                9,
                "timeouts",
                "One side was not heard for 45 seconds. The game drops a player then.",
            ),
            FindingKind::StuckFragments { .. } => Self::new(
                9,
                "stuck split messages",
                "A large message is sent again and again, {}. The receiver answers in a form that the sender does not accept.",
            ),
            FindingKind::SequenceGap { .. } => Self::new(
                8,
                "numbers left out",
                "A message is missing for good. Everything behind it waits: the game hangs.",
            ),
            FindingKind::UnknownType(_) => Self::new(
                8,
                "datagrams with unknown types",
                "A message that the game does not know. It stops reading there.",
            ),
            FindingKind::Malformed(_) => {
                Self::new(8, "malformed datagrams", "Bytes that make no sense: another program, or damage.")
            }
            FindingKind::Silence { .. } => Self::new(
                7,
                "long silences",
                "One side was not heard for more than 22 seconds. The connection is bad, or the game hangs.",
            ),
            FindingKind::Starvation { .. } => Self::new(
                6,
                "times game data waited behind ACKs",
                "Repeated acknowledgements took the room of game data, which had to wait.",
            ),
            FindingKind::DuplicateDelivery { .. } => Self::new(
                3,
                "messages delivered twice",
                "A message arrived more than once. The game ignores the copies.",
            ),
            FindingKind::StaleAck { .. } => Self::new(2, "stale ACKs", REPEATED_ACKS_MEANING),
            FindingKind::RepeatedAck { .. } => {
                Self::new(2, "messages acknowledged repeatedly", REPEATED_ACKS_MEANING)
            }
            FindingKind::ClosedGate { .. } => Self::new(
                2,
                "times ACKs waited for something to leave with",
                "The stock game sends an acknowledgement three times by itself. After that it stays in the queue until something else leaves.",
            ),
            FindingKind::NonStock(_) => {
                Self::new(1, "oddities of senders that are not stock", NOT_STOCK_MEANING)
            }
            FindingKind::AcksOnce => {
                Self::new(0, "senders that acknowledge once, as stock does not", NOT_STOCK_MEANING)
            }
            FindingKind::CaptureLoss(_) => Self::new(
                0,
                "things that the capture has missed",
                "The capture has missed packets. Nothing is wrong with the game because of that.",
            ),
        }
    }

    const fn of_retransmission(cause: RetransmitCause) -> Self {
        match cause {
            RetransmitCause::WrongForm => Self::new(
                6,
                "retransmissions, ACK of the wrong form",
                "The acknowledgement has a form that the sender does not accept. The receiver is not a stock game.",
            ),
            RetransmitCause::AckNeverSent => Self::new(
                5,
                "retransmissions, no ACK sent",
                "A message was lost on the way and sent again, {}. The player sees a lag.",
            ),
            RetransmitCause::AckLost => Self::new(
                4,
                "retransmissions, ACK lost",
                "A message had arrived, but its acknowledgements were lost. It costs traffic only.",
            ),
            RetransmitCause::AckLate => Self::new(
                4,
                "retransmissions, ACK late",
                "The acknowledgement came too late: the message was sent again {}. The connection is slow or the game was busy.",
            ),
            RetransmitCause::NotCaptured => Self::new(
                0,
                "retransmissions that the capture does not explain",
                "The capture has not kept what the receiver sent meanwhile. Whether anything was wrong cannot be told.",
            ),
            RetransmitCause::ReceiverLeft => Self::new(
                0,
                "retransmissions to someone who had left",
                "A player had left, and the server went on sending to it for a while. That is normal.",
            ),
        }
    }
}

/// Returns how several findings of this kind are called.
pub(super) const fn finding_title(what: &FindingKind) -> &'static str {
    FindingClass::of(what).title
}

/// A kind of finding with how often it was found, and where first.
#[derive(Debug, Clone)]
pub(super) struct FindingStats {
    pub(super) class: FindingClass,
    pub(super) count: u64,
    pub(super) first: Finding,
    pub(super) first_location: Option<PacketLocation>,
    /// Who did it first.
    pub(super) first_side: String,
    /// The shortest and the longest time that was measured, if it is of a kind that takes time.
    time_range: Option<[Duration; 2]>,
}

impl FindingStats {
    /// Returns what it means, with what was measured.
    pub(super) fn meaning(&self) -> String {
        let [least, most] = self.time_range.unwrap_or_default().map(|time| time.as_secs_f64());
        let measured = if most - least < 0.005 {
            format!("after {least:.2} s")
        } else {
            format!("after {least:.2} to {most:.2} s")
        };
        self.class.meaning.replace("{}", &measured)
    }
}

/// Returns how long it took, if it is of a kind that takes time: of a message that is sent again, until the first repeat.
fn measured_time(what: &FindingKind) -> Option<Duration> {
    let is_later_repeat = matches!(what, FindingKind::Retransmission { times: 3.., .. });
    what.named_duration().filter(|_| !is_later_repeat).map(|(_, time)| time)
}

/// All findings by kind. There are few kinds, and the commonest comes early.
#[derive(Debug, Default)]
pub(super) struct FindingCounts(Vec<FindingStats>);

impl FindingCounts {
    pub(super) fn add(&mut self, finding: &Finding, place: Option<PacketLocation>, observer: &Observer) {
        let kind = FindingClass::of(&finding.kind);
        if let Some(known) = self.0.iter_mut().find(|known| known.class.title == kind.title) {
            known.count += 1;
            if let Some(time) = measured_time(&finding.kind) {
                let [least, most] = known.time_range.unwrap_or([time; 2]);
                known.time_range = Some([least.min(time), most.max(time)]);
            }
            return;
        }
        let conversation = observer.conversation(finding.conversation);
        let who = conversation.map(|conversation| side_name(&conversation, finding.side)).unwrap_or_default();
        let times = measured_time(&finding.kind).map(|time| [time; 2]);
        self.0.push(FindingStats {
            class: kind,
            count: 1,
            first: *finding,
            first_location: place,
            first_side: who,
            time_range: times,
        });
    }

    /// Returns the heaviest first.
    pub(super) fn by_severity(&self) -> Vec<&FindingStats> {
        let mut all: Vec<_> = self.0.iter().collect();
        all.sort_by_key(|tallied| {
            (std::cmp::Reverse((tallied.class.severity, tallied.count)), tallied.class.title)
        });
        all
    }
}

const REPEATED_ACKS_MEANING: &str = "The stock game repeats acknowledgements up to nine times. Harmless in small numbers, wasteful in large ones. The proxy of this program removes them.";
const NOT_STOCK_MEANING: &str = "One side is not the original game. That is no fault by itself.";
