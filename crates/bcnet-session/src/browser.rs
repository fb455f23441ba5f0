//! What a game browser hears: GameSpy replies, several datagrams that belong together, put in order and read as pairs of key and value.
//!
//! A reply is what a stranger sends, so everything about it is bounded: how many datagrams are kept, how many pairs are
//! read, and which characters reach a terminal.

use std::collections::BTreeMap;

use bcnet_transport::wire::is_shown;

/// What a browser asks for everything with (S-05).
pub const STATUS: &[u8] = b"\\status\\";

/// A whole reply.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Reply {
    /// The pairs in their order, without `final` and `queryid`.
    pub pairs: Vec<(String, String)>,
}

impl Reply {
    /// Returns the value of the first such key.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&str> {
        self.pairs.iter().find(|(name, _)| name == key).map(|(_, value)| value.as_str())
    }

    /// Returns the names behind `player_0`, `player_1`, …, in the order of the reply.
    pub fn players(&self) -> impl Iterator<Item = &str> {
        self.pairs.iter().filter(|(key, _)| is_player(key)).map(|(_, name)| name.as_str())
    }

    /// Returns all other pairs.
    pub fn rules(&self) -> impl Iterator<Item = (&str, &str)> {
        let rules = self.pairs.iter().filter(|(key, _)| !is_player(key));
        rules.map(|(key, value)| (key.as_str(), value.as_str()))
    }
}

fn is_player(key: &str) -> bool {
    key.strip_prefix("player_")
        .is_some_and(|number| !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit()))
}

/// Puts the datagrams of one server's replies together.
#[derive(Debug, Default)]
pub struct Assembly {
    /// By the number of the reply: a question that was repeated is answered twice.
    replies: BTreeMap<u32, Pieces>,
}

#[derive(Debug, Default)]
struct Pieces {
    /// By their place, from 1.
    pieces: BTreeMap<u32, Vec<(String, String)>>,
    /// The place of the last one, once it is known.
    last: Option<u32>,
}

impl Assembly {
    /// Takes a datagram, and returns the reply that it makes whole. What is no reply, or too much of one, is ignored.
    pub fn add(&mut self, datagram: &[u8]) -> Option<Reply> {
        let piece = Piece::parse(datagram)?;
        if !self.replies.contains_key(&piece.reply) && self.replies.len() == MAX_REPLIES {
            return None;
        }
        let reply = self.replies.entry(piece.reply).or_default();
        if piece.is_last {
            reply.last = reply.last.or(Some(piece.place));
        }
        reply.pieces.entry(piece.place).or_insert(piece.pairs);
        let last = reply.last?;
        let whole = (1..=last).all(|place| reply.pieces.contains_key(&place));
        whole.then(|| {
            let pieces = (1..=last).filter_map(|place| reply.pieces.remove(&place));
            Reply { pairs: pieces.flatten().collect() }
        })
    }
}

/// One datagram of a reply.
struct Piece {
    reply: u32,
    place: u32,
    is_last: bool,
    pairs: Vec<(String, String)>,
}

impl Piece {
    /// Returns `None` if it is no GameSpy text, or has a place that no reply has.
    fn parse(datagram: &[u8]) -> Option<Self> {
        let mut tokens =
            datagram.strip_prefix(b"\\")?.split(|byte| *byte == b'\\').take(2 * MAX_PAIRS).map(shown);
        // A reply of one datagram may go without a number.
        let mut piece = Self { reply: 0, place: 1, is_last: false, pairs: Vec::new() };
        while let (Some(key), Some(value)) = (tokens.next(), tokens.next()) {
            match key.as_str() {
                "final" => piece.is_last = true,
                "queryid" => (piece.reply, piece.place) = query_id(&value)?,
                _ => piece.pairs.push((key, value)),
            }
        }
        // `\final\` may stand at the very end, with no value at all.
        piece.is_last |= datagram.ends_with(b"\\final");
        (!piece.pairs.is_empty() || piece.is_last).then_some(piece)
    }
}

/// `N.M`, M being a place.
fn query_id(text: &str) -> Option<(u32, u32)> {
    let (reply, place) = text.split_once('.')?;
    let place = place.parse().ok().filter(|place| (1..=MAX_PIECES).contains(place))?;
    Some((reply.parse().ok()?, place))
}

/// Latin-1 as text. Control characters could take over a terminal.
fn shown(bytes: &[u8]) -> String {
    let letters = bytes.iter().take(MAX_TEXT).map(|byte| char::from(*byte));
    letters.map(|letter| if is_shown(letter) { letter } else { char::REPLACEMENT_CHARACTER }).collect()
}

