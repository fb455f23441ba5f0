//! Variants of scenarios side by side, as a file: which scenarios, and what is changed in each variant.

use serde::Deserialize;
use toml::{Spanned, Table};

use super::change::Change;
use super::checker::{line_number, parse_error};
use super::{BUILT_IN, Scenario, ScenarioError};

/// A comparison that was read and checked.
#[derive(Debug, Clone)]
pub struct Comparison {
    /// What it shows, in one line.
    pub title: String,
    /// More about it.
    pub about: String,
    /// The built-in scenarios that it runs.
    pub scenarios: Vec<String>,
    /// The variants; all others are held against the first.
    pub variants: Vec<Variant>,
}

/// One variant of a scenario.
#[derive(Debug, Clone)]
pub struct Variant {
    /// Its name, for tables.
    pub name: String,
    /// What is changed.
    pub changes: Vec<Change>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ComparisonFile {
    title: String,
    #[serde(default)]
    about: String,
    scenarios: Vec<Spanned<String>>,
    variant: Vec<Spanned<VariantTable>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct VariantTable {
    name: String,
    #[serde(default)]
    set: Table,
}

impl Comparison {
    /// Reads a comparison.
    ///
    /// # Errors
    /// The first [`ScenarioError`] in it.
    pub fn parse(text: &str) -> Result<Self, ScenarioError> {
        let file: ComparisonFile = toml::from_str(text).map_err(|error| parse_error(text, &error))?;
        let mut scenarios = Vec::new();
        for name in &file.scenarios {
            let known = BUILT_IN.iter().find(|(known, _)| known == name.get_ref());
            let (_, scenario) = known.ok_or_else(|| ScenarioError {
                line: line_number(text, &name.span()),
                message: format!("no built-in scenario is called `{}`", name.get_ref()),
            })?;
            scenarios.push((name.get_ref().clone(), *scenario));
        }
        let mut variants = Vec::new();
        for variant in &file.variant {
            let VariantTable { name, set } = variant.get_ref();
            let changes: Vec<Change> =
                set.iter().map(|(key, value)| Change::with_value(key, value.clone())).collect();
            for (_, scenario) in &scenarios {
                Scenario::parse_changed(scenario, &changes).map_err(|mistake| ScenarioError {
                    line: line_number(text, &variant.span()),
                    message: mistake.message,
                })?;
            }
            variants.push(Variant { name: name.clone(), changes });
        }
        if scenarios.is_empty() || variants.is_empty() {
            let what = "a comparison has at least one scenario and one [[variant]]";
            return Err(ScenarioError { line: 1, message: what.into() });
        }
        let scenarios = scenarios.into_iter().map(|(name, _)| name).collect();
        Ok(Self { title: file.title, about: file.about, scenarios, variants })
    }
}
