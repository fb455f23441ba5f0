//! What a third party is sent because somebody forged its address.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::Duration;

use bcnet_lab::Rng;
use bcnet_session::heartbeat;
use bcnet_transport::Time;
use bcnet_transport::wire::PeerId;

use super::ROOMY;
use crate::Environment;
use crate::delays::sleep_until;
use crate::forge::Forger;
use crate::forged;
use crate::group::PlayerGroup;
use crate::metrics::{Metric, MetricUnit};
use crate::player::Link;
use crate::process::Process;
use crate::tap::Tap;

/// One kind of datagram that may be answered.
struct Reflection {
    name: &'static str,
    /// Datagrams per second; 0 is a single one.
    rate: u32,
    write: fn(u64, &mut Rng) -> (SocketAddrV4, Vec<u8>),
}

/// Everything but queries. Addresses are told by [`victim`].
const KINDS: [Reflection; 7] = [
    Reflection { name: "one connect", rate: 0, write: |_, _| (victim(0), forged::connect(1, "")) },
    Reflection { name: "connect again", rate: 20, write: |_, _| (victim(1), forged::connect(1, "")) },
    Reflection {
        name: "connect anew",
        rate: 200,
        write: |number, _| (victim(2 + (number % 16) as u16), forged::connect(number as u32, "")),
    },
    Reflection { name: "join blindly", rate: 100, write: join_blindly },
    Reflection {
        name: "goodbye",
        rate: 200,
        write: |number, _| (victim(40), forged::datagram(any_id(number), &[forged::goodbye(1, PeerId(2))])),
    },
    Reflection {
        name: "wrong ids",
        rate: 200,
        write: |number, _| {
            let chat = forged::chat(any_id(number), b"Q");
            (victim(41), forged::datagram(any_id(number), &[forged::reliable(0, &chat)]))
        },
    },
    Reflection { name: "garbage", rate: 200, write: garbage },
];

