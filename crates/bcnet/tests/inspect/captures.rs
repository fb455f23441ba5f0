//! Builds captures for tests, and runs `bcnet inspect` on them.

use std::fs;
use std::net::SocketAddrV4;
use std::path::{Path, PathBuf};
#[cfg(unix)]
use std::process::Command;

use bcnet_transport::cipher;
use serde_json::Value;

use crate::run::{ProcessOutput, bcnet};

#[derive(Debug, Clone)]
pub(crate) struct TestPacket {
    pub(crate) at: f64,
    pub(crate) from: SocketAddrV4,
    pub(crate) to: SocketAddrV4,
    /// The ciphered bytes.
    pub(crate) bytes: Vec<u8>,
}

/// Returns a session: a client joins on unusual ports and chats. The third message is lost and retransmitted; ACKs are
/// repeated.
pub(crate) fn session() -> Vec<TestPacket> {
    let request = "FF 01 03 0F C0 00 00 0A 00 00 02 5F 0A 00 00 00 00";
    let reply = "01 02 01 00 00 02 03 06 C0 00 00 02";
    let mut packets = vec![packet(0.0, request), packet(0.02, reply), packet(0.05, "02 01 01 00 00 02")];
    for number in 0_u16..8 {
        let at = 0.1 + f64::from(number) * 0.2;
        packets.push(chat(2, number, at));
        if number != 2 {
            packets.push(packet(at + 0.02, &format!("01 01 01 {number:02X} 00 00")));
        }
        if number == 3 {
            packets.push(packet(at + 0.03, "01 02 01 00 00 02 01 00 00 00"));
        }
    }
    let again = chat(2, 2, 1.5);
    packets.push(again);
    packets.push(packet(1.53, "01 01 01 02 00 00"));
    packets.push(packet(1.6, "01 01 02"));
    packets.push(packet(1.7, "02 01 02"));
    packets.push(TestPacket { bytes: b"\\status\\".to_vec(), ..packet(1.9, "02 01 02") });
    packets.sort_by(|a, b| a.at.total_cmp(&b.at));
    packets
}

/// Returns a chat message.
pub(crate) fn chat(sender: u8, number: u16, at: f64) -> TestPacket {
    packet(at, &format!("{sender:02X} 01 {}", chat_message(sender, number)))
}

pub(crate) fn chat_message(sender: u8, number: u16) -> String {
    let [low, high] = number.to_le_bytes();
    format!("32 0E 80 {low:02X} {high:02X} 2C {sender:02X} 00 00 00 02 00 68 69")
}

/// Returns a datagram from the host or the client, according to its first byte.
pub(crate) fn packet(at: f64, plain: &str) -> TestPacket {
    let mut bytes: Vec<u8> =
        plain.split_whitespace().map(|byte| u8::from_str_radix(byte, 16).expect("hex")).collect();
    cipher::encrypt(&mut bytes);
    let (from, to) = if bytes[0] == 1 { (HOST, CLIENT) } else { (CLIENT, HOST) };
    TestPacket { at, from, to, bytes }
}

pub(crate) const HOST: SocketAddrV4 = SocketAddrV4::new(std::net::Ipv4Addr::new(10, 0, 0, 1), 26000);
pub(crate) const CLIENT: SocketAddrV4 = SocketAddrV4::new(std::net::Ipv4Addr::new(10, 0, 0, 2), 4711);

/// A link type, and the link header before IP.
pub(crate) type LinkHeader = (u32, &'static [u8]);
pub(crate) const NULL: LinkHeader = (0, &[2, 0, 0, 0]);
pub(crate) const ETHERNET: LinkHeader = (1, &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 8, 0]);
pub(crate) const VLAN: LinkHeader =
    (1, &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 0x88, 0xA8, 0, 7, 0x81, 0, 0, 9, 8, 0]);
pub(crate) const RAW: LinkHeader = (101, &[]);
pub(crate) const LOOP: LinkHeader = (108, &[0, 0, 0, 2]);
pub(crate) const COOKED: LinkHeader = (113, &[0, 0, 0, 1, 0, 6, 1, 2, 3, 4, 5, 6, 0, 0, 8, 0]);
pub(crate) const IPV4: LinkHeader = (228, &[]);
pub(crate) const COOKED_2: LinkHeader = (276, &[8, 0, 0, 0, 0, 0, 0, 1, 0, 1, 0, 6, 1, 2, 3, 4, 5, 6, 0, 0]);

pub(crate) fn ip_packet(packet: &TestPacket) -> Vec<u8> {
    let length = |extra: usize| u16::try_from(packet.bytes.len() + extra).expect("small").to_be_bytes();
    let mut bytes = vec![0x45, 0];
    bytes.extend(length(28));
    bytes.extend([0, 0, 0x40, 0, 64, 17, 0, 0]);
    bytes.extend(packet.from.ip().octets());
    bytes.extend(packet.to.ip().octets());
    bytes.extend(packet.from.port().to_be_bytes());
    bytes.extend(packet.to.port().to_be_bytes());
    bytes.extend(length(8));
    bytes.extend([0, 0]);
    bytes.extend(&packet.bytes);
    bytes
}

