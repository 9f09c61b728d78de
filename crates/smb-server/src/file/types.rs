//! The engine's types: ids, the request of an open, and the engine's answers.
//!
//! These are plain values; the only rules here map oplock levels and caching states to each other, share the room for
//! parked requests among users, and say which place and link a node and a name stand for.

use std::sync::{Arc, OnceLock};

use smb_wire::Status;
use smb_wire::access_mask::AccessMask;
use smb_wire::ids::{Guid, LeaseKey};
use smb_wire::msg::{OplockLevel, ShareAccess};
use vfs::{FileKey, Lookup, Node, VfsError, fold};

use super::Deleter;

pub use smb_wire::create_context::{LeaseContext, LeaseState};

use super::quick::Quick;
use super::share_path::SharePath;
use super::watch::Change;

/// The id of an open in the engine, valid as long as the open lives (also across a durable reconnect).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct OpenId(pub u64);

/// The id of a parked request. The caller chooses it and does not reuse it while the request is parked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct WaiterId(pub u64);

/// The user for whom the locks and the parked requests of a file and the watchers of a directory are counted.
/// [`CountedUser::default`] stands for no user.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct CountedUser(pub u64);

/// A request that may be parked, with its user.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Waiter {
    /// The request.
    pub id: WaiterId,
    /// The user whose parked requests count together.
    pub user: CountedUser,
}

impl Waiter {
    /// Parks this request where at most `most` may be parked: a user may have half of it, so that other users find
    /// room. Returns false if there is no room.
    pub(super) fn park(self, parked: &mut Vec<Self>, most: usize) -> bool {
        let mine = parked.iter().filter(|one| one.user == self.user);
        let has_room = parked.len() < most && mine.count() < most / 2;
        if has_room {
            parked.push(self);
        }
        has_room
    }
}

/// One name of an inode: the directory that holds it and the folded last component. Opens are
/// deleted by link, so that a second hard link is not touched ([MS-FSA] 2.1.1.4).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Link {
    /// The directory; `FileKey::default()` for the root of a share.
    pub parent: FileKey,
    /// The name, folded for comparison; empty for the root of a share.
    pub name: Arc<str>,
}

impl Link {
    /// A name in a directory.
    pub fn new(parent: FileKey, name: &str) -> Self {
        Self {
            parent,
            name: fold(name).into(),
        }
    }

    /// The name of a stream in its file. No name in a directory has a colon.
    pub fn of_stream(file: FileKey, name: &str) -> Self {
        Self::new(file, &format!(":{name}"))
    }

    /// The name that was looked up.
    pub fn of<N: Node>(lookup: &Lookup<N>) -> Self {
        match &lookup.parent {
            None => Self {
                parent: FileKey::default(),
                name: "".into(),
            },
            Some(parent) => Self::new(parent.key(), &lookup.name),
        }
    }
}

/// A stream of an inode: `None` is the unnamed data stream (or the directory itself). Names are folded for comparison.
pub type StreamName = Option<Arc<str>>;

/// The inode and stream that hold an open's state. It is cheap to clone; the server keeps it beside the handle.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// The inode.
    pub key: FileKey,
    /// The stream.
    pub stream: StreamName,
}

impl Place {
    /// The place of a node's state in the engine.
    pub fn of(node: &impl Node) -> Self {
        Self {
            key: node.key(),
            stream: node.stream().map(|name| fold(name).into()),
        }
    }

    /// The place of a named stream's state.
    pub fn of_stream(file: FileKey, name: &str) -> Self {
        Self {
            key: file,
            stream: Some(fold(name).into()),
        }
    }
}

/// The owner of caching: one oplock or one lease on one stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Owner {
    /// The oplock of one open.
    Oplock(OpenId),
    /// A lease: client and key (docs/protocol-notes.md, "Equal lease keys of two clients").
    Lease(Guid, LeaseKey),
}

impl Owner {
    pub(super) fn lease(self) -> Option<(Guid, LeaseKey)> {
        match self {
            Self::Lease(client, key) => Some((client, key)),
            Self::Oplock(_) => None,
        }
    }
}

/// The caching that an open requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CacheRequest {
    /// Nothing.
    None,
    /// II, EXCLUSIVE or BATCH; anything else counts as nothing.
    Oplock(OplockLevel),
    /// A lease. A context of version 2 has the epoch that the client holds.
    Lease(LeaseContext),
}

/// The caching that an open got, as CREATE's reply states it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CacheGrant {
    /// Nothing.
    None,
    /// An oplock (never NONE).
    Oplock(OplockLevel),
    /// A lease, maybe with the empty state. Its version and its parent's key are those of its first open, whichever
    /// this open used.
    Lease(LeaseContext),
}

