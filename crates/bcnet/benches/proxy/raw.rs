//! Direct system calls: many datagrams per call, and the minimal work with them.

use std::net::{SocketAddrV4, UdpSocket};
use std::os::fd::AsRawFd;
use std::{mem, ptr};

use super::linux::{address, bind_local};

/// Many datagrams for one system call.
pub(super) struct Burst {
    pub(super) headers: [libc::mmsghdr; BURST],
    iovecs: [libc::iovec; BURST],
}

impl Burst {
    pub(super) const fn new() -> Self {
        // SAFETY: all zeroes is a valid value of each field: integers and null pointers.
        unsafe { mem::zeroed() }
    }

    /// Sets the buffer of one header.
    fn set_buffer(&mut self, i: usize, bytes: *mut u8, len: usize) {
        self.iovecs[i] = libc::iovec { iov_base: bytes.cast(), iov_len: len };
        self.headers[i].msg_hdr.msg_iov = &raw mut self.iovecs[i];
        self.headers[i].msg_hdr.msg_iovlen = 1;
    }

    /// Sets the buffers of all headers.
    pub(super) fn set_all_buffers(&mut self, buffers: &mut [[u8; 2048]]) {
        for (i, buffer) in buffers.iter_mut().enumerate() {
            self.set_buffer(i, buffer.as_mut_ptr(), buffer.len());
        }
    }

    /// Receives the waiting datagrams of a socket. Returns their number; the headers have their lengths.
    pub(super) fn receive(&mut self, socket: &UdpSocket) -> usize {
        // SAFETY: every header points to one vector, and every vector to bytes that outlive the call.
        let got = unsafe {
            libc::recvmmsg(
                socket.as_raw_fd(),
                self.headers.as_mut_ptr(),
                BURST as u32,
                libc::MSG_DONTWAIT as _,
                ptr::null_mut(),
            )
        };
        usize::try_from(got).unwrap_or(0)
    }

    /// Sends the received datagrams of one socket through another. Returns their number.
    fn forward(&mut self, from: &UdpSocket, to: &UdpSocket, buffers: &mut [[u8; 2048]]) -> usize {
        self.set_all_buffers(buffers);
        let got = self.receive(from);
        for i in 0..got {
            self.iovecs[i].iov_len = self.headers[i].msg_len as usize;
        }
        self.send(to, got);
        got
    }

    fn send(&mut self, socket: &UdpSocket, count: usize) {
        // SAFETY: as in `receive`; the bytes are only read.
        unsafe { libc::sendmmsg(socket.as_raw_fd(), self.headers.as_mut_ptr(), count as u32, 0) };
    }
}

pub(super) fn send_all(socket: &UdpSocket, datagrams: &[Vec<u8>]) {
    let mut burst = Burst::new();
    for (i, datagram) in datagrams.iter().enumerate() {
        burst.set_buffer(i, datagram.as_ptr().cast_mut(), datagram.len());
    }
    burst.send(socket, datagrams.len());
}

/// The lower baseline: the minimal work with two sockets, each connected to its only peer.
pub(super) fn raw_loop(upstream: SocketAddrV4) -> ! {
    let (client_side, server_side) = (bind_local(), bind_local());
    server_side.connect(upstream).expect("loopback");
    println!("raw ready port={}", address(&client_side).port());
    client_side.set_read_timeout(None).expect("no timeout");
    let mut first = [0; 2048];
    let (len, client) = client_side.recv_from(&mut first).expect("a datagram");
    client_side.connect(client).expect("loopback");
    server_side.send(&first[..len]).expect("sent");
    let readable =
        |socket: &UdpSocket| libc::pollfd { fd: socket.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    let mut wait = [readable(&client_side), readable(&server_side)];
    let (mut burst, mut buffers) = (Burst::new(), vec![[0_u8; 2048]; BURST]);
    loop {
        // SAFETY: the structures outlive the call, and there are two.
        unsafe { libc::poll(wait.as_mut_ptr(), 2, -1) };
        while burst.forward(&client_side, &server_side, &mut buffers) == BURST {}
        while burst.forward(&server_side, &client_side, &mut buffers) == BURST {}
    }
}

/// Datagrams per system call.
pub(super) const BURST: usize = 64;
