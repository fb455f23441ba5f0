//! Access rights of files and directories.

use std::fs::File;
use std::io;
use std::os::windows::ffi::OsStrExt;
use std::os::windows::io::{AsRawHandle, FromRawHandle};
use std::path::Path;
use std::ptr;

use windows_sys::Win32::Foundation::INVALID_HANDLE_VALUE;
use windows_sys::Win32::Security::Authorization::{
    ConvertSecurityDescriptorToStringSecurityDescriptorW, ConvertStringSidToSidW, EXPLICIT_ACCESS_W,
    GRANT_ACCESS, GetNamedSecurityInfoW, NO_MULTIPLE_TRUSTEE, SDDL_REVISION_1, SE_FILE_OBJECT,
    SetEntriesInAclW, SetNamedSecurityInfoW, TRUSTEE_IS_SID, TRUSTEE_IS_UNKNOWN, TRUSTEE_W,
};
use windows_sys::Win32::Security::{
    ACL, DACL_SECURITY_INFORMATION, GetSecurityDescriptorControl, LookupAccountSidW,
    OWNER_SECURITY_INFORMATION, SE_DACL_AUTO_INHERIT_REQ, SE_DACL_AUTO_INHERITED,
    SUB_CONTAINERS_AND_OBJECTS_INHERIT, SetKernelObjectSecurity, SetSecurityDescriptorControl,
};
use windows_sys::Win32::Storage::FileSystem::{
    CREATE_NEW, CreateDirectoryW, CreateFileW, DELETE, FILE_ATTRIBUTE_NORMAL, FILE_GENERIC_EXECUTE,
    FILE_GENERIC_READ, FILE_GENERIC_WRITE, WRITE_DAC,
};

use super::{
    LocalAllocation, check, current_user_sid, parse_descriptor, security_attributes, string_from_system,
    to_wide,
};

/// Returns the owner and the access list of a file or directory in text form (SDDL).
pub(crate) fn descriptor_text(path: &Path) -> io::Result<String> {
    let path = wide_path(path);
    let mut security = LocalAllocation(ptr::null_mut());
    let what = OWNER_SECURITY_INFORMATION | DACL_SECURITY_INFORMATION;
    // SAFETY: the path is zero-terminated, the last pointer is to a variable of this function, and all others
    // are null.
    check_error_code(unsafe {
        GetNamedSecurityInfoW(
            path.as_ptr(),
            SE_FILE_OBJECT,
            what,
            ptr::null_mut(),
            ptr::null_mut(),
            ptr::null_mut(),
            ptr::null_mut(),
            &raw mut security.0,
        )
    })?;
    let mut text = ptr::null_mut();
    // SAFETY: Windows allocated the first pointer's memory. The other pointer is to a variable of this function.
    check(unsafe {
        ConvertSecurityDescriptorToStringSecurityDescriptorW(
            security.0,
            SDDL_REVISION_1,
            what,
            &raw mut text,
            ptr::null_mut(),
        )
    })?;
    Ok(string_from_system(&LocalAllocation(text.cast())))
}

/// Lets an account, given by SID, read, write and delete a directory and everything in it.
pub(crate) fn grant_access(directory: &Path, sid: &str) -> io::Result<()> {
    let path = wide_path(directory);
    let number = parse_sid(sid)?;
    let (old, mut new) = (AccessList::read(directory)?, LocalAllocation(ptr::null_mut()));
    let access = EXPLICIT_ACCESS_W {
        grfAccessPermissions: FILE_GENERIC_READ | FILE_GENERIC_WRITE | FILE_GENERIC_EXECUTE | DELETE,
        grfAccessMode: GRANT_ACCESS,
        grfInheritance: SUB_CONTAINERS_AND_OBJECTS_INHERIT,
        Trustee: TRUSTEE_W {
            pMultipleTrustee: ptr::null_mut(),
            MultipleTrusteeOperation: NO_MULTIPLE_TRUSTEE,
            TrusteeForm: TRUSTEE_IS_SID,
            TrusteeType: TRUSTEE_IS_UNKNOWN,
            ptstrName: number.0.cast(),
        },
    };
    let made: *mut *mut ACL = (&raw mut new.0).cast();
    // SAFETY: Windows allocated the old list, and it is not freed yet. The other pointers are to variables of
    // this function.
    check_error_code(unsafe { SetEntriesInAclW(1, &raw const access, old.entries, made) })?;
    // SAFETY: the path is zero-terminated, and Windows allocated the list.
    check_error_code(unsafe {
        SetNamedSecurityInfoW(
            path.as_ptr(),
            SE_FILE_OBJECT,
            DACL_SECURITY_INFORMATION,
            ptr::null_mut(),
            ptr::null_mut(),
            new.0.cast(),
            ptr::null(),
        )
    })
}

/// Copies the access list of the file `from` to the open file `to`.
///
/// The handle of `to` needs the right to change the list; a file from [`create_private_file`] has it.
pub(crate) fn copy_permissions(from: &Path, to: &File) -> io::Result<()> {
    let list = AccessList::read(from)?;
    let (mut control, mut revision) = (0, 0);
    // SAFETY: Windows allocated the first pointer's memory. The others are to variables of this function.
    check(unsafe { GetSecurityDescriptorControl(list.security.0, &raw mut control, &raw mut revision) })?;
    if control & SE_DACL_AUTO_INHERITED != 0 {
        // Without this flag, Windows drops the mark that the rights were inherited.
        let request = SE_DACL_AUTO_INHERIT_REQ;
        // SAFETY: Windows allocated the descriptor, and nothing else uses it.
        check(unsafe { SetSecurityDescriptorControl(list.security.0, request, request) })?;
    }
    // SAFETY: the handle is open, and Windows allocated the descriptor.
    check(unsafe { SetKernelObjectSecurity(to.as_raw_handle(), DACL_SECURITY_INFORMATION, list.security.0) })
}

