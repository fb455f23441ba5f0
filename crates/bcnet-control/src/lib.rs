//! The protocol of a server's control socket: requests, responses, and their text form. No I/O.
//!
//! Each line on the socket is one JSON object. [`Envelope::parse`] parses a complete request, or returns a
//! one-line error. [`render_answer`] formats a response as text without control characters, so that it cannot
//! control a terminal. [`did_you_mean`] suggests the name that a mistyped word may mean.

mod render;
mod request;
mod spelling;

pub use render::{ColumnSpec, format_duration, render_answer, render_table, sanitize_for_terminal};
pub use request::{ControlResponse, Envelope, MAX_REQUEST, Request, RequestError, is_secret};
pub use spelling::{correct_spelling, did_you_mean, escape_key};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
