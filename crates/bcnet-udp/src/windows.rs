//! `WSARecvMsg` and `WSASendMsg`: one datagram each, with its local address.
//!
//! Every pointer passed to the system points into a variable or an argument of the same function. The
//! system keeps none of them: no call is overlapped.
#![expect(unsafe_code, reason = "the standard library has no such calls")]

use std::io;
use std::mem;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::windows::io::AsRawSocket;
use std::ptr;
use std::sync::OnceLock;

use mio::net::UdpSocket;
use windows_sys::Win32::Networking::WinSock::{
    AF_INET, CMSGHDR, IN_ADDR, IN_ADDR_0, IN_PKTINFO, IP_PKTINFO, IPPROTO_IP, LPFN_WSARECVMSG, MSG_TRUNC,
    SIO_GET_EXTENSION_FUNCTION_POINTER, SIO_UDP_CONNRESET, SIO_UDP_NETRESET, SO_RCVBUF, SO_SNDBUF,
    SOCKADDR_IN, SOCKET, SOL_SOCKET, WSABUF, WSAEMSGSIZE, WSAGetLastError, WSAID_WSARECVMSG, WSAIoctl,
    WSAMSG, WSASendMsg, setsockopt,
};

use super::{BUFFER_SIZE, DatagramInfo};

/// Enlarges the socket's buffers and, if `wants_local` is set, requests each datagram's local address.
pub(super) fn prepare(socket: &UdpSocket, wants_local: bool) -> io::Result<()> {
    if wants_local {
        set_option(socket, IPPROTO_IP, IP_PKTINFO, 1)?;
    }
    set_option(socket, SOL_SOCKET, SO_RCVBUF, RECEIVE_BYTES)?;
    set_option(socket, SOL_SOCKET, SO_SNDBUF, SEND_BYTES)
}

/// Stops the system from reporting unreachable destinations.
///
/// Otherwise the next receive call would fail, although its datagram may come from another peer.
pub(super) fn ignore_unreachable(socket: &UdpSocket) -> io::Result<()> {
    control(socket, SIO_UDP_CONNRESET, 0_u32)?;
    // Older systems do not know this option.
    drop(control(socket, SIO_UDP_NETRESET, 0_u32));
    Ok(())
}

/// Receives a datagram with its local address.
pub(super) fn read(socket: &UdpSocket, buffer: &mut [u8; BUFFER_SIZE]) -> io::Result<DatagramInfo> {
    let receive = receiver(socket)?;
    let mut name = SOCKADDR_IN::default();
    let mut payload = WSABUF { len: BUFFER_SIZE as u32, buf: buffer.as_mut_ptr() };
    let mut control_message = PktinfoMessage::default();
    let mut message = WSAMSG {
        name: (&raw mut name).cast(),
        namelen: size_of::<SOCKADDR_IN>() as i32,
        lpBuffers: &raw mut payload,
        dwBufferCount: 1,
        Control: WSABUF { len: size_of::<PktinfoMessage>() as u32, buf: (&raw mut control_message).cast() },
        dwFlags: 0,
    };
    let mut len = 0;
    // If there is no datagram, `try_io` makes the event loop wait for the next one.
    let is_complete = socket.try_io(|| {
        // SAFETY: all pointers in the message are to variables of this function or its argument, with their
        // sizes. The call has ended when it returns.
        let result = unsafe { receive(raw(socket), &raw mut message, &raw mut len, ptr::null_mut(), None) };
        match result {
            0 => Ok(true),
            // SAFETY: the function has no arguments and cannot fail.
            _ if unsafe { WSAGetLastError() } == WSAEMSGSIZE => Ok(false),
            _ => Err(io::Error::last_os_error()),
        }
    })?;
    let is_truncated = !is_complete || message.dwFlags & MSG_TRUNC != 0;
    let len = if is_truncated { BUFFER_SIZE } else { (len as usize).min(BUFFER_SIZE) };
    let has_local =
        message.Control.len as usize >= mem::offset_of!(PktinfoMessage, info) + size_of::<IN_PKTINFO>();
    Ok(DatagramInfo {
        owner: 0,
        remote: address(&name),
        local: control_message.local().filter(|_| has_local),
        len,
        truncated: is_truncated,
    })
}

/// Sends a datagram to the remote address in `info`, from the local address in `info`.
pub(super) fn write(socket: &UdpSocket, info: &DatagramInfo, bytes: &[u8]) -> io::Result<()> {
    let mut name = name(info.remote);
    let mut payload = WSABUF { len: bytes.len() as u32, buf: bytes.as_ptr().cast_mut() };
    let mut control_message = info.local.map(PktinfoMessage::from);
    let control =
        control_message.as_mut().map_or(WSABUF { len: 0, buf: ptr::null_mut() }, |control_message| WSABUF {
            len: size_of::<PktinfoMessage>() as u32,
            buf: ptr::from_mut(control_message).cast(),
        });
    let message = WSAMSG {
        name: (&raw mut name).cast(),
        namelen: size_of::<SOCKADDR_IN>() as i32,
        lpBuffers: &raw mut payload,
        dwBufferCount: 1,
        Control: control,
        dwFlags: 0,
    };
    let mut sent = 0;
    socket.try_io(|| {
        // SAFETY: all pointers in the message are to variables of this function or its arguments, with
        // their sizes. The call only reads them and has ended when it returns.
        let result =
            unsafe { WSASendMsg(raw(socket), &raw const message, 0, &raw mut sent, ptr::null_mut(), None) };
        if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    })
}

