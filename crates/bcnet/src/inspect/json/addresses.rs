//! Addresses: their text is made once, and remembered. Every line has two or three, and few are in use at a time.

use std::net::SocketAddrV4;

use super::text::{Json, Value};

/// As it is shown.
impl Value for SocketAddrV4 {
    fn add(self, json: &mut Json) {
        let Address { address, text, len } = *json.addresses.slot(self);
        if address == Some(self) {
            *json.room() = text;
            return json.used(usize::from(len));
        }
        let start = json.len();
        json.put(format!("\"{self}\",").as_bytes());
        let written = json.since(start);
        let mut text = [0; Address::ROOM];
        if let Some(room) = text.get_mut(..written.len()) {
            room.copy_from_slice(written);
            let len = written.len() as u8;
            *json.addresses.slot(self) = Address { address: Some(self), text, len };
        }
    }
}

/// An address as it is written, with its quotes and a comma.
#[derive(Clone, Copy)]
struct Address {
    address: Option<SocketAddrV4>,
    text: [u8; Self::ROOM],
    len: u8,
}

impl Address {
    /// As the longest takes.
    const ROOM: usize = "\"255.255.255.255:65535\",".len();
}

/// The latest addresses.
pub(super) struct Addresses(Box<[Address; Self::COUNT]>);

impl Addresses {
    const COUNT: usize = 64;

    fn slot(&mut self, address: SocketAddrV4) -> &mut Address {
        let [.., network, host] = address.ip().octets();
        let mixed = usize::from(host) + usize::from(address.port()) + 7 * usize::from(network);
        &mut self.0[mixed % Self::COUNT]
    }
}

impl Default for Addresses {
    fn default() -> Self {
        Self(Box::new([Address { address: None, text: [0; Address::ROOM], len: 0 }; Self::COUNT]))
    }
}
