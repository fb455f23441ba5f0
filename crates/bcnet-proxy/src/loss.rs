//! Estimates the loss toward one side, and the number of copies that it demands.

/// Counts of messages and ACKs forwarded to one side, and of those lost, for the newest few hundred.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct LossEstimator {
    sent: u16,
    lost: u16,
}

impl LossEstimator {
    /// Records something forwarded to this side.
    pub(crate) const fn note_sent(&mut self) {
        self.sent += 1;
        if self.sent >= MAX_SAMPLES {
            self.sent /= 2;
            self.lost /= 2;
        }
    }

    /// Records a loss: a forwarded message came again, because it or its answer was lost.
    pub(crate) fn note_lost(&mut self) {
        self.lost = (self.lost + 1).min(MAX_SAMPLES);
    }

    /// Returns how many copies of an ACK are forwarded. One is enough without loss. Copies after the second arrive
    /// after a stock sender repeats its message, so they help less.
    pub(crate) fn ack_copies(self) -> u8 {
        if self.lost == 0 && self.sent >= MIN_SAMPLES {
            return 1;
        }
        copies_needed(self.measured_loss(), ACK_RISK).max(2)
    }

    /// Returns how many times the proxy sends its own ACK.
    pub(crate) fn proxy_ack_copies(self) -> u8 {
        copies_needed(self.assumed_loss(), PROXY_ACK_RISK)
    }

    /// Returns how many copies of a fragment count as an arrival, if the receiver does not name fragments.
    pub(crate) fn fragment_copies(self) -> u8 {
        copies_needed(self.assumed_loss(), FRAGMENT_RISK)
    }

    fn measured_loss(self) -> f64 {
        f64::from(self.lost) / f64::from(self.sent.max(self.lost).max(1))
    }

    /// Returns the loss to assume: a little more than measured, so that few samples count little.
    fn assumed_loss(self) -> f64 {
        let sent = f64::from(self.sent.max(self.lost)) + ASSUMED_SENT;
        ((f64::from(self.lost) + ASSUMED_LOST) / sent).max(MIN_ASSUMED)
    }
}

/// Returns how many copies make the loss of all less likely than `risk`.
fn copies_needed(loss: f64, risk: f64) -> u8 {
    let mut copies = 1;
    let mut all_lost = loss;
    while all_lost > risk && copies < MAX_COPIES {
        all_lost *= loss;
        copies += 1;
    }
    copies
}

/// After this many samples, older ones count half.
const MAX_SAMPLES: u16 = 256;
/// With fewer samples, the loss counts as unknown.
const MIN_SAMPLES: u16 = 128;
/// Losses assumed in addition to the measured ones.
const ASSUMED_LOST: f64 = 2.0;
const ASSUMED_SENT: f64 = 12.0;
const MIN_ASSUMED: f64 = 0.02;
/// Accepted probability that all copies of an ACK are lost. Then the sender repeats its message.
const ACK_RISK: f64 = 0.02;
/// The same for the proxy's own ACK. The sender's next repeat gets another one.
const PROXY_ACK_RISK: f64 = 1e-3;
/// The same for a fragment that only the proxy repeats. Without it the payload never arrives.
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
        assert_eq!(figures(estimator_with(100, 0)), (2, 2, 4), "little is known yet");
        assert_eq!(figures(estimator_with(1000, 0)), (1, 2, 4));
        assert_eq!(figures(estimator_with(1000, 50)), (2, 3, 5));
        assert_eq!(figures(estimator_with(1000, 100)), (2, 4, 7));
        assert_eq!(figures(estimator_with(1000, 500)), (6, 10, 16));
        assert_eq!(figures(estimator_with(1000, 1000)), (16, 16, 16), "the number of copies is limited");
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
