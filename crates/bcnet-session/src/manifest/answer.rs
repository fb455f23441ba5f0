//! Encodes a manifest as a client's answers to the file check ([S-21]).
//!
//! [S-21]: bcnet_transport::wire::protocol#s-21

use super::{FileCheckReply, FileEntry, Manifest};
use crate::game::{ChecksumResponse, DirectoryHashes, FILE_CHECK_ROUNDS, FileHash, Message};

impl Manifest {
    /// Returns a manifest of made-up hashes with the shape of an unmodified game.
    ///
    /// Its answers have the sizes of real ones. A server without manifests accepts a client with these answers. A
    /// server with manifests refuses it.
    #[must_use]
    pub fn placeholder() -> Self {
        let mut hashes = (1_u32..).map(|n| n.wrapping_mul(0x9E37_79B9));
        let mut hash = || hashes.next().unwrap_or_default();
        let mut reply = |directory, own: usize, subdirectories: &[usize]| {
            let mut files: Vec<FileEntry> =
                (0..own).map(|_| FileEntry { path: vec![hash()], content: hash() }).collect();
            for count in subdirectories {
                let directory = hash();
                files.extend(
                    (0..*count).map(|_| FileEntry { path: vec![directory, hash()], content: hash() }),
                );
            }
            files.sort();
            FileCheckReply { version: None, directory, files }
        };
        let first = FileCheckReply { version: Some(VERSION), ..reply(SCRIPTS, 1, &[]) };
        let rounds = [
            first,
            reply(SCRIPTS, 1, &[]),
            reply(SHIPS, 51, &[51]),
            reply(MAIN_MENU, 4, &[]),
            reply(MULTIPLAYER, 8, &[4; 5]),
        ];
        Self { name: "placeholder".into(), rounds: rounds.map(Some) }
    }

    /// Returns the answer of a client with these files in `round`.
    ///
    /// Returns `None` if the manifest does not have the round, if round 0 has no version, or if a directory has more
    /// entries than the wire format allows.
    pub(crate) fn encode_answer(&self, round: usize) -> Option<Vec<u8>> {
        let FileCheckReply { version, directory, files } = self.rounds.get(round)?.as_ref()?;
        let mut tree = Vec::new();
        add_tree(&mut tree, files, 0)?;
        let index = FILE_CHECK_ROUNDS.get(round)?.index;
        let version = if index == 0 { Some((*version)?) } else { None };
        let response = ChecksumResponse { round: index, version, directory: *directory, tree };
        let mut answer = Vec::new();
        Message::ChecksumResponse(response).write(&mut answer);
        Some(answer)
    }
}

/// Appends a directory at `depth`, and its subdirectories.
///
/// `files` contains all files of the directory and its subdirectories, sorted by path.
fn add_tree(tree: &mut Vec<DirectoryHashes>, files: &[FileEntry], depth: usize) -> Option<()> {
    let is_own = |file: &&FileEntry| file.path.len() == depth + 1;
    let own = files.iter().filter(is_own);
    let own = own.map(|file| Some(FileHash { name: *file.path.get(depth)?, content: file.content }));
    let own: Vec<FileHash> = own.collect::<Option<_>>()?;
    let groups = files.chunk_by(|a, b| a.path.get(depth) == b.path.get(depth));
    // A group can begin with a file that has the same name as the directory.
    let below = groups.map(|group| group.split_at(group.iter().take_while(is_own).count()).1);
    let below: Vec<&[FileEntry]> = below.filter(|group| !group.is_empty()).collect();
    let names = below.iter().map(|group| group.first()?.path.get(depth).copied());
    let directories: Vec<u32> = names.collect::<Option<_>>()?;
    // The count fields of the wire format have 16 and 8 bits.
    if own.len() > u16::MAX.into() || directories.len() > u8::MAX.into() {
        return None;
    }
    tree.push(DirectoryHashes { files: own, directories });
    below.into_iter().try_for_each(|group| add_tree(tree, group, depth + 1))
}

/// The hashes of the version and of the directories of the stock game.
const VERSION: u32 = 0x7E0C_E243;
const SCRIPTS: u32 = 0x4DAF_CB2F;
const SHIPS: u32 = 0xC017_D1C4;
const MAIN_MENU: u32 = 0x3409_475D;
const MULTIPLAYER: u32 = 0x8794_D13F;

#[cfg(test)]
mod tests {
    use super::*;

    /// S-21
    #[test]
    fn answer_parses_back_to_its_manifest() {
        let file = |path: &[u32]| FileEntry { path: path.to_vec(), content: path.iter().sum() };
        let mut files: Vec<FileEntry> =
            [&[1][..], &[7], &[7, 1], &[7, 2, 9], &[3, 1], &[9, 9, 9, 9], &[2]].map(file).to_vec();
        files.sort();
        let mut manifest = Manifest::placeholder();
        manifest.rounds[3] = Some(FileCheckReply { version: None, directory: 5, files });
        for round in 0..FILE_CHECK_ROUNDS.len() {
            let answer = manifest.encode_answer(round).expect("the manifest has all rounds");
            assert_eq!(FileCheckReply::parse(round, &answer), manifest.rounds[round]);
        }
        let sizes = [0, 1, 2, 3, 4]
            .map(|round| Manifest::placeholder().encode_answer(round).map(|answer| answer.len()));
        assert_eq!(sizes, [21, 17, 832, 41, 268].map(Some));
    }

    #[test]
    fn answer_is_none_for_a_missing_round_or_too_many_directories() {
        assert_eq!(Manifest::default().encode_answer(0), None);
        assert_eq!(Manifest::placeholder().encode_answer(5), None);
        let many = (0..256).map(|n| FileEntry { path: vec![n, 1], content: 0 }).collect();
        let mut manifest = Manifest::default();
        manifest.rounds[1] = Some(FileCheckReply { version: None, directory: 5, files: many });
        assert_eq!(manifest.encode_answer(1), None);
    }
}
