//! SIGTERM and SIGINT end the server, SIGHUP reloads it.

use std::process;
use std::sync::Arc;
use std::thread;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use super::plane::Plane;

/// Listens to signals from now on.
pub(super) fn start(plane: Arc<Plane>) -> anyhow::Result<()> {
    let mut signals = Signals::new([SIGHUP, SIGINT, SIGTERM])?;
    let listen = move || {
        let mut ending = false;
        for signal in signals.forever() {
            match signal {
                // The log tells what became of it.
                SIGHUP => drop(plane.reload()),
                // Whoever asks twice does not want to wait for goodbyes.
                _ if ending => process::exit(128 + signal),
                _ => {
                    ending = true;
                    plane.orders.give(|game, now| game.stop(now));
                }
            }
        }
    };
    thread::Builder::new().name("signals".into()).spawn(listen)?;
    Ok(())
}
