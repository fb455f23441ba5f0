//! Inspects captures and packet logs: every message, and the faults between the two sides.
//!
//! [`source`] reads datagrams, and an [`Observer`] follows the conversations. Both report to a [`Sink`]: text lines,
//! JSON, tables, a summary or a report page. Everything is done in one pass and with bounded memory.

mod ack_lifetimes;
mod annotated_capture;
mod capture_join;
#[cfg(test)]
mod corrupt_input_tests;
mod datagram_visitor;
mod decompress;
mod decrypted_capture;
mod delayed_output;
mod detail_views;
mod dump_reader;
mod filter;
mod finding_counts;
mod follow;
mod inputs;
mod inspection_pass;
mod line_reader;
mod link_layer;
mod live_capture;
mod live_screen;
mod merge;
mod packet_log;
#[cfg(feature = "parquet")]
mod parquet;
mod pcap;
mod player_names;
mod progress;
mod report;
mod sink;
mod source;
mod summary;
mod summary_json;
mod table;
mod text_writer;
mod view;

use std::collections::VecDeque;
use std::io::{self, BufRead, BufWriter, IsTerminal as _, Read, Write};
use std::path::PathBuf;
use std::sync::Arc;

#[cfg(feature = "parquet")]
use anyhow::Context as _;
use anyhow::ensure;
use bcnet_observe::{Content, ConversationId, Finding, NO_MARK, Observed, Observer, ObserverLimits};
use bcnet_transport::Time;
use bcnet_transport::wire::{PeerId, Role};

use super::{Args as InspectArgs, StdoutWriter, is_stdin};
use crate::CommandStatus;
use crate::file::ensure_not_input;
use crate::number_format::group_digits;
use crate::standard_output;
pub(crate) use datagram_visitor::for_each_datagram;
pub(crate) use decrypted_capture::write_decrypted;
use delayed_output::DelayedOutput;
use detail_views::DetailOptions;
use filter::Filter;
use inputs::Inputs;
pub(crate) use pcap::DECRYPTED_INTERFACE;
use sink::Sink;
pub(super) use source::PacketInfo;
use source::{ReadCounters, SkippedPackets, is_gamespy};
pub(super) use text_writer::Color;
use text_writer::TextStyle;

#[derive(clap::Args)]
pub(super) struct CaptureOptions {
    /// Summarise the capture: conversations, traffic, faults by severity
    #[arg(long, conflicts_with = "detail_view")]
    summary: bool,

    /// Print one row for each message, as comma-separated values
    #[arg(long, conflicts_with_all = ["json", "summary", "detail_view"])]
    csv: bool,

    /// Write one row for each message to a Parquet file; needs a build with the feature `parquet`
    #[arg(long, value_name = "OUT.parquet", conflicts_with_all = ["json", "summary", "csv", "detail_view"])]
    parquet: Option<PathBuf>,

    /// Write a page for a browser: findings, plots, conversations, datagrams with their bytes
    #[arg(long, value_name = "OUT.html", conflicts_with = "detail_view")]
    report: Option<PathBuf>,

    /// Read several captures as one, in the order of time; implied for a directory and for three or more
    #[arg(long)]
    merge: bool,

    /// Wait for more data at the end of the file, until Ctrl-C
    #[arg(long, conflicts_with = "detail_view")]
    follow: bool,

    #[command(flatten)]
    filter: Filter,

    #[command(flatten)]
    detail: DetailOptions,
}

impl CaptureOptions {
    /// Returns whether reading continues when the file grows.
    pub(super) const fn is_following(&self) -> bool {
        self.follow
    }

    /// Returns the first option that cannot be used with two captures, if any.
    fn first_single_capture_option(&self) -> Option<&'static str> {
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
            .or_else(|| self.filter.first_given())
            .or_else(|| self.detail.first_given())
    }
}

/// A datagram with the results of its analysis.
struct AnalyzedDatagram<'a> {
    packet: &'a PacketInfo,
    content: Observed<'a>,
    /// The deciphered bytes.
    bytes: &'a [u8],
    /// The findings about this datagram that are known so far.
    findings: &'a [Finding],
    observer: &'a Observer,
}

/// The position of a packet in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct PacketLocation {
    number: u64,
    offset: u64,
    /// The number of the file, if there are several.
    file: Option<u32>,
}

