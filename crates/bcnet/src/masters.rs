//! List servers have names.

use std::collections::BTreeSet;
use std::net::SocketAddrV4;

use crate::config::Master;
use crate::lookup::{self, Unknown};

/// What became of a look at the names.
pub(crate) struct Resolved {
    addresses: BTreeSet<SocketAddrV4>,
    /// Whether every name is known.
    is_whole: bool,
    /// Those that have no address.
    pub(crate) unknown: Vec<String>,
}

impl Resolved {
    /// Returns the addresses to go on with. Nobody is given up because a name server is out of reach.
    pub(crate) fn or_keep(&self, old: &[SocketAddrV4]) -> Vec<SocketAddrV4> {
        let kept = old.iter().filter(|_| !self.is_whole);
        self.addresses.iter().chain(kept).copied().collect::<BTreeSet<_>>().into_iter().collect()
    }
}

/// Returns the IPv4 addresses of the masters that have any. One that nobody knows must not keep players from playing.
pub(crate) fn resolve(masters: &[Master]) -> Resolved {
    let (mut addresses, mut is_whole, mut unknown) = (BTreeSet::new(), true, Vec::new());
    for master in masters {
        let found = lookup::all(master);
        is_whole &= !matches!(found, Err(Unknown::Name(_)));
        match found {
            Ok(found) => addresses.extend(found),
            Err(error) => {
                let host = &master.host;
                unknown.push(host.clone());
                tracing::warn!(event = "master_unknown", host, %error, "it is looked up again in a minute");
            }
        }
    }
    Resolved { addresses, is_whole, unknown }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_is_given_up_because_names_cannot_be_looked_up() {
        let [old, new] = [1, 2].map(|n| SocketAddrV4::new([192, 0, 2, n].into(), 27900));
        let resolved = |is_whole| Resolved { addresses: [new].into(), is_whole, unknown: Vec::new() };
        assert_eq!(resolved(true).or_keep(&[old, new]), [new]);
        assert_eq!(resolved(false).or_keep(&[new, old]), [old, new]);
    }

    #[test]
    fn a_master_without_an_ipv4_address_is_told_but_keeps_no_other_alive() {
        let [six, four] = ["::1", "192.0.2.1"].map(|host| Master { host: host.into(), port: 27900 });
        let address = SocketAddrV4::new([192, 0, 2, 1].into(), 27900);
        let gone = SocketAddrV4::new([192, 0, 2, 9].into(), 27900);
        assert_eq!(resolve(&[six, four]).or_keep(&[gone]), [address]);
    }
}
