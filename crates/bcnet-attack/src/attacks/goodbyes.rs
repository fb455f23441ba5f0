//! Goodbyes and ACKs in the name of players who go on playing.

use std::net::SocketAddrV4;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use bcnet_lab::Rng;
use bcnet_transport::DeliveryMode;
use bcnet_transport::wire::{Channel, PeerId};

use super::players::join;
use super::{PLAYERS, SIXTEEN_SLOTS, run_cases};
use crate::Environment;
use crate::delays::millis;
use crate::forged::{self, ACKS_PER_DATAGRAM, unknown_opcode};
use crate::forger::{FloodRate, Forger, flood};
use crate::group::{PlayerGroup, PlayerMeasurement};
use crate::metrics::{AttackMetric, MetricUnit};
use crate::player::{AttackPlayer, LinkProfile, wait_for_players};
use crate::process::Process;

/// The cases, and `true` if the players only keep their connections while the attack begins.
const GOODBYE_CASES: [(&str, bool); 2] = [("playing: ", false), ("idle: ", true)];

pub(crate) fn forged_goodbye(env: &Environment) -> anyhow::Result<Vec<AttackMetric>> {
    run_cases(
        env,
        "forged-goodbye",
        &GOODBYE_CASES,
        |case| case.0,
        |(label, is_idle)| attack_groups(env, label, *is_idle),
    )
}

/// The result of the players of one server.
struct GroupResult {
    players: u64,
    quiet: PlayerMeasurement,
    attacked: PlayerMeasurement,
}

/// Attacks seven players, or fifty at ten servers if the measurement takes a minute or more.
fn attack_groups(env: &Environment, label: &str, is_idle: bool) -> anyhow::Result<Vec<AttackMetric>> {
    let (groups, size) = if env.measure_time < LONG_MEASUREMENT { (1, PLAYERS) } else { (10, 5) };
    let results = thread::scope(|scope| {
        let threads: Vec<_> = (0..groups).map(|_| scope.spawn(|| attack_group(env, size, is_idle))).collect();
        let join = |thread: thread::ScopedJoinHandle<'_, anyhow::Result<GroupResult>>| {
            thread.join().map_err(|_| anyhow::anyhow!("a group of players has panicked"))?
        };
        threads.into_iter().map(join).collect::<anyhow::Result<Vec<_>>>()
    })?;
    let worst = |of: fn(&PlayerMeasurement) -> f64| {
        let [mut quiet, mut attacked] = [0.0_f64; 2];
        for result in &results {
            quiet = quiet.max(of(&result.quiet));
            attacked = attacked.max(of(&result.attacked));
        }
        (quiet, attacked)
    };
    let players = results.iter().map(|result| result.players).sum::<u64>() as f64;
    let lost = results.iter().map(|result| result.attacked.lost).sum::<u64>() as f64;
    let (chat_loss, delay) =
        (worst(PlayerMeasurement::chat_loss), worst(|measured| millis(measured.chat.quantile(0.99))));
    let metric = |name: &str, unit, value| AttackMetric::new(format!("{label}{name}"), unit, value);
    Ok(vec![
        metric("players", MetricUnit::Count, players),
        metric("players lost", MetricUnit::Count, lost).at_most(0.0),
        metric("chat not delivered", MetricUnit::Share, chat_loss.1).baseline(chat_loss.0).at_most(0.0),
        metric("chat, p99 delay", MetricUnit::Millis, delay.1).baseline(delay.0),
    ])
}

/// Forges goodbyes from the address and port of each player, under all ids, for the whole measurement.
fn attack_group(env: &Environment, size: u16, is_idle: bool) -> anyhow::Result<GroupResult> {
    let server = Process::serve(env, &[SIXTEEN_SLOTS])?;
    let mut group = PlayerGroup::join(env, &server, size)?;
    let quiet = group.play(&server, env.measure_time.min(MAX_BASELINE_TIME))?;
    let victims: Vec<SocketAddrV4> = group.players().iter().flat_map(AttackPlayer::address).collect();
    let goodbyes = all_goodbyes();
    let forger = Forger::new(env.sandbox, server.address())?;
    let flood_rate = FloodRate { rate: env.rate(GOODBYE_RATE), max: 2 * env.measure_time + MARGIN };
    let write = |forger: &mut Forger, number: u64| {
        let number = number as usize;
        let victim = victims[number % victims.len()];
        forger.push(victim, &goodbyes[number / victims.len() % goodbyes.len()]);
    };
    let present = group.count_present(&server)?;
    let (mut attacked, _) = flood(env.clock, flood_rate, forger, write, || {
        if is_idle {
            group.stay_idle(env.measure_time.max(IDLE_TIME));
        }
        group.play(&server, env.measure_time)
    })?;
    attacked.lost = present.saturating_sub(group.count_present(&server)?);
    Ok(GroupResult { players: present, quiet, attacked })
}

/// Returns goodbyes under all ids: one that expects no ACK, and reliable ones with the first numbers.
fn all_goodbyes() -> Vec<Vec<u8>> {
    let ids = || (2..126).map(PeerId);
    let unreliable = ids().map(|id| forged::datagram(id, &[forged::unreliable_disconnect(id)]));
    let reliable =
        (1..8).flat_map(|seq| ids().map(move |id| forged::datagram(id, &[forged::disconnect(seq, id)])));
    unreliable.chain(reliable).collect()
}

