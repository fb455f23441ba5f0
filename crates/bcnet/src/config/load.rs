//! Where settings come from: defaults, then a file, then the environment, then flags; the later wins.

use std::collections::BTreeMap;
use std::env;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use bcnet_control::{did_you_mean, misspelt, short};
use toml::de::DeTable;

use super::document::{Document, Problem, Problems};
use super::hook::Hook;
use super::sample::head;
use super::settings::{LISTS, Session, Settings, TABLES};
use super::table::{Given, Table};
use crate::file::read_text;

/// The flags of every command that reads the configuration.
#[derive(clap::Args, Debug, Default, Clone)]
pub(crate) struct Flags {
    /// The configuration; else BCNET_CONFIG, else bcnet.toml if it exists
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,

    /// The local address of the game's sockets
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) bind: Option<String>,

    /// The UDP port of the session
    #[arg(long, value_name = "PORT")]
    pub(crate) port: Option<String>,

    /// The name of the session, as players see it
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,

    /// Any other key, for example `log.level=debug`, `session.player_limit=4` (all sessions) or `session.2.port=22150`
    #[arg(long, value_name = "KEY=VALUE")]
    pub(crate) set: Vec<String>,
}

/// The settings and where each comes from.
#[derive(Debug, Clone)]
pub(crate) struct Loaded {
    pub(crate) settings: Settings,
    /// The file that was read, if there was one.
    pub(crate) file: Option<PathBuf>,
    /// By table and key; what is missing is a default.
    origins: BTreeMap<(String, String), Origin>,
    /// Variables that begin as ours do and set nothing.
    pub(crate) strange: Vec<String>,
}

/// Where a value comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Origin {
    Default,
    File {
        name: String,
        line: usize,
    },
    Variable(String),
    Flag(String),
    /// Who runs the server has changed it since.
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

/// Loads the settings as `flags` and `environment` say. Everything that is wrong comes at once, as [`Problems`]; a file
/// that cannot be read is an error of its own.
pub(crate) fn load(
    flags: &Flags,
    environment: impl IntoIterator<Item = (OsString, OsString)>,
) -> anyhow::Result<Loaded> {
    load_as(flags, environment, read_text)
}

/// As [`load`], with what `read_file` gives for the file.
pub(super) fn load_as(
    flags: &Flags,
    environment: impl IntoIterator<Item = (OsString, OsString)>,
    read_file: impl FnOnce(&Path) -> io::Result<String>,
) -> anyhow::Result<Loaded> {
    let (loaded, problems) = read(flags, environment, read_file)?;
    if problems.is_empty() { Ok(loaded) } else { Err(Problems(problems).into()) }
}

/// Loads the settings for the sake of `server.control` alone. What is wrong elsewhere does not matter, for a running
/// server may be asked about it; but where something wrong may hide another socket, there is no guess at a server.
pub(crate) fn load_control(
    flags: &Flags,
    environment: impl IntoIterator<Item = (OsString, OsString)>,
) -> anyhow::Result<Loaded> {
    let (loaded, mut problems) = read(flags, environment, read_text)?;
    let origin = loaded.origin("server", "control");
    problems.retain(|problem| match origin {
        Origin::Default => !problem.is_about(|table| table != "server" && is_table(table)),
        // A variable that is misspelt.
        Origin::File { .. } => problem.key.is_none() && problem.line.is_none(),
        Origin::Variable(_) | Origin::Flag(_) | Origin::Request => false,
    });
    if problems.is_empty() { Ok(loaded) } else { Err(Problems(problems).into()) }
}

/// Returns the settings as far as they are right, and what is wrong.
fn read(
    flags: &Flags,
    environment: impl IntoIterator<Item = (OsString, OsString)>,
    read_file: impl FnOnce(&Path) -> io::Result<String>,
) -> anyhow::Result<(Loaded, Vec<Problem>)> {
    let mut problems = Vec::new();
    let environment: Vec<_> = environment.into_iter().collect();
    let state = environment.iter().find(|(name, _)| name == "STATE_DIRECTORY").map(|(_, path)| first(path));
    let (variables, strange) = variables(environment, &mut problems);
    let mut loaded = match file(flags, &variables) {
        None => Loaded::new(None),
        Some(path) => from_text(&path, &read_file(&path)?, &mut problems),
    };
    loaded.strange = strange;
    loaded.apply_variables(&variables, &mut problems);
    loaded.apply_flags(flags, &mut problems);
    loaded.check(&mut problems);
    loaded.place(state.as_deref());
    Ok((loaded, problems))
}

