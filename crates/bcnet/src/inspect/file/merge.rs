//! Reads several files as one, in the order of time.
//!
//! Captures that overlap in time, such as those of two interfaces, are read side by side. The earliest of their next
//! packets comes first, and each file keeps its own order. Only files that overlap are open at the same time, so a
//! thousand rotated files need no more memory than two. Files without dates are read one after the other, in the order
//! of the command line. A single file is read in the same way.

use std::io;
use std::sync::atomic::Ordering;

use anyhow::Context;

use super::MergedFile;
use super::inputs::{InputFile, Inputs};
use super::inspection_pass::open_source;
use super::packet_log::TimeOfDayClock;
use super::source::{PacketBatch, PacketSource, ReadCounters, ReadStep, SourceFile};
use crate::inspect::input_name;
use crate::number_format::group_digits;

pub(super) struct MergedReader<'a> {
    unopened: &'a [InputFile],
    is_merged: bool,
    /// True if the files are read in the order of time.
    by_time: bool,
    follow: bool,
    /// True if the input is a live capture, which may be idle for a while.
    is_live: bool,
    /// In the order in which they were opened.
    open: Vec<OpenFile>,
    current: Option<CurrentFile>,
    /// The clock of the last packet log that ended. The next log continues it.
    clock: Option<TimeOfDayClock>,
    /// All files that were opened, if there are several.
    pub(super) files: Vec<MergedFile>,
    /// The time of the latest packet, and the number of files that begin earlier but were opened after it.
    latest_time: u64,
    late_files: usize,
    /// The decompressed bytes of the files that have ended, and their bytes on disk.
    bytes: u64,
    file_bytes: u64,
}

/// A file that is open.
struct OpenFile {
    source: PacketSource,
    name: String,
    file: Option<SourceFile>,
    packets: u64,
    /// The time of the next packet, if files are read in the order of time, and the latest time before it.
    next_time: u64,
    latest_time: u64,
    backward_packets: Option<BackwardPackets>,
}

/// Packets that are earlier than a packet before them.
#[derive(Debug, Clone, Copy)]
struct BackwardPackets {
    count: u64,
    /// The position of the first one.
    first_packet: u64,
    first_offset: u64,
}

/// The open file that the next packets come from.
///
/// It is read until the time `until`; at equal times the file with the lower index comes first.
#[derive(Debug, Clone, Copy)]
struct CurrentFile {
    index: usize,
    until: Option<(u64, usize)>,
}

/// The result of reading.
pub(super) enum MergeStep {
    /// There may be more.
    More,
    /// A file has ended.
    FileEnded(EndedFile),
    /// All files have ended.
    AllEnded,
}

/// The end of a file.
pub(super) struct EndedFile {
    pub(super) name: String,
    pub(super) packets: u64,
    /// The end or the damage of the file, or the error that stopped reading.
    pub(super) end: anyhow::Result<ReadStep>,
    /// True if the user stopped the program.
    pub(super) is_stopped: bool,
    /// A warning about the order of packets in the file.
    pub(super) order_warning: Option<String>,
}

impl<'a> MergedReader<'a> {
    pub(super) fn new(inputs: &'a Inputs, follow: bool, is_live: bool) -> Self {
        Self {
            unopened: &inputs.files,
            is_merged: inputs.is_merged(),
            by_time: inputs.is_merged() && inputs.files.iter().all(|file| file.first_micros.is_some()),
            follow,
            is_live,
            open: Vec::new(),
            current: None,
            clock: None,
            files: Vec::new(),
            latest_time: 0,
            late_files: 0,
            bytes: 0,
            file_bytes: 0,
        }
    }

    /// Adds a file that is already open.
    pub(super) fn add_source(&mut self, mut source: PacketSource, name: String) {
        if let Some(clock) = self.clock {
            source.continue_clock(clock);
        }
        let next = if self.by_time { source.next_time() } else { None };
        self.late_files += usize::from(next.is_some_and(|next| next < self.latest_time));
        let next = next.unwrap_or(0);
        let file = self.is_merged.then(|| {
            let number = u32::try_from(self.files.len()).unwrap_or(u32::MAX);
            let file = SourceFile { number, name: name.as_str().into() };
            self.files.push(MergedFile { name: file.name.clone(), first: 0, last: 0, packets: 0 });
            file
        });
        self.open.push(OpenFile {
            source,
            name,
            file,
            packets: 0,
            next_time: next,
            latest_time: 0,
            backward_packets: None,
        });
        self.current = None;
    }