impl PacketLocation {
    fn of(packet: &PacketInfo) -> Self {
        let file = packet.file.as_ref().map(|file| file.number);
        Self { number: packet.number, offset: packet.offset, file }
    }
}

/// One of several files that are read as one.
#[derive(Debug, Clone)]
struct MergedFile {
    name: Arc<str>,
    /// The numbers of its first and its last packet, counted over all files.
    first: u64,
    last: u64,
    /// The number of its packets. If files overlap in time, packets of other files lie in between.
    packets: u64,
}

impl MergedFile {
    /// Adds packets of this file: the packet count over all files was `before` and is `now`.
    fn add_packets(&mut self, before: u64, now: u64) {
        if now > before {
            self.first = if self.packets == 0 { before + 1 } else { self.first };
            self.last = now;
            self.packets += now - before;
        }
    }
}

/// The totals at the end of a capture.
struct CaptureEnd<'a> {
    name: &'a str,
    /// The files, if there are several.
    files: &'a [MergedFile],
    observer: &'a Observer,
    skipped: &'a SkippedPackets,
    packets: u64,
    bytes: u64,
    /// The time of the first datagram, in microseconds.
    start_micros: u64,
    /// Datagrams that were shown before their findings were final.
    undecided: u64,
}

impl CaptureEnd<'_> {
    /// Returns the name of the file of a packet, if there are several files.
    fn file_name(&self, place: PacketLocation) -> Option<&str> {
        self.files.get(place.file? as usize).map(|file| &*file.name)
    }

    /// Returns messages about omitted or uncertain results.
    fn omissions(&self) -> Vec<String> {
        let counts = [
            (
                self.observer.evicted_counters().conversations,
                "conversations are only in the totals; above a limit the longest-silent conversations are dropped",
            ),
            (
                self.observer.dropped_findings(),
                "more findings came at once than fit in memory; they are not counted",
            ),
            (
                self.undecided,
                "datagrams were shown before their cause was certain, because the wait was too long",
            ),
        ];
        let nonzero = counts.into_iter().filter(|(count, _)| *count > 0);
        nonzero.map(|(count, what)| format!("{} {what}", group_digits(count))).collect()
    }
}

pub(super) fn run(args: &InspectArgs) -> anyhow::Result<CommandStatus> {
    let stdout = BufWriter::with_capacity(OUTPUT_BUFFER_SIZE, standard_output::lock());
    let has_file = args.interface.is_none() && (args.write.is_some() || args.file.report.is_some());
    let out = StdoutWriter { stdout: Some(stdout), ignore_broken_pipe: has_file };
    if let Some(interface) = &args.interface {
        return inspection_pass::inspect_live(args, interface, build_sinks(args, &[], out)?);
    }
    let inputs = match args.files.as_slice() {
        [a, b] if !args.file.merge => {
            ensure!(
                !is_stdin(a) || !is_stdin(b),
                "standard input can be read only once; name a file for one of the two"
            );
            let given = [(args.explain, "--explain"), (args.write.is_some(), "--write")];
            let given = given.into_iter().find(|(given, _)| *given).map(|(_, name)| name);
            if let Some(option) = args.file.first_single_capture_option().or(given) {
                anyhow::bail!(
                    "{option} is for one capture; two captures are joined (as text or with --json), or read as one with --merge"
                );
            }
            return capture_join::run([a, b], args.json, out);
        }
        [path] if !path.is_dir() => Inputs::single(path),
        paths => {
            ensure!(!args.file.follow, "--follow is for one file");
            Inputs::merged(paths)?
        }
    };
    inspection_pass::inspect(args, &inputs, build_sinks(args, &inputs.paths(), out)?)
}

