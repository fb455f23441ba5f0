//! Captures and packet logs: every message, and what goes wrong between the two sides.
//!
//! [`source`] gives datagrams, an [`Observer`] follows the conversations, and what both tell goes to a [`Sink`]: lines
//! for a person, JSON, tables, a summary, a report. Everything is done in one pass and with bounded memory.

mod each;
mod filter;
mod follow;
mod frame;
mod hold;
#[cfg(test)]
mod hostile;
mod join;
mod lines;
mod lives;
mod log;
#[cfg(feature = "parquet")]
mod parquet;
mod pcap;
mod plot;
mod progress;
mod report;
mod series;
mod sink;
mod source;
mod stories;
mod summary;
mod table;
mod tally;
mod view;

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, BufWriter, Read, Write};
use std::mem;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use anyhow::{Context, ensure};
use bcnet_observe::{Content, ConversationId, Finding, Limits, MessageBuffer, NO_MARK, Observed, Observer};
use bcnet_transport::Time;
use bcnet_transport::wire::{PeerId, Role};

use super::{Args as InspectArgs, is_stdin, name};
use crate::Verdict;
use crate::number::thousands;
pub(crate) use each::each_datagram;
use filter::Filter;
use hold::HoldBack;
pub(super) use lines::Color;
use lines::Style;
use progress::Progress;
use sink::Sink;
pub(super) use source::Packet;
use source::{Batch, Skipped, Source, Step, is_gamespy};
use stories::StoryOptions;

#[derive(clap::Args)]
pub(super) struct Options {
    /// Tell what is in the capture: conversations, traffic, faults by their weight
    #[arg(long, conflicts_with_all = ["json", "story"])]
    summary: bool,

    /// Print one row per message, with commas
    #[arg(long, conflicts_with_all = ["json", "summary", "story"])]
    csv: bool,

    /// Write one row per message to a Parquet file; needs a program that was built with the feature `parquet`
    #[arg(long, value_name = "OUT.parquet", conflicts_with_all = ["json", "summary", "csv", "story"])]
    parquet: Option<PathBuf>,

    /// Write a page with plots that explains what was found, for a browser
    #[arg(long, value_name = "OUT.html", conflicts_with = "story")]
    report: Option<PathBuf>,

    /// Wait for more at the end of the file, as it is written, until SIGINT or SIGTERM
    #[arg(long, conflicts_with = "story")]
    follow: bool,

    #[command(flatten)]
    filter: Filter,

    #[command(flatten)]
    story: StoryOptions,
}

impl Options {
    /// Returns the first option that says nothing about two captures, if there is one.
    fn for_one_capture(&self) -> Option<&'static str> {
        let options = [
            (self.summary, "--summary"),
            (self.csv, "--csv"),
            (self.parquet.is_some(), "--parquet"),
            (self.report.is_some(), "--report"),
            (self.follow, "--follow"),
        ];
        options
            .into_iter()
            .find(|(given, _)| *given)
            .map(|(_, name)| name)
            .or_else(|| self.filter.first())
            .or_else(|| self.story.first())
    }
}

/// A datagram that was looked at, with all that is known of it.
struct Sight<'a> {
    packet: &'a Packet,
    what: Observed<'a>,
    /// Deciphered.
    bytes: &'a [u8],
    /// What was found in it.
    findings: &'a [Finding],
    observer: &'a Observer,
}

/// Where something can be seen in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Evidence {
    number: u64,
    offset: u64,
}

/// What is known when everything was read.
struct End<'a> {
    name: &'a str,
    observer: &'a Observer,
    skipped: &'a Skipped,
    packets: u64,
    bytes: u64,
    /// When the first datagram was, in microseconds.
    start: u64,
    /// Datagrams that waited for too long to be decided.
    undecided: u64,
}

