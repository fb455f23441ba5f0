//! Calls of Windows that the standard library does not have.
//!
//! The one place of the program that calls it by hand. Every pointer that is given away points into a variable of the same
//! function, to a constant, or to what the system itself gave and takes back.
#![expect(unsafe_code, reason = "the standard library has no such calls")]

mod permissions;
mod shutdown;

use std::ffi::c_void;
use std::fs::File;
use std::io;
use std::os::windows::io::{AsRawHandle, FromRawHandle, IntoRawHandle, OwnedHandle};
use std::path::Path;
use std::ptr;
use std::time::Duration;

use mio::windows::NamedPipe;
use windows_sys::Win32::Foundation::{
    ERROR_PIPE_BUSY, ERROR_SERVICE_DOES_NOT_EXIST, FILETIME, HANDLE, INVALID_HANDLE_VALUE, LocalFree,
};
use windows_sys::Win32::Media::timeBeginPeriod;
use windows_sys::Win32::Security::Authorization::{
    ConvertSidToStringSidW, ConvertStringSecurityDescriptorToSecurityDescriptorW, GetSecurityInfo,
    SDDL_REVISION_1, SE_KERNEL_OBJECT,
};
use windows_sys::Win32::Security::{
    GetTokenInformation, OWNER_SECURITY_INFORMATION, PSID, SECURITY_ATTRIBUTES, TOKEN_QUERY, TOKEN_USER,
    TokenUser,
};
use windows_sys::Win32::Storage::FileSystem::{
    FILE_FLAG_FIRST_PIPE_INSTANCE, FILE_FLAG_OVERLAPPED, GetDiskFreeSpaceExW, PIPE_ACCESS_DUPLEX,
    SECURITY_IDENTIFICATION,
};
use windows_sys::Win32::System::Console::{
    ENABLE_EXTENDED_FLAGS, ENABLE_QUICK_EDIT_MODE, GetConsoleMode, GetConsoleProcessList, GetStdHandle,
    STD_INPUT_HANDLE, SetConsoleMode,
};
use windows_sys::Win32::System::IO::CancelIoEx;
use windows_sys::Win32::System::Pipes::{
    CreateNamedPipeW, PIPE_READMODE_BYTE, PIPE_REJECT_REMOTE_CLIENTS, PIPE_TYPE_BYTE,
    PIPE_UNLIMITED_INSTANCES, PIPE_WAIT,
};
use windows_sys::Win32::System::ProcessStatus::{K32GetProcessMemoryInfo, PROCESS_MEMORY_COUNTERS};
use windows_sys::Win32::System::Threading::{GetCurrentProcess, GetProcessTimes, OpenProcessToken};
use windows_sys::core::{BOOL, PWSTR};

use crate::usage::ResourceUsage;
pub(crate) use permissions::{
    account_name, copy_permissions, create_directory, create_private_file, descriptor_text, grant_access,
};
pub(crate) use shutdown::{ShutdownRequest, listen_for_shutdown};

/// Opens a pipe so that one can wait for it.
pub(crate) const OVERLAPPED: u32 = FILE_FLAG_OVERLAPPED;
/// Lets who listens at a pipe find out who connects, and do nothing in their name.
pub(crate) const IDENTIFICATION_ONLY: u32 = SECURITY_IDENTIFICATION;

/// Returns how many programs share the console: one, if it was made for this one alone; none without a console.
pub(crate) fn console_process_count() -> u32 {
    let mut processes = [0; 2];
    // SAFETY: the pointer is to an array with room for as many as is said.
    unsafe { GetConsoleProcessList(processes.as_mut_ptr(), processes.len() as u32) }
}

/// Returns how many bytes this user can still write into a directory.
pub(crate) fn free_bytes(directory: &Path) -> io::Result<u64> {
    let (name, mut free) = (permissions::wide_path(directory), 0);
    // SAFETY: the pointers are to a text that ends in a zero and to a variable, both of this function.
    let told = unsafe { GetDiskFreeSpaceExW(name.as_ptr(), &raw mut free, ptr::null_mut(), ptr::null_mut()) };
    check(told).map(|()| free)
}

/// Returns what this process takes of the machine.
pub(crate) fn process_usage() -> ResourceUsage {
    ResourceUsage { cpu_time: processor_time(), memory_bytes: memory() }
}

