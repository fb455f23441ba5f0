//! Advantages of bcnet over the stock engine in the recorded battle. The figures must not get worse.
//!
//! The host is serviced every 3 ms, the clients at 60 Hz, with a round-trip time of 100 ms; seeds 1 to 20
//! together. Bytes are those of UDP payloads. Delays run from `send` to delivery of reliable messages. `--
//! --nocapture` prints the table.

use std::fs;
use std::path::Path;

use bcnet_lab::scenario::EngineKind;
use bcnet_lab::{RunOptions, RunSummary, Scenario};

const SEEDS: u64 = 20;

/// Without loss, bcnet sends a ninth of the ACK bytes and no more datagrams.
#[test]
fn acks_cost_an_eighth_of_stock_without_loss() {
    let (stock, bcnet) = run_both_engines("battle");
    let (acks, datagrams) =
        (sum(&bcnet, ack_bytes) / sum(&stock, ack_bytes), sum(&bcnet, datagrams) / sum(&stock, datagrams));
    println!("lossless: ACK bytes {:.2} %, datagrams {:.2} % of stock's", 100.0 * acks, 100.0 * datagrams);
    assert!(acks <= 0.12, "{acks}");
    assert!(datagrams <= 1.0, "{datagrams}");
}

/// With 5 % loss, the 99th percentile of the delay is a quarter, and bcnet sends no more bytes.
#[test]
fn p99_delay_is_a_quarter_of_stock_with_loss() {
    let (stock, bcnet) = run_both_engines("battle-loss5");
    let (late, bytes) = (p99(&bcnet, None) / p99(&stock, None), sum(&bcnet, bytes) / sum(&stock, bytes));
    println!(
        "5 % loss: p99 {:.0} of {:.0} ms, {:.1} %; bytes {:.2} % of stock's",
        p99(&bcnet, None),
        p99(&stock, None),
        100.0 * late,
        100.0 * bytes
    );
    assert!(late <= 0.25, "{late}");
    assert!(bytes <= 1.0, "{bytes}");
}

/// With stock peers, bcnet keeps four fifths of its advantage.
#[test]
fn bcnet_keeps_most_of_its_gain_with_stock_peers() {
    let (stock, bcnet) = run_both_engines("battle");
    let (stock_lossy, bcnet_lossy) = run_both_engines("battle-loss5");
    let sides: [(&str, &[usize]); 2] = [("host", &[0]), ("clients", &[1, 2, 3])];
    for (side, nodes) in sides {
        let mixed = run_seeds(&format!("battle-bcnet-{side}"), None);
        let mixed_lossy = run_seeds(&format!("battle-loss5-bcnet-{side}"), None);
        let acks = |runs: &[RunSummary]| {
            sum(runs, |run| nodes.iter().map(|node| run.nodes[*node].counters.ack_bytes).sum())
        };
        let late = |runs: &[RunSummary]| {
            nodes.iter().map(|node| p99(runs, Some(*node))).sum::<f64>() / nodes.len() as f64
        };
        let kept = |pure: f64, mixed: f64| (1.0 - mixed) / (1.0 - pure);
        let acks_kept = kept(acks(&bcnet) / acks(&stock), acks(&mixed) / acks(&stock));
        let late_kept =
            kept(late(&bcnet_lossy) / late(&stock_lossy), late(&mixed_lossy) / late(&stock_lossy));
        println!(
            "bcnet {side} with stock peers: ACK bytes {:.2} % of stock's, p99 {:.0} of {:.0} ms; gains kept {:.0} % and {:.0} %",
            100.0 * acks(&mixed) / acks(&stock),
            late(&mixed_lossy),
            late(&stock_lossy),
            100.0 * acks_kept,
            100.0 * late_kept
        );
        assert!(acks_kept >= 0.8 && late_kept >= 0.8, "{side}: {acks_kept} {late_kept}");
    }
}

/// The generated traffic has the rates of the recorded battle.
#[test]
fn battle_pattern_has_the_recorded_rates() {
    let [run] = &run_seeds("battle", Some(EngineKind::Stock))[..1] else { unreachable!() };
    let seconds = run.duration.as_secs_f64();
    let useful = |node: usize| run.nodes[node].counters.useful_acks as f64 / seconds;
    // Recorded: 0.39 per second and client to the host, 1.30 from it.
    let (up, down) = ((useful(1) + useful(2) + useful(3)) / 3.0, useful(0) / 3.0);
    println!("reliable per second and client: {up:.2} to the host, {down:.2} from it");
    assert!((0.33..0.45).contains(&up) && (1.1..1.5).contains(&down), "{up} {down}");
    // Recorded: 33.2 messages per second and client in both directions, 1.51 per datagram without ACKs.
    let messages = run.total_counters().payloads as f64 / seconds / 3.0;
    println!("messages per second and client: {messages:.1}");
    assert!((31.0..37.0).contains(&messages), "{messages}");
}

fn run_both_engines(name: &str) -> (Vec<RunSummary>, Vec<RunSummary>) {
    (run_seeds(name, Some(EngineKind::Stock)), run_seeds(name, Some(EngineKind::Bcnet)))
}

fn run_seeds(name: &str, engine: Option<EngineKind>) -> Vec<RunSummary> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios").join(name).with_extension("toml");
    let scenario = Scenario::parse(&fs::read_to_string(path).expect("the scenario file exists"))
        .expect("the scenario is valid");
    let seeds = 1..=SEEDS;
    seeds
        .map(|seed| {
            bcnet_lab::run(&scenario, &RunOptions { engine, seed: Some(seed), ..RunOptions::default() })
        })
        .collect()
}

fn sum(runs: &[RunSummary], of: impl Fn(&RunSummary) -> u64) -> f64 {
    runs.iter().map(|run| of(run) as f64).sum()
}

/// Returns the 99th percentile of the delay over all seeds, in milliseconds.
fn p99(runs: &[RunSummary], node: Option<usize>) -> f64 {
    RunSummary::pooled_delay_quantile(runs, node, 0.99).expect("reliable messages")
}

fn ack_bytes(run: &RunSummary) -> u64 {
    run.total_counters().ack_bytes
}

fn datagrams(run: &RunSummary) -> u64 {
    run.total_counters().datagrams
}

fn bytes(run: &RunSummary) -> u64 {
    run.total_counters().bytes
}
