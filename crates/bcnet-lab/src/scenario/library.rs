//! The project's own scenarios.

macro_rules! built_in {
    ($($name:literal,)*) => {
        /// The project's own scenarios, by name: every file of the directory `scenarios`.
        pub const BUILT_IN: &[(&str, &str)] =
            &[$(($name, include_str!(concat!("../../scenarios/", $name, ".toml"))),)*];
    };
}

built_in! {
    "battle",
    "battle-bcnet-clients",
    "battle-bcnet-host",
    "battle-day",
    "battle-lan",
    "battle-loss20",
    "battle-loss5",
    "battle-loss5-bcnet-clients",
    "battle-loss5-bcnet-host",
    "blocked-clock",
    "budget",
    "cap255",
    "deadlock",
    "deadlock-keepalives",
    "deadlock-leave",
    "deadlock-traffic",
    "dedup",
    "forced-reliable",
    "growth",
    "h1-three-losses",
    "h2-requeue",
    "h3-wire",
    "h4-same-frame",
    "h5-aggregate",
    "h6-together",
    "h7-channel",
    "lull",
    "memory",
    "mixing",
    "p01",
    "p02",
    "p03",
    "p04",
    "p07",
    "p07-own-entry",
    "p09",
    "p10",
    "p10-budget",
    "p10-parts",
    "p11",
    "p12",
    "p14",
    "p14-wrap",
    "p15",
    "p17",
    "parts-deaf",
    "sawtooth",
    "slow-tick",
    "slow-tick-50us",
    "starvation",
    "unknown-type",
}
