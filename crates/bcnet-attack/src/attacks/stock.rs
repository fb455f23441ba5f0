//! Attacks through a proxy on a host with the engine of the original, which looks up peers by id alone.

use std::collections::HashMap;
use std::net::SocketAddrV4;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use bcnet_lab::Rng;
use bcnet_transport::wire::PeerId;

use super::players::{Attacker, join, mutated_datagram};
use super::{PLAYERS, run_cases};
use crate::Environment;
use crate::delays::{millis, sleep_until};
use crate::forged;
use crate::forger::Forger;
use crate::group::PlayerGroup;
use crate::metrics::{AttackMetric, MetricUnit};
use crate::player::{LinkProfile, wait_for_players};
use crate::process::Process;
use crate::sniffer::{Direction, Sniffer};

const CASES: [(&str, Attacker); 3] = [
    ("stranger: ", send_as_stranger),
    ("joined player: ", send_as_joined_player),
    ("malformed: ", send_malformed),
];

pub(crate) fn proxy_goodbyes(env: &Environment) -> anyhow::Result<Vec<AttackMetric>> {
    run_cases(
        env,
        "proxy-goodbyes",
        &CASES,
        |case| case.0,
        |(label, attack)| attack_stock_host(env, label, *attack),
    )
}

/// Lets players play at a stock host behind a healing proxy during an attack on the proxy.
fn attack_stock_host(env: &Environment, label: &str, attack: Attacker) -> anyhow::Result<Vec<AttackMetric>> {
    let mut host = Process::stock_host(env)?;
    let proxy = Process::proxy(env, host.address(), HEALING_PROXY)?;
    let mut tap = Sniffer::new(host.address())?;
    let is_over = AtomicBool::new(false);
    let (quiet, attacked, reachable, foreign) = thread::scope(|scope| {
        let watcher = scope.spawn(|| count_foreign_ids(env, &mut tap, &is_over));
        let players = play_at_stock_host(env, (&host, &proxy), attack);
        is_over.store(true, Ordering::Relaxed);
        let foreign = watcher.join().map_err(|_| anyhow::anyhow!("the sniffer has panicked"))?;
        let (quiet, attacked, reachable) = players?;
        anyhow::Ok((quiet, attacked, reachable, foreign))
    })?;
    let is_running = f64::from(u8::from(host.is_alive()));
    let metric = |name: &str, unit, value| AttackMetric::new(format!("{label}{name}"), unit, value);
    Ok(vec![
        metric("players lost", MetricUnit::Count, f64::from(PLAYERS) - reachable as f64).at_most(0.0),
        metric("datagrams under foreign ids passed", MetricUnit::Count, foreign as f64).at_most(0.0),
        metric("forged chat delivered", MetricUnit::Count, attacked.forged_chat as f64).at_most(0.0),
        metric("stock host still runs", MetricUnit::Count, is_running).at_least(1.0),
        metric("chat not delivered", MetricUnit::Share, attacked.chat_loss())
            .baseline(quiet.chat_loss())
            .at_most(0.0),
        metric("chat, p99 delay", MetricUnit::Millis, millis(attacked.chat.quantile(0.99)))
            .baseline(millis(quiet.chat.quantile(0.99))),
    ])
}

/// Measures players without and during an attack, and counts those who are reachable afterwards.
fn play_at_stock_host(
    env: &Environment,
    (host, proxy): (&Process, &Process),
    attack: Attacker,
) -> anyhow::Result<(crate::group::PlayerMeasurement, crate::group::PlayerMeasurement, u64)> {
    let mut group = PlayerGroup::join_at(env, (proxy.address(), ""), PLAYERS, LinkProfile::UNLIMITED)?;
    let quiet = group.play(host, env.measure_time.min(MAX_BASELINE_TIME))?;
    let is_over = AtomicBool::new(false);
    let attacked = thread::scope(|scope| {
        let attacker = scope.spawn(|| attack(env, proxy.address(), &is_over));
        let attacked = group.play(host, env.measure_time);
        is_over.store(true, Ordering::Relaxed);
        attacker.join().map_err(|_| anyhow::anyhow!("the attacker has panicked"))??;
        attacked
    })?;
    Ok((quiet, attacked, group.count_reachable()))
}

