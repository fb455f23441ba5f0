//! Scenarios with changed keys, comparisons, and the proxy in front of a host.

use bcnet_lab::scenario::{BUILT_IN, BUILT_IN_COMPARISONS, Change, Comparison};
use bcnet_lab::{RunOptions, RunSummary, Scenario};

/// A scenario that is rewritten with a changed key stays the same, except for the lines of its expectations.
#[test]
fn changed_scenario_differs_only_in_the_change() {
    for (name, text) in BUILT_IN {
        let plain = Scenario::parse(text).expect(name);
        let same = Change::new("seed", &plain.seed.to_string());
        let same = Scenario::parse_changed(text, &[same]).expect(name);
        assert_eq!(debug_text(same), debug_text(plain.clone()), "{name}");
        let other = Scenario::parse_changed(text, &[Change::new("seed", "77")]).expect(name);
        assert_eq!((other.seed, other.title), (77, plain.title), "{name}");
    }
}

/// The default of each variant key is the behaviour of the original. Any other value changes the traffic of a
/// scenario.
#[test]
fn every_variant_key_is_off_by_default_and_has_an_effect() {
    let run = |name: &str, changes: &[(&str, &str)]| {
        let changes: Vec<Change> = changes.iter().map(|(key, value)| Change::new(key, value)).collect();
        run_changed(name, &changes).fingerprint
    };
    for (key, default, other, scenario) in [
        ("gate", "traffic", "always", "deadlock-keepalives"),
        ("last_ack", "9", "3", "deadlock-keepalives"),
        ("free_acks", "3", "4", "deadlock"),
        ("dedup", "restart", "refresh", "dedup-restart"),
        ("ack_place", "first", "last", "starvation"),
        ("resend", "one", "all", "p12"),
        ("first_wait", "1.0", "0.25", "h2-requeue"),
        ("age_limit", "360", "5", "h2-requeue"),
        ("buffer", "512", "1024", "starvation"),
        ("relayed_goodbye", "linear", "fixed", "relayed-goodbye"),
        ("leaving_keepalives", "true", "false", "leaving-keepalives"),
        ("port_map", "any", "messages", "empty-datagram"),
    ] {
        let plain = run(scenario, &[]);
        assert_eq!(run(scenario, &[(key, default)]), plain, "{key} = {default} is not the default");
        assert_ne!(run(scenario, &[(key, other)]), plain, "{key} = {other} has no effect");
    }
}

#[test]
fn invalid_change_is_reported() {
    let text = BUILT_IN.iter().find(|(name, _)| *name == "deadlock").expect("there").1;
    for (key, value, part) in [
        ("gat", "always", "unknown key `gat`; did you mean `gate`?"),
        ("gate", "alway", "unknown gate `alway`; did you mean `always`?"),
        ("hots.gate", "always", "unknown node `hots`; did you mean `host`?"),
        ("link.lost", "0.1", "unknown key `lost`; did you mean `loss`?"),
        ("link.loss", "2", "2 is out of range"),
        ("proxy", "yes", "`proxy` must be none, pass or heal"),
        ("buffer", "9", "it must be 128 to 1024"),
        ("engine", "bc\"n\\et", "unknown engine"),
    ] {
        let mistake = Scenario::parse_changed(text, &[Change::new(key, value)]).expect_err(key);
        assert!(mistake.line == 0 && mistake.message.contains(part), "{key}: {mistake}");
    }
}

#[test]
fn built_in_comparisons_parse_and_have_distinct_variants() {
    for (name, text) in BUILT_IN_COMPARISONS {
        let comparison = Comparison::parse(text).unwrap_or_else(|mistake| panic!("{name}: {mistake}"));
        assert!(comparison.variants[0].changes.is_empty(), "{name}: the first variant must change nothing");
        for pair in comparison.variants.windows(2) {
            assert_ne!(pair[0].changes, pair[1].changes, "{name}: {} and {}", pair[0].name, pair[1].name);
        }
    }
}

/// A proxy at the host's place that only forwards changes no measurement. A healing proxy removes ACKs.
///
/// Healing removes seven of nine ACKs, and eight of nine once it has seen no loss for a while (T-79).
#[test]
fn proxy_in_a_scenario_forwards_or_heals() {
    let short = [Change::new("duration", "60")];
    let with = |value: &str, duration: &str| {
        run_changed("battle", &[Change::new("duration", duration), Change::new("proxy", value)])
    };
    let (plain, pass, heal) = (run_changed("battle", &short), with("pass", "60"), with("heal", "60"));
    // Before the experiment both hops have the delay, so keepalives are sent slightly later.
    let figures = |outcome: &RunSummary| {
        let total = outcome.total_counters();
        (total.acks, total.ack_bytes, total.ack_bytes_taken, total.delivered, total.retransmits)
    };
    assert_eq!(figures(&pass), figures(&plain));
    assert_eq!(pass.delay_quantile(None, 0.99), plain.delay_quantile(None, 0.99));
    let passed = pass.proxy.as_ref().expect("a proxy").counters;
    assert_eq!(passed.ack_bytes, passed.ack_bytes_taken);
    let healed = heal.proxy.as_ref().expect("a proxy").counters;
    assert_eq!(
        healed.ack_bytes_taken, passed.ack_bytes_taken,
        "the engines send different ACKs with and without healing"
    );
    let [before, after] =
        ["180", "240"].map(|duration| with("heal", duration).proxy.expect("a proxy").counters);
    let later = [after.ack_bytes - before.ack_bytes, after.ack_bytes_taken - before.ack_bytes_taken];
    for (factor, [passed, taken]) in [(4, [healed.ack_bytes, healed.ack_bytes_taken]), (8, later)] {
        assert!(passed * factor < taken, "{passed} of {taken}");
    }
    assert_eq!(heal.total_counters().delivered, plain.total_counters().delivered);
}

fn run_changed(name: &str, changes: &[Change]) -> RunSummary {
    let text = BUILT_IN.iter().find(|(known, _)| *known == name).expect(name).1;
    let scenario =
        Scenario::parse_changed(text, changes).unwrap_or_else(|mistake| panic!("{name}: {mistake}"));
    bcnet_lab::run(&scenario, &RunOptions::default())
}

fn debug_text(mut scenario: Scenario) -> String {
    scenario.expectations.iter_mut().for_each(|expect| expect.line = 0);
    format!("{scenario:?}")
}