const QUERIES: [&str; 7] =
    [r"\status\", r"\players\", r"\info\", r"\rules\", r"\basic\", r"\secure\abcdef", r"\echo\0123456789"];

pub(crate) fn reflect(env: &Environment) -> anyhow::Result<Vec<Metric>> {
    reflect_at(env, "reflect", Target::Server)
}

pub(crate) fn reflect_proxy(env: &Environment) -> anyhow::Result<Vec<Metric>> {
    reflect_at(env, "reflect-proxy", Target::Proxy)
}

/// What answers.
#[derive(Debug, Clone, Copy)]
enum Target {
    Server,
    /// A proxy before a server that trusts it, which greets whoever asks with all that it has to say, as a stock one does.
    Proxy,
}

fn reflect_at(env: &Environment, attack: &str, target: Target) -> anyhow::Result<Vec<Metric>> {
    let mut metrics = Vec::new();
    for kind in &KINDS {
        env.progress(attack, kind.name);
        let rng = &mut Rng::new(env.seed);
        let traffic = exchange(env, target, kind.rate, |number| (kind.write)(number, rng))?;
        metrics.extend(ratios(kind, &traffic));
    }
    env.progress(attack, "queries");
    let traffic = exchange(env, target, 100, |number| {
        let query = QUERIES[number as usize % QUERIES.len()];
        (victim((number % 250) as u16), query.as_bytes().to_vec())
    })?;
    let bytes = traffic.most_bytes();
    metrics.push(Metric::new("queries, bytes to a /24 in 10 s", MetricUnit::Bytes, bytes).at_most(2000.0));
    metrics.push(Metric::new("queries, in all", MetricUnit::Times, traffic.in_all()));
    Ok(metrics)
}

/// Returns how many bytes came for each that was sent.
fn ratios(kind: &Reflection, traffic: &Traffic) -> [Metric; 2] {
    let (later, most) = if kind.rate == 0 { (traffic.in_all(), 3.0) } else { (traffic.later(), 1.0) };
    let worst = Metric::new(format!("{}, in 10 s", kind.name), MetricUnit::Times, traffic.worst());
    let later = Metric::new(format!("{}, later", kind.name), MetricUnit::Times, later);
    [worst.at_most(3.0), later.at_most(most)]
}

/// Everything that a list server may answer.
const LIST_KINDS: [Reflection; 5] = [
    Reflection { name: "one heartbeat", rate: 0, write: |_, _| (victim(0), heartbeat(victim(0).port())) },
    Reflection {
        name: "heartbeats",
        rate: 200,
        write: |number, _| {
            let from = victim((number % 250) as u16);
            (from, heartbeat(from.port()))
        },
    },
    Reflection {
        name: "answers to no challenge",
        rate: 200,
        write: |number, _| {
            let answer = r"\gamename\bcommander\validate\abcdefgh\final\\queryid\1.1";
            (victim((number % 250) as u16), answer.into())
        },
    },
    Reflection {
        name: "queries",
        rate: 200,
        write: |number, _| (victim(41), QUERIES[number as usize % QUERIES.len()].into()),
    },
    Reflection { name: "garbage", rate: 200, write: garbage },
];

pub(crate) fn reflect_master(env: &Environment) -> anyhow::Result<Vec<Metric>> {
    let mut metrics = Vec::new();
    for kind in &LIST_KINDS {
        env.progress("reflect-master", kind.name);
        let master = Process::master(env)?;
        let rng = &mut Rng::new(env.seed);
        let pause = |time| sleep_until(env.clock, env.clock.now() + time);
        let address = master.at("udp")?;
        let traffic = reflected(env, address, kind.rate, |number| (kind.write)(number, rng), pause)?;
        metrics.extend(ratios(kind, &traffic));
    }
    Ok(metrics)
}

fn garbage(number: u64, rng: &mut Rng) -> (SocketAddrV4, Vec<u8>) {
    let mut bytes = vec![0; (number % 60) as usize];
    rng.fill(&mut bytes);
    (victim(42), bytes)
}

/// Sends datagrams for a while to a server at which others play, and counts what comes back.
fn exchange(
    env: &Environment,
    target: Target,
    rate: u32,
    write: impl FnMut(u64) -> (SocketAddrV4, Vec<u8>),
) -> anyhow::Result<Traffic> {
    let server = match target {
        Target::Server => Process::serve(env, &[ROOMY])?,
        Target::Proxy => Process::serve(env, &[ROOMY, "session.trusted=10.9.0.0/24"])?,
    };
    let proxy = match target {
        Target::Server => None,
        Target::Proxy => Some(Process::proxy(env, server.address(), &["--upstream-source", "10.9.0.0/24"])?),
    };
    let address = proxy.as_ref().unwrap_or(&server).address();
    let mut group = PlayerGroup::join_at(env, (address, ""), TALKERS, Link::UNLIMITED)?;
    // The game goes on: what players say is part of what a forged one would be told.
    reflected(env, address, rate, write, |time| group.chatter(time))
}

/// Sends datagrams for a while in the name of a third party, and counts what it is sent. `meanwhile` takes as long as it is
/// told.
fn reflected(
    env: &Environment,
    target: SocketAddrV4,
    rate: u32,
    mut write: impl FnMut(u64) -> (SocketAddrV4, Vec<u8>),
    mut meanwhile: impl FnMut(Duration),
) -> anyhow::Result<Traffic> {
    let clock = env.clock;
    let mut tap = Tap::new(target)?;
    let mut forger = Forger::new(env.sandbox, target)?;
    let mut traffic = Traffic::default();
    let start = clock.now();
    let end = start + env.time.max(2 * WINDOW);
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
        meanwhile(TURN);
        tap.listen(clock, clock.now(), |to, payload| {
            if is_victim(*to.ip()) {
                traffic.received.push((clock.now(), payload.len()));
            }
        });
    }
    Ok(traffic)
}

