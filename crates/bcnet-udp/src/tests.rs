//! Tests that all `Io` variants behave the same.

use std::net::{Ipv4Addr, UdpSocket};
use std::time::Duration;

use bcnet_transport::cipher;

use super::batch::BATCH_SIZE;
use super::*;

const ALL_IO: &[Io] = &[
    #[cfg(target_os = "linux")]
    Io::Batched,
    #[cfg(windows)]
    Io::Addressed,
    Io::Portable,
];

fn bind_any_port(ip: Ipv4Addr, io: Io) -> Socket {
    Socket::bind(SocketAddrV4::new(ip, 0), io).expect("a free port")
}

/// Returns a client socket that waits up to 10 s for an answer.
fn client() -> UdpSocket {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    socket.set_read_timeout(Some(Duration::from_secs(10))).expect("a timeout");
    socket
}

/// Waits until `count` datagrams have arrived.
///
/// Loopback delivers before `send` returns, so this loop rarely runs twice.
fn receive(socket: &Socket, batch: &mut Batch, count: usize) {
    while batch.len() < count {
        socket.receive(batch, 7, BATCH_SIZE).expect("a working socket");
    }
}

#[test]
fn datagrams_are_received_and_answered_in_order() {
    for &io in ALL_IO {
        let (server, client) = (bind_any_port(Ipv4Addr::LOCALHOST, io), client());
        let to = server.local_address().expect("bound");
        for i in 0..40_u8 {
            client.send_to(&vec![i; usize::from(i)], to).expect("sent");
        }
        let mut batch = Batch::new();
        receive(&server, &mut batch, 40);
        for (i, (info, bytes)) in batch.iter_mut().enumerate() {
            assert_eq!(bytes, vec![i as u8; i], "{io:?}");
            assert_eq!((info.owner, info.truncated), (7, false));
            assert_eq!(SocketAddr::V4(info.remote), client.local_addr().expect("bound"));
        }
        server.send(&batch, 0..40).expect("sent");
        let mut buffer = [0; 100];
        for i in 0..40 {
            assert_eq!(client.recv(&mut buffer).expect("an answer"), i, "{io:?}");
        }
    }
}

#[test]
fn grouped_datagrams_leave_in_one_ordered_run_per_owner() {
    for &io in ALL_IO {
        let (server, client) = (bind_any_port(Ipv4Addr::LOCALHOST, io), client());
        let SocketAddr::V4(remote) = client.local_addr().expect("bound") else {
            panic!("IPv4 was asked for")
        };
        let mut batch = Batch::new();
        for i in 0..6_u8 {
            let info =
                DatagramInfo { owner: u32::from(i % 2), remote, local: None, len: 1, truncated: false };
            assert!(batch.push(|buffer| {
                buffer[0] = i;
                Some(info)
            }));
        }
        assert_eq!(batch.runs_by_owner().count(), 6);
        batch.group_by_owner();
        assert_eq!(batch.runs_by_owner().collect::<Vec<_>>(), [(0, 0..3), (1, 3..6)]);
        for (_, range) in batch.runs_by_owner() {
            server.send(&batch, range).expect("sent");
        }
        let mut buffer = [0; 1];
        for expected in [0, 2, 4, 1, 3, 5] {
            client.recv(&mut buffer).expect("sent");
            assert_eq!(buffer, [expected], "{io:?}");
        }
    }
}

#[test]
fn full_batch_leaves_the_rest_in_the_socket() {
    for &io in ALL_IO {
        let (server, client) = (bind_any_port(Ipv4Addr::LOCALHOST, io), client());
        for i in 0..20_u8 {
            client.send_to(&[i], server.local_address().expect("bound")).expect("sent");
        }
        let mut batch = Batch::new();
        assert_eq!(server.receive(&mut batch, 0, 5).expect("works"), ReceiveStatus::More);
        assert_eq!(batch.len(), 5);
        batch.clear();
        receive(&server, &mut batch, 15);
        assert_eq!(batch.iter_mut().next().map(|(_, bytes)| bytes[0]), Some(5), "{io:?}");
        assert_eq!(server.receive(&mut batch, 0, BATCH_SIZE).expect("works"), ReceiveStatus::Drained);
    }
}

