//! Attacks on a proxy.

use std::io::{Read, Write};
use std::net::{SocketAddrV4, TcpStream};
use std::time::Duration;

use anyhow::Context;

use crate::Setting;
use crate::clock::millis;
use crate::forge::{Forger, Pace, any_network, flood};
use crate::newcomer::{max_time, try_joins};
use crate::process::Process;
use crate::report::{Figure, Unit};
use crate::tap::Tap;
use crate::wire;

pub(crate) fn proxy_connects(setting: &Setting) -> anyhow::Result<Vec<Figure>> {
    let quiet = {
        let server = Process::serve(setting, &[])?;
        let proxy = Process::proxy(setting, server.address(), POOL)?;
        try_joins(setting, &proxy)?
    };
    let server = Process::serve(setting, &[])?;
    let proxy = Process::proxy(setting, server.address(), POOL)?;
    let forger = Forger::new(setting.arena, proxy.address())?;
    let pace = Pace { rate: setting.rate(150), max: max_time(setting) };
    let write = |forger: &mut Forger, number: u64| {
        forger.push(SocketAddrV4::new(any_network(number), 4000), &wire::connect(number as u32, ""));
    };
    let (joins, flooded) = flood(setting.clock, pace, forger, write, || {
        // A head start: the pool is not large.
        setting.clock.sleep_until(setting.clock.now() + Duration::from_secs(4));
        try_joins(setting, &proxy)
    })?;
    let lines =
        ["player", "player_gone", "refused"].map(|event| proxy.logged(event).map(|lines| lines.len()));
    let lines: usize = lines.into_iter().sum::<anyhow::Result<usize>>()?;
    let mut figures = vec![
        Figure::new("newcomers in within 10 s", Unit::Share, joins.share())
            .without(quiet.share())
            .at_least(0.95),
        Figure::new("join, median", Unit::Millis, millis(joins.delays.quantile(0.5)))
            .without(millis(quiet.delays.quantile(0.5))),
        Figure::new("lines of log per second", Unit::Count, lines as f64 / flooded.time.as_secs_f64())
            .at_most(60.0),
        flooded.figure(),
    ];
    drop((proxy, server));
    figures.extend(challenges(setting)?);
    Ok(figures)
}

/// Asks a proxy that is listed to prove itself, in the name of a third party.
fn challenges(setting: &Setting) -> anyhow::Result<Vec<Figure>> {
    setting.progress("proxy-connects", "challenges of a list server");
    let (server, master) = (Process::serve(setting, &[])?, Process::master(setting)?);
    let place = master.at("udp")?.to_string();
    let options = [POOL, &["--advertise", "22101", "--master", &place]].concat();
    let proxy = Process::proxy(setting, server.address(), &options)?;
    let mut tap = Tap::new(proxy.address())?;
    let forger = Forger::new(setting.arena, proxy.address())?;
    let victim = SocketAddrV4::new([192, 0, 2, 1].into(), 5000);
    let write = |forger: &mut Forger, _| forger.push(victim, br"\secure\abcdef");
    let time = Duration::from_secs(10);
    let pace = Pace { rate: setting.rate(1000), max: time };
    let (bytes, _) = flood(setting.clock, pace, forger, write, || {
        let mut bytes = 0;
        tap.listen(setting.clock, setting.clock.now() + time, |to, payload| {
            bytes += if to == victim { payload.len() } else { 0 };
        });
        Ok(bytes)
    })?;
    Ok(vec![Figure::new("challenges, bytes to a /24 in 10 s", Unit::Bytes, bytes as f64).at_most(2000.0)])
}

pub(crate) fn slow_metrics(setting: &Setting) -> anyhow::Result<Vec<Figure>> {
    let server = Process::serve(setting, &[])?;
    let metrics = format!("{}:0", setting.arena.server());
    let proxy = Process::proxy(setting, server.address(), &["--metrics", &metrics])?;
    let place: SocketAddrV4 = proxy.told("metrics")?.parse().context("--metrics")?;
    setting.arena.check(place)?;
    let quiet = read_metrics(setting, place)?;
    let idle: Vec<TcpStream> = (0..30).map(|_| TcpStream::connect(place)).collect::<Result<_, _>>()?;
    // They are there when the honest one comes.
    setting.clock.sleep_until(setting.clock.now() + Duration::from_millis(500));
    let with = read_metrics(setting, place)?;
    drop(idle);
    Ok(vec![
        Figure::new("/metrics takes", Unit::Seconds, with.as_secs_f64())
            .without(quiet.as_secs_f64())
            .at_most(2.0),
    ])
}

/// Returns how long the figures took; the longest wait if they did not come.
fn read_metrics(setting: &Setting, place: SocketAddrV4) -> anyhow::Result<Duration> {
    let start = setting.clock.now();
    let mut stream = TcpStream::connect(place)?;
    stream.set_read_timeout(Some(METRICS))?;
    stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n")?;
    let mut page = Vec::new();
    // A connection that was closed without a word has failed as well.
    drop(stream.read_to_end(&mut page));
    let time = setting.clock.now().since(start);
    Ok(if page.is_empty() { METRICS.max(time) } else { time })
}

/// Addresses toward the server: few, so that a short attack shows what a long one does to many.
const POOL: &[&str] = &["--upstream-source", "10.9.0.0/24"];
/// How long anybody waits for figures.
const METRICS: Duration = Duration::from_secs(70);
