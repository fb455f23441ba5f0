//! Windows calls that the standard library does not have.
//!
//! Only this module calls Windows directly. Every pointer passed to the system points to a local variable, to
//! a constant, or to memory that the system allocated.
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

/// Opens a pipe for overlapped operations, so that the program can wait for it.
pub(crate) const OVERLAPPED: u32 = FILE_FLAG_OVERLAPPED;
/// Lets the server of a pipe identify the client, but not act as the client.
pub(crate) const IDENTIFICATION_ONLY: u32 = SECURITY_IDENTIFICATION;

/// Returns how many processes share the console: one after a double click, none without a console.
pub(crate) fn console_process_count() -> u32 {
    let mut processes = [0; 2];
    // SAFETY: the pointer is to an array of the given length.
    unsafe { GetConsoleProcessList(processes.as_mut_ptr(), processes.len() as u32) }
}

/// Returns how many bytes this user can write to a directory.
pub(crate) fn free_bytes(directory: &Path) -> io::Result<u64> {
    let (name, mut free) = (permissions::wide_path(directory), 0);
    // SAFETY: the pointers are to a zero-terminated text and to a variable of this function.
    let ok = unsafe { GetDiskFreeSpaceExW(name.as_ptr(), &raw mut free, ptr::null_mut(), ptr::null_mut()) };
    check(ok).map(|()| free)
}

/// Returns the resources that this process uses.
pub(crate) fn process_usage() -> ResourceUsage {
    ResourceUsage { cpu_time: processor_time(), memory_bytes: memory() }
}

fn processor_time() -> Option<Duration> {
    let nothing = FILETIME { dwLowDateTime: 0, dwHighDateTime: 0 };
    let [mut created, mut exited, mut kernel, mut user] = [nothing; 4];
    // SAFETY: the pointers are to variables of this function.
    let ok = unsafe {
        GetProcessTimes(
            GetCurrentProcess(),
            &raw mut created,
            &raw mut exited,
            &raw mut kernel,
            &raw mut user,
        )
    };
    check(ok).ok()?;
    let units = |time: FILETIME| u64::from(time.dwHighDateTime) << 32 | u64::from(time.dwLowDateTime);
    // The units are 100 nanoseconds.
    Some(Duration::from_nanos((units(kernel) + units(user)).saturating_mul(100)))
}

fn memory() -> Option<u64> {
    let size = size_of::<PROCESS_MEMORY_COUNTERS>() as u32;
    let mut counters = PROCESS_MEMORY_COUNTERS { cb: size, ..Default::default() };
    // SAFETY: the pointer is to a variable of this function, with its size.
    check(unsafe { K32GetProcessMemoryInfo(GetCurrentProcess(), &raw mut counters, size) }).ok()?;
    u64::try_from(counters.WorkingSetSize).ok()
}

/// Disables text selection by mouse in the console. A selection would block output until a key is pressed.
pub(crate) fn disable_quick_edit() -> io::Result<()> {
    let mut mode = 0;
    // SAFETY: the function takes only a number.
    let input = unsafe { GetStdHandle(STD_INPUT_HANDLE) };
    // SAFETY: the pointer is to a variable of this function. A handle that is not a console is an error.
    check(unsafe { GetConsoleMode(input, &raw mut mode) })?;
    // SAFETY: the handle is that of a console, as the previous call showed.
    check(unsafe { SetConsoleMode(input, mode & !ENABLE_QUICK_EDIT_MODE | ENABLE_EXTENDED_FLAGS) })
}

/// Sets the accuracy of waits to one millisecond instead of sixteen.
pub(crate) fn set_timer_resolution() {
    // SAFETY: the function takes only a number, and its effect lasts until the process ends.
    unsafe { timeBeginPeriod(1) };
}

/// Creates a pipe for local clients: this user, administrators and the system.
pub(crate) fn create_pipe(name: &str, is_first: bool) -> io::Result<NamedPipe> {
    let name = to_wide(name);
    let security = parse_descriptor(&permissions::private_descriptor()?)?;
    let attributes = security_attributes(&security);
    let first = if is_first { FILE_FLAG_FIRST_PIPE_INSTANCE } else { 0 };
    // SAFETY: the name is zero-terminated. The attributes refer to a local variable and to memory of the
    // system.
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
    // SAFETY: the handle is open and has no other owner.
    Ok(unsafe { NamedPipe::from_raw_handle(handle) })
}

