//! Forged queries: the bytes of all answers, and honest clients in the attacked network.

use std::collections::HashSet;
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::thread;
use std::time::Duration;

use bcnet_lab::Rng;
use bcnet_transport::Time;

use super::{PLAYERS, SIXTEEN_SLOTS, run_cases};
use crate::Environment;
use crate::delays::sleep_until;
use crate::forger::{FloodRate, Forger, any_network, flood};
use crate::group::PlayerGroup;
use crate::metrics::{AttackMetric, MetricUnit};
use crate::player::LinkProfile;
use crate::process::Process;
use crate::query_client::{QueryResults, has_name, query_from};
use crate::sniffer::{Sniffer, most_bytes};

/// A kind of forged queries.
struct QueryCase {
    label: &'static str,
    /// The number of queries of each forged address, a second apart.
    repeats: u64,
    address: fn(u64) -> Ipv4Addr,
    at_proxy: bool,
}

const QUERY_CASES: [QueryCase; 7] = [
    QueryCase { label: "once: ", repeats: 1, address: any_network, at_proxy: false },
    QueryCase { label: "twice: ", repeats: 2, address: any_network, at_proxy: false },
    QueryCase { label: "three times: ", repeats: 3, address: any_network, at_proxy: false },
    QueryCase { label: "one /16, twice: ", repeats: 2, address: one_network, at_proxy: false },
    QueryCase { label: "private, three times: ", repeats: 3, address: private_address, at_proxy: false },
    QueryCase { label: "all origins: ", repeats: 3, address: any_origin, at_proxy: false },
    QueryCase { label: "twice, at a proxy: ", repeats: 2, address: any_network, at_proxy: true },
];

pub(crate) fn query_reflect(env: &Environment) -> anyhow::Result<Vec<AttackMetric>> {
    run_cases(
        env,
        "query-reflect",
        &QUERY_CASES,
        |case| case.label,
        |case| {
            let (sent, answers) = reflect_queries(env, case)?;
            let metric =
                |name: &str, unit, value| AttackMetric::new(format!("{}{name}", case.label), unit, value);
            let total = answers.iter().map(|(_, len)| len).sum::<usize>() as f64;
            let per_second = |value: f64| value / env.measure_time.as_secs_f64();
            let count = per_second(answers.len() as f64);
            Ok(vec![
                metric("bytes in any second", MetricUnit::Bytes, most_bytes(&answers, SECOND))
                    .at_most(TOTAL_BYTES),
                metric("bytes per second", MetricUnit::Bytes, per_second(total)),
                // Without answers, the limit would show nothing.
                metric("answers per second", MetricUnit::Count, count).at_least(1.0),
                metric("ratio", MetricUnit::Times, total / sent.max(1.0)),
            ])
        },
    )
}

/// Returns the bytes of the forged queries, and the times and bytes of the answers.
fn reflect_queries(env: &Environment, case: &QueryCase) -> anyhow::Result<(f64, Vec<(Time, usize)>)> {
    let list_server = format!("server.masters={LIST_SERVER}:27900");
    // The server trusts the proxy, and so answers all that the proxy forwards.
    let options =
        if case.at_proxy { "session.trusted=10.9.0.0/24,127.0.0.0/8,198.51.100.1" } else { &list_server };
    let server = Process::serve(env, &[SIXTEEN_SLOTS, options])?;
    let proxy = if case.at_proxy {
        Some(Process::proxy(env, server.address(), &["--upstream-source", "10.9.0.0/24"])?)
    } else {
        None
    };
    let target = proxy.as_ref().unwrap_or(&server).address();
    let _group = PlayerGroup::join_at(env, (target, ""), PLAYERS, LinkProfile::UNLIMITED)?;
    let mut tap = Sniffer::new(target)?;
    let forger = Forger::new(env.sandbox, target)?;
    let rate = env.rate(QUERY_RATE);
    let write = |forger: &mut Forger, number: u64| {
        for again in 0..case.repeats {
            if let Some(first) = number.checked_sub(again * u64::from(rate)) {
                forger.push(SocketAddrV4::new((case.address)(first), 4000), QUERY);
            }
        }
    };
    let flood_rate = FloodRate { rate, max: env.measure_time };
    let (answers, flooded) = flood(env.clock, flood_rate, forger, write, || {
        let mut answers = Vec::new();
        tap.receive_until(env.clock, env.clock.now() + env.measure_time, |to, payload| {
            if payload.first() == Some(&b'\\') && to.port() == 4000 {
                answers.push((env.clock.now(), payload.len()));
            }
        });
        Ok(answers)
    })?;
    Ok((flooded.counters.bytes as f64, answers))
}