impl CacheGrant {
    /// Whether anything may be cached, so that anything can be broken.
    pub fn is_some(self) -> bool {
        match self {
            Self::None => false,
            Self::Oplock(_) => true,
            Self::Lease(lease) => !lease.lease_state.is_empty(),
        }
    }
}

/// Everything the engine must know to judge an open.
#[derive(Debug, Clone)]
pub struct OpenRequest {
    /// The new open's name.
    pub open: OpenId,
    /// Inode and stream.
    pub place: Place,
    /// The name it is opened by.
    pub link: Link,
    /// The path it is opened by (without the stream).
    pub path: SharePath,
    /// The inode is a directory.
    pub directory: bool,
    /// Rights granted (after MAXIMUM_ALLOWED was resolved, generic rights mapped).
    pub access: AccessMask,
    /// The access that the open shares with others. The caller adds READ where [MS-FSA] 2.1.5.1.2.2 requires it.
    pub share: ShareAccess,
    /// The effect of SUPERSEDE, OVERWRITE and OVERWRITE_IF on an existing stream, whatever rights were requested. The
    /// open is judged as if these rights were granted until [`Files::overwritten`](super::Files::overwritten). It is
    /// empty for an open that overwrites nothing.
    pub effect: AccessMask,
    /// FILE_DELETE_ON_CLOSE.
    pub delete_on_close: bool,
    /// An open that will delete waits until others have given up the handles that they cache.
    pub patient: bool,
    /// The client that opens.
    pub client: Guid,
    /// The caching that the client requests.
    pub cache: CacheRequest,
    /// Bytes allocated to the stream ([`vfs::Attr::allocation`]): byte-range locks beyond them do not stand in the way of read caching.
    pub allocation: u64,
    /// The waiter that is woken when the open should be tried again after [`Decision::MustBreak`]; the open is counted
    /// for its user.
    pub waiter: Waiter,
}

impl OpenRequest {
    /// Whether the open empties the stream.
    pub fn overwrites(&self) -> bool {
        !self.effect.is_empty()
    }

    /// The owner of the caching that the open shares: its lease, or its own oplock.
    pub fn owner(&self) -> Option<Owner> {
        match self.cache {
            CacheRequest::None => None,
            CacheRequest::Oplock(_) => Some(Owner::Oplock(self.open)),
            CacheRequest::Lease(lease) => Some(Owner::Lease(self.client, lease.lease_key)),
        }
    }
}

/// The decision about an open.
#[derive(Debug)]
pub enum Decision {
    /// The open is in the tables. If the disk then refuses, undo with `Files::close` and no deleter.
    Granted(Granted),
    /// The open is refused.
    Conflict(Status),
    /// Breaks are under way: the caller waits for its waiter to be woken and tries again.
    MustBreak,
}

/// A granted open.
#[derive(Debug)]
pub struct Granted {
    /// The caching that the open gets.
    pub cache: CacheGrant,
    /// The state that READ and WRITE check without a lock.
    pub quick: Quick,
}

/// The effects that the caller must carry out after it left the engine, in order: breaks, then wake-ups.
#[derive(Debug, Default, PartialEq, Eq)]
#[must_use]
pub struct Effects {
    /// Notifications to send.
    pub breaks: Vec<Break>,
    /// Parked requests to resume.
    pub wakes: Vec<Wake>,
}

impl Effects {
    /// Appends the effects of another call.
    pub fn merge(&mut self, other: Self) {
        self.breaks.extend(other.breaks);
        self.wakes.extend(other.wakes);
    }

    /// Whether there is nothing to carry out.
    pub fn is_empty(&self) -> bool {
        self.breaks.is_empty() && self.wakes.is_empty()
    }

    pub(super) fn wake(&mut self, waiter: WaiterId, outcome: Outcome) {
        self.wakes.push(Wake { waiter, outcome });
    }
}

/// A break notification to send ([MS-SMB2] 2.2.23).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Break {
    /// The owner whose caching ends.
    pub owner: Owner,
    /// The place of the holder, for `Files::break_over`.
    pub place: Place,
    /// The opens concerned (all of a lease, the one of an oplock).
    pub opens: Vec<OpenId>,
    /// The state held before (of an oplock: II is R, EXCLUSIVE is RW, BATCH is RWH).
    pub current: LeaseState,
    /// The state that remains.
    pub new: LeaseState,
    /// NewEpoch; 0 for oplocks and version 1.
    pub epoch: u16,
    /// The holder must acknowledge; if not set, the change has already taken effect.
    pub ack_required: bool,
    /// Names this break for `Files::break_over`.
    pub ticket: u64,
}

