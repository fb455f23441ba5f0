//! What `bcnet ctl` and a running server say to each other: requests, answers, and answers as people read them. No I/O.
//!
//! A line is one JSON object. [`Envelope::parse`] reads a request whole or says in one short line what is wrong with it;
//! [`show`] prints an answer so that nothing in it takes over a terminal. [`did_you_mean`] finds what a mistyped name was
//! meant to be, here and wherever else people type names.

mod render;
mod request;
mod spelling;

pub use render::{ColumnSpec, format_duration, render_answer, render_table, sanitize_for_terminal};
pub use request::{ControlResponse, Envelope, MAX_REQUEST, Request, RequestError, is_secret};
pub use spelling::{correct_spelling, did_you_mean, escape_key};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