#[test]
fn long_datagram_is_marked_truncated_and_empty_one_is_not() {
    for &io in ALL_IO {
        let (server, client) = (bind_any_port(Ipv4Addr::LOCALHOST, io), client());
        let to = server.local_address().expect("bound");
        client.send_to(&[1; BUFFER_SIZE + 1], to).expect("sent");
        client.send_to(&[], to).expect("sent");
        client.send_to(&[2; 512], to).expect("sent");
        let mut batch = Batch::new();
        receive(&server, &mut batch, 3);
        let seen: Vec<_> = batch.iter_mut().map(|(info, bytes)| (info.truncated, bytes.len())).collect();
        assert_eq!(seen, [(true, BUFFER_SIZE), (false, 0), (false, 512)], "{io:?}");
    }
}

/// 127.0.0.0/8 is local on Linux and Windows, so one machine can have two addresses of a server.
#[cfg(any(target_os = "linux", windows))]
#[test]
fn reply_leaves_from_the_address_that_received() {
    let server = bind_any_port(Ipv4Addr::UNSPECIFIED, Io::BEST);
    let port = server.local_address().expect("bound").port();
    for ip in [Ipv4Addr::new(127, 0, 0, 2), Ipv4Addr::new(127, 0, 0, 3)] {
        let client = client();
        client.send_to(b"?", (ip, port)).expect("sent");
        let mut batch = Batch::new();
        receive(&server, &mut batch, 1);
        assert_eq!(batch.iter_mut().next().and_then(|(info, _)| info.local), Some(ip));
        server.send(&batch, 0..1).expect("sent");
        let (_, from) = client.recv_from(&mut [0; 10]).expect("an answer");
        assert_eq!(from, SocketAddr::from((ip, port)));
    }
}

#[test]
fn unsendable_datagram_does_not_block_others() {
    for &io in ALL_IO {
        let (server, client) = (bind_any_port(Ipv4Addr::LOCALHOST, io), client());
        let Ok(SocketAddr::V4(reachable)) = client.local_addr() else { panic!("IPv4") };
        let unreachable = SocketAddrV4::new(Ipv4Addr::BROADCAST, 9);
        let mut batch = Batch::new();
        for remote in [reachable, unreachable, reachable] {
            assert!(batch.push(|buffer| {
                buffer[0] = 9;
                Some(DatagramInfo { owner: 0, remote, local: None, len: 1, truncated: false })
            }));
        }
        let unsent = server.send(&batch, 0..3).expect_err("broadcast is not allowed");
        assert_eq!(unsent.datagrams, 1, "{io:?}: {:?}", unsent.reason);
        for _ in 0..2 {
            assert_eq!(client.recv(&mut [0; 10]).expect("an answer"), 1);
        }
    }
}

#[test]
fn batch_cipher_equals_single_cipher_and_skips_text() {
    let plain = |i: usize| -> Vec<u8> {
        let first = if i.is_multiple_of(5) { b'\\' } else { 2 };
        (0..i).map(|at| if at == 0 { first } else { (at * i) as u8 }).collect()
    };
    let mut batch = Batch::new();
    for i in 0..50 {
        let remote = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 1);
        batch.push(|buffer| {
            buffer[..i].copy_from_slice(&plain(i));
            Some(DatagramInfo { owner: i as u32 / 20, remote, local: None, len: i, truncated: false })
        });
    }
    assert_eq!(batch.runs_by_owner().collect::<Vec<_>>(), [(0, 0..20), (1, 20..40), (2, 40..50)]);
    batch.apply_cipher(cipher::encrypt_batch, |_| true);
    for (i, (_, bytes)) in batch.iter_mut().enumerate() {
        let mut expected = plain(i);
        if !i.is_multiple_of(5) {
            cipher::encrypt(&mut expected);
        }
        assert_eq!(bytes, expected);
    }
    batch.apply_cipher(cipher::decrypt_batch, |_| true);
    for (i, (_, bytes)) in batch.iter_mut().enumerate() {
        assert_eq!(bytes, plain(i));
    }
}

