//! The events of the table: each changes something through a handle.

use bytes::BytesMut;
use smb_client::CreateArgs;
use smb_wire::create_context::name;
use smb_wire::dtyp::SecurityInformation;
use smb_wire::fscc::{FileInformationClass as Class, FileRenameInformationEx, RenameFlags};
use smb_wire::fsctl::{CopyChunk, CopyChunkCopy, FsctlCode};
use smb_wire::ids::FileId;
use smb_wire::msg::{CreateDisposition, CreateOptions, InfoType};

use smb_tests::state::ea_list;

use crate::world::{Actor, LARGE, descriptor};

/// The special property of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Special {
    No,
    /// The back end itself syncs, or it syncs a part: what survives without any flush is open.
    Syncs,
    /// So it does where it moves a stream to the depot.
    Moves,
    /// So it does, and only the depot has room for it.
    OnlyInDepot,
    /// Times were set, which counts.
    Times,
    /// A name moves that is on disk before the answer under every policy that promises anything: that
    /// of a directory, or one between directories where renames are not atomic.
    Renames,
}

use Special::{Moves, No, OnlyInDepot, Renames, Syncs, Times};

impl Special {
    /// Whether the back end itself syncs, in a share that keeps streams in the depot or not.
    pub(crate) fn syncs(self, depot: bool) -> bool {
        match self {
            Syncs | OnlyInDepot => true,
            Moves => depot,
            No | Times | Renames => false,
        }
    }
}

/// Every event; [`act`] does it.
pub(crate) const EVENTS: &[(&str, Special)] = &[
    ("create", No),
    ("create with attributes, descriptor and reservation", No),
    ("mkdir", No),
    ("create below new directories", No),
    ("create in a directory that then moves", Renames),
    ("delete and create again", No),
    // The replaced file has a stream in the depot: the ancestors are synced before that is removed.
    ("a name goes to another and back", Syncs),
    ("write", No),
    ("write beyond the end", No),
    ("end of file, shorter", No),
    ("end of file, longer", No),
    ("allocation, shorter", No),
    ("overwrite", No),
    ("supersede", No),
    ("copychunk", No),
    ("copychunk within a file, overlapping", No),
    ("copychunk from a stream", No),
    ("duplicate extents", No),
    ("zero data", No),
    ("sparse", No),
    ("attributes", No),
    ("times", Times),
    ("extended attributes", No),
    ("descriptor", No),
    ("rename", No),
    ("rename to another directory", Renames),
    ("rename over another", No),
    ("rename over one that is open", No),
    ("rename of a directory", Renames),
    ("rename that changes case", No),
    ("link", No),
    ("link over another", No),
    ("link over one that is open", No),
    ("delete", No),
    ("delete on close", No),
    // Another open, which is never write-through, is the last one.
    ("delete on close, closed before another", No),
    ("rmdir", No),
    ("create a stream", No),
    ("create a stream and its file", No),
    ("a large stream of a new file", OnlyInDepot),
    ("write a small stream", Moves),
    ("write a large stream", No),
    ("a small stream becomes large", OnlyInDepot),
    ("end of file of a small stream", Moves),
    ("end of file of a large stream", No),
    ("overwrite a stream", No),
    ("delete a small stream", No),
    ("delete a large stream", No),
    ("rename a small stream", Syncs),
    ("rename a large stream", No),
    ("attributes through a stream", No),
];

/// Does the event. The handle that is returned is the one whose FLUSH covers it.
pub(crate) async fn act(it: &mut Actor, event: &str) -> FileId {
    if let Some(file) = create(it, event).await {
        return file;
    }
    if let Some(file) = change(it, event).await {
        return file;
    }
    if let Some(file) = meta(it, event).await {
        return file;
    }
    if let Some(file) = names(it, event).await {
        return file;
    }
    streams(it, event).await
}

