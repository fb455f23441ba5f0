//! More datagrams than anyone can want.

use std::net::SocketAddrV4;
use std::thread;
use std::time::Duration;

use bcnet_lab::Rng;

use super::{PLAYERS, ROOMY, compare, cost};
use crate::Setting;
use crate::asker::ask_often;
use crate::clock::millis;
use crate::crowd::{Crowd, Seen};
use crate::forge::{Flooded, Forger, Pace, any_network, flood};
use crate::player::Line;
use crate::process::Process;
use crate::report::{Figure, Unit};

pub(crate) fn garbage_flood(setting: &Setting) -> anyhow::Result<Vec<Figure>> {
    let mut figures = Vec::new();
    for (label, garbage) in [("empty: ", Garbage::Empty), ("random: ", Garbage::Random)] {
        setting.progress("garbage-flood", &format!("{label}at the proxy"));
        let proxy = under_flood(setting, garbage, Target::Proxy)?;
        setting.progress("garbage-flood", &format!("{label}at the server"));
        let server = under_flood(setting, garbage, Target::Server)?;
        figures.extend(side_by_side(label, &server, &proxy));
        figures.push(server.flooded.figure());
    }
    Ok(figures)
}

#[derive(Debug, Clone, Copy)]
enum Garbage {
    Empty,
    Random,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Target {
    Server,
    Proxy,
}

/// What players saw before, during and one second after a flood.
struct Floods {
    quiet: Seen,
    attacked: Seen,
    after: Seen,
    flooded: Flooded,
    cost: Vec<Figure>,
}

fn under_flood(setting: &Setting, garbage: Garbage, target: Target) -> anyhow::Result<Floods> {
    let server = Process::serve(setting, &[ROOMY])?;
    let proxy = match target {
        Target::Server => None,
        Target::Proxy => {
            Some(Process::proxy(setting, server.address(), &["--upstream-source", "10.9.0.0/24"])?)
        }
    };
    let attacked = proxy.as_ref().unwrap_or(&server);
    let mut crowd = Crowd::join_at(setting, (attacked.address(), ""), PLAYERS, Line::NEAR)?;
    let quiet = crowd.play(&server, setting.time)?;
    let before = attacked.usage();
    let (seen, flooded) = pour(setting, garbage, attacked.address(), || crowd.play(&server, setting.time))?;
    let cost = cost("", before, attacked.usage(), flooded.time.as_secs_f64());
    crowd.listen(RECOVERY);
    let after = crowd.play(&server, setting.time / 2)?;
    Ok(Floods { quiet, attacked: seen, after, flooded, cost })
}

/// Runs `victims` while garbage arrives from everywhere.
fn pour<T: Send>(
    setting: &Setting,
    garbage: Garbage,
    target: SocketAddrV4,
    victims: impl FnOnce() -> anyhow::Result<T>,
) -> anyhow::Result<(T, Flooded)> {
    let forger = Forger::new(setting.arena, target)?;
    let mut rng = Rng::new(setting.seed);
    let write = move |forger: &mut Forger, number: u64| {
        let mut bytes = [0; 64];
        let len = match garbage {
            Garbage::Empty => 0,
            Garbage::Random => rng.size(bytes.len()),
        };
        let payload = bytes.get_mut(..len).unwrap_or_default();
        rng.fill(payload);
        forger.push(SocketAddrV4::new(any_network(number), 4000), payload);
    };
    let pace = Pace { rate: setting.rate(150_000), max: 2 * setting.time + MARGIN };
    flood(setting.clock, pace, forger, write, victims)
}

/// Returns how a server fares beside a proxy, which does less with each datagram: not worse, give or take what two runs differ.
fn side_by_side(label: &str, server: &Floods, proxy: &Floods) -> Vec<Figure> {
    let name = |what: &str| format!("{label}{what}");
    let p99 = |seen: &Seen| millis(seen.chat.quantile(0.99));
    let usual = p99(&server.quiet);
    let mut figures = vec![
        Figure::new(name("players lost"), Unit::Count, server.attacked.lost as f64)
            .without(server.quiet.lost as f64)
            .at_most(0.0),
        Figure::new(name("chat never heard"), Unit::Share, server.attacked.chat_loss())
            .without(server.quiet.chat_loss())
            .at_most(0.0),
        Figure::new(name("states lost"), Unit::Share, server.attacked.state_loss())
            .without(server.quiet.state_loss())
            .at_most(proxy.attacked.state_loss() + 0.01),
        Figure::new(name("states lost, proxy"), Unit::Share, proxy.attacked.state_loss())
            .without(proxy.quiet.state_loss()),
        Figure::new(name("chat, median delay"), Unit::Millis, millis(server.attacked.chat.quantile(0.5)))
            .without(millis(server.quiet.chat.quantile(0.5))),
        Figure::new(name("chat, p99 delay"), Unit::Millis, p99(&server.attacked))
            .without(usual)
            .at_most(p99(&proxy.attacked).max(usual) + 20.0),
        Figure::new(name("chat, p99 delay, proxy"), Unit::Millis, p99(&proxy.attacked))
            .without(p99(&proxy.quiet)),
        Figure::new(name("1 s later: states lost"), Unit::Share, server.after.state_loss())
            .without(server.quiet.state_loss())
            .at_most(0.01),
        Figure::new(name("1 s later: chat, p99 delay"), Unit::Millis, p99(&server.after))
            .without(usual)
            .at_most(usual + 20.0),
    ];
    figures.extend(server.cost.iter().cloned());
    figures
}

pub(crate) fn other_session(setting: &Setting) -> anyhow::Result<Vec<Figure>> {
    let server = Process::serve_configured(
        setting,
        "[[session]]\nport = 22101\n[[session]]\nname = \"Other\"\nport = 22102\nplayer_limit = 16\n",
    )?;
    let quiet_place = SocketAddrV4::new(setting.arena.server(), 22102);
    let mut crowd = Crowd::join_at(setting, (quiet_place, ""), PLAYERS, Line::NEAR)?;
    let quiet = crowd.play(&server, setting.time)?;
    let (attacked, flooded) =
        pour(setting, Garbage::Random, server.address(), || crowd.play(&server, setting.time))?;
    let mut figures = compare("", &quiet, &attacked);
    figures.push(flooded.figure());
    Ok(figures)
}

pub(crate) fn query_flood(setting: &Setting) -> anyhow::Result<Vec<Figure>> {
    let server = Process::serve(setting, &[ROOMY])?;
    let mut crowd = Crowd::join(setting, &server, PLAYERS)?;
    let quiet = crowd.play(&server, setting.time)?;
    let honest = ask_often(setting, server.address())?;
    let mut figures = Vec::new();
    for rate in [1000, 20_000] {
        let rate = setting.rate(rate);
        setting.progress("query-flood", &format!("{rate} per second"));
        let forger = Forger::new(setting.arena, server.address())?;
        let write = |forger: &mut Forger, number: u64| {
            forger.push(SocketAddrV4::new(any_network(number), 4000), br"\status\");
        };
        let before = server.usage();
        let pace = Pace { rate, max: 2 * setting.time + MARGIN };
        let ((seen, answers), flooded) = flood(setting.clock, pace, forger, write, || {
            thread::scope(|scope| {
                let askers = scope.spawn(|| ask_often(setting, server.address()));
                let seen = crowd.play(&server, setting.time)?;
                let answers = askers.join().map_err(|_| anyhow::anyhow!("the asker has failed"))??;
                Ok((seen, answers))
            })
        })?;
        let label = format!("{rate}/s: ");
        figures.push(
            Figure::new(format!("{label}askers answered in 5 s"), Unit::Share, answers.share())
                .without(honest.share())
                .at_least(0.95),
        );
        figures.push(
            Figure::new(format!("{label}answer, median"), Unit::Millis, millis(answers.delays.quantile(0.5)))
                .without(millis(honest.delays.quantile(0.5))),
        );
        figures.extend(compare(&label, &quiet, &seen));
        figures.extend(cost(&label, before, server.usage(), flooded.time.as_secs_f64()));
    }
    Ok(figures)
}

/// How long an attack may last beyond what its victims measure.
const MARGIN: Duration = Duration::from_secs(90);
/// After this long everything is as before.
const RECOVERY: Duration = Duration::from_secs(1);
