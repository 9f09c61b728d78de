//! The access check of [MS-DTYP] 2.5.3.2 for files: no object tree, no conditions, no central
//! policies.
//!
//! Callback entries, and entries for types of objects, are evaluated to the safe side: one that allows
//! never applies, one that denies always does ([MS-DTYP] 2.5.3.1.5: the condition is "unknown", and a
//! file has no type). Generic rights, in the request or in an entry, stand for the rights of files.

use super::ace::{Ace, AceFlags, AceType};
use super::security_descriptor::SecurityDescriptor;
use super::sid::Sid;
use crate::access_mask::AccessMask;

/// Not all requested rights are granted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AccessDenied;

impl core::fmt::Display for AccessDenied {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("access denied")
    }
}

impl core::error::Error for AccessDenied {}

/// Privileges that grant rights regardless of the descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Privileges {
    /// SeSecurityPrivilege: ACCESS_SYSTEM_SECURITY.
    pub security: bool,
    /// SeTakeOwnershipPrivilege: WRITE_OWNER.
    pub take_ownership: bool,
}

/// The identity that requests access.
#[derive(Debug, Clone, Copy)]
pub struct Token<'a> {
    /// The SIDs of the user and of all groups, including EVERYONE.
    pub sids: &'a [Sid],
    /// Privileges.
    pub privileges: Privileges,
}

impl<'a> Token<'a> {
    /// A token without privileges.
    pub const fn new(sids: &'a [Sid]) -> Self {
        Self {
            sids,
            privileges: Privileges {
                security: false,
                take_ownership: false,
            },
        }
    }

    fn has(&self, sid: &Sid) -> bool {
        self.sids.contains(sid)
    }
}

/// Returns the granted rights: those in `desired` with generic ones mapped, and with
/// MAXIMUM_ALLOWED all rights that can be granted.
///
/// # Errors
/// [`AccessDenied`] when one of the named rights (besides MAXIMUM_ALLOWED) is not granted, or when
/// MAXIMUM_ALLOWED alone yields nothing.
pub fn access_check(
    sd: &SecurityDescriptor,
    token: &Token<'_>,
    desired: AccessMask,
) -> Result<AccessMask, AccessDenied> {
    let wants_maximum = desired.contains(AccessMask::MAXIMUM_ALLOWED);
    let named = desired.without(AccessMask::MAXIMUM_ALLOWED).map_generic();
    let granted = grantable(sd, token, named, wants_maximum);
    if !granted.contains(named) || (wants_maximum && granted.is_empty()) {
        return Err(AccessDenied);
    }
    Ok(if wants_maximum { granted } else { named })
}

/// Returns all rights that can be granted to the token.
pub fn maximal_access(sd: &SecurityDescriptor, token: &Token<'_>) -> AccessMask {
    grantable(sd, token, AccessMask::empty(), true)
}