/// Returns an address of one /16 network.
fn one_network(number: u64) -> Ipv4Addr {
    let [high, low] = (number as u16).to_be_bytes();
    Ipv4Addr::new(91, 50, high, low)
}

/// Returns an address of the private networks.
fn private_address(number: u64) -> Ipv4Addr {
    let [.., a, b, c] = number.wrapping_mul(0x9E37_79B1).to_be_bytes();
    match number % 3 {
        0 => Ipv4Addr::new(10, 1 + a % 8, b, c),
        1 => Ipv4Addr::new(172, 16 + a % 16, b, c),
        _ => Ipv4Addr::new(192, 168, b, c),
    }
}

/// Returns an address of any origin: public, private, or the list server.
fn any_origin(number: u64) -> Ipv4Addr {
    match number % 8 {
        0 => LIST_SERVER,
        1..=3 => private_address(number),
        _ => any_network(number),
    }
}

/// Queries that are forged in the network of an honest client: per second, and from how many addresses.
const HIDE_CASES: [(&str, u32, u64); 2] = [("two per second: ", 2, 256), ("ten of eight addresses: ", 10, 8)];

pub(crate) fn query_hide(env: &Environment) -> anyhow::Result<Vec<AttackMetric>> {
    run_cases(
        env,
        "query-hide",
        &HIDE_CASES,
        |case| case.0,
        |(label, rate, addresses)| {
            let server = Process::serve(env, &[SIXTEEN_SLOTS])?;
            let _group = PlayerGroup::join(env, &server, PLAYERS)?;
            let forger = Forger::new(env.sandbox, server.address())?;
            let mut rng = Rng::new(env.seed);
            let write = |forger: &mut Forger, _| {
                for network in 0..ASKERS {
                    let host = (u64::from(HONEST_HOST) + 1 + rng.below(*addresses)) as u8;
                    forger.push(SocketAddrV4::new(asker(network, host), 4000), QUERY);
                }
            };
            let flood_rate = FloodRate { rate: env.rate(*rate), max: 2 * env.measure_time + MARGIN };
            let (results, flooded) =
                flood(env.clock, flood_rate, forger, write, || ask_from_networks(env, server.address()))?;
            let metric = |name: &str, unit, value| AttackMetric::new(format!("{label}{name}"), unit, value);
            let share = results.answered_share();
            Ok(vec![
                metric("asks answered in three tries", MetricUnit::Share, share).at_least(0.95),
                metric("asks", MetricUnit::Count, results.queries as f64),
                flooded.metric(),
            ])
        },
    )
}

/// Lets one client in each attacked network ask again and again, after the attack has run for a while.
fn ask_from_networks(env: &Environment, server: SocketAddrV4) -> anyhow::Result<QueryResults> {
    sleep_until(env.clock, env.clock.now() + HEAD_START);
    let end = env.clock.now() + env.measure_time;
    let ask = |network| {
        let (mut results, mut next) = (QueryResults::default(), env.clock.now());
        while env.clock.now() < end || results.queries < MIN_ASKS {
            sleep_until(env.clock, next);
            next = next + ASK_INTERVAL;
            results.queries += 1;
            let delay = query_from(env, server, asker(network, HONEST_HOST))?;
            delay.into_iter().for_each(|delay| results.delays.add(delay));
        }
        anyhow::Ok(results)
    };
    thread::scope(|scope| {
        let threads: Vec<_> = (0..ASKERS).map(|network| scope.spawn(move || ask(network))).collect();
        let mut all = QueryResults::default();
        for thread in threads {
            all.add(thread.join().map_err(|_| anyhow::anyhow!("a query client has panicked"))??);
        }
        Ok(all)
    })
}

/// Returns an address of an attacked network. Each network is in a different /16.
fn asker(network: u8, host: u8) -> Ipv4Addr {
    Ipv4Addr::new(91, 50 + network, 7, host)
}

/// The forged queries per second of all networks while a LAN party asks.
const LAN_CASES: [(&str, u32); 2] = [("alone: ", 0), ("during a flood: ", 1000)];

