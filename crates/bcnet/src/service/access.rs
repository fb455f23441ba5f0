//! Judges who may change a file or directory, by its security descriptor in text form (SDDL).
//!
//! Unknown parts count as a right to write: it is better to refuse a directory too often than too seldom.

use std::path::{Path, PathBuf};

/// The owner of a file or directory, and the rights of others.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct SecurityDescriptor<'a> {
    owner: Option<&'a str>,
    /// `None` if there is no access control list: then everyone has every right.
    entries: Option<Vec<AccessEntry<'a>>>,
}

/// The rights that an access control list grants to one trustee.
#[derive(Debug, PartialEq, Eq)]
struct AccessEntry<'a> {
    /// `true` if the entry applies only to new files in the directory, not to the directory itself.
    is_inherit_only: bool,
    rights: u32,
    trustee: &'a str,
}

/// The role of the judged path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PathRole {
    /// The file, or its directory. No untrusted user may change either.
    Own,
    /// A directory further up. Others may create files in it, but not delete or rename entries.
    Ancestor,
}

/// A trustee who may change the path but must not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct UntrustedWriter<'a> {
    /// The SID, or the two letters that the system uses for it.
    pub(super) trustee: &'a str,
    is_owner: bool,
}

impl UntrustedWriter<'_> {
    /// Returns the commands that remove the right.
    ///
    /// The directories above must be safe already, because a file inherits their rights.
    pub(super) fn remedy(self, path: &str, is_directory: bool) -> String {
        if self.is_owner {
            format!("icacls \"{path}\" /setowner \"*{ADMINISTRATORS}\"")
        } else if is_directory {
            // The first command removes explicit rights, the second removes inherited ones. PowerShell needs
            // the quotes.
            format!(
                "icacls \"{path}\" /reset, and then icacls \"{path}\" /inheritance:r /grant \
                 \"*{ADMINISTRATORS}:(OI)(CI)F\" \"*{SYSTEM}:(OI)(CI)F\""
            )
        } else {
            format!("icacls \"{path}\" /reset")
        }
    }
}

impl<'a> SecurityDescriptor<'a> {
    /// Parses a descriptor, for example `O:BAD:PAI(A;OICI;FA;;;SY)(A;;0x1200a9;;;BU)`.
    pub(super) fn parse(text: &'a str) -> Option<Self> {
        let (head, list) = match text.find("D:") {
            Some(at) => (&text[..at], Some(&text[at + 2..])),
            None => (text, None),
        };
        let owner =
            head.strip_prefix("O:").map(|owner| owner.split_once("G:").map_or(owner, |(owner, _)| owner));
        let entries = match list {
            Some(list) if !list.contains("NO_ACCESS_CONTROL") => Some(parse_entries(list)?),
            _ => None,
        };
        Some(Self { owner: owner.filter(|owner| !owner.is_empty()), entries })
    }

    /// Returns an untrusted trustee who may change the path, if there is one.
    pub(super) fn untrusted_writer(
        &self,
        role: PathRole,
        is_trusted: impl Fn(&str) -> bool,
    ) -> Option<UntrustedWriter<'a>> {
        // The owner can always grant itself any right.
        let owner = self.owner.unwrap_or(EVERYONE);
        if !is_trusted(owner) {
            return Some(UntrustedWriter { trustee: owner, is_owner: true });
        }
        let Some(entries) = &self.entries else {
            return Some(UntrustedWriter { trustee: EVERYONE, is_owner: false });
        };
        let harmful_rights = match role {
            PathRole::Own => ADD_FILE | ADD_DIRECTORY | DELETE_CHILD | CHANGE_RIGHTS | GENERIC_WRITE,
            PathRole::Ancestor => DELETE_CHILD | CHANGE_RIGHTS,
        };
        let counts = |entry: &&AccessEntry<'_>| {
            entry.rights & harmful_rights != 0 && !(entry.is_inherit_only && role == PathRole::Ancestor)
        };
        let is_untrusted =
            |entry: &&AccessEntry<'_>| !is_trusted(entry.trustee) && !OWNER_TRUSTEES.contains(&entry.trustee);
        let found = entries.iter().filter(counts).find(is_untrusted)?;
        Some(UntrustedWriter { trustee: found.trustee, is_owner: false })
    }

    /// Returns whether a service with this account SID may run the program.
    pub(super) fn allows_execution(&self, account: &str) -> bool {
        let Some(entries) = &self.entries else { return true };
        let applies = |entry: &&AccessEntry<'_>| {
            !entry.is_inherit_only && (entry.trustee == account || SERVICE_GROUPS.contains(&entry.trustee))
        };
        let rights = entries.iter().filter(applies).fold(0, |rights, entry| rights | entry.rights);
        rights & GENERIC_ALL != 0
            || (rights & (READ | GENERIC_READ) != 0 && rights & (EXECUTE | GENERIC_EXECUTE) != 0)
    }
}

