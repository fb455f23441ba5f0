//! Attacks by connected players, and by senders who use the ids of players.

use std::net::SocketAddrV4;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::ensure;
use bcnet_lab::Rng;
use bcnet_transport::wire::{Channel, PeerId, Text};
use bcnet_transport::{DeliveryMode, cipher};

use super::{PLAYERS, SIXTEEN_SLOTS, compare, resource_usage};
use crate::Environment;
use crate::delays::millis;
use crate::forged;
use crate::forged::unknown_opcode;
use crate::forger::{FloodRate, Forger, flood};
use crate::group::{PlayerGroup, PlayerMeasurement};
use crate::metrics::{AttackMetric, MetricUnit};
use crate::player::{AttackPlayer, JoinRequest, LinkProfile, wait_for_players};
use crate::process::Process;

/// A kind of bulk traffic, and the link of the players that it affects.
struct BulkCase {
    label: &'static str,
    link: LinkProfile,
    send: Attacker,
}

/// A function that attacks the server at the address until the flag is set.
pub(super) type Attacker = fn(&Environment, SocketAddrV4, &AtomicBool) -> anyhow::Result<()>;

const BULK_CASES: [BulkCase; 3] = [
    BulkCase { label: "tiny, near: ", link: LinkProfile::UNLIMITED, send: send_tiny },
    BulkCase { label: "tiny, slow link: ", link: LinkProfile::SLOW, send: send_tiny },
    BulkCase { label: "large, slow link: ", link: LinkProfile::SLOW, send: send_large },
];

pub(crate) fn bulk_sender(env: &Environment) -> anyhow::Result<Vec<AttackMetric>> {
    let mut metrics = Vec::new();
    for BulkCase { label, link, send } in BULK_CASES {
        env.progress("bulk-sender", label.trim_end_matches(": "));
        let server = Process::serve(env, &[SIXTEEN_SLOTS])?;
        let mut group = PlayerGroup::join_from(env, &server, PLAYERS, link)?;
        let quiet = group.play(&server, env.measure_time)?;
        let attacked = play_during_attack(env, &server, &mut group, send)?;
        let p99 = |measured: &PlayerMeasurement| millis(measured.chat.quantile(0.99));
        let mut compared = compare(label, &quiet, &attacked);
        compared.retain(|metric| !metric.is_named(&format!("{label}chat, p99 delay")));
        metrics.extend(compared);
        metrics.push(
            AttackMetric::new(format!("{label}chat, p99 delay"), MetricUnit::Millis, p99(&attacked))
                .baseline(p99(&quiet))
                .at_most(250.0),
        );
        let passed = attacked.bulk as f64 / f64::from(PLAYERS) / env.measure_time.as_secs_f64();
        metrics.push(AttackMetric::new(
            format!("{label}bulk messages relayed per second"),
            MetricUnit::Count,
            passed,
        ));
    }
    Ok(metrics)
}

pub(super) fn send_tiny(env: &Environment, server: SocketAddrV4, is_over: &AtomicBool) -> anyhow::Result<()> {
    send_bulk(env, server, is_over, &[unknown_opcode().0], 1900)
}

/// Each message is sent in fragments.
fn send_large(env: &Environment, server: SocketAddrV4, is_over: &AtomicBool) -> anyhow::Result<()> {
    send_bulk(env, server, is_over, &[unknown_opcode().0; 1000], 60)
}

/// Sends a reliable message again and again, as often as the server allows.
fn send_bulk(
    env: &Environment,
    server: SocketAddrV4,
    is_over: &AtomicBool,
    message: &[u8],
    rate: u32,
) -> anyhow::Result<()> {
    let mut player = join(env, server, "Bulk")?;
    let clock = env.clock;
    let (start, rate, mut sent) = (clock.now(), env.rate(rate), 0);
    while !is_over.load(Ordering::Relaxed) && player.end.is_none() {
        let due = (clock.now().since(start).as_secs_f64() * f64::from(rate)) as u64;
        while sent < due {
            sent += 1;
            // A message that the full outbox refuses is not sent.
            let _ = player.client.send(message, DeliveryMode::Reliable, clock.now());
        }
        player.poll(|_, _, _| {});
        wait_for_players(clock, [&player], clock.now() + Duration::from_millis(2));
    }
    player.leave();
    Ok(())
}

