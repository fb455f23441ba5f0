//! ARCHITECTURE.md and the code: the way of a relayed message is as long as it says, through functions that exist.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

#[test]
fn the_way_of_a_relayed_message_leads_through_functions_that_exist() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let text = fs::read_to_string(root.join("ARCHITECTURE.md")).expect("ARCHITECTURE.md");
    let (_, rest) = text.split_once("A relayed message's way").expect("the way");
    let (way, total) = rest.split_once("Both lists together: ").expect("how long it is");
    let (mut functions, mut files, mut homes) = (BTreeSet::new(), BTreeSet::new(), BTreeMap::new());
    for step in way.lines().filter(|line| line.starts_with(|c: char| c.is_ascii_digit())) {
        let mut quoted = step.split('`').skip(1);
        let (name, after) = (quoted.next().expect("a name"), quoted.next().unwrap_or_default());
        let (owner, function) = name.rsplit_once("::").unwrap_or(("", name));
        if let Some((file, _)) = after.strip_prefix(" (").and_then(|after| after.split_once(')')) {
            homes.insert(owner, file);
        }
        let file = homes.get(owner).unwrap_or_else(|| panic!("{step}: no file"));
        let found = places(&root, file).into_iter().find(|path| {
            let source = fs::read_to_string(path).unwrap_or_default();
            source.contains(&format!("fn {function}(")) || source.contains(&format!("fn {function}<"))
        });
        files.insert(found.unwrap_or_else(|| panic!("{step}: not in {file}")));
        assert!(functions.insert(name), "{name} stands twice");
    }
    let counted = format!("{} functions in {} files", functions.len(), files.len());
    assert!(total.starts_with(&counted), "{counted}");
}

/// Where a file may be that is told relative to the sources of a crate, or to all crates.
fn places(root: &Path, file: &str) -> Vec<PathBuf> {
    let folders = ["", "bcnet/src", "bcnet-session/src", "bcnet-transport/src"];
    folders.map(|folder| root.join("crates").join(folder).join(file)).into()
}
