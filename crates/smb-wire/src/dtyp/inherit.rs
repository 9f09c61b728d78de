//! Computes the descriptor of a new file or directory from its parent's and its creator's
//! ([MS-DTYP] 2.5.3.4), for entries that allow, deny or audit.
//!
//! The computation follows the table of 2.5.3.4.4, and NTFS where the pseudocode leaves it open: an
//! entry that is both effective on a directory and passed on becomes one entry, or two only if the
//! effective one had to be changed (CREATOR OWNER, CREATOR GROUP, generic rights).
//!
//! DACL_AUTO_INHERIT and SACL_AUTO_INHERIT (2.5.3.4.1) apply where the parent's list is marked as
//! auto-inherited: only then are entries marked as inherited, is the new list marked, and are the
//! parent's entries appended to a list that the creator supplies.
//!
//! Of object entries only those that deny are inherited: files have no object types, so they deny whatever the type.

use super::ace::{Ace, AceBody, AceFlags, AceType};
use super::acl::Acl;
use super::security_descriptor::{SecurityDescriptor, SecurityDescriptorControl};
use super::sid::Sid;
use crate::access_mask::AccessMask;

/// Returns the descriptor of a new object. `owner` and `group` are the creator's, used where the
/// creator's descriptor names none.
///
/// If there is nothing to inherit and no DACL from the creator, owner and system get full access
/// (the default DACL of a Windows token).
pub fn inherit(
    parent: Option<&SecurityDescriptor>,
    creator: Option<&SecurityDescriptor>,
    is_directory: bool,
    owner: Sid,
    group: Sid,
) -> SecurityDescriptor {
    use SecurityDescriptorControl as Control;
    let owner = creator.and_then(|sd| sd.owner).unwrap_or(owner);
    let group = creator.and_then(|sd| sd.group).unwrap_or(group);
    let child = Child {
        is_directory,
        owner,
        group,
    };
    let mut control = Control::empty();

    let creator_control = creator.map_or(Control::empty(), |sd| sd.control);
    let given =
        creator.filter(|sd| sd.control.contains(Control::DACL_PRESENT) || sd.dacl.is_some());
    // An absent list cannot be protected.
    let dacl_protected = given.is_some() && creator_control.contains(Control::DACL_PROTECTED);
    let parent_control = parent.map_or(Control::empty(), |sd| sd.control);
    let above = |list, automatic| Above {
        list,
        automatic: parent_control.contains(automatic),
    };
    let dacl = match given {
        // A NULL DACL that the creator supplied explicitly is preserved.
        Some(sd) if sd.dacl.is_none() => {
            control |= Control::DACL_PRESENT;
            None
        }
        given => Some(child.list(
            above(
                parent.and_then(|sd| sd.dacl.as_ref()),
                Control::DACL_AUTO_INHERITED,
            ),
            given.and_then(|sd| sd.dacl.as_ref()),
            dacl_protected,
        )),
    };
    let dacl = dacl.map(|(aces, automatic)| {
        // Windows considers the entries that the child actually inherits, not those that another
        // child could have inherited: below a list for directories only, a file gets the default.
        if aces.is_empty() && given.is_none() {
            return Acl::new(default_dacl(owner));
        }
        control |= Control::DACL_AUTO_INHERITED.when(automatic);
        Acl::new(aces)
    });
    control |= Control::DACL_PROTECTED.when(dacl_protected);

    let creator_sacl = creator.and_then(|sd| sd.sacl.as_ref());
    let sacl_protected =
        creator_sacl.is_some() && creator_control.contains(Control::SACL_PROTECTED);
    let (aces, automatic) = child.list(
        above(
            parent.and_then(|sd| sd.sacl.as_ref()),
            Control::SACL_AUTO_INHERITED,
        ),
        creator_sacl,
        sacl_protected,
    );
    control |= Control::SACL_AUTO_INHERITED.when(automatic);
    control |= Control::SACL_PROTECTED.when(sacl_protected);
    let sacl = (creator_sacl.is_some() || !aces.is_empty()).then(|| Acl::new(aces));

    SecurityDescriptor {
        control,
        owner: Some(owner),
        group: Some(group),
        sacl,
        dacl,
    }
}