/// Converts a file that was opened with [`OVERLAPPED`] into a pipe.
pub(crate) fn pipe_from_file(file: File) -> NamedPipe {
    // SAFETY: the handle is open and has no other owner.
    unsafe { NamedPipe::from_raw_handle(file.into_raw_handle()) }
}

/// Cancels all unfinished operations of a pipe.
pub(crate) fn cancel_io(pipe: &NamedPipe) {
    // SAFETY: the handle is open, and null stands for all operations. It is fine if there are none.
    unsafe { CancelIoEx(pipe.as_raw_handle(), ptr::null()) };
}

/// Returns whether the error means that all instances of a pipe have a client.
pub(crate) fn is_pipe_busy(error: &io::Error) -> bool {
    error.raw_os_error() == Some(ERROR_PIPE_BUSY.cast_signed())
}

/// Returns whether the error means that there is no service of that name.
pub(crate) fn is_no_such_service(error: &io::Error) -> bool {
    error.raw_os_error() == Some(ERROR_SERVICE_DOES_NOT_EXIST.cast_signed())
}

/// Returns the SID of the user who runs this process.
pub(crate) fn current_user_sid() -> io::Result<String> {
    let mut token: HANDLE = ptr::null_mut();
    // SAFETY: the pointer is to a variable of this function.
    check(unsafe { OpenProcessToken(GetCurrentProcess(), TOKEN_QUERY, &raw mut token) })?;
    // SAFETY: the handle is open and has no other owner.
    let token = unsafe { OwnedHandle::from_raw_handle(token) };
    // Space for the longest SID after the pointer to it. Words of `usize` give the required alignment.
    let mut buffer = [0_usize; 32];
    let mut len = 0;
    // SAFETY: the pointers are to variables of this function, with their size.
    check(unsafe {
        GetTokenInformation(
            token.as_raw_handle(),
            TokenUser,
            buffer.as_mut_ptr().cast(),
            size_of_val(&buffer) as u32,
            &raw mut len,
        )
    })?;
    // SAFETY: the system has written a `TOKEN_USER` there, and the buffer is aligned.
    let user: &TOKEN_USER = unsafe { &*buffer.as_ptr().cast() };
    sid_to_string(user.User.Sid)
}

/// Returns the SID of the owner of a pipe.
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

/// Returns a SID as text. The pointer must be to a SID from the system.
fn sid_to_string(user: PSID) -> io::Result<String> {
    let mut text: PWSTR = ptr::null_mut();
    // SAFETY: the first pointer is to a SID, and the second to a variable of this function.
    check(unsafe { ConvertSidToStringSidW(user, &raw mut text) })?;
    Ok(string_from_system(&LocalAllocation(text.cast())))
}

/// Returns a text that the system has allocated. It must be zero-terminated.
fn string_from_system(text: &LocalAllocation) -> String {
    let letters: *const u16 = text.0.cast_const().cast();
    // SAFETY: the system has written a zero-terminated text there.
    let len = (0..).take_while(|at| unsafe { *letters.add(*at) } != 0).count();
    // SAFETY: the text has `len` characters.
    String::from_utf16_lossy(unsafe { std::slice::from_raw_parts(letters, len) })
}

/// Converts a security descriptor from its text form.
fn parse_descriptor(text: &str) -> io::Result<LocalAllocation> {
    let text = to_wide(text);
    let mut security = LocalAllocation(ptr::null_mut());
    // SAFETY: the text is zero-terminated, and the other pointer is to a variable of this function.
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

/// Memory that the system has allocated, freed on drop.
struct LocalAllocation(*mut c_void);

impl Drop for LocalAllocation {
    fn drop(&mut self) {
        // SAFETY: the system allocated the memory and nothing else uses it; null is allowed.
        unsafe { LocalFree(self.0) };
    }
}

fn to_wide(text: &str) -> Vec<u16> {
    text.encode_utf16().chain([0]).collect()
}

fn check(result: BOOL) -> io::Result<()> {
    if result == 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// The size of a pipe's buffer for unread data.
const PIPE_BUFFER: u32 = 64 << 10;
