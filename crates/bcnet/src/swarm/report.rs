//! What a run shows while it goes on, and at its end.

use std::fs;
use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use bcnet_transport::Time;
use serde_json::{Value, json};

use super::Args;
use super::Histogram;
use super::delay::Joins;
use super::field::Field;
use super::totals::SwarmTotals;
use super::yardstick::Echoed;

/// A line per second, if somebody looks.
pub(super) struct Live {
    wanted: bool,
    next: Time,
    last: [u64; 4],
    lines: u32,
}

impl Live {
    pub(super) fn new() -> Self {
        Self { wanted: io::stderr().is_terminal(), next: Time::ZERO, last: [0; 4], lines: 0 }
    }

    pub(super) fn show(&mut self, field: &Field) {
        let now = field.clock.now();
        if !self.wanted || now < self.next {
            return;
        }
        self.next = now + Duration::from_secs(1);
        let totals = &field.totals;
        if self.lines.is_multiple_of(20) {
            eprintln!(
                "{:>7} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9}",
                "players", "out/s", "in/s", "states/s", "copies/s", "worst ms", "findings"
            );
        }
        let counts = [totals.sent.count, totals.received.count, totals.states_heard, totals.delivered];
        let [sent, received, states, copies] =
            [0, 1, 2, 3].map(|at| counts[at].saturating_sub(self.last[at]));
        (self.last, self.lines) = (counts, self.lines + 1);
        eprintln!(
            "{:>7} {sent:>9} {received:>9} {states:>9} {copies:>9} {:>9} {:>9}",
            field.in_game(),
            totals.delays.all().max().as_millis(),
            totals.findings(),
        );
    }
}

/// What a process takes of the processor.
pub(super) struct Usage {
    process: Option<u32>,
    seconds: Option<f64>,
}

impl Usage {
    pub(super) fn start(process: Option<u32>) -> Self {
        Self { process, seconds: process.and_then(cpu_seconds) }
    }

    /// Returns the seconds of a processor that were taken since the start, if the system tells.
    pub(super) fn end(self) -> Option<f64> {
        let now = self.process.and_then(cpu_seconds);
        now.zip(self.seconds).map(|(now, then)| now - then)
    }
}

/// Returns the time that a process has had a processor so far, where the system tells.
fn cpu_seconds(process: u32) -> Option<f64> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The name, in parentheses, may hold anything.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks = |at: usize| fields.get(at).and_then(|ticks| ticks.parse::<f64>().ok());
    Some((ticks(11)? + ticks(12)?) / TICKS)
}

/// Seconds of a processor that were taken while the players played.
pub(super) struct Cpu {
    pub(super) server: Option<f64>,
    pub(super) own: Option<f64>,
}

/// Per second, on every Linux.
const TICKS: f64 = 100.0;

pub(super) fn print(
    args: &Args,
    totals: &SwarmTotals,
    cpu: Cpu,
    echoed: Option<(Echoed, Option<f64>)>,
) -> anyhow::Result<()> {
    let out = &mut io::stdout().lock();
    if args.json {
        let mut report = json!({
            "sessions": args.sessions,
            "players": args.players(),
            "seconds": args.seconds,
            "seed": args.seed,
        });
        if let (Value::Object(report), Value::Object(totals)) = (&mut report, totals.json()) {
            report.extend(totals);
            report.insert("cpu_seconds".into(), json!(cpu.server));
            report.insert("own_cpu_seconds".into(), json!(cpu.own));
            if let Some((Echoed { sent, received, delays }, cpu)) = echoed {
                let delays = delays.json();
                let echo =
                    json!({ "sent": sent, "received": received, "delay_us": delays, "cpu_seconds": cpu });
                report.insert("echo".into(), echo);
            }
        }
        writeln!(out, "{report}")?;
        return Ok(());
    }
    let SwarmTotals { said, delivered, lost, doubled, reordered, changed, echoed, .. } = totals;
    let SwarmTotals { dropped, absent, joined, left, vanished, refused, host_said, .. } = totals;
    writeln!(out, "seed {}, sessions: {}, players in each: {}", args.seed, args.sessions, args.players())?;
    writeln!(out, "said reliably  {said}, heard {delivered} copies and {host_said} of the server's own")?;
    let delays = totals.delays.all();
    let [median, most] = [0.5, 0.99].map(|share| millis(delays.quantile(share)));
    writeln!(out, "delay          median {median} ms, 99 % {most} ms, worst {} ms", millis(delays.max()))?;
    let (due, heard) = (totals.states_due, totals.states_heard);
    writeln!(out, "states         {} said, {heard} of about {due} copies heard", totals.states_said)?;
    writeln!(out, "datagrams      {} sent, {} received", totals.sent.count, totals.received.count)?;
    writeln!(out, "players        {joined} joined, {left} left, {vanished} vanished, {refused} refused")?;
    let (frames, late) = (totals.frames, totals.late_frames);
    writeln!(out, "frames         {frames}, {late} of them late for want of processor time")?;
    writeln!(
        out,
        "findings       {lost} lost, {doubled} doubled, {reordered} out of order, {changed} changed, {echoed} \
         to the wrong player, {dropped} players dropped, {absent} never in the game"
    )?;
    if args.report { print_times(out, totals) } else { Ok(()) }
}

/// What was measured, by what was said and by steps of joining.
fn print_times(out: &mut impl Write, totals: &SwarmTotals) -> anyhow::Result<()> {
    let head = ["count", "50 %", "95 %", "99 %", "worst"].map(|name| format!("{name:>10}")).concat();
    writeln!(out, "\ndelay, ms      {head}")?;
    let line = |out: &mut dyn Write, name: &str, times: &Histogram| {
        let shares = [0.5, 0.95, 0.99].map(|share| format!("{:>10}", millis(times.quantile(share)))).concat();
        writeln!(out, "{name:15}{:>10}{shares}{:>10}", times.count(), millis(times.max()))
    };
    for (name, times) in totals.delays.rows() {
        line(out, name, &times)?;
    }
    writeln!(out, "\njoins, ms")?;
    let Joins { load, lobby, waiting } = &totals.joins;
    for (name, times) in [("told to load", load), ("in the lobby", lobby), ("of it waiting", waiting)] {
        line(out, name, times)?;
    }
    Ok(())
}

/// Milliseconds, to as many places as mean something.
fn millis(time: Duration) -> String {
    let millis = time.as_secs_f64() * 1e3;
    let places = if millis < 10.0 { 2 } else { 1 };
    format!("{millis:.places$}")
}
