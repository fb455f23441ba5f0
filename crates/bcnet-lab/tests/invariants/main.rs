//! Invariants that hold on every network: 4,000 seeds, each with its own faults and traffic.
//!
//! The protocol has no checksum; it relies on that of UDP. The network therefore drops a corrupted datagram
//! that still parses, as UDP would. A corrupted datagram that does not parse reaches the endpoint, which must
//! ignore it.
//!
//! In one seed of sixteen all corrupted datagrams arrive. Payloads may then differ, so only safety is
//! checked: no panic, no datagram too large, no queue beyond its limit, and the same run from the same seed.

mod checker;
mod plan;

use std::env;
use std::ops::AddAssign;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use bcnet_lab::{LinkStats, World};
use bcnet_transport::{Config, Engine, PeerCounters};

use checker::{InvariantChecker, ObservedCounters};
use plan::{RunPlan, micros};

/// T-60, T-62, T-66 to T-70: every reliable payload arrives once and in order.
///
/// No ACK is sent for a message that did not arrive, and all queues are empty at the end. The same seed gives
/// the same run, with the engine's fast path and without.
#[test]
fn invariants_hold_on_thousands_of_bad_networks() {
    if let Some(seed) = env_number("BCNET_SEED") {
        let first = run_fast_and_general_path(seed);
        println!("seed {seed}: {first:#?}");
        return;
    }
    let seeds = env_number("BCNET_SEEDS").unwrap_or(4000);
    let next = AtomicU64::new(1);
    let (total, failed) = (Mutex::new(InvariantSummary::default()), Mutex::new(Vec::new()));
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed > seeds {
                        break;
                    }
                    match catch_unwind(AssertUnwindSafe(|| run_fast_and_general_path(seed))) {
                        Ok(outcome) => *total.lock().expect("no panic here") += outcome,
                        Err(_) => failed.lock().expect("no panic here").push(seed),
                    }
                }
            });
        }
    });
    let (total, mut failed) = (total.into_inner().expect("no panic"), failed.into_inner().expect("no panic"));
    failed.sort_unstable();
    println!("{seeds} seeds: {total:#?}");
    for seed in failed.iter().take(10) {
        println!("to repeat: BCNET_SEED={seed} cargo test -p bcnet-lab --test invariants");
    }
    assert!(failed.is_empty(), "{} of {seeds} seeds fail: {failed:?}", failed.len());
    total.assert_all_faults_occurred();
}

/// Result of one run, or the sum of many.
#[derive(Debug, Default)]
struct InvariantSummary {
    links: LinkStats,
    observed: ObservedCounters,
    jittery: u64,
    narrow: u64,
    partitions: u64,
    delivers_corrupted: u64,
    fingerprint: u64,
    /// Counters of the engines, for one run.
    counters: Vec<PeerCounters>,
}

impl AddAssign for InvariantSummary {
    fn add_assign(&mut self, other: Self) {
        self.links += other.links;
        self.observed += other.observed;
        self.jittery += other.jittery;
        self.narrow += other.narrow;
        self.partitions += other.partitions;
        self.delivers_corrupted += other.delivers_corrupted;
        // Addition is commutative: the order of the runs does not matter.
        self.fingerprint = self.fingerprint.wrapping_add(other.fingerprint);
    }
}

impl InvariantSummary {
    fn assert_all_faults_occurred(&self) {
        let LinkStats {
            sent: _,
            bytes: _,
            lost,
            dropped,
            partitioned: cut,
            duplicated,
            reordered,
            corrupted,
        } = self.links;
        let faults = [lost, dropped, cut, duplicated, reordered, corrupted];
        let network = [self.jittery, self.narrow, self.partitions, self.delivers_corrupted];
        let ObservedCounters {
            reliable,
            urgent,
            unreliable,
            split,
            large,
            retransmissions: resends,
            early_retransmissions: fast,
            beyond_window: far,
            unparsable,
            dropped_by_checksum: caught,
            ..
        } = self.observed;
        let traffic = [reliable, urgent, unreliable, split, large, resends, far, unparsable, caught];
        assert!(faults.iter().chain(&network).chain(&traffic).all(|count| *count > 0), "{self:#?}");
        // The faults are drawn so that the network rarely ends a connection.
        assert!(self.observed.timed_out <= 1 + self.partitions / 100, "{self:#?}");
        // T-62: the ACKs of later messages reveal many losses before the timeout.
        assert!(fast * 5 >= resends, "only {fast} of {resends} retransmissions were before their timeout");
    }
}

/// Runs one seed with the fast path and without it. Both must send the same datagrams at the same times.
fn run_fast_and_general_path(seed: u64) -> InvariantSummary {
    let outcome = run(seed, true);
    let general = run(seed, false);
    assert_eq!(
        outcome.fingerprint, general.fingerprint,
        "seed {seed}: the fast path differs from the general path"
    );
    assert_eq!(outcome.counters, general.counters, "seed {seed}: the counters of the fast path differ");
    assert_eq!(outcome.observed, general.observed, "seed {seed}: the deliveries on the fast path differ");
    if seed.is_multiple_of(8) {
        assert_eq!(outcome.fingerprint, run(seed, true).fingerprint, "seed {seed} gives two different runs");
    }
    outcome
}

/// Runs one seed from the join until all messages are delivered.
fn run(seed: u64, fast_path: bool) -> InvariantSummary {
    let plan = RunPlan::draw(seed);
    let (tick, hold_bytes) = (plan.tick, plan.buffer_bytes);
    let config =
        Config { cipher: false, tick, max_out_of_order_bytes: hold_bytes, fast_path, ..Config::default() };
    let mut world = World::session(plan.faults_during_join(), seed, &config, plan.tick, plan.clients);
    let start = world.now();
    for (from, to, faults) in plan.links(start) {
        world.set_link_faults(from, to, faults);
    }
    let mut watch = InvariantChecker::new(seed, &world, plan.tick, plan.delivers_corrupted);
    for action in &plan.actions {
        world.run_observed(start + action.after, &mut watch);
        watch.perform(&mut world, action);
    }
    let deadline = world.now() + Duration::from_secs(300);
    while !watch.is_done(&world) {
        if world.now() >= deadline {
            assert!(plan.delivers_corrupted, "{}", watch.describe(&world));
            break;
        }
        world.run_observed(world.now() + Duration::from_millis(500), &mut watch);
    }
    watch.check_limits(&world, &config);
    let engines = (0..=plan.clients).map(|number| world.node(number));
    let counters = engines.flat_map(|node| node.peers().filter_map(|peer| node.counters(peer))).collect();
    InvariantSummary {
        links: world.total_link_stats(),
        observed: watch.into_observed(),
        jittery: plan.count(|faults| !faults.jitter.is_zero()),
        narrow: plan.count(|faults| faults.bandwidth > 0),
        partitions: plan.partitions(),
        delivers_corrupted: u64::from(plan.delivers_corrupted),
        fingerprint: world.fingerprint() ^ micros(world.now().since(start)),
        counters,
    }
}

fn env_number(variable: &str) -> Option<u64> {
    let text = env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable} must be a number, not {text:?}")))
}
