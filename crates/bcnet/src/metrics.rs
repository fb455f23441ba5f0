//! Metrics for Prometheus.
//!
//! The threads that run games own the counters and copy them on request. So each answer fills a new registry,
//! and threads share nothing while they handle datagrams.

use std::fmt;
use std::time::Duration;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;

use crate::histogram::Histogram;
use crate::usage::ResourceUsage;

/// The labels of a metric. They must have few different values.
pub(crate) type Labels = Vec<(&'static str, String)>;

/// A page of metrics with a common prefix of their names.
#[derive(Debug)]
pub(crate) struct MetricsPage {
    registry: Registry,
    prefix: &'static str,
}

impl MetricsPage {
    pub(crate) fn new(prefix: &'static str) -> Self {
        let mut page = Self { registry: Registry::default(), prefix };
        let version = vec![("version", env!("CARGO_PKG_VERSION").to_owned())];
        page.gauge("build_info", "The running build, in its labels", [(version, 1_u64)]);
        page
    }

    /// Adds a counter. The suffix `_total` is added to its name.
    pub(crate) fn counter(
        &mut self,
        name: &str,
        help: &str,
        values: impl IntoIterator<Item = (Labels, u64)>,
    ) {
        let name = format!("{}_{name}_total", self.prefix);
        self.add_family(name, help, MetricType::Counter, values);
    }

    /// Adds a gauge.
    pub(crate) fn gauge<V: Into<MetricValue>>(
        &mut self,
        name: &str,
        help: &str,
        values: impl IntoIterator<Item = (Labels, V)>,
    ) {
        self.add_family(format!("{}_{name}", self.prefix), help, MetricType::Gauge, values);
    }

    /// Adds a histogram of durations. The suffix `_seconds` is added to its name.
    pub(crate) fn histogram<const BITS: u32>(
        &mut self,
        name: &str,
        help: &str,
        values: impl IntoIterator<Item = (Labels, Histogram<BITS>)>,
    ) {
        let name = format!("{}_{name}_seconds", self.prefix);
        let values =
            values.into_iter().map(|(labels, times)| (labels, HistogramBuckets::from_histogram(&times)));
        self.add_family(name, help, MetricType::Histogram, values);
    }

    fn add_family<V: Into<MetricValue>>(
        &mut self,
        name: String,
        help: &str,
        kind: MetricType,
        values: impl IntoIterator<Item = (Labels, V)>,
    ) {
        let values = values.into_iter().map(|(labels, value)| (labels, value.into())).collect();
        self.registry.register_collector(Box::new(MetricFamily {
            name,
            help: format!("{help}."),
            kind,
            values,
        }));
    }

    /// Returns the page as text, with processor time and memory of the process.
    pub(crate) fn finish(mut self) -> String {
        let ResourceUsage { cpu_time: processor, memory_bytes: memory } = ResourceUsage::now();
        let seconds = processor.map(|time| (Labels::new(), time.as_secs_f64()));
        let bytes = memory.map(|bytes| (Labels::new(), bytes));
        // These names are the convention for all programs.
        let [cpu, resident] = ["process_cpu_seconds_total", "process_resident_memory_bytes"];
        self.add_family(cpu.into(), "Processor time used by the process", MetricType::Counter, seconds);
        self.add_family(resident.into(), "Resident memory of the process", MetricType::Gauge, bytes);
        let mut page = String::new();
        // Writing to a string cannot fail.
        let _ = text::encode_registry(&mut page, &self.registry);
        page
    }
}

/// All metrics of one name.
#[derive(Debug)]
struct MetricFamily {
    name: String,
    help: String,
    kind: MetricType,
    values: Vec<(Labels, MetricValue)>,
}

impl Collector for MetricFamily {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut family = encoder.encode_descriptor(&self.name, &self.help, None, self.kind)?;
        for (labels, value) in &self.values {
            if labels.is_empty() {
                value.encode(&mut family)?;
            } else {
                value.encode(&mut family.encode_family(labels)?)?;
            }
        }
        Ok(())
    }
}

