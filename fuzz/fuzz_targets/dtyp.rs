//! Security descriptors from strangers: read, written again, checked and inherited from.
#![no_main]

use bytes::BytesMut;
use libfuzzer_sys::fuzz_target;
use smb_wire::dtyp::{SecurityDescriptor, Sid, inherit, maximal_access};

fuzz_target!(|bytes: &[u8]| {
    if let Ok(sid) = Sid::read(bytes) {
        let _ = sid.to_string();
    }
    let Ok(descriptor) = SecurityDescriptor::read(bytes) else {
        return;
    };
    let mut out = BytesMut::new();
    // Parts that overlap in the input may add up to more than may be written.
    if descriptor.encode(&mut out).is_ok() {
        let again = SecurityDescriptor::read(&out).expect("what was written");
        assert_eq!(again.dacl, descriptor.dacl);
    }
    let sids = [Sid::EVERYONE];
    let _ = maximal_access(&descriptor, &sids);
    for is_directory in [false, true] {
        let user = Sid::unix_user(1);
        let child = inherit(
            Some(&descriptor),
            Some(&descriptor),
            is_directory,
            user,
            user,
        );
        let _ = maximal_access(&child, &sids);
    }
});
