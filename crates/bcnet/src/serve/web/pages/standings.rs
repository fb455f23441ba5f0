//! The public standings of players, from the scores file.

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

use bcnet_control::format_duration;
use bcnet_transport::Time;
use maud::{Markup, html};

use super::layout::Layout;
use crate::bans::Timestamp;
use crate::scores::{PlayerStanding, ScoreQuery, ScoreStore, StandingOrder};
use crate::serve::web::site::{PageResponse, RequestContext};

/// The latest standings.
///
/// The file is read at most once in ten seconds, for all viewers together, and by one thread at a time.
/// Reading may take long, and waiting threads would block all other pages.
#[derive(Default)]
pub(in super::super) struct Standings {
    cache: Mutex<StandingsCache>,
    /// Held while a thread reads the file.
    read_lock: Mutex<()>,
}

/// The time of the last read, and the last result.
#[derive(Clone, Default)]
struct StandingsCache {
    read_at: Option<Time>,
    standings: Option<Arc<Vec<PlayerStanding>>>,
}

impl Standings {
    /// Returns the best players, best first, as of the last successful read.
    fn get(&self, file: &Path, now: Time) -> Option<Arc<Vec<PlayerStanding>>> {
        let StandingsCache { read_at: asked, standings: known } = self.lock_cache().clone();
        if asked.is_some_and(|asked| now.since(asked) < REFRESH_INTERVAL) {
            return known;
        }
        let _alone = match self.read_lock.try_lock() {
            Ok(alone) => alone,
            Err(TryLockError::Poisoned(alone)) => alone.into_inner(),
            Err(TryLockError::WouldBlock) => return known,
        };
        let range = ScoreQuery { since: None, limit: Some(MAX_ROWS) };
        let read = ScoreStore::open_read_only(file)
            .ok()
            .and_then(|store| store.standings(range, StandingOrder::Points).ok());
        let known = read.map(Arc::new).or(known);
        *self.lock_cache() = StandingsCache { read_at: Some(now), standings: known.clone() };
        known
    }

    fn lock_cache(&self) -> MutexGuard<'_, StandingsCache> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Renders the page.
    pub(in super::super) fn render(&self, file: &Path, context: RequestContext, now: Time) -> PageResponse {
        let main = match self.get(file, now) {
            Some(standings) if standings.is_empty() => {
                html! { p id="no-standings" { "No rounds have been played yet." } }
            }
            Some(standings) => standings_table(&standings),
            // Visitors of this public page must not learn the path of the file.
            None => {
                html! { p id="no-standings" { "The standings cannot be read at the moment. Reload the page later." } }
            }
        };
        Layout { title: "Standings".into(), menu_entry: PATH, main }.reply(200, context)
    }
}

fn standings_table(standings: &[PlayerStanding]) -> Markup {
    html! {
        div.scroll tabindex="0" role="region" aria-label="Standings" {
            table id="standings" {
                caption { "Players choose their names; the server does not verify them." }
                thead { tr {
                    th.n scope="col" { "Place" } th scope="col" { "Name" } th.n scope="col" { "Points" } th.n scope="col" { "Kills" }
                    th.n.wide scope="col" { "Deaths" } th.n scope="col" { "Rounds" } th.n.wide scope="col" { "Time" } th.wide scope="col" { "Last played" }
                } }
                tbody {
                    @for (PlayerStanding { rounds, last_played, score }, place) in standings.iter().zip(1..) {
                        tr {
                            td.n { (place) }
                            td.t { (score.name) }
                            td.n { (score.points) }
                            td.n { (score.kills) }
                            td.n.wide { (score.deaths) }
                            td.n { (rounds) }
                            td.n.wide { (format_duration(score.seconds.unsigned_abs())) }
                            td.wide { (day(*last_played)) }
                        }
                    }
                }
            }
        }
    }
}

/// Returns the day of a time. The exact time is personal data.
fn day(moment: i64) -> String {
    let moment = Timestamp(moment.unsigned_abs()).to_string();
    moment.split('T').next().unwrap_or_default().to_owned()
}

/// The path of the page.
pub(in super::super) const PATH: &str = "/standings";
/// Longest age of the standings.
const REFRESH_INTERVAL: Duration = Duration::from_secs(10);
/// Largest number of rows. `bcnet stats` shows all.
const MAX_ROWS: u32 = 100;

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn at(seconds: u64) -> Time {
        Time::ZERO + Duration::from_secs(seconds)
    }

    /// A slow file must block only one thread.
    #[test]
    fn one_reader_at_a_time_and_failed_reads_wait_before_retry() {
        let directory = std::env::temp_dir().join(format!("bcnet-standings-{}", std::process::id()));
        fs::create_dir_all(&directory).expect("create directory");
        let file = directory.join("scores.db");
        let standings = Standings::default();
        assert!(standings.get(&file, at(0)).is_none(), "no file exists");
        drop(ScoreStore::open(&file).expect("new file"));
        assert!(standings.get(&file, at(9)).is_none(), "the retry interval is not over");
        assert!(standings.get(&file, at(10)).is_some_and(|known| known.is_empty()));
        fs::remove_dir_all(&directory).expect("removed");
        let reading = standings.read_lock.lock().expect("not locked");
        assert!(standings.get(&file, at(20)).is_some(), "the old result is returned during another read");
        assert_eq!(standings.lock_cache().read_at, Some(at(10)));
        drop(reading);
        assert!(standings.get(&file, at(20)).is_some(), "a failed read returns the old result");
        assert_eq!(standings.lock_cache().read_at, Some(at(20)));
    }
}
