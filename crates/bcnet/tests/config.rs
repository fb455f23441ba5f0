//! Runs `bcnet config` as a user does: files, variables and flags in, texts and exit codes out.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The directory of one test, deleted at the end.
struct ConfigDirectory(PathBuf);

impl ConfigDirectory {
    fn new(test: &str) -> Self {
        let path = std::env::temp_dir().join(format!("bcnet-config-{}-{test}", std::process::id()));
        fs::create_dir_all(&path).expect("a directory");
        Self(path)
    }

    /// Runs `bcnet config` there. Returns exit code, standard output and standard error.
    fn run_config(&self, args: &[&str], variables: &[(&str, &str)]) -> (i32, String, String) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_bcnet"));
        command.arg("config").args(args).current_dir(&self.0).env_clear().envs(variables.iter().copied());
        let output = command.output().expect("bcnet runs");
        let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
        (output.status.code().expect("no signal"), text(output.stdout), text(output.stderr))
    }

    fn write(&self, text: &str) {
        fs::write(self.0.join("bcnet.toml"), text).expect("written");
    }
}

impl Drop for ConfigDirectory {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.0));
    }
}

#[test]
fn check_accepts_a_missing_file() {
    let directory = ConfigDirectory::new("none");
    assert_eq!(directory.run_config(&["check"], &[]), (0, "fine: 1 session\n".into(), String::new()));
}

#[test]
fn default_file_has_every_key_with_its_default() {
    let directory = ConfigDirectory::new("sample");
    let (_, defaults, _) = directory.run_config(&["show"], &[]);
    let (_, sample, _) = directory.run_config(&["default"], &[]);
    directory.write(&sample);
    let (code, shown, error) = directory.run_config(&["show"], &[]);
    assert_eq!((code, error.as_str()), (0, ""));
    let mut keys = 0;
    for (default, from_file) in defaults.lines().zip(shown.lines()) {
        let (value, origin) = from_file.split_once('#').unwrap_or((from_file, ""));
        assert_eq!(value.trim_end(), default);
        let is_key = default.contains(" = ");
        assert_eq!(origin.contains("bcnet.toml, line "), is_key, "{from_file}");
        keys += usize::from(is_key);
    }
    assert_eq!(defaults.lines().count(), shown.lines().count());
    assert_eq!(sample.lines().filter(|line| !line.starts_with('#') && line.contains(" = ")).count(), keys);
}

#[test]
fn documentation_matches_the_generated_page() {
    let (_, page, _) = ConfigDirectory::new("page").run_config(&["default", "--markdown"], &[]);
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/configuration.md");
    let kept = fs::read_to_string(path).expect("docs/reference/configuration.md");
    assert_eq!(kept, page, "run `bcnet config default --markdown > docs/reference/configuration.md`");
}

#[test]
fn flags_override_variables_and_variables_the_file() {
    let directory = ConfigDirectory::new("order");
    directory.write("[log]\nlevel = \"warn\"\n\n[[session]]\nname = \"file\"\nport = 22110\nplayer_limit = 4\n\n[[session]]\nport = 22111\n");
    let variables = [
        ("BCNET_NAME", "all"),
        ("BCNET_SESSION_2_NAME", "second"),
        ("BCNET_LOG_LEVEL", "debug"),
        ("BCNET_MASTERS", "one.example, two.example:1"),
    ];
    let flags = ["show", "--set", "log.level=error", "--set", "session.2.port=22120", "--bind", "127.0.0.1"];
    let (code, shown, error) = directory.run_config(&flags, &variables);
    assert_eq!((code, error.as_str()), (0, ""));
    for (line, origin) in [
        ("bind = \"127.0.0.1\"", "--bind"),
        ("masters = [\"one.example:27900\", \"two.example:1\"]", "BCNET_MASTERS"),
        ("level = \"error\"", "--set log.level"),
        ("name = \"all\"", "BCNET_NAME"),
        ("name = \"second\"", "BCNET_SESSION_2_NAME"),
        ("port = 22110", "bcnet.toml, line 6"),
        ("port = 22120", "--set session.2.port"),
        ("player_limit = 4", "bcnet.toml, line 7"),
    ] {
        let found = shown.lines().any(|shown| shown == format!("{line:<40} # {origin}"));
        assert!(found, "{line} # {origin}\n{shown}");
    }
}

