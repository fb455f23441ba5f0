//! Started by a double click: in a window of its own, which vanishes with the program, by somebody who may never have used a
//! terminal.

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

/// Returns whether the program was started that way: without arguments, in a console that it shares with no other program.
pub(crate) fn was_double_clicked() -> bool {
    #[cfg(windows)]
    return env::args_os().len() == 1 && crate::win32::console_process_count() == 1;
    #[cfg(not(windows))]
    false
}

/// Hosts a game with what bcnet.toml beside the program says, or with the defaults. If that fails, the window stays until its
/// user has read why.
pub(crate) fn run() -> ExitCode {
    // *Run as administrator* starts programs in a directory of the system.
    if let Some(beside) = env::current_exe().ok().as_deref().and_then(Path::parent) {
        drop(env::set_current_dir(beside));
    }
    #[cfg(windows)]
    // With something selected, Ctrl-C would copy it instead of ending the game.
    drop(crate::win32::disable_quick_edit());
    let told = serve::host(ConfigFlags::default(), |open| {
        // There may be no window any more.
        drop(io::stdout().write_all(welcome_text(open, local_address()).as_bytes()));
    });
    let Err(error) = told else { return ExitCode::SUCCESS };
    // What listened to Ctrl-C was to end a game, and there is none.
    drop(signals::listen_to_each(&[Signal::Stop], |_, exit_code| process::exit(exit_code)));
    println!("\nThe game cannot be hosted: {}\n\nPress Enter to close this window.", failure_text(&error));
    drop(io::stdin().lock().read_line(&mut String::new()));
    ExitCode::from(2)
}

/// Returns why no game can be hosted, for somebody who knows of windows, not of sockets.
fn failure_text(error: &anyhow::Error) -> String {
    if error.root_cause().is::<SocketInUse>() {
        return ALREADY_RUNNING.into();
    }
    // Each line of an error begins as the first does in a terminal.
    format!("{error:#}").replace("\nbcnet: ", "\n")
}

/// Returns what a host has to know.
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
            "\nFor your browser on this computer: {page}\n\
             shows who plays, and lets you act: \"log in\" there asks for the token,\n\
             which is in the file web-token.\n"
        );
    }
    text.push_str(
        "\nWho joins and leaves is told below.\n\
         To stop, press Ctrl-C or close this window: players are told.\n",
    );
    let _ = match &open.config {
        Some(file) => write!(text, "Settings are read from this file, which you can change:\n{file}\n\n"),
        None => write!(
            text,
            "There is no bcnet.toml beside this program, so it has its usual settings;\n\
             `bcnet config default` prints them, to be changed and put there.\n\n"
        ),
    };
    text
}

/// Returns the address that this machine has in its network. Nothing is sent for that: the system is asked where it would send
/// from.
pub(crate) fn local_address() -> Option<Ipv4Addr> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).ok()?;
    socket.connect((DOCUMENTATION_ADDRESS, 9)).ok()?;
    match socket.local_addr().ok()? {
        SocketAddr::V4(address) if !address.ip().is_unspecified() => Some(*address.ip()),
        _ => None,
    }
}

const ALREADY_RUNNING: &str =
    "bcnet runs already. Close its other window first; if you find none, `bcnet ctl stop` ends it.";
/// An address of documents, which nobody has.
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
        let told = |error: anyhow::Error| failure_text(&error.context("control socket bcnet.sock"));
        assert_eq!(told(SocketInUse.into()), ALREADY_RUNNING);
        assert_eq!(told(anyhow::anyhow!("no\nbcnet: room")), "control socket bcnet.sock: no\nroom");
        let page = include_str!("../../../docs/windows-host.md");
        assert!(page.contains(ALREADY_RUNNING.split_once('.').expect("two sentences").0));
    }
}
