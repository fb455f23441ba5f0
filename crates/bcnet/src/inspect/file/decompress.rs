//! Decompresses gzip and zstd inputs, recognised by their first bytes, not by their name.
//!
//! Inputs are decompressed while they are read, in bounded memory: the content may be a thousand times as large. Damage
//! ends the input early. Everything before the damage is read, and the damage is reported afterwards.

use std::cell::{Cell, RefCell};
use std::io::{self, Read};
use std::rc::Rc;

use flate2::bufread::MultiGzDecoder;
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};

use super::pcap::{Damage, InputBuffer};

/// The state of an input that is being decompressed.
#[derive(Debug, Clone, Default)]
pub(super) struct DecompressionState {
    /// The number of compressed bytes that were read.
    offset: Rc<Cell<u64>>,
    damage: Rc<RefCell<Option<Damage>>>,
}

impl DecompressionState {
    /// Returns the number of compressed bytes that were read.
    pub(super) fn offset(&self) -> u64 {
        self.offset.get()
    }

    /// Returns where and why decompression stopped before the end, if it did.
    pub(super) fn damage(&self) -> Option<Damage> {
        self.damage.borrow().clone()
    }
}

/// Returns the content of an input: decompressed if it is compressed.
pub(super) fn decompress(mut input: InputBuffer) -> io::Result<(InputBuffer, Option<DecompressionState>)> {
    input.fill_to(MAGIC_LEN)?;
    let decoder = match input.buffered() {
        [0x1F, 0x8B, ..] => Decoder::Gzip(Box::new(MultiGzDecoder::new(input))),
        rest if is_zstd_frame(rest) || is_skippable_frame(rest) => {
            let mut frame = FrameDecoder::new();
            frame.set_max_window_size(MAX_ZSTD_WINDOW);
            Decoder::Zstd(Box::new(ZstdReader { input, frame, in_frame: false, failure: None }))
        }
        _ => return Ok((input, None)),
    };
    let unpacking = DecompressionState::default();
    let reader = DecompressedReader { decoder, decompressed_bytes: 0, state: unpacking.clone() };
    Ok((InputBuffer::new(Box::new(reader)), Some(unpacking)))
}

/// Returns the command that decompresses a known format which this program does not support.
pub(super) fn unsupported_decompressor(bytes: &[u8]) -> Option<&'static str> {
    match bytes {
        [0xFD, b'7', b'z', b'X', b'Z', ..] => Some("xz -dc"),
        [b'B', b'Z', b'h', b'1'..=b'9', ..] => Some("bzip2 -dc"),
        [0x04, 0x22, 0x4D, 0x18, ..] => Some("lz4 -dc"),
        [b'P', b'K', 3, 4, ..] => Some("unzip -p"),
        _ => None,
    }
}

enum Decoder {
    Gzip(Box<MultiGzDecoder<InputBuffer>>),
    Zstd(Box<ZstdReader>),
}

/// Reads the decompressed bytes of an input.
struct DecompressedReader {
    decoder: Decoder,
    decompressed_bytes: u64,
    state: DecompressionState,
}

impl Read for DecompressedReader {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.state.damage.borrow().is_some() {
            return Ok(0);
        }
        let (read, offset, format) = match &mut self.decoder {
            Decoder::Gzip(decoder) => (decoder.read(into), decoder.get_ref().offset(), "gzip"),
            Decoder::Zstd(decoder) => (decoder.read(into), decoder.input.offset(), "zstd"),
        };
        self.state.offset.set(offset);
        match read {
            Ok(read) => {
                self.decompressed_bytes += read as u64;
                Ok(read)
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Err(error),
            Err(error) => {
                let why = match error.kind() {
                    io::ErrorKind::UnexpectedEof => "the file ends too early".into(),
                    _ => error.to_string(),
                };
                let what = format!("{format}: {why}, after {} decompressed bytes", self.decompressed_bytes);
                *self.state.damage.borrow_mut() =
                    Some(Damage { offset, is_in_decompressed: false, reason: what });
                Ok(0)
            }
        }
    }
}

/// Reads consecutive zstd frames, some of which may be empty.
struct ZstdReader {
    input: InputBuffer,
    frame: FrameDecoder,
    in_frame: bool,
    /// An error that is returned after everything before it was read.
    failure: Option<io::Error>,
}

