//! Text form of responses, for people.

use bcnet_wire::is_printable;
use serde_json::Value;

/// Formats a response as text that ends with a newline. The keys of the response decide the format.
#[must_use]
pub fn render_answer(answer: &Value) -> String {
    let list = |key: &str| answer.get(key).and_then(Value::as_array).map(Vec::as_slice);
    if let Some(sessions) = list("sessions") {
        let head = ["version", "uptime_s", "socket"]
            .map(|key| format!("{} {}", key.trim_end_matches("_s"), cell(answer, key)))
            .join("  ");
        let table = render_table(SESSIONS, sessions, "no sessions");
        let (masters, mismatches) = (render_list_servers(sessions), render_mismatches(sessions));
        let unknown = list("unknown_masters").unwrap_or_default();
        let unknown: String = unknown
            .iter()
            .filter_map(Value::as_str)
            .map(|name| format!("cannot resolve the list server {}\n", sanitize_for_terminal(name)))
            .collect();
        let hooks = render_hooks(list("hooks").unwrap_or_default());
        let (waiting, scores) = (render_coalescing(sessions), render_scores(&answer["scores"]));
        return format!("{head}\n{table}{waiting}{masters}{unknown}{mismatches}{hooks}{scores}");
    }
    if let Some(events) = list("events") {
        return events.iter().map(|event| sanitize_for_terminal(&event.to_string()) + "\n").collect();
    }
    if let Some(queues) = list("queues") {
        return if queues.is_empty() { "no players\n".into() } else { render_queue_dumps(queues) };
    }
    let lists: Vec<_> = LISTS.iter().filter_map(|kind| Some((kind, list(kind.key)?))).collect();
    match lists.as_slice() {
        [] => render_done(answer) + "\n",
        [(kind, rows)] => render_table(kind.columns, rows, kind.when_empty) + &render_saved_places(answer),
        several => several
            .iter()
            .filter(|(_, rows)| !rows.is_empty())
            .map(|(kind, rows)| format!("{}:\n{}", kind.key, render_table(kind.columns, rows, "")))
            .reduce(|all, next| format!("{all}\n{next}"))
            .unwrap_or_else(|| "nothing found\n".into()),
    }
}

/// Returns a line with the places where a change was saved in the configuration file, if any.
fn render_saved_places(answer: &Value) -> String {
    let places = answer.get("kept").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let places: Vec<String> = places.iter().filter_map(Value::as_str).map(sanitize_for_terminal).collect();
    if places.is_empty() { String::new() } else { format!("saved in {}\n", places.join("; ")) }
}

/// Returns the result of a command. It names the server if the response does.
fn render_done(answer: &Value) -> String {
    match answer.get("server") {
        None => cell(answer, "done"),
        Some(_) => {
            let [done, server, socket] = ["done", "server", "socket"].map(|key| cell(answer, key));
            format!("{done} ({server}; {socket})")
        }
    }
}

/// A list that a response may contain.
struct AnswerList {
    key: &'static str,
    columns: ColumnSpecs,
    /// The text for an empty list.
    when_empty: &'static str,
}

const LISTS: [AnswerList; 7] = [
    AnswerList { key: "players", columns: PLAYERS, when_empty: "no players" },
    AnswerList { key: "left", columns: DEPARTED, when_empty: "no player has left" },
    AnswerList { key: "bans", columns: BANS, when_empty: "no bans" },
    AnswerList { key: "whitelist", columns: WHITELIST, when_empty: "no whitelist: every address may join" },
    AnswerList { key: "settings", columns: SETTINGS, when_empty: "no settings" },
    AnswerList { key: "history", columns: HISTORY, when_empty: "no changes" },
    AnswerList {
        key: "samples",
        columns: SAMPLES,
        when_empty: "no samples yet; the first one follows a few seconds after the start",
    },
];

