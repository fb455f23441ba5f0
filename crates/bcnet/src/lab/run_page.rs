//! Writes the HTML page of one run: expectations, queues over time, delays, datagrams of a time window.

use std::fmt::Write;
use std::time::Duration;

use bcnet_lab::{CheckedExpectation, NodeSummary, RunSummary};

use super::counter_columns::COUNTER_COLUMNS;
use super::library::NamedScenario;
use super::number_format::format_number;
use super::page::{self, escape_html, section};
use super::plot::{self, AxisLabels, PlotSeries};
use super::run_recorder::DatagramHop;

pub(super) fn html(entry: &NamedScenario, outcome: &RunSummary, hops: &[DatagramHop]) -> String {
    let scenario = &entry.scenario;
    let mut page = page::page_head(&scenario.title);
    let _ = write!(
        page,
        "<p class=\"lead\">{}</p><p class=\"small\"><code>{}</code>, {}, seed {}, {} s.</p>",
        escape_html(scenario.about.trim()),
        escape_html(&entry.name),
        outcome.engine,
        outcome.seed,
        format_number(outcome.duration.as_secs_f64())
    );
    if let Some(claim) = &scenario.claim {
        let verdict = claim.verdict.to_string();
        let _ = write!(
            page,
            "<p>“{}” <span class=\"small\">({})</span> <span class=\"tag {verdict}\">{verdict}</span> {}</p>",
            escape_html(&claim.statement),
            escape_html(&claim.source),
            escape_html(&claim.finding)
        );
    }
    page += &counters_table(outcome);
    let with_engine = || outcome.nodes.iter().enumerate().filter(|(_, node)| node.engine.is_some());
    for (number, node) in with_engine().take(MAX_NODES) {
        page += &queue_section(number, node, outcome);
    }
    let left_out = with_engine().count().saturating_sub(MAX_NODES);
    if left_out > 0 {
        let _ = write!(
            page,
            "<p class=\"small\">The queues of {left_out} more nodes are not drawn: the page draws at most {MAX_NODES}. The table above has all nodes.</p>"
        );
    }
    if !outcome.delays.is_empty() {
        page += &delay_section(outcome);
    }
    if !hops.is_empty() {
        let names: Vec<&str> = outcome.nodes.iter().map(|node| node.name.as_str()).collect();
        let proxy = outcome.proxy.as_ref().map(|proxy| proxy.name.as_str());
        page += &sequence_diagram(&names.into_iter().chain(proxy).collect::<Vec<_>>(), hops);
    }
    page += &expectations_table(&outcome.check_expectations(scenario));
    page + page::PAGE_END
}

fn counters_table(outcome: &RunSummary) -> String {
    let mut html = String::from("<div class=\"scroll wide\"><table><thead><tr><th>node</th>");
    for title in COUNTER_COLUMNS.iter().map(|column| column.title).chain(["oldest ACK, s"]) {
        let _ = write!(html, "<th class=\"n\">{title}</th>");
    }
    html += "</tr></thead><tbody>";
    for NodeSummary { name, counters: totals, .. } in &outcome.nodes {
        let _ = write!(html, "<tr><td>{}</td>", escape_html(name));
        let counts = COUNTER_COLUMNS.iter().map(|column| (column.value)(totals) as f64);
        for value in counts.chain([totals.longest_ack.as_secs_f64()]) {
            let _ = write!(html, "<td class=\"n\">{}</td>", format_number(value));
        }
        html += "</tr>";
    }
    html + "</tbody></table></div>"
}

fn queue_section(place: usize, node: &NodeSummary, outcome: &RunSummary) -> String {
    let line = |name, class, length: fn(&bcnet_lab::NodeSample) -> usize| {
        let points = outcome.samples.iter();
        let points =
            points.map(|sample| (seconds(sample.at.as_micros()), length(&sample.nodes[place]) as f64));
        PlotSeries { name, class, points: points.collect() }
    };
    let series = [
        line("ACKs in the outbox", "acks", |sample| sample.queues.acks),
        line("unacknowledged", "game", |sample| sample.queues.retx),
        line("unsent", "again", |sample| sample.queues.first),
    ];
    let queues = &node.counters.queues;
    let text = format!(
        "Sum over all peers. The longest queues for one peer had {} ACKs, {} unacknowledged messages, and {} unsent messages.",
        queues.peak_acks, queues.peak_retx, queues.peak_first
    );
    let plot = plot::lines(&AxisLabels { x: "seconds", y: "entries" }, &series);
    section(&format!("Queues of {}", escape_html(&node.name)), &text, &plot, "")
}

