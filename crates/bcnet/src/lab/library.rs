//! Loads scenarios and comparisons from files, or from those built in.

use std::borrow::Cow;
use std::fs;
use std::path::Path;

use anyhow::{Context, anyhow, bail};
use bcnet_control::did_you_mean;
use bcnet_lab::Scenario;
use bcnet_lab::scenario::{BUILT_IN, BUILT_IN_COMPARISONS, Change, Comparison};

/// A scenario with its name.
pub(super) struct NamedScenario {
    /// Name of the file without its extension.
    pub(super) name: String,
    /// Path of the file, for messages.
    pub(super) path: String,
    pub(super) scenario: Scenario,
}

/// The text of a scenario.
pub(super) struct ScenarioSource {
    pub(super) name: String,
    path: String,
    text: Cow<'static, str>,
}

impl ScenarioSource {
    /// Parses the scenario with some keys changed.
    pub(super) fn scenario(&self, changes: &[Change]) -> anyhow::Result<Scenario> {
        let Self { path, text, .. } = self;
        Scenario::parse_changed(text, changes).map_err(|error| match error.line {
            0 => anyhow!("{path}: {}", error.message),
            line => anyhow!("{path}:{line}: {}", error.message),
        })
    }
}

/// Loads a scenario from a file, or the built-in one if the file does not exist.
pub(super) fn load(name: &str) -> anyhow::Result<NamedScenario> {
    let source = load_source(name)?;
    let scenario = source.scenario(&[])?;
    Ok(NamedScenario { name: source.name, path: source.path, scenario })
}

/// Loads the text of a scenario from a file, or of the built-in one if the file does not exist.
pub(super) fn load_source(name: &str) -> anyhow::Result<ScenarioSource> {
    let path = Path::new(name);
    if path.is_file() {
        return Ok(ScenarioSource {
            name: file_stem(path),
            path: name.into(),
            text: read_file(path)?.into(),
        });
    }
    match BUILT_IN.iter().find(|(known, _)| *known == name) {
        Some((known, text)) => {
            let path = format!("scenarios/{known}.toml");
            Ok(ScenarioSource { name: (*known).into(), path, text: (*text).into() })
        }
        None => {
            let known = BUILT_IN.iter().chain(BUILT_IN_COMPARISONS).map(|(known, _)| *known);
            let near = did_you_mean(name, known);
            bail!("{name}: no such file and no such built-in scenario; `bcnet lab list` shows all{near}")
        }
    }
}

/// Loads a comparison from a file, or the built-in one with this name. Returns `None` if there is none.
pub(super) fn load_comparison(name: &str) -> anyhow::Result<Option<Comparison>> {
    let path = Path::new(name);
    let text: Cow<'_, str> = match BUILT_IN_COMPARISONS.iter().find(|(known, _)| *known == name) {
        Some((_, text)) if !path.is_file() => (*text).into(),
        _ if path.is_file() => read_file(path)?.into(),
        _ => return Ok(None),
    };
    // A file with a [[variant]] table is a comparison: its errors are reported as such.
    if !text.lines().any(|line| line.trim() == "[[variant]]") {
        return Ok(None);
    }
    let comparison = Comparison::parse(&text);
    comparison.map(Some).map_err(|error| anyhow!("{name}:{}: {}", error.line, error.message))
}

/// Loads all scenarios in ./scenarios, or the built-in ones if the directory does not exist.
pub(super) fn load_all() -> anyhow::Result<Vec<NamedScenario>> {
    let Ok(directory) = fs::read_dir("scenarios") else { return load_built_in() };
    let mut paths = Vec::new();
    for file in directory {
        let path = file.context("scenarios")?.path();
        if path.extension().is_some_and(|ending| ending == "toml") {
            paths.push(path);
        }
    }
    // Sorts by name: with the extension, "battle-day" would come before "battle".
    paths.sort_by_key(|path| file_stem(path));
    paths
        .iter()
        .map(|path| parse_scenario(file_stem(path), path.display().to_string(), &read_file(path)?))
        .collect()
}

/// Returns whether a built-in scenario has this name.
pub(super) fn is_built_in(name: &str) -> bool {
    BUILT_IN.iter().any(|(known, _)| *known == name)
}

/// Loads the built-in scenarios.
fn load_built_in() -> anyhow::Result<Vec<NamedScenario>> {
    let parsed = BUILT_IN
        .iter()
        .map(|(name, text)| parse_scenario((*name).into(), format!("scenarios/{name}.toml"), text));
    parsed.collect()
}

fn parse_scenario(name: String, path: String, text: &str) -> anyhow::Result<NamedScenario> {
    let scenario =
        Scenario::parse(text).map_err(|error| anyhow!("{path}:{}: {}", error.line, error.message))?;
    Ok(NamedScenario { name, path, scenario })
}

fn read_file(path: &Path) -> anyhow::Result<String> {
    let name = || path.display().to_string();
    let size = fs::metadata(path).with_context(name)?.len();
    if size > MAX_BYTES {
        bail!("{}: the file has {size} bytes; a scenario can have at most {MAX_BYTES}", name());
    }
    fs::read_to_string(path).with_context(name)
}

fn file_stem(path: &Path) -> String {
    path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default()
}

/// Maximum size of a scenario file: one megabyte.
const MAX_BYTES: u64 = 1 << 20;
