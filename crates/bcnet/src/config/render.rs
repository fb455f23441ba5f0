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

/// Returns the text of docs/configuration.md.
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

/// Appends the keys of a table that variables cannot set. `required` is the mandatory key.
fn append_key_table(out: &mut String, table: &dyn Table, required: &str) {
    let _ = write!(out, "\n| key | if it is missing | values | meaning |\n|---|---|---|---|\n");
    for key in table.keys() {
        let default = match key.name {
            name if name == required => "an error".into(),
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

<!-- Made by `bcnet config default --markdown`; a test compares. -->

`bcnet serve` needs no configuration. What it is told comes from four places; the later wins:

1. the defaults below,
2. a file: `--config FILE`, else the variable `BCNET_CONFIG`, else `bcnet.toml` in the current directory if it exists,
3. variables: `BCNET_PORT=22150`. Lists have commas: `BCNET_MASTERS=one.example,two.example:27900`,
4. flags: `--bind`, `--port`, `--name`, and `--set KEY=VALUE` for every key.

With several sessions, a variable or flag for `session` counts for all of them; `BCNET_SESSION_2_PORT` and
`--set session.2.port=22150` are for the second only, and win.

| command | does |
|---|---|
| `bcnet config default` | prints a file with every key, its meaning and its default |
| `bcnet config check [FILE]` | reads the file, the variables and the flags, and tells everything that is wrong (exit code 1) |
| `bcnet config show` | prints the effective values and where each comes from; passwords stay hidden |

Unknown keys and bad values are errors, and so are variables that are spelt almost like those below, so that a typing error
cannot leave a server without its password. Other variables that begin with `BCNET_`, of an image or a panel, are ignored; the
log names them (`unknown_variables`). Paths are relative to the directory in which bcnet runs, but for `bans` and `control`, which belong to the
file: in it they are relative to the directory of the file. `bcnet ctl reload` makes a running server read all
of it again; the answer says what needs a restart. A file that is gone is an error then, not a server without settings.
";

const HOOKS_SECTION: &str = "
```toml
[[hook]]
name = \"crew\"
url = \"https://discord.com/api/webhooks/…\"
format = \"discord\"
events = [\"joined\", \"round_ended\", \"master_lost\"]
```

[What is posted](server.md#hooks), and `bcnet ctl test-hook crew`.
";

const BANS_SECTION: &str = "
## The file of bans

`bcnet ctl ban` and `unban` write it (`server.bans`), and `bcnet proxy --bans` reads it too. It can be edited by hand while
the server runs; `bcnet ctl reload` puts that in force. The server reads the file again before it writes it, so
nothing of that is lost but comments. It never writes over a file that it cannot read: a ban then counts all the same, the
answer says that it is not in the file yet, and it gets there when the file can be read and written again.

```toml
[[ban]]
address = \"192.0.2.0/24\"
expires = 2026-12-24T18:00:00Z
reason = \"ramming\"

[[ban]]
address = \"198.51.100.7\"
```
";
