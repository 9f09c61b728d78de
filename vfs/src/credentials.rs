//! The file-system identity of the calling thread.
//!
//! For [`Identity::User`] the kernel must check access, and make files, as that user: `setgroups`, `setfsgid` and
//! `setfsuid` of this thread alone (the raw calls, which libc does not spread over the process). With a file-system uid
//! other than 0 the kernel itself withdraws the capabilities that override permissions.
//!
//! Each change costs about 2 us, more than the call that needs it. So pool threads change lazily: an identity stays
//! until a job needs another, and every job names the one it needs. On other threads [`with`] always restores the uid
//! at once, but leaves the groups, which for uid 0 matter only as the group of a new file: operations that create files
//! as the service run on the pool (under [`assume`]; those that create nothing use [`assume_to_look`]). A user who has
//! the same ids as the service costs no change.
//!
//! Invariants: an operation runs as a user only after the kernel confirmed that identity, and creates nothing as
//! the service before the kernel confirmed that one; a thread whose identity could not be restored refuses every
//! further operation (EPERM). The next change confirms that [`with`] restored the uid, because its call returns the
//! previous uid. Until then only queries run as the service, and if the kernel had kept the user's uid, they would run
//! with that user's rights, which are fewer. New threads inherit the identity of the thread that started them, so the
//! server's threads begin with [`begin_thread`].
//!
//! Data are written as the service, regardless of the user who opened the file. With `CAP_FSETID` the kernel would
//! therefore leave the set-user-ID and set-group-ID bits of a file that a user overwrites, and that user could run his
//! own code as its owner. So no thread of the server has that capability ([`give_up_set_ids`]): the kernel itself
//! clears the bits as it does for any local user, in the same step as the write.

use std::{cell::RefCell, sync::Arc, sync::OnceLock};

use rustix::{
    fs::Gid,
    thread::{CapabilitySet, capabilities, set_capabilities, set_thread_groups},
};

use crate::{
    Identity,
    disk::{DiskResult, Errno},
    identity::LocalUser,
    posix_sys as raw,
};

const REFUSED: Errno = Errno(libc::EPERM);

/// The identity of the process when the first disk was opened.
struct Service {
    uid: u32,
    gid: u32,
    groups: Vec<Gid>,
}

impl Service {
    /// Whether the kernel would treat the user as the service. The primary group counts as one of the groups.
    fn is(&self, user: &LocalUser) -> bool {
        let ours = |gid: u32| gid == self.gid || self.groups.iter().any(|g| g.as_raw() == gid);
        let theirs = |gid: u32| gid == user.gid || user.groups.contains(&gid);
        (self.uid, self.gid) == (user.uid, user.gid)
            && user.groups.iter().all(|gid| ours(*gid))
            && self.groups.iter().all(|gid| theirs(gid.as_raw()))
    }
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

pub(crate) fn service_uid() -> u32 {
    service().uid
}

/// Removes `CAP_FSETID` for good from the calling thread, and thereby from those that it starts. It is also removed
/// from the permitted set, because `setfsuid` would raise it again from there.
///
/// # Errors
/// The kernel's error; the thread must not write then.
pub fn give_up_set_ids() -> DiskResult<()> {
    let mut sets = capabilities(None)?;
    let unwanted = CapabilitySet::FSETID;
    if !(sets.effective | sets.permitted | sets.inheritable).contains(unwanted) {
        return Ok(());
    }
    sets.effective.remove(unwanted);
    sets.permitted.remove(unwanted);
    sets.inheritable.remove(unwanted);
    Ok(set_capabilities(None, sets)?)
}

/// Whether this process can take on other users.
fn can_switch() -> bool {
    service().uid == 0
}

/// The user whose uid or groups a thread has; `None` is the service.
type Owner = Option<Arc<LocalUser>>;

struct Current {
    uid: Owner,
    groups: Owner,
    /// The uid was given back to the service, which the kernel has not confirmed.
    unconfirmed: bool,
    /// A change failed half-way and could not be undone.
    broken: bool,
}

thread_local! {
    static CURRENT: RefCell<Current> =
        const { RefCell::new(Current::new()) };
}

impl Current {
    const fn new() -> Self {
        Self {
            uid: None,
            groups: None,
            unconfirmed: false,
            broken: false,
        }
    }

