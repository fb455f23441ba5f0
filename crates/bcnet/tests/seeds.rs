//! Checks docs/reference/seeds.md: each item has line numbers, a verdict, a working command and an existing rule.

mod run;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use bcnet_lab::Scenario;
use bcnet_lab::scenario::BUILT_IN;

use run::ProcessOutput;

/// One item of a seed.
struct SeedItem {
    lines: (usize, usize),
    verdict: String,
    command: String,
    /// The text that the command must print.
    expected_output: Option<String>,
    rules: Vec<String>,
}

/// A seed with its items.
struct SeedDocument {
    number: String,
    /// The number of lines of the document.
    line_count: usize,
    items: Vec<SeedItem>,
}

#[test]
fn items_cover_every_line_of_their_seed() {
    let seeds = read_seeds();
    let lengths: Vec<(&str, usize)> =
        seeds.iter().map(|seed| (seed.number.as_str(), seed.line_count)).collect();
    assert_eq!(lengths, [("000", 678), ("001", 243), ("002", 141)]);
    for SeedDocument { number, line_count: length, items } in &seeds {
        let mut next = 1;
        for SeedItem { lines: (first, last), .. } in items {
            assert_eq!(*first, next, "seed {number}: an item begins where the one before ends");
            assert!(last >= first, "seed {number}, lines {first}–{last}");
            next = last + 1;
        }
        assert_eq!(next, length + 1, "seed {number} is covered to its end");
    }
    assert!(seeds.iter().map(|seed| seed.items.len()).sum::<usize>() >= 144);
}

#[test]
fn every_item_has_a_verdict_and_an_existing_rule() {
    let protocol = read("PROTOCOL.md");
    for SeedDocument { number, items, .. } in read_seeds() {
        for SeedItem { lines, verdict, command, expected_output: shows, rules } in items {
            let place = format!("seed {number}, line {}", lines.0);
            assert!(["holds", "partly", "refuted", "open"].contains(&verdict.as_str()), "{place}: {verdict}");
            // A scenario checks its expectations itself.
            let is_run = command.starts_with("bcnet lab run ");
            assert!(is_run || shows.is_some(), "{place}: `{command}` needs an expected output");
            for rule in rules {
                let exists = rule == "appendix" || protocol.contains(&format!("**{rule}**"));
                assert!(exists, "{place}: PROTOCOL.md has no {rule}");
            }
        }
    }
}

/// If a scenario tests a claim of a seed, the page names the scenario, with the same verdict.
#[test]
fn tested_claims_are_listed_with_their_verdict() {
    let seeds = read_seeds();
    for (name, text) in BUILT_IN {
        let Some(claim) = Scenario::parse(text).expect(name).claim else { continue };
        for seed in seeds.iter().filter(|seed| claim.source.contains(&format!("seed {}", seed.number))) {
            let named = |item: &&SeedItem| item.command.split(' ').any(|word| word == *name);
            let verdicts: BTreeSet<&str> =
                seed.items.iter().filter(named).map(|item| item.verdict.as_str()).collect();
            let verdict = claim.verdict.to_string();
            assert!(
                verdicts.contains(verdict.as_str()),
                "{name} says {verdict}, seed {} {verdicts:?}",
                seed.number
            );
        }
    }
}

/// Every command runs in the root directory of the repository, and every scenario meets its expectations.
#[test]
fn every_command_prints_the_expected_output() {
    let items = read_seeds().into_iter().flat_map(|seed| seed.items);
    let mut commands: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for SeedItem { command, expected_output: shows, .. } in items {
        match command.strip_prefix("bcnet lab run ").filter(|names| !names.contains("--")) {
            // Each scenario runs once, even if several items name it.
            Some(names) => {
                let each = names.split(' ').map(|name| (format!("bcnet lab run {name}"), BTreeSet::new()));
                commands.extend(each);
            }
            None => commands.entry(command).or_default().extend(shows),
        }
    }
    assert!(commands.len() > 50, "{}", commands.len());
    let mut failed = BTreeMap::new();
    for (command, shows) in commands {
        let mut words = command.split(' ');
        assert_eq!(words.next(), Some("bcnet"), "{command}");
        let output = Command::new(env!("CARGO_BIN_EXE_bcnet")).args(words).current_dir(root()).output();
        let run: ProcessOutput = output.expect("the program runs").into();
        let printed = run.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
        let absent: Vec<_> = shows.iter().filter(|text| !printed.contains(text.as_str())).collect();
        let expects_nothing = printed.contains(" 0 of 0 expectations");
        if run.code != 0 || printed.is_empty() || expects_nothing || !absent.is_empty() {
            failed.insert(command, format!("{} {absent:?} {}{}", run.code, run.stdout, run.stderr));
        }
    }
    assert!(failed.is_empty(), "{failed:#?}");
}

/// Each open question names an observation that would answer it, an assumption, and an existing scenario key or none.
#[test]
fn open_questions_name_what_would_settle_them() {
    let text = read("docs/reference/seeds.md");
    let (_, questions) = text.split_once("## Open questions").expect("open questions");
    let scenarios = read("docs/reference/scenarios.md");
    let rows: Vec<Vec<&str>> = questions.lines().filter_map(table_cells).skip(2).collect();
    assert!(rows.len() >= 8, "{}", rows.len());
    for row in rows {
        let [question, settles, assumed, key] = row[..] else { panic!("four cells: {row:?}") };
        assert!(question.ends_with('?') && settles.len() > 10 && !assumed.is_empty(), "{row:?}");
        assert!(key == "–" || scenarios.contains(&format!("| {key} |")), "{key} is no key of scenarios");
    }
}

fn read_seeds() -> Vec<SeedDocument> {
    let text = read("docs/reference/seeds.md");
    let sections = text.split("\n## ").filter(|section| section.starts_with("Seed "));
    let seed = |section: &str| {
        let head = section.lines().next().unwrap_or_default();
        let number = head.get(5..8).expect("a number").to_owned();
        let length = head.rsplit_once('(').and_then(|(_, rest)| rest.strip_suffix(" lines)")?.parse().ok());
        let items = section.lines().filter_map(table_cells).skip(2).map(|cells| parse_item(&cells)).collect();
        SeedDocument { number, line_count: length.expect("a number of lines"), items }
    };
    sections.map(seed).collect()
}

fn parse_item(cells: &[&str]) -> SeedItem {
    let [lines, _, verdict, command, rules] = cells[..] else { panic!("five cells: {cells:?}") };
    let (first, last) = lines.split_once('–').unwrap_or((lines, lines));
    let mut quoted = command.split('`').skip(1).step_by(2).map(str::to_owned);
    SeedItem {
        lines: (first.parse().expect("a line"), last.parse().expect("a line")),
        verdict: verdict.into(),
        command: quoted.next().expect("a command"),
        expected_output: quoted.next(),
        rules: rules.split(", ").map(str::to_owned).collect(),
    }
}

/// Returns the cells of a row of a table.
fn table_cells(line: &str) -> Option<Vec<&str>> {
    let row = line.strip_prefix("| ").or_else(|| line.strip_prefix('|'))?;
    Some(row.strip_suffix('|')?.split('|').map(str::trim).collect())
}

fn read(name: &str) -> String {
    fs::read_to_string(root().join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}
