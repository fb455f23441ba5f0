//! Floods of garbage and queries.

use std::net::SocketAddrV4;
use std::thread;
use std::time::Duration;

use bcnet_lab::Rng;

use super::{PLAYERS, SIXTEEN_SLOTS, compare, resource_usage};
use crate::Environment;
use crate::delays::millis;
use crate::forger::{FloodRate, FloodSummary, Forger, any_network, flood};
use crate::group::{PlayerGroup, PlayerMeasurement};
use crate::metrics::{AttackMetric, MetricUnit};
use crate::player::LinkProfile;
use crate::process::Process;
use crate::query_client::query_repeatedly;

pub(crate) fn garbage_flood(env: &Environment) -> anyhow::Result<Vec<AttackMetric>> {
    let mut metrics = Vec::new();
    for (label, garbage) in [("empty: ", Garbage::Empty), ("random: ", Garbage::Random)] {
        env.progress("garbage-flood", &format!("{label}at the proxy"));
        let proxy = measure_flood(env, garbage, FloodTarget::Proxy)?;
        env.progress("garbage-flood", &format!("{label}at the server"));
        let server = measure_flood(env, garbage, FloodTarget::Server)?;
        metrics.extend(compare_with_proxy(label, &server, &proxy));
        metrics.push(server.flooded.metric());
    }
    Ok(metrics)
}

