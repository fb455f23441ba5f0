//! From files to whoever is told: reads everything, shows it, and says what is wrong with it.

use std::fs::File;
use std::io::{self, Read};
use std::mem;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, ensure};
use bcnet_observe::MessageBuffer;

use super::inputs::Inputs;
use super::live_capture::{self, LiveCapture};
use super::merge::{EndedFile, MergeStep, MergedReader};
use super::progress::ReadProgress;
use super::sink::Sink;
use super::source::{PacketBatch, PacketSource, ReadCounters, ReadStep, SkippedPackets};
use super::{Analysis, follow};
use crate::CommandStatus;
use crate::inspect::{Args, is_stdin};
use crate::number_format::group_digits;

/// Reads all inputs as one, and tells `sink`.
pub(super) fn inspect(args: &Args, inputs: &Inputs, sink: impl Sink) -> anyhow::Result<CommandStatus> {
    let mut pass = InspectionPass::new(args, inputs, sink);
    pass.read_all()?;
    pass.finish()
}

/// Shows what passes an interface, until the user has seen enough.
pub(super) fn inspect_live(args: &Args, interface: &str, sink: impl Sink) -> anyhow::Result<CommandStatus> {
    let inputs = Inputs::live(interface);
    let mut pass = InspectionPass::new(args, &inputs, sink);
    let trouble = match LiveCapture::start(interface, None, args.write.as_deref()) {
        Err(error) => Some(format!("{error:#}")),
        Ok((live, source)) => {
            let read = source.and_then(|source| {
                pass.merge.add_source(source, interface.into());
                pass.read_all()
            });
            if let Err(error) = &read
                && crate::is_broken_pipe(error)
            {
                return read.map(|()| CommandStatus::Clean);
            }
            let is_stopped = live.is_stopped();
            let error = read.err().filter(|_| !is_stopped).map(|error| format!("{error:#}"));
            live.stop().or(error)
        }
    };
    if let Some(path) = &args.write {
        live_capture::truncate_file(path, pass.merge.offsets().0)
            .with_context(|| path.display().to_string())?;
    }
    pass.problems.extend(trouble.map(|trouble| format!("{interface}: {trouble}")));
    pass.finish()
}

/// One pass over all inputs.
struct InspectionPass<'a, S> {
    args: &'a Args,
    inputs: &'a Inputs,
    merge: MergedReader<'a>,
    analysis: Analysis<S>,
    batch: PacketBatch,
    messages: MessageBuffer<'static>,
    counts: ReadCounters,
    progress: ReadProgress,
    /// What is wrong with the files, for people.
    problems: Vec<String>,
}

impl<'a, S: Sink> InspectionPass<'a, S> {
    fn new(args: &'a Args, inputs: &'a Inputs, sink: S) -> Self {
        Self {
            args,
            inputs,
            merge: MergedReader::new(inputs, args.file.follow, args.interface.is_some()),
            analysis: Analysis::new(sink),
            batch: PacketBatch::default(),
            messages: MessageBuffer::default(),
            counts: ReadCounters::default(),
            progress: ReadProgress::new(inputs.size().filter(|_| !args.flushes_each_datagram())),
            problems: inputs.problems.clone(),
        }
    }

    /// Looks at all packets.
    fn read_all(&mut self) -> anyhow::Result<()> {
        // Followed files are shown as they grow; others are deciphered many at a time.
        let max = if self.args.flushes_each_datagram() { 1 } else { BATCH_SIZE };
        loop {
            match self.merge.read(&mut self.batch, &mut self.counts) {
                Ok(MergeStep::More) => {}
                Ok(MergeStep::FileEnded(ended)) => self.on_file_end(ended)?,
                Ok(MergeStep::AllEnded) => break,
                // Nothing comes just now.
                Err(_) => {
                    self.analyze_batch()?;
                    self.analysis.sink.on_idle(&self.analysis.observer)?;
                }
            }
            if self.batch.len() >= max {
                self.analyze_batch()?;
            }
        }
        self.analyze_batch()?;
        self.progress.clear();
        Ok(())
    }

    /// Looks at what was read.
    fn analyze_batch(&mut self) -> io::Result<()> {
        self.batch.decrypt();
        let mut buffer = mem::take(&mut self.messages).reuse();
        for (packet, bytes) in self.batch.iter() {
            self.analysis.analyze(packet, bytes, &buffer.read(bytes, None), &mut self.counts.skipped)?;
        }
        self.messages = buffer.reuse();
        self.batch.clear();
        let (bytes, file_bytes) = self.merge.offsets();
        self.progress.show(bytes, file_bytes);
        Ok(())
    }

