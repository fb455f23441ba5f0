//! Attacks on player slots, so that newcomers cannot join.

use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use bcnet_transport::wire::PeerId;

use crate::Environment;
use crate::delays::{millis, sleep_until};
use crate::forged;
use crate::forger::{FloodRate, Forger, any_network, flood};
use crate::metrics::{AttackMetric, MetricUnit};
use crate::newcomer::{JoinResults, max_total_time, try_joins};
use crate::player::{AttackPlayer, JoinRequest, LinkProfile, wait_for_players};
use crate::process::Process;
use crate::sniffer::Sniffer;

pub(crate) fn take_slots(env: &Environment) -> anyhow::Result<Vec<AttackMetric>> {
    let quiet = baseline_joins(env)?;
    let mut metrics = Vec::new();
    let cases = [
        ("next ids guessed: ", BlindGuess::NextIds),
        ("all ids tried: ", BlindGuess::AllIds),
        ("all ACKs tried: ", BlindGuess::AllAcks),
        ("without the password: ", BlindGuess::Password),
    ];
    for (label, guesses) in cases.into_iter().filter(|(label, _)| env.is_selected(label)) {
        env.progress("take-slots", label.trim_end_matches(": "));
        let locked = ["session.password=engage"];
        let server = Process::serve(env, if guesses == BlindGuess::Password { &locked } else { &[] })?;
        let forger = Forger::new(env.sandbox, server.address())?;
        let script = forged_script(guesses);
        let flood_rate = FloodRate { rate: env.rate(2000), max: max_total_time(env) };
        let write = |forger: &mut Forger, number: u64| {
            let (from, datagram) = &script[number as usize % script.len()];
            forger.push(*from, datagram);
        };
        let ((joins, held), flooded) = flood(env.clock, flood_rate, forger, write, || {
            sleep_until(env.clock, env.clock.now() + HEAD_START);
            let joins = try_joins(env, &server)?;
            let held = server.players()?.iter().filter(|(name, _)| name.starts_with(FORGED_NAME)).count();
            Ok((joins, held))
        })?;
        metrics.push(
            AttackMetric::new(format!("{label}forged slots held"), MetricUnit::Count, held as f64)
                .at_most(0.0),
        );
        metrics.extend(join_metrics(label, &quiet, &joins));
        metrics.push(AttackMetric::new(format!("{label}tries"), MetricUnit::Count, joins.tries as f64));
        metrics.push(flooded.metric());
    }
    Ok(metrics)
}

/// The guesses of a forger who receives no answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BlindGuess {
    /// The ids that the server would assign in sequence: 2, 3 and so on.
    NextIds,
    AllIds,
    /// As `NextIds`, with ACKs of every sequence number that a cookie may have.
    AllAcks,
    /// As `AllAcks`, at a server with a password.
    Password,
}

/// Returns the datagrams with which forged addresses try to join and stay.
fn forged_script(guesses: BlindGuess) -> Vec<(SocketAddrV4, Vec<u8>)> {
    let mut script = Vec::new();
    for player in 0..FORGED_PLAYERS {
        let from = SocketAddrV4::new(Ipv4Addr::new(91, 20 + player, 7, 1), 4000);
        let (ids, is_acked) = match guesses {
            BlindGuess::NextIds => (2 + player..3 + player, false),
            BlindGuess::AllIds => (2..127, false),
            BlindGuess::AllAcks | BlindGuess::Password => (2 + player..3 + player, true),
        };
        script.push((from, forged::connect(u32::from(player), "")));
        for id in ids {
            let acks = if is_acked { forged::all_acks(PeerId(id)) } else { Vec::new() };
            let join = forged::blind_join(PeerId(id), &format!("{FORGED_NAME} {player}"));
            script.extend(acks.into_iter().chain(join).map(|datagram| (from, datagram)));
        }
    }
    script
}

/// A method to prevent newcomers from joining.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum KeepOut {
    /// Connect requests from forty networks of one /16.
    FewNetworks,
    JoinAndLeave,
    EightConnections,
    /// Many addresses of one /16 that pass address verification once, and do not answer the second one.
    HoldIds,
    /// As `HoldIds`, but the addresses acknowledge all messages and send nothing else.
    AckOnly,
    /// As `AckOnly`, from networks everywhere.
    AckOnlyAnywhere,
    /// Connect requests from 65,000 networks.
    ManyNetworks,
}

const KEEP_OUT_CASES: [(&str, KeepOut); 7] = [
    ("40 networks: ", KeepOut::FewNetworks),
    ("join and leave: ", KeepOut::JoinAndLeave),
    ("eight connections: ", KeepOut::EightConnections),
    ("ids held: ", KeepOut::HoldIds),
    ("ACKs only: ", KeepOut::AckOnly),
    ("ACKs only, 65,000 networks: ", KeepOut::AckOnlyAnywhere),
    ("65,000 networks: ", KeepOut::ManyNetworks),
];

