//! Manifests: the hashes of files from a client's five file check answers ([S-20] to [S-24]).
//!
//! A strict file check compares the answers of clients with manifests.
//!
//! This module computes no hashes: a manifest is learned from the answers of a client with a good installation.
//!
//! [S-20]: bcnet_transport::wire::protocol#s-20
//! [S-24]: bcnet_transport::wire::protocol#s-24

mod answer;

use std::fmt::{self, Write as _};

use crate::game::{ChecksumResponse, DirectoryHashes, FILE_CHECK_ROUNDS, FileCheckRound, Message};
use crate::member::FileCheckAnswers;

/// The hashes of the files of one installation.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Manifest {
    /// The name of the manifest.
    pub name: String,
    rounds: [Option<FileCheckReply>; FILE_CHECK_ROUNDS.len()],
}

/// A client's answer to one round.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FileCheckReply {
    /// The hash of the game's version; round 0 only.
    version: Option<u32>,
    directory: u32,
    /// The files, sorted by path.
    files: Vec<FileEntry>,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct FileEntry {
    /// The hashes of the directory names above the file, and of the file name.
    path: Vec<u32>,
    content: u32,
}

/// The first difference between two installations.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mismatch {
    /// The round of the check, 0 to 4.
    pub round: usize,
    /// The path of the file. A name that is not known is replaced by its hash.
    pub entry: String,
    /// The kind of difference.
    pub kind: MismatchKind,
}

/// The kind of difference of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MismatchKind {
    /// The version of the game differs.
    Version,
    /// The directory differs.
    Directory,
    /// The content of the file differs.
    Content,
    /// The client does not have the file.
    Missing,
    /// The client has a file that the manifest does not contain, or the manifest does not have the round.
    Extra,
    /// The client did not answer, or its answer was malformed.
    NoReply,
}

impl fmt::Display for MismatchKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Version => "other version",
            Self::Directory => "other directory",
            Self::Content => "other content",
            Self::Missing => "missing",
            Self::Extra => "not in the manifest",
            Self::NoReply => "no usable reply",
        })
    }
}

impl Mismatch {
    /// Returns the text for the player: the file that differs, and what to do ([S-24]).
    ///
    /// The game shows it in a window.
    ///
    /// [S-24]: bcnet_transport::wire::protocol#s-24
    #[must_use]
    pub fn advice(&self) -> String {
        let what = if self.kind == MismatchKind::Version { "game version " } else { "" };
        format!("{what}{} - use the same files as this server", self.entry)
    }
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "round {}: {}: {}", self.round, self.entry, self.kind)
    }
}

impl FileCheckRound {
    /// Returns the text for an entry that differs: the version, or a path in the round's directory.
    ///
    /// If the round checks only one file, the path is that of this file.
    fn entry_name(&self, kind: MismatchKind, entry: String) -> String {
        match kind {
            MismatchKind::Version => entry,
            _ if !self.filter.contains('*') => self.path(self.filter),
            _ => self.path(&entry),
        }
    }

    fn path(&self, name: &str) -> String {
        format!("{}/{name}", self.directory.trim_end_matches('/'))
    }
}

impl FileCheckReply {
    /// Parses an answer to `round` (S-21).
    ///
    /// Returns `None` if the answer is too long or malformed, belongs to another round, or has extra bytes.
    pub(crate) fn parse(round: usize, payload: &[u8]) -> Option<Self> {
        let index = FILE_CHECK_ROUNDS.get(round)?.index;
        if payload.len() > MAX_REPLY {
            return None;
        }
        let Ok(Message::ChecksumResponse(response)) = Message::parse(payload) else { return None };
        let ChecksumResponse { round, version, directory, tree } = response;
        let mut files = Vec::new();
        collect_files(&mut tree.iter(), &mut Vec::new(), &mut files)?;
        files.sort();
        (round == index).then_some(Self { version, directory, files })
    }

    /// Returns the first difference of a client's answer from `expected` (S-23).
    fn mismatch(&self, expected: &Self, extra_files: bool) -> Option<(MismatchKind, String)> {
        if self.version != expected.version {
            return Some((MismatchKind::Version, hash_name(self.version.unwrap_or(0))));
        }
        if self.directory != expected.directory {
            return Some((MismatchKind::Directory, hash_name(self.directory)));
        }
        for file in &expected.files {
            match self.find(&file.path) {
                None => return Some((MismatchKind::Missing, path_name(&file.path))),
                Some(found) if found.content != file.content => {
                    return Some((MismatchKind::Content, path_name(&file.path)));
                }
                Some(_) => {}
            }
        }
        let extra = self.files.iter().find(|file| !extra_files && expected.find(&file.path).is_none())?;
        Some((MismatchKind::Extra, path_name(&extra.path)))
    }

