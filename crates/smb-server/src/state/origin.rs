//! The origin of an open: how long it outlives its connection, and the CREATE that made it ([MS-SMB2] 3.3.1.10).

use std::{sync::Arc, time::Duration};

use smb_wire::{
    access_mask::AccessMask,
    create_context::AppInstanceVersion,
    ids::{Guid, LeaseKey, SessionId},
    msg::{CreateAction, ShareAccess},
};

use crate::token::Token;

/// Whether an open outlives its connection, and for how long (Open.IsDurable, Open.IsPersistent,
/// Open.IsResilient with their time-outs).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Endurance {
    /// It ends with its session.
    #[default]
    None,
    /// Durable, asked for by DHnQ or DH2Q: kept while its caching of the handle is intact.
    Durable {
        /// Open.DurableOpenTimeout.
        timeout: Duration,
        /// Recorded in the share's store as well: Open.IsPersistent.
        persistent: bool,
    },
    /// By FSCTL_LMR_REQUEST_RESILIENCY: kept whatever it caches.
    Resilient {
        /// Open.ResiliencyTimeout.
        timeout: Duration,
    },
}

impl Endurance {
    /// How long it waits for its client; `None` where it does not.
    pub(crate) fn timeout(self) -> Option<Duration> {
        match self {
            Self::None => None,
            Self::Durable { timeout, .. } | Self::Resilient { timeout } => Some(timeout),
        }
    }

    pub(crate) fn is_persistent(self) -> bool {
        matches!(
            self,
            Self::Durable {
                persistent: true,
                ..
            }
        )
    }

    /// Kept only while its client's right to cache the handle is intact.
    pub(crate) fn needs_caching(self) -> bool {
        matches!(
            self,
            Self::Durable {
                persistent: false,
                ..
            }
        )
    }
}

/// Which instance of a clustered application has opened ([MS-SMB2] 2.2.13.2.13, .15).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct AppInstance {
    /// Open.AppInstanceId.
    pub(crate) id: Guid,
    /// Open.ApplicationInstanceVersionHigh and -Low.
    pub(crate) version: Option<AppInstanceVersion>,
}

/// The lease an open was made with: Open.Lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LeaseName {
    pub(crate) key: LeaseKey,
    /// Lease.Version is 2.
    pub(crate) v2: bool,
}

/// What CREATE said and got, kept to recognize it when it comes again: everything an open is
/// besides the inode, the options and what the file engine knows of it (path, caching, locks).
#[derive(Debug, Clone)]
pub(crate) struct Origin {
    /// Open.Session.
    pub(crate) session: SessionId,
    /// Open.ClientGuid.
    pub(crate) client: Guid,
    /// Open.DurableOwner, and as whom it is closed when no session is left.
    pub(crate) owner: Arc<Token>,
    /// Open.CreateGuid; all zero without DH2Q.
    pub(crate) create_guid: Guid,
    /// Open.Lease; `None` with an oplock or nothing.
    pub(crate) lease: Option<LeaseName>,
    /// Of AppInstanceId and its version.
    pub(crate) app: Option<AppInstance>,
    /// Open.DesiredAccess.
    pub(crate) desired: AccessMask,
    /// Open.ShareAccess.
    pub(crate) share: ShareAccess,
    /// The CreateAction of the first answer.
    pub(crate) action: CreateAction,
}

impl Origin {
    /// Of an open that nobody asks for again.
    pub(crate) fn plain(session: SessionId, owner: Arc<Token>) -> Self {
        Self {
            session,
            client: Guid::default(),
            owner,
            create_guid: Guid::default(),
            lease: None,
            app: None,
            desired: AccessMask::empty(),
            share: ShareAccess::empty(),
            action: CreateAction::OPENED,
        }
    }
}
