//! List servers have names.

use std::collections::BTreeSet;
use std::net::{SocketAddr, SocketAddrV4, ToSocketAddrs};

use crate::config::HostPort;

/// The usual port of a list server is part of its type.
pub(crate) type Master = HostPort<27900>;

/// The IPv4 addresses of the masters that have any. One that nobody knows must not keep players from playing.
pub(crate) fn resolve(masters: &[Master]) -> Vec<SocketAddrV4> {
    let mut found = BTreeSet::new();
    for master in masters {
        match (master.host.as_str(), master.port).to_socket_addrs() {
            Ok(addresses) => {
                found.extend(addresses.filter_map(|address| match address {
                    SocketAddr::V4(address) => Some(address),
                    SocketAddr::V6(_) => None,
                }));
            }
            Err(error) => {
                let host = &master.host;
                tracing::warn!(event = "master_unknown", host, %error, "it is looked up again in a minute");
            }
        }
    }
    found.into_iter().collect()
}