pub(crate) fn keep_out(env: &Environment) -> anyhow::Result<Vec<AttackMetric>> {
    let quiet = baseline_joins(env)?;
    let mut metrics = Vec::new();
    for (label, case) in KEEP_OUT_CASES.into_iter().filter(|(label, _)| env.is_selected(label)) {
        env.progress("keep-out", label.trim_end_matches(": "));
        let joins = joins_during(env, case)?;
        if matches!(case, KeepOut::ManyNetworks | KeepOut::AckOnlyAnywhere) {
            // A server cannot distinguish so many networks from newcomers, and an attacker in so many
            // networks could also play. The result is reported without a limit.
            let share = AttackMetric::new(
                format!("{label}newcomers joined"),
                MetricUnit::Share,
                joins.success_share(),
            );
            metrics.push(share.baseline(quiet.success_share()));
        } else {
            metrics.extend(join_metrics(label, &quiet, &joins));
        }
        metrics.push(AttackMetric::new(format!("{label}tries"), MetricUnit::Count, joins.tries as f64));
    }
    Ok(metrics)
}

/// Lets newcomers try to join during an attack.
fn joins_during(env: &Environment, case: KeepOut) -> anyhow::Result<JoinResults> {
    match case {
        KeepOut::FewNetworks => joins_during_flood(env, 100, |forger, number| {
            let from = SocketAddrV4::new(Ipv4Addr::new(91, 50, (number % 40) as u8, 1), 4000);
            forger.push(from, &forged::connect((number / 40) as u32, ""));
        }),
        KeepOut::JoinAndLeave => joins_during_attack(env, join_and_leave),
        KeepOut::EightConnections => joins_during_attack(env, hold_eight_connections),
        KeepOut::HoldIds => joins_during_attack(env, hold_ids),
        KeepOut::AckOnly => joins_during_attack(env, hold_ids_by_acks),
        KeepOut::AckOnlyAnywhere => joins_during_attack(env, hold_ids_by_acks_anywhere),
        KeepOut::ManyNetworks => joins_during_flood(env, 5000, |forger, number| {
            let from = SocketAddrV4::new(any_network(number), 4000);
            forger.push(from, &forged::connect(number as u32, ""));
        }),
    }
}

/// Sends 200 requests a second, each from a new address of one /16, and ACKs only the first answer.
///
/// It also sends as many forged requests from 65,000 networks. They make the server verify each address
/// twice.
fn hold_ids(env: &Environment, server: SocketAddrV4, is_over: &AtomicBool) -> anyhow::Result<()> {
    verify_repeatedly(env, server, is_over, one_network, false)
}

/// As [`hold_ids`], but it ACKs all answers and sends no requests from other networks.
fn hold_ids_by_acks(env: &Environment, server: SocketAddrV4, is_over: &AtomicBool) -> anyhow::Result<()> {
    verify_repeatedly(env, server, is_over, one_network, true)
}

fn hold_ids_by_acks_anywhere(
    env: &Environment,
    server: SocketAddrV4,
    is_over: &AtomicBool,
) -> anyhow::Result<()> {
    verify_repeatedly(env, server, is_over, any_network, true)
}

