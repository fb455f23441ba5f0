//! `bcnet service install`, `remove` and `status`: the requests to the service manager.

use std::fmt::Write as _;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{env, fs, thread};

use anyhow::{Context, Result, anyhow, ensure};
use windows_service::service::{
    Service, ServiceAccess, ServiceAction, ServiceActionType, ServiceErrorControl, ServiceFailureActions,
    ServiceFailureResetPeriod, ServiceInfo, ServiceStartType, ServiceState, ServiceType,
};
use windows_service::service_manager::{ServiceManager, ServiceManagerAccess};

use super::names::{
    SERVICE_ACCOUNT, SERVICE_NAME, SERVICE_SID, config_from_command_line, failure_path, launch_arguments,
};
use super::safety::{canonical_path, check_config, check_program, check_separate_directories};
use crate::config::{self, ConfigFlags};
use crate::file::parent_directory;
use crate::{CommandStatus, standard_output, win32};

/// Installs the service and starts it.
pub(super) fn install(config: Option<&Path>) -> Result<CommandStatus> {
    let manager = manager(ServiceManagerAccess::CONNECT | ServiceManagerAccess::CREATE_SERVICE)?;
    ensure!(
        open(&manager, ServiceAccess::QUERY_STATUS)?.is_none(),
        "the service is installed already; remove it first with `bcnet service remove`"
    );
    let program = env::current_exe()?;
    check_program(&program)?;
    let config = match config {
        Some(path) => {
            let hint = "the configuration does not exist; `bcnet config default` prints one to start from";
            ensure!(path.is_file(), "{}: {hint}", path.display());
            path.to_owned()
        }
        None => create_default_config()?,
    };
    // Resolves links now, so that nobody can redirect the path later.
    let config = canonical_path(&config)?;
    check_separate_directories(&program, &config)?;
    check_config(&config)?;
    config::load(&ConfigFlags { config: Some(config.clone()), ..ConfigFlags::default() }, [])?;
    win32::grant_access(parent_directory(&config), SERVICE_SID).with_context(|| {
        format!("{}: cannot give the service access to this directory", parent_directory(&config).display())
    })?;
    let service = create(&manager, &program, &config)?;
    service
        .start::<&str>(&[])
        .map_err(explain_error)
        .context("the service is installed, but it does not start")?;
    let state = wait_while(&service, ServiceState::StartPending)?;
    let mut text = describe(&service, state)?;
    if state == ServiceState::Running {
        let _ = write!(
            text,
            "\nWindows does not ask for firewall access for a service. If players cannot connect, add a rule:\n  \
             netsh advfirewall firewall add rule name=bcnet dir=in action=allow protocol=UDP program=\"{}\"\n",
            program.display()
        );
    }
    standard_output::lock().write_all(text.as_bytes())?;
    Ok(verdict(state))
}

/// Stops the service and removes it.
pub(super) fn remove() -> Result<CommandStatus> {
    let manager = manager(ServiceManagerAccess::CONNECT)?;
    let access = ServiceAccess::QUERY_STATUS
        | ServiceAccess::QUERY_CONFIG
        | ServiceAccess::STOP
        | ServiceAccess::DELETE;
    let service = open(&manager, access)?.context(NOT_INSTALLED)?;
    let config = config_from_command_line(
        &service.query_config().map_err(explain_error)?.executable_path.to_string_lossy(),
    );
    if service.query_status().map_err(explain_error)?.current_state != ServiceState::Stopped {
        service.stop().map_err(explain_error).context("the service does not stop")?;
        let state = wait_while(&service, ServiceState::StopPending)?;
        ensure!(
            state == ServiceState::Stopped,
            "the service does not stop: its state is {}",
            state_name(state)
        );
    }
    service.delete().map_err(explain_error)?;
    let files = config.map(|config| format!("; its files remain in {}", parent_directory(&config).display()));
    writeln!(standard_output::lock(), "the service {SERVICE_NAME} is removed{}", files.unwrap_or_default())?;
    Ok(CommandStatus::Clean)
}

/// Prints the state of the service.
pub(super) fn status() -> Result<CommandStatus> {
    let manager = manager(ServiceManagerAccess::CONNECT)?;
    let Some(service) = open(&manager, ServiceAccess::QUERY_STATUS | ServiceAccess::QUERY_CONFIG)? else {
        writeln!(standard_output::lock(), "{NOT_INSTALLED}")?;
        return Ok(CommandStatus::Findings);
    };
    let state = service.query_status().map_err(explain_error)?.current_state;
    standard_output::lock().write_all(describe(&service, state)?.as_bytes())?;
    Ok(verdict(state))
}

fn verdict(state: ServiceState) -> CommandStatus {
    if state == ServiceState::Running { CommandStatus::Clean } else { CommandStatus::Findings }
}

