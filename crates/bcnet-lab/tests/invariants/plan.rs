//! The random plan of a seed: number of clients, network faults, traffic.

use std::time::Duration;

use bcnet_lab::{Faults, Rng};
use bcnet_transport::{DeliveryMode, Time};

/// Everything that is drawn before a run begins.
pub(crate) struct RunPlan {
    pub(crate) clients: usize,
    pub(crate) tick: Duration,
    /// `true` if corrupted datagrams arrive even if they still parse.
    pub(crate) delivers_corrupted: bool,
    /// Maximum number of bytes in the inbox of one peer.
    pub(crate) buffer_bytes: usize,
    /// Faults of the links to each client and from it.
    faults: Vec<[Faults; 2]>,
    /// Start and length of the partition of each client.
    cuts: Vec<Option<(Duration, Duration)>>,
    pub(crate) actions: Vec<PlannedAction>,
}

/// An action of a node.
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
    /// Injects a message that is this far ahead of anything ever sent.
    FarAhead(u16),
}

impl RunPlan {
    pub(crate) fn draw(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let clients = 1 + rng.index(4);
        let tick = [0, 0, 1_000, 16_667, 95_000][rng.index(5)];
        let delivers_corrupted = seed % 16 == 15;
        // With the larger limit, only the window keeps out messages that are too far ahead (T-69).
        let hold = [256 << 10, 2 << 20][rng.index(2)];
        let span = 200 << rng.below(6);
        let mut faults = Vec::new();
        let mut cuts = Vec::new();
        for _ in 0..clients {
            let forward = draw_faults(&mut rng, delivers_corrupted);
            // Both directions have the same faults, or not.
            let backward =
                if rng.chance(0.5) { forward.clone() } else { draw_faults(&mut rng, delivers_corrupted) };
            faults.push([forward, backward]);
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
            delivers_corrupted,
            buffer_bytes: hold,
            faults,
            cuts,
            actions,
        }
    }

    /// Returns the faults of the network while the clients join.
    pub(crate) fn faults_during_join(&self) -> Faults {
        Faults { delay: self.faults[0][0].delay, ..Faults::default() }
    }

    /// Returns the faults of every link from now on, with its partitions.
    pub(crate) fn links(&self, now: Time) -> impl Iterator<Item = (usize, usize, Faults)> {
        self.faults.iter().zip(&self.cuts).enumerate().flat_map(move |(index, ([forward, backward], cut))| {
            let partitions: Vec<_> =
                cut.iter().map(|(after, long)| (now + *after, now + *after + *long)).collect();
            let cut = |faults: &Faults| Faults { partitions: partitions.clone(), ..faults.clone() };
            [(0, index + 1, cut(forward)), (index + 1, 0, cut(backward))]
        })
    }

    pub(crate) fn partitions(&self) -> u64 {
        self.cuts.iter().flatten().count() as u64
    }

    /// Returns the number of links that match a condition.
    pub(crate) fn count(&self, what: impl Fn(&Faults) -> bool) -> u64 {
        self.faults.as_flattened().iter().filter(|faults| what(faults)).count() as u64
    }
}

/// Draws the faults of a link. Each fault is absent, or at most as strong as on a network that is still
/// playable.
fn draw_faults(rng: &mut Rng, delivers_corrupted: bool) -> Faults {
    let mut share = |most: f64| if rng.chance(0.5) { most * rng.fraction() } else { 0.0 };
    let (loss, duplicate, reorder) = (share(0.3), share(0.1), share(0.1));
    let corrupt = if delivers_corrupted { 0.02 } else { share(0.05) };
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
        // T-69: beyond the window, but not so far that it counts as old.
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
    u64::try_from(duration.as_micros()).expect("the duration is below half a million years")
}
