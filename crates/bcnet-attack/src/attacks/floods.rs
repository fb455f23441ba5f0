//! More datagrams than anyone can want.

use std::net::SocketAddrV4;
use std::thread;
use std::time::Duration;

use bcnet_lab::Rng;

use super::{PLAYERS, ROOMY, compare, cost};
use crate::Environment;
use crate::asker::ask_often;
use crate::delays::millis;
use crate::forge::{FloodRate, FloodTotals, Forger, any_network, flood};
use crate::group::{Measurement, PlayerGroup};
use crate::metrics::{Metric, MetricUnit};
use crate::player::Link;
use crate::process::Process;

pub(crate) fn garbage_flood(env: &Environment) -> anyhow::Result<Vec<Metric>> {
    let mut metrics = Vec::new();
    for (label, garbage) in [("empty: ", Garbage::Empty), ("random: ", Garbage::Random)] {
        env.progress("garbage-flood", &format!("{label}at the proxy"));
        let proxy = under_flood(env, garbage, Target::Proxy)?;
        env.progress("garbage-flood", &format!("{label}at the server"));
        let server = under_flood(env, garbage, Target::Server)?;
        metrics.extend(side_by_side(label, &server, &proxy));
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
enum Target {
    Server,
    Proxy,
}

/// What players saw before, during and one second after a flood.
struct Floods {
    quiet: Measurement,
    attacked: Measurement,
    after: Measurement,
    flooded: FloodTotals,
    cost: Vec<Metric>,
}

fn under_flood(env: &Environment, garbage: Garbage, target: Target) -> anyhow::Result<Floods> {
    let server = Process::serve(env, &[ROOMY])?;
    let proxy = match target {
        Target::Server => None,
        Target::Proxy => Some(Process::proxy(env, server.address(), &["--upstream-source", "10.9.0.0/24"])?),
    };
    let attacked = proxy.as_ref().unwrap_or(&server);
    let mut group = PlayerGroup::join_at(env, (attacked.address(), ""), PLAYERS, Link::UNLIMITED)?;
    let quiet = group.play(&server, env.time)?;
    let before = attacked.usage();
    let (measured, flooded) = pour(env, garbage, attacked.address(), || group.play(&server, env.time))?;
    let cost = cost("", before, attacked.usage(), flooded.time.as_secs_f64());
    group.listen(RECOVERY);
    let after = group.play(&server, env.time / 2)?;
    Ok(Floods { quiet, attacked: measured, after, flooded, cost })
}

/// Runs `victims` while garbage arrives from everywhere.
fn pour<T: Send>(
    env: &Environment,
    garbage: Garbage,
    target: SocketAddrV4,
    victims: impl FnOnce() -> anyhow::Result<T>,
) -> anyhow::Result<(T, FloodTotals)> {
    let forger = Forger::new(env.sandbox, target)?;
    let mut rng = Rng::new(env.seed);
    let write = move |forger: &mut Forger, number: u64| {
        let mut bytes = [0; 64];
        let len = match garbage {
            Garbage::Empty => 0,
            Garbage::Random => rng.size(bytes.len()),
        };
        let payload = bytes.get_mut(..len).unwrap_or_default();
        rng.fill(payload);
        forger.push(SocketAddrV4::new(any_network(number), 4000), payload);
    };
    let flood_rate = FloodRate { rate: env.rate(150_000), max: 2 * env.time + MARGIN };
    flood(env.clock, flood_rate, forger, write, victims)
}

/// Returns how a server fares beside a proxy, which does less with each datagram: not worse, give or take what two runs differ.
fn side_by_side(label: &str, server: &Floods, proxy: &Floods) -> Vec<Metric> {
    let name = |what: &str| format!("{label}{what}");
    let p99 = |measured: &Measurement| millis(measured.chat.quantile(0.99));
    let usual = p99(&server.quiet);
    let mut metrics = vec![
        Metric::new(name("players lost"), MetricUnit::Count, server.attacked.lost as f64)
            .without(server.quiet.lost as f64)
            .at_most(0.0),
        Metric::new(name("chat never heard"), MetricUnit::Share, server.attacked.chat_loss())
            .without(server.quiet.chat_loss())
            .at_most(0.0),
        Metric::new(name("states lost"), MetricUnit::Share, server.attacked.state_loss())
            .without(server.quiet.state_loss())
            .at_most(proxy.attacked.state_loss() + 0.01),
        Metric::new(name("states lost, proxy"), MetricUnit::Share, proxy.attacked.state_loss())
            .without(proxy.quiet.state_loss()),
        Metric::new(
            name("chat, median delay"),
            MetricUnit::Millis,
            millis(server.attacked.chat.quantile(0.5)),
        )
        .without(millis(server.quiet.chat.quantile(0.5))),
        Metric::new(name("chat, p99 delay"), MetricUnit::Millis, p99(&server.attacked))
            .without(usual)
            .at_most(p99(&proxy.attacked).max(usual) + 20.0),
        Metric::new(name("chat, p99 delay, proxy"), MetricUnit::Millis, p99(&proxy.attacked))
            .without(p99(&proxy.quiet)),
        Metric::new(name("1 s later: states lost"), MetricUnit::Share, server.after.state_loss())
            .without(server.quiet.state_loss())
            .at_most(0.01),
        Metric::new(name("1 s later: chat, p99 delay"), MetricUnit::Millis, p99(&server.after))
            .without(usual)
            .at_most(usual + 20.0),
    ];
    metrics.extend(server.cost.iter().cloned());
    metrics
}

pub(crate) fn other_session(env: &Environment) -> anyhow::Result<Vec<Metric>> {
    let server = Process::serve_configured(
        env,
        "[[session]]\nport = 22101\n[[session]]\nname = \"Other\"\nport = 22102\nplayer_limit = 16\n",
    )?;
    let quiet_place = SocketAddrV4::new(env.sandbox.server(), 22102);
    let mut group = PlayerGroup::join_at(env, (quiet_place, ""), PLAYERS, Link::UNLIMITED)?;
    let quiet = group.play(&server, env.time)?;
    let (attacked, flooded) = pour(env, Garbage::Random, server.address(), || group.play(&server, env.time))?;
    let mut metrics = compare("", &quiet, &attacked);
    metrics.push(flooded.metric());
    Ok(metrics)
}

pub(crate) fn query_flood(env: &Environment) -> anyhow::Result<Vec<Metric>> {
    let server = Process::serve(env, &[ROOMY])?;
    let mut group = PlayerGroup::join(env, &server, PLAYERS)?;
    let quiet = group.play(&server, env.time)?;
    let honest = ask_often(env, server.address())?;
    let mut metrics = Vec::new();
    for rate in [1000, 20_000] {
        let rate = env.rate(rate);
        env.progress("query-flood", &format!("{rate} per second"));
        let forger = Forger::new(env.sandbox, server.address())?;
        let write = |forger: &mut Forger, number: u64| {
            forger.push(SocketAddrV4::new(any_network(number), 4000), br"\status\");
        };
        let before = server.usage();
        let flood_rate = FloodRate { rate, max: 2 * env.time + MARGIN };
        let ((measured, answers), flooded) = flood(env.clock, flood_rate, forger, write, || {
            thread::scope(|scope| {
                let askers = scope.spawn(|| ask_often(env, server.address()));
                let measured = group.play(&server, env.time)?;
                let answers = askers.join().map_err(|_| anyhow::anyhow!("the asker has failed"))??;
                Ok((measured, answers))
            })
        })?;
        let label = format!("{rate}/s: ");
        metrics.push(
            Metric::new(format!("{label}askers answered in 5 s"), MetricUnit::Share, answers.share())
                .without(honest.share())
                .at_least(0.95),
        );
        metrics.push(
            Metric::new(
                format!("{label}answer, median"),
                MetricUnit::Millis,
                millis(answers.delays.quantile(0.5)),
            )
            .without(millis(honest.delays.quantile(0.5))),
        );
        metrics.extend(compare(&label, &quiet, &measured));
        metrics.extend(cost(&label, before, server.usage(), flooded.time.as_secs_f64()));
    }
    Ok(metrics)
}

/// How long an attack may last beyond what its victims measure.
const MARGIN: Duration = Duration::from_secs(90);
/// After this long everything is as before.
const RECOVERY: Duration = Duration::from_secs(1);
