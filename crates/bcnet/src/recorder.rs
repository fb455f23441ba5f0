//! The capture of a running server: a ring of files, written by a thread of its own.
//!
//! The disk must not hold up the game: what the thread cannot keep up with is left out and counted. Nor must the thread
//! itself: it is not woken for each datagram, but takes what has come every so often, in one piece.

use std::fs;
use std::net::SocketAddrV4;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, Thread};
use std::time::Duration;

use anyhow::Context;

use crate::capture::{CaptureWriter, CapturedDatagram};
use crate::file;

/// How much disk a capture may take.
#[derive(Debug, Clone)]
pub(crate) struct CaptureRing {
    /// The newest file. Older ones have a number before the extension: `FILE.1.pcapng` is the one before.
    pub(crate) path: PathBuf,
    /// When a file has this size, the next is begun.
    pub(crate) file_size: u64,
    /// How many files to keep.
    pub(crate) file_count: u32,
}

/// Takes datagrams for the capture. Every thread has one of its own.
pub(crate) struct Recorder {
    /// Shared with the thread that writes, which only ever swaps it with an empty one.
    buffer: Arc<Mutex<RecordBuffer>>,
    shared: Arc<RecorderShared>,
    /// Dropped last.
    writer_guard: Arc<WriterGuard>,
}

impl Clone for Recorder {
    fn clone(&self) -> Self {
        Self::new(Arc::clone(&self.shared), Arc::clone(&self.writer_guard))
    }
}

/// Datagrams that wait to be written, of one thread.
#[derive(Default)]
struct RecordBuffer {
    entries: Vec<RecordedDatagram>,
    bytes: Vec<u8>,
}

struct RecordedDatagram {
    from: SocketAddrV4,
    to: SocketAddrV4,
    time: Duration,
    /// Where its bytes are.
    byte_range: Range<usize>,
    comment: Option<Box<str>>,
}

/// What recorders and the thread that writes have in common.
#[derive(Default)]
struct RecorderShared {
    buffers: Mutex<Vec<Arc<Mutex<RecordBuffer>>>>,
    left_out: LeftOutCounter,
    /// The last recorder is gone.
    is_stopping: AtomicBool,
}

/// How many datagrams are not in the capture because the disk was too slow, or full, or because there were too many of
/// strangers.
#[derive(Clone, Default)]
pub(crate) struct LeftOutCounter(Arc<AtomicU64>);

impl LeftOutCounter {
    pub(crate) fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    fn add(&self, datagrams: usize) {
        self.0.fetch_add(datagrams as u64, Ordering::Relaxed);
    }
}

/// Tells when everything is written. Nobody ever waits for the lock.
struct WriterGuard {
    shared: Arc<RecorderShared>,
    writer: Thread,
    ended: Mutex<Receiver<()>>,
}

impl Drop for WriterGuard {
    /// When the last recorder is gone, everything that was recorded is in the file, unless the disk has stopped.
    fn drop(&mut self) {
        self.shared.is_stopping.store(true, Ordering::Release);
        self.writer.unpark();
        let end = self.ended.get_mut().unwrap_or_else(PoisonError::into_inner);
        let _ = end.recv_timeout(FINISH_TIMEOUT);
    }
}

impl Recorder {
    /// Begins a capture. One that is there becomes the one before.
    pub(crate) fn start(ring: CaptureRing) -> anyhow::Result<Self> {
        // As the log does.
        let name = || ring.path.display().to_string();
        fs::create_dir_all(file::parent_directory(&ring.path)).with_context(name)?;
        let file = create_file(&ring)?;
        let shared = Arc::<RecorderShared>::default();
        let (ended, end) = mpsc::channel();
        let ring_writer =
            RingWriter { ring, file: Some(file), is_failing: false, left_out: shared.left_out.clone() };
        let source = Arc::clone(&shared);
        let write = move || {
            let _ended: Sender<()> = ended;
            run_writer(ring_writer, &source);
        };
        let writer = thread::Builder::new().name("capture".into()).spawn(write)?.thread().clone();
        let writer_guard = WriterGuard { shared: Arc::clone(&shared), writer, ended: Mutex::new(end) };
        Ok(Self::new(shared, Arc::new(writer_guard)))
    }

    fn new(shared: Arc<RecorderShared>, writer_guard: Arc<WriterGuard>) -> Self {
        let buffer = Arc::<Mutex<RecordBuffer>>::default();
        lock(&shared.buffers).push(Arc::clone(&buffer));
        Self { buffer, shared, writer_guard }
    }

    /// Records a datagram.
    pub(crate) fn record(&self, from: SocketAddrV4, to: SocketAddrV4, time: Duration, bytes: &[u8]) {
        self.record_with_comment(from, to, time, bytes, None);
    }