fn delay_section(outcome: &RunSummary) -> String {
    // Draws all of the slowest messages, and enough of the others to show their distribution.
    let step = outcome.delays.len().div_ceil(MAX_DOTS);
    let slowest = outcome.delays.len().saturating_sub(MAX_DOTS / 4);
    let shown = outcome.delays.iter().enumerate().filter(|(i, _)| *i >= slowest || i % step == 0);
    let classes: Vec<String> = (0..outcome.nodes.len()).map(|i| format!("c{}", i % 11)).collect();
    let mut series: Vec<PlotSeries<'_>> = outcome
        .nodes
        .iter()
        .zip(&classes)
        .map(|(node, class)| PlotSeries { name: &node.name, class, points: Vec::new() })
        .collect();
    for (_, delay) in shown {
        series[delay.from].points.push((seconds(delay.at.as_micros()), f64::from(delay.micros) / 1e3));
    }
    series.retain(|series| !series.points.is_empty());
    let delay = |share| format_number(outcome.delay_quantile(None, share).unwrap_or(0.0));
    let text = format!(
        "Each reliable message, by send time and sender. There are {} messages: half arrived within {} ms, 99 in a hundred within {} ms, the slowest after {} ms.",
        format_number(outcome.delays.len() as f64),
        delay(0.5),
        delay(0.99),
        delay(1.0)
    );
    let plot = plot::dots(&AxisLabels { x: "seconds", y: "milliseconds to delivery" }, &series);
    section("Delay of each message", &text, &plot, "")
}

fn sequence_diagram(names: &[&str], hops: &[DatagramHop]) -> String {
    let lane = |node: usize| {
        let width = (WIDTH - MARGIN - 60.0) / (names.len().max(2) - 1) as f64;
        MARGIN + node as f64 * width
    };
    let height = TOP + hops.len() as f64 * ROW + 12.0;
    let mut svg = format!(r#"<svg class="ladder" viewBox="0 0 {WIDTH} {height}" role="img">"#);
    for (node, name) in names.iter().enumerate() {
        let x = lane(node);
        let _ = write!(svg, r#"<line class="lane" x1="{x:.1}" y1="{TOP}" x2="{x:.1}" y2="{height}"/>"#);
        let _ = write!(svg, r#"<text x="{x:.1}" y="16" text-anchor="middle">{}</text>"#, escape_html(name));
    }
    for (row, hop) in hops.iter().enumerate() {
        let y = TOP + (row as f64 + 1.0) * ROW;
        let (from, to) = (lane(hop.from), lane(hop.to));
        let (end, class) = match hop.travel_time {
            Some(_) => (to, if hop.only_acks { "acks" } else { "game" }),
            None => (from + (to - from) * 0.6, "lost"),
        };
        let _ = write!(
            svg,
            r#"<line class="hop {class}" x1="{from:.1}" y1="{y:.1}" x2="{end:.1}" y2="{:.1}"/>"#,
            y + 4.0
        );
        let tip = if end > from { end - 6.0 } else { end + 6.0 };
        let _ = write!(
            svg,
            r#"<path class="hop {class}" fill="none" d="M{tip:.1} {:.1}L{end:.1} {:.1}L{tip:.1} {:.1}"/>"#,
            y,
            y + 4.0,
            y + 8.0
        );
        let took = hop.travel_time.map_or_else(|| "lost".into(), |took| format!("{} ms", millis(took)));
        let _ = write!(
            svg,
            r#"<text x="4" y="{:.1}">{:.4} s</text><text x="{:.1}" y="{:.1}" text-anchor="middle">{} ({took})</text>"#,
            y + 4.0,
            hop.sent.as_secs_f64(),
            f64::midpoint(from, to),
            y - 1.0,
            escape_html(&hop.label)
        );
    }
    let text = format!(
        "{} datagrams, from {:.3} to {:.3} s: the content of each, and its travel time. Datagrams with only ACKs are orange. <code>--window FROM..TO</code> shows another time range.",
        hops.len(),
        hops.first().map_or(0.0, |hop| hop.sent.as_secs_f64()),
        hops.last().map_or(0.0, |hop| hop.sent.as_secs_f64())
    );
    section("Single datagrams", &text, &(svg + "</svg>"), "")
}

fn expectations_table(checked: &[CheckedExpectation]) -> String {
    if checked.is_empty() {
        return String::new();
    }
    let mut html = String::from(
        "<section><h2>Expectations</h2><div class=\"scroll\"><table><thead><tr><th></th><th>figure</th><th>expected</th>\
         <th>measured</th></tr></thead><tbody>",
    );
    for CheckedExpectation { meaning: says, met, measurement, expected, seen, .. } in checked {
        let word = if *met { "met" } else { "missed" };
        let class = if *met { "holds" } else { "refuted" };
        let says = says.as_ref().map(|says| format!("{}<br>", escape_html(says))).unwrap_or_default();
        let _ = write!(
            html,
            "<tr><td><span class=\"tag {class}\">{word}</span></td><td>{says}<span class=\"small\">{}</span></td><td>{}</td><td>{}</td></tr>",
            escape_html(measurement),
            escape_html(expected),
            escape_html(seen)
        );
    }
    html + "</tbody></table></div></section>"
}

fn seconds(micros: u64) -> f64 {
    micros as f64 / 1e6
}

fn millis(length: Duration) -> String {
    format_number(length.as_secs_f64() * 1e3)
}

/// Maximum number of nodes with a plot of their queues, and of dots in a plot.
const MAX_NODES: usize = 32;
const MAX_DOTS: usize = 2000;
/// Dimensions of the sequence diagram.
const WIDTH: f64 = 860.0;
const MARGIN: f64 = 110.0;
const TOP: f64 = 24.0;
const ROW: f64 = 22.0;
