//! Captures and packet logs: every message, and what goes wrong between the two sides.
//!
//! [`source`] gives datagrams, an [`Observer`] follows the conversations, and what both tell goes to a [`Sink`]: lines
//! for a person, JSON, tables, a summary, a report. Everything is done in one pass and with bounded memory.

mod deciphered;
mod dump;
mod each;
mod figures;
mod filter;
mod follow;
mod frame;
mod hold;
#[cfg(test)]
mod hostile;
mod inputs;
mod join;
mod lines;
mod live;
mod lives;
mod log;
mod merge;
mod names;
mod packed;
#[cfg(feature = "parquet")]
mod parquet;
mod pcap;
mod progress;
mod reading;
mod remarks;
mod report;
mod screen;
mod sink;
mod source;
mod stories;
mod summary;
mod table;
mod tally;
mod text;
mod view;

use std::collections::VecDeque;
use std::io::{self, BufRead, BufWriter, IsTerminal as _, Read, Write};
use std::path::PathBuf;
use std::sync::Arc;

#[cfg(feature = "parquet")]
use anyhow::Context as _;
use anyhow::ensure;
use bcnet_observe::{Content, ConversationId, Finding, Limits, NO_MARK, Observed, Observer};
use bcnet_transport::Time;
use bcnet_transport::wire::{PeerId, Role};

use super::{Args as InspectArgs, Output, is_stdin};
use crate::Verdict;
use crate::file::ensure_no_input;
use crate::number::thousands;
pub(crate) use deciphered::write_deciphered;
pub(crate) use each::each_datagram;
use filter::Filter;
use hold::HoldBack;
use inputs::Inputs;
pub(super) use lines::Color;
use lines::Style;
pub(crate) use pcap::DECIPHERED;
use sink::Sink;
pub(super) use source::Packet;
use source::{Counts, Skipped, is_gamespy};
use stories::StoryOptions;

#[derive(clap::Args)]
pub(super) struct Options {
    /// Tell what is in the capture: conversations, traffic, faults by their weight
    #[arg(long, conflicts_with = "story")]
    summary: bool,

    /// Print one row per message, with commas
    #[arg(long, conflicts_with_all = ["json", "summary", "story"])]
    csv: bool,

    /// Write one row per message to a Parquet file; needs a program that was built with the feature `parquet`
    #[arg(long, value_name = "OUT.parquet", conflicts_with_all = ["json", "summary", "csv", "story"])]
    parquet: Option<PathBuf>,

    /// Write a page for a browser: what was found, plots, conversations, datagrams with their bytes
    #[arg(long, value_name = "OUT.html", conflicts_with = "story")]
    report: Option<PathBuf>,

    /// Read several captures as one, in the order of time, rotated ones or of several interfaces; so are more than two, and a directory
    #[arg(long)]
    merge: bool,

    /// Wait for more at the end of the file, as it is written, until Ctrl-C
    #[arg(long, conflicts_with = "story")]
    follow: bool,

    #[command(flatten)]
    filter: Filter,

    #[command(flatten)]
    story: StoryOptions,
}

impl Options {
    /// Returns whether the end of the file is only the end so far.
    pub(super) const fn is_followed(&self) -> bool {
        self.follow
    }

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
    /// The number of the file, if there are several.
    file: Option<u32>,
}

impl Evidence {
    fn of(packet: &Packet) -> Self {
        let file = packet.file.as_ref().map(|file| file.number);
        Self { number: packet.number, offset: packet.offset, file }
    }
}

/// One of several files that are read as one.
#[derive(Debug, Clone)]
struct FilePart {
    name: Arc<str>,
    /// The numbers of its first and its last packet, over all files.
    first: u64,
    last: u64,
    /// How many it has: fewer than are between them if its time overlaps with that of others.
    packets: u64,
}

impl FilePart {
    /// Notes packets of it, behind so many that were read of all files.
    fn note(&mut self, before: u64, now: u64) {
        if now > before {
            self.first = if self.packets == 0 { before + 1 } else { self.first };
            self.last = now;
            self.packets += now - before;
        }
    }
}

/// What is known when everything was read.
struct End<'a> {
    name: &'a str,
    /// The files, if there are several.
    files: &'a [FilePart],
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
    /// Returns the name of the file that something is in, if there are several.
    fn file_of(&self, place: Evidence) -> Option<&str> {
        self.files.get(place.file? as usize).map(|file| &*file.name)
    }

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
    let stdout = BufWriter::with_capacity(OUTPUT, io::stdout().lock());
    let has_file = args.interface.is_none() && (args.write.is_some() || args.file.report.is_some());
    let out = Output { stdout: Some(stdout), go_on: has_file };
    if let Some(interface) = &args.interface {
        return reading::inspect_live(args, interface, sinks(args, &[], out)?);
    }
    let inputs = match args.files.as_slice() {
        [a, b] if !args.file.merge => {
            ensure!(
                !is_stdin(a) || !is_stdin(b),
                "standard input can be read only once; name a file for one of the two"
            );
            let given = [(args.explain, "--explain"), (args.write.is_some(), "--write")];
            let given = given.into_iter().find(|(given, _)| *given).map(|(_, name)| name);
            if let Some(option) = args.file.for_one_capture().or(given) {
                anyhow::bail!(
                    "{option} is for one capture; two are joined, as text or with --json, or read as one with --merge"
                );
            }
            return join::run([a, b], args.json, out);
        }
        [path] if !path.is_dir() => Inputs::one(path),
        paths => {
            ensure!(!args.file.follow, "--follow is for one file");
            Inputs::merged(paths)?
        }
    };
    reading::inspect(args, &inputs, sinks(args, &inputs.paths(), out)?)
}