impl Read for ZstdReader {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            if self.frame.can_collect() > 0 {
                return self.frame.read(into);
            }
            if let Some(error) = self.failure.take() {
                return Err(error);
            }
            if self.in_frame && self.frame.is_finished() {
                self.in_frame = false;
                let stored = self.frame.get_checksum_from_data();
                if stored.is_some() && stored != self.frame.get_calculated_checksum() {
                    return Err(io::Error::other("the checksum is wrong"));
                }
            }
            if !self.in_frame && !self.start_frame()? {
                return Ok(0);
            }
            if let Err(error) = self.decompress_block() {
                self.failure = Some(error);
                self.drain_damaged_frame();
            }
        }
    }
}

impl ZstdReader {
    /// Starts the next frame. Returns `false` if there is none.
    fn start_frame(&mut self) -> io::Result<bool> {
        loop {
            if !self.input.fill_to(1)? {
                return Ok(false);
            }
            self.input.fill_to(SKIPPABLE_HEADER_LEN)?;
            let rest = self.input.buffered();
            if is_zstd_frame(rest) {
                break;
            }
            if !is_skippable_frame(rest) {
                return Err(io::Error::other("unknown bytes follow the last frame"));
            }
            let length = rest.get(4..SKIPPABLE_HEADER_LEN).and_then(|bytes| bytes.try_into().ok());
            let length = length.map(|length| u32::from_le_bytes(length) as usize).ok_or(UNEXPECTED_EOF)?;
            if !self.input.skip(SKIPPABLE_HEADER_LEN)? || !self.input.skip(length)? {
                return Err(UNEXPECTED_EOF.into());
            }
        }
        self.frame.reset(&mut self.input).map_err(io::Error::other)?;
        self.in_frame = true;
        Ok(true)
    }

    /// Decompresses the next block.
    ///
    /// The whole block must be buffered: the decoder would replace missing bytes by zeros.
    fn decompress_block(&mut self) -> io::Result<()> {
        if !self.input.fill_to(BLOCK_HEADER_LEN)? {
            return Err(UNEXPECTED_EOF.into());
        }
        let &[low, middle, high, ..] = self.input.buffered() else { return Err(UNEXPECTED_EOF.into()) };
        let header = u32::from_le_bytes([low, middle, high, 0]);
        let size = if header >> 1 & 3 == RLE_BLOCK { 1 } else { (header >> 3) as usize };
        if size <= MAX_BLOCK && !self.input.fill_to(BLOCK_HEADER_LEN + size)? {
            return Err(UNEXPECTED_EOF.into());
        }
        let done = self.frame.decode_blocks(&mut self.input, BlockDecodingStrategy::UptoBlocks(1));
        done.map(drop).map_err(io::Error::other)
    }

    /// Ends a damaged frame with an empty last block, so that the decoder releases the bytes in its window.
    fn drain_damaged_frame(&mut self) {
        // A last block without bytes, and a checksum for frames that have one.
        let last: &[u8] = &[1, 0, 0, 0, 0, 0, 0];
        let _ = self.frame.decode_blocks(last, BlockDecodingStrategy::UptoBlocks(1));
    }
}

fn is_zstd_frame(bytes: &[u8]) -> bool {
    bytes.starts_with(&[0x28, 0xB5, 0x2F, 0xFD])
}

/// Returns whether a skippable frame begins, which is not part of the content.
fn is_skippable_frame(bytes: &[u8]) -> bool {
    matches!(bytes, [0x50..=0x5F, 0x2A, 0x4D, 0x18, ..])
}

const MAGIC_LEN: usize = 4;
const SKIPPABLE_HEADER_LEN: usize = 8;
const BLOCK_HEADER_LEN: usize = 3;
/// The kind of a block that repeats a single byte.
const RLE_BLOCK: u32 = 1;
/// The largest block that the format allows.
const MAX_BLOCK: usize = 128 * 1024;
/// The largest window that a file may ask for. The `zstd` program has the same default.
const MAX_ZSTD_WINDOW: u64 = 128 * 1024 * 1024;
const UNEXPECTED_EOF: io::ErrorKind = io::ErrorKind::UnexpectedEof;
