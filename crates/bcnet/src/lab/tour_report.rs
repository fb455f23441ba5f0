//! The report of a tour: one self-contained HTML page. Every number comes from the runs.

use std::fmt::Write;

use bcnet_lab::RunSummary;

use super::SEEDS;
use super::number_format::format_number;
use super::page::{self, escape_html, section};
use super::plot::{self, AxisLabels, PlotSeries};
use super::tour::{ClaimRow, EngineRuns, ScenarioRuns};

pub(super) fn html(stops: &[ScenarioRuns], checked: usize, missed: usize) -> String {
    let seed = stops.first().map_or(0, |stop| stop.stock.first().seed);
    let mut page = page::page_head("The two faults and their cure");
    let _ = write!(
        page,
        "<p class=\"lead\">{}</p><p class=\"small\">Seed {seed}; scenarios with random traffic or faults are pooled over {SEEDS} \
        seeds from there on. {} of {checked} expectations met. \
        Create this page again with <code>bcnet lab tour --report tour.html</code>.</p>",
        INTRODUCTION,
        checked - missed
    );
    let find = |name: &str| stops.iter().find(|stop| stop.entry.name == name);
    page += &key_metrics(stops);
    let sections = [
        find("lull").map(outbox_section),
        bytes_section(find("battle"), find("battle-loss5"), find("battle-loss20")),
        delay_section(find("battle"), find("battle-loss5"), find("battle-loss20")),
        find("battle-day").map(day_section),
        find("battle").zip(find("starvation")).map(|(battle, burst)| datagram_space_section(battle, burst)),
    ];
    page.extend(sections.into_iter().flatten());
    page += &claims_table(stops);
    page + page::PAGE_END
}

/// Returns the page for scenarios of the user: a plot for each, and the claims that they test.
pub(super) fn custom_html(stops: &[ScenarioRuns], checked: usize, missed: usize) -> String {
    let mut page = page::page_head("Experiments on both engines");
    let _ = write!(
        page,
        "<p class=\"lead\">{} scenarios of <code>./scenarios</code>, each on the original engine and on bcnet. \
         <span class=\"stock-text\">Orange is the original</span>, <span class=\"bcnet-text\">green is bcnet</span>.</p>\
         <p class=\"small\">{} of {checked} expectations met.</p>",
        stops.len(),
        checked - missed
    );
    page.extend(stops.iter().map(custom_section));
    if stops.iter().any(|stop| stop.claim_row().is_some()) {
        page += &claims_table(stops);
    }
    page + page::PAGE_END
}

fn custom_section(stop: &ScenarioRuns) -> String {
    let line = |outcome: &RunSummary| {
        let points = outcome.samples.iter().map(|sample| {
            let owed: usize =
                sample.nodes.iter().map(|node| node.queues.acks + node.queues.retx + node.queues.first).sum();
            (seconds(sample.at), owed as f64)
        });
        points.collect()
    };
    let series = [
        PlotSeries { name: "stock", class: "stock", points: line(stop.stock.first()) },
        PlotSeries { name: "bcnet", class: "bcnet", points: line(stop.bcnet.first()) },
    ];
    let plot = plot::lines(&AxisLabels { x: "seconds", y: "entries in all queues" }, &series);
    let figures = |runs: &EngineRuns| {
        let delay = runs.delay_quantile(None, 0.99).map_or_else(|| "–".into(), format_number);
        format!("{} bytes of ACKs, p99 {delay} ms", format_number(runs.total_counters().ack_bytes as f64))
    };
    let scenario = &stop.entry.scenario;
    let text = format!(
        "{} Original: {}. bcnet: {}.",
        escape_html(scenario.about.trim()),
        figures(&stop.stock),
        figures(&stop.bcnet)
    );
    let command = format!("bcnet lab run {} --report page.html", escape_html(&stop.entry.path));
    section(&escape_html(&scenario.title), &text, &plot, &command)
}