pub(crate) fn pcap(packets: &[TestPacket], link: LinkHeader) -> Vec<u8> {
    pcap_with(packets, link, &u32::to_le_bytes)
}

pub(crate) type ByteOrder = dyn Fn(u32) -> [u8; 4];

pub(crate) fn pcap_with(packets: &[TestPacket], link: LinkHeader, order: &ByteOrder) -> Vec<u8> {
    let little = order(1)[0] == 1;
    let version = if little { 0x0004_0002 } else { 0x0002_0004 };
    let head = [0xA1B2_C3D4, version, 0, 0, 262_144, link.0];
    let mut bytes: Vec<u8> = head.into_iter().flat_map(order).collect();
    for packet in packets {
        add_pcap_record(&mut bytes, packet.at, &[link.1, &ip_packet(packet)].concat(), order);
    }
    bytes
}

pub(crate) fn add_pcap_record(bytes: &mut Vec<u8>, at: f64, frame: &[u8], order: &ByteOrder) {
    let micros = (at * 1e6).round() as u64;
    let length = u32::try_from(frame.len()).expect("small");
    let (seconds, rest) = (u32::try_from(micros / 1_000_000), u32::try_from(micros % 1_000_000));
    let head = [seconds.expect("early"), rest.expect("small"), length, length];
    bytes.extend(head.into_iter().flat_map(order));
    bytes.extend(frame);
}

/// Returns a capture with nanoseconds, an interface name and comments.
pub(crate) fn pcapng(packets: &[TestPacket], link: LinkHeader) -> Vec<u8> {
    let mut bytes = Vec::new();
    add_pcapng_block(
        &mut bytes,
        0x0A0D_0D0A,
        &[0x4D, 0x3C, 0x2B, 0x1A, 1, 0, 0, 0, 255, 255, 255, 255, 255, 255, 255, 255],
    );
    let mut interface = link.0.to_le_bytes().to_vec();
    interface.extend([0, 0, 0, 0, 2, 0, 3, 0, b'e', b't', b'h', 0, 9, 0, 1, 0, 9, 0, 0, 0, 0, 0, 0, 0]);
    add_pcapng_block(&mut bytes, 1, &interface);
    add_pcapng_block(&mut bytes, 0x0BAD, &[1, 2, 3, 4]);
    for packet in packets {
        let frame = [link.1, &ip_packet(packet)].concat();
        let nanos = (packet.at * 1e6).round() as u64 * 1000;
        let length = u32::try_from(frame.len()).expect("small");
        let (high, low) = (u32::try_from(nanos >> 32).expect("32 bits"), nanos as u32);
        let mut body: Vec<u8> =
            [0, high, low, length, length].into_iter().flat_map(u32::to_le_bytes).collect();
        body.extend(&frame);
        body.resize(body.len().next_multiple_of(4), 0);
        body.extend([1, 0, 2, 0, b'h', b'i', 0, 0, 0, 0, 0, 0]);
        add_pcapng_block(&mut bytes, 6, &body);
    }
    bytes
}

pub(crate) fn add_pcapng_block(bytes: &mut Vec<u8>, kind: u32, body: &[u8]) {
    let length = u32::try_from(body.len() + 12).expect("small").to_le_bytes();
    bytes.extend(kind.to_le_bytes());
    bytes.extend(length);
    bytes.extend(body);
    bytes.extend(length);
}

pub(crate) fn inspect(capture: &[u8], flags: &[&str]) -> ProcessOutput {
    bcnet(&[&["inspect", "-"], flags].concat(), capture)
}

/// Runs `bcnet inspect` on a file or directory under a limit of the shell.
#[cfg(unix)]
pub(crate) fn inspect_with_ulimit(limit: &str, path: &Path) -> ProcessOutput {
    let program = env!("CARGO_BIN_EXE_bcnet");
    let limited = format!("ulimit {limit}; exec '{program}' inspect '{}' --json", path_str(path));
    Command::new("sh").args(["-c", &limited]).output().expect("a shell").into()
}

/// Returns the datagrams, without findings and the lines at the end.
pub(crate) fn datagrams(run: &ProcessOutput) -> Vec<Value> {
    let is_datagram = |entry: &Value| entry.get("finding").is_none() && entry.get("packet").is_some();
    run.json().into_iter().filter(is_datagram).collect()
}

/// Removes file names, offsets and comments, which not all formats have.
pub(crate) fn without_locations(run: &ProcessOutput) -> Vec<Value> {
    let mut lines = run.json();
    for entry in &mut lines {
        let entry = entry.as_object_mut().expect("an object");
        entry.retain(|name, _| !["file", "offset", "comment"].contains(&name.as_str()));
    }
    lines
}

pub(crate) fn message_count(run: &ProcessOutput) -> usize {
    run.json().iter().filter_map(|entry| entry["messages"].as_array()).map(Vec::len).sum()
}

/// Creates an empty directory for a test.
pub(crate) fn test_directory(name: &str) -> PathBuf {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("inspect").join(name);
    let _ = fs::remove_dir_all(&directory);
    fs::create_dir_all(&directory).expect("a directory");
    directory
}

pub(crate) fn path_str(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}
