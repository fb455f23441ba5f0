//! Reads the replies of game servers to queries, for a game browser ([S-05], [S-06]).
//!
//! A GameSpy reply can have several datagrams. [`ReplyAssembler`] puts them in order and returns pairs of key and
//! value. Replies come from unknown servers, so the number of datagrams and pairs is limited. Unprintable characters
//! are replaced. This module sends nothing.
//!
//! [S-05]: bcnet_transport::wire::protocol#s-05
//! [S-06]: bcnet_transport::wire::protocol#s-06

use std::collections::BTreeMap;

use bcnet_transport::wire::is_printable;

/// The query that asks for all keys ([S-05]).
///
/// [S-05]: bcnet_transport::wire::protocol#s-05
pub const STATUS_QUERY: &[u8] = b"\\status\\";

/// A complete reply.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ServerReply {
    /// The pairs in the order of the reply, without `final` and `queryid`.
    pub pairs: Vec<(String, String)>,
}

impl ServerReply {
    /// Returns the value of the first pair with this key.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&str> {
        self.pairs.iter().find(|(name, _)| name == key).map(|(_, value)| value.as_str())
    }

    /// Returns the values of the keys `player_0`, `player_1`, …, in the order of the reply.
    pub fn players(&self) -> impl Iterator<Item = &str> {
        self.pairs.iter().filter(|(key, _)| is_player_key(key)).map(|(_, name)| name.as_str())
    }

    /// Returns all pairs except those of players.
    pub fn rules(&self) -> impl Iterator<Item = (&str, &str)> {
        let rules = self.pairs.iter().filter(|(key, _)| !is_player_key(key));
        rules.map(|(key, value)| (key.as_str(), value.as_str()))
    }
}

fn is_player_key(key: &str) -> bool {
    key.strip_prefix("player_")
        .is_some_and(|number| !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit()))
}

/// Reassembles the replies of one server from datagrams.
#[derive(Debug, Default)]
pub struct ReplyAssembler {
    /// The replies by their number: a repeated query gets a second reply. Complete replies stay as empty entries.
    replies: BTreeMap<u32, PartialReply>,
}

#[derive(Debug, Default)]
struct PartialReply {
    /// The datagrams by their index, from 1.
    datagrams: BTreeMap<u32, Vec<(String, String)>>,
    /// The index of the last datagram, once it is known.
    last: Option<u32>,
}

impl ReplyAssembler {
    /// Adds a datagram, and returns the reply if it is complete now.
    ///
    /// Ignores datagrams that are not replies, and all replies after the first eight numbers.
    pub fn add(&mut self, datagram: &[u8]) -> Option<ServerReply> {
        let piece = ReplyDatagram::parse(datagram)?;
        if !self.replies.contains_key(&piece.query_id) && self.replies.len() == MAX_REPLIES {
            return None;
        }
        let reply = self.replies.entry(piece.query_id).or_default();
        if piece.is_last {
            reply.last = reply.last.or(Some(piece.index));
        }
        reply.datagrams.entry(piece.index).or_insert(piece.pairs);
        let last = reply.last?;
        let whole = (1..=last).all(|place| reply.datagrams.contains_key(&place));
        whole.then(|| {
            let pieces = (1..=last).filter_map(|place| reply.datagrams.remove(&place));
            ServerReply { pairs: pieces.flatten().collect() }
        })
    }
}

/// One datagram of a reply.
struct ReplyDatagram {
    query_id: u32,
    index: u32,
    is_last: bool,
    pairs: Vec<(String, String)>,
}

impl ReplyDatagram {
    /// Returns `None` if the datagram is not GameSpy text, or if its index is out of range.
    fn parse(datagram: &[u8]) -> Option<Self> {
        let mut tokens = datagram
            .strip_prefix(b"\\")?
            .split(|byte| *byte == b'\\')
            .take(2 * MAX_PAIRS)
            .map(to_display_text);
        // A reply of one datagram may lack the `queryid`.
        let mut piece = Self { query_id: 0, index: 1, is_last: false, pairs: Vec::new() };
        while let (Some(key), Some(value)) = (tokens.next(), tokens.next()) {
            match key.as_str() {
                "final" => piece.is_last = true,
                "queryid" => (piece.query_id, piece.index) = parse_query_id(&value)?,
                _ => piece.pairs.push((key, value)),
            }
        }
        // `\final\` may be at the very end, without a value.
        piece.is_last |= datagram.ends_with(b"\\final");
        (!piece.pairs.is_empty() || piece.is_last).then_some(piece)
    }
}

/// Parses `N.M`: the number of the reply and the index of the datagram.
fn parse_query_id(text: &str) -> Option<(u32, u32)> {
    let (reply, place) = text.split_once('.')?;
    let place = place.parse().ok().filter(|place| (1..=MAX_REPLY_DATAGRAMS).contains(place))?;
    Some((reply.parse().ok()?, place))
}

