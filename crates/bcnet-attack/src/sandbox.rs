//! The isolated network in which attacks run, and the check that they run nowhere else.
//!
//! A [`Sandbox`] is a network namespace that this process creates. Every IPv4 address in it is local, so any
//! source address can be forged, and no packet can leave. With `--loopback` it is 127.0.0.0/8 of this
//! machine, without forged addresses. Each sender calls [`Sandbox::check`] first.

use std::fs;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::process::Command;

use anyhow::{Context, bail, ensure};
use rustix::thread::UnshareFlags;

/// The isolated network in which attacks run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sandbox {
    isolation: Isolation,
    server: Ipv4Addr,
}

/// The method that separates attacks from other machines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Isolation {
    /// A network namespace with only a loopback interface, to which all addresses belong.
    Namespace,
    /// 127.0.0.0/8 of this machine.
    Loopback,
}

impl Sandbox {
    /// Enters a new namespace, or stays in this one with `loopback`. The process must have only one thread.
    pub(crate) fn enter(loopback: bool, at: Option<Ipv4Addr>) -> anyhow::Result<Self> {
        let isolation = if loopback { Isolation::Loopback } else { enter_namespace()? };
        let usual = match isolation {
            Isolation::Namespace => Ipv4Addr::new(198, 51, 100, 1),
            Isolation::Loopback => Ipv4Addr::LOCALHOST,
        };
        let sandbox = Self { isolation, server: at.unwrap_or(usual) };
        sandbox.check(SocketAddrV4::new(sandbox.server, 0))?;
        Ok(sandbox)
    }

    /// Returns an error unless the address is certainly local.
    pub(crate) fn check(self, target: SocketAddrV4) -> anyhow::Result<()> {
        let is_own = self.isolation == Isolation::Namespace || target.ip().is_loopback();
        ensure!(
            is_own && !target.ip().is_multicast() && !target.ip().is_broadcast(),
            "{}: refused; this program attacks only programs that it starts itself, at 127.0.0.0/8 or in a network namespace \
             that it creates",
            target.ip()
        );
        Ok(())
    }

    /// Returns whether any source address can be forged.
    pub(crate) fn can_forge(self) -> bool {
        self.isolation == Isolation::Namespace
    }

    /// Returns the address of the attacked program.
    pub(crate) const fn server_address(self) -> Ipv4Addr {
        self.server
    }

    /// Returns the address of an honest client. Neighbouring numbers are in different /16 networks.
    pub(crate) fn honest_address(self, number: u16) -> Ipv4Addr {
        let [high, low] = number.to_be_bytes();
        match self.isolation {
            Isolation::Namespace => Ipv4Addr::new(20, low, high, 10),
            Isolation::Loopback => Ipv4Addr::new(127, 100 + low % 150, low / 150, 10 + high),
        }
    }

    /// Returns the address of a machine in the home network of the server.
    pub(crate) const fn home_address(self, number: u8) -> Ipv4Addr {
        match self.isolation {
            Isolation::Namespace => Ipv4Addr::new(192, 168, 1, 10 + number),
            Isolation::Loopback => Ipv4Addr::new(127, 30, 1, 10 + number),
        }
    }

    /// Returns the network of the server's home, as a setting.
    pub(crate) const fn home_network(self) -> &'static str {
        match self.isolation {
            Isolation::Namespace => "192.168.1.0/24",
            Isolation::Loopback => "127.30.1.0/24",
        }
    }

    /// Returns the address of an attacker with one machine.
    pub(crate) const fn attacker_address(self) -> Ipv4Addr {
        match self.isolation {
            Isolation::Namespace => Ipv4Addr::new(203, 0, 113, 66),
            Isolation::Loopback => Ipv4Addr::new(127, 66, 66, 66),
        }
    }
}

/// Creates a network namespace and enters it. Without the right to do so, it also creates a user namespace.
fn enter_namespace() -> anyhow::Result<Isolation> {
    let [user, group] = [rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw()];
    if unshare(UnshareFlags::NEWNET).is_err() {
        unshare(UnshareFlags::NEWNET | UnshareFlags::NEWUSER).context(
            "cannot create a network namespace; run as root, or pass --loopback to skip attacks with forged addresses",
        )?;
        // Some systems lack `setgroups`, and then do not need this step.
        drop(fs::write("/proc/self/setgroups", "deny"));
        fs::write("/proc/self/uid_map", format!("0 {user} 1")).context("/proc/self/uid_map")?;
        fs::write("/proc/self/gid_map", format!("0 {group} 1")).context("/proc/self/gid_map")?;
    }
    let devices = fs::read_to_string("/proc/self/net/dev").context("/proc/self/net/dev")?;
    let others: Vec<&str> =
        devices.lines().skip(2).filter_map(|line| line.trim().split(':').next()).collect();
    ensure!(others == ["lo"], "the new network namespace already has interfaces: {}", others.join(", "));
    ip(&["link", "set", "lo", "up"])?;
    ip(&["route", "add", "local", "0.0.0.0/0", "dev", "lo"])?;
    for interface in ["all", "lo"] {
        // The reverse path filter would drop forged packets. Without this file there is no filter.
        drop(fs::write(format!("/proc/sys/net/ipv4/conf/{interface}/rp_filter"), "0"));
    }
    Ok(Isolation::Namespace)
}

#[allow(unsafe_code)]
fn unshare(flags: UnshareFlags) -> rustix::io::Result<()> {
    // SAFETY: `unshare` is unsafe because of the table of file descriptors, and that table stays shared.
    unsafe { rustix::thread::unshare_unsafe(flags) }
}

fn ip(args: &[&str]) -> anyhow::Result<()> {
    let output = Command::new("ip").args(args).output().context("cannot run `ip`; install iproute2")?;
    if !output.status.success() {
        bail!("ip {}: {}", args.join(" "), String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const ADDRESS: fn(u8, u8, u8, u8) -> SocketAddrV4 =
        |a, b, c, d| SocketAddrV4::new(Ipv4Addr::new(a, b, c, d), 22101);

    #[test]
    fn loopback_sandbox_refuses_other_targets() {
        let sandbox = Sandbox { isolation: Isolation::Loopback, server: Ipv4Addr::LOCALHOST };
        assert!(
            sandbox.check(ADDRESS(127, 0, 0, 1)).is_ok()
                && sandbox.check(ADDRESS(127, 255, 255, 254)).is_ok()
        );
        for target in [
            ADDRESS(198, 51, 100, 1),
            ADDRESS(10, 0, 0, 1),
            ADDRESS(0, 0, 0, 0),
            ADDRESS(255, 255, 255, 255),
            ADDRESS(224, 0, 0, 1),
        ] {
            let error = sandbox.check(target).expect_err("the target is not local");
            assert!(error.to_string().starts_with(&format!("{}: refused", target.ip())), "{error}");
        }
        assert!(Sandbox::enter(true, Some(Ipv4Addr::new(192, 0, 2, 1))).is_err());
    }

    #[test]
    fn honest_addresses_share_no_network() {
        let count = |isolation, numbers: u16, shift: u32| {
            let sandbox = Sandbox { isolation, server: Ipv4Addr::LOCALHOST };
            let networks = (0..numbers).map(|n| u32::from(sandbox.honest_address(n)) >> shift);
            networks.collect::<std::collections::HashSet<_>>().len()
        };
        assert_eq!(count(Isolation::Namespace, 1000, 8), 1000);
        for isolation in [Isolation::Namespace, Isolation::Loopback] {
            assert_eq!(count(isolation, 150, 16), 150, "{isolation:?}");
        }
    }
}
