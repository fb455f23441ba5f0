//! Attacks on a list server.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddrV4, TcpStream};
use std::os::fd::OwnedFd;
use std::time::Duration;

use anyhow::{Context, ensure};
use bcnet_session::challenge_response;
use rustix::net::{AddressFamily, SocketType, bind, connect, socket};

use crate::Environment;
use crate::delays::sleep_until;
use crate::forger::{FloodRate, Forger, any_network, flood};
use crate::metrics::{AttackMetric, MetricUnit};
use crate::process::Process;
use crate::sniffer::Sniffer;

pub(crate) fn list_flood(env: &Environment) -> anyhow::Result<Vec<AttackMetric>> {
    let quiet = {
        let master = Process::master(env)?;
        listing_time(env, &master)?
    };
    let listed = |name: &str, time: Duration| {
        AttackMetric::new(
            format!("{name}: an honest server is listed after"),
            MetricUnit::Seconds,
            time.as_secs_f64(),
        )
        .baseline(quiet.as_secs_f64())
        .at_most(60.0)
    };
    let mut metrics = Vec::new();
    let rate = env.rate(1000);
    env.progress("list-flood", "forged heartbeats");
    let master = Process::master(env)?;
    let forger = Forger::new(env.sandbox, master.ready_address("udp")?)?;
    let heartbeat = |forger: &mut Forger, number: u64| {
        let text = format!(r"\heartbeat\{}\gamename\bcommander", 20_000 + number % 1000);
        forger.push(SocketAddrV4::new(any_network(number), 4000), text.as_bytes());
    };
    let flood_rate = FloodRate { rate, max: LISTING_TIMEOUT + MARGIN };
    let (time, _) = flood(env.clock, flood_rate, forger, heartbeat, || {
        sleep_until(env.clock, env.clock.now() + HEAD_START);
        listing_time(env, &master)
    })?;
    metrics.push(listed("forged heartbeats", time));
    env.progress("list-flood", "fake servers");
    let master = Process::master(env)?;
    let fake = register_fake_servers(env, &master)?;
    metrics.push(AttackMetric::new("fake servers: listed", MetricUnit::Count, fake as f64));
    metrics.push(listed("fake servers", listing_time(env, &master)?));
    env.progress("list-flood", "idle connections");
    let master = Process::master(env)?;
    let tcp = master.ready_address("tcp")?;
    let without = list_response_time(env, tcp, env.sandbox.honest_address(0))?;
    let idle = open_idle_connections(env, tcp)?;
    let with = list_response_time(env, tcp, env.sandbox.honest_address(1))?;
    metrics.push(
        AttackMetric::new("idle connections: a list takes", MetricUnit::Seconds, with.as_secs_f64())
            .baseline(without.as_secs_f64())
            .at_most(5.0),
    );
    drop(idle);
    Ok(metrics)
}

/// Starts an honest server and returns the time until it is listed; twice the timeout if it is not.
fn listing_time(env: &Environment, master: &Process) -> anyhow::Result<Duration> {
    let start = env.clock.now();
    let masters = format!("server.masters={}", master.ready_address("udp")?);
    let server = Process::serve(env, &[&masters])?;
    let tcp = master.ready_address("tcp")?;
    let end = start + LISTING_TIMEOUT;
    while env.clock.now() < end {
        let list_client = env.sandbox.honest_address(50);
        if read_list(env, tcp, list_client).is_ok_and(|list| list.contains(&server.address())) {
            return Ok(env.clock.now().since(start));
        }
        sleep_until(env.clock, env.clock.now() + Duration::from_secs(1));
    }
    Ok(2 * LISTING_TIMEOUT)
}

