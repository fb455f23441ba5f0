//! `bcnet inspect`: decodes captures, packet logs, dumps and hex lines, and shows their content.
//!
//! [`hex`] reads hex lines. [`decode`] turns the bytes of a line into a [`Decoded`]. [`human`] writes it as text,
//! [`json`] as JSON, and [`hex_capture`] writes the bytes into a capture file. A line that cannot be decoded is
//! reported and does not stop the run. [`mod@file`] does the same for captures, and reports the faults in them.

mod explain;
mod file;
mod hex;
mod hex_capture;
mod hex_dump;
mod human;
mod json;

use std::fs::File;
use std::io::{self, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use bcnet_observe::{Content, MessageBuffer, ParsedDatagram, ReassembledPayload};
use bcnet_transport::cipher;
use bcnet_transport::wire::{Message, PeerId, Role, WireError};

use crate::CommandStatus;
use crate::standard_output;
pub(crate) use file::{DECRYPTED_INTERFACE, for_each_datagram, write_decrypted};
use hex::{BadHex, HexLine};
use json::Json;

#[derive(clap::Args)]
#[command(after_help = "\
Captures are pcap or pcapng files of any common link type, packet logs of the community's tools, or dumps with offsets \
(tcpdump -x, tshark -x, xxd, hexdump -C). Files may be compressed with gzip or zstd. Datagrams of the game are \
recognised by their content, on any port.

Two captures of the same traffic, taken at both ends, are joined: the output shows lost and late messages, and the \
one-way delays. Three or more files, the captures of a directory, and two files with --merge are read as one capture, \
in the order of time.

With --hex each line of the input is one datagram in hex: spaces are allowed, `#` starts a comment, and `C>` or `S>` \
at the start marks the client or the server as the sender. A dump of several lines with offsets is one datagram. A \
datagram that begins with a backslash is GameSpy text.

Exit codes: 0 everything was decoded, 1 some data could not be decoded or a file is damaged, 2 the input could not be \
read.

Examples:
  bcnet inspect game.pcapng --summary
  bcnet inspect game.pcapng --report game.html
  bcnet inspect game.pcapng --write annotated.pcapng
  bcnet inspect game.pcapng --opcode Chat --json
  bcnet inspect game.pcapng --opcode Chat --packet 100-200 --explain
  bcnet inspect game.pcapng --queues --every 5 --peer 2
  bcnet inspect game.pcapng --handle-acks --from 11:37:54 --to 11:37:56
  bcnet inspect game.pcapng --follow-message 0x0002 --sent-by client
  bcnet inspect game.pcapng --ladder --peer 2 --to 5
  bcnet inspect game.pcapng --dump-log ack-diag.log --dump-offset -3600
  bcnet inspect client.pcap server.pcap
  bcnet inspect --interface eth0 --write game.pcapng
  bcnet inspect --merge game.1.pcapng.gz game.pcapng --summary
  bcnet inspect captures-of-today/ --report today.html
  xxd datagram.bin | bcnet inspect --hex -
  bcnet inspect --hex captures/join.hex
  echo 01 D7 33 68 C3 BF 76 DB | bcnet inspect --hex - --explain
  bcnet inspect --hex captures/join.hex --json | jq \".messages[]?.kind\"")]
pub(crate) struct Args {
    /// Captures, packet logs or dumps, compressed or not, or a directory; `-` is standard input. Two files are joined,
    /// more are read as one
    #[arg(value_name = "FILE", num_args = 1.., required_unless_present_any = ["hex", "interface"], conflicts_with = "hex")]
    files: Vec<PathBuf>,

    /// Read hex lines from FILE; `-` is standard input
    #[arg(long, value_name = "FILE", conflicts_with_all = file::CAPTURE_ONLY_OPTIONS)]
    hex: Option<PathBuf>,

    /// Capture from this network interface until Ctrl-C; needs dumpcap, which comes with Wireshark
    ///
    /// A terminal shows counters, conversations and faults while they come. Any other output gets lines, or the format
    /// that you choose. A summary follows at the end.
    #[arg(short, long, value_name = "NAME", conflicts_with_all = LIVE_CONFLICTS)]
    interface: Option<String>,