/// Returns the most important measurements as HTML.
fn key_metrics(stops: &[ScenarioRuns]) -> String {
    let chosen = ["battle", "battle-loss5", "p12", "starvation", "mixing", "forced-reliable"];
    let mut html = String::from("<div class=\"cards\">");
    for row in stops.iter().filter_map(ScenarioRuns::claim_row).filter(|row| chosen.contains(&row.name)) {
        let value = |value: Option<f64>| value.map_or_else(|| "–".into(), format_number);
        let _ = write!(
            html,
            "<div class=\"card\"><div class=\"label\">{}</div><div class=\"pair\"><span class=\"stock-text\">{}</span> \
             → <span class=\"bcnet-text\">{}</span> <span class=\"unit\">{}</span></div></div>",
            escape_html(&row.claim.label),
            value(row.stock),
            value(row.bcnet),
            escape_html(&row.claim.unit),
        );
    }
    html + "</div>"
}

fn outbox_section(stop: &ScenarioRuns) -> String {
    let line = |outcome: &RunSummary| {
        let node = outcome.nodes.iter().position(|node| node.name == "client").unwrap_or(0);
        let points = outcome.samples.iter();
        points.map(|sample| (seconds(sample.at), sample.nodes[node].queues.acks as f64)).collect()
    };
    let series = [
        PlotSeries { name: "stock", class: "stock", points: line(stop.stock.first()) },
        PlotSeries { name: "bcnet", class: "bcnet", points: line(stop.bcnet.first()) },
    ];
    let plot = plot::lines(&AxisLabels { x: "seconds", y: "ACKs in the client's outbox" }, &series);
    section(
        "ACKs in the outbox",
        "A reliable message is answered with an ACK. The original keeps the ACK and sends it nine times: three times \
        unconditionally, and six times only together with another message to the same peer. In the lull from 20 to 60 seconds \
        there is no other message, and the ACKs are stuck; only a keepalive every five seconds releases them once. bcnet sends \
        an ACK once and removes it.",
        &plot,
        "bcnet lab run lull",
    )
}

fn bytes_section(
    none: Option<&ScenarioRuns>,
    some: Option<&ScenarioRuns>,
    much: Option<&ScenarioRuns>,
) -> Option<String> {
    let stops = [none?, some?, much?];
    let runs: Vec<&EngineRuns> = stops.iter().flat_map(|stop| [&stop.stock, &stop.bcnet]).collect();
    let per_message = |part: fn(&EngineRuns) -> u64| -> Vec<(f64, f64)> {
        runs.iter()
            .map(|run| (0.0, part(run) as f64 / run.total_counters().delivered.max(1) as f64))
            .collect()
    };
    let parts = [
        PlotSeries {
            name: "game messages",
            class: "game",
            points: per_message(|run| {
                let total = run.total_counters();
                total.bytes - total.ack_bytes - total.retransmitted_bytes - 2 * total.datagrams
            }),
        },
        PlotSeries {
            name: "datagram headers",
            class: "head",
            points: per_message(|run| 2 * run.total_counters().datagrams),
        },
        PlotSeries {
            name: "retransmissions",
            class: "again",
            points: per_message(|run| run.total_counters().retransmitted_bytes),
        },
        PlotSeries { name: "ACKs", class: "acks", points: per_message(|run| run.total_counters().ack_bytes) },
    ];
    let rows = ["no loss: stock", "bcnet", "5 % loss: stock", "bcnet", "20 % loss: stock", "bcnet"];
    let plot = plot::stacked_bars(
        &AxisLabels { x: "bytes on the wire per game message", y: "" },
        &rows,
        &parts,
        None,
    );
    // Each reliable message has one useful ACK: the one that removes it from the retransmit queue.
    let each = |run: &EngineRuns| {
        format_number(run.total_counters().ack_bytes as f64 / run.total_counters().useful_acks.max(1) as f64)
    };
    let text = format!(
        "Ten minutes of a battle of three ships, with the rates of a recorded one. Most messages are unreliable and need no \
        ACK. For each reliable message, the original spends {} bytes on nine ACKs, many of them in separate datagrams; \
        bcnet spends {} bytes.",
        each(&stops[0].stock),
        each(&stops[0].bcnet),
    );
    Some(section(
        "Cost of a message",
        &text,
        &plot,
        "bcnet lab run battle battle-loss5 battle-loss20 --engine stock",
    ))
}