    fn set_groups(&mut self, owner: &Owner) -> DiskResult<()> {
        if self.groups == *owner {
            return Ok(());
        }
        let (gid, groups) = match owner {
            None => (service().gid, service().groups.clone()),
            Some(user) => (
                user.gid,
                user.groups.iter().map(|g| Gid::from_raw(*g)).collect(),
            ),
        };
        self.broken = true;
        set_thread_groups(&groups).map_err(|_| REFUSED)?;
        raw::set_fs_gid(gid)?;
        self.groups.clone_from(owner);
        self.broken = false;
        Ok(())
    }

    fn set_uid(&mut self, owner: &Owner) -> DiskResult<()> {
        if self.uid == *owner {
            return Ok(());
        }
        self.broken = true;
        let before = raw::set_fs_uid(uid_of(owner))?;
        if self.unconfirmed && before != service().uid {
            return Err(REFUSED);
        }
        self.uid.clone_from(owner);
        (self.unconfirmed, self.broken) = (false, false);
        Ok(())
    }

    /// Gives the uid back to the service.
    fn give_back(&mut self) -> DiskResult<()> {
        if self.broken {
            return Err(REFUSED);
        }
        let Some(user) = self.uid.take() else {
            return Ok(());
        };
        // The operation ran as this user.
        self.broken = raw::swap_fs_uid(service().uid) != user.uid;
        self.unconfirmed = true;
        if self.broken { Err(REFUSED) } else { Ok(()) }
    }

    /// Confirms that the uid is the service's, if it should be.
    fn confirm(&mut self) -> DiskResult<()> {
        if self.unconfirmed && raw::fs_uid() != uid_of(&self.uid) {
            self.broken = true;
            return Err(REFUSED);
        }
        self.unconfirmed = false;
        Ok(())
    }

    fn set(&mut self, owner: &Owner) -> DiskResult<()> {
        if self.broken {
            return Err(REFUSED);
        }
        if self
            .set_groups(owner)
            .and_then(|()| self.set_uid(owner))
            .and_then(|()| self.confirm())
            .is_ok()
        {
            return Ok(());
        }
        if self.force_service().is_err() {
            tracing::error!("a thread could not return to the service's identity; it is retired");
        }
        Err(REFUSED)
    }