/// Returns whether only an administrator can act as this user.
///
/// These users are the system, administrators and the Windows installer.
pub(super) fn is_administrative(user: &str) -> bool {
    let is_one = |ends: &[&str]| user.starts_with("S-1-5-21-") && ends.iter().any(|end| user.ends_with(end));
    ["SY", "BA", "LA", "DA", "EA", SYSTEM, ADMINISTRATORS, TRUSTED_INSTALLER].contains(&user)
        || is_one(&["-500", "-512", "-519"])
}

/// Returns whether a file is in a directory or below it.
///
/// Both paths must be absolute and without links. Letter case does not matter.
pub(super) fn is_within(file: &Path, directory: &Path) -> bool {
    let small = |path: &Path| PathBuf::from(path.to_string_lossy().to_lowercase());
    small(file).starts_with(small(directory))
}

/// Parses the entries that grant rights.
///
/// Entries that deny rights are ignored: another entry may still grant the right to the same person.
fn parse_entries(list: &str) -> Option<Vec<AccessEntry<'_>>> {
    // The audit list follows. It grants no rights.
    let list = list
        .split_once("S:")
        .filter(|(before, _)| before.ends_with(')') || !before.contains('('))
        .map_or(list, |(list, _)| list);
    let Some(begin) = list.find('(') else { return Some(Vec::new()) };
    let mut found = Vec::new();
    let mut rest = &list[begin..];
    while let Some(inner) = rest.strip_prefix('(') {
        let end = closing_parenthesis(inner)?;
        let mut fields = inner[..end].split(';');
        let mut next = || fields.next().map(str::trim);
        let (kind, flags, rights) = (next()?, next()?, next()?);
        let who = next().and_then(|_| next()).and_then(|_| next()).filter(|who| !who.is_empty())?;
        if !["D", "OD", "XD"].contains(&kind) {
            found.push(AccessEntry {
                is_inherit_only: letter_pairs(flags).any(|flag| flag == "IO"),
                rights: parse_access_mask(rights),
                trustee: who,
            });
        }
        rest = &inner[end + 1..];
    }
    rest.is_empty().then_some(found)
}

/// Returns the position of the closing parenthesis. Conditions contain nested parentheses.
fn closing_parenthesis(text: &str) -> Option<usize> {
    let mut open = 1_usize;
    for (at, letter) in text.char_indices() {
        match letter {
            '(' => open += 1,
            ')' => open -= 1,
            _ => {}
        }
        if open == 0 {
            return Some(at);
        }
    }
    None
}

/// Parses the rights of an entry: a number, or two letters for each right.
fn parse_access_mask(rights: &str) -> u32 {
    let number = match rights.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16).ok(),
        None => rights.parse().ok(),
    };
    number.unwrap_or_else(|| letter_pairs(rights).fold(0, |mask, pair| mask | parse_right(pair)))
}

fn parse_right(letters: &str) -> u32 {
    match letters {
        "CC" => READ,
        "DC" => ADD_FILE,
        "LC" => ADD_DIRECTORY,
        "WP" => EXECUTE,
        "DT" => DELETE_CHILD,
        "SW" | "RP" | "LO" | "CR" | "RC" => 0,
        "FR" | "GR" => GENERIC_READ,
        "FX" | "GX" => GENERIC_EXECUTE,
        "FW" | "GW" => GENERIC_WRITE,
        // All rights, and unknown letters.
        _ => u32::MAX,
    }
}

fn letter_pairs(letters: &str) -> impl Iterator<Item = &str> {
    (0..letters.len()).step_by(2).map(|at| letters.get(at..at + 2).unwrap_or("?"))
}

