//! The interface of the protocol to the daemon: the operations that it must have, and their results.

use std::{future::Future, io, pin::Pin, sync::Arc};

use smb_auth::UserDb;

use crate::{
    Error,
    answers::{
        AppliedConfig, ClearedLatches, ClosedObjects, Explained, PolicyChange, PolicyOutcome,
        ServerStatus, ShareStatus,
    },
    config::{self, Config, Policy, Protection},
    control::protocol::Closing,
    metrics::exposition::Page,
    runtime::worker::{ConnectionHandler, WorkerHandle},
    status::explain::Located,
};

/// The protocol, as the daemon uses it. There is one for the process, shared by all workers.
pub trait Service: Send + Sync + Sized + 'static {
    /// Serves connections on one worker.
    type Handler: ConnectionHandler;

    /// Makes a worker's handler; called once on each worker's thread, within its runtime.
    ///
    /// # Errors
    /// If this fails, the server does not start.
    fn handler(self: Arc<Self>, worker: &WorkerHandle) -> io::Result<Self::Handler>;

    /// The server's activity: sessions, trees, opens, locks, exposure. Quick; called on the front.
    fn status(&self) -> ServerStatus;

    /// Adds its figures to the metrics page. Quick; called on the front.
    fn metrics(&self, page: &mut Page);

    /// Brings changed shares, users and limits into force, and ends the objects that they no longer allow; called on a
    /// worker, one at a time. It waits for no disk of a share that is served already.
    fn apply(
        self: Arc<Self>,
        config: Arc<Config>,
        users: UserDb,
        why: ApplyReason,
    ) -> impl Future<Output = Result<Applied, Error>>;

    /// Names of the shares whose paths lead to other folders than those that are served, or to none, because a file
    /// system was mounted over the folder, or the folder was replaced, renamed or removed. May wait for a disk, but not
    /// for ever.
    fn replaced_folders(&self, config: &Config) -> Vec<String>;

    /// The policy, promise and exposure of one share, or of all. Quick; called on the front.
    ///
    /// # Errors
    /// There is no such share.
    fn policies(&self, share: Option<&str>) -> Result<Vec<ShareStatus>, Error>;

    /// Changes durability policies; a stricter policy is answered when everything that was dirty is stable. Called
    /// on a worker.
    ///
    /// # Errors
    /// There is no such share, it must keep a policy that writes through, or the configuration now in force does not
    /// permit the change.
    fn set_policy(
        self: Arc<Self>,
        change: PolicySetting,
    ) -> impl Future<Output = Result<Vec<PolicyChange>, Error>>;

    /// Closes the objects that an administrator names, and returns a list of them; the data that their clients had
    /// written stay dirty. Called on a worker.
    ///
    /// # Errors
    /// There is no object of that id or name.
    fn close_named(
        self: Arc<Self>,
        what: Closing,
    ) -> impl Future<Output = Result<ClosedObjects, Error>>;

    /// The policy of an open of a share, the reason for it, and the policy in force for it now. Quick; called on
    /// the front.
    ///
    /// # Errors
    /// There is no such share.
    fn explain(&self, located: &Located) -> Result<Explained, Error>;

    /// Accepts, for an administrator, the loss of everything that failed syncs left unproven in a share, or in all;
    /// returns when that is stored. Called on a worker.
    ///
    /// # Errors
    /// There is no share of that name, or the clearing could not be stored, so that it holds only until a restart.
    fn clear_latch(
        self: Arc<Self>,
        share: Option<String>,
    ) -> impl Future<Output = Result<Vec<ClearedLatches>, Error>>;

    /// Whether everything acknowledged is stable and no sync has failed. Called on the front, after the last connection
    /// and the sync.
    fn is_stable(&self) -> bool;

    /// Makes everything stable that is dirty; called on a worker, after the last connection.
    fn sync_all(self: Arc<Self>) -> impl Future<Output = SyncReport>;

    /// The end without [`Service::sync_all`], or after it was given up, which is recorded in the state folder. Called
    /// on a worker, after the last connection.
    fn close(self: Arc<Self>) -> impl Future<Output = ()>;

    /// The number of syncs that have ended so far, successfully or not. Quick; called on the front while
    /// [`Service::sync_all`] runs.
    fn syncs_ended(&self) -> u64;

    /// The data that are acknowledged and not known to be stable. Quick; called on the front.
    fn dirty_data(&self) -> DirtyData;
}

/// Why a configuration is brought into force.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ApplyReason {
    /// The file was read again: every share gets the policy and the rules of the file.
    Reload,
    /// Shares that were late can be served. The others keep the policies and rules that they have, which an
    /// administrator may have set since the file was read.
    LateShares,
}

/// A configuration that is in force.
pub struct Applied {
    /// The configuration that came into force at once, without what becomes of its policies.
    pub in_force: AppliedConfig,
    /// Completes when everything is on disk that was dirty under the policies that were tightened, which a disk may
    /// delay for ever; returns what became of the policies.
    pub stable: Pin<Box<dyn Future<Output = Result<Vec<PolicyOutcome>, Error>> + Send>>,
}

/// The data that are acknowledged and not known to be stable.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DirtyData {
    pub inodes: u64,
    /// Bytes written.
    pub bytes: u64,
    pub shares: Vec<String>,
}

/// A change of durability policies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicySetting {
    /// One share, or all.
    pub share: Option<String>,
    /// The new policy.
    pub policy: Policy,
    /// Consent to lose acknowledged writes with the host.
    pub accept_loss: bool,
    /// The share's rules are set aside, too.
    pub without_rules: bool,
    /// The caller, in words.
    pub who: String,
}

impl PolicySetting {
    /// Refuses a policy to whose losses nobody has agreed, and one that needs the sync at the end where there is none.
    pub(crate) fn check(&self, config: &Config) -> Result<(), Error> {
        if self.policy == Policy::TreatHostAsStableStorage && !self.has_consent(config) {
            return Err(
                "treat-host-as-stable-storage loses acknowledged data when this machine fails, and \
                 nobody has agreed to that\n  = say --accept-loss, or choose `bounded`"
                    .into(),
            );
        }
        if matches!(self.policy, Policy::Bounded(_)) && !config.durability.sync_on_stop {
            return fail!("{}\n  = {}", config::UNSYNCED.0, config::UNSYNCED.1);
        }
        Ok(())
    }

    /// Whether the caller or the configuration consents to losing acknowledged data with the host, for this share or
    /// for all.
    fn has_consent(&self, config: &Config) -> bool {
        let mut shares = config.shares.iter();
        self.accept_loss
            || config.durability.protection != Protection::None
            || shares.all(|one| one.accept_loss || !self.concerns(&one.name))
    }

    /// Whether it is for the share of this name.
    pub(super) fn concerns(&self, share: &str) -> bool {
        let named = self.share.as_ref();
        named.is_none_or(|named| config::is_same_share(named, share))
    }
}

/// The result of the sync at the end.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SyncReport {
    /// Inodes made stable.
    pub inodes: u64,
    /// Bytes that had been dirty.
    pub bytes: u64,
    /// The failures: acknowledged data may be lost.
    pub errors: Vec<String>,
}
