//! The capture of a running server: a ring of files, written by a thread of its own.
//!
//! The disk must not hold up the game: what the thread cannot keep up with is left out and counted.

use std::fs;
use std::net::SocketAddrV4;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, Sender, SyncSender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::Context;

use crate::capture::{Packet, Writer};

/// How much disk a capture may take.
#[derive(Debug, Clone)]
pub(crate) struct Ring {
    /// The newest file. Older ones have a number before the extension: `FILE.1.pcapng` is the one before.
    pub(crate) path: PathBuf,
    /// When a file has this size, the next is begun.
    pub(crate) size: u64,
    /// How many files to keep.
    pub(crate) files: u32,
}

/// Takes datagrams for the capture. Every thread has one of its own.
#[derive(Clone)]
pub(crate) struct Recorder {
    packets: SyncSender<Owned>,
    left_out: LeftOut,
    /// Dropped after `packets`.
    _written: Arc<Written>,
}

/// How many datagrams are not in the capture because the disk was too slow, or full.
#[derive(Clone, Default)]
pub(crate) struct LeftOut(Arc<AtomicU64>);

impl LeftOut {
    pub(crate) fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Tells when everything is written. Nobody ever waits for the lock.
struct Written(Mutex<Receiver<()>>);

impl Drop for Written {
    /// When the last recorder is gone, everything that was recorded is in the file, unless the disk has stopped.
    fn drop(&mut self) {
        let written = self.0.get_mut().unwrap_or_else(PoisonError::into_inner);
        let _ = written.recv_timeout(PATIENCE);
    }
}

struct Owned {
    from: SocketAddrV4,
    to: SocketAddrV4,
    time: Duration,
    bytes: Box<[u8]>,
    comment: Option<Box<str>>,
}

impl Recorder {
    /// Begins a capture. One that is there becomes the one before.
    pub(crate) fn start(ring: Ring) -> anyhow::Result<Self> {
        // Devices and pipes stay where they are, and what cannot start again and again must not push out what is recorded.
        if fs::metadata(&ring.path).is_ok_and(|old| old.is_file() && old.len() > EMPTY) {
            shift(&ring)?;
        }
        let mut writer = Writer::create(&ring.path)?;
        writer.flush()?;
        let (packets, inbox) = mpsc::sync_channel(BACKLOG);
        let (ended, written) = mpsc::channel();
        let write = move || {
            let _ended: Sender<()> = ended;
            if let Err(error) = write_all(&ring, writer, &inbox) {
                tracing::error!(event = "capture_failed", error = format!("{error:#}"), "the capture ends");
            }
        };
        thread::Builder::new().name("capture".into()).spawn(write)?;
        let written = Arc::new(Written(Mutex::new(written)));
        Ok(Self { packets, left_out: LeftOut::default(), _written: written })
    }

    /// Records a datagram.
    pub(crate) fn record(&self, from: SocketAddrV4, to: SocketAddrV4, time: Duration, bytes: &[u8]) {
        self.record_with(from, to, time, bytes, None);
    }

