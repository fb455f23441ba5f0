//! Runs the program as a user does: arguments and files in, text and exit code out.

mod captures;
#[path = "../run/mod.rs"]
mod run;

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use run::{ProcessOutput, bcnet, command, path};

#[test]
fn golden_datagrams_decode_encrypted_and_as_plaintext() {
    let vectors = vectors("datagram");
    for (form, flags) in [("wire", &["--json"][..]), ("plain", &["--json", "--plain"])] {
        let lines: Vec<String> = vectors.iter().map(|vector| hex_line(vector, form)).collect();
        let run = inspect(&lines.join("\n"), flags);
        assert_eq!((run.code, run.stderr.as_str()), (0, ""));
        let expected = vectors.iter().zip(1..).map(|(vector, line)| {
            let decoded = &vector["decoded"];
            let (sender, messages) = (&decoded["sender"], &decoded["messages"]);
            json!({"line": line, "sender": sender, "direction": vector["direction"], "messages": messages})
        });
        let found: Vec<Value> = run.json().into_iter().map(without_game).collect();
        assert_eq!(found, expected.collect::<Vec<_>>());
    }
}

#[test]
fn golden_messages_decode_alone() {
    let vectors: Vec<Value> =
        vectors("message").into_iter().filter(|vector| vector.get("masked").is_none()).collect();
    let lines: Vec<String> = vectors.iter().map(|vector| hex_line(vector, "plain")).collect();
    let run = inspect(&lines.join("\n"), &["--json", "--message"]);
    assert_eq!(run.code, 0);
    for (found, vector) in run.json().into_iter().map(without_game).zip(&vectors) {
        assert_eq!(found["messages"], json!([vector["decoded"]]));
        assert_eq!((&found["sender"], &found["direction"]), (&Value::Null, &vector["direction"]));
    }
    assert_eq!(run.json().len(), vectors.len());
}

#[test]
fn payloads_show_their_opcode() {
    let run = inspect("S> 17 66 08 00 00\n19 0D\nD3\n32 0", &["--json", "--payload"]);
    let head = json!({"line": 1, "direction": "S", "opcode": 23, "name": "PlayerListEvent", "values": {"class": 2150, "class_name": "PlayerEvent"}, "truncated": "event", "len": 5, "payload": "1766080000"});
    assert_eq!(run.json()[0], head);
    assert_eq!((&run.json()[1]["name"], &run.json()[2]["name"]), (&json!("TorpedoFire"), &Value::Null));
    assert_eq!((run.json()[3]["error"]["reason"].as_str(), run.code), (Some("bad_hex"), 1));
    let run = inspect("19 0D 41", &["--payload", "--explain"]);
    assert_eq!(
        run.stdout,
        "   1    payload 3 bytes  0x19 TorpedoFire truncated in weapon\n              0000  19 0D 41                                         |..A|\n"
    );
    let every =
        vectors("payload").iter().map(|vector| hex_line(vector, "plain")).collect::<Vec<_>>().join("\n");
    let run = inspect(&every, &["--json", "--payload"]);
    assert!(run.json().iter().all(|entry| entry["name"].is_string()) && run.code == 0);
}

#[test]
fn data_messages_show_their_decoded_payload() {
    let chat = "02 01 32 11 80 01 00 2C 02 00 00 00 05 00 68 65 6C 6C 6F";
    let run = inspect(chat, &["--plain", "--json"]);
    let game = json!({"opcode": 44, "name": "Chat", "values": {"sender": 2, "text": "hello"}});
    assert_eq!(run.json()[0]["messages"][0]["game"], game);
    let shown = inspect(chat, &["--plain", "--explain"]).stdout;
    assert!(shown.contains("data seq=1 12 bytes  0x2C Chat sender=2 text=\"hello\"\n"), "{shown}");
    assert!(shown.contains("                12 +7   text            \"hello\"\n"), "{shown}");
    // A list with one entry stays a list. The first fragment of a payload is decoded as far as it goes.
    let tree = "02 01 32 1C A0 07 00 00 03 21 01 2F CB AF 4D 02 00 77 B6 3E 37 68 A7 A0 F8 00 00 00 00 00";
    let run = inspect(tree, &["--plain", "--json"]);
    let values = json!({"round": 1, "directory_hash": 0x4DAF_CB2F, "files": [2], "file_name": [0x373E_B677, 0], "file_hash": [0xF8A0_A768_u32]});
    let game = json!({"opcode": 33, "name": "ChecksumResponse", "values": values, "truncated": "file_hash"});
    assert_eq!(run.json()[0]["messages"][0]["game"], game);
    let later = "02 01 32 08 A0 07 00 01 2C 02";
    assert_eq!(inspect(later, &["--plain", "--json"]).json()[0]["messages"][0].get("game"), None);
}

