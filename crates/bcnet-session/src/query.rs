//! GameSpy queries and replies in text form ([S-05], [S-06], [S-08]).
//!
//! This module parses and builds texts. It does not limit replies; see `query_limiter`.
//!
//! [S-05]: bcnet_transport::wire::protocol#s-05
//! [S-06]: bcnet_transport::wire::protocol#s-06
//! [S-08]: bcnet_transport::wire::protocol#s-08

use crate::text::to_latin1;

/// The parts that a query asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Query<'a> {
    pub(crate) basic: bool,
    pub(crate) info: bool,
    pub(crate) rules: bool,
    pub(crate) players: bool,
    pub(crate) echo: Option<&'a [u8]>,
    /// The challenge of a list server.
    pub(crate) secure: Option<&'a [u8]>,
}

impl<'a> Query<'a> {
    /// Parses a query. Returns `None` if `text` asks for no known part, or is a reply (S-05).
    pub(crate) fn parse(text: &'a [u8]) -> Option<Self> {
        if is_reply(text) {
            return None;
        }
        let mut query = Self::default();
        let mut tokens = text.split(|byte| *byte == b'\\').take(MAX_TOKENS);
        while let Some(token) = tokens.next() {
            match token {
                b"status" | b"packets" => {
                    query = Self { echo: query.echo, secure: query.secure, ..FULL_QUERY }
                }
                b"basic" => query.basic = true,
                b"info" => query.info = true,
                b"rules" => query.rules = true,
                b"players" => query.players = true,
                b"echo" => query.echo = tokens.next().map(|text| text.get(..MAX_ECHO).unwrap_or(text)),
                b"secure" => {
                    query.basic = true;
                    query.secure = tokens.next().filter(|challenge| challenge.len() <= MAX_CHALLENGE);
                }
                _ => {}
            }
        }
        (query != Self::default()).then_some(query)
    }
}

const FULL_QUERY: Query<'_> =
    Query { basic: true, info: true, rules: true, players: true, echo: None, secure: None };

/// Collects the pairs of a reply and splits them into datagrams.
#[derive(Debug)]
pub(crate) struct ReplyBuilder {
    query_id: u32,
    datagrams: Vec<Vec<u8>>,
}

impl ReplyBuilder {
    /// Returns an empty reply. All datagrams of the reply have the same `number`.
    pub(crate) fn new(number: u32) -> Self {
        Self { query_id: number, datagrams: vec![Vec::new()] }
    }

    /// Adds a pair. Removes backslashes from the value, because they would break the format.
    pub(crate) fn pair(&mut self, key: &str, value: &str) -> &mut Self {
        self.raw_pair(key, &to_latin1(value).filter(|byte| *byte != b'\\').collect::<Vec<u8>>())
    }

    /// Returns how many letters each value may have, so that `pairs` more pairs fit into the reply (S-06).
    ///
    /// The result is at least [`MIN_NAME`].
    pub(crate) fn value_limit(&self, pairs: usize) -> usize {
        let written: usize = self.datagrams.iter().map(Vec::len).sum();
        let room = MAX_REPLY.saturating_sub(written + RESERVED_LEN + pairs * MAX_KEY);
        (room / pairs.max(1)).max(MIN_NAME)
    }

    /// Adds a pair with a value of at most `max_letters` letters.
    pub(crate) fn truncated_pair(&mut self, key: &str, value: &str, max_letters: usize) -> &mut Self {
        let cut = value.char_indices().nth(max_letters).and_then(|(end, _)| value.get(..end));
        self.pair(key, cut.unwrap_or(value))
    }

    /// Adds a pair whose value is Latin-1 already and has no backslash.
    pub(crate) fn raw_pair(&mut self, key: &str, value: &[u8]) -> &mut Self {
        let value = value.get(..MAX_VALUE).unwrap_or(value);
        let more = key.len() + value.len() + 2;
        if self.datagrams.last().is_none_or(|piece| piece.len() + more + ENDING_LEN > MAX_REPLY_DATAGRAM) {
            self.datagrams.push(Vec::new());
        }
        if let Some(piece) = self.datagrams.last_mut() {
            piece.push(b'\\');
            piece.extend_from_slice(key.as_bytes());
            piece.push(b'\\');
            piece.extend_from_slice(value);
        }
        self
    }