impl End<'_> {
    /// Returns what there is to say of what is left out, or not certain.
    fn left_out(&self) -> Vec<String> {
        let counts = [
            (
                self.observer.rest().conversations,
                "conversations are counted in the totals only; the longest silent ones are not remembered when there are too many",
            ),
            (
                self.observer.lost_findings(),
                "findings more came at once than can be kept; they are not counted",
            ),
            (
                self.undecided,
                "datagrams waited for too long to be explained and are told as they looked then",
            ),
        ];
        let told = counts.into_iter().filter(|(count, _)| *count > 0);
        told.map(|(count, what)| format!("{} {what}", thousands(count))).collect()
    }
}

pub(super) fn run(args: &InspectArgs) -> anyhow::Result<Verdict> {
    let out = BufWriter::with_capacity(OUTPUT, io::stdout().lock());
    let path = match args.files.as_slice() {
        [a, b] => {
            ensure!(
                !is_stdin(a) || !is_stdin(b),
                "standard input can be read only once; name a file for one of the two"
            );
            if let Some(option) = args.file.for_one_capture().or_else(|| args.explain.then_some("--explain"))
            {
                anyhow::bail!("{option} is for one capture; two are joined, as text or with --json");
            }
            return join::run([a, b], args.json, out);
        }
        [path] => path,
        _ => anyhow::bail!("name a capture"),
    };
    inspect(args, path, sinks(args, path, out)?)
}

/// Everyone who is to be told.
fn sinks<'a>(
    args: &InspectArgs,
    path: &Path,
    out: impl Write + 'a,
) -> anyhow::Result<Vec<Box<dyn Sink + 'a>>> {
    let mut sinks: Vec<Box<dyn Sink + 'a>> = Vec::new();
    let filter = args.file.filter.clone();
    if args.file.story.first().is_some() {
        return Ok(args.file.story.sink(out, &filter, args.json)?.into_iter().collect());
    }
    if let Some(report) = &args.file.report {
        ensure!(report != path, "{}: is the input; name another file for --report", report.display());
        sinks.push(Box::new(report::Report::new(report.clone(), filter.clone())));
    }
    #[cfg(not(feature = "parquet"))]
    ensure!(
        args.file.parquet.is_none(),
        "--parquet: this program was built without it; build one with `cargo build --release --features parquet`"
    );
    #[cfg(feature = "parquet")]
    if let Some(path) = &args.file.parquet {
        let rows = parquet::Parquet::create(path).with_context(|| path.display().to_string())?;
        sinks.push(Box::new(HoldBack::new(table::Table::new(rows, filter, false), false)));
        return Ok(sinks);
    }
    if args.file.summary {
        sinks.push(Box::new(summary::Summary::new(out, filter)));
    } else if args.file.csv {
        let table = table::Table::new(table::Csv::new(out), filter, args.file.follow);
        sinks.push(Box::new(HoldBack::new(table, false)));
    } else if sinks.is_empty() || args.json {
        let form = if args.json { view::Form::Json } else { view::Form::Lines(Style::of(args.color)) };
        let view = view::View::new(out, form, filter, args.file.follow).explain(args.explain);
        sinks.push(Box::new(HoldBack::new(view, args.file.follow)));
    }
    Ok(sinks)
}

fn inspect(args: &InspectArgs, path: &Path, sink: impl Sink) -> anyhow::Result<Verdict> {
    let name = name(path);
    let mut source = open(path, args.file.follow).with_context(|| name.clone())?;
    let mut run = Run::new(sink);
    // Followed files are shown as they grow; others are deciphered many at a time.
    let max = if args.file.follow { 1 } else { BATCH };
    let (mut batch, mut messages) = (Batch::default(), MessageBuffer::default());
    let mut progress = Progress::new(source.size);
    let mut failure = None;
    let end = loop {
        batch.clear();
        let step = loop {
            match source.read(&mut batch) {
                Ok(Step::More) if batch.len() < max => {}
                Ok(step) => break step,
                // What was read before is shown first.
                Err(error) => {
                    failure = Some(error);
                    break Step::End;
                }
            }
        };
        batch.decipher();
        let mut buffer = mem::take(&mut messages).reuse();
        for (packet, bytes) in batch.iter() {
            run.look(packet, bytes, &buffer.read(bytes, None), &mut source.skipped)?;
        }
        messages = buffer.reuse();
        progress.show(source.offset());
        if step != Step::More {
            break step;
        }
    };
    progress.clear();
    let bytes = source.offset();
    let left_out = run.finish(&name, &source.skipped, source.packets, bytes)?;
    if !args.file.summary {
        left_out.iter().for_each(|text| eprintln!("bcnet: {name}: {text}"));
    }
    if let Some(error) = failure {
        return Err(error)
            .with_context(|| format!("{name}: {} packets before this were read", source.packets));
    }
    Ok(judge(args, &name, &run, &source, &end))
}