/// Everyone who is to be told.
fn sinks<'a>(
    args: &InspectArgs,
    files: &[PathBuf],
    out: impl Write + 'a,
) -> anyhow::Result<Vec<Box<dyn Sink + 'a>>> {
    let mut sinks: Vec<Box<dyn Sink + 'a>> = Vec::new();
    let filter = args.file.filter.clone();
    if args.file.story.first().is_some() {
        return Ok(args.file.story.sink(out, &filter, args.json)?.into_iter().collect());
    }
    if let Some(report) = &args.file.report {
        ensure_no_input(report, files, "--report")?;
        sinks.push(Box::new(report::Report::new(report.clone(), filter.clone())));
    }
    if let Some(out) = args.write.as_ref().filter(|_| args.interface.is_none()) {
        let remarks = remarks::Remarks::create(out, files, filter.clone(), args.is_at_once())?;
        sinks.push(Box::new(HoldBack::new(remarks, false)));
    }
    #[cfg(not(feature = "parquet"))]
    ensure!(
        args.file.parquet.is_none(),
        "--parquet: this program was built without it; build one with `cargo build --release --features parquet`"
    );
    #[cfg(feature = "parquet")]
    if let Some(path) = &args.file.parquet {
        ensure_no_input(path, files, "--parquet")?;
        let rows = parquet::Parquet::create(path).with_context(|| path.display().to_string())?;
        sinks.push(Box::new(HoldBack::new(table::Table::new(rows, filter, false), false)));
        return Ok(sinks);
    }
    if args.file.summary {
        sinks.push(Box::new(summary::Summary::new(out, filter, args.json)));
    } else if args.file.csv {
        let table = table::Table::new(table::Csv::new(out), filter, args.is_at_once());
        sinks.push(Box::new(HoldBack::new(table, false)));
    } else if let Some(interface) = args.interface.as_deref().filter(|_| sinks.is_empty() && !args.json) {
        // Whoever wants something special wants to read it.
        let is_special = args.explain || filter.first().is_some();
        if io::stdout().is_terminal() && !is_special {
            sinks.push(Box::new(screen::Screen::new(out, interface)));
        } else {
            let lines = view::Form::Lines(Style::of(args.color));
            let view = view::View::new(out, lines, filter.clone(), true).explain(args.explain);
            sinks.push(Box::new(HoldBack::new(view, true)));
        }
        sinks.push(Box::new(summary::Summary::new(io::stdout(), filter, false)));
    } else if sinks.is_empty() || args.json {
        let form = if args.json { view::Form::Json } else { view::Form::Lines(Style::of(args.color)) };
        let view = view::View::new(out, form, filter, args.is_at_once()).explain(args.explain);
        sinks.push(Box::new(HoldBack::new(view, args.is_at_once())));
    }
    Ok(sinks)
}

/// One pass over a capture.
struct Run<S> {
    observer: Observer,
    sink: S,
    follows_acks: bool,
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
        let follows_acks = sink.follows_acks();
        if follows_acks {
            observer.follow_acks();
        }
        Self {
            observer,
            sink,
            follows_acks,
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
        self.remember(Evidence::of(packet));
        self.tell_earlier(packet.number)?;
        if self.follows_acks
            && let Observed::Datagram(_, conversation, _) = what
        {
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
    fn finish(
        &mut self,
        name: &str,
        files: &[FilePart],
        counts: &Counts,
        bytes: u64,
    ) -> io::Result<Vec<String>> {
        while !self.observer.finish(self.last) {
            self.tell_earlier(NO_MARK - 1)?;
        }
        self.tell_earlier(NO_MARK - 1)?;
        if self.follows_acks {
            let all: Vec<ConversationId> = self.observer.conversations().map(|talk| talk.id()).collect();
            all.into_iter().try_for_each(|conversation| self.tell_handled(conversation))?;
        }
        let (start, undecided) = (self.start.unwrap_or(0), self.undecided);
        let (skipped, packets) = (&counts.skipped, counts.packets);
        let end = End { name, files, observer: &self.observer, skipped, packets, bytes, start, undecided };
        self.sink.finish(&end)?;
        Ok(end.left_out())
    }
}

/// Returns what an input holds, unpacked if it is packed, and what asks whether it was damaged when everything was read.
pub(super) fn unpacked(input: Box<dyn Read>) -> io::Result<(impl BufRead, impl Fn() -> Option<String>)> {
    let (window, unpacking) = packed::unpack(pcap::Window::new(input))?;
    let damage = move || unpacking.as_ref().and_then(packed::Unpacking::damage);
    Ok((window, move || damage().map(|damage| damage.to_string())))
}

/// Leaves only the datagram of a packet that was dumped whole.
pub(super) fn keep_datagram(bytes: &mut Vec<u8>) {
    if let Ok(udp) = dump::udp(bytes) {
        *bytes = udp.payload.to_vec();
    }
}

/// Returns the side that a datagram comes from, by its id.
fn role(sender: PeerId) -> Role {
    if sender == PeerId::HOST { Role::Host } else { Role::Client }
}

/// What has no meaning for lines of hex.
pub(super) const OPTIONS: [&str; 19] = [
    "summary",
    "csv",
    "parquet",
    "report",
    "merge",
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
/// As many datagrams can be pointed to later.
const PLACES: usize = 1 << 16;
/// The room of the output's buffer.
pub(super) const OUTPUT: usize = 1 << 18;
