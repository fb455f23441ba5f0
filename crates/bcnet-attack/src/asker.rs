//! An honest asker, who wants to see a server in a list: up to three tries in five seconds.

use std::io::ErrorKind::{TimedOut, WouldBlock};
use std::net::{SocketAddrV4, UdpSocket};
use std::time::Duration;

use crate::Environment;
use crate::delays::{Delays, sleep_until};

/// How askers fared.
#[derive(Debug, Clone, Default)]
pub(crate) struct Answers {
    pub(crate) asked: u64,
    pub(crate) delays: Delays,
}

impl Answers {
    pub(crate) fn share(&self) -> f64 {
        self.delays.count() as f64 / self.asked.max(1) as f64
    }
}

/// Asks again and again, each time from a network of its own.
pub(crate) fn ask_often(env: &Environment, server: SocketAddrV4) -> anyhow::Result<Answers> {
    let mut answers = Answers::default();
    let start = env.clock.now();
    let mut number = 0;
    while env.clock.now().since(start) < env.time || number < MIN_ASKED {
        sleep_until(env.clock, start + EVERY * u32::from(number));
        answers.asked += 1;
        if let Some(delay) = ask(env, server, number)? {
            answers.delays.add(delay);
        }
        number += 1;
    }
    Ok(answers)
}

/// Returns how long an answer took; `None` if there was none after three tries.
fn ask(env: &Environment, server: SocketAddrV4, number: u16) -> anyhow::Result<Option<Duration>> {
    env.sandbox.check(server)?;
    let socket = UdpSocket::bind((env.sandbox.honest(FIRST + number), 0))?;
    socket.connect(server)?;
    let start = env.clock.now();
    let mut buffer = [0; 2048];
    for attempt in 1..=TRIES {
        socket.send(b"\\status\\")?;
        let end = start + TIME * attempt / TRIES;
        loop {
            let left = end.since(env.clock.now());
            if left.is_zero() {
                break;
            }
            socket.set_read_timeout(Some(left))?;
            match socket.recv(&mut buffer) {
                Ok(len) if buffer.get(..len).is_some_and(has_name) => {
                    return Ok(Some(env.clock.now().since(start)));
                }
                Ok(_) => {}
                Err(error) if matches!(error.kind(), TimedOut | WouldBlock) => break,
                Err(_) => break,
            }
        }
    }
    Ok(None)
}

fn has_name(answer: &[u8]) -> bool {
    answer.windows(10).any(|window| window == b"\\hostname\\")
}

/// Askers have other addresses than players.
const FIRST: u16 = 3000;
const TRIES: u32 = 3;
/// How long all tries take.
const TIME: Duration = Duration::from_secs(5);
const EVERY: Duration = Duration::from_millis(200);
const MIN_ASKED: u16 = 10;
