//! A disk of a given speed: an image that `qemu-storage-daemon` exports through FUSE. It limits the requests and the
//! bytes of each second; `strace` delays each of its `fdatasync` calls, which are the disk's cache flushes. While one
//! runs the export serves nothing else, as a disk does that is busy.

use std::{
    ffi::OsStr,
    fs,
    path::{Path, PathBuf},
    process::{Child, Stdio},
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};

use super::{Failure, device::text, left_behind};

const START_MAX: Duration = Duration::from_secs(20);
const STOP_MAX: Duration = Duration::from_secs(10);

/// How slow a disk is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Speed {
    /// A flush of its cache takes at least so long.
    pub flush: Duration,
    /// Requests of each second; no limit if `None`.
    pub requests: Option<u32>,
    /// Bytes of each second; no limit if `None`.
    pub bytes: Option<u64>,
}

impl Speed {
    /// A disk of which only cache flushes are slow.
    pub const fn of_flushes(flush: Duration) -> Self {
        Self {
            flush,
            requests: None,
            bytes: None,
        }
    }

    /// The limits as `qemu-storage-daemon` takes them; it takes 0 for no limit.
    fn limits(self) -> String {
        format!(
            "throttle-group,id=limits,x-iops-total={},x-bps-total={}",
            self.requests.unwrap_or(0),
            self.bytes.unwrap_or(0)
        )
    }
}

/// The daemon that exports it; ended on drop.
pub struct SlowDisk {
    child: Child,
    /// The file to put a loop device on.
    pub export: PathBuf,
}

impl SlowDisk {
    /// Exports the image as another file beside it.
    pub fn over(image: &Path, speed: Speed) -> Result<Self, Failure> {
        let export = image.with_extension("slow");
        fs::File::create(&export)?;
        let wanted = fs::metadata(image)?.len();
        let delay = format!("inject=fdatasync:delay_enter={}", speed.flush.as_micros());
        // -D: the daemon, not its tracer, is our child.
        let child = super::server::ending_with_this(OsStr::new("strace"))
            .args(["-D", "-f", "-qq", "--seccomp-bpf", "-o", "/dev/null"])
            .args(["-e", "trace=fdatasync", "-e", &delay])
            .arg("qemu-storage-daemon")
            .args([
                "--blockdev",
                &format!("driver=file,node-name=disk,filename={}", text(image)?),
            ])
            .args(["--object", &speed.limits()])
            .args([
                "--blockdev",
                "driver=throttle,node-name=device,throttle-group=limits,file=disk",
            ])
            .arg("--export")
            .arg(format!(
                "type=fuse,id=fuse,node-name=device,mountpoint={},writable=on",
                text(&export)?
            ))
            .stdin(Stdio::null())
            .spawn()
            .map_err(|error| format!("strace: {error}"))?;
        let mut this = Self { child, export };
        let until = Instant::now() + START_MAX;
        while fs::metadata(&this.export)?.len() != wanted {
            if Instant::now() > until || this.child.try_wait()?.is_some() {
                return Err("qemu-storage-daemon exports nothing".into());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(this)
    }
}

impl Drop for SlowDisk {
    fn drop(&mut self) {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        if let Some(pid) = pid {
            let _ = kill_process(pid, Signal::TERM);
        }
        let until = Instant::now() + STOP_MAX;
        while matches!(self.child.try_wait(), Ok(None)) {
            let late = Instant::now().saturating_duration_since(until);
            if late > STOP_MAX {
                // It waits in the kernel, where no signal reaches it.
                left_behind(format_args!("qemu-storage-daemon {}", self.child.id()));
                return;
            }
            if !late.is_zero() {
                let _ = self.child.kill();
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}
