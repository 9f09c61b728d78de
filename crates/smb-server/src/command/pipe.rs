//! The commands on named pipes ([MS-SMB2] 3.3.5.9, 3.3.5.12, 3.3.5.13, 3.3.5.15.3, 3.3.5.15.4); the pipes and their
//! services are in `pipe/`.

use std::{cell::RefCell, sync::Arc};

use bytes::Bytes;
use smb_wire::{
    access_mask::AccessMask,
    file_attributes::FileAttributes,
    fscc::FileFacts,
    ids::FileId,
    msg::{
        CreateAction, CreateOptions, CreateRequest, CreateResponse, CreateResponseFlags,
        ImpersonationLevel, OplockLevel,
    },
    rpc::Interface,
    status::Status,
    utf16,
};
use vfs::Vfs;

use super::{Call, Handled, Reply, tree_connect::admits};
use crate::{
    failure::Failure,
    file::OpenId,
    pipe::{LazyReport, Pipe, SeenShare, World},
    state::{EndReason, Endurance, NewOpen, Open, OpenKind, Origin, Share},
    turn::NAME_WORK,
};

/// The AllocationSize of a pipe, as in Windows and Samba.
const ALLOCATION_BYTES: u64 = 4096;

/// CREATE on IPC$.
pub(super) fn create<V: Vfs>(call: &Call<V>) -> Handled {
    let request = CreateRequest::read(&call.message)?;
    // [MS-SMB2] 3.3.5.9: a pipe is opened up to Impersonation.
    if request.impersonation_level >= ImpersonationLevel::DELEGATE {
        return Err(Status::BAD_IMPERSONATION_LEVEL.into());
    }
    // As for a file ([MS-SMB2] 3.3.5.9).
    Status::INVALID_PARAMETER.when(!request.name.len().is_multiple_of(2))?;
    let name = utf16::decode(request.name, "pipe").map_err(|_| Status::OBJECT_NAME_INVALID)?;
    let interface = Interface::of_pipe(&name).ok_or(Status::OBJECT_NAME_NOT_FOUND)?;
    Status::NOT_A_DIRECTORY.when(request.options.contains(CreateOptions::DIRECTORY_FILE))?;
    let asked = request.desired_access.map_generic();
    let all = AccessMask::FILE_ALL_ACCESS.when(asked.contains(AccessMask::MAXIMUM_ALLOWED));
    let granted = (asked | all) & call.tree()?.maximal_access;
    Status::ACCESS_DENIED.when(granted.is_empty())?;
    let file_id = enter(call, interface, granted, request.options)?;
    let response = CreateResponse {
        oplock_level: OplockLevel::NONE,
        flags: CreateResponseFlags::empty(),
        create_action: CreateAction::OPENED,
        facts: FileFacts {
            allocation_size: ALLOCATION_BYTES,
            file_attributes: FileAttributes::NORMAL,
            ..FileFacts::default()
        },
        file_id,
        contexts: &[],
    };
    Ok(Reply::unchanged(&response, "a pipe has no file"))
}

fn enter<V: Vfs>(
    call: &Call<V>,
    interface: Interface,
    granted: AccessMask,
    options: CreateOptions,
) -> Result<FileId, Failure> {
    let server = call.server();
    let session = call.session()?;
    let file_id = server.fresh_file_id();
    let open = Arc::new(Open::new(NewOpen {
        file_id,
        tree: Arc::clone(call.tree()?),
        granted,
        options,
        kind: OpenKind::Pipe(Box::new(Pipe::new(interface))),
        user: session.token().user.clone(),
        engine: OpenId(server.fresh_id()),
        channel_sequence: call.header.channel_sequence(),
        parent_lease: None,
        policy: None,
        place: call.place.borrow_mut().take(),
        origin: Origin::plain(session.id, session.token()),
        endurance: Endurance::None,
    }));
    session.insert(open)?;
    call.chain.set_file_id(file_id);
    Ok(file_id)
}

impl Pipe {
    /// READ: as [`Pipe::take`], but it waits while there is nothing to read.
    ///
    /// # Errors
    /// Those of [`Pipe::take`] and [`Call::park`], and `ACCESS_DENIED`.
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
    ///
    /// # Errors
    /// Those of [`Pipe::check`] and [`Pipe::take_pdu`], and `ACCESS_DENIED`.
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
    ///
    /// # Errors
    /// Those of both, and of [`Pipe::check_idle`].
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
