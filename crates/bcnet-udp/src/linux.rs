//! `recvmmsg`, `sendmmsg` and socket options: the only module of this crate that uses `libc`.
//!
//! Every pointer passed to the system points into a variable or an argument of the same function. The
//! system keeps none of them.
#![allow(unsafe_code)]

use std::io;
use std::mem;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::AsRawFd;
use std::ptr;
use std::time::Duration;

use mio::net::UdpSocket;

use super::batch::FreeSlots;
use super::{BUFFER_SIZE, Batch, DatagramInfo};

/// Enlarges the socket's buffers and, if `wants_local` is set, requests each datagram's local address.
pub(super) fn prepare(socket: &UdpSocket, wants_local: bool) -> io::Result<()> {
    if wants_local {
        set_option(socket, libc::IPPROTO_IP, libc::IP_PKTINFO, 1)?;
    }
    // `SO_RCVBUFFORCE` needs CAP_NET_ADMIN. `SO_RCVBUF` silently reduces the size to the system's limit.
    if set_option(socket, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, RECEIVE_BYTES).is_err() {
        set_option(socket, libc::SOL_SOCKET, libc::SO_RCVBUF, RECEIVE_BYTES)?;
    }
    set_option(socket, libc::SOL_SOCKET, libc::SO_SNDBUF, SEND_BYTES)
}

/// Returns how many datagrams the system has dropped for this socket, if it reports that.
pub(super) fn dropped(socket: &UdpSocket) -> Option<u32> {
    Some(memory_info(socket)?[MEMINFO_DROPS])
}

/// Returns the size of the receive buffer in bytes, if the system reports it.
///
/// The system reports twice the size, because it reserves as much again for itself.
pub(super) fn receive_buffer_bytes(socket: &UdpSocket) -> Option<u32> {
    Some(memory_info(socket)?[MEMINFO_RECEIVE] / 2)
}

/// Returns whether a time service synchronizes the machine's clock, if the system knows that.
pub(super) fn is_clock_synchronized() -> Option<bool> {
    // SAFETY: the structure has only integer fields, for which zero is valid.
    let mut timex: libc::timex = unsafe { mem::zeroed() };
    // SAFETY: the pointer is to a variable that outlives the call. Zero modes mean that nothing is changed.
    match unsafe { libc::adjtimex(&raw mut timex) } {
        -1 => None,
        libc::TIME_ERROR => Some(false),
        _ => Some(timex.status & libc::STA_UNSYNC == 0),
    }
}

fn memory_info(socket: &UdpSocket) -> Option<[u32; MEMINFO_DROPS + 1]> {
    let mut info = [0_u32; MEMINFO_DROPS + 1];
    let mut len = size_of_val(&info) as u32;
    // SAFETY: the pointers are to an array and to its size, which outlive the call.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_MEMINFO,
            info.as_mut_ptr().cast(),
            &raw mut len,
        )
    };
    (result == 0 && len as usize == size_of_val(&info)).then_some(info)
}

/// Asks the system to record the arrival time of every datagram.
pub(super) fn enable_timestamps(socket: &UdpSocket) -> io::Result<()> {
    set_option(socket, libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, 1)
}

