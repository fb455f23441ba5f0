//! Estimates the time of runs, and refuses runs that take long unless the user has confirmed.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::bail;
use bcnet_lab::{RunOptions, Scenario};

use super::number_format::format_duration;

/// Runs that need about the same computing time for each virtual second.
pub(super) struct RunBatch {
    /// One of the scenarios.
    pub(super) sample: Scenario,
    /// Number of runs.
    pub(super) runs: u64,
    /// Sum of the durations of all runs, in seconds of the virtual clock.
    pub(super) virtual_seconds: f64,
}

impl RunBatch {
    /// Returns the batch of all variants of one scenario, each with its number of seeds.
    pub(super) fn from_variants<'a>(variants: impl IntoIterator<Item = (&'a Scenario, u32)>) -> Option<Self> {
        let mut variants = variants.into_iter().peekable();
        let (sample, _) = variants.peek()?;
        let sample = (*sample).clone();
        let (mut runs, mut seconds) = (0, 0.0);
        for (scenario, seeds) in variants {
            runs += u64::from(seeds);
            seconds += f64::from(seeds) * (scenario.settle + scenario.duration).as_secs_f64();
        }
        Some(Self { sample, runs, virtual_seconds: seconds })
    }

    /// Estimates the time of all runs on one core, in seconds, from the first minutes of one run.
    #[allow(clippy::disallowed_methods, reason = "how long runs take is for people only")]
    fn estimate_seconds(&self) -> f64 {
        let mut sample = self.sample.clone();
        sample.settle = Duration::ZERO;
        sample.duration = sample.duration.min(SAMPLE_DURATION);
        // Measurements at later times would extend the run to its full length.
        (sample.claim, sample.expectations, sample.dumps) = (None, Vec::new(), Vec::new());
        let start = Instant::now();
        drop(bcnet_lab::run(&sample, &RunOptions::default()));
        start.elapsed().as_secs_f64() * self.virtual_seconds / sample.duration.as_secs_f64().max(1.0)
    }
}

/// Returns an error with the estimated time if the runs take too long.
pub(super) fn check_run_time(work: &[RunBatch]) -> anyhow::Result<()> {
    if work.iter().map(|part| part.virtual_seconds).sum::<f64>() <= UNCHECKED_VIRTUAL_SECONDS {
        return Ok(());
    }
    let cores = thread::available_parallelism().map_or(1, usize::from) as f64;
    let estimate = work.iter().map(RunBatch::estimate_seconds).sum::<f64>() / cores;
    if estimate > MAX_RUN_TIME.as_secs_f64() {
        let runs = work.iter().map(|part| part.runs).sum::<u64>();
        bail!(
            "{runs} runs would take about {}: add --yes to start them, or reduce the number of runs",
            format_duration(estimate)
        );
    }
    Ok(())
}

/// Virtual seconds that are run without an estimate.
const UNCHECKED_VIRTUAL_SECONDS: f64 = 20_000.0;
const MAX_RUN_TIME: Duration = Duration::from_secs(120);
/// Virtual time of the run that is measured for the estimate.
const SAMPLE_DURATION: Duration = Duration::from_secs(300);
