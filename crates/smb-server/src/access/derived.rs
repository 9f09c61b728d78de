//! The security descriptor of an inode that has none stored: it is derived from the permission bits.
//!
//! The derived descriptor of a directory also has inheritable entries: CREATOR OWNER with full
//! access, CREATOR GROUP and Everyone with the rights that the directory gives them, as far as the permission bits of
//! new files and directories would. They take effect when a client adds an entry and so stores the descriptor. Until
//! then nothing is inherited, and a new object has only its bits.

use smb_wire::{
    access_mask::AccessMask,
    dtyp::{Ace, AceFlags, Acl, SecurityDescriptor, SecurityDescriptorControl, Sid},
};
use vfs::{NewModes, Permissions};

const PASSED_ON: AceFlags =
    AceFlags(AceFlags::OBJECT_INHERIT.bits() | AceFlags::CONTAINER_INHERIT.bits());

/// The descriptor that the permission bits mean: one entry each for owner, group and everyone. For a
/// directory, `below` has the permission bits of new objects in it.
pub(crate) fn derived(of: Permissions, below: Option<NewModes>) -> SecurityDescriptor {
    derived_for(Sid::unix_user(of.uid), of, below)
}

/// As [`derived`], with this account as the owner, because it shares its uid with others.
pub(super) fn derived_for(
    owner: Sid,
    of: Permissions,
    below: Option<NewModes>,
) -> SecurityDescriptor {
    let mut sd = effective(owner, of, below.is_some());
    if let (Some(below), Some(list)) = (below, &mut sd.dacl) {
        list.aces.extend(passed_on(of.mode, below));
    }
    sd
}

/// As [`derived`], without the inheritable entries, which an access check does not need.
pub(crate) fn effective(owner: Sid, of: Permissions, directory: bool) -> SecurityDescriptor {
    let group = Sid::unix_group(of.gid);
    let rights = |bits| rights(directory, bits);
    let entry = |sid, mask| Ace::allow(sid, mask, AceFlags::empty());
    let aces = vec![
        entry(owner, owner_rights(directory, of.mode >> 6)),
        entry(group, rights(of.mode >> 3)),
        entry(Sid::EVERYONE, rights(of.mode)),
    ];
    SecurityDescriptor {
        control: SecurityDescriptorControl::empty(),
        owner: Some(owner),
        group: Some(group),
        sacl: None,
        dacl: Some(Acl::new(aces)),
    }
}

/// The inheritable entries of a directory of this mode.
fn passed_on(mode: u32, below: NewModes) -> impl Iterator<Item = Ace> {
    // The right to read a file includes the right to run it, so the bits of files take no x away.
    let new = below.directory & (below.file | 0o111);
    let shared = mode & new;
    let creator = Some((Sid::CREATOR_OWNER, owner_rights(true, new >> 6)));
    let given = |sid, bits| (bits & 0o7 != 0).then(|| (sid, rights(true, bits)));
    let entries = [
        creator,
        given(Sid::CREATOR_GROUP, shared >> 3),
        given(Sid::EVERYONE, shared),
    ];
    let only = PASSED_ON | AceFlags::INHERIT_ONLY;
    (entries.into_iter().flatten()).map(move |(sid, mask)| Ace::allow(sid, mask, only))
}

/// The descriptor that applies where this one is stored: one that was stored for an account's new directory has no
/// inheritable entries, so they are added here.
pub(super) fn completed(
    stored: SecurityDescriptor,
    of: Permissions,
    below: Option<NewModes>,
) -> SecurityDescriptor {
    let entries = stored.dacl.as_ref().map(|acl| acl.aces.len());
    if below.is_none() || entries != Some(OF_THE_BITS) {
        return stored;
    }
    only_reads_owner(&stored, of, below).unwrap_or(stored)
}

/// The descriptor as it is derived today, if `sd` is a stored one that only names the owner and otherwise says what the
/// permission bits say, as this version or an earlier one stores it.
pub(super) fn only_reads_owner(
    sd: &SecurityDescriptor,
    of: Permissions,
    below: Option<NewModes>,
) -> Option<SecurityDescriptor> {
    let today = derived_for(sd.owner?, of, below);
    let aces = &sd.dacl.as_ref()?.aces;
    let all = &today.dacl.as_ref()?.aces;
    let same = aces == all || Some(aces.as_slice()) == all.get(..OF_THE_BITS);
    (same && (&sd.group, &sd.sacl) == (&today.group, &today.sacl)).then_some(today)
}

/// The number of entries that permission bits become: owner, group, everyone.
const OF_THE_BITS: usize = 3;

/// The owner may always change permissions and attributes, and remove objects that are his.
fn owner_rights(directory: bool, bits: u32) -> AccessMask {
    if bits & 0o6 == 0o6 {
        return AccessMask::FILE_ALL_ACCESS;
    }
    rights(directory, bits)
        | AccessMask::WRITE_DAC
        | AccessMask::WRITE_OWNER
        | AccessMask::DELETE
        | AccessMask::FILE_WRITE_ATTRIBUTES
}

/// The rights that correspond to three permission bits. Reading a file includes running it: a client that may read
/// could copy and run it anyway, and Windows asks for both.
fn rights(directory: bool, bits: u32) -> AccessMask {
    let mut mask =
        AccessMask::READ_CONTROL | AccessMask::SYNCHRONIZE | AccessMask::FILE_READ_ATTRIBUTES;
    if bits & 0o4 != 0 {
        mask |= AccessMask::FILE_GENERIC_READ;
        if !directory {
            mask |= AccessMask::FILE_EXECUTE;
        }
    }
    if bits & 0o2 != 0 {
        mask = mask | AccessMask::FILE_GENERIC_WRITE | AccessMask::DELETE;
        if directory {
            mask |= AccessMask::FILE_DELETE_CHILD;
        }
    }
    if bits & 0o1 != 0 {
        mask |= AccessMask::FILE_EXECUTE;
    }
    mask
}
