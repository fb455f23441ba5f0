//! `bcnet completions` and `bcnet man`: shell completions and manual pages from the definitions of `--help`.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::{Command, CommandFactory};
use clap_complete::Shell;

use crate::{Args, CommandStatus, VERSION};

/// The arguments of `bcnet completions`.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  bcnet completions bash > ~/.local/share/bash-completion/completions/bcnet
  bcnet completions zsh > ~/.zfunc/_bcnet
  bcnet completions fish > ~/.config/fish/completions/bcnet.fish
  bcnet completions powershell >> $PROFILE")]
pub(crate) struct CompletionsArgs {
    /// The shell to write the script for
    shell: Shell,
}

/// The arguments of `bcnet man`.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  bcnet man | man -l -
  bcnet man --dir /usr/local/share/man/man1")]
pub(crate) struct ManArgs {
    /// Write bcnet.1, bcnet-serve.1 and so on to this directory, which must exist
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

/// Prints the script that completes commands and options.
pub(crate) fn completions(args: &CompletionsArgs) -> Result<CommandStatus> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Args::command(), "bcnet", &mut script);
    io::stdout().write_all(&script)?;
    Ok(CommandStatus::Clean)
}

/// Prints the manual page of the program, or writes one page for each command.
pub(crate) fn man(args: &ManArgs) -> Result<CommandStatus> {
    let mut command = Args::command().disable_help_subcommand(true);
    command.build();
    match &args.dir {
        Some(dir) => write_pages(command, dir)?,
        None => man_page(command).render(&mut io::stdout())?,
    }
    Ok(CommandStatus::Clean)
}

/// Returns the manual page of a command, with the version in its footer.
fn man_page(command: Command) -> clap_mangen::Man {
    clap_mangen::Man::new(command).source(format!("bcnet {VERSION}"))
}

/// Writes the page of a command and of all its subcommands.
fn write_pages(command: Command, dir: &Path) -> Result<()> {
    for inner in command.get_subcommands() {
        write_pages(inner.clone(), dir)?;
    }
    let man = man_page(command);
    let path = dir.join(man.get_filename());
    let mut page = Vec::new();
    man.render(&mut page)?;
    std::fs::write(&path, page).with_context(|| format!("{}: cannot write the manual page", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Calls `visit` with the command and all its subcommands, at any depth.
    fn visit_commands(command: &Command, visit: &mut dyn FnMut(&Command)) {
        visit(command);
        for inner in command.get_subcommands() {
            visit_commands(inner, visit);
        }
    }

    fn built_command() -> Command {
        let mut command = Args::command();
        command.build();
        command
    }

    /// Users copy the examples, and a wrapped command is copied wrongly.
    #[test]
    fn help_examples_fit_80_columns() {
        let mut examples = 0;
        visit_commands(&built_command(), &mut |command| {
            let mut narrow = command.clone().term_width(80);
            let helps = [narrow.render_help(), narrow.render_long_help()].map(|help| help.to_string());
            let text = [command.get_after_help(), command.get_after_long_help()];
            for text in text.into_iter().flatten().map(ToString::to_string) {
                for line in text.lines().filter(|line| line.trim_start().starts_with("bcnet ")) {
                    let whole = helps.iter().all(|help| help.lines().any(|shown| shown == line));
                    assert!(whole, "{}: {line}", command.get_display_name().unwrap_or_default());
                    examples += 1;
                }
            }
        });
        assert!(examples > 20, "{examples}");
    }

    /// Checks the names of commands in the script of each shell.
    #[test]
    fn completions_cover_every_command_in_every_shell() {
        for shell in [Shell::Bash, Shell::Elvish, Shell::Fish, Shell::PowerShell, Shell::Zsh] {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Args::command(), "bcnet", &mut script);
            let script = String::from_utf8(script).expect("text");
            visit_commands(&built_command(), &mut |command| {
                assert!(script.contains(command.get_name()), "{shell}: {}", command.get_name())
            });
        }
    }

    #[test]
    fn man_pages_list_all_options() {
        visit_commands(&built_command(), &mut |command| {
            let mut page = Vec::new();
            man_page(command.clone()).render(&mut page).expect("memory");
            let page = String::from_utf8(page).expect("text");
            let shown = command.get_arguments().filter(|argument| !argument.is_hide_set());
            for option in shown.filter_map(|argument| argument.get_long()) {
                assert!(page.contains(&option.replace('-', "\\-")), "{}: --{option}", command.get_name());
            }
        });
    }
}
