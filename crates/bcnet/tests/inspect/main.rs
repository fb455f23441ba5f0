//! `bcnet inspect` on captures and packet logs, as a user runs it.

mod capture_join;
mod captures;
mod compressed;
mod detail_views;
mod dump_logs;
mod finding_locations;
mod findings;
mod follow;
mod formats;
mod hex_dumps;
mod inputs;
#[cfg(unix)]
mod live;
mod many_conversations;
mod merge;
mod report;
#[path = "../run/mod.rs"]
mod run;
mod terminal;
mod text_output;
