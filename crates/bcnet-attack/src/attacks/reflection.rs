//! Reflection attacks: the bytes that a third party receives because its address was forged.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::Duration;

use bcnet_lab::Rng;
use bcnet_session::heartbeat;
use bcnet_transport::Time;
use bcnet_transport::wire::PeerId;

use super::{SIXTEEN_SLOTS, run_cases};
use crate::Environment;
use crate::delays::sleep_until;
use crate::forged;
use crate::forger::Forger;
use crate::group::PlayerGroup;
use crate::metrics::{AttackMetric, MetricUnit};
use crate::player::LinkProfile;
use crate::process::Process;
use crate::sniffer::{Sniffer, most_bytes};

/// A kind of datagram that may cause an answer.
struct ReflectionCase {
    name: &'static str,
    /// Datagrams per second; 0 sends a single one.
    rate: u32,
    write: fn(u64, &mut Rng) -> (SocketAddrV4, Vec<u8>),
}

/// All kinds of datagrams except queries. [`victim`] gives the forged addresses.
const SERVER_CASES: [ReflectionCase; 7] = [
    ReflectionCase { name: "one connect", rate: 0, write: |_, _| (victim(0), forged::connect(1, "")) },
    ReflectionCase { name: "repeated connect", rate: 20, write: |_, _| (victim(1), forged::connect(1, "")) },
    ReflectionCase {
        name: "connect, new nonces",
        rate: 200,
        write: |number, _| (victim(2 + (number % 16) as u16), forged::connect(number as u32, "")),
    },
    ReflectionCase { name: "join with guessed id", rate: 100, write: blind_join_step },
    ReflectionCase {
        name: "disconnect",
        rate: 200,
        write: |number, _| {
            (victim(40), forged::datagram(any_id(number), &[forged::disconnect(1, PeerId(2))]))
        },
    },
    ReflectionCase {
        name: "wrong ids",
        rate: 200,
        write: |number, _| {
            let chat = forged::chat(any_id(number), b"Q");
            (victim(41), forged::datagram(any_id(number), &[forged::reliable(0, &chat)]))
        },
    },
    ReflectionCase { name: "garbage", rate: 200, write: garbage },
];