    fn find(&self, path: &[u32]) -> Option<&FileEntry> {
        let at = self.files.binary_search_by(|file| file.path.as_slice().cmp(path)).ok()?;
        self.files.get(at)
    }
}

/// Collects the files of a directory and of its subdirectories.
///
/// Returns `None` if `path` is too deep, or if `tree` ends before all subdirectories.
fn collect_files<'a>(
    tree: &mut impl Iterator<Item = &'a DirectoryHashes>,
    path: &mut Vec<u32>,
    files: &mut Vec<FileEntry>,
) -> Option<()> {
    if path.len() >= MAX_DEPTH {
        return None;
    }
    let DirectoryHashes { files: own, directories } = tree.next()?;
    for file in own {
        files.push(FileEntry {
            path: path.iter().copied().chain([file.name]).collect(),
            content: file.content,
        });
    }
    for name in directories {
        path.push(*name);
        collect_files(tree, path, files)?;
        path.pop();
    }
    Some(())
}

impl Manifest {
    /// Returns the manifest of a client's answers.
    pub(crate) fn from_answers(answers: &FileCheckAnswers) -> Self {
        let mut manifest = Self::default();
        for (round, (entry, answer)) in manifest.rounds.iter_mut().zip(answers).enumerate() {
            *entry = answer.as_ref().and_then(|answer| FileCheckReply::parse(round, answer));
        }
        manifest
    }

    /// Returns whether the manifest has all five rounds. No client matches an incomplete manifest.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.missing_rounds().next().is_none()
    }

    /// Returns the rounds that the manifest does not have.
    pub fn missing_rounds(&self) -> impl Iterator<Item = usize> {
        self.rounds.iter().enumerate().filter(|(_, reply)| reply.is_none()).map(|(round, _)| round)
    }

    /// Returns the number of rounds that the manifest has.
    #[must_use]
    pub fn count_rounds(&self) -> usize {
        self.rounds.iter().flatten().count()
    }

    /// Returns the number of files in the manifest.
    #[must_use]
    pub fn count_files(&self) -> usize {
        self.rounds.iter().flatten().map(|reply| reply.files.len()).sum()
    }

    /// Returns the first difference of a client's files from this manifest, up to round `last` (S-23).
    pub(crate) fn mismatch(&self, client: &Self, last: usize, extra_files: bool) -> Option<Mismatch> {
        let rounds = self.rounds.iter().zip(&client.rounds).zip(FILE_CHECK_ROUNDS).enumerate().take(last + 1);
        let mut mismatches = rounds.filter_map(|(round, ((expected, reply), check))| {
            let (kind, entry) = match (expected, reply) {
                (Some(expected), Some(reply)) => {
                    let (kind, entry) = reply.mismatch(expected, extra_files)?;
                    (kind, check.entry_name(kind, entry))
                }
                (Some(_), None) => (MismatchKind::NoReply, check.path(check.filter)),
                (None, _) => (MismatchKind::Extra, check.path(check.filter)),
            };
            Some(Mismatch { round, entry, kind })
        });
        mismatches.next()
    }

    /// Parses the text format that [`Display`](fmt::Display) writes.
    ///
    /// # Errors
    /// Returns a [`ManifestError`] with the line number and the reason.
    pub fn parse(text: &str) -> Result<Self, ManifestError> {
        let mut manifest = Self::default();
        let mut current = None;
        let mut lines = text.lines().enumerate().map(|(at, line)| (at + 1, line));
        let error = |line, reason| ManifestError { line, reason };
        match lines.next() {
            Some((_, first)) if first.trim() == HEADER => {}
            _ => return Err(error(1, "the first line must be `bcnet-manifest 1`")),
        }
        for (at, line) in lines {
            let line = line.split('#').next().unwrap_or_default().trim();
            if !line.is_empty() {
                manifest.parse_line(line, &mut current).map_err(|reason| error(at, reason))?;
            }
        }
        for reply in manifest.rounds.iter_mut().flatten() {
            reply.files.sort();
        }
        Ok(manifest)
    }

    fn parse_line(&mut self, line: &str, current: &mut Option<usize>) -> Result<(), &'static str> {
        let (key, value) = line.split_once(' ').ok_or("expected a key, a space and a value")?;
        let value = value.trim();
        if key == "name" {
            self.name = value.into();
            return Ok(());
        }
        if key == "round" {
            let round = value.parse().ok().filter(|round| *round < FILE_CHECK_ROUNDS.len());
            let round: usize = round.ok_or("`round` must be a number from 0 to 4")?;
            let entry = self.rounds.get_mut(round).ok_or("`round` must be a number from 0 to 4")?;
            *entry = Some(FileCheckReply { version: None, directory: 0, files: Vec::new() });
            *current = Some(round);
            return Ok(());
        }
        let reply = current
            .and_then(|round| self.rounds.get_mut(round)?.as_mut())
            .ok_or("expected `round` before this line")?;
        match key {
            "version" => {
                reply.version = Some(parse_hash(value).ok_or("`version` must be a hash of eight hex digits")?)
            }
            "directory" => {
                reply.directory = parse_hash(value).ok_or("`directory` must be a hash of eight hex digits")?
            }
            "file" => reply.files.push(
                parse_file(value).ok_or("expected `file PATH CONTENT` with hashes of eight hex digits")?,
            ),
            _ => return Err("expected `name`, `round`, `version`, `directory` or `file`"),
        }
        Ok(())
    }
}

