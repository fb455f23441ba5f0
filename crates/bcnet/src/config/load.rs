//! Loads settings from their sources: defaults, file, environment, flags. A later source wins.

use std::collections::BTreeMap;
use std::env;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::anyhow;
use bcnet_control::{correct_spelling, did_you_mean, escape_key};
use toml::de::DeTable;

use super::document::{Document, Problem, Problems};
use super::hook::Hook;
use super::render::table_header;
use super::settings::{Session, Settings, TABLE_ARRAYS, TABLES};
use super::table::{RawValue, Table};
use crate::file::read_text;

/// The flags of every command that reads the configuration.
#[derive(clap::Args, Debug, Default, Clone)]
pub(crate) struct ConfigFlags {
    /// Configuration file [default: BCNET_CONFIG, else bcnet.toml if it exists]
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,

    /// Local address of the game sockets
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) bind: Option<String>,

    /// UDP port of the session
    #[arg(long, value_name = "PORT")]
    pub(crate) port: Option<String>,

    /// Name of the session in the players' list
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,

    /// Any other key: `log.level=debug`, `session.player_limit=4` (all sessions), `session.2.port=22150`
    #[arg(long, value_name = "KEY=VALUE")]
    pub(crate) set: Vec<String>,
}

/// The settings and the origin of each value.
#[derive(Debug, Clone)]
pub(crate) struct Loaded {
    pub(crate) settings: Settings,
    /// The file that was read, if any.
    pub(crate) file: Option<PathBuf>,
    /// Origins by table and key. A missing entry is a default.
    origins: BTreeMap<(String, String), Origin>,
    /// Variables that begin with `BCNET_` and set no key.
    pub(crate) ignored_variables: Vec<String>,
}

/// The source of a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Origin {
    Default,
    File {
        name: String,
        line: usize,
    },
    Variable(String),
    Flag(String),
    /// Changed by the operator while the server runs.
    Request,
}

impl fmt::Display for Origin {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => out.write_str("default"),
            Self::File { name, line } => write!(out, "{name}, line {line}"),
            Self::Variable(name) | Self::Flag(name) => out.write_str(name),
            Self::Request => out.write_str("set"),
        }
    }
}

/// Loads the settings from `flags`, `environment` and the file that they name.
///
/// # Errors
///
/// Returns all invalid settings at once, as [`Problems`]. A file that cannot be read is a separate
/// error.
pub(crate) fn load(
    flags: &ConfigFlags,
    environment: impl IntoIterator<Item = (OsString, OsString)>,
) -> anyhow::Result<Loaded> {
    load_with(flags, environment, read_text)
}

/// Like [`load`], but reads the file with `read_file`.
pub(super) fn load_with(
    flags: &ConfigFlags,
    environment: impl IntoIterator<Item = (OsString, OsString)>,
    read_file: impl FnOnce(&Path) -> io::Result<String>,
) -> anyhow::Result<Loaded> {
    let (loaded, problems) = read_sources(flags, environment, read_file)?;
    if problems.is_empty() { Ok(loaded) } else { Err(Problems(problems).into()) }
}

/// Loads the settings for the value of `server.control` alone.
///
/// Other problems are ignored, because a running server does not depend on them. A problem that may
/// hide another socket path is an error: the command must not reach the wrong server.
pub(crate) fn load_control(
    flags: &ConfigFlags,
    environment: impl IntoIterator<Item = (OsString, OsString)>,
) -> anyhow::Result<Loaded> {
    let (loaded, mut problems) = read_sources(flags, environment, read_text)?;
    let origin = loaded.origin("server", "control");
    problems.retain(|problem| match origin {
        Origin::Default => !problem.is_about(|table| table != "server" && is_table(table)),
        // A problem without key and line is a misspelt variable, which may have been meant for this key.
        Origin::File { .. } => problem.key.is_none() && problem.line.is_none(),
        Origin::Variable(_) | Origin::Flag(_) | Origin::Request => false,
    });
    if problems.is_empty() { Ok(loaded) } else { Err(Problems(problems).into()) }
}

/// Returns the valid settings, and all problems.
fn read_sources(
    flags: &ConfigFlags,
    environment: impl IntoIterator<Item = (OsString, OsString)>,
    read_file: impl FnOnce(&Path) -> io::Result<String>,
) -> anyhow::Result<(Loaded, Vec<Problem>)> {
    let mut problems = Vec::new();
    let environment: Vec<_> = environment.into_iter().collect();
    let state =
        environment.iter().find(|(name, _)| name == "STATE_DIRECTORY").map(|(_, path)| first_directory(path));
    let (variables, strange) = split_variables(environment, &mut problems);
    let mut loaded = match config_path(flags, &variables) {
        None => Loaded::new(None),
        Some(path) => {
            let text = read_file(&path).map_err(|error| file_error(&path, error))?;
            load_text(&path, &text, &mut problems)
        }
    };
    loaded.ignored_variables = strange;
    loaded.apply_variables(&variables, &mut problems);
    loaded.apply_flags(flags, &mut problems);
    loaded.check(&mut problems);
    loaded.resolve_paths(state.as_deref());
    Ok((loaded, problems))
}

