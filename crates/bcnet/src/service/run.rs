//! The service itself, as the service manager starts it.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

use anyhow::{Context, Result};
use windows_service::service::{
    ServiceControl, ServiceControlAccept, ServiceExitCode, ServiceState, ServiceStatus, ServiceType,
};
use windows_service::service_control_handler::{self, ServiceControlHandlerResult, ServiceStatusHandle};
use windows_service::service_dispatcher;

use super::manage::plain;
use super::names::{NAME, failure_beside, log_beside};
use crate::config::{self, Flags, is_bare};
use crate::file::directory;
use crate::{Verdict, control, file, serve, signals};

/// What the service is started with; the system calls it without arguments.
static CONFIG: OnceLock<PathBuf> = OnceLock::new();
/// Where it tells its state.
static STATUS: OnceLock<ServiceStatusHandle> = OnceLock::new();

/// Runs the service until it is told to stop.
pub(super) fn run(config: &Path) -> Result<Verdict> {
    CONFIG.get_or_init(|| config.to_owned());
    service_dispatcher::start(NAME, service_main)
        .map_err(plain)
        .context("only the service manager starts this; use `bcnet service install`, or `bcnet serve`")?;
    Ok(Verdict::Clean)
}

extern "system" fn service_main(_: u32, _: *mut *mut u16) {
    let (Some(config), Ok(status)) = (CONFIG.get(), service_control_handler::register(NAME, handle)) else {
        return;
    };
    STATUS.get_or_init(|| status);
    tell(ServiceState::StartPending, ServiceExitCode::NO_ERROR);
    let exit_code = match serve(config) {
        Ok(()) => ServiceExitCode::NO_ERROR,
        Err(error) => {
            // Without a file there is nobody else to tell.
            drop(file::replace(&failure_beside(config), format!("{error:#}\r\n").as_bytes()));
            ServiceExitCode::ServiceSpecific(COULD_NOT_RUN)
        }
    };
    tell(ServiceState::Stopped, exit_code);
}

fn serve(config: &Path) -> Result<()> {
    signals::ignore_console();
    // Relative paths of the configuration are beside it, not among the files of the system.
    env::set_current_dir(directory(config)).with_context(|| config.display().to_string())?;
    serve::host(flags(config)?, |_| {
        drop(fs::remove_file(failure_beside(config)));
        tell(ServiceState::Running, ServiceExitCode::NO_ERROR);
    })?;
    Ok(())
}

/// Returns what a service does otherwise than `bcnet serve`: without a terminal its log needs a file, and its pipe must be where
/// administrators look for it, not where its own account would.
fn flags(config: &Path) -> Result<Flags> {
    let mut flags = Flags { config: Some(config.to_owned()), ..Flags::default() };
    let loaded = config::load(&flags, env::vars_os())?;
    if loaded.settings.log.file.is_none() {
        flags.set.push(format!("log.file={}", log_beside(config).display()));
    }
    if let Some(name) = loaded.settings.server.control.as_ref().filter(|path| is_bare(path)) {
        flags.set.push(format!("server.control={}", Path::new(control::SERVICES).join(name).display()));
    }
    Ok(flags)
}

fn handle(control: ServiceControl) -> ServiceControlHandlerResult {
    match control {
        ServiceControl::Stop | ServiceControl::Shutdown => {
            tell(ServiceState::StopPending, ServiceExitCode::NO_ERROR);
            signals::stop();
            ServiceControlHandlerResult::NoError
        }
        ServiceControl::Interrogate => ServiceControlHandlerResult::NoError,
        _ => ServiceControlHandlerResult::NotImplemented,
    }
}

fn tell(state: ServiceState, exit_code: ServiceExitCode) {
    let is_pending = matches!(state, ServiceState::StartPending | ServiceState::StopPending);
    let status = ServiceStatus {
        service_type: ServiceType::OWN_PROCESS,
        current_state: state,
        // Not while it stops: whoever asks twice would end it at once.
        controls_accepted: match state {
            ServiceState::Running => ServiceControlAccept::STOP | ServiceControlAccept::SHUTDOWN,
            _ => ServiceControlAccept::empty(),
        },
        exit_code,
        checkpoint: u32::from(is_pending),
        wait_hint: if is_pending { PATIENCE } else { Duration::ZERO },
        process_id: None,
    };
    // If the service manager does not listen, nobody does.
    if let Some(handle) = STATUS.get() {
        drop(handle.set_service_status(status));
    }
}

/// How long the service manager waits for a start or a stop: goodbyes take less than three seconds, scores and hooks that do not
/// answer ten more.
const PATIENCE: Duration = Duration::from_secs(20);
/// As the exit code of a command that could not run.
const COULD_NOT_RUN: u32 = 2;