/// The default DACL ([MS-DTYP] 2.5.3.4.2): full access for owner and system.
fn default_dacl(owner: Sid) -> Vec<Ace> {
    [owner, Sid::LOCAL_SYSTEM]
        .map(|sid| Ace::allow(sid, AccessMask::FILE_ALL_ACCESS, AceFlags::empty()))
        .to_vec()
}

/// The properties of the new object that inheritance depends on.
struct Child {
    is_directory: bool,
    owner: Sid,
    group: Sid,
}

/// A list of the parent.
struct Above<'a> {
    list: Option<&'a Acl>,
    /// The list is marked as auto-inherited, and so is the list computed from it.
    automatic: bool,
}

impl Child {
    /// Returns the new object's list, and whether it is auto-inherited: the creator's explicit entries followed by the
    /// parent's inheritable ones; only the latter if the creator supplied no list.
    fn list(&self, parent: Above<'_>, creator: Option<&Acl>, protected: bool) -> (Vec<Ace>, bool) {
        let mut aces = Vec::new();
        for ace in creator.iter().flat_map(|acl| &acl.aces) {
            // 2.5.3.4: in a protected list every entry counts as explicit; in any other, entries
            // marked as inherited are not copied.
            if protected || !ace.flags.contains(AceFlags::INHERITED) {
                self.push_explicit(ace, &mut aces);
            }
        }
        let passes_on = |acl: &&Acl| acl.aces.iter().any(Ace::is_inheritable);
        let applies = !protected && (creator.is_none() || parent.automatic);
        let Some(list) = parent.list.filter(passes_on).filter(|_| applies) else {
            return (aces, false);
        };
        let mark = AceFlags::INHERITED.when(parent.automatic);
        for ace in &list.aces {
            self.push_inherited(ace, mark, &mut aces);
        }
        (aces, parent.automatic)
    }

    /// Appends an entry of the creator, with generic rights and macro SIDs resolved where it takes effect (2.5.3.4.7).
    fn push_explicit(&self, ace: &Ace, aces: &mut Vec<Ace>) {
        let only_inherited = ace.flags.contains(AceFlags::INHERIT_ONLY);
        let mut ace = ace.clone();
        ace.flags = ace.flags.without(AceFlags::INHERITED);
        match (self.is_directory, only_inherited) {
            (true, true) => aces.push(ace),
            (true, false) => self.push_effective(ace, aces),
            // Nothing is below a file that could inherit the entry.
            (false, true) => {}
            (false, false) => {
                ace.flags = ace.flags.without(INHERITANCE);
                self.push_effective(ace, aces);
            }
        }
    }

    /// Appends the entries that a child inherits from one entry of its parent, by the table of
    /// 2.5.3.4.4.
    fn push_inherited(&self, parent: &Ace, mark: AceFlags, aces: &mut Vec<Ace>) {
        if !is_inheritable_type(parent.ace_type) {
            return;
        }
        let object = parent.flags.contains(AceFlags::OBJECT_INHERIT);
        let container = parent.flags.contains(AceFlags::CONTAINER_INHERIT);
        let stops = parent.flags.contains(AceFlags::NO_PROPAGATE_INHERIT);
        let audit = parent.flags & (AceFlags::SUCCESSFUL_ACCESS | AceFlags::FAILED_ACCESS);
        let effective = if self.is_directory { container } else { object };
        let passed_on = self.is_directory && !stops && (object || container);
        let mut flags = audit | mark;
        if passed_on {
            flags |= parent.flags & (AceFlags::OBJECT_INHERIT | AceFlags::CONTAINER_INHERIT);
        }
        let mut ace = parent.clone();
        if effective {
            ace.flags = flags;
            self.push_effective(ace, aces);
        } else if passed_on {
            ace.flags = flags | AceFlags::INHERIT_ONLY;
            aces.push(ace);
        }
    }

