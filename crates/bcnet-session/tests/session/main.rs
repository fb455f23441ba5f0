//! A session through its whole life, in virtual time.

mod join;
mod vectors;
mod world;
