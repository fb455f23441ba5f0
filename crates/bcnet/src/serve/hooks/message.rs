//! Formats notifications as JSON, and as messages for Discord.

use bcnet_session::EndReason;
use serde_json::{Value, json};

use super::notifier::{Notification, NotificationEvent};
use crate::serve::status_json::participant_json;

/// Returns a notification as a JSON object. It has no addresses of players: they are personal data.
pub(super) fn to_json(notification: &Notification) -> String {
    let mut object = json!({
        "event": notification.event.kind().word(),
        "time": notification.at.to_string(),
        "session": notification.session,
        "port": notification.port,
        "players": notification.players,
        "limit": notification.limit,
    });
    let more = match &notification.event {
        NotificationEvent::Joined { player } => json!({ "player": player }),
        NotificationEvent::Left { player, reason } => json!({ "player": player, "reason": reason }),
        NotificationEvent::RoundEnded(summary) => {
            json!({
                "round": summary.round,
                "system": summary.system.name(),
                "seconds": summary.duration.as_secs(),
                "reason": summary.reason.to_string(),
                "scores": Value::from_iter(summary.players.iter().map(participant_json)),
            })
        }
        NotificationEvent::Full => json!({}),
        NotificationEvent::MasterLost { master } => json!({ "master": master.to_string() }),
    };
    if let (Value::Object(object), Value::Object(more)) = (&mut object, more) {
        object.extend(more);
    }
    object.to_string()
}

/// Returns a notification as lines for Discord, with all names escaped.
pub(super) fn to_discord_text(notification: &Notification) -> String {
    let Notification { session, players, limit, .. } = notification;
    let session = escape_markdown(session);
    match &notification.event {
        NotificationEvent::Joined { player } => {
            format!("**{}** joined {session} ({players} of {limit})", escape_markdown(player))
        }
        NotificationEvent::Left { player, reason } => {
            let reason = escape_markdown(reason);
            format!("**{}** left {session} ({players} of {limit}): {reason}", escape_markdown(player))
        }
        NotificationEvent::Full => format!("{session} is full ({players} of {limit})"),
        NotificationEvent::MasterLost { master } => {
            let master = escape_markdown(&master.to_string());
            format!("The list server {master} does not answer: players may not find {session} in its list")
        }
        NotificationEvent::RoundEnded(summary) => {
            let minutes = summary.duration.as_secs().div_ceil(60);
            let head = format!(
                "Round {} of {session} in {} is over after {minutes} min",
                summary.round,
                escape_markdown(summary.system.name())
            );
            let cause = if summary.reason == EndReason::Empty { ": everyone has left" } else { "" };
            let mut players: Vec<_> = summary.players.iter().collect();
            players.sort_by_key(|one| std::cmp::Reverse(one.score.points));
            let lines =
                players.iter().map(|one| format!("**{}**: {}", escape_markdown(&one.name), one.score));
            join_lines(head + cause, lines.collect())
        }
    }
}

/// Appends lines to a heading, up to the length limit of one message.
fn join_lines(head: String, lines: Vec<String>) -> String {
    let mut text = head;
    for (line, rest) in lines.iter().zip((1..=lines.len()).rev()) {
        if char_count(&text) + char_count(line) + REST_LINE_LENGTH > MAX_CONTENT {
            return format!("{text}\n… and {rest} more");
        }
        text.push('\n');
        text.push_str(line);
    }
    text
}

/// Returns the request body for Discord. It disables mentions and link previews.
pub(super) fn discord_body(content: &str) -> String {
    let content: String = content.chars().take(MAX_CONTENT).collect();
    json!({ "content": content, "allowed_mentions": { "parse": [] }, "flags": SUPPRESS_EMBEDS }).to_string()
}

/// Returns whether more text fits into a message.
pub(super) fn fits(content: &str, more: &str) -> bool {
    char_count(content) + 1 + char_count(more) <= MAX_CONTENT
}

/// Escapes Markdown and mentions.
///
/// Discord takes a character after a backslash literally, unless it is a letter, digit or space.
fn escape_markdown(text: &str) -> String {
    let mut out = String::new();
    for letter in text.chars().take(MAX_NAME) {
        if letter.is_ascii_punctuation() {
            out.push('\\');
        }
        out.push(if letter.is_control() { ' ' } else { letter });
    }
    if text.chars().count() > MAX_NAME { out + "…" } else { out }
}

fn char_count(text: &str) -> usize {
    text.chars().count()
}

