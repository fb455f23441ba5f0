//! Simulates hours of battle traffic for `.ci/long`: `long HOURS` prints the number of messages of each hour.

use std::env;
use std::process::ExitCode;

use day::SimulatedBattle;

mod day;

fn main() -> ExitCode {
    // Cargo adds --bench to the arguments.
    let arguments: Vec<_> = env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let hours = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => 1,
        [hours] if hours.parse::<u32>().is_ok() => hours.parse().unwrap_or(1),
        _ => {
            eprintln!("arguments: [HOURS]");
            return ExitCode::from(2);
        }
    };
    let mut day = SimulatedBattle::new();
    for _ in 0..hours {
        println!("{}", one_hour(&mut day));
    }
    eprintln!("{} datagrams, {} of {} orders arrived", day.datagrams(), day.received, day.sent);
    if day.received + 10 < day.sent { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// Simulates one hour. Callgrind starts a new count at this function.
#[inline(never)]
fn one_hour(day: &mut SimulatedBattle) -> u64 {
    let before = day.messages;
    day.run(3600);
    day.messages - before
}
