//! Whatever slips a file has, they are told, and nothing breaks.

use std::path::Path;

use bcnet_lab::Rng;
use bcnet_session::Manifest;

use super::load::from_text;
use super::sample::sample;

#[test]
fn any_slip_in_a_configuration_is_told_with_its_line() {
    let sample = sample();
    let keys: Vec<&str> = sample.lines().filter(|line| !line.starts_with('#')).collect();
    let mut told = 0;
    for seed in 0..SEEDS {
        let text = spoilt(&keys.join("\n"), seed);
        let mut problems = Vec::new();
        let loaded = from_text(Path::new("bcnet.toml"), &text, &mut problems);
        loaded.check(&mut problems);
        for problem in &problems {
            let line = problem.line.unwrap_or(1);
            assert!((1..=text.lines().count() + 1).contains(&line), "seed {seed}: {problem}");
            assert!(
                !problem.text.is_empty() && !problem.to_string().contains('\0'),
                "seed {seed}: {problem:?}"
            );
        }
        told += usize::from(!problems.is_empty());
    }
    assert!(told > 500, "{told} have slips");
}

#[test]
fn any_slip_in_a_manifest_is_told_with_its_line() {
    let manifest = Manifest::stand_in().to_string();
    assert!(Manifest::parse(&manifest).is_ok());
    let mut told = 0;
    for seed in 0..SEEDS {
        let text = spoilt(&manifest, seed);
        if let Err(error) = Manifest::parse(&text) {
            assert!((1..=text.lines().count() + 1).contains(&error.line), "seed {seed}: {error}");
            told += 1;
        }
    }
    assert!(told > 500, "{told} have slips");
}

/// Returns a text with some letters changed, left out, repeated or added.
pub(crate) fn spoilt(text: &str, seed: u64) -> String {
    let mut random = Rng::new(seed);
    let mut letters: Vec<char> = text.chars().collect();
    for _ in 0..=random.below(6) {
        let at = random.size(letters.len() + 1);
        let end = (at + random.size(40)).min(letters.len());
        match random.below(5) {
            0 => letters.truncate(at),
            1 => drop(letters.drain(at..end)),
            2 => letters.extend_from_within(at..end),
            3 => drop(letters.splice(at..at, vec!['['; random.size(200)])),
            _ => letters.insert(at, LETTERS[random.size(LETTERS.len())]),
        }
    }
    letters.into_iter().collect()
}

const SEEDS: u64 = 1000;
/// What forms have a meaning for, and what they have none for.
const LETTERS: [char; 20] = [
    '"', '\'', '[', ']', '{', '}', '=', '.', ',', '#', '-', '+', '9', 'e', '\\', '\n', '\r', '\0',
    '\u{202E}', 'é',
];