    /// Records a datagram with a remark.
    pub(crate) fn record_with_comment(
        &self,
        from: SocketAddrV4,
        to: SocketAddrV4,
        time: Duration,
        bytes: &[u8],
        comment: Option<&str>,
    ) {
        let mut buffer = lock(&self.buffer);
        let byte_range = buffer.bytes.len()..buffer.bytes.len() + bytes.len();
        if byte_range.end > MAX_BYTES || buffer.entries.len() >= MAX_ENTRIES {
            drop(buffer);
            return self.count_left_out();
        }
        let is_half = byte_range.start < MAX_BYTES / 2 && byte_range.end >= MAX_BYTES / 2;
        buffer.bytes.extend_from_slice(bytes);
        buffer.entries.push(RecordedDatagram {
            from,
            to,
            time,
            byte_range,
            comment: comment.map(Into::into),
        });
        if is_half || buffer.entries.len() == MAX_ENTRIES / 2 {
            self.writer_guard.writer.unpark();
        }
    }

    /// Counts a datagram that is not recorded.
    pub(crate) fn count_left_out(&self) {
        self.shared.left_out.add(1);
    }

    /// Returns the count of what is not in the capture.
    pub(crate) fn left_out(&self) -> LeftOutCounter {
        self.shared.left_out.clone()
    }
}

/// Nothing is left half done by whoever panics with the lock.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Writes what all recorders have, until they are gone.
fn run_writer(mut ring_writer: RingWriter, shared: &RecorderShared) {
    let mut batch: Vec<RecordBuffer> = Vec::new();
    loop {
        thread::park_timeout(if ring_writer.is_failing { RETRY_INTERVAL } else { WRITE_INTERVAL });
        let is_over = shared.is_stopping.load(Ordering::Acquire);
        {
            let buffers = lock(&shared.buffers);
            batch.resize_with(buffers.len(), RecordBuffer::default);
            for (page, empty) in buffers.iter().zip(&mut batch) {
                std::mem::swap(&mut *lock(page), empty);
            }
        }
        ring_writer.write(&batch);
        for page in &mut batch {
            page.entries.clear();
            page.bytes.clear();
        }
        if is_over {
            return;
        }
    }
}

/// The files, and how it goes with them.
struct RingWriter {
    ring: CaptureRing,
    /// The newest; none while it cannot be begun.
    file: Option<CaptureWriter>,
    is_failing: bool,
    left_out: LeftOutCounter,
}

impl RingWriter {
    /// Writes all datagrams in the order of their times. If the disk fails, they are left out, and the next ones are tried
    /// again later.
    fn write(&mut self, buffers: &[RecordBuffer]) {
        let mut entries: Vec<(&RecordedDatagram, &[u8])> = Vec::new();
        for RecordBuffer { entries: more, bytes } in buffers {
            entries.extend(more.iter().map(|entry| (entry, &bytes[entry.byte_range.clone()])));
        }
        entries.sort_by_key(|(entry, _)| entry.time);
        if entries.is_empty() {
            return;
        }
        match self.try_write(&entries) {
            Ok(()) if self.is_failing => {
                self.is_failing = false;
                let left_out = self.left_out.count();
                tracing::info!(
                    event = "capture_resumed",
                    left_out,
                    "what came meanwhile is not in the capture"
                );
            }
            Ok(()) => {}
            Err(error) => {
                self.left_out.add(entries.len());
                if !self.is_failing {
                    let error = format!("{error:#}");
                    tracing::error!(event = "capture_failed", error, "it is tried again and again");
                }
                self.is_failing = true;
            }
        }
    }

    fn try_write(&mut self, entries: &[(&RecordedDatagram, &[u8])]) -> anyhow::Result<()> {
        for (entry, bytes) in entries {
            if let Some(mut full) = self.file.take_if(|file| file.size() >= self.ring.file_size) {
                full.flush()?;
            }
            let RecordedDatagram { from, to, time, comment, .. } = entry;
            let comment = comment.as_deref();
            self.current_file()?.write(&CapturedDatagram {
                from: *from,
                to: *to,
                time: *time,
                bytes,
                comment,
            })?;
        }
        self.current_file()?.flush()
    }

    /// Returns the newest file, which is begun if there is none.
    fn current_file(&mut self) -> anyhow::Result<&mut CaptureWriter> {
        let file = match self.file.take() {
            Some(file) => file,
            None => create_file(&self.ring)?,
        };
        Ok(self.file.insert(file))
    }
}

/// Begins a new file. One that is there becomes the one before.
fn create_file(ring: &CaptureRing) -> anyhow::Result<CaptureWriter> {
    // Devices and pipes stay where they are, and what cannot start again and again must not push out what is recorded.
    if fs::metadata(&ring.path).is_ok_and(|old| old.is_file() && old.len() > EMPTY_FILE_SIZE) {
        rotate(ring)?;
    }
    let mut writer = CaptureWriter::create(&ring.path)?;
    writer.flush()?;
    Ok(writer)
}

/// Makes room for a new file: each gets the next number and the oldest is gone.
fn rotate(ring: &CaptureRing) -> anyhow::Result<()> {
    for number in (0..ring.file_count.saturating_sub(1)).rev() {
        let (from, to) = (numbered_path(&ring.path, number), numbered_path(&ring.path, number + 1));
        if from.exists() {
            fs::rename(&from, &to).with_context(|| from.display().to_string())?;
        }
    }
    Ok(())
}

