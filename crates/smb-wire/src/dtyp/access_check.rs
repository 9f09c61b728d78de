//! The access check of [MS-DTYP] 2.5.3.2 for files: no object tree, no conditions, no central
//! policies.
//!
//! Callback entries, and entries for types of objects, are evaluated to the safe side: one that allows
//! never applies, one that denies always does ([MS-DTYP] 2.5.3.1.5: the condition is "unknown", and a
//! file has no type). Generic rights in an entry stand for the rights of files.

use super::ace::{Ace, AceFlags, AceType};
use super::security_descriptor::SecurityDescriptor;
use super::sid::Sid;
use crate::access_mask::AccessMask;

/// Returns all rights that can be granted to a user with these SIDs: the user's own and those of all groups, including
/// EVERYONE.
///
/// Each right is decided by the first entry that names it, which is why requesting all rights at
/// once gives the same result as requesting each separately.
pub fn maximal_access(sd: &SecurityDescriptor, sids: &[Sid]) -> AccessMask {
    let Some(dacl) = &sd.dacl else {
        // Without a DACL all rights of a file are granted ([MS-DTYP] 2.5.3.2).
        return AccessMask::FILE_ALL_ACCESS;
    };

    let is_owner = sd.owner.is_some_and(|owner| sids.contains(&owner));
    let effective = || {
        dacl.aces
            .iter()
            .filter(|ace| !ace.flags.contains(AceFlags::INHERIT_ONLY))
    };
    // Entries for OWNER_RIGHTS replace the implicit rights of an owner.
    let owner_rights_named = effective()
        .any(|ace| concerns(ace).is_some_and(|(_, whom)| whom == Whom::Sid(Sid::OWNER_RIGHTS)));
    let implicit = AccessMask::READ_CONTROL | AccessMask::WRITE_DAC;
    let mut granted = implicit.when(is_owner && !owner_rights_named);

    let mut denied = AccessMask::empty();
    for ace in effective() {
        let Some((mask, whom)) = concerns(ace) else {
            continue;
        };
        let applies = match whom {
            Whom::Anybody => true,
            Whom::Sid(sid) => sids.contains(&sid) || (is_owner && sid == Sid::OWNER_RIGHTS),
        };
        if !applies {
            continue;
        }
        // ACCESS_SYSTEM_SECURITY is never granted by a DACL.
        let mask = mask
            .map_generic()
            .without(AccessMask::ACCESS_SYSTEM_SECURITY | AccessMask::MAXIMUM_ALLOWED);
        match ace.ace_type {
            AceType::ACCESS_ALLOWED => granted |= mask.without(denied),
            ace_type if ace_type.denies() => denied |= mask.without(granted),
            _ => {}
        }
    }
    granted
}

/// The identity that an entry concerns.
#[derive(PartialEq, Eq)]
enum Whom {
    Sid(Sid),
    /// The entry has no readable SID, so it may be anybody.
    Anybody,
}

/// The rights and the identity that an entry concerns; `None` for an entry of another form that does not deny.
fn concerns(ace: &Ace) -> Option<(AccessMask, Whom)> {
    if let Some((mask, sid)) = ace.access() {
        return Some((mask, Whom::Sid(*sid)));
    }
    ace.ace_type.denies().then(|| {
        ace.object_access()
            .map_or((AccessMask::GENERIC_ALL, Whom::Anybody), |(mask, sid)| {
                (mask, Whom::Sid(sid))
            })
    })
}

#[cfg(test)]
mod tests {
    use super::super::{AceBody, Acl};
    use super::*;
    use bytes::{BufMut, BytesMut};

    const ME: Sid = Sid::of(5, [21, 1, 2, 3, 1000]);
    const OTHER: Sid = Sid::of(5, [21, 1, 2, 3, 1001]);
    const NO_FLAGS: AceFlags = AceFlags::empty();

    fn sd(owner: Sid, aces: Vec<Ace>) -> SecurityDescriptor {
        SecurityDescriptor {
            owner: Some(owner),
            dacl: Some(Acl::new(aces)),
            ..SecurityDescriptor::default()
        }
    }

    /// Everything that I may do.
    fn all_mine(sd: &SecurityDescriptor) -> AccessMask {
        maximal_access(sd, &[ME, Sid::EVERYONE])
    }

    fn may(sd: &SecurityDescriptor, desired: AccessMask) -> bool {
        all_mine(sd).contains(desired)
    }

    #[test]
    fn the_first_entry_that_names_a_right_decides() {
        let (read, write) = (AccessMask::FILE_READ_DATA, AccessMask::FILE_WRITE_DATA);
        let sd = sd(
            OTHER,
            vec![
                Ace::deny(ME, write, NO_FLAGS),
                Ace::allow(Sid::EVERYONE, read | write, NO_FLAGS),
                Ace::deny(ME, read, NO_FLAGS),
            ],
        );
        assert_eq!(all_mine(&sd), read);
    }

