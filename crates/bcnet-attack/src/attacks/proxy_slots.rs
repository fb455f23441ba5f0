//! Forged players who join through a proxy by guessing their ids.

use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::Duration;

use anyhow::Context;
use bcnet_transport::wire::PeerId;

use super::run_cases;
use super::stock::HEALING_PROXY;
use crate::Environment;
use crate::delays::sleep_until;
use crate::forged;
use crate::forger::{FloodRate, FloodSummary, Forger, flood};
use crate::metrics::{AttackMetric, MetricUnit};
use crate::newcomer::{JoinResults, NEWCOMER_NAME, max_total_time, try_joins};
use crate::process::Process;

type Case = fn(&Environment) -> anyhow::Result<Vec<AttackMetric>>;

const CASES: [(&str, Case); 2] = [("bcnet serve: ", attack_server), ("stock host: ", attack_stock_host)];

pub(crate) fn proxy_slots(env: &Environment) -> anyhow::Result<Vec<AttackMetric>> {
    run_cases(env, "proxy-slots", &CASES, |case| case.0, |(_, attack)| attack(env))
}

/// The documented configuration: the proxy has loopback addresses toward the server.
fn attack_server(env: &Environment) -> anyhow::Result<Vec<AttackMetric>> {
    let server = Process::serve(env, &[])?;
    let proxy = Process::proxy(env, server.address(), &["--upstream-source", "127.1.0.0/16"])?;
    let ((held, joins), flooded) = forge_joins(env, &proxy, || {
        let (mut held, end) = (0, env.clock.now() + env.measure_time);
        while env.clock.now() < end {
            held = server.players()?.len().max(held);
            sleep_until(env.clock, env.clock.now() + Duration::from_millis(200));
        }
        Ok(held)
    })?;
    let held = AttackMetric::new("bcnet serve: forged slots held", MetricUnit::Count, held as f64);
    let joined = join_share("bcnet serve: ", &joins).at_least(0.95);
    Ok(vec![held.at_most(0.0), joined, flooded.metric()])
}

fn attack_stock_host(env: &Environment) -> anyhow::Result<Vec<AttackMetric>> {
    let start = env.clock.now();
    let mut host = Process::stock_host(env)?;
    let proxy = Process::proxy(env, host.address(), HEALING_PROXY)?;
    let ((end, joins), flooded) = forge_joins(env, &proxy, || {
        sleep_until(env.clock, env.clock.now() + env.measure_time);
        // The clock of the host began with its process.
        Ok(env.clock.now().since(start).as_secs_f64())
    })?;
    let slots = ForgedSlots::parse(&host.stock_events()?, end)?;
    let is_running = f64::from(u8::from(host.is_alive()));
    Ok(vec![
        AttackMetric::new("stock host: forged slots held", MetricUnit::Count, slots.most as f64).at_most(2.0),
        AttackMetric::new("stock host: longest time", MetricUnit::Seconds, slots.longest).at_most(3.0),
        AttackMetric::new("stock host: still runs", MetricUnit::Count, is_running).at_least(1.0),
        // The newcomers compete with the flood for the places of clients without a proof. So there is no limit.
        join_share("stock host: ", &joins),
        flooded.metric(),
    ])
}

/// Runs `watch` and then honest newcomers, while ten forged addresses try all ids at a proxy.
fn forge_joins<T: Send>(
    env: &Environment,
    proxy: &Process,
    watch: impl FnOnce() -> anyhow::Result<T>,
) -> anyhow::Result<((T, JoinResults), FloodSummary)> {
    let forger = Forger::new(env.sandbox, proxy.address())?;
    let script = forged_script();
    let flood_rate = FloodRate { rate: env.rate(1000), max: env.measure_time + max_total_time(env) };
    let write = |forger: &mut Forger, number: u64| {
        let (from, datagram) = &script[number as usize % script.len()];
        forger.push(*from, datagram);
    };
    flood(env.clock, flood_rate, forger, write, || {
        let watched = watch()?;
        Ok((watched, try_joins(env, proxy)?))
    })
}

/// Returns connect requests of ten addresses, each with an ACK and a name under every id.
fn forged_script() -> Vec<(SocketAddrV4, Vec<u8>)> {
    let mut script = Vec::new();
    for player in 0..FORGED_PLAYERS {
        let from = SocketAddrV4::new(Ipv4Addr::new(91, 20 + player, 7, 1), 4000);
        script.push((from, forged::connect(u32::from(player), "")));
        let first = (2..126).filter_map(|id| forged::blind_join(PeerId(id), "Forged").into_iter().next());
        script.extend(first.map(|datagram| (from, datagram)));
    }
    script
}

/// Returns the share of newcomers who joined during the attack, without a limit.
fn join_share(label: &str, joins: &JoinResults) -> AttackMetric {
    AttackMetric::new(
        format!("{label}newcomers joined within 10 s"),
        MetricUnit::Share,
        joins.success_share(),
    )
}

/// The forged players at a stock host.
#[derive(Debug, PartialEq)]
struct ForgedSlots {
    /// The largest number at one time.
    most: usize,
    /// The longest time for which one was connected, in seconds.
    longest: f64,
}

impl ForgedSlots {
    /// Reads the events of a stock host, one in each line. `end` is the time at which all forged players still count.
    fn parse(events: &str, end: f64) -> anyhow::Result<Self> {
        let (mut open, mut closed) = (HashMap::<&str, f64>::new(), Vec::new());
        for line in events.lines() {
            let (time, event) = line.split_once(' ').context("an event without a time")?;
            let time: f64 = time.parse().with_context(|| line.to_owned())?;
            let peer = event.split_once("peer: PeerId(").and_then(|(_, rest)| rest.split_once(')'));
            let Some((peer, _)) = peer else { continue };
            if event.starts_with("Joining") {
                open.insert(peer, time);
            } else if event.starts_with("Joined") && event.contains(NEWCOMER_NAME) {
                open.remove(peer);
            } else if event.starts_with("Left") {
                closed.extend(open.remove(peer).map(|since| (since, time)));
            }
        }
        closed.extend(open.values().filter(|since| **since < end).map(|since| (*since, end)));
        let at_once = |time: f64| closed.iter().filter(|(from, to)| *from <= time && time < *to).count();
        Ok(Self {
            most: closed.iter().map(|(from, _)| at_once(*from)).max().unwrap_or(0),
            longest: closed.iter().map(|(from, to)| to - from).fold(0.0, f64::max),
        })
    }
}

const FORGED_PLAYERS: u8 = 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forged_slots_are_those_of_peers_that_are_no_newcomers() {
        let events = "\
            0.5 RoundStarted { round: 1 }\n\
            1.0 Joining { peer: PeerId(2), address: 10.9.0.1:4 }\n\
            1.5 Joining { peer: PeerId(3), address: 10.9.0.2:4 }\n\
            1.6 Joined { peer: PeerId(3), name: \"Newcomer 0\" }\n\
            2.0 Joining { peer: PeerId(4), address: 10.9.0.3:4 }\n\
            3.0 Left { peer: PeerId(2), name: \"\" }\n\
            9.0 Left { peer: PeerId(3), name: \"Newcomer 0\" }\n";
        assert_eq!(ForgedSlots::parse(events, 6.0).expect("valid"), ForgedSlots { most: 2, longest: 4.0 });
    }
}
