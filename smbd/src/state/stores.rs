//! The daemon's stores that outlive the process, besides the shares: error latches, the journal of acknowledged
//! flushes, and the sentinel of the file systems.
//!
//! They are opened before the first connection, changed by a reload with everything else, and closed after the last
//! sync. A reload first examines and opens what it needs, where it may wait ([`Stores::look`], [`Stores::open_first`]),
//! and then puts it into force, where nothing fails ([`Stores::adopt`]).

use std::{
    collections::BTreeSet,
    io,
    path::PathBuf,
    sync::{Arc, Mutex},
    time::Duration,
};

use durability::{Durability, LatchMap, LatchRecord, LatchStore};
use vfs::{Env, FileKey, linux::LinuxDisk};

use crate::{
    Error,
    answers::{KeptStatus, LatchStoreStatus},
    config::{self, Config},
    host_vfs::HostVfs,
    lock,
    metrics::exposition::Page,
    runtime::apart::on_thread,
    state::{
        flush_journal::{self, Journal},
        latches,
        sentinel::{self, PERIOD, Sentinels},
    },
};

/// Longest time that an administrator waits for the state folder.
const STORE_WAIT_MAX: Duration = Duration::from_secs(10);

/// See the module head.
pub(crate) struct Stores {
    env: Arc<dyn Env>,
    /// The state folder of this run; a change in the configuration needs a restart.
    folder: PathBuf,
    latches: Arc<LatchMap<LinuxDisk>>,
    journal: Mutex<Option<Arc<Journal>>>,
    sentinels: Sentinels,
    /// Shares that a thread is looking at.
    looking: Mutex<BTreeSet<String>>,
}

/// The facts about some shares' file systems.
pub(crate) struct Look {
    file_systems: sentinel::Look,
    /// Inodes of latches that were found by their paths.
    located: Vec<(LatchRecord, FileKey)>,
}

impl Stores {
    /// Opens all stores, restores the latches of earlier runs, and gives them to the engine.
    pub(crate) fn open(
        config: &Config,
        env: Arc<dyn Env>,
        durability: &Arc<Durability<HostVfs>>,
    ) -> io::Result<Arc<Self>> {
        let folder = config.server.state_dir.clone();
        let file_systems = sentinel::look(&config.shares);
        let (known, env_of_latches) = (file_systems.known(), Arc::clone(&env));
        let latches = latches::open(&folder, &config.shares, known, env_of_latches)?;
        let journal = flush_journal::open(&folder, &config.shares, Arc::clone(&env))?;
        let sentinels = Sentinels::default();
        sentinels.adopt(file_systems, |_| true);
        for record in latches.restore() {
            tracing::error!(
                path = record.path,
                shares = record.shares.join(", "),
                inode = record.key.ino,
                error = %record.error,
                "a sync of this file failed in an earlier run and it was not repaired since"
            );
            let shares = concerned(&record, &sentinels);
            durability.restore_latch(&LatchRecord { shares, ..record });
        }
        if latches.has_overflow() {
            durability.restore_overflow();
        }
        durability.keep_latches(Arc::clone(&latches) as _);
        if let Some(journal) = &journal {
            durability.keep_journal(Arc::clone(&journal.file) as _);
        }
        Ok(Arc::new(Self {
            env,
            folder,
            latches,
            journal: Mutex::new(journal),
            sentinels,
            looking: Mutex::default(),
        }))
    }

    #[cfg(test)]
    pub(crate) fn latches(&self) -> &LatchMap<LinuxDisk> {
        &self.latches
    }

    fn journal(&self) -> Option<Arc<Journal>> {
        lock(&self.journal).clone()
    }

    /// Whether these shares need a journal, and there is none yet.
    pub(crate) fn lack(&self, shares: &[config::ShareSettings]) -> bool {
        self.journal().is_none() && !flush_journal::wanted(shares).is_empty()
    }

    /// Opens the journal if these shares are the first to need one. This may wait for the disk of the state folder.
    ///
    /// # Errors
    /// It could not be opened.
    pub(crate) fn open_first(
        &self,
        shares: &[config::ShareSettings],
    ) -> io::Result<Option<Arc<Journal>>> {
        match self.lack(shares) {
            true => flush_journal::open(&self.folder, shares, Arc::clone(&self.env)),
            false => Ok(None),
        }
    }

    /// Examines the file systems of shares. This may wait for their disks.
    pub(crate) fn look(&self, shares: &[config::ShareSettings]) -> Look {
        Look {
            file_systems: sentinel::look(shares),
            located: latches::locate(&self.latches, shares),
        }
    }

    /// Puts into force what a reload has examined, and the journal if it is the first, before clients can reach the new
    /// shares. Must be called on a worker.
    pub(crate) fn adopt(
        &self,
        look: Look,
        first: Option<Arc<Journal>>,
        shares: &[config::ShareSettings],
        durability: &Arc<Durability<HostVfs>>,
    ) {
        self.seen(look, shares, durability);
        // The names in the store are those of the shares through which the inode was changed.
        for record in self.latches.restore() {
            durability.extend_latch(record.key, &concerned(&record, &self.sentinels));
        }
        if let Some(journal) = first {
            durability.keep_journal(Arc::clone(&journal.file) as _);
            *lock(&self.journal) = Some(journal);
        }
        if let Some(journal) = self.journal() {
            journal.file.set_shares(flush_journal::wanted(shares));
        }
    }

