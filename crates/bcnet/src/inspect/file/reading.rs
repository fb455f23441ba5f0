//! From files to whoever is told: reads one after the other, shows everything, and says what is wrong with them.

use std::fs::File;
use std::io::{self, Read};
use std::mem;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use anyhow::{Context, ensure};
use bcnet_observe::MessageBuffer;

use super::inputs::Inputs;
use super::live::{self, Live};
use super::progress::Progress;
use super::sink::Sink;
use super::source::{Batch, Skipped, Source, Step};
use super::{FilePart, Run, follow};
use crate::Verdict;
use crate::inspect::{Args, is_stdin, name};
use crate::number::thousands;

/// Reads all inputs as one, and tells `sink`.
pub(super) fn inspect(args: &Args, inputs: &Inputs, sink: impl Sink) -> anyhow::Result<Verdict> {
    let mut pass = Pass::new(args, inputs, sink);
    for path in &inputs.files {
        let done = open(path, args.file.follow)
            .with_context(|| name(path))
            .and_then(|source| pass.read(source, path));
        match done {
            // The others can still be read.
            Err(error) if inputs.are_several() && !crate::is_broken_pipe(&error) => {
                pass.troubles.push(format!("{error:#}"));
            }
            done => done?,
        }
    }
    pass.finish()
}

/// Shows what passes an interface, until the user has seen enough.
pub(super) fn inspect_live(args: &Args, interface: &str, sink: impl Sink) -> anyhow::Result<Verdict> {
    let inputs = Inputs::one(Path::new(interface));
    let mut pass = Pass::new(args, &inputs, sink);
    let trouble = match Live::start(interface, None, args.write.as_deref()) {
        Err(error) => Some(format!("{error:#}")),
        Ok((live, source)) => {
            let read = source.and_then(|source| pass.read(source, Path::new(interface)));
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
        live::cut(path, pass.bytes).with_context(|| path.display().to_string())?;
    }
    pass.troubles.extend(trouble.map(|trouble| format!("{interface}: {trouble}")));
    pass.finish()
}

/// One pass over all inputs.
struct Pass<'a, S> {
    args: &'a Args,
    inputs: &'a Inputs,
    run: Run<S>,
    batch: Batch,
    messages: MessageBuffer<'static>,
    /// The file before, which has the counts of all.
    before: Option<Source>,
    files: Vec<FilePart>,
    bytes: u64,
    /// What is wrong with the files, for people.
    troubles: Vec<String>,
}

impl<'a, S: Sink> Pass<'a, S> {
    fn new(args: &'a Args, inputs: &'a Inputs, sink: S) -> Self {
        Self {
            args,
            inputs,
            run: Run::new(sink),
            batch: Batch::default(),
            messages: MessageBuffer::default(),
            before: None,
            files: Vec::new(),
            bytes: 0,
            troubles: inputs.troubles.clone(),
        }
    }

    /// Reads a file to its end.
    fn read(&mut self, mut source: Source, path: &Path) -> anyhow::Result<()> {
        let (name, file) = (name(path), self.inputs.file_name(path));
        self.batch.file = file.clone();
        if let Some(before) = self.before.take() {
            source.go_on_after(before);
        }
        let first = source.packets + 1;
        if let Some(file) = file {
            self.files.push(FilePart { name: file, first });
        }
        let (end, failure) = self.read_packets(&mut source)?;
        self.bytes += source.offset();
        let packets = source.packets + 1 - first;
        // Who writes a file that is followed is rarely between two packets.
        if let Step::Damaged(damage) = end
            && !source.stop.load(Ordering::Relaxed)
        {
            self.troubles.push(format!("{name}: {damage}; {packets} packets before it were read"));
        }
        self.before = Some(source);
        let Some(failure) = failure else { return Ok(()) };
        if !self.inputs.are_several() {
            self.tell_end()?;
        }
        Err(failure).with_context(|| format!("{name}: {packets} packets before this were read"))
    }