    /// Appends an effective entry. If resolving changes it and it is also passed on, the unresolved
    /// entry follows as inherit-only.
    fn push_effective(&self, ace: Ace, aces: &mut Vec<Ace>) {
        let mut resolved = self.resolved(&ace);
        if resolved.body == ace.body || !ace.is_inheritable() {
            aces.push(resolved);
            return;
        }
        resolved.flags = resolved.flags.without(INHERITANCE);
        aces.push(resolved);
        let mut passed_on = ace;
        passed_on.flags |= AceFlags::INHERIT_ONLY;
        aces.push(passed_on);
    }

    /// The entry with generic rights and macro SIDs resolved. The access check resolves the rights of an object entry.
    fn resolved(&self, ace: &Ace) -> Ace {
        let who = |sid: Sid| match sid {
            Sid::CREATOR_OWNER => self.owner,
            Sid::CREATOR_GROUP => self.group,
            other => other,
        };
        let mut resolved = ace.clone();
        if let AceBody::Access { mask, sid, .. } = &mut resolved.body {
            *mask = mask.map_generic();
            *sid = who(*sid);
        } else if ace.ace_type.denies()
            && let Some((mask, sid)) = ace.object_access()
            && who(sid) != sid
        {
            // A file has no type, so an entry without one denies the same.
            resolved = Ace::deny(who(sid), mask.map_generic(), ace.flags);
        }
        resolved
    }
}

/// The flags that matter only to children.
const INHERITANCE: AceFlags = AceFlags(0x0f);

const fn is_inheritable_type(ace_type: AceType) -> bool {
    matches!(
        ace_type,
        AceType::ACCESS_ALLOWED
            | AceType::ACCESS_DENIED
            | AceType::SYSTEM_AUDIT
            | AceType::ACCESS_ALLOWED_CALLBACK
            | AceType::ACCESS_DENIED_CALLBACK
            | AceType::SYSTEM_AUDIT_CALLBACK
            // A file has no type, and an entry that denies must not be lost.
            | AceType::ACCESS_DENIED_OBJECT
            | AceType::ACCESS_DENIED_CALLBACK_OBJECT
    )
}

#[cfg(test)]
mod tests {
    use bytes::{BufMut, BytesMut};

    use super::super::inherit_model::{CI, GROUP, ID, IO, NP, OI, OWNER};
    use super::*;

    const READ: AccessMask = AccessMask::FILE_READ_DATA;

    fn parent(sid: Sid, mask: AccessMask, flags: u8) -> SecurityDescriptor {
        SecurityDescriptor {
            control: SecurityDescriptorControl::DACL_AUTO_INHERITED,
            dacl: Some(Acl::new(vec![Ace::allow(sid, mask, AceFlags(flags))])),
            ..SecurityDescriptor::default()
        }
    }

    fn child(parent: &SecurityDescriptor, is_directory: bool) -> Vec<Ace> {
        inherit(Some(parent), None, is_directory, OWNER, GROUP)
            .dacl
            .unwrap()
            .aces
    }

    #[test]
    fn the_table_of_the_specification_holds() {
        // The parent's flags; the flags on a directory and on a file; None for the default list.
        let rows = [
            (OI, Some(OI | IO), Some(0)),
            (OI | NP, None, Some(0)),
            (CI, Some(CI), None),
            (CI | NP, Some(0), None),
            (OI | CI, Some(OI | CI), Some(0)),
            (OI | CI | NP, Some(0), Some(0)),
            (OI | CI | IO, Some(OI | CI), Some(0)),
            (OI | IO, Some(OI | IO), Some(0)),
        ];
        for (flags, directory, file) in rows {
            let parent = parent(Sid::EVERYONE, READ, flags);
            for (is_directory, expected) in [(true, directory), (false, file)] {
                let aces = child(&parent, is_directory);
                let expected = expected.map_or_else(
                    || default_dacl(OWNER),
                    |flags| vec![Ace::allow(Sid::EVERYONE, READ, AceFlags(flags | ID))],
                );
                assert_eq!(aces, expected, "{flags:#x} {is_directory}");
            }
        }
    }

