//! Attacks around one connected player: its link is down, or its address is forged.

use std::net::SocketAddrV4;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use bcnet_lab::Rng;
use bcnet_session::client::Event;

use super::players::{HEAD_START, join, play_during_attack, send_tiny};
use super::{PLAYERS, SIXTEEN_SLOTS, compare, resource_usage};
use crate::Environment;
use crate::forger::Forger;
use crate::group::PlayerGroup;
use crate::metrics::{AttackMetric, MetricUnit};
use crate::player::{AttackPlayer, wait_for_players};
use crate::process::Process;

pub(crate) fn silent_member(env: &Environment) -> anyhow::Result<Vec<AttackMetric>> {
    let env = &Environment { measure_time: env.measure_time.min(MAX_IDLE), ..env.clone() };
    let server = Process::serve(env, &[SIXTEEN_SLOTS])?;
    let mut group = PlayerGroup::join(env, &server, PLAYERS)?;
    let mut silent = join(env, server.address(), "Silent")?;
    let quiet = group.play(&server, env.measure_time)?;
    silent.poll(|_, _, _| {});
    let before = server.usage();
    let start = env.clock.now();
    let is_over = AtomicBool::new(false);
    let (attacked, back) = thread::scope(|scope| {
        let attacker = scope.spawn(|| send_tiny(env, server.address(), &is_over));
        group.stay_idle(HEAD_START);
        let attacked = group.play(&server, env.measure_time);
        let back = resume_listening(env, &mut group, &mut silent);
        is_over.store(true, Ordering::Relaxed);
        attacker.join().map_err(|_| anyhow::anyhow!("the attacker has panicked"))??;
        anyhow::Ok((attacked?, back))
    })?;
    let is_in = server.players()?.iter().any(|(name, _)| name == "Silent") && silent.end.is_none();
    let mut metrics = compare("", &quiet, &attacked);
    metrics.push(
        AttackMetric::new("silent player is still connected", MetricUnit::Count, f64::from(u8::from(is_in)))
            .at_least(1.0),
    );
    metrics.push(
        AttackMetric::new("silent player receives again after", MetricUnit::Seconds, back.as_secs_f64())
            .at_most(5.0),
    );
    metrics.extend(resource_usage("", before, server.usage(), env.clock.now().since(start).as_secs_f64()));
    Ok(metrics)
}

/// Lets a silent player receive again, and returns the time until it receives another player's message.
///
/// Datagrams that arrived for the player during the silence are dropped.
fn resume_listening(env: &Environment, group: &mut PlayerGroup, silent: &mut AttackPlayer) -> Duration {
    silent.accepts = |_| false;
    silent.poll(|_, _, _| {});
    silent.accepts = |_| true;
    let start = env.clock.now();
    let mut received = None;
    while received.is_none() && env.clock.now().since(start) < MAX_RESUME_TIME {
        group.stay_idle(Duration::from_millis(20));
        silent.poll(|event, _, now| {
            if matches!(event, Event::Received { reliable: true }) {
                received.get_or_insert_with(|| now.since(start));
            }
        });
    }
    received.unwrap_or(MAX_RESUME_TIME)
}

pub(crate) fn member_flood(env: &Environment) -> anyhow::Result<Vec<AttackMetric>> {
    let server = Process::serve(env, &[SIXTEEN_SLOTS])?;
    let mut group = PlayerGroup::join(env, &server, PLAYERS)?;
    let quiet = group.play(&server, env.measure_time)?;
    let before = server.usage();
    let start = env.clock.now();
    let attacked = play_during_attack(env, &server, &mut group, flood_as_member)?;
    let mut metrics = compare("", &quiet, &attacked);
    metrics.extend(resource_usage("", before, server.usage(), env.clock.now().since(start).as_secs_f64()));
    Ok(metrics)
}

/// Joins and plays, while garbage is sent with the player's source address.
fn flood_as_member(env: &Environment, server: SocketAddrV4, is_over: &AtomicBool) -> anyhow::Result<()> {
    let mut player = join(env, server, "Member")?;
    let mut forger = Forger::new(env.sandbox, server)?;
    let mut rng = Rng::new(env.seed);
    let (clock, from) = (env.clock, player.address()?);
    let (start, rate, mut sent) = (clock.now(), env.rate(100_000), 0);
    while !is_over.load(Ordering::Relaxed) && player.end.is_none() {
        let due = (clock.now().since(start).as_secs_f64() * f64::from(rate)) as u64;
        // After a delay, skips the datagrams that are more than 50 ms late.
        sent = due.saturating_sub(u64::from(rate / 20)).max(sent);
        while sent < due {
            sent += 1;
            let mut bytes = [0; 64];
            let len = 1 + rng.index(bytes.len() - 1);
            let payload = bytes.get_mut(..len).unwrap_or_default();
            rng.fill(payload);
            forger.push(from, payload);
        }
        forger.flush();
        player.poll(|_, _, _| {});
        wait_for_players(clock, [&player], clock.now() + Duration::from_millis(1));
    }
    anyhow::ensure!(player.end.is_none(), "the server disconnected the player: {:?}", player.end);
    player.leave();
    Ok(())
}

/// The longest outage: shorter than the 45 s after which the server disconnects a silent player.
const MAX_IDLE: Duration = Duration::from_secs(20);
/// The longest wait for the silent player to receive again.
const MAX_RESUME_TIME: Duration = Duration::from_secs(10);
