//! The names, paths and arguments of the service.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// The name of the service.
pub(super) const SERVICE_NAME: &str = "bcnet";
/// The account that the system creates for the service, without a password or special rights.
pub(super) const SERVICE_ACCOUNT: &str = r"NT SERVICE\bcnet";
/// The SID of that account, as `sc.exe showsid bcnet` prints it. It depends only on the service's name.
pub(super) const SERVICE_SID: &str = "S-1-5-80-251847593-669277042-2706783541-777004593-3389332998";

/// Returns the arguments that the service is started with.
pub(super) fn launch_arguments(config: &Path) -> Vec<OsString> {
    vec!["service".into(), "run".into(), CONFIG_FLAG.into(), config.into()]
}

/// Returns the configuration from the command line of a service.
pub(super) fn config_from_command_line(command_line: &str) -> Option<PathBuf> {
    let (_, config) = command_line.rsplit_once(CONFIG_FLAG)?;
    Some(config.trim().trim_matches('"').into()).filter(|path: &PathBuf| !path.as_os_str().is_empty())
}

/// Returns the file in which the service stores why it could not run: there may be no log yet.
pub(super) fn failure_path(config: &Path) -> PathBuf {
    config.with_file_name("bcnet-failure.txt")
}

/// Returns the default path of the service's log.
pub(super) fn log_path(config: &Path) -> PathBuf {
    config.with_file_name("bcnet.log")
}

const CONFIG_FLAG: &str = "--config";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn config_path_is_read_from_the_command_line() {
        for (line, expected) in [
            (
                r#""C:\Program Files\bcnet\bcnet.exe" service run --config C:\ProgramData\bcnet\bcnet.toml"#,
                Some(r"C:\ProgramData\bcnet\bcnet.toml"),
            ),
            (
                r#"C:\bcnet.exe service run --config "D:\My games\bcnet.toml""#,
                Some(r"D:\My games\bcnet.toml"),
            ),
            (r"C:\bcnet.exe service run", None),
            (r"C:\bcnet.exe service run --config ", None),
        ] {
            assert_eq!(config_from_command_line(line), expected.map(PathBuf::from), "{line}");
        }
    }

    #[test]
    fn service_files_are_beside_the_configuration() {
        let config = Path::new("games").join("mine.toml");
        assert_eq!(log_path(&config).parent(), config.parent());
        assert_eq!(failure_path(&config).parent(), config.parent());
        let line: Vec<String> =
            launch_arguments(&config).iter().map(|part| part.to_string_lossy().into_owned()).collect();
        assert_eq!(config_from_command_line(&line.join(" ")), Some(config));
        assert!(SERVICE_ACCOUNT.ends_with(SERVICE_NAME));
        assert_eq!(SERVICE_SID.split('-').count(), 9);
    }
}
