//! How long runs will take: what takes longer than anyone waits without having been told is refused.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::bail;
use bcnet_lab::{Options, Scenario};

use super::number::time;

/// Runs that take about the same for each of their virtual seconds.
pub(super) struct Workload {
    /// One of them.
    pub(super) sample: Scenario,
    /// How many there are.
    pub(super) runs: u64,
    /// How long all of them last, in virtual seconds.
    pub(super) seconds: f64,
}

impl Workload {
    /// Returns the runs of variants of one scenario, each with its number of seeds.
    pub(super) fn of<'a>(variants: impl IntoIterator<Item = (&'a Scenario, u32)>) -> Option<Self> {
        let mut variants = variants.into_iter().peekable();
        let (sample, _) = variants.peek()?;
        let sample = (*sample).clone();
        let (mut runs, mut seconds) = (0, 0.0);
        for (scenario, seeds) in variants {
            runs += u64::from(seeds);
            seconds += f64::from(seeds) * (scenario.settle + scenario.duration).as_secs_f64();
        }
        Some(Self { sample, runs, seconds })
    }

    /// Returns how many seconds all of them take on one core, from the first minutes of one of them.
    #[allow(clippy::disallowed_methods, reason = "how long runs take is for people only")]
    fn estimate(&self) -> f64 {
        let mut sample = self.sample.clone();
        sample.settle = Duration::ZERO;
        sample.duration = sample.duration.min(SAMPLE);
        // What is asked about later moments would make it as long as it was.
        (sample.claim, sample.expects, sample.dumps) = (None, Vec::new(), Vec::new());
        let start = Instant::now();
        drop(bcnet_lab::run(&sample, &Options::default()));
        start.elapsed().as_secs_f64() * self.seconds / sample.duration.as_secs_f64().max(1.0)
    }
}

/// Refuses what takes too long, with how long it would take.
pub(super) fn check(work: &[Workload]) -> anyhow::Result<()> {
    if work.iter().map(|part| part.seconds).sum::<f64>() <= FREE_SECONDS {
        return Ok(());
    }
    let cores = thread::available_parallelism().map_or(1, usize::from) as f64;
    let estimate = work.iter().map(Workload::estimate).sum::<f64>() / cores;
    if estimate > PATIENCE.as_secs_f64() {
        let runs = work.iter().map(|part| part.runs).sum::<u64>();
        bail!("{runs} runs would take about {}: add --yes if that is meant, or ask for less", time(estimate));
    }
    Ok(())
}

/// As much virtual time is run without asking how long it takes: seconds.
const FREE_SECONDS: f64 = 20_000.0;
const PATIENCE: Duration = Duration::from_secs(120);
/// The virtual time that is enough to see how fast a run is.
const SAMPLE: Duration = Duration::from_secs(300);