/// Returns the error for a file that cannot be read, with a remedy if it does not exist.
fn file_error(path: &Path, error: io::Error) -> anyhow::Error {
    if error.kind() == io::ErrorKind::NotFound {
        let path = path.display();
        anyhow!("{error}; name another file with --config, or create it: `bcnet config default > {path}`")
    } else {
        error.into()
    }
}

/// Returns the path of the file to read, if any.
fn config_path(flags: &ConfigFlags, variables: &[(String, String)]) -> Option<PathBuf> {
    let variable = || variables.iter().find(|(name, _)| name == "BCNET_CONFIG").map(|(_, path)| path.into());
    let usual = || Some(PathBuf::from("bcnet.toml")).filter(|path| path.exists());
    flags.config.clone().or_else(variable).or_else(usual)
}

/// Returns the first of the directories in a variable of the service manager.
pub(crate) fn first_directory(directories: &OsStr) -> PathBuf {
    env::split_paths(directories).next().unwrap_or_default()
}

/// Returns whether Kubernetes created this variable for a service that is named like this program.
fn is_kubernetes_variable(name: &str, value: &str) -> bool {
    let rest = name.strip_prefix(PREFIX).unwrap_or(name);
    let is_port = |rest: &str| rest.starts_with(|first: char| first.is_ascii_digit());
    rest == "SERVICE_HOST"
        || rest == "SERVICE_PORT"
        || rest.starts_with("SERVICE_PORT_")
        || rest.strip_prefix("PORT_").is_some_and(is_port)
        || matches!(rest, "PORT" | "SERVER_PORT")
            && (value.starts_with("udp://") || value.starts_with("tcp://"))
}

/// Returns the variables for this program, and the names of variables that Kubernetes set.
fn split_variables(
    environment: impl IntoIterator<Item = (OsString, OsString)>,
    problems: &mut Vec<Problem>,
) -> (Vec<(String, String)>, Vec<String>) {
    let (mut found, mut strange) = (Vec::new(), Vec::new());
    for (name, value) in environment {
        let Some(name) = name.to_str().filter(|name| name.starts_with(PREFIX)) else { continue };
        match value.into_string() {
            Ok(value) if is_kubernetes_variable(name, &value) => strange.push(escape_key(name)),
            Ok(value) => found.push((name.to_owned(), value)),
            Err(_) => problems.push(problem_without_line(name, "not UTF-8".into())),
        }
    }
    found.sort();
    strange.sort();
    (found, strange)
}

/// Returns the variable that a misspelt one was probably meant to be.
///
/// Images, panels and packages may define other variables with the same prefix, so an unknown variable
/// is no error. A misspelt one is: it must not leave a server without its password.
fn suggest_variable(name: &str, names: &[(String, String)]) -> Option<String> {
    let rest = name.strip_prefix(PREFIX)?;
    // Variables for these keys omit the table.
    let of_table = rest.strip_prefix("SERVER_").or_else(|| rest.strip_prefix("SESSION_"));
    let known = |rest: &&str| names.iter().any(|(known, _)| known.strip_prefix(PREFIX) == Some(rest));
    let near = || correct_spelling(rest, names.iter().filter_map(|(known, _)| known.strip_prefix(PREFIX)));
    of_table.filter(known).or_else(near).map(|meant| format!("{PREFIX}{meant}"))
}

/// Prefix of every variable of this program.
const PREFIX: &str = "BCNET_";

/// Variables that set no key.
///
/// These are the path of the file, the version for builds, and settings of this project's tests.
const NON_KEY_VARIABLES: [&str; 5] =
    ["BCNET_CONFIG", "BCNET_VERSION", "BCNET_SEED", "BCNET_SEEDS", "BCNET_LONG"];

fn problem_without_line(place: &str, text: String) -> Problem {
    Problem { source: place.into(), line: None, key: None, text }
}

