//! Writes the comparison of a dump log with a capture, for people and as JSON.

use std::io::{self, Write};
use std::time::Duration;

use serde_json::json;

use super::super::dump_log::{DumpContent, DumpLog, DumpLogError, DumpLogRecord};
use super::DumpVerdict;
use super::difference::entry_text;
use crate::queue_dump::format_time_of_day;

pub(super) struct ComparisonReport<'a> {
    pub(super) name: &'a str,
    pub(super) log: &'a DumpLog,
    pub(super) results: &'a [(usize, DumpVerdict)],
}

/// The number of records with each verdict.
#[derive(Default)]
struct VerdictCounts {
    equal: u64,
    shifted: u64,
    different: u64,
    unknown: u64,
}

impl ComparisonReport<'_> {
    pub(super) fn write(&self, out: &mut impl Write, capture: &str, json: bool) -> io::Result<()> {
        if json {
            return self.write_json(out);
        }
        writeln!(out, "{} compared with {capture}", self.name)?;
        if self.results.iter().any(|(record, _)| is_dump(&self.log.records[*record])) {
            writeln!(out, "{:>6}  {:<12} {:>4} {:>5} {:>7}", "line", "time", "peer", "retxQ", "ackOutQ")?;
        }
        for (record, verdict) in self.results {
            let record = &self.log.records[*record];
            match (&record.content, verdict) {
                (DumpContent::Dump { peer, retx, acks }, _) => {
                    let (time, says) = (format_time(record.micros), verdict_text(verdict));
                    let (retx, acks) = (retx.count, acks.count);
                    writeln!(out, "{:>6}  {time} {peer:>4} {retx:>5} {acks:>7}  {says}", record.line)?;
                }
                // Equal records are only counted.
                (DumpContent::HandledAck { .. }, DumpVerdict::Equal) => {}
                (DumpContent::HandledAck { ack, .. }, _) => {
                    let time = format_time(record.micros);
                    let (line, ack, says) = (record.line, entry_text(ack), verdict_text(verdict));
                    writeln!(out, "{line:>6}  {time} HandleACK {ack}  {says}")?;
                }
            }
            if let DumpVerdict::Different(difference, _) = verdict {
                difference
                    .0
                    .iter()
                    .take(MAX_LISTED_DIFFERENCES)
                    .try_for_each(|text| writeln!(out, "{:8}{text}", ""))?;
                let more = difference.0.len().saturating_sub(MAX_LISTED_DIFFERENCES);
                if more > 0 {
                    writeln!(out, "{:8}and {more} more", "")?;
                }
            }
        }
        for DumpLogError { line, text } in &self.log.errors {
            writeln!(out, "{line:>6}  damaged: {text}")?;
        }
        self.write_counts(out, "dumps", is_dump)?;
        self.write_counts(out, "HandleACK lines", |record| !is_dump(record))
    }

    fn write_counts(
        &self,
        out: &mut impl Write,
        what: &str,
        is_one: impl Fn(&DumpLogRecord) -> bool,
    ) -> io::Result<()> {
        let VerdictCounts { equal, shifted, different, unknown } = self.count_verdicts(is_one);
        let total = equal + shifted + different + unknown;
        if total == 0 {
            return Ok(());
        }
        write!(out, "{what}: {total}, {equal} equal, {different} different")?;
        if shifted > 0 {
            write!(out, ", {shifted} equal at another time")?;
        }
        if unknown > 0 {
            write!(out, ", {unknown} not comparable")?;
        }
        writeln!(out)
    }

    fn count_verdicts(&self, is_one: impl Fn(&DumpLogRecord) -> bool) -> VerdictCounts {
        let mut counts = VerdictCounts::default();
        for (record, verdict) in self.results {
            if is_one(&self.log.records[*record]) {
                match verdict {
                    DumpVerdict::Equal => counts.equal += 1,
                    DumpVerdict::Shifted(_) => counts.shifted += 1,
                    DumpVerdict::Different(..) => counts.different += 1,
                    DumpVerdict::NotComparable(_) => counts.unknown += 1,
                }
            }
        }
        counts
    }

    fn write_json(&self, out: &mut impl Write) -> io::Result<()> {
        for (record, verdict) in self.results {
            let DumpLogRecord { line, micros, content: what, .. } = &self.log.records[*record];
            let mut value = json!({"line": line, "time_of_day": format_time(*micros)});
            match what {
                DumpContent::Dump { peer, retx, acks } => {
                    value["dump"] = json!({"peer": peer, "retx": retx.count, "acks": acks.count});
                }
                DumpContent::HandledAck { ack, retx } => {
                    let channel = ack.channel.map(bcnet_transport::wire::Channel::name);
                    value["handled"] = json!({"channel": channel, "seq": ack.seq, "part": ack.part});
                    value["retx"] = retx.count.into();
                }
            }
            let (name, more) = match verdict {
                DumpVerdict::Equal => ("equal", json!({})),
                DumpVerdict::Shifted(by) => ("shifted", json!({"by": *by as f64 / 1e6})),
                DumpVerdict::Different(difference, packet) => {
                    ("different", json!({"differences": difference.0, "packet": packet}))
                }
                DumpVerdict::NotComparable(reason) => ("not_comparable", json!({"reason": reason})),
            };
            value["verdict"] = name.into();
            if let (Some(value), serde_json::Value::Object(more)) = (value.as_object_mut(), more) {
                value.extend(more);
            }
            writeln!(out, "{value}")?;
        }
        for DumpLogError { line, text } in &self.log.errors {
            writeln!(out, "{}", json!({"line": line, "damage": text}))?;
        }
        Ok(())
    }
}

fn verdict_text(verdict: &DumpVerdict) -> String {
    match verdict {
        DumpVerdict::Equal => "equal".into(),
        DumpVerdict::Shifted(by) => {
            let when = if *by < 0 { "earlier" } else { "later" };
            format!("equal {:.3} s {when} in the capture", by.unsigned_abs() as f64 / 1e6)
        }
        DumpVerdict::Different(_, packet) => format!("different, packet {packet}"),
        DumpVerdict::NotComparable(reason) => (*reason).into(),
    }
}

const fn is_dump(record: &DumpLogRecord) -> bool {
    matches!(record.content, DumpContent::Dump { .. })
}

pub(super) fn format_time(micros: u64) -> String {
    format_time_of_day(Duration::from_micros(micros))
}

/// The most differences of one dump that are listed.
const MAX_LISTED_DIFFERENCES: usize = 12;