fn processor_time() -> Option<Duration> {
    let nothing = FILETIME { dwLowDateTime: 0, dwHighDateTime: 0 };
    let [mut created, mut exited, mut kernel, mut user] = [nothing; 4];
    // SAFETY: the pointers are to variables of this function.
    let told = unsafe {
        GetProcessTimes(
            GetCurrentProcess(),
            &raw mut created,
            &raw mut exited,
            &raw mut kernel,
            &raw mut user,
        )
    };
    check(told).ok()?;
    let units = |time: FILETIME| u64::from(time.dwHighDateTime) << 32 | u64::from(time.dwLowDateTime);
    // Tenths of a microsecond.
    Some(Duration::from_nanos((units(kernel) + units(user)).saturating_mul(100)))
}

fn memory() -> Option<u64> {
    let size = size_of::<PROCESS_MEMORY_COUNTERS>() as u32;
    let mut counters = PROCESS_MEMORY_COUNTERS { cb: size, ..Default::default() };
    // SAFETY: the pointer is to a variable of this function, with its size.
    check(unsafe { K32GetProcessMemoryInfo(GetCurrentProcess(), &raw mut counters, size) }).ok()?;
    u64::try_from(counters.WorkingSetSize).ok()
}

/// Has a click into the window of the console select nothing, which would hold back what is told in it until a key is pressed.
pub(crate) fn disable_quick_edit() -> io::Result<()> {
    let mut mode = 0;
    // SAFETY: it takes a number.
    let input = unsafe { GetStdHandle(STD_INPUT_HANDLE) };
    // SAFETY: the pointer is to a variable of this function; a handle that is no console is an error.
    check(unsafe { GetConsoleMode(input, &raw mut mode) })?;
    // SAFETY: as before.
    check(unsafe { SetConsoleMode(input, mode & !ENABLE_QUICK_EDIT_MODE | ENABLE_EXTENDED_FLAGS) })
}

/// Has waits end within a millisecond of their time, not within sixteen.
pub(crate) fn set_timer_resolution() {
    // SAFETY: it takes a number, and what it changes lasts until the process ends.
    unsafe { timeBeginPeriod(1) };
}

