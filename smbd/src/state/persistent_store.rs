//! The store of persistent handles in the state folder, and the restoring of handles before anything is served.
//!
//! It is made when the first share is continuously available. Its records are restored on a thread with a runtime
//! of its own: the caller may already be in a runtime, and the workers do not exist yet. Format and writing belong
//! to `durability::LogMap`, the meaning of the records to `smb-server`.
//!
//! The modification time of the file `SEEN_UNTIL` is the time until which the last run saw host changes: it is set every
//! second while there are such handles, and slightly ahead while clients change files. Nobody may have noticed later
//! changes, so the caching of a file that changed later is given up at the start. The file contains the kernel's id of
//! the boot: in another one all caching is given up, because a power failure may have taken changes that clients have
//! in their caches, and the files look as if those had never been made. Its access time is the time at which the kernel
//! started, by the clock of that moment: if the clock was set back since, later changes may look earlier.

use std::{
    fs::{self, File, FileTimes},
    io::{self, Read, Seek, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, SystemTime},
};

use durability::{HANDLES, LogMap, OpenedMap, segment_number};
use rustix::time::{ClockId, clock_gettime};
use smb_server::{Restored, Server, Shares};
use vfs::{Env, Timestamp, linux::LinuxDisk};

use super::{flush_journal::boot_id, open_store};
use crate::{
    answers::{HandlesStatus, PersistentStatus},
    config::{self, Config},
    host_vfs::{HostVfs, apart},
    metrics::exposition::Page,
};

/// The file whose modification time is the time until which host changes were seen.
const SEEN_UNTIL: &str = "handles.heard";
/// How often that time is set.
const SEEN_AGAIN: Duration = Duration::from_secs(1);

/// The time at which the kernel started is measured by two clocks, one after the other, and varies by less than this.
const CLOCKS_DIFFER: Duration = Duration::from_millis(10);

/// The store, with what earlier runs left in it.
pub(crate) type Opened = OpenedMap<LinuxDisk>;

/// Opens the store in `folder`; `None` if no share has persistent handles and none ever had.
///
/// # Errors
/// The error, with advice; a share that is configured with persistent handles is not served without them.
pub(crate) fn open(
    folder: &Path,
    shares: &[config::ShareSettings],
    env: Arc<dyn Env>,
) -> io::Result<Option<Opened>> {
    let wanted = shares.iter().any(|share| share.continuous_availability);
    if !wanted && !is_there(folder) {
        return Ok(None);
    }
    let refused = "it holds the handles that clients will come back to. Start the version that wrote it, or move it \
                   away: then those clients get an error";
    let opened = open_store(folder, refused, |disk| {
        apart(|| LogMap::open(disk, env, &HANDLES))
    })?;
    for damage in &opened.damage {
        tracing::error!(
            offset = damage.offset,
            why = damage.why,
            "{}: the stored handles are damaged: those opened before the damage are lost; the file \
             is kept as handles.refused",
            folder.display()
        );
    }
    Ok(Some(opened))
}

/// Whether an earlier run had a store.
fn is_there(folder: &Path) -> bool {
    let entries = folder.read_dir().into_iter().flatten().flatten();
    let mut names = entries.map(|entry| entry.file_name());
    names.any(|name| {
        let is_segment = segment_number(name.as_encoded_bytes(), HANDLES.shape.kind).is_some();
        is_segment || name == HANDLES.shape.kind
    })
}

/// Whether these shares need a store, and the server has none. One of earlier runs was opened at the start.
pub(crate) fn is_lacking(server: &Server<HostVfs>, shares: &[config::ShareSettings]) -> bool {
    server.persistent_opens().is_none() && shares.iter().any(|share| share.continuous_availability)
}

/// Opens the store at a reload if these shares are the first to need one.
pub(crate) fn open_first(server: &Server<HostVfs>, config: &Config) -> io::Result<Option<Opened>> {
    match is_lacking(server, &config.shares) {
        true => open(
            &config.server.state_dir,
            &config.shares,
            Arc::clone(&server.env),
        ),
        false => Ok(None),
    }
}

/// Prepares what a reload brings, before a client can reach its shares: a store for the first share that has
/// persistent handles, and the handles on shares that were late. Must be called on a worker.
pub(crate) async fn take_in(
    server: &Arc<Server<HostVfs>>,
    opened: Option<Opened>,
    shares: &Shares<HostVfs>,
) {
    if let Some(opened) = opened {
        // There is nothing to restore, because otherwise the store would have been opened at the start.
        server.keep_opens_in(opened.map, Vec::new()).await;
    }
    let restored = server.restore_late(shares).await;
    if has_restored(&restored, "persistent handles of a share that was late") {
        server.watch_restored();
    }
}

/// Restores the opens of the store, before the first connection.
///
/// # Errors
/// No thread or runtime can be made for it.
pub(crate) fn restore(
    server: &Arc<Server<HostVfs>>,
    folder: &Path,
    opened: Opened,
) -> io::Result<()> {
    if let Some(until) = seen_until(folder) {
        server.seen_until(until);
    }
    let bring_back = || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build_local(tokio::runtime::LocalOptions::default())?;
        io::Result::Ok(runtime.block_on(async {
            let store = Arc::clone(&opened.map);
            let restored = server.keep_opens_in(opened.map, opened.entries).await;
            // A writer that ended with this runtime would count as one that failed.
            store.at_rest().await;
            restored
        }))
    };
    let joined = std::thread::scope(|scope| scope.spawn(bring_back).join());
    let restored = joined.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
    has_restored(&restored, "persistent handles of the last run");
    Ok(())
}

