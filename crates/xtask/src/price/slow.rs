//! A disk whose cache flushes take a given time: an image that `qemu-storage-daemon` exports through
//! FUSE, each of whose `fdatasync` calls `strace` delays. While one runs the export serves nothing
//! else, as a disk does that is busy.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};

use super::device::text;
use crate::Failure;

const START_MAX: Duration = Duration::from_secs(20);
const STOP_MAX: Duration = Duration::from_secs(10);

/// The daemon that exports it; ended on drop.
pub(crate) struct SlowDisk {
    child: Child,
    /// The file to put a loop device on.
    pub(crate) export: PathBuf,
}

impl SlowDisk {
    /// Exports the image as another file beside it.
    pub(crate) fn over(image: &Path, flush: Duration) -> Result<Self, Failure> {
        let export = image.with_extension("slow");
        fs::File::create(&export)?;
        let wanted = fs::metadata(image)?.len();
        let delay = format!("inject=fdatasync:delay_enter={}", flush.as_micros());
        // -D: the daemon, not its tracer, is our child.
        let child = Command::new("strace")
            .args(["-D", "-f", "-qq", "--seccomp-bpf", "-o", "/dev/null"])
            .args(["-e", "trace=fdatasync", "-e", &delay])
            .arg("qemu-storage-daemon")
            .args([
                "--blockdev",
                &format!("driver=file,node-name=disk,filename={}", text(image)?),
            ])
            .args(["--blockdev", "driver=raw,node-name=device,file=disk"])
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
            if Instant::now() > until {
                let _ = self.child.kill();
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}
