//! Resolves host names to IPv4 addresses: the game's protocol has no IPv6.

use std::fmt;
use std::io;
use std::net::{SocketAddr, SocketAddrV4, ToSocketAddrs};

use anyhow::Context;

use crate::config::HostPort;

/// Returns the IPv4 addresses of a host, at least one.
pub(crate) fn ipv4_addresses<const PORT: u16>(
    host: &HostPort<PORT>,
) -> Result<Vec<SocketAddrV4>, LookupError> {
    let found: Vec<_> = resolve_ipv4(host)?.collect();
    if found.is_empty() { Err(LookupError::Ipv6Only) } else { Ok(found) }
}

/// Returns the first IPv4 address of a host. An error names the host.
pub(crate) fn first_ipv4_address<const PORT: u16>(host: &HostPort<PORT>) -> anyhow::Result<SocketAddrV4> {
    let found = resolve_ipv4(host).and_then(|mut found| found.next().ok_or(LookupError::Ipv6Only));
    found.with_context(|| host.host.clone())
}

fn resolve_ipv4<const PORT: u16>(
    host: &HostPort<PORT>,
) -> Result<impl Iterator<Item = SocketAddrV4> + use<PORT>, LookupError> {
    let addresses = (host.host.as_str(), host.port).to_socket_addrs().map_err(LookupError::NotResolved)?;
    let v4 = |address| if let SocketAddr::V4(address) = address { Some(address) } else { None };
    Ok(addresses.filter_map(v4))
}

/// The reason why a host has no IPv4 address.
#[derive(Debug)]
pub(crate) enum LookupError {
    /// The name cannot be resolved.
    NotResolved(io::Error),
    /// The host has only IPv6 addresses.
    Ipv6Only,
}

impl fmt::Display for LookupError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotResolved(error) => write!(out, "unknown host: {error}"),
            Self::Ipv6Only => {
                out.write_str("the host has only IPv6 addresses, and the game's protocol has only IPv4")
            }
        }
    }
}

impl std::error::Error for LookupError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_without_ipv4_address_is_an_error() {
        let [six, four] = ["::1", "192.0.2.1"].map(|host| HostPort::<1> { host: host.into(), port: 27900 });
        assert!(matches!(ipv4_addresses(&six), Err(LookupError::Ipv6Only)));
        let error = format!("{:#}", first_ipv4_address(&six).expect_err("an IPv6 address"));
        assert_eq!(error, "::1: the host has only IPv6 addresses, and the game's protocol has only IPv4");
        let address = SocketAddrV4::new([192, 0, 2, 1].into(), 27900);
        assert_eq!(
            (ipv4_addresses(&four).expect("known"), first_ipv4_address(&four).expect("known")),
            (vec![address], address)
        );
    }
}
