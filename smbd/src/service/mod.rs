//! The protocol joined to the daemon: shares of the configuration become shares of the server,
//! sockets become its transport, its reports become status and metrics.

mod building;
mod contract;
mod handler;
mod opening;
mod promises;
mod revoking;
mod spare_memory;
mod status;
mod tightening;

use std::{
    io,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use durability::Durability;
use smb_auth::UserDb;
use smb_server::{Server, Share, host_watch::HostWatch};
use vfs::linux::OwnChanges;

use crate::{
    Error,
    answers::{
        AppliedConfig, ClearedLatches, ClosedObjects, Explained, PolicyChange, PolicyOutcome,
        ServerStatus, ShareStatus,
    },
    config::{self, Config},
    control::protocol::Closing,
    host::{
        host_changes::HostChanges,
        interfaces,
        power::{PowerGuard, Source},
    },
    host_vfs::HostVfs,
    lock,
    metrics::exposition::{self, Page},
    runtime::{env::TokioEnv, resources::Descriptors, settings, worker::WorkerHandle},
    state::{persistent_store, stores::Stores},
    status::explain::Located,
};

use building::{AtPath, Before, at_path, build_shares};
pub use contract::{Applied, ApplyReason, DirtyData, PolicySetting, Service, SyncReport};
pub use handler::Handler;
pub(crate) use promises::check_groups;
use tightening::{Tightening, Tightenings};

/// How long the closes of disconnected opens may take when the server stops.
const KEPT_CLOSE_MAX: Duration = Duration::from_secs(2);

/// Completes when the server stops.
fn stopping(worker: &WorkerHandle) -> impl Future<Output = ()> + use<> {
    let worker = worker.clone();
    async move { worker.stopping().await }
}

/// The protocol of one process.
pub struct Holdfast {
    server: Arc<Server<HostVfs>>,
    use_ring: bool,
    stores: Arc<Stores>,
    power: Arc<PowerGuard>,
    own: Arc<OwnChanges>,
    host_changes: Option<Arc<HostChanges>>,
    /// The configuration in force, with which a reload is compared.
    config: Mutex<Arc<Config>>,
    tightenings: Tightenings,
    /// The highest number that a share was given so far; none is given again.
    numbers: AtomicU32,
    /// Where connections arrive; a reload changes nothing about that.
    listeners: Arc<[config::Listener]>,
    /// Held while the first stores of their kind are opened and put into force.
    opening: Arc<tokio::sync::Mutex<()>>,
}

impl Holdfast {
    /// Builds the server that a configuration describes.
    ///
    /// # Errors
    /// When a share's folder cannot be opened.
    pub fn new(config: Arc<Config>, users: UserDb) -> io::Result<Arc<Self>> {
        Self::on(config, users, Source::default())
    }

    /// Makes the service as [`Holdfast::new`] does, but reads the power supplies that `machine` names.
    fn on(config: Arc<Config>, users: UserDb, machine: Source) -> io::Result<Arc<Self>> {
        let use_ring = choose_ring(&config)?;
        let descriptors =
            Descriptors::check(&config).map_err(|error| io::Error::other(error.to_string()))?;
        tracing::info!(
            connections = descriptors.connections,
            opens = descriptors.opens,
            dirty_inodes = descriptors.dirty_inodes,
            "at most"
        );
        let env = Arc::new(TokioEnv::new());
        let durability = Durability::new(env.clone(), settings::durability_limits(&config));
        let power = PowerGuard::start(machine, config.durability.protection, &durability);
        let settings = settings::server(&config, &users);
        let before = Before {
            shares: Arc::default(),
            config: &[],
            replaced: &[],
            numbers: 0,
        };
        let own = Arc::new(OwnChanges::default());
        let built = build_shares(&config, &users, &durability, use_ring, &own, &before)?;
        for (gate, share) in &built.fresh {
            promises::rules_at_start(gate, share)?;
        }
        let stores = Stores::open(&config, env.clone(), &durability)?;
        let folder = &config.server.state_dir;
        let handles = persistent_store::open(folder, &config.shares, env.clone())?;
        let numbers = built.numbers;
        let server = Server::new(env, durability, settings, built.shares, Arc::new(users));
        // This precedes the restoring of opens that cache, so that host changes are seen from then on.
        let host_changes = observe(&server, &own);
        if let Some(handles) = handles {
            persistent_store::restore(&server, folder, handles)?;
        }
        let listeners: Arc<[_]> = config.listeners.clone().into();
        interfaces::announce(&server, &listeners);
        interfaces::keep_telling(&server, Arc::clone(&listeners))?;
        Ok(Arc::new(Self {
            server,
            use_ring,
            stores,
            power,
            own,
            host_changes,
            config: Mutex::new(config),
            tightenings: Tightenings::default(),
            numbers: AtomicU32::new(numbers),
            listeners,
            opening: Arc::default(),
        }))
    }

    /// The names of the shares at whose paths there is something that `is_wanted`. May wait for a disk, not for ever.
    fn shares_with(&self, config: &Config, is_wanted: impl Fn(AtPath) -> bool) -> Vec<String> {
        let shares = self.server.shares();
        let wanted = config.shares.iter().filter(|share| {
            let served = shares.find(&share.name);
            served.is_some_and(|served| is_wanted(at_path(&served.vfs, &share.path)))
        });
        wanted.map(|share| share.name.clone()).collect()
    }

    fn config(&self) -> Arc<Config> {
        Arc::clone(&lock(&self.config))
    }

    /// The share of this name, or all shares without a name.
    fn named(&self, name: Option<&str>) -> Result<Vec<Arc<Share<HostVfs>>>, Error> {
        let is_wanted = |share: &&Arc<Share<HostVfs>>| {
            name.is_none_or(|name| config::is_same_share(name, &share.config.name))
        };
        let shares = self.server.shares();
        let named: Vec<_> = shares.iter().filter(is_wanted).cloned().collect();
        match (name, named.is_empty()) {
            (Some(name), true) => {
                fail!("there is no share `{name}`\n  = `holdfast status` lists them")
            }
            _ => Ok(named),
        }
    }
}

/// Begins to observe host changes of the files of the shares.
fn observe(server: &Arc<Server<HostVfs>>, own: &Arc<OwnChanges>) -> Option<Arc<HostChanges>> {
    match HostChanges::start(Arc::clone(own), Arc::downgrade(server)) {
        Ok(started) => {
            let started = Arc::new(started);
            server.set_host_watch(Arc::clone(&started) as Arc<dyn HostWatch<HostVfs>>);
            Some(started)
        }
        Err(error) => {
            tracing::warn!(
                %error,
                "changes made on this host are not seen: no inotify\n  = raise fs.inotify.max_user_instances, restart"
            );
            None
        }
    }
}

/// Whether file I/O goes through io_uring; the log says it in both cases.
pub(crate) fn choose_ring(config: &Config) -> io::Result<bool> {
    let allowed = vfs::uring::probe();
    match (config.server.file_io, allowed) {
        (config::FileIo::Threads, _) => {
            tracing::info!("file I/O by threads, as configured");
            Ok(false)
        }
        (_, Ok(())) => {
            tracing::info!("file I/O by io_uring");
            Ok(true)
        }
        (config::FileIo::Auto, Err(reason)) => {
            tracing::warn!(%reason, "no io_uring here: file I/O by threads");
            Ok(false)
        }
        (config::FileIo::IoUring, Err(reason)) => Err(io::Error::other(format!(
            "file_io = \"io_uring\", but there is no io_uring here: {reason}\n  = use \"auto\" or \"threads\""
        ))),
    }
}

impl Service for Holdfast {
    type Handler = Handler;

    fn handler(self: Arc<Self>, worker: &WorkerHandle) -> io::Result<Handler> {
        if worker.index() == 0 {
            let (stores, server) = (Arc::clone(&self.stores), Arc::clone(&self.server));
            let activity = move |share: &str| {
                let shares = server.shares();
                let counters = shares.find(share).map(|share| share.gate.counters());
                counters.map_or(0, |all| all.counts().fold(0, u64::wrapping_add))
            };
            let durability = Arc::clone(&self.server.durability);
            tokio::task::spawn_local(stores.watch(durability, stopping(worker), activity));
            tokio::task::spawn_local(spare_memory::give_back(
                Arc::clone(&self.server.memory),
                worker.clone(),
            ));
            self.server.watch_restored();
            let folder = self.config().server.state_dir.clone();
            let (hearing, stop) = (Arc::clone(&self.server), stopping(worker));
            tokio::task::spawn_local(async move {
                tokio::select! {
                    () = persistent_store::keep_hearing(hearing, folder) => {}
                    () = stop => {}
                }
            });
            let (me, durability) = (Arc::clone(&self), Arc::clone(&self.server.durability));
            let protection = move || me.config().durability.protection;
            let power = Arc::clone(&self.power);
            tokio::task::spawn_local(power.watch(durability, stopping(worker), protection));
        }
        Ok(Handler { holdfast: self })
    }

    fn status(&self) -> ServerStatus {
        self.server_status()
    }

    fn metrics(&self, page: &mut Page) {
        exposition::render(page, &self.server);
        self.stores.metrics(page);
        self.power.metrics(page);
        persistent_store::metrics(&self.server, page);
    }

    async fn apply(
        self: Arc<Self>,
        config: Arc<Config>,
        users: UserDb,
        why: ApplyReason,
    ) -> Result<Applied, Error> {
        Descriptors::check(&config)?;
        let old = self.config();
        let (server, use_ring) = (Arc::clone(&self.server), self.use_ring);
        let stores = Arc::clone(&self.stores);
        let own = Arc::clone(&self.own);
        let wanted = Arc::clone(&config);
        let is_served = |share: &config::ShareSettings| {
            let mut known = old.shares.iter();
            known.any(|was| was.name == share.name && was.path == share.path)
        };
        let all = config.shares.iter().cloned();
        let (same, mut new): (Vec<_>, Vec<_>) = all.partition(is_served);
        let listeners = Arc::clone(&self.listeners);
        let numbers = self.numbers.load(Ordering::Relaxed);
        let me = Arc::clone(&self);
        // Opening a folder may wait for its disk, and the accounts of this machine may be many: not on a thread that
        // serves sockets.
        let building = tokio::task::spawn_blocking(move || {
            let replaced = match why {
                // A folder that has gone is served as it is: it must not keep another change from coming into force.
                ApplyReason::Reload => me.shares_with(&old, |at| at == AtPath::Other),
                ApplyReason::LateShares => Vec::new(),
            };
            let before = Before {
                shares: server.shares(),
                config: &old.shares,
                replaced: &replaced,
                numbers,
            };
            let built = build_shares(&wanted, &users, &server.durability, use_ring, &own, &before)?;
            // Another folder has latches of its own.
            let is_other = |share: &&config::ShareSettings| replaced.contains(&share.name);
            new.extend(wanted.shares.iter().filter(is_other).cloned());
            let look = stores.look(&new);
            interfaces::announce(&server, &listeners);
            let core = settings::server(&wanted, &users);
            io::Result::Ok((built, users, core, look))
        });
        let folders = "the folder of a new or changed share";
        let (built, users, core, look) = opening::opened(building, folders).await?;
        let first = self.first_stores(&config).await?;
        let not_stable = promises::first_terms_of_all(built.fresh).await;
        // From here on nothing fails: it is all in force, or none of it. Latches wake before
        // anybody can reach their inodes.
        let durability = &self.server.durability;
        self.stores
            .adopt(look, first.journal, &config.shares, durability);
        let names = built.shares.iter();
        let names: Vec<String> = names.map(|share| share.config.name.clone()).collect();
        self.numbers.store(built.numbers, Ordering::Relaxed);
        persistent_store::take_in(&self.server, first.handles, &built.shares).await;
        // Nothing may wait between these: old shares with a new configuration could allow what neither allows.
        self.server.set_config(core);
        self.server.set_shares(built.shares);
        self.server.set_users(Arc::new(users));
        *lock(&self.config) = Arc::clone(&config);
        let ended = self.revoke(&config).await;
        let me = Arc::clone(&self);
        self.stores
            .look_again(same, durability, move || me.config());
        let changed = match why {
            ApplyReason::Reload => built.changed,
            ApplyReason::LateShares => Vec::new(),
        };
        let stable = self.tightenings.reload(changed);
        let in_force = AppliedConfig {
            shares: names,
            not_stable,
            ended,
            policies: Vec::new(),
        };
        Ok(Applied {
            in_force,
            stable: Box::pin(stable),
        })
    }

    async fn close_named(self: Arc<Self>, what: Closing) -> Result<ClosedObjects, Error> {
        self.close_what(what).await
    }

    fn policies(&self, share: Option<&str>) -> Result<Vec<ShareStatus>, Error> {
        let named = self.named(share)?;
        Ok(named
            .iter()
            .map(|share| promises::share_status(share))
            .collect())
    }

    async fn set_policy(
        self: Arc<Self>,
        change: PolicySetting,
    ) -> Result<Vec<PolicyChange>, Error> {
        change.check(&self.config())?;
        promises::check_availability(&self.server.shares(), &change)?;
        // All are in force before the first of them is waited for.
        let begin = |share: Arc<Share<HostVfs>>| {
            let setting = promises::set(Arc::clone(&share.gate), change.clone());
            let begun = self.tightenings.begin(share.gate.name(), setting);
            (share, begun)
        };
        let named = self.named(change.share.as_deref())?.into_iter();
        let begun: Vec<(Arc<Share<HostVfs>>, Tightening)> = named.map(begin).collect();
        let mut answers = Vec::new();
        for (share, tightening) in begun {
            if let Some(PolicyOutcome { was, synced, .. }) = tightening.wait().await? {
                let share = promises::share_status(&share);
                answers.push(PolicyChange { share, was, synced });
            }
        }
        Ok(answers)
    }

    async fn clear_latch(
        self: Arc<Self>,
        share: Option<String>,
    ) -> Result<Vec<ClearedLatches>, Error> {
        let named = self.named(share.as_deref())?;
        let clear = |share: &Arc<Share<HostVfs>>| ClearedLatches {
            share: share.config.name.clone(),
            cleared_inodes: share.gate.clear_latches(),
        };
        let answers = named.iter().map(clear).collect();
        if share.is_none() {
            let durability = &self.server.durability;
            // Latches of shares that a reload has removed are cleared, too, also where no share is served now.
            for poisoned in durability.poisoned() {
                durability.clear_latch(poisoned.key);
            }
            durability.clear_overflow();
            self.stores.clear_dormant();
        }
        self.stores.clearing_stored().await?;
        Ok(answers)
    }

    fn replaced_folders(&self, config: &Config) -> Vec<String> {
        self.shares_with(config, |at| at != AtPath::Served)
    }

    fn explain(&self, located: &Located) -> Result<Explained, Error> {
        let shares = self.server.shares();
        let share = shares.find(&located.share).ok_or("no such share")?;
        Ok(promises::explain_open(share, located))
    }

    fn is_stable(&self) -> bool {
        self.server.durability.is_stable()
    }

    async fn sync_all(self: Arc<Self>) -> SyncReport {
        // Disconnected opens would be lost with the process; the work of their closes (DELETE_ON_CLOSE) is done
        // now, but a hanging disk must not delay another share's sync.
        let closing = self.server.close_disconnected();
        if tokio::time::timeout(KEPT_CLOSE_MAX, closing).await.is_err() {
            tracing::warn!(
                "opens of lost clients could not be closed in time: files that were to be deleted with them may remain"
            );
        }
        let report = self.server.durability.sync_all().await;
        let stable = report.errors.is_empty() && self.server.durability.is_stable();
        self.stores.stop(stable).await;
        SyncReport {
            inodes: report.inodes,
            bytes: report.bytes,
            errors: report
                .errors
                .iter()
                .map(|(key, error)| format!("inode {} of device {:#x}: {error}", key.ino, key.fs))
                .collect(),
        }
    }

    async fn close(self: Arc<Self>) {
        let stable = self.server.durability.is_stable();
        self.stores.stop(stable).await;
    }

    fn syncs_ended(&self) -> u64 {
        self.server.durability.syncs_ended()
    }

    fn dirty_data(&self) -> DirtyData {
        let mut shares = self.server.durability.exposures();
        shares.retain(|(_, exposure)| exposure.inodes > 0 || exposure.bytes > 0);
        DirtyData {
            inodes: shares.iter().map(|(_, exposure)| exposure.inodes).sum(),
            bytes: shares.iter().map(|(_, exposure)| exposure.bytes).sum(),
            shares: shares.into_iter().map(|(name, _)| name).collect(),
        }
    }
}

#[cfg(test)]
mod power_tests;
#[cfg(test)]
mod tests;
