//! The store of persistent handles in the state folder, and their return before anything is served.
//!
//! `handles` is made when the first share is continuously available. What it says is brought back
//! on a thread of its own with a runtime of its own: the caller's may be this thread's, and the
//! workers are not there yet. The format and the writing are `durability::LogMap`'s, what the
//! records mean is `smb-server`'s.

use std::{io, path::Path, sync::Arc};

use durability::{LogMap, LogMapError, LogMapLimits, OpenedMap};
use serde_json::{Value, json};
use smb_server::{Restored, Server, Shares};
use vfs::{Env, sys::SysDisk};

use crate::{
    config::{self, Config},
    exposition::{Kind, Page},
    service::{HostVfs, apart},
};

/// Name of the file in the state folder.
const FILE: &str = "handles";

/// The store, with what earlier runs left in it.
pub(crate) type Opened = OpenedMap<SysDisk>;

/// Opens the store in `folder`; `None` if no share has persistent handles and none ever had.
///
/// # Errors
/// With the way out: who asked for handles that survive shall not be served without.
pub(crate) fn open(
    folder: &Path,
    shares: &[config::Share],
    env: Arc<dyn Env>,
) -> io::Result<Option<Opened>> {
    let file = folder.join(FILE);
    if !shares.iter().any(|share| share.continuous_availability) && !file.exists() {
        return Ok(None);
    }
    let failed = |error: LogMapError| {
        let way_out = match error {
            LogMapError::Disk(_) => "the state folder must be readable and writable",
            LogMapError::NotOurs | LogMapError::Version => {
                "it holds the handles that clients will come back to. Start the version that \
                 wrote it, or move it away: then those clients get an error"
            }
        };
        io::Error::other(format!("{}: {error}\n  = {way_out}", file.display()))
    };
    let disk = SysDisk::open(folder).map_err(|errno| failed(errno.into()))?;
    let limits = LogMapLimits::default();
    let opened = apart(LogMap::open(disk, env, FILE, limits)).map_err(failed)?;
    for damage in &opened.damage {
        tracing::error!(
            offset = damage.offset,
            why = damage.why,
            "{}: damaged: handles opened before the damage are lost; the file is kept as \
             {FILE}.refused",
            file.display()
        );
    }
    Ok(Some(opened))
}

/// As [`open`], for a reload: where the server has no store yet.
///
/// # Errors
/// As [`open`].
pub(crate) fn open_first(server: &Server<HostVfs>, config: &Config) -> io::Result<Option<Opened>> {
    if server.persistent_opens().is_some() {
        return Ok(None);
    }
    let env = Arc::clone(&server.env);
    open(&config.server.state_dir, &config.shares, env)
}

/// What a reload brings, before anybody can reach its shares: a store for the first share that has
/// persistent handles, and the handles on shares that were late. On a worker.
pub(crate) async fn take_in(
    server: &Arc<Server<HostVfs>>,
    opened: Option<Opened>,
    shares: &Shares<HostVfs>,
) {
    if let Some(opened) = opened {
        // There is nothing to bring back: else it would have been opened at the start.
        server.keep_opens_in(opened.map, Vec::new()).await;
    }
    let Restored { opens, lost } = server.restore_late(shares).await;
    if opens + lost > 0 {
        server.watch_restored();
        tracing::info!(opens, lost, "persistent handles of a share that was late");
    }
}

/// Brings back what the store tells of, before the first connection.
///
/// # Errors
/// No thread or runtime can be made for it.
pub(crate) fn restore(server: &Arc<Server<HostVfs>>, opened: Opened) -> io::Result<()> {
    let bring_back = || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build_local(tokio::runtime::LocalOptions::default())?;
        io::Result::Ok(runtime.block_on(server.keep_opens_in(opened.map, opened.entries)))
    };
    let restored = std::thread::scope(|scope| match scope.spawn(bring_back).join() {
        Ok(restored) => restored,
        Err(panic) => std::panic::resume_unwind(panic),
    })?;
    let Restored { opens, lost } = restored;
    if opens + lost > 0 {
        tracing::info!(opens, lost, "persistent handles of the last run");
    }
    Ok(())
}

/// For `status`.
pub(crate) fn status(server: &Server<HostVfs>) -> Value {
    let (kept, all) = server.durable_opens();
    let store = server.persistent_opens().map(|(opens, healthy, counts)| {
        json!({
            "opens": opens,
            "healthy": healthy,
            "bytes": counts.bytes,
            "records": counts.changes,
            "writes": counts.writes,
            "failed": counts.failed,
        })
    });
    json!({ "durable": all, "waiting": kept, "persistent": store })
}

/// For the metrics page.
pub(crate) fn metrics(server: &Server<HostVfs>, page: &mut Page) {
    let Some((opens, healthy, counts)) = server.persistent_opens() else {
        return;
    };
    page.one(
        "holdfast_persistent_opens",
        Kind::Gauge,
        "Persistent handles recorded in the state folder.",
        opens,
    );
    page.one(
        "holdfast_handle_store_healthy",
        Kind::Gauge,
        "Whether persistent handles can be recorded: if not, a restart forgets what changes.",
        u8::from(healthy),
    );
    page.one(
        "holdfast_handle_store_records_total",
        Kind::Counter,
        "Changes of persistent handles recorded.",
        counts.changes,
    );
    page.one(
        "holdfast_handle_store_writes_total",
        Kind::Counter,
        "Durable writes that they took.",
        counts.writes,
    );
}
