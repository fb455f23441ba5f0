//! Names and chat that do more than show themselves.

use std::time::Duration;

use anyhow::ensure;
use bcnet_transport::wire::Text;

use super::ROOMY;
use crate::Setting;
use crate::process::Process;
use crate::raw::{Manner, RawClient, is_hostile};
use crate::report::{Figure, Unit};

pub(crate) fn hostile_text(setting: &Setting) -> anyhow::Result<Vec<Figure>> {
    let quiet = lines_heard(setting, &[])?;
    let attacked = lines_heard(setting, &hostile_names())?;
    Ok(vec![
        Figure::new("honest lines that a strict player heard", Unit::Count, attacked.lines)
            .without(quiet.lines)
            .at_least(f64::from(LINES)),
        Figure::new("datagrams that it had to refuse", Unit::Count, attacked.refused)
            .without(quiet.refused)
            .at_most(0.0),
        Figure::new("hostile letters that `bcnet ctl` shows", Unit::Count, attacked.shown)
            .without(quiet.shown)
            .at_most(0.0),
    ])
}

struct Heard {
    lines: f64,
    refused: f64,
    shown: f64,
}

/// Lets an honest player talk to a strict one, while others with hostile names talk too.
fn lines_heard(setting: &Setting, hostile: &[Vec<u8>]) -> anyhow::Result<Heard> {
    let server = Process::serve(setting, &[ROOMY])?;
    let place = server.address();
    let honest = |name, is_strict| (Text::encode(name).unwrap_or_default(), is_strict);
    let mut players = Vec::new();
    let names = hostile.iter().map(|name| (name.clone(), false));
    for (number, (name, is_strict)) in
        [honest("Strict", true), honest("Honest", false)].into_iter().chain(names).enumerate()
    {
        let from = setting.arena.honest(number as u16);
        let manner = Manner { from, name: Some(name), plays: true, is_strict };
        let client = RawClient::connect(setting, place, number as u32, manner)?;
        players.push(client);
        let end = setting.clock.now() + JOINING;
        while players.last().is_some_and(|player| !player.has_entered) && setting.clock.now() < end {
            turn(setting, &mut players, Duration::from_millis(50));
        }
    }
    ensure!(players.iter().take(2).all(|player| player.has_entered), "honest players cannot join at {place}");
    for number in 0..LINES {
        for player in players.iter_mut().skip(2) {
            player.chat(b"\x1b[2J\x07hostile\nHonest: lies\r\x00");
        }
        if let Some(player) = players.get_mut(1) {
            player.chat(format!("{MARK} {number}").as_bytes());
        }
        turn(setting, &mut players, PAUSE);
    }
    turn(setting, &mut players, Duration::from_secs(3));
    let Some(strict) = players.first() else { anyhow::bail!("nobody listens") };
    let honest = strict.lines.iter().filter(|line| line.starts_with(MARK.as_bytes())).count();
    let shown = server.control_output(&["players"])? + &server.control_output(&["search", "o"])?;
    let shown = shown.chars().filter(|letter| is_hostile(*letter) && *letter != '\n').count();
    Ok(Heard { lines: honest as f64, refused: strict.refused as f64, shown: shown as f64 })
}

/// Lets all of them hear what there is, in turns.
fn turn(setting: &Setting, players: &mut [RawClient], time: Duration) {
    let end = setting.clock.now() + time;
    while setting.clock.now() < end {
        for player in &mut *players {
            player.listen(setting.clock.now() + Duration::from_millis(1));
        }
    }
}

/// Names with escapes, new lines, marks that turn and hide text, and halves of letters.
fn hostile_names() -> Vec<Vec<u8>> {
    let words = ["Esc\u{1b}[31mo", "New\nline o", "Turn\u{202e}o", "Hide\u{200b}o"];
    let mut names: Vec<Vec<u8>> = words.iter().filter_map(|name| Text::encode(name)).collect();
    let broken = [0xD800_u16, u16::from(b'o'), 0xDC00];
    names.push(broken.iter().flat_map(|unit| unit.to_le_bytes()).collect());
    names
}

const LINES: u32 = 25;
/// Between two lines, so that the server takes them all.
const PAUSE: Duration = Duration::from_millis(250);
const MARK: &str = "honest";
const JOINING: Duration = Duration::from_secs(5);
