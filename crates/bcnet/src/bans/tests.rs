use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::{env, fs};

use super::*;
use crate::config::fuzz_tests::corrupt_text;

fn network(text: &str) -> Network {
    Network::from_text(text).expect(text)
}

fn ban(address: &str, expires: Option<u64>, reason: &str) -> Ban {
    Ban {
        address: network(address),
        player: Latin1Line(String::new()),
        expires: expires.map(Timestamp),
        reason: Latin1Line(reason.into()),
        by: Latin1Line("Admin".into()),
        since: Timestamp(1_000),
    }
}

fn bans(list: impl IntoIterator<Item = Ban>) -> Bans {
    let mut bans = Bans::default();
    for ban in list {
        assert!(bans.add(ban));
    }
    bans
}

/// The directory of one test, deleted at the end.
struct BansDirectory(PathBuf);

impl BansDirectory {
    fn new(test: &str) -> Self {
        let path = env::temp_dir().join(format!("bcnet-bans-{}-{test}", std::process::id()));
        fs::create_dir_all(&path).expect("a directory");
        Self(path)
    }

    fn file(&self) -> PathBuf {
        self.0.join("bans.toml")
    }
}

impl Drop for BansDirectory {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.0));
    }
}

#[test]
fn ban_expires_at_its_end_time() {
    let mut bans = bans([ban("192.0.2.0/24", None, "for ever"), ban("192.0.2.7", Some(2_000), "a while")]);
    assert_eq!([1_999, 2_000, 2_001].map(|now| bans.expire(now).len()), [0, 1, 0]);
    assert_eq!(bans.networks(), [network("192.0.2.0/24")]);
}

#[test]
fn network_has_one_ban_and_unban_needs_exact_match() {
    let mut bans = bans([ban("192.0.2.0/24", None, "old"), ban("192.0.2.0/24", None, "new")]);
    assert_eq!(bans.search("").count(), 1);
    assert_eq!(bans.remove(network("192.0.2.0/25")), None);
    let gone = bans.remove(network("192.0.2.0/24"));
    assert_eq!(gone.map(|ban| ban.reason.0), Some("new".into()));
    assert_eq!(bans, Bans::default());
}

#[test]
fn search_matches_networks_reasons_and_authors() {
    let bans = bans([ban("192.0.2.0/24", None, "Ramming"), ban("198.51.100.7", None, "spam")]);
    let found = |text: &str| bans.search(text).map(|ban| ban.address.to_string()).collect::<Vec<_>>();
    assert_eq!(found("192.0.2.99"), ["192.0.2.0/24"]);
    assert_eq!(found("ramm"), ["192.0.2.0/24"]);
    assert_eq!(found("198.51"), ["198.51.100.7"]);
    assert_eq!(found("admin").len(), 2);
    assert_eq!(found("nobody"), Vec::<String>::new());
}

#[test]
fn networks_parse_and_print_in_cidr_notation() {
    for text in ["192.0.2.1", "192.0.2.0/24", "10.0.0.0/8", "128.0.0.0/1"] {
        assert_eq!(Network::from_text(text).expect(text).to_string(), text);
    }
    for (text, part) in [
        ("192.0.2.1/24", "did you mean 192.0.2.0/24?"),
        ("0.0.0.0/0", "1 to 32 bits"),
        ("192.0.2.1/33", "1 to 32 bits"),
        ("192.0.2.1/", "1 to 32 bits"),
        ("::1", "IPv6"),
        ("example.org", "an IPv4 address"),
        ("", "an IPv4 address"),
    ] {
        let error = Network::from_text(text).expect_err(text);
        assert!(error.contains(part), "{text}: {error}");
    }
}

#[test]
fn saved_bans_are_loaded_without_expired_ones() {
    let directory = BansDirectory::new("round");
    let path = directory.file();
    assert_eq!(load(&path, 0).expect("a missing file is an empty list"), Bans::default());
    let all = bans([
        ban("192.0.2.0/24", Some(5_000), "a \"quote\" # no comment"),
        ban("198.51.100.7", None, "Müller"),
        ban("203.0.113.0/28", Some(1_000), ""),
    ]);
    save(&path, &all).expect("saved");
    assert_eq!(load(&path, 0).expect("loaded"), all);
    let left = load(&path, 1_000).expect("loaded");
    assert_eq!(
        left.search("").map(|ban| ban.address.to_string()).collect::<Vec<_>>(),
        ["192.0.2.0/24", "198.51.100.7"]
    );
}

