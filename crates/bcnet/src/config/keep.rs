//! Writes single values into the operator's file, whose order and comments stay as they are.

use std::ffi::OsString;
use std::fs;
use std::path::PathBuf;

use anyhow::{Context, anyhow, bail, ensure};
use bcnet_control::is_secret;
use toml_edit::{DocumentMut, Item, Table, TableLike, TomlError, Value};

use super::load::{Flags, Loaded, Origin, load_as};
use super::value::quoted;
use crate::file::{self, read_text};

/// Writes changes into the file that a start with these flags and this environment would read: paths of keys, and the values
/// as they were given. `changed` are the settings with these changes. Returns where each is now.
///
/// The file is read anew, as it is on disk, and what comes of it is read as at a start before it takes its place. If anything
/// is wrong, the file is as it was.
pub(crate) fn keep(
    flags: &Flags,
    environment: Vec<(OsString, OsString)>,
    changed: &Loaded,
    changes: &[(String, String)],
) -> anyhow::Result<Vec<Origin>> {
    let mut text = String::new();
    let on_disk = load_as(flags, environment.clone(), |path| {
        text = read_text(path)?;
        Ok(text.clone())
    })?;
    let Some(path) = &on_disk.file else {
        bail!("there is no configuration file to keep it in; make one with `bcnet config default`")
    };
    check_sessions(&on_disk, changed).with_context(|| path.display().to_string())?;
    let new = edit(&text, changed, changes).with_context(|| path.display().to_string())?;
    let again = load_as(flags, environment, |_| Ok(new.clone()))?;
    let places = changes.iter().map(|(change, _)| {
        let (table, key) = change.rsplit_once('.').unwrap_or(("server", change));
        match again.origin(table, key) {
            origin @ Origin::File { .. } => Ok(origin.clone()),
            stronger => Err(anyhow!(
                "{stronger} is stronger than {}; change it there, or leave --save out",
                path.display()
            )),
        }
    });
    let places = places.collect::<anyhow::Result<_>>()?;
    // What others have linked to stays the file that they mean.
    let target: PathBuf = fs::canonicalize(path).unwrap_or_else(|_| path.clone());
    file::replace(&target, new.as_bytes()).with_context(|| {
        format!("{}: the server cannot replace it; edit it yourself, and reload", path.display())
    })?;
    Ok(places)
}

/// A number must mean the same session in the file as in the server.
fn check_sessions(on_disk: &Loaded, changed: &Loaded) -> anyhow::Result<()> {
    let ports = |loaded: &Loaded| -> Vec<_> {
        loaded.settings.sessions.iter().map(|session| session.port.fixed()).collect()
    };
    ensure!(
        ports(on_disk) == ports(changed),
        "it has other sessions than the server, which was started with an earlier one; start it again first"
    );
    Ok(())
}

/// Returns the text of a file with other values of some keys.
fn edit(text: &str, changed: &Loaded, changes: &[(String, String)]) -> anyhow::Result<String> {
    // What is wrong is told without the line that it stands in, which may have a secret.
    let wrong = |error: TomlError| anyhow!("{}", error.message());
    let mut document: DocumentMut = text.parse().map_err(wrong)?;
    for (path, given) in changes {
        let (name, key) = path.rsplit_once('.').unwrap_or(("server", path));
        let tables = changed.settings.tables();
        let (_, table) = tables.iter().find(|(known, _)| known == name).context("no such table")?;
        // A secret shows itself to nobody.
        let value = if is_secret(key) { quoted(given) } else { table.show(key) };
        let value: Value = value.parse().map_err(wrong)?;
        put(table_mut(&mut document, name).with_context(|| format!("{name} is no table"))?, key, value);
    }
    let new = document.to_string();
    // Lines end as they did; the editor of TOML knows one end only.
    Ok(if text.contains("\r\n") { new.replace("\r\n", "\n").replace('\n', "\r\n") } else { new })
}

/// Returns the table of that name, as `server` or `session.2`. One that is missing is made.
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

