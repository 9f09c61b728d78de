//! A snapshot of the facts that the services need of the server and the client, taken for one WRITE.
//!
//! Its types do not depend on a file system, so that services and their tests need none. It never holds a path of the
//! host.

use std::{
    cell::{LazyCell, RefCell},
    sync::Arc,
};

use smb_auth::UserStore;
use vfs::Timestamp;

use crate::{
    administration::{Report, Target},
    config::ServerConfig,
    token::Token,
};

/// A share as the services see it.
#[derive(Debug, Clone)]
pub(crate) struct SeenShare {
    pub(crate) name: String,
    pub(crate) comment: String,
    /// The share is shown in listings.
    pub(crate) browseable: bool,
    /// Every user may connect from this client's address.
    pub(crate) open: bool,
    /// Whether the client may connect.
    pub(crate) admitted: bool,
    pub(crate) encrypted: bool,
    pub(crate) access_based: bool,
}

/// The use of the server, listed only when a call asks for it: it has every open, and most WRITEs need none of it.
pub(crate) type LazyReport = LazyCell<Report, Box<dyn FnOnce() -> Report>>;

pub(crate) struct World {
    pub(crate) config: Arc<ServerConfig>,
    pub(crate) users: Arc<dyn UserStore>,
    pub(crate) token: Arc<Token>,
    /// Filled for srvsvc only.
    pub(crate) shares: Vec<SeenShare>,
    /// Filled for srvsvc only, and for an administrator of the server.
    pub(crate) activity: Option<LazyReport>,
    /// The sessions and opens that calls have asked to end; the caller ends them before the answers are read.
    pub(crate) ends: RefCell<Vec<Target>>,
    pub(crate) now: Timestamp,
    /// When the server started.
    pub(crate) started: Timestamp,
    /// Some share admits guests, so anybody may list the shares.
    pub(crate) guests_welcome: bool,
}

impl World {
    /// The seconds since then.
    pub(super) fn seconds_since(&self, then: Timestamp) -> u64 {
        u64::try_from(self.now.secs.saturating_sub(then.secs)).unwrap_or(0)
    }

    /// Whether the client may list the shares.
    pub(super) fn may_list(&self) -> bool {
        self.may_browse() || self.config.anonymous_listing
    }

    /// Whether the client may learn about the server: every signed-in user may, and an anonymous one only where
    /// guests are welcome.
    pub(super) fn may_browse(&self) -> bool {
        !self.token.anonymous || self.guests_welcome
    }

    pub(super) fn may_look_up(&self) -> bool {
        !self.token.anonymous
    }

    /// The accounts of which the client may know names and numbers: none for a guest, who could list them by counting
    /// through their numbers.
    pub(super) fn accounts(&self) -> Option<&dyn UserStore> {
        self.may_enumerate().then_some(&*self.users)
    }

    /// Whether the client may list accounts.
    pub(super) fn may_enumerate(&self) -> bool {
        !self.token.anonymous && !self.token.guest
    }
}
