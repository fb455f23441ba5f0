//! Whether the files of a service are safe from others.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};

use super::access::{PathRole, SecurityDescriptor, UntrustedWriter, is_administrative, is_within};
use super::names::{SERVICE_ACCOUNT, SERVICE_SID};
use crate::file::parent_directory;
use crate::win32;

/// Refuses a program that others could change, or that the service could not run.
pub(super) fn check_program(program: &Path) -> Result<()> {
    let user = win32::current_user_sid()?;
    let is_trusted = |trustee: &str| trustee == user || is_administrative(trustee);
    check_path(program, is_trusted, |_, _, _| program_advice())?;
    let text = win32::descriptor_text(program)?;
    let lets_run =
        SecurityDescriptor::parse(&text).is_some_and(|descriptor| descriptor.allows_execution(SERVICE_SID));
    ensure!(
        lets_run,
        "{}: {SERVICE_ACCOUNT}, as which the service runs, may not read it; {}",
        program.display(),
        program_advice()
    );
    Ok(())
}

/// Returns where a program is safe.
fn program_advice() -> String {
    format!(
        "copy bcnet.exe to a directory of its own in {}, and install the service from there",
        variable_or("ProgramFiles", r"C:\Program Files")
    )
}

/// Returns where a configuration is safe.
fn config_advice() -> String {
    format!(
        "the configuration in {}\\bcnet, where `bcnet service install` makes one if it is given none",
        variable_or("ProgramData", r"C:\ProgramData")
    )
}

/// Refuses a configuration beside the program or above it: the service may write there, and a service that somebody else has
/// taken over must not change what an administrator runs.
pub(super) fn check_separate_directories(program: &Path, config: &Path) -> Result<()> {
    let directory = canonical_path(parent_directory(config))?;
    ensure!(
        !is_within(&canonical_path(program)?, &directory),
        "{}: the service may write there, and could change the program, {}; have the program in {}\\bcnet, and {}",
        directory.display(),
        program.display(),
        variable_or("ProgramFiles", r"C:\Program Files"),
        config_advice()
    );
    Ok(())
}

/// Refuses a configuration that others could change.
pub(super) fn check_config(config: &Path) -> Result<()> {
    let user = win32::current_user_sid()?;
    let is_trusted = |trustee: &str| trustee == user || trustee == SERVICE_SID || is_administrative(trustee);
    check_path(config, is_trusted, |writer, role, path| match role {
        PathRole::Own => {
            format!("take that right away: {}", writer.remedy(&path.display().to_string(), path.is_dir()))
        }
        // Others may need it as it is.
        PathRole::Ancestor => format!("have {}", config_advice()),
    })
}

/// Judges a file, its directory, and those above, of which somebody could take away the one below. The highest at fault comes
/// first: below it nothing can be mended.
fn check_path(
    file: &Path,
    is_trusted: impl Fn(&str) -> bool,
    remedy: impl Fn(UntrustedWriter<'_>, PathRole, &Path) -> String,
) -> Result<()> {
    // Links lead elsewhere, and that is what must be safe.
    let real = canonical_path(file)?;
    let places: Vec<_> = real.ancestors().zip(0..).collect();
    for (path, depth) in places.into_iter().rev() {
        let role = if depth < 2 { PathRole::Own } else { PathRole::Ancestor };
        let shown = path.display();
        let text = win32::descriptor_text(path)
            .with_context(|| format!("{shown}: who may change it cannot be told"))?;
        let Some(descriptor) = SecurityDescriptor::parse(&text) else {
            bail!("{shown}: who may change it cannot be told of {text}");
        };
        if let Some(writer) = descriptor.untrusted_writer(role, &is_trusted) {
            let name = win32::account_name(writer.trustee);
            let remedy = remedy(writer, role, path);
            bail!("{shown}: {name} may change it, and with it what the service does; {remedy}");
        }
    }
    Ok(())
}

/// Returns a whole path without links, as people write it: without the mark that the system puts before one.
pub(super) fn canonical_path(path: &Path) -> Result<PathBuf> {
    let real = fs::canonicalize(path).with_context(|| path.display().to_string())?;
    let Some(text) = real.to_str() else { return Ok(real) };
    Ok(match text.strip_prefix(r"\\?\") {
        // With a letter; what is of the network, or of a disk without one, stays as the system has it.
        Some(local) if local.get(1..2) == Some(":") => local.into(),
        _ => real,
    })
}

fn variable_or(name: &str, usual: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| usual.into())
}
