//! One open ([MS-SMB2] 3.3.1.10): the object that a FileId stands for.

use std::{
    collections::VecDeque,
    future::poll_fn,
    sync::{
        Arc, MutexGuard,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    task::{Poll, Waker},
};

use durability::{OpenPolicy, RequestFlags};
use smb_wire::{
    access_mask::AccessMask,
    ids::{FileId, LeaseKey, SessionId},
    msg::CreateOptions,
    status::Status,
};
use vfs::{DirName, Vfs};

use super::{
    ChannelSequence, Endurance, Origin, ParkedRequests, QuotaPlace, QuotaUser, TreeConnect,
};
use crate::{
    failure::Failure,
    file::{OpenId, Place, Quick},
    locks::Mutex,
    memory::Held,
    pipe::Pipe,
};

/// The position of a directory enumeration.
#[derive(Debug, Default)]
pub(crate) struct DirectoryCursor {
    /// The pattern fixed by the first call ([MS-FSA] 2.1.5.6.3).
    pub(crate) pattern: Option<String>,
    /// Names that were not returned yet, in order and including `.` and `..`.
    pub(crate) names: VecDeque<DirName>,
    /// Whether any call has had its answer since the pattern was fixed, even one without entries.
    pub(crate) started: bool,
    /// Index of the next entry.
    pub(crate) index: u32,
    /// The part of the server's memory budget that the names take.
    pub(crate) held: Option<Held>,
}

pub(crate) enum OpenKind<V: Vfs> {
    /// A file, stream or directory on a share.
    Disk {
        /// The inode and its place in the file engine; a rename of its stream changes both.
        at: Mutex<At<V>>,
        /// Directory or not; never changes.
        directory: bool,
        /// The state of locks and of others' caching, readable without the engine's lock.
        quick: Quick,
    },
    /// A named pipe of IPC$.
    Pipe(Box<Pipe>),
}

/// The file, directory or stream of an open.
pub(crate) struct At<V: Vfs> {
    /// The inode, opened for the I/O that was granted.
    pub(crate) node: V::Node,
    /// Its place in the file engine.
    pub(crate) place: Place,
}

/// The parts of an open on a share that a request works with.
pub(crate) struct Disk<'a, V: Vfs> {
    pub(crate) node: V::Node,
    pub(crate) directory: bool,
    pub(crate) place: Place,
    pub(crate) quick: &'a Quick,
}

impl<V: Vfs> Clone for At<V> {
    fn clone(&self) -> Self {
        Self {
            node: self.node.clone(),
            place: self.place.clone(),
        }
    }
}

/// State of an open that requests change.
#[derive(Debug, Default)]
pub(crate) struct OpenState {
    /// FilePositionInformation.
    pub(crate) position: u64,
    /// The mode that SET_INFO has set; `None` if the create options still determine it.
    pub(crate) mode: Option<u32>,
    /// Entry at which the next listing of extended attributes continues ([MS-SMB2] 3.3.5.20.1).
    pub(crate) ea_index: usize,
    pub(crate) cursor: DirectoryCursor,
    /// The channel sequence last seen, and the requests that run under it ([MS-SMB2] 3.3.5.2.10).
    pub(crate) sequence: ChannelSequence,
    /// The times that the handle has set explicitly, so that they are not updated automatically any more ([MS-FSA]
    /// 2.1.5.15.2).
    pub(crate) keeps_times: KeepsTimes,
    /// Something was written through the handle.
    pub(crate) wrote: bool,
    /// The file was renamed through the handle; not set for directories.
    pub(crate) renamed: bool,
    /// Whether it outlives its connection.
    pub(crate) endurance: Endurance,
    /// The part of the server's memory budget that its byte-range locks take.
    pub(crate) locks: Option<Held>,
}

/// The times that changes through the handle leave as they are.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct KeepsTimes {
    pub(crate) accessed: bool,
    pub(crate) written: bool,
    pub(crate) changed: bool,
}

impl KeepsTimes {
    /// Whether no time is kept, as is nearly always the case.
    pub(crate) fn is_empty(self) -> bool {
        self == Self::default()
    }
}

pub(crate) struct Open<V: Vfs> {
    pub(crate) file_id: FileId,
    pub(crate) tree: Arc<TreeConnect<V>>,
    pub(crate) granted: AccessMask,
    pub(crate) options: CreateOptions,
    pub(crate) kind: OpenKind<V>,
    /// The user who opened it (for status and messages).
    pub(crate) user: String,
    /// The engine's number of the open.
    pub(crate) engine: OpenId,
    /// The directory lease that changes through this open do not break.
    pub(crate) parent_lease: Option<LeaseKey>,
    /// The CREATE it came from.
    pub(crate) origin: Origin,
    /// Open.IsReplayEligible.
    replayable: AtomicBool,
    /// The number of requests under way, the caller's included; see [`InFlight`].
    in_flight: AtomicUsize,
    idle: Mutex<Option<Waker>>,
    closing: AtomicBool,
    /// A CHANGE_NOTIFY was received.
    watches: AtomicBool,
    state: Mutex<OpenState>,
    /// The requests that wait on this handle.
    pub(crate) parked: ParkedRequests,
    /// Allows one enumeration at a time, because its cursor is used over awaits.
    pub(crate) listing: tokio::sync::Mutex<()>,
    /// Its part in the durability policy of the inode, until it is closed.
    pub(crate) policy: Mutex<Option<OpenPolicy<V>>>,
    /// Its place among the opens of its user, until it is closed.
    place: Mutex<Option<QuotaPlace>>,
}