/// Byte order marks, line ends and encodings of Notepad's "Save as".
#[test]
fn notepad_encodings_are_read_or_explained() {
    let directory = ConfigDirectory::new("notepad");
    let text = "[[session]]\r\nname = \"Caf\u{e9}\"\r\nport = 22150\r\n";
    let utf_16 = |order: fn(u16) -> [u8; 2]| text.encode_utf16().flat_map(order).collect::<Vec<u8>>();
    let marked = |mark: &[u8], bytes: Vec<u8>| [mark.to_vec(), bytes].concat();
    let save = |bytes: &[u8]| fs::write(directory.0.join("bcnet.toml"), bytes).expect("written");
    for bytes in [text.into(), marked(b"\xef\xbb\xbf", text.into())] {
        save(&bytes);
        let (code, shown, error) = directory.run_config(&["show"], &[]);
        assert_eq!((code, error.as_str()), (0, ""));
        for line in ["name = \"Caf\u{e9}\"", "port = 22150"] {
            assert!(shown.lines().any(|shown| shown.starts_with(line)), "{line}\n{shown}");
        }
        assert!(shown.contains("bcnet.toml, line 3"), "{shown}");
    }
    let ansi = text.chars().map(|letter| letter as u8).collect();
    for (bytes, part) in [
        (marked(b"\xff\xfe", utf_16(u16::to_le_bytes)), "saved as UTF-16"),
        (marked(b"\xfe\xff", utf_16(u16::to_be_bytes)), "saved as UTF-16"),
        (utf_16(u16::to_le_bytes), "saved as UTF-16"),
        (utf_16(u16::to_be_bytes), "saved as UTF-16"),
        (ansi, "not valid UTF-8"),
    ] {
        save(&bytes);
        let (code, shown, error) = directory.run_config(&["show"], &[]);
        assert_eq!((code, shown.as_str(), error.lines().count()), (2, "", 1), "{error}");
        let is_explained =
            error.contains(part) && error.contains("bcnet.toml: ") && error.contains("encoding UTF-8");
        assert!(is_explained, "{error}");
    }
}

/// Paths of bans and socket are relative to the file, wherever the program is started.
#[test]
fn bans_and_socket_paths_are_relative_to_the_file() {
    let directory = ConfigDirectory::new("places");
    fs::create_dir_all(directory.0.join("etc")).expect("a directory");
    let text = "[server]\ncontrol = \"./bcnet.sock\"\n[log]\nfile = \"server.log\"\n";
    fs::write(directory.0.join("etc/bcnet.toml"), text).expect("written");
    let show = |variables: &[(&str, &str)]| {
        let (code, shown, error) = directory.run_config(&["show", "--config", "etc/bcnet.toml"], variables);
        assert_eq!((code, error.as_str()), (0, ""));
        let value = |key: &str| {
            let line = shown.lines().find(|line| line.starts_with(&format!("{key} = ")));
            line.and_then(|line| line.split('"').nth(1))
                .unwrap_or_else(|| panic!("{shown}"))
                .replace(r"\\", "/")
        };
        ["control", "bans", "file"].map(value)
    };
    assert_eq!(show(&[]), ["etc/./bcnet.sock", "etc/bans.toml", "server.log"]);
    let separator = if cfg!(windows) { ';' } else { ':' };
    let directories = format!("/var/lib/bcnet{separator}/var/lib/other");
    let service = [("STATE_DIRECTORY", directories.as_str())];
    assert_eq!(show(&service), ["etc/./bcnet.sock", "/var/lib/bcnet/bans.toml", "server.log"]);
    let variables = [("BCNET_BANS", "mine.toml"), ("BCNET_CONTROL", "./mine.sock"), service[0]];
    assert_eq!(show(&variables), ["./mine.sock", "mine.toml", "server.log"]);
}

