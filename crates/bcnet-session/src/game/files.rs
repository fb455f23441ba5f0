//! The file check: its rounds, and the answers of clients ([S-20], [S-21]).
//!
//! [S-20]: bcnet_transport::wire::protocol#s-20
//! [S-21]: bcnet_transport::wire::protocol#s-21

use super::field::{Cut, Names, Reader, Wire, names};

/// One round of the file check: a directory and a pattern of file names.
#[derive(Debug)]
pub struct FileCheckRound {
    /// The round number on the wire.
    pub index: u8,
    /// The directory to check.
    pub directory: &'static str,
    /// The pattern of file names to check.
    pub filter: &'static str,
    /// True if the round includes subdirectories.
    pub recursive: bool,
}

/// The rounds of the file check, in their order ([S-20]).
///
/// [S-20]: bcnet_transport::wire::protocol#s-20
pub const FILE_CHECK_ROUNDS: [FileCheckRound; 5] = [
    FileCheckRound { index: 0, directory: "scripts/", filter: "App.pyc", recursive: false },
    FileCheckRound { index: 1, directory: "scripts/", filter: "Autoexec.pyc", recursive: false },
    FileCheckRound { index: 2, directory: "scripts/ships", filter: "*.pyc", recursive: true },
    FileCheckRound { index: 3, directory: "scripts/mainmenu", filter: "*.pyc", recursive: false },
    FileCheckRound { index: 0xFF, directory: "Scripts/Multiplayer", filter: "*.pyc", recursive: true },
];

/// An answer to a file check request: the hashes of a client's files ([S-21]).
///
/// [S-21]: bcnet_transport::wire::protocol#s-21
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChecksumResponse {
    /// The round number.
    pub round: u8,
    /// The hash of the game's version, only in round 0.
    pub version: Option<u32>,
    /// The hash of the directory's name.
    pub directory: u32,
    /// The directory tree in depth-first order: each directory is followed by its subdirectories.
    pub tree: Vec<DirectoryHashes>,
}

/// A directory of the file check.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DirectoryHashes {
    /// The files of the directory.
    pub files: Vec<FileHash>,
    /// The hashes of the names of the subdirectories.
    pub directories: Vec<u32>,
}

/// A file of the file check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileHash {
    /// The hash of the file name.
    pub name: u32,
    /// The hash of the content.
    pub content: u32,
}

impl<'a> Wire<'a> for ChecksumResponse {
    const KIND: &'static str = "checksum response";

    fn read(reader: &mut Reader<'a>, names: &'static Names) -> Result<Self, Cut> {
        let round = Wire::read(reader, names!(round))?;
        let version = if round == 0 { Some(Wire::read(reader, names!(version_hash))?) } else { None };
        let directory = Wire::read(reader, names!(directory_hash))?;
        let (mut tree, mut remaining) = (Vec::new(), 1);
        while remaining > 0 {
            let next = DirectoryHashes::read(reader, names)?;
            remaining = remaining - 1 + next.directories.len();
            tree.push(next);
        }
        Ok(Self { round, version, directory, tree })
    }

    fn write(&self, out: &mut Vec<u8>) {
        self.round.write(out);
        if self.round == 0 {
            self.version.unwrap_or_default().write(out);
        }
        self.directory.write(out);
        self.tree.iter().for_each(|directory| directory.write(out));
    }
}

impl<'a> Wire<'a> for DirectoryHashes {
    const KIND: &'static str = "directory";

    fn read(reader: &mut Reader<'a>, _: &'static Names) -> Result<Self, Cut> {
        let count = u16::read(reader, names!(files))?;
        reader.mark_repeated();
        // The claimed count may be too high: no more entries are allocated than the payload can contain.
        let capacity = usize::from(count).min(reader.remaining().len() / 8);
        let mut files = Vec::with_capacity(capacity);
        for _ in 0..count {
            let name = Wire::read(reader, names!(file_name))?;
            reader.mark_repeated();
            let content = Wire::read(reader, names!(file_hash))?;
            reader.mark_repeated();
            files.push(FileHash { name, content });
        }
        let count = u8::read(reader, names!(directories))?;
        reader.mark_repeated();
        let mut directories = Vec::new();
        for _ in 0..count {
            directories.push(Wire::read(reader, names!(directory_name))?);
            reader.mark_repeated();
        }
        Ok(Self { files, directories })
    }

    /// Omits entries beyond the range of a count field.
    fn write(&self, out: &mut Vec<u8>) {
        let count = u16::try_from(self.files.len()).unwrap_or(u16::MAX);
        count.write(out);
        for FileHash { name, content } in self.files.iter().take(count.into()) {
            name.write(out);
            content.write(out);
        }
        let count = u8::try_from(self.directories.len()).unwrap_or(u8::MAX);
        count.write(out);
        self.directories.iter().take(count.into()).for_each(|name| name.write(out));
    }
}