pub(crate) struct NewOpen<V: Vfs> {
    pub(crate) file_id: FileId,
    pub(crate) tree: Arc<TreeConnect<V>>,
    pub(crate) granted: AccessMask,
    pub(crate) options: CreateOptions,
    pub(crate) kind: OpenKind<V>,
    pub(crate) user: String,
    pub(crate) engine: OpenId,
    pub(crate) channel_sequence: u16,
    pub(crate) parent_lease: Option<LeaseKey>,
    pub(crate) policy: Option<OpenPolicy<V>>,
    pub(crate) place: Option<QuotaPlace>,
    pub(crate) origin: Origin,
    pub(crate) endurance: Endurance,
}

impl<V: Vfs> Open<V> {
    pub(crate) fn new(new: NewOpen<V>) -> Self {
        let directory = !matches!(
            new.kind,
            OpenKind::Disk {
                directory: false,
                ..
            }
        );
        let replayable = (new.origin).is_replayable(new.endurance, new.granted, directory);
        Self {
            file_id: new.file_id,
            tree: new.tree,
            granted: new.granted,
            options: new.options,
            kind: new.kind,
            user: new.user,
            engine: new.engine,
            parent_lease: new.parent_lease,
            origin: new.origin,
            replayable: AtomicBool::new(replayable),
            in_flight: AtomicUsize::new(0),
            idle: Mutex::new(None),
            closing: AtomicBool::new(false),
            watches: AtomicBool::new(false),
            state: Mutex::new(OpenState {
                sequence: ChannelSequence::new(new.channel_sequence),
                endurance: new.endurance,
                ..OpenState::default()
            }),
            parked: ParkedRequests::default(),
            listing: tokio::sync::Mutex::new(()),
            policy: Mutex::new(new.policy),
            place: Mutex::new(new.place),
        }
    }

    /// The open with which a client continues after it reconnects: it takes over everything of `old`, on which no
    /// request runs any more, under a new FileId, session and tree. Its channel sequence numbers start again, as the
    /// client's do with its session.
    pub(crate) fn reconnected(
        old: &Self,
        session: SessionId,
        tree: Arc<TreeConnect<V>>,
        volatile: u64,
        channel_sequence: u16,
    ) -> Option<Self> {
        let kind = match &old.kind {
            OpenKind::Disk {
                at,
                directory,
                quick,
            } => OpenKind::Disk {
                at: Mutex::new(at.lock().clone()),
                directory: *directory,
                quick: quick.clone(),
            },
            // This cannot happen: [`crate::state::disconnected`] keeps opens of shares only.
            OpenKind::Pipe(_) => return None,
        };
        let open = Self::new(NewOpen {
            file_id: FileId {
                persistent: old.file_id.persistent,
                volatile,
            },
            tree,
            granted: old.granted,
            options: old.options,
            kind,
            user: old.user.clone(),
            engine: old.engine,
            channel_sequence,
            parent_lease: old.parent_lease,
            policy: old.policy.lock().take(),
            place: old.take_place(),
            origin: Origin {
                session,
                ..old.origin.clone()
            },
            endurance: old.endurance(),
        });
        open.replayable.store(old.is_replayable(), Ordering::SeqCst);
        // The interest in changes on the host stays, and a second one would report each of them twice.
        open.watches
            .store(old.watches.load(Ordering::SeqCst), Ordering::SeqCst);
        let kept = std::mem::take(&mut *old.state());
        let sequence = open.state().sequence;
        *open.state() = OpenState { sequence, ..kept };
        Some(open)
    }

    /// Open.IsReplayEligible.
    pub(crate) fn is_replayable(&self) -> bool {
        self.replayable.load(Ordering::SeqCst)
    }

    /// The client has used the handle: it knows the answer of the CREATE.
    pub(crate) fn used(&self) {
        // It is read first: it is set only for new handles, and a store would take the cache line from the other
        // workers.
        if self.replayable.load(Ordering::Relaxed) {
            self.replayable.store(false, Ordering::SeqCst);
        }
    }

    /// The durability that the open itself asks for.
    pub(crate) fn flags(&self) -> RequestFlags {
        // FileModeInformation may have changed the options since.
        let state = self.state();
        let mode = state.mode.map_or(self.options, CreateOptions);
        RequestFlags {
            open_write_through: mode.contains(CreateOptions::WRITE_THROUGH)
                || state.endurance.is_persistent(),
            open_unbuffered: mode.contains(CreateOptions::NO_INTERMEDIATE_BUFFERING),
            ..RequestFlags::default()
        }
    }