/// Returns the longest delay of state updates in any session, and its cause; empty without a delay.
fn render_coalescing(sessions: &[Value]) -> String {
    let number = |session: &Value, key: &str| session.get(key).and_then(Value::as_f64).unwrap_or(0.0);
    let window = |session: &&Value| number(session, "coalescing_ms");
    let Some(slowest) = sessions.iter().max_by(|a, b| window(a).total_cmp(&window(b))) else {
        return String::new();
    };
    if window(&slowest) == 0.0 {
        return String::new();
    }
    let wait = window(&slowest);
    if wait <= number(slowest, "coalesce_min_ms") {
        return format!("state updates wait {wait} ms, the minimum set by `coalesce_min`\n");
    }
    let [share, budget] = ["relaying_share", "cpu_budget"].map(|key| 100.0 * number(slowest, key));
    format!(
        "state updates wait {wait} ms: relaying uses {share:.0} % of a core, and `cpu_budget` is {budget:.0} %\n"
    )
}

/// Returns the list servers to which sessions announce themselves, if there are any.
fn render_list_servers(sessions: &[Value]) -> String {
    render_section(sessions, "masters", "list servers", MASTERS)
}

/// Returns the players whose game files failed the file check, if there are any.
fn render_mismatches(sessions: &[Value]) -> String {
    render_section(sessions, "mismatches", "files did not match", MISMATCHES)
}

/// Returns the state of the hooks, if there are any.
fn render_hooks(hooks: &[Value]) -> String {
    if hooks.is_empty() { String::new() } else { format!("\nhooks:\n{}", render_table(HOOKS, hooks, "")) }
}

/// Returns how many rounds of scores were saved and lost, if scores are on, and any error.
fn render_scores(scores: &Value) -> String {
    if scores.is_null() {
        return String::new();
    }
    let [kept, lost] = ["kept", "left_out"].map(|key| cell(scores, key));
    let problem = scores["problem"]
        .as_str()
        .map(|text| format!("; cannot write the file: {}", sanitize_for_terminal(text)));
    format!("\nscores: {kept} rounds saved, {lost} lost{}\n", problem.unwrap_or_default())
}

/// Returns a table of one list of all sessions, below a title; empty if no session has rows.
fn render_section(sessions: &[Value], key: &str, title: &str, columns: ColumnSpecs) -> String {
    let lists = sessions.iter().filter_map(|session| session.get(key)?.as_array());
    let rows: Vec<Value> = lists.flatten().cloned().collect();
    if rows.is_empty() { String::new() } else { format!("\n{title}:\n{}", render_table(columns, &rows, "")) }
}

type ColumnSpecs = &'static [ColumnSpec];
/// Title and key of a column.
pub type ColumnSpec = (&'static str, &'static str);

const PLAYERS: ColumnSpecs = &[
    ("SESSION", "session"),
    ("ID", "peer"),
    ("SLOT", "slot"),
    ("NAME", "name"),
    ("ADDRESS", "address"),
    ("STATE", "state"),
    ("RTT/ms", "round_trip_p50_ms"),
    ("p99", "round_trip_p99_ms"),
    ("RELAY/ms", "relay_p50_ms"),
    ("p99", "relay_p99_ms"),
    ("TIME", "connected_s"),
    ("KILLS", "kills"),
    ("DEATHS", "deaths"),
    ("SCORE", "score"),
];
const DEPARTED: ColumnSpecs = &[
    ("SESSION", "session"),
    ("NAME", "name"),
    ("ADDRESS", "address"),
    ("REASON", "reason"),
    ("AGO", "ago_s"),
];
const WHITELIST: ColumnSpecs = &[("SESSION", "session"), ("NETWORK", "network")];
const SETTINGS: ColumnSpecs = &[("KEY", "key"), ("VALUE", "value"), ("TAKES EFFECT", "effect")];
const HISTORY: ColumnSpecs =
    &[("TIME", "time"), ("BY", "by"), ("SESSION", "session"), ("WHAT", "what"), ("OUTCOME", "outcome")];
const SAMPLES: ColumnSpecs = &[
    ("TIME", "time"),
    ("PLAYERS", "players"),
    ("IN/s", "datagrams_in_per_second"),
    ("OUT/s", "datagrams_out_per_second"),
    ("ACK B/s", "ack_bytes_per_second"),
    ("RETX/s", "retransmissions_per_second"),
    ("RTT/ms", "round_trip_p50_ms"),
    ("p99", "round_trip_p99_ms"),
    ("RELAY/ms", "relay_p50_ms"),
    ("p99", "relay_p99_ms"),
    ("CORES", "core_share"),
    ("MEMORY", "memory_bytes"),
];
const MASTERS: ColumnSpecs =
    &[("SESSION", "session"), ("LIST SERVER", "address"), ("STATE", "state"), ("HEARD", "seen_s")];