const READ: u32 = 0x1;
const ADD_FILE: u32 = 0x2;
const ADD_DIRECTORY: u32 = 0x4;
const EXECUTE: u32 = 0x20;
const DELETE_CHILD: u32 = 0x40;
const GENERIC_ALL: u32 = 0x1000_0000;
const GENERIC_EXECUTE: u32 = 0x2000_0000;
const GENERIC_WRITE: u32 = 0x4000_0000;
const GENERIC_READ: u32 = 0x8000_0000;
/// The rights to delete, to change the rights, and to take ownership.
const CHANGE_RIGHTS: u32 = 0x1_0000 | 0x4_0000 | 0x8_0000 | GENERIC_ALL;

const EVERYONE: &str = "S-1-1-0";
const SYSTEM: &str = "S-1-5-18";
const ADMINISTRATORS: &str = "S-1-5-32-544";
/// `NT SERVICE\TrustedInstaller`, the owner of system directories.
const TRUSTED_INSTALLER: &str = "S-1-5-80-956008885-3418522649-1831038044-1853292631-2271478464";
/// Placeholders for the creator or owner, who is judged separately.
const OWNER_TRUSTEES: [&str; 4] = ["CO", "OW", "S-1-3-0", "S-1-3-4"];
/// Groups that contain every service: everyone, authenticated users, users, services.
const SERVICE_GROUPS: [&str; 9] =
    ["WD", "AU", "BU", "SU", EVERYONE, "S-1-5-11", "S-1-5-32-545", "S-1-5-6", "S-1-5-80-0"];

#[cfg(test)]
mod tests {
    use super::*;

    const BOB: &str = "S-1-5-21-1-2-3-1001";
    const SERVICE: &str = "S-1-5-80-1-2-3-4-5";

    fn untrusted_trustee(text: &str, role: PathRole) -> Option<&str> {
        let is_trusted = |user: &str| user == BOB || is_administrative(user);
        SecurityDescriptor::parse(text)
            .expect(text)
            .untrusted_writer(role, is_trusted)
            .map(|stranger| stranger.trustee)
    }

    /// The descriptors of Windows 10.
    #[test]
    fn system_directories_are_judged_correctly() {
        let program_files = format!(
            "O:{TRUSTED_INSTALLER}G:{TRUSTED_INSTALLER}D:PAI(A;;FA;;;{TRUSTED_INSTALLER})(A;CIIO;GA;;;{TRUSTED_INSTALLER})(A;;0x1301bf;;;SY)\
             (A;OICIIO;GA;;;SY)(A;;0x1301bf;;;BA)(A;OICIIO;GA;;;BA)(A;;0x1200a9;;;BU)(A;OICIIO;GXGR;;;BU)\
             (A;OICIIO;GA;;;CO)(A;;0x1200a9;;;AC)(A;OICIIO;GXGR;;;AC)"
        );
        assert_eq!(untrusted_trustee(&program_files, PathRole::Own), None);
        let root = "O:SYG:SYD:PAI(A;OICI;FA;;;BA)(A;OICI;FA;;;SY)(A;OICI;0x1200a9;;;BU)(A;OICIIO;SDGXGWGR;;;AU)(A;;LC;;;AU)";
        assert_eq!(
            (untrusted_trustee(root, PathRole::Ancestor), untrusted_trustee(root, PathRole::Own)),
            (None, Some("AU"))
        );
        let in_root = "O:BAG:SYD:AI(A;OICIID;FA;;;BA)(A;OICIID;0x1200a9;;;BU)(A;ID;0x1301bf;;;AU)(A;OICIIOID;SDGXGWGR;;;AU)";
        assert_eq!(
            (untrusted_trustee(in_root, PathRole::Own), untrusted_trustee(in_root, PathRole::Ancestor)),
            (Some("AU"), Some("AU"))
        );
        let program_data = "O:SYG:SYD:PAI(A;OICI;FA;;;SY)(A;OICI;FA;;;BA)(A;OICIIO;GA;;;CO)(A;OICI;0x1200a9;;;BU)(A;CI;DCLCRPCR;;;BU)";
        assert_eq!(
            (
                untrusted_trustee(program_data, PathRole::Own),
                untrusted_trustee(program_data, PathRole::Ancestor)
            ),
            (Some("BU"), None)
        );
        let home = format!("O:SYG:SYD:P(A;OICI;FA;;;SY)(A;OICI;FA;;;BA)(A;OICI;FA;;;{BOB})");
        assert_eq!(untrusted_trustee(&home, PathRole::Own), None);
    }