const QUERIES: [&str; 7] =
    [r"\status\", r"\players\", r"\info\", r"\rules\", r"\basic\", r"\secure\abcdef", r"\echo\0123456789"];

pub(crate) fn reflect(env: &Environment) -> anyhow::Result<Vec<AttackMetric>> {
    reflect_at(env, "reflect", ReflectionTarget::Server)
}

pub(crate) fn reflect_proxy(env: &Environment) -> anyhow::Result<Vec<AttackMetric>> {
    reflect_at(env, "reflect-proxy", ReflectionTarget::Proxy)
}

/// The target of the forged datagrams.
#[derive(Debug, Clone, Copy)]
enum ReflectionTarget {
    Server,
    /// A proxy in front of a server that trusts it. So the server sends long replies, like a stock server.
    Proxy,
}

fn reflect_at(
    env: &Environment,
    attack: &str,
    target: ReflectionTarget,
) -> anyhow::Result<Vec<AttackMetric>> {
    // `None` stands for the queries.
    let cases: Vec<Option<&ReflectionCase>> = SERVER_CASES.iter().map(Some).chain([None]).collect();
    run_cases(
        env,
        attack,
        &cases,
        |case| case.map_or("queries", |kind| kind.name),
        |case| {
            let Some(kind) = case else { return reflect_queries(env, target) };
            let rng = &mut Rng::new(env.seed);
            let traffic = measure_with_players(env, target, kind.rate, |number| (kind.write)(number, rng))?;
            Ok(ratios(kind, &traffic).to_vec())
        },
    )
}

fn reflect_queries(env: &Environment, target: ReflectionTarget) -> anyhow::Result<Vec<AttackMetric>> {
    let traffic = measure_with_players(env, target, 100, |number| {
        let query = QUERIES[number as usize % QUERIES.len()];
        (victim((number % 250) as u16), query.as_bytes().to_vec())
    })?;
    let bytes = most_bytes(&traffic.received, WINDOW);
    Ok(vec![
        AttackMetric::new("queries, bytes to a /24 in 10 s", MetricUnit::Bytes, bytes).at_most(26_000.0),
        AttackMetric::new("queries, in total", MetricUnit::Times, traffic.total_ratio()),
    ])
}

/// Returns the ratio of received to sent bytes: in the worst ten seconds, and after the first ten.
fn ratios(kind: &ReflectionCase, traffic: &ReflectedTraffic) -> [AttackMetric; 2] {
    let (later, most) =
        if kind.rate == 0 { (traffic.total_ratio(), 3.0) } else { (traffic.later_ratio(), 1.0) };
    let worst =
        AttackMetric::new(format!("{}, in 10 s", kind.name), MetricUnit::Times, traffic.worst_ratio());
    let later = AttackMetric::new(format!("{}, later", kind.name), MetricUnit::Times, later);
    [worst.at_most(3.0), later.at_most(most)]
}

/// All kinds of datagrams that a list server may answer.
const LIST_SERVER_CASES: [ReflectionCase; 5] = [
    ReflectionCase { name: "one heartbeat", rate: 0, write: |_, _| (victim(0), heartbeat(victim(0).port())) },
    ReflectionCase {
        name: "heartbeats",
        rate: 200,
        write: |number, _| {
            let from = victim((number % 250) as u16);
            (from, heartbeat(from.port()))
        },
    },
    ReflectionCase {
        name: "answers without a challenge",
        rate: 200,
        write: |number, _| {
            let answer = r"\gamename\bcommander\validate\abcdefgh\final\\queryid\1.1";
            (victim((number % 250) as u16), answer.into())
        },
    },
    ReflectionCase {
        name: "queries",
        rate: 200,
        write: |number, _| (victim(41), QUERIES[number as usize % QUERIES.len()].into()),
    },
    ReflectionCase { name: "garbage", rate: 200, write: garbage },
];

pub(crate) fn reflect_master(env: &Environment) -> anyhow::Result<Vec<AttackMetric>> {
    run_cases(
        env,
        "reflect-master",
        &LIST_SERVER_CASES,
        |kind| kind.name,
        |kind| {
            let master = Process::master(env)?;
            let rng = &mut Rng::new(env.seed);
            let pause = |time| sleep_until(env.clock, env.clock.now() + time);
            let address = master.ready_address("udp")?;
            let traffic =
                measure_reflection(env, address, kind.rate, |number| (kind.write)(number, rng), pause)?;
            Ok(ratios(kind, &traffic).to_vec())
        },
    )
}

fn garbage(number: u64, rng: &mut Rng) -> (SocketAddrV4, Vec<u8>) {
    let mut bytes = vec![0; (number % 60) as usize];
    rng.fill(&mut bytes);
    (victim(42), bytes)
}

/// Sends forged datagrams to a server with players, and counts the bytes that the victim receives.
fn measure_with_players(
    env: &Environment,
    target: ReflectionTarget,
    rate: u32,
    write: impl FnMut(u64) -> (SocketAddrV4, Vec<u8>),
) -> anyhow::Result<ReflectedTraffic> {
    let server = match target {
        ReflectionTarget::Server => Process::serve(env, &[SIXTEEN_SLOTS])?,
        ReflectionTarget::Proxy => Process::serve(env, &[SIXTEEN_SLOTS, "session.trusted=10.9.0.0/24"])?,
    };
    let proxy = match target {
        ReflectionTarget::Server => None,
        ReflectionTarget::Proxy => {
            Some(Process::proxy(env, server.address(), &["--upstream-source", "10.9.0.0/24"])?)
        }
    };
    let address = proxy.as_ref().unwrap_or(&server).address();
    let mut group = PlayerGroup::join_at(env, (address, ""), HONEST_PLAYERS, LinkProfile::UNLIMITED)?;
    // The players continue to play: a forged player would also receive their messages.
    measure_reflection(env, address, rate, write, |time| group.send_state_and_wait(time))
}

/// Sends datagrams with a third party's source address, and records what the third party receives.
///
/// `meanwhile` must last as long as its argument says.
fn measure_reflection(
    env: &Environment,
    target: SocketAddrV4,
    rate: u32,
    mut write: impl FnMut(u64) -> (SocketAddrV4, Vec<u8>),
    mut meanwhile: impl FnMut(Duration),
) -> anyhow::Result<ReflectedTraffic> {
    let clock = env.clock;
    let mut tap = Sniffer::new(target)?;
    let mut forger = Forger::new(env.sandbox, target)?;
    let mut traffic = ReflectedTraffic::default();
    let start = clock.now();
    let end = start + env.measure_time.max(2 * WINDOW);
    let mut number = 0;
    while clock.now() < end {
        let now = clock.now();
        let due = if rate == 0 { 1 } else { (now.since(start).as_secs_f64() * f64::from(rate)) as u64 + 1 };
        while number < due {
            let (from, datagram) = write(number);
            traffic.sent.push((clock.now(), datagram.len()));
            forger.push(from, &datagram);
            number += 1;
        }
        forger.flush();
        meanwhile(STEP);
        tap.receive_until(clock, clock.now(), |to, payload| {
            if is_victim(*to.ip()) {
                traffic.received.push((clock.now(), payload.len()));
            }
        });
    }
    Ok(traffic)
}

/// The datagrams sent with the third party's address, and the datagrams that it received.
#[derive(Debug, Default)]
struct ReflectedTraffic {
    sent: Vec<(Time, usize)>,
    received: Vec<(Time, usize)>,
}

impl ReflectedTraffic {
    /// Returns the ratio of received to sent bytes in the worst ten seconds after a sent datagram.
    fn worst_ratio(&self) -> f64 {
        let windows = self.sent.iter().step_by(1 + self.sent.len() / 200).map(|(start, _)| {
            let end = *start + WINDOW;
            bytes_between(&self.received, *start, end) / bytes_between(&self.sent, *start, end).max(1.0)
        });
        windows.fold(0.0, f64::max)
    }

    /// Returns the ratio of received to sent bytes after the first ten seconds.
    fn later_ratio(&self) -> f64 {
        let Some((start, _)) = self.sent.first() else { return 0.0 };
        let from = *start + WINDOW;
        bytes_between(&self.received, from, END_OF_TIME)
            / bytes_between(&self.sent, from, END_OF_TIME).max(1.0)
    }

    fn total_ratio(&self) -> f64 {
        bytes_between(&self.received, Time::ZERO, END_OF_TIME)
            / bytes_between(&self.sent, Time::ZERO, END_OF_TIME).max(1.0)
    }
}

fn bytes_between(bytes: &[(Time, usize)], start: Time, end: Time) -> f64 {
    let inside = bytes.iter().filter(|(at, _)| *at >= start && *at < end);
    inside.map(|(_, len)| *len).sum::<usize>() as f64
}

/// Returns the next datagram of one of sixteen forged players that join with guessed ids.
fn blind_join_step(number: u64, _: &mut Rng) -> (SocketAddrV4, Vec<u8>) {
    let (player, step) = ((number % 16) as u16, number / 16);
    let id = PeerId(u8::try_from(2 + HONEST_PLAYERS + player).unwrap_or(2));
    let mut script = vec![forged::connect(u32::from(player), "")];
    script.extend(forged::blind_join(id, "Forged"));
    let at = usize::try_from(step).unwrap_or(usize::MAX);
    let again = || forged::stay_connected(id, (40 * (step % 400)) as u16);
    (victim(20 + player), script.into_iter().nth(at).unwrap_or_else(again))
}

fn any_id(number: u64) -> PeerId {
    PeerId(2 + (number % 120) as u8)
}

pub(crate) fn echo_loop(env: &Environment) -> anyhow::Result<Vec<AttackMetric>> {
    let [one, other] = [Process::serve(env, &[])?, Process::serve(env, &[])?];
    let mut forger = Forger::new(env.sandbox, one.address())?;
    let mut taps = [Sniffer::new(one.address())?, Sniffer::new(other.address())?];
    forger.push(other.address(), br"\echo\hello");
    forger.flush();
    let mut datagrams = 0_u64;
    let end = env.clock.now() + env.measure_time;
    for tap in &mut taps {
        tap.receive_until(env.clock, end, |to, _| {
            datagrams += u64::from([one.address(), other.address()].contains(&to))
        });
    }
    // The forged query is counted, too.
    let answers = datagrams.saturating_sub(1) as f64;
    Ok(vec![AttackMetric::new("answers to one forged query", MetricUnit::Count, answers).at_most(1.0)])
}

/// Returns an address and port of the third party. All are in one /24 network.
fn victim(number: u16) -> SocketAddrV4 {
    SocketAddrV4::new(Ipv4Addr::new(192, 0, 2, 1 + (number % 250) as u8), 5000 + number)
}

fn is_victim(address: Ipv4Addr) -> bool {
    address.octets().starts_with(&[192, 0, 2])
}

/// Number of honest players.
const HONEST_PLAYERS: u16 = 7;
/// The period to which the limits apply.
const WINDOW: Duration = Duration::from_secs(10);
const STEP: Duration = Duration::from_millis(5);
const END_OF_TIME: Time = Time::from_micros(u64::MAX);
