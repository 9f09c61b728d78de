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
        /// Open.IsPersistent: the open is also recorded in the share's store.
        persistent: bool,
    },
    /// Resilient by FSCTL_LMR_REQUEST_RESILIENCY: kept whatever it caches.
    Resilient {
        /// Open.ResiliencyTimeout.
        timeout: Duration,
    },
}

impl Endurance {
    /// How long it waits for its client; `None` if it does not wait.
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

    /// Whether it is kept only while its caching of the handle is intact.
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

/// The instance of a clustered application that made the open ([MS-SMB2] 2.2.13.2.13, .15).
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

/// The CREATE that made an open: its request and result, kept to recognize the same CREATE when it is sent again. It
/// has everything about the open except the inode, the options and the file engine's state (path, caching, locks).
#[derive(Debug, Clone)]
pub(crate) struct Origin {
    /// Open.Session.
    pub(crate) session: SessionId,
    /// Open.ClientGuid.
    pub(crate) client: Guid,
    /// Open.DurableOwner, and the identity under which it is closed when no session is left.
    pub(crate) owner: Arc<Token>,
    /// Open.CreateGuid; all zero without DH2Q.
    pub(crate) create_guid: Guid,
    /// Open.Lease; `None` with an oplock or nothing.
    pub(crate) lease: Option<LeaseName>,
    /// Open.AppInstanceId and its version.
    pub(crate) app: Option<AppInstance>,
    /// Open.DesiredAccess.
    pub(crate) desired: AccessMask,
    /// Open.ShareAccess.
    pub(crate) share: ShareAccess,
    /// The CreateAction of the first answer.
    pub(crate) action: CreateAction,
}

impl Origin {
    /// Whether the CREATE can be replayed as long as its open is not used ([MS-SMB2] 3.3.5.9.10): if the open is
    /// persistent, or is one of a file and can read, write or delete it.
    pub(crate) fn is_replayable(
        &self,
        endurance: Endurance,
        granted: AccessMask,
        directory: bool,
    ) -> bool {
        let data = AccessMask::FILE_READ_DATA
            | AccessMask::FILE_EXECUTE
            | AccessMask::FILE_WRITE_DATA
            | AccessMask::FILE_APPEND_DATA
            | AccessMask::DELETE;
        self.create_guid != Guid::default()
            && (endurance.is_persistent() || !directory && granted.intersects(data))
    }

    /// The origin of an open that cannot be replayed or reconnected to.
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
