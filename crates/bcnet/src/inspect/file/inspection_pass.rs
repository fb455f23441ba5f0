//! Reads all inputs, passes the datagrams to a sink, and reports problems of the files.

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
use crate::standard_output;

/// Reads all inputs as one capture and passes everything to `sink`.
pub(super) fn inspect(args: &Args, inputs: &Inputs, sink: impl Sink) -> anyhow::Result<CommandStatus> {
    let mut pass = InspectionPass::new(args, inputs, sink);
    pass.read_all()?;
    pass.finish()
}

/// Shows the traffic of an interface until the user stops the program.
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
                && standard_output::is_closed(error)
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
    /// Problems of the files, for people.
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

    /// Analyses all packets.
    fn read_all(&mut self) -> anyhow::Result<()> {
        // Followed files are shown as they grow, one packet at a time. Other files are deciphered in batches.
        let max = if self.args.flushes_each_datagram() { 1 } else { BATCH_SIZE };
        loop {
            match self.merge.read(&mut self.batch, &mut self.counts) {
                Ok(MergeStep::More) => {}
                Ok(MergeStep::FileEnded(ended)) => self.on_file_end(ended)?,
                Ok(MergeStep::AllEnded) => break,
                // No data at the moment.
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

    /// Analyses the packets that were read.
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

    /// Handles the end of a file.
    fn on_file_end(
        &mut self,
        EndedFile { name, packets, end, is_stopped, order_warning }: EndedFile,
    ) -> anyhow::Result<()> {
        if let Some(order_warning) = order_warning {
            eprintln!("bcnet: {name}: {order_warning}");
        }
        match end {
            // A followed file often ends within a packet when the user stops the program, so this is not damage.
            Ok(ReadStep::Damaged(damage)) if !is_stopped => {
                self.problems.push(format!("{name}: {damage}; {packets} packets before it were read"));
            }
            Ok(_) => {}
            // The other files can still be read.
            Err(error) if self.inputs.is_merged() => self.problems.push(format!("{error:#}")),
            Err(error) if packets == 0 => return Err(error),
            // The packets before the error are shown first.
            Err(error) => {
                self.analyze_batch()?;
                self.report_end()?;
                return Err(error);
            }
        }
        Ok(())
    }

    /// Passes the end of the capture to the sink.
    fn report_end(&mut self) -> io::Result<()> {
        let name = &self.inputs.name;
        let (bytes, _) = self.merge.offsets();
        let left_out = self.analysis.finish(name, &self.merge.files, &self.counts, bytes)?;
        if !self.args.file.summary {
            left_out.iter().for_each(|text| eprintln!("bcnet: {name}: {text}"));
        }
        Ok(())
    }

    /// Ends the pass and prints all problems.
    fn finish(mut self) -> anyhow::Result<CommandStatus> {
        self.report_end()?;
        let name = &self.inputs.name;
        let mut verdict = report_problems(self.args, name, &self.analysis, &self.counts.skipped);
        // If nothing could be read, the problems below say so.
        if self.analysis.datagrams == 0 && (self.counts.packets > 0 || self.problems.is_empty()) {
            eprintln!("bcnet: {name}: contains no datagrams of the game");
        }
        let all = self.merge.order_problem().map(|trouble| format!("{name}: {trouble}"));
        for trouble in self.problems.into_iter().chain(all) {
            eprintln!("bcnet: {trouble}");
            verdict = CommandStatus::Findings;
        }
        Ok(verdict)
    }
}

/// Prints what could not be read or decoded.
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
        eprintln!("bcnet: {name}: skipped: {skipped}");
    }
    if report_unreadable(name, run.datagrams, skipped) {
        verdict = CommandStatus::Findings;
    }
    verdict
}

/// Warns if more than one in [`UNREADABLE_RATIO`] packets could not be read. Returns whether it did.
///
/// `read` is the number of datagrams that could be read.
pub(super) fn report_unreadable(name: &str, read: u64, skipped: &SkippedPackets) -> bool {
    let unread = skipped.unreadable();
    if unread == 0 || read > 0 && unread * UNREADABLE_RATIO <= unread + read {
        return false;
    }
    let (read, unread) = (group_digits(read), group_digits(unread));
    eprintln!(
        "bcnet: {name}: {unread} packets could not be read, only {read} datagrams; the results are incomplete"
    );
    true
}

/// Opens a file and detects its format.
pub(super) fn open_source(path: &Path, follow: bool) -> anyhow::Result<PacketSource> {
    if is_stdin(path) {
        return if follow {
            follow_pipe(io::stdin())
        } else {
            PacketSource::open(Box::new(io::stdin().lock()))
        };
    }
    // Windows refuses to open a directory, with an error that does not name the cause.
    ensure!(!path.is_dir(), "is a directory; name a file, or read all its captures with --merge");
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

/// Reads a pipe until it ends or the user stops the program.
fn follow_pipe(input: impl Read + Send + 'static) -> anyhow::Result<PacketSource> {
    let stop = follow::stop_on_signals()?;
    let mut source = PacketSource::open(Box::new(follow::FollowedPipe::start(input, Arc::clone(&stop))?))?;
    source.stop = stop;
    Ok(source)
}

/// The number of datagrams that are deciphered together.
pub(super) const BATCH_SIZE: usize = 256;
/// If more than one in this many packets could not be read, the exit code says so.
const UNREADABLE_RATIO: u64 = 10;