/// Each right is decided by the first entry that names it, which is why requesting all rights at
/// once gives the same result as requesting each separately.
fn grantable(
    sd: &SecurityDescriptor,
    token: &Token<'_>,
    named: AccessMask,
    maximum: bool,
) -> AccessMask {
    let mut granted = AccessMask::empty();
    // Privileges come first; ACCESS_SYSTEM_SECURITY is never granted by a DACL.
    let asks = |right: AccessMask| named.contains(right);
    granted |= AccessMask::ACCESS_SYSTEM_SECURITY
        .when(token.privileges.security && asks(AccessMask::ACCESS_SYSTEM_SECURITY));
    granted |= AccessMask::WRITE_OWNER
        .when(token.privileges.take_ownership && (maximum || asks(AccessMask::WRITE_OWNER)));

    let Some(dacl) = &sd.dacl else {
        // Without a DACL all rights of a file are granted ([MS-DTYP] 2.5.3.2).
        let all = AccessMask::FILE_ALL_ACCESS;
        let odd = named.without(AccessMask::ACCESS_SYSTEM_SECURITY);
        return granted | all | odd;
    };

    let is_owner = sd.owner.as_ref().is_some_and(|owner| token.has(owner));
    let effective = || {
        dacl.aces
            .iter()
            .filter(|ace| !ace.flags.contains(AceFlags::INHERIT_ONLY))
    };
    // Entries for OWNER_RIGHTS replace the implicit rights of an owner.
    let owner_rights_named = effective()
        .any(|ace| concerns(ace).is_some_and(|(_, whom)| whom == Whom::Sid(Sid::OWNER_RIGHTS)));
    if is_owner && !owner_rights_named {
        granted |= AccessMask::READ_CONTROL | AccessMask::WRITE_DAC;
    }

    let mut denied = AccessMask::empty();
    for ace in effective() {
        let Some((mask, whom)) = concerns(ace) else {
            continue;
        };
        let applies = match whom {
            Whom::Anybody => true,
            Whom::Sid(sid) => token.has(&sid) || (is_owner && sid == Sid::OWNER_RIGHTS),
        };
        if !applies {
            continue;
        }
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

    fn check(sd: &SecurityDescriptor, desired: AccessMask) -> Result<AccessMask, AccessDenied> {
        access_check(sd, &Token::new(&[ME, Sid::EVERYONE]), desired)
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
        assert_eq!(check(&sd, read), Ok(read));
        assert_eq!(check(&sd, write), Err(AccessDenied));
        assert_eq!(check(&sd, read | write), Err(AccessDenied));
        assert_eq!(check(&sd, AccessMask::MAXIMUM_ALLOWED), Ok(read));
        assert_eq!(
            check(&sd, AccessMask::MAXIMUM_ALLOWED | write),
            Err(AccessDenied)
        );
    }

    #[test]
    fn owners_read_and_write_the_dacl_unless_owner_rights_say_otherwise() {
        let implicit = AccessMask::READ_CONTROL | AccessMask::WRITE_DAC;
        let mine = sd(ME, vec![]);
        assert_eq!(check(&mine, implicit), Ok(implicit));
        assert_eq!(check(&mine, AccessMask::MAXIMUM_ALLOWED), Ok(implicit));
        assert_eq!(check(&sd(OTHER, vec![]), implicit), Err(AccessDenied));
        let read = AccessMask::READ_CONTROL;
        let limited = sd(ME, vec![Ace::allow(Sid::OWNER_RIGHTS, read, NO_FLAGS)]);
        assert_eq!(check(&limited, read), Ok(read));
        assert_eq!(check(&limited, implicit), Err(AccessDenied));
    }

    #[test]
    fn an_empty_list_denies_everybody_and_no_list_allows_everybody() {
        let all = AccessMask::FILE_ALL_ACCESS;
        assert_eq!(check(&sd(OTHER, vec![]), AccessMask(1)), Err(AccessDenied));
        let open = SecurityDescriptor::default();
        assert_eq!(check(&open, AccessMask::GENERIC_ALL), Ok(all));
        assert_eq!(check(&open, AccessMask::MAXIMUM_ALLOWED), Ok(all));
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
        assert_eq!(
            check(&sd(OTHER, aces), AccessMask::FILE_READ_DATA),
            Err(AccessDenied)
        );
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
                assert_eq!(check(&sd(OTHER, allowed), read), Err(AccessDenied));
                let denied = |sid| {
                    let generic = AccessMask::GENERIC_WRITE;
                    vec![object_entry(denies, generic, types, sid), everybody.clone()]
                };
                let mine = sd(OTHER, denied(ME));
                assert_eq!(check(&mine, read), Ok(read), "{denies:?} {types}");
                assert_eq!(check(&mine, write), Err(AccessDenied), "{denies:?} {types}");
                assert_eq!(check(&sd(ME, denied(OTHER)), write), Ok(write));
                let owned = sd(ME, denied(Sid::OWNER_RIGHTS));
                assert_eq!(check(&owned, write), Err(AccessDenied));
            }
            // An entry without a readable SID may concern anybody.
            for body in [vec![], vec![0; 8], vec![0xff; 40]] {
                let unreadable = |ace_type| Ace {
                    ace_type,
                    flags: NO_FLAGS,
                    body: AceBody::Opaque(body.clone()),
                };
                let aces = vec![unreadable(denies), everybody.clone()];
                assert_eq!(check(&sd(OTHER, aces), read), Err(AccessDenied));
                let aces = vec![unreadable(allows)];
                assert_eq!(check(&sd(OTHER, aces), read), Err(AccessDenied));
            }
        }
    }

    #[test]
    fn generic_rights_in_entries_are_mapped() {
        let sd = sd(
            OTHER,
            vec![Ace::allow(ME, AccessMask::GENERIC_READ, NO_FLAGS)],
        );
        assert_eq!(
            check(&sd, AccessMask::GENERIC_READ),
            Ok(AccessMask::FILE_GENERIC_READ)
        );
    }

    #[test]
    fn system_security_needs_the_privilege() {
        let desired = AccessMask::ACCESS_SYSTEM_SECURITY;
        let open = SecurityDescriptor::default();
        assert_eq!(check(&open, desired), Err(AccessDenied));
        let token = Token {
            sids: &[ME],
            privileges: Privileges {
                security: true,
                take_ownership: true,
            },
        };
        assert_eq!(access_check(&open, &token, desired), Ok(desired));
        let closed = sd(OTHER, vec![]);
        assert_eq!(maximal_access(&closed, &token), AccessMask::WRITE_OWNER);
    }
}
