//! The texts of a list server: pairs between backslashes, and challenges.

/// A GameSpy text, split at its backslashes.
pub(super) struct GameSpyPairs<'a>(Vec<&'a [u8]>);

impl<'a> GameSpyPairs<'a> {
    /// Returns `None` if the bytes are not GameSpy text.
    pub(super) fn parse(bytes: &'a [u8]) -> Option<Self> {
        Some(Self(bytes.strip_prefix(b"\\")?.split(|byte| *byte == b'\\').take(MAX_TOKENS).collect()))
    }

    /// Returns the token after the first one that equals `key`.
    ///
    /// Searches all tokens, because a value may be missing. Both `\list\\gamename\…` and `\list\cmp\gamename\…` occur.
    pub(super) fn get(&self, key: &str) -> Option<&'a [u8]> {
        let at = self.0.iter().position(|token| *token == key.as_bytes())?;
        self.0.get(at + 1).copied()
    }

    /// Returns whether there is such a key.
    pub(super) fn has(&self, key: &str) -> bool {
        self.0.contains(&key.as_bytes())
    }
}

/// The most tokens that are read. A status reply has fewer than a hundred.
const MAX_TOKENS: usize = 256;

/// A challenge: six unpredictable letters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Challenge([u8; 6]);

impl Challenge {
    /// Returns the challenge for an unpredictable number.
    #[must_use]
    pub fn new(mut random: u64) -> Self {
        Self(std::array::from_fn(|_| {
            let letter = u8::try_from(random % 26).unwrap_or(0);
            random /= 26;
            b'A' + letter
        }))
    }

    /// Returns the letters.
    #[must_use]
    pub fn text(&self) -> String {
        self.0.iter().copied().map(char::from).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn challenge_has_six_letters() {
        assert_eq!(Challenge::new(0).text(), "AAAAAA");
        assert_eq!(Challenge::new(27).text(), "BBAAAA");
        assert!(Challenge::new(u64::MAX).text().bytes().all(|letter| letter.is_ascii_uppercase()));
    }

    #[test]
    fn keys_are_found_with_and_without_values_before_them() {
        let text = GameSpyPairs::parse(b"\\basic\\\\secure\\ABCDEF\\final\\").expect("a text");
        assert_eq!(
            (text.get("secure"), text.get("basic"), text.get("final")),
            (Some(&b"ABCDEF"[..]), Some(&b""[..]), Some(&b""[..]))
        );
        assert_eq!((text.get("ABC"), GameSpyPairs::parse(b"basic").is_none()), (None, true));
    }
}
