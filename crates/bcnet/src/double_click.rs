//! Start by a double click on Windows.
//!
//! The program has a separate window, which closes with the program. The user may never have used a terminal.

use std::env;
use std::fmt::Write as _;
use std::io::{self, BufRead, Write};
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::path::Path;
use std::process::{self, ExitCode};

use crate::config::ConfigFlags;
use crate::control::SocketInUse;
use crate::serve::{self, HostedGame, ReadyServer};
use crate::signals::{self, Signal};

/// Returns whether the program was started by a double click.
///
/// That is a start without arguments, in a console that no other program uses.
pub(crate) fn was_double_clicked() -> bool {
    #[cfg(windows)]
    return env::args_os().len() == 1 && crate::win32::console_process_count() == 1;
    #[cfg(not(windows))]
    false
}

/// Hosts a game with bcnet.toml from the program's directory, or with the defaults.
///
/// If that fails, the window stays open until the user has read the reason.
pub(crate) fn run() -> ExitCode {
    // *Run as administrator* starts programs in a system directory.
    if let Some(beside) = env::current_exe().ok().as_deref().and_then(Path::parent) {
        drop(env::set_current_dir(beside));
    }
    #[cfg(windows)]
    // If text in the window were selected, Ctrl-C would copy it instead of ending the game.
    drop(crate::win32::disable_quick_edit());
    let result = serve::host(ConfigFlags::default(), |open| {
        // The write fails if the window is already closed.
        drop(io::stdout().write_all(welcome_text(open, local_address()).as_bytes()));
    });
    let Err(error) = result else { return ExitCode::SUCCESS };
    // The first Ctrl-C handler was for a running game, and no game runs.
    drop(signals::listen_to_each(&[Signal::Stop], |_, exit_code| process::exit(exit_code)));
    println!("\nThe game cannot be hosted: {}\n\nPress Enter to close this window.", failure_text(&error));
    drop(io::stdin().lock().read_line(&mut String::new()));
    ExitCode::from(2)
}

/// Returns the reason why no game can be hosted, in words for people who do not know networks.
fn failure_text(error: &anyhow::Error) -> String {
    if error.root_cause().is::<SocketInUse>() {
        return ALREADY_RUNNING.into();
    }
    // In a terminal, each line of an error begins with `bcnet: `.
    format!("{error:#}").replace("\nbcnet: ", "\n")
}

/// Returns the text for the host: addresses to give to players, and how to stop.
fn welcome_text(open: &ReadyServer, address: Option<Ipv4Addr>) -> String {
    let mut text = String::new();
    for HostedGame { name, port } in &open.games {
        let here = address.map_or_else(|| "this machine's address".into(), |address| address.to_string());
        let _ = write!(
            text,
            "\nThe game \"{name}\" is open at UDP port {port}.\n\n\
             Players in your own network find it in the game's list of local servers,\n\
             or join {here}, port {port}.\n\
             Friends elsewhere join the address of your router, port {port};\n\
             search the web for \"what is my IP\" to see that address.\n\
             For that, the router must forward UDP port {port} to {here},\n\
             and the Windows firewall must let bcnet through: allow it when Windows asks.\n",
        );
    }
    if let Some(page) = &open.page_url {
        let _ = write!(
            text,
            "\nIn a browser on this computer you can see the players, and kick or ban:\n\
             {page}\n\
             To log in there, use the token in the file web-token.\n"
        );
    }
    text.push_str(
        "\nPlayers who join and leave are listed below.\n\
         To stop, press Ctrl-C or close this window: players are disconnected properly.\n",
    );
    let _ = match &open.config {
        Some(file) => write!(text, "Settings are read from this file, which you can change:\n{file}\n\n"),
        None => write!(
            text,
            "There is no bcnet.toml in the directory of this program, so the defaults\n\
             apply. To change them, save the output of `bcnet config default` there.\n\n"
        ),
    };
    text
}

/// Returns the address of this machine in its network.
///
/// This sends nothing: the system only selects the address from which it would send.
pub(crate) fn local_address() -> Option<Ipv4Addr> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).ok()?;
    socket.connect((DOCUMENTATION_ADDRESS, 9)).ok()?;
    match socket.local_addr().ok()? {
        SocketAddr::V4(address) if !address.ip().is_unspecified() => Some(*address.ip()),
        _ => None,
    }
}

const ALREADY_RUNNING: &str =
    "bcnet runs already. Close its other window first. If you find no window, run `bcnet ctl stop`.";
/// An address reserved for documentation. No machine has it.
const DOCUMENTATION_ADDRESS: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn welcome_text_shows_address_port_and_how_to_stop() {
        let games = vec![
            HostedGame { name: "Friday".into(), port: 22_101 },
            HostedGame { name: "Two".into(), port: 22_102 },
        ];
        let mut open = ReadyServer { games, page_url: None, config: None };
        let text = welcome_text(&open, Some(Ipv4Addr::new(10, 0, 0, 7)));
        for part in
            ["\"Friday\"", "10.0.0.7, port 22101", "10.0.0.7, port 22102", "Ctrl-C", "forward UDP port 22101"]
        {
            assert!(text.contains(part), "{part}\n{text}");
        }
        assert!(welcome_text(&open, None).contains("join this machine's address, port 22101"));
        assert!(!text.contains("browser"), "{text}");
        open.page_url = Some("http://127.0.0.1:8101/".into());
        let text = welcome_text(&open, None);
        assert!(text.contains("http://127.0.0.1:8101/\n") && text.contains("web-token"), "{text}");
        assert!(text.lines().all(|line| line.len() <= 80), "{text}");
    }

    #[test]
    fn welcome_text_shows_the_settings_file() {
        let mut open = ReadyServer { games: Vec::new(), page_url: None, config: None };
        let text = welcome_text(&open, None);
        assert!(text.contains("no bcnet.toml") && text.contains("`bcnet config default`"), "{text}");
        open.config = Some(r"C:\games\bcnet.toml".into());
        let text = welcome_text(&open, None);
        assert!(text.contains("\nC:\\games\\bcnet.toml\n") && !text.contains("config default"), "{text}");
    }

    #[test]
    fn second_start_asks_to_close_the_other_window() {
        let message = |error: anyhow::Error| failure_text(&error.context("control socket bcnet.sock"));
        assert_eq!(message(SocketInUse.into()), ALREADY_RUNNING);
        assert_eq!(message(anyhow::anyhow!("no\nbcnet: room")), "control socket bcnet.sock: no\nroom");
        let page = include_str!("../../../docs/tutorials/host-on-windows.md");
        assert!(page.contains(ALREADY_RUNNING.split_once('.').expect("two sentences").0));
    }
}
