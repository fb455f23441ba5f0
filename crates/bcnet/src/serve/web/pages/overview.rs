//! All sessions and players at a glance.

use maud::html;

use super::format::{bytes, duration, millis};
use super::layout::{Layout, act, tile};
use super::tables::{self, View};
use crate::serve::web::picture::Picture;
use crate::serve::web::site::Visitor;

pub(super) fn page(picture: &Picture, visitor: &Visitor) -> Layout {
    let [sessions, players] = ["s", "p"].map(|prefix| View::read(prefix, &visitor.query));
    let main = html! {
        section id="totals" data-live="" aria-label="Totals" { (totals(picture)) }
        h2 { "Sessions" }
        section id="sessions" data-live="" { (tables::sessions(&sessions, &picture.sessions)) }
        h2 { "Players" }
        section id="players" data-live="" { (tables::players(&players, picture.players.iter().collect())) }
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

fn totals(picture: &Picture) -> maud::Markup {
    let sessions = &picture.sessions;
    let worst = |figure: fn(&crate::serve::web::picture::Session) -> Option<f64>| {
        sessions.iter().filter_map(figure).max_by(f64::total_cmp)
    };
    let sum =
        |figure: fn(&crate::serve::web::picture::Session) -> u64| sessions.iter().map(figure).sum::<u64>();
    let open = sessions.iter().filter(|one| one.state == "open").count();
    let in_game: usize = sessions.iter().map(|one| one.in_game).sum();
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
            (tile("Up", duration(picture.uptime_s)))
        }
    }
}
