//! Writes datagrams as a pcapng file, inside IPv4 and UDP.

use std::borrow::Cow;
use std::fs::File;
use std::io::BufWriter;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};
use bcnet_transport::cipher;
use bcnet_transport::wire::{PeerId, Role};
use etherparse::PacketBuilder;
use pcap_file::DataLink;
use pcap_file::pcapng::PcapNgWriter;
use pcap_file::pcapng::blocks::enhanced_packet::{EnhancedPacketBlock, EnhancedPacketOption};
use pcap_file::pcapng::blocks::interface_description::{
    InterfaceDescriptionBlock, InterfaceDescriptionOption,
};

use super::hex::Line;

pub(super) struct Capture {
    path: PathBuf,
    out: PcapNgWriter<BufWriter<File>>,
    written: u32,
}

impl Capture {
    pub(super) fn create(path: &Path, input: &Path) -> anyhow::Result<Self> {
        if path.as_os_str() == "-" {
            bail!("--write needs the name of a file: standard output has the decoded datagrams");
        }
        if let (Ok(input), Ok(output)) = (input.canonicalize(), path.canonicalize())
            && input == output
        {
            bail!("{}: is the input; name another file for --write", path.display());
        }
        let start = || -> anyhow::Result<_> {
            let mut out = PcapNgWriter::new(BufWriter::new(File::create(path)?))?;
            out.write_pcapng_block(InterfaceDescriptionBlock {
                linktype: DataLink::RAW,
                snaplen: 0,
                // Times are written in nanoseconds; without this readers take them for microseconds.
                options: vec![InterfaceDescriptionOption::IfTsResol(9)],
            })?;
            Ok(out)
        };
        let out = start().with_context(|| path.display().to_string())?;
        Ok(Self { path: path.to_owned(), out, written: 0 })
    }

    /// Writes one datagram, which is still ciphered unless `plain`. `false` if no UDP datagram can hold it.
    pub(super) fn write(&mut self, line: &Line, datagram: &[u8], plain: bool) -> anyhow::Result<bool> {
        if datagram.len() > LARGEST_UDP_PAYLOAD {
            return Ok(false);
        }
        let context = || format!("{}: line {}", self.path.display(), line.number);
        let mut wire = Cow::Borrowed(datagram);
        if plain && datagram.first() != Some(&PeerId::GAMESPY.0) {
            cipher::encrypt(wire.to_mut());
        }
        let (from, to) = addresses(line.sent_by, datagram);
        let builder = PacketBuilder::ipv4(from.octets(), to.octets(), TTL).udp(PORT, PORT);
        let mut packet = Vec::with_capacity(builder.size(wire.len()));
        builder.write(&mut packet, &wire).with_context(context)?;
        let comment = line.comment.as_deref().filter(|comment| !comment.is_empty());
        let block = EnhancedPacketBlock {
            interface_id: 0,
            timestamp: Duration::from_millis(self.written.into()),
            original_len: u32::try_from(packet.len())?,
            options: comment.map(|text| EnhancedPacketOption::Comment(text.into())).into_iter().collect(),
            data: packet.into(),
        };
        self.out.write_pcapng_block(block).with_context(context)?;
        self.written += 1;
        Ok(true)
    }

    pub(super) fn finish(self) -> anyhow::Result<()> {
        let buffer = self.out.into_inner();
        buffer
            .into_inner()
            .map_err(|error| error.into_error())
            .with_context(|| self.path.display().to_string())?;
        Ok(())
    }
}

/// Hex lines carry no addresses: the host and each client id get one.
fn addresses(sent_by: Option<Role>, datagram: &[u8]) -> (Ipv4Addr, Ipv4Addr) {
    let sender = datagram.first().map_or(PeerId::UNASSIGNED, |byte| PeerId(*byte));
    let role = sent_by.unwrap_or(if sender == PeerId::HOST { Role::Host } else { Role::Client });
    match role {
        Role::Host => (HOST, FIRST_CLIENT),
        Role::Client if sender.is_assignable() => (Ipv4Addr::new(10, 0, 0, sender.0), HOST),
        Role::Client => (FIRST_CLIENT, HOST),
    }
}

const HOST: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const FIRST_CLIENT: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
const PORT: u16 = 22101;
const TTL: u8 = 64;
const LARGEST_UDP_PAYLOAD: usize = 65_507;
