//! The HTML page of a comparison: a plot for each fault and scenario. Every number comes from the runs.

use std::fmt::Write;

use super::compare::{ComparisonPlan, ComparisonTable, VariantMetrics};
use super::number_format::format_number;
use super::page::{self, escape_html};
use super::plot::{self, AxisLabels, PlotSeries};

pub(super) fn html(plan: &ComparisonPlan, sheets: &[ComparisonTable], left: &[Option<f64>]) -> String {
    let mut page = page::page_head(&plan.title);
    let _ = write!(page, "<p class=\"lead\">{}</p>", escape_html(&plan.about));
    let names: Vec<String> = plan.variants.iter().map(|variant| escape_html(&variant.name)).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let shares = left.iter().map(|left| (0.0, 100.0 * left.unwrap_or(0.0))).collect();
    page += &page::section(
        "Remaining faults",
        &format!(
            "The bytes of received ACKs, the 99th percentile of the delay of reliable messages, the datagrams in which ACKs left no \
            space for the largest message, and the age of the oldest ACK: each in percent of <i>{}</i>, on average over all scenarios \
            in which it has the fault. A delay is a fault if it is more than twice the median.",
            names.first().unwrap_or(&"")
        ),
        &bars("percent remaining", &names, shares, "stock"),
        "",
    );
    for sheet in sheets {
        page += &scenario_section(sheet, &names);
    }
    page + page::PAGE_END
}

fn scenario_section(sheet: &ComparisonTable, names: &[&str]) -> String {
    let points =
        |figure: fn(&VariantMetrics) -> f64| sheet.rows.iter().map(|row| (0.0, figure(row))).collect();
    let plots = [
        bars("bytes of received ACKs", names, points(|row| row.ack_bytes_taken), "acks"),
        bars("milliseconds to delivery, p99", names, points(|row| row.p99), "game"),
        bars("datagrams without space after ACKs", names, points(|row| row.crowded), "again"),
        bars("longest time of an ACK in an outbox, seconds", names, points(|row| row.longest_ack), "head"),
    ];
    let seeds = if sheet.seeds == 1 { String::new() } else { format!(" {} seeds together.", sheet.seeds) };
    let text = format!("<code>{}</code>.{seeds}", escape_html(&sheet.name));
    page::section(&escape_html(&sheet.title), &text, &(plots.concat() + &table(sheet, names)), "")
}

fn bars(axis: &str, names: &[&str], points: Vec<(f64, f64)>, class: &str) -> String {
    plot::stacked_bars(
        &AxisLabels { x: axis, y: "" },
        names,
        &[PlotSeries { name: axis, class, points }],
        None,
    )
}

fn table(sheet: &ComparisonTable, names: &[&str]) -> String {
    let mut html = String::from("<div class=\"scroll wide\"><table><thead><tr><th>variant</th>");
    let titles = sheet.rows.first().map(VariantMetrics::columns).into_iter().flatten();
    for (title, _) in titles {
        let _ = write!(html, "<th class=\"n\">{title}</th>");
    }
    html += "</tr></thead><tbody>";
    for (name, row) in names.iter().zip(&sheet.rows) {
        let _ = write!(html, "<tr><td>{name}</td>");
        for (_, value) in row.columns() {
            let _ = write!(html, "<td class=\"n\">{}</td>", format_number(value));
        }
        html += "</tr>";
    }
    html + "</tbody></table></div>"
}
