//! The contents of an image, read from the file system or through a server.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use smb_client::{ClientError, CreateArgs, Tree};
use smb_wire::Status;
use smb_wire::access_mask::AccessMask;
use smb_wire::file_attributes::FileAttributes;

use crate::record::{ATTRIBUTES, EA, MARK, STREAMS, account};

/// A file or directory.
#[derive(Debug, Clone, Default)]
pub(crate) struct Node {
    /// Its number, if it is known: not every server reports it.
    pub(crate) inode: Option<u64>,
    /// Unnamed data and streams; `None` where there is no such stream.
    pub(crate) forks: [Option<Vec<u8>>; 3],
    pub(crate) attributes: u32,
    /// When it was written to, in nanoseconds since 1970; `None`: not looked at.
    pub(crate) written: Option<u64>,
    /// The value of [`MARK`], which the host sets; `None`: not looked at.
    pub(crate) mark: Option<u32>,
    /// The value of [`EA`], the account that the security descriptor names, and whether the file is sparse; `None`:
    /// not looked at.
    pub(crate) client_marks: Option<[u32; 3]>,
}

/// Everything below the share's root by its path.
pub(crate) type View = BTreeMap<String, Node>;

/// Longest attribute that is read; XFS allows 64 KiB.
const XATTR_MAX: usize = 65_536;
/// FILE_ATTRIBUTE_SPARSE_FILE.
const SPARSE: u32 = 0x200;
/// Begins the names of links that are about to replace a file, which no client can see (docs/names.md).
const TEMPORARY: &str = ".holdfast-tmp-";
/// The depot of big streams, in the share's root.
const DEPOT: &str = ".streams";

/// Reads a mounted image.
pub(crate) fn mounted(root: &Path) -> Result<View, String> {
    let mut view = View::new();
    let depot = depot(&root.join(DEPOT))?;
    walk(root, "", &depot, &mut view)?;
    Ok(view)
}

fn entries(at: &Path) -> Result<Vec<std::fs::DirEntry>, String> {
    let list = std::fs::read_dir(at).and_then(Iterator::collect);
    list.map_err(|error| format!("{}: {error}", at.display()))
}

fn name(entry: &std::fs::DirEntry) -> String {
    entry.file_name().to_string_lossy().into_owned()
}

/// The depot's folders by the inode whose streams they hold. Their names begin with the device,
/// which is another one here.
fn depot(at: &Path) -> Result<BTreeMap<u64, PathBuf>, String> {
    let mut found = BTreeMap::new();
    if !at.is_dir() {
        return Ok(found);
    }
    for first in entries(at)? {
        for second in entries(&first.path())? {
            for folder in entries(&second.path())? {
                let id = name(&folder);
                let hex = id
                    .get(16..32)
                    .and_then(|hex| u64::from_str_radix(hex, 16).ok());
                if let Some(hex) = hex {
                    found.insert(hex.swap_bytes(), folder.path());
                }
            }
        }
    }
    Ok(found)
}

fn walk(
    at: &Path,
    path: &str,
    depot: &BTreeMap<u64, PathBuf>,
    view: &mut View,
) -> Result<(), String> {
    for entry in entries(at)? {
        let name = name(&entry);
        if path.is_empty() && (name == DEPOT || name == "lost+found") || name.starts_with(TEMPORARY)
        {
            continue;
        }
        let below = if path.is_empty() {
            name
        } else {
            format!("{path}/{name}")
        };
        let place = entry.path();
        let said = |error: std::io::Error| format!("{below}: {error}");
        let meta = std::fs::symlink_metadata(&place).map_err(said)?;
        if meta.is_dir() {
            walk(&place, &below, depot, view)?;
        }
        let mut node = Node {
            inode: Some(meta.ino()),
            attributes: dos_attributes(&place) & ATTRIBUTES,
            written: Some(meta.mtime() as u64 * 1_000_000_000 + meta.mtime_nsec() as u64),
            mark: Some(mark(&place, MARK)),
            client_marks: Some([
                mark(&place, &format!("user.{EA}")),
                named_account(&place),
                u32::from(dos_attributes(&place) & SPARSE != 0),
            ]),
            ..Node::default()
        };
        if meta.is_file() {
            node.forks[0] = Some(std::fs::read(&place).map_err(said)?);
            for (fork, stream) in STREAMS.iter().enumerate().skip(1) {
                node.forks[fork] = read_stream(&place, meta.ino(), stream, depot);
            }
        }
        view.insert(below, node);
    }
    Ok(())
}