    fn seen(
        &self,
        look: Look,
        shares: &[config::ShareSettings],
        durability: &Arc<Durability<HostVfs>>,
    ) {
        let stays = |name: &str| shares.iter().any(|share| share.name == name);
        let known = look.file_systems.known();
        self.sentinels.adopt(look.file_systems, stays);
        for record in latches::learned(&self.latches, known, look.located) {
            let shares = concerned(&record, &self.sentinels);
            durability.restore_latch(&LatchRecord { shares, ..record });
        }
    }

    /// Examines again the shares that a reload leaves as they are, because a file system may have been mounted below.
    /// Each is examined on its own thread, so that nothing waits for one whose disk hangs. Must be called on a worker.
    pub(crate) fn look_again(
        self: &Arc<Self>,
        old: Vec<config::ShareSettings>,
        durability: &Arc<Durability<HostVfs>>,
        configured: impl Fn() -> Arc<Config> + Clone + 'static,
    ) {
        for share in old {
            if !lock(&self.looking).insert(share.name.clone()) {
                // An earlier look at this share still waits for its disk.
                continue;
            }
            let (me, durability) = (Arc::clone(self), Arc::clone(durability));
            let configured = configured.clone();
            tokio::task::spawn_local(async move {
                let (looking, wanted) = (Arc::clone(&me), share.clone());
                let look = move || looking.look(std::slice::from_ref(&wanted));
                let look = on_thread("look", look).await;
                lock(&me.looking).remove(&share.name);
                let look = match look {
                    Ok(look) => look,
                    Err(error) => {
                        tracing::warn!(%error, share = share.name, "file systems mounted below were not examined");
                        return;
                    }
                };
                // Another reload may have taken it away.
                let now = configured();
                let same =
                    |one: &config::ShareSettings| one.name == share.name && one.path == share.path;
                if now.shares.iter().any(same) {
                    me.seen(look, &now.shares, &durability);
                }
            });
        }
    }

    /// Asks the file systems now and then, until the server stops. One worker runs it.
    pub(crate) async fn watch(
        self: Arc<Self>,
        durability: Arc<Durability<HostVfs>>,
        stopping: impl Future<Output = ()>,
        activity: impl Fn(&str) -> u64,
    ) {
        // The task that should retry what the start could not store has ended with the start.
        self.latches.try_again();
        let mut stopping = std::pin::pin!(stopping);
        loop {
            tokio::select! {
                () = &mut stopping => return,
                () = tokio::time::sleep(PERIOD) => {}
            }
            for watched in self.sentinels.due(&activity) {
                let durability = Arc::clone(&durability);
                tokio::task::spawn_local(async move { watched.ask(&durability).await });
            }
        }
    }

    /// The orderly end; `stable` if everything acknowledged is on stable storage.
    pub(crate) async fn stop(&self, stable: bool) {
        if let Some(journal) = self.journal() {
            // The journal reports its error itself.
            let _ = journal.file.stop(stable).await;
        }
        if let Some(written) = self.latches.end_of_writes() {
            let _ = written.await;
        }
    }

    /// Accepts, for an administrator, the loss of poisoned inodes that no share reaches any more.
    pub(crate) fn clear_dormant(&self) -> usize {
        self.latches.clear_dormant()
    }

    /// Waits until what was cleared is stored, but not for ever.
    ///
    /// # Errors
    /// The clearing could not be stored, so a restart brings the latches back.
    pub(crate) async fn clearing_stored(&self) -> Result<(), Error> {
        let stored = async {
            match self.latches.end_of_writes() {
                Some(written) => written.await.is_ok(),
                // No write is under way: the clearing is stored, unless the last attempt failed.
                None => self.latches.is_healthy(),
            }
        };
        match tokio::time::timeout(STORE_WAIT_MAX, stored).await {
            Ok(true) => Ok(()),
            _ => Err(
                "cleared, but that could not be stored: a restart brings the latches back\n  = \
                 the state folder must be writable and its disk answer; then clear them again"
                    .into(),
            ),
        }
    }

    /// The state of the stores and of the watched file systems, for `holdfast status`.
    pub(crate) fn status(&self) -> KeptStatus {
        KeptStatus {
            latches: LatchStoreStatus {
                healthy: self.latches.is_healthy(),
                dormant: self.latches.dormant().len(),
                overflow: self.latches.has_overflow(),
            },
            flush_journal: self
                .journal()
                .map(|journal| flush_journal::status(&journal)),
            file_systems: self.sentinels.status(),
        }
    }

    /// Writes the families of the stores to the metrics page.
    pub(crate) fn metrics(&self, page: &mut Page) {
        let help = "Whether error latches can be stored: if not, a restart forgets them.";
        let healthy = u8::from(self.latches.is_healthy());
        page.single("holdfast_latch_store_healthy", help, healthy);
        let help = "1 if files whose sync failed are not known by name, so that every flush fails.";
        let overflow = u8::from(self.latches.has_overflow());
        page.single("holdfast_latches_overflow", help, overflow);
        let help = "Stored latches of files on file systems that no share is on now.";
        let dormant = self.latches.dormant().len();
        page.single("holdfast_latches_dormant", help, dormant);
        self.sentinels.metrics(page);
        if let Some(journal) = self.journal() {
            flush_journal::metrics(&journal, page);
        }
    }
}

/// The names of the shares that a latch concerns under this configuration. If none of those that its record names is on
/// its file system, one of those that are may be the same folder under another name: all of these count then.
fn concerned(record: &LatchRecord, sentinels: &Sentinels) -> Vec<String> {
    let mut on = sentinels.shares_on(record.key.fs);
    let is_named = |share: &String| {
        let mut names = record.shares.iter();
        names.any(|name| config::is_same_share(name, share))
    };
    if on.iter().any(is_named) {
        on.clear();
    }
    [record.shares.clone(), on].concat()
}