#[test]
fn maximum_number_of_bans_fits_the_file() {
    let mut bans = Bans::default();
    let worst = "\"".repeat(200);
    for n in 0..u32::try_from(MAX_BANS).expect("few") {
        let ban = Ban {
            player: Latin1Line("ÿ".repeat(64)),
            by: Latin1Line("ÿ".repeat(64)),
            ..ban(&Ipv4Addr::from(0xFFFF_FFFF - n).to_string(), Some(9), &worst)
        };
        assert!(bans.add(ban));
    }
    assert!(!bans.add(ban("192.0.2.1", None, "one too many")));
    assert!(bans.add(ban("255.255.255.255", None, "in place of another")));
    let directory = BansDirectory::new("most");
    let path = directory.file();
    save(&path, &bans).expect("saved");
    assert_eq!(load(&path, 0).expect("loaded"), bans);
}

#[test]
fn invalid_file_is_refused_with_line_and_key() {
    let error = |text: &str| parse(Path::new("bans.toml"), text).expect_err(text).to_string();
    assert_eq!(
        error("[[ban]]\naddress = \"192.0.2.1\"\nexpire = 3\n"),
        "bans.toml: line 3: ban.1.expire: unknown key; did you mean `expires`?"
    );
    assert!(error("[[ban]]\nreason = \"x\"\n").contains("ban.1: `address` is missing"));
    assert!(error("[ban]\naddress = \"192.0.2.1\"\n").contains("write `[[ban]]`"));
    assert!(
        error("[[ban]]\naddress = \"192.0.2.1\"\nexpires = 5\n")
            .contains("line 3: ban.1.expires: expected a date")
    );
    assert!(error("[[ban]]\naddress = \"192.0.2.1\"\nexpires = \n").starts_with("bans.toml: line 3:"));
    assert!(error("bind = 3").contains("unknown table"));
}

/// The child process of the next test.
///
/// It saves two ban lists in turn until it is killed, and prints a line after the first save.
#[test]
#[ignore = "runs until it is killed, as the child of another test"]
fn save_until_killed() {
    let path = PathBuf::from(env::var_os(CHILD_FILE).expect("a path"));
    let texts = two_ban_files();
    for n in 0.. {
        replace(&path, texts[n % 2].as_bytes()).expect("replaced");
        if n == 1 {
            println!("begun");
        }
    }
}

/// The texts are large and made in advance, so nearly every kill hits a write in progress.
#[test]
fn kill_during_write_leaves_a_complete_file() {
    let directory = BansDirectory::new("kill");
    let path = directory.file();
    let texts = two_ban_files();
    for _ in 0..10 {
        let mut child = Command::new(env::current_exe().expect("this program"))
            .args(["--ignored", "--exact", "--nocapture", "bans::tests::save_until_killed"])
            .env(CHILD_FILE, &path)
            .stdout(Stdio::piped())
            .spawn()
            .expect("a child");
        let output = BufReader::new(child.stdout.take().expect("its output"));
        assert!(output.lines().any(|line| line.expect("text").contains("begun")));
        child.kill().expect("killed");
        child.wait().expect("ended");
        let left = fs::read_to_string(&path).expect("a file");
        assert!(texts.contains(&left), "the file has {} bytes and is neither list", left.len());
    }
    load(&path, 0).expect("a list of bans");
}

fn two_ban_files() -> [String; 2] {
    [100, 200].map(|length| {
        let reason = "x".repeat(length);
        serialize(&bans((1..=5_000).map(|n| ban(&Ipv4Addr::from(n).to_string(), None, &reason))))
    })
}

const CHILD_FILE: &str = "BANS_TEST_FILE";

#[test]
fn errors_in_ban_files_are_reported_with_their_line() {
    let mut bans = Bans::default();
    for address in ["192.0.2.1", "198.51.100.0/24", "203.0.113.7"] {
        assert!(bans.add(ban(address, Some(1_800_000_000), "ramming")));
    }
    let mut rejected = 0;
    for seed in 0..1000 {
        let text = corrupt_text(&serialize(&bans), seed);
        let Err(Problems(problems)) = parse(Path::new("bans.toml"), &text) else { continue };
        rejected += 1;
        for problem in problems {
            let line = problem.line.expect("a line number");
            assert!((1..=text.lines().count() + 1).contains(&line), "seed {seed}: {problem}");
        }
    }
    assert!(rejected > 500, "only {rejected} mutated files were rejected");
}