/// Returns the settings of a file over the defaults.
pub(super) fn load_text(path: &Path, text: &str, problems: &mut Vec<Problem>) -> Loaded {
    let name = path.display().to_string();
    let (mut document, root) = Document::parse(name.clone(), text);
    let mut loaded = Loaded::new(Some(path.to_owned()));
    for (key, value) in &root {
        match key.get_ref().as_ref() {
            list if TABLE_ARRAYS.contains(&list) => {
                let mut tables = document.expect_tables(list, value);
                let (most, advice) = max_tables(list);
                if tables.len() > most {
                    let text = format!("more than {most} {list}s; {advice}");
                    document.add_problem(Some(value.span()), Some(list.into()), text);
                    tables.truncate(most);
                }
                loaded.settings.resize_list(list, tables.len());
                for (n, table) in tables.into_iter().enumerate() {
                    loaded.fill_table(&format!("{list}.{}", n + 1), &mut document, &name, table);
                }
            }
            table if TABLES.contains(&table) => {
                if let Some(source) = document.expect_table(table, value) {
                    loaded.fill_table(table, &mut document, &name, source);
                }
            }
            other => document.add_problem(
                Some(key.span()),
                Some(escape_key(other)),
                describe_unknown_root_key(other),
            ),
        }
    }
    problems.extend(document.into_problems());
    loaded
}

/// Returns the maximum number of tables in a list, and advice for a larger number.
fn max_tables(list: &str) -> (usize, &'static str) {
    match list {
        // Each hook has a thread.
        "hook" => (16, "let one hook's receiver forward to the others"),
        // Each session has a socket, and no known machine runs more.
        _ => (1000, "use several processes"),
    }
}

/// Returns the message for a key outside of all tables.
fn describe_unknown_root_key(key: &str) -> String {
    let one_of_each = Settings { hooks: vec![Hook::default()], ..Settings::default() };
    for (table, keys) in one_of_each.tables().into_iter().chain(one_of_each.file_only_tables()) {
        if keys.keys().iter().any(|known| known.name == key) {
            return format!("this key belongs in the table `{}`", table_header(&table));
        }
    }
    format!("unknown table or key{}", did_you_mean(key, TABLES.into_iter().chain(TABLE_ARRAYS)))
}

fn is_table(name: &str) -> bool {
    TABLES.contains(&name) || TABLE_ARRAYS.contains(&name)
}

impl Loaded {
    /// Returns the defaults.
    fn new(file: Option<PathBuf>) -> Self {
        Self { settings: Settings::default(), file, origins: BTreeMap::new(), ignored_variables: Vec::new() }
    }

    /// Returns the source of a key's value.
    pub(crate) fn origin(&self, table: &str, key: &str) -> &Origin {
        self.origins.get(&(table.into(), key.into())).unwrap_or(&Origin::Default)
    }

    /// Returns the settings with the changed values, given by key paths.
    pub(crate) fn with_changes(&self, changes: &[(String, String)]) -> Result<Self, Problems> {
        let (mut changed, mut problems) = (self.clone(), Vec::new());
        for (path, value) in changes {
            changed.set(path, value, Origin::Request, &mut problems);
            // Stops at the first invalid change: the same value for other sessions has the same problem.
            if !problems.is_empty() {
                return Err(Problems(problems));
            }
        }
        changed.check(&mut problems);
        if problems.is_empty() { Ok(changed) } else { Err(Problems(problems)) }
    }

    fn fill_table(&mut self, name: &str, document: &mut Document, file: &str, source: &DeTable<'_>) {
        let Some(table) = self.settings.table_mut(name) else { return };
        let origins = &mut self.origins;
        document.fill(name, table, source, |key, line| {
            origins.insert((name.into(), key.into()), Origin::File { name: file.into(), line });
        });
    }

    fn apply_variables(&mut self, variables: &[(String, String)], problems: &mut Vec<Problem>) {
        let names = self.variable_names();
        // Values for all sessions are set first, so that a value for one session wins.
        for (variable, path) in &names {
            if let Some((_, value)) = variables.iter().find(|(name, _)| name == variable) {
                self.set(path, value, Origin::Variable(variable.clone()), problems);
            }
        }
        for (name, _) in variables {
            if NON_KEY_VARIABLES.contains(&name.as_str()) || names.iter().any(|(known, _)| known == name) {
                continue;
            }
            match suggest_variable(name, &names) {
                Some(meant) => {
                    problems.push(problem_without_line(
                        name,
                        format!("unknown variable; did you mean `{meant}`?"),
                    ));
                }
                None if name.starts_with("BCNET_HOOK_") => {
                    problems.push(problem_without_line(name, "hooks are set in the file only".into()));
                }
                None => self.ignored_variables.push(escape_key(name)),
            }
        }
    }

    /// Returns each variable with the path of its key.
    fn variable_names(&self) -> Vec<(String, String)> {
        let mut names = Vec::new();
        let all_sessions = Session::default();
        let all_sessions = ("session".to_owned(), &all_sessions as &dyn Table);
        for (table, keys) in [all_sessions].into_iter().chain(self.settings.tables()) {
            for key in keys.keys() {
                names.push((variable_name(&table, key.name), format!("{table}.{}", key.name)));
            }
        }
        names
    }