    /// Reads the next packet of all files, and adds it to `batch` if it contains a datagram.
    ///
    /// # Errors
    ///
    /// Fails if a live capture is idle.
    pub(super) fn read(
        &mut self,
        batch: &mut PacketBatch,
        counts: &mut ReadCounters,
    ) -> io::Result<MergeStep> {
        if self.current.is_none()
            && let Err(turn) = self.choose_file(batch)
        {
            return Ok(turn);
        }
        let Some(CurrentFile { index: at, until }) = self.current else { return Ok(MergeStep::AllEnded) };
        let Some(file) = self.open.get_mut(at) else { return Ok(MergeStep::AllEnded) };
        let before = counts.packets;
        let step = file.source.read(batch, counts);
        file.packets += counts.packets - before;
        if let Some(part) = file.file.as_ref().and_then(|file| self.files.get_mut(file.number as usize)) {
            part.add_packets(before, counts.packets);
        }
        match step {
            Ok(ReadStep::More) => {
                if self.by_time {
                    self.latest_time = self.latest_time.max(file.next_time);
                    file.peek_next_time(counts.packets);
                    if until.is_some_and(|until| (file.next_time, at) > until) {
                        self.current = None;
                    }
                }
                Ok(MergeStep::More)
            }
            Err(error) if self.is_live && error.kind() == io::ErrorKind::TimedOut => Err(error),
            end => Ok(MergeStep::FileEnded(self.close_file(at, end))),
        }
    }

    /// Returns the number of bytes that were read: decompressed, and on disk.
    pub(super) fn offsets(&self) -> (u64, u64) {
        let open = self.open.iter().map(|file| (file.source.offset(), file.source.file_offset()));
        open.fold((self.bytes, self.file_bytes), |sum, file| (sum.0 + file.0, sum.1 + file.1))
    }

    /// Returns a warning about the order of all files together.
    pub(super) fn order_problem(&self) -> Option<String> {
        (self.late_files > 0).then(|| {
            format!(
                "more than {MAX_OPEN_FILES} files overlap in time; {} were opened late, so some packets are out of order",
                self.late_files
            )
        })
    }

    /// Selects the file with the next packet, and opens files whose first packet is due.
    fn choose_file(&mut self, batch: &mut PacketBatch) -> Result<(), MergeStep> {
        loop {
            let key = |(at, file): (usize, &OpenFile)| (file.next_time, at);
            let earliest = self.open.iter().enumerate().map(key).min();
            let has_room = self.open.len() < MAX_OPEN_FILES;
            let next = self.unopened.first().filter(|_| has_room && (self.by_time || earliest.is_none()));
            let begins = next.map(|next| (next.first_micros.unwrap_or(0), usize::MAX));
            match (earliest, begins) {
                (None, None) => return Err(MergeStep::AllEnded),
                (Some((time, at)), _) if begins.is_none_or(|(first, _)| first > time) => {
                    let others = self.open.iter().enumerate().filter(|(other, _)| *other != at).map(key);
                    self.current = Some(CurrentFile { index: at, until: others.chain(begins).min() });
                    batch.file.clone_from(&self.open[at].file);
                    return Ok(());
                }
                _ => self.open_next()?,
            }
        }
    }

    /// Opens the next unopened file.
    fn open_next(&mut self) -> Result<(), MergeStep> {
        let Some((next, rest)) = self.unopened.split_first() else { return Ok(()) };
        self.unopened = rest;
        let name = input_name(&next.path);
        match open_source(&next.path, self.follow).with_context(|| name.clone()) {
            Ok(source) => {
                self.add_source(source, name);
                Ok(())
            }
            Err(error) => {
                let (end, order_warning) = (Err(error), None);
                Err(MergeStep::FileEnded(EndedFile {
                    name,
                    packets: 0,
                    end,
                    is_stopped: false,
                    order_warning,
                }))
            }
        }
    }

    fn close_file(&mut self, at: usize, end: io::Result<ReadStep>) -> EndedFile {
        let OpenFile { source, name, packets, backward_packets: backwards, .. } = self.open.remove(at);
        self.current = None;
        self.bytes += source.offset();
        self.file_bytes += source.file_offset();
        let is_stopped = source.stop.load(Ordering::Relaxed);
        let order_warning = backwards.map(|BackwardPackets { count, first_packet: packet, first_offset: offset }| {
            format!(
                "{} out of order, first packet {packet} at byte {offset}; the file is read in its own order",
                if count == 1 { "1 packet is".into() } else { format!("{} packets are", group_digits(count)) }
            )
        });
        self.clock = source.clock();
        let end = end.with_context(|| format!("{name}: {packets} packets were read before this error"));
        EndedFile { name, packets, end, is_stopped, order_warning }
    }
}

impl OpenFile {
    /// Updates the time of the next packet. `read` is the number of packets that were read from all files.
    fn peek_next_time(&mut self, read: u64) {
        self.latest_time = self.latest_time.max(self.next_time);
        let Some(next) = self.source.next_time() else {
            // Time 0 selects this file next, so that its end or its damage is reported.
            self.next_time = 0;
            return;
        };
        if next < self.latest_time {
            let first =
                BackwardPackets { count: 0, first_packet: read + 1, first_offset: self.source.offset() };
            self.backward_packets.get_or_insert(first).count += 1;
        }
        self.next_time = next;
    }
}

/// The most files that are open at the same time. Each takes half a megabyte; a compressed file takes what its format
/// asks for.
const MAX_OPEN_FILES: usize = 64;
