//! Attacks on connected players with forged connect requests.

use std::net::SocketAddrV4;
use std::time::Duration;

use bcnet_transport::wire::{Channel, PeerId};

use super::{PLAYERS, SIXTEEN_SLOTS, compare, resource_usage};
use crate::Environment;
use crate::delays::sleep_until;
use crate::forged;
use crate::forger::{FloodRate, Forger, flood};
use crate::group::{PlayerGroup, PlayerMeasurement};
use crate::metrics::{AttackMetric, MetricUnit};
use crate::player::AttackPlayer;
use crate::process::Process;

pub(crate) fn restart_flood(env: &Environment) -> anyhow::Result<Vec<AttackMetric>> {
    let server = Process::serve(env, &[SIXTEEN_SLOTS])?;
    let mut group = PlayerGroup::join(env, &server, PLAYERS)?;
    let quiet = group.play(&server, env.measure_time)?;
    env.progress("restart-flood", "measured without attack");
    let from = SocketAddrV4::new(env.sandbox.attacker_address(), 4000);
    let forger = Forger::new(env.sandbox, server.address())?;
    let before = server.usage();
    let flood_rate = FloodRate { rate: env.rate(20_000), max: 3 * env.measure_time + MARGIN };
    let restart = |forger: &mut Forger, number: u64| forger.push(from, &forged::connect(number as u32, ""));
    let ((attacked, logged), flooded) = flood(env.clock, flood_rate, forger, restart, || {
        let attacked = group.play(&server, env.measure_time)?;
        let logged = logged_departures_share(env, &server, &mut group, &attacked)?;
        Ok((attacked, logged))
    })?;
    let mut metrics = compare("", &quiet, &attacked);
    metrics.push(AttackMetric::new("departures logged", MetricUnit::Share, logged).at_least(1.0));
    metrics.push(flooded.metric());
    metrics.extend(resource_usage("", before, server.usage(), flooded.time.as_secs_f64()));
    Ok(metrics)
}

/// Lets one player leave. Returns the share of departed honest players that the server's log names.
fn logged_departures_share(
    env: &Environment,
    server: &Process,
    group: &mut PlayerGroup,
    measured: &PlayerMeasurement,
) -> anyhow::Result<f64> {
    let names: Vec<String> = group.players().iter().map(|player| player.name.clone()).collect();
    if let Some(player) = group.take_last() {
        player.leave();
    }
    // Another thread of the server writes the log.
    sleep_until(env.clock, env.clock.now() + Duration::from_secs(1));
    let left = server.log_events("left")?;
    let logged = names.iter().filter(|name| left.iter().any(|line| line["player"] == name.as_str())).count();
    // The `lost` players, and the one that left on purpose.
    Ok(logged as f64 / (measured.lost + 1) as f64)
}

/// A case of `replace-player`: the datagrams to forge from the addresses of players.
struct ReplaceCase {
    label: &'static str,
    options: &'static [&'static str],
    /// `true` if the victims send only keepalives and ACKs before the measurement.
    is_idle: bool,
    script: fn(&[SocketAddrV4]) -> Vec<ForgedDatagram>,
    rate: u32,
}

type ForgedDatagram = (SocketAddrV4, Vec<u8>);

const REPLACE_CASES: [ReplaceCase; 5] = [
    ReplaceCase {
        label: "one each: ",
        options: &[SIXTEEN_SLOTS],
        is_idle: false,
        script: |victims| forge_one_each(victims, ""),
        rate: 5,
    },
    ReplaceCase {
        label: "wrong password: ",
        options: &[SIXTEEN_SLOTS, "session.password=engage"],
        is_idle: false,
        script: |victims| forge_one_each(victims, "guess"),
        rate: 5,
    },
    ReplaceCase {
        label: "while idle: ",
        options: &[SIXTEEN_SLOTS],
        is_idle: true,
        script: |victims| forge_one_each(victims, ""),
        rate: 5,
    },
    ReplaceCase {
        label: "guesses, while idle: ",
        options: &[SIXTEEN_SLOTS],
        is_idle: true,
        script: forge_guesses,
        rate: 5000,
    },
    ReplaceCase {
        label: "every port: ",
        options: &[SIXTEEN_SLOTS],
        is_idle: false,
        script: forge_every_port,
        rate: 28_000,
    },
];

