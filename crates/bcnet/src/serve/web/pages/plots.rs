//! Draws the last hour as small SVG plots, on the server, so that they need no script.

use std::fmt::Write as _;

use bcnet_control::{Request, RequestError};
use maud::{Markup, PreEscaped, html};

use super::format::{NO_VALUE, bytes};
use crate::plots::{PLOTS, Plot, PlotValue, Unit};
use crate::serve::web::site::{RequestContext, Site};
use crate::serve::web::snapshot::query;
use crate::server_info::{SampleList, ServerSample, parse};

/// Returns the plots of the server or of one session.
///
/// Returns nothing for an update of a page that already shows the latest sample.
pub(super) fn section(site: &Site, port: Option<u16>, context: &RequestContext) -> Markup {
    let answer = query(&site.plane, port, Request::Samples { since: None });
    let SampleList { samples, .. } =
        answer.and_then(|answer| parse(answer).map_err(RequestError)).unwrap_or_default();
    let latest = samples.last().map_or(0, |sample| sample.time);
    if context.is_live_update && context.plots_until == Some(latest) {
        return html! {};
    }
    html! {
        section id="plots" data-live="" aria-label="The last hour" {
            div.plots data-until=(latest) {
                @if samples.is_empty() { p { "The plots start in a few seconds." } }
                @for plot in &PLOTS { (draw_plot(plot, &samples)) }
            }
        }
    }
}

fn format_value(unit: Unit, value: f64) -> String {
    match unit {
        Unit::Number => format_number(value),
        Unit::Millis => format_millis(value),
        Unit::Percent => format!("{value:.1} %"),
        Unit::Bytes | Unit::Memory => bytes(value as u64),
    }
}

fn format_number(value: f64) -> String {
    if value < 10.0 && value.fract() != 0.0 { format!("{value:.1}") } else { format!("{value:.0}") }
}

fn format_millis(value: f64) -> String {
    if value < 10.0 { format!("{value:.2} ms") } else { format!("{value:.0} ms") }
}

fn draw_plot(plot: &Plot, samples: &[ServerSample]) -> Markup {
    let all = || plot.series.iter().flat_map(|(_, value)| samples.iter().filter_map(value));
    let Some(most) = all().max_by(f64::total_cmp) else {
        // Sessions have no memory values.
        return html! {};
    };
    let span = PlotSpan::covering(samples);
    let now = plot.series.iter().map(|(name, value)| {
        let last = samples.last().and_then(value);
        let last = last.map_or_else(|| NO_VALUE.into(), |last| format_value(plot.unit, last));
        if name.is_empty() { last } else { format!("{name} {last}") }
    });
    let now = now.collect::<Vec<_>>().join(", ");
    let highest = format_value(plot.unit, most);
    let label = format!("{}, the last {} minutes: now {now}, maximum {highest}", plot.name, span.minutes());
    html! {
        figure id=(plot.id) {
            figcaption { strong { (plot.name) } " " span.now { (now) } }
            svg viewBox="0 0 300 132" role="img" aria-label=(label) {
                path.axis d="M0 104.5H300M0 24.5H300" {}
                text x="0" y="18" { (highest) }
                text x="0" y="124" { "−" (span.minutes()) " min" }
                text x="300" y="124" text-anchor="end" {
                    @if let [(one, _), (two, _)] = plot.series { "— " (one) "  ╌ " (two) } @else { "now" }
                }
                @for ((_, value), class) in plot.series.iter().zip(["one", "two"]) {
                    path class=(class) d=(PreEscaped(svg_path(samples, &span, most, *value))) {}
                }
            }
        }
    }
}

/// The time that a plot shows: all samples, but at least [`MIN_SPAN_SECONDS`].
struct PlotSpan {
    from: u64,
    seconds: u64,
}

impl PlotSpan {
    fn covering(samples: &[ServerSample]) -> Self {
        let [first, last] =
            [samples.first(), samples.last()].map(|sample| sample.map_or(0, |sample| sample.time));
        let seconds = last.saturating_sub(first).max(MIN_SPAN_SECONDS);
        Self { from: last.saturating_sub(seconds), seconds }
    }

    fn minutes(&self) -> u64 {
        self.seconds.div_ceil(60)
    }

    /// Returns the column of a time.
    fn column(&self, time: u64) -> u64 {
        time.saturating_sub(self.from) * MAX_POINTS / self.seconds.max(1)
    }
}

/// Returns the SVG path of a series. One column shows its largest sample; missing samples are gaps.
fn svg_path(samples: &[ServerSample], span: &PlotSpan, most: f64, value: PlotValue) -> String {
    let mut columns: Vec<(u64, Option<f64>)> = Vec::new();
    for sample in samples {
        let (column, value) = (span.column(sample.time), value(sample));
        match columns.last_mut() {
            Some((last, largest)) if *last == column => {
                *largest = [*largest, value].into_iter().flatten().max_by(f64::total_cmp);
            }
            _ => columns.push((column, value)),
        }
    }
    let (mut path, mut is_on) = (String::new(), false);
    for (column, value) in columns {
        if let Some(value) = value {
            let height = if most > 0.0 { value / most * 80.0 } else { 0.0 };
            let (x, y) = (column * 300 / MAX_POINTS, 104.0 - height);
            // A point between two gaps is a dot.
            let _ = if is_on { write!(path, "L{x} {y:.0}") } else { write!(path, "M{x} {y:.0}h0") };
        }
        is_on = value.is_some();
    }
    path
}

/// Shortest time that a plot shows.
const MIN_SPAN_SECONDS: u64 = 300;
/// Largest number of points of a series.
const MAX_POINTS: u64 = 100;

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(seconds: impl Iterator<Item = u64>) -> Vec<ServerSample> {
        seconds
            .map(|time| ServerSample {
                time: 1_000_000 + time,
                players: time as f64,
                relay_p50_ms: (time % 100 != 0).then_some(1.0),
                ..ServerSample::default()
            })
            .collect()
    }

    #[test]
    fn plot_is_right_aligned_and_bounded_in_size() {
        let few = samples([0, 5, 10].into_iter());
        let span = PlotSpan::covering(&few);
        assert_eq!((span.minutes(), span.column(1_000_010), span.column(1_000_000)), (5, 100, 96));
        assert_eq!(svg_path(&few, &span, 10.0, |one| Some(one.players)), "M288 104h0L294 64L300 24");
        let hour = samples((0..3600).step_by(5));
        let span = PlotSpan::covering(&hour);
        assert_eq!(span.minutes(), 60);
        let path = svg_path(&hour, &span, 3600.0, |one| Some(one.players));
        assert!(path.matches(['M', 'L']).count() <= 101 && path.len() < 1000, "{path}");
        // The last sample has no value.
        assert!(draw_plot(&PLOTS[3], &hour).into_string().contains("p99 –"));
        assert_eq!(draw_plot(&PLOTS[7], &hour).into_string(), "", "the samples have no memory values");
    }

    #[test]
    fn plot_has_gaps_for_missing_samples_and_flat_zero_lines() {
        let five = samples([200, 250, 300, 350, 400, 450].into_iter());
        let span = PlotSpan::covering(&five);
        let path = svg_path(&five, &span, 1.0, |one| one.relay_p50_ms);
        assert_eq!(path.matches('M').count(), 3, "{path}");
        assert!(svg_path(&five, &span, 0.0, |_| Some(0.0)).ends_with("300 104"));
        assert_eq!(svg_path(&[], &PlotSpan::covering(&[]), 1.0, |_| Some(0.0)), "");
    }
}
