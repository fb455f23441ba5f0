//! Checks that other users cannot change the files of the service.

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
        "{}: the account of the service, {SERVICE_ACCOUNT}, may not read the program; {}",
        program.display(),
        program_advice()
    );
    Ok(())
}

/// Returns the advice for a safe place of the program.
fn program_advice() -> String {
    format!(
        "copy bcnet.exe to a new directory in {}, and install the service from there",
        variable_or("ProgramFiles", r"C:\Program Files")
    )
}

/// Returns the advice for a safe place of the configuration.
fn config_advice() -> String {
    format!(
        "the configuration to {}\\bcnet, where `bcnet service install` creates one by default",
        variable_or("ProgramData", r"C:\ProgramData")
    )
}

/// Refuses a configuration in the directory of the program or above it.
///
/// The service may write to its configuration's directory. A service under an attacker's control must not be
/// able to change a program that an administrator runs.
pub(super) fn check_separate_directories(program: &Path, config: &Path) -> Result<()> {
    let directory = canonical_path(parent_directory(config))?;
    ensure!(
        !is_within(&canonical_path(program)?, &directory),
        "{}: the service may write to this directory, so it could change the program {}; move the program to {}\\bcnet, and {}",
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
            format!("remove that right: {}", writer.remedy(&path.display().to_string(), path.is_dir()))
        }
        // Other programs may need the current rights of this directory.
        PathRole::Ancestor => format!("move {}", config_advice()),
    })
}

/// Checks a file, its directory, and all directories above, from which it could be deleted.
///
/// The topmost unsafe path is reported first, because paths below cannot be secured before it.
fn check_path(
    file: &Path,
    is_trusted: impl Fn(&str) -> bool,
    remedy: impl Fn(UntrustedWriter<'_>, PathRole, &Path) -> String,
) -> Result<()> {
    // The target of a link is what must be safe.
    let real = canonical_path(file)?;
    let ancestors: Vec<_> = real.ancestors().zip(0..).collect();
    for (path, depth) in ancestors.into_iter().rev() {
        let role = if depth < 2 { PathRole::Own } else { PathRole::Ancestor };
        let shown = path.display();
        let text = win32::descriptor_text(path)
            .with_context(|| format!("{shown}: cannot read who may change it"))?;
        let Some(descriptor) = SecurityDescriptor::parse(&text) else {
            bail!("{shown}: cannot parse who may change it: {text}");
        };
        if let Some(writer) = descriptor.untrusted_writer(role, &is_trusted) {
            let name = win32::account_name(writer.trustee);
            let remedy = remedy(writer, role, path);
            bail!("{shown}: {name} may change it, and so could control the service; {remedy}");
        }
    }
    Ok(())
}

/// Returns an absolute path without links and without the prefix `\\?\`.
pub(super) fn canonical_path(path: &Path) -> Result<PathBuf> {
    let real = fs::canonicalize(path).with_context(|| path.display().to_string())?;
    let Some(text) = real.to_str() else { return Ok(real) };
    Ok(match text.strip_prefix(r"\\?\") {
        // Only a path with a drive letter is shortened. Other paths, such as network paths, keep the prefix.
        Some(local) if local.get(1..2) == Some(":") => local.into(),
        _ => real,
    })
}

fn variable_or(name: &str, usual: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| usual.into())
}
