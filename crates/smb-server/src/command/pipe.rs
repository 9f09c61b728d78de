//! The commands on named pipes ([MS-SMB2] 3.3.5.9, 3.3.5.12, 3.3.5.13, 3.3.5.15.3, 3.3.5.15.4); the pipes and their
//! services are in `pipe/`.

use std::{cell::RefCell, collections::BTreeMap, sync::Arc, time::Duration};

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
use vfs::{Timestamp, Vfs};

use super::{Call, Handled, Reply, Target, tree_connect::admits};
use crate::{
    failure::Failure,
    file::OpenId,
    pipe::{
        Activity, EndRequest, LazyActivity, Pipe, SeenOpen, SeenSession, SeenShare, SeenTree, World,
    },
    state::{
        EndReason, Endurance, NewOpen, Open, OpenKind, OpenReport, Origin, Server, SessionReport,
        Share,
    },
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
    if !request.name.len().is_multiple_of(2) {
        return Err(Status::INVALID_PARAMETER.into());
    }
    let name = utf16::decode(request.name, "pipe").map_err(|_| Status::OBJECT_NAME_INVALID)?;
    let interface = Interface::of_pipe(&name).ok_or(Status::OBJECT_NAME_NOT_FOUND)?;
    if request.options.contains(CreateOptions::DIRECTORY_FILE) {
        return Err(Status::NOT_A_DIRECTORY.into());
    }
    let asked = request.desired_access.map_generic();
    let all = AccessMask::FILE_ALL_ACCESS.when(asked.contains(AccessMask::MAXIMUM_ALLOWED));
    let granted = (asked | all) & call.tree()?.maximal_access;
    if granted.is_empty() {
        return Err(Status::ACCESS_DENIED.into());
    }
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
            for end in world.ends.take() {
                let what = match end {
                    EndRequest::Session(id) => Target::Session(id),
                    EndRequest::Open(id) => Target::Open(id),
                };
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
            LazyActivity::new(Box::new(move || activity(&server, now)))
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
        uptime: Duration::from_secs(seconds(server.started, now)),
    })
}

fn seconds(since: Timestamp, now: Timestamp) -> u64 {
    u64::try_from(now.secs.saturating_sub(since.secs)).unwrap_or(0)
}

fn number(count: u64) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

/// The use of the server, as far as [`Server::report`] lists it.
fn activity<V: Vfs>(server: &Server<V>, now: Timestamp) -> Activity {
    let report = server.report();
    let connections = report.connections.iter().map(|one| (one.id, one));
    let connections: BTreeMap<_, _> = connections.collect();
    let seen = |session: &SessionReport| {
        let first = session.channels.first().and_then(|id| connections.get(id));
        // A session may have a thousand tree connects and ten thousand opens.
        let mut opens_on: BTreeMap<&str, u64> = BTreeMap::new();
        for open in &session.opens {
            *opens_on.entry(&open.share).or_default() += 1;
        }
        let tree = |share: &String| SeenTree {
            share: share.clone(),
            opens: number(opens_on.get(share.as_str()).copied().unwrap_or(0)),
        };
        SeenSession {
            id: session.id,
            client: first.map_or_else(String::new, |one| one.peer.ip().to_canonical().to_string()),
            user: session.user.clone(),
            guest: session.guest,
            opens: number(session.open_count as u64),
            seconds: first.map_or(0, |one| number(seconds(one.since, now))),
            trees: session.trees.iter().map(tree).collect(),
        }
    };
    let sessions = report.sessions.iter();
    let opens = sessions.clone().flat_map(|session| &session.opens);
    Activity {
        sessions: sessions.map(seen).collect(),
        opens: opens.chain(&report.waiting).map(seen_open).collect(),
    }
}

fn seen_open(open: &OpenReport) -> SeenOpen {
    let (share, path) = (&open.share, &open.path);
    SeenOpen {
        id: open.id,
        user: open.user.clone(),
        path: match &**share {
            "IPC$" => format!(r"\PIPE\{path}"),
            _ => format!(r"C:\{share}\{path}"),
        },
        access: open.access,
        locks: number(open.locks),
    }
}
