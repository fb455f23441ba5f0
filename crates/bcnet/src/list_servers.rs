//! Resolves the names of list servers.

use std::collections::BTreeSet;
use std::net::SocketAddrV4;

use crate::config::ListServerAddress;
use crate::lookup::{self, LookupError};

/// The result of resolving the names of all list servers.
pub(crate) struct ResolvedListServers {
    addresses: BTreeSet<SocketAddrV4>,
    /// `true` if every name could be resolved.
    is_complete: bool,
    /// The hosts without an address.
    pub(crate) unknown: Vec<String>,
}

impl ResolvedListServers {
    /// Returns the addresses to use from now on.
    ///
    /// If a name could not be resolved, the old addresses stay in use too.
    pub(crate) fn merge_with(&self, old: &[SocketAddrV4]) -> Vec<SocketAddrV4> {
        let retained = old.iter().filter(|_| !self.is_complete);
        self.addresses.iter().chain(retained).copied().collect::<BTreeSet<_>>().into_iter().collect()
    }
}

/// Resolves the IPv4 addresses of all list servers. An unknown name is only logged: the game must go on.
pub(crate) fn resolve(masters: &[ListServerAddress]) -> ResolvedListServers {
    let (mut addresses, mut is_complete, mut unknown) = (BTreeSet::new(), true, Vec::new());
    for master in masters {
        let found = lookup::ipv4_addresses(master);
        is_complete &= !matches!(found, Err(LookupError::NotResolved(_)));
        match found {
            Ok(found) => addresses.extend(found),
            Err(error) => {
                let host = &master.host;
                unknown.push(host.clone());
                tracing::warn!(event = "master_unknown", host, %error, "the name cannot be resolved; the next attempt is in a minute");
            }
        }
    }
    ResolvedListServers { addresses, is_complete, unknown }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_addresses_are_kept_if_a_lookup_fails() {
        let [old, new] = [1, 2].map(|n| SocketAddrV4::new([192, 0, 2, n].into(), 27900));
        let resolved =
            |is_complete| ResolvedListServers { addresses: [new].into(), is_complete, unknown: Vec::new() };
        assert_eq!(resolved(true).merge_with(&[old, new]), [new]);
        assert_eq!(resolved(false).merge_with(&[new, old]), [old, new]);
    }

    #[test]
    fn ipv6_only_list_server_does_not_keep_old_addresses() {
        let [six, four] =
            ["::1", "192.0.2.1"].map(|host| ListServerAddress { host: host.into(), port: 27900 });
        let address = SocketAddrV4::new([192, 0, 2, 1].into(), 27900);
        let gone = SocketAddrV4::new([192, 0, 2, 9].into(), 27900);
        assert_eq!(resolve(&[six, four]).merge_with(&[gone]), [address]);
    }
}