/// Writes the text format that [`Manifest::parse`] reads.
impl fmt::Display for Manifest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{HEADER}")?;
        if !self.name.is_empty() {
            writeln!(f, "name {}", self.name.replace(['\n', '\r', '#'], " "))?;
        }
        for (round, reply) in self.rounds.iter().enumerate() {
            let Some(reply) = reply else { continue };
            writeln!(f, "round {round}")?;
            if let Some(version) = reply.version {
                writeln!(f, "version {version:08X}")?;
            }
            writeln!(f, "directory {:08X}", reply.directory)?;
            for FileEntry { path, content } in &reply.files {
                let hashes: Vec<String> = path.iter().map(|hash| format!("{hash:08X}")).collect();
                let (hashes, name) = (hashes.join("/"), path_name(path));
                let comment = if name == hashes { String::new() } else { format!(" # {name}") };
                writeln!(f, "file {hashes} {content:08X}{comment}")?;
            }
        }
        Ok(())
    }
}

/// The reason why a manifest cannot be parsed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ManifestError {
    /// The number of the line, from 1.
    pub line: usize,
    reason: &'static str,
}

impl fmt::Display for ManifestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.reason)
    }
}

impl std::error::Error for ManifestError {}

fn parse_hash(text: &str) -> Option<u32> {
    (text.len() == 8).then(|| u32::from_str_radix(text, 16).ok())?
}

fn parse_file(text: &str) -> Option<FileEntry> {
    let (path, content) = text.split_once(' ')?;
    let path: Option<Vec<u32>> = path.split('/').map(parse_hash).collect();
    Some(FileEntry {
        path: path.filter(|path| path.len() <= MAX_DEPTH)?,
        content: parse_hash(content.trim())?,
    })
}

fn path_name(path: &[u32]) -> String {
    let mut name = String::new();
    for (at, hash) in path.iter().enumerate() {
        let slash = if at > 0 { "/" } else { "" };
        let _ = write!(name, "{slash}{}", hash_name(*hash));
    }
    name
}

/// Returns the name for a hash, or the hash in hex if the name is not known.
fn hash_name(hash: u32) -> String {
    let known = KNOWN_NAMES.iter().find(|(known, _)| *known == hash);
    known.map_or_else(|| format!("{hash:08X}"), |(_, name)| (*name).into())
}

const HEADER: &str = "bcnet-manifest 1";
/// The longest answer that is parsed. Stock has 832 bytes; a mod with hundreds of ships has more.
const MAX_REPLY: usize = 32 << 10;
const MAX_DEPTH: usize = 16;

/// Names of files and directories whose hashes are known from captures.
const KNOWN_NAMES: [(u32, &str); 28] = [
    (0x7E0C_E243, "60"),
    (0x4DAF_CB2F, "scripts"),
    (0xC017_D1C4, "scripts/ships"),
    (0x3409_475D, "scripts/mainmenu"),
    (0x8794_D13F, "Scripts/Multiplayer"),
    (0x373E_B677, "App.pyc"),
    (0x8501_E6A1, "Autoexec.pyc"),
    (0x3EB2_3EBA, "Akira.pyc"),
    (0x5846_668B, "CardSpecificSetup.pyc"),
    (0x4370_D29D, "KeyboardConfig.pyc"),
    (0xE9DD_9FA2, "__init__.pyc"),
    (0xB54D_1D23, "mainmenu.pyc"),
    (0x2C11_712D, "MissionMenusShared.pyc"),
    (0x67A4_C085, "MissionShared.pyc"),
    (0x0825_A729, "Modifier.pyc"),
    (0xCB1F_8D37, "MultiplayerGame.pyc"),
    (0x44AF_0748, "MultiplayerMenus.pyc"),
    (0x1F41_30E9, "SpeciesToShip.pyc"),
    (0xC5DE_8AE5, "SpeciesToSystem.pyc"),
    (0xFC53_F27B, "SpeciesToTorp.pyc"),
    (0x83C8_2BA5, "Episode"),
    (0x712E_2686, "Episode.pyc"),
    (0x88D6_3ABC, "Mission1"),
    (0x587D_A208, "Mission2"),
    (0x72ED_3851, "Mission3"),
    (0x16F2_E8DA, "Mission5"),
    (0x415B_D938, "Mission1.pyc"),
    (0x67D4_43E2, "StarbaseAI.pyc"),
];
