//! Test that every rule of PROTOCOL.md is cited by a test, and that every citation names a rule.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// The prefixes of the rules of transport, session and decisions, with the minimum number of rules of each.
const RULE_PREFIXES: [(&str, usize); 3] = [("T-", 30), ("S-", 40), ("R-", 16)];

#[test]
fn every_rule_is_cited_by_a_test() {
    let rules = rules();
    for (kind, least) in RULE_PREFIXES {
        let count = rules.iter().filter(|rule| rule.starts_with(kind)).count();
        assert!(count >= least, "PROTOCOL.md has only {count} rules {kind}");
    }
    let cited: BTreeSet<String> = sources().iter().flat_map(|source| cited_by_tests(source)).collect();
    let missing: Vec<_> = rules.difference(&cited).collect();
    assert!(missing.is_empty(), "no test cites {missing:?} in its name or doc comment");
}

#[test]
fn every_citation_is_a_rule() {
    let rules = rules();
    for path in ["crates", "fuzz/fuzz_targets"].iter().flat_map(|folder| rust_files(&root().join(folder))) {
        let source = fs::read_to_string(&path).expect("a source file");
        for rule in cited_rules(&source) {
            assert!(
                rules.contains(&rule),
                "{} cites {rule}, which PROTOCOL.md does not have",
                path.display()
            );
        }
    }
}

/// Returns the rules that the doc comments and the names of tests cite.
fn cited_by_tests(source: &str) -> Vec<String> {
    let lines: Vec<&str> = source.lines().map(str::trim).collect();
    let mut cited = Vec::new();
    for (at, _) in lines.iter().enumerate().filter(|(_, line)| **line == "#[test]") {
        let above =
            lines[..at].iter().rev().take_while(|line| line.starts_with("///") || line.starts_with("#["));
        let name = lines[at..].iter().find(|line| line.starts_with("fn "));
        cited
            .extend(above.chain(name).flat_map(|line| cited_rules(&line.to_uppercase().replace("T_", "T-"))));
    }
    cited
}

/// Returns the rules of PROTOCOL.md: the lines that begin with `**T-nn`, `**S-nn` or `**R-nn`.
fn rules() -> BTreeSet<String> {
    let text = fs::read_to_string(root().join("PROTOCOL.md")).expect("PROTOCOL.md");
    let bold = text.lines().filter_map(|line| line.strip_prefix("**"));
    let defined = bold.filter(|rest| RULE_PREFIXES.iter().any(|(kind, _)| rest.starts_with(kind)));
    let rules: Vec<String> = defined.map(|rest| rest[..4].into()).collect();
    let unique: BTreeSet<String> = rules.iter().cloned().collect();
    assert_eq!(unique.len(), rules.len(), "PROTOCOL.md numbers a rule twice");
    unique
}

/// Returns every `T-`, `S-` or `R-` with two digits in `text`.
fn cited_rules(text: &str) -> Vec<String> {
    let places = RULE_PREFIXES.iter().flat_map(|(kind, _)| text.match_indices(kind));
    let candidates = places.filter_map(|(at, _)| text.get(at..at + 4));
    let numbered = candidates.filter(|rule| rule[2..].bytes().all(|byte| byte.is_ascii_digit()));
    numbered.map(Into::into).collect()
}

fn sources() -> Vec<String> {
    rust_files(&root().join("crates"))
        .iter()
        .map(|path| fs::read_to_string(path).expect("a source file"))
        .collect()
}

fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let paths = entries.map(|entry| entry.expect("a folder entry").path());
    paths
        .flat_map(|path| if path.is_dir() { rust_files(&path) } else { vec![path] })
        .filter(|path| path.extension().is_some_and(|extension| extension == "rs"))
        .collect()
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}
