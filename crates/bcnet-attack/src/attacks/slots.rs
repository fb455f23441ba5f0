//! Attacks on places: newcomers find none.

use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use bcnet_transport::wire::PeerId;

use crate::Environment;
use crate::delays::{millis, sleep_until};
use crate::forge::{FloodRate, Forger, any_network, flood};
use crate::forged;
use crate::metrics::{Metric, MetricUnit};
use crate::newcomer::{Joins, max_time, try_joins};
use crate::player::{JoinRequest, Link, Player, wait};
use crate::process::Process;
use crate::tap::Tap;

pub(crate) fn take_slots(env: &Environment) -> anyhow::Result<Vec<Metric>> {
    let quiet = without_attack(env)?;
    let mut metrics = Vec::new();
    let cases = [
        ("next ids guessed: ", Guesses::NextIds),
        ("all ids tried: ", Guesses::AllIds),
        ("all ACKs tried: ", Guesses::AllAcks),
        ("without the password: ", Guesses::Password),
    ];
    for (label, guesses) in cases.into_iter().filter(|(label, _)| env.is_chosen(label)) {
        env.progress("take-slots", label.trim_end_matches(": "));
        let locked = ["session.password=engage"];
        let server = Process::serve(env, if guesses == Guesses::Password { &locked } else { &[] })?;
        let forger = Forger::new(env.sandbox, server.address())?;
        let script = script(guesses);
        let flood_rate = FloodRate { rate: env.rate(2000), max: max_time(env) };
        let write = |forger: &mut Forger, number: u64| {
            let (from, datagram) = &script[number as usize % script.len()];
            forger.push(*from, datagram);
        };
        let ((joins, held), flooded) = flood(env.clock, flood_rate, forger, write, || {
            sleep_until(env.clock, env.clock.now() + HEAD_START);
            let joins = try_joins(env, &server)?;
            let held = server.players()?.iter().filter(|(name, _)| name.starts_with(FORGED)).count();
            Ok((joins, held))
        })?;
        metrics.push(
            Metric::new(format!("{label}forged slots held"), MetricUnit::Count, held as f64).at_most(0.0),
        );
        metrics.extend(admitted(label, &quiet, &joins));
        metrics.push(Metric::new(format!("{label}tries"), MetricUnit::Count, joins.tries as f64));
        metrics.push(flooded.metric());
    }
    Ok(metrics)
}

/// What a forger guesses, since it hears nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Guesses {
    /// That ids are given in turn.
    NextIds,
    AllIds,
    /// The same as the first, and every message that it may have been sent to prove itself.
    AllAcks,
    /// The same at a server that lets in only those who know the password.
    Password,
}

/// Returns what forged addresses say to join and stay, over and over.
fn script(guesses: Guesses) -> Vec<(SocketAddrV4, Vec<u8>)> {
    let mut script = Vec::new();
    for player in 0..FORGED_PLAYERS {
        let from = SocketAddrV4::new(Ipv4Addr::new(91, 20 + player, 7, 1), 4000);
        let (ids, is_acked) = match guesses {
            Guesses::NextIds => (2 + player..3 + player, false),
            Guesses::AllIds => (2..127, false),
            Guesses::AllAcks | Guesses::Password => (2 + player..3 + player, true),
        };
        script.push((from, forged::connect(u32::from(player), "")));
        for id in ids {
            let acks = if is_acked { forged::all_acks(PeerId(id)) } else { Vec::new() };
            let join = forged::blind_join(PeerId(id), &format!("{FORGED} {player}"));
            script.extend(acks.into_iter().chain(join).map(|datagram| (from, datagram)));
        }
    }
    script
}

/// A way to keep newcomers out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum KeepOut {
    /// Connect requests of forty networks of one /16.
    FewNetworks,
    JoinAndLeave,
    EightConnections,
    /// Many addresses of one /16 that prove that they hear us once, and never again when they are asked once more.
    HoldIds,
    /// The same, and they acknowledge whatever they are sent, but never say a word.
    NoWord,
    /// The same from networks everywhere.
    NoWordAnywhere,
    /// Connect requests of 65,000 networks.
    ManyNetworks,
}

