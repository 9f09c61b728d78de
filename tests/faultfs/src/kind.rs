//! Kinds of calls, and sets of them as rules name them.
//!
//! A kind is what the server asked the kernel for, not the FUSE opcode: `SETATTR` is `truncate`,
//! `utimens` or `setattr` (mode and owner), a write with `O_DSYNC` is `dsync`.

/// A kind of call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs)]
pub enum Kind {
    Lookup,
    Getattr,
    Truncate,
    Setattr,
    Utimens,
    Readlink,
    Mknod,
    Mkdir,
    Unlink,
    Rmdir,
    Symlink,
    Rename,
    Link,
    Open,
    Create,
    Read,
    Write,
    Dsync,
    Fsync,
    Fdatasync,
    Fsyncdir,
    Opendir,
    Readdir,
    Statfs,
    Setxattr,
    Getxattr,
    Listxattr,
    Removexattr,
    Fallocate,
    Lseek,
    Copy,
}

/// Every kind with its name.
pub const KINDS: [(Kind, &str); 31] = [
    (Kind::Lookup, "lookup"),
    (Kind::Getattr, "getattr"),
    (Kind::Truncate, "truncate"),
    (Kind::Setattr, "setattr"),
    (Kind::Utimens, "utimens"),
    (Kind::Readlink, "readlink"),
    (Kind::Mknod, "mknod"),
    (Kind::Mkdir, "mkdir"),
    (Kind::Unlink, "unlink"),
    (Kind::Rmdir, "rmdir"),
    (Kind::Symlink, "symlink"),
    (Kind::Rename, "rename"),
    (Kind::Link, "link"),
    (Kind::Open, "open"),
    (Kind::Create, "create"),
    (Kind::Read, "read"),
    (Kind::Write, "write"),
    (Kind::Dsync, "dsync"),
    (Kind::Fsync, "fsync"),
    (Kind::Fdatasync, "fdatasync"),
    (Kind::Fsyncdir, "fsyncdir"),
    (Kind::Opendir, "opendir"),
    (Kind::Readdir, "readdir"),
    (Kind::Statfs, "statfs"),
    (Kind::Setxattr, "setxattr"),
    (Kind::Getxattr, "getxattr"),
    (Kind::Listxattr, "listxattr"),
    (Kind::Removexattr, "removexattr"),
    (Kind::Fallocate, "fallocate"),
    (Kind::Lseek, "lseek"),
    (Kind::Copy, "copy"),
];

const SYNC: [Kind; 4] = [Kind::Dsync, Kind::Fsync, Kind::Fdatasync, Kind::Fsyncdir];
const CHANGE: [Kind; 16] = [
    Kind::Truncate,
    Kind::Setattr,
    Kind::Utimens,
    Kind::Mknod,
    Kind::Mkdir,
    Kind::Unlink,
    Kind::Rmdir,
    Kind::Symlink,
    Kind::Rename,
    Kind::Link,
    Kind::Create,
    Kind::Write,
    Kind::Dsync,
    Kind::Setxattr,
    Kind::Removexattr,
    Kind::Fallocate,
];

impl Kind {
    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        KINDS
            .iter()
            .find(|(kind, _)| *kind == self)
            .map_or("?", |(_, name)| name)
    }

    /// Its place in tables of [`KINDS`]'s length.
    #[must_use]
    pub fn index(self) -> usize {
        self as usize
    }

    /// Whether it makes something durable.
    #[must_use]
    pub fn is_sync(self) -> bool {
        SYNC.contains(&self)
    }
}

/// A set of kinds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kinds(u64);

impl Kinds {
    fn of(kinds: &[Kind]) -> u64 {
        kinds.iter().fold(0, |bits, kind| bits | 1 << kind.index())
    }

    /// Names of kinds with commas between, or of classes: `any`; `sync` (fsync, fdatasync,
    /// fsyncdir, dsync); `change` (whatever changes something, syncs not); `write` includes
    /// `dsync`, `plain-write` does not.
    ///
    /// # Errors
    /// The word that is unknown.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut bits = 0;
        for word in text.split(',') {
            bits |= match word {
                "any" => u64::MAX,
                "sync" => Self::of(&SYNC),
                "change" => Self::of(&CHANGE) | Self::of(&[Kind::Copy]),
                "write" => Self::of(&[Kind::Write, Kind::Dsync]),
                "plain-write" => Self::of(&[Kind::Write]),
                _ => match KINDS.iter().find(|(_, name)| *name == word) {
                    Some((kind, _)) => Self::of(&[*kind]),
                    None => return Err(format!("no kind of call: {word}")),
                },
            };
        }
        Ok(Self(bits))
    }

    /// Whether a kind is in the set.
    #[must_use]
    pub fn contains(self, kind: Kind) -> bool {
        self.0 & (1 << kind.index()) != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_its_place_and_its_name() {
        for (at, (kind, name)) in KINDS.iter().enumerate() {
            assert_eq!(kind.index(), at);
            assert_eq!(kind.name(), *name);
            assert!(Kinds::parse(name).unwrap().contains(*kind));
        }
        assert!(!Kinds::parse("plain-write").unwrap().contains(Kind::Dsync));
        assert!(!Kinds::parse("change").unwrap().contains(Kind::Fsync));
        assert!(Kinds::parse("fsync,nonsense").is_err());
    }
}
