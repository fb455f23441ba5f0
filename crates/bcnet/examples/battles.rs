//! Writes a capture of simulated battles between stock engines, for measurements: `battles OUT.pcap BYTES`.
//!
//! Each battle has a different seed, from 1 on, and a separate network. So the file depends only on its size.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::time::Duration;

use anyhow::Context;
use bcnet_lab::{RunOptions, Scenario, World, capture_datagrams};
use bcnet_transport::cipher;
use bcnet_transport::wire::PeerId;
use etherparse::PacketBuilder;

fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().context("usage: battles OUT.pcap BYTES")?;
    let size: usize = arguments.next().context("usage: battles OUT.pcap BYTES")?.parse()?;
    let scenario = Scenario::parse(BATTLE_SCENARIO).expect("a scenario of the project");
    let mut out = BufWriter::new(File::create(path)?);
    let mut written =
        write_record(&mut out, &[0xA1B2_C3D4, 0x0004_0002, 0, 0, MAX_PACKET, LINKTYPE_RAW], &[])?;
    for seed in 1.. {
        let start = (scenario.settle + scenario.duration) * seed;
        let options = RunOptions { seed: Some(seed.into()), ..RunOptions::default() };
        for (meta, mut bytes) in capture_datagrams(&scenario, &options, MAX_DATAGRAMS) {
            if written >= size {
                return Ok(out.flush()?);
            }
            if bytes.first() != Some(&PeerId::GAMESPY.0) {
                cipher::encrypt(&mut bytes);
            }
            let at = start + Duration::from_micros(meta.now.as_micros());
            let [from, to] = [meta.from, meta.to].map(|node| address(seed, node));
            let mut packet = Vec::new();
            PacketBuilder::ipv4(from, to, 64).udp(PORT, PORT).write(&mut packet, &bytes)?;
            let length = u32::try_from(packet.len())?;
            let seconds = u32::try_from(at.as_secs())?;
            written += write_record(&mut out, &[seconds, at.subsec_micros(), length, length], &packet)?;
        }
    }
    Ok(())
}

/// Returns the address of a node in the network of a battle.
fn address(seed: u32, node: usize) -> [u8; 4] {
    let [_, _, _, place] = World::address(node).ip().octets();
    let [_, _, high, low] = seed.to_be_bytes();
    [10, high, low, place]
}

/// Writes numbers and the bytes after them. Returns the number of bytes written.
fn write_record(out: &mut impl Write, numbers: &[u32], bytes: &[u8]) -> anyhow::Result<usize> {
    for number in numbers {
        out.write_all(&number.to_le_bytes())?;
    }
    out.write_all(bytes)?;
    Ok(4 * numbers.len() + bytes.len())
}

const BATTLE_SCENARIO: &str = include_str!("../../bcnet-lab/scenarios/battle-loss5.toml");
const PORT: u16 = 22101;
/// IPv4 without a link layer.
const LINKTYPE_RAW: u32 = 101;
/// The maximum number of datagrams. A battle has fewer.
const MAX_DATAGRAMS: usize = 1 << 20;
const MAX_PACKET: u32 = 65_535;