    /// Notes how a file has ended.
    fn on_file_end(
        &mut self,
        EndedFile { name, packets, end, is_stopped, order_warning: remark }: EndedFile,
    ) -> anyhow::Result<()> {
        if let Some(remark) = remark {
            eprintln!("bcnet: {name}: {remark}");
        }
        match end {
            // Who writes a file that is followed is rarely between two packets.
            Ok(ReadStep::Damaged(damage)) if !is_stopped => {
                self.problems.push(format!("{name}: {damage}; {packets} packets before it were read"));
            }
            Ok(_) => {}
            // The others can still be read.
            Err(error) if self.inputs.is_merged() => self.problems.push(format!("{error:#}")),
            Err(error) if packets == 0 => return Err(error),
            // What was read before is shown first.
            Err(error) => {
                self.analyze_batch()?;
                self.report_end()?;
                return Err(error);
            }
        }
        Ok(())
    }

    /// Tells the end of everything.
    fn report_end(&mut self) -> io::Result<()> {
        let name = &self.inputs.name;
        let (bytes, _) = self.merge.offsets();
        let left_out = self.analysis.finish(name, &self.merge.files, &self.counts, bytes)?;
        if !self.args.file.summary {
            left_out.iter().for_each(|text| eprintln!("bcnet: {name}: {text}"));
        }
        Ok(())
    }

    /// Tells the end, and what is wrong.
    fn finish(mut self) -> anyhow::Result<CommandStatus> {
        self.report_end()?;
        let name = &self.inputs.name;
        let mut verdict = report_problems(self.args, name, &self.analysis, &self.counts.skipped);
        // If nothing could be read, that is said below.
        if self.analysis.datagrams == 0 && (self.counts.packets > 0 || self.problems.is_empty()) {
            eprintln!("bcnet: {name}: no datagrams of the game in it");
        }
        let all = self.merge.order_problem().map(|trouble| format!("{name}: {trouble}"));
        for trouble in self.problems.into_iter().chain(all) {
            eprintln!("bcnet: {trouble}");
            verdict = CommandStatus::Findings;
        }
        Ok(verdict)
    }
}

/// Says what could not be read or decoded.
fn report_problems(
    args: &Args,
    name: &str,
    run: &Analysis<impl Sink>,
    skipped: &SkippedPackets,
) -> CommandStatus {
    let as_said = run.malformed == 0 && !run.sink.has_differences();
    let mut verdict = if as_said { CommandStatus::Clean } else { CommandStatus::Findings };
    if run.malformed > 0 {
        eprintln!("bcnet: {name}: {} datagrams could not be decoded", run.malformed);
    }
    if !skipped.is_empty() && !args.file.summary {
        eprintln!("bcnet: {name}: not looked at: {skipped}");
    }
    if report_unreadable(name, run.datagrams, skipped) {
        verdict = CommandStatus::Findings;
    }
    verdict
}

/// Says it if a noticeable share could not be read, beside so many datagrams that could. Whether that is so.
pub(super) fn report_unreadable(name: &str, read: u64, skipped: &SkippedPackets) -> bool {
    let unread = skipped.unreadable();
    if unread == 0 || read > 0 && unread * UNREADABLE_RATIO <= unread + read {
        return false;
    }
    let (read, unread) = (group_digits(read), group_digits(unread));
    eprintln!(
        "bcnet: {name}: {unread} packets could not be read, and {read} datagrams could: what is told is of a part"
    );
    true
}

/// Opens a file and sees what it is.
pub(super) fn open_source(path: &Path, follow: bool) -> anyhow::Result<PacketSource> {
    if is_stdin(path) {
        return if follow {
            follow_pipe(io::stdin())
        } else {
            PacketSource::open(Box::new(io::stdin().lock()))
        };
    }
    // Windows does not open one.
    ensure!(!path.is_dir(), "is a directory; name a file, or read it as one capture with --merge");
    let file = File::open(path)?;
    let metadata = file.metadata()?;
    if !follow {
        return PacketSource::open(Box::new(file));
    }
    if !metadata.is_file() {
        return follow_pipe(file);
    }
    let stop = follow::stop_on_signals()?;
    let mut source = PacketSource::open(Box::new(follow::GrowingFile { file, stop: Arc::clone(&stop) }))?;
    source.stop = stop;
    Ok(source)
}

/// Reads a pipe until the user stops it; its end is the end.
fn follow_pipe(input: impl Read + Send + 'static) -> anyhow::Result<PacketSource> {
    let stop = follow::stop_on_signals()?;
    let mut source = PacketSource::open(Box::new(follow::FollowedPipe::start(input, Arc::clone(&stop))?))?;
    source.stop = stop;
    Ok(source)
}

/// As many datagrams as are deciphered together.
pub(super) const BATCH_SIZE: usize = 256;
/// If more than one in so many packets could not be read, the exit code says so.
const UNREADABLE_RATIO: u64 = 10;
