//! Tests of share modes and of the rights that disturb no caching.

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

#[test]
fn stat_opens_differ_for_oplocks_and_leases() {
    let control = AccessMask::READ_CONTROL | AccessMask::SYNCHRONIZE;
    assert!(is_lease_stat(control) && !is_oplock_stat(control));
    assert!(is_oplock_stat(AccessMask::FILE_WRITE_ATTRIBUTES));
    assert!(!is_lease_stat(AccessMask::FILE_READ_EA));
}
