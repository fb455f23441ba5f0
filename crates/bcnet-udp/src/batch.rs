//! Buffers for datagrams of many sockets, which are encrypted and decrypted together.

use std::array;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::ops::Range;
use std::time::Duration;

use bcnet_transport::wire::PeerId;

/// Addresses, length and owner of a datagram: everything but its bytes.
#[derive(Debug, Clone, Copy)]
pub struct DatagramInfo {
    /// A number that the caller chooses for each socket.
    pub owner: u32,
    /// The address of the remote end.
    pub remote: SocketAddrV4,
    /// The local address: where a received datagram arrived, or where to send from. `None`: unknown, or
    /// the system chooses.
    pub local: Option<Ipv4Addr>,
    /// The length in bytes.
    pub len: usize,
    /// The datagram was longer than its buffer.
    pub truncated: bool,
}

/// Free space for received datagrams; all lists have the same length.
pub(super) struct FreeSlots<'a> {
    pub(super) infos: &'a mut [DatagramInfo],
    pub(super) buffers: &'a mut [[u8; BUFFER_SIZE]],
    pub(super) timestamps: &'a mut [Option<Duration>],
}

impl FreeSlots<'_> {
    /// Keeps only the first `max` slots. Returns how many are left.
    pub(super) fn limit(&mut self, max: usize) -> usize {
        let count = self.infos.len().min(max);
        self.infos = &mut std::mem::take(&mut self.infos)[..count];
        self.buffers = &mut std::mem::take(&mut self.buffers)[..count];
        self.timestamps = &mut std::mem::take(&mut self.timestamps)[..count];
        count
    }
}

/// Received datagrams, or datagrams to send. The default has no capacity.
#[derive(Debug, Default)]
pub struct Batch {
    infos: Box<[DatagramInfo]>,
    buffers: Box<[[u8; BUFFER_SIZE]]>,
    /// Arrival times since 1970, if they were requested and the system reports them.
    timestamps: Box<[Option<Duration>]>,
    /// The slots in the order of sending.
    order: Box<[usize]>,
    len: usize,
}