    /// Returns the datagrams. Each has a number, and the last one has `\final\` (S-06).
    pub(crate) fn finish(mut self) -> Vec<Vec<u8>> {
        let last = self.datagrams.len();
        for (at, piece) in self.datagrams.iter_mut().enumerate() {
            if at + 1 == last {
                piece.extend_from_slice(b"\\final\\");
            }
            piece.extend_from_slice(format!("\\queryid\\{}.{}", self.query_id, at + 1).as_bytes());
        }
        self.datagrams
    }
}

/// Returns whether a GameSpy text is a reply: it has a number such as `\queryid\1.1` ([S-05]).
///
/// No query has such a number.
///
/// [S-05]: bcnet_transport::wire::protocol#s-05
#[must_use]
pub fn is_reply(text: &[u8]) -> bool {
    let mut tokens = text.split(|byte| *byte == b'\\').skip_while(|token| *token != b"queryid");
    let number = tokens.nth(1).unwrap_or_default();
    let is_number = |part: &[u8]| !part.is_empty() && part.iter().all(u8::is_ascii_digit);
    let mut parts = number.splitn(2, |byte| *byte == b'.');
    parts.next().is_some_and(is_number) && parts.next().is_some_and(is_number)
}

/// Returns the answer to a list server's challenge ([S-08]).
///
/// [S-08]: bcnet_transport::wire::protocol#s-08
#[must_use]
pub fn challenge_response(challenge: &[u8]) -> String {
    let mut state: [u8; 256] = std::array::from_fn(|at| u8::try_from(at).unwrap_or(0));
    let mut j = 0_u8;
    for (at, key) in (0..=u8::MAX).zip(GAME_KEY.iter().cycle()) {
        j = j.wrapping_add(at_index(&state, at)).wrapping_add(*key);
        state.swap(at.into(), j.into());
    }
    let (mut i, mut j) = (0_u8, 0_u8);
    let mut mixed = Vec::with_capacity(challenge.len());
    for byte in challenge {
        i = i.wrapping_add(*byte).wrapping_add(1);
        j = j.wrapping_add(at_index(&state, i));
        state.swap(i.into(), j.into());
        let sum = at_index(&state, i).wrapping_add(at_index(&state, j));
        mixed.push(byte ^ at_index(&state, sum));
    }
    base64(&mixed)
}

/// Returns the reply to a list server's challenge, or `None` if `text` has no challenge ([S-08], [S-09]).
///
/// [S-08]: bcnet_transport::wire::protocol#s-08
/// [S-09]: bcnet_transport::wire::protocol#s-09
#[must_use]
pub fn answer_challenge(text: &[u8]) -> Option<Vec<u8>> {
    let challenge = Query::parse(text)?.secure?;
    let mut reply = ReplyBuilder::new(1);
    reply.pair("gamename", "bcommander").pair("gamever", "60").pair("location", "1");
    reply.pair("validate", &challenge_response(challenge));
    reply.finish().into_iter().next()
}

fn at_index(state: &[u8; 256], index: u8) -> u8 {
    state.get(usize::from(index)).copied().unwrap_or(0)
}

