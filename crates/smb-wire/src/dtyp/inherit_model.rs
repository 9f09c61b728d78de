//! Compares inheritance with the tables of [MS-DTYP] 2.5.3.4, copied row by row: every kind
//! of child, every combination of flags, lists of parent and creator, protected or not,
//! auto-inherited or not.

use proptest::prelude::*;

use super::*;
use crate::access_mask::AccessMask;

pub(super) const OI: u8 = 0x01;
pub(super) const CI: u8 = 0x02;
pub(super) const NP: u8 = 0x04;
pub(super) const IO: u8 = 0x08;
pub(super) const ID: u8 = 0x10;

pub(super) const OWNER: Sid = Sid::unix_user(7);
pub(super) const GROUP: Sid = Sid::unix_group(8);

/// The table of 2.5.3.4.4: the flags with which a child container and a child leaf inherit an entry
/// with these flags of OI, CI and NP. (From CI,OI a container inherits an effective entry, as the
/// sentence below the table says and NTFS does; IO and ID play no part.)
const TABLE: [(u8, Option<u8>, Option<u8>); 8] = [
    (0, None, None),
    (NP, None, None),
    (OI, Some(IO | OI), Some(0)),
    (OI | NP, None, Some(0)),
    (CI, Some(CI), None),
    (CI | NP, Some(0), None),
    (CI | OI, Some(CI | OI), Some(0)),
    (CI | OI | NP, Some(0), Some(0)),
];

/// 2.5.3.4.7, and the note on entries that apply to a container and below it: the entries that
/// result from an entry with these flags in the new list.
fn concrete(ace: &Ace, flags: u8) -> Vec<Ace> {
    let (mask, sid) = ace.access().unwrap();
    let with = |mask, sid, flags| Ace::new(ace.ace_type, AceFlags(flags), mask, sid);
    if flags & IO != 0 {
        return vec![with(mask, *sid, flags)];
    }
    let who = match *sid {
        Sid::CREATOR_OWNER => OWNER,
        Sid::CREATOR_GROUP => GROUP,
        other => other,
    };
    let plain = mask.map_generic();
    if flags & (OI | CI) != 0 && (plain, who) != (mask, *sid) {
        let effective = with(plain, who, flags & !(OI | CI | NP));
        return vec![effective, with(mask, *sid, flags | IO)];
    }
    vec![with(plain, who, flags)]
}

fn from_parent(list: &[Ace], automatic: bool, directory: bool) -> Vec<Ace> {
    let mark = if automatic { ID } else { 0 };
    let of = |ace: &Ace| {
        let row = TABLE
            .iter()
            .find(|(flags, ..)| *flags == ace.flags.bits() & (OI | CI | NP));
        let (_, container, leaf) = row.unwrap();
        let flags = if directory { container } else { leaf };
        flags.map_or(Vec::new(), |flags| concrete(ace, flags | mark))
    };
    let plain = list.iter().filter(|ace| ace.access().is_some());
    plain.flat_map(of).collect()
}

/// 2.5.3.4: a protected list is copied entirely; of any other only the explicit entries are.
fn from_creator(list: &[Ace], protected: bool, directory: bool) -> Vec<Ace> {
    let explicit = list
        .iter()
        .filter(|ace| protected || ace.flags.bits() & ID == 0);
    explicit
        .flat_map(|ace| {
            let flags = ace.flags.bits() & !ID;
            match (directory, flags & IO != 0) {
                (true, _) => concrete(ace, flags),
                // Nothing inherits from a leaf, and an inherit-only entry does not apply to it.
                (false, true) => Vec::new(),
                (false, false) => concrete(ace, 0),
            }
        })
        .collect()
}

/// The flow chart of 2.5.3.4 for the DACL; returns the list, and whether it is marked as auto-inherited.
fn model(
    parent: Option<&SecurityDescriptor>,
    creator: Option<&SecurityDescriptor>,
    directory: bool,
) -> (Option<Vec<Ace>>, bool) {
    use SecurityDescriptorControl as Control;
    let inheritable = parent
        .and_then(|sd| sd.dacl.as_ref())
        .map(|acl| acl.aces.clone())
        .filter(|aces| aces.iter().any(|ace| ace.flags.bits() & (OI | CI) != 0));
    let automatic = parent.is_some_and(|sd| sd.control.contains(Control::DACL_AUTO_INHERITED));
    let given =
        creator.filter(|sd| sd.dacl.is_some() || sd.control.contains(Control::DACL_PRESENT));
    let Some(given) = given else {
        let inherited = inheritable.map(|list| from_parent(&list, automatic, directory));
        return match inherited.filter(|aces| !aces.is_empty()) {
            Some(aces) => (Some(aces), automatic),
            None => {
                let full = |sid| Ace::allow(sid, AccessMask::FILE_ALL_ACCESS, AceFlags::empty());
                (Some(vec![full(OWNER), full(Sid::LOCAL_SYSTEM)]), false)
            }
        };
    };
    let Some(list) = &given.dacl else {
        return (None, false);
    };
    let protected = given.control.contains(Control::DACL_PROTECTED);
    let mut aces = from_creator(&list.aces, protected, directory);
    match inheritable.filter(|_| automatic && !protected) {
        Some(list) => {
            aces.extend(from_parent(&list, true, directory));
            (Some(aces), true)
        }
        None => (Some(aces), false),
    }
}

