//! Output of a run, during it and at its end.

use std::fs;
use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use bcnet_transport::Time;
use serde_json::{Value, json};

use super::Args;
use super::DelayHistogram;
use super::baseline::EchoResult;
use super::counters::SwarmCounters;
use super::delay::JoinTimes;
use super::driver::SwarmDriver;
use crate::standard_output;

/// Prints a line per second on a terminal.
pub(super) struct LiveTable {
    is_enabled: bool,
    next_line: Time,
    previous: [u64; 4],
    lines: u32,
}

impl LiveTable {
    pub(super) fn new() -> Self {
        Self { is_enabled: io::stderr().is_terminal(), next_line: Time::ZERO, previous: [0; 4], lines: 0 }
    }

    pub(super) fn print_line(&mut self, driver: &SwarmDriver) {
        let now = driver.clock.now();
        if !self.is_enabled || now < self.next_line {
            return;
        }
        self.next_line = now + Duration::from_secs(1);
        let counters = &driver.counters;
        if self.lines.is_multiple_of(20) {
            eprintln!(
                "{:>7} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9}",
                "players", "out/s", "in/s", "states/s", "copies/s", "worst ms", "findings"
            );
        }
        let counts = [
            counters.datagrams_sent.count,
            counters.datagrams_received.count,
            counters.states_received,
            counters.delivered,
        ];
        let [sent, received, states, copies] =
            [0, 1, 2, 3].map(|at| counts[at].saturating_sub(self.previous[at]));
        (self.previous, self.lines) = (counts, self.lines + 1);
        eprintln!(
            "{:>7} {sent:>9} {received:>9} {states:>9} {copies:>9} {:>9} {:>9}",
            driver.players_in_game(),
            counters.delays.combined().max().as_millis(),
            counters.findings(),
        );
    }
}

/// Measures the processor time of a process.
pub(super) struct CpuMeter {
    process: Option<u32>,
    seconds: Option<f64>,
}

impl CpuMeter {
    pub(super) fn start(process: Option<u32>) -> Self {
        Self { process, seconds: process.and_then(cpu_seconds) }
    }

    /// Returns the processor seconds since the start, if the system reports them.
    pub(super) fn end(self) -> Option<f64> {
        let now = self.process.and_then(cpu_seconds);
        now.zip(self.seconds).map(|(now, then)| now - then)
    }
}

/// Returns the processor time of a process so far, if the system reports it.
fn cpu_seconds(process: u32) -> Option<f64> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The name in parentheses may hold any character.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks = |at: usize| fields.get(at).and_then(|ticks| ticks.parse::<f64>().ok());
    Some((ticks(11)? + ticks(12)?) / TICKS_PER_SECOND)
}

/// Processor seconds during the run.
pub(super) struct CpuTimes {
    pub(super) server: Option<f64>,
    pub(super) own: Option<f64>,
}

/// Clock ticks per second, the same on every Linux.
const TICKS_PER_SECOND: f64 = 100.0;

pub(super) fn print(
    args: &Args,
    counters: &SwarmCounters,
    cpu: CpuTimes,
    echo_result: Option<(EchoResult, Option<f64>)>,
) -> anyhow::Result<()> {
    let out = &mut standard_output::lock();
    if args.json {
        let mut report = json!({
            "sessions": args.sessions,
            "players": args.players(),
            "seconds": args.seconds,
            "seed": args.seed,
        });
        if let (Value::Object(report), Value::Object(totals)) = (&mut report, counters.json()) {
            report.extend(totals);
            report.insert("cpu_seconds".into(), json!(cpu.server));
            report.insert("own_cpu_seconds".into(), json!(cpu.own));
            if let Some((EchoResult { sent, received, delays }, cpu)) = echo_result {
                let delays = delays.json();
                let echo =
                    json!({ "sent": sent, "received": received, "delay_us": delays, "cpu_seconds": cpu });
                report.insert("echo".into(), echo);
            }
        }
        writeln!(out, "{report}")?;
        return Ok(());
    }
    let SwarmCounters {
        messages_sent, delivered, lost, duplicated: doubled, reordered, changed, echoed, ..
    } = counters;
    let SwarmCounters { dropped, absent, joined, left, vanished, refused, host_messages, .. } = counters;
    writeln!(out, "seed {}, sessions: {}, players in each: {}", args.seed, args.sessions, args.players())?;
    writeln!(
        out,
        "reliable       {messages_sent} sent, {delivered} copies received, {host_messages} messages of the server itself"
    )?;
    let delays = counters.delays.combined();
    let [median, most] = [0.5, 0.99].map(|share| millis(delays.quantile(share)));
    writeln!(out, "delay          median {median} ms, 99 % {most} ms, worst {} ms", millis(delays.max()))?;
    let (due, received) = (counters.states_expected, counters.states_received);
    writeln!(out, "states         {} sent, {received} of about {due} copies received", counters.states_sent)?;
    writeln!(
        out,
        "datagrams      {} sent, {} received",
        counters.datagrams_sent.count, counters.datagrams_received.count
    )?;
    writeln!(out, "players        {joined} joined, {left} left, {vanished} vanished, {refused} refused")?;
    let (frames, late) = (counters.frames, counters.late_frames);
    writeln!(out, "ticks          {frames}, {late} of them late because the machine was busy")?;
    writeln!(
        out,
        "findings       {lost} lost, {doubled} duplicated, {reordered} out of order, {changed} changed, {echoed} \
         to the wrong player, {dropped} players dropped, {absent} never in the game"
    )?;
    if args.report { print_times(out, counters) } else { Ok(()) }
}

/// Prints delays by kind of message, and times by step of a join.
fn print_times(out: &mut impl Write, counters: &SwarmCounters) -> anyhow::Result<()> {
    let head = ["count", "50 %", "95 %", "99 %", "worst"].map(|name| format!("{name:>10}")).concat();
    writeln!(out, "\ndelay, ms      {head}")?;
    let line = |out: &mut dyn Write, name: &str, times: &DelayHistogram| {
        let shares = [0.5, 0.95, 0.99].map(|share| format!("{:>10}", millis(times.quantile(share)))).concat();
        writeln!(out, "{name:15}{:>10}{shares}{:>10}", times.count(), millis(times.max()))
    };
    for (name, times) in counters.delays.rows() {
        line(out, name, &times)?;
    }
    writeln!(out, "\njoins, ms")?;
    let JoinTimes { load, lobby, waiting } = &counters.joins;
    for (name, times) in [("mission sent", load), ("player listed", lobby), ("server wait", waiting)] {
        line(out, name, times)?;
    }
    Ok(())
}

/// Returns milliseconds with the meaningful digits.
fn millis(time: Duration) -> String {
    let millis = time.as_secs_f64() * 1e3;
    let places = if millis < 10.0 { 2 } else { 1 };
    format!("{millis:.places$}")
}
