//! Captures the traffic of a running server into a ring of files, written by a separate thread.
//!
//! The disk must not delay the game. If the thread cannot keep up, datagrams are left out and counted. The thread is
//! not woken for each datagram either: at intervals it takes everything that has come, in one piece.

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

/// The files of a capture, and how much disk space they may take.
#[derive(Debug, Clone)]
pub(crate) struct CaptureRing {
    /// The newest file. Older files have a number before the extension: `FILE.1.pcapng` is the previous file.
    pub(crate) path: PathBuf,
    /// The next file is started when the current one has this size.
    pub(crate) file_size: u64,
    /// The number of files to keep.
    pub(crate) file_count: u32,
}

/// Takes datagrams for the capture. Each thread has its own recorder.
pub(crate) struct Recorder {
    /// Shared with the writer thread, which only swaps it with an empty buffer.
    buffer: Arc<Mutex<RecordBuffer>>,
    shared: Arc<RecorderShared>,
    /// The last clone waits for the writer thread when it is dropped.
    writer_guard: Arc<WriterGuard>,
}

impl Clone for Recorder {
    fn clone(&self) -> Self {
        Self::new(Arc::clone(&self.shared), Arc::clone(&self.writer_guard))
    }
}

/// The datagrams of one thread that wait to be written.
#[derive(Default)]
struct RecordBuffer {
    entries: Vec<RecordedDatagram>,
    bytes: Vec<u8>,
}

struct RecordedDatagram {
    from: SocketAddrV4,
    to: SocketAddrV4,
    time: Duration,
    /// The position of the bytes in [`RecordBuffer::bytes`].
    byte_range: Range<usize>,
    comment: Option<Box<str>>,
}

/// The state that recorders and the writer thread share.
#[derive(Default)]
struct RecorderShared {
    buffers: Mutex<Vec<Arc<Mutex<RecordBuffer>>>>,
    left_out: LeftOutCounter,
    /// Set when the last recorder is dropped.
    is_stopping: AtomicBool,
}

/// The number of datagrams that are missing from the capture.
///
/// Reasons: the disk was too slow or full, or too many datagrams came from unknown addresses.
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

/// Waits, when dropped, until everything is written. The mutex is there only to make the type `Sync`.
struct WriterGuard {
    shared: Arc<RecorderShared>,
    writer: Thread,
    ended: Mutex<Receiver<()>>,
}

impl Drop for WriterGuard {
    /// Waits until all recorded datagrams are in the file, but not longer than [`FINISH_TIMEOUT`].
    fn drop(&mut self) {
        self.shared.is_stopping.store(true, Ordering::Release);
        self.writer.unpark();
        let end = self.ended.get_mut().unwrap_or_else(PoisonError::into_inner);
        let _ = end.recv_timeout(FINISH_TIMEOUT);
    }
}