    fn apply_flags(&mut self, flags: &ConfigFlags, problems: &mut Vec<Problem>) {
        let named = [
            ("bind", "server.bind", &flags.bind),
            ("port", "session.port", &flags.port),
            ("name", "session.name", &flags.name),
        ];
        for (flag, path, value) in named {
            if let Some(value) = value {
                self.set(path, value, Origin::Flag(format!("--{flag}")), problems);
            }
        }
        for pair in &flags.set {
            let origin = format!("--set {}", pair.split('=').next().unwrap_or_default());
            match pair.split_once('=') {
                Some((path, value)) => self.set(path.trim(), value.trim(), Origin::Flag(origin), problems),
                None => problems.push(problem_without_line(&origin, "expected KEY=VALUE".into())),
            }
        }
    }

    /// Sets a key by its path; `session.KEY` sets that key of all sessions.
    fn set(&mut self, path: &str, value: &str, origin: Origin, problems: &mut Vec<Problem>) {
        // A request of the operator has no source to name, so the message names the key.
        let place = if origin == Origin::Request { path.to_owned() } else { origin.to_string() };
        let (name, key) = path.rsplit_once('.').unwrap_or(("server", path));
        if name == "hook" || name.starts_with("hook.") {
            let text = "hooks are set in the file only".into();
            return problems.push(problem_without_line(&place, text));
        }
        if is_quoted(value) {
            let text = "quotes would become part of the value; remove them, or set the key in a file";
            return problems.push(problem_without_line(&place, text.into()));
        }
        let tables: Vec<String> = match name {
            "session" => (1..=self.settings.sessions.len()).map(|n| format!("session.{n}")).collect(),
            name => vec![name.into()],
        };
        for name in tables {
            let done = match self.settings.table_mut(&name) {
                Some(table) if table.keys().iter().any(|known| known.name == key) => {
                    table.set(key, RawValue::Text(value))
                }
                _ => Err(self.describe_unknown_key(path)),
            };
            if let Err(text) = done {
                return problems.push(problem_without_line(&place, text));
            }
            self.origins.insert((name, key.into()), origin.clone());
        }
    }

    fn describe_unknown_key(&self, path: &str) -> String {
        let names = self.variable_names();
        let paths = || names.iter().map(|(_, path)| path.as_str());
        // If the path is a key without its table, suggest the first table that has this key.
        let meant = paths().find(|known| known.rsplit_once('.').is_some_and(|(_, key)| key == path));
        match meant {
            Some(meant) => format!("unknown key; did you mean `{meant}`?"),
            None => format!("unknown key{}", did_you_mean(path, paths())),
        }
    }

    /// Resolves the paths of `bans` and `control` relative to the configuration file.
    ///
    /// The result must not depend on the working directory: the server would lose its bans, or use the
    /// socket of another server. A service stores its bans in `state`.
    fn resolve_paths(&mut self, state: Option<&Path>) {
        let config_directory =
            self.file.as_deref().and_then(Path::parent).unwrap_or_else(|| Path::new("")).to_owned();
        let is_relative_to_config = |origin: &Origin| matches!(origin, Origin::Default | Origin::File { .. });
        if is_relative_to_config(self.origin("server", "bans")) {
            let bans = &mut self.settings.server.bans;
            *bans = state.unwrap_or(&config_directory).join(&*bans);
        }
        if is_relative_to_config(self.origin("server", "history"))
            && let Some(history) = self.settings.server.history.as_mut()
        {
            *history = state.unwrap_or(&config_directory).join(&*history);
        }
        if is_relative_to_config(self.origin("web", "token_file")) {
            let token = &mut self.settings.web.token_file;
            *token = state.unwrap_or(&config_directory).join(&*token);
        }
        if is_relative_to_config(self.origin("scores", "file"))
            && let Some(scores) = self.settings.scores.file.as_mut()
        {
            *scores = state.unwrap_or(&config_directory).join(&*scores);
        }
        if is_relative_to_config(self.origin("server", "control"))
            && let Some(control) =
                self.settings.server.control.as_mut().filter(|path| !is_bare_file_name(path))
        {
            *control = config_directory.join(&*control);
        }
    }
}

/// Returns whether a path is a file name without a directory.
pub(crate) fn is_bare_file_name(path: &Path) -> bool {
    path.parent().is_none_or(|parent| parent.as_os_str().is_empty())
}

/// Returns whether a value is in quotes, as it would be in a file.
fn is_quoted(value: &str) -> bool {
    ['"', '\''].iter().any(|quote| value.len() > 1 && value.starts_with(*quote) && value.ends_with(*quote))
}

/// Returns the variable that sets a key. Keys of `server` and of all sessions omit the table.
pub(crate) fn variable_name(table: &str, key: &str) -> String {
    let table = match table {
        "server" | "session" => String::new(),
        other => format!("{other}_").replace('.', "_"),
    };
    format!("{PREFIX}{table}{key}").to_uppercase()
}
