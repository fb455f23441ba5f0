//! Decides damage, collisions, deaths and scores of Star Trek: Bridge Commander, without I/O.
//!
//! A [`World`] has the ships of one session. The caller feeds it what the players report ([`Input`]) and the
//! time ([`World::advance`]). It answers with [`Decision`]s, and keeps a [`ledger`] of all damage and a score
//! for each player. The [`laws`] are the rules R-01 to R-15 of PROTOCOL.md, one module for each.
//!
//! # State
//! No part of bcnet uses this crate yet: the server relays, and decides nothing. The crate was never
//! compared with a stock host in a network game. The tests replay measurements of the original game in single
//! player; `tests/experiments.rs` prints each with its computed value.
//!
//! # Contract
//! - The crate has no clock, file, socket, thread or source of randomness. Time and seed are arguments.
//! - The same seed, inputs and times give the same decisions and the same ledger, on every platform.
//! - No input makes the crate panic. An impossible input changes nothing, returns a [`Refusal`] and is
//!   counted (R-16).
//! - Memory has a bound: [`MAX_SHIPS`] ships, [`MAX_SHOTS`] projectiles, [`ledger::CAPACITY`] entries.
//!
//! ```
//! use core::time::Duration;
//! use bcnet_referee::{Input, ObjectId, Slot, World};
//!
//! let (kirk, chang) = (ObjectId(0x3FFF_FFFF), ObjectId(0x4003_FFFF));
//! let mut world = World::new(1);
//! for (ship, slot, species, y) in [(kirk, 0, 3, 0.0), (chang, 1, 6, 50.0)] {
//!     let (position, rotation) = ([0.0, y, 0.0], [1.0, 0.0, 0.0, 0.0]);
//!     world.apply(&Input::Arrive { ship, slot: Slot(slot), species, position, rotation })?;
//! }
//! // The Galaxy's phasers are its twelfth part.
//! let phasers = ObjectId(kirk.0 + 12);
//! world.apply(&Input::StartFire { weapon: phasers, target: chang, aim: None })?;
//! let mut decisions = Vec::new();
//! world.advance(Duration::from_secs(2), &mut decisions);
//! assert_eq!(world.ledger().entries().count(), 2);
//! # Ok::<(), bcnet_referee::Refusal>(())
//! ```
#![no_std]
#![deny(unsafe_code)]
#![warn(clippy::unwrap_used)]

extern crate alloc;

pub mod classes;
pub mod clock;
mod decision;
mod input;
pub mod laws;
pub mod ledger;
pub mod projectiles;
pub mod vector;
mod world;

pub use decision::{Attacker, Decision, Repair};
pub use input::{Input, Motion, ObjectId, REFUSALS, Refusal, Slot};
pub use world::ship::{Life, Ship};
pub use world::{MAX_SHIPS, MAX_SHOTS, MAX_SLOTS, World};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
