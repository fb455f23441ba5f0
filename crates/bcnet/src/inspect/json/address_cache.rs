//! Caches the text of addresses: each line has two or three, and few are in use at a time.

use std::net::SocketAddrV4;

use super::writer::{Json, JsonValue};

/// Written as `Display` shows it.
impl JsonValue for SocketAddrV4 {
    fn add(self, json: &mut Json) {
        let CachedAddress { address, text, len } = *json.address_cache.slot(self);
        if address == Some(self) {
            *json.reserve() = text;
            return json.commit(usize::from(len));
        }
        let start = json.len();
        json.put(format!("\"{self}\",").as_bytes());
        let written = json.written_since(start);
        let mut text = [0; CachedAddress::TEXT_LEN];
        if let Some(room) = text.get_mut(..written.len()) {
            room.copy_from_slice(written);
            let len = written.len() as u8;
            *json.address_cache.slot(self) = CachedAddress { address: Some(self), text, len };
        }
    }
}

/// The text of an address, with its quotes and a comma.
#[derive(Clone, Copy)]
struct CachedAddress {
    address: Option<SocketAddrV4>,
    text: [u8; Self::TEXT_LEN],
    len: u8,
}

impl CachedAddress {
    /// The length of the longest address.
    const TEXT_LEN: usize = "\"255.255.255.255:65535\",".len();
}

/// The most recent addresses.
pub(super) struct AddressCache(Box<[CachedAddress; Self::SLOTS]>);

impl AddressCache {
    const SLOTS: usize = 64;

    fn slot(&mut self, address: SocketAddrV4) -> &mut CachedAddress {
        let [.., network, host] = address.ip().octets();
        let mixed = usize::from(host) + usize::from(address.port()) + 7 * usize::from(network);
        &mut self.0[mixed % Self::SLOTS]
    }
}

impl Default for AddressCache {
    fn default() -> Self {
        Self(Box::new(
            [CachedAddress { address: None, text: [0; CachedAddress::TEXT_LEN], len: 0 }; Self::SLOTS],
        ))
    }
}