/// A parked request to resume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wake {
    /// The request.
    pub waiter: WaiterId,
    /// The reason why it resumes.
    pub outcome: Outcome,
}

/// Why a parked request resumes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// Something changed, so the request tries again.
    Retry,
    /// The byte-range lock waited for is held.
    Locked,
    /// The wait ends with this status.
    Failed(Status),
    /// The watched directory has changed.
    Changes(Vec<Change>),
}

/// The end of a blocked lock whose request stops waiting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Withdrawal {
    /// It was not granted, and never will be.
    InTime,
    /// It was granted meanwhile: the ranges are held.
    Granted,
    /// The open has ended, and the lock with it.
    Ended,
}

/// An operation of an open that may break the caching of others ([MS-FSA] 2.1.4.12).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// READ.
    Read,
    /// FLUSH.
    Flush,
    /// WRITE, and copies into the stream.
    Write,
    /// LOCK of a range.
    Lock,
    /// FSCTL_SET_ZERO_DATA.
    ZeroData,
    /// Setting end of file or allocation.
    SetSize,
    /// Rename of the file, or of a directory above it.
    Rename,
    /// Hard link or short name.
    Link,
    /// Setting the delete disposition.
    Delete,
    /// Setting the security descriptor.
    SetSecurity,
}

/// The actor of an operation, whose own caching is not broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Actor {
    /// An open of the same stream.
    Open(OpenId),
    /// An open whose CREATE has no answer yet: its client has cached nothing so far, so its own level II stays.
    Opener(OpenId),
    /// Any other actor: an open of another file, or another process of the host.
    Stranger,
}

/// How to proceed with an operation that the caching of others may delay.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[must_use]
pub enum Step {
    /// The operation may proceed.
    #[default]
    Go,
    /// The caller waits for its waiter to be woken and asks again.
    Wait,
    /// The request fails with this status: by the rules, or because too many are parked.
    Refused(Status),
}

/// The removal that the close of an open requires on the disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Remove {
    /// The name must be removed now.
    Link(Link),
    /// The named stream must be removed now.
    Stream,
}

/// The outcome of the removal that a close carries out, once it is known: whether the name is gone.
pub type Going = Arc<OnceLock<Result<bool, VfsError>>>;

/// The result of a close.
#[derive(Debug, Default, PartialEq, Eq)]
#[must_use]
pub struct Closed {
    /// The open existed.
    pub found: bool,
    /// The removal to carry out, and the client on whose behalf it is done. New opens of the name get DELETE_PENDING
    /// until `Files::removed` is called.
    pub remove: Option<(Remove, Deleter)>,
    /// The open was to delete its name, and another one removes it or has removed it: the directory of the name, and
    /// the outcome of the removal if that is under way.
    pub unlinked: Option<(FileKey, Option<Going>)>,
    /// The effects to carry out.
    pub effects: Effects,
}

/// Read caching alone.
pub(super) const R: LeaseState = LeaseState(0x1);
/// Handle caching alone.
pub(super) const H: LeaseState = LeaseState(0x2);
/// Write caching alone.
pub(super) const W: LeaseState = LeaseState(0x4);
/// No caching.
pub(super) const NONE: LeaseState = LeaseState(0);
/// Both exclusive kinds.
pub(super) const WH: LeaseState = LeaseState(0x6);

/// The caching an oplock level stands for.
pub fn state_of(level: OplockLevel) -> LeaseState {
    match level {
        OplockLevel::II => R,
        OplockLevel::EXCLUSIVE => R | W,
        OplockLevel::BATCH => R | W | H,
        _ => NONE,
    }
}

/// The oplock level that stands for a caching state: the strongest not above it.
pub fn level_of(state: LeaseState) -> OplockLevel {
    if state.contains(R | WH) {
        OplockLevel::BATCH
    } else if state.contains(R | W) {
        OplockLevel::EXCLUSIVE
    } else if state.contains(R) {
        OplockLevel::II
    } else {
        OplockLevel::NONE
    }
}

/// The valid lease state nearest below `asked`: none, R, RW, RH or RWH ([MS-FSA] 2.1.5.18). An invalid combination
/// counts as none.
pub(super) fn legal_state(asked: LeaseState, directory: bool) -> LeaseState {
    let known = asked & (R | WH);
    let state = if directory { known.without(W) } else { known };
    if state.contains(R) { state } else { NONE }
}
