//! Decides which requests get an answer: by the host name, and by the origin of a form.

use std::net::{IpAddr, Ipv6Addr};

use crate::config;

/// The addresses of the page, and the checks that follow from them.
#[derive(Debug, Clone)]
pub(super) struct AccessPolicy {
    /// The page is reachable from other machines. Without a login it shows only public standings.
    pub(super) is_public: bool,
    /// Browsers reach the page over https.
    pub(super) is_secure: bool,
    pub(super) behind_proxy: bool,
    /// Responses tell browsers to use only https for this host (HSTS).
    pub(super) is_hsts: bool,
    hosts: Vec<String>,
    port: u16,
}

impl AccessPolicy {
    /// Creates the policy. `port` is the port that the page listens on.
    pub(super) fn new(web: &config::Web, port: u16) -> Self {
        let is_secure = web.certificate.is_some() || web.behind_proxy;
        Self {
            is_public: !web.bind.ip().is_loopback() || web.behind_proxy,
            is_secure,
            behind_proxy: web.behind_proxy,
            is_hsts: web.hsts && is_secure,
            hosts: web.hosts.iter().map(|host| host.0.clone()).collect(),
            port,
        }
    }

    /// Returns the name of the cookie.
    ///
    /// The name has the port, because browsers send cookies to all ports of a host. With the `__Host-`
    /// prefix, only this page can set the cookie.
    pub(super) fn cookie_name(&self) -> String {
        let prefix = if self.is_secure { "__Host-" } else { "" };
        format!("{prefix}bcnet-{}", self.port)
    }

    /// Returns whether the page may be reached under this host name.
    ///
    /// Any other name may be a foreign domain that resolves to this address (DNS rebinding). Scripts of that
    /// domain could read the page. Plain addresses belong to no domain.
    pub(super) fn is_own_host(&self, host: &str) -> bool {
        let name = strip_port(host).to_ascii_lowercase();
        let literal = name.strip_prefix('[').and_then(|name| name.strip_suffix(']'));
        name.parse::<std::net::Ipv4Addr>().is_ok()
            || literal.is_some_and(|literal| literal.parse::<Ipv6Addr>().is_ok())
            || name == "localhost"
            || self.hosts.contains(&name)
    }

    /// Returns whether a page of this host sent the form. Browsers send the origin with every form.
    pub(super) fn is_own_origin(&self, host: &str, origin: Option<&str>) -> bool {
        let scheme = if self.is_secure { "https" } else { "http" };
        let origin = origin.and_then(|origin| origin.strip_prefix(scheme)?.strip_prefix("://"));
        origin.is_some_and(|origin| origin.eq_ignore_ascii_case(host))
    }

    /// Returns the address of the client, by which login attempts are counted.
    ///
    /// Behind a proxy, the last entry of the header counts: earlier entries come from the client.
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
        assert!(policy_with(|web| web.bind = "0.0.0.0:8101".parse().expect("valid address")).is_public);
        assert_eq!(policy_with(|_| ()).cookie_name(), "bcnet-8101");
        assert_eq!(policy_with(|web| web.behind_proxy = true).cookie_name(), "__Host-bcnet-8101");
    }

    #[test]
    fn forwarded_address_is_used_only_behind_a_proxy() {
        let [peer, far] =
            ["192.0.2.1", "198.51.100.9"].map(|text| text.parse::<IpAddr>().expect("valid address"));
        let list = Some("203.0.113.5, 198.51.100.9");
        assert_eq!(policy_with(|_| ()).client_address(peer, list), peer);
        let proxied = policy_with(|web| web.behind_proxy = true);
        assert_eq!(proxied.client_address(peer, list), far, "earlier entries may be forged");
        assert_eq!(proxied.client_address(peer, Some("garbage")), peer);
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
