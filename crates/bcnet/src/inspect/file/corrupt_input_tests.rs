//! Tests that every input is read to its end, whatever bytes it contains.

use std::io::Write as _;

use bcnet_lab::Rng;
use bcnet_observe::MessageBuffer;
use bcnet_transport::cipher;
use flate2::write::GzEncoder;
use ruzstd::encoding::{CompressionLevel, compress_to_vec};

use super::source::{PacketBatch, PacketSource, ReadCounters, ReadStep};
use super::{Analysis, Sink};

#[test]
fn mutated_inputs_are_read_to_the_end() {
    let samples = sample_inputs();
    for seed in 0..SEEDS {
        let mut random = Rng::new(seed);
        let mut bytes = samples[random.index(samples.len())].clone();
        for _ in 0..random.below(12) {
            mutate(&mut bytes, &mut random);
        }
        read_to_end(bytes, seed);
    }
}

/// The unchanged samples must be decoded, or the test above tests nothing.
#[test]
fn unmutated_samples_are_decoded() {
    for sample in sample_inputs() {
        assert!(read_to_end(sample, 0) >= 3);
    }
}

/// Returns one sample of each format, and compressed ones.
fn sample_inputs() -> [Vec<u8>; 6] {
    let mut gzip = GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(&pcap()).expect("memory");
    let zstd = compress_to_vec(pcapng().as_slice(), CompressionLevel::Fastest);
    [pcap(), pcapng(), LOG.as_bytes().to_vec(), hex_dumps(), gzip.finish().expect("memory"), zstd]
}

/// Returns hex dumps of the packets in the style of `hexdump -C`, each below a line with a time.
fn hex_dumps() -> Vec<u8> {
    let mut text = String::new();
    for frame in ip_packets() {
        text.push_str("12:00:00.5 IP\n");
        for (row, bytes) in frame.chunks(16).enumerate() {
            let hex: String = bytes.iter().map(|byte| format!("{byte:02x} ")).collect();
            text.push_str(&format!("{:04x}  {hex}  |..|\n", row * 16));
        }
    }
    text.into_bytes()
}

/// Reads everything. Returns the number of datagrams of the game.
fn read_to_end(bytes: Vec<u8>, seed: u64) -> u64 {
    let length = bytes.len();
    let Ok(mut source) = PacketSource::open(Box::new(std::io::Cursor::new(bytes))) else { return 0 };
    let sinks: Vec<Box<dyn Sink>> = Vec::new();
    let (mut run, mut batch, mut counts) =
        (Analysis::new(sinks), PacketBatch::default(), ReadCounters::default());
    // The smallest packet has some bytes, so there are fewer packets than decompressed bytes.
    for _ in 0..=length * MAX_COMPRESSION_RATIO {
        batch.clear();
        // Peeking at the next packet must not disturb reading.
        source.next_time();
        let step = source.read(&mut batch, &mut counts).expect("reading from memory cannot fail");
        batch.decrypt();
        let mut messages = MessageBuffer::default();
        for (packet, bytes) in batch.iter() {
            run.analyze(packet, bytes, &messages.read(bytes, None), &mut counts.skipped)
                .expect("there are no outputs that could fail");
        }
        if step != ReadStep::More {
            run.finish("memory", &[], &counts, source.offset())
                .expect("there are no outputs that could fail");
            return run.datagrams;
        }
    }
    panic!("seed {seed}: {length} bytes do not end");
}

/// Mutates the input: a byte, a number, the order or the length.
fn mutate(bytes: &mut Vec<u8>, random: &mut Rng) {
    let at = random.index(bytes.len() + 1);
    match random.below(6) {
        0 => bytes.truncate(at),
        1 => drop(bytes.splice(at..at, [b'0'; 7])),
        2 => drop(bytes.drain(at..(at + 9).min(bytes.len()))),
        3 => {
            let end = (at + 4).min(bytes.len());
            let value = if random.below(2) == 0 { 0xFF } else { 0 };
            bytes[at..end].fill(value);
        }
        4 => bytes.extend_from_within(at..),
        _ => {
            if let Some(byte) = bytes.get_mut(at) {
                *byte ^= random.below(255) as u8 + 1;
            }
        }
    }
}

/// Returns three datagrams over raw IPv4.
fn ip_packets() -> [Vec<u8>; 3] {
    [&[1, 1, 2][..], &[2, 1, 0x32, 7, 0x80, 0, 0, 0x2A, 0x20], &[1, 1, 1, 0, 0, 0]].map(|plain| {
        let mut payload = plain.to_vec();
        cipher::encrypt(&mut payload);
        let udp = 8 + payload.len() as u8;
        let mut frame = vec![0x45, 0, 0, 20 + udp, 0, 0, 0, 0, 64, 17, 0, 0];
        let ends = if plain[0] == 1 { [1, 2] } else { [2, 1] };
        frame.extend([10, 0, 0, ends[0], 10, 0, 0, ends[1]]);
        frame.extend([0x56, 0x55, 0x56, 0x55, 0, udp, 0, 0]);
        frame.extend(payload);
        frame
    })
}

fn pcap() -> Vec<u8> {
    let mut bytes: Vec<u8> =
        [0xA1B2_C3D4, 0x0004_0002, 0, 0, 65_535, RAW].into_iter().flat_map(u32::to_le_bytes).collect();
    for (second, frame) in (0..).zip(ip_packets()) {
        let length = frame.len() as u32;
        bytes.extend([second, 0, length, length].into_iter().flat_map(u32::to_le_bytes));
        bytes.extend(frame);
    }
    bytes
}

fn pcapng() -> Vec<u8> {
    let mut bytes = Vec::new();
    pcapng_block(&mut bytes, 0x0A0D_0D0A, &[0x1A2B_3C4D, 1, u32::MAX, u32::MAX], &[]);
    pcapng_block(&mut bytes, 1, &[RAW, 65_535, 0x0001_0009, 9, 0], &[]);
    for (second, frame) in (0..).zip(ip_packets()) {
        let length = frame.len() as u32;
        // A packet comment.
        let mut rest = frame;
        rest.resize(rest.len().next_multiple_of(4), 0);
        rest.extend([1, 0, 2, 0, b'h', b'i', 0, 0, 0, 0, 0, 0]);
        pcapng_block(&mut bytes, 6, &[0, 0, second, length, length], &rest);
    }
    bytes
}

fn pcapng_block(bytes: &mut Vec<u8>, kind: u32, head: &[u32], rest: &[u8]) {
    let length = 12 + 4 * head.len() as u32 + rest.len() as u32;
    bytes.extend([kind, length].iter().chain(head).copied().flat_map(u32::to_le_bytes));
    bytes.extend(rest);
    bytes.extend(length.to_le_bytes());
}

const LOG: &str = include_str!("../../../tests/packet-log.txt");
const RAW: u32 = 101;
const SEEDS: u64 = 20_000;
/// The approximate compression limit of zstd: a block of four bytes becomes 128 KiB.
const MAX_COMPRESSION_RATIO: usize = 1 << 15;
