//! The standings: what the server has kept of its players, for everyone.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bcnet_control::span;
use bcnet_transport::Time;
use maud::{Markup, html};

use super::layout::Layout;
use crate::bans::Moment;
use crate::scores::{Order, Range, Standing, Store};
use crate::serve::web::site::{Reply, Visitor};

/// The latest standings. The file is read at most once in ten seconds, however many look.
#[derive(Default)]
pub(in super::super) struct Standings(Mutex<Option<(Time, Arc<Vec<Standing>>)>>);

impl Standings {
    /// Returns the best players, best first.
    fn get(&self, file: &Path, now: Time) -> anyhow::Result<Arc<Vec<Standing>>> {
        let mut latest = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, standings)) = latest.as_ref().filter(|(at, _)| now.since(*at) < FRESH) {
            return Ok(Arc::clone(standings));
        }
        let range = Range { since: None, limit: Some(MAX_ROWS) };
        let standings = Arc::new(Store::read(file)?.standings(range, Order::Points)?);
        *latest = Some((now, Arc::clone(&standings)));
        Ok(standings)
    }

    /// Shows them.
    pub(in super::super) fn reply(&self, file: &Path, visitor: Visitor, now: Time) -> Reply {
        let main = match self.get(file, now) {
            Ok(standings) if standings.is_empty() => {
                html! { p id="no-standings" { "Nobody has played yet." } }
            }
            Ok(standings) => table(&standings),
            // Where the file is concerns nobody who looks at this page.
            Err(_) => {
                html! { p id="no-standings" { "They cannot be read at the moment. Load the page again later." } }
            }
        };
        Layout { title: "Standings".into(), current: PATH, main }.reply(200, visitor)
    }
}

fn table(standings: &[Standing]) -> Markup {
    html! {
        div.scroll tabindex="0" role="region" aria-label="Standings" {
            table id="standings" {
                caption { "Names are what players call themselves; nobody checks them." }
                thead { tr {
                    th.n scope="col" { "Place" } th scope="col" { "Name" } th.n scope="col" { "Points" } th.n scope="col" { "Kills" }
                    th.n scope="col" { "Deaths" } th.n scope="col" { "Rounds" } th.n scope="col" { "Time" } th.wide scope="col" { "Last played" }
                } }
                tbody {
                    @for (Standing { rounds, last, score }, place) in standings.iter().zip(1..) {
                        tr {
                            td.n { (place) }
                            td.t { (score.name) }
                            td.n { (score.points) }
                            td.n { (score.kills) }
                            td.n { (score.deaths) }
                            td.n { (rounds) }
                            td.n { (span(score.seconds.unsigned_abs())) }
                            td.wide { (day(*last)) }
                        }
                    }
                }
            }
        }
    }
}

/// Returns the day of a moment: when somebody was there to the second concerns nobody else.
fn day(moment: i64) -> String {
    let moment = Moment(moment.unsigned_abs()).to_string();
    moment.split('T').next().unwrap_or_default().to_owned()
}

/// Where the page is.
pub(in super::super) const PATH: &str = "/standings";
/// How old standings may be.
const FRESH: Duration = Duration::from_secs(10);
/// More than that is for `bcnet stats`.
const MAX_ROWS: u32 = 100;
