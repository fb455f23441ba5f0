//! From files to whoever is told: reads everything, shows it, and says what is wrong with it.

use std::fs::File;
use std::io::{self, Read};
use std::mem;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, ensure};
use bcnet_observe::MessageBuffer;

use super::inputs::Inputs;
use super::live::{self, Live};
use super::merge::{Ended, Merge, Turn};
use super::progress::Progress;
use super::sink::Sink;
use super::source::{Batch, Counts, Skipped, Source, Step};
use super::{Run, follow};
use crate::Verdict;
use crate::inspect::{Args, is_stdin};
use crate::number::thousands;

/// Reads all inputs as one, and tells `sink`.
pub(super) fn inspect(args: &Args, inputs: &Inputs, sink: impl Sink) -> anyhow::Result<Verdict> {
    let mut pass = Pass::new(args, inputs, sink);
    pass.read()?;
    pass.finish()
}

/// Shows what passes an interface, until the user has seen enough.
pub(super) fn inspect_live(args: &Args, interface: &str, sink: impl Sink) -> anyhow::Result<Verdict> {
    let inputs = Inputs::live(interface);
    let mut pass = Pass::new(args, &inputs, sink);
    let trouble = match Live::start(interface, None, args.write.as_deref()) {
        Err(error) => Some(format!("{error:#}")),
        Ok((live, source)) => {
            let read = source.and_then(|source| {
                pass.merge.add(source, interface.into());
                pass.read()
            });
            if let Err(error) = &read
                && crate::is_broken_pipe(error)
            {
                return read.map(|()| Verdict::Clean);
            }
            let is_stopped = live.is_stopped();
            let error = read.err().filter(|_| !is_stopped).map(|error| format!("{error:#}"));
            live.end().or(error)
        }
    };
    if let Some(path) = &args.write {
        live::cut(path, pass.merge.offsets().0).with_context(|| path.display().to_string())?;
    }
    pass.troubles.extend(trouble.map(|trouble| format!("{interface}: {trouble}")));
    pass.finish()
}

/// One pass over all inputs.
struct Pass<'a, S> {
    args: &'a Args,
    inputs: &'a Inputs,
    merge: Merge<'a>,
    run: Run<S>,
    batch: Batch,
    messages: MessageBuffer<'static>,
    counts: Counts,
    progress: Progress,
    /// What is wrong with the files, for people.
    troubles: Vec<String>,
}

impl<'a, S: Sink> Pass<'a, S> {
    fn new(args: &'a Args, inputs: &'a Inputs, sink: S) -> Self {
        Self {
            args,
            inputs,
            merge: Merge::new(inputs, args.file.follow, args.interface.is_some()),
            run: Run::new(sink),
            batch: Batch::default(),
            messages: MessageBuffer::default(),
            counts: Counts::default(),
            progress: Progress::new(inputs.size().filter(|_| !args.is_at_once())),
            troubles: inputs.troubles.clone(),
        }
    }

    /// Looks at all packets.
    fn read(&mut self) -> anyhow::Result<()> {
        // Followed files are shown as they grow; others are deciphered many at a time.
        let max = if self.args.is_at_once() { 1 } else { BATCH };
        loop {
            match self.merge.read(&mut self.batch, &mut self.counts) {
                Ok(Turn::More) => {}
                Ok(Turn::Ended(ended)) => self.note_end(ended)?,
                Ok(Turn::Over) => break,
                // Nothing comes just now.
                Err(_) => {
                    self.look()?;
                    self.run.sink.idle(&self.run.observer)?;
                }
            }
            if self.batch.len() >= max {
                self.look()?;
            }
        }
        self.look()?;
        self.progress.clear();
        Ok(())
    }

    /// Looks at what was read.
    fn look(&mut self) -> io::Result<()> {
        self.batch.decipher();
        let mut buffer = mem::take(&mut self.messages).reuse();
        for (packet, bytes) in self.batch.iter() {
            self.run.look(packet, bytes, &buffer.read(bytes, None), &mut self.counts.skipped)?;
        }
        self.messages = buffer.reuse();
        self.batch.clear();
        let (bytes, file_bytes) = self.merge.offsets();
        self.progress.show(bytes, file_bytes);
        Ok(())
    }

