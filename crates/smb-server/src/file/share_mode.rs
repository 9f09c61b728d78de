//! Share modes: whether two opens of one stream can live together ([MS-FSA] 2.1.5.1.2.2).
//!
//! Pure functions over granted access and share access. Which opens are compared, and what is
//! broken before a conflict is final, is `inode`'s affair.

use smb_wire::access_mask::AccessMask;
use smb_wire::msg::ShareAccess;

/// Rights that read data.
const READERS: AccessMask = AccessMask::FILE_READ_DATA.union(AccessMask::FILE_EXECUTE);
/// Rights that write data.
const WRITERS: AccessMask = AccessMask::FILE_WRITE_DATA.union(AccessMask::FILE_APPEND_DATA);
/// Rights that take part in sharing at all.
const SHARED: AccessMask = READERS.union(WRITERS).union(AccessMask::DELETE);

/// Rights of an open that never disturbs an oplock ([MS-FSA] 2.1.4.12, case OPEN).
const OPLOCK_STAT: AccessMask = AccessMask::SYNCHRONIZE
    .union(AccessMask::FILE_READ_ATTRIBUTES)
    .union(AccessMask::FILE_WRITE_ATTRIBUTES);
/// Rights of an open that never disturbs a lease.
const LEASE_STAT: AccessMask = OPLOCK_STAT.union(AccessMask::READ_CONTROL);

/// The part of an open that takes part in sharing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ShareMode {
    pub(super) access: AccessMask,
    pub(super) share: ShareAccess,
}

impl ShareMode {
    /// How a rename or link opens the directory that its new name goes to ([MS-FSA] 2.1.5.15.12,
    /// 2.1.5.15.7). Note 185: up to Windows Server 2022 FILE_SHARE_DELETE is not among what it
    /// shares. Clients rely on that for files; a directory is moved as by later ones.
    pub(super) fn of_entry(directory: bool) -> Self {
        let both = ShareAccess::READ | ShareAccess::WRITE;
        if directory {
            Self {
                access: AccessMask::FILE_ADD_SUBDIRECTORY,
                share: both | ShareAccess::DELETE,
            }
        } else {
            Self {
                access: AccessMask::FILE_ADD_FILE,
                share: both,
            }
        }
    }

    /// Whether the open reads, writes or deletes: others never conflict.
    pub(super) fn takes_part(self) -> bool {
        self.access.intersects(SHARED)
    }

    /// Whether `other` forbids what this open does.
    fn forbidden_by(self, other: ShareAccess) -> bool {
        (self.access.intersects(READERS) && !other.contains(ShareAccess::READ))
            || (self.access.intersects(WRITERS) && !other.contains(ShareAccess::WRITE))
            || (self.access.intersects(AccessMask::DELETE) && !other.contains(ShareAccess::DELETE))
    }

    /// Whether the two cannot be open at the same time. Symmetric.
    pub(super) fn conflicts(self, other: Self) -> bool {
        // [MS-FSA] 2.1.5.1.2.2: checked only if both read, write or delete; then both ways.
        self.takes_part()
            && other.takes_part()
            && (self.forbidden_by(other.share) || other.forbidden_by(self.share))
    }

    /// Whether what is open like this may not be deleted by somebody else.
    pub(super) fn forbids_deletion(self) -> bool {
        self.takes_part() && !self.share.contains(ShareAccess::DELETE)
    }

    /// Whether what is open like this may be deleted through the open.
    pub(super) fn deletes(self) -> bool {
        self.access.intersects(AccessMask::DELETE)
    }
}

/// Whether opening with these rights leaves oplocks alone.
pub(super) fn is_oplock_stat(access: AccessMask) -> bool {
    access.without(OPLOCK_STAT).is_empty()
}

/// Whether opening with these rights leaves leases alone.
pub(super) fn is_lease_stat(access: AccessMask) -> bool {
    access.without(LEASE_STAT).is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(access: AccessMask, share: u32) -> ShareMode {
        ShareMode {
            access,
            share: ShareAccess(share),
        }
    }

    #[test]
    fn pairs_are_checked_both_ways() {
        let read = AccessMask::FILE_READ_DATA;
        let write = AccessMask::FILE_APPEND_DATA;
        let delete = AccessMask::DELETE;
        for (a, b, conflict) in [
            (mode(read, 1), mode(read, 1), false),
            (mode(read, 0), mode(read, 1), true),
            (mode(read, 3), mode(write, 1), false),
            (mode(read, 1), mode(write, 1), true),
            (mode(read, 3), mode(write, 2), true),
            (mode(delete, 7), mode(read, 3), true),
            (mode(delete, 1), mode(read, 4), false),
            (mode(AccessMask::FILE_EXECUTE, 7), mode(write, 6), true),
            (
                mode(AccessMask::FILE_READ_ATTRIBUTES, 0),
                mode(write, 0),
                false,
            ),
            (mode(AccessMask::FILE_READ_EA, 0), mode(delete, 0), false),
        ] {
            assert_eq!(a.conflicts(b), conflict, "{a:?} {b:?}");
            assert_eq!(b.conflicts(a), conflict, "{b:?} {a:?}");
        }
    }

    #[test]
    fn deletion_is_forbidden_by_who_touches_data_and_does_not_share_it() {
        assert!(mode(AccessMask::FILE_READ_DATA, 3).forbids_deletion());
        assert!(!mode(AccessMask::FILE_READ_DATA, 4).forbids_deletion());
        assert!(!mode(AccessMask::FILE_READ_ATTRIBUTES, 0).forbids_deletion());
        assert!(mode(AccessMask::DELETE, 7).deletes());
        assert!(!mode(AccessMask::FILE_WRITE_DATA, 7).deletes());
    }

    #[test]
    fn stat_opens_differ_for_oplocks_and_leases() {
        let control = AccessMask::READ_CONTROL | AccessMask::SYNCHRONIZE;
        assert!(is_lease_stat(control) && !is_oplock_stat(control));
        assert!(is_oplock_stat(AccessMask::FILE_WRITE_ATTRIBUTES));
        assert!(!is_lease_stat(AccessMask::FILE_READ_EA));
    }
}