async fn create(it: &mut Actor, event: &str) -> Option<FileId> {
    Some(match event {
        "create" => it.open(CreateArgs::create("new")).await,
        "create with attributes, descriptor and reservation" => {
            let args = CreateArgs::create("new")
                .context(name::EXTENDED_ATTRIBUTES, &ea_list("NEW", b"from create"))
                .context(name::SECURITY_DESCRIPTOR, &descriptor(0x001f_01ff))
                .context(name::ALLOCATION_SIZE, &65536u64.to_le_bytes());
            it.open(args).await
        }
        "mkdir" => it.open(CreateArgs::create_directory("newdir")).await,
        "create below new directories" => {
            for name in ["one", "one\\two"] {
                let dir = it.open(CreateArgs::create_directory(name)).await;
                it.close(dir).await;
            }
            let file = it.open(CreateArgs::create("one\\two\\new")).await;
            it.write(file, 0, b"deep").await;
            file
        }
        "create in a directory that then moves" => {
            let file = it.open(CreateArgs::create("d\\new")).await;
            it.write(file, 0, b"new").await;
            it.close(file).await;
            let dir = it.open(CreateArgs::directory("d")).await;
            let to = target("e\\moved", NEW);
            it.set(dir, Class::RENAME, &to).await;
            it.open(CreateArgs::open("e\\moved\\new")).await
        }
        "delete and create again" => {
            let dir = remove(it, "delete").await;
            it.close(dir).await;
            let file = it.open(CreateArgs::create("d\\in")).await;
            it.write(file, 0, b"again").await;
            file
        }
        "a name goes to another and back" => {
            // The contents of `victim` are in `f` in the end, and `f` is gone.
            for (from, to) in [("f", "d\\f"), ("victim", "f"), ("f", "e\\f"), ("e\\f", "f")] {
                let file = it.open(CreateArgs::open(from)).await;
                it.set(file, Class::RENAME, &target(to, NEW)).await;
                it.close(file).await;
            }
            let file = it.open(CreateArgs::open("d\\f")).await;
            it.set(file, Class::DISPOSITION, &[1]).await;
            it.close(file).await;
            it.open(CreateArgs::directory("d")).await
        }
        "overwrite" => it.open(again(CreateDisposition::OVERWRITE)).await,
        "supersede" => it.open(again(CreateDisposition::SUPERSEDE)).await,
        _ => return None,
    })
}

/// `f` replaced, with another attribute.
fn again(disposition: CreateDisposition) -> CreateArgs {
    CreateArgs::open("f")
        .disposition(disposition)
        .context(name::EXTENDED_ATTRIBUTES, &ea_list("NEW", b"new"))
}

async fn change(it: &mut Actor, event: &str) -> Option<FileId> {
    let class = |size: u64, class: Class| Some((class, size.to_le_bytes()));
    let set = match event {
        "end of file, shorter" => class(100, Class::END_OF_FILE),
        "end of file, longer" => class(100_000, Class::END_OF_FILE),
        "allocation, shorter" => class(4096, Class::ALLOCATION),
        _ => None,
    };
    if let Some((class, size)) = set {
        let file = it.open(CreateArgs::open("f")).await;
        it.set(file, class, &size).await;
        return Some(file);
    }
    let chunks: &[(u64, u64, u32)] = match event {
        "write" | "write beyond the end" => {
            let file = it.open(CreateArgs::open("f")).await;
            let at = if event == "write" { 1000 } else { 20_000 };
            it.write(file, at, b"changed").await;
            return Some(file);
        }
        "zero data" => {
            let file = it.open(CreateArgs::open("f")).await;
            let range = [1000u64.to_le_bytes(), 6000u64.to_le_bytes()].concat();
            it.ioctl(file, FsctlCode::SET_ZERO_DATA, &range).await;
            return Some(file);
        }
        "duplicate extents" => {
            let source = it.open(CreateArgs::open("g")).await;
            let file = it.open(CreateArgs::open("f")).await;
            let mut input = source.persistent.to_le_bytes().to_vec();
            for number in [source.volatile, 4096, 0, 4096] {
                input.extend_from_slice(&number.to_le_bytes());
            }
            let code = FsctlCode::DUPLICATE_EXTENTS_TO_FILE;
            it.ioctl(file, code, &input).await;
            return Some(file);
        }
        // Scattered, and not in order.
        "copychunk" => &[(0, 5000, 100), (4000, 0, 1000), (100, 30_000, 10)],
        "copychunk within a file, overlapping" => &[(0, 1000, 6000)],
        "copychunk from a stream" => &[(0, 1000, 4000)],
        _ => return None,
    };
    let source = match event {
        "copychunk" => "g",
        "copychunk from a stream" => "f:large",
        _ => "f",
    };
    Some(copy(it, source, chunks).await)
}

