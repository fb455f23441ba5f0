//! Attacks by those who play, or say that they are those who do.

use std::net::SocketAddrV4;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::ensure;
use bcnet_lab::Rng;
use bcnet_transport::wire::Text;
use bcnet_transport::{Quality, cipher};

use super::{PLAYERS, ROOMY, compare, cost};
use crate::Setting;
use crate::clock::millis;
use crate::crowd::{Crowd, Seen, UNKNOWN};
use crate::forge::{Forger, Pace, flood};
use crate::player::{Line, Player, Ticket, wait};
use crate::process::Process;
use crate::raw::{Manner, RawClient};
use crate::report::{Figure, Unit};
use crate::wire;

/// What a player says too much of, and who suffers from it.
struct Bulk {
    label: &'static str,
    line: Line,
    send: Attacker,
}

/// What somebody does at a server until it is told to stop.
type Attacker = fn(&Setting, SocketAddrV4, &AtomicBool) -> anyhow::Result<()>;

const BULKS: [Bulk; 3] = [
    Bulk { label: "tiny, near: ", line: Line::NEAR, send: send_tiny },
    Bulk { label: "tiny, narrow line: ", line: Line::NARROW, send: send_tiny },
    Bulk { label: "large, narrow line: ", line: Line::NARROW, send: send_large },
];

pub(crate) fn bulk_sender(setting: &Setting) -> anyhow::Result<Vec<Figure>> {
    let mut figures = Vec::new();
    for Bulk { label, line, send } in BULKS {
        setting.progress("bulk-sender", label.trim_end_matches(": "));
        let server = Process::serve(setting, &[ROOMY])?;
        let mut crowd = Crowd::join_from(setting, &server, PLAYERS, line)?;
        let quiet = crowd.play(&server, setting.time)?;
        let attacked = beside(setting, &server, &mut crowd, send)?;
        let p99 = |seen: &Seen| millis(seen.chat.quantile(0.99));
        let mut heard = compare(label, &quiet, &attacked);
        heard.retain(|figure| !figure.is_named(&format!("{label}chat, p99 delay")));
        figures.extend(heard);
        figures.push(
            Figure::new(format!("{label}chat, p99 delay"), Unit::Millis, p99(&attacked))
                .without(p99(&quiet))
                .at_most(250.0),
        );
        let passed = attacked.unknown as f64 / f64::from(PLAYERS) / setting.time.as_secs_f64();
        figures.push(Figure::new(format!("{label}bulk passed on per second"), Unit::Count, passed));
    }
    Ok(figures)
}

fn send_tiny(setting: &Setting, server: SocketAddrV4, is_over: &AtomicBool) -> anyhow::Result<()> {
    send_bulk(setting, server, is_over, &[UNKNOWN.0], 1900)
}

/// Each is split into parts.
fn send_large(setting: &Setting, server: SocketAddrV4, is_over: &AtomicBool) -> anyhow::Result<()> {
    send_bulk(setting, server, is_over, &[UNKNOWN.0; 1000], 60)
}

/// Says a message again and again, reliably, as often as a player may.
fn send_bulk(
    setting: &Setting,
    server: SocketAddrV4,
    is_over: &AtomicBool,
    message: &[u8],
    rate: u32,
) -> anyhow::Result<()> {
    let mut player = join(setting, server, "Bulk")?;
    let clock = setting.clock;
    let (start, rate, mut said) = (clock.now(), setting.rate(rate), 0);
    while !is_over.load(Ordering::Relaxed) && player.over.is_none() {
        let due = (clock.now().since(start).as_secs_f64() * f64::from(rate)) as u64;
        while said < due {
            said += 1;
            // What the transport does not take is not sent.
            let _ = player.client.send(message, Quality::Reliable, clock.now());
        }
        player.turn(|_, _, _| {});
        wait(clock, [&player], clock.now() + Duration::from_millis(2));
    }
    player.leave();
    Ok(())
}