/// Returns the description of an installed service for `bcnet service status`.
fn describe(service: &Service, state: ServiceState) -> Result<String> {
    let config = service.query_config().map_err(explain_error)?;
    let command = config.executable_path.to_string_lossy();
    let mut text = format!("service  {SERVICE_NAME}: {}\ncommand  {command}\n", state_name(state));
    if let Some(account) = &config.account_name {
        let _ = writeln!(text, "account  {}", account.to_string_lossy());
    }
    if let Some(config) = config_from_command_line(&command) {
        let _ = writeln!(text, "files    {}", parent_directory(&config).display());
        let failure = fs::read_to_string(failure_path(&config)).unwrap_or_default();
        if state != ServiceState::Running && !failure.is_empty() {
            let _ = writeln!(text, "problem  {}", failure.trim_end());
        }
    }
    Ok(text)
}

fn state_name(state: ServiceState) -> &'static str {
    match state {
        ServiceState::Stopped => "stopped",
        ServiceState::StartPending => "starting",
        ServiceState::StopPending => "stopping",
        ServiceState::Running => "running",
        ServiceState::ContinuePending | ServiceState::PausePending | ServiceState::Paused => "paused",
    }
}

fn manager(access: ServiceManagerAccess) -> Result<ServiceManager> {
    ServiceManager::local_computer(None::<&str>, access).map_err(explain_error)
}

/// Opens the service, if it is installed.
fn open(manager: &ServiceManager, access: ServiceAccess) -> Result<Option<Service>> {
    match manager.open_service(SERVICE_NAME, access) {
        Ok(service) => Ok(Some(service)),
        Err(windows_service::Error::Winapi(error)) if win32::is_no_such_service(&error) => Ok(None),
        Err(error) => Err(explain_error(error)),
    }
}

fn create(manager: &ServiceManager, program: &Path, config: &Path) -> Result<Service> {
    let info = ServiceInfo {
        name: SERVICE_NAME.into(),
        display_name: "bcnet game server".into(),
        service_type: ServiceType::OWN_PROCESS,
        start_type: ServiceStartType::AutoStart,
        error_control: ServiceErrorControl::Normal,
        executable_path: program.to_owned(),
        launch_arguments: launch_arguments(config),
        dependencies: Vec::new(),
        account_name: Some(SERVICE_ACCOUNT.into()),
        account_password: None,
    };
    let access = ServiceAccess::QUERY_STATUS
        | ServiceAccess::QUERY_CONFIG
        | ServiceAccess::CHANGE_CONFIG
        | ServiceAccess::START
        | ServiceAccess::DELETE;
    let service = manager.create_service(&info, access).map_err(explain_error)?;
    let finished = service
        .set_description("Hosts games of Star Trek: Bridge Commander.")
        .and_then(|()| service.update_failure_actions(restart_actions()));
    if let Err(error) = finished {
        // A partly configured service is worse than none.
        drop(service.delete());
        return Err(explain_error(error));
    }
    Ok(service)
}

/// Returns the actions after a crash: restart, with a longer delay each time.
fn restart_actions() -> ServiceFailureActions {
    let restart = |seconds| ServiceAction {
        action_type: ServiceActionType::Restart,
        delay: Duration::from_secs(seconds),
    };
    ServiceFailureActions {
        reset_period: ServiceFailureResetPeriod::After(Duration::from_secs(86_400)),
        reboot_msg: None,
        command: None,
        actions: Some(vec![restart(5), restart(60), restart(300)]),
    }
}

/// Waits while the service is in the state `pending`. Returns its next state.
fn wait_while(service: &Service, pending: ServiceState) -> Result<ServiceState> {
    for _ in 0..MAX_POLLS {
        let state = service.query_status().map_err(explain_error)?.current_state;
        if state != pending {
            return Ok(state);
        }
        thread::sleep(POLL_INTERVAL);
    }
    Ok(pending)
}

/// Returns the default configuration, and creates it if it does not exist.
///
/// Its directory is for administrators only.
fn create_default_config() -> Result<PathBuf> {
    let base = env::var_os("ProgramData")
        .context("the variable ProgramData is not set; name the configuration with --config")?;
    let directory = PathBuf::from(base).join("bcnet");
    let config = directory.join("bcnet.toml");
    let rights = "D:P(A;OICI;FA;;;BA)(A;OICI;FA;;;SY)";
    match win32::create_directory(&directory, rights) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
        made => made.with_context(|| directory.display().to_string())?,
    }
    // Every user may create directories and links in this place, so a link is not trusted.
    let is_link = fs::symlink_metadata(&directory)?.is_symlink();
    ensure!(
        !is_link,
        "{}: this is a link to another place; delete it, and find out who created it",
        directory.display()
    );
    if !config.try_exists()? {
        crate::file::replace(&config, config::render::default_file().as_bytes())
            .with_context(|| format!("{}: cannot be written", config.display()))?;
    }
    Ok(config)
}

/// Returns the system's error with a remedy.
pub(super) fn explain_error(error: windows_service::Error) -> anyhow::Error {
    match error {
        windows_service::Error::Winapi(error) if error.kind() == ErrorKind::PermissionDenied => {
            anyhow!(
                "only an administrator may do this; start the terminal with `Run as administrator` ({error})"
            )
        }
        windows_service::Error::Winapi(error) => error.into(),
        other => other.into(),
    }
}

const NOT_INSTALLED: &str = "the service bcnet is not installed; install it with `bcnet service install`";
const MAX_POLLS: u32 = 250;
const POLL_INTERVAL: Duration = Duration::from_millis(100);