#[test]
fn connected_socket_receives_from_its_peer_only() {
    for &io in ALL_IO {
        let [peer, unknown] = [client(), client()];
        let SocketAddr::V4(remote) = peer.local_addr().expect("bound") else { panic!("bound to IPv4") };
        let any = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0);
        let socket = Socket::connect(any, remote, io).expect("loopback");
        let local = SocketAddrV4::new(Ipv4Addr::LOCALHOST, socket.local_address().expect("bound").port());
        unknown.send_to(b"unknown", local).expect("sent");
        peer.send_to(b"peer", local).expect("sent");
        let mut batch = Batch::new();
        receive(&socket, &mut batch, 1);
        let received: Vec<_> = batch.iter_mut().map(|(info, bytes)| (info.remote, bytes.to_vec())).collect();
        assert_eq!(received, [(remote, b"peer".to_vec())], "{io:?}");
        socket.send(&batch, 0..1).expect("sent");
        let mut buffer = [0; 100];
        assert_eq!(peer.recv_from(&mut buffer).expect("an answer"), (4, SocketAddr::V4(local)), "{io:?}");
    }
}

#[test]
fn peer_receives_again_after_connection_refused() {
    for &io in ALL_IO {
        let peer = client();
        let SocketAddr::V4(remote) = peer.local_addr().expect("bound") else { panic!("bound to IPv4") };
        let socket =
            Socket::connect(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0), remote, io).expect("loopback");
        let mut batch = Batch::new();
        let info = DatagramInfo { owner: 0, remote, local: None, len: 3, truncated: false };
        assert!(batch.push(|_| Some(info)));
        drop(peer);
        // The port is closed: the system reports that at the latest when the next datagram is sent.
        socket.send(&batch, 0..1).expect("sent");
        let peer = UdpSocket::bind(remote).expect("the same port");
        peer.set_read_timeout(Some(Duration::from_secs(10))).expect("a timeout");
        socket.send(&batch, 0..1).expect("sent");
        assert_eq!(peer.recv(&mut [0; 100]).expect("the second"), 3, "{io:?}");
    }
}

#[test]
fn timestamps_are_reported_when_enabled() {
    for &io in ALL_IO {
        let (server, client) = (bind_any_port(Ipv4Addr::UNSPECIFIED, io), client());
        let to = (Ipv4Addr::LOCALHOST, server.local_address().expect("bound").port());
        let mut batch = Batch::new();
        client.send_to(b"before", to).expect("sent");
        receive(&server, &mut batch, 1);
        server.enable_timestamps().expect("the socket option is set");
        client.send_to(b"first", to).expect("sent");
        client.send_to(b"second", to).expect("sent");
        receive(&server, &mut batch, 3);
        let timestamps: Vec<_> = batch.iter_with_timestamps().map(|(_, _, timestamp)| timestamp).collect();
        assert!(timestamps[0].is_none() && timestamps[1] <= timestamps[2], "{timestamps:?}");
        #[cfg(target_os = "linux")]
        assert!(io == Io::Portable || timestamps[1].is_some(), "{timestamps:?}");
    }
}