/// Whether there was anything to restore, which is logged.
fn has_restored(restored: &Restored, of: &str) -> bool {
    let (opens, lost, unknown) = (restored.opens, restored.lost, restored.unknown);
    let any = opens + lost + unknown > 0;
    if any {
        tracing::info!(opens, lost, unknown, "{of}");
    }
    any
}

/// The time until which the last run saw host changes, if it was in this boot; earlier by as much as the clock was set
/// back since. A program that has read the file meanwhile has changed its access time, which looks like a clock that
/// was set back far.
fn seen_until(folder: &Path) -> Option<Timestamp> {
    let (file, boot) = (folder.join(SEEN_UNTIL), boot_id());
    // The times come before the contents, because reading changes them.
    let meta = file.metadata().ok()?;
    let known = fs::read(&file).ok()?;
    if boot.is_empty() || known != boot.as_bytes() {
        return None;
    }
    let set_back = meta.accessed().ok()?.duration_since(started_at().ok()?);
    let set_back = set_back.unwrap_or_default();
    let mut until = meta.modified().ok()?;
    if set_back > CLOCKS_DIFFER {
        until = until.checked_sub(set_back)?;
    }
    let until = until.duration_since(SystemTime::UNIX_EPOCH).ok()?;
    Some(Timestamp {
        secs: i64::try_from(until.as_secs()).ok()?,
        nanos: until.subsec_nanos(),
    })
}

/// The time at which the kernel started, by the present clock.
fn started_at() -> io::Result<SystemTime> {
    let runs = Duration::try_from(clock_gettime(ClockId::Boottime)).ok();
    let at = runs.and_then(|runs| SystemTime::now().checked_sub(runs));
    at.ok_or_else(|| io::Error::other("the clock is before the start of the kernel"))
}

/// Records repeatedly that host changes are seen, as long as that holds for all shares.
pub(crate) async fn keep_hearing(server: Arc<Server<HostVfs>>, folder: PathBuf) {
    server.announce_changes_by(Box::new(move |until| {
        let folder = folder.clone();
        Box::pin(async move {
            let set = move || set_seen(&folder, until);
            if let Ok(Err(error)) = tokio::task::spawn_blocking(set).await {
                tracing::debug!(%error, "{SEEN_UNTIL}: a restart gives up more caching than necessary");
            }
        })
    }));
    loop {
        tokio::time::sleep(SEEN_AGAIN).await;
        server.record_that_changes_are_seen().await;
    }
}

fn set_seen(folder: &Path, until: Timestamp) -> io::Result<()> {
    let mut how = File::options();
    how.read(true).write(true).create(true);
    how.truncate(false).mode(0o600);
    let mut file = how.open(folder.join(SEEN_UNTIL))?;
    let (boot, mut known) = (boot_id(), Vec::new());
    file.read_to_end(&mut known)?;
    if known != boot.as_bytes() {
        file.set_len(0)?;
        file.rewind()?;
        file.write_all(boot.as_bytes())?;
    }
    let seconds = u64::try_from(until.secs).unwrap_or(0);
    let until = SystemTime::UNIX_EPOCH + Duration::new(seconds, until.nanos);
    let times = FileTimes::new().set_modified(until);
    file.set_times(times.set_accessed(started_at()?))
}

/// The numbers of durable and persistent handles, for `holdfast status`.
pub(crate) fn status(server: &Server<HostVfs>) -> HandlesStatus {
    let (waiting, durable) = server.durable_opens();
    let store = server.persistent_opens();
    HandlesStatus {
        durable,
        waiting,
        persistent: store.map(|(opens, healthy, counts)| PersistentStatus {
            opens,
            healthy,
            bytes: counts.bytes as u64,
            records: counts.log.records,
            writes: counts.log.writes,
            failed: counts.log.failed,
        }),
    }
}

/// Writes the families of the persistent handles to the metrics page.
pub(crate) fn metrics(server: &Server<HostVfs>, page: &mut Page) {
    let Some((opens, healthy, counts)) = server.persistent_opens() else {
        return;
    };
    let help = "Persistent handles recorded in the state folder.";
    page.single("holdfast_persistent_opens", help, opens);
    let help =
        "Whether persistent handles can be recorded: if not, a restart forgets their last changes.";
    page.single("holdfast_handle_store_healthy", help, u8::from(healthy));
    let log = &counts.log;
    let help = "Changes of persistent handles recorded.";
    page.single("holdfast_handle_store_records_total", help, log.records);
    let help = "Durable writes that stored these records.";
    page.single("holdfast_handle_store_writes_total", help, log.writes);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_seen_is_known_to_the_next_run() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(seen_until(folder.path()), None, "nobody knows");
        for secs in [1_800_000_000, 1_700_000_000] {
            let nanos = 250_000_000;
            let until = Timestamp { secs, nanos };
            set_seen(folder.path(), until).unwrap();
            assert_eq!(seen_until(folder.path()), Some(until));
            // The clock was set: ahead, and back.
            let file = File::open(folder.path().join(SEEN_UNTIL)).unwrap();
            let modified = file.metadata().unwrap().modified().unwrap();
            let times = FileTimes::new().set_modified(modified);
            let (started, by) = (started_at().unwrap(), Duration::from_secs(5));
            file.set_times(times.set_accessed(started - by)).unwrap();
            assert_eq!(seen_until(folder.path()), Some(until));
            file.set_times(times.set_accessed(started + by)).unwrap();
            let earlier = seen_until(folder.path()).unwrap();
            assert!((secs - 6..secs - 4).contains(&earlier.secs), "{earlier:?}");
            // The machine has started anew.
            fs::write(folder.path().join(SEEN_UNTIL), "another boot").unwrap();
            assert_eq!(seen_until(folder.path()), None);
        }
    }
}
