//! The formats of the data that Samba keeps in extended attributes and beside files, byte for byte.
//!
//! This module only parses and builds formats, without a disk. Nothing that it reads is trusted:
//! everything is bounds-checked, refused with `Corrupt` if it is wrong, and never trusted for a
//! size. The layouts were checked against Samba 4.17.12 (tests hold blobs that it wrote):
//! [`dos_attrib`] `user.DOSATTRIB`, [`ntacl`] `security.NTACL` / `user.NTACL`, [`sys_acl`] the hash
//! that ties it to the POSIX permissions, and here the names: streams, the depot of streams,
//! attributes hidden from clients.

pub mod dos_attrib;
mod ndr;
pub mod ntacl;
pub mod sys_acl;

/// DOS attributes and creation time.
pub const DOS_ATTRIB: &str = "user.DOSATTRIB";
/// The security descriptor, in a namespace that only root may write.
pub const NTACL_SECURITY: &str = "security.NTACL";
/// The security descriptor for a server that is not root.
pub const NTACL_USER: &str = "user.NTACL";
/// Marks an inode that has streams in the depot ("1").
pub const DEPOT_MARK: &str = "user.SAMBA_STREAMS";
/// The prefix of attributes that hold a stream.
pub const STREAM_PREFIX: &str = "user.DosStream.";
/// The prefix of the attribute with the second part of a stream that Samba keeps in several (`max xattrs per stream`).
const SECOND_PREFIX: &str = "user.DosStreamExt.1.";
/// The most further parts. The last byte of the first part is their number; it is 0 if there are none.
pub const PARTS_MAX: u8 = 15;
/// The suffix of a stream in the name of an attribute or a file.
pub const STREAM_TYPE: &str = ":$DATA";
/// The prefix of clients' extended attributes.
pub const EA_PREFIX: &str = "user.";
/// Longest name of an extended attribute on Linux (XATTR_NAME_MAX).
pub const XATTR_NAME_MAX: usize = 255;

/// Attributes under `user.` that do not belong to clients: exact names.
const HIDDEN: [&str; 8] = [
    DOS_ATTRIB,
    NTACL_USER,
    DEPOT_MARK,
    "user.SmbReparse",
    "user.SAMBA_PAI",
    "user.DosEAs",
    "user.DosStreams",
    "user.org.netatalk.Metadata",
];
/// Attributes under `user.` that do not belong to clients: prefixes.
const HIDDEN_PREFIXES: [&str; 2] = [STREAM_PREFIX, "user.holdfast."];

/// The attribute that holds stream `name`, if such a name fits.
pub fn stream_attribute(name: &str) -> Option<String> {
    let full = format!("{STREAM_PREFIX}{name}{STREAM_TYPE}");
    (full.len() <= XATTR_NAME_MAX && !full.contains('\0')).then_some(full)
}

/// The attribute that holds the second part of stream `name`, if such a name fits.
pub fn second_attribute(name: &str) -> Option<String> {
    let full = format!("{SECOND_PREFIX}{name}{STREAM_TYPE}");
    (full.len() <= XATTR_NAME_MAX && !full.contains('\0')).then_some(full)
}

/// The stream's name in an attribute's, if it is one of a stream.
pub fn stream_of_attribute(attribute: &str) -> Option<&str> {
    attribute
        .strip_prefix(STREAM_PREFIX)?
        .strip_suffix(STREAM_TYPE)
        .filter(|name| !name.is_empty())
}

/// The file in the depot that holds stream `name`.
pub fn stream_file(name: &str) -> Option<Vec<u8>> {
    let full = format!(":{name}{STREAM_TYPE}").into_bytes();
    (full.len() <= crate::disk::NAME_MAX && !full.contains(&0) && !full.contains(&b'/'))
        .then_some(full)
}

/// The stream's name in a depot file's.
pub fn stream_of_file(file: &[u8]) -> Option<&str> {
    std::str::from_utf8(file)
        .ok()?
        .strip_prefix(':')?
        .strip_suffix(STREAM_TYPE)
        .filter(|name| !name.is_empty())
}

/// Whether an attribute does not belong to clients.
pub fn is_hidden(attribute: &str) -> bool {
    let same = |name: &&str| attribute.eq_ignore_ascii_case(name);
    let starts = |prefix: &&str| {
        attribute
            .get(..prefix.len())
            .is_some_and(|start| start.eq_ignore_ascii_case(prefix))
    };
    HIDDEN.iter().any(same) || HIDDEN_PREFIXES.iter().any(starts)
}

/// The folder in the depot for the streams of an inode: two hash folders and one named by device
/// and inode, all in upper-case hex.
pub fn depot_path(device: u64, inode: u64) -> [String; 3] {
    let mut id = [0u8; 16];
    id[..8].copy_from_slice(&device.to_le_bytes());
    id[8..].copy_from_slice(&inode.to_le_bytes());
    let [first, second, ..] = depot_hash(&id).to_le_bytes();
    let hex = id.iter().map(|byte| format!("{byte:02X}")).collect();
    [format!("{first:02X}"), format!("{second:02X}"), hex]
}

/// The hash of GDBM and TDB, over the identifier.
fn depot_hash(id: &[u8; 16]) -> u32 {
    let mut value = 0x238F_13AF_u32.wrapping_mul(16);
    let mut shift = 0;
    for byte in id {
        value = value.wrapping_add(u32::from(*byte) << shift);
        shift = (shift + 5) % 24;
    }
    value.wrapping_mul(1_103_515_243).wrapping_add(12345)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn depot_paths_are_those_of_samba() {
        // Found on disk after smbd 4.17.12 with vfs_streams_depot: device 65024.
        assert_eq!(
            depot_path(65024, 9_979_074),
            ["E9", "F5", "00FE000000000000C244980000000000"]
        );
        assert_eq!(
            depot_path(65024, 9_979_081),
            ["E9", "F5", "00FE000000000000C944980000000000"]
        );
        // The hash as defined (shift 5 * i mod 24), computed in another way.
        let id: [u8; 16] = std::array::from_fn(|i| u8::try_from(i * 37 % 251).unwrap());
        let mut sum = 0x238F_13AF_u64 * 16;
        for (i, byte) in id.iter().enumerate() {
            sum += u64::from(*byte) << (i * 5 % 24);
        }
        let want = (sum * 1_103_515_243 + 12345) & 0xFFFF_FFFF;
        assert_eq!(u64::from(depot_hash(&id)), want);
    }

    #[test]
    fn stream_names_both_ways() {
        let attribute = stream_attribute("two words").unwrap();
        assert_eq!(attribute, "user.DosStream.two words:$DATA");
        assert_eq!(stream_of_attribute(&attribute), Some("two words"));
        assert_eq!(stream_of_attribute("user.DosStream.:$DATA"), None);
        assert_eq!(stream_of_attribute("user.other"), None);
        assert!(stream_attribute(&"x".repeat(234)).is_some());
        assert!(stream_attribute(&"x".repeat(235)).is_none());
        let file = stream_file("one").unwrap();
        assert_eq!(file, b":one:$DATA");
        assert_eq!(stream_of_file(&file), Some("one"));
        assert_eq!(stream_of_file(b"\xff"), None);
    }

    #[test]
    fn reserved_attributes_are_hidden() {
        for name in [
            "user.DOSATTRIB",
            "user.dosattrib",
            "user.DosStream.x:$DATA",
            "user.NTACL",
            "user.smbreparse",
        ] {
            assert!(is_hidden(name), "{name}");
        }
        assert!(!is_hidden("user.comment") && !is_hidden("user.Dos"));
    }
}