fn base64(bytes: &[u8]) -> String {
    let mut text = String::new();
    for chunk in bytes.chunks(3) {
        let byte = |at: usize| u32::from(chunk.get(at).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for at in 0..4 {
            let index = usize::try_from(bits >> (18 - 6 * at) & 63).unwrap_or(0);
            let digit = ALPHABET.get(index).copied().unwrap_or(b'=');
            text.push(if at > chunk.len() { '=' } else { char::from(digit) });
        }
    }
    text
}

/// The most bytes in a datagram of a reply.
const MAX_REPLY_DATAGRAM: usize = 1349;
/// The most bytes of a reply in all its datagrams. It fits the quota of a network (S-07).
const MAX_REPLY: usize = 2000;
/// `\final\` and `\queryid\4294967295.99`.
const ENDING_LEN: usize = 29;
/// The space for texts after the names: an echo, the answer to a challenge, the ends of two datagrams.
const RESERVED_LEN: usize = 7 + MAX_ECHO + 10 + MAX_CHALLENGE.div_ceil(3) * 4 + 2 * ENDING_LEN;
/// `\player_16\` and a backslash.
const MAX_KEY: usize = 12;
/// The number of letters of a name that are never cut off.
const MIN_NAME: usize = 16;
const MAX_VALUE: usize = 256;
const MAX_TOKENS: usize = 32;
const MAX_ECHO: usize = 64;
const MAX_CHALLENGE: usize = 64;
const GAME_KEY: &[u8] = b"Nm3aZ9";
const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

#[cfg(test)]
mod tests {
    use super::*;

    /// S-08
    #[test]
    fn challenge_response_matches_a_real_list_server() {
        for (challenge, answer) in [
            ("LRPOPQ", "hMwdTNWS"),
            ("VSEQNJ", "I5p3Pqlb"),
            ("QYVAVT", "g6zyu8Yt"),
            ("LPFMLO", "hC0wmNs0"),
            ("YQPVOZ", "PJ4TeY/i"),
            ("JUOYRR", "8qL2/1wp"),
            ("KZGRKJ", "Zz0E0gLI"),
            ("NVFYMI", "kAMmHaDQ"),
        ] {
            assert_eq!(challenge_response(challenge.as_bytes()), answer, "{challenge}");
        }
        assert_eq!(challenge_response(b""), "");
        assert_eq!(
            (base64(b"M"), base64(b"Ma"), base64(b"Man")),
            ("TQ==".into(), "TWE=".into(), "TWFu".into())
        );
    }

    /// S-05
    #[test]
    fn query_keys_match_whole_words() {
        let parse = |text: &'static str| Query::parse(text.as_bytes());
        for full in ["\\status\\", "\\status\\xserverquery", "\\packets\\", "status"] {
            assert_eq!(parse(full), Some(FULL_QUERY), "{full}");
        }
        assert_eq!(parse("\\info\\xserverquery"), Some(Query { info: true, ..Query::default() }));
        let secure = Query { basic: true, secure: Some(b"LRPOPQ"), ..Query::default() };
        assert_eq!(parse("\\basic\\\\secure\\LRPOPQ"), Some(secure));
        assert_eq!(parse("\\echo\\status"), Some(Query { echo: Some(b"status"), ..Query::default() }));
        for nothing in ["\\", "", "\\statusx\\", "\\final\\", "\\heartbeat\\0"] {
            assert_eq!(parse(nothing), None, "{nothing}");
        }
    }

    /// S-05
    #[test]
    fn reply_is_never_parsed_as_a_query() {
        for answer in [
            "\\echo\\hello\\final\\\\queryid\\1.1",
            "\\hostname\\status\\echo\\x\\queryid\\17.2\\final\\",
            "\\echo\\x\\queryid\\4294967295.99",
        ] {
            assert!(is_reply(answer.as_bytes()), "{answer}");
            assert_eq!(Query::parse(answer.as_bytes()), None, "{answer}");
        }
        for question in
            ["\\status\\", "\\status\\final\\", "\\status\\queryid\\", "\\echo\\queryid", "\\echo\\1.1"]
        {
            assert!(
                !is_reply(question.as_bytes()) && Query::parse(question.as_bytes()).is_some(),
                "{question}"
            );
        }
    }

    /// S-06
    #[test]
    fn long_reply_is_split_between_pairs() {
        let mut reply = ReplyBuilder::new(7);
        let name = "n".repeat(250);
        for player in 0..16 {
            reply.pair(&format!("player_{player}"), &name);
        }
        let pieces = reply.finish();
        assert_eq!(pieces.len(), 4);
        for (at, piece) in pieces.iter().enumerate() {
            let text = String::from_utf8(piece.clone()).expect("ASCII");
            assert!(piece.len() <= 1349 && text.starts_with("\\player_"), "{text}");
            assert!(text.ends_with(&format!("\\queryid\\7.{}", at + 1)), "{text}");
            assert_eq!(text.contains("\\final\\\\queryid\\"), at == 3);
        }
    }
}