/// Lets a crowd play while somebody else does what it likes.
fn beside(setting: &Setting, server: &Process, crowd: &mut Crowd, attack: Attacker) -> anyhow::Result<Seen> {
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let attacker = scope.spawn(|| attack(setting, server.address(), &is_over));
        crowd.listen(HEAD_START);
        let seen = crowd.play(server, setting.time);
        is_over.store(true, Ordering::Relaxed);
        attacker.join().map_err(|_| anyhow::anyhow!("the attacker has failed"))??;
        seen
    })
}

/// Joins from the attacker's own address.
fn join(setting: &Setting, server: SocketAddrV4, name: &str) -> anyhow::Result<Player> {
    let from = setting.arena.attacker();
    let ticket = Ticket { server, from, name, password: "", nonce: setting.seed as u32, line: Line::NEAR };
    let mut player = Player::connect(setting.arena, setting.clock, ticket)?;
    let end = setting.clock.now() + JOINING;
    while player.entered.is_none() && player.over.is_none() && setting.clock.now() < end {
        player.turn(|_, _, _| {});
        wait(setting.clock, [&player], end);
    }
    ensure!(player.entered.is_some(), "the attacker cannot join: {:?}", player.over);
    Ok(player)
}

pub(crate) fn come_and_go(setting: &Setting) -> anyhow::Result<Vec<Figure>> {
    let server = Process::serve(setting, &[ROOMY])?;
    let mut crowd = Crowd::join(setting, &server, PLAYERS)?;
    let quiet = crowd.play(&server, setting.time)?;
    let attacked = beside(setting, &server, &mut crowd, join_often)?;
    let mut figures = compare("", &quiet, &attacked);
    let told = attacked.departures as f64 / f64::from(PLAYERS) / setting.time.as_secs_f64();
    figures.push(Figure::new("departures that a player hears of per second", Unit::Count, told).at_most(2.0));
    Ok(figures)
}

/// Joins the game thirty times a second, and leaves as soon as it is in or has waited for a while.
fn join_often(setting: &Setting, server: SocketAddrV4, is_over: &AtomicBool) -> anyhow::Result<()> {
    let (clock, from) = (setting.clock, setting.arena.attacker());
    let manner = Manner { from, name: Text::encode("Nuisance"), plays: true, is_strict: false };
    let (mut nonce, mut clients) = (0, Vec::new());
    while !is_over.load(Ordering::Relaxed) {
        let due = clock.now() + Duration::from_millis(33);
        nonce += 1;
        clients.push(RawClient::connect(setting, server, nonce, manner.clone())?);
        for client in &mut clients {
            client.listen(clock.now() + Duration::from_millis(1));
            if client.has_entered {
                client.leave();
            }
        }
        clients.retain(|client| !client.has_entered && !client.is_gone());
        clients.truncate(20);
        clock.sleep_until(due);
    }
    Ok(())
}

pub(crate) fn impersonate(setting: &Setting) -> anyhow::Result<Vec<Figure>> {
    let server = Process::serve(setting, &[ROOMY])?;
    let mut crowd = Crowd::join(setting, &server, PLAYERS)?;
    let quiet = crowd.play(&server, setting.time)?;
    let ids: Vec<u8> = crowd.players().iter().map(|player| player.client.id().0).collect();
    let from = SocketAddrV4::new(setting.arena.attacker(), 4000);
    let forger = Forger::new(setting.arena, server.address())?;
    let pace = Pace { rate: setting.rate(2000), max: 2 * setting.time + MARGIN };
    let write = |forger: &mut Forger, number: u64| {
        let id = ids[number as usize % ids.len()];
        let seq = (number / 7 % 4000) as u16;
        let message = match number % 3 {
            0 => wire::order(seq, &[0x2C, id, 0, 0, 0, 4, 0, b'l', b'i', b'e', b's']),
            1 => wire::goodbye(seq, id),
            _ => wire::ack(seq, false),
        };
        forger.push(from, &wire::datagram(id, &[message]));
    };
    let (attacked, flooded) =
        flood(setting.clock, pace, forger, write, || crowd.play(&server, setting.time))?;
    let mut figures = compare("", &quiet, &attacked);
    figures.push(Figure::new("lies heard", Unit::Count, attacked.strange as f64).at_most(0.0));
    figures.push(flooded.figure());
    Ok(figures)
}

