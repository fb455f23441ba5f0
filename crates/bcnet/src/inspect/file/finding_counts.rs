//! Counts findings by kind, with the first of each kind and its meaning.

use std::time::Duration;

use bcnet_observe::{Finding, FindingKind, Observer, RetransmitCause};

use super::PacketLocation;
use super::summary::side_name;

/// The description of a kind of finding, for people.
#[derive(Debug, Clone, Copy)]
pub(super) struct FindingClass {
    /// The severity from 1 to 9; 0 is not a fault.
    pub(super) severity: u8,
    /// The title in the plural: a number is written before it.
    pub(super) title: &'static str,
    /// The meaning for a person who hosts games and does not know the protocol.
    ///
    /// `{}` stands for the measured times.
    pub(super) meaning: &'static str,
}

impl FindingClass {
    const fn new(weight: u8, title: &'static str, meaning: &'static str) -> Self {
        Self { severity: weight, title, meaning }
    }

    /// Returns the class of a finding.
    const fn of(what: &FindingKind) -> Self {
        match what {
            FindingKind::Retransmission { cause, .. } => Self::of_retransmission(*cause),
            FindingKind::Timeout { .. } => Self::new(
                9,
                "timeouts",
                "One side was silent for 45 seconds. The game then drops the player.",
            ),
            FindingKind::StuckFragments { .. } => Self::new(
                9,
                "stuck split messages",
                "A large message is sent again and again, {}. The receiver answers in a form that the sender does not accept.",
            ),
            FindingKind::SequenceGap { .. } => Self::new(
                8,
                "missing sequence numbers",
                "A message never arrived. All later messages wait for it: the game hangs.",
            ),
            FindingKind::UnknownType(_) => Self::new(
                8,
                "datagrams with unknown types",
                "The datagram contains a message that the game does not know. The game ignores the rest of the datagram.",
            ),
            FindingKind::Malformed(_) => Self::new(
                8,
                "malformed datagrams",
                "The datagram cannot be decoded. It comes from another program, or it is damaged.",
            ),
            FindingKind::Silence { .. } => Self::new(
                7,
                "long silences",
                "One side was silent for more than 22 seconds. The connection is bad, or the game hangs.",
            ),
            FindingKind::Starvation { .. } => Self::new(
                6,
                "times game data waited behind ACKs",
                "Repeated acknowledgements filled the datagrams, so game data had to wait.",
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
                "times ACKs waited for other traffic",
                "The stock game sends an acknowledgement three times by itself. After that the acknowledgement waits until the game sends something else.",
            ),
            FindingKind::NonStock(_) => Self::new(1, "deviations from the stock game", NOT_STOCK_MEANING),
            FindingKind::AcksOnce => {
                Self::new(0, "senders that acknowledge once (not stock)", NOT_STOCK_MEANING)
            }
            FindingKind::CaptureLoss(_) => Self::new(
                0,
                "gaps in the capture",
                "The capture is missing packets. This is not a fault of the game.",
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
                "A message was lost on the way and sent again, {}. The player notices lag.",
            ),
            RetransmitCause::AckLost => Self::new(
                4,
                "retransmissions, ACK lost",
                "A message arrived, but its acknowledgements were lost. This only costs traffic.",
            ),
            RetransmitCause::AckLate => Self::new(
                4,
                "retransmissions, ACK late",
                "The acknowledgement came too late: the message was sent again {}. The connection is slow or the game was busy.",
            ),
            RetransmitCause::NotCaptured => Self::new(
                0,
                "retransmissions that the capture does not explain",
                "The capture does not contain the receiver's packets of that time, so the cause is unknown.",
            ),
            RetransmitCause::ReceiverLeft => Self::new(
                0,
                "retransmissions to a player who had left",
                "The server kept sending for a while after the player had left. This is normal.",
            ),
        }
    }
}

/// Returns the title for several findings of this kind.
pub(super) const fn finding_title(what: &FindingKind) -> &'static str {
    FindingClass::of(what).title
}

/// The number of findings of a kind, and the first of them.
#[derive(Debug, Clone)]
pub(super) struct FindingStats {
    pub(super) class: FindingClass,
    pub(super) count: u64,
    pub(super) first: Finding,
    pub(super) first_location: Option<PacketLocation>,
    /// The side that caused the first one.
    pub(super) first_side: String,
    /// The shortest and the longest measured time, for kinds that have a duration.
    time_range: Option<[Duration; 2]>,
}

impl FindingStats {
    /// Returns the meaning, with the measured times.
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

/// Returns the duration of a finding, if it has one.
///
/// For a retransmission it is the time until the first retransmission, so later ones have none.
fn measured_time(what: &FindingKind) -> Option<Duration> {
    let is_later_repeat = matches!(what, FindingKind::Retransmission { times: 3.., .. });
    what.named_duration().filter(|_| !is_later_repeat).map(|(_, time)| time)
}

/// All findings by kind. A list is enough: there are few kinds, and the most common comes early.
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

    /// Returns the counts, most severe first.
    pub(super) fn by_severity(&self) -> Vec<&FindingStats> {
        let mut all: Vec<_> = self.0.iter().collect();
        all.sort_by_key(|stats| (std::cmp::Reverse((stats.class.severity, stats.count)), stats.class.title));
        all
    }
}

const REPEATED_ACKS_MEANING: &str = "The stock game repeats acknowledgements up to nine times. A few are harmless, many waste bandwidth. The command bcnet proxy --heal removes them.";
const NOT_STOCK_MEANING: &str = "One side is not the original game. This alone is not a fault.";
