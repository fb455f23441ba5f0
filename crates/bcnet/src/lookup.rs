//! Hosts have names, and the game's protocol knows IPv4 addresses only.

use std::fmt;
use std::io;
use std::net::{SocketAddr, SocketAddrV4, ToSocketAddrs};

use anyhow::Context;

use crate::config::HostPort;

/// Returns the IPv4 addresses of a host, at least one.
pub(crate) fn all<const PORT: u16>(host: &HostPort<PORT>) -> Result<Vec<SocketAddrV4>, Unknown> {
    let found: Vec<_> = look_up(host)?.collect();
    if found.is_empty() { Err(Unknown::Only6) } else { Ok(found) }
}

/// Returns the first IPv4 address of a host. An error names the host.
pub(crate) fn first<const PORT: u16>(host: &HostPort<PORT>) -> anyhow::Result<SocketAddrV4> {
    let found = look_up(host).and_then(|mut found| found.next().ok_or(Unknown::Only6));
    found.with_context(|| host.host.clone())
}

fn look_up<const PORT: u16>(
    host: &HostPort<PORT>,
) -> Result<impl Iterator<Item = SocketAddrV4> + use<PORT>, Unknown> {
    let addresses = (host.host.as_str(), host.port).to_socket_addrs().map_err(Unknown::Name)?;
    let v4 = |address| if let SocketAddr::V4(address) = address { Some(address) } else { None };
    Ok(addresses.filter_map(v4))
}

/// Why a host has no address for us.
#[derive(Debug)]
pub(crate) enum Unknown {
    /// The name could not be looked up.
    Name(io::Error),
    /// The name is known, but not by IPv4.
    Only6,
}

impl fmt::Display for Unknown {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(error) => write!(out, "unknown host: {error}"),
            Self::Only6 => out.write_str("it has IPv6 addresses only, and the game's protocol IPv4 only"),
        }
    }
}

impl std::error::Error for Unknown {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_without_an_ipv4_address_has_none_for_us() {
        let [six, four] = ["::1", "192.0.2.1"].map(|host| HostPort::<1> { host: host.into(), port: 27900 });
        assert!(matches!(all(&six), Err(Unknown::Only6)));
        let error = format!("{:#}", first(&six).expect_err("an IPv6 address"));
        assert_eq!(error, "::1: it has IPv6 addresses only, and the game's protocol IPv4 only");
        let address = SocketAddrV4::new([192, 0, 2, 1].into(), 27900);
        assert_eq!((all(&four).expect("known"), first(&four).expect("known")), (vec![address], address));
    }
}
