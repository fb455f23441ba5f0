//! The bans in force, and the file that stores them.
//!
//! A ban is in force at once, even if the file cannot be written. The operator may edit the file too, so the
//! server reads it again before each write and keeps the changes. A file that cannot be read is never
//! overwritten. Failed writes are retried.

use std::collections::BTreeMap;
use std::path::PathBuf;

use bcnet_session::Network;

use crate::bans::{self, Ban, Bans};

/// The bans in force, and the changes that are not in the file yet.
#[derive(Debug)]
pub(super) struct BanList {
    path: PathBuf,
    in_force: Bans,
    /// Changes that are not in the file yet. `None` is a removed ban.
    unwritten: BTreeMap<Network, Option<Ban>>,
    /// The file existed: if it is missing later, that does not mean that there are no bans.
    has_file: bool,
}

impl BanList {
    /// Reads the file, if there is one.
    pub(super) fn load(path: PathBuf, now: u64) -> anyhow::Result<Self> {
        let in_force = bans::load(&path, now)?;
        Ok(Self { in_force, unwritten: BTreeMap::new(), has_file: path.exists(), path })
    }

    /// Returns the bans in force.
    pub(super) const fn in_force(&self) -> &Bans {
        &self.in_force
    }

    /// Adds a ban, replacing one of the same network. Returns `false` if the list is full.
    #[must_use]
    pub(super) fn add(&mut self, ban: Ban) -> bool {
        let is_added = self.in_force.add(ban.clone());
        if is_added {
            self.unwritten.insert(ban.address, Some(ban));
        }
        is_added
    }

    /// Removes a ban. Returns `false` if there is no ban of exactly this network.
    #[must_use]
    pub(super) fn remove(&mut self, network: Network) -> bool {
        let is_removed = self.in_force.remove(network).is_some();
        if is_removed {
            self.unwritten.insert(network, None);
        }
        is_removed
    }

    /// Removes and returns expired bans.
    pub(super) fn expire(&mut self, now: u64) -> Vec<Ban> {
        self.in_force.expire(now)
    }

    /// Returns whether changes are not written yet.
    pub(super) fn has_unwritten(&self) -> bool {
        !self.unwritten.is_empty()
    }

    /// Reads the file again. Unwritten changes stay in force. An error changes nothing.
    pub(super) fn reload(&mut self, now: u64) -> anyhow::Result<()> {
        let read = if self.has_file { bans::load_existing } else { bans::load };
        self.in_force = self.with_unwritten(read(&self.path, now)?, now);
        self.has_file |= self.path.exists();
        Ok(())
    }

    /// Merges unwritten changes into the file, and applies edits that the operator made there.
    ///
    /// An error leaves the file unchanged.
    pub(super) fn write(&mut self, now: u64) -> anyhow::Result<()> {
        let bans = match self.path.try_exists() {
            // Somebody deleted the file: write all bans in force.
            Ok(false) => self.in_force.clone(),
            _ => self.with_unwritten(bans::load_existing(&self.path, now)?, now),
        };
        bans::save(&self.path, &bans)?;
        self.in_force = bans;
        self.unwritten.clear();
        self.has_file = true;
        Ok(())
    }