/// Registers fake servers at sixteen addresses that answer all queries. Returns how many are listed.
fn register_fake_servers(env: &Environment, master: &Process) -> anyhow::Result<usize> {
    let udp = master.ready_address("udp")?;
    let mut tap = Sniffer::new(udp)?;
    let mut forger = Forger::new(env.sandbox, udp)?;
    let fakes: Vec<SocketAddrV4> = (0..FAKE_SERVERS)
        .map(|number| {
            SocketAddrV4::new(Ipv4Addr::new(91, 60, 1, 1 + (number % 16) as u8), 20_000 + number / 16)
        })
        .collect();
    let mut received = HashMap::new();
    let end = env.clock.now() + FAKE_TIME;
    let mut next = 0;
    while env.clock.now() < end {
        for _ in 0..BURST {
            let fake = fakes[next % fakes.len()];
            next += 1;
            forger.push(fake, format!(r"\heartbeat\{}\gamename\bcommander", fake.port()).as_bytes());
        }
        forger.flush();
        let mut answers = Vec::new();
        tap.receive_until(env.clock, env.clock.now() + Duration::from_millis(100), |to, text| {
            *received.entry(to).or_insert(0) += 1;
            if let Some(challenge) = text.strip_prefix(br"\secure\") {
                answers.push((
                    to,
                    format!(
                        r"\gamename\bcommander\validate\{}\final\\queryid\1.1",
                        challenge_response(challenge)
                    ),
                ));
            } else if text.starts_with(br"\status\") {
                answers
                    .push((to, r"\gamename\bcommander\hostname\Fake\numplayers\0\final\\queryid\1.1".into()));
            }
        });
        for (from, text) in answers {
            forger.push(from, text.as_bytes());
        }
        forger.flush();
    }
    let list = read_list(env, master.ready_address("tcp")?, env.sandbox.honest_address(51))?;
    Ok(list.iter().filter(|server| fakes.contains(server)).count())
}

/// Opens idle connections from many addresses.
fn open_idle_connections(env: &Environment, master: SocketAddrV4) -> anyhow::Result<Vec<TcpStream>> {
    (0..IDLE_CONNECTIONS)
        .map(|number| connect_from(env, Ipv4Addr::new(91, 70, number / 8, 1), master))
        .collect()
}

fn list_response_time(env: &Environment, master: SocketAddrV4, from: Ipv4Addr) -> anyhow::Result<Duration> {
    let start = env.clock.now();
    let end = start + LISTING_TIMEOUT;
    while env.clock.now() < end && read_list(env, master, from).is_err() {
        sleep_until(env.clock, env.clock.now() + Duration::from_millis(100));
    }
    Ok(env.clock.now().since(start))
}

/// Returns the server list, requested as the game does.
fn read_list(env: &Environment, master: SocketAddrV4, from: Ipv4Addr) -> anyhow::Result<Vec<SocketAddrV4>> {
    let mut stream = connect_from(env, from, master)?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    let mut greeting = [0; 21];
    stream.read_exact(&mut greeting)?;
    let challenge =
        greeting.strip_prefix(br"\basic\\secure\").context("the list server sent no challenge")?;
    let login = format!(
        r"\gamename\bcommander\gamever\1.6\location\0\validate\{}\final\\queryid\1.1\",
        challenge_response(challenge)
    );
    stream.write_all(login.as_bytes())?;
    stream.write_all(br"\list\cmp\gamename\bcommander\final\")?;
    let mut list = Vec::new();
    stream.read_to_end(&mut list)?;
    let servers = list.strip_suffix(br"\final\").context("the list has no end mark")?;
    ensure!(servers.len() % 6 == 0, "the list has {} bytes, which is no multiple of 6", servers.len());
    let address = |entry: &[u8; 6]| {
        let [a, b, c, d, high, low] = *entry;
        SocketAddrV4::new(Ipv4Addr::new(a, b, c, d), u16::from_be_bytes([high, low]))
    };
    Ok(servers.as_chunks().0.iter().map(address).collect())
}

fn connect_from(env: &Environment, from: Ipv4Addr, to: SocketAddrV4) -> anyhow::Result<TcpStream> {
    env.sandbox.check(to)?;
    let socket: OwnedFd = socket(AddressFamily::INET, SocketType::STREAM, None)?;
    bind(&socket, &SocketAddrV4::new(from, 0))?;
    connect(&socket, &to)?;
    Ok(TcpStream::from(socket))
}

/// The time that the attack runs before the honest server starts.
const HEAD_START: Duration = Duration::from_secs(3);
/// The longest wait until a server is listed.
const LISTING_TIMEOUT: Duration = Duration::from_secs(70);
/// The longest time that the flood continues after [`LISTING_TIMEOUT`].
const MARGIN: Duration = Duration::from_secs(30);
const FAKE_SERVERS: u16 = 4096;
/// The time for which fake servers send heartbeats, and the number of heartbeats per 0.1 s.
const FAKE_TIME: Duration = Duration::from_secs(40);
const BURST: usize = 20;
const IDLE_CONNECTIONS: u8 = 128;