/// The number of ACKs in each forged datagram.
const ACK_CASES: [(&str, usize); 2] = [("one ACK: ", 1), ("127 ACKs: ", ACKS_PER_DATAGRAM)];

pub(crate) fn forged_acks(env: &Environment) -> anyhow::Result<Vec<AttackMetric>> {
    run_cases(
        env,
        "forged-acks",
        &ACK_CASES,
        |case| case.0,
        |(label, acks)| acknowledge_for_players(env, label, *acks),
    )
}

/// Sends 1,000 messages to players on a lossy link, without and with forged ACKs from their addresses.
fn acknowledge_for_players(env: &Environment, label: &str, acks: usize) -> anyhow::Result<Vec<AttackMetric>> {
    let server = Process::serve(env, &[SIXTEEN_SLOTS])?;
    let mut group = PlayerGroup::join_from(env, &server, VICTIMS, LinkProfile::LOSSY)?;
    let mut sender = join(env, server.address(), "Sender")?;
    let expected = f64::from(MESSAGES) * f64::from(VICTIMS);
    let quiet = receive_messages(env, &server, &mut group, &mut sender)?;
    let victims: Vec<SocketAddrV4> = group.players().iter().flat_map(AttackPlayer::address).collect();
    let forger = Forger::new(env.sandbox, server.address())?;
    let rate = env.rate(ACK_RATE) * u32::from(VICTIMS);
    let mut rng = Rng::new(env.seed);
    let write = |forger: &mut Forger, number: u64| {
        let numbers: Vec<_> =
            (0..acks).map(|_| forged::ack(Channel::Game, rng.below(NUMBERS) as u16)).collect();
        let id = PeerId(2 + rng.below(124) as u8);
        forger.push(victims[number as usize % victims.len()], &forged::datagram(id, &numbers));
    };
    let flood_rate = FloodRate { rate, max: 2 * env.measure_time + MARGIN };
    let (attacked, flooded) = flood(env.clock, flood_rate, forger, write, || {
        receive_messages(env, &server, &mut group, &mut sender)
    })?;
    let metric = |name: &str, unit, value| AttackMetric::new(format!("{label}{name}"), unit, value);
    let missing = |measured: &PlayerMeasurement| (expected - measured.bulk as f64).max(0.0);
    Ok(vec![
        metric("messages", MetricUnit::Count, expected),
        metric("messages lost", MetricUnit::Count, missing(&attacked)).baseline(missing(&quiet)).at_most(0.0),
        metric("chat not delivered", MetricUnit::Share, attacked.chat_loss())
            .baseline(quiet.chat_loss())
            .at_most(0.0),
        metric("players lost", MetricUnit::Count, attacked.lost as f64).at_most(0.0),
        flooded.metric(),
    ])
}

/// Lets `sender` send reliable messages while a group plays. Returns what the group received.
fn receive_messages(
    env: &Environment,
    server: &Process,
    group: &mut PlayerGroup,
    sender: &mut AttackPlayer,
) -> anyhow::Result<PlayerMeasurement> {
    let time = env.measure_time;
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| send_messages(env, sender, time.mul_f64(0.8), &is_over));
        let mut measured = group.play(server, time);
        if let Ok(measured) = &mut measured {
            group.wait_for_bulk(measured, u64::from(MESSAGES) * u64::from(VICTIMS));
        }
        is_over.store(true, Ordering::Relaxed);
        measured
    })
}

/// Sends reliable messages, spread over `time`, and keeps the sender connected until the flag is set.
fn send_messages(env: &Environment, sender: &mut AttackPlayer, time: Duration, is_over: &AtomicBool) {
    let (clock, start, mut sent) = (env.clock, env.clock.now(), 0);
    while !is_over.load(Ordering::Relaxed) {
        let due = (clock.now().since(start).as_secs_f64() / time.as_secs_f64() * f64::from(MESSAGES)) as u32;
        while sent < due.min(MESSAGES) {
            let payload = [unknown_opcode().0, 0, 0, 0];
            // A full outbox takes the message later.
            if sender.client.send(&payload, DeliveryMode::Reliable, clock.now()).is_err() {
                break;
            }
            sent += 1;
        }
        sender.poll(|_, _, _| {});
        wait_for_players(clock, [&*sender], clock.now() + Duration::from_millis(2));
    }
}

/// From this time on, a measurement has a hundred players in both cases together.
const LONG_MEASUREMENT: Duration = Duration::from_secs(60);
/// Longer than the keepalive interval.
const IDLE_TIME: Duration = Duration::from_secs(12);
/// The longest measurement without an attack.
const MAX_BASELINE_TIME: Duration = Duration::from_secs(4);
/// Forged goodbyes per second, for all players of a server together.
const GOODBYE_RATE: u32 = 2000;
/// A flood ends after its measurements. This limits how long it may run in addition to them.
const MARGIN: Duration = Duration::from_secs(60);
/// The number of players whose ACKs are forged, and of messages to each.
const VICTIMS: u16 = 3;
const MESSAGES: u32 = 1000;
/// Forged datagrams with ACKs per second, from the address of each player.
const ACK_RATE: u32 = 1000;
/// Forged ACKs name the first numbers of a connection: an attacker knows that the numbers begin with 0.
const NUMBERS: u64 = 2500;
