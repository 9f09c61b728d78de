//! The data of named pipes ([MS-SMB2] 3.3.5.12, 3.3.5.13, 3.3.5.15.4); the pipes and their services are in `pipe/`.

use std::{cell::RefCell, sync::Arc};

use bytes::Bytes;
use smb_wire::{access_mask::AccessMask, rpc::Interface, status::Status};
use vfs::Vfs;

use super::{Call, tree_connect::admits};
use crate::{
    failure::Failure,
    pipe::{LazyReport, Pipe, SeenShare, World},
    state::{EndReason, Open, Share},
    turn::NAME_WORK,
};

impl Pipe {
    /// READ: as [`Pipe::take`], but it waits while there is nothing to read.
    pub(super) async fn read<V: Vfs>(
        &self,
        call: &Call<V>,
        open: &Open<V>,
        max: usize,
    ) -> Result<(Status, Bytes), Failure> {
        open.need(AccessMask::FILE_READ_DATA)?;
        loop {
            let readable = self.readable();
            let order = self.in_order().await;
            if let Some(found) = self.take(max)? {
                return Ok(found);
            }
            drop(order);
            match call.park(Some(open), readable).await? {
                Ok(()) => {}
                Err(EndReason::Cancelled) => return Err(Status::CANCELLED.into()),
                Err(EndReason::Closed | EndReason::Gone) => {
                    return Err(Status::PIPE_BROKEN.into());
                }
            }
        }
    }

    /// WRITE: takes RPC requests, whole or in pieces. Their answers wait to be read.
    pub(super) async fn write<V: Vfs>(
        &self,
        call: &Call<V>,
        open: &Open<V>,
        data: &[u8],
    ) -> Result<(), Failure> {
        open.need(AccessMask::FILE_WRITE_DATA)?;
        let _order = self.in_order().await;
        self.put(call, data, false).await
    }

    /// Takes requests one PDU after the other. The caller must hold [`Pipe::in_order`].
    async fn put<V: Vfs>(&self, call: &Call<V>, mut data: &[u8], now: bool) -> Result<(), Failure> {
        let world = world(call, self.interface)?;
        self.check()?;
        let account = call.connection.account();
        while let Some(bytes) = self.take_pdu(&mut data, &world, account)? {
            for what in world.ends.take() {
                // It is boxed, because otherwise the future of every WRITE would have room for it.
                Box::pin(call.server().end(&what)).await;
                let caller = world.token.user.as_str();
                tracing::info!(caller, ?what, "closed for an administrator");
            }
            if let Err(lost) = call.worked(NAME_WORK + bytes).await {
                self.abandon();
                return Err(lost);
            }
        }
        self.all_taken(now);
        Ok(())
    }

    /// FSCTL_PIPE_TRANSCEIVE: WRITE and READ in one. The input always produces an answer, and no reader on another
    /// channel takes it, so the call never waits for another request.
    pub(super) async fn transceive<V: Vfs>(
        &self,
        call: &Call<V>,
        open: &Open<V>,
        data: &[u8],
        max: usize,
    ) -> Result<(Status, Bytes), Failure> {
        // Both before anything is written: a refused request must leave no answer behind.
        let both = AccessMask::FILE_READ_DATA | AccessMask::FILE_WRITE_DATA;
        open.need(both)?;
        let _order = self.in_order().await;
        self.check_idle()?;
        self.put(call, data, true).await?;
        self.take(max)?.ok_or(Status::PIPE_BROKEN.into())
    }
}

/// The facts that the services answer from, as the client of this request may know them.
fn world<V: Vfs>(call: &Call<V>, interface: Interface) -> Result<World, Failure> {
    let server = call.server();
    let token = call.token()?;
    let peer = call.connection.peer.ip();
    let shares = server.shares();
    let seen = |share: &Arc<Share<V>>| {
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
    let config = server.config();
    let administrators = config.administrators;
    let administers = administrators.is_some_and(|rid| token.group_rids.contains(&rid))
        && matches!(interface, Interface::Srvsvc);
    Ok(World {
        activity: administers.then(|| {
            let server = Arc::clone(server);
            LazyReport::new(Box::new(move || server.report()))
        }),
        ends: RefCell::default(),
        guests_welcome: server.welcomes_guests(),
        shares: match interface {
            Interface::Srvsvc => shares.iter().map(seen).collect(),
            _ => Vec::new(),
        },
        config,
        users: server.users(),
        token,
        now,
        started: server.started,
    })
}
