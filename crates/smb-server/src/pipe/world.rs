//! A snapshot of the facts that the services need of the server and the client, taken for one WRITE.
//!
//! It has no type of a file system, so that services and their tests need none. It never holds a path of the host.

use std::{sync::Arc, time::Duration};

use smb_auth::UserStore;
use smb_wire::rpc::Interface;
use vfs::{Timestamp, Vfs};

use crate::{
    command::{Call, admits},
    config::ServerConfig,
    failure::Failure,
    token::Token,
};

/// A share as the services see it.
#[derive(Debug, Clone)]
pub(super) struct SeenShare {
    pub(super) name: String,
    pub(super) comment: String,
    /// Shown in listings.
    pub(super) browseable: bool,
    /// Every user may connect from where this one asks.
    pub(super) open: bool,
    /// Whether the client may connect.
    pub(super) admitted: bool,
    pub(super) encrypted: bool,
    pub(super) access_based: bool,
}

/// The snapshot.
pub(super) struct World {
    pub(super) config: Arc<ServerConfig>,
    pub(super) users: Arc<dyn UserStore>,
    pub(super) token: Arc<Token>,
    /// Filled for srvsvc only.
    pub(super) shares: Vec<SeenShare>,
    pub(super) now: Timestamp,
    /// Since the server started.
    pub(super) uptime: Duration,
    /// Some share lets guests in: then anybody may ask what there is.
    pub(super) guests_welcome: bool,
}

impl World {
    pub(super) fn of<V: Vfs>(call: &Call<V>, interface: Interface) -> Result<Self, Failure> {
        let server = call.server();
        let token = call.token()?;
        let peer = call.connection.peer.ip();
        let shares = server.shares();
        let seen = |share: &Arc<crate::state::Share<V>>| {
            let config = &share.config;
            SeenShare {
                name: config.name.clone(),
                comment: config.comment.clone(),
                browseable: config.browseable,
                open: config.hosts.admits(peer) && config.users.is_none(),
                admitted: config.hosts.admits(peer) && admits(config, &token),
                encrypted: config.encryption_required,
                access_based: config.access_based_enumeration,
            }
        };
        let now = server.env.realtime();
        let seconds = now.secs.saturating_sub(server.started.secs);
        Ok(Self {
            guests_welcome: server.welcomes_guests(),
            shares: match interface {
                Interface::Srvsvc => shares.iter().map(seen).collect(),
                _ => Vec::new(),
            },
            config: server.config(),
            users: server.users(),
            token,
            now,
            uptime: Duration::from_secs(u64::try_from(seconds).unwrap_or(0)),
        })
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

    /// Whether the client may look up names.
    pub(super) fn may_look_up(&self) -> bool {
        !self.token.anonymous
    }

    /// Whether the client may list accounts.
    pub(super) fn may_enumerate(&self) -> bool {
        !self.token.anonymous && !self.token.guest
    }
}
