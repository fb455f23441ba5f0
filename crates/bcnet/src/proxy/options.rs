//! Parsing of the proxy's options, its signals and its background tasks.

use std::collections::HashSet;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use anyhow::{bail, ensure};

use bcnet_session::Network;
use bcnet_udp::{Io, Socket, wall_now};

use super::relay::RelayCommands;
use crate::background::BackgroundTask;
use crate::bans;
use crate::config::{ConfigValue as _, HostPort, ListServerAddress};
use crate::list_servers;
use crate::lookup;
use crate::signals::{self, Signal};

/// The server behind the proxy, by name or address.
#[derive(Debug, Clone)]
pub(super) struct Upstream(HostPort<0>);

impl FromStr for Upstream {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        HostPort::from_text(text).map(Self)
    }
}

impl Upstream {
    /// Resolves the address, which must not be the proxy's own address `listen`.
    pub(super) fn resolve_checked(&self, listen: SocketAddrV4) -> anyhow::Result<SocketAddrV4> {
        let address = lookup::first_ipv4_address(&self.0)?;
        // Binding succeeds only at an address of this machine.
        let is_here = |ip: Ipv4Addr| Socket::bind(SocketAddrV4::new(ip, 0), Io::BEST).is_ok();
        let same = listen.ip() == address.ip()
            || (listen.ip().is_unspecified() || address.ip().is_unspecified()) && is_here(*address.ip());
        ensure!(
            !same || listen.port() != address.port(),
            "--upstream: the proxy itself listens at {}:{}; give the proxy or the server another port",
            self.0.host,
            self.0.port
        );
        Ok(address)
    }
}

/// Returns the IPv4 address. The protocol has no IPv6.
pub(super) fn require_ipv4(address: SocketAddr) -> anyhow::Result<SocketAddrV4> {
    match address {
        SocketAddr::V4(address) => Ok(address),
        SocketAddr::V6(_) => {
            bail!("{address}: the protocol has only IPv4; listen at an IPv4 address, such as 0.0.0.0")
        }
    }
}

/// The source addresses to use toward the server.
#[derive(Debug, Clone, Default)]
pub(super) struct SourcePool(Vec<Ipv4Addr>);

impl SourcePool {
    pub(super) fn addresses(&self) -> Vec<Ipv4Addr> {
        self.0.clone()
    }
}

impl FromStr for SourcePool {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (mut pool, mut known) = (Vec::new(), HashSet::new());
        for part in text.split(',').filter(|part| !part.is_empty()) {
            let network = Network::from_text(part)?;
            // An address may be named twice, but two players must not share it.
            let fresh = network.hosts().take(MAX_SOURCES).filter(|address| known.insert(*address));
            pool.extend(fresh);
        }
        pool.truncate(MAX_SOURCES);
        Ok(Self(pool))
    }
}

/// Starts a thread that turns signals into commands.
pub(super) fn listen_to_signals(commands: &RelayCommands, ban_file: Option<PathBuf>) -> io::Result<()> {
    let (reload, reloading) = BackgroundTask::new();
    let [reloaded, stopped, dumped] = [commands, commands, commands].map(Clone::clone);
    reloading.start("reload", move || {
        reload_bans(&reloaded, ban_file.as_deref(), true);
        None
    })?;
    signals::listen(vec![
        (Signal::Stop, Box::new(move || stopped.send(|relay, _| relay.stop()))),
        (Signal::Reload, Box::new(move || reload.fire())),
        (Signal::Dump, Box::new(move || dumped.send(|relay, now| relay.dump_queues(now)))),
    ])
}

/// Starts the task that resolves list servers and reads the bans again every minute.
pub(super) fn start_housekeeping(
    commands: RelayCommands,
    masters: Vec<ListServerAddress>,
    ban_file: Option<PathBuf>,
) -> io::Result<()> {
    let (start, housekeeping) = BackgroundTask::new();
    start.fire();
    housekeeping.start("housekeeping", move || {
        reload_bans(&commands, ban_file.as_deref(), false);
        if !masters.is_empty() {
            let resolved = list_servers::resolve(&masters);
            commands.send(move |relay, _| relay.set_list_servers(&resolved));
        }
        Some(HOUSEKEEPING_INTERVAL)
    })
}

fn reload_bans(commands: &RelayCommands, ban_file: Option<&Path>, is_asked: bool) {
    let Some(path) = ban_file else { return };
    match bans::load_existing(path, wall_now().as_secs()) {
        Ok(bans) => {
            let networks = bans.networks();
            commands.send(move |relay, now| relay.set_bans(networks, is_asked, now));
        }
        Err(error) => {
            let error = format!("{error:#}");
            tracing::error!(event = "reload_failed", error, "the proxy keeps the bans it has");
        }
    }
}

const HOUSEKEEPING_INTERVAL: Duration = Duration::from_secs(60);
/// The maximum number of source addresses.
///
/// A session has at most 124 players, but an address is not reused for a while.
const MAX_SOURCES: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn source_pool_has_no_duplicates() {
        let pool: SourcePool = "127.1.0.2,127.1.0.0/30,127.1.0.2,127.1.0.9".parse().expect("a pool");
        let addresses = [2, 1, 9].map(|last| Ipv4Addr::new(127, 1, 0, last));
        // A /30 network has four addresses: its own, two hosts, and the broadcast address.
        assert_eq!(pool.addresses(), addresses);
    }
}
