//! How much is lost on the way to one side, and how many copies that asks for.

/// What became of the messages and ACKs that were passed on to one side, the newest few hundred of them.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct LossEstimator {
    sent: u16,
    lost: u16,
}

impl LossEstimator {
    /// Something was passed on to this side.
    pub(crate) const fn note_sent(&mut self) {
        self.sent += 1;
        if self.sent >= MAX_SAMPLES {
            self.sent /= 2;
            self.lost /= 2;
        }
    }

    /// Something that had been passed on came again, because it, or the answer to it, was lost.
    pub(crate) fn note_lost(&mut self) {
        self.lost = (self.lost + 1).min(MAX_SAMPLES);
    }

    /// Returns how many copies of an ACK go on. One is enough where nothing is lost. Those that follow the second do not come
    /// before a stock sender repeats its message, so they are worth less.
    pub(crate) fn ack_copies(self) -> u8 {
        if self.lost == 0 && self.sent >= MIN_SAMPLES {
            return 1;
        }
        copies_needed(self.measured_loss(), ACK_RISK).max(2)
    }

    /// Returns how often an answer in place of the receiver is given.
    pub(crate) fn proxy_ack_copies(self) -> u8 {
        copies_needed(self.assumed_loss(), PROXY_ACK_RISK)
    }

    /// Returns how many copies of a part are needed before it counts as arrived, if its receiver does not tell.
    pub(crate) fn fragment_copies(self) -> u8 {
        copies_needed(self.assumed_loss(), FRAGMENT_RISK)
    }

    fn measured_loss(self) -> f64 {
        f64::from(self.lost) / f64::from(self.sent.max(self.lost).max(1))
    }

    /// Returns the loss to reckon with: as if a little more had been lost than was, so that little is known counts for little.
    fn assumed_loss(self) -> f64 {
        let sent = f64::from(self.sent.max(self.lost)) + ASSUMED_SENT;
        ((f64::from(self.lost) + ASSUMED_LOST) / sent).max(MIN_ASSUMED)
    }
}

/// Returns how many copies make it unlikelier than `risk` that all are lost.
fn copies_needed(loss: f64, risk: f64) -> u8 {
    let mut copies = 1;
    let mut all_lost = loss;
    while all_lost > risk && copies < MAX_COPIES {
        all_lost *= loss;
        copies += 1;
    }
    copies
}

/// After so many, older ones count half.
const MAX_SAMPLES: u16 = 256;
/// Before so many little is known.
const MIN_SAMPLES: u16 = 128;
/// What is reckoned with besides what was seen.
const ASSUMED_LOST: f64 = 2.0;
const ASSUMED_SENT: f64 = 12.0;
const MIN_ASSUMED: f64 = 0.02;
/// How likely it may be that all copies of an ACK are lost: its sender repeats a message then.
const ACK_RISK: f64 = 0.02;
/// The same for an answer: there is a next one when the sender repeats its message.
const PROXY_ACK_RISK: f64 = 1e-3;
/// The same for a part that nobody repeats but the proxy: the payload would never arrive.
const FRAGMENT_RISK: f64 = 1e-6;
const MAX_COPIES: u8 = 16;

#[cfg(test)]
mod tests {
    use super::*;

    fn estimator_with(sent: u16, lost: u16) -> LossEstimator {
        let mut loss = LossEstimator::default();
        for number in 0..sent {
            loss.note_sent();
            if u32::from(number) * u32::from(lost) / u32::from(sent)
                < u32::from(number + 1) * u32::from(lost) / u32::from(sent)
            {
                loss.note_lost();
            }
        }
        loss
    }

    #[test]
    fn higher_loss_needs_more_copies() {
        let figures =
            |loss: LossEstimator| (loss.ack_copies(), loss.proxy_ack_copies(), loss.fragment_copies());
        assert_eq!(figures(estimator_with(0, 0)), (2, 4, 8), "nothing is known yet");
        assert_eq!(figures(estimator_with(100, 0)), (2, 2, 4), "and little");
        assert_eq!(figures(estimator_with(1000, 0)), (1, 2, 4));
        assert_eq!(figures(estimator_with(1000, 50)), (2, 3, 5));
        assert_eq!(figures(estimator_with(1000, 100)), (2, 4, 7));
        assert_eq!(figures(estimator_with(1000, 500)), (6, 10, 16));
        assert_eq!(figures(estimator_with(1000, 1000)), (16, 16, 16), "there is an end");
    }

    #[test]
    fn old_losses_are_forgotten() {
        let mut loss = estimator_with(200, 20);
        assert_eq!(loss.ack_copies(), 2);
        for _ in 0..1000 {
            loss.note_sent();
        }
        assert_eq!(loss.ack_copies(), 1);
    }
}
