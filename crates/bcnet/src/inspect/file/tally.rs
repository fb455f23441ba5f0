//! Findings by their kind: how often each was found, where first, and what it means.

use std::time::Duration;

use bcnet_observe::{Finding, Observer, RetransmitCause, What};

use super::Evidence;
use super::summary::side_name;

/// A kind of finding, for people.
#[derive(Debug, Clone, Copy)]
pub(super) struct FindingKind {
    /// How bad it is: 0 is no fault at all.
    pub(super) weight: u8,
    /// How several of it are called.
    pub(super) title: &'static str,
    /// What it means for someone who hosts games and does not read protocols.
    pub(super) meaning: &'static str,
}

impl FindingKind {
    const fn new(weight: u8, title: &'static str, meaning: &'static str) -> Self {
        Self { weight, title, meaning }
    }

    /// Returns the kind that a finding is of.
    const fn of(what: &What) -> Self {
        match what {
            What::Retransmission { cause, .. } => Self::of_retransmission(*cause),
            What::Timeout { .. } => Self::new(
                9,
                "timeouts",
                "One side was not heard for 45 seconds. The game drops a player then.",
            ),
            What::StuckFragments { .. } => Self::new(
                9,
                "stuck split messages",
                "A large message is sent again and again, {}. The receiver answers in a form that the sender does not accept.",
            ),
            What::SequenceGap { .. } => Self::new(
                8,
                "numbers left out",
                "A message is missing for good. Everything behind it waits: the game hangs.",
            ),
            What::UnknownType(_) => Self::new(
                8,
                "datagrams with unknown types",
                "A message that the game does not know. It stops reading there.",
            ),
            What::Malformed(_) => {
                Self::new(8, "malformed datagrams", "Bytes that make no sense: another program, or damage.")
            }
            What::Silence { .. } => Self::new(
                7,
                "long silences",
                "One side was not heard for more than 22 seconds. The connection is bad, or the game hangs.",
            ),
            What::Starvation { .. } => Self::new(
                6,
                "times game data waited behind ACKs",
                "Repeated acknowledgements took the room of game data, which had to wait.",
            ),
            What::DuplicateDelivery { .. } => Self::new(
                3,
                "messages delivered twice",
                "A message arrived more than once. The game ignores the copies.",
            ),
            What::StaleAck { .. } => Self::new(2, "stale ACKs", REPEATS),
            What::RepeatedAck { .. } => Self::new(2, "messages acknowledged repeatedly", REPEATS),
            What::ClosedGate { .. } => Self::new(
                2,
                "times ACKs waited for something to leave with",
                "The stock game sends an acknowledgement three times by itself. After that it stays in the queue until something else leaves.",
            ),
            What::NonStock(_) => Self::new(1, "oddities of senders that are not stock", NOT_STOCK),
            What::AcksOnce => Self::new(0, "senders that acknowledge once, as stock does not", NOT_STOCK),
            What::CaptureLoss(_) => Self::new(
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
pub(super) const fn title(what: &What) -> &'static str {
    FindingKind::of(what).title
}

/// A kind of finding with how often it was found, and where first.
#[derive(Debug, Clone)]
pub(super) struct Tallied {
    pub(super) kind: FindingKind,
    pub(super) count: u64,
    pub(super) first: Finding,
    pub(super) place: Option<Evidence>,
    /// Who did it first.
    pub(super) who: String,
    /// The shortest and the longest time that was measured, if it is of a kind that takes time.
    times: Option<[Duration; 2]>,
}

impl Tallied {
    /// Returns what it means, with what was measured.
    pub(super) fn meaning(&self) -> String {
        let [least, most] = self.times.unwrap_or_default().map(|time| time.as_secs_f64());
        let measured = if most - least < 0.005 {
            format!("after {least:.2} s")
        } else {
            format!("after {least:.2} to {most:.2} s")
        };
        self.kind.meaning.replace("{}", &measured)
    }
}

/// Returns how long it took, if it is of a kind that takes time: of a message that is sent again, until the first repeat.
fn time_of(what: &What) -> Option<Duration> {
    let is_later_repeat = matches!(what, What::Retransmission { times: 3.., .. });
    what.time().filter(|_| !is_later_repeat).map(|(_, time)| time)
}

/// All findings by kind. There are few kinds, and the commonest comes early.
#[derive(Debug, Default)]
pub(super) struct Tally(Vec<Tallied>);

impl Tally {
    pub(super) fn add(&mut self, finding: &Finding, place: Option<Evidence>, observer: &Observer) {
        let kind = FindingKind::of(&finding.what);
        if let Some(known) = self.0.iter_mut().find(|known| known.kind.title == kind.title) {
            known.count += 1;
            if let Some(time) = time_of(&finding.what) {
                let [least, most] = known.times.unwrap_or([time; 2]);
                known.times = Some([least.min(time), most.max(time)]);
            }
            return;
        }
        let conversation = observer.conversation(finding.conversation);
        let who = conversation.map(|conversation| side_name(&conversation, finding.side)).unwrap_or_default();
        let times = time_of(&finding.what).map(|time| [time; 2]);
        self.0.push(Tallied { kind, count: 1, first: *finding, place, who, times });
    }

    /// Returns the heaviest first.
    pub(super) fn ranked(&self) -> Vec<&Tallied> {
        let mut all: Vec<_> = self.0.iter().collect();
        all.sort_by_key(|tallied| {
            (std::cmp::Reverse((tallied.kind.weight, tallied.count)), tallied.kind.title)
        });
        all
    }
}

const REPEATS: &str = "The stock game repeats acknowledgements up to nine times. Harmless in small numbers, wasteful in large ones. The proxy of this program removes them.";
const NOT_STOCK: &str = "One side is not the original game. That is no fault by itself.";
