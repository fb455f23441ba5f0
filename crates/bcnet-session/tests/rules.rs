//! PROTOCOL.md and the tests hold each other to account: every rule of the session is cited by a test, every citation
//! is a rule.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

#[test]
fn every_rule_is_cited_by_a_test() {
    let rules = rules();
    assert!(rules.len() >= 40, "PROTOCOL.md has only {} rules", rules.len());
    let sources = files(&root().join("crates/bcnet-session"));
    let read = |path: &PathBuf| fs::read_to_string(path).expect("a source file");
    let cited: BTreeSet<String> = sources.iter().flat_map(|path| cited_by_tests(&read(path))).collect();
    let missing: Vec<_> = rules.difference(&cited).collect();
    assert!(missing.is_empty(), "no test cites {missing:?} in its doc comment");
}

#[test]
fn every_citation_is_a_rule() {
    let rules = rules();
    for path in files(&root().join("crates")) {
        let source = fs::read_to_string(&path).expect("a source file");
        for rule in mentions(&source) {
            assert!(
                rules.contains(&rule),
                "{} cites {rule}, which PROTOCOL.md does not have",
                path.display()
            );
        }
    }
}

/// The citations that stand in the doc comment of a test.
fn cited_by_tests(source: &str) -> Vec<String> {
    let lines: Vec<&str> = source.lines().map(str::trim).collect();
    let tests = lines.iter().enumerate().filter(|(_, line)| **line == "#[test]");
    let comments = tests.flat_map(|(at, _)| {
        lines[..at].iter().rev().take_while(|line| line.starts_with("///") || line.starts_with("#["))
    });
    comments.flat_map(|line| mentions(line)).collect()
}

/// The rules of PROTOCOL.md: the lines that begin with `**S-nn`.
fn rules() -> BTreeSet<String> {
    let text = fs::read_to_string(root().join("PROTOCOL.md")).expect("PROTOCOL.md");
    let defined = text.lines().filter_map(|line| line.strip_prefix("**S-"));
    let rules: Vec<String> = defined.map(|rest| format!("S-{}", &rest[..2])).collect();
    let unique: BTreeSet<String> = rules.iter().cloned().collect();
    assert_eq!(unique.len(), rules.len(), "PROTOCOL.md numbers a rule twice");
    unique
}

/// Every `S-` with two digits in `text`.
fn mentions(text: &str) -> Vec<String> {
    let candidates =
        text.match_indices("S-").filter_map(|(at, _)| text.get(at + 2..at + 4).map(|digits| (at, digits)));
    let numbered = candidates.filter(|(_, digits)| digits.bytes().all(|byte| byte.is_ascii_digit()));
    numbered.map(|(_, digits)| format!("S-{digits}")).collect()
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let paths = entries.map(|entry| entry.expect("a folder entry").path());
    paths
        .flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] })
        .filter(|path| path.extension().is_some_and(|extension| extension == "rs"))
        .collect()
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}
