//! Captures that `bcnet inspect --hex --write` writes.

use std::fs;
use std::io::Write;

use pcap_file::pcapng::Block;
use pcap_file::pcapng::blocks::interface_description::InterfaceDescriptionOption;

use crate::run::{bcnet, command};
use crate::{hex, inspect, scratch_directory};

#[test]
fn written_capture_holds_the_datagrams_as_sent() {
    let folder = scratch_directory("capture");
    let out = folder.join("out.pcapng");
    let text = "S> 01 01 02 # idle\nC> FF 01 03\nzz\n02 01 02\n5C 41";
    let run = inspect(text, &["--plain", "--write", out.to_str().expect("UTF-8")]);
    assert_eq!(run.code, 1);
    let file = fs::File::open(&out).expect("the capture");
    let mut reader = pcap_file::pcapng::PcapNgReader::new(file).expect("pcapng");
    let mut seen = Vec::new();
    while let Some(block) = reader.next_block() {
        let block = block.expect("a block").into_owned();
        if let Block::InterfaceDescription(interface) = &block {
            // Without this option, other readers would take nanoseconds for microseconds.
            assert_eq!(interface.options, [InterfaceDescriptionOption::IfTsResol(9)]);
        }
        if let Some(packet) = block.into_enhanced_packet() {
            let parsed = etherparse::SlicedPacket::from_ip(&packet.data).expect("IPv4 and UDP");
            let (Some(etherparse::NetSlice::Ipv4(ip)), Some(etherparse::TransportSlice::Udp(udp))) =
                (&parsed.net, &parsed.transport)
            else {
                panic!("not UDP")
            };
            let addresses =
                (ip.header().source_addr().octets()[3], ip.header().destination_addr().octets()[3]);
            assert_eq!((udp.source_port(), udp.destination_port()), (22101, 22101));
            seen.push((
                addresses,
                udp.payload().to_vec(),
                packet.timestamp.as_millis(),
                packet.options.len(),
            ));
        }
    }
    let expected = [
        ((1, 2), vec![0x01, 0xD7, 0x32], 0, 1),
        ((2, 1), vec![0xFF, 0xD7, 0x33], 1, 0),
        ((2, 1), vec![0x02, 0xD7, 0x32], 2, 0),
        ((2, 1), vec![0x5C, 0x41], 3, 0),
    ];
    assert_eq!(seen, expected);
    // The written datagrams can be read again, enciphered this time.
    let back: String = seen.iter().map(|(_, bytes, ..)| format!("{}\n", hex(bytes))).collect();
    assert_eq!(inspect(&back, &[]).stdout.lines().filter(|line| line.contains("from host")).count(), 1);
    fs::remove_dir_all(folder).expect("clean up");
}

#[test]
fn capture_is_completed_when_stdout_is_closed() {
    let folder = scratch_directory("closed");
    let out = folder.join("out.pcapng");
    let arguments = ["inspect", "--hex", "-", "--plain", "--write", out.to_str().expect("UTF-8")];
    let mut child = command(&arguments).spawn().expect("bcnet starts");
    drop(child.stdout.take());
    let mut stdin = child.stdin.take().expect("a pipe");
    stdin.write_all("01 01 02\n".repeat(20_000).as_bytes()).expect("bcnet reads all input");
    drop(stdin);
    assert_eq!(crate::run::wait_with_output(child).status.code(), Some(0));
    // Each packet has 31 bytes of IPv4, in a block of 64 bytes.
    let len = fs::metadata(&out).expect("the capture").len();
    assert!((20_000 * 64..20_000 * 64 + 200).contains(&len), "{len}");
    fs::remove_dir_all(folder).expect("clean up");
}

#[test]
fn write_never_overwrites_its_input() {
    let folder = scratch_directory("overwrite");
    let file = folder.join("in.hex");
    fs::write(&file, "01 01 02\n").expect("a file");
    let file = file.to_str().expect("UTF-8");
    let run = bcnet(&["inspect", "--hex", file, "--plain", "--write", file], "");
    assert_eq!(run.code, 2);
    assert_eq!(run.stderr, format!("bcnet: {file}: is the input; name another file for --write\n"));
    assert_eq!(fs::read_to_string(file).expect("still there"), "01 01 02\n");
    fs::remove_dir_all(folder).expect("clean up");
}
