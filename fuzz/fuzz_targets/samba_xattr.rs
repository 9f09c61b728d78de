//! Extended attributes that strangers wrote: never a panic, and accepted values are kept.
#![no_main]

use libfuzzer_sys::fuzz_target;
use vfs::{
    disk::Stat,
    posix::{
        name,
        samba_xattr::{dos_attrib::DosAttrib, ntacl::NtAcl, stream_of_attribute, sys_acl},
    },
};

fuzz_target!(|data: &[u8]| {
    if let Ok(read) = DosAttrib::parse(data) {
        assert_eq!(DosAttrib::parse(&read.build()), Ok(read));
    }
    if let Ok(mut read) = NtAcl::parse(data) {
        read.sys_acl_hash.get_or_insert([0; 32]);
        if let Ok(built) = read.build(0) {
            assert_eq!(NtAcl::parse(&built), Ok(read));
        }
    }
    let directory = Stat {
        mode: 0o040_755,
        ..Stat::default()
    };
    let _ = sys_acl::hash(&directory, Some(data), Some(data));
    if let Ok(text) = std::str::from_utf8(data) {
        let _ = stream_of_attribute(text);
        let _ = vfs::fold(text);
        if let Ok(on_disk) = name::to_disk(text) {
            assert_eq!(name::to_client(&on_disk), text);
        }
    }
    if !data.is_empty()
        && data.len() <= 255
        && !data.contains(&0)
        && !data.contains(&b'/')
        && data != b"."
        && data != b".."
    {
        assert_eq!(name::to_disk(&name::to_client(data)).as_deref(), Ok(data));
    }
});