fn aces() -> impl Strategy<Value = Vec<Ace>> {
    let sid = proptest::sample::select(vec![
        Sid::EVERYONE,
        Sid::CREATOR_OWNER,
        Sid::CREATOR_GROUP,
        Sid::BUILTIN_USERS,
    ]);
    let mask = proptest::sample::select(vec![
        AccessMask::FILE_READ_DATA,
        AccessMask::GENERIC_ALL,
        AccessMask::GENERIC_READ | AccessMask::DELETE,
        AccessMask::FILE_ALL_ACCESS,
    ]);
    let plain = (0u8..2, 0u8..32, mask, sid)
        .prop_map(|(kind, flags, mask, sid)| Ace::new(AceType(kind), AceFlags(flags), mask, sid));
    proptest::collection::vec(plain, 0..5)
}

fn descriptors() -> impl Strategy<Value = SecurityDescriptor> {
    use SecurityDescriptorControl as Control;
    let bits = Control::DACL_PRESENT.bits()
        | Control::DACL_PROTECTED.bits()
        | Control::DACL_AUTO_INHERITED.bits()
        | Control::DACL_AUTO_INHERIT_REQ.bits();
    (any::<u16>(), proptest::option::of(aces())).prop_map(move |(control, aces)| {
        SecurityDescriptor {
            control: Control(control & bits),
            dacl: aces.map(Acl::new),
            ..SecurityDescriptor::default()
        }
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_000))]

    #[test]
    fn new_descriptors_are_those_of_the_tables(
        parent in proptest::option::of(descriptors()),
        creator in proptest::option::of(descriptors()),
        directory: bool,
    ) {
        let sd = inherit(parent.as_ref(), creator.as_ref(), directory, OWNER, GROUP);
        let (aces, automatic) = model(parent.as_ref(), creator.as_ref(), directory);
        prop_assert_eq!(sd.dacl.map(|acl| acl.aces), aces);
        use SecurityDescriptorControl as Control;
        prop_assert_eq!(sd.control.contains(Control::DACL_AUTO_INHERITED), automatic);
        let both = Control::DACL_PROTECTED | Control::DACL_PRESENT;
        let protected = creator.is_some_and(|sd| {
            let present = Control::DACL_PRESENT.when(sd.dacl.is_some());
            (sd.control | present).contains(both)
        });
        prop_assert_eq!(sd.control.contains(Control::DACL_PROTECTED), protected);
        prop_assert!(!sd.control.contains(Control::DACL_AUTO_INHERIT_REQ));
        prop_assert_eq!((sd.owner, sd.group), (Some(OWNER), Some(GROUP)));
    }

    /// For any parent, nobody gets a right on a child that no entry of the child's list names.
    #[test]
    fn inherit_only_entries_grant_nothing(list in aces(), directory: bool) {
        let list = list.into_iter().map(|mut ace| {
            ace.flags |= AceFlags::INHERIT_ONLY;
            ace
        });
        let sd = SecurityDescriptor {
            dacl: Some(Acl::new(list.collect())),
            ..SecurityDescriptor::default()
        };
        let child = inherit(None, Some(&sd), directory, OWNER, GROUP);
        let everybody = [Sid::EVERYONE, Sid::BUILTIN_USERS, GROUP];
        prop_assert_eq!(maximal_access(&child, &everybody), AccessMask::empty());
    }
}

/// Inherits from a directory with one entry for a type of objects.
fn inherited_from_object_entry(ace_type: AceType, directory: bool) -> Vec<AceType> {
    let opaque = Ace {
        ace_type,
        flags: AceFlags(OI | CI),
        body: AceBody::Opaque(vec![0; 36]),
    };
    let parent = SecurityDescriptor {
        dacl: Some(Acl::new(vec![opaque])),
        ..SecurityDescriptor::default()
    };
    let sd = inherit(Some(&parent), None, directory, OWNER, GROUP);
    let aces = sd.dacl.unwrap().aces.into_iter();
    aces.map(|ace| ace.ace_type).collect()
}

#[test]
fn of_entries_for_types_of_objects_those_that_deny_are_inherited() {
    for directory in [false, true] {
        for allows in [
            AceType::ACCESS_ALLOWED_OBJECT,
            AceType::ACCESS_ALLOWED_CALLBACK_OBJECT,
        ] {
            let default = [AceType::ACCESS_ALLOWED; 2];
            assert_eq!(inherited_from_object_entry(allows, directory), default);
        }
        for denies in [
            AceType::ACCESS_DENIED_OBJECT,
            AceType::ACCESS_DENIED_CALLBACK_OBJECT,
        ] {
            assert_eq!(inherited_from_object_entry(denies, directory), [denies]);
        }
    }
}