/// The access list of a file or directory.
struct AccessList {
    /// Points into `security`; null if everyone has every right.
    entries: *const ACL,
    security: LocalAllocation,
}

impl AccessList {
    fn read(path: &Path) -> io::Result<Self> {
        let path = wide_path(path);
        let (mut entries, mut security) = (ptr::null_mut(), LocalAllocation(ptr::null_mut()));
        // SAFETY: the path is zero-terminated, and the pointers are to variables of this function.
        check_error_code(unsafe {
            GetNamedSecurityInfoW(
                path.as_ptr(),
                SE_FILE_OBJECT,
                DACL_SECURITY_INFORMATION,
                ptr::null_mut(),
                ptr::null_mut(),
                &raw mut entries,
                ptr::null_mut(),
                &raw mut security.0,
            )
        })?;
        Ok(Self { entries, security })
    }
}

/// Creates a directory with the rights in `descriptor`.
pub(crate) fn create_directory(path: &Path, descriptor: &str) -> io::Result<()> {
    let path = wide_path(path);
    let security = parse_descriptor(descriptor)?;
    let attributes = security_attributes(&security);
    // SAFETY: the path is zero-terminated. The attributes refer to a local variable and to a descriptor that
    // Windows allocated.
    check(unsafe { CreateDirectoryW(path.as_ptr(), &raw const attributes) })
}

/// Returns a descriptor that gives access only to this user, administrators and the system.
///
/// It sets this user as the owner. Otherwise the group of administrators may own an object that an
/// administrator creates. Without `Run as administrator`, the same user does not count as a member of that
/// group.
pub(super) fn private_descriptor() -> io::Result<String> {
    let user = current_user_sid()?;
    Ok(format!("O:{user}D:P(A;;FA;;;{user})(A;;FA;;;BA)(A;;FA;;;SY)"))
}

/// Creates a file to which only this user, administrators and the system have access.
///
/// Returns an error if the file exists.
pub(crate) fn create_private_file(path: &Path) -> io::Result<File> {
    let path = wide_path(path);
    let security = parse_descriptor(&private_descriptor()?)?;
    let attributes = security_attributes(&security);
    // SAFETY: the path is zero-terminated. The attributes refer to a local variable and to a descriptor that
    // Windows allocated.
    let handle = unsafe {
        CreateFileW(
            path.as_ptr(),
            FILE_GENERIC_READ | FILE_GENERIC_WRITE | WRITE_DAC,
            0,
            &raw const attributes,
            CREATE_NEW,
            FILE_ATTRIBUTE_NORMAL,
            ptr::null_mut(),
        )
    };
    if handle == INVALID_HANDLE_VALUE {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the system has just opened the handle, and it has no other owner.
    Ok(unsafe { File::from_raw_handle(handle.cast()) })
}

/// Returns the name of an account given by SID, or the SID if there is no name.
pub(crate) fn account_name(number: &str) -> String {
    lookup_account_name(number).unwrap_or_else(|_| number.to_owned())
}

fn lookup_account_name(number: &str) -> io::Result<String> {
    let number = parse_sid(number)?;
    let (mut name, mut domain) = ([0; MAX_ACCOUNT], [0; MAX_ACCOUNT]);
    let (mut name_len, mut domain_len) = (MAX_ACCOUNT as u32, MAX_ACCOUNT as u32);
    let mut kind = 0;
    // SAFETY: the first pointer is to a SID from the system, the others are to variables of this function,
    // with their sizes.
    check(unsafe {
        LookupAccountSidW(
            ptr::null(),
            number.0,
            name.as_mut_ptr(),
            &raw mut name_len,
            domain.as_mut_ptr(),
            &raw mut domain_len,
            &raw mut kind,
        )
    })?;
    let part =
        |letters: &[u16], len: u32| String::from_utf16_lossy(letters.get(..len as usize).unwrap_or_default());
    let (name, domain) = (part(&name, name_len), part(&domain, domain_len));
    Ok(if domain.is_empty() { name } else { format!("{domain}\\{name}") })
}

/// Parses a SID, or a two-letter abbreviation of a well-known one, such as `BA`.
fn parse_sid(text: &str) -> io::Result<LocalAllocation> {
    let text = to_wide(text);
    let mut number = LocalAllocation(ptr::null_mut());
    // SAFETY: the text is zero-terminated, and the other pointer is to a variable of this function.
    check(unsafe { ConvertStringSidToSidW(text.as_ptr(), &raw mut number.0) })?;
    Ok(number)
}

pub(super) fn wide_path(path: &Path) -> Vec<u16> {
    path.as_os_str().encode_wide().chain([0]).collect()
}

fn check_error_code(error: u32) -> io::Result<()> {
    if error == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(error.cast_signed())) }
}

/// The maximum length of an account name.
const MAX_ACCOUNT: usize = 256;