#[derive(Debug, Clone, Copy)]
enum Garbage {
    Empty,
    Random,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FloodTarget {
    Server,
    Proxy,
}

/// Measurements of players before, during and one second after a flood.
struct FloodMeasurements {
    quiet: PlayerMeasurement,
    attacked: PlayerMeasurement,
    after: PlayerMeasurement,
    flooded: FloodSummary,
    cost: Vec<AttackMetric>,
}

fn measure_flood(
    env: &Environment,
    garbage: Garbage,
    target: FloodTarget,
) -> anyhow::Result<FloodMeasurements> {
    let server = Process::serve(env, &[SIXTEEN_SLOTS])?;
    let proxy = match target {
        FloodTarget::Server => None,
        FloodTarget::Proxy => {
            Some(Process::proxy(env, server.address(), &["--upstream-source", "10.9.0.0/24"])?)
        }
    };
    let attacked = proxy.as_ref().unwrap_or(&server);
    let mut group = PlayerGroup::join_at(env, (attacked.address(), ""), PLAYERS, LinkProfile::UNLIMITED)?;
    let quiet = group.play(&server, env.measure_time)?;
    let before = attacked.usage();
    let (measured, flooded) =
        flood_with_garbage(env, garbage, attacked.address(), || group.play(&server, env.measure_time))?;
    let cost = resource_usage("", before, attacked.usage(), flooded.time.as_secs_f64());
    group.stay_idle(RECOVERY);
    let after = group.play(&server, env.measure_time / 2)?;
    Ok(FloodMeasurements { quiet, attacked: measured, after, flooded, cost })
}

/// Runs `victims` while garbage arrives from 65,000 forged networks.
fn flood_with_garbage<T: Send>(
    env: &Environment,
    garbage: Garbage,
    target: SocketAddrV4,
    victims: impl FnOnce() -> anyhow::Result<T>,
) -> anyhow::Result<(T, FloodSummary)> {
    let forger = Forger::new(env.sandbox, target)?;
    let mut rng = Rng::new(env.seed);
    let write = move |forger: &mut Forger, number: u64| {
        let mut bytes = [0; 64];
        let len = match garbage {
            Garbage::Empty => 0,
            Garbage::Random => rng.index(bytes.len()),
        };
        let payload = bytes.get_mut(..len).unwrap_or_default();
        rng.fill(payload);
        forger.push(SocketAddrV4::new(any_network(number), 4000), payload);
    };
    let flood_rate = FloodRate { rate: env.rate(150_000), max: 2 * env.measure_time + MARGIN };
    flood(env.clock, flood_rate, forger, write, victims)
}

/// Compares a server with a proxy, which does less work per datagram.
///
/// The server must not do worse, apart from the usual difference between two runs.
fn compare_with_proxy(
    label: &str,
    server: &FloodMeasurements,
    proxy: &FloodMeasurements,
) -> Vec<AttackMetric> {
    let name = |what: &str| format!("{label}{what}");
    let p99 = |measured: &PlayerMeasurement| millis(measured.chat.quantile(0.99));
    let usual = p99(&server.quiet);
    let mut metrics = vec![
        AttackMetric::new(name("players lost"), MetricUnit::Count, server.attacked.lost as f64)
            .baseline(server.quiet.lost as f64)
            .at_most(0.0),
        AttackMetric::new(name("chat not delivered"), MetricUnit::Share, server.attacked.chat_loss())
            .baseline(server.quiet.chat_loss())
            .at_most(0.0),
        AttackMetric::new(name("states lost"), MetricUnit::Share, server.attacked.state_loss())
            .baseline(server.quiet.state_loss())
            .at_most(proxy.attacked.state_loss() + 0.01),
        AttackMetric::new(name("states lost, proxy"), MetricUnit::Share, proxy.attacked.state_loss())
            .baseline(proxy.quiet.state_loss()),
        AttackMetric::new(
            name("chat, median delay"),
            MetricUnit::Millis,
            millis(server.attacked.chat.quantile(0.5)),
        )
        .baseline(millis(server.quiet.chat.quantile(0.5))),
        AttackMetric::new(name("chat, p99 delay"), MetricUnit::Millis, p99(&server.attacked))
            .baseline(usual)
            .at_most(p99(&proxy.attacked).max(usual) + 20.0),
        AttackMetric::new(name("chat, p99 delay, proxy"), MetricUnit::Millis, p99(&proxy.attacked))
            .baseline(p99(&proxy.quiet)),
        AttackMetric::new(name("1 s later: states lost"), MetricUnit::Share, server.after.state_loss())
            .baseline(server.quiet.state_loss())
            .at_most(0.01),
        AttackMetric::new(name("1 s later: chat, p99 delay"), MetricUnit::Millis, p99(&server.after))
            .baseline(usual)
            .at_most(usual + 20.0),
    ];
    metrics.extend(server.cost.iter().cloned());
    metrics
}

pub(crate) fn other_session(env: &Environment) -> anyhow::Result<Vec<AttackMetric>> {
    let server = Process::serve_configured(
        env,
        "[[session]]\nport = 22101\n[[session]]\nname = \"Other\"\nport = 22102\nplayer_limit = 16\n",
    )?;
    let other_address = SocketAddrV4::new(env.sandbox.server_address(), 22102);
    let mut group = PlayerGroup::join_at(env, (other_address, ""), PLAYERS, LinkProfile::UNLIMITED)?;
    let quiet = group.play(&server, env.measure_time)?;
    let (attacked, flooded) =
        flood_with_garbage(env, Garbage::Random, server.address(), || group.play(&server, env.measure_time))?;
    let mut metrics = compare("", &quiet, &attacked);
    metrics.push(flooded.metric());
    Ok(metrics)
}

pub(crate) fn query_flood(env: &Environment) -> anyhow::Result<Vec<AttackMetric>> {
    let server = Process::serve(env, &[SIXTEEN_SLOTS])?;
    let mut group = PlayerGroup::join(env, &server, PLAYERS)?;
    let quiet = group.play(&server, env.measure_time)?;
    let honest = query_repeatedly(env, server.address())?;
    let mut metrics = Vec::new();
    for rate in [1000, 20_000] {
        let rate = env.rate(rate);
        env.progress("query-flood", &format!("{rate} per second"));
        let forger = Forger::new(env.sandbox, server.address())?;
        let write = |forger: &mut Forger, number: u64| {
            forger.push(SocketAddrV4::new(any_network(number), 4000), br"\status\");
        };
        let before = server.usage();
        let flood_rate = FloodRate { rate, max: 2 * env.measure_time + MARGIN };
        let ((measured, answers), flooded) = flood(env.clock, flood_rate, forger, write, || {
            thread::scope(|scope| {
                let clients = scope.spawn(|| query_repeatedly(env, server.address()));
                let measured = group.play(&server, env.measure_time)?;
                let answers =
                    clients.join().map_err(|_| anyhow::anyhow!("the query client has panicked"))??;
                Ok((measured, answers))
            })
        })?;
        let label = format!("{rate}/s: ");
        metrics.push(
            AttackMetric::new(
                format!("{label}query clients answered in 5 s"),
                MetricUnit::Share,
                answers.answered_share(),
            )
            .baseline(honest.answered_share())
            .at_least(0.95),
        );
        metrics.push(
            AttackMetric::new(
                format!("{label}answer, median"),
                MetricUnit::Millis,
                millis(answers.delays.quantile(0.5)),
            )
            .baseline(millis(honest.delays.quantile(0.5))),
        );
        metrics.extend(compare(&label, &quiet, &measured));
        metrics.extend(resource_usage(&label, before, server.usage(), flooded.time.as_secs_f64()));
    }
    Ok(metrics)
}

/// A flood ends after its measurements. This limits how long it may run in addition to them.
const MARGIN: Duration = Duration::from_secs(90);
/// The time after a flood in which loss and delay must return to normal.
const RECOVERY: Duration = Duration::from_secs(1);