impl Batch {
    /// Returns an empty batch.
    #[must_use]
    pub fn new() -> Self {
        let unspecified = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0);
        let info = DatagramInfo { owner: 0, remote: unspecified, local: None, len: 0, truncated: false };
        let (infos, buffers) = (vec![info; BATCH_SIZE].into(), vec![[0; BUFFER_SIZE]; BATCH_SIZE].into());
        let timestamps = vec![None; BATCH_SIZE].into();
        Self { infos, buffers, timestamps, order: (0..BATCH_SIZE).collect(), len: 0 }
    }

    /// Returns the number of datagrams.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Returns whether the batch has no datagram.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns whether no further datagram fits.
    #[must_use]
    pub const fn is_full(&self) -> bool {
        self.len == BATCH_SIZE
    }

    /// Returns whether fewer than two further datagrams fit.
    #[must_use]
    pub const fn is_nearly_full(&self) -> bool {
        self.len + 2 > BATCH_SIZE
    }

    /// Removes all datagrams.
    pub const fn clear(&mut self) {
        self.len = 0;
    }

    /// Returns the datagrams with their bytes.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (&mut DatagramInfo, &mut [u8])> {
        let (infos, buffers) = (&mut self.infos[..self.len], &mut self.buffers[..self.len]);
        infos.iter_mut().zip(buffers).map(|(info, buffer)| {
            let len = info.len.min(BUFFER_SIZE);
            (info, &mut buffer[..len])
        })
    }

    /// Returns the datagrams with their bytes and arrival times.
    ///
    /// An arrival time counts from 1970. It is `None` unless
    /// [`Socket::enable_timestamps`](crate::Socket::enable_timestamps) was called and the system supports it.
    pub fn iter_with_timestamps(
        &mut self,
    ) -> impl Iterator<Item = (&mut DatagramInfo, &mut [u8], Option<Duration>)> {
        let (infos, buffers) = (&mut self.infos[..self.len], &mut self.buffers[..self.len]);
        infos.iter_mut().zip(buffers).zip(&self.timestamps).map(|((info, buffer), timestamp)| {
            let len = info.len.min(BUFFER_SIZE);
            (info, &mut buffer[..len], *timestamp)
        })
    }

    /// Replaces the datagrams with copies of those in `other`. It copies neither arrival times nor grouping.
    pub fn copy_from(&mut self, other: &Self) {
        self.len = other.len;
        self.infos[..self.len].copy_from_slice(&other.infos[..self.len]);
        for ((info, from), to) in other.infos.iter().zip(&other.buffers).zip(&mut self.buffers).take(self.len)
        {
            to[..info.len].copy_from_slice(&from[..info.len]);
        }
    }

    /// Adds a datagram that `write` puts into the given buffer.
    ///
    /// Returns `false` if `write` returns `None` or if the batch is full.
    pub fn push(&mut self, write: impl FnOnce(&mut [u8]) -> Option<DatagramInfo>) -> bool {
        let (Some(slot), Some(buffer)) = (self.infos.get_mut(self.len), self.buffers.get_mut(self.len))
        else {
            return false;
        };
        let Some(info) = write(buffer) else { return false };
        *slot = DatagramInfo { len: info.len.min(BUFFER_SIZE), ..info };
        self.order[self.len] = self.len;
        self.len += 1;
        true
    }

    /// Applies `cipher` to the datagrams whose index `is_selected` accepts, many in parallel.
    ///
    /// It skips GameSpy text, which is never encrypted.
    pub fn apply_cipher(&mut self, cipher: impl Fn(&mut [&mut [u8]]), is_selected: impl Fn(usize) -> bool) {
        let selected = self.iter_mut().enumerate().filter(|(number, _)| is_selected(*number));
        // T-05: GameSpy text is not encrypted.
        let mut payloads = selected.map(|(_, (_, bytes))| bytes).filter(|bytes| !is_plaintext(bytes));
        loop {
            let mut lanes: [&mut [u8]; CIPHER_WIDTH] = array::from_fn(|_| Default::default());
            let mut busy = 0;
            for (lane, bytes) in lanes.iter_mut().zip(&mut payloads) {
                *lane = bytes;
                busy += 1;
            }
            cipher(&mut lanes[..busy]);
            if busy < CIPHER_WIDTH {
                return;
            }
        }
    }

    /// Sorts the order of sending by owner. Datagrams of one owner keep their order.
    pub fn group_by_owner(&mut self) {
        self.order[..self.len].sort_by_key(|slot| self.infos[*slot].owner);
    }

    /// Returns each run of datagrams with the same owner: the owner and the range for `Socket::send`.
    pub fn runs_by_owner(&self) -> impl Iterator<Item = (u32, Range<usize>)> {
        let owner = |slot: &usize| self.infos[*slot].owner;
        let mut start = 0;
        self.order[..self.len].chunk_by(move |a, b| owner(a) == owner(b)).map(move |run| {
            let range = start..start + run.len();
            start = range.end;
            (owner(&run[0]), range)
        })
    }

    /// Returns the free slots.
    pub(super) fn free_slots(&mut self) -> FreeSlots<'_> {
        let (infos, buffers) = (&mut self.infos[self.len..], &mut self.buffers[self.len..]);
        FreeSlots { infos, buffers, timestamps: &mut self.timestamps[self.len..] }
    }

    /// Marks the first `count` free slots as filled, with their `owner`.
    pub(super) fn commit(&mut self, count: usize, owner: u32) {
        let end = (self.len + count).min(BATCH_SIZE);
        for slot in self.len..end {
            self.infos[slot].owner = owner;
            self.order[slot] = slot;
        }
        self.len = end;
    }

    /// Returns the slots of a range of the order of sending.
    pub(super) fn slots_in(&self, range: Range<usize>) -> &[usize] {
        &self.order[range]
    }

    pub(super) fn datagram(&self, slot: usize) -> (&DatagramInfo, &[u8]) {
        let info = &self.infos[slot];
        (info, &self.buffers[slot][..info.len.min(BUFFER_SIZE)])
    }
}

fn is_plaintext(bytes: &[u8]) -> bool {
    bytes.first() == Some(&PeerId::GAMESPY.0)
}

/// The capacity of a batch in datagrams.
pub const BATCH_SIZE: usize = 128;
/// The largest datagram that is received as a whole.
///
/// Games send up to 512 bytes. GameSpy queries and replies have up to 1,400.
pub const BUFFER_SIZE: usize = 2048;
/// The number of datagrams that the cipher processes in parallel.
const CIPHER_WIDTH: usize = 16;
