//! Several files as one, in the order of time.
//!
//! Captures whose times overlap, such as those of two interfaces, are read side by side: of their next packets the earliest
//! comes first, and each keeps its own order. Only those are open that overlap, so that a thousand rotated ones take no more
//! memory than two. What has no dates is read one after the other, as it is named. A single file is read in the same way.

use std::io;
use std::sync::atomic::Ordering;

use anyhow::Context;

use super::FilePart;
use super::inputs::{InputFile, Inputs};
use super::log::Clock;
use super::reading::open;
use super::source::{Batch, Counts, InFile, Source, Step};
use crate::inspect::name;
use crate::number::thousands;

pub(super) struct Merge<'a> {
    waiting: &'a [InputFile],
    are_several: bool,
    /// Whether the files are read in the order of time.
    by_time: bool,
    follow: bool,
    /// Whether it is no file, and nothing may come for a while.
    is_live: bool,
    /// In the order in which they were begun.
    open: Vec<OpenFile>,
    current: Option<Current>,
    /// What the log that ended last knows of the time.
    clock: Option<Clock>,
    /// All that were begun, if there are several.
    pub(super) files: Vec<FilePart>,
    /// When the latest packet was, and how many files were begun only after they should have been.
    latest: u64,
    late: usize,
    /// What files that have ended were unpacked to, and their own bytes.
    bytes: u64,
    file_bytes: u64,
}

/// A file that is being read.
struct OpenFile {
    source: Source,
    name: String,
    file: Option<InFile>,
    packets: u64,
    /// When the next packet was, if files are read in the order of time, and the latest before it.
    next: u64,
    latest: u64,
    backwards: Option<Backwards>,
}

/// Packets that are earlier than one before them.
#[derive(Debug, Clone, Copy)]
struct Backwards {
    count: u64,
    /// Where the first is.
    packet: u64,
    offset: u64,
}

/// Which file is read, until the next packet is another's: until so late, and whose that is if both are at the same time.
#[derive(Debug, Clone, Copy)]
struct Current {
    at: usize,
    until: Option<(u64, usize)>,
}

/// What came of reading.
pub(super) enum Turn {
    /// There may be more.
    More,
    /// A file has ended.
    Ended(Ended),
    /// All have.
    Over,
}

/// How a file has ended.
pub(super) struct Ended {
    pub(super) name: String,
    pub(super) packets: u64,
    /// What kept it from being read on, if anything did.
    pub(super) end: anyhow::Result<Step>,
    /// Whether the user wanted it to end.
    pub(super) is_stopped: bool,
    /// What there is to say of its order.
    pub(super) remark: Option<String>,
}

impl<'a> Merge<'a> {
    pub(super) fn new(inputs: &'a Inputs, follow: bool, is_live: bool) -> Self {
        Self {
            waiting: &inputs.files,
            are_several: inputs.are_several(),
            by_time: inputs.are_several() && inputs.files.iter().all(|file| file.first.is_some()),
            follow,
            is_live,
            open: Vec::new(),
            current: None,
            clock: None,
            files: Vec::new(),
            latest: 0,
            late: 0,
            bytes: 0,
            file_bytes: 0,
        }
    }

    /// Begins with a file that is open already.
    pub(super) fn add(&mut self, mut source: Source, name: String) {
        if let Some(clock) = self.clock {
            source.go_on_from(clock);
        }
        let next = if self.by_time { source.next_time() } else { None };
        self.late += usize::from(next.is_some_and(|next| next < self.latest));
        let next = next.unwrap_or(0);
        let file = self.are_several.then(|| {
            let number = u32::try_from(self.files.len()).unwrap_or(u32::MAX);
            let file = InFile { number, name: name.as_str().into() };
            self.files.push(FilePart { name: file.name.clone(), first: 0, last: 0, packets: 0 });
            file
        });
        self.open.push(OpenFile { source, name, file, packets: 0, next, latest: 0, backwards: None });
        self.current = None;
    }

