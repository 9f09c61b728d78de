//! The extended attributes that a request gives a file: those of FileFullEaInformation ([MS-FSA] 2.1.5.15.6), and those
//! that a CREATE brings ([MS-SMB2] 3.3.5.9.1), by the same rules.

use std::collections::BTreeMap;

use smb_wire::{fscc::EaEntry, status::Status};

use crate::failure::Failure;

/// The most that [`vfs::ea_size`] may be for a file, as on NTFS.
pub(super) const SIZE_MAX: u32 = 65_535;

/// An attribute and its value; an empty value means no attribute.
pub(super) type Ea = (String, Vec<u8>);

/// The attributes to store, if there is room for all that the file has then. It has those of `known` before.
pub(super) fn changes(known: &[Ea], entries: Vec<EaEntry>) -> Result<Vec<Ea>, Failure> {
    let mut all = BTreeMap::new();
    for (name, value) in known {
        all.insert(vfs::fold(name), (name.len(), value.len()));
    }
    let mut changes = Vec::with_capacity(entries.len());
    for entry in entries {
        entry.check().map_err(|_| Status::INVALID_EA_NAME)?;
        let name = String::from_utf8(entry.name).map_err(|_| Status::INVALID_EA_NAME)?;
        match entry.value.is_empty() {
            true => all.remove(&vfs::fold(&name)),
            false => all.insert(vfs::fold(&name), (name.len(), entry.value.len())),
        };
        changes.push((name, entry.value));
    }
    Status::EA_TOO_LARGE.when(vfs::ea_size(all.into_values()) > SIZE_MAX)?;
    Ok(changes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(name: &str, value: &[u8]) -> EaEntry {
        EaEntry::new(name, value)
    }

    #[test]
    fn names_are_checked_and_the_sum_is_limited() {
        let known = [("One".to_owned(), vec![1])];
        let got = changes(&known, vec![entry("ONE", b""), entry("two", b"2")]).unwrap();
        assert_eq!(
            got,
            [("ONE".to_owned(), vec![]), ("two".to_owned(), vec![b'2'])]
        );
        assert!(changes(&known, vec![entry("a*b", b"1")]).is_err());
        let big = |n| entry(n, &[0; 60_000]);
        assert!(changes(&known, vec![big("x")]).is_ok());
        assert!(changes(&known, vec![big("x"), big("y")]).is_err());
        assert!(changes(&known, vec![big("x"), entry("x", b""), big("y")]).is_ok());
        assert!(changes(&known, vec![big("x"), big("X")]).is_ok());
        assert!(changes(&[("Big".to_owned(), vec![0; 60_000])], vec![big("x")]).is_err());
        assert!(changes(&[("Big".to_owned(), vec![0; 60_000])], vec![big("BIG")]).is_ok());
    }
}
