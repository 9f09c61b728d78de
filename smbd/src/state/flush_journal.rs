//! The journal of acknowledged flushes in the state folder, for the shares that want one.
//!
//! In `flushes/`, a folder of its own that is made when the first share wants a journal. Format and
//! writing are `durability::JournalFile`'s; reading it is `holdfast durability report`.

use std::{
    fs,
    io::{self, ErrorKind},
    os::unix::fs::DirBuilderExt,
    path::Path,
    sync::Arc,
};

use durability::{FLUSHES, JournalFile, ShareRoot, StartRecord};
use vfs::{Env, linux::LinuxDisk};

use super::state_dir::{self, Ownership};
use crate::{answers::JournalStatus, config, host_vfs::apart, metrics::exposition::Page};

/// Name of the folder in the state folder.
pub const FOLDER: &str = "flushes";
/// Distinguishes one boot of the machine from another.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// The journal of the daemon.
pub(crate) struct Journal {
    pub(crate) file: Arc<JournalFile<LinuxDisk>>,
    /// By this a report sees that the last run in the journal goes on: a server without a journal has the state folder
    /// only.
    _folder: Ownership,
}

/// The kernel's id of this boot; empty if the kernel does not report one.
#[must_use]
pub fn boot_id() -> String {
    let text = fs::read_to_string(BOOT_ID).unwrap_or_default();
    text.trim().to_owned()
}

/// The shares whose flushes are to be recorded.
pub(crate) fn wanted(shares: &[config::ShareSettings]) -> Vec<ShareRoot> {
    let wanted = shares.iter().filter(|share| share.flush_journal);
    let roots = wanted.map(|share| ShareRoot {
        name: share.name.clone(),
        root: share.path.to_string_lossy().into_owned(),
    });
    roots.collect()
}

/// Begins the journal of this run; `None` if no share wants one.
///
/// # Errors
/// The error with the folder's path; a share that is configured with a journal is not served
/// without one.
pub(crate) fn open(
    state_dir: &Path,
    shares: &[config::ShareSettings],
    env: Arc<dyn Env>,
) -> io::Result<Option<Arc<Journal>>> {
    let shares = wanted(shares);
    if shares.is_empty() {
        return Ok(None);
    }
    let folder = state_dir.join(FOLDER);
    let failed = |error: io::Error| {
        let text = format!(
            "the journal of flushes in {}: {error}\n  = make room there, or leave out \
             flush_journal",
            folder.display()
        );
        io::Error::new(error.kind(), text)
    };
    match fs::DirBuilder::new().mode(0o700).create(&folder) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(failed(error)),
        _ => {}
    }
    let errno = |errno: vfs::disk::Errno| failed(errno.into());
    let disk = LinuxDisk::open(&folder).map_err(errno)?;
    let run = StartRecord {
        boot: boot_id(),
        server: env!("CARGO_PKG_VERSION").to_owned(),
        shares,
        ..StartRecord::default()
    };
    let ownership = state_dir::own(&folder)?;
    let file = apart(|| JournalFile::open(disk, env, FLUSHES, run)).map_err(errno)?;
    Ok(Some(Arc::new(Journal {
        file,
        _folder: ownership,
    })))
}

/// The state of the flush journal, for `holdfast status`.
pub(crate) fn status(journal: &Journal) -> JournalStatus {
    let counts = journal.file.counts();
    JournalStatus {
        healthy: journal.file.is_healthy(),
        records: counts.records,
        writes: counts.writes,
        lost: counts.failed,
    }
}

/// Writes the flush journal's families to the metrics page.
pub(crate) fn metrics(journal: &Journal, page: &mut Page) {
    let counts = journal.file.counts();
    let help = "Records written to the journal of flushes.";
    page.single("holdfast_flush_journal_records_total", help, counts.records);
    let help = "Durable writes that stored these records.";
    page.single("holdfast_flush_journal_writes_total", help, counts.writes);
    let help = "Flushes honored that could not be recorded.";
    page.single("holdfast_flush_journal_lost_total", help, counts.failed);
    let help = "Whether the last write to the journal of flushes succeeded.";
    let healthy = u8::from(journal.file.is_healthy());
    page.single("holdfast_flush_journal_healthy", help, healthy);
}
