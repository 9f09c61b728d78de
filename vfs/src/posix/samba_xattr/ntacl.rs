//! `security.NTACL` / `user.NTACL`: the wrapper around a security descriptor, versions 1 to 4
//! read, 4 written.
//!
//! Layout (NDR): version twice, then a pointer; from version 2 on a structure with a pointer to
//! the descriptor and a hash over the POSIX permissions that matched the descriptor; version 4 adds
//! a description, a time and the hash over the system's own ACL ([`super::sys_acl`]), which is the
//! one that is checked. The descriptor itself is self-relative, except that its four offsets count
//! from the blob's start.

use super::ndr::{Reader, Writer};
use crate::{VfsError, VfsResult};

const HASH_SHA256: u16 = 1;
const POINTER_FIRST: u32 = 0x0002_0000;
const POINTER_SECOND: u32 = 0x0002_0004;
/// The text by which Samba names the system ACL that the hash covers.
const DESCRIPTION: &[u8] = b"posix_acl\0";
/// Header of a self-relative security descriptor ([MS-DTYP] 2.4.6).
const DESCRIPTOR_HEADER: usize = 20;
/// Longest descriptor kept: what an attribute can hold.
pub const DESCRIPTOR_MAX: usize = 65_536 - 160;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NtAcl {
    /// The descriptor, self-relative with offsets from its own start.
    pub descriptor: Vec<u8>,
    /// SHA-256 over the system ACL when it was stored; `None` if the version has none.
    pub sys_acl_hash: Option<[u8; 32]>,
}

impl NtAcl {
    /// Reads a blob of any version; `Corrupt` for anything else.
    pub fn parse(blob: &[u8]) -> VfsResult<Self> {
        let mut reader = Reader::new(blob);
        let version = reader.u16()?;
        VfsError::Corrupt.when(reader.u16()? != version || !(1..=4).contains(&version))?;
        VfsError::Corrupt.when(reader.u32()? == 0)?;
        let mut sys_acl_hash = None;
        if version >= 2 {
            VfsError::Corrupt.when(reader.u32()? == 0)?;
            match version {
                2 => drop(reader.bytes(16)?),
                3 => {
                    reader.u16()?;
                    reader.hash()?;
                }
                _ => {
                    let kind = reader.u16()?;
                    reader.hash()?;
                    reader.text()?;
                    reader.u64()?;
                    let hash = reader.hash()?;
                    if kind == HASH_SHA256 {
                        let (first, _) = hash.split_first_chunk().ok_or(VfsError::Corrupt)?;
                        sys_acl_hash = Some(*first);
                    }
                }
            }
        }
        reader.align(4)?;
        Ok(Self {
            descriptor: rebase(reader.rest(), reader.position(), 0)?,
            sys_acl_hash,
        })
    }

    /// The blob, version 4. `now` is 100-nanosecond steps since 1601; `sys_acl_hash` must be
    /// set. The older hash (over the descriptor that Samba would make of the permissions) is left
    /// zero: Samba checks it only if the newer one differs.
    pub fn build(&self, now: u64) -> VfsResult<Vec<u8>> {
        let hash = self.sys_acl_hash.ok_or(VfsError::InvalidArgument)?;
        VfsError::TooLarge.when(self.descriptor.len() > DESCRIPTOR_MAX)?;
        let mut writer = Writer::default();
        writer.u16(4);
        writer.u16(4);
        writer.u32(POINTER_FIRST);
        writer.u32(POINTER_SECOND);
        writer.u16(HASH_SHA256);
        writer.bytes(&[0; 64]);
        writer.bytes(DESCRIPTION);
        writer.u64(now);
        writer.bytes(&hash);
        writer.bytes(&[0; 32]);
        writer.align(4);
        let base = writer.blob.len();
        let descriptor =
            rebase(&self.descriptor, 0, base).map_err(|_| VfsError::InvalidArgument)?;
        writer.bytes(&descriptor);
        Ok(writer.blob)
    }
}

/// Rebases the four offsets of a descriptor, which count from `from` bytes before its start, so
/// that they count from `to` bytes before it. Checks that they lie within it.
fn rebase(descriptor: &[u8], from: usize, to: usize) -> VfsResult<Vec<u8>> {
    VfsError::Corrupt.when(!(DESCRIPTOR_HEADER..=DESCRIPTOR_MAX).contains(&descriptor.len()))?;
    let mut moved = descriptor.to_vec();
    for field in [4usize, 8, 12, 16] {
        let place = moved.get_mut(field..field + 4).ok_or(VfsError::Corrupt)?;
        let offset = u32::from_le_bytes((&*place).try_into().map_err(|_| VfsError::Corrupt)?);
        if offset == 0 {
            continue;
        }
        let own = usize::try_from(offset)
            .ok()
            .and_then(|offset| offset.checked_sub(from))
            .filter(|own| (DESCRIPTOR_HEADER..descriptor.len()).contains(own))
            .ok_or(VfsError::Corrupt)?;
        let value = u32::try_from(own + to).map_err(|_| VfsError::Corrupt)?;
        place.copy_from_slice(&value.to_le_bytes());
    }
    Ok(moved)
}