/// Returns the sinks for all outputs that the options ask for.
fn build_sinks<'a>(
    args: &InspectArgs,
    files: &[PathBuf],
    out: impl Write + 'a,
) -> anyhow::Result<Vec<Box<dyn Sink + 'a>>> {
    let mut sinks: Vec<Box<dyn Sink + 'a>> = Vec::new();
    let filter = args.file.filter.clone();
    if args.file.detail.first_given().is_some() {
        return Ok(args.file.detail.sink(out, &filter, args.json)?.into_iter().collect());
    }
    if let Some(report) = &args.file.report {
        ensure_not_input(report, files, "--report")?;
        sinks.push(Box::new(report::HtmlReport::new(report.clone(), filter.clone())));
    }
    if let Some(out) = args.write.as_ref().filter(|_| args.interface.is_none()) {
        let remarks = annotated_capture::AnnotatedCapture::create(
            out,
            files,
            filter.clone(),
            args.flushes_each_datagram(),
        )?;
        sinks.push(Box::new(DelayedOutput::new(remarks, false)));
    }
    #[cfg(not(feature = "parquet"))]
    ensure!(
        args.file.parquet.is_none(),
        "--parquet: this program was built without Parquet; build it with `cargo build --release --features parquet`"
    );
    #[cfg(feature = "parquet")]
    if let Some(path) = &args.file.parquet {
        ensure_not_input(path, files, "--parquet")?;
        let rows = parquet::ParquetWriter::create(path).with_context(|| path.display().to_string())?;
        sinks.push(Box::new(DelayedOutput::new(table::MessageTable::new(rows, filter, false), false)));
        return Ok(sinks);
    }
    if args.file.summary {
        sinks.push(Box::new(summary::SummarySink::new(out, filter, args.json)));
    } else if args.file.csv {
        let table =
            table::MessageTable::new(table::CsvWriter::new(out), filter, args.flushes_each_datagram());
        sinks.push(Box::new(DelayedOutput::new(table, false)));
    } else if let Some(interface) = args.interface.as_deref().filter(|_| sinks.is_empty() && !args.json) {
        // With --explain or a filter the user wants to read lines, not a live screen.
        let is_special = args.explain || filter.first_given().is_some();
        if io::stdout().is_terminal() && !is_special {
            sinks.push(Box::new(live_screen::LiveScreen::new(out, interface)));
        } else {
            let lines = view::OutputForm::Text(TextStyle::of(args.color));
            let view = view::DatagramView::new(out, lines, filter.clone(), true).explain(args.explain);
            sinks.push(Box::new(DelayedOutput::new(view, true)));
        }
        sinks.push(Box::new(summary::SummarySink::new(standard_output::lock(), filter, false)));
    } else if sinks.is_empty() || args.json {
        let form = if args.json {
            view::OutputForm::Json
        } else {
            view::OutputForm::Text(TextStyle::of(args.color))
        };
        let view =
            view::DatagramView::new(out, form, filter, args.flushes_each_datagram()).explain(args.explain);
        sinks.push(Box::new(DelayedOutput::new(view, args.flushes_each_datagram())));
    }
    Ok(sinks)
}

/// One pass over a capture.
struct Analysis<S> {
    observer: Observer,
    sink: S,
    wants_handled_acks: bool,
    /// The positions of the latest datagrams, for findings that come later.
    recent_locations: VecDeque<PacketLocation>,
    current_findings: Vec<Finding>,
    start_micros: Option<u64>,
    last_time: Time,
    datagrams: u64,
    malformed: u64,
    /// Datagrams that were shown before their findings were final.
    undecided: u64,
}

impl<S: Sink> Analysis<S> {
    fn new(sink: S) -> Self {
        let mut observer = Observer::new(ObserverLimits::default());
        let follows_acks = sink.wants_handled_acks();
        if follows_acks {
            observer.track_handled_acks();
        }
        Self {
            observer,
            sink,
            wants_handled_acks: follows_acks,
            recent_locations: VecDeque::with_capacity(MAX_LOCATIONS),
            current_findings: Vec::new(),
            start_micros: None,
            last_time: Time::ZERO,
            datagrams: 0,
            malformed: 0,
            undecided: 0,
        }
    }

    /// Analyses one datagram.
    fn analyze(
        &mut self,
        packet: &PacketInfo,
        bytes: &[u8],
        content: &Content<'_>,
        skipped: &mut SkippedPackets,
    ) -> io::Result<()> {
        let PacketInfo { number, time, from, to, .. } = *packet;
        self.sink.before_datagram(time, &self.observer)?;
        if packet.is_truncated {
            self.observer.observe_truncated(time, from, to);
            return Ok(());
        }
        let what = self.observer.observe(number, time, from, to, content);
        self.last_time = self.last_time.max(time);
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
        self.start_micros.get_or_insert(time.as_micros());
        self.remember_location(PacketLocation::of(packet));
        self.report_earlier_findings(packet.number)?;
        if self.wants_handled_acks
            && let Observed::Datagram(_, conversation, _) = what
        {
            self.report_handled_acks(conversation)?;
        }
        self.sink.on_datagram(&AnalyzedDatagram {
            packet,
            content: what,
            bytes,
            findings: &self.current_findings,
            observer: &self.observer,
        })?;
        if let Some((id, mark)) = self.sink.overdue_datagram(time, &self.observer) {
            self.observer.finalize_findings(id, mark, time);
            self.undecided += 1;
            self.report_earlier_findings(NO_MARK - 1)?;
        }
        Ok(())
    }