/// Returns the file to read, if there is one.
fn file(flags: &Flags, variables: &[(String, String)]) -> Option<PathBuf> {
    let variable = || variables.iter().find(|(name, _)| name == "BCNET_CONFIG").map(|(_, path)| path.into());
    let usual = || Some(PathBuf::from("bcnet.toml")).filter(|path| path.exists());
    flags.config.clone().or_else(variable).or_else(usual)
}

/// Returns the first of the directories in a variable of the service manager.
pub(crate) fn first(directories: &OsStr) -> PathBuf {
    env::split_paths(directories).next().unwrap_or_default()
}

/// Returns whether a variable is one that Kubernetes makes for a service that is called like this program.
fn is_of_kubernetes(name: &str, value: &str) -> bool {
    let rest = name.strip_prefix(PREFIX).unwrap_or(name);
    let is_port = |rest: &str| rest.starts_with(|first: char| first.is_ascii_digit());
    rest == "SERVICE_HOST"
        || rest == "SERVICE_PORT"
        || rest.starts_with("SERVICE_PORT_")
        || rest.strip_prefix("PORT_").is_some_and(is_port)
        || matches!(rest, "PORT" | "SERVER_PORT")
            && (value.starts_with("udp://") || value.starts_with("tcp://"))
}

/// Returns the variables that are meant for this program, and the names of those that others have set for a service of its name.
fn variables(
    environment: impl IntoIterator<Item = (OsString, OsString)>,
    problems: &mut Vec<Problem>,
) -> (Vec<(String, String)>, Vec<String>) {
    let (mut found, mut strange) = (Vec::new(), Vec::new());
    for (name, value) in environment {
        let Some(name) = name.to_str().filter(|name| name.starts_with(PREFIX)) else { continue };
        match value.into_string() {
            Ok(value) if is_of_kubernetes(name, &value) => strange.push(short(name)),
            Ok(value) => found.push((name.to_owned(), value)),
            Err(_) => problems.push(outside(name, "not UTF-8".into())),
        }
    }
    found.sort();
    strange.sort();
    (found, strange)
}

/// Returns the variable that one of no key was meant to be. Images, panels and packages have variables of their own that
/// begin as ours do; but a typing error must not leave a server without its password.
fn meant(name: &str, names: &[(String, String)]) -> Option<String> {
    let rest = name.strip_prefix(PREFIX)?;
    // Keys of these go without their table.
    let of_table = rest.strip_prefix("SERVER_").or_else(|| rest.strip_prefix("SESSION_"));
    let known = |rest: &&str| names.iter().any(|(known, _)| known.strip_prefix(PREFIX) == Some(rest));
    let near = || misspelt(rest, names.iter().filter_map(|(known, _)| known.strip_prefix(PREFIX)));
    of_table.filter(known).or_else(near).map(|meant| format!("{PREFIX}{meant}"))
}

/// Every variable of this program begins with it.
const PREFIX: &str = "BCNET_";

/// Variables that are no keys: the file itself, what a build takes its version from, and what the tests of this project are told.
const NO_KEYS: [&str; 5] = ["BCNET_CONFIG", "BCNET_VERSION", "BCNET_SEED", "BCNET_SEEDS", "BCNET_LONG"];

fn outside(place: &str, text: String) -> Problem {
    Problem { place: place.into(), line: None, key: None, text }
}

