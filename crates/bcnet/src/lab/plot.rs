//! Plots as SVG, for the pages. Their colours come from the style sheet.

use std::fmt::Write;

use super::number_format::format_number;

/// One line of a line chart, or one kind of bar.
pub(super) struct PlotSeries<'a> {
    pub(super) name: &'a str,
    /// CSS class of the series.
    pub(super) class: &'a str,
    pub(super) points: Vec<(f64, f64)>,
}

/// Labels of the axes.
pub(super) struct AxisLabels<'a> {
    pub(super) x: &'a str,
    pub(super) y: &'a str,
}

/// Returns a chart with a line for each series.
pub(super) fn lines(axes: &AxisLabels<'_>, series: &[PlotSeries<'_>]) -> String {
    draw_xy(axes, series, MarkStyle::Lines)
}

/// Returns a chart with a dot for each point.
pub(super) fn dots(axes: &AxisLabels<'_>, series: &[PlotSeries<'_>]) -> String {
    draw_xy(axes, series, MarkStyle::Dots)
}

fn draw_xy(axes: &AxisLabels<'_>, series: &[PlotSeries<'_>], marks: MarkStyle) -> String {
    let points = || series.iter().flat_map(|series| &series.points);
    let right = points().map(|(x, _)| *x).fold(0.0, f64::max).max(1e-9);
    let scale = YScale::new(points().map(|(_, y)| *y).fold(0.0, f64::max));
    let mut svg = open_svg(axes, extra_legend_height(series));
    scale.draw_grid(&mut svg);
    for tick in ticks(right) {
        let x = LEFT + tick / right * PLOT_WIDTH;
        let _ = write!(
            svg,
            r#"<text x="{x:.1}" y="{:.1}" class="tick" text-anchor="middle">{}</text>"#,
            BOTTOM + 18.0,
            format_number(tick)
        );
    }
    // Draws the first series last, on top: it is the baseline of the others.
    for series in series.iter().rev() {
        let place = |(x, y): &(f64, f64)| (LEFT + x / right * PLOT_WIDTH, scale.y_position(*y));
        let points = series.points.iter().map(place);
        match marks {
            MarkStyle::Lines => {
                let path: Vec<String> = points.map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
                let _ =
                    write!(svg, r#"<polyline class="line {}" points="{}"/>"#, series.class, path.join(" "));
            }
            MarkStyle::Dots => {
                for (x, y) in points {
                    let _ =
                        write!(svg, r#"<circle class="{}" cx="{x:.1}" cy="{y:.1}" r="1.6"/>"#, series.class);
                }
            }
        }
    }
    legend(&mut svg, series);
    svg + "</svg>"
}

/// Mark of the points of a series.
#[derive(Clone, Copy)]
enum MarkStyle {
    Lines,
    Dots,
}

/// Returns a chart with a group of bars for each name. A group has one bar for each series.
pub(super) fn bars(axes: &AxisLabels<'_>, groups: &[&str], series: &[PlotSeries<'_>]) -> String {
    let max = series.iter().flat_map(|series| &series.points).map(|(_, y)| *y).fold(0.0, f64::max);
    let scale = YScale::new(max * 1.08);
    let mut svg = open_svg(axes, extra_legend_height(series));
    scale.draw_grid(&mut svg);
    let group = PLOT_WIDTH / groups.len().max(1) as f64;
    let count = series.len().max(1) as f64;
    let width = (group * 0.7 / count).min(90.0);
    for (g, name) in groups.iter().enumerate() {
        let middle = LEFT + group * (g as f64 + 0.5);
        let _ = write!(
            svg,
            r#"<text x="{middle:.1}" y="{:.1}" class="tick" text-anchor="middle">{name}</text>"#,
            BOTTOM + 18.0
        );
        for (s, series) in series.iter().enumerate() {
            let Some((_, value)) = series.points.get(g) else { continue };
            let top = scale.y_position(*value);
            let x = middle + width * (s as f64 - count / 2.0);
            let _ = write!(
                svg,
                r#"<rect class="{}" x="{x:.1}" y="{top:.1}" width="{:.1}" height="{:.1}" rx="2"/>"#,
                series.class,
                width - 4.0,
                (BOTTOM - top).max(0.5)
            );
            let _ = write!(
                svg,
                r#"<text x="{:.1}" y="{:.1}" class="value" text-anchor="middle">{}</text>"#,
                x + width / 2.0 - 2.0,
                top - 5.0,
                format_number(*value)
            );
        }
    }
    legend(&mut svg, series);
    svg + "</svg>"
}

/// Returns a chart with one horizontal bar for each name, stacked from parts. `max` is the full width.
pub(super) fn stacked_bars(
    axes: &AxisLabels<'_>,
    rows: &[&str],
    parts: &[PlotSeries<'_>],
    max: Option<f64>,
) -> String {
    let sum = |row: usize| parts.iter().filter_map(|part| part.points.get(row)).map(|(_, y)| *y).sum::<f64>();
    let right = max.unwrap_or_else(|| (0..rows.len()).map(sum).fold(0.0, f64::max) * 1.1).max(1e-9);
    let height = TOP + rows.len() as f64 * BAR_ROW_HEIGHT + 46.0;
    let mut svg = format!(r#"<svg viewBox="0 0 {WIDTH} {height}" role="img">"#);
    let place = |value: f64| NAME_WIDTH + value / right * (WIDTH - NAME_WIDTH - 20.0);
    for tick in ticks(right) {
        let (x, end) = (place(tick), height - 40.0);
        let _ = write!(svg, r#"<line class="grid" x1="{x:.1}" y1="{TOP}" x2="{x:.1}" y2="{end:.1}"/>"#);
        let _ = write!(
            svg,
            r#"<text x="{x:.1}" y="{:.1}" class="tick" text-anchor="middle">{}</text>"#,
            end + 16.0,
            format_number(tick)
        );
    }
    for (row, name) in rows.iter().enumerate() {
        let y = TOP + row as f64 * BAR_ROW_HEIGHT + 6.0;
        let _ = write!(
            svg,
            r#"<text x="{:.1}" y="{:.1}" class="tick" text-anchor="end">{name}</text>"#,
            NAME_WIDTH - 8.0,
            y + BAR_ROW_HEIGHT / 2.0 - 2.0
        );
        let mut from = 0.0;
        for part in parts {
            let Some((_, value)) = part.points.get(row) else { continue };
            let (x, width) = (place(from), place(from + value) - place(from));
            let _ = write!(
                svg,
                r#"<rect class="{}" x="{x:.1}" y="{y:.1}" width="{width:.1}" height="{:.1}"/>"#,
                part.class,
                BAR_ROW_HEIGHT - 12.0
            );
            let (text, middle) = (format_number(*value), y + BAR_ROW_HEIGHT / 2.0 - 2.0);
            // A bar with a single part has space for the label behind it.
            let label = match (width > 10.0 + 7.0 * text.len() as f64, parts.len()) {
                (true, _) => Some((x + width / 2.0, r#"class="inside" text-anchor="middle""#)),
                (false, 1) => Some((x + width + 5.0, r#"class="value""#)),
                (false, _) => None,
            };
            if let Some((x, style)) = label {
                let _ = write!(svg, r#"<text x="{x:.1}" y="{middle:.1}" {style}>{text}</text>"#);
            }
            from += value;
        }
    }
    let _ = write!(
        svg,
        r#"<text x="{:.1}" y="{:.1}" class="axis" text-anchor="middle">{}</text>"#,
        (NAME_WIDTH + WIDTH) / 2.0,
        height - 6.0,
        axes.x
    );
    legend(&mut svg, parts);
    svg + "</svg>"
}

/// Maps values to vertical positions.
struct YScale {
    max: f64,
}

impl YScale {
    fn new(max: f64) -> Self {
        Self { max: max.max(1e-9) * 1.04 }
    }

    fn y_position(&self, value: f64) -> f64 {
        BOTTOM - value / self.max * (BOTTOM - TOP)
    }

    fn draw_grid(&self, svg: &mut String) {
        for tick in ticks(self.max) {
            let y = self.y_position(tick);
            let _ = write!(
                svg,
                r#"<line class="grid" x1="{LEFT}" y1="{y:.1}" x2="{:.1}" y2="{y:.1}"/>"#,
                LEFT + PLOT_WIDTH
            );
            let _ = write!(
                svg,
                r#"<text x="{:.1}" y="{:.1}" class="tick" text-anchor="end">{}</text>"#,
                LEFT - 8.0,
                y + 4.0,
                format_number(tick)
            );
        }
    }
}

/// Returns three to six round numbers from 0 up to `max`.
fn ticks(max: f64) -> Vec<f64> {
    let rough = max / 5.0;
    let power = 10_f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].into_iter().map(|step| step * power).find(|step| *step >= rough);
    let step = step.unwrap_or(power * 10.0);
    (0..=10).map(|i| f64::from(i) * step).take_while(|tick| *tick <= max * 1.0001).collect()
}

fn open_svg(axes: &AxisLabels<'_>, above: f64) -> String {
    let mut svg = format!(r#"<svg viewBox="0 {} {WIDTH} {}" role="img">"#, -above, HEIGHT + above);
    let _ = write!(
        svg,
        r#"<text x="{:.1}" y="{:.1}" class="axis" text-anchor="middle">{}</text>"#,
        LEFT + PLOT_WIDTH / 2.0,
        HEIGHT - 6.0,
        axes.x
    );
    let middle = f64::midpoint(TOP, BOTTOM);
    let _ = write!(
        svg,
        r#"<text transform="translate(16 {middle:.1}) rotate(-90)" class="axis" text-anchor="middle">{}</text>"#,
        axes.y
    );
    svg
}

fn legend(svg: &mut String, series: &[PlotSeries<'_>]) {
    let (mut x, mut y) = (LEFT, TOP - 28.0 - extra_legend_height(series));
    for PlotSeries { name, class, .. } in series {
        if x + legend_entry_width(name) > WIDTH + 44.0 && x > LEFT {
            (x, y) = (LEFT, y + LEGEND_ROW);
        }
        let _ = write!(svg, r#"<rect class="{class}" x="{x:.1}" y="{y:.1}" width="14" height="14" rx="2"/>"#);
        let _ = write!(svg, r#"<text x="{:.1}" y="{:.1}" class="legend">{name}</text>"#, x + 20.0, y + 12.0);
        x += legend_entry_width(name);
    }
}

/// Returns the height of the legend rows after the first.
fn extra_legend_height(series: &[PlotSeries<'_>]) -> f64 {
    let (mut x, mut rows) = (LEFT, 0.0);
    for PlotSeries { name, .. } in series {
        if x + legend_entry_width(name) > WIDTH + 44.0 && x > LEFT {
            (x, rows) = (LEFT, rows + 1.0);
        }
        x += legend_entry_width(name);
    }
    rows * LEGEND_ROW
}

/// Returns the width of a legend entry, including its mark and the space behind it.
fn legend_entry_width(name: &str) -> f64 {
    44.0 + 7.2 * name.chars().count() as f64
}

const LEGEND_ROW: f64 = 20.0;
const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 320.0;
const LEFT: f64 = 78.0;
const PLOT_WIDTH: f64 = 662.0;
const TOP: f64 = 34.0;
const BOTTOM: f64 = 262.0;
/// Width for names, and height of a row, in a chart with horizontal bars.
const NAME_WIDTH: f64 = 210.0;
const BAR_ROW_HEIGHT: f64 = 40.0;
