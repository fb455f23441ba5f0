//! Tests of a session and its clients, in virtual time.

mod admission;
mod client;
mod fairness;
mod faults;
mod files;
mod hostile;
mod join;
mod kills;
mod leave;
mod moderation;
mod names;
mod newcomers;
mod play;
mod policy;
mod policy_actions;
mod policy_time;
mod queries;
mod raw_client;
mod retained_state;
mod rounds;
mod send_queue;
mod stock;
mod uplink;
mod vectors;
mod world;