const HOOKS: ColumnSpecs = &[
    ("HOOK", "name"),
    ("HOST", "host"),
    ("SENT", "sent"),
    ("FAILED", "failed"),
    ("DROPPED", "dropped"),
    ("WAITING", "waiting"),
    ("PROBLEM", "problem"),
];
const MISMATCHES: ColumnSpecs = &[
    ("SESSION", "session"),
    ("NAME", "name"),
    ("ADDRESS", "address"),
    ("ROUND", "round"),
    ("ENTRY", "entry"),
    ("DIFFERENCE", "difference"),
    ("AGO", "ago_s"),
];
const BANS: ColumnSpecs = &[
    ("NETWORK", "network"),
    ("PLAYER", "player"),
    ("EXPIRES", "expires"),
    ("BY", "by"),
    ("REASON", "reason"),
];
const SESSIONS: ColumnSpecs = &[
    ("SESSION", "name"),
    ("PORT", "port"),
    ("PLAYERS", "players"),
    ("LIMIT", "limit"),
    ("ROUND", "round"),
    ("SYSTEM", "system"),
    ("STATE", "state"),
    ("IN", "datagrams_in"),
    ("OUT", "datagrams_out"),
    ("OUT B/s", "bytes_out_per_second"),
    ("REJECTED", "rejected"),
    ("RELAY/ms", "relay_p50_ms"),
    ("p99", "relay_p99_ms"),
    ("RTT/ms", "round_trip_p50_ms"),
    ("p99", "round_trip_p99_ms"),
];

/// Formats rows, each an object, as a table. It ends with a newline and has no control characters.
///
/// Keys that end in `_s` are durations in seconds. The key `time` is a time in seconds since 1970. Without
/// rows the result is the line `when_empty`.
#[must_use]
pub fn render_table(columns: &[ColumnSpec], rows: &[Value], when_empty: &str) -> String {
    if rows.is_empty() {
        return format!("{when_empty}\n");
    }
    let titles = columns.iter().map(|(title, _)| (*title).to_owned()).collect();
    let cells = rows.iter().map(|row| columns.iter().map(|(_, key)| cell(row, key)).collect());
    let lines: Vec<Vec<String>> = std::iter::once(titles).chain(cells).collect();
    let width = |column: usize| {
        lines.iter().filter_map(|line| line.get(column)).map(|cell| cell.chars().count()).max()
    };
    let widths: Vec<usize> = (0..columns.len()).map(|column| width(column).unwrap_or(0)).collect();
    let mut text = String::new();
    for line in &lines {
        let padded: Vec<String> =
            line.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        text.push_str(padded.join("  ").trim_end());
        text.push('\n');
    }
    text
}

/// Returns the queue dumps of players, below a heading for each session.
fn render_queue_dumps(queues: &[Value]) -> String {
    let mut text = String::new();
    let mut session = None;
    for queue in queues {
        if session != queue.get("port") {
            session = queue.get("port");
            text.push_str(&format!("{}, port {}:\n", cell(queue, "session"), cell(queue, "port")));
        }
        text.push_str(&format!("{}\n", cell(queue, "dump")));
    }
    text
}

fn cell(row: &Value, key: &str) -> String {
    match row.get(key) {
        None | Some(Value::Null) => "-".into(),
        Some(Value::String(text)) => sanitize_for_terminal(text),
        Some(Value::Number(seconds)) if key.ends_with("_s") => format_duration(seconds.as_u64().unwrap_or(0)),
        Some(Value::Number(time)) if key == "time" => format_time_of_day(time.as_u64().unwrap_or(0)),
        // `Value::to_string` does not escape all control characters in strings.
        Some(other) => sanitize_for_terminal(&other.to_string()),
    }
}

/// Replaces each character that is not printable by U+FFFD, except newlines.
///
/// Text from another program must not control the terminal.
#[must_use]
pub fn sanitize_for_terminal(text: &str) -> String {
    let is_fine = |letter: char| letter == '\n' || is_printable(letter);
    text.chars().map(|letter| if is_fine(letter) { letter } else { char::REPLACEMENT_CHARACTER }).collect()
}

