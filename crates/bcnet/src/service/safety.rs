//! Whether the files of a service are safe from others.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};

use super::access::{Descriptor, Place, is_of_administrators};
use super::names::{ACCOUNT, ACCOUNT_NUMBER};
use crate::file::directory;
use crate::win32;

/// Refuses a program that others could change, or that the service could not run.
pub(super) fn check_program(program: &Path) -> Result<()> {
    let user = win32::user()?;
    let is_trusted = |who: &str| who == user || is_of_administrators(who);
    check(program, is_trusted, || {
        format!(
            "copy bcnet.exe to a directory of its own in {}, and install the service from there",
            program_files()
        )
    })?;
    let text = win32::descriptor(program)?;
    let lets_run = Descriptor::parse(&text).is_some_and(|descriptor| descriptor.lets_run(ACCOUNT_NUMBER));
    ensure!(
        lets_run,
        "{}: {ACCOUNT}, as which the service runs, may not read it; copy bcnet.exe to a directory of its own in {}, and \
         install the service from there",
        program.display(),
        program_files()
    );
    Ok(())
}

/// Refuses a configuration that others could change.
pub(super) fn check_config(config: &Path) -> Result<()> {
    let user = win32::user()?;
    let is_trusted = |who: &str| who == user || who == ACCOUNT_NUMBER || is_of_administrators(who);
    check(config, is_trusted, || {
        format!(
            "take that right away: icacls \"{}\" /inheritance:r /grant *S-1-5-32-544:(OI)(CI)F *S-1-5-18:(OI)(CI)F",
            directory(config).display()
        )
    })
}

/// Judges a file, its directory, and those above, of which somebody could take away the one below.
fn check(file: &Path, is_trusted: impl Fn(&str) -> bool, remedy: impl Fn() -> String) -> Result<()> {
    // Links lead elsewhere, and that is what must be safe.
    let real = fs::canonicalize(file).with_context(|| file.display().to_string())?;
    for (path, depth) in real.ancestors().zip(0..) {
        let place = if depth < 2 { Place::Own } else { Place::Above };
        let shown = shown(path);
        let text =
            win32::descriptor(path).with_context(|| format!("{shown}: who may change it cannot be told"))?;
        let Some(descriptor) = Descriptor::parse(&text) else {
            bail!("{shown}: who may change it cannot be told of {text}");
        };
        if let Some(stranger) = descriptor.stranger(place, &is_trusted) {
            let who = win32::account(stranger);
            bail!("{shown}: {who} may change it, and with it what the service does; {}", remedy());
        }
    }
    Ok(())
}

/// Returns a path as people write it, without the mark that the system puts before a whole one.
fn shown(path: &Path) -> String {
    let text = path.display().to_string();
    text.strip_prefix(r"\\?\").map_or_else(|| text.clone(), ToOwned::to_owned)
}

fn program_files() -> String {
    std::env::var("ProgramFiles").unwrap_or_else(|_| r"C:\Program Files".into())
}
