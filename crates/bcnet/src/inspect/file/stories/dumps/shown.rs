//! The comparison of a dump log with a capture, for people and as JSON.

use std::io::{self, Write};
use std::time::Duration;

use serde_json::json;

use super::super::dump_log::{Damage, DumpLog, Record, Written};
use super::Verdict;
use super::difference::text;
use crate::queue_dump::time_of_day;

pub(super) struct Compared<'a> {
    pub(super) name: &'a str,
    pub(super) log: &'a DumpLog,
    pub(super) results: &'a [(usize, Verdict)],
}

/// How many records stand how to the capture.
#[derive(Default)]
struct Counts {
    equal: u64,
    shifted: u64,
    different: u64,
    unknown: u64,
}

impl Compared<'_> {
    pub(super) fn write(&self, out: &mut impl Write, capture: &str, json: bool) -> io::Result<()> {
        if json {
            return self.write_json(out);
        }
        writeln!(out, "{} beside {capture}", self.name)?;
        if self.results.iter().any(|(record, _)| is_dump(&self.log.records[*record])) {
            writeln!(out, "{:>6}  {:<12} {:>4} {:>5} {:>7}", "line", "time", "peer", "retxQ", "ackOutQ")?;
        }
        for (record, verdict) in self.results {
            let record = &self.log.records[*record];
            match (&record.what, verdict) {
                (Written::Dump { peer, retx, acks }, _) => {
                    let (time, says) = (stamp(record.micros), says(verdict));
                    let (retx, acks) = (retx.count, acks.count);
                    writeln!(out, "{:>6}  {time} {peer:>4} {retx:>5} {acks:>7}  {says}", record.line)?;
                }
                // One that is as it should be is only counted.
                (Written::Handled { .. }, Verdict::Equal) => {}
                (Written::Handled { ack, .. }, _) => {
                    let time = stamp(record.micros);
                    let (line, ack, says) = (record.line, text(ack), says(verdict));
                    writeln!(out, "{line:>6}  {time} HandleACK {ack}  {says}")?;
                }
            }
            if let Verdict::Different(difference, _) = verdict {
                difference.0.iter().take(MAX_SHOWN).try_for_each(|text| writeln!(out, "{:8}{text}", ""))?;
                let more = difference.0.len().saturating_sub(MAX_SHOWN);
                if more > 0 {
                    writeln!(out, "{:8}and {more} more", "")?;
                }
            }
        }
        for Damage { line, text } in &self.log.damage {
            writeln!(out, "{line:>6}  damaged: {text}")?;
        }
        self.write_counts(out, "dumps", is_dump)?;
        self.write_counts(out, "HandleACK lines", |record| !is_dump(record))
    }

    fn write_counts(
        &self,
        out: &mut impl Write,
        what: &str,
        is_one: impl Fn(&Record) -> bool,
    ) -> io::Result<()> {
        let Counts { equal, shifted, different, unknown } = self.count(is_one);
        let total = equal + shifted + different + unknown;
        if total == 0 {
            return Ok(());
        }
        write!(out, "{what}: {total}, {equal} equal, {different} different")?;
        if shifted > 0 {
            write!(out, ", {shifted} equal at another moment")?;
        }
        if unknown > 0 {
            write!(out, ", {unknown} not comparable")?;
        }
        writeln!(out)
    }

    fn count(&self, is_one: impl Fn(&Record) -> bool) -> Counts {
        let mut counts = Counts::default();
        for (record, verdict) in self.results {
            if is_one(&self.log.records[*record]) {
                match verdict {
                    Verdict::Equal => counts.equal += 1,
                    Verdict::Shifted(_) => counts.shifted += 1,
                    Verdict::Different(..) => counts.different += 1,
                    Verdict::Unknown(_) => counts.unknown += 1,
                }
            }
        }
        counts
    }

    fn write_json(&self, out: &mut impl Write) -> io::Result<()> {
        for (record, verdict) in self.results {
            let Record { line, micros, what, .. } = &self.log.records[*record];
            let mut value = json!({"line": line, "time_of_day": stamp(*micros)});
            match what {
                Written::Dump { peer, retx, acks } => {
                    value["dump"] = json!({"peer": peer, "retx": retx.count, "acks": acks.count});
                }
                Written::Handled { ack, retx } => {
                    let channel = ack.channel.map(bcnet_transport::wire::Channel::name);
                    value["handled"] = json!({"channel": channel, "seq": ack.seq, "part": ack.part});
                    value["retx"] = retx.count.into();
                }
            }
            let (name, more) = match verdict {
                Verdict::Equal => ("equal", json!({})),
                Verdict::Shifted(by) => ("shifted", json!({"by": *by as f64 / 1e6})),
                Verdict::Different(difference, packet) => {
                    ("different", json!({"differences": difference.0, "packet": packet}))
                }
                Verdict::Unknown(reason) => ("not_comparable", json!({"reason": reason})),
            };
            value["verdict"] = name.into();
            if let (Some(value), serde_json::Value::Object(more)) = (value.as_object_mut(), more) {
                value.extend(more);
            }
            writeln!(out, "{value}")?;
        }
        for Damage { line, text } in &self.log.damage {
            writeln!(out, "{}", json!({"line": line, "damage": text}))?;
        }
        Ok(())
    }
}

fn says(verdict: &Verdict) -> String {
    match verdict {
        Verdict::Equal => "equal".into(),
        Verdict::Shifted(by) => {
            let when = if *by < 0 { "earlier" } else { "later" };
            format!("equal {:.3} s {when} in the capture", by.unsigned_abs() as f64 / 1e6)
        }
        Verdict::Different(_, packet) => format!("different, packet {packet}"),
        Verdict::Unknown(reason) => (*reason).into(),
    }
}

const fn is_dump(record: &Record) -> bool {
    matches!(record.what, Written::Dump { .. })
}

pub(super) fn stamp(micros: u64) -> String {
    time_of_day(Duration::from_micros(micros))
}

/// As many differences of one dump are listed.
const MAX_SHOWN: usize = 12;