/// Makes the system drop datagrams of unknown senders at random before they are queued.
///
/// A datagram from an address that is not in `known` passes with the probability
/// `pass_threshold` / 2³². With `None`, all datagrams pass.
pub(super) fn limit_unknown_senders(
    socket: &UdpSocket,
    known: impl Iterator<Item = SocketAddrV4>,
    pass_threshold: Option<u32>,
) -> io::Result<()> {
    let Some(pass_threshold) = pass_threshold else {
        return match set_option(socket, libc::SOL_SOCKET, libc::SO_DETACH_FILTER, 0) {
            // No filter was attached.
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(()),
            result => result,
        };
    };
    let mut program = build_filter(known, pass_threshold);
    let len = u16::try_from(program.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    // The system copies the program.
    let program = libc::sock_fprog { len, filter: program.as_mut_ptr() };
    set_option(socket, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, program)
}

/// Returns a BPF program that passes or drops each datagram.
///
/// The program sees the datagram from the UDP header on. Negative offsets give the IP header and a random
/// number.
fn build_filter(known: impl Iterator<Item = SocketAddrV4>, pass_threshold: u32) -> Vec<libc::sock_filter> {
    let step = |code: u32, k, jt, jf| libc::sock_filter { code: code as u16, jt, jf, k };
    let load =
        |size: u32, offset: i32| step(libc::BPF_LD | size | libc::BPF_ABS, offset.cast_unsigned(), 0, 0);
    let skip_unless = |test: u32, value, skip| step(libc::BPF_JMP | test | libc::BPF_K, value, 0, skip);
    let return_len = |bytes| step(libc::BPF_RET | libc::BPF_K, bytes, 0, 0);
    let mut program = Vec::new();
    for address in known.take(MAX_KNOWN_SENDERS) {
        program.extend([
            load(libc::BPF_W, libc::SKF_NET_OFF + SOURCE_ADDRESS),
            skip_unless(libc::BPF_JEQ, u32::from(*address.ip()), 3),
            load(libc::BPF_H, SOURCE_PORT),
            skip_unless(libc::BPF_JEQ, address.port().into(), 1),
            return_len(u32::MAX),
        ]);
    }
    program.extend([
        load(libc::BPF_W, libc::SKF_AD_OFF + libc::SKF_AD_RANDOM),
        skip_unless(libc::BPF_JGE, pass_threshold, 1),
        return_len(0),
        return_len(u32::MAX),
    ]);
    program
}

/// Sets a socket option. `T` must be the type that the system expects for this option.
fn set_option<T>(socket: &UdpSocket, level: libc::c_int, name: libc::c_int, value: T) -> io::Result<()> {
    // SAFETY: the pointer is to a value that outlives the call, and the length is its size.
    let result = unsafe {
        libc::setsockopt(socket.as_raw_fd(), level, name, ptr::from_ref(&value).cast(), size_of::<T>() as u32)
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Fills slots with received datagrams. `only` is the remote address of a connected socket.
///
/// Returns how many datagrams it received and how many it requested.
pub(super) fn receive(
    socket: &UdpSocket,
    only: Option<SocketAddrV4>,
    slots: FreeSlots<'_>,
) -> io::Result<(usize, usize)> {
    let FreeSlots { infos, buffers, timestamps } = slots;
    // SAFETY: all zeros is a valid value of each: integers and null pointers.
    let mut messages: [libc::mmsghdr; CHUNK] = unsafe { mem::zeroed() };
    let mut iovecs: [libc::iovec; CHUNK] = unsafe { mem::zeroed() };
    let mut names: [libc::sockaddr_in; CHUNK] = unsafe { mem::zeroed() };
    let mut controls = [ControlBuffer::EMPTY; CHUNK];
    let count = infos.len().min(buffers.len()).min(CHUNK);
    for i in 0..count {
        iovecs[i] = libc::iovec { iov_base: buffers[i].as_mut_ptr().cast(), iov_len: BUFFER_SIZE };
        let header = &mut messages[i].msg_hdr;
        header.msg_iov = &raw mut iovecs[i];
        header.msg_iovlen = 1;
        if only.is_none() {
            header.msg_name = ptr::from_mut(&mut names[i]).cast();
            header.msg_namelen = SOCKADDR_SIZE;
            header.msg_control = controls[i].0.as_mut_ptr().cast();
            header.msg_controllen = size_of::<ControlBuffer>() as _;
        }
    }
    // SAFETY: `count` headers are initialised. Each names one buffer and, unless the socket is connected,
    // one name and one control block of the given sizes. All of them outlive the call and are borrowed
    // nowhere else.
    let received = unsafe {
        libc::recvmmsg(
            socket.as_raw_fd(),
            messages.as_mut_ptr(),
            count as u32,
            libc::MSG_DONTWAIT as _,
            ptr::null_mut(),
        )
    };
    let Ok(received) = usize::try_from(received) else {
        let error = io::Error::last_os_error();
        return match error.kind() {
            io::ErrorKind::WouldBlock => Ok((0, count)),
            io::ErrorKind::Interrupted => Ok((0, 0)),
            _ => Err(error),
        };
    };
    for i in 0..received.min(count) {
        let libc::mmsghdr { msg_hdr: header, msg_len } = &messages[i];
        let (local, timestamp) = read_control(header);
        timestamps[i] = timestamp;
        infos[i] = DatagramInfo {
            owner: 0,
            remote: only.unwrap_or_else(|| from_sockaddr(&names[i])),
            local,
            len: (*msg_len as usize).min(BUFFER_SIZE),
            truncated: header.msg_flags & libc::MSG_TRUNC != 0,
        };
    }
    Ok((received, count))
}

/// Sends the datagrams of the first slots and returns how many it sent.
///
/// A connected socket sends to its remote; otherwise each datagram names its destination.
pub(super) fn send(
    socket: &UdpSocket,
    is_connected: bool,
    batch: &Batch,
    slots: &[usize],
) -> io::Result<usize> {
    // SAFETY: all zeros is a valid value of each: integers and null pointers.
    let mut messages: [libc::mmsghdr; CHUNK] = unsafe { mem::zeroed() };
    let mut iovecs: [libc::iovec; CHUNK] = unsafe { mem::zeroed() };
    let mut names: [libc::sockaddr_in; CHUNK] = unsafe { mem::zeroed() };
    let mut controls = [ControlBuffer::EMPTY; CHUNK];
    let count = slots.len().min(CHUNK);
    for i in 0..count {
        let (info, bytes) = batch.datagram(slots[i]);
        // The system only reads the bytes; its structure has no constant pointers.
        iovecs[i] = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
        let header = &mut messages[i].msg_hdr;
        header.msg_iov = &raw mut iovecs[i];
        header.msg_iovlen = 1;
        if is_connected {
            continue;
        }
        names[i] = to_sockaddr(info.remote);
        header.msg_name = ptr::from_mut(&mut names[i]).cast();
        header.msg_namelen = SOCKADDR_SIZE;
        if let Some(local) = info.local {
            controls[i] = ControlBuffer::from_local(local);
            header.msg_control = controls[i].0.as_mut_ptr().cast();
            header.msg_controllen = PKTINFO_SPACE as _;
        }
    }
    // SAFETY: as in `receive`; the sent bytes are initialised memory.
    let sent = unsafe {
        libc::sendmmsg(socket.as_raw_fd(), messages.as_mut_ptr(), count as u32, libc::MSG_DONTWAIT as _)
    };
    usize::try_from(sent).map_err(|_| io::Error::last_os_error())
}

/// Control messages with an `in_pktinfo` and a `timespec`, aligned for a `cmsghdr`.
#[derive(Clone, Copy)]
#[repr(C, align(8))]
struct ControlBuffer([u8; PKTINFO_SPACE + TIMESTAMP_SPACE]);

impl ControlBuffer {
    const EMPTY: Self = Self([0; PKTINFO_SPACE + TIMESTAMP_SPACE]);

    fn from_local(local: Ipv4Addr) -> Self {
        let info = libc::in_pktinfo {
            ipi_ifindex: 0,
            ipi_spec_dst: libc::in_addr { s_addr: u32::from_ne_bytes(local.octets()) },
            ipi_addr: libc::in_addr { s_addr: 0 },
        };
        let mut control = Self::EMPTY;
        // SAFETY: `ControlBuffer` is aligned for a `cmsghdr` and has space for it and for an `in_pktinfo`
        // behind it.
        unsafe {
            let header = control.0.as_mut_ptr().cast::<libc::cmsghdr>();
            (*header).cmsg_len = libc::CMSG_LEN(PKTINFO_SIZE) as _;
            (*header).cmsg_level = libc::IPPROTO_IP;
            (*header).cmsg_type = libc::IP_PKTINFO;
            ptr::write_unaligned(libc::CMSG_DATA(header).cast(), info);
        }
        control
    }
}

/// Returns the local address of a datagram and its arrival time since 1970.
///
/// For a broadcast, the local address is the address of this machine to answer from.
fn read_control(header: &libc::msghdr) -> (Option<Ipv4Addr>, Option<Duration>) {
    let (mut local, mut timestamp) = (None, None);
    // SAFETY: the system filled the header and its control block; the macros stay inside `msg_controllen`.
    unsafe {
        let mut message = libc::CMSG_FIRSTHDR(header);
        while !message.is_null() {
            let libc::cmsghdr { cmsg_level, cmsg_type, cmsg_len } = *message;
            let data = libc::CMSG_DATA(message);
            match (cmsg_level, cmsg_type) {
                (libc::IPPROTO_IP, libc::IP_PKTINFO) if cmsg_len >= libc::CMSG_LEN(PKTINFO_SIZE) as _ => {
                    let info: libc::in_pktinfo = ptr::read_unaligned(data.cast());
                    local = Some(Ipv4Addr::from(info.ipi_spec_dst.s_addr.to_ne_bytes()));
                }
                (libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS)
                    if cmsg_len >= libc::CMSG_LEN(TIMESTAMP_SIZE) as _ =>
                {
                    let libc::timespec { tv_sec, tv_nsec } = ptr::read_unaligned(data.cast());
                    timestamp = Some(Duration::new(tv_sec as u64, tv_nsec as u32));
                }
                _ => {}
            }
            message = libc::CMSG_NXTHDR(header, message);
        }
    }
    (local, timestamp)
}

fn from_sockaddr(name: &libc::sockaddr_in) -> SocketAddrV4 {
    SocketAddrV4::new(Ipv4Addr::from(name.sin_addr.s_addr.to_ne_bytes()), u16::from_be(name.sin_port))
}

fn to_sockaddr(address: SocketAddrV4) -> libc::sockaddr_in {
    libc::sockaddr_in {
        sin_family: libc::AF_INET as _,
        sin_port: address.port().to_be(),
        sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(address.ip().octets()) },
        sin_zero: [0; 8],
    }
}

/// Datagrams per system call. A call initialises this many headers, which takes less time than one datagram.
const CHUNK: usize = 64;
const SOCKADDR_SIZE: u32 = size_of::<libc::sockaddr_in>() as u32;
const PKTINFO_SIZE: u32 = size_of::<libc::in_pktinfo>() as u32;
const TIMESTAMP_SIZE: u32 = size_of::<libc::timespec>() as u32;
// SAFETY: these are calculations without memory access.
const PKTINFO_SPACE: usize = unsafe { libc::CMSG_SPACE(PKTINFO_SIZE) } as usize;
const TIMESTAMP_SPACE: usize = unsafe { libc::CMSG_SPACE(TIMESTAMP_SIZE) } as usize;
/// Space for datagrams that arrive while the thread does not run. The system uses almost a kilobyte for
/// each small datagram.
const RECEIVE_BYTES: libc::c_int = 4 << 20;
const SEND_BYTES: libc::c_int = 1 << 20;
/// The number of known addresses in a filter. A session has fewer peer ids, and the filter stays below the
/// kernel's limit of 4,096 instructions.
const MAX_KNOWN_SENDERS: usize = 254;
/// The offsets of the sender in the IPv4 header and in the UDP header.
const SOURCE_ADDRESS: i32 = 12;
const SOURCE_PORT: i32 = 0;
/// The indexes of the receive buffer size and of the drop counter in `SO_MEMINFO`.
const MEMINFO_RECEIVE: usize = 1;
const MEMINFO_DROPS: usize = 8;