    #[test]
    fn creator_owner_becomes_two_entries_on_a_directory() {
        let parent = parent(Sid::CREATOR_OWNER, AccessMask::GENERIC_ALL, OI | CI | IO);
        let all = AccessMask::FILE_ALL_ACCESS;
        assert_eq!(
            child(&parent, false),
            [Ace::allow(OWNER, all, AceFlags(ID))]
        );
        assert_eq!(
            child(&parent, true),
            [
                Ace::allow(OWNER, all, AceFlags(ID)),
                Ace::allow(
                    Sid::CREATOR_OWNER,
                    AccessMask::GENERIC_ALL,
                    AceFlags(OI | CI | IO | ID)
                ),
            ]
        );
        let group = super::tests::parent(Sid::CREATOR_GROUP, READ, OI);
        assert_eq!(
            child(&group, false),
            [Ace::allow(GROUP, READ, AceFlags(ID))]
        );
    }

    #[test]
    fn an_object_entry_that_denies_the_creator_denies_the_owner() {
        let mut body = BytesMut::new();
        body.put_u32_le(READ.0);
        // It names no type.
        body.put_u32_le(0);
        Sid::CREATOR_OWNER.encode(&mut body);
        let entry = |flags| Ace {
            ace_type: AceType::ACCESS_DENIED_OBJECT,
            flags: AceFlags(flags),
            body: AceBody::Opaque(body.to_vec()),
        };
        let mut above = parent(Sid::EVERYONE, READ, 0);
        above.dacl = Some(Acl::new(vec![entry(OI | CI)]));
        let denied = Ace::deny(OWNER, READ, AceFlags(ID));
        assert_eq!(child(&above, false), std::slice::from_ref(&denied));
        assert_eq!(child(&above, true), [denied, entry(OI | CI | IO | ID)]);
        // A list of the older revision has no entry for types of objects ([MS-DTYP] 2.4.5).
        for (is_directory, revision) in [(false, Acl::REVISION), (true, Acl::REVISION_DS)] {
            let new = inherit(Some(&above), None, is_directory, OWNER, GROUP);
            assert_eq!(new.dacl.unwrap().revision, revision);
        }
    }

    #[test]
    fn nothing_to_inherit_gives_the_default() {
        for parent in [None, Some(&parent(Sid::EVERYONE, READ, 0))] {
            let sd = inherit(parent, None, false, OWNER, GROUP);
            let aces = sd.dacl.unwrap().aces;
            assert_eq!(aces.len(), 2);
            assert_eq!(aces[0].access().unwrap().1, &OWNER);
            assert_eq!(sd.owner, Some(OWNER));
            assert_eq!(sd.group, Some(GROUP));
        }
    }

    #[test]
    fn explicit_entries_come_first_and_protection_stops_the_parent() {
        let above = parent(Sid::EVERYONE, READ, OI | CI);
        let mut creator = parent(Sid::BUILTIN_USERS, AccessMask::GENERIC_READ, 0);
        let other = Sid::unix_user(9);
        creator.owner = Some(other);
        let sd = inherit(Some(&above), Some(&creator), false, OWNER, GROUP);
        assert_eq!(sd.owner, Some(other));
        assert_eq!(
            sd.dacl.unwrap().aces,
            [
                Ace::allow(
                    Sid::BUILTIN_USERS,
                    AccessMask::FILE_GENERIC_READ,
                    AceFlags::empty()
                ),
                Ace::allow(Sid::EVERYONE, READ, AceFlags(ID)),
            ]
        );
        assert!(
            sd.control
                .contains(SecurityDescriptorControl::DACL_AUTO_INHERITED)
        );
        creator.control = SecurityDescriptorControl::DACL_PROTECTED;
        let sd = inherit(Some(&above), Some(&creator), false, OWNER, GROUP);
        assert_eq!(sd.dacl.unwrap().aces.len(), 1);
        assert!(
            sd.control
                .contains(SecurityDescriptorControl::DACL_PROTECTED)
        );
    }

    #[test]
    fn an_explicit_null_dacl_is_preserved() {
        let creator = SecurityDescriptor {
            control: SecurityDescriptorControl::DACL_PRESENT,
            ..SecurityDescriptor::default()
        };
        let above = parent(Sid::EVERYONE, READ, OI | CI);
        assert_eq!(
            inherit(Some(&above), Some(&creator), true, OWNER, GROUP).dacl,
            None
        );
    }
}