    /// The datagrams are already deciphered
    #[arg(long, conflicts_with = "files")]
    plain: bool,

    /// Each line is one deciphered message, without a datagram around it
    #[arg(long, conflicts_with_all = ["files", "plain", "payload", "write"])]
    message: bool,

    /// Each line is one game payload: the body of a data message
    #[arg(long, conflicts_with_all = ["files", "plain", "write"])]
    payload: bool,

    /// Name each field, with its position and its rule in PROTOCOL.md
    #[arg(long, conflicts_with_all = ["summary", "csv", "parquet", "report", "detail_view"])]
    explain: bool,

    /// Print one JSON object for each datagram
    #[arg(long)]
    json: bool,

    /// Write the datagrams to a capture file for Wireshark
    ///
    /// Each datagram of a capture gets the findings about it as a packet comment (`frame.comment`). Lines are printed
    /// only if another option asks for them. Datagrams from an interface are written as they came.
    ///
    /// Hex lines are always printed. They have no addresses, so the host becomes 10.0.0.1 and sends to 10.0.0.2. Client
    /// N becomes 10.0.0.N, and a client without an id 10.0.0.2. All use port 22101, one millisecond apart. Comments
    /// become packet comments.
    #[arg(long, value_name = "OUT.pcapng", conflicts_with = "detail_view")]
    write: Option<PathBuf>,

    /// Colours: `auto` uses them on a terminal, unless NO_COLOR is set
    #[arg(long, value_name = "WHEN", default_value = "auto", hide_possible_values = true)]
    color: file::Color,

    #[command(flatten)]
    file: file::CaptureOptions,
}

impl Args {
    /// Returns whether each datagram is written at once, not when a buffer is full.
    fn flushes_each_datagram(&self) -> bool {
        self.file.is_following() || self.interface.is_some()
    }
}

/// Options that cannot be used with an interface.
const LIVE_CONFLICTS: [&str; 8] =
    ["files", "hex", "plain", "message", "payload", "merge", "follow", "detail_view"];

/// The decoded form of an input line or packet.
enum Decoded<'a> {
    Datagram(ParsedDatagram<'a>),
    Message(Message<'a>),
    Payload(&'a [u8]),
    GameSpy(&'a [u8]),
    BadHex(BadHex),
    Malformed(WireError),
}

impl<'a> From<Content<'a>> for Decoded<'a> {
    fn from(content: Content<'a>) -> Self {
        match content {
            Content::Datagram(datagram) => Self::Datagram(datagram),
            Content::GameSpy(text) => Self::GameSpy(text),
            Content::Malformed(error) => Self::Malformed(error),
        }
    }
}

/// A position in the input.
enum InputPosition<'a> {
    /// This line of a hex input.
    Line(u64),
    /// This packet of a capture.
    Packet(&'a file::PacketInfo),
}

/// A datagram with its decoded form and its position.
struct DecodedEntry<'a> {
    position: InputPosition<'a>,
    sent_by: Option<Role>,
    comment: Option<String>,
    decoded: Decoded<'a>,
    /// Payloads whose last missing fragment is in this datagram.
    reassembled: &'a [ReassembledPayload],
}

pub(crate) fn run(args: &Args) -> anyhow::Result<CommandStatus> {
    match &args.hex {
        Some(hex) => run_hex(args, hex),
        None => file::run(args),
    }
}

fn run_hex(args: &Args, path: &Path) -> anyhow::Result<CommandStatus> {
    let name = input_name(path);
    let (input, damage) = open_input(path)
        .and_then(|input| Ok(file::open_decompressed(input)?))
        .with_context(|| name.clone())?;
    let mut capture = match &args.write {
        Some(out) => Some(hex_capture::HexCapture::create(out, path)?),
        None => None,
    };
    let mut out = StdoutWriter {
        stdout: Some(BufWriter::new(standard_output::lock())),
        ignore_broken_pipe: capture.is_some(),
    };
    let mut json = Json::default();
    let (mut total, mut bad, mut left_out) = (0_u64, 0_u64, 0_u64);
    let mut lines = hex::HexLineReader::new(input);
    while let Some(mut line) = lines.next_line().with_context(|| name.clone())? {
        total += 1;
        if line.is_dump
            && let Ok(bytes) = &mut line.bytes
        {
            file::strip_packet_headers(bytes);
        }
        if let (Some(capture), Ok(bytes)) = (&mut capture, &line.bytes)
            && !capture.write(&line, bytes, args.plain)?
        {
            left_out += 1;
        }
        bad += u64::from(!print_line(args, line, &mut json, &mut out)?);
    }
    out.flush()?;
    if let Some(capture) = capture {
        capture.finish()?;
    }
    if total == 0 {
        eprintln!("bcnet: {name}: contains no datagrams");
    }
    if left_out > 0 {
        eprintln!(
            "bcnet: {name}: {left_out} of {total} lines are too long for UDP and are missing from the capture"
        );
    }
    if bad > 0 {
        eprintln!("bcnet: {name}: {bad} of {total} lines could not be decoded");
    }
    let damage = damage();
    if let Some(damage) = &damage {
        eprintln!("bcnet: {name}: {damage}");
    }
    Ok(if bad + left_out == 0 && damage.is_none() { CommandStatus::Clean } else { CommandStatus::Findings })
}

/// Standard output. A closed pipe ends the run, unless a file must be finished.
struct StdoutWriter<W> {
    stdout: Option<W>,
    ignore_broken_pipe: bool,
}

impl<W: Write> Write for StdoutWriter<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let Some(stdout) = &mut self.stdout else { return Ok(bytes.len()) };
        match stdout.write(bytes) {
            Err(error) if self.ignore_broken_pipe && error.kind() == io::ErrorKind::BrokenPipe => {
                self.stdout = None;
                Ok(bytes.len())
            }
            result => result,
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        let Some(stdout) = &mut self.stdout else { return Ok(()) };
        match stdout.flush() {
            Err(error) if self.ignore_broken_pipe && error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            result => result,
        }
    }
}