/// What was sent in the name of the third party, and what came of it.
#[derive(Debug, Default)]
struct Traffic {
    sent: Vec<(Time, usize)>,
    received: Vec<(Time, usize)>,
}

impl Traffic {
    /// Returns how many bytes came back for each that was sent, in the worst ten seconds in which any was.
    fn worst(&self) -> f64 {
        let windows = self.sent.iter().step_by(1 + self.sent.len() / 200).map(|(start, _)| {
            let end = *start + WINDOW;
            within(&self.received, *start, end) / within(&self.sent, *start, end).max(1.0)
        });
        windows.fold(0.0, f64::max)
    }

    /// Returns the same of the time after the first ten seconds.
    fn later(&self) -> f64 {
        let Some((start, _)) = self.sent.first() else { return 0.0 };
        let from = *start + WINDOW;
        within(&self.received, from, END) / within(&self.sent, from, END).max(1.0)
    }

    fn in_all(&self) -> f64 {
        within(&self.received, Time::ZERO, END) / within(&self.sent, Time::ZERO, END).max(1.0)
    }

    /// Returns the most bytes that came in any ten seconds.
    fn most_bytes(&self) -> f64 {
        let windows = self.received.iter().map(|(start, _)| within(&self.received, *start, *start + WINDOW));
        windows.fold(0.0, f64::max)
    }
}

fn within(bytes: &[(Time, usize)], start: Time, end: Time) -> f64 {
    let inside = bytes.iter().filter(|(at, _)| *at >= start && *at < end);
    inside.map(|(_, len)| *len).sum::<usize>() as f64
}

/// A player that hears nothing, as each of sixteen at the address of one third party: its id is guessed to be the next.
fn join_blindly(number: u64, _: &mut Rng) -> (SocketAddrV4, Vec<u8>) {
    let (player, step) = ((number % 16) as u16, number / 16);
    let id = PeerId(u8::try_from(2 + TALKERS + player).unwrap_or(2));
    let mut script = vec![forged::connect(u32::from(player), "")];
    script.extend(forged::blind_join(id, "Forged"));
    let at = usize::try_from(step).unwrap_or(usize::MAX);
    let again = || forged::hold(id, (40 * (step % 400)) as u16);
    (victim(20 + player), script.into_iter().nth(at).unwrap_or_else(again))
}

fn any_id(number: u64) -> PeerId {
    PeerId(2 + (number % 120) as u8)
}

pub(crate) fn echo_loop(env: &Environment) -> anyhow::Result<Vec<Metric>> {
    let [one, other] = [Process::serve(env, &[])?, Process::serve(env, &[])?];
    let mut forger = Forger::new(env.sandbox, one.address())?;
    let mut taps = [Tap::new(one.address())?, Tap::new(other.address())?];
    forger.push(other.address(), br"\echo\hello");
    forger.flush();
    let mut datagrams = 0_u64;
    let end = env.clock.now() + env.time;
    for tap in &mut taps {
        tap.listen(env.clock, end, |to, _| {
            datagrams += u64::from([one.address(), other.address()].contains(&to))
        });
    }
    // The query itself is among them.
    let answers = datagrams.saturating_sub(1) as f64;
    Ok(vec![Metric::new("answers to one forged query", MetricUnit::Count, answers).at_most(1.0)])
}

/// Returns a socket of the third party, all in one network.
fn victim(number: u16) -> SocketAddrV4 {
    SocketAddrV4::new(Ipv4Addr::new(192, 0, 2, 1 + (number % 250) as u8), 5000 + number)
}

fn is_victim(address: Ipv4Addr) -> bool {
    address.octets().starts_with(&[192, 0, 2])
}

/// How many honest players there are meanwhile.
const TALKERS: u16 = 7;
/// What limits are told of.
const WINDOW: Duration = Duration::from_secs(10);
const TURN: Duration = Duration::from_millis(5);
const END: Time = Time::from_micros(u64::MAX);
