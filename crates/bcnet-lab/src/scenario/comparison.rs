//! A comparison file: the scenarios to run, and the keys that each variant changes.

use serde::Deserialize;
use toml::{Spanned, Table};

use super::change::Change;
use super::checker::{line_number, parse_error};
use super::{BUILT_IN, Scenario, ScenarioError};

/// A comparison that was parsed and checked.
#[derive(Debug, Clone)]
pub struct Comparison {
    /// Subject of the comparison, in one line.
    pub title: String,
    /// Longer description.
    pub about: String,
    /// Names of the built-in scenarios to run.
    pub scenarios: Vec<String>,
    /// The variants. The first variant is the baseline of all others.
    pub variants: Vec<Variant>,
}

/// One variant of a scenario.
#[derive(Debug, Clone)]
pub struct Variant {
    /// Name of the variant in tables.
    pub name: String,
    /// Changes that the variant makes to each scenario.
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
    /// Parses a comparison.
    ///
    /// # Errors
    /// Returns the first [`ScenarioError`].
    pub fn parse(text: &str) -> Result<Self, ScenarioError> {
        let file: ComparisonFile = toml::from_str(text).map_err(|error| parse_error(text, &error))?;
        let mut scenarios = Vec::new();
        for name in &file.scenarios {
            let known = BUILT_IN.iter().find(|(known, _)| known == name.get_ref());
            let (_, scenario) = known.ok_or_else(|| ScenarioError {
                line: line_number(text, &name.span()),
                message: format!(
                    "unknown built-in scenario `{}`; `bcnet lab list` shows all",
                    name.get_ref()
                ),
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
            let what = "a comparison needs at least one scenario and one [[variant]] table";
            return Err(ScenarioError { line: 1, message: what.into() });
        }
        let scenarios = scenarios.into_iter().map(|(name, _)| name).collect();
        Ok(Self { title: file.title, about: file.about, scenarios, variants })
    }
}
