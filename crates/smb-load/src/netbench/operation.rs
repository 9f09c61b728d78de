//! One operation of a client, as NetBench's load file names them.

use smb_wire::{
    Status,
    msg::{CreateDisposition, CreateOptions},
};

macro_rules! kinds {
    ($($(#[$doc:meta])* $kind:ident = $name:literal,)*) => {
        /// The kinds of operations, in the order of [`Kind::ALL`].
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Kind { $($(#[$doc])* $kind,)* }

        impl Kind {
            pub const ALL: [Self; 14] = [$(Self::$kind),*];

            /// The name in tables and in JSON.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$kind => $name,)* }
            }
        }
    };
}

kinds! {
    Read = "read",
    /// CREATE of a file, kept open.
    Create = "create",
    /// CREATE, QUERY_INFO and CLOSE as one compound: NetBench's QUERY_PATH_INFORMATION.
    PathInfo = "path-info",
    Close = "close",
    Write = "write",
    /// CREATE of a directory, QUERY_DIRECTORY and CLOSE as one compound: FIND_FIRST.
    Find = "find",
    /// Deletion by name.
    Unlink = "unlink",
    /// QUERY_INFO of the file system.
    FsInfo = "fs-info",
    /// QUERY_INFO of an open file.
    FileInfo = "file-info",
    /// SET_INFO of an open file.
    SetInfo = "set-info",
    Flush = "flush",
    /// Rename by name.
    Rename = "rename",
    Lock = "lock",
    /// LOCK that unlocks.
    Unlock = "unlock",
}

/// Names an open file of one client.
pub type Handle = u32;

/// The name of a file in a client's folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Name {
    /// A document that is there from the beginning.
    Old(u32),
    /// A file that the load created.
    New(u32),
    /// A name that does not exist.
    Missing,
    /// A name of a load file, by its place there.
    Recorded(u32),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// Reads `length` bytes, all of which are there.
    Read {
        handle: Handle,
        offset: u64,
        length: u32,
    },
    /// Opens a file; one that is [`Name::Missing`] must fail with STATUS_OBJECT_NAME_NOT_FOUND.
    Create {
        name: Name,
        disposition: CreateDisposition,
        options: CreateOptions,
        /// The handle under which later operations name it.
        handle: Handle,
    },
    /// Queries a file by its name; a missing one must fail.
    PathInfo {
        name: Name,
        /// FileAttributeTagInformation instead of FileBasicInformation.
        tag: bool,
    },
    /// Closes a file.
    Close { handle: Handle },
    /// Writes `length` bytes.
    Write {
        handle: Handle,
        offset: u64,
        length: u32,
    },
    /// Looks for a name in its folder; a missing one must fail with STATUS_NO_SUCH_FILE.
    Find { name: Name },
    /// Deletes a closed file.
    Unlink { name: Name },
    /// Queries the sizes of the file system.
    FsInfo,
    /// Queries FileStandardInformation.
    FileInfo { handle: Handle },
    /// Sets FileBasicInformation.
    SetInfo { handle: Handle },
    /// Flushes a file that was written to since its last FLUSH.
    Flush { handle: Handle },
    /// Renames a closed file.
    Rename { from: Name, to: Name },
    /// Locks bytes that nobody else has locked.
    Lock {
        handle: Handle,
        offset: u64,
        length: u64,
    },
    Unlock {
        handle: Handle,
        offset: u64,
        length: u64,
    },
}

impl Operation {
    pub const fn kind(&self) -> Kind {
        match self {
            Self::Read { .. } => Kind::Read,
            Self::Create { .. } => Kind::Create,
            Self::PathInfo { .. } => Kind::PathInfo,
            Self::Close { .. } => Kind::Close,
            Self::Write { .. } => Kind::Write,
            Self::Find { .. } => Kind::Find,
            Self::Unlink { .. } => Kind::Unlink,
            Self::FsInfo => Kind::FsInfo,
            Self::FileInfo { .. } => Kind::FileInfo,
            Self::SetInfo { .. } => Kind::SetInfo,
            Self::Flush { .. } => Kind::Flush,
            Self::Rename { .. } => Kind::Rename,
            Self::Lock { .. } => Kind::Lock,
            Self::Unlock { .. } => Kind::Unlock,
        }
    }

    /// Bytes of file data that the operation reads and writes.
    pub const fn moved(&self) -> (u64, u64) {
        match self {
            Self::Read { length, .. } => (*length as u64, 0),
            Self::Write { length, .. } => (0, *length as u64),
            _ => (0, 0),
        }
    }

    /// The answer of a correct server; a load file has its own.
    pub const fn wanted(&self) -> Status {
        match self {
            Self::Create {
                name: Name::Missing,
                ..
            }
            | Self::PathInfo {
                name: Name::Missing,
                ..
            } => Status::OBJECT_NAME_NOT_FOUND,
            Self::Find {
                name: Name::Missing,
            } => Status::NO_SUCH_FILE,
            _ => Status::SUCCESS,
        }
    }
}