const KEEP_OUT: [(&str, KeepOut); 7] = [
    ("40 networks: ", KeepOut::FewNetworks),
    ("join and leave: ", KeepOut::JoinAndLeave),
    ("eight connections: ", KeepOut::EightConnections),
    ("ids held: ", KeepOut::HoldIds),
    ("no word: ", KeepOut::NoWord),
    ("no word, 65,000 networks: ", KeepOut::NoWordAnywhere),
    ("65,000 networks: ", KeepOut::ManyNetworks),
];

pub(crate) fn keep_out(env: &Environment) -> anyhow::Result<Vec<Metric>> {
    let quiet = without_attack(env)?;
    let mut metrics = Vec::new();
    for (label, case) in KEEP_OUT.into_iter().filter(|(label, _)| env.is_chosen(label)) {
        env.progress("keep-out", label.trim_end_matches(": "));
        let joins = kept_out(env, case)?;
        if matches!(case, KeepOut::ManyNetworks | KeepOut::NoWordAnywhere) {
            // Nobody can tell so many apart from newcomers, and who is in so many could play: it is told, and has no bar.
            let share = Metric::new(format!("{label}newcomers in"), MetricUnit::Share, joins.share());
            metrics.push(share.without(quiet.share()));
        } else {
            metrics.extend(admitted(label, &quiet, &joins));
        }
        metrics.push(Metric::new(format!("{label}tries"), MetricUnit::Count, joins.tries as f64));
    }
    Ok(metrics)
}

/// Lets newcomers try to join during an attack.
fn kept_out(env: &Environment, case: KeepOut) -> anyhow::Result<Joins> {
    match case {
        KeepOut::FewNetworks => from_many(env, 100, |forger, number| {
            let from = SocketAddrV4::new(Ipv4Addr::new(91, 50, (number % 40) as u8, 1), 4000);
            forger.push(from, &forged::connect((number / 40) as u32, ""));
        }),
        KeepOut::JoinAndLeave => from_one_machine(env, join_and_leave),
        KeepOut::EightConnections => from_one_machine(env, hold_eight),
        KeepOut::HoldIds => from_one_machine(env, hold_ids),
        KeepOut::NoWord => from_one_machine(env, say_nothing),
        KeepOut::NoWordAnywhere => from_one_machine(env, say_nothing_anywhere),
        KeepOut::ManyNetworks => from_many(env, 5000, |forger, number| {
            let from = SocketAddrV4::new(any_network(number), 4000);
            forger.push(from, &forged::connect(number as u32, ""));
        }),
    }
}

/// Asks from ever new addresses of one network, 200 times a second, and acknowledges what each is answered, but nothing after
/// that. As many requests of all networks, which are forged, have the server ask for more.
fn hold_ids(env: &Environment, server: SocketAddrV4, is_over: &AtomicBool) -> anyhow::Result<()> {
    prove_often(env, server, is_over, one_network, false)
}

/// The same with networks that are its own, and it acknowledges all.
fn say_nothing(env: &Environment, server: SocketAddrV4, is_over: &AtomicBool) -> anyhow::Result<()> {
    prove_often(env, server, is_over, one_network, true)
}

fn say_nothing_anywhere(env: &Environment, server: SocketAddrV4, is_over: &AtomicBool) -> anyhow::Result<()> {
    prove_often(env, server, is_over, any_network, true)
}

fn prove_often(
    env: &Environment,
    server: SocketAddrV4,
    is_over: &AtomicBool,
    place: fn(u64) -> Ipv4Addr,
    goes_on: bool,
) -> anyhow::Result<()> {
    let mut forger = Forger::new(env.sandbox, server)?;
    let mut tap = Tap::new(server)?;
    let (mut number, mut ids) = (0, HashMap::new());
    while !is_over.load(Ordering::Relaxed) {
        number += 1;
        forger.push(SocketAddrV4::new(place(number), HOLDER), &forged::connect(number as u32, ""));
        if !goes_on {
            forger.push(SocketAddrV4::new(any_network(number), 4000), &forged::connect(number as u32, ""));
        }
        forger.flush();
        tap.listen(env.clock, env.clock.now() + Duration::from_millis(5), |to, answer| {
            let known = ids.get(&to).copied().filter(|_| goes_on);
            if to.port() == HOLDER
                && let Some((id, thanks)) = forged::thanks(answer, known)
            {
                ids.insert(to, id);
                forger.push(to, &thanks);
            }
        });
        forger.flush();
    }
    Ok(())
}

/// Returns an address of one network (/16).
fn one_network(number: u64) -> Ipv4Addr {
    let [high, low] = (number as u16).to_be_bytes();
    Ipv4Addr::new(91, 50, high, low)
}