pub(crate) fn mutate(setting: &Setting) -> anyhow::Result<Vec<Figure>> {
    let mut server = Process::serve(setting, &[ROOMY])?;
    let mut crowd = Crowd::join(setting, &server, PLAYERS)?;
    let quiet = crowd.play(&server, setting.time)?;
    let before = server.usage();
    let attacked = beside(setting, &server, &mut crowd, send_mutants)?;
    let mut figures = compare("", &quiet, &attacked);
    figures.push(
        Figure::new("server still runs", Unit::Count, f64::from(u8::from(server.is_alive()))).at_least(1.0),
    );
    figures.extend(cost("", before, server.usage(), setting.time.as_secs_f64()));
    Ok(figures)
}

/// Joins, sends datagrams with a few bytes changed, and joins again when it is thrown out.
fn send_mutants(setting: &Setting, server: SocketAddrV4, is_over: &AtomicBool) -> anyhow::Result<()> {
    let mut rng = Rng::new(setting.seed);
    let clock = setting.clock;
    let manner = Manner {
        from: setting.arena.attacker(),
        name: Text::encode("Mutant"),
        plays: true,
        is_strict: false,
    };
    let mut nonce = 0;
    while !is_over.load(Ordering::Relaxed) {
        nonce += 1;
        let mut client = RawClient::connect(setting, server, nonce, manner.clone())?;
        client.listen(clock.now() + Duration::from_millis(500));
        let end = clock.now() + Duration::from_secs(2);
        while clock.now() < end && !client.is_gone() && !is_over.load(Ordering::Relaxed) {
            for _ in 0..setting.rate(5000) / 500 {
                client.say_raw(&mutant(&mut rng, client.id.unwrap_or(2)));
            }
            client.listen(clock.now() + Duration::from_millis(2));
        }
        client.leave();
    }
    Ok(())
}

/// Returns a datagram with a few bytes changed.
fn mutant(rng: &mut Rng, id: u8) -> Vec<u8> {
    let seq = rng.below(60) as u16;
    let mut payload = vec![rng.any() as u8; 1 + rng.size(80)];
    rng.fill(payload.get_mut(1..).unwrap_or_default());
    let message = match rng.below(6) {
        0 => wire::identity(seq, id, b"M\0u\0t\0"),
        1 => wire::order(seq, &wire::files(rng.any() as u8)),
        2 => wire::ack(seq, rng.chance(0.5)),
        3 => wire::order(seq, &[0x2C, id, 0, 0, 0, 2, 0, b'h', b'i']),
        _ => wire::order(seq, &payload),
    };
    let mut datagram = wire::datagram(id, &[message]);
    // The cipher hides nothing: what is changed is what it says.
    cipher::decrypt(&mut datagram);
    for _ in 0..rng.between(1, 4) {
        let at = 1 + rng.size(datagram.len() - 1);
        datagram.get_mut(at).into_iter().for_each(|byte| *byte = rng.any() as u8);
    }
    datagram.truncate(1 + rng.size(datagram.len()).max(datagram.len() / 2));
    cipher::encrypt(&mut datagram);
    datagram
}

pub(crate) fn return_after_kick(setting: &Setting) -> anyhow::Result<Vec<Figure>> {
    let server = Process::serve(setting, &[ROOMY])?;
    let player = join(setting, server.address(), "Kicked")?;
    server.control(&["kick", "Kicked"])?;
    player.leave();
    let back = join(setting, server.address(), "Kicked again");
    let is_back = f64::from(u8::from(back.is_ok()));
    Ok(vec![Figure::new("back from another port at once", Unit::Count, is_back).at_most(0.0)])
}

const HEAD_START: Duration = Duration::from_secs(2);
const JOINING: Duration = Duration::from_secs(10);
/// How long an attack may last beyond what its victims measure.
const MARGIN: Duration = Duration::from_secs(60);
