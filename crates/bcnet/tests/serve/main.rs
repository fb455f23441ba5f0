//! `bcnet serve`, `bcnet ctl` and `bcnet proxy` as real processes over loopback.
//!
//! These tests cover sockets, signals, files and exit codes. The tests of the session cover slow behaviour in
//! virtual time.

mod agones;
mod connection;
mod console;
mod control;
mod faults;
mod files;
mod full_game;
mod hooks;
mod http_stub;
mod join;
mod kills;
mod lifecycle;
mod manifest;
mod metrics;
mod mistakes;
mod panel;
mod player;
mod proxy;
mod proxy_run;
#[path = "../run/mod.rs"]
mod run;
mod samples;
mod scores;
mod scripted_host;
mod server;
mod sockets;
#[cfg(unix)]
mod top;
mod web;
