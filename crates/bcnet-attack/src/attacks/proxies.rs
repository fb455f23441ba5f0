//! Attacks on a proxy.

use std::io::{Read, Write};
use std::net::{SocketAddrV4, TcpStream};
use std::time::Duration;

use anyhow::Context;

use crate::Environment;
use crate::delays::{millis, sleep_until};
use crate::forged;
use crate::forger::{FloodRate, Forger, any_network, flood};
use crate::metrics::{AttackMetric, MetricUnit};
use crate::newcomer::{max_total_time, try_joins};
use crate::process::Process;
use crate::sniffer::Sniffer;

pub(crate) fn proxy_connects(env: &Environment) -> anyhow::Result<Vec<AttackMetric>> {
    let quiet = {
        let server = Process::serve(env, &[])?;
        let proxy = Process::proxy(env, server.address(), SOURCE_POOL)?;
        try_joins(env, &proxy)?
    };
    let server = Process::serve(env, &[])?;
    let proxy = Process::proxy(env, server.address(), SOURCE_POOL)?;
    let forger = Forger::new(env.sandbox, proxy.address())?;
    let flood_rate = FloodRate { rate: env.rate(150), max: max_total_time(env) };
    let write = |forger: &mut Forger, number: u64| {
        forger.push(SocketAddrV4::new(any_network(number), 4000), &forged::connect(number as u32, ""));
    };
    let (joins, flooded) = flood(env.clock, flood_rate, forger, write, || {
        // The attack starts before the newcomers, and uses up the small pool of source addresses.
        sleep_until(env.clock, env.clock.now() + Duration::from_secs(4));
        try_joins(env, &proxy)
    })?;
    let lines =
        ["player", "player_gone", "refused"].map(|event| proxy.log_events(event).map(|lines| lines.len()));
    let lines: usize = lines.into_iter().sum::<anyhow::Result<usize>>()?;
    let mut metrics = vec![
        AttackMetric::new("newcomers joined within 10 s", MetricUnit::Share, joins.success_share())
            .baseline(quiet.success_share())
            .at_least(0.95),
        AttackMetric::new("join, median", MetricUnit::Millis, millis(joins.delays.quantile(0.5)))
            .baseline(millis(quiet.delays.quantile(0.5))),
        AttackMetric::new(
            "log lines per second",
            MetricUnit::Count,
            lines as f64 / flooded.time.as_secs_f64(),
        )
        .at_most(60.0),
        flooded.metric(),
    ];
    drop((proxy, server));
    metrics.extend(challenge_flood(env)?);
    Ok(metrics)
}

/// Sends a list server's challenge to a listed proxy, forged from the address of a third party.
fn challenge_flood(env: &Environment) -> anyhow::Result<Vec<AttackMetric>> {
    env.progress("proxy-connects", "challenges of a list server");
    let (server, master) = (Process::serve(env, &[])?, Process::master(env)?);
    let address = master.ready_address("udp")?.to_string();
    let options = [SOURCE_POOL, &["--advertise", "22101", "--master", &address]].concat();
    let proxy = Process::proxy(env, server.address(), &options)?;
    let mut tap = Sniffer::new(proxy.address())?;
    let forger = Forger::new(env.sandbox, proxy.address())?;
    let victim = SocketAddrV4::new([192, 0, 2, 1].into(), 5000);
    let write = |forger: &mut Forger, _| forger.push(victim, br"\secure\abcdef");
    let time = Duration::from_secs(10);
    let flood_rate = FloodRate { rate: env.rate(1000), max: time };
    let (bytes, _) = flood(env.clock, flood_rate, forger, write, || {
        let mut bytes = 0;
        tap.receive_until(env.clock, env.clock.now() + time, |to, payload| {
            bytes += if to == victim { payload.len() } else { 0 };
        });
        Ok(bytes)
    })?;
    Ok(vec![
        AttackMetric::new("challenges, bytes to a /24 in 10 s", MetricUnit::Bytes, bytes as f64)
            .at_most(26_000.0),
    ])
}

pub(crate) fn slow_metrics(env: &Environment) -> anyhow::Result<Vec<AttackMetric>> {
    let server = Process::serve(env, &[])?;
    let metrics = format!("{}:0", env.sandbox.server_address());
    let proxy = Process::proxy(env, server.address(), &["--metrics", &metrics])?;
    let address: SocketAddrV4 = proxy.ready_value("metrics")?.parse().context("--metrics")?;
    env.sandbox.check(address)?;
    let quiet = read_metrics(env, address)?;
    let idle: Vec<TcpStream> = (0..30).map(|_| TcpStream::connect(address)).collect::<Result<_, _>>()?;
    // The idle connections are open before the honest client connects.
    sleep_until(env.clock, env.clock.now() + Duration::from_millis(500));
    let with = read_metrics(env, address)?;
    drop(idle);
    Ok(vec![
        AttackMetric::new("/metrics takes", MetricUnit::Seconds, with.as_secs_f64())
            .baseline(quiet.as_secs_f64())
            .at_most(2.0),
    ])
}

/// Returns the time until the metrics arrive, or the timeout if they do not.
fn read_metrics(env: &Environment, address: SocketAddrV4) -> anyhow::Result<Duration> {
    let start = env.clock.now();
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(METRICS_TIMEOUT))?;
    stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n")?;
    let mut page = Vec::new();
    // A connection that is closed without an answer also counts as a failure.
    drop(stream.read_to_end(&mut page));
    let time = env.clock.now().since(start);
    Ok(if page.is_empty() { METRICS_TIMEOUT.max(time) } else { time })
}

/// Source addresses toward the server: few, so that a short attack uses them up.
const SOURCE_POOL: &[&str] = &["--upstream-source", "10.9.0.0/24"];
/// The longest wait for the metrics.
const METRICS_TIMEOUT: Duration = Duration::from_secs(70);
