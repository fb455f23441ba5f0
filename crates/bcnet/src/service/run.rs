//! The service process, as the service manager starts it.

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

/// The configuration from the command line. The system calls [`service_main`] without it.
static CONFIG_PATH: OnceLock<PathBuf> = OnceLock::new();
/// The handle for reporting the service's state.
static STATUS_HANDLE: OnceLock<ServiceStatusHandle> = OnceLock::new();

/// Runs the service until it is stopped.
pub(super) fn run(config: &Path) -> Result<CommandStatus> {
    CONFIG_PATH.get_or_init(|| config.to_owned());
    service_dispatcher::start(SERVICE_NAME, service_main).map_err(explain_error).context(
        "only the service manager can run this command; use `bcnet service install` or `bcnet serve`",
    )?;
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
            // If this write fails, there is no other place for the message.
            drop(file::replace(&failure_path(config), format!("{error:#}\r\n").as_bytes()));
            ServiceExitCode::ServiceSpecific(COULD_NOT_RUN)
        }
    };
    report_state(ServiceState::Stopped, exit_code);
}

fn serve(config: &Path) -> Result<()> {
    signals::ignore_console();
    // Relative paths in the configuration refer to its directory, not to a system directory.
    env::set_current_dir(parent_directory(config)).with_context(|| config.display().to_string())?;
    serve::host(service_flags(config)?, |_| {
        drop(fs::remove_file(failure_path(config)));
        report_state(ServiceState::Running, ServiceExitCode::NO_ERROR);
    })?;
    Ok(())
}

/// Returns the settings that differ from `bcnet serve`.
///
/// Without a terminal the log needs a file. The pipe must be where administrators look for it, not in the
/// directory of the service's account.
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
        // No stop is accepted while the service stops: a second one would end the process at once.
        controls_accepted: match state {
            ServiceState::Running => ServiceControlAccept::STOP | ServiceControlAccept::SHUTDOWN,
            _ => ServiceControlAccept::empty(),
        },
        exit_code,
        checkpoint: u32::from(is_pending),
        wait_hint: if is_pending { WAIT_HINT } else { Duration::ZERO },
        process_id: None,
    };
    // An error is ignored: only the service manager could receive it.
    if let Some(handle) = STATUS_HANDLE.get() {
        drop(handle.set_service_status(status));
    }
}

/// The time that the service manager waits for a start or stop.
///
/// Disconnecting players takes less than three seconds, and slow scores and hooks take up to ten more.
const WAIT_HINT: Duration = Duration::from_secs(20);
/// The exit code of a command that could not run.
const COULD_NOT_RUN: u32 = 2;