/// Formats seconds for people: 59s, 5m, 3h12m, 4d7h.
#[must_use]
pub fn format_duration(seconds: u64) -> String {
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds}s"),
        (0, 0, _) => format!("{minutes}m"),
        (0, _, _) => format!("{hours}h{}m", minutes % 60),
        _ => format!("{days}d{}h", hours % 24),
    }
}

/// Formats seconds since 1970 as the time of day in UTC.
fn format_time_of_day(seconds: u64) -> String {
    format!("{:02}:{:02}:{:02}", seconds / 3600 % 24, seconds / 60 % 60, seconds % 60)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let answer = json!({"bans": [
            {"network": "10.0.0.0/8", "player": "", "expires": "never", "by": "zoe", "reason": null},
            {"network": "1.2.3.4/32", "player": "Zoë", "expires": "in 2d", "by": "", "reason": "Zoë did it"},
        ]});
        let lines = [
            "NETWORK     PLAYER  EXPIRES  BY   REASON",
            "10.0.0.0/8          never    zoe  -",
            "1.2.3.4/32  Zoë     in 2d         Zoë did it",
            "",
        ];
        assert_eq!(render_answer(&answer), lines.join("\n"));
        assert_eq!(render_answer(&json!({"bans": []})), "no bans\n");
        assert_eq!(render_answer(&json!({"players": []})), "no players\n");
        assert_eq!(render_answer(&json!({"players": [], "left": [], "bans": []})), "nothing found\n");
        assert_eq!(render_answer(&json!({"done": "said in 1 session"})), "said in 1 session\n");
        let reloaded =
            json!({"done": "reloaded", "server": "Friday, port 22101", "socket": "/run/bcnet.sock"});
        assert_eq!(render_answer(&reloaded), "reloaded (Friday, port 22101; /run/bcnet.sock)\n");
    }

    #[test]
    fn answer_text_cannot_control_the_terminal() {
        for hostile in [json!("a\u{202e}b"), json!(["a\u{202e}b"]), json!({"a\u{7f}": "\u{200b}"})] {
            let text = render_answer(&json!({"bans": [{"network": hostile}]}));
            assert!(text.chars().all(|letter| letter == '\n' || is_printable(letter)), "{text:?}");
        }
    }

    #[test]
    fn coalescing_delay_and_cause_are_rendered() {
        let session = |window: f64, least: f64| {
            let (share, budget) = (0.463, 0.5);
            json!({
                "coalescing_ms": window, "coalesce_min_ms": least, "relaying_share": share, "cpu_budget": budget,
            })
        };
        assert_eq!(render_coalescing(&[session(0.0, 0.0), session(0.0, 0.0)]), "");
        let line = "state updates wait 14.1 ms: relaying uses 46 % of a core, and `cpu_budget` is 50 %\n";
        assert_eq!(render_coalescing(&[session(2.0, 2.0), session(14.1, 2.0)]), line);
        assert_eq!(
            render_coalescing(&[session(2.0, 2.0)]),
            "state updates wait 2 ms, the minimum set by `coalesce_min`\n"
        );
    }

    #[test]
    fn samples_show_the_time_of_day() {
        let answer = json!({"interval_s": 5, "samples": [{"time": 1_014_091_505_u64, "players": 2}]});
        let shown = render_answer(&answer);
        assert!(shown.starts_with("TIME      PLAYERS  IN/s "), "{shown}");
        assert!(shown.contains("\n04:05:05  2        -     "), "{shown}");
    }

    #[test]
    fn queue_dumps_are_labelled_by_session() {
        let queue = |port, dump| json!({"session": "Friday", "port": port, "dump": dump});
        let answer =
            json!({"queues": [queue(22101, "peer=2"), queue(22101, "peer=3"), queue(22102, "peer=2")]});
        let shown = render_answer(&answer);
        assert_eq!(shown, "Friday, port 22101:\npeer=2\npeer=3\nFriday, port 22102:\npeer=2\n");
        assert_eq!(render_answer(&json!({"queues": []})), "no players\n");
    }
}
