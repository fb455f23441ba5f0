//! What a seed stands for: how many clients, which network, which traffic.

use std::time::Duration;

use bcnet_lab::{Faults, Rng};
use bcnet_transport::{DeliveryMode, Time};

/// Everything that is drawn before a run begins.
pub(crate) struct RunPlan {
    pub(crate) clients: usize,
    pub(crate) tick: Duration,
    /// Changed datagrams arrive even if they can be taken for real ones.
    pub(crate) delivers_corrupted: bool,
    /// How much is held for one peer while something is missing.
    pub(crate) buffer_bytes: usize,
    /// To each client and from it.
    faults: Vec<[Faults; 2]>,
    /// When each client is cut off, and for how long.
    cuts: Vec<Option<(Duration, Duration)>>,
    pub(crate) actions: Vec<PlannedAction>,
}

/// Something that a node does.
pub(crate) struct PlannedAction {
    pub(crate) after: Duration,
    pub(crate) from: usize,
    pub(crate) to: usize,
    pub(crate) operation: PlannedOperation,
}

pub(crate) enum PlannedOperation {
    Send {
        len: usize,
        mode: DeliveryMode,
    },
    /// A message arrives that is this far ahead of anything that was ever sent.
    FarAhead(u16),
}

impl RunPlan {
    pub(crate) fn draw(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let clients = 1 + rng.index(4);
        let tick = [0, 0, 1_000, 16_667, 95_000][rng.index(5)];
        let merciless = seed % 16 == 15;
        // With the greater, nothing but the window keeps out what is too far ahead (T-69).
        let hold = [256 << 10, 2 << 20][rng.index(2)];
        let span = 200 << rng.below(6);
        let mut faults = Vec::new();
        let mut cuts = Vec::new();
        for _ in 0..clients {
            let there = draw_faults(&mut rng, merciless);
            // Both ways alike, or not.
            let back = if rng.chance(0.5) { there.clone() } else { draw_faults(&mut rng, merciless) };
            faults.push([there, back]);
            let cut = (millis(rng.below(span)), millis(rng.between(50, 20_000)));
            cuts.push(rng.chance(0.2).then_some(cut));
        }
        let mut actions = Vec::new();
        for client in 1..=clients {
            for (from, to) in [(0, client), (client, 0)] {
                for _ in 0..rng.between(5, 60) {
                    let deed = draw_operation(&mut rng);
                    actions.push(PlannedAction { after: millis(rng.below(span)), from, to, operation: deed });
                }
            }
        }
        if rng.chance(0.15) {
            let (client, len) = (1 + rng.index(clients), 90_000 + rng.index(13_529));
            let deed = PlannedOperation::Send { len, mode: DeliveryMode::Reliable };
            actions.push(PlannedAction {
                after: millis(rng.below(span)),
                from: 0,
                to: client,
                operation: deed,
            });
        }
        actions.sort_by_key(|action| action.after);
        Self {
            clients,
            tick: Duration::from_micros(tick),
            delivers_corrupted: merciless,
            buffer_bytes: hold,
            faults,
            cuts,
            actions,
        }
    }

    /// The network while everyone joins.
    pub(crate) fn faults_during_join(&self) -> Faults {
        Faults { delay: self.faults[0][0].delay, ..Faults::default() }
    }

    /// The faults of every link from now on, with the times at which it is cut.
    pub(crate) fn links(&self, now: Time) -> impl Iterator<Item = (usize, usize, Faults)> {
        self.faults.iter().zip(&self.cuts).enumerate().flat_map(move |(index, ([there, back], cut))| {
            let partitions: Vec<_> =
                cut.iter().map(|(after, long)| (now + *after, now + *after + *long)).collect();
            let cut = |faults: &Faults| Faults { partitions: partitions.clone(), ..faults.clone() };
            [(0, index + 1, cut(there)), (index + 1, 0, cut(back))]
        })
    }

    pub(crate) fn partitions(&self) -> u64 {
        self.cuts.iter().flatten().count() as u64
    }

    /// How many links are as `what` asks.
    pub(crate) fn count(&self, what: impl Fn(&Faults) -> bool) -> u64 {
        self.faults.as_flattened().iter().filter(|faults| what(faults)).count() as u64
    }
}

/// Each fault is there or not, and if it is, between a little and as much as a network that can be played on has.
fn draw_faults(rng: &mut Rng, merciless: bool) -> Faults {
    let mut share = |most: f64| if rng.chance(0.5) { most * rng.fraction() } else { 0.0 };
    let (loss, duplicate, reorder) = (share(0.3), share(0.1), share(0.1));
    let corrupt = if merciless { 0.02 } else { share(0.05) };
    let delay = millis(rng.between(1, 150));
    let narrow = rng.chance(0.25);
    Faults {
        loss,
        duplicate,
        reorder,
        corrupt,
        burst: if rng.chance(0.3) { 1.0 + 4.0 * rng.fraction() } else { 1.0 },
        reorder_by: millis(rng.between(1, 100)),
        delay,
        jitter: if rng.chance(0.5) { delay.mul_f64(0.5 * rng.fraction()) } else { Duration::ZERO },
        bandwidth: if narrow { rng.between(300_000, 5_000_000) } else { 0 },
        queue: 8 + rng.index(57),
        partitions: Vec::new(),
    }
}

fn draw_operation(rng: &mut Rng) -> PlannedOperation {
    if rng.chance(0.01) {
        // T-69: beyond the window, yet not behind it.
        return PlannedOperation::FarAhead(u16::try_from(rng.between(0x4000, 0x7000)).expect("16 bits"));
    }
    let most = [100, 100, 100, 100, 100, 420, 420, 5_000][rng.index(8)];
    let len = rng.index(most + 1);
    let mode = match rng.below(10) {
        0 | 1 => DeliveryMode::Urgent,
        2..=4 => DeliveryMode::Unreliable,
        _ => DeliveryMode::Reliable,
    };
    PlannedOperation::Send { len, mode }
}

pub(crate) const fn millis(count: u64) -> Duration {
    Duration::from_millis(count)
}

pub(crate) fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).expect("half a million years")
}
