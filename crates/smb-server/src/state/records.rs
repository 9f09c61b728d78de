//! Reports changes of persistent opens to the list of records, and waits for them where a command must.

use std::{future::Future, sync::Arc};

use durability::StoreTask;
use vfs::{FileKey, Node, Vfs, VfsError};

use super::{Open, Server};
use crate::{
    file::{Break, OpenId, Owner, SharePath},
    persistent::{Announce, OpenRecord, Settling},
};

impl<V: Vfs> Server<V> {
    /// Whether some share has persistent opens (SMB2_GLOBAL_CAP_PERSISTENT_HANDLES).
    pub(crate) fn offers_persistence(&self) -> bool {
        let available = || {
            let shares = self.shares();
            shares
                .iter()
                .any(|share| share.config.continuous_availability)
        };
        self.persistence.store().is_some() && available()
    }

    /// Persistent opens, and whether what changes of them can be recorded; `None` where no share
    /// ever had any.
    #[must_use]
    pub fn persistent_opens(&self) -> Option<(usize, bool, durability::MapCounts)> {
        let store = self.persistence.store()?;
        Some((self.persistence.len(), store.is_healthy(), store.counts()))
    }
}

/// Records an open that is to be persistent. False: it is not, and must not say so.
pub(crate) async fn begin<V: Vfs>(server: &Arc<Server<V>>, open: &Open<V>) -> bool {
    let (Ok(disk), Some(record)) = (open.disk(), record(server, open)) else {
        return false;
    };
    let limits = server.config().limits.clone();
    if !server.persistence.has_room(record.owner, &limits) {
        tracing::info!(
            share = open.tree.name(),
            user = open.user,
            "a handle is durable at most: too many are persistent, or too much is recorded of them"
        );
        return false;
    }
    let files = &server.files;
    let place = disk.place;
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
    // A client without an account cannot prove to be the same one.
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
        inode: (key.ino, key.generation),
        directory: disk.directory,
        owner: origin.owner.user_sid,
        user: origin.owner.user.clone(),
        desired: origin.desired,
        options: open.options,
        action: origin.action,
        timeout_ms: u32::try_from(timeout.as_millis()).unwrap_or(u32::MAX),
        lease: origin.lease.map(|lease| (lease.key, lease.v2)),
        parent_lease: open.parent_lease,
        app: origin.app.map(|app| (app.id, app.version)),
        engine: Default::default(),
    })
}

/// An open is closed, or is not persistent after all: until that is recorded a restart brings it
/// back, and it waits for a client that never comes.
pub(crate) async fn end<V: Vfs>(server: &Server<V>, open: &Open<V>) {
    if let Some(task) = server.persistence.end(open.engine)
        && let Err(error) = task.await
    {
        tracing::warn!(%error, user = open.user, "the end of a persistent handle cannot be recorded yet");
    }
}

/// The locks of an open changed; the future completes when that is recorded.
///
/// # Errors
/// It is not, and a restart would not know.
pub(crate) fn changed<V: Vfs>(
    server: &Server<V>,
    open: &Open<V>,
) -> impl Future<Output = Result<(), VfsError>> + use<V> {
    let task = server.persistence.changed(&server.files, open.engine);
    async move {
        match task {
            Some(task) => task.await,
            None => Ok(()),
        }
    }
}

/// As [`changed`], for those who wait later.
pub(crate) fn queue<V: Vfs>(server: &Server<V>, open: &Open<V>) {
    // The work goes on without anybody waiting.
    drop(server.persistence.changed(&server.files, open.engine));
}

/// The name of an inode, or what is to become of it, changed: recorded when this completes.
pub(crate) async fn inode_changed<V: Vfs>(server: &Server<V>, key: FileKey) {
    if let Some(task) = server.persistence.inode_changed(&server.files, key) {
        // The change is made: the store reports itself and stores it when it can.
        let _ = task.await;
    }
}

/// A rename is about to give an inode another name: whenever a crash comes, one of those recorded
/// leads to it. Then [`moved`], whatever came of it. False: nothing had to be recorded.
///
/// # Errors
/// It cannot be recorded: the rename must not be done.
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

/// The rename is over: done, in the tables of the engine too, or not at all.
pub(crate) async fn moved<V: Vfs>(server: &Server<V>, key: FileKey, rename: OpenId) {
    if let Some(task) = server.persistence.moved(&server.files, key, rename) {
        // The record has both names: that is enough.
        let _ = task.await;
    }
}

/// The stream that an open is on has another name; recorded when this completes.
pub(crate) async fn stream_renamed<V: Vfs>(server: &Server<V>, open: &Open<V>) {
    let node = open.disk().map(|disk| disk.node);
    let to = node.as_ref().ok().and_then(Node::stream);
    let persistence = &server.persistence;
    if let Some(task) = persistence.stream_renamed(&server.files, open.engine, to) {
        // The change is made: the store reports itself and stores it when it can.
        let _ = task.await;
    }
}

/// An oplock or lease changed. A request that must not proceed before that is recorded waits for
/// [`crate::persistent::Persistence::settled`].
pub(crate) fn caching_changed<V: Vfs>(server: &Arc<Server<V>>, owner: Owner) {
    if let Some(change) = server.persistence.caching_changed(&server.files, owner) {
        let known = Arc::clone(server);
        server
            .env
            .spawn(Box::pin(async move { recorded(&known, change).await }));
    }
}

async fn recorded<V: Vfs>(server: &Server<V>, (task, settling): (StoreTask, Settling)) {
    if let Err(error) = task.await {
        server.persistence.missed(error).await;
    }
    drop(settling);
}

/// Records what a break changes (its epoch, and what is lost without an acknowledgment), then lets
/// it be delivered: a client never knows more of its lease than a restart will.
pub(crate) fn before_break<V: Vfs>(
    server: &Arc<Server<V>>,
    broken: Break,
    deliver: impl FnOnce(&Arc<Server<V>>, Break) + 'static,
) {
    let change = server
        .persistence
        .caching_changed(&server.files, broken.owner);
    let Some(change) = change else {
        return deliver(server, broken);
    };
    let told = Arc::clone(server);
    server.env.spawn(Box::pin(async move {
        recorded(&told, change).await;
        deliver(&told, broken);
    }));
}

impl<V: Vfs> Server<V> {
    /// Sets the function that stores the time until which changes are seen. Called once.
    pub fn announce_changes_by(&self, announce: Box<Announce>) {
        self.persistence.announce_by(announce, &self.env);
    }

    /// A request comes that may change a file of a continuously available share.
    pub(crate) fn changes_ahead(self: &Arc<Self>) {
        if self.persistence.must_say() {
            let server = Arc::clone(self);
            self.env
                .spawn(Box::pin(async move { server.persistence.say().await }));
        }
    }

    /// Every now and then, while opens are recorded: changes are still heard of.
    pub async fn still_hearing(&self) {
        if self.persistence.len() > 0 {
            self.persistence.make_up().await;
            self.persistence.say().await;
        }
    }

    /// Whether this run hears of all that happens to the files of recorded opens, and records what
    /// their clients lose by it: none of them is late or could not be looked at, and the store can
    /// be written.
    #[must_use]
    pub fn hears_of_all(&self) -> bool {
        self.persistence.hears_of_all()
    }

    /// Opens that outlive their connections: those whose client is away, and all.
    #[must_use]
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