fn delay_section(
    none: Option<&ScenarioRuns>,
    some: Option<&ScenarioRuns>,
    much: Option<&ScenarioRuns>,
) -> Option<String> {
    let stops = [none?, some?, much?];
    let points = |share: f64, run: fn(&ScenarioRuns) -> &EngineRuns| -> Vec<(f64, f64)> {
        stops.iter().map(|stop| (0.0, run(stop).delay_quantile(None, share).unwrap_or(0.0))).collect()
    };
    let series = [
        PlotSeries { name: "stock, median", class: "stock-light", points: points(0.5, |stop| &stop.stock) },
        PlotSeries { name: "bcnet, median", class: "bcnet-light", points: points(0.5, |stop| &stop.bcnet) },
        PlotSeries { name: "stock, p99", class: "stock", points: points(0.99, |stop| &stop.stock) },
        PlotSeries { name: "bcnet, p99", class: "bcnet", points: points(0.99, |stop| &stop.bcnet) },
    ];
    let axes = AxisLabels { x: "datagrams lost, round trip 100 ms", y: "milliseconds to delivery" };
    let plot = plot::bars(&axes, &["0 %", "5 %", "20 %"], &series);
    Some(section(
        "Delay of a reliable message",
        "The same battle on links that lose datagrams. The original waits a second before it retransmits a message, then two, \
        three, four, five and one again, one message per peer and frame; later messages wait behind it. p99 is \
        the delay that one in a hundred reliable messages exceeds.",
        &plot,
        "bcnet lab run battle-loss5 --engine bcnet",
    ))
}

fn day_section(stop: &ScenarioRuns) -> String {
    let line = |outcome: &RunSummary| {
        let points = outcome.samples.iter().map(|sample| {
            let bytes: u64 = sample.nodes.iter().map(|node| node.counters.ack_bytes).sum();
            (seconds(sample.at) / 3600.0, bytes as f64 / 1e6)
        });
        points.collect()
    };
    let series = [
        PlotSeries { name: "stock", class: "stock", points: line(stop.stock.first()) },
        PlotSeries { name: "bcnet", class: "bcnet", points: line(stop.bcnet.first()) },
    ];
    let plot = plot::lines(&AxisLabels { x: "hours", y: "megabytes of ACKs, both ways" }, &series);
    let (stock, bcnet) = (stop.stock.total_counters(), stop.bcnet.total_counters());
    let text = format!(
        "The battle for 24 hours, between the host and one ship. The cost grows evenly: there is no leak that gets worse \
        with time, as was predicted. The longest outbox in the whole day had {} entries (bcnet: {}), and the original \
        compared {} list entries to find duplicates, {} per hour; bcnet finds duplicates by their number.",
        format_number(stock.queues.peak_acks as f64),
        format_number(bcnet.queues.peak_acks as f64),
        format_number(stock.comparisons.unwrap_or(0) as f64),
        format_number(stock.comparisons.unwrap_or(0) as f64 / 24.0),
    );
    section("A day of battle", &text, &plot, "bcnet lab run battle-day --engine stock")
}

