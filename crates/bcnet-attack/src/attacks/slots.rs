//! Attacks on places: newcomers find none.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use bcnet_transport::wire::Text;

use crate::Setting;
use crate::clock::millis;
use crate::forge::{Forger, Pace, any_network, flood};
use crate::newcomer::{Joins, max_time, try_joins};
use crate::process::Process;
use crate::raw::{Manner, RawClient};
use crate::report::{Figure, Unit};
use crate::wire;

pub(crate) fn take_slots(setting: &Setting) -> anyhow::Result<Vec<Figure>> {
    let quiet = without_attack(setting)?;
    let mut figures = Vec::new();
    for (label, guesses) in [
        ("next ids guessed: ", Guesses::NextIds),
        ("all ids tried: ", Guesses::AllIds),
        ("all ACKs tried: ", Guesses::AllAcks),
    ] {
        setting.progress("take-slots", label.trim_end_matches(": "));
        let server = Process::serve(setting, &[])?;
        let forger = Forger::new(setting.arena, server.address())?;
        let script = script(guesses);
        let pace = Pace { rate: setting.rate(2000), max: max_time(setting) };
        let write = |forger: &mut Forger, number: u64| {
            let (from, datagram) = &script[number as usize % script.len()];
            forger.push(*from, datagram);
        };
        let ((joins, held), flooded) = flood(setting.clock, pace, forger, write, || {
            setting.clock.sleep_until(setting.clock.now() + HEAD_START);
            let joins = try_joins(setting, &server)?;
            let held = server.players()?.iter().filter(|(name, _)| name.starts_with(FORGED)).count();
            Ok((joins, held))
        })?;
        figures.push(Figure::new(format!("{label}forged slots held"), Unit::Count, held as f64).at_most(0.0));
        figures.extend(admitted(label, &quiet, &joins));
        figures.push(flooded.figure());
    }
    Ok(figures)
}

/// What a forger guesses, since it hears nothing.
#[derive(Debug, Clone, Copy)]
enum Guesses {
    /// That ids are given in turn.
    NextIds,
    AllIds,
    /// The same as the first, and every message that it may have been sent to prove itself.
    AllAcks,
}

/// Returns what forged addresses say to join and stay, over and over.
fn script(guesses: Guesses) -> Vec<(SocketAddrV4, Vec<u8>)> {
    let mut script = Vec::new();
    for player in 0..FORGED_PLAYERS {
        let from = SocketAddrV4::new(Ipv4Addr::new(91, 20 + player, 7, 1), 4000);
        let (ids, is_acked) = match guesses {
            Guesses::NextIds => (2 + player..3 + player, false),
            Guesses::AllIds => (2..127, false),
            Guesses::AllAcks => (2 + player..3 + player, true),
        };
        script.push((from, wire::connect(u32::from(player), "")));
        for id in ids {
            let acks = if is_acked { wire::all_acks(id) } else { Vec::new() };
            let join = wire::blind_join(id, &format!("{FORGED} {player}"));
            script.extend(acks.into_iter().chain(join).map(|datagram| (from, datagram)));
        }
    }
    script
}

pub(crate) fn keep_out(setting: &Setting) -> anyhow::Result<Vec<Figure>> {
    let quiet = without_attack(setting)?;
    let mut figures = Vec::new();
    let few = |forger: &mut Forger, number: u64| {
        let from = SocketAddrV4::new(Ipv4Addr::new(91, 50, (number % 40) as u8, 1), 4000);
        forger.push(from, &wire::connect((number / 40) as u32, ""));
    };
    let joins = forged(setting, "40 networks of one /16", 100, few)?;
    figures.extend(admitted("40 networks: ", &quiet, &joins));
    let joins = from_one_machine(setting, "join and leave", join_and_leave)?;
    figures.extend(admitted("join and leave: ", &quiet, &joins));
    let joins = from_one_machine(setting, "eight connections of one address", hold_eight)?;
    figures.extend(admitted("eight connections: ", &quiet, &joins));
    let many = |forger: &mut Forger, number: u64| {
        forger.push(SocketAddrV4::new(any_network(number), 4000), &wire::connect(number as u32, ""));
    };
    let joins = forged(setting, "65,000 networks", 5000, many)?;
    // Nobody can tell so many apart from newcomers: it is told, and has no bar.
    figures.push(
        Figure::new("65,000 networks: newcomers in", Unit::Share, joins.share()).without(quiet.share()),
    );
    Ok(figures)
}