#[test]
fn join_capture_prints_the_expected_text() {
    let run = bcnet(&["inspect", "--hex", path("captures/join.hex").to_str().expect("UTF-8")], "");
    assert_eq!((run.code, run.stderr.as_str()), (0, ""));
    assert_eq!(run.stdout, include_str!("../join.txt"));
}

#[test]
fn readme_examples_match_the_output() {
    for file in ["README.md", "crates/bcnet/README.md"] {
        let readme = fs::read_to_string(path(file)).expect(file);
        let (_, example) = readme.split_once("$ echo '").expect("an example");
        let (input, rest) = example.split_once("' | bcnet inspect --hex -\n").expect("a command");
        let (output, _) = rest.split_once("```").expect("its end");
        assert_eq!(inspect(input, &[]).stdout, output, "{file}");
    }
}

/// The documentation tests of the crate compile the code in its README. The project's README has the same
/// code.
#[test]
fn readme_code_matches_the_crate_readme() {
    let [project, of_crate] =
        ["README.md", "crates/bcnet-udp/README.md"].map(|file| fs::read_to_string(path(file)).expect(file));
    let code: Vec<&str> =
        project.split("```rust,no_run\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    assert_eq!(code.len(), 1);
    assert!(of_crate.contains(code[0]), "{}", code[0]);
}

/// Removes the meaning of payloads from an entry, because the vectors do not have it.
fn without_game(mut entry: Value) -> Value {
    for message in entry["messages"].as_array_mut().expect("messages") {
        message.as_object_mut().expect("a message").remove("game");
    }
    entry
}

/// T-05: the first byte determines whether a datagram is GameSpy text.
#[test]
fn gamespy_text_is_shown_encrypted_or_not() {
    let status = "C> 5C 73 74 61 74 75 73 5C";
    for flags in [&["--json"][..], &["--json", "--plain"]] {
        let run = inspect(status, flags);
        assert_eq!(run.json(), [json!({"line": 1, "direction": "C", "gamespy": "\\status\\"})]);
        assert_eq!(run.code, 0);
    }
    assert_eq!(inspect("5C FC 1B", &[]).stdout, "   1    gamespy 3 bytes: \\ü·\n");
}

#[test]
fn comments_blank_lines_marks_and_spaces_are_accepted() {
    let text = "# all of this is one datagram\n\n  s>01 0102 # keepalive\n\t\nc> 0 1 0 1 0 2\r\n010102";
    let run = inspect(text, &["--json", "--plain"]);
    let seen: Vec<_> =
        run.json().iter().map(|entry| (entry["line"].clone(), entry["direction"].clone())).collect();
    assert_eq!(seen, [(json!(3), json!("S")), (json!(5), json!("C")), (json!(6), Value::Null)]);
    assert_eq!(run.code, 0);
    assert_eq!(inspect("\u{FEFF}01 01 02", &["--plain"]).code, 0);
    let shown = inspect("02 # it's \u{1b}[31m\nzz # oh", &["--message"]).stdout;
    assert_eq!(shown, "   1    keepalive  # it's ·[31m\n   2    error: 'z' is not a hex digit at column 1\n");
    assert_eq!(
        inspect(text, &["--plain"]).stdout.lines().next(),
        Some("   3 S> from host: 1 message in 3 bytes  # keepalive")
    );
}

/// T-71: names and chat are shown unchanged, except characters that reorder or hide text in a terminal. JSON
/// has them as escapes.
#[test]
fn invisible_characters_are_escaped_in_output() {
    let name = "01 01 00 14 C0 01 00 02 0A 0A 0A EF 41 00 2E 20 0B 20 E4 00 00 00";
    let chat = "02 01 32 10 80 00 00 2C 02 00 00 00 04 00 41 9B AD E4";
    let input = format!("{name}\n{chat}\n");
    let text = inspect(&input, &["--plain"]).stdout;
    assert!(text.contains("A\\u{202e}\\u{200b}ä") && text.contains("A\\u{9b}\\u{ad}ä"), "{}", text);
    let json = inspect(&input, &["--plain", "--json"]).stdout;
    assert!(json.contains("A\\u202e\\u200bä") && json.contains("A\\u009b\\u00adä"), "{}", json);
    assert!(json.lines().all(|line| serde_json::from_str::<Value>(line).is_ok()));
    let hidden = ['\u{202E}', '\u{200B}', '\u{9B}', '\u{AD}'];
    assert!(!text.contains(hidden) && !json.contains(hidden));
}

#[test]
fn each_error_is_one_json_object_and_decoding_continues() {
    let cases = [
        ("", None),
        ("01 01 32 06 80 05", Some((6, "sequence", "truncated"))),
        ("01 01 04 06 C0 02 00 04", Some((3, "size", "bad_size"))),
        ("01 01 32 08 A0 02 00 00 00 21", Some((8, "total", "bad_size"))),
        ("01 01 06", Some((2, "type", "unknown_type"))),
        ("01 01 02 02", Some((3, "message", "trailing"))),
        ("01 00", Some((1, "count", "count_zero"))),
        ("01 01 00 0C C0 01 00 02 0A 0A 0A EF 41 00", Some((12, "name", "bad_text"))),
        ("01 01 0", Some((7, "hex", "bad_hex"))),
        ("01 01 ?? ??", Some((6, "hex", "bad_hex"))),
        ("S>", Some((0, "sender", "truncated"))),
        ("01 01 02", None),
    ];
    let text: Vec<&str> = cases.iter().map(|(line, _)| *line).collect();
    let run = inspect(&text.join("\n"), &["--json", "--plain"]);
    let expected = cases.iter().zip(1..).skip(1).map(|((_, error), line)| match error {
        Some((at, field, reason)) => {
            json!({"line": line, "error": {"at": at, "field": field, "reason": reason}})
        }
        None => {
            let keepalive = json!({"type": 2, "kind": "keepalive", "len": 1});
            json!({"line": line, "sender": 1, "direction": null, "messages": [keepalive]})
        }
    });
    assert_eq!(run.json(), expected.collect::<Vec<_>>());
    assert_eq!(
        (run.code, run.stderr.as_str()),
        (1, "bcnet: standard input: 10 of 11 lines could not be decoded\n")
    );
    let shown = inspect("01 01 32 06 80 05\nxy", &["--plain"]).stdout;
    assert_eq!(
        shown,
        "   1    error: truncated sequence at byte 6\n   2    error: 'x' is not a hex digit at column 1\n"
    );
}

#[test]
fn non_stock_datagrams_are_decoded_and_flagged() {
    let cases = [
        ("01 01 01 02 00 84", "messages", "ack_spare_bits"),
        ("01 01 01 02 00 03 07", "messages", "ack_control_part"),
        ("01 01 04 07 40 02 00 04 02", "messages", "control_unreliable"),
        ("01 01 04 07 80 02 00 04 02", "messages", "control_not_urgent"),
        ("01 01 32 04 40 07", "messages", "data_urgent"),
        ("01 01 32 05 20 00 03", "messages", "unreliable_part"),
        ("00 01 02", "datagram", "sender"),
        ("7F 01 02", "datagram", "sender"),
        ("FE 01 02", "datagram", "sender"),
    ];
    for (datagram, level, name) in cases {
        let run = inspect(datagram, &["--json", "--plain"]);
        let entry = &run.json()[0];
        let flagged = if level == "datagram" { entry } else { &entry["messages"][0] };
        assert_eq!((&flagged["non_stock"], run.code), (&json!([name]), 0), "{datagram}");
        assert!(inspect(datagram, &["--plain"]).stdout.contains(&format!("(not stock: {name})")));
    }
    let large = format!("01 01 32 9D 01 {}", "00 ".repeat(410));
    assert_eq!(
        inspect(&large, &["--json", "--plain"]).json()[0]["messages"][0]["non_stock"],
        json!(["large_message"])
    );
    let large = format!("01 02 32 9C 01 {} 32 63 00 {}", "00 ".repeat(409), "00 ".repeat(96));
    assert_eq!(inspect(&large, &["--json", "--plain"]).json()[0]["non_stock"], json!(["large_datagram"]));
    let tail = inspect("01 01 04 09 C0 02 00 04 02 AA BB", &["--json", "--plain"]).json();
    let boot = &tail[0]["messages"][0];
    assert_eq!((&boot["tail"], &boot["non_stock"]), (&json!("aabb"), &json!(["tail"])));
    // The reserved sender marks GameSpy text, so it is never decoded as a datagram.
    assert!(inspect("5C 01 02", &["--json", "--plain"]).json()[0].get("gamespy").is_some());
}

/// T-35: the direction mark determines how a connect is decoded.
#[test]
fn connect_is_decoded_by_its_direction_mark() {
    let reply = "FF 01 03 06 C0 00 00 02";
    assert_eq!(
        inspect(&format!("S> {reply}"), &["--json", "--plain"]).json()[0]["messages"][0]["assigned"],
        2
    );
    assert_eq!(
        inspect(&format!("C> {reply}"), &["--json", "--plain"]).json()[0]["error"]["reason"],
        "bad_size"
    );
    assert_eq!(inspect(reply, &["--json", "--plain"]).json()[0]["error"]["reason"], "bad_size");
}

#[test]
fn explained_fields_cover_every_byte_and_cite_rules_that_exist() {
    let protocol = fs::read_to_string(path("PROTOCOL.md")).expect("PROTOCOL.md");
    let mut lines: Vec<String> = vectors("datagram").iter().map(|vector| hex_line(vector, "plain")).collect();
    lines.push("01 02 32 08 A0 02 00 00 03 21 32 07 A0 02 00 01 22".into());
    lines.push("01 02 04 09 C0 02 00 04 02 AA BB 01 02 00 84".into());
    lines.push("C> 02 01 05 0A C0 02 00 02 0A 0A 0A EF".into());
    lines.push("S> 01 01 00 16 C0 01 00 02 0A 0A 0A EF 43 00 61 00 64 00 79 00 32 00 00 00".into());
    let run = inspect(&lines.join("\n"), &["--json", "--plain", "--explain"]);
    for (entry, line) in run.json().iter().zip(&lines) {
        let message_fields =
            entry["messages"].as_array().expect("a list").iter().map(|message| &message["fields"]);
        let fields = [&entry["fields"]]
            .into_iter()
            .chain(message_fields)
            .flat_map(|list| list.as_array().expect("a list"));
        let mut end = 0;
        for field in fields {
            assert_eq!(field["at"], end, "{line}");
            end += field["len"].as_u64().expect("a length");
            let rule = field["rule"].as_str().expect("a rule");
            assert!(protocol.contains(&format!("\n**{rule}** ")), "{rule}");
        }
        let hex = line.split_once('>').map_or(line.as_str(), |(_, hex)| hex).replace(' ', "");
        assert_eq!(end, hex.len() as u64 / 2, "{line}");
    }
    let shown = inspect("01 01 02", &["--plain", "--explain"]).stdout;
    let expected = "   1    from host: 1 message in 3 bytes
               0 +1   sender    0x01 host                T-02
               1 +1   count     1                        T-03
        keepalive
               2 +1   type      0x02 keepalive           T-10
";
    assert_eq!(shown, expected);
}

#[test]
fn largest_datagrams_and_endless_lines_are_handled() {
    let largest = format!("01 FF {}", "02 ".repeat(65_533));
    let entry = &inspect(&largest, &["--json", "--plain"]).json()[0];
    assert_eq!(entry["error"], json!({"at": 257, "field": "message", "reason": "trailing"}));

    let endless = format!("{}\n01 01 02\n", "0".repeat(3 << 20));
    let run = inspect(&endless, &["--json", "--plain"]);
    assert_eq!(run.json()[0]["error"], json!({"at": 1 << 20, "field": "hex", "reason": "bad_hex"}));
    assert_eq!((run.json()[1]["sender"].clone(), run.json().len(), run.code), (json!(1), 2, 1));
    let longest = format!("0101{}02", " ".repeat((1 << 20) - 6));
    assert_eq!(inspect(&longest, &["--plain"]).code, 0);

    let folder = scratch_directory("largest");
    let out = folder.join("out.pcapng");
    let run = inspect(&format!("01 FF {}", "02 ".repeat(65_506)), &["--write", out.to_str().expect("UTF-8")]);
    assert!(run.stderr.contains("1 of 1 lines are too long for UDP"), "{}", run.stderr);
    fs::remove_dir_all(folder).expect("clean up");
}

#[test]
fn file_errors_name_the_file_and_exit_with_2() {
    let run = bcnet(&["inspect", "--hex", "no/such.hex"], "");
    assert_eq!((run.code, run.stdout.as_str()), (2, ""));
    assert!(
        run.stderr.starts_with("bcnet: no/such.hex: ") && run.stderr.lines().count() == 1,
        "{}",
        run.stderr
    );
    let folder = env!("CARGO_MANIFEST_DIR");
    let run = bcnet(&["inspect", "--hex", folder], "");
    assert!(run.code == 2 && run.stderr.contains("is a directory"), "{}", run.stderr);
    let run = inspect("01 01 02", &["--plain", "--write", "-"]);
    assert!(run.code == 2 && run.stderr.contains("--write needs the name of a file"), "{}", run.stderr);
    let run = inspect("01 01 02", &["--plain", "--write", "no/such/out.pcapng"]);
    assert!(run.code == 2 && run.stderr.starts_with("bcnet: no/such/out.pcapng: "), "{}", run.stderr);
    for bad in [
        &["inspect"][..],
        &["inspect", "--hex", "-", "--message", "--payload"],
        &["inspect", "--hex"],
        &["expect"],
    ] {
        assert_eq!(bcnet(bad, "").code, 2, "{bad:?}");
    }
}

#[test]
fn input_without_datagrams_is_reported() {
    let run = inspect("# nothing\n", &[]);
    assert_eq!((run.code, run.stdout.as_str()), (0, ""));
    assert_eq!(run.stderr, "bcnet: standard input: contains no datagrams\n");
}

#[test]
fn closed_stdout_is_not_an_error() {
    let mut child = command(&["inspect", "--hex", "-", "--plain"]).spawn().expect("bcnet starts");
    drop(child.stdout.take());
    let mut stdin = child.stdin.take().expect("a pipe");
    // The write may fail if bcnet ends first, which this test expects.
    let _ = stdin.write_all("01 01 02\n".repeat(20_000).as_bytes());
    drop(stdin);
    let output = run::wait_with_output(child);
    assert_eq!((output.status.code(), String::from_utf8_lossy(&output.stderr).as_ref()), (Some(0), ""));
}

#[test]
fn help_explains_input_and_exit_codes() {
    let run = bcnet(&["inspect", "--help"], "");
    assert_eq!(run.code, 0);
    for word in [
        "--hex <FILE>",
        "--plain",
        "--message",
        "--payload",
        "--write <OUT.pcapng>",
        "--explain",
        "--json",
        "Exit codes",
    ] {
        assert!(run.stdout.contains(word), "{word}");
    }
    assert!(bcnet(&["--help"], "").stdout.contains("inspect"));
    assert!(bcnet(&["--version"], "").stdout.starts_with("bcnet "));
}

/// Examples fit 80 columns and work in shells and in the Windows command prompt.
///
/// The command prompt has no single quotes and no backslash at the end of a line.
#[test]
fn help_examples_can_be_copied_on_every_system() {
    let commands =
        ["serve", "ctl", "top", "doctor", "stats", "query", "join", "proxy", "master", "inspect", "swarm"];
    let commands = commands.map(|name| vec![name]).into_iter();
    let mut examples = 0;
    for name in commands.chain([vec!["lab"], vec!["lab", "host"], vec!["lab", "join"]]) {
        let output = command(&name).arg("--help").env("COLUMNS", "80").output().expect("bcnet runs");
        let help = String::from_utf8(output.stdout).expect("UTF-8");
        assert!(cfg!(unix) || !help.contains("SIG"), "{name:?}: {help}");
        let Some((_, lines)) = help.split_once("\nExamples:\n") else { continue };
        for line in lines.lines().filter(|line| line.starts_with("  ")) {
            assert!(line.contains(" bcnet ") && !line.contains(['\'', '\\']), "{name:?}: {line}");
            assert!(line.chars().count() <= 80, "{name:?}: {line}");
            examples += 1;
        }
    }
    assert!(examples > 10, "{examples}");
}

fn inspect(input: &str, flags: &[&str]) -> ProcessOutput {
    bcnet(&[&["inspect", "--hex", "-"], flags].concat(), input)
}

fn vectors(layer: &str) -> Vec<Value> {
    let text = fs::read_to_string(path("captures/transport.json")).expect("captures/transport.json");
    let document: Value = serde_json::from_str(&text).expect("JSON");
    let all = document["vectors"].as_array().expect("a list").clone();
    all.into_iter().filter(|vector| vector["layer"] == layer && vector["complete"] == true).collect()
}

/// Returns a vector as a line of hex with its direction mark.
fn hex_line(vector: &Value, form: &str) -> String {
    let mark = vector["direction"].as_str().map(|direction| format!("{direction}> ")).unwrap_or_default();
    format!("{mark}{}", vector[form].as_str().expect("hex"))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02X}")).collect()
}

/// Creates a directory for one test.
fn scratch_directory(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    fs::create_dir_all(&folder).expect("a scratch folder");
    folder
}
