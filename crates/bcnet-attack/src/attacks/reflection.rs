//! What a third party is sent because somebody forged its address.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::Duration;

use bcnet_lab::Rng;
use bcnet_transport::Time;

use super::ROOMY;
use crate::Setting;
use crate::crowd::Crowd;
use crate::forge::Forger;
use crate::process::Process;
use crate::report::{Figure, Unit};
use crate::tap::Tap;
use crate::wire;

/// One kind of datagram that may be answered.
struct Reflection {
    name: &'static str,
    /// Datagrams per second; 0 is a single one.
    rate: u32,
    write: fn(u64, &mut Rng) -> (SocketAddrV4, Vec<u8>),
}

/// Everything but queries. Addresses are told by [`victim`].
const KINDS: [Reflection; 7] = [
    Reflection { name: "one connect", rate: 0, write: |_, _| (victim(0), wire::connect(1, "")) },
    Reflection { name: "connect again", rate: 20, write: |_, _| (victim(1), wire::connect(1, "")) },
    Reflection {
        name: "connect anew",
        rate: 200,
        write: |number, _| (victim(2 + (number % 16) as u16), wire::connect(number as u32, "")),
    },
    Reflection { name: "join blindly", rate: 100, write: join_blindly },
    Reflection {
        name: "goodbye",
        rate: 200,
        write: |number, _| (victim(40), wire::datagram(2 + (number % 120) as u8, &[wire::goodbye(1, 2)])),
    },
    Reflection {
        name: "wrong ids",
        rate: 200,
        write: |number, _| {
            (victim(41), wire::datagram(2 + (number % 120) as u8, &[wire::order(0, &[0x2C, 1])]))
        },
    },
    Reflection {
        name: "garbage",
        rate: 200,
        write: |number, rng| {
            let mut bytes = vec![0; (number % 60) as usize];
            rng.fill(&mut bytes);
            (victim(42), bytes)
        },
    },
];

