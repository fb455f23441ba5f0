//! Tests compressed captures, whole and damaged.

use std::fs;
use std::io::Write as _;

use flate2::Compression;
use flate2::write::GzEncoder;
use ruzstd::encoding::{CompressionLevel, compress_to_vec};

use crate::captures::{ETHERNET, RAW, datagrams, inspect, pcap, pcapng, session};
#[cfg(unix)]
use crate::captures::{inspect_with_ulimit, test_directory};
use crate::run::{ProcessOutput, bcnet, path};

pub(crate) fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut packer = GzEncoder::new(Vec::new(), Compression::default());
    packer.write_all(bytes).expect("memory");
    packer.finish().expect("memory")
}

pub(crate) fn zstd(bytes: &[u8]) -> Vec<u8> {
    compress_to_vec(bytes, CompressionLevel::Fastest)
}

/// Returns the offset at which a run reports damage.
fn damage_offset(run: &ProcessOutput) -> usize {
    let place = run.stderr.split("damaged at byte ").nth(1).and_then(|rest| rest.split(':').next());
    place.expect(&run.stderr).parse().expect("an offset")
}

/// Returns a frame without content.
fn skippable_frame() -> Vec<u8> {
    [&[0x5A, 0x2A, 0x4D, 0x18, 5, 0, 0, 0][..], b"hello"].concat()
}

#[test]
fn compressed_captures_are_recognized_by_content() {
    for capture in [pcap(&session(), RAW), pcapng(&session(), ETHERNET)] {
        let expected = inspect(&capture, &["--json"]);
        assert_eq!((expected.code, expected.stderr.as_str()), (0, ""));
        let (one, other) = capture.split_at(capture.len() / 3);
        let packed = [
            gzip(&capture),
            [gzip(one), gzip(&[]), gzip(other)].concat(),
            zstd(&capture),
            [skippable_frame(), zstd(one), skippable_frame(), zstd(other)].concat(),
        ];
        for (place, packed) in packed.iter().enumerate() {
            let run = inspect(packed, &["--json"]);
            assert_eq!((run.code, run.stderr.as_str()), (0, ""), "{place}");
            assert!(run.stdout == expected.stdout, "{place}: {}", run.stdout);
        }
    }
    // The content can be any input.
    let log = fs::read(path("crates/bcnet/tests/packet-log.txt")).expect("a log");
    assert_eq!(inspect(&gzip(&log), &["--json"]).stdout, inspect(&log, &["--json"]).stdout);
    let hex = bcnet(&["inspect", "--hex", "-", "--plain"], zstd(b"01 01 02\n"));
    assert!(hex.code == 0 && hex.stdout.contains("keepalive"), "{}{}", hex.stdout, hex.stderr);
}

#[test]
fn packets_before_damage_in_compressed_capture_are_shown() {
    let capture = pcap(&session(), ETHERNET);
    let whole = datagrams(&inspect(&capture, &["--json"]));
    let (one, other) = capture.split_at(capture.len() / 2);
    let frames = [gzip(one), gzip(other)].map(|part| part.len());
    for (name, packed, first) in [
        ("gzip", [gzip(one), gzip(other)].concat(), frames[0]),
        ("zstd", [zstd(one), zstd(other)].concat(), zstd(one).len()),
    ] {
        for cut in (12..packed.len() - 1).step_by(packed.len() / 19) {
            let run = inspect(&packed[..cut], &["--json"]);
            let shown = datagrams(&run);
            assert!(whole.starts_with(&shown), "{name} cut at {cut}");
            assert!(
                cut <= first || shown.len() >= whole.len() / 2 - 2,
                "{name} cut at {cut}: {}",
                shown.len()
            );
            if cut == first {
                continue;
            }
            assert_eq!(run.code, 1, "{name} cut at {cut}: {}", run.stderr);
            let place = damage_offset(&run);
            assert!(place <= cut, "{name}: {place} is behind {cut}");
            assert!(run.stderr.contains(&format!(": {name}: ")), "{}", run.stderr);
        }
        let mut wrong = packed.clone();
        let last = wrong.len() - 5;
        wrong[last] ^= 1;
        let run = inspect(&wrong, &["--json"]);
        assert_eq!(run.code, 1, "{name}: {}", run.stderr);
        assert!(run.stderr.contains("damaged at byte "), "{}", run.stderr);
        let trailing = [packed, b"something else".to_vec()].concat();
        let run = inspect(&trailing, &["--json"]);
        assert_eq!((run.code, datagrams(&run).len()), (1, whole.len()), "{name}: {}", run.stderr);
    }
}

/// Valid compressed data may contain a damaged capture.
#[test]
fn damage_after_decompression_reports_decompressed_offset() {
    let capture = pcap(&session(), RAW);
    let mut wrong = capture.clone();
    let at = wrong.len() - 30;
    wrong.truncate(at);
    wrong.extend([0xFF; 40]);
    let plain = inspect(&wrong, &["--json"]);
    let place = damage_offset(&plain);
    for packed in [gzip(&wrong), zstd(&wrong)] {
        let run = inspect(&packed, &["--json"]);
        assert_eq!((run.code, datagrams(&run)), (1, datagrams(&plain)));
        let message = format!("standard input: damaged at byte {place} of the decompressed data: ");
        assert!(run.stderr.contains(&message), "{}", run.stderr);
    }
}

/// A file of some kilobytes that decompresses to 256 MB, in the middle of a capture, takes less memory than that.
#[cfg(unix)]
#[test]
fn decompression_bomb_is_read_in_bounded_memory() {
    const REPEATED: u32 = 128 * 1024;
    const BLOCKS: u32 = 2048;
    let capture = pcapng(&session(), RAW);
    let length = (12 + REPEATED * BLOCKS).to_le_bytes();
    let head = [&capture[..28], &0x0BAD_u32.to_le_bytes(), &length].concat();
    let mut packed = vec![0x28, 0xB5, 0x2F, 0xFD, 0, 0x58];
    let raw = |packed: &mut Vec<u8>, bytes: &[u8], last: u32| {
        let header = u32::try_from(bytes.len()).expect("small") << 3 | last;
        packed.extend(&header.to_le_bytes()[..3]);
        packed.extend(bytes);
    };
    raw(&mut packed, &head, 0);
    for _ in 0..BLOCKS {
        packed.extend(&(REPEATED << 3 | 1 << 1).to_le_bytes()[..3]);
        packed.push(0);
    }
    raw(&mut packed, &[&length, &capture[28..]].concat(), 1);
    let file = test_directory("bomb").join("bomb.zst");
    fs::write(&file, &packed).expect("written");
    let run = inspect_with_ulimit("-v 131072", &file);
    assert_eq!((run.code, run.stderr.as_str()), (0, ""));
    assert_eq!(datagrams(&run).len(), session().len());
}

#[test]
fn unsupported_compression_is_named() {
    let run = inspect(b"\xFD7zXZ\0 and so on", &[]);
    assert!(run.code == 2 && run.stderr.contains("`xz -dc FILE | bcnet inspect -`"), "{}", run.stderr);
}