    /// Makes the thread the service, whatever its identity is.
    fn force_service(&mut self) -> DiskResult<()> {
        self.broken = true;
        raw::set_fs_uid(service().uid)?;
        set_thread_groups(&service().groups).map_err(|_| REFUSED)?;
        raw::set_fs_gid(service().gid)?;
        *self = Self::new();
        Ok(())
    }
}

fn uid_of(owner: &Owner) -> u32 {
    owner.as_ref().map_or(service().uid, |user| user.uid)
}

/// The identity that `who` stands for here. EPERM if the process cannot act as `who`.
fn owner(who: &Identity) -> DiskResult<Owner> {
    match who {
        Identity::Service => Ok(None),
        Identity::User(user) if can_switch() => {
            // setfsuid and setfsgid take this value as "change nothing".
            let nobody = user.uid == u32::MAX || user.gid == u32::MAX;
            if nobody || user.groups.contains(&u32::MAX) {
                return Err(REFUSED);
            }
            Ok((!service().is(user)).then(|| Arc::clone(user)))
        }
        // A process without privileges can act only as its own user.
        Identity::User(user) if user.uid == service().uid => Ok(None),
        Identity::User(_) => Err(REFUSED),
    }
}

/// To be called first by every thread that will act for users, or make files as the service: it may have been started
/// by a thread that acted as a user at that time, and a worker keeps the groups of the last one.
///
/// # Errors
/// The kernel's error; the thread is not the service then.
pub fn begin_thread() -> DiskResult<()> {
    give_up_set_ids()?;
    if can_switch() {
        CURRENT.with_borrow_mut(Current::force_service)
    } else {
        Ok(())
    }
}

/// Makes `who` the identity of the calling thread until the next call.
pub(crate) fn assume(who: &Identity) -> DiskResult<()> {
    let owner = owner(who)?;
    CURRENT.with_borrow_mut(|current| current.set(&owner))
}

/// Makes the calling thread's uid the service's until the next call, for calls that create nothing: the groups may stay
/// those of the last user, who is likely to be the next one too.
pub(crate) fn assume_to_look() -> DiskResult<()> {
    CURRENT.with_borrow_mut(|current| {
        if current.broken {
            return Err(REFUSED);
        }
        current.set_uid(&None)
    })
}

/// Whether the calling thread refuses every operation from now on.
pub(crate) fn broken() -> bool {
    CURRENT.with_borrow(|current| current.broken)
}

/// Restores the uid when dropped.
struct Return;

impl Drop for Return {
    fn drop(&mut self) {
        CURRENT.with_borrow_mut(|current| {
            // After a failure the thread is marked as broken and refuses all further operations.
            if current.give_back().is_err() {
                tracing::error!("a worker could not return to the service's identity");
            }
        });
    }
}

/// Runs `call` as `who` on this thread and returns to the service's uid. `call` must create
/// nothing as [`Identity::Service`]: the groups may still be the last user's.
pub(crate) fn with<T>(who: &Identity, call: impl FnOnce() -> DiskResult<T>) -> DiskResult<T> {
    if matches!(who, Identity::Service) {
        assume_to_look()?;
        return call();
    }
    // A user who is the service has its groups too.
    let owner = owner(who)?;
    CURRENT.with_borrow_mut(|current| current.set(&owner))?;
    let _back = Return;
    call()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(uid: u32, groups: &[u32]) -> Identity {
        Identity::User(Arc::new(LocalUser {
            uid,
            gid: uid,
            groups: groups.to_vec(),
        }))
    }

    /// The `Uid:`, `Gid:` and `Groups:` lines of this thread: last column is the file system's.
    fn actual() -> (u32, u32, Vec<u32>) {
        let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
        let line = |key: &str| -> Vec<u32> {
            let line = status.lines().find_map(|l| l.strip_prefix(key)).unwrap();
            line.split_whitespace()
                .map(|n| n.parse().unwrap())
                .collect()
        };
        (line("Uid:")[3], line("Gid:")[3], line("Groups:"))
    }

    #[test]
    fn a_thread_is_who_it_says() {
        remember_service();
        if !can_switch() {
            crate::testing::missing("root with CAP_SETUID");
            return;
        }
        let own = actual();
        assert_eq!(own.0, 0);
        let (a, b) = (user(1001, &[7, 8]), user(1002, &[]));
        assert_eq!(with(&a, || Ok(actual())), Ok((1001, 1001, vec![7, 8])));
        assert_eq!(actual().0, 0, "the uid is back at once");
        assert_eq!(with(&Identity::Service, || Ok(actual().0)), Ok(0));
        assert_eq!(with(&b, || Ok(actual())), Ok((1002, 1002, vec![])));
        assert_eq!(with(&b, || Err::<(), _>(Errno(7))), Err(Errno(7)));
        assert_eq!(actual().0, 0);
        assume(&a).unwrap();
        assume(&b).unwrap();
        assert_eq!(actual(), (1002, 1002, vec![]));
        // A thread started meanwhile inherits the user's identity and corrects it.
        let child = std::thread::spawn(|| {
            assert_eq!(actual().0, 1002);
            begin_thread().unwrap();
            actual()
        });
        assert_eq!(child.join().unwrap(), own);
        assume(&Identity::Service).unwrap();
        assert_eq!(actual(), own);
        // A query keeps the groups, and an operation that creates something gets its own back.
        assume(&a).unwrap();
        assume_to_look().unwrap();
        assert_eq!(actual(), (0, 1001, vec![7, 8]));
        assume(&a).unwrap();
        assert_eq!(actual(), (1001, 1001, vec![7, 8]));
        assume_to_look().unwrap();
        assume(&b).unwrap();
        assert_eq!(actual(), (1002, 1002, vec![]));
        assume_to_look().unwrap();
        assume(&Identity::Service).unwrap();
        assert_eq!(actual(), own);
        // A user with all ids of the service also has its groups.
        let root = Identity::User(Arc::new(LocalUser {
            uid: own.0,
            gid: own.1,
            groups: own.2.clone(),
        }));
        with(&a, || Ok(())).unwrap();
        assert_eq!(with(&root, || Ok(actual())), Ok(own.clone()));
        assert_eq!(assume(&user(u32::MAX, &[])), Err(REFUSED));
        assert_eq!(assume(&user(5, &[u32::MAX])), Err(REFUSED));
        assert_eq!(actual(), own);
        assert!(!broken());
    }

    /// The effective and the permitted capabilities of this thread.
    fn has_set_ids() -> [bool; 2] {
        let sets = capabilities(None).unwrap();
        [sets.effective, sets.permitted].map(|set| set.contains(CapabilitySet::FSETID))
    }

    #[test]
    fn a_thread_that_began_keeps_no_set_ids_as_any_user() {
        remember_service();
        if !can_switch() {
            crate::testing::missing("root with CAP_SETUID");
            return;
        }
        begin_thread().unwrap();
        assert_eq!(has_set_ids(), [false; 2]);
        let root = Identity::User(Arc::new(LocalUser {
            uid: 0,
            gid: 0,
            groups: vec![7],
        }));
        for who in [user(1001, &[7]), root, Identity::Service] {
            assert_eq!(with(&who, || Ok(has_set_ids())), Ok([false; 2]));
            assert_eq!(has_set_ids(), [false; 2]);
        }
        let child = std::thread::spawn(has_set_ids);
        assert_eq!(child.join().unwrap(), [false; 2]);
    }

    /// docs/security.md says so of every thread that has taken on a user.
    #[test]
    fn a_user_has_no_capability_that_overrides_permissions() {
        remember_service();
        if !can_switch() {
            crate::testing::missing("root with CAP_SETUID");
            return;
        }
        let effective = || -> DiskResult<CapabilitySet> { Ok(capabilities(None)?.effective) };
        let overriding = CapabilitySet::CHOWN
            | CapabilitySet::FOWNER
            | CapabilitySet::DAC_OVERRIDE
            | CapabilitySet::DAC_READ_SEARCH;
        let own = effective().unwrap();
        let of_user = with(&user(1001, &[]), effective).unwrap();
        assert_eq!(of_user & overriding, CapabilitySet::empty());
        let admin = CapabilitySet::SYS_ADMIN;
        assert_eq!(of_user & admin, own & admin, "it stays");
        assert_eq!(effective(), Ok(own), "the service has them again");
    }

    /// The kernel may refuse to restore the uid (for want of memory, say): that is detected before the thread acts for
    /// another user or creates anything.
    #[test]
    fn who_did_not_return_is_found_out() {
        remember_service();
        if !can_switch() {
            crate::testing::missing("root with CAP_SETUID");
            return;
        }
        let own = actual();
        let (a, b) = (user(1001, &[7, 8]), user(1002, &[]));
        let stuck = || {
            with(&a, || Ok(())).unwrap();
            raw::set_fs_uid(1001).unwrap();
        };
        for next in [&a, &b, &Identity::Service] {
            stuck();
            assert_eq!(assume(next), Err(REFUSED));
            assert_eq!(actual(), own, "it is put right");
            assert_eq!(assume(next), Ok(()));
            assume(&Identity::Service).unwrap();
        }
        stuck();
        let refused = with(&b, || -> DiskResult<()> {
            unreachable!("as somebody else")
        });
        assert_eq!(refused, Err(REFUSED));
        assert_eq!(with(&b, || Ok(actual())), Ok((1002, 1002, vec![])));
        assert_eq!(actual().0, 0);
        // Queries in between confirm nothing and hide nothing.
        stuck();
        assume_to_look().unwrap();
        assert_eq!(with(&Identity::Service, || Ok(())), Ok(()));
        assert_eq!(assume(&b), Err(REFUSED));
        // An operation may not leave another uid behind either.
        with(&a, || raw::set_fs_uid(1002).map(drop)).unwrap();
        assert_eq!(assume(&a), Err(REFUSED));
        assert!(broken());
    }

    #[test]
    fn only_who_is_the_service_in_everything_is_the_service() {
        let service = |groups: &[u32]| Service {
            uid: 0,
            gid: 0,
            groups: groups.iter().map(|gid| Gid::from_raw(*gid)).collect(),
        };
        let user = |uid, gid, groups: &[u32]| LocalUser {
            uid,
            gid,
            groups: groups.to_vec(),
        };
        for groups in [&[][..], &[0]] {
            assert!(service(groups).is(&user(0, 0, &[])));
            assert!(service(groups).is(&user(0, 0, &[0])));
            assert!(!service(groups).is(&user(0, 0, &[4])));
            assert!(!service(groups).is(&user(0, 4, &[])));
            assert!(!service(groups).is(&user(4, 0, &[])));
        }
        assert!(service(&[0, 4]).is(&user(0, 0, &[4])));
        assert!(!service(&[0, 4]).is(&user(0, 0, &[])));
    }
}
