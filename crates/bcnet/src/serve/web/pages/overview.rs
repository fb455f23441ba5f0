//! All sessions and players at a glance.

use maud::{Markup, html};

use super::format::{bytes, duration, millis};
use super::layout::{Layout, act, tile};
use super::plots;
use super::tables::{self, View};
use crate::answers::Session;
use crate::serve::web::picture::Picture;
use crate::serve::web::site::{Site, Visitor};

pub(super) fn page(site: &Site, picture: &Picture, visitor: &Visitor) -> Layout {
    body(picture, visitor, &plots::section(site, None, visitor))
}

fn body(picture: &Picture, visitor: &Visitor, plots: &Markup) -> Layout {
    let [sessions, players] = ["s", "p"].map(|prefix| View::read(prefix, &visitor.query));
    let main = html! {
        section id="totals" data-live="" aria-label="Totals" { (totals(picture)) }
        (plots)
        form.act method="get" action="/" role="search" id="search" {
            label { "Sessions and players with this in their names" input name="q" type="search" maxlength="100" value=(visitor.query.get("q")); }
            button type="submit" { "Find" }
        }
        h2 { "Sessions" }
        section id="sessions" data-live="" { (tables::sessions(&sessions, picture.sessions())) }
        h2 { "Players" }
        section id="players" data-live="" { (tables::players(&players, picture.players.iter())) }
        @if let Some(operator) = &visitor.operator {
            h2 { "Say something to everyone" }
            (act(operator, "say", &[("action", "say")], html! {
                label { "Text" input name="text" required maxlength="200" autocomplete="off"; }
                button type="submit" { "Say" }
            }))
        } @else {
            p.dim { "Chat, addresses and everything that can be done here need the token: " a href="/login" { "log in" } "." }
        }
    };
    Layout { title: "Overview".into(), current: "/", main }
}

fn totals(picture: &Picture) -> Markup {
    let sessions = picture.sessions();
    let worst =
        |figure: fn(&Session) -> Option<f64>| sessions.iter().filter_map(figure).max_by(f64::total_cmp);
    let sum = |figure: fn(&Session) -> u64| sessions.iter().map(figure).sum::<u64>();
    let open = sessions.iter().filter(|one| one.is_open()).count();
    let in_game: u64 = sessions.iter().map(|one| one.in_game).sum();
    let lost = sum(|one| one.overflowed + one.unsent);
    html! {
        dl.tiles {
            (tile("Players", picture.players.len()))
            (tile("In the game", in_game))
            (tile("Sessions open", format!("{open} of {}", sessions.len())))
            (tile("Relay delay p99, worst", format!("{} ms", millis(worst(|one| one.relay_p99_ms)))))
            (tile("Round trip p50, worst", format!("{} ms", millis(worst(|one| one.round_trip_p50_ms)))))
            (tile("In", format!("{}/s", bytes(sum(|one| one.bytes_in_per_second)))))
            (tile("Out", format!("{}/s", bytes(sum(|one| one.bytes_out_per_second)))))
            (tile("Datagrams lost here", lost))
            (tile("Up", duration(picture.status.uptime_s)))
        }
    }
}

#[cfg(test)]
mod tests {
    use bcnet_udp::Clock;

    use super::*;
    use crate::answers::{Player, Shown, Status};
    use crate::serve::web::form::Form;

    /// As many sessions and players as a process may have.
    fn crowded() -> Picture {
        let sessions = (0..1000).map(|n| Session {
            name: Shown(format!("Session <{n}> & friends")),
            port: 22101 + n,
            players: 16,
            limit: 16,
            system: Shown("Multi1".into()),
            state: Shown("open".into()),
            relay_p99_ms: Some(f64::from(n) / 100.0),
            round_trip_p50_ms: Some(80.5),
            bytes_out_per_second: 60_000,
            ..Session::default()
        });
        let players = (0..16_000).map(|n| Player {
            session: Shown(format!("Session <{}> & friends", n / 16)),
            port: 22101 + n / 16,
            peer: 2 + (n % 16) as u8,
            name: Shown(format!("<b>Captain {n}</b>")),
            state: Shown("in game".into()),
            ship_name: Some(Shown("Sovereign".into())),
            round_trip_ms: Some(80.0),
            relay_p99_ms: Some(0.2),
            connected_s: 3000,
            queued_bytes: 900,
            loss: Some(0.01),
            ..Player::default()
        });
        let (sessions, players) = (sessions.collect(), players.collect());
        Picture { status: Status { uptime_s: 90_000, sessions, ..Status::default() }, players }
    }

    fn shown(picture: &Picture, query: &str) -> String {
        let (query, nonce) = (Form::parse(query), "0".repeat(64));
        let visitor =
            Visitor { operator: None, query, nonce, is_live: false, has_until: None, has_standings: false };
        body(picture, &visitor, &html! {}).reply(200, visitor).body
    }

    #[test]
    fn a_thousand_sessions_are_a_page_that_loads_at_once() {
        let picture = crowded();
        let clock = Clock::start();
        let page = shown(&picture, "ssort=relay&sorder=desc&psort=name");
        println!("1,000 sessions, 16,000 players: {} bytes in {:?}", page.len(), clock.now());
        assert!(page.len() < 80_000, "{} bytes, and plots have their part of 100 kB", page.len());
        assert!(page.contains("Page 1 of 20") && page.contains("Page 1 of 320"));
        assert!(
            page.find("Session &lt;999&gt;").is_some_and(|at| Some(at) < page.find("Session &lt;998&gt;"))
        );
        assert!(!page.contains("<b>") && page.contains("&lt;b&gt;Captain"));
    }

    #[test]
    fn pages_that_nobody_has_are_empty_and_sorting_by_nothing_is_none() {
        let picture = crowded();
        for query in
            ["spage=0&ppage=99999999999999999999", "spage=18446744073709551615", "ssort=evil&sorder=x"]
        {
            assert!(shown(&picture, query).contains("Sessions: 1000"), "{query}");
        }
        let found = shown(&picture, "q=CAPTAIN+1599");
        assert!(found.contains("Players: 11") && found.contains("Sessions: 0"), "{found}");
        assert!(
            shown(&picture, "q=<7>%22&ssort=x").contains("?q=%3c7%3e%22&amp;"),
            "links keep what is looked for"
        );
        let both = shown(&picture, "q=7&ssort=relay&sorder=desc&evil=1");
        assert!(
            both.contains("?q=7&amp;ssort=relay&amp;sorder=desc&amp;psort=loss&amp;")
                && !both.contains("evil"),
            "{both}"
        );
        assert!(shown(&picture, "q=xyz").contains("Nobody has that in the name."));
        assert!(shown(&picture, "spage=20").contains("Session &lt;999&gt;"));
        assert!(shown(&Picture::default(), "").contains("Nobody is here."));
    }
}
