//! Round trips of random descriptors; random and damaged bytes; and the algorithms compared with
//! simpler formulations of their result.

use bytes::BytesMut;
use proptest::prelude::*;

use super::*;
use crate::access_mask::AccessMask;

fn sids() -> impl Strategy<Value = Sid> {
    (
        0u64..1 << 48,
        proptest::collection::vec(any::<u32>(), 0..=15),
    )
        .prop_map(|(authority, subs)| Sid::new(authority, &subs).unwrap())
}

fn aces() -> impl Strategy<Value = Ace> {
    let access =
        (0u8..3, any::<u8>(), any::<u32>(), sids()).prop_map(|(kind, flags, mask, sid)| {
            Ace::new(AceType(kind), AceFlags(flags), AccessMask(mask), sid)
        });
    let opaque =
        (5u8..9, proptest::collection::vec(any::<u8>(), 0..20)).prop_map(|(kind, mut data)| {
            data.truncate(data.len() & !3);
            Ace {
                ace_type: AceType(kind),
                flags: AceFlags::empty(),
                body: AceBody::Opaque(data),
            }
        });
    prop_oneof![4 => access, 1 => opaque]
}

fn acls() -> impl Strategy<Value = Acl> {
    proptest::collection::vec(aces(), 0..6).prop_map(Acl::new)
}

fn descriptors() -> impl Strategy<Value = SecurityDescriptor> {
    let option = proptest::option::of::<BoxedStrategy<Acl>>;
    (
        proptest::option::of(sids()),
        proptest::option::of(sids()),
        option(acls().boxed()),
        option(acls().boxed()),
    )
        .prop_map(|(owner, group, sacl, dacl)| SecurityDescriptor {
            control: SecurityDescriptorControl::SELF_RELATIVE
                | SecurityDescriptorControl::SACL_PRESENT.when(sacl.is_some())
                | SecurityDescriptorControl::DACL_PRESENT.when(dacl.is_some()),
            owner,
            group,
            sacl,
            dacl,
        })
}

/// A small set of SIDs, so that entries often match.
fn few_sids() -> impl Strategy<Value = Sid> {
    proptest::sample::select(vec![
        Sid::EVERYONE,
        Sid::BUILTIN_USERS,
        Sid::unix_user(1),
        Sid::CREATOR_OWNER,
    ])
}

fn simple_aces() -> impl Strategy<Value = Vec<Ace>> {
    let ace =
        (any::<bool>(), 0u8..16, 0u32..0x200, few_sids()).prop_map(|(allow, flags, mask, sid)| {
            Ace::new(
                AceType(u8::from(!allow)),
                AceFlags(flags),
                AccessMask(mask),
                sid,
            )
        });
    proptest::collection::vec(ace, 0..6)
}

proptest! {
    #[test]
    fn descriptors_round_trip(descriptor in descriptors()) {
        let mut out = BytesMut::from(&b"before"[..]);
        descriptor.encode(&mut out).unwrap();
        let bytes = &out[6..];
        prop_assert_eq!(bytes.len(), descriptor.encoded_len());
        prop_assert_eq!(SecurityDescriptor::read(bytes), Ok(descriptor));
    }

    #[test]
    fn damaged_descriptors_do_no_harm(
        descriptor in descriptors(),
        flips in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut out = BytesMut::new();
        descriptor.encode(&mut out).unwrap();
        for (at, byte) in flips {
            let at = at.index(out.len());
            out[at] ^= byte;
        }
        let cut = cut.index(out.len() + 1);
        if let Ok(read) = SecurityDescriptor::read(&out[..cut]) {
            let mut again = BytesMut::new();
            read.encode(&mut again).unwrap();
            prop_assert_eq!(SecurityDescriptor::read(&again).unwrap().dacl, read.dacl);
        }
    }

    /// For every bit the first effective entry that matches decides.
    #[test]
    fn access_is_what_each_bit_gets(aces in simple_aces()) {
        let me = [Sid::unix_user(1), Sid::EVERYONE];
        let descriptor = SecurityDescriptor {
            owner: Some(Sid::LOCAL_SYSTEM),
            dacl: Some(Acl::new(aces.clone())),
            ..SecurityDescriptor::default()
        };
        let mut expected = AccessMask::empty();
        for bit in (0..9).map(|bit| AccessMask(1 << bit)) {
            let first = aces.iter().find(|ace| {
                let (mask, sid) = ace.access().unwrap();
                !ace.flags.contains(AceFlags::INHERIT_ONLY) && me.contains(sid) && mask.contains(bit)
            });
            let allowed = first.is_some_and(|ace| ace.ace_type == AceType::ACCESS_ALLOWED);
            expected |= bit.when(allowed);
        }
        prop_assert_eq!(maximal_access(&descriptor, &me), expected);
    }

    /// A directory passes on to its children the same entries that its parent would: the grandchild
    /// inherits the same entries, only marked as inherited.
    #[test]
    fn inheritance_goes_on_unchanged(aces in simple_aces()) {
        let aces: Vec<_> = aces
            .into_iter()
            .map(|mut ace| {
                ace.flags = ace.flags.without(AceFlags::NO_PROPAGATE_INHERIT);
                ace
            })
            .filter(Ace::is_inheritable)
            .collect();
        prop_assume!(!aces.is_empty());
        let top = SecurityDescriptor { dacl: Some(Acl::new(aces)), ..SecurityDescriptor::default() };
        let (owner, group) = (Sid::unix_user(1), Sid::unix_group(1));
        let directory = inherit(Some(&top), None, true, owner, group);
        let direct = inherit(Some(&top), None, false, owner, group);
        let through = inherit(Some(&directory), None, false, owner, group);
        prop_assert_eq!(direct.dacl.unwrap().aces, through.dacl.unwrap().aces);
    }
}
