//! Random damage to a configuration file or a manifest is reported with its line and never panics.

use std::path::Path;

use bcnet_lab::Rng;
use bcnet_session::Manifest;

use super::load::load_text;
use super::render::default_file;

#[test]
fn corrupted_configuration_is_reported_with_its_line() {
    let sample = default_file();
    let keys: Vec<&str> = sample.lines().filter(|line| !line.starts_with('#')).collect();
    let mut reported = 0;
    for seed in 0..SEEDS {
        let text = corrupt_text(&keys.join("\n"), seed);
        let mut problems = Vec::new();
        let loaded = load_text(Path::new("bcnet.toml"), &text, &mut problems);
        loaded.check(&mut problems);
        for problem in &problems {
            let line = problem.line.unwrap_or(1);
            assert!((1..=text.lines().count() + 1).contains(&line), "seed {seed}: {problem}");
            assert!(
                !problem.text.is_empty() && !problem.to_string().contains('\0'),
                "seed {seed}: {problem:?}"
            );
        }
        reported += usize::from(!problems.is_empty());
    }
    assert!(reported > 500, "only {reported} damaged texts were reported");
}

#[test]
fn corrupted_manifest_is_reported_with_its_line() {
    let manifest = Manifest::placeholder().to_string();
    assert!(Manifest::parse(&manifest).is_ok());
    let mut reported = 0;
    for seed in 0..SEEDS {
        let text = corrupt_text(&manifest, seed);
        if let Err(error) = Manifest::parse(&text) {
            assert!((1..=text.lines().count() + 1).contains(&error.line), "seed {seed}: {error}");
            reported += 1;
        }
    }
    assert!(reported > 500, "only {reported} damaged texts were reported");
}

/// Returns a text with some characters changed, removed, repeated or added.
pub(crate) fn corrupt_text(text: &str, seed: u64) -> String {
    let mut random = Rng::new(seed);
    let mut letters: Vec<char> = text.chars().collect();
    for _ in 0..=random.below(6) {
        let at = random.index(letters.len() + 1);
        let end = (at + random.index(40)).min(letters.len());
        match random.below(5) {
            0 => letters.truncate(at),
            1 => drop(letters.drain(at..end)),
            2 => letters.extend_from_within(at..end),
            3 => drop(letters.splice(at..at, vec!['['; random.index(200)])),
            _ => letters.insert(at, INSERTED_CHARS[random.index(INSERTED_CHARS.len())]),
        }
    }
    letters.into_iter().collect()
}

const SEEDS: u64 = 1000;
/// Characters with and without a meaning in TOML.
const INSERTED_CHARS: [char; 20] = [
    '"', '\'', '[', ']', '{', '}', '=', '.', ',', '#', '-', '+', '9', 'e', '\\', '\n', '\r', '\0',
    '\u{202E}', 'é',
];