/// The value of one metric.
#[derive(Debug)]
pub(crate) enum MetricValue {
    Integer(u64),
    Float(f64),
    Histogram(HistogramBuckets),
}

impl MetricValue {
    /// Encodes a counter like a gauge, because its name already has the `_total`.
    ///
    /// `promtool` expects the same name in the lines HELP and TYPE. OpenMetrics would leave out the suffix
    /// there.
    fn encode(&self, encoder: &mut MetricEncoder<'_>) -> fmt::Result {
        match self {
            Self::Integer(value) => encoder.encode_gauge(value),
            Self::Float(value) => encoder.encode_gauge(value),
            Self::Histogram(times) => {
                encoder.encode_histogram::<Labels>(times.sum.as_secs_f64(), times.count, &times.buckets, None)
            }
        }
    }
}

impl From<u64> for MetricValue {
    fn from(value: u64) -> Self {
        Self::Integer(value)
    }
}

impl From<usize> for MetricValue {
    fn from(value: usize) -> Self {
        Self::Integer(value as u64)
    }
}

impl From<bool> for MetricValue {
    fn from(value: bool) -> Self {
        Self::Integer(value.into())
    }
}

impl From<f64> for MetricValue {
    fn from(value: f64) -> Self {
        Self::Float(value)
    }
}

impl From<HistogramBuckets> for MetricValue {
    fn from(times: HistogramBuckets) -> Self {
        Self::Histogram(times)
    }
}

/// Counts of durations in buckets.
#[derive(Debug)]
pub(crate) struct HistogramBuckets {
    sum: Duration,
    count: u64,
    /// For each bucket: its upper bound in seconds, and the count of durations above the previous bound.
    buckets: Vec<(f64, u64)>,
}

impl HistogramBuckets {
    fn from_histogram<const BITS: u32>(times: &Histogram<BITS>) -> Self {
        let bounds = BUCKET_BOUNDS.map(|bound| (bound.as_secs_f64(), times.count_up_to(bound)));
        let all = bounds.into_iter().chain([(f64::INFINITY, times.count())]);
        let mut before = 0;
        let buckets = all.map(|(bound, count)| (bound, count - std::mem::replace(&mut before, count)));
        Self { sum: times.sum(), count: times.count(), buckets: buckets.collect() }
    }
}

/// The upper bounds of the buckets.
const BUCKET_BOUNDS: [Duration; 10] = [
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_are_listed_under_the_name_in_their_help_line() {
        let mut page = MetricsPage::new("bcnet");
        page.counter("queries", "Questions", [(vec![("from", "a\"\\\nb".to_owned())], 3)]);
        page.gauge("round", "The round", [(Labels::new(), 0.5)]);
        let mut times = Histogram::<3>::default();
        times.add(Duration::from_micros(1_500), 2);
        times.add(Duration::from_secs(60), 1);
        page.histogram("delay", "Delays", [(vec![("port", "1".to_owned())], times)]);
        let text = page.finish();
        let expected = [
            "# HELP bcnet_queries_total Questions.\n# TYPE bcnet_queries_total counter\n",
            "\nbcnet_queries_total{from=\"a\\\"\\\\\\nb\"} 3\n",
            "\nbcnet_round 0.5\n",
            "\nbcnet_delay_seconds_bucket{le=\"0.001\",port=\"1\"} 0\n",
            "\nbcnet_delay_seconds_bucket{le=\"0.0025\",port=\"1\"} 2\n",
            "\nbcnet_delay_seconds_bucket{le=\"0.25\",port=\"1\"} 2\n",
            "\nbcnet_delay_seconds_bucket{le=\"+Inf\",port=\"1\"} 3\n",
            "\nbcnet_delay_seconds_sum{port=\"1\"} 60.003\nbcnet_delay_seconds_count{port=\"1\"} 3\n",
        ];
        for part in expected {
            assert!(text.contains(part), "{part} in {text}");
        }
    }
}