/// Says what is wrong with a capture that was read.
fn judge(args: &InspectArgs, name: &str, run: &Run<impl Sink>, source: &Source, end: &Step) -> Verdict {
    let as_said = run.malformed == 0 && !run.sink.differs();
    let mut verdict = if as_said { Verdict::Clean } else { Verdict::Findings };
    if run.malformed > 0 {
        eprintln!("bcnet: {name}: {} datagrams could not be decoded", run.malformed);
    }
    if run.datagrams == 0 {
        eprintln!("bcnet: {name}: no datagrams of the game in it");
    }
    if !source.skipped.is_empty() && !args.file.summary {
        eprintln!("bcnet: {name}: not looked at: {}", source.skipped);
    }
    let unread = source.skipped.unread();
    if unread > 0 && (run.datagrams == 0 || unread * NOTICEABLE > unread + run.datagrams) {
        let read = thousands(run.datagrams);
        let unread = thousands(unread);
        eprintln!(
            "bcnet: {name}: {unread} packets could not be read, and {read} datagrams could: what is told is of a part"
        );
        verdict = Verdict::Findings;
    }
    // Who writes a file that is followed is rarely between two packets.
    if let Step::Damaged(damage) = end
        && !source.stop.load(Ordering::Relaxed)
    {
        eprintln!("bcnet: {name}: {damage}; {} packets before it were read", source.packets);
        verdict = Verdict::Findings;
    }
    verdict
}

