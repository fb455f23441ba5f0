//! Writes the HTML of the page: findings that need no script, and sections that the script fills.

use std::fmt::Write as _;

use bcnet_observe::{AggregateCounters, Conversation, Side};

use super::super::CaptureEnd;
use super::super::finding_counts::FindingStats;
use super::{HtmlReport, data};
use crate::number_format::{group_digits, pluralize};
use crate::random::random_u64;

pub(super) fn render_page(report: &HtmlReport, end: &CaptureEnd<'_>) -> String {
    let ranked = report.finding_counts.by_severity();
    let mut conversations: Vec<Conversation<'_>> = end
        .observer
        .conversations()
        .filter(|conversation| report.filter.wants_conversation(conversation))
        .collect();
    conversations.sort_by_key(|conversation| std::cmp::Reverse(conversation_bytes(conversation)));
    // Evicted conversations have no addresses. They are left out if a filter selects a peer.
    let rest = (conversations.len() == end.observer.conversations().count())
        .then(|| end.observer.evicted_counters());
    let (json, shown) = data::report_json(report, rest, &ranked, &conversations);
    // Only a script with this nonce runs. Text from the network cannot contain the nonce, because it is random.
    let nonce = format!("{:016x}{:016x}", random_u64(), random_u64());
    let title = escape_html(end.name);
    let mut page = format!(
        "<!doctype html>\n<html lang=en><head><meta charset=utf-8>\
         <meta name=viewport content=\"width=device-width, initial-scale=1\">\
         <meta http-equiv=Content-Security-Policy content=\"default-src 'none'; style-src 'unsafe-inline'; \
         script-src 'nonce-{nonce}'; base-uri 'none'; form-action 'none'\">\n\
         <title>{title}</title>\n<style>\n{STYLE}</style></head>\n<body><header><h1>{title}</h1>"
    );
    write_head(&mut page, report, end, &conversations, rest);
    page.push_str("</header>\n<main>");
    write_findings(&mut page, &ranked, report.start_micros.unwrap_or(0));
    page.push_str(SECTIONS);
    write_omissions(&mut page, report, end, shown, conversations.len());
    let _ = write!(
        page,
        "</main>\n<script type=application/json id=data>{json}</script>\n<script nonce={nonce}>\n{}</script></body></html>\n",
        SCRIPT.concat()
    );
    page
}

fn write_head(
    page: &mut String,
    report: &HtmlReport,
    end: &CaptureEnd<'_>,
    conversations: &[Conversation<'_>],
    rest: Option<&AggregateCounters>,
) {
    let total: u64 = conversations.iter().map(conversation_bytes).sum::<u64>()
        + rest.map_or(0, |rest| rest.clients.bytes + rest.hosts.bytes);
    let count = conversations.len() as u64 + rest.map_or(0, |rest| rest.conversations);
    let seconds = report.last_micros.saturating_sub(report.start_micros.unwrap_or(0)) as f64 / 1e6;
    let _ = write!(
        page,
        "<p>{}, {}, {} of game traffic, {seconds:.1} s.</p>",
        pluralize(end.packets, "packet"),
        pluralize(count, "conversation"),
        pluralize(total, "byte")
    );
    if !end.skipped.is_empty() {
        let _ = write!(page, "<p class=quiet>Skipped: {}.</p>", escape_html(&end.skipped.to_string()));
    }
}

/// Writes the table of findings, most severe first.
fn write_findings(page: &mut String, ranked: &[&FindingStats], start: u64) {
    page.push_str("<section id=verdict><h2>Findings by kind</h2>");
    if ranked.is_empty() {
        page.push_str("<p>No findings: everything arrived and was acknowledged.</p></section>");
        return;
    }
    page.push_str("<div class=scroll><table><thead><tr><th>severity<th class=number>count<th>finding<th>meaning<th>first seen</tr></thead><tbody>");
    for (place, stats) in ranked.iter().enumerate() {
        let FindingStats { class: kind, count, first, first_location: evidence, first_side: who, .. } = stats;
        let (class, word) = match kind.severity {
            0 => ("none", "\u{25CB} no fault"),
            1..=3 => ("mild", "\u{25CF} mild"),
            4..=6 => ("bad", "\u{25C6} bad"),
            _ => ("worst", "\u{25B2} worst"),
        };
        let time = first.at.as_micros().saturating_sub(start) as f64 / 1e6;
        let packet = evidence.map_or_else(String::new, |evidence| {
            format!(", <a href=\"#packet={0}\">packet {0}</a>", evidence.number)
        });
        let _ = write!(
            page,
            "<tr class={class} data-kind={place}><td>{word}<td class=number>{}<td>{}<td>{}<td>{time:.1} s{packet}, {}</tr>",
            group_digits(*count),
            kind.title,
            stats.meaning(),
            escape_html(who)
        );
    }
    page.push_str("</tbody></table></div></section>");
}

/// Writes the list of data that is not in the page.
fn write_omissions(page: &mut String, report: &HtmlReport, end: &CaptureEnd<'_>, shown: usize, talks: usize) {
    page.push_str("<section id=left><h2>What this page leaves out</h2><ul>");
    for text in end.omissions() {
        let _ = write!(page, "<li>{}.", escape_html(&text));
    }
    let (shown, all) = (shown as u64, report.datagram_count);
    if shown < all {
        let _ = write!(
            page,
            "<li>{} of {} datagrams are in this page with their bytes: those of the listed findings, and the first of the capture. \
             Counts, tables and plots cover all datagrams.",
            group_digits(shown),
            group_digits(all)
        );
    } else {
        let _ = write!(page, "<li>All {} datagrams are in this page with their bytes.", group_digits(all));
    }
    for stats in report.finding_counts.by_severity() {
        let title = stats.class.title;
        let samples = report.samples.iter().find(|(known, _)| *known == title);
        let listed = samples.map_or(0, |(_, samples)| samples.items().len()) as u64;
        if listed < stats.count {
            let (listed, count) = (group_digits(listed), group_digits(stats.count));
            let _ = write!(page, "<li>{listed} of {count} {title} are listed, evenly spaced.");
        }
    }
    if talks > report.plotted.len() {
        let (plotted, more) = (report.plotted.len(), group_digits((talks - report.plotted.len()) as u64));
        let _ = write!(
            page,
            "<li>The first {plotted} conversations have their own plots; {more} more are only in the plots of all conversations."
        );
    }
    page.push_str("</ul></section>");
}

fn conversation_bytes(conversation: &Conversation<'_>) -> u64 {
    conversation.counters(Side::First).bytes + conversation.counters(Side::Second).bytes
}

/// Escapes a text for HTML.
fn escape_html(text: &str) -> String {
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

const STYLE: &str = include_str!("page.css");
const SECTIONS: &str = include_str!("sections.html");
/// One program, split into files.
const SCRIPT: [&str; 4] = [
    include_str!("base.js"),
    include_str!("plots.js"),
    include_str!("tables.js"),
    include_str!("datagrams.js"),
];
