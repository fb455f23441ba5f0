//! `bcnet extcap`: offers Wireshark an interface with deciphered datagrams.
//!
//! Wireshark runs each program in its extcap directories to list interfaces, and to capture into a pipe. If
//! this program is called as `bcnet-extcap`, it runs this command. So installing it takes only a link of that
//! name.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};

use crate::capture::CaptureWriter;
use crate::inspect::{DECRYPTED_INTERFACE, write_decrypted};
use crate::{CommandStatus, dumpcap};

/// The arguments of `bcnet extcap`.
#[derive(clap::Args)]
#[command(after_help = "\
Wireshark runs this command. To install it, put a link into Wireshark's extcap directory (see Help, About Wireshark, Folders; \
with Wireshark 4.0 it is ~/.config/wireshark/extcap):
  mkdir -p ~/.config/wireshark/extcap
  ln -s \"$(command -v bcnet)\" ~/.config/wireshark/extcap/bcnet-extcap

On Windows, copy bcnet.exe into that directory as bcnet-extcap.exe.

Examples:
  tshark -i bcnet-deciphered -o extcap.bcnet_deciphered.from:lo
  bcnet extcap --capture --extcap-interface bcnet-deciphered --fifo F --from lo")]
pub(crate) struct Args {
    /// List the interfaces
    #[arg(long)]
    extcap_interfaces: bool,

    /// The version of Wireshark that runs the command
    #[arg(long, value_name = "VERSION", num_args = 0..=1)]
    extcap_version: Option<Option<String>>,

    /// The interface to describe or capture from
    #[arg(long, value_name = "NAME")]
    extcap_interface: Option<String>,

    /// List the packet types of the interface
    #[arg(long)]
    extcap_dlts: bool,

    /// List the options of the interface
    #[arg(long)]
    extcap_config: bool,

    /// Capture only packets that match this libpcap filter
    #[arg(long, value_name = "FILTER")]
    extcap_capture_filter: Option<String>,

    /// Capture
    #[arg(long, requires = "fifo")]
    capture: bool,

    /// The file or pipe to write the capture to
    #[arg(long, value_name = "FILE")]
    fifo: Option<PathBuf>,

    /// The network interface to capture from
    #[arg(long, value_name = "NAME")]
    from: Option<String>,
}

/// Returns the arguments of the program.
///
/// If it is called as `bcnet-extcap`, the command `extcap` is inserted.
pub(crate) fn program_arguments() -> Vec<OsString> {
    let mut arguments: Vec<OsString> = std::env::args_os().collect();
    let called = arguments.first().and_then(|program| Path::new(program).file_stem());
    if called.is_some_and(|name| name == "bcnet-extcap") {
        arguments.insert(1, "extcap".into());
    }
    arguments
}

pub(crate) fn run(args: &Args) -> anyhow::Result<CommandStatus> {
    if let Some(name) = &args.extcap_interface {
        ensure!(
            name == DECRYPTED_INTERFACE,
            "{name}: unknown interface; the only one is {DECRYPTED_INTERFACE}"
        );
    }
    if args.extcap_interfaces {
        println!("extcap {{version={}}}{{display=Bridge Commander}}", env!("CARGO_PKG_VERSION"));
        println!("interface {{value={DECRYPTED_INTERFACE}}}{{display=bcnet (deciphered)}}");
    } else if args.extcap_dlts {
        println!("dlt {{number=101}}{{name=RAW}}{{display=IPv4 with deciphered datagrams}}");
    } else if args.extcap_config {
        print_configuration();
    } else if args.capture {
        let fifo = args.fifo.as_deref().context("--fifo is missing: it names the file to write to")?;
        let from = args
            .from
            .clone()
            .or_else(first_interface)
            .context("--from is missing: it names the interface to capture from")?;
        let mut out = CaptureWriter::for_pipe(fifo, DECRYPTED_INTERFACE)?;
        let filter = args.extcap_capture_filter.as_deref().filter(|filter| !filter.trim().is_empty());
        match write_decrypted(&from, filter, &mut out) {
            // Wireshark has stopped the capture.
            Err(error) if error.chain().any(|cause| cause.downcast_ref().is_some_and(is_pipe_closed)) => {}
            done => done?,
        }
    }
    Ok(CommandStatus::Clean)
}

fn is_pipe_closed(error: &std::io::Error) -> bool {
    error.kind() == std::io::ErrorKind::BrokenPipe
}

/// Prints the option of the interface: the network interface to capture from.
fn print_configuration() {
    println!(
        "arg {{number=0}}{{call=--from}}{{display=Capture from}}{{tooltip=The network interface that the game's datagrams pass}}{{type=selector}}{{required=true}}"
    );
    match dumpcap::interfaces() {
        Ok(interfaces) => {
            for (index, dumpcap::Interface { name, display_name: title }) in interfaces.iter().enumerate() {
                let title = title.as_deref().unwrap_or(name);
                println!("value {{arg=0}}{{value={name}}}{{display={title}}}{{default={}}}", index == 0);
            }
        }
        // Wireshark shows this message when the user opens the options.
        Err(error) => eprintln!("bcnet: {error:#}"),
    }
}

fn first_interface() -> Option<String> {
    dumpcap::interfaces().ok()?.into_iter().next().map(|interface| interface.name)
}