/// Counts the datagrams to a host with a foreign sender id.
///
/// The own id of a source address is the one that the host assigned to it.
fn count_foreign_ids(env: &Environment, tap: &mut Sniffer, is_over: &AtomicBool) -> u64 {
    let mut assigned: HashMap<SocketAddrV4, PeerId> = HashMap::new();
    let mut foreign = 0;
    while !is_over.load(Ordering::Relaxed) {
        let end = env.clock.now() + WATCH_INTERVAL;
        tap.receive_both_until(env.clock, end, |direction, source, datagram| match direction {
            Direction::From => {
                if let Some(id) = forged::assigned_id(datagram) {
                    assigned.insert(source, id);
                }
            }
            Direction::To => {
                let sender = datagram.first().copied().map(PeerId);
                let is_own = sender == assigned.get(&source).copied();
                foreign += u64::from(!is_own && sender != Some(PeerId::UNASSIGNED));
            }
        });
    }
    foreign
}

/// Returns disconnect messages and chat under the first ids of a stock host, except `own`.
fn datagrams_of_others(own: Option<PeerId>, round: u16) -> Vec<Vec<u8>> {
    let ids = (2..=9).map(PeerId).filter(|id| Some(*id) != own);
    let forge = |id| {
        let chat = forged::chat(id, b"lies");
        [
            forged::datagram(id, &[forged::unreliable_disconnect(id)]),
            forged::datagram(id, &[forged::disconnect(round, id)]),
            forged::datagram(id, &[forged::reliable(round, &chat)]),
        ]
    };
    ids.flat_map(forge).collect()
}

/// Sends one connect request, and then goodbyes and chat under the ids of others.
fn send_as_stranger(env: &Environment, proxy: SocketAddrV4, is_over: &AtomicBool) -> anyhow::Result<()> {
    // The source address is the real one of the attacker.
    let from = SocketAddrV4::new(env.sandbox.attacker_address(), 4000);
    let mut forger = Forger::new(env.sandbox, proxy)?;
    forger.push(from, &forged::connect(env.seed as u32, ""));
    forger.flush();
    for round in 0.. {
        sleep_until(env.clock, env.clock.now() + ROUND_INTERVAL);
        if is_over.load(Ordering::Relaxed) {
            break;
        }
        datagrams_of_others(None, round).iter().for_each(|datagram| forger.push(from, datagram));
        forger.flush();
    }
    Ok(())
}

/// Joins, and then sends goodbyes and chat under the ids of others.
fn send_as_joined_player(env: &Environment, proxy: SocketAddrV4, is_over: &AtomicBool) -> anyhow::Result<()> {
    let mut player = join(env, proxy, "Nuisance")?;
    for round in 0.. {
        let due = env.clock.now() + ROUND_INTERVAL;
        while env.clock.now() < due {
            player.poll(|_, _, _| {});
            wait_for_players(env.clock, [&player], due);
        }
        if is_over.load(Ordering::Relaxed) {
            break;
        }
        let others = datagrams_of_others(Some(player.client.id()), round);
        others.iter().for_each(|datagram| player.send_raw(proxy, datagram));
    }
    player.leave();
    Ok(())
}

/// Joins, and then sends mutated datagrams under the own id.
fn send_malformed(env: &Environment, proxy: SocketAddrV4, is_over: &AtomicBool) -> anyhow::Result<()> {
    let mut player = join(env, proxy, "Mutant")?;
    let mut rng = Rng::new(env.seed);
    while !is_over.load(Ordering::Relaxed) {
        for _ in 0..4 {
            player.send_raw(proxy, &mutated_datagram(&mut rng, player.client.id()));
        }
        player.poll(|_, _, _| {});
        sleep_until(env.clock, env.clock.now() + Duration::from_millis(20));
    }
    Ok(())
}

/// Source addresses toward the host, and the cure of the stock transport.
pub(super) const HEALING_PROXY: &[&str] = &["--heal", "--upstream-source", "10.9.0.0/24"];
/// The longest measurement without an attack.
const MAX_BASELINE_TIME: Duration = Duration::from_secs(4);
const ROUND_INTERVAL: Duration = Duration::from_millis(250);
const WATCH_INTERVAL: Duration = Duration::from_millis(50);
