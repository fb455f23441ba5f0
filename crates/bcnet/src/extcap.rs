//! `bcnet extcap`: lets Wireshark list an interface whose datagrams are deciphered.
//!
//! Wireshark asks each program in its extcap directories what it offers, and starts it to capture into a pipe. Called by the
//! name `bcnet-extcap`, this program answers, so that a link of that name is all that has to be installed.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};

use crate::capture::CaptureWriter;
use crate::inspect::{DECRYPTED_INTERFACE, write_decrypted};
use crate::{CommandStatus, dumpcap};

/// The arguments of `bcnet extcap`.
#[derive(clap::Args)]
#[command(after_help = "\
Wireshark calls this program. A link in its extcap directory is enough (Help, About Wireshark, Folders tells which that \
is; with Wireshark 4.0 it is ~/.config/wireshark/extcap):
  mkdir -p ~/.config/wireshark/extcap
  ln -s \"$(command -v bcnet)\" ~/.config/wireshark/extcap/bcnet-extcap

On Windows copy bcnet.exe into that directory as bcnet-extcap.exe.

Examples:
  tshark -i bcnet-deciphered -o extcap.bcnet_deciphered.from:lo
  bcnet extcap --capture --extcap-interface bcnet-deciphered --fifo F --from lo")]
pub(crate) struct Args {
    /// Tell which interfaces there are
    #[arg(long)]
    extcap_interfaces: bool,

    /// The version of Wireshark that asks
    #[arg(long, value_name = "VERSION", num_args = 0..=1)]
    extcap_version: Option<Option<String>>,

    /// The interface that is asked about
    #[arg(long, value_name = "NAME")]
    extcap_interface: Option<String>,

    /// Tell which kinds of packets the interface gives
    #[arg(long)]
    extcap_dlts: bool,

    /// Tell what can be chosen
    #[arg(long)]
    extcap_config: bool,

    /// Only packets of this filter, in the words of libpcap
    #[arg(long, value_name = "FILTER")]
    extcap_capture_filter: Option<String>,

    /// Capture
    #[arg(long, requires = "fifo")]
    capture: bool,

    /// Where to write what is captured
    #[arg(long, value_name = "FILE")]
    fifo: Option<PathBuf>,

    /// The network interface to capture from
    #[arg(long, value_name = "NAME")]
    from: Option<String>,
}

/// Returns the arguments of the program; called by another name, it means a command.
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
        ensure!(name == DECRYPTED_INTERFACE, "{name}: there is only the interface {DECRYPTED_INTERFACE}");
    }
    if args.extcap_interfaces {
        println!("extcap {{version={}}}{{display=Bridge Commander}}", env!("CARGO_PKG_VERSION"));
        println!("interface {{value={DECRYPTED_INTERFACE}}}{{display=bcnet (deciphered)}}");
    } else if args.extcap_dlts {
        println!("dlt {{number=101}}{{name=RAW}}{{display=IPv4 with deciphered datagrams}}");
    } else if args.extcap_config {
        print_configuration();
    } else if args.capture {
        let fifo = args.fifo.as_deref().context("--fifo says where to write")?;
        let from = args
            .from
            .clone()
            .or_else(first_interface)
            .context("--from names the interface to capture from")?;
        let mut out = CaptureWriter::for_pipe(fifo, DECRYPTED_INTERFACE)?;
        let filter = args.extcap_capture_filter.as_deref().filter(|filter| !filter.trim().is_empty());
        match write_decrypted(&from, filter, &mut out) {
            // Wireshark has enough.
            Err(error) if error.chain().any(|cause| cause.downcast_ref().is_some_and(is_pipe_closed)) => {}
            done => done?,
        }
    }
    Ok(CommandStatus::Clean)
}

fn is_pipe_closed(error: &std::io::Error) -> bool {
    error.kind() == std::io::ErrorKind::BrokenPipe
}

/// Says what can be chosen: the interface, among those that there are.
fn print_configuration() {
    println!(
        "arg {{number=0}}{{call=--from}}{{display=Capture from}}{{tooltip=The network interface that the game's datagrams pass}}{{type=selector}}{{required=true}}"
    );
    match dumpcap::interfaces() {
        Ok(interfaces) => {
            for (place, dumpcap::Interface { name, display_name: title }) in interfaces.iter().enumerate() {
                let title = title.as_deref().unwrap_or(name);
                println!("value {{arg=0}}{{value={name}}}{{display={title}}}{{default={}}}", place == 0);
            }
        }
        // Wireshark shows it when somebody asks why nothing can be chosen.
        Err(error) => eprintln!("bcnet: {error:#}"),
    }
}

fn first_interface() -> Option<String> {
    dumpcap::interfaces().ok()?.into_iter().next().map(|interface| interface.name)
}