fn without_attack(setting: &Setting) -> anyhow::Result<Joins> {
    let server = Process::serve(setting, &[])?;
    try_joins(setting, &server)
}

fn forged(
    setting: &Setting,
    what: &str,
    rate: u32,
    write: impl FnMut(&mut Forger, u64) + Send,
) -> anyhow::Result<Joins> {
    setting.progress("keep-out", what);
    let server = Process::serve(setting, &[])?;
    let forger = Forger::new(setting.arena, server.address())?;
    let pace = Pace { rate: setting.rate(rate), max: max_time(setting) };
    Ok(flood(setting.clock, pace, forger, write, || try_joins(setting, &server))?.0)
}

/// Lets newcomers try to join while one machine does what it likes, with sockets of its own.
fn from_one_machine(
    setting: &Setting,
    what: &str,
    attack: fn(&Setting, SocketAddrV4, &AtomicBool) -> anyhow::Result<()>,
) -> anyhow::Result<Joins> {
    setting.progress("keep-out", what);
    let server = Process::serve(setting, &[])?;
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let attacker = scope.spawn(|| attack(setting, server.address(), &is_over));
        setting.clock.sleep_until(setting.clock.now() + HEAD_START);
        let joins = try_joins(setting, &server);
        is_over.store(true, Ordering::Relaxed);
        attacker.join().map_err(|_| anyhow::anyhow!("the attacker has failed"))??;
        joins
    })
}

/// Asks to be let in fifteen times a second, and leaves as soon as it is.
fn join_and_leave(setting: &Setting, server: SocketAddrV4, is_over: &AtomicBool) -> anyhow::Result<()> {
    let clock = setting.clock;
    let manner = squatter(setting, None);
    let (mut nonce, mut clients) = (0, Vec::new());
    while !is_over.load(Ordering::Relaxed) {
        let due = clock.now() + Duration::from_millis(66);
        nonce += 1;
        clients.push(RawClient::connect(setting, server, nonce, manner.clone())?);
        for client in &mut clients {
            client.listen(clock.now() + Duration::from_millis(1));
            client.leave();
        }
        clients.retain(|client| client.id.is_none() && !client.is_gone());
        clock.sleep_until(due);
    }
    Ok(())
}

/// Holds as many connections as there are places, with names but without files, and comes back when it is thrown out.
fn hold_eight(setting: &Setting, server: SocketAddrV4, is_over: &AtomicBool) -> anyhow::Result<()> {
    let manner = squatter(setting, Text::encode(FORGED));
    let mut nonce = 0;
    let mut clients: Vec<RawClient> = Vec::new();
    while !is_over.load(Ordering::Relaxed) {
        clients.retain(|client| !client.is_gone());
        while clients.len() < 8 {
            nonce += 1;
            clients.push(RawClient::connect(setting, server, nonce, manner.clone())?);
        }
        for client in &mut clients {
            client.listen(setting.clock.now() + Duration::from_millis(20));
        }
    }
    Ok(())
}

/// One who does not want to play.
fn squatter(setting: &Setting, name: Option<Vec<u8>>) -> Manner {
    Manner { from: setting.arena.attacker(), name, plays: false, is_strict: false }
}

/// Returns how newcomers fared.
fn admitted(label: &str, quiet: &Joins, joins: &Joins) -> Vec<Figure> {
    vec![
        Figure::new(format!("{label}newcomers in within 10 s"), Unit::Share, joins.share())
            .without(quiet.share())
            .at_least(0.95),
        Figure::new(format!("{label}join, median"), Unit::Millis, millis(joins.delays.quantile(0.5)))
            .without(millis(quiet.delays.quantile(0.5))),
    ]
}

/// What an attacker may do before the first newcomer comes.
const HEAD_START: Duration = Duration::from_secs(2);
/// What forged players are called.
const FORGED: &str = "Forged";
const FORGED_PLAYERS: u8 = 16;