    #[test]
    fn untrusted_writer_is_named() {
        for (text, expected) in [
            ("O:S-1-5-21-1-2-3-1002D:(A;;FA;;;BA)", Some("S-1-5-21-1-2-3-1002")),
            ("D:(A;;FA;;;BA)", Some(EVERYONE)),
            ("O:BA", Some(EVERYONE)),
            ("O:BAD:NO_ACCESS_CONTROL", Some(EVERYONE)),
            ("O:BAG:BAD:", None),
            ("O:BAD:(A;;FR;;;WD)(A;;0x1200a9;;;BU)(A;;CCSWWPLORC;;;AU)", None),
            ("O:BAD:(A;;FW;;;WD)", Some("WD")),
            ("O:BAD:(A;;0x40000;;;S-1-5-21-1-2-3-1002)", Some("S-1-5-21-1-2-3-1002")),
            ("O:BAD:(A;OICIIO;GW;;;BU)", Some("BU")),
            ("O:BAD:(D;;FA;;;BU)(A;;FA;;;BA)", None),
            ("O:BAD:(XA;;FA;;;BU;(@User.x == (1)))", Some("BU")),
            ("O:BAD:(A;;ZZ;;;BU)", Some("BU")),
            ("O:BAD:(A;;DT;;;BU)S:AI(AU;SAFA;FA;;;WD)", Some("BU")),
            ("O:BAD:(A;;FA;;;S-1-5-21-7-7-7-500)", None),
            ("O:BAD:(A;;FA;;;S-1-5-32-544500)", Some("S-1-5-32-544500")),
        ] {
            assert_eq!(untrusted_trustee(text, PathRole::Own), expected, "{text}");
        }
        for broken in ["O:BAD:(A;;FA", "O:BAD:(A;;FA;;)", "O:BAD:(A;;FA;;;BA)x", "O:BAD:()"] {
            assert_eq!(SecurityDescriptor::parse(broken), None, "{broken}");
        }
    }

    #[test]
    fn remedy_changes_only_the_unsafe_path() {
        let remedy = |text: &str, is_directory| {
            let descriptor = SecurityDescriptor::parse(text).expect(text);
            let writer =
                descriptor.untrusted_writer(PathRole::Own, is_administrative).expect("an untrusted writer");
            writer.remedy(r"D:\bcnet", is_directory)
        };
        for foreign_owner in [format!("O:{BOB}D:(A;;FA;;;BA)"), format!("O:{BOB}D:(A;;FA;;;{BOB})")] {
            let expected = r#"icacls "D:\bcnet" /setowner "*S-1-5-32-544""#;
            assert_eq!([true, false].map(|is| remedy(&foreign_owner, is)), [expected; 2]);
        }
        let for_all = "O:BAD:(A;OICI;FA;;;BU)";
        assert_eq!(remedy(for_all, false), r#"icacls "D:\bcnet" /reset"#);
        assert_eq!(
            remedy(for_all, true),
            r#"icacls "D:\bcnet" /reset, and then icacls "D:\bcnet" /inheritance:r /grant "*S-1-5-32-544:(OI)(CI)F" "*S-1-5-18:(OI)(CI)F""#
        );
    }

    #[test]
    fn is_within_ignores_letter_case() {
        let programs = Path::new("C:").join("Program Files");
        let own = programs.join("bcnet");
        for (directory, expected) in [
            (own.clone(), true),
            (Path::new("c:").join("PROGRAM FILES").join("BCnet"), true),
            (programs.clone(), true),
            (programs.join("bcnet-files"), false),
            (programs.join("bc"), false),
            (own.join("files"), false),
            (Path::new("D:").join("Program Files").join("bcnet"), false),
        ] {
            assert_eq!(is_within(&own.join("bcnet.exe"), &directory), expected, "{}", directory.display());
        }
    }

    #[test]
    fn service_may_run_a_program_open_to_it_or_to_everyone() {
        for (text, expected) in [
            ("O:BAD:(A;;0x1200a9;;;BU)", true),
            ("O:BAD:(A;;FRFX;;;WD)", true),
            ("O:BAD:(A;;FA;;;S-1-5-80-1-2-3-4-5)", true),
            ("O:BAD:(A;;FR;;;WD)", false),
            ("O:BAD:(A;OICIIO;GRGX;;;BU)", false),
            ("O:BAD:(A;;FA;;;S-1-5-21-1-2-3-1001)(A;;FA;;;BA)", false),
        ] {
            assert_eq!(
                SecurityDescriptor::parse(text).expect(text).allows_execution(SERVICE),
                expected,
                "{text}"
            );
        }
    }
}
