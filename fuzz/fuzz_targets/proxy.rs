//! Whatever a player and a server say through a healing proxy, nothing panics, text and what cannot be read passes as it
//! came, and what passes changed can be read and holds nothing but what came.
#![no_main]

use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::Duration;

use bcnet_observe::MessageBuffer;
use bcnet_proxy::{Config, Inbound, Proxy};
use bcnet_transport::wire::{Body, Control, Datagram, Message, PeerId, Role, Seq, Text, Writer};
use bcnet_transport::{Time, cipher};
use libfuzzer_sys::fuzz_target;

const PLAYER: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 2), 22101);

fuzz_target!(|input: &[u8]| {
    let mut proxy = Proxy::new(Config { heal: true, ..Config::default() });
    let mut buffer = [0; 64];
    let body = Body::ConnectRequest { address: *PLAYER.ip(), nonce: 1, password: Text::default() };
    let mut writer = Writer::new(&mut buffer, PeerId::UNASSIGNED);
    assert!(writer.push(&Message::Control(Control::new(Seq(0), body))));
    let request = writer.finish().expect("a message").to_vec();
    assert!(pass(&mut proxy, Role::Client, &request, Time::ZERO));
    let (mut rest, mut now) = (input, Time::ZERO);
    while let [op, len, after @ ..] = rest {
        let (plain, after) = after.split_at(usize::from(*len).min(after.len()));
        rest = after;
        now = now + Duration::from_millis(u64::from(op / 2) * 50);
        let sender = if op % 2 == 0 { Role::Client } else { Role::Host };
        pass(&mut proxy, sender, plain, now);
        proxy.handle_timeout(now);
        while proxy.poll_event().is_some() {}
    }
});

/// Whether it went on as it came.
fn pass(proxy: &mut Proxy, sender: Role, plain: &[u8], now: Time) -> bool {
    let mut wire = plain.to_vec();
    cipher::encrypt(&mut wire);
    let mut buffer = MessageBuffer::default();
    let inbound = Inbound { wire: &wire, content: &buffer.read(plain, Some(sender)) };
    let output = match sender {
        Role::Client => proxy.handle_client(PLAYER, inbound, now),
        Role::Host => proxy.handle_server(0, inbound, now),
    };
    if let Some((_, answer)) = output.answer {
        assert!(messages(&answer.to_wire(), Role::Client).is_some_and(|acks| !acks.is_empty()));
    }
    let Some(out) = output.forward.map(|(_, bytes)| bytes.to_wire()) else { return false };
    if out != wire {
        let came = messages(&wire, sender).expect("what cannot be read passes as it came");
        let mut came = came.iter();
        let keepalive = Message::Keepalive.to_string();
        let left = messages(&out, sender).expect("well formed");
        assert!(left.iter().all(|left| *left == keepalive || came.any(|came| came == left)), "{left:?}");
    }
    out == wire
}

fn messages(wire: &[u8], sender: Role) -> Option<Vec<String>> {
    let mut plain = wire.to_vec();
    cipher::decrypt(&mut plain);
    let datagram = Datagram::parse(&plain, Some(sender)).ok()?;
    Some(datagram.messages().map(|message| message.to_string()).collect())
}