    /// Notes how a file has ended.
    fn note_end(&mut self, Ended { name, packets, end, is_stopped, remark }: Ended) -> anyhow::Result<()> {
        if let Some(remark) = remark {
            eprintln!("bcnet: {name}: {remark}");
        }
        match end {
            // Who writes a file that is followed is rarely between two packets.
            Ok(Step::Damaged(damage)) if !is_stopped => {
                self.troubles.push(format!("{name}: {damage}; {packets} packets before it were read"));
            }
            Ok(_) => {}
            // The others can still be read.
            Err(error) if self.inputs.are_several() => self.troubles.push(format!("{error:#}")),
            Err(error) if packets == 0 => return Err(error),
            // What was read before is shown first.
            Err(error) => {
                self.look()?;
                self.tell_end()?;
                return Err(error);
            }
        }
        Ok(())
    }

    /// Tells the end of everything.
    fn tell_end(&mut self) -> io::Result<()> {
        let name = &self.inputs.name;
        let (bytes, _) = self.merge.offsets();
        let left_out = self.run.finish(name, &self.merge.files, &self.counts, bytes)?;
        if !self.args.file.summary {
            left_out.iter().for_each(|text| eprintln!("bcnet: {name}: {text}"));
        }
        Ok(())
    }

    /// Tells the end, and what is wrong.
    fn finish(mut self) -> anyhow::Result<Verdict> {
        self.tell_end()?;
        let name = &self.inputs.name;
        let mut verdict = judge(self.args, name, &self.run, &self.counts.skipped);
        // If nothing could be read, that is said below.
        if self.run.datagrams == 0 && (self.counts.packets > 0 || self.troubles.is_empty()) {
            eprintln!("bcnet: {name}: no datagrams of the game in it");
        }
        let all = self.merge.trouble().map(|trouble| format!("{name}: {trouble}"));
        for trouble in self.troubles.into_iter().chain(all) {
            eprintln!("bcnet: {trouble}");
            verdict = Verdict::Findings;
        }
        Ok(verdict)
    }
}

/// Says what could not be read or decoded.
fn judge(args: &Args, name: &str, run: &Run<impl Sink>, skipped: &Skipped) -> Verdict {
    let as_said = run.malformed == 0 && !run.sink.differs();
    let mut verdict = if as_said { Verdict::Clean } else { Verdict::Findings };
    if run.malformed > 0 {
        eprintln!("bcnet: {name}: {} datagrams could not be decoded", run.malformed);
    }
    if !skipped.is_empty() && !args.file.summary {
        eprintln!("bcnet: {name}: not looked at: {skipped}");
    }
    if misses_much(name, run.datagrams, skipped) {
        verdict = Verdict::Findings;
    }
    verdict
}

/// Says it if a noticeable share could not be read, beside so many datagrams that could. Whether that is so.
pub(super) fn misses_much(name: &str, read: u64, skipped: &Skipped) -> bool {
    let unread = skipped.unread();
    if unread == 0 || read > 0 && unread * NOTICEABLE <= unread + read {
        return false;
    }
    let (read, unread) = (thousands(read), thousands(unread));
    eprintln!(
        "bcnet: {name}: {unread} packets could not be read, and {read} datagrams could: what is told is of a part"
    );
    true
}

/// Opens a file and sees what it is.
pub(super) fn open(path: &Path, follow: bool) -> anyhow::Result<Source> {
    if is_stdin(path) {
        return if follow { follow_pipe(io::stdin()) } else { Source::of(Box::new(io::stdin().lock())) };
    }
    // Windows does not open one.
    ensure!(!path.is_dir(), "is a directory; name a file, or read it as one capture with --merge");
    let file = File::open(path)?;
    let metadata = file.metadata()?;
    if !follow {
        return Source::of(Box::new(file));
    }
    if !metadata.is_file() {
        return follow_pipe(file);
    }
    let stop = follow::stop_on_signals()?;
    let mut source = Source::of(Box::new(follow::Growing { file, stop: Arc::clone(&stop) }))?;
    source.stop = stop;
    Ok(source)
}

/// Reads a pipe until the user stops it; its end is the end.
fn follow_pipe(input: impl Read + Send + 'static) -> anyhow::Result<Source> {
    let stop = follow::stop_on_signals()?;
    let mut source = Source::of(Box::new(follow::Pipe::start(input, Arc::clone(&stop))?))?;
    source.stop = stop;
    Ok(source)
}

/// As many datagrams as are deciphered together.
pub(super) const BATCH: usize = 256;
/// If more than one in so many packets could not be read, the exit code says so.
const NOTICEABLE: u64 = 10;
