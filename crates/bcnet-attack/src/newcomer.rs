//! An honest newcomer, who tries to join again and again.

use std::time::Duration;

use bcnet_transport::Time;

use crate::Environment;
use crate::delays::{Delays, sleep_until};
use crate::player::{JoinRequest, Link, Player, wait};
use crate::process::Process;

/// How newcomers fared.
#[derive(Debug, Clone, Default)]
pub(crate) struct Joins {
    pub(crate) tries: u64,
    /// How long those took who got in.
    pub(crate) delays: Delays,
}

impl Joins {
    /// Returns the share of tries that led into the game in time.
    pub(crate) fn share(&self) -> f64 {
        self.delays.count() as f64 / self.tries.max(1) as f64
    }
}

/// Lets newcomers join one after the other, each from a network of its own, spread over the time of the victims. Each plays
/// for a moment and leaves.
pub(crate) fn try_joins(env: &Environment, process: &Process) -> anyhow::Result<Joins> {
    let mut joins = Joins::default();
    let start = env.clock.now();
    // Together they must not take longer than the attack lasts.
    let end = start + max_time(env);
    for number in 0..env.tries {
        let due = start + (env.time * u32::from(number) / u32::from(env.tries));
        sleep_until(env.clock, due);
        if env.clock.now() + PATIENCE > end {
            break;
        }
        joins.tries += 1;
        if let Some(delay) = join_once(env, process, number)? {
            joins.delays.add(delay);
        }
    }
    Ok(joins)
}

/// Returns how long tries to join may take together.
pub(crate) fn max_time(env: &Environment) -> Duration {
    2 * env.time + 4 * PATIENCE
}

/// Returns how long it took to join; `None` if it took too long.
pub(crate) fn join_once(
    env: &Environment,
    process: &Process,
    number: u16,
) -> anyhow::Result<Option<Duration>> {
    let request = JoinRequest {
        server: process.address(),
        from: env.sandbox.honest(FIRST + number),
        name: &format!("Newcomer {number}"),
        password: process.password(),
        nonce: (env.seed as u32).wrapping_mul(0x9E37_79B9) ^ u32::from(number),
        link: Link::UNLIMITED,
    };
    let clock = env.clock;
    let start = clock.now();
    let end = start + PATIENCE;
    let mut player = Player::connect(env.sandbox, clock, request)?;
    while player.entered.is_none() && player.over.is_none() && clock.now() < end {
        player.turn(|_, _, _| {});
        wait(clock, [&player], end);
    }
    let entered: Option<Time> = player.entered.filter(|entered| *entered <= end);
    player.leave();
    Ok(entered.map(|entered| entered.since(start)))
}

/// How long a newcomer waits.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);
/// Newcomers have other addresses than those who are there already.
const FIRST: u16 = 1000;
