//! Plots of the last hour, drawn with braille characters.

use std::collections::VecDeque;

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::widgets::Widget;

use crate::plots::{Plot, Unit};
use crate::server_info::ServerSample;

impl Plot {
    /// Returns the title, with the latest values and, if there is space, the maximum.
    pub(super) fn title(&self, samples: &VecDeque<ServerSample>, columns: usize) -> String {
        let latest = samples.back().map(|sample| self.values(sample)).unwrap_or_default();
        let shown: Vec<String> =
            latest.into_iter().flatten().map(|value| format_value(self.unit, value)).collect();
        let head = format!("{} {}", self.short_name, shown.join(" "));
        let most = samples.iter().flat_map(|sample| self.values(sample)).flatten().reduce(f64::max);
        let most = most.map(|most| format!(", max {}", format_value(self.unit, most)));
        match most.filter(|most| head.len() + most.len() <= columns) {
            Some(most) => head + &most,
            None => head,
        }
    }

    /// Returns the values of the series, at most two.
    fn values(&self, sample: &ServerSample) -> [Option<f64>; 2] {
        [0, 1].map(|line| self.series.get(line).and_then(|(_, value)| value(sample)))
    }

    /// Returns one value of each series for each of `dots` columns. The last column is the last sample.
    fn line_points(
        &self,
        samples: &VecDeque<ServerSample>,
        window: PlotWindow,
        dots: usize,
    ) -> [Vec<Option<f64>>; 2] {
        let mut lines = [vec![None; dots], vec![None; dots]];
        let (Some(last), true) = (samples.back(), dots > 0) else { return lines };
        for dot in 0..dots {
            // The time range of this dot, in seconds before the end.
            let back = |edge: usize| (dots - edge) as f64 * window.seconds as f64 / dots as f64;
            let (from, to) = (back(dot), back(dot + 1));
            let age = |sample: &ServerSample| last.time.saturating_sub(sample.time) as f64;
            let before = |edge: f64| samples.partition_point(|sample| age(sample) >= edge);
            let until = before(to).max(if dot + 1 == dots { samples.len() } else { 0 });
            let within = samples.range(before(from).min(until)..until).map(|sample| self.values(sample));
            // Where samples are farther apart than dots, a value lasts until the next sample.
            let held = samples
                .get(until.wrapping_sub(1))
                .filter(|sample| age(sample) < to + 2.0 * window.interval as f64);
            let largest = within.reduce(|a, b| [max_value(a[0], b[0]), max_value(a[1], b[1])]);
            let values = largest.or_else(|| held.map(|sample| self.values(sample))).unwrap_or_default();
            for (line, value) in lines.iter_mut().zip(values) {
                line[dot] = value;
            }
        }
        lines
    }
}

/// The length of the shown time, and the interval between samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PlotWindow {
    pub(super) seconds: u64,
    pub(super) interval: u64,
}

impl PlotWindow {
    /// Returns the shortest window that contains all samples.
    pub(super) fn covering(samples: &VecDeque<ServerSample>, interval: u64) -> Self {
        let age = |(first, last): (&ServerSample, &ServerSample)| last.time.saturating_sub(first.time);
        let age = samples.front().zip(samples.back()).map_or(0, age);
        let seconds = WINDOW_SECONDS.into_iter().find(|span| age < *span).unwrap_or(WINDOW_SECONDS[2]);
        Self { seconds, interval }
    }
}

const WINDOW_SECONDS: [u64; 3] = [300, 900, 3600];

/// A plot to draw.
pub(super) struct PlotWidget<'a> {
    pub(super) plot: &'a Plot,
    pub(super) samples: &'a VecDeque<ServerSample>,
    pub(super) window: PlotWindow,
    /// The styles of the first and the second series.
    pub(super) styles: [Style; 2],
}

impl Widget for PlotWidget<'_> {
    fn render(self, area: Rect, buffer: &mut Buffer) {
        let (columns, rows) = (usize::from(area.width), usize::from(area.height));
        if columns == 0 || rows == 0 {
            return;
        }
        let lines = self.plot.line_points(self.samples, self.window, 2 * columns);
        let all = lines.iter().flatten().flatten();
        let most = all.copied().fold(0.0, f64::max);
        let highest = 4 * rows - 1;
        // The second series has larger values. Drawing the first one later keeps it visible where both
        // overlap. The second has only every other dot, to be distinguishable without colours.
        for ((line, style), every) in lines.iter().zip(self.styles).zip([1, 2]).rev() {
            let mut before = None;
            for (dot, value) in line.iter().enumerate().filter(|(dot, _)| dot % every == 0) {
                let Some(value) = value else {
                    before = None;
                    continue;
                };
                let share = if most > 0.0 { (value / most).clamp(0.0, 1.0) } else { 0.0 };
                let height = (share * highest as f64).round() as usize;
                let other = before.replace(height).unwrap_or(height);
                for height in height.min(other)..=height.max(other) {
                    set_dot(buffer, area, dot, highest - height, style);
                }
            }
        }
    }
}

/// Sets a dot, counted from the upper left corner.
fn set_dot(buffer: &mut Buffer, area: Rect, x: usize, y: usize, style: Style) {
    let position = |at: usize, start: u16| start.saturating_add(u16::try_from(at).unwrap_or(u16::MAX));
    let Some(cell) = buffer.cell_mut((position(x / 2, area.x), position(y / 4, area.y))) else { return };
    let set = cell.symbol().chars().next().filter(|letter| (BRAILLE_BLANK..=BRAILLE_FULL).contains(letter));
    let dots = set.map_or(0, |letter| letter as u32 - BRAILLE_BLANK as u32) | BRAILLE_DOTS[y % 4][x % 2];
    cell.set_char(char::from_u32(BRAILLE_BLANK as u32 + dots).unwrap_or(BRAILLE_FULL)).set_style(style);
}

const BRAILLE_BLANK: char = '\u{2800}';
const BRAILLE_FULL: char = '\u{28ff}';
/// The bits of a braille character, by row and column.
const BRAILLE_DOTS: [[u32; 2]; 4] = [[0x01, 0x08], [0x02, 0x10], [0x04, 0x20], [0x40, 0x80]];

fn max_value(a: Option<f64>, b: Option<f64>) -> Option<f64> {
    a.into_iter().chain(b).reduce(f64::max)
}

fn format_value(unit: Unit, value: f64) -> String {
    match unit {
        Unit::Number | Unit::Bytes => compact_number(value),
        Unit::Millis => millis(Some(value)),
        Unit::Percent => format!("{value:.1}"),
        Unit::Memory => format!("{:.1}", value / 1e6),
    }
}

/// Formats a number below 100 million with at most five characters.
pub(super) fn compact_number(value: f64) -> String {
    match value.abs() {
        size if size >= 1e6 => format!("{:.1}M", value / 1e6),
        size if size >= 1e4 => format!("{:.0}k", value / 1e3),
        size if size >= 1e3 => format!("{:.1}k", value / 1e3),
        size if size >= 10.0 || value.fract() == 0.0 => format!("{value:.0}"),
        _ => format!("{value:.1}"),
    }
}

/// Formats milliseconds: two decimals below 1, one below 10, otherwise none.
pub(super) fn millis(value: Option<f64>) -> String {
    match value {
        None => "-".into(),
        Some(value) if value < 1.0 => format!("{value:.2}"),
        Some(value) if value < 10.0 => format!("{value:.1}"),
        Some(value) => format!("{value:.0}"),
    }
}
