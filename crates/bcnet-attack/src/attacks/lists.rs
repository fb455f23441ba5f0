//! Attacks on a list server.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddrV4, TcpStream};
use std::os::fd::OwnedFd;
use std::time::Duration;

use anyhow::{Context, ensure};
use bcnet_session::validate;
use rustix::net::{AddressFamily, SocketType, bind, connect, socket};

use crate::Setting;
use crate::forge::{Forger, Pace, any_network, flood};
use crate::process::Process;
use crate::report::{Figure, Unit};
use crate::tap::Tap;

pub(crate) fn list_flood(setting: &Setting) -> anyhow::Result<Vec<Figure>> {
    let quiet = {
        let master = Process::master(setting)?;
        time_to_be_listed(setting, &master)?
    };
    let listed = |name: &str, time: Duration| {
        Figure::new(format!("{name}: an honest server is listed after"), Unit::Seconds, time.as_secs_f64())
            .without(quiet.as_secs_f64())
            .at_most(60.0)
    };
    let mut figures = Vec::new();
    let rate = setting.rate(1000);
    setting.progress("list-flood", "forged heartbeats");
    let master = Process::master(setting)?;
    let forger = Forger::new(setting.arena, master.at("udp")?)?;
    let heartbeat = |forger: &mut Forger, number: u64| {
        let text = format!(r"\heartbeat\{}\gamename\bcommander", 20_000 + number % 1000);
        forger.push(SocketAddrV4::new(any_network(number), 4000), text.as_bytes());
    };
    let pace = Pace { rate, max: LISTED + MARGIN };
    let (time, _) = flood(setting.clock, pace, forger, heartbeat, || {
        setting.clock.sleep_until(setting.clock.now() + HEAD_START);
        time_to_be_listed(setting, &master)
    })?;
    figures.push(listed("forged heartbeats", time));
    setting.progress("list-flood", "fake servers");
    let master = Process::master(setting)?;
    let fake = list_fakes(setting, &master)?;
    figures.push(Figure::new("fake servers: listed", Unit::Count, fake as f64));
    figures.push(listed("fake servers", time_to_be_listed(setting, &master)?));
    setting.progress("list-flood", "idle connections");
    let master = Process::master(setting)?;
    let tcp = master.at("tcp")?;
    let without = time_of_list(setting, tcp, setting.arena.honest(0))?;
    let idle = open_idle(setting, tcp)?;
    let with = time_of_list(setting, tcp, setting.arena.honest(1))?;
    figures.push(
        Figure::new("idle connections: a list takes", Unit::Seconds, with.as_secs_f64())
            .without(without.as_secs_f64())
            .at_most(5.0),
    );
    drop(idle);
    Ok(figures)
}

/// Starts an honest server, and returns when the list has it; much more than any limit if it never does.
fn time_to_be_listed(setting: &Setting, master: &Process) -> anyhow::Result<Duration> {
    let start = setting.clock.now();
    let masters = format!("server.masters={}", master.at("udp")?);
    let server = Process::serve(setting, &[&masters])?;
    let tcp = master.at("tcp")?;
    let end = start + LISTED;
    while setting.clock.now() < end {
        let asker = setting.arena.honest(50);
        if read_list(setting, tcp, asker).is_ok_and(|list| list.contains(&server.address())) {
            return Ok(setting.clock.now().since(start));
        }
        setting.clock.sleep_until(setting.clock.now() + Duration::from_secs(1));
    }
    Ok(2 * LISTED)
}

