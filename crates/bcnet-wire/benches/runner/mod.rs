//! The runner of the benchmarks: measures by the clock and, under callgrind, by instructions.
//!
//! Without arguments: a table of medians over interleaved rounds. `list`: the instruction set in use, then
//! every workload with its unit and the units in one iteration. `count NAME N`: runs only N iterations of
//! one workload, so that the difference between two values of N does not include start-up.

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
    // Cargo adds --bench to the given arguments.
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
                eprintln!("unknown workload {name}; run with the argument list to see all");
                return ExitCode::from(2);
            };
            let Ok(iterations) = iterations.parse() else {
                eprintln!("invalid number of iterations: {iterations}; pass a whole number");
                return ExitCode::from(2);
            };
            workload.run_iterations(iterations);
        }
        _ => {
            eprintln!("usage: speed [list | count NAME N]");
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

    /// Returns how many iterations take long enough to be timed.
    fn calibrate(&mut self) -> u64 {
        let mut iterations = 1;
        self.run_iterations(iterations);
        while self.elapsed(iterations) < ROUND_TIME {
            iterations *= 2;
        }
        iterations
    }

    /// Returns the nanoseconds per unit.
    ///
    /// As many iterations run before the measurement: processors take a fraction of a millisecond to reach
    /// the full speed of vector code.
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
    // Every round runs all workloads, so that a busy moment of the machine does not favour one of them.
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

/// Returns the name of the kernels that run on this processor.
fn isa() -> &'static str {
    #[cfg(target_arch = "x86_64")]
    if std::is_x86_feature_detected!("avx2") {
        return "avx2";
    }
    "portable"
}

const ROUNDS: usize = 31;
const ROUND_TIME: Duration = Duration::from_millis(2);