fn xattr(at: &Path, name: &str) -> Option<Vec<u8>> {
    let mut value = vec![0; XATTR_MAX];
    let len = rustix::fs::lgetxattr(at, name, &mut value[..]).ok()?;
    value.truncate(len);
    Some(value)
}

/// The value of an attribute; 0 if there is none.
fn mark(at: &Path, name: &str) -> u32 {
    let value = xattr(at, name).unwrap_or_default();
    value.try_into().map_or(0, u32::from_le_bytes)
}

/// The number of the account that a security descriptor names, wherever it is stored there; 0 for none.
fn named_account(at: &Path) -> u32 {
    let stored = xattr(at, "security.NTACL").or_else(|| xattr(at, "user.NTACL"));
    let stored = stored.unwrap_or_default();
    let domain = &account(0)[..24];
    let mut places = stored.windows(28).filter(|bytes| bytes.starts_with(domain));
    let number = places.next().and_then(|bytes| bytes.last_chunk());
    number.map_or(0, |number| u32::from_le_bytes(*number))
}

/// DOS attributes as Samba keeps them, versions 3 to 5: a text, then aligned fields.
fn dos_attributes(at: &Path) -> u32 {
    let blob = xattr(at, "user.DOSATTRIB").unwrap_or_default();
    let field = || {
        let text = blob.iter().position(|byte| *byte == 0)?;
        let version = (text + 1).next_multiple_of(2);
        if !matches!(blob.get(version..version + 2)?, [3..=5, 0]) {
            return None;
        }
        // The version twice, which fields are valid, the attributes.
        let place = (version + 4).next_multiple_of(4) + 4;
        let bytes = blob.get(place..place + 4)?.try_into().ok()?;
        Some(u32::from_le_bytes(bytes))
    };
    field().unwrap_or(0)
}

/// A stream: an attribute, or else a file in the depot where the inode is marked.
fn read_stream(
    at: &Path,
    inode: u64,
    stream: &str,
    depot: &BTreeMap<u64, PathBuf>,
) -> Option<Vec<u8>> {
    if let Some(mut value) = xattr(at, &format!("user.DosStream.{stream}:$DATA")) {
        if value.last() == Some(&0) {
            value.pop();
        }
        return Some(value);
    }
    xattr(at, "user.SAMBA_STREAMS")?;
    std::fs::read(depot.get(&inode)?.join(format!(":{stream}:$DATA"))).ok()
}

/// Reads the same through a server.
pub(crate) fn served(tree: &Tree) -> Result<View, String> {
    let mut view = View::new();
    serve(tree, "", &mut view).map_err(|error| format!("through the server: {error}"))?;
    Ok(view)
}

fn serve(tree: &Tree, path: &str, view: &mut View) -> Result<(), ClientError> {
    for entry in tree.list(&path.replace('/', "\\"), "*")? {
        let name = entry.file_name.clone();
        if name == "." || name == ".." || path.is_empty() && name == "lost+found" {
            continue;
        }
        let below = if path.is_empty() {
            name
        } else {
            format!("{path}/{name}")
        };
        let directory = entry.file_attributes.contains(FileAttributes::DIRECTORY);
        let mut node = Node {
            inode: (entry.file_id != 0).then_some(entry.file_id),
            attributes: entry.file_attributes.bits() & ATTRIBUTES,
            ..Node::default()
        };
        if directory {
            serve(tree, &below, view)?;
        } else {
            for (fork, stream) in STREAMS.iter().enumerate() {
                let colon = if fork == 0 { "" } else { ":" };
                let full = format!("{}{colon}{stream}", below.replace('/', "\\"));
                let args = CreateArgs::open(&full).access(AccessMask::FILE_GENERIC_READ);
                node.forks[fork] = match tree.create(&args) {
                    Ok(file) => {
                        let data = file.read_all();
                        file.close()?;
                        Some(data?)
                    }
                    Err(ClientError::Status(Status::OBJECT_NAME_NOT_FOUND)) if fork > 0 => None,
                    Err(other) => return Err(other),
                };
            }
        }
        view.insert(below, node);
    }
    Ok(())
}
