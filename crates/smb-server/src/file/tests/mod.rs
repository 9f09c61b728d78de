//! Tests of the engine as a whole; the rules of one module are tested beside it.
//!
//! `Rig` shortens requests: files are small numbers, opens and waiters are numbered as they
//! come, every file `n` is at `\n` of one share.

mod caching;
mod claims;
mod deletion;
mod lease_keys;
mod locks;
mod model_caching;
mod model_locks;
mod model_opens;
mod opens;
mod restore;
mod stream_rename;
mod watch;

use std::cell::Cell;
use std::sync::Arc;

use smb_wire::Status;
use smb_wire::access_mask::AccessMask;
use smb_wire::create_context::LeaseV2;
use smb_wire::ids::{Guid, LeaseKey};
use smb_wire::msg::{OplockLevel, ShareAccess};
use vfs::{FileKey, Identity, VfsError};

use crate::memory::{Account, Memory};

use super::*;

/// The identity that removes names where it does not matter.
pub(super) const ME: &Deleter = &Deleter {
    identity: Identity::Service,
    parent_lease: None,
    write_through: false,
};
pub(super) const READ: AccessMask = AccessMask::FILE_READ_DATA;
pub(super) const WRITE: AccessMask = AccessMask::FILE_WRITE_DATA;
pub(super) const DELETE: AccessMask = AccessMask::DELETE;
pub(super) const STAT: AccessMask = AccessMask::FILE_READ_ATTRIBUTES;
pub(super) const RW: LeaseState = LeaseState(5);
pub(super) const RH: LeaseState = LeaseState(3);
pub(super) const RWH: LeaseState = LeaseState(7);
pub(super) const NONE: LeaseState = LeaseState(0);
pub(super) const ONLY_R: LeaseState = LeaseState(1);
pub(super) const SHARE_ALL: ShareAccess = ShareAccess(7);

/// Cases of each model test: a bounded run, or as many as make `MODEL_OPS` operations (a case has
/// 30 on average):
///
/// ```text
/// MODEL_OPS=10000000 cargo test -p smb-server --lib model_
/// ```
pub(super) fn cases() -> u32 {
    let ops = std::env::var("MODEL_OPS").ok();
    let ops = ops.map(|ops| ops.parse::<u32>().expect("MODEL_OPS is a number"));
    ops.map_or(1_000, |ops| ops / 30)
}

pub(super) struct Rig {
    pub(super) files: Files,
    next: Cell<u64>,
}

pub(super) fn key(ino: u64) -> FileKey {
    FileKey {
        ino,
        ..FileKey::default()
    }
}

pub(super) fn place(ino: u64) -> Place {
    Place {
        key: key(ino),
        stream: None,
    }
}

pub(super) fn stream(ino: u64, name: &str) -> Place {
    Place {
        key: key(ino),
        stream: Some(Arc::from(name)),
    }
}

pub(super) fn link(parent: u64, name: &str) -> Link {
    Link {
        parent: key(parent),
        name: Arc::from(name),
    }
}

pub(super) fn path(text: &str) -> SharePath {
    let names = text.split('\\').filter(|name| !name.is_empty());
    SharePath::new(ShareId(0), names)
}

/// The entry of a request whose user does not matter.
pub(super) fn waiter(n: u64) -> Waiter {
    Waiter {
        id: WaiterId(n),
        user: CountedUser::default(),
    }
}

pub(super) fn client(n: u8) -> Guid {
    Guid([n; 16])
}

pub(super) fn lease_key(n: u8) -> LeaseKey {
    LeaseKey([n; 16])
}

/// A lease of version 2; the same number names client and key.
pub(super) fn lease(n: u8, state: LeaseState) -> CacheRequest {
    CacheRequest::Lease(LeaseContext {
        lease_key: lease_key(n),
        lease_state: state,
        v2: Some(LeaseV2 {
            epoch: 0x10,
            ..LeaseV2::default()
        }),
        ..LeaseContext::default()
    })
}

pub(super) fn oplock(level: OplockLevel) -> CacheRequest {
    CacheRequest::Oplock(level)
}

impl Rig {
    pub(super) fn new() -> Self {
        Self {
            files: Files::default(),
            next: Cell::new(1),
        }
    }

