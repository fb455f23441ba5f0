//! Which requests are answered at all: by the name that the browser calls the page, and by where a form comes from.

use std::net::{IpAddr, Ipv6Addr};

use crate::config;

/// How the page can be reached, and what follows from that.
#[derive(Debug, Clone)]
pub(super) struct AccessPolicy {
    /// It can be reached from elsewhere: nothing is shown without the token.
    pub(super) is_public: bool,
    /// Browsers reach it by https.
    pub(super) is_secure: bool,
    pub(super) behind_proxy: bool,
    hosts: Vec<String>,
    port: u16,
}

impl AccessPolicy {
    /// `port` is where it listens.
    pub(super) fn new(web: &config::Web, port: u16) -> Self {
        Self {
            is_public: !web.bind.ip().is_loopback() || web.behind_proxy,
            is_secure: web.certificate.is_some() || web.behind_proxy,
            behind_proxy: web.behind_proxy,
            hosts: web.hosts.iter().map(|host| host.0.clone()).collect(),
            port,
        }
    }

    /// Returns the name of the cookie. Browsers send those of other ports of a host, too. With its prefix, none but this page
    /// can have set it.
    pub(super) fn cookie_name(&self) -> String {
        let prefix = if self.is_secure { "__Host-" } else { "" };
        format!("{prefix}bcnet-{}", self.port)
    }

    /// Returns whether the page may be called so. A name that somebody else has given this address would let their scripts
    /// read the page, for to the browser it is theirs; addresses are nobody's.
    pub(super) fn is_own_host(&self, host: &str) -> bool {
        let name = strip_port(host).to_ascii_lowercase();
        let literal = name.strip_prefix('[').and_then(|name| name.strip_suffix(']'));
        name.parse::<std::net::Ipv4Addr>().is_ok()
            || literal.is_some_and(|literal| literal.parse::<Ipv6Addr>().is_ok())
            || name == "localhost"
            || self.hosts.contains(&name)
    }

    /// Returns whether a form was sent by a page of this host. Browsers tell that of every form.
    pub(super) fn is_own_origin(&self, host: &str, origin: Option<&str>) -> bool {
        let scheme = if self.is_secure { "https" } else { "http" };
        let origin = origin.and_then(|origin| origin.strip_prefix(scheme)?.strip_prefix("://"));
        origin.is_some_and(|origin| origin.eq_ignore_ascii_case(host))
    }

    /// Returns who asks, by whom attempts are counted. What a proxy was told by others stands before what it has added.
    pub(super) fn client_address(&self, peer: IpAddr, forwarded: Option<&str>) -> IpAddr {
        let last =
            forwarded.and_then(|list| list.rsplit(',').next()).and_then(|last| last.trim().parse().ok());
        last.filter(|_| self.behind_proxy).unwrap_or(peer)
    }
}

fn strip_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|digit| digit.is_ascii_digit()) => name,
        _ => host,
    }
}

/// Returns the value of a cookie.
pub(super) fn cookie_value<'a>(header: &'a str, name: &str) -> Option<&'a str> {
    header.split(';').find_map(|pair| pair.trim().strip_prefix(name)?.strip_prefix('='))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy_with(change: impl FnOnce(&mut config::Web)) -> AccessPolicy {
        let mut web = config::Web::default();
        change(&mut web);
        AccessPolicy::new(&web, 8101)
    }

    #[test]
    fn host_check_accepts_only_own_names_and_addresses() {
        let policy = policy_with(|web| web.hosts = vec![config::HostName("game.example".into())]);
        for host in
            ["localhost", "LOCALHOST:8101", "127.0.0.1:99", "[::1]:8101", "192.0.2.7", "Game.Example:443"]
        {
            assert!(policy.is_own_host(host), "{host}");
        }
        for host in [
            "",
            "evil.example",
            "game.example.evil.example",
            "localhost.evil.example:8101",
            "127.0.0.1.evil",
            "evil.example:127.0.0.1",
            "game.example:x",
            "[evil]",
            "::1",
            "game.example:80:80",
        ] {
            assert!(!policy.is_own_host(host), "{host}");
        }
    }

    #[test]
    fn origin_check_compares_scheme_host_and_port() {
        let plain = policy_with(|_| ());
        assert!(plain.is_own_origin("localhost:8101", Some("http://localhost:8101")));
        for origin in [
            None,
            Some("null"),
            Some(""),
            Some("http://evil.example"),
            Some("http://localhost"),
            Some("https://localhost:8101"),
            Some("http://localhost:8101.evil.example"),
        ] {
            assert!(!plain.is_own_origin("localhost:8101", origin), "{origin:?}");
        }
        let proxied = policy_with(|web| web.behind_proxy = true);
        assert!(proxied.is_own_origin("game.example", Some("https://game.example")));
        assert!(!proxied.is_own_origin("game.example", Some("http://game.example")));
    }

    #[test]
    fn page_is_public_when_reachable_from_other_machines() {
        assert!(!policy_with(|_| ()).is_public);
        assert!(policy_with(|web| web.behind_proxy = true).is_public);
        assert!(policy_with(|web| web.bind = "0.0.0.0:8101".parse().expect("an address")).is_public);
        assert_eq!(policy_with(|_| ()).cookie_name(), "bcnet-8101");
        assert_eq!(policy_with(|web| web.behind_proxy = true).cookie_name(), "__Host-bcnet-8101");
    }

    #[test]
    fn forwarded_address_is_used_only_behind_a_proxy() {
        let [peer, far] =
            ["192.0.2.1", "198.51.100.9"].map(|text| text.parse::<IpAddr>().expect("an address"));
        let list = Some("203.0.113.5, 198.51.100.9");
        assert_eq!(policy_with(|_| ()).client_address(peer, list), peer);
        let proxied = policy_with(|web| web.behind_proxy = true);
        assert_eq!(proxied.client_address(peer, list), far, "what comes before may be a lie");
        assert_eq!(proxied.client_address(peer, Some("nonsense")), peer);
        assert_eq!(proxied.client_address(peer, None), peer);
    }

    #[test]
    fn cookie_lookup_compares_the_whole_name() {
        let header = "xbcnet-8101=no; bcnet-8101=yes;bcnet-81012=no";
        assert_eq!(cookie_value(header, "bcnet-8101"), Some("yes"));
        assert_eq!(cookie_value("bcnet", "bcnet-8101"), None);
        assert_eq!(cookie_value("", "bcnet-8101"), None);
    }
}