    fn with_unwritten(&self, mut bans: Bans, now: u64) -> Bans {
        for (network, ban) in &self.unwritten {
            match ban {
                // If the file already has the maximum number of bans, the new ban is dropped.
                Some(ban) => drop(bans.add(ban.clone())),
                None => drop(bans.remove(*network)),
            }
        }
        bans.expire(now);
        bans
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::config::ConfigValue as _;

    /// A file of bans in a directory that is removed afterwards.
    struct BansFile(PathBuf);

    impl BansFile {
        fn new(test: &str) -> Self {
            let directory =
                std::env::temp_dir().join(format!("bcnet-ban-list-{}-{test}", std::process::id()));
            fs::create_dir_all(&directory).expect("create directory");
            Self(directory.join("bans.toml"))
        }

        fn write(&self, text: &str) {
            fs::write(&self.0, text).expect("written");
        }

        fn text(&self) -> String {
            fs::read_to_string(&self.0).expect("read")
        }

        fn list(&self) -> BanList {
            BanList::load(self.0.clone(), NOW).expect("valid file")
        }
    }

    impl Drop for BansFile {
        fn drop(&mut self) {
            drop(fs::remove_dir_all(self.0.with_file_name("")));
        }
    }

    const NOW: u64 = 1_000;

    fn network(text: &str) -> Network {
        Network::from_text(text).expect(text)
    }

    fn ban(address: &str) -> Ban {
        Ban { address: network(address), ..Ban::default() }
    }

    fn networks(list: &BanList) -> Vec<String> {
        list.in_force().networks().iter().map(ToString::to_string).collect()
    }

    #[test]
    fn unreadable_file_is_not_overwritten_and_bans_apply() {
        let file = BansFile::new("broken");
        let mut list = file.list();
        assert!(list.add(ban("192.0.2.1")));
        list.write(NOW).expect("written");
        let broken = "# mine\n[[ban]]\naddress = \"198.51.100.0/24\"\nreson = \"typo\"\n";
        file.write(broken);
        assert!(list.add(ban("192.0.2.2")) && list.remove(network("192.0.2.1")));
        let error = format!("{:#}", list.write(NOW).expect_err("file is invalid"));
        assert!(error.contains("line 4: ban.1.reson: unknown key"), "{error}");
        list.reload(NOW).expect_err("file is invalid");
        assert_eq!((file.text().as_str(), networks(&list)), (broken, vec!["192.0.2.2".into()]));
        // After the correction, the bans of the file and the unwritten ban are both in force.
        file.write(&broken.replace("reson", "reason"));
        list.reload(NOW).expect("valid file");
        assert_eq!(networks(&list), ["192.0.2.2", "198.51.100.0/24"]);
        list.write(NOW).expect("written");
        assert!(!list.has_unwritten());
        assert_eq!(networks(&file.list()), ["192.0.2.2", "198.51.100.0/24"]);
    }

    #[test]
    fn manual_edits_survive_a_ban_without_a_reload() {
        let file = BansFile::new("by-hand");
        let mut list = file.list();
        file.write("[[ban]]\naddress = \"198.51.100.7\"\n");
        assert!(list.add(ban("192.0.2.1")));
        list.write(NOW).expect("written");
        assert_eq!(networks(&list), ["192.0.2.1", "198.51.100.7"]);
        assert_eq!(networks(&file.list()), ["192.0.2.1", "198.51.100.7"]);
    }

    #[test]
    fn deleted_file_lifts_no_ban() {
        let file = BansFile::new("gone");
        file.list().reload(NOW).expect("no file is no error at first");
        file.write("[[ban]]\naddress = \"192.0.2.1\"\n");
        let mut list = file.list();
        fs::remove_file(&file.0).expect("removed");
        let error = list.reload(NOW).expect_err("file is missing").to_string();
        assert!(
            error.ends_with("the bans file does not exist; create an empty file if nobody is banned"),
            "{error}"
        );
        assert_eq!(networks(&list), ["192.0.2.1"]);
        assert!(list.add(ban("192.0.2.2")));
        list.write(NOW).expect("written");
        assert_eq!(networks(&file.list()), ["192.0.2.1", "192.0.2.2"]);
    }

    /// The temporary file is a link to `/dev/full`, so the first write fails as on a full disk.
    #[cfg(unix)]
    #[test]
    fn ban_on_a_full_disk_applies_and_is_written_later() {
        let file = BansFile::new("full");
        let mut list = file.list();
        assert!(list.add(ban("192.0.2.1")));
        list.write(NOW).expect("written");
        let before = file.text();
        std::os::unix::fs::symlink("/dev/full", file.0.with_file_name("bans.toml.new")).expect("linked");
        assert!(list.add(ban("192.0.2.2")));
        let error = format!("{:#}", list.write(NOW).expect_err("disk is full"));
        assert!(error.contains("cannot save the bans: No space left on device"), "{error}");
        assert_eq!(
            (networks(&list), list.has_unwritten()),
            (["192.0.2.1", "192.0.2.2"].map(Into::into).to_vec(), true)
        );
        assert_eq!(file.text(), before);
        list.write(NOW).expect("disk has space");
        assert_eq!(networks(&file.list()), ["192.0.2.1", "192.0.2.2"]);
    }
}
