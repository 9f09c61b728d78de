//! Reports changes of persistent opens to the list of records, and waits until they are recorded where a command
//! requires it.

use std::{future::Future, sync::Arc};

use durability::StoreTask;
use smb_wire::msg::ShareAccess;
use vfs::{FileKey, Node, Vfs, VfsError};

use super::{LineAbout, Open, Server, share_line_due};
use crate::{
    file::{Break, OpenId, Owner, SharePath},
    persistent::{Announce, BeingRecorded, OpenRecord},
};

impl<V: Vfs> Server<V> {
    /// Whether some share has persistent opens (SMB2_GLOBAL_CAP_PERSISTENT_HANDLES).
    pub(crate) fn offers_persistence(&self) -> bool {
        let available = || {
            let shares = self.shares();
            shares.iter().any(|one| one.config.continuous_availability)
        };
        self.persistence.store().is_some() && available()
    }

    /// The number of persistent opens, whether their changes can be recorded, and the store's counts; `None` if no
    /// share ever had any.
    pub fn persistent_opens(&self) -> Option<(usize, bool, durability::MapCounts)> {
        let store = self.persistence.store()?;
        Some((self.persistence.len(), store.is_healthy(), store.counts()))
    }
}

/// Records an open that is to be persistent. If it returns false, the open is not persistent, and the answer must not
/// say that it is.
pub(crate) async fn begin<V: Vfs>(server: &Arc<Server<V>>, open: &Open<V>) -> bool {
    let (Ok(disk), Some(record)) = (open.disk(), record(server, open)) else {
        return false;
    };
    let limits = server.config().limits.clone();
    if !server.persistence.has_room(record.owner, &limits) {
        let share = open.tree.share_id();
        if let Some(left_out) = share_line_due(server, LineAbout::ShortenedHandle, share) {
            tracing::info!(
                share = open.tree.name(),
                user = open.user,
                left_out,
                "a handle is durable at most: too many are persistent, or too much is recorded of them"
            );
        }
        return false;
    }
    let files = &server.files;
    let place = &disk.place;
    let Some(task) = server.persistence.begin(files, open.engine, place, record) else {
        return false;
    };
    if let Err(error) = task.await {
        tracing::warn!(
            %error,
            share = open.tree.name(),
            user = open.user,
            "a handle cannot be made persistent: it is durable at most"
        );
        end(server, open).await;
        return false;
    }
    true
}

fn record<V: Vfs>(server: &Server<V>, open: &Open<V>) -> Option<OpenRecord> {
    let disk = open.disk().ok()?;
    let (origin, key) = (&open.origin, disk.node.key());
    let timeout = open.endurance().timeout()?;
    // A client without an account could not prove later that it is the same.
    if origin.owner.guest || origin.owner.anonymous {
        return None;
    }
    let path = server.files.path_of(open.engine)?;
    Some(OpenRecord {
        id: open.file_id.persistent,
        create_guid: origin.create_guid,
        client: origin.client,
        share: open.tree.name().to_owned(),
        path: path.to_names(),
        moving: Vec::new(),
        stream: disk.node.stream().map(str::to_owned),
        stream_to: None,
        inode: (key.ino, key.generation),
        directory: disk.directory,
        owner: origin.owner.user_sid,
        user: origin.owner.user.clone(),
        desired: origin.desired,
        read_unasked: !origin.share.contains(ShareAccess::READ),
        options: open.options,
        action: origin.action,
        timeout_ms: u32::try_from(timeout.as_millis()).unwrap_or(u32::MAX),
        lease: origin.lease.map(|lease| (lease.key, lease.v2)),
        parent_lease: open.parent_lease,
        app: origin.app.map(|app| (app.id, app.version)),
        engine: Default::default(),
    })
}

/// Removes the record of an open that is closed or is not persistent after all. Until that is stored, a restart would
/// restore it, and it would wait for a client that never comes.
pub(crate) async fn end<V: Vfs>(server: &Server<V>, open: &Open<V>) {
    if let Err(error) = stored(server.persistence.end(open.engine)).await {
        tracing::warn!(%error, user = open.user, "the end of a persistent handle cannot be recorded yet");
    }
}

/// Waits until a change is stored, if there was anything to record.
async fn stored(task: Option<StoreTask>) -> Result<(), VfsError> {
    match task {
        Some(task) => task.await,
        None => Ok(()),
    }
}

/// Records changed locks of an open; the future completes when they are stored. The store completes that even if
/// nobody waits for it.
///
/// # Errors
/// The change was not recorded, and a restart would not restore it.
pub(crate) fn changed<V: Vfs>(
    server: &Server<V>,
    open: &Open<V>,
) -> impl Future<Output = Result<(), VfsError>> + use<V> {
    stored(server.persistence.changed(&server.files, open.engine))
}

/// Records a changed name or deletion mark of an inode; it is stored when this completes.
pub(crate) async fn inode_changed<V: Vfs>(server: &Server<V>, key: FileKey) {
    // The change was made already; the store reports its error itself and retries.
    let _ = stored(server.persistence.inode_changed(&server.files, key)).await;
}