async fn copy(it: &mut Actor, source: &str, chunks: &[(u64, u64, u32)]) -> FileId {
    if source == "f" {
        // Something to see move.
        let file = it.open(CreateArgs::open("f")).await;
        it.write(file, 0, b"head").await;
        it.close(file).await;
    }
    let source = it.open(CreateArgs::open(source)).await;
    let file = it.open(CreateArgs::open("f")).await;
    let source_key = it.resume_key(source).await;
    let chunks: Vec<CopyChunk> = chunks
        .iter()
        .map(|(source_offset, target_offset, length)| CopyChunk {
            source_offset: *source_offset,
            target_offset: *target_offset,
            length: *length,
        })
        .collect();
    let mut input = BytesMut::new();
    CopyChunkCopy {
        source_key,
        chunk_count: u32::try_from(chunks.len()).unwrap(),
        chunks,
    }
    .encode(&mut input);
    it.ioctl(file, FsctlCode::SRV_COPYCHUNK, &input).await;
    file
}

async fn meta(it: &mut Actor, event: &str) -> Option<FileId> {
    let known = [
        "sparse",
        "attributes",
        "times",
        "extended attributes",
        "descriptor",
    ];
    if !known.contains(&event) {
        return None;
    }
    let file = it.open(CreateArgs::open("f")).await;
    match event {
        "sparse" => drop(it.ioctl(file, FsctlCode::SET_SPARSE, &[1]).await),
        "attributes" => it.set(file, Class::BASIC, &basic(0, 0x23)).await,
        "times" => {
            let when = 125_000_000_000_000_000;
            it.set(file, Class::BASIC, &basic(when, 0)).await;
        }
        "extended attributes" => {
            it.set(file, Class::FULL_EA, &ea_list("OLD", b"")).await;
            it.set(file, Class::FULL_EA, &ea_list("NEW", b"set")).await;
        }
        _ => {
            let parts = SecurityInformation::DACL.bits();
            let bytes = descriptor(0x0012_0089);
            it.set_as(file, InfoType::SECURITY, 0, parts, &bytes).await;
        }
    }
    Some(file)
}

fn basic(when: u64, attributes: u32) -> Vec<u8> {
    let mut out = [when; 4].map(u64::to_le_bytes).concat();
    out.extend_from_slice(&attributes.to_le_bytes());
    out.extend_from_slice(&[0; 4]);
    out
}

/// Nothing has the new name.
pub(crate) const NEW: RenameFlags = RenameFlags::empty();

pub(crate) const OVER: RenameFlags = RenameFlags::REPLACE_IF_EXISTS;

pub(crate) fn target(to: &str, flags: RenameFlags) -> BytesMut {
    let mut out = BytesMut::new();
    // Read as the older classes its first bit is ReplaceIfExists.
    FileRenameInformationEx {
        flags,
        root_directory: 0,
        file_name: to.to_owned(),
    }
    .encode(&mut out);
    out
}

