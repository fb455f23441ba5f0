//! The laws: one module for each, without knowledge of the world.

pub mod beam;
pub mod cloak;
pub mod collision;
pub mod condition;
pub mod death;
pub mod footprint;
pub mod power;
pub mod pulse;
pub mod repair;
pub mod score;
pub mod shield;
pub mod torpedo;
pub mod tractor;
