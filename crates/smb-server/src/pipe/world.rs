//! A snapshot of the facts that the services need of the server and the client, taken for one WRITE.
//!
//! Its types do not depend on a file system, so that services and their tests need none. It never holds a path of the
//! host.

use std::{
    cell::{LazyCell, RefCell},
    sync::Arc,
    time::Duration,
};

use smb_auth::UserStore;
use vfs::Timestamp;

use crate::{config::ServerConfig, token::Token};

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

/// A session as an administrator sees it.
#[derive(Debug, Clone)]
pub(crate) struct SeenSession {
    pub(crate) id: u64,
    /// The address of its first connection; empty if that is lost.
    pub(crate) client: String,
    pub(crate) user: String,
    pub(crate) guest: bool,
    pub(crate) opens: u32,
    /// The age of its first connection.
    pub(crate) seconds: u32,
    pub(crate) trees: Vec<SeenTree>,
}

/// A tree connect as an administrator sees it.
#[derive(Debug, Clone)]
pub(crate) struct SeenTree {
    pub(crate) share: String,
    /// The session's opens on the share.
    pub(crate) opens: u32,
}

/// An open as an administrator sees it.
#[derive(Debug, Clone)]
pub(crate) struct SeenOpen {
    /// The volatile part of its FileId.
    pub(crate) id: u64,
    pub(crate) user: String,
    /// The path in the form in which shares have theirs, or that of a pipe.
    pub(crate) path: String,
    pub(crate) access: u32,
    pub(crate) locks: u32,
}

/// The use of the server.
#[derive(Debug, Clone)]
pub(crate) struct Activity {
    pub(crate) sessions: Vec<SeenSession>,
    pub(crate) opens: Vec<SeenOpen>,
}

/// The use of the server, listed only when a call asks for it: it has every open, and most WRITEs need none of it.
pub(crate) type LazyActivity = LazyCell<Activity, Box<dyn FnOnce() -> Activity>>;

/// Something that a call ends, by its id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EndRequest {
    Session(u64),
    Open(u64),
}

pub(crate) struct World {
    pub(crate) config: Arc<ServerConfig>,
    pub(crate) users: Arc<dyn UserStore>,
    pub(crate) token: Arc<Token>,
    /// Filled for srvsvc only.
    pub(crate) shares: Vec<SeenShare>,
    /// Filled for srvsvc only, and for an administrator of the server.
    pub(crate) activity: Option<LazyActivity>,
    /// The ends that calls have asked for; the caller carries them out before the answers are read.
    pub(crate) ends: RefCell<Vec<EndRequest>>,
    pub(crate) now: Timestamp,
    /// The time since the server started.
    pub(crate) uptime: Duration,
    /// Some share admits guests, so anybody may list the shares.
    pub(crate) guests_welcome: bool,
}

impl World {
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
