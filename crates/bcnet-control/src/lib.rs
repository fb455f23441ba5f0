//! What `bcnet ctl` and a running server say to each other: requests, answers, and answers as people read them. No I/O.
//!
//! A line is one JSON object. [`Envelope::parse`] reads a request whole or says in one short line what is wrong with it;
//! [`show`] prints an answer so that nothing in it takes over a terminal. [`did_you_mean`] finds what a mistyped name was
//! meant to be, here and wherever else people type names.

mod nearest;
mod request;
mod table;

pub use nearest::{did_you_mean, misspelt, short};
pub use request::{Answer, Envelope, MAX_REQUEST, Refusal, Request, is_secret};
pub use table::{Column, show, shown, span, table};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
