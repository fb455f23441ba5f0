//! `bcnet inspect` on captures and packet logs, as a user runs it.

mod captures;
mod dump_logs;
mod dumps;
mod findings;
mod follow;
mod formats;
mod inputs;
mod joining;
#[cfg(unix)]
mod live;
mod many;
mod merge;
mod packed;
mod places;
mod reading;
mod report;
#[path = "../run/mod.rs"]
mod run;
mod stories;
mod terminal;