/// Opens a file and sees what it is.
fn open(path: &Path, follow: bool) -> anyhow::Result<Source> {
    if is_stdin(path) {
        return if follow {
            follow_pipe(io::stdin())
        } else {
            Source::of(Box::new(io::stdin().lock()), None)
        };
    }
    // Windows does not open one.
    ensure!(!path.is_dir(), "is a directory; name a capture or a packet log");
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

/// One pass over a capture.
struct Run<S> {
    observer: Observer,
    sink: S,
    /// Where the latest datagrams are, for findings that come later.
    places: VecDeque<Evidence>,
    findings: Vec<Finding>,
    start: Option<u64>,
    last: Time,
    datagrams: u64,
    malformed: u64,
    /// Datagrams that waited for too long to be decided.
    undecided: u64,
}

impl<S: Sink> Run<S> {
    fn new(sink: S) -> Self {
        let mut observer = Observer::new(Limits::default());
        if sink.follows_acks() {
            observer.follow_acks();
        }
        Self {
            observer,
            sink,
            places: VecDeque::with_capacity(PLACES),
            findings: Vec::new(),
            start: None,
            last: Time::ZERO,
            datagrams: 0,
            malformed: 0,
            undecided: 0,
        }
    }

    /// Looks at one datagram.
    fn look(
        &mut self,
        packet: &Packet,
        bytes: &[u8],
        content: &Content<'_>,
        skipped: &mut Skipped,
    ) -> io::Result<()> {
        let Packet { number, time, from, to, .. } = *packet;
        self.sink.before(time, &self.observer)?;
        if packet.cut {
            self.observer.miss(time, from, to);
            return Ok(());
        }
        let what = self.observer.observe(number, time, from, to, content);
        self.last = self.last.max(time);
        match what {
            Observed::Foreign(_) => {
                skipped.foreign += 1;
                return Ok(());
            }
            Observed::GameSpy(text) if !is_gamespy(text) => {
                skipped.foreign += 1;
                return Ok(());
            }
            Observed::Malformed(..) => self.malformed += 1,
            Observed::Datagram(..) | Observed::GameSpy(_) => {}
        }
        self.datagrams += 1;
        self.start.get_or_insert(time.as_micros());
        self.remember(Evidence { number: packet.number, offset: packet.offset });
        self.tell_earlier(packet.number)?;
        if let Observed::Datagram(_, conversation, _) = what {
            self.tell_handled(conversation)?;
        }
        self.sink.see(&Sight { packet, what, bytes, findings: &self.findings, observer: &self.observer })?;
        if let Some((id, mark)) = self.sink.overdue(time, &self.observer) {
            self.observer.decide(id, mark, time);
            self.undecided += 1;
            self.tell_earlier(NO_MARK - 1)?;
        }
        Ok(())
    }

    fn remember(&mut self, place: Evidence) {
        if self.places.len() >= PLACES {
            self.places.pop_front();
        }
        self.places.push_back(place);
    }

    /// Takes all findings: those about the datagram `number` are kept, the others are told.
    fn tell_earlier(&mut self, number: u64) -> io::Result<()> {
        self.findings.clear();
        while let Some(finding) = self.observer.poll_finding() {
            if finding.mark == number {
                self.findings.push(finding);
            } else {
                let place = self.place(finding.mark);
                self.sink.find(&finding, place, &self.observer)?;
            }
        }
        Ok(())
    }

    fn tell_handled(&mut self, conversation: ConversationId) -> io::Result<()> {
        while let Some(handled) = self.observer.poll_handled_ack(conversation) {
            self.sink.handled(&handled, &self.observer)?;
        }
        Ok(())
    }

    fn place(&self, mark: u64) -> Option<Evidence> {
        let found = self.places.binary_search_by_key(&mark, |place| place.number).ok();
        found.and_then(|at| self.places.get(at)).copied()
    }

    /// Tells the end. Returns what is left out.
    fn finish(&mut self, name: &str, skipped: &Skipped, packets: u64, bytes: u64) -> io::Result<Vec<String>> {
        while !self.observer.finish(self.last) {
            self.tell_earlier(NO_MARK - 1)?;
        }
        self.tell_earlier(NO_MARK - 1)?;
        if self.sink.follows_acks() {
            let all: Vec<ConversationId> = self.observer.conversations().map(|talk| talk.id()).collect();
            all.into_iter().try_for_each(|conversation| self.tell_handled(conversation))?;
        }
        let (start, undecided) = (self.start.unwrap_or(0), self.undecided);
        let end = End { name, observer: &self.observer, skipped, packets, bytes, start, undecided };
        self.sink.finish(&end)?;
        Ok(end.left_out())
    }
}

/// Returns the side that a datagram comes from, by its id.
fn role(sender: PeerId) -> Role {
    if sender == PeerId::HOST { Role::Host } else { Role::Client }
}

/// What has no meaning for lines of hex.
pub(super) const OPTIONS: [&str; 18] = [
    "summary",
    "csv",
    "parquet",
    "report",
    "follow",
    "peer",
    "kind",
    "opcode",
    "from",
    "to",
    "anomalies",
    "seq",
    "packet",
    "queues",
    "handle_acks",
    "follow_message",
    "ladder",
    "dump_log",
];
/// As many datagrams as are deciphered together.
const BATCH: usize = 256;
/// If more than one in so many packets could not be read, the exit code says so.
const NOTICEABLE: u64 = 10;
/// As many datagrams can be pointed to later.
const PLACES: usize = 1 << 16;
/// The room of the output's buffer.
pub(super) const OUTPUT: usize = 1 << 18;
