//! The file-system identity of the calling thread.
//!
//! For [`Identity::User`] the kernel must check and own as that user: `setgroups`, `setfsgid` and
//! `setfsuid` of this thread alone (the raw calls, which libc does not spread over the process).
//! With a file-system uid other than 0 the kernel itself withdraws the capabilities that
//! override permissions.
//!
//! Pool threads change lazily: an identity stays on until a job wants another, and every job
//! says which it wants. On other threads [`with`] always returns to the service's own identity.
//!
//! Invariants: an operation runs only after the kernel confirmed the identity; a thread whose
//! identity could not be put right refuses every further operation (EPERM).

use std::{cell::RefCell, sync::Arc, sync::OnceLock};

use rustix::thread::set_thread_groups;

use crate::{
    Identity,
    disk::{DiskResult, Errno},
    identity::LocalUser,
    posix_sys as raw,
};

const REFUSED: Errno = Errno(libc::EPERM);

/// What the process was when the first disk was opened.
struct Service {
    uid: u32,
    gid: u32,
    groups: Vec<rustix::fs::Gid>,
}

fn service() -> &'static Service {
    static SERVICE: OnceLock<Service> = OnceLock::new();
    SERVICE.get_or_init(|| Service {
        uid: rustix::process::geteuid().as_raw(),
        gid: rustix::process::getegid().as_raw(),
        groups: rustix::process::getgroups().unwrap_or_default(),
    })
}

/// Remembers the process's own identity; called before any thread changes.
pub(crate) fn remember_service() {
    service();
}

/// Whether this process can take on other users.
pub(crate) fn can_switch() -> bool {
    service().uid == 0
}

#[derive(Clone, PartialEq, Eq)]
enum Current {
    Service,
    User(Arc<LocalUser>),
    /// A change failed half-way and could not be undone.
    Broken,
}

thread_local! {
    static CURRENT: RefCell<Current> = const { RefCell::new(Current::Service) };
}

fn switch(uid: u32, gid: u32, groups: &[rustix::fs::Gid]) -> DiskResult<()> {
    // The user last: until then the thread has at most its former rights.
    set_thread_groups(groups).map_err(|e| Errno(e.raw_os_error()))?;
    raw::set_fs_gid(gid)?;
    raw::set_fs_uid(uid)
}

fn become_service() -> DiskResult<()> {
    let own = service();
    switch(own.uid, own.gid, &own.groups)
}

fn become_user(user: &LocalUser) -> DiskResult<()> {
    if user.uid == u32::MAX || user.gid == u32::MAX || user.groups.contains(&u32::MAX) {
        return Err(REFUSED);
    }
    let groups: Vec<_> = user
        .groups
        .iter()
        .map(|g| rustix::fs::Gid::from_raw(*g))
        .collect();
    switch(user.uid, user.gid, &groups)
}

/// Makes `who` the identity of the calling thread until the next call.
pub(crate) fn assume(who: &Identity) -> DiskResult<()> {
    let wanted = match who {
        Identity::Service => Current::Service,
        Identity::User(user) if can_switch() => Current::User(Arc::clone(user)),
        // Unprivileged: the only user there is, is ourselves.
        Identity::User(user) if user.uid == service().uid => Current::Service,
        Identity::User(_) => return Err(REFUSED),
    };
    CURRENT.with_borrow_mut(|current| {
        if *current == wanted && wanted != Current::Broken {
            return Ok(());
        }
        if *current == Current::Broken {
            return Err(REFUSED);
        }
        *current = Current::Broken;
        let switched = match &wanted {
            Current::User(user) => become_user(user),
            _ => become_service(),
        };
        if switched.is_ok() {
            *current = wanted;
            return Ok(());
        }
        if become_service().is_ok() {
            *current = Current::Service;
        } else {
            tracing::error!("a thread could not return to the service's identity; it is retired");
        }
        Err(REFUSED)
    })
}

/// Whether the calling thread refuses every operation from now on.
pub(crate) fn broken() -> bool {
    CURRENT.with_borrow(|current| *current == Current::Broken)
}

/// Returns the thread to the service's identity when dropped.
struct Return;

impl Drop for Return {
    fn drop(&mut self) {
        // A failure leaves the thread marked as broken: it refuses all that follows.
        let _ = assume(&Identity::Service);
    }
}

/// Runs `call` as `who` on this thread and returns to the service's identity.
pub(crate) fn with<T>(who: &Identity, call: impl FnOnce() -> DiskResult<T>) -> DiskResult<T> {
    assume(who)?;
    let _back = Return;
    call()
}