pub(crate) fn lan_queries(env: &Environment) -> anyhow::Result<Vec<AttackMetric>> {
    // The case without forged addresses also runs on loopback.
    let cases = if env.sandbox.can_forge() { &LAN_CASES[..] } else { &LAN_CASES[..1] };
    run_cases(
        env,
        "lan-queries",
        cases,
        |case| case.0,
        |(label, rate)| {
            // In the namespace, the default is tested.
            let home = format!("session.home_networks={}", env.sandbox.home_network());
            let options: &[&str] = if env.sandbox.can_forge() { &[] } else { &[&home] };
            let server = Process::serve(env, &[&[SIXTEEN_SLOTS], options].concat())?;
            let _group = PlayerGroup::join(env, &server, PLAYERS)?;
            let results = ask_as_lan_party(env, &server, *rate)?;
            let worst = results.iter().copied().min().unwrap_or(0);
            let metric = |name: &str, value: usize| {
                AttackMetric::new(format!("{label}{name}"), MetricUnit::Count, value as f64)
            };
            Ok(vec![
                metric("rounds", results.len()),
                metric("machines answered, worst round", worst).at_least(MACHINES.into()),
            ])
        },
    )
}

/// Returns how many of eight machines were answered in each round.
///
/// Meanwhile, `rate` queries per second are forged.
fn ask_as_lan_party(env: &Environment, server: &Process, rate: u32) -> anyhow::Result<Vec<usize>> {
    if rate == 0 {
        return ask_together(env, server.address());
    }
    let forger = Forger::new(env.sandbox, server.address())?;
    let write = |forger: &mut Forger, number: u64| {
        forger.push(SocketAddrV4::new(any_network(number), 4000), QUERY);
    };
    let flood_rate = FloodRate { rate: env.rate(rate), max: 2 * env.measure_time + MARGIN };
    Ok(flood(env.clock, flood_rate, forger, write, || ask_together(env, server.address()))?.0)
}

/// Lets eight machines of a /24 network ask at once, every two seconds.
fn ask_together(env: &Environment, server: SocketAddrV4) -> anyhow::Result<Vec<usize>> {
    env.sandbox.check(server)?;
    let start = env.clock.now();
    let sockets = (0..MACHINES).map(|machine| {
        let socket = UdpSocket::bind((env.sandbox.home_address(machine), 0))?;
        socket.set_nonblocking(true)?;
        anyhow::Ok(socket)
    });
    let sockets = sockets.collect::<anyhow::Result<Vec<_>>>()?;
    let mut rounds = Vec::new();
    while env.clock.now().since(start) < env.measure_time || rounds.len() < MIN_ROUNDS {
        let due = env.clock.now() + ROUND_INTERVAL;
        for socket in &sockets {
            socket.send_to(QUERY, server)?;
        }
        let mut answered = HashSet::new();
        while env.clock.now() < due {
            for (machine, socket) in sockets.iter().enumerate() {
                let mut buffer = [0; 2048];
                while let Ok(len) = socket.recv(&mut buffer) {
                    if has_name(buffer.get(..len).unwrap_or_default()) {
                        answered.insert(machine);
                    }
                }
            }
            sleep_until(env.clock, (env.clock.now() + Duration::from_millis(20)).min(due));
        }
        rounds.push(answered.len());
    }
    Ok(rounds)
}

const QUERY: &[u8] = br"\status\";
const SECOND: Duration = Duration::from_secs(1);
/// A list server that the attacked server knows.
const LIST_SERVER: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 5);
/// The most bytes of answers in any second, with default settings (S-07).
const TOTAL_BYTES: f64 = 50_000.0;
/// New forged addresses per second.
const QUERY_RATE: u32 = 1000;
/// Number of attacked networks, each with an honest client.
const ASKERS: u8 = 3;
/// The last byte of the address of an honest client; attackers have higher ones.
const HONEST_HOST: u8 = 10;
const ASK_INTERVAL: Duration = Duration::from_millis(5500);
const MIN_ASKS: u64 = 3;
/// The time in which an attack uses up the budget of a network.
const HEAD_START: Duration = Duration::from_secs(4);
/// A flood ends after its measurements. This limits how long it may run in addition to them.
const MARGIN: Duration = Duration::from_secs(60);
/// Number of machines of a LAN party.
const MACHINES: u8 = 8;
const MIN_ROUNDS: usize = 3;
const ROUND_INTERVAL: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn private_addresses_are_private() {
        assert!((0..10_000).all(|number| private_address(number).is_private()));
        assert!((0..10_000).any(|number| any_origin(number) == LIST_SERVER));
    }
}
