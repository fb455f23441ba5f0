//! Cookies: sequence numbers that a client acknowledges and drops, and that an attacker cannot predict.

use core::ops::Range;

use crate::inbox::RECEIVE_WINDOW;
use crate::wire::{Channel, Datagram, Message, Seq};

/// Returns the acknowledged sequence numbers that can only be cookies.
///
/// They are outside the receive window of a new client, so no other message to it has them.
pub(crate) fn acked_cookies(datagram: &Datagram<'_>) -> impl Iterator<Item = Seq> + Clone {
    datagram.messages().filter_map(|message| match message {
        Message::Ack(ack) if ack.id.channel == Channel::Game && ack.id.fragment.is_none() => {
            Some(ack.id.seq).filter(|seq| can_be_cookie(*seq))
        }
        Message::Ack(_) | Message::Control(_) | Message::Data(_) | Message::Keepalive => None,
    })
}

/// Returns whether a number is outside the receive window of a new client.
pub(super) fn can_be_cookie(number: Seq) -> bool {
    usize::from(number.0) >= RECEIVE_WINDOW
}

/// Returns a sequence number that a client acknowledges and drops (T-76, T-77); `draw` selects it.
///
/// It is outside the receive window of a new client, and of a client that expects any number in `window` or
/// the one after. Stock compares without wrapping: it drops numbers at least 0x4000 ahead, or at most
/// 0x4000 behind. Returns `None` if the window is too wide.
pub(super) fn cookie_outside(window: &Range<u16>, draw: u64) -> Option<Seq> {
    let [start, end] = [window.start, window.end].map(u64::from);
    let numbers = match () {
        () if start == 0 && end == 0 => 0x4000..0xC000,
        () if start <= end && end <= 0x8000 => end + 0x4000..0x1_0000,
        () if start <= end => end - 0x4000..start,
        // The window wraps, so it begins near the end and includes 0xFFFF.
        () => 0xBFFF.max(end + 0x4000)..start,
    };
    let count = numbers.end.checked_sub(numbers.start).filter(|count| *count >= MIN_COOKIES)?;
    u16::try_from(numbers.start + draw % count).ok().map(Seq)
}

/// Returns the SipHash-2-4 of two words.
pub(super) fn siphash([k0, k1]: [u64; 2], words: [u64; 2]) -> u64 {
    let mut v = [
        k0 ^ 0x736F_6D65_7073_6575,
        k1 ^ 0x646F_7261_6E64_6F6D,
        k0 ^ 0x6C79_6765_6E65_7261,
        k1 ^ 0x7465_6462_7974_6573,
    ];
    for word in words.into_iter().chain([16 << 56]) {
        v[3] ^= word;
        v = sip_round(sip_round(v));
        v[0] ^= word;
    }
    v[2] ^= 0xFF;
    let v = sip_round(sip_round(sip_round(sip_round(v))));
    v[0] ^ v[1] ^ v[2] ^ v[3]
}

const fn sip_round([mut a, mut b, mut c, mut d]: [u64; 4]) -> [u64; 4] {
    a = a.wrapping_add(b);
    b = b.rotate_left(13) ^ a;
    a = a.rotate_left(32);
    c = c.wrapping_add(d);
    d = d.rotate_left(16) ^ c;
    a = a.wrapping_add(d);
    d = d.rotate_left(21) ^ a;
    c = c.wrapping_add(b);
    b = b.rotate_left(17) ^ c;
    c = c.rotate_left(32);
    [a, b, c, d]
}

/// The minimum number of possible cookies; with fewer, a guess is too easy.
const MIN_COOKIES: u64 = 0x1000;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lcg::Lcg;

    /// The test vector of the authors of SipHash for sixteen bytes.
    #[test]
    fn the_hash_is_siphash() {
        let words = [0x0706_0504_0302_0100, 0x0F0E_0D0C_0B0A_0908];
        assert_eq!(siphash(words, words), 0x3F2A_CC7F_57C2_9BDB);
    }

    /// Returns whether stock stores a message (T-69): it compares the difference, without wrapping.
    fn stock_keeps(number: Seq, expected: u16) -> bool {
        let ahead = i32::from(number.0) - i32::from(expected);
        (0..0x4000).contains(&ahead) || ahead < -0x4000
    }

    fn inbox_keeps(number: Seq, expected: u16) -> bool {
        (0..0x4000).contains(&number.distance_from(Seq(expected)))
    }

    /// T-76, T-77: a cookie is outside the receive window of a new client and of the former connection.
    #[test]
    fn cookie_is_outside_every_receive_window() {
        let mut lcg = Lcg(7);
        let mut without = 0;
        for step in 0..20_000_u64 {
            let [start, width] = [65_536, 0x2000].map(|bound| u16::try_from(lcg.below(bound)).unwrap_or(0));
            let window = if step == 0 { 0..0 } else { start..start.wrapping_add(width) };
            let Some(number) = cookie_outside(&window, lcg.below(1 << 30)) else {
                without += 1;
                continue;
            };
            assert!(
                usize::from(number.0) >= RECEIVE_WINDOW,
                "{number} is inside the receive window of a new client"
            );
            for ahead in 0..=window.end.wrapping_sub(window.start) {
                let expected = window.start.wrapping_add(ahead);
                assert!(
                    !stock_keeps(number, expected) && !inbox_keeps(number, expected),
                    "{number} {window:?}"
                );
            }
        }
        assert_eq!(without, 0, "some windows have no cookie");
    }

    /// T-76: a cookie for a new client has fifteen random bits.
    #[test]
    fn newcomer_cookie_is_one_of_32768() {
        let numbers = (0..0x8000).filter_map(|draw| cookie_outside(&(0..0), draw));
        assert_eq!(
            numbers.map(|number| number.0).collect::<alloc::collections::BTreeSet<u16>>().len(),
            0x8000
        );
    }
}