    /// Reads the next packet of all, and adds it to `batch` if it holds a datagram.
    ///
    /// # Errors
    ///
    /// If nothing comes just now, of what is no file.
    pub(super) fn read(&mut self, batch: &mut Batch, counts: &mut Counts) -> io::Result<Turn> {
        if self.current.is_none()
            && let Err(turn) = self.choose(batch)
        {
            return Ok(turn);
        }
        let Some(Current { at, until }) = self.current else { return Ok(Turn::Over) };
        let Some(file) = self.open.get_mut(at) else { return Ok(Turn::Over) };
        let before = counts.packets;
        let step = file.source.read(batch, counts);
        file.packets += counts.packets - before;
        if let Some(part) = file.file.as_ref().and_then(|file| self.files.get_mut(file.number as usize)) {
            part.note(before, counts.packets);
        }
        match step {
            Ok(Step::More) => {
                if self.by_time {
                    self.latest = self.latest.max(file.next);
                    file.look_ahead(counts.packets);
                    if until.is_some_and(|until| (file.next, at) > until) {
                        self.current = None;
                    }
                }
                Ok(Turn::More)
            }
            Err(error) if self.is_live && error.kind() == io::ErrorKind::TimedOut => Err(error),
            end => Ok(Turn::Ended(self.close(at, end))),
        }
    }

    /// Returns how many bytes were read, of what files are unpacked to and of themselves.
    pub(super) fn offsets(&self) -> (u64, u64) {
        let open = self.open.iter().map(|file| (file.source.offset(), file.source.file_offset()));
        open.fold((self.bytes, self.file_bytes), |sum, file| (sum.0 + file.0, sum.1 + file.1))
    }

    /// Returns what there is to say of all files together.
    pub(super) fn trouble(&self) -> Option<String> {
        (self.late > 0).then(|| {
            format!(
                "more than {MAX_OPEN} files overlap in time; {} were begun late, so not all is in the order of time",
                self.late
            )
        })
    }

    /// Chooses whose packet is next, and begins with the files for which it is time.
    fn choose(&mut self, batch: &mut Batch) -> Result<(), Turn> {
        loop {
            let key = |(at, file): (usize, &OpenFile)| (file.next, at);
            let earliest = self.open.iter().enumerate().map(key).min();
            let has_room = self.open.len() < MAX_OPEN;
            let next = self.waiting.first().filter(|_| has_room && (self.by_time || earliest.is_none()));
            let begins = next.map(|next| (next.first.unwrap_or(0), usize::MAX));
            match (earliest, begins) {
                (None, None) => return Err(Turn::Over),
                (Some((time, at)), _) if begins.is_none_or(|(first, _)| first > time) => {
                    let others = self.open.iter().enumerate().filter(|(other, _)| *other != at).map(key);
                    self.current = Some(Current { at, until: others.chain(begins).min() });
                    batch.file.clone_from(&self.open[at].file);
                    return Ok(());
                }
                _ => self.begin()?,
            }
        }
    }

    /// Opens the file that waits first.
    fn begin(&mut self) -> Result<(), Turn> {
        let Some((next, rest)) = self.waiting.split_first() else { return Ok(()) };
        self.waiting = rest;
        let name = name(&next.path);
        match open(&next.path, self.follow).with_context(|| name.clone()) {
            Ok(source) => {
                self.add(source, name);
                Ok(())
            }
            Err(error) => {
                let (end, remark) = (Err(error), None);
                Err(Turn::Ended(Ended { name, packets: 0, end, is_stopped: false, remark }))
            }
        }
    }

    fn close(&mut self, at: usize, end: io::Result<Step>) -> Ended {
        let OpenFile { source, name, packets, backwards, .. } = self.open.remove(at);
        self.current = None;
        self.bytes += source.offset();
        self.file_bytes += source.file_offset();
        let is_stopped = source.stop.load(Ordering::Relaxed);
        let remark = backwards.map(|Backwards { count, packet, offset }| {
            format!(
                "{} earlier than one before, the first is packet {packet} at byte {offset}; the file keeps its order",
                if count == 1 { "1 packet is".into() } else { format!("{} packets are", thousands(count)) }
            )
        });
        self.clock = source.clock();
        let end = end.with_context(|| format!("{name}: {packets} packets before this were read"));
        Ended { name, packets, end, is_stopped, remark }
    }
}

impl OpenFile {
    /// Sees when the next packet was; `read` have been read of all files.
    fn look_ahead(&mut self, read: u64) {
        self.latest = self.latest.max(self.next);
        let Some(next) = self.source.next_time() else {
            // Whatever comes is told at once.
            self.next = 0;
            return;
        };
        if next < self.latest {
            let first = Backwards { count: 0, packet: read + 1, offset: self.source.offset() };
            self.backwards.get_or_insert(first).count += 1;
        }
        self.next = next;
    }
}

/// As many files are open at the same time: each takes half a megabyte, and a packed one what it asks for.
const MAX_OPEN: usize = 64;