impl Recorder {
    /// Starts a capture. An existing capture file is renamed to `FILE.1.pcapng`.
    pub(crate) fn start(ring: CaptureRing) -> anyhow::Result<Self> {
        // The directory is created if it is missing, as for the log.
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

    /// Records a datagram with a comment.
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

    /// Returns the counter of datagrams that are missing from the capture.
    pub(crate) fn left_out(&self) -> LeftOutCounter {
        self.shared.left_out.clone()
    }
}

/// Locks a mutex, ignoring poison: a panic cannot leave the data in an inconsistent state.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Writes the datagrams of all recorders until the last recorder is dropped.
fn run_writer(mut ring_writer: RingWriter, shared: &RecorderShared) {
    let mut batch: Vec<RecordBuffer> = Vec::new();
    loop {
        thread::park_timeout(if ring_writer.is_failing { RETRY_INTERVAL } else { WRITE_INTERVAL });
        let is_over = shared.is_stopping.load(Ordering::Acquire);
        {
            let buffers = lock(&shared.buffers);
            batch.resize_with(buffers.len(), RecordBuffer::default);
            for (buffer, empty) in buffers.iter().zip(&mut batch) {
                std::mem::swap(&mut *lock(buffer), empty);
            }
        }
        ring_writer.write(&batch);
        for buffer in &mut batch {
            buffer.entries.clear();
            buffer.bytes.clear();
        }
        if is_over {
            return;
        }
    }
}

/// Writes the files of the ring, and remembers whether writing fails.
struct RingWriter {
    ring: CaptureRing,
    /// The newest file; `None` while it cannot be created.
    file: Option<CaptureWriter>,
    is_failing: bool,
    left_out: LeftOutCounter,
}

impl RingWriter {
    /// Writes all datagrams in the order of their times.
    ///
    /// If the disk fails, these datagrams are left out and counted. The next call tries again.
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
                    "writing the capture works again; the capture lacks the datagrams since the error"
                );
            }
            Ok(()) => {}
            Err(error) => {
                self.left_out.add(entries.len());
                if !self.is_failing {
                    let error = format!("{error:#}");
                    tracing::error!(
                        event = "capture_failed",
                        error,
                        "cannot write the capture; datagrams are left out until writing works again"
                    );
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

    /// Returns the newest file, and creates it if there is none.
    fn current_file(&mut self) -> anyhow::Result<&mut CaptureWriter> {
        let file = match self.file.take() {
            Some(file) => file,
            None => create_file(&self.ring)?,
        };
        Ok(self.file.insert(file))
    }
}

/// Creates the newest file. An existing file is renamed to `FILE.1.pcapng`.
fn create_file(ring: &CaptureRing) -> anyhow::Result<CaptureWriter> {
    // Devices and pipes are not renamed. Nor are captures without datagrams: a server that fails at each start must not
    // rotate the recorded files away.
    if fs::metadata(&ring.path).is_ok_and(|old| old.is_file() && old.len() > EMPTY_FILE_SIZE) {
        rotate(ring)?;
    }
    let mut writer = CaptureWriter::create(&ring.path)?;
    writer.flush()?;
    Ok(writer)
}

/// Renames each file to the next number. The oldest file is overwritten.
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

/// The size in bytes of a capture without datagrams.
const EMPTY_FILE_SIZE: u64 = 60;
/// The longest wait for the disk when the recorder stops. Tests wait longer, because their machine may be busy.
const FINISH_TIMEOUT: Duration =
    if cfg!(test) { Duration::from_secs(60) } else { Duration::from_millis(500) };
/// The interval of writing, and the interval of attempts while the disk fails.
const WRITE_INTERVAL: Duration = Duration::from_millis(100);
const RETRY_INTERVAL: Duration = Duration::from_secs(1);
/// The most bytes and datagrams of one thread that wait to be written.
const MAX_BYTES: usize = 4 << 20;
const MAX_ENTRIES: usize = 1 << 15;

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    /// Returns the last byte of each datagram in a file of the ring.
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
            // Starts that record nothing rotate no file away.
            for _ in 0..5 {
                drop(Recorder::start(ring.clone()).expect("a capture"));
                assert_eq!(fs::metadata(&ring.path).expect("a file").len(), EMPTY_FILE_SIZE);
            }
        }
        assert_eq!(last_bytes_in(&directory, "game.1.pcapng"), [4]);
        assert_eq!(last_bytes_in(&directory, "game.2.pcapng"), [3]);
        assert_eq!(fs::read_dir(&directory).expect("a directory").count(), 3, "the ring keeps 3 files");
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
        // The open file can be written to its end, but no new file can be created.
        fs::rename(&directory, &away).expect("moved");
        let left_out = recorder.left_out();
        for _ in 0..100 {
            (0..8).for_each(|_| record(1));
            thread::park_timeout(WRITE_INTERVAL);
            if left_out.count() > 0 {
                break;
            }
        }
        assert!(left_out.count() > 0, "no datagram was left out");
        fs::rename(&away, &directory).expect("moved back");
        record(2);
        drop(recorder);
        // Some datagrams from before may still have been pending.
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