/// Decodes Latin-1. Replaces unprintable characters, because a terminal would act on them.
fn to_display_text(bytes: &[u8]) -> String {
    let letters = bytes.iter().take(MAX_TEXT).map(|byte| char::from(*byte));
    letters.map(|letter| if is_printable(letter) { letter } else { char::REPLACEMENT_CHARACTER }).collect()
}

/// The most replies that are reassembled for one server, complete ones included.
const MAX_REPLIES: usize = 8;
/// The most datagrams in a reply. Stock servers need one or two.
const MAX_REPLY_DATAGRAMS: u32 = 16;
/// The most pairs that are read from a datagram.
const MAX_PAIRS: usize = 512;
/// The most bytes of a key or value that are read.
const MAX_TEXT: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;
    use bcnet_lab::Rng;

    /// Adds `datagrams` to a new assembler and returns the result for the last one.
    ///
    /// Panics if an earlier datagram already completes a reply.
    fn reply(datagrams: &[&[u8]]) -> Option<ServerReply> {
        let mut assembly = ReplyAssembler::default();
        let (last, before) = datagrams.split_last().expect("at least one datagram");
        assert!(before.iter().all(|datagram| assembly.add(datagram).is_none()));
        assembly.add(last)
    }

    #[test]
    fn reply_is_reassembled_in_any_order() {
        let parts: [&[u8]; 3] = [
            b"\\player_1\\M\xFCller\\final\\\\queryid\\7.3",
            b"\\gamename\\bcommander\\hostname\\A b\\queryid\\7.1",
            b"\\player_0\\Kirk\\queryid\\7.2",
        ];
        let reply = reply(&parts).expect("a complete reply");
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
        assert_eq!(
            reply.expect("the second reply is complete").pairs,
            [("a".into(), "2".into()), ("b".into(), "3".into())]
        );
    }

    #[test]
    fn single_datagram_reply_needs_no_query_id() {
        for text in
            [&b"\\a\\1\\final\\"[..], b"\\a\\1\\final", b"\\final\\\\a\\1", b"\\a\\1\\final\\\\queryid\\9.1"]
        {
            assert_eq!(reply(&[text]).expect("a complete reply").pairs, [("a".into(), "1".into())]);
        }
    }

    #[test]
    fn other_datagrams_are_ignored() {
        let zero = b"\\a\\1\\final\\\\queryid\\1.0";
        for text in
            [&b""[..], b"\\", b"a\\b", b"\x01\x02", zero, b"\\a\\1\\final\\\\queryid\\1.17", b"\\queryid\\1"]
        {
            assert_eq!(reply(&[text]), None, "{text:?}");
        }
    }

    #[test]
    fn hostile_reply_is_bounded_and_sanitised() {
        let huge = [b"\\k\\v".repeat(16_000), b"\\final\\\\queryid\\1.1".to_vec()].concat();
        assert_eq!(reply(&[&huge]), None);
        let long = [b"\\k\\".to_vec(), b"v".repeat(60_000), b"\\final\\".to_vec()].concat();
        assert_eq!(reply(&[&long]).expect("a complete reply").get("k").map(str::len), Some(MAX_TEXT));
        let unprintable = reply(&[b"\\hostname\\\x1B]0;x\x07\x9B\\final\\"]).expect("a complete reply");
        assert_eq!(unprintable.get("hostname"), Some("\u{FFFD}]0;x\u{FFFD}\u{FFFD}"));
        let mut assembly = ReplyAssembler::default();
        for number in 0..100_000 {
            assert_eq!(assembly.add(format!("\\a\\1\\queryid\\{number}.1").as_bytes()), None);
        }
        assert_eq!(assembly.replies.len(), MAX_REPLIES);
    }

    /// Random texts of meaningful words cause no panic, and the stored data stays within its limits.
    #[test]
    fn random_replies_stay_bounded() {
        const WORDS: [&[u8]; 8] =
            [b"\\", b"final", b"queryid", b"1.1", b"2.", b"player_0", b"\xFF", b"99999999999.2"];
        let mut random = Rng::new(0x5EED);
        for _ in 0..2_000 {
            let mut assembly = ReplyAssembler::default();
            for _ in 0..20 {
                let mut datagram = b"\\".to_vec();
                for _ in 0..30 {
                    datagram.extend(WORDS[random.index(WORDS.len())]);
                }
                let pairs = assembly.add(&datagram).map_or(0, |reply| reply.pairs.len());
                assert!(
                    pairs <= MAX_PAIRS * MAX_REPLY_DATAGRAMS as usize
                        && assembly.replies.len() <= MAX_REPLIES
                );
            }
        }
    }
}
