//! Names and chat with characters that control a terminal or hide text.

use std::time::Duration;

use anyhow::ensure;
use bcnet_session::client::Event;
use bcnet_session::game;
use bcnet_transport::DeliveryMode;
use bcnet_transport::wire::{Body, Control, Datagram, Message, Role, Text};

use super::SIXTEEN_SLOTS;
use crate::Environment;
use crate::forged;
use crate::metrics::{AttackMetric, MetricUnit};
use crate::player::{AttackPlayer, JoinRequest, LinkProfile, wait_for_players};
use crate::process::Process;

pub(crate) fn hostile_text(env: &Environment) -> anyhow::Result<Vec<AttackMetric>> {
    let quiet = measure_chat(env, &[])?;
    let attacked = measure_chat(env, &hostile_names())?;
    Ok(vec![
        AttackMetric::new("honest lines delivered to a strict client", MetricUnit::Count, attacked.lines)
            .baseline(quiet.lines)
            .at_least(f64::from(CHAT_LINES)),
        AttackMetric::new("datagrams that the strict client refused", MetricUnit::Count, attacked.rejected)
            .baseline(quiet.rejected)
            .at_most(0.0),
        AttackMetric::new(
            "hostile characters in `bcnet ctl` output",
            MetricUnit::Count,
            attacked.hostile_shown,
        )
        .baseline(quiet.hostile_shown)
        .at_most(0.0),
    ])
}

/// Counts of the strict client, and the number of hostile characters that the operator sees.
///
/// The strict client refuses every datagram that is not [clean](is_clean).
struct HostileTextResult {
    lines: f64,
    rejected: f64,
    hostile_shown: f64,
}

/// Lets an honest player chat with the strict client, while players with hostile names also chat.
fn measure_chat(env: &Environment, hostile: &[Vec<u8>]) -> anyhow::Result<HostileTextResult> {
    let server = Process::serve(env, &[SIXTEEN_SLOTS])?;
    let mut players = Vec::new();
    let names = ["Strict", "Honest"].into_iter().chain(hostile.iter().map(|_| "Hostile"));
    for (number, name) in (0..).zip(names) {
        let from = env.sandbox.honest_address(number);
        let (address, nonce) = (server.address(), u32::from(number));
        let request =
            JoinRequest { server: address, from, name, password: "", nonce, link: LinkProfile::UNLIMITED };
        let mut player = AttackPlayer::connect(env.sandbox, env.clock, request)?;
        player.accepts = if number == 0 { is_clean } else { |_| true };
        players.push(player);
        let end = env.clock.now() + JOIN_TIMEOUT;
        while players.last().is_some_and(|player| player.entered.is_none()) && env.clock.now() < end {
            poll_players(env, &mut players, Duration::from_millis(50));
        }
    }
    let is_in = |player: &AttackPlayer| player.entered.is_some();
    ensure!(players.iter().take(2).all(is_in), "honest players cannot join {}", server.address());
    for (player, name) in players.iter().skip(2).zip(hostile) {
        let (id, name) = (player.client.id(), Text::new(name).unwrap_or_default());
        // A client cannot send half a surrogate pair, so the datagram with the hostile name is forged. It has
        // control sequence number 2, because the client sent its own name with number 1.
        player.send_raw(server.address(), &forged::datagram(id, &[forged::identity(2, id, name)]));
    }
    let mut lines = 0;
    for number in 0..CHAT_LINES {
        for player in players.iter_mut().skip(2) {
            let lies = forged::chat(player.client.id(), b"\x1b[2J\x07hostile\nHonest: lies\r\x00");
            // A message that the full outbox refuses is not sent.
            let _ = player.client.send(&lies, DeliveryMode::Reliable, env.clock.now());
        }
        if let Some(player) = players.get_mut(1) {
            let _ = player.client.chat(&format!("{CHAT_PREFIX} {number}"), env.clock.now());
        }
        lines += poll_players(env, &mut players, PAUSE);
    }
    lines += poll_players(env, &mut players, Duration::from_secs(3));
    let shown = server.control_output(&["players"])? + &server.control_output(&["search", "o"])?;
    let shown = shown.chars().filter(|letter| is_hostile(*letter) && *letter != '\n').count();
    let refused = players.first().map_or(0, |strict| strict.rejected);
    Ok(HostileTextResult { lines: f64::from(lines), rejected: refused as f64, hostile_shown: shown as f64 })
}

/// Polls all players in turn for a while. Returns how many honest lines the first player received.
fn poll_players(env: &Environment, players: &mut [AttackPlayer], time: Duration) -> u32 {
    let end = env.clock.now() + time;
    let mut lines = 0;
    while env.clock.now() < end {
        for (number, player) in players.iter_mut().enumerate() {
            player.poll(|event, _, _| {
                let is_honest = matches!(event, Event::Chat { text, .. } if text.starts_with(CHAT_PREFIX));
                lines += u32::from(number == 0 && is_honest);
            });
        }
        wait_for_players(env.clock, &*players, end);
    }
    lines
}

/// Returns whether a datagram has clean names, and chat without control characters.
///
/// A clean name has no hostile characters and no broken UTF-16. A datagram that does not parse counts as clean: this attack tests text only.
fn is_clean(datagram: &[u8]) -> bool {
    let Ok(datagram) = Datagram::parse(datagram, Some(Role::Host)) else { return true };
    datagram.messages().all(|message| match message {
        Message::Control(Control { body: Body::Identity { name, .. }, .. }) => is_clean_name(name),
        Message::Data(data) => match game::Message::parse(data.payload) {
            Ok(game::Message::Chat(chat)) => !chat.text.0.iter().any(u8::is_ascii_control),
            _ => true,
        },
        Message::Control(_) | Message::Ack(_) | Message::Keepalive => true,
    })
}

fn is_clean_name(name: Text<'_>) -> bool {
    let units = name.as_bytes().as_chunks().0.iter().map(|unit| u16::from_le_bytes(*unit));
    char::decode_utf16(units).all(|letter| letter.is_ok_and(|letter| !is_hostile(letter)))
}

/// Returns whether a character is a control character or a mark that reverses or hides text.
fn is_hostile(letter: char) -> bool {
    let hides = matches!(letter, '\u{200B}'..='\u{200F}' | '\u{202A}'..='\u{202E}' | '\u{2066}'..='\u{2069}' | '\u{FEFF}');
    letter.is_control() || hides
}

/// Returns names with escapes, newlines, marks that reverse or hide text, and broken surrogate pairs.
///
/// Each has an `o`, so that `bcnet ctl search o` finds it.
fn hostile_names() -> Vec<Vec<u8>> {
    let words = ["Esc\u{1b}[31mo", "New\nline o", "Turn\u{202e}o", "Hide\u{200b}o"];
    let mut names: Vec<Vec<u8>> = words.iter().filter_map(|name| Text::encode(name)).collect();
    let broken = [0xD800_u16, u16::from(b'o'), 0xDC00];
    names.push(broken.iter().flat_map(|unit| unit.to_le_bytes()).collect());
    names
}

const CHAT_LINES: u32 = 25;
/// The time between two lines. The server relays three lines per second after a burst of ten, so all
/// [`CHAT_LINES`] are within its limit.
const PAUSE: Duration = Duration::from_millis(250);
const CHAT_PREFIX: &str = "honest";
const JOIN_TIMEOUT: Duration = Duration::from_secs(5);