/// What newcomers find when nothing happens is soon known.
fn without_attack(env: &Environment) -> anyhow::Result<Joins> {
    let server = Process::serve(env, &[])?;
    let time = env.time.min(QUIET);
    let tries = env.tries.min(time.as_secs() as u16).max(1);
    try_joins(&Environment { time, tries, ..env.clone() }, &server)
}

fn from_many(env: &Environment, rate: u32, write: fn(&mut Forger, u64)) -> anyhow::Result<Joins> {
    let server = Process::serve(env, &[])?;
    let forger = Forger::new(env.sandbox, server.address())?;
    let flood_rate = FloodRate { rate: env.rate(rate), max: max_time(env) };
    Ok(flood(env.clock, flood_rate, forger, write, || try_joins(env, &server))?.0)
}

/// Lets newcomers try to join while one machine does what it likes, with sockets of its own.
fn from_one_machine(
    env: &Environment,
    attack: fn(&Environment, SocketAddrV4, &AtomicBool) -> anyhow::Result<()>,
) -> anyhow::Result<Joins> {
    let server = Process::serve(env, &[])?;
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let attacker = scope.spawn(|| attack(env, server.address(), &is_over));
        sleep_until(env.clock, env.clock.now() + HEAD_START);
        let joins = try_joins(env, &server);
        is_over.store(true, Ordering::Relaxed);
        attacker.join().map_err(|_| anyhow::anyhow!("the attacker has failed"))??;
        joins
    })
}

/// Asks to be let in fifteen times a second, and leaves as soon as it is.
fn join_and_leave(env: &Environment, server: SocketAddrV4, is_over: &AtomicBool) -> anyhow::Result<()> {
    let clock = env.clock;
    let (mut nonce, mut players) = (0, Vec::new());
    while !is_over.load(Ordering::Relaxed) {
        let due = clock.now() + Duration::from_millis(66);
        nonce += 1;
        players.push(squat(env, server, nonce)?);
        wait(clock, &players, due);
        for player in &mut players {
            player.turn(|_, _, _| {});
            if player.connected.is_some() {
                player.say_goodbye();
            }
        }
        players.retain(|player| player.connected.is_none() && !player.is_gone());
        sleep_until(clock, due);
    }
    Ok(())
}

/// Holds as many connections as there are places, with names but without files, and comes back when it is thrown out.
fn hold_eight(env: &Environment, server: SocketAddrV4, is_over: &AtomicBool) -> anyhow::Result<()> {
    let mut nonce = 0;
    let mut players: Vec<Player> = Vec::new();
    while !is_over.load(Ordering::Relaxed) {
        players.retain(|player| !player.is_gone());
        while players.len() < 8 {
            nonce += 1;
            players.push(squat(env, server, nonce)?);
        }
        wait(env.clock, &players, env.clock.now() + Duration::from_millis(100));
        for player in &mut players {
            player.turn(|_, _, _| {});
        }
    }
    Ok(())
}

/// Asks to be let in as one who does not want to play.
fn squat(env: &Environment, server: SocketAddrV4, nonce: u32) -> anyhow::Result<Player> {
    let from = env.sandbox.attacker();
    let request = JoinRequest { server, from, name: FORGED, password: "", nonce, link: Link::UNLIMITED };
    let mut player = Player::connect(env.sandbox, env.clock, request)?;
    player.plays = false;
    player.send();
    Ok(player)
}

/// Returns how newcomers fared.
fn admitted(label: &str, quiet: &Joins, joins: &Joins) -> Vec<Metric> {
    vec![
        Metric::new(format!("{label}newcomers in within 10 s"), MetricUnit::Share, joins.share())
            .without(quiet.share())
            .at_least(0.95),
        Metric::new(format!("{label}join, median"), MetricUnit::Millis, millis(joins.delays.quantile(0.5)))
            .without(millis(quiet.delays.quantile(0.5))),
    ]
}

/// What an attacker may do before the first newcomer comes.
const HEAD_START: Duration = Duration::from_secs(2);
/// What forged players are called.
const FORGED: &str = "Forged";
const FORGED_PLAYERS: u8 = 16;
/// The port of those who hold ids.
const HOLDER: u16 = 4001;
/// How long it is measured without attack, at most.
const QUIET: Duration = Duration::from_secs(20);