/// Records both names before a rename, so that one of them leads to the inode after a crash at any time. [`moved`] must
/// follow, whether or not the rename succeeds. Returns false if nothing had to be recorded.
///
/// # Errors
/// The names cannot be recorded, so the rename must not be made.
pub(crate) async fn moving<V: Vfs>(
    server: &Server<V>,
    key: FileKey,
    rename: OpenId,
    to: &SharePath,
) -> Result<bool, VfsError> {
    match server.persistence.moving(&server.files, key, rename, to) {
        Some(task) => task.await.map(|()| true),
        None => Ok(false),
    }
}

/// Records the names of the opens below a directory that met its rename before it was announced again.
pub(crate) async fn moving_below<V: Vfs>(
    server: &Server<V>,
    rename: OpenId,
) -> Result<(), VfsError> {
    for open in server.persistence.met(rename) {
        stored(server.persistence.changed(&server.files, open)).await?;
    }
    Ok(())
}

/// Called when the rename is over: either it is done, also in the tables of the engine, or it failed.
pub(crate) async fn moved<V: Vfs>(server: &Server<V>, key: FileKey, rename: OpenId) {
    // If this fails, the record still has both names, which is enough.
    let _ = stored(server.persistence.moved(&server.files, key, rename)).await;
}

/// Records both names of an open's stream before it is renamed. [`stream_moved`] must follow, whether or not the rename
/// succeeds.
pub(crate) async fn stream_moving<V: Vfs>(
    server: &Server<V>,
    open: &Open<V>,
    to: Option<&str>,
) -> Result<(), VfsError> {
    let Ok(disk) = open.disk() else {
        return Ok(());
    };
    let names = (disk.node.stream(), to);
    stored((server.persistence).stream_named(&server.files, open.engine, names)).await
}

/// Called when the rename of an open's stream is over: either it is stable, or it failed.
pub(crate) async fn stream_moved<V: Vfs>(server: &Server<V>, open: &Open<V>) {
    // If this fails, the record still has both names, which is enough.
    let _ = stream_moving(server, open, None).await;
}

/// Called as soon as the open has its stream under the new name.
pub(crate) fn stream_follows<V: Vfs>(server: &Server<V>, open: &Open<V>) {
    if let Ok(disk) = open.disk() {
        server.persistence.stream_follows(open.engine, &disk.place);
    }
}

/// Records a change of an oplock or lease. A request that must not proceed before waits for
/// [`crate::persistent::Persistence::caching_recorded`].
pub(crate) fn caching_changed<V: Vfs>(server: &Arc<Server<V>>, owner: Owner) {
    if let Some(change) = server.persistence.caching_changed(&server.files, owner) {
        let known = Arc::clone(server);
        server
            .env
            .spawn(Box::pin(async move { recorded(&known, change).await }));
    }
}

async fn recorded<V: Vfs>(server: &Server<V>, (task, being_recorded): (StoreTask, BeingRecorded)) {
    if let Err(error) = task.await {
        server.persistence.missed(error).await;
    }
    drop(being_recorded);
}

/// Records the changes of a break (the epoch, and caching that is lost without an acknowledgment) before the break is
/// delivered, so that the server never has an older state of the lease after a restart than the client.
pub(crate) fn before_break<V: Vfs>(
    server: &Arc<Server<V>>,
    broken: Break,
    deliver: impl FnOnce(&Arc<Server<V>>, Break) + 'static,
) {
    let change = (server.persistence).caching_changed(&server.files, broken.owner);
    let Some(change) = change else {
        return deliver(server, broken);
    };
    let for_task = Arc::clone(server);
    server.env.spawn(Box::pin(async move {
        recorded(&for_task, change).await;
        deliver(&for_task, broken);
    }));
}

impl<V: Vfs> Server<V> {
    /// Sets the function that stores the time until which changes are seen. Called once.
    pub fn announce_changes_by(&self, announce: Box<Announce>) {
        self.persistence.announce_by(announce, &self.env);
    }

    /// Called before a request that may change a file of a continuously available share.
    pub(crate) fn changes_ahead(self: &Arc<Self>) {
        if self.persistence.must_store_timestamp() {
            let server = Arc::clone(self);
            self.env.spawn(Box::pin(async move {
                server.persistence.store_timestamp().await
            }));
        }
    }

    /// Records that this run still sees all changes; called regularly while opens are recorded.
    pub async fn record_that_changes_are_seen(&self) {
        if self.persistence.len() > 0 {
            self.persistence.make_up().await;
            self.persistence.store_timestamp().await;
        }
    }

    /// Whether this run sees all changes of the files of recorded opens and records the caching that their clients
    /// lose: every recorded open has been examined since the start, and the store can be written.
    pub fn sees_all_changes(&self) -> bool {
        self.persistence.sees_all_changes()
    }

    /// Opens that outlive their connections: the number of disconnected ones, and of all.
    pub fn durable_opens(&self) -> (usize, usize) {
        let waiting = self.durables.len();
        let sessions = self.all_sessions();
        let live = sessions.iter().map(|session| {
            let tables = session.tables();
            let opens = tables.opens.values();
            let endures = |open: &&Arc<Open<V>>| open.endurance().timeout().is_some();
            opens.filter(endures).count()
        });
        (waiting, waiting + live.sum::<usize>())
    }
}