    fn remember_location(&mut self, place: PacketLocation) {
        if self.recent_locations.len() >= MAX_LOCATIONS {
            self.recent_locations.pop_front();
        }
        self.recent_locations.push_back(place);
    }

    /// Takes all findings. Keeps those about the datagram `number`; reports the others to the sink.
    fn report_earlier_findings(&mut self, number: u64) -> io::Result<()> {
        self.current_findings.clear();
        while let Some(finding) = self.observer.poll_finding() {
            if finding.mark == number {
                self.current_findings.push(finding);
            } else {
                let place = self.find_location(finding.mark);
                self.sink.on_finding(&finding, place, &self.observer)?;
            }
        }
        Ok(())
    }

    fn report_handled_acks(&mut self, conversation: ConversationId) -> io::Result<()> {
        while let Some(handled) = self.observer.poll_handled_ack(conversation) {
            self.sink.on_handled_ack(&handled, &self.observer)?;
        }
        Ok(())
    }

    fn find_location(&self, mark: u64) -> Option<PacketLocation> {
        let found = self.recent_locations.binary_search_by_key(&mark, |place| place.number).ok();
        found.and_then(|at| self.recent_locations.get(at)).copied()
    }

    /// Reports the end to the sink. Returns messages about omitted results.
    fn finish(
        &mut self,
        name: &str,
        files: &[MergedFile],
        counts: &ReadCounters,
        bytes: u64,
    ) -> io::Result<Vec<String>> {
        while !self.observer.finish(self.last_time) {
            self.report_earlier_findings(NO_MARK - 1)?;
        }
        self.report_earlier_findings(NO_MARK - 1)?;
        if self.wants_handled_acks {
            let all: Vec<ConversationId> = self.observer.conversations().map(|talk| talk.id()).collect();
            all.into_iter().try_for_each(|conversation| self.report_handled_acks(conversation))?;
        }
        let (start, undecided) = (self.start_micros.unwrap_or(0), self.undecided);
        let (skipped, packets) = (&counts.skipped, counts.packets);
        let end = CaptureEnd {
            name,
            files,
            observer: &self.observer,
            skipped,
            packets,
            bytes,
            start_micros: start,
            undecided,
        };
        self.sink.on_end(&end)?;
        Ok(end.omissions())
    }
}

/// Opens an input and decompresses it if needed.
///
/// The returned function tells, after everything was read, whether the input was damaged.
pub(super) fn open_decompressed(
    input: Box<dyn Read>,
) -> io::Result<(impl BufRead, impl Fn() -> Option<String>)> {
    let (window, unpacking) = decompress::decompress(pcap::InputBuffer::new(input))?;
    let damage = move || unpacking.as_ref().and_then(decompress::DecompressionState::damage);
    Ok((window, move || damage().map(|damage| damage.to_string())))
}

/// Keeps only the datagram of a packet that was dumped with its headers.
pub(super) fn strip_packet_headers(bytes: &mut Vec<u8>) {
    if let Ok(udp) = dump_reader::extract_udp_from_any_link(bytes) {
        *bytes = udp.payload.to_vec();
    }
}

/// Returns the role of the sender of a datagram, by its peer id.
fn sender_role(sender: PeerId) -> Role {
    if sender == PeerId::HOST { Role::Host } else { Role::Client }
}

/// Options that cannot be used with lines of hex.
pub(super) const CAPTURE_ONLY_OPTIONS: [&str; 19] = [
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
/// The number of datagrams whose position is remembered.
const MAX_LOCATIONS: usize = 1 << 16;
/// The size of the output buffer in bytes.
pub(super) const OUTPUT_BUFFER_SIZE: usize = 1 << 18;