    pub(crate) fn endurance(&self) -> Endurance {
        self.state().endurance
    }

    /// Takes its place under the limit, when the handle is closed or replaced by a reconnect.
    pub(crate) fn take_place(&self) -> Option<QuotaPlace> {
        self.place.lock().take()
    }

    /// The user whose open it counts as.
    pub(crate) fn counts_as(&self) -> QuotaUser {
        let owner = QuotaUser::User(self.origin.owner.user_sid);
        let place = self.place.lock();
        place.as_ref().map_or(owner, QuotaPlace::who)
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, OpenState> {
        self.state.lock()
    }

    /// Checks that the handle was granted all of these rights.
    pub(crate) fn need(&self, rights: AccessMask) -> Result<(), Failure> {
        need(self.granted, rights)
    }

    /// Checks that the handle was granted one of these rights.
    pub(crate) fn need_any(&self, rights: AccessMask) -> Result<(), Failure> {
        Ok(Status::ACCESS_DENIED.when(!self.granted.intersects(rights))?)
    }

    /// The inode and its place in the file engine; pipes have neither.
    pub(crate) fn disk(&self) -> Result<Disk<'_, V>, Failure> {
        match &self.kind {
            OpenKind::Disk {
                at,
                directory,
                quick,
            } => {
                let At { node, place } = at.lock().clone();
                Ok(Disk {
                    node,
                    directory: *directory,
                    place,
                    quick,
                })
            }
            OpenKind::Pipe(_) => Err(Status::INVALID_DEVICE_REQUEST.into()),
        }
    }

    /// As [`Open::disk`], for requests that only files and streams support.
    pub(crate) fn file(&self) -> Result<Disk<'_, V>, Failure> {
        let disk = self.disk()?;
        Status::INVALID_DEVICE_REQUEST.when(disk.directory)?;
        Ok(disk)
    }

    /// Gives the handle the new node and place of a renamed stream.
    pub(crate) fn moved(&self, to: At<V>) {
        if let OpenKind::Disk { at, .. } = &self.kind {
            *at.lock() = to;
        }
    }

    pub(crate) fn is_directory(&self) -> bool {
        matches!(
            self.kind,
            OpenKind::Disk {
                directory: true,
                ..
            }
        )
    }

    /// True for the first CHANGE_NOTIFY of this handle only.
    pub(crate) fn first_watch(&self) -> bool {
        !self.watches.swap(true, Ordering::AcqRel)
    }

    /// Begins the close: returns true for exactly one caller.
    pub(crate) fn begin_close(&self) -> bool {
        // This is ordered with the count of requests: either they see the flag, or `quiesce` sees them.
        !self.closing.swap(true, Ordering::SeqCst)
    }

    pub(crate) fn is_closing(&self) -> bool {
        self.closing.load(Ordering::SeqCst)
    }

    /// Waits until at most `own` requests are under way on this handle.
    pub(crate) async fn quiesce(&self, own: usize) {
        poll_fn(|cx| {
            *self.idle.lock() = Some(cx.waker().clone());
            if self.in_flight.load(Ordering::SeqCst) <= own {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        })
        .await;
    }
}

/// Checks that all of these rights were granted.
pub(crate) fn need(granted: AccessMask, rights: AccessMask) -> Result<(), Failure> {
    Ok(Status::ACCESS_DENIED.when(!granted.contains(rights))?)
}

/// A request under way on an open; CLOSE waits for it.
pub(crate) struct InFlight<V: Vfs> {
    open: Arc<Open<V>>,
    /// The channel sequence under which it is counted.
    counted: Option<u16>,
}

impl<V: Vfs> InFlight<V> {
    /// `None` if the open is being closed, perhaps on another channel: the close waits for all requests that came
    /// before it, and no others may begin.
    pub(crate) fn new(open: Arc<Open<V>>) -> Option<Self> {
        open.in_flight.fetch_add(1, Ordering::SeqCst);
        let this = Self {
            open,
            counted: None,
        };
        (!this.open.is_closing()).then_some(this)
    }

    /// Counts the request under the channel sequence that it was sent with. Returns false if it may not modify
    /// ([MS-SMB2] 3.3.5.2.10).
    pub(crate) fn count(&mut self, sent: u16, replay: bool) -> bool {
        let admitted = self.open.state().sequence.admit(sent, replay);
        self.counted = admitted.then_some(sent);
        admitted
    }
}

impl<V: Vfs> std::ops::Deref for InFlight<V> {
    type Target = Arc<Open<V>>;

    fn deref(&self) -> &Self::Target {
        &self.open
    }
}

impl<V: Vfs> Drop for InFlight<V> {
    fn drop(&mut self) {
        if let Some(sent) = self.counted {
            self.open.state().sequence.done(sent);
        }
        self.open.in_flight.fetch_sub(1, Ordering::SeqCst);
        let waker = self.open.idle.lock().take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}
