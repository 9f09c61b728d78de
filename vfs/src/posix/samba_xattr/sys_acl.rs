//! The hash by which Samba notices that POSIX permissions were changed after a descriptor was stored.
//!
//! It is SHA-256 over an NDR structure of owner, group, mode and the POSIX ACLs (access, and default for a directory).
//! It was checked against Samba 4.17.12: see the tests.

use aws_lc_rs::digest;

use super::ndr::Writer;
use crate::{VfsError, VfsResult, disk::Stat};

/// The kernel's attribute of the access ACL.
pub const ACCESS: &str = "system.posix_acl_access";
/// The kernel's attribute of a directory's default ACL.
pub const DEFAULT: &str = "system.posix_acl_default";

const VERSION: u32 = 2;
/// The most entries that a 64-KiB attribute can hold.
const ENTRIES_MAX: usize = 8192;

/// One entry: Samba's tag, id for named users and groups, permissions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct AclEntry {
    tag: u16,
    id: Option<u32>,
    permissions: u16,
}

const USER: u16 = 1;
const USER_OBJ: u16 = 2;
const GROUP: u16 = 3;
const GROUP_OBJ: u16 = 4;
const OTHER: u16 = 5;
const MASK: u16 = 6;

fn parse(blob: &[u8]) -> VfsResult<Vec<AclEntry>> {
    let (version, entries) = blob.split_first_chunk().ok_or(VfsError::Corrupt)?;
    let (entries, rest) = entries.as_chunks::<8>();
    VfsError::Corrupt.when(u32::from_le_bytes(*version) != VERSION || !rest.is_empty())?;
    VfsError::Corrupt.when(entries.len() > ENTRIES_MAX)?;
    entries
        .iter()
        .map(|&[t0, t1, p0, p1, i0, i1, i2, i3]| {
            let (tag, named) = match u16::from_le_bytes([t0, t1]) {
                0x01 => (USER_OBJ, false),
                0x02 => (USER, true),
                0x04 => (GROUP_OBJ, false),
                0x08 => (GROUP, true),
                0x10 => (MASK, false),
                0x20 => (OTHER, false),
                _ => return Err(VfsError::Corrupt),
            };
            Ok(AclEntry {
                tag,
                id: named.then_some(u32::from_le_bytes([i0, i1, i2, i3])),
                permissions: u16::from_le_bytes([p0, p1]) & 7,
            })
        })
        .collect()
}

/// The three entries that permission bits stand for.
fn minimal(mode: u32) -> Vec<AclEntry> {
    [(USER_OBJ, 6), (GROUP_OBJ, 3), (OTHER, 0)]
        .into_iter()
        .map(|(tag, shift)| AclEntry {
            tag,
            id: None,
            permissions: u16::try_from((mode >> shift) & 7).unwrap_or(0),
        })
        .collect()
}

fn push(writer: &mut Writer, entries: &[AclEntry]) {
    let count = u32::try_from(entries.len()).unwrap_or(u32::MAX);
    writer.u32(count);
    writer.align(8);
    writer.u32(count);
    writer.u32(0);
    for entry in entries {
        writer.align(8);
        writer.u16(entry.tag);
        writer.u16(entry.tag);
        if let Some(id) = entry.id {
            writer.hyper(u64::from(id));
        }
        writer.u32(u32::from(entry.permissions));
    }
}

/// The hash of an inode's permissions. `access` and `default` are the kernel's attributes, if
/// there are any; `default` counts for directories only.
pub fn hash(stat: &Stat, access: Option<&[u8]>, default: Option<&[u8]>) -> VfsResult<[u8; 32]> {
    let directory = stat.mode & libc::S_IFMT == libc::S_IFDIR;
    let access = access.map_or_else(|| Ok(minimal(stat.mode)), parse)?;
    let mut writer = Writer::default();
    writer.u32(0x0002_0000);
    writer.u32(if directory { 0x0002_0004 } else { 0 });
    writer.hyper(u64::from(stat.uid));
    writer.hyper(u64::from(stat.gid));
    writer.u32(stat.mode);
    push(&mut writer, &access);
    if directory {
        push(&mut writer, &default.map_or_else(|| Ok(Vec::new()), parse)?);
    }
    let sum = digest::digest(&digest::SHA256, &writer.blob);
    sum.as_ref().try_into().map_err(|_| VfsError::Corrupt)
}

#[cfg(test)]
mod tests {
    use super::*;
    use hex_literal::hex;

    /// user::rwx user:20001:rwx group::r-x group:20100:r-x mask::rwx other::r-x
    const ACL: &[u8] = &hex!(
        "0200000001000700ffffffff02000700214e000004000500ffffffff08000500844e000010000700ffffffff20000500ffffffff"
    );

    fn stat(mode: u32) -> Stat {
        Stat {
            uid: 20001,
            gid: 20100,
            mode,
            ..Stat::default()
        }
    }

    #[test]
    fn the_hash_is_that_of_samba() {
        // Stored by smbd 4.17.12 for a file and a directory with these permissions.
        let file = hex!("d32d5649300db1c38cc3b45723f0e49b60a170cce2e37db414b378695ff066dc");
        let directory = hex!("f4224faceae0eb4aaa2d05ef990367103dd5fcd2b80cb1a388e8f14a9cbd41c3");
        assert_eq!(hash(&stat(0o100_775), Some(ACL), None).unwrap()[..], file);
        let got = hash(&stat(0o040_775), Some(ACL), Some(ACL)).unwrap();
        assert_eq!(got[..], directory);
        // A directory without a default ACL: an empty one (value from Samba's NDR code).
        let bare = hex!("f6d0fb90e5e2443a7a9783e6d4608a52e51a8fefbee54bf1f9fdf19e8aed5c7b");
        assert_eq!(hash(&stat(0o040_775), Some(ACL), None).unwrap()[..], bare);
    }

    #[test]
    fn nonsense_is_corrupt() {
        for bad in [
            &b""[..],
            b"\x02\0\0",
            b"\x01\0\0\0",
            b"\x02\0\0\0\x01\0\x07",
            b"\x02\0\0\0\x40\0\x07\0\0\0\0\0",
        ] {
            assert_eq!(
                hash(&stat(0o100_644), Some(bad), None),
                Err(VfsError::Corrupt)
            );
        }
    }
}
