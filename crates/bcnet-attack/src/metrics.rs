//! Results of attacks: metrics with and without the attack, and their limits.

use std::fmt;

use serde_json::{Value, json};

/// The result of one attack: its metrics, or the reason why it was skipped.
#[derive(Debug)]
pub(crate) struct AttackResult {
    pub(crate) attack: &'static str,
    pub(crate) result: Result<Vec<AttackMetric>, AttackSkipped>,
}

/// The reason why an attack was skipped.
#[derive(Debug)]
pub(crate) struct AttackSkipped(pub(crate) String);

/// A value that was measured during an attack, with its limit.
#[derive(Debug, Clone)]
pub(crate) struct AttackMetric {
    name: String,
    unit: MetricUnit,
    /// The value without the attack, if it was measured.
    baseline: Option<f64>,
    /// The value during the attack.
    attacked: f64,
    threshold: Option<Threshold>,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum MetricUnit {
    Count,
    Millis,
    Seconds,
    /// A share of 1, shown in percent.
    Share,
    /// A ratio, shown as `× 2.50`.
    Times,
    Bytes,
}

/// The limit of a metric.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Threshold {
    AtMost(f64),
    AtLeast(f64),
}

impl AttackMetric {
    pub(crate) fn new(name: impl Into<String>, unit: MetricUnit, with: f64) -> Self {
        Self { name: name.into(), unit, baseline: None, attacked: with, threshold: None }
    }

    pub(crate) fn baseline(self, without: f64) -> Self {
        Self { baseline: Some(without), ..self }
    }

    pub(crate) fn at_most(self, most: f64) -> Self {
        Self { threshold: Some(Threshold::AtMost(most)), ..self }
    }

    pub(crate) fn at_least(self, least: f64) -> Self {
        Self { threshold: Some(Threshold::AtLeast(least)), ..self }
    }

    pub(crate) fn is_named(&self, name: &str) -> bool {
        self.name == name
    }

    /// Returns whether the value is within its limit; `None` if it has none.
    pub(crate) fn holds(&self) -> Option<bool> {
        self.threshold.map(|threshold| match threshold {
            Threshold::AtMost(most) => self.attacked <= most,
            Threshold::AtLeast(least) => self.attacked >= least,
        })
    }

    fn json(&self) -> Value {
        let (at_most, at_least) = match self.threshold {
            Some(Threshold::AtMost(most)) => (Some(most), None),
            Some(Threshold::AtLeast(least)) => (None, Some(least)),
            None => (None, None),
        };
        json!({
            "name": self.name,
            "unit": self.unit.name(),
            "without": self.baseline,
            "with": self.attacked,
            "at_most": at_most,
            "at_least": at_least,
            "holds": self.holds(),
        })
    }
}

impl MetricUnit {
    const fn name(self) -> &'static str {
        match self {
            Self::Count => "count",
            Self::Millis => "ms",
            Self::Seconds => "s",
            Self::Share => "share",
            Self::Times => "times",
            Self::Bytes => "bytes",
        }
    }

    fn format(self, value: f64) -> String {
        match self {
            Self::Count | Self::Bytes => format!("{value:.0}"),
            Self::Millis => format!("{value:.1} ms"),
            Self::Seconds => format!("{value:.1} s"),
            Self::Share => format!("{:.1} %", 100.0 * value),
            Self::Times => format!("× {value:.2}"),
        }
    }
}

impl AttackResult {
    /// Returns whether any metric is outside its limit.
    pub(crate) fn is_broken(&self) -> bool {
        self.result.iter().flatten().any(|metric| metric.holds() == Some(false))
    }

    pub(crate) fn json(&self) -> Value {
        match &self.result {
            Ok(metrics) => {
                let metrics: Vec<Value> = metrics.iter().map(AttackMetric::json).collect();
                json!({ "attack": self.attack, "holds": !self.is_broken(), "metrics": metrics })
            }
            Err(AttackSkipped(why)) => json!({ "attack": self.attack, "skipped": why }),
        }
    }
}

impl fmt::Display for AttackResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let metrics = match &self.result {
            Ok(metrics) => metrics,
            Err(AttackSkipped(why)) => return writeln!(f, "{}: skipped: {why}", self.attack),
        };
        writeln!(
            f,
            "{}: {}",
            self.attack,
            if self.is_broken() { "LIMIT EXCEEDED" } else { "within limits" }
        )?;
        writeln!(f, "  {:<44} {:>12} {:>12} {:>14}", "", "without", "with", "limit")?;
        for AttackMetric { name, unit, baseline: without, attacked: with, threshold } in metrics {
            let without = without.map_or_else(String::new, |value| unit.format(value));
            let limit = match threshold {
                Some(Threshold::AtMost(most)) => format!("≤ {}", unit.format(*most)),
                Some(Threshold::AtLeast(least)) => format!("≥ {}", unit.format(*least)),
                None => String::new(),
            };
            write!(f, "  {name:<44} {without:>12} {:>12} {limit:>14}", unit.format(*with))?;
            f.write_str("\n")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threshold_is_broken_only_beyond_its_value() {
        let metric = |with| AttackMetric::new("lost", MetricUnit::Count, with).baseline(0.0);
        assert_eq!(metric(3.0).holds(), None);
        assert_eq!(
            [metric(3.0).at_most(3.0).holds(), metric(3.0).at_most(2.9).holds()],
            [Some(true), Some(false)]
        );
        assert_eq!(
            [metric(3.0).at_least(3.0).holds(), metric(3.0).at_least(3.1).holds()],
            [Some(true), Some(false)]
        );
        let broken = AttackResult { attack: "x", result: Ok(vec![metric(1.0), metric(1.0).at_most(0.0)]) };
        assert!(broken.is_broken() && broken.to_string().contains("LIMIT EXCEEDED"));
        let skipped = AttackResult { attack: "x", result: Err(AttackSkipped("no rights".into())) };
        assert!(!skipped.is_broken() && skipped.to_string() == "x: skipped: no rights\n");
    }
}
