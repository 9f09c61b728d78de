//! Opens the stores and folders that a reload needs before it comes into force, and which may wait for disks.

use std::{io, sync::Arc, time::Duration};

use tokio::{sync::OwnedMutexGuard, task::JoinHandle};

use super::Holdfast;
use crate::{
    Error,
    config::Config,
    state::{flush_journal::Journal, persistent_store},
};

/// Longest time that a reload waits for the folders of new shares, and for the state folder.
const OPEN_MAX: Duration = Duration::from_secs(30);

/// The stores of a reload that is the first to need one of their kind.
#[derive(Default)]
pub(super) struct FirstStores {
    pub(super) journal: Option<Arc<Journal>>,
    pub(super) handles: Option<persistent_store::Opened>,
    /// No other reload opens them until these are in force, or have gone.
    _alone: Option<OwnedMutexGuard<()>>,
}

/// Waits for what a reload opens. If it gives up, the opening has no effect on what is served any more, because only
/// the caller puts its result into force.
pub(super) async fn opened<T>(opening: JoinHandle<io::Result<T>>, what: &str) -> Result<T, Error> {
    let opening = tokio::time::timeout(OPEN_MAX, opening).await;
    opening
        .map_err(|_| {
            format!(
                "{what} does not answer within {OPEN_MAX:?}: nothing has changed\n  = is its disk or server there?"
            )
        })??
        .map_err(Error::from)
}

impl Holdfast {
    /// Opens the journal and the store of persistent handles if this configuration is the first to need them. An
    /// opening that was given up may still write in the state folder when its disk answers again, so no other begins
    /// before it has ended.
    pub(super) async fn first_stores(&self, config: &Arc<Config>) -> Result<FirstStores, Error> {
        let (stores, server) = (Arc::clone(&self.stores), Arc::clone(&self.server));
        if !stores.lack(&config.shares) && !persistent_store::is_lacking(&server, &config.shares) {
            return Ok(FirstStores::default());
        }
        let folder = format!("the state folder {}", config.server.state_dir.display());
        let alone = Arc::clone(&self.opening).try_lock_owned().map_err(|_| {
            format!(
                "{folder} has not answered since an earlier reload: nothing has changed\n  = is its disk or server \
                 there? flush_journal and continuous_availability of the first share need it"
            )
        })?;
        let config = Arc::clone(config);
        let opening = tokio::task::spawn_blocking(move || {
            Ok(FirstStores {
                journal: stores.open_first(&config.shares)?,
                handles: persistent_store::open_first(&server, &config)?,
                _alone: Some(alone),
            })
        });
        opened(opening, &folder).await
    }
}