    /// An account with enough memory.
    pub(super) fn account(&self) -> Arc<Account> {
        Memory::new(1 << 20).account(std::net::Ipv4Addr::LOCALHOST.into())
    }

    pub(super) fn number(&self) -> u64 {
        self.next.replace(self.next.get() + 1)
    }

    /// A request for the unnamed stream of a file, sharing everything, caching nothing.
    pub(super) fn request(&self, ino: u64, access: AccessMask) -> OpenRequest {
        let name = ino.to_string();
        OpenRequest {
            open: OpenId(self.number()),
            place: place(ino),
            link: link(0, &name),
            path: path(&name),
            directory: false,
            access,
            share: SHARE_ALL,
            effect: AccessMask::empty(),
            delete_on_close: false,
            patient: true,
            client: client(0),
            cache: CacheRequest::None,
            allocation: 1 << 20,
            waiter: waiter(self.number()),
        }
    }

    /// The opens below a directory that is to be renamed, and what to do about them.
    pub(super) fn clear_below(
        &self,
        directory: &SharePath,
        waiter: Waiter,
        before: Option<&(usize, Place)>,
    ) -> Below {
        let mut clearing = self.files.clear_below(directory);
        loop {
            if let Some(below) = clearing.go_on(&self.files, waiter, before) {
                return below;
            }
        }
    }

    /// A request with a lease: client and key `n`.
    pub(super) fn leased(
        &self,
        ino: u64,
        access: AccessMask,
        n: u8,
        state: LeaseState,
    ) -> OpenRequest {
        OpenRequest {
            client: client(n),
            cache: lease(n, state),
            ..self.request(ino, access)
        }
    }

    /// Opens a file; the open must be granted without a break.
    pub(super) fn open(&self, request: &OpenRequest) -> CacheGrant {
        let (decision, effects) = self.files.open(request);
        assert!(effects.is_empty(), "{effects:?}");
        granted(decision)
    }

    /// Marks the file of an open as deleted.
    pub(super) fn mark_deleted(&self, request: &OpenRequest) {
        let (place, open) = (&request.place, request.open);
        let marked = self.files.set_delete_pending(place, open, false, ME);
        assert!(marked.is_ok());
    }

    /// The status of an open that must be refused without a break.
    pub(super) fn refused(&self, request: &OpenRequest) -> Status {
        let (decision, effects) = self.files.open(request);
        assert!(effects.is_empty(), "{effects:?}");
        match decision {
            Decision::Conflict(status) => status,
            other => panic!("not refused: {other:?}"),
        }
    }

    /// The breaks of an open that must wait for them.
    pub(super) fn waits(&self, request: &OpenRequest) -> Vec<Break> {
        let (decision, effects) = self.files.open(request);
        assert!(matches!(decision, Decision::MustBreak), "{decision:?}");
        assert!(effects.wakes.is_empty());
        effects.breaks
    }

    pub(super) fn close(&self, request: &OpenRequest) -> Closed {
        let closed = self.files.close(&request.place, request.open, Some(ME));
        assert!(closed.found);
        closed
    }

    /// An operation of an open; whether it must wait, and the breaks.
    pub(super) fn operate(
        &self,
        request: &OpenRequest,
        operation: Operation,
    ) -> (bool, Vec<Break>) {
        let waiter = waiter(self.number());
        let actor = Actor::Open(request.open);
        let (step, effects) = self
            .files
            .operation(&request.place, actor, operation, Some(waiter));
        (step != Step::Go, effects.breaks)
    }
}

pub(super) fn granted(decision: Decision) -> CacheGrant {
    match decision {
        Decision::Granted(granted) => granted.cache,
        other => panic!("not granted: {other:?}"),
    }
}

/// The state a grant carries.
pub(super) fn state(grant: CacheGrant) -> LeaseState {
    match grant {
        CacheGrant::None => NONE,
        CacheGrant::Oplock(level) => state_of(level),
        CacheGrant::Lease(lease) => lease.lease_state,
    }
}

/// A break in short form: from, to, whether an acknowledgment is required.
pub(super) fn short_form(breaks: &[Break]) -> Vec<(u32, u32, bool)> {
    breaks
        .iter()
        .map(|b| (b.current.0, b.new.0, b.ack_required))
        .collect()
}
