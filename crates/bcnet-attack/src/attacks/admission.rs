//! Attacks on those who are in by those who ask to be let in.

use std::net::SocketAddrV4;
use std::time::Duration;

use super::{PLAYERS, ROOMY, compare, cost};
use crate::Setting;
use crate::crowd::{Crowd, Seen};
use crate::forge::{Forger, Pace, flood};
use crate::player::Player;
use crate::process::Process;
use crate::report::{Figure, Unit};
use crate::wire;

pub(crate) fn restart_flood(setting: &Setting) -> anyhow::Result<Vec<Figure>> {
    let server = Process::serve(setting, &[ROOMY])?;
    let mut crowd = Crowd::join(setting, &server, PLAYERS)?;
    let quiet = crowd.play(&server, setting.time)?;
    setting.progress("restart-flood", "measured without attack");
    let from = SocketAddrV4::new(setting.arena.attacker(), 4000);
    let forger = Forger::new(setting.arena, server.address())?;
    let before = server.usage();
    let pace = Pace { rate: setting.rate(20_000), max: 3 * setting.time + MARGIN };
    let restart = |forger: &mut Forger, number: u64| forger.push(from, &wire::connect(number as u32, ""));
    let ((attacked, logged), flooded) = flood(setting.clock, pace, forger, restart, || {
        let attacked = crowd.play(&server, setting.time)?;
        let logged = departures_logged(setting, &server, &mut crowd, &attacked)?;
        Ok((attacked, logged))
    })?;
    let mut figures = compare("", &quiet, &attacked);
    figures.push(Figure::new("departures logged", Unit::Share, logged).at_least(1.0));
    figures.push(flooded.figure());
    figures.extend(cost("", before, server.usage(), flooded.time.as_secs_f64()));
    Ok(figures)
}

/// Lets a player leave, and returns the share of departures of honest players that the log tells.
fn departures_logged(
    setting: &Setting,
    server: &Process,
    crowd: &mut Crowd,
    seen: &Seen,
) -> anyhow::Result<f64> {
    let names: Vec<String> = crowd.players().iter().map(|player| player.name.clone()).collect();
    if let Some(player) = crowd.take_last() {
        player.leave();
    }
    // The log is written by a thread of its own.
    setting.clock.sleep_until(setting.clock.now() + Duration::from_secs(1));
    let left = server.logged("left")?;
    let told = names.iter().filter(|name| left.iter().any(|line| line["player"] == name.as_str())).count();
    // One has left of its own accord.
    Ok(told as f64 / (seen.lost + 1) as f64)
}

/// A way to replace players: what is forged, given their addresses.
struct Way {
    label: &'static str,
    options: &'static [&'static str],
    /// Whether the victims say nothing of their own at first.
    is_idle: bool,
    script: fn(&[SocketAddrV4]) -> Vec<Forged>,
    rate: u32,
}

type Forged = (SocketAddrV4, Vec<u8>);

const WAYS: [Way; 4] = [
    Way {
        label: "one each: ",
        options: &[ROOMY],
        is_idle: false,
        script: |victims| forge_one_each(victims, ""),
        rate: 5,
    },
    Way {
        label: "wrong password: ",
        options: &[ROOMY, "session.password=engage"],
        is_idle: false,
        script: |victims| forge_one_each(victims, "guess"),
        rate: 5,
    },
    Way {
        label: "while idle: ",
        options: &[ROOMY],
        is_idle: true,
        script: |victims| forge_one_each(victims, ""),
        rate: 5,
    },
    Way { label: "every port: ", options: &[ROOMY], is_idle: false, script: forge_every_port, rate: 28_000 },
];

pub(crate) fn replace_player(setting: &Setting) -> anyhow::Result<Vec<Figure>> {
    let mut figures = Vec::new();
    for way in WAYS {
        setting.progress("replace-player", way.label.trim_end_matches(": "));
        figures.extend(replace(setting, &way)?);
    }
    Ok(figures)
}

fn replace(setting: &Setting, way: &Way) -> anyhow::Result<Vec<Figure>> {
    let server = Process::serve(setting, way.options)?;
    let mut crowd = Crowd::join(setting, &server, VICTIMS)?;
    let quiet = crowd.play(&server, setting.time)?;
    let victims: Vec<SocketAddrV4> = crowd.players().iter().flat_map(Player::address).collect();
    let script = (way.script)(&victims);
    let forger = Forger::new(setting.arena, server.address())?;
    let pace = Pace { rate: setting.rate(way.rate), max: setting.time + MARGIN };
    let write = |forger: &mut Forger, number: u64| {
        if let Some((from, datagram)) = script.get(number as usize) {
            forger.push(*from, datagram);
        }
    };
    let present = crowd.present(&server)?;
    let (mut attacked, flooded) = flood(setting.clock, pace, forger, write, || {
        if way.is_idle {
            crowd.listen(setting.time.max(IDLE));
        }
        crowd.play(&server, setting.time)
    })?;
    attacked.lost = present.saturating_sub(crowd.present(&server)?);
    let mut figures = compare(way.label, &quiet, &attacked);
    let name = format!("{}datagrams forged", way.label);
    figures.push(Figure::new(name, Unit::Count, flooded.tally.datagrams as f64));
    Ok(figures)
}

/// A connect request from the address of each player.
fn forge_one_each(victims: &[SocketAddrV4], password: &str) -> Vec<Forged> {
    victims.iter().map(|victim| (*victim, wire::connect(0xDEAD_BEEF, password))).collect()
}

/// A connect request from each port that a player's system may have chosen.
fn forge_every_port(victims: &[SocketAddrV4]) -> Vec<Forged> {
    let from =
        |victim: &SocketAddrV4, port| (SocketAddrV4::new(*victim.ip(), port), wire::connect(0xDEAD_BEEF, ""));
    PORTS.flat_map(|port| victims.iter().map(move |victim| from(victim, port))).collect()
}

/// How long an attack may last beyond what its victims measure.
const MARGIN: Duration = Duration::from_secs(60);
/// As many as were removed in one go once.
const VICTIMS: u16 = 3;
/// Longer than the pause between two keepalives.
const IDLE: Duration = Duration::from_secs(12);
/// What systems choose ports from.
const PORTS: std::ops::RangeInclusive<u16> = 32_768..=60_999;