/// The control message of a datagram, in the layout of the system: one message with an `IN_PKTINFO`.
#[repr(C, align(8))]
#[derive(Default)]
struct PktinfoMessage {
    header: CMSGHDR,
    info: IN_PKTINFO,
}

impl From<Ipv4Addr> for PktinfoMessage {
    fn from(local: Ipv4Addr) -> Self {
        let cmsg_len = mem::offset_of!(Self, info) + size_of::<IN_PKTINFO>();
        let header = CMSGHDR { cmsg_len, cmsg_level: IPPROTO_IP, cmsg_type: IP_PKTINFO };
        Self { header, info: IN_PKTINFO { ipi_addr: in_addr(local), ipi_ifindex: 0 } }
    }
}

impl PktinfoMessage {
    fn local(&self) -> Option<Ipv4Addr> {
        let is_info = (self.header.cmsg_level, self.header.cmsg_type) == (IPPROTO_IP, IP_PKTINFO);
        is_info.then(|| ip(&self.info.ipi_addr))
    }
}

type Receive = unsafe extern "system" fn(
    SOCKET,
    *mut WSAMSG,
    *mut u32,
    *mut windows_sys::Win32::System::IO::OVERLAPPED,
    windows_sys::Win32::Networking::WinSock::LPWSAOVERLAPPED_COMPLETION_ROUTINE,
) -> i32;

/// Returns `WSARecvMsg`. No library exports it, so the first call asks the system for its address.
fn receiver(socket: &UdpSocket) -> io::Result<Receive> {
    static RECEIVE: OnceLock<Receive> = OnceLock::new();
    if let Some(receive) = RECEIVE.get() {
        return Ok(*receive);
    }
    let (mut receive, mut len): (LPFN_WSARECVMSG, _) = (None, 0);
    // SAFETY: the pointers are to a constant and to variables of this function, with their sizes.
    let result = unsafe {
        WSAIoctl(
            raw(socket),
            SIO_GET_EXTENSION_FUNCTION_POINTER,
            ptr::from_ref(&WSAID_WSARECVMSG).cast(),
            size_of_val(&WSAID_WSARECVMSG) as u32,
            (&raw mut receive).cast(),
            size_of::<LPFN_WSARECVMSG>() as u32,
            &raw mut len,
            ptr::null_mut(),
            None,
        )
    };
    let receive = receive.filter(|_| result == 0).ok_or_else(io::Error::last_os_error)?;
    Ok(*RECEIVE.get_or_init(|| receive))
}

fn control<T>(socket: &UdpSocket, code: u32, value: T) -> io::Result<()> {
    let mut len = 0;
    // SAFETY: the pointers are to variables of this function, and no output is requested.
    let result = unsafe {
        WSAIoctl(
            raw(socket),
            code,
            (&raw const value).cast(),
            size_of::<T>() as u32,
            ptr::null_mut(),
            0,
            &raw mut len,
            ptr::null_mut(),
            None,
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn set_option(socket: &UdpSocket, level: i32, name: i32, value: i32) -> io::Result<()> {
    // SAFETY: the pointer is to a variable of this function, with its size.
    let result =
        unsafe { setsockopt(raw(socket), level, name, (&raw const value).cast(), size_of::<i32>() as i32) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn raw(socket: &UdpSocket) -> SOCKET {
    socket.as_raw_socket() as SOCKET
}

fn name(address: SocketAddrV4) -> SOCKADDR_IN {
    SOCKADDR_IN {
        sin_family: AF_INET,
        sin_port: address.port().to_be(),
        sin_addr: in_addr(*address.ip()),
        sin_zero: [0; 8],
    }
}

fn address(name: &SOCKADDR_IN) -> SocketAddrV4 {
    SocketAddrV4::new(ip(&name.sin_addr), u16::from_be(name.sin_port))
}

fn in_addr(ip: Ipv4Addr) -> IN_ADDR {
    IN_ADDR { S_un: IN_ADDR_0 { S_addr: u32::from_ne_bytes(ip.octets()) } }
}

fn ip(address: &IN_ADDR) -> Ipv4Addr {
    // SAFETY: every variant of the union has the same four bytes, and any value is valid.
    unsafe { address.S_un.S_addr }.to_ne_bytes().into()
}

const RECEIVE_BYTES: i32 = 4 << 20;
const SEND_BYTES: i32 = 1 << 20;