/// Returns the settings of a file over the defaults.
pub(super) fn from_text(path: &Path, text: &str, problems: &mut Vec<Problem>) -> Loaded {
    let name = path.display().to_string();
    let (mut document, root) = Document::parse(name.clone(), text);
    let mut loaded = Loaded::new(Some(path.to_owned()));
    for (key, value) in &root {
        match key.get_ref().as_ref() {
            list if LISTS.contains(&list) => {
                let mut tables = document.tables(list, value);
                let (most, advice) = most(list);
                if tables.len() > most {
                    let text = format!("more than {most} {list}s; {advice}");
                    document.problem(Some(value.span()), Some(list.into()), text);
                    tables.truncate(most);
                }
                loaded.settings.make_room(list, tables.len());
                for (n, table) in tables.into_iter().enumerate() {
                    loaded.fill(&format!("{list}.{}", n + 1), &mut document, &name, table);
                }
            }
            table if TABLES.contains(&table) => {
                if let Some(source) = document.table(table, value) {
                    loaded.fill(table, &mut document, &name, source);
                }
            }
            other => document.problem(Some(key.span()), Some(short(other)), unknown_at_root(other)),
        }
    }
    problems.extend(document.into_problems());
    loaded
}

/// Returns how many tables of a list there may be, and what to do about more.
fn most(list: &str) -> (usize, &'static str) {
    match list {
        // Each has a thread.
        "hook" => (16, "have one of them tell the others"),
        // Each needs a socket, and no machine is known to need more.
        _ => (1000, "use several processes"),
    }
}

/// Returns what to say of a key that stands in no table, where only tables may stand.
fn unknown_at_root(key: &str) -> String {
    let one_of_each = Settings { hooks: vec![Hook::default()], ..Settings::default() };
    for (table, keys) in one_of_each.tables().into_iter().chain(one_of_each.file_tables()) {
        if keys.keys().iter().any(|known| known.name == key) {
            return format!("this key belongs below `{}`", head(&table));
        }
    }
    format!("unknown table or key{}", did_you_mean(key, TABLES.into_iter().chain(LISTS)))
}

fn is_table(name: &str) -> bool {
    TABLES.contains(&name) || LISTS.contains(&name)
}

impl Loaded {
    /// The defaults.
    fn new(file: Option<PathBuf>) -> Self {
        Self { settings: Settings::default(), file, origins: BTreeMap::new(), strange: Vec::new() }
    }

    /// Returns where the value of a key comes from.
    pub(crate) fn origin(&self, table: &str, key: &str) -> &Origin {
        self.origins.get(&(table.into(), key.into())).unwrap_or(&Origin::Default)
    }

    /// Returns the same settings with other values of some keys, by their paths.
    pub(crate) fn with(&self, changes: &[(String, String)]) -> Result<Self, Problems> {
        let (mut changed, mut problems) = (self.clone(), Vec::new());
        for (path, value) in changes {
            changed.set(path, value, Origin::Request, &mut problems);
            // What is wrong for one session is so for the others.
            if !problems.is_empty() {
                return Err(Problems(problems));
            }
        }
        changed.check(&mut problems);
        if problems.is_empty() { Ok(changed) } else { Err(Problems(problems)) }
    }

    fn fill(&mut self, name: &str, document: &mut Document, file: &str, source: &DeTable<'_>) {
        let Some(table) = self.settings.table_mut(name) else { return };
        let origins = &mut self.origins;
        document.fill(name, table, source, |key, line| {
            origins.insert((name.into(), key.into()), Origin::File { name: file.into(), line });
        });
    }

    fn apply_variables(&mut self, variables: &[(String, String)], problems: &mut Vec<Problem>) {
        let names = self.variable_names();
        // What is said for all sessions comes first, so that what is said for one wins.
        for (variable, path) in &names {
            if let Some((_, value)) = variables.iter().find(|(name, _)| name == variable) {
                self.set(path, value, Origin::Variable(variable.clone()), problems);
            }
        }
        for (name, _) in variables {
            if NO_KEYS.contains(&name.as_str()) || names.iter().any(|(known, _)| known == name) {
                continue;
            }
            match meant(name, &names) {
                Some(meant) => {
                    problems.push(outside(name, format!("unknown variable; did you mean `{meant}`?")));
                }
                None if name.starts_with("BCNET_HOOK_") => {
                    problems.push(outside(name, "hooks are set in the file only".into()));
                }
                None => self.strange.push(short(name)),
            }
        }
    }

    /// Returns each variable with the key that it sets.
    fn variable_names(&self) -> Vec<(String, String)> {
        let mut names = Vec::new();
        let all_sessions = Session::default();
        let all_sessions = ("session".to_owned(), &all_sessions as &dyn Table);
        for (table, keys) in [all_sessions].into_iter().chain(self.settings.tables()) {
            for key in keys.keys() {
                names.push((variable(&table, key.name), format!("{table}.{}", key.name)));
            }
        }
        names
    }

