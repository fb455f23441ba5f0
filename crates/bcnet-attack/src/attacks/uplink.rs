//! Players who send as much as the server relays, and the bytes that the server sends to all players.

use std::net::SocketAddrV4;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use bcnet_transport::{DeliveryMode, Time};

use super::run_cases;
use crate::Environment;
use crate::delays::{millis, sleep_until};
use crate::forged::unknown_opcode;
use crate::group::{PlayerGroup, PlayerMeasurement};
use crate::metrics::{AttackMetric, MetricUnit};
use crate::player::{AttackPlayer, JoinRequest, LinkProfile, wait_for_players};
use crate::process::Process;
use crate::sniffer::{Sniffer, most_bytes};

/// The messages per second of each of six players: reliable ones, and state updates of 390 bytes.
#[derive(Debug, Clone, Copy)]
struct FloodMix {
    label: &'static str,
    reliable: u32,
    len: usize,
    states: u32,
}

/// Each mix is just within `relay_rate`.
const MIXES: [FloodMix; 4] = [
    FloodMix { label: "tiny: ", reliable: 1900, len: 1, states: 0 },
    FloodMix { label: "large: ", reliable: 60, len: 1000, states: 0 },
    FloodMix { label: "states: ", reliable: 0, len: 0, states: 100 },
    FloodMix { label: "mixed: ", reliable: 400, len: 100, states: 19 },
];

pub(crate) fn uplink(env: &Environment) -> anyhow::Result<Vec<AttackMetric>> {
    run_cases(env, "uplink", &MIXES, |mix| mix.label, |mix| measure_mix(env, *mix))
}

/// Two honest players play while six others flood.
fn measure_mix(env: &Environment, mix: FloodMix) -> anyhow::Result<Vec<AttackMetric>> {
    let server = Process::serve(env, &[])?;
    let mut group = PlayerGroup::join(env, &server, HONEST)?;
    let quiet = group.play(&server, env.measure_time.min(MAX_BASELINE_TIME))?;
    let mut flooders = thread::scope(|scope| {
        let joining = scope.spawn(|| join_flooders(env, server.address()));
        // A player enters when the others have acknowledged the name.
        while !joining.is_finished() {
            group.stay_idle(Duration::from_millis(20));
        }
        joining.join().map_err(|_| anyhow::anyhow!("a player has panicked"))?
    })?;
    let mut tap = Sniffer::new(server.address())?;
    let [is_over, is_measured] = [(); 2].map(|()| AtomicBool::new(false));
    let (attacked, sent) = thread::scope(|scope| {
        scope.spawn(|| send_mix(env, &mut flooders, mix, &is_over));
        let meter = scope.spawn(|| record_sent_bytes(env, &mut tap, &is_measured));
        let attacked = group.play(&server, env.measure_time);
        is_measured.store(true, Ordering::Relaxed);
        is_over.store(true, Ordering::Relaxed);
        let sent = meter.join().map_err(|_| anyhow::anyhow!("the sniffer has panicked"))?;
        anyhow::Ok((attacked?, sent))
    })?;
    let still_in = flooders.iter().filter(|player| player.end.is_none()).count();
    let delay = |measured: &PlayerMeasurement| millis(measured.chat.quantile(0.99));
    let metric = |name: &str, unit, value| AttackMetric::new(format!("{}{name}", mix.label), unit, value);
    Ok(vec![
        metric("bytes per second", MetricUnit::Bytes, bytes_per_second(&sent)).at_most(UPLINK),
        metric("bytes in the worst second", MetricUnit::Bytes, most_bytes(&sent, Duration::from_secs(1)))
            .at_most(MAX_IN_A_SECOND),
        metric("chat, p99 delay", MetricUnit::Millis, delay(&attacked))
            .baseline(delay(&quiet))
            .at_most(250.0),
        metric("chat not delivered", MetricUnit::Share, attacked.chat_loss())
            .baseline(quiet.chat_loss())
            .at_most(0.0),
        metric("states lost", MetricUnit::Share, attacked.state_loss())
            .baseline(quiet.state_loss())
            .at_most(0.1),
        metric("players lost", MetricUnit::Count, attacked.lost as f64).at_most(0.0),
        // Without all six, the limits would show less.
        metric("flooding players connected", MetricUnit::Count, still_in as f64).at_least(FLOODERS.into()),
    ])
}