/// Lets a group play during an attack.
pub(super) fn play_during_attack(
    env: &Environment,
    server: &Process,
    group: &mut PlayerGroup,
    attack: Attacker,
) -> anyhow::Result<PlayerMeasurement> {
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let attacker = scope.spawn(|| attack(env, server.address(), &is_over));
        group.stay_idle(HEAD_START);
        let measured = group.play(server, env.measure_time);
        is_over.store(true, Ordering::Relaxed);
        attacker.join().map_err(|_| anyhow::anyhow!("the attacker has panicked"))??;
        measured
    })
}

/// Joins from the attacker's real address.
pub(super) fn join(env: &Environment, server: SocketAddrV4, name: &str) -> anyhow::Result<AttackPlayer> {
    let mut player = connect(env, server, name, env.seed as u32)?;
    let end = env.clock.now() + JOIN_TIMEOUT;
    while player.entered.is_none() && player.end.is_none() && env.clock.now() < end {
        player.poll(|_, _, _| {});
        wait_for_players(env.clock, [&player], end);
    }
    ensure!(player.entered.is_some(), "the attacker cannot join: {:?}", player.end);
    Ok(player)
}

/// Creates a player at the attacker's real address. Its first poll sends the connect request.
fn connect(env: &Environment, server: SocketAddrV4, name: &str, nonce: u32) -> anyhow::Result<AttackPlayer> {
    let from = env.sandbox.attacker_address();
    let request = JoinRequest { server, from, name, password: "", nonce, link: LinkProfile::UNLIMITED };
    AttackPlayer::connect(env.sandbox, env.clock, request)
}

pub(crate) fn come_and_go(env: &Environment) -> anyhow::Result<Vec<AttackMetric>> {
    let server = Process::serve(env, &[SIXTEEN_SLOTS])?;
    let mut group = PlayerGroup::join(env, &server, PLAYERS)?;
    let quiet = group.play(&server, env.measure_time)?;
    let attacked = play_during_attack(env, &server, &mut group, join_and_leave_repeatedly)?;
    let mut metrics = compare("", &quiet, &attacked);
    let seen = attacked.departures as f64 / f64::from(PLAYERS) / env.measure_time.as_secs_f64();
    metrics.push(
        AttackMetric::new("departures that a player sees per second", MetricUnit::Count, seen).at_most(2.0),
    );
    Ok(metrics)
}

/// Connects thirty times a second. Each player leaves when it has entered the game, or gives up in time.
fn join_and_leave_repeatedly(
    env: &Environment,
    server: SocketAddrV4,
    is_over: &AtomicBool,
) -> anyhow::Result<()> {
    let clock = env.clock;
    let (mut nonce, mut players) = (0, Vec::new());
    while !is_over.load(Ordering::Relaxed) {
        let due = clock.now() + Duration::from_millis(33);
        nonce += 1;
        players.push(connect(env, server, "Nuisance", nonce)?);
        while clock.now() < due {
            for player in &mut players {
                player.poll(|_, _, _| {});
                if player.entered.is_some() {
                    player.send_disconnect();
                }
            }
            players.retain(|player| player.entered.is_none() && !player.has_left_or_timed_out());
            wait_for_players(clock, &players, due);
        }
        players.truncate(20);
    }
    Ok(())
}

pub(crate) fn impersonate(env: &Environment) -> anyhow::Result<Vec<AttackMetric>> {
    let server = Process::serve(env, &[SIXTEEN_SLOTS])?;
    let mut group = PlayerGroup::join(env, &server, PLAYERS)?;
    let quiet = group.play(&server, env.measure_time)?;
    let ids: Vec<PeerId> = group.players().iter().map(|player| player.client.id()).collect();
    let from = SocketAddrV4::new(env.sandbox.attacker_address(), 4000);
    let forger = Forger::new(env.sandbox, server.address())?;
    let flood_rate = FloodRate { rate: env.rate(2000), max: 2 * env.measure_time + MARGIN };
    let write = |forger: &mut Forger, number: u64| {
        let id = ids[number as usize % ids.len()];
        let seq = (number / 7 % 4000) as u16;
        let forged_chat = forged::chat(id, b"lies");
        let message = match number % 3 {
            0 => forged::reliable(seq, &forged_chat),
            1 => forged::disconnect(seq, id),
            _ => forged::ack(Channel::Game, seq),
        };
        forger.push(from, &forged::datagram(id, &[message]));
    };
    let (attacked, flooded) =
        flood(env.clock, flood_rate, forger, write, || group.play(&server, env.measure_time))?;
    let mut metrics = compare("", &quiet, &attacked);
    metrics.push(
        AttackMetric::new("forged chat delivered", MetricUnit::Count, attacked.forged_chat as f64)
            .at_most(0.0),
    );
    metrics.push(flooded.metric());
    Ok(metrics)
}