    #[test]
    fn owners_read_and_write_the_dacl_unless_owner_rights_say_otherwise() {
        let implicit = AccessMask::READ_CONTROL | AccessMask::WRITE_DAC;
        assert_eq!(all_mine(&sd(ME, vec![])), implicit);
        assert_eq!(all_mine(&sd(OTHER, vec![])), AccessMask::empty());
        let read = AccessMask::READ_CONTROL;
        let limited = sd(ME, vec![Ace::allow(Sid::OWNER_RIGHTS, read, NO_FLAGS)]);
        assert_eq!(all_mine(&limited), read);
    }

    #[test]
    fn an_empty_list_denies_everybody_and_no_list_allows_everybody() {
        assert_eq!(all_mine(&sd(OTHER, vec![])), AccessMask::empty());
        let open = SecurityDescriptor::default();
        assert_eq!(all_mine(&open), AccessMask::FILE_ALL_ACCESS);
    }

    #[test]
    fn inherit_only_conditions_and_foreign_entries_do_not_allow() {
        let all = AccessMask::GENERIC_ALL;
        let aces = vec![
            Ace::allow(ME, all, AceFlags::INHERIT_ONLY),
            Ace::new(AceType::ACCESS_ALLOWED_CALLBACK, NO_FLAGS, all, ME),
            Ace::new(AceType::SYSTEM_AUDIT, NO_FLAGS, all, ME),
            Ace::allow(OTHER, all, NO_FLAGS),
        ];
        assert_eq!(all_mine(&sd(OTHER, aces)), AccessMask::empty());
    }

    /// An entry for a type of objects ([MS-DTYP] 2.4.4.3).
    fn object_entry(ace_type: AceType, mask: AccessMask, types: u32, sid: Sid) -> Ace {
        let mut body = BytesMut::new();
        body.put_u32_le(mask.0);
        body.put_u32_le(types);
        body.put_bytes(0xaa, usize::try_from(types.count_ones()).unwrap() * 16);
        sid.encode(&mut body);
        Ace {
            ace_type,
            flags: NO_FLAGS,
            body: AceBody::Opaque(body.to_vec()),
        }
    }

    #[test]
    fn entries_for_types_of_objects_deny_and_do_not_allow() {
        let (read, write) = (AccessMask::FILE_READ_DATA, AccessMask::FILE_WRITE_DATA);
        let everybody = Ace::allow(Sid::EVERYONE, read | write, NO_FLAGS);
        for (denies, allows) in [
            (
                AceType::ACCESS_DENIED_OBJECT,
                AceType::ACCESS_ALLOWED_OBJECT,
            ),
            (
                AceType::ACCESS_DENIED_CALLBACK_OBJECT,
                AceType::ACCESS_ALLOWED_CALLBACK_OBJECT,
            ),
        ] {
            for types in 0..4 {
                let allowed = vec![object_entry(allows, read, types, ME)];
                assert!(!may(&sd(OTHER, allowed), read));
                let denied = |sid| {
                    let generic = AccessMask::GENERIC_WRITE;
                    vec![object_entry(denies, generic, types, sid), everybody.clone()]
                };
                let mine = sd(OTHER, denied(ME));
                assert!(may(&mine, read), "{denies:?} {types}");
                assert!(!may(&mine, write), "{denies:?} {types}");
                assert!(may(&sd(ME, denied(OTHER)), write));
                let owned = sd(ME, denied(Sid::OWNER_RIGHTS));
                assert!(!may(&owned, write));
            }
            // An entry without a readable SID may concern anybody.
            for body in [vec![], vec![0; 8], vec![0xff; 40]] {
                let unreadable = |ace_type| Ace {
                    ace_type,
                    flags: NO_FLAGS,
                    body: AceBody::Opaque(body.clone()),
                };
                let aces = vec![unreadable(denies), everybody.clone()];
                assert!(!may(&sd(OTHER, aces), read));
                let aces = vec![unreadable(allows)];
                assert!(!may(&sd(OTHER, aces), read));
            }
        }
    }

    #[test]
    fn generic_rights_in_entries_are_mapped() {
        let sd = sd(
            OTHER,
            vec![Ace::allow(ME, AccessMask::GENERIC_READ, NO_FLAGS)],
        );
        assert_eq!(all_mine(&sd), AccessMask::FILE_GENERIC_READ);
    }

    #[test]
    fn no_list_grants_system_security() {
        let security = AccessMask::ACCESS_SYSTEM_SECURITY;
        assert!(!may(&SecurityDescriptor::default(), security));
        let named = vec![Ace::allow(ME, security, NO_FLAGS)];
        assert_eq!(all_mine(&sd(OTHER, named)), AccessMask::empty());
    }
}
