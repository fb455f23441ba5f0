//! What this process takes of the machine.

use std::time::Duration;

/// What it has taken so far, as far as the system tells.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Usage {
    /// The time of all processors together.
    pub(crate) processor: Option<Duration>,
    /// The memory that it has at this moment, in bytes.
    pub(crate) memory: Option<u64>,
}

#[cfg(unix)]
impl Usage {
    pub(crate) fn now() -> Self {
        Self { processor: processor(), memory: memory() }
    }
}

#[cfg(windows)]
impl Usage {
    pub(crate) fn now() -> Self {
        crate::win32::usage()
    }
}

#[cfg(unix)]
fn processor() -> Option<Duration> {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Some(Duration::new(u64::try_from(time.tv_sec).ok()?, u32::try_from(time.tv_nsec).ok()?))
}

/// Other systems have no file for it.
#[cfg(unix)]
fn memory() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kilobytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kilobytes * 1024)
}

#[cfg(all(test, any(target_os = "linux", windows)))]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_works_takes_time_and_memory() {
        let before = Usage::now().processor.expect("told");
        let mut room = vec![0_u8; 32 << 20];
        // As coarse as the clock may be, it goes on.
        while Usage::now().processor == Some(before) {
            room.fill(1);
        }
        assert!(Usage::now().processor > Some(before));
        assert!(Usage::now().memory > Some(32 << 20), "{:?}, {} used", Usage::now(), room.len());
    }
}
