//! Figures in the text format of Prometheus.

use std::fmt::{Display, Write as _};
use std::time::Duration;

use crate::histogram::Histogram;

/// A page of figures, all with the same word before their names.
pub(crate) struct Page {
    text: String,
    prefix: &'static str,
}

impl Page {
    pub(crate) fn new(prefix: &'static str) -> Self {
        let mut page = Self { text: String::new(), prefix };
        let version = format!("version=\"{}\"", env!("CARGO_PKG_VERSION"));
        page.gauge("build_info", "What runs, in its labels", [(version, 1)]);
        page
    }

    /// What only grows. Its name ends in `_total`, which is added.
    pub(crate) fn counter<L: AsRef<str>>(
        &mut self,
        name: &str,
        help: &str,
        values: impl IntoIterator<Item = (L, u64)>,
    ) {
        self.family(&format!("{name}_total"), "counter", help, values);
    }

    /// What may grow and shrink.
    pub(crate) fn gauge<L: AsRef<str>, V: Display>(
        &mut self,
        name: &str,
        help: &str,
        values: impl IntoIterator<Item = (L, V)>,
    ) {
        self.family(name, "gauge", help, values);
    }

    /// How long things took. Its name ends in `_seconds`, which is added.
    pub(crate) fn times<const BITS: u32>(
        &mut self,
        name: &str,
        help: &str,
        values: impl IntoIterator<Item = (String, Histogram<BITS>)>,
    ) {
        let name = format!("{}_{name}_seconds", self.prefix);
        let _ = writeln!(self.text, "# HELP {name} {help}.\n# TYPE {name} histogram");
        for (labels, times) in values {
            for bound in BOUNDS {
                let (count, seconds) = (times.count_up_to(bound), bound.as_secs_f64());
                let _ = writeln!(self.text, "{name}_bucket{{{labels},le=\"{seconds}\"}} {count}");
            }
            let (count, sum) = (times.count(), times.sum().as_secs_f64());
            let _ = writeln!(self.text, "{name}_bucket{{{labels},le=\"+Inf\"}} {count}");
            let _ = writeln!(self.text, "{name}_sum{{{labels}}} {sum}\n{name}_count{{{labels}}} {count}");
        }
    }

    fn family<L: AsRef<str>, V: Display>(
        &mut self,
        name: &str,
        kind: &str,
        help: &str,
        values: impl IntoIterator<Item = (L, V)>,
    ) {
        let prefix = self.prefix;
        let _ = writeln!(self.text, "# HELP {prefix}_{name} {help}.\n# TYPE {prefix}_{name} {kind}");
        for (labels, value) in values {
            let _ = match labels.as_ref() {
                "" => writeln!(self.text, "{prefix}_{name} {value}"),
                labels => writeln!(self.text, "{prefix}_{name}{{{labels}}} {value}"),
            };
        }
    }

    pub(crate) fn finish(self) -> String {
        self.text
    }
}

/// What is told apart of times.
const BOUNDS: [Duration; 10] = [
    Duration::from_micros(250),
    Duration::from_micros(500),
    Duration::from_millis(1),
    Duration::from_micros(2_500),
    Duration::from_millis(5),
    Duration::from_millis(10),
    Duration::from_millis(25),
    Duration::from_millis(50),
    Duration::from_millis(100),
    Duration::from_millis(250),
];
