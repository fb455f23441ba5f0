//! Attacks at the expense of one who is in.

use std::net::SocketAddrV4;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use bcnet_lab::Rng;
use bcnet_session::client::Event;

use super::players::{HEAD_START, beside, join, send_tiny};
use super::{PLAYERS, ROOMY, compare, cost};
use crate::Environment;
use crate::forge::Forger;
use crate::group::PlayerGroup;
use crate::metrics::{Metric, MetricUnit};
use crate::player::{Player, wait};
use crate::process::Process;

pub(crate) fn silent_member(env: &Environment) -> anyhow::Result<Vec<Metric>> {
    let env = &Environment { time: env.time.min(MAX_SILENCE), ..env.clone() };
    let server = Process::serve(env, &[ROOMY])?;
    let mut group = PlayerGroup::join(env, &server, PLAYERS)?;
    let mut silent = join(env, server.address(), "Silent")?;
    let quiet = group.play(&server, env.time)?;
    silent.turn(|_, _, _| {});
    let before = server.usage();
    let start = env.clock.now();
    let is_over = AtomicBool::new(false);
    let (attacked, back) = thread::scope(|scope| {
        let attacker = scope.spawn(|| send_tiny(env, server.address(), &is_over));
        group.listen(HEAD_START);
        let attacked = group.play(&server, env.time);
        let back = come_back(env, &mut group, &mut silent);
        is_over.store(true, Ordering::Relaxed);
        attacker.join().map_err(|_| anyhow::anyhow!("the attacker has failed"))??;
        anyhow::Ok((attacked?, back))
    })?;
    let is_in = server.players()?.iter().any(|(name, _)| name == "Silent") && silent.over.is_none();
    let mut metrics = compare("", &quiet, &attacked);
    metrics.push(
        Metric::new("silent player is still in", MetricUnit::Count, f64::from(u8::from(is_in))).at_least(1.0),
    );
    metrics.push(Metric::new("and hears again after", MetricUnit::Seconds, back.as_secs_f64()).at_most(5.0));
    metrics.extend(cost("", before, server.usage(), env.clock.now().since(start).as_secs_f64()));
    Ok(metrics)
}

/// Lets a player listen again that has not, and returns how long it takes until it hears what another says. What was sent to it
/// meanwhile is lost.
fn come_back(env: &Environment, group: &mut PlayerGroup, silent: &mut Player) -> Duration {
    silent.takes = |_| false;
    silent.turn(|_, _, _| {});
    silent.takes = |_| true;
    let start = env.clock.now();
    let mut heard = None;
    while heard.is_none() && env.clock.now().since(start) < MAX_RETURN {
        group.listen(Duration::from_millis(20));
        silent.turn(|event, _, now| {
            if matches!(event, Event::Received { reliable: true }) {
                heard.get_or_insert_with(|| now.since(start));
            }
        });
    }
    heard.unwrap_or(MAX_RETURN)
}

pub(crate) fn member_flood(env: &Environment) -> anyhow::Result<Vec<Metric>> {
    let server = Process::serve(env, &[ROOMY])?;
    let mut group = PlayerGroup::join(env, &server, PLAYERS)?;
    let quiet = group.play(&server, env.time)?;
    let before = server.usage();
    let start = env.clock.now();
    let attacked = beside(env, &server, &mut group, flood_as_member)?;
    let mut metrics = compare("", &quiet, &attacked);
    metrics.extend(cost("", before, server.usage(), env.clock.now().since(start).as_secs_f64()));
    Ok(metrics)
}

/// Joins and plays, while somebody else sends garbage from its address.
fn flood_as_member(env: &Environment, server: SocketAddrV4, is_over: &AtomicBool) -> anyhow::Result<()> {
    let mut player = join(env, server, "Member")?;
    let mut forger = Forger::new(env.sandbox, server)?;
    let mut rng = Rng::new(env.seed);
    let (clock, from) = (env.clock, player.address()?);
    let (start, rate, mut sent) = (clock.now(), env.rate(100_000), 0);
    while !is_over.load(Ordering::Relaxed) && player.over.is_none() {
        let due = (clock.now().since(start).as_secs_f64() * f64::from(rate)) as u64;
        // Who was held up does not make up for all of it at once.
        sent = due.saturating_sub(u64::from(rate / 20)).max(sent);
        while sent < due {
            sent += 1;
            let mut bytes = [0; 64];
            let len = 1 + rng.size(bytes.len() - 1);
            let payload = bytes.get_mut(..len).unwrap_or_default();
            rng.fill(payload);
            forger.push(from, payload);
        }
        forger.flush();
        player.turn(|_, _, _| {});
        wait(clock, [&player], clock.now() + Duration::from_millis(1));
    }
    anyhow::ensure!(player.over.is_none(), "the member was thrown out: {:?}", player.over);
    player.leave();
    Ok(())
}

/// How long a line is down: shorter than a player may be silent.
const MAX_SILENCE: Duration = Duration::from_secs(20);
/// How long it is waited for one who comes back.
const MAX_RETURN: Duration = Duration::from_secs(10);
