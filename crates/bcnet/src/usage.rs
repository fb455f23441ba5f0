//! The resources that this process uses.

use std::time::Duration;

/// Processor time and memory of this process, as far as the system reports them.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ResourceUsage {
    /// The sum over all processors.
    pub(crate) cpu_time: Option<Duration>,
    /// The current resident memory, in bytes.
    pub(crate) memory_bytes: Option<u64>,
}

#[cfg(unix)]
impl ResourceUsage {
    pub(crate) fn now() -> Self {
        Self { cpu_time: cpu_time(), memory_bytes: memory_bytes() }
    }
}

#[cfg(windows)]
impl ResourceUsage {
    pub(crate) fn now() -> Self {
        crate::win32::process_usage()
    }
}

#[cfg(unix)]
fn cpu_time() -> Option<Duration> {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Some(Duration::new(u64::try_from(time.tv_sec).ok()?, u32::try_from(time.tv_nsec).ok()?))
}

/// Reads the resident memory. Only Linux has this file; other Unix systems report nothing.
#[cfg(unix)]
fn memory_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kilobytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kilobytes * 1024)
}

#[cfg(all(test, any(target_os = "linux", windows)))]
mod tests {
    use super::*;

    #[test]
    fn busy_process_reports_cpu_time_and_memory() {
        let before = ResourceUsage::now().cpu_time.expect("reported");
        let mut buffer = vec![0_u8; 32 << 20];
        // The clock may be coarse, but it advances.
        while ResourceUsage::now().cpu_time == Some(before) {
            buffer.fill(1);
        }
        assert!(ResourceUsage::now().cpu_time > Some(before));
        assert!(
            ResourceUsage::now().memory_bytes > Some(32 << 20),
            "{:?}, {} used",
            ResourceUsage::now(),
            buffer.len()
        );
    }
}