async fn names(it: &mut Actor, event: &str) -> Option<FileId> {
    const POSIX: RenameFlags = OVER.union(RenameFlags::POSIX_SEMANTICS);
    let (class, from, to, flags) = match event {
        "rename" => (Class::RENAME, "f", "moved", NEW),
        "rename to another directory" => (Class::RENAME, "f", "d\\moved", NEW),
        "rename over another" => (Class::RENAME, "f", "victim", OVER),
        "rename over one that is open" => (Class::RENAME_EX, "f", "victim", POSIX),
        "rename of a directory" => (Class::RENAME, "d", "e\\moved", NEW),
        "rename that changes case" => (Class::RENAME, "d\\in", "d\\IN", NEW),
        "link" => (Class::LINK, "f", "d\\link", NEW),
        "link over another" => (Class::LINK, "f", "victim", OVER),
        "link over one that is open" => (Class::LINK_EX, "f", "victim", POSIX),
        "delete" | "delete on close" | "delete on close, closed before another" | "rmdir" => {
            return Some(remove(it, event).await);
        }
        _ => return None,
    };
    if flags == POSIX {
        it.open(CreateArgs::open(to)).await;
    }
    let file = it.open(CreateArgs::open(from)).await;
    it.set(file, class, &target(to, flags)).await;
    Some(file)
}

/// Removes a name; its directory is what a FLUSH is for.
async fn remove(it: &mut Actor, event: &str) -> FileId {
    let (name, above) = if event == "rmdir" {
        ("e", "")
    } else {
        ("d\\in", "d")
    };
    let on_close = event.starts_with("delete on close");
    let mut last = None;
    if event == "delete on close, closed before another" {
        let through = std::mem::replace(&mut it.through, false);
        last = Some(it.open(CreateArgs::open(name)).await);
        it.through = through;
    }
    let mut args = CreateArgs::open(name);
    if on_close {
        args = args.options(CreateOptions::DELETE_ON_CLOSE);
    }
    let file = it.open(args).await;
    if !on_close {
        it.set(file, Class::DISPOSITION, &[1]).await;
    }
    it.close(file).await;
    if let Some(last) = last {
        it.close(last).await;
    }
    it.open(CreateArgs::directory(above)).await
}

async fn streams(it: &mut Actor, event: &str) -> FileId {
    let delete = CreateOptions::DELETE_ON_CLOSE;
    let (args, data, at): (_, &[u8], _) = match event {
        "create a stream" => (CreateArgs::create("f:new"), b"", 0),
        "create a stream and its file" => (CreateArgs::create("new:new"), b"both", 0),
        "a large stream of a new file" => (CreateArgs::create("new:new"), &LARGE, 0),
        "write a small stream" => (CreateArgs::open("f:small"), b"changed", 3),
        "write a large stream" => (CreateArgs::open("f:large"), b"changed", 4000),
        "a small stream becomes large" => (CreateArgs::open("f:small"), &[9; 4000], 5),
        "overwrite a stream" => {
            let args = CreateArgs::open("f:large").disposition(CreateDisposition::OVERWRITE);
            (args, b"", 0)
        }
        "delete a small stream" => (CreateArgs::open("f:small").options(delete), b"", 0),
        "delete a large stream" => (CreateArgs::open("f:large").options(delete), b"", 0),
        small if small.contains("small") => (CreateArgs::open("f:small"), b"", 0),
        _ => (CreateArgs::open("f:large"), b"", 0),
    };
    let stream = it.open(args).await;
    if !data.is_empty() {
        it.write(stream, at, data).await;
    }
    match event {
        "end of file of a small stream" | "end of file of a large stream" => {
            it.set(stream, Class::END_OF_FILE, &7u64.to_le_bytes())
                .await;
        }
        "rename a small stream" | "rename a large stream" => {
            it.set(stream, Class::RENAME, &target(":renamed", NEW))
                .await;
        }
        "attributes through a stream" => it.set(stream, Class::BASIC, &basic(0, 0x22)).await,
        "delete a small stream" | "delete a large stream" => {
            it.close(stream).await;
            return it.open(CreateArgs::open("f")).await;
        }
        _ => {}
    }
    stream
}