/// Discord's limit for one message, in characters.
const MAX_CONTENT: usize = 2000;
/// Longest part of a name or a reason that is shown.
const MAX_NAME: usize = 64;
/// Space for the line with the number of omitted lines.
const REST_LINE_LENGTH: usize = 32;
/// Discord's message flag that disables link previews.
const SUPPRESS_EMBEDS: u32 = 4;

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, SocketAddrV4};
    use std::time::Duration;

    use bcnet_session::{Participant, RoundSummary, Score, System};

    use super::*;
    use crate::bans::Timestamp;

    fn notification(event: NotificationEvent) -> Notification {
        let at = Timestamp(1_795_000_000);
        Notification { at, session: "Friday *night*".into(), port: 22101, players: 2, limit: 8, event }
    }

    fn round_ended(names: impl Iterator<Item = String>) -> Notification {
        let participant = |(name, points)| {
            let (score, played) = (Score { kills: 1, deaths: 2, points }, Duration::from_secs(60));
            Participant { name, score, played }
        };
        let summary = RoundSummary {
            round: 3,
            system: System::default(),
            duration: Duration::from_secs(1201),
            reason: EndReason::Time,
            players: names.zip(0..).map(participant).collect(),
        };
        notification(NotificationEvent::RoundEnded(summary))
    }

    #[test]
    fn notification_is_an_object_with_the_log_event_name() {
        let left = to_json(&notification(NotificationEvent::Left {
            player: "Bob \"x\"".into(),
            reason: "silent".into(),
        }));
        let expected = r#"{"event":"left","time":"2026-11-18T11:06:40Z","session":"Friday *night*","port":22101,"players":2,"limit":8,"player":"Bob \"x\"","reason":"silent"}"#;
        assert_eq!(left, expected);
        let ended: Value =
            serde_json::from_str(&to_json(&round_ended(["Alice".to_owned()].into_iter()))).expect("JSON");
        assert_eq!(
            (&ended["round"], &ended["seconds"], &ended["reason"]),
            (&json!(3), &json!(1201), &json!("time"))
        );
        assert_eq!(
            ended["scores"],
            json!([{"name": "Alice", "points": 0, "kills": 1, "deaths": 2, "seconds": 60}])
        );
        let master = SocketAddrV4::new(Ipv4Addr::new(192, 0, 2, 1), 27900);
        assert!(
            to_json(&notification(NotificationEvent::MasterLost { master }))
                .contains("\"master\":\"192.0.2.1:27900\"")
        );
    }

    #[test]
    fn player_names_are_escaped_for_discord() {
        for name in
            ["@everyone", "<@123>", "**x**", "`x`", "https://evil.example/", "[a](b)", "||x||", "# x", "a\nb"]
        {
            let text = to_discord_text(&notification(NotificationEvent::Joined { player: name.into() }));
            let shown = text
                .strip_prefix("**")
                .and_then(|rest| rest.strip_suffix("** joined Friday \\*night\\* (2 of 8)"));
            let shown = shown.unwrap_or_else(|| panic!("{text}"));
            let mut letters = shown.chars();
            while let Some(letter) = letters.next() {
                assert!(letter == '\\' || !letter.is_ascii_punctuation() && !letter.is_control(), "{text}");
                if letter == '\\' {
                    assert!(letters.next().is_some_and(|escaped| escaped.is_ascii_punctuation()), "{text}");
                }
            }
        }
        let body: Value = serde_json::from_str(&discord_body("x")).expect("JSON");
        assert_eq!(body, json!({"content": "x", "allowed_mentions": {"parse": []}, "flags": 4}));
    }

    #[test]
    fn discord_messages_respect_the_length_limit() {
        let long = round_ended((0..60).map(|n| format!("{n}{}", "*".repeat(500))));
        let text = to_discord_text(&long);
        assert!(char_count(&text) <= MAX_CONTENT && text.contains("\n… and "), "{text}");
        let winner = text.lines().nth(1).expect("second line");
        assert!(
            winner.starts_with("**59\\*") && winner.ends_with("…**: 59 points, 1 kills, 2 deaths"),
            "{winner}"
        );
        let few = to_discord_text(&round_ended(["Alice", "Bob"].map(String::from).into_iter()));
        let lines: Vec<_> = few.lines().collect();
        assert_eq!(lines[0], "Round 3 of Friday \\*night\\* in Multi1 is over after 21 min");
        assert_eq!(
            lines[1..],
            ["**Bob**: 1 points, 1 kills, 2 deaths", "**Alice**: 0 points, 1 kills, 2 deaths"]
        );
        let body = discord_body(&"é".repeat(3000));
        let body: Value = serde_json::from_str(&body).expect("JSON");
        assert_eq!(body["content"].as_str().map(char_count), Some(MAX_CONTENT));
    }
}