pub(crate) fn replace_player(env: &Environment) -> anyhow::Result<Vec<AttackMetric>> {
    let mut metrics = Vec::new();
    for case in REPLACE_CASES.iter().filter(|case| env.is_selected(case.label)) {
        env.progress("replace-player", case.label.trim_end_matches(": "));
        metrics.extend(run_replace_case(env, case)?);
    }
    Ok(metrics)
}

fn run_replace_case(env: &Environment, case: &ReplaceCase) -> anyhow::Result<Vec<AttackMetric>> {
    let server = Process::serve(env, case.options)?;
    let mut group = PlayerGroup::join(env, &server, VICTIMS)?;
    let quiet = group.play(&server, env.measure_time)?;
    let victims: Vec<SocketAddrV4> = group.players().iter().flat_map(AttackPlayer::address).collect();
    let script = (case.script)(&victims);
    let forger = Forger::new(env.sandbox, server.address())?;
    let flood_rate = FloodRate { rate: env.rate(case.rate), max: env.measure_time + MARGIN };
    let write = |forger: &mut Forger, number: u64| {
        if let Some((from, datagram)) = script.get(number as usize) {
            forger.push(*from, datagram);
        }
    };
    let present = group.count_present(&server)?;
    let (mut attacked, flooded) = flood(env.clock, flood_rate, forger, write, || {
        if case.is_idle {
            group.stay_idle(env.measure_time.max(IDLE_TIME));
        }
        group.play(&server, env.measure_time)
    })?;
    attacked.lost = present.saturating_sub(group.count_present(&server)?);
    let mut metrics = compare(case.label, &quiet, &attacked);
    let name = format!("{}datagrams forged", case.label);
    metrics.push(AttackMetric::new(name, MetricUnit::Count, flooded.counters.datagrams as f64));
    Ok(metrics)
}

/// Forges one connect request from the address of each player.
fn forge_one_each(victims: &[SocketAddrV4], password: &str) -> Vec<ForgedDatagram> {
    victims.iter().map(|victim| (*victim, forged::connect(0xDEAD_BEEF, password))).collect()
}

/// Forges a connect request from every port that a player's socket may have.
fn forge_every_port(victims: &[SocketAddrV4]) -> Vec<ForgedDatagram> {
    let from = |victim: &SocketAddrV4, port| {
        (SocketAddrV4::new(*victim.ip(), port), forged::connect(0xDEAD_BEEF, ""))
    };
    PORTS.flat_map(|port| victims.iter().map(move |victim| from(victim, port))).collect()
}

/// Forges connect requests from the addresses of players, and ACKs with guessed ids and cookies.
///
/// With a correct guess, the server would take the address for verified.
fn forge_guesses(victims: &[SocketAddrV4]) -> Vec<ForgedDatagram> {
    let guess = |number: u32| {
        let id = PeerId(2 + (number % 125) as u8);
        let seq = |n: u32| 0x4000 + ((4 * number + n) % 0x8000) as u16;
        let acks: Vec<_> = (0..4).map(|n| forged::ack(Channel::Game, seq(n))).collect();
        forged::datagram(id, &acks)
    };
    let forge =
        |number: u32| if number.is_multiple_of(50) { forged::connect(number, "") } else { guess(number) };
    (0..GUESSES_PER_VICTIM)
        .flat_map(|number| victims.iter().map(move |victim| (*victim, forge(number))))
        .collect()
}

/// A flood ends after its measurements. This limits how long it may run in addition to them.
const MARGIN: Duration = Duration::from_secs(60);
/// Number of players whose addresses are forged.
const VICTIMS: u16 = 3;
/// Longer than the keepalive interval.
const IDLE_TIME: Duration = Duration::from_secs(12);
/// The ports that Linux chooses from by default.
const PORTS: std::ops::RangeInclusive<u16> = 32_768..=60_999;
/// Number of guesses for the address of each player.
const GUESSES_PER_VICTIM: u32 = 40_000;
