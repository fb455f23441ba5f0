//! Whether the files of a service are safe from others.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};

use super::access::{Descriptor, Place, Stranger, is_of_administrators, is_within};
use super::names::{ACCOUNT, ACCOUNT_NUMBER};
use crate::file::directory;
use crate::win32;

/// Refuses a program that others could change, or that the service could not run.
pub(super) fn check_program(program: &Path) -> Result<()> {
    let user = win32::user()?;
    let is_trusted = |who: &str| who == user || is_of_administrators(who);
    check(program, is_trusted, |_, _, _| elsewhere())?;
    let text = win32::descriptor(program)?;
    let lets_run = Descriptor::parse(&text).is_some_and(|descriptor| descriptor.lets_run(ACCOUNT_NUMBER));
    ensure!(
        lets_run,
        "{}: {ACCOUNT}, as which the service runs, may not read it; {}",
        program.display(),
        elsewhere()
    );
    Ok(())
}

/// Returns where a program is safe.
fn elsewhere() -> String {
    format!(
        "copy bcnet.exe to a directory of its own in {}, and install the service from there",
        variable("ProgramFiles", r"C:\Program Files")
    )
}

/// Returns where a configuration is safe.
fn usual_place() -> String {
    format!(
        "the configuration in {}\\bcnet, where `bcnet service install` makes one if it is given none",
        variable("ProgramData", r"C:\ProgramData")
    )
}

/// Refuses a configuration beside the program or above it: the service may write there, and a service that somebody else has
/// taken over must not change what an administrator runs.
pub(super) fn check_apart(program: &Path, config: &Path) -> Result<()> {
    let directory = real(directory(config))?;
    ensure!(
        !is_within(&real(program)?, &directory),
        "{}: the service may write there, and could change the program, {}; have the program in {}\\bcnet, and {}",
        directory.display(),
        program.display(),
        variable("ProgramFiles", r"C:\Program Files"),
        usual_place()
    );
    Ok(())
}

/// Refuses a configuration that others could change.
pub(super) fn check_config(config: &Path) -> Result<()> {
    let user = win32::user()?;
    let is_trusted = |who: &str| who == user || who == ACCOUNT_NUMBER || is_of_administrators(who);
    check(config, is_trusted, |stranger, place, path| match place {
        Place::Own => {
            format!("take that right away: {}", stranger.remedy(&path.display().to_string(), path.is_dir()))
        }
        // Others may need it as it is.
        Place::Above => format!("have {}", usual_place()),
    })
}

/// Judges a file, its directory, and those above, of which somebody could take away the one below. The highest at fault comes
/// first: below it nothing can be mended.
fn check(
    file: &Path,
    is_trusted: impl Fn(&str) -> bool,
    remedy: impl Fn(Stranger<'_>, Place, &Path) -> String,
) -> Result<()> {
    // Links lead elsewhere, and that is what must be safe.
    let real = real(file)?;
    let places: Vec<_> = real.ancestors().zip(0..).collect();
    for (path, depth) in places.into_iter().rev() {
        let place = if depth < 2 { Place::Own } else { Place::Above };
        let shown = path.display();
        let text =
            win32::descriptor(path).with_context(|| format!("{shown}: who may change it cannot be told"))?;
        let Some(descriptor) = Descriptor::parse(&text) else {
            bail!("{shown}: who may change it cannot be told of {text}");
        };
        if let Some(stranger) = descriptor.stranger(place, &is_trusted) {
            let who = win32::account(stranger.who);
            let remedy = remedy(stranger, place, path);
            bail!("{shown}: {who} may change it, and with it what the service does; {remedy}");
        }
    }
    Ok(())
}

/// Returns a whole path without links, as people write it: without the mark that the system puts before one.
pub(super) fn real(path: &Path) -> Result<PathBuf> {
    let real = fs::canonicalize(path).with_context(|| path.display().to_string())?;
    let Some(text) = real.to_str() else { return Ok(real) };
    Ok(match text.strip_prefix(r"\\?\") {
        // With a letter; what is of the network, or of a disk without one, stays as the system has it.
        Some(local) if local.get(1..2) == Some(":") => local.into(),
        _ => real,
    })
}

fn variable(name: &str, usual: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| usual.into())
}
