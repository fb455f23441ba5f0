//! A session through its whole life, in virtual time.

mod admission;
mod client;
mod fairness;
mod faults;
mod files;
mod hostile;
mod introduce;
mod join;
mod kills;
mod leave;
mod lines;
mod moderate;
mod newcomers;
mod play;
mod queries;
mod raw;
mod rounds;
mod stock;
mod vectors;
mod world;
