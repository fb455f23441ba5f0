//! Which files a client has, as its five checksum replies tell, and how two of them differ.
//!
//! Nothing is hashed here: a manifest is learned from the replies of a client whose installation is good.

mod answer;

use std::fmt::{self, Write as _};

use crate::game::{ChecksumResponse, DirectoryHashes, FILE_CHECK_ROUNDS, FileCheckRound, Message};
use crate::member::FileCheckAnswers;

/// The files of one installation, by their hashes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Manifest {
    /// What it is called.
    pub name: String,
    rounds: [Option<FileCheckReply>; FILE_CHECK_ROUNDS.len()],
}

/// A client's answer to one round.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FileCheckReply {
    /// The version of the game; round 0 only.
    version: Option<u32>,
    directory: u32,
    /// By path, sorted.
    files: Vec<FileEntry>,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct FileEntry {
    /// The hashes of the directories on the way, and of the file's name.
    path: Vec<u32>,
    content: u32,
}

/// Where two installations differ.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mismatch {
    /// The round of the check, 0 to 4.
    pub round: usize,
    /// The file with its directory, by name where that is known, else by the hash of its name.
    pub entry: String,
    /// What is wrong with it.
    pub kind: MismatchKind,
}

/// How an entry differs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MismatchKind {
    /// The game has another version.
    Version,
    /// It is another directory.
    Directory,
    /// The file has another content.
    Content,
    /// The client lacks the file.
    Missing,
    /// The client has a file too many.
    Extra,
    /// The client did not answer, or what it answered makes no sense.
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
    /// S-24: returns what the player reads, in a window of the game: what differs, and what helps.
    #[must_use]
    pub fn advice(&self) -> String {
        let what = if self.kind == MismatchKind::Version { "game version " } else { "" };
        format!("{what}{} - use the files that this server has", self.entry)
    }
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "round {}: {}: {}", self.round, self.entry, self.kind)
    }
}

impl FileCheckRound {
    /// Returns what to call an entry that differs. Where a round is about one file, it is that, whatever its hash.
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
    /// S-21: reads a reply to `round`. `None` if it is another round's, or not well formed, or not all of `payload`.
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

    /// S-23: returns where `self`, a client's, differs first from `wanted`.
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
                Some(own) if own.content != file.content => {
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

/// Returns the files of a directory and of those below it. The depth is that of `path`.
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
    /// Returns what a client has told by its answers.
    pub(crate) fn from_answers(answers: &FileCheckAnswers) -> Self {
        let mut manifest = Self::default();
        for (round, (place, answer)) in manifest.rounds.iter_mut().zip(answers).enumerate() {
            *place = answer.as_ref().and_then(|answer| FileCheckReply::parse(round, answer));
        }
        manifest
    }

    /// Returns whether it has all five rounds. One that has not fits nobody.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.missing_rounds().next().is_none()
    }

    /// Returns the rounds that it does not have.
    pub fn missing_rounds(&self) -> impl Iterator<Item = usize> {
        self.rounds.iter().enumerate().filter(|(_, reply)| reply.is_none()).map(|(round, _)| round)
    }

    /// Returns how many rounds of the check it has.
    #[must_use]
    pub fn count_rounds(&self) -> usize {
        self.rounds.iter().flatten().count()
    }

    /// Returns how many files it has.
    #[must_use]
    pub fn count_files(&self) -> usize {
        self.rounds.iter().flatten().map(|reply| reply.files.len()).sum()
    }

    /// S-23: returns where a client's files differ first from this, in the rounds up to `last`.
    pub(crate) fn mismatch(&self, client: &Self, last: usize, extra_files: bool) -> Option<Mismatch> {
        let rounds = self.rounds.iter().zip(&client.rounds).zip(FILE_CHECK_ROUNDS).enumerate().take(last + 1);
        let mut mismatches = rounds.filter_map(|(round, ((wanted, reply), question))| {
            let (kind, entry) = match (wanted, reply) {
                (Some(wanted), Some(reply)) => {
                    let (kind, entry) = reply.mismatch(wanted, extra_files)?;
                    (kind, question.entry_name(kind, entry))
                }
                (Some(_), None) => (MismatchKind::NoReply, question.path(question.filter)),
                (None, _) => (MismatchKind::Extra, question.path(question.filter)),
            };
            Some(Mismatch { round, entry, kind })
        });
        mismatches.next()
    }

    /// Reads what [`Display`](fmt::Display) has written.
    ///
    /// # Errors
    /// [`ManifestError`] tells the line.
    pub fn parse(text: &str) -> Result<Self, ManifestError> {
        let mut manifest = Self::default();
        let mut current = None;
        let mut lines = text.lines().enumerate().map(|(at, line)| (at + 1, line));
        let error = |line, what| ManifestError { line, reason: what };
        match lines.next() {
            Some((_, first)) if first.trim() == HEADER => {}
            _ => return Err(error(1, "the first line must be `bcnet-manifest 1`")),
        }
        for (at, line) in lines {
            let line = line.split('#').next().unwrap_or_default().trim();
            if !line.is_empty() {
                manifest.parse_line(line, &mut current).map_err(|what| error(at, what))?;
            }
        }
        for reply in manifest.rounds.iter_mut().flatten() {
            reply.files.sort();
        }
        Ok(manifest)
    }

    fn parse_line(&mut self, line: &str, current: &mut Option<usize>) -> Result<(), &'static str> {
        let (key, value) = line.split_once(' ').ok_or("expected a key and a value")?;
        let value = value.trim();
        if key == "name" {
            self.name = value.into();
            return Ok(());
        }
        if key == "round" {
            let round = value.parse().ok().filter(|round| *round < FILE_CHECK_ROUNDS.len());
            let round: usize = round.ok_or("a round is a number from 0 to 4")?;
            let place = self.rounds.get_mut(round).ok_or("a round is a number from 0 to 4")?;
            *place = Some(FileCheckReply { version: None, directory: 0, files: Vec::new() });
            *current = Some(round);
            return Ok(());
        }
        let reply =
            current.and_then(|round| self.rounds.get_mut(round)?.as_mut()).ok_or("expected `round`")?;
        match key {
            "version" => reply.version = Some(parse_hash(value).ok_or("a hash has eight hex digits")?),
            "directory" => reply.directory = parse_hash(value).ok_or("a hash has eight hex digits")?,
            "file" => {
                reply.files.push(parse_file(value).ok_or("expected `file PATH CONTENT`, all in hashes")?)
            }
            _ => return Err("expected name, round, version, directory or file"),
        }
        Ok(())
    }
}

/// The text form, which [`Manifest::parse`] reads.
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

/// Why a manifest cannot be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ManifestError {
    /// The line, counted from 1.
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

/// Returns the name that a hash is known to stand for, else the hash.
fn hash_name(hash: u32) -> String {
    let known = KNOWN_NAMES.iter().find(|(known, _)| *known == hash);
    known.map_or_else(|| format!("{hash:08X}"), |(_, name)| (*name).into())
}

const HEADER: &str = "bcnet-manifest 1";
/// The longest reply that is read. Stock has 832 bytes; a mod with hundreds of ships has more.
const MAX_REPLY: usize = 32 << 10;
const MAX_DEPTH: usize = 16;

/// Names whose hashes were seen on the wire.
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