fn datagram_space_section(battle: &ScenarioRuns, burst: &ScenarioRuns) -> String {
    let mean = |runs: &EngineRuns| {
        let total = runs.total_counters();
        let each = |bytes: u64| bytes as f64 / total.datagrams.max(1) as f64;
        [each(total.ack_bytes), each(total.bytes - total.ack_bytes - 2 * total.datagrams)]
    };
    let bytes = engine_bars(
        ["ACKs", "game messages"],
        [mean(&battle.stock), mean(&battle.bcnet)],
        "battle: bytes of the 510 that a datagram holds, on average",
        Some(510.0),
    );
    let host = |runs: &EngineRuns| runs.first().nodes.first().map(|node| node.counters).unwrap_or_default();
    let full = |runs: &EngineRuns| {
        let totals = host(runs);
        [totals.crowded as f64, (totals.datagrams - totals.crowded) as f64]
    };
    let datagrams = engine_bars(
        ["no space left after ACKs", "space for a game message"],
        [full(&burst.stock), full(&burst.bcnet)],
        "burst: datagrams of the host",
        None,
    );
    let delay = |runs: &EngineRuns| format_number(runs.delay_quantile(Some(0), 1.0).unwrap_or(0.0));
    let crowded = |stop: &ScenarioRuns| format_number(stop.stock.total_counters().crowded as f64);
    let text = format!(
        "ACKs go into a datagram first. In battle they take a few bytes, and left too little space for a large message in {} of \
        {} datagrams. In a burst of 400 messages they fill datagram after datagram, again every 0.67 s: {} of them. The \
        original sends one datagram per peer and frame, so game messages wait: the slowest one took {} ms. bcnet sends \
        each ACK once, and the next datagram at once: {} ms.",
        crowded(battle),
        format_number(battle.stock.total_counters().datagrams as f64),
        crowded(burst),
        delay(&burst.stock),
        delay(&burst.bcnet)
    );
    section("Space in a datagram", &text, &(bytes + &datagrams), "bcnet lab run starvation --engine stock")
}

/// Returns a chart with one bar for each engine, stacked from two parts.
fn engine_bars(names: [&str; 2], runs: [[f64; 2]; 2], axis: &str, max: Option<f64>) -> String {
    let points = |part: usize| runs.iter().map(|run| (0.0, run[part])).collect();
    let parts = [
        PlotSeries { name: names[0], class: "acks", points: points(0) },
        PlotSeries { name: names[1], class: "game", points: points(1) },
    ];
    plot::stacked_bars(&AxisLabels { x: axis, y: "" }, &["stock", "bcnet"], &parts, max)
}

fn claims_table(stops: &[ScenarioRuns]) -> String {
    let mut html = String::from(
        "<section><h2>Claims and results</h2><p>Each claim about the original, the result of the experiment, and \
        the same measurement on both engines. To run one, use <code>bcnet lab run NAME --engine stock|bcnet</code>.</p>\
        <div class=\"scroll\"><table><thead><tr><th>claim</th><th>verdict</th><th>result</th><th>measurement</th>\
         <th class=\"n\">stock</th><th class=\"n\">bcnet</th><th class=\"n\">factor</th></tr></thead><tbody>",
    );
    for row in stops.iter().filter_map(ScenarioRuns::claim_row) {
        let ClaimRow { name, claim, stock, bcnet, .. } = &row;
        let value = |value: &Option<f64>| value.map_or_else(|| "–".into(), format_number);
        let verdict = claim.verdict.to_string();
        let _ = write!(
            html,
            "<tr><td>{}<div class=\"small\">{} · <code>{name}</code></div></td><td><span class=\"tag {verdict}\">{verdict}</span></td>\
             <td>{}</td><td>{} <span class=\"unit\">({})</span></td><td class=\"n\">{}</td><td class=\"n\">{}</td>\
             <td class=\"n\">{}</td></tr>",
            escape_html(&claim.statement),
            escape_html(&claim.source),
            escape_html(&claim.finding),
            escape_html(&claim.label),
            escape_html(&claim.unit),
            value(stock),
            value(bcnet),
            row.factor_text(),
        );
    }
    html + "</tbody></table></div></section>"
}

fn seconds(time: bcnet_transport::Time) -> f64 {
    time.as_micros() as f64 / 1e6
}

const INTRODUCTION: &str = "The network code of <i>Star Trek: Bridge Commander</i> (2002) was said to have two faults: \
acknowledgements that are never cleaned up, and fragments that are retransmitted forever. This report runs a model of the original \
engine, rebuilt rule by rule, and bcnet in the same scenarios on a virtual network, in virtual time. \
<span class=\"stock-text\">Orange is the original</span>, <span class=\"bcnet-text\">green is bcnet</span>.";
