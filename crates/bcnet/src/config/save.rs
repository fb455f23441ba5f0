//! Writes single values into the operator's file and preserves its order and comments.

use std::ffi::OsString;
use std::fs;
use std::path::PathBuf;

use anyhow::{Context, anyhow, bail, ensure};
use bcnet_control::is_secret;
use toml_edit::{DocumentMut, Item, Table, TableLike, TomlError, Value};

use super::load::{ConfigFlags, Loaded, Origin, load_with};
use super::value::quoted;
use crate::file::{self, read_text};

/// Writes changes into the file that a start with these flags and this environment would read.
///
/// `changes` are key paths with their values as given; `changed` are the settings with these changes.
/// Returns the new source of each value.
///
/// The function reads the file from disk again, and loads the new text as a start would before it
/// replaces the file.
///
/// # Errors
///
/// After an error the file is unchanged.
pub(crate) fn save(
    flags: &ConfigFlags,
    environment: Vec<(OsString, OsString)>,
    changed: &Loaded,
    changes: &[(String, String)],
) -> anyhow::Result<Vec<Origin>> {
    let mut text = String::new();
    let on_disk = load_with(flags, environment.clone(), |path| {
        text = read_text(path)?;
        Ok(text.clone())
    })?;
    let Some(path) = &on_disk.file else {
        bail!(
            "there is no configuration file to save to; create one with `bcnet config default > bcnet.toml`"
        )
    };
    check_sessions(&on_disk, changed).with_context(|| path.display().to_string())?;
    let new = edit(&text, changed, changes).with_context(|| path.display().to_string())?;
    let again = load_with(flags, environment, |_| Ok(new.clone()))?;
    let origins = changes.iter().map(|(change, _)| {
        let (table, key) = change.rsplit_once('.').unwrap_or(("server", change));
        match again.origin(table, key) {
            origin @ Origin::File { .. } => Ok(origin.clone()),
            stronger => Err(anyhow!(
                "{stronger} overrides {}; change the value there, or omit --save",
                path.display()
            )),
        }
    });
    let origins = origins.collect::<anyhow::Result<_>>()?;
    // Follows a symbolic link, so that the link stays.
    let target: PathBuf = fs::canonicalize(path).unwrap_or_else(|_| path.clone());
    file::replace(&target, new.as_bytes()).with_context(|| {
        format!(
            "{}: the server cannot replace the file; edit it by hand, then run `bcnet ctl reload`",
            path.display()
        )
    })?;
    Ok(origins)
}

/// Checks that a session number means the same session in the file and in the server.
fn check_sessions(on_disk: &Loaded, changed: &Loaded) -> anyhow::Result<()> {
    let ports = |loaded: &Loaded| -> Vec<_> {
        loaded.settings.sessions.iter().map(|session| session.port.fixed()).collect()
    };
    ensure!(
        ports(on_disk) == ports(changed),
        "the sessions of the file differ from those of the running server; restart the server first"
    );
    Ok(())
}

/// Returns the text of a file with changed values.
fn edit(text: &str, changed: &Loaded, changes: &[(String, String)]) -> anyhow::Result<String> {
    // The message omits the line of the file, which may contain a secret.
    let wrong = |error: TomlError| anyhow!("{}", error.message());
    let mut document: DocumentMut = text.parse().map_err(wrong)?;
    for (path, given) in changes {
        let (name, key) = path.rsplit_once('.').unwrap_or(("server", path));
        let tables = changed.settings.tables();
        let (_, table) = tables.iter().find(|(known, _)| known == name).context("unknown table")?;
        // `show` hides secrets, so a secret is written as given.
        let value = if is_secret(key) { quoted(given) } else { table.show(key) };
        let value: Value = value.parse().map_err(wrong)?;
        set_value(
            table_mut(&mut document, name).with_context(|| format!("{name} is not a table"))?,
            key,
            value,
        );
    }
    let new = document.to_string();
    // Restores CRLF line ends: the TOML editor writes LF only.
    Ok(if text.contains("\r\n") { new.replace("\r\n", "\n").replace('\n', "\r\n") } else { new })
}

