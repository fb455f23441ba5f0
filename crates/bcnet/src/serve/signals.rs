//! SIGTERM and SIGINT end the server, SIGHUP reloads it.

use std::process;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver};
use std::thread;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use super::control_plane::ControlPlane;

/// Listens to signals from now on.
pub(super) fn start(plane: Arc<ControlPlane>) -> anyhow::Result<()> {
    let mut signals = Signals::new([SIGHUP, SIGINT, SIGTERM])?;
    // One more may be wanted while one is under way: the files may have changed since it has read them.
    let (wish, wishes) = mpsc::sync_channel(1);
    reload(Arc::clone(&plane), wishes)?;
    let listen = move || {
        let mut ending = false;
        for signal in signals.forever() {
            match signal {
                SIGHUP => drop(wish.try_send(())),
                // Whoever asks twice does not want to wait for goodbyes.
                _ if ending => process::exit(128 + signal),
                _ => {
                    ending = true;
                    plane.commands.give(|game, now| game.stop(now));
                }
            }
        }
    };
    thread::Builder::new().name("signals".into()).spawn(listen)?;
    Ok(())
}

/// Reloads when it is wished. Files may take their time, and meanwhile the end of the server must be heard.
fn reload(plane: Arc<ControlPlane>, wishes: Receiver<()>) -> anyhow::Result<()> {
    let dispatch = move || {
        for () in wishes {
            // The log tells what became of it.
            drop(plane.reload());
        }
    };
    thread::Builder::new().name("reload".into()).spawn(dispatch)?;
    Ok(())
}
