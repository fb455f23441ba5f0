//! Checks the data paths and the security model against the code.
//!
//! The path of a relayed message in docs/explanation/data-paths.md must name existing functions. `.ci/relay-walk` checks that
//! they run. The tests and commands that docs/explanation/security-model.md names must exist.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

#[test]
fn relay_path_names_existing_functions() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let text = fs::read_to_string(root.join("docs/explanation/data-paths.md")).expect("the document");
    let (_, rest) = text.split_once("## A relayed message").expect("the section");
    let (way, _) = rest.split_once("`.ci/relay-walk` traces").expect("the end of the lists");
    let (mut functions, mut homes) = (BTreeSet::new(), BTreeMap::new());
    for step in way.lines().filter(|line| line.starts_with(|c: char| c.is_ascii_digit())) {
        let mut quoted = step.split('`').skip(1);
        let (name, after) = (quoted.next().expect("a name"), quoted.next().unwrap_or_default());
        let (owner, function) = name.rsplit_once("::").unwrap_or(("", name));
        if let Some((file, _)) = after.strip_prefix(" (").and_then(|after| after.split_once(')')) {
            homes.insert(owner, file);
        }
        let file = homes.get(owner).unwrap_or_else(|| panic!("{step}: no file"));
        let is_found = candidate_paths(&root, file).into_iter().any(|path| {
            let source = fs::read_to_string(path).unwrap_or_default();
            source.contains(&format!("fn {function}(")) || source.contains(&format!("fn {function}<"))
        });
        assert!(is_found, "{step}: not in {file}");
        assert!(functions.insert(name), "{name} is listed twice");
    }
    assert!(functions.len() > 50, "only {} functions", functions.len());
}

/// Returns the possible paths of a file that is given relative to a crate's sources or to all crates.
fn candidate_paths(root: &Path, file: &str) -> Vec<PathBuf> {
    let folders = ["", "bcnet/src", "bcnet-session/src", "bcnet-transport/src"];
    folders.map(|folder| root.join("crates").join(folder).join(file)).into()
}

/// Each name in backquotes after `**Shown by.**` is a test, or a command whose script knows the argument.
#[test]
fn tests_named_in_security_exist() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let read = |name: &str| fs::read_to_string(root.join(name)).unwrap_or_else(|_| panic!("no {name}"));
    let text = read("docs/explanation/security-model.md");
    let (tests, attacks) = (test_names(&root.join("crates")), read("crates/bcnet-attack/src/attacks.rs"));
    let shown: Vec<&str> = text.split("**Shown by.**").skip(1).collect();
    assert!(shown.len() > 10, "only {} sections", shown.len());
    for section in shown {
        let (shown, _) = section.split_once("- **Remains.**").expect("what remains");
        let mut names = shown.split('`').skip(1).step_by(2).peekable();
        assert!(names.peek().is_some(), "no test is named: {shown}");
        for name in names {
            match name.split_once(' ') {
                None if name.starts_with(".ci/") => drop(read(name)),
                None => assert!(tests.contains(name), "there is no test {name}"),
                Some((".ci/attacks", attack)) => {
                    assert!(attacks.contains(&format!("name: \"{attack}\"")), "no attack {attack}");
                }
                Some((script, part)) => {
                    assert!(read(script).contains(part), "{script} does not contain {part}")
                }
            }
        }
    }
    let protocol = read("PROTOCOL.md");
    let rules =
        ["T-", "S-"].iter().flat_map(|kind| text.match_indices(kind)).map(|(at, _)| &text[at..at + 4]);
    let rules: BTreeSet<&str> = rules.filter(|rule| rule[2..].parse::<u8>().is_ok()).collect();
    assert!(rules.len() > 20, "{rules:?}");
    for rule in rules {
        assert!(protocol.contains(&format!("\n**{rule}** ")), "PROTOCOL.md has no rule {rule}");
    }
}

/// Returns the names of all tests below a directory.
fn test_names(folder: &Path) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for path in fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path()) {
        if path.is_dir() {
            found.append(&mut test_names(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let source = fs::read_to_string(&path).expect("a source file");
            let bodies = source.split("#[test]").skip(1);
            let name = |body: &str| {
                body.split_once("fn ").and_then(|(_, rest)| Some(rest.split_once('(')?.0.to_owned()))
            };
            found.extend(bodies.filter_map(name));
        }
    }
    found
}