/// How many replies of one server are put together at once.
const MAX_REPLIES: usize = 8;
/// Of how many datagrams a reply may be. Stock servers need one or two.
const MAX_PIECES: u32 = 16;
/// How many pairs of a datagram are read.
const MAX_PAIRS: usize = 512;
/// How much of a key or value is read.
const MAX_TEXT: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;
    use bcnet_lab::Rng;

    /// Returns the reply to the last of `datagrams`, the others being incomplete.
    fn reply(datagrams: &[&[u8]]) -> Option<Reply> {
        let mut assembly = Assembly::default();
        let (last, before) = datagrams.split_last().expect("some");
        assert!(before.iter().all(|datagram| assembly.add(datagram).is_none()));
        assembly.add(last)
    }

    #[test]
    fn datagrams_are_joined_by_their_place_whatever_their_order() {
        let parts: [&[u8]; 3] = [
            b"\\player_1\\M\xFCller\\final\\\\queryid\\7.3",
            b"\\gamename\\bcommander\\hostname\\A b\\queryid\\7.1",
            b"\\player_0\\Kirk\\queryid\\7.2",
        ];
        let reply = reply(&parts).expect("whole");
        assert_eq!((reply.get("hostname"), reply.get("gamename")), (Some("A b"), Some("bcommander")));
        assert_eq!(reply.players().collect::<Vec<_>>(), ["Kirk", "Müller"]);
        assert_eq!(reply.rules().count(), 2);
    }

    #[test]
    fn datagrams_of_different_replies_do_not_mix() {
        assert_eq!(reply(&[b"\\a\\1\\queryid\\1.1", b"\\b\\2\\final\\\\queryid\\2.2"]), None);
        assert_eq!(reply(&[b"\\a\\1\\queryid\\1.1", b"\\a\\1\\queryid\\1.1", b"\\b\\2\\queryid\\1.2"]), None);
        let reply =
            reply(&[b"\\a\\1\\queryid\\1.1", b"\\a\\2\\queryid\\2.1", b"\\b\\3\\final\\\\queryid\\2.2"]);
        assert_eq!(reply.expect("the second").pairs, [("a".into(), "2".into()), ("b".into(), "3".into())]);
    }

    #[test]
    fn one_datagram_needs_no_number_and_final_no_value() {
        for text in
            [&b"\\a\\1\\final\\"[..], b"\\a\\1\\final", b"\\final\\\\a\\1", b"\\a\\1\\final\\\\queryid\\9.1"]
        {
            assert_eq!(reply(&[text]).expect("whole").pairs, [("a".into(), "1".into())]);
        }
    }

    #[test]
    fn what_is_no_reply_is_ignored() {
        let zero = b"\\a\\1\\final\\\\queryid\\1.0";
        for text in
            [&b""[..], b"\\", b"a\\b", b"\x01\x02", zero, b"\\a\\1\\final\\\\queryid\\1.17", b"\\queryid\\1"]
        {
            assert_eq!(reply(&[text]), None, "{text:?}");
        }
    }

    #[test]
    fn a_hostile_reply_is_bounded_and_cannot_write_to_a_terminal() {
        let huge = [b"\\k\\v".repeat(16_000), b"\\final\\\\queryid\\1.1".to_vec()].concat();
        assert_eq!(reply(&[&huge]), None);
        let long = [b"\\k\\".to_vec(), b"v".repeat(60_000), b"\\final\\".to_vec()].concat();
        assert_eq!(reply(&[&long]).expect("whole").get("k").map(str::len), Some(MAX_TEXT));
        let odd = reply(&[b"\\hostname\\\x1B]0;x\x07\x9B\\final\\"]).expect("whole");
        assert_eq!(odd.get("hostname"), Some("\u{FFFD}]0;x\u{FFFD}\u{FFFD}"));
        let mut assembly = Assembly::default();
        for number in 0..100_000 {
            assert_eq!(assembly.add(format!("\\a\\1\\queryid\\{number}.1").as_bytes()), None);
        }
        assert_eq!(assembly.replies.len(), MAX_REPLIES);
    }

    /// Random texts of the words that mean something: nothing panics, and what is kept stays bounded.
    #[test]
    fn random_replies_stay_within_bounds() {
        const WORDS: [&[u8]; 8] =
            [b"\\", b"final", b"queryid", b"1.1", b"2.", b"player_0", b"\xFF", b"99999999999.2"];
        let mut random = Rng::new(0x5EED);
        for _ in 0..2_000 {
            let mut assembly = Assembly::default();
            for _ in 0..20 {
                let mut datagram = b"\\".to_vec();
                for _ in 0..30 {
                    datagram.extend(WORDS[random.size(WORDS.len())]);
                }
                let pairs = assembly.add(&datagram).map_or(0, |reply| reply.pairs.len());
                assert!(pairs <= MAX_PAIRS * MAX_PIECES as usize && assembly.replies.len() <= MAX_REPLIES);
            }
        }
    }
}