/// Sends 200 connect requests a second from `source_address`, and ACKs the first answer to each.
///
/// With `acks_all` it ACKs all later messages, too. Without, it adds as many requests from 65,000 networks.
fn verify_repeatedly(
    env: &Environment,
    server: SocketAddrV4,
    is_over: &AtomicBool,
    source_address: fn(u64) -> Ipv4Addr,
    acks_all: bool,
) -> anyhow::Result<()> {
    let mut forger = Forger::new(env.sandbox, server)?;
    let mut tap = Sniffer::new(server)?;
    let (mut number, mut ids) = (0, HashMap::new());
    while !is_over.load(Ordering::Relaxed) {
        number += 1;
        forger.push(
            SocketAddrV4::new(source_address(number), HOLDER_PORT),
            &forged::connect(number as u32, ""),
        );
        if !acks_all {
            forger.push(SocketAddrV4::new(any_network(number), 4000), &forged::connect(number as u32, ""));
        }
        forger.flush();
        tap.receive_until(env.clock, env.clock.now() + Duration::from_millis(5), |to, answer| {
            let known = ids.get(&to).copied().filter(|_| acks_all);
            if to.port() == HOLDER_PORT
                && let Some((id, acks)) = forged::acks_for(answer, known)
            {
                ids.insert(to, id);
                forger.push(to, &acks);
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

/// Measures joins without an attack, for a short time.
fn baseline_joins(env: &Environment) -> anyhow::Result<JoinResults> {
    let server = Process::serve(env, &[])?;
    let time = env.measure_time.min(MAX_BASELINE_TIME);
    let tries = env.tries.min(time.as_secs() as u16).max(1);
    try_joins(&Environment { measure_time: time, tries, ..env.clone() }, &server)
}

fn joins_during_flood(
    env: &Environment,
    rate: u32,
    write: fn(&mut Forger, u64),
) -> anyhow::Result<JoinResults> {
    let server = Process::serve(env, &[])?;
    let forger = Forger::new(env.sandbox, server.address())?;
    let flood_rate = FloodRate { rate: env.rate(rate), max: max_total_time(env) };
    Ok(flood(env.clock, flood_rate, forger, write, || try_joins(env, &server))?.0)
}

/// Lets newcomers try to join while `attack` runs in another thread.
fn joins_during_attack(
    env: &Environment,
    attack: fn(&Environment, SocketAddrV4, &AtomicBool) -> anyhow::Result<()>,
) -> anyhow::Result<JoinResults> {
    let server = Process::serve(env, &[])?;
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let attacker = scope.spawn(|| attack(env, server.address(), &is_over));
        sleep_until(env.clock, env.clock.now() + HEAD_START);
        let joins = try_joins(env, &server);
        is_over.store(true, Ordering::Relaxed);
        attacker.join().map_err(|_| anyhow::anyhow!("the attacker has panicked"))??;
        joins
    })
}

/// Connects fifteen times a second, and leaves as soon as it is connected.
fn join_and_leave(env: &Environment, server: SocketAddrV4, is_over: &AtomicBool) -> anyhow::Result<()> {
    let clock = env.clock;
    let (mut nonce, mut players) = (0, Vec::new());
    while !is_over.load(Ordering::Relaxed) {
        let due = clock.now() + Duration::from_millis(66);
        nonce += 1;
        players.push(connect_without_playing(env, server, nonce)?);
        wait_for_players(clock, &players, due);
        for player in &mut players {
            player.poll(|_, _, _| {});
            if player.connected.is_some() {
                player.send_disconnect();
            }
        }
        players.retain(|player| player.connected.is_none() && !player.has_left_or_timed_out());
        sleep_until(clock, due);
    }
    Ok(())
}

/// Holds as many connections as there are slots, and reconnects after a disconnect.
///
/// The connections have names, but do not answer the file check.
fn hold_eight_connections(
    env: &Environment,
    server: SocketAddrV4,
    is_over: &AtomicBool,
) -> anyhow::Result<()> {
    let mut nonce = 0;
    let mut players: Vec<AttackPlayer> = Vec::new();
    while !is_over.load(Ordering::Relaxed) {
        players.retain(|player| !player.has_left_or_timed_out());
        while players.len() < 8 {
            nonce += 1;
            players.push(connect_without_playing(env, server, nonce)?);
        }
        wait_for_players(env.clock, &players, env.clock.now() + Duration::from_millis(100));
        for player in &mut players {
            player.poll(|_, _, _| {});
        }
    }
    Ok(())
}

/// Connects as a client that does not enter the game.
fn connect_without_playing(
    env: &Environment,
    server: SocketAddrV4,
    nonce: u32,
) -> anyhow::Result<AttackPlayer> {
    let from = env.sandbox.attacker_address();
    let request =
        JoinRequest { server, from, name: FORGED_NAME, password: "", nonce, link: LinkProfile::UNLIMITED };
    let mut player = AttackPlayer::connect(env.sandbox, env.clock, request)?;
    player.enters_game = false;
    player.send();
    Ok(player)
}

/// Returns the share and the delay of successful joins.
fn join_metrics(label: &str, quiet: &JoinResults, joins: &JoinResults) -> Vec<AttackMetric> {
    vec![
        AttackMetric::new(
            format!("{label}newcomers joined within 10 s"),
            MetricUnit::Share,
            joins.success_share(),
        )
        .baseline(quiet.success_share())
        .at_least(0.95),
        AttackMetric::new(
            format!("{label}join, median"),
            MetricUnit::Millis,
            millis(joins.delays.quantile(0.5)),
        )
        .baseline(millis(quiet.delays.quantile(0.5))),
    ]
}

/// The time that the attack runs before the first newcomer.
const HEAD_START: Duration = Duration::from_secs(2);
/// The name of forged players.
const FORGED_NAME: &str = "Forged";
const FORGED_PLAYERS: u8 = 16;
/// The port of addresses that hold ids.
const HOLDER_PORT: u16 = 4001;
/// The longest measurement without an attack.
const MAX_BASELINE_TIME: Duration = Duration::from_secs(20);