pub(crate) fn mutate(env: &Environment) -> anyhow::Result<Vec<AttackMetric>> {
    let mut server = Process::serve(env, &[SIXTEEN_SLOTS])?;
    let mut group = PlayerGroup::join(env, &server, PLAYERS)?;
    let quiet = group.play(&server, env.measure_time)?;
    let before = server.usage();
    let attacked = play_during_attack(env, &server, &mut group, send_mutated_datagrams)?;
    let mut metrics = compare("", &quiet, &attacked);
    metrics.push(
        AttackMetric::new("server still runs", MetricUnit::Count, f64::from(u8::from(server.is_alive())))
            .at_least(1.0),
    );
    metrics.extend(resource_usage("", before, server.usage(), env.measure_time.as_secs_f64()));
    Ok(metrics)
}

/// Joins, sends mutated datagrams for two seconds or until a disconnect, and joins again.
fn send_mutated_datagrams(
    env: &Environment,
    server: SocketAddrV4,
    is_over: &AtomicBool,
) -> anyhow::Result<()> {
    let mut rng = Rng::new(env.seed);
    let clock = env.clock;
    let mut nonce = 0;
    while !is_over.load(Ordering::Relaxed) {
        nonce += 1;
        let mut player = connect(env, server, "Mutant", nonce)?;
        let joined = clock.now() + Duration::from_millis(500);
        let end = joined + Duration::from_secs(2);
        while clock.now() < end && !player.has_left_or_timed_out() && !is_over.load(Ordering::Relaxed) {
            let is_joined = clock.now() >= joined;
            for _ in 0..if is_joined { env.rate(5000) / 500 } else { 0 } {
                player.send_raw(server, &mutated_datagram(&mut rng, player.client.id()));
            }
            player.poll(|_, _, _| {});
            wait_for_players(clock, [&player], clock.now() + Duration::from_millis(2));
        }
        player.send_disconnect();
    }
    Ok(())
}

/// Returns a datagram with a few changed bytes, cut off at a random length.
pub(super) fn mutated_datagram(rng: &mut Rng, id: PeerId) -> Vec<u8> {
    let seq = rng.below(60) as u16;
    let mut payload = match rng.below(6) {
        0 | 1 => forged::checksum_response(rng.next_u64() as u8),
        2 => forged::chat(id, b"hi"),
        _ => vec![rng.next_u64() as u8; 1 + rng.index(80)],
    };
    if rng.chance(0.5) {
        rng.fill(payload.get_mut(1..).unwrap_or_default());
    }
    let name = Text::encode("Mutant").unwrap_or_default();
    let message = match rng.below(6) {
        0 => forged::identity(seq, id, Text::new(&name).unwrap_or_default()),
        1 => forged::ack(if rng.chance(0.5) { Channel::Control } else { Channel::Game }, seq),
        _ => forged::reliable(seq, &payload),
    };
    let mut datagram = forged::datagram(id, &[message]);
    // The changes are made in the plaintext, so that the server's parser sees them.
    cipher::decrypt(&mut datagram);
    for _ in 0..rng.between(1, 4) {
        let at = 1 + rng.index(datagram.len() - 1);
        datagram.get_mut(at).into_iter().for_each(|byte| *byte = rng.next_u64() as u8);
    }
    datagram.truncate(1 + rng.index(datagram.len()).max(datagram.len() / 2));
    cipher::encrypt(&mut datagram);
    datagram
}

pub(crate) fn return_after_kick(env: &Environment) -> anyhow::Result<Vec<AttackMetric>> {
    let server = Process::serve(env, &[SIXTEEN_SLOTS])?;
    let player = join(env, server.address(), "Kicked")?;
    server.control(&["kick", "Kicked"])?;
    player.leave();
    let back = join(env, server.address(), "Kicked again");
    let is_back = f64::from(u8::from(back.is_ok()));
    Ok(vec![AttackMetric::new("rejoined at once from another port", MetricUnit::Count, is_back).at_most(0.0)])
}

pub(super) const HEAD_START: Duration = Duration::from_secs(2);
const JOIN_TIMEOUT: Duration = Duration::from_secs(10);
/// A flood ends after its measurements. This limits how long it may run in addition to them.
const MARGIN: Duration = Duration::from_secs(60);
