//! Runs the real tshark with the dissector and parses its JSON.

use std::io::{self, Write};
use std::net::SocketAddrV4;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use std::{env, fs};

use etherparse::PacketBuilder;
use pcap_file::DataLink;
use pcap_file::pcapng::PcapNgWriter;
use pcap_file::pcapng::blocks::enhanced_packet::{EnhancedPacketBlock, EnhancedPacketOption};
use pcap_file::pcapng::blocks::interface_description::{
    InterfaceDescriptionBlock, InterfaceDescriptionOption,
};
use serde_json::{Map, Value};

/// A captured datagram.
#[derive(Debug, Clone)]
pub(crate) struct WireDatagram {
    pub(crate) at: Duration,
    pub(crate) from: SocketAddrV4,
    pub(crate) to: SocketAddrV4,
    pub(crate) bytes: Vec<u8>,
}

/// Returns all fields of that name directly below a node of tshark's tree, in order.
pub(crate) fn all_fields<'a>(node: &'a Value, name: &str) -> Vec<&'a Value> {
    match node.get(name) {
        None => vec![],
        Some(Value::Array(several)) => several.iter().collect(),
        Some(one) => vec![one],
    }
}

/// Returns the text of the first field of that name.
pub(crate) fn field_text<'a>(node: &'a Value, name: &str) -> Option<&'a str> {
    all_fields(node, name).first()?.as_str()
}

/// Returns whether tshark is installed. CI requires it; elsewhere a missing tshark is reported.
pub(crate) fn is_available() -> bool {
    if Command::new("tshark").arg("--version").output().is_ok_and(|output| output.status.success()) {
        return true;
    }
    assert!(env::var_os("REQUIRE_TSHARK").is_none(), "tshark is required but not installed");
    // This does not use a print macro, because the output of passing tests is hidden.
    let _ = io::stderr()
        .write_all(b"\n*** SKIPPED: the dissector is NOT tested, because tshark is not installed ***\n");
    false
}

/// Returns the layer `bcnet` of each datagram, or `None` if the dissector did not recognise it.
pub(crate) fn dissect(name: &str, captured: &[WireDatagram], options: &[&str]) -> Vec<Option<Value>> {
    let text = run(name, captured, &[options, &JSON, &["bcnet"]].concat());
    layers(name, captured, &text).into_iter().map(|mut layers| layers.remove("bcnet")).collect()
}

/// Returns all layers of each packet, and the output of `bcnet inspect --json` for the same file.
pub(crate) fn dissect_and_inspect(name: &str, captured: &[WireDatagram]) -> (Vec<Value>, Vec<Value>) {
    let shown = "frame pkt_comment ip udp bcnet";
    with_capture_file(name, captured, |file| {
        let text = tshark(file, &[&["-o", "frame.show_file_off:TRUE"][..], &JSON, &[shown]].concat());
        let inspect =
            Command::new(env!("CARGO_BIN_EXE_bcnet")).arg("inspect").arg(file).arg("--json").output();
        let lines = String::from_utf8(inspect.expect("bcnet runs").stdout).expect("UTF-8");
        let lines = lines.lines().map(|line| serde_json::from_str::<Value>(line).expect(line));
        // The last line may count packets that are not shown.
        let lines = lines.filter(|line| line.get("not_looked_at").is_none()).collect();
        (layers(name, captured, &text).into_iter().map(Value::Object).collect(), lines)
    })
}

/// Returns the layers of each packet in the JSON of tshark.
fn layers(name: &str, captured: &[WireDatagram], text: &str) -> Vec<Map<String, Value>> {
    let packets: Vec<Value> = serde_json::from_str(text).expect("JSON of tshark");
    assert_eq!(packets.len(), captured.len(), "{name}: packets");
    let layers = |mut packet: Value| {
        let Value::Object(layers) = packet["_source"]["layers"].take() else { panic!("{name}: {packet}") };
        // Errors of other dissectors in packets that are not ours do not matter.
        let ours = layers.contains_key("bcnet");
        let trouble = |layer: &str| match layer {
            "_ws.lua.fake" => false,
            _ => layer.starts_with("Lua Error") || (layer.starts_with("_ws") && ours),
        };
        assert!(!layers.keys().any(|layer| trouble(layer)), "{name}: {layers:?}");
        layers
    };
    packets.into_iter().map(layers).collect()
}

/// Returns the Info column of each datagram.
pub(crate) fn info_column(name: &str, captured: &[WireDatagram]) -> Vec<String> {
    let text = run(name, captured, &["-T", "fields", "-e", "_ws.col.Info"]);
    text.lines().map(str::to_owned).collect()
}