#[cfg(test)]
mod tests {
    use super::*;
    use hex_literal::hex;
    use proptest::prelude::*;

    /// O:S-1-22-1-5 G:S-1-22-2-6 D:(A;;0x1f01ff;;;WD), as Samba's NDR code encodes it.
    const PLAIN: &[u8] = &hex!(
        "0100048014000000240000000000000034000000010200000000001601000000050000000102000000000016020000000600000004001c000100000000001400ff011f00010100000000000100000000"
    );
    const V1: &[u8] = &hex!(
        "0100010000000200010004801c0000002c000000000000003c000000010200000000001601000000050000000102000000000016020000000600000004001c000100000000001400ff011f00010100000000000100000000"
    );
    const V2: &[u8] = &hex!(
        "020002000000020004000200aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa0100048030000000400000000000000050000000010200000000001601000000050000000102000000000016020000000600000004001c000100000000001400ff011f00010100000000000100000000"
    );
    /// Written by smbd 4.17.12 (acl_xattr) on a new file.
    const REAL: &[u8] = &hex!(
        "0400040000000200040002000100ea4b34d45dff288eee4054e094022d76f77eec1b6fae3396c7dde6fc7b9129990000000000000000000000000000000000000000000000000000000000000000706f7369785f61636c00e8172d73bb79dd01d32d5649300db1c38cc3b45723f0e49b60a170cce2e37db414b378695ff066dc000000000000000000000000000000000000000000000000000000000000000001000480b4000000d000000000000000ec000000010500000000000515000000bdbbc1c081bff4118eb9e458e8030000010500000000000515000000bdbbc1c081bff4118eb9e45801020000020064000300000000002400ff011f00010500000000000515000000bdbbc1c081bff4118eb9e458e803000000002400a9001200010500000000000515000000bdbbc1c081bff4118eb9e4580102000000001400a9001200010100000000000100000000"
    );

    #[test]
    fn versions_one_and_two_are_read() {
        for blob in [V1, V2] {
            let read = NtAcl::parse(blob).unwrap();
            assert_eq!(read.descriptor, PLAIN);
            assert_eq!(read.sys_acl_hash, None);
        }
        // The descriptor lies at 80: offsets 100, 116, 0, 132.
        let mut moved = PLAIN.to_vec();
        (moved[4], moved[8], moved[16]) = (100, 116, 132);
        let head = hex!("0300030000000200040002000100");
        let v3 = [&head[..], &[0xaa; 64], &[0; 2], &moved].concat();
        assert_eq!(NtAcl::parse(&v3).unwrap().descriptor, PLAIN);
    }

    #[test]
    fn what_samba_wrote_is_written_again_alike_but_for_the_old_hash() {
        let read = NtAcl::parse(REAL).unwrap();
        assert_eq!(read.sys_acl_hash.unwrap()[..2], [0xd3, 0x2d]);
        let now = u64::from_le_bytes(REAL[88..96].try_into().unwrap());
        let wrote = read.build(now).unwrap();
        assert_eq!(wrote[..14], REAL[..14]);
        assert_eq!(wrote[78..], REAL[78..]);
        assert_eq!(NtAcl::parse(&wrote).unwrap(), read);
    }

    #[test]
    fn nonsense_is_corrupt() {
        for cut in 0..180 {
            assert_eq!(
                NtAcl::parse(&REAL[..cut]),
                Err(VfsError::Corrupt),
                "cut at {cut}"
            );
        }
        for (place, value) in [(0, 9), (2, 3), (165, 0xff), (168, 0x02)] {
            let mut bad = REAL.to_vec();
            bad[place] = value;
            assert_eq!(NtAcl::parse(&bad), Err(VfsError::Corrupt), "byte {place}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(at in 0usize..320, value in any::<u8>(), cut in 0usize..400) {
            let mut blob = REAL.to_vec();
            if let Some(byte) = blob.get_mut(at) { *byte = value; }
            blob.truncate(cut);
            if let Ok(read) = NtAcl::parse(&blob) {
                prop_assert!(read.descriptor.len() >= DESCRIPTOR_HEADER);
            }
        }
    }
}