/// Makes a pipe for clients of this machine to come to: for this user, administrators and the system.
pub(crate) fn create_pipe(name: &str, is_first: bool) -> io::Result<NamedPipe> {
    let name = to_wide(name);
    let security = parse_descriptor(&permissions::private_descriptor()?)?;
    let attributes = security_attributes(&security);
    let first = if is_first { FILE_FLAG_FIRST_PIPE_INSTANCE } else { 0 };
    // SAFETY: the name ends with a zero, and the attributes are those of a variable and of what the system has made.
    let handle = unsafe {
        CreateNamedPipeW(
            name.as_ptr(),
            PIPE_ACCESS_DUPLEX | FILE_FLAG_OVERLAPPED | first,
            PIPE_TYPE_BYTE | PIPE_READMODE_BYTE | PIPE_WAIT | PIPE_REJECT_REMOTE_CLIENTS,
            PIPE_UNLIMITED_INSTANCES,
            PIPE_BUFFER,
            PIPE_BUFFER,
            0,
            &raw const attributes,
        )
    };
    if handle == INVALID_HANDLE_VALUE {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the handle is open and nobody else's.
    Ok(unsafe { NamedPipe::from_raw_handle(handle) })
}

/// Makes a pipe of what was opened with [`OVERLAPPED`].
pub(crate) fn pipe_from_file(file: File) -> NamedPipe {
    // SAFETY: the handle is open and nobody else's.
    unsafe { NamedPipe::from_raw_handle(file.into_raw_handle()) }
}

/// Gives up what was begun with a pipe and is not done yet.
pub(crate) fn cancel_io(pipe: &NamedPipe) {
    // SAFETY: the handle is open, and null stands for all that was begun with it. That there is nothing is no harm.
    unsafe { CancelIoEx(pipe.as_raw_handle(), ptr::null()) };
}

/// Returns whether an error says that all instances of a pipe have their client.
pub(crate) fn is_pipe_busy(error: &io::Error) -> bool {
    error.raw_os_error() == Some(ERROR_PIPE_BUSY.cast_signed())
}

/// Returns whether an error says that there is no service of that name.
pub(crate) fn is_no_such_service(error: &io::Error) -> bool {
    error.raw_os_error() == Some(ERROR_SERVICE_DOES_NOT_EXIST.cast_signed())
}

/// Returns the user who runs this process, by number.
pub(crate) fn current_user_sid() -> io::Result<String> {
    let mut token: HANDLE = ptr::null_mut();
    // SAFETY: the pointer is to a variable of this function.
    check(unsafe { OpenProcessToken(GetCurrentProcess(), TOKEN_QUERY, &raw mut token) })?;
    // SAFETY: the handle is open and nobody else's.
    let token = unsafe { OwnedHandle::from_raw_handle(token) };
    // Room for the longest number, behind the pointer to it; as words, because that has to be aligned.
    let mut room = [0_usize; 32];
    let mut len = 0;
    // SAFETY: the pointers are to variables of this function, with their size.
    check(unsafe {
        GetTokenInformation(
            token.as_raw_handle(),
            TokenUser,
            room.as_mut_ptr().cast(),
            size_of_val(&room) as u32,
            &raw mut len,
        )
    })?;
    // SAFETY: the system has put one there, and there it is aligned.
    let user: &TOKEN_USER = unsafe { &*room.as_ptr().cast() };
    sid_to_string(user.User.Sid)
}

/// Returns whose a pipe is, by number.
pub(crate) fn pipe_owner_sid(file: &File) -> io::Result<String> {
    let (mut owner, mut security): (PSID, _) = (ptr::null_mut(), LocalAllocation(ptr::null_mut()));
    // SAFETY: the handle is open, and the pointers are to variables of this function.
    let result = unsafe {
        GetSecurityInfo(
            file.as_raw_handle(),
            SE_KERNEL_OBJECT,
            OWNER_SECURITY_INFORMATION,
            &raw mut owner,
            ptr::null_mut(),
            ptr::null_mut(),
            ptr::null_mut(),
            &raw mut security.0,
        )
    };
    if result == 0 { sid_to_string(owner) } else { Err(io::Error::from_raw_os_error(result.cast_signed())) }
}

/// Returns the number of a user as text. The pointer must be to one that the system gave.
fn sid_to_string(user: PSID) -> io::Result<String> {
    let mut text: PWSTR = ptr::null_mut();
    // SAFETY: the first pointer is to a number, and the second to a variable of this function.
    check(unsafe { ConvertSidToStringSidW(user, &raw mut text) })?;
    Ok(string_from_system(&LocalAllocation(text.cast())))
}

/// Returns a text that the system has made. It must be one that ends with a zero.
fn string_from_system(text: &LocalAllocation) -> String {
    let letters: *const u16 = text.0.cast_const().cast();
    // SAFETY: the system has put a text there that ends with a zero.
    let len = (0..).take_while(|at| unsafe { *letters.add(*at) } != 0).count();
    // SAFETY: so many are there.
    String::from_utf16_lossy(unsafe { std::slice::from_raw_parts(letters, len) })
}

/// Returns what the system makes of a descriptor in words.
fn parse_descriptor(text: &str) -> io::Result<LocalAllocation> {
    let text = to_wide(text);
    let mut security = LocalAllocation(ptr::null_mut());
    // SAFETY: the text ends with a zero, and the other pointer is to a variable of this function.
    check(unsafe {
        ConvertStringSecurityDescriptorToSecurityDescriptorW(
            text.as_ptr(),
            SDDL_REVISION_1,
            &raw mut security.0,
            ptr::null_mut(),
        )
    })?;
    Ok(security)
}

const fn security_attributes(security: &LocalAllocation) -> SECURITY_ATTRIBUTES {
    SECURITY_ATTRIBUTES {
        nLength: size_of::<SECURITY_ATTRIBUTES>() as u32,
        lpSecurityDescriptor: security.0,
        bInheritHandle: 0,
    }
}

/// What the system has made and wants back.
struct LocalAllocation(*mut c_void);

impl Drop for LocalAllocation {
    fn drop(&mut self) {
        // SAFETY: it came from the system and is used nowhere else any more; null is allowed.
        unsafe { LocalFree(self.0) };
    }
}

fn to_wide(text: &str) -> Vec<u16> {
    text.encode_utf16().chain([0]).collect()
}

fn check(result: BOOL) -> io::Result<()> {
    if result == 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// How much a pipe holds that nobody has read yet.
const PIPE_BUFFER: u32 = 64 << 10;