/// Returns the numbers of the frames that match a display filter.
pub(crate) fn matching_frames(name: &str, captured: &[WireDatagram], filter: &str) -> Vec<usize> {
    let text = run(name, captured, &["-Y", filter, "-T", "fields", "-e", "frame.number"]);
    text.lines().map(|number| number.parse().expect("a number")).collect()
}

/// Returns the output of tshark at the end of a capture.
pub(crate) fn statistics(name: &str, captured: &[WireDatagram], options: &[&str]) -> String {
    run(name, captured, &[&["-q"], options].concat())
}

/// Returns the errors of tshark for invalid options.
pub(crate) fn error_output(name: &str, captured: &[WireDatagram], options: &[&str]) -> String {
    with_capture_file(name, captured, |file| {
        let output = command(file, options).output().expect("tshark runs");
        String::from_utf8_lossy(&output.stderr).into_owned()
    })
}

/// Returns the output of tshark with the profile of the dissector.
pub(crate) fn with_profile(name: &str, captured: &[WireDatagram], arguments: &[&str]) -> String {
    with_capture_file(name, captured, |file| {
        let profile = file.parent().expect("a directory").join("profiles/Bridge Commander");
        fs::create_dir_all(&profile).expect("a directory");
        for (name, text) in PROFILE {
            fs::write(profile.join(name), text).expect("written");
        }
        tshark(file, &[&["-C", "Bridge Commander"], arguments].concat())
    })
}

fn run(name: &str, captured: &[WireDatagram], arguments: &[&str]) -> String {
    with_capture_file(name, captured, |file| tshark(file, arguments))
}

/// Calls `work` with a temporary capture file.
fn with_capture_file<T>(name: &str, captured: &[WireDatagram], work: impl FnOnce(&Path) -> T) -> T {
    let directory = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("dissector-{name}"));
    fs::create_dir_all(&directory).expect("a directory");
    let file = directory.join("capture.pcapng");
    write_capture(&file, captured);
    let result = work(&file);
    fs::remove_dir_all(&directory).expect("the directory is removed");
    result
}

fn tshark(file: &Path, arguments: &[&str]) -> String {
    let output = command(file, arguments).output().expect("tshark runs");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && !stderr.contains("Lua"), "{}: {stderr}", file.display());
    String::from_utf8(output.stdout).expect("UTF-8")
}

fn command(file: &Path, arguments: &[&str]) -> Command {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../dissector/bcnet.lua");
    let directory = file.parent().expect("a directory");
    let mut command = Command::new("tshark");
    command
        .arg("-X")
        .arg(format!("lua_script:{}", script.display()))
        .arg("-r")
        .arg(file)
        .args(arguments)
        // The settings and plugins of the user who runs the test must have no effect.
        .env("WIRESHARK_CONFIG_DIR", directory)
        .env("HOME", directory);
    command
}

fn write_capture(path: &Path, captured: &[WireDatagram]) {
    let mut out =
        PcapNgWriter::new(io::BufWriter::new(fs::File::create(path).expect("a file"))).expect("a capture");
    let interface = InterfaceDescriptionBlock {
        linktype: DataLink::RAW,
        snaplen: 0,
        options: vec![InterfaceDescriptionOption::IfTsResol(9)],
    };
    out.write_pcapng_block(interface).expect("written");
    for (WireDatagram { at, from, to, bytes }, number) in captured.iter().zip(1..) {
        let builder =
            PacketBuilder::ipv4(from.ip().octets(), to.ip().octets(), 64).udp(from.port(), to.port());
        let mut packet = Vec::with_capacity(builder.size(bytes.len()));
        builder.write(&mut packet, bytes).expect("a packet");
        let block = EnhancedPacketBlock {
            interface_id: 0,
            timestamp: *at,
            original_len: u32::try_from(packet.len()).expect("small"),
            options: comment(number)
                .map(|text| EnhancedPacketOption::Comment(text.into()))
                .into_iter()
                .collect(),
            data: packet.into(),
        };
        out.write_pcapng_block(block).expect("written");
    }
}

/// Returns a comment for every third packet.
fn comment(number: u32) -> Option<String> {
    number.is_multiple_of(3).then(|| format!("comment {number}: \"Žofie\" \\ 🚀"))
}

/// The options for JSON output; the list of layers follows.
const JSON: [&str; 4] = ["-T", "json", "--no-duplicate-keys", "-J"];

/// The files of the profile.
pub(crate) const PROFILE: [(&str, &str); 3] = [
    ("colorfilters", include_str!("../../../../dissector/profile/colorfilters")),
    ("preferences", include_str!("../../../../dissector/profile/preferences")),
    ("dfilter_buttons", include_str!("../../../../dissector/profile/dfilter_buttons")),
];