/// Lets six players join, each from a different network.
fn join_flooders(env: &Environment, server: SocketAddrV4) -> anyhow::Result<Vec<AttackPlayer>> {
    let clock = env.clock;
    let mut players: Vec<AttackPlayer> = Vec::new();
    for number in 0..FLOODERS {
        let request = JoinRequest {
            server,
            from: env.sandbox.honest_address(FIRST_ADDRESS + number),
            name: &format!("Flood {number}"),
            password: "",
            nonce: 0x2000 + u32::from(number),
            link: LinkProfile::UNLIMITED,
        };
        players.push(AttackPlayer::connect(env.sandbox, clock, request)?);
        let end = clock.now() + JOIN_TIMEOUT;
        while players.last().is_some_and(|player| player.entered.is_none()) {
            anyhow::ensure!(clock.now() < end, "a player cannot join, although no attack is running");
            players.iter_mut().for_each(|player| player.poll(|_, _, _| {}));
            wait_for_players(clock, &players, clock.now() + Duration::from_millis(20));
        }
    }
    for player in &mut players {
        player.create_ship()?;
        player.send();
    }
    Ok(players)
}

/// Sends reliable messages and state updates of all players until the flag is set.
fn send_mix(env: &Environment, players: &mut [AttackPlayer], mix: FloodMix, is_over: &AtomicBool) {
    let (clock, start) = (env.clock, env.clock.now());
    let message = vec![unknown_opcode().0; mix.len];
    let (mut messages, mut states) = (0, 0);
    while !is_over.load(Ordering::Relaxed) {
        let since = clock.now().since(start).as_secs_f64();
        let due = |rate: u32| (since * f64::from(rate)) as u32;
        for player in &mut *players {
            // A message that the full outbox refuses is not sent.
            for _ in messages..due(mix.reliable) {
                let _ = player.client.send(&message, DeliveryMode::Reliable, clock.now());
            }
            for number in states..due(mix.states) {
                let state = state_update(player, number);
                let _ = player.client.send(&state, DeliveryMode::Unreliable, clock.now());
            }
            player.poll(|_, _, _| {});
        }
        (messages, states) = (due(mix.reliable), due(mix.states));
        wait_for_players(clock, &*players, clock.now() + Duration::from_millis(2));
    }
}

/// Returns a state update of 390 bytes, with the condition of many subsystems.
fn state_update(player: &AttackPlayer, number: u32) -> Vec<u8> {
    let object = player.ship.map_or(0, |ship| ship.0);
    let head = [&[0x1C][..], &object.to_le_bytes(), &(number as f32).to_le_bytes(), &[0x20]].concat();
    [head, vec![0; 380]].concat()
}

/// Records the times and the bytes of all datagrams of the server, with the headers of IP and UDP.
fn record_sent_bytes(env: &Environment, tap: &mut Sniffer, is_over: &AtomicBool) -> Vec<(Time, usize)> {
    // The limit allows a burst at the beginning.
    sleep_until(env.clock, env.clock.now() + HEAD_START);
    tap.receive_until(env.clock, env.clock.now(), |_, _| {});
    let mut sent = Vec::new();
    while !is_over.load(Ordering::Relaxed) {
        tap.receive_until(env.clock, env.clock.now() + Duration::from_millis(50), |_, payload| {
            sent.push((env.clock.now(), payload.len() + HEADER_BYTES));
        });
    }
    sent
}

fn bytes_per_second(sent: &[(Time, usize)]) -> f64 {
    let (Some((start, _)), Some((end, _))) = (sent.first(), sent.last()) else { return 0.0 };
    let bytes: usize = sent.iter().map(|(_, len)| len).sum();
    bytes as f64 / end.since(*start).as_secs_f64().max(1.0)
}

/// The default of `session.uplink` for eight players, in bytes per second (S-46).
const UPLINK: f64 = 246_400.0;
/// The most bytes in any second: 2 Mbit/s.
const MAX_IN_A_SECOND: f64 = 250_000.0;
const HONEST: u16 = 2;
const FLOODERS: u16 = 6;
/// The number of the first flooding player's address; honest players have lower numbers.
const FIRST_ADDRESS: u16 = 100;
/// Bytes of the IPv4 and UDP headers.
const HEADER_BYTES: usize = 28;
/// The longest measurement without an attack.
const MAX_BASELINE_TIME: Duration = Duration::from_secs(4);
const JOIN_TIMEOUT: Duration = Duration::from_secs(20);
const HEAD_START: Duration = Duration::from_secs(1);