const QUERIES: [&str; 7] =
    [r"\status\", r"\players\", r"\info\", r"\rules\", r"\basic\", r"\secure\abcdef", r"\echo\0123456789"];

pub(crate) fn reflect(setting: &Setting) -> anyhow::Result<Vec<Figure>> {
    let mut figures = Vec::new();
    for kind in &KINDS {
        setting.progress("reflect", kind.name);
        let rng = &mut Rng::new(setting.seed);
        let heard = exchange(setting, kind.rate, |number| (kind.write)(number, rng))?;
        let (later, most) = if kind.rate == 0 { (heard.in_all(), 3.0) } else { (heard.later(), 1.0) };
        figures.push(Figure::new(format!("{}, in 10 s", kind.name), Unit::Times, heard.worst()).at_most(3.0));
        figures.push(Figure::new(format!("{}, later", kind.name), Unit::Times, later).at_most(most));
    }
    setting.progress("reflect", "queries");
    let heard = exchange(setting, 100, |number| {
        let query = QUERIES[number as usize % QUERIES.len()];
        (victim((number % 250) as u16), query.as_bytes().to_vec())
    })?;
    let bytes = heard.most_bytes();
    figures.push(Figure::new("queries, bytes to a /24 in 10 s", Unit::Bytes, bytes).at_most(2000.0));
    figures.push(Figure::new("queries, in all", Unit::Times, heard.in_all()));
    Ok(figures)
}

/// Sends datagrams for a while to a server at which others play, and counts what comes back.
fn exchange(
    setting: &Setting,
    rate: u32,
    mut write: impl FnMut(u64) -> (SocketAddrV4, Vec<u8>),
) -> anyhow::Result<Heard> {
    let clock = setting.clock;
    let server = Process::serve(setting, &[ROOMY])?;
    let mut crowd = Crowd::join(setting, &server, TALKERS)?;
    let mut tap = Tap::new(server.address())?;
    let mut forger = Forger::new(setting.arena, server.address())?;
    let mut heard = Heard::default();
    let start = clock.now();
    let end = start + setting.time.max(2 * WINDOW);
    let mut number = 0;
    while clock.now() < end {
        let now = clock.now();
        let due = if rate == 0 { 1 } else { (now.since(start).as_secs_f64() * f64::from(rate)) as u64 + 1 };
        while number < due {
            let (from, datagram) = write(number);
            heard.sent.push((clock.now(), datagram.len()));
            forger.push(from, &datagram);
            number += 1;
        }
        forger.flush();
        // The game goes on: what players say is part of what a forged one would be told.
        crowd.chatter(TURN);
        tap.listen(clock, clock.now(), |to, payload| {
            if is_victim(*to.ip()) {
                heard.received.push((clock.now(), payload.len()));
            }
        });
    }
    Ok(heard)
}

/// What was sent in the name of the third party, and what came of it.
#[derive(Debug, Default)]
struct Heard {
    sent: Vec<(Time, usize)>,
    received: Vec<(Time, usize)>,
}

impl Heard {
    /// Returns how many bytes came back for each that was sent, in the worst ten seconds in which any was.
    fn worst(&self) -> f64 {
        let windows = self.sent.iter().step_by(1 + self.sent.len() / 200).map(|(start, _)| {
            let end = *start + WINDOW;
            within(&self.received, *start, end) / within(&self.sent, *start, end).max(1.0)
        });
        windows.fold(0.0, f64::max)
    }

    /// Returns the same of the time after the first ten seconds.
    fn later(&self) -> f64 {
        let Some((start, _)) = self.sent.first() else { return 0.0 };
        let from = *start + WINDOW;
        within(&self.received, from, END) / within(&self.sent, from, END).max(1.0)
    }

    fn in_all(&self) -> f64 {
        within(&self.received, Time::ZERO, END) / within(&self.sent, Time::ZERO, END).max(1.0)
    }

    /// Returns the most bytes that came in any ten seconds.
    fn most_bytes(&self) -> f64 {
        let windows = self.received.iter().map(|(start, _)| within(&self.received, *start, *start + WINDOW));
        windows.fold(0.0, f64::max)
    }
}

fn within(bytes: &[(Time, usize)], start: Time, end: Time) -> f64 {
    let inside = bytes.iter().filter(|(at, _)| *at >= start && *at < end);
    inside.map(|(_, len)| *len).sum::<usize>() as f64
}

/// A player that hears nothing, as each of sixteen at the address of one third party: its id is guessed to be the next.
fn join_blindly(number: u64, _: &mut Rng) -> (SocketAddrV4, Vec<u8>) {
    let (player, step) = ((number % 16) as u16, number / 16);
    let id = u8::try_from(2 + u64::from(TALKERS) + u64::from(player)).unwrap_or(2);
    let mut script = vec![wire::connect(u32::from(player), "")];
    script.extend(wire::blind_join(id, "Forged"));
    let at = usize::try_from(step).unwrap_or(usize::MAX);
    let again = || wire::hold(id, (40 * (step % 400)) as u16);
    (victim(20 + player), script.into_iter().nth(at).unwrap_or_else(again))
}

pub(crate) fn echo_loop(setting: &Setting) -> anyhow::Result<Vec<Figure>> {
    let [one, other] = [Process::serve(setting, &[])?, Process::serve(setting, &[])?];
    let mut forger = Forger::new(setting.arena, one.address())?;
    let mut taps = [Tap::new(one.address())?, Tap::new(other.address())?];
    forger.push(other.address(), br"\echo\hello");
    forger.flush();
    let mut datagrams = 0_u64;
    let end = setting.clock.now() + setting.time;
    for tap in &mut taps {
        tap.listen(setting.clock, end, |to, _| {
            datagrams += u64::from([one.address(), other.address()].contains(&to))
        });
    }
    // The query itself is among them.
    let answers = datagrams.saturating_sub(1) as f64;
    Ok(vec![Figure::new("answers to one forged query", Unit::Count, answers).at_most(1.0)])
}

/// Returns a socket of the third party, all in one network.
fn victim(number: u16) -> SocketAddrV4 {
    SocketAddrV4::new(Ipv4Addr::new(192, 0, 2, 1 + (number % 250) as u8), 5000 + number)
}

fn is_victim(address: Ipv4Addr) -> bool {
    address.octets().starts_with(&[192, 0, 2])
}

/// How many honest players there are meanwhile.
const TALKERS: u16 = 7;
/// What limits are told of.
const WINDOW: Duration = Duration::from_secs(10);
const TURN: Duration = Duration::from_millis(5);
const END: Time = Time::from_micros(u64::MAX);