/// Returns the table with a name such as `server` or `session.2`, and creates it if it is missing.
fn table_mut<'a>(document: &'a mut DocumentMut, name: &str) -> Option<&'a mut dyn TableLike> {
    let (name, number) = name.split_once('.').map_or((name, None), |(name, number)| (name, Some(number)));
    let is_list = number.is_some();
    let item = document.entry(name).or_insert_with(|| {
        if is_list {
            Item::ArrayOfTables([Table::new()].into_iter().collect())
        } else {
            Item::Table(Table::new())
        }
    });
    let Some(number) = number else { return item.as_table_like_mut() };
    let at = number.parse::<usize>().ok()?.checked_sub(1)?;
    match item {
        Item::ArrayOfTables(tables) => tables.get_mut(at).map(|table| table as &mut dyn TableLike),
        Item::Value(Value::Array(tables)) => {
            tables.get_mut(at)?.as_inline_table_mut().map(|table| table as &mut dyn TableLike)
        }
        _ => None,
    }
}

/// Sets a key and preserves the spaces and comments around its value.
fn set_value(table: &mut dyn TableLike, key: &str, mut value: Value) {
    match table.get_mut(key).and_then(Item::as_value_mut) {
        Some(old) => {
            *value.decor_mut() = old.decor().clone();
            *old = value;
        }
        None => drop(table.insert(key, Item::Value(value))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file in a temporary directory, which is removed on drop.
    struct TestFile(PathBuf);

    impl TestFile {
        fn new(test: &str, text: &str) -> Self {
            let directory = std::env::temp_dir().join(format!("bcnet-keep-{}-{test}", std::process::id()));
            fs::create_dir_all(&directory).expect("a directory");
            let path = directory.join("bcnet.toml");
            fs::write(&path, text).expect("written");
            Self(path)
        }

        fn flags(&self) -> ConfigFlags {
            ConfigFlags { config: Some(self.0.clone()), ..ConfigFlags::default() }
        }

        fn text(&self) -> String {
            fs::read_to_string(&self.0).expect("a file")
        }

        /// Saves changes as a server would that was started with this file.
        fn save(&self, started: &Loaded, changes: &[(&str, &str)]) -> Result<Vec<Origin>, String> {
            self.save_with(started, changes, Vec::new())
        }

        fn save_with(
            &self,
            started: &Loaded,
            changes: &[(&str, &str)],
            environment: Vec<(OsString, OsString)>,
        ) -> Result<Vec<Origin>, String> {
            let changes: Vec<_> =
                changes.iter().map(|(path, value)| ((*path).into(), (*value).into())).collect();
            let changed = started.with_changes(&changes).expect("good values");
            save(&self.flags(), environment, &changed, &changes).map_err(|error| format!("{error:#}"))
        }

        fn load(&self) -> Loaded {
            crate::config::load(&self.flags(), Vec::new()).expect("a good file")
        }
    }

    impl Drop for TestFile {
        fn drop(&mut self) {
            drop(fs::remove_dir_all(self.0.with_file_name("")));
        }
    }

    const FILE: &str = "\
# Ours since 2019.
[[session]]
name = \"One\" # the first
  # not on Fridays
  welcome   =   'Hello'   # short

[server]
masters = []
[[session]]
name = \"Two\"
";

    #[test]
    fn saving_changes_only_the_value() {
        let file = TestFile::new("value", FILE);
        let places = file.save(&file.load(), &[("session.1.welcome", "Ahoy\\n\"all\"")]).expect("kept");
        assert_eq!(file.text(), FILE.replace("'Hello'", "\"Ahoy\\n\\\"all\\\"\""));
        assert!(matches!(places[..], [Origin::File { line: 5, .. }]), "{places:?}");
        assert_eq!(file.load().settings.sessions[0].welcome.0, "Ahoy\n\"all\"");
    }

    #[test]
    fn saving_adds_missing_keys_and_tables() {
        let file = TestFile::new("missing", FILE);
        let changes = [
            ("session.2.whitelist", "10.0.0.0/8,192.0.2.1"),
            ("log.level", "debug"),
            ("server.cpu_budget", "20"),
        ];
        file.save(&file.load(), &changes).expect("kept");
        let text = file.text();
        for line in FILE.lines() {
            assert!(text.contains(line), "{line} is gone: {text}");
        }
        let again = file.load().settings;
        assert_eq!(again.sessions[1].whitelist.len(), 2);
        assert!(again.sessions[0].whitelist.is_empty(), "{text}");
        assert_eq!((again.log.level.word(), again.server.cpu_budget.get()), ("debug", 20));
        // A file without sessions has one default session.
        let file = TestFile::new("none", "");
        file.save(&file.load(), &[("session.1.name", "Solo")]).expect("kept");
        assert_eq!(file.text(), "[[session]]\nname = \"Solo\"\n");
    }

    #[test]
    fn saving_works_with_inline_tables_and_crlf() {
        for text in [
            "session = [{ name = \"One\" }, { name = \"Two\", welcome = \"x\" }]\nlog = { level = \"warn\" }\n",
            "log.level = \"warn\"\n[[session]]\n[[session]]\nname = \"Two\"\n",
            "[[session]]\r\n[[session]]\r\nname = \"Two\"\r\nwelcome = \"x\"\r\n# the end\r\n",
        ] {
            let file = TestFile::new("forms", text);
            let changes = [("session.2.welcome", "Ahoy"), ("log.level", "debug")];
            file.save(&file.load(), &changes).unwrap_or_else(|error| panic!("{text}: {error}"));
            let again = file.load().settings;
            assert_eq!((again.sessions[1].welcome.0.as_str(), again.log.level.word()), ("Ahoy", "debug"));
            assert_eq!(again.sessions[0].welcome.0, "");
            let new = file.text();
            assert_eq!(
                new.matches('\n').count() == new.matches("\r\n").count(),
                text.contains('\r'),
                "{new:?}"
            );
        }
    }

    #[test]
    fn password_is_saved_and_read_back() {
        let file = TestFile::new("password", FILE);
        file.save(&file.load(), &[("session.1.password", "Enter\"prise")]).expect("kept");
        assert_eq!(file.load().settings.sessions[0].password.get(), Some("Enter\"prise"));
    }

    #[test]
    fn failed_save_leaves_the_file_unchanged() {
        let file = TestFile::new("refused", FILE);
        let started = file.load();
        let welcome = [("session.1.welcome", "Ahoy")];
        let variable = vec![("BCNET_WELCOME".into(), "Hi".into())];
        let error =
            file.save_with(&started, &welcome, variable).expect_err("the variable overrides the file");
        assert!(error.starts_with("BCNET_WELCOME overrides "), "{error}");
        assert_eq!(file.text(), FILE);
        // The file is invalid because the operator is editing it.
        for (broken, part) in [
            (FILE.replace("masters = []", "masters ="), "line 8: server.masters: "),
            (
                FILE.replace("masters", "mastes"),
                "line 8: server.mastes: unknown key; did you mean `masters`?",
            ),
            (FILE.replace("[server]", "port = 22150\n[server]"), "the sessions of the file differ"),
            (format!("{FILE}[[session]]\nname = \"Three\"\n"), "the sessions of the file differ"),
        ] {
            fs::write(&file.0, &broken).expect("written");
            let error = file.save(&started, &welcome).expect_err("broken");
            assert!(error.contains(part) && error.contains("bcnet.toml: "), "{error}");
            assert_eq!(file.text(), broken);
        }
        fs::remove_file(&file.0).expect("removed");
        assert!(file.save(&started, &welcome).is_err());
        let none =
            save(&ConfigFlags::default(), Vec::new(), &started, &[]).map_err(|error| error.to_string());
        assert!(none.expect_err("no file").starts_with("there is no configuration file"), "there is no file");
    }

    /// The file may contain a password, so its permissions must not change.
    #[cfg(unix)]
    #[test]
    fn saving_keeps_file_permissions_and_symlinks() {
        use std::os::unix::fs::PermissionsExt;
        let file = TestFile::new("rights", FILE);
        let link = file.0.with_file_name("link.toml");
        std::os::unix::fs::symlink("bcnet.toml", &link).expect("linked");
        for mode in [0o600, 0o640, 0o644] {
            fs::set_permissions(&file.0, fs::Permissions::from_mode(mode)).expect("set");
            let (flags, changes) =
                (ConfigFlags { config: Some(link.clone()), ..ConfigFlags::default() }, file.load());
            let path = [("session.1.welcome".to_owned(), format!("{mode:o}"))];
            save(&flags, Vec::new(), &changes.with_changes(&path).expect("good"), &path).expect("kept");
            let now = fs::symlink_metadata(&file.0).expect("a file").permissions().mode() & 0o777;
            assert_eq!(now, mode);
            assert!(fs::symlink_metadata(&link).expect("a link").is_symlink());
            assert!(file.text().contains(&format!("\"{mode:o}\"")));
        }
    }
}
