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

use super::manage::explain_error;
use super::names::{SERVICE_NAME, failure_path, log_path};
use crate::config::{self, ConfigFlags, is_bare_file_name};
use crate::file::parent_directory;
use crate::{CommandStatus, control, file, serve, signals};

/// What the service is started with; the system calls it without arguments.
static CONFIG_PATH: OnceLock<PathBuf> = OnceLock::new();
/// Where it tells its state.
static STATUS_HANDLE: OnceLock<ServiceStatusHandle> = OnceLock::new();

/// Runs the service until it is told to stop.
pub(super) fn run(config: &Path) -> Result<CommandStatus> {
    CONFIG_PATH.get_or_init(|| config.to_owned());
    service_dispatcher::start(SERVICE_NAME, service_main)
        .map_err(explain_error)
        .context("only the service manager starts this; use `bcnet service install`, or `bcnet serve`")?;
    Ok(CommandStatus::Clean)
}

extern "system" fn service_main(_: u32, _: *mut *mut u16) {
    let (Some(config), Ok(status)) =
        (CONFIG_PATH.get(), service_control_handler::register(SERVICE_NAME, handle_control))
    else {
        return;
    };
    STATUS_HANDLE.get_or_init(|| status);
    report_state(ServiceState::StartPending, ServiceExitCode::NO_ERROR);
    let exit_code = match serve(config) {
        Ok(()) => ServiceExitCode::NO_ERROR,
        Err(error) => {
            // Without a file there is nobody else to tell.
            drop(file::replace(&failure_path(config), format!("{error:#}\r\n").as_bytes()));
            ServiceExitCode::ServiceSpecific(COULD_NOT_RUN)
        }
    };
    report_state(ServiceState::Stopped, exit_code);
}

fn serve(config: &Path) -> Result<()> {
    signals::ignore_console();
    // Relative paths of the configuration are beside it, not among the files of the system.
    env::set_current_dir(parent_directory(config)).with_context(|| config.display().to_string())?;
    serve::host(service_flags(config)?, |_| {
        drop(fs::remove_file(failure_path(config)));
        report_state(ServiceState::Running, ServiceExitCode::NO_ERROR);
    })?;
    Ok(())
}

/// Returns what a service does otherwise than `bcnet serve`: without a terminal its log needs a file, and its pipe must be where
/// administrators look for it, not where its own account would.
fn service_flags(config: &Path) -> Result<ConfigFlags> {
    let mut flags = ConfigFlags { config: Some(config.to_owned()), ..ConfigFlags::default() };
    let loaded = config::load(&flags, env::vars_os())?;
    if loaded.settings.log.file.is_none() {
        flags.set.push(format!("log.file={}", log_path(config).display()));
    }
    if let Some(name) = loaded.settings.server.control.as_ref().filter(|path| is_bare_file_name(path)) {
        flags
            .set
            .push(format!("server.control={}", Path::new(control::SERVICE_DIRECTORY).join(name).display()));
    }
    Ok(flags)
}

fn handle_control(control: ServiceControl) -> ServiceControlHandlerResult {
    match control {
        ServiceControl::Stop | ServiceControl::Shutdown => {
            report_state(ServiceState::StopPending, ServiceExitCode::NO_ERROR);
            signals::stop();
            ServiceControlHandlerResult::NoError
        }
        ServiceControl::Interrogate => ServiceControlHandlerResult::NoError,
        _ => ServiceControlHandlerResult::NotImplemented,
    }
}

fn report_state(state: ServiceState, exit_code: ServiceExitCode) {
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
        wait_hint: if is_pending { WAIT_HINT } else { Duration::ZERO },
        process_id: None,
    };
    // If the service manager does not listen, nobody does.
    if let Some(handle) = STATUS_HANDLE.get() {
        drop(handle.set_service_status(status));
    }
}

/// How long the service manager waits for a start or a stop: goodbyes take less than three seconds, scores and hooks that do not
/// answer ten more.
const WAIT_HINT: Duration = Duration::from_secs(20);
/// As the exit code of a command that could not run.
const COULD_NOT_RUN: u32 = 2;
