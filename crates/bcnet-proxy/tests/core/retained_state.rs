//! State that must end with its client or its connection, and state that must not.

use std::net::SocketAddrV4;

use bcnet_observe::{Content, MessageBuffer};
use bcnet_proxy::{Healer, Inbound, Proxy, ProxyConfig, ProxyDirection, ProxyEvent};
use bcnet_session::Network;
use bcnet_transport::wire::{PeerId, Role};

use crate::clients::{client, events, pool};
use crate::{WireAndPlaintext, ack, at, connect, data, message_texts, texts};

/// An address without clients has no rate limiter, so a player that leaves and comes back passes.
#[test]
fn rate_limiter_of_an_address_ends_with_its_last_client() {
    let mut proxy = Proxy::new(ProxyConfig { rate: 1, sources: pool(1), ..ProxyConfig::default() });
    for millis in [0, 10, 20] {
        let both = connect(1);
        let output = proxy.handle_client(client(1), both.inbound(Role::Client), at(millis));
        assert_eq!((output.refusal, output.forward.is_some()), (None, true), "after {millis} ms");
        proxy.close_source(0);
    }
}

/// A ban also ends the wait of a browser: the server's answer is not forwarded.
#[test]
fn ban_closes_waiting_browsers() {
    let mut proxy = Proxy::new(ProxyConfig { sources: pool(1), ..ProxyConfig::default() });
    let query = WireAndPlaintext { wire: b"\\status\\".to_vec(), plaintext: b"\\status\\".to_vec() };
    let mut buffer = MessageBuffer::default();
    let content: Content<'_> = buffer.read(&query.plaintext, Some(Role::Client));
    let inbound = Inbound { wire: &query.wire, content: &content };
    assert!(proxy.handle_client(client(1), inbound, at(0)).forward.is_some());
    events(&mut proxy);
    proxy.set_bans(vec![Network::containing(*client(1).ip(), 32)]);
    let closed = events(&mut proxy);
    assert!(
        matches!(closed.as_slice(), [ProxyEvent::Closed { client: who, player: false, .. }] if *who == client(1)),
        "{closed:?}"
    );
    assert_eq!(proxy.sources().map(|(who, _)| who).collect::<Vec<SocketAddrV4>>(), []);
}

/// A connect request resets both directions: the first message of the new connection is no repeat of the old one.
#[test]
fn server_message_passes_after_the_client_spoke_on_its_new_connection() {
    let mut healer = Healer::default();
    for round in 0..2 {
        let request = connect(round);
        let pass = |healer: &mut Healer, direction, datagram: &WireAndPlaintext| {
            let role = if direction == ProxyDirection::ToServer { Role::Client } else { Role::Host };
            let forward = healer.handle_datagram(direction, datagram.inbound(role), at(0)).forward;
            forward.map(|bytes| message_texts(&bytes.to_wire()))
        };
        pass(&mut healer, ProxyDirection::ToServer, &request);
        let from = |peer, messages: &[_]| WireAndPlaintext::new(peer, messages);
        pass(&mut healer, ProxyDirection::ToServer, &from(PeerId(2), &[data(0)]));
        let sent = pass(&mut healer, ProxyDirection::ToClient, &from(PeerId::HOST, &[data(0)]));
        assert_eq!(sent, Some(texts(&[data(0)])), "connection {round}");
        let acked = pass(&mut healer, ProxyDirection::ToServer, &from(PeerId(2), &[ack(0)]));
        assert_eq!(acked, Some(texts(&[ack(0)])), "connection {round}");
    }
}