/// Lists fake servers from sixteen addresses, which answer everything that they are asked. Returns how many got into the list.
fn list_fakes(setting: &Setting, master: &Process) -> anyhow::Result<usize> {
    let udp = master.at("udp")?;
    let mut tap = Tap::new(udp)?;
    let mut forger = Forger::new(setting.arena, udp)?;
    let fakes: Vec<SocketAddrV4> = (0..FAKES)
        .map(|number| {
            SocketAddrV4::new(Ipv4Addr::new(91, 60, 1, 1 + (number % 16) as u8), 20_000 + number / 16)
        })
        .collect();
    let mut rounds = HashMap::new();
    let end = setting.clock.now() + FAKING;
    let mut next = 0;
    while setting.clock.now() < end {
        for _ in 0..BURST {
            let fake = fakes[next % fakes.len()];
            next += 1;
            forger.push(fake, format!(r"\heartbeat\{}\gamename\bcommander", fake.port()).as_bytes());
        }
        forger.flush();
        let mut answers = Vec::new();
        tap.listen(setting.clock, setting.clock.now() + Duration::from_millis(100), |to, text| {
            *rounds.entry(to).or_insert(0) += 1;
            if let Some(challenge) = text.strip_prefix(br"\secure\") {
                answers.push((
                    to,
                    format!(r"\gamename\bcommander\validate\{}\final\\queryid\1.1", validate(challenge)),
                ));
            } else if text.starts_with(br"\status\") {
                answers
                    .push((to, r"\gamename\bcommander\hostname\Fake\numplayers\0\final\\queryid\1.1".into()));
            }
        });
        for (from, text) in answers {
            forger.push(from, text.as_bytes());
        }
        forger.flush();
    }
    let list = read_list(setting, master.at("tcp")?, setting.arena.honest(51))?;
    Ok(list.iter().filter(|server| fakes.contains(server)).count())
}

/// Opens connections from many addresses that say nothing.
fn open_idle(setting: &Setting, master: SocketAddrV4) -> anyhow::Result<Vec<TcpStream>> {
    (0..IDLE).map(|number| connect_from(setting, Ipv4Addr::new(91, 70, number / 8, 1), master)).collect()
}

fn time_of_list(setting: &Setting, master: SocketAddrV4, from: Ipv4Addr) -> anyhow::Result<Duration> {
    let start = setting.clock.now();
    let end = start + LISTED;
    while setting.clock.now() < end && read_list(setting, master, from).is_err() {
        setting.clock.sleep_until(setting.clock.now() + Duration::from_millis(100));
    }
    Ok(setting.clock.now().since(start))
}

/// Returns the list as a game asks for it.
fn read_list(setting: &Setting, master: SocketAddrV4, from: Ipv4Addr) -> anyhow::Result<Vec<SocketAddrV4>> {
    let mut stream = connect_from(setting, from, master)?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    let mut greeting = [0; 21];
    stream.read_exact(&mut greeting)?;
    let challenge = greeting.strip_prefix(br"\basic\\secure\").context("no challenge")?;
    let login = format!(
        r"\gamename\bcommander\gamever\1.6\location\0\validate\{}\final\\queryid\1.1\",
        validate(challenge)
    );
    stream.write_all(login.as_bytes())?;
    stream.write_all(br"\list\cmp\gamename\bcommander\final\")?;
    let mut list = Vec::new();
    stream.read_to_end(&mut list)?;
    let servers = list.strip_suffix(br"\final\").context("no end of the list")?;
    ensure!(servers.len() % 6 == 0, "a list of {} bytes", servers.len());
    let address = |entry: &[u8; 6]| {
        let [a, b, c, d, high, low] = *entry;
        SocketAddrV4::new(Ipv4Addr::new(a, b, c, d), u16::from_be_bytes([high, low]))
    };
    Ok(servers.as_chunks().0.iter().map(address).collect())
}

fn connect_from(setting: &Setting, from: Ipv4Addr, to: SocketAddrV4) -> anyhow::Result<TcpStream> {
    setting.arena.check(to)?;
    let socket: OwnedFd = socket(AddressFamily::INET, SocketType::STREAM, None)?;
    bind(&socket, &SocketAddrV4::new(from, 0))?;
    connect(&socket, &to)?;
    Ok(TcpStream::from(socket))
}

/// What an attacker may do before the honest server comes.
const HEAD_START: Duration = Duration::from_secs(3);
/// How long to wait for a server to be listed.
const LISTED: Duration = Duration::from_secs(70);
/// How long an attack may last beyond that.
const MARGIN: Duration = Duration::from_secs(30);
const FAKES: u16 = 4096;
/// How long fakes are announced, and how many every tenth of a second.
const FAKING: Duration = Duration::from_secs(40);
const BURST: usize = 20;
const IDLE: u8 = 128;
