//! Blocks of IPv4 addresses in CIDR form.

use std::fmt;
use std::net::Ipv4Addr;

/// The prefix length of the networks whose players are counted together (S-13).
pub(crate) const NETWORK_PREFIX: u8 = 16;

/// An IPv4 address or a block of addresses, in CIDR form.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Network {
    first: Ipv4Addr,
    prefix: u8,
}

impl Network {
    /// The networks that are at home by default: RFC 1918, link-local addresses, and 100.64.0.0/10.
    pub const DEFAULT_HOME: [Self; 5] = [
        Self { first: Ipv4Addr::new(10, 0, 0, 0), prefix: 8 },
        Self { first: Ipv4Addr::new(172, 16, 0, 0), prefix: 12 },
        Self { first: Ipv4Addr::new(192, 168, 0, 0), prefix: 16 },
        Self { first: Ipv4Addr::new(169, 254, 0, 0), prefix: 16 },
        Self { first: Ipv4Addr::new(100, 64, 0, 0), prefix: 10 },
    ];

    /// Returns the block with a prefix of `prefix` bits that contains `address`. Values above 32 count as 32.
    #[must_use]
    pub fn containing(address: Ipv4Addr, prefix: u8) -> Self {
        let prefix = prefix.min(32);
        let mask = u32::MAX.checked_shl(32 - u32::from(prefix)).unwrap_or(0);
        Self { first: Ipv4Addr::from_bits(address.to_bits() & mask), prefix }
    }

    /// Returns the first address of the block.
    #[must_use]
    pub const fn first(self) -> Ipv4Addr {
        self.first
    }

    /// Returns whether the block contains `address`.
    #[must_use]
    pub fn contains(self, address: Ipv4Addr) -> bool {
        (self.first.to_bits() ^ address.to_bits()).leading_zeros() >= self.prefix.into()
    }

    /// Returns the host addresses of the block.
    ///
    /// Leaves out the first and the last address of a block of more than two addresses.
    pub fn hosts(self) -> impl Iterator<Item = Ipv4Addr> {
        let size = 1_u64 << (32 - self.prefix.min(32));
        let edge = u64::from(size > 2);
        let address =
            move |at| Ipv4Addr::from_bits(self.first.to_bits().wrapping_add(u32::try_from(at).unwrap_or(0)));
        (edge..size - edge).map(address)
    }
}

/// Returns whether one of `networks` contains `address`.
#[must_use]
pub fn any_contains(networks: &[Network], address: Ipv4Addr) -> bool {
    networks.iter().any(|network| network.contains(address))
}

impl fmt::Display for Network {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.prefix {
            32 => self.first.fmt(out),
            prefix => write!(out, "{}/{prefix}", self.first),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn network_contains_addresses_that_share_its_prefix() {
        let [inside, outside] = [[10, 9, 255, 255], [10, 10, 0, 0]].map(Ipv4Addr::from);
        let network = Network::containing(inside, 16);
        assert_eq!(network.to_string(), "10.9.0.0/16");
        assert!(network.contains(inside) && !network.contains(outside));
        assert!(
            Network::containing(inside, 0).contains(outside),
            "a prefix of 0 bits contains all addresses"
        );
        let one = Network::containing(inside, 200);
        assert!(one.contains(inside) && !one.contains(outside), "a prefix of 32 bits contains one address");
        assert_eq!(one.to_string(), "10.9.255.255");
    }

    #[test]
    fn hosts_exclude_network_and_broadcast_addresses() {
        let hosts = |prefix| Network::containing(Ipv4Addr::new(192, 0, 2, 8), prefix).hosts().count();
        assert_eq!([hosts(32), hosts(31), hosts(30), hosts(24)], [1, 2, 2, 254]);
        assert_eq!(Network::containing(Ipv4Addr::BROADCAST, 32).hosts().next(), Some(Ipv4Addr::BROADCAST));
    }
}