#[test]
fn all_problems_are_reported_with_line_key_and_suggestion() {
    let directory = ConfigDirectory::new("problems");
    directory.write(
        "bind = \"::1\"\n[server]\nbind = \"::1\"\nmaster = []\n[logs]\n[[session]]\nprot = 3\nplayer_limit = 17\n\
         system = \"Mutli2\"\ntime_limit = \"20\"\nport = 22101\nchecksums = \"strict\"\n[[session]]\nport = 22101\n\
         intermission = 30\nname = \"a\\\\b\"\n",
    );
    let (code, found, error) = directory.run_config(
        &["check", "--set", "colour=blue", "--set", "session.password=\"x\""],
        &[("BCNET_PASWORD", "x")],
    );
    assert_eq!((code, error.as_str()), (1, ""));
    let expected = [
        "bcnet.toml: line 1: bind: this key belongs in the table `[server]`",
        "bcnet.toml: line 3: server.bind: ::1 is IPv6, but the game's protocol carries IPv4 addresses only; use an IPv4 address",
        "bcnet.toml: line 4: server.master: unknown key; did you mean `masters`?",
        "bcnet.toml: line 5: logs: unknown table or key; did you mean `log`?",
        "bcnet.toml: line 7: session.1.prot: unknown key; did you mean `port`?",
        "bcnet.toml: line 8: session.1.player_limit: expected a number from 1 to 16, not 17",
        "bcnet.toml: line 9: session.1.system: expected one of \"Multi1\", \"Multi2\", \"Multi3\", \"Multi4\", \"Multi5\", \"Multi6\", \"Multi7\", \"Albirea\", \"Poseidon\", not \"Mutli2\"; did you mean `Multi2`?",
        "bcnet.toml: line 10: session.1.time_limit: expected a number from 1 to 254 or \"none\", not \"20\"",
        "bcnet.toml: line 15: session.2.intermission: expected a time such as `\"500ms\"`, `\"45s\"`, `\"30m\"`, `\"12h\"` or `\"7d\"` or \"none\", not 30",
        "bcnet.toml: line 16: session.2.name: expected text of at most 64 Latin-1 characters, without backslash and control characters, not \"a\\\\b\"",
        "BCNET_PASWORD: unknown variable; did you mean `BCNET_PASSWORD`?",
        "--set colour: unknown key",
        "--set session.password: quotes would become part of the value; remove them, or set the key in a file",
        "bcnet.toml: line 12: session.1.checksums: \"strict\" needs `manifests`; make one with `bcnet manifest learn`",
        "bcnet.toml: line 14: session.2.port: port 22101 is already used by session 1; choose another port",
    ];
    assert_eq!(found.lines().collect::<Vec<_>>(), expected);
}

#[test]
fn broken_toml_and_missing_files_print_one_line() {
    let directory = ConfigDirectory::new("broken");
    directory.write("[server]\nbind = \n");
    let (code, found, _) = directory.run_config(&["check"], &[]);
    assert_eq!((code, found.lines().count()), (1, 1), "{found}");
    assert!(found.starts_with("bcnet.toml: line 2: "), "{found}");
    let (code, out, error) = directory.run_config(&["check", "absent.toml"], &[]);
    assert_eq!((code, out.as_str(), error.lines().count()), (2, "", 1));
    assert!(error.starts_with("bcnet: absent.toml: "), "{error}");
    let (code, out, error) = directory.run_config(&["show"], &[("BCNET_CONFIG", "absent.toml")]);
    assert_eq!((code, out.as_str(), error.starts_with("bcnet: absent.toml: ")), (2, "", true));
}

#[test]
fn too_short_timeouts_are_rejected() {
    let directory = ConfigDirectory::new("times");
    directory.write("[[session]]\nkeepalive = \"5s\"\nsilence_timeout = \"5s\"\nround_timeout = \"0s\"\n");
    let (code, found, _) = directory.run_config(&["check"], &[]);
    let expected = "bcnet.toml: line 3: session.1.silence_timeout: expected at least \"6s\", not \"5s\": a shorter time disconnects every player\n\
                    bcnet.toml: line 4: session.1.round_timeout: expected at least \"1s\", not \"0ms\": a shorter time disconnects every player\n";
    assert_eq!((code, found.as_str()), (1, expected));
}

