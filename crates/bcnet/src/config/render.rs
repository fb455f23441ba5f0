//! Renders the settings: a default file, the effective values, and a page of documentation.

use std::fmt::Write as _;

use super::hook::Hook;
use super::load::{Loaded, Origin, variable_name};
use super::settings::Settings;
use super::table::Table;
use crate::bans::Ban;

/// Returns a file with every key, its description and its default.
pub(crate) fn default_file() -> String {
    let mut out = String::from(
        "# Configuration of `bcnet serve`. Every key has its default value here; delete the keys that you do not change.\n\
         # Variables (BCNET_…) override this file, and flags override both. Paths are relative to the working\n\
         # directory, except those of the bans and of the control socket.\n",
    );
    for (name, table) in Settings::default().tables() {
        out.push('\n');
        append_comment(&mut out, table.about());
        let _ = writeln!(out, "{}", table_header(&name));
        for key in table.keys() {
            out.push('\n');
            append_comment(&mut out, key.about);
            let _ = writeln!(out, "# {}.", capitalize(&(key.form)().replace('`', "")));
            let _ = writeln!(out, "{} = {}", key.name, table.show(key.name));
        }
    }
    append_hook(&mut out);
    out
}

/// Appends a `[[hook]]` table as comments, because there is no hook by default.
fn append_hook(out: &mut String) {
    let hook = Hook::with_default_name(1);
    out.push('\n');
    append_comment(out, hook.about());
    let _ = writeln!(out, "# {}", table_header("hook.1"));
    for key in hook.keys() {
        out.push_str("#\n");
        append_comment(out, key.about);
        let _ = writeln!(out, "# {}.", capitalize(&(key.form)().replace('`', "")));
        let value =
            if key.name == "url" { "\"https://example.org/…\"".into() } else { hook.show(key.name) };
        let _ = writeln!(out, "# {} = {value}", key.name);
    }
}

fn append_comment(out: &mut String, lines: &[&str]) {
    for line in lines {
        let _ = writeln!(out, "#{}", line.replace('`', ""));
    }
}

/// Returns the header of a table in a file.
pub(super) fn table_header(name: &str) -> String {
    name.split_once('.').map_or_else(|| format!("[{name}]"), |(list, _)| format!("[[{list}]]"))
}

fn capitalize(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

/// Returns the effective values, each with its source.
pub(crate) fn effective_values(loaded: &Loaded) -> String {
    let mut out = String::new();
    for (name, table) in loaded.settings.tables().into_iter().chain(loaded.settings.file_only_tables()) {
        let _ = writeln!(out, "{}{}", if out.is_empty() { "" } else { "\n" }, table_header(&name));
        for key in table.keys() {
            let line = format!("{} = {}", key.name, table.show(key.name));
            match loaded.origin(&name, key.name) {
                Origin::Default => writeln!(out, "{line}"),
                origin => writeln!(out, "{line:<40} # {origin}"),
            }
            .ok();
        }
    }
    out
}

/// Returns the text of docs/reference/configuration.md.
pub(crate) fn markdown_page() -> String {
    let mut out = String::from(PAGE_HEADER);
    for (name, table) in Settings::default().tables() {
        let section = name.trim_end_matches(".1");
        let _ = write!(out, "\n## `{}`\n\n{}\n", table_header(&name), join_lines(table.about()));
        let _ = write!(out, "\n| key | default | values | meaning | variable |\n|---|---|---|---|---|\n");
        for key in table.keys() {
            let (values, about) = ((key.form)(), join_lines(key.about));
            let (default, variable) = (table.show(key.name), variable_name(section, key.name));
            let _ = writeln!(out, "| `{}` | `{default}` | {values} | {about} | `{variable}` |", key.name);
        }
    }
    let hook = Hook::with_default_name(1);
    let _ = write!(out, "\n## `{}`\n\n{}\n{HOOKS_SECTION}", table_header("hook.1"), join_lines(hook.about()));
    append_key_table(&mut out, &hook, "url");
    out.push_str(BANS_SECTION);
    append_key_table(&mut out, &Ban::default(), "address");
    out
}

/// Appends a Markdown table of all keys of `table`, without their variables: only the file sets them.
///
/// `required` is the key that has no default.
fn append_key_table(out: &mut String, table: &dyn Table, required: &str) {
    let _ = write!(out, "\n| key | default | values | meaning |\n|---|---|---|---|\n");
    for key in table.keys() {
        let default = match key.name {
            name if name == required => "required".into(),
            name => format!("`{}`", table.show(name)),
        };
        let _ =
            writeln!(out, "| `{}` | {default} | {} | {} |", key.name, (key.form)(), join_lines(key.about));
    }
}

fn join_lines(lines: &[&str]) -> String {
    lines.iter().map(|line| line.trim()).collect::<Vec<_>>().join(" ")
}

const PAGE_HEADER: &str = "\
# Configuration

<!-- Generated by `bcnet config default --markdown`; a test compares this file with its output. -->

This page is for people who host games with `bcnet serve`. It lists every setting. The server also runs without any
configuration. Settings come from four sources; a later source overrides an earlier one:

1. The defaults below.
2. A file: `--config FILE`, else the variable `BCNET_CONFIG`, else `bcnet.toml` in the current directory if it exists.
3. Variables: `BCNET_PORT=22150`. Separate the elements of a list by commas: `BCNET_MASTERS=one.example,two.example:27900`.
4. Flags: `--bind`, `--port`, `--name`, and `--set KEY=VALUE` for every key.

A variable or flag for `session` applies to all sessions. `BCNET_SESSION_2_PORT` and `--set session.2.port=22150` apply
only to the second session, and override the former.

| command | purpose |
|---|---|
| `bcnet config default` | prints a file with every key, its description and its default |
| `bcnet config check [FILE]` | reads the file, the variables and the flags, and reports all problems (exit code 1) |
| `bcnet config show` | prints the effective values and the source of each; passwords stay hidden |

Unknown keys and bad values are errors. A variable with a name similar to one below is an error too: a typing error must
not leave a server without its password. The server ignores other variables that begin with `BCNET_`, for example those
of a container image, and names them in the log (`unknown_variables`).

Paths are relative to the working directory of bcnet. Only `bans` and `control` in a file are relative to the directory
of the file.

`bcnet ctl reload` makes a running server read all settings again; its answer names the changes that need a restart. If
the file has been deleted, the reload fails and the server keeps its settings.
";

const HOOKS_SECTION: &str = "
```toml
[[hook]]
name = \"crew\"
url = \"https://discord.com/api/webhooks/…\"
format = \"discord\"
events = [\"joined\", \"round_ended\", \"master_lost\"]
```

[Send events to Discord or to your program](../how-to/hooks.md) describes the posts. `bcnet ctl test-hook crew` sends a test post.
";

const BANS_SECTION: &str = "
## The file of bans

`bcnet ctl ban` and `bcnet ctl unban` write this file (`server.bans`), and `bcnet proxy --bans` reads it too. You can
edit it while the server runs; `bcnet ctl reload` applies your changes. The server reads the file before it writes it,
so it keeps your changes, except comments.

The server never overwrites a file that it cannot read. A new ban then takes effect at once, and the answer says that it
is not in the file yet. The server writes it when the file is readable and writable again.

```toml
[[ban]]
address = \"192.0.2.0/24\"
expires = 2026-12-24T18:00:00Z
reason = \"ramming\"

[[ban]]
address = \"198.51.100.7\"
```
";