/// Two sockets with the same IP address are different senders: the port is compared, too.
#[cfg(target_os = "linux")]
#[test]
fn unknown_senders_are_dropped_by_chance_and_known_never() {
    let server = bind_any_port(Ipv4Addr::LOCALHOST, Io::Batched);
    let to = server.local_address().expect("bound");
    let [first, second, unknown] = [(); 3].map(|()| client());
    let other_address = UdpSocket::bind((Ipv4Addr::new(127, 0, 0, 9), 0)).expect("an address");
    let known = [&first, &second].map(|known| match known.local_addr() {
        Ok(SocketAddr::V4(address)) => address,
        other => panic!("{other:?}"),
    });
    let received = |share: Option<u32>| {
        server.limit_unknown_senders(known.into_iter(), share).expect("a filter");
        let mut counts = [0; 4];
        for _ in 0..BATCH_SIZE {
            let all = [&first, &second, &unknown, &other_address];
            all.iter().for_each(|socket| assert_eq!(socket.send_to(b"anybody there?", to).ok(), Some(14)));
            let mut batch = Batch::new();
            assert_eq!(server.receive(&mut batch, 0, BATCH_SIZE).ok(), Some(ReceiveStatus::Drained));
            for (info, bytes) in batch.iter_mut() {
                assert_eq!(bytes, b"anybody there?");
                let index = all
                    .iter()
                    .position(|socket| socket.local_addr().ok() == Some(SocketAddr::V4(info.remote)));
                counts[index.expect("one of them")] += 1;
            }
        }
        counts
    };
    assert_eq!(received(None), [BATCH_SIZE; 4]);
    assert_eq!(received(Some(0)), [BATCH_SIZE, BATCH_SIZE, 0, 0]);
    let [.., some, others] = received(Some(1 << 31));
    // The number of heads in 128 coin tosses is outside this range less than once in a billion trials.
    assert!((25..=103).contains(&some) && (25..=103).contains(&others), "{some}, {others}");
    assert_eq!(received(None), [BATCH_SIZE; 4]);
}

#[test]
fn closed_socket_returns_errors_until_rebound() {
    for &io in ALL_IO {
        let mut server = bind_any_port(Ipv4Addr::LOCALHOST, io);
        let address = server.local_address().expect("bound");
        server.close();
        let mut batch = Batch::new();
        assert!(
            server.receive(&mut batch, 0, BATCH_SIZE).is_err() && server.local_address().is_err(),
            "{io:?}"
        );
        assert!(batch.push(|_| Some(DatagramInfo {
            owner: 0,
            remote: address,
            local: None,
            len: 1,
            truncated: false
        })));
        assert_eq!(server.send(&batch, 0..1).expect_err("closed").datagrams, 1);
        batch.clear();
        let other_socket = UdpSocket::bind(address).expect("the port is free");
        assert!(server.rebind(address).is_err() && server.local_address().is_err(), "{io:?}");
        drop(other_socket);
        server.rebind(address).expect("the port is free again");
        client().send_to(b"?", address).expect("sent");
        receive(&server, &mut batch, 1);
    }
}

/// On Windows, the error of a datagram to a closed port could appear in a later receive call.
#[test]
fn unreachable_peer_is_no_error_on_unconnected_socket() {
    for &io in ALL_IO {
        let server = bind_any_port(Ipv4Addr::LOCALHOST, io);
        let closed_port = match client().local_addr() {
            Ok(SocketAddr::V4(address)) => address,
            other => panic!("{other:?}"),
        };
        let mut batch = Batch::new();
        assert!(batch.push(|_| Some(DatagramInfo {
            owner: 0,
            remote: closed_port,
            local: None,
            len: 3,
            truncated: false
        })));
        server.send(&batch, 0..1).expect("sent");
        batch.clear();
        assert_eq!(
            server.receive(&mut batch, 0, BATCH_SIZE).expect("no error"),
            ReceiveStatus::Drained,
            "{io:?}"
        );
        client().send_to(b"?", server.local_address().expect("bound")).expect("sent");
        receive(&server, &mut batch, 1);
    }
}

/// Windows may report a reset although `SIO_UDP_CONNRESET` is off.
#[test]
fn connection_reset_matters_only_on_connected_socket() {
    let reset = || io::Error::from(ErrorKind::ConnectionReset);
    let server = bind_any_port(Ipv4Addr::LOCALHOST, Io::BEST);
    assert_eq!(server.filter_reset_error(reset()).expect("the reset is ignored"), (0, 0));
    assert_eq!(
        server
            .filter_reset_error(ErrorKind::NotConnected.into())
            .expect_err("other errors are returned")
            .kind(),
        ErrorKind::NotConnected
    );
    let remote = server.local_address().expect("bound");
    let one = Socket::connect(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0), remote, Io::BEST).expect("loopback");
    assert_eq!(
        one.filter_reset_error(reset()).expect_err("the reset is an error").kind(),
        ErrorKind::ConnectionRefused
    );
}
