//! The page itself: what is wrong in plain words, which needs no script, and the places that the script fills.

use std::fmt::Write as _;

use bcnet_observe::{Conversation, Side, Totals};

use super::super::End;
use super::super::tally::Tallied;
use super::{Report, data};
use crate::number::{counted, thousands};
use crate::random::unguessable;

pub(super) fn page(report: &Report, end: &End<'_>) -> String {
    let ranked = report.tally.ranked();
    let mut talks: Vec<Conversation<'_>> =
        end.observer.conversations().filter(|talk| report.filter.wants_talk(talk)).collect();
    talks.sort_by_key(|talk| std::cmp::Reverse(bytes(talk)));
    // Who asks for a peer does not ask for those of whom nothing but counts is known.
    let rest = (talks.len() == end.observer.conversations().count()).then(|| end.observer.rest());
    let (json, shown) = data::json(report, rest, &ranked, &talks);
    // Only a script with this number runs: whatever the network said, it could not know it.
    let nonce = format!("{:016x}{:016x}", unguessable(), unguessable());
    let title = escape(end.name);
    let mut page = format!(
        "<!doctype html>\n<html lang=en><head><meta charset=utf-8>\
         <meta name=viewport content=\"width=device-width, initial-scale=1\">\
         <meta http-equiv=Content-Security-Policy content=\"default-src 'none'; style-src 'unsafe-inline'; \
         script-src 'nonce-{nonce}'; base-uri 'none'; form-action 'none'\">\n\
         <title>{title}</title>\n<style>\n{STYLE}</style></head>\n<body><header><h1>{title}</h1>"
    );
    head(&mut page, report, end, &talks, rest);
    page.push_str("</header>\n<main>");
    verdict(&mut page, &ranked, report.start.unwrap_or(0));
    page.push_str(SECTIONS);
    left_out(&mut page, report, end, shown, talks.len());
    let _ = write!(
        page,
        "</main>\n<script type=application/json id=data>{json}</script>\n<script nonce={nonce}>\n{}</script></body></html>\n",
        SCRIPT.concat()
    );
    page
}

fn head(
    page: &mut String,
    report: &Report,
    end: &End<'_>,
    talks: &[Conversation<'_>],
    rest: Option<&Totals>,
) {
    let total: u64 =
        talks.iter().map(bytes).sum::<u64>() + rest.map_or(0, |rest| rest.clients.bytes + rest.hosts.bytes);
    let count = talks.len() as u64 + rest.map_or(0, |rest| rest.conversations);
    let seconds = report.last.saturating_sub(report.start.unwrap_or(0)) as f64 / 1e6;
    let _ = write!(
        page,
        "<p>{}, {}, {} of game traffic, {seconds:.1} s.</p>",
        counted(end.packets, "packet"),
        counted(count, "conversation"),
        counted(total, "byte")
    );
    if !end.skipped.is_empty() {
        let _ = write!(page, "<p class=quiet>Not looked at: {}.</p>", escape(&end.skipped.to_string()));
    }
}

/// What is wrong, the worst first.
fn verdict(page: &mut String, ranked: &[&Tallied], start: u64) {
    page.push_str("<section id=verdict><h2>What was found</h2>");
    if ranked.is_empty() {
        page.push_str("<p>Nothing: everything arrived and was acknowledged as it should.</p></section>");
        return;
    }
    page.push_str("<div class=scroll><table><thead><tr><th>how bad<th class=number>how often<th>what<th>what it means<th>first seen</tr></thead><tbody>");
    for (place, tallied) in ranked.iter().enumerate() {
        let Tallied { kind, count, first, place: evidence, who, .. } = tallied;
        let (class, word) = match kind.weight {
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
            thousands(*count),
            kind.title,
            tallied.meaning(),
            escape(who)
        );
    }
    page.push_str("</tbody></table></div></section>");
}

/// What is not in the page.
fn left_out(page: &mut String, report: &Report, end: &End<'_>, shown: usize, talks: usize) {
    page.push_str("<section id=left><h2>What is not in this page</h2><ul>");
    for text in end.left_out() {
        let _ = write!(page, "<li>{}.", escape(&text));
    }
    let (shown, all) = (shown as u64, report.datagrams);
    if shown < all {
        let _ = write!(
            page,
            "<li>{} of {} datagrams are here with their bytes: those that the listed findings are about, and the first. \
             Counts, tables and plots are of all.",
            thousands(shown),
            thousands(all)
        );
    } else {
        let _ = write!(page, "<li>All {} datagrams are here with their bytes.", thousands(all));
    }
    for tallied in report.tally.ranked() {
        let title = tallied.kind.title;
        let samples = report.samples.iter().find(|(known, _)| *known == title);
        let listed = samples.map_or(0, |(_, samples)| samples.items().len()) as u64;
        if listed < tallied.count {
            let (listed, count) = (thousands(listed), thousands(tallied.count));
            let _ = write!(page, "<li>{listed} of {count} {title} are listed, at equal distances.");
        }
    }
    if talks > report.talks.len() {
        let (plotted, more) = (report.talks.len(), thousands((talks - report.talks.len()) as u64));
        let _ = write!(
            page,
            "<li>The first {plotted} conversations have plots of their own; {more} more conversations are in the plots of all."
        );
    }
    page.push_str("</ul></section>");
}

fn bytes(talk: &Conversation<'_>) -> u64 {
    talk.traffic(Side::First).bytes + talk.traffic(Side::Second).bytes
}

/// Text that stands for itself in HTML.
fn escape(text: &str) -> String {
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
/// One program, in files that can be read one by one.
const SCRIPT: [&str; 4] = [
    include_str!("base.js"),
    include_str!("plots.js"),
    include_str!("tables.js"),
    include_str!("datagrams.js"),
];
