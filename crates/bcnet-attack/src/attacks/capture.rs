//! The capture of a server with players of several networks. `bcnet inspect` must find no fault in it.

use std::net::SocketAddrV4;

use super::{PLAYERS, SIXTEEN_SLOTS};
use crate::Environment;
use crate::forged;
use crate::forger::{FloodRate, Forger, any_network, flood};
use crate::group::PlayerGroup;
use crate::metrics::{AttackMetric, MetricUnit};
use crate::process::Process;

pub(crate) fn capture(env: &Environment) -> anyhow::Result<Vec<AttackMetric>> {
    let mut server = Process::serve(env, &[SIXTEEN_SLOTS, "capture.file=game.pcapng"])?;
    let mut group = PlayerGroup::join(env, &server, PLAYERS)?;
    let forger = Forger::new(env.sandbox, server.address())?;
    let flood_rate = FloodRate { rate: env.rate(20), max: 2 * env.measure_time };
    let write = |forger: &mut Forger, number: u64| {
        let from = SocketAddrV4::new(any_network(number), 4000);
        let request = forged::connect(number as u32, "");
        forger.push(from, if number.is_multiple_of(2) { br"\status\" } else { &request });
    };
    let (measured, _) =
        flood(env.clock, flood_rate, forger, write, || group.play(&server, env.measure_time))?;
    while let Some(player) = group.take_last() {
        player.leave();
    }
    server.stop();
    let output = server.run_beside(&["inspect", "game.pcapng"])?;
    let code = output.status.code().unwrap_or(-1);
    let text = String::from_utf8_lossy(&output.stdout);
    if code != 0 {
        env.progress("capture", &text);
    }
    Ok(vec![
        AttackMetric::new("exit code of `bcnet inspect`", MetricUnit::Count, f64::from(code)).at_most(0.0),
        AttackMetric::new("lines of output", MetricUnit::Count, text.lines().count() as f64).at_least(10.0),
        AttackMetric::new("players lost", MetricUnit::Count, measured.lost as f64).at_most(0.0),
    ])
}
