//! How long runs will take: what takes longer than anyone waits without having been told is refused.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::bail;
use bcnet_lab::{RunOptions, Scenario};

use super::number_format::format_duration;

/// Runs that take about the same for each of their virtual seconds.
pub(super) struct RunBatch {
    /// One of them.
    pub(super) sample: Scenario,
    /// How many there are.
    pub(super) runs: u64,
    /// How long all of them last, in virtual seconds.
    pub(super) virtual_seconds: f64,
}

impl RunBatch {
    /// Returns the runs of variants of one scenario, each with its number of seeds.
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

    /// Returns how many seconds all of them take on one core, from the first minutes of one of them.
    #[allow(clippy::disallowed_methods, reason = "how long runs take is for people only")]
    fn estimate_seconds(&self) -> f64 {
        let mut sample = self.sample.clone();
        sample.settle = Duration::ZERO;
        sample.duration = sample.duration.min(SAMPLE_DURATION);
        // What is asked about later moments would make it as long as it was.
        (sample.claim, sample.expectations, sample.dumps) = (None, Vec::new(), Vec::new());
        let start = Instant::now();
        drop(bcnet_lab::run(&sample, &RunOptions::default()));
        start.elapsed().as_secs_f64() * self.virtual_seconds / sample.duration.as_secs_f64().max(1.0)
    }
}

/// Refuses what takes too long, with how long it would take.
pub(super) fn check_run_time(work: &[RunBatch]) -> anyhow::Result<()> {
    if work.iter().map(|part| part.virtual_seconds).sum::<f64>() <= UNCHECKED_VIRTUAL_SECONDS {
        return Ok(());
    }
    let cores = thread::available_parallelism().map_or(1, usize::from) as f64;
    let estimate = work.iter().map(RunBatch::estimate_seconds).sum::<f64>() / cores;
    if estimate > MAX_RUN_TIME.as_secs_f64() {
        let runs = work.iter().map(|part| part.runs).sum::<u64>();
        bail!(
            "{runs} runs would take about {}: add --yes if that is meant, or ask for less",
            format_duration(estimate)
        );
    }
    Ok(())
}

/// As much virtual time is run without asking how long it takes: seconds.
const UNCHECKED_VIRTUAL_SECONDS: f64 = 20_000.0;
const MAX_RUN_TIME: Duration = Duration::from_secs(120);
/// The virtual time that is enough to see how fast a run is.
const SAMPLE_DURATION: Duration = Duration::from_secs(300);