#[test]
fn passwords_are_never_shown() {
    let directory = ConfigDirectory::new("password");
    directory.write("[[session]]\npassword = \"swordfish\"\n");
    let (_, from_file, _) = directory.run_config(&["show"], &[]);
    let (_, from_variable, _) = directory.run_config(&["show"], &[("BCNET_PASSWORD", "swordfish")]);
    directory.write("[[session]]\npassword = [\"swordfish\"]\n");
    let (code, refused, _) = directory.run_config(&["check"], &[]);
    assert!(
        from_file.contains("password = \"(hidden)\"")
            && from_variable.contains("# BCNET_PASSWORD")
            && code == 1
    );
    for text in [from_file, from_variable, refused] {
        assert!(!text.contains("swordfish"), "{text}");
    }
}

#[test]
fn hook_errors_are_reported_and_urls_are_hidden() {
    let directory = ConfigDirectory::new("hooks");
    let good = "[[hook]]\nurl = \"https://discord.example/api/s3cret\"\nformat = \"discord\"\n[[hook]]\nname = \"mine\"\n\
                url = \"http://localhost:8080/s3cret\"\nallow_http = true\nevents = [\"full\"]\n";
    directory.write(good);
    let (code, shown, error) = directory.run_config(&["show"], &[]);
    assert_eq!((code, error.as_str()), (0, ""));
    for line in [
        "name = \"hook-1\"",
        "url = \"https://discord.example/…\"        # bcnet.toml, line 2",
        "url = \"http://localhost:8080/…\"          # bcnet.toml, line 6",
        "events = [\"joined\", \"left\", \"round_ended\", \"full\", \"master_lost\"]",
        "timeout = \"10s\"",
    ] {
        assert!(shown.lines().any(|shown| shown == line), "{line}\n{shown}");
    }
    directory.write(
        "url = \"https://s3cret/\"\n[[hook]]\nname = \"a\"\n[[hook]]\nname = \"a\"\nurl = \"http://example.org/s3cret\"\nallow_http = true\n\
         [[hook]]\nurl = \"s3cret\"\n[[hook]]\nurl = [\"https://s3cret/\"]\n[[hook]]\nurl = \"http://127.0.0.1/s3cret\"\ntimeout = \"2m\"\nevents = []\n\
         [[hook]]\nname = \"a b\"\nurl = \"https://x/\"\nevents = [\"join\"]\n",
    );
    let (code, found, error) = directory.run_config(&["check"], &[]);
    assert_eq!((code, error.as_str()), (1, ""));
    let address = "expected an address that begins with `https://`";
    let local = "expected `https://`; `http://` is allowed only to this machine (127.0.0.1) and with `allow_http = true`";
    let expected = [
        "bcnet.toml: line 1: url: this key belongs in the table `[[hook]]`".to_owned(),
        format!("bcnet.toml: line 9: hook.3.url: {address}, with a host and a path, and without a user name"),
        format!("bcnet.toml: line 11: hook.4.url: {address}"),
        "bcnet.toml: line 17: hook.6.name: expected 1 to 32 of `a` to `z`, `A` to `Z`, `0` to `9`, `-` and `_`, not \"a b\"".into(),
        "bcnet.toml: line 19: hook.6.events: expected one of \"joined\", \"left\", \"round_ended\", \"full\", \"master_lost\", not \"join\"".into(),
        "bcnet.toml: hook.1.url: is missing; set the address that the hook posts to".into(),
        format!("bcnet.toml: line 6: hook.2.url: {local}"),
        "bcnet.toml: line 5: hook.2.name: hook 1 has the same name; choose another name".into(),
        format!("bcnet.toml: line 13: hook.5.url: {local}"),
        "bcnet.toml: line 14: hook.5.timeout: expected a time from \"1s\" to \"60s\"".into(),
        "bcnet.toml: line 15: hook.5.events: the list is empty, so the hook would never post; name some events, or delete the hook".into(),
    ];
    assert_eq!(found.lines().collect::<Vec<_>>(), expected);
    directory.write(&"[[hook]]\nurl = \"https://x/\"\n".repeat(17));
    let (_, found, _) = directory.run_config(&["check"], &[]);
    assert_eq!(
        found,
        "bcnet.toml: line 1: hook: more than 16 hooks; let one hook's receiver forward to the others\n"
    );
}