    /// Records a datagram with a remark.
    pub(crate) fn record_with(
        &self,
        from: SocketAddrV4,
        to: SocketAddrV4,
        time: Duration,
        bytes: &[u8],
        remark: Option<&str>,
    ) {
        let comment = remark.map(Into::into);
        if self.packets.try_send(Owned { from, to, time, bytes: bytes.into(), comment }).is_err() {
            self.left_out.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Returns the count of what is not in the capture.
    pub(crate) fn left_out(&self) -> LeftOut {
        self.left_out.clone()
    }
}

fn write_all(ring: &Ring, mut writer: Writer, packets: &Receiver<Owned>) -> anyhow::Result<()> {
    while let Ok(first) = packets.recv() {
        let mut next = Some(first);
        while let Some(Owned { from, to, time, bytes, comment }) = next {
            if writer.size() >= ring.size {
                writer.flush()?;
                shift(ring)?;
                writer = Writer::create(&ring.path)?;
            }
            writer.write(&Packet { from, to, time, bytes: &bytes, comment: comment.as_deref() })?;
            next = packets.try_recv().ok();
        }
        writer.flush()?;
    }
    Ok(())
}

/// Makes room for a new file: each gets the next number and the oldest is gone.
fn shift(ring: &Ring) -> anyhow::Result<()> {
    for number in (0..ring.files.saturating_sub(1)).rev() {
        let (from, to) = (numbered(&ring.path, number), numbered(&ring.path, number + 1));
        if from.exists() {
            fs::rename(&from, &to).with_context(|| from.display().to_string())?;
        }
    }
    Ok(())
}

fn numbered(path: &Path, number: u32) -> PathBuf {
    if number == 0 {
        return path.to_owned();
    }
    let extension = path.extension().unwrap_or_default().to_string_lossy();
    path.with_extension(format!("{number}.{extension}"))
}

/// The size of a capture without datagrams.
const EMPTY: u64 = 60;
/// How long the disk may take at the end.
const PATIENCE: Duration = Duration::from_millis(500);
/// Datagrams that wait for the disk, at most: with their bytes a few megabytes.
const BACKLOG: usize = 8192;

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    /// Returns what the files of a ring have: the last byte of each datagram.
    fn recorded(directory: &Path, name: &str) -> Vec<u8> {
        let file = fs::File::open(directory.join(name)).expect(name);
        let mut reader = pcap_file::pcapng::PcapNgReader::new(file).expect(name);
        let mut seen = Vec::new();
        while let Some(block) = reader.next_block() {
            let block = block.expect("a whole file").into_owned();
            if let pcap_file::pcapng::Block::EnhancedPacket(packet) = block {
                seen.extend(packet.data.last().copied());
            }
        }
        seen
    }

    #[test]
    fn a_capture_outlives_restarts() {
        let directory = std::env::temp_dir().join(format!("bcnet-restart-{}", std::process::id()));
        fs::create_dir_all(&directory).expect("a directory");
        let ring = Ring { path: directory.join("game.pcapng"), size: 1 << 20, files: 3 };
        let address = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 22101);
        for run in 1..=4 {
            let recorder = Recorder::start(ring.clone()).expect("a capture");
            recorder.record(address, address, Duration::ZERO, &[run; 10]);
            drop(recorder);
            // Who starts and records nothing pushes nothing out.
            for _ in 0..5 {
                drop(Recorder::start(ring.clone()).expect("a capture"));
                assert_eq!(fs::metadata(&ring.path).expect("a file").len(), EMPTY);
            }
        }
        assert_eq!(recorded(&directory, "game.1.pcapng"), [4]);
        assert_eq!(recorded(&directory, "game.2.pcapng"), [3]);
        assert_eq!(fs::read_dir(&directory).expect("a directory").count(), 3, "no more than the ring has");
        fs::remove_dir_all(&directory).expect("removed");
    }

    #[test]
    fn the_ring_keeps_as_many_files_as_it_may_and_each_is_whole() {
        let directory = std::env::temp_dir().join(format!("bcnet-ring-{}", std::process::id()));
        fs::create_dir_all(&directory).expect("a directory");
        let path = directory.join("game.pcapng");
        let address = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 22101);
        let recorder = Recorder::start(Ring { path: path.clone(), size: 2000, files: 3 }).expect("a capture");
        for i in 0..100_u8 {
            recorder.record(address, address, Duration::from_secs(i.into()), &[i; 100]);
        }
        assert_eq!(recorder.left_out().count(), 0);
        drop(recorder);
        let mut seen = Vec::new();
        for name in ["game.2.pcapng", "game.1.pcapng", "game.pcapng"] {
            let file = fs::metadata(directory.join(name));
            assert!(file.expect("a file").len() < 2300, "{name}");
            seen.extend(recorded(&directory, name));
        }
        assert_eq!(fs::read_dir(&directory).expect("a directory").count(), 3);
        assert_eq!(seen.last(), Some(&99));
        assert!(seen.len() > 20 && seen.windows(2).all(|pair| pair[0] + 1 == pair[1]), "{seen:?}");
        fs::remove_dir_all(&directory).expect("removed");
    }
}