/// Decodes and prints one line. Returns `false` if it cannot be decoded.
fn print_line(args: &Args, mut line: HexLine, json: &mut Json, out: &mut impl Write) -> io::Result<bool> {
    let mut messages = MessageBuffer::default();
    let decoded = match &mut line.bytes {
        Err(error) => Decoded::BadHex(*error),
        Ok(bytes) => decode(args, bytes, line.sent_by, &mut messages),
    };
    let entry = DecodedEntry {
        position: InputPosition::Line(line.number),
        sent_by: line.sent_by,
        comment: line.comment,
        decoded,
        reassembled: &[],
    };
    if args.json {
        json::add_entry(json, &entry, args.explain, |_| true);
        json.write(out)?;
    } else {
        human::write_entry(out, &entry, args.explain)?;
    }
    Ok(!matches!(entry.decoded, Decoded::BadHex(_) | Decoded::Malformed(_)))
}

fn decode<'a, 'b: 'a>(
    args: &Args,
    bytes: &'b mut [u8],
    sent_by: Option<Role>,
    messages: &'a mut MessageBuffer<'b>,
) -> Decoded<'a> {
    if args.payload {
        return Decoded::Payload(bytes);
    }
    if args.message {
        return Message::parse(bytes, sent_by).map_or_else(Decoded::Malformed, Decoded::Message);
    }
    if !args.plain && bytes.first() != Some(&PeerId::GAMESPY.0) {
        cipher::decrypt(bytes);
    }
    messages.read(bytes, sent_by).into()
}

fn open_input(path: &Path) -> anyhow::Result<Box<dyn Read>> {
    if is_stdin(path) {
        return Ok(Box::new(io::stdin().lock()));
    }
    // Windows refuses to open a directory, with an error that does not name the cause.
    ensure!(!path.is_dir(), "is a directory; name a file with one datagram per line");
    Ok(Box::new(File::open(path)?))
}

/// Returns the name of an input for messages.
fn input_name(path: &Path) -> String {
    if is_stdin(path) { "standard input".into() } else { path.display().to_string() }
}

fn is_stdin(path: &Path) -> bool {
    path.as_os_str() == "-"
}

/// Converts GameSpy text: one byte is one character, as in the names of the stock game.
fn latin1_to_string(bytes: &[u8]) -> String {
    bytes.iter().copied().map(char::from).collect()
}