    /// Looks at all packets of a file. Returns how it ended, and what kept it from being read.
    fn read_packets(&mut self, source: &mut Source) -> anyhow::Result<(Step, Option<io::Error>)> {
        // Followed files are shown as they grow; others are deciphered many at a time.
        let is_live = self.args.interface.is_some();
        let max = if self.args.is_at_once() { 1 } else { BATCH };
        let mut progress = Progress::new(source.size);
        let mut failure = None;
        let end = loop {
            self.batch.clear();
            let step = loop {
                match source.read(&mut self.batch) {
                    Ok(Step::More) if self.batch.len() < max => {}
                    Ok(step) => break step,
                    Err(error) if is_live && error.kind() == io::ErrorKind::TimedOut => {
                        self.run.sink.idle(&self.run.observer)?;
                        break Step::More;
                    }
                    // What was read before is shown first.
                    Err(error) => {
                        failure = Some(error);
                        break Step::End;
                    }
                }
            };
            self.batch.decipher();
            let mut buffer = mem::take(&mut self.messages).reuse();
            for (packet, bytes) in self.batch.iter() {
                self.run.look(packet, bytes, &buffer.read(bytes, None), &mut source.skipped)?;
            }
            self.messages = buffer.reuse();
            progress.show(source.offset(), source.file_offset());
            if step != Step::More {
                break step;
            }
        };
        progress.clear();
        Ok((end, failure))
    }

    /// Tells the end of everything.
    fn tell_end(&mut self) -> io::Result<()> {
        let nothing = Skipped::default();
        let (skipped, packets) =
            self.before.as_ref().map_or((&nothing, 0), |source| (&source.skipped, source.packets));
        let name = &self.inputs.name;
        let left_out = self.run.finish(name, &self.files, skipped, packets, self.bytes)?;
        if !self.args.file.summary {
            left_out.iter().for_each(|text| eprintln!("bcnet: {name}: {text}"));
        }
        Ok(())
    }

    /// Tells the end, and what is wrong.
    fn finish(mut self) -> anyhow::Result<Verdict> {
        self.tell_end()?;
        let skipped = self.before.map(|source| source.skipped).unwrap_or_default();
        let mut verdict = judge(self.args, &self.inputs.name, &self.run, &skipped);
        for trouble in self.troubles {
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
    if run.datagrams == 0 {
        eprintln!("bcnet: {name}: no datagrams of the game in it");
    }
    if !skipped.is_empty() && !args.file.summary {
        eprintln!("bcnet: {name}: not looked at: {skipped}");
    }
    let unread = skipped.unread();
    if unread > 0 && (run.datagrams == 0 || unread * NOTICEABLE > unread + run.datagrams) {
        let read = thousands(run.datagrams);
        let unread = thousands(unread);
        eprintln!(
            "bcnet: {name}: {unread} packets could not be read, and {read} datagrams could: what is told is of a part"
        );
        verdict = Verdict::Findings;
    }
    verdict
}

/// Opens a file and sees what it is.
pub(super) fn open(path: &Path, follow: bool) -> anyhow::Result<Source> {
    if is_stdin(path) {
        return if follow {
            follow_pipe(io::stdin())
        } else {
            Source::of(Box::new(io::stdin().lock()), None)
        };
    }
    // Windows does not open one.
    ensure!(!path.is_dir(), "is a directory; name a file, or read it as one capture with --merge");
    let file = File::open(path)?;
    let metadata = file.metadata()?;
    if !follow {
        return Source::of(Box::new(file), metadata.is_file().then_some(metadata.len()));
    }
    if !metadata.is_file() {
        return follow_pipe(file);
    }
    let stop = follow::stop_on_signals()?;
    let mut source = Source::of(Box::new(follow::Growing { file, stop: Arc::clone(&stop) }), None)?;
    source.stop = stop;
    Ok(source)
}

/// Reads a pipe until the user stops it; its end is the end.
fn follow_pipe(input: impl Read + Send + 'static) -> anyhow::Result<Source> {
    let stop = follow::stop_on_signals()?;
    let mut source = Source::of(Box::new(follow::Pipe::start(input, Arc::clone(&stop))?), None)?;
    source.stop = stop;
    Ok(source)
}

/// As many datagrams as are deciphered together.
pub(super) const BATCH: usize = 256;
/// If more than one in so many packets could not be read, the exit code says so.
const NOTICEABLE: u64 = 10;
