//! Share modes of one stream ([MS-FSA] 2.1.5.1.2.2): whether an open can live beside those that are there.
//!
//! Owns the comparison of two modes and the counts that stand for all opens of a stream. `contention` asks it for the
//! streams that a request concerns.

use smb_wire::{access_mask::AccessMask, msg::ShareAccess};

/// Rights that read data.
const READERS: AccessMask = AccessMask::FILE_READ_DATA.union(AccessMask::FILE_EXECUTE);
/// Rights that write data.
const WRITERS: AccessMask = AccessMask::FILE_WRITE_DATA.union(AccessMask::FILE_APPEND_DATA);
/// Rights that take part in sharing at all.
const SHARED: AccessMask = READERS.union(WRITERS).union(AccessMask::DELETE);

/// The part of an open that takes part in sharing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ShareMode {
    pub(super) access: AccessMask,
    pub(super) share: ShareAccess,
}

impl ShareMode {
    /// The share mode with which a rename or link opens the directory of its new name ([MS-FSA] 2.1.5.15.12,
    /// 2.1.5.15.7). Note 185: up to Windows Server 2022 it does not share deletion. Clients rely on that for files; for
    /// directories the rule of later versions applies.
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

    /// Whether the open reads, writes or deletes: an open that does none of these never conflicts.
    pub(super) fn takes_part(self) -> bool {
        self.access.intersects(SHARED)
    }

    fn reads(self) -> bool {
        self.access.intersects(READERS)
    }

    /// Whether the open may change data.
    pub(super) fn writes(self) -> bool {
        self.access.intersects(WRITERS)
    }

    /// Whether an open of this mode forbids others to delete the file.
    pub(super) fn forbids_deletion(self) -> bool {
        self.takes_part() && !self.share.contains(ShareAccess::DELETE)
    }

    /// Whether the file may be deleted through an open of this mode.
    pub(super) fn deletes(self) -> bool {
        self.access.intersects(AccessMask::DELETE)
    }
}

/// The opens of a stream, counted by all that decides about a further one: a file may have tens of thousands of opens,
/// and each CREATE asks.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct ShareCounts {
    /// All opens; those below are among them.
    opens: u32,
    /// They are just emptying the stream.
    emptying: u32,
    /// The opens that read, write or delete.
    taking_part: u32,
    readers: u32,
    writers: u32,
    deleters: u32,
    /// The opens that take part and let others read, and so on.
    sharing_reads: u32,
    sharing_writes: u32,
    sharing_deletion: u32,
}

impl ShareCounts {
    /// Counts an open.
    pub(super) fn enter(&mut self, mode: ShareMode, empties: bool) {
        self.change(mode, empties, |count| *count += 1);
    }

    /// Counts an open no longer that was counted with these values.
    pub(super) fn leave(&mut self, mode: ShareMode, empties: bool) {
        self.change(mode, empties, |count| *count = count.saturating_sub(1));
    }

    fn change(&mut self, mode: ShareMode, empties: bool, change: impl Fn(&mut u32)) {
        let part = mode.takes_part();
        let shares = |others| part && mode.share.contains(others);
        for (count, concerned) in [
            (&mut self.opens, true),
            (&mut self.emptying, empties),
            (&mut self.taking_part, part),
            (&mut self.readers, mode.reads()),
            (&mut self.writers, mode.writes()),
            (&mut self.deleters, mode.deletes()),
            (&mut self.sharing_reads, shares(ShareAccess::READ)),
            (&mut self.sharing_writes, shares(ShareAccess::WRITE)),
            (&mut self.sharing_deletion, shares(ShareAccess::DELETE)),
        ] {
            if concerned {
                change(count);
            }
        }
    }

    pub(super) fn any(&self) -> bool {
        self.opens > 0
    }

    /// Whether an open of this mode conflicts with any of them. [MS-FSA] 2.1.5.1.2.2: only opens that read, write or
    /// delete conflict, and each must share what the other does.
    pub(super) fn conflict(&self, mode: ShareMode) -> bool {
        let bars = |does: bool, sharing: u32, others: u32, share: ShareAccess| {
            (does && sharing < self.taking_part) || (others > 0 && !mode.share.contains(share))
        };
        mode.takes_part()
            && (bars(
                mode.reads(),
                self.sharing_reads,
                self.readers,
                ShareAccess::READ,
            ) || bars(
                mode.writes(),
                self.sharing_writes,
                self.writers,
                ShareAccess::WRITE,
            ) || bars(
                mode.deletes(),
                self.sharing_deletion,
                self.deleters,
                ShareAccess::DELETE,
            ))
    }

    /// Whether any of them forbids others to delete the file.
    pub(super) fn forbid_deletion(&self) -> bool {
        self.sharing_deletion < self.taking_part
    }

    /// Whether any of them may delete the file, or is just removing its named streams.
    pub(super) fn remove_streams(&self) -> bool {
        self.deleters > 0 || self.emptying > 0
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The rule as the specification has it, of two opens.
    fn conflict(one: ShareMode, other: ShareMode) -> bool {
        let forbidden = |does: ShareMode, share: ShareAccess| {
            (does.reads() && !share.contains(ShareAccess::READ))
                || (does.writes() && !share.contains(ShareAccess::WRITE))
                || (does.deletes() && !share.contains(ShareAccess::DELETE))
        };
        one.takes_part()
            && other.takes_part()
            && (forbidden(one, other.share) || forbidden(other, one.share))
    }

    fn modes() -> impl Strategy<Value = ShareMode> {
        let rights = [
            AccessMask::FILE_READ_DATA,
            AccessMask::FILE_EXECUTE,
            AccessMask::FILE_WRITE_DATA,
            AccessMask::FILE_APPEND_DATA,
            AccessMask::DELETE,
            AccessMask::FILE_READ_ATTRIBUTES,
        ];
        let access = prop::sample::subsequence(rights.to_vec(), 0..4);
        (access, 0..8_u32).prop_map(|(rights, share)| {
            let none = AccessMask::empty();
            mode(rights.into_iter().fold(none, AccessMask::union), share)
        })
    }

    proptest! {
        /// The counts of any opens that came and went say what the opens say one by one.
        #[test]
        fn counts_are_the_opens(
            opens in prop::collection::vec((modes(), any::<bool>(), any::<bool>()), 0..12),
            new in modes(),
        ) {
            let mut counts = ShareCounts::default();
            for (mode, empties, _) in &opens {
                counts.enter(*mode, *empties);
            }
            for (mode, empties, _) in opens.iter().filter(|(.., stays)| !stays) {
                counts.leave(*mode, *empties);
            }
            let mut there = opens.iter().filter(|(.., stays)| *stays);
            let among = |holds: &dyn Fn(ShareMode, bool) -> bool| {
                there.clone().any(|(mode, empties, _)| holds(*mode, *empties))
            };
            prop_assert_eq!(counts.conflict(new), among(&|mode, _| conflict(mode, new)));
            prop_assert_eq!(counts.forbid_deletion(), among(&|mode, _| mode.forbids_deletion()));
            let remove = among(&|mode, empties| mode.deletes() || empties);
            prop_assert_eq!(counts.remove_streams(), remove);
            prop_assert_eq!(counts.any(), there.next().is_some());
        }
    }

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
            for (there, new) in [(a, b), (b, a)] {
                let mut counts = ShareCounts::default();
                counts.enter(there, false);
                assert_eq!(counts.conflict(new), conflict, "{there:?} {new:?}");
            }
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
}