    fn apply_flags(&mut self, flags: &Flags, problems: &mut Vec<Problem>) {
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
                None => problems.push(outside(&origin, "expected KEY=VALUE".into())),
            }
        }
    }

    /// Sets a key by its path; `session.KEY` is that key of all sessions.
    fn set(&mut self, path: &str, value: &str, origin: Origin, problems: &mut Vec<Problem>) {
        // Who asks for a change has not named a place that says which.
        let place = if origin == Origin::Request { path.to_owned() } else { origin.to_string() };
        let (name, key) = path.rsplit_once('.').unwrap_or(("server", path));
        if name == "hook" || name.starts_with("hook.") {
            let text = "hooks are set in the file only".into();
            return problems.push(outside(&place, text));
        }
        if is_quoted(value) {
            let text = "here the quotes would be part of the value: leave them out, or set it in a file";
            return problems.push(outside(&place, text.into()));
        }
        let tables: Vec<String> = match name {
            "session" => (1..=self.settings.sessions.len()).map(|n| format!("session.{n}")).collect(),
            name => vec![name.into()],
        };
        for name in tables {
            let done = match self.settings.table_mut(&name) {
                Some(table) if table.keys().iter().any(|known| known.name == key) => {
                    table.set(key, Given::Text(value))
                }
                _ => Err(self.unknown_path(path)),
            };
            if let Err(text) = done {
                return problems.push(outside(&place, text));
            }
            self.origins.insert((name, key.into()), origin.clone());
        }
    }

    fn unknown_path(&self, path: &str) -> String {
        let names = self.variable_names();
        let paths = || names.iter().map(|(_, path)| path.as_str());
        // Whoever leaves the table out means the one that has the key.
        let meant = paths().find(|known| known.rsplit_once('.').is_some_and(|(_, key)| key == path));
        match meant {
            Some(meant) => format!("unknown key; did you mean `{meant}`?"),
            None => format!("unknown key{}", did_you_mean(path, paths())),
        }
    }

    /// Puts what belongs to the configuration beside its file, wherever the program runs: the bans must not be gone, and
    /// the socket not that of another server, because it was started elsewhere. A service keeps its bans in `state`.
    fn place(&mut self, state: Option<&Path>) {
        let beside = self.file.as_deref().and_then(Path::parent).unwrap_or_else(|| Path::new("")).to_owned();
        let is_placed = |origin: &Origin| matches!(origin, Origin::Default | Origin::File { .. });
        if is_placed(self.origin("server", "bans")) {
            let bans = &mut self.settings.server.bans;
            *bans = state.unwrap_or(&beside).join(&*bans);
        }
        if is_placed(self.origin("server", "history"))
            && let Some(history) = self.settings.server.history.as_mut()
        {
            *history = state.unwrap_or(&beside).join(&*history);
        }
        if is_placed(self.origin("web", "token_file")) {
            let token = &mut self.settings.web.token_file;
            *token = state.unwrap_or(&beside).join(&*token);
        }
        if is_placed(self.origin("scores", "file"))
            && let Some(scores) = self.settings.scores.file.as_mut()
        {
            *scores = state.unwrap_or(&beside).join(&*scores);
        }
        if is_placed(self.origin("server", "control"))
            && let Some(control) = self.settings.server.control.as_mut().filter(|path| !is_bare(path))
        {
            *control = beside.join(&*control);
        }
    }
}

/// Returns whether a path is a name without a directory.
pub(crate) fn is_bare(path: &Path) -> bool {
    path.parent().is_none_or(|parent| parent.as_os_str().is_empty())
}

/// Returns whether a value is written as in a file, where quotes are not part of it.
fn is_quoted(value: &str) -> bool {
    ['"', '\''].iter().any(|quote| value.len() > 1 && value.starts_with(*quote) && value.ends_with(*quote))
}

/// Returns the variable that sets a key. Keys of `server` and of all sessions go without their table.
pub(crate) fn variable(table: &str, key: &str) -> String {
    let table = match table {
        "server" | "session" => String::new(),
        other => format!("{other}_").replace('.', "_"),
    };
    format!("{PREFIX}{table}{key}").to_uppercase()
}
