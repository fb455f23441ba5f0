//! Lines over time, as SVG.

use std::fmt::Write as _;

pub(super) struct Line {
    pub(super) name: String,
    pub(super) color: &'static str,
    /// A value for each step of time, or none.
    pub(super) values: Vec<Option<f64>>,
}

/// Returns a figure with a title, a note, axes and a legend.
pub(super) fn plot(title: &str, note: &str, step: f64, lines: &[Line]) -> String {
    let steps = lines.iter().map(|line| line.values.len()).max().unwrap_or(0).max(2);
    let values = lines.iter().flat_map(|line| line.values.iter().flatten());
    let top = nice(values.copied().fold(0.0, f64::max));
    let x = |place: usize| LEFT + (RIGHT - LEFT) * place as f64 / (steps - 1) as f64;
    let y = |value: f64| BOTTOM - (BOTTOM - TOP) * value / top;
    let mut svg = format!(
        "<figure><figcaption>{}</figcaption><p>{}</p><svg viewBox=\"0 0 480 190\" role=img aria-label=\"{}\">",
        escape(title),
        escape(note),
        escape(title)
    );
    for quarter in 0..=4 {
        let value = top * f64::from(quarter) / 4.0;
        let at = y(value);
        let _ = write!(
            svg,
            "<line x1={LEFT} x2={RIGHT} y1={at:.1} y2={at:.1} stroke=\"#e4e8ed\"/><text x={:.0} y={:.1} text-anchor=end>{}</text>",
            LEFT - 6.0,
            at + 4.0,
            number(value)
        );
    }
    for quarter in 0..=4 {
        let seconds = step * (steps - 1) as f64 * f64::from(quarter) / 4.0;
        let at = LEFT + (RIGHT - LEFT) * f64::from(quarter) / 4.0;
        let anchor = if quarter == 4 { "end" } else { "middle" };
        let time = clock(seconds);
        let _ = write!(svg, "<text x={at:.1} y={:.0} text-anchor={anchor}>{time}</text>", BOTTOM + 16.0);
    }
    for (place, line) in lines.iter().enumerate() {
        let mut path = String::new();
        let mut pen_down = false;
        for (at, value) in line.values.iter().enumerate() {
            let Some(value) = value else {
                pen_down = false;
                continue;
            };
            let _ = write!(path, "{}{:.1} {:.1}", if pen_down { "L" } else { "M" }, x(at), y(*value));
            pen_down = true;
        }
        let left = LEFT + 110.0 * place as f64;
        let _ = write!(
            svg,
            "<path d=\"{path}\" fill=none stroke=\"{0}\" stroke-width=1.5 stroke-linejoin=round /><rect x={left} y=176 width=10 height=4 fill=\"{0}\"/><text x={1} y=182>{2}</text>",
            line.color,
            left + 14.0,
            escape(&line.name)
        );
    }
    svg.push_str("</svg></figure>");
    svg
}

/// Text that stands for itself in HTML.
pub(super) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            c => escaped.push(c),
        }
    }
    escaped
}

/// Returns the next number from below that is easy to read on an axis of four parts.
fn nice(value: f64) -> f64 {
    let value = value.max(1.0);
    let power = 10_f64.powf(value.log10().floor());
    let factor = [1.0, 2.0, 4.0, 8.0, 10.0].into_iter().find(|factor| factor * power >= value);
    // Whole things have no quarters.
    (factor.unwrap_or(10.0) * power).max(4.0)
}

fn number(value: f64) -> String {
    match value {
        _ if value >= 10_000.0 => format!("{:.0}k", value / 1000.0),
        _ if value >= 1000.0 => format!("{:.1}k", value / 1000.0),
        _ if value.fract() > 0.01 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

/// `1:05`, or `2:00:00` for long times.
fn clock(seconds: f64) -> String {
    let seconds = seconds.round() as u64;
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    if hours > 0 { format!("{hours}:{minutes:02}:{seconds:02}") } else { format!("{minutes}:{seconds:02}") }
}

const LEFT: f64 = 48.0;
const RIGHT: f64 = 470.0;
const TOP: f64 = 8.0;
const BOTTOM: f64 = 148.0;