fn numbered_path(path: &Path, number: u32) -> PathBuf {
    if number == 0 {
        return path.to_owned();
    }
    let extension = path.extension().unwrap_or_default().to_string_lossy();
    path.with_extension(format!("{number}.{extension}"))
}

/// The size of a capture without datagrams.
const EMPTY_FILE_SIZE: u64 = 60;
/// How long the disk may take at the end. Tests do not ask how busy the machine is.
const FINISH_TIMEOUT: Duration =
    if cfg!(test) { Duration::from_secs(60) } else { Duration::from_millis(500) };
/// How often what was recorded is written, and how often it is tried while the disk fails.
const WRITE_INTERVAL: Duration = Duration::from_millis(100);
const RETRY_INTERVAL: Duration = Duration::from_secs(1);
/// What waits for the disk, of one thread: bytes and datagrams.
const MAX_BYTES: usize = 4 << 20;
const MAX_ENTRIES: usize = 1 << 15;

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    /// Returns what the files of a ring have: the last byte of each datagram.
    fn last_bytes_in(directory: &Path, name: &str) -> Vec<u8> {
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
    fn restart_rotates_the_capture_files() {
        let directory = std::env::temp_dir().join(format!("bcnet-restart-{}", std::process::id()));
        fs::create_dir_all(&directory).expect("a directory");
        let ring = CaptureRing { path: directory.join("game.pcapng"), file_size: 1 << 20, file_count: 3 };
        let address = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 22101);
        for run in 1..=4 {
            let recorder = Recorder::start(ring.clone()).expect("a capture");
            recorder.record(address, address, Duration::ZERO, &[run; 10]);
            drop(recorder);
            // Who starts and records nothing pushes nothing out.
            for _ in 0..5 {
                drop(Recorder::start(ring.clone()).expect("a capture"));
                assert_eq!(fs::metadata(&ring.path).expect("a file").len(), EMPTY_FILE_SIZE);
            }
        }
        assert_eq!(last_bytes_in(&directory, "game.1.pcapng"), [4]);
        assert_eq!(last_bytes_in(&directory, "game.2.pcapng"), [3]);
        assert_eq!(fs::read_dir(&directory).expect("a directory").count(), 3, "no more than the ring has");
        fs::remove_dir_all(&directory).expect("removed");
    }

    #[test]
    fn capture_resumes_when_the_disk_works_again() {
        let directory = std::env::temp_dir().join(format!("bcnet-disk-{}", std::process::id()));
        let away = directory.with_extension("away");
        fs::create_dir_all(&directory).expect("a directory");
        let ring = CaptureRing { path: directory.join("game.pcapng"), file_size: 2000, file_count: 2 };
        let recorder = Recorder::start(ring).expect("a capture");
        let address = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 22101);
        let record = |number| recorder.record(address, address, Duration::ZERO, &[number; 500]);
        // The file that is open can be written to its end, but none can be begun.
        fs::rename(&directory, &away).expect("moved");
        let left_out = recorder.left_out();
        for _ in 0..100 {
            (0..8).for_each(|_| record(1));
            thread::park_timeout(WRITE_INTERVAL);
            if left_out.count() > 0 {
                break;
            }
        }
        assert!(left_out.count() > 0, "it has failed");
        fs::rename(&away, &directory).expect("moved back");
        record(2);
        drop(recorder);
        // Some of those before may still have waited.
        assert_eq!(last_bytes_in(&directory, "game.pcapng").last(), Some(&2));
        assert!(last_bytes_in(&directory, "game.1.pcapng").iter().all(|number| *number == 1));
        fs::remove_dir_all(&directory).expect("removed");
    }

    #[test]
    fn ring_keeps_its_file_limit_and_files_are_complete() {
        let directory = std::env::temp_dir().join(format!("bcnet-ring-{}", std::process::id()));
        fs::create_dir_all(&directory).expect("a directory");
        let path = directory.join("game.pcapng");
        let address = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 22101);
        let recorder = Recorder::start(CaptureRing { path: path.clone(), file_size: 2000, file_count: 3 })
            .expect("a capture");
        for i in 0..100_u8 {
            recorder.record(address, address, Duration::from_secs(i.into()), &[i; 100]);
        }
        assert_eq!(recorder.left_out().count(), 0);
        drop(recorder);
        let mut seen = Vec::new();
        for name in ["game.2.pcapng", "game.1.pcapng", "game.pcapng"] {
            let file = fs::metadata(directory.join(name));
            assert!(file.expect("a file").len() < 2300, "{name}");
            seen.extend(last_bytes_in(&directory, name));
        }
        assert_eq!(fs::read_dir(&directory).expect("a directory").count(), 3);
        assert_eq!(seen.last(), Some(&99));
        assert!(seen.len() > 20 && seen.windows(2).all(|pair| pair[0] + 1 == pair[1]), "{seen:?}");
        fs::remove_dir_all(&directory).expect("removed");
    }
}
