//! What the benchmarks have in common: speed by the clock and, under callgrind, by instructions.
//!
//! Without arguments: a table of medians over interleaved rounds. `list`: the instruction set in use, then every
//! workload with its unit and the units in one iteration. `count NAME N`: N iterations of one workload and nothing
//! else, so that the difference between two N is free of start-up.

use std::env;
use std::process::ExitCode;
use std::time::{Duration, Instant};

pub(crate) struct BenchWorkload {
    pub(crate) name: &'static str,
    pub(crate) unit: &'static str,
    /// The units in one iteration.
    pub(crate) units: usize,
    /// The workload that this one is compared with in the table.
    pub(crate) baseline: &'static str,
    pub(crate) iteration: Box<dyn FnMut()>,
}

pub(crate) fn main(mut workloads: Vec<BenchWorkload>) -> ExitCode {
    // Cargo adds --bench to whatever it is given.
    let arguments: Vec<_> = env::args().skip(1).filter(|argument| argument != "--bench").collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => print_table(&mut workloads),
        ["list"] => {
            println!("isa {}", isa());
            for workload in workloads {
                println!("{} {} {}", workload.name, workload.unit, workload.units);
            }
        }
        ["count", name, iterations] => {
            let Some(workload) = workloads.iter_mut().find(|workload| workload.name == name) else {
                eprintln!("no workload {name}");
                return ExitCode::from(2);
            };
            let Ok(iterations) = iterations.parse() else {
                eprintln!("{iterations} is not a number of iterations");
                return ExitCode::from(2);
            };
            workload.run_iterations(iterations);
        }
        _ => {
            eprintln!("arguments: [list | count NAME N]");
            return ExitCode::from(2);
        }
    }
    ExitCode::SUCCESS
}

impl BenchWorkload {
    fn run_iterations(&mut self, iterations: u64) {
        for _ in 0..iterations {
            (self.iteration)();
        }
    }

    /// How many iterations take long enough to be timed.
    fn calibrate(&mut self) -> u64 {
        let mut iterations = 1;
        self.run_iterations(iterations);
        while self.elapsed(iterations) < ROUND_TIME {
            iterations *= 2;
        }
        iterations
    }

    /// Nanoseconds per unit, after as many iterations that do not count: processors take a fraction of a
    /// millisecond to give vector code its full speed when something else ran before.
    fn nanos_per_unit(&mut self, iterations: u64) -> f64 {
        self.run_iterations(iterations);
        self.elapsed(iterations).as_nanos() as f64 / (iterations * self.units as u64) as f64
    }

    #[expect(clippy::disallowed_methods, reason = "a benchmark reads the clock")]
    fn elapsed(&mut self, iterations: u64) -> Duration {
        let start = Instant::now();
        self.run_iterations(iterations);
        start.elapsed()
    }
}

fn print_table(workloads: &mut [BenchWorkload]) {
    let iterations: Vec<_> = workloads.iter_mut().map(BenchWorkload::calibrate).collect();
    let mut times = vec![Vec::new(); workloads.len()];
    // All workloads in every round, so that a busy moment of the machine does not favour one of them.
    for _ in 0..ROUNDS {
        for ((workload, times), &iterations) in workloads.iter_mut().zip(&mut times).zip(&iterations) {
            times.push(workload.nanos_per_unit(iterations));
        }
    }
    let medians: Vec<_> = times.into_iter().map(median).collect();
    println!("{:32} {:>12} {:>8}", "workload", "ns", "ratio");
    for (workload, &time) in workloads.iter().zip(&medians) {
        let baseline = workloads.iter().position(|other| other.name == workload.baseline);
        let ratio = baseline.map_or(1.0, |baseline| medians[baseline] / time);
        println!("{:32} {:>6.2}/{:7} {:>7.2}x", workload.name, time, workload.unit, ratio);
    }
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

/// Which kernels the processor gets.
fn isa() -> &'static str {
    #[cfg(target_arch = "x86_64")]
    if std::is_x86_feature_detected!("avx2") {
        return "avx2";
    }
    "portable"
}

const ROUNDS: usize = 31;
const ROUND_TIME: Duration = Duration::from_millis(2);