#[test]
fn hostile_configuration_files_end_in_errors() {
    let directory = ConfigDirectory::new("hostile");
    let deep = format!("a = {}1{}\n", "[".repeat(100_000), "]".repeat(100_000));
    let many = "x = 1\n".repeat(100_000);
    let tables = "[[session]]\nprot = 1\n".repeat(10_000);
    for text in [
        deep.as_str(),
        many.as_str(),
        tables.as_str(),
        "\u{0}",
        "[server",
        "\"a\\nb\" = 1\n",
        "session = 3\n[server]\nbind=[[1]]\n",
    ] {
        directory.write(text);
        let (code, found, error) = directory.run_config(&["check"], &[]);
        assert_eq!((code, error.as_str()), (1, ""), "{}", text.chars().take(40).collect::<String>());
        assert!((1..=200).contains(&found.lines().count()), "{}", found.lines().count());
    }
    fs::write(directory.0.join("bcnet.toml"), b"\xFF\xFE").expect("written");
    assert_eq!(directory.run_config(&["check"], &[]).0, 2);
}

#[test]
fn misspelt_variables_are_errors_and_foreign_ones_ignored() {
    let directory = ConfigDirectory::new("wrong");
    let fine = (0, "fine: 1 session\n".into(), String::new());
    assert_eq!(directory.run_config(&["check"], &[("BCNET_WELCOME", "a\\nb")]), fine);
    let kubernetes = [
        ("BCNET_PORT", "udp://10.0.0.1:22101"),
        ("BCNET_PORT_22101_UDP_ADDR", "10.0.0.1"),
        ("BCNET_SERVICE_HOST", "10.0.0.1"),
        ("BCNET_SERVICE_PORT_GAME", "22101"),
    ];
    let noted = kubernetes
        .map(|(name, _)| format!("{name}: bcnet has no such setting; the variable is ignored\n"))
        .concat();
    let noted = format!("{noted}fine: 1 session\n");
    assert_eq!(directory.run_config(&["check"], &kubernetes), (0, noted, String::new()));
    // Variables of images, panels and packages are ignored. A variable that is nearly a key is a typing
    // error.
    for (name, value) in
        [("BCNET_IMAGE", "1"), ("BCNET_HOME", "/srv"), ("BCNET_BIN", "/x"), ("BCNET_UID", "1")]
    {
        let noted = format!("{name}: bcnet has no such setting; the variable is ignored\nfine: 1 session\n");
        assert_eq!(directory.run_config(&["check"], &[(name, value)]), (0, noted, String::new()));
    }
    for (name, meant) in [
        ("BCNET_PASSWD", "BCNET_PASSWORD"),
        ("BCNET_PROT", "BCNET_PORT"),
        ("BCNET_SERVER_PASSWORD", "BCNET_PASSWORD"),
        ("BCNET_SESSION_2_NAME", "BCNET_SESSION_1_NAME"),
        ("BCNET_CONTROLL", "BCNET_CONTROL"),
    ] {
        let problem = format!("{name}: unknown variable; did you mean `{meant}`?\n");
        assert_eq!(directory.run_config(&["check"], &[(name, "x")]), (1, problem, String::new()));
    }
    for (set, part) in [
        ("player_limit=4", "unknown key; did you mean `session.player_limit`?"),
        ("session.name= ", "the name is empty"),
    ] {
        let (code, text, _) = directory.run_config(&["check", "--set", set], &[]);
        assert!(code == 1 && text.contains(part), "{set}: {text}");
    }
    directory.write("[[session]]\nname = \"A\"\n[[session]]\nname = \"a\"\n");
    let (code, text, _) = directory.run_config(&["check"], &[]);
    assert!(code == 1 && text.contains("line 4: session.2.name: session 1 has the same name"), "{text}");
}
