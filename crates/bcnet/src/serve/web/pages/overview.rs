//! The overview of all sessions and players.

use maud::{Markup, html};

use super::format::{bytes, duration, millis};
use super::layout::{Layout, action_form, tile};
use super::plots;
use super::tables::{self, TableView};
use crate::serve::web::site::{RequestContext, Site};
use crate::serve::web::snapshot::WebSnapshot;
use crate::server_info::SessionInfo;

pub(super) fn page(site: &Site, snapshot: &WebSnapshot, context: &RequestContext) -> Layout {
    body(snapshot, context, &plots::section(site, None, context))
}

fn body(snapshot: &WebSnapshot, context: &RequestContext, plots: &Markup) -> Layout {
    let [sessions, players] = ["s", "p"].map(|prefix| TableView::from_query(prefix, &context.query));
    let main = html! {
        section id="totals" data-live="" aria-label="Totals" { (totals(snapshot)) }
        (plots)
        form.act method="get" action="/" role="search" id="search" {
            label { "Search names of sessions and players" input name="q" type="search" maxlength="100" value=(context.query.get("q")); }
            button type="submit" { "Find" }
        }
        h2 { "Sessions" }
        section id="sessions" data-live="" { (tables::sessions_table(&sessions, snapshot.sessions())) }
        h2 { "Players" }
        section id="players" data-live="" { (tables::players_table(&players, snapshot.players.iter())) }
        @if let Some(operator) = &context.operator {
            h2 { "Message to all players" }
            (action_form(operator, "say", &[("action", "say")], html! {
                label { "Text" input name="text" required maxlength="200" autocomplete="off"; }
                button type="submit" { "Send" }
            }))
        } @else {
            p.dim { "Chat, addresses and actions need a login: " a href="/login" { "log in" } "." }
        }
    };
    Layout { title: "Overview".into(), menu_entry: "/", main }
}

fn totals(snapshot: &WebSnapshot) -> Markup {
    let sessions = snapshot.sessions();
    let worst =
        |figure: fn(&SessionInfo) -> Option<f64>| sessions.iter().filter_map(figure).max_by(f64::total_cmp);
    let sum = |figure: fn(&SessionInfo) -> u64| sessions.iter().map(figure).sum::<u64>();
    let open = sessions.iter().filter(|one| one.is_open()).count();
    let in_game: u64 = sessions.iter().map(|one| one.in_game).sum();
    let lost = sum(|one| one.overflowed + one.unsent);
    html! {
        dl.tiles {
            (tile("Players", snapshot.players.len()))
            (tile("In the game", in_game))
            (tile("Sessions open", format!("{open} of {}", sessions.len())))
            (tile("Relay delay p99, highest", format!("{} ms", millis(worst(|one| one.relay_p99_ms)))))
            (tile("Round-trip time p50, highest", format!("{} ms", millis(worst(|one| one.round_trip_p50_ms)))))
            (tile("Received", format!("{}/s", bytes(sum(|one| one.bytes_in_per_second)))))
            (tile("Sent", format!("{}/s", bytes(sum(|one| one.bytes_out_per_second)))))
            (tile("Datagrams dropped or not sent", lost))
            (tile("Uptime", duration(snapshot.status.uptime_s)))
        }
    }
}

#[cfg(test)]
mod tests {
    use bcnet_udp::Clock;

    use super::*;
    use crate::serve::web::form::FormData;
    use crate::server_info::{PlayerInfo, SanitizedText, ServerInfo};

    /// The largest number of sessions and players of one process.
    fn large_snapshot() -> WebSnapshot {
        let sessions = (0..1000).map(|n| SessionInfo {
            name: SanitizedText(format!("Session <{n}> & friends")),
            port: 22101 + n,
            players: 16,
            limit: 16,
            system: SanitizedText("Multi1".into()),
            state: SanitizedText("open".into()),
            relay_p99_ms: Some(f64::from(n) / 100.0),
            round_trip_p50_ms: Some(80.5),
            bytes_out_per_second: 60_000,
            ..SessionInfo::default()
        });
        let players = (0..16_000).map(|n| PlayerInfo {
            session: SanitizedText(format!("Session <{}> & friends", n / 16)),
            port: 22101 + n / 16,
            peer: 2 + (n % 16) as u8,
            name: SanitizedText(format!("<b>Captain {n}</b>")),
            state: SanitizedText("in game".into()),
            ship_name: Some(SanitizedText("Sovereign".into())),
            round_trip_ms: Some(80.0),
            relay_p99_ms: Some(0.2),
            connected_s: 3000,
            queued_bytes: 900,
            loss: Some(0.01),
            ..PlayerInfo::default()
        });
        let (sessions, players) = (sessions.collect(), players.collect());
        WebSnapshot { status: ServerInfo { uptime_s: 90_000, sessions, ..ServerInfo::default() }, players }
    }

    fn render(snapshot: &WebSnapshot, query: &str) -> String {
        let (query, nonce) = (FormData::parse(query), "0".repeat(64));
        let context = RequestContext {
            operator: None,
            query,
            nonce,
            is_live_update: false,
            plots_until: None,
            has_standings: false,
        };
        body(snapshot, &context, &html! {}).reply(200, context).body
    }

    #[test]
    fn overview_of_a_thousand_sessions_stays_small() {
        let snapshot = large_snapshot();
        let clock = Clock::start();
        let page = render(&snapshot, "ssort=relay&sorder=desc&psort=name");
        println!("1,000 sessions, 16,000 players: {} bytes in {:?}", page.len(), clock.now());
        assert!(page.len() < 80_000, "{} bytes; the plots need the rest of 100 kB", page.len());
        assert!(page.contains("Page 1 of 20") && page.contains("Page 1 of 320"));
        assert!(
            page.find("Session &lt;999&gt;").is_some_and(|at| Some(at) < page.find("Session &lt;998&gt;"))
        );
        assert!(!page.contains("<b>") && page.contains("&lt;b&gt;Captain"));
    }

    #[test]
    fn overview_handles_bad_page_numbers_sort_keys_and_search() {
        let snapshot = large_snapshot();
        for query in
            ["spage=0&ppage=99999999999999999999", "spage=18446744073709551615", "ssort=evil&sorder=x"]
        {
            assert!(render(&snapshot, query).contains("Sessions: 1000"), "{query}");
        }
        let found = render(&snapshot, "q=CAPTAIN+1599");
        assert!(found.contains("Players: 11") && found.contains("Sessions: 0"), "{found}");
        assert!(
            render(&snapshot, "q=<7>%22&ssort=x").contains("?q=%3c7%3e%22&amp;"),
            "links keep the search text"
        );
        let both = render(&snapshot, "q=7&ssort=relay&sorder=desc&evil=1");
        assert!(
            both.contains("?q=7&amp;ssort=relay&amp;sorder=desc&amp;psort=loss&amp;")
                && !both.contains("evil"),
            "{both}"
        );
        assert!(render(&snapshot, "q=xyz").contains("No player name matches."));
        assert!(render(&snapshot, "spage=20").contains("Session &lt;999&gt;"));
        assert!(render(&WebSnapshot::default(), "").contains("No players."));
    }
}