/// Sets a key, and leaves alone what is written around its value.
fn put(table: &mut dyn TableLike, key: &str, mut value: Value) {
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

    /// A file in a directory that is gone afterwards.
    struct File(PathBuf);

    impl File {
        fn new(test: &str, text: &str) -> Self {
            let directory = std::env::temp_dir().join(format!("bcnet-keep-{}-{test}", std::process::id()));
            fs::create_dir_all(&directory).expect("a directory");
            let path = directory.join("bcnet.toml");
            fs::write(&path, text).expect("written");
            Self(path)
        }

        fn flags(&self) -> Flags {
            Flags { config: Some(self.0.clone()), ..Flags::default() }
        }

        fn text(&self) -> String {
            fs::read_to_string(&self.0).expect("a file")
        }

        /// Keeps changes as a server would that was started with the file.
        fn keep(&self, started: &Loaded, changes: &[(&str, &str)]) -> Result<Vec<Origin>, String> {
            self.keep_with(started, changes, Vec::new())
        }

        fn keep_with(
            &self,
            started: &Loaded,
            changes: &[(&str, &str)],
            environment: Vec<(OsString, OsString)>,
        ) -> Result<Vec<Origin>, String> {
            let changes: Vec<_> =
                changes.iter().map(|(path, value)| ((*path).into(), (*value).into())).collect();
            let changed = started.with(&changes).expect("good values");
            keep(&self.flags(), environment, &changed, &changes).map_err(|error| format!("{error:#}"))
        }

        fn started(&self) -> Loaded {
            crate::config::load(&self.flags(), Vec::new()).expect("a good file")
        }
    }

    impl Drop for File {
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
    fn only_the_value_changes() {
        let file = File::new("value", FILE);
        let places = file.keep(&file.started(), &[("session.1.welcome", "Ahoy\\n\"all\"")]).expect("kept");
        assert_eq!(file.text(), FILE.replace("'Hello'", "\"Ahoy\\n\\\"all\\\"\""));
        assert!(matches!(places[..], [Origin::File { line: 5, .. }]), "{places:?}");
        assert_eq!(file.started().settings.sessions[0].welcome.0, "Ahoy\n\"all\"");
    }

    #[test]
    fn a_key_or_table_that_is_missing_is_added_where_it_belongs() {
        let file = File::new("missing", FILE);
        let changes = [
            ("session.2.whitelist", "10.0.0.0/8,192.0.2.1"),
            ("log.level", "debug"),
            ("server.cpu_budget", "20"),
        ];
        file.keep(&file.started(), &changes).expect("kept");
        let text = file.text();
        for line in FILE.lines() {
            assert!(text.contains(line), "{line} is gone: {text}");
        }
        let again = file.started().settings;
        assert_eq!(again.sessions[1].whitelist.len(), 2);
        assert!(again.sessions[0].whitelist.is_empty(), "{text}");
        assert_eq!((again.log.level.word(), again.server.cpu_budget.get()), ("debug", 20));
        // Without any session there is one.
        let file = File::new("none", "");
        file.keep(&file.started(), &[("session.1.name", "Solo")]).expect("kept");
        assert_eq!(file.text(), "[[session]]\nname = \"Solo\"\n");
    }

    #[test]
    fn every_form_of_a_file_can_be_changed() {
        for text in [
            "session = [{ name = \"One\" }, { name = \"Two\", welcome = \"x\" }]\nlog = { level = \"warn\" }\n",
            "log.level = \"warn\"\n[[session]]\n[[session]]\nname = \"Two\"\n",
            "[[session]]\r\n[[session]]\r\nname = \"Two\"\r\nwelcome = \"x\"\r\n# the end\r\n",
        ] {
            let file = File::new("forms", text);
            let changes = [("session.2.welcome", "Ahoy"), ("log.level", "debug")];
            file.keep(&file.started(), &changes).unwrap_or_else(|error| panic!("{text}: {error}"));
            let again = file.started().settings;
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
    fn a_password_is_written_and_never_told() {
        let file = File::new("password", FILE);
        file.keep(&file.started(), &[("session.1.password", "Enter\"prise")]).expect("kept");
        assert_eq!(file.started().settings.sessions[0].password.get(), Some("Enter\"prise"));
    }

    #[test]
    fn what_cannot_be_kept_changes_nothing() {
        let file = File::new("refused", FILE);
        let started = file.started();
        let welcome = [("session.1.welcome", "Ahoy")];
        let variable = vec![("BCNET_WELCOME".into(), "Hi".into())];
        let error = file.keep_with(&started, &welcome, variable).expect_err("a variable is stronger");
        assert!(error.starts_with("BCNET_WELCOME is stronger than "), "{error}");
        assert_eq!(file.text(), FILE);
        // Somebody is in the middle of editing it.
        for (broken, part) in [
            (FILE.replace("masters = []", "masters ="), "line 8: server.masters: "),
            (
                FILE.replace("masters", "mastes"),
                "line 8: server.mastes: unknown key; did you mean `masters`?",
            ),
            (FILE.replace("[server]", "port = 22150\n[server]"), "it has other sessions than the server"),
            (format!("{FILE}[[session]]\nname = \"Three\"\n"), "it has other sessions than the server"),
        ] {
            fs::write(&file.0, &broken).expect("written");
            let error = file.keep(&started, &welcome).expect_err("broken");
            assert!(error.contains(part) && error.contains("bcnet.toml: "), "{error}");
            assert_eq!(file.text(), broken);
        }
        fs::remove_file(&file.0).expect("removed");
        assert!(file.keep(&started, &welcome).is_err());
        let none = keep(&Flags::default(), Vec::new(), &started, &[]).map_err(|error| error.to_string());
        assert!(none.expect_err("no file").starts_with("there is no configuration file"), "none is there");
    }

    /// Others may have no business with the password in it.
    #[cfg(unix)]
    #[test]
    fn whoever_may_read_the_file_stays_the_same_and_a_link_stays_a_link() {
        use std::os::unix::fs::PermissionsExt;
        let file = File::new("rights", FILE);
        let link = file.0.with_file_name("link.toml");
        std::os::unix::fs::symlink("bcnet.toml", &link).expect("linked");
        for mode in [0o600, 0o640, 0o644] {
            fs::set_permissions(&file.0, fs::Permissions::from_mode(mode)).expect("set");
            let (flags, changes) = (Flags { config: Some(link.clone()), ..Flags::default() }, file.started());
            let path = [("session.1.welcome".to_owned(), format!("{mode:o}"))];
            keep(&flags, Vec::new(), &changes.with(&path).expect("good"), &path).expect("kept");
            let now = fs::symlink_metadata(&file.0).expect("a file").permissions().mode() & 0o777;
            assert_eq!(now, mode);
            assert!(fs::symlink_metadata(&link).expect("a link").is_symlink());
            assert!(file.text().contains(&format!("\"{mode:o}\"")));
        }
    }
}
