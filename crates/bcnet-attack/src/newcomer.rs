//! Honest newcomers, who try to join one after the other.

use std::time::Duration;

use bcnet_transport::Time;

use crate::Environment;
use crate::delays::{DelaySamples, sleep_until};
use crate::player::{AttackPlayer, JoinRequest, LinkProfile, wait_for_players};
use crate::process::Process;

/// Results of join attempts.
#[derive(Debug, Clone, Default)]
pub(crate) struct JoinResults {
    pub(crate) tries: u64,
    /// The delays of successful attempts.
    pub(crate) delays: DelaySamples,
}

impl JoinResults {
    /// Returns the share of attempts that succeeded in time.
    pub(crate) fn success_share(&self) -> f64 {
        self.delays.count() as f64 / self.tries.max(1) as f64
    }
}

/// Lets newcomers join one after the other, each from a different network.
///
/// The attempts are spread over the measurement. Each newcomer leaves as soon as it is in the game.
pub(crate) fn try_joins(env: &Environment, process: &Process) -> anyhow::Result<JoinResults> {
    let mut joins = JoinResults::default();
    let start = env.clock.now();
    // All attempts together must end before the attack ends.
    let end = start + max_total_time(env);
    for number in 0..env.tries {
        let due = start + (env.measure_time * u32::from(number) / u32::from(env.tries));
        sleep_until(env.clock, due);
        if env.clock.now() + JOIN_TIMEOUT > end {
            break;
        }
        joins.tries += 1;
        if let Some(delay) = join_once(env, process, number)? {
            joins.delays.add(delay);
        }
    }
    Ok(joins)
}

/// Returns the longest time that all attempts together may take.
pub(crate) fn max_total_time(env: &Environment) -> Duration {
    2 * env.measure_time + 4 * JOIN_TIMEOUT
}

/// Returns how long the join took; `None` after a timeout.
pub(crate) fn join_once(
    env: &Environment,
    process: &Process,
    number: u16,
) -> anyhow::Result<Option<Duration>> {
    let request = JoinRequest {
        server: process.address(),
        from: env.sandbox.honest_address(FIRST_ADDRESS + number),
        name: &format!("{NEWCOMER_NAME} {number}"),
        password: process.password(),
        nonce: (env.seed as u32).wrapping_mul(0x9E37_79B9) ^ u32::from(number),
        link: LinkProfile::UNLIMITED,
    };
    let clock = env.clock;
    let start = clock.now();
    let end = start + JOIN_TIMEOUT;
    let mut player = AttackPlayer::connect(env.sandbox, clock, request)?;
    while player.entered.is_none() && player.end.is_none() && clock.now() < end {
        player.poll(|_, _, _| {});
        wait_for_players(clock, [&player], end);
    }
    let entered: Option<Time> = player.entered.filter(|entered| *entered <= end);
    player.leave();
    Ok(entered.map(|entered| entered.since(start)))
}

/// The first word of the name of each newcomer.
pub(crate) const NEWCOMER_NAME: &str = "Newcomer";
/// The longest time that a newcomer waits.
pub(crate) const JOIN_TIMEOUT: Duration = Duration::from_secs(10);
/// The number of the first newcomer's address; other honest players have lower numbers.
const FIRST_ADDRESS: u16 = 1000;
